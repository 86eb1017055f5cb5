package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// transaction is one Load and one Save. Until Load it holds nothing; from Load to its end it holds the session.
type transaction struct {
	db      *DB                         // nil where the transaction is the caller's
	caller  *joined                     // nil where it is our own
	session session                     // nil before Load and after the end
	begun   bool                        // Load was called
	wanted  map[holdfast.AccountID]bool // what was loaded, and whether Save may insert it
	made    []holdfast.AccountID        // what Load has made in order to lock it
	places  places                      // where what was loaded is stored

	unanswered map[answerKey]bool // wanted keys under which nothing is recorded
}

// session is where a transaction takes place: a connection of the pool, or a transaction of the caller's.
type session interface {
	sender
	// begin adds what comes before Load's first statement, and loaded what comes behind its last.
	begin(p *pipeline, lockTimeout time.Duration)
	loaded(p *pipeline)
	// resume adds what comes before a further statement of Load.
	resume(p *pipeline, lockTimeout time.Duration)
	// write adds what comes before Save's first statement, and commit what comes behind its last.
	write(p *pipeline)
	commit(p *pipeline)
	// interpret makes a store's error of a Save that failed.
	interpret(op string, err error) error
	// undo ends the transaction with nothing written, because of an error where there is one, and release with all of it.
	undo(ctx context.Context, why error)
	release()
}

// Begin touches nothing: locks are taken by Load.
func (db *DB) Begin(context.Context) (store.Tx, error) {
	if db.options.Trace {
		return &traced{Tx: &transaction{db: db}}, nil
	}
	return &transaction{db: db}, nil
}

// enter takes the session, where it is not the caller's.
func (tx *transaction) enter(ctx context.Context, op string) error {
	if tx.caller != nil {
		tx.session = tx.caller
		return nil
	}
	if tx.db.options.ReadOnly {
		return &store.Error{Kind: store.Unavailable, Op: op, Hint: "open it for writing", Err: errReadOnly}
	}
	conn, err := tx.db.acquire(ctx, op)
	if err != nil {
		return err
	}
	tx.session = &pooled{conn: conn}
	return nil
}

// end takes the session out of the transaction: whoever ends it gives it back once.
func (tx *transaction) end() session {
	s := tx.session
	tx.session = nil
	return s
}

// Abort ends the transaction with nothing written.
func (tx *transaction) Abort(ctx context.Context) error {
	tx.begun = true
	if s := tx.end(); s != nil {
		s.undo(ctx, nil)
	}
	return nil
}

// What a transaction sets for itself ends with it. lock_timeout bounds every single wait for a lock.
//
// Plans: a plan that was made while a table was tiny reads it from end to end, and stays. Every statement here reads few
// rows of known keys, so that the way over the index is right at any size; with the other ways shut, one plan is made per
// statement and connection, and it is that one.
//
// Of two indexes that begin with the account, the planner takes a small one of what is under way for dear, once a lot has
// come and gone in it, and reads the history by the primary key instead. Where a statement asks for the order of the small
// one, and sorting is shut too, only that one is left. What must be sorted all the same then seems so dear that the server would
// compile it anew each time, a quarter of a second for a page: no statement here is worth that.
const setPlans = `set_config('plan_cache_mode', 'force_generic_plan', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
	set_config('enable_sort', 'off', true), set_config('jit', 'off', true)`

// idle_in_transaction_session_timeout lets the locks go of a process that was cut off or stopped between Load and Save.
const setLocal = `SELECT set_config('lock_timeout', $1, true), set_config('idle_in_transaction_session_timeout', '15s', true), ` + setPlans

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(1, d.Milliseconds()), 10) + "ms" // 0 would be no bound at all
}

const setLockTimeout = `SELECT set_config('lock_timeout', $1, true)`

// pooled is a transaction of our own on a connection of the pool.
type pooled struct {
	conn *pgxpool.Conn
}

func (s *pooled) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return s.conn.SendBatch(ctx, batch)
}

const (
	begin    = `BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE`
	commit   = `COMMIT`
	rollback = `ROLLBACK`
)

func (s *pooled) begin(p *pipeline, lockTimeout time.Duration) {
	p.then(begin)
	p.then(setLocal, milliseconds(lockTimeout))
}

func (s *pooled) loaded(*pipeline) {}

func (s *pooled) resume(*pipeline, time.Duration) {} // what was set holds to the end

func (s *pooled) write(*pipeline) { committing(s.conn.Conn().PgConn(), true) }

func (s *pooled) commit(p *pipeline) {
	p.then(commit).ended = func(tag string) error {
		if tag != commit {
			return &meaning{kind: store.Conflict, rule: errRolledBack}
		}
		return nil
	}
}

func (s *pooled) interpret(op string, err error) error {
	conn := s.conn.Conn().PgConn()
	return notCommitted(op, err, !conn.IsClosed() && !conn.IsBusy() && conn.TxStatus() != idle)
}

// idle is the state of a session without a transaction.
const idle = 'I'

// endFor bounds a ROLLBACK. Where it takes longer, the connection is thrown away, and the server undoes the transaction.
const endFor = 5 * time.Second

func (s *pooled) undo(ctx context.Context, why error) {
	if !s.conn.Conn().IsClosed() && s.conn.Conn().PgConn().TxStatus() != idle {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endFor)
		defer cancel()
		_, _ = s.conn.Exec(ctx, rollback) // if not, the pool throws the connection away, since it is in a transaction
	}
	committing(s.conn.Conn().PgConn(), false)
	_ = giveBack(s.conn, why)
}

func (s *pooled) release() {
	committing(s.conn.Conn().PgConn(), false)
	s.conn.Release()
}
