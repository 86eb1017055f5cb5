-- One writable CTE per phase on PostgreSQL: the whole decision in a single statement, which is its own transaction; two per
-- cycle. The best that can be done without batches: one round trip, and the row locks are held for the statement alone.
--
-- At its best: a connection for each caller, prepared statements. The pocket is locked first and the account second, by
-- everybody. The rows are those of the real store, all of them. It returns no row where the money is missing, or where the
-- reservation has ended.

-- name: reserve
-- $1 account, $2 grant, $3 reservation, $4 key, $5 outcome, $6 now, $7 price
WITH pocket AS (
	UPDATE holdfast.grants SET reserved = reserved + $7::bigint
		WHERE account_id = $1::uuid AND grant_id = $2::uuid AND granted - reserved - used - voided >= $7
		RETURNING account_id, granted - reserved - used - voided AS available, reserved
), account AS (
	UPDATE holdfast.accounts a SET version = version + 1, last_entry = last_entry + 1, active = active + 1, decided_at = $6::timestamptz
		FROM pocket WHERE a.account_id = pocket.account_id
		RETURNING a.account_id, a.last_entry, a.version
), reservation AS (
	INSERT INTO holdfast.reservations (account_id, reservation_id, quantity, price_amount, reserved, used, unbilled, late_used, refunded,
		catalog_version, ttl_microseconds, created_at, expires_at, attempts, state, feature, price_unit,
		allocation_grants, allocation_sources, allocation_amounts, key, surface, cause, worker, lease_token)
	SELECT account_id, $3::uuid, 1, $7, $7, 0, 0, 0, 0, 1, 900000000, $6, $6 + interval '15 minutes', 0, 'reserved', 'image.generate', 'credit',
		ARRAY[$2], ARRAY['purchase'], ARRAY[$7, 0, 0], $4::text, '', '', '', ''
	FROM account
), answer AS (
	INSERT INTO holdfast.answers (account_id, command_id, fingerprint, recorded_at, key, outcome)
	SELECT account_id, $3, $3, $6, $4, $5::text FROM account
), entry AS (
	INSERT INTO holdfast.entries (account_id, entry_no, effective_at, recorded_at, available, reserved, reservation_id, kind, unit,
		delta_grants, delta_amounts, key, actor, reason)
	SELECT account_id, last_entry, $6, $6, available, pocket.reserved, $3, 'reserve', 'credit', ARRAY[$2], ARRAY[0, $7, 0, 0], $4, 'bench', ''
	FROM account JOIN pocket USING (account_id)
)
INSERT INTO holdfast.outbox (account_id, event_id, written, entry_no, figure, at, reservation_id, kind)
	SELECT account_id, ('000000000000800080' || lpad(to_hex(last_entry), 14, '0'))::uuid, version << 16, last_entry, 0, $6, $3, 'reservation.reserve'
	FROM account

-- name: commit
-- $1 account, $2 grant, $3 reservation, $4 now, $5 price
WITH reservation AS (
	UPDATE holdfast.reservations SET state = 'committed', used = reserved, allocation_amounts = ARRAY[$5::bigint, $5, 0], ended_at = $4::timestamptz
		WHERE account_id = $1::uuid AND reservation_id = $3::uuid AND ended_at IS NULL
		RETURNING account_id
), pocket AS (
	UPDATE holdfast.grants g SET reserved = g.reserved - $5, used = g.used + $5
		FROM reservation WHERE g.account_id = reservation.account_id AND g.grant_id = $2::uuid
		RETURNING g.account_id, g.granted - g.reserved - g.used - g.voided AS available, g.reserved
), account AS (
	UPDATE holdfast.accounts a SET version = version + 1, last_entry = last_entry + 1, active = active - 1, decided_at = $4
		FROM pocket WHERE a.account_id = pocket.account_id
		RETURNING a.account_id, a.last_entry, a.version
), entry AS (
	INSERT INTO holdfast.entries (account_id, entry_no, effective_at, recorded_at, available, reserved, reservation_id, kind, unit,
		delta_grants, delta_amounts, key, actor, reason)
	SELECT account_id, last_entry, $4, $4, available, pocket.reserved, $3, 'commit', 'credit', ARRAY[$2], ARRAY[0, -$5, $5, 0], '', 'bench', ''
	FROM account JOIN pocket USING (account_id)
)
INSERT INTO holdfast.outbox (account_id, event_id, written, entry_no, figure, at, reservation_id, kind)
	SELECT account_id, ('000000000000800080' || lpad(to_hex(last_entry), 14, '0'))::uuid, version << 16, last_entry, 0, $4, $3, 'reservation.commit'
	FROM account
