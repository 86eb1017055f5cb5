package holdfast

// InDoubt marks running work of which its worker does not know whether it happened: the connection to the provider broke.
// The slot is free, the money stays held, nobody else may start it, and whoever learns how it ended may say so, with or
// without the lease. Where nobody does, the feature's policy decides at its expiry.
//
// Refuses, in this order: NotFound, AlreadyEnded, StaleLease (also where it was not started).
type InDoubt struct {
	base
	ReservationID ID
	LeaseToken    string
}

// Name is "in_doubt".
func (InDoubt) Name() string { return "in_doubt" }

func (op InDoubt) reservation() ID { return op.ReservationID }

func (op InDoubt) check(p *problems) { p.token("lease_token", op.LeaseToken) }

func (op InDoubt) print(f *printer) { f.text("reservation", op.ReservationID.String()) }

func (op InDoubt) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok {
		return d.refuse(NotFound)
	}
	if !r.Live() {
		return d.refuseWith(AlreadyEnded, r)
	}
	if r.State != Running || r.LeaseToken != op.LeaseToken {
		return d.refuseWith(StaleLease, r)
	}
	// From here on the command succeeds.
	changed := !r.InDoubt
	if changed {
		r.InDoubt = true
		d.freeSlot()
		d.state.touchReservation(r)
		d.tell(Event{ID: namedID(r.ID, "in doubt"), Kind: EventInDoubt, Reservation: r.ID})
	}
	outcome := d.done(r)
	outcome.Changed = changed
	return outcome
}
