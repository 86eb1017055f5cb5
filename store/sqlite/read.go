package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/binary"
	"math"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Read answers from one snapshot. It walks the account's rows from the newest on and stops when the page is full; a
// filter that matches little walks far, on a connection that keeps no decision waiting and stops with the caller.
func (db *DB) Read(ctx context.Context, query store.Query) (page store.Page, err error) {
	behind, err := query.Position()
	if err != nil {
		return page, err
	}
	err = db.snapshot(ctx, "read a page", func(c *connection) error {
		account, found, err := loadAccount(ctx, c, query.Account)
		if err != nil || !found || account.Project != query.Project {
			return err
		}
		switch query.Kind {
		case store.QueryReservations:
			return readReservations(ctx, c, &query, behind, &page)
		case store.QueryGrants:
			return readGrants(ctx, c, &query, behind, &page)
		case store.QueryEntries:
			return readEntries(ctx, c, &query, behind, &page)
		}
		l := &loading{c: c, state: &holdfast.State{Account: account}}
		page.State = l.state
		if err := l.openGrants(ctx); err != nil {
			return err
		}
		return l.arrange()
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

// afterAll is behind every id: a first page begins there.
var afterAll = bytes.Repeat([]byte{0xff}, 17)

func readReservations(ctx context.Context, c *connection, query *store.Query, behind []byte, page *store.Page) error {
	if behind == nil {
		behind = afterAll
	}
	text, values := selectReservations, []driver.Value{query.Account[:], behind, string(query.State), query.Key, int64(query.Limit) + 1}
	switch {
	case !query.Reservation.IsZero():
		text, values = selectReservationOnPage, []driver.Value{query.Account[:], query.Reservation[:], behind, string(query.State), query.Key}
	case query.State == holdfast.Reserved || query.State == holdfast.Running:
		text = selectLiveReservations
	}
	err := c.query(ctx, text, func(r *row) error {
		page.Reservations = append(page.Reservations, readReservation(r))
		return nil
	}, values...)
	if err == nil && len(page.Reservations) > query.Limit {
		page.Reservations = page.Reservations[:query.Limit]
		page.Next = query.NextCursor(page.Reservations[query.Limit-1].ID[:])
	}
	return err
}

// By primary key, backwards: ids are UUIDs of version 7, so the newest come first without an index of their own.
const selectReservations = `SELECT ` + reservationColumns + ` FROM reservations
	WHERE account_id = ?1 AND reservation_id < ?2 AND (?3 = '' OR state = ?3) AND (?4 = '' OR key = ?4)
	ORDER BY reservation_id DESC LIMIT ?5`

// By the partial index live_reservations: few, however long the history is, and sorted afterwards.
const selectLiveReservations = `SELECT ` + reservationColumns + ` FROM reservations INDEXED BY live_reservations
	WHERE account_id = ?1 AND ended_at IS NULL AND reservation_id < ?2 AND state = ?3 AND (?4 = '' OR key = ?4)
	ORDER BY reservation_id DESC LIMIT ?5`

// By primary key.
const selectReservationOnPage = `SELECT ` + reservationColumns + ` FROM reservations
	WHERE account_id = ?1 AND reservation_id = ?2 AND reservation_id < ?3 AND (?4 = '' OR state = ?4) AND (?5 = '' OR key = ?5)`

func readGrants(ctx context.Context, c *connection, query *store.Query, behind []byte, page *store.Page) error {
	createdAt, id := int64(math.MaxInt64), afterAll
	if behind != nil {
		createdAt, id = int64(binary.BigEndian.Uint64(behind)), behind[8:]
	}
	err := c.query(ctx, selectGrants, func(r *row) error {
		page.Grants = append(page.Grants, readGrant(r))
		return nil
	}, query.Account[:], createdAt, id, int64(query.Limit)+1)
	if err == nil && len(page.Grants) > query.Limit {
		page.Grants = page.Grants[:query.Limit]
		last := page.Grants[query.Limit-1]
		page.Next = query.NextCursor(append(binary.BigEndian.AppendUint64(nil, uint64(last.CreatedAt.UnixMicro())), last.ID[:]...))
	}
	return err
}

// By primary key, all of the account's, sorted afterwards: the ids of an allowance's cycles are UUIDs of version 5 and
// tell no order. An account gets a grant per cycle and purchase, not per request, so this stays short without an index.
const selectGrants = `SELECT ` + grantColumns + ` FROM grants
	WHERE account_id = ?1 AND (created_at, grant_id) < (?2, ?3)
	ORDER BY created_at DESC, grant_id DESC LIMIT ?4`

func readEntries(ctx context.Context, c *connection, query *store.Query, behind []byte, page *store.Page) error {
	no := int64(math.MaxInt64)
	if behind != nil {
		no = int64(binary.BigEndian.Uint64(behind))
	}
	err := c.query(ctx, selectEntries, func(r *row) error {
		page.Entries = append(page.Entries, readEntry(r))
		return nil
	}, query.Account[:], no, int64(query.Limit)+1)
	if err == nil && len(page.Entries) > query.Limit {
		page.Entries = page.Entries[:query.Limit]
		page.Next = query.NextCursor(binary.BigEndian.AppendUint64(nil, uint64(page.Entries[query.Limit-1].No)))
	}
	return err
}

// By primary key, backwards.
const selectEntries = `SELECT ` + entryColumns + ` FROM entries
	WHERE account_id = ? AND entry_no < ? ORDER BY entry_no DESC LIMIT ?`

// Events lists the account's outbox rows in the order in which they were written.
func (db *DB) Events(ctx context.Context, account holdfast.AccountID) (events []holdfast.Event, err error) {
	err = db.snapshot(ctx, "list events", func(c *connection) error {
		return c.query(ctx, selectEvents, func(r *row) error {
			events = append(events, readEvent(r))
			return nil
		}, account[:])
	})
	return events, err
}

// By primary key, sorted by the order of writing, which a rowid table keeps.
const selectEvents = `SELECT ` + eventColumns + ` FROM outbox WHERE account_id = ? ORDER BY rowid`
