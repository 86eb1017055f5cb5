package holdfast

import (
	"slices"
	"time"
)

// Catalog is what a project sells, compiled from YAML by package catalog. It is immutable: a change is a new version.
// Reservations keep the price and policies they were made with, so only the newest version is ever consulted.
type Catalog struct {
	Version  int64
	Units    []Unit
	Features []Feature
	Surfaces []Surface
	Plans    []Plan
	Products []Product
}

// Unit is what is counted. Scale is how many decimal digits are shown; amounts are always its smallest step.
type Unit struct {
	Name  string
	Scale int
	Names Plurals
}

// Plurals holds, per language, the plural forms (one, few, many, other) of a unit's name.
type Plurals map[string]map[string]string

// Names holds a name per language.
type Names map[string]string

// Feature is what a person can ask for.
type Feature struct {
	Name        string
	Names       Names
	Prices      []Price // in the order in which they are tried
	Queue       string  // where its jobs wait; empty: the feature's own name
	LongestJob  time.Duration
	LongestWait time.Duration
	TTL         time.Duration
	MaxHold     time.Duration // how long a reservation may live in all; 0: HoldFactor × its ttl
	Policies    Policies
}

// Price is one alternative. A fixed price is Amount of Unit for a quantity of one. A price by usage has Per and Rates, and
// no Amount: Rates of Unit for every Per of each kind; the sum is rounded up once.
type Price struct {
	Unit   string
	Amount Amount            `json:",omitzero"`
	Per    Amount            `json:",omitzero"` // 0: a fixed price
	Rates  map[string]Amount `json:",omitzero"`
}

// Policies are a feature's answers to what can go wrong. A reservation keeps those it was made with.
type Policies struct {
	Overrun       Overrun       `json:",omitzero"`
	InDoubt       InDoubtPolicy `json:",omitzero"`
	LateCommit    LatePolicy    `json:",omitzero"`
	CancelRunning CancelPolicy  `json:",omitzero"`
}

// Overrun says what becomes of usage beyond what was reserved.
type Overrun string

// The choices. The empty one is the default, OverrunCap.
const (
	OverrunCap    Overrun = ""       // it is not charged
	OverrunExtend Overrun = "extend" // it is taken from what is available now; the rest is not charged
	OverrunDebt   Overrun = "debt"   // as extend, and the rest is owed, up to the plan's limit
)

// InDoubtPolicy says how a reservation in doubt ends when nobody has settled it by its expiry.
type InDoubtPolicy string

// The choices. The empty one is the default, DoubtRelease.
const (
	DoubtRelease InDoubtPolicy = ""       // it expires
	DoubtCharge  InDoubtPolicy = "charge" // it is committed in full
)

// LatePolicy says what becomes of a commit that comes after expiry.
type LatePolicy string

// The choices. The empty one is the default, LateCharge.
const (
	LateCharge LatePolicy = ""       // what is available now pays for it; the rest is not charged
	LateAbsorb LatePolicy = "absorb" // nothing is charged
)

// CancelPolicy says whether running work may be asked to stop.
type CancelPolicy string

// The choices. The empty one is the default, CancelDeny.
const (
	CancelDeny    CancelPolicy = ""        // it runs to its end
	CancelRequest CancelPolicy = "request" // the worker is told with its next heartbeat
)

// Surface is where a request came from. Its TTL overrides the feature's; zero means it has none.
type Surface struct {
	Name string
	TTL  time.Duration
}

// Plan says which features an account has, what it is given, and how many reservations may be active at once.
type Plan struct {
	Name         string
	Default      bool
	Names        Names
	Features     []string
	FreeFeatures []string
	Allowances   []Allowance
	MaxActive    int
	// Tier tells the queues of this plan's jobs from those of others: a queue is the feature's and the tier.
	Tier             string
	QueueNoticeAfter time.Duration // when to tell a person that the job waits; 0: never
	Retired          bool          // nobody is put on it any more; who is on it stays

	Upgrade         UpgradePolicy
	Grace           time.Duration // after a failed renewal
	Refund          RefundPolicy
	RunningOnRefund RunningPolicy

	DebtLimits map[string]Amount // the most that may be owed, per unit; none: nothing
	LowBalance map[string]Amount // tell when less is available, per unit
}

// Allowance is given again in every cycle. Key names it in grants and must not change between catalog versions.
type Allowance struct {
	Key      string
	Unit     string
	Amount   Amount
	Every    Cycle
	Rollover Amount // the most that is carried over into the next cycle; 0: nothing
}

// Cycle is how often an allowance starts again: one of the fields is set.
type Cycle struct {
	Rolling     time.Duration // a window of that length that begins with the first allocation taken from it
	Calendar    Calendar      // in the account's zone
	Anniversary bool          // every month on the day on which the account's plan began
	Term        bool          // with the subscription's paid period
}

// Calendar is a cycle that everybody in a time zone has in common.
type Calendar string

// The calendar's cycles. Days begin at midnight, weeks on Monday, months on the first.
const (
	Day   Calendar = "day"
	Week  Calendar = "week"
	Month Calendar = "month"
)

// UpgradePolicy says what a change to a dearer plan within a paid period gives.
type UpgradePolicy string

// The choices. The empty one is the default, UpgradeDifference.
const (
	UpgradeDifference UpgradePolicy = ""         // the new plan's allowance less the old one's
	UpgradeProrated   UpgradePolicy = "prorated" // that, for the part of the period that is left
	UpgradeFull       UpgradePolicy = "full"     // all of the new plan's, and what is left of the old one is void
)

// RefundPolicy says what a refunded payment takes back.
type RefundPolicy string

// The choices. The empty one is the default, RefundRevokeUnused.
const (
	RefundRevokeUnused RefundPolicy = ""                   // what is not used
	RefundAllAsDebt    RefundPolicy = "revoke_all_as_debt" // that, and what was used becomes debt
	RefundKeep         RefundPolicy = "keep"               // nothing
)

// RunningPolicy says what becomes of running work when its payment is refunded.
type RunningPolicy string

// The choices. The empty one is the default, RunningFinish.
const (
	RunningFinish RunningPolicy = ""     // it ends as it would
	RunningStop   RunningPolicy = "stop" // its worker is asked to stop
)

// Product is what a payment buys: a plan for a period, or a grant.
type Product struct {
	Name    string
	Names   Names
	Plan    string        // empty: Grant is set
	Period  Period        // of a plan
	Grant   *ProductGrant // nil: Plan is set
	Prices  []Money
	Retired bool // not sold any more; a payment for it that was begun before is still honoured
}

// Period is how long a paid period is: days of 24 hours, or months of the calendar.
type Period struct {
	Days   int
	Months int
}

// ProductGrant is what a product adds. It never ends unless For says so.
type ProductGrant struct {
	Unit   string
	Amount Amount
	For    Period // zero: it never ends
}

// Money is a price in a currency: Amount in its smallest step.
type Money struct {
	Currency string
	Amount   Amount
}

// Unit returns the unit of that name.
func (c *Catalog) Unit(name string) (*Unit, bool) {
	return find(c.Units, func(u *Unit) bool { return u.Name == name })
}

// Feature returns the feature of that name.
func (c *Catalog) Feature(name string) (*Feature, bool) {
	return find(c.Features, func(f *Feature) bool { return f.Name == name })
}

// Surface returns the surface of that name.
func (c *Catalog) Surface(name string) (*Surface, bool) {
	return find(c.Surfaces, func(s *Surface) bool { return s.Name == name })
}

// Plan returns the plan of that name.
func (c *Catalog) Plan(name string) (*Plan, bool) {
	return find(c.Plans, func(p *Plan) bool { return p.Name == name })
}

// PlanOf is the account's plan: the one it was set to, else the default. A plan that a later catalog no longer has
// counts as the default, so that no account is left without any.
func (c *Catalog) PlanOf(account *Account) *Plan {
	if plan, ok := c.Plan(account.Plan); ok {
		return plan
	}
	plan, ok := find(c.Plans, func(p *Plan) bool { return p.Default })
	assert(ok, "a catalog has one default plan")
	return plan
}

// Product returns the product of that name.
func (c *Catalog) Product(name string) (*Product, bool) {
	return find(c.Products, func(p *Product) bool { return p.Name == name })
}

// allowance returns the allowance of that key, of whatever plan.
func (c *Catalog) allowance(key string) (*Allowance, bool) {
	for i := range c.Plans {
		if a, ok := find(c.Plans[i].Allowances, func(a *Allowance) bool { return a.Key == key }); ok {
			return a, true
		}
	}
	return nil, false
}

// Has reports whether the plan includes the feature.
func (p *Plan) Has(feature string) bool { return slices.Contains(p.Features, feature) }

// ByUsage reports whether one of the feature's prices depends on usage, so that a reserve must say how much at most.
func (f *Feature) ByUsage() bool {
	return slices.ContainsFunc(f.Prices, Price.ByUsage)
}

// ByUsage reports whether the price depends on usage.
func (p Price) ByUsage() bool { return p.Per > 0 }

// free reports whether the price is nothing at all, as that of a plan's free feature.
func (p Price) free() bool { return p.Amount == 0 && !p.ByUsage() }

// pricesOn are the alternatives of the feature on this plan: its own, or nothing at all where the plan has it free.
func (f *Feature) pricesOn(plan *Plan) []Price {
	if slices.Contains(plan.FreeFeatures, f.Name) {
		return []Price{{Unit: f.Prices[0].Unit}}
	}
	return f.Prices
}

// ttl is request over surface over feature.
func (f *Feature) ttl(requested time.Duration, surface *Surface) time.Duration {
	if requested > 0 {
		return requested
	}
	if surface != nil && surface.TTL > 0 {
		return surface.TTL
	}
	return f.TTL
}

func find[T any](list []T, match func(*T) bool) (*T, bool) {
	for i := range list {
		if match(&list[i]) {
			return &list[i], true
		}
	}
	return nil, false
}
