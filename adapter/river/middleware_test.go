package river

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/jobs"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
)

// tariff sells a feature for five credits: draw is held for an hour at most, film for a day.
var tariff = &holdfast.Catalog{
	Version: 1,
	Units:   []holdfast.Unit{{Name: "credit"}},
	Features: []holdfast.Feature{
		{
			Name: "draw", Prices: []holdfast.Price{{Unit: "credit", Amount: 5}}, LongestJob: time.Minute, TTL: 5 * time.Minute, MaxHold: time.Hour,
			Policies: holdfast.Policies{CancelRunning: holdfast.CancelRequest},
		},
		{Name: "film", Prices: []holdfast.Price{{Unit: "credit", Amount: 5}}, LongestJob: time.Minute, TTL: 5 * time.Minute, MaxHold: 24 * time.Hour},
	},
	Plans: []holdfast.Plan{{Name: "free", Default: true, Features: []string{"draw", "film"}, MaxActive: 100}},
}

const project = "shop"

// shop is an engine on a store in memory, on the fake clock of a bubble.
type shop struct {
	*engine.Engine
	t    *testing.T
	log  bytes.Buffer
	keys int
}

func inBubble(t *testing.T, test func(t *testing.T, s *shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &shop{t: t}
		s.Engine = engine.New(memory.Open(), engine.Options{Catalog: func(string) *holdfast.Catalog { return tariff }, SweepEvery: time.Second})
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx) }()
		defer func() {
			cancel()
			if err := <-served; err != nil {
				t.Error(err)
			}
		}()
		s.submit(holdfast.PutAccount{})
		s.submit(holdfast.AddGrant{Unit: "credit", Amount: 100, Source: holdfast.FromPurchase})
		test(t, s)
	})
}

func (s *shop) submit(do holdfast.Operation) holdfast.Outcome {
	s.t.Helper()
	s.keys++
	o, err := s.Submit(context.Background(), holdfast.Command{Project: project, Account: "ann", Key: fmt.Sprint("k", s.keys), Do: do})
	if err != nil || o.Refused() {
		s.t.Fatalf("%s: %v %s", do.Name(), err, o.Reason)
	}
	return o
}

// job is one that was inserted with a reservation, as River gives it to its first of three attempts.
func (s *shop) job(feature string) (*rivertype.JobRow, holdfast.Outcome) {
	s.t.Helper()
	o := s.submit(holdfast.Reserve{Feature: feature})
	metadata, err := named([]byte(`{"theirs": 1}`), holdfast.ReservationRef.Encode(o.Owner.ID, o.Reservation.ID))
	if err != nil {
		s.t.Fatal(err)
	}
	return &rivertype.JobRow{ID: 1, Attempt: 1, MaxAttempts: 3, Metadata: metadata, AttemptedBy: []string{"host-1"}}, o
}

func (s *shop) middleware() *Middleware {
	return &Middleware{Engine: s.Engine, Project: project, Logger: slog.New(slog.NewTextHandler(&s.log, nil))}
}

// is compares the reservation with what it should have come to.
func (s *shop) is(made holdfast.Outcome, want string) {
	s.t.Helper()
	r := s.read(made)
	got := fmt.Sprintf("%s used=%d", r.State, r.Used)
	if r.Cause != "" {
		got += " " + r.Cause
	}
	if r.InDoubt {
		got += " in doubt"
	}
	if got != want {
		s.t.Errorf("the reservation is %s, want %s", got, want)
	}
}

func (s *shop) read(made holdfast.Outcome) *holdfast.Reservation {
	s.t.Helper()
	page, err := s.Read(context.Background(), store.Query{Kind: store.QueryReservations, Project: project, Account: made.Owner.ID, Reservation: made.Reservation.ID, Limit: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	return page.Reservations[0]
}

// told is what River makes of what the middleware has returned.
func told(err error) string {
	var cancel *rivertype.JobCancelError
	var snooze *rivertype.JobSnoozeError
	switch {
	case err == nil:
		return "done"
	case errors.As(err, &snooze):
		return fmt.Sprint("snoozed ", snooze.Duration.Round(time.Second))
	case errors.As(err, &cancel):
		return "cancelled"
	}
	return "failed"
}

func nobody(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("the worker was called")
		return nil
	}
}

var errAway = errors.New("the provider is away")

// Every way in which a worker can return, in an attempt that is not the last one and in the last one.
func TestEveryEndOfAnAttemptIsThatOfItsReservation(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("ask the provider: %w", err) }
	for what, then := range map[string]struct {
		returns     error
		first, last string
	}{
		"nil":                 {nil, "done, committed used=5", "done, committed used=5"},
		"an error":            {errAway, "failed, running used=0", "failed, released used=0 failed"},
		"a retry":             {jobs.Retry("rate_limited", errAway), "failed, running used=0", "failed, released used=0 rate_limited"},
		"an end":              {wrapped(jobs.Fail("content_refused", errAway)), "cancelled, released used=0 content_refused", "cancelled, released used=0 content_refused"},
		"doubt":               {wrapped(engine.ErrInDoubt), "cancelled, running used=0 in doubt", "cancelled, running used=0 in doubt"},
		"River's cancel":      {wrapped(riverqueue.JobCancel(errAway)), "cancelled, released used=0 cancelled", "cancelled, released used=0 cancelled"},
		"a cancel for reason": {riverqueue.JobCancel(jobs.Fail("content_refused", errAway)), "cancelled, released used=0 content_refused", "cancelled, released used=0 content_refused"},
		"a snooze":            {riverqueue.JobSnooze(20 * time.Minute), "snoozed 20m0s, running used=0", "snoozed 20m0s, running used=0"},
		"too long":            {context.DeadlineExceeded, "failed, running used=0", "failed, released used=0 failed"},
		"handed over":         {holdfast.Detached, "done, running used=0", "done, running used=0"},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *shop) {
				for attempt, want := range map[int]string{1: then.first, 3: then.last} {
					job, made := s.job("draw")
					job.Attempt = attempt
					err := s.middleware().Work(t.Context(), job, func(context.Context) error { return then.returns })
					river, reservation := told(err), s.read(made)
					got := fmt.Sprintf("%s, %s used=%d", river, reservation.State, reservation.Used)
					if reservation.Cause != "" {
						got += " " + reservation.Cause
					}
					if reservation.InDoubt {
						got += " in doubt"
					}
					if got != want {
						t.Errorf("attempt %d: %s, want %s (%v)", attempt, got, want, err)
					}
					if then.returns != nil && err != nil && river != "snoozed" && !errors.Is(err, then.returns) && !errors.Is(err, errAway) {
						t.Errorf("attempt %d: River is told %v, which hides %v", attempt, err, then.returns)
					}
				}
			})
		})
	}
}

func TestAJobThatFailsKeepsItsReservationAndIsChargedOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		job, made := s.job("draw")
		m, calls, ids := s.middleware(), 0, map[string]bool{}
		work := func(ctx context.Context) error {
			calls++
			ids[Work(ctx).ID] = true
			time.Sleep(30 * time.Second)
			if calls < 3 {
				return errAway
			}
			Work(ctx).Charge(3)
			return nil
		}
		for job.Attempt = 1; job.Attempt <= 3; job.Attempt++ {
			err := m.Work(t.Context(), job, work)
			if job.Attempt == 3 {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if told(err) != "failed" {
				t.Fatalf("attempt %d: %v", job.Attempt, err)
			}
			s.is(made, "running used=0")
			job.Errors = append(job.Errors, rivertype.AttemptError{})
			time.Sleep(20 * time.Second) // as long as River waits after the second one
		}
		s.is(made, "committed used=3")
		if calls != 3 || len(ids) != 1 || !ids[Reservation(job)] {
			t.Errorf("%d attempts under the ids %v", calls, ids)
		}
	})
}

func TestAnAttemptThatComesBeforeTheLeaseOfTheLastOneHasLapsedWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		job, made := s.job("draw")
		m := s.middleware()
		_ = m.Work(t.Context(), job, func(context.Context) error { return errAway })
		job.Attempt = 2
		time.Sleep(time.Second)
		if err := m.Work(t.Context(), job, nobody(t)); told(err) != "snoozed 4s" {
			t.Fatal(err)
		}
		time.Sleep(4*time.Second + time.Millisecond)
		if err := m.Work(t.Context(), job, func(context.Context) error { return nil }); err != nil {
			t.Fatal(err)
		}
		s.is(made, "committed used=5")
	})
}

func TestAReservationIsHeldWhileItsJobWaitsForTheNextAttempt(t *testing.T) {
	for what, then := range map[string]struct {
		wait    time.Duration
		returns func(time.Duration) error
	}{
		"a snooze":     {50 * time.Minute, riverqueue.JobSnooze},
		"a late retry": {40 * time.Minute, func(time.Duration) error { return errAway }},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *shop) {
				job, made := s.job("draw")
				m := s.middleware()
				m.NextRetry = func(*rivertype.JobRow) time.Time { return time.Now().Add(then.wait) }
				_ = m.Work(t.Context(), job, func(context.Context) error { return then.returns(then.wait) })
				time.Sleep(then.wait)
				s.is(made, "running used=0")
				if err := m.Work(t.Context(), job, func(context.Context) error { return nil }); err != nil {
					t.Fatal(err)
				}
				s.is(made, "committed used=5")
			})
		})
	}
}

func TestAReservationThatCannotBeHeldUntilTheNextAttemptEndsAtOnce(t *testing.T) {
	for what, returns := range map[string]error{"a snooze": riverqueue.JobSnooze(2 * time.Hour), "an error": errAway} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *shop) {
				job, made := s.job("draw")
				m := s.middleware()
				m.NextRetry = func(*rivertype.JobRow) time.Time { return time.Now().Add(2 * time.Hour) }
				err := m.Work(t.Context(), job, func(context.Context) error { return returns })
				var cancel *rivertype.JobCancelError
				if !errors.As(err, &cancel) || !errors.Is(err, errNotHeld) {
					t.Errorf("River is told %v", err)
				}
				s.is(made, "released used=0 failed")
			})
		})
	}
}

func TestAReservationWaitsForRiverToMissItsWorkerWhereItMayBeHeldForSoLong(t *testing.T) {
	for feature, want := range map[string]time.Duration{"film": rescueAfter + rescueEvery + time.Second + 5*time.Minute, "draw": 5 * time.Minute} {
		inBubble(t, func(t *testing.T, s *shop) {
			job, made := s.job(feature)
			_ = s.middleware().Work(t.Context(), job, func(context.Context) error {
				if rest := time.Until(s.read(made).ExpiresAt); (rest - want).Abs() > time.Second {
					t.Errorf("%s: it expires in %s, want %s", feature, rest, want)
				}
				return nil
			})
		})
	}
}

func TestAPanicCountsAsACrashAndGoesOnToRiver(t *testing.T) {
	for attempt, want := range map[int]string{1: "running used=0", 3: "released used=0 crashed"} {
		inBubble(t, func(t *testing.T, s *shop) {
			job, made := s.job("draw")
			job.Attempt = attempt
			panicked := func() (value any) {
				defer func() { value = recover() }()
				_ = s.middleware().Work(t.Context(), job, func(context.Context) error { panic("boom") })
				return nil
			}()
			if panicked != "boom" {
				t.Errorf("River is told of %v", panicked)
			}
			s.is(made, want)
			if !bytes.Contains(s.log.Bytes(), []byte("TestAPanicCountsAsACrashAndGoesOnToRiver")) {
				t.Errorf("the log does not say where: %s", &s.log)
			}
		})
	}
}

func TestWhatHasEndedIsNotWorkedOnAgain(t *testing.T) {
	for what, then := range map[string]struct {
		before func(s *shop, made holdfast.Outcome)
		want   string
		is     string
	}{
		"committed": {func(s *shop, made holdfast.Outcome) {
			s.submit(holdfast.Commit{ReservationID: made.Reservation.ID})
		}, "done", "committed used=5"},
		"released": {func(s *shop, made holdfast.Outcome) {
			s.submit(holdfast.Cancel{ReservationID: made.Reservation.ID})
		}, "cancelled", "released used=0 cancelled"},
		"expired": {func(*shop, holdfast.Outcome) { time.Sleep(6 * time.Minute) }, "cancelled", "expired used=0"},
		"in doubt": {func(s *shop, made holdfast.Outcome) {
			started := s.submit(holdfast.Start{ReservationID: made.Reservation.ID, Token: "t"})
			s.submit(holdfast.InDoubt{ReservationID: made.Reservation.ID, LeaseToken: started.Lease.Token})
		}, "cancelled", "running used=0 in doubt"},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *shop) {
				job, made := s.job("draw")
				then.before(s, made)
				if err := s.middleware().Work(t.Context(), job, nobody(t)); told(err) != then.want {
					t.Errorf("River is told %v, want %s", err, then.want)
				}
				s.is(made, then.is)
			})
		})
	}
}

func TestAReservationThatNobodyKnowsIsNoReasonToWork(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		for _, id := range []string{"rsv_of_nobody", holdfast.ReservationRef.Encode(holdfast.AccountIDOf(project, "ann"), holdfast.ID{15: 1})} {
			metadata, err := named(nil, id)
			if err != nil {
				t.Fatal(err)
			}
			job := &rivertype.JobRow{Attempt: 1, MaxAttempts: 3, Metadata: metadata}
			if err := s.middleware().Work(t.Context(), job, nobody(t)); told(err) != "cancelled" {
				t.Errorf("%s: %v", id, err)
			}
		}
	})
}

func TestAJobWithoutAReservationPassesThrough(t *testing.T) {
	for _, metadata := range []string{"", "{}", `{"theirs": 1}`} {
		called := false
		job := &rivertype.JobRow{Attempt: 1, MaxAttempts: 3, Metadata: []byte(metadata)}
		err := (&Middleware{}).Work(t.Context(), job, func(ctx context.Context) error {
			called = Work(ctx) == nil
			return errAway
		})
		if !called || !errors.Is(err, errAway) {
			t.Errorf("%s: called %v, %v", metadata, called, err)
		}
	}
}

func TestWorkThatThePersonAsksToStopIsSettledAndNotTriedAgain(t *testing.T) {
	for what, then := range map[string]struct {
		work func(ctx context.Context) error
		want string
		is   string
	}{
		"with a figure": {func(ctx context.Context) error {
			Work(ctx).Charge(2)
			return ctx.Err()
		}, "cancelled", "committed used=2"},
		"without one": {func(ctx context.Context) error { return ctx.Err() }, "cancelled", "released used=0 cancelled"},
		"whole":       {func(ctx context.Context) error { Work(ctx).Charge(5); return nil }, "done", "committed used=5"},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *shop) {
				job, made := s.job("draw")
				err := s.middleware().Work(t.Context(), job, func(ctx context.Context) error {
					s.submit(holdfast.Cancel{ReservationID: made.Reservation.ID})
					<-ctx.Done()
					return then.work(ctx)
				})
				if told(err) != then.want {
					t.Errorf("River is told %v, want %s", err, then.want)
				}
				s.is(made, then.is)
			})
		})
	}
}

func TestAClientThatStopsKeepsTheReservationAlsoInTheLastAttempt(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		job, made := s.job("draw")
		job.Attempt = 3
		ctx, stop := context.WithCancelCause(t.Context())
		err := s.middleware().Work(ctx, job, func(ctx context.Context) error {
			stop(errors.New("stop initiated"))
			return fmt.Errorf("ask the provider: %w", ctx.Err())
		})
		if !errors.Is(err, context.Canceled) || told(err) != "failed" {
			t.Errorf("River is told %v", err)
		}
		s.is(made, "running used=0")
	})
}

func TestAJobThatIsCancelledRemotelyReleasesItsReservation(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		job, made := s.job("draw")
		ctx, stop := context.WithCancelCause(t.Context())
		err := s.middleware().Work(ctx, job, func(ctx context.Context) error {
			stop(riverqueue.ErrJobCancelledRemotely)
			return ctx.Err()
		})
		if told(err) != "cancelled" {
			t.Errorf("River is told %v", err)
		}
		s.is(made, "released used=0 cancelled")
	})
}

// failing is a way to the engine that fails before or after some operations have been decided.
type failing struct {
	engine.Submitter
	mu            sync.Mutex
	before, after string // an operation's name
}

func (f *failing) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	lost := &engine.Error{Code: engine.Unavailable, Err: errors.New("the connection broke"), Unknown: true}
	if command.Do.Name() == f.before {
		return holdfast.Outcome{}, lost
	}
	outcome, err := f.Submitter.Submit(ctx, command)
	if command.Do.Name() == f.after {
		return holdfast.Outcome{}, lost
	}
	return outcome, err
}

// The next attempt finds out how the last one ended.
func TestWhatCouldNotBeToldIsFoundOutByTheNextAttempt(t *testing.T) {
	for what, then := range map[string]struct {
		broken *failing
		works  bool // again
	}{
		"the start was not decided":         {&failing{before: "start"}, true},
		"the answer to the start was lost":  {&failing{after: "start"}, true},
		"the commit was not decided":        {&failing{before: "commit"}, true},
		"the answer to the commit was lost": {&failing{after: "commit"}, false},
		"nothing can be extended":           {&failing{before: "extend"}, false},
		"heartbeats do not come through":    {&failing{before: "heartbeat"}, false},
	} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *shop) {
				job, made := s.job("draw")
				m := s.middleware()
				then.broken.Submitter = s.Engine
				m.Engine = then.broken
				first := m.Work(t.Context(), job, func(context.Context) error { return nil })
				if then.broken.before != "extend" && then.broken.before != "heartbeat" && told(first) != "failed" {
					t.Fatalf("River is told %v", first)
				}
				then.broken.before, then.broken.after = "", ""
				job.Attempt = 2
				time.Sleep(holdfast.DefaultLease)
				worked := false
				if err := m.Work(t.Context(), job, func(context.Context) error { worked = true; return nil }); err != nil {
					t.Fatal(err)
				}
				if worked != then.works {
					t.Errorf("the second attempt worked: %v", worked)
				}
				s.is(made, "committed used=5")
			})
		})
	}
}

func TestAReservationThatCannotBeKeptNowIsKeptByItsOwnTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		job, made := s.job("draw")
		m := s.middleware()
		m.Engine = &failing{Submitter: s.Engine, before: "extend"}
		if err := m.Work(t.Context(), job, func(context.Context) error { return errAway }); told(err) != "failed" {
			t.Errorf("River is told %v", err)
		}
		s.is(made, "running used=0")
		if !bytes.Contains(s.log.Bytes(), []byte("could not be told that its attempt is over")) {
			t.Errorf("the log says %s", &s.log)
		}
	})
}
