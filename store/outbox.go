package store

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Outbox is what the relay needs of a database: to be the only one who relays, to take what accounts have written, and
// to give it positions. Errors are *Error.
type Outbox interface {
	Traits() Traits
	// Lead takes the lease of the relay until the given time, or prolongs it; token is 0 where another holder has it. A
	// lease that changes hands gets another token.
	Lead(ctx context.Context, holder string, now, until time.Time) (token int64, err error)
	// Pending returns accounts behind the given one that have unpublished rows, in the order of their ids, with the first
	// of those rows in the order of writing. It takes no lock: Publish looks again.
	Pending(ctx context.Context, after holdfast.AccountID, accounts, events int) ([]Pending, error)
	// Publish moves rows out of the outbox, all of the events or none: each gets the next position of its project, in the
	// given order. An event that was published before, and told again since, is only removed. It is a Conflict where the
	// token leads no more, or a row is gone: another relay was here.
	Publish(ctx context.Context, token int64, now time.Time, events []Published) error
	// DueNotices are notices whose time has come, with their accounts, behind the given one in the order of accounts and slots:
	// those of work, or the others, of which there are more and which may wait. It takes no lock: SettleNotices looks again.
	DueNotices(ctx context.Context, of NoticesOf, at time.Time, after NoticeRef, limit int) ([]DueNotice, error)
	// SettleNotices puts notices into the outbox, behind what their accounts have told until then, puts them off or drops them,
	// all of them in one transaction. One that is not there any more is left as it is.
	SettleNotices(ctx context.Context, settled []SettledNotice) error
	// Published are the events of a project behind a position, in order. No event appears later at a position that was
	// passed: positions are given one transaction at a time.
	Published(ctx context.Context, project string, after int64, limit int) ([]Published, error)
	// PositionOf finds a published event.
	PositionOf(ctx context.Context, project string, account holdfast.AccountID, event holdfast.ID) (position int64, found bool, err error)
	// Positions are the last positions, by project.
	Positions(ctx context.Context) (map[string]int64, error)
	// Cursors are how far a sink has come, by project, and MoveCursor says it. Nothing moves backwards.
	Cursors(ctx context.Context, sink string) (map[string]int64, error)
	MoveCursor(ctx context.Context, sink, project string, position int64) error
	// Unpublished counts the rows that wait, and says when the oldest was written; zero: none waits.
	Unpublished(ctx context.Context) (count int64, oldest time.Time, err error)
	// Prune removes up to limit events, with their deliveries, and says how many: those published before old that no
	// endpoint has still to be given, and those published before ancient whatever waits for them.
	Prune(ctx context.Context, old, ancient time.Time, limit int) (pruned int64, err error)
}

// Pending is what one account has to tell.
type Pending struct {
	Account       holdfast.AccountID
	Project, Name string
	Events        []PendingEvent
}

// PendingEvent is an outbox row and what it points to.
type PendingEvent struct {
	Event   holdfast.Event
	Entry   *holdfast.Entry   // nil: it tells of none
	Payment *holdfast.Payment // nil: it is about none
}

// NoticesOf says which notices are meant.
type NoticesOf int

// Those about a reservation, which are due within seconds or minutes, and those about nothing but the account.
const (
	NoticesOfWork NoticesOf = iota
	NoticesOfAccounts
)

// NoticeRef is a notice's place.
type NoticeRef struct {
	Account holdfast.AccountID
	Slot    holdfast.ID
}

// DueNotice is a notice and the account as it is.
type DueNotice struct {
	Account holdfast.Account
	Notice  holdfast.Notice
}

// Ref is the notice's place.
func (n *DueNotice) Ref() NoticeRef { return NoticeRef{n.Account.ID, n.Notice.Slot} }

// SettledNotice says what is to become of a notice.
type SettledNotice struct {
	NoticeRef
	Event holdfast.ID // the same place may hold another notice by now
	Fate  holdfast.Fate
}

// Published is an event that has left its account.
type Published struct {
	Project  string
	Position int64 // counts from 1 in the project
	Account  holdfast.AccountID
	// Name is what the account is called when it is read: nothing personal is kept beside the account, so that erasing
	// it there is enough.
	Name        string
	ID          holdfast.ID
	Kind        holdfast.EventKind
	At          time.Time // when it happened
	PublishedAt time.Time
	Data        string // JSON: what the event tells beyond that
}

// Endpoints is what webhooks need of a database. Errors are *Error.
type Endpoints interface {
	// AddEndpoint stores a new one, up to most of a project; added is false where there are as many.
	AddEndpoint(ctx context.Context, e Endpoint, most int) (added bool, err error)
	// ChangeEndpoint writes what may change (address, kinds, paused, secrets, note) if the version is the stored one.
	ChangeEndpoint(ctx context.Context, e Endpoint) (changed bool, err error)
	// RemoveEndpoint forgets an endpoint and its deliveries.
	RemoveEndpoint(ctx context.Context, project, id string) (removed bool, err error)
	// Endpoints are those of a project, or of all for the empty one, in the order of their ids.
	Endpoints(ctx context.Context, project string) ([]Endpoint, error)
	// Dispatch turns up to limit published events behind the endpoint's cursor into deliveries, and moves the cursor. An
	// event that stands behind an unfinished one of the same account waits for it.
	Dispatch(ctx context.Context, endpoint string, now time.Time, limit int) (passed int, err error)
	// Due are deliveries of each endpoint whose time has come, the longest due first, with their events: at most one of an
	// account. Paused endpoints have none.
	Due(ctx context.Context, now time.Time, limits map[string]int) ([]Delivery, error)
	// Settle writes what attempts came to. One of a delivery that was settled or queued again meanwhile is ignored. Where a
	// delivery has ended, the next one of its account becomes due.
	Settle(ctx context.Context, endpoint string, now time.Time, attempts []Attempt) error
	// Deliveries lists an endpoint's, the newest event first, below a position where before is not 0.
	Deliveries(ctx context.Context, endpoint string, state DeliveryState, before int64, limit int) ([]Delivery, error)
	// Rewind queues every event from a position on again, at once and for as many as there are.
	Rewind(ctx context.Context, project, id string, from int64) (rewound bool, err error)
	// Revive queues up to limit dead deliveries again.
	Revive(ctx context.Context, endpoint string, now time.Time, limit int) (revived int64, err error)
}

// Endpoint is an address that a project's events are sent to.
type Endpoint struct {
	Project, ID  string
	URL          string
	Kinds        []string // of events, or their first word and ".*"; empty: all
	Paused       bool
	PausedReason string // empty: by hand
	Secrets      []string
	Note         string
	CreatedAt    time.Time
	Cursor       int64 // the position up to which events have become deliveries; never changed by ChangeEndpoint
	Epoch        int64 // how often it was rewound
	Version      int64 // of what may change
}

// DeliveryState says where a delivery is in its life.
type DeliveryState string

// The states of deliveries.
const (
	DeliveryWaiting   DeliveryState = "waiting" // for an earlier event of its account
	DeliveryPending   DeliveryState = "pending" // due, now or at its next attempt
	DeliveryDelivered DeliveryState = "delivered"
	DeliveryDead      DeliveryState = "dead" // given up; kept, and can be replayed
)

// Delivery is one event for one endpoint.
type Delivery struct {
	Endpoint string
	Event    Published
	State    DeliveryState
	Epoch    int64 // of the endpoint when it was queued
	Attempts int
	NextAt   time.Time // of the next attempt, where it is pending
	FirstAt  time.Time // of the first attempt; zero: there was none
	LastAt   time.Time // of the last one
	Status   int       // of the last answer; 0: there was none
	Problem  string    // what went wrong the last time, in one word; empty: nothing
}

// Attempt is what one attempt of a delivery came to.
type Attempt struct {
	Position int64
	// Epoch and Attempts are those of the delivery that was attempted.
	Epoch    int64
	Attempts int
	State    DeliveryState // pending, delivered or dead
	NextAt   time.Time     // where it is pending
	At       time.Time
	Status   int
	Problem  string
}

// Wants reports whether the endpoint is to be told of events of a kind.
func (e *Endpoint) Wants(kind holdfast.EventKind) bool { return WantsKind(e.Kinds, kind) }

// WantsKind reports whether a list of kinds, as an endpoint has it, contains a kind.
func WantsKind(kinds []string, kind holdfast.EventKind) bool {
	first, _, _ := strings.Cut(string(kind), ".")
	return len(kinds) == 0 || slices.Contains(kinds, string(kind)) || slices.Contains(kinds, first+".*")
}

// RelayLease names the lease of the relay.
const RelayLease = "relay"
