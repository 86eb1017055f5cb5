package holdfast

import "time"

// EventKind names what an event tells of.
type EventKind string

// Events of ledger entries are named after them (see EntryKind.event). These tell of more:
const (
	// EventOverrun: more was reported than had been reserved; the difference was not charged.
	EventOverrun EventKind = "reservation.overrun"
	// EventReportedAfterEnd: a commit came to a reservation that had ended otherwise. One event per figure.
	EventReportedAfterEnd EventKind = "reservation.reported_after_end"
)

// Event is an outbox row: it leaves the database because it was committed with what it tells of. Where it tells of a
// ledger entry it points there instead of repeating it.
type Event struct {
	ID          ID
	Kind        EventKind
	Entry       int64  // number of the entry; 0: none
	Reservation ID     // zero: none
	Figure      Amount // of an overrun: not charged; of a report after the end: reported
	At          time.Time
}

func (k EntryKind) event() EventKind {
	switch k {
	case EntryGrant, EntryVoid:
		return EventKind("grant." + string(k))
	case EntryAdjust, EntrySubscription:
		return EventKind("account." + string(k))
	default:
		return EventKind("reservation." + string(k))
	}
}
