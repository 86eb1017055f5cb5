package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// OutboxStore is a store with what the relay and the webhooks need.
type OutboxStore interface {
	store.Store
	store.Outbox
	store.Endpoints
}

// ExerciseOutbox proves what the relay and the webhooks rely on. Each test opens a store of its own.
func ExerciseOutbox(t *testing.T, open func(t *testing.T) OutboxStore) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s OutboxStore)
	}{
		{"one holder leads at a time, and a lease that changes hands gets another token", leading},
		{"notices that are due are found, by account and slot", notices},
		{"a notice is told once, behind what was told before, or put off, or dropped", settledNotices},
		{"a notice that is withdrawn is told no more, and another takes its place", withdrawnNotices},
		{"a notice that is due at the moment at which it is withdrawn is not told", racingNotices},
		{"what is unpublished comes by account, in the order of writing, with what it tells of", pendingEvents},
		{"published events get the positions of their project, once", publishing},
		{"a relay that leads no more publishes nothing", fencedRelay},
		{"an event that is told again after its publication is only removed", toldAgain},
		{"the name of an erased account is in none of its events", erasedName},
		{"several relays at once give every event one position, and a reader with a cursor misses none", relaysAtOnce},
		{"a sink's cursor moves forwards only", sinkCursors},
		{"an endpoint is added up to the bound, changed by its version and removed", endpoints},
		{"deliveries of an account come one after the other, those of others beside them", deliveriesInOrder},
		{"an endpoint gets the kinds it wants", wantedKinds},
		{"a paused endpoint keeps its queue", pausedEndpoint},
		{"an attempt that was overtaken settles nothing", overtakenAttempt},
		{"a rewound endpoint gets everything again from there, in order", rewinding},
		{"dead deliveries are kept, let the next ones pass and are revived", deadDeliveries},
		{"old events are pruned, and those that somebody waits for only when they are ancient", pruning},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func leading(t *testing.T, s OutboxStore) {
	lead := func(holder string, now, until int, wanted int64) {
		t.Helper()
		token, err := s.Lead(t.Context(), holder, at(now), at(until))
		must(t, err)
		same(t, fmt.Sprintf("the token of %s at %d", holder, now), token, wanted)
	}
	lead("a", 0, 10, 1)
	lead("b", 5, 15, 0)
	lead("a", 9, 20, 1)
	lead("b", 19, 30, 0)
	lead("b", 20, 30, 2)
	lead("a", 21, 40, 0)
	lead("b", 21, 21, 2) // gives it back
	lead("a", 21, 40, 3)
}

// told is an account with events, whose ids count from first.
func told(name string, first, count int) holdfast.Changes {
	c := fresh(name)
	for n := range count {
		c.Events = append(c.Events, event(first+n))
	}
	return c
}

func pendingEvents(t *testing.T, s OutboxStore) {
	written := everything("ann")
	written.Events[0].ID, written.Events[1].ID = written.Events[1].ID, written.Events[0].ID // not in the order of ids
	must(t, save(t, s, written, fresh("silent"), told("carl", 30, 3)))
	all, err := s.Pending(t.Context(), holdfast.AccountID{}, 10, 2)
	must(t, err)
	found := map[string]store.Pending{}
	for _, p := range all {
		found[p.Name] = p
	}
	same(t, "accounts with something to tell", len(all), 2)
	full := store.Pending{Account: accountID("ann"), Project: project, Name: "ann", Events: []store.PendingEvent{
		{Event: written.Events[0], Entry: &written.Entries[0]}, {Event: written.Events[1]},
	}}
	same(t, "what ann tells", found["ann"], full)
	same(t, "how much of carl fits", len(found["carl"].Events), 2)

	whole, err := s.Pending(t.Context(), holdfast.AccountID{}, 1, 10)
	must(t, err)
	behind, err := s.Pending(t.Context(), whole[0].Account, 10, 10)
	must(t, err)
	same(t, "pages", []holdfast.AccountID{whole[0].Account, behind[0].Account}, []holdfast.AccountID{all[0].Account, all[1].Account})
	for _, p := range append(whole, behind...) {
		if p.Name == "ann" {
			same(t, "the payment", p.Events[2], store.PendingEvent{Event: written.Events[2], Payment: written.Payments[0]})
		}
	}
	count, oldest, err := s.Unpublished(t.Context())
	must(t, err)
	same(t, "unpublished", count, 6)
	same(t, "the oldest", oldest, written.Events[0].At)
}

// published is an event of an account as a relay hands it over, and as it is read.
func published(account string, n int) store.Published {
	return store.Published{
		Project: project, Account: accountID(account), ID: id(n), Kind: holdfast.EventOverrun, At: at(n), Data: fmt.Sprintf(`{"n":%d}`, n),
	}
}

func asRead(e store.Published, name string, position int64, now time.Time) store.Published {
	e.Name, e.Position, e.PublishedAt = name, position, now
	return e
}

// publish writes accounts and publishes their events, in the order of the arguments.
func publish(t *testing.T, s OutboxStore, now time.Time, accounts ...holdfast.Changes) {
	t.Helper()
	must(t, save(t, s, accounts...))
	token, err := s.Lead(t.Context(), "test", now, now.Add(time.Minute))
	must(t, err)
	for _, c := range accounts {
		var events []store.Published
		for _, e := range c.Events {
			events = append(events, store.Published{Project: project, Account: c.Account.ID, ID: e.ID, Kind: e.Kind, At: e.At, Data: "{}"})
		}
		must(t, s.Publish(t.Context(), token, now, events))
	}
}

func publishing(t *testing.T, s OutboxStore) {
	other := told("zoe", 1, 1)
	other.Account.Project, other.Account.ID = "club", holdfast.AccountIDOf("club", "zoe")
	must(t, save(t, s, told("ann", 1, 3), told("bob", 1, 2), other))
	token, err := s.Lead(t.Context(), "a", at(0), at(60))
	must(t, err)
	must(t, s.Publish(t.Context(), token, at(100), []store.Published{published("ann", 1), published("ann", 2)}))
	clubs := published("zoe", 1)
	clubs.Project, clubs.Account = "club", other.Account.ID
	must(t, s.Publish(t.Context(), token, at(101), []store.Published{published("bob", 1)}))
	must(t, s.Publish(t.Context(), token, at(101), []store.Published{clubs}))
	kind(t, s.Publish(t.Context(), token, at(102), []store.Published{published("ann", 3), published("ann", 2)}), store.Conflict)
	kind(t, s.Publish(t.Context(), token, at(102), []store.Published{published("ann", 9)}), store.Conflict)
	must(t, s.Publish(t.Context(), token, at(103), nil))

	events, err := s.Published(t.Context(), project, 0, 10)
	must(t, err)
	same(t, "published", events, []store.Published{
		asRead(published("ann", 1), "ann", 1, at(100)), asRead(published("ann", 2), "ann", 2, at(100)), asRead(published("bob", 1), "bob", 3, at(101)),
	})
	events, err = s.Published(t.Context(), project, 1, 1)
	must(t, err)
	same(t, "one behind the first", events, []store.Published{asRead(published("ann", 2), "ann", 2, at(100))})
	events, err = s.Published(t.Context(), "club", 0, 10)
	must(t, err)
	same(t, "the other project's", events, []store.Published{asRead(clubs, "zoe", 1, at(101))})
	last, err := s.Positions(t.Context())
	must(t, err)
	same(t, "positions", last, map[string]int64{project: 3, "club": 1})
	position, found, err := s.PositionOf(t.Context(), project, accountID("bob"), id(1))
	must(t, err)
	same(t, "where bob's is", []any{position, found}, []any{int64(3), true})
	_, found, err = s.PositionOf(t.Context(), "club", accountID("bob"), id(1))
	must(t, err)
	same(t, "found in another project", found, false)
	count, _, err := s.Unpublished(t.Context())
	must(t, err)
	same(t, "left", count, 2) // ann's third and bob's second
}

func fencedRelay(t *testing.T, s OutboxStore) {
	must(t, save(t, s, told("ann", 1, 1)))
	old, err := s.Lead(t.Context(), "a", at(0), at(10))
	must(t, err)
	token, err := s.Lead(t.Context(), "b", at(20), at(30))
	must(t, err)
	kind(t, s.Publish(t.Context(), old, at(21), []store.Published{published("ann", 1)}), store.Conflict)
	must(t, s.Publish(t.Context(), token, at(21), []store.Published{published("ann", 1)}))
}

func toldAgain(t *testing.T, s OutboxStore) {
	publish(t, s, at(50), told("ann", 1, 1))
	again := told("ann", 1, 2)
	again.Account.Version = 1
	publish(t, s, at(51), again)
	events, err := s.Published(t.Context(), project, 0, 10)
	must(t, err)
	var got []string
	for _, e := range events {
		got = append(got, fmt.Sprint(e.Position, " ", e.ID == id(int(e.Position))))
	}
	same(t, "positions", got, []string{"1 true", "2 true"})
	count, _, err := s.Unpublished(t.Context())
	must(t, err)
	same(t, "left", count, 0)
}

func erasedName(t *testing.T, s OutboxStore) {
	publish(t, s, at(50), told("ann", 1, 1))
	gone := fresh("ann")
	gone.Account.Version, gone.Account.Name, gone.Erase = 1, "deleted", true
	must(t, save(t, s, gone))
	events, err := s.Published(t.Context(), project, 0, 10)
	must(t, err)
	same(t, "the name", events[0].Name, "deleted")
}

func relaysAtOnce(t *testing.T, s OutboxStore) {
	const accounts, each = 6, 5
	for n := range accounts {
		must(t, save(t, s, told(fmt.Sprint("account", n), 1, each)))
	}
	token, err := s.Lead(t.Context(), "a", at(0), at(60))
	must(t, err)
	stop, seen := make(chan struct{}), []store.Published{}
	var reader, relays sync.WaitGroup
	reader.Go(func() {
		var cursor int64
		for last := false; ; {
			events, err := s.Published(t.Context(), project, cursor, 4)
			if err != nil {
				t.Error(err)
				return
			}
			seen = append(seen, events...)
			if len(events) > 0 {
				cursor = events[len(events)-1].Position
				continue
			}
			if last {
				return
			}
			select {
			case <-stop:
				last = true
			default:
			}
		}
	})
	for range 3 {
		relays.Go(func() {
			for {
				found, err := s.Pending(t.Context(), holdfast.AccountID{}, accounts, 2)
				if err != nil {
					t.Error(err)
					return
				}
				if len(found) == 0 {
					return
				}
				for _, p := range found {
					var events []store.Published
					for _, e := range p.Events {
						events = append(events, store.Published{Project: project, Account: p.Account, ID: e.Event.ID, Kind: e.Event.Kind, At: e.Event.At, Data: "{}"})
					}
					if err := s.Publish(t.Context(), token, at(1), events); err != nil && store.KindOf(err) != store.Conflict {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	relays.Wait()
	close(stop)
	reader.Wait()
	if len(seen) != accounts*each {
		t.Fatalf("the reader saw %d events, wanted %d", len(seen), accounts*each)
	}
	next := map[holdfast.AccountID]int{}
	for i, e := range seen {
		next[e.Account]++
		if e.Position != int64(i+1) || e.ID != id(next[e.Account]) {
			t.Fatalf("event %d has position %d and is number %d of its account", i, e.Position, next[e.Account])
		}
	}
}

func sinkCursors(t *testing.T, s OutboxStore) {
	for _, step := range []struct{ to, wanted int64 }{{5, 5}, {9, 9}, {3, 9}} {
		must(t, s.MoveCursor(t.Context(), "nats", project, step.to))
		cursors, err := s.Cursors(t.Context(), "nats")
		must(t, err)
		same(t, "the cursor", cursors, map[string]int64{project: step.wanted})
	}
	cursors, err := s.Cursors(t.Context(), "redis")
	must(t, err)
	same(t, "another sink's", len(cursors), 0)
}

func endpoint(name string) store.Endpoint {
	return store.Endpoint{
		Project: project, ID: name, URL: "https://example.com/" + name, Secrets: []string{"whsec_a"}, CreatedAt: at(1),
	}
}

// add stores an endpoint.
func add(t *testing.T, s OutboxStore, e store.Endpoint) {
	t.Helper()
	added, err := s.AddEndpoint(t.Context(), e, 10)
	must(t, err)
	same(t, "added", added, true)
}

func endpoints(t *testing.T, s OutboxStore) {
	list := func(of string, wanted ...store.Endpoint) {
		t.Helper()
		got, err := s.Endpoints(t.Context(), of)
		must(t, err)
		same(t, "the endpoints of "+of, got, wanted)
	}
	list("")
	a, b, club := endpoint("a"), endpoint("b"), endpoint("c")
	a.Kinds, a.Secrets, a.Note = []string{"payment.*", "reservation.commit"}, []string{"whsec_new", "whsec_old"}, "бот"
	b.Paused, b.PausedReason, b.Cursor = true, "gone", 7
	club.Project = "club"
	add(t, s, b)
	add(t, s, a)
	add(t, s, club)
	list(project, a, b)
	list("", a, b, club)
	added, err := s.AddEndpoint(t.Context(), endpoint("d"), 2)
	must(t, err)
	same(t, "added beyond the bound", added, false)
	bare := endpoint("e")
	bare.Secrets = nil
	_, err = s.AddEndpoint(t.Context(), bare, 10)
	kind(t, err, store.Rejected)

	changed := b
	changed.URL, changed.Paused, changed.PausedReason, changed.Kinds, changed.Note = "https://example.net", false, "", []string{"a.b"}, "n"
	changed.Secrets, changed.Cursor = []string{"whsec_x", "whsec_a"}, 99
	for _, wanted := range []bool{true, false} {
		did, err := s.ChangeEndpoint(t.Context(), changed)
		must(t, err)
		same(t, "changed", did, wanted)
	}
	changed.Version, changed.Cursor = 1, 7
	list(project, a, changed)
	elsewhere := changed
	elsewhere.Project = "club"
	did, err := s.ChangeEndpoint(t.Context(), elsewhere)
	must(t, err)
	same(t, "changed from another project", did, false)

	for _, step := range []struct {
		of      string
		removed bool
	}{{"club", false}, {project, true}, {project, false}} {
		removed, err := s.RemoveEndpoint(t.Context(), step.of, "a")
		must(t, err)
		same(t, "removed", removed, step.removed)
	}
	list(project, changed)
}

// deliver is a small world of one endpoint.
type deliver struct {
	*testing.T
	s OutboxStore
}

func (d deliver) dispatch(now, limit, wanted int) {
	d.Helper()
	passed, err := d.s.Dispatch(d.Context(), "a", at(now), limit)
	must(d.T, err)
	same(d.T, "passed", passed, wanted)
}

// due lists "account position" of what is due.
func (d deliver) due(now int, wanted ...string) []store.Delivery {
	d.Helper()
	found, err := d.s.Due(d.Context(), at(now), map[string]int{"a": 10, "nobody": 1})
	must(d.T, err)
	var got []string
	for _, delivery := range found {
		got = append(got, fmt.Sprint(delivery.Event.Name, " ", delivery.Event.Position))
	}
	same(d.T, fmt.Sprint("due at ", now), got, wanted)
	return found
}

// settle ends an attempt of a delivery that is due at the time.
func (d deliver) settle(now int, position int64, state store.DeliveryState, next int) {
	d.Helper()
	found, err := d.s.Due(d.Context(), at(now), map[string]int{"a": 10})
	must(d.T, err)
	for _, delivery := range found {
		if delivery.Event.Position == position {
			must(d.T, d.s.Settle(d.Context(), "a", at(now), []store.Attempt{{
				Position: position, Epoch: delivery.Epoch, Attempts: delivery.Attempts, State: state, NextAt: at(next), At: at(now), Status: 500, Problem: "status",
			}}))
			return
		}
	}
	d.Fatalf("%d is not due at %d", position, now)
}

// listed are "position state attempts" of deliveries in a state.
func (d deliver) listed(state store.DeliveryState, wanted ...string) {
	d.Helper()
	found, err := d.s.Deliveries(d.Context(), "a", state, 0, 50)
	must(d.T, err)
	var got []string
	for _, delivery := range found {
		got = append(got, fmt.Sprint(delivery.Event.Position, " ", delivery.State, " ", delivery.Attempts))
	}
	same(d.T, "deliveries "+string(state), got, wanted)
}

func deliveriesInOrder(t *testing.T, s OutboxStore) {
	d := deliver{t, s}
	add(t, s, endpoint("a"))
	publish(t, s, at(50), told("ann", 1, 3), told("bob", 1, 1)) // 1 2 3 of ann, 4 of bob
	d.due(60)
	d.dispatch(60, 2, 2)
	d.dispatch(60, 10, 2)
	d.dispatch(61, 10, 0)
	d.due(59)
	d.due(60, "ann 1", "bob 4")
	d.listed("", "4 pending 0", "3 waiting 0", "2 waiting 0", "1 pending 0")

	d.settle(62, 1, store.DeliveryPending, 70)
	d.due(63, "bob 4")
	d.settle(64, 4, store.DeliveryDelivered, 0)
	d.due(69)
	d.due(70, "ann 1")
	d.settle(71, 1, store.DeliveryDelivered, 0)
	d.due(70)
	d.due(71, "ann 2")
	d.listed(store.DeliveryDelivered, "4 delivered 1", "1 delivered 2")
	d.settle(72, 2, store.DeliveryDelivered, 0)
	d.settle(73, 3, store.DeliveryDelivered, 0)
	d.due(99)

	more := told("ann", 4, 1)
	more.Account.Version = 1
	publish(t, s, at(80), more)
	d.dispatch(81, 10, 1)
	d.due(81, "ann 5")
	found, err := s.Deliveries(t.Context(), "a", store.DeliveryDelivered, 2, 1)
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("%d below the second", len(found))
	}
	one := found[0]
	one.Event.Data = ""
	same(t, "a delivery", one, store.Delivery{
		Endpoint: "a", State: store.DeliveryDelivered, Attempts: 2, FirstAt: at(62), LastAt: at(71), Status: 500, Problem: "status",
		Event: store.Published{
			Project: project, Position: 1, Account: accountID("ann"), Name: "ann", ID: id(1), Kind: holdfast.EventOverrun, At: at(1), PublishedAt: at(50),
		},
	})
}

func wantedKinds(t *testing.T, s OutboxStore) {
	d := deliver{t, s}
	e := endpoint("a")
	e.Kinds = []string{"payment.*", "reservation.commit"}
	add(t, s, e)
	c := told("ann", 1, 5)
	for i, kind := range []holdfast.EventKind{"reservation.commit", "reservation.release", "payment.granted", "payments.x", "payment.flagged"} {
		c.Events[i].Kind = kind
	}
	publish(t, s, at(50), c)
	d.dispatch(60, 10, 5)
	d.listed("", "5 waiting 0", "3 waiting 0", "1 pending 0")
	for _, test := range []struct {
		kind   holdfast.EventKind
		wanted bool
	}{{"payment.x", true}, {"reservation.commit", true}, {"reservation.commits", false}, {"payment", true}, {"account.deleted", false}} {
		same(t, "wants "+string(test.kind), e.Wants(test.kind), test.wanted)
	}
}

func pausedEndpoint(t *testing.T, s OutboxStore) {
	d := deliver{t, s}
	e := endpoint("a")
	add(t, s, e)
	publish(t, s, at(50), told("ann", 1, 2), told("bob", 1, 1))
	d.dispatch(60, 2, 2)
	e.Paused = true
	_, err := s.ChangeEndpoint(t.Context(), e)
	must(t, err)
	d.due(61)
	d.dispatch(61, 10, 0)
	d.listed("", "2 waiting 0", "1 pending 0")
	e.Paused, e.Version = false, 1
	_, err = s.ChangeEndpoint(t.Context(), e)
	must(t, err)
	d.dispatch(62, 10, 1)
	d.due(63, "ann 1", "bob 3")
}

func overtakenAttempt(t *testing.T, s OutboxStore) {
	d := deliver{t, s}
	add(t, s, endpoint("a"))
	publish(t, s, at(50), told("ann", 1, 1))
	d.dispatch(60, 10, 1)
	attempted := d.due(60, "ann 1")[0]
	d.settle(61, 1, store.DeliveryPending, 65)
	late := store.Attempt{Position: 1, Epoch: attempted.Epoch, Attempts: attempted.Attempts, State: store.DeliveryDead, At: at(62)}
	must(t, s.Settle(t.Context(), "a", at(62), []store.Attempt{late}))
	d.listed("", "1 pending 1")
	_, err := s.Rewind(t.Context(), project, "a", 1)
	must(t, err)
	d.dispatch(66, 10, 1)
	late.Attempts = 0
	must(t, s.Settle(t.Context(), "a", at(67), []store.Attempt{late}))
	d.listed("", "1 pending 0")
	must(t, s.Settle(t.Context(), "nobody", at(67), []store.Attempt{late}))
}

func rewinding(t *testing.T, s OutboxStore) {
	d := deliver{t, s}
	add(t, s, endpoint("a"))
	publish(t, s, at(50), told("ann", 1, 4), told("bob", 1, 1))
	d.dispatch(60, 10, 5)
	d.settle(61, 1, store.DeliveryDelivered, 0)
	d.settle(62, 2, store.DeliveryDelivered, 0)
	d.settle(63, 5, store.DeliveryDelivered, 0)
	d.due(64, "ann 3")
	for _, step := range []struct {
		of      string
		rewound bool
	}{{"club", false}, {project, true}} {
		rewound, err := s.Rewind(t.Context(), step.of, "a", 2)
		must(t, err)
		same(t, "rewound", rewound, step.rewound)
	}
	d.due(65)
	d.listed("", "1 delivered 1")
	d.dispatch(66, 2, 2)
	d.due(66, "ann 2")
	d.dispatch(67, 10, 2)
	d.due(67, "ann 2", "bob 5")
	d.listed("", "5 pending 0", "4 waiting 0", "3 waiting 0", "2 pending 0", "1 delivered 1")
	for position := range int64(3) {
		d.settle(68, position+2, store.DeliveryDelivered, 0)
	}
	d.due(69, "bob 5")
}

func deadDeliveries(t *testing.T, s OutboxStore) {
	d := deliver{t, s}
	add(t, s, endpoint("a"))
	publish(t, s, at(50), told("ann", 1, 3), told("bob", 1, 1))
	d.dispatch(60, 10, 4)
	d.settle(61, 1, store.DeliveryDead, 0)
	d.due(61, "bob 4", "ann 2")
	d.settle(62, 2, store.DeliveryPending, 90)
	d.settle(63, 4, store.DeliveryDead, 0)
	d.listed(store.DeliveryDead, "4 dead 1", "1 dead 1")
	revived, err := s.Revive(t.Context(), "a", at(70), 1)
	must(t, err)
	same(t, "revived", revived, 1)
	d.listed("", "4 dead 1", "3 waiting 0", "2 pending 1", "1 waiting 0")
	d.due(80) // one of an account at a time, and its second is to come at 90
	revived, err = s.Revive(t.Context(), "a", at(71), 10)
	must(t, err)
	same(t, "revived", revived, 1)
	d.due(80, "bob 4")
	d.settle(91, 2, store.DeliveryDelivered, 0)
	d.due(92, "bob 4", "ann 1")
	d.settle(93, 1, store.DeliveryDelivered, 0)
	d.due(94, "bob 4", "ann 3")
}

func pruning(t *testing.T, s OutboxStore) {
	d := deliver{t, s}
	prune := func(old, ancient, limit int, wanted int64) {
		t.Helper()
		pruned, err := s.Prune(t.Context(), at(old), at(ancient), limit)
		must(t, err)
		same(t, "pruned", pruned, wanted)
	}
	add(t, s, endpoint("a"))
	publish(t, s, at(50), told("ann", 1, 2), told("bob", 1, 1))
	publish(t, s, at(60), told("carl", 1, 1))
	prune(55, 0, 10, 0) // all are to become deliveries
	d.dispatch(61, 10, 4)
	d.settle(62, 1, store.DeliveryDelivered, 0)
	d.settle(62, 3, store.DeliveryDelivered, 0)
	d.settle(62, 4, store.DeliveryDelivered, 0)
	prune(55, 0, 1, 1)
	prune(55, 0, 10, 1)
	d.listed("", "4 delivered 1", "2 pending 0")
	prune(55, 55, 10, 1)
	d.listed("", "4 delivered 1")
	prune(99, 0, 10, 1)
	events, err := s.Published(t.Context(), project, 0, 10)
	must(t, err)
	same(t, "left", len(events), 0)
	last, err := s.Positions(t.Context())
	must(t, err)
	if diff := cmp.Diff(map[string]int64{project: 4}, last, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("positions are never given again:\n%s", diff)
	}
}
