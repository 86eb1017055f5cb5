-- Finished reservations, loaded by sets: the rows that a reserve and its commit leave in the real store, so that the ledgers
-- still add up. ?1: how many, ?2: how many accounts they are spread over, ?3: the first number, ?4: when they happened,
-- ?5: the price. It runs while nothing is held.

-- name: number the accounts
-- In the order of their names: the hot one is the first.
CREATE TEMP TABLE numbered AS
	SELECT row_number() OVER (ORDER BY a.name) - 1 AS n, a.account_id, g.grant_id, a.last_entry,
		g.granted - g.reserved - g.used - g.voided AS available, g.used,
		substr(h, 1, 8) || '-' || substr(h, 9, 4) || '-' || substr(h, 13, 4) || '-' || substr(h, 17, 4) || '-' || substr(h, 21) AS grant_text
	FROM accounts a JOIN (SELECT *, lower(hex(grant_id)) AS h FROM grants) g ON g.account_id = a.account_id

-- name: number the reservations
-- j counts within the account, from 0. The id is a UUIDv7 of that time.
CREATE TEMP TABLE history AS
	WITH RECURSIVE series (i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM series WHERE i + 1 < ?1)
	SELECT i + ?3 AS i, i / ?2 AS j, n.account_id, n.grant_id, n.grant_text, n.last_entry, n.available,
		unhex(printf('%012x7%03x8%015x', ?4 / 1000, i % 4096, i + ?3)) AS reservation_id
	FROM series JOIN numbered n ON n.n = series.i % ?2

-- name: reservations
INSERT INTO reservations (account_id, reservation_id, feature, quantity, state, price_unit, price_amount, allocations,
	reserved, used, unbilled, late_used, refunded, key, surface, catalog_version, ttl_microseconds, created_at, expires_at,
	ended_at, cause, worker, lease_token, attempts)
	SELECT account_id, reservation_id, 'image.generate', 1, 'committed', 'credit', ?5,
		'[["' || grant_text || '","purchase",' || ?5 || ',' || ?5 || ',0]]',
		?5, ?5, 0, 0, 0, 'history-' || (1000000000 + i), '', 1, 900000000, ?4, ?4 + 900000000, ?4 + 1000, '', '', '', 0
	FROM history

-- name: entries
INSERT INTO entries (account_id, entry_no, kind, unit, deltas, reservation_id, key, actor, reason, effective_at, recorded_at,
	available, reserved)
	SELECT account_id, last_entry + 2 * j + 1 + phase, iif(phase = 0, 'reserve', 'commit'), 'credit',
		'[["' || grant_text || '",0,' || iif(phase = 0, ?5 || ',0', -?5 || ',' || ?5) || ',0]]',
		reservation_id, iif(phase = 0, 'history-' || (1000000000 + i), ''), 'bench', '', ?4 + 1000 * phase, ?4 + 1000 * phase,
		available - ?5 * (j + 1), iif(phase = 0, ?5, 0)
	FROM history, (SELECT 0 AS phase UNION ALL SELECT 1) ORDER BY i, phase

-- name: answers
-- ?6: an answer of the real store.
INSERT INTO answers (account_id, key, fingerprint, command_id, outcome, recorded_at)
	SELECT account_id, 'history-' || (1000000000 + i), randomblob(16), reservation_id, ?6, ?4 FROM history

-- name: events
INSERT INTO outbox (account_id, event_id, kind, entry_no, reservation_id, figure, at)
	SELECT account_id, unhex(printf('000000000000800080%014x', last_entry + 2 * j + 1 + phase)),
		iif(phase = 0, 'reservation.reserve', 'reservation.commit'), last_entry + 2 * j + 1 + phase, reservation_id, 0, ?4 + 1000 * phase
	FROM history, (SELECT 0 AS phase UNION ALL SELECT 1) ORDER BY i, phase

-- name: grants
UPDATE grants SET used = used + ?5 * (SELECT count(*) FROM history h WHERE h.account_id = grants.account_id)
	WHERE account_id IN (SELECT account_id FROM history)

-- name: accounts
UPDATE accounts SET version = version + 1, last_entry = last_entry + 2 * (SELECT count(*) FROM history h WHERE h.account_id = accounts.account_id)
	WHERE account_id IN (SELECT account_id FROM history)

-- name: index the reservations
CREATE INDEX temp.history_by_account ON history (account_id)

-- name: forget the reservations
DROP TABLE history

-- name: forget the accounts
DROP TABLE numbered
