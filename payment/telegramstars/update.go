package telegramstars

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Update is an update of the Bot API, as far as it is about payments. Fields that are not named here are passed over, so
// the raw JSON of any update can be read.
type Update struct {
	ID           int64                `json:"update_id"`
	Message      *Message             `json:"message,omitempty"`
	PreCheckout  *PreCheckoutQuery    `json:"pre_checkout_query,omitempty"`
	Subscription *SubscriptionUpdated `json:"subscription,omitempty"`
}

// User is a Telegram user.
type User struct {
	ID           int64  `json:"id"`
	LanguageCode string `json:"language_code,omitempty"` // an IETF tag; may be empty
}

// Message is a message; those that matter here tell of a payment or of a refund.
type Message struct {
	From              *User              `json:"from,omitempty"`
	Date              int64              `json:"date"` // seconds since 1970
	SuccessfulPayment *SuccessfulPayment `json:"successful_payment,omitempty"`
	RefundedPayment   *RefundedPayment   `json:"refunded_payment,omitempty"`
}

// PreCheckoutQuery asks whether a payment may go on.
type PreCheckoutQuery struct {
	ID             string          `json:"id"`
	From           User            `json:"from"`
	Currency       string          `json:"currency"`
	TotalAmount    holdfast.Amount `json:"total_amount"`
	InvoicePayload string          `json:"invoice_payload"`
}

// SuccessfulPayment tells of a payment: the first of an order, or a renewal, which has a charge id of its own.
type SuccessfulPayment struct {
	Currency                   string          `json:"currency"`
	TotalAmount                holdfast.Amount `json:"total_amount"`
	InvoicePayload             string          `json:"invoice_payload"`
	SubscriptionExpirationDate int64           `json:"subscription_expiration_date,omitempty"`
	IsRecurring                bool            `json:"is_recurring,omitempty"`
	IsFirstRecurring           bool            `json:"is_first_recurring,omitempty"`
	TelegramPaymentChargeID    string          `json:"telegram_payment_charge_id"`
}

// RefundedPayment tells of the refund of a whole payment: there are no others for Stars.
type RefundedPayment struct {
	Currency                string          `json:"currency"`
	TotalAmount             holdfast.Amount `json:"total_amount"`
	InvoicePayload          string          `json:"invoice_payload"`
	TelegramPaymentChargeID string          `json:"telegram_payment_charge_id"`
}

// SubscriptionUpdated tells what became of a subscription, which its payload names: there is no charge id in it.
type SubscriptionUpdated struct {
	User           User   `json:"user"`
	InvoicePayload string `json:"invoice_payload"`
	State          State  `json:"state"`
}

// State is a subscription's.
type State string

// The states.
const (
	StateCanceled State = "canceled" // it ends with what is paid
	StateActive   State = "active"   // the user has taken that back
	StateFailed   State = "failed"   // a renewal could not be paid
)

// Decode reads the raw JSON of an update.
func Decode(raw []byte) (Update, error) {
	var u Update
	if err := json.Unmarshal(raw, &u); err != nil {
		return Update{}, fmt.Errorf("read an update: %w", err)
	}
	return u, nil
}

// moment is a time of the Bot API; 0 is the zero time.
func moment(seconds int64) time.Time {
	if seconds == 0 {
		return time.Time{}
	}
	return time.Unix(seconds, 0).UTC()
}
