package sqlite

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Endpoints = (*DB)(nil)

// AddEndpoint stores a new endpoint.
func (db *DB) AddEndpoint(ctx context.Context, e store.Endpoint, most int) (added bool, err error) {
	err = db.write(ctx, "add an endpoint", func(c *connection) error {
		kinds, err1 := jsonOrNone(e.Kinds, len(e.Kinds))
		secrets, err2 := jsonOrNone(e.Secrets, len(e.Secrets))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		changed, err := c.exec(uninterrupted, insertEndpoint, e.ID, e.Project, e.URL, kinds, flag(e.Paused), e.PausedReason, secrets, e.Note,
			at(e.CreatedAt), e.Cursor, e.Epoch, e.Version, e.Project, int64(most))
		added = changed == 1
		return err
	})
	return added, err
}

const (
	endpointColumns = `endpoint_id, project, url, kinds, paused, paused_reason, secrets, note, created_at, cursor, epoch, version`
	insertEndpoint  = `INSERT INTO endpoints (` + endpointColumns + `) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
	WHERE (SELECT count(*) FROM endpoints WHERE project = ?) < ?`
)

func readEndpoint(r *row) (e store.Endpoint) {
	e.ID, e.Project, e.URL = r.text(), r.text(), r.text()
	r.list(&e.Kinds)
	e.Paused, e.PausedReason = r.flag(), r.text()
	r.list(&e.Secrets)
	e.Note, e.CreatedAt, e.Cursor, e.Epoch, e.Version = r.text(), r.at(), r.number(), r.number(), r.number()
	return e
}

// ChangeEndpoint writes what may change.
func (db *DB) ChangeEndpoint(ctx context.Context, e store.Endpoint) (changed bool, err error) {
	err = db.write(ctx, "change an endpoint", func(c *connection) error {
		kinds, err1 := jsonOrNone(e.Kinds, len(e.Kinds))
		secrets, err2 := jsonOrNone(e.Secrets, len(e.Secrets))
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
		rows, err := c.exec(uninterrupted, updateEndpoint, e.URL, kinds, flag(e.Paused), e.PausedReason, secrets, e.Note, e.ID, e.Project, e.Version)
		changed = rows == 1
		return err
	})
	return changed, err
}

// By primary key.
const updateEndpoint = `UPDATE endpoints SET url = ?, kinds = ?, paused = ?, paused_reason = ?, secrets = ?, note = ?, version = version + 1
	WHERE endpoint_id = ? AND project = ? AND version = ?`

// manyDeliveries is how many rows one transaction removes.
const manyDeliveries = 5000

// RemoveEndpoint forgets an endpoint and its deliveries.
func (db *DB) RemoveEndpoint(ctx context.Context, project, id string) (removed bool, err error) {
	const op = "remove an endpoint"
	var deleted int64
	err = db.write(ctx, op, func(c *connection) error {
		deleted, err = c.exec(uninterrupted, deleteEndpoint, id, project)
		return err
	})
	if err != nil || deleted == 0 {
		return false, err
	}
	for deleted = manyDeliveries; err == nil && deleted == manyDeliveries; {
		err = db.write(ctx, op, func(c *connection) error {
			deleted, err = c.exec(uninterrupted, deleteDeliveries, id, id, int64(manyDeliveries))
			return err
		})
	}
	return true, err
}

// By primary keys.
const (
	deleteEndpoint   = `DELETE FROM endpoints WHERE endpoint_id = ? AND project = ?`
	deleteDeliveries = `DELETE FROM deliveries WHERE endpoint_id = ? AND position IN (SELECT position FROM deliveries WHERE endpoint_id = ? LIMIT ?)`
)

// Endpoints are those of a project, or all.
func (db *DB) Endpoints(ctx context.Context, project string) (found []store.Endpoint, err error) {
	err = db.snapshot(ctx, "list endpoints", func(c *connection) error {
		return c.query(ctx, selectEndpoints, func(r *row) error {
			found = append(found, readEndpoint(r))
			return nil
		}, project)
	})
	return found, err
}

// From end to end: there are few.
const selectEndpoints = `SELECT ` + endpointColumns + ` FROM endpoints WHERE ? IN ('', project) ORDER BY endpoint_id`

func oneEndpoint(c *connection, id string) (e store.Endpoint, found bool, err error) {
	err = c.query(uninterrupted, selectEndpoint, func(r *row) error {
		e, found = readEndpoint(r), true
		return nil
	}, id)
	return e, found, err
}

// By primary key.
const selectEndpoint = `SELECT ` + endpointColumns + ` FROM endpoints WHERE endpoint_id = ?`

// Dispatch turns published events into deliveries. Everything waits at first.
func (db *DB) Dispatch(ctx context.Context, id string, now time.Time, limit int) (passed int, err error) {
	err = db.write(ctx, "queue deliveries", func(c *connection) error {
		e, found, err := oneEndpoint(c, id)
		if err != nil || !found || e.Paused {
			return err
		}
		var page []store.Published
		err = c.query(uninterrupted, selectPublished, func(r *row) error {
			page = append(page, readPublished(r))
			return nil
		}, e.Project, e.Cursor, int64(limit))
		if err != nil || len(page) == 0 {
			return err
		}
		for i := range page {
			event := &page[i]
			if e.Wants(event.Kind) {
				if _, err := c.exec(uninterrupted, queueDelivery, id, event.Position, event.Account[:], e.Epoch); err != nil {
					return err
				}
			}
		}
		if _, err := c.exec(uninterrupted, moveEndpoint, page[len(page)-1].Position, id); err != nil {
			return err
		}
		for i := range page {
			if err := promote(c, id, page[i].Account, now); err != nil {
				return err
			}
		}
		passed = len(page)
		return nil
	})
	return passed, err
}

// By primary keys.
const (
	queueDelivery = `INSERT INTO deliveries AS d (endpoint_id, position, account_id, epoch, attempts, status, state, problem)
	VALUES (?, ?, ?, ?, 0, 0, 'waiting', '')
	ON CONFLICT (endpoint_id, position) DO UPDATE SET epoch = excluded.epoch, attempts = 0, status = 0, state = 'waiting', problem = '',
		next_at = NULL, first_at = NULL, last_at = NULL
	WHERE d.epoch < excluded.epoch`
	moveEndpoint = `UPDATE endpoints SET cursor = ? WHERE endpoint_id = ?`
)

// promote makes the first delivery of an account due where some of it wait and none is due.
func promote(c *connection, id string, account holdfast.AccountID, now time.Time) error {
	_, err := c.exec(uninterrupted, promoteFirst, at(now), id, id, account[:], id, id, account[:], id)
	return err
}

// By the partial index queued_deliveries, and then by primary key.
const promoteFirst = `UPDATE deliveries SET state = 'pending', next_at = ? WHERE endpoint_id = ? AND state = 'waiting' AND position = (
		SELECT position FROM deliveries WHERE endpoint_id = ? AND account_id = ? AND state IN ('pending', 'waiting')
			AND position <= (SELECT cursor FROM endpoints WHERE endpoint_id = ?) ORDER BY position LIMIT 1)
	AND NOT EXISTS (SELECT 1 FROM deliveries INDEXED BY queued_deliveries WHERE endpoint_id = ? AND account_id = ?
			AND state IN ('pending', 'waiting') AND state = 'pending' AND position <= (SELECT cursor FROM endpoints WHERE endpoint_id = ?))`

// promoteAll promotes in every account that has something waiting.
func promoteAll(c *connection, id string, now time.Time) error {
	var accounts []holdfast.AccountID
	err := c.query(uninterrupted, selectQueuedAccounts, func(r *row) error {
		accounts = append(accounts, r.account())
		return nil
	}, id)
	for _, account := range accounts {
		if err == nil {
			err = promote(c, id, account, now)
		}
	}
	return err
}

// By the partial index queued_deliveries.
const selectQueuedAccounts = `SELECT DISTINCT account_id FROM deliveries WHERE endpoint_id = ? AND state IN ('pending', 'waiting')`

const deliveryColumns = `d.endpoint_id, d.state, d.epoch, d.attempts, d.next_at, d.first_at, d.last_at, d.status, d.problem, ` + publishedColumns

func readDelivery(r *row) (d store.Delivery) {
	d.Endpoint, d.State, d.Epoch, d.Attempts = r.text(), store.DeliveryState(r.text()), r.number(), int(r.number())
	d.NextAt, d.FirstAt, d.LastAt = r.timeOrNone(), r.timeOrNone(), r.timeOrNone()
	d.Status, d.Problem = int(r.number()), r.text()
	d.Event = readPublished(r)
	return d
}

// Due are deliveries whose time has come.
func (db *DB) Due(ctx context.Context, now time.Time, limits map[string]int) (due []store.Delivery, err error) {
	err = db.snapshot(ctx, "look for due deliveries", func(c *connection) error {
		for _, id := range slices.Sorted(maps.Keys(limits)) {
			err := c.query(ctx, selectDueDeliveries, func(r *row) error {
				due = append(due, readDelivery(r))
				return nil
			}, id, at(now), int64(limits[id]))
			if err != nil {
				return err
			}
		}
		return nil
	})
	return due, err
}

// By the partial index due_deliveries. CROSS JOIN keeps the order in which the tables are gone through.
const selectDueDeliveries = `SELECT ` + deliveryColumns + ` FROM endpoints e
	CROSS JOIN deliveries d INDEXED BY due_deliveries ON d.endpoint_id = e.endpoint_id
	CROSS JOIN published_events p ON p.project = e.project AND p.position = d.position
	LEFT JOIN accounts a ON a.account_id = p.account_id
	WHERE e.endpoint_id = ? AND e.paused = 0 AND d.state = 'pending' AND d.next_at <= ? AND d.position <= e.cursor
	ORDER BY d.next_at, d.position LIMIT ?`

// Settle writes what attempts came to.
func (db *DB) Settle(ctx context.Context, id string, now time.Time, attempts []store.Attempt) error {
	return db.write(ctx, "settle deliveries", func(c *connection) error {
		for _, a := range attempts {
			next := a.NextAt
			if a.State != store.DeliveryPending {
				next = time.Time{}
			}
			settled, err := c.exec(uninterrupted, settleDelivery, int64(a.Status), string(a.State), a.Problem, timeOrNone(next), at(a.At), at(a.At),
				id, a.Position, a.Epoch, int64(a.Attempts))
			if err != nil {
				return err
			}
			if settled == 0 {
				continue
			}
			var account holdfast.AccountID
			err = c.query(uninterrupted, selectDeliveryAccount, func(r *row) error {
				account = r.account()
				return nil
			}, id, a.Position)
			if err == nil {
				err = promote(c, id, account, now)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// By primary key.
const (
	settleDelivery = `UPDATE deliveries SET attempts = attempts + 1, status = ?, state = ?, problem = ?, next_at = ?, last_at = ?,
		first_at = coalesce(first_at, ?)
	WHERE endpoint_id = ? AND position = ? AND epoch = ? AND attempts = ? AND state = 'pending'`
	selectDeliveryAccount = `SELECT account_id FROM deliveries WHERE endpoint_id = ? AND position = ?`
)

// Deliveries lists an endpoint's.
func (db *DB) Deliveries(ctx context.Context, id string, state store.DeliveryState, before int64, limit int) (found []store.Delivery, err error) {
	if before == 0 {
		before = 1<<63 - 1
	}
	err = db.snapshot(ctx, "list deliveries", func(c *connection) error {
		return c.query(ctx, selectDeliveries, func(r *row) error {
			found = append(found, readDelivery(r))
			return nil
		}, id, before, string(state), int64(limit))
	})
	return found, err
}

// By primary key, backwards.
const selectDeliveries = `SELECT ` + deliveryColumns + ` FROM endpoints e
	CROSS JOIN deliveries d ON d.endpoint_id = e.endpoint_id
	CROSS JOIN published_events p ON p.project = e.project AND p.position = d.position
	LEFT JOIN accounts a ON a.account_id = p.account_id
	WHERE e.endpoint_id = ? AND d.position < ? AND d.position <= e.cursor AND ? IN ('', d.state) ORDER BY d.position DESC LIMIT ?`

// Rewind queues every event from a position on again: deliveries beyond the cursor count for nothing until they are
// queued again.
func (db *DB) Rewind(ctx context.Context, project, id string, from int64) (rewound bool, err error) {
	err = db.write(ctx, "rewind an endpoint", func(c *connection) error {
		changed, err := c.exec(uninterrupted, rewindEndpoint, max(0, from-1), id, project)
		rewound = changed == 1
		return err
	})
	return rewound, err
}

// By primary key.
const rewindEndpoint = `UPDATE endpoints SET epoch = epoch + 1, cursor = min(cursor, ?) WHERE endpoint_id = ? AND project = ?`

// Revive queues dead deliveries again.
func (db *DB) Revive(ctx context.Context, id string, now time.Time, limit int) (revived int64, err error) {
	err = db.write(ctx, "revive dead deliveries", func(c *connection) error {
		revived, err = c.exec(uninterrupted, reviveDead, id, id, id, int64(limit))
		if err != nil || revived == 0 {
			return err
		}
		return promoteAll(c, id, now)
	})
	return revived, err
}

// By the partial index dead_deliveries.
const reviveDead = `UPDATE deliveries SET state = 'waiting', attempts = 0, first_at = NULL WHERE endpoint_id = ? AND position IN (
	SELECT position FROM deliveries WHERE endpoint_id = ? AND state = 'dead' AND position <= (SELECT cursor FROM endpoints WHERE endpoint_id = ?)
	ORDER BY position LIMIT ?)`
