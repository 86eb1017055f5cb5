-- Finished reservations on PostgreSQL, loaded by sets: the rows that a reserve and its commit leave in the real store, so
-- that the ledgers still add up. It runs in one transaction, while nothing is held.

-- name: number the accounts
-- In the order of their names: the hot one is the first.
CREATE TEMP TABLE numbered ON COMMIT DROP AS
	SELECT row_number() OVER (ORDER BY a.name COLLATE "C") - 1 AS n, a.account_id, g.grant_id, a.last_entry, a.version,
		g.granted - g.reserved - g.used - g.voided AS available
	FROM holdfast.accounts a JOIN holdfast.grants g USING (account_id)

-- name: number the reservations
-- j counts within the account, from 0. The id is a UUIDv7 of that time. $1 how many, $2 accounts, $3 the first number, $4 when
CREATE TEMP TABLE history ON COMMIT DROP AS
	SELECT i + $3::bigint AS i, i / $2::bigint AS j, n.account_id, n.grant_id, n.last_entry, n.version, n.available,
		(lpad(to_hex((extract(epoch FROM $4::timestamptz) * 1000)::bigint), 12, '0') || '7' || lpad(to_hex(i % 4096), 3, '0')
			|| '8' || lpad(to_hex(i + $3), 15, '0'))::uuid AS reservation_id
	FROM generate_series(0, $1::bigint - 1) AS series (i) JOIN numbered n ON n.n = i % $2
	ORDER BY i

-- name: reservations
-- $1 price, $2 when
INSERT INTO holdfast.reservations (account_id, reservation_id, quantity, price_amount, reserved, used, unbilled, late_used, refunded,
		catalog_version, ttl_microseconds, created_at, expires_at, ended_at, attempts, state, feature, price_unit,
		allocation_grants, allocation_sources, allocation_amounts, key, surface, cause, worker, lease_token)
	SELECT account_id, reservation_id, 1, $1::bigint, $1, $1, 0, 0, 0, 1, 900000000, $2::timestamptz, $2 + interval '15 minutes', $2 + interval '1 millisecond',
		0, 'committed', 'image.generate', 'credit', ARRAY[grant_id], ARRAY['purchase'], ARRAY[$1, $1, 0], 'history-' || (1000000000 + i), '', '', '', ''
	FROM history

-- name: answers
-- $1 an answer of the real store, $2 when
INSERT INTO holdfast.answers (account_id, command_id, fingerprint, recorded_at, key, outcome)
	SELECT account_id, reservation_id, gen_random_uuid(), $2::timestamptz, 'history-' || (1000000000 + i), $1::text FROM history

-- name: entries
-- $1 price, $2 when
INSERT INTO holdfast.entries (account_id, entry_no, effective_at, recorded_at, available, reserved, reservation_id, kind, unit,
		delta_grants, delta_amounts, key, actor, reason)
	SELECT account_id, last_entry + 2 * j + 1 + phase, $2::timestamptz, $2, available - $1::bigint * (j + 1), CASE phase WHEN 0 THEN $1 ELSE 0 END,
		reservation_id, CASE phase WHEN 0 THEN 'reserve' ELSE 'commit' END, 'credit', ARRAY[grant_id],
		CASE phase WHEN 0 THEN ARRAY[0, $1, 0, 0] ELSE ARRAY[0, -$1, $1, 0] END,
		CASE phase WHEN 0 THEN 'history-' || (1000000000 + i) ELSE '' END, 'bench', ''
	FROM history, generate_series(0, 1) AS phases (phase) ORDER BY i, phase

-- name: events
-- $1 when
INSERT INTO holdfast.outbox (account_id, event_id, written, entry_no, figure, at, reservation_id, kind)
	SELECT account_id, ('000000000000800080' || lpad(to_hex(last_entry + 2 * j + 1 + phase), 14, '0'))::uuid,
		(version << 16) + 2 * j + phase, last_entry + 2 * j + 1 + phase, 0, $1::timestamptz, reservation_id,
		CASE phase WHEN 0 THEN 'reservation.reserve' ELSE 'reservation.commit' END
	FROM history, generate_series(0, 1) AS phases (phase) ORDER BY i, phase

-- name: grants
-- $1 price
UPDATE holdfast.grants g SET used = used + $1::bigint * h.count
	FROM (SELECT account_id, count(*) FROM history GROUP BY account_id) h WHERE g.account_id = h.account_id

-- name: accounts
UPDATE holdfast.accounts a SET version = version + 1, last_entry = last_entry + 2 * h.count
	FROM (SELECT account_id, count(*) FROM history GROUP BY account_id) h WHERE a.account_id = h.account_id
