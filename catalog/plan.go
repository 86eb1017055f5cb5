package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
)

const (
	maxActive      = 1000 // more is a number without a purpose
	maxAllowances  = 64   // per plan: every one is looked at in every decision
	maxQueueNotice = day  // later there is nothing left to wait for
	maxGrace       = 90 * day
)

func (c *compiler) allPlans(section value, plans []member) {
	var standard *member // the default plan
	unclear := false     // a plan's default is neither true nor false
	for i := range plans {
		m := &plans[i]
		fields := c.fields(m.value, planLevel)
		plan := holdfast.Plan{Name: m.name, Names: c.names(fields["names"])}
		if v := fields["default"]; v.given() {
			var ok bool
			plan.Default, ok = c.truth(v)
			unclear = unclear || !ok
			if plan.Default && standard != nil {
				c.add(v.at, v.path, fmt.Sprintf("plan %s on line %d is the default already", brief(standard.name), standard.key.at.line), "keep default: true on one plan")
			}
			if plan.Default && standard == nil {
				standard = m
			}
		}
		if m.kind == mapping {
			c.plan(&plan, fields, *m)
		}
		c.catalog.Plans = append(c.catalog.Plans, plan)
	}
	if len(plans) > 0 && standard == nil && !unclear {
		c.add(plans[0].key.at, section.path, "no plan is the default", "add default: true to the plan of accounts without a subscription")
	}
}

func (c *compiler) plan(plan *holdfast.Plan, fields map[string]value, m member) {
	features := fields["features"]
	if c.required(features, m, "features", "add features, a list of them, or [] for none") {
		plan.Features = c.featureList(features)
	}
	if v := fields["free_features"]; v.given() {
		plan.FreeFeatures = c.featureList(v)
		included := map[string]bool{"": true} // what is wrong in itself is no further problem
		for _, name := range plan.Features {
			included[name] = true
		}
		for i, name := range plan.FreeFeatures {
			if features.given() && !included[name] {
				c.add(v.items[i].at, fmt.Sprintf("%s[%d]", v.path, i), "not among the features of the plan", "add it to features, or remove it here")
			}
		}
	}
	if v := fields["allowances"]; v.given() {
		plan.Allowances = c.allowances(v, plan)
	}
	if v := fields["max_active"]; c.required(v, m, "max_active", "add max_active, how many reservations may be active at once, such as 1") {
		n, _ := c.integer(v, 1, maxActive)
		plan.MaxActive = int(n)
	}
	if v := fields["tier"]; v.given() {
		plan.Tier = c.identifier(v, "tier")
	}
	if v := fields["queue_notice_after"]; v.given() {
		plan.QueueNoticeAfter, _ = c.duration(v, 0, maxQueueNotice)
	}
	plan.Upgrade = choice(c, fields["upgrade"], "difference", holdfast.UpgradeProrated, holdfast.UpgradeFull)
	if v := fields["grace"]; v.given() {
		plan.Grace, _ = c.days(v, 0, maxGrace)
	}
	plan.Refund = choice(c, fields["refund"], "revoke_unused", holdfast.RefundAllAsDebt, holdfast.RefundKeep)
	plan.RunningOnRefund = choice(c, fields["running_on_refund"], "finish", holdfast.RunningStop)
	plan.DebtLimits = c.amounts(fields["debt_limit"])
	plan.LowBalance = c.amounts(fields["low_balance"])
	if v := fields["retired"]; v.given() {
		plan.Retired, _ = c.truth(v)
		if plan.Retired && plan.Default {
			c.add(v.at, v.path, "the default plan cannot be retired", "make another plan the default, or remove this")
		}
	}
}

// featureList reads names of features, each once. What is wrong stays in the list as an empty name.
func (c *compiler) featureList(v value) []string {
	var names []string
	first := map[string]bool{}
	for _, item := range c.items(v, "[text.improve]") {
		name := c.reference(item.value, "feature", c.features)
		if name != "" && first[name] {
			c.add(item.at, item.path, "written twice", "remove one of the two")
		}
		first[name] = true
		names = append(names, name)
	}
	return names
}

// allowances reads what the plan gives. The key of an allowance is its plan and unit; of further allowances in the same
// unit also their place among them. So that a new version goes on with the cycles of the old one, add below, not above.
func (c *compiler) allowances(v value, plan *holdfast.Plan) []holdfast.Allowance {
	var allowances []holdfast.Allowance
	count, sum := map[string]int{}, map[string]holdfast.Amount{}
	for i, item := range c.items(v, "[{unit: credit, amount: 3, every: rolling 24h}]") {
		if i == maxAllowances {
			c.add(item.at, v.path, fmt.Sprintf("more than %d allowances", maxAllowances), "remove some")
		}
		fields := c.fields(item.value, allowanceLevel)
		if item.kind != mapping {
			continue
		}
		unit := c.unitOf(fields["unit"], item)
		a := holdfast.Allowance{Key: plan.Name + "/" + unit, Unit: unit}
		if count[unit]++; count[unit] > 1 {
			a.Key += "#" + strconv.Itoa(count[unit])
		}
		a.Amount, _ = c.amountOf(fields["amount"], item, "amount", 1)
		sum[unit] = c.within(fields["amount"], sum[unit], a.Amount, "the allowances of the plan exceed what an account can hold of a unit")
		if every := fields["every"]; c.required(every, item, "every", "add every: rolling 24h") {
			a.Every, _ = c.cycle(every)
			c.cycleOn(plan, a.Every, every)
		}
		if v := fields["rollover"]; v.given() {
			limit := c.fields(v, rolloverLevel)["cap"]
			if v.kind == mapping {
				a.Rollover, _ = c.amountOf(limit, member{key: v.node, value: v}, "cap", 1)
			}
			if a.Every.Rolling > 0 {
				c.add(v.at, v.path, "a rolling window has no next cycle to carry into", "remove rollover, or write another cycle")
			}
			sum[unit] = c.within(limit, sum[unit], a.Rollover, "the allowances of the plan, with what is carried over, exceed what an account can hold of a unit")
		}
		allowances = append(allowances, a)
	}
	return allowances
}

// within adds what an account may be given to what it may have already. Where that is too much, it is told and left out.
func (c *compiler) within(v value, sum, more holdfast.Amount, message string) holdfast.Amount {
	if room := holdfast.MaxAmount - sum; more > room {
		suggestion := fmt.Sprintf("write at most %d", room)
		if room == 0 {
			suggestion = "lower the other amounts"
		}
		c.add(v.at, v.path, message, suggestion)
		return sum
	}
	return sum + more
}

// calendarCycles are the cycles without a length, as the file writes them.
var calendarCycles = map[string]holdfast.Cycle{
	"calendar day":      {Calendar: holdfast.Day},
	"calendar week":     {Calendar: holdfast.Week},
	"calendar month":    {Calendar: holdfast.Month},
	"anniversary month": {Anniversary: true},
	"term":              {Term: true},
}

var calendarWords = []string{"calendar day", "calendar week", "calendar month", "anniversary month", "term"}

const (
	rolling    = "rolling "
	minRolling = time.Minute
	maxRolling = 366 * day
)

// cycle reads how often an allowance starts again.
func (c *compiler) cycle(v value) (holdfast.Cycle, bool) {
	suggestion := "write rolling and a length, such as rolling 24h, or " + oneOf(calendarWords)
	if v.kind != text {
		c.add(v.at, v.path, "expected a cycle, found "+v.kind.String(), suggestion)
		return holdfast.Cycle{}, false
	}
	if cycle, found := calendarCycles[v.text]; found {
		return cycle, true
	}
	written, found := strings.CutPrefix(v.text, rolling)
	length, ok := parseDuration(written, true)
	switch {
	case !found || !ok:
		message := "not a cycle"
		meant, likely := meantDuration(strings.TrimPrefix(strings.TrimSpace(v.text), "rolling"))
		near := nearestCycle(v.text)
		switch {
		case likely && meant >= minRolling && meant <= maxRolling:
			suggestion = "write " + rolling + shown(meant)
		case near != "":
			message, suggestion = message+"; did you mean "+near+"?", "write "+near
		}
		c.add(v.at, v.path, message, suggestion)
	case length < minRolling:
		c.add(v.at, v.path, "too short", "write at least "+rolling+shown(minRolling))
	case length > maxRolling:
		c.add(v.at, v.path, "too long", "write at most "+rolling+shown(maxRolling))
	default:
		return holdfast.Cycle{Rolling: length}, true
	}
	return holdfast.Cycle{}, false
}

// nearestCycle is the cycle without a length that was most likely meant. It goes word by word: as a whole, calendar year
// would be near to calendar day.
func nearestCycle(written string) string {
	words := strings.Fields(written)
	for _, known := range calendarWords {
		parts := strings.Fields(known)
		if slices.EqualFunc(words, parts, func(word, part string) bool { return nearest(strings.ToLower(word), []string{part}) != "" }) {
			return known
		}
	}
	return ""
}

// cycleOn refuses a cycle that the plan cannot have: one payment brings one cycle of it, or as many as it has whole months.
func (c *compiler) cycleOn(plan *holdfast.Plan, cycle holdfast.Cycle, v value) {
	sold := c.sold[plan.Name]
	if plan.Default { // that a product sells it is the problem, then
		sold = sale{}
	}
	instead := "write term, or anniversary month"
	if sold.byDays != "" {
		instead = "write term"
	}
	switch {
	case cycle.Term && plan.Default:
		c.add(v.at, v.path, "the default plan has no paid period", "write another cycle, such as rolling 24h or calendar day")
	case cycle.Calendar != "" && sold.by != "":
		c.add(v.at, v.path, "product "+brief(sold.by)+" sells the plan, and whoever bought it on the 31st would get two cycles for one payment", instead)
	case cycle.Anniversary && sold.byDays != "":
		c.add(v.at, v.path, "product "+brief(sold.byDays)+" sells the plan for days, in which another month can begin: two cycles for one payment", instead)
	}
}

// sale is who sells a plan.
type sale struct {
	by     string // the first product that does; empty: none
	byDays string // the first one whose period is in days; empty: none
}

// soldPlans are the plans that products sell.
func soldPlans(products value) map[string]sale {
	sold := map[string]sale{}
	if !products.given() {
		return sold
	}
	for _, product := range products.pairs {
		plan, period := product.value.textOf("plan"), product.value.textOf("period")
		if plan == "" {
			continue
		}
		s := sold[plan]
		if s.by == "" {
			s.by = product.key.text
		}
		if length, likely := meantPeriod(period); s.byDays == "" && likely && length.Days > 0 {
			s.byDays = product.key.text
		}
		sold[plan] = s
	}
	return sold
}

// textOf is the text of a mapping's field; empty: it has none. Nothing is judged here.
func (n *node) textOf(field string) string {
	i := slices.IndexFunc(n.pairs, func(p pair) bool { return p.key.text == field && p.value.kind == text })
	if i < 0 {
		return ""
	}
	return n.pairs[i].value.text
}
