package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
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

// packs is the tariff, and a product of ten credits.
var packs = func() *holdfast.Catalog {
	c := *tariff
	c.Products = []holdfast.Product{{
		Name: "pack", Grant: &holdfast.ProductGrant{Unit: "credit", Amount: 10}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 100}},
	}}
	return &c
}()

func sellsPacks(o *engine.Options) { o.Catalog = func(string) *holdfast.Catalog { return packs } }

// inARow are accounts with a credit each, of which each was merged into the next. What is asked by the oldest name in between is
// decided by the account that it leads to by then, and is asked once more of the last.
func (h *house) inARow(merges int, merge func(into, from string)) (names []string) {
	h.t.Helper()
	oldest := "n0"
	var made []holdfast.ID
	pay := func(i int) holdfast.Outcome {
		return h.done(h.do(oldest, "", holdfast.Pay{Provider: "p", PaymentID: fmt.Sprint("p", i), Product: "pack", Amount: 100, Currency: "XTR"}))
	}
	for i := range merges + 1 {
		names = append(names, fmt.Sprint("n", i))
		h.has(names[i], 1)
		if i > 0 {
			merge(names[i], names[i-1])
		}
		made = append(made, h.done(h.reserve(oldest, fmt.Sprint("m", i))).Reservation.ID)
		if paid := pay(i); !paid.Changed {
			h.t.Errorf("payment %d: %+v", i, paid)
		}
	}
	for i, id := range made {
		if again := h.done(h.reserve(oldest, fmt.Sprint("m", i))); !again.Replayed || again.Reservation.ID != id {
			h.t.Errorf("what was asked after %d merges was not answered from memory: %+v", i, again)
		}
		if paid := pay(i); paid.Changed {
			h.t.Errorf("payment %d was granted twice", i)
		}
		paid, at, err := h.Payment(h.t.Context(), holdfast.AccountIDOf("p", oldest), "p", fmt.Sprint("p", i))
		if err != nil || paid == nil || at != holdfast.AccountIDOf("p", names[i]) {
			h.t.Errorf("payment %d: %v, %+v at %s", i, err, paid, at)
		}
		h.done(h.do(names[i], "", holdfast.Release{ReservationID: id}))
	}
	h.move()
	all := fmt.Sprintf("available=%d held=0 active=0", 11*len(names))
	for _, name := range names {
		h.wantBalance(name, all)
	}
	owned, _, err := h.Reservations(h.t.Context(), store.Query{Project: "p", Account: holdfast.AccountIDOf("p", oldest), Limit: holdfast.MaxPage})
	if err != nil || len(owned) != len(made) {
		h.t.Errorf("%v: %d reservations are listed by the oldest name, of %d", err, len(owned), len(made))
	}
	return names
}

func TestTheOldestNameWorksAfterAllTheMergesThereMayBe(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s, sellsPacks)
		names := h.inARow(holdfast.MaxNames, func(into, from string) { h.done(h.merge(into, from, "m")) })
		oldest, last := names[0], names[holdfast.MaxNames]
		for i := range names {
			refund := holdfast.RefundPayment{Provider: "p", PaymentID: fmt.Sprint("p", i), Refund: holdfast.PaymentRefund{ID: "r"}}
			if refunded := h.done(h.do(oldest, "", refund)); !refunded.Changed {
				t.Errorf("refund %d: %+v", i, refunded)
			}
		}
		h.move()
		h.wantBalance(oldest, fmt.Sprintf("available=%d held=0 active=0", len(names)))

		// One more would lead too far. It is refused before anything is done, by whatever name, and works the other way.
		h.has("eve", 1)
		for _, from := range []string{last, oldest} {
			want := []holdfast.Problem{{Field: "from", Hint: fmt.Sprintf("let it take the other account in instead: %d accounts in a row lead to it already", holdfast.MaxNames)}}
			if got := h.merge("eve", from, "e"); got.Reason != holdfast.Invalid || !slices.Equal(got.Problems, want) {
				t.Errorf("%s: %+v", from, got)
			}
		}
		h.wantBalance("eve", "available=1 held=0 active=0")
		h.wantBalance(last, fmt.Sprintf("available=%d held=0 active=0", len(names)))
		for _, name := range []string{last, "eve"} {
			view, err := h.View(t.Context(), "p", name)
			if err != nil || view.Account.Name != name || view.Account.Merging != (holdfast.Merging{}) || slices.Contains(view.Account.Names, holdfast.AccountIDOf("p", last)) {
				t.Errorf("%v: left behind: %+v", err, view.Account)
			}
		}
		h.done(h.merge(oldest, "eve", "e"))
		for _, name := range []string{oldest, last, "eve"} {
			h.wantBalance(name, fmt.Sprintf("available=%d held=0 active=0", len(names)+1))
		}

		h.done(h.do(oldest, "", holdfast.DeleteAccount{}))
		for range names {
			h.move()
		}
		if got := h.people(); !slices.Equal(got, []string{holdfast.Erased}) {
			t.Errorf("after the deletion there are %q", got)
		}
		h.verify()
	})
}

// As they were made where nobody counted, and as merges at the same time can make them.
func TestALineOfMergesThatIsTooLongIsFollowedToItsEnd(t *testing.T) {
	h := open(t, memoryStore(t), sellsPacks)
	names := h.inARow(holdfast.MaxNames+5, h.mergedUncounted)
	// It can be taken on by its oldest name, and be led to.
	h.has("eve", 1)
	h.done(h.alias(names[0], "web", ""))
	h.done(h.merge(names[0], "eve", "e"))
	for _, name := range []string{names[0], "web", "eve"} {
		h.wantBalance(name, fmt.Sprintf("available=%d held=0 active=0", 11*len(names)+1))
	}
	h.verify()
}

// mergedUncounted merges, and lets nobody look at what leads where.
func (h *house) mergedUncounted(into, from string) {
	h.t.Helper()
	to := holdfast.AccountIDOf("p", into)
	h.done(h.do(from, "", holdfast.AnnounceMerge{Into: to}))
	view, err := h.View(h.t.Context(), "p", from)
	if err != nil {
		h.t.Fatal(err)
	}
	h.done(h.do(from, "", holdfast.MergeInto{Into: to, Announced: view.Account.Merging.ID}))
	h.move()
}

// Nothing that this code does makes one; whoever meets it is told so, and nobody waits for ever.
func TestACircleOfMergedAccountsIsFoundByWhoeverFollowsIt(t *testing.T) {
	h := open(t, memoryStore(t))
	accounts := []string{"ann", "bob", "eve"}
	for _, account := range accounts {
		h.do(account, "", holdfast.PutAccount{})
	}
	for i, account := range accounts {
		to := holdfast.AccountIDOf("p", accounts[(i+1)%len(accounts)])
		command := holdfast.Command{ID: holdfast.ID{1}, Project: "p", Target: holdfast.AccountIDOf("p", account), Actor: "test", Do: holdfast.AnnounceMerge{Into: to}}
		for _, op := range []holdfast.Operation{command.Do, holdfast.MergeInto{Into: to, Announced: command.ID}} {
			command.Do = op
			if outcome, err := h.Submit(t.Context(), command); err != nil || !outcome.Changed {
				t.Fatalf("%v: %+v", err, outcome)
			}
		}
	}
	h.has("kim", 1)
	id := holdfast.AccountIDOf("p", "ann")
	for what, ask := range map[string]func() error{
		"a command": func() error { _, err := h.submit("ann", "m", holdfast.Reserve{Feature: "draw"}); return err },
		"a view":    func() error { _, err := h.View(t.Context(), "p", "ann"); return err },
		"a payment": func() error { _, _, err := h.Payment(t.Context(), id, "p", "p1"); return err },
		"a merge": func() error {
			_, err := h.Merge(t.Context(), engine.Names{Project: "p", Account: "kim", Other: "ann", Actor: "test", Key: "m"})
			return err
		},
	} {
		if err := ask(); codeOf(err) != engine.Internal || !strings.Contains(err.Error(), "circle") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// What a name asks within a transaction of the caller's is answered as it is outside.
func TestJoinByAnOldNameIsAnsweredFromMemoryByWhoeverAnsweredIt(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s, sellsPacks)
		join := func(account, key string, do holdfast.Operation) holdfast.Outcome {
			t.Helper()
			tx, err := s.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Abort(t.Context()) }()
			outcome, err := h.Join(tx).Submit(t.Context(), h.command(account, key, do))
			if err != nil {
				t.Fatalf("%s %s by %s: %v", do.Name(), key, account, err)
			}
			return outcome
		}
		reserve := holdfast.Reserve{Feature: "draw"}
		pay := func(i int) holdfast.Pay {
			return holdfast.Pay{Provider: "p", PaymentID: fmt.Sprint("p", i), Product: "pack", Amount: 100, Currency: "XTR"}
		}
		var made []holdfast.ID
		for i, name := range []string{"ann", "bob", "cat"} {
			h.has(name, 1)
			if i > 0 {
				h.done(h.merge(name, []string{"ann", "bob"}[i-1], "m"))
			}
			made = append(made, h.done(join("ann", fmt.Sprint("join ", i), reserve)).Reservation.ID)
			h.done(join("ann", "", pay(i)))
		}
		for i, id := range made {
			if again := join("ann", fmt.Sprint("join ", i), reserve); !again.Replayed || again.Reservation.ID != id {
				t.Errorf("the key of stage %d: %+v", i, again)
			}
			if other := join("ann", fmt.Sprint("join ", i), holdfast.Reserve{Feature: "draw", Quantity: 2}); other.Reason != holdfast.KeyReused {
				t.Errorf("the key of stage %d for something else: %+v", i, other)
			}
			if paid := join("ann", "", pay(i)); paid.Changed {
				t.Errorf("payment %d was granted twice", i)
			}
		}
		if released := h.done(join("ann", "", holdfast.Release{ReservationID: made[0]})); !released.Changed {
			t.Errorf("%+v", released)
		}
		h.move()
		h.wantBalance("ann", "available=31 held=1 active=1") // what bob holds stays there
		h.verify()
	})
}

func TestAnAccountWhoseMoneyCannotArriveHoldsUpNobodyElse(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	names := []string{"ann", "bob", "cat"}
	slices.SortFunc(names, func(a, b string) int {
		x, y := holdfast.AccountIDOf("p", a), holdfast.AccountIDOf("p", b)
		return bytes.Compare(x[:], y[:])
	})
	for _, name := range names {
		h.has(name, 1)
		made := h.done(h.reserve(name, "m")).Reservation.ID
		h.has(name+"-home", 1)
		h.done(h.merge(name+"-home", name, "merge"))
		h.done(h.do(name, "", holdfast.Release{ReservationID: made})) // what it returns follows
	}
	stuck := holdfast.AccountIDOf("p", names[0]+"-home")
	g.set(func(g *gate) {
		g.onSave = func(changes []holdfast.Changes) error {
			if slices.ContainsFunc(changes, func(c holdfast.Changes) bool { return c.Account.ID == stuck }) {
				return &store.Error{Kind: store.Rejected, Op: "save", Err: errors.New("planted")}
			}
			return nil
		}
	})
	for range names {
		if err := h.Move(t.Context()); err == nil {
			break
		}
	}
	h.wantBalance(names[0]+"-home", "available=1 held=0 active=0")
	h.wantBalance(names[1]+"-home", "available=2 held=0 active=0")
	h.wantBalance(names[2]+"-home", "available=2 held=0 active=0")
	g.set(func(g *gate) { g.onSave = nil })
	h.move()
	h.wantBalance(names[0]+"-home", "available=2 held=0 active=0")
	h.verify()
}
