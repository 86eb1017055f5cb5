package stripe_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	official "github.com/stripe/stripe-go/v84"
	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/fakestripe"
	"github.com/holdfast-dev/holdfast/internal/paytest"
	"github.com/holdfast-dev/holdfast/payment/stripe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seller is a shop with a webhook endpoint.
type seller struct {
	*paytest.Shop
	t       *testing.T
	webhook *stripe.Webhook
	log     *bytes.Buffer
	events  int
}

func onEveryStore(t *testing.T, test func(t *testing.T, s *seller)) {
	t.Helper()
	paytest.OnEveryStore(t, stripe.Provider, func(t *testing.T, shop *paytest.Shop) {
		s := &seller{Shop: shop, t: t, log: &bytes.Buffer{}}
		s.webhook = &stripe.Webhook{Book: shop.Book, Secrets: []string{"whsec_older", fakestripe.Secret}, Log: slog.New(slog.NewTextHandler(&locked{to: s.log}, nil))}
		test(t, s)
	})
}

// locked lets several requests log at once.
type locked struct {
	mu sync.Mutex
	to io.Writer
}

func (l *locked) Write(text []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.to.Write(text)
}

type object = fakestripe.Object

// send delivers a body and returns the status.
func (s *seller) send(body []byte) int {
	return s.sendSigned(body, fakestripe.Sign(body, fakestripe.Secret, time.Now()))
}

func (s *seller) sendSigned(body []byte, signature string) int {
	request := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	request.Header.Set("Stripe-Signature", signature)
	response := httptest.NewRecorder()
	s.webhook.ServeHTTP(response, request)
	return response.Code
}

// event is an event of now.
func (s *seller) event(kind string, o object) []byte {
	s.events++
	return fakestripe.Event(fmt.Sprint("evt_", s.events), kind, official.APIVersion, s.Now(), o)
}

// tell delivers events, which must be taken.
func (s *seller) tell(events ...[]byte) {
	s.t.Helper()
	for _, e := range events {
		same(s.t, "status of "+string(e), s.send(e), http.StatusOK)
	}
}

func metadata(account, product string) object { return object{"account": account, "product": product} }

func (s *seller) session(intent, status string, total int64) object {
	return object{
		"id": "cs_" + intent, "object": "checkout.session", "mode": "payment", "payment_status": status, "status": "complete", "payment_intent": intent,
		"amount_total": total, "amount_subtotal": total, "currency": "usd", "customer": "cus_1", "created": s.Now().Unix(), "metadata": metadata("ann", "credits_100"),
	}
}

// line is a line of an invoice.
func line(amount int64, from, to time.Time, proration bool) object {
	return object{
		"id": "il_1", "object": "line_item", "amount": amount, "currency": "usd", "period": object{"start": from.Unix(), "end": to.Unix()},
		"parent": object{"type": "subscription_item_details", "subscription_item_details": object{"proration": proration, "subscription": "sub_1"}},
	}
}

func (s *seller) invoice(id, reason, product string, paid int64, lines ...object) object {
	return object{
		"id": id, "object": "invoice", "status": "paid", "billing_reason": reason, "amount_paid": paid, "total": paid, "currency": "usd", "customer": "cus_1",
		"created": s.Now().Unix(), "status_transitions": object{"paid_at": s.Now().Unix()}, "lines": object{"object": "list", "data": lines},
		"parent":   object{"type": "subscription_details", "subscription_details": object{"subscription": "sub_1", "metadata": metadata("ann", product)}},
		"payments": object{"object": "list", "data": []object{{"object": "invoice_payment", "payment": object{"type": "payment_intent", "payment_intent": "pi_" + id}}}},
	}
}

// told is an invoice as webhooks show it: without what paid it.
func told(invoice object) object {
	copied := object{}
	for name, value := range invoice {
		if name != "payments" {
			copied[name] = value
		}
	}
	return copied
}

func paidBy(invoice, intent string) object {
	return object{"id": "inpay_1", "object": "invoice_payment", "invoice": invoice, "status": "paid", "payment": object{"type": "payment_intent", "payment_intent": intent}}
}

func (s *seller) subscription(product string, change object) object {
	o := object{"id": "sub_1", "object": "subscription", "status": "active", "currency": "usd", "cancel_at_period_end": false, "metadata": metadata("ann", product)}
	for name, value := range change {
		o[name] = value
	}
	return o
}

func refund(id, intent, status string, amount int64) object {
	return object{"id": id, "object": "refund", "amount": amount, "status": status, "payment_intent": intent, "charge": "ch_" + intent, "created": paytest.Morning.Unix()}
}

func dispute(id, intent, status string, amount int64) object {
	return object{"id": id, "object": "dispute", "amount": amount, "status": status, "payment_intent": intent, "charge": "ch_" + intent, "created": paytest.Morning.Unix()}
}

func charge(intent string, amount, refunded int64) object {
	return object{"id": "ch_" + intent, "object": "charge", "amount": amount, "amount_refunded": refunded, "refunded": refunded == amount, "payment_intent": intent}
}

func same[T comparable](t *testing.T, what string, got, wanted T) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: got %v, wanted %v", what, got, wanted)
	}
}

func month(from time.Time, n int) time.Time { return from.AddDate(0, n, 0) }

// first is the first invoice of a subscription to pro, for a month from now.
func (s *seller) first(id string) object {
	return s.invoice(id, "subscription_create", "pro_month", 499, line(499, s.Now(), month(s.Now(), 1), false))
}

func TestACheckoutIsGrantedWhenItIsPaid(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		s.tell(s.event("checkout.session.completed", s.session("pi_1", "paid", 250)))
		same(t, "credits", s.Credits("ann"), 100)
		s.tell(s.event("checkout.session.completed", s.session("pi_2", "unpaid", 250)))
		same(t, "credits of what is not paid", s.Credits("ann"), 100)
		s.tell(s.event("checkout.session.async_payment_failed", s.session("pi_2", "unpaid", 250)))
		same(t, "credits of what was never paid", s.Credits("ann"), 100)
		paid := s.session("pi_3", "paid", 250)
		s.tell(s.event("checkout.session.async_payment_succeeded", paid), s.event("checkout.session.completed", paid))
		same(t, "credits of what was paid later", s.Credits("ann"), 200)
	})
}

func TestOneEventTenTimesAtOnceIsOneEffect(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		bodies := [][]byte{s.event("checkout.session.completed", s.session("pi_1", "paid", 250)), s.event("invoice.paid", told(s.first("in_1")))}
		var all sync.WaitGroup
		for range 10 {
			for _, body := range bodies {
				all.Go(func() { same(t, "status", s.send(body), http.StatusOK) })
			}
		}
		all.Wait()
		same(t, "credits", s.Credits("ann"), 400)
		same(t, "pockets", s.Grants("ann"), 2)
	})
}

func TestTheMetadataOfTheSellerSaysForWhomAndWhat(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		for i, given := range []object{{}, {"product": "credits_100"}, {"account": "ann"}, {"account": "a n n", "product": "credits_100"}, {"account": "ann", "product": "No such"}} {
			session := s.session(fmt.Sprint("pi_", i), "paid", 250)
			session["metadata"] = given
			s.tell(s.event("checkout.session.completed", session))
			same(t, fmt.Sprint("flag with ", given), s.Paid(fmt.Sprint("pi_", i)).Flag, holdfast.WrongProduct)
		}
		same(t, "credits", s.Credits("ann")+s.Credits("stripe:cus_1"), 0)
		same(t, "kept for the customer", s.See("stripe:cus_1").Exists, true)
	})
}

func TestADiscountAndATaxAreTheSellersAndAWrongPriceIsFlagged(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		session := s.session("pi_1", "paid", 200)
		session["amount_subtotal"] = 250
		s.tell(s.event("checkout.session.completed", session))
		same(t, "with a discount", s.Paid("pi_1").State, holdfast.PaymentGranted)
		same(t, "what was paid", s.Paid("pi_1").Amount, 200)
		s.tell(s.event("checkout.session.completed", s.session("pi_2", "paid", 100)))
		same(t, "another price", s.Paid("pi_2").Flag, holdfast.WrongAmount)
		euros := s.session("pi_3", "paid", 250)
		euros["currency"] = "eur"
		s.tell(s.event("checkout.session.completed", euros))
		same(t, "another currency", s.Paid("pi_3").Flag, holdfast.WrongCurrency)
		free := s.session("pi_4", "no_payment_required", 0)
		free["amount_subtotal"], free["payment_intent"] = 250, nil
		s.tell(s.event("checkout.session.completed", free))
		same(t, "with a discount of everything", s.Paid("cs_pi_4").State, holdfast.PaymentGranted)
	})
}

func TestPaidCyclesGrantOnceAndProrationsNever(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		start := s.Now()
		one := s.first("in_1")
		s.tell(s.event("invoice.paid", told(one)), s.event("checkout.session.completed", object{"id": "cs_1", "object": "checkout.session", "mode": "subscription", "payment_status": "paid"}))
		same(t, "credits", s.Credits("ann"), 300)
		s.tell(s.event("invoice.paid", told(s.invoice("in_p", "subscription_update", "pro_month", 700, line(-300, start, month(start, 1), true), line(1000, start, month(start, 1), true)))))
		s.tell(s.event("invoice.paid", told(s.invoice("in_m", "manual", "pro_month", 499, line(499, start, month(start, 1), false)))))
		s.tell(s.event("invoice.paid", told(s.invoice("in_t", "subscription_create", "pro_month", 0, line(0, start, month(start, 1), false)))))
		same(t, "credits after prorations", s.Credits("ann"), 300)
		same(t, "paid until", s.See("ann").Subscription.PaidUntil, month(start, 1))
		s.Pass(month(start, 1).Sub(start))
		cycle := s.event("invoice.paid", told(s.invoice("in_2", "subscription_cycle", "pro_month", 499-20, line(499, s.Now(), month(start, 2), false), line(-20, start, month(start, 1), true))))
		s.tell(cycle, cycle)
		same(t, "paid until", s.See("ann").Subscription.PaidUntil, month(start, 2))
		same(t, "credits of the second month", s.Credits("ann"), 300)
		// A change that begins a new period at its full price opens one.
		s.tell(s.event("invoice.paid", told(s.invoice("in_3", "subscription_update", "max_month", 1999-400, line(-400, start, month(start, 2), true), line(1999, s.Now(), month(start, 2), false)))))
		same(t, "plan", s.See("ann").Plan, "max")
	})
}

func TestASubscriptionKeepsThePriceItBeganWith(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		start := s.Now()
		s.tell(s.event("invoice.paid", told(s.first("in_1"))))
		s.Sell(func(c *holdfast.Catalog) { c.Products[2].Prices[0].Amount = 599 })
		s.Pass(month(start, 1).Sub(start))
		s.tell(s.event("invoice.paid", told(s.invoice("in_2", "subscription_cycle", "pro_month", 499, line(499, s.Now(), month(start, 2), false)))))
		same(t, "the renewal", s.Paid("in_2").State, holdfast.PaymentGranted)
		other := s.invoice("in_3", "subscription_create", "pro_month", 499, line(499, s.Now(), month(start, 2), false))
		other["parent"].(object)["subscription_details"].(object)["subscription"] = "sub_2"
		s.tell(s.event("invoice.paid", told(other)))
		same(t, "a new one at the old price", s.Paid("in_3").Flag, holdfast.WrongAmount)
	})
}

func TestWhatWasToldLastOfASubscriptionHoldsInWhateverOrderItComes(t *testing.T) {
	for seed := range uint64(6) {
		onEveryStore(t, func(t *testing.T, s *seller) {
			start := s.Now()
			events := [][]byte{s.event("invoice.paid", told(s.first("in_1"))), s.event("customer.subscription.created", s.subscription("pro_month", nil))}
			for _, change := range []object{{"cancel_at_period_end": true}, {"cancel_at_period_end": false}, {"cancel_at_period_end": true}} {
				s.Pass(time.Minute)
				events = append(events, s.event("customer.subscription.updated", s.subscription("pro_month", change)))
			}
			events = append(events, events...)
			random := rand.New(rand.NewPCG(seed, 1))
			random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			s.tell(events...)
			same(t, "status", s.See("ann").Subscription.Status, holdfast.SubscriptionCancelled)
			same(t, "paid until", s.See("ann").Subscription.PaidUntil, month(start, 1))
			s.Pass(time.Minute)
			s.tell(s.event("customer.subscription.updated", s.subscription("pro_month", nil)))
			same(t, "status", s.See("ann").Subscription.Status, holdfast.SubscriptionActive)
		})
	}
}

func TestADeletedSubscriptionLapsesAtTheEndOfWhatIsPaid(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		start := s.Now()
		paid, updated := s.event("invoice.paid", told(s.first("in_1"))), s.event("customer.subscription.updated", s.subscription("pro_month", nil))
		deleted := s.event("customer.subscription.deleted", s.subscription("pro_month", object{"status": "canceled"}))
		s.tell(deleted, paid, updated) // all of the same second
		same(t, "status", s.See("ann").Subscription.Status, holdfast.SubscriptionCancelled)
		same(t, "credits", s.Credits("ann"), 300)
		s.Pass(month(start, 1).Sub(start))
		same(t, "plan", s.See("ann").Plan, "free")
	})
}

func TestTheEndOfAnOlderSubscriptionDoesNotEndTheDearerOne(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		s.tell(s.event("invoice.paid", told(s.first("in_1"))))
		s.Pass(time.Hour)
		dearer := s.invoice("in_2", "subscription_create", "max_month", 1999, line(1999, s.Now(), month(s.Now(), 1), false))
		dearer["parent"].(object)["subscription_details"].(object)["subscription"] = "sub_2"
		s.tell(s.event("invoice.paid", told(dearer)), s.event("customer.subscription.deleted", s.subscription("pro_month", object{"status": "canceled"})))
		same(t, "plan", s.See("ann").Plan, "max")
		same(t, "status", s.See("ann").Subscription.Status, holdfast.SubscriptionActive)
	})
}

func TestPartialRefundsAddUpInAnyOrderBeforeAndAfterTheirPayment(t *testing.T) {
	for seed := range uint64(6) {
		onEveryStore(t, func(t *testing.T, s *seller) {
			events := [][]byte{
				s.event("invoice.paid", told(s.first("in_1"))),
				s.event("invoice_payment.paid", paidBy("in_1", "pi_in_1")),
				s.event("refund.created", refund("re_1", "pi_in_1", "succeeded", 100)),
				s.event("charge.refunded", charge("pi_in_1", 499, 100)),
				s.event("refund.created", refund("re_2", "pi_in_1", "pending", 99)),
				s.event("refund.updated", refund("re_2", "pi_in_1", "succeeded", 99)),
				s.event("charge.refunded", charge("pi_in_1", 499, 199)),
				s.event("refund.created", refund("re_3", "pi_in_1", "failed", 300)),
			}
			events = append(events, events...)
			random := rand.New(rand.NewPCG(seed, 2))
			random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			s.tell(events...)
			same(t, "refunded", s.Paid("in_1").Refunded, 199)
			same(t, "credits", s.Credits("ann"), 300-120) // 300 × 199 / 499, rounded up
			s.tell(s.event("charge.refunded", charge("pi_in_1", 499, 499)), s.event("refund.created", refund("re_4", "pi_in_1", "succeeded", 300)))
			same(t, "refunded in full", s.Paid("in_1").Refunded, 499)
			same(t, "plan", s.See("ann").Plan, "free")
		})
	}
}

func TestAChargeThatWasRefundedInFullIsWholeOnlyWhereItPaidForAll(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		s.tell(s.event("charge.refunded", charge("pi_1", 250, 250)), s.event("checkout.session.completed", s.session("pi_1", "paid", 250)))
		same(t, "refunded before it was told", s.Paid("pi_1").Refunded, 250)
		s.tell(s.event("invoice.paid", told(s.first("in_1"))), s.event("invoice_payment.paid", paidBy("in_1", "pi_a")), s.event("invoice_payment.paid", paidBy("in_1", "pi_b")))
		s.tell(s.event("charge.refunded", charge("pi_a", 200, 200)), s.event("refund.created", refund("re_1", "pi_a", "succeeded", 200)))
		same(t, "refunded of one of two charges", s.Paid("in_1").Refunded, 200)
	})
}

func TestASubscriptionThatWasChangedToAnotherPlanIsCancelledToo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		s.tell(s.event("invoice.paid", told(s.first("in_1"))))
		s.Do("ann", holdfast.ChangePlan{Plan: "max"})
		s.tell(s.event("customer.subscription.updated", s.subscription("max_month", object{"cancel_at_period_end": true})))
		same(t, "status", s.See("ann").Subscription.Status, holdfast.SubscriptionCancelled)
	})
}

func TestARefundAndTheNameOfItsPaymentThatComeTogetherDoNotMissEachOther(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		for i := range 10 {
			id := fmt.Sprint("in_", i)
			s.tell(s.event("invoice.paid", told(s.first(id))))
			bodies := [][]byte{
				s.event("invoice_payment.paid", paidBy(id, "pi_"+id)), s.event("refund.created", refund("re_"+id, "pi_"+id, "succeeded", 499)),
			}
			var both sync.WaitGroup
			for _, body := range bodies {
				both.Go(func() { same(t, "status", s.send(body), http.StatusOK) })
			}
			both.Wait()
			same(t, "refunded", s.Paid(id).Refunded, 499)
		}
	})
}

func TestAPartOfAChargeIsLookedUpWhereTheEventDoesNotTellWhich(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		api := fakestripe.New(t)
		api.Add("/v1/refunds", refund("re_1", "pi_1", "succeeded", 100))
		api.Add("/v1/refunds", refund("re_9", "pi_9", "succeeded", 100))
		s.webhook.Refunds = caller(api)
		s.tell(s.event("checkout.session.completed", s.session("pi_1", "paid", 250)), s.event("charge.refunded", charge("pi_1", 250, 100)))
		same(t, "refunded", s.Paid("pi_1").Refunded, 100)
		s.tell(s.event("refund.created", refund("re_1", "pi_1", "succeeded", 100)))
		same(t, "refunded once", s.Paid("pi_1").Refunded, 100)
		api.Fail(slices.Repeat([]fakestripe.Fault{fakestripe.Broken}, 5)...)
		same(t, "status where it cannot be looked up", s.send(s.event("charge.refunded", charge("pi_1", 250, 200))), http.StatusServiceUnavailable)
	})
}

func TestADisputeTakesEverythingBackAndBlocks(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		s.tell(s.event("checkout.session.completed", s.session("pi_1", "paid", 250)))
		s.tell(s.event("charge.dispute.created", dispute("dp_0", "pi_1", "warning_needs_response", 250)))
		same(t, "credits after a question of the bank", s.Credits("ann"), 100)
		s.Do("ann", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "draw", Quantity: 1}})
		closed := s.event("charge.dispute.closed", dispute("dp_1", "pi_1", "lost", 250))
		s.tell(closed, s.event("charge.dispute.created", dispute("dp_1", "pi_1", "needs_response", 250)), closed)
		same(t, "blocked", s.See("ann").Account.Blocked, true)
		same(t, "credits", s.Credits("ann"), 0)
		same(t, "owed", s.See("ann").Balances[0].Debt, 1)
		same(t, "refunded", s.Paid("pi_1").Refunded, 250)
		s.tell(s.event("charge.dispute.closed", dispute("dp_1", "pi_1", "won", 250)))
		same(t, "blocked until somebody decides", s.See("ann").Account.Blocked, true)
		if !strings.Contains(s.log.String(), "a stripe dispute was won") {
			t.Error("the operator was not told")
		}
	})
}

func TestOnlySignedEventsOfThisVersionAreTaken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		body := s.event("checkout.session.completed", s.session("pi_1", "paid", 250))
		changed := bytes.Replace(body, []byte(`"ann"`), []byte(`"bob"`), 1)
		for what, c := range map[string]struct {
			signature string
			body      []byte
			wanted    int
		}{
			"no signature":      {"", body, http.StatusBadRequest},
			"another secret":    {fakestripe.Sign(body, "whsec_else", time.Now()), body, http.StatusBadRequest},
			"an empty secret":   {fakestripe.Sign(body, "", time.Now()), body, http.StatusBadRequest},
			"another body":      {fakestripe.Sign(body, fakestripe.Secret, time.Now()), changed, http.StatusBadRequest},
			"six minutes ago":   {fakestripe.Sign(body, fakestripe.Secret, time.Now().Add(-6*time.Minute)), body, http.StatusBadRequest},
			"too large":         {"", make([]byte, holdfast.MaxBodyBytes+1), http.StatusRequestEntityTooLarge},
			"the other secret":  {fakestripe.Sign(body, "whsec_older", time.Now()), body, http.StatusOK},
			"four minutes ago":  {fakestripe.Sign(body, fakestripe.Secret, time.Now().Add(-4*time.Minute)), body, http.StatusOK},
			"of no known event": {"", nil, http.StatusBadRequest},
		} {
			same(t, what, s.sendSigned(c.body, c.signature), c.wanted)
		}
		same(t, "credits", s.Credits("ann"), 100)
		same(t, "bob", s.See("bob").Exists, false)
		old := fakestripe.Event("evt_old", "invoice.paid", "2020-08-27", s.Now(), told(s.first("in_1")))
		same(t, "another API version", s.send(old), http.StatusInternalServerError)
		same(t, "an event of no matter", s.send(s.event("customer.created", object{"id": "cus_1"})), http.StatusOK)
		response := httptest.NewRecorder()
		s.webhook.ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/", nil))
		same(t, "GET", response.Code, http.StatusMethodNotAllowed)
		s.webhook.Secrets = []string{""}
		same(t, "without a secret", s.sendSigned(body, fakestripe.Sign(body, "", time.Now())), http.StatusBadRequest)
	})
}

func TestAnEventThatCannotBeStoredIsAskedForAgain(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		body := s.event("checkout.session.completed", s.session("pi_1", "paid", 250))
		s.Fail(paytest.Down, paytest.Lost)
		same(t, "not done", s.send(body), http.StatusServiceUnavailable)
		same(t, "credits", s.Credits("ann"), 0)
		same(t, "done, and the answer was lost", s.send(body), http.StatusServiceUnavailable)
		same(t, "again", s.send(body), http.StatusOK)
		same(t, "credits", s.Credits("ann"), 100)
	})
}

func caller(api *fakestripe.Server) *stripe.API {
	return &stripe.API{Key: fakestripe.Key, URL: api.URL, HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Wait: func(context.Context, time.Duration) error { return nil }}
}

func TestWhatAnOutageLostIsFoundByReconciling(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s *seller) {
		api := fakestripe.New(t)
		start := s.Now()
		created := func(o object) object {
			o["created"] = s.Now().Unix()
			return o
		}
		api.Add("/v1/invoices", created(s.first("in_1")))
		api.Add("/v1/refunds", created(refund("re_1", "pi_in_1", "succeeded", 100)))
		for i := range 120 { // more than a page of what is of no matter
			api.Add("/v1/invoices", created(s.invoice(fmt.Sprint("in_m", i), "manual", "pro_month", 1)))
		}
		session := created(s.session("pi_1", "paid", 250))
		api.Add("/v1/checkout/sessions", session)
		s.tell(s.event("checkout.session.completed", session))
		api.Add("/v1/disputes", created(dispute("dp_1", "pi_2", "needs_response", 250)))
		bobs := created(s.session("pi_2", "paid", 250))
		bobs["metadata"] = metadata("bob", "credits_100")
		api.Add("/v1/checkout/sessions", bobs)
		lost := created(s.session("pi_3", "paid", 250))
		lost["metadata"] = object{}
		api.Add("/v1/checkout/sessions", lost)
		s.tell(s.event("checkout.session.completed", s.session("pi_forged", "paid", 250)))
		s.Pass(month(start, 1).Sub(start))
		api.Add("/v1/invoices", created(s.invoice("in_2", "subscription_cycle", "pro_month", 499, line(499, s.Now(), month(start, 2), false))))
		s.Pass(time.Hour)

		api.Fail(fakestripe.TooMany, fakestripe.Broken, fakestripe.LostAnswer)
		found, err := stripe.Reconcile(t.Context(), s.Book, caller(api), time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		list := func(what string, got []string, wanted ...string) {
			t.Helper()
			if !slices.Equal(got, wanted) {
				t.Errorf("%s: got %v, wanted %v", what, got, wanted)
			}
		}
		list("granted", found.Granted, "in_1", "pi_2", "in_2") // in the order of time
		list("flagged", found.Flagged, "pi_3")
		list("refunded", found.Refunded, "in_1", "pi_2")
		list("missing", found.Missing, "pi_forged")
		same(t, "already", found.Already, 1)
		same(t, "bob is blocked", s.See("bob").Account.Blocked, true)
		same(t, "refunded", s.Paid("in_1").Refunded, 100)

		again, err := stripe.Reconcile(t.Context(), s.Book, caller(api), start)
		if err != nil || len(again.Granted)+len(again.Flagged)+len(again.Refunded) != 0 || again.Already != 5 {
			t.Errorf("once more: %+v, %v", again, err)
		}
		s.tell(s.event("invoice.paid", told(s.first("in_1"))))
		same(t, "credits", s.Grants("ann"), 2+2) // two packets, one of them forged, and two months
	})
}

func TestTheKeyIsInNoError(t *testing.T) {
	api := &stripe.API{Key: "sk_live_secret", URL: "http://127.0.0.1:1", Wait: func(context.Context, time.Duration) error { return nil }}
	if _, err := api.RefundsOf(t.Context(), "ch_1"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("%v", err)
	}
}
