package telegramstars

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
)

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

// ErrNotSold is the cause where a product is not sold in this way.
var ErrNotSold = errors.New("not sold for Stars")

// NewOrder makes an order at today's price. Its Reference is the invoice's payload: nobody can guess it, and it tells which
// order a payment is of. The error is ErrNotSold where the product is none for Stars, and an accident otherwise.
func (s *Stars) NewOrder(ctx context.Context, wanted NewOrder) (payment.Order, error) {
	product, ok := s.Book.Accounts.Catalog(s.Book.Project).Product(wanted.Product)
	price, priced := starPrice(product)
	switch {
	case !holdfast.ValidName(wanted.Account):
		return payment.Order{}, fmt.Errorf("%w: there is no account of this name", ErrNotSold)
	case !ok || product.Retired || !priced:
		return payment.Order{}, fmt.Errorf("%w: the catalog has no such product with a price in %s", ErrNotSold, Currency)
	case wanted.Recurring && (product.Plan == "" || product.Period != holdfast.Period{Days: subscriptionDays}):
		return payment.Order{}, fmt.Errorf("%w: Telegram charges subscriptions every 30 days, so the product must be a plan for 30 days", ErrNotSold)
	case wanted.Recurring && price > maxSubscriptionPrice:
		return payment.Order{}, fmt.Errorf("%w: a subscription costs at most %d Stars", ErrNotSold, maxSubscriptionPrice)
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
