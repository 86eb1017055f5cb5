package telegramstars

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
)

// ActionKind says what is to be done at Telegram.
type ActionKind string

// CancelSubscription stops the extension of a user's subscription (editUserStarSubscription with is_canceled true). What is
// paid of it stays.
const CancelSubscription ActionKind = "cancel_subscription"

// Action is something that follows from an update and has to be done at Telegram, at least once: doing it again changes
// nothing. Its JSON is made to be kept until then.
type Action struct {
	Kind     ActionKind `json:"kind"`
	User     int64      `json:"user"`
	ChargeID string     `json:"charge_id"`         // of the first payment of the subscription: Telegram knows it by that one
	Payload  string     `json:"payload,omitempty"` // of its invoice, where it was this person's
}

// Key is the same for the same action, so that it is kept once.
func (a Action) Key() string { return string(a.Kind) + ":" + a.ChargeID }

// Call is the method of the Bot API that does an action, and its parameters.
func (a Action) Call() (method string, parameters map[string]any) {
	return "editUserStarSubscription", map[string]any{"user_id": a.User, "telegram_payment_charge_id": a.ChargeID, "is_canceled": true}
}

// Encode writes an action as one word, for whoever hands it on and gets it back: DecodeAction reads it.
func (a Action) Encode() string {
	written, _ := json.Marshal(a) // texts and numbers always are JSON
	return base64.RawURLEncoding.EncodeToString(written)
}

// DecodeAction reads what Encode has written, and nothing else.
func DecodeAction(text string) (Action, error) {
	var a Action
	written, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err == nil {
		err = json.Unmarshal(written, &a)
	}
	if err != nil || a.Kind != CancelSubscription || a.Encode() != text {
		return Action{}, errors.New("this is no action")
	}
	return a, nil
}

// Done notes that Telegram has accepted an action, so that it is not asked for again. An action of another bot's order, and
// one that is of none, notes nothing.
func (s *Stars) Done(ctx context.Context, action Action) error {
	order, err := s.find(ctx, action.Payload)
	if err != nil || order == nil {
		return err
	}
	if err := s.Book.Orders.TellOrder(ctx, s.Book.Name(action.Payload), true, s.Book.Accounts.Now()); err != nil {
		return s.Book.Unavailable(err)
	}
	return nil
}

// subscribed is a subscription at Telegram and the plan that it is for.
type subscribed struct {
	order payment.Order
	plan  string
}

// recurring are the subscriptions of an account to plans that are sold, the latest first.
func (s *Stars) recurring(ctx context.Context, account string) (found []subscribed, err error) {
	orders, err := s.Book.Orders.RecurringOrders(ctx, s.Book.Project, s.Book.Provider, account)
	if err != nil {
		return nil, s.Book.Unavailable(err)
	}
	catalog := s.Book.Accounts.Catalog(s.Book.Project)
	for _, order := range orders {
		if product, ok := catalog.Product(order.Product); ok && product.Plan != "" && order.Seller == s.Bot {
			found = append(found, subscribed{order, product.Plan})
		}
	}
	return found, nil
}

// superseded are the subscriptions that Telegram would go on charging although the person has begun another one since: the
// plan changed, and a person pays for one.
func (s *Stars) superseded(ctx context.Context, account string) (actions []Action, err error) {
	all, err := s.recurring(ctx, account)
	if err != nil {
		return nil, err
	}
	for i, latest := range all {
		if latest.order.Payment == "" {
			continue
		}
		paid, err := s.Book.Payment(ctx, latest.order.Payment)
		if err != nil {
			return nil, err
		}
		if paid == nil || paid.State != holdfast.PaymentGranted || paid.Refunded == paid.Amount {
			continue // it brought nothing, so it has taken nobody's place
		}
		for _, older := range all[i+1:] {
			if user, err := strconv.ParseInt(older.order.Payer, 10, 64); err == nil && !older.order.Cancelled {
				actions = append(actions, Action{CancelSubscription, user, older.order.Payment, older.order.Reference})
			}
		}
		return actions, nil
	}
	return nil, nil
}
