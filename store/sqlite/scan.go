package sqlite

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Scan returns accounts in the order of their ids. It reads on a connection that never waits for the writer, so what it
// returns may be settled by the time it is looked at.
func (db *DB) Scan(ctx context.Context, due store.Due) (accounts []holdfast.AccountID, err error) {
	err = db.snapshot(ctx, "scan for what is due", func(c *connection) error {
		found := func(r *row) error {
			accounts = append(accounts, r.account())
			return nil
		}
		if due.Transfers {
			return c.query(ctx, selectSending, found, due.After[:], int64(due.Limit))
		}
		return c.query(ctx, selectDue, found, due.After[:], due.At.UnixMicro(), int64(due.Limit))
	})
	return accounts, err
}

// By the partial index live_reservations alone, from After on: it covers the query, comes in order of accounts, and ends
// at the limit. See the index for why it does not begin with the time.
const selectDue = `SELECT DISTINCT account_id FROM reservations
	WHERE account_id > ? AND ended_at IS NULL AND expires_at <= ?
	ORDER BY account_id LIMIT ?`

// By the partial index transfers_under_way.
const selectSending = `SELECT account_id FROM accounts WHERE account_id > ? AND transfers IS NOT NULL ORDER BY account_id LIMIT ?`

// snapshot lets do read on one of the readers, all in one transaction: every statement sees the same moment.
func (db *DB) snapshot(ctx context.Context, op string, do func(*connection) error) error {
	c, err := db.takeReader(ctx, op)
	if err != nil {
		return err
	}
	err = within(ctx, c, do)
	if err != nil {
		// Whatever it was, a new connection costs less than to wonder what state this one is in.
		err = failed(op, errors.Join(err, c.close()))
		c = nil
	}
	db.giveReader(c)
	return err
}

// within begins a read transaction, lets do read, and ends it.
func within(ctx context.Context, c *connection, do func(*connection) error) error {
	if _, err := c.exec(ctx, begin); err != nil {
		return err
	}
	if err := do(c); err != nil {
		return err
	}
	_, err := c.exec(uninterrupted, commit)
	return err
}

// The snapshot is taken by the first statement that reads.
const begin = `BEGIN`
