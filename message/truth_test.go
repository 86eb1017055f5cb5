package message

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/holdfast-dev/holdfast"
)

// checkShape: a text is one line of whole sentences, with every blank filled in.
func checkShape(t interface {
	Helper()
	Errorf(string, ...any)
}, text string,
) {
	t.Helper()
	switch {
	case text == "" || !strings.HasSuffix(text, "."):
		t.Errorf("%q is no sentence", text)
	case strings.Contains(text, "<no value>"):
		t.Errorf("%q has an empty blank", text)
	case strings.Contains(text, "  ") || strings.TrimSpace(text) != text:
		t.Errorf("%q has a space too many", text)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }):
		t.Errorf("%q is no plain line", text)
	}
}

func amounts() *rapid.Generator[holdfast.Amount] {
	return rapid.Custom(func(t *rapid.T) holdfast.Amount {
		return rapid.OneOf(
			rapid.Just(holdfast.Amount(0)), // often: zeros are what the rules turn on
			rapid.Map(rapid.Int64Range(0, 30), func(n int64) holdfast.Amount { return holdfast.Amount(n) }),
			rapid.Map(rapid.Int64Range(0, int64(holdfast.MaxAmount)), func(n int64) holdfast.Amount { return holdfast.Amount(n) }),
		).Draw(t, "amount")
	})
}

func instants() *rapid.Generator[time.Time] {
	return rapid.Custom(func(t *rapid.T) time.Time {
		if rapid.Bool().Draw(t, "none") {
			return time.Time{}
		}
		return noon.Add(time.Duration(rapid.Int64Range(-100, 10_000).Draw(t, "minutes")) * time.Minute)
	})
}

// outcomes draws any outcome at all, also such as the core never gives.
func outcomes() *rapid.Generator[holdfast.Outcome] {
	return rapid.Custom(func(t *rapid.T) holdfast.Outcome {
		amount := func(name string) holdfast.Amount { return amounts().Draw(t, name) }
		units := rapid.SampledFrom([]string{"credit", "image", "coin", "token", "gone"})
		reasons := []holdfast.Reason{"of_tomorrow"}
		for _, info := range holdfast.Reasons() {
			reasons = append(reasons, info.Reason)
		}
		o := holdfast.Outcome{
			Reason:  rapid.OneOf(rapid.Just(holdfast.Reason("")), rapid.SampledFrom(reasons)).Draw(t, "reason"),
			Changed: rapid.Bool().Draw(t, "changed"), Replayed: rapid.Bool().Draw(t, "replayed"), DryRun: rapid.Bool().Draw(t, "dry run"),
		}
		if rapid.IntRange(0, 3).Draw(t, "has reservation") > 0 {
			state := rapid.SampledFrom([]holdfast.ReservationState{holdfast.Reserved, holdfast.Running, holdfast.Committed, holdfast.Released, holdfast.Expired})
			o.Reservation = &holdfast.Reservation{
				State: state.Draw(t, "state"), Price: holdfast.Price{Unit: units.Draw(t, "unit")},
				Reserved: amount("reserved"), Used: amount("used"), LateUsed: amount("late used"), Debt: amount("debt"), Refunded: amount("refunded"),
				Unbilled: amount("unbilled"), LateAt: instants().Draw(t, "late at"),
				Cause: rapid.SampledFrom([]string{"", holdfast.CauseFailed, holdfast.CauseCancelled, holdfast.CauseForced, "other"}).Draw(t, "cause"),
			}
		}
		if rapid.Bool().Draw(t, "has settlement") {
			o.Settlement = &holdfast.Settlement{
				Returned: amount("returned"), Voided: amount("voided"), Unbilled: amount("unbilled"), Late: rapid.Bool().Draw(t, "late"),
			}
		}
		if rapid.Bool().Draw(t, "has balance") {
			o.Balance = &holdfast.Balance{Unit: units.Draw(t, "unit"), Available: amount("available")}
		}
		if rapid.Bool().Draw(t, "has grant") {
			o.Grant = &holdfast.Grant{Unit: units.Draw(t, "unit"), Granted: amount("granted")}
		}
		if rapid.Bool().Draw(t, "has refusal") {
			o.Refusal = &holdfast.Refusal{
				Feature: rapid.SampledFrom([]string{"", "text.improve", "file.analyze", "gone"}).Draw(t, "feature"), Unit: units.Draw(t, "unit"),
				Needed: amount("needed"), Available: amount("available"), Held: amount("held"),
				Active: rapid.IntRange(0, 130).Draw(t, "active"), MaxActive: rapid.IntRange(0, 130).Draw(t, "max active"),
				Plans: rapid.SliceOfN(rapid.SampledFrom([]string{"free", "pro", "max", "gone"}), 0, mostListed).Draw(t, "plans"), ResetsAt: instants().Draw(t, "resets at"),
			}
			if rapid.Bool().Draw(t, "has cycle") {
				o.Refusal.Cycle = &holdfast.CycleNumbers{Granted: amount("granted"), Used: amount("used"), Reserved: amount("reserved"), EndsAt: instants().Draw(t, "ends at")}
			}
		}
		return o
	})
}

// provesNothingCharged is written apart from the code that it judges: from the words of the rule.
func provesNothingCharged(r *holdfast.Reservation) bool {
	return r != nil && (r.State == holdfast.Released || r.State == holdfast.Expired) && r.Used == 0 && r.LateUsed == 0 && r.Debt == 0
}

func TestNothingWasChargedIsSaidOnlyWhereTheOutcomeProvesIt(t *testing.T) {
	texts := newTexts(t)
	rapid.Check(t, func(t *rapid.T) {
		o := outcomes().Draw(t, "outcome")
		for _, reader := range []Reader{english(), russian()} {
			text := texts.Detail(reader, shop(), o, noon)
			checkShape(t, text)
			if chargedNothing.MatchString(text) && !provesNothingCharged(o.Reservation) {
				t.Fatalf("%q is not proven", text)
			}
		}
	})
}

func TestNothingWasChargedIsSaidOfEveryEndingThatChargedNothingAndOfNoOther(t *testing.T) {
	texts := newTexts(t)
	reasons := []holdfast.Reason{"", "of_tomorrow"}
	for _, info := range holdfast.Reasons() {
		reasons = append(reasons, info.Reason)
	}
	said := 0
	for _, r := range everyEnding() {
		for _, reason := range reasons {
			for _, settled := range []*holdfast.Settlement{nil, {Returned: 3, Voided: 2}} {
				if reason != "" && settled != nil {
					continue // a refusal settles nothing
				}
				o := holdfast.Outcome{Reason: reason, Reservation: &r, Settlement: settled, Refusal: &holdfast.Refusal{Unit: "credit"}}
				shown := (reason == "" || reason == holdfast.AlreadyEnded) && r.Refunded == 0
				for _, reader := range []Reader{english(), russian()} {
					text := texts.Detail(reader, shop(), o, noon)
					if says, want := chargedNothing.MatchString(text), shown && provesNothingCharged(&r); says != want {
						t.Fatalf("%q: says it %t, want %t", text, says, want)
					} else if says {
						said++
					}
				}
			}
		}
	}
	if said == 0 {
		t.Error("it was never said, so nothing was tested")
	}
}

// everyEnding are all states with and without every kind of charge.
func everyEnding() []holdfast.Reservation {
	states := []holdfast.ReservationState{holdfast.Reserved, holdfast.Running, holdfast.Committed, holdfast.Released, holdfast.Expired}
	var list []holdfast.Reservation
	for _, state := range states {
		for kind := range 1 << 5 {
			yes := func(bit int) holdfast.Amount { return holdfast.Amount(kind >> bit & 1) }
			r := credits(state, 5*yes(0), 3*yes(1))
			r.LateUsed, r.Refunded = 2*yes(2), yes(3)
			if yes(4) == 1 {
				r.LateAt = noon
			}
			list = append(list, r)
		}
	}
	return list
}

func TestWhatWasVoidedIsToldBesideThatNothingWasCharged(t *testing.T) {
	texts := newTexts(t)
	rapid.Check(t, func(t *rapid.T) {
		voided := rapid.Int64Range(1, 100).Draw(t, "voided")
		r := credits(holdfast.Released, 100, 0)
		text := texts.Detail(english(), shop(), ended(r, holdfast.Settlement{Returned: holdfast.Amount(100 - voided), Voided: holdfast.Amount(voided)}), noon)
		if !strings.Contains(text, "Nothing was charged.") || !strings.Contains(text, "Not returned") {
			t.Fatalf("%q hides what was lost", text)
		}
		if returned := strings.Contains(text, " Returned:"); returned != (voided < 100) {
			t.Fatalf("%q", text)
		}
	})
}

var printedNumber = regexp.MustCompile(`-?\d[\d\x{a0}]*(?:,\d+)?`)

// A number that stands in a text and not in the outcome was computed here, which is never allowed.
func TestEveryNumberOfATextIsANumberOfTheOutcome(t *testing.T) {
	texts := newTexts(t)
	rapid.Check(t, func(t *rapid.T) {
		o := outcomes().Draw(t, "outcome")
		if o.Refusal != nil {
			o.Refusal.ResetsAt = time.Time{} // dates have a test of their own
		}
		w := texts.writer(russian(), shop(), noon)
		var known []string
		for _, scaled := range []string{"credit", "coin"} {
			for _, amount := range numbersOf(&o) {
				known = append(known, w.amount(amount, scaled))
			}
		}
		text := texts.Detail(russian(), shop(), o, noon)
		for _, number := range printedNumber.FindAllString(text, -1) {
			if !slices.Contains(known, number) {
				t.Fatalf("%q says %s; the outcome has only %v", text, number, known)
			}
		}
	})
}

func numbersOf(o *holdfast.Outcome) []holdfast.Amount {
	var list []holdfast.Amount
	if r := o.Reservation; r != nil {
		list = append(list, r.Reserved, r.Charged(), r.Debt, r.Charged()+r.Debt, r.Refunded)
	}
	if s := o.Settlement; s != nil {
		list = append(list, s.Returned, s.Voided)
	}
	if b := o.Balance; b != nil {
		list = append(list, b.Available)
	}
	if g := o.Grant; g != nil {
		list = append(list, g.Granted)
	}
	if r := o.Refusal; r != nil {
		list = append(list, r.Needed, r.Available, r.Held, holdfast.Amount(r.Active), holdfast.Amount(r.MaxActive))
		if r.Cycle != nil {
			list = append(list, r.Cycle.Granted)
		}
	}
	return list
}

func TestAFeatureThatThePlanLacksIsNoMatterOfQuota(t *testing.T) {
	texts := newTexts(t)
	quota := regexp.MustCompile(`(?i)\d|credit|кредит|left|остал|period|период|quota|квот|limit|лимит|available|доступн|хватит|enough`)
	rapid.Check(t, func(t *rapid.T) {
		o := outcomes().Draw(t, "outcome")
		o.Reason = holdfast.FeatureNotInPlan
		for _, reader := range []Reader{english(), russian()} {
			if text := texts.Detail(reader, shop(), o, noon); quota.MatchString(text) {
				t.Fatalf("%q speaks of %q", text, quota.FindString(text))
			}
		}
	})
}

func TestNoResetIsPromisedWhereWaitingDoesNotHelp(t *testing.T) {
	texts := newTexts(t)
	promise := regexp.MustCompile(`(?i)period begins|enough (in|on) \d|try again|период начн|хватит (через|\d)|попробуйте`)
	rapid.Check(t, func(t *rapid.T) {
		o := outcomes().Filter(func(o holdfast.Outcome) bool { return o.Refusal != nil }).Draw(t, "outcome")
		o.Reason = holdfast.Insufficient
		o.Refusal.ResetsAt = time.Time{}
		for _, reader := range []Reader{english(), russian()} {
			if text := texts.Detail(reader, shop(), o, noon); promise.MatchString(text) {
				t.Fatalf("%q promises %q", text, promise.FindString(text))
			}
		}
	})
}

// The texts of what the core really decides, from the press of the button to the end.
func TestTwoPressesAreAnsweredWithTheNumbersOfTheDecision(t *testing.T) {
	texts, catalog := newTexts(t), shop()
	catalog.Plans[0].MaxActive = 1
	catalog.Plans[0].Allowances[0].Amount = 1
	state := holdfast.NewState("bot", "telegram:42")
	now := noon
	commands := byte(0)
	tell := func(key string, op holdfast.Operation) (holdfast.Outcome, string) {
		t.Helper()
		commands++
		command := holdfast.Command{ID: holdfast.ID{0: commands}, Project: "bot", Account: "telegram:42", Key: key, Do: op}
		outcome := holdfast.Decide(catalog, state, command, now)
		return outcome, texts.Detail(russian(), catalog, outcome, now)
	}
	expect := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}

	first, text := tell("m1", holdfast.Reserve{Feature: "text.improve"})
	expect(text, "Запрос принят. Отложено до результата: 1 кредит. Сейчас доступно: 0 кредитов.")
	_, text = tell("m2", holdfast.Reserve{Feature: "text.improve"})
	expect(text, "Свободных запросов нет: один запрос уже выполняется и удерживает последнюю единицу. Если он завершится ошибкой, единица вернётся.")
	_, text = tell("m3", holdfast.Reserve{Feature: "file.analyze"})
	expect(text, "На вашем тарифе нет функции «Анализ файлов». Она есть на тарифах «Старший» или «Полный».")

	now = now.Add(time.Minute)
	_, text = tell("", holdfast.Release{ReservationID: first.Reservation.ID})
	expect(text, "Выполнить запрос не получилось. Ничего не списано. Вернулось: 1 кредит.")
	second, _ := tell("m4", holdfast.Reserve{Feature: "text.improve"})
	_, text = tell("", holdfast.Commit{ReservationID: second.Reservation.ID})
	expect(text, "Готово. Списано: 1 кредит.")
	_, text = tell("", holdfast.Release{ReservationID: second.Reservation.ID})
	expect(text, "Этот запрос уже завершён. Списано: 1 кредит.")

	// The window opened with the first press, at noon.
	_, text = tell("m5", holdfast.Reserve{Feature: "text.improve"})
	expect(text, "Нужно: 1 кредит. На вашем тарифе осталось 0 из 1 кредита в этом периоде. Новый период начнётся 14 декабря в 12:00.")
	now = noon.Add(23*time.Hour + 12*time.Minute)
	_, text = tell("m6", holdfast.Reserve{Feature: "text.improve"})
	expect(text, "Нужно: 1 кредит. На вашем тарифе осталось 0 из 1 кредита в этом периоде. Новый период начнётся через 48 минут.")
	now = noon.Add(24 * time.Hour)
	_, text = tell("m7", holdfast.Reserve{Feature: "text.improve"})
	expect(text, "Запрос принят. Отложено до результата: 1 кредит. Сейчас доступно: 0 кредитов.")
}
