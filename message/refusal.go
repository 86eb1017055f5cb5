package message

import (
	"github.com/holdfast-dev/holdfast"
)

// refusal says why not, with the numbers that the decision saw.
func (w *writer) refusal(o *holdfast.Outcome) {
	numbers, r := o.Refusal, o.Reservation
	switch {
	case o.Reason == holdfast.Invalid:
		w.invalid(o.Problems)
	case o.Reason == holdfast.KeyReused:
		w.say("key_reused", nil)
	case o.Reason == holdfast.NotFound:
		w.say("not_found", nil)
	case o.Reason == holdfast.AlreadyEnded:
		w.say("already_ended", nil)
		if r != nil && !r.Live() {
			w.money(r, nil)
		}
	case o.Reason == holdfast.NotCommitted:
		w.say("not_committed", nil)
	case o.Reason == holdfast.RefundExceedsUsed && r != nil:
		unit := r.Price.Unit
		w.say("refund_exceeds_used", values{"Charged": w.quantity(r.Charged()+r.Debt, unit), "Refunded": w.quantity(r.Refunded, unit)})
	case o.Reason == holdfast.AccountExists:
		w.say("account_exists", nil)
	case o.Reason == holdfast.StaleLease:
		w.say("stale_lease", nil)
	case o.Reason == holdfast.AlreadyRunning:
		w.say("already_running", nil)
	case o.Reason == holdfast.AccountBlocked:
		w.say("account_blocked", nil)
	case o.Reason == holdfast.SubscriptionInactive && numbers != nil:
		w.subscriptionInactive(numbers)
	case o.Reason == holdfast.FeatureNotInPlan && numbers != nil:
		w.featureNotInPlan(numbers)
	case o.Reason == holdfast.Insufficient && numbers != nil && numbers.Feature == "":
		w.adjustment(numbers)
	case o.Reason == holdfast.Insufficient && numbers != nil:
		w.insufficient(numbers)
	case o.Reason == holdfast.HeldByActive && numbers != nil:
		w.heldByActive(numbers)
	case o.Reason == holdfast.TooManyActive && numbers != nil:
		w.tooManyActive(numbers)
	default:
		w.say("refused", nil)
	}
}

func (w *writer) invalid(problems []holdfast.Problem) {
	w.say("invalid", nil)
	var fields []string
	for _, problem := range problems {
		if field := clean(problem.Field); field != "" {
			fields = append(fields, field)
		}
	}
	if len(fields) > 0 {
		w.say("invalid.fields", values{"Fields": w.list(and, fields)})
	}
}

// featureNotInPlan says nothing about quota: there may be plenty, and it would not help.
func (w *writer) featureNotInPlan(r *holdfast.Refusal) {
	w.say("feature_not_in_plan", values{"Feature": w.feature(r.Feature)})
	w.sayPlans("feature_not_in_plan.plans", r)
}

// subscriptionInactive says nothing about quota either. Without a feature, nothing paid is running that could be changed.
func (w *writer) subscriptionInactive(r *holdfast.Refusal) {
	if r.Feature == "" {
		w.say("subscription_inactive.nothing", nil)
		return
	}
	w.say("subscription_inactive", values{"Feature": w.feature(r.Feature)})
	w.sayPlans("feature_not_in_plan.plans", r)
}

// adjustment tells an operator why a correction cannot take that much away. It asks for no feature and waits for nothing.
func (w *writer) adjustment(r *holdfast.Refusal) {
	w.say("insufficient.adjustment", values{"Needed": w.quantity(r.Needed, r.Unit), "Available": w.quantity(r.Available, r.Unit)})
	w.sayHeld(r)
}

func (w *writer) insufficient(r *holdfast.Refusal) {
	if r.Estimated {
		w.say("insufficient.estimated", values{"Needed": w.needed(r)})
	} else {
		w.say("insufficient.needed", values{"Needed": w.needed(r)})
	}
	if w.onlyCycle(r) {
		w.say("insufficient.cycle", values{
			"Available": w.amount(r.Available, r.Unit), "Granted": w.quantityIn(genitive, r.Cycle.Granted, r.Unit),
		})
	} else {
		w.say("insufficient.available", values{"Available": w.quantity(r.Available, r.Unit)})
	}
	w.sayHeld(r)
	w.sayReset(r)
	w.sayPlans("insufficient.plans", r)
}

// needed is the price, by every alternative where there are several.
func (w *writer) needed(r *holdfast.Refusal) string {
	if len(r.Alternatives) < 2 {
		return w.quantity(r.Needed, r.Unit)
	}
	var ways []string
	for _, a := range r.Alternatives {
		ways = append(ways, w.quantity(a.Needed, a.Unit))
	}
	return w.list(or, ways)
}

// onlyCycle reports whether "so many of so many left in this period" tells everything there is: the cycle runs now, and
// what is available is what the cycle has left, or nothing at all. Where other pockets add to it, or something of the
// cycle was taken away by hand, the total is told instead.
func (w *writer) onlyCycle(r *holdfast.Refusal) bool {
	c := r.Cycle
	if c == nil || c.EndsAt.IsZero() || !w.now.Before(c.EndsAt) {
		return false
	}
	return c.Voided == 0 && (r.Available == 0 || r.Available == c.Granted-c.Used-c.Reserved)
}

func (w *writer) sayHeld(r *holdfast.Refusal) {
	if r.Held > 0 {
		w.say("insufficient.held", values{"Held": w.quantity(r.Held, r.Unit)})
	}
}

// sayReset promises nothing where waiting does not help. An answer that is told again later may name a time that has passed.
func (w *writer) sayReset(r *holdfast.Refusal) {
	switch {
	case r.ResetsAt.IsZero():
	case !r.ResetsAt.After(w.now):
		w.say("reset.passed", nil)
	case r.Cycle != nil && r.Cycle.EndsAt.Equal(r.ResetsAt):
		w.say("reset.period", values{"When": w.when(r.ResetsAt)})
	default:
		w.say("reset.enough", values{"When": w.when(r.ResetsAt)})
	}
}

// sayPlans names the plans that would allow it, if any would.
func (w *writer) sayPlans(sentence string, r *holdfast.Refusal) {
	if plans := w.plans(r.Plans); len(plans) > 0 {
		w.sayOf(sentence, min(len(plans), mostListed), values{"Plans": w.list(or, plans)})
	}
}

func (w *writer) heldByActive(r *holdfast.Refusal) {
	v := values{
		"Requests": w.requests(r.Active), "Needed": w.quantity(r.Needed, r.Unit),
		"Available": w.quantity(r.Available, r.Unit), "Held": w.quantity(r.Held, r.Unit),
	}
	lastUnit := r.Available == 0 && w.amount(r.Held, r.Unit) == "1"
	switch {
	case lastUnit:
		w.sayOf("held_by_active.last", r.Active, v)
	case r.Available == 0:
		w.sayOf("held_by_active.all", r.Active, v)
	default:
		w.sayOf("held_by_active.part", r.Active, v)
	}
	switch {
	case r.Active != 1:
		w.say("held_by_active.returns_part", nil)
	case lastUnit:
		w.say("held_by_active.returns_unit", nil)
	default:
		w.say("held_by_active.returns_all", nil)
	}
}

// requests counts requests; a single one is a word.
func (w *writer) requests(n int) string {
	if n == 1 {
		return w.phrase("requests.single", nil)
	}
	return w.phraseOf("requests", n, values{"Count": w.count(n)})
}

func (w *writer) tooManyActive(r *holdfast.Refusal) {
	switch {
	case r.Active == 1:
		w.say("too_many_active.single", nil)
	case r.Active == r.MaxActive:
		w.say("too_many_active.one_of", nil)
	default: // a plan with fewer slots came meanwhile: one of them is not enough
		w.say("too_many_active.several", nil)
	}
	w.sayOf("too_many_active.limit", r.MaxActive, values{"Limit": w.count(r.MaxActive), "Active": w.count(r.Active)})
	w.sayPlans("too_many_active.plans", r)
}
