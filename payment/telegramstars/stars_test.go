package telegramstars_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/paytest"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bot is a bot that sells in a shop.
type bot struct {
	*paytest.Shop
	*telegramstars.Stars
	t       *testing.T
	updates int64
}

// onEveryStore runs a test with a bot on every store.
func onEveryStore(t *testing.T, test func(t *testing.T, b *bot)) {
	t.Helper()
	paytest.OnEveryStore(t, telegramstars.Provider, func(t *testing.T, shop *paytest.Shop) {
		test(t, &bot{Shop: shop, Stars: &telegramstars.Stars{Book: shop.Book, Bot: "7000001"}, t: t, updates: 1000})
	})
}

const (
	ann  = "telegram:42"
	anns = int64(42)
	bob  = "telegram:43"
	bobs = int64(43)
)

// order makes an order of ann's, and returns its payload.
func (b *bot) order(product string, recurring bool) string {
	b.t.Helper()
	order, err := b.NewOrder(b.t.Context(), telegramstars.NewOrder{Account: ann, Product: product, Recurring: recurring})
	if err != nil {
		b.t.Fatal(err)
	}
	return order.Reference
}

// message is a payment's message as Telegram sends it: all fields, also those that nobody here reads.
type message struct {
	user            int64
	payload, charge string
	stars           int64
	currency        string // empty: XTR
	at              time.Time
	until           time.Time // of a subscription
	renewal         bool
}

func (b *bot) update(kind string, content any) []byte {
	b.t.Helper()
	b.updates++
	raw, err := json.Marshal(map[string]any{"update_id": b.updates, kind: content})
	if err != nil {
		b.t.Fatal(err)
	}
	return raw
}

func (b *bot) paid(m message) []byte {
	b.t.Helper()
	if m.currency == "" {
		m.currency = "XTR"
	}
	if m.at.IsZero() {
		m.at = b.Now()
	}
	p := map[string]any{
		"currency": m.currency, "total_amount": m.stars, "invoice_payload": m.payload, "telegram_payment_charge_id": m.charge,
		"provider_payment_charge_id": "",
	}
	if !m.until.IsZero() {
		p["subscription_expiration_date"], p["is_recurring"] = m.until.Unix(), true
		if !m.renewal {
			p["is_first_recurring"] = true
		}
	}
	return b.service(m.user, m.at, "successful_payment", p)
}

func (b *bot) service(user int64, at time.Time, field string, content any) []byte {
	b.t.Helper()
	person := map[string]any{"id": user, "is_bot": false, "first_name": "Анна"}
	return b.update("message", map[string]any{
		"message_id": 1, "date": at.Unix(), "from": person, "chat": map[string]any{"id": user, "type": "private"}, field: content,
	})
}

func (b *bot) refunded(user int64, charge string, stars int64) []byte {
	b.t.Helper()
	return b.service(user, b.Now(), "refunded_payment", map[string]any{
		"currency": "XTR", "total_amount": stars, "invoice_payload": "whatever", "telegram_payment_charge_id": charge,
	})
}

func (b *bot) subscription(user int64, payload, state string) []byte {
	b.t.Helper()
	return b.update("subscription", map[string]any{"user": map[string]any{"id": user, "first_name": "A"}, "invoice_payload": payload, "state": state})
}

// tell hands raw updates over, each of which must be stored.
func (b *bot) tell(raw ...[]byte) (last telegramstars.Result) {
	b.t.Helper()
	for _, r := range raw {
		result, err := b.told(r)
		if err != nil {
			b.t.Fatalf("%s: %v", r, err)
		}
		last = result
	}
	return last
}

func (b *bot) told(raw []byte) (telegramstars.Result, error) {
	update, err := telegramstars.Decode(raw)
	if err != nil {
		return telegramstars.Result{}, err
	}
	return b.Handle(context.WithoutCancel(b.t.Context()), update)
}

func (b *bot) ask(user int64, payload string, stars holdfast.Amount) telegramstars.Answer {
	b.t.Helper()
	return b.PreCheckout(b.t.Context(), telegramstars.PreCheckoutQuery{
		ID: "q", From: telegramstars.User{ID: user}, Currency: "XTR", TotalAmount: stars, InvoicePayload: payload,
	})
}

func same[T comparable](t *testing.T, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: got %v, wanted %v", what, got, wanted)
	}
}

// 1
func TestOnePaymentDeliveredTenTimesAtOnceIsOneCredit(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		raw := b.paid(message{user: anns, payload: b.order("credits_100", false), charge: "c1", stars: 100})
		var all sync.WaitGroup
		changed := make(chan bool, 10)
		for range 10 {
			all.Go(func() {
				result, err := b.told(raw)
				if err != nil || result.Payment.State != holdfast.PaymentGranted {
					t.Errorf("%+v, %v", result, err)
				}
				changed <- result.Changed
			})
		}
		all.Wait()
		close(changed)
		effects := 0
		for c := range changed {
			if c {
				effects++
			}
		}
		same(t, "effects", effects, 1)
		same(t, "credits", b.Credits(ann), 100)
		same(t, "pockets", b.Grants(ann), 1)
	})
}

// 2
func TestASecondPaymentOfOneOrderIsCreditedToo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload := b.order("credits_100", false)
		b.tell(b.paid(message{user: anns, payload: payload, charge: "c1", stars: 100}))
		same(t, "a further pre-checkout", b.ask(anns, payload, 100).Reason, telegramstars.OrderPaid)
		b.tell(b.paid(message{user: anns, payload: payload, charge: "c2", stars: 100}))
		same(t, "credits", b.Credits(ann), 200)
	})
}

// 3
func TestAPreCheckoutGrantsNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload := b.order("credits_100", false)
		same(t, "the answer", b.ask(anns, payload, 100), telegramstars.Answer{OK: true, Account: ann})
		same(t, "the answer again", b.ask(anns, payload, 100), telegramstars.Answer{OK: true, Account: ann})
		same(t, "credits", b.Credits(ann), 0)
		same(t, "seen", b.See(ann).Exists, false)
	})
}

// 4
func TestAPaymentWhoseAnswerWasLostIsNotCreditedAgain(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		raw := b.paid(message{user: anns, payload: b.order("credits_100", false), charge: "c1", stars: 100})
		b.Fail(paytest.Lost)
		if _, err := b.told(raw); err == nil {
			t.Error("the answer was lost, and nobody said so")
		}
		same(t, "changed", b.tell(raw).Changed, false)
		same(t, "credits", b.Credits(ann), 100)
	})
}

// 5
func TestAPaymentThatCannotBeStoredIsTakenLater(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		raw := b.paid(message{user: anns, payload: b.order("credits_100", false), charge: "c1", stars: 100})
		b.Fail(paytest.Down, paytest.Down)
		for range 2 {
			if _, err := b.told(raw); err == nil {
				t.Error("it was not stored, and nobody said so")
			}
		}
		same(t, "credits", b.Credits(ann), 0)
		same(t, "changed", b.tell(raw).Changed, true)
		same(t, "credits", b.Credits(ann), 100)
	})
}

// 6
func TestARefundToldTwiceIsOneRefund(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		b.tell(b.paid(message{user: anns, payload: b.order("credits_100", false), charge: "c1", stars: 100}))
		// Our own call refunded and its answer was lost; the call again says that it was refunded already. Telegram tells of it
		// once, or twice.
		b.Fail(paytest.Lost)
		raw := b.refunded(anns, "c1", 100)
		if _, err := b.told(raw); err == nil {
			t.Error("the answer was lost, and nobody said so")
		}
		result := b.tell(raw, b.refunded(anns, "c1", 100))
		same(t, "changed", result.Changed, false)
		same(t, "refunded", b.Paid("c1").Refunded, 100)
		same(t, "credits", b.Credits(ann), 0)
	})
}

// 7
func TestARefundMayComeBeforeItsPayment(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload := b.order("credits_100", false)
		same(t, "the refund", b.tell(b.refunded(anns, "c1", 100)).Kind, telegramstars.RefundPending)
		b.tell(b.paid(message{user: anns, payload: payload, charge: "c1", stars: 100}))
		same(t, "refunded", b.Paid("c1").Refunded, 100)
		same(t, "credits", b.Credits(ann), 0)
	})
}

// 8
func TestRenewalsInAnyOrderEndAtTheLatestExpirationAndGrantOncePerCharge(t *testing.T) {
	for seed := range uint64(4) {
		onEveryStore(t, func(t *testing.T, b *bot) {
			payload := b.order("pro_30", true)
			end := func(n int) time.Time {
				return paytest.Morning.Add(paytest.Days(30 * n)).Add(time.Duration(n) * time.Second)
			}
			charge := func(n int) []byte {
				return b.paid(message{
					user: anns, payload: payload, charge: fmt.Sprint("c", n), stars: 250, at: end(n - 1), until: end(n), renewal: n > 1,
				})
			}
			random := rand.New(rand.NewPCG(seed, 8))
			for step, told := range [][]int{{1, 1, 2, 2}, {3, 2, 3}, {4, 3, 1, 4}} {
				b.Pass(end(step + 1).Add(-time.Minute).Sub(b.Now())) // a renewal is told about when it is due
				random.Shuffle(len(told), func(i, j int) { told[i], told[j] = told[j], told[i] })
				for _, n := range told {
					b.tell(charge(n))
				}
			}
			same(t, "paid until", b.See(ann).Subscription.PaidUntil, end(4))
			order, err := b.Stars.Book.Find(t.Context(), payload)
			if err != nil || order.Payment != "c1" || order.Payer != "42" {
				t.Errorf("the first payment: %+v, %v", order, err)
			}
			for n := 1; n <= 4; n++ {
				same(t, "state", b.Paid(fmt.Sprint("c", n)).State, holdfast.PaymentGranted)
			}
			// Every charge opens its 300 once: with its period, or, where a later one was told before, at once.
			for range 4 {
				b.Do(ann, holdfast.PutAccount{Metadata: map[string]string{"seen": b.Now().String()}})
				b.Pass(paytest.Days(30))
			}
			same(t, "pockets", b.Grants(ann), 4)
		})
	}
}

// 9
func TestACancelledOrFailedSubscriptionKeepsWhatIsPaid(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload := b.order("pro_30", true)
		end := b.Now().Add(paytest.Days(30))
		b.tell(b.paid(message{user: anns, payload: payload, charge: "c1", stars: 250, until: end}))
		same(t, "failed", b.tell(b.subscription(anns, payload, "failed")).Kind, telegramstars.RenewalFailed)
		same(t, "status", b.See(ann).Subscription.Status, holdfast.SubscriptionActive)
		canceled := b.subscription(anns, payload, "canceled")
		same(t, "changed", b.tell(canceled).Changed, true)
		same(t, "status", b.See(ann).Subscription.Status, holdfast.SubscriptionCancelled)
		same(t, "credits", b.Credits(ann), 300)
		b.tell(b.subscription(anns, payload, "active"))
		same(t, "status", b.See(ann).Subscription.Status, holdfast.SubscriptionActive)
		b.tell(canceled) // delivered again
		same(t, "status", b.See(ann).Subscription.Status, holdfast.SubscriptionActive)
		same(t, "of somebody else", b.tell(b.subscription(bobs, payload, "canceled")).Kind, telegramstars.Ignored)
		b.tell(b.subscription(anns, payload, "canceled"))
		b.Pass(paytest.Days(30) - time.Second)
		same(t, "plan before the end", b.See(ann).Plan, "pro")
		b.Pass(time.Second)
		same(t, "plan at the end", b.See(ann).Plan, "free")
	})
}

func TestASubscriptionCancelledBeforeItsPaymentWasToldIsCancelled(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload := b.order("pro_30", true)
		first := b.paid(message{user: anns, payload: payload, charge: "c1", stars: 250, until: b.Now().Add(paytest.Days(30))})
		b.Pass(time.Minute)
		canceled := b.subscription(anns, payload, "canceled")
		b.tell(canceled, first)
		same(t, "status", b.See(ann).Subscription.Status, holdfast.SubscriptionCancelled)
		b.tell(canceled, first)
		same(t, "status", b.See(ann).Subscription.Status, holdfast.SubscriptionCancelled)
		// Charged again later: the user had resumed it, and that update was lost.
		b.Pass(paytest.Days(29))
		b.tell(b.paid(message{user: anns, payload: payload, charge: "c2", stars: 250, until: b.Now().Add(paytest.Days(31)), renewal: true}))
		same(t, "status", b.See(ann).Subscription.Status, holdfast.SubscriptionActive)
	})
}

// 10
func TestTheSamePlanIsNotSoldTwice(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		end := b.Now().Add(paytest.Days(30))
		b.tell(b.paid(message{user: anns, payload: b.order("pro_30", true), charge: "c1", stars: 250, until: end}))
		refused := telegramstars.Answer{Reason: telegramstars.AlreadySubscribed, Until: end, Account: ann}
		same(t, "a second subscription", b.ask(anns, b.order("pro_30", true), 250), refused)
		same(t, "a single payment beside it", b.ask(anns, b.order("pro_30", false), 250), refused)
		same(t, "a dearer plan", b.ask(anns, b.order("max_30", true), 900).OK, true)
		same(t, "credits", b.ask(anns, b.order("credits_100", false), 100).OK, true)
		b.Pass(paytest.Days(31)) // in its grace: what is bought now begins at once
		same(t, "in its grace", b.ask(anns, b.order("pro_30", true), 250).OK, true)
	})
}

// 11
func TestAnotherPersonsInvoiceIsRefusedAndAPaymentOfItIsKeptForItsPayer(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload := b.order("pro_30", true)
		same(t, "the answer", b.ask(bobs, payload, 250).Reason, telegramstars.WrongPerson)
		raw := b.paid(message{user: bobs, payload: payload, charge: "c1", stars: 250, until: b.Now().Add(paytest.Days(30))})
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				if _, err := b.told(raw); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		result := b.tell(raw)
		same(t, "whose", result.Account, bob)
		same(t, "state", b.Paid("c1").State, holdfast.PaymentFlagged)
		same(t, "why", b.Paid("c1").Product, payment.AnothersOrder)
		same(t, "bob's plan", b.See(bob).Plan, "free")
		same(t, "ann's plan", b.See(ann).Plan, "free")
		// Nothing was granted for it, so it should not be charged again.
		same(t, "actions", fmt.Sprint(result.Actions), fmt.Sprint([]telegramstars.Action{{Kind: telegramstars.CancelSubscription, User: bobs, ChargeID: "c1"}}))
		// The order is still ann's to pay, and bob's payment can be refunded.
		same(t, "the answer", b.ask(anns, payload, 250).OK, true)
		b.tell(b.paid(message{user: anns, payload: payload, charge: "c2", stars: 250, until: b.Now().Add(paytest.Days(30))}))
		same(t, "ann's plan", b.See(ann).Plan, "pro")
		b.tell(b.refunded(bobs, "c1", 250))
		same(t, "refunded", b.Paid("c1").Refunded, 250)
		same(t, "ann's plan", b.See(ann).Plan, "pro")
	})
}

func TestAnotherNameOfTheSamePersonMayPay(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		b.Do(ann, holdfast.PutAccount{})
		b.Do(bob, holdfast.LinkAlias{Into: holdfast.AccountIDOf(paytest.Project, ann)})
		payload := b.order("credits_100", false)
		same(t, "the answer", b.ask(bobs, payload, 100).OK, true)
		b.tell(b.paid(message{user: bobs, payload: payload, charge: "c1", stars: 100}))
		same(t, "credits", b.Credits(ann), 100)
	})
}

// 12
func TestAChangedPriceIsHonouredOrRefusedAndNeverSilent(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload := b.order("credits_100", false)
		b.Sell(func(c *holdfast.Catalog) { c.Products[4].Prices[0].Amount = 120 })
		same(t, "with the order's price", b.ask(anns, payload, 100), telegramstars.Answer{OK: true, Account: ann})
		same(t, "with the new price", b.ask(anns, payload, 120).Reason, telegramstars.PriceChanged)
		b.tell(b.paid(message{user: anns, payload: payload, charge: "c1", stars: 100}))
		same(t, "credits", b.Credits(ann), 100)

		b.Sell(func(*holdfast.Catalog) {})
		late := b.order("credits_100", false)
		b.Sell(func(c *holdfast.Catalog) { c.Products[4].Prices[0].Amount = 120 })
		b.Pass(24 * time.Hour)
		same(t, "a day later", b.ask(anns, late, 100).Reason, telegramstars.PriceChanged)
		b.Sell(func(c *holdfast.Catalog) { c.Products = c.Products[:4] })
		same(t, "not sold any more", b.ask(anns, late, 100).Reason, telegramstars.NotSold)

		b.Sell(func(*holdfast.Catalog) {})
		b.tell(b.paid(message{user: anns, payload: late, charge: "c2", stars: 99}))
		same(t, "another amount", b.Paid("c2").Flag, holdfast.WrongAmount)
		same(t, "credits", b.Credits(ann), 100)
	})
}

// 13
func TestAPayloadThatIsNotOursIsRefusedAndAPaymentOfItIsKept(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload := b.order("credits_100", false)
		other := &telegramstars.Stars{Book: b.Stars.Book, Bot: "7000002"}
		for what, answer := range map[string]telegramstars.Answer{
			"tampered":        b.ask(anns, payload+"x", 100),
			"empty":           b.ask(anns, "", 100),
			"another payload": b.ask(anns, "pro_30:42", 100),
			"another bot": other.PreCheckout(t.Context(), telegramstars.PreCheckoutQuery{
				From: telegramstars.User{ID: anns}, Currency: "XTR", TotalAmount: 100, InvoicePayload: payload,
			}),
		} {
			same(t, what, answer.Reason, telegramstars.OrderUnknown)
		}
		result := b.tell(b.paid(message{user: anns, payload: "pro_30:42", charge: "c1", stars: 250}))
		same(t, "whose", result.Account, ann)
		same(t, "flag", b.Paid("c1").Flag, holdfast.WrongProduct)
		same(t, "plan", b.See(ann).Plan, "free")
		same(t, "of an unknown order", b.tell(b.subscription(anns, "pro_30:42", "canceled")).Kind, telegramstars.Ignored)
		if len(payload) > 128 {
			t.Errorf("the payload has %d bytes", len(payload))
		}
		if again := b.order("credits_100", false); again == payload {
			t.Error("two orders have one payload")
		}
	})
}

// 14
func TestOnlyStarsAreTaken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload := b.order("pro_30", false)
		answer := b.PreCheckout(t.Context(), telegramstars.PreCheckoutQuery{From: telegramstars.User{ID: anns}, Currency: "USD", TotalAmount: 250, InvoicePayload: payload})
		same(t, "the answer", answer.Reason, telegramstars.WrongCurrency)
		b.tell(b.paid(message{user: anns, payload: payload, charge: "c1", stars: 250, currency: "USD"}))
		same(t, "flag", b.Paid("c1").Flag, holdfast.WrongCurrency)
		same(t, "plan", b.See(ann).Plan, "free")
	})
}

// 15
func TestWhatAnOutageLostIsFoundByReconciling(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		api := newStandIn(t)
		start := b.Now()
		once, plan, gone, cheap := b.order("credits_100", false), b.order("pro_30", true), b.order("credits_100", false), b.order("credits_100", false)
		api.RecordOther(map[string]any{"id": "w1", "amount": 5, "date": start.Unix(), "receiver": map[string]any{"type": "fragment"}})
		for i := range 150 { // more than a page of other things
			api.RecordOther(map[string]any{"id": fmt.Sprint("gift", i), "amount": 5, "date": start.Unix(), "source": map[string]any{"type": "telegram_ads"}})
		}
		paid := func(id, payload string, stars int64, until time.Time) {
			api.Record(fakeapi.Payment{ChargeID: id, Payload: payload, Payer: anns, Stars: stars, At: start, Until: until})
		}
		refund := func(id string) {
			if err := api.RecordRefund(id); err != nil {
				t.Fatal(err)
			}
		}
		paid("here", once, 100, time.Time{})
		b.tell(b.paid(message{user: anns, payload: once, charge: "here", stars: 100}))
		paid("missed", plan, 250, start.Add(paytest.Days(30)))
		paid("refunded", gone, 100, time.Time{})
		b.tell(b.paid(message{user: anns, payload: gone, charge: "refunded", stars: 100}))
		refund("refunded")
		paid("both", "lost order", 100, time.Time{})
		refund("both")
		api.RecordOther(map[string]any{"id": "affiliate", "amount": 90, "date": start.Unix(), "source": map[string]any{
			"type": "user", "transaction_type": "invoice_payment", "user": map[string]any{"id": anns}, "invoice_payload": cheap,
			"affiliate": map[string]any{"commission_per_mille": 100, "amount": 1},
		}})
		b.tell(b.paid(message{user: bobs, payload: "a forged update", charge: "forged", stars: 1_000}))
		b.Pass(25 * time.Hour) // longer than Telegram keeps updates

		found, _, err := b.Reconcile(t.Context(), api)
		if err != nil {
			t.Fatal(err)
		}
		told := func(what string, got []string, wanted ...string) {
			t.Helper()
			if !slices.Equal(got, wanted) {
				t.Errorf("%s: got %v, wanted %v", what, got, wanted)
			}
		}
		told("granted", found.Granted, "missed", "affiliate")
		told("flagged", found.Flagged, "both")
		told("refunded", found.Refunded, "refunded", "both")
		told("missing", found.Missing, "forged")
		same(t, "already", found.Already, 2)
		same(t, "paid until", b.See(ann).Subscription.PaidUntil, start.Add(paytest.Days(30)))
		same(t, "credits", b.Credits(ann), 100+300+100)

		again, _, err := b.Reconcile(t.Context(), api)
		if err != nil || len(again.Granted)+len(again.Flagged)+len(again.Refunded) != 0 || again.Already != 5 {
			t.Errorf("once more: %+v, %v", again, err)
		}
		// The update comes after all.
		b.tell(b.paid(message{user: anns, payload: plan, charge: "missed", stars: 250, until: start.Add(paytest.Days(30))}))
		same(t, "credits", b.Credits(ann), 100+300+100)
	})
}

func TestAnUpgradeCancelsTheOldSubscriptionAtTelegram(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		old, dearer := b.order("pro_30", true), b.order("max_30", true)
		b.tell(b.paid(message{user: anns, payload: old, charge: "c1", stars: 250, until: b.Now().Add(paytest.Days(30))}))
		b.Pass(paytest.Days(30))
		b.tell(b.paid(message{user: anns, payload: old, charge: "c2", stars: 250, until: b.Now().Add(paytest.Days(30)), renewal: true}))
		b.Pass(paytest.Days(1))
		raw := b.paid(message{user: anns, payload: dearer, charge: "c3", stars: 900, until: b.Now().Add(paytest.Days(30))})
		wanted := fmt.Sprint([]telegramstars.Action{{Kind: telegramstars.CancelSubscription, User: anns, ChargeID: "c1", Payload: old}})
		result := b.tell(raw)
		same(t, "actions", fmt.Sprint(result.Actions), wanted)
		same(t, "delivered again", fmt.Sprint(b.tell(raw).Actions), wanted)
		same(t, "plan", b.See(ann).Plan, "max")

		// The old one's last renewal arrives late: it is still the older one.
		late := b.tell(b.paid(message{user: anns, payload: old, charge: "c2b", stars: 250, until: b.Now().Add(paytest.Days(29)), renewal: true}))
		same(t, "after a late renewal", fmt.Sprint(late.Actions), wanted)

		api := newStandIn(t)
		api.Record(fakeapi.Payment{ChargeID: "c1", Payload: old, Payer: anns, Stars: 250, Until: b.Now().Add(paytest.Days(30))})
		action := result.Actions[0]
		if err := errors.Join(api.Do(t.Context(), action), b.Done(t.Context(), action)); err != nil {
			t.Fatal(err)
		}
		same(t, "edits", fmt.Sprint(api.edits()), "[42 c1 true]")
		same(t, "actions after it was done", len(b.tell(raw).Actions), 0)

		// Telegram tells that the old one was cancelled: the new one goes on.
		b.tell(b.subscription(anns, old, "canceled"))
		same(t, "status", b.See(ann).Subscription.Status, holdfast.SubscriptionActive)
		b.tell(b.subscription(anns, dearer, "canceled"))
		same(t, "status", b.See(ann).Subscription.Status, holdfast.SubscriptionCancelled)
	})
}

func TestARefusedUpgradeCancelsNothing(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		old, dearer := b.order("pro_30", true), b.order("max_30", true)
		b.tell(b.paid(message{user: anns, payload: old, charge: "c1", stars: 250, until: b.Now().Add(paytest.Days(30))}))
		b.Pass(time.Minute)
		result := b.tell(b.paid(message{user: anns, payload: dearer, charge: "c2", stars: 1, until: b.Now().Add(paytest.Days(30))}))
		same(t, "flag", result.Payment.Flag, holdfast.WrongAmount)
		same(t, "actions", len(result.Actions), 0)
	})
}

func TestABlockedPersonIsRefusedAndAPaymentOfTheirsIsKept(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload, yes := b.order("credits_100", false), true
		b.Do(ann, holdfast.PutAccount{Blocked: &yes})
		same(t, "the answer", b.ask(anns, payload, 100).Reason, telegramstars.AccountBlocked)
		b.tell(b.paid(message{user: anns, payload: payload, charge: "c1", stars: 100}))
		same(t, "flag", b.Paid("c1").Flag, holdfast.PayerBlocked)
	})
}

func TestAnEndThatTheCoreDoesNotAcceptIsLeftOut(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		b.tell(b.paid(message{user: anns, payload: b.order("pro_30", false), charge: "c1", stars: 250, until: b.Now().Add(paytest.Days(400))}))
		same(t, "paid until", b.See(ann).Subscription.PaidUntil, b.Now().Add(paytest.Days(30)))
		b.tell(b.paid(message{user: anns, payload: b.order("credits_100", false), charge: "c2", stars: 100, until: b.Now().Add(paytest.Days(30))}))
		same(t, "credits", b.Credits(ann), 400)
	})
}

// brokenOrders fails, or does not answer before its caller leaves.
type brokenOrders struct {
	payment.Orders
	hangs bool
}

func (o brokenOrders) OrderNamed(ctx context.Context, _ payment.OrderName) (payment.Order, bool, error) {
	if o.hangs {
		<-ctx.Done()
	}
	return payment.Order{}, false, errors.New("no disk")
}

func TestAPreCheckoutThatCannotBeAnsweredFailsClosed(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		payload := b.order("credits_100", false)
		for _, hangs := range []bool{false, true} {
			broken := *b.Stars.Book
			broken.Orders = brokenOrders{broken.Orders, hangs}
			stars := &telegramstars.Stars{Book: &broken, Bot: b.Bot, Deadline: time.Millisecond}
			answer := stars.PreCheckout(t.Context(), telegramstars.PreCheckoutQuery{
				From: telegramstars.User{ID: anns}, Currency: "XTR", TotalAmount: 100, InvoicePayload: payload,
			})
			same(t, fmt.Sprint("hangs: ", hangs), answer, telegramstars.Answer{Reason: telegramstars.TryAgain})
		}
	})
}

func TestOnlyWhatTelegramCanSellIsOrdered(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		for _, wanted := range []telegramstars.NewOrder{
			{Account: ann, Product: "nothing"},
			{Account: ann, Product: "pro_month"},                    // not for Stars
			{Account: ann, Product: "credits_100", Recurring: true}, // no plan
			{Account: "", Product: "pro_30"},
		} {
			if _, err := b.NewOrder(t.Context(), wanted); !errors.Is(err, telegramstars.ErrNotSold) {
				t.Errorf("%+v: %v", wanted, err)
			}
		}
		b.Sell(func(c *holdfast.Catalog) { c.Products[0].Prices[0].Amount = 10_001 })
		if _, err := b.NewOrder(t.Context(), telegramstars.NewOrder{Account: ann, Product: "pro_30", Recurring: true}); !errors.Is(err, telegramstars.ErrNotSold) {
			t.Errorf("a subscription that costs too much: %v", err)
		}
	})
}

func TestAnUpdateThatIsNoPaymentIsIgnored(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		for _, raw := range []string{
			`{"update_id": 1, "message": {"text": "hello", "date": 1, "chat": {"id": 42}}}`,
			`{"update_id": 2, "callback_query": {"id": "1", "data": "x"}}`,
			`{"update_id": 3, "subscription": {"user": {"id": 42}, "invoice_payload": "x", "state": "new"}}`,
		} {
			same(t, raw, b.tell([]byte(raw)).Kind, telegramstars.Ignored)
		}
		if _, err := telegramstars.Decode([]byte(`{"update_id": "x"`)); err == nil {
			t.Error("half an update was read")
		}
		if _, err := b.told([]byte(`{"update_id": 4, "message": {"date": 1, "successful_payment": {"currency": "XTR"}}}`)); err == nil {
			t.Error("a payment without an id was taken")
		}
	})
}
