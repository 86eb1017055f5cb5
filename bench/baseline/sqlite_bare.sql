-- The bare batched loop on SQLite: 500 reserves in one transaction, their 500 commits in the next, and so on. It decides
-- nothing: it knows that the money is there, that every key is new, and that nobody else ended a reservation. What is left is
-- what the rows and the indexes cost, and one sync of the WAL per 500.
--
-- At its best: prepared statements, row by row (faster than one statement per table here), one connection, one update of
-- an account and of its pocket per batch. The rows are those of the real store, all of them.

-- name: begin
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: update account
-- One for all commands of the account; their entries are numbered below what it returns.
UPDATE accounts SET version = version + 1, last_entry = last_entry + ?1, active = active + ?2, decided_at = ?3
	WHERE account_id = ?4 RETURNING last_entry

-- name: hold
UPDATE grants SET reserved = reserved + ?1 WHERE account_id = ?2 AND grant_id = ?3
	RETURNING granted - reserved - used - voided, reserved

-- name: charge
UPDATE grants SET reserved = reserved - ?1, used = used + ?1 WHERE account_id = ?2 AND grant_id = ?3
	RETURNING granted - reserved - used - voided, reserved

-- name: insert reservation
INSERT INTO reservations (account_id, reservation_id, feature, quantity, state, price_unit, price_amount, allocations,
	reserved, used, unbilled, late_used, refunded, key, surface, catalog_version, ttl_microseconds, created_at, expires_at,
	cause, worker, lease_token, attempts)
	VALUES (?, ?, ?, 1, 'reserved', ?, ?, ?, ?, 0, 0, 0, 0, ?, '', 1, ?, ?, ?, '', '', '', 0)

-- name: insert answer
INSERT INTO answers (account_id, key, fingerprint, command_id, outcome, recorded_at) VALUES (?, ?, ?, ?, ?, ?)

-- name: insert entry
INSERT INTO entries (account_id, entry_no, kind, unit, deltas, reservation_id, key, actor, reason, effective_at, recorded_at,
	available, reserved)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', ?, ?, ?, ?)

-- name: insert event
INSERT INTO outbox (account_id, event_id, kind, entry_no, reservation_id, figure, at) VALUES (?, ?, ?, ?, ?, 0, ?)

-- name: end reservation
UPDATE reservations SET state = 'committed', allocations = ?, used = reserved, ended_at = ? WHERE account_id = ? AND reservation_id = ?
