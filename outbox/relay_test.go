package outbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// published are all events of the project, as a consumer with a cursor reads them.
func published(t *testing.T, s Store) (events []Event) {
	t.Helper()
	var cursor int64
	for {
		page, next, err := desk(s).Events(t.Context(), project, cursor, 7)
		must(t, err)
		if len(page) == 0 {
			return events
		}
		events, cursor = append(events, page...), next
	}
}

func TestEventsAreToldInTheOrderInWhichTheirAccountWroteThem(t *testing.T) {
	onEachStore(t, func(t *testing.T, s database) {
		e, m := newTeller(t, s), newMemo()
		relaying(t, s, func(o *Options) { o.Sinks = map[string]Sink{"test": m} })
		var all sync.WaitGroup
		for n := range 5 {
			all.Go(func() {
				own := &teller{t: t, Engine: e.Engine}
				own.tell(fmt.Sprint("account", n), 12)
			})
		}
		all.Wait()
		events := m.until(t, 60)
		inOrder(t, events)
		for i, e := range events {
			if e.Position != int64(i+1) {
				t.Fatalf("event %d has position %d", i+1, e.Position)
			}
		}
	})
}

func TestAnEventTellsWhatItIsAbout(t *testing.T) {
	onEachStore(t, func(t *testing.T, s database) {
		e, m := newTeller(t, s), newMemo()
		e.tell("ann", 1)
		reserved := e.submit("ann", holdfast.Reserve{Feature: "draw"})
		e.submit("ann", holdfast.Commit{ReservationID: reserved.Reservation.ID})
		relaying(t, s, func(o *Options) { o.Sinks = map[string]Sink{"test": m} })
		events := m.until(t, 3)
		committed := events[2]
		account := holdfast.AccountIDOf(project, "ann")
		wanted := holdfast.ReservationRef.Encode(account, reserved.Reservation.ID)
		grant := events[0].Data.Entry.Deltas[0].Grant
		if committed.Type != "reservation.commit" || committed.Account != "ann" || committed.Project != project || committed.Data.Reservation == nil ||
			*committed.Data.Reservation != wanted || committed.Data.Payment != nil || committed.Data.Figure != nil {
			t.Errorf("%+v", committed)
		}
		entry := committed.Data.Entry
		if entry == nil || entry.No != 3 || entry.Unit != "credit" || len(entry.Deltas) != 1 || entry.Deltas[0] != (EventDelta{Grant: grant, Reserved: -1, Used: 1}) ||
			entry.Balance != (EventBalance{}) {
			t.Errorf("%+v", entry)
		}
		if _, _, err := holdfast.EventRef.Parse(committed.ID); err != nil {
			t.Errorf("the id %s: %v", committed.ID, err)
		}
	})
}

func TestTwoRelaysAtOnceNeitherDoubleNorSkipPositions(t *testing.T) {
	onEachStore(t, func(t *testing.T, s database) {
		e := newTeller(t, s)
		for n := range 6 {
			e.tell(fmt.Sprint("account", n), 4)
		}
		// Each believes that it leads: the lease is taken from under the other all the time.
		var relays sync.WaitGroup
		var token atomic.Int64
		for n := range 2 {
			r := New(s, Options{})
			relays.Go(func() {
				for turn := range 40 {
					now := time.Now().Add(time.Duration(turn) * time.Hour)
					if taken, err := s.Lead(t.Context(), fmt.Sprint(n), now, now); err != nil {
						t.Error(err)
					} else if taken != 0 {
						token.Store(taken)
					}
					if _, err := r.pass(t.Context(), token.Load()); err != nil && store.KindOf(err) != store.Conflict {
						t.Error(err)
					}
				}
			})
		}
		relays.Wait()
		relaying(t, s)
		eventually(t, "all published", func() bool {
			left, _, err := s.Unpublished(t.Context())
			must(t, err)
			return left == 0
		})
		events := published(t, s)
		if len(events) != 24 {
			t.Fatalf("%d events", len(events))
		}
		inOrder(t, events)
	})
}

func TestOneRelayOfTwoLeadsAndTheOtherTakesOver(t *testing.T) {
	onEachStore(t, func(t *testing.T, s database) {
		e, first, second := newTeller(t, s), newMemo(), newMemo()
		stop := relaying(t, s, func(o *Options) { o.Sinks = map[string]Sink{"test": first} })
		e.tell("ann", 3)
		first.until(t, 3)
		relaying(t, s, func(o *Options) { o.Sinks = map[string]Sink{"test": second} })
		e.tell("bob", 3)
		first.until(t, 6)
		stop()
		e.tell("carl", 3)
		second.until(t, 3)
		if len(first.all()) != 6 || len(second.all()) != 3 {
			t.Errorf("the first was given %d and the second %d", len(first.all()), len(second.all()))
		}
	})
}

func TestASinkThatFailsGetsTheSameEventsAgainAndHoldsUpNoOther(t *testing.T) {
	s := newMemoryStore(t)
	e, m, other := newTeller(t, s), newMemo(), newMemo()
	failed, once := make(chan struct{}), atomic.Bool{}
	sink := SinkFunc(func(ctx context.Context, events []Event) error {
		if once.CompareAndSwap(false, true) {
			close(failed)
			return errors.New("away")
		}
		return m.Publish(ctx, events)
	})
	c := &clock{}
	relaying(t, s, func(o *Options) { o.Sinks, o.Now = map[string]Sink{"failing": sink, "other": other}, c.now })
	e.tell("ann", 3)
	other.until(t, 3)
	<-failed
	if len(m.all()) != 0 {
		t.Error("the sink was tried again at once")
	}
	eventually(t, "the events came again", func() bool {
		c.pass(time.Second)
		return len(m.distinct()) == 3
	})
	inOrder(t, m.distinct())
	if len(other.all()) != 3 {
		t.Errorf("the other sink was given %d", len(other.all()))
	}
}

func TestAnAccountWhoseEventsAreRejectedHoldsUpNoOther(t *testing.T) {
	s := newMemoryStore(t)
	e, m := newTeller(t, s), newMemo()
	e.tell("ann", 1)
	e.tell("bad", 1)
	e.tell("carl", 1)
	bad := holdfast.AccountIDOf(project, "bad")
	relaying(t, rejecting{s, bad}, func(o *Options) { o.Sinks = map[string]Sink{"test": m} })
	for _, event := range m.until(t, 2) {
		if event.Account == "bad" {
			t.Error("what was rejected was told")
		}
	}
}

type rejecting struct {
	Store
	account holdfast.AccountID
}

func (r rejecting) Publish(ctx context.Context, token int64, now time.Time, events []store.Published) error {
	for _, e := range events {
		if e.Account == r.account {
			return &store.Error{Kind: store.Rejected, Op: "publish events", Err: errors.New("test")}
		}
	}
	return r.Store.Publish(ctx, token, now, events)
}

// faulty is a store that fails before or after it has done what it was asked, at random.
type faulty struct {
	Store
	mu     sync.Mutex
	random *rand.Rand
}

func (f *faulty) fault() (before, after error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.random.IntN(8) {
	case 0:
		return &store.Error{Kind: store.Unavailable, Op: "test", Err: errors.New("down")}, nil
	case 1:
		return nil, &store.Error{Kind: store.InDoubt, Op: "test", Err: errors.New("the connection broke")}
	}
	return nil, nil
}

func (f *faulty) around(do func() error) error {
	before, after := f.fault()
	if before != nil {
		return before
	}
	return errors.Join(after, do())
}

func (f *faulty) Publish(ctx context.Context, token int64, now time.Time, events []store.Published) error {
	return f.around(func() error { return f.Store.Publish(ctx, token, now, events) })
}

func (f *faulty) Pending(ctx context.Context, after holdfast.AccountID, accounts, events int) (found []store.Pending, err error) {
	err = f.around(func() error {
		found, err = f.Store.Pending(ctx, after, accounts, events)
		return err
	})
	return found, err
}

func (f *faulty) Dispatch(ctx context.Context, id string, now time.Time, limit int) (passed int, err error) {
	err = f.around(func() error {
		passed, err = f.Store.Dispatch(ctx, id, now, limit)
		return err
	})
	return passed, err
}

func (f *faulty) Settle(ctx context.Context, id string, now time.Time, attempts []store.Attempt) error {
	return f.around(func() error { return f.Store.Settle(ctx, id, now, attempts) })
}

func (f *faulty) MoveCursor(ctx context.Context, sink, project string, position int64) error {
	return f.around(func() error { return f.Store.MoveCursor(ctx, sink, project, position) })
}

// clock can be moved.
type clock struct{ offset atomic.Int64 }

func (c *clock) now() time.Time       { return time.Now().Add(time.Duration(c.offset.Load())) }
func (c *clock) pass(d time.Duration) { c.offset.Add(int64(d)) }

// Every committed event is published exactly once and delivered at least once, in the order of its account, whatever
// fails: the store before and after it has worked, the endpoint before and after it has taken an event, and the relay,
// which is stopped and replaced all the time.
func TestEveryEventIsPublishedOnceAndDeliveredWhateverFails(t *testing.T) {
	onEachStore(t, func(t *testing.T, s database) {
		const accounts, each = 4, 6
		e, delivered, sunk := newTeller(t, s), newMemo(), newMemo()
		random := rand.New(rand.NewPCG(1, 2))
		var mu sync.Mutex
		url := receiver(t, delivered, func(w http.ResponseWriter, e Event) bool {
			mu.Lock()
			defer mu.Unlock()
			switch random.IntN(6) {
			case 0:
				w.WriteHeader(http.StatusServiceUnavailable)
				return false
			case 1: // it has the event, and its answer is lost
				delivered.add(e)
				panic(http.ErrAbortHandler)
			}
			return true
		})
		subscribe(t, s, url)
		c := &clock{}
		stop, turns := func() {}, 0
		restart := func() {
			stop()
			turns++
			stop = relaying(t, &faulty{Store: s, random: rand.New(rand.NewPCG(3, uint64(turns)))}, func(o *Options) {
				o.Now, o.Sinks = c.now, map[string]Sink{"test": sunk}
			})
		}
		for n := range accounts {
			restart()
			e.tell(fmt.Sprint("account", n), each)
			c.pass(time.Minute)
		}
		restart()
		eventually(t, "all were delivered", func() bool {
			c.pass(30 * time.Second) // so that retries come
			return len(delivered.distinct()) == accounts*each && len(sunk.distinct()) == accounts*each
		})
		stop()
		inOrder(t, delivered.distinct())
		inOrder(t, sunk.distinct())
		events, ids := published(t, s), map[string]bool{}
		for _, e := range events {
			ids[e.ID] = true
		}
		if len(events) != accounts*each || len(ids) != accounts*each {
			t.Errorf("%d events were published under %d ids, wanted %d", len(events), len(ids), accounts*each)
		}
		inOrder(t, events)
	})
}
