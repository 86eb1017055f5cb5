package engine

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// ClaimRequest asks for jobs of a queue of a project.
type ClaimRequest struct {
	Project string // of an engine; over HTTP the API key says which
	Actor   string // written into the ledger where a job that was lost too often is released; empty: claim
	holdfast.Claim
}

// Claimed is a job that belongs to the worker who claimed it, for as long as it keeps the lease.
type Claimed struct {
	Outcome holdfast.Outcome // of the start: the reservation, the lease, whose it is
	Payload string           // JSON
	// LongestJob is the feature's, by the catalog of now; 0: the catalog no longer has the feature.
	LongestJob time.Duration
}

// pollEvery is how often a waiting claim looks for what no commit of this server has told it of: jobs of other servers, and
// those of lost workers.
const pollEvery = time.Second

// Claim starts jobs that wait in a queue, the oldest first, and returns them: up to the limit, and none where none came in
// time. No job is given to two: a scan without a lock only hints, and each is started by a command of its own. A claim that
// waits is woken by a new job of this server at once, and otherwise looks again every second; it ends early with ctx, and
// when the engine is told to stop. Jobs of a claim whose ctx has ended meanwhile go back to their queue, unstarted.
//
// Errors are *Error, and *Refused where the request makes no sense.
func (e *Engine) Claim(ctx context.Context, request ClaimRequest) ([]Claimed, error) {
	if problems := request.Check(); len(problems) > 0 {
		return nil, &Refused{holdfast.Outcome{Reason: holdfast.Invalid, Problems: problems}}
	}
	jobs, ok := e.store.(store.Jobs)
	if !ok {
		return nil, &Error{Code: Internal, Hint: "this server's database keeps no jobs"}
	}
	if request.Actor == "" {
		request.Actor = "claim"
	}
	c := &claiming{engine: e, jobs: jobs, request: request, limit: orDefault(request.Limit, 1)}
	queue := queueName{request.Project, request.Queue}
	woken := e.claims.enter(queue)
	defer e.claims.leave(queue, woken)
	until := time.Now().Add(request.Wait)
	for {
		found, err := c.once(ctx)
		rest := time.Until(until)
		if len(found) > 0 || err != nil || rest <= 0 || e.claims.isStopped() {
			return found, err
		}
		timer := time.NewTimer(min(rest, pollEvery/2+rand.N(pollEvery)))
		select {
		case <-woken:
		case <-timer.C:
		case <-e.claims.stopped:
		case <-ctx.Done():
			timer.Stop()
			return nil, left(ctx.Err())
		}
		timer.Stop()
	}
}

// StopClaims ends all claims that wait, and lets none wait any more. Serving HTTP needs it: a server that stops waits for its
// requests.
func (e *Engine) StopClaims() { e.claims.stop() }

// claiming is one claim on its way.
type claiming struct {
	engine  *Engine
	jobs    store.Jobs
	request ClaimRequest
	limit   int
}

// once looks through the queue until it has enough, or has seen all of it.
func (c *claiming) once(ctx context.Context) (found []Claimed, err error) {
	var failed error
	query := store.JobQuery{Project: c.request.Project, Queue: c.request.Queue, At: c.engine.Now()}
	for len(found) < c.limit && ctx.Err() == nil {
		query.Limit = c.limit + c.engine.claims.takenCount() // others of this server are at the first ones already
		hints, err := c.jobs.ClaimableJobs(ctx, query)
		if err != nil {
			if len(found) > 0 {
				break // what was started is given out
			}
			return nil, c.engine.unreadable(err)
		}
		mine, looked := c.engine.claims.take(hints, c.limit-len(found))
		started, err := c.start(ctx, mine)
		c.engine.claims.putBack(mine)
		if found = append(found, started...); err != nil && len(found) == 0 {
			failed = err // of these; those behind them may be better off
		}
		if looked == len(hints) && len(hints) < query.Limit {
			break // that was all of it
		}
		query.After = hints[looked-1]
	}
	if len(found) == 0 {
		return nil, failed
	}
	return found, nil
}

// start gives the hints that turn out to be true to the worker. An accident with one job leaves it where it is.
func (c *claiming) start(ctx context.Context, hints []store.JobRef) ([]Claimed, error) {
	if len(hints) == 0 {
		return nil, nil
	}
	commands := make([]holdfast.Command, len(hints))
	for i, job := range hints {
		commands[i] = c.command(job, holdfast.Start{ReservationID: job.ID, Worker: c.request.Worker, Lease: c.request.Lease, Claimed: true})
	}
	// Whoever leaves now must not leave leases behind that nobody knows of.
	results := c.engine.SubmitAll(context.WithoutCancel(ctx), commands)
	var refs []store.JobRef
	var claimed []Claimed
	var accident error // the first: callers are told one
	for i, result := range results {
		switch {
		case result.Err != nil && accident == nil:
			accident = result.Err
		case result.Err != nil:
		case !result.Outcome.Refused():
			refs, claimed = append(refs, hints[i]), append(claimed, Claimed{Outcome: result.Outcome})
		}
	}
	if len(claimed) == 0 {
		return nil, accident
	}
	payloads, err := c.jobs.Payloads(context.WithoutCancel(ctx), refs)
	if err != nil || ctx.Err() != nil {
		c.giveBack(ctx, refs, claimed)
		return nil, c.engine.unreadable(errors.Join(err, ctx.Err()))
	}
	catalog := c.engine.Catalog(c.request.Project)
	kept := claimed[:0]
	for i := range claimed {
		job := claimed[i]
		if job.Payload = payloads[i]; job.Payload == "" {
			continue // it has ended since: cancelled or forced
		}
		r := job.Outcome.Reservation
		if feature, ok := catalog.Feature(r.Feature); ok {
			job.LongestJob = feature.LongestJob
		}
		if observer, ok := c.engine.options.Observer.(JobObserver); ok && r.Attempts == 1 {
			observer.Claimed(c.request.Project, r.Job.Queue, c.engine.Now().Sub(r.CreatedAt))
		}
		kept = append(kept, job)
	}
	return kept, nil
}

func (c *claiming) command(job store.JobRef, do holdfast.Operation) holdfast.Command {
	return holdfast.Command{ID: NewID(), Project: c.request.Project, Target: job.Account, Actor: c.request.Actor, Do: do}
}

// giveBack returns what nobody will hear of. What cannot be returned now comes back when its lease lapses.
func (c *claiming) giveBack(ctx context.Context, refs []store.JobRef, claimed []Claimed) {
	commands := make([]holdfast.Command, len(refs))
	for i, job := range refs {
		commands[i] = c.command(job, holdfast.Release{ReservationID: job.ID, LeaseToken: claimed[i].Outcome.Lease.Token, Unstarted: true})
	}
	c.engine.SubmitAll(context.WithoutCancel(ctx), commands)
}

// endLost releases the jobs whose last attempt has lost its lease, a bounded chunk at a time.
func (e *Engine) endLost(ctx context.Context) error {
	jobs, ok := e.store.(store.Jobs)
	if !ok {
		return nil
	}
	at, after := e.Now(), store.JobRef{}
	for {
		lost, err := jobs.LostJobs(ctx, at, after, holdfast.MaxScan)
		if err != nil {
			return e.unreadable(err)
		}
		var sent []*pending
		for _, job := range lost {
			p := &pending{
				command: holdfast.Command{ID: NewID(), Project: job.Project, Target: job.Account, Actor: Sweeper, Do: holdfast.EndLost{ReservationID: job.ID}},
				since:   time.Now(), sweep: true, answer: make(chan answer, 1),
			}
			if e.refused(job.Account) != nil {
				continue
			}
			if err := e.queue.push(p); err != nil {
				break // full: callers first
			}
			sent = append(sent, p)
		}
		for _, p := range sent {
			select {
			case <-p.answer:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if len(lost) < holdfast.MaxScan {
			return nil
		}
		after = lost[len(lost)-1]
	}
}

// unreadable is what callers are told of a store that could not be asked.
func (e *Engine) unreadable(err error) error {
	if store.KindOf(err) == store.Fatal {
		e.fail(err)
	}
	return &Error{Code: Unavailable, Hint: "the database cannot be read now; try again shortly", Err: err}
}

type queueName struct{ project, queue string }

// claims are those that are under way: who waits for which queue, and which jobs are being started.
type claims struct {
	mu      sync.Mutex
	waiting map[queueName][]chan struct{} // in the order of their coming
	taken   map[jobKey]bool
	stopped chan struct{}
	stop    func()
}

type jobKey struct {
	account holdfast.AccountID
	id      holdfast.ID
}

func newClaims() *claims {
	c := &claims{waiting: map[queueName][]chan struct{}{}, taken: map[jobKey]bool{}, stopped: make(chan struct{})}
	c.stop = sync.OnceFunc(func() { close(c.stopped) })
	return c
}

func (c *claims) enter(queue queueName) chan struct{} {
	woken := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[queue] = append(c.waiting[queue], woken)
	return woken
}

// leave hands on a wake that came too late for this claim.
func (c *claims) leave(queue queueName, woken chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(c.waiting[queue], func(other chan struct{}) bool { return other == woken })
	if c.waiting[queue] = left; len(left) == 0 {
		delete(c.waiting, queue)
	}
	if len(woken) > 0 {
		c.wake(queue)
	}
}

// wake wakes the first that is not awake yet.
func (c *claims) wake(queue queueName) {
	for _, woken := range c.waiting[queue] {
		select {
		case woken <- struct{}{}:
			return
		default:
		}
	}
}

// tell wakes a claim where a saved outcome has put a job into its queue. One that must wait first wakes nobody: claims look
// again by themselves.
func (c *claims) tell(project string, outcome *holdfast.Outcome, now func() time.Time) {
	r := outcome.Reservation
	if r == nil || r.Job == nil || r.State != holdfast.Reserved || outcome.Refused() || outcome.DryRun || r.ClaimableAt().After(now()) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wake(queueName{project, r.Job.Queue})
}

func (c *claims) takenCount() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.taken)
}

func (c *claims) isStopped() bool {
	select {
	case <-c.stopped:
		return true
	default:
		return false
	}
}

// take picks hints that no other claim of this server is starting, and tells how many it has looked at.
func (c *claims) take(hints []store.JobRef, most int) (mine []store.JobRef, looked int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for looked < len(hints) && len(mine) < most {
		job := hints[looked]
		looked++
		key := jobKey{job.Account, job.ID}
		if !c.taken[key] {
			c.taken[key] = true
			mine = append(mine, job)
		}
	}
	return mine, looked
}

func (c *claims) putBack(jobs []store.JobRef) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, job := range jobs {
		delete(c.taken, jobKey{job.Account, job.ID})
	}
}
