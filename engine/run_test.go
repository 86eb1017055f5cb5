package engine_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

func request(key string) engine.Request {
	return engine.Request{Project: "p", Account: "ann", Key: key, Reserve: holdfast.Reserve{Feature: "draw", Quantity: 5}, Worker: "w1", Lease: 6 * time.Second}
}

func TestRunChargesWhatTheWorkCameTo(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		h.has("ann", 10)
		o, err := h.Run(t.Context(), request("m1"), func(ctx context.Context, w *engine.Work) error {
			h.wantBalance("ann", "available=5 held=5 active=1")
			w.Charge(3)
			return nil
		})
		if err != nil || o.Reservation.Used != 3 || o.Settlement.Returned != 2 {
			t.Errorf("%+v %v", o, err)
		}
		called := false
		_, err = h.Run(t.Context(), request("m1"), func(context.Context, *engine.Work) error { called = true; return nil })
		var refused *engine.Refused
		if !errors.As(err, &refused) || refused.Outcome.Reason != holdfast.AlreadyEnded || called {
			t.Errorf("the same press again: %v, called %v", err, called)
		}
		h.wantBalance("ann", "available=7 held=0 active=0")
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
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			h := open(t, memoryStore(t))
			h.has("ann", 10)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			var err error
			var panicked any
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer func() { panicked = recover() }()
				_, err = h.Run(ctx, request("m1"), func(ctx context.Context, w *engine.Work) error { return way.work(ctx, leave) })
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
			page, readErr := h.Read(t.Context(), store.Query{Kind: store.QueryReservations, Project: "p", Account: holdfast.AccountIDOf("p", "ann"), Limit: 10})
			if readErr != nil || len(page.Reservations) != 1 || page.Reservations[0].Cause != way.cause {
				t.Errorf("want one reservation released as %s: %+v %v", way.cause, page.Reservations, readErr)
			}
			h.verify()
		})
	}
}

// The fourth state of the third article: the job was handed to a background worker, who ends it.
func TestDetachedWorkStaysLiveForItsNewOwner(t *testing.T) {
	h := open(t, memoryStore(t))
	h.has("ann", 10)
	var work engine.Work
	if _, err := h.Run(t.Context(), request("m1"), func(_ context.Context, w *engine.Work) error {
		work = *w
		return holdfast.Detached
	}); err != nil {
		t.Fatal(err)
	}
	h.wantBalance("ann", "available=5 held=5 active=1")
	h.done(h.do("ann", "", holdfast.Commit{ReservationID: work.Reservation.ID, LeaseToken: work.LeaseToken}))
	h.wantBalance("ann", "available=5 held=0 active=0")
}

func TestRunKeepsItsLeaseAliveAndStopsWorkThatLostIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memoryStore(t))
		h.has("ann", 10)
		o, err := h.Run(context.Background(), request("m1"), func(ctx context.Context, w *engine.Work) error {
			time.Sleep(time.Minute) // ten leases
			return ctx.Err()
		})
		if err != nil || o.Reservation.State != holdfast.Committed || o.Reservation.Attempts != 1 {
			t.Errorf("a minute of work under a lease of six seconds: %+v %v", o.Reservation, err)
		}
		_, err = h.Run(context.Background(), request("m2"), func(ctx context.Context, w *engine.Work) error {
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
}

func TestRunLeavesNothingHeldWhenItsCallerLeavesDuringTheReserve(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 10)
	taken, release := g.hold()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := h.Run(ctx, request("m1"), func(context.Context, *engine.Work) error {
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
}

// A cancelled duplicate delivery must not take the work away from the delivery that does it.
func TestRunReleasesOnlyWhatItReserved(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 10)
	first := h.done(h.do("ann", "m1", request("m1").Reserve)) // the other delivery's, not started yet
	taken, release := g.hold()
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := h.Run(ctx, request("m1"), func(context.Context, *engine.Work) error { return nil })
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
}
