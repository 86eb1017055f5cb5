package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/store"
)

// Tx makes a store's transaction of the caller's own, for engine.Join: what Save writes happens together with the caller's
// rows or not at all. The transaction must be on a database that Open has migrated.
//
// It is never ended here. Load sets a savepoint; Save releases it; a Save that fails, and Abort, roll back to it, so that
// the caller's own rows and the transaction survive a refusal or a conflict. The account stays locked until the caller
// ends the transaction. Settings are put back as they were. An isolation level above READ COMMITTED turns a wait for the
// account into a Conflict, after which the caller must begin anew.
func Tx(tx pgx.Tx) store.Tx {
	return &transaction{caller: &joined{tx: tx}}
}

// joined is a transaction of the caller's.
type joined struct{ tx pgx.Tx }

func (s *joined) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return s.tx.SendBatch(ctx, batch)
}

const (
	savepoint        = `SAVEPOINT holdfast`
	releaseSavepoint = `RELEASE SAVEPOINT holdfast`
	undoSavepoint    = `ROLLBACK TO SAVEPOINT holdfast`
)

func (s *joined) begin(p *pipeline, lockTimeout time.Duration) {
	if conn := s.tx.Conn(); conn != nil {
		register(conn.TypeMap())
	}
	p.then(savepoint)
	s.set(p, lockTimeout)
}

// SET LOCAL holds until the transaction ends, and this one goes on. So what was set is kept under names of our own, and
// put back.
const (
	keepSettings = `SELECT set_config('holdfast.lock_timeout', current_setting('lock_timeout'), true),
		set_config('holdfast.plan_cache_mode', current_setting('plan_cache_mode'), true),
		set_config('holdfast.enable_seqscan', current_setting('enable_seqscan'), true),
		set_config('holdfast.enable_hashjoin', current_setting('enable_hashjoin'), true),
		set_config('holdfast.enable_mergejoin', current_setting('enable_mergejoin'), true),
		set_config('holdfast.enable_sort', current_setting('enable_sort'), true),
		set_config('holdfast.jit', current_setting('jit'), true)`
	setWithin    = `SELECT set_config('lock_timeout', $1, true), ` + setPlans
	putBackAgain = `SELECT set_config('lock_timeout', current_setting('holdfast.lock_timeout'), true),
		set_config('plan_cache_mode', current_setting('holdfast.plan_cache_mode'), true),
		set_config('enable_seqscan', current_setting('holdfast.enable_seqscan'), true),
		set_config('enable_hashjoin', current_setting('holdfast.enable_hashjoin'), true),
		set_config('enable_mergejoin', current_setting('holdfast.enable_mergejoin'), true),
		set_config('enable_sort', current_setting('holdfast.enable_sort'), true),
		set_config('jit', current_setting('holdfast.jit'), true)`
)

func (s *joined) set(p *pipeline, lockTimeout time.Duration) {
	p.then(keepSettings)
	p.then(setWithin, milliseconds(lockTimeout))
}

func (s *joined) loaded(p *pipeline) { p.then(putBackAgain) }

func (s *joined) resume(p *pipeline, lockTimeout time.Duration) { s.set(p, lockTimeout) }

func (s *joined) write(p *pipeline) { s.set(p, defaultPatience) }

// commit commits nothing: that is the caller's.
func (s *joined) commit(p *pipeline) {
	p.then(putBackAgain)
	p.then(releaseSavepoint)
}

// interpret: whatever went wrong, nothing has happened yet, and it is for the caller to commit or not.
func (s *joined) interpret(op string, err error) error { return failed(op, err) }

func (s *joined) undo(ctx context.Context, _ error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endFor)
	defer cancel()
	for _, text := range []string{undoSavepoint, releaseSavepoint} {
		if _, err := s.tx.Exec(ctx, text); err != nil {
			return // the connection is gone, and the transaction with it
		}
	}
}

func (s *joined) release() {}
