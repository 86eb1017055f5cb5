-- The naive pattern on SQLite: one transaction per call, two per cycle. It reads the account and its pocket, decides in
-- the program, writes row by row, and commits, which syncs the WAL.
--
-- At its best: prepared statements on one connection that the callers take in turn. SQLite has one writer, and waiting for
-- it in the process costs less than SQLite's busy handler does. The rows are those of the real store, all of them.

-- name: begin
-- The write lock comes first: what is read after it is not stale.
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: read
-- By two primary keys.
SELECT a.last_entry, g.granted - g.reserved - g.used - g.voided, g.reserved
	FROM accounts a JOIN grants g ON g.account_id = a.account_id AND g.grant_id = ?2
	WHERE a.account_id = ?1

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

-- name: hold
UPDATE grants SET reserved = reserved + ? WHERE account_id = ? AND grant_id = ?

-- name: charge
UPDATE grants SET reserved = reserved - ?1, used = used + ?1 WHERE account_id = ?2 AND grant_id = ?3

-- name: update account
UPDATE accounts SET version = version + 1, last_entry = last_entry + 1, active = active + ?, decided_at = ? WHERE account_id = ?

-- name: read reservation
-- By primary key: a commit must know that nobody ended it.
SELECT state FROM reservations WHERE account_id = ? AND reservation_id = ?

-- name: end reservation
UPDATE reservations SET state = 'committed', allocations = ?, used = reserved, ended_at = ? WHERE account_id = ? AND reservation_id = ?
