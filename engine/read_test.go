package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

// balanceAt is what was believed to be available and held.
func (h *house) balanceAt(account string, at time.Time) string {
	h.t.Helper()
	view, err := h.ViewAt(context.Background(), "p", account, at)
	if err != nil {
		h.t.Fatal(err)
	}
	return fmt.Sprintf("exists=%v available=%d held=%d", view.Exists, view.Balances[0].Available, view.Balances[0].Reserved)
}

func TestAnEarlierMomentIsReadBackFromTheWholeHistory(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		moments, wants := []time.Time{h.Now()}, []string{"exists=false available=0 held=0"}
		remember := func(want string) {
			moments, wants = append(moments, h.Now()), append(wants, want)
			h.pass(time.Second)
		}
		h.pass(time.Second)
		h.has("ann", 300)
		remember("exists=true available=300 held=0")
		for i := range 150 { // two pages of entries, and grants that are used up and closed
			h.done(h.do("ann", h.key(), holdfast.AddGrant{Unit: "credit", Amount: 1}))
			h.done(h.do("ann", h.key(), holdfast.Reserve{Feature: "draw"}))
			if i == 74 {
				remember("exists=true available=300 held=75")
			}
		}
		remember("exists=true available=300 held=150")
		reserved := h.done(h.reserve("ann", "last"))
		remember("exists=true available=299 held=151")
		h.done(h.do("ann", "", holdfast.Commit{ReservationID: reserved.Reservation.ID}))
		remember("exists=true available=299 held=150")
		for i, at := range moments {
			if got := h.balanceAt("ann", at); got != wants[i] {
				t.Errorf("moment %d: %s, want %s", i, got, wants[i])
			}
		}
		if got := h.balanceAt("ann", time.Time{}); got != wants[len(wants)-1] {
			t.Errorf("now: %s", got)
		}
		if got := h.balanceAt("nobody", moments[0]); got != wants[0] {
			t.Errorf("nobody: %s", got)
		}
	})
}

// between is a store in whose reads something happens meanwhile.
type between struct {
	store.Store
	mu       sync.Mutex
	meantime func(kind store.QueryKind)
}

func (b *between) Read(ctx context.Context, query store.Query) (store.Page, error) {
	page, err := b.Store.Read(ctx, query)
	b.mu.Lock()
	meantime := b.meantime
	b.mu.Unlock()
	if meantime != nil {
		meantime(query.Kind)
	}
	return page, err
}

// during has something done once, after the next read of that kind.
func (b *between) during(kind store.QueryKind, do func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.meantime = func(read store.QueryKind) {
		if read == kind {
			b.during(kind, nil)
			do()
		}
	}
	if do == nil {
		b.meantime = nil
	}
}

func TestWhatHappensWhileAnEarlierMomentIsReadChangesNothingOfIt(t *testing.T) {
	for _, kind := range []store.QueryKind{store.QueryState, store.QueryGrants, store.QueryEntries} {
		for name, act := range map[string]func(h *house, used holdfast.ID){
			"a reserve":             func(h *house, _ holdfast.ID) { h.done(h.reserve("ann", h.key())) },
			"a grant":               func(h *house, _ holdfast.ID) { h.has("ann", 7) },
			"a refund of old times": func(h *house, used holdfast.ID) { h.done(h.do("ann", h.key(), holdfast.Refund{ReservationID: used})) },
			"everything is used up": func(h *house, _ holdfast.ID) {
				h.done(h.do("ann", h.key(), holdfast.Charge{Reserve: holdfast.Reserve{Feature: "draw", Quantity: 5}}))
			},
		} {
			t.Run(fmt.Sprint(name, " after ", kind), func(t *testing.T) {
				b := &between{Store: memoryStore(t)}
				h := open(t, b)
				h.has("ann", 1)
				used := h.done(h.reserve("ann", "old")).Reservation.ID
				h.done(h.do("ann", "", holdfast.Commit{ReservationID: used}))
				h.has("ann", 5)
				at := h.Now()
				h.pass(time.Second)
				b.during(kind, func() { act(h, used) })
				if got := h.balanceAt("ann", at); got != "exists=true available=5 held=0" {
					t.Errorf("believed to be %s", got)
				}
			})
		}
	}
}

func TestAnAccountThatNeverRestsIsNotReadForEver(t *testing.T) {
	b := &between{Store: memoryStore(t)}
	h := open(t, b)
	h.has("ann", 1)
	at := h.Now()
	h.pass(time.Second)
	b.mu.Lock()
	b.meantime = func(kind store.QueryKind) {
		if kind == store.QueryState {
			h.done(h.do("ann", h.key(), holdfast.AddGrant{Unit: "credit", Amount: 1}))
		}
	}
	b.mu.Unlock()
	if _, err := h.ViewAt(t.Context(), "p", "ann", at); codeOf(err) != engine.Overloaded {
		t.Errorf("told %v", err)
	}
}

func (h *house) explain(account string, op holdfast.Reserve) *holdfast.Explanation {
	h.t.Helper()
	x, found, err := h.Explain(context.Background(), h.command(account, "", op))
	if err != nil || len(found) > 0 {
		h.t.Fatal(found, err)
	}
	return x
}

func TestAnExplanationSeesWhatADecisionWouldSee(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		if x := h.explain("nobody", holdfast.Reserve{Feature: "draw"}); x.Reason != holdfast.Insufficient {
			t.Errorf("nobody is told %q", x.Reason)
		}
		h.has("ann", 70)
		for range 70 {
			h.done(h.reserve("ann", h.key()))
		}
		if x := h.explain("ann", holdfast.Reserve{Feature: "draw"}); x.Reason != holdfast.HeldByActive {
			t.Errorf("told %q", x.Reason)
		}
		// Nobody has swept, and yet what is overdue refuses no one: more than a decision loads at once.
		h.pass(time.Hour)
		if x := h.explain("ann", holdfast.Reserve{Feature: "draw"}); !x.Allowed {
			t.Errorf("told %q", x.Reason)
		}
		h.done(h.reserve("ann", h.key()))
		h.verify()
		if _, found, err := h.Explain(t.Context(), h.command("ann", "", holdfast.Reserve{Feature: "video"})); err != nil || len(found) != 1 || found[0].Field != "feature" {
			t.Errorf("%v, %v", found, err)
		}
		if _, found, err := h.Explain(t.Context(), h.command("a b", "", holdfast.Reserve{Feature: "X"})); err != nil || len(found) != 2 {
			t.Errorf("%v, %v", found, err)
		}
	})
}

func TestAnAccountIsViewedByItsIdWithinItsProjectOnly(t *testing.T) {
	h := open(t, memoryStore(t))
	h.has("ann", 3)
	view, err := h.ViewOf(t.Context(), "p", holdfast.AccountIDOf("p", "ann"))
	if err != nil || view.Account.Name != "ann" || view.Balances[0].Available != 3 {
		t.Errorf("%+v, %v", view, err)
	}
	if view, err = h.ViewOf(t.Context(), "q", holdfast.AccountIDOf("p", "ann")); err != nil || view != nil {
		t.Errorf("another project sees %+v, %v", view, err)
	}
}

func TestAViewCountsCyclesInTheAccountsZone(t *testing.T) {
	daily := *tariff
	daily.Plans = []holdfast.Plan{{
		Name: "free", Default: true, Features: []string{"draw"}, MaxActive: 1,
		Allowances: []holdfast.Allowance{{Key: "free/credit", Unit: "credit", Amount: 3, Every: holdfast.Cycle{Calendar: holdfast.Day}}},
	}}
	h := open(t, memoryStore(t), func(o *engine.Options) { o.Catalog = func(string) *holdfast.Catalog { return &daily } })
	tokyo, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		t.Fatal(err)
	}
	zone := "Asia/Tokyo"
	h.do("ann", "", holdfast.PutAccount{TimeZone: &zone, Zone: tokyo})
	h.pass(72 * time.Hour) // so that the cycle shown is one that the view opens
	view, err := h.View(t.Context(), "p", "ann")
	if err != nil {
		t.Fatal(err)
	}
	year, month, day := h.Now().In(tokyo).Date()
	if want := time.Date(year, month, day, 0, 0, 0, 0, tokyo); !view.Balances[0].Cycle.StartsAt.Equal(want) {
		t.Errorf("the day began at %s, want %s", view.Balances[0].Cycle.StartsAt, want)
	}
}
