package holdfast

// Expire ends the account's overdue reservations, as far as they were loaded. The sweeper sends it; it never refuses,
// and where nothing is overdue it changes nothing.
type Expire struct{ base }

// Name is "expire".
func (Expire) Name() string { return "expire" }

func (Expire) decide(d *decision) Outcome {
	return Outcome{Changed: d.expireOverdue() > 0}
}

// expireOverdue returns everything that the loaded overdue reservations hold, and frees their slots.
func (d *decision) expireOverdue() int { return d.expireOverdueBut(ID{}) }

// expireOverdueBut leaves one reservation out.
func (d *decision) expireOverdueBut(spared ID) (expired int) {
	for _, r := range d.state.overdue(d.now) {
		if r.ID != spared {
			d.expire(r)
			expired++
		}
	}
	return expired
}

// expire ends a reservation that nobody came back for: what was asked to stop is cancelled, what is in doubt follows its
// policy, and everything else expires.
func (d *decision) expire(r *Reservation) {
	switch {
	case !r.CancelRequestedAt.IsZero():
		d.release(r, CauseCancelled, "")
	case r.InDoubt && r.Policies.InDoubt == DoubtCharge:
		d.commit(r, r.Reserved, "in doubt until it expired")
	default:
		r.State, r.EndedAt = Expired, d.now
		d.settle(EntryExpire, r, 0, nil, "")
	}
}
