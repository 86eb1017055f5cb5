-- The first schema: accounts with what they own, and the lookup tables of the edges.
--
-- Rules (the same for every SQL store):
--   * account_id leads every primary key, unique constraint, foreign key and index of an account-owned table, so that the
--     tables can be sharded by it; no foreign key leaves the account.
--   * One unique index per table: a planner with two of them, both led by the account, may pick the wrong one.
--   * Times are microseconds since 1970 in UTC; NULL means none. Ids are the 16 bytes of a UUID. JSON only for lists and
--     maps; an empty one is NULL.
--   * A constraint's name is a sentence that tells what it keeps true.
--
-- Only here: STRICT, so that a column holds its type; rowid tables with a primary key, because WITHOUT ROWID was slower
-- by a factor of 1.4 on many accounts (rows are wide, and every insert would move them about in the key's tree).

-- +goose Up

CREATE TABLE accounts (
	account_id BLOB    NOT NULL,
	project    TEXT    NOT NULL,
	name       TEXT    NOT NULL,
	version    INTEGER NOT NULL, -- the fence: every write says which one it read
	last_entry INTEGER NOT NULL,
	active     INTEGER NOT NULL,
	plan       TEXT    NOT NULL,
	language   TEXT    NOT NULL,
	time_zone  TEXT    NOT NULL,
	blocked    INTEGER NOT NULL,
	notices    INTEGER NOT NULL,
	metadata   TEXT,
	created_at INTEGER NOT NULL,
	decided_at INTEGER NOT NULL,
	standing   TEXT, -- JSON: what few accounts have (debts, the plan's anchor, when it was deleted); see store/pack.go
	transfers  TEXT, -- JSON: what has still to be done beyond this row: at the account that this one was merged into, at those that lead here, for work to be stopped
	PRIMARY KEY (account_id),
	CONSTRAINT account_id_is_a_uuid CHECK (length(account_id) = 16),
	CONSTRAINT account_has_a_project_and_a_name CHECK (project <> '' AND name <> ''),
	CONSTRAINT version_counts_from_one CHECK (version >= 1),
	CONSTRAINT last_entry_is_not_negative CHECK (last_entry >= 0),
	CONSTRAINT active_is_not_negative CHECK (active >= 0),
	CONSTRAINT blocked_is_yes_or_no CHECK (blocked IN (0, 1)),
	CONSTRAINT notices_is_yes_or_no CHECK (notices IN (0, 1))
) STRICT;

-- What has not arrived yet is found by a scan: there is hardly ever any.
CREATE INDEX transfers_under_way ON accounts (account_id) WHERE transfers IS NOT NULL;

CREATE TABLE grants (
	account_id BLOB    NOT NULL,
	grant_id   BLOB    NOT NULL,
	unit       TEXT    NOT NULL,
	source     TEXT    NOT NULL,
	allowance  TEXT    NOT NULL,
	features   TEXT,
	priority   INTEGER NOT NULL,
	granted    INTEGER NOT NULL,
	reserved   INTEGER NOT NULL,
	used       INTEGER NOT NULL,
	voided     INTEGER NOT NULL,
	starts_at  INTEGER NOT NULL,
	ends_at    INTEGER,
	created_at INTEGER NOT NULL,
	open       INTEGER NOT NULL,
	payment    BLOB, -- that bought it
	history    TEXT, -- JSON: what happens to few (carried over, taken back by refunds); see store/pack.go
	PRIMARY KEY (account_id, grant_id),
	CONSTRAINT grant_belongs_to_an_account FOREIGN KEY (account_id) REFERENCES accounts (account_id),
	CONSTRAINT grant_id_is_a_uuid CHECK (length(grant_id) = 16),
	CONSTRAINT grant_has_a_unit CHECK (unit <> ''),
	CONSTRAINT source_is_known CHECK (source IN ('allowance', 'rollover', 'promo', 'purchase', 'correction')),
	CONSTRAINT priority_is_not_negative CHECK (priority >= 0),
	CONSTRAINT granted_is_a_positive_amount CHECK (granted BETWEEN 1 AND 9007199254740991),
	CONSTRAINT reserved_is_not_negative CHECK (reserved >= 0),
	CONSTRAINT used_is_not_negative CHECK (used >= 0),
	CONSTRAINT voided_is_not_negative CHECK (voided >= 0),
	CONSTRAINT reserved_used_and_voided_fit_granted CHECK (reserved + used + voided <= granted),
	CONSTRAINT grant_ends_after_it_starts CHECK (ends_at > starts_at),
	CONSTRAINT open_is_yes_or_no CHECK (open IN (0, 1)),
	CONSTRAINT closed_grant_holds_nothing CHECK (open = 1 OR reserved = 0)
) STRICT;

-- Every decision loads the account's open grants and none of the closed ones, of which there are ever more.
CREATE INDEX open_grants ON grants (account_id) WHERE open = 1;

-- A refund of a payment finds what it bought, open or not. Most grants were bought by none.
CREATE INDEX bought_grants ON grants (account_id, payment) WHERE payment IS NOT NULL;

CREATE TABLE reservations (
	account_id       BLOB    NOT NULL,
	reservation_id   BLOB    NOT NULL,
	feature          TEXT    NOT NULL,
	quantity         INTEGER NOT NULL,
	state            TEXT    NOT NULL,
	price_unit       TEXT    NOT NULL,
	price_amount     INTEGER NOT NULL,
	allocations      TEXT, -- [[grant id, source, reserved, used, refunded], …]
	reserved         INTEGER NOT NULL,
	used             INTEGER NOT NULL,
	unbilled         INTEGER NOT NULL,
	late_used        INTEGER NOT NULL,
	refunded         INTEGER NOT NULL,
	late_at          INTEGER,
	key              TEXT    NOT NULL,
	surface          TEXT    NOT NULL,
	metadata         TEXT,
	usage            TEXT,
	catalog_version  INTEGER NOT NULL,
	ttl_microseconds INTEGER NOT NULL,
	created_at       INTEGER NOT NULL,
	expires_at       INTEGER NOT NULL,
	ended_at         INTEGER,
	cause            TEXT    NOT NULL,
	worker           TEXT    NOT NULL,
	lease_token      TEXT    NOT NULL,
	lease_expires_at INTEGER,
	attempts         INTEGER NOT NULL,
	terms            TEXT, -- JSON: rates and policies, where they are not the defaults; written once
	course           TEXT, -- JSON: what happens to few (debt, doubt, a request to stop, usage as reported)
	PRIMARY KEY (account_id, reservation_id),
	CONSTRAINT reservation_belongs_to_an_account FOREIGN KEY (account_id) REFERENCES accounts (account_id),
	CONSTRAINT reservation_id_is_a_uuid CHECK (length(reservation_id) = 16),
	CONSTRAINT reservation_has_a_feature CHECK (feature <> ''),
	CONSTRAINT quantity_is_positive CHECK (quantity >= 1),
	CONSTRAINT state_is_known CHECK (state IN ('reserved', 'running', 'committed', 'released', 'expired')),
	CONSTRAINT live_reservation_has_not_ended CHECK ((state IN ('reserved', 'running')) = (ended_at IS NULL)),
	CONSTRAINT price_is_not_negative CHECK (price_amount >= 0),
	CONSTRAINT held_is_an_amount CHECK (reserved BETWEEN 0 AND 9007199254740991),
	CONSTRAINT used_is_not_negative CHECK (used >= 0),
	CONSTRAINT unbilled_is_not_negative CHECK (unbilled >= 0),
	CONSTRAINT late_used_is_not_negative CHECK (late_used >= 0),
	CONSTRAINT late_use_follows_expiry CHECK (CASE WHEN late_at IS NULL THEN late_used = 0 ELSE state = 'expired' END),
	CONSTRAINT refunded_is_not_negative CHECK (refunded >= 0),
	CONSTRAINT ttl_is_positive CHECK (ttl_microseconds > 0),
	CONSTRAINT reservation_expires_after_it_begins CHECK (expires_at > created_at),
	CONSTRAINT attempts_is_not_negative CHECK (attempts >= 0)
) STRICT;

-- The live ones, the longest overdue first within the account. It serves two readers: the load of an account's overdue
-- reservations (a range of one account, already in order), and the sweeper's scan over all accounts. The scan wants time
-- first, and the rule wants the account first; so it walks this index from end to end. That costs as much as there is
-- live work, and never grows with history: an account holds no more live reservations than its plan has slots. ended_at,
-- always NULL here, is in the index so that the scan need not look at the rows to see it.
CREATE INDEX live_reservations ON reservations (account_id, expires_at, reservation_id, ended_at) WHERE ended_at IS NULL;

-- The jobs of live reservations: what a claim needs to find one. A row is removed when its reservation ends, and its payload
-- with it; what became of its attempts is kept with the reservation. A claim wants a queue and the oldest first, and the rule
-- wants the account first; so it walks this table from end to end, by its key. That costs as much as there are live jobs: rows
-- are narrow, and one claim takes up to fifty. Without rows' own numbers, what is walked is the key and nothing else.
CREATE TABLE jobs (
	account_id     BLOB    NOT NULL,
	reservation_id BLOB    NOT NULL,
	created_at     INTEGER NOT NULL, -- the reservation's: the job's place in the queue
	claimable_at   INTEGER,          -- of a running one, when its lease lapses; of one given back, when its delay is over; NULL: nobody may claim it (in doubt)
	last_attempt   INTEGER NOT NULL, -- it runs, and is not given away again
	project        TEXT    NOT NULL,
	queue          TEXT    NOT NULL,
	PRIMARY KEY (account_id, reservation_id),
	CONSTRAINT job_belongs_to_a_reservation FOREIGN KEY (account_id, reservation_id) REFERENCES reservations (account_id, reservation_id),
	CONSTRAINT last_attempt_is_yes_or_no CHECK (last_attempt IN (0, 1)),
	CONSTRAINT job_waits_in_a_queue CHECK (project <> '' AND queue <> '')
) STRICT, WITHOUT ROWID;

-- What the work is, apart from what is walked.
CREATE TABLE payloads (
	account_id     BLOB NOT NULL,
	reservation_id BLOB NOT NULL,
	payload        TEXT NOT NULL, -- JSON, as it was sent
	PRIMARY KEY (account_id, reservation_id),
	CONSTRAINT payload_belongs_to_a_reservation FOREIGN KEY (account_id, reservation_id) REFERENCES reservations (account_id, reservation_id),
	CONSTRAINT payload_is_bounded CHECK (octet_length(payload) BETWEEN 1 AND 65536)
) STRICT;

-- The ledger. No statement of the product updates or deletes a row.
CREATE TABLE entries (
	account_id     BLOB    NOT NULL,
	entry_no       INTEGER NOT NULL,
	kind           TEXT    NOT NULL,
	unit           TEXT    NOT NULL,
	deltas         TEXT, -- [[grant id, granted, reserved, used, voided], …]
	reservation_id BLOB,
	key            TEXT    NOT NULL,
	actor          TEXT    NOT NULL,
	reason         TEXT    NOT NULL,
	effective_at   INTEGER NOT NULL,
	recorded_at    INTEGER NOT NULL,
	available      INTEGER NOT NULL,
	reserved       INTEGER NOT NULL,
	PRIMARY KEY (account_id, entry_no), -- the second fence: no two decisions write the same number
	CONSTRAINT entry_belongs_to_an_account FOREIGN KEY (account_id) REFERENCES accounts (account_id),
	CONSTRAINT entries_count_from_one CHECK (entry_no >= 1),
	CONSTRAINT entry_has_a_kind CHECK (kind <> ''),
	CONSTRAINT entry_reservation_is_a_uuid CHECK (length(reservation_id) = 16),
	CONSTRAINT available_after_is_not_negative CHECK (available >= 0),
	CONSTRAINT reserved_after_is_not_negative CHECK (reserved >= 0)
) STRICT;

CREATE TABLE answers (
	account_id  BLOB    NOT NULL,
	key         TEXT    NOT NULL,
	fingerprint BLOB    NOT NULL,
	command_id  BLOB    NOT NULL,
	outcome     TEXT    NOT NULL,
	recorded_at INTEGER NOT NULL,
	PRIMARY KEY (account_id, key),
	CONSTRAINT answer_belongs_to_an_account FOREIGN KEY (account_id) REFERENCES accounts (account_id),
	CONSTRAINT answer_has_a_key CHECK (key <> ''),
	CONSTRAINT fingerprint_has_sixteen_bytes CHECK (length(fingerprint) = 16),
	CONSTRAINT command_id_is_a_uuid CHECK (length(command_id) = 16)
) STRICT;

-- Completed payments, kept for ever.
CREATE TABLE payments (
	account_id BLOB NOT NULL,
	payment_id BLOB NOT NULL,
	record     TEXT NOT NULL, -- JSON; see store/pack.go
	PRIMARY KEY (account_id, payment_id),
	CONSTRAINT payment_belongs_to_an_account FOREIGN KEY (account_id) REFERENCES accounts (account_id),
	CONSTRAINT payment_id_is_a_uuid CHECK (length(payment_id) = 16)
) STRICT;

-- What is to be told outside. A row points to the entry that it tells of instead of repeating it.
CREATE TABLE outbox (
	account_id     BLOB    NOT NULL,
	event_id       BLOB    NOT NULL,
	kind           TEXT    NOT NULL,
	entry_no       INTEGER,
	reservation_id BLOB,
	figure         INTEGER NOT NULL,
	at             INTEGER NOT NULL,
	PRIMARY KEY (account_id, event_id),
	CONSTRAINT event_belongs_to_an_account FOREIGN KEY (account_id) REFERENCES accounts (account_id),
	CONSTRAINT event_tells_of_an_entry_of_the_account FOREIGN KEY (account_id, entry_no) REFERENCES entries (account_id, entry_no),
	CONSTRAINT event_id_is_a_uuid CHECK (length(event_id) = 16),
	CONSTRAINT event_has_a_kind CHECK (kind <> ''),
	CONSTRAINT event_reservation_is_a_uuid CHECK (length(reservation_id) = 16),
	CONSTRAINT figure_is_not_negative CHECK (figure >= 0)
) STRICT;

-- What is to be told later, if it is still true then: a notice waits in a slot of its account. Those of work are due soon and
-- looked for often, the others seldom; both walks go by the account, as the rule wants.
CREATE TABLE notices (
	account_id     BLOB    NOT NULL,
	slot           BLOB    NOT NULL,
	event_id       BLOB    NOT NULL,
	due_at         INTEGER NOT NULL,
	reservation_id BLOB,
	kind           TEXT    NOT NULL,
	PRIMARY KEY (account_id, slot),
	CONSTRAINT notice_belongs_to_an_account FOREIGN KEY (account_id) REFERENCES accounts (account_id),
	CONSTRAINT notice_slot_is_a_uuid CHECK (length(slot) = 16),
	CONSTRAINT notice_event_is_a_uuid CHECK (length(event_id) = 16),
	CONSTRAINT notice_has_a_kind CHECK (kind <> '')
) STRICT;

CREATE INDEX notices_of_work ON notices (account_id, slot, due_at) WHERE reservation_id IS NOT NULL;

-- Lookup tables: small, unique over all accounts, and outside every account.

CREATE TABLE projects (
	name TEXT NOT NULL,
	PRIMARY KEY (name),
	CONSTRAINT project_has_a_name CHECK (name <> '')
) STRICT;

CREATE TABLE api_keys (
	hash       BLOB    NOT NULL,
	id         TEXT    NOT NULL,
	project    TEXT    NOT NULL,
	scopes     TEXT, -- ["read", …]
	note       TEXT    NOT NULL,
	created_at INTEGER NOT NULL,
	revoked_at INTEGER,
	rate_limit INTEGER NOT NULL, -- requests per second; 0: the server's
	PRIMARY KEY (hash),
	CONSTRAINT key_is_for_a_known_project FOREIGN KEY (project) REFERENCES projects (name),
	CONSTRAINT hash_has_thirty_two_bytes CHECK (length(hash) = 32),
	CONSTRAINT key_has_an_id CHECK (id <> '')
) STRICT;

CREATE TABLE catalogs (
	project    TEXT    NOT NULL, -- empty: of every project that has none of its own
	version    INTEGER NOT NULL,
	source     TEXT    NOT NULL,
	created_at INTEGER NOT NULL,
	PRIMARY KEY (project, version),
	CONSTRAINT catalog_versions_count_from_one CHECK (version >= 1)
) STRICT;

-- Which account a provider's payment belongs to: the first that claims it. Refunds that come before the payment wait here.
CREATE TABLE payment_claims (
	project    TEXT    NOT NULL,
	provider   TEXT    NOT NULL,
	payment_id TEXT    NOT NULL,
	created_at INTEGER NOT NULL,
	account_id BLOB, -- NULL: nobody's yet
	refunds    TEXT, -- JSON
	PRIMARY KEY (project, provider, payment_id)
) STRICT;

-- Further ids that a provider has for a payment: refunds of an invoice name what paid it, not the invoice.
CREATE TABLE payment_names (
	project    TEXT NOT NULL,
	provider   TEXT NOT NULL,
	name       TEXT NOT NULL,
	payment_id TEXT NOT NULL,
	PRIMARY KEY (project, provider, name)
) STRICT;

-- What was agreed on before a payment, found by what the provider tells with each payment of it.
CREATE TABLE orders (
	project    TEXT    NOT NULL,
	provider   TEXT    NOT NULL,
	reference  TEXT    NOT NULL,
	seller     TEXT    NOT NULL,
	account    TEXT    NOT NULL,
	product    TEXT    NOT NULL,
	price      INTEGER NOT NULL,
	currency   TEXT    NOT NULL,
	recurring  INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	paid_at    INTEGER, -- NULL: not paid
	payment_id TEXT,    -- NULL: the first payment was not told yet
	payer      TEXT,
	cancelled  INTEGER NOT NULL,
	told_at    INTEGER, -- NULL: nothing was told of its renewal
	PRIMARY KEY (project, provider, reference),
	CONSTRAINT order_has_a_reference CHECK (reference <> '')
) STRICT;

CREATE INDEX recurring_orders ON orders (project, provider, account) WHERE recurring = 1 AND paid_at IS NOT NULL;
-- What the relay and its readers keep. Positions are given when an event is published, in one transaction at a time of a
-- project: its row in positions is locked until the commit, so that no position appears behind a reader's back.

-- Who relays. The token changes with the holder.
CREATE TABLE leases (
	name   TEXT    NOT NULL,
	holder TEXT    NOT NULL,
	token  INTEGER NOT NULL,
	until  INTEGER NOT NULL,
	PRIMARY KEY (name)
) STRICT;

CREATE TABLE positions (
	project TEXT    NOT NULL,
	last    INTEGER NOT NULL,
	PRIMARY KEY (project),
	CONSTRAINT last_position_is_not_negative CHECK (last >= 0)
) STRICT;

CREATE TABLE published_events (
	project      TEXT    NOT NULL,
	position     INTEGER NOT NULL,
	account_id   BLOB    NOT NULL,
	event_id     BLOB    NOT NULL,
	at           INTEGER NOT NULL,
	published_at INTEGER NOT NULL,
	kind         TEXT    NOT NULL,
	data         TEXT    NOT NULL, -- JSON; nothing personal: the account's name is read from the account
	PRIMARY KEY (project, position),
	CONSTRAINT positions_count_from_one CHECK (position >= 1)
) STRICT;

-- An event that is told again is found by its id, and so is one from which a reader begins.
CREATE INDEX published_event_ids ON published_events (account_id, event_id);

-- What is old is pruned. Not by project: a place in a project is to be found by the primary key alone.
CREATE INDEX published_event_times ON published_events (published_at);

-- How far each sink has come.
CREATE TABLE sink_cursors (
	sink     TEXT    NOT NULL,
	project  TEXT    NOT NULL,
	position INTEGER NOT NULL,
	PRIMARY KEY (sink, project)
) STRICT;

CREATE TABLE endpoints (
	endpoint_id   TEXT    NOT NULL,
	project       TEXT    NOT NULL,
	created_at    INTEGER NOT NULL,
	cursor        INTEGER NOT NULL, -- events up to here have become deliveries; those of deliveries beyond it wait to be queued again
	epoch         INTEGER NOT NULL, -- how often it was rewound
	version       INTEGER NOT NULL, -- of what an operator may change
	paused        INTEGER NOT NULL,
	paused_reason TEXT    NOT NULL,
	url           TEXT    NOT NULL,
	kinds         TEXT,
	secrets       TEXT    NOT NULL, -- the newest first; as they are, since they sign
	note          TEXT    NOT NULL,
	PRIMARY KEY (endpoint_id),
	CONSTRAINT endpoint_has_a_secret CHECK (json_array_length(secrets) >= 1)
) STRICT;

CREATE TABLE deliveries (
	endpoint_id TEXT    NOT NULL,
	position    INTEGER NOT NULL,
	account_id  BLOB    NOT NULL,
	epoch       INTEGER NOT NULL,
	next_at     INTEGER,
	first_at    INTEGER,
	last_at     INTEGER,
	attempts    INTEGER NOT NULL,
	status      INTEGER NOT NULL,
	state       TEXT    NOT NULL,
	problem     TEXT    NOT NULL,
	PRIMARY KEY (endpoint_id, position),
	CONSTRAINT delivery_state_is_known CHECK (state IN ('waiting', 'pending', 'delivered', 'dead')),
	CONSTRAINT pending_delivery_has_its_time CHECK ((state = 'pending') = (next_at IS NOT NULL))
) STRICT;

-- What is due, and what an account has in the queue.
CREATE INDEX due_deliveries ON deliveries (endpoint_id, next_at, position) WHERE state = 'pending';
CREATE INDEX queued_deliveries ON deliveries (endpoint_id, account_id, position) WHERE state IN ('pending', 'waiting');
CREATE INDEX dead_deliveries ON deliveries (endpoint_id, position) WHERE state = 'dead';

-- What chat bots keep: the updates that the Bot API told, the lines in which they wait for their turn, and notes.

CREATE TABLE telegram_updates (
	bot         TEXT    NOT NULL,
	update_id   INTEGER NOT NULL, -- unique in the bot, and no more than that: ids begin anew after an idle week
	line        TEXT    NOT NULL,
	received_at INTEGER NOT NULL, -- the place in the line
	ended_at    INTEGER,          -- NULL: it waits
	attempts    INTEGER NOT NULL,
	state       TEXT    NOT NULL,
	problem     TEXT, -- NULL: none
	raw         TEXT    NOT NULL, -- JSON, as it came
	PRIMARY KEY (bot, update_id),
	CONSTRAINT update_waits_in_a_line_of_a_bot CHECK (bot <> '' AND line <> ''),
	CONSTRAINT update_says_something CHECK (raw <> ''),
	CONSTRAINT update_state_is_known CHECK (state IN ('waiting', 'done', 'failed')),
	CONSTRAINT waiting_update_has_not_ended CHECK ((state = 'waiting') = (ended_at IS NULL))
) STRICT;

CREATE INDEX waiting_updates ON telegram_updates (bot, line, received_at) WHERE state = 'waiting';
CREATE INDEX failed_updates ON telegram_updates (bot) WHERE state = 'failed';
CREATE INDEX ended_updates ON telegram_updates (ended_at) WHERE ended_at IS NOT NULL;

-- There is a row as long as an update waits in the line. It is what a claim locks.
CREATE TABLE telegram_lines (
	bot    TEXT    NOT NULL,
	line   TEXT    NOT NULL,
	due_at INTEGER NOT NULL, -- when the first update may be tried; of a claimed line, when the claim ends
	claim  TEXT,             -- NULL: nobody's
	PRIMARY KEY (bot, line)
) STRICT;

CREATE INDEX due_lines ON telegram_lines (bot, due_at);

CREATE TABLE telegram_notes (
	bot   TEXT    NOT NULL,
	key   TEXT    NOT NULL,
	at    INTEGER NOT NULL,
	value TEXT    NOT NULL,
	PRIMARY KEY (bot, key),
	CONSTRAINT note_of_a_bot_has_a_key CHECK (bot <> '' AND key <> '')
) STRICT;
