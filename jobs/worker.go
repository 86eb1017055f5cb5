package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// Source is where jobs come from and where their ends are told: an *engine.Engine, or a *client.Client.
type Source interface {
	engine.Submitter
	Claim(ctx context.Context, request engine.ClaimRequest) ([]engine.Claimed, error)
}

// Worker takes jobs of one queue and has them handled. For several queues run several: each has slots of its own, so that no
// queue starves another.
type Worker struct {
	Source  Source
	Project string // of an engine; over HTTP the API key says which
	Queue   string // a feature's queue, a dot, a plan's tier: image.standard
	Name    string // shown with reservations and attempts

	// Handle does a job. Nil commits it: all that was reserved, or what Charge or Use named. Any other error gives it back for
	// another attempt after a delay, as far as it may have one; Fail ends it, and engine.ErrInDoubt leaves it in doubt. A panic is a crash.
	// Its context ends, with one of the causes below as context.Cause, when it should return.
	Handle func(ctx context.Context, job *Job) error

	Concurrency int           // jobs at once, at most holdfast.MaxClaim; 0: 1
	Lease       time.Duration // 0: holdfast.DefaultLease; heartbeats are a third of it apart
	LongestJob  time.Duration // how long a job may take; 0: as the feature says
	Grace       time.Duration // how long Handle may take to return after its context has ended; 0: 10 s
	StopFor     time.Duration // how long a stopping worker lets its jobs go on; 0: 30 s
	Logger      *slog.Logger  // is told of what failed, once each; nil: slog.Default
}

// The causes with which a handler's context ends, besides engine.ErrLeaseLost and engine.ErrCancelRequested.
var (
	// ErrTooLong: the job has taken longer than its feature allows.
	ErrTooLong = errors.New("the job has taken longer than it may")
	// ErrStopping: the worker stops, and its time to finish is over.
	ErrStopping = errors.New("the worker stops")
)

// The causes of attempts that package jobs gives.
const (
	CauseTimedOut = "timed_out" // longer than the longest job
	CauseStopped  = "stopped"   // the worker was stopped
)

// Fail ends the job: trying again would not help. Everything is released with the cause, a word such as content_refused.
func Fail(cause string, err error) error { return &engine.Release{Cause: cause, Err: err} }

// Retry gives the job back for another attempt, as every plain error does, with a cause to be seen in its attempts.
func Retry(cause string, err error) error {
	return &engine.Release{Cause: cause, Retry: true, Err: err}
}

// Job is what a handler works on.
type Job struct {
	// ID is the reservation's public id. Give it to the provider as its idempotency key: it is the same for every attempt.
	ID          string
	Payload     []byte // JSON, as it was given to the reserve
	Attempt     int    // from 1
	Reservation holdfast.Reservation

	mu     sync.Mutex
	amount *holdfast.Amount
	usage  map[string]holdfast.Amount
}

// Charge sets what the job came to, in the reservation's unit. The last call of Charge or Use counts.
func (j *Job) Charge(amount holdfast.Amount) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.amount, j.usage = &amount, nil
}

// Use sets what the job has used of each kind, in all so far.
func (j *Job) Use(usage map[string]holdfast.Amount) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.amount, j.usage = nil, usage
}

// tell hands on what the job came to. A handler that was given up can say no more.
func (j *Job) tell(work *engine.Work) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.amount != nil:
		work.Charge(*j.amount)
	case j.usage != nil:
		work.Use(j.usage)
	}
}

const (
	// claimWait is how long one claim waits for a job.
	claimWait = 20 * time.Second
	// firstPause and longestPause bound the pauses after claims that failed.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// Run works until ctx ends. Then it claims no more, gives back what it has not begun, lets jobs go on for StopFor, and ends
// the contexts of those that are left. It returns when the end of every job has been told; handlers that do not return,
// whatever their context says, are left behind. An error means that the worker lacks what it needs.
func (w *Worker) Run(ctx context.Context) error {
	if w.Source == nil || w.Handle == nil {
		return errors.New("jobs: a worker needs a Source and a Handle")
	}
	slots := make(chan struct{}, min(max(w.Concurrency, 1), holdfast.MaxClaim))
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	var jobs sync.WaitGroup
	pause := firstPause
	for {
		taken := takeSlots(ctx, slots)
		if taken == 0 {
			break
		}
		claimed, err := w.Source.Claim(ctx, engine.ClaimRequest{
			Project: w.Project, Claim: holdfast.Claim{Queue: w.Queue, Worker: w.Name, Limit: taken, Lease: w.Lease, Wait: claimWait},
		})
		for range taken - len(claimed) {
			<-slots
		}
		if ctx.Err() != nil {
			w.giveBack(working, claimed)
			break
		}
		for i := range claimed {
			jobs.Go(func() { w.work(working, claimed[i], func() { <-slots }) })
		}
		if err == nil {
			pause = firstPause
			continue
		}
		w.log().Error("no jobs could be claimed; the worker tries again", "queue", w.Queue, "error", err)
		if !sleep(ctx, pause/2+rand.N(pause)) {
			break
		}
		pause = min(2*pause, longestPause)
	}
	timer := time.AfterFunc(orDefault(w.StopFor, 30*time.Second), func() { stop(ErrStopping) })
	defer timer.Stop()
	jobs.Wait()
	return nil
}

// takeSlots waits for a free slot and takes all that are free; 0: ctx has ended.
func takeSlots(ctx context.Context, slots chan struct{}) (taken int) {
	if ctx.Err() != nil {
		return 0
	}
	select {
	case slots <- struct{}{}:
	case <-ctx.Done():
		return 0
	}
	for taken = 1; ; taken++ {
		select {
		case slots <- struct{}{}:
		default:
			return taken
		}
	}
}

// giveBack returns what was claimed and not begun.
func (w *Worker) giveBack(ctx context.Context, claimed []engine.Claimed) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for _, job := range claimed {
		_, err := w.Source.Submit(ctx, holdfast.Command{
			ID: engine.NewID(), Project: w.Project, Target: job.Outcome.Owner.ID, Actor: actor,
			Do: holdfast.Release{ReservationID: job.Outcome.Reservation.ID, LeaseToken: job.Outcome.Lease.Token, Unstarted: true},
		})
		if err != nil { // it comes back when its lease lapses
			w.log().Warn("a job could not be given back; its lease will lapse", "reservation", publicID(job), "error", err)
		}
	}
}

// actor is what the ledger names where a worker ends a job.
const actor = "worker"

// work has one job handled, and tells its end. The slot is free when the handler has returned, and not before: handlers that
// hang do not pile up.
func (w *Worker) work(ctx context.Context, claimed engine.Claimed, free func()) {
	id := publicID(claimed)
	returned := make(chan struct{})
	request := engine.Request{Project: w.Project, Worker: w.Name, Lease: w.Lease, Actor: actor, Logger: w.log()}
	_, err := engine.Resume(ctx, w.Source, request, claimed, func(ctx context.Context, work *engine.Work) error {
		job := &Job{ID: work.ID, Payload: []byte(claimed.Payload), Attempt: work.Reservation.Attempts, Reservation: work.Reservation}
		handling, end := context.WithCancelCause(ctx)
		defer end(nil)
		if longest := orDefault(w.LongestJob, claimed.LongestJob); longest > 0 {
			timer := time.AfterFunc(longest, func() { end(ErrTooLong) })
			defer timer.Stop()
		}
		err := w.await(handling, id, w.start(handling, job, returned))
		job.tell(work)
		return ending(err, context.Cause(handling))
	})
	if err != nil {
		w.log().Error("a job was not finished", "reservation", id, "error", err)
	}
	select {
	case <-returned:
		free()
	default:
		go func() {
			<-returned
			free()
		}()
	}
}

// start calls the handler. What it comes to is sent once, also where it panics or leaves by runtime.Goexit.
func (w *Worker) start(ctx context.Context, job *Job, returned chan<- struct{}) <-chan error {
	result := make(chan error, 1)
	go func() {
		err := error(&engine.Release{Cause: holdfast.CauseCrashed, Retry: true, Err: errors.New("the handler did not return")})
		defer func() {
			if broken := recover(); broken != nil {
				err = &engine.Release{Cause: holdfast.CauseCrashed, Retry: true, Err: fmt.Errorf("panic: %v\n%s", broken, debug.Stack())}
			}
			result <- err
			close(returned)
		}()
		err = w.Handle(ctx, job)
	}()
	return result
}

// await waits for the handler, and no longer than the grace once its context has ended.
func (w *Worker) await(ctx context.Context, id string, result <-chan error) error {
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(orDefault(w.Grace, 10*time.Second))
	defer timer.Stop()
	select {
	case err := <-result:
		return err
	case <-timer.C:
		w.log().Error("a handler does not return; its slot stays taken", "reservation", id, "cause", context.Cause(ctx))
		return context.Cause(ctx)
	}
}

// ending says what becomes of the reservation: what the handler said, else another attempt.
func ending(err, cause error) error {
	var told *engine.Release
	switch {
	case err == nil, errors.As(err, &told), errors.Is(err, engine.ErrInDoubt), errors.Is(err, holdfast.Detached):
		return err
	case errors.Is(cause, engine.ErrCancelRequested) && (errors.Is(err, context.Canceled) || errors.Is(err, engine.ErrCancelRequested)):
		return err
	case errors.Is(cause, ErrTooLong):
		return Retry(CauseTimedOut, errors.Join(ErrTooLong, err))
	case errors.Is(cause, ErrStopping):
		return Retry(CauseStopped, errors.Join(ErrStopping, err))
	}
	return Retry(holdfast.CauseFailed, err)
}

func (w *Worker) log() *slog.Logger { return orDefault(w.Logger, slog.Default()) }

func publicID(job engine.Claimed) string {
	return holdfast.ReservationRef.Encode(job.Outcome.Owner.ID, job.Outcome.Reservation.ID)
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// sleep reports whether the pause passed before ctx ended.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
