package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/stripe/stripe-go/v84"
	"github.com/stripe/stripe-go/v84/webhook"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
)

// Webhook takes Stripe's events. It answers 200 once an event has had its effect or has none here, 400 where the signature is
// wrong or older than 5 minutes, 413 where the body is too large, and 5xx where the event could not be stored: Stripe sends
// it again for three days. Events may come twice, at once, and in any order.
type Webhook struct {
	Book *payment.Book
	// Secrets are the endpoint's signing secrets: one, or two while one is being replaced.
	Secrets []string
	// Refunds reads the refunds of a charge, where charge.refunded tells of a part and not of which refund; nil: the endpoint
	// gets refund.created and refund.updated, which do.
	Refunds RefundReader
	// Log is told what an operator must know; nil: slog.Default.
	Log *slog.Logger
}

// RefundReader reads all refunds of a charge.
type RefundReader interface {
	RefundsOf(ctx context.Context, charge string) ([]Refund, error)
}

var errVersion = errors.New("the endpoint has another API version")

// ServeHTTP takes one event.
func (w *Webhook) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	answer := func(status int, text string) {
		response.Header().Set("Content-Type", "text/plain; charset=utf-8")
		response.WriteHeader(status)
		_, _ = io.WriteString(response, text+"\n")
	}
	if request.Method != http.MethodPost {
		response.Header().Set("Allow", http.MethodPost)
		answer(http.StatusMethodNotAllowed, "send events with POST")
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, holdfast.MaxBodyBytes))
	if err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			answer(http.StatusRequestEntityTooLarge, "the event is too large")
		} else {
			answer(http.StatusBadRequest, "the event could not be read")
		}
		return
	}
	event, err := w.verified(body, request.Header.Get("Stripe-Signature"))
	switch {
	case errors.Is(err, errVersion):
		w.log().Error("a stripe event cannot be read: give the endpoint the API version of this program", "event", event.ID, "its_version", event.APIVersion, "wanted", stripe.APIVersion)
		answer(http.StatusInternalServerError, "give the endpoint the API version "+stripe.APIVersion)
		return
	case err != nil:
		answer(http.StatusBadRequest, "the signature does not fit")
		return
	}
	if err := w.handle(request.Context(), event); err != nil {
		w.log().Error("a stripe event could not be stored; it will be sent again", "event", event.ID, "type", string(event.Type), "error", err)
		answer(http.StatusServiceUnavailable, "not stored; send it again")
		return
	}
	answer(http.StatusOK, "ok")
}

func (w *Webhook) log() *slog.Logger {
	if w.Log != nil {
		return w.Log
	}
	return slog.Default()
}

// verified is the event, signed by one of the secrets and of a version that this program can read.
func (w *Webhook) verified(body []byte, signature string) (event stripe.Event, err error) {
	err = webhook.ErrNoValidSignature
	for _, secret := range w.Secrets {
		if secret == "" {
			continue // anybody could sign with it
		}
		if event, err = webhook.ConstructEventWithOptions(body, signature, secret, webhook.ConstructEventOptions{IgnoreAPIVersionMismatch: true}); err != nil {
			continue
		}
		if _, mismatch := webhook.ConstructEvent(body, signature, secret); mismatch != nil {
			return event, errVersion
		}
		return event, nil
	}
	return event, err
}

// handle has the event's effect. What is not named here has none.
func (w *Webhook) handle(ctx context.Context, event stripe.Event) error {
	switch event.Type {
	case stripe.EventTypeCheckoutSessionCompleted, stripe.EventTypeCheckoutSessionAsyncPaymentSucceeded:
		return with(event, func(session *stripe.CheckoutSession) error { return w.sold(ctx, saleOfSession(session)) })
	case stripe.EventTypeInvoicePaid:
		return with(event, func(invoice *stripe.Invoice) error { return w.sold(ctx, saleOfInvoice(invoice)) })
	case stripe.EventTypeInvoicePaymentPaid:
		return with(event, func(p *stripe.InvoicePayment) error {
			if p.Invoice == nil || p.Payment == nil || p.Payment.PaymentIntent == nil {
				return nil
			}
			return w.Book.Names(ctx, p.Invoice.ID, p.Payment.PaymentIntent.ID)
		})
	case stripe.EventTypeCustomerSubscriptionCreated, stripe.EventTypeCustomerSubscriptionUpdated, stripe.EventTypeCustomerSubscriptionDeleted:
		return with(event, func(s *stripe.Subscription) error { return w.subscribed(ctx, s, moment(event.Created)) })
	case stripe.EventTypeRefundCreated, stripe.EventTypeRefundUpdated, stripe.EventTypeChargeRefundUpdated:
		return with(event, func(r *stripe.Refund) error { return w.refunded(ctx, refundOf(r)) })
	case stripe.EventTypeRefundFailed:
		return with(event, func(r *stripe.Refund) error {
			w.log().Error("a stripe refund has failed; what it took back stays taken back", "refund", r.ID, "payment", paymentOf(r.PaymentIntent, r.Charge))
			return nil
		})
	case stripe.EventTypeChargeRefunded:
		return with(event, func(c *stripe.Charge) error { return w.chargeRefunded(ctx, c) })
	case stripe.EventTypeChargeDisputeCreated, stripe.EventTypeChargeDisputeFundsWithdrawn, stripe.EventTypeChargeDisputeUpdated, stripe.EventTypeChargeDisputeClosed:
		return with(event, func(d *stripe.Dispute) error {
			if d.Status == stripe.DisputeStatusWon {
				w.log().Error("a stripe dispute was won; what it took back and blocked stays so until somebody decides", "dispute", d.ID, "payment", paymentOf(d.PaymentIntent, d.Charge))
			}
			return w.refunded(ctx, disputeOf(d))
		})
	}
	return nil
}

// with reads the event's object.
func with[Object any](event stripe.Event, do func(*Object) error) error {
	var object Object
	if event.Data == nil {
		return errors.New("the event has no object")
	}
	if err := json.Unmarshal(event.Data.Raw, &object); err != nil {
		return fmt.Errorf("read the event's object: %w", err)
	}
	return do(&object)
}

func (w *Webhook) sold(ctx context.Context, sale *Sale) error {
	if sale == nil {
		return nil
	}
	_, err := sell(ctx, w.Book, sale)
	return err
}

// sell has a payment decided. One whose metadata names no account is kept for the customer, and one that names no product is
// kept: both are flagged.
func sell(ctx context.Context, book *payment.Book, sale *Sale) (holdfast.Outcome, error) {
	sold := payment.Sale{
		Account: sale.Account, First: sale.First, Payer: sale.Customer, PaidAt: sale.PaidAt,
		Pay: holdfast.Pay{PaymentID: sale.ID, Product: sale.Product, Amount: sale.Amount, Currency: sale.Currency, PeriodEnd: sale.Until},
	}
	if !holdfast.ValidName(sale.Account) {
		sold.Account, sold.Pay.Product = "stripe:"+orElse(sale.Customer, sale.ID), payment.NoProduct
	}
	price := priceOf(book, sale.Product, sale.Currency)
	sold.Pay.Agreed = sale.Price == price
	if sale.Subscription != "" && holdfast.ValidName(sale.Account) {
		order, err := orderOf(ctx, book, sale.Subscription, payment.Order{Account: sale.Account, Product: sale.Product, Price: price, Currency: sale.Currency})
		if err != nil {
			return holdfast.Outcome{}, err
		}
		sold.Order = order
		// A subscription keeps the price that it began with, whatever the catalog says since.
		sold.Pay.Agreed = sold.Pay.Agreed || sale.Price == order.Price && sale.Currency == order.Currency
	}
	outcome, err := book.Sell(ctx, sold)
	if err != nil {
		return outcome, err
	}
	for _, name := range sale.Names {
		if err := book.Names(ctx, sale.ID, name); err != nil {
			return outcome, err
		}
	}
	return outcome, nil
}

func orElse(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

// priceOf is what the catalog says; -1: it has no such price.
func priceOf(book *payment.Book, name, currency string) holdfast.Amount {
	if product, ok := book.Accounts.Catalog(book.Project).Product(name); ok {
		for _, money := range product.Prices {
			if money.Currency == currency {
				return money.Amount
			}
		}
	}
	return -1
}

// orderOf is the order of a subscription and the product that it is for now; it is made where it is not known.
func orderOf(ctx context.Context, book *payment.Book, subscription string, agreed payment.Order) (*payment.Order, error) {
	reference := subscription + " " + agreed.Product
	agreed.OrderName, agreed.Recurring, agreed.CreatedAt = book.Name(reference), true, book.Accounts.Now()
	if err := book.Keep(ctx, agreed); err != nil {
		return nil, err
	}
	order, err := book.Find(ctx, reference)
	if err == nil && order == nil {
		err = errors.New("an order that was kept is not there")
	}
	return order, err
}

// never is later than anything that Stripe tells: what was told as of then is final.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// subscribed keeps whether a subscription is charged again. What is paid stays in any case.
func (w *Webhook) subscribed(ctx context.Context, s *stripe.Subscription, at time.Time) error {
	account, product := s.Metadata[MetadataAccount], s.Metadata[MetadataProduct]
	if !holdfast.ValidName(account) {
		return nil // its payments are flagged
	}
	agreed := payment.Order{Account: account, Product: product, Currency: currency(s.Currency)}
	agreed.Price = priceOf(w.Book, product, agreed.Currency)
	order, err := orderOf(ctx, w.Book, s.ID, agreed)
	if err != nil {
		return err
	}
	cancelled, final := ends(s)
	if final {
		at = never
	}
	_, err = w.Book.Tell(ctx, order, cancelled, at, "")
	return err
}

func (w *Webhook) refunded(ctx context.Context, refund *Refund) error {
	if refund == nil {
		return nil
	}
	_, _, err := giveBack(ctx, w.Book, refund)
	return err
}

func giveBack(ctx context.Context, book *payment.Book, refund *Refund) (outcome holdfast.Outcome, pending bool, err error) {
	if refund.Payment == "" {
		return outcome, false, fmt.Errorf("refund %s names no payment", refund.ID)
	}
	return book.RefundNamed(ctx, refund.Payment, holdfast.PaymentRefund{ID: refund.ID, Amount: refund.Amount, Dispute: refund.Dispute})
}

// chargeRefunded applies what charge.refunded tells. It has the sum of all refunds and not their ids, so that two of them
// that come in another order cannot be told apart; each refund has an event of its own, which does it. Where all of the charge
// was refunded, all that is left of the payment is.
func (w *Webhook) chargeRefunded(ctx context.Context, c *stripe.Charge) error {
	name := paymentOf(c.PaymentIntent, c)
	if !c.Refunded {
		if w.Refunds == nil {
			return nil
		}
		refunds, err := w.Refunds.RefundsOf(ctx, c.ID)
		if err != nil {
			return err
		}
		for i := range refunds {
			if err := w.refunded(ctx, &refunds[i]); err != nil {
				return err
			}
		}
		return nil
	}
	paymentID, err := w.Book.Named(ctx, name)
	if err != nil {
		return err
	}
	paid, err := w.Book.Payment(ctx, paymentID)
	if err != nil {
		return err
	}
	if paid != nil && paid.Amount != holdfast.Amount(c.Amount) {
		return nil // an invoice that was paid by several charges: the refunds' own events tell
	}
	return w.refunded(ctx, &Refund{ID: c.ID, Payment: name})
}
