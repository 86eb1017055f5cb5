package main

import (
	"errors"
	"log/slog"
	"net/http"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/stripe"
)

// stripePath is where Stripe sends its events.
const stripePath = "/webhooks/stripe"

// stripeWebhook says for which project Stripe's events are taken, and how they are signed.
type stripeWebhook struct {
	project string
	secrets []string
}

func (c serveCommand) stripe() stripeWebhook { return stripeWebhook{c.StripeProject, c.StripeSecrets} }

func (f stripeWebhook) check() error {
	switch {
	case f.project == "" && len(f.secrets) == 0:
		return nil
	case len(f.secrets) == 0:
		return errors.New("--stripe-project is set without a signing secret: set HOLDFAST_STRIPE_SECRET")
	case !holdfast.ValidProject(f.project):
		return errors.New("--stripe-project: name the project whose payments Stripe tells of")
	}
	return nil
}

// mount puts the webhook beside the API, where a project is named.
func (f stripeWebhook) mount(api http.Handler, desk *payment.Desk, db database, e *engine.Engine, log *slog.Logger) http.Handler {
	if f.project == "" {
		return api
	}
	hook := &stripe.Webhook{
		Book:    &payment.Book{Desk: desk, Orders: db, Accounts: e, Project: f.project, Provider: stripe.Provider},
		Secrets: f.secrets, Log: log,
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == stripePath {
			hook.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}
