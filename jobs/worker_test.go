package jobs_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/apitest"
	"github.com/holdfast-dev/holdfast/jobs"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
)

// tariff sells one feature for five credits, of which running work can be asked to stop.
var tariff = &holdfast.Catalog{
	Version: 1,
	Units:   []holdfast.Unit{{Name: "credit"}},
	Features: []holdfast.Feature{{
		Name: "draw", Queue: "image", Prices: []holdfast.Price{{Unit: "credit", Amount: 5}}, LongestJob: time.Minute, TTL: 5 * time.Minute,
		Policies: holdfast.Policies{CancelRunning: holdfast.CancelRequest},
	}},
	Plans: []holdfast.Plan{
		{Name: "free", Default: true, Features: []string{"draw"}, MaxActive: 1000, Tier: "priority"},
		{Name: "patient", Features: []string{"draw"}, MaxActive: 1000},
	},
}

// The queues of both tiers; workers of tests take jobs of the first one where they name none.
const (
	queue        = "image.priority"
	patientQueue = "image.standard"
)

// shop is an engine on a store in memory, on the fake clock of a bubble.
type shop struct {
	*engine.Engine
	t     *testing.T
	store *memory.Store
	log   lockedBuffer
	stops []func()
}

type lockedBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Count(b.text.Bytes(), []byte(text))
}

func inBubble(t *testing.T, test func(t *testing.T, s *shop)) {
	synctest.Test(t, func(t *testing.T) {
		s := &shop{t: t, store: memory.Open()}
		s.Engine = engine.New(s.store, engine.Options{Catalog: func(string) *holdfast.Catalog { return tariff }, Logger: s.logger(), SweepEvery: time.Second})
		ctx, cancel := context.WithCancel(context.Background())
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx) }()
		test(t, s)
		for _, stop := range s.stops {
			stop()
		}
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

func (s *shop) logger() *slog.Logger { return slog.New(slog.NewTextHandler(&s.log, nil)) }

// work runs a worker until the test ends, or until it is stopped.
func (s *shop) work(w *jobs.Worker) (stop func()) {
	w.Source, w.Project, w.Queue, w.Logger = s.Engine, "p", cmp.Or(w.Queue, queue), s.logger()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx); err != nil {
			s.t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	s.stops = append(s.stops, stop)
	return stop
}

func (s *shop) submit(command holdfast.Command) holdfast.Outcome {
	s.t.Helper()
	command.Project = "p"
	o, err := s.Submit(context.Background(), command)
	if err != nil {
		s.t.Fatal(err)
	}
	return o
}

func (s *shop) has(account string, credits holdfast.Amount) {
	s.submit(holdfast.Command{Account: account, Do: holdfast.PutAccount{}})
	s.submit(holdfast.Command{Account: account, Key: "g", Do: holdfast.AddGrant{Unit: "credit", Amount: credits, Source: holdfast.FromPurchase}})
}

func (s *shop) job(account, key string, attempts int) holdfast.Outcome {
	s.t.Helper()
	o := s.submit(holdfast.Command{Account: account, Key: key, Do: holdfast.Reserve{Feature: "draw", Job: &holdfast.JobRequest{Payload: `"` + key + `"`, MaxAttempts: attempts}}})
	if o.Refused() {
		s.t.Fatalf("refused: %s", o.Reason)
	}
	return o
}

// is compares the reservation with what it should have come to.
func (s *shop) is(made holdfast.Outcome, want string) {
	s.t.Helper()
	page, err := s.Read(context.Background(), store.Query{Kind: store.QueryReservations, Project: "p", Account: made.Owner.ID, Reservation: made.Reservation.ID, Limit: 1})
	if err != nil {
		s.t.Fatal(err)
	}
	r := page.Reservations[0]
	got := fmt.Sprintf("%s used=%d cause=%s crashes=%d errors=%d", r.State, r.Used, r.Cause, r.Job.Crashes, r.Job.Errors)
	for _, a := range r.Job.Attempts {
		got += fmt.Sprintf(" [%s %s]", a.End, a.Cause)
	}
	if got != want {
		s.t.Errorf("came to\n\t%s, want\n\t%s", got, want)
	}
}

func (s *shop) verify() {
	s.t.Helper()
	err := s.store.Dump(context.Background(), func(r store.Record) error {
		differences, err := holdfast.Verify(&r.Account, r.Grants, r.Reservations, r.Entries)
		for _, difference := range differences {
			s.t.Error(difference)
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

func TestWhatAHandlerReturnsDecidesWhatBecomesOfItsJob(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		s.has("ann", 100)
		made := map[string]holdfast.Outcome{}
		for _, what := range []string{"whole", "part", "flaky", "hopeless", "refused", "doubt", "panics", "exits"} {
			made[what] = s.job("ann", what, 2)
		}
		s.work(&jobs.Worker{Name: "w", Concurrency: 3, Handle: func(ctx context.Context, job *jobs.Job) error {
			switch string(job.Payload) {
			case `"part"`:
				job.Charge(2)
			case `"flaky"`:
				if job.Attempt == 1 {
					return jobs.Retry("rate_limited", nil)
				}
			case `"hopeless"`:
				return errors.New("broken")
			case `"refused"`:
				return jobs.Fail("content_refused", errors.New("no"))
			case `"doubt"`:
				return fmt.Errorf("cut off: %w", engine.ErrInDoubt)
			case `"panics"`:
				panic("oh")
			case `"exits"`:
				if job.Attempt == 1 {
					runtime.Goexit()
				}
			}
			return nil
		}})
		time.Sleep(30 * time.Second)
		synctest.Wait()
		s.is(made["whole"], "committed used=5 cause= crashes=0 errors=0 [committed ]")
		s.is(made["part"], "committed used=2 cause= crashes=0 errors=0 [committed ]")
		s.is(made["flaky"], "committed used=5 cause= crashes=0 errors=1 [failed rate_limited] [committed ]")
		s.is(made["hopeless"], "released used=0 cause=failed crashes=0 errors=2 [failed failed] [failed failed]")
		s.is(made["refused"], "released used=0 cause=content_refused crashes=0 errors=0 [released content_refused]")
		s.is(made["doubt"], "running used=0 cause= crashes=0 errors=0 [ ]")
		s.is(made["panics"], "released used=0 cause=crashed crashes=2 errors=0 [crashed crashed] [crashed crashed]")
		s.is(made["exits"], "committed used=5 cause= crashes=1 errors=0 [crashed crashed] [committed ]")
		if n := s.log.count("panic: oh"); n != 2 {
			t.Errorf("the panics were logged %d times", n)
		}
		s.verify()
	})
}

// Case 25: the heartbeat lives, and the handler hangs.
func TestAHandlerThatHangsIsBoundedByTheLongestJob(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		s.has("ann", 100)
		hung, next := s.job("ann", "hangs", 2), s.job("ann", "next", 2)
		release := make(chan struct{})
		var causes []error
		s.work(&jobs.Worker{Name: "hangs", Handle: func(ctx context.Context, job *jobs.Job) error {
			<-ctx.Done()
			causes = append(causes, context.Cause(ctx))
			<-release
			job.Charge(1) // nobody listens any more
			return nil
		}})
		synctest.Wait()
		time.Sleep(69 * time.Second)
		synctest.Wait()
		s.is(hung, "running used=0 cause= crashes=0 errors=0 [ ]")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.is(hung, "reserved used=0 cause= crashes=0 errors=1 [failed timed_out]")
		s.is(next, "reserved used=0 cause= crashes=0 errors=0") // the only slot is still taken
		s.work(&jobs.Worker{Name: "other", Handle: func(context.Context, *jobs.Job) error { return nil }})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.is(hung, "committed used=5 cause= crashes=0 errors=1 [failed timed_out] [committed ]")
		s.is(next, "committed used=5 cause= crashes=0 errors=0 [committed ]")
		close(release)
		synctest.Wait()
		if len(causes) != 1 || !errors.Is(causes[0], jobs.ErrTooLong) {
			t.Errorf("its context ended with %v", causes)
		}
		s.verify()
	})
}

func TestAHandlerLearnsThatItsLeaseIsLostOrThatItIsAskedToStop(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		s.has("ann", 100)
		lost, asked := s.job("ann", "lost", 0), s.job("ann", "asked", 0)
		var mu sync.Mutex
		causes := map[string]error{}
		s.work(&jobs.Worker{Name: "w", Concurrency: 2, Handle: func(ctx context.Context, job *jobs.Job) error {
			<-ctx.Done()
			mu.Lock()
			causes[string(job.Payload)] = context.Cause(ctx)
			mu.Unlock()
			job.Charge(3)
			return ctx.Err()
		}})
		synctest.Wait()
		s.submit(holdfast.Command{Target: lost.Owner.ID, Do: holdfast.Force{ReservationID: lost.Reservation.ID, End: holdfast.EndRelease, Reason: "stuck"}})
		s.submit(holdfast.Command{Target: asked.Owner.ID, Do: holdfast.Cancel{ReservationID: asked.Reservation.ID}})
		time.Sleep(21 * time.Second) // a third of the lease
		synctest.Wait()
		if !errors.Is(causes[`"lost"`], engine.ErrLeaseLost) || !errors.Is(causes[`"asked"`], engine.ErrCancelRequested) {
			t.Errorf("the causes were %v", causes)
		}
		s.is(lost, "released used=0 cause=forced crashes=0 errors=0 [released forced]")
		s.is(asked, "committed used=3 cause= crashes=0 errors=0 [committed ]")
		s.verify()
	})
}

func TestWorkThatWasAskedToStopIsNeverTriedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		s.has("ann", 100)
		asked := s.job("ann", "asked", 5)
		s.work(&jobs.Worker{Name: "w", Handle: func(ctx context.Context, job *jobs.Job) error {
			time.Sleep(5 * time.Second)
			return jobs.Retry("rate_limited", nil)
		}})
		synctest.Wait()
		s.submit(holdfast.Command{Target: asked.Owner.ID, Do: holdfast.Cancel{ReservationID: asked.Reservation.ID}})
		time.Sleep(6 * time.Second)
		synctest.Wait()
		s.is(asked, "released used=0 cause=cancelled crashes=0 errors=1 [failed rate_limited]")
		s.verify()
	})
}

func TestAStoppedWorkerFinishesWhatItHasAndGivesTheRestBack(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		s.has("ann", 100)
		short, long := s.job("ann", "short", 0), s.job("ann", "long", 0)
		stop := s.work(&jobs.Worker{Name: "w", Concurrency: 2, StopFor: 20 * time.Second, Handle: func(ctx context.Context, job *jobs.Job) error {
			work := 10 * time.Second
			if string(job.Payload) == `"long"` {
				work = 50 * time.Second
			}
			select {
			case <-time.After(work):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}})
		synctest.Wait()
		began := time.Now()
		waiting := s.job("ann", "waiting", 0)
		stop()
		if took := time.Since(began); took != 20*time.Second {
			t.Errorf("it stopped after %s", took)
		}
		s.is(short, "committed used=5 cause= crashes=0 errors=0 [committed ]")
		s.is(long, "reserved used=0 cause= crashes=0 errors=1 [failed stopped]")
		s.is(waiting, "reserved used=0 cause= crashes=0 errors=0")
		s.verify()
	})
}

// slow is a source whose claims are answered when their caller has been told to stop.
type slow struct {
	jobs.Source
	stop func()
}

func (s slow) Claim(ctx context.Context, request engine.ClaimRequest) ([]engine.Claimed, error) {
	claimed, err := s.Source.Claim(context.WithoutCancel(ctx), request)
	s.stop()
	return claimed, err
}

func TestJobsThatWereClaimedAndNotBegunGoBackUncounted(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		s.has("ann", 100)
		made := s.job("ann", "m", 1)
		ctx, cancel := context.WithCancel(context.Background())
		w := jobs.Worker{
			Source: slow{s.Engine, cancel}, Project: "p", Queue: queue, Logger: s.logger(),
			Handle: func(context.Context, *jobs.Job) error { return errors.New("it was begun") },
		}
		if err := w.Run(ctx); err != nil {
			t.Fatal(err)
		}
		s.is(made, "reserved used=0 cause= crashes=0 errors=0 [unstarted ]")
	})
}

func TestAWorkerHandlesNoMoreJobsAtOnceThanItHasSlots(t *testing.T) {
	inBubble(t, func(t *testing.T, s *shop) {
		s.has("ann", 500)
		for i := range 50 {
			s.job("ann", fmt.Sprint("m", i), 0)
		}
		var now, most, done atomic.Int64
		s.work(&jobs.Worker{Name: "w", Concurrency: 4, Handle: func(context.Context, *jobs.Job) error {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Second)
			now.Add(-1)
			done.Add(1)
			return nil
		}})
		time.Sleep(14 * time.Second)
		synctest.Wait()
		if most.Load() != 4 || done.Load() != 50 {
			t.Errorf("%d at once, %d done", most.Load(), done.Load())
		}
		s.verify()
	})
}

func TestAWorkerWithoutWhatItNeedsSaysSo(t *testing.T) {
	if err := (&jobs.Worker{}).Run(t.Context()); err == nil {
		t.Error("it ran")
	}
}

func TestAWorkerWorksOverHTTPAsInProcess(t *testing.T) {
	server := apitest.Start(t, engine.Options{Catalog: func(string) *holdfast.Catalog { return tariff }})
	asks, err := client.New(server.URL, apitest.Key, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer asks.Close()
	do := func(key string, op holdfast.Operation) holdfast.Outcome {
		t.Helper()
		o, err := asks.Submit(t.Context(), holdfast.Command{Account: "ann", Key: key, Do: op})
		if err != nil || o.Refused() {
			t.Fatalf("%s: %v %s %v", op.Name(), err, o.Reason, o.Problems)
		}
		return o
	}
	do("", holdfast.PutAccount{})
	do("g", holdfast.AddGrant{Unit: "credit", Amount: 100, Source: holdfast.FromPurchase})
	made := do("m", holdfast.Reserve{Feature: "draw", Job: &holdfast.JobRequest{Payload: `{"prompt": "лиса"}`, MaxAttempts: 2}})
	if made.Reservation.Job == nil || made.Reservation.Job.Queue != queue || made.Reservation.Job.MaxAttempts != 2 {
		t.Errorf("reserved %+v", made.Reservation.Job)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var seen []string
	w := jobs.Worker{Source: asks, Queue: queue, Name: "w", Handle: func(_ context.Context, job *jobs.Job) error {
		seen = append(seen, fmt.Sprintf("%d %s", job.Attempt, job.Payload))
		if job.Attempt == 1 {
			return errors.New("once more")
		}
		job.Charge(4)
		defer cancel()
		return nil
	}, Logger: slog.New(slog.DiscardHandler)}
	if err := w.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if want := []string{`1 {"prompt":"лиса"}`, `2 {"prompt":"лиса"}`}; fmt.Sprint(seen) != fmt.Sprint(want) {
		t.Errorf("handled %q, want %q", seen, want)
	}
	shown, err := asks.Reservation(t.Context(), holdfast.ReservationRef.Encode(made.Owner.ID, made.Reservation.ID))
	if err != nil {
		t.Fatal(err)
	}
	if j := shown.Job; shown.Used != 4 || j.Errors != 1 || len(j.Attempts) != 2 || j.Attempts[1].End != "committed" || j.Attempts[0].Worker != "w" {
		t.Errorf("it came to %+v %+v", shown.Reservation, j)
	}
}
