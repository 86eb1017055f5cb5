package faultstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Store is what one process sees of the data in another store. It is safe for concurrent use.
type Store struct {
	inner   store.Store
	plan    Plan
	demands demands

	life context.Context // of the process: ends with Crash and Close
	kill context.CancelFunc

	mu    sync.Mutex
	ended *store.Error // what every call gets from then on; nil: the process lives
	open  map[*transaction]bool
	later []*transaction // in doubt: the database has them, and nobody waits for it
}

var _ store.Store = (*Store)(nil)

// Open makes a store that goes wrong as the plan says; a nil plan means only on demand. The inner store stays its owner's
// to close.
func Open(inner store.Store, plan Plan) *Store {
	s := &Store{inner: inner, plan: plan, open: map[*transaction]bool{}}
	s.life, s.kill = context.WithCancel(context.Background())
	return s
}

// Reopen is the next process on the same data, with the same plan.
func (s *Store) Reopen() *Store { return Open(s.inner, s.plan) }

// Before asks for faults of the next calls of the operation, before they are made: the first for the next call, the second
// for the one after it, and so on. A zero Fault lets a call be.
func (s *Store) Before(op Op, faults ...Fault) { s.demand(op, false, faults) }

// After asks for faults of the next calls of the operation that succeed, after they are made.
func (s *Store) After(op Op, faults ...Fault) { s.demand(op, true, faults) }

func (s *Store) demand(op Op, after bool, faults []Fault) {
	for _, fault := range faults {
		s.demands.add(demand{op, after, fault})
	}
}

// Crash is the death of the process: every call is refused with Fatal, those that are being made too, and the database
// forgets every transaction that was open, except for commits that were on their way. Reopen is what comes after.
func (s *Store) Crash() {
	s.end(&store.Error{Kind: store.Fatal, Err: errors.New("the process has died")})
}

// Close ends this process's use of the data in good order.
func (s *Store) Close() error {
	s.end(&store.Error{Kind: store.Unavailable, Err: errors.New("the store is closed")})
	return nil
}

func (s *Store) end(why *store.Error) {
	s.mu.Lock()
	if s.ended != nil {
		s.mu.Unlock()
		return
	}
	s.ended = why
	s.kill()
	var left []*transaction
	for tx := range s.open {
		left = append(left, tx)
	}
	s.mu.Unlock()
	for _, tx := range left {
		tx.lose()
	}
}

// Dead reports whether the process has died or closed the store.
func (s *Store) Dead() bool { return s.refusal("") != nil }

// refusal is the error of every call after the end.
func (s *Store) refusal(op Op) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended == nil {
		return nil
	}
	refused := *s.ended
	refused.Op = string(op)
	return &refused
}

// Unsettled is how many commits are on their way in the database.
func (s *Store) Unsettled() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.later)
}

// Settle lets the database finish the oldest commit that is on its way, or drop it. The error is the database's answer,
// which nobody hears.
func (s *Store) Settle(ctx context.Context, commit bool) error {
	s.mu.Lock()
	if len(s.later) == 0 {
		s.mu.Unlock()
		return nil
	}
	tx := s.later[0]
	s.later = s.later[1:]
	s.mu.Unlock()
	if !commit {
		return tx.inner.Abort(ctx)
	}
	return tx.inner.Save(ctx, tx.changes)
}

// before asks what happens to a call before it is made. An error means that it is not made.
func (s *Store) before(ctx context.Context, call Call) (Fault, error) {
	if err := s.refusal(call.Op); err != nil {
		return Fault{}, err
	}
	return s.ask(ctx, call)
}

func (s *Store) ask(ctx context.Context, call Call) (Fault, error) {
	fault, demanded := s.demands.take(call)
	if !demanded && s.plan != nil {
		fault = s.plan(ctx, call)
	}
	switch fault.Trouble {
	case Fail:
		return fault, trouble(call.Op, fault.Kind, "planted")
	case Stall:
		select {
		case <-fault.Until:
		case <-ctx.Done():
		case <-s.life.Done():
		}
	case Disconnect:
		kind := store.Unavailable
		if call.Op == Save {
			kind = store.InDoubt
		}
		return fault, trouble(call.Op, kind, "the connection was lost")
	case Crash:
		s.Crash()
	}
	return fault, s.refusal(call.Op) // it may have died while the plan was asked
}

func trouble(op Op, kind store.Kind, why string) error {
	return &store.Error{Kind: kind, Op: string(op), Err: errors.New(why)}
}

// alive is ctx that also ends with the process.
func (s *Store) alive(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.life, cancel)
	return ctx, func() { stop(); cancel() }
}

// around makes a call that belongs to no transaction.
func (s *Store) around(ctx context.Context, op Op, do func(context.Context) error) error {
	ctx, leave := s.alive(ctx)
	defer leave()
	call := Call{Op: op, Number: s.demands.number(op)}
	if _, err := s.before(ctx, call); err != nil {
		return err
	}
	if err := do(ctx); err != nil {
		return err
	}
	call.After = true
	_, err := s.ask(ctx, call)
	return err
}

// Traits are the inner store's.
func (s *Store) Traits() store.Traits { return s.inner.Traits() }

// Begin touches nothing and goes wrong only after a crash.
func (s *Store) Begin(ctx context.Context) (store.Tx, error) {
	if err := s.refusal("begin"); err != nil {
		return nil, err
	}
	inner, err := s.inner.Begin(ctx)
	if err != nil {
		return nil, err
	}
	tx := &transaction{store: s, inner: inner}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[tx] = true
	return tx, nil
}

// Scan may go wrong.
func (s *Store) Scan(ctx context.Context, due store.Due) (found []holdfast.AccountID, err error) {
	err = s.around(ctx, Scan, func(ctx context.Context) error {
		found, err = s.inner.Scan(ctx, due)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Read may go wrong.
func (s *Store) Read(ctx context.Context, query store.Query) (page store.Page, err error) {
	err = s.around(ctx, Read, func(ctx context.Context) error {
		page, err = s.inner.Read(ctx, query)
		return err
	})
	if err != nil {
		return store.Page{}, err
	}
	return page, nil
}

// ClaimableJobs, LostJobs, Payloads and Queues are scans too: hints, which may go wrong as one.

// ClaimableJobs may go wrong.
func (s *Store) ClaimableJobs(ctx context.Context, query store.JobQuery) ([]store.JobRef, error) {
	return scanned(ctx, s, func(ctx context.Context, jobs store.Jobs) ([]store.JobRef, error) {
		return jobs.ClaimableJobs(ctx, query)
	})
}

// LostJobs may go wrong.
func (s *Store) LostJobs(ctx context.Context, at time.Time, after store.JobRef, limit int) ([]store.JobRef, error) {
	return scanned(ctx, s, func(ctx context.Context, jobs store.Jobs) ([]store.JobRef, error) {
		return jobs.LostJobs(ctx, at, after, limit)
	})
}

// Payloads may go wrong.
func (s *Store) Payloads(ctx context.Context, of []store.JobRef) ([]string, error) {
	return scanned(ctx, s, func(ctx context.Context, jobs store.Jobs) ([]string, error) { return jobs.Payloads(ctx, of) })
}

// Queues may go wrong.
func (s *Store) Queues(ctx context.Context, at time.Time) ([]store.Queue, error) {
	return scanned(ctx, s, func(ctx context.Context, jobs store.Jobs) ([]store.Queue, error) { return jobs.Queues(ctx, at) })
}

func scanned[T any](ctx context.Context, s *Store, ask func(context.Context, store.Jobs) ([]T, error)) (found []T, err error) {
	jobs, ok := s.inner.(store.Jobs)
	if !ok {
		return nil, nil
	}
	err = s.around(ctx, Scan, func(ctx context.Context) error {
		found, err = ask(ctx, jobs)
		return err
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Dump goes wrong only after a crash: it serves whoever looks at the data and not the engine.
func (s *Store) Dump(ctx context.Context, visit func(store.Record) error) error {
	if err := s.refusal("dump"); err != nil {
		return err
	}
	return s.inner.Dump(ctx, visit)
}

// transaction is one of the inner store, or, after its locks were lost, two: one that loaded and one that saves.
type transaction struct {
	store *Store

	mu      sync.Mutex // held while the inner store works, so that a crash waits for it
	inner   store.Tx
	wants   []store.Want
	changes []holdfast.Changes // of a commit that is on its way
	lock    bool               // false once it was lost
	over    bool
}

// Load may go wrong. The fault after it may be the loss of its locks.
func (tx *transaction) Load(ctx context.Context, wants []store.Want) ([]*holdfast.State, error) {
	ctx, leave := tx.store.alive(ctx)
	defer leave()
	call := Call{Op: Load, Number: tx.store.demands.number(Load)}
	if _, err := tx.store.before(ctx, call); err != nil {
		tx.lose()
		return nil, err
	}
	tx.mu.Lock()
	states, err := tx.inner.Load(ctx, wants)
	tx.wants, tx.lock = wants, true
	tx.mu.Unlock()
	if dead := tx.store.refusal(Load); dead != nil {
		tx.lose()
		return nil, dead
	}
	if err != nil {
		return nil, err
	}
	call.After = true
	fault, err := tx.store.ask(ctx, call)
	switch {
	case err != nil:
		tx.lose()
		return nil, err
	case fault.Trouble == LoseLock:
		tx.unlock()
	}
	return states, nil
}

// unlock gives the locks back and keeps the transaction, as far as its owner can tell.
func (tx *transaction) unlock() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	if !tx.over {
		tx.lock = false
		_ = tx.inner.Abort(context.Background())
	}
}

// Save may go wrong, and may have saved when it says so.
func (tx *transaction) Save(ctx context.Context, changes []holdfast.Changes) error {
	ctx, leave := tx.store.alive(ctx)
	defer leave()
	call := Call{Op: Save, Number: tx.store.demands.number(Save)}
	fault, err := tx.store.before(ctx, call)
	if err != nil {
		tx.lose()
		return err
	}
	tx.mu.Lock()
	err = tx.save(ctx, fault, changes)
	tx.mu.Unlock()
	if err != nil {
		return err
	}
	call.After = true
	_, err = tx.store.ask(ctx, call)
	return err
}

func (tx *transaction) save(ctx context.Context, fault Fault, changes []holdfast.Changes) error {
	if tx.over {
		return tx.inner.Save(ctx, changes) // the inner store knows what to say of it
	}
	tx.finish()
	if !tx.lock && tx.wants != nil {
		again, err := tx.store.inner.Begin(ctx)
		if err != nil {
			return err
		}
		if _, err := again.Load(ctx, tx.wants); err != nil {
			_ = again.Abort(context.Background())
			return err
		}
		tx.inner = again
	}
	if fault.Trouble == CommitLater {
		tx.changes = changes
		tx.store.mu.Lock()
		tx.store.later = append(tx.store.later, tx)
		tx.store.mu.Unlock()
		return trouble(Save, store.InDoubt, "the connection was lost with the commit on its way")
	}
	return tx.inner.Save(ctx, changes)
}

// Abort ends the transaction. It never goes wrong: a process that cannot abort is one that died.
func (tx *transaction) Abort(context.Context) error {
	tx.lose()
	return nil
}

// lose ends the transaction with nothing written. After a save it does nothing, and a commit on its way goes on.
func (tx *transaction) lose() {
	tx.mu.Lock()
	defer tx.mu.Unlock()
	tx.finish()
	if tx.changes == nil {
		_ = tx.inner.Abort(context.Background()) // the locks go whatever it answers
	}
}

func (tx *transaction) finish() {
	tx.over = true
	tx.store.mu.Lock()
	defer tx.store.mu.Unlock()
	delete(tx.store.open, tx)
}
