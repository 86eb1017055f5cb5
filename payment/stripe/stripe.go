// Package stripe sells through Stripe: it takes signed webhooks and turns those that tell of payments, refunds, disputes and
// subscriptions into their effects.
//
//	webhook ── signature ──► event ──► sale ─────────► the payment is granted once, or kept and flagged
//	                              ├──► refund ───────► applied once, or kept until its payment comes
//	                              └──► subscription ─► cancelled or resumed, by what was told last
//	Stripe's lists ──► Reconcile ──► what was missed
//
// A server mounts Webhook as a handler; the command line calls Reconcile. It never looks at the order in which events arrive
// and never at their ids: payments are known by the invoice or the payment intent, refunds by theirs, and what was told of a
// subscription by when it was so. It never creates checkouts: the seller's own code does, and says in the metadata for whom
// and for what.
package stripe

import (
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Provider is the provider's name of payments.
const Provider = "stripe"

// The names in the metadata of a checkout, and of the subscription that it makes.
const (
	MetadataAccount = "account"
	MetadataProduct = "product"
)

// Sale is a payment as Stripe tells it: an invoice of a subscription, or a checkout that was paid at once.
type Sale struct {
	ID           string   // of the invoice, else of the payment intent; of a checkout that cost nothing, its own
	Names        []string // the payment intents of an invoice: refunds and disputes tell those
	Account      string   // from the metadata, as Product
	Product      string
	Customer     string
	Subscription string // empty: it was paid at once
	First        bool   // of the subscription
	Amount       holdfast.Amount
	Currency     string
	Price        holdfast.Amount // of the product itself, before discounts and taxes
	Until        time.Time       // the end of the period that was paid; zero: there is none
	PaidAt       time.Time
}

// Refund is a refund or a dispute as Stripe tells it.
type Refund struct {
	ID      string
	Payment string // the payment intent, else the charge
	Amount  *holdfast.Amount
	Dispute bool
}
