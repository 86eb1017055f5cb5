package telegramstars

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
)

// Order is what was agreed on with an invoice.
type Order = payment.Order

// NewOrder is what an invoice is wanted for.
type NewOrder struct {
	Account string
	Product string
	// Recurring asks for a subscription, which Telegram charges again every 30 days: only createInvoiceLink makes one.
	Recurring bool
}

// Telegram's bounds of a subscription: its only period, in seconds and in days, and its highest price.
const (
	SubscriptionPeriod   = 2_592_000
	subscriptionDays     = 30
	maxSubscriptionPrice = 10_000
)

// ErrNotSold is the cause where a product is not sold in this way. The error is a *NotSoldError.
var ErrNotSold = errors.New("not sold for Stars")

// NotSoldError says what of a NewOrder is to be another, and what instead.
type NotSoldError struct{ Field, Hint string }

// Error tells both.
func (e *NotSoldError) Error() string { return ErrNotSold.Error() + ": " + e.Field + ": " + e.Hint }

// Unwrap is ErrNotSold.
func (e *NotSoldError) Unwrap() error { return ErrNotSold }

// NewOrder makes an order at today's price. Its Reference is the invoice's payload: nobody can guess it, and it tells which
// order a payment is of. The error is ErrNotSold where the product is none for Stars, and an accident otherwise.
func (s *Stars) NewOrder(ctx context.Context, wanted NewOrder) (payment.Order, error) {
	product, ok := s.Book.Accounts.Catalog(s.Book.Project).Product(wanted.Product)
	price, priced := starPrice(product)
	no := func(field, hint string) (payment.Order, error) { return payment.Order{}, &NotSoldError{field, hint} }
	switch {
	case !holdfast.ValidName(wanted.Account):
		return no("account", fmt.Sprintf("use a name of 1 to %d bytes of UTF-8 without control characters, spaces or / ? # %%", holdfast.MaxNameBytes))
	case !ok || product.Retired || !priced:
		return no("product", "use a product of the catalog that has a price in "+Currency)
	case wanted.Recurring && (product.Plan == "" || product.Period != holdfast.Period{Days: subscriptionDays}):
		return no("recurring", "leave it out: Telegram charges subscriptions every 30 days, and the product is no plan for 30 days")
	case wanted.Recurring && price > maxSubscriptionPrice:
		return no("recurring", fmt.Sprintf("leave it out: a subscription costs at most %d Stars", maxSubscriptionPrice))
	}
	order := payment.Order{
		OrderName: s.Book.Name("hf-" + rand.Text()), Seller: s.Bot, Account: wanted.Account, Product: product.Name,
		Price: price, Currency: Currency, Recurring: wanted.Recurring, CreatedAt: s.Book.Accounts.Now(),
	}
	return order, s.Book.Keep(ctx, order)
}

// starPrice is what a product costs in Stars.
func starPrice(product *holdfast.Product) (price holdfast.Amount, ok bool) {
	if product == nil {
		return 0, false
	}
	for _, money := range product.Prices {
		if money.Currency == Currency {
			return money.Amount, true
		}
	}
	return 0, false
}
