package holdfast

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Advance applies what the passing of time has done to the account. What was bought for later repays what is owed. What is left in a grant that ended is carried into
// the next cycle, as far as its allowance allows, and voided. Then the cycles that contain now are opened; of missed ones
// only those. A rolling window needs no act: it begins with the first allocation taken from it, and until then pockets
// shows it as not started. Reads and dry runs advance a copy and write nothing.
func (d *decision) advance() {
	if !d.state.Account.MergedInto.IsZero() { // what is left here only ends
		d.endGrants(func(g *Grant) time.Time { return g.EndsAt })
		return
	}
	d.advanceSubscription()
	d.repayFromBegun()
	d.endGrants(func(g *Grant) time.Time { return g.EndsAt })
	if !d.deleted() {
		d.openCycles()
	}
}

// repayFromBegun lets pockets that were bought for later repay what is owed, at their beginning.
func (d *decision) repayFromBegun() {
	if len(d.state.Account.Debts) == 0 {
		return
	}
	begun := slices.DeleteFunc(slices.Clone(d.state.Grants), func(g *Grant) bool {
		return g.Source != FromPurchase || g.StartsAt.After(d.now) || !g.StartsAt.After(d.state.Account.DecidedAt)
	})
	slices.SortFunc(begun, func(a, b *Grant) int { return cmp.Or(a.StartsAt.Compare(b.StartsAt), burnsBefore(a, b)) })
	for _, g := range begun {
		d.repay(g)
	}
}

// openCycles opens what the plan gives in the cycles that contain now.
func (d *decision) openCycles() {
	period, paid := d.state.Account.Subscription.periodAt(d.now)
	for i := range d.plan.Allowances {
		a := &d.plan.Allowances[i]
		begun := d.state.cycle(a, d.now) != nil
		if a.Every.Term && d.state.Account.Subscription != nil {
			begun = !paid || period.Given // only what is paid for is given, once
		}
		if a.Every.Rolling > 0 || begun {
			continue
		}
		g := d.nextCycle(a)
		if a.Every.Term && paid {
			g.ID, g.Payment = namedID(period.Payment, a.Key), period.Payment
		}
		d.post(note{kind: EntryGrant, unit: g.Unit, effectiveAt: g.StartsAt}, func(p *posting) { p.issue(g) })
		if a.Every.Term && paid && period.Refunded > 0 {
			d.revokeFrom(g, g.Granted.shareUp(period.Refunded, period.Paid), "refunded before it began")
		}
		if a.Every.Term {
			d.repay(g)
		}
	}
	if paid && !period.Given {
		s := d.state.Account.Subscription.clone()
		current, _ := s.periodAt(d.now)
		current.Given = true
		d.state.Account.Subscription = s
		d.state.touchAccount()
	}
}

// cycle is the allowance's grant in force, or nil where its cycle has not started. Where a plan was set and then paid for,
// two are in force: the one that began last counts.
func (s *State) cycle(a *Allowance, now time.Time) *Grant {
	var last *Grant
	for _, g := range s.Grants {
		if g.Allowance != a.Key || g.Source != FromAllowance || !g.InForce(now) {
			continue
		}
		if last == nil || cmp.Or(g.StartsAt.Compare(last.StartsAt), g.CreatedAt.Compare(last.CreatedAt), bytes.Compare(g.ID[:], last.ID[:])) > 0 {
			last = g
		}
	}
	return last
}

// lastEnd is when the allowance's last loaded cycle ended.
func (s *State) lastEnd(a *Allowance, now time.Time) time.Time {
	var last time.Time
	for _, g := range s.Grants {
		if g.Allowance == a.Key && g.Source == FromAllowance && g.Ended(now) {
			last = latest(last, g.EndsAt)
		}
	}
	return last
}

// nextCycle is the grant of the allowance's cycle that contains now, or, of a rolling window, that would begin now.
func (d *decision) nextCycle(a *Allowance) *Grant { return d.cycleGrant(a, a.Amount) }

func (d *decision) cycleGrant(a *Allowance, amount Amount) *Grant {
	start, end := d.now, d.now.Add(a.Every.Rolling)
	if a.Every.Rolling == 0 {
		start, end = d.cycleAt(a, d.now)
		start = latest(start, d.state.lastEnd(a, d.now)) // the one before may have reached into it
	}
	return &Grant{
		ID:        cycleGrantID(d.state.Account.ID, a.Key, start.UnixMicro(), end.UnixMicro()),
		Unit:      a.Unit,
		Source:    FromAllowance,
		Allowance: a.Key,
		Priority:  FromAllowance.defaultPriority(),
		Granted:   amount,
		StartsAt:  start,
		EndsAt:    end,
		CreatedAt: d.now,
		Open:      true,
	}
}

// endGrants settles what is left in grants that have ended: what the passing of time left, effective at the grant's end,
// or what has come back only now, effective now. It returns how much became void; what was carried over did not.
func (d *decision) endGrants(effective func(*Grant) time.Time) Amount {
	var voided Amount
	for _, g := range d.state.Grants[:len(d.state.Grants):len(d.state.Grants)] { // those of now: carrying over adds one
		if !g.Ended(d.now) || d.awaitsRenewal(g) {
			continue
		}
		d.rollOver(g, effective(g))
		if left := g.Available(); left > 0 {
			d.post(note{kind: EntryVoid, unit: g.Unit, effectiveAt: effective(g)}, func(p *posting) { p.void(g, left) })
			voided += left
		}
		if g.Open && !g.shouldBeOpen(d.now) {
			g.Open = false
			d.state.touchGrant(g)
		}
	}
	return voided
}

// awaitsRenewal reports whether what is left in an ended grant waits for a renewal in its grace: then it is carried over.
func (d *decision) awaitsRenewal(g *Grant) bool {
	s := d.state.Account.Subscription
	if s == nil || d.now.Before(s.end()) || !g.EndsAt.Equal(s.end()) || g.Rolled > 0 {
		return false
	}
	a, ok := d.catalog.allowance(g.Allowance)
	return ok && g.Source == FromAllowance && a.Every.Term && a.Rollover > 0
}

// rollOver carries what is left in an ended cycle into a pocket of its own, which ends with the cycle that follows: in
// all, for one cycle, up to the allowance's cap. Where that one has ended too, nothing is carried.
func (d *decision) rollOver(g *Grant, effectiveAt time.Time) {
	if g.Source != FromAllowance || g.Available() == 0 {
		return
	}
	a, ok := find(d.plan.Allowances, func(a *Allowance) bool { return a.Key == g.Allowance })
	if term, known := d.catalog.allowance(g.Allowance); known && term.Every.Term && d.state.Account.Subscription != nil {
		a, ok = term, true // what was paid for is carried into the period that follows, also where its plan is another one
	}
	if !ok || a.Every.Rolling > 0 {
		return
	}
	n := min(g.Available(), a.Rollover-g.Rolled)
	_, end := d.cycleAt(a, g.EndsAt)
	if n <= 0 || !end.After(d.now) {
		return
	}
	carried := &Grant{
		ID: namedID(g.ID, fmt.Sprintf("rollover after %d", g.Rolled)), Unit: g.Unit, Source: FromRollover, Allowance: g.Allowance,
		Features: g.Features, Priority: FromRollover.defaultPriority(), Payment: g.Payment,
		Granted: n, StartsAt: g.EndsAt, EndsAt: end, CreatedAt: d.now, Open: true,
	}
	d.post(note{kind: EntryRollover, unit: g.Unit, effectiveAt: effectiveAt}, func(p *posting) { p.carry(g, carried) })
}
