// Package sinktest is what every broker's sink must do, as tests: Exercise runs the real relay on a real engine into a real
// broker, which is killed, away from the start, or silent.
//
// The tests of sinks call it. It imitates nothing but a network that goes silent, and the product never uses it.
package sinktest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/store/memory"
)

// Broker is a broker of the test's own.
type Broker interface {
	// Address is its host and port, also while it is down.
	Address() string
	// Sink opens a sink that leads to the broker by way of an address. It is closed when the test ends.
	Sink(t testing.TB, address string) outbox.Sink
	// Read returns all that the broker has of a project, in its order.
	Read(t testing.TB, project string) []outbox.Event
	// Kill ends the broker at once, and Run starts it again.
	Kill(t testing.TB)
	Run(t testing.TB)
}

// Project is whose events Exercise tells, unless a test says otherwise. It has a dot, as projects may.
const Project = "shop.eu"

// Exercise runs all tests on brokers that start makes.
func Exercise(t *testing.T, start func(t *testing.T) Broker) {
	for name, test := range map[string]func(t *testing.T, b Broker){
		"every event arrives, in order, with all it tells":                    everyEventArrives,
		"projects are kept apart":                                             projectsAreKeptApart,
		"nothing is lost and nothing overtakes when the broker is killed":     brokerIsKilled,
		"a broker that is down at the start gets everything later":            brokerIsDown,
		"what the relay did not note is not doubled by the next relay":        relayIsKilled,
		"a silent broker holds up no webhook and no other sink":               brokerIsSilent,
		"a broker that cannot be reached is an error without what events say": brokerIsAway,
	} {
		t.Run(name, func(t *testing.T) { test(t, start(t)) })
	}
}

func everyEventArrives(t *testing.T, b Broker) {
	w := newWorld(t)
	w.relay(w.Store, map[string]outbox.Sink{"broker": b.Sink(t, b.Address())})
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() { w.tell(Project, fmt.Sprint("account", n), 60) })
	}
	all.Wait()
	got, want := w.arrived(b, Project, 240), w.published(Project)
	if len(got) != len(want) {
		t.Fatalf("%d of %d events arrived", len(got), len(want))
	}
	for i := range got {
		if text(t, got[i]) != text(t, want[i]) {
			t.Fatalf("event %d arrived as\n%s\nand was published as\n%s", i, text(t, got[i]), text(t, want[i]))
		}
	}
}

func projectsAreKeptApart(t *testing.T, b Broker) {
	w := newWorld(t)
	w.relay(w.Store, map[string]outbox.Sink{"broker": b.Sink(t, b.Address())})
	for _, project := range []string{Project, "shop", "shop_eu"} {
		w.tell(project, "ann", 3)
	}
	for _, project := range []string{Project, "shop", "shop_eu"} {
		for _, e := range w.arrived(b, project, 3) {
			if e.Project != project {
				t.Errorf("an event of %s is among those of %s", e.Project, project)
			}
		}
	}
}

func brokerIsKilled(t *testing.T, b Broker) {
	w := newWorld(t)
	w.relay(w.Store, map[string]outbox.Sink{"broker": b.Sink(t, b.Address())})
	const accounts, each, kills = 3, 40, 3
	told := 0
	for range kills {
		var telling sync.WaitGroup
		for n := range accounts {
			telling.Go(func() { w.tell(Project, fmt.Sprint("account", n), each) })
		}
		w.arrived(b, Project, told+1) // it is in the middle
		b.Kill(t)
		telling.Wait()
		told += accounts * each
		b.Run(t)
		w.arrived(b, Project, told)
	}
	inOrder(t, distinct(b.Read(t, Project)))
}

func brokerIsDown(t *testing.T, b Broker) {
	b.Kill(t)
	w := newWorld(t)
	failed := make(chan struct{})
	tried := watched{b.Sink(t, b.Address()), sync.OnceFunc(func() { close(failed) })}
	w.relay(w.Store, map[string]outbox.Sink{"broker": tried})
	w.tell(Project, "ann", 20)
	<-failed
	b.Run(t)
	inOrder(t, w.arrived(b, Project, 20))
}

// watched tells that a sink has failed.
type watched struct {
	outbox.Sink
	failed func()
}

func (w watched) Publish(ctx context.Context, events []outbox.Event) error {
	err := w.Sink.Publish(ctx, events)
	if err != nil {
		w.failed()
	}
	return err
}

// The events are in the broker, and the process ends before the database knows.
func relayIsKilled(t *testing.T, b Broker) {
	w := newWorld(t)
	w.tell(Project, "ann", 10)
	w.tell(Project, "bob", 10)
	forgetful := &forgetful{Store: w.Store, reached: make(chan struct{})}
	stop := w.relay(forgetful, map[string]outbox.Sink{"broker": b.Sink(t, b.Address())})
	<-forgetful.reached
	stop()
	if got := len(b.Read(t, Project)); got == 0 {
		t.Fatal("the cursor was to move before the broker had anything")
	}
	cursors, err := w.Cursors(t.Context(), "broker")
	must(t, err)
	if cursors[Project] != 0 {
		t.Fatalf("the cursor is at %d: nothing was forgotten", cursors[Project])
	}
	w.relay(w.Store, map[string]outbox.Sink{"broker": b.Sink(t, b.Address())})
	w.tell(Project, "ann", 1)
	w.arrived(b, Project, 21)
	got := b.Read(t, Project)
	inOrder(t, got)
	if len(got) != 21 {
		t.Errorf("the broker has %d messages of 21 events: it was to drop the repeats", len(got))
	}
}

// forgetful is a database that is gone by the time a cursor is to be moved.
type forgetful struct {
	outbox.Store
	once    sync.Once
	reached chan struct{}
}

func (f *forgetful) MoveCursor(context.Context, string, string, int64) error {
	f.once.Do(func() { close(f.reached) })
	return errors.New("killed")
}

func brokerIsSilent(t *testing.T, b Broker) {
	w := newWorld(t)
	v := newValve(t, b.Address())
	v.close()
	other, hook := &memo{}, &memo{}
	url := w.receiver(hook)
	_, _, err := outbox.NewDesk(w.Store, loopback).Add(t.Context(), Project, outbox.Change{URL: &url})
	must(t, err)
	w.relay(w.Store, map[string]outbox.Sink{"broker": b.Sink(t, v.address()), "other": other})
	w.tell(Project, "ann", 30)
	w.eventually("the other sink and the webhook have everything", func() bool { return other.count() == 30 && hook.count() == 30 })
	if got := len(b.Read(t, Project)); got != 0 {
		t.Fatalf("the broker was silent and has %d", got)
	}
	v.open()
	inOrder(t, w.arrived(b, Project, 30))
}

func brokerIsAway(t *testing.T, b Broker) {
	b.Kill(t)
	e := outbox.Event{ID: "evt_1", Type: "account.adjust", Position: 1, Project: Project, Account: "telegram:42"}
	err := b.Sink(t, b.Address()).Publish(t.Context(), []outbox.Event{e})
	if err == nil {
		t.Fatal("events went where nobody is")
	}
	if strings.Contains(err.Error(), "telegram:42") {
		t.Errorf("a name is in the error: %v", err)
	}
}

// world is an engine, its database, and a clock that can be moved.
type world struct {
	t *testing.T
	*memory.Store
	engine *engine.Engine
	offset atomic.Int64
	keys   atomic.Int64
}

var tariff = &holdfast.Catalog{
	Version:  1,
	Units:    []holdfast.Unit{{Name: "credit"}},
	Features: []holdfast.Feature{{Name: "draw", Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, LongestJob: time.Minute, TTL: 5 * time.Minute}},
	Plans:    []holdfast.Plan{{Name: "free", Default: true, Features: []string{"draw"}, MaxActive: 1000}},
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, Store: memory.Open()}
	w.engine = engine.New(w.Store, engine.Options{Catalog: func(string) *holdfast.Catalog { return tariff }, SweepEvery: -1})
	w.during(w.engine.Serve)
	return w
}

// during runs something until the returned function is called, or the test ends.
func (w *world) during(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

var loopback = outbox.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}

func (w *world) relay(s outbox.Store, sinks map[string]outbox.Sink) (stop func()) {
	return w.during(outbox.New(s, outbox.Options{
		Sinks: sinks, Every: 5 * time.Millisecond, Guard: loopback, Holder: "test", Now: func() time.Time { return time.Now().Add(time.Duration(w.offset.Load())) },
	}).Run)
}

// tell makes so many events of an account.
func (w *world) tell(project, account string, events int) {
	w.t.Helper()
	submit := func(do holdfast.Operation) {
		o, err := w.engine.Submit(context.Background(), holdfast.Command{Project: project, Account: account, Key: fmt.Sprint("k", w.keys.Add(1)), Actor: "test", Do: do})
		if err != nil || o.Refused() {
			w.t.Errorf("%s: %v %s", do.Name(), err, o.Reason)
		}
	}
	submit(holdfast.PutAccount{})
	for range events {
		submit(holdfast.AddGrant{Unit: "credit", Amount: 1, Source: holdfast.FromPromo})
	}
}

// arrived waits until the broker has so many distinct events of a project. The relay's pauses after errors pass faster.
func (w *world) arrived(b Broker, project string, count int) (events []outbox.Event) {
	w.t.Helper()
	w.eventually(fmt.Sprint(count, " events in the broker"), func() bool {
		events = distinct(b.Read(w.t, project))
		return len(events) >= count
	})
	return events
}

// eventually looks again until it is so.
func (w *world) eventually(what string, is func() bool) {
	w.t.Helper()
	for began := time.Now(); !is(); {
		if time.Since(began) > time.Minute {
			w.t.Fatalf("never: %s", what)
		}
		w.offset.Add(int64(time.Second))
		time.Sleep(20 * time.Millisecond)
	}
}

// published are all events of a project, as the database has them.
func (w *world) published(project string) (events []outbox.Event) {
	w.t.Helper()
	for after := int64(0); ; {
		page, next, err := outbox.NewDesk(w.Store, loopback).Events(w.t.Context(), project, after, 100)
		must(w.t, err)
		if len(page) == 0 {
			return events
		}
		events, after = append(events, page...), next
	}
}

// receiver takes webhooks.
func (w *world) receiver(m *memo) (url string) {
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var e outbox.Event
		if err := json.NewDecoder(r.Body).Decode(&e); err != nil {
			w.t.Error(err)
		}
		_ = m.Publish(r.Context(), []outbox.Event{e})
	}))
	w.t.Cleanup(s.Close)
	return s.URL
}

// memo is a sink that remembers.
type memo struct {
	mu     sync.Mutex
	events []outbox.Event
}

func (m *memo) Publish(_ context.Context, events []outbox.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, events...)
	return nil
}

func (m *memo) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(distinct(m.events))
}

// distinct are events without their repeats, each where it came first.
func distinct(events []outbox.Event) (first []outbox.Event) {
	seen := map[string]bool{}
	for _, e := range events {
		if !seen[e.ID] {
			seen[e.ID] = true
			first = append(first, e)
		}
	}
	return first
}

// inOrder fails unless each account's entries come one after the other, from the first.
func inOrder(t *testing.T, events []outbox.Event) {
	t.Helper()
	next := map[string]int64{}
	for _, e := range events {
		next[e.Account]++
		if e.Data.Entry == nil || e.Data.Entry.No != next[e.Account] {
			t.Fatalf("of account %s, event number %d is %s", e.Account, next[e.Account], text(t, e))
		}
	}
}

func text(t *testing.T, e outbox.Event) string {
	t.Helper()
	text, err := json.Marshal(e)
	must(t, err)
	return string(text)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// valve stands between a sink and its broker. While it is closed it takes connections and what comes through them, and
// nothing goes on.
type valve struct {
	listener net.Listener
	to       string

	mu          sync.Mutex
	opened      chan struct{} // closed when it is open
	connections []net.Conn
}

func newValve(t *testing.T, to string) *valve {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	v := &valve{listener: listener, to: to, opened: make(chan struct{})}
	var working sync.WaitGroup
	working.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			v.keep(from)
			working.Go(func() { v.pass(from) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		v.open()
		v.mu.Lock()
		for _, c := range v.connections {
			_ = c.Close()
		}
		v.mu.Unlock()
		working.Wait()
	})
	return v
}

func (v *valve) address() string { return v.listener.Addr().String() }

func (v *valve) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opened = make(chan struct{})
}

func (v *valve) open() {
	v.mu.Lock()
	defer v.mu.Unlock()
	select {
	case <-v.opened:
	default:
		close(v.opened)
	}
}

func (v *valve) keep(c net.Conn) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.connections = append(v.connections, c)
}

func (v *valve) pass(from net.Conn) {
	defer func() { _ = from.Close() }()
	v.mu.Lock()
	opened := v.opened
	v.mu.Unlock()
	<-opened
	to, err := net.Dial("tcp", v.to)
	if err != nil {
		return
	}
	v.keep(to)
	defer func() { _ = to.Close() }()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			_, _ = way[0].Close(), way[1].Close()
		})
	}
	both.Wait()
}
