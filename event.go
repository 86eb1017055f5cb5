package holdfast

import (
	"strings"
	"time"
)

// EventKind names what an event tells of.
type EventKind string

// Events of ledger entries are named after them (see EntryKind.event). These tell of more:
const (
	// EventOverrun: more was reported than had been reserved; the difference was not charged.
	EventOverrun EventKind = "reservation.overrun"
	// EventReportedAfterEnd: a commit came to a reservation that had ended otherwise. One event per figure.
	EventReportedAfterEnd EventKind = "reservation.reported_after_end"
	// EventUnknownReservation: a commit came to a reservation that nobody knows. Nothing was charged.
	EventUnknownReservation EventKind = "reservation.unknown"
	// EventUnratedUsage: kinds of usage were reported that the price has no rate for. They were recorded, and not charged.
	EventUnratedUsage EventKind = "reservation.unrated_usage"
	// EventInDoubt: a worker does not know whether the provider has worked.
	EventInDoubt EventKind = "reservation.in_doubt"
	// EventCancelRequested: the person asked running work to stop.
	EventCancelRequested EventKind = "reservation.cancel_requested"
	// EventBudgetExceeded: a gateway has refused what was reserved and paid for here, since its own limit is spent.
	EventBudgetExceeded EventKind = "reservation.budget_exceeded"
	// EventDeleted: the account was deleted, and what was personal about it is erased.
	EventDeleted EventKind = "account.deleted"
	// Notices are what a person is told without having asked: that the job still waits, that less than the plan's line is left
	// (Figure: what is available), that an allowance is there in full again for somebody who has been away.
	EventNoticeQueued     EventKind = "notice.queued"
	EventNoticeLowBalance EventKind = "notice.low_balance"
	EventNoticeRenewed    EventKind = "notice.allowance_renewed"
	// EventMerged: a name leads to another account from now on, or what it had has arrived there.
	EventMerged EventKind = "account.merged"

	// Of payments: what one came to, and that it was refunded (Figure: how much of it, by this refund).
	EventPaymentGranted  EventKind = "payment.granted"
	EventPaymentFlagged  EventKind = "payment.flagged"
	EventPaymentRefunded EventKind = "payment.refunded"
	// Of subscriptions: a period was paid for; it will change, end, or go on with what is paid; it has ended.
	EventSubscriptionRenewed   EventKind = "payment.period"
	EventSubscriptionChange    EventKind = "subscription.change"
	EventSubscriptionCancelled EventKind = "subscription.cancelled"
	EventSubscriptionResumed   EventKind = "subscription.resumed"
	EventSubscriptionEnded     EventKind = "subscription.ended"
)

// Event is an outbox row: it leaves the database because it was committed with what it tells of. Where it tells of a
// ledger entry it points there instead of repeating it.
type Event struct {
	ID          ID
	Kind        EventKind
	Entry       int64  // number of the entry; 0: none
	Reservation ID     // zero: none
	Payment     ID     // zero: none; an event is about a reservation or a payment, not both
	Figure      Amount // of an overrun: not charged; of a report after the end: reported
	At          time.Time
}

// Subject is what the event is about: its reservation or its payment; zero: neither.
func (e *Event) Subject() ID {
	if e.ofPayment() {
		return e.Payment
	}
	return e.Reservation
}

// SetSubject puts back what Subject told.
func (e *Event) SetSubject(id ID) {
	if e.ofPayment() {
		e.Payment = id
	} else {
		e.Reservation = id
	}
}

// OfEntry reports whether the event tells of its ledger entry and of nothing else: then its id holds the entry's number,
// and no other event of the account has it.
func (e *Event) OfEntry() bool { return e.Entry > 0 && e.ID == entryEventID(e.Entry) }

func (e *Event) ofPayment() bool { return strings.HasPrefix(string(e.Kind), "payment.") }

func (k EntryKind) event() EventKind {
	switch k {
	case EntryGrant, EntryVoid, EntryRollover, EntryRevoke:
		return EventKind("grant." + string(k))
	case EntryAdjust, EntrySubscription, EntryDebt, EntryRepay, EntryMerge:
		return EventKind("account." + string(k))
	default:
		return EventKind("reservation." + string(k))
	}
}
