package holdfast

import (
	"bytes"
	"maps"
	"slices"
)

// RefundPayment takes back what a refunded payment has granted. Partial refunds add up: in sum, what was granted times what
// was refunded, over what was paid, rounded up; at most what is unused. What a reservation holds stays with its job, and is
// void when it comes back. Each refund id counts once.
//
// Where the payment is not known, the outcome says NotFound, and the caller keeps the refund until it arrives.
type RefundPayment struct {
	base
	Provider  string
	PaymentID string
	Refund    PaymentRefund
}

// Name is "refund_payment".
func (RefundPayment) Name() string { return "refund_payment" }

func (op RefundPayment) payment(account AccountID) ID {
	return PaymentIDOf(account, op.Provider, op.PaymentID)
}

func (op RefundPayment) check(p *problems) {
	p.paymentID(op.Provider, op.PaymentID)
	if id := op.Refund.ID; id == "" || len(id) > MaxPaymentIDBytes || !printable(id) {
		p.add("refund_id", "send the provider's id of the refund")
	}
	if op.Refund.Amount != nil {
		p.positive("amount", *op.Refund.Amount)
	}
	if !slices.Contains([]RefundPolicy{RefundRevokeUnused, RefundAllAsDebt, RefundKeep}, op.Refund.Policy) {
		p.add("policy", "use revoke_unused, revoke_all_as_debt or keep, or leave it out")
	}
}

func (op RefundPayment) print(f *printer) {
	f.text("provider", op.Provider)
	f.text("payment_id", op.PaymentID)
	f.text("refund_id", op.Refund.ID)
	f.optional("amount", op.Refund.Amount)
}

func (op RefundPayment) decide(d *decision) Outcome {
	paid, ok := d.state.Payment(op.payment(d.state.Account.ID))
	if !ok {
		return d.refuse(NotFound)
	}
	changed := d.refundAll(paid, []PaymentRefund{op.Refund})
	shown := paid.clone()
	return Outcome{Changed: changed, Payment: &shown, Account: d.view()}
}

// refundAll applies the refunds that were not applied before, and reports whether there was one.
func (d *decision) refundAll(paid *Payment, refunds []PaymentRefund) bool {
	changed := false
	for _, refund := range refunds {
		if !slices.Contains(paid.Refunds, refund.ID) {
			d.refundPayment(paid, refund)
			changed = true
		}
	}
	return changed
}

func (d *decision) refundPayment(paid *Payment, refund PaymentRefund) {
	left := paid.Amount - paid.Refunded
	amount := left
	if refund.Amount != nil {
		amount = min(*refund.Amount, left)
	}
	paid.Refunded += amount
	paid.Refunds = append(slices.Clone(paid.Refunds), refund.ID)
	paid.Disputed = paid.Disputed || refund.Dispute
	d.state.touchPayment(paid)
	d.tell(Event{ID: namedID(paid.ID, "refund "+refund.ID), Kind: EventPaymentRefunded, Payment: paid.ID, Figure: amount})
	if refund.Dispute {
		d.state.Account.Blocked = true
		d.state.touchAccount()
	}
	if paid.State == PaymentFlagged {
		return
	}
	policy := d.refundPolicy(paid, refund)
	if policy == RefundKeep {
		paid.Kept += amount
		return
	}
	whole := paid.Refunded == paid.Amount && paid.Kept == 0
	d.revoke(paid, policy, whole)
	ended := d.takePeriod(paid, whole)
	if whole && d.stops(paid) {
		d.stopRunning(paid.ID, ended, d.state.MoreOverdue)
		if !d.state.Account.MergedInto.IsZero() {
			d.revocations = append(d.revocations, Revocation{Payment: paid.ID, Stop: true})
		}
	}
}

// refundPolicy is the caller's, else, of a dispute, debt for what was used, else the plan's.
func (d *decision) refundPolicy(paid *Payment, refund PaymentRefund) RefundPolicy {
	switch plan, ok := d.catalog.Plan(paid.Plan); {
	case refund.Chosen:
		return refund.Policy
	case refund.Dispute:
		return RefundAllAsDebt
	case ok:
		return plan.Refund
	}
	return RefundRevokeUnused
}

// revoke takes back the refunded part of what the payment granted, per unit. What was carried over from it is no further
// grant, but may be taken back.
func (d *decision) revoke(paid *Payment, policy RefundPolicy, whole bool) {
	var units []string
	bought := map[string][]*Grant{}
	for _, g := range d.state.Grants {
		if g.Payment == paid.ID {
			if !slices.Contains(units, g.Unit) {
				units = append(units, g.Unit)
			}
			bought[g.Unit] = append(bought[g.Unit], g)
		}
	}
	slices.Sort(units)
	for _, unit := range units {
		slices.SortFunc(bought[unit], burnsBefore)
		d.revokeUnit(paid, unit, bought[unit], policy, whole)
	}
}

func (d *decision) revokeUnit(paid *Payment, unit string, bought []*Grant, policy RefundPolicy, whole bool) {
	owed := paid.OwedOf[unit]
	var granted, used Amount
	gone := owed
	for _, g := range bought {
		if g.Source != FromRollover {
			granted += g.Granted
		}
		used += g.Used
		gone += g.Revoked
	}
	target := granted
	if !whole {
		target = granted.shareUp(paid.Refunded-paid.Kept, paid.Amount)
	}
	left := max(target-gone, 0)
	left -= d.revokeElsewhere(paid, unit, bought, left, policy)
	for _, g := range bought {
		part := min(left, g.Available())
		d.revokeFrom(g, part, paid.reason())
		left -= part
		paid.Revoked += part
	}
	for _, g := range bought {
		if part := min(left, g.Reserved-g.Doomed); part > 0 {
			d.doom(g, part)
			left -= part
			paid.Revoked += part
		}
	}
	// What was never used, also where it has ended by itself, is taken back before anything is owed.
	if debt := min(left, target+used-granted-owed); policy == RefundAllAsDebt && debt > 0 {
		d.post(note{kind: EntryDebt, unit: unit, reason: paid.reason()}, func(p *posting) { p.owe(debt) })
		paid.Owed += debt
		paid.OwedOf = maps.Clone(paid.OwedOf) // copies of the state share the map
		if paid.OwedOf == nil {
			paid.OwedOf = map[string]Amount{}
		}
		paid.OwedOf[unit] += debt
	}
	if whole { // nothing that comes back to it is worth anything
		for _, g := range bought {
			(&posting{state: d.state}).revoked(g, g.Granted-g.Revoked)
		}
	}
}

// revokeElsewhere asks the account that took this one's place to take back what has moved there, and returns how much.
func (d *decision) revokeElsewhere(paid *Payment, unit string, bought []*Grant, n Amount, policy RefundPolicy) (asked Amount) {
	if d.state.Account.MergedInto.IsZero() {
		return 0
	}
	for _, g := range bought {
		part := min(n-asked, g.Moved, g.Granted-g.Revoked)
		(&posting{state: d.state}).revoked(g, part)
		paid.Revoked += part
		asked += part
	}
	if asked > 0 {
		d.revocations = append(d.revocations, Revocation{Payment: paid.ID, Unit: unit, Amount: asked, AsDebt: policy == RefundAllAsDebt})
	}
	return asked
}

// revokeFrom voids an available amount that a refund takes back.
func (d *decision) revokeFrom(g *Grant, n Amount, reason string) {
	if n > 0 {
		d.post(note{kind: EntryRevoke, unit: g.Unit, reason: reason}, func(p *posting) {
			p.void(g, n)
			p.revoked(g, n)
		})
	}
}

// takePeriod ends the period that the payment paid for, where all of it was refunded: with it ends what an upgrade has
// added, and what comes behind it moves up. Where a part was refunded before the period began, that share of its allowances
// is revoked as they open. It returns what ended besides what the payment itself gave.
func (d *decision) takePeriod(paid *Payment, whole bool) (ended []*Grant) {
	account := &d.state.Account
	s := account.Subscription.clone()
	if s == nil {
		if whole && !account.MergedInto.IsZero() {
			d.revocations = append(d.revocations, Revocation{Payment: paid.ID, Period: true})
		}
		return nil
	}
	i := slices.IndexFunc(s.Periods, func(p PaidPeriod) bool { return p.Payment == paid.ID })
	if i < 0 {
		return nil
	}
	taken := &s.Periods[i]
	account.Subscription = s
	d.state.touchAccount()
	if !whole {
		if !taken.Given {
			d.takeShare(paid, taken)
		}
		return nil
	}
	plan := taken.Plan
	ended = d.endTerms(taken, func(g *Grant) bool { return g.Payment.IsZero() })
	s.Periods = append(s.Periods[:i:i], d.behind(s.Periods[i+1:], latest(taken.Start, d.now))...)
	if len(s.Periods) == 0 {
		d.lapse(plan, d.now)
	} else if current, ok := s.periodAt(d.now); ok {
		d.moveTo(current.Plan, d.now)
	}
	d.advance()
	return ended
}

// takeShare notes that a part of a period was refunded before it began.
func (d *decision) takeShare(paid *Payment, period *PaidPeriod) {
	before := period.Refunded
	period.Refunded, period.Paid = paid.Refunded-paid.Kept, paid.Amount
	if plan, ok := d.catalog.Plan(period.Plan); ok {
		for _, a := range plan.Allowances {
			if a.Every.Term {
				paid.Revoked += a.Amount.shareUp(period.Refunded, period.Paid) - a.Amount.shareUp(before, period.Paid)
			}
		}
	}
}

// stops reports whether running work is asked to stop when the payment is refunded.
func (d *decision) stops(paid *Payment) bool {
	plan, ok := d.catalog.Plan(paid.Plan)
	return ok && plan.RunningOnRefund == RunningStop && paid.State == PaymentGranted
}

// stopRunning ends what waits, and asks what runs to stop, of the reservations that took from the payment's grants, or from
// what ended with them. Where there are more than were loaded, those follow: see StopWork. There will be no further ones, since
// nothing is left to take from.
func (d *decision) stopRunning(payment ID, ended []*Grant, more bool) {
	var grants []ID
	for _, g := range d.state.Grants {
		if g.Payment == payment || slices.Contains(ended, g) {
			grants = append(grants, g.ID)
		}
	}
	if len(grants) == 0 {
		return
	}
	slices.SortFunc(grants, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	loaded := slices.Clone(d.state.Reservations)
	slices.SortFunc(loaded, func(a, b *Reservation) int { return bytes.Compare(a.ID[:], b.ID[:]) })
	for _, r := range loaded {
		d.stopWork(r, grants)
	}
	if more {
		account := &d.state.Account
		left := Transfer{ID: namedID(payment, "work to be stopped"), Stop: grants}
		account.Transfers = append(slices.Clone(account.Transfers), left)
		d.state.touchAccount()
	}
}

// stopWork ends a reservation that waits, and asks one that runs to stop, where it took from one of the grants.
func (d *decision) stopWork(r *Reservation, grants []ID) Outcome {
	switch {
	case !r.Live() || !r.TookFrom(grants) || r.InDoubt:
		return d.unchanged(r)
	case r.State == Reserved:
		return d.release(r, CauseCancelled, "")
	}
	return d.requestCancel(r)
}

// TookFrom reports whether the reservation took from one of the grants.
func (r *Reservation) TookFrom(grants []ID) bool {
	return slices.ContainsFunc(r.Allocations, func(a Allocation) bool { return slices.Contains(grants, a.Grant) })
}

// StopWork does for one reservation what the refund of a payment does for those that were loaded with it. It is sent for each
// that is live, until there is none left to do it for.
type StopWork struct {
	base
	ReservationID ID
	Grants        []ID // that were refunded, or ended with them
}

// Name is "stop_work".
func (StopWork) Name() string { return "stop_work" }

func (op StopWork) reservation() ID { return op.ReservationID }

func (op StopWork) print(f *printer) { f.text("reservation", op.ReservationID.String()) }

func (op StopWork) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok {
		return d.refuse(NotFound)
	}
	return d.stopWork(r, op.Grants)
}

// voidDoomed voids what has come back to grants whose payment was refunded meanwhile.
func (d *decision) voidDoomed() (voided Amount) {
	for _, g := range d.state.Grants {
		n := min(g.Doomed, g.Available())
		if g.Revoked == g.Granted { // all of it was taken back
			n = g.Available()
		}
		if n > 0 {
			d.settleDoom(g, min(n, g.Doomed))
			d.post(note{kind: EntryRevoke, unit: g.Unit}, func(p *posting) { p.void(g, n) })
			voided += n
		}
		if g.Doomed > g.Reserved { // the rest of it was used: nothing will come back
			d.settleDoom(g, g.Doomed-g.Reserved)
		}
	}
	return voided
}
