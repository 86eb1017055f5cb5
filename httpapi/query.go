package httpapi

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// parameter is a query parameter of a route.
type parameter struct {
	name     string
	about    string
	integer  bool // a limit
	amounts  bool // name[kind]=amount, any number of them
	required bool
}

// The parameters of lists.
var (
	byAccount = parameter{name: "account", about: "Whose", required: true}
	byState   = parameter{name: "state", about: "Only these: reserved, running, committed, released or expired"}
	byKey     = parameter{name: "key", about: "Only what was made with this Idempotency-Key"}
	byLimit   = parameter{name: "limit", about: fmt.Sprintf("How many, 1 to %d; %d where it is left out", holdfast.MaxPage, holdfast.DefaultPage), integer: true}
	byCursor  = parameter{name: "cursor", about: "next_cursor of the page before"}

	asOf       = parameter{name: "as_of", about: "A moment, RFC 3339; now where it is left out"}
	ofFeature  = parameter{name: "feature", about: "What for; a feature of the catalog", required: true}
	ofQuantity = parameter{name: "quantity", about: "How many; 1 where it is left out"}
	ofUsage    = parameter{name: "usage", about: "How much of each kind at most, as usage[input_token]=1200", amounts: true}
)

// query reads the route's parameters, each at most once, and no others.
func (c *call) query() map[string]string {
	values, err := url.ParseQuery(c.request.URL.RawQuery)
	if err != nil {
		c.wrong("query", "escape the query as a URL demands")
	}
	var names []string
	for _, p := range c.route.parameters {
		if p.amounts {
			names = append(names, p.name+"[kind]")
		} else {
			names = append(names, p.name)
		}
	}
	read := map[string]string{}
	for _, name := range sortedKeys(values) {
		switch {
		case !slices.Contains(names, plainName(name)):
			c.wrong(shownName("", member{name: name}), unknownParameter(name, names))
		case len(values[name]) > 1:
			c.wrong(name, "name it once")
		case values[name][0] == "": // left out
		default:
			read[name] = values[name][0]
		}
		if len(c.problems) >= maxProblems {
			break
		}
	}
	return read
}

// kindOf takes input_token from usage[input_token].
func kindOf(name string) (before, kind string, ok bool) {
	before, rest, ok := strings.Cut(name, "[")
	kind, closed := strings.CutSuffix(rest, "]")
	return before, kind, ok && closed
}

// plainName is what every name of amounts is listed as.
func plainName(name string) string {
	if before, _, ok := kindOf(name); ok {
		return before + "[kind]"
	}
	return name
}

// integer reads a parameter, as strictly as a field of a body.
func (c *call) integer(name, text string) *holdfast.Amount {
	v, err := parse(text, 1)
	if err != nil {
		v = value{kind: isText}
	}
	n, hint := readInteger(v)
	if hint != "" {
		c.wrong(name, hint)
	}
	amount := holdfast.Amount(n)
	return &amount
}

// noQuery refuses query parameters where a call takes none.
func (c *call) noQuery() {
	if c.request.URL.RawQuery != "" {
		c.query()
	}
}

func sortedKeys[V any](values map[string]V) []string {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func unknownParameter(name string, names []string) string {
	if len(names) == 0 {
		return "leave it out: this call takes no query parameters"
	}
	if near, ok := nearest(name, names); ok {
		return "there is no such parameter; did you mean " + near + "?"
	}
	return "there is no such parameter; use " + strings.Join(names, ", ")
}

// page reads limit and cursor of a list.
func (c *call) page(kind store.QueryKind, read map[string]string) store.Query {
	query := store.Query{Kind: kind, Limit: holdfast.DefaultPage}
	if text, ok := read[byLimit.name]; ok {
		n, err := strconv.Atoi(text)
		if err != nil || strconv.Itoa(n) != text || n < 1 || n > holdfast.MaxPage {
			c.wrong(byLimit.name, fmt.Sprintf("use an integer from 1 to %d", holdfast.MaxPage))
		}
		query.Limit = n
	}
	return query
}

// validName checks an account's name in the core's words.
func (c *call) validName(name string) {
	check := holdfast.Command{Account: name, Do: holdfast.PutAccount{}}
	c.problems = merge(c.problems, check.Check(), c.from.keyField())
}
