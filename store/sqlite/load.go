package sqlite

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// transaction is one pass through the writer. Until Load it holds nothing; from Load to its end it holds the writer.
type transaction struct {
	db     *DB
	conn   *connection                 // nil before Load and after the end
	wanted map[holdfast.AccountID]bool // what was loaded, and whether Save may insert it
	begun  bool                        // Load was called
}

// Begin touches nothing: SQLite's lock is taken by Load.
func (db *DB) Begin(context.Context) (store.Tx, error) { return &transaction{db: db}, nil }

// Load takes the write lock first and reads afterwards, so that no snapshot is older than the lock. One lock covers the
// whole file, and the order of accounts does not matter.
func (tx *transaction) Load(ctx context.Context, wants []store.Want) ([]*holdfast.State, error) {
	const op = "load accounts"
	if tx.begun {
		return nil, misuse(op, "a transaction loads once")
	}
	tx.begun = true
	c, err := tx.db.takeWriter(ctx, op)
	if err != nil {
		return nil, err
	}
	// Only this wait heeds the caller's context: what follows takes microseconds.
	if _, err := c.exec(ctx, beginImmediate); err != nil {
		tx.db.discard(c)
		return nil, failed(op, err)
	}
	states := make([]*holdfast.State, len(wants))
	tx.wanted = make(map[holdfast.AccountID]bool, len(wants))
	for i := range wants {
		if states[i], err = load(c, &wants[i]); err != nil {
			tx.db.rollback(c)
			return nil, failed(op, err)
		}
		tx.wanted[wants[i].Account] = wants[i].Create
	}
	tx.conn = c
	return states, nil
}

// BEGIN IMMEDIATE and not BEGIN: a transaction that begins by reading could find, when it comes to write, that its
// snapshot is old (SQLITE_BUSY_SNAPSHOT), with all its decisions in vain.
const beginImmediate = `BEGIN IMMEDIATE`

func misuse(op, rule string) error {
	return &store.Error{Kind: store.Rejected, Op: op, Err: errors.New(rule)}
}

// uninterrupted is for statements that nobody should wait less for: they do not wait, and a half-done one helps nobody.
var uninterrupted = context.Background()

// load reads one account's state.
func load(c *connection, want *store.Want) (*holdfast.State, error) {
	account, found, err := loadAccount(uninterrupted, c, want.Account)
	if err != nil {
		return nil, err
	}
	if !found {
		if want.Name != "" {
			return holdfast.NewState(want.Project, want.Name), nil
		}
		return &holdfast.State{Account: holdfast.Account{ID: want.Account}}, nil
	}
	l := &loading{c: c, state: &holdfast.State{Account: account}}
	return l.state, errors.Join(l.openGrants(uninterrupted), l.named(want.Reservations), l.overdue(want), l.answers(want.Keys), l.payments(want.Payments), l.arrange())
}

func loadAccount(ctx context.Context, c *connection, id holdfast.AccountID) (account holdfast.Account, found bool, err error) {
	err = c.query(ctx, selectAccount, func(r *row) error {
		account, found = readAccount(r), true
		return nil
	}, id[:])
	return account, found, err
}

// By primary key.
const selectAccount = `SELECT ` + accountColumns + ` FROM accounts WHERE account_id = ?`

// loading is a state being filled.
type loading struct {
	c     *connection
	state *holdfast.State
}

func (l *loading) id() []byte { return l.state.Account.ID[:] }

func (l *loading) openGrants(ctx context.Context) error {
	return l.c.query(ctx, selectOpenGrants, func(r *row) error {
		l.state.Grants = append(l.state.Grants, readGrant(r))
		return nil
	}, l.id())
}

// By the partial index open_grants: closed grants are not even looked at.
const selectOpenGrants = `SELECT ` + grantColumns + ` FROM grants WHERE account_id = ? AND open = 1`

func (l *loading) named(ids []holdfast.ID) error {
	for _, id := range ids {
		if _, known := l.state.Reservation(id); known {
			continue // named twice, by two commands
		}
		if err := l.c.query(uninterrupted, selectReservation, l.add, l.id(), id[:]); err != nil {
			return err
		}
	}
	return nil
}

func (l *loading) add(r *row) error {
	l.state.Reservations = append(l.state.Reservations, readReservation(r))
	return nil
}

// By primary key.
const selectReservation = `SELECT ` + reservationColumns + ` FROM reservations WHERE account_id = ? AND reservation_id = ?`

// overdue loads what the sweeper could expire. One more than the bound is asked for, to know whether there are more.
func (l *loading) overdue(want *store.Want) error {
	if want.OverdueAt.IsZero() {
		return nil
	}
	at := want.OverdueAt
	if l.state.Account.DecidedAt.After(at) {
		at = l.state.Account.DecidedAt
	}
	seen := 0
	return l.c.query(uninterrupted, selectOverdue, func(r *row) error {
		if seen++; seen > holdfast.MaxOverdue {
			l.state.MoreOverdue = true
			return nil
		}
		found := readReservation(r)
		if _, known := l.state.Reservation(found.ID); !known {
			l.state.Reservations = append(l.state.Reservations, found)
		}
		return nil
	}, l.id(), at.UnixMicro(), int64(holdfast.MaxOverdue+1))
}

// By the partial index live_reservations, in its order: a range from the longest overdue on, without sorting. An interval
// is [start, end), so that expires_at itself is overdue.
const selectOverdue = `SELECT ` + reservationColumns + ` FROM reservations
	WHERE account_id = ? AND ended_at IS NULL AND expires_at <= ?
	ORDER BY expires_at, reservation_id LIMIT ?`

func (l *loading) answers(keys []string) error {
	for _, key := range keys {
		if _, known := l.state.Answer(key); known {
			continue
		}
		err := l.c.query(uninterrupted, selectAnswer, func(r *row) error {
			l.state.Answers = append(l.state.Answers, readAnswer(r))
			return nil
		}, l.id(), key)
		if err != nil {
			return err
		}
	}
	return nil
}

// By primary key.
const selectAnswer = `SELECT ` + answerColumns + ` FROM answers WHERE account_id = ? AND key = ?`

// payments loads them with the grants that they bought and that are not open any more.
func (l *loading) payments(ids []holdfast.ID) error {
	for _, id := range ids {
		if _, known := l.state.Payment(id); known {
			continue
		}
		err := l.c.query(uninterrupted, selectPayment, func(r *row) error {
			paid := &holdfast.Payment{}
			r.packed(func(text string) error { return store.UnpackPayment(text, paid) })
			l.state.Payments = append(l.state.Payments, paid)
			return nil
		}, l.id(), id[:])
		if err != nil {
			return err
		}
		err = l.c.query(uninterrupted, selectBought, func(r *row) error {
			l.state.Grants = append(l.state.Grants, readGrant(r))
			return nil
		}, l.id(), id[:])
		if err != nil {
			return err
		}
	}
	return nil
}

// By primary key.
const selectPayment = `SELECT record FROM payments WHERE account_id = ? AND payment_id = ?`

// By the partial index bought_grants.
const selectBought = `SELECT ` + grantColumns + ` FROM grants WHERE account_id = ? AND payment = ? AND open = 0`

// arrange adds the grants that loaded reservations took from and that are not open any more, and puts all in order.
func (l *loading) arrange() error {
	for _, r := range l.state.Reservations {
		for _, a := range r.Allocations {
			if _, known := l.state.Grant(a.Grant); known {
				continue
			}
			err := l.c.query(uninterrupted, selectGrant, func(r *row) error {
				l.state.Grants = append(l.state.Grants, readGrant(r))
				return nil
			}, l.id(), a.Grant[:])
			if err != nil {
				return err
			}
		}
	}
	slices.SortFunc(l.state.Grants, func(a, b *holdfast.Grant) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return nil
}

// By primary key.
const selectGrant = `SELECT ` + grantColumns + ` FROM grants WHERE account_id = ? AND grant_id = ?`

// Abort gives the writer back with nothing written.
func (tx *transaction) Abort(context.Context) error {
	tx.begun = true
	if c := tx.end(); c != nil {
		tx.db.rollback(c)
	}
	return nil
}

// end takes the connection out of the transaction: whoever ends it gives the writer back once.
func (tx *transaction) end() *connection {
	c := tx.conn
	tx.conn = nil
	return c
}

// rollback gives the writer back with its transaction undone. A connection that cannot even do that is thrown away, and
// SQLite undoes the transaction as it closes.
func (db *DB) rollback(c *connection) {
	if _, err := c.exec(uninterrupted, rollback); err != nil {
		db.discard(c)
		return
	}
	db.giveWriter(c)
}

const rollback = `ROLLBACK`

// discard closes a connection in an unknown state; the next transaction opens another.
func (db *DB) discard(c *connection) {
	_ = c.close() // nothing of it is used again, and what was wrong has been told
	db.giveWriter(nil)
}
