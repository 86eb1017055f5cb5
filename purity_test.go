package holdfast_test

import (
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-dev/holdfast"
)

// That the same inputs give deeply equal outcomes and changes, and that the order of rows decides nothing, is checked by
// the world with every command of every test. Here is the rest of being pure.

func TestDecideLeavesCatalogCommandAndRecordedRowsAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.catalog = modelCatalog()
		w.submit(w.command("ann", "bought", holdfast.AddGrant{Unit: "credit", Amount: 5}))
		for range rapid.IntRange(1, 15).Draw(t, "steps") {
			command := drawCommand(t, w, w.stored("ann").reservations)
			before := inJSON([]any{w.catalog, command, w.stored("ann").grants, w.stored("ann").reservations, w.stored("ann").entries})
			state := w.load(command)
			holdfast.Decide(w.catalog, state, command, w.now)
			after := inJSON([]any{w.catalog, command, w.stored("ann").grants, w.stored("ann").reservations, w.stored("ann").entries})
			if before != after {
				t.Fatalf("%s: decided, and what was only read changed:\n%s\n%s", command.Do.Name(), before, after)
			}
			if !reflect.DeepEqual(w.catalog, modelCatalog()) {
				t.Fatalf("%s changed the catalog", command.Do.Name())
			}
			w.submit(command)
			w.now = w.now.Add(rapid.SampledFrom([]time.Duration{0, time.Minute, 26 * time.Hour}).Draw(t, "wait"))
		}
	})
}

// A clone is what the engine falls back to when a later command of a batch panics: nothing of it may be shared.
func TestAClonedStateIsDecidedApart(t *testing.T) {
	w := funded(t, 100, 5, 10)
	id := w.work("m1")
	commit := w.command("ann", "c1", holdfast.Commit{ReservationID: id, Amount: pointer(holdfast.Amount(2))})
	reserve := w.command("ann", "m2", holdfast.Reserve{Feature: "work"})
	state := w.load(commit, reserve)
	holdfast.Decide(w.catalog, state, reserve, w.now)

	clone := state.Clone()
	before, _ := state.Changes()
	written := inJSON([]any{before, state})
	holdfast.Decide(w.catalog, clone, commit, w.now)
	after, _ := state.Changes()
	if got := inJSON([]any{after, state}); got != written {
		t.Errorf("deciding on the clone changed the original:\n%s\n%s", got, written)
	}
	changes, _ := clone.Changes()
	if len(changes.Entries) != 2 || len(changes.Answers) != 2 || len(changes.NewReservations) != 1 {
		t.Errorf("the clone has %d entries, %d answers, %d new reservations: want those of both commands", len(changes.Entries), len(changes.Answers), len(changes.NewReservations))
	}
}

func TestReasonsAreListedInTheOrderInWhichTheyWin(t *testing.T) {
	want := []holdfast.Reason{
		"invalid", "key_reused", "not_found", "already_ended", "not_committed", "refund_exceeds_used", "account_exists", "stale_lease", "already_running",
		"account_blocked", "subscription_inactive", "feature_not_in_plan", "insufficient", "held_by_active", "too_many_active",
	}
	var got []holdfast.Reason
	for _, info := range holdfast.Reasons() {
		got = append(got, info.Reason)
		if info.Meaning == "" {
			t.Errorf("%s has no meaning", info.Reason)
		}
		accident := info.Reason == "invalid" || info.Reason == "key_reused" || info.Reason == "not_found"
		if info.Recorded == accident || info.Reason.Recorded() == accident {
			t.Errorf("%s is recorded: %t", info.Reason, info.Recorded)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	if !holdfast.Reason("").Recorded() || holdfast.Reason("nothing of ours").Recorded() {
		t.Error("a success is recorded, and an unknown reason is not")
	}
}
