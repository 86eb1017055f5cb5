package httpapi

import (
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store/memory"
)

func TestASubscriptionIsChangedCancelledAndResumed(t *testing.T) {
	eachStore(t, paidCatalog(), func(t *testing.T, h *house) {
		path := "/v1/accounts/ann/subscription"
		for _, call := range []string{"/change", "/cancel", "/resume"} {
			body := ""
			if call == "/change" {
				body = `{"plan": "max"}`
			}
			h.call("POST", path+call, body).problem(404, holdfast.NotFound)
			h.call("PUT", "/v1/accounts/bob", ``).is(200)
			h.call("POST", "/v1/accounts/bob/subscription"+call, body).problem(402, holdfast.SubscriptionInactive).
				has(`{"feature": null, "unit": null, "needed": null, "plans": []}`)
		}
		h.get("/v1/accounts/bob").is(200).has(`{"subscription": null}`)

		h.call("POST", "/v1/payments", paymentOf("ann", "c1", "basic_30", 100)).is(201)
		subscription := func(r *reply, changed bool, plan, status string, next any) {
			t.Helper()
			if r.body["changed"] != changed {
				t.Errorf("changed is not %t: %s", changed, r.raw)
			}
			s, ok := r.body["subscription"].(map[string]any)
			if !ok || s["plan"] != plan || s["status"] != status || s["next_plan"] != next || s["grace_until"] != nil || s["period_end"] != s["paid_until"] {
				t.Errorf("want %s, %s, then %v: %s", plan, status, next, r.raw)
			}
		}
		subscription(h.call("POST", path+"/cancel", ``).is(200), true, "basic", "cancelled", nil)
		subscription(h.call("POST", path+"/cancel", `{}`).is(200), false, "basic", "cancelled", nil)
		subscription(h.call("POST", path+"/resume", ``).is(200), true, "basic", "active", nil)
		subscription(h.call("POST", path+"/resume", ``).is(200), false, "basic", "active", nil)
		h.call("POST", path+"/change", `{"plan": "max", "when": "period_end"}`).is(200)
		subscription(h.call("POST", path+"/change", `{"plan": "max", "when": "period_end"}`).is(200), false, "basic", "active", "max")
		upgraded := h.call("POST", path+"/change", `{"plan": "max"}`, "Idempotency-Key: u1").is(200)
		subscription(upgraded, true, "max", "active", nil)
		upgraded.available("credit", 300)
		again := h.call("POST", path+"/change", `{"plan": "max"}`, "Idempotency-Key: u1").is(200)
		subscription(again, true, "max", "active", nil)
		if again.header.Get("Idempotent-Replayed") != "true" {
			t.Error("the replay is not marked")
		}
		subscription(h.call("POST", path+"/change", `{"plan": "basic"}`).is(200), true, "max", "active", "basic")
		h.call("POST", path+"/change", `{"plan": "basic", "when": "now"}`).problem(400, holdfast.Invalid)
		h.get("/v1/accounts/ann").is(200).has(`{"plan": "max"}`)
		h.verify()
	})
}

func TestABatchChangesSubscriptions(t *testing.T) {
	h := wholeOn(t, memory.Open(), paidCatalog())
	h.call("POST", "/v1/payments", paymentOf("ann", "c1", "basic_30", 100)).is(201)
	h.wants(h.batch(
		`{"op": "cancel_subscription", "account": "ann"}`,
		`{"op": "resume_subscription", "account": "ann", "key": "k1"}`,
		`{"op": "change_plan", "account": "ann", "plan": "max"}`,
		`{"op": "change_plan", "account": "ann", "plan": "gold", "when": "later"}`,
		`{"op": "cancel_subscription", "account": "bob"}`,
		`{"op": "pay", "account": "ann"}`,
		`{"op": "alias", "account": "ann"}`,
	), "200 changed=true", "200 changed=true", "200 changed=true", "400 reason=invalid operations[3].when", "404 reason=not_found", "400 reason=invalid operations[5].op", "400 reason=invalid operations[6].op")
	h.get("/v1/accounts/ann").is(200).has(`{"plan": "max"}`).available("credit", 300)
}
