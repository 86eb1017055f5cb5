package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Request is a piece of work for Run.
type Request struct {
	Project string
	Account string
	Key     string // required: the same intention has the same key
	Reserve holdfast.Reserve
	Worker  string
	Lease   time.Duration // 0: holdfast.DefaultLease; kept alive by heartbeats
	Actor   string        // written into the ledger; empty: run
}

// Work is what the function given to Run works under.
type Work struct {
	Reservation holdfast.Reservation
	LeaseToken  string
	amount      *holdfast.Amount
}

// Charge sets what the work came to, in the reservation's unit. Without it all that was reserved is charged.
func (w *Work) Charge(amount holdfast.Amount) { w.amount = &amount }

// Refused is a refusal as an error, for callers that want one.
type Refused struct{ Outcome holdfast.Outcome }

// Error is the reason.
func (r *Refused) Error() string { return "refused: " + string(r.Outcome.Reason) }

// ErrLeaseLost is the cause with which the work's context ends when its reservation is no longer its own.
var ErrLeaseLost = errors.New("the lease was lost: the reservation ended or was given to another worker")

// settleFor bounds how long Run tries to tell the end of a piece of work.
const settleFor = 30 * time.Second

// Run does a piece of work exactly once: it reserves, starts, calls work while it keeps the lease alive, and commits
// when work returns nil. Where work returns an error, panics or leaves by runtime.Goexit, everything is released before the error or
// the panic goes on. A cancelled ctx cancels work's context; the end is told under a context of its own.
//
// holdfast.Detached, returned by work, leaves the reservation live: a background worker has taken it over, with the token
// of Work, and Run returns a nil error. A refusal, also that the key's work was done or is being done already, is returned as *Refused, and
// work is not called.
//
// Where the work was done and the end could not be told, the error says so; the reservation then ends at its expiry, and nothing is charged twice.
func (e *Engine) Run(ctx context.Context, request Request, work func(ctx context.Context, w *Work) error) (outcome holdfast.Outcome, err error) {
	if request.Actor == "" {
		request.Actor = "run"
	}
	w := &Work{}
	verb := func(ctx context.Context, do holdfast.Operation) (holdfast.Outcome, error) {
		return e.submitUntilKnown(ctx, holdfast.Command{
			ID: NewID(), Project: request.Project, Account: request.Account, Actor: request.Actor, Do: do,
		})
	}
	release := func(cause string) (holdfast.Outcome, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
		defer cancel()
		return verb(ctx, holdfast.Release{ReservationID: w.Reservation.ID, LeaseToken: w.LeaseToken, Cause: cause})
	}
	reserve := holdfast.Command{
		ID: NewID(), Project: request.Project, Account: request.Account, Key: request.Key, Actor: request.Actor, Do: request.Reserve,
	}
	reserved, err := e.submitUntilKnown(ctx, reserve)
	if err != nil {
		return reserved, errors.Join(err, e.undo(ctx, reserve, err, w, release))
	}
	w.Reservation = *reserved.Reservation
	started, err := verb(ctx, holdfast.Start{
		ReservationID: w.Reservation.ID, Worker: request.Worker, Lease: request.Lease,
		Token: rand.Text(), // the same however often it is sent, so that its own success is not taken for another worker's
	})
	var refused *Refused
	switch {
	case errors.As(err, &refused):
		return started, err // ended before, or another worker has it: it is not ours to release
	case err != nil && reserved.Replayed:
		return started, err // another delivery made it, and may be at work on it
	case err != nil:
		_, lost := release(holdfast.CauseCancelled) // refused if the start was saved after all; it then expires
		return started, errors.Join(err, unlessRefused(lost))
	}
	w.Reservation, w.LeaseToken = *started.Reservation, started.Lease.Token

	working, stop := context.WithCancelCause(ctx)
	beating := make(chan struct{})
	go func() {
		defer close(beating)
		e.heartbeats(working, stop, verb, w, request.Lease)
	}()
	rest := func() {
		stop(nil)
		<-beating
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		rest() // work panicked or called runtime.Goexit: release, and let it go on
		if _, lost := release(holdfast.CauseCrashed); unlessRefused(lost) != nil {
			e.log.Error("work crashed and could not be released; it will expire", "reservation", w.Reservation.ID.String(), "error", lost)
		}
	}()
	workErr := work(working, w)
	returned = true
	rest()

	switch {
	case errors.Is(workErr, holdfast.Detached):
		return started, nil
	case workErr != nil:
		cause := holdfast.CauseFailed
		if ctx.Err() != nil {
			cause = holdfast.CauseCancelled
		}
		released, lost := release(cause)
		if lost != nil {
			return released, fmt.Errorf("%w; and the release: %w", workErr, lost)
		}
		return released, workErr
	}
	committing, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	return verb(committing, holdfast.Commit{ReservationID: w.Reservation.ID, LeaseToken: w.LeaseToken, Amount: w.amount})
}

// undo ends a reservation that the caller left while it was being made: the same key tells what became of it.
func (e *Engine) undo(ctx context.Context, reserve holdfast.Command, err error, w *Work, release func(string) (holdfast.Outcome, error)) error {
	var accident *Error
	if !errors.As(err, &accident) || accident.Code != OutcomeUnknown {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	reserved, err := e.submitUntilKnown(ctx, reserve)
	if err != nil || reserved.Replayed { // another delivery made it, and may be at work on it
		return unlessRefused(err)
	}
	w.Reservation = *reserved.Reservation
	_, err = release(holdfast.CauseCancelled)
	return unlessRefused(err)
}

func unlessRefused(err error) error {
	var refused *Refused
	if errors.As(err, &refused) {
		return nil
	}
	return err
}

// submitUntilKnown repeats a command, which carries its id, until it is answered or ctx ends. A refusal is returned as *Refused.
func (e *Engine) submitUntilKnown(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		outcome, err := e.Submit(ctx, command)
		if err == nil && outcome.Refused() {
			return outcome, &Refused{outcome}
		}
		var accident *Error
		if !errors.As(err, &accident) || accident.Code == Internal || accident.Code == Cancelled || e.queue.isClosed() || ctx.Err() != nil {
			return outcome, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return outcome, err
		}
	}
}

// heartbeats move the lease three times in its length. When it is lost, the work's context ends with ErrLeaseLost.
func (e *Engine) heartbeats(ctx context.Context, stop context.CancelCauseFunc, verb func(context.Context, holdfast.Operation) (holdfast.Outcome, error), w *Work, lease time.Duration) {
	ticker := time.NewTicker(orDefault(lease, holdfast.DefaultLease) / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		_, err := verb(ctx, holdfast.Heartbeat{ReservationID: w.Reservation.ID, LeaseToken: w.LeaseToken, Lease: lease})
		var refused *Refused
		if errors.As(err, &refused) {
			stop(ErrLeaseLost)
			return
		}
	}
}
