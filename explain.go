package holdfast

import "time"

// Explanation says step by step why a reserve would be granted or refused.
type Explanation struct {
	Feature string
	Allowed bool
	Reason  Reason // empty: it would be granted
	Steps   []Step // in the order in which they are decided; the first that fails decides
}

// Step is one check of an explanation, with the numbers that it looked at.
type Step struct {
	Check  CheckName
	Passed bool
	// Price: one step per alternative; it passed where this alternative alone would pay.
	Unit                    string
	Needed, Available, Held Amount
	Pockets                 []Pocket
	// Slot:
	Active, MaxActive int
}

// CheckName names a check.
type CheckName string

// The checks, in their order.
const (
	CheckAccount CheckName = "account" // not blocked
	CheckPlan    CheckName = "plan"    // has the feature
	CheckPrice   CheckName = "price"   // an alternative is payable
	CheckSlot    CheckName = "slot"    // one is free
)

// Pocket is a grant of an alternative's unit, and what the reserve would do with it.
type Pocket struct {
	Grant     *Grant
	Use       PocketUse
	Available Amount
	Takes     Amount // what the reserve would take from it, were every check passed
}

// PocketUse says whether a pocket can be taken from.
type PocketUse string

// The uses of pockets.
const (
	PocketUsable    PocketUse = "usable"
	PocketNotBegun  PocketUse = "starts_later"
	PocketEnded     PocketUse = "ended"
	PocketElsewhere PocketUse = "other_features"
	PocketWaiting   PocketUse = "starts_when_used" // a rolling window that has not begun
)

// Explain answers for an account as it is at now, and writes nothing. The command must be a Reserve; what is
// wrong with it comes back as problems. The numbers are those that the decision would look at: where it would be refused
// for balance or slots, what is overdue counts as ended, as far as it was loaded.
func Explain(catalog *Catalog, state *State, command Command, now time.Time) (*Explanation, []Problem) {
	op := command.Do.(Reserve)
	op.DryRun = true
	command.Do = op
	seen := state.Clone()
	seen.MoreOverdue = false // nobody will ask again
	outcome := Decide(catalog, seen, command, now)
	switch outcome.Reason {
	case Invalid:
		return nil, outcome.Problems
	case NotFound:
		return &Explanation{Feature: op.Feature, Reason: NotFound}, nil
	}
	d := newDecision(catalog, seen, command, now)
	d.advance()
	feature, ok := catalog.Feature(op.Feature)
	assert(ok, "the feature was checked")
	if _, refusal := d.judge(op, feature); refusal != nil {
		d.expireOverdue()
	}
	x := &Explanation{Feature: op.Feature, Allowed: outcome.Reason == "", Reason: outcome.Reason}
	x.Steps = append(x.Steps,
		Step{Check: CheckAccount, Passed: !d.state.Account.Blocked},
		Step{Check: CheckPlan, Passed: d.plan.Has(feature.Name)},
	)
	quotes := d.quotes(feature, asked{op.quantity(), op.Usage})
	chosen, _ := choose(quotes)
	for i := range quotes {
		q := &quotes[i]
		x.Steps = append(x.Steps, Step{
			Check: CheckPrice, Passed: q.payable(), Unit: q.price.Unit, Needed: q.needed, Available: q.available, Held: q.held,
			Pockets: d.explainPockets(q, feature.Name, q == chosen),
		})
	}
	active, most := d.state.Account.Active, d.plan.MaxActive
	x.Steps = append(x.Steps, Step{Check: CheckSlot, Passed: active < most, Active: active, MaxActive: most})
	return x, nil
}

// explainPockets lists the usable pockets in burn order, then the others that are open. Only the chosen alternative takes.
func (d *decision) explainPockets(q *quote, feature string, chosen bool) []Pocket {
	var pockets []Pocket
	listed := map[ID]bool{}
	left := q.needed
	for _, g := range q.pockets {
		p := Pocket{Grant: g, Use: PocketUsable, Available: g.Available()}
		if _, stored := d.state.Grant(g.ID); !stored {
			p.Use = PocketWaiting
		}
		if chosen && q.payable() {
			p.Takes = min(left, p.Available)
			left -= p.Takes
		}
		listed[g.ID] = true
		pockets = append(pockets, p)
	}
	for _, g := range d.state.Grants {
		if g.Unit != q.price.Unit || listed[g.ID] || !g.Open {
			continue
		}
		p := Pocket{Grant: g, Use: PocketElsewhere, Available: g.Available()}
		switch {
		case g.Ended(d.now):
			p.Use, p.Available = PocketEnded, 0
		case !g.InForce(d.now):
			p.Use, p.Available = PocketNotBegun, 0
		}
		pockets = append(pockets, p)
	}
	return pockets
}
