package holdfast

import "time"

// Refund gives back a charge whose work was not worth it, whole or in parts: in sum at most what was charged, into the
// pockets it came from, what was bought first. What comes back to a pocket that has ended is voided, unless the operator
// asks for a pocket of its own instead. It needs a key.
//
// Refuses, in this order: NotFound, NotCommitted, RefundExceedsUsed.
type Refund struct {
	base
	ReservationID ID
	Amount        *Amount // nil: all that was not refunded yet
	Ended         EndedPockets
	Reason        string
}

// EndedPockets says what becomes of a refund into a pocket that has ended.
type EndedPockets string

// The choices. The empty one means EndedVoid.
const (
	EndedVoid       EndedPockets = "void"
	EndedCorrection EndedPockets = "correction"
)

// Name is "refund".
func (Refund) Name() string { return "refund" }

func (op Refund) reservation() ID { return op.ReservationID }

func (Refund) creates() bool { return true }

func (op Refund) ended() EndedPockets {
	if op.Ended == "" {
		return EndedVoid
	}
	return op.Ended
}

func (op Refund) check(p *problems) {
	if op.Amount != nil {
		p.positive("amount", *op.Amount)
	}
	if op.ended() != EndedVoid && op.ended() != EndedCorrection {
		p.add("ended_pockets", "use void or correction")
	}
	p.sentence("reason", op.Reason, false)
}

func (op Refund) print(f *printer) {
	f.text("reservation", op.ReservationID.String())
	f.optional("amount", op.Amount)
	f.text("ended_pockets", string(op.ended()))
}

func (op Refund) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok {
		return d.refuse(NotFound)
	}
	if r.State != Committed && r.LateAt.IsZero() {
		return d.refuseWith(NotCommitted, r)
	}
	amount := r.Charged() + r.Debt - r.Refunded
	if op.Amount != nil {
		if *op.Amount > amount {
			return d.refuseWith(RefundExceedsUsed, r)
		}
		amount = *op.Amount
	}
	if !d.fits(r.Price.Unit, amount) {
		return invalid("amount", tooMuch)
	}
	// From here on the command succeeds.
	changed := amount > 0
	settled := Settlement{MayContinue: d.mayContinue(r)}
	if changed {
		settled = d.refund(op, r, amount)
	}
	outcome := d.done(r)
	outcome.Changed, outcome.Settlement = changed, &settled
	return outcome
}

// refund first forgives what the charge left owed, then goes through the allocations backwards, so that what would have
// burned last comes back first. A debt that was repaid meanwhile comes back as a correction.
func (d *decision) refund(op Refund, r *Reservation, amount Amount) Settlement {
	owed := min(amount, r.Debt-r.refundedDebt())
	forgiven := min(owed, d.state.Account.Debts[r.Price.Unit])
	left := amount - owed
	d.post(note{kind: EntryRefund, unit: r.Price.Unit, reservation: r.ID, reason: op.Reason}, func(p *posting) {
		for i := len(r.Allocations) - 1; i >= 0; i-- {
			a := &r.Allocations[i]
			n := min(left, a.Used-a.Refunded)
			p.unuse(d.grantOf(a), n)
			a.Refunded += n
			left -= n
		}
		if forgiven > 0 {
			p.owe(-forgiven)
		}
	})
	assert(left == 0, "refunded at most what was used")
	r.Refunded += amount
	d.state.touchReservation(r)
	voided := d.voidDoomed() + d.voidReturned()
	correction := owed - forgiven
	if op.ended() == EndedCorrection {
		correction, voided = correction+voided, 0
	}
	if correction > 0 {
		g := &Grant{
			ID: d.newID(), Unit: r.Price.Unit, Source: FromCorrection, Priority: FromCorrection.defaultPriority(),
			Granted: correction, StartsAt: d.now, CreatedAt: d.now, Open: true,
		}
		d.post(note{kind: EntryGrant, unit: g.Unit, reservation: r.ID, reason: op.Reason}, func(p *posting) { p.issue(g) })
	}
	return Settlement{Returned: amount - voided, Voided: voided, MayContinue: d.mayContinue(r)}
}

// voidReturned carries over or voids what has just come back to grants that have ended.
func (d *decision) voidReturned() Amount {
	return d.endGrants(func(*Grant) time.Time { return d.now })
}
