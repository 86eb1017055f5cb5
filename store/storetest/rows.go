package storetest

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

const project = "shop"

// at is n seconds after a fixed instant, with microseconds to lose.
func at(n int) time.Time {
	return time.Date(2026, 12, 1, 10, 0, 0, 123_456_000, time.UTC).Add(time.Duration(n) * time.Second)
}

// id is the n-th of ids that grow with n, as UUIDs of version 7 do.
func id(n int) (made holdfast.ID) {
	copy(made[:], "\x01\x93\x80\x00\x00\x00\x70\x00\x80\x00")
	binary.BigEndian.PutUint32(made[12:], uint32(n))
	return made
}

func accountID(name string) holdfast.AccountID { return holdfast.AccountIDOf(project, name) }

func want(name string) store.Want {
	return store.Want{Account: accountID(name), Project: project, Name: name, Create: true}
}

// wantOf wants what the changes change.
func wantOf(c *holdfast.Changes) store.Want {
	w := store.Want{Account: c.Account.ID, Project: c.Account.Project, Name: c.Account.Name, Create: true}
	for _, r := range c.Reservations {
		w.Reservations = append(w.Reservations, r.ID)
	}
	for _, p := range c.Payments {
		w.Payments = append(w.Payments, p.ID)
	}
	return w
}

// fresh is a new account with nothing but itself.
func fresh(name string) holdfast.Changes {
	return holdfast.Changes{Account: holdfast.Account{
		ID: accountID(name), Project: project, Name: name, Notices: true, CreatedAt: at(0), DecidedAt: at(0),
	}}
}

func grant(n int) *holdfast.Grant {
	return &holdfast.Grant{
		ID: id(n), Unit: "credit", Source: holdfast.FromPurchase, Priority: 40, Granted: 10,
		StartsAt: at(n), CreatedAt: at(n), Open: true,
	}
}

func reservation(n int) *holdfast.Reservation {
	return &holdfast.Reservation{
		ID: id(n), Feature: "image.generate", Quantity: 1, State: holdfast.Reserved, TTL: time.Minute, CreatedAt: at(n), ExpiresAt: at(n + 60),
	}
}

func released(n int) *holdfast.Reservation {
	r := reservation(n)
	r.State, r.EndedAt, r.Cause = holdfast.Released, at(n+1), holdfast.CauseFailed
	return r
}

func entry(n int64) holdfast.Entry {
	return holdfast.Entry{No: n, Kind: holdfast.EntryReserve, Unit: "credit", EffectiveAt: at(int(n)), RecordedAt: at(int(n))}
}

func event(n int) holdfast.Event {
	return holdfast.Event{ID: id(n), Kind: holdfast.EventOverrun, At: at(n)}
}

func answer(key string, n int) *holdfast.Answer {
	return &holdfast.Answer{
		Key: key, Fingerprint: holdfast.Fingerprint{byte(n), 1}, Command: id(n),
		Outcome: holdfast.Outcome{Reason: holdfast.Insufficient, Refusal: &holdfast.Refusal{Needed: holdfast.Amount(n)}}, RecordedAt: at(n),
	}
}

// everything has every field of every row set somewhere, and left out elsewhere.
func everything(name string) holdfast.Changes {
	c := fresh(name)
	c.Account.LastEntry, c.Account.Active = 2, 2
	c.Account.Plan, c.Account.Language, c.Account.TimeZone = "pro", "ru", "Europe/Moscow"
	c.Account.Blocked, c.Account.Notices = true, false
	c.Account.Metadata = map[string]string{"chat": "42", "имя": "Аня \"🦊\" <b>&\u2028", "empty": ""}
	c.Account.DecidedAt = at(9)
	c.Account.Debts = map[string]holdfast.Amount{"credit": holdfast.MaxAmount, "image": 1}
	c.Account.Lapsed, c.Account.MergedInto = "max", accountID("bob")
	c.Account.Merging = holdfast.Merging{Into: accountID("eve"), ID: id(33)}
	c.Account.Names, c.Account.Line = []holdfast.AccountID{accountID("kim"), accountID("lea")}, 3
	moved := *grant(7)
	moved.Payment, moved.EndsAt, moved.Features = id(5), at(99), []string{"f"}
	c.Account.Transfers = []holdfast.Transfer{
		{
			ID: id(31), Grants: []holdfast.Grant{moved}, Debts: map[string]holdfast.Amount{"credit": 3}, Renews: true, Plan: "pro",
			Periods: []holdfast.PaidPeriod{{Plan: "pro", Start: at(1), End: at(2), Payment: id(5), Given: true}},
		},
		{ID: id(34), Forget: []holdfast.AccountID{accountID("kim"), accountID("lea")}},
		{ID: id(35), Stop: []holdfast.ID{id(1), id(2)}},
		{ID: id(32), Revokes: []holdfast.Revocation{{Payment: id(5), Unit: "credit", Amount: 4, AsDebt: true, Period: true, Stop: true}}},
	}
	c.Account.Subscription = &holdfast.Subscription{Anchor: at(1), Cancelled: true, Next: "free", Periods: []holdfast.PaidPeriod{
		{Plan: "pro", Start: at(1), End: at(2), Payment: id(5), Given: true}, {Plan: "max", Start: at(2), End: at(9), Refunded: 1, Paid: 5},
	}}
	c.Account.Anchor, c.Account.AnchorZone, c.Account.DeletedAt = at(3), "Asia/Tokyo", at(8)

	cycle := grant(1)
	cycle.Source, cycle.Allowance, cycle.Priority = holdfast.FromAllowance, "daily", 10
	cycle.Features = []string{"image.generate", "text.improve"}
	cycle.Granted, cycle.Reserved, cycle.Used, cycle.Voided = holdfast.MaxAmount, 3, 5, holdfast.MaxAmount-9
	cycle.EndsAt, cycle.Rolled, cycle.Moved, cycle.Revoked, cycle.Doomed, cycle.Payment = at(86_400), 7, 1, 6, 2, id(5)
	spent := grant(2)
	spent.Used, spent.Open = 10, false
	c.NewGrants = []*holdfast.Grant{cycle, spent, grant(3)}

	running := reservation(11)
	running.State, running.Quantity, running.Price = holdfast.Running, 3, holdfast.Price{Unit: "credit", Amount: 1}
	running.Allocations = []holdfast.Allocation{{Grant: id(1), Source: holdfast.FromAllowance, Reserved: 2}, {Grant: id(3), Source: holdfast.FromPurchase, Reserved: 1}}
	running.Reserved, running.Key, running.Surface, running.CatalogVersion = 3, "key ключ 🔑", "bot", 7
	running.Metadata = map[string]string{"chat": "42"}
	running.Usage = map[string]holdfast.Amount{"input_token": holdfast.MaxAmount, "output_token": 0}
	running.InDoubt, running.CancelRequestedAt, running.MaxHold = true, at(30), time.Hour
	running.Policies = holdfast.Policies{
		Overrun: holdfast.OverrunDebt, InDoubt: holdfast.DoubtCharge, LateCommit: holdfast.LateAbsorb, CancelRunning: holdfast.CancelRequest,
	}
	running.Worker, running.LeaseToken, running.LeaseExpiresAt, running.Attempts = "host/1", "token", at(40), 2
	running.Job = &holdfast.Job{
		Queue: "image.priority", MaxAttempts: 5, Crashes: 1, Errors: 1, Payload: "{\"prompt\": \"лиса 🦊\"}",
		Attempts: []holdfast.Attempt{
			{No: 1, Worker: "host/1", StartedAt: at(12), EndedAt: at(13), End: holdfast.AttemptFailed, Cause: "rate_limited"},
			{No: 2, Worker: "host/2", StartedAt: at(14)},
		},
	}
	late := reservation(12)
	late.State, late.EndedAt, late.LateAt = holdfast.Expired, at(80), at(90)
	late.Price = holdfast.Price{Unit: "credit", Amount: 5}
	late.Allocations = []holdfast.Allocation{{Grant: id(2), Source: holdfast.FromPurchase, Reserved: 5}, {Grant: id(2), Source: holdfast.FromPurchase, Used: 4, Refunded: 1}}
	late.Reserved, late.Unbilled, late.LateUsed, late.Refunded = 5, 1, 4, 1
	committed := reservation(13)
	committed.State, committed.EndedAt = holdfast.Committed, at(20)
	committed.Reserved, committed.Used, committed.Unbilled = holdfast.MaxAmount, holdfast.MaxAmount, holdfast.MaxAmount
	committed.Price = holdfast.Price{Unit: "credit", Per: 1000, Rates: map[string]holdfast.Amount{"input_token": 1, "cached_token": 0}}
	committed.Debt, committed.Voided, committed.Reported = 4, 3, map[string]holdfast.Amount{"input_token": 9}
	c.NewReservations = []*holdfast.Reservation{running, late, released(14), committed, reservation(15)}

	full := entry(1)
	full.Deltas = []holdfast.Delta{{Grant: id(1), Granted: holdfast.MaxAmount}, {Grant: id(3), Reserved: -3, Used: 2, Voided: 1}}
	full.Reservation, full.Key, full.Actor, full.Reason = id(11), "key ключ 🔑", "key:ab12", "because \"so\"\n"
	full.EffectiveAt, full.Available, full.Reserved = at(-5), holdfast.MaxAmount, 4
	full.Debt, full.Owed = -2, 5
	bare := entry(2)
	bare.Kind, bare.Unit = holdfast.EntrySubscription, ""
	c.Entries = []holdfast.Entry{full, bare}

	done := answer("key ключ 🔑", 11)
	done.Outcome = holdfast.Outcome{
		Changed: true, Reservation: running, Grant: cycle, Lease: &holdfast.Lease{Token: "token", ExpiresAt: at(40)},
		Balance:    &holdfast.Balance{Unit: "credit", Available: holdfast.MaxAmount, Cycle: &holdfast.CycleNumbers{Granted: 3, StartsAt: at(1), EndsAt: at(2)}, ResetsAt: at(3)},
		Settlement: &holdfast.Settlement{Returned: 1, Voided: 2, Unbilled: 3, Late: true, MayContinue: true},
		Account:    &holdfast.AccountView{Exists: true, Account: c.Account, Plan: "pro", MaxActive: 3, Balances: []holdfast.Balance{{Unit: "image"}}, Features: []holdfast.FeatureView{{Name: "f", Price: holdfast.Price{Unit: "image", Amount: 1}}}},
	}
	refused := answer("m2", 12)
	refused.Outcome.Refusal.Plans = []string{"pro"}
	refused.Outcome.Refusal.Alternatives = []holdfast.Alternative{{Unit: "image", Needed: 1, Available: 2, Held: 3}}
	refused.Outcome.Problems = []holdfast.Problem{{Field: "f", Hint: "h"}}
	c.Answers = []*holdfast.Answer{done, refused}

	c.Payments = []*holdfast.Payment{
		{
			ID: id(5), Provider: "stripe", PaymentID: "pi_1 \"ключ\"", Product: "pro_month", Amount: holdfast.MaxAmount, Currency: "USD",
			State: holdfast.PaymentGranted, Plan: "pro", PeriodStart: at(1), PeriodEnd: at(2), Refunded: 3, Refunds: []string{"re_1", "re_2"},
			Revoked: 2, Owed: 1, Disputed: true, PaidAt: at(1),
		},
		{ID: id(6), Provider: "telegram_stars", PaymentID: "t", Product: "p", Currency: "XTR", State: holdfast.PaymentFlagged, Flag: holdfast.WrongAmount, PaidAt: at(2)},
	}
	told := event(21)
	told.Kind, told.Entry, told.Reservation, told.Figure = "reservation.reserve", 1, id(11), holdfast.MaxAmount
	paid := event(23)
	paid.Kind, paid.Payment = holdfast.EventPaymentGranted, id(5)
	c.Events = []holdfast.Event{told, event(22), paid}
	return c
}

// same fails the test where two values differ; empty and nil lists and maps are the same.
func same[T any](t *testing.T, what string, got, wanted T) {
	t.Helper()
	if diff := cmp.Diff(wanted, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(holdfast.State{}),
		cmpopts.IgnoreFields(holdfast.Job{}, "Payload") /* which is stored apart */); diff != "" {
		t.Errorf("%s (- wanted, + got):\n%s", what, diff)
	}
}

// kind fails the test where an error is not a store's error of this kind.
func kind(t *testing.T, err error, wanted store.Kind) {
	t.Helper()
	var e *store.Error
	switch {
	case err == nil:
		t.Fatalf("went well; wanted an error of kind %s", wanted)
	case !errors.As(err, &e):
		t.Fatalf("error of type %T: %v; wanted a *store.Error", err, err)
	case e.Kind != wanted:
		t.Fatalf("kind %s: %v; wanted %s", e.Kind, err, wanted)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// load reads the states of accounts in transactions that end with nothing written.
func load(t *testing.T, s store.Store, wants ...store.Want) (states []*holdfast.State) {
	t.Helper()
	for some := range slices.Chunk(wants, mostAccounts(s, len(wants))) {
		tx, read := begin(t, s, some...)
		must(t, tx.Abort(t.Context()))
		states = append(states, read...)
	}
	return states
}

// mostAccounts is how many of so many accounts a transaction may span.
func mostAccounts(s store.Store, wanted int) int {
	if most := s.Traits().MaxAccounts; most > 0 {
		return most
	}
	return wanted
}

func begin(t *testing.T, s store.Store, wants ...store.Want) (store.Tx, []*holdfast.State) {
	t.Helper()
	tx, err := s.Begin(t.Context())
	must(t, err)
	states, err := tx.Load(t.Context(), wants)
	must(t, err)
	if len(states) != len(wants) {
		t.Fatalf("%d states for %d wants", len(states), len(wants))
	}
	return tx, states
}

// save writes changes in a transaction of their own, or in several where one may not span so many accounts. The first
// error ends it.
func save(t *testing.T, s store.Store, changes ...holdfast.Changes) error {
	t.Helper()
	for some := range slices.Chunk(changes, mostAccounts(s, len(changes))) {
		var wants []store.Want
		for _, c := range some {
			wants = append(wants, wantOf(&c))
		}
		tx, _ := begin(t, s, wants...)
		if err := tx.Save(t.Context(), some); err != nil {
			return err
		}
	}
	return nil
}

// contents is everything that the contract can show of an account, to prove that nothing of it has changed.
type contents struct {
	Account      holdfast.Account
	Grants       []*holdfast.Grant
	Reservations []*holdfast.Reservation
	Entries      []holdfast.Entry
	Answers      []*holdfast.Answer
	Events       []holdfast.Event
}

func everythingStored(t *testing.T, o Opened, keys ...string) map[string]contents {
	t.Helper()
	all := map[string]contents{}
	must(t, o.Store.Dump(t.Context(), func(r store.Record) error {
		c := contents{Account: r.Account, Grants: r.Grants}
		for reservation, err := range r.Reservations {
			must(t, err)
			c.Reservations = append(c.Reservations, reservation)
		}
		for entry, err := range r.Entries {
			must(t, err)
			c.Entries = append(c.Entries, entry)
		}
		all[r.Account.Name] = c
		return nil
	}))
	for name, c := range all {
		w := want(name)
		w.Keys = keys
		c.Answers = load(t, o.Store, w)[0].Answers
		c.Events = o.Events(t, c.Account.ID)
		all[name] = c
	}
	return all
}
