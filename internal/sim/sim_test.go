package sim_test

import (
	"flag"
	"maps"
	"regexp"
	"slices"
	"testing"
)

var (
	firstSeed = flag.Uint64("sim.seed", 1, "the first seed")
	seeds     = flag.Uint64("sim.n", 60, "how many seeds")
	steps     = flag.Int("sim.steps", 400, "how many steps each")
	enough    = flag.Int("sim.enough", 3, "after how many failing seeds to stop")
	until     = flag.String("sim.until", "", "stop at the first seed that fails in these words, a regular expression, and at no other")
)

// everything is what a simulation is for; sixty seeds reach all of it.
var everything = []string{
	"before load: fail as conflict", "before load: fail as unavailable", "before load: disconnect", "after load: disconnect", "after load: lose lock",
	"before save: fail as conflict", "before save: fail as unavailable", "before save: fail as in doubt", "before save: disconnect",
	"before save: commit later", "after save: disconnect", "after save: fail as unavailable", "before scan: fail as unavailable", "after scan: disconnect",
	"server died", "server ended", "expired", "late commit",
	"reserve: done", "start: done", "heartbeat: done", "commit: done", "release: done", "cancel: done", "force: done", "refund: done",
	"grant: done", "adjust: done", "set_plan: done", "put_account: done",
	"charge: done", "extend: done", "in_doubt: done", "delete_account: done",
	"asked to stop", "stopped", "doubt charged", "overrun charged", "owed", "repaid", "carried over", "zone moved a cycle's end",
	"told an estimate",
	"told again", "told key_reused", "told not_found", "told already_ended", "told not_committed", "told refund_exceeds_used", "told stale_lease",
	"told already_running", "told account_blocked", "told feature_not_in_plan", "told insufficient", "told held_by_active", "told too_many_active",
	"told unavailable", "told outcome_unknown", "told cancelled", "told overloaded",
}

func TestSimulation(t *testing.T) {
	seen := counts{}
	failures := 0
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		w, found := simulate(t, seed, *steps)
		if found != nil {
			t.Error(w.report(found, *steps))
			failures++
			stop := failures == *enough
			if *until != "" {
				stop = regexp.MustCompile(*until).MatchString(found.what)
			}
			if stop {
				t.Fatalf("%d seeds have failed; the rest is left out", failures)
			}
		}
		seen.add(w.seen)
	}
	for _, what := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%7d  %s", seen[what], what)
	}
	for _, what := range everything {
		if seen[what] == 0 && *seeds >= 60 && *steps >= 400 {
			t.Errorf("no seed came to this: %s", what)
		}
	}
}

func TestASeedGivesTheSameHistoryAgain(t *testing.T) {
	for seed := uint64(1); seed <= 5; seed++ {
		first, _ := simulate(t, seed, *steps)
		again, _ := simulate(t, seed, *steps)
		other, _ := simulate(t, seed+100, *steps)
		if first.history != again.history {
			t.Errorf("seed %d went two ways", seed)
		}
		if first.history == other.history {
			t.Errorf("seeds %d and %d went the same way", seed, seed+100)
		}
	}
}
