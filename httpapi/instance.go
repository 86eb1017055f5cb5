package httpapi

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	"github.com/holdfast-dev/holdfast"
)

// Admin makes projects and keys. Only the instance's own admin key leads to it.
type Admin interface {
	// AddProject makes a project; created is false where it is there.
	AddProject(ctx context.Context, name string) (created bool, err error)
	// AddKey makes a key. The secret is told this once, and only its hash is kept. Error: ErrNoProject.
	AddKey(ctx context.Context, key NewKey) (id, secret string, err error)
	// RevokeKey ends a key; false: there is none of this id in force.
	RevokeKey(ctx context.Context, id string) (bool, error)
}

// ErrNoProject is what AddKey answers where the project is not there.
var ErrNoProject = errors.New("there is no such project")

// NewKey is a key to be made.
type NewKey struct {
	Project   string
	Scopes    []string
	Note      string // what it is for; may be empty
	RateLimit int    // requests a second; 0: the server's
}

// scopeInstance is that of the calls that only the instance's admin key may make. No key of a project has it.
const scopeInstance = "the instance's admin key"

// allScopes are what a key can be allowed to do.
var allScopes = []string{ScopeRead, ScopeWork, ScopeMoney, ScopeAdmin}

const (
	leastAdminKey = 8 // bytes; a shorter one can be guessed
	maxKeyID      = 64
)

// checkAdminKey finds an admin key that nobody could send, or anybody guess.
func checkAdminKey(key string) error {
	unsendable := func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) || r > unicode.MaxASCII }
	if key != "" && (len(key) < leastAdminKey || len(key) > MaxSecretBytes || strings.ContainsFunc(key, unsendable)) {
		return fmt.Errorf("httpapi: the admin key: use %d to %d printable ASCII characters without spaces", leastAdminKey, MaxSecretBytes)
	}
	return nil
}

// isAdmin compares in a time that tells nothing about the key.
func (a *api) isAdmin(secret string) bool {
	sent, key := sha256.Sum256([]byte(secret)), sha256.Sum256([]byte(a.AdminKey))
	return subtle.ConstantTimeCompare(sent[:], key[:]) == 1 && a.AdminKey != "" && a.Admin != nil
}

// projectBody makes a project.
type projectBody struct {
	Name string `json:"name" doc:"1 to 64 of a-z 0-9 . _ -" example:"shop"`
}

func addProject(c *call) answer {
	var body projectBody
	if unread := c.instanceBody(&body); unread != nil {
		return *unread
	}
	if !holdfast.ValidProject(body.Name) {
		c.mustBe("name", fmt.Sprintf("use 1 to %d of a-z 0-9 . _ -", holdfast.MaxProjectBytes))
	}
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	created, err := c.api.Admin.AddProject(c.context(), body.Name)
	if err != nil {
		return c.failed(err)
	}
	a := answer{status: http.StatusOK, body: Project{Name: body.Name, Changed: created}}
	if created {
		a.status = http.StatusCreated
	}
	return a
}

// keyBody makes a key of a project.
type keyBody struct {
	Project   string           `json:"project" doc:"Whose; it must be there" example:"shop"`
	Scopes    []string         `json:"scopes" doc:"What it may do: read, work, money, admin" example:"[\"read\",\"work\"]"`
	Note      string           `json:"note,omitempty" doc:"What it is for"`
	RateLimit *holdfast.Amount `json:"rate_limit,omitempty" minimum:"1" maximum:"100000" doc:"Requests a second, and twice as many at once; the server's where it is left out"`
}

func addKey(c *call) answer {
	var body keyBody
	if unread := c.instanceBody(&body); unread != nil {
		return *unread
	}
	key := NewKey{Project: body.Project, Scopes: body.Scopes, Note: body.Note}
	if !holdfast.ValidProject(body.Project) {
		c.mustBe("project", fmt.Sprintf("use 1 to %d of a-z 0-9 . _ -", holdfast.MaxProjectBytes))
	}
	if len(body.Scopes) == 0 {
		c.mustBe("scopes", "name at least one of "+strings.Join(allScopes, ", "))
	}
	for i, scope := range body.Scopes {
		switch {
		case !slices.Contains(allScopes, scope):
			c.mustBe(fmt.Sprintf("scopes[%d]", i), "use one of "+strings.Join(allScopes, ", "))
		case slices.Contains(body.Scopes[:i], scope):
			c.mustBe(fmt.Sprintf("scopes[%d]", i), "name it once")
		}
	}
	if len(body.Note) > holdfast.MaxReasonBytes || strings.ContainsFunc(body.Note, unicode.IsControl) {
		c.mustBe("note", fmt.Sprintf("use at most %d bytes without control characters", holdfast.MaxReasonBytes))
	}
	if n := body.RateLimit; n != nil {
		if *n < 1 || *n > holdfast.MaxKeyRate {
			c.mustBe("rate_limit", fmt.Sprintf("use 1 to %d", holdfast.MaxKeyRate))
		} else {
			key.RateLimit = int(*n)
		}
	}
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	id, secret, err := c.api.Admin.AddKey(c.context(), key)
	switch {
	case errors.Is(err, ErrNoProject):
		c.mustBe("project", "make it first, with POST /v1/projects")
		return c.invalid(c.problems)
	case err != nil:
		return c.failed(err)
	}
	shown := KeyMade{ID: id, Project: key.Project, Scopes: key.Scopes, Note: known(key.Note), Secret: secret}
	if key.RateLimit > 0 {
		shown.RateLimit = &key.RateLimit
	}
	return answer{status: http.StatusCreated, body: shown}
}

func revokeKey(c *call) answer {
	c.noQuery()
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	id := c.request.PathValue("id")
	if len(id) > maxKeyID || strings.ContainsFunc(id, func(r rune) bool { return r > unicode.MaxASCII || !unicode.IsPrint(r) }) {
		return c.notFound() // no key is called so
	}
	switch found, err := c.api.Admin.RevokeKey(c.context(), id); {
	case err != nil:
		return c.failed(err)
	case !found:
		return c.notFound()
	}
	return answer{status: http.StatusNoContent}
}

// instanceBody reads the body of a call that is no command.
func (c *call) instanceBody(into any) *answer {
	c.noQuery()
	return c.from.body(c, into)
}

// mustBe adds a problem, unless the field could not be read at all, or the body could not.
func (c *call) mustBe(field, hint string) {
	if !c.unread {
		c.problems = merge(c.problems, []holdfast.Problem{{Field: field, Hint: hint}}, keyHeader)
	}
}
