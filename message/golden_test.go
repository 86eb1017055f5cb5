package message

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast"
)

var update = flag.Bool("update", false, "write the golden texts anew")

const goldenFile = "testdata/texts.golden"

// situation is one outcome whose texts are kept in the golden file.
type situation struct {
	name    string
	outcome holdfast.Outcome
}

func refused(reason holdfast.Reason, numbers holdfast.Refusal) holdfast.Outcome {
	return holdfast.Outcome{Reason: reason, Refusal: &numbers}
}

func ended(r holdfast.Reservation, settled holdfast.Settlement) holdfast.Outcome {
	return holdfast.Outcome{Changed: true, Reservation: &r, Settlement: &settled}
}

func credits(state holdfast.ReservationState, reserved, used holdfast.Amount) holdfast.Reservation {
	return holdfast.Reservation{State: state, Price: holdfast.Price{Unit: "credit", Amount: reserved}, Reserved: reserved, Used: used}
}

func situations() []situation {
	cycle := func(granted, used, reserved holdfast.Amount) *holdfast.CycleNumbers {
		return &holdfast.CycleNumbers{Granted: granted, Used: used, Reserved: reserved, StartsAt: reset.Add(-24 * time.Hour), EndsAt: reset}
	}
	cancelled, forced, failed := credits(holdfast.Released, 5, 0), credits(holdfast.Released, 5, 0), credits(holdfast.Released, 5, 0)
	cancelled.Cause, forced.Cause, failed.Cause = holdfast.CauseCancelled, holdfast.CauseForced, holdfast.CauseFailed
	late, lateForNothing := credits(holdfast.Expired, 10, 0), credits(holdfast.Expired, 10, 0)
	late.LateAt, late.LateUsed, late.Unbilled = noon, 4, 6
	lateForNothing.LateAt, lateForNothing.Unbilled = noon, 10
	asked, doubtful := credits(holdfast.Running, 5, 0), credits(holdfast.Running, 5, 0)
	asked.CancelRequestedAt, doubtful.InDoubt = noon, true
	owing, onlyOwing := credits(holdfast.Committed, 18, 23), credits(holdfast.Committed, 0, 0)
	owing.Debt, owing.Unbilled, onlyOwing.Debt = 1, 1, 2
	forgiven := owing
	forgiven.Refunded = 24
	refunded := credits(holdfast.Committed, 5, 3)
	refunded.Refunded = 2

	return []situation{
		{"invalid", holdfast.Outcome{Reason: holdfast.Invalid, Problems: []holdfast.Problem{{Field: "amount", Hint: "use an integer"}, {Field: "unit", Hint: "use a unit"}}}},
		{"invalid, nothing named", holdfast.Outcome{Reason: holdfast.Invalid}},
		{"key_reused", holdfast.Outcome{Reason: holdfast.KeyReused}},
		{"not_found", holdfast.Outcome{Reason: holdfast.NotFound}},
		{"already_ended, committed", holdfast.Outcome{Reason: holdfast.AlreadyEnded, Reservation: pointer(credits(holdfast.Committed, 5, 3))}},
		{"already_ended, released", holdfast.Outcome{Reason: holdfast.AlreadyEnded, Reservation: &failed}},
		{"already_ended, expired and charged late", holdfast.Outcome{Reason: holdfast.AlreadyEnded, Reservation: &late}},
		{"not_committed", holdfast.Outcome{Reason: holdfast.NotCommitted, Reservation: &failed}},
		{"refund_exceeds_used", holdfast.Outcome{Reason: holdfast.RefundExceedsUsed, Reservation: &refunded}},
		{"account_exists", holdfast.Outcome{Reason: holdfast.AccountExists}},
		{"stale_lease", holdfast.Outcome{Reason: holdfast.StaleLease, Reservation: pointer(credits(holdfast.Running, 5, 0))}},
		{"already_running", holdfast.Outcome{Reason: holdfast.AlreadyRunning, Reservation: pointer(credits(holdfast.Running, 5, 0))}},
		{"account_blocked", refused(holdfast.AccountBlocked, holdfast.Refusal{Feature: "text.improve", Plan: "free"})},

		{"subscription_inactive", refused(holdfast.SubscriptionInactive, holdfast.Refusal{Feature: "file.analyze", Plan: "free", MaxActive: 1, Plans: []string{"pro"}})},
		{"subscription_inactive, nothing to change", refused(holdfast.SubscriptionInactive, holdfast.Refusal{Plan: "free"})},
		{"feature_not_in_plan", refused(holdfast.FeatureNotInPlan, holdfast.Refusal{Feature: "file.analyze", Plan: "free", MaxActive: 1, Plans: []string{"pro"}})},
		{"feature_not_in_plan, two plans have it", refused(holdfast.FeatureNotInPlan, holdfast.Refusal{Feature: "file.analyze", Plan: "free", Plans: []string{"pro", "max"}})},
		{"feature_not_in_plan, no plan has it", refused(holdfast.FeatureNotInPlan, holdfast.Refusal{Feature: "file.analyze", Plan: "free"})},

		{"insufficient, the article's example", refused(holdfast.Insufficient, holdfast.Refusal{
			Feature: "text.improve", Unit: "credit", Needed: 1, Plan: "free", Cycle: cycle(3, 3, 0), ResetsAt: reset,
		})},
		{"insufficient, all ways to pay, some of it held, a plan with more", refused(holdfast.Insufficient, holdfast.Refusal{
			Feature: "image.generate", Unit: "credit", Needed: 5, Available: 1, Held: 1, Active: 1, MaxActive: 2, Plan: "free", Cycle: cycle(3, 1, 1), Plans: []string{"pro"},
			Alternatives: []holdfast.Alternative{{Unit: "image", Needed: 1}, {Unit: "credit", Needed: 5, Available: 1, Held: 1}},
		})},
		{"insufficient, waiting does not help", refused(holdfast.Insufficient, holdfast.Refusal{
			Feature: "image.generate", Unit: "credit", Needed: 5, Available: 1, Cycle: cycle(3, 2, 0), Plans: []string{"pro", "max"},
		})},
		{"insufficient, the cycle has not started", refused(holdfast.Insufficient, holdfast.Refusal{
			Feature: "image.generate", Unit: "credit", Needed: 5, Available: 3, Cycle: &holdfast.CycleNumbers{Granted: 3},
		})},
		{"insufficient, with something bought", refused(holdfast.Insufficient, holdfast.Refusal{
			Feature: "image.generate", Unit: "credit", Needed: 5, Available: 4, Cycle: cycle(3, 3, 0), ResetsAt: reset,
		})},
		{"insufficient, a later pocket brings enough", refused(holdfast.Insufficient, holdfast.Refusal{
			Feature: "image.generate", Unit: "credit", Needed: 5, Available: 1, Cycle: cycle(3, 2, 0), ResetsAt: noon.Add(3 * time.Hour),
		})},
		{"insufficient, no cycle", refused(holdfast.Insufficient, holdfast.Refusal{Feature: "text.improve", Unit: "coin", Needed: 250, Available: 150})},
		{"insufficient, told again after the reset", refused(holdfast.Insufficient, holdfast.Refusal{
			Feature: "text.improve", Unit: "credit", Needed: 1, Cycle: &holdfast.CycleNumbers{Granted: 3, Used: 3, EndsAt: noon}, ResetsAt: noon,
		})},
		{"insufficient, an estimate", refused(holdfast.Insufficient, holdfast.Refusal{
			Feature: "chat.completion", Unit: "credit", Needed: 18, Available: 5, Estimated: true, AffordableUsage: map[string]holdfast.Amount{"output_token": 1100},
		})},
		{"insufficient, an adjustment", refused(holdfast.Insufficient, holdfast.Refusal{Unit: "credit", Needed: 5, Available: 2, Held: 1, Cycle: cycle(3, 0, 1)})},

		{"held_by_active, the API's example", refused(holdfast.HeldByActive, holdfast.Refusal{
			Feature: "text.improve", Unit: "credit", Needed: 1, Held: 1, Active: 1, MaxActive: 1, Plan: "free", Cycle: cycle(3, 2, 1), ResetsAt: reset, Plans: []string{"pro"},
		})},
		{"held_by_active, the last unit among two", refused(holdfast.HeldByActive, holdfast.Refusal{Feature: "text.improve", Unit: "coin", Needed: 100, Held: 100, Active: 2, MaxActive: 3})},
		{"held_by_active, one holds everything", refused(holdfast.HeldByActive, holdfast.Refusal{Feature: "image.generate", Unit: "credit", Needed: 5, Held: 5, Active: 1, MaxActive: 1})},
		{"held_by_active, twenty-one hold everything", refused(holdfast.HeldByActive, holdfast.Refusal{Feature: "image.generate", Unit: "image", Needed: 3, Held: 21, Active: 21, MaxActive: 30})},
		{"held_by_active, something is free", refused(holdfast.HeldByActive, holdfast.Refusal{Feature: "image.generate", Unit: "credit", Needed: 5, Available: 2, Held: 3, Active: 1, MaxActive: 3})},
		{"held_by_active, two hold, something is free", refused(holdfast.HeldByActive, holdfast.Refusal{Feature: "image.generate", Unit: "credit", Needed: 5, Available: 2, Held: 4, Active: 2, MaxActive: 3})},

		{"too_many_active, one", refused(holdfast.TooManyActive, holdfast.Refusal{Feature: "text.improve", Unit: "credit", Needed: 1, Available: 2, Active: 1, MaxActive: 1, Plan: "free", Plans: []string{"pro"}})},
		{"too_many_active, three", refused(holdfast.TooManyActive, holdfast.Refusal{Feature: "text.improve", Unit: "credit", Needed: 1, Available: 2, Active: 3, MaxActive: 3, Plan: "pro"})},
		{"too_many_active, more than the plan has now", refused(holdfast.TooManyActive, holdfast.Refusal{Feature: "text.improve", Active: 3, MaxActive: 1, Plan: "free", Plans: []string{"pro", "max"}})},
		{"a reason of a later version", holdfast.Outcome{Reason: "of_tomorrow"}},

		{"reserved", holdfast.Outcome{Changed: true, Reservation: pointer(credits(holdfast.Reserved, 5, 0)), Balance: &holdfast.Balance{Unit: "credit", Available: 7, Reserved: 5}}},
		{"reserved, free", holdfast.Outcome{Changed: true, Reservation: pointer(credits(holdfast.Reserved, 0, 0)), Balance: &holdfast.Balance{Unit: "credit", Available: 7}}},
		{"dry run", holdfast.Outcome{Changed: true, DryRun: true, Reservation: pointer(credits(holdfast.Reserved, 5, 0))}},
		{"dry run, free", holdfast.Outcome{Changed: true, DryRun: true, Reservation: pointer(credits(holdfast.Reserved, 0, 0))}},
		{"running", holdfast.Outcome{Changed: true, Reservation: pointer(credits(holdfast.Running, 5, 0))}},
		{"running, asked to stop", holdfast.Outcome{Changed: true, Reservation: &asked}},
		{"running, in doubt", holdfast.Outcome{Changed: true, Reservation: &doubtful}},
		{"committed, more than was reserved", ended(owing, holdfast.Settlement{Unbilled: 1})},
		{"committed, all of it owed", ended(onlyOwing, holdfast.Settlement{})},
		{"refunded, what was owed too", ended(forgiven, holdfast.Settlement{Returned: 24})},
		{"committed, everything", ended(credits(holdfast.Committed, 5, 5), holdfast.Settlement{})},
		{"committed, part returned", ended(credits(holdfast.Committed, 5, 3), holdfast.Settlement{Returned: 2})},
		{"committed, part came back too late", ended(credits(holdfast.Committed, 5, 2), holdfast.Settlement{Returned: 1, Voided: 2})},
		{"committed with nothing used", ended(credits(holdfast.Committed, 5, 0), holdfast.Settlement{Returned: 5})},
		{"committed, free", ended(credits(holdfast.Committed, 0, 0), holdfast.Settlement{})},
		{"released, failed", ended(failed, holdfast.Settlement{Returned: 5})},
		{"released, cancelled", ended(cancelled, holdfast.Settlement{Returned: 5})},
		{"released, forced, and part came back too late", ended(forced, holdfast.Settlement{Returned: 4, Voided: 1})},
		{"released before", holdfast.Outcome{Reservation: &failed, Settlement: &holdfast.Settlement{}}},
		{"expired", holdfast.Outcome{Reservation: pointer(credits(holdfast.Expired, 5, 0))}},
		{"expired, charged late", ended(late, holdfast.Settlement{Unbilled: 6, Late: true})},
		{"expired, late, and nothing was left to charge", ended(lateForNothing, holdfast.Settlement{Unbilled: 10, Late: true})},
		{"refunded", ended(refunded, holdfast.Settlement{Returned: 2})},
		{"refunded into a pocket that had ended", ended(refunded, holdfast.Settlement{Voided: 2})},
		{"granted", holdfast.Outcome{Changed: true, Grant: &holdfast.Grant{Unit: "credit", Granted: 100}, Balance: &holdfast.Balance{Unit: "credit", Available: 1234}}},
		{"adjusted", holdfast.Outcome{Changed: true, Balance: &holdfast.Balance{Unit: "credit", Available: 1}}},
		{"account changed", holdfast.Outcome{Changed: true, Account: &holdfast.AccountView{}}},
	}
}

func TestEveryReasonEndingAndAccidentHasItsTextInBothLanguages(t *testing.T) {
	texts := newTexts(t)
	var written strings.Builder
	written.WriteString("# What people are told, read in Moscow on 13 December 2026 at 12:00. Written by go test ./message -update.\n")
	for _, s := range situations() {
		fmt.Fprintf(&written, "\n# %s\n", s.name)
		for _, reader := range []Reader{english(), russian()} {
			fmt.Fprintln(&written, texts.Detail(reader, shop(), s.outcome, noon))
		}
	}
	for _, accident := range Accidents() {
		fmt.Fprintf(&written, "\n# accident %s\n", accident)
		for _, reader := range []Reader{english(), russian()} {
			fmt.Fprintln(&written, texts.Accident(reader, accident))
		}
	}
	for _, step := range []holdfast.Step{
		{Check: holdfast.CheckAccount, Passed: true},
		{Check: holdfast.CheckAccount},
		{Check: holdfast.CheckPlan, Passed: true},
		{Check: holdfast.CheckPlan},
		{Check: holdfast.CheckPrice, Passed: true, Unit: "credit"},
		{Check: holdfast.CheckPrice, Passed: true, Unit: "credit", Needed: 5, Available: 21},
		{Check: holdfast.CheckPrice, Unit: "image", Needed: 1, Held: 2},
		{Check: holdfast.CheckSlot, Passed: true, Active: 1, MaxActive: 3},
	} {
		fmt.Fprintf(&written, "\n# explained: %s, passed %v\n", step.Check, step.Passed)
		for _, language := range []string{"en", "ru"} {
			text := texts.Step(language, shop(), step)
			checkShape(t, text)
			fmt.Fprintln(&written, text)
		}
	}
	for _, kind := range Notices() {
		fmt.Fprintf(&written, "\n# notice: %s\n", kind)
		for _, reader := range []Reader{english(), russian()} {
			text := texts.Notice(reader, shop(), kind, &holdfast.Balance{Unit: "credit", Available: 5}, noon)
			checkShape(t, text)
			fmt.Fprintln(&written, text)
		}
	}
	for _, reason := range PreCheckoutReasons() {
		fmt.Fprintf(&written, "\n# payment stopped: %s\n", reason)
		for _, reader := range []Reader{english(), russian()} {
			text := texts.PreCheckout(reader, reason, reset, noon)
			checkShape(t, text)
			fmt.Fprintln(&written, text)
		}
	}
	written.WriteString("\n# titles\n")
	for _, info := range holdfast.Reasons() {
		fmt.Fprintf(&written, "%s: %s\n", info.Reason, texts.Title(info.Reason))
	}
	for _, accident := range Accidents() {
		fmt.Fprintf(&written, "%s: %s\n", accident, texts.AccidentTitle(accident))
	}

	if *update {
		if err := os.WriteFile(goldenFile, []byte(written.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	if difference := cmp.Diff(string(golden), written.String()); difference != "" {
		t.Errorf("texts differ from %s (-golden +now):\n%s", goldenFile, difference)
	}
}

func TestEveryReasonOfTheCoreIsAmongTheGoldenTexts(t *testing.T) {
	texts := newTexts(t)
	plain := texts.Detail(english(), shop(), holdfast.Outcome{Reason: "of_tomorrow"}, noon)
	for _, info := range holdfast.Reasons() {
		found := false
		for _, s := range situations() {
			if s.outcome.Reason == info.Reason {
				found = true
				if text := texts.Detail(english(), shop(), s.outcome, noon); text == plain {
					t.Errorf("%s: %s has no text of its own", s.name, info.Reason)
				}
			}
		}
		if !found {
			t.Errorf("no golden text shows %s", info.Reason)
		}
		if title := texts.Title(info.Reason); title == texts.Title("of_tomorrow") {
			t.Errorf("%s has no title", info.Reason)
		}
	}
	for _, accident := range Accidents() {
		if _, ok := accidentTitles[accident]; !ok {
			t.Errorf("%s has no title", accident)
		}
	}
	if got, want := texts.Accident(english(), "of_tomorrow"), texts.Accident(english(), Internal); got != want {
		t.Errorf("an unknown accident is told as %q, want %q", got, want)
	}
}
