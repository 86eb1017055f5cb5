package holdfast

import "slices"

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
	policy := d.refundPolicy(paid, refund)
	if paid.State == PaymentFlagged || policy == RefundKeep {
		return
	}
	whole := paid.Refunded == paid.Amount
	d.revoke(paid, policy, whole)
	if paid.Plan != "" {
		d.takePeriod(paid, whole)
	}
	if d.stops(paid) {
		d.stopRunning(paid)
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

// revoke takes back the refunded part of what the payment granted, per unit.
func (d *decision) revoke(paid *Payment, policy RefundPolicy, whole bool) {
	var units []string
	granted, gone := map[string]Amount{}, map[string]Amount{}
	for _, g := range d.state.Grants {
		if g.Payment != paid.ID {
			continue
		}
		if !slices.Contains(units, g.Unit) {
			units = append(units, g.Unit)
		}
		granted[g.Unit] += g.Granted
		gone[g.Unit] += g.Revoked
	}
	for _, unit := range units {
		target := granted[unit]
		if !whole {
			target = granted[unit].shareUp(paid.Refunded, paid.Amount)
		}
		left := target - gone[unit]
		if left <= 0 {
			continue
		}
		left -= d.revokeElsewhere(paid, unit, left, policy)
		left = d.revokeUnused(paid, unit, left)
		if policy == RefundAllAsDebt && left > 0 {
			d.post(note{kind: EntryDebt, unit: unit, reason: paid.reason()}, func(p *posting) { p.owe(left) })
			paid.Owed += left
			d.markRevoked(paid, unit, left)
		}
	}
}

// revokeElsewhere asks the account that took this one's place to take back what has moved there, and returns how much.
func (d *decision) revokeElsewhere(paid *Payment, unit string, n Amount, policy RefundPolicy) (asked Amount) {
	if d.state.Account.MergedInto.IsZero() {
		return 0
	}
	for _, g := range d.state.Grants {
		if g.Payment == paid.ID && g.Unit == unit {
			part := min(n-asked, g.Moved, g.Granted-g.Revoked)
			(&posting{state: d.state}).revoked(g, part)
			paid.Revoked += part
			asked += part
		}
	}
	if asked > 0 {
		d.revocations = append(d.revocations, Revocation{Payment: paid.ID, Unit: unit, Amount: asked, AsDebt: policy == RefundAllAsDebt})
	}
	return asked
}

// revokeUnused voids what is available, and marks what reservations hold; it returns how much had been used.
func (d *decision) revokeUnused(paid *Payment, unit string, n Amount) (used Amount) {
	d.post(note{kind: EntryRevoke, unit: unit, reason: paid.reason()}, func(p *posting) {
		for _, g := range d.state.Grants {
			if g.Payment == paid.ID && g.Unit == unit {
				part := min(n, g.Available())
				p.void(g, part)
				p.revoked(g, part)
				paid.Revoked += part
				n -= part
			}
		}
	})
	for _, g := range d.state.Grants {
		if g.Payment == paid.ID && g.Unit == unit {
			part := min(n, g.Reserved-g.Doomed)
			if part > 0 {
				d.doom(g, part)
				paid.Revoked += part
				n -= part
			}
		}
	}
	return n
}

// markRevoked notes on the payment's grants that used amounts were taken back as debt, so that no further refund does it
// again.
func (d *decision) markRevoked(paid *Payment, unit string, n Amount) {
	for _, g := range d.state.Grants {
		if g.Payment == paid.ID && g.Unit == unit {
			part := min(n, g.Granted-g.Revoked)
			(&posting{state: d.state}).revoked(g, part)
			n -= part
		}
	}
}

// takePeriod ends the period that the payment paid for, where all of it was refunded: what comes behind it moves up. Where
// a part was refunded before the period began, its allowances open with so much less.
func (d *decision) takePeriod(paid *Payment, whole bool) {
	account := &d.state.Account
	s := account.Subscription.clone()
	if s == nil {
		if whole && !account.MergedInto.IsZero() {
			d.revocations = append(d.revocations, Revocation{Payment: paid.ID, Period: true})
		}
		return
	}
	i := slices.IndexFunc(s.Periods, func(p PaidPeriod) bool { return p.Payment == paid.ID })
	if i < 0 {
		return
	}
	taken := &s.Periods[i]
	if !whole {
		taken.Refunded, taken.Paid = paid.Refunded, paid.Amount
		account.Subscription = s
		d.state.touchAccount()
		return
	}
	moved := behind(s.Periods[i+1:], d.now, latest(taken.Start, d.now))
	s.Periods = append(s.Periods[:i:i], moved...)
	account.Subscription = s
	d.state.touchAccount()
	if len(s.Periods) == 0 {
		d.lapse(d.now)
	} else if current, ok := s.periodAt(d.now); ok {
		d.moveTo(current.Plan, d.now)
	}
	d.advance()
}

// stops reports whether running work is asked to stop when the payment is refunded.
func (d *decision) stops(paid *Payment) bool {
	plan, ok := d.catalog.Plan(paid.Plan)
	return ok && plan.RunningOnRefund == RunningStop && paid.State == PaymentGranted
}

// stopRunning ends what waits, and asks what runs to stop, of the reservations that took from the payment's grants.
func (d *decision) stopRunning(paid *Payment) {
	for _, r := range d.state.Reservations {
		fromIt := slices.ContainsFunc(r.Allocations, func(a Allocation) bool {
			g, ok := d.state.Grant(a.Grant)
			return ok && g.Payment == paid.ID
		})
		switch {
		case !r.Live() || !fromIt || r.InDoubt:
		case r.State == Reserved:
			d.release(r, CauseCancelled, "")
		default:
			d.requestCancel(r)
		}
	}
}

// voidDoomed voids what has come back to grants whose payment was refunded while it was held.
func (d *decision) voidDoomed() (voided Amount) {
	for _, g := range d.state.Grants {
		n := min(g.Doomed, g.Available())
		if n > 0 {
			d.settleDoom(g, n)
			d.post(note{kind: EntryRevoke, unit: g.Unit}, func(p *posting) { p.void(g, n) })
			voided += n
		}
		if g.Doomed > g.Reserved { // the rest of it was used: nothing will come back
			d.settleDoom(g, g.Doomed-g.Reserved)
		}
	}
	return voided
}
