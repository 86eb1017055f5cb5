package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/apitest"
	"github.com/holdfast-dev/holdfast/payment"
)

// twins are an engine asked in process, and another one asked over HTTP, on one standing clock: the same commands must come
// to the same outcomes.
type twins struct {
	t    *testing.T
	here *apitest.Server
	far  *client.Client
	now  time.Time
	seen map[string]bool // names of operations
}

func newTwins(t *testing.T) *twins {
	w := &twins{t: t, now: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC), seen: map[string]bool{}}
	options := engine.Options{Catalog: tariffOf, Now: func() time.Time { return w.now }}
	w.here = start(t, options)
	w.far = dial(t, start(t, options).URL)
	return w
}

// outcomes are what one step came to on either side.
type outcomes struct{ here, far holdfast.Outcome }

// both submits a command to either side, which is made from what came of an earlier step there, and compares.
func (w *twins) both(account, key string, from outcomes, do func(before holdfast.Outcome) holdfast.Operation) outcomes {
	w.t.Helper()
	return w.compare(
		do(from.here), account,
		func() (holdfast.Outcome, error) {
			return w.here.Engine.Submit(w.t.Context(), command(account, key, do(from.here)))
		},
		func() (holdfast.Outcome, error) {
			return w.far.Submit(w.t.Context(), command(account, key, do(from.far)))
		},
	)
}

// compare has one and the same done on either side.
func (w *twins) compare(do holdfast.Operation, account string, here, far func() (holdfast.Outcome, error)) outcomes {
	w.t.Helper()
	w.seen[do.Name()] = true
	var o outcomes
	var err error
	if o.here, err = here(); err != nil {
		w.t.Fatalf("in process: %v", err)
	}
	if o.far, err = far(); err != nil {
		w.t.Fatalf("over HTTP: %v", err)
	}
	if difference := cmp.Diff(shown(w.t, o.here), shown(w.t, o.far), cmpopts.EquateEmpty()); difference != "" {
		w.t.Errorf("%s of %s (-in process +over HTTP)\n%s", do.Name(), account, difference)
	}
	return o
}

// pay tells of a payment: in process at the desk, which is where the API's payments come in too. It must come to the state,
// or, where nothing is decided, to the reason.
func (w *twins) pay(account string, op holdfast.Pay, want string) {
	w.t.Helper()
	op.Provider = "stars"
	o := w.compare(
		op, account,
		func() (holdfast.Outcome, error) {
			outcome, err := deskOf(w.here).Pay(w.t.Context(), payment.Request{Project: apitest.Project, Account: account}, op)
			if err == nil && outcome.Owner.Merged { // the API shows the account that took its place
				outcome.Account, err = w.here.Engine.View(w.t.Context(), apitest.Project, account)
			}
			outcome.First = outcome.First && want == string(holdfast.PaymentGranted) // the API tells 201 of these alone
			return outcome, err
		},
		func() (holdfast.Outcome, error) { return w.far.Submit(w.t.Context(), command(account, "", op)) },
	)
	w.came(o, want)
}

// refund tells of a refund, whose account nobody names.
func (w *twins) refund(paymentID string, refund holdfast.PaymentRefund, want string) {
	w.t.Helper()
	op := holdfast.RefundPayment{Provider: "stars", PaymentID: paymentID, Refund: refund}
	w.came(w.compare(
		op, paymentID,
		func() (holdfast.Outcome, error) {
			outcome, pending, err := deskOf(w.here).Refund(w.t.Context(), payment.Request{Project: apitest.Project}, op)
			if pending {
				outcome.Reason = client.Pending // what the client calls it
			}
			return outcome, err
		},
		func() (holdfast.Outcome, error) {
			return w.far.Submit(w.t.Context(), holdfast.Command{Do: op})
		},
	), want)
}

// came checks on either side what became of a payment.
func (w *twins) came(o outcomes, want string) {
	w.t.Helper()
	for side, outcome := range map[string]holdfast.Outcome{"in process": o.here, "over HTTP": o.far} {
		got := string(outcome.Reason)
		if outcome.Payment != nil {
			got = string(outcome.Payment.State)
			if outcome.Payment.Flag != "" {
				got = string(outcome.Payment.Flag)
			}
		}
		if got != want {
			w.t.Errorf("%s it came to %q, want %q", side, got, want)
		}
	}
}

// namer does what is about two names.
type namer interface {
	Alias(ctx context.Context, names engine.Names) (holdfast.Outcome, error)
	Merge(ctx context.Context, names engine.Names) (holdfast.Outcome, error)
}

// names links or merges two names. The reason is empty where it is done.
func (w *twins) names(do func(namer, context.Context, engine.Names) (holdfast.Outcome, error), of holdfast.Operation, names engine.Names, want holdfast.Reason) {
	w.t.Helper()
	names.Project = apitest.Project
	o := w.compare(
		of, names.Other,
		func() (holdfast.Outcome, error) {
			outcome, err := do(w.here.Engine, w.t.Context(), names)
			if _, alias := of.(holdfast.LinkAlias); alias && outcome.Account != nil {
				// Of the account the API shows its name and balances.
				outcome.Account = &holdfast.AccountView{
					Exists: true, Account: holdfast.Account{Name: outcome.Account.Account.Name}, Balances: outcome.Account.Balances,
				}
			}
			return outcome, err
		},
		func() (holdfast.Outcome, error) { return do(w.far, w.t.Context(), names) },
	)
	if o.far.Reason != want {
		w.t.Errorf("%s of %s: %q, want %q", of.Name(), names.Other, o.far.Reason, want)
	}
}

// shown is an outcome without what differs between two engines (ids, tokens), and without what the API does not show.
func shown(t *testing.T, o holdfast.Outcome) holdfast.Outcome {
	t.Helper()
	encoded, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	s := holdfast.Outcome{Replayed: o.Replayed, DryRun: o.DryRun}
	if err := json.Unmarshal(encoded, &s); err != nil {
		t.Fatal(err)
	}
	if r := s.Reservation; r != nil {
		r.ID, r.LeaseToken = holdfast.ID{}, ""
		r.Policies, r.TTL, r.MaxHold, r.LateAt, r.Voided = holdfast.Policies{}, 0, 0, time.Time{}, 0
		if !r.CancelRequestedAt.IsZero() {
			r.CancelRequestedAt = time.Unix(1, 0)
		}
		for i := range r.Allocations {
			a := &r.Allocations[i]
			a.Reserved, a.Used, a.Refunded = max(a.Reserved, a.Used), 0, 0
			a.Grant = holdfast.ID{}
		}
	}
	if s.Lease != nil {
		s.Lease.Token = ""
	}
	if s.Refusal != nil {
		s.Refusal.Plan = ""
	}
	if g := s.Grant; g != nil {
		g.ID, g.Open, g.Allowance = holdfast.ID{}, false, ""
	}
	if s.Account != nil {
		a := &s.Account.Account
		a.ID, a.Project, a.Version, a.LastEntry = holdfast.AccountID{}, "", 0, 0
		if !a.DeletedAt.IsZero() {
			a.Name = "" // the API answers with the name that was asked for
		}
		a.Anchor, a.AnchorZone, a.DecidedAt, a.Debts, a.Plan = time.Time{}, "", time.Time{}, nil, ""
		a.MergedInto, a.Names, a.Line, a.Transfers, a.Subscription, a.Lapsed = holdfast.AccountID{}, nil, 0, nil, nil, "" // the view has what people see of it
	}
	if p := s.Payment; p != nil {
		p.ID, p.Kept, p.Refunds, p.OwedOf = holdfast.ID{}, 0, nil, nil
		s.Balance = nil // it is among those of the account
		if view := s.Account; view != nil {
			s.Account = &holdfast.AccountView{Exists: view.Exists, Subscription: view.Subscription, Balances: view.Balances}
		}
	}
	if o.Refused() {
		s.Balance, s.Account = nil, nil // the API shows the numbers, or the reservation as it is
	}
	return s
}

func TestEveryOperationComesToTheSameOutcomeInProcessAndOverHTTP(t *testing.T) {
	w := newTwins(t)
	none := outcomes{}
	op := func(do holdfast.Operation) func(holdfast.Outcome) holdfast.Operation {
		return func(holdfast.Outcome) holdfast.Operation { return do }
	}
	amount := func(n holdfast.Amount) *holdfast.Amount { return &n }
	text := func(s string) *string { return &s }
	yes, no := true, false

	// Accounts.
	w.both("ann", "", none, op(holdfast.PutAccount{Language: text("ru"), TimeZone: text("Europe/Moscow"), Notices: &yes, Metadata: map[string]string{"chat": "42"}}))
	w.both("ann", "", none, op(holdfast.PutAccount{Language: text("ru")}))
	w.both("ann", "", none, op(holdfast.PutAccount{TimeZone: text("Mars/Olympus")}))
	w.both("ann", "g1", none, op(holdfast.AddGrant{
		Unit: "credit", Amount: 40, Source: holdfast.FromPurchase, Priority: new(int), Features: []string{"text", "image", "chat"},
		StartsAt: time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC), EndsAt: time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC), Reason: "bank transfer",
	}))
	w.both("ann", "g1", none, op(holdfast.AddGrant{Unit: "credit", Amount: 41}))
	w.both("ann", "g2", none, op(holdfast.AddGrant{Unit: "gold", Amount: 1}))
	w.both("nobody", "g1", none, op(holdfast.AddGrant{Unit: "credit", Amount: 1}))
	w.both("ann", "a1", none, op(holdfast.Adjust{Unit: "credit", Amount: 5, Reason: "sorry"}))
	w.both("ann", "a2", none, op(holdfast.Adjust{Unit: "credit", Amount: -5, Reason: "and back"}))
	w.both("ann", "a3", none, op(holdfast.Adjust{Unit: "credit", Amount: -500, Reason: "too much"}))
	w.both("ann", "", none, op(holdfast.SetPlan{Plan: "free"}))

	// A reservation at a fixed price, with everything that can be said about one.
	text3 := holdfast.Reserve{Feature: "text", Quantity: 3, Usage: map[string]holdfast.Amount{"page": 2}, Surface: "bot", TTL: 7 * time.Minute, Metadata: map[string]string{"chat": "42"}}
	dry := text3
	dry.DryRun = true
	w.both("ann", "", none, op(dry))
	r := w.both("ann", "m1", none, op(text3))
	w.both("ann", "m1", none, op(text3))
	w.both("ann", "m1", none, op(holdfast.Reserve{Feature: "text", Quantity: 4}))
	w.both("ann", "", r, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Extend{ReservationID: o.Reservation.ID, TTL: 9 * time.Minute, Quantity: amount(4)}
	})
	w.both("ann", "", r, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Extend{ReservationID: o.Reservation.ID, Quantity: amount(4000)}
	})
	w.both("ann", "", r, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Heartbeat{ReservationID: o.Reservation.ID, LeaseToken: "none yet"}
	})
	started := w.both("ann", "", r, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Start{ReservationID: o.Reservation.ID, Worker: "w1", Lease: 30 * time.Second}
	})
	w.both("ann", "", r, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Start{ReservationID: o.Reservation.ID}
	})
	w.both("ann", "", started, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Heartbeat{ReservationID: o.Reservation.ID, LeaseToken: o.Lease.Token, Lease: time.Minute}
	})
	w.both("ann", "", r, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Commit{ReservationID: o.Reservation.ID}
	})
	w.both("ann", "", r, func(o holdfast.Outcome) holdfast.Operation { return holdfast.Cancel{ReservationID: o.Reservation.ID} })
	w.both("ann", "", started, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Heartbeat{ReservationID: o.Reservation.ID, LeaseToken: o.Lease.Token}
	})
	w.both("ann", "", started, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Commit{ReservationID: o.Reservation.ID, LeaseToken: o.Lease.Token}
	})
	for range 2 {
		w.both("ann", "", started, func(o holdfast.Outcome) holdfast.Operation {
			return holdfast.Commit{ReservationID: o.Reservation.ID, LeaseToken: o.Lease.Token, Quantity: amount(2)}
		})
	}
	w.both("ann", "", started, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Release{ReservationID: o.Reservation.ID, LeaseToken: o.Lease.Token}
	})
	w.both("ann", "rf1", r, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Refund{ReservationID: o.Reservation.ID, Amount: amount(1), Ended: holdfast.EndedCorrection, Reason: "half of it was bad"}
	})
	w.both("ann", "rf2", r, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Refund{ReservationID: o.Reservation.ID, Amount: amount(100)}
	})

	// By usage, with an overrun that leaves debt; in doubt; forced; released; cancelled.
	chat := holdfast.Reserve{Feature: "chat", Usage: map[string]holdfast.Amount{"input_token": 1200, "output_token": 4096}}
	c := w.both("ann", "m2", none, op(chat))
	w.both("ann", "", c, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Extend{ReservationID: o.Reservation.ID, Usage: map[string]holdfast.Amount{"input_token": 2000, "output_token": 4096}}
	})
	w.both("ann", "", c, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Commit{ReservationID: o.Reservation.ID, Usage: map[string]holdfast.Amount{"output_token": 20000}}
	})
	w.both("ann", "m3", none, op(holdfast.Reserve{Feature: "chat", Usage: map[string]holdfast.Amount{"output_token": 20000}}))
	w.both("ann", "m4", none, op(holdfast.Reserve{Feature: "image", Quantity: 3}))
	w.both("ann", "g3", none, op(holdfast.AddGrant{Unit: "credit", Amount: 100, Source: holdfast.FromPurchase}))
	d := w.both("ann", "m5", none, op(holdfast.Reserve{Feature: "text"}))
	d = w.both("ann", "", d, func(o holdfast.Outcome) holdfast.Operation { return holdfast.Start{ReservationID: o.Reservation.ID} })
	w.both("ann", "", d, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.InDoubt{ReservationID: o.Reservation.ID, LeaseToken: o.Lease.Token}
	})
	w.both("ann", "", d, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Force{ReservationID: o.Reservation.ID, End: holdfast.EndCommit, Amount: amount(0), Reason: "the provider says it never arrived"}
	})
	d = w.both("ann", "m6", none, op(holdfast.Reserve{Feature: "text"}))
	w.both("ann", "rf3", d, func(o holdfast.Outcome) holdfast.Operation { return holdfast.Refund{ReservationID: o.Reservation.ID} })
	w.both("ann", "", d, func(o holdfast.Outcome) holdfast.Operation {
		return holdfast.Release{ReservationID: o.Reservation.ID, Cause: "provider_unavailable"}
	})
	d = w.both("ann", "m7", none, op(holdfast.Reserve{Feature: "text"}))
	w.both("ann", "", d, func(o holdfast.Outcome) holdfast.Operation { return holdfast.Cancel{ReservationID: o.Reservation.ID} })
	w.both("ann", "", none, op(holdfast.Cancel{ReservationID: holdfast.ID{1}}))

	// Charges, refusals of every kind, and what is wrong with a request.
	w.both("ann", "m8", none, op(holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text", Quantity: 5}, Amount: amount(3)}))
	w.both("ann", "m9", none, op(holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text", Quantity: 5000}}))
	w.both("ann", "", none, op(holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text", DryRun: true}}))
	w.both("ann", "", none, op(holdfast.Reserve{Feature: "text", Quantity: 5000, DryRun: true}))
	w.both("ann", "m10", none, op(holdfast.Reserve{Feature: "video"}))
	w.both("bob", "m1", none, op(holdfast.Reserve{Feature: "text", Quantity: 3}))
	w.both("bob", "m2", none, op(holdfast.Reserve{Feature: "text"}))
	for _, key := range []string{"m11", "m12", "m13", "m14"} {
		w.both("ann", key, none, op(holdfast.Reserve{Feature: "text"}))
	}
	w.both("ann", "m15", none, op(holdfast.Reserve{Feature: "nothing", TTL: 48 * time.Hour}))
	w.both("ann", "", none, op(holdfast.Reserve{Feature: "text"}))
	w.both("bob", "", none, op(holdfast.PutAccount{Blocked: &yes}))
	w.both("bob", "m3", none, op(holdfast.Reserve{Feature: "text"}))
	w.both("bob", "", none, op(holdfast.PutAccount{Blocked: &no}))
	w.both("bob", "", none, op(holdfast.SetPlan{Plan: "pro"}))
	w.both("bob", "", none, op(holdfast.DeleteAccount{}))
	w.both("bob", "", none, op(holdfast.DeleteAccount{}))

	// Payments, each flag, and what cannot be taken at all.
	stars := func(id, product string, n holdfast.Amount) holdfast.Pay {
		return holdfast.Pay{PaymentID: id, Product: product, Amount: n, Currency: "XTR"}
	}
	subscribed := func(do holdfast.Operation, want holdfast.Reason) {
		t.Helper()
		if o := w.both("eve", "", none, op(do)); o.far.Reason != want {
			t.Errorf("%s: %q, want %q", do.Name(), o.far.Reason, want)
		}
	}
	for _, do := range []holdfast.Operation{holdfast.ChangePlan{Plan: "max"}, holdfast.CancelSubscription{}, holdfast.ResumeSubscription{}} {
		subscribed(do, holdfast.NotFound)
	}
	w.both("eve", "", none, op(holdfast.PutAccount{}))
	for _, do := range []holdfast.Operation{holdfast.ChangePlan{Plan: "max"}, holdfast.CancelSubscription{}, holdfast.ResumeSubscription{}} {
		subscribed(do, holdfast.SubscriptionInactive)
	}
	for range 2 {
		w.pay("eve", stars("p1", "basic_30", 100), "granted")
	}
	w.pay("fay", stars("p1", "basic_30", 100), "wrong_person")
	w.pay("eve", stars("p2", "basic_30", 99), "wrong_amount")
	w.pay("eve", stars("p3", "gold", 100), "wrong_product")
	w.pay("eve", stars("a/../b c%", "images_10", 50), "granted")
	late := stars("p5", "basic_30", 100)
	late.PeriodEnd = w.now.AddDate(1, 0, 0)
	w.pay("eve", late, "invalid")
	soon := stars("p6", "max_30", 250)
	soon.PeriodEnd = w.now.AddDate(0, 0, 20)
	w.pay("gus", soon, "granted")

	// Subscriptions, by an answer under a key as well.
	subscribed(holdfast.CancelSubscription{}, "")
	subscribed(holdfast.CancelSubscription{}, "")
	subscribed(holdfast.ResumeSubscription{}, "")
	subscribed(holdfast.ChangePlan{Plan: "max", When: holdfast.ChangeAtTheEnd}, "")
	subscribed(holdfast.ChangePlan{Plan: "gold"}, holdfast.Invalid)
	for range 2 {
		w.both("eve", "up", none, op(holdfast.ChangePlan{Plan: "max"}))
	}
	subscribed(holdfast.ChangePlan{Plan: "basic"}, "")
	subscribed(holdfast.ChangePlan{Plan: "basic", When: holdfast.ChangeNow}, holdfast.Invalid)
	subscribed(holdfast.SetPlan{Plan: "pro"}, holdfast.Invalid)
	w.pay("hal", stars("p7", "basic_30", 100), "granted")
	w.now = w.now.AddDate(0, 0, 31) // the grace has begun
	w.both("hal", "", none, op(holdfast.PutAccount{Language: text("en")}))

	// Refunds: in parts, once each, by each policy, of a dispute, before the payment, and too many.
	w.pay("ida", stars("p8", "max_30", 250), "granted")
	for range 2 {
		w.refund("p8", holdfast.PaymentRefund{ID: "r1", Amount: amount(100)}, "granted")
	}
	w.refund("p8", holdfast.PaymentRefund{ID: "r2"}, "granted")
	w.refund("p2", holdfast.PaymentRefund{ID: "r1"}, "wrong_amount")
	for i, refund := range []holdfast.PaymentRefund{
		{ID: "r1", Chosen: true},
		{ID: "r1", Chosen: true, Policy: holdfast.RefundKeep},
		{ID: "r1", Chosen: true, Policy: holdfast.RefundAllAsDebt},
		{ID: "r1", Dispute: true},
		{ID: "r1", Dispute: true, Chosen: true},
	} {
		account, id := fmt.Sprint("jo", i), fmt.Sprint("q", i)
		w.pay(account, stars(id, "images_10", 50), "granted")
		w.both(account, "m1", none, op(holdfast.Charge{Reserve: holdfast.Reserve{Feature: "image", Quantity: 4}}))
		w.refund(id, refund, "granted")
		w.both(account, "", none, op(holdfast.PutAccount{}))
	}
	for range 2 {
		w.refund("p9", holdfast.PaymentRefund{ID: "r1", Amount: amount(100)}, "pending")
	}
	w.pay("kim", stars("p9", "max_30", 250), "granted")
	w.refund("p9", holdfast.PaymentRefund{ID: "r1", Amount: amount(100)}, "granted")
	w.refund("p10", holdfast.PaymentRefund{ID: "r1"}, "pending")
	w.pay("kim", stars("p10", "images_10", 50), "refunded")
	w.refund("p9", holdfast.PaymentRefund{ID: "r2", Amount: amount(0)}, "invalid")

	// Names: of nobody, new, already so, an account's own; then merged.
	alias, merge := namer.Alias, namer.Merge
	w.names(alias, holdfast.LinkAlias{}, engine.Names{Account: "nobody", Other: "web:1"}, holdfast.NotFound)
	w.names(alias, holdfast.LinkAlias{}, engine.Names{Account: "bob", Other: "web:1"}, holdfast.AccountBlocked)
	for _, key := range []string{"", "", "k1", "k1"} {
		w.names(alias, holdfast.LinkAlias{}, engine.Names{Account: "eve", Other: "web:1" + key, Key: key}, "")
	}
	w.names(alias, holdfast.LinkAlias{}, engine.Names{Account: "web:1", Other: "web:2"}, "")
	w.names(alias, holdfast.LinkAlias{}, engine.Names{Account: "eve", Other: "kim"}, holdfast.AccountExists)
	w.names(alias, holdfast.LinkAlias{}, engine.Names{Account: "eve", Other: "eve"}, holdfast.Invalid)
	w.both("web:1", "", none, op(holdfast.PutAccount{Language: text("ru")}))
	w.pay("web:2", stars("p11", "images_10", 50), "granted")
	w.names(merge, holdfast.MergeInto{}, engine.Names{Account: "nobody", Other: "kim"}, holdfast.NotFound)
	w.names(merge, holdfast.MergeInto{}, engine.Names{Account: "eve", Other: "nobody"}, holdfast.NotFound)
	w.names(merge, holdfast.MergeInto{}, engine.Names{Account: "eve", Other: "bob"}, holdfast.AccountBlocked)
	w.names(merge, holdfast.MergeInto{}, engine.Names{Account: "eve", Other: "eve"}, holdfast.Invalid)
	for _, key := range []string{"k1", "k1", ""} {
		w.names(merge, holdfast.MergeInto{}, engine.Names{Account: "eve", Other: "kim", Key: key}, "")
	}
	w.names(merge, holdfast.MergeInto{}, engine.Names{Account: "gus", Other: "kim", Key: "k1"}, holdfast.KeyReused)
	w.both("kim", "", none, op(holdfast.PutAccount{}))
	w.pay("kim", stars("p9", "max_30", 250), "granted")

	for _, name := range operations(t) {
		if _, own := enginesOwn[name]; !own && !w.seen[name] {
			t.Errorf("no step does %q", name)
		}
	}
}

// enginesOwn are the operations that no caller sends, and why. The client does not send them either:
// TestNothingIsSentThatCannotBeRight.
var enginesOwn = map[string]holdfast.Operation{
	"expire":         holdfast.Expire{},        // the sweeper's: time decides it, not a caller
	"end_lost":       holdfast.EndLost{},       // the sweeper's too: a lease that was lost decides it
	"announce_merge": holdfast.AnnounceMerge{}, // the first part of a merge: whoever announces it must look for circles afterwards
	"withdraw_merge": holdfast.WithdrawMerge{}, // which part belongs to it: only what would close a circle is taken back
	"register_name":  holdfast.RegisterName{},  // of an alias and a merge: the account that is led to learns of the name first
	"forget_name":    holdfast.ForgetName{},    // of a deletion: a name is forgotten with the account that it leads to
	"stop_work":      holdfast.StopWork{},      // of a refund: which reservations took from what was refunded, the ledger knows
	"take_over":      holdfast.TakeOver{},      // its third: only what has left an account may arrive at another
	"transfer_done":  holdfast.TransferDone{},  // its last: what was forgotten before it arrived would be lost
}

// operations are the names of the core's operations.
func operations(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declared := range file.Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok || function.Recv == nil || function.Name.Name != "Name" {
				continue
			}
			returned := function.Body.List[0].(*ast.ReturnStmt).Results[0].(*ast.BasicLit)
			names = append(names, strings.Trim(returned.Value, `"`))
		}
	}
	for own, do := range enginesOwn {
		if do.Name() != own || !slices.Contains(names, own) {
			t.Fatalf("%s is not among %v", own, names)
		}
	}
	return names
}

func TestNothingIsSentThatCannotBeRight(t *testing.T) {
	address, requests := answers(t, answer(500, ""))
	c := dial(t, address)
	id := holdfast.ID{1}
	type wrongly struct {
		command holdfast.Command
		field   string
	}
	pay := holdfast.Pay{Provider: "stars", PaymentID: "p1", Product: "basic_30", Amount: 100, Currency: "XTR"}
	agreed, stranger, refundedPay := pay, pay, pay
	agreed.Agreed, stranger.Stranger, refundedPay.Refunds = true, true, []holdfast.PaymentRefund{{ID: "r1"}}
	refundOf := holdfast.RefundPayment{Provider: "stars", PaymentID: "p1", Refund: holdfast.PaymentRefund{ID: "r1"}}
	commands := map[string]wrongly{
		"a reserve without a key":           {command("ann", "", holdfast.Reserve{Feature: "text"}), "key"},
		"a charge without a key":            {command("ann", "", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text"}}), "key"},
		"a grant without a key":             {command("ann", "", holdfast.AddGrant{Unit: "credit", Amount: 1}), "key"},
		"an adjustment without a key":       {command("ann", "", holdfast.Adjust{Unit: "credit", Amount: 1, Reason: "r"}), "key"},
		"a refund without a key":            {command("ann", "", holdfast.Refund{ReservationID: id}), "key"},
		"a blank key":                       {command("ann", " ", holdfast.Reserve{Feature: "text"}), "key"},
		"a key that a header would change":  {command("ann", "m1 ", holdfast.Reserve{Feature: "text"}), "key"},
		"a key that no header carries":      {command("ann", "m\n1", holdfast.Reserve{Feature: "text"}), "key"},
		"an account that no path carries":   {command("a/b", "m1", holdfast.Reserve{Feature: "text"}), "account"},
		"a part of a second":                {command("ann", "m1", holdfast.Reserve{Feature: "text", TTL: 1500 * time.Millisecond}), "ttl_seconds"},
		"a lease with a part of a second":   {command("ann", "", holdfast.Start{ReservationID: id, Lease: 5500 * time.Millisecond}), "lease_seconds"},
		"a reservation without its account": {holdfast.Command{Account: "ann", Do: holdfast.Cancel{ReservationID: id}}, "account"},
		"an account that is not named":      {holdfast.Command{Target: holdfast.AccountID{1}, Do: holdfast.SetPlan{Plan: "pro"}}, "account"},
		"an alias of an account's id":       {command("ann", "", holdfast.LinkAlias{Into: holdfast.AccountID{1}}), "operation"},
		"a merge into an account's id":      {command("ann", "k", holdfast.MergeInto{Into: holdfast.AccountID{1}}), "operation"},
		"a payment of a payer not named":    {holdfast.Command{Target: holdfast.AccountID{1}, Do: pay}, "account"},
		"a payment without a payer":         {holdfast.Command{Do: pay}, "account"},
		"a payment at an agreed price":      {command("ann", "", agreed), "operation"},
		"a payment of a stranger":           {command("ann", "", stranger), "operation"},
		"a payment with its refunds":        {command("ann", "", refundedPay), "operation"},
		"a payment without its id":          {command("ann", "", holdfast.Pay{Provider: "stars", Product: "basic_30", Currency: "XTR"}), "payment_id"},
		"a refund that names an account":    {command("ann", "", refundOf), "account"},
		"a refund of an account's id":       {holdfast.Command{Target: holdfast.AccountID{1}, Do: refundOf}, "account"},
		"a refund without its id":           {holdfast.Command{Do: holdfast.RefundPayment{Provider: "stars", PaymentID: "p1"}}, "refund_id"},
		"a refund of an unknown kind":       {holdfast.Command{Do: holdfast.RefundPayment{Provider: "stars", PaymentID: "p1", Refund: holdfast.PaymentRefund{ID: "r1", Policy: "all"}}}, "policy"},
	}
	for name, own := range enginesOwn {
		commands[name+", which is the server's own"] = wrongly{command("ann", "k", own), "operation"}
	}
	for name, wrong := range commands {
		o, err := c.Submit(t.Context(), wrong.command)
		if err != nil || o.Reason != holdfast.Invalid || !slices.ContainsFunc(o.Problems, func(p holdfast.Problem) bool { return p.Field == wrong.field }) {
			t.Errorf("%s: %+v %v", name, o, err)
		}
		if results := c.SubmitAll(t.Context(), []holdfast.Command{wrong.command}); results[0].Outcome.Reason != holdfast.Invalid {
			t.Errorf("%s, in a batch: %+v", name, results[0])
		}
	}
	for field, names := range map[string]engine.Names{
		"account": {Account: "a b", Other: "eve"}, "key": {Account: "ann", Other: "eve", Key: "k "},
	} {
		for _, do := range []func(context.Context, engine.Names) (holdfast.Outcome, error){c.Alias, c.Merge} {
			if o, err := do(t.Context(), names); err != nil || o.Reason != holdfast.Invalid || o.Problems[0].Field != field {
				t.Errorf("names with a wrong %s: %+v %v", field, o, err)
			}
		}
	}
	if o, err := c.Alias(t.Context(), engine.Names{Account: "ann", Other: "a/b"}); err != nil || o.Problems[0].Field != "alias" {
		t.Errorf("%+v %v", o, err)
	}
	if o, err := c.Merge(t.Context(), engine.Names{Account: "ann", Other: ""}); err != nil || o.Problems[0].Field != "from" {
		t.Errorf("%+v %v", o, err)
	}
	for _, ids := range [][2]string{{"", "p1"}, {"stars", ""}, {"Stars", "p1"}} {
		if _, err := c.Payment(t.Context(), ids[0], ids[1]); refusalOf(err) != holdfast.Invalid {
			t.Errorf("payment %q: %v", ids, err)
		}
	}
	if n := len(requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestPaymentsAndSubscriptionsKeepTheirPlaceAmongManyCommands(t *testing.T) {
	_, c := serve(t)
	refund := holdfast.RefundPayment{Provider: "stars", PaymentID: "p1", Refund: holdfast.PaymentRefund{ID: "r1", Amount: new(holdfast.Amount(50))}}
	results := c.SubmitAll(t.Context(), []holdfast.Command{
		command("ann", "m1", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text", Quantity: 5}}),
		{Do: refund},
		command("ann", "", holdfast.Pay{Provider: "stars", PaymentID: "p1", Product: "basic_30", Amount: 100, Currency: "XTR"}),
		command("ann", "m2", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text", Quantity: 5}}),
		command("ann", "", holdfast.ChangePlan{Plan: "max"}),
		command("ann", "", holdfast.CancelSubscription{}),
		command("ann", "k", holdfast.ResumeSubscription{}),
		{Do: refund},
	})
	var came []string
	for _, r := range results {
		o := r.Outcome
		switch {
		case r.Err != nil:
			t.Fatal(r.Err)
		case o.Refused():
			came = append(came, string(o.Reason))
		case o.Account != nil:
			s := o.Account.Subscription
			came = append(came, fmt.Sprintf("%s %s %d changed=%t", s.Plan, s.Status, o.Account.Balances[0].Available, o.Changed))
		default:
			came = append(came, fmt.Sprint("charged ", o.Reservation.Used))
		}
	}
	want := []string{ // half of basic's 100 was refunded, 5 charged; max gives 200 more
		"insufficient", "pending", "basic active 50 changed=true", "charged 5", "max active 245 changed=true",
		"max cancelled 245 changed=true", "max active 245 changed=true", "max active 245 changed=false",
	}
	if difference := cmp.Diff(want, came); difference != "" {
		t.Error(difference)
	}
}

func TestAPaymentAndAMergeWhoseAnswersAreLostAreDoneOnce(t *testing.T) {
	s, direct := serve(t)
	give(t, direct, "bob", 7)
	p := newProxy(t, s.URL, func(_ string, n int) fate {
		if n == 0 {
			return losesAnswer
		}
		return arrives
	})
	c := dial(t, p.URL)
	pay := command("ann", "", holdfast.Pay{Provider: "stars", PaymentID: "p1", Product: "images_10", Amount: 50, Currency: "XTR"})
	if o := do(t, c, pay); o.First || o.Payment.State != holdfast.PaymentGranted || o.Account.Balances[1].Available != 10 {
		t.Errorf("%+v %+v", o.Payment, o.Account)
	}
	o, err := c.Merge(t.Context(), engine.Names{Account: "ann", Other: "bob"})
	if err != nil || !o.Changed || !o.Replayed || o.Account.Balances[0].Available != 3+7 {
		t.Errorf("the second attempt has the key of the first: %+v %v", o, err)
	}
	if n := len(p.seen()); n != 4 {
		t.Errorf("%d requests", n)
	}
}

func TestARefusalTellsThePersonWhyInTheirLanguage(t *testing.T) {
	_, c := serve(t, func(o *client.Options) { o.Language = "ru" })
	a, err := c.Ask(t.Context(), command("ann", "m1", holdfast.Reserve{Feature: "text", Quantity: 4}))
	if err != nil || a.Reason != holdfast.Insufficient || a.Refusal.Needed != 4 || !strings.Contains(a.Detail, "Нужно: 4") || a.RequestID == "" {
		t.Errorf("%+v %v", a, err)
	}
	a, err = c.Ask(t.Context(), command("ann", "", holdfast.Reserve{Feature: "text", Quantity: 4, DryRun: true}))
	if err != nil || a.Reason != holdfast.Insufficient || !a.DryRun || a.Detail == "" {
		t.Errorf("a dry run: %+v %v", a, err)
	}
}

func TestARecordedRefusalIsDecidedAfreshOnlyWhenAsked(t *testing.T) {
	_, c := serve(t)
	big := command("ann", "m1", holdfast.Reserve{Feature: "text", Quantity: 4})
	for _, replayed := range []bool{false, true} {
		if o, err := c.Submit(t.Context(), big); err != nil || o.Reason != holdfast.Insufficient || o.Replayed != replayed {
			t.Errorf("%+v %v", o, err)
		}
	}
	give(t, c, "ann", 10)
	big.RetryRefused = true
	if o := do(t, c, big); o.Replayed || o.Reservation.Reserved != 4 {
		t.Errorf("%+v", o)
	}
}

func TestManyCommandsComeBackInTheirOrder(t *testing.T) {
	s, c := serve(t)
	give(t, c, "ann", 10_000)
	var commands []holdfast.Command
	for i := range 1200 { // more than two requests take
		commands = append(commands, command("ann", fmt.Sprint("m", i), holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text", Quantity: holdfast.Amount(i%3 + 1)}}))
	}
	commands[7] = command("ann", "", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text"}}) // no key
	commands[8] = command("ann", "m0", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text"}})
	commands[9] = command("ann", "m9", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "nothing"}})
	commands[10] = command("bob", "m10", holdfast.Reserve{Feature: "video"})
	commands[600] = command("ann", "", holdfast.SetPlan{Plan: "pro"}) // no batch takes it
	commands[601] = command("ann", "m601", holdfast.Reserve{Feature: "video"})
	for i, r := range c.SubmitAll(t.Context(), commands) {
		o := r.Outcome
		switch i {
		case 7:
			if o.Reason != holdfast.Invalid || o.Problems[0].Field != "key" {
				t.Errorf("%d: %+v %v", i, o, r.Err)
			}
		case 8:
			if !o.Replayed || o.Reservation.Used != 1 {
				t.Errorf("%d: %+v %v", i, o, r.Err)
			}
		case 9:
			if o.Reason != holdfast.Invalid || o.Problems[0].Field != "feature" {
				t.Errorf("%d: %+v %v", i, o, r.Err)
			}
		case 10:
			if o.Reason != holdfast.FeatureNotInPlan || o.Refusal.Plans[0] != "pro" {
				t.Errorf("%d: %+v %v", i, o, r.Err)
			}
		case 600:
			if o.Account == nil || o.Account.Plan != "pro" {
				t.Errorf("%d: %+v %v", i, o, r.Err)
			}
		case 601:
			if o.Reservation == nil || o.Reservation.Reserved != 50 {
				t.Errorf("%d: it must follow the change of plan: %+v %v", i, o, r.Err)
			}
		default:
			if r.Err != nil || o.Refused() || o.Reservation.Key != commands[i].Key || o.Reservation.Used != holdfast.Amount(i%3+1) {
				t.Fatalf("%d: %+v %v", i, o, r.Err)
			}
		}
	}
	if commands[601].ID != (holdfast.ID{}) {
		t.Error("the caller's commands were changed")
	}
	view, err := s.Engine.View(t.Context(), apitest.Project, "ann")
	if err != nil || view.Account.Active != 1 {
		t.Errorf("%+v %v", view, err)
	}
}
