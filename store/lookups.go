package store

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast"
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
	// ClaimPayment says whose a provider's payment is: the first account that claims it. It returns the refunds that were
	// kept for it by now, before or after it was claimed.
	ClaimPayment(ctx context.Context, claim Claim) (Claimed, error)
	// KeepRefund keeps a refund beside the payment that it is of, known or not, once per refund id and up to MaxKeptRefunds
	// of a payment, and returns whose the payment is; zero: nobody's yet.
	KeepRefund(ctx context.Context, claim Claim, refund holdfast.PaymentRefund) (holdfast.AccountID, error)
	// PaymentOwner is whose a payment is, without claiming it; known is false where nobody has told of it.
	PaymentOwner(ctx context.Context, claim Claim) (claimed Claimed, known bool, err error)
	LastDecision(ctx context.Context) (time.Time, error)
	LiveWork(ctx context.Context) (count int64, firstExpiry time.Time, err error)
}
