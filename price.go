package holdfast

import (
	"math/bits"
	"slices"
	"time"
)

// quote is one alternative of a price, and what the account has to pay it with.
type quote struct {
	price     Price
	needed    Amount
	pockets   []*Grant
	available Amount
	held      Amount // by reservations, in pockets that are still in force: it comes back if they fail
}

func (q *quote) payable() bool { return q.available >= q.needed }

// onlyHeld: enough, were it not for what running work holds.
func (q *quote) onlyHeld() bool { return !q.payable() && q.available+q.held >= q.needed }

// asked is what somebody wants of a feature: a quantity, and of a price by usage at most how much.
type asked struct {
	quantity Amount
	usage    map[string]Amount
}

// of is what the price comes to, and whether that is within MaxAmount.
func (p Price) of(what asked) (Amount, bool) {
	if p.ByUsage() {
		return p.cost(what.usage)
	}
	return p.Amount.times(what.quantity)
}

// cost is what usage costs by the price's rates: the sum over all kinds, rounded up once. Kinds without a rate cost nothing.
func (p Price) cost(usage map[string]Amount) (Amount, bool) {
	var high, low uint64
	for _, kind := range sortedKeys(usage) {
		h, l := bits.Mul64(uint64(p.Rates[kind]), uint64(usage[kind]))
		var carry uint64
		low, carry = bits.Add64(low, l, 0)
		high += h + carry // at most MaxUsageKinds products below 2^106: it cannot wrap
	}
	low, carry := bits.Add64(low, uint64(p.Per)-1, 0) // up
	high += carry
	if high >= uint64(p.Per) {
		return 0, false
	}
	cost, _ := bits.Div64(high, low, uint64(p.Per))
	return Amount(cost), cost <= uint64(MaxAmount)
}

// unrated reports whether usage has a kind that the price by usage has no rate for.
func (p Price) unrated(usage map[string]Amount) bool {
	return p.ByUsage() && slices.ContainsFunc(sortedKeys(usage), func(kind string) bool {
		_, rated := p.Rates[kind]
		return !rated && usage[kind] > 0
	})
}

// affordable is the largest usage in the same proportions that an amount pays for: every kind is rounded down.
func (p Price) affordable(usage map[string]Amount, available Amount) map[string]Amount {
	kinds := sortedKeys(usage)
	var most Amount
	for _, kind := range kinds {
		most = max(most, usage[kind])
	}
	part := func(parts Amount) map[string]Amount {
		smaller := make(map[string]Amount, len(usage))
		for _, kind := range kinds {
			high, low := bits.Mul64(uint64(usage[kind]), uint64(parts))
			share, _ := bits.Div64(high, low, uint64(max(most, 1)))
			smaller[kind] = Amount(share)
		}
		return smaller
	}
	payable, tooMuch := Amount(0), most+1 // nothing at all costs nothing
	for payable+1 < tooMuch {
		middle := payable + (tooMuch-payable)/2
		if cost, ok := p.cost(part(middle)); ok && cost <= available {
			payable = middle
		} else {
			tooMuch = middle
		}
	}
	return part(payable)
}

// quotes prices what is asked by every alternative of the feature on the account's plan. The whole of it goes to one
// alternative. The caller has checked that no price exceeds MaxAmount.
func (d *decision) quotes(feature *Feature, what asked) []quote {
	var quotes []quote
	for _, price := range feature.pricesOn(d.plan) {
		needed, ok := price.of(what)
		assert(ok, "what is asked is checked against the price before")
		quotes = append(quotes, d.quote(price, needed, feature.Name))
	}
	return quotes
}

// quote is what the account has to pay an amount of the price with. The empty feature means any.
func (d *decision) quote(price Price, needed Amount, feature string) quote {
	q := quote{price: price, needed: needed, pockets: d.pockets(price.Unit, feature)}
	for _, g := range q.pockets {
		q.available += g.Available()
		q.held += g.Reserved
	}
	return q
}

// choose returns the first payable alternative. Where none is, it returns the one to report: the first that only
// reservations block, else the last.
func choose(quotes []quote) (chosen *quote, payable bool) {
	if i := slices.IndexFunc(quotes, func(q quote) bool { return q.payable() }); i >= 0 {
		return &quotes[i], true
	}
	if i := slices.IndexFunc(quotes, func(q quote) bool { return q.onlyHeld() }); i >= 0 {
		return &quotes[i], false
	}
	return &quotes[len(quotes)-1], false
}

// alternatives lists every way to pay, where there is more than one.
func alternatives(quotes []quote) []Alternative {
	if len(quotes) < 2 {
		return nil
	}
	var list []Alternative
	for _, q := range quotes {
		list = append(list, Alternative{Unit: q.price.Unit, Needed: q.needed, Available: q.available, Held: q.held})
	}
	return list
}

// resetsAt is when waiting alone makes one of the alternatives payable: the first instant at which a cycle has ended, or a
// later grant has begun, and the pockets then in force cover it. Zero: waiting does not help. Nobody is thought to use the
// account meanwhile: a cycle that nobody opens carries nothing over.
func (d *decision) resetsAt(quotes []quote, feature string) time.Time {
	free := slices.ContainsFunc(d.plansToCome(), func(p *Plan) bool { return slices.Contains(p.FreeFeatures, feature) })
	if !free && !slices.ContainsFunc(quotes, func(q quote) bool { return d.ever(q.price.Unit, feature) >= q.needed }) {
		return time.Time{}
	}
	later := *d
	later.state = d.state.Clone()
	for _, at := range d.turns(quotes) {
		later.now = at
		later.endGrants(func(g *Grant) time.Time { return g.EndsAt })
		// The cycles that begin count in full here, on the plan of today. Opened in earnest, one of a paid period would first
		// repay what is owed, and with a subscription the plan may be another one by then.
		maybe := d.state.Account.Subscription != nil || later.payable(quotes, feature)
		if !maybe {
			continue
		}
		if then := d.at(at); then.plan.Has(feature) && then.payable(quotes, feature) {
			return at
		}
	}
	return time.Time{}
}

// at is the decision as time alone leads to it, on a copy.
func (d *decision) at(later time.Time) *decision {
	then := *d
	then.state, then.now = d.state.Clone(), later
	then.advance()
	return &then
}

// payable reports whether one of the alternatives is payable now, or the plan has the feature free.
func (d *decision) payable(quotes []quote, feature string) bool {
	return slices.Contains(d.plan.FreeFeatures, feature) || slices.ContainsFunc(quotes, func(q quote) bool {
		now := d.quote(q.price, q.needed, feature)
		return now.payable()
	})
}

// ever is the most that the feature could find available at once if time passed and nothing was used or came back.
func (d *decision) ever(unit, feature string) Amount {
	sum := d.plan.most(unit)
	for _, plan := range d.plansToCome() {
		sum = max(sum, plan.most(unit))
	}
	for _, g := range d.state.Grants {
		if g.Unit == unit && g.Covers(feature) && !g.Ended(d.now) {
			sum += g.Available()
		}
	}
	return sum
}

// plansToCome are those that the passing of time alone puts the account on: what is paid for, and where it goes from there.
func (d *decision) plansToCome() []*Plan {
	s := d.state.Account.Subscription
	if s == nil {
		return nil
	}
	plans := []*Plan{d.catalog.PlanOf(&Account{}), d.catalog.PlanOf(&Account{Plan: s.Next})}
	for _, p := range s.Periods {
		plans = append(plans, d.catalog.PlanOf(&Account{Plan: p.Plan}))
	}
	return plans
}

// turns are the instants at which a pocket of the alternatives' units will begin or end, or the subscription goes on to
// another period or lapses, in order.
func (d *decision) turns(quotes []quote) []time.Time {
	var instants []time.Time
	for _, g := range d.state.Grants {
		if !slices.ContainsFunc(quotes, func(q quote) bool { return q.price.Unit == g.Unit }) {
			continue
		}
		instants = append(instants, g.StartsAt, g.EndsAt)
	}
	if s := d.state.Account.Subscription; s != nil {
		for _, p := range s.Periods {
			instants = append(instants, p.Start, p.End)
		}
		for _, plan := range d.plansToCome() {
			instants = append(instants, s.end().Add(plan.Grace))
		}
	}
	instants = slices.DeleteFunc(instants, func(at time.Time) bool { return !at.After(d.now) })
	slices.SortFunc(instants, time.Time.Compare)
	return slices.CompactFunc(instants, time.Time.Equal)
}

// plansAllowing lists, in the catalog's order, the plans that would give what was refused.
func (d *decision) plansAllowing(reason Reason, feature *Feature, what asked) []string {
	var names []string
	for i := range d.catalog.Plans {
		plan := &d.catalog.Plans[i]
		if plan.Name == d.plan.Name || plan.Retired || !plan.Has(feature.Name) {
			continue
		}
		allows := true
		switch reason {
		case Insufficient, HeldByActive:
			allows = slices.ContainsFunc(feature.pricesOn(plan), func(price Price) bool {
				needed, ok := price.of(what)
				given := plan.gives(price.Unit)
				return ok && (needed == 0 || given >= needed && given > d.plan.gives(price.Unit))
			})
		case TooManyActive:
			allows = plan.MaxActive > d.state.Account.Active
		}
		if allows {
			names = append(names, plan.Name)
		}
	}
	return names
}

// gives is what the plan's allowances of a unit give in one cycle.
func (p *Plan) gives(unit string) Amount {
	var sum Amount
	for _, a := range p.Allowances {
		if a.Unit == unit {
			sum += a.Amount
		}
	}
	return sum
}

// most is what the plan's allowances of a unit can give at once: one cycle, and what was carried into it.
func (p *Plan) most(unit string) Amount {
	sum := p.gives(unit)
	for _, a := range p.Allowances {
		if a.Unit == unit {
			sum += a.Rollover
		}
	}
	return sum
}

// balance is what the account has in one unit, cycles that have not started included.
func (d *decision) balance(unit string) *Balance {
	b := &Balance{Unit: unit, Debt: d.state.Account.Debts[unit]}
	for _, g := range d.pockets(unit, "") {
		b.Available += g.Available()
	}
	_, b.Reserved = d.state.total(unit, d.now)
	b.Cycle = d.currentCycle(unit)
	if b.Cycle != nil {
		b.ResetsAt = b.Cycle.EndsAt
	}
	return b
}

// currentCycle is the cycle of the plan's allowance of that unit that resets soonest; one that has not started comes
// last and has no times. Nil: the plan has no allowance of that unit.
func (d *decision) currentCycle(unit string) *CycleNumbers {
	var soonest *CycleNumbers
	for i := range d.plan.Allowances {
		a := &d.plan.Allowances[i]
		if a.Unit != unit {
			continue
		}
		numbers := &CycleNumbers{Granted: a.Amount}
		if g := d.state.cycle(a, d.now); g == nil && !d.mayBegin(a) {
			continue
		} else if g != nil {
			numbers = &CycleNumbers{Granted: g.Granted, Used: g.Used, Reserved: g.Reserved, Voided: g.Voided, StartsAt: g.StartsAt, EndsAt: g.EndsAt}
		}
		if soonest == nil || compareEnds(numbers.EndsAt, soonest.EndsAt) < 0 {
			soonest = numbers
		}
	}
	return soonest
}
