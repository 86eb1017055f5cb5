package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// withdrawNotices removes what is not to be told any more. Where the relay is just moving a notice into the outbox, the first
// statement waits for it, and the second finds the row there: each sees what was committed before it began.
func withdrawNotices(p *pipeline, changes []holdfast.Changes) error {
	var accounts, slots, events list[uuid]
	for i := range changes {
		for _, w := range changes[i].Withdrawn {
			accounts, slots, events = append(accounts, uuid(changes[i].Account.ID)), append(slots, uuid(w.Slot)), append(events, uuid(w.Event))
		}
	}
	if len(slots) > 0 {
		p.then(deleteNotices, accounts, slots)
		p.then(deleteEvents, accounts, events)
	}
	return nil
}

// By primary key.
var (
	deleteNotices = `DELETE FROM holdfast.notices n USING ` + given(`account_id uuid, slot uuid`) + ` w
	CROSS JOIN LATERAL (SELECT s.ctid AS place FROM holdfast.notices s WHERE s.account_id = w.account_id AND s.slot = w.slot OFFSET 0) found
	WHERE n.ctid = found.place`
	deleteEvents = `DELETE FROM holdfast.outbox o USING ` + given(`account_id uuid, event_id uuid`) + ` w
	CROSS JOIN LATERAL (SELECT s.ctid AS place FROM holdfast.outbox s WHERE s.account_id = w.account_id AND s.event_id = w.event_id OFFSET 0) found
	WHERE o.ctid = found.place`
)

func putNotices(p *pipeline, changes []holdfast.Changes) error {
	var (
		accounts, slots, events, reservations list[uuid]
		kinds                                 list[string]
		due                                   list[moment]
	)
	for i := range changes {
		for j := range changes[i].Notices {
			n := &changes[i].Notices[j]
			if n.Event.Entry != 0 || n.Event.Figure != 0 {
				return misuse("save accounts", "a notice tells of no entry and of no figure")
			}
			accounts, slots, events = append(accounts, uuid(changes[i].Account.ID)), append(slots, uuid(n.Slot)), append(events, uuid(n.Event.ID))
			reservations, kinds, due = append(reservations, uuid(n.Event.Reservation)), append(kinds, string(n.Event.Kind)), append(due, moment(n.DueAt))
		}
	}
	if len(slots) > 0 {
		p.then(upsertNotices, accounts, slots, events, due, reservations, kinds)
	}
	return nil
}

// By primary key.
var upsertNotices = `INSERT INTO holdfast.notices (account_id, slot, event_id, due_at, reservation_id, kind)
	SELECT account_id, slot, event_id, due_at, NULLIF(reservation_id, ` + noID + `), kind
	FROM ` + given(`account_id uuid, slot uuid, event_id uuid, due_at timestamptz, reservation_id uuid, kind text`) + ` w
	ON CONFLICT (account_id, slot) DO UPDATE SET event_id = excluded.event_id, due_at = excluded.due_at,
		reservation_id = excluded.reservation_id, kind = excluded.kind`

// DueNotices are notices whose time has come.
func (db *DB) DueNotices(ctx context.Context, of store.NoticesOf, at time.Time, after store.NoticeRef, limit int) (due []store.DueNotice, err error) {
	which := noticesOfWork
	if of == store.NoticesOfAccounts {
		which = noticesOfAccounts
	}
	p := &pipeline{}
	from := []any{uuid(after.Account), uuid(after.Slot), moment(at), int64(limit)}
	p.read(func(rows pgx.Rows) error {
		var n store.DueNotice
		e := &n.Notice.Event
		err := scan(rows, (*uuid)(&n.Account.ID), (*uuid)(&n.Notice.Slot), (*uuid)(&e.ID), (*moment)(&n.Notice.DueAt), (*uuid)(&e.Reservation), (*string)(&e.Kind))
		e.At = n.Notice.DueAt
		due = append(due, n)
		return err
	}, which, from...)
	next := 0
	p.read(func(rows pgx.Rows) error { // in the same order
		a, err := scanAccount(rows)
		for ; next < len(due) && due[next].Account.ID == a.ID; next++ {
			due[next].Account = a
		}
		return err
	}, `WITH n AS MATERIALIZED (`+which+`) SELECT `+accountColumns+` FROM (SELECT DISTINCT account_id FROM n) n
	CROSS JOIN LATERAL (SELECT * FROM holdfast.accounts s WHERE s.account_id = n.account_id OFFSET 0) a ORDER BY a.account_id`, from...)
	if err := db.snapshot(ctx, "look for due notices", p); err != nil {
		return nil, err
	}
	return due, nil
}

// Those of work by the index notices_of_work, in its order (see setPlans), the others by primary key: from end to end. The slot
// of a notice of work is its reservation.
const (
	noticesOfWork = selectNotices + ` WHERE (n.account_id, n.reservation_id) > ($1::uuid, $2::uuid) AND n.reservation_id IS NOT NULL
	AND n.due_at <= $3::timestamptz ORDER BY n.account_id, n.reservation_id LIMIT $4::bigint`
	noticesOfAccounts = selectNotices + ` WHERE (n.account_id, n.slot) > ($1::uuid, $2::uuid) AND n.reservation_id IS NULL
	AND n.due_at <= $3::timestamptz ORDER BY n.account_id, n.slot LIMIT $4::bigint`

	selectNotices = `SELECT n.account_id, n.slot, n.event_id, n.due_at, n.reservation_id, n.kind FROM holdfast.notices n`
)

// SettleNotices puts notices into the outbox, puts them off or drops them.
func (db *DB) SettleNotices(ctx context.Context, settled []store.SettledNotice) error {
	type rows struct {
		accounts, slots, events list[uuid]
		until                   list[moment]
	}
	var told, later, dropped rows
	for _, n := range settled {
		r := &dropped
		switch {
		case n.Fate.Tell:
			r = &told
		case !n.Fate.Later.IsZero():
			r = &later
		}
		r.accounts, r.slots, r.events = append(r.accounts, uuid(n.Account)), append(r.slots, uuid(n.Slot)), append(r.events, uuid(n.Event))
		r.until = append(r.until, moment(n.Fate.Later))
	}
	p := &pipeline{}
	if len(told.slots) > 0 {
		p.then(tellNotices, told.accounts, told.slots, told.events)
	}
	if len(later.slots) > 0 {
		p.then(putOffNotices, later.accounts, later.slots, later.events, later.until)
	}
	if len(dropped.slots) > 0 {
		p.then(dropNotices, dropped.accounts, dropped.slots, dropped.events)
	}
	if len(p.steps) == 0 {
		return nil
	}
	return db.transact(ctx, "settle notices", p)
}

// By primary keys. What is told stands behind what its account has written by now, and before what it writes next.
var (
	theseNotices = given(`account_id uuid, slot uuid, event_id uuid`) + ` w
	CROSS JOIN LATERAL (
		SELECT s.ctid AS place FROM holdfast.notices s WHERE s.account_id = w.account_id AND s.slot = w.slot AND s.event_id = w.event_id OFFSET 0
	) found
	WHERE n.ctid = found.place`
	dropNotices = `DELETE FROM holdfast.notices n USING ` + theseNotices
	tellNotices = `WITH gone AS (` + dropNotices + ` RETURNING n.*)
	INSERT INTO holdfast.outbox (account_id, event_id, written, kind, reservation_id, figure, at)
	SELECT g.account_id, g.event_id, (a.version + 1) * ` + strconv.Itoa(mostEvents) + ` - 1, g.kind, g.reservation_id, 0, g.due_at
	FROM gone g CROSS JOIN LATERAL (SELECT s.version FROM holdfast.accounts s WHERE s.account_id = g.account_id OFFSET 0) a
	ON CONFLICT (account_id, event_id) DO NOTHING`
	putOffNotices = `UPDATE holdfast.notices AS n SET due_at = w.until
	FROM ` + given(`account_id uuid, slot uuid, event_id uuid, until timestamptz`) + ` w
	CROSS JOIN LATERAL (
		SELECT s.ctid AS place FROM holdfast.notices s WHERE s.account_id = w.account_id AND s.slot = w.slot AND s.event_id = w.event_id OFFSET 0
	) found
	WHERE n.ctid = found.place`
)
