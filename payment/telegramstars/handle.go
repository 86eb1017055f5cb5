package telegramstars

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
)

// Kind says what an update came to.
type Kind string

// The kinds.
const (
	Ignored       Kind = "ignored"        // it is not about payments, or about a subscription of which nothing is known here
	Paid          Kind = "paid"           // Result.Payment says whether it was granted or flagged
	Refunded      Kind = "refunded"       // the payment was refunded
	RefundPending Kind = "refund_pending" // its payment is not known yet; the refund waits for it
	Cancelled     Kind = "cancelled"      // the subscription ends with what is paid
	Resumed       Kind = "resumed"        // the subscription is charged again
	RenewalFailed Kind = "renewal_failed" // nothing changes before the end of what is paid, and of the grace behind it
)

// Result is what an update came to.
type Result struct {
	Kind    Kind
	Account string            // whose; empty: not known
	Changed bool              // false: it was known before
	Payment *holdfast.Payment // of Paid and Refunded
	// Actions are to be done at Telegram at least once. They are returned again until Done is told or Telegram says that the
	// subscription is cancelled.
	Actions []Action
}

// errNoPayment is the cause where an update tells of a payment without saying which.
var errNoPayment = errors.New("an update tells of a payment without telegram_payment_charge_id")

// Handle takes an update that tells of a payment, a refund or a subscription. Everybody else's and pre-checkout queries are
// Ignored. It may be repeated, and come in any order: payments and refunds have ids of their own, and a subscription update
// counts once for its update_id. Two different subscription updates of one user have to come in their order, since nothing in
// them tells it.
//
// An error says that it was not stored, or that this is not known: let Telegram tell it again.
func (s *Stars) Handle(ctx context.Context, update Update) (Result, error) {
	switch m := update.Message; {
	case m != nil && m.SuccessfulPayment != nil:
		return s.take(ctx, saleOf(m))
	case m != nil && m.RefundedPayment != nil:
		return s.giveBack(ctx, m.RefundedPayment.TelegramPaymentChargeID)
	case update.Subscription != nil:
		return s.tell(ctx, update.ID, update.Subscription)
	}
	return Result{Kind: Ignored}, nil
}

// sale is a payment, told by an update or found in the list of transactions.
type sale struct {
	user     int64 // 0: not told
	payload  string
	charge   string
	currency string
	amount   holdfast.Amount
	at       time.Time // zero: not told
	until    time.Time // of a subscription
	first    bool      // of an order
}

func saleOf(m *Message) sale {
	p := m.SuccessfulPayment
	paid := sale{
		payload: p.InvoicePayload, charge: p.TelegramPaymentChargeID, currency: p.Currency, amount: p.TotalAmount,
		at: moment(m.Date), until: moment(p.SubscriptionExpirationDate), first: p.IsFirstRecurring || !p.IsRecurring,
	}
	if m.From != nil {
		paid.user = m.From.ID
	}
	return paid
}

// take grants what was paid for, or keeps the payment flagged. Whoever pays for another person's order is kept as its payer:
// nothing is granted for it, and an operator is told.
func (s *Stars) take(ctx context.Context, paid sale) (Result, error) {
	if paid.charge == "" {
		return Result{}, errNoPayment
	}
	order, err := s.find(ctx, paid.payload)
	if err != nil {
		return Result{}, err
	}
	sold := s.sold(paid)
	sold.Order = order
	switch {
	case order == nil: // an order that was not made here, or is lost
		sold.Pay.Product = payment.NoProduct
	case paid.user == 0:
		sold.Account = order.Account
	default:
		same, err := s.Book.SamePerson(ctx, order.Account, sold.Account)
		if err != nil {
			return Result{}, err
		}
		if same {
			sold.Account = order.Account
		} else {
			sold.Order, sold.Pay.Product = nil, payment.AnothersOrder
		}
	}
	if sold.Order != nil {
		sold.Pay.Product = order.Product
		sold.Pay.Agreed = paid.amount == order.Price && paid.currency == order.Currency
	}
	outcome, err := s.Book.Sell(ctx, sold)
	if err != nil {
		return Result{}, err
	}
	result := Result{Kind: Paid, Account: sold.Account, Changed: outcome.Changed, Payment: outcome.Payment}
	switch {
	case order == nil || !order.Recurring:
	case sold.Order == nil && paid.first: // nothing is granted for it, so it should not be charged again
		result.Actions = []Action{{Kind: CancelSubscription, User: paid.user, ChargeID: paid.charge}}
	case outcome.Payment.State == holdfast.PaymentGranted:
		result.Actions, err = s.superseded(ctx, order.Account)
	}
	return result, err
}

// sold is the payment as the payer's own.
func (s *Stars) sold(paid sale) payment.Sale {
	if paid.at.IsZero() {
		paid.at = s.Book.Accounts.Now()
	}
	return payment.Sale{
		Account: s.accountOf(paid.user), First: paid.first, Payer: strconv.FormatInt(paid.user, 10), PaidAt: paid.at,
		Pay: holdfast.Pay{PaymentID: paid.charge, Amount: paid.amount, Currency: paid.currency, PeriodEnd: paid.until},
	}
}

// giveBack applies the refund of a whole payment. The refund has the id of the payment, in Telegram's list too.
func (s *Stars) giveBack(ctx context.Context, charge string) (Result, error) {
	if charge == "" {
		return Result{}, errNoPayment
	}
	outcome, pending, err := s.Book.Refund(ctx, charge, holdfast.PaymentRefund{ID: charge})
	if err != nil {
		return Result{}, err
	}
	result := Result{Kind: Refunded, Account: outcome.Owner.Name, Changed: outcome.Changed, Payment: outcome.Payment}
	if pending {
		result.Kind = RefundPending
	}
	return result, nil
}

// tell keeps what Telegram says of a subscription. The quota stays in every case: it was paid for.
func (s *Stars) tell(ctx context.Context, updateID int64, told *SubscriptionUpdated) (Result, error) {
	order, err := s.find(ctx, told.InvoicePayload)
	if err != nil || order == nil {
		return Result{Kind: Ignored}, err
	}
	same, err := s.Book.SamePerson(ctx, order.Account, s.accountOf(told.User.ID))
	if err != nil || !same {
		return Result{Kind: Ignored}, err
	}
	result := Result{Account: order.Account}
	switch told.State {
	case StateCanceled:
		result.Kind = Cancelled
	case StateActive:
		result.Kind = Resumed
	case StateFailed:
		result.Kind = RenewalFailed
		return result, nil
	default:
		return Result{Kind: Ignored}, nil
	}
	key := ""
	if updateID != 0 {
		key = fmt.Sprintf("%s %s update %d", s.Book.Provider, s.Bot, updateID)
	}
	became, err := s.Book.Tell(ctx, order, told.State == StateCanceled, s.Book.Accounts.Now(), key)
	result.Changed = became != payment.Unchanged
	return result, err
}
