package holdfast

import "time"

// Extend gives a live reservation more time, or a larger upper bound at the price it was made at, or both: all of it or
// nothing. A smaller bound, or an earlier end, changes nothing, and work that was asked to stop gets neither time nor a larger
// bound. Growing is new spending and is judged like a reserve, but for the slot, which it has.
//
// Refuses, in this order: NotFound, Invalid, AlreadyEnded, StaleLease, AccountBlocked, FeatureNotInPlan, Insufficient or
// HeldByActive. A refused growth leaves the reservation as it was.
type Extend struct {
	base
	ReservationID ID
	LeaseToken    string            // of a running one
	TTL           time.Duration     // from now; 0: no more time
	Quantity      *Amount           // of a fixed price; nil: as it is
	Usage         map[string]Amount // of a price by usage; nil: as it is
}

// Name is "extend".
func (Extend) Name() string { return "extend" }

func (op Extend) reservation() ID { return op.ReservationID }

func (op Extend) check(p *problems) {
	p.token("lease_token", op.LeaseToken)
	p.duration("ttl_seconds", op.TTL, MinTTL, MaxTTL)
	if op.Quantity != nil {
		p.positive("quantity", *op.Quantity)
	}
	p.usage("usage", op.Usage)
	if op.TTL == 0 && op.Quantity == nil && len(op.Usage) == 0 {
		p.add("ttl_seconds", "ask for more time, a larger quantity, or more usage")
	}
}

func (op Extend) print(f *printer) {
	f.text("reservation", op.ReservationID.String())
	f.optional("quantity", op.Quantity)
	f.amounts("usage", op.Usage)
}

func (op Extend) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok {
		return d.refuse(NotFound)
	}
	needed, problem := op.bound(r)
	if problem != nil {
		return Outcome{Reason: Invalid, Problems: []Problem{*problem}}
	}
	if !r.Live() {
		return d.refuseWith(AlreadyEnded, r)
	}
	if !r.leasedTo(op.LeaseToken) {
		return d.refuseWith(StaleLease, r)
	}
	if d.outlived(r) {
		return d.refuseWith(AlreadyEnded, r)
	}
	if !r.CancelRequestedAt.IsZero() {
		outcome := d.done(r)
		outcome.Changed = false
		return outcome
	}
	if more := needed - r.Reserved; more > 0 {
		if refusal := d.grow(op, r, more); refusal != nil {
			return *refusal
		}
	}
	// From here on the command succeeds.
	changed := needed > r.Reserved || op.larger(r)
	if changed {
		op.record(d, r)
		r.Reserved = max(r.Reserved, needed)
	}
	if op.TTL > 0 {
		before := r.ExpiresAt
		r.moveExpiry(d.now.Add(op.TTL))
		changed = changed || !r.ExpiresAt.Equal(before)
	}
	if changed {
		d.state.touchReservation(r)
	}
	outcome := d.done(r)
	outcome.Changed = changed
	return outcome
}

// bound is what the larger bound costs at the frozen price.
func (op Extend) bound(r *Reservation) (Amount, *Problem) {
	switch {
	case op.Quantity != nil && r.Price.ByUsage():
		return 0, &Problem{"quantity", "this is priced by usage: say how much usage at most"}
	case len(op.Usage) > 0 && r.Price.free():
		return 0, nil // the plan has it free
	case len(op.Usage) > 0 && !r.Price.ByUsage():
		return 0, &Problem{"usage", "this has a fixed price: ask for a larger quantity"}
	case op.Quantity == nil && len(op.Usage) == 0:
		return r.Reserved, nil
	}
	what := asked{usage: op.Usage}
	if op.Quantity != nil {
		what.quantity = *op.Quantity
	}
	needed, ok := r.Price.of(what)
	if !ok {
		return 0, &Problem{map[bool]string{true: "usage", false: "quantity"}[r.Price.ByUsage()], "the price of so much exceeds what an amount can be"}
	}
	return needed, nil
}

// larger reports whether the bound is beyond the one that is there, also where it costs nothing more.
func (op Extend) larger(r *Reservation) bool {
	return op.Quantity != nil && *op.Quantity > r.Quantity
}

func (op Extend) record(d *decision, r *Reservation) {
	if op.Quantity != nil {
		r.Quantity = *op.Quantity
	}
	if len(op.Usage) > 0 {
		r.Usage = op.Usage
		if r.Price.unrated(r.Usage) {
			d.tellUnrated(r)
		}
	}
}

// grow holds more, or says why not.
func (d *decision) grow(op Extend, r *Reservation, more Amount) *Outcome {
	feature := &Feature{Name: r.Feature, Prices: []Price{r.Price}} // as it was when it was reserved
	what := asked{quantity: r.Quantity, usage: op.Usage}
	if op.Quantity != nil {
		what.quantity = *op.Quantity
	}
	refuse := func(refused Outcome) *Outcome {
		if numbers := refused.Refusal; numbers.Estimated {
			numbers.AffordableUsage = r.Price.affordable(op.Usage, numbers.Available+r.Reserved) // in all, with what it has
		}
		outcome := d.refuseAsk(feature, refused, false)
		shown := r.clone()
		outcome.Reservation = &shown
		return outcome
	}
	if refused := d.judgeRights(feature, what); refused != nil {
		return refuse(*refused)
	}
	price := func() *quote {
		q := d.quote(r.Price, more, r.Feature)
		return &q
	}
	q := price()
	if !q.payable() && d.expireOverdueBut(r.ID) > 0 {
		if d.state.MoreOverdue {
			return &Outcome{Again: true}
		}
		q = price()
	}
	switch {
	case q.payable():
		d.hold(r, q, more)
		return nil
	case q.onlyHeld():
		return refuse(d.refuseQuote(HeldByActive, q, []quote{*q}, feature, what))
	}
	return refuse(d.refuseQuote(Insufficient, q, []quote{*q}, feature, what))
}
