-- The first schema: accounts with what they own, and the lookup tables of the edges.
--
-- Rules (the same for every SQL store):
--   * account_id leads every primary key, unique constraint, foreign key and index of an account-owned table, so that the
--     tables can be sharded by it; no foreign key leaves the account.
--   * One unique index per table: a planner with two of them, both led by the account, may pick the wrong one.
--   * Times are in UTC and microseconds; NULL means none. An empty list or map is NULL.
--   * A constraint's name is a sentence that tells what it keeps true.
--
-- What a single value must be is a domain here: the server reads the text of a table's CHECKs anew for every statement, and
-- that of a domain's once per session. A rule about several columns is a CHECK; they are few.
--
-- Only here: a schema of its own, since Join puts these tables beside the caller's; uuid, boolean and timestamptz where
-- SQLite has blobs and integers; lists as arrays, which are narrower than JSON (row width is what a batch costs); maps and
-- recorded outcomes as text, because nothing in the database looks into them and jsonb would reorder them; version 0, a
-- row that a transaction has made to lock an account which it may then store; and outbox.written, because rows have no
-- order of their own. And no foreign keys inside an account: here each one costs a query and a row lock per row written,
-- together two fifths of the server's time for a batch. What they would keep true, the one writer keeps: Save writes rows
-- of accounts alone whose row it has just updated, under lock and fence, and events of no entry beyond its last_entry.

-- +goose Up

SET LOCAL lock_timeout = '2s';

CREATE DOMAIN holdfast.word AS text CONSTRAINT word_is_not_empty CHECK (VALUE <> '');
CREATE DOMAIN holdfast.small_tally AS integer CONSTRAINT small_tally_is_not_negative CHECK (VALUE >= 0);
CREATE DOMAIN holdfast.tally AS bigint CONSTRAINT tally_is_not_negative CHECK (VALUE >= 0);
CREATE DOMAIN holdfast.positive AS bigint CONSTRAINT positive_number_counts_from_one CHECK (VALUE >= 1);
CREATE DOMAIN holdfast.held AS bigint CONSTRAINT held_is_an_amount CHECK (VALUE BETWEEN 0 AND 9007199254740991);
CREATE DOMAIN holdfast.granted AS bigint CONSTRAINT granted_is_a_positive_amount CHECK (VALUE BETWEEN 1 AND 9007199254740991);
CREATE DOMAIN holdfast.source AS text CONSTRAINT source_is_known
	CHECK (VALUE IN ('allowance', 'rollover', 'promo', 'purchase', 'correction'));
CREATE DOMAIN holdfast.state AS text CONSTRAINT state_is_known
	CHECK (VALUE IN ('reserved', 'running', 'committed', 'released', 'expired'));

CREATE TABLE holdfast.accounts (
	account_id uuid                 NOT NULL,
	version    holdfast.tally       NOT NULL, -- the fence: every write says which one it read; 0: not stored, only locked
	last_entry holdfast.tally       NOT NULL,
	active     holdfast.small_tally NOT NULL,
	blocked    boolean              NOT NULL,
	notices    boolean              NOT NULL,
	created_at timestamptz          NOT NULL,
	decided_at timestamptz          NOT NULL,
	project    holdfast.word        NOT NULL,
	name       holdfast.word        NOT NULL,
	plan       text                 NOT NULL,
	language   text                 NOT NULL,
	time_zone  text                 NOT NULL,
	metadata   text,
	standing   text, -- JSON: what few accounts have (debts, the plan's anchor, when it was deleted); see store/pack.go
	transfers  text, -- JSON: what has still to be done beyond this row: at the account that this one was merged into, at those that lead here, for work to be stopped
	PRIMARY KEY (account_id)
) WITH (fillfactor = 70); -- room for the next version of a row on its own page, without touching the index

-- What has not arrived yet is found by a scan: there is hardly ever any.
CREATE INDEX transfers_under_way ON holdfast.accounts (account_id) WHERE transfers IS NOT NULL;

CREATE TABLE holdfast.grants (
	account_id uuid                 NOT NULL,
	grant_id   uuid                 NOT NULL,
	granted    holdfast.granted     NOT NULL,
	reserved   holdfast.tally       NOT NULL,
	used       holdfast.tally       NOT NULL,
	voided     holdfast.tally       NOT NULL,
	starts_at  timestamptz          NOT NULL,
	ends_at    timestamptz,
	created_at timestamptz          NOT NULL,
	priority   holdfast.small_tally NOT NULL,
	open       boolean              NOT NULL,
	unit       holdfast.word        NOT NULL,
	source     holdfast.source      NOT NULL,
	allowance  text                 NOT NULL,
	features   text[],
	payment    uuid, -- that bought it
	history    text, -- JSON: what happens to few (carried over, taken back by refunds); see store/pack.go
	PRIMARY KEY (account_id, grant_id),
	CONSTRAINT reserved_used_and_voided_fit_granted CHECK (reserved + used + voided <= granted),
	CONSTRAINT grant_ends_after_it_starts CHECK (ends_at > starts_at),
	CONSTRAINT closed_grant_holds_nothing CHECK (open OR reserved = 0)
) WITH (fillfactor = 70);

-- Every decision loads the account's open grants and none of the closed ones, of which there are ever more.
CREATE INDEX open_grants ON holdfast.grants (account_id) WHERE open;

-- A refund of a payment finds what it bought, open or not. Most grants were bought by none.
CREATE INDEX bought_grants ON holdfast.grants (account_id, payment) WHERE payment IS NOT NULL;

CREATE TABLE holdfast.reservations (
	account_id         uuid                 NOT NULL,
	reservation_id     uuid                 NOT NULL,
	quantity           holdfast.positive    NOT NULL,
	price_amount       holdfast.tally       NOT NULL,
	reserved           holdfast.held        NOT NULL,
	used               holdfast.tally       NOT NULL,
	unbilled           holdfast.tally       NOT NULL,
	late_used          holdfast.tally       NOT NULL,
	refunded           holdfast.tally       NOT NULL,
	catalog_version    bigint               NOT NULL,
	ttl_microseconds   holdfast.positive    NOT NULL,
	created_at         timestamptz          NOT NULL,
	expires_at         timestamptz          NOT NULL,
	ended_at           timestamptz,
	late_at            timestamptz,
	lease_expires_at   timestamptz,
	attempts           holdfast.small_tally NOT NULL,
	state              holdfast.state       NOT NULL,
	feature            holdfast.word        NOT NULL,
	price_unit         text                 NOT NULL,
	allocation_grants  uuid[],   -- what it took from which grant, in burn order: one grant and one source each,
	allocation_sources text[],
	allocation_amounts bigint[], -- and three amounts each: reserved, used, refunded
	key                text                 NOT NULL,
	surface            text                 NOT NULL,
	metadata           text,
	usage              text,
	cause              text                 NOT NULL,
	worker             text                 NOT NULL,
	lease_token        text                 NOT NULL,
	terms              text,     -- JSON: rates and policies, where they are not the defaults; written once
	course             text,     -- JSON: what happens to few (debt, doubt, a request to stop, usage as reported)
	PRIMARY KEY (account_id, reservation_id),
	CONSTRAINT live_reservation_has_not_ended CHECK ((state IN ('reserved', 'running')) = (ended_at IS NULL)),
	CONSTRAINT every_allocation_has_its_source_and_amounts CHECK (
		cardinality(allocation_sources) IS NOT DISTINCT FROM cardinality(allocation_grants)
		AND cardinality(allocation_amounts) IS NOT DISTINCT FROM 3 * cardinality(allocation_grants)),
	CONSTRAINT late_use_follows_expiry CHECK (CASE WHEN late_at IS NULL THEN late_used = 0 ELSE state = 'expired' END),
	CONSTRAINT reservation_expires_after_it_begins CHECK (expires_at > created_at)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01); -- what has ended stays in live_reservations until a vacuum, and whoever reads that steps over it

-- The live ones, the longest overdue first within the account. It serves two readers: the load of an account's overdue
-- reservations (a range of one account, already in order), and the sweeper's scan over all accounts. The scan wants time
-- first, and the rule wants the account first; so it walks this index from end to end. That costs as much as there is
-- live work, and never grows with history: an account holds no more live reservations than its plan has slots.
CREATE INDEX live_reservations ON holdfast.reservations (account_id, expires_at, reservation_id) WHERE ended_at IS NULL;

-- The jobs of live reservations: what a claim needs to find one. A row is removed when its reservation ends, and its payload
-- with it; what became of its attempts is kept with the reservation. A claim wants a queue and the oldest first, and the rule
-- wants the account first; so it walks this table from end to end, by its key. That costs as much as there are live jobs: rows
-- are narrow, and one claim takes up to fifty. There is no other index, so that a heartbeat touches none.
CREATE TABLE holdfast.jobs (
	account_id     uuid        NOT NULL,
	reservation_id uuid        NOT NULL,
	created_at     timestamptz NOT NULL, -- the reservation's: the job's place in the queue
	claimable_at   timestamptz,          -- of a running one, when its lease lapses; of one given back, when its delay is over; NULL: nobody may claim it (in doubt)
	last_attempt   boolean     NOT NULL, -- it runs, and is not given away again
	project        text        NOT NULL,
	queue          text        NOT NULL,
	PRIMARY KEY (account_id, reservation_id),
	CONSTRAINT job_waits_in_a_queue CHECK (project <> '' AND queue <> '')
) WITH (fillfactor = 70);

-- What the work is, apart from what is walked.
CREATE TABLE holdfast.payloads (
	account_id     uuid NOT NULL,
	reservation_id uuid NOT NULL,
	payload        text NOT NULL, -- JSON, as it was sent
	PRIMARY KEY (account_id, reservation_id),
	CONSTRAINT payload_is_bounded CHECK (octet_length(payload) BETWEEN 1 AND 65536)
);

-- The ledger. No statement of the product updates or deletes a row.
CREATE TABLE holdfast.entries (
	account_id     uuid              NOT NULL,
	entry_no       holdfast.positive NOT NULL,
	effective_at   timestamptz       NOT NULL,
	recorded_at    timestamptz       NOT NULL,
	available      holdfast.tally    NOT NULL,
	reserved       holdfast.tally    NOT NULL,
	reservation_id uuid,
	kind           holdfast.word     NOT NULL,
	unit           text              NOT NULL,
	delta_grants   uuid[],   -- what changed: one grant each,
	delta_amounts  bigint[], -- and four amounts each: granted, reserved, used, voided
	key            text              NOT NULL,
	actor          text              NOT NULL,
	reason         text              NOT NULL,
	PRIMARY KEY (account_id, entry_no), -- the second fence: no two decisions write the same number
	CONSTRAINT every_delta_has_its_amounts CHECK (
		cardinality(delta_amounts) IS NOT DISTINCT FROM 4 * cardinality(delta_grants))
);

CREATE TABLE holdfast.answers (
	account_id  uuid          NOT NULL,
	command_id  uuid          NOT NULL,
	fingerprint uuid          NOT NULL, -- sixteen bytes of a hash; a uuid holds them without the head of a bytea
	recorded_at timestamptz   NOT NULL,
	key         holdfast.word NOT NULL,
	outcome     text          NOT NULL,
	PRIMARY KEY (account_id, key)
);

-- Completed payments, kept for ever.
CREATE TABLE holdfast.payments (
	account_id uuid NOT NULL,
	payment_id uuid NOT NULL,
	record     text NOT NULL, -- JSON; see store/pack.go
	PRIMARY KEY (account_id, payment_id)
);

-- What is to be told outside. A row points to the entry that it tells of instead of repeating it.
CREATE TABLE holdfast.outbox (
	account_id     uuid           NOT NULL,
	event_id       uuid           NOT NULL,
	written        bigint         NOT NULL, -- the order of writing within the account: its version, then a count (see save.go)
	entry_no       bigint,
	figure         holdfast.tally NOT NULL,
	at             timestamptz    NOT NULL,
	reservation_id uuid, -- or, of a payment's event, the payment
	kind           holdfast.word  NOT NULL,
	PRIMARY KEY (account_id, event_id)
);

-- What is to be told later, if it is still true then: a notice waits in a slot of its account. Those of work are due soon and
-- looked for often, the others seldom; both walks go by the account, as the rule wants.
CREATE TABLE holdfast.notices (
	account_id     uuid          NOT NULL,
	slot           uuid          NOT NULL,
	event_id       uuid          NOT NULL,
	due_at         timestamptz   NOT NULL,
	reservation_id uuid,
	kind           holdfast.word NOT NULL,
	PRIMARY KEY (account_id, slot)
) WITH (fillfactor = 80);

CREATE INDEX notices_of_work ON holdfast.notices (account_id, reservation_id, due_at) WHERE reservation_id IS NOT NULL;

-- Lookup tables: small, unique over all accounts, and outside every account.

CREATE TABLE holdfast.projects (
	name text NOT NULL,
	PRIMARY KEY (name),
	CONSTRAINT project_has_a_name CHECK (name <> '')
);

CREATE TABLE holdfast.api_keys (
	hash       bytea       NOT NULL,
	created_at timestamptz NOT NULL,
	revoked_at timestamptz,
	rate_limit integer     NOT NULL, -- requests per second; 0: the server's
	id         text        NOT NULL,
	project    text        NOT NULL,
	scopes     text[],
	note       text        NOT NULL,
	PRIMARY KEY (hash),
	CONSTRAINT key_is_for_a_known_project FOREIGN KEY (project) REFERENCES holdfast.projects (name),
	CONSTRAINT hash_has_thirty_two_bytes CHECK (length(hash) = 32),
	CONSTRAINT key_has_an_id CHECK (id <> '')
);

CREATE TABLE holdfast.catalogs (
	project    text        NOT NULL, -- empty: of every project that has none of its own
	version    bigint      NOT NULL,
	created_at timestamptz NOT NULL,
	source     text        NOT NULL,
	PRIMARY KEY (project, version),
	CONSTRAINT catalog_versions_count_from_one CHECK (version >= 1)
);

-- Which account a provider's payment belongs to: the first that claims it. Refunds that come before the payment wait here.
CREATE TABLE holdfast.payment_claims (
	project    text NOT NULL,
	provider   text NOT NULL,
	payment_id text NOT NULL,
	created_at timestamptz NOT NULL,
	account_id uuid, -- NULL: nobody's yet
	refunds    text, -- JSON
	PRIMARY KEY (project, provider, payment_id)
);

-- Further ids that a provider has for a payment: refunds of an invoice name what paid it, not the invoice.
CREATE TABLE holdfast.payment_names (
	project    text NOT NULL,
	provider   text NOT NULL,
	name       text NOT NULL,
	payment_id text NOT NULL,
	PRIMARY KEY (project, provider, name)
);

-- What was agreed on before a payment, found by what the provider tells with each payment of it.
CREATE TABLE holdfast.orders (
	price      bigint      NOT NULL,
	created_at timestamptz NOT NULL,
	paid_at    timestamptz, -- NULL: not paid
	told_at    timestamptz, -- NULL: nothing was told of its renewal
	recurring  boolean     NOT NULL,
	cancelled  boolean     NOT NULL,
	project    text        NOT NULL,
	provider   text        NOT NULL,
	reference  text        NOT NULL,
	seller     text        NOT NULL,
	account    text        NOT NULL,
	product    text        NOT NULL,
	currency   text        NOT NULL,
	payment_id text, -- NULL: the first payment was not told yet
	payer      text,
	PRIMARY KEY (project, provider, reference),
	CONSTRAINT order_has_a_reference CHECK (reference <> '')
);

CREATE INDEX recurring_orders ON holdfast.orders (project, provider, account) WHERE recurring AND paid_at IS NOT NULL;
-- What the relay and its readers keep. Positions are given when an event is published, in one transaction at a time of a
-- project: its row in positions is locked until the commit, so that no position appears behind a reader's back.

-- Who relays. The token changes with the holder.
CREATE TABLE holdfast.leases (
	name   text        NOT NULL,
	holder text        NOT NULL,
	token  bigint      NOT NULL,
	until  timestamptz NOT NULL,
	PRIMARY KEY (name)
);

CREATE TABLE holdfast.positions (
	project text   NOT NULL,
	last    bigint NOT NULL,
	PRIMARY KEY (project),
	CONSTRAINT last_position_is_not_negative CHECK (last >= 0)
) WITH (fillfactor = 50); -- one row, written with every publication

CREATE TABLE holdfast.published_events (
	project      text        NOT NULL,
	position     bigint      NOT NULL,
	account_id   uuid        NOT NULL,
	event_id     uuid        NOT NULL,
	at           timestamptz NOT NULL,
	published_at timestamptz NOT NULL,
	kind         text        NOT NULL,
	data         text        NOT NULL, -- JSON; nothing personal: the account's name is read from the account
	PRIMARY KEY (project, position),
	CONSTRAINT positions_count_from_one CHECK (position >= 1)
);

-- An event that is told again is found by its id, and so is one from which a reader begins.
CREATE INDEX published_event_ids ON holdfast.published_events (account_id, event_id);

-- What is old is pruned. Not by project: a place in a project is to be found by the primary key alone.
CREATE INDEX published_event_times ON holdfast.published_events (published_at);

-- How far each sink has come.
CREATE TABLE holdfast.sink_cursors (
	sink     text   NOT NULL,
	project  text   NOT NULL,
	position bigint NOT NULL,
	PRIMARY KEY (sink, project)
);

CREATE TABLE holdfast.endpoints (
	endpoint_id   text        NOT NULL,
	project       text        NOT NULL,
	created_at    timestamptz NOT NULL,
	cursor        bigint      NOT NULL, -- events up to here have become deliveries; those of deliveries beyond it wait to be queued again
	epoch         bigint      NOT NULL, -- how often it was rewound
	version       bigint      NOT NULL, -- of what an operator may change
	paused        boolean     NOT NULL,
	paused_reason text        NOT NULL,
	url           text        NOT NULL,
	kinds         text[],
	secrets       text[]      NOT NULL, -- the newest first; as they are, since they sign
	note          text        NOT NULL,
	PRIMARY KEY (endpoint_id),
	CONSTRAINT endpoint_has_a_secret CHECK (cardinality(secrets) >= 1)
) WITH (fillfactor = 50);

CREATE TABLE holdfast.deliveries (
	endpoint_id text    NOT NULL,
	position    bigint  NOT NULL,
	account_id  uuid    NOT NULL,
	epoch       bigint  NOT NULL,
	next_at     timestamptz,
	first_at    timestamptz,
	last_at     timestamptz,
	attempts    integer NOT NULL,
	status      integer NOT NULL,
	state       text    NOT NULL,
	problem     text    NOT NULL,
	PRIMARY KEY (endpoint_id, position),
	CONSTRAINT delivery_state_is_known CHECK (state IN ('waiting', 'pending', 'delivered', 'dead')),
	CONSTRAINT pending_delivery_has_its_time CHECK ((state = 'pending') = (next_at IS NOT NULL))
) WITH (fillfactor = 80);

-- What is due, and what an account has in the queue.
CREATE INDEX due_deliveries ON holdfast.deliveries (endpoint_id, next_at, position) WHERE state = 'pending';
CREATE INDEX queued_deliveries ON holdfast.deliveries (endpoint_id, account_id, position) WHERE state IN ('pending', 'waiting');
CREATE INDEX dead_deliveries ON holdfast.deliveries (endpoint_id, position) WHERE state = 'dead';

-- What chat bots keep: the updates that the Bot API told, the lines in which they wait for their turn, and notes.

CREATE TABLE holdfast.telegram_updates (
	update_id   bigint      NOT NULL, -- unique in the bot, and no more than that: ids begin anew after an idle week
	received_at timestamptz NOT NULL, -- the place in the line
	ended_at    timestamptz,          -- NULL: it waits
	attempts    integer     NOT NULL,
	bot         text        NOT NULL,
	line        text        NOT NULL,
	state       text        NOT NULL,
	problem     text, -- NULL: none
	raw         text        NOT NULL, -- JSON, as it came
	PRIMARY KEY (bot, update_id),
	CONSTRAINT update_waits_in_a_line_of_a_bot CHECK (bot <> '' AND line <> ''),
	CONSTRAINT update_says_something CHECK (raw <> ''),
	CONSTRAINT update_state_is_known CHECK (state IN ('waiting', 'done', 'failed')),
	CONSTRAINT waiting_update_has_not_ended CHECK ((state = 'waiting') = (ended_at IS NULL))
) WITH (fillfactor = 80);

-- Only here: the bot is in no index but the primary key. There are few bots, mostly one, and a planner takes any index that
-- has it for as good as that key.
CREATE INDEX waiting_updates ON holdfast.telegram_updates (line, received_at) WHERE state = 'waiting';
CREATE INDEX failed_updates ON holdfast.telegram_updates (update_id) WHERE state = 'failed';
CREATE INDEX ended_updates ON holdfast.telegram_updates (ended_at) WHERE ended_at IS NOT NULL;

-- There is a row as long as an update waits in the line. It is what a claim locks.
CREATE TABLE holdfast.telegram_lines (
	bot    text        NOT NULL,
	line   text        NOT NULL,
	due_at timestamptz NOT NULL, -- when the first update may be tried; of a claimed line, when the claim ends
	claim  text,                 -- NULL: nobody's
	PRIMARY KEY (bot, line)
) WITH (fillfactor = 50);

CREATE INDEX due_lines ON holdfast.telegram_lines (due_at);

CREATE TABLE holdfast.telegram_notes (
	bot   text        NOT NULL,
	key   text        NOT NULL COLLATE "C", -- listed in the order of their bytes
	at    timestamptz NOT NULL,
	value text        NOT NULL,
	PRIMARY KEY (bot, key),
	CONSTRAINT note_of_a_bot_has_a_key CHECK (bot <> '' AND key <> '')
) WITH (fillfactor = 80);
