package client_test

import (
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
)

// twins are an engine asked in process, and another one asked over HTTP, on one standing clock: the same commands must come
// to the same outcomes.
type twins struct {
	t    *testing.T
	here *apitest.Server
	far  *client.Client
	seen map[string]bool // names of operations
}

func newTwins(t *testing.T) *twins {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	options := engine.Options{Catalog: tariffOf, Now: func() time.Time { return now }}
	here, there := apitest.Start(t, options), apitest.Start(t, options)
	return &twins{t: t, here: here, far: dial(t, there.URL), seen: map[string]bool{}}
}

// outcomes are what one step came to on either side.
type outcomes struct{ here, far holdfast.Outcome }

// both submits a command to either side, which is made from what came of an earlier step there, and compares.
func (w *twins) both(account, key string, from outcomes, do func(before holdfast.Outcome) holdfast.Operation) outcomes {
	w.t.Helper()
	w.seen[do(from.here).Name()] = true
	var o outcomes
	var err error
	if o.here, err = w.here.Engine.Submit(w.t.Context(), command(account, key, do(from.here))); err != nil {
		w.t.Fatalf("in process: %v", err)
	}
	if o.far, err = w.far.Submit(w.t.Context(), command(account, key, do(from.far))); err != nil {
		w.t.Fatalf("over HTTP: %v", err)
	}
	if difference := cmp.Diff(shown(w.t, o.here), shown(w.t, o.far), cmpopts.EquateEmpty()); difference != "" {
		w.t.Errorf("%s of %s (-in process +over HTTP)\n%s", do(from.here).Name(), account, difference)
	}
	return o
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
	}
	if o.Refused() {
		s.Balance = nil // the API shows the numbers, or the reservation as it is
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

	for _, name := range operations(t) {
		if !w.seen[name] {
			t.Errorf("no step does %q", name)
		}
	}
}

// operations are the names of the core's operations, but for the sweeper's own.
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
			if name := strings.Trim(returned.Value, `"`); name != (holdfast.Expire{}).Name() {
				names = append(names, name)
			}
		}
	}
	if len(names) < 15 {
		t.Fatalf("found only %v", names)
	}
	return names
}

func TestNothingIsSentThatCannotBeRight(t *testing.T) {
	address, requests := answers(t, answer(500, ""))
	c := dial(t, address)
	id := holdfast.ID{1}
	for name, wrong := range map[string]struct {
		command holdfast.Command
		field   string
	}{
		"a reserve without a key":             {command("ann", "", holdfast.Reserve{Feature: "text"}), "key"},
		"a charge without a key":              {command("ann", "", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text"}}), "key"},
		"a grant without a key":               {command("ann", "", holdfast.AddGrant{Unit: "credit", Amount: 1}), "key"},
		"an adjustment without a key":         {command("ann", "", holdfast.Adjust{Unit: "credit", Amount: 1, Reason: "r"}), "key"},
		"a refund without a key":              {command("ann", "", holdfast.Refund{ReservationID: id}), "key"},
		"a blank key":                         {command("ann", " ", holdfast.Reserve{Feature: "text"}), "key"},
		"a key that a header would change":    {command("ann", "m1 ", holdfast.Reserve{Feature: "text"}), "key"},
		"a key that no header carries":        {command("ann", "m\n1", holdfast.Reserve{Feature: "text"}), "key"},
		"an account that no path carries":     {command("a/b", "m1", holdfast.Reserve{Feature: "text"}), "account"},
		"a part of a second":                  {command("ann", "m1", holdfast.Reserve{Feature: "text", TTL: 1500 * time.Millisecond}), "ttl_seconds"},
		"a lease with a part of a second":     {command("ann", "", holdfast.Start{ReservationID: id, Lease: 5500 * time.Millisecond}), "lease_seconds"},
		"a reservation without its account":   {holdfast.Command{Account: "ann", Do: holdfast.Cancel{ReservationID: id}}, "account"},
		"an account that is not named":        {holdfast.Command{Target: holdfast.AccountID{1}, Do: holdfast.SetPlan{Plan: "pro"}}, "account"},
		"what only the server's sweeper does": {command("ann", "", holdfast.Expire{}), "operation"},
	} {
		o, err := c.Submit(t.Context(), wrong.command)
		if err != nil || o.Reason != holdfast.Invalid || !slices.ContainsFunc(o.Problems, func(p holdfast.Problem) bool { return p.Field == wrong.field }) {
			t.Errorf("%s: %+v %v", name, o, err)
		}
		if results := c.SubmitAll(t.Context(), []holdfast.Command{wrong.command}); results[0].Outcome.Reason != holdfast.Invalid {
			t.Errorf("%s, in a batch: %+v", name, results[0])
		}
	}
	if n := len(requests()); n != 0 {
		t.Errorf("%d requests were sent", n)
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
