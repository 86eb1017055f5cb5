package faultstore

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// Op is an operation of a store that can go wrong.
type Op string

// The operations.
const (
	Load Op = "load"
	Save Op = "save"
	Scan Op = "scan"
	Read Op = "read"
)

// Trouble is a way of going wrong.
type Trouble string

// The troubles. The empty one is none.
const (
	// Fail: the caller gets an error of Fault.Kind. Before a call it is not made and its transaction is over; after a call
	// it was made all the same.
	Fail Trouble = "fail"
	// Stall: nothing happens until Fault.Until is closed, the caller leaves, or the process dies.
	Stall Trouble = "stall"
	// Disconnect: the connection is lost. What had not been saved is lost with it, locks included. A save is then in doubt,
	// whether it had been made or not; anything else is unavailable.
	Disconnect Trouble = "disconnect"
	// Crash: the process dies here, see Store.Crash.
	Crash Trouble = "crash"
	// CommitLater, before a save: the connection is lost with the commit on its way. The save is in doubt at once; the
	// database keeps the locks and decides when Store.Settle is called, also after a crash of the process.
	CommitLater Trouble = "commit later"
	// LoseLock, after a load: the accounts' locks are gone, as they were measured to go when a shard moves, and only the
	// fence protects the save, which takes them again.
	LoseLock Trouble = "lose lock"
)

// Call is one call that may go wrong. A plan is asked about it twice: before it is made, and after, when it succeeded and
// its reply is on the way.
type Call struct {
	Op     Op
	After  bool
	Number int // which call of this operation it is, from 1, since Open or Reopen
}

// Fault is what happens to a call. The zero value is no fault.
type Fault struct {
	Trouble Trouble
	Kind    store.Kind      // of Fail
	Until   <-chan struct{} // of Stall; nil: for ever
}

// Plan says what happens to each call. It is asked in the goroutine that makes the call, may block there, and must be safe
// for concurrent use. The context ends when the caller leaves or the process dies.
type Plan func(ctx context.Context, call Call) Fault

// Rates are how many of a thousand calls meet each trouble, for Seeded. Those of one operation add up to at most 1000.
type Rates struct {
	// Fail is met before every operation, with a kind that the contract of stores allows there, but never with Fatal.
	Fail int
	// Stall is met before every operation, for StallFor.
	Stall    int
	StallFor time.Duration
	// Disconnect is met before and after every operation.
	Disconnect int
	// Crash is met before and after every operation.
	Crash int
	// CommitLater is met before saves.
	CommitLater int
	// SayUnavailable is met after saves: it was saved, and the caller is told that nothing happened. A store that does so
	// breaks its contract; one whose driver does so had better survive it.
	SayUnavailable int
	// LoseLock is met after loads.
	LoseLock int
}

// Seeded draws faults from the random numbers. The same numbers and calls give the same faults.
func Seeded(source rand.Source, rates Rates) Plan {
	var mu sync.Mutex
	random := rand.New(source)
	return func(_ context.Context, call Call) Fault {
		mu.Lock()
		defer mu.Unlock()
		return rates.draw(random, call)
	}
}

func (r *Rates) draw(random *rand.Rand, call Call) Fault {
	left := random.IntN(1000)
	hit := func(rate int) bool {
		left -= rate
		return left < 0
	}
	switch {
	case hit(r.Disconnect):
		return Fault{Trouble: Disconnect}
	case hit(r.Crash):
		return Fault{Trouble: Crash}
	case call.After && call.Op == Save && hit(r.SayUnavailable):
		return Fault{Trouble: Fail, Kind: store.Unavailable}
	case call.After && call.Op == Load && hit(r.LoseLock):
		return Fault{Trouble: LoseLock}
	case call.After:
		return Fault{}
	case call.Op == Save && hit(r.CommitLater):
		return Fault{Trouble: CommitLater}
	case hit(r.Fail):
		kinds := allowed[call.Op]
		return Fault{Trouble: Fail, Kind: kinds[random.IntN(len(kinds))]}
	case hit(r.Stall):
		passed := make(chan struct{})
		time.AfterFunc(r.StallFor, func() { close(passed) })
		return Fault{Trouble: Stall, Until: passed}
	}
	return Fault{}
}

// allowed are the kinds that an operation may fail with and leave nothing done, by the contract of package store.
// Rejected is our own fault and Fatal the end of an engine: tests ask for these by name.
var allowed = map[Op][]store.Kind{
	Load: {store.Conflict, store.Unavailable},
	Save: {store.Conflict, store.Unavailable, store.InDoubt},
	Scan: {store.Unavailable},
	Read: {store.Unavailable},
}

// demands are faults asked for by name; they come before the plan's.
type demands struct {
	mu     sync.Mutex
	queued []demand
	made   map[Op]int
}

type demand struct {
	op    Op
	after bool
	fault Fault
}

func (d *demands) number(op Op) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.made == nil {
		d.made = map[Op]int{}
	}
	d.made[op]++
	return d.made[op]
}

func (d *demands) add(wanted ...demand) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.queued = append(d.queued, wanted...)
}

func (d *demands) take(call Call) (Fault, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.queued, func(q demand) bool { return q.op == call.Op && q.after == call.After })
	if i < 0 {
		return Fault{}, false
	}
	fault := d.queued[i].fault
	d.queued = slices.Delete(d.queued, i, i+1)
	return fault, true
}
