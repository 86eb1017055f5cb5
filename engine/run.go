package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Submitter is the one door behind which commands are decided: an *Engine in this process, or a client.Client that asks a
// server. What is written for the one works with the other.
type Submitter interface {
	// Submit has a command decided, and returns what came of it. A refusal is an outcome; every error is an *Error, and
	// tells whether anything can have happened.
	Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error)
}

// Request is a piece of work for Run.
type Request struct {
	Project string // of an engine; over HTTP the API key says which
	Account string
	Key     string // required: the same intention has the same key
	Reserve holdfast.Reserve

	// Reservation is the public id, rsv_…, of what was reserved elsewhere, for example by the web server that handed the
	// work over. Then nothing is reserved: the work is started, and Account, Key and Reserve are not looked at.
	Reservation string

	Worker string
	Lease  time.Duration // 0: holdfast.DefaultLease; kept alive by heartbeats
	Actor  string        // written into the ledger; empty: run. Over HTTP it is the API key
	Logger *slog.Logger  // is told of a crash that could not be settled; nil: the engine's, else slog.Default
}

// Work is what the function given to Run works under.
type Work struct {
	// ID is the reservation's public id. Give it to the provider as its idempotency key, so that a provider asked twice
	// works once.
	ID          string
	Reservation holdfast.Reservation // as it was when the work began
	LeaseToken  string

	amount *holdfast.Amount
	usage  map[string]holdfast.Amount
}

// Charge sets what the work came to, in the reservation's unit. The last call of Charge or Use counts. Without one, all
// that was reserved is charged; a price by usage needs one.
func (w *Work) Charge(amount holdfast.Amount) { w.amount, w.usage = &amount, nil }

// Use sets what the work has used of each kind, in all so far: running totals are not added up. The server prices it at the
// rates that were reserved. The last call of Charge or Use counts; of a fixed price usage is only recorded.
func (w *Work) Use(usage map[string]holdfast.Amount) { w.amount, w.usage = nil, usage }

// figure reports whether the work named what it came to.
func (w *Work) figure() bool {
	return w.amount != nil || w.usage != nil && w.Reservation.Price.ByUsage()
}

// Refused is a refusal as an error, for callers that want one.
type Refused struct{ Outcome holdfast.Outcome }

// Error is the reason.
func (r *Refused) Error() string {
	text := "refused: " + string(r.Outcome.Reason)
	for _, problem := range r.Outcome.Problems {
		text += "; " + problem.Field + ": " + problem.Hint
	}
	return text
}

// The causes with which the work's context ends before its time, besides those of the caller's context.
var (
	// ErrLeaseLost: the reservation is no longer the work's own. Stop; nothing can be charged any more.
	ErrLeaseLost = errors.New("the lease was lost: the reservation ended or was given to another worker")
	// ErrCancelRequested: the person asked the work to stop. Name with Charge or Use what was used until now, and return.
	ErrCancelRequested = errors.New("the work was asked to stop")
)

// ErrInDoubt is what work returns, alone or wrapped, when it does not know whether its provider has worked: the connection
// broke after the request had been sent. Nothing is released and nothing charged; whoever learns how it ended settles it,
// and if nobody does, the feature's policy decides at the reservation's expiry.
var ErrInDoubt = errors.New("nobody knows whether the work happened")

// Release is what work returns, alone or wrapped, to say how its reservation is released.
type Release struct {
	Cause string // empty: failed
	Retry bool   // of a job: give it back for another attempt
	Err   error  // why; may be nil
}

// Error tells the cause.
func (r *Release) Error() string {
	if r.Err == nil {
		return r.Cause
	}
	return r.Cause + ": " + r.Err.Error()
}

// Unwrap returns why.
func (r *Release) Unwrap() error { return r.Err }

// settleFor bounds how long Run tries to tell the end of a piece of work, and how long it tries to begin one.
const settleFor = 30 * time.Second

// Run does a piece of work exactly once: it reserves, starts, calls work while it keeps the lease alive, and commits
// when work returns nil. Where work returns an error, panics or leaves by runtime.Goexit, everything is released before the error or
// the panic goes on. A cancelled ctx cancels work's context; the end is told under a context of its own.
//
// Where the person asks running work to stop, work's context ends with the cause ErrCancelRequested. What it then named by
// Charge or Use is charged, at most what is reserved, if it returns nil or the context's error; where it named nothing,
// everything is released, and the error is ErrCancelRequested.
//
// Work that returns ErrInDoubt leaves the reservation in doubt. holdfast.Detached leaves it live: a background worker has
// taken it over, with the token of Work, and Run returns a nil error. A refusal, also that the key's work was done or is
// being done already, is returned as *Refused, and work is not called.
//
// Where the work was done and the end could not be told, the error says so; the reservation then ends at its expiry, and nothing is charged twice.
func (e *Engine) Run(ctx context.Context, request Request, work func(ctx context.Context, w *Work) error) (holdfast.Outcome, error) {
	return Run(ctx, e, request, work)
}

// Run is Engine.Run over whatever decides commands.
func Run(ctx context.Context, to Submitter, request Request, work func(ctx context.Context, w *Work) error) (holdfast.Outcome, error) {
	r := newRun(to, request)
	if outcome, err := r.begin(ctx); err != nil {
		return outcome, err
	}
	return r.do(ctx, work)
}

// Resume is Run for work that was started already: with a job that was claimed. Of the request only Project, Lease, Actor and
// Logger are looked at.
func Resume(ctx context.Context, to Submitter, request Request, claimed Claimed, work func(ctx context.Context, w *Work) error) (holdfast.Outcome, error) {
	r := newRun(to, request)
	r.account = claimed.Outcome.Owner.ID
	r.hold(claimed.Outcome)
	return r.do(ctx, work)
}

// do calls work on what was started, and tells its end.
func (r *run) do(ctx context.Context, work func(ctx context.Context, w *Work) error) (outcome holdfast.Outcome, err error) {
	working, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	beating, rest := r.beat(context.WithoutCancel(ctx), stop)
	returned := false
	defer func() {
		if returned {
			return
		}
		stop(nil) // work panicked or called runtime.Goexit: release, and let it go on
		rest()
		<-beating
		if _, lost := r.release(ctx, holdfast.CauseCrashed); unlessRefused(lost) != nil {
			r.log.Error("work crashed and could not be released; it will expire", "reservation", r.work.ID, "error", lost)
		}
	}()
	workErr := work(working, &r.work)
	returned = true
	stop(nil)
	rest()
	<-beating
	return r.end(ctx, workErr)
}

// run is one piece of work on its way.
type run struct {
	to      Submitter
	request Request
	log     *slog.Logger
	closed  func() bool // reports that commands are not taken any more

	account holdfast.AccountID // zero until it is known
	work    Work
	started holdfast.Outcome
	latest  *holdfast.Reservation // as the last heartbeat showed it; read when the heartbeats have stopped
}

func newRun(to Submitter, request Request) *run {
	r := &run{to: to, request: request, log: request.Logger, closed: func() bool { return false }}
	if r.request.Actor == "" {
		r.request.Actor = "run"
	}
	if e, ok := to.(*Engine); ok {
		r.closed = e.queue.isClosed
		if r.log == nil {
			r.log = e.log
		}
	}
	if r.log == nil {
		r.log = slog.Default()
	}
	return r
}

// begin reserves and starts. With an error nothing of it is left, as far as can be told.
func (r *run) begin(ctx context.Context) (holdfast.Outcome, error) {
	others := true // may have it: then it is not ours to release
	if r.request.Reservation != "" {
		account, id, err := holdfast.ReservationRef.Parse(r.request.Reservation)
		if err != nil {
			refused := holdfast.Outcome{Reason: holdfast.NotFound}
			return refused, &Refused{refused}
		}
		r.account, r.work.Reservation.ID = account, id
	} else {
		reserved, err := r.reserve(ctx)
		if err != nil {
			return reserved, err
		}
		others = reserved.Replayed
	}
	started, err := r.verb(ctx, holdfast.Start{
		ReservationID: r.work.Reservation.ID, Worker: r.request.Worker, Lease: r.request.Lease,
		Token: rand.Text(), // the same however often it is sent, so that its own success is not taken for another worker's
	})
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		return started, err // ended before, or another worker has it
	case err != nil && others:
		return started, err
	case err != nil:
		_, lost := r.release(ctx, holdfast.CauseCancelled) // refused if the start was saved after all; it then expires
		return started, errors.Join(err, unlessRefused(lost))
	}
	r.hold(started)
	return started, nil
}

// hold keeps what a start gave.
func (r *run) hold(started holdfast.Outcome) {
	r.started = started
	r.work.Reservation, r.work.LeaseToken = *started.Reservation, started.Lease.Token
	r.work.ID = holdfast.ReservationRef.Encode(started.Owner.ID, started.Reservation.ID)
}

func (r *run) reserve(ctx context.Context) (holdfast.Outcome, error) {
	command := holdfast.Command{
		ID: NewID(), Project: r.request.Project, Account: r.request.Account, Key: r.request.Key, Actor: r.request.Actor, Do: r.request.Reserve,
	}
	reserved, err := r.submit(ctx, command)
	if err != nil {
		return reserved, errors.Join(err, r.undo(ctx, command, err))
	}
	r.reserved(&reserved)
	return reserved, nil
}

func (r *run) reserved(outcome *holdfast.Outcome) {
	r.account, r.work.Reservation = outcome.Owner.ID, *outcome.Reservation
}

// undo ends a reservation that the caller left while it was being made: the same key tells what became of it.
func (r *run) undo(ctx context.Context, reserve holdfast.Command, err error) error {
	var accident *Error
	if !errors.As(err, &accident) || !accident.MayHaveHappened() {
		return nil
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	outcome, err := r.submit(settling, reserve)
	if err != nil || outcome.Replayed { // another delivery made it, and may be at work on it
		return unlessRefused(err)
	}
	r.reserved(&outcome)
	_, err = r.release(ctx, holdfast.CauseCancelled)
	return unlessRefused(err)
}

// beat starts the heartbeats. What it returns second stops them, and then the channel is closed.
func (r *run) beat(ctx context.Context, stop context.CancelCauseFunc) (<-chan struct{}, context.CancelFunc) {
	ctx, rest := context.WithCancel(ctx)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		r.heartbeats(ctx, stop)
	}()
	return beating, rest
}

// heartbeats move the lease three times in its length, until work has returned: also while it winds up. They end work's
// context when the lease is lost, and when the person asked it to stop.
func (r *run) heartbeats(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(orDefault(r.request.Lease, holdfast.DefaultLease) / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		outcome, err := r.heartbeat(ctx)
		var refused *Refused
		switch {
		case errors.As(err, &refused):
			stop(ErrLeaseLost)
			return
		case err == nil:
			if r.latest = outcome.Reservation; askedToStop(r.latest) {
				stop(ErrCancelRequested) // the first cause stays
			}
		}
	}
}

func askedToStop(reservation *holdfast.Reservation) bool {
	return reservation != nil && !reservation.CancelRequestedAt.IsZero()
}

// end tells how the work ended.
func (r *run) end(ctx context.Context, workErr error) (holdfast.Outcome, error) {
	asked := askedToStop(r.latest)
	stopped := asked && (workErr == nil || errors.Is(workErr, ErrCancelRequested) || errors.Is(workErr, context.Canceled))
	if stopped && !errors.Is(workErr, ErrCancelRequested) && (workErr != nil || !r.work.figure()) {
		workErr = errors.Join(ErrCancelRequested, workErr)
	}
	switch {
	case errors.Is(workErr, holdfast.Detached):
		return r.started, nil
	case errors.Is(workErr, ErrInDoubt):
		marked, lost := r.verbAtTheEnd(ctx, holdfast.InDoubt{ReservationID: r.work.Reservation.ID, LeaseToken: r.work.LeaseToken})
		return both(marked, workErr, "the mark", lost)
	case stopped && r.work.figure():
		committed, lost := r.commit(ctx)
		return both(committed, workErr, "the commit", lost)
	case workErr == nil:
		return r.commit(ctx)
	}
	release := holdfast.Release{ReservationID: r.work.Reservation.ID, LeaseToken: r.work.LeaseToken, Cause: holdfast.CauseFailed}
	var told *Release
	switch {
	case stopped:
		release.Cause = holdfast.CauseCancelled
	case errors.As(workErr, &told):
		release.Cause, release.Retry = told.Cause, told.Retry
	case ctx.Err() != nil:
		release.Cause = holdfast.CauseCancelled
	}
	released, lost := r.verbAtTheEnd(ctx, release)
	return both(released, workErr, "the release", lost)
}

// both joins the error of the work with what kept its end from being told.
func both(outcome holdfast.Outcome, workErr error, telling string, lost error) (holdfast.Outcome, error) {
	switch {
	case lost == nil:
		return outcome, workErr
	case workErr == nil:
		return outcome, lost
	}
	return outcome, fmt.Errorf("%w; and %s: %w", workErr, telling, lost)
}

// commit charges what the work named. Where the request makes no sense, as where a price by usage got no usage, nothing
// can be charged, and everything is released.
func (r *run) commit(ctx context.Context) (holdfast.Outcome, error) {
	op := holdfast.Commit{ReservationID: r.work.Reservation.ID, LeaseToken: r.work.LeaseToken, Amount: r.work.amount, Usage: r.work.usage}
	if asked := r.latest; askedToStop(asked) {
		op.Amount = atMost(op.Amount, asked.Reserved)
	}
	outcome, err := r.verbAtTheEnd(ctx, op)
	if !refusedAsInvalid(err) {
		return outcome, err
	}
	if late, told := r.figureOfLateRequest(ctx); told {
		op.Amount, op.Usage = late, nil
		if outcome, err = r.verbAtTheEnd(ctx, op); !refusedAsInvalid(err) {
			return outcome, err
		}
	}
	_, lost := r.release(ctx, holdfast.CauseFailed)
	return both(outcome, err, "the release", lost)
}

// figureOfLateRequest is what to charge where the person asked the work to stop and no heartbeat told it so before it was
// done: what it named, or, of a fixed price, all that is reserved.
func (r *run) figureOfLateRequest(ctx context.Context) (figure *holdfast.Amount, told bool) {
	if askedToStop(r.latest) || r.work.amount == nil && r.work.Reservation.Price.ByUsage() {
		return nil, false
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	beat, err := r.heartbeat(settling)
	if err != nil || !askedToStop(beat.Reservation) {
		return nil, false
	}
	whole := beat.Reservation.Reserved
	if r.work.amount == nil {
		return &whole, true
	}
	return atMost(r.work.amount, whole), true
}

func atMost(figure *holdfast.Amount, most holdfast.Amount) *holdfast.Amount {
	if figure == nil {
		return nil
	}
	capped := min(*figure, most)
	return &capped
}

func refusedAsInvalid(err error) bool {
	var refused *Refused
	return errors.As(err, &refused) && refused.Outcome.Reason == holdfast.Invalid
}

func (r *run) release(ctx context.Context, cause string) (holdfast.Outcome, error) {
	return r.verbAtTheEnd(ctx, holdfast.Release{ReservationID: r.work.Reservation.ID, LeaseToken: r.work.LeaseToken, Cause: cause})
}

func (r *run) heartbeat(ctx context.Context) (holdfast.Outcome, error) {
	return r.verb(ctx, holdfast.Heartbeat{ReservationID: r.work.Reservation.ID, LeaseToken: r.work.LeaseToken, Lease: r.request.Lease})
}

// verbAtTheEnd tells an end under a context that outlives the caller's.
func (r *run) verbAtTheEnd(ctx context.Context, do holdfast.Operation) (holdfast.Outcome, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	return r.verb(ctx, do)
}

func (r *run) verb(ctx context.Context, do holdfast.Operation) (holdfast.Outcome, error) {
	return r.submit(ctx, holdfast.Command{ID: NewID(), Project: r.request.Project, Target: r.account, Actor: r.request.Actor, Do: do})
}

// submit repeats a command, which carries its id, until it is answered, ctx ends, or settleFor has passed. A refusal is
// returned as *Refused. An error tells whether any of the attempts may have succeeded.
func (r *run) submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	until := time.Now().Add(settleFor)
	unknown := false
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		outcome, err := r.to.Submit(ctx, command)
		if err == nil && outcome.Refused() {
			return outcome, &Refused{outcome}
		}
		var accident *Error
		if err == nil || !errors.As(err, &accident) {
			return outcome, err
		}
		unknown = unknown || accident.MayHaveHappened()
		if accident.Passing() && !r.closed() && time.Now().Before(until) && wait(ctx, pause) {
			continue
		}
		told := *accident
		told.Unknown = unknown
		return outcome, &told
	}
}

// wait reports whether the pause passed before ctx ended.
func wait(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func unlessRefused(err error) error {
	var refused *Refused
	if errors.As(err, &refused) {
		return nil
	}
	return err
}
