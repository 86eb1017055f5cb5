package payment_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/store/sqlite"
)

// tariff sells a plan of 30 days and a pack of credits.
var tariff = &holdfast.Catalog{
	Version: 1,
	Units:   []holdfast.Unit{{Name: "credit"}},
	Plans: []holdfast.Plan{
		{Name: "free", Default: true, MaxActive: 1},
		{Name: "pro", MaxActive: 3, Allowances: []holdfast.Allowance{{Key: "pro/credit", Unit: "credit", Amount: 300, Every: holdfast.Cycle{Term: true}}}},
	},
	Products: []holdfast.Product{
		{Name: "pro_30", Plan: "pro", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 250}}},
		{Name: "credits_100", Grant: &holdfast.ProductGrant{Unit: "credit", Amount: 100}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 100}}},
	},
}

// till is a desk on a real engine, which can fail.
type till struct {
	payment.Desk
	*engine.Engine
	t      *testing.T
	log    bytes.Buffer
	stored store.Lookups
	broken int    // how many commands from now on get lost on their way
	before func() // is run once before the next command, where it is set
}

// Submit loses a command where it is told to.
func (d *till) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	if before := d.before; before != nil {
		d.before = nil
		before()
	}
	if d.broken > 0 {
		d.broken--
		return holdfast.Outcome{}, errors.New("the process died here")
	}
	return d.Engine.Submit(ctx, command)
}

func eachStore(t *testing.T, test func(t *testing.T, d *till)) {
	t.Run("memory", func(t *testing.T) { test(t, open(t, memory.Open())) })
	t.Run("sqlite", func(t *testing.T) {
		stored, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "holdfast.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		test(t, open(t, stored))
	})
}

func open(t *testing.T, stored store.Lookups) *till {
	t.Helper()
	d := &till{t: t, stored: stored}
	d.Engine = engine.New(stored, engine.Options{
		Catalog: func(string) *holdfast.Catalog { return tariff }, SweepEvery: -1, Logger: slog.New(slog.DiscardHandler),
	})
	d.Desk = payment.Desk{Engine: d, Claims: stored, Log: slog.New(slog.NewTextHandler(&d.log, nil))}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- d.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		_ = stored.Close()
	})
	return d
}

func (d *till) pay(account, id, product string, amount holdfast.Amount) (holdfast.Outcome, error) {
	return d.Pay(context.Background(), payment.Request{Project: "p", Account: account, Actor: "test"}, holdfast.Pay{
		Provider: "stars", PaymentID: id, Product: product, Amount: amount, Currency: "XTR",
	})
}

func (d *till) paid(account, id, product string, amount holdfast.Amount) holdfast.Outcome {
	d.t.Helper()
	outcome, err := d.pay(account, id, product, amount)
	if err != nil || outcome.Refused() {
		d.t.Fatalf("%v %+v", err, outcome)
	}
	return outcome
}

func (d *till) refund(id, refund string) (holdfast.Outcome, bool) {
	d.t.Helper()
	outcome, pending, err := d.Refund(context.Background(), payment.Request{Project: "p", Actor: "test"}, holdfast.RefundPayment{
		Provider: "stars", PaymentID: id, Refund: holdfast.PaymentRefund{ID: refund},
	})
	if err != nil || outcome.Refused() {
		d.t.Fatalf("%v %+v", err, outcome)
	}
	return outcome, pending
}

func (d *till) has(account string, want holdfast.Amount) {
	d.t.Helper()
	view, err := d.View(context.Background(), "p", account)
	if err != nil || view.Balances[0].Available != want {
		d.t.Errorf("%s has %+v, want %d: %v", account, view.Balances, want, err)
	}
}

func (d *till) merge(into, from string) {
	d.t.Helper()
	outcome, err := d.Merge(context.Background(), engine.Names{Project: "p", Account: into, Other: from, Actor: "test"})
	if err != nil || outcome.Refused() {
		d.t.Fatalf("%v %+v", err, outcome)
	}
}

func (d *till) verify() {
	d.t.Helper()
	err := d.stored.Dump(context.Background(), func(r store.Record) error {
		differences, err := holdfast.Verify(&r.Account, r.Grants, r.Reservations, r.Entries)
		for _, difference := range differences {
			d.t.Errorf("%s: %s", r.Account.Name, difference)
		}
		return err
	})
	if err != nil {
		d.t.Fatal(err)
	}
}

func TestAPaymentWhoseEffectWasLostIsGrantedOnceByTheNextDelivery(t *testing.T) {
	eachStore(t, func(t *testing.T, d *till) {
		d.broken = 1
		if _, err := d.pay("ann", "c1", "credits_100", 100); err == nil {
			t.Fatal("nothing was lost")
		}
		if paid, _, err := d.Find(t.Context(), "p", "stars", "c1"); paid != nil || err != nil {
			t.Errorf("a claim is no effect: %+v %v", paid, err)
		}
		if first := d.paid("ann", "c1", "credits_100", 100); !first.First || !first.Changed || first.Payment.State != holdfast.PaymentGranted {
			t.Errorf("delivered again: %+v", first)
		}
		if again := d.paid("ann", "c1", "credits_100", 100); again.First || again.Changed {
			t.Errorf("and once more: %+v", again)
		}
		d.has("ann", 100)
		d.verify()
	})
}

// Between the claim and the effect everything else can come.
func TestARefundThatComesBetweenAClaimAndItsEffectIsAppliedWithTheEffect(t *testing.T) {
	eachStore(t, func(t *testing.T, d *till) {
		d.broken = 1
		_, _ = d.pay("ann", "c1", "credits_100", 100)
		if _, pending := d.refund("c1", "r1"); !pending {
			t.Error("it was refunded before it was granted")
		}
		if _, pending := d.refund("c1", "r1"); !pending {
			t.Error("it was refunded the second time")
		}
		if outcome := d.paid("ann", "c1", "credits_100", 100); outcome.Payment.Refunded != 100 || !outcome.First {
			t.Errorf("%+v", outcome.Payment)
		}
		if again, pending := d.refund("c1", "r1"); pending || again.Changed || again.Payment.Refunded != 100 {
			t.Errorf("%+v", again.Payment)
		}
		d.has("ann", 0)
		d.verify()
	})
}

func TestARefundThatComesWhileItsPaymentIsBeingDecidedIsApplied(t *testing.T) {
	eachStore(t, func(t *testing.T, d *till) {
		d.before = func() {
			if _, pending := d.refund("c1", "r1"); !pending {
				t.Error("it was refunded before it was granted")
			}
		}
		if outcome := d.paid("ann", "c1", "credits_100", 100); outcome.Payment.Refunded != 100 || !outcome.First || !outcome.Changed {
			t.Errorf("%+v", outcome)
		}
		d.has("ann", 0)
		d.verify()
	})
}

// The claim may be from before its account was merged, and the effect at any account on the way.
func TestAPaymentIsFoundAndRefundedWhereverItsAccountLedWhenItArrived(t *testing.T) {
	eachStore(t, func(t *testing.T, d *till) {
		for _, name := range []string{"ann", "bob", "eve"} {
			d.paid(name, "first of "+name, "credits_100", 100)
		}
		d.broken = 1
		_, _ = d.pay("ann", "c1", "credits_100", 100) // claimed for ann
		d.merge("bob", "ann")
		d.paid("ann", "c1", "credits_100", 100) // decided for bob
		d.merge("eve", "bob")
		d.has("eve", 400)
		if again := d.paid("ann", "c1", "credits_100", 100); again.Changed {
			t.Errorf("granted again: %+v", again)
		}
		paid, owner, err := d.Find(t.Context(), "p", "stars", "c1")
		if err != nil || paid == nil || owner != holdfast.AccountIDOf("p", "bob") {
			t.Fatalf("%+v of %s: %v", paid, owner, err)
		}
		if outcome, pending := d.refund("c1", "r1"); pending || !outcome.Changed || outcome.Payment.Refunded != 100 {
			t.Errorf("%+v", outcome)
		}
		if err := d.Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.has("eve", 300)
		if again := d.paid("eve", "first of ann", "credits_100", 100); again.Changed || again.Payment.State != holdfast.PaymentGranted {
			t.Errorf("told for the account that has taken its place: %+v", again.Payment)
		}
		d.verify()
	})
}

func TestAPaymentOfSomebodyElseGrantsNothingAndIsTold(t *testing.T) {
	d := open(t, memory.Open())
	d.paid("ann", "c1", "credits_100", 100)
	stranger := d.paid("bob", "c1", "credits_100", 100)
	if stranger.Payment.State != holdfast.PaymentFlagged || stranger.Payment.Flag != holdfast.WrongPerson || stranger.First {
		t.Errorf("%+v", stranger.Payment)
	}
	if paid, _, err := d.Find(t.Context(), "p", "stars", "c1"); err != nil || paid.State != holdfast.PaymentGranted {
		t.Errorf("its owner's: %+v %v", paid, err)
	}
	// Its owner's account may not be there yet.
	d.broken = 1
	_, _ = d.pay("eve", "c2", "credits_100", 100)
	if stranger := d.paid("bob", "c2", "credits_100", 100); stranger.Payment.Flag != holdfast.WrongPerson {
		t.Errorf("%+v", stranger.Payment)
	}
	if mine := d.paid("eve", "c2", "credits_100", 100); mine.Payment.State != holdfast.PaymentGranted || !mine.First {
		t.Errorf("%+v", mine.Payment)
	}
	d.has("ann", 100)
	d.has("bob", 0)
	d.has("eve", 100)
	if lines := strings.Count(d.log.String(), `level=ERROR msg="a payment was kept and granted nothing" provider=stars`); lines != 2 {
		t.Errorf("told %d times:\n%s", lines, d.log.String())
	}
	d.verify()
}

func TestEveryPaymentThatGrantsNothingIsTheOperatorsBusiness(t *testing.T) {
	d := open(t, memory.Open())
	d.paid("blocked", "c0", "credits_100", 100)
	yes := true
	if _, err := d.Submit(t.Context(), holdfast.Command{Project: "p", Account: "blocked", Do: holdfast.PutAccount{Blocked: &yes}}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		account, product string
		amount           holdfast.Amount
		flag             holdfast.Flag
	}{
		{"ann", "credits_100", 99, holdfast.WrongAmount}, {"ann", "gold", 100, holdfast.WrongProduct}, {"blocked", "pro_30", 250, holdfast.PayerBlocked},
	} {
		d.log.Reset()
		outcome := d.paid(c.account, string(c.flag), c.product, c.amount)
		if outcome.Payment.Flag != c.flag || !outcome.First {
			t.Errorf("%s: %+v", c.flag, outcome.Payment)
		}
		line := d.log.String()
		for _, part := range []string{"level=ERROR", "provider=stars", "flag=" + string(c.flag), "account=" + holdfast.AccountIDOf("p", c.account).String()} {
			if !strings.Contains(line, part) {
				t.Errorf("%s is not told: %s", part, line)
			}
		}
	}
	d.has("ann", 0)
	if paid := d.paid("ann", "c1", "pro_30", 250); paid.Account.Subscription == nil || paid.Payment.PeriodEnd.Sub(paid.Payment.PeriodStart) != 30*24*time.Hour {
		t.Errorf("%+v", paid)
	}
	d.has("ann", 300)
	d.verify()
}
