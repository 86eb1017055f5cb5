package holdfast

import (
	"fmt"
	"slices"
	"time"
)

// Source says where a grant came from.
type Source string

// The sources of grants.
const (
	FromAllowance  Source = "allowance"
	FromRollover   Source = "rollover"
	FromPromo      Source = "promo"
	FromPurchase   Source = "purchase"
	FromCorrection Source = "correction"
)

// defaultPriority burns what ends by itself before what was bought. A correction stands for something bought.
func (s Source) defaultPriority() int {
	switch s {
	case FromAllowance:
		return 10
	case FromRollover:
		return 20
	case FromPromo:
		return 30
	default:
		return 40
	}
}

// Grant is a pocket. Granted never changes; the other counters change in ledger.go only.
type Grant struct {
	ID        ID
	Unit      string
	Source    Source
	Allowance string   `json:",omitzero"` // which allowance's cycle this is; empty for other sources
	Features  []string `json:",omitzero"` // which features may take from it; empty: all
	Priority  int

	Granted, Reserved, Used, Voided Amount
	Rolled                          Amount `json:",omitzero"` // of what is voided, what was carried into the next cycle

	Moved   Amount `json:",omitzero"` // of what is voided, what went on to the account that took this one's place
	Payment ID     `json:",omitzero"` // that bought it; zero: none did
	Revoked Amount `json:",omitzero"` // of Granted, what refunds of the payment took back, or let become debt
	Doomed  Amount `json:",omitzero"` // of Reserved, what refunds take back if it returns

	StartsAt  time.Time // [StartsAt, EndsAt)
	EndsAt    time.Time `json:",omitzero"` // zero: never
	CreatedAt time.Time

	// Open grants are loaded with every decision. A closed one has nothing left to give or to wait for.
	Open bool `json:",omitzero"`
}

// Available is what a new reservation could take, were the grant in its interval.
func (g *Grant) Available() Amount { return g.Granted - g.Reserved - g.Used - g.Voided }

// Covers reports whether the feature may take from the grant. The empty feature asks about the grant as a whole.
func (g *Grant) Covers(feature string) bool {
	return feature == "" || len(g.Features) == 0 || slices.Contains(g.Features, feature)
}

// InForce reports whether now lies in [StartsAt, EndsAt).
func (g *Grant) InForce(now time.Time) bool { return !now.Before(g.StartsAt) && !g.Ended(now) }

// Ended reports whether the grant's interval is over.
func (g *Grant) Ended(now time.Time) bool { return !g.EndsAt.IsZero() && !now.Before(g.EndsAt) }

// shouldBeOpen: an allowance's cycle stays until it ends, since it tells that the cycle has begun.
func (g *Grant) shouldBeOpen(now time.Time) bool {
	if g.Reserved > 0 || g.Available() > 0 {
		return true
	}
	return g.Source == FromAllowance && !g.Ended(now)
}

// AddGrant opens a pocket for an account that exists. It needs a key.
type AddGrant struct {
	base
	Unit     string
	Amount   Amount
	Source   Source    // promo (default), purchase or correction
	Priority *int      // nil: the source's default
	StartsAt time.Time // zero: now
	EndsAt   time.Time // zero: never
	Features []string  // empty: all
	Reason   string
}

// Name is "grant".
func (AddGrant) Name() string { return "grant" }

func (AddGrant) creates() bool { return true }

func (op AddGrant) source() Source {
	if op.Source == "" {
		return FromPromo
	}
	return op.Source
}

func (op AddGrant) priority() int {
	if op.Priority == nil {
		return op.source().defaultPriority()
	}
	return *op.Priority
}

func (op AddGrant) check(p *problems) {
	p.word("unit", op.Unit)
	p.positive("amount", op.Amount)
	if !slices.Contains([]Source{FromPromo, FromPurchase, FromCorrection}, op.source()) {
		p.add("source", "use promo, purchase or correction")
	}
	if n := op.priority(); n < 0 || n > MaxGrantPriority {
		p.add("priority", fmt.Sprintf("use 0 to %d, or null for the default of the source", MaxGrantPriority))
	}
	if !op.EndsAt.IsZero() && !op.EndsAt.After(op.StartsAt) {
		p.add("ends_at", "use a time after starts_at, or null for never")
	}
	if len(op.Features) > MaxGrantFeatures {
		p.add("features", fmt.Sprintf("use at most %d", MaxGrantFeatures))
	}
	p.sentence("reason", op.Reason, false)
}

func (op AddGrant) checkCatalog(c *Catalog, p *problems) {
	p.knownUnit(c, op.Unit)
	for i, name := range op.Features {
		if _, ok := c.Feature(name); !ok {
			p.add(fmt.Sprintf("features[%d]", i), "use a feature of the catalog, or an empty list for all")
		}
	}
}

func (p *problems) knownUnit(c *Catalog, unit string) {
	if _, ok := c.Unit(unit); !ok {
		p.add("unit", "use a unit of the catalog")
	}
}

func (op AddGrant) print(f *printer) {
	f.text("unit", op.Unit)
	f.amount("amount", op.Amount)
	f.text("source", string(op.source()))
	f.amount("priority", Amount(op.priority()))
	f.time("starts_at", op.StartsAt)
	f.time("ends_at", op.EndsAt)
	for _, feature := range slices.Sorted(slices.Values(op.Features)) {
		f.text("feature", feature)
	}
}

func (op AddGrant) decide(d *decision) Outcome {
	g := &Grant{
		ID: d.newID(), Unit: op.Unit, Source: op.source(), Features: op.Features, Priority: op.priority(),
		Granted: op.Amount, StartsAt: op.StartsAt, EndsAt: op.EndsAt, CreatedAt: d.now, Open: true,
	}
	if g.StartsAt.IsZero() {
		g.StartsAt = d.now
	}
	if g.Ended(d.now) {
		return invalid("ends_at", "use a time that lies ahead, or null for never")
	}
	if problem := d.roomFor(g); problem != nil {
		return Outcome{Reason: Invalid, Problems: []Problem{*problem}}
	}
	// From here on the command succeeds.
	return d.issued(g, note{kind: EntryGrant, unit: g.Unit, reason: op.Reason})
}

// issued opens the pocket and answers with the balance as it is afterwards.
func (d *decision) issued(g *Grant, n note) Outcome {
	d.post(n, func(p *posting) { p.issue(g) })
	if g.Source == FromPurchase {
		d.repay(g)
	}
	shown := *g
	return Outcome{Changed: true, Grant: &shown, Balance: d.balance(g.Unit)}
}

// roomFor checks the bounds that a further pocket could break.
func (d *decision) roomFor(g *Grant) *Problem {
	if !d.fits(g.Unit, g.Granted) {
		return &Problem{"amount", tooMuch}
	}
	open := 0
	for _, other := range d.state.Grants {
		if other.Open {
			open++
		}
	}
	if open >= MaxOpenGrants {
		return &Problem{"account", fmt.Sprintf("the account has %d open grants, which is the most; wait until some are used up or end", MaxOpenGrants)}
	}
	return nil
}

var tooMuch = fmt.Sprintf("what the account has in this unit, with what a plan may add, is at most %d", MaxAmount)

// fits reports whether so much more of a unit keeps the account's sum within MaxAmount, also with whatever a plan of the
// catalog may add in a cycle.
func (d *decision) fits(unit string, more Amount) bool {
	var given Amount
	for i := range d.catalog.Plans {
		given = max(given, d.catalog.Plans[i].most(unit))
	}
	sum, fits := more.add(given)
	for _, g := range d.state.Grants {
		if g.Unit == unit && fits {
			sum, fits = sum.add(g.Available() + g.Reserved)
		}
	}
	return fits
}

func invalid(field, hint string) Outcome {
	return Outcome{Reason: Invalid, Problems: []Problem{{field, hint}}}
}
