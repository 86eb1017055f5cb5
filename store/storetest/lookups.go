package storetest

import (
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// ExerciseLookups proves what the edges rely on. Each test opens a store of its own.
func ExerciseLookups(t *testing.T, open func(t *testing.T) store.Lookups) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s store.Lookups)
	}{
		{"a project is made once", projects},
		{"a key is found by its hash alone, until it is revoked", keys},
		{"a catalog gets a new version when its content is new", catalogs},
		{"plans and units in use are told", inUse},
		{"a payment belongs to the first account that claims it", claims},
		{"a claim and a refund that come together do not miss each other", claimAgainstRefund},
		{"payments are listed, and found by their further names", listedClaims},
		{"an order keeps its first payment and what was told last", orders},
		{"the last decision and the live work are told", lastAndLive},
		{"lookups of a closed store are unavailable", closedLookups},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func projects(t *testing.T, s store.Lookups) {
	for _, step := range []struct {
		name    string
		created bool
	}{{"shop", true}, {"dev", true}, {"shop", false}} {
		created, err := s.AddProject(t.Context(), step.name)
		must(t, err)
		same(t, "created "+step.name, created, step.created)
	}
	names, err := s.Projects(t.Context())
	must(t, err)
	same(t, "the projects", names, []string{"dev", "shop"})
	_, err = s.AddProject(t.Context(), "")
	kind(t, err, store.Rejected)
}

func keys(t *testing.T, s store.Lookups) {
	has := func(wanted bool) {
		t.Helper()
		got, err := s.HasKeys(t.Context())
		must(t, err)
		same(t, "has keys", got, wanted)
	}
	find := func(hash [32]byte, wanted store.Key, known bool) {
		t.Helper()
		got, found, err := s.KeyByHash(t.Context(), hash)
		must(t, err)
		same(t, "found", found, known)
		same(t, "the key", got, wanted)
	}
	key := store.Key{ID: "ab12", Hash: [32]byte{1}, Project: project, Scopes: []string{"read", "work"}, RateLimit: 100, Note: "бот", CreatedAt: at(1)}
	has(false)
	kind(t, s.AddKey(t.Context(), key), store.Rejected) // of a project that nobody has made
	_, err := s.AddProject(t.Context(), project)
	must(t, err)
	must(t, s.AddKey(t.Context(), key))
	has(true)
	find(key.Hash, key, true)
	find([32]byte{2}, store.Key{}, false)

	again := key
	again.Scopes = []string{"admin"}
	must(t, s.AddKey(t.Context(), again))
	find(key.Hash, again, true)

	for _, wanted := range []bool{true, false} {
		revoked, err := s.RevokeKey(t.Context(), key.ID, at(5))
		must(t, err)
		same(t, "revoked", revoked, wanted)
	}
	has(false)
	find(key.Hash, store.Key{}, false)
	must(t, s.AddKey(t.Context(), key))
	find(key.Hash, key, true)
}

func catalogs(t *testing.T, s store.Lookups) {
	newest := func(of string, wanted store.Catalog, known bool) {
		t.Helper()
		got, ok, err := s.LatestCatalog(t.Context(), of)
		must(t, err)
		same(t, "a catalog of "+of, ok, known)
		same(t, "the newest catalog of "+of, got, wanted)
	}
	newest("", store.Catalog{}, false)
	newest("shop", store.Catalog{}, false)
	for _, step := range []struct {
		project, source   string
		expected, version int64
	}{
		{"", "plans: a\n", store.AnyVersion, 1},
		{"", "plans: a\n", 1, 1},
		{"", "plans: б\r\n", 1, 2},
		{"", "plans: a\n", store.AnyVersion, 3},
		{"shop", "plans: a\n", 3, 4},
		{"shop", "plans: a\n", 4, 4},
		{"shop", "plans: c\n", 4, 5},
		{"", "plans: d\n", 3, 4},
	} {
		source := []byte(step.source)
		version, err := s.AddCatalog(t.Context(), store.Catalog{Project: step.project, Source: source}, step.expected)
		must(t, err)
		same(t, "the version added", version, step.version)
		newest(step.project, store.Catalog{Project: step.project, Version: step.version, Source: source}, true)
	}
	newest("club", store.Catalog{Version: 4, Source: []byte("plans: d\n")}, true)
	for _, expected := range []int64{0, 3, 6} {
		_, err := s.AddCatalog(t.Context(), store.Catalog{Project: "shop", Source: []byte("plans: e\n")}, expected)
		kind(t, err, store.Conflict)
		if !errors.Is(err, store.ErrVersion) {
			t.Errorf("the cause of %v is not that another version is the newest", err)
		}
	}
	newest("shop", store.Catalog{Project: "shop", Version: 5, Source: []byte("plans: c\n")}, true)
	versions, err := s.CatalogVersions(t.Context())
	must(t, err)
	same(t, "the newest versions", versions, map[string]int64{"": 4, "shop": 5})
}

func inUse(t *testing.T, s store.Lookups) {
	told := func(of string, plans, units map[string]int64) {
		t.Helper()
		got, err := s.PlansInUse(t.Context(), of)
		must(t, err)
		same(t, "plans in use in "+of, got, plans)
		got, err = s.UnitsInUse(t.Context(), of)
		must(t, err)
		same(t, "units in use in "+of, got, units)
	}
	none := map[string]int64{}
	told("", none, none)
	ann, bob, carl := fresh("ann"), fresh("bob"), fresh("carl")
	ann.Account.Plan, bob.Account.Plan = "pro", "pro"
	image, closed := grant(2), grant(3)
	image.Unit, closed.Unit, closed.Used, closed.Open = "image", "token", 10, false
	ann.NewGrants, bob.NewGrants = []*holdfast.Grant{image, grant(1), closed, grant(4)}, []*holdfast.Grant{grant(1)}
	must(t, save(t, s, ann, bob, carl))
	plans, units := map[string]int64{"pro": 2}, map[string]int64{"credit": 2, "image": 1}
	told("", plans, units)
	told(project, plans, units)
	told("club", none, none)
	_, err := s.AddCatalog(t.Context(), store.Catalog{Project: project, Source: []byte("plans: a\n")}, store.AnyVersion)
	must(t, err)
	told("", none, none) // they have a catalog of their own now
	told(project, plans, units)
}

func claims(t *testing.T, s store.Lookups) {
	ann, bob := accountID("ann"), accountID("bob")
	claim := func(paymentID string, account holdfast.AccountID, wanted store.Claimed) {
		t.Helper()
		got, err := s.ClaimPayment(t.Context(), store.Claim{Project: project, Provider: "stars", PaymentID: paymentID, Account: account})
		must(t, err)
		same(t, "whose it is", got, wanted)
	}
	keep := func(paymentID, id string, wanted holdfast.AccountID) {
		t.Helper()
		got, err := s.KeepRefund(t.Context(), store.Claim{Project: project, Provider: "stars", PaymentID: paymentID}, holdfast.PaymentRefund{ID: id})
		must(t, err)
		same(t, "whose it is", got, wanted)
	}
	claim("1", ann, store.Claimed{Account: ann})
	claim("1", bob, store.Claimed{Account: ann})
	keep("1", "r1", ann)
	claim("1", ann, store.Claimed{Account: ann, Refunds: []holdfast.PaymentRefund{{ID: "r1"}}})
	keep("2", "r1", holdfast.AccountID{})
	keep("2", "r2", holdfast.AccountID{})
	keep("2", "r1", holdfast.AccountID{})
	claim("2", bob, store.Claimed{Account: bob, Refunds: []holdfast.PaymentRefund{{ID: "r1"}, {ID: "r2"}}})

	other := store.Claim{Project: "club", Provider: "stars", PaymentID: "1"}
	if _, known, err := s.PaymentOwner(t.Context(), other); known || err != nil {
		t.Errorf("known in another project: %t, %v", known, err)
	}
	for i := range store.MaxKeptRefunds {
		_, err := s.KeepRefund(t.Context(), other, holdfast.PaymentRefund{ID: strconv.Itoa(i)})
		must(t, err)
	}
	_, err := s.KeepRefund(t.Context(), other, holdfast.PaymentRefund{ID: "one more"})
	kind(t, err, store.Rejected)
	owner, known, err := s.PaymentOwner(t.Context(), other)
	must(t, err)
	if !known || !owner.Account.IsZero() || len(owner.Refunds) != store.MaxKeptRefunds {
		t.Errorf("known %t, of %s, with %d refunds", known, owner.Account, len(owner.Refunds))
	}
}

func claimAgainstRefund(t *testing.T, s store.Lookups) {
	for i := range 20 {
		claim := store.Claim{Project: project, Provider: "stars", PaymentID: strconv.Itoa(i)}
		mine := claim
		mine.Account = accountID("ann")
		var claimed store.Claimed
		var owner holdfast.AccountID
		var failed [2]error
		var both sync.WaitGroup
		both.Go(func() { claimed, failed[0] = s.ClaimPayment(t.Context(), mine) })
		both.Go(func() { owner, failed[1] = s.KeepRefund(t.Context(), claim, holdfast.PaymentRefund{ID: "r"}) })
		both.Wait()
		must(t, errors.Join(failed[:]...))
		if len(claimed.Refunds) == 0 && owner.IsZero() {
			t.Fatal("neither saw the other: the refund would be lost")
		}
	}
}

func lastAndLive(t *testing.T, s store.Lookups) {
	told := func(last time.Time, live int64, first time.Time) {
		t.Helper()
		decided, err := s.LastDecision(t.Context())
		must(t, err)
		same(t, "the last decision", decided, last)
		count, expiry, err := s.LiveWork(t.Context())
		must(t, err)
		same(t, "live reservations", count, live)
		same(t, "the first to expire", expiry, first)
	}
	told(time.Time{}, 0, time.Time{})
	ann, bob := fresh("ann"), fresh("bob")
	bob.Account.DecidedAt = ann.Account.DecidedAt.Add(time.Hour)
	first, second, over := reservation(1), reservation(2), reservation(3)
	second.ExpiresAt = first.ExpiresAt.Add(time.Minute)
	over.State, over.EndedAt, over.ExpiresAt = holdfast.Released, over.CreatedAt, first.ExpiresAt.Add(-time.Second)
	first.Surface, second.Surface, over.Surface = "bot", "bot", "bot"
	started, nowhere := reservation(4), reservation(5)
	started.Surface, nowhere.Surface = "miniapp", ""
	started.State, started.LeaseToken, started.Attempts = holdfast.Running, "token", 1
	started.LeaseExpiresAt, started.ExpiresAt, nowhere.ExpiresAt = first.ExpiresAt, first.ExpiresAt.Add(time.Hour), first.ExpiresAt.Add(time.Hour)
	ann.NewReservations, bob.NewReservations = []*holdfast.Reservation{second, over, nowhere}, []*holdfast.Reservation{first, started}
	must(t, save(t, s, ann, bob))
	told(bob.Account.DecidedAt, 4, first.ExpiresAt)
	for at, count := range map[time.Time]int64{first.ExpiresAt.Add(-time.Microsecond): 0, first.ExpiresAt: 1} {
		surfaces, err := s.LiveBySurface(t.Context(), at)
		must(t, err)
		same(t, "live work by surface", surfaces, []store.SurfaceWork{
			{Live: 1, FirstExpiry: nowhere.ExpiresAt},
			{Surface: "bot", Live: 2, Overdue: count, FirstExpiry: first.ExpiresAt},
			{Surface: "miniapp", Live: 1, Lapsed: count, FirstExpiry: started.ExpiresAt},
		})
	}
}

func closedLookups(t *testing.T, s store.Lookups) {
	must(t, s.Close())
	_, err := s.AddProject(t.Context(), project)
	kind(t, err, store.Unavailable)
	_, _, err = s.KeyByHash(t.Context(), [32]byte{})
	kind(t, err, store.Unavailable)
	_, err = s.AddCatalog(t.Context(), store.Catalog{}, store.AnyVersion)
	kind(t, err, store.Unavailable)
}
