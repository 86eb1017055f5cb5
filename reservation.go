package holdfast

import (
	"slices"
	"time"
)

// ReservationState is where a reservation is in its life.
type ReservationState string

// The states. Reserved and running are live; a live reservation ends exactly once.
const (
	Reserved  ReservationState = "reserved"
	Running   ReservationState = "running"
	Committed ReservationState = "committed"
	Released  ReservationState = "released"
	Expired   ReservationState = "expired"
)

// Reservation is a decision frozen: what was asked for, at which price, from which pockets, and until when.
type Reservation struct {
	ID       ID
	Feature  string
	Quantity Amount
	State    ReservationState

	// Price is the alternative that was chosen, for a quantity of one. It and the policies are never looked up again.
	Price       Price
	Policies    Policies     `json:",omitzero"`
	Allocations []Allocation `json:",omitzero"` // in burn order; those of an overrun or a late commit follow

	Reserved Amount    // what Quantity or Usage cost, as decided at the reserve and whenever it grew
	Used     Amount    `json:",omitzero"` // charged by the commit
	Debt     Amount    `json:",omitzero"` // charged by the commit, and owed
	Unbilled Amount    `json:",omitzero"` // reported beyond what was charged and owed
	Voided   Amount    `json:",omitzero"` // came back to a pocket that had ended, and ended with it
	LateUsed Amount    `json:",omitzero"` // charged after expiry
	Refunded Amount    `json:",omitzero"`
	LateAt   time.Time `json:",omitzero"` // when the late commit was settled; zero: it was not

	Key            string            `json:",omitzero"`
	Surface        string            `json:",omitzero"`
	Metadata       map[string]string `json:",omitzero"`
	Usage          map[string]Amount `json:",omitzero"` // at most, as told by the caller; of a fixed price it is only recorded
	Reported       map[string]Amount `json:",omitzero"` // what was used, as told by the commit
	CatalogVersion int64

	// InDoubt marks running work of which nobody knows whether it happened. Its money is held, its slot is free.
	InDoubt           bool      `json:",omitzero"`
	CancelRequestedAt time.Time `json:",omitzero"` // zero: the worker was not asked to stop

	TTL       time.Duration
	MaxHold   time.Duration `json:",omitzero"` // 0: HoldFactor × TTL
	CreatedAt time.Time
	ExpiresAt time.Time
	EndedAt   time.Time `json:",omitzero"`
	Cause     string    `json:",omitzero"` // of a release

	Job *Job `json:",omitzero"` // nil: somebody else knows what the work is, and when it is done

	Worker         string    `json:",omitzero"`
	LeaseToken     string    `json:",omitzero"` // the last one given out
	LeaseExpiresAt time.Time `json:",omitzero"`
	Attempts       int       `json:",omitzero"` // how often it was started
}

// Allocation is what a reservation took from one grant.
type Allocation struct {
	Grant    ID
	Source   Source
	Reserved Amount `json:",omitzero"`
	Used     Amount `json:",omitzero"`
	Refunded Amount `json:",omitzero"`
}

// takesSlot reports whether the reservation counts as active.
func (r *Reservation) takesSlot() bool { return r.Live() && !r.InDoubt }

// Live reports whether the reservation has not ended.
func (r *Reservation) Live() bool { return r.State == Reserved || r.State == Running }

// Overdue reports whether the sweeper may expire it: its interval [CreatedAt, ExpiresAt) is over.
func (r *Reservation) Overdue(now time.Time) bool { return r.Live() && !now.Before(r.ExpiresAt) }

// HeldUntil is the latest instant to which anything can move ExpiresAt.
func (r *Reservation) HeldUntil() time.Time {
	if r.MaxHold > 0 {
		return r.CreatedAt.Add(r.MaxHold)
	}
	return r.CreatedAt.Add(HoldFactor * r.TTL)
}

// Charged is what the account's pockets paid for this reservation, before refunds. What is owed comes on top.
func (r *Reservation) Charged() Amount { return r.Used + r.LateUsed }

// refundedDebt is how much of the refunds forgave debt.
func (r *Reservation) refundedDebt() Amount {
	forgiven := r.Refunded
	for i := range r.Allocations {
		forgiven -= r.Allocations[i].Refunded
	}
	return forgiven
}

// leasedTo reports whether the token may act. Before the first start nobody has one and none is needed. Whoever knows how
// work in doubt ended may say so without one.
func (r *Reservation) leasedTo(token string) bool {
	return r.LeaseToken == "" || r.LeaseToken == token || r.InDoubt && token == ""
}

// moveExpiry moves the end to later, never past HeldUntil and never to earlier.
func (r *Reservation) moveExpiry(to time.Time) {
	r.ExpiresAt = latest(r.ExpiresAt, earliest(to, r.HeldUntil()))
}

// lease gives the worker the right to finish until now + length, at most until the reservation ends.
func (r *Reservation) lease(now time.Time, length time.Duration) {
	r.LeaseExpiresAt = earliest(now.Add(length), r.ExpiresAt)
}

func (r *Reservation) clone() Reservation {
	copied := *r
	copied.Allocations = slices.Clone(r.Allocations)
	copied.Job = r.Job.clone()
	return copied // maps are never written after the reserve
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earliest(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
