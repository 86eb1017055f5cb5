package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Endpoints = (*DB)(nil)

// AddEndpoint stores a new endpoint. Two that are added at the same moment may both find room for the last one.
func (db *DB) AddEndpoint(ctx context.Context, e store.Endpoint, most int) (added bool, err error) {
	changed, err := db.write(ctx, "add an endpoint", insertEndpoint, e.ID, e.Project, e.URL, textsLiteral(e.Kinds), e.Paused, e.PausedReason,
		textsLiteral(e.Secrets), e.Note, moment(e.CreatedAt), e.Cursor, e.Epoch, e.Version, int64(most))
	return changed == 1, err
}

const insertEndpoint = `INSERT INTO holdfast.endpoints (endpoint_id, project, url, kinds, paused, paused_reason, secrets, note, created_at, cursor, epoch, version)
	SELECT $1::text, $2::text, $3::text, NULLIF($4::text, '')::text[], $5::boolean, $6::text, NULLIF($7::text, '')::text[], $8::text, $9::timestamptz,
		$10::bigint, $11::bigint, $12::bigint
	WHERE (SELECT count(*) FROM holdfast.endpoints WHERE project = $2::text) < $13::bigint`

// ChangeEndpoint writes what may change.
func (db *DB) ChangeEndpoint(ctx context.Context, e store.Endpoint) (changed bool, err error) {
	rows, err := db.write(ctx, "change an endpoint", updateEndpoint, e.ID, e.Project, e.URL, textsLiteral(e.Kinds), e.Paused, e.PausedReason,
		textsLiteral(e.Secrets), e.Note, e.Version)
	return rows == 1, err
}

// By primary key.
const updateEndpoint = `UPDATE holdfast.endpoints SET url = $3::text, kinds = NULLIF($4::text, '')::text[], paused = $5::boolean,
		paused_reason = $6::text, secrets = NULLIF($7::text, '')::text[], note = $8::text, version = version + 1
	WHERE endpoint_id = $1::text AND project = $2::text AND version = $9::bigint`

// RemoveEndpoint forgets an endpoint and its deliveries.
func (db *DB) RemoveEndpoint(ctx context.Context, project, id string) (removed bool, err error) {
	const op = "remove an endpoint"
	changed, err := db.write(ctx, op, deleteEndpoint, id, project)
	if err != nil || changed == 0 {
		return false, err
	}
	for {
		deleted, err := db.write(ctx, op, deleteDeliveries, id, int64(manyDeliveries))
		if err != nil || deleted < manyDeliveries {
			return true, err
		}
	}
}

// manyDeliveries is how many rows one transaction removes.
const manyDeliveries = 5000

// By primary keys.
const (
	deleteEndpoint   = `DELETE FROM holdfast.endpoints WHERE endpoint_id = $1::text AND project = $2::text`
	deleteDeliveries = `DELETE FROM holdfast.deliveries WHERE endpoint_id = $1::text AND position IN (
		SELECT position FROM holdfast.deliveries WHERE endpoint_id = $1::text LIMIT $2::bigint)`
)

// Endpoints are those of a project, or all.
func (db *DB) Endpoints(ctx context.Context, project string) (found []store.Endpoint, err error) {
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		var e store.Endpoint
		err := scan(rows, &e.ID, &e.Project, &e.URL, (*list[string])(&e.Kinds), &e.Paused, &e.PausedReason, (*list[string])(&e.Secrets), &e.Note,
			(*moment)(&e.CreatedAt), &e.Cursor, &e.Epoch, &e.Version)
		found = append(found, e)
		return err
	}, selectEndpoints, project)
	if err := db.snapshot(ctx, "list endpoints", p); err != nil {
		return nil, err
	}
	return found, nil
}

// From end to end: there are few.
const selectEndpoints = `SELECT endpoint_id, project, url, kinds, paused, paused_reason, secrets, note, created_at, cursor, epoch, version
	FROM holdfast.endpoints WHERE $1::text IN ('', project) ORDER BY endpoint_id COLLATE "C"`

// lockEndpoint keeps what queues and what settles apart: each decides by what the other has left.
const lockEndpoint = `SELECT 1 FROM holdfast.endpoints WHERE endpoint_id = $1::text FOR UPDATE`

// lockEndpoints does so with all of them, in one order.
const lockEndpoints = `SELECT 1 FROM holdfast.endpoints ORDER BY endpoint_id FOR UPDATE`

// Dispatch turns published events into deliveries.
func (db *DB) Dispatch(ctx context.Context, id string, now time.Time, limit int) (passed int, err error) {
	p := &pipeline{}
	p.then(lockEndpoint, id)
	p.read(func(rows pgx.Rows) error { return scan(rows, &passed) }, queueDeliveries, id, int64(limit))
	p.then(promoteLast, id, moment(now), int64(limit))
	if err := db.transact(ctx, "queue deliveries", p); err != nil {
		return 0, err
	}
	return passed, nil
}

// By primary keys. Everything waits at first.
var queueDeliveries = `WITH of AS (
		SELECT project, cursor, epoch, kinds FROM holdfast.endpoints WHERE endpoint_id = $1::text AND NOT paused
	), page AS (
		SELECT p.position, p.account_id, p.kind FROM of
		CROSS JOIN LATERAL (
			SELECT * FROM holdfast.published_events e WHERE e.project = of.project AND e.position > of.cursor ORDER BY e.position LIMIT $2::bigint
		) p
	), put AS (
		INSERT INTO holdfast.deliveries AS d (endpoint_id, position, account_id, epoch, attempts, status, state, problem)
		SELECT $1::text, page.position, page.account_id, of.epoch, 0, 0, 'waiting', '' FROM page, of WHERE ` + matches("of.kinds", "page.kind") + `
		ON CONFLICT (endpoint_id, position) DO UPDATE SET epoch = excluded.epoch, attempts = 0, status = 0, state = 'waiting', problem = '',
			next_at = NULL, first_at = NULL, last_at = NULL
		WHERE d.epoch < excluded.epoch
	), moved AS (
		UPDATE holdfast.endpoints SET cursor = (SELECT max(position) FROM page) WHERE endpoint_id = $1::text AND EXISTS (SELECT FROM page)
	)
	SELECT count(*) FROM page`

// Promotion makes the first delivery of an account due where some of the account wait and none is due. first are the first
// ones in the queue, of the accounts in a, by the partial index queued_deliveries: what is appended to a state keeps the
// planner from another one, which is for what is due of all accounts. Places stay, since the endpoint is locked.
const promote = `, first AS (
		SELECT q.* FROM a CROSS JOIN LATERAL (
			SELECT d.account_id, d.ctid AS place, d.state FROM holdfast.deliveries d, of
			WHERE d.endpoint_id = $1::text AND d.account_id = a.account_id AND d.state IN ('pending', 'waiting') AND d.position <= of.cursor
			ORDER BY d.position LIMIT 1) q
	)
	UPDATE holdfast.deliveries d SET state = 'pending', next_at = $2::timestamptz FROM first, of
	WHERE d.ctid = first.place AND first.state = 'waiting' AND NOT EXISTS (
		SELECT FROM holdfast.deliveries due WHERE due.endpoint_id = $1::text AND due.account_id = first.account_id
			AND due.state IN ('pending', 'waiting') AND due.state || '' = 'pending' AND due.position <= of.cursor OFFSET 0)`

const (
	ofEndpoint = `WITH RECURSIVE of AS (SELECT cursor FROM holdfast.endpoints WHERE endpoint_id = $1::text), `
	// The accounts of the last ones below the cursor, which are those that were just queued.
	promoteLast = ofEndpoint + `last AS (
		SELECT d.account_id FROM holdfast.deliveries d, of WHERE d.endpoint_id = $1::text AND d.position <= of.cursor
		ORDER BY d.position DESC LIMIT $3::bigint
	), a AS (SELECT DISTINCT account_id FROM last)` + promote
	// The accounts of given positions.
	promoteAt = ofEndpoint + `a AS (
		SELECT DISTINCT d.account_id FROM (SELECT unnest($3::bigint[]) AS position) w
		CROSS JOIN LATERAL (SELECT s.account_id FROM holdfast.deliveries s WHERE s.endpoint_id = $1::text AND s.position = w.position OFFSET 0) d
	)` + promote
	// All accounts that have something in the queue, stepping from one to the next.
	promoteAll = ofEndpoint + `a AS (
		(SELECT d.account_id FROM holdfast.deliveries d
			WHERE d.endpoint_id = $1::text AND d.state IN ('pending', 'waiting') ORDER BY d.account_id LIMIT 1)
		UNION ALL
		SELECT next.* FROM a CROSS JOIN LATERAL (
			SELECT d.account_id FROM holdfast.deliveries d
			WHERE d.endpoint_id = $1::text AND d.account_id > a.account_id AND d.state IN ('pending', 'waiting') ORDER BY d.account_id LIMIT 1) next
	)` + promote
)

const deliveryColumns = `d.endpoint_id, d.state, d.epoch, d.attempts, d.next_at, d.first_at, d.last_at, d.status, d.problem, ` + publishedColumns

// withEvent is a delivery's event, and what its account is called now.
const withEvent = `CROSS JOIN LATERAL (
		SELECT * FROM holdfast.published_events s WHERE s.project = e.project AND s.position = d.position OFFSET 0
	) p ` + withName

func scanDelivery(rows pgx.Rows) (d store.Delivery, err error) {
	places := []any{
		&d.Endpoint, (*string)(&d.State), &d.Epoch, &d.Attempts, (*moment)(&d.NextAt), (*moment)(&d.FirstAt), (*moment)(&d.LastAt), &d.Status, &d.Problem,
	}
	return d, scan(rows, append(places, placesOf(&d.Event)...)...)
}

// Due are deliveries whose time has come.
func (db *DB) Due(ctx context.Context, now time.Time, limits map[string]int) (due []store.Delivery, err error) {
	var ids list[string]
	var most list[int64]
	for id, limit := range limits {
		ids, most = append(ids, id), append(most, int64(limit))
	}
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		d, err := scanDelivery(rows)
		due = append(due, d)
		return err
	}, selectDueDeliveries, ids, most, moment(now))
	if len(ids) == 0 {
		return nil, nil
	}
	if err := db.snapshot(ctx, "look for due deliveries", p); err != nil {
		return nil, err
	}
	return due, nil
}

// By the partial index due_deliveries, as many of each endpoint as are wanted.
var selectDueDeliveries = `SELECT ` + deliveryColumns + ` FROM ` + given(`endpoint_id text, most bigint`) + ` w
	CROSS JOIN LATERAL (SELECT * FROM holdfast.endpoints n WHERE n.endpoint_id = w.endpoint_id AND NOT n.paused OFFSET 0) e
	CROSS JOIN LATERAL (
		SELECT * FROM holdfast.deliveries q WHERE q.endpoint_id = w.endpoint_id AND q.state = 'pending' AND q.next_at <= $3::timestamptz
			AND q.position <= e.cursor ORDER BY q.next_at, q.position LIMIT w.most
	) d
	` + withEvent + `
	ORDER BY d.endpoint_id COLLATE "C", d.next_at, d.position`

// Settle writes what attempts came to.
func (db *DB) Settle(ctx context.Context, id string, now time.Time, attempts []store.Attempt) error {
	var (
		positions, epochs, counts, statuses list[int64]
		states, problems                    list[string]
		nexts, at                           list[moment]
	)
	for _, a := range attempts {
		positions, epochs, counts, statuses = append(positions, a.Position), append(epochs, a.Epoch), append(counts, int64(a.Attempts)), append(statuses, int64(a.Status))
		states, problems = append(states, string(a.State)), append(problems, a.Problem)
		next := a.NextAt
		if a.State != store.DeliveryPending {
			next = time.Time{}
		}
		nexts, at = append(nexts, moment(next)), append(at, moment(a.At))
	}
	p := &pipeline{}
	p.then(lockEndpoint, id)
	p.then(settleDeliveries, positions, epochs, counts, statuses, states, problems, nexts, at, id)
	p.then(promoteAt, id, moment(now), positions)
	return db.transact(ctx, "settle deliveries", p)
}

// By primary key.
var settleDeliveries = `UPDATE holdfast.deliveries d SET attempts = d.attempts + 1, status = w.status, state = w.state, problem = w.problem,
		next_at = w.next_at, last_at = w.at, first_at = coalesce(d.first_at, w.at)
	FROM ` + given(`position bigint, epoch bigint, attempts bigint, status bigint, state text, problem text, next_at timestamptz, at timestamptz`) + ` w
	CROSS JOIN LATERAL (
		SELECT s.ctid AS place FROM holdfast.deliveries s WHERE s.endpoint_id = $9::text AND s.position = w.position
			AND s.epoch = w.epoch AND s.attempts = w.attempts AND s.state || '' = 'pending' OFFSET 0
	) found
	WHERE d.ctid = found.place`

// Deliveries lists an endpoint's.
func (db *DB) Deliveries(ctx context.Context, id string, state store.DeliveryState, before int64, limit int) (found []store.Delivery, err error) {
	if before == 0 {
		before = 1<<63 - 1
	}
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		d, err := scanDelivery(rows)
		found = append(found, d)
		return err
	}, selectDeliveries, id, string(state), before, int64(limit))
	if err := db.snapshot(ctx, "list deliveries", p); err != nil {
		return nil, err
	}
	return found, nil
}

// By primary key, backwards.
const selectDeliveries = `SELECT ` + deliveryColumns + ` FROM holdfast.endpoints e
	CROSS JOIN LATERAL (
		SELECT * FROM holdfast.deliveries q WHERE q.endpoint_id = $1::text AND q.position <= e.cursor AND q.position < $3::bigint AND $2::text IN ('', q.state)
		ORDER BY q.position DESC LIMIT $4::bigint
	) d
	` + withEvent + `
	WHERE e.endpoint_id = $1::text ORDER BY d.position DESC LIMIT $4::bigint`

// Rewind queues every event from a position on again: deliveries beyond the cursor count for nothing until they are
// queued again.
func (db *DB) Rewind(ctx context.Context, project, id string, from int64) (rewound bool, err error) {
	changed, err := db.write(ctx, "rewind an endpoint", rewindEndpoint, id, project, max(0, from-1))
	return changed == 1, err
}

// By primary key.
const rewindEndpoint = `UPDATE holdfast.endpoints SET epoch = epoch + 1, cursor = least(cursor, $3::bigint)
	WHERE endpoint_id = $1::text AND project = $2::text`

// Revive queues dead deliveries again.
func (db *DB) Revive(ctx context.Context, id string, now time.Time, limit int) (revived int64, err error) {
	p := &pipeline{}
	p.then(lockEndpoint, id)
	p.read(func(rows pgx.Rows) error { return scan(rows, &revived) }, reviveDead, id, int64(limit))
	p.then(promoteAll, id, moment(now))
	if err := db.transact(ctx, "revive dead deliveries", p); err != nil {
		return 0, err
	}
	return revived, nil
}

// By the partial index dead_deliveries.
const reviveDead = `WITH dead AS (
		SELECT q.ctid AS place FROM holdfast.endpoints e
		JOIN holdfast.deliveries q ON q.endpoint_id = $1::text AND q.state = 'dead' AND q.position <= e.cursor
		WHERE e.endpoint_id = $1::text ORDER BY q.position LIMIT $2::bigint
	), revived AS (
		UPDATE holdfast.deliveries d SET state = 'waiting', attempts = 0, first_at = NULL FROM dead WHERE d.ctid = dead.place RETURNING 1
	)
	SELECT count(*) FROM revived`
