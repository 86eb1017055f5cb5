package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Outbox = (*DB)(nil)

// transact runs statements in a transaction of their own, in one round trip that ends with COMMIT.
func (db *DB) transact(ctx context.Context, op string, statements *pipeline) error {
	if db.options.ReadOnly {
		return &store.Error{Kind: store.Unavailable, Op: op, Hint: "open it for writing", Err: errReadOnly}
	}
	conn, err := db.acquire(ctx, op)
	if err != nil {
		return err
	}
	s := &pooled{conn: conn}
	p := &pipeline{}
	s.begin(p, db.options.Patience)
	s.write(p)
	p.steps = append(p.steps, statements.steps...)
	s.commit(p)
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveFor)
	defer cancel()
	if err := p.run(sending, s); err != nil {
		failure := s.interpret(op, err)
		s.undo(ctx, err)
		return failure
	}
	s.release()
	return nil
}

// Lead takes the lease of the relay, or prolongs it.
func (db *DB) Lead(ctx context.Context, holder string, now, until time.Time) (token int64, err error) {
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error { return scan(rows, &token) }, takeLease, store.RelayLease, holder, moment(now), moment(until))
	if err := db.transact(ctx, "take the lease of the relay", p); err != nil {
		return 0, err
	}
	return token, nil
}

// By primary key. No row comes back where another holder has it.
const takeLease = `INSERT INTO holdfast.leases AS l (name, holder, token, until) VALUES ($1::text, $2::text, 1, $4::timestamptz)
	ON CONFLICT (name) DO UPDATE SET until = excluded.until, holder = excluded.holder,
		token = l.token + (l.holder <> excluded.holder)::integer
	WHERE l.holder = excluded.holder OR l.until <= $3::timestamptz
	RETURNING token`

// Pending returns accounts that have unpublished rows. Three statements see one moment; the rows of the second and the
// third come in the order of the events that point to them.
func (db *DB) Pending(ctx context.Context, after holdfast.AccountID, accounts, events int) ([]store.Pending, error) {
	var found []store.Pending
	var entries []holdfast.Entry
	var payments []*holdfast.Payment
	p := &pipeline{}
	from := []any{uuid(after), int64(accounts), int64(events)}
	p.read(func(rows pgx.Rows) error {
		var account, event, subject uuid
		var told holdfast.Event
		var project, name string
		err := scan(rows, &account, &project, &name, &event, (*string)(&told.Kind), &told.Entry, &subject, (*int64)(&told.Figure), (*moment)(&told.At))
		told.ID = holdfast.ID(event)
		told.SetSubject(holdfast.ID(subject))
		if n := len(found); n == 0 || found[n-1].Account != holdfast.AccountID(account) {
			found = append(found, store.Pending{Account: holdfast.AccountID(account), Project: project, Name: name})
		}
		last := &found[len(found)-1]
		last.Events = append(last.Events, store.PendingEvent{Event: told})
		return err
	}, selectPending, from...)
	p.read(func(rows pgx.Rows) error {
		e, err := scanEntry(rows)
		entries = append(entries, e)
		return err
	}, selectPendingEntries, from...)
	p.read(func(rows pgx.Rows) error {
		_, paid, err := scanPayment(rows)
		payments = append(payments, paid)
		return err
	}, selectPendingPayments, from...)
	if err := db.snapshot(ctx, "look for unpublished events", p); err != nil {
		return nil, err
	}
	for i := range found {
		for j := range found[i].Events {
			told := &found[i].Events[j]
			if told.Event.Entry != 0 && len(entries) > 0 && entries[0].No == told.Event.Entry {
				told.Entry, entries = &entries[0], entries[1:]
			}
			if !told.Event.Payment.IsZero() && len(payments) > 0 && payments[0].ID == told.Event.Payment {
				told.Payment, payments = payments[0], payments[1:]
			}
		}
	}
	return found, nil
}

// pendingRows finds the accounts by stepping from one to the next over the primary key, which never reads more than one
// row of an account, and then the first rows of each. As everywhere below, LATERAL with OFFSET 0 holds the planner to the
// primary key of the other table, also where it plans while that table is empty.
const pendingRows = `WITH RECURSIVE behind AS (
		(SELECT account_id, 1 AS n FROM holdfast.outbox WHERE account_id > $1::uuid ORDER BY account_id LIMIT 1)
		UNION ALL
		SELECT next.account_id, behind.n + 1 FROM behind
		CROSS JOIN LATERAL (SELECT o.account_id FROM holdfast.outbox o WHERE o.account_id > behind.account_id ORDER BY o.account_id LIMIT 1) next
		WHERE behind.n < $2::bigint
	), o AS (
		SELECT first.* FROM behind
		CROSS JOIN LATERAL (SELECT * FROM holdfast.outbox w WHERE w.account_id = behind.account_id ORDER BY w.written LIMIT $3::bigint) first
	) `

const (
	selectPending = pendingRows + `SELECT o.account_id, a.project, a.name, ` + eventColumns + `
	FROM o CROSS JOIN LATERAL (SELECT * FROM holdfast.accounts n WHERE n.account_id = o.account_id OFFSET 0) a ORDER BY o.account_id, o.written`
	selectPendingEntries = pendingRows + `SELECT ` + entryColumns + `
	FROM o CROSS JOIN LATERAL (SELECT * FROM holdfast.entries n WHERE n.account_id = o.account_id AND n.entry_no = o.entry_no OFFSET 0) e ORDER BY o.account_id, o.written`
	selectPendingPayments = pendingRows + `SELECT ` + paymentColumns + `
	FROM o CROSS JOIN LATERAL (SELECT * FROM holdfast.payments n WHERE n.account_id = o.account_id AND n.payment_id = o.reservation_id OFFSET 0) b
	WHERE o.kind LIKE 'payment.%' ORDER BY o.account_id, o.written`
)

var (
	errLeaseLost = errors.New("another relay leads")
	errRowGone   = errors.New("an event was published meanwhile")
)

// Publish moves rows out of the outbox, a statement per project. What makes it happen once is that the rows are deleted;
// the lease only keeps two relays from doing the same work.
func (db *DB) Publish(ctx context.Context, token int64, now time.Time, events []store.Published) error {
	if len(events) == 0 {
		return nil
	}
	p := &pipeline{}
	p.then(holdLease, store.RelayLease, token).meaning(divisionByZero, store.Conflict, errLeaseLost)
	byProject := map[string][]*store.Published{}
	var projects []string
	for i := range events {
		project := events[i].Project
		if byProject[project] == nil {
			projects = append(projects, project)
		}
		byProject[project] = append(byProject[project], &events[i])
	}
	slices.Sort(projects) // one order for all, so that two relays wait for each other and do not lock each other out
	for _, project := range projects {
		var (
			accounts, ids list[uuid]
			kinds, data   list[string]
			at            list[moment]
			places        list[int64]
		)
		for i, e := range byProject[project] {
			accounts, ids, kinds = append(accounts, uuid(e.Account)), append(ids, uuid(e.ID)), append(kinds, string(e.Kind))
			data, at, places = append(data, e.Data), append(at, moment(e.At)), append(places, int64(i))
		}
		p.then(publishEvents, accounts, ids, kinds, data, at, places, project, moment(now), int64(len(ids))).
			meaning(divisionByZero, store.Conflict, errRowGone)
	}
	return db.transact(ctx, "publish events", p)
}

// By primary key.
const holdLease = `SELECT 1 / count(*)::integer FROM holdfast.leases WHERE name = $1::text AND token = $2::bigint`

// The rows are deleted by primary key; who comes second finds them gone, and the division fails. The row of the project in
// positions stays locked until COMMIT, so that positions become visible in their order.
var publishEvents = `WITH w AS MATERIALIZED (
		SELECT * FROM ` + given(`account_id uuid, event_id uuid, kind text, data text, at timestamptz, place bigint`) + ` g
	), gone AS (
		DELETE FROM holdfast.outbox o USING w
		CROSS JOIN LATERAL (
			SELECT s.ctid AS place FROM holdfast.outbox s WHERE s.account_id = w.account_id AND s.event_id = w.event_id OFFSET 0
		) found
		WHERE o.ctid = found.place RETURNING 1
	), fresh AS (
		SELECT w.*, row_number() OVER (ORDER BY w.place) AS nth FROM w
		WHERE NOT EXISTS (SELECT FROM holdfast.published_events p WHERE p.account_id = w.account_id AND p.event_id = w.event_id OFFSET 0)
	), moved AS (
		INSERT INTO holdfast.positions AS c (project, last) SELECT $7::text, count(*) FROM fresh
		ON CONFLICT (project) DO UPDATE SET last = c.last + excluded.last RETURNING last
	), put AS (
		INSERT INTO holdfast.published_events (project, position, account_id, event_id, at, published_at, kind, data)
		SELECT $7::text, moved.last - (SELECT count(*) FROM fresh) + nth, account_id, event_id, at, $8::timestamptz, kind, data FROM fresh, moved
	)
	SELECT 1 / (count(*) = $9::bigint)::integer FROM gone`

const publishedColumns = `p.project, p.position, p.account_id, coalesce(a.name, ''), p.event_id, p.kind, p.at, p.published_at, p.data`

// withName is what the account is called now.
const withName = `LEFT JOIN LATERAL (SELECT n.name FROM holdfast.accounts n WHERE n.account_id = p.account_id OFFSET 0) a ON true`

func placesOf(e *store.Published) []any {
	return []any{
		&e.Project, &e.Position, (*uuid)(&e.Account), &e.Name, (*uuid)(&e.ID), (*string)(&e.Kind), (*moment)(&e.At), (*moment)(&e.PublishedAt), &e.Data,
	}
}

// Published are the events of a project behind a position.
func (db *DB) Published(ctx context.Context, project string, after int64, limit int) (events []store.Published, err error) {
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		var e store.Published
		err := scan(rows, placesOf(&e)...)
		events = append(events, e)
		return err
	}, selectPublished, project, after, int64(limit))
	if err := db.snapshot(ctx, "read published events", p); err != nil {
		return nil, err
	}
	return events, nil
}

// By primary key, and the accounts by theirs.
const selectPublished = `SELECT ` + publishedColumns + ` FROM holdfast.published_events p ` + withName + `
	WHERE p.project = $1::text AND p.position > $2::bigint ORDER BY p.position LIMIT $3::bigint`

// PositionOf finds a published event.
func (db *DB) PositionOf(ctx context.Context, project string, account holdfast.AccountID, event holdfast.ID) (position int64, found bool, err error) {
	var of string
	found, err = db.one(ctx, "find a published event", []any{&of, &position}, selectPosition, uuid(account), uuid(event))
	if of != project {
		return 0, false, err
	}
	return position, found, err
}

// By the index published_event_ids.
const selectPosition = `SELECT project, position FROM holdfast.published_events WHERE account_id = $1::uuid AND event_id = $2::uuid`

// Positions are the last positions.
func (db *DB) Positions(ctx context.Context) (map[string]int64, error) {
	return db.counts(ctx, "read positions", selectPositions)
}

const selectPositions = `SELECT project, last FROM holdfast.positions`

// Cursors are how far a sink has come.
func (db *DB) Cursors(ctx context.Context, sink string) (map[string]int64, error) {
	return db.counts(ctx, "read the cursors of a sink", selectCursors, sink)
}

const selectCursors = `SELECT project, position FROM holdfast.sink_cursors WHERE sink = $1::text`

// MoveCursor says how far a sink has come.
func (db *DB) MoveCursor(ctx context.Context, sink, project string, position int64) error {
	_, err := db.write(ctx, "move the cursor of a sink", moveCursor, sink, project, position)
	return err
}

// By primary key.
const moveCursor = `INSERT INTO holdfast.sink_cursors AS c (sink, project, position) VALUES ($1::text, $2::text, $3::bigint)
	ON CONFLICT (sink, project) DO UPDATE SET position = greatest(c.position, excluded.position)`

// Unpublished counts the rows that wait.
func (db *DB) Unpublished(ctx context.Context) (count int64, oldest time.Time, err error) {
	_, err = db.one(ctx, "count unpublished events", []any{&count, (*moment)(&oldest)}, selectUnpublished)
	return count, oldest, err
}

// From end to end: what is in the outbox is about to leave it.
const selectUnpublished = `SELECT count(*), min(at) FROM holdfast.outbox`

// Prune removes old events with their deliveries.
func (db *DB) Prune(ctx context.Context, old, ancient time.Time, limit int) (pruned int64, err error) {
	const op = "prune events"
	var cut list[string] // endpoints that had still to be given one
	p := &pipeline{}
	p.then(lockEndpoints) // so that no delivery changes while its event goes
	p.read(func(rows pgx.Rows) error { return scan(rows, &pruned, &cut) }, pruneEvents, moment(old), moment(ancient), int64(limit))
	if err := db.transact(ctx, op, p); err != nil {
		return 0, err
	}
	for _, id := range cut { // nobody waits for what is gone
		p := &pipeline{}
		p.then(lockEndpoint, id)
		p.then(promoteAll, id, moment(old))
		if err := db.transact(ctx, op, p); err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}

// By the index published_event_times, and then by primary keys.
const pruneEvents = `WITH past AS (
		SELECT p.project, p.position FROM holdfast.published_events p
		WHERE p.published_at < $1::timestamptz AND (p.published_at < $2::timestamptz OR NOT EXISTS (
			SELECT FROM holdfast.endpoints e
			LEFT JOIN LATERAL (SELECT q.state FROM holdfast.deliveries q WHERE q.endpoint_id = e.endpoint_id AND q.position = p.position OFFSET 0) d ON true
			WHERE e.project = p.project AND (p.position > e.cursor OR d.state <> 'delivered')))
		ORDER BY p.published_at LIMIT $3::bigint
	), dropped AS (
		DELETE FROM holdfast.deliveries d USING past
		JOIN holdfast.endpoints e ON e.project = past.project
		CROSS JOIN LATERAL (
			SELECT s.ctid AS place FROM holdfast.deliveries s WHERE s.endpoint_id = e.endpoint_id AND s.position = past.position OFFSET 0
		) found
		WHERE d.ctid = found.place RETURNING d.endpoint_id, d.state
	), gone AS (
		DELETE FROM holdfast.published_events p USING past
		CROSS JOIN LATERAL (
			SELECT s.ctid AS place FROM holdfast.published_events s WHERE s.project = past.project AND s.position = past.position OFFSET 0
		) found
		WHERE p.ctid = found.place RETURNING 1
	)
	SELECT (SELECT count(*) FROM gone), (SELECT array_agg(DISTINCT endpoint_id) FROM dropped WHERE state <> 'delivered')`

// matches is the condition that an endpoint wants the kind, as store.WantsKind has it.
func matches(kinds, kind string) string {
	return fmt.Sprintf("(%[1]s IS NULL OR %[2]s = ANY (%[1]s) OR split_part(%[2]s, '.', 1) || '.*' = ANY (%[1]s))", kinds, kind)
}
