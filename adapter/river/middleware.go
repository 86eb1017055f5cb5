package river

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// Middleware works jobs under their reservations: riverqueue.Config{Middleware: []rivertype.Middleware{&river.Middleware{…}}}.
// Jobs without a reservation pass through it. Engine is needed.
type Middleware struct {
	riverqueue.MiddlewareDefaults

	Engine  engine.Submitter // an *engine.Engine, or a *client.Client
	Project string           // of an engine; over HTTP the API key says which
	Lease   time.Duration    // 0: holdfast.DefaultLease; heartbeats are a third of it apart
	// RescueAfter is RescueStuckJobsAfter of the River client; 0: an hour, as River has it. A reservation waits for that long
	// for a job whose worker is gone, where it may be held for so long; else it expires when nobody comes back.
	RescueAfter time.Duration
	// NextRetry says when River tries a failed job again; nil: River's default policy. Workers with a NextRetry of their own
	// need one here that asks them.
	NextRetry func(job *rivertype.JobRow) time.Time
	Logger    *slog.Logger // is told of what has gone wrong; nil: slog.Default
}

var _ rivertype.WorkerMiddleware = (*Middleware)(nil)

// actor is what the ledger names where River works.
const actor = "river"

const (
	rescueAfter = time.Hour        // River's default
	rescueEvery = time.Minute      // River looks twice as often, and then waits for the retry
	keepFor     = 30 * time.Second // bounds telling that a reservation is to live on
)

// errNotHeld is why a job is not tried again though River would.
var errNotHeld = errors.New("the reservation may not be held until the next attempt, so there is none")

type workKey struct{}

// Work is what the job of this context works under: its ID is the provider's idempotency key, the same for every attempt, and
// Charge and Use say what it came to. Nil: the job has no reservation.
func Work(ctx context.Context) *engine.Work {
	work, _ := ctx.Value(workKey{}).(*engine.Work)
	return work
}

// Work has one attempt worked: it starts the reservation, keeps its lease alive while doInner works, and tells the end.
func (m *Middleware) Work(ctx context.Context, job *rivertype.JobRow, doInner func(context.Context) error) error {
	reservation := Reservation(job)
	if reservation == "" {
		return doInner(ctx)
	}
	request := engine.Request{Project: m.Project, Reservation: reservation, Worker: workerOf(job), Lease: m.Lease, Actor: actor, Logger: m.log()}
	var work *engine.Work
	var v verdict
	var crash any
	_, err := engine.Run(ctx, m.Engine, request, func(working context.Context, w *engine.Work) error {
		work = w
		m.awaitRescue(working, job, w)
		var told error
		crash, told = m.call(context.WithValue(working, workKey{}, w), doInner)
		v = m.judge(job, attempt{err: told, crashed: crash != nil, outer: ctx, cause: context.Cause(working)})
		if v.again {
			return holdfast.Detached
		}
		return v.end
	})
	switch {
	case work == nil:
		return m.notBegun(err)
	case v.again && !m.keep(ctx, work, v):
		v.river = riverqueue.JobCancel(fmt.Errorf("%w: %w", errNotHeld, v.river))
	case !v.again:
		v.river = toRiver(v, err)
	}
	if crash != nil {
		panic(crash) // River and its error handlers are told of it as of any other
	}
	return v.river
}

// call calls the worker. A panic is kept, with its stack in the log, until the reservation is settled.
func (m *Middleware) call(ctx context.Context, doInner func(context.Context) error) (crash any, err error) {
	defer func() {
		if crash = recover(); crash != nil {
			m.log().Error("a river job panicked", "reservation", Work(ctx).ID, "panic", fmt.Sprint(crash), "stack", string(debug.Stack()))
		}
	}()
	return nil, doInner(ctx)
}

// attempt is how a worker has returned.
type attempt struct {
	err     error
	crashed bool
	outer   context.Context // River's
	cause   error           // of the end of the worker's own context; nil: it has not ended
}

// verdict is what becomes of a reservation after an attempt: it is kept for another one, or ended as engine.Run ends it.
type verdict struct {
	again bool
	at    time.Time // of the next attempt
	cause string    // of the release, should there be no next attempt after all
	river error     // what River is told then, which decides the same by itself

	end  error // what engine.Run is told: nil commits
	stop bool  // River would try again, and is not to
}

// judge says what becomes of the reservation. The order is that of River's own judgement.
func (m *Middleware) judge(job *rivertype.JobRow, a attempt) verdict {
	var told *engine.Release
	var snooze *rivertype.JobSnoozeError
	var cancel *rivertype.JobCancelError
	cancelled := errors.Is(a.cause, riverqueue.ErrJobCancelledRemotely)
	cause := holdfast.CauseFailed
	switch {
	case errors.As(a.err, &told) && told.Cause != "":
		cause = told.Cause
	case a.crashed:
		cause = holdfast.CauseCrashed
	case errors.As(a.err, &cancel), cancelled:
		cause = holdfast.CauseCancelled
	}
	end := func(why error) verdict {
		return verdict{end: &engine.Release{Cause: cause, Err: why}}
	}
	again := func(at time.Time) verdict {
		return verdict{again: true, at: at, cause: cause, river: a.err}
	}
	switch {
	case a.crashed && cancelled:
		return end(riverqueue.ErrJobCancelledRemotely)
	case a.crashed && job.Attempt >= job.MaxAttempts:
		return end(errors.New("the job panicked"))
	case a.crashed:
		return again(m.nextRetry(job))
	case a.err == nil, errors.Is(a.err, engine.ErrInDoubt), errors.Is(a.err, holdfast.Detached):
		return verdict{end: a.err}
	case cancelled:
		return end(errors.Join(riverqueue.ErrJobCancelledRemotely, a.err))
	case errors.Is(a.cause, engine.ErrCancelRequested) && (errors.Is(a.err, context.Canceled) || errors.Is(a.err, engine.ErrCancelRequested)):
		return verdict{end: a.err}
	case errors.As(a.err, &snooze):
		return again(time.Now().Add(snooze.Duration))
	case errors.As(a.err, &cancel):
		return end(a.err)
	case told != nil && !told.Retry:
		v := end(a.err)
		v.stop = true
		return v
	case errors.Is(a.outer.Err(), context.Canceled) && errors.Is(a.err, context.Canceled): // the client stops, and this does not count
		return again(time.Now())
	case job.Attempt >= job.MaxAttempts:
		return end(a.err)
	}
	return again(m.nextRetry(job))
}

// nextRetry is when River will try again. Zero of a worker's own means the default, as in River.
func (m *Middleware) nextRetry(job *rivertype.JobRow) time.Time {
	if m.NextRetry != nil {
		if at := m.NextRetry(job); !at.IsZero() {
			return at
		}
	}
	return (&riverqueue.DefaultClientRetryPolicy{}).NextRetry(job)
}

// keep lets the reservation live on until the next attempt has begun, and lets go of its lease. It reports false where it
// may not be held for so long: then it is released. What cannot be told now leaves it as it is: the next attempt will see.
func (m *Middleware) keep(ctx context.Context, work *engine.Work, v verdict) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepFor)
	defer cancel()
	r := &work.Reservation
	wait := min(max(time.Until(v.at), 0)+r.TTL, holdfast.MaxTTL)
	extended, err := m.tell(ctx, work, holdfast.Extend{ReservationID: r.ID, LeaseToken: work.LeaseToken, TTL: wait})
	if err == nil && !extended.Refused() && !extended.Reservation.ExpiresAt.After(v.at) {
		_, err = m.tell(ctx, work, holdfast.Release{ReservationID: r.ID, LeaseToken: work.LeaseToken, Cause: v.cause})
		m.note(work, err)
		return false
	}
	if err == nil && !extended.Refused() { // else somebody else has it, or it has ended
		_, err = m.tell(ctx, work, holdfast.Heartbeat{ReservationID: r.ID, LeaseToken: work.LeaseToken, Lease: holdfast.MinLease})
	}
	m.note(work, err)
	return true
}

func (m *Middleware) note(work *engine.Work, err error) {
	if err != nil {
		m.log().Warn("the reservation of a river job could not be told that its attempt is over", "reservation", work.ID, "error", err)
	}
}

// awaitRescue lets the reservation wait for River to find out that its worker is gone, where it may be held for so long.
func (m *Middleware) awaitRescue(ctx context.Context, job *rivertype.JobRow, work *engine.Work) {
	r := &work.Reservation
	after := m.RescueAfter
	if after == 0 {
		after = rescueAfter
	}
	again := m.nextRetry(job).Add(after + rescueEvery)
	if again.Before(r.ExpiresAt) || !again.Before(r.HeldUntil()) || job.Attempt >= job.MaxAttempts {
		return
	}
	_, err := m.tell(ctx, work, holdfast.Extend{ReservationID: r.ID, LeaseToken: work.LeaseToken, TTL: min(time.Until(again)+r.TTL, holdfast.MaxTTL)})
	if err != nil {
		m.log().Warn("the reservation of a river job could not be extended; if its worker is lost, it expires before River tries again", "reservation", work.ID, "error", err)
	}
}

func (m *Middleware) tell(ctx context.Context, work *engine.Work, do holdfast.Operation) (holdfast.Outcome, error) {
	account, _, err := holdfast.ReservationRef.Parse(work.ID)
	if err != nil {
		return holdfast.Outcome{}, err
	}
	return m.Engine.Submit(ctx, holdfast.Command{ID: engine.NewID(), Project: m.Project, Target: account, Actor: actor, Do: do})
}

// notBegun says what becomes of a job whose reservation could not be started: the worker was not called.
func (m *Middleware) notBegun(err error) error {
	var refused *engine.Refused
	if !errors.As(err, &refused) {
		return err // an accident: River tries again
	}
	r := refused.Outcome.Reservation
	switch {
	case refused.Outcome.Reason == holdfast.AlreadyEnded && r != nil && r.State == holdfast.Committed:
		return nil // an earlier attempt did it and River was not told
	case refused.Outcome.Reason == holdfast.AlreadyRunning && r != nil && !r.InDoubt:
		return riverqueue.JobSnooze(max(time.Until(r.LeaseExpiresAt)+time.Millisecond, time.Second)) // another attempt has it, or had
	}
	return riverqueue.JobCancel(err)
}

// toRiver says what River is told of a reservation that was ended, or was to be: err is what engine.Run has returned.
func toRiver(v verdict, err error) error {
	var refused *engine.Refused
	switch {
	case err == nil:
		return nil
	case v.stop, errors.Is(err, engine.ErrInDoubt), errors.Is(err, engine.ErrCancelRequested):
		return riverqueue.JobCancel(err)
	case v.end == nil && errors.As(err, &refused) && refused.Outcome.Reason != holdfast.StaleLease: // else it is another attempt's
		if r := refused.Outcome.Reservation; r != nil && r.State == holdfast.Committed {
			return nil // another attempt was faster
		}
		return riverqueue.JobCancel(err)
	}
	return err // of a last attempt, or of a commit that may come to its end with the next one
}

func workerOf(job *rivertype.JobRow) string {
	if n := len(job.AttemptedBy); n > 0 {
		return job.AttemptedBy[n-1][:min(len(job.AttemptedBy[n-1]), holdfast.MaxWorkerBytes)]
	}
	return actor
}

func (m *Middleware) log() *slog.Logger {
	if m.Logger != nil {
		return m.Logger
	}
	return slog.Default()
}
