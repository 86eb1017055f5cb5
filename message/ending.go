package message

import "github.com/holdfast-dev/holdfast"

// success says what was done.
func (w *writer) success(o *holdfast.Outcome) {
	switch {
	case o.Reservation != nil && o.DryRun:
		w.dryRun(o.Reservation)
	case o.Reservation != nil && o.Reservation.Live():
		w.accepted(o)
	case o.Reservation != nil:
		w.ended(o.Reservation, o.Settlement)
	case o.Grant != nil:
		w.say("granted", values{"Amount": w.quantity(o.Grant.Granted, o.Grant.Unit)})
		w.sayBalance(o.Balance)
	default:
		w.say("done", nil)
		w.sayBalance(o.Balance)
	}
}

// dryRun answers a question: nothing was taken, and nothing is said to have been.
func (w *writer) dryRun(r *holdfast.Reservation) {
	w.say("possible", nil)
	if r.Reserved == 0 {
		w.say("free", nil)
		return
	}
	w.say("would_cost", values{"Amount": w.quantity(r.Reserved, r.Price.Unit)})
}

func (w *writer) accepted(o *holdfast.Outcome) {
	r := o.Reservation
	switch {
	case r.InDoubt:
		w.say("in_doubt", nil)
	case r.State == holdfast.Running:
		w.say("running", nil)
	default:
		w.say("reserved", nil)
	}
	if !r.CancelRequestedAt.IsZero() {
		w.say("asked_to_stop", nil)
	}
	if r.Reserved == 0 {
		w.say("free", nil)
		return
	}
	w.say("set_aside", values{"Amount": w.quantity(r.Reserved, r.Price.Unit)})
	w.sayBalance(o.Balance)
}

func (w *writer) sayBalance(b *holdfast.Balance) {
	if b != nil {
		w.say("available", values{"Available": w.quantity(b.Available, b.Unit)})
	}
}

// ended says how a reservation ended, then where the money is.
func (w *writer) ended(r *holdfast.Reservation, settled *holdfast.Settlement) {
	switch {
	case r.Refunded > 0: // what a person wants to know of it is the refund, not how the work once ended
	case r.State == holdfast.Committed:
		w.say("committed", nil)
	case r.State == holdfast.Expired && !r.LateAt.IsZero():
		w.say("committed.late", nil)
	case r.State == holdfast.Expired:
		w.say("expired", nil)
	case r.Cause == holdfast.CauseCancelled:
		w.say("released.cancelled", nil)
	case r.Cause == holdfast.CauseForced:
		w.say("released.forced", nil)
	default:
		w.say("released.failed", nil)
	}
	w.money(r, settled)
}

// money says what an ended reservation was charged, what was refunded, and what came back with this very command. An
// ending that is only answered again settles nothing and has no numbers of that kind.
func (w *writer) money(r *holdfast.Reservation, settled *holdfast.Settlement) {
	unit := r.Price.Unit
	returned := "returned"
	switch {
	case r.Refunded > 0:
		w.say("refunded", values{"Refunded": w.amount(r.Refunded, unit), "Charged": w.quantityIn(genitive, r.Charged()+r.Debt, unit)})
		returned = "refunded.returned"
	case nothingCharged(r):
		w.say("nothing_charged", nil)
	case r.Reserved == 0 && r.Charged()+r.Debt == 0:
		w.say("free", nil)
	default:
		w.say("charged", values{"Amount": w.quantity(r.Charged(), unit)})
		if r.Debt > 0 {
			w.say("owed", values{"Amount": w.quantity(r.Debt, unit)})
		}
	}
	if settled == nil {
		return
	}
	if settled.Returned > 0 {
		w.say(returned, values{"Amount": w.quantity(settled.Returned, unit)})
	}
	if settled.Voided > 0 {
		w.say("voided", values{"Amount": w.quantity(settled.Voided, unit)})
	}
}

// nothingCharged is the proof that the sentence of that name needs: the reservation was released or expired, and no late
// commit has charged it either.
func nothingCharged(r *holdfast.Reservation) bool {
	return (r.State == holdfast.Released || r.State == holdfast.Expired) && r.Charged()+r.Debt == 0
}
