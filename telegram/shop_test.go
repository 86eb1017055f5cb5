package telegram_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/telegram"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
	"github.com/holdfast-dev/holdfast/telegram/inbox"
)

const marketToken = "7000001:market-secret"

// pricelist sells two plans of 30 days and a pack.
func pricelist(pack holdfast.Amount) *holdfast.Catalog {
	month := func(key string, amount holdfast.Amount) []holdfast.Allowance {
		return []holdfast.Allowance{{Key: key, Unit: "credit", Amount: amount, Every: holdfast.Cycle{Term: true}}}
	}
	return &holdfast.Catalog{
		Version: 1,
		Units: []holdfast.Unit{{Name: "credit", Names: holdfast.Plurals{
			"en": {"one": "credit", "other": "credits"}, "ru": {"one": "кредит", "few": "кредита", "many": "кредитов", "other": "кредита"},
		}}},
		Features: []holdfast.Feature{{
			Name: "text.improve", Names: holdfast.Names{"en": "Improve text", "ru": "Улучшение текста"}, Queue: "text",
			Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, LongestJob: time.Minute, TTL: 5 * time.Minute,
		}},
		Plans: []holdfast.Plan{
			{
				Name: "free", Default: true, Names: holdfast.Names{"en": "Free", "ru": "Бесплатный"}, Features: []string{"text.improve"}, MaxActive: 1,
				Allowances: []holdfast.Allowance{{Key: "free/credit", Unit: "credit", Amount: 3, Every: holdfast.Cycle{Rolling: 24 * time.Hour}}},
			},
			{Name: "pro", Names: holdfast.Names{"en": "Pro", "ru": "Старший"}, Features: []string{"text.improve"}, MaxActive: 3, Allowances: month("pro/credit", 300), Grace: 72 * time.Hour},
			{Name: "max", Names: holdfast.Names{"en": "Max", "ru": "Полный"}, Features: []string{"text.improve"}, MaxActive: 9, Allowances: month("max/credit", 900)},
		},
		Products: []holdfast.Product{
			{Name: "pro_30", Plan: "pro", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 250}}},
			{Name: "max_30", Plan: "max", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 700}}},
			{Name: "credits_100", Grant: &holdfast.ProductGrant{Unit: "credit", Amount: 100}, Prices: []holdfast.Money{{Currency: "XTR", Amount: pack}}},
		},
	}
}

// market is a bot that sells, on a stand-in for Telegram, with everything that a running bot has.
type market struct {
	t      *testing.T
	api    *fakeapi.Server
	bot    *fakeapi.Bot
	client *botapi.Client
	engine *engine.Engine
	stars  *telegramstars.Stars
	kit    *telegram.Kit
	shop   *telegram.Shop
	inbox  *inbox.Inbox
	stored *memory.Store
	prices atomic.Pointer[holdfast.Catalog]
	log    safeLog
}

// safeLog is what was logged.
type safeLog struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const boss = 99

// openMarket opens one whose updates are polled for. Change may change what the inbox is given.
func openMarket(t *testing.T, change ...func(*inbox.Options)) *market {
	t.Helper()
	t.Parallel() // most of the time is Telegram's pace
	m := &market{t: t, stored: memory.Open()}
	start := time.Date(2026, time.December, 13, 9, 0, 0, 0, time.UTC)
	began := time.Now()
	m.api = fakeapi.Start(t, fakeapi.Options{Tokens: []string{marketToken}, Now: func() time.Time { return start.Add(time.Since(began)) }, Patience: 5 * time.Second})
	m.bot = m.api.Bot(marketToken)
	m.prices.Store(pricelist(100))
	log := slog.New(slog.NewTextHandler(&m.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	m.engine = engine.New(m.stored, engine.Options{
		Catalog: func(string) *holdfast.Catalog { return m.prices.Load() }, Now: m.api.Now, Logger: log,
	})
	var err error
	if m.client, err = botapi.New(botapi.Options{Token: marketToken, URL: m.api.URL, Limiter: botapi.NewLimiterOf(quick), Logger: log}); err != nil {
		t.Fatal(err)
	}
	texts, err := message.New()
	if err != nil {
		t.Fatal(err)
	}
	m.kit, err = telegram.New(telegram.Options{
		Bot: "7000001", Username: m.bot.Username(), Project: "p", Engine: m.engine, API: m.client, Notes: m.stored, Texts: texts,
		TopUp: telegram.ButtonTopUp, Plans: telegram.ButtonPlans, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	m.kit.Feature(telegram.Feature{Name: "text.improve", Do: func(_ context.Context, w *telegram.Work) (telegram.Result, error) {
		return telegram.Result{Text: "better: " + w.Prompt.Text}, nil
	}})
	m.stars = &telegramstars.Stars{Bot: "7000001", Book: &payment.Book{
		Desk: &payment.Desk{Engine: m.engine, Claims: m.stored, Log: log}, Orders: m.stored, Accounts: m.engine, Project: "p", Provider: telegramstars.Provider,
	}}
	m.shop = telegram.NewShop(m.kit, telegram.ShopOptions{
		Stars: m.stars, Contact: message.Contact{Support: "@help", Terms: "https://terms.example"}, Operators: []int64{boss},
		Retry: 20 * time.Millisecond, Reconcile: -1,
	})
	options := inbox.Options{
		Store: m.stored, Bot: "7000001", Secret: "s", Logger: log, Now: m.api.Now, Every: 20 * time.Millisecond,
		Handle: func(ctx context.Context, u inbox.Update) error { _, err := m.shop.Take(ctx, u.Raw); return err },
		Refuse: func(ctx context.Context, u inbox.Update) error { return m.shop.Refuse(ctx, u.Raw) },
	}
	for _, c := range change {
		c(&options)
	}
	m.inbox = inbox.New(options)
	relay := outbox.New(m.stored, outbox.Options{
		Sinks: map[string]outbox.Sink{telegram.SinkName("7000001"): m.kit.Sink()}, Every: 10 * time.Millisecond, Logger: log, Now: m.api.Now,
	})
	ctx, stop := context.WithCancel(context.Background())
	working, stopEngine := context.WithCancel(context.Background())
	var edges, inner sync.WaitGroup
	run := func(group *sync.WaitGroup, ctx context.Context, part func(context.Context) error) {
		group.Go(func() {
			if err := part(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	run(&inner, working, m.engine.Serve)
	for _, part := range []func(context.Context) error{m.inbox.Run, m.shop.Run, m.kit.Run, relay.Run} {
		run(&edges, ctx, part)
	}
	if len(change) == 0 {
		run(&edges, ctx, func(ctx context.Context) error { return m.inbox.Poll(ctx, m.client) })
	}
	t.Cleanup(func() {
		stop()
		edges.Wait()
		stopEngine()
		inner.Wait()
		m.verify()
		if strings.Contains(m.log.String(), "market-secret") {
			t.Error("the token is in the log")
		}
	})
	return m
}

// verify proves that the ledger adds up.
func (m *market) verify() {
	m.t.Helper()
	err := m.stored.Dump(context.Background(), func(r store.Record) error {
		differences, err := holdfast.Verify(&r.Account, r.Grants, r.Reservations, r.Entries)
		for _, difference := range differences {
			m.t.Errorf("%s: %s", r.Account.Name, difference)
		}
		return err
	})
	if err != nil {
		m.t.Error(err)
	}
}

func (m *market) within() context.Context {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	m.t.Cleanup(cancel)
	return ctx
}

// customer is a person who has begun to talk to the bot.
type customer struct {
	*fakeapi.Person
	m *market
}

func (m *market) customer(id int64, language string) *customer {
	m.t.Helper()
	c := &customer{m.bot.Person(fakeapi.User{ID: id, FirstName: "Someone", LanguageCode: language}), m}
	c.asks("/start", map[string]string{"ru": "Здравствуйте", "en": "Hello"}[language])
	return c
}

// asks sends a text and waits for an answer that contains another.
func (c *customer) asks(text, answer string) fakeapi.Message {
	c.m.t.Helper()
	before := c.Send(text)
	return c.sees(before, answer)
}

// sees waits for a message behind another one that contains a text.
func (c *customer) sees(behind int, text string) fakeapi.Message {
	c.m.t.Helper()
	found, err := c.Await(c.m.within(), func(got fakeapi.Message) bool {
		return got.ID > behind && got.From.IsBot && (strings.Contains(got.Text, text) || got.Invoice != nil && strings.Contains(got.Invoice.Title, text))
	})
	if err != nil {
		c.m.t.Fatalf("%d does not see %q: %v\n%s\n%s", c.ID(), text, err, c.screen(), c.m.log.String())
	}
	return found
}

func (c *customer) screen() string {
	var lines []string
	for _, one := range c.Messages() {
		lines = append(lines, "> "+one.Text)
	}
	return strings.Join(lines, "\n")
}

// chooses opens /plans and taps an offer; it returns the link of what is to be paid.
func (c *customer) chooses(button, title string) (link string) {
	c.m.t.Helper()
	plans := c.asks("/plans", map[bool]string{true: "Выберите кнопкой ниже.", false: "Choose with a button below."}[strings.ContainsAny(title, "абвгдежзиклмнопрстуфхцчшщыэюя")])
	return c.taps(plans.ID, button, title)
}

func (c *customer) taps(message int, button, title string) (link string) {
	c.m.t.Helper()
	before := c.Last().ID
	tap, err := c.Tap(message, button)
	if err != nil {
		c.m.t.Fatalf("%v\n%s", err, c.screen())
	}
	if _, err := tap.Answer(c.m.within()); err != nil {
		c.m.t.Fatal(err)
	}
	shown, err := c.Await(c.m.within(), func(got fakeapi.Message) bool {
		sells := got.Invoice != nil || len(got.Keyboard) > 0 && got.Keyboard[0][0].URL != ""
		return got.ID > before && sells && (strings.Contains(got.Text, title) || got.Invoice != nil && strings.Contains(got.Invoice.Title, title))
	})
	if err != nil {
		c.m.t.Fatalf("%q is not offered: %v\n%s", title, err, c.screen())
	}
	if link = c.Payable(shown.ID); link == "" {
		c.m.t.Fatalf("nothing can be paid at %q", shown.Text)
	}
	return link
}

func (c *customer) buys(button, title, thanks string) fakeapi.Payment {
	c.m.t.Helper()
	link := c.chooses(button, title)
	before := c.Last().ID
	paid, err := c.Pay(c.m.within(), link)
	if err != nil {
		c.m.t.Fatal(err)
	}
	c.sees(before, thanks)
	return paid
}

func (m *market) has(user int64, want holdfast.Amount) {
	m.t.Helper()
	if got := m.available(user); got != want {
		m.t.Errorf("%d has %d credits, want %d", user, got, want)
	}
}

func (m *market) available(user int64) holdfast.Amount {
	m.t.Helper()
	view, err := m.engine.View(m.within(), "p", telegram.AccountName(user))
	if err != nil {
		m.t.Fatal(err)
	}
	return view.Balances[0].Available
}

func (m *market) view(user int64) *holdfast.AccountView {
	m.t.Helper()
	view, err := m.engine.View(m.within(), "p", telegram.AccountName(user))
	if err != nil {
		m.t.Fatal(err)
	}
	return view
}

// until waits for something that comes by itself.
func (m *market) until(what string, so func() bool) {
	m.t.Helper()
	ctx := m.within()
	for !so() {
		if ctx.Err() != nil {
			m.t.Fatalf("it never comes that %s\n%s", what, m.log.String())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// raw is the raw update of a kind that tells what is contained in it.
func (m *market) raw(kind, contains string) []byte {
	m.t.Helper()
	for _, u := range m.bot.Updates(kind) {
		if bytes.Contains(u.Raw, []byte(contains)) {
			return u.Raw
		}
	}
	m.t.Fatalf("no update of kind %s has %s", kind, contains)
	return nil
}

func declined(t *testing.T, err error) string {
	t.Helper()
	var no *fakeapi.Declined
	if !errors.As(err, &no) {
		t.Fatalf("the payment was not declined: %v", err)
	}
	return no.Message
}

func TestAPackIsBoughtAndTheBalanceSaysSoInBothLanguages(t *testing.T) {
	m := openMarket(t)
	ann, bob := m.customer(1, "ru"), m.customer(2, "en")
	ann.buys("100 кредитов: 100 звёзд", "100 кредитов", "Спасибо! Платёж получен: 100 кредитов.")
	bob.buys("100 credits: 100 Stars", "100 credits", "Thank you! The payment is here: 100 credits.")
	m.has(1, 103)
	m.has(2, 103)
	ann.asks("/balance", "Сейчас доступно: 103 кредита.")
	bob.asks("/balance", "Available now: 103 credits.")
}

func TestOnePaymentToldTenTimesAtOnceIsGrantedOnce(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "en")
	m.bot.RepeatNext("message", 3)
	ann.buys("100 credits: 100 Stars", "100 credits", "Thank you!")
	raw := m.raw("message", "successful_payment")
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			if _, err := m.shop.Take(m.within(), raw); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if err := m.bot.Drained(m.within()); err != nil {
		t.Fatal(err)
	}
	m.has(1, 103)
}

func TestTwoChargesForOneOrderAreBothGranted(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "en")
	link := ann.chooses("100 credits: 100 Stars", "100 credits")
	asked, err := ann.Checkout(m.within(), link)
	if err != nil {
		t.Fatal(err)
	}
	asked.Charge()
	asked.Charge()
	m.until("both are granted", func() bool { return m.available(1) == 203 })
}

func TestAnApprovedCheckoutWithoutAPaymentGrantsNothing(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "en")
	link := ann.chooses("100 credits: 100 Stars", "100 credits")
	if _, err := ann.Checkout(m.within(), link); err != nil {
		t.Fatal(err)
	}
	m.has(1, 3)
}

func TestAnOrderIsPaidOnceAndPressingTwiceMakesOneOrder(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "ru")
	plans := ann.asks("/plans", "Выберите кнопкой ниже.")
	first := ann.taps(plans.ID, "100 кредитов: 100 звёзд", "100 кредитов")
	m.api.Advance(time.Minute)
	second := ann.taps(plans.ID, "100 кредитов: 100 звёзд", "100 кредитов")
	one, err := m.bot.Invoice(first)
	if err != nil {
		t.Fatal(err)
	}
	other, err := m.bot.Invoice(second)
	if err != nil {
		t.Fatal(err)
	}
	if one.Payload != other.Payload {
		t.Error("pressing twice made two orders")
	}
	before := ann.Last().ID
	if _, err := ann.Pay(m.within(), first); err != nil {
		t.Fatal(err)
	}
	ann.sees(before, "Спасибо")
	m.has(1, 103)
	_, err = ann.Pay(m.within(), second)
	if said := declined(t, err); !strings.Contains(said, "уже") {
		t.Errorf("the second payment was declined with %q", said)
	}
	// Afterwards it can be bought again.
	m.api.Advance(time.Minute)
	ann.buys("100 кредитов: 100 звёзд", "100 кредитов", "Спасибо")
	m.has(1, 203)
}

func TestAForwardedInvoiceIsDeclinedAndAPaymentThatComesNeverthelessIsKept(t *testing.T) {
	m := openMarket(t)
	ann, bob := m.customer(1, "en"), m.customer(2, "ru")
	link := ann.chooses("100 credits: 100 Stars", "100 credits")
	_, err := bob.Pay(m.within(), link)
	if said := declined(t, err); !strings.ContainsAny(said, "абвгдеиос") {
		t.Errorf("a Russian was told %q", said)
	}
	before := bob.Last().ID
	paid, err := bob.ChargeUnasked(link)
	if err != nil {
		t.Fatal(err)
	}
	flagged := bob.sees(before, "ничего не удалось")
	if !strings.Contains(flagged.Text, paid.ChargeID) {
		t.Errorf("the payment's number is not told: %s", flagged.Text)
	}
	m.has(1, 3)
	m.has(2, 3)
	help := bob.asks("/paysupport", paid.ChargeID)
	if !strings.Contains(help.Text, "@help") {
		t.Errorf("who helps is not told: %s", help.Text)
	}
}

func TestAChangedPriceIsHonouredForADayAndThenDeclined(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "en")
	link := ann.chooses("100 credits: 100 Stars", "100 credits")
	m.prices.Store(pricelist(150))
	m.api.Advance(2 * time.Hour)
	before := ann.Last().ID
	if _, err := ann.Pay(m.within(), link); err != nil {
		t.Fatal(err)
	}
	ann.sees(before, "Thank you!")
	m.has(1, 103)
	dearer := ann.chooses("100 credits: 150 Stars", "100 credits")
	m.prices.Store(pricelist(200))
	m.api.Advance(25 * time.Hour)
	_, err := ann.Pay(m.within(), dearer)
	if said := declined(t, err); !strings.Contains(said, "price") {
		t.Errorf("declined with %q", said)
	}
}

func TestWhatDoesNotFitIsDeclined(t *testing.T) {
	m := openMarket(t)
	ann := m.customer(1, "en")
	link := ann.chooses("100 credits: 100 Stars", "100 credits")
	invoice, err := m.bot.Invoice(link)
	if err != nil {
		t.Fatal(err)
	}
	for name, query := range map[string]string{
		"tampered": `{"id":"q1","from":{"id":1,"language_code":"en"},"currency":"XTR","total_amount":100,"invoice_payload":"hf-invented"}`,
		"euros":    `{"id":"q2","from":{"id":1,"language_code":"en"},"currency":"EUR","total_amount":100,"invoice_payload":"` + invoice.Payload + `"}`,
		"cheaper":  `{"id":"q3","from":{"id":1,"language_code":"en"},"currency":"XTR","total_amount":1,"invoice_payload":"` + invoice.Payload + `"}`,
	} {
		id := query[7:9]
		_, err := m.shop.Take(m.within(), []byte(`{"update_id":1,"pre_checkout_query":`+query+`}`))
		if !errors.Is(err, botapi.ErrRejected) { // the stand-in knows no such query: what counts is what it was asked
			t.Errorf("%s: %v", name, err)
		}
		asked := m.api.Transcript().Where(func(e fakeapi.Entry) bool {
			return e.Name == "answerPreCheckoutQuery" && e.Parameters["pre_checkout_query_id"] == id
		})
		if len(asked) == 0 || asked[0].Parameters["ok"] == "true" || asked[0].Parameters["error_message"] == "" {
			t.Errorf("%s: answered with %v", name, asked)
		}
	}
}

func TestAQueryThatCannotBeLookedUpIsDeclinedInThePersonsLanguage(t *testing.T) {
	m := openMarket(t)
	raw := []byte(`{"update_id":1,"pre_checkout_query":{"id":"q9","from":{"id":5,"language_code":"ru"},"currency":"XTR","total_amount":1,"invoice_payload":"x"}}`)
	_ = m.shop.Refuse(m.within(), raw)
	asked := m.api.Transcript().Where(func(e fakeapi.Entry) bool { return e.Name == "answerPreCheckoutQuery" })
	if len(asked) != 1 || asked[0].Parameters["ok"] == "true" || !strings.ContainsAny(asked[0].Parameters["error_message"], "абвгдеио") {
		t.Errorf("answered with %v", asked)
	}
}
