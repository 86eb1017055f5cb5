package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/httpapi"
	"github.com/holdfast-dev/holdfast/store"
)

type keyCommand struct {
	Create keyCreateCommand `cmd:"" help:"Make an API key. It is printed once and stored hashed."`
	Revoke keyRevokeCommand `cmd:"" help:"End an API key."`
}

type keyCreateCommand struct {
	databaseFlags
	Project string   `required:"" help:"The project that the key belongs to; it is made if it is new."`
	Scope   []string `required:"" help:"What the key may do: read, work, money, admin. Repeat the flag, or separate by commas."`

	RateLimit int `placeholder:"N" help:"Requests a second that it may make, and twice as many at once. Left out: what serve says."`
}

type keyRevokeCommand struct {
	databaseFlags
	ID string `arg:"" help:"The key's id, as key create told it and as the log names it."`
}

func (c keyRevokeCommand) Run(ctx context.Context, t *terminal) error {
	db, err := c.open(ctx, writing)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	revoked, err := instance{db}.RevokeKey(ctx, c.ID)
	if err != nil {
		return err
	}
	if !revoked {
		return fmt.Errorf("no key %s is in force", c.ID)
	}
	_, err = fmt.Fprintf(t.out, "key %s is revoked; servers stop taking it within %s\n", c.ID, rememberKeyFor)
	return err
}

// instance makes projects and keys in a database.
type instance struct{ database database }

// AddProject makes a project; created is false where it is there.
func (i instance) AddProject(ctx context.Context, name string) (bool, error) {
	return i.database.AddProject(ctx, name)
}

// AddKey makes a key of a project that is there. The secret is told this once.
func (i instance) AddKey(ctx context.Context, wanted httpapi.NewKey) (id, secret string, err error) {
	projects, err := i.database.Projects(ctx)
	if err != nil {
		return "", "", err
	}
	if !slices.Contains(projects, wanted.Project) {
		return "", "", httpapi.ErrNoProject
	}
	secret = newKey()
	key := store.Key{
		ID: keyID(secret), Hash: sha256.Sum256([]byte(secret)), Project: wanted.Project, Scopes: wanted.Scopes,
		RateLimit: wanted.RateLimit, Note: wanted.Note, CreatedAt: time.Now().UTC().Truncate(time.Microsecond),
	}
	return key.ID, secret, i.database.AddKey(ctx, key)
}

// RevokeKey ends a key; false: there is none of this id in force.
func (i instance) RevokeKey(ctx context.Context, id string) (bool, error) {
	return i.database.RevokeKey(ctx, id, time.Now().UTC().Truncate(time.Microsecond))
}

// scopes are what a key can be allowed to do.
var scopes = []string{"read", "work", "money", "admin"}

func (c keyCreateCommand) Run(ctx context.Context, t *terminal) error {
	if !holdfast.ValidProject(c.Project) {
		return fmt.Errorf("--project: use 1 to %d of a-z 0-9 . _ -", holdfast.MaxProjectBytes)
	}
	var wanted []string
	for _, scope := range c.Scope {
		if !slices.Contains(scopes, scope) {
			return fmt.Errorf("--scope: use %s", strings.Join(scopes, ", "))
		}
		if !slices.Contains(wanted, scope) {
			wanted = append(wanted, scope)
		}
	}
	db, err := c.open(ctx, writing)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if _, err := db.AddProject(ctx, c.Project); err != nil {
		return err
	}
	id, secret, err := instance{db}.AddKey(ctx, httpapi.NewKey{Project: c.Project, Scopes: wanted, RateLimit: c.RateLimit})
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(t.notes, "key %s of project %s may %s; it is not shown again\n", id, c.Project, strings.Join(wanted, ", "))
	_, err = fmt.Fprintln(t.out, secret)
	return err
}

// newKey is a fresh secret with 130 bits of randomness.
func newKey() string { return "hf_" + strings.ToLower(rand.Text()) }

// keyID names a key in logs and in the ledger without telling it.
func keyID(secret string) string {
	hash := sha256.Sum256([]byte("id of " + secret))
	return fmt.Sprintf("%x", hash[:6])
}
