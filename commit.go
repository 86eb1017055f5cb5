package holdfast

import "fmt"

// Commit settles a reservation at the price it was made for: by an amount, by a quantity, or, where neither is given,
// by all that was reserved. It never prices or decides again.
//
// Refuses, in this order: NotFound, AlreadyEnded, StaleLease. The same ending with the same figure is not a refusal: it
// is answered again, and nothing changes. After expiry, the last token may still commit, late: see lateCommit.
type Commit struct {
	base
	ReservationID ID
	LeaseToken    string
	Amount        *Amount
	Quantity      *Amount
}

// Name is "commit".
func (Commit) Name() string { return "commit" }

func (op Commit) reservation() ID { return op.ReservationID }

func (op Commit) check(p *problems) {
	p.token("lease_token", op.LeaseToken)
	p.notNegative("amount", op.Amount)
	p.notNegative("quantity", op.Quantity)
	if op.Amount != nil && op.Quantity != nil {
		p.add("quantity", "name an amount or a quantity, not both")
	}
}

func (op Commit) print(f *printer) {
	f.text("reservation", op.ReservationID.String())
	f.optional("amount", op.Amount)
	f.optional("quantity", op.Quantity)
}

func (op Commit) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok {
		return d.refuse(NotFound)
	}
	figure, ok := op.figure(r)
	if !ok {
		return invalid("quantity", fmt.Sprintf("the price of this quantity exceeds %d", MaxAmount))
	}
	if !r.Live() {
		return d.committedBefore(r, op.LeaseToken, figure)
	}
	if !r.leasedTo(op.LeaseToken) {
		return d.refuseWith(StaleLease, r)
	}
	// From here on the command succeeds.
	return d.commit(r, figure, "")
}

// figure is what the commit reports, in the reservation's unit.
func (op Commit) figure(r *Reservation) (Amount, bool) {
	switch {
	case op.Amount != nil:
		return *op.Amount, true
	case op.Quantity != nil:
		return r.Price.Amount.times(*op.Quantity)
	}
	return r.Reserved, true
}

// commit charges up to what was reserved, in the order of its allocations, and returns the rest to where it came from.
// What was reported beyond it is not charged (overrun policy cap).
func (d *decision) commit(r *Reservation, figure Amount, reason string) Outcome {
	used := min(figure, r.Reserved)
	r.State, r.EndedAt = Committed, d.now
	r.Used, r.Unbilled = used, figure-used
	settled := d.settle(EntryCommit, r, used, reason)
	if r.Unbilled > 0 {
		d.tell(Event{ID: namedID(r.ID, "overrun"), Kind: EventOverrun, Reservation: r.ID, Figure: r.Unbilled})
	}
	outcome := d.done(r)
	outcome.Settlement = &settled
	return outcome
}

// settle ends the reservation's hold: used is charged in allocation order, the rest goes back to the grants it came
// from, and what comes back to a grant that has ended is voided at once.
func (d *decision) settle(kind EntryKind, r *Reservation, used Amount, reason string) Settlement {
	left := used
	d.post(note{kind: kind, unit: r.Price.Unit, reservation: r.ID, reason: reason}, func(p *posting) {
		for i := range r.Allocations {
			a := &r.Allocations[i]
			g := d.grantOf(a)
			a.Used = min(left, a.Reserved)
			left -= a.Used
			p.useHeld(g, a.Used)
			p.returnHeld(g, a.Reserved-a.Used)
		}
	})
	assert(left == 0, "used at most what was reserved")
	d.freeSlot()
	d.state.touchReservation(r)
	voided := d.voidReturned()
	return Settlement{
		Returned: r.Reserved - used - voided, Voided: voided, Unbilled: r.Unbilled, MayContinue: d.mayContinue(r),
	}
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
func (d *decision) committedBefore(r *Reservation, token string, figure Amount) Outcome {
	settledLate := r.State == Expired && !r.LateAt.IsZero()
	switch {
	case r.State == Committed && figure == r.Used+r.Unbilled, settledLate && figure == r.LateUsed+r.Unbilled:
		return d.unchanged(r)
	case r.State == Expired && !settledLate && !r.leasedTo(token):
		return d.refuseWith(StaleLease, r)
	case r.State == Expired && !settledLate:
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
	if r.State != Expired { // what was not used came back when it ended, to pockets that had ended by then or not
		for i := range r.Allocations {
			a := &r.Allocations[i]
			if left := a.Reserved - a.Used; d.grantOf(a).Ended(r.EndedAt) {
				outcome.Settlement.Voided += left
			} else {
				outcome.Settlement.Returned += left
			}
		}
	}
	return outcome
}

// lateCommit charges work that was finished after its reservation had expired (policy charge): what is available now, at
// most what had been reserved; the rest stays unbilled and never becomes debt. The reservation stays expired, takes no
// slot, and is settled this way once.
func (d *decision) lateCommit(r *Reservation, figure Amount) Outcome {
	parts, _ := d.allocate(d.pockets(r.Price.Unit, r.Feature), min(figure, r.Reserved))
	d.post(note{kind: EntryLateCommit, unit: r.Price.Unit, reservation: r.ID}, func(p *posting) {
		for _, part := range parts {
			p.use(part.grant, part.amount)
			r.LateUsed += part.amount
			r.Allocations = append(r.Allocations, Allocation{Grant: part.grant.ID, Source: part.grant.Source, Used: part.amount})
		}
	})
	r.LateAt, r.Unbilled = d.now, figure-r.LateUsed
	d.state.touchReservation(r)
	outcome := d.done(r)
	outcome.Settlement = &Settlement{Unbilled: r.Unbilled, Late: true, MayContinue: d.mayContinue(r)}
	return outcome
}
