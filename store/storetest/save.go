package storetest

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

func frozen(t *testing.T, o Opened) {
	c := fresh("ann")
	c.NewGrants, c.NewReservations = []*holdfast.Grant{grant(1)}, []*holdfast.Reservation{withJob(11)}
	must(t, save(t, o.Store, c))
	g, r := *grant(1), *withJob(11)
	r.Job = &holdfast.Job{Queue: "other.other", MaxAttempts: 9, Payload: "1", Errors: 1}
	g.Unit, g.Source, g.Allowance, g.Features, g.Priority = "image", holdfast.FromPromo, "daily", []string{"f"}, 1
	g.Granted, g.StartsAt, g.EndsAt, g.CreatedAt, g.Used = 99, at(50), at(60), at(50), 1
	r.Feature, r.Quantity, r.Price, r.Reserved = "other", 2, holdfast.Price{Unit: "image", Amount: 1, Per: 7}, 5
	r.Key, r.Surface, r.Metadata, r.Usage = "k", "s", map[string]string{"a": "b"}, map[string]holdfast.Amount{"a": 1}
	r.CatalogVersion, r.TTL, r.MaxHold, r.CreatedAt, r.Attempts = 9, time.Hour, time.Hour, at(50), 1
	r.Policies.Overrun = holdfast.OverrunDebt
	c = fresh("ann")
	c.Account.Version, c.Account.CreatedAt, c.Account.Name, c.Account.Project = 1, at(50), "another", "another"
	c.Grants, c.Reservations = []*holdfast.Grant{&g}, []*holdfast.Reservation{&r}
	must(t, save(t, o.Store, c))

	used, started, account := grant(1), withJob(11), fresh("ann").Account
	started.Job.Errors = 1
	used.Used, used.EndsAt, started.Attempts, account.Version = 1, at(60), 1, 2
	started.Quantity, started.Reserved, started.Usage = 2, 5, map[string]holdfast.Amount{"a": 1} // may grow
	w := want("ann")
	w.Reservations = []holdfast.ID{id(11)}
	same(t, "the state", load(t, o.Store, w)[0], &holdfast.State{
		Account: account, Grants: []*holdfast.Grant{used}, Reservations: []*holdfast.Reservation{started},
	})
}

func erased(t *testing.T, o Opened) {
	before := everything("ann")
	must(t, save(t, o.Store, before, everything("bob")))
	c := fresh("ann")
	c.Account.Version, c.Account.LastEntry, c.Account.Name, c.Erase = 1, 2, holdfast.Erased, true
	late := reservation(99)
	late.Metadata = map[string]string{"chat": "42"}
	c.NewReservations = []*holdfast.Reservation{late}
	must(t, save(t, o.Store, c))

	keys := []string{before.Answers[0].Key, before.Answers[1].Key}
	w := want("ann")
	w.Keys = keys
	answers := load(t, o.Store, w)[0].Answers
	stored := everythingStored(t, o)
	if bob := stored["bob"]; len(bob.Reservations) == 0 || bob.Account.Name != "bob" {
		t.Error("another account was erased too")
	}
	ann, found := stored[holdfast.Erased]
	if !found || len(ann.Reservations) != len(before.NewReservations)+1 || len(answers) != len(keys) {
		t.Fatalf("%d reservations and %d answers of the erased account", len(ann.Reservations), len(answers))
	}
	for _, r := range ann.Reservations {
		if r.Metadata != nil {
			t.Errorf("reservation %s still has metadata", r.ID)
		}
	}
	for _, a := range answers {
		wanted := before.Answers[slices.Index(keys, a.Key)].Outcome
		wanted.ForgetPerson()
		same(t, "the recorded answer", a.Outcome, wanted)
	}
}

func fence(t *testing.T, o Opened) {
	must(t, save(t, o.Store, fresh("ann")))
	first, second := fresh("ann"), fresh("ann") // two decisions from one reading
	first.Account.Version, second.Account.Version = 1, 1
	first.Account.Plan, second.Account.Plan = "first", "second"
	second.NewGrants, second.Answers, second.Events = []*holdfast.Grant{grant(1)}, []*holdfast.Answer{answer("k", 1)}, []holdfast.Event{event(1)}
	must(t, save(t, o.Store, first))
	before := everythingStored(t, o, "k")
	kind(t, save(t, o.Store, second), store.Conflict)
	same(t, "what is stored", everythingStored(t, o, "k"), before)
	if a := before["ann"].Account; a.Version != 2 || a.Plan != "first" {
		t.Errorf("version %d on plan %q; wanted what the first decision wrote", a.Version, a.Plan)
	}
	second.Account.Version = 2
	must(t, save(t, o.Store, second))
}

func fenceOfNew(t *testing.T, o Opened) {
	must(t, save(t, o.Store, fresh("ann")))
	late := fresh("ann")
	late.Account.Plan, late.NewGrants = "late", []*holdfast.Grant{grant(1)}
	before := everythingStored(t, o)
	kind(t, save(t, o.Store, late), store.Conflict)
	gone := fresh("bob")
	gone.Account.Version = 3
	kind(t, save(t, o.Store, gone), store.Conflict)
	same(t, "what is stored", everythingStored(t, o), before)
}

func entryNumber(t *testing.T, o Opened) {
	c := fresh("ann")
	c.Account.LastEntry, c.Entries = 1, []holdfast.Entry{entry(1)}
	must(t, save(t, o.Store, c))
	before := everythingStored(t, o)
	c.Account.Version, c.NewGrants = 1, []*holdfast.Grant{grant(1)}
	c.Entries[0].Reason = "another decision"
	kind(t, save(t, o.Store, c), store.Conflict)
	same(t, "what is stored", everythingStored(t, o), before)
}

func allOrNothing(t *testing.T, o Opened) {
	if o.Store.Traits().MaxAccounts == 1 {
		t.Skip("a transaction of this store spans one account")
	}
	must(t, save(t, o.Store, everything("ann"), fresh("bob")))
	before := everythingStored(t, o, "k")
	ann, bob, new := fresh("ann"), fresh("bob"), fresh("carl")
	ann.Account.Version, bob.Account.Version = 1, 1
	ann.NewGrants, ann.NewReservations = []*holdfast.Grant{grant(50)}, []*holdfast.Reservation{reservation(51)}
	changed := everything("ann")
	ann.Grants, ann.Reservations = []*holdfast.Grant{changed.NewGrants[2]}, []*holdfast.Reservation{changed.NewReservations[4]}
	ann.Grants[0].Used, ann.Reservations[0].Attempts = 1, 1
	ann.Entries, ann.Answers, ann.Events = []holdfast.Entry{entry(3)}, []*holdfast.Answer{answer("k", 1)}, []holdfast.Event{event(60)}
	for _, last := range []struct {
		wrong  func(c *holdfast.Changes)
		wanted store.Kind
	}{
		{func(c *holdfast.Changes) { c.Account.Version = 7 }, store.Conflict},
		{func(c *holdfast.Changes) {
			c.NewGrants = []*holdfast.Grant{grant(1)}
			c.NewGrants[0].Used = 11
		}, store.Rejected},
	} {
		wrong := bob
		last.wrong(&wrong)
		kind(t, save(t, o.Store, ann, new, wrong), last.wanted)
		same(t, "what is stored after one of three failed", everythingStored(t, o, "k"), before)
	}
	must(t, save(t, o.Store, ann, new, bob))
	after := everythingStored(t, o, "k")
	if after["ann"].Account.Version != 2 || after["bob"].Account.Version != 2 || after["carl"].Account.Version != 1 || len(after["ann"].Answers) != 1 {
		t.Error("all three are stored in the end")
	}
}

func rejectedContent(t *testing.T, o Opened) {
	seed := fresh("ann")
	seed.NewGrants, seed.NewReservations = []*holdfast.Grant{grant(1)}, []*holdfast.Reservation{reservation(11)}
	must(t, save(t, o.Store, seed))
	before := everythingStored(t, o, "k", "")
	newGrant := func(change func(*holdfast.Grant)) func(*holdfast.Changes) {
		return func(c *holdfast.Changes) {
			g := grant(2)
			change(g)
			c.NewGrants = append(c.NewGrants, g)
		}
	}
	newReservation := func(change func(*holdfast.Reservation)) func(*holdfast.Changes) {
		return func(c *holdfast.Changes) {
			r := reservation(12)
			change(r)
			c.NewReservations = append(c.NewReservations, r)
		}
	}
	newEntry := func(change func(*holdfast.Entry)) func(*holdfast.Changes) {
		return func(c *holdfast.Changes) {
			e := entry(1)
			change(&e)
			c.Entries = append(c.Entries, e)
		}
	}
	for name, spoil := range map[string]func(c *holdfast.Changes){
		"an account with negative slots":   func(c *holdfast.Changes) { c.Account.Active = -1 },
		"an account with a negative entry": func(c *holdfast.Changes) { c.Account.LastEntry = -1 },
		"an account without its time":      func(c *holdfast.Changes) { c.Account.DecidedAt = time.Time{} },

		"a grant of nothing":               newGrant(func(g *holdfast.Grant) { g.Granted = 0 }),
		"a grant beyond 2^53-1":            newGrant(func(g *holdfast.Grant) { g.Granted = holdfast.MaxAmount + 1 }),
		"a grant used beyond what it had":  newGrant(func(g *holdfast.Grant) { g.Used = 11 }),
		"a grant overdrawn in sum":         newGrant(func(g *holdfast.Grant) { g.Reserved, g.Used, g.Voided = 4, 4, 3 }),
		"a grant whose sum wraps":          newGrant(func(g *holdfast.Grant) { g.Reserved, g.Used = 1<<63-1, 1<<63-1 }),
		"a grant with a negative use":      newGrant(func(g *holdfast.Grant) { g.Used = -1 }),
		"a grant with a negative hold":     newGrant(func(g *holdfast.Grant) { g.Reserved = -1 }),
		"a grant with a negative void":     newGrant(func(g *holdfast.Grant) { g.Voided = -1 }),
		"a grant of an unknown source":     newGrant(func(g *holdfast.Grant) { g.Source = "gift" }),
		"a grant of no unit":               newGrant(func(g *holdfast.Grant) { g.Unit = "" }),
		"a grant with a negative priority": newGrant(func(g *holdfast.Grant) { g.Priority = -1 }),
		"a grant that ends as it starts":   newGrant(func(g *holdfast.Grant) { g.EndsAt = g.StartsAt }),
		"a grant that never began":         newGrant(func(g *holdfast.Grant) { g.StartsAt = time.Time{} }),
		"a closed grant that holds":        newGrant(func(g *holdfast.Grant) { g.Reserved, g.Open = 1, false }),
		"a grant that is stored already":   newGrant(func(g *holdfast.Grant) { g.ID = id(1) }),
		"a grant twice":                    func(c *holdfast.Changes) { c.NewGrants = []*holdfast.Grant{grant(2), grant(2)} },
		"a change of an unknown grant":     func(c *holdfast.Changes) { c.Grants = []*holdfast.Grant{grant(3)} },
		"a change that overdraws": func(c *holdfast.Changes) {
			g := grant(1)
			g.Reserved, g.Used = 1, 10
			c.Grants = []*holdfast.Grant{g}
		},

		"a reservation of nothing":                newReservation(func(r *holdfast.Reservation) { r.Quantity = 0 }),
		"a reservation of no feature":             newReservation(func(r *holdfast.Reservation) { r.Feature = "" }),
		"a reservation in an unknown state":       newReservation(func(r *holdfast.Reservation) { r.State = "lost" }),
		"a live reservation that has ended":       newReservation(func(r *holdfast.Reservation) { r.EndedAt = at(13) }),
		"an ended reservation without its end":    newReservation(func(r *holdfast.Reservation) { r.State = holdfast.Committed }),
		"a reservation that holds a negative":     newReservation(func(r *holdfast.Reservation) { r.Reserved = -1 }),
		"a reservation that holds beyond 2^53-1":  newReservation(func(r *holdfast.Reservation) { r.Reserved = holdfast.MaxAmount + 1 }),
		"a reservation charged a negative":        newReservation(func(r *holdfast.Reservation) { r.Used = -1 }),
		"a reservation with a negative price":     newReservation(func(r *holdfast.Reservation) { r.Price.Amount = -1 }),
		"a reservation with a negative rest":      newReservation(func(r *holdfast.Reservation) { r.Unbilled = -1 }),
		"a reservation refunded a negative":       newReservation(func(r *holdfast.Reservation) { r.Refunded = -1 }),
		"a late charge of a live reservation":     newReservation(func(r *holdfast.Reservation) { r.LateUsed, r.LateAt = 1, at(99) }),
		"a late charge without its time":          newReservation(func(r *holdfast.Reservation) { r.State, r.EndedAt, r.LateUsed = holdfast.Expired, at(80), 1 }),
		"a reservation without a ttl":             newReservation(func(r *holdfast.Reservation) { r.TTL = 0 }),
		"a reservation that expires as it begins": newReservation(func(r *holdfast.Reservation) { r.ExpiresAt = r.CreatedAt }),
		"a reservation with negative attempts":    newReservation(func(r *holdfast.Reservation) { r.Attempts = -1 }),
		"a reservation that is stored already":    newReservation(func(r *holdfast.Reservation) { r.ID = id(11) }),
		"a change of an unknown reservation":      func(c *holdfast.Changes) { c.Reservations = []*holdfast.Reservation{reservation(13)} },
		"a change that ends a reservation half way": func(c *holdfast.Changes) {
			r := reservation(11)
			r.State = holdfast.Released
			c.Reservations = []*holdfast.Reservation{r}
		},

		"an entry with number zero":       newEntry(func(e *holdfast.Entry) { e.No = 0 }),
		"an entry of no kind":             newEntry(func(e *holdfast.Entry) { e.Kind = "" }),
		"an entry with a negative rest":   newEntry(func(e *holdfast.Entry) { e.Available = -1 }),
		"an entry with a negative hold":   newEntry(func(e *holdfast.Entry) { e.Reserved = -1 }),
		"an entry that was never written": newEntry(func(e *holdfast.Entry) { e.RecordedAt = time.Time{} }),

		"an answer to no key":         func(c *holdfast.Changes) { c.Answers = []*holdfast.Answer{answer("", 1)} },
		"an event of an unknown kind": func(c *holdfast.Changes) { c.Events = []holdfast.Event{{ID: id(1), At: at(1)}} },
		"an event of an entry that is not there": func(c *holdfast.Changes) {
			e := event(1)
			e.Entry = 9
			c.Events = []holdfast.Event{e}
		},
		"an event with a negative figure": func(c *holdfast.Changes) {
			e := event(1)
			e.Figure = -1
			c.Events = []holdfast.Event{e}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := fresh("ann")
			c.Account.Version, c.Account.Plan = 1, "pro"
			c.NewGrants, c.Answers, c.Events = []*holdfast.Grant{grant(9)}, []*holdfast.Answer{answer("k", 1)}, []holdfast.Event{event(9)}
			spoil(&c)
			kind(t, save(t, o.Store, c), store.Rejected)
			same(t, "what is stored", everythingStored(t, o, "k", ""), before)
		})
	}
}

func misuse(t *testing.T, o Opened) {
	tx, _ := begin(t, o.Store, want("ann"))
	_, err := tx.Load(t.Context(), []store.Want{want("ann")})
	kind(t, err, store.Rejected)
	must(t, tx.Save(t.Context(), []holdfast.Changes{fresh("ann")}))
	kind(t, tx.Save(t.Context(), []holdfast.Changes{fresh("ann")}), store.Rejected)
	must(t, tx.Abort(t.Context()))
	must(t, tx.Abort(t.Context()))

	tx, err = o.Store.Begin(t.Context())
	must(t, err)
	kind(t, tx.Save(t.Context(), []holdfast.Changes{fresh("bob")}), store.Rejected)
	must(t, tx.Abort(t.Context()))
	_, err = tx.Load(t.Context(), nil)
	kind(t, err, store.Rejected)

	tx, _ = begin(t, o.Store, want("ann"))
	kind(t, tx.Save(t.Context(), []holdfast.Changes{fresh("bob")}), store.Rejected) // was not loaded
	without := want("bob")
	without.Create = false
	tx, _ = begin(t, o.Store, without)
	kind(t, tx.Save(t.Context(), []holdfast.Changes{fresh("bob")}), store.Rejected) // may not be made
	if stored := everythingStored(t, o); len(stored) != 1 || stored["ann"].Account.Version != 1 {
		t.Errorf("%d accounts stored; wanted the one that was saved", len(stored))
	}
	tx, _ = begin(t, o.Store, want("ann"))
	must(t, tx.Save(t.Context(), nil)) // nothing to write is no mistake
	must(t, save(t, o.Store, fresh("bob")))
}

func abort(t *testing.T, o Opened) {
	tx, _ := begin(t, o.Store, want("ann"))
	must(t, tx.Abort(t.Context()))
	must(t, tx.Abort(t.Context()))
	kind(t, tx.Save(t.Context(), []holdfast.Changes{fresh("ann")}), store.Rejected)
	if stored := everythingStored(t, o); len(stored) != 0 {
		t.Errorf("%d accounts stored by a transaction that was aborted", len(stored))
	}
	must(t, save(t, o.Store, fresh("ann")))
}

func exclusion(t *testing.T, o Opened) {
	must(t, save(t, o.Store, fresh("ann")))
	tx, _ := begin(t, o.Store, want("ann"))
	loading := make(chan struct{})
	loaded := make(chan int64, 1)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		second, err := o.Store.Begin(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		close(loading)
		states, err := second.Load(t.Context(), []store.Want{want("ann")})
		if err != nil {
			t.Error(err)
			return
		}
		loaded <- states[0].Account.Version
		if err := second.Abort(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-loading
	select {
	case <-loaded:
		t.Error("the account was loaded while another transaction had it")
	default:
	}
	c := fresh("ann")
	c.Account.Version = 1
	must(t, tx.Save(t.Context(), []holdfast.Changes{c}))
	waiting.Wait()
	if version := <-loaded; version != 2 {
		t.Errorf("the second transaction read version %d; wanted the 2 that it had waited for", version)
	}
}

// background runs do beside the test, and returns what waits for its end.
func background(do func()) (wait func()) {
	var running sync.WaitGroup
	running.Go(do)
	return running.Wait
}

// heldBy is what both tests of held accounts do: one transaction holds ann, and others want her and bob.
func heldBy(t *testing.T, o Opened, release func()) {
	both := []store.Want{want("ann"), want("bob")}
	if o.Store.Traits().MaxAccounts == 1 {
		both = both[:1]
	}
	if o.Skips && len(both) > 1 {
		tx, states := begin(t, o.Store, both...)
		if states[0] != nil || states[1] == nil {
			t.Fatalf("loaded %v and %v; wanted the held account skipped, and the other one", states[0], states[1])
		}
		c := fresh("bob")
		c.Account.Version = states[1].Account.Version
		must(t, tx.Save(t.Context(), []holdfast.Changes{c}))
		tx, _ = begin(t, o.Store, both...)
		kind(t, tx.Save(t.Context(), []holdfast.Changes{fresh("ann")}), store.Rejected) // was not loaded
	}
	for i := range both {
		both[i].Wait = true
	}
	begun := make(chan struct{})
	var states []*holdfast.State
	wait := background(func() {
		tx, err := o.Store.Begin(t.Context())
		if err != nil {
			t.Error(err)
			return
		}
		close(begun)
		if states, err = tx.Load(t.Context(), both); err != nil {
			t.Error(err)
		}
		if err := tx.Abort(t.Context()); err != nil {
			t.Error(err)
		}
	})
	<-begun
	release()
	wait()
	for i, state := range states {
		if state == nil {
			t.Errorf("%s was skipped by one who would wait", both[i].Name)
		}
	}
	if len(states) != len(both) {
		t.Errorf("%d states for %d wants", len(states), len(both))
	}
}

func held(t *testing.T, o Opened) {
	must(t, save(t, o.Store, fresh("ann"), fresh("bob")))
	tx, _ := begin(t, o.Store, want("ann"))
	heldBy(t, o, func() {
		c := fresh("ann")
		c.Account.Version = 1
		must(t, tx.Save(t.Context(), []holdfast.Changes{c}))
	})
	if stored := everythingStored(t, o)["ann"].Account; stored.Version != 2 {
		t.Errorf("version %d of the account that was held; wanted 2", stored.Version)
	}
}

func heldNew(t *testing.T, o Opened) {
	must(t, save(t, o.Store, fresh("bob")))
	tx, _ := begin(t, o.Store, want("ann"))
	heldBy(t, o, func() { must(t, tx.Save(t.Context(), []holdfast.Changes{fresh("ann")})) })
	if stored := everythingStored(t, o)["ann"].Account; stored.Version != 1 {
		t.Errorf("version %d of the account that was made; wanted 1", stored.Version)
	}
}

func lookedAt(t *testing.T, o Opened) {
	names := []string{"ann", "bob", "carl"}[:mostAccounts(o.Store, 3)]
	var wants []store.Want
	for _, name := range names {
		wants = append(wants, want(name))
	}
	tx, _ := begin(t, o.Store, wants...)
	must(t, tx.Save(t.Context(), []holdfast.Changes{fresh("ann")}[:min(1, len(names)-1)])) // the others get nothing
	if stored := everythingStored(t, o); len(stored) != min(1, len(names)-1) {
		t.Errorf("%d accounts stored", len(stored))
	}
	for _, name := range names[1:] {
		if page := read(t, o.Store, store.Query{Kind: store.QueryState, Account: accountID(name)}); page.State != nil {
			t.Errorf("%s has a state", name)
		}
	}
	must(t, save(t, o.Store, fresh("bob"), fresh("carl")))
}

func tooManyAccounts(t *testing.T, o Opened) {
	most := o.Store.Traits().MaxAccounts
	if most == 0 {
		most = 100
		var wants []store.Want
		for n := range most {
			wants = append(wants, want("account "+strconv.Itoa(n)))
		}
		load(t, o.Store, wants...)
		return
	}
	tx, err := o.Store.Begin(t.Context())
	must(t, err)
	_, err = tx.Load(t.Context(), []store.Want{want("ann"), want("bob")}[:most+1])
	kind(t, err, store.Rejected)
	must(t, tx.Abort(t.Context()))
}

func endedContext(t *testing.T, o Opened) {
	ended, end := context.WithCancel(t.Context())
	tx, err := o.Store.Begin(ended)
	must(t, err)
	end()
	_, err = tx.Load(ended, []store.Want{want("ann")})
	kind(t, err, store.Unavailable)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not tell that the context had ended", err)
	}

	tx, _ = begin(t, o.Store, want("ann"))
	kind(t, tx.Save(ended, []holdfast.Changes{fresh("ann")}), store.Unavailable)
	if stored := everythingStored(t, o); len(stored) != 0 {
		t.Errorf("%d accounts stored after the caller had left", len(stored))
	}

	tx, _ = begin(t, o.Store, want("ann")) // holds the account
	waiting, leave := context.WithCancel(t.Context())
	second, err := o.Store.Begin(waiting)
	must(t, err)
	result := make(chan error)
	go func() {
		_, err := second.Load(waiting, []store.Want{want("ann")})
		result <- err
	}()
	leave()
	kind(t, <-result, store.Unavailable)
	must(t, tx.Save(t.Context(), []holdfast.Changes{fresh("ann")}))

	_, err = o.Store.Read(ended, store.Query{Kind: store.QueryState, Project: project, Account: accountID("ann")})
	kind(t, err, store.Unavailable)
	_, err = o.Store.Scan(ended, store.Due{At: at(0), Limit: 1})
	kind(t, err, store.Unavailable)
	kind(t, o.Store.Dump(ended, func(store.Record) error { return nil }), store.Unavailable)
	must(t, save(t, o.Store, fresh("bob")))
}

func noLostUpdate(t *testing.T, o Opened) {
	const writers, each = 8, 10
	seed := fresh("ann")
	seed.NewGrants = []*holdfast.Grant{grant(1)}
	seed.NewGrants[0].Granted = writers * each
	must(t, save(t, o.Store, seed))
	useOne := func(no string) error {
		tx, err := o.Store.Begin(t.Context())
		if err != nil {
			return err
		}
		states, err := tx.Load(t.Context(), []store.Want{want("ann")})
		if err != nil {
			return err
		}
		c := holdfast.Changes{Account: states[0].Account, Grants: states[0].Grants}
		c.Account.LastEntry++
		c.Grants[0].Used++
		e := entry(c.Account.LastEntry)
		e.Key = no
		c.Entries = []holdfast.Entry{e}
		return tx.Save(t.Context(), []holdfast.Changes{c})
	}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				err := useOne(strconv.Itoa(w*each + i))
				for store.KindOf(err) == store.Conflict && err != nil {
					err = useOne(strconv.Itoa(w*each + i))
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	stored := everythingStored(t, o)["ann"]
	if stored.Account.Version != 1+writers*each || stored.Grants[0].Used != writers*each || len(stored.Entries) != writers*each {
		t.Errorf("version %d, used %d, %d entries; wanted %d updates", stored.Account.Version, stored.Grants[0].Used, len(stored.Entries), writers*each)
	}
	seen := map[string]bool{}
	for i, e := range stored.Entries {
		if seen[e.Key] || e.No != int64(i+1) {
			t.Errorf("entry %d with key %s: a gap, or written twice", e.No, e.Key)
		}
		seen[e.Key] = true
	}
}
