package holdfast

import "fmt"

// Commit settles a reservation at the price it was made for: by an amount, by a quantity, by usage, or, where none is
// given, by all that was reserved. It never decides again, and prices usage at the frozen rates. What is priced by usage,
// and what was asked to stop, must name its figure. Usage of a fixed price is only recorded.
//
// Refuses, in this order: NotFound, Invalid, AlreadyEnded, StaleLease. The same ending with the same figure is not a refusal: it
// is answered again, and nothing changes. After expiry, the last token may still commit, late: see lateCommit.
type Commit struct {
	base
	ReservationID ID
	LeaseToken    string
	Amount        *Amount
	Quantity      *Amount
	Usage         map[string]Amount // nil: not given; kinds left out count as zero
}

// Name is "commit".
func (Commit) Name() string { return "commit" }

func (op Commit) reservation() ID { return op.ReservationID }

func (op Commit) check(p *problems) {
	p.token("lease_token", op.LeaseToken)
	p.notNegative("amount", op.Amount)
	p.notNegative("quantity", op.Quantity)
	p.usage("usage", op.Usage)
	if op.Usage != nil && len(op.Usage) == 0 {
		p.add("usage", "say what was used; nothing used is a zero of some kind, or amount 0")
	}
	if op.Amount != nil && op.Quantity != nil {
		p.add("quantity", "name an amount or a quantity, not both")
	}
	if op.Usage != nil && (op.Amount != nil || op.Quantity != nil) {
		p.add("usage", "name usage, or an amount or a quantity, not both")
	}
}

func (op Commit) print(f *printer) {
	f.text("reservation", op.ReservationID.String())
	f.optional("amount", op.Amount)
	f.optional("quantity", op.Quantity)
	if op.Usage != nil { // of nothing is another figure than none
		f.text("usage", "")
	}
	f.amounts("usage", op.Usage)
}

func (op Commit) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok {
		d.tell(Event{
			ID: namedID(op.ReservationID, "unknown"), Kind: EventUnknownReservation, Reservation: op.ReservationID,
		})
		return d.refuse(NotFound)
	}
	figure, problem := op.figure(r)
	if problem != nil {
		return Outcome{Reason: Invalid, Problems: []Problem{*problem}}
	}
	if !r.Live() {
		return d.committedBefore(op, r, figure)
	}
	if !r.leasedTo(op.LeaseToken) {
		return d.refuseWith(StaleLease, r)
	}
	// From here on the command succeeds.
	d.report(r, op.Usage)
	return d.commit(r, figure, "")
}

// report keeps what was used, as it was told.
func (d *decision) report(r *Reservation, usage map[string]Amount) {
	if usage == nil {
		return
	}
	r.Reported = usage
	if r.Price.unrated(usage) {
		d.tellUnrated(r)
	}
}

// figure is what the commit reports, in the reservation's unit.
func (op Commit) figure(r *Reservation) (Amount, *Problem) {
	asked := !r.CancelRequestedAt.IsZero()
	if op.Usage != nil && r.Price.ByUsage() {
		cost, ok := r.Price.cost(op.Usage)
		if !ok {
			return 0, &Problem{"usage", fmt.Sprintf("the price of so much exceeds %d", MaxAmount)}
		}
		return cost, nil
	}
	figure, field := r.Reserved, "amount"
	switch {
	case op.Amount != nil:
		figure = *op.Amount
	case op.Quantity != nil && r.Price.ByUsage():
		return 0, &Problem{"quantity", "this is priced by usage: name the usage, or an amount"}
	case op.Quantity != nil:
		field = "quantity"
		var ok bool
		if figure, ok = r.Price.Amount.times(*op.Quantity); !ok {
			return 0, &Problem{field, fmt.Sprintf("the price of this quantity exceeds %d", MaxAmount)}
		}
	case r.Price.ByUsage():
		return 0, &Problem{"usage", "say what was used: this is priced by usage"}
	case asked:
		return 0, &Problem{field, "say how much to charge: the work was asked to stop"}
	}
	if asked && figure > r.Reserved {
		return 0, &Problem{field, "use at most what is reserved: the work was asked to stop"}
	}
	return figure, nil
}

// commit charges what was used: up to what was reserved in the order of its allocations, and the rest goes back to where
// it came from. What was reported beyond it follows the overrun policy; of work that was asked to stop, and of what the plan
// has free, it is not charged.
func (d *decision) commit(r *Reservation, figure Amount, reason string) Outcome {
	held := min(figure, r.Reserved)
	over := figure - held
	policy := r.Policies.Overrun
	if !r.CancelRequestedAt.IsZero() || r.Price.free() {
		policy = OverrunCap
	}
	var extra []part
	if over > 0 && policy != OverrunCap {
		extra, over = d.allocate(d.pockets(r.Price.Unit, r.Feature), over)
	}
	r.State, r.EndedAt = Committed, d.now
	settled := d.settle(EntryCommit, r, held, extra, reason)
	if policy == OverrunDebt {
		r.Debt = d.owe(r, over)
	}
	r.Unbilled = over - r.Debt
	settled.Unbilled = r.Unbilled
	if r.Unbilled > 0 {
		d.tell(Event{ID: namedID(r.ID, "overrun"), Kind: EventOverrun, Reservation: r.ID, Figure: r.Unbilled})
	}
	outcome := d.done(r)
	outcome.Settlement = &settled
	return outcome
}

// settle ends the reservation's hold: used is charged in allocation order, the rest goes back to the grants it came
// from, and what comes back to a grant that has ended is carried over or voided at once. Extra is charged besides, from
// what was not held.
func (d *decision) settle(kind EntryKind, r *Reservation, used Amount, extra []part, reason string) Settlement {
	d.leftQueue(r)
	left, before := used, d.watched(r)
	doubted := r.InDoubt // its slot was freed with the mark
	r.InDoubt = false
	r.Job.closeAttempt(AttemptEnd(r.State), r.Cause, r.EndedAt)
	d.post(note{kind: kind, unit: r.Price.Unit, reservation: r.ID, reason: reason}, func(p *posting) {
		for i := range r.Allocations {
			a := &r.Allocations[i]
			g := d.grantOf(a)
			a.Used = min(left, a.Reserved)
			left -= a.Used
			p.useHeld(g, a.Used)
			p.returnHeld(g, a.Reserved-a.Used)
		}
		for _, part := range extra {
			p.use(part.grant, part.amount)
			r.Allocations = append(r.Allocations, Allocation{Grant: part.grant.ID, Source: part.grant.Source, Used: part.amount})
			r.Used += part.amount
		}
	})
	assert(left == 0, "used at most what was reserved")
	entry := d.state.Account.LastEntry
	r.Used += used
	if !doubted {
		d.freeSlot()
	}
	d.state.touchReservation(r)
	r.Voided = d.voidDoomed() + d.voidReturned() // in this order: what a refund has taken back is not carried over
	d.watchLow(r, before, entry)
	return Settlement{Returned: r.Reserved - used - r.Voided, Voided: r.Voided, MayContinue: d.mayContinue(r)}
}

// mayContinue reports whether the account still has the right that the reservation was made under.
func (d *decision) mayContinue(r *Reservation) bool {
	return !d.state.Account.Blocked && d.plan.Has(r.Feature)
}

func (d *decision) grantOf(a *Allocation) *Grant {
	g, ok := d.state.Grant(a.Grant)
	assert(ok, "a reservation's grants are loaded with it")
	return g
}

// committedBefore answers a commit of a reservation that has ended.
func (d *decision) committedBefore(op Commit, r *Reservation, figure Amount) Outcome {
	settledLate := r.State == Expired && !r.LateAt.IsZero()
	switch {
	case r.State == Committed && figure == r.Used+r.Debt+r.Unbilled, settledLate && figure == r.LateUsed+r.Unbilled:
		return d.unchanged(r)
	case r.State == Expired && !settledLate && !r.leasedTo(op.LeaseToken):
		return d.refuseWith(StaleLease, r)
	case r.State == Expired && !settledLate:
		d.report(r, op.Usage)
		return d.lateCommit(r, figure)
	}
	d.tell(Event{
		ID:   namedID(r.ID, fmt.Sprintf("reported after end %d", figure)),
		Kind: EventReportedAfterEnd, Reservation: r.ID, Figure: figure,
	})
	return d.refuseWith(AlreadyEnded, r)
}

// unchanged answers an ending that has happened before, in the same way.
func (d *decision) unchanged(r *Reservation) Outcome {
	outcome := d.done(r)
	outcome.Changed = false
	outcome.Settlement = &Settlement{Unbilled: r.Unbilled, Late: !r.LateAt.IsZero(), MayContinue: d.mayContinue(r)}
	if r.State != Expired {
		used := Amount(0) // of what was held
		for _, a := range r.Allocations {
			used += min(a.Reserved, a.Used)
		}
		outcome.Settlement.Voided = r.Voided
		outcome.Settlement.Returned = r.Reserved - used - r.Voided
	}
	return outcome
}

// lateCommit settles work that was finished after its reservation had expired. By the policy charge it is charged what is
// available now, at most what had been reserved; the rest stays unbilled and never becomes debt. By absorb nothing is
// charged. The reservation stays expired, takes no slot, and is settled this way once.
func (d *decision) lateCommit(r *Reservation, figure Amount) Outcome {
	var parts []part
	before := d.watched(r)
	if r.Policies.LateCommit != LateAbsorb {
		parts, _ = d.allocate(d.pockets(r.Price.Unit, r.Feature), min(figure, r.Reserved))
	}
	d.post(note{kind: EntryLateCommit, unit: r.Price.Unit, reservation: r.ID}, func(p *posting) {
		for _, part := range parts {
			p.use(part.grant, part.amount)
			r.LateUsed += part.amount
			r.Allocations = append(r.Allocations, Allocation{Grant: part.grant.ID, Source: part.grant.Source, Used: part.amount})
		}
	})
	d.watchLow(r, before, d.state.Account.LastEntry)
	r.LateAt, r.Unbilled = d.now, figure-r.LateUsed
	d.state.touchReservation(r)
	outcome := d.done(r)
	outcome.Settlement = &Settlement{Unbilled: r.Unbilled, Late: true, MayContinue: d.mayContinue(r)}
	return outcome
}
