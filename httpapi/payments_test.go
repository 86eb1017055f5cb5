package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
)

// paidCatalog sells two plans and a pack.
func paidCatalog() *holdfast.Catalog {
	sold := catalog()
	term := func(plan string, n holdfast.Amount) []holdfast.Allowance {
		return []holdfast.Allowance{{Key: plan + "/credit", Unit: "credit", Amount: n, Every: holdfast.Cycle{Term: true}}}
	}
	sold.Plans = append(
		sold.Plans,
		holdfast.Plan{Name: "basic", Features: []string{"text.improve"}, MaxActive: 3, Grace: 72 * time.Hour, Allowances: term("basic", 100)},
		holdfast.Plan{Name: "max", Features: []string{"text.improve", "file.analyze"}, MaxActive: 3, Grace: 72 * time.Hour, Allowances: term("max", 300)},
	)
	month := holdfast.Period{Days: 30}
	stars := func(n holdfast.Amount) []holdfast.Money { return []holdfast.Money{{Currency: "XTR", Amount: n}} }
	sold.Products = append(
		sold.Products,
		holdfast.Product{Name: "basic_30", Plan: "basic", Period: month, Prices: stars(100)},
		holdfast.Product{Name: "max_30", Plan: "max", Period: month, Prices: stars(250)},
	)
	return sold
}

// paymentOf is a body: of a payment in stars.
func paymentOf(account, id, product string, amount int) string {
	return fmt.Sprintf(`{"provider": "stars", "payment_id": %q, "account": %q, "product": %q, "amount": %d, "currency": "XTR"}`, id, account, product, amount)
}

func TestAPaymentIsGrantedOnceAndShown(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		h.get("/v1/payments/stars/c1").problem(404, holdfast.NotFound)
		first := h.call("POST", "/v1/payments", paymentOf("ann", "c1", "max_30", 250)).is(201).has(`{"provider": "stars", "payment_id": "c1", "account": "ann",
			"product": "max_30", "amount": 250, "currency": "XTR", "state": "granted", "reason": null, "plan": "max", "refunded": 0, "disputed": false, "changed": true}`)
		first.available("credit", 300)
		subscription := first.body["subscription"].(map[string]any)
		if subscription["plan"] != "max" || subscription["status"] != "active" || subscription["period_end"] != first.body["period_end"] || subscription["paid_until"] != first.body["period_end"] {
			t.Errorf("%s", first.raw)
		}
		for _, body := range []string{
			paymentOf("ann", "c1", "max_30", 250),
			// What was decided is not decided again, whatever is told.
			paymentOf("ann", "c1", "basic_30", 1),
		} {
			h.call("POST", "/v1/payments", body).is(200).has(`{"product": "max_30", "amount": 250, "state": "granted", "changed": false}`).available("credit", 300)
		}
		shown := h.get("/v1/payments/stars/c1").is(200).has(`{"account": "ann", "state": "granted", "plan": "max"}`)
		shown.available("credit", 300)
		for _, name := range []string{"paid_at", "period_start", "period_end"} {
			if shown.text(name) != first.text(name) {
				t.Errorf("%s: %s and %s", name, shown.raw, first.raw)
			}
		}
		h.get("/v1/accounts/ann").is(200).has(`{"plan": "max", "exists": true}`).available("credit", 300)

		// Another project has neither the payment nor the account.
		const other = "Authorization: Bearer " + otherKey
		h.get("/v1/payments/stars/c1", other).problem(404, holdfast.NotFound)
		h.call("POST", "/v1/payments/stars/c1/refunds", `{"refund_id": "r1", "amount": 100}`, other).is(202).has(`{"state": "pending"}`)
		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "max_30", 250), other).is(201).has(`{"state": "granted", "refunded": 100}`).available("credit", 180)
		h.get("/v1/payments/stars/c1").is(200).has(`{"refunded": 0}`)
		h.verify()
	})
}

func TestIdsOfPaymentsAreWhateverTheirProviderMakes(t *testing.T) {
	s := newServer(t)
	for _, id := range []string{"a/b", "..", "a b", "100%", "x?y#z", "платёж", "&=+;", strings.Repeat("x", holdfast.MaxPaymentIDBytes)} {
		s.call("POST", "/v1/payments", paymentOf("ann", id, "credits_100", 100)).is(201)
		path := "/v1/payments/stars/" + strings.ReplaceAll(url.PathEscape(id), ".", "%2e")
		if got := s.get(path).is(200).text("payment_id"); got != id {
			t.Errorf("%s came back as %s", id, got)
		}
		s.call("POST", path+"/refunds", fmt.Sprintf(`{"refund_id": %q}`, id)).is(201).has(`{"refunded": 100}`)
	}
}

func TestAPaymentThatDoesNotFitIsKeptAndFlagged(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		for _, account := range []string{"blocked", "deleted"} {
			h.call("PUT", "/v1/accounts/"+account, `{}`).is(200)
		}
		h.call("PUT", "/v1/accounts/blocked", `{"blocked": true}`).is(200)
		h.call("DELETE", "/v1/accounts/deleted", ``).is(200)
		for reason, body := range map[string]string{
			"wrong_amount":    paymentOf("ann", "wrong_amount", "max_30", 249),
			"wrong_currency":  strings.Replace(paymentOf("ann", "wrong_currency", "max_30", 250), "XTR", "USD", 1),
			"wrong_product":   paymentOf("ann", "wrong_product", "gold", 250),
			"account_blocked": paymentOf("blocked", "account_blocked", "max_30", 250),
			"account_deleted": paymentOf("deleted", "account_deleted", "credits_100", 100),
		} {
			for _, changed := range []bool{true, false} {
				h.call("POST", "/v1/payments", body).is(200).has(fmt.Sprintf(`{"state": "flagged", "reason": %q, "changed": %t, "plan": null, "subscription": null}`, reason, changed))
			}
			h.get("/v1/payments/stars/" + reason).is(200).has(fmt.Sprintf(`{"state": "flagged", "reason": %q, "payment_id": %q}`, reason, reason))
			if log := h.log.String(); strings.Count(log, `"flag":"`+reason+`"`) != 2 || !strings.Contains(log, `"level":"ERROR","msg":"a payment was kept and granted nothing","provider":"stars"`) {
				t.Errorf("%s is not told", reason)
			}
			h.call("POST", "/v1/payments/stars/"+reason+"/refunds", `{"refund_id": "r1"}`).is(201).has(`{"state": "flagged", "changed": true}`)
		}
		h.get("/v1/accounts/ann").is(200).has(`{"plan": "free"}`).available("credit", 3)

		// Somebody else's grants nothing either, and tells nothing of them.
		h.call("POST", "/v1/payments", paymentOf("bob", "c1", "max_30", 250)).is(201)
		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "max_30", 250)).is(200).has(`{"account": "ann", "state": "flagged", "reason": "wrong_person", "changed": false,
			"balances": [], "subscription": null}`)
		h.get("/v1/payments/stars/c1").is(200).has(`{"account": "bob", "state": "granted", "reason": null}`)
		h.verify()
	})
}

func TestRefundsOfAPaymentAddUpAndEachCountsOnce(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "max_30", 250)).is(201)
		refunds := "/v1/payments/stars/c1/refunds"
		h.call("POST", refunds, `{"refund_id": "r1", "amount": 100}`).is(201).has(`{"refunded": 100, "revoked": 120, "state": "granted", "changed": true}`).available("credit", 180)
		h.call("POST", refunds, `{"refund_id": "r1", "amount": 100}`).is(200).has(`{"refunded": 100, "revoked": 120, "changed": false}`).available("credit", 180)
		h.call("POST", refunds, `{"refund_id": "r2", "amount": null, "policy": null}`).is(201).has(`{"refunded": 250, "revoked": 300, "subscription": null, "debt": 0}`).available("credit", 3)
		h.get("/v1/accounts/ann").is(200).has(`{"plan": "free", "subscription": null}`)

		h.call("POST", "/v1/payments", paymentOf("eve", "c2", "max_30", 250)).is(201)
		h.call("POST", "/v1/payments/stars/c2/refunds", `{"refund_id": "r1", "policy": "keep"}`).is(201).has(`{"refunded": 250, "revoked": 0}`).available("credit", 300)

		// What was used is owed where the caller says so, and after a dispute.
		for i, how := range []string{`"policy": "revoke_all_as_debt"`, `"dispute": true`, `"dispute": true, "policy": "revoke_unused"`} {
			account, id := fmt.Sprint("bob", i), fmt.Sprint("d", i)
			h.call("POST", "/v1/payments", paymentOf(account, id, "credits_100", 100)).is(201)
			h.post("/v1/charges", "m1", fmt.Sprintf(`{"account": %q, "feature": "text.improve", "quantity": 13}`, account)).is(201)
			debt, blocked := 10, i > 0
			if i == 2 {
				debt = 0
			}
			h.call("POST", "/v1/payments/stars/"+id+"/refunds", `{"refund_id": "r1", `+how+`}`).is(201).has(fmt.Sprintf(`{"debt": %d, "disputed": %t}`, debt, blocked))
			owing := h.get("/v1/accounts/" + account).is(200).has(fmt.Sprintf(`{"blocked": %t}`, blocked))
			for _, balance := range owing.body["balances"].([]any) {
				if b := balance.(map[string]any); b["unit"] == "credit" && fmt.Sprint(b["debt"]) != fmt.Sprint(debt) {
					t.Errorf("%s: %s", how, owing.raw)
				}
			}
		}
		h.verify()
	})
}

func TestARefundThatComesFirstWaitsForItsPayment(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		for range 2 {
			h.call("POST", "/v1/payments/stars/c1/refunds", `{"refund_id": "r1", "amount": 100}`).is(202).has(`{"state": "pending"}`)
		}
		h.get("/v1/payments/stars/c1").problem(404, holdfast.NotFound)
		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "max_30", 250)).is(201).has(`{"state": "granted", "refunded": 100, "revoked": 120}`).available("credit", 180)
		h.call("POST", "/v1/payments/stars/c1/refunds", `{"refund_id": "r1", "amount": 100}`).is(200).has(`{"refunded": 100, "changed": false}`)

		h.call("POST", "/v1/payments/stars/c2/refunds", `{"refund_id": "r1"}`).is(202)
		h.call("POST", "/v1/payments", paymentOf("bob", "c2", "max_30", 250)).is(200).has(`{"state": "flagged", "reason": "refunded", "refunded": 250}`).available("credit", 3)
		if strings.Contains(h.log.String(), "granted nothing") {
			t.Error("nothing is left to look at, and the operator was told")
		}
		for i := range 100 {
			h.call("POST", "/v1/payments/stars/c3/refunds", fmt.Sprintf(`{"refund_id": "r%d"}`, i)).is(202)
		}
		h.call("POST", "/v1/payments/stars/c3/refunds", `{"refund_id": "one more"}`).problem(400, holdfast.Invalid)
		h.verify()
	})
}

func TestThePeriodOfAPaymentIsBounded(t *testing.T) {
	h := wholeOn(t, memory.Open(), paidCatalog())
	until := func(id string, days int) *reply {
		end := time.Now().UTC().AddDate(0, 0, days).Format(time.RFC3339)
		return h.call("POST", "/v1/payments", strings.Replace(paymentOf("ann", id, "max_30", 250), "{", `{"period_end": "`+end+`", `, 1))
	}
	if got := until("c1", 32).problem(400, holdfast.Invalid).names(); !slices.Equal(got, []string{"period_end"}) {
		t.Errorf("names %v", got)
	}
	h.get("/v1/payments/stars/c1").problem(404, holdfast.NotFound)
	until("c1", 28).is(201).has(`{"state": "granted"}`)
}

// A refund can have been kept beside a payment that is known, by a process that was killed before it told the account.
func TestARefundThatWasKeptAndNotAppliedIsAppliedByTheNextDelivery(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "max_30", 250)).is(201)
		part := holdfast.Amount(100)
		claim := store.Claim{Project: "shop", Provider: "stars", PaymentID: "c1"}
		if _, err := h.stored.KeepRefund(t.Context(), claim, holdfast.PaymentRefund{ID: "r1", Amount: &part}); err != nil {
			t.Fatal(err)
		}
		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "max_30", 250)).is(200).has(`{"refunded": 100, "changed": true}`).available("credit", 180)
		h.call("POST", "/v1/payments/stars/c1/refunds", `{"refund_id": "r1", "amount": 100}`).is(200).has(`{"refunded": 100, "changed": false}`)
		h.verify()
	})
}

// Cases "once": one effect, one 201, and the others are told what the first came to.
func TestTheSamePaymentTenTimesAtOnceHasOneEffect(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		for round := range 5 {
			account, id := fmt.Sprint("ann", round), fmt.Sprint("c", round)
			replies := make([]*reply, 10)
			var senders sync.WaitGroup
			for i := range replies {
				senders.Go(func() { replies[i] = h.call("POST", "/v1/payments", paymentOf(account, id, "max_30", 250)) })
			}
			senders.Wait()
			counted := map[int]int{}
			for _, r := range replies {
				counted[r.status]++
				r.has(`{"state": "granted", "plan": "max"}`)
			}
			if counted[201] != 1 || counted[200] != 9 {
				t.Errorf("answers %v", counted)
			}
			h.get("/v1/accounts/"+account).is(200).available("credit", 300)
		}
		h.verify()
	})
}

func TestAPaymentAndItsRefundAtTheSameTimeNeverLoseTheRefund(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		for round := range 30 {
			account, id := fmt.Sprint("ann", round), fmt.Sprint("c", round)
			calls := []func() *reply{
				func() *reply { return h.call("POST", "/v1/payments", paymentOf(account, id, "max_30", 250)) },
				func() *reply { return h.call("POST", "/v1/payments", paymentOf(account, id, "max_30", 250)) },
				func() *reply {
					return h.call("POST", "/v1/payments/stars/"+id+"/refunds", `{"refund_id": "r1", "amount": 100}`)
				},
				func() *reply {
					return h.call("POST", "/v1/payments/stars/"+id+"/refunds", `{"refund_id": "r1", "amount": 100}`)
				},
			}
			statuses := make([]int, len(calls))
			var senders sync.WaitGroup
			for i, call := range calls {
				senders.Go(func() { statuses[i] = call().status })
			}
			senders.Wait()
			if made := slices.Sorted(slices.Values(statuses[:2])); !slices.Equal(made, []int{200, 201}) {
				t.Errorf("the payments were answered %v", made)
			}
			for _, status := range statuses[2:] {
				if status != 200 && status != 201 && status != 202 {
					t.Errorf("the refunds were answered %v", statuses[2:])
				}
			}
			h.get("/v1/payments/stars/" + id).is(200).has(`{"state": "granted", "refunded": 100, "revoked": 120}`)
			h.get("/v1/accounts/"+account).is(200).has(`{"plan": "max"}`).available("credit", 180)
		}
		h.verify()
	})
}

// dying is an engine that the process loses once, behind the claim of a payment.
type dying struct {
	payment.Engine
	mu   sync.Mutex
	left int
}

func (d *dying) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left > 0 {
		d.left--
		return holdfast.Outcome{}, errors.New("killed")
	}
	return d.Engine.Submit(ctx, command)
}

func TestAPaymentThatACrashCutOffIsGrantedOnceWhenItIsDeliveredAgain(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		h.desk.Engine = &dying{Engine: h.engine, left: 1}
		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "max_30", 250)).problem(503, "unavailable")
		// Until then nobody else gets it, and nobody is shown what ann has.
		h.call("PUT", "/v1/accounts/ann", ``).is(200)
		h.call("POST", "/v1/payments", paymentOf("bob", "c1", "max_30", 250)).is(200).has(`{"account": "bob", "state": "flagged", "reason": "wrong_person", "balances": [], "subscription": null}`)
		h.get("/v1/payments/stars/c1").is(200).has(`{"state": "flagged", "reason": "wrong_person"}`)
		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "max_30", 250)).is(201).available("credit", 300)
		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "max_30", 250)).is(200).available("credit", 300)
		h.verify()
	})
}

func TestAPaymentFollowsTheMergeOfItsAccount(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "credits_100", 100)).is(201)
		h.call("POST", "/v1/payments", paymentOf("bob", "c2", "max_30", 250)).is(201)
		h.post("/v1/accounts/ann/merge", "m1", `{"from": "bob"}`).is(200).has(`{"plan": "max"}`).available("credit", 400)
		// What was paid before is known by either name, and shown with what the account has that took bob's place.
		h.call("POST", "/v1/payments", paymentOf("bob", "c2", "max_30", 250)).is(200).has(`{"account": "bob", "state": "granted", "changed": false}`).available("credit", 400)
		h.call("POST", "/v1/payments", paymentOf("ann", "c2", "max_30", 250)).is(200).has(`{"account": "ann", "state": "granted", "changed": false}`).available("credit", 400)
		h.get("/v1/payments/stars/c2").is(200).has(`{"account": "ann", "state": "granted"}`).available("credit", 400)
		h.call("POST", "/v1/payments", paymentOf("eve", "c2", "max_30", 250)).is(200).has(`{"account": "eve", "reason": "wrong_person", "balances": [], "subscription": null}`)
		// What is new goes there.
		h.call("POST", "/v1/payments", paymentOf("bob", "c3", "credits_100", 100)).is(201).has(`{"account": "bob"}`).available("credit", 500)
		h.call("POST", "/v1/payments/stars/c2/refunds", `{"refund_id": "r1"}`).is(201).has(`{"refunded": 250}`)
		if err := h.engine.Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.get("/v1/accounts/ann").is(200).has(`{"plan": "free", "subscription": null}`).available("credit", 203)
		h.verify()
	})
}

func TestWithoutADeskThereAreNoPayments(t *testing.T) {
	s := serve(t, newSmallEngine(), func(o *Options) { o.Payments = nil })
	s.call("POST", "/v1/payments", paymentOf("ann", "c1", "credits_100", 100)).problem(404, holdfast.NotFound)
	s.call("POST", "/v1/payments/stars/c1/refunds", `{"refund_id": "r1"}`).problem(404, holdfast.NotFound)
	s.get("/v1/payments/stars/c1").problem(404, holdfast.NotFound)
	s.call("POST", "/v1/payments", `{}`).problem(400, holdfast.Invalid)
}
