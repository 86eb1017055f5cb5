package holdfast

import "time"

// EntryKind says what happened.
type EntryKind string

// The kinds of ledger entries.
const (
	EntryGrant        EntryKind = "grant"
	EntryReserve      EntryKind = "reserve"
	EntryCommit       EntryKind = "commit"
	EntryRelease      EntryKind = "release"
	EntryExpire       EntryKind = "expire"
	EntryLateCommit   EntryKind = "late_commit"
	EntryVoid         EntryKind = "void"
	EntryRefund       EntryKind = "refund"
	EntryAdjust       EntryKind = "adjust"
	EntrySubscription EntryKind = "subscription"
)

// Entry is one line of the append-only ledger. Corrections are new entries.
type Entry struct {
	No          int64
	Kind        EntryKind
	Unit        string // empty where no money moved
	Deltas      []Delta
	Reservation ID // zero: none
	Key         string
	Actor       string // who: an API key, the sweeper, the command line
	Reason      string // why, in words
	EffectiveAt time.Time
	RecordedAt  time.Time
	// What the account had in this unit after the entry.
	Available, Reserved Amount
}

// Delta is what an entry changed in one grant. Per grant, the deltas of all entries add up to its counters.
type Delta struct {
	Grant                           ID
	Granted, Reserved, Used, Voided Amount
}
