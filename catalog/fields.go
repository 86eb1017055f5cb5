package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast"
)

// value is a node and how the file calls it.
type value struct {
	*node
	path string
}

// given is false for a field that is not in the file.
func (v value) given() bool { return v.node != nil }

// level is what may stand in one kind of mapping.
type level struct {
	fields []string
	shape  string // what to write where there is no mapping at all
}

var (
	fileLevel    = level{[]string{"units", "features", "surfaces", "plans", "products"}, "units:, features: and plans:"}
	unitLevel    = level{[]string{"scale", "names"}, "{} or {scale: 2}"}
	featureLevel = level{[]string{
		"names", "price", "longest_job", "longest_wait", "ttl", "max_hold", "queue", "overrun", "in_doubt", "late_commit", "cancel_running",
	}, "price, longest_job and ttl below it"}
	priceLevel   = level{[]string{"unit", "amount", "per", "rates"}, "{unit: credit, amount: 1}"}
	surfaceLevel = level{[]string{"ttl"}, "{} or {ttl: 15m}"}
	planLevel    = level{[]string{
		"default", "retired", "names", "features", "free_features", "allowances", "max_active", "tier", "queue_notice_after",
		"upgrade", "grace", "refund", "running_on_refund", "debt_limit", "low_balance",
	}, "features and max_active below it"}
	allowanceLevel = level{[]string{"unit", "amount", "every", "rollover"}, "{unit: credit, amount: 3, every: rolling 24h}"}
	rolloverLevel  = level{[]string{"cap"}, "{cap: 150}"}
	productLevel   = level{[]string{"retired", "names", "plan", "period", "grant", "prices"}, "{plan: pro, period: 30d, prices: [{currency: XTR, amount: 250}]}"}
	grantLevel     = level{[]string{"unit", "amount", "for"}, "{unit: credit, amount: 100}"}
	moneyLevel     = level{[]string{"currency", "amount"}, "{currency: XTR, amount: 250}"}
)

// spoken are the languages that Holdfast has texts in.
var spoken = []string{"en", "ru"}

// pluralForms are the forms that a language needs, by CLDR.
var pluralForms = map[string][]string{
	"en": {"one", "other"},
	"ru": {"one", "few", "many", "other"},
}

// member is one field of a mapping.
type member struct {
	name string
	key  *node
	value
}

// members lists the fields of a mapping, each name once, and reports what has no name or is there twice.
// The shape says what to write where it is no mapping.
func (c *compiler) members(v value, shape string) []member {
	if v.kind != mapping {
		c.add(v.at, v.path, "expected a mapping, found "+v.kind.String(), "write "+shape)
		return nil
	}
	var members []member
	first := map[string]place{}
	for _, p := range v.pairs {
		if p.key.kind != text {
			c.add(p.key.at, v.path, "a key is "+p.key.kind.String()+", not text", quoteKey(p.key))
			continue
		}
		m := member{p.key.text, p.key, value{p.value, join(v.path, p.key.text)}}
		if at, twice := first[m.name]; twice {
			c.add(m.key.at, m.path, fmt.Sprintf("written twice; it is on line %d already", at.line), "remove one of the two")
			continue
		}
		first[m.name] = m.key.at
		members = append(members, m)
	}
	return members
}

func quoteKey(key *node) string {
	if key.text == "" {
		return "write a name before the colon"
	}
	return fmt.Sprintf("write %q", brief(key.text))
}

func join(path, name string) string {
	name = brief(name)
	if path == "" {
		return name
	}
	return path + "." + name
}

// fields are the known fields of a mapping, by name.
func (c *compiler) fields(v value, known level) map[string]value {
	fields := map[string]value{}
	for _, m := range c.members(v, known.shape) {
		if slices.Contains(known.fields, m.name) {
			fields[m.name] = m.value
		} else {
			c.unknown(m.key.at, m.path, "field", m.name, known.fields)
		}
	}
	return fields
}

// named are the members of a mapping from names to things: units, features, surfaces, plans, products.
func (c *compiler) named(v value, what string) []member {
	if !v.given() {
		return nil
	}
	if v.kind == nothing {
		c.add(v.at, v.path, "has nothing below it", "add at least one "+what)
		return nil
	}
	all := c.members(v, "every "+what+" under its name")
	for i, m := range all {
		switch {
		case i == holdfast.MaxCatalogNames:
			c.add(m.key.at, v.path, fmt.Sprintf("more than %d", holdfast.MaxCatalogNames), "remove what is not used")
		case !holdfast.ValidIdentifier(m.name):
			c.add(m.key.at, m.path, "not a name", identifierLike(m.name))
		}
	}
	return all
}

// identifierLike says how a name could be written.
func identifierLike(name string) string {
	rule := fmt.Sprintf("use 1 to %d of a-z 0-9 . _ -", holdfast.MaxIdentifierBytes)
	likely := strings.ReplaceAll(strings.ToLower(strings.TrimSpace(name)), " ", "_")
	if holdfast.ValidIdentifier(likely) {
		return rule + ", such as " + likely
	}
	return rule
}

// required reports a field that is missing, at its owner's place. It returns whether the field is there.
func (c *compiler) required(v value, owner member, name, suggestion string) bool {
	if !v.given() {
		c.add(owner.key.at, join(owner.path, name), "missing", suggestion)
	}
	return v.given()
}

// unknown reports a word that is none of the known ones.
func (c *compiler) unknown(at place, path, what, word string, known []string) {
	near := ""
	if !c.full() {
		near = nearest(word, known)
	}
	switch {
	case near != "":
		c.add(at, path, "unknown "+what+"; did you mean "+near+"?", "write "+near)
	case len(known) == 0:
		c.add(at, path, "unknown "+what, "add it, or remove it here")
	default:
		c.add(at, path, "unknown "+what, "use "+oneOf(known))
	}
}

// oneOf lists words, of many the first ones.
func oneOf(words []string) string {
	const most = 16
	if len(words) == 1 {
		return words[0]
	}
	if len(words) > most {
		return "one of " + strings.Join(words[:most], ", ") + ", …"
	}
	return strings.Join(words[:len(words)-1], ", ") + " or " + words[len(words)-1]
}

// brief is what a message shows of a text of the file.
func brief(text string) string {
	const most = 2 * holdfast.MaxIdentifierBytes
	shown := []rune(text)
	if len(shown) > most {
		shown = append(shown[:most], '…')
	}
	for i, char := range shown {
		if !visible(char) {
			shown[i] = '\ufffd'
		}
	}
	return string(shown)
}
