package holdfast

import (
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

// quotes prices a quantity by every alternative of the feature on the account's plan. The whole quantity goes to one
// alternative. The caller has checked that no product exceeds MaxAmount.
func (d *decision) quotes(feature *Feature, quantity Amount) []quote {
	var quotes []quote
	for _, price := range feature.pricesOn(d.plan) {
		needed, ok := price.Amount.times(quantity)
		assert(ok, "quantities are checked against the price before")
		q := quote{price: price, needed: needed, pockets: d.pockets(price.Unit, feature.Name)}
		for _, g := range q.pockets {
			q.available += g.Available()
			q.held += g.Reserved
		}
		quotes = append(quotes, q)
	}
	return quotes
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

// resetsAt is when waiting alone makes the amount payable: the first instant at which a cycle has ended, or a later
// grant has begun, and the pockets then in force cover it. Zero: waiting does not help.
func (d *decision) resetsAt(q *quote, feature string) time.Time {
	var instants []time.Time
	for _, g := range d.state.Grants {
		if g.Unit != q.price.Unit || !g.Covers(feature) {
			continue
		}
		if g.StartsAt.After(d.now) {
			instants = append(instants, g.StartsAt)
		}
		if g.InForce(d.now) && !g.EndsAt.IsZero() {
			instants = append(instants, g.EndsAt)
		}
	}
	slices.SortFunc(instants, time.Time.Compare)
	for _, at := range instants {
		if d.availableAt(q.price.Unit, feature, at) >= q.needed {
			return at
		}
	}
	return time.Time{}
}

// availableAt is what the feature could take at a later instant if nothing but time happened.
func (d *decision) availableAt(unit, feature string, at time.Time) Amount {
	var sum Amount
	for _, g := range d.state.Grants {
		if g.Unit == unit && g.Covers(feature) && g.InForce(at) {
			sum += g.Available()
		}
	}
	for i := range d.plan.Allowances {
		a := &d.plan.Allowances[i]
		if a.Unit == unit && d.state.cycle(a, at) == nil {
			sum += a.Amount
		}
	}
	return sum
}

// plansAllowing lists, in the catalog's order, the plans that would give what was refused.
func (d *decision) plansAllowing(reason Reason, feature *Feature, quantity Amount) []string {
	var names []string
	for i := range d.catalog.Plans {
		plan := &d.catalog.Plans[i]
		if plan.Name == d.plan.Name || !plan.Has(feature.Name) {
			continue
		}
		allows := true
		switch reason {
		case Insufficient, HeldByActive:
			allows = slices.ContainsFunc(feature.pricesOn(plan), func(price Price) bool {
				needed, ok := price.Amount.times(quantity)
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

// balance is what the account has in one unit, cycles that have not started included.
func (d *decision) balance(unit string) *Balance {
	b := &Balance{Unit: unit}
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
		if g := d.state.cycle(a, d.now); g != nil {
			numbers = &CycleNumbers{Granted: g.Granted, Used: g.Used, Reserved: g.Reserved, Voided: g.Voided, StartsAt: g.StartsAt, EndsAt: g.EndsAt}
		}
		if soonest == nil || compareEnds(numbers.EndsAt, soonest.EndsAt) < 0 {
			soonest = numbers
		}
	}
	return soonest
}
