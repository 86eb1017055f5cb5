package storetest

import (
	"context"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Lookups is what the edges keep in a store beside the accounts.
type Lookups interface {
	store.Store
	AddProject(ctx context.Context, name string) (created bool, err error)
	Projects(ctx context.Context) ([]string, error)
	AddKey(ctx context.Context, key store.Key) error
	RevokeKey(ctx context.Context, id string, when time.Time) (revoked bool, err error)
	KeyByHash(ctx context.Context, hash [32]byte) (store.Key, bool, error)
	HasKeys(ctx context.Context) (bool, error)
	LatestCatalog(ctx context.Context) (version int64, source []byte, ok bool, err error)
	AddCatalog(ctx context.Context, source []byte) (version int64, err error)
	PlansInUse(ctx context.Context) ([]string, error)
	UnitsInUse(ctx context.Context) ([]string, error)
	LastDecision(ctx context.Context) (time.Time, error)
	LiveWork(ctx context.Context) (count int64, firstExpiry time.Time, err error)
}

// ExerciseLookups proves what the edges rely on. Each test opens a store of its own.
func ExerciseLookups(t *testing.T, open func(t *testing.T) Lookups) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s Lookups)
	}{
		{"a project is made once", projects},
		{"a key is found by its hash alone, until it is revoked", keys},
		{"a catalog gets a new version when its content is new", catalogs},
		{"plans and units in use are told", inUse},
		{"the last decision and the live work are told", lastAndLive},
		{"lookups of a closed store are unavailable", closedLookups},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func projects(t *testing.T, s Lookups) {
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

func keys(t *testing.T, s Lookups) {
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
	key := store.Key{ID: "ab12", Hash: [32]byte{1}, Project: project, Scopes: []string{"read", "work"}, Note: "бот", CreatedAt: at(1)}
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

func catalogs(t *testing.T, s Lookups) {
	_, _, ok, err := s.LatestCatalog(t.Context())
	must(t, err)
	same(t, "a catalog in an empty store", ok, false)
	for _, step := range []struct {
		source  string
		version int64
	}{{"plans: a\n", 1}, {"plans: a\n", 1}, {"plans: б\r\n", 2}, {"plans: a\n", 3}} {
		version, err := s.AddCatalog(t.Context(), []byte(step.source))
		must(t, err)
		same(t, "the version added", version, step.version)
		version, source, ok, err := s.LatestCatalog(t.Context())
		must(t, err)
		same(t, "a catalog", ok, true)
		same(t, "the newest version", version, step.version)
		same(t, "its source", string(source), step.source)
	}
}

func inUse(t *testing.T, s Lookups) {
	told := func(ask func(context.Context) ([]string, error), wanted ...string) {
		t.Helper()
		got, err := ask(t.Context())
		must(t, err)
		same(t, "in use", got, wanted)
	}
	told(s.PlansInUse)
	told(s.UnitsInUse)
	ann, bob, carl := fresh("ann"), fresh("bob"), fresh("carl")
	ann.Account.Plan, bob.Account.Plan = "pro", "pro"
	image, closed := grant(2), grant(3)
	image.Unit, closed.Unit, closed.Used, closed.Open = "image", "token", 10, false
	ann.NewGrants, bob.NewGrants = []*holdfast.Grant{image, grant(1), closed}, []*holdfast.Grant{grant(1)}
	must(t, save(t, s, ann, bob, carl))
	told(s.PlansInUse, "pro")
	told(s.UnitsInUse, "credit", "image")
}

func lastAndLive(t *testing.T, s Lookups) {
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
	ann.NewReservations, bob.NewReservations = []*holdfast.Reservation{second, over}, []*holdfast.Reservation{first}
	must(t, save(t, s, ann, bob))
	told(bob.Account.DecidedAt, 2, first.ExpiresAt)
}

func closedLookups(t *testing.T, s Lookups) {
	must(t, s.Close())
	_, err := s.AddProject(t.Context(), project)
	kind(t, err, store.Unavailable)
	_, _, err = s.KeyByHash(t.Context(), [32]byte{})
	kind(t, err, store.Unavailable)
	_, err = s.AddCatalog(t.Context(), nil)
	kind(t, err, store.Unavailable)
}
