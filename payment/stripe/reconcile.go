package stripe

import (
	"context"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
)

// Lister reads Stripe's books, in any order.
type Lister interface {
	// Sales are the paid invoices of subscriptions, with the payment intents that paid them, and the checkouts that were paid
	// at once, made since a time.
	Sales(ctx context.Context, since time.Time) iter.Seq2[Sale, error]
	// Refunds are the refunds that have succeeded, and the disputes that took money back, since a time.
	Refunds(ctx context.Context, since time.Time) iter.Seq2[Refund, error]
}

// openFor is how long an invoice or a checkout can wait for its payment: that much further back is looked.
const openFor = 60 * 24 * time.Hour

// Reconcile compares what Stripe lists since a time with what is here; the zero time means all. What was paid there and is
// missing here is granted, and what was refunded there and not here is applied, each once, also beside webhooks that come in
// meanwhile. What is here and not there is reported and left as it is.
func Reconcile(ctx context.Context, book *payment.Book, lister Lister, since time.Time) (payment.Reconciled, error) {
	var found payment.Reconciled
	asked := book.Accounts.Now()
	from := since
	if !since.IsZero() {
		from = since.Add(-openFor)
	}
	var sales []Sale
	for sale, err := range lister.Sales(ctx, from) {
		if err != nil {
			return found, err
		}
		sales = append(sales, sale)
	}
	// Periods follow each other in the order in which they were paid.
	slices.SortStableFunc(sales, func(a, b Sale) int { return a.PaidAt.Compare(b.PaidAt) })
	known := map[string]bool{}
	for i := range sales {
		known[sales[i].ID] = true
		if err := reconcileSale(ctx, book, &sales[i], &found); err != nil {
			return found, err
		}
	}
	for refund, err := range lister.Refunds(ctx, from) {
		if err != nil {
			return found, err
		}
		outcome, _, err := giveBack(ctx, book, &refund)
		if err != nil {
			return found, err
		}
		if outcome.Changed {
			found.Refunded = append(found.Refunded, outcome.Payment.PaymentID)
		}
	}
	var err error
	found.Missing, err = book.NotThere(ctx, known, since, asked)
	return found, err
}

func reconcileSale(ctx context.Context, book *payment.Book, sale *Sale, found *payment.Reconciled) error {
	here, err := book.Payment(ctx, sale.ID)
	if err != nil {
		return err
	}
	if here != nil {
		found.Already++
		for _, name := range sale.Names {
			if err := book.Names(ctx, sale.ID, name); err != nil {
				return err
			}
		}
		return nil
	}
	outcome, err := sell(ctx, book, sale)
	switch {
	case err != nil:
		return err
	case !outcome.Changed: // a webhook was faster
		found.Already++
	case outcome.Payment.State == holdfast.PaymentGranted:
		found.Granted = append(found.Granted, sale.ID)
	default:
		found.Flagged = append(found.Flagged, sale.ID)
	}
	return nil
}
