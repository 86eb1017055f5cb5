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
	LongestJob  time.Duration
	LongestWait time.Duration
	TTL         time.Duration
}

// Price is one alternative: Amount of Unit for a quantity of one.
type Price struct {
	Unit   string
	Amount Amount
}

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
}

// Allowance is given again in every cycle. Key names it in grants and must not change between catalog versions.
type Allowance struct {
	Key    string
	Unit   string
	Amount Amount
	Every  Cycle
}

// Cycle is how often an allowance starts again. Rolling: a window of that length that begins with the first allocation
// taken from it.
type Cycle struct {
	Rolling time.Duration
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

// Has reports whether the plan includes the feature.
func (p *Plan) Has(feature string) bool { return slices.Contains(p.Features, feature) }

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
