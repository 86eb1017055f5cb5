package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/apitest"
)

var sellingBot = client.TelegramBot{ID: "7000001"}

func preCheckout(user int64, payload string, stars int) []byte {
	return fmt.Appendf(nil, `{"update_id": 5, "pre_checkout_query": {"id": "q1", "from": {"id": %d, "first_name": "A", "language_code": "ru"}, "currency": "XTR", "total_amount": %d, "invoice_payload": %q}}`, user, stars, payload)
}

func successfulPayment(at int64, user int64, payload, charge string, stars int, more string) []byte {
	return fmt.Appendf(nil, `{"update_id": 6, "message": {"message_id": 1, "date": %d, "from": {"id": %d, "first_name": "A"}, "chat": {"id": 42, "type": "private"},
		"successful_payment": {"currency": "XTR", "total_amount": %d, "invoice_payload": %q, "telegram_payment_charge_id": %q, "provider_payment_charge_id": ""%s}}}`, at, user, stars, payload, charge, more)
}

func told(t *testing.T, c *client.Client, raw []byte) *client.TelegramUpdate {
	t.Helper()
	update, err := c.TelegramUpdate(t.Context(), sellingBot, raw)
	if err != nil {
		t.Fatal(err)
	}
	return update
}

func TestABotThatKeepsItsTokenSellsOverTheAPI(t *testing.T) {
	s, c := serve(t)
	order, err := c.TelegramOrder(t.Context(), sellingBot, client.TelegramWanted{Account: "telegram:42", Product: "images_10"})
	if err != nil || order.Amount != 50 || order.Account != "telegram:42" || order.Product != "images_10" || order.Recurring || order.CreatedAt.IsZero() || order.Call.Method != "createInvoiceLink" {
		t.Fatalf("%+v %v", order, err)
	}
	var invoice struct {
		Payload, Currency string
		Prices            []struct{ Amount int }
	}
	if err := json.Unmarshal(order.Call.Parameters, &invoice); err != nil || invoice.Payload != order.Payload || invoice.Currency != "XTR" || invoice.Prices[0].Amount != 50 {
		t.Errorf("%s %v", order.Call.Parameters, err)
	}
	asked := told(t, c, preCheckout(42, order.Payload, 50))
	if asked.Kind != "pre_checkout" || asked.Reason != "" || asked.Failed != nil || asked.Account != "telegram:42" || len(asked.Calls) != 1 || asked.Calls[0].Method != "answerPreCheckoutQuery" {
		t.Errorf("%+v", asked)
	}
	if no := told(t, c, preCheckout(43, order.Payload, 50)); no.Reason != "wrong_person" || no.Failed != nil {
		t.Errorf("%+v", no)
	}
	for i := range 2 {
		paid := told(t, c, successfulPayment(time.Now().Unix(), 42, order.Payload, "c1", 50, ""))
		if paid.Kind != "paid" || paid.Changed != (i == 0) || paid.Payment == nil || paid.Payment.State != holdfast.PaymentGranted || paid.Payment.Owner.Name != "telegram:42" || len(paid.Calls) != 0 {
			t.Errorf("%+v", paid)
		}
	}
	view, err := s.Engine.View(t.Context(), apitest.Project, "telegram:42")
	if err != nil || !view.Exists || view.Balances[1].Unit != "image" || view.Balances[1].Available != 10 {
		t.Errorf("%+v %v", view, err)
	}
	if ignored := told(t, c, []byte(`{"update_id": 7, "message": {"text": "hello"}}`)); ignored.Kind != "ignored" || ignored.Payment != nil {
		t.Errorf("%+v", ignored)
	}
}

func TestWhatFollowsFromAnUpgradeIsCalledAndToldOnce(t *testing.T) {
	_, c := serve(t)
	subscribe := func(product, charge string, stars int, at time.Time) *client.TelegramUpdate {
		order, err := c.TelegramOrder(t.Context(), sellingBot, client.TelegramWanted{Account: "telegram:42", Product: product, Recurring: true})
		if err != nil {
			t.Fatal(err)
		}
		until := fmt.Sprintf(`, "is_recurring": true, "is_first_recurring": true, "subscription_expiration_date": %d`, at.AddDate(0, 0, 30).Unix())
		return told(t, c, successfulPayment(at.Unix(), 42, order.Payload, charge, stars, until))
	}
	subscribe("basic_30", "c1", 100, time.Now().Add(-time.Hour))
	upgraded := subscribe("max_30", "c2", 250, time.Now())
	if len(upgraded.Calls) != 1 || upgraded.Calls[0].Method != "editUserStarSubscription" || upgraded.Calls[0].Action == "" || string(upgraded.Calls[0].Parameters) != `{"is_canceled":true,"telegram_payment_charge_id":"c1","user_id":42}` {
		t.Fatalf("%+v", upgraded.Calls)
	}
	for range 2 {
		if err := c.TelegramDone(t.Context(), sellingBot, upgraded.Calls[0].Action); err != nil {
			t.Fatal(err)
		}
	}
	var no *engine.Refused
	if err := c.TelegramDone(t.Context(), sellingBot, "nonsense"); !errors.As(err, &no) || no.Outcome.Problems[0].Field != "action" {
		t.Errorf("%v", err)
	}
	if _, err := c.TelegramOrder(t.Context(), sellingBot, client.TelegramWanted{Account: "telegram:42", Product: "images_10", Recurring: true}); !errors.As(err, &no) || no.Outcome.Reason != holdfast.Invalid || no.Outcome.Problems[0].Field != "recurring" {
		t.Errorf("%v", err)
	}
	if _, err := c.TelegramUpdate(t.Context(), sellingBot, []byte(`{`)); !errors.As(err, &no) || no.Outcome.Reason != holdfast.Invalid {
		t.Errorf("%v", err)
	}
	if _, err := c.TelegramUpdate(t.Context(), client.TelegramBot{ID: "7000001:secret"}, []byte(`{"update_id": 1}`)); !errors.As(err, &no) || no.Outcome.Problems[0].Field != "bot" {
		t.Errorf("%v", err)
	}
	// A second bot's orders are its own.
	second := client.TelegramBot{ID: "7000002", Provider: "telegram_stars.7000002"}
	order, err := c.TelegramOrder(t.Context(), second, client.TelegramWanted{Account: "telegram:42", Product: "images_10"})
	if err != nil {
		t.Fatal(err)
	}
	if no := told(t, c, preCheckout(42, order.Payload, 50)); no.Reason != "order_unknown" {
		t.Errorf("%+v", no)
	}
}

// failsClosed checks that a payment is stopped.
func failsClosed(t *testing.T, what string, update *client.TelegramUpdate, err error) {
	t.Helper()
	if err != nil || update.Kind != "pre_checkout" || update.Reason != "try_again" || update.Failed == nil || len(update.Calls) != 1 || update.Calls[0].Method != "answerPreCheckoutQuery" {
		t.Errorf("%s: %+v %v", what, update, err)
		return
	}
	var answer struct {
		ID      string `json:"pre_checkout_query_id"`
		OK      *bool
		Message string `json:"error_message"`
	}
	if err := json.Unmarshal(update.Calls[0].Parameters, &answer); err != nil || answer.ID != "q1" || answer.OK == nil || *answer.OK || answer.Message == "" {
		t.Errorf("%s: %s %v", what, update.Calls[0].Parameters, err)
	}
}

func TestAPaymentIsStoppedWhereTheServerCannotBeAsked(t *testing.T) {
	for name, address := range map[string]string{
		"nobody listens": closedPort(t),
		"a gateway":      first(answers(t, answer(http.StatusBadGateway, "<html>"))),
		"no key":         first(answers(t, answer(http.StatusUnauthorized, ""))),
		"too many":       first(answers(t, answer(http.StatusTooManyRequests, "", "Retry-After", "60"))),
		"not Holdfast":   first(answers(t, answer(http.StatusOK, `{"kind": "pre_checkout"}`))),
		"no JSON":        first(answers(t, answer(http.StatusOK, `yes`))),
	} {
		c := dial(t, address, func(o *client.Options) { o.RetryFor = -1 })
		update, err := c.TelegramUpdate(t.Context(), sellingBot, preCheckout(42, "x", 50))
		failsClosed(t, name, update, err)
		// What was paid is told again.
		if _, err := c.TelegramUpdate(t.Context(), sellingBot, successfulPayment(1, 42, "x", "c1", 50, "")); err == nil && name != "not Holdfast" {
			t.Errorf("%s: a payment counts as taken", name)
		}
	}
}

func first(address string, _ func() []*http.Request) string { return address }

// hangs is a server that takes a request and never answers.
type hangs struct{}

func (hangs) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestAPaymentIsStoppedWithinFiveSecondsByAServerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := client.New("http://127.0.0.1:1", apitest.Key, client.Options{Transport: hangs{}})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		update, err := c.TelegramUpdate(context.Background(), sellingBot, preCheckout(42, "x", 50))
		failsClosed(t, "hangs", update, err)
		if took := time.Since(began); took != 5*time.Second {
			t.Errorf("answered after %v", took)
		}
	})
}
