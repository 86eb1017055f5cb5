package postgres

import (
	"context"
	"iter"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// dumpPage is how many rows a dump reads at once: neither a long history nor a long list is ever in memory whole.
const dumpPage = 500

// Dump reads on a connection of its own, in one transaction that sees one moment. While it runs, the server keeps old
// versions of rows that change.
func (db *DB) Dump(ctx context.Context, visit func(store.Record) error) error {
	const op = "dump the database"
	if err := ended(ctx, op); err != nil {
		return err
	}
	if db.closing.Err() != nil {
		return failed(op, errClosed)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(db.closing, cancel)()
	conn, err := pgx.ConnectConfig(ctx, db.pool.Config().ConnConfig)
	if err != nil {
		return failed(op, err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // nothing of it is used again; it has only read
	register(conn.TypeMap())
	d := &dumping{ctx: ctx, op: op, conn: conn}
	p := &pipeline{}
	p.then(beginReading)
	p.then(setReading)
	if err := p.run(ctx, conn); err != nil {
		return failed(op, err)
	}
	return d.accounts(visit)
}

type dumping struct {
	ctx  context.Context
	op   string
	conn *pgx.Conn
}

// page reads the rows of one statement.
func page[T any](d *dumping, read func(pgx.Rows) (T, error), text string, arguments ...any) (found []T, err error) {
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		item, err := read(rows)
		found = append(found, item)
		return err
	}, text, arguments...)
	if err := p.run(d.ctx, d.conn); err != nil {
		return nil, failed(d.op, err)
	}
	return found, nil
}

func (d *dumping) accounts(visit func(store.Record) error) error {
	var last uuid
	for {
		accounts, err := page(d, func(rows pgx.Rows) (holdfast.Account, error) { return scanAccount(rows) }, selectAccounts, last, int64(dumpPage))
		if err != nil {
			return err
		}
		for _, account := range accounts {
			record, err := d.record(account)
			if err != nil {
				return err
			}
			if err := visit(record); err != nil {
				return err
			}
		}
		if len(accounts) < dumpPage {
			return ended(d.ctx, d.op)
		}
		last = uuid(accounts[len(accounts)-1].ID)
	}
}

// By primary key, from one id to the next.
const selectAccounts = `SELECT ` + accountColumns + ` FROM holdfast.accounts a
	WHERE a.account_id > $1::uuid AND a.version > 0 ORDER BY a.account_id LIMIT $2::bigint`

func (d *dumping) record(account holdfast.Account) (store.Record, error) {
	id := uuid(account.ID)
	grants, err := page(d, func(rows pgx.Rows) (*holdfast.Grant, error) {
		_, g, err := scanGrant(rows)
		return g, err
	}, selectAllGrants, id)
	return store.Record{
		Account: account, Grants: grants,
		Reservations: sequence(uuid{}, func(last uuid) ([]*holdfast.Reservation, uuid, error) {
			rows, err := page(d, func(rows pgx.Rows) (*holdfast.Reservation, error) {
				_, r, err := scanReservation(rows)
				return r, err
			}, selectAllReservations, id, last, int64(dumpPage))
			if len(rows) > 0 {
				last = uuid(rows[len(rows)-1].ID)
			}
			return rows, last, err
		}),
		Entries: sequence(0, func(last int64) ([]holdfast.Entry, int64, error) {
			rows, err := page(d, scanEntry, selectAllEntries, id, last, int64(dumpPage))
			if len(rows) > 0 {
				last = rows[len(rows)-1].No
			}
			return rows, last, err
		}),
	}, err
}

// By primary key.
const selectAllGrants = `SELECT ` + grantColumns + ` FROM holdfast.grants g WHERE g.account_id = $1::uuid ORDER BY g.grant_id`

// By primary key.
const selectAllReservations = `SELECT ` + reservationColumns + ` FROM holdfast.reservations r
	WHERE r.account_id = $1::uuid AND r.reservation_id > $2::uuid ORDER BY r.reservation_id LIMIT $3::bigint`

// By primary key.
const selectAllEntries = `SELECT ` + entryColumns + ` FROM holdfast.entries e
	WHERE e.account_id = $1::uuid AND e.entry_no > $2::bigint ORDER BY e.entry_no LIMIT $3::bigint`

// sequence reads page after page as it is ranged over, each behind the last place of the one before.
func sequence[T, Place any](first Place, next func(Place) ([]T, Place, error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for last := first; ; {
			rows, place, err := next(last)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, row := range rows {
				if !yield(row, nil) {
					return
				}
			}
			if len(rows) < dumpPage {
				return
			}
			last = place
		}
	}
}
