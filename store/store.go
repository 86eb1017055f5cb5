// Package store is the contract between the engine and a database.
//
//	engine ── Begin ─► Tx ── Load ─► states ── (core decides) ── Save ─► committed
//	                     │                                   └── error: see errors.go
//	                     └── Abort
//
// The engine calls it; packages memory and sqlite implement it; package storetest is its meaning, as tests. A store
// holds no business rule: it loads what is asked for, writes what it is told, whole or not at all, and says truly which
// of the two happened. It never decides, and what Read and Scan return never feeds a decision.
//
// Rows come back as they were written, but for three things: times and durations are in microseconds, times are in UTC,
// and empty lists and maps are nil. Copies belong to whoever holds them.
package store

import (
	"context"
	"iter"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Store is safe for concurrent use. All errors are *Error (see errors.go).
type Store interface {
	Traits() Traits
	// Begin starts a transaction without touching the database.
	Begin(ctx context.Context) (Tx, error)
	// Scan returns accounts that have overdue reservations: hints, read without a lock and to be checked under it.
	Scan(ctx context.Context, due Due) ([]holdfast.AccountID, error)
	// Read answers one page of a list or one account's state, from one snapshot. What is not there, or belongs to another
	// project, is an empty page. A cursor that no page of this list gave out is Rejected with ErrCursor as its cause, the
	// one such error that is the caller's fault; a limit out of range and an unknown kind are Rejected too, and ours.
	Read(ctx context.Context, query Query) (Page, error)
	// Dump visits every account, in order of ids, all in one snapshot. The record is valid during the visit only. An error
	// of visit ends the dump and is returned as it is.
	Dump(ctx context.Context, visit func(Record) error) error
	Close() error
}

// Tx is one transaction: at most one Load, then one Save or Abort. It belongs to one goroutine.
type Tx interface {
	// Load locks the wanted accounts and reads their states: first the lock, then the reading. Wants name distinct
	// accounts. The states come in the order of the wants; an account that is not stored has Version 0, and the state of
	// one that was skipped (Want.Wait) is nil. Grants are in the
	// order of CreatedAt and id, so that the same state leads to the same decision on every store.
	// Errors: Conflict, Unavailable, Fatal; Rejected for a second Load.
	Load(ctx context.Context, wants []Want) ([]*holdfast.State, error)
	// Save writes the changes of loaded accounts, fenced by their versions, and commits. Nothing or all of it happens, and
	// the transaction has ended. Of stored rows those may change that were loaded, and of these only what may change is
	// written: of an account not project and CreatedAt, and its name only with Erase; of a grant the counters, EndsAt and
	// Open; of a reservation what its life changes, growth included, and nothing else that was decided at the reserve.
	// Changes.Erase removes the metadata of all reservations of the account, stored or just written, and what
	// Outcome.ForgetPerson removes from recorded answers.
	// Errors: Conflict (nothing happened, decide again), InDoubt (unknown what happened), Rejected (nothing happened, and
	// unchanged it never will), Unavailable (nothing happened), Fatal.
	Save(ctx context.Context, changes []holdfast.Changes) error
	// Abort ends the transaction with nothing written. After Save it does nothing.
	Abort(ctx context.Context) error
}

// Traits is what the engine must know of a store.
type Traits struct {
	// MaxAccounts is how many accounts one transaction may span; 0: any number.
	MaxAccounts int
	// Concurrent says that transactions of different accounts do not wait for each other.
	Concurrent bool
}

// Want is what to load of one account: the account row and its open grants always.
type Want struct {
	Account holdfast.AccountID
	// Project and Name are known where the caller named the account. The state of an account that is not stored yet
	// is holdfast.NewState of them.
	Project, Name string
	// Create says that Save may insert the account.
	Create bool
	// Wait says to wait for the account's lock, for a bounded time. Without it, an account that another transaction holds
	// may be skipped, so that it does not delay the others of a batch.
	Wait bool
	// Reservations are loaded with all grants they name, open or not. Unknown ones are left out.
	Reservations []holdfast.ID
	// Payments are loaded with all grants that they bought, open or not. Unknown ones are left out.
	Payments []holdfast.ID
	// Keys are those whose recorded answers are wanted.
	Keys []string
	// OverdueAt loads live reservations with ExpiresAt at or before it, or at or before the account's DecidedAt where that
	// is later (no decision is earlier than the one before), the longest overdue first, up to holdfast.MaxOverdue, with
	// their grants. Zero: none.
	OverdueAt time.Time
}

// Due asks for accounts with live reservations whose ExpiresAt is at or before At.
type Due struct {
	At time.Time
	// Transfers asks for accounts with transfers that have not arrived, instead.
	Transfers bool
	After     holdfast.AccountID // continue behind this one; zero: from the first
	Limit     int
}

// Query asks for one page of one account, which must belong to Project.
type Query struct {
	Kind    QueryKind
	Project string
	Account holdfast.AccountID
	// Reservation asks the list of reservations for this one; zero: any.
	Reservation holdfast.ID
	// State and Key filter the list of reservations; empty: any.
	State holdfast.ReservationState
	Key   string
	// Cursor is Page.Next of the page before; empty: the first page.
	Cursor string
	Limit  int // 1 to holdfast.MaxPage
}

// QueryKind says what Read reads.
type QueryKind string

// The kinds of queries, and the order of their pages.
const (
	QueryState        QueryKind = "state"        // Page.State: account and open grants, as a decision would see them; nil where the account is not stored
	QueryReservations QueryKind = "reservations" // newest first: by id, which begins with the time of its command
	QueryGrants       QueryKind = "grants"       // open and closed, newest first: by CreatedAt, then id
	QueryEntries      QueryKind = "entries"      // newest first: by number
)

// Page is what Read answers. Next is empty on the last page.
type Page struct {
	State        *holdfast.State
	Reservations []*holdfast.Reservation
	Grants       []*holdfast.Grant
	Entries      []holdfast.Entry
	Next         string
}

// Record is everything stored of one account: all grants, then reservations in any order, then entries by number.
// The sequences may be ranged over once, in this order.
type Record struct {
	Account      holdfast.Account
	Grants       []*holdfast.Grant
	Reservations iter.Seq2[*holdfast.Reservation, error]
	Entries      iter.Seq2[holdfast.Entry, error]
}
