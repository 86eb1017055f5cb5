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

	// Price is the alternative that was chosen, for a quantity of one. It is never looked up again.
	Price       Price
	Allocations []Allocation `json:",omitzero"` // in burn order; those of a late commit follow

	Reserved Amount    // Price × Quantity, as decided at the reserve
	Used     Amount    `json:",omitzero"` // charged by the commit
	Unbilled Amount    `json:",omitzero"` // reported beyond what was charged
	LateUsed Amount    `json:",omitzero"` // charged after expiry
	Refunded Amount    `json:",omitzero"`
	LateAt   time.Time `json:",omitzero"` // when the late commit was settled; zero: it was not

	Key            string            `json:",omitzero"`
	Surface        string            `json:",omitzero"`
	Metadata       map[string]string `json:",omitzero"`
	Usage          map[string]Amount `json:",omitzero"` // as told by the caller; of a fixed price it is only recorded
	CatalogVersion int64

	TTL       time.Duration
	CreatedAt time.Time
	ExpiresAt time.Time
	EndedAt   time.Time `json:",omitzero"`
	Cause     string    `json:",omitzero"` // of a release

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

// Live reports whether the reservation has not ended.
func (r *Reservation) Live() bool { return r.State == Reserved || r.State == Running }

// Overdue reports whether the sweeper may expire it: its interval [CreatedAt, ExpiresAt) is over.
func (r *Reservation) Overdue(now time.Time) bool { return r.Live() && !now.Before(r.ExpiresAt) }

// HeldUntil is the latest instant to which anything can move ExpiresAt.
func (r *Reservation) HeldUntil() time.Time { return r.CreatedAt.Add(HoldFactor * r.TTL) }

// Charged is what the account paid for this reservation, before refunds.
func (r *Reservation) Charged() Amount { return r.Used + r.LateUsed }

// leasedTo reports whether the token may act. Before the first start nobody has one and none is needed.
func (r *Reservation) leasedTo(token string) bool {
	return r.LeaseToken == "" || r.LeaseToken == token
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
