// Package storetest is the meaning of a store, as tests.
//
//	the store's own test ── Exercise(t, open) ──► every promise of package store, one test each, on a fresh store
//	                     └─ ExerciseLookups   ──► what the edges keep beside the accounts
//
// Tests of stores call it, and nothing else does. A store that passes can be put under the engine; what a store does
// beyond this (files, locks, settings, query plans) it tests by itself.
//
// What it never does: look behind the contract, but for the two doors that Opened gives it, or depend on what time it is.
package storetest

import (
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Opened is a store to be tested, fresh and empty, and closed by the test's cleanup.
type Opened struct {
	Store store.Store
	// Events lists the account's outbox rows in the order in which they were written: the contract has no way to read them.
	Events func(t *testing.T, account holdfast.AccountID) []holdfast.Event
	// Skips says that several transactions of this store can hold accounts at once, so that one skips what another holds.
	Skips bool
	// Reopen closes the store and opens what it left behind; nil where nothing outlives it.
	Reopen func(t *testing.T) store.Store
	// Troubles are the accidents that this store can be made to have. They leave it usable again.
	Troubles []Trouble
	// Replace takes the data away from under the store, for good; nil where that cannot happen.
	Replace func(t *testing.T)
}

// Trouble is an accident: what it is, what it strikes, and which kind of error it must be told as.
type Trouble struct {
	Name string
	When Moment
	Kind store.Kind
	// Begin is called before a transaction, makes its Load or Save fail, and returns what mends it.
	Begin func(t *testing.T) (mend func())
}

// Moment is what a trouble strikes.
type Moment int

// The moments.
const (
	AtLoad Moment = iota
	AtSave        // of a transaction whose Load went well
)

// Exercise proves the contract. Each test opens a store of its own.
func Exercise(t *testing.T, open func(t *testing.T) Opened) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, o Opened)
	}{
		{"an account that nobody stored is new and has version zero", unknownAccount},
		{"every field of every row comes back as it was written", roundTrip},
		{"the usual rows come back as they were written, and lose what they no longer have", usualRows},
		{"what is loaded belongs to the caller alone", ownCopies},
		{"decisions load open grants only", openGrants},
		{"a reservation is loaded by its id, with grants that have closed", namedReservations},
		{"overdue means that expires_at has come", overdueInterval},
		{"overdue reservations are loaded up to the bound, the longest overdue first", overdueBound},
		{"answers are loaded by key, and a new one takes the place of the old", answersByKey},
		{"a payment is loaded with what it bought, open or not", payments},
		{"an event that was told before is dropped", eventsOnce},
		{"what was frozen at its making is not written again", frozen},
		{"what is personal about an account is erased", erased},
		{"an account that changed since it was read cannot be saved", fence},
		{"an account that appeared since it was read cannot be inserted", fenceOfNew},
		{"an entry's number is given once", entryNumber},
		{"a save of several accounts is all or nothing", allOrNothing},
		{"content that breaks a rule is rejected and leaves no trace", rejectedContent},
		{"a transaction is used once, for what it has loaded", misuse},
		{"an aborted transaction writes nothing and lets the next one in", abort},
		{"a transaction waits for the one before it", exclusion},
		{"an account that another transaction holds is skipped or waited for", held},
		{"a new account that another transaction is making is skipped or waited for", heldNew},
		{"an account that was only looked at is not stored", lookedAt},
		{"a transaction spans no more accounts than the traits allow", tooManyAccounts},
		{"an ended context stops a transaction and writes nothing", endedContext},
		{"many writers of one account lose no update", noLostUpdate},
		{"the scan pages over accounts with overdue work, and forgets what was settled", scan},
		{"claimable jobs are found by queue, the oldest first, until their reservations end", claimableJobs},
		{"jobs whose last attempt was lost are found", lostJobs},
		{"a job that breaks a rule is rejected and leaves no trace", rejectedJobs},
		{"a page belongs to its project", pageOfProject},
		{"pages show the newest first, each row once, while rows are added", paging},
		{"reservations are found by id, state and key", filters},
		{"a state is read as a decision would see it", readState},
		{"a cursor that no page gave out is an error, and never a crash", hostileCursors},
		{"a page that nobody may ask for is an error", wrongQueries},
		{"a dump is one moment while writing goes on, and verifies", dump},
		{"a dump ends where its visitor ends it", dumpEnds},
		{"everything is there after the store was opened again", reopening},
		{"a closed store is unavailable", closedStore},
		{"an accident is told as what it is, and leaves all or nothing", troubles},
		{"a store whose data was taken away says so", replaced},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}
