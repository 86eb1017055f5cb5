package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

// Cases 4 and 24: what the dead held comes back, all of it, however much it is.
func TestTheSweeperFreesEverythingThatIsOverdue(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		many := holdfast.MaxOverdue*2 + 7
		h.has("ann", 200)
		for i := range many {
			h.done(h.reserve("ann", fmt.Sprint("m", i)))
		}
		for i := range 20 {
			h.has(fmt.Sprint("a", i), 1)
			h.done(h.reserve(fmt.Sprint("a", i), "m"))
		}
		h.pass(4 * time.Minute)
		if err := h.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.wantBalance("ann", fmt.Sprintf("available=%d held=%d active=%d", 200-many, many, many))
		h.pass(time.Minute)
		if err := h.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.wantBalance("ann", "available=200 held=0 active=0")
		h.wantBalance("a7", "available=1 held=0 active=0")
		h.verify()
	})
}

// A slow sweeper never refuses a paying person.
func TestAReserveExpiresTheAccountsOwnOverdueWorkFirst(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		many := holdfast.Amount(holdfast.MaxOverdue + 10)
		h.has("ann", many)
		for i := range many {
			h.done(h.reserve("ann", fmt.Sprint("m", i)))
		}
		if got := h.reserve("ann", "early").Reason; got != holdfast.HeldByActive {
			t.Fatalf("while the work lives: %q", got)
		}
		h.pass(5 * time.Minute)
		dry := h.do("ann", "", holdfast.Reserve{Feature: "draw", Quantity: many, DryRun: true})
		h.done(dry)
		h.done(h.do("ann", "all", holdfast.Reserve{Feature: "draw", Quantity: many}))
		h.wantBalance("ann", fmt.Sprintf("available=0 held=%d active=1", many))
		h.verify()
	})
}

func TestTheSweeperRunsAtStartAndOnItsSchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := open(t, memoryStore(t), func(o *engine.Options) { o.SweepEvery = 5 * time.Second })
		h.has("ann", 1)
		h.done(h.do("ann", "m", holdfast.Reserve{Feature: "draw", TTL: 7 * time.Second}))
		time.Sleep(8 * time.Second)
		synctest.Wait()
		h.wantBalance("ann", "available=0 held=1 active=1")
		time.Sleep(2*time.Second + time.Millisecond)
		synctest.Wait()
		h.wantBalance("ann", "available=1 held=0 active=0")
		if err := h.stop(); err != nil {
			t.Error(err)
		}
	})
}
