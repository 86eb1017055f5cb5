package holdfast

// Changes is what one account's decisions want written, all of it in one transaction or nothing.
// Rows are whole. Lists are in the order in which things were decided.
type Changes struct {
	// Account is the row as it should be, except for Version: that is the one that was read, and the fence. The store
	// writes Version + 1 where the stored version still equals it; 0 means insert.
	Account         Account
	NewGrants       []*Grant
	Grants          []*Grant
	NewReservations []*Reservation
	Reservations    []*Reservation
	Entries         []Entry
	Answers         []*Answer  // inserted, or replaced where a recorded refusal was decided afresh
	Payments        []*Payment // inserted, or replaced
	Events          []Event    // an event whose id is stored already is dropped: it was told before
	// Notices wait until they are due, each in its slot instead of the one that waits there. Those that are Withdrawn are removed,
	// also from the outbox.
	Notices   []Notice
	Withdrawn []Withdrawn
	// Erase says to forget the metadata of all reservations of the account, and that in recorded answers.
	Erase bool
}

// Changes collects what was changed since the state was loaded, and whether that is anything at all.
func (s *State) Changes() (Changes, bool) {
	d := &s.dirty
	changes := Changes{
		Account:         s.Account,
		NewGrants:       pick(s.Grants, func(g *Grant) bool { return d.newGrants[g.ID] }),
		Grants:          pick(s.Grants, func(g *Grant) bool { return d.grants[g.ID] }),
		NewReservations: pick(s.Reservations, func(r *Reservation) bool { return d.newReservations[r.ID] }),
		Reservations:    pick(s.Reservations, func(r *Reservation) bool { return d.reservations[r.ID] }),
		Answers:         pick(s.Answers, func(a *Answer) bool { return d.answers[a.Key] }),
		Payments:        pick(s.Payments, func(p *Payment) bool { return d.payments[p.ID] }),
		Entries:         d.entries,
		Events:          d.events,
		Notices:         d.notices,
		Withdrawn:       d.withdrawn,
		Erase:           d.erase,
	}
	return changes, d.any()
}

func pick[T any](list []*T, keep func(*T) bool) []*T {
	var kept []*T
	for _, item := range list {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}
