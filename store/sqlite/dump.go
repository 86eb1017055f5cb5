package sqlite

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Dump reads on a connection of its own, in one transaction. While it runs, the WAL grows with what is committed; it
// shrinks again afterwards.
func (db *DB) Dump(ctx context.Context, visit func(store.Record) error) error {
	const op = "dump the database"
	place, err := db.take(ctx, op, db.dumpers, reading)
	if err != nil {
		return err
	}
	defer func() { db.dumpers <- nil }()
	var refused error // by visit, and not ours to name
	err = within(ctx, place, func(c *connection) error {
		return c.query(ctx, selectAccounts, func(r *row) error {
			account := readAccount(r)
			if r.err != nil {
				return r.err
			}
			if err := errors.Join(ended(ctx, op), db.check(op)); err != nil {
				return err
			}
			record, err := recordOf(ctx, c, account)
			if err != nil {
				return err
			}
			refused = visit(record)
			return refused
		})
	})
	err = errors.Join(err, place.close())
	if refused != nil {
		return refused
	}
	return failed(op, err)
}

// By primary key, from the first id to the last.
const selectAccounts = `SELECT ` + accountColumns + ` FROM accounts ORDER BY account_id`

func recordOf(ctx context.Context, c *connection, account holdfast.Account) (store.Record, error) {
	record := store.Record{Account: account}
	id := account.ID[:]
	err := c.query(ctx, selectAllGrants, func(r *row) error {
		record.Grants = append(record.Grants, readGrant(r))
		return nil
	}, id)
	record.Reservations = sequence(ctx, c, selectAllReservations, id, readReservation)
	record.Entries = sequence(ctx, c, selectAllEntries, id, readEntry)
	return record, err
}

// By primary key.
const selectAllGrants = `SELECT ` + grantColumns + ` FROM grants WHERE account_id = ? ORDER BY grant_id`

// By primary key.
const selectAllReservations = `SELECT ` + reservationColumns + ` FROM reservations WHERE account_id = ? ORDER BY reservation_id`

// By primary key.
const selectAllEntries = `SELECT ` + entryColumns + ` FROM entries WHERE account_id = ? ORDER BY entry_no`

// errStopped ends a query whose reader has seen enough.
var errStopped = errors.New("stopped")

// sequence reads rows as they are ranged over, so that a long history is never in memory at once.
func sequence[T any](ctx context.Context, c *connection, text string, id []byte, read func(*row) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		err := c.query(ctx, text, func(r *row) error {
			item := read(r)
			if r.err != nil {
				return r.err
			}
			if !yield(item, nil) {
				return errStopped
			}
			return nil
		}, id)
		if err != nil && !errors.Is(err, errStopped) {
			var none T
			yield(none, failed("dump the database", err))
		}
	}
}
