package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

func (h *house) merge(into, from, key string) holdfast.Outcome {
	h.t.Helper()
	outcome, err := h.Merge(context.Background(), engine.Names{Project: "p", Account: into, Other: from, Actor: "test", Key: key})
	if err != nil {
		h.t.Fatalf("merge %s into %s: %v", from, into, err)
	}
	return outcome
}

func (h *house) alias(account, alias, key string) holdfast.Outcome {
	h.t.Helper()
	outcome, err := h.Alias(context.Background(), engine.Names{Project: "p", Account: account, Other: alias, Actor: "test", Key: key})
	if err != nil {
		h.t.Fatalf("alias %s of %s: %v", alias, account, err)
	}
	return outcome
}

// A request that is repeated after its target was merged on means what it meant before.
func TestNamesThatWereLinkedStayLinkedWhenTheirAccountIsMergedOn(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		for name, credits := range map[string]holdfast.Amount{"ann": 1, "bob": 2, "eve": 4} {
			h.has(name, credits)
		}
		if linked := h.done(h.alias("ann", "ann@web", "a1")); !linked.Changed || linked.Replayed {
			t.Errorf("linked: %+v", linked)
		}
		if merged := h.done(h.merge("bob", "ann", "m1")); !merged.Changed || merged.Account.Balances[0].Available != 3 {
			t.Errorf("merged: %+v", merged.Account)
		}
		h.done(h.merge("eve", "bob", "m2"))
		for _, again := range []holdfast.Outcome{h.done(h.alias("ann", "ann@web", "a1")), h.done(h.merge("bob", "ann", "m1"))} {
			if !again.Changed || !again.Replayed || again.Account.Account.Name != "eve" {
				t.Errorf("repeated under its key: %+v", again)
			}
		}
		for _, again := range []holdfast.Outcome{
			h.done(h.alias("ann", "ann@web", "a2")), h.done(h.alias("eve", "ann@web", "")), h.done(h.merge("bob", "ann", "m3")),
			h.done(h.merge("eve", "ann@web", "m4")), h.done(h.merge("ann@web", "bob", "m5")),
		} {
			if again.Changed || again.Replayed || again.Account.Balances[0].Available != 7 {
				t.Errorf("asked again: %+v", again)
			}
		}
		h.wantBalance("ann@web", "available=7 held=0 active=0")
		h.verify()
	})
}

func TestAnAccountIsMergedByAnyOfItsNames(t *testing.T) {
	h := open(t, memoryStore(t))
	h.has("ann", 1)
	h.has("bob", 2)
	h.done(h.alias("ann", "ann@web", ""))
	h.done(h.alias("bob", "bob@web", ""))
	if merged := h.done(h.merge("bob@web", "ann@web", "m1")); !merged.Changed {
		t.Errorf("merged: %+v", merged)
	}
	for _, name := range []string{"ann", "bob", "ann@web", "bob@web"} {
		h.wantBalance(name, "available=3 held=0 active=0")
		for _, other := range []string{"ann", "bob", "ann@web", "bob@web"} {
			outcome := h.merge(name, other, "")
			if outcome.Changed || outcome.Refused() != (other == "bob") {
				t.Errorf("%s into %s: %+v", other, name, outcome)
			}
		}
	}
	if got := h.alias("bob", "bob", ""); got.Reason != holdfast.Invalid {
		t.Errorf("an alias of its own: %+v", got)
	}
	h.verify()
}

func TestNothingLeadsToADeletedAccount(t *testing.T) {
	h := open(t, memoryStore(t))
	h.has("ann", 1)
	h.has("bob", 2)
	h.done(h.do("ann", "", holdfast.DeleteAccount{}))
	for _, got := range []holdfast.Outcome{h.merge("ann", "bob", "m1"), h.merge("bob", "ann", "m2"), h.alias("ann", "web", "a1")} {
		if got.Reason != holdfast.AccountBlocked || got.Refusal == nil {
			t.Errorf("%+v", got)
		}
	}
	h.wantBalance("bob", "available=2 held=0 active=0")
	if got := h.merge("bob", "nobody", "m3"); got.Reason != holdfast.NotFound {
		t.Errorf("%+v", got)
	}
	if got := h.alias("nobody", "web", "a2"); got.Reason != holdfast.NotFound {
		t.Errorf("%+v", got)
	}
	h.verify()
}

// meeting is a store that lets nobody begin a transaction before everybody who is expected has come to do so: by then each
// has looked at what the others are about to change.
type meeting struct {
	store.Store
	mu       sync.Mutex
	expected int
	all      chan struct{}
}

func (m *meeting) expect(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expected, m.all = n, make(chan struct{})
}

func (m *meeting) Begin(ctx context.Context) (store.Tx, error) {
	m.mu.Lock()
	all := m.all
	if m.expected > 0 {
		if m.expected--; m.expected == 0 {
			close(all)
		}
	} else {
		all = nil
	}
	m.mu.Unlock()
	if all != nil {
		<-all
	}
	return m.Store.Begin(ctx)
}

// mergedAtOnce merges the accounts in a circle, each into the next by a server of its own, at the same time.
func mergedAtOnce(t *testing.T, together *meeting, servers []*house, accounts []string) (changed int) {
	t.Helper()
	outcomes := make(chan holdfast.Outcome, len(accounts))
	together.expect(len(accounts))
	for i, account := range accounts {
		go func() {
			into := accounts[(i+1)%len(accounts)]
			outcome, err := servers[i].Merge(context.Background(), engine.Names{Project: "p", Account: into, Other: account, Actor: "test"})
			if err != nil {
				t.Errorf("%s into %s: %v", account, into, err)
			}
			outcomes <- outcome
		}()
	}
	for range accounts {
		if outcome := <-outcomes; outcome.Changed {
			changed++
		}
	}
	return changed
}

// Whichever merges come first, the last one is told that they are one already.
func TestAccountsThatAreMergedInACircleAtOnceBecomeOne(t *testing.T) {
	for _, size := range []int{2, 3} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			eachStore(t, func(t *testing.T, s store.Store) {
				together := &meeting{Store: s}
				var servers []*house
				for range size {
					servers = append(servers, open(t, together))
				}
				h := servers[0]
				for round := range 10 {
					var accounts []string
					for i := range size {
						account := fmt.Sprint("a", round, "-", i)
						h.has(account, 1)
						accounts = append(accounts, account)
					}
					running := h.done(h.reserve(accounts[1], "m")).Reservation.ID
					if changed := mergedAtOnce(t, together, servers, accounts); changed != size-1 {
						t.Errorf("%d of %d merges changed something", changed, size)
					}
					h.done(h.do(accounts[1], "", holdfast.Release{ReservationID: running}))
					if err := h.Move(t.Context()); err != nil {
						t.Fatal(err)
					}
					for _, account := range accounts {
						h.wantBalance(account, fmt.Sprintf("available=%d held=0 active=0", size))
					}
				}
				h.verify()
			})
		})
	}
}

// The one server was killed when it had announced, and its caller has given up.
func TestAnAnnouncementThatWasLeftBehindHoldsUpNoMerge(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		id := func(name string) holdfast.AccountID { return holdfast.AccountIDOf("p", name) }
		for name, credits := range map[string]holdfast.Amount{"ann": 1, "bob": 2, "kim": 4, "lea": 8} {
			h.has(name, credits)
		}
		announce := func(from, into string) {
			t.Helper()
			if said := h.done(h.do(from, "", holdfast.AnnounceMerge{Into: id(into)})); !said.Changed {
				t.Fatalf("not announced: %+v", said)
			}
		}
		// Whichever of the two has the lower id, and gives way otherwise.
		announce("ann", "bob")
		if merged := h.done(h.merge("ann", "bob", "m1")); !merged.Changed || merged.Account.Balances[0].Available != 3 {
			t.Errorf("merged: %+v", merged.Account)
		}
		announce("lea", "kim")
		if merged := h.done(h.merge("lea", "kim", "m2")); !merged.Changed || merged.Account.Balances[0].Available != 12 {
			t.Errorf("merged: %+v", merged.Account)
		}
		// Nor one that leads elsewhere.
		announce("lea", "bob")
		h.done(h.merge("ann", "lea", "m3"))
		for _, name := range []string{"ann", "bob", "kim", "lea"} {
			h.wantBalance(name, "available=15 held=0 active=0")
		}
		h.verify()
	})
}

// A merge that is refused leaves nothing behind that another one would have to clear away.
func TestARefusedMergeTakesItsAnnouncementBack(t *testing.T) {
	h := open(t, memoryStore(t))
	for _, name := range []string{"ann", "bob", "eve"} {
		h.has(name, 1)
	}
	h.done(h.do("bob", "k", holdfast.AddGrant{Unit: "credit", Amount: 1, Source: holdfast.FromPromo}))
	if got := h.merge("ann", "bob", "k"); got.Reason != holdfast.KeyReused {
		t.Errorf("%+v", got)
	}
	view, err := h.View(t.Context(), "p", "bob")
	if err != nil || view.Account.Merging != (holdfast.Merging{}) || !view.Account.MergedInto.IsZero() {
		t.Errorf("%v: left behind: %+v", err, view.Account)
	}
}
