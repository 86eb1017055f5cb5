package sqlite

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// saveNotices removes what is not to be told any more, and keeps what is to be told later.
func saveNotices(c *connection, op string, changes *holdfast.Changes) error {
	account := changes.Account.ID
	for _, w := range changes.Withdrawn {
		_, err1 := c.exec(uninterrupted, deleteNotice, account[:], w.Slot[:])
		_, err2 := c.exec(uninterrupted, deleteEvent, account[:], w.Event[:])
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
	}
	for i := range changes.Notices {
		n := &changes.Notices[i]
		if n.Event.Entry != 0 || n.Event.Figure != 0 {
			return misuse(op, "a notice tells of no entry and of no figure")
		}
		_, err := c.exec(uninterrupted, upsertNotice, account[:], n.Slot[:], n.Event.ID[:], at(n.DueAt), idOrNone(n.Event.Reservation), string(n.Event.Kind))
		if err != nil {
			return err
		}
	}
	return nil
}

// By primary key.
const (
	deleteNotice = `DELETE FROM notices WHERE account_id = ? AND slot = ?`
	upsertNotice = `INSERT INTO notices (account_id, slot, event_id, due_at, reservation_id, kind) VALUES (?, ?, ?, ?, ?, ?)
	ON CONFLICT (account_id, slot) DO UPDATE SET event_id = excluded.event_id, due_at = excluded.due_at,
		reservation_id = excluded.reservation_id, kind = excluded.kind`
)

// DueNotices are notices whose time has come.
func (db *DB) DueNotices(ctx context.Context, of store.NoticesOf, now time.Time, after store.NoticeRef, limit int) (due []store.DueNotice, err error) {
	which := noticesOfWork
	if of == store.NoticesOfAccounts {
		which = noticesOfAccounts
	}
	err = db.snapshot(ctx, "look for due notices", func(c *connection) error {
		err := c.query(ctx, which, func(r *row) error {
			var n store.DueNotice
			e := &n.Notice.Event
			n.Account.ID, n.Notice.Slot, e.ID, n.Notice.DueAt, e.Reservation = r.account(), r.id(), r.id(), r.at(), r.idOrNone()
			e.Kind, e.At = holdfast.EventKind(r.text()), n.Notice.DueAt
			due = append(due, n)
			return nil
		}, after.Account[:], after.Slot[:], at(now), int64(limit))
		for i := range due {
			if err != nil {
				return err
			}
			account := due[i].Account.ID
			err = c.query(ctx, selectAccount, func(r *row) error {
				due[i].Account = readAccount(r)
				return nil
			}, account[:])
		}
		return err
	})
	return due, err
}

// Those of work by the index notices_of_work, the others by primary key: from end to end.
const (
	noticesOfWork     = selectNotices + ` AND reservation_id IS NOT NULL` + someNotices
	noticesOfAccounts = selectNotices + ` AND reservation_id IS NULL` + someNotices

	selectNotices = `SELECT account_id, slot, event_id, due_at, reservation_id, kind FROM notices
	WHERE (account_id, slot) > (?, ?) AND due_at <= ?`
	someNotices = ` ORDER BY account_id, slot LIMIT ?`
)

// SettleNotices puts notices into the outbox, puts them off or drops them.
func (db *DB) SettleNotices(ctx context.Context, settled []store.SettledNotice) error {
	return db.write(ctx, "settle notices", func(c *connection) error {
		for i := range settled {
			n := &settled[i]
			var err error
			if !n.Fate.Later.IsZero() && !n.Fate.Tell {
				_, err = c.exec(uninterrupted, putOffNotice, at(n.Fate.Later), n.Account[:], n.Slot[:], n.Event[:])
			} else {
				if n.Fate.Tell {
					_, err = c.exec(uninterrupted, tellNotice, n.Account[:], n.Slot[:], n.Event[:])
				}
				if err == nil {
					_, err = c.exec(uninterrupted, dropNotice, n.Account[:], n.Slot[:], n.Event[:])
				}
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
	putOffNotice = `UPDATE notices SET due_at = ? WHERE account_id = ? AND slot = ? AND event_id = ?`
	tellNotice   = `INSERT INTO outbox (account_id, event_id, kind, entry_no, reservation_id, figure, at)
	SELECT account_id, event_id, kind, NULL, reservation_id, 0, due_at FROM notices WHERE account_id = ? AND slot = ? AND event_id = ?
	ON CONFLICT (account_id, event_id) DO NOTHING`
	dropNotice = `DELETE FROM notices WHERE account_id = ? AND slot = ? AND event_id = ?`
)
