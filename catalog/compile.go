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
	maxScale        = 15   // digits of the largest amount, less one
	maxActive       = 1000 // more is a number without a purpose
	maxAllowances   = 64   // per plan: every one is looked at in every decision
	jobsInTTL       = 3    // the ttl of a feature is at least that many times its longest job
	longestJobOfAny = holdfast.MaxTTL / jobsInTTL
	likelyTTL       = 15 * time.Minute // advised where the feature does not say what it needs
)

// compiler turns the tree into a catalog. What it reports is left out of the catalog, which is then thrown away.
type compiler struct {
	*report
	catalog  holdfast.Catalog
	units    []string // the names in the file, also of what has problems of its own: they can be referred to
	features []string
}

// Parse compiles a catalog from YAML. The name is what problems call the file.
//
// The error is always Problems: everything that is wrong, in the order of the file; only what is not YAML at all hides
// what would be found behind it. With an error there is no catalog. Units, features, surfaces and plans keep the file's
// order. Version is 0; whoever stores the catalog numbers it. Parse never panics, whatever the source.
func Parse(name string, source []byte) (*holdfast.Catalog, error) {
	r := &report{}
	s := readSource(name, source, r)
	if r.found() {
		return nil, r.result()
	}
	root := readYAML(s, r)
	if root == nil {
		return nil, r.result()
	}
	c := &compiler{report: r}
	c.file(root)
	if err := r.result(); err != nil {
		return nil, err
	}
	return &c.catalog, nil
}

func (c *compiler) file(root *node) {
	if root.kind != mapping {
		c.add(root.at, "", "expected a mapping, found "+root.kind.String(), "begin with units:")
		return
	}
	top := member{key: &node{at: place{1, 1}}, value: value{node: root}}
	fields := c.fields(top.value, fileLevel)
	for _, name := range []string{"units", "features", "plans"} {
		section := fields[name]
		if c.required(section, top, name, "add "+name+":, and at least one below it") && section.kind == mapping && len(section.pairs) == 0 {
			c.add(section.at, section.path, "empty", "add at least one")
		}
	}

	units, features := c.named(fields["units"], "unit"), c.named(fields["features"], "feature")
	c.units, c.features = namesOf(units), namesOf(features)
	for _, m := range units {
		c.unit(m)
	}
	for _, m := range features {
		c.feature(m)
	}
	for _, m := range c.named(fields["surfaces"], "surface") {
		c.surface(m)
	}
	c.plans(fields["plans"])
}

func namesOf(members []member) []string {
	var names []string
	for _, m := range members {
		names = append(names, m.name)
	}
	return names
}

func (c *compiler) unit(m member) {
	fields := c.fields(m.value, unitLevel)
	unit := holdfast.Unit{Name: m.name, Names: c.plurals(fields["names"])}
	if scale := fields["scale"]; scale.given() {
		n, _ := c.integer(scale, 0, maxScale)
		unit.Scale = int(n)
	}
	c.catalog.Units = append(c.catalog.Units, unit)
}

// plurals reads a unit's names: per language, every form that the language has.
func (c *compiler) plurals(v value) holdfast.Plurals {
	if !v.given() {
		return nil
	}
	plurals := holdfast.Plurals{}
	for _, language := range c.languages(v, "{en: {one: credit, other: credits}}") {
		needed := pluralForms[language.name]
		forms := map[string]string{}
		fields := c.fields(language.value, level{fields: needed, shape: "{" + strings.Join(needed, ": …, ") + ": …}"})
		for _, form := range needed {
			if language.kind == mapping && c.required(fields[form], language, form, "add "+form+", the name in that form") {
				forms[form], _ = c.title(fields[form])
			}
		}
		plurals[language.name] = forms
	}
	return plurals
}

// names reads a name per language.
func (c *compiler) names(v value) holdfast.Names {
	if !v.given() {
		return nil
	}
	names := holdfast.Names{}
	for _, language := range c.languages(v, "{en: …}") {
		names[language.name], _ = c.title(language.value)
	}
	return names
}

// languages are the members of names, without those that Holdfast does not speak.
func (c *compiler) languages(v value, shape string) []member {
	return slices.DeleteFunc(c.members(v, shape), func(m member) bool {
		known := slices.Contains(spoken, m.name)
		if !known {
			c.unknown(m.key.at, m.path, "language", m.name, spoken)
		}
		return !known
	})
}

func (c *compiler) feature(m member) {
	fields := c.fields(m.value, featureLevel)
	c.only(fields["overrun"], "cap", "extend", "debt")
	c.only(fields["late_commit"], "charge", "absorb")
	c.only(fields["cancel_running"], "deny", "request")
	feature := holdfast.Feature{Name: m.name, Names: c.names(fields["names"])}
	if m.kind == mapping {
		feature.Prices = c.prices(fields["price"], m)
		c.times(&feature, fields, m)
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
		// A price by usage has no amount, and has been refused already.
		amount, byUsage := fields["amount"], item.has("per") || item.has("rates")
		if !byUsage && c.required(amount, item, "amount", "add amount, an integer from 0") {
			n, _ := c.integer(amount, 0, int64(holdfast.MaxAmount))
			price.Amount = holdfast.Amount(n)
		}
		prices = append(prices, price)
	}
	return prices
}

// items are the members of a list.
func (c *compiler) items(v value, example string) []member {
	if v.kind != list {
		c.add(v.at, v.path, "expected a list, found "+v.kind.String(), "write a list, such as "+example)
		return nil
	}
	var items []member
	for i, item := range v.items {
		items = append(items, member{key: item, value: value{item, v.path + "[" + strconv.Itoa(i) + "]"}})
	}
	return items
}

func (c *compiler) unitOf(v value, owner member) string {
	if !c.required(v, owner, "unit", "add unit, the name of a unit") {
		return ""
	}
	return c.reference(v, "unit", c.units)
}

// reference reads a word that must be one of the known names. It is empty where it is none.
func (c *compiler) reference(v value, what string, known []string) string {
	if v.kind != text {
		c.add(v.at, v.path, "expected the name of a "+what+", found "+v.kind.String(), "write its name")
		return ""
	}
	if !slices.Contains(known, v.text) {
		c.unknown(v.at, v.path, what, v.text, known)
		return ""
	}
	return v.text
}

// times reads the three lengths of a feature and how they must fit.
func (c *compiler) times(feature *holdfast.Feature, fields map[string]value, m member) {
	job, wait, ttl := fields["longest_job"], fields["longest_wait"], fields["ttl"]
	jobKnown, waitKnown := false, true
	if c.required(job, m, "longest_job", "add longest_job, the longest legal run, such as 60s") {
		feature.LongestJob, jobKnown = c.duration(job, time.Second, longestJobOfAny)
	}
	if wait.given() {
		feature.LongestWait, waitKnown = c.duration(wait, 0, holdfast.MaxTTL)
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

func (c *compiler) plans(section value) {
	plans := c.named(section, "plan")
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
		plan.Allowances = c.allowances(v, m.name)
	}
	if v := fields["max_active"]; c.required(v, m, "max_active", "add max_active, how many reservations may be active at once, such as 1") {
		n, _ := c.integer(v, 1, maxActive)
		plan.MaxActive = int(n)
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
func (c *compiler) allowances(v value, plan string) []holdfast.Allowance {
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
		a := holdfast.Allowance{Key: plan + "/" + unit, Unit: unit}
		if count[unit]++; count[unit] > 1 {
			a.Key += "#" + strconv.Itoa(count[unit])
		}
		if amount := fields["amount"]; c.required(amount, item, "amount", "add amount, an integer from 1") {
			n, _ := c.integer(amount, 1, int64(holdfast.MaxAmount))
			a.Amount = holdfast.Amount(n)
			if a.Amount > holdfast.MaxAmount-sum[unit] {
				c.add(amount.at, amount.path, "the allowances of the plan exceed what an account can hold of a unit",
					fmt.Sprintf("write at most %d", holdfast.MaxAmount-sum[unit]))
			} else {
				sum[unit] += a.Amount
			}
		}
		if every := fields["every"]; c.required(every, item, "every", "add every: rolling 24h") {
			a.Every, _ = c.cycle(every)
		}
		allowances = append(allowances, a)
	}
	return allowances
}
