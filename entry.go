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
	EntryRollover     EntryKind = "rollover"
	EntryRefund       EntryKind = "refund"
	EntryRevoke       EntryKind = "revoke"
	EntryMerge        EntryKind = "merge"
	EntryAdjust       EntryKind = "adjust"
	EntryDebt         EntryKind = "debt"
	EntryRepay        EntryKind = "repay"
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
	Debt        Amount // what the entry added to the account's debt in this unit; negative: repaid or forgiven
	// What the account had, and owed, in this unit after the entry.
	Available, Reserved, Owed Amount
}

// Delta is what an entry changed in one grant. Per grant, the deltas of all entries add up to its counters.
type Delta struct {
	Grant                           ID
	Granted, Reserved, Used, Voided Amount
}
