package stripe

import (
	"slices"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v84"

	"github.com/holdfast-dev/holdfast"
)

// cycles are the reasons of invoices that can pay for a period of a subscription.
var cycles = []stripe.InvoiceBillingReason{
	stripe.InvoiceBillingReasonSubscriptionCreate, stripe.InvoiceBillingReasonSubscriptionCycle, stripe.InvoiceBillingReasonSubscriptionUpdate,
}

// saleOfInvoice is what a paid invoice was for. It is nil where no period was paid for in full: a proration, which changes
// what a running period costs, a trial that costs nothing, or an invoice of something else.
func saleOfInvoice(invoice *stripe.Invoice) *Sale {
	if !slices.Contains(cycles, invoice.BillingReason) || invoice.Parent == nil || invoice.Parent.SubscriptionDetails == nil {
		return nil
	}
	line := periodLine(invoice)
	if line == nil || line.Amount == 0 {
		return nil
	}
	details := invoice.Parent.SubscriptionDetails
	sale := &Sale{
		ID: invoice.ID, First: invoice.BillingReason == stripe.InvoiceBillingReasonSubscriptionCreate,
		Account: details.Metadata[MetadataAccount], Product: details.Metadata[MetadataProduct],
		Amount: holdfast.Amount(invoice.AmountPaid), Currency: currency(invoice.Currency), Price: holdfast.Amount(line.Amount),
		Until: moment(line.Period.End), PaidAt: moment(invoice.Created),
	}
	if details.Subscription != nil {
		sale.Subscription = details.Subscription.ID
	}
	if invoice.Customer != nil {
		sale.Customer = invoice.Customer.ID
	}
	if t := invoice.StatusTransitions; t != nil && t.PaidAt > 0 {
		sale.PaidAt = moment(t.PaidAt)
	}
	if invoice.Payments != nil {
		for _, p := range invoice.Payments.Data {
			if p.Payment != nil && p.Payment.PaymentIntent != nil {
				sale.Names = append(sale.Names, p.Payment.PaymentIntent.ID)
			}
		}
	}
	return sale
}

// periodLine is the line that pays for a whole period; of several, the one that ends last.
func periodLine(invoice *stripe.Invoice) (found *stripe.InvoiceLineItem) {
	if invoice.Lines == nil {
		return nil
	}
	for _, line := range invoice.Lines.Data {
		if line.Parent == nil || line.Parent.SubscriptionItemDetails == nil || line.Parent.SubscriptionItemDetails.Proration || line.Period == nil {
			continue
		}
		if found == nil || line.Period.End > found.Period.End {
			found = line
		}
	}
	return found
}

// saleOfSession is what a checkout was for that was paid at once; nil: it is not paid, or it began a subscription, whose
// invoices tell what was paid.
func saleOfSession(session *stripe.CheckoutSession) *Sale {
	if session.Mode != stripe.CheckoutSessionModePayment || session.PaymentStatus == stripe.CheckoutSessionPaymentStatusUnpaid {
		return nil
	}
	sale := &Sale{
		ID: session.ID, Account: session.Metadata[MetadataAccount], Product: session.Metadata[MetadataProduct],
		Amount: holdfast.Amount(session.AmountTotal), Currency: currency(session.Currency), Price: holdfast.Amount(session.AmountSubtotal),
		PaidAt: moment(session.Created),
	}
	if session.PaymentIntent != nil {
		sale.ID = session.PaymentIntent.ID
	}
	if session.Customer != nil {
		sale.Customer = session.Customer.ID
	}
	return sale
}

// refundOf is a refund that has succeeded; nil: it has not, yet or at all.
func refundOf(r *stripe.Refund) *Refund {
	if r.Status != stripe.RefundStatusSucceeded || r.Amount <= 0 {
		return nil
	}
	amount := holdfast.Amount(r.Amount)
	return &Refund{ID: r.ID, Amount: &amount, Payment: paymentOf(r.PaymentIntent, r.Charge)}
}

// disputeOf is a dispute that took the money back; nil: the bank only asks, or it was decided for the seller.
func disputeOf(d *stripe.Dispute) *Refund {
	taken := []stripe.DisputeStatus{stripe.DisputeStatusNeedsResponse, stripe.DisputeStatusUnderReview, stripe.DisputeStatusLost}
	if !slices.Contains(taken, d.Status) || d.Amount <= 0 {
		return nil
	}
	amount := holdfast.Amount(d.Amount)
	return &Refund{ID: d.ID, Amount: &amount, Payment: paymentOf(d.PaymentIntent, d.Charge), Dispute: true}
}

func paymentOf(intent *stripe.PaymentIntent, charge *stripe.Charge) string {
	switch {
	case intent != nil:
		return intent.ID
	case charge != nil:
		return charge.ID
	}
	return ""
}

// ends reports whether the subscription will not be charged again, and whether that is final.
func ends(s *stripe.Subscription) (cancelled, final bool) {
	final = s.Status == stripe.SubscriptionStatusCanceled || s.Status == stripe.SubscriptionStatusIncompleteExpired
	return final || s.CancelAtPeriodEnd || s.CancelAt > 0, final
}

func currency(c stripe.Currency) string { return strings.ToUpper(string(c)) }

// moment is a time of Stripe's; 0 is the zero time.
func moment(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
