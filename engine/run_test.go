package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/apitest"
	"github.com/holdfast-dev/holdfast/store"
)

// A door is a way to an engine. Every rule of Run is tested through both: in this process, and over the HTTP API.
type door func(*house) engine.Submitter

func eachDoor(t *testing.T, test func(t *testing.T, through door)) {
	t.Run("in process", func(t *testing.T) { test(t, func(h *house) engine.Submitter { return h.Engine }) })
	t.Run("over HTTP", func(t *testing.T) { test(t, overHTTP(nil)) })
}

// overHTTP asks the engine through the real API, without a network. What is between them may be changed.
func overHTTP(between func(http.RoundTripper) http.RoundTripper) door {
	return func(h *house) engine.Submitter {
		h.t.Helper()
		var transport http.RoundTripper = apitest.InMemory{Handler: apitest.Handler(h.t, h.Engine)}
		if between != nil {
			transport = between(transport)
		}
		c, err := client.New("http://holdfast.test", apitest.Key, client.Options{Transport: transport})
		if err != nil {
			h.t.Fatal(err)
		}
		return c
	}
}

func request(key string) engine.Request {
	return engine.Request{Project: apitest.Project, Account: "ann", Key: key, Reserve: holdfast.Reserve{Feature: "draw", Quantity: 5}, Worker: "w1", Lease: 6 * time.Second}
}

func requestOf(key string, reserve holdfast.Reserve) engine.Request {
	r := request(key)
	r.Reserve = reserve
	return r
}

// stoppable sells work that can be asked to stop: a picture at a fixed price, and a talk by usage.
func stoppable(o *engine.Options) {
	catalog := &holdfast.Catalog{
		Version: 1, Units: []holdfast.Unit{{Name: "credit"}},
		Features: []holdfast.Feature{
			{Name: "draw", Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, LongestJob: time.Minute, TTL: 5 * time.Minute, Policies: holdfast.Policies{CancelRunning: holdfast.CancelRequest}},
			{Name: "talk", Prices: []holdfast.Price{{Unit: "credit", Per: 1000, Rates: map[string]holdfast.Amount{"input_token": 1, "output_token": 4}}}, LongestJob: time.Minute, TTL: 5 * time.Minute, Policies: holdfast.Policies{CancelRunning: holdfast.CancelRequest}},
		},
		Plans: []holdfast.Plan{{Name: "free", Default: true, Features: []string{"draw", "talk"}, MaxActive: 10}},
	}
	o.Catalog = func(string) *holdfast.Catalog { return catalog }
}

func (h *house) wantOne(cause string) {
	h.t.Helper()
	page, err := h.Read(h.t.Context(), store.Query{Kind: store.QueryReservations, Project: "p", Account: holdfast.AccountIDOf("p", "ann"), Limit: 10})
	if err != nil || len(page.Reservations) != 1 || page.Reservations[0].Cause != cause {
		h.t.Errorf("want one reservation released as %q: %+v %v", cause, page.Reservations, err)
	}
}

func TestRunChargesWhatTheWorkCameTo(t *testing.T) {
	eachDoor(t, func(t *testing.T, through door) {
		eachStore(t, func(t *testing.T, s store.Store) {
			h := open(t, s)
			h.has("ann", 10)
			to := through(h)
			o, err := engine.Run(t.Context(), to, request("m1"), func(ctx context.Context, w *engine.Work) error {
				h.wantBalance("ann", "available=5 held=5 active=1")
				w.Charge(3)
				return nil
			})
			if err != nil || o.Reservation.Used != 3 || o.Settlement.Returned != 2 {
				t.Errorf("%+v %v", o, err)
			}
			called := false
			_, err = engine.Run(t.Context(), to, request("m1"), func(context.Context, *engine.Work) error { called = true; return nil })
			var refused *engine.Refused
			if !errors.As(err, &refused) || refused.Outcome.Reason != holdfast.AlreadyEnded || called {
				t.Errorf("the same press again: %v, called %v", err, called)
			}
			h.wantBalance("ann", "available=7 held=0 active=0")
			h.verify()
		})
	})
}

func TestRunPricesTheUsageThatTheWorkNamedLast(t *testing.T) {
	eachDoor(t, func(t *testing.T, through door) {
		h := open(t, memoryStore(t), stoppable)
		h.has("ann", 100)
		talk := requestOf("m1", holdfast.Reserve{Feature: "talk", Usage: map[string]holdfast.Amount{"input_token": 2000, "output_token": 4000}})
		o, err := engine.Run(t.Context(), through(h), talk, func(ctx context.Context, w *engine.Work) error {
			for n := range holdfast.Amount(50) { // every part of a stream repeats the total until then
				w.Use(map[string]holdfast.Amount{"input_token": 1200, "output_token": 4096 * (n + 1) / 50})
			}
			return nil
		})
		if err != nil || o.Reservation.Used != 18 || o.Reservation.Reported["output_token"] != 4096 {
			t.Errorf("%+v %v", o.Reservation, err)
		}
		h.wantBalance("ann", "available=82 held=0 active=0")

		talk.Key = "m2"
		_, err = engine.Run(t.Context(), through(h), talk, func(context.Context, *engine.Work) error { return nil })
		var refused *engine.Refused
		if !errors.As(err, &refused) || refused.Outcome.Reason != holdfast.Invalid {
			t.Errorf("work that does not say what it used: %v", err)
		}
		h.wantBalance("ann", "available=82 held=0 active=0")
		h.verify()
	})
}

// Case 4: every exit path ends the hold, and the error is not swallowed.
func TestRunReleasesOnEveryOtherWayOut(t *testing.T) {
	failure := errors.New("the provider is down")
	ways := map[string]struct {
		work  func(ctx context.Context, leave func()) error
		cause string
	}{
		"error":  {func(context.Context, func()) error { return failure }, "failed"},
		"panic":  {func(context.Context, func()) error { panic(failure) }, "crashed"},
		"goexit": {func(context.Context, func()) error { runtime.Goexit(); return nil }, "crashed"},
		"cancelled": {func(ctx context.Context, leave func()) error {
			leave()
			<-ctx.Done()
			return errors.Join(failure, ctx.Err())
		}, "cancelled"},
	}
	eachDoor(t, func(t *testing.T, through door) {
		for name, way := range ways {
			t.Run(name, func(t *testing.T) {
				h := open(t, memoryStore(t))
				h.has("ann", 10)
				to := through(h)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				var err error
				var panicked any
				done := make(chan struct{})
				go func() {
					defer close(done)
					defer func() { panicked = recover() }()
					_, err = engine.Run(ctx, to, request("m1"), func(ctx context.Context, w *engine.Work) error { return way.work(ctx, leave) })
				}()
				<-done
				switch name {
				case "panic":
					if panicked != failure {
						t.Errorf("the panic must go on: %v", panicked)
					}
				case "goexit":
				default:
					if !errors.Is(err, failure) {
						t.Errorf("the error must come back: %v", err)
					}
				}
				h.wantBalance("ann", "available=10 held=0 active=0")
				h.wantOne(way.cause)
				h.verify()
			})
		}
	})
}

// The fourth state of the third article: the job was handed to a background worker, who ends it.
func TestDetachedWorkStaysLiveForItsNewOwner(t *testing.T) {
	eachDoor(t, func(t *testing.T, through door) {
		h := open(t, memoryStore(t))
		h.has("ann", 10)
		var work engine.Work
		if _, err := engine.Run(t.Context(), through(h), request("m1"), func(_ context.Context, w *engine.Work) error {
			work = *w
			return holdfast.Detached
		}); err != nil {
			t.Fatal(err)
		}
		h.wantBalance("ann", "available=5 held=5 active=1")
		h.done(h.do("ann", "", holdfast.Commit{ReservationID: work.Reservation.ID, LeaseToken: work.LeaseToken}))
		h.wantBalance("ann", "available=5 held=0 active=0")
	})
}

// A web server reserves and hands the id over; a worker elsewhere finishes it. The second one to be handed it is refused.
func TestRunFinishesWhatWasReservedElsewhere(t *testing.T) {
	eachDoor(t, func(t *testing.T, through door) {
		h := open(t, memoryStore(t))
		h.has("ann", 10)
		reserved := h.done(h.do("ann", "m1", request("m1").Reserve))
		handed := engine.Request{Project: apitest.Project, Worker: "w1", Reservation: holdfast.ReservationRef.Encode(reserved.Owner.ID, reserved.Reservation.ID)}
		o, err := engine.Run(t.Context(), through(h), handed, func(ctx context.Context, w *engine.Work) error {
			if w.ID != handed.Reservation || w.Reservation.Reserved != 5 {
				t.Errorf("the work is about %s, %+v", w.ID, w.Reservation)
			}
			_, err := engine.Run(ctx, through(h), handed, func(context.Context, *engine.Work) error { return nil })
			var refused *engine.Refused
			if !errors.As(err, &refused) || refused.Outcome.Reason != holdfast.AlreadyRunning {
				t.Errorf("handed over twice: %v", err)
			}
			w.Charge(4)
			return nil
		})
		if err != nil || o.Reservation.Used != 4 {
			t.Errorf("%+v %v", o, err)
		}
		h.wantBalance("ann", "available=6 held=0 active=0")
		handed.Reservation = "rsv_nothing"
		_, err = engine.Run(t.Context(), through(h), handed, func(context.Context, *engine.Work) error { return nil })
		var refused *engine.Refused
		if !errors.As(err, &refused) || refused.Outcome.Reason != holdfast.NotFound {
			t.Errorf("an id that names nothing: %v", err)
		}
	})
}

// The connection to the provider broke: nobody may give the money back, and nobody may charge it yet.
func TestWorkInDoubtKeepsItsMoneyHeldAndFreesItsSlot(t *testing.T) {
	eachDoor(t, func(t *testing.T, through door) {
		h := open(t, memoryStore(t))
		h.has("ann", 10)
		o, err := engine.Run(t.Context(), through(h), request("m1"), func(_ context.Context, w *engine.Work) error {
			return fmt.Errorf("%w: connection reset after the request was sent", engine.ErrInDoubt)
		})
		if !errors.Is(err, engine.ErrInDoubt) || o.Reservation == nil || !o.Reservation.InDoubt {
			t.Fatalf("%+v %v", o.Reservation, err)
		}
		h.wantBalance("ann", "available=5 held=5 active=0")
		h.done(h.do("ann", "", holdfast.Commit{ReservationID: o.Reservation.ID})) // whoever learned it
		h.wantBalance("ann", "available=5 held=0 active=0")
		h.verify()
	})
}

func TestRunKeepsItsLeaseAliveAndStopsWorkThatLostIt(t *testing.T) {
	eachDoor(t, func(t *testing.T, through door) {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, memoryStore(t))
			h.has("ann", 10)
			to := through(h)
			o, err := engine.Run(context.Background(), to, request("m1"), func(ctx context.Context, w *engine.Work) error {
				time.Sleep(time.Minute) // ten leases
				return ctx.Err()
			})
			if err != nil || o.Reservation.State != holdfast.Committed || o.Reservation.Attempts != 1 {
				t.Errorf("a minute of work under a lease of six seconds: %+v %v", o.Reservation, err)
			}
			_, err = engine.Run(context.Background(), to, request("m2"), func(ctx context.Context, w *engine.Work) error {
				h.done(h.do("ann", "", holdfast.Force{ReservationID: w.Reservation.ID, End: holdfast.EndRelease, Reason: "stuck"}))
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if !errors.Is(err, engine.ErrLeaseLost) {
				t.Errorf("work whose reservation was ended by force: %v", err)
			}
			h.wantBalance("ann", "available=5 held=0 active=0")
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	})
}

// While cancelled work winds up, nobody else may begin it.
func TestTheLeaseLivesUntilCancelledWorkHasReturned(t *testing.T) {
	eachDoor(t, func(t *testing.T, through door) {
		synctest.Test(t, func(t *testing.T) {
			h := open(t, memoryStore(t))
			h.has("ann", 10)
			ctx, leave := context.WithCancel(context.Background())
			_, err := engine.Run(ctx, through(h), request("m1"), func(ctx context.Context, w *engine.Work) error {
				leave()
				time.Sleep(time.Minute)
				if o := h.do("ann", "", holdfast.Start{ReservationID: w.Reservation.ID}); o.Reason != holdfast.AlreadyRunning {
					t.Errorf("another worker while this one winds up: %q", o.Reason)
				}
				return ctx.Err()
			})
			if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
			h.wantOne(holdfast.CauseCancelled)
			if err := h.stop(); err != nil {
				t.Error(err)
			}
		})
	})
}

// Section 4 of the rules: held 5, 60 % consumed when the person stops it: 3 charged, 2 returned.
func TestWorkThatIsAskedToStopIsChargedWhatItNamed(t *testing.T) {
	ask := func(h *house, w *engine.Work) {
		h.t.Helper()
		h.done(h.do("ann", "", holdfast.Cancel{ReservationID: w.Reservation.ID}))
	}
	draw := holdfast.Reserve{Feature: "draw", Quantity: 5}
	talk := holdfast.Reserve{Feature: "talk", Usage: map[string]holdfast.Amount{"output_token": 1000}} // 4 credits
	stories := map[string]struct {
		reserve holdfast.Reserve
		work    func(h *house, ctx context.Context, w *engine.Work) error
		err     error // nil: none
		used    holdfast.Amount
		cause   string
		balance string
	}{
		"it names what it used and says why it stopped": {draw, func(h *house, ctx context.Context, w *engine.Work) error {
			ask(h, w)
			<-ctx.Done()
			w.Charge(3)
			return context.Cause(ctx)
		}, engine.ErrCancelRequested, 3, "", "available=7 held=0 active=0"},
		"it names what it used and returns the context's error": {draw, func(h *house, ctx context.Context, w *engine.Work) error {
			ask(h, w)
			<-ctx.Done()
			w.Charge(3)
			return fmt.Errorf("read: %w", ctx.Err())
		}, engine.ErrCancelRequested, 3, "", "available=7 held=0 active=0"},
		"it names what it used and returns nothing": {draw, func(h *house, ctx context.Context, w *engine.Work) error {
			ask(h, w)
			<-ctx.Done()
			w.Charge(3)
			return nil
		}, nil, 3, "", "available=7 held=0 active=0"},
		"it names more than is reserved": {draw, func(h *house, ctx context.Context, w *engine.Work) error {
			ask(h, w)
			<-ctx.Done()
			w.Charge(9)
			return nil
		}, nil, 5, "", "available=5 held=0 active=0"},
		"it names usage": {talk, func(h *house, ctx context.Context, w *engine.Work) error {
			w.Use(map[string]holdfast.Amount{"output_token": 400})
			ask(h, w)
			<-ctx.Done()
			return ctx.Err()
		}, engine.ErrCancelRequested, 2, "", "available=8 held=0 active=0"},
		"it names nothing": {draw, func(h *house, ctx context.Context, w *engine.Work) error {
			ask(h, w)
			<-ctx.Done()
			return nil
		}, engine.ErrCancelRequested, 0, holdfast.CauseCancelled, "available=10 held=0 active=0"},
		"it fails for another reason": {draw, func(h *house, ctx context.Context, w *engine.Work) error {
			ask(h, w)
			<-ctx.Done()
			w.Charge(3)
			return io.ErrUnexpectedEOF
		}, io.ErrUnexpectedEOF, 0, holdfast.CauseFailed, "available=10 held=0 active=0"},
		"it was whole before it was told": {draw, func(h *house, ctx context.Context, w *engine.Work) error {
			ask(h, w)
			return nil
		}, nil, 5, "", "available=5 held=0 active=0"},
		"it had named more before it was told": {draw, func(h *house, ctx context.Context, w *engine.Work) error {
			w.Charge(9)
			ask(h, w)
			return nil
		}, nil, 5, "", "available=5 held=0 active=0"},
	}
	eachDoor(t, func(t *testing.T, through door) {
		for name, story := range stories {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					h := open(t, memoryStore(t), stoppable)
					h.has("ann", 10)
					o, err := engine.Run(context.Background(), through(h), requestOf("m1", story.reserve), func(ctx context.Context, w *engine.Work) error {
						return story.work(h, ctx, w)
					})
					if story.err == nil && err != nil || !errors.Is(err, story.err) {
						t.Errorf("error %v, want %v", err, story.err)
					}
					if o.Reservation == nil || o.Reservation.Used != story.used || o.Reservation.Cause != story.cause {
						t.Errorf("%+v", o.Reservation)
					}
					h.wantBalance("ann", story.balance)
					h.verify()
					if err := h.stop(); err != nil {
						t.Error(err)
					}
				})
			})
		}
	})
}

func TestRunLeavesNothingHeldWhenItsCallerLeavesDuringTheReserve(t *testing.T) {
	eachDoor(t, func(t *testing.T, through door) {
		g := &gate{Store: memoryStore(t)}
		h := open(t, g)
		h.has("ann", 10)
		to := through(h)
		taken, release := g.hold()
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := engine.Run(ctx, to, request("m1"), func(context.Context, *engine.Work) error {
				t.Error("nobody waits for this work")
				return nil
			})
			ended <- err
		}()
		<-taken
		leave()
		release()
		if err := <-ended; err == nil {
			t.Error("the caller must be told")
		}
		h.wantBalance("ann", "available=10 held=0 active=0")
		h.verify()
	})
}

// A cancelled duplicate delivery must not take the work away from the delivery that does it.
func TestRunReleasesOnlyWhatItReserved(t *testing.T) {
	eachDoor(t, func(t *testing.T, through door) {
		g := &gate{Store: memoryStore(t)}
		h := open(t, g)
		h.has("ann", 10)
		to := through(h)
		first := h.done(h.do("ann", "m1", request("m1").Reserve)) // the other delivery's, not started yet
		taken, release := g.hold()
		ctx, leave := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := engine.Run(ctx, to, request("m1"), func(context.Context, *engine.Work) error { return nil })
			ended <- err
		}()
		<-taken
		leave()
		release()
		if err := <-ended; err == nil {
			t.Error("the caller left and must be told")
		}
		h.wantBalance("ann", "available=5 held=5 active=1")
		h.done(h.do("ann", "", holdfast.Start{ReservationID: first.Reservation.ID}))
		h.verify()
	})
}

// lossy loses the answers to some requests, after they have taken effect.
type lossy struct {
	to   http.RoundTripper
	lose func(path string) bool
}

func (l lossy) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := l.to.RoundTrip(r)
	if err == nil && l.lose(r.URL.Path) {
		return nil, io.ErrUnexpectedEOF
	}
	return response, err
}

// Every verb's answer is lost once, after its effect: the work is done once and charged once.
func TestRunOverHTTPSurvivesTheLossOfEveryAnswer(t *testing.T) {
	h := open(t, memoryStore(t))
	h.has("ann", 10)
	lost := map[string]bool{}
	to := overHTTP(func(transport http.RoundTripper) http.RoundTripper {
		return lossy{transport, func(path string) bool {
			first := !lost[path]
			lost[path] = true
			return first
		}}
	})(h)
	var works atomic.Int32
	o, err := engine.Run(t.Context(), to, request("m1"), func(_ context.Context, w *engine.Work) error {
		works.Add(1)
		if len(w.Reservation.Metadata) > 0 {
			t.Errorf("the client's own mark is shown: %v", w.Reservation.Metadata)
		}
		w.Charge(3)
		return nil
	})
	if err != nil || o.Reservation.Used != 3 || works.Load() != 1 {
		t.Errorf("%+v %v, done %d times", o.Reservation, err, works.Load())
	}
	if len(lost) != 3 {
		t.Errorf("answers were lost of %v; want a reserve, a start and a commit", lost)
	}
	h.wantBalance("ann", "available=7 held=0 active=0")
	h.verify()
}

// The reserve succeeds and its answer never arrives; then the server is gone for good. What is told is that it may have
// happened.
func TestRunTellsThatAReserveMayHaveHappened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memoryStore(t))
		h.has("ann", 10)
		to := overHTTP(func(transport http.RoundTripper) http.RoundTripper {
			return lossy{transport, func(path string) bool { return strings.HasSuffix(path, "/reservations") }}
		})(h)
		_, err := engine.Run(context.Background(), to, request("m1"), func(context.Context, *engine.Work) error {
			t.Error("it was never known to be reserved")
			return nil
		})
		var accident *engine.Error
		if !errors.As(err, &accident) || !accident.MayHaveHappened() {
			t.Errorf("%v", err)
		}
		h.wantBalance("ann", "available=5 held=5 active=1") // it expires
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	})
}

// doubtful decides the first command and does not tell; after that nothing works any more.
type doubtful struct {
	engine.Submitter
	asked int
}

func (d *doubtful) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	if d.asked++; d.asked > 1 {
		return holdfast.Outcome{}, &engine.Error{Code: engine.Internal}
	}
	_, _ = d.Submitter.Submit(ctx, command)
	return holdfast.Outcome{}, &engine.Error{Code: engine.OutcomeUnknown}
}

func TestRunDoesNotForgetAnAttemptThatMayHaveHappened(t *testing.T) {
	h := open(t, memoryStore(t))
	h.has("ann", 10)
	_, err := engine.Run(t.Context(), &doubtful{Submitter: h.Engine}, request("m1"), func(context.Context, *engine.Work) error { return nil })
	var accident *engine.Error
	if !errors.As(err, &accident) || accident.Code != engine.Internal || !accident.MayHaveHappened() {
		t.Errorf("%v", err)
	}
	h.wantBalance("ann", "available=5 held=5 active=1") // it expires
}
