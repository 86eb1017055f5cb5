package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/httpapi"
)

type accountCommand struct {
	Show  accountShowCommand  `cmd:"" help:"Show what an account has, as the database believes it."`
	Grant accountGrantCommand `cmd:"" help:"Open a pocket for an account that exists."`
}

type accountFlags struct {
	databaseFlags
	Project string `default:"dev" env:"HOLDFAST_PROJECT" help:"Whose account."`
	Account string `arg:"" help:"The account's name, for example telegram:42."`
}

func (f accountFlags) check() error {
	if !holdfast.ValidProject(f.Project) {
		return fmt.Errorf("--project: use 1 to %d of a-z 0-9 . _ -", holdfast.MaxProjectBytes)
	}
	if !holdfast.ValidName(f.Account) {
		return fmt.Errorf("account: use 1 to %d bytes of UTF-8 without control characters, spaces or / ? # %%", holdfast.MaxNameBytes)
	}
	return nil
}

type accountShowCommand struct {
	accountFlags
	JSON bool `name:"json" help:"Print JSON."`
}

func (c accountShowCommand) Run(ctx context.Context, t *terminal) error {
	if err := c.check(); err != nil {
		return err
	}
	db, err := c.open(ctx, reading)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	catalogs, err := openCatalogs(ctx, db, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	view, err := engine.New(db, engine.Options{Catalog: catalogs.of}).View(ctx, c.Project, c.Account)
	if err != nil {
		return err
	}
	if c.JSON {
		encoder := json.NewEncoder(t.out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(httpapi.AccountOf(c.Account, view, catalogs.of(c.Project).Version))
	}
	return showAccount(t, view)
}

func showAccount(t *terminal, view *holdfast.AccountView) error {
	table := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	line := func(columns string, values ...any) { _, _ = fmt.Fprintf(table, columns+"\n", values...) }
	seen := "exists"
	if !view.Exists {
		seen = "not seen yet: this is what it would have"
	}
	line("account\t%s (%s)", view.Account.Name, seen)
	line("project\t%s", view.Account.Project)
	line("plan\t%s", view.Plan)
	line("active\t%d of %d", view.Account.Active, view.MaxActive)
	if view.Account.Blocked {
		line("blocked\tyes")
	}
	for _, b := range view.Balances {
		line("%s\tavailable %d, reserved %d%s", b.Unit, b.Available, b.Reserved, describeCycle(b))
	}
	for _, f := range view.Features {
		line("%s\tcosts %d %s now", f.Name, f.Price.Amount, f.Price.Unit)
	}
	return table.Flush()
}

func describeCycle(b holdfast.Balance) string {
	switch {
	case b.Cycle == nil:
		return ""
	case b.ResetsAt.IsZero():
		return fmt.Sprintf("; allowance %d, not started", b.Cycle.Granted)
	}
	return fmt.Sprintf("; allowance %d, used %d, reserved %d, until %s", b.Cycle.Granted, b.Cycle.Used, b.Cycle.Reserved, b.ResetsAt.Format(time.RFC3339))
}

type accountGrantCommand struct {
	accountFlags
	Amount int64  `arg:"" help:"How much, in the unit's smallest step."`
	Unit   string `arg:"" help:"The unit, for example credit."`
	Source string `default:"promo" enum:"promo,purchase,correction" help:"Where it comes from: promo, purchase or correction."`
	Ends   string `placeholder:"TIME" help:"When it ends, RFC 3339; never if left out."`
	Reason string `help:"Why, for whoever reads the history."`
	Key    string `help:"Repeat with the same key if you are unsure whether it happened; a new one is made if left out."`
}

func (c accountGrantCommand) Run(ctx context.Context, t *terminal) error {
	if err := c.check(); err != nil {
		return err
	}
	grant := holdfast.AddGrant{Unit: c.Unit, Amount: holdfast.Amount(c.Amount), Source: holdfast.Source(c.Source), Reason: c.Reason}
	if c.Ends != "" {
		ends, err := time.Parse(time.RFC3339, c.Ends)
		if err != nil {
			return fmt.Errorf("--ends: use RFC 3339, for example 2027-01-01T00:00:00Z")
		}
		grant.EndsAt = ends.UTC().Truncate(time.Microsecond)
	}
	if c.Key == "" {
		c.Key = "cli-" + rand.Text()
		_, _ = fmt.Fprintln(t.notes, "key", c.Key)
	}
	return c.work(ctx, logger(t.notes, slog.LevelWarn), func(_ database, e *engine.Engine) error {
		outcome, err := e.Submit(ctx, holdfast.Command{Project: c.Project, Account: c.Account, Key: c.Key, Actor: "cli", Do: grant})
		if err != nil {
			return err
		}
		switch outcome.Reason {
		case "":
			return c.granted(ctx, t, e, &outcome)
		case holdfast.NotFound:
			return fmt.Errorf("project %s has no account %s; a grant never creates one: check the name, or put the account first", c.Project, c.Account)
		case holdfast.Invalid:
			return fmt.Errorf("%s: %s", outcome.Problems[0].Field, outcome.Problems[0].Hint)
		}
		return fmt.Errorf("refused: %s", outcome.Reason)
	})
}

// granted tells what was granted, and the balance as read back: a repeated key gets its old answer, and the account has
// gone on since.
func (c accountGrantCommand) granted(ctx context.Context, t *terminal, e *engine.Engine, outcome *holdfast.Outcome) error {
	view, err := e.View(ctx, c.Project, c.Account)
	if err != nil {
		return err
	}
	again := ""
	if outcome.Replayed {
		again = " (before, under this key)"
	}
	for _, b := range view.Balances {
		if b.Unit == outcome.Grant.Unit {
			_, err = fmt.Fprintf(t.out, "granted %d %s to %s%s; available now %d\n", outcome.Grant.Granted, b.Unit, c.Account, again, b.Available)
		}
	}
	return err
}
