package holdfast

import (
	"fmt"
	"time"
)

// Reserve keeps what the work will cost before the work exists. It needs a key and creates an unknown account.
//
// Refuses, in this order: AccountBlocked, SubscriptionInactive, FeatureNotInPlan, Insufficient or HeldByActive, TooManyActive. Before it is
// refused for balance or slots, the account's own overdue reservations are expired, so that a slow sweeper refuses nobody.
type Reserve struct {
	base
	Feature  string
	Quantity Amount            // 0 counts as 1
	Usage    map[string]Amount // recorded; a fixed price does not look at it
	Surface  string
	TTL      time.Duration // 0: the surface's, else the feature's
	Metadata map[string]string
	Job      *JobRequest // nil: no job waits in a queue of Holdfast
	DryRun   bool        // only says what would happen; needs no key
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
	p.job("job", op.Job)
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
	if feature.ByUsage() {
		if op.quantity() != 1 {
			p.add("quantity", "leave it out: what is priced by usage is asked for once")
		}
		if len(op.Usage) == 0 {
			p.add("usage", "say how much will be used at most, for example "+usageLike(feature))
		}
	}
	p.payable("quantity", feature.Prices, asked{op.quantity(), op.Usage})
}

// payable finds prices beyond what an amount can be.
func (p *problems) payable(field string, prices []Price, what asked) {
	for _, price := range prices {
		if _, ok := price.of(what); !ok {
			if price.ByUsage() {
				field = "usage"
			}
			p.add(field, fmt.Sprintf("the price of so much exceeds %d", MaxAmount))
			return
		}
	}
}

// usageLike is an example of the feature's usage.
func usageLike(feature *Feature) string {
	for _, price := range feature.Prices {
		if price.ByUsage() {
			kinds := sortedKeys(price.Rates)
			return fmt.Sprintf("{%q: 1000}", kinds[0])
		}
	}
	return "{}"
}

func (op Reserve) print(f *printer) {
	f.text("feature", op.Feature)
	f.amount("quantity", op.quantity())
	f.amounts("usage", op.Usage)
}

func (op Reserve) decide(d *decision) Outcome {
	r, refusal := op.reserve(d)
	if refusal != nil {
		return *refusal
	}
	outcome := d.done(r)
	outcome.DryRun = op.DryRun
	return outcome
}

// reserve makes the reservation, or says why not.
func (op Reserve) reserve(d *decision) (*Reservation, *Outcome) {
	feature, ok := d.catalog.Feature(op.Feature)
	assert(ok, "the feature was checked")
	surface, _ := d.catalog.Surface(op.Surface)

	chosen, refusal := d.judge(op, feature)
	if refusal != nil && d.expireOverdue() > 0 {
		if d.state.MoreOverdue {
			return nil, &Outcome{Again: true}
		}
		chosen, refusal = d.judge(op, feature)
	}
	if refusal != nil {
		return nil, refusal
	}
	// From here on the command succeeds.
	d.open()
	ttl := feature.ttl(op.TTL, surface)
	r := &Reservation{
		ID: d.newID(), Feature: op.Feature, Quantity: op.quantity(), State: Reserved,
		Price: chosen.price, Policies: feature.Policies, Reserved: chosen.needed,
		Key: d.command.Key, Surface: op.Surface, Metadata: op.Metadata, Usage: op.Usage, CatalogVersion: d.catalog.Version,
		TTL: ttl, MaxHold: feature.MaxHold, CreatedAt: d.now, Job: op.Job.on(feature, d.plan),
	}
	r.moveExpiry(d.now.Add(ttl))
	d.hold(r, chosen, chosen.needed)
	d.takeSlot()
	d.state.addReservation(r)
	d.noticeQueued(r)
	if r.Price.unrated(r.Usage) {
		d.tellUnrated(r)
	}
	return r, nil
}

// hold takes an amount that the quote covers from its pockets.
func (d *decision) hold(r *Reservation, from *quote, amount Amount) {
	parts, missing := d.allocate(from.pockets, amount)
	assert(missing == 0, "what is available covers the price")
	d.post(note{kind: EntryReserve, unit: r.Price.Unit, reservation: r.ID}, func(p *posting) {
		for _, part := range parts {
			p.hold(part.grant, part.amount)
			r.Allocations = append(r.Allocations, Allocation{Grant: part.grant.ID, Source: part.grant.Source, Reserved: part.amount})
		}
	})
}

func (d *decision) tellUnrated(r *Reservation) {
	d.tell(Event{ID: namedID(r.ID, "unrated usage"), Kind: EventUnratedUsage, Reservation: r.ID})
}

// judge decides over rights, balance and slots, and takes nothing.
func (d *decision) judge(op Reserve, feature *Feature) (*quote, *Outcome) {
	what := asked{op.quantity(), op.Usage}
	if refusal := d.judgeRights(feature, what); refusal != nil {
		return nil, d.refuseAsk(feature, *refusal, op.DryRun)
	}
	quotes := d.quotes(feature, what)
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
	refusal := d.refuseQuote(reason, chosen, quotes, feature, what)
	refusal.Refusal.Alternatives = alternatives(quotes)
	return nil, d.refuseAsk(feature, refusal, op.DryRun)
}

// judgeRights says whether the account may begin something new with the feature.
func (d *decision) judgeRights(feature *Feature, what asked) *Outcome {
	switch {
	case d.state.Account.Blocked:
		return &Outcome{Reason: AccountBlocked, Refusal: &Refusal{}}
	case !d.plan.Has(feature.Name) && d.lapsedHad(feature.Name):
		return &Outcome{Reason: SubscriptionInactive, Refusal: &Refusal{Plans: d.plansAllowing(FeatureNotInPlan, feature, what)}}
	case !d.plan.Has(feature.Name):
		return &Outcome{Reason: FeatureNotInPlan, Refusal: &Refusal{Plans: d.plansAllowing(FeatureNotInPlan, feature, what)}}
	}
	return nil
}

// lapsedHad reports whether the plan of the subscription that has ended had the feature.
func (d *decision) lapsedHad(feature string) bool {
	plan, ok := d.catalog.Plan(d.state.Account.Lapsed)
	return ok && plan.Has(feature)
}

// refuseQuote refuses for want of money or of a slot, with the numbers of one alternative.
func (d *decision) refuseQuote(reason Reason, q *quote, all []quote, feature *Feature, what asked) Outcome {
	numbers := &Refusal{
		Unit: q.price.Unit, Needed: q.needed, Available: q.available, Held: q.held,
		Cycle: d.currentCycle(q.price.Unit),
		Plans: d.plansAllowing(reason, feature, what),
	}
	if !q.payable() {
		numbers.ResetsAt = d.resetsAt(all, feature.Name)
	}
	if q.price.ByUsage() {
		numbers.Estimated, numbers.AffordableUsage = true, q.price.affordable(what.usage, q.available)
	}
	return Outcome{Reason: reason, Refusal: numbers}
}

// refuseAsk completes a refusal with what every one of them tells.
func (d *decision) refuseAsk(feature *Feature, refused Outcome, dryRun bool) *Outcome {
	numbers := refused.Refusal
	numbers.Feature = feature.Name
	numbers.Active, numbers.MaxActive, numbers.Plan = d.state.Account.Active, d.plan.MaxActive, d.plan.Name
	refused.DryRun = dryRun
	return &refused
}
