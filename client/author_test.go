package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/apitest"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

// author is a bot in some other language: it has the token, forwards what it is told, and makes the calls that come back, by
// their names.
type author struct {
	t        *testing.T
	server   *apitest.Server
	holdfast atomic.Pointer[client.Client]
	telegram *fakeapi.Server
	bot      *fakeapi.Bot
	failed   chan struct{} // a webhook was answered 503
}

const authorsToken = "7000001:AAnot-a-secret"

func writeBot(t *testing.T) *author {
	t.Helper()
	a := &author{t: t, failed: make(chan struct{}, 100), telegram: fakeapi.Start(t, fakeapi.Options{Tokens: []string{authorsToken}})}
	a.bot = a.telegram.Bot(authorsToken)
	a.server = start(t, engine.Options{Catalog: tariffOf, Now: a.telegram.Now})
	a.holdfast.Store(dial(t, a.server.URL))
	webhook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(r.Body)
		if err == nil && r.Header.Get("X-Telegram-Bot-Api-Secret-Token") != "s3cret" {
			err = errors.New("not Telegram")
		}
		if err == nil {
			err = a.handle(r.Context(), raw)
		}
		if err != nil {
			w.WriteHeader(http.StatusServiceUnavailable) // Telegram tells it again
			a.failed <- struct{}{}
		}
	}))
	t.Cleanup(webhook.Close)
	_, err := a.call("setWebhook", []byte(`{"url": "`+webhook.URL+`", "secret_token": "s3cret", "allowed_updates": ["message", "pre_checkout_query", "subscription"]}`))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *author) handle(ctx context.Context, raw []byte) error {
	told, err := a.holdfast.Load().TelegramUpdate(ctx, sellingBot, raw)
	if err != nil {
		return err
	}
	for _, call := range told.Calls {
		if _, err := a.call(call.Method, call.Parameters); err != nil {
			return err
		}
		if call.Action == "" {
			continue
		}
		if err := a.holdfast.Load().TelegramDone(ctx, sellingBot, call.Action); err != nil {
			return err
		}
	}
	return nil
}

func (a *author) call(method string, parameters []byte) (json.RawMessage, error) {
	response, err := http.Post(a.telegram.URL+"/bot"+authorsToken+"/"+method, "application/json", bytes.NewReader(parameters))
	if err != nil {
		return nil, errors.New("Telegram cannot be reached")
	}
	defer func() { _ = response.Body.Close() }()
	var answered struct {
		OK          bool
		Result      json.RawMessage
		Description string
	}
	if err := json.NewDecoder(response.Body).Decode(&answered); err != nil || !answered.OK {
		return nil, errors.New(method + ": " + answered.Description)
	}
	return answered.Result, nil
}

// away lets Holdfast be away until the returned function is called.
func (a *author) away() (back func()) {
	there := a.holdfast.Load()
	a.holdfast.Store(dial(a.t, closedPort(a.t), func(o *client.Options) { o.RetryFor = -1 }))
	return func() { a.holdfast.Store(there) }
}

func (a *author) link(account, product string, recurring bool) string {
	a.t.Helper()
	order, err := a.holdfast.Load().TelegramOrder(a.t.Context(), sellingBot, client.TelegramWanted{Account: account, Product: product, Recurring: recurring})
	if err != nil {
		a.t.Fatal(err)
	}
	made, err := a.call(order.Call.Method, order.Call.Parameters)
	if err != nil {
		a.t.Fatal(err)
	}
	var link string
	if err := json.Unmarshal(made, &link); err != nil {
		a.t.Fatal(err)
	}
	return link
}

// pays pays, and waits until everything that was told of it is handled.
func (a *author) pays(p *fakeapi.Person, link string) fakeapi.Payment {
	a.t.Helper()
	paid, err := p.Pay(a.t.Context(), link)
	if err != nil {
		a.t.Fatal(err)
	}
	a.settled()
	return paid
}

func (a *author) settled() {
	a.t.Helper()
	within, stop := context.WithTimeout(a.t.Context(), time.Minute)
	defer stop()
	if err := a.bot.Drained(within); err != nil {
		a.t.Fatal(err)
	}
}

func (a *author) declined(p *fakeapi.Person, link, words string) {
	a.t.Helper()
	_, err := p.Pay(a.t.Context(), link)
	var no *fakeapi.Declined
	if !errors.As(err, &no) || !strings.Contains(no.Message, words) {
		a.t.Errorf("%v, want a no with %q", err, words)
	}
}

func (a *author) view(account string) *holdfast.AccountView {
	a.t.Helper()
	view, err := a.server.Engine.View(a.t.Context(), apitest.Project, account)
	if err != nil {
		a.t.Fatal(err)
	}
	return view
}

func (a *author) has(account, unit string, want holdfast.Amount) {
	a.t.Helper()
	for _, b := range a.view(account).Balances {
		if b.Unit == unit && b.Available != want {
			a.t.Errorf("%s has %d %s, want %d", account, b.Available, unit, want)
		}
	}
}

func TestAnAuthorsBotSellsAgainstTheStandIn(t *testing.T) {
	a := writeBot(t)
	ann, bob := a.bot.Person(fakeapi.User{ID: 42, FirstName: "Анна", LanguageCode: "ru"}), a.bot.Person(fakeapi.User{ID: 43, FirstName: "Bob", LanguageCode: "en"})
	link := a.link("telegram:42", "images_10", false)
	a.declined(bob, link, "made for somebody else")

	back := a.away()
	a.declined(ann, link, "could not be checked")
	back()
	if a.view("telegram:42").Exists || a.bot.Balance() != 0 {
		t.Error("somebody was charged who was told no")
	}

	a.bot.RepeatNext("message", 3)
	paid := a.pays(ann, link)
	a.has("telegram:42", "image", 10)
	a.declined(ann, link, "уже оплачен")
	a.has("telegram:42", "image", 10)

	// Holdfast is away when the payment is told: it is told until it is heard.
	checkout, err := ann.Checkout(t.Context(), a.link("telegram:42", "images_10", false))
	if err != nil {
		t.Fatal(err)
	}
	back = a.away()
	late := checkout.Charge()
	for range 2 { // at once, and once more
		<-a.failed
	}
	a.has("telegram:42", "image", 10)
	back()
	a.telegram.Advance(2 * time.Minute)
	a.settled()
	a.has("telegram:42", "image", 20)

	for _, charge := range []string{paid.ChargeID, late.ChargeID} {
		if _, err := a.call("refundStarPayment", []byte(`{"user_id": 42, "telegram_payment_charge_id": "`+charge+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	a.settled()
	a.has("telegram:42", "image", 0)
}

func TestAnAuthorsBotChangesAPlanAgainstTheStandIn(t *testing.T) {
	a := writeBot(t)
	ann := a.bot.Person(fakeapi.User{ID: 42, FirstName: "Ann", LanguageCode: "en"})
	subscriptions := func() map[string]fakeapi.SubscriptionState {
		states := map[string]fakeapi.SubscriptionState{}
		for _, s := range a.bot.Subscriptions() {
			states[s.ChargeID] = s.State
		}
		return states
	}
	older := a.pays(ann, a.link("telegram:42", "basic_30", true))
	a.has("telegram:42", "credit", 100)
	a.declined(ann, a.link("telegram:42", "basic_30", true), "would pay twice")

	// A dearer plan: the older one must not be charged again. Telegram fails once, and loses an answer once.
	a.telegram.Advance(time.Hour)
	a.bot.Fail(fakeapi.Fault{Kind: fakeapi.Broken, Method: "editUserStarSubscription"}, fakeapi.Fault{Kind: fakeapi.LoseAnswer, Method: "editUserStarSubscription"})
	dearer := a.pays(ann, a.link("telegram:42", "max_30", true))
	if got := subscriptions(); got[older.ChargeID] != fakeapi.Canceled || got[dearer.ChargeID] != fakeapi.Active {
		t.Fatalf("%v", got)
	}
	if view := a.view("telegram:42"); view.Plan != "max" {
		t.Errorf("on plan %s", view.Plan)
	}
	before := a.view("telegram:42").Subscription.PaidUntil

	// A month passes: one of the two is charged, once.
	a.telegram.Advance(31 * 24 * time.Hour)
	a.settled()
	if balance := a.bot.Balance(); balance != 100+250+250 {
		t.Errorf("%d Stars were taken", balance)
	}
	view := a.view("telegram:42")
	if view.Plan != "max" || !view.Subscription.PaidUntil.After(before) || view.Subscription.Status != holdfast.SubscriptionActive {
		t.Errorf("%s %+v", view.Plan, view.Subscription)
	}

	if err := ann.CancelSubscription(dearer.ChargeID); err != nil {
		t.Fatal(err)
	}
	a.settled()
	if status := a.view("telegram:42").Subscription.Status; status != holdfast.SubscriptionCancelled {
		t.Errorf("cancelled by the person, it is %s", status)
	}
	if err := ann.ResumeSubscription(dearer.ChargeID); err != nil {
		t.Fatal(err)
	}
	a.settled()
	if status := a.view("telegram:42").Subscription.Status; status != holdfast.SubscriptionActive {
		t.Errorf("resumed by the person, it is %s", status)
	}
}
