package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// catalog sells what decisions of these tests need: a daily allowance and a thing to pay for.
var catalog = &holdfast.Catalog{
	Version:  1,
	Units:    []holdfast.Unit{{Name: "credit"}},
	Features: []holdfast.Feature{{Name: "image.generate", Prices: []holdfast.Price{{Unit: "credit", Amount: 2}}, TTL: time.Minute}},
	Plans: []holdfast.Plan{{
		Name: "free", Default: true, Features: []string{"image.generate"}, MaxActive: 100,
		Allowances: []holdfast.Allowance{{Key: "daily", Unit: "credit", Amount: 3, Every: holdfast.Cycle{Rolling: 24 * time.Hour}}},
	}},
}

// decide lets the real core decide on what is loaded, and saves what it wants saved.
func decide(t *testing.T, s store.Store, name string, n int, do holdfast.Operation) holdfast.Outcome {
	t.Helper()
	command := holdfast.Command{ID: id(n << 16), Project: project, Account: name, Key: fmt.Sprint("key ", n), Actor: "test", Do: do}
	w := want(name)
	w.Keys, w.OverdueAt = []string{command.Key}, at(n)
	if named := holdfast.ReservationOf(do); !named.IsZero() {
		w.Reservations = []holdfast.ID{named}
	}
	tx, states := begin(t, s, w)
	outcome := holdfast.Decide(catalog, states[0], command, at(n))
	if outcome.Reason == holdfast.Invalid {
		t.Fatalf("%s at %d: %v", do.Name(), n, outcome.Problems)
	}
	must(t, states[0].Check())
	changes, _ := states[0].Changes()
	if err := tx.Save(t.Context(), []holdfast.Changes{changes}); err != nil {
		t.Fatalf("%s at %d: %v", do.Name(), n, err)
	}
	return outcome
}

// history makes an account whose ledger has every common kind of entry.
func history(t *testing.T, s store.Store, name string) {
	t.Helper()
	decide(t, s, name, 1, holdfast.PutAccount{})
	decide(t, s, name, 2, holdfast.AddGrant{Unit: "credit", Amount: 9, Source: holdfast.FromPurchase})
	var reserved []holdfast.ID
	for n := 3; n < 7; n++ {
		outcome := decide(t, s, name, n, holdfast.Reserve{Feature: "image.generate"})
		if outcome.Refused() {
			t.Fatalf("reserve %d: %s", n, outcome.Reason)
		}
		reserved = append(reserved, outcome.Reservation.ID)
	}
	one := holdfast.Amount(1)
	decide(t, s, name, 10, holdfast.Commit{ReservationID: reserved[0], Amount: &one})
	decide(t, s, name, 11, holdfast.Release{ReservationID: reserved[1]})
	decide(t, s, name, 12, holdfast.Start{ReservationID: reserved[2], Token: "token"})
	decide(t, s, name, 13, holdfast.Commit{ReservationID: reserved[2], LeaseToken: "token"})
	decide(t, s, name, 14, holdfast.Refund{ReservationID: reserved[2], Amount: &one})
	decide(t, s, name, 3600, holdfast.Expire{})
	decide(t, s, name, 3601, holdfast.Commit{ReservationID: reserved[3]})
	decide(t, s, name, 90_000, holdfast.Adjust{Unit: "credit", Amount: -2, Reason: "test"}) // the allowance has ended
}

func dump(t *testing.T, o Opened) {
	names := []string{"ann", "bob", "carl"}
	for _, name := range names {
		history(t, o.Store, name)
	}
	var visited []holdfast.AccountID
	visits := 0
	must(t, o.Store.Dump(t.Context(), func(r store.Record) error {
		visits++
		for _, name := range names { // writing goes on: none of it may be seen
			decide(t, o.Store, name, 90_000+visits, holdfast.Reserve{Feature: "image.generate"})
		}
		decide(t, o.Store, fmt.Sprint("new-", visits), 1, holdfast.PutAccount{})
		visited = append(visited, r.Account.ID)
		if r.Account.LastEntry != int64(counted(t, o.Store, r.Account.Name, visits)) {
			t.Errorf("%s was dumped with %d entries, from a later moment", r.Account.Name, r.Account.LastEntry)
		}
		differences, err := holdfast.Verify(&r.Account, r.Grants, r.Reservations, r.Entries)
		must(t, err)
		for _, difference := range differences {
			t.Errorf("%s: %s", r.Account.Name, difference)
		}
		return nil
	}))
	wanted := []holdfast.AccountID{accountID("ann"), accountID("bob"), accountID("carl")}
	slices.SortFunc(wanted, func(a, b holdfast.AccountID) int { return slices.Compare(a[:], b[:]) })
	same(t, "the accounts, in order of ids", visited, wanted)
}

// counted is how many entries the account had before the dump began: what it has now, less what the visits have added.
func counted(t *testing.T, s store.Store, name string, visits int) int {
	t.Helper()
	page := read(t, s, store.Query{Kind: store.QueryEntries, Account: accountID(name), Limit: holdfast.MaxPage})
	added := 0
	for _, e := range page.Entries {
		if !e.RecordedAt.Before(at(90_001)) {
			added++
		}
	}
	if added < visits {
		t.Errorf("%d entries were added by %d visits: nothing was written during the dump", added, visits)
	}
	return len(page.Entries) - added
}

func dumpEnds(t *testing.T, o Opened) {
	must(t, save(t, o.Store, everything("ann"), everything("bob")))
	enough := errors.New("enough")
	visits := 0
	err := o.Store.Dump(t.Context(), func(r store.Record) error {
		visits++
		for range r.Reservations {
			break // not read to the end, and entries not at all
		}
		return enough
	})
	if !errors.Is(err, enough) || visits != 1 {
		t.Errorf("%v after %d visits; wanted the visitor's own error after one", err, visits)
	}
	must(t, save(t, o.Store, fresh("carl")))
	if stored := everythingStored(t, o); len(stored) != 3 {
		t.Errorf("%d accounts dumped afterwards, wanted 3", len(stored))
	}
}

func reopening(t *testing.T, o Opened) {
	if o.Reopen == nil {
		t.Skip("nothing outlives this store")
	}
	must(t, save(t, o.Store, everything("ann")))
	history(t, o.Store, "bob")
	before := everythingStored(t, o, "m2", "key 3")
	o.Store = o.Reopen(t)
	same(t, "what is stored", everythingStored(t, o, "m2", "key 3"), before)
	decide(t, o.Store, "bob", 90_001, holdfast.Reserve{Feature: "image.generate"})
}

func closedStore(t *testing.T, o Opened) {
	must(t, save(t, o.Store, fresh("ann")))
	before, err := o.Store.Begin(t.Context())
	must(t, err)
	must(t, o.Store.Close())
	_, err = before.Load(t.Context(), []store.Want{want("ann")})
	kind(t, err, store.Unavailable)
	must(t, before.Abort(t.Context()))
	if after, err := o.Store.Begin(t.Context()); err == nil {
		_, err = after.Load(t.Context(), []store.Want{want("ann")})
		kind(t, err, store.Unavailable)
	} else {
		kind(t, err, store.Unavailable)
	}
	_, err = o.Store.Read(t.Context(), store.Query{Kind: store.QueryState, Project: project, Account: accountID("ann")})
	kind(t, err, store.Unavailable)
	_, err = o.Store.Scan(t.Context(), store.Due{At: at(0), Limit: 1})
	kind(t, err, store.Unavailable)
	kind(t, o.Store.Dump(t.Context(), func(store.Record) error { return nil }), store.Unavailable)
	must(t, o.Store.Close())
}

func troubles(t *testing.T, o Opened) {
	if len(o.Troubles) == 0 {
		t.Skip("this store has no accidents")
	}
	for n, trouble := range o.Troubles {
		t.Run(trouble.Name, func(t *testing.T) {
			name := fmt.Sprint("trouble-", n)
			history(t, o.Store, name)
			before := everythingStored(t, o)
			mend := trouble.Begin(t)
			if trouble.When == AtLoad {
				tx, err := o.Store.Begin(t.Context())
				must(t, err)
				_, err = tx.Load(t.Context(), []store.Want{want(name)})
				mend()
				kind(t, err, trouble.Kind)
				must(t, tx.Abort(t.Context()))
			} else {
				tx, states := begin(t, o.Store, want(name))
				c := holdfast.Changes{Account: states[0].Account}
				for range 200 { // more than fits into what is already there
					c.Account.LastEntry++
					e := entry(c.Account.LastEntry)
					e.Key = "trouble"
					c.Entries = append(c.Entries, e)
				}
				err := tx.Save(t.Context(), []holdfast.Changes{c})
				mend()
				kind(t, err, trouble.Kind)
			}
			after := everythingStored(t, o)
			if trouble.Kind == store.InDoubt && after[name].Account.Version != before[name].Account.Version {
				if len(after[name].Entries) != len(before[name].Entries)+200 {
					t.Errorf("in doubt, and %d of 200 entries were written", len(after[name].Entries)-len(before[name].Entries))
				}
			} else {
				same(t, "what is stored", after, before)
			}
			decide(t, o.Store, name, 90_001, holdfast.Reserve{Feature: "image.generate"}) // life goes on
		})
	}
}

func replaced(t *testing.T, o Opened) {
	if o.Replace == nil {
		t.Skip("this store's data cannot be taken away")
	}
	must(t, save(t, o.Store, fresh("ann")))
	tx, _ := begin(t, o.Store, want("ann"))
	o.Replace(t)
	c := fresh("ann")
	c.Account.Version = 1
	kind(t, tx.Save(t.Context(), []holdfast.Changes{c}), store.Fatal)
	tx, err := o.Store.Begin(t.Context())
	must(t, err)
	_, err = tx.Load(t.Context(), []store.Want{want("ann")})
	kind(t, err, store.Fatal)
	_, err = o.Store.Read(t.Context(), store.Query{Kind: store.QueryState, Project: project, Account: accountID("ann")})
	kind(t, err, store.Fatal)
}
