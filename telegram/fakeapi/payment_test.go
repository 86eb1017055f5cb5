package fakeapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

func row(text, data string) []models.InlineKeyboardButton {
	return []models.InlineKeyboardButton{{Text: text, CallbackData: data}}
}

// seller has a bot that answers pre-checkout queries: it approves what is not in refusals, by payload.
func seller(t *testing.T, refusals map[string]string) *world {
	t.Helper()
	w := newWorld(t)
	w.approves(refusals)
	return w
}

func (w *world) approves(refusals map[string]string) {
	w.Helper()
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var u models.Update
		if err := json.NewDecoder(r.Body).Decode(&u); err != nil {
			w.Error(err)
		}
		if q := u.PreCheckoutQuery; q != nil {
			message := refusals[q.InvoicePayload]
			if _, err := w.client.AnswerPreCheckoutQuery(context.WithoutCancel(r.Context()), &bot.AnswerPreCheckoutQueryParams{PreCheckoutQueryID: q.ID, OK: message == "", ErrorMessage: message}); err != nil {
				w.Errorf("answer %s: %v", q.InvoicePayload, err)
			}
		}
	})
	code, answer := w.post("setWebhook", "application/json", `{"url":"`+serve(w.T, handler)+`"}`)
	if code != http.StatusOK {
		w.Fatal(answer)
	}
}

func (w *world) link(payload string, stars, period int) string {
	w.Helper()
	link, err := w.client.CreateInvoiceLink(w.Context(), &bot.CreateInvoiceLinkParams{
		Title: "Pro", Description: "A month", Payload: payload, Currency: "XTR", Prices: []models.LabeledPrice{{Label: "Pro", Amount: stars}}, SubscriptionPeriod: period,
	})
	if err != nil {
		w.Fatal(err)
	}
	return link
}

const month = 2592000

// payments are the service messages that the bot was told of.
func (w *world) payments() (paid []*models.SuccessfulPayment, refunds []*models.RefundedPayment) {
	w.Helper()
	for _, told := range w.bot.Updates("message") {
		var u models.Update
		if err := json.Unmarshal(told.Raw, &u); err != nil {
			w.Fatal(err)
		}
		if u.Message.SuccessfulPayment != nil {
			paid = append(paid, u.Message.SuccessfulPayment)
		}
		if u.Message.RefundedPayment != nil {
			refunds = append(refunds, u.Message.RefundedPayment)
		}
	}
	return paid, refunds
}

func (w *world) transactions() []models.StarTransaction {
	w.Helper()
	list, err := w.client.GetStarTransactions(w.Context(), &bot.GetStarTransactionsParams{Limit: 100})
	if err != nil {
		w.Fatal(err)
	}
	return list.Transactions
}

func TestAPaymentAsksTheBotFirstAndIsThenTold(t *testing.T) {
	w := seller(t, nil)
	m, err := w.client.SendInvoice(t.Context(), &bot.SendInvoiceParams{
		ChatID: 42, Title: "100 credits", Description: "For pictures", Payload: "order-1", Currency: "XTR", Prices: []models.LabeledPrice{{Label: "credits", Amount: 100}},
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := w.ann.Last()
	same(t, "button", seen.Keyboard[0][0], fakeapi.Button{Text: "Pay 100 ⭐️", Pay: true})
	same(t, "invoice", seen.Invoice.Stars, 100)
	pay, err := w.ann.Pay(t.Context(), w.ann.Payable(m.ID))
	if err != nil {
		t.Fatal(err)
	}
	paid, _ := w.payments()
	same(t, "told", *paid[0], models.SuccessfulPayment{Currency: "XTR", TotalAmount: 100, InvoicePayload: "order-1", TelegramPaymentChargeID: pay.ChargeID})
	same(t, "seen", w.ann.Last().Payment.ChargeID, pay.ChargeID)
	same(t, "balance", w.bot.Balance(), 100)
	listed := w.transactions()
	same(t, "listed", listed[0].ID, pay.ChargeID)
	same(t, "payload", listed[0].Source.User.InvoicePayload, "order-1")
	query := w.bot.Updates("pre_checkout_query")[0]
	contains(t, "the query", string(query.Raw), `"invoice_payload":"order-1"`)
	// One invoice can be paid again, also by somebody who was not meant.
	bob := w.bot.Person(fakeapi.User{ID: 43})
	again, err := bob.Pay(t.Context(), w.ann.Payable(m.ID))
	if err != nil || again.Payer != 43 || again.ChargeID == pay.ChargeID {
		t.Errorf("%+v, %v", again, err)
	}
	same(t, "bob sees it", bob.Last().Payment.Payload, "order-1")
}

func TestAQueryDoesNotWaitBehindAMessageThatFails(t *testing.T) {
	w := newWorld(t)
	handler := http.HandlerFunc(func(answer http.ResponseWriter, r *http.Request) {
		var u models.Update
		_ = json.NewDecoder(r.Body).Decode(&u)
		if u.PreCheckoutQuery == nil {
			answer.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintf(answer, `{"method":"answerPreCheckoutQuery","pre_checkout_query_id":%q,"ok":true}`, u.PreCheckoutQuery.ID)
	})
	w.post("setWebhook", "application/json", `{"url":"`+serve(t, handler)+`"}`)
	w.ann.Send("poison")
	w.settled()
	if _, err := w.ann.Pay(t.Context(), w.link("order", 5, 0)); err != nil {
		t.Error(err)
	}
}

func TestADeclinedOrUnansweredPaymentChargesNothing(t *testing.T) {
	w := seller(t, map[string]string{"sold out": "Nothing is left"})
	_, err := w.ann.Pay(t.Context(), w.link("sold out", 5, 0))
	var declined *fakeapi.Declined
	if !errors.As(err, &declined) || declined.Message != "Nothing is left" {
		t.Errorf("declined: %v", err)
	}
	w.drained()
	w.post("deleteWebhook", "", "")
	failed := make(chan error, 1)
	link := w.link("order", 5, 0)
	go func() {
		_, err := w.ann.Pay(t.Context(), link)
		failed <- err
	}()
	for len(w.bot.Pending()) == 0 {
		time.Sleep(time.Millisecond)
	}
	w.server.Advance(10 * time.Second)
	if err := <-failed; !errors.As(err, &declined) || declined.Message != "" {
		t.Errorf("unanswered: %v", err)
	}
	var late models.Update
	if err := json.Unmarshal(w.bot.Pending()[0].Raw, &late); err != nil {
		t.Fatal(err)
	}
	_, err = w.client.AnswerPreCheckoutQuery(t.Context(), &bot.AnswerPreCheckoutQueryParams{PreCheckoutQueryID: late.PreCheckoutQuery.ID, OK: true})
	refused(t, err, bot.ErrorBadRequest, "query is too old")
	if _, err := w.ann.Pay(t.Context(), "https://t.me/$nothing"); !errors.Is(err, fakeapi.ErrNoInvoice) {
		t.Errorf("no invoice: %v", err)
	}
	paid, _ := w.payments()
	same(t, "payments", len(paid), 0)
	same(t, "balance", w.bot.Balance(), 0)
}

func TestAnApprovalMayBeChargedTwiceOrNeverAndAChargeMayComeUnasked(t *testing.T) {
	w := seller(t, nil)
	link := w.link("order", 5, 0)
	c, err := w.ann.Checkout(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "approved only", w.bot.Balance(), 0)
	first, second := c.Charge(), c.Charge()
	same(t, "two charges", first.ChargeID != second.ChargeID, true)
	if _, err := w.ann.ChargeUnasked(link); err != nil {
		t.Fatal(err)
	}
	same(t, "balance", w.bot.Balance(), 15)
}

func TestAnInvoiceThatTelegramWouldRefuseIsRefused(t *testing.T) {
	w := newWorld(t)
	valid := map[string]any{"chat_id": 42, "title": "a", "description": "b", "payload": "c", "currency": "XTR", "prices": []any{map[string]any{"label": "d", "amount": 1}}}
	for name, c := range map[string]struct {
		method, field string
		value         any
		description   string
	}{
		"no title":            {"sendInvoice", "title", "", "TITLE"},
		"a long title":        {"sendInvoice", "title", strings.Repeat("я", 33), "TITLE"},
		"a long description":  {"sendInvoice", "description", strings.Repeat("я", 256), "DESCRIPTION"},
		"a long payload":      {"sendInvoice", "payload", strings.Repeat("я", 65), "PAYLOAD"},
		"another currency":    {"sendInvoice", "currency", "EUR", "CURRENCY"},
		"two prices":          {"sendInvoice", "prices", []any{map[string]any{"label": "d", "amount": 1}, map[string]any{"label": "d", "amount": 1}}, "STARS_INVOICE_INVALID"},
		"nothing to pay":      {"sendInvoice", "prices", []any{map[string]any{"label": "d", "amount": 0}}, "AMOUNT"},
		"another button":      {"sendInvoice", "reply_markup", map[string]any{"inline_keyboard": []any{[]any{map[string]any{"text": "a", "callback_data": "b"}}}}, "REPLY_MARKUP_BUY_EMPTY"},
		"a subscription sent": {"sendInvoice", "subscription_period", month, "SUBSCRIPTION_PERIOD_INVALID"},
		"another period":      {"createInvoiceLink", "subscription_period", 86400, "SUBSCRIPTION_PERIOD_INVALID"},
	} {
		asked := map[string]any{}
		for field, value := range valid {
			asked[field] = value
		}
		asked[c.field] = c.value
		body, err := json.Marshal(asked)
		if err != nil {
			t.Fatal(err)
		}
		code, answer := w.post(c.method, "application/json", string(body))
		same(t, name, code, http.StatusBadRequest)
		contains(t, name, answer, c.description)
	}
	_, err := w.client.CreateInvoiceLink(t.Context(), &bot.CreateInvoiceLinkParams{
		Title: "a", Description: "b", Payload: "c", Currency: "XTR", Prices: []models.LabeledPrice{{Label: "d", Amount: 10_001}}, SubscriptionPeriod: month,
	})
	refused(t, err, bot.ErrorBadRequest, "SUBSCRIPTION_PRICE_INVALID")
}

func TestASubscriptionRenewsWhenItsTimeComes(t *testing.T) {
	w := seller(t, nil)
	first, err := w.ann.Pay(t.Context(), w.link("plan", 250, month))
	if err != nil {
		t.Fatal(err)
	}
	w.server.Advance(65 * 24 * time.Hour)
	w.drained()
	paid, _ := w.payments()
	same(t, "payments", len(paid), 3)
	charges := map[string]bool{}
	for i, p := range paid {
		same(t, "recurring", p.IsRecurring, true)
		same(t, "first", p.IsFirstRecurring, i == 0)
		same(t, "until", int64(p.SubscriptionExpirationDate), first.Until.AddDate(0, 0, 30*i).Unix())
		same(t, "payload", p.InvoicePayload, "plan")
		charges[p.TelegramPaymentChargeID] = true
	}
	same(t, "charges", len(charges), 3)
	var told models.Update
	if err := json.Unmarshal(w.bot.Updates("message")[1].Raw, &told); err != nil {
		t.Fatal(err)
	}
	same(t, "told when it was due", int64(told.Message.Date), first.Until.Unix())
	same(t, "listed", w.transactions()[2].Source.User.SubscriptionPeriod, month)
	taken := w.server.Transcript().Where(func(e fakeapi.Entry) bool { return e.Kind == fakeapi.Delivered && e.Name == "message" && e.Code == 200 })
	same(t, "taken", len(taken), 3) // also those of a jump over two renewals
}

func TestASubscriptionIsCancelledResumedAndFails(t *testing.T) {
	w := frozenWorld(t)
	w.approves(nil)
	pay, err := w.ann.Pay(t.Context(), w.link("plan", 250, month))
	if err != nil {
		t.Fatal(err)
	}
	edit := func(cancelled bool) error {
		_, err := w.client.EditUserStarSubscription(t.Context(), &bot.EditUserStarSubscriptionParams{UserID: 42, TelegramPaymentChargeID: pay.ChargeID, IsCanceled: cancelled})
		return err
	}
	states := func() (all string) {
		for _, told := range w.bot.Updates("subscription") {
			var u models.Update
			if err := json.Unmarshal(told.Raw, &u); err != nil {
				t.Fatal(err)
			}
			same(t, "payload", u.Subscription.InvoicePayload, "plan")
			all += string(u.Subscription.State) + " "
		}
		return all
	}
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	ok(w.ann.CancelSubscription(pay.ChargeID))
	ok(w.ann.ResumeSubscription(pay.ChargeID))
	ok(edit(true))
	if err := w.ann.ResumeSubscription(pay.ChargeID); err == nil {
		t.Error("a person resumed what the bot had cancelled")
	}
	ok(edit(false))
	ok(w.ann.ResumeSubscription(pay.ChargeID))
	same(t, "told", states(), "canceled active canceled active ")
	ok(w.ann.FailSubscription(pay.ChargeID))
	w.server.Advance(31 * 24 * time.Hour)
	same(t, "told", states(), "canceled active canceled active failed ")
	ok(w.ann.ResumeSubscription(pay.ChargeID)) // they have bought Stars
	paid, _ := w.payments()
	same(t, "payments", len(paid), 2)
	same(t, "until", w.bot.Subscriptions()[0].Until.Sub(pay.Until), 31*24*time.Hour)
	w.bot.KeepOwnCancellations()
	ok(edit(true))
	same(t, "told", states(), "canceled active canceled active failed active ")
	w.server.Advance(40 * 24 * time.Hour)
	paid, _ = w.payments()
	same(t, "payments after it ended", len(paid), 2)
	if err := w.ann.ResumeSubscription(pay.ChargeID); !errors.Is(err, fakeapi.ErrNoSubscription) {
		t.Errorf("after its end: %v", err)
	}
	_, err = w.client.EditUserStarSubscription(t.Context(), &bot.EditUserStarSubscriptionParams{UserID: 42, TelegramPaymentChargeID: "other", IsCanceled: true})
	refused(t, err, bot.ErrorBadRequest, "CHARGE_ID_INVALID")
}

func TestAPaymentIsRefundedOnce(t *testing.T) {
	w := seller(t, nil)
	pay, err := w.ann.Pay(t.Context(), w.link("order", 100, 0))
	if err != nil {
		t.Fatal(err)
	}
	refund := func(user int64, charge string) error {
		_, err := w.client.RefundStarPayment(t.Context(), &bot.RefundStarPaymentParams{UserID: user, TelegramPaymentChargeID: charge})
		return err
	}
	refused(t, refund(43, pay.ChargeID), bot.ErrorBadRequest, "USER_ID_INVALID")
	refused(t, refund(42, ""), bot.ErrorBadRequest, "CHARGE_ID_EMPTY")
	refused(t, refund(42, "other"), bot.ErrorBadRequest, "CHARGE_ID_INVALID")
	w.bot.Withdraw(1)
	refused(t, refund(42, pay.ChargeID), bot.ErrorBadRequest, "BALANCE_TOO_LOW")
	w.bot.Withdraw(-1)
	w.bot.Fail(fakeapi.Fault{Kind: fakeapi.LoseAnswer, Method: "refundStarPayment"})
	if err := refund(42, pay.ChargeID); err == nil {
		t.Error("the answer arrived")
	}
	refused(t, refund(42, pay.ChargeID), bot.ErrorBadRequest, "CHARGE_ALREADY_REFUNDED")
	_, refunds := w.payments()
	same(t, "told", len(refunds), 1)
	same(t, "told", *refunds[0], models.RefundedPayment{Currency: "XTR", TotalAmount: 100, InvoicePayload: "order", TelegramPaymentChargeID: pay.ChargeID})
	same(t, "balance", w.bot.Balance(), 0)
	listed := w.transactions()
	last := listed[len(listed)-1]
	same(t, "listed under the same id", last.ID, pay.ChargeID)
	same(t, "as going out", last.Receiver.User.User.ID, 42)
}

func TestWhatAnOutageLostIsListed(t *testing.T) {
	w := newWorld(t)
	for i := range 120 {
		w.bot.Record(fakeapi.Payment{ChargeID: fmt.Sprint("c", i), Payload: "order", Stars: 5, Payer: 42})
	}
	if err := w.bot.RecordRefund("c7"); err != nil {
		t.Fatal(err)
	}
	if err := w.bot.RecordRefund("c7"); err == nil {
		t.Error("refunded twice")
	}
	w.bot.RecordOther(map[string]any{"id": "ads", "amount": 5, "date": 1, "source": map[string]any{"type": "telegram_ads"}})
	same(t, "a page", len(w.transactions()), 100)
	list, err := w.client.GetStarTransactions(t.Context(), &bot.GetStarTransactionsParams{Offset: 100, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "the rest", len(list.Transactions), 22)
	same(t, "the last", list.Transactions[21].Source.Type, models.TransactionPartnerTypeTelegramAds)
	same(t, "told", len(w.bot.Pending()), 0)
	code, _ := w.post("getStarTransactions", "application/json", `{"limit":101}`)
	same(t, "too many", code, http.StatusBadRequest)
	balance, err := w.client.GetMyStarBalance(t.Context())
	if err != nil || balance.Amount != 119*5 {
		t.Errorf("%+v, %v", balance, err)
	}
}

func TestTwoHundredPeoplePayAtOnce(t *testing.T) {
	w := seller(t, nil)
	link := w.link("order", 1, 0)
	var all sync.WaitGroup
	for i := range int64(200) {
		all.Go(func() {
			if _, err := w.bot.Person(fakeapi.User{ID: 1000 + i}).Pay(t.Context(), link); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	w.drained()
	same(t, "balance", w.bot.Balance(), 200)
	paid, _ := w.payments()
	same(t, "told", len(paid), 200)
}
