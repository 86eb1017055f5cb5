package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
)

const botPath = "/v1/telegram/7000001"

// update is an update of the Bot API, with fields that nobody here reads.
func update(id int, kind, content string) string {
	return fmt.Sprintf(`{"update_id": %d, %q: %s}`, id, kind, content)
}

func wantsToPay(user int64, language, payload string, stars int) string {
	return update(5, "pre_checkout_query", fmt.Sprintf(
		`{"id": "q1", "from": {"id": %d, "is_bot": false, "first_name": "A", "language_code": %q}, "currency": "XTR", "total_amount": %d, "invoice_payload": %q, "order_info": {"name": "x"}}`,
		user, language, stars, payload))
}

func serviceMessage(id int, user int64, field, content string) string {
	return serviceMessageAt(time.Now(), id, user, field, content)
}

func serviceMessageAt(at time.Time, id int, user int64, field, content string) string {
	return update(id, "message", fmt.Sprintf(
		`{"message_id": 1, "date": %d, "from": {"id": %d, "first_name": "A"}, "chat": {"id": %d, "type": "private"}, %q: %s}`, at.Unix(), user, user, field, content))
}

func hasPaid(user int64, payload, charge string, stars int) string {
	return serviceMessage(6, user, "successful_payment", fmt.Sprintf(
		`{"currency": "XTR", "total_amount": %d, "invoice_payload": %q, "telegram_payment_charge_id": %q, "provider_payment_charge_id": ""}`, stars, payload, charge))
}

func hasSubscribed(user int64, payload, charge string, stars int) string {
	return hasSubscribedAt(time.Now(), user, payload, charge, stars)
}

func hasSubscribedAt(at time.Time, user int64, payload, charge string, stars int) string {
	return serviceMessageAt(at, 6, user, "successful_payment", fmt.Sprintf(
		`{"currency": "XTR", "total_amount": %d, "invoice_payload": %q, "telegram_payment_charge_id": %q, "provider_payment_charge_id": "", "is_recurring": true, "is_first_recurring": true, "subscription_expiration_date": %d}`,
		stars, payload, charge, at.AddDate(0, 0, 30).Unix()))
}

func wasRefunded(user int64, charge string, stars int) string {
	return serviceMessage(7, user, "refunded_payment", fmt.Sprintf(
		`{"currency": "XTR", "total_amount": %d, "invoice_payload": "x", "telegram_payment_charge_id": %q}`, stars, charge))
}

// order makes an order and returns its payload.
func (s *server) order(account, product string, recurring bool) string {
	s.t.Helper()
	return s.call("POST", botPath+"/orders", fmt.Sprintf(`{"account": %q, "product": %q, "recurring": %t}`, account, product, recurring)).is(201).text("payload")
}

// forward is the answer to an update.
func (s *server) forward(raw string) *reply {
	s.t.Helper()
	return s.call("POST", botPath+"/updates", raw)
}

// calls are those that an answer asks for.
func (r *reply) calls() (list []TelegramCall) {
	r.t.Helper()
	var told TelegramUpdate
	if err := json.Unmarshal([]byte(r.raw), &told); err != nil {
		r.t.Fatal(err)
	}
	return told.Calls
}

func TestAnOrderIsPaidOverTheAPIAndGrantedOnce(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		made := h.call("POST", botPath+"/orders", `{"account": "telegram:42", "product": "credits_100"}`, "Accept-Language: ru").is(201).has(
			`{"account": "telegram:42", "product": "credits_100", "amount": 100, "recurring": false}`)
		payload := made.text("payload")
		call := made.body["call"].(map[string]any)
		parameters := call["parameters"].(map[string]any)
		if call["method"] != "createInvoiceLink" || parameters["payload"] != payload || parameters["currency"] != "XTR" || parameters["provider_token"] != "" ||
			fmt.Sprint(parameters["prices"]) != "[map[amount:100 label:100 credit]]" || parameters["title"] != "100 credit" || parameters["description"] != "100 credit." || parameters["subscription_period"] != nil {
			t.Errorf("%s", made.raw)
		}
		if asked := h.forward(wantsToPay(42, "ru", payload, 100)).is(200).has(`{"kind": "pre_checkout", "changed": false, "account": "telegram:42", "reason": null, "payment": null}`).calls(); len(asked) != 1 ||
			asked[0].Method != "answerPreCheckoutQuery" || asked[0].Action != nil || fmt.Sprint(asked[0].Parameters) != "map[ok:true pre_checkout_query_id:q1]" {
			t.Errorf("%+v", asked)
		}
		// Nothing is granted for wanting to pay.
		h.get("/v1/accounts/telegram:42").is(200).has(`{"exists": false}`)

		var once sync.Mutex
		changed := 0
		var senders sync.WaitGroup
		for range 10 {
			senders.Go(func() {
				r := h.forward(hasPaid(42, payload, "c1", 100)).is(200).has(`{"kind": "paid", "account": "telegram:42", "calls": []}`)
				paid := r.body["payment"].(map[string]any)
				once.Lock()
				defer once.Unlock()
				if paid["state"] != "granted" || paid["provider"] != "telegram_stars" || paid["payment_id"] != "c1" {
					t.Errorf("%s", r.raw)
				}
				if r.body["changed"] == true {
					changed++
				}
			})
		}
		senders.Wait()
		if changed != 1 {
			t.Errorf("it had an effect %d times", changed)
		}
		h.get("/v1/accounts/telegram:42").is(200).available("credit", 103)
		h.get("/v1/payments/telegram_stars/c1").is(200).has(`{"account": "telegram:42", "state": "granted"}`)

		h.forward(wasRefunded(42, "c1", 100)).is(200).has(`{"kind": "refunded", "changed": true, "calls": []}`)
		h.forward(wasRefunded(42, "c1", 100)).is(200).has(`{"kind": "refunded", "changed": false}`)
		h.get("/v1/accounts/telegram:42").is(200).available("credit", 3)
		h.forward(wasRefunded(42, "c2", 100)).is(200).has(`{"kind": "refund_pending", "account": null, "payment": null}`)
		h.verify()
	})
}

func TestAPaymentThatMayNotGoOnIsStoppedInThePersonsLanguage(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		stopped := func(raw, reason, text string) {
			t.Helper()
			r := h.forward(raw).is(200).has(fmt.Sprintf(`{"kind": "pre_checkout", "reason": %q, "changed": false}`, reason))
			asked := r.calls()
			if len(asked) != 1 || asked[0].Parameters["ok"] != false || asked[0].Parameters["pre_checkout_query_id"] != "q1" || !strings.HasPrefix(asked[0].Parameters["error_message"].(string), text) {
				t.Errorf("%s: %s", reason, r.raw)
			}
		}
		payload := h.order("telegram:42", "credits_100", false)
		stopped(wantsToPay(42, "ru-RU", "somebody's", 100), "order_unknown", "Этот счёт здесь не найден.")
		stopped(wantsToPay(43, "en", payload, 100), "wrong_person", "This invoice was made for somebody else.")
		stopped(wantsToPay(43, "uk", payload, 100), "wrong_person", "This invoice was made for somebody else.")
		stopped(strings.Replace(wantsToPay(42, "ru", payload, 100), "XTR", "USD", 1), "wrong_currency", "Здесь принимаются только")
		stopped(wantsToPay(42, "ru", payload, 99), "price_changed", "Цена изменилась.")
		h.forward(hasPaid(42, payload, "c1", 100)).is(200)
		stopped(wantsToPay(42, "", payload, 100), "order_paid", "This invoice is already paid.")

		// What the person has chosen wins over what Telegram says, and so does their zone.
		h.call("PUT", "/v1/accounts/telegram:42", `{"language": "ru", "time_zone": "Asia/Tokyo"}`).is(200)
		stopped(wantsToPay(42, "en", payload, 100), "order_paid", "Этот счёт уже оплачен.")
		until := h.forward(hasSubscribed(42, h.order("telegram:42", "max_30", true), "c2", 250)).is(200).has(`{"kind": "paid"}`).body["payment"].(map[string]any)["period_end"].(string)
		end, err := time.Parse(time.RFC3339, until)
		if err != nil {
			t.Fatal(err)
		}
		zone, err := time.LoadLocation("Asia/Tokyo")
		if err != nil {
			t.Fatal(err)
		}
		again := h.forward(wantsToPay(42, "en", h.order("telegram:42", "max_30", true), 250)).is(200).has(`{"reason": "already_subscribed"}`).calls()
		if text := again[0].Parameters["error_message"].(string); !strings.HasPrefix(text, "Этот тариф у вас уже есть") || !strings.Contains(text, end.Add(time.Minute-1).Truncate(time.Minute).In(zone).Format("15:04")) {
			t.Errorf("%s, of %s", text, until)
		}
		h.call("PUT", "/v1/accounts/telegram:42", `{"blocked": true}`).is(200)
		stopped(wantsToPay(42, "en", h.order("telegram:42", "credits_100", false), 100), "account_blocked", "Ваш аккаунт заблокирован")
		h.verify()
	})
}

func TestWhatFollowsAtTelegramIsAskedForUntilItIsTold(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		older, dearer := h.order("telegram:42", "basic_30", true), h.order("telegram:42", "max_30", true)
		h.forward(hasSubscribedAt(time.Now().Add(-time.Hour), 42, older, "c1", 100)).is(200).has(`{"kind": "paid", "calls": []}`)
		var action string
		for range 2 {
			asked := h.forward(hasSubscribed(42, dearer, "c2", 250)).is(200).has(`{"kind": "paid"}`).calls()
			if len(asked) != 1 || asked[0].Method != "editUserStarSubscription" || asked[0].Action == nil || fmt.Sprint(asked[0].Parameters) != "map[is_canceled:true telegram_payment_charge_id:c1 user_id:42]" {
				t.Fatalf("%+v", asked)
			}
			action = *asked[0].Action
		}
		done := fmt.Sprintf(`{"action": %q}`, action)
		// Another bot's done is none of this one's business.
		h.call("POST", "/v1/telegram/7000002/done", done).is(200)
		if asked := h.forward(hasSubscribed(42, dearer, "c2", 250)).is(200).calls(); len(asked) != 1 {
			t.Errorf("another bot's word ended the action: %+v", asked)
		}
		for range 2 {
			h.call("POST", botPath+"/done", done).is(200).has(`{"done": true}`)
			h.forward(hasSubscribed(42, dearer, "c2", 250)).is(200).has(`{"kind": "paid", "changed": false, "calls": []}`)
		}
		h.forward(update(9, "subscription", fmt.Sprintf(`{"user": {"id": 42}, "invoice_payload": %q, "state": "canceled"}`, dearer))).is(200).has(`{"kind": "cancelled", "changed": true, "account": "telegram:42"}`)
		h.forward(update(9, "subscription", fmt.Sprintf(`{"user": {"id": 42}, "invoice_payload": %q, "state": "canceled"}`, dearer))).is(200).has(`{"kind": "cancelled", "changed": false}`)
		h.forward(update(10, "subscription", fmt.Sprintf(`{"user": {"id": 42}, "invoice_payload": %q, "state": "active"}`, dearer))).is(200).has(`{"kind": "resumed", "changed": true}`)
		h.forward(update(11, "subscription", fmt.Sprintf(`{"user": {"id": 42}, "invoice_payload": %q, "state": "failed"}`, dearer))).is(200).has(`{"kind": "renewal_failed"}`)
		h.verify()
	})
}

func TestASubscriptionsInvoiceHasItsPeriod(t *testing.T) {
	h := wholeOn(t, memory.Open(), paidCatalog())
	made := h.call("POST", botPath+"/orders", `{"account": "telegram:42", "product": "max_30", "recurring": true}`).is(201).has(`{"recurring": true, "amount": 250}`)
	parameters := made.body["call"].(map[string]any)["parameters"].(map[string]any)
	if fmt.Sprint(parameters["subscription_period"]) != "2592000" || !strings.Contains(parameters["description"].(string), "It is a subscription: 250 Stars for 30 days") {
		t.Errorf("%s", made.raw)
	}
}

func TestUpdatesThatAreNotAboutStarsAreIgnored(t *testing.T) {
	h := wholeOn(t, memory.Open(), paidCatalog())
	for _, raw := range []string{
		`{"update_id": 1}`,
		update(2, "message", `{"message_id": 1, "date": 1, "text": "hello", "entities": [{"type": "bold", "offset": 0, "length": 1}]}`),
		update(3, "callback_query", `{"id": "1", "from": {"id": 42}, "data": "x"}`),
		update(4, "of_tomorrow", `{"a": [1.5, null, {"b": {"c": {"d": {"e": {"f": {"g": {"h": {"i": 1}}}}}}}}]}`),
		update(5, "subscription", `{"user": {"id": 42}, "invoice_payload": "nobody's", "state": "canceled"}`),
	} {
		h.forward(raw).is(200).has(`{"kind": "ignored", "changed": false, "account": null, "reason": null, "payment": null, "calls": []}`)
	}
}

// Somebody's money is never kept under another name than the one that its update has: what cannot be read is said.
func TestAnUpdateThatNoBotGetsIsRefused(t *testing.T) {
	h := wholeOn(t, memory.Open(), paidCatalog())
	payload := h.order("telegram:42", "credits_100", false)
	paid := hasPaid(42, payload, "c1", 100)
	for raw, fields := range map[string][]string{
		``:                                     {"body"},
		`[]`:                                   {"body"},
		`{`:                                    {"body"},
		`{"update_id": "1"}`:                   {"body"},
		`{"update_id": 0}`:                     {"update_id"},
		`{"message_id": 1}`:                    {"update_id"},
		paid + `{}`:                            {"body"},
		`{"update_id": 1.5}`:                   {"body"},
		paid[:len(paid)-1] + ``:                {"body"},
		strings.Replace(paid, `"c1"`, `""`, 1): {"message.successful_payment.telegram_payment_charge_id"},
		strings.Replace(paid, `"c1"`, `"`+strings.Repeat("c", 256)+`"`, 1):      {"message.successful_payment.telegram_payment_charge_id"},
		strings.Replace(paid, `: 100,`, `: -1,`, 1):                             {"message.successful_payment.total_amount"},
		strings.Replace(paid, `XTR`, `stars`, 1):                                {"message.successful_payment.currency"},
		strings.Replace(paid, `"from": {"id": 42, "first_name": "A"}, `, ``, 1): {"message.from"},
		wasRefunded(42, "", 100):                                                {"message.refunded_payment.telegram_payment_charge_id"},
		strings.Replace(wantsToPay(42, "ru", payload, 100), `"q1"`, `""`, 1):    {"pre_checkout_query.id"},
	} {
		if got := h.forward(raw).problem(400, holdfast.Invalid).names(); !slices.Equal(got, fields) {
			t.Errorf("%s: %v, want %v", raw, got, fields)
		}
	}
	for _, bot := range []string{"0", "07", "-7", "x", "7000001:AAsecret", "12345678901234567890", "%20", "7.5"} {
		for path, body := range map[string]string{"updates": paid, "orders": `{"account": "a", "product": "credits_100"}`, "done": `{"action": "x"}`} {
			r := h.call("POST", "/v1/telegram/"+bot+"/"+path, body).problem(400, holdfast.Invalid)
			if !slices.Contains(r.names(), "bot") || strings.Contains(r.raw, "AAsecret") {
				t.Errorf("%s: %s", bot, r.raw)
			}
		}
	}
	if strings.Contains(h.log.String(), "AAsecret") {
		t.Error("a token is in the log")
	}
	for body, field := range map[string]string{
		`{"account": "a b", "product": "credits_100"}`:                             "account",
		`{"account": "telegram:42", "product": "gold"}`:                            "product",
		`{"account": "telegram:42", "product": "credits_100", "recurring": true}`:  "recurring",
		`{"account": "telegram:42", "product": "credits_100", "recurring": "yes"}`: "recurring",
		`{"account": "telegram:42"}`:                                               "product",
		`{"account": "telegram:42", "product": "credits_100", "amount": 1}`:        "amount",
	} {
		if got := h.call("POST", botPath+"/orders", body).problem(400, holdfast.Invalid).names(); !slices.Equal(got, []string{field}) {
			t.Errorf("%s: %v", body, got)
		}
	}
	for _, action := range []string{``, `x`, strings.Repeat("x", 5000), telegramstars.Action{Kind: "refund"}.Encode()} {
		if got := h.call("POST", botPath+"/done", fmt.Sprintf(`{"action": %q}`, action)).problem(400, holdfast.Invalid).names(); !slices.Equal(got, []string{"action"}) {
			t.Errorf("%.20s: %v", action, got)
		}
	}
	h.get("/v1/payments/telegram_stars/c1").problem(404, holdfast.NotFound)
}

func TestBotsAndProjectsKeepTheirOrdersApart(t *testing.T) {
	h := wholeOn(t, memory.Open(), paidCatalog())
	payload := h.order("telegram:42", "credits_100", false)
	unknown := func(r *reply) {
		t.Helper()
		r.is(200).has(`{"reason": "order_unknown"}`)
	}
	unknown(h.call("POST", "/v1/telegram/7000002/updates", wantsToPay(42, "en", payload, 100)))
	unknown(h.call("POST", botPath+"/updates", wantsToPay(42, "en", payload, 100), "Authorization: Bearer "+otherKey))
	unknown(h.call("POST", botPath+"/updates?provider=telegram_stars.7000001", wantsToPay(42, "en", payload, 100)))

	// A second bot of the project has a provider's name of its own, so that a charge id of the first is none of its own.
	const second = "/v1/telegram/7000002/"
	seconds := h.call("POST", second+"orders?provider=telegram_stars.7000002", `{"account": "telegram:42", "product": "credits_100"}`).is(201).text("payload")
	h.forward(hasPaid(42, payload, "c1", 100)).is(200)
	h.call("POST", second+"updates?provider=telegram_stars.7000002", hasPaid(42, seconds, "c1", 100)).is(200).has(`{"kind": "paid", "changed": true}`)
	h.get("/v1/accounts/telegram:42").is(200).available("credit", 203)
	h.get("/v1/payments/telegram_stars.7000002/c1").is(200).has(`{"state": "granted"}`)
	for _, provider := range []string{"stripe", "telegram_stars.7000001", "telegram_stars."} {
		if got := h.call("POST", second+"updates?provider="+provider, hasPaid(42, seconds, "c1", 100)).problem(400, holdfast.Invalid).names(); !slices.Equal(got, []string{"provider"}) {
			t.Errorf("%s: %v", provider, got)
		}
	}
}

// failing are orders that cannot be read: at once, or only when nobody waits any more.
type failing struct {
	payment.Orders
	hang bool
}

func (f failing) OrderNamed(ctx context.Context, _ payment.OrderName) (order payment.Order, known bool, err error) {
	if f.hang {
		<-ctx.Done()
	}
	return order, false, errors.New("the database is gone")
}

func TestWithoutADatabaseAPaymentIsStoppedAndWhatWasPaidIsToldAgain(t *testing.T) {
	for _, hang := range []bool{false, true} {
		e := newSmallEngine()
		claims := memory.Open()
		var asked Bot
		s := serve(t, e, func(o *Options) {
			o.Stars = func(bot Bot) Stars {
				asked = bot
				bot.Deadline = time.Millisecond
				return sellers(&payment.Desk{Engine: e, Claims: claims}, failing{claims, hang}, shown{e})(bot)
			}
		})
		calls := s.forward(wantsToPay(42, "ru", "x", 100)).is(200).has(`{"kind": "pre_checkout", "reason": "try_again"}`).calls()
		if calls[0].Parameters["ok"] != false || !strings.HasPrefix(calls[0].Parameters["error_message"].(string), "try_again in ru") {
			t.Errorf("%+v", calls)
		}
		if want := (Bot{Project: "shop", Provider: "telegram_stars", ID: "7000001", Deadline: 3 * time.Second}); asked != want {
			t.Errorf("asked for %+v", asked)
		}
		if !hang {
			s.forward(hasPaid(42, "x", "c1", 100)).problem(503, reasonUnavailable)
			if _, known, err := claims.PaymentOwner(t.Context(), store.Claim{Project: "shop", Provider: "telegram_stars", PaymentID: "c1"}); err != nil || known {
				t.Errorf("it is claimed, and was told to be repeated: %v %v", known, err)
			}
		}
	}
}

func TestAnAccountThatCannotBeReadIsAnsweredInTelegramsLanguage(t *testing.T) {
	e := newSmallEngine()
	s := serve(t, e)
	payload := s.order("telegram:42", "credits_100", false)
	s.forward(hasPaid(42, payload, "c1", 100)).is(200).has(`{"kind": "paid"}`)
	e.failReadsAfter(0, errors.New("gone"))
	calls := s.forward(wantsToPay(42, "ru", payload, 100)).is(200).has(`{"reason": "order_paid"}`).calls()
	if text := calls[0].Parameters["error_message"].(string); !strings.HasPrefix(text, "order_paid in ru, UTC") {
		t.Error(text)
	}
}

func TestWithoutSellersThereIsNothingForBots(t *testing.T) {
	s := serve(t, newSmallEngine(), func(o *Options) { o.Stars = nil })
	s.forward(`{"update_id": 1}`).problem(404, holdfast.NotFound)
	s.call("POST", botPath+"/orders", `{"account": "a", "product": "credits_100"}`).problem(404, holdfast.NotFound)
	s.call("POST", botPath+"/done", fmt.Sprintf(`{"action": %q}`, telegramstars.Action{Kind: telegramstars.CancelSubscription}.Encode())).problem(404, holdfast.NotFound)
}
