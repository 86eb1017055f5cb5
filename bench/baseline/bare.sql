-- The bare batched loop on PostgreSQL: 500 reserves in one transaction, their 500 commits in the next, and so on. It decides
-- nothing: it knows that the money is there, that every key is new, and that nobody else ended a reservation. What is left is
-- what the rows and the indexes cost, and one sync of the WAL per 500.
--
-- At its best: two round trips per transaction (the updates, which return the numbers that the entries need; then the
-- inserts and COMMIT, all pipelined), prepared statements, sets made by unnest in the select list, the accounts of a batch in
-- the order of their ids, no two connections on the same spread accounts. Measured with 1 and with 2 connections. The rows are
-- those of the real store, all of them.

-- name: begin
BEGIN

-- name: plan
-- As the real store does: each statement reads rows by their keys, and one plan for that is kept.
SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
	set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)

-- name: commit
COMMIT

-- name: update accounts
-- One for all commands of an account; their entries are numbered from what it returns. $1 accounts, $2 how many commands,
-- $3 what each adds to the active ones, $4 now
UPDATE holdfast.accounts a SET version = version + 1, last_entry = last_entry + x.count, active = active + x.count * $3::integer, decided_at = $4::timestamptz
	FROM (SELECT unnest($1::uuid[]) AS account_id, unnest($2::integer[]) AS count) x
	WHERE a.account_id = x.account_id
	RETURNING a.account_id, a.last_entry - x.count, a.version

-- name: hold
-- $1 accounts, $2 grants, $3 amounts
UPDATE holdfast.grants g SET reserved = reserved + x.amount
	FROM (SELECT unnest($1::uuid[]) AS account_id, unnest($2::uuid[]) AS grant_id, unnest($3::bigint[]) AS amount) x
	WHERE g.account_id = x.account_id AND g.grant_id = x.grant_id
	RETURNING g.account_id, g.granted - g.reserved - g.used - g.voided + x.amount, g.reserved - x.amount

-- name: charge
UPDATE holdfast.grants g SET reserved = reserved - x.amount, used = used + x.amount
	FROM (SELECT unnest($1::uuid[]) AS account_id, unnest($2::uuid[]) AS grant_id, unnest($3::bigint[]) AS amount) x
	WHERE g.account_id = x.account_id AND g.grant_id = x.grant_id
	RETURNING g.account_id, g.granted - g.reserved - g.used - g.voided, g.reserved + x.amount

-- name: insert reservations
-- $1 accounts, $2 reservations, $3 grants, $4 keys, $5 price, $6 now
INSERT INTO holdfast.reservations (account_id, reservation_id, quantity, price_amount, reserved, used, unbilled, late_used, refunded,
		catalog_version, ttl_microseconds, created_at, expires_at, attempts, state, feature, price_unit,
		allocation_grants, allocation_sources, allocation_amounts, key, surface, cause, worker, lease_token)
	SELECT account_id, reservation_id, 1, $5::bigint, $5, 0, 0, 0, 0, 1, 900000000, $6::timestamptz, $6 + interval '15 minutes', 0, 'reserved', 'image.generate', 'credit',
		ARRAY[grant_id], ARRAY['purchase'], ARRAY[$5, 0, 0], key, '', '', '', ''
	FROM (SELECT unnest($1::uuid[]) AS account_id, unnest($2::uuid[]) AS reservation_id, unnest($3::uuid[]) AS grant_id,
			unnest($4::text[]) AS key) x

-- name: insert answers
-- $1 accounts, $2 reservations, $3 keys, $4 outcomes, $5 now. The outcomes are sent, one for each row, as they must be.
INSERT INTO holdfast.answers (account_id, command_id, fingerprint, recorded_at, key, outcome)
	SELECT account_id, reservation_id, reservation_id, $5::timestamptz, key, outcome
	FROM (SELECT unnest($1::uuid[]) AS account_id, unnest($2::uuid[]) AS reservation_id, unnest($3::text[]) AS key,
			unnest($4::text[]) AS outcome) x

-- name: end reservations
-- $1 accounts, $2 reservations, $3 price, $4 now
UPDATE holdfast.reservations r SET state = 'committed', used = reserved, allocation_amounts = ARRAY[$3::bigint, $3, 0], ended_at = $4::timestamptz
	FROM (SELECT unnest($1::uuid[]) AS account_id, unnest($2::uuid[]) AS reservation_id) x
	WHERE r.account_id = x.account_id AND r.reservation_id = x.reservation_id

-- name: insert entries
-- $1 accounts, $2 numbers, $3 available, $4 reserved, $5 reservations, $6 grants, $7 keys, $8 kind, $9 held, $10 charged, $11 now
INSERT INTO holdfast.entries (account_id, entry_no, effective_at, recorded_at, available, reserved, reservation_id, kind, unit,
		delta_grants, delta_amounts, key, actor, reason)
	SELECT account_id, entry_no, $11::timestamptz, $11, available, reserved, reservation_id, $8::text, 'credit',
		ARRAY[grant_id], ARRAY[0, $9::bigint, $10::bigint, 0], key, 'bench', ''
	FROM (SELECT unnest($1::uuid[]) AS account_id, unnest($2::bigint[]) AS entry_no, unnest($3::bigint[]) AS available,
			unnest($4::bigint[]) AS reserved, unnest($5::uuid[]) AS reservation_id, unnest($6::uuid[]) AS grant_id,
			unnest($7::text[]) AS key) x

-- name: insert events
-- $1 accounts, $2 events, $3 order of writing, $4 entries, $5 reservations, $6 kind, $7 now
INSERT INTO holdfast.outbox (account_id, event_id, written, entry_no, figure, at, reservation_id, kind)
	SELECT account_id, event_id, written, entry_no, 0, $7::timestamptz, reservation_id, $6::text
	FROM (SELECT unnest($1::uuid[]) AS account_id, unnest($2::uuid[]) AS event_id, unnest($3::bigint[]) AS written,
			unnest($4::bigint[]) AS entry_no, unnest($5::uuid[]) AS reservation_id) x
