-- The naive pattern on PostgreSQL: SELECT … FOR UPDATE, decide in the program, insert, update, commit; twice per cycle. It is
-- what a careful program does that knows nothing better: one statement for each table, one after the other, and the row lock
-- held over all of them.
--
-- At its best: a connection for each caller, prepared statements, everything it must know read and locked by one statement.
-- It is measured at the callers of the engine, and at 16 callers too, where it is fastest. The rows are those of the real
-- store, all of them.

-- name: begin
BEGIN

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: lock
-- Both rows are locked, so that both are read again after a wait for the lock; a row that is only joined would be old.
SELECT a.last_entry, a.version, g.granted - g.reserved - g.used - g.voided, g.reserved
	FROM holdfast.accounts a JOIN holdfast.grants g ON g.account_id = a.account_id AND g.grant_id = $2
	WHERE a.account_id = $1
	FOR UPDATE

-- name: lock reservation
SELECT a.last_entry, a.version, g.granted - g.reserved - g.used - g.voided, g.reserved, r.state
	FROM holdfast.accounts a
	JOIN holdfast.grants g ON g.account_id = a.account_id AND g.grant_id = $2
	JOIN holdfast.reservations r ON r.account_id = a.account_id AND r.reservation_id = $3
	WHERE a.account_id = $1
	FOR UPDATE

-- name: insert reservation
-- $1 account, $2 reservation, $3 grant, $4 key, $5 price, $6 now
INSERT INTO holdfast.reservations (account_id, reservation_id, quantity, price_amount, reserved, used, unbilled, late_used, refunded,
		catalog_version, ttl_microseconds, created_at, expires_at, attempts, state, feature, price_unit,
		allocation_grants, allocation_sources, allocation_amounts, key, surface, cause, worker, lease_token)
	VALUES ($1::uuid, $2::uuid, 1, $5::bigint, $5, 0, 0, 0, 0, 1, 900000000, $6::timestamptz, $6 + interval '15 minutes', 0, 'reserved', 'image.generate', 'credit',
		ARRAY[$3::uuid], ARRAY['purchase'], ARRAY[$5, 0, 0], $4::text, '', '', '', '')

-- name: insert answer
-- $1 account, $2 reservation, $3 key, $4 outcome, $5 now
INSERT INTO holdfast.answers (account_id, command_id, fingerprint, recorded_at, key, outcome)
	VALUES ($1::uuid, $2::uuid, $2, $5::timestamptz, $3::text, $4::text)

-- name: insert entry
-- $1 account, $2 number, $3 reservation, $4 grant, $5 key, $6 kind, $7 held, $8 charged, $9 available, $10 reserved, $11 now
INSERT INTO holdfast.entries (account_id, entry_no, effective_at, recorded_at, available, reserved, reservation_id, kind, unit,
		delta_grants, delta_amounts, key, actor, reason)
	VALUES ($1::uuid, $2::bigint, $11::timestamptz, $11, $9::bigint, $10::bigint, $3::uuid, $6::text, 'credit',
		ARRAY[$4::uuid], ARRAY[0, $7::bigint, $8::bigint, 0], $5::text, 'bench', '')

-- name: insert event
-- $1 account, $2 event, $3 order of writing, $4 entry, $5 reservation, $6 kind, $7 now
INSERT INTO holdfast.outbox (account_id, event_id, written, entry_no, figure, at, reservation_id, kind)
	VALUES ($1::uuid, $2::uuid, $3::bigint, $4::bigint, 0, $7::timestamptz, $5::uuid, $6::text)

-- name: end reservation
-- $1 account, $2 reservation, $3 price, $4 now
UPDATE holdfast.reservations SET state = 'committed', used = reserved, allocation_amounts = ARRAY[$3::bigint, $3, 0], ended_at = $4::timestamptz
	WHERE account_id = $1::uuid AND reservation_id = $2::uuid

-- name: update grant
-- $1 account, $2 grant, $3 what becomes reserved, $4 what becomes used
UPDATE holdfast.grants SET reserved = reserved + $3::bigint, used = used + $4::bigint WHERE account_id = $1::uuid AND grant_id = $2::uuid

-- name: update account
-- $1 account, $2 what becomes active, $3 now
UPDATE holdfast.accounts SET version = version + 1, last_entry = last_entry + 1, active = active + $2::integer, decided_at = $3::timestamptz
	WHERE account_id = $1::uuid
