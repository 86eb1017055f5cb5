package telegramstars

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
)

// Lister reads the bot's transactions, in the order of time, as getStarTransactions does: at most limit, behind the first
// offset ones.
type Lister interface {
	StarTransactions(ctx context.Context, offset, limit int) ([]Transaction, error)
}

// TransactionPage is how many transactions are asked for at once: Telegram's most.
const TransactionPage = 100

// Transaction is one of the bot's transactions. A payment has the id that is its telegram_payment_charge_id, and its refund
// has the same.
type Transaction struct {
	ID       string          `json:"id"`
	Amount   holdfast.Amount `json:"amount"`
	Date     int64           `json:"date"`
	Source   *Partner        `json:"source,omitempty"`   // of what came in
	Receiver *Partner        `json:"receiver,omitempty"` // of what went out
}

// Partner is the other side of a transaction.
type Partner struct {
	Type               string     `json:"type"`
	TransactionType    string     `json:"transaction_type,omitempty"`
	User               *User      `json:"user,omitempty"`
	InvoicePayload     string     `json:"invoice_payload,omitempty"`
	SubscriptionPeriod int64      `json:"subscription_period,omitempty"` // seconds
	Affiliate          *Affiliate `json:"affiliate,omitempty"`
}

// Affiliate has received a part of what the user paid, so that the transaction's amount is less than the price.
type Affiliate struct {
	CommissionPerMille int64 `json:"commission_per_mille"`
}

// invoice reports whether the partner has paid an invoice, or is given that payment back.
func (p *Partner) invoice() bool {
	return p != nil && p.Type == "user" && (p.TransactionType == "invoice_payment" || p.TransactionType == "" && p.InvoicePayload != "")
}

// Reconcile compares all of the bot's transactions with what is here. What was paid there and is missing here is granted, and
// what was refunded there and not here is applied, each once, also beside updates that come in meanwhile. What is here and
// not there is reported and left as it is. Telegram keeps updates for a day: after a longer outage nothing else tells.
func (s *Stars) Reconcile(ctx context.Context, lister Lister) (payment.Reconciled, []Action, error) {
	var found payment.Reconciled
	var actions []Action
	asked := s.Book.Accounts.Now()
	known := map[string]bool{}
	for offset := 0; ; {
		page, err := lister.StarTransactions(ctx, offset, TransactionPage)
		if err != nil {
			return found, actions, err
		}
		for i := range page {
			t := &page[i]
			switch {
			case t.Source.invoice():
				known[t.ID] = true
				more, err := s.reconcilePaid(ctx, t, &found)
				if err != nil {
					return found, actions, err
				}
				actions = append(actions, more...)
			case t.Receiver.invoice():
				if err := s.reconcileRefunded(ctx, t, &found); err != nil {
					return found, actions, err
				}
			}
		}
		offset += len(page)
		if len(page) < TransactionPage {
			break
		}
	}
	var err error
	found.Missing, err = s.Book.NotThere(ctx, known, time.Time{}, asked)
	return found, actions, err
}

func (s *Stars) reconcilePaid(ctx context.Context, t *Transaction, found *payment.Reconciled) ([]Action, error) {
	here, err := s.Book.Payment(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	if here != nil {
		found.Already++
		return nil, nil
	}
	paid := sale{
		payload: t.Source.InvoicePayload, charge: t.ID, currency: Currency, amount: t.Amount, at: moment(t.Date), first: true,
	}
	if t.Source.User != nil {
		paid.user = t.Source.User.ID
	}
	if t.Source.SubscriptionPeriod > 0 {
		paid.until = paid.at.Add(time.Duration(t.Source.SubscriptionPeriod) * time.Second)
	}
	if t.Source.Affiliate != nil {
		order, err := s.find(ctx, paid.payload)
		if err != nil {
			return nil, err
		}
		if order != nil && order.Price > t.Amount {
			paid.amount = order.Price // the list has what was left of it
		}
	}
	result, err := s.take(ctx, paid)
	if err != nil {
		return nil, err
	}
	switch {
	case !result.Changed: // an update was faster
		found.Already++
	case result.Payment.State == holdfast.PaymentGranted:
		found.Granted = append(found.Granted, t.ID)
	default:
		found.Flagged = append(found.Flagged, t.ID)
	}
	return result.Actions, nil
}

func (s *Stars) reconcileRefunded(ctx context.Context, t *Transaction, found *payment.Reconciled) error {
	result, err := s.giveBack(ctx, t.ID)
	if err != nil {
		return err
	}
	if result.Changed || result.Kind == RefundPending {
		found.Refunded = append(found.Refunded, t.ID)
	}
	return nil
}
