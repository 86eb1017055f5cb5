package engine_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/postgres"
)

// Cases 1a and 9: whoever comes at once, the last unit is reserved once.
func TestTheLastUnitGoesToExactlyOneOfManyCallers(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		rounds := 100
		if testing.Short() {
			rounds = 10
		}
		for round := range rounds {
			for _, callers := range []int{2, 50} {
				account := fmt.Sprintf("a%d-%d", round, callers)
				h.has(account, 1)
				outcomes := make([]holdfast.Outcome, callers)
				var wait sync.WaitGroup
				for i := range callers {
					wait.Go(func() { outcomes[i] = h.reserve(account, fmt.Sprint("m", i)) })
				}
				wait.Wait()
				got := map[holdfast.Reason]int{}
				for _, o := range outcomes {
					got[o.Reason]++
				}
				if got[""] != 1 || got[holdfast.HeldByActive] != callers-1 {
					t.Fatalf("%d callers for one unit: %v, want one done and the others held_by_active", callers, got)
				}
				h.wantBalance(account, "available=0 held=1 active=1")
			}
		}
		h.verify()
	})
}

// Rule 3: the loser of a race between commit, release, cancel and the sweeper changes nothing and is told.
func TestAReservationEndsExactlyOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		for round := range 30 {
			account := fmt.Sprint("a", round)
			h.has(account, 1)
			id := h.done(h.do(account, "m", holdfast.Reserve{Feature: "draw", TTL: time.Second})).Reservation.ID
			h.pass(time.Second) // this very instant it is overdue, and may still be committed
			ends := []holdfast.Operation{
				holdfast.Commit{ReservationID: id}, holdfast.Release{ReservationID: id}, holdfast.Cancel{ReservationID: id}, holdfast.Expire{},
			}
			outcomes := make([]holdfast.Outcome, len(ends))
			var wait sync.WaitGroup
			for i, op := range ends {
				wait.Go(func() { outcomes[i] = h.do(account, "", op) })
			}
			wait.Wait()
			ended := 0
			for i, o := range outcomes {
				if o.Changed && (o.Settlement == nil || !o.Settlement.Late) {
					ended++
				} else if o.Reason != "" && o.Reason != holdfast.AlreadyEnded {
					t.Errorf("%s: %s", ends[i].Name(), o.Reason)
				}
			}
			if ended != 1 {
				t.Fatalf("round %d: ended %d times", round, ended)
			}
			if got := h.balance(account); got != "available=0 held=0 active=0" && got != "available=1 held=0 active=0" {
				t.Fatalf("round %d: %s", round, got)
			}
		}
		h.verify()
	})
}

// Case 56: cancel against start. Either it was cancelled before it began, or it runs; never both.
func TestCancelAndStartNeverBothSucceed(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		for round := range 50 {
			account := fmt.Sprint("a", round)
			h.has(account, 1)
			id := h.done(h.reserve(account, "m")).Reservation.ID
			var started, cancelled holdfast.Outcome
			var wait sync.WaitGroup
			wait.Go(func() { started = h.do(account, "", holdfast.Start{ReservationID: id}) })
			wait.Go(func() { cancelled = h.do(account, "", holdfast.Cancel{ReservationID: id}) })
			wait.Wait()
			switch {
			case started.Reason == "" && cancelled.Reason == holdfast.AlreadyRunning:
				h.wantBalance(account, "available=0 held=1 active=1")
			case cancelled.Reason == "" && started.Reason == holdfast.AlreadyEnded:
				h.wantBalance(account, "available=1 held=0 active=0")
			default:
				t.Fatalf("start: %q, cancel: %q", started.Reason, cancelled.Reason)
			}
		}
	})
}

// Case 26: a slow worker comes back after its job was given away.
func TestAStaleWorkerCanDoNothing(t *testing.T) {
	h := open(t, memoryStore(t))
	h.has("ann", 10)
	r := h.done(h.do("ann", "m", holdfast.Reserve{Feature: "draw", Quantity: 10, TTL: time.Hour})).Reservation
	first := h.done(h.do("ann", "", holdfast.Start{ReservationID: r.ID, Lease: 5 * time.Second})).Lease.Token
	h.pass(5 * time.Second)
	second := h.done(h.do("ann", "", holdfast.Start{ReservationID: r.ID})).Lease.Token
	five := holdfast.Amount(5)
	for _, op := range []holdfast.Operation{
		holdfast.Heartbeat{ReservationID: r.ID, LeaseToken: first},
		holdfast.Commit{ReservationID: r.ID, LeaseToken: first, Amount: &five},
		holdfast.Release{ReservationID: r.ID, LeaseToken: first},
	} {
		if got := h.do("ann", "", op).Reason; got != holdfast.StaleLease {
			t.Errorf("%s with the old token: %q, want stale_lease", op.Name(), got)
		}
	}
	three := holdfast.Amount(3)
	h.done(h.do("ann", "", holdfast.Commit{ReservationID: r.ID, LeaseToken: second, Amount: &three}))
	if got := h.do("ann", "", holdfast.Commit{ReservationID: r.ID, LeaseToken: first, Amount: &five}).Reason; got != holdfast.AlreadyEnded {
		t.Errorf("commit by the old worker after the end: %q", got)
	}
	h.wantBalance("ann", "available=7 held=0 active=0")
	h.verify()
}

// Two servers on one database: locks and the fence keep them right, not the lanes.
func TestTwoEnginesOnOneDatabaseShareTheLastUnit(t *testing.T) {
	url := pgtest.New(t)
	first := open(t, postgresStore(t, url, postgres.Options{}))
	second := open(t, postgresStore(t, url, postgres.Options{}))
	for round := range 30 {
		account := fmt.Sprint("a", round)
		first.has(account, 1)
		outcomes := make([]holdfast.Outcome, 20)
		var wait sync.WaitGroup
		for i := range outcomes {
			wait.Go(func() {
				h := []*house{first, second}[i%2]
				outcomes[i] = h.reserve(account, fmt.Sprint("m", i/4)) // each key comes four times, to both
			})
		}
		wait.Wait()
		ids := map[holdfast.ID]bool{}
		for _, o := range outcomes {
			if o.Reason == "" {
				ids[o.Reservation.ID] = true
			} else if o.Reason != holdfast.HeldByActive {
				t.Fatalf("refused: %s", o.Reason)
			}
		}
		if len(ids) != 1 {
			t.Fatalf("round %d: %d reservations of one unit", round, len(ids))
		}
		second.wantBalance(account, "available=0 held=1 active=1")
	}
	second.verify()
}
