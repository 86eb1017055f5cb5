package catalog

import (
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast"
)

const (
	jobsInTTL       = 3 // the ttl of a feature is at least that many times its longest job
	longestJobOfAny = holdfast.MaxTTL / jobsInTTL
	likelyTTL       = 15 * time.Minute // advised where the feature does not say what it needs
	maxHold         = holdfast.HoldFactor * holdfast.MaxTTL
	maxPer          = 1_000_000_000 // prices are told per thousand or per million; per more is a slip
)

func (c *compiler) feature(m member) {
	fields := c.fields(m.value, featureLevel)
	feature := holdfast.Feature{Name: m.name, Names: c.names(fields["names"])}
	if m.kind == mapping {
		feature.Prices = c.prices(fields["price"], m)
		if queue := fields["queue"]; queue.given() {
			feature.Queue = c.identifier(queue, "queue")
		}
		c.times(&feature, fields, m)
		feature.Policies = holdfast.Policies{
			Overrun:       choice(c, fields["overrun"], "cap", holdfast.OverrunExtend, holdfast.OverrunDebt),
			InDoubt:       choice(c, fields["in_doubt"], "release", holdfast.DoubtCharge),
			LateCommit:    choice(c, fields["late_commit"], "charge", holdfast.LateAbsorb),
			CancelRunning: choice(c, fields["cancel_running"], "deny", holdfast.CancelRequest),
		}
	}
	c.catalog.Features = append(c.catalog.Features, feature)
}

// prices reads the alternatives in the order in which they are tried.
func (c *compiler) prices(v value, feature member) []holdfast.Price {
	const example = "[{unit: credit, amount: 1}]"
	if !c.required(v, feature, "price", "add price, such as "+example) {
		return nil
	}
	if v.kind == list && len(v.items) == 0 {
		c.add(v.at, v.path, "empty", "write at least one alternative, such as "+example)
	}
	var prices []holdfast.Price
	used := map[string]bool{}
	for _, item := range c.items(v, example) {
		fields := c.fields(item.value, priceLevel)
		if item.kind != mapping {
			continue
		}
		price := holdfast.Price{Unit: c.unitOf(fields["unit"], item)}
		if price.Unit != "" && used[price.Unit] {
			c.add(fields["unit"].at, fields["unit"].path, "another alternative is in "+price.Unit+" already", "keep one alternative per unit")
		}
		used[price.Unit] = true
		if fields["per"].given() || fields["rates"].given() {
			c.usagePrice(&price, fields, item)
		} else {
			price.Amount, _ = c.amountOf(fields["amount"], item, "amount", 0)
		}
		prices = append(prices, price)
	}
	return prices
}

// usagePrice reads the rates of a price by usage.
func (c *compiler) usagePrice(price *holdfast.Price, fields map[string]value, item member) {
	const example = "{input_token: 1, output_token: 4}"
	if amount := fields["amount"]; amount.given() {
		c.add(amount.at, amount.path, "a price by usage has no amount", "remove amount, or else per and rates")
	}
	if per := fields["per"]; c.required(per, item, "per", "add per, how many of a kind the rates are for, such as 1000") {
		n, _ := c.integer(per, 1, maxPer)
		price.Per = holdfast.Amount(n)
	}
	rates := fields["rates"]
	if !c.required(rates, item, "rates", "add rates, such as "+example) {
		return
	}
	if rates.kind == mapping && len(rates.pairs) == 0 {
		c.add(rates.at, rates.path, "empty", "write at least one kind, such as "+example)
	}
	price.Rates = map[string]holdfast.Amount{}
	for i, m := range c.members(rates, example) {
		switch {
		case i == holdfast.MaxUsageKinds:
			c.add(m.key.at, rates.path, fmt.Sprintf("more than %d kinds", holdfast.MaxUsageKinds), "remove some: usage has no more")
		case !holdfast.ValidIdentifier(m.name):
			c.add(m.key.at, m.path, "not a name", identifierLike(m.name))
		}
		price.Rates[m.name], _ = c.amount(m.value, 0)
	}
}

// times reads the lengths of a feature and how they must fit.
func (c *compiler) times(feature *holdfast.Feature, fields map[string]value, m member) {
	job, wait, ttl := fields["longest_job"], fields["longest_wait"], fields["ttl"]
	jobKnown, waitKnown := false, true
	if c.required(job, m, "longest_job", "add longest_job, the longest legal run, such as 60s") {
		feature.LongestJob, jobKnown = c.duration(job, time.Second, longestJobOfAny)
	}
	if wait.given() {
		feature.LongestWait, waitKnown = c.duration(wait, 0, holdfast.MaxTTL)
	}
	if v := fields["max_hold"]; v.given() {
		length, ok := c.duration(v, holdfast.MinTTL, maxHold)
		feature.MaxHold = length
		if ok {
			// What it must cover is known when the surfaces are.
			c.holds = append(c.holds, hold{v, len(c.catalog.Features)})
		}
	}
	least, why := needed(feature)
	if !jobKnown || !waitKnown {
		least = 0
	}
	advice := least
	if advice == 0 {
		advice = likelyTTL
	}
	if !c.required(ttl, m, "ttl", "add ttl: "+clock(advice)) {
		return
	}
	length, ok := c.duration(ttl, holdfast.MinTTL, holdfast.MaxTTL)
	feature.TTL = length
	if ok && length < least {
		c.add(ttl.at, ttl.path, "shorter than "+why, "write at least "+clock(least))
	}
}

// needed is how long a reservation of the feature must live at least, and why.
func needed(feature *holdfast.Feature) (least time.Duration, why string) {
	if least = jobsInTTL * feature.LongestJob; least >= feature.LongestWait {
		return least, fmt.Sprintf("%d × longest_job (%d × %s)", jobsInTTL, jobsInTTL, clock(feature.LongestJob))
	}
	return feature.LongestWait, "longest_wait (" + clock(feature.LongestWait) + ")"
}

// surface reads where requests come from. Its ttl overrides that of every feature, so it must be long enough for all.
func (c *compiler) surface(m member) {
	surface := holdfast.Surface{Name: m.name}
	if ttl := c.fields(m.value, surfaceLevel)["ttl"]; ttl.given() {
		length, ok := c.duration(ttl, holdfast.MinTTL, holdfast.MaxTTL)
		surface.TTL = length
		// The most demanding one is named: what is long enough for it is long enough for all.
		var least time.Duration
		var why string
		for i := range c.catalog.Features {
			feature := &c.catalog.Features[i]
			if need, reason := needed(feature); need > least {
				least, why = need, brief(feature.Name)+" needs: "+reason
			}
		}
		if ok && length < least {
			c.add(ttl.at, ttl.path, "shorter than "+why, "write at least "+clock(least))
		}
	}
	c.catalog.Surfaces = append(c.catalog.Surfaces, surface)
}

// hold is the max_hold of a feature.
type hold struct {
	value
	feature int
}

// checkHolds: a reservation may be held at least for as long as any ttl it can be made with.
func (c *compiler) checkHolds() {
	for _, h := range c.holds {
		feature := &c.catalog.Features[h.feature]
		least, why := feature.TTL, "the ttl ("+clock(feature.TTL)+")"
		for _, surface := range c.catalog.Surfaces {
			if surface.TTL > least {
				least, why = surface.TTL, "the ttl of surface "+brief(surface.Name)+" ("+clock(surface.TTL)+")"
			}
		}
		if feature.MaxHold < least {
			c.add(h.at, h.path, "shorter than "+why, "write at least "+clock(least))
		}
	}
}
