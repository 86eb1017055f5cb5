package storetest

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

func unknownAccount(t *testing.T, o Opened) {
	must(t, save(t, o.Store, fresh("known")))
	nameless := store.Want{Account: accountID("nobody")}
	states := load(t, o.Store, want("ann"), nameless, want("known"))
	same(t, "a named account", states[0], holdfast.NewState(project, "ann"))
	same(t, "a nameless account", states[1], &holdfast.State{Account: holdfast.Account{ID: accountID("nobody")}})
	if states[0].Exists() || states[1].Exists() || !states[2].Exists() {
		t.Error("only the stored account exists")
	}
	without := want("ann")
	without.Create = false
	same(t, "a named account that may not be made", load(t, o.Store, without)[0], holdfast.NewState(project, "ann"))
	if everythingStored(t, o)["ann"].Account.Version != 0 {
		t.Error("loading an account must not make it")
	}
}

func roundTrip(t *testing.T, o Opened) {
	written := everything("ann")
	must(t, save(t, o.Store, written))
	w := want("ann")
	w.Keys = []string{"m2", "nothing", "key ключ 🔑", "m2"}
	for _, r := range written.NewReservations {
		w.Reservations = append(w.Reservations, r.ID)
	}
	w.Payments = []holdfast.ID{id(6), id(5), id(99), id(6)}
	account := written.Account
	account.Version = 1
	same(t, "the state", load(t, o.Store, w)[0], &holdfast.State{
		Account: account, Grants: written.NewGrants, Reservations: written.NewReservations,
		Answers:  []*holdfast.Answer{written.Answers[1], written.Answers[0]},
		Payments: []*holdfast.Payment{written.Payments[1], written.Payments[0]},
	})
	stored := everythingStored(t, o)["ann"]
	same(t, "the ledger", stored.Entries, written.Entries)
	same(t, "the outbox", stored.Events, written.Events)

	fine := fresh("nanoseconds")
	fine.Account.DecidedAt = at(1).Add(999 * time.Nanosecond).In(time.FixedZone("", 3*3600))
	must(t, save(t, o.Store, fine))
	if got := load(t, o.Store, want("nanoseconds"))[0].Account.DecidedAt; got != at(1) {
		t.Errorf("times are in microseconds and UTC, not %v", got)
	}
}

func payments(t *testing.T, o Opened) {
	c := fresh("ann")
	bought, spent, other := grant(1), grant(2), grant(3)
	bought.Payment, spent.Payment, other.Payment = id(5), id(5), id(6)
	spent.Used, spent.Open, other.Used, other.Open = 10, false, 10, false
	paid := &holdfast.Payment{ID: id(5), Provider: "p", PaymentID: "1", Product: "x", Currency: "USD", State: holdfast.PaymentGranted, PaidAt: at(1)}
	c.NewGrants, c.Payments = []*holdfast.Grant{bought, spent, other}, []*holdfast.Payment{paid}
	must(t, save(t, o.Store, c))
	w := want("ann")
	w.Payments = []holdfast.ID{id(5)}
	state := load(t, o.Store, w)[0]
	same(t, "the payment", state.Payments, []*holdfast.Payment{paid})
	same(t, "what it bought", state.Grants, []*holdfast.Grant{bought, spent})

	refunded := *paid
	refunded.Refunded, refunded.Refunds = 1, []string{"r"}
	changed := *spent
	changed.Revoked = 4
	c = fresh("ann")
	c.Account.Version, c.Payments, c.Grants = 1, []*holdfast.Payment{&refunded}, []*holdfast.Grant{&changed}
	must(t, save(t, o.Store, c))
	state = load(t, o.Store, w)[0]
	same(t, "the refunded payment", state.Payments, []*holdfast.Payment{&refunded})
	same(t, "what it had bought", state.Grants, []*holdfast.Grant{bought, &changed})
}

func ownCopies(t *testing.T, o Opened) {
	written := everything("ann")
	must(t, save(t, o.Store, written))
	w := want("ann")
	w.Reservations, w.Keys = []holdfast.ID{id(11)}, []string{"m2"}
	spoil := func(s *holdfast.State) {
		s.Account.Metadata["chat"] = "spoilt"
		for _, g := range s.Grants {
			g.Used++
			for i := range g.Features {
				g.Features[i] = "spoilt"
			}
		}
		for _, r := range s.Reservations {
			r.State, r.Metadata["chat"], r.Usage["input_token"], r.Allocations[0].Used = "spoilt", "spoilt", 1, 1
		}
		for _, a := range s.Answers {
			a.Outcome.Refusal.Plans[0] = "spoilt"
		}
	}
	spoil(&holdfast.State{Account: written.Account, Grants: written.NewGrants, Reservations: written.NewReservations[:1], Answers: written.Answers[1:]})
	written.Entries[0].Deltas[0].Used = 1
	spoil(load(t, o.Store, w)[0])
	for _, e := range everythingStored(t, o)["ann"].Entries[:1] {
		e.Deltas[0].Used = 1
	}
	unspoilt := everything("ann")
	unspoilt.Account.Version = 1
	same(t, "the state after others spoilt their copies", load(t, o.Store, w)[0], &holdfast.State{
		Account: unspoilt.Account, Grants: []*holdfast.Grant{unspoilt.NewGrants[0], unspoilt.NewGrants[2]},
		Reservations: unspoilt.NewReservations[:1], Answers: unspoilt.Answers[1:],
	})
	same(t, "the ledger after others spoilt their copies", everythingStored(t, o)["ann"].Entries, unspoilt.Entries)
}

func openGrants(t *testing.T, o Opened) {
	c := fresh("ann")
	closed := grant(2)
	closed.Used, closed.Open = 10, false
	spender := released(9) // with it the closed one is loaded
	spender.Allocations = []holdfast.Allocation{{Grant: closed.ID, Source: closed.Source, Reserved: 1}}
	c.NewGrants, c.NewReservations = []*holdfast.Grant{grant(3), closed, grant(1)}, []*holdfast.Reservation{spender}
	must(t, save(t, o.Store, c))
	same(t, "open grants, the oldest first", load(t, o.Store, want("ann"))[0].Grants, []*holdfast.Grant{grant(1), grant(3)})

	c.Account.Version, c.NewGrants, c.NewReservations, c.Reservations = 1, nil, nil, c.NewReservations
	closing := grant(1)
	closing.Voided, closing.Open = 10, false
	closed.Used, closed.Open = 9, true // a refund opens it again
	c.Grants = []*holdfast.Grant{closing, closed}
	must(t, save(t, o.Store, c))
	same(t, "open grants after one closed and one opened", load(t, o.Store, want("ann"))[0].Grants, []*holdfast.Grant{closed, grant(3)})
}

func namedReservations(t *testing.T, o Opened) {
	c := fresh("ann")
	closed := grant(1)
	closed.Used, closed.Open = 10, false
	c.NewGrants = []*holdfast.Grant{closed, grant(2)}
	took := released(11)
	took.Allocations = []holdfast.Allocation{{Grant: id(1), Source: holdfast.FromPurchase}, {Grant: id(2), Source: holdfast.FromPurchase}, {Grant: id(1), Source: holdfast.FromPurchase}}
	c.NewReservations = []*holdfast.Reservation{took, reservation(12)}
	other := fresh("bob")
	other.NewReservations = []*holdfast.Reservation{reservation(13)}
	must(t, save(t, o.Store, c, other))

	w := want("ann")
	w.Reservations = []holdfast.ID{id(11), id(99), id(13), id(11)}
	state := load(t, o.Store, w)[0]
	same(t, "the account's reservation, once", state.Reservations, []*holdfast.Reservation{took})
	same(t, "its grants, open or not, each once", state.Grants, []*holdfast.Grant{closed, grant(2)})
	if state.MoreOverdue {
		t.Error("nobody asked for overdue reservations")
	}
}

func overdueInterval(t *testing.T, o Opened) {
	c := fresh("ann")
	closed := grant(1)
	closed.Used, closed.Open = 10, false
	c.NewGrants = []*holdfast.Grant{closed}
	running := reservation(12)
	running.State = holdfast.Running
	running.Allocations = []holdfast.Allocation{{Grant: id(1), Source: holdfast.FromPurchase}}
	c.NewReservations = []*holdfast.Reservation{reservation(11), running, reservation(13), released(10)}
	must(t, save(t, o.Store, c))

	w := want("ann")
	w.OverdueAt = running.ExpiresAt
	state := load(t, o.Store, w)[0]
	same(t, "what is overdue, at its very end too, live ones only", state.Reservations, []*holdfast.Reservation{reservation(11), running})
	same(t, "the grants of overdue ones", state.Grants, []*holdfast.Grant{closed})

	w.Reservations = []holdfast.ID{id(12)}
	same(t, "a named one first, and once", load(t, o.Store, w)[0].Reservations, []*holdfast.Reservation{running, reservation(11)})

	w = want("ann")
	w.OverdueAt = reservation(11).ExpiresAt.Add(-time.Microsecond)
	same(t, "a microsecond before the first end", load(t, o.Store, w)[0].Reservations, nil)

	later := fresh("ann")
	later.Account.Version = 1
	later.Account.DecidedAt = running.ExpiresAt
	must(t, save(t, o.Store, later))
	same(t, "what is overdue by the account's own last decision", load(t, o.Store, w)[0].Reservations, []*holdfast.Reservation{reservation(11), running})
}

func overdueBound(t *testing.T, o Opened) {
	c := fresh("ann")
	for n := holdfast.MaxOverdue; n >= 0; n-- {
		c.NewReservations = append(c.NewReservations, reservation(n))
	}
	must(t, save(t, o.Store, c))
	w := want("ann")
	w.OverdueAt = at(3600)
	state := load(t, o.Store, w)[0]
	if len(state.Reservations) != holdfast.MaxOverdue || !state.MoreOverdue {
		t.Fatalf("%d loaded, more: %v; wanted %d and more", len(state.Reservations), state.MoreOverdue, holdfast.MaxOverdue)
	}
	for n, r := range state.Reservations {
		if r.ID != id(n) {
			t.Fatalf("place %d has %s; wanted the longest overdue first", n, r.ID)
		}
	}
	c.Account.Version, c.NewReservations = 1, nil
	c.Reservations = []*holdfast.Reservation{released(0)}
	must(t, save(t, o.Store, c))
	state = load(t, o.Store, w)[0]
	if len(state.Reservations) != holdfast.MaxOverdue || state.MoreOverdue {
		t.Errorf("%d loaded, more: %v; wanted %d and no more", len(state.Reservations), state.MoreOverdue, holdfast.MaxOverdue)
	}
}

// usualRows are those that a store may write by shorter statements: one pocket, no lease, one delta, an answer under a key that
// was free, an event of the entry beside it. What a row had and has no longer is cleared.
func usualRows(t *testing.T, o Opened) {
	held := func(n int) *holdfast.Reservation {
		r := reservation(n)
		r.Price, r.Key, r.Reserved = holdfast.Price{Unit: "credit", Amount: 5}, "k", 5
		r.Allocations = []holdfast.Allocation{{Grant: id(1), Source: holdfast.FromPromo, Reserved: 5}}
		return r
	}
	numbered := func(n int64) holdfast.Entry {
		e := entry(n)
		e.Reservation, e.Deltas = id(11), []holdfast.Delta{{Grant: id(1), Granted: 1, Reserved: -2, Used: 3, Voided: 4}}
		return e
	}
	owing := entry(2)
	owing.Debt, owing.Owed = 3, 4
	told := func(n int) holdfast.Event {
		e := event(n)
		e.ID, e.Kind, e.Entry = holdfast.ID{6: 0x80, 8: 0x80, 15: byte(n)}, "reservation.reserve", int64(n)
		if !e.OfEntry() {
			t.Fatal("it is not known as the event of its entry")
		}
		return e
	}
	leased, paid := held(12), held(13)
	leased.State, leased.Worker, leased.LeaseToken, leased.LeaseExpiresAt, leased.Attempts = holdfast.Running, "w1", "token", at(40), 2
	leased.InDoubt, leased.Usage = true, map[string]holdfast.Amount{"token": 1}
	paid.State, paid.EndedAt, paid.Used, paid.Allocations[0].Used = holdfast.Committed, at(14), 5, 5

	c := fresh("ann")
	c.Account.LastEntry = 2
	c.NewGrants = []*holdfast.Grant{grant(1)}
	c.NewReservations = []*holdfast.Reservation{held(11), leased, paid}
	c.Entries = []holdfast.Entry{numbered(1), owing}
	c.Answers = []*holdfast.Answer{answer("a", 1)}
	c.Events = []holdfast.Event{told(1), event(60), told(2)}
	write := func(c holdfast.Changes) {
		t.Helper()
		w := wantOf(&c)
		w.Keys = []string{"a", "b"}
		tx, _ := begin(t, o.Store, w)
		must(t, tx.Save(t.Context(), []holdfast.Changes{c}))
	}
	write(c)
	stored := everythingStored(t, o, "a", "b")["ann"]
	same(t, "the reservations", stored.Reservations, c.NewReservations)
	same(t, "the ledger", stored.Entries, c.Entries)
	same(t, "the answers", stored.Answers, c.Answers)
	same(t, "the outbox", stored.Events, c.Events)

	over := held(11)
	over.State, over.EndedAt, over.Used, over.Allocations[0].Used, over.Unbilled, over.Cause = holdfast.Committed, at(20), 4, 4, 2, "late"
	over.ExpiresAt, over.Quantity, over.Reserved, over.Allocations[0].Reserved = at(90), 2, 6, 6
	free := held(12)
	free.State, free.EndedAt = holdfast.Released, at(21)
	back := held(13)
	back.State, back.EndedAt, back.Used, back.Refunded = holdfast.Committed, at(14), 5, 2
	back.Allocations[0].Used, back.Allocations[0].Refunded = 5, 2
	d := holdfast.Changes{Account: c.Account, Reservations: []*holdfast.Reservation{over, free, back}}
	d.Account.Version, d.Account.LastEntry = 1, 3
	d.Entries = []holdfast.Entry{numbered(3)}
	d.Answers = []*holdfast.Answer{answer("b", 3), answer("a", 2)}
	d.Events = []holdfast.Event{told(3), event(60)}
	write(d)
	stored = everythingStored(t, o, "a", "b")["ann"]
	same(t, "the reservations afterwards", stored.Reservations, d.Reservations)
	same(t, "the ledger afterwards", stored.Entries, append(c.Entries, d.Entries...))
	same(t, "the answers afterwards", stored.Answers, []*holdfast.Answer{answer("a", 2), answer("b", 3)})
	same(t, "the outbox afterwards", stored.Events, append(c.Events, told(3)))
}

func answersByKey(t *testing.T, o Opened) {
	c := fresh("ann")
	c.Answers = []*holdfast.Answer{answer("a", 1), answer("A", 2), answer("a ", 3)}
	other := fresh("bob")
	other.Answers = []*holdfast.Answer{answer("a", 4)}
	must(t, save(t, o.Store, c, other))
	w := want("ann")
	w.Keys = []string{"a", "b"}
	same(t, "the answer under the very key", load(t, o.Store, w)[0].Answers, []*holdfast.Answer{answer("a", 1)})

	c.Account.Version = 1
	c.Answers = []*holdfast.Answer{answer("a", 5)}
	must(t, save(t, o.Store, c))
	w.Keys = []string{"a ", "a", "A"}
	same(t, "the answers afterwards", load(t, o.Store, w)[0].Answers, []*holdfast.Answer{answer("a ", 3), answer("a", 5), answer("A", 2)})
	same(t, "another account's answer", everythingStored(t, o, "a")["bob"].Answers, []*holdfast.Answer{answer("a", 4)})
}

func eventsOnce(t *testing.T, o Opened) {
	c := fresh("ann")
	c.Events = []holdfast.Event{event(1)}
	must(t, save(t, o.Store, c))
	again := event(1)
	again.Figure = 7
	c.Account.Version = 1
	c.Events = []holdfast.Event{again, event(2), event(2)}
	must(t, save(t, o.Store, c))
	same(t, "the outbox", o.Events(t, c.Account.ID), []holdfast.Event{event(1), event(2)})
}
