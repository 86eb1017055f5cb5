package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Outbox = (*DB)(nil)

// Lead takes the lease of the relay, or prolongs it.
func (db *DB) Lead(ctx context.Context, holder string, now, until time.Time) (token int64, err error) {
	err = db.write(ctx, "take the lease of the relay", func(c *connection) error {
		changed, err := c.exec(uninterrupted, takeLease, store.RelayLease, holder, at(until), at(now))
		if err != nil || changed == 0 {
			return err
		}
		token, err = leader(c)
		return err
	})
	return token, err
}

// By primary key.
const takeLease = `INSERT INTO leases AS l (name, holder, token, until) VALUES (?, ?, 1, ?)
	ON CONFLICT (name) DO UPDATE SET until = excluded.until, holder = excluded.holder, token = l.token + (l.holder <> excluded.holder)
	WHERE l.holder = excluded.holder OR l.until <= ?`

func leader(c *connection) (token int64, err error) {
	err = c.query(uninterrupted, selectLeader, func(r *row) error {
		token = r.number()
		return nil
	}, store.RelayLease)
	return token, err
}

const selectLeader = `SELECT token FROM leases WHERE name = ?`

// Pending returns accounts that have unpublished rows, stepping from one to the next.
func (db *DB) Pending(ctx context.Context, after holdfast.AccountID, accounts, events int) (found []store.Pending, err error) {
	err = db.snapshot(ctx, "look for unpublished events", func(c *connection) error {
		for len(found) < accounts {
			p := store.Pending{}
			err := c.query(ctx, selectNextPending, func(r *row) error {
				p.Account, p.Project, p.Name = r.account(), r.text(), r.text()
				return nil
			}, after[:])
			if err != nil || p.Account.IsZero() {
				return err
			}
			after = p.Account
			if err := pendingEvents(ctx, c, &p, events); err != nil {
				return err
			}
			found = append(found, p)
		}
		return nil
	})
	return found, err
}

// By primary keys.
const selectNextPending = `SELECT a.account_id, a.project, a.name FROM accounts a
	WHERE a.account_id = (SELECT account_id FROM outbox WHERE account_id > ? ORDER BY account_id LIMIT 1)`

func pendingEvents(ctx context.Context, c *connection, p *store.Pending, most int) error {
	err := c.query(ctx, selectFirstEvents, func(r *row) error {
		p.Events = append(p.Events, store.PendingEvent{Event: readEvent(r)})
		return nil
	}, p.Account[:], int64(most))
	if err != nil {
		return err
	}
	for i := range p.Events {
		told := &p.Events[i]
		if told.Event.Entry != 0 {
			err = c.query(ctx, selectEntry, func(r *row) error {
				e := readEntry(r)
				told.Entry = &e
				return nil
			}, p.Account[:], told.Event.Entry)
		}
		if err == nil && !told.Event.Payment.IsZero() {
			err = c.query(ctx, selectPaid, func(r *row) error {
				told.Payment = &holdfast.Payment{}
				r.packed(func(text string) error { return store.UnpackPayment(text, told.Payment) })
				return nil
			}, p.Account[:], told.Event.Payment[:])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// By primary keys; the events sorted by the order of writing, as in selectEvents.
const (
	selectFirstEvents = selectEvents + ` LIMIT ?`
	selectEntry       = `SELECT ` + entryColumns + ` FROM entries WHERE account_id = ? AND entry_no = ?`
	selectPaid        = `SELECT record FROM payments WHERE account_id = ? AND payment_id = ?`
)

// Publish moves rows out of the outbox, row by row.
func (db *DB) Publish(ctx context.Context, token int64, now time.Time, events []store.Published) error {
	const op = "publish events"
	conflict := func(why string) error { return &store.Error{Kind: store.Conflict, Op: op, Err: errors.New(why)} }
	return db.write(ctx, op, func(c *connection) error {
		leads, err := leader(c)
		if err != nil {
			return err
		}
		if leads != token {
			return conflict("another relay leads")
		}
		for i := range events {
			e := &events[i]
			removed, err := c.exec(uninterrupted, deleteEvent, e.Account[:], e.ID[:])
			if err != nil {
				return err
			}
			if removed == 0 {
				return conflict("an event was published meanwhile")
			}
			_, before, err := positionOf(uninterrupted, c, e.Project, e.Account, e.ID)
			if err != nil {
				return err
			}
			if before {
				continue
			}
			if _, err := c.exec(uninterrupted, nextPosition, e.Project); err != nil {
				return err
			}
			_, err = c.exec(uninterrupted, insertPublished, e.Project, e.Project, e.Account[:], e.ID[:], at(e.At), at(now), string(e.Kind), e.Data)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// By primary keys.
const (
	deleteEvent  = `DELETE FROM outbox WHERE account_id = ? AND event_id = ?`
	nextPosition = `INSERT INTO positions AS p (project, last) VALUES (?, 1) ON CONFLICT (project) DO UPDATE SET last = p.last + 1`

	insertPublished = `INSERT INTO published_events (project, position, account_id, event_id, at, published_at, kind, data)
	VALUES (?, (SELECT last FROM positions WHERE project = ?), ?, ?, ?, ?, ?, ?)`
)

const publishedColumns = `p.project, p.position, p.account_id, coalesce(a.name, ''), p.event_id, p.kind, p.at, p.published_at, p.data`

func readPublished(r *row) (e store.Published) {
	e.Project, e.Position, e.Account, e.Name, e.ID = r.text(), r.number(), r.account(), r.text(), r.id()
	e.Kind, e.At, e.PublishedAt, e.Data = holdfast.EventKind(r.text()), r.at(), r.at(), r.text()
	return e
}

// Published are the events of a project behind a position.
func (db *DB) Published(ctx context.Context, project string, after int64, limit int) (events []store.Published, err error) {
	err = db.snapshot(ctx, "read published events", func(c *connection) error {
		return c.query(ctx, selectPublished, func(r *row) error {
			events = append(events, readPublished(r))
			return nil
		}, project, after, int64(limit))
	})
	return events, err
}

// By primary key, and the accounts by theirs.
const selectPublished = `SELECT ` + publishedColumns + ` FROM published_events p LEFT JOIN accounts a ON a.account_id = p.account_id
	WHERE p.project = ? AND p.position > ? ORDER BY p.position LIMIT ?`

// PositionOf finds a published event.
func (db *DB) PositionOf(ctx context.Context, project string, account holdfast.AccountID, event holdfast.ID) (position int64, found bool, err error) {
	err = db.snapshot(ctx, "find a published event", func(c *connection) error {
		position, found, err = positionOf(ctx, c, project, account, event)
		return err
	})
	return position, found, err
}

func positionOf(ctx context.Context, c *connection, project string, account holdfast.AccountID, event holdfast.ID) (position int64, found bool, err error) {
	err = c.query(ctx, selectPosition, func(r *row) error {
		position, found = r.number(), true
		return nil
	}, account[:], event[:], project)
	return position, found, err
}

// By the index published_event_ids.
const selectPosition = `SELECT position FROM published_events WHERE account_id = ? AND event_id = ? AND project = ?`

// Positions are the last positions.
func (db *DB) Positions(ctx context.Context) (map[string]int64, error) {
	return db.numbers(ctx, "read positions", `SELECT project, last FROM positions`)
}

// Cursors are how far a sink has come.
func (db *DB) Cursors(ctx context.Context, sink string) (map[string]int64, error) {
	return db.numbers(ctx, "read the cursors of a sink", `SELECT project, position FROM sink_cursors WHERE sink = ?`, sink)
}

// numbers reads a text and a number per row.
func (db *DB) numbers(ctx context.Context, op, text string, arguments ...any) (numbers map[string]int64, err error) {
	numbers = map[string]int64{}
	err = db.snapshot(ctx, op, func(c *connection) error {
		values := make([]driver.Value, len(arguments))
		for i, argument := range arguments {
			values[i] = argument
		}
		return c.query(ctx, text, func(r *row) error {
			name := r.text()
			numbers[name] = r.number()
			return nil
		}, values...)
	})
	return numbers, err
}

// MoveCursor says how far a sink has come.
func (db *DB) MoveCursor(ctx context.Context, sink, project string, position int64) error {
	return db.write(ctx, "move the cursor of a sink", func(c *connection) error {
		_, err := c.exec(uninterrupted, moveCursor, sink, project, position)
		return err
	})
}

// By primary key.
const moveCursor = `INSERT INTO sink_cursors AS c (sink, project, position) VALUES (?, ?, ?)
	ON CONFLICT (sink, project) DO UPDATE SET position = max(c.position, excluded.position)`

// Unpublished counts the rows that wait.
func (db *DB) Unpublished(ctx context.Context) (count int64, oldest time.Time, err error) {
	err = db.snapshot(ctx, "count unpublished events", func(c *connection) error {
		return c.query(ctx, selectUnpublished, func(r *row) error {
			count, oldest = r.number(), r.timeOrNone()
			return nil
		})
	})
	return count, oldest, err
}

// From end to end: what is in the outbox is about to leave it.
const selectUnpublished = `SELECT count(*), min(at) FROM outbox`

// Prune removes old events with their deliveries.
func (db *DB) Prune(ctx context.Context, old, ancient time.Time, limit int) (pruned int64, err error) {
	err = db.write(ctx, "prune events", func(c *connection) error {
		type place struct {
			project  string
			position int64
		}
		var past []place
		err := c.query(uninterrupted, selectPast, func(r *row) error {
			past = append(past, place{r.text(), r.number()})
			return nil
		}, at(old), at(ancient), int64(limit))
		if err != nil {
			return err
		}
		cut := map[string]bool{} // endpoints that had still to be given one
		for _, p := range past {
			err1 := c.query(uninterrupted, selectUndelivered, func(r *row) error {
				cut[r.text()] = true
				return nil
			}, p.position, p.project)
			_, err2 := c.exec(uninterrupted, deleteDeliveriesOf, p.position, p.project)
			_, err3 := c.exec(uninterrupted, deletePublished, p.project, p.position)
			if err := errors.Join(err1, err2, err3); err != nil {
				return err
			}
			pruned++
		}
		for id := range cut { // nobody waits for what is gone
			if err := promoteAll(c, id, old); err != nil {
				return err
			}
		}
		return nil
	})
	return pruned, err
}

// By the index published_event_times; deliveries and endpoints by primary key and from end to end, of which there are few.
const selectPast = `SELECT p.project, p.position FROM published_events p
	WHERE p.published_at < ? AND (p.published_at < ? OR NOT EXISTS (
		SELECT 1 FROM endpoints e LEFT JOIN deliveries d ON d.endpoint_id = e.endpoint_id AND d.position = p.position
		WHERE e.project = p.project AND (p.position > e.cursor OR d.state <> 'delivered')))
	ORDER BY p.published_at LIMIT ?`

const (
	selectUndelivered = `SELECT d.endpoint_id FROM endpoints e JOIN deliveries d ON d.endpoint_id = e.endpoint_id AND d.position = ?
	WHERE e.project = ? AND d.state <> 'delivered'`
	deleteDeliveriesOf = `DELETE FROM deliveries WHERE position = ? AND endpoint_id IN (SELECT endpoint_id FROM endpoints WHERE project = ?)`
	deletePublished    = `DELETE FROM published_events WHERE project = ? AND position = ?`
)
