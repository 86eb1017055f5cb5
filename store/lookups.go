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
	// ClaimedPayments lists the ids of a provider's payments that an account has claimed, in the order of their bytes.
	ClaimedPayments(ctx context.Context, project, provider, after string, limit int) ([]string, error)
	// NamePayment keeps a further id that the provider has for a payment; the first one that is told stays.
	NamePayment(ctx context.Context, claim Claim, name string) error
	// PaymentNamed is the payment's id behind a further one; empty: nobody has told of it.
	PaymentNamed(ctx context.Context, project, provider, name string) (paymentID string, err error)
	// AddOrder keeps an order; one of the same name that was kept before stays as it is.
	AddOrder(ctx context.Context, order Order) error
	OrderNamed(ctx context.Context, name OrderName) (order Order, known bool, err error)
	// RecurringOrders are those of an account, by its name, that were paid and are charged again with every period, the
	// latest paid first, up to MaxRecurringOrders. Providers tell seconds: of those paid in the same one, the latest made.
	RecurringOrders(ctx context.Context, project, provider, account string) ([]Order, error)
	// PayOrder keeps the earliest time of a payment, and which payment was the first and whose; the first that is told stays.
	PayOrder(ctx context.Context, name OrderName, paid OrderPaid) error
	// TellOrder keeps whether an order is charged again, unless something later was told.
	TellOrder(ctx context.Context, name OrderName, cancelled bool, at time.Time) error
	LastDecision(ctx context.Context) (time.Time, error)
	LiveWork(ctx context.Context) (count int64, firstExpiry time.Time, err error)
	// LiveBySurface is the live work of each surface that has any, in the order of their names. It reads every live
	// reservation, at start only.
	LiveBySurface(ctx context.Context, at time.Time) ([]SurfaceWork, error)
}

// SurfaceWork is what is live of one surface at a moment.
type SurfaceWork struct {
	Surface     string // empty: the reserve named none
	Live        int64
	Lapsed      int64 // of these, started ones whose worker's lease is over
	Overdue     int64 // of these, those that the sweeper may end
	FirstExpiry time.Time
}
