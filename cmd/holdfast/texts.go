package main

import (
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/httpapi"
	"github.com/holdfast-dev/holdfast/message"
)

// texts lets the HTTP API speak through package message, which it does not know.
type texts struct{ *message.Texts }

// Detail says what a refusal means for its reader.
func (t texts) Detail(reader httpapi.Reader, catalog *holdfast.Catalog, outcome holdfast.Outcome, now time.Time) string {
	return t.Texts.Detail(message.Reader(reader), catalog, outcome, now)
}

// Accident says that there is no answer now.
func (t texts) Accident(reader httpapi.Reader, reason holdfast.Reason) string {
	return t.Texts.Accident(message.Reader(reader), message.Accident(reason))
}

// PreCheckout says why a payment may not go on.
func (t texts) PreCheckout(reader httpapi.Reader, reason string, until, now time.Time) string {
	return t.Texts.PreCheckout(message.Reader(reader), message.PreCheckoutReason(reason), until, now)
}

// Invoice is what an invoice is called.
func (t texts) Invoice(reader httpapi.Reader, catalog *holdfast.Catalog, product *holdfast.Product, price holdfast.Money, recurring bool) (title, description string) {
	return t.Texts.Invoice(message.Reader(reader), catalog, message.Offer{Product: product, Price: price, Recurring: recurring})
}
