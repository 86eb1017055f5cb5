package outbox

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/store/postgres"
	"github.com/holdfast-dev/holdfast/store/sqlite"
)

// The test database server is watched until the process ends.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/holdfast-dev/holdfast/internal/pgtest.(*Server).run.func2"))
}

const project = "shop"

type database interface {
	store.Store
	Store
}

// onEachStore runs a test on a fresh store of every kind.
func onEachStore(t *testing.T, test func(t *testing.T, s database)) {
	t.Run("memory", func(t *testing.T) { test(t, memory.Open()) })
	t.Run("sqlite", func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "holdfast.db"), sqlite.Options{})
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		test(t, s)
	})
	t.Run("postgres", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgtest.New(t), postgres.Options{})
		must(t, err)
		t.Cleanup(func() { _ = s.Close() })
		test(t, s)
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var tariff = &holdfast.Catalog{
	Version:  1,
	Units:    []holdfast.Unit{{Name: "credit"}},
	Features: []holdfast.Feature{{Name: "draw", Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, LongestJob: time.Minute, TTL: 5 * time.Minute}},
	Plans:    []holdfast.Plan{{Name: "free", Default: true, Features: []string{"draw"}, MaxActive: 1000}},
}

// teller lets accounts have something to tell, through the real engine.
type teller struct {
	t *testing.T
	*engine.Engine
	keys int
}

func newTeller(t *testing.T, s store.Store) *teller {
	t.Helper()
	return newTellerOf(t, s, tariff)
}

func newTellerOf(t *testing.T, s store.Store, catalog *holdfast.Catalog) *teller {
	t.Helper()
	e := engine.New(s, engine.Options{Catalog: func(string) *holdfast.Catalog { return catalog }, SweepEvery: -1})
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &teller{t: t, Engine: e}
}

func (e *teller) submit(account string, do holdfast.Operation) holdfast.Outcome {
	e.t.Helper()
	e.keys++
	outcome, err := e.Submit(context.Background(), holdfast.Command{Project: project, Account: account, Key: fmt.Sprint("k", e.keys), Actor: "test", Do: do})
	must(e.t, err)
	if outcome.Refused() {
		e.t.Fatalf("%s of %s: %s", do.Name(), account, outcome.Reason)
	}
	return outcome
}

// tell makes so many events of an account, numbered by its entries.
func (e *teller) tell(account string, events int) {
	e.t.Helper()
	e.submit(account, holdfast.PutAccount{})
	for range events {
		e.submit(account, holdfast.AddGrant{Unit: "credit", Amount: 1, Source: holdfast.FromPromo})
	}
}

// relaying runs a relay until the returned function is called, or the test ends.
func relaying(t *testing.T, s Store, change ...func(*Options)) (stop func()) {
	t.Helper()
	options := Options{Every: 10 * time.Millisecond, Guard: Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}}
	for _, c := range change {
		c(&options)
	}
	return running(t, New(s, options))
}

func running(t *testing.T, r *Relay) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return stop
}

// memo remembers events in the order in which they came.
type memo struct {
	mu      sync.Mutex
	events  []Event
	changed chan struct{}
}

func newMemo() *memo { return &memo{changed: make(chan struct{})} }

func (m *memo) add(events ...Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.events = append(m.events, events...)
	close(m.changed)
	m.changed = make(chan struct{})
}

// Publish makes it a Sink.
func (m *memo) Publish(_ context.Context, events []Event) error {
	m.add(events...)
	return nil
}

func (m *memo) all() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]Event{}, m.events...)
}

// distinct are those that were remembered, each once, where it came first.
func (m *memo) distinct() (events []Event) {
	seen := map[string]bool{}
	for _, e := range m.all() {
		if !seen[e.ID] {
			seen[e.ID] = true
			events = append(events, e)
		}
	}
	return events
}

// until waits until so many distinct events came.
func (m *memo) until(t *testing.T, count int) []Event {
	t.Helper()
	patience := time.NewTimer(time.Minute) // without anything new
	defer patience.Stop()
	for {
		m.mu.Lock()
		changed, enough := m.changed, len(m.events) >= count
		m.mu.Unlock()
		if enough { // with those that came twice
			if events := m.distinct(); len(events) >= count {
				return events
			}
		}
		select {
		case <-changed:
			patience.Reset(time.Minute)
		case <-patience.C:
			t.Fatalf("%d of %d events came", len(m.distinct()), count)
		}
	}
}

// inOrder fails unless each account's entries come one after the other, from the first.
func inOrder(t *testing.T, events []Event) {
	t.Helper()
	next := map[string]int64{}
	for _, e := range events {
		if e.Data.Entry == nil {
			continue
		}
		next[e.Account]++
		if e.Data.Entry.No != next[e.Account] {
			t.Fatalf("account %s: entry %d came as number %d", e.Account, e.Data.Entry.No, next[e.Account])
		}
	}
}

// receiver is a server that takes webhooks; answer may decide otherwise.
func receiver(t *testing.T, m *memo, answer func(w http.ResponseWriter, e Event) bool) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e Event
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &e)
		}
		if err != nil {
			t.Error(err)
		}
		if answer != nil && !answer(w, e) {
			return
		}
		m.add(e)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s.URL
}

// subscribe makes an endpoint at the desk.
func subscribe(t *testing.T, s Store, url string) store.Endpoint {
	t.Helper()
	e, _, err := desk(s).Add(t.Context(), project, Change{URL: &url})
	must(t, err)
	return e
}

func desk(s Store) *Desk {
	return NewDesk(s, Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
}

// eventually looks again until it is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); {
		if time.Since(began) > time.Minute {
			t.Fatalf("never: %s", what)
		}
		for i := 0; i < 1; i++ {
			time.Sleep(5 * time.Millisecond)
		}
	}
}
