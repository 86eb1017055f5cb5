package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast"
)

// Catalogs keeps what projects sell.
type Catalogs interface {
	// Current is the version that the project is served by, and its YAML.
	Current(ctx context.Context, project string) (version int64, source []byte, err error)
	// Replace makes the YAML the newest version, if ifVersion is the newest now. The same content as now makes no version:
	// created is false, and version is the one there is. Errors: CatalogProblems, ErrVersion, *InUse; others mean that
	// nothing happened and that it can be tried again. Whatever the error, nothing is stored.
	Replace(ctx context.Context, project string, ifVersion int64, source []byte) (version int64, created bool, err error)
}

// ErrVersion is what Replace answers where another version is the newest.
var ErrVersion = errors.New("another version of the catalog is the newest")

// CatalogProblem is one thing that is wrong with a catalog.
type CatalogProblem struct {
	Field        string // its path in the file; empty: the file as a whole
	Line, Column int    // from 1
	Hint         string // what is wrong, and what to write instead
}

// CatalogProblems are all that is wrong with one, in the order of the file.
type CatalogProblems []CatalogProblem

// Error counts them.
func (p CatalogProblems) Error() string { return fmt.Sprintf("the catalog has %d problems", len(p)) }

// InUse is what Replace answers where a catalog drops what accounts hold.
type InUse struct{ Plans, Units []string }

// Error names them.
func (e *InUse) Error() string {
	return "the catalog drops what is in use: " + strings.Join(append(append([]string{}, e.Plans...), e.Units...), ", ")
}

// yamlContents are the types that a catalog may be sent as.
var yamlContents = []string{"application/yaml", "text/yaml"}

const (
	versionHeader = "If-Match"
	versionTag    = "Etag"
)

// versionText is a version as ETag tells it.
var versionText = regexp.MustCompile(`^"(0|[1-9]\d{0,17})"$`)

func tag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

func getCatalog(c *call) answer {
	c.noQuery()
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	if c.api.Catalogs == nil {
		return c.notFound()
	}
	version, source, err := c.api.Catalogs.Current(c.context(), c.key.Project)
	if err != nil {
		return c.failed(err)
	}
	return answer{status: http.StatusOK, body: Catalog{Version: version, Source: string(source)}}.with(versionTag, tag(version))
}

func putCatalog(c *call) answer {
	c.noQuery()
	sent := c.single(versionHeader)
	if sent == "" && len(c.problems) == 0 {
		return c.mistake(reasonVersionRequired, `Say which version you have changed: If-Match with the ETag that GET answered, for example If-Match: "7".`)
	}
	matched := versionText.FindStringSubmatch(sent)
	if matched == nil {
		c.problems = merge(c.problems, []holdfast.Problem{{Field: versionHeader, Hint: `send the one ETag that GET answered, for example "7"`}}, keyHeader)
	}
	source, refused := c.text(holdfast.MaxCatalogBytes, yamlContents...)
	switch {
	case refused != nil:
		return *refused
	case len(c.problems) > 0:
		return c.invalid(c.problems)
	case c.api.Catalogs == nil:
		return c.notFound()
	}
	ifVersion, _ := strconv.ParseInt(matched[1], 10, 64) // at most 18 digits
	version, created, err := c.api.Catalogs.Replace(c.context(), c.key.Project, ifVersion, []byte(source))
	if err != nil {
		return c.catalogRefused(err)
	}
	a := answer{status: http.StatusOK, body: CatalogChanged{Version: version, Changed: created}}
	if created {
		a.status = http.StatusCreated
	}
	return a.with(versionTag, tag(version))
}

func (c *call) catalogRefused(err error) answer {
	if errors.Is(err, ErrVersion) {
		return c.mistake(reasonVersionChanged, "Another version is the newest by now. Read it, and change that one.")
	}
	if found, ok := errors.AsType[CatalogProblems](err); ok {
		problems := make([]FieldProblem, len(found))
		for i, p := range found {
			problems[i] = FieldProblem{Field: p.Field, Hint: p.Hint, Line: p.Line, Column: p.Column}
		}
		a := c.mistake(holdfast.Invalid, "The catalog has mistakes, so nothing of it was stored.")
		body := a.body.(Problem)
		body.Problems = problems
		a.body = body
		return a
	}
	if inUse, ok := errors.AsType[*InUse](err); ok {
		a := c.mistake(reasonInUse, "Accounts hold what this catalog drops. Keep it; retired: true stops new sales of a plan.")
		a.body = CatalogInUse{Problem: a.body.(Problem), Plans: append([]string{}, inUse.Plans...), Units: append([]string{}, inUse.Units...)}
		return a
	}
	return c.failed(err)
}
