package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

func TestTheSameKeyTwiceInOneBatchIsOneReservation(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 5)
	reserve := h.command("ann", "m1", holdfast.Reserve{Feature: "draw"})
	got := h.batch(g, reserve, reserve, h.command("ann", "m1", holdfast.Reserve{Feature: "draw", Quantity: 2}))
	if got[0].outcome.Replayed || !got[1].outcome.Replayed || got[0].outcome.Reservation.ID != got[1].outcome.Reservation.ID {
		t.Errorf("the second delivery must see the first one's answer: %+v %+v", got[0], got[1])
	}
	if got[2].outcome.Reason != holdfast.KeyReused {
		t.Errorf("another request under the key: %q", got[2].outcome.Reason)
	}
	h.wantBalance("ann", "available=4 held=1 active=1")
	h.verify()
}

func TestACallerWhoLeavesTheQueueLeavesNothingBehind(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 5)
	taken, release := g.hold()
	first := make(chan error, 1)
	go func() { _, err := h.submit("ann", "m1", holdfast.Reserve{Feature: "draw"}); first <- err }()
	<-taken
	ctx, leave := context.WithCancel(t.Context())
	second := make(chan error, 1)
	go func() {
		_, err := h.Submit(ctx, h.command("ann", "m2", holdfast.Reserve{Feature: "draw"}))
		second <- err
	}()
	for h.Waiting() == 0 {
		time.Sleep(50 * time.Microsecond)
	}
	leave()
	if err := <-second; codeOf(err) != engine.Cancelled {
		t.Errorf("left while waiting: %v", err)
	}
	release()
	if err := <-first; err != nil {
		t.Error(err)
	}
	h.wantBalance("ann", "available=4 held=1 active=1")
}

func TestACallerWhoLeavesLaterIsToldToRepeatWithTheSameKey(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 5)
	taken, release := g.hold()
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	command := h.command("ann", "m1", holdfast.Reserve{Feature: "draw"})
	go func() { _, err := h.Submit(ctx, command); left <- err }()
	<-taken
	leave()
	if err := <-left; codeOf(err) != engine.OutcomeUnknown {
		t.Fatalf("left while it was decided: %v", err)
	}
	release()
	repeated := h.done(h.reserve("ann", "m1"))
	if !repeated.Replayed {
		t.Error("the taken command ran to its end, so the same key must be answered from memory")
	}
	h.wantBalance("ann", "available=4 held=1 active=1")
}

func TestAPanicIsOnlyForItsOwnCommandAndTakesTheAccountOutOfService(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	var panicAt, calls atomic.Int64
	h := open(t, g, func(o *engine.Options) {
		o.Catalog = func(string) *holdfast.Catalog {
			if calls.Add(1) == panicAt.Load() {
				panic("planted")
			}
			return tariff
		}
	})
	h.has("ann", 5)
	h.has("bob", 5)
	panicAt.Store(calls.Load() + 3) // the doorman's, then ann's first, then ann's second
	got := h.batch(g,
		h.command("ann", "m1", holdfast.Reserve{Feature: "draw"}),
		h.command("ann", "m2", holdfast.Reserve{Feature: "draw"}),
		h.command("ann", "m3", holdfast.Reserve{Feature: "draw"}),
		h.command("bob", "m1", holdfast.Reserve{Feature: "draw"}))
	if codeOf(got[1].err) != engine.Internal {
		t.Errorf("the command that panicked: %v", got[1].err)
	}
	for _, i := range []int{0, 2, 3} {
		if got[i].err != nil || got[i].outcome.Refused() {
			t.Errorf("command %d was not to blame: %+v", i, got[i])
		}
	}
	if _, err := h.submit("ann", "m4", holdfast.Reserve{Feature: "draw"}); codeOf(err) != engine.Unavailable {
		t.Errorf("the account is out of service, got %v", err)
	}
	h.done(h.reserve("bob", "m2"))
	if len(h.Quarantined()) != 1 {
		t.Errorf("quarantined: %v", h.Quarantined())
	}
	h.Clear(holdfast.AccountIDOf("p", "ann"))
	h.done(h.reserve("ann", "m4"))
	h.wantBalance("ann", "available=2 held=3 active=3")
	h.verify()
}

func TestAnAccountWhoseStoredStateBreaksARuleIsQuarantined(t *testing.T) {
	broken := &holdfast.Grant{ID: holdfast.ID{1}, Unit: "credit", Granted: 1, Used: 2, Open: true}
	g := &tampered{Store: memoryStore(t), account: holdfast.AccountIDOf("p", "ann"), add: broken}
	h := open(t, g)
	if _, err := h.submit("ann", "m", holdfast.Reserve{Feature: "draw"}); codeOf(err) != engine.Unavailable {
		t.Errorf("got %v", err)
	}
	h.has("bob", 1)
	if _, out := h.Quarantined()[g.account]; !out {
		t.Error("ann must be out of service")
	}
}

// tampered is a store in which one account's rows were changed by hand.
type tampered struct {
	store.Store
	account holdfast.AccountID
	add     *holdfast.Grant
}

func (s *tampered) Begin(ctx context.Context) (store.Tx, error) {
	tx, err := s.Store.Begin(ctx)
	return tamperedTx{tx, s}, err
}

type tamperedTx struct {
	store.Tx
	store *tampered
}

func (tx tamperedTx) Load(ctx context.Context, wants []store.Want) ([]*holdfast.State, error) {
	states, err := tx.Tx.Load(ctx, wants)
	for _, s := range states {
		if s.Account.ID == tx.store.account {
			s.Grants = append(s.Grants, tx.store.add)
		}
	}
	return states, err
}

// Case 58: an accident of the database is retried and is never a refusal.
func TestConflictsAreDecidedAgainAndNeverSeen(t *testing.T) {
	for _, kind := range []store.Kind{store.Conflict, store.Unavailable} {
		t.Run(kind.String(), func(t *testing.T) {
			g := &gate{Store: memoryStore(t)}
			h := open(t, g)
			h.has("ann", 5)
			failures := 0
			g.set(func(g *gate) {
				g.onSave = func([]holdfast.Changes) error {
					if failures++; failures <= 3 {
						return &store.Error{Kind: kind, Op: "save", Err: errors.New("planted")}
					}
					return nil
				}
			})
			h.done(h.reserve("ann", "m1"))
			if failures != 4 {
				t.Errorf("saved at attempt %d", failures)
			}
			h.wantBalance("ann", "available=4 held=1 active=1")
			h.verify()
		})
	}
}

// Case 59: the commit happened, and the connection broke before its reply.
func TestACommitInDoubtIsLookedUpAndNotDoneTwice(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		g := &gate{Store: s}
		h := open(t, g)
		h.has("ann", 5)
		doubt := func() {
			g.set(func(g *gate) {
				g.onSaved = func() error {
					g.set(func(g *gate) { g.onSaved = nil })
					return &store.Error{Kind: store.InDoubt, Op: "save", Err: errors.New("planted")}
				}
			})
		}
		doubt()
		reserved := h.done(h.reserve("ann", "m1"))
		if reserved.Replayed {
			t.Error("a command's own retry is no replay")
		}
		h.wantBalance("ann", "available=4 held=1 active=1")
		doubt()
		started := h.done(h.do("ann", "", holdfast.Start{ReservationID: reserved.Reservation.ID}))
		doubt()
		committed := h.done(h.do("ann", "", holdfast.Commit{ReservationID: reserved.Reservation.ID, LeaseToken: started.Lease.Token}))
		if committed.Reservation.Used != 1 || committed.Reservation.Attempts != 1 {
			t.Errorf("%+v", committed.Reservation)
		}
		doubt()
		h.done(h.do("ann", h.key(), holdfast.AddGrant{Unit: "credit", Amount: 10}))
		h.wantBalance("ann", "available=14 held=0 active=0")
		h.verify()
	})
}

func TestALostDatabaseIsToldAfterTheDeadlineAndNothingHappens(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g, func(o *engine.Options) { o.RetryFor = 20 * time.Millisecond })
	h.has("ann", 5)
	g.set(func(g *gate) {
		g.onLoad = func([]store.Want) error {
			return &store.Error{Kind: store.Unavailable, Op: "load", Err: errors.New("planted")}
		}
	})
	if _, err := h.submit("ann", "m1", holdfast.Reserve{Feature: "draw"}); codeOf(err) != engine.Unavailable {
		t.Errorf("got %v", err)
	}
	g.set(func(g *gate) {
		g.onLoad = nil
		g.onSaved = func() error { return &store.Error{Kind: store.InDoubt, Op: "save", Err: errors.New("planted")} }
	})
	// Saved at the first attempt, and found so at the second: no change is left to save.
	h.done(h.reserve("ann", "m2"))
	g.set(func(g *gate) {
		g.onSaved = nil
		g.onSave = func([]holdfast.Changes) error {
			return &store.Error{Kind: store.InDoubt, Op: "save", Err: errors.New("planted")}
		}
	})
	if _, err := h.submit("ann", "m3", holdfast.Reserve{Feature: "draw"}); codeOf(err) != engine.OutcomeUnknown {
		t.Errorf("got %v", err)
	}
	g.set(func(g *gate) { g.onSave = nil })
	h.done(h.reserve("ann", "m3"))
	h.wantBalance("ann", "available=3 held=2 active=2")
	h.verify()
}

func TestWhatTheDatabaseRejectsIsTakenApartUntilOneCommandStandsAlone(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 5)
	h.has("bob", 5)
	g.set(func(g *gate) {
		g.onSave = func(changes []holdfast.Changes) error {
			for _, c := range changes {
				for _, r := range c.NewReservations {
					if r.Key == "poison" {
						return &store.Error{Kind: store.Rejected, Op: "save", Err: errors.New("planted")}
					}
				}
			}
			return nil
		}
	})
	got := h.batch(g,
		h.command("ann", "m1", holdfast.Reserve{Feature: "draw"}),
		h.command("ann", "poison", holdfast.Reserve{Feature: "draw"}),
		h.command("bob", "m1", holdfast.Reserve{Feature: "draw"}),
		h.command("ann", "m2", holdfast.Reserve{Feature: "draw"}))
	if codeOf(got[1].err) != engine.Internal {
		t.Errorf("the rejected command: %+v", got[1])
	}
	for _, i := range []int{0, 2, 3} {
		if got[i].err != nil || got[i].outcome.Refused() {
			t.Errorf("command %d was not to blame: %+v", i, got[i])
		}
	}
	h.wantBalance("ann", "available=3 held=2 active=2")
	h.verify()
}

func TestAStoreThatCannotBeTrustedStopsTheEngine(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 5)
	g.set(func(g *gate) {
		g.onLoad = func([]store.Want) error {
			return &store.Error{Kind: store.Fatal, Op: "load", Err: errors.New("planted")}
		}
	})
	if _, err := h.submit("ann", "m1", holdfast.Reserve{Feature: "draw"}); codeOf(err) != engine.Unavailable {
		t.Errorf("got %v", err)
	}
	if err := h.stop(); store.KindOf(err) != store.Fatal {
		t.Errorf("Serve returned %v", err)
	}
	if _, err := h.submit("ann", "m2", holdfast.Reserve{Feature: "draw"}); codeOf(err) != engine.Unavailable {
		t.Errorf("after the end: %v", err)
	}
	if h.Ready(t.Context()) == nil {
		t.Error("a stopped engine is not ready")
	}
}

func TestAFullQueueSaysSoAtOnce(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g, func(o *engine.Options) { o.MaxQueue, o.MaxQueuePerAccount = 3, 2 })
	taken, release := g.hold()
	var wait sync.WaitGroup
	submit := func(account string) {
		before := h.Waiting()
		wait.Go(func() { _, _ = h.submit(account, "", holdfast.PutAccount{}) })
		for account != "doorman" && h.Waiting() == before {
			time.Sleep(50 * time.Microsecond)
		}
	}
	submit("doorman")
	<-taken
	submit("ann")
	submit("ann")
	if _, err := h.submit("ann", "", holdfast.PutAccount{}); codeOf(err) != engine.Overloaded {
		t.Errorf("ann's third: %v", err)
	}
	submit("bob")
	if _, err := h.submit("cid", "", holdfast.PutAccount{}); codeOf(err) != engine.Overloaded {
		t.Errorf("the fourth in all: %v", err)
	}
	release()
	wait.Wait()
}

func TestAStoppingEngineAnswersWhatWaitsAndTakesNothingNew(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 5)
	taken, release := g.hold()
	results := make(chan result, 3)
	press := func(i int) {
		o, err := h.submit("ann", fmt.Sprint("m", i), holdfast.Reserve{Feature: "draw"})
		results <- result{o, err}
	}
	go press(0)
	<-taken // alone: what comes now waits behind it
	go press(1)
	go press(2)
	for h.Waiting() < 2 {
		time.Sleep(50 * time.Microsecond)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- h.stop() }()
	for h.Ready(t.Context()) == nil {
		time.Sleep(50 * time.Microsecond)
	}
	if _, err := h.submit("bob", "", holdfast.PutAccount{}); codeOf(err) != engine.Unavailable {
		t.Errorf("new work while stopping: %v", err)
	}
	release()
	for range 3 {
		if r := <-results; r.err != nil || r.outcome.Refused() {
			t.Errorf("what waited must be answered: %+v", r)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	h.wantBalance("ann", "available=2 held=3 active=3")
}

func TestOneAccountGetsHalfABatchAndTheSweeperAQuarter(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g, func(o *engine.Options) { o.MaxBatch = 8 })
	h.has("ann", 100)
	h.has("bob", 100)
	var sizes []map[holdfast.AccountID]int
	var commands []holdfast.Command
	for i := range 12 {
		commands = append(commands, h.command("ann", fmt.Sprint("m", i), holdfast.Reserve{Feature: "draw"}))
	}
	commands = append(commands, h.command("bob", "m", holdfast.Reserve{Feature: "draw"}))
	g.set(func(g *gate) {
		g.onSave = func(changes []holdfast.Changes) error {
			size := map[holdfast.AccountID]int{}
			for _, c := range changes {
				size[c.Account.ID] = len(c.NewReservations)
			}
			sizes = append(sizes, size)
			return nil
		}
	})
	for _, r := range h.batch(g, commands...) {
		if r.err != nil || r.outcome.Refused() {
			t.Fatalf("%+v", r)
		}
	}
	ann, bob := holdfast.AccountIDOf("p", "ann"), holdfast.AccountIDOf("p", "bob")
	if first := sizes[1]; first[ann] != 4 || first[bob] != 1 { // sizes[0] is the doorman's
		t.Errorf("first batch %v: want half for ann, and bob not behind her", first)
	}
	if second := sizes[2]; second[ann] != 8 {
		t.Errorf("second batch %v: nobody else waits, so ann may fill it", second)
	}
}

func TestReadyIsNoWhileNothingCanBeSaved(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g, func(o *engine.Options) { o.RetryFor = time.Millisecond })
	if err := h.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.set(func(g *gate) {
		g.onSave = func([]holdfast.Changes) error {
			return &store.Error{Kind: store.Unavailable, Op: "save", Err: errors.New("planted: no space left")}
		}
	})
	if _, err := h.submit("ann", "", holdfast.PutAccount{}); codeOf(err) != engine.Unavailable {
		t.Fatal(err)
	}
	if h.Ready(t.Context()) == nil {
		t.Error("reads work and nothing is saved: that is not ready")
	}
}
