package sim_test

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// follows walks through what a save tells, fact by fact, and checks that each follows from the account as it was then.
func (w *world) follows(s *save, before *account) {
	name := w.accountName(s.account)
	m := newMoment(s, before)
	for i := range s.events {
		e := s.entry(&s.events[i])
		if e == nil {
			m.apply(s, &s.events[i])
			continue
		}
		r := w.accounts[s.account].reservations[e.Reservation]
		owed, doubted := m.debts[e.Unit], m.doubted[e.Reservation]
		m.apply(s, &s.events[i])
		switch e.Kind {
		case holdfast.EntryReserve, holdfast.EntryCommit, holdfast.EntryLateCommit:
			for _, d := range e.Deltas {
				if p := m.pocket(d.Grant); !p.Covers(r.Feature) {
					w.breaks("%s: %s was paid from grant %s, which is for %v only", name, w.name(r.ID, "r"), w.name(p.ID, "g"), p.Features)
				}
			}
		}
		switch e.Kind {
		case holdfast.EntryCommit:
			if !w.committed(e) {
				w.chargedInDoubt(name, r, e, doubted)
			}
			w.overran(name, m, r, e, owed)
		case holdfast.EntryExpire:
			if doubted && r.Policies.InDoubt == holdfast.DoubtCharge {
				w.breaks("%s: %s was in doubt, is to be charged then, and expired", name, w.name(r.ID, "r"))
			}
			if doubted {
				w.seen["doubt expired"]++
			}
		case holdfast.EntryLateCommit:
			if available, _ := m.sums(r.Feature, e.Unit, e.RecordedAt); r.Policies.LateCommit != holdfast.LateAbsorb &&
				r.LateUsed < min(r.LateUsed+r.Unbilled, r.Reserved) && available > 0 {
				w.breaks("%s: %s is charged %d late, %d is not charged, and %d is available", name, w.name(r.ID, "r"), r.LateUsed, r.Unbilled, available)
			}
		case holdfast.EntryGrant, holdfast.EntryAdjust, holdfast.EntryRollover:
			w.repaid(name, s, m, e, before)
		case holdfast.EntryRepay:
			for _, d := range e.Deltas {
				if p := m.pocket(d.Grant); !paysDebts(p, e.RecordedAt) || d.Used != -e.Debt || e.Debt >= 0 {
					w.breaks("%s repaid %d from grant %s of source %s for %v", name, -e.Debt, w.name(p.ID, "g"), p.Source, p.Features)
				}
			}
			w.seen["repaid"]++
		case holdfast.EntryDebt:
			w.seen["owed"]++
		}
	}
	if m.active != s.row.Active {
		w.breaks("%s counts %d active reservations, and by what happened it has %d", name, s.row.Active, m.active)
	}
}

// committed reports whether somebody asked for this commit.
func (w *world) committed(e *holdfast.Entry) bool {
	f := w.actors[e.Actor]
	if f == nil {
		return false
	}
	_, charges := f.intention.do.(holdfast.Charge)
	switch f.intention.do.(type) {
	case holdfast.Commit, holdfast.Force:
		return holdfast.ReservationOf(f.intention.do) == e.Reservation
	}
	return charges
}

// chargedInDoubt checks a commit that nobody asked for: the end of a doubt.
func (w *world) chargedInDoubt(name string, r *holdfast.Reservation, e *holdfast.Entry, doubted bool) {
	if !doubted || r.Policies.InDoubt != holdfast.DoubtCharge || r.Used != r.Reserved || !r.CancelRequestedAt.IsZero() || e.RecordedAt.Before(r.ExpiresAt) {
		w.breaks("%s: nobody committed %s, and it was: in doubt %t, %+v", name, w.name(r.ID, "r"), doubted, r)
	}
	w.seen["doubt charged"]++
}

// overran checks what a commit did with usage beyond what was held, right after its entry. Owed is what was owed before.
func (w *world) overran(name string, m *moment, r *holdfast.Reservation, e *holdfast.Entry, owed holdfast.Amount) {
	id, over := w.name(r.ID, "r"), r.Debt+r.Unbilled
	policy := r.Policies.Overrun
	if !r.CancelRequestedAt.IsZero() {
		policy = holdfast.OverrunCap
	}
	if policy == holdfast.OverrunCap {
		return // obeys has looked at it
	}
	if available, _ := m.sums(r.Feature, e.Unit, e.RecordedAt); over > 0 && available > 0 {
		w.breaks("%s: %s used %d beyond what was charged, and %d is available", name, id, over, available)
	}
	expected := holdfast.Amount(0)
	if policy == holdfast.OverrunDebt {
		limit := tariff.PlanOf(&holdfast.Account{Plan: m.plan}).DebtLimits[e.Unit]
		expected = max(0, min(over, limit-owed))
	}
	if r.Debt != expected {
		w.breaks("%s: %s used %d beyond what was charged, and owes %d of it; it should be %d, with %d owed before on plan %q", name, id, over, r.Debt, expected, owed, m.plan)
	}
	if r.Used > r.Reserved {
		w.seen["overrun charged"]++
	}
}

// repaid checks that a new pocket pays what is owed if it was paid for, and else does not.
func (w *world) repaid(name string, s *save, m *moment, e *holdfast.Entry, before *account) {
	if len(e.Deltas) == 0 {
		return
	}
	p := m.pocket(e.Deltas[len(e.Deltas)-1].Grant)
	if p == nil || p.granted != e.Deltas[len(e.Deltas)-1].Granted || p.granted == 0 {
		return // no new pocket
	}
	if p.Source == holdfast.FromAllowance && before != nil && !before.row.DeletedAt.IsZero() {
		w.breaks("%s was deleted at %s, and is given %d again at %s", name, before.row.DeletedAt.Sub(genesis), p.granted, e.RecordedAt.Sub(genesis))
	}
	if p.Source == holdfast.FromRollover {
		w.seen["carried over"]++
	}
	expected := holdfast.Amount(0)
	if paysDebts(p, e.RecordedAt) {
		expected = min(m.debts[e.Unit], p.granted)
	}
	repaid := holdfast.Amount(0)
	for _, next := range s.entries {
		if next.No == e.No+1 && next.Kind == holdfast.EntryRepay {
			repaid = -next.Debt
		}
	}
	if repaid != expected {
		w.breaks("%s owes %d, gets %d as %s from %s on, and repays %d; it should be %d", name, m.debts[e.Unit], p.granted, p.Source, p.StartsAt.Sub(genesis), repaid, expected)
	}
}

// paysDebts reports whether what is owed is repaid from a pocket: it was paid for, has begun, and pays for everything.
func paysDebts(p *pocket, at time.Time) bool {
	paid := p.Source == holdfast.FromPurchase || p.Source == holdfast.FromAllowance && allowance(p.Allowance).Every.Term
	return paid && len(p.Features) == 0 && !p.StartsAt.After(at)
}

// obeys checks what must hold of everything that is stored of an account, at any time.
func (w *world) obeys(a *account, name string) {
	active := 0
	for _, r := range a.listed {
		id := w.name(r.ID, "r")
		if r.Live() && !r.InDoubt {
			active++
		}
		if r.InDoubt && r.State != holdfast.Running {
			w.breaks("%s: %s is %s, and in doubt", name, id, r.State)
		}
		capped := r.Policies.Overrun == holdfast.OverrunCap || !r.CancelRequestedAt.IsZero()
		switch {
		case capped && r.Used > r.Reserved:
			w.breaks("%s: %s held %d, and is charged %d", name, id, r.Reserved, r.Used)
		case r.Debt > 0 && (capped || r.Policies.Overrun != holdfast.OverrunDebt):
			w.breaks("%s: %s owes %d, and may not owe anything", name, id, r.Debt)
		case r.Policies.LateCommit == holdfast.LateAbsorb && r.LateUsed > 0:
			w.breaks("%s: %s came late, is to be absorbed, and is charged %d", name, id, r.LateUsed)
		}
	}
	if active != a.row.Active {
		w.breaks("%s counts %d active reservations, and %d are live and not in doubt", name, a.row.Active, active)
	}
	if !a.row.DeletedAt.IsZero() && (active > 0 || a.row.Name != holdfast.Erased || !a.row.Blocked) {
		w.breaks("%s was deleted, and is still %q with %d active reservations", name, a.row.Name, active)
	}
	w.gaveOnce(a, name)
	w.gaveBack(a, name)
}

// gaveOnce checks that an allowance's cycles follow each other, and that no more is carried from one to the next than may be.
func (w *world) gaveOnce(a *account, name string) {
	cycles := map[string][]*holdfast.Grant{}
	type carriage struct {
		allowance string
		at        time.Time
	}
	carried := map[carriage]holdfast.Amount{}
	for _, g := range a.order {
		switch g.Source {
		case holdfast.FromAllowance:
			cycles[g.Allowance] = append(cycles[g.Allowance], g)
		case holdfast.FromRollover:
			carried[carriage{g.Allowance, g.StartsAt}] += g.Granted
		}
	}
	for key, list := range cycles {
		given := allowance(key)
		// A cycle that was opened late begins, for whoever has it, when it was opened.
		opened := func(g *holdfast.Grant) time.Time {
			if g.CreatedAt.After(g.StartsAt) && key != everyDay.Key { // whoever has that one always had it
				return g.CreatedAt
			}
			return g.StartsAt
		}
		slices.SortFunc(list, func(a, b *holdfast.Grant) int {
			return cmp.Or(opened(a).Compare(opened(b)), a.EndsAt.Compare(b.EndsAt))
		})
		for i, g := range list {
			if i > 0 && opened(g).Before(list[i-1].EndsAt) {
				w.breaks("%s is given %s from %s on, while that of before lasts until %s", name, key, opened(g).Sub(genesis), list[i-1].EndsAt.Sub(genesis))
			}
			if sum := carried[carriage{key, g.EndsAt}]; sum > given.Rollover || sum != g.Rolled {
				w.breaks("%s: %d of %s was carried over, %d by what the cycle says, and %d may be", name, sum, key, g.Rolled, given.Rollover)
			}
		}
	}
}

// gaveBack checks, from the ledger, that refunds gave back what they say: what was used, what was owed, and, of what was
// owed and repaid meanwhile, a pocket instead.
func (w *world) gaveBack(a *account, name string) {
	back, forgiven, given := map[holdfast.ID]holdfast.Amount{}, map[holdfast.ID]holdfast.Amount{}, map[holdfast.ID]holdfast.Amount{}
	for i := range a.entries {
		e := &a.entries[i]
		for _, d := range e.Deltas {
			switch {
			case e.Kind == holdfast.EntryRefund:
				back[e.Reservation] -= d.Used
			case e.Kind == holdfast.EntryGrant && !e.Reservation.IsZero():
				given[e.Reservation] += d.Granted
			}
		}
		if e.Kind == holdfast.EntryRefund {
			forgiven[e.Reservation] -= e.Debt
		}
	}
	for _, r := range a.listed {
		repaid := r.Refunded - back[r.ID] - forgiven[r.ID] // comes back as a pocket
		most := repaid
		if given[r.ID] > repaid && w.corrected(r.ID) {
			most += back[r.ID] // what came back to pockets that had ended does so too
		}
		if repaid < 0 || given[r.ID] < repaid || given[r.ID] > most || forgiven[r.ID]+repaid > r.Debt || back[r.ID] > r.Charged() {
			w.breaks("%s: of %s %d was refunded; %d came back, %d is owed no more, and a pocket of %d was opened, of %d used and %d owed",
				name, w.name(r.ID, "r"), r.Refunded, back[r.ID], forgiven[r.ID], given[r.ID], r.Charged(), r.Debt)
		}
		if forgiven[r.ID] > 0 {
			w.seen["debt forgiven"]++
		}
		if repaid > 0 {
			w.seen["repaid debt refunded"]++
		}
	}
}

// corrected reports whether somebody wanted a refund into ended pockets as a pocket of its own.
func (w *world) corrected(id holdfast.ID) bool {
	return slices.ContainsFunc(w.intentions, func(i *intention) bool {
		refund, ok := i.do.(holdfast.Refund)
		return ok && refund.ReservationID == id && refund.Ended == holdfast.EndedCorrection
	})
}

// askedToStop checks that work whose worker was asked to stop is not tried again, and does not expire.
func (w *world) askedToStop(name string, before, after *holdfast.Reservation) {
	if before.CancelRequestedAt.IsZero() {
		if !after.CancelRequestedAt.IsZero() {
			w.seen["asked to stop"]++
		}
		return
	}
	if after.Attempts != before.Attempts || !after.CancelRequestedAt.Equal(before.CancelRequestedAt) {
		w.breaks("%s: %s was asked to stop, and was tried again: %+v, then %+v", name, w.name(after.ID, "r"), before, after)
	}
	if after.State == holdfast.Released && after.Cause == holdfast.CauseCancelled {
		w.seen["stopped"]++
	}
}

// namesItsFigure reports whether a commit says how much, where it must: of a price by usage, and of work that was asked to
// stop, then at most what is held. Usage that costs more than that is not charged beyond it.
func namesItsFigure(op holdfast.Commit, r *holdfast.Reservation) bool {
	asked, byUsage := !r.CancelRequestedAt.IsZero(), r.Price.ByUsage()
	switch {
	case byUsage && op.Usage != nil:
		return true
	case byUsage && op.Amount == nil, asked && op.Amount == nil && op.Quantity == nil:
		return false
	}
	return !asked || reported(op, r) <= r.Reserved
}

// reported is what a commit says was used, in the reservation's unit.
func reported(op holdfast.Commit, r *holdfast.Reservation) holdfast.Amount {
	switch {
	case op.Usage != nil && r.Price.ByUsage():
		return cost(r.Price, op.Usage)
	case op.Amount != nil:
		return *op.Amount
	case op.Quantity != nil:
		return r.Price.Amount * *op.Quantity
	}
	return r.Reserved
}

// bound is what an extension asks to be held in all.
func bound(op holdfast.Extend, r *holdfast.Reservation) holdfast.Amount {
	switch {
	case len(op.Usage) > 0:
		return cost(r.Price, op.Usage)
	case op.Quantity != nil:
		return r.Price.Amount * *op.Quantity
	}
	return 0
}

// usedOfHeld is what was charged of the amount that was held.
func usedOfHeld(r *holdfast.Reservation) (used holdfast.Amount) {
	for _, a := range r.Allocations {
		used += min(a.Reserved, a.Used)
	}
	return used
}

// late reports whether a reservation was settled after its expiry.
func late(r *holdfast.Reservation) bool { return !r.LateAt.IsZero() }

// doubted reports whether a reservation has ever been in doubt.
func doubted(id holdfast.ID, seen *account) bool {
	return slices.ContainsFunc(seen.events, func(e holdfast.Event) bool { return e.Kind == holdfast.EventInDoubt && e.Reservation == id })
}
