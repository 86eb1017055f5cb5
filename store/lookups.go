package store

import (
	"context"
	"time"
)

// Lookups is a store and what the edges keep beside the accounts: small tables that are unique over all accounts.
type Lookups interface {
	Store
	AddProject(ctx context.Context, name string) (created bool, err error)
	Projects(ctx context.Context) ([]string, error)
	AddKey(ctx context.Context, key Key) error
	RevokeKey(ctx context.Context, id string, when time.Time) (revoked bool, err error)
	KeyByHash(ctx context.Context, hash [32]byte) (Key, bool, error)
	HasKeys(ctx context.Context) (bool, error)
	LatestCatalog(ctx context.Context, project string) (Catalog, bool, error)
	AddCatalog(ctx context.Context, added Catalog, expected int64) (version int64, err error)
	CatalogVersions(ctx context.Context) (map[string]int64, error)
	PlansInUse(ctx context.Context, project string) (map[string]int64, error)
	UnitsInUse(ctx context.Context, project string) (map[string]int64, error)
	LastDecision(ctx context.Context) (time.Time, error)
	LiveWork(ctx context.Context) (count int64, firstExpiry time.Time, err error)
}
