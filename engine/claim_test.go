package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

const drawQueue = "draw.standard"

// job reserves with a job whose payload is the key.
func (h *house) job(account, key string, attempts int) holdfast.Outcome {
	h.t.Helper()
	return h.done(h.do(account, key, holdfast.Reserve{Feature: "draw", Job: &holdfast.JobRequest{Payload: fmt.Sprintf("%q", key), MaxAttempts: attempts}}))
}

func (h *house) claim(worker string, limit int) []engine.Claimed {
	h.t.Helper()
	jobs, err := h.Claim(context.Background(), engine.ClaimRequest{Project: "p", Claim: holdfast.Claim{Queue: drawQueue, Worker: worker, Limit: limit}})
	if err != nil {
		h.t.Fatal(err)
	}
	return jobs
}

func (h *house) payloads(jobs []engine.Claimed) string {
	list := ""
	for _, job := range jobs {
		list += job.Payload
	}
	return list
}

func (h *house) wantPayloads(jobs []engine.Claimed, want string) []engine.Claimed {
	h.t.Helper()
	if got := h.payloads(jobs); got != want {
		h.t.Fatalf("claimed %s, want %s", got, want)
	}
	return jobs
}

// on submits a verb about a job that was claimed.
func (h *house) on(job engine.Claimed, do func(id holdfast.ID, token string) holdfast.Operation) holdfast.Outcome {
	h.t.Helper()
	o, err := h.Submit(context.Background(), holdfast.Command{
		Project: "p", Target: job.Outcome.Owner.ID, Actor: "test", Do: do(job.Outcome.Reservation.ID, job.Outcome.Lease.Token),
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return o
}

func commitIt(id holdfast.ID, token string) holdfast.Operation {
	return holdfast.Commit{ReservationID: id, LeaseToken: token}
}

func retryIt(cause string) func(id holdfast.ID, token string) holdfast.Operation {
	return func(id holdfast.ID, token string) holdfast.Operation {
		return holdfast.Release{ReservationID: id, LeaseToken: token, Cause: cause, Retry: true}
	}
}

func TestAClaimTakesTheOldestJobsOfItsQueueAndNobodyGetsThemTwice(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		for i := range 5 {
			h.has(fmt.Sprint("a", 5-i), 2)
			h.job(fmt.Sprint("a", 5-i), fmt.Sprint("m", i), 0)
		}
		h.done(h.do("a1", "nojob", holdfast.Reserve{Feature: "draw"}))
		if jobs, err := h.Claim(t.Context(), engine.ClaimRequest{Project: "other", Claim: holdfast.Claim{Queue: drawQueue, Limit: 50}}); err != nil || len(jobs) != 0 {
			t.Fatalf("another project's queue has %v (%v)", jobs, err)
		}
		first := h.wantPayloads(h.claim("w1", 2), `"m0""m1"`)
		r := first[0].Outcome.Reservation
		if r.State != holdfast.Running || r.Attempts != 1 || r.Job.Queue != drawQueue || r.Job.MaxAttempts != 3 || first[0].LongestJob != time.Minute {
			t.Errorf("claimed %+v %+v", r, r.Job)
		}
		h.wantPayloads(h.claim("w2", 50), `"m2""m3""m4"`)
		h.wantPayloads(h.claim("w3", 50), ``)
		h.done(h.on(first[0], commitIt))
		h.wantBalance("a5", "available=1 held=0 active=0")
		h.verify()
	})
}

func TestManyClaimersOfOneQueueGetEveryJobOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		const jobs = 60
		h.has("ann", jobs)
		for i := range jobs {
			h.job("ann", fmt.Sprint("m", i), 0)
		}
		var mu sync.Mutex
		got := map[string]int{}
		var workers sync.WaitGroup
		for w := range 8 {
			workers.Go(func() {
				for {
					claimed := h.claim(fmt.Sprint("w", w), 1+w%3)
					if len(claimed) == 0 {
						return
					}
					for _, job := range claimed {
						mu.Lock()
						got[job.Payload]++
						mu.Unlock()
						h.on(job, commitIt)
					}
				}
			})
		}
		workers.Wait()
		for h.claimRest(got) > 0 {
		}
		if len(got) != jobs {
			t.Errorf("%d of %d jobs were claimed", len(got), jobs)
		}
		for payload, n := range got {
			if n != 1 {
				t.Errorf("%s was claimed %d times", payload, n)
			}
		}
		h.wantBalance("ann", "available=0 held=0 active=0")
		h.verify()
	})
}

// claimRest takes what is left: a claim that loses every race against the others may come back with nothing.
func (h *house) claimRest(got map[string]int) int {
	claimed := h.claim("rest", 50)
	for _, job := range claimed {
		got[job.Payload]++
		h.on(job, commitIt)
	}
	return len(claimed)
}

// Cases 25 and 26.
func TestALostLeaseGivesTheJobAwayAgainInItsPlaceUntilItHasCrashedTooOften(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		h.has("ann", 5)
		h.job("ann", "old", 2)
		h.job("ann", "young", 0)
		lost := h.wantPayloads(h.claim("w1", 1), `"old"`)[0]
		h.pass(59 * time.Second)
		h.wantPayloads(h.claim("w2", 1), `"young"`)
		h.pass(time.Second)
		again := h.wantPayloads(h.claim("w3", 1), `"old"`)[0]
		if again.Outcome.Lease.Token == lost.Outcome.Lease.Token {
			t.Error("the token is the same")
		}
		r := again.Outcome.Reservation
		if r.Job.Crashes != 1 || r.Job.Errors != 0 || len(r.Job.Attempts) != 2 || r.Job.Attempts[0].End != holdfast.AttemptCrashed || r.Job.Attempts[0].Worker != "w1" {
			t.Errorf("the attempts are %+v", r.Job)
		}
		if r.Reserved != lost.Outcome.Reservation.Reserved || !r.CreatedAt.Equal(lost.Outcome.Reservation.CreatedAt) {
			t.Errorf("the reservation has changed: %+v", r)
		}
		for what, do := range map[string]func(holdfast.ID, string) holdfast.Operation{
			"commit": commitIt, "retry": retryIt("failed"),
			"heartbeat": func(id holdfast.ID, token string) holdfast.Operation {
				return holdfast.Heartbeat{ReservationID: id, LeaseToken: token}
			},
		} {
			if got := h.on(lost, do).Reason; got != holdfast.StaleLease {
				t.Errorf("%s by the worker that had lost it: %q", what, got)
			}
		}
		// The second lost lease is the last: nobody gets it again, and the money comes back.
		h.pass(time.Minute)
		h.wantPayloads(h.claim("w4", 50), `"young"`)
		end := h.on(again, commitIt)
		if end.Reason != holdfast.AlreadyEnded || end.Reservation.State != holdfast.Released || end.Reservation.Cause != holdfast.CauseCrashed || end.Reservation.Job.Crashes != 2 {
			t.Errorf("it ended as %q %+v", end.Reason, end.Reservation)
		}
		h.wantBalance("ann", "available=4 held=1 active=1")
		h.verify()
	})
}

func TestTheSweeperReleasesAJobWhoseLastAttemptWasLost(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		h.has("ann", 5)
		h.job("ann", "m", 1)
		h.job("ann", "twice", 2)
		lost := h.claim("w1", 2)
		h.pass(time.Minute)
		if err := h.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.wantBalance("ann", "available=4 held=1 active=1")
		if r := h.on(lost[0], commitIt).Reservation; r.Cause != holdfast.CauseCrashed || r.Job.Attempts[0].End != holdfast.AttemptCrashed {
			t.Errorf("it ended as %+v", r)
		}
		h.wantPayloads(h.claim("w2", 2), `"twice"`)
		h.verify()
	})
}

// still is a clock that stands until it is moved.
type still struct{ passed atomic.Int64 }

func (c *still) stop(o *engine.Options) {
	at := time.Now()
	o.Now = func() time.Time { return at.Add(time.Duration(c.passed.Load())) }
}

func (c *still) pass(d time.Duration) { c.passed.Add(int64(d)) }

func unstarted(id holdfast.ID, token string) holdfast.Operation {
	return holdfast.Release{ReservationID: id, LeaseToken: token, Unstarted: true}
}

func TestAJobIsGivenBackAndTriedAgainAndErrorsAreCountedApart(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		clock := &still{}
		h := open(t, s, clock.stop)
		h.has("ann", 5)
		h.job("ann", "m", 2)
		h.job("ann", "n", 2)
		job := h.wantPayloads(h.claim("w1", 1), `"m"`)[0]
		given := h.done(h.on(job, retryIt("rate_limited")))
		if !given.Changed || given.Reservation.State != holdfast.Reserved || given.Settlement != nil {
			t.Errorf("given back: %+v", given)
		}
		if repeated := h.done(h.on(job, retryIt("rate_limited"))); repeated.Changed {
			t.Error("giving back twice changed something")
		}
		if got := h.on(job, func(id holdfast.ID, _ string) holdfast.Operation {
			return holdfast.Commit{ReservationID: id, LeaseToken: "somebody's"}
		}).Reason; got != holdfast.StaleLease {
			t.Errorf("a commit by somebody who never had it: %q", got)
		}
		clock.pass(time.Second - time.Microsecond)
		other := h.wantPayloads(h.claim("w2", 50), `"n"`)[0] // whatever made the first one fail gets a second to recover
		h.done(h.on(other, unstarted))
		clock.pass(time.Microsecond)
		job = h.wantPayloads(h.claim("w2", 1), `"m"`)[0] // in its place again
		job.Outcome.Reservation = h.done(h.on(job, retryIt("timeout"))).Reservation
		r := job.Outcome.Reservation
		if r.State != holdfast.Released || r.Cause != "timeout" || r.Job.Errors != 2 || r.Job.Crashes != 0 {
			t.Errorf("after the last attempt: %+v %+v", r, r.Job)
		}
		if a := r.Job.Attempts; len(a) != 2 || a[0].Cause != "rate_limited" || a[0].End != holdfast.AttemptFailed || a[1].Cause != "timeout" || a[1].EndedAt.IsZero() {
			t.Errorf("the attempts are %+v", a)
		}
		// What was claimed and never begun does not count.
		for range 5 {
			job = h.wantPayloads(h.claim("w3", 1), `"n"`)[0]
			h.done(h.on(job, unstarted))
		}
		job = h.wantPayloads(h.claim("w4", 1), `"n"`)[0]
		if j := job.Outcome.Reservation.Job; j.Errors+j.Crashes != 0 || job.Outcome.Reservation.Attempts != 7 {
			t.Errorf("unstarted claims count: %+v", j)
		}
		h.done(h.on(job, commitIt))
		h.wantBalance("ann", "available=4 held=0 active=0")
		h.verify()
	})
}

// stale is a store whose hints are those of an earlier moment: as they are by the time that a busy server comes to them.
type stale struct {
	store.Store
	store.Jobs
	hints []store.JobRef
}

func (s *stale) ClaimableJobs(_ context.Context, q store.JobQuery) ([]store.JobRef, error) {
	if !q.After.ID.IsZero() {
		return nil, nil
	}
	return s.hints, nil
}

// What fails at once would otherwise burn its attempts between the look of another server and its claim.
func TestAJobThatWasGivenBackWaitsAlsoForAClaimThatSawItBefore(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		old := &stale{Store: s, Jobs: s.(store.Jobs)}
		clock := &still{}
		h := open(t, old, clock.stop)
		h.has("ann", 5)
		made := h.job("ann", "m", 3)
		old.hints = []store.JobRef{{Account: made.Owner.ID, ID: made.Reservation.ID, Project: "p", CreatedAt: made.Reservation.CreatedAt}}
		for _, delay := range []time.Duration{time.Second, 2 * time.Second} {
			job := h.wantPayloads(h.claim("w1", 1), `"m"`)[0]
			h.done(h.on(job, retryIt("failed")))
			clock.pass(delay - time.Microsecond)
			h.wantPayloads(h.claim("w2", 1), ``)
			clock.pass(time.Microsecond)
		}
		h.done(h.on(h.wantPayloads(h.claim("w3", 1), `"m"`)[0], commitIt))
		h.verify()
	})
}

// Case 56.
func TestCancelAgainstClaimAndAgainstFinish(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		const rounds = 20
		h.has("ann", rounds)
		cancelled := 0
		for i := range rounds {
			made := h.job("ann", fmt.Sprint("m", i), 0)
			cancel := func() holdfast.Outcome {
				o, err := h.Submit(context.Background(), holdfast.Command{Project: "p", Target: made.Owner.ID, Do: holdfast.Cancel{ReservationID: made.Reservation.ID}})
				if err != nil {
					t.Error(err)
				}
				return o
			}
			var claimed []engine.Claimed
			var outcome holdfast.Outcome
			var both sync.WaitGroup
			both.Go(func() { claimed = h.claim("w", 1) })
			both.Go(func() { outcome = cancel() })
			both.Wait()
			switch {
			case len(claimed) == 0 && !outcome.Refused():
				cancelled++
			case len(claimed) == 1 && outcome.Reason == holdfast.AlreadyRunning:
				var finished, late holdfast.Outcome
				both.Go(func() { finished = h.on(claimed[0], commitIt) })
				both.Go(func() { late = cancel() })
				both.Wait()
				if finished.Refused() || !late.Refused() {
					t.Errorf("finished %q, cancelled %q", finished.Reason, late.Reason)
				}
			default:
				t.Errorf("%d claimed, and the cancel was answered %q", len(claimed), outcome.Reason)
			}
		}
		h.wantPayloads(h.claim("w", 50), "")
		h.wantBalance("ann", fmt.Sprintf("available=%d held=0 active=0", cancelled))
		h.verify()
	})
}

func TestAWaitingJobExpiresAndOneInDoubtIsNotGivenAway(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		h.has("ann", 5)
		h.job("ann", "doubt", 0)
		job := h.claim("w1", 1)[0]
		h.done(h.on(job, func(id holdfast.ID, token string) holdfast.Operation {
			return holdfast.InDoubt{ReservationID: id, LeaseToken: token}
		}))
		if got := h.on(job, retryIt("failed")); got.Reason != holdfast.Invalid || got.Problems[0].Field != "retry" {
			t.Errorf("a retry of work in doubt: %q %v", got.Reason, got.Problems)
		}
		h.pass(2 * time.Minute)
		h.job("ann", "waits", 0)
		h.wantPayloads(h.claim("w2", 5), `"waits"`)
		h.job("ann", "expires", 0)
		h.pass(5 * time.Minute)
		if err := h.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.wantPayloads(h.claim("w3", 5), ``)
		h.wantBalance("ann", "available=5 held=0 active=0")
		h.verify()
	})
}

func TestTheJobsOfADeletedAccountAreGone(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		h.has("ann", 5)
		h.job("ann", "m", 0)
		h.done(h.do("ann", "", holdfast.DeleteAccount{}))
		h.wantPayloads(h.claim("w", 5), ``)
		queues, err := s.(store.Jobs).Queues(t.Context(), h.Now())
		if err != nil || len(queues) != 0 {
			t.Errorf("%v is left (%v)", queues, err)
		}
	})
}

func TestAWaitingClaimIsWokenByANewJobAndByTheEndOfALease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memoryStore(t), func(o *engine.Options) { o.Now = time.Now })
		h.has("ann", 5)
		long := engine.ClaimRequest{Project: "p", Claim: holdfast.Claim{Queue: drawQueue, Limit: 2, Wait: 50 * time.Second, Lease: 10 * time.Second}}
		got := make(chan []engine.Claimed, 2)
		for range 2 {
			go func() {
				jobs, err := h.Claim(context.Background(), long)
				if err != nil {
					t.Error(err)
				}
				got <- jobs
			}()
		}
		synctest.Wait()
		time.Sleep(3 * time.Second)
		synctest.Wait()
		before := time.Now()
		h.job("ann", "m", 0)
		h.wantPayloads(<-got, `"m"`)
		if waited := time.Since(before); waited != 0 {
			t.Errorf("the claim was woken after %s", waited)
		}
		h.wantPayloads(<-got, `"m"`) // which the first has lost
		if waited := time.Since(before); waited < 10*time.Second || waited > 12*time.Second {
			t.Errorf("the lost job was given away after %s", waited)
		}
		go func() {
			jobs, err := h.Claim(context.Background(), long)
			if err != nil || len(jobs) != 0 {
				t.Errorf("%v %v", jobs, err)
			}
			got <- jobs
		}()
		synctest.Wait()
		began := time.Now()
		h.StopClaims()
		<-got
		if time.Since(began) != 0 {
			t.Error("a stopped claim went on waiting")
		}
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAClaimWhoseCallerLeftHoldsNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		h := open(t, leaving{s, s.(store.Jobs), leave})
		h.has("ann", 1)
		h.job("ann", "m", 1)
		request := engine.ClaimRequest{Project: "p", Claim: holdfast.Claim{Queue: drawQueue}}
		if jobs, err := h.Claim(ctx, request); err == nil || len(jobs) > 0 {
			t.Fatalf("%v %v", jobs, err)
		}
		job := h.wantPayloads(h.claim("w", 1), `"m"`)[0]
		if j := job.Outcome.Reservation.Job; j.Crashes+j.Errors != 0 || j.Attempts[0].End != holdfast.AttemptUnstarted {
			t.Errorf("%+v", j)
		}
	})
}

// leaving is a store whose caller leaves between the start of a job and the reading of its payload.
type leaving struct {
	store.Store
	store.Jobs
	leave func()
}

func (l leaving) Payloads(ctx context.Context, jobs []store.JobRef) ([]string, error) {
	l.leave()
	return l.Jobs.Payloads(ctx, jobs)
}

func TestAClaimThatMakesNoSenseIsRefused(t *testing.T) {
	h := open(t, memoryStore(t))
	for field, claim := range map[string]holdfast.Claim{
		"queue":         {Queue: "Draw queue"},
		"limit":         {Queue: drawQueue, Limit: 51},
		"lease_seconds": {Queue: drawQueue, Lease: time.Second},
		"wait_seconds":  {Queue: drawQueue, Wait: time.Minute},
		"worker":        {Queue: drawQueue, Worker: "a\nb"},
	} {
		_, err := h.Claim(t.Context(), engine.ClaimRequest{Project: "p", Claim: claim})
		var refused *engine.Refused
		if !errors.As(err, &refused) || refused.Outcome.Problems[0].Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	h.has("ann", 9)
	for what, job := range map[string]holdfast.JobRequest{
		"job.payload": {Payload: "{"}, "job.max_attempts": {MaxAttempts: 11},
	} {
		o := h.do("ann", what, holdfast.Reserve{Feature: "draw", Job: &job})
		if o.Reason != holdfast.Invalid || o.Problems[0].Field != what {
			t.Errorf("%s: %q %v", what, o.Reason, o.Problems)
		}
	}
	plain := h.done(h.reserve("ann", "plain"))
	o, err := h.Submit(t.Context(), holdfast.Command{Project: "p", Target: plain.Owner.ID, Do: holdfast.Release{ReservationID: plain.Reservation.ID, Retry: true}})
	if err != nil || o.Reason != holdfast.Invalid {
		t.Errorf("a retry without a job: %q %v", o.Reason, err)
	}
	if o := h.do("ann", "charge", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "draw", Job: &holdfast.JobRequest{}}}); o.Reason != holdfast.Invalid {
		t.Errorf("a charge with a job: %q", o.Reason)
	}
}

func TestAJobIsNoPartOfTheFingerprint(t *testing.T) {
	h := open(t, memoryStore(t))
	h.has("ann", 9)
	first := h.job("ann", "m", 0)
	again := h.done(h.do("ann", "m", holdfast.Reserve{Feature: "draw", Job: &holdfast.JobRequest{Payload: `"other"`}}))
	if !again.Replayed || again.Reservation.ID != first.Reservation.ID || again.Reservation.Job.Queue != drawQueue {
		t.Errorf("%+v", again)
	}
	h.wantPayloads(h.claim("w", 5), `"m"`)
}
