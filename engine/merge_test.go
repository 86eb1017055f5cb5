package engine_test

import (
	"context"
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

// Whichever merge is first, the other one is told that they are one already.
func TestTwoAccountsThatAreMergedIntoEachOtherAtOnceBecomeOne(t *testing.T) {
	h := open(t, memoryStore(t))
	for range 30 {
		ann, bob := h.key(), h.key()
		h.has(ann, 1)
		h.has(bob, 2)
		outcomes := make(chan holdfast.Outcome, 2)
		for _, pair := range [][2]string{{ann, bob}, {bob, ann}} {
			go func() {
				outcome, err := h.Merge(context.Background(), engine.Names{Project: "p", Account: pair[0], Other: pair[1], Actor: "test"})
				if err != nil {
					t.Error(err)
				}
				outcomes <- outcome
			}()
		}
		first, second := <-outcomes, <-outcomes
		if first.Changed == second.Changed {
			t.Errorf("%+v and %+v", first, second)
		}
		h.wantBalance(ann, "available=3 held=0 active=0")
		h.wantBalance(bob, "available=3 held=0 active=0")
	}
	h.verify()
}
