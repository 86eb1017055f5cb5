// Package paytest opens a shop for the tests of providers' packages: a real engine on a real store, a clock that stands
// still, a small catalog, and a door that can fail.
//
// The tests of payment/telegramstars, payment/stripe and the command line call it. It decides nothing and imitates nothing.
package paytest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/store/sqlite"
)

// Project is the shop's.
const Project = "studio"

// Morning is when shops open.
var Morning = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

// Days is a number of days.
func Days(n int) time.Duration { return time.Duration(n) * 24 * time.Hour }

// Catalog sells a plan and a dearer one, each for 30 days and for a month, and a packet of credits.
func Catalog() *holdfast.Catalog {
	term := func(key string, n holdfast.Amount) []holdfast.Allowance {
		return []holdfast.Allowance{{Key: key, Unit: "credit", Amount: n, Every: holdfast.Cycle{Term: true}}}
	}
	money := func(stars, cents holdfast.Amount) []holdfast.Money {
		return []holdfast.Money{{Currency: "XTR", Amount: stars}, {Currency: "USD", Amount: cents}}
	}
	return &holdfast.Catalog{
		Version:  1,
		Units:    []holdfast.Unit{{Name: "credit"}},
		Features: []holdfast.Feature{{Name: "draw", Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, LongestJob: time.Minute, TTL: 5 * time.Minute}},
		Plans: []holdfast.Plan{
			{Name: "free", Default: true, Features: []string{"draw"}, MaxActive: 10},
			{Name: "pro", Features: []string{"draw"}, MaxActive: 10, Allowances: term("pro", 300), Grace: Days(3)},
			{Name: "max", Features: []string{"draw"}, MaxActive: 10, Allowances: term("max", 1000), Grace: Days(3), Upgrade: holdfast.UpgradeFull},
		},
		Products: []holdfast.Product{
			{Name: "pro_30", Plan: "pro", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 250}}},
			{Name: "max_30", Plan: "max", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 900}}},
			{Name: "pro_month", Plan: "pro", Period: holdfast.Period{Months: 1}, Prices: []holdfast.Money{{Currency: "USD", Amount: 499}}},
			{Name: "max_month", Plan: "max", Period: holdfast.Period{Months: 1}, Prices: []holdfast.Money{{Currency: "USD", Amount: 1999}}},
			{Name: "credits_100", Grant: &holdfast.ProductGrant{Unit: "credit", Amount: 100}, Prices: money(100, 250)},
		},
	}
}

// Shop is an engine at work on a store, with what sells through it.
type Shop struct {
	*engine.Engine
	Store store.Lookups
	Book  *payment.Book

	t       testing.TB
	mu      sync.Mutex
	now     time.Time
	catalog *holdfast.Catalog
	faults  []Fault
}

// Fault is what happens to the next command, instead of its answer.
type Fault int

// The faults.
const (
	Down Fault = iota // it is not done
	Lost              // it is done, and the answer is lost
)

var errFault = &engine.Error{Code: engine.Unavailable, Hint: "the test lets it fail", Unknown: true}

// OnEveryStore runs a test on a shop of each kind.
func OnEveryStore(t *testing.T, provider string, test func(t *testing.T, shop *Shop)) {
	t.Helper()
	t.Run("memory", func(t *testing.T) { test(t, Open(t, memory.Open(), provider)) })
	t.Run("sqlite", func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "shop.db"), sqlite.Options{Serve: true})
		if err != nil {
			t.Fatal(err)
		}
		test(t, Open(t, db, provider))
	})
}

// Open opens a shop that closes with the test, after every ledger was proven.
func Open(t testing.TB, db store.Lookups, provider string) *Shop {
	t.Helper()
	s := &Shop{t: t, Store: db, now: Morning, catalog: Catalog()}
	s.Engine = engine.New(db, engine.Options{
		Catalog: func(string) *holdfast.Catalog {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.catalog
		},
		Now: func() time.Time {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.now
		},
		SweepEvery: -1, Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx) }()
	t.Cleanup(func() {
		s.verify()
		stop()
		if err := errors.Join(<-served, db.Close()); err != nil {
			t.Error(err)
		}
	})
	s.Book = &payment.Book{
		Desk: &payment.Desk{
			Engine: door{s}, Claims: db,
			Unavailable: func(err error) error { return &engine.Error{Code: engine.Unavailable, Err: err} },
		},
		Orders: db, Accounts: s.Engine, Project: Project, Provider: provider,
	}
	return s
}

// door is the engine as sellers reach it.
type door struct{ shop *Shop }

func (d door) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	fault := Fault(-1)
	d.shop.mu.Lock()
	if len(d.shop.faults) > 0 {
		fault, d.shop.faults = d.shop.faults[0], d.shop.faults[1:]
	}
	d.shop.mu.Unlock()
	if fault == Down {
		return holdfast.Outcome{}, errFault
	}
	outcome, err := d.shop.Engine.Submit(ctx, command)
	if fault == Lost {
		return holdfast.Outcome{}, errFault
	}
	return outcome, err
}

func (d door) Resolve(ctx context.Context, project string, account holdfast.AccountID) (holdfast.AccountID, error) {
	return d.shop.Engine.Resolve(ctx, project, account)
}

func (d door) Payment(ctx context.Context, account holdfast.AccountID, provider, paymentID string) (*holdfast.Payment, holdfast.AccountID, error) {
	return d.shop.Engine.Payment(ctx, account, provider, paymentID)
}

// Fail lets the next commands of sellers fail, in this order.
func (s *Shop) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Pass lets time pass.
func (s *Shop) Pass(length time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now = s.now.Add(length)
}

// Sell changes what is sold.
func (s *Shop) Sell(change func(*holdfast.Catalog)) {
	changed := Catalog()
	change(changed)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.catalog = changed
}

// Do has a command decided, which must succeed.
func (s *Shop) Do(account string, op holdfast.Operation) holdfast.Outcome {
	s.t.Helper()
	outcome, err := s.Submit(s.t.Context(), holdfast.Command{Project: Project, Account: account, Key: engine.NewID().String(), Actor: "test", Do: op})
	if err != nil || outcome.Reason != "" {
		s.t.Fatalf("%s: %v %+v", op.Name(), err, outcome)
	}
	return outcome
}

// See is the account as people are shown it.
func (s *Shop) See(account string) *holdfast.AccountView {
	s.t.Helper()
	view, err := s.View(s.t.Context(), Project, account)
	if err != nil {
		s.t.Fatal(err)
	}
	return view
}

// Credits is what the account can spend.
func (s *Shop) Credits(account string) holdfast.Amount {
	s.t.Helper()
	for _, b := range s.See(account).Balances {
		if b.Unit == "credit" {
			return b.Available
		}
	}
	return 0
}

// Grants counts the pockets that were ever opened for an account.
func (s *Shop) Grants(account string) int {
	s.t.Helper()
	page, err := s.Read(s.t.Context(), store.Query{Kind: store.QueryGrants, Project: Project, Account: holdfast.AccountIDOf(Project, account), Limit: holdfast.MaxPage})
	if err != nil {
		s.t.Fatal(err)
	}
	return len(page.Grants)
}

// Paid is a payment of the shop's provider, which must be known.
func (s *Shop) Paid(id string) holdfast.Payment {
	s.t.Helper()
	paid, err := s.Book.Payment(s.t.Context(), id)
	if err != nil || paid == nil {
		s.t.Fatalf("payment %s: %v, %v", id, paid, err)
	}
	return *paid
}

func (s *Shop) verify() {
	s.t.Helper()
	err := s.Store.Dump(context.WithoutCancel(s.t.Context()), func(r store.Record) error {
		differences, err := holdfast.Verify(&r.Account, r.Grants, r.Reservations, r.Entries)
		for _, difference := range differences {
			s.t.Errorf("%s: %s", r.Account.Name, difference)
		}
		return err
	})
	if err != nil {
		s.t.Error(err)
	}
}
