package faultstore_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/faultstore"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

func TestAStoreThatNothingHappensToIsAStore(t *testing.T) {
	storetest.Exercise(t, func(t *testing.T) storetest.Opened {
		data := memory.Open()
		t.Cleanup(func() { _ = data.Close() })
		return storetest.Opened{
			Store: faultstore.Open(data, nil),
			Events: func(t *testing.T, account holdfast.AccountID) []holdfast.Event {
				events, err := data.Events(t.Context(), account)
				if err != nil {
					t.Fatal(err)
				}
				return events
			},
		}
	})
}

var (
	when  = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	ann   = holdfast.AccountIDOf("p", "ann")
	wants = []store.Want{{Account: ann, Project: "p", Name: "ann", Create: true}}
	empty = &holdfast.Catalog{Version: 1, Units: []holdfast.Unit{{Name: "credit"}}, Plans: []holdfast.Plan{{Name: "free", Default: true, MaxActive: 1}}}
)

// put gives ann a language through the store, as the engine would: load, decide, save.
func put(ctx context.Context, s store.Store, language string) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Abort(ctx) }()
	states, err := tx.Load(ctx, wants)
	if err != nil {
		return err
	}
	return tx.Save(ctx, decided(states[0], language))
}

func decided(state *holdfast.State, language string) []holdfast.Changes {
	holdfast.Decide(empty, state, holdfast.Command{ID: holdfast.ID{1}, Project: "p", Account: "ann", Do: holdfast.PutAccount{Language: &language}}, when)
	changes, _ := state.Changes()
	return []holdfast.Changes{changes}
}

func language(t *testing.T, data store.Store) string {
	t.Helper()
	page, err := data.Read(t.Context(), store.Query{Kind: store.QueryState, Project: "p", Account: ann, Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	if page.State == nil {
		return "nobody"
	}
	return page.State.Account.Language
}

func wantKind(t *testing.T, err error, kind store.Kind) {
	t.Helper()
	if err == nil || store.KindOf(err) != kind {
		t.Errorf("got %v, want %s", err, kind)
	}
}

func TestEveryOperationFailsWithEveryKindAndIsNotMade(t *testing.T) {
	for _, kind := range []store.Kind{store.Unavailable, store.Conflict, store.InDoubt, store.Rejected, store.Fatal} {
		data := memory.Open()
		s := faultstore.Open(data, nil)
		fail := faultstore.Fault{Trouble: faultstore.Fail, Kind: kind}
		s.Before(faultstore.Load, fail)
		wantKind(t, put(t.Context(), s, "ru"), kind)
		s.Before(faultstore.Save, fail)
		wantKind(t, put(t.Context(), s, "ru"), kind)
		if got := language(t, data); got != "nobody" {
			t.Errorf("%s: a call that fails before it is made does nothing, yet there is %s", kind, got)
		}
		s.Before(faultstore.Scan, fail)
		_, err := s.Scan(t.Context(), store.Due{At: when, Limit: 1})
		wantKind(t, err, kind)
		s.Before(faultstore.Read, fail)
		_, err = s.Read(t.Context(), store.Query{Kind: store.QueryState, Project: "p", Account: ann, Limit: 1})
		wantKind(t, err, kind)
		if err := put(t.Context(), s, "en"); err != nil {
			t.Errorf("%s: each fault is met once, and no lock is left behind: %v", kind, err)
		}
	}
}

func TestASaveThatWasMadeCanSayAnyError(t *testing.T) {
	for _, kind := range []store.Kind{store.Unavailable, store.InDoubt} {
		data := memory.Open()
		s := faultstore.Open(data, nil)
		s.After(faultstore.Save, faultstore.Fault{Trouble: faultstore.Fail, Kind: kind})
		wantKind(t, put(t.Context(), s, "ru"), kind)
		if got := language(t, data); got != "ru" {
			t.Errorf("%s: saved, and told otherwise: %s", kind, got)
		}
	}
}

func TestALostConnectionTakesWhatWasNotSavedAndItsLocksWithIt(t *testing.T) {
	data := memory.Open()
	s := faultstore.Open(data, nil)
	lost := faultstore.Fault{Trouble: faultstore.Disconnect}
	s.Before(faultstore.Load, lost)
	wantKind(t, put(t.Context(), s, "ru"), store.Unavailable)
	s.After(faultstore.Load, lost)
	wantKind(t, put(t.Context(), s, "ru"), store.Unavailable)
	s.Before(faultstore.Save, lost)
	wantKind(t, put(t.Context(), s, "ru"), store.InDoubt)
	if got := language(t, data); got != "nobody" {
		t.Errorf("lost before the save: %s", got)
	}
	s.After(faultstore.Save, lost)
	wantKind(t, put(t.Context(), s, "ru"), store.InDoubt)
	if got := language(t, data); got != "ru" {
		t.Errorf("lost after the save: %s", got)
	}
	for _, op := range []faultstore.Op{faultstore.Scan, faultstore.Read} {
		s.After(op, lost)
	}
	_, err := s.Scan(t.Context(), store.Due{At: when, Limit: 1})
	wantKind(t, err, store.Unavailable)
	page, err := s.Read(t.Context(), store.Query{Kind: store.QueryState, Project: "p", Account: ann, Limit: 1})
	wantKind(t, err, store.Unavailable)
	if page.State != nil {
		t.Error("an answer that was lost on its way was read")
	}
}

func TestAStalledCallWaitsAndHoldsItsLocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.Open()
		one, two := faultstore.Open(data, nil), faultstore.Open(data, nil)
		resume := make(chan struct{})
		one.Before(faultstore.Save, faultstore.Fault{Trouble: faultstore.Stall, Until: resume})
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- put(t.Context(), one, "ru") }()
		synctest.Wait()
		go func() { second <- put(t.Context(), two, "en") }()
		synctest.Wait()
		select {
		case err := <-second:
			t.Fatalf("it went past the lock of a stalled transaction: %v", err)
		default:
		}
		close(resume)
		if err := <-first; err != nil {
			t.Error(err)
		}
		if err := <-second; err != nil {
			t.Error(err)
		}
		if got := language(t, data); got != "en" {
			t.Errorf("the second comes second, got %s", got)
		}

		one.Before(faultstore.Load, faultstore.Fault{Trouble: faultstore.Stall})
		ctx, leave := context.WithCancel(t.Context())
		go func() { first <- put(ctx, one, "de") }()
		synctest.Wait()
		leave()
		wantKind(t, <-first, store.Unavailable)
	})
}

func TestACrashEndsEverythingUntilTheDataIsOpenedAgain(t *testing.T) {
	crash := faultstore.Fault{Trouble: faultstore.Crash}
	for where, saved := range map[string]bool{"before load": false, "after load": false, "before save": false, "after save": true} {
		t.Run(where, func(t *testing.T) {
			data := memory.Open()
			s := faultstore.Open(data, nil)
			map[string]func(faultstore.Op, ...faultstore.Fault){"before": s.Before, "after": s.After}[where[:len(where)-5]](faultstore.Op(where[len(where)-4:]), crash)
			wantKind(t, put(t.Context(), s, "ru"), store.Fatal)
			wantKind(t, put(t.Context(), s, "ru"), store.Fatal)
			_, err := s.Scan(t.Context(), store.Due{At: when, Limit: 1})
			wantKind(t, err, store.Fatal)
			wantKind(t, s.Dump(t.Context(), func(store.Record) error { return nil }), store.Fatal)
			if got := language(t, data) == "ru"; got != saved || !s.Dead() {
				t.Errorf("saved: %v, want %v", got, saved)
			}
			if err := put(t.Context(), s.Reopen(), "en"); err != nil {
				t.Errorf("the next process finds the data and no lock: %v", err)
			}
		})
	}
}

func TestACrashEndsTheCallsThatAreBeingMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		data := memory.Open()
		one, two := faultstore.Open(data, nil), faultstore.Open(data, nil)
		one.Before(faultstore.Save, faultstore.Fault{Trouble: faultstore.Stall})
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- put(context.Background(), one, "ru") }()
		synctest.Wait()
		go func() { second <- put(context.Background(), two, "en") }()
		synctest.Wait() // two waits for one's lock
		two.Crash()
		wantKind(t, <-second, store.Fatal)
		one.Crash()
		wantKind(t, <-first, store.Fatal)
		if got := language(t, data); got != "nobody" {
			t.Errorf("neither had saved, yet there is %s", got)
		}
	})
}

func TestACommitOnItsWayKeepsItsLocksAndOutlivesTheProcess(t *testing.T) {
	for _, commits := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			data := memory.Open()
			s := faultstore.Open(data, nil)
			s.Before(faultstore.Save, faultstore.Fault{Trouble: faultstore.CommitLater})
			wantKind(t, put(t.Context(), s, "ru"), store.InDoubt)
			if got := language(t, data); got != "nobody" || s.Unsettled() != 1 {
				t.Errorf("it is on its way, yet there is %s", got)
			}
			s.Crash()
			var seen string
			looked := make(chan error, 1)
			go func() {
				tx, err := s.Reopen().Begin(context.Background())
				if err != nil {
					looked <- err
					return
				}
				states, err := tx.Load(context.Background(), wants)
				if err == nil {
					seen = states[0].Account.Language
				}
				looked <- err
			}()
			synctest.Wait()
			if len(looked) > 0 {
				t.Fatal("the next process did not wait for the lock")
			}
			if err := s.Settle(t.Context(), commits); err != nil {
				t.Error(err)
			}
			if err := <-looked; err != nil || (seen == "ru") != commits {
				t.Errorf("under the lock it saw %q, %v; committed: %v", seen, err, commits)
			}
		})
	}
}

func TestWhereTheLockWasLostOnlyTheFenceIsLeft(t *testing.T) {
	data := memory.Open()
	one, two := faultstore.Open(data, nil), faultstore.Open(data, nil)
	if err := put(t.Context(), one, "ru"); err != nil {
		t.Fatal(err)
	}
	one.After(faultstore.Load, faultstore.Fault{Trouble: faultstore.LoseLock}, faultstore.Fault{Trouble: faultstore.LoseLock})
	tx, err := one.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	states, err := tx.Load(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	if err := put(t.Context(), two, "en"); err != nil {
		t.Fatalf("nobody holds the lock: %v", err)
	}
	wantKind(t, tx.Save(t.Context(), decided(states[0], "de")), store.Conflict)
	if got := language(t, data); got != "en" {
		t.Errorf("the other's change was lost: %s", got)
	}
	if err := put(t.Context(), one, "de"); err != nil || language(t, data) != "de" {
		t.Errorf("where nobody came between it saves: %v", err)
	}
}

func TestTheSameSeedGivesTheSameFaultsAndEveryKindOfThem(t *testing.T) {
	rates := faultstore.Rates{
		Fail: 100, Stall: 50, StallFor: time.Second, Disconnect: 50, Crash: 50, CommitLater: 50, SayUnavailable: 50, LoseLock: 50,
	}
	drawn := func(seed uint64) (faults []string) {
		plan := faultstore.Seeded(rand.NewPCG(seed, 0), rates)
		for i := range 2000 {
			for _, op := range []faultstore.Op{faultstore.Load, faultstore.Save, faultstore.Scan, faultstore.Read} {
				for _, after := range []bool{false, true} {
					fault := plan(t.Context(), faultstore.Call{Op: op, After: after, Number: i})
					faults = append(faults, fmt.Sprintf("%s %v: %s %s", op, after, fault.Trouble, fault.Kind))
				}
			}
		}
		return faults
	}
	synctest.Test(t, func(t *testing.T) {
		one, again, other := drawn(1), drawn(1), drawn(2)
		if fmt.Sprint(one) != fmt.Sprint(again) || fmt.Sprint(one) == fmt.Sprint(other) {
			t.Error("faults follow from the seed and from nothing else")
		}
		seen := map[string]bool{}
		for _, fault := range one {
			seen[fault] = true
		}
		for _, want := range []string{
			"load false: fail conflict", "load false: fail unavailable", "load true: lose lock unavailable", "load false: stall unavailable",
			"save false: fail in doubt", "save false: commit later unavailable", "save true: fail unavailable", "save true: disconnect unavailable",
			"save true: crash unavailable", "scan false: fail unavailable", "read false: disconnect unavailable", "read true: crash unavailable",
		} {
			if !seen[want] {
				t.Errorf("never drawn: %s", want)
			}
		}
		for _, never := range []string{"load false: fail in doubt", "save false: fail rejected", "save false: fail fatal", "scan false: fail conflict", "save true: lose lock unavailable"} {
			if seen[never] {
				t.Errorf("no store may do this: %s", never)
			}
		}
		time.Sleep(2 * time.Second) // lets the stalls of the plan run out
	})
}

func TestTheDatabaseFreesTheLocksOfADeadConnectionByItself(t *testing.T) {
	for _, fault := range []faultstore.Trouble{faultstore.Disconnect, faultstore.Crash, ""} {
		data := memory.Open()
		s := faultstore.Open(data, nil)
		s.After(faultstore.Load, faultstore.Fault{Trouble: fault})
		tx, err := s.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Load(t.Context(), wants); (err != nil) != (fault != "") {
			t.Errorf("%q: %v", fault, err)
		}
		if fault == "" {
			s.Crash() // between its load and its save; it never aborts
		}
		if err := put(t.Context(), faultstore.Open(data, nil), "en"); err != nil {
			t.Errorf("%q: %v", fault, err)
		}
	}
}
