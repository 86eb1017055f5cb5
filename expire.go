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
func (d *decision) expireOverdue() int {
	due := d.state.overdue(d.now)
	for _, r := range due {
		d.expire(r)
	}
	return len(due)
}

func (d *decision) expire(r *Reservation) {
	r.State, r.EndedAt = Expired, d.now
	d.settle(EntryExpire, r, 0, "")
}
