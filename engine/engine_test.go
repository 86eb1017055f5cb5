package engine_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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

// tariff sells one feature for one credit; the plan gives nothing by itself.
var tariff = &holdfast.Catalog{
	Version:  1,
	Units:    []holdfast.Unit{{Name: "credit"}},
	Features: []holdfast.Feature{{Name: "draw", Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, LongestJob: time.Minute, TTL: 5 * time.Minute}},
	Plans:    []holdfast.Plan{{Name: "free", Default: true, Features: []string{"draw"}, MaxActive: 1000}},
}

// house is an engine at work on a store, with a clock that tests can move.
type house struct {
	*engine.Engine
	t     *testing.T
	store store.Store
	stop  func() error

	mu     sync.Mutex
	offset time.Duration
	keys   int
}

func (h *house) now() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Now().Add(h.offset)
}

func (h *house) pass(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.offset += d
}

// open starts an engine that sweeps only when told. Options that are set win.
func open(t *testing.T, s store.Store, change ...func(*engine.Options)) *house {
	t.Helper()
	h := &house{t: t, store: s}
	options := engine.Options{
		Catalog: func(string) *holdfast.Catalog { return tariff }, Now: h.now, SweepEvery: -1,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	for _, c := range change {
		c(&options)
	}
	h.Engine = engine.New(s, options)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.Serve(ctx) }()
	h.stop = sync.OnceValue(func() error {
		cancel()
		return <-served
	})
	t.Cleanup(func() { _ = h.stop() })
	return h
}

// eachStore runs a test on every store there is.
func eachStore(t *testing.T, test func(t *testing.T, s store.Store)) {
	t.Run("memory", func(t *testing.T) { test(t, memoryStore(t)) })
	t.Run("sqlite", func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "holdfast.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		test(t, db)
	})
	for name, options := range map[string]postgres.Options{"postgres": {}, "postgres, sharded": {Sharded: true}} {
		t.Run(name, func(t *testing.T) { test(t, postgresStore(t, pgtest.New(t), options)) })
	}
}

func postgresStore(t *testing.T, url string, options postgres.Options) store.Store {
	t.Helper()
	db, err := postgres.Open(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func memoryStore(t *testing.T) store.Store {
	db := memory.Open()
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func (h *house) key() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys++
	return fmt.Sprint("k", h.keys)
}

// do submits a command for the account and fails the test on an accident.
func (h *house) do(account, key string, op holdfast.Operation) holdfast.Outcome {
	h.t.Helper()
	outcome, err := h.submit(account, key, op)
	if err != nil {
		h.t.Fatalf("%s: %v", op.Name(), err)
	}
	return outcome
}

func (h *house) submit(account, key string, op holdfast.Operation) (holdfast.Outcome, error) {
	return h.Submit(context.Background(), holdfast.Command{Project: "p", Account: account, Key: key, Actor: "test", Do: op})
}

// has makes an account with that many credits.
func (h *house) has(account string, credits holdfast.Amount) {
	h.t.Helper()
	h.do(account, "", holdfast.PutAccount{})
	h.done(h.do(account, h.key(), holdfast.AddGrant{Unit: "credit", Amount: credits, Source: holdfast.FromPurchase}))
}

func (h *house) done(o holdfast.Outcome) holdfast.Outcome {
	h.t.Helper()
	if o.Refused() {
		h.t.Fatalf("refused: %s %v", o.Reason, o.Problems)
	}
	return o
}

func (h *house) reserve(account, key string) holdfast.Outcome {
	h.t.Helper()
	return h.do(account, key, holdfast.Reserve{Feature: "draw"})
}

// balance is what is available and held now.
func (h *house) balance(account string) string {
	h.t.Helper()
	view, err := h.View(context.Background(), "p", account)
	if err != nil {
		h.t.Fatal(err)
	}
	return fmt.Sprintf("available=%d held=%d active=%d", view.Balances[0].Available, view.Balances[0].Reserved, view.Account.Active)
}

func (h *house) wantBalance(account, want string) {
	h.t.Helper()
	if got := h.balance(account); got != want {
		h.t.Errorf("%s has %s, want %s", account, got, want)
	}
}

// verify proves every ledger.
func (h *house) verify() {
	h.t.Helper()
	err := h.store.Dump(context.Background(), func(r store.Record) error {
		differences, err := holdfast.Verify(&r.Account, r.Grants, r.Reservations, r.Entries)
		for _, difference := range differences {
			h.t.Errorf("%s: %s", r.Account.Name, difference)
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

func codeOf(err error) engine.Code {
	var e *engine.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// gate is a store whose transactions tests can hold up or break.
type gate struct {
	store.Store
	mu      sync.Mutex
	onLoad  func(wants []store.Want) error
	onSave  func(changes []holdfast.Changes) error // an error: nothing is saved
	onSaved func() error                           // an error: saved, and the caller is told this
}

func (g *gate) Begin(ctx context.Context) (store.Tx, error) {
	tx, err := g.Store.Begin(ctx)
	return &gatedTx{tx, g}, err
}

func (g *gate) set(change func(g *gate)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change(g)
}

func (g *gate) hooks() (func([]store.Want) error, func([]holdfast.Changes) error, func() error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.onLoad, g.onSave, g.onSaved
}

type gatedTx struct {
	store.Tx
	gate *gate
}

func (tx *gatedTx) Load(ctx context.Context, wants []store.Want) ([]*holdfast.State, error) {
	if onLoad, _, _ := tx.gate.hooks(); onLoad != nil {
		if err := onLoad(wants); err != nil {
			return nil, err
		}
	}
	return tx.Tx.Load(ctx, wants)
}

func (tx *gatedTx) Save(ctx context.Context, changes []holdfast.Changes) error {
	_, onSave, onSaved := tx.gate.hooks()
	if onSave != nil {
		if err := onSave(changes); err != nil {
			return err
		}
	}
	if err := tx.Tx.Save(ctx, changes); err != nil {
		return err
	}
	if onSaved != nil {
		return onSaved()
	}
	return nil
}

// hold makes the next Load wait until the returned function is called, so that what is submitted meanwhile comes in one batch.
func (g *gate) hold() (taken <-chan struct{}, release func()) {
	entered, released := make(chan struct{}), make(chan struct{})
	g.set(func(g *gate) {
		g.onLoad = func([]store.Want) error {
			g.set(func(g *gate) { g.onLoad = nil })
			close(entered)
			<-released
			return nil
		}
	})
	return entered, func() { close(released) }
}

// batch submits commands so that they are decided in one batch, in this order, and returns what came of each.
func (h *house) batch(g *gate, commands ...holdfast.Command) []result {
	h.t.Helper()
	taken, release := g.hold()
	first := make(chan result, 1)
	go func() {
		o, err := h.submit("doorman", "", holdfast.PutAccount{})
		first <- result{o, err}
	}()
	<-taken
	results := make([]result, len(commands))
	var wait sync.WaitGroup
	for i, c := range commands {
		before := h.Waiting()
		wait.Go(func() {
			o, err := h.Submit(context.Background(), c)
			results[i] = result{o, err}
		})
		for h.Waiting() == before { // until it is in the queue, so that the order is known
			time.Sleep(50 * time.Microsecond)
		}
	}
	release()
	<-first
	wait.Wait()
	return results
}

type result struct {
	outcome holdfast.Outcome
	err     error
}

func (h *house) command(account, key string, op holdfast.Operation) holdfast.Command {
	return holdfast.Command{Project: "p", Account: account, Key: key, Actor: "test", Do: op}
}
