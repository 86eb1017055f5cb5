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
	integer  bool
	required bool
}

// The parameters of lists.
var (
	byAccount = parameter{name: "account", about: "Whose", required: true}
	byState   = parameter{name: "state", about: "Only these: reserved, running, committed, released or expired"}
	byKey     = parameter{name: "key", about: "Only what was made with this Idempotency-Key"}
	byLimit   = parameter{name: "limit", about: fmt.Sprintf("How many, 1 to %d; %d where it is left out", holdfast.MaxPage, holdfast.DefaultPage), integer: true}
	byCursor  = parameter{name: "cursor", about: "next_cursor of the page before"}
)

// query reads the route's parameters, each at most once, and no others.
func (c *call) query() map[string]string {
	values, err := url.ParseQuery(c.request.URL.RawQuery)
	if err != nil {
		c.wrong("query", "escape the query as a URL demands")
	}
	var names []string
	for _, p := range c.route.parameters {
		names = append(names, p.name)
	}
	read := map[string]string{}
	for _, name := range sortedKeys(values) {
		switch {
		case !slices.Contains(names, name):
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

// noQuery refuses query parameters where a call takes none.
func (c *call) noQuery() {
	if c.request.URL.RawQuery != "" {
		c.query()
	}
}

func sortedKeys(values url.Values) []string {
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
