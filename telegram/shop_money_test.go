package telegram_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/telegram"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
	"github.com/holdfast-dev/holdfast/telegram/inbox"
)

const days30 = fakeapi.SubscriptionPeriod

func (m *market) subscription(t *testing.T, user int64, payload string) fakeapi.Subscription {
	t.Helper()
	for _, s := range m.bot.Subscriptions() {
		if s.User == user && (payload == "" || s.Payload == payload) {
			return s
		}
	}
	t.Fatalf("%d has no such subscription", user)
	return fakeapi.Subscription{}
}

func TestASubscriptionRenewsThreeTimesHoweverItIsTold(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "ru")
	ann.buys("Старший: 250 звёзд", "Старший", "Спасибо! Платёж получен: Старший.")
	renewed := func() bool {
		s := m.view(1).Subscription
		return s != nil && s.PaidUntil.Unix() == m.subscription(t, 1, "").Until.Unix()
	}
	for renewal := range 3 {
		m.bot.RepeatNext("message", 2)
		m.api.Advance(days30)
		m.until("it is renewed", renewed)
		if view := m.view(1); view.Plan != "pro" || view.Balances[0].Available != 300 {
			t.Errorf("after renewal %d: %s, %d credits", renewal+1, view.Plan, view.Balances[0].Available)
		}
	}
	// A renewal is told to nobody, and comes to light after the one that followed it.
	m.bot.DropNext("message", 1)
	m.api.Advance(days30)
	m.api.Advance(days30)
	m.until("the later one is taken", renewed)
	until := m.view(1).Subscription.PaidUntil
	if err := m.shop.Reconcile(m.within()); err != nil {
		t.Fatal(err)
	}
	if after := m.view(1).Subscription.PaidUntil; !after.Equal(until) {
		t.Errorf("a payment for what is over moves the end from %s to %s", until, after)
	}
	charges := 0
	for _, u := range m.bot.Updates("message") {
		if strings.Contains(string(u.Raw), "successful_payment") {
			charges++
		}
	}
	given := 0
	m.until("each charge has given once", func() bool {
		page, err := m.engine.Read(m.within(), store.Query{Kind: store.QueryGrants, Project: "p", Account: m.view(1).Account.ID, Limit: holdfast.MaxPage})
		if err != nil {
			t.Fatal(err)
		}
		given = 0
		for _, g := range page.Grants {
			if g.Granted == 300 {
				given++
			}
		}
		return given >= charges
	})
	if given != charges || charges != 6 {
		t.Errorf("%d charges gave the plan's credits %d times", charges, given)
	}
}

func TestASubscriptionThatIsCancelledOrFailsLastsUntilWhatIsPaidEnds(t *testing.T) {
	m := openMarket(t)
	ann, bob := m.customer(1, "en"), m.customer(2, "ru")
	paid := ann.buys("Pro: 250 Stars", "Pro", "Thank you!")
	other := bob.buys("Старший: 250 звёзд", "Старший", "Спасибо!")
	before := ann.Last().ID
	if err := ann.CancelSubscription(paid.ChargeID); err != nil {
		t.Fatal(err)
	}
	ann.sees(before, "will not be renewed")
	before = bob.Last().ID
	if err := bob.FailSubscription(other.ChargeID); err != nil {
		t.Fatal(err)
	}
	m.api.Advance(days30 - time.Hour)
	if plan := m.view(1).Plan; plan != "pro" {
		t.Errorf("before its end the plan is %s", plan)
	}
	m.api.Advance(2 * time.Hour)
	bob.sees(before, "не смог получить платёж")
	if view := m.view(1); view.Plan != "free" {
		t.Errorf("after its end the cancelled plan is %s", view.Plan)
	}
	if view := m.view(2); view.Plan != "pro" || view.Subscription.Status != holdfast.SubscriptionGrace {
		t.Errorf("a failed renewal: %s, %+v", view.Plan, view.Subscription)
	}
}

func TestTheSamePlanIsNotSoldTwiceAndTheDateIsTold(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "en")
	ann.buys("Pro: 250 Stars", "Pro", "Thank you!")
	link := ann.chooses("Pro: 250 Stars", "Pro")
	_, err := ann.Pay(m.within(), link)
	if said := declined(t, err); !strings.Contains(said, "January") {
		t.Errorf("declined with %q", said)
	}
}

func TestAnUpgradeStopsTheOldSubscriptionAtTelegramHoweverOftenThatFails(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "en")
	old := ann.buys("Pro: 250 Stars", "Pro", "Thank you!")
	m.bot.Fail(fakeapi.Fault{Kind: fakeapi.LoseAnswer, Method: "editUserStarSubscription", Times: 2})
	m.api.Advance(time.Minute) // Telegram tells the time in seconds, and the later payment counts
	ann.buys("Max: 700 Stars", "Max", "Thank you!")
	m.until("the old one is stopped", func() bool { return m.subscription(t, 1, old.Payload).State == fakeapi.Canceled })
	m.until("that is noted", func() bool {
		order, err := m.stars.Book.Find(m.within(), old.Payload)
		return err == nil && order != nil && order.Cancelled
	})
	if view := m.view(1); view.Plan != "max" || view.Subscription.Status != holdfast.SubscriptionActive {
		t.Errorf("%s, %+v", view.Plan, view.Subscription)
	}
}

func TestAPersonStopsTheirSubscriptionWithAButtonAndIsToldOnce(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "ru")
	paid := ann.buys("Старший: 250 звёзд", "Старший", "Спасибо!")
	plans := ann.asks("/plans", "Выберите кнопкой ниже.")
	for range 3 {
		tap, err := ann.Tap(plans.ID, "Остановить подписку")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tap.Answer(m.within()); err != nil {
			t.Fatal(err)
		}
	}
	ann.sees(plans.ID, "не будет продлена")
	if s := m.subscription(t, 1, paid.Payload); s.State != fakeapi.Canceled {
		t.Errorf("at Telegram it is %s", s.State)
	}
	m.until("the account knows", func() bool { return m.view(1).Subscription.Status == holdfast.SubscriptionCancelled })
	again := ann.asks("/plans", "Он оплачен и закончится")
	if _, there := again.Button("Остановить подписку"); there {
		t.Error("it can be stopped once more")
	}
	if err := m.bot.Drained(m.within()); err != nil {
		t.Fatal(err)
	}
	told := 0
	for _, message := range ann.Messages() {
		if strings.Contains(message.Text, "не будет продлена") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("it was told %d times", told)
	}
}

func TestARefundIsAskedForUntilTelegramAnswersAndTakesBackOnce(t *testing.T) {
	for name, fault := range map[string]fakeapi.Fault{
		"the answer is lost":     {Kind: fakeapi.LoseAnswer, Method: "refundStarPayment", Times: 7},
		"Telegram is broken":     {Kind: fakeapi.Broken, Method: "refundStarPayment", Times: 7},
		"Telegram wants a pause": {Kind: fakeapi.TooMany, Method: "refundStarPayment", RetryAfter: 1},
		"nothing is wrong":       {Kind: fakeapi.Broken, Method: "getMe"},
	} {
		t.Run(name, func(t *testing.T) {
			m := openMarket(t)
			ann, operator := m.customer(1, "en"), m.customer(boss, "ru")
			paid := ann.buys("100 credits: 100 Stars", "100 credits", "Thank you!")
			m.bot.Fail(fault)
			before, asked := ann.Last().ID, operator.Last().ID
			operator.asks("/refund "+paid.ChargeID, "Возврат запрошен")
			operator.Send("/refund " + paid.ChargeID) // the operator is impatient
			operator.sees(asked, "Telegram вернул деньги за платёж: "+paid.ChargeID)
			ann.sees(before, "The payment was refunded: 100 Stars")
			m.has(1, 3)
			operator.asks("/refund "+paid.ChargeID, "уже возвращены")
			if got := m.bot.Balance(); got != 0 {
				t.Errorf("the bot has %d Stars", got)
			}
			told := 0
			for _, message := range ann.Messages() {
				if strings.Contains(message.Text, "was refunded") {
					told++
				}
			}
			if told != 1 {
				t.Errorf("the refund was told %d times", told)
			}
			help := ann.asks("/paysupport", paid.ChargeID)
			if !strings.Contains(help.Text, "It was refunded.") {
				t.Errorf("/paysupport says %s", help.Text)
			}
		})
	}
}

func TestAPaymentThatTelegramHasRefundedAlreadyIsTakenBackHere(t *testing.T) {
	m := openMarket(t)
	ann, operator := m.customer(1, "en"), m.customer(boss, "en")
	paid := ann.buys("100 credits: 100 Stars", "100 credits", "Thank you!")
	if err := m.bot.RecordRefund(paid.ChargeID); err != nil { // and no update tells it
		t.Fatal(err)
	}
	before := ann.Last().ID
	operator.asks("/refund "+paid.ChargeID, "Telegram has refunded the payment")
	ann.sees(before, "The payment was refunded")
	m.has(1, 3)
}

func TestARefundThatTelegramRefusesTakesNothingBackAndIsNotTriedAgain(t *testing.T) {
	m := openMarket(t)
	ann, operator := m.customer(1, "en"), m.customer(boss, "en")
	paid := ann.buys("100 credits: 100 Stars", "100 credits", "Thank you!")
	m.bot.Withdraw(100)
	operator.asks("/refund "+paid.ChargeID, "is not tried again: "+paid.ChargeID)
	m.has(1, 103)
	if err := m.shop.Refunds(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := m.api.Transcript().Where(func(e fakeapi.Entry) bool { return e.Kind == fakeapi.Called && e.Name == "refundStarPayment" })
	if len(calls) != 1 {
		t.Errorf("it was asked for %d times", len(calls))
	}
	operator.asks("/refund nonsense", "Nobody knows a payment of this number")
	operator.asks("/refund", "Use /refund NUMBER")
}

func TestOperatorsGrantAndForOthersTheirCommandsDoNotExist(t *testing.T) {
	m := openMarket(t)
	ann, operator := m.customer(1, "ru"), m.customer(boss, "en")
	ann.asks("/grant 1 100 credit", "Такой команды нет")
	ann.asks("/refund chg", "Такой команды нет")
	m.has(1, 3)
	operator.asks("/grant 1 40 credit sorry for the wait", "telegram:1: Added: 40 credits.")
	m.has(1, 43)
	m.bot.Redeliver(lastUpdate(m), 3)
	if err := m.bot.Drained(m.within()); err != nil {
		t.Fatal(err)
	}
	if _, err := m.shop.Take(m.within(), m.raw("message", "/grant 1 40")); err != nil { // as if it had not been stored that it was handled
		t.Fatal(err)
	}
	m.has(1, 43)
	operator.asks("/grant 77 40 credit", "It was not done: telegram:77, not_found.")
	operator.asks("/grant 1 40 gold", "It was not done: unit")
	operator.asks("/grant 1 many credit", "Use /grant USER AMOUNT UNIT REASON")
	page, err := m.engine.Read(t.Context(), store.Query{Kind: store.QueryEntries, Project: "p", Account: m.view(1).Account.ID, Limit: 50})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(page.Entries, func(e holdfast.Entry) bool { return e.Reason == "sorry for the wait" }) {
		t.Error("the history does not say why")
	}
}

func lastUpdate(m *market) int64 {
	all := m.bot.Updates("")
	return all[len(all)-1].ID
}

func TestAPaymentThatNoUpdateToldIsFoundByReconciling(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "en")
	link := ann.chooses("100 credits: 100 Stars", "100 credits")
	m.bot.DropNext("message", 1)
	before := ann.Last().ID
	paid, err := ann.Pay(m.within(), link)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.shop.Reconcile(m.within()); err != nil {
			t.Fatal(err)
		}
	}
	ann.sees(before, "Thank you!")
	m.has(1, 103)
	ann.asks("/paysupport", paid.ChargeID)
	if err := m.bot.RecordRefund(paid.ChargeID); err != nil {
		t.Fatal(err)
	}
	before = ann.Last().ID
	if err := m.shop.Reconcile(m.within()); err != nil {
		t.Fatal(err)
	}
	ann.sees(before, "The payment was refunded")
	m.has(1, 3)
}

func TestAnUpdateWhoseIDIsLowerThanTheLastIsTaken(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "en")
	link := ann.chooses("100 credits: 100 Stars", "100 credits")
	if _, err := ann.Checkout(m.within(), link); err != nil {
		t.Fatal(err)
	}
	m.bot.JumpBack()
	if _, err := ann.ChargeUnasked(link); err != nil {
		t.Fatal(err)
	}
	m.until("it is granted", func() bool { return m.available(1) == 103 })
}

// brokenUpdates loses its database where it is told to.
type brokenUpdates struct {
	store.Telegram
	broken atomic.Bool
}

func (b *brokenUpdates) KeepUpdates(ctx context.Context, updates []store.Update) ([]bool, error) {
	if b.broken.Load() {
		return nil, &store.Error{Kind: store.Unavailable, Op: "keep updates", Err: errors.New("the disk is away")}
	}
	return b.Telegram.KeepUpdates(ctx, updates)
}

func TestAPaymentThatCouldNotBeStoredIsToldAgainAndGranted(t *testing.T) {
	var stored *brokenUpdates
	m := openMarket(t, func(options *inbox.Options) {
		stored = &brokenUpdates{Telegram: options.Store}
		options.Store = stored
	})
	hook := httptest.NewServer(m.inbox)
	t.Cleanup(hook.Close)
	if err := m.client.SetWebhook(t.Context(), botapi.Webhook{URL: hook.URL, Secret: "s", Allowed: inbox.Kinds()}); err != nil {
		t.Fatal(err)
	}
	info, err := m.client.WebhookInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := telegram.CheckWebhook(info, hook.URL, inbox.Kinds()); err != nil {
		t.Error(err)
	}
	ann := m.customer(1, "en")
	link := ann.chooses("100 credits: 100 Stars", "100 credits")
	stored.broken.Store(true)
	if _, err := ann.Pay(m.within(), link); err != nil { // the pre-checkout query is answered without the inbox
		t.Fatal(err)
	}
	m.until("the webhook has refused the payment", func() bool {
		return len(m.api.Transcript().Where(func(e fakeapi.Entry) bool {
			return e.Kind == fakeapi.Delivered && e.Code == http.StatusServiceUnavailable
		})) > 0
	})
	m.has(1, 3)
	stored.broken.Store(false)
	m.api.Advance(time.Minute)
	m.until("it is granted", func() bool { return m.available(1) == 103 })
}

func TestAWebhookThatLeavesOutWhatMovesMoneyIsToldLoudly(t *testing.T) {
	info := botapi.WebhookInfo{URL: "https://bot.example/telegram/x", Allowed: []string{"message", "callback_query"}}
	err := telegram.CheckWebhook(info, info.URL, inbox.Kinds())
	if !errors.Is(err, telegram.ErrUpdatesMissing) || !strings.Contains(err.Error(), "pre_checkout_query") {
		t.Errorf("%v", err)
	}
	if err := telegram.CheckWebhook(info, "https://other.example", inbox.Kinds()); err == nil {
		t.Error("another address is taken for ours")
	}
}

func TestTheLanguageIsChosenAndKept(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "en")
	choice := ann.asks("/lang", "Choose a language")
	tap, err := ann.Tap(choice.ID, "Русский")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tap.Answer(m.within()); err != nil {
		t.Fatal(err)
	}
	m.until("it says so", func() bool {
		shown, ok := ann.Message(choice.ID)
		return ok && strings.Contains(shown.Text, "по-русски") && len(shown.Keyboard) == 0
	})
	ann.asks("/balance", "Ваш тариф")
	ann.asks("/lang en", "I speak English")
	ann.asks("/balance", "Your plan")
	ann.asks("/lang auto", "the language of your Telegram")
	ann.asks("/balance", "Your plan")
}

func TestHistoryHelpAndTermsAreToldInBothLanguages(t *testing.T) {
	m := openMarket(t)
	ann, bob := m.customer(1, "en"), m.customer(2, "ru")
	ann.asks("/history", "You have not asked for anything yet.")
	ann.asks("a text", "better: a text")
	bob.asks("текст", "better: текст")
	charged := func(user int64) bool { b := m.view(user).Balances[0]; return b.Available == 2 && b.Reserved == 0 }
	m.until("it is charged", func() bool { return charged(1) && charged(2) })
	ann.asks("/history", "“Improve text”. Done. Charged: 1 credit.")
	bob.asks("/history", "«Улучшение текста». Готово. Списано: 1 кредит.")
	ann.asks("/help", "/paysupport: help with payments")
	bob.asks("/help", "По другим вопросам: @help.")
	ann.asks("/terms", "https://terms.example")
	bob.asks("/cancel", "нечего отменять")
	bob.asks("/nonsense", "Такой команды нет")
	bob.asks("/paysupport", "Ваших платежей здесь нет.")
	ann.asks("/start pro_30", "Pro: 250 Stars for 30 days")
	bob.asks("/start friend_42", "Здравствуйте")
	ann.asks("/start other", "Hello")
	if kept := m.view(2).Account.Metadata["start"]; kept != "friend_42" {
		t.Errorf("the link said %q", kept)
	}
	if kept := m.view(1).Account.Metadata["start"]; kept != "pro_30" {
		t.Errorf("the first link said %q", kept)
	}
	if err := m.shop.SetUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if ru := m.bot.Commands("ru"); !strings.Contains(ru, "тарифы и цены") || !strings.Contains(ru, "paysupport") {
		t.Errorf("the menu: %s", ru)
	}
	if en := m.bot.Commands(""); !strings.Contains(en, "plans and prices") {
		t.Errorf("the menu: %s", en)
	}
}
