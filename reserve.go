package holdfast

import (
	"fmt"
	"time"
)

// Reserve keeps what the work will cost before the work exists. It needs a key and creates an unknown account.
//
// Refuses, in this order: AccountBlocked, FeatureNotInPlan, Insufficient or HeldByActive, TooManyActive. Before it is
// refused for balance or slots, the account's own overdue reservations are expired, so that a slow sweeper refuses nobody.
type Reserve struct {
	base
	Feature  string
	Quantity Amount            // 0 counts as 1
	Usage    map[string]Amount // recorded; a fixed price does not look at it
	Surface  string
	TTL      time.Duration // 0: the surface's, else the feature's
	Metadata map[string]string
	DryRun   bool // only says what would happen; needs no key
}

// Name is "reserve".
func (Reserve) Name() string { return "reserve" }

func (Reserve) creates() bool { return true }

func (op Reserve) quantity() Amount {
	if op.Quantity == 0 {
		return 1
	}
	return op.Quantity
}

func (op Reserve) check(p *problems) {
	p.word("feature", op.Feature)
	p.positive("quantity", op.quantity())
	p.usage("usage", op.Usage)
	if op.Surface != "" {
		p.word("surface", op.Surface)
	}
	p.duration("ttl_seconds", op.TTL, MinTTL, MaxTTL)
	p.metadata("metadata", op.Metadata)
}

func (op Reserve) checkCatalog(c *Catalog, p *problems) {
	if _, ok := c.Surface(op.Surface); op.Surface != "" && !ok {
		p.add("surface", "use a surface of the catalog, or leave it out")
	}
	feature, ok := c.Feature(op.Feature)
	if !ok {
		p.add("feature", "use a feature of the catalog")
		return
	}
	for _, price := range feature.Prices {
		if _, ok := price.Amount.times(op.quantity()); !ok {
			p.add("quantity", fmt.Sprintf("the price of this quantity exceeds %d", MaxAmount))
			return
		}
	}
}

func (op Reserve) print(f *printer) {
	f.text("feature", op.Feature)
	f.amount("quantity", op.quantity())
	f.amounts("usage", op.Usage)
}

func (op Reserve) decide(d *decision) Outcome {
	feature, ok := d.catalog.Feature(op.Feature)
	assert(ok, "the feature was checked")
	surface, _ := d.catalog.Surface(op.Surface)

	chosen, refusal := d.judge(op, feature)
	if refusal != nil && d.expireOverdue() > 0 {
		if d.state.MoreOverdue {
			return Outcome{Again: true}
		}
		chosen, refusal = d.judge(op, feature)
	}
	if refusal != nil {
		return *refusal
	}
	// From here on the command succeeds.
	d.open()
	ttl := feature.ttl(op.TTL, surface)
	r := &Reservation{
		ID: d.newID(), Feature: op.Feature, Quantity: op.quantity(), State: Reserved,
		Price: chosen.price, Reserved: chosen.needed,
		Key: d.command.Key, Surface: op.Surface, Metadata: op.Metadata, Usage: op.Usage, CatalogVersion: d.catalog.Version,
		TTL: ttl, CreatedAt: d.now, ExpiresAt: d.now.Add(ttl),
	}
	parts, missing := d.allocate(chosen.pockets, chosen.needed)
	assert(missing == 0, "what is available covers the price")
	d.post(note{kind: EntryReserve, unit: chosen.price.Unit, reservation: r.ID}, func(p *posting) {
		for _, part := range parts {
			p.hold(part.grant, part.amount)
			r.Allocations = append(r.Allocations, Allocation{Grant: part.grant.ID, Source: part.grant.Source, Reserved: part.amount})
		}
	})
	d.takeSlot()
	d.state.addReservation(r)
	outcome := d.done(r)
	outcome.DryRun = op.DryRun
	return outcome
}

// judge decides over rights, balance and slots, and takes nothing.
func (d *decision) judge(op Reserve, feature *Feature) (*quote, *Outcome) {
	refuse := func(reason Reason, numbers Refusal) *Outcome {
		numbers.Feature = feature.Name
		numbers.Active, numbers.MaxActive, numbers.Plan = d.state.Account.Active, d.plan.MaxActive, d.plan.Name
		return &Outcome{Reason: reason, Refusal: &numbers, DryRun: op.DryRun}
	}
	if d.state.Account.Blocked {
		return nil, refuse(AccountBlocked, Refusal{})
	}
	if !d.plan.Has(feature.Name) {
		return nil, refuse(FeatureNotInPlan, Refusal{Plans: d.plansAllowing(FeatureNotInPlan, feature, op.quantity())})
	}
	quotes := d.quotes(feature, op.quantity())
	chosen, payable := choose(quotes)
	reason := TooManyActive
	switch {
	case payable && d.state.Account.Active < d.plan.MaxActive:
		return chosen, nil
	case chosen.onlyHeld():
		reason = HeldByActive
	case !payable:
		reason = Insufficient
	}
	numbers := Refusal{
		Unit: chosen.price.Unit, Needed: chosen.needed, Available: chosen.available, Held: chosen.held,
		Cycle:        d.currentCycle(chosen.price.Unit),
		Plans:        d.plansAllowing(reason, feature, op.quantity()),
		Alternatives: alternatives(quotes),
	}
	if !payable {
		numbers.ResetsAt = d.resetsAt(chosen, feature.Name)
	}
	return nil, refuse(reason, numbers)
}
