package holdfast

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// pockets are the grants that the feature may take from now, in burn order, among them the cycles of the plan's
// allowances that would start with it. The empty feature means any.
func (d *decision) pockets(unit, feature string) []*Grant {
	var usable []*Grant
	for _, g := range d.state.Grants {
		if g.Unit == unit && g.Covers(feature) && g.InForce(d.now) {
			usable = append(usable, g)
		}
	}
	for i := range d.plan.Allowances {
		a := &d.plan.Allowances[i]
		if a.Unit == unit && d.state.cycle(a, d.now) == nil && d.mayBegin(a) {
			usable = append(usable, d.nextCycle(a))
		}
	}
	slices.SortFunc(usable, burnsBefore)
	return usable
}

// mayBegin reports whether a cycle of the allowance that has not begun would begin when it is taken from. What a paid period
// gives is given once, at its beginning: a subscription in its grace has nothing that could begin.
func (d *decision) mayBegin(a *Allowance) bool {
	if s := d.state.Account.Subscription; a.Every.Term && s != nil {
		period, paid := s.periodAt(d.now)
		return paid && !period.Given
	}
	return !d.deleted()
}

// burnsBefore orders by priority, then soonest end (none is last), then oldest, then id: what would burn is spent before
// what was bought.
func burnsBefore(a, b *Grant) int {
	return cmp.Or(
		cmp.Compare(a.Priority, b.Priority),
		compareEnds(a.EndsAt, b.EndsAt),
		a.CreatedAt.Compare(b.CreatedAt),
		bytes.Compare(a.ID[:], b.ID[:]),
	)
}

func compareEnds(a, b time.Time) int {
	switch {
	case a.IsZero() && b.IsZero():
		return 0
	case a.IsZero():
		return 1
	case b.IsZero():
		return -1
	}
	return a.Compare(b)
}

// part is what a command takes from one pocket.
type part struct {
	grant  *Grant
	amount Amount
}

// allocate splits an amount over pockets in their order, and returns what they could not cover. A cycle that has not
// started is opened by the first part taken from it. The parts are not moved yet: the caller's entry does that.
func (d *decision) allocate(pockets []*Grant, amount Amount) (parts []part, missing Amount) {
	for _, g := range pockets {
		n := min(amount, g.Available())
		if n == 0 {
			continue
		}
		if _, stored := d.state.Grant(g.ID); !stored {
			d.post(note{kind: EntryGrant, unit: g.Unit}, func(p *posting) { p.issue(g) })
		}
		d.noticeRenewed(g)
		parts = append(parts, part{g, n})
		amount -= n
	}
	return parts, amount
}
