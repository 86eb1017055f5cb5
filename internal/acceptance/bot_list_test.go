package acceptance

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/fakeprovider"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
	"github.com/holdfast-dev/holdfast/telegram/initdata"
)

// What a bot that sells must do, one test each, of `holdfast bot` as it runs: a process of its own in front of the stand-ins
// for Telegram and for a provider, on a database that outlives it. The numbers are those of the list of facts about Telegram
// that the bot was built by.

// chatCatalog is what these bots sell: five credits a day, and more for Stars.
const chatCatalog = `
units:
  credit: {scale: 0, names: {en: {one: credit, other: credits}, ru: {one: кредит, few: кредита, many: кредитов, other: кредита}}}
features:
  text.improve:
    names: {en: Improve text, ru: Улучшение текста}
    price: [{unit: credit, amount: 1}]
    queue: text
    longest_job: 60s
    ttl: 5m
  image.generate:
    names: {en: Image, ru: Картинка}
    price: [{unit: credit, amount: 1}]
    queue: image
    longest_job: 60s
    ttl: 5m
    cancel_running: request
plans:
  free:
    default: true
    names: {en: Free, ru: Бесплатный}
    features: [text.improve, image.generate]
    allowances: [{unit: credit, amount: 5, every: rolling 24h}]
    max_active: 100
    tier: standard
    queue_notice_after: 1s
  pro:
    names: {en: Pro, ru: Старший}
    features: [text.improve, image.generate]
    allowances: [{unit: credit, amount: 300, every: term}]
    max_active: 3
    tier: priority
    grace: 3d
products:
  pro_30: {plan: pro, period: 30d, prices: [{currency: XTR, amount: 250}]}
  credits_100: {grant: {unit: credit, amount: 100}, prices: [{currency: XTR, amount: 100}]}
`

func catalogFile(t *testing.T, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "catalog.yaml")
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// chatBot is a bot that runs, and can be killed and started again.
type chatBot struct {
	*botStage
	db      string
	args    []string
	process *server
}

func newChatBot(t *testing.T, db string, args ...string) *chatBot {
	t.Helper()
	return newChatBotAt(t, db, nil, args...)
}

// newChatBotAt is one at whose Telegram it is another time.
func newChatBotAt(t *testing.T, db string, now func() time.Time, args ...string) *chatBot {
	t.Helper()
	b := &chatBot{botStage: newBotStage(t), db: db}
	if now != nil {
		b.telegram = fakeapi.Start(t, fakeapi.Options{Now: now})
		b.bot = b.telegram.Bot(botToken)
	}
	b.args = append([]string{"--catalog", catalogFile(t, chatCatalog), "--admin", "99", "--support", "@help", "--sweep-every", "200ms"}, args...)
	return b.run()
}

func (b *chatBot) run() *chatBot {
	b.t.Helper()
	b.process = b.start(b.db, b.args...)
	return b
}

// onBoth runs a test on SQLite and on PostgreSQL.
func onBoth(t *testing.T, test func(t *testing.T, db string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, database(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, pgtest.NewEmpty(t))
	})
}

// end stops the bot and proves that what it leaves adds up.
func (b *chatBot) end() {
	b.t.Helper()
	if code := b.process.interrupt(); code != 0 {
		b.t.Errorf("exit %d\n%s", code, b.process.notes)
	}
	verified(b.t, b.db)
}

func (b *chatBot) person(id int64) *talker {
	b.t.Helper()
	return b.talker(b.process, b.bot, id, "en")
}

func (b *chatBot) within() context.Context {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	b.t.Cleanup(cancel)
	return ctx
}

func (b *chatBot) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatalf("%v\n%s", err, b.process.notes)
	}
}

// shownAccount is what the command line shows of an account.
type shownAccount struct {
	Plan     string `json:"plan"`
	Active   int    `json:"active"`
	Balances []struct {
		Unit      string `json:"unit"`
		Available int64  `json:"available"`
		Reserved  int64  `json:"reserved"`
	} `json:"balances"`
	Subscription *struct {
		Status    string    `json:"status"`
		PaidUntil time.Time `json:"paid_until"`
	} `json:"subscription"`
}

func (b *chatBot) account(user int64) (shown shownAccount) {
	b.t.Helper()
	out, notes, code := holdfast(b.t, "account", "show", "telegram:"+strconv.FormatInt(user, 10), "--db", b.db, "--json")
	if code != 0 {
		b.t.Fatalf("account show: exit %d\n%s%s", code, out, notes)
	}
	b.must(json.Unmarshal([]byte(out), &shown))
	if len(shown.Balances) != 1 {
		b.t.Fatalf("account show says\n%s", out)
	}
	return shown
}

// has waits until the person has so many credits, and none of them is held.
func (b *chatBot) has(user, credits int64) {
	b.t.Helper()
	var shown shownAccount
	b.until(fmt.Sprintf("%d has %d credits", user, credits), b.process, func() bool {
		shown = b.account(user)
		return shown.Balances[0].Available == credits && shown.Balances[0].Reserved == 0
	})
}

// stays proves that the person has so many credits when everything was taken that Telegram had to tell.
func (b *chatBot) stays(user, credits int64) {
	b.t.Helper()
	b.drained()
	b.has(user, credits)
}

func (b *chatBot) drained() {
	b.t.Helper()
	b.must(b.bot.Drained(b.within()))
}

// link is where an offer of /plans is paid.
func (p *talker) link(offer string) string {
	p.s.t.Helper()
	plans := p.asks("/plans", "Choose with a button below.")
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tap, err := p.Tap(plans.ID, offer)
	if err == nil {
		_, err = tap.Answer(ctx)
	}
	if err != nil {
		p.s.t.Fatalf("%v\n%s", err, p.process.notes)
	}
	sold, err := p.Await(ctx, func(m fakeapi.Message) bool {
		return m.ID > plans.ID && m.From.IsBot && (m.Invoice != nil || len(m.Keyboard) > 0 && m.Keyboard[0][0].URL != "")
	})
	if err != nil {
		p.s.t.Fatalf("nothing is sold: %v\n%s", err, p.process.notes)
	}
	return p.Payable(sold.ID)
}

const (
	pack = "100 credits: 100 Stars"
	pro  = "Pro: 250 Stars"
)

// declined is what a person reads whose payment the bot did not approve.
func (b *chatBot) declined(err error) string {
	b.t.Helper()
	var no *fakeapi.Declined
	if !errors.As(err, &no) || no.Message == "" {
		b.t.Fatalf("the payment was not declined in words: %v", err)
	}
	return no.Message
}

// times is how often a person was shown a text.
func (b *chatBot) times(p *talker, text string) int {
	return len(b.telegram.Transcript().Where(fakeapi.Shown(text).In(p.Chat())))
}

// paymentUpdate is the id of the update that told of a payment.
func (b *chatBot) paymentUpdate(chargeID string) int64 {
	b.t.Helper()
	for _, u := range b.bot.Updates("message") {
		if bytes.Contains(u.Raw, []byte("successful_payment")) && bytes.Contains(u.Raw, []byte(chargeID)) {
			return u.ID
		}
	}
	b.t.Fatalf("no update tells of the payment %s", chargeID)
	return 0
}

// gate stands between Telegram and a bot's webhook, and sees what is answered.
type gate struct {
	url    string
	mutex  sync.Mutex
	secret string
	path   string
	seen   []answered
	drop   func(body []byte, answer answered) bool // whether the answer gets lost
	heard  chan struct{}
}

type answered struct {
	status     int
	retryAfter string
}

const secretHeader = "X-Telegram-Bot-Api-Secret-Token"

func newGate(t *testing.T, listen string) *gate {
	t.Helper()
	g := &gate{heard: make(chan struct{}, 1000)}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		answer, err := g.forward(r.Context(), "http://"+listen+r.URL.Path, r.Header.Get(secretHeader), body)
		g.mutex.Lock()
		g.secret, g.path, g.seen = r.Header.Get(secretHeader), r.URL.Path, append(g.seen, answer)
		drop := g.drop
		g.mutex.Unlock()
		g.heard <- struct{}{}
		if err != nil || drop != nil && drop(body, answer) {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Retry-After", answer.retryAfter)
		w.WriteHeader(answer.status)
	}))
	t.Cleanup(server.Close)
	g.url = server.URL
	return g
}

func (g *gate) forward(ctx context.Context, to, secret string, body []byte) (answered, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, bytes.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	request.Header.Set(secretHeader, secret)
	response, err := client.Do(request)
	if err != nil {
		return answered{}, err
	}
	_ = response.Body.Close()
	return answered{response.StatusCode, response.Header.Get("Retry-After")}, nil
}

func (g *gate) statuses() []answered {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	return slices.Clone(g.seen)
}

// withWebhook is a bot whose updates come through a gate.
func withWebhook(t *testing.T, db string) (*chatBot, *gate) {
	t.Helper()
	listen := freeAddress(t)
	g := newGate(t, listen)
	return newChatBot(t, db, "--listen", listen, "--webhook-url", g.url), g
}

// 1.
func TestOnePaymentToldTenTimesAtOnceIsCreditedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		b, _ := withWebhook(t, db)
		ann := b.person(1)
		b.bot.RepeatNext("message", 3)
		paid := ann.pays(pack)
		b.has(1, 105)
		b.bot.Redeliver(b.paymentUpdate(paid.ChargeID), 10)
		b.stays(1, 105)
		ann.sees(0, "Thank you!")
		if n := b.times(ann, "Thank you!"); n != 1 {
			t.Errorf("it was thanked for %d times", n)
		}
		b.end()
	})
}

// 2.
func TestTwoChargesOfOneOrderAreBothCredited(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t))
	checkout, err := b.person(1).Checkout(b.within(), b.talkerOf(1).link(pack))
	b.must(err)
	checkout.Charge()
	checkout.Charge()
	b.stays(1, 205)
	b.end()
}

// talkerOf is a person who has begun to talk to the bot.
func (b *chatBot) talkerOf(id int64) *talker {
	return &talker{b.bot.Person(fakeapi.User{ID: id, LanguageCode: "en"}), b.botStage, b.process}
}

// 3.
func TestAnApprovedCheckoutThatIsNotPaidGivesNothing(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t))
	ann := b.person(1)
	_, err := ann.Checkout(b.within(), ann.link(pack))
	b.must(err)
	b.stays(1, 5)
	b.end()
}

// 4. The process dies between storing a payment and answering for it, so Telegram tells it again.
func TestAPaymentWhoseAnswerDiedWithTheProcessIsCreditedOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		b, g := withWebhook(t, db)
		ann := b.person(1)
		checkout, err := ann.Checkout(b.within(), ann.link(pack))
		b.must(err)
		died := make(chan struct{})
		g.mutex.Lock()
		g.drop = func(body []byte, answer answered) bool {
			if !bytes.Contains(body, []byte("successful_payment")) || answer.status != http.StatusOK {
				return false
			}
			select {
			case <-died: // it was started again
				return false
			default:
			}
			b.process.kill()
			close(died)
			return true
		}
		g.mutex.Unlock()
		checkout.Charge()
		<-died
		b.run()
		b.has(1, 105)
		b.stays(1, 105)
		b.end()
	})
}

// 5.
func TestAPaymentThatComesWhileTheDatabaseIsDownIsCreditedLater(t *testing.T) {
	t.Parallel()
	whole := pgtest.NewEmpty(t)
	proxy := pgtest.NewProxy(t, whole)
	b, g := withWebhook(t, proxy.Through(whole))
	ann := b.person(1)
	checkout, err := ann.Checkout(b.within(), ann.link(pack))
	b.must(err)
	b.drained()
	before := len(g.statuses())
	proxy.Refuse(true)
	proxy.CutAll()
	checkout.Charge()
	for !slices.ContainsFunc(g.statuses()[before:], func(a answered) bool { return a.status == http.StatusServiceUnavailable }) {
		select {
		case <-g.heard:
		case <-b.within().Done():
			t.Fatalf("the webhook answered %v\n%s", g.statuses()[before:], b.process.notes)
		}
	}
	for _, answer := range g.statuses()[before:] {
		if answer.status == http.StatusServiceUnavailable && answer.retryAfter == "" {
			t.Error("a 503 does not say when to come again")
		}
	}
	proxy.Refuse(false)
	b.db = whole
	b.has(1, 105)
	b.stays(1, 105)
	b.end()
}

// 6.
func TestARefundWhoseAnswerIsLostIsTakenBackOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		b := newChatBot(t, db)
		ann, operator := b.person(1), b.person(99)
		paid := ann.pays(pack)
		b.has(1, 105)
		b.bot.Fail(fakeapi.Fault{Kind: fakeapi.LoseAnswer, Method: "refundStarPayment", Times: 3})
		operator.asks("/refund "+paid.ChargeID, "Telegram has refunded the payment")
		ann.sees(0, "The payment was refunded: 100 Stars")
		b.stays(1, 5)
		if stars := b.bot.Balance(); stars != 0 {
			t.Errorf("the bot has %d Stars", stars)
		}
		if n := b.times(ann, "was refunded"); n != 1 {
			t.Errorf("the refund was told %d times", n)
		}
		b.end()
	})
}

// 7.
func TestARefundThatIsToldBeforeOurOwnCallReturnsIsTakenBackOnce(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t))
	ann, operator := b.person(1), b.person(99)
	paid := ann.pays(pack)
	b.has(1, 105)
	b.bot.Fail(fakeapi.Fault{Kind: fakeapi.Timeout, Method: "refundStarPayment"}) // done, and never answered
	operator.Send("/refund " + paid.ChargeID)
	ann.sees(0, "The payment was refunded: 100 Stars")
	b.has(1, 5)
	b.process.kill() // the call still hangs
	b.run()
	b.until("what was asked for is not asked for any more", b.process, func() bool {
		return len(b.bot.Faults()) == 0
	})
	b.stays(1, 5)
	if stars := b.bot.Balance(); stars != 0 {
		t.Errorf("the bot has %d Stars", stars)
	}
	b.end()
}

// 8. Telegram's clock runs through the three renewals until yesterday, and then everything is told, twice and the last first.
func TestRenewalsToldTwiceAndOutOfOrderEndWhereTelegramSaysAndGiveOncePerCharge(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		b := newChatBotAt(t, db, func() time.Time { return time.Now().Add(-3*fakeapi.SubscriptionPeriod - 24*time.Hour) })
		ann := b.person(1)
		checkout, err := ann.Checkout(b.within(), ann.link(pro))
		b.must(err)
		b.drained()
		b.bot.Hold()
		checkout.Charge()
		for range 3 {
			b.telegram.Advance(fakeapi.SubscriptionPeriod)
		}
		b.bot.Release()
		told := b.bot.Updates("message")
		slices.Reverse(told)
		for _, u := range told {
			if bytes.Contains(u.Raw, []byte("successful_payment")) {
				b.bot.Redeliver(u.ID, 2)
			}
		}
		b.drained()
		subscriptions := b.bot.Subscriptions()
		if len(subscriptions) != 1 {
			t.Fatalf("%d subscriptions", len(subscriptions))
		}
		b.until("what is paid ends where Telegram says", b.process, func() bool {
			s := b.account(1).Subscription
			return s != nil && s.PaidUntil.Unix() == subscriptions[0].Until.Unix()
		})
		b.has(1, 4*300)
		if plan := b.account(1).Plan; plan != "pro" {
			t.Errorf("the plan is %s", plan)
		}
		b.until("every payment has given once", b.process, func() bool {
			out, _, _ := holdfast(t, "event", "list", "--db", db)
			return strings.Count(out, `"payment.granted"`) == 4 && strings.Count(out, `"granted":300`) == 4
		})
		b.end()
	})
}

// 9.
func TestASubscriptionThatFailsOrIsCancelledLastsUntilWhatIsPaidEnds(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t))
	ann, bob := b.person(1), b.person(2)
	first, other := ann.pays(pro), bob.pays(pro)
	b.has(1, 300)
	b.has(2, 300)
	b.must(ann.CancelSubscription(first.ChargeID))
	ann.sees(0, "will not be renewed")
	b.must(bob.FailSubscription(other.ChargeID))
	b.telegram.Advance(fakeapi.SubscriptionPeriod + time.Hour) // of Telegram's time; what is paid ends in ours
	bob.sees(0, "Telegram could not take the payment")
	for id, until := range map[int64]time.Time{1: first.Until, 2: other.Until} {
		shown := b.account(id)
		if shown.Plan != "pro" || shown.Balances[0].Available != 300 || shown.Subscription == nil || shown.Subscription.PaidUntil.Unix() != until.Unix() {
			t.Errorf("%d has %+v", id, shown)
		}
	}
	b.end()
}

// 10.
func TestTheSamePlanIsDeclinedTheSecondTimeWithTheDate(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t))
	ann := b.person(1)
	paid, err := ann.Pay(b.within(), ann.link(pro))
	b.must(err)
	b.has(1, 300)
	_, err = ann.Pay(b.within(), ann.link(pro))
	said, month := b.declined(err), paid.Until.UTC().Month().String()
	if !strings.Contains(said, month) {
		t.Errorf("it was declined with %q, without %s", said, month)
	}
	b.stays(1, 300)
	b.end()
}

// 11.
func TestSomebodyElsesInvoiceIsDeclinedAndAPaymentThatComesNeverthelessIsKeptForItsPayer(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t))
	ann, bob := b.person(1), b.person(2)
	link := ann.link(pack)
	_, err := bob.Pay(b.within(), link)
	if said := b.declined(err); !strings.Contains(said, "made for somebody else") {
		t.Errorf("it was declined with %q", said)
	}
	paid, err := bob.ChargeUnasked(link)
	b.must(err)
	told := bob.sees(0, paid.ChargeID)
	if !strings.Contains(told.Text, "/paysupport") {
		t.Errorf("the payer is told %q", told.Text)
	}
	if help := bob.asks("/paysupport", paid.ChargeID); !strings.Contains(help.Text, "@help") {
		t.Errorf("who helps is not told: %q", help.Text)
	}
	b.stays(1, 5)
	b.stays(2, 5)
	b.end()
}

// 12.
func TestAPriceThatChangedAfterTheInvoiceIsHonouredAndNothingElseIsCharged(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t))
	ann := b.person(1)
	link := ann.link(pack)
	b.process.interrupt()
	b.args[1] = catalogFile(t, strings.Replace(chatCatalog, "currency: XTR, amount: 100}", "currency: XTR, amount: 150}", 1))
	b.run()
	paid, err := b.talkerOf(1).Pay(b.within(), link)
	b.must(err)
	if paid.Stars != 100 {
		t.Errorf("%d Stars were charged", paid.Stars)
	}
	b.stays(1, 105)
	again, err := b.bot.Invoice(b.talkerOf(1).link("100 credits: 150 Stars"))
	b.must(err)
	if again.Stars != 150 {
		t.Errorf("the new invoice asks for %d Stars", again.Stars)
	}
	b.end()
}

// post calls the Bot API besides the bot, as whoever has its token could.
func (b *chatBot) post(token, method string, arguments map[string]any) {
	b.t.Helper()
	body, err := json.Marshal(arguments)
	b.must(err)
	response, err := http.Post(b.telegram.URL+"/bot"+token+"/"+method, "application/json", bytes.NewReader(body))
	b.must(err)
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		answer, _ := io.ReadAll(response.Body)
		b.t.Fatalf("%s: %s", method, answer)
	}
}

// 13.
func TestAnInvoiceThatTheBotDoesNotKnowIsDeclined(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t))
	ann := b.person(1)
	mine, err := b.bot.Invoice(ann.link(pack))
	b.must(err)
	plan, err := b.bot.Invoice(ann.link(pro))
	b.must(err)
	for name, test := range map[string]struct {
		payload string
		stars   int64
	}{
		"invented":             {"hf-invented", 100},
		"of another program":   {"order 17", 100},
		"cheaper":              {mine.Payload, 1},
		"a plan for a pack's":  {plan.Payload, 100},
		"with something added": {mine.Payload + "x", 100},
	} {
		behind := ann.Last().ID
		b.post(botToken, "sendInvoice", map[string]any{
			"chat_id": 1, "title": "Credits", "description": "100 credits", "payload": test.payload, "currency": "XTR",
			"prices": []map[string]any{{"label": "Credits", "amount": test.stars}},
		})
		forged, err := ann.Await(b.within(), func(m fakeapi.Message) bool { return m.ID > behind && m.Invoice != nil })
		b.must(err)
		_, err = ann.Pay(b.within(), ann.Payable(forged.ID))
		if said := b.declined(err); !strings.Contains(said, "ask for a new") {
			t.Errorf("%s: declined with %q", name, said)
		}
	}
	b.stays(1, 5)
	b.end()
}

// 14. The stand-in, as Telegram, lets bots ask for Stars alone: so the query is of the test's own making.
func TestOnlyStarsAreTaken(t *testing.T) {
	t.Parallel()
	b, g := withWebhook(t, database(t))
	ann := b.person(1)
	invoice, err := b.bot.Invoice(ann.link(pack))
	b.must(err)
	for i, currency := range []string{"EUR", "USD", "xtr", ""} {
		update := fmt.Sprintf(`{"update_id":%d,"pre_checkout_query":{"id":"forged-%d","from":{"id":1,"language_code":"en"},"currency":%q,"total_amount":100,"invoice_payload":%q}}`,
			9_000_000+i, i, currency, invoice.Payload)
		answer, err := g.forward(b.within(), "http://"+b.listens()+g.path, g.secret, []byte(update))
		b.must(err)
		if answer.status != http.StatusOK {
			t.Errorf("%q: answered with %d", currency, answer.status)
		}
		asked := func(e fakeapi.Entry) bool {
			return e.Name == "answerPreCheckoutQuery" && e.Parameters["pre_checkout_query_id"] == fmt.Sprintf("forged-%d", i)
		}
		b.until("the query is answered", b.process, func() bool { return len(b.telegram.Transcript().Where(asked)) > 0 })
		for _, e := range b.telegram.Transcript().Where(asked) {
			if e.Parameters["ok"] == "true" {
				t.Errorf("%q was approved", currency)
			}
		}
	}
	b.stays(1, 5)
	b.end()
}

// listens is where the bot's webhook is.
func (b *chatBot) listens() string {
	return strings.TrimPrefix(b.process.url, "http://")
}

// 15. An outage of more than a day: no update tells of the payment any more.
func TestAPaymentThatAnOutageLostIsFoundByReconciling(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		b := newChatBot(t, db)
		ann := b.person(1)
		link := ann.link(pack)
		b.bot.DropNext("message", 1)
		paid, err := ann.Pay(b.within(), link)
		b.must(err)
		b.stays(1, 5)
		reconcile := func(wanted string) {
			t.Helper()
			cmd := command(t, "reconcile", "payments", "--provider", "telegram_stars", "--db", db, "--api-url", b.telegram.URL)
			cmd.Env = environment("TELEGRAM_BOT_TOKEN=" + botToken)
			out, err := cmd.CombinedOutput()
			if err != nil || strings.Contains(string(out), botSecret) {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Logf("%s: %s", wanted, out)
		}
		if strings.HasPrefix(db, "sqlite:") {
			b.process.interrupt() // one process serves a file
		}
		reconcile("granted")
		reconcile("nothing")
		if strings.HasPrefix(db, "sqlite:") {
			b.run()
		}
		b.has(1, 105)
		ann = b.talkerOf(1)
		ann.sees(0, "Thank you!")
		ann.asks("/paysupport", paid.ChargeID)
		b.end()
	})
}

// 16.
func TestOfAHundredRequestsOnABalanceOfFiveFiveAreTaken(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		b := newChatBot(t, db, "--at-once", "20")
		release := sync.OnceFunc(b.provider.Hold())
		defer release()
		groups := make([]*talker, 50) // Telegram takes few messages in one chat
		ann := b.person(1)
		for i := range groups {
			groups[i] = &talker{ann.In(b.bot.Group(int64(-1000-i), "a group")), b.botStage, b.process}
		}
		b.bot.Hold()
		for n := range 2 {
			for i, g := range groups {
				g.Send(fmt.Sprintf("/image@%s improve %d-%d", b.bot.Username(), i, n))
			}
		}
		b.bot.Release()
		b.drained()
		answers := func(text string) (n int) {
			for _, g := range groups {
				n += b.times(g, text)
			}
			return n
		}
		b.until("everybody has an answer", b.process, func() bool {
			taken := 0
			for _, call := range b.provider.Calls() {
				if strings.HasPrefix(call.Prompt, "improve") {
					taken++
				}
			}
			return taken == 5 && answers("No free requests")+answers("Needed:") >= 95
		})
		if shown := b.account(1); shown.Balances[0].Available != 0 || shown.Balances[0].Reserved != 5 || shown.Active != 5 {
			t.Errorf("it holds %+v", shown)
		}
		release()
		b.has(1, 0)
		if worked := b.provider.Worked(); worked != 5 {
			t.Errorf("the provider worked %d times", worked)
		}
		b.end()
	})
}

// 17.
func TestACancelAgainstAStartIsChargedAsItIsTold(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t), "--at-once", "8")
	const people = 12
	them := make([]*talker, people)
	for i := range them {
		them[i] = b.person(int64(i + 1))
	}
	each(people, func(i int) {
		behind := them[i].Send(fmt.Sprintf("words of %d", i))
		shown, err := them[i].Await(b.within(), func(m fakeapi.Message) bool { return m.ID > behind && m.From.IsBot })
		if err != nil {
			t.Error(err)
			return
		}
		if len(shown.Keyboard) == 0 {
			return // it had begun already
		}
		tap, err := them[i].TapStale(shown.ID, shown.Keyboard[0][0].Data)
		if err == nil {
			_, err = tap.Answer(b.within())
		}
		if err != nil {
			t.Error(err)
		}
	})
	cancelled := 0
	for i, p := range them {
		result, told := fmt.Sprintf("words of %d", i), "The request was cancelled. Nothing was charged."
		isResult := func(m fakeapi.Message) bool { return m.From.IsBot && strings.HasSuffix(m.Text, result) }
		b.until("what is shown is final", b.process, func() bool {
			return slices.ContainsFunc(p.Messages(), func(m fakeapi.Message) bool { return isResult(m) || strings.Contains(m.Text, told) })
		})
		gone := slices.ContainsFunc(p.Messages(), func(m fakeapi.Message) bool { return strings.Contains(m.Text, told) })
		if gone {
			cancelled++
			b.has(p.ID(), 5)
		} else {
			b.has(p.ID(), 4)
		}
		if delivered := slices.ContainsFunc(p.Messages(), isResult); delivered == gone {
			t.Errorf("%d: the result is there: %t; cancelled is said: %t", p.ID(), delivered, gone)
		}
	}
	t.Logf("%d of %d were cancelled in time", cancelled, people)
	b.end()
}

// 18.
func TestThreeTapsOnCancelAreOneCancelAndAllAnswered(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		b := newChatBot(t, db, "--at-once", "1")
		release := sync.OnceFunc(b.provider.Hold())
		defer release()
		ann, bob := b.person(1), b.person(2)
		ann.asks("the first", "Working on it…")
		status := bob.asks("the second", "In the queue…")
		data := status.Keyboard[0][0].Data
		taps := make([]*fakeapi.Tap, 3)
		for i := range taps {
			var err error
			taps[i], err = bob.TapStale(status.ID, data)
			b.must(err)
		}
		each(len(taps), func(i int) {
			answer, err := taps[i].Answer(b.within())
			if err != nil || !strings.HasPrefix(answer.Text, "The request was cancelled. Nothing was charged.") {
				t.Errorf("tap %d is answered with %q, %v", i, answer.Text, err)
			}
		})
		release()
		ann.sees(status.ID-10, "the first")
		b.has(1, 4)
		b.has(2, 5)
		if worked := b.provider.Worked(); worked != 1 {
			t.Errorf("the provider worked %d times", worked)
		}
		b.end()
	})
}

// 19.
func TestAQueueNoticeNeverComesAfterTheResult(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t), "--at-once", "1")
	b.provider.Latency = 700 * time.Millisecond // so that notices become due while the queue moves
	const people = 8
	them := make([]*talker, people)
	for i := range them {
		them[i] = b.person(int64(i + 1))
	}
	const notice = "Your request is waiting for its turn"
	each(people, func(i int) { them[i].asks(fmt.Sprintf("words of %d", i), fmt.Sprintf("words of %d", i)) })
	noticed := 0
	for i, p := range them {
		b.has(p.ID(), 4)
		result := fmt.Sprintf("words of %d", i)
		if err := b.telegram.Transcript().NeverAfter(fakeapi.Shown(notice).In(p.Chat()), fakeapi.Shown(result).In(p.Chat())); err != nil {
			t.Error(err)
		}
		noticed += b.times(p, notice)
	}
	if noticed == 0 {
		t.Error("nobody had to wait, so this test looks at nothing")
	}
	b.end()
}

// 20.
func TestAKilledBotLeavesNoCancelButtonThatDoesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		b := newChatBot(t, db, "--at-once", "2")
		release := sync.OnceFunc(b.provider.Hold())
		defer release()
		const people = 5
		them := make([]*talker, people)
		for i := range them {
			them[i] = b.person(int64(i + 1))
			them[i].Send(fmt.Sprintf("words of %d", i))
		}
		for _, p := range them {
			p.sees(0, "…")
		}
		b.process.kill()
		release()
		b.run()
		for i, p := range them {
			p.process = b.process
			b.has(p.ID(), 4)
			p.sees(0, fmt.Sprintf("words of %d", i))
			// Where the process died between sending a status message and noting it, nobody knows of its button: pressed, it says
			// how it is, and goes.
			for _, m := range p.Messages() {
				if cancel, there := m.Button("Cancel"); there {
					tap, err := p.TapStale(m.ID, cancel.Data)
					b.must(err)
					answer, err := tap.Answer(b.within())
					if err != nil || answer.Text == "" || strings.Contains(answer.Text, "cancelled") {
						t.Errorf("%d: a button that was left is answered with %q, %v", p.ID(), answer.Text, err)
					}
				}
			}
			b.until("no button is left", b.process, func() bool {
				return !slices.ContainsFunc(p.Messages(), func(m fakeapi.Message) bool {
					_, cancel := m.Button("Cancel")
					return cancel
				})
			})
		}
		b.end()
	})
}

// 21.
func TestUpdatesWhoseIDsJumpBackAreTaken(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		b := newChatBot(t, db)
		ann := b.person(1)
		ann.asks("first", "first")
		b.bot.JumpBack()
		ann.asks("second", "second")
		b.bot.JumpBack()
		ann.pays(pack)
		b.has(1, 103)
		ids := []int64{}
		for _, u := range b.bot.Updates("message") {
			ids = append(ids, u.ID)
		}
		if slices.IsSorted(ids) {
			t.Errorf("no id has jumped back: %v", ids)
		}
		b.end()
	})
}

// 22.
func TestWhoHasBlockedTheBotIsNotChargedAndNotWrittenTo(t *testing.T) {
	t.Parallel()
	b := newChatBot(t, database(t))
	release := sync.OnceFunc(b.provider.Hold())
	defer release()
	ann := b.person(1)
	ann.asks("for nobody", "Working on it…")
	ann.Block()
	release()
	b.has(1, 5)
	b.drained()
	tried := func() int {
		return len(b.telegram.Transcript().Where(func(e fakeapi.Entry) bool {
			return e.Kind == fakeapi.Called && e.Chat == ann.Chat() && e.Code == http.StatusForbidden
		}))
	}
	// Whatever there is to tell now is not told: others are, meanwhile.
	operator := b.person(99)
	before := tried()
	operator.asks("/grant 1 7 credit sorry", "Added: 7 credits")
	bob := b.person(2)
	bob.asks("for bob", "for bob")
	b.has(1, 12)
	if after := tried(); after != before {
		t.Errorf("it was written to somebody who has blocked the bot %d times more", after-before)
	}
	ann.Unblock()
	ann.asks("/balance", "12 credits")
	b.end()
}

// 23.
func TestAResultThatTelegramDoesNotTakeYetIsDeliveredLaterUnderOneCharge(t *testing.T) {
	onBoth(t, func(t *testing.T, db string) {
		b := newChatBot(t, db)
		release := sync.OnceFunc(b.provider.Hold())
		defer release()
		ann := b.person(1)
		ann.asks("words to improve", "Working on it…")
		b.bot.Fail(fakeapi.Fault{Kind: fakeapi.TooMany, Method: "sendMessage", Chat: 1, RetryAfter: 3, Times: 2})
		release()
		ann.sees(ann.Last().ID, "words to improve")
		b.has(1, 4)
		b.stays(1, 4)
		if worked, shown := b.provider.Worked(), b.times(ann, "words to improve"); worked != 1 || shown != 1 {
			t.Errorf("the provider worked %d times, and the result was shown %d times", worked, shown)
		}
		b.end()
	})
}

// 24. What a Mini App sends, signed here as Telegram documents it.
func TestInitDataOfEveryNameIsKnownAndWhatIsStaleOrForgedIsNot(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	sign := func(name string, at time.Time) (raw string) {
		user, _ := json.Marshal(map[string]any{"id": 7, "first_name": name, "last_name": "100% + 1"})
		fields := map[string]string{"auth_date": strconv.FormatInt(at.Unix(), 10), "query_id": "q", "user": string(user)}
		text := func() string {
			var lines []string
			for _, key := range slices.Sorted(maps.Keys(fields)) {
				lines = append(lines, key+"="+fields[key])
			}
			return strings.Join(lines, "\n")
		}
		id, _, _ := strings.Cut(botToken, ":")
		fields["signature"] = base64.RawURLEncoding.EncodeToString(ed25519.Sign(private, []byte(id+":WebAppData\n"+text())))
		key := hmac.New(sha256.New, []byte("WebAppData"))
		_, _ = key.Write([]byte(botToken))
		sum := hmac.New(sha256.New, key.Sum(nil))
		_, _ = sum.Write([]byte(text()))
		fields["hash"] = hex.EncodeToString(sum.Sum(nil))
		values := url.Values{}
		for name, value := range fields {
			values.Set(name, value)
		}
		return values.Encode()
	}
	number, _ := strconv.ParseInt(strings.Split(botToken, ":")[0], 10, 64)
	for _, name := range []string{"Ann", "A+B", "50% off", "%2B", "🚀 Ёлка", "a&b=c", "new\nline"} {
		raw := sign(name, now)
		own, err := initdata.Validate(raw, botToken, initdata.Options{})
		if err != nil || own.User == nil || own.User.FirstName != name {
			t.Errorf("%q by the token: %+v %v", name, own, err)
		}
		third, err := initdata.ValidateThirdParty(raw, number, initdata.Options{PublicKey: public})
		if err != nil || third.User == nil || third.User.FirstName != name {
			t.Errorf("%q by the key: %+v %v", name, third, err)
		}
		forged := strings.Replace(raw, "auth_date=1", "auth_date=2", 1)
		for what, err := range map[string]error{
			"stale, by the token":            second(initdata.Validate(sign(name, now.Add(-25*time.Hour)), botToken, initdata.Options{})),
			"stale, by the key":              second(initdata.ValidateThirdParty(sign(name, now.Add(-25*time.Hour)), number, initdata.Options{PublicKey: public})),
			"forged, by the token":           second(initdata.Validate(forged, botToken, initdata.Options{MaxAge: 1 << 62})),
			"another bot's, by the key":      second(initdata.ValidateThirdParty(raw, number+1, initdata.Options{PublicKey: public})),
			"signed by no key of Telegram's": second(initdata.ValidateThirdParty(raw, number, initdata.Options{})),
			"another bot's, by the token":    second(initdata.Validate(raw, otherBotToken, initdata.Options{})),
			"with a field twice":             second(initdata.Validate(raw+"&user=%7B%7D", botToken, initdata.Options{})),
		} {
			if err == nil {
				t.Errorf("%q: it is believed although it is %s", name, what)
			} else if strings.Contains(err.Error(), botSecret) || strings.Contains(err.Error(), name) && len(name) > 3 {
				t.Errorf("the error tells too much: %v", err)
			}
		}
	}
}

func second(_ initdata.Data, err error) error { return err }

// 25. newBotStage looks for the token in all logs; here everything goes wrong that is written about.
func TestNoLogLineHasTheTokenWhateverGoesWrong(t *testing.T) {
	t.Parallel()
	b, g := withWebhook(t, database(t))
	ann, operator := b.person(1), b.person(99)
	paid := ann.pays(pack)
	b.has(1, 105)
	for _, kind := range []fakeapi.FaultKind{fakeapi.Unreachable, fakeapi.Broken, fakeapi.LoseAnswer, fakeapi.TooMany, fakeapi.Refused} {
		b.bot.Fail(fakeapi.Fault{Kind: kind}, fakeapi.Fault{Kind: kind, Method: "sendMessage"}, fakeapi.Fault{Kind: kind, Method: "refundStarPayment"})
		b.provider.Next(fakeprovider.Broken, fakeprovider.ContentRefused)
		ann.Send("words")
		b.drained()
	}
	operator.Send("/refund " + paid.ChargeID)
	ann.sees(0, "The payment was refunded")
	for _, nonsense := range []string{"", "{", `{"update_id":1}`, `{"update_id":7,"message":{"from":{"id":1},"chat":{"id":1,"type":"private"},"text":"\u0000"}}`} {
		if _, err := g.forward(b.within(), "http://"+b.listens()+g.path, g.secret, []byte(nonsense)); err != nil {
			t.Error(err)
		}
		if answer, err := g.forward(b.within(), "http://"+b.listens()+g.path, "guess", []byte(nonsense)); err != nil || answer.status != http.StatusUnauthorized {
			t.Errorf("a stranger is answered with %d, %v", answer.status, err)
		}
	}
	b.bot.Heal()
	b.telegram.Close() // and then Telegram is away altogether
	b.until("the log tells of it", b.process, func() bool { return strings.Contains(b.process.notes.String(), "level=WARN") })
	b.process.interrupt()
	text := b.process.notes.String()
	if strings.Contains(text, g.secret) || strings.Contains(text, botSecret) || !strings.Contains(text, "level=") {
		t.Errorf("the log says\n%s", text)
	}
}
