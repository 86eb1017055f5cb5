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
	"github.com/holdfast-dev/holdfast/store"
)

type keyCommand struct {
	Create keyCreateCommand `cmd:"" help:"Make an API key. It is printed once and stored hashed."`
}

type keyCreateCommand struct {
	databaseFlags
	Project string   `required:"" help:"The project that the key belongs to; it is made if it is new."`
	Scope   []string `required:"" help:"What the key may do: read, work, money, admin. Repeat the flag, or separate by commas."`
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
	secret := newKey()
	key := store.Key{ID: keyID(secret), Hash: sha256.Sum256([]byte(secret)), Project: c.Project, Scopes: wanted, CreatedAt: time.Now().UTC().Truncate(time.Microsecond)}
	if err := db.AddKey(ctx, key); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(t.notes, "key %s of project %s may %s; it is not shown again\n", key.ID, key.Project, strings.Join(wanted, ", "))
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
