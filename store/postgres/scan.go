package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Scan returns accounts in the order of their ids. It takes no lock, so what it returns may be settled by the time it is
// looked at.
func (db *DB) Scan(ctx context.Context, due store.Due) (accounts []holdfast.AccountID, err error) {
	const op = "scan for what is due"
	p := &pipeline{}
	found := func(rows pgx.Rows) error {
		var account holdfast.AccountID
		if err := scan(rows, (*uuid)(&account)); err != nil {
			return err
		}
		accounts = append(accounts, account)
		return nil
	}
	if due.Transfers {
		p.read(found, selectSending, uuid(due.After), int64(due.Limit))
	} else {
		p.read(found, selectDue, uuid(due.After), moment(due.At), int64(due.Limit))
	}
	if err := db.snapshot(ctx, op, p); err != nil {
		return nil, err
	}
	return accounts, nil
}

// By the partial index live_reservations, from $1 on, in order of accounts, up to the limit. See the index for why it does
// not begin with the time.
const selectDue = `SELECT DISTINCT account_id FROM holdfast.reservations
	WHERE account_id > $1::uuid AND ended_at IS NULL AND expires_at <= $2::timestamptz
	ORDER BY account_id LIMIT $3::bigint`

// By the partial index transfers_under_way.
const selectSending = `SELECT account_id FROM holdfast.accounts WHERE account_id > $1::uuid AND transfers IS NOT NULL
	ORDER BY account_id LIMIT $2::bigint`

// snapshot runs statements that read, all in one transaction and one round trip: each sees the same moment.
func (db *DB) snapshot(ctx context.Context, op string, statements *pipeline) error {
	conn, err := db.acquire(ctx, op)
	if err != nil {
		return err
	}
	s := &pooled{conn: conn}
	p := &pipeline{}
	p.then(beginReading)
	p.then(setReading)
	p.steps = append(p.steps, statements.steps...)
	p.then(commit)
	if err := p.run(ctx, s); err != nil {
		s.undo(ctx, err)
		return failed(op, err)
	}
	s.release()
	return nil
}

const (
	beginReading = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY`
	setReading   = `SELECT ` + setPlans
)
