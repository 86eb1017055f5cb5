package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/stripe"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

type reconcileCommand struct {
	Payments reconcilePaymentsCommand `cmd:"" help:"Compare a provider's list of payments with what is here; grant what was missed. Exit 1 if something is left to look at."`
	Usage    reconcileUsageCommand    `cmd:"" help:"Compare a provider's usage, as CSV, with what was committed. Exit 1 on any difference."`
}

type reconcilePaymentsCommand struct {
	databaseFlags
	Project  string `default:"dev" env:"HOLDFAST_PROJECT" help:"Whose payments."`
	Provider string `required:"" placeholder:"P" help:"telegram_stars (the token is in TELEGRAM_BOT_TOKEN; of a second bot of the project telegram_stars. with its id) or stripe (the key is in STRIPE_API_KEY)."`
	APIURL   string `name:"api-url" placeholder:"URL" help:"Where the provider's API is; its own address if left out."`
	Since    string `placeholder:"DAY" help:"Of stripe: look at what was paid since this day, for example 2027-01-01; at everything if left out."`
}

func (c reconcilePaymentsCommand) Run(ctx context.Context, t *terminal) error {
	if !holdfast.ValidProject(c.Project) {
		return fmt.Errorf("--project: use 1 to %d of a-z 0-9 . _ -", holdfast.MaxProjectBytes)
	}
	var since time.Time
	if c.Since != "" {
		day, err := time.Parse(time.DateOnly, c.Since)
		switch {
		case err != nil:
			return errors.New("--since: use a day such as 2027-01-01")
		case c.Provider != stripe.Provider:
			return errors.New("--since: Telegram's list begins at its beginning; leave it out")
		}
		since = day
	}
	variable := "TELEGRAM_BOT_TOKEN"
	switch {
	case c.Provider == stripe.Provider:
		variable = "STRIPE_API_KEY"
	case c.Provider != telegramstars.Provider && !strings.HasPrefix(c.Provider, telegramstars.Provider+"."):
		return errors.New("--provider: use telegram_stars, telegram_stars. with a bot's id, or stripe")
	}
	secret := os.Getenv(variable)
	if secret == "" {
		return fmt.Errorf("set %s in the environment", variable)
	}
	log := logger(t.notes, slog.LevelWarn)
	return c.work(ctx, log, func(db database, e *engine.Engine) error {
		book := &payment.Book{
			Desk: &payment.Desk{Engine: e, Claims: db, Log: log}, Orders: db, Accounts: e, Project: c.Project, Provider: c.Provider,
		}
		var found payment.Reconciled
		var err error
		if c.Provider == stripe.Provider {
			found, err = stripe.Reconcile(ctx, book, &stripe.API{Key: secret, URL: c.APIURL}, since)
		} else {
			found, err = reconcileStars(ctx, t, book, botapi.Options{Token: secret, URL: c.APIURL, Logger: log})
		}
		// What was done is told, also where the rest could not be.
		if told := tellReconciled(t, c.Provider, &found); err == nil {
			err = told
		}
		return err
	})
}

// reconcileStars does what follows at Telegram, too.
func reconcileStars(ctx context.Context, t *terminal, book *payment.Book, bot botapi.Options) (payment.Reconciled, error) {
	api, err := botapi.New(bot)
	if err != nil {
		return payment.Reconciled{}, fmt.Errorf("TELEGRAM_BOT_TOKEN: %w", err)
	}
	stars := &telegramstars.Stars{Book: book, Bot: strconv.FormatInt(api.ID(), 10)}
	if book.Provider != telegramstars.Provider && book.Provider != telegramstars.Provider+"."+stars.Bot {
		return payment.Reconciled{}, fmt.Errorf("--provider %s is another bot's than TELEGRAM_BOT_TOKEN: use %s.%s", book.Provider, telegramstars.Provider, stars.Bot)
	}
	found, actions, err := stars.Reconcile(ctx, api)
	for _, action := range actions {
		if failed := api.Do(ctx, action); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		err = errors.Join(err, stars.Done(ctx, action))
		_, _ = fmt.Fprintf(t.notes, "a subscription that another one has replaced is not charged again: %s\n", action.ChargeID)
	}
	return found, err
}

// tellReconciled prints a table of what was not as it should be, and counts. The error is errDifferent where somebody has to
// look.
func tellReconciled(t *terminal, provider string, found *payment.Reconciled) error {
	table := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	for _, row := range []struct {
		what string
		ids  []string
	}{
		{"granted now", found.Granted}, {"kept now, and flagged", found.Flagged}, {"refunded now", found.Refunded}, {"here and not there", found.Missing},
	} {
		for _, id := range row.ids {
			_, _ = fmt.Fprintf(table, "%s\t%s\n", row.what, id)
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(t.out, "reconcile: %s: granted now %d, kept and flagged %d, already there %d, refunded now %d, here and not there %d\n", provider,
		len(found.Granted), len(found.Flagged), found.Already, len(found.Refunded), len(found.Missing))
	if err == nil && len(found.Flagged)+len(found.Missing) > 0 {
		err = errDifferent
	}
	return err
}
