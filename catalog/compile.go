package catalog

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast"
)

const maxScale = 15 // digits of the largest amount, less one

// compiler turns the tree into a catalog. What it reports is left out of the catalog, which is then thrown away.
type compiler struct {
	*report
	catalog holdfast.Catalog

	// The names in the file, also of what has problems of its own: they can be referred to.
	units, features, plans []string

	sold  map[string]sale // by plan
	holds []hold
}

// Parse compiles a catalog from YAML. The name is what problems call the file.
//
// The error is always Problems: everything that is wrong, in the order of the file; only what is not YAML at all hides
// what would be found behind it. With an error there is no catalog. Units, features, surfaces, plans and products keep
// the file's order. Version is 0; whoever stores the catalog numbers it. Parse never panics, whatever the source.
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

	units, features, plans := c.named(fields["units"], "unit"), c.named(fields["features"], "feature"), c.named(fields["plans"], "plan")
	c.units, c.features, c.plans = namesOf(units), namesOf(features), namesOf(plans)
	c.sold = soldPlans(fields["products"])
	for _, m := range units {
		c.unit(m)
	}
	for _, m := range features {
		c.feature(m)
	}
	for _, m := range c.named(fields["surfaces"], "surface") {
		c.surface(m)
	}
	c.checkHolds()
	c.allPlans(fields["plans"], plans)
	for _, m := range c.named(fields["products"], "product") {
		c.product(m)
	}
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
		fields := c.fields(language.value, level{needed, "{" + strings.Join(needed, ": …, ") + ": …}"})
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

// amountOf reads the amount that its owner must have.
func (c *compiler) amountOf(v value, owner member, name string, least int64) (holdfast.Amount, bool) {
	if !c.required(v, owner, name, fmt.Sprintf("add %s, an integer from %d", name, least)) {
		return 0, false
	}
	return c.amount(v, least)
}

// amount reads an amount that is at least so much.
func (c *compiler) amount(v value, least int64) (holdfast.Amount, bool) {
	n, ok := c.integer(v, least, int64(holdfast.MaxAmount))
	return holdfast.Amount(n), ok
}

// amounts reads an amount per unit.
func (c *compiler) amounts(v value) map[string]holdfast.Amount {
	if !v.given() {
		return nil
	}
	amounts := map[string]holdfast.Amount{}
	for _, m := range c.members(v, "{credit: 30}") {
		if !slices.Contains(c.units, m.name) {
			c.unknown(m.key.at, m.path, "unit", m.name, c.units)
		}
		amounts[m.name], _ = c.amount(m.value, 0)
	}
	return amounts
}
