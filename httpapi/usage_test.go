package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// chatting is a server where ann is on the plan pro with 300 credits, and may chat by usage and owe one credit.
func chatting(t *testing.T) *server {
	t.Helper()
	s := newServer(t)
	s.call("PUT", "/v1/accounts/ann", ``).is(200)
	s.call("POST", "/v1/accounts/ann/subscription", `{"plan": "pro"}`).is(200)
	return s
}

const chat = `{"account": "ann", "feature": "chat.completion", "usage": {"input_token": 1200, "output_token": 4096}}`

func TestUsageIsReservedByItsUpperBoundAndChargedByWhatWasUsed(t *testing.T) {
	s := chatting(t)
	r := s.post("/v1/reservations", "m1", chat).is(201).has(`{"reserved": 18, "usage": {"input_token": 1200, "output_token": 4096}, "reported": {}, "debt": 0,
		"price": {"unit": "credit", "amount": null, "per": 1000, "rates": {"input_token": 1, "cached_token": 0, "output_token": 4}}}`)
	s.call("POST", "/v1/reservations/"+r.text("id")+"/commit", `{"usage": {"output_token": 1000}}`).is(200).
		has(`{"used": 4, "returned": 14, "usage": {"input_token": 1200, "output_token": 4096}, "reported": {"output_token": 1000}}`)
	// The same figure again is the same answer, another one is not.
	s.call("POST", "/v1/reservations/"+r.text("id")+"/commit", `{"usage": {"output_token": 999, "input_token": 1}}`).is(200).has(`{"changed": false, "used": 4}`)
	s.call("POST", "/v1/reservations/"+r.text("id")+"/commit", `{"usage": {"output_token": 2000}}`).problem(409, holdfast.AlreadyEnded)
}

func TestADryRunOfUsageSaysWhatItWouldCost(t *testing.T) {
	s := chatting(t)
	before := s.engine.everything(t)
	s.call("POST", "/v1/reservations", strings.Replace(chat, "}}", `}, "dry_run": true}`, 1)).is(200).has(`{"allowed": true, "reserved": 18}`)
	s.call("POST", "/v1/charges", strings.Replace(chat, "}}", `}, "dry_run": true}`, 1)).is(200).has(`{"allowed": true, "reserved": 18, "state": "reserved"}`)
	s.call("POST", "/v1/charges", `{"account": "ann", "feature": "chat.completion", "usage": {"output_token": 100000}, "dry_run": true}`).is(200).
		has(`{"allowed": false, "reason": "insufficient", "needed": 400, "estimated": true, "affordable_usage": {"output_token": 75000}}`)
	if s.engine.everything(t) != before {
		t.Error("a question moved something")
	}
}

func TestARefusalOfUsageSaysThatItIsAnEstimateAndWhatIsAffordable(t *testing.T) {
	s := chatting(t)
	s.post("/v1/reservations", "m1", `{"account": "ann", "feature": "chat.completion", "usage": {"input_token": 0, "output_token": 100000}}`).
		problem(402, holdfast.Insufficient).has(`{"unit": "credit", "needed": 400, "available": 300, "estimated": true, "affordable_usage": {"input_token": 0, "output_token": 75000}}`)
}

func TestAnOverrunIsShownAsWhatWasTakenOwedAndNotCharged(t *testing.T) {
	s := chatting(t)
	path := "/v1/reservations/" + s.post("/v1/reservations", "m1", chat).is(201).text("id")
	s.post("/v1/accounts/ann/adjustments", "a1", `{"unit": "credit", "amount": -277, "reason": "leaves 5"}`).is(201)
	r := s.call("POST", path+"/commit", `{"amount": 25}`).is(200).has(`{"used": 23, "debt": 1, "unbilled": 1, "late": false}`)
	for _, a := range r.body["allocations"].([]any) {
		if a.(map[string]any)["late"] != false {
			t.Errorf("what an overrun took is not late: %v", a)
		}
	}
	if balance := r.body["balance"].(map[string]any); fmt.Sprintln(balance["available"], balance["debt"]) != "0 1\n" {
		t.Errorf("balance %v", balance)
	}
	items := s.get("/v1/accounts/ann/entries").is(200).body["items"].([]any)
	newest := items[0].(map[string]any)
	if fmt.Sprintln(newest["kind"], newest["debt"], newest["balance"].(map[string]any)["debt"]) != "debt 1 1\n" {
		t.Errorf("the history says %v", newest)
	}
	if second := items[1].(map[string]any); fmt.Sprintln(second["kind"], second["debt"], second["balance"].(map[string]any)["debt"]) != "commit 0 0\n" {
		t.Errorf("the history says %v", second)
	}
}

func TestAChargeReservesAndCommitsInOneAnswer(t *testing.T) {
	s := newServer(t)
	first := s.post("/v1/charges", "c1", `{"account": "ann", "feature": "text.improve", "quantity": 2, "metadata": {"a": "b"}}`).is(201).
		has(`{"state": "committed", "used": 2, "returned": 0, "changed": true, "may_continue": true, "key": "c1", "metadata": {"a": "b"}}`)
	again := s.post("/v1/charges", "c1", `{"account": "ann", "feature": "text.improve", "quantity": 2}`).is(201)
	if again.raw != first.raw || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("charged twice: %s", again.raw)
	}
	s.post("/v1/charges", "c1", `{"account": "ann", "feature": "text.improve", "quantity": 2, "amount": 1}`).problem(422, holdfast.KeyReused)
	// A charge under the key of a reserve is another request.
	s.post("/v1/reservations", "c1", `{"account": "ann", "feature": "text.improve", "quantity": 2}`).problem(422, holdfast.KeyReused)
	s.post("/v1/charges", "c2", `{"account": "ann", "feature": "text.improve", "amount": 0}`).is(201).has(`{"used": 0, "returned": 1}`)
	s.post("/v1/charges", "c3", `{"account": "ann", "feature": "text.improve", "quantity": 2}`).problem(402, holdfast.Insufficient).has(`{"available": 1, "needed": 2}`)
	s.post("/v1/charges", "c4", `{"account": "ann", "feature": "file.analyze"}`).problem(403, holdfast.FeatureNotInPlan)
}

func TestAReservationIsExtendedByTimeOrByABoundOrRefusedAsItWas(t *testing.T) {
	s := chatting(t)
	path := "/v1/reservations/" + s.post("/v1/reservations", "m1", chat).is(201).text("id")
	s.engine.pass(time.Minute)
	s.call("POST", path+"/extend", `{"ttl_seconds": 600}`).is(200).has(`{"changed": true, "expires_at": "2026-12-01T10:11:00Z", "reserved": 18}`)
	s.call("POST", path+"/extend", `{"ttl_seconds": 1}`).is(200).has(`{"changed": false, "expires_at": "2026-12-01T10:11:00Z"}`)
	s.call("POST", path+"/extend", `{"usage": {"output_token": 10000}}`).is(200).has(`{"changed": true, "reserved": 40, "usage": {"output_token": 10000}}`)
	refused := s.call("POST", path+"/extend", `{"usage": {"output_token": 100000}}`).problem(402, holdfast.Insufficient).
		has(`{"needed": 360, "available": 260, "estimated": true, "affordable_usage": {"output_token": 75000}}`)
	if shown := refused.body["reservation"].(map[string]any); fmt.Sprint(shown["reserved"]) != "40" || shown["id"] != path[len("/v1/reservations/"):] {
		t.Errorf("a refused extend shows %v", shown)
	}
	// A running one takes its token.
	token := s.call("POST", path+"/start", ``).is(200).text("lease_token")
	s.call("POST", path+"/extend", `{"ttl_seconds": 700}`).problem(409, holdfast.StaleLease)
	s.call("POST", path+"/extend", `{"ttl_seconds": 700, "lease_token": "`+token+`"}`).is(200).has(`{"changed": true}`)
	s.call("POST", path+"/release", `{"lease_token": "`+token+`"}`).is(200)
	s.call("POST", path+"/extend", `{"ttl_seconds": 700, "lease_token": "`+token+`"}`).problem(409, holdfast.AlreadyEnded)
	// Under a key, an extension is made once.
	other := "/v1/reservations/" + s.post("/v1/reservations", "m2", `{"account": "ann", "feature": "file.analyze"}`).is(201).text("id")
	s.call("POST", other+"/extend", `{"quantity": 2}`, "Idempotency-Key: e1").is(200).has(`{"reserved": 6, "quantity": 2}`)
	if again := s.call("POST", other+"/extend", `{"quantity": 2}`, "Idempotency-Key: e1").is(200); again.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the replay is not marked")
	}
	s.call("PUT", "/v1/accounts/ann", `{"blocked": true}`).is(200)
	s.call("POST", other+"/extend", `{"quantity": 3}`).problem(403, holdfast.AccountBlocked)
}

func TestRunningWorkIsAskedToStopWhereTheFeatureAllowsIt(t *testing.T) {
	s := chatting(t)
	path := "/v1/reservations/" + s.post("/v1/reservations", "m1", `{"account": "ann", "feature": "file.analyze"}`).is(201).text("id")
	token := s.call("POST", path+"/start", ``).is(200).has(`{"cancel_requested": false}`).text("lease_token")
	asked := s.call("POST", path+"/cancel", ``, "Idempotency-Key: c1").is(202).has(`{"state": "running", "cancel_requested": true, "changed": true}`)
	again := s.call("POST", path+"/cancel", ``, "Idempotency-Key: c1").is(202)
	if again.raw != asked.raw || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("replayed as %d %s", again.status, again.raw)
	}
	s.call("POST", path+"/cancel", ``).is(202).has(`{"changed": false}`)
	s.call("POST", path+"/heartbeat", `{"lease_token": "`+token+`"}`).is(200).has(`{"cancel_requested": true}`)
	s.get(path).is(200).has(`{"cancel_requested": true}`)
	commit := func(body string) *reply { return s.call("POST", path+"/commit", body+`, "lease_token": "`+token+`"}`) }
	if got := s.call("POST", path+"/commit", `{"lease_token": "`+token+`"}`).problem(400, holdfast.Invalid).names(); fmt.Sprint(got) != "[amount]" {
		t.Errorf("a commit without a figure names %v", got)
	}
	commit(`{"amount": 4`).problem(400, holdfast.Invalid)
	commit(`{"amount": 2`).is(200).has(`{"used": 2, "returned": 1}`)
}

func TestWorkInDoubtFreesItsSlotAndKeepsItsMoney(t *testing.T) {
	s := chatting(t)
	path := "/v1/reservations/" + s.post("/v1/reservations", "m1", chat).is(201).text("id")
	s.call("POST", path+"/in_doubt", `{"lease_token": "none yet"}`).problem(409, holdfast.StaleLease)
	token := s.call("POST", path+"/start", ``).is(200).text("lease_token")
	s.call("POST", path+"/in_doubt", `{"lease_token": "another"}`).problem(409, holdfast.StaleLease)
	s.call("POST", path+"/in_doubt", `{"lease_token": "`+token+`"}`).is(200).has(`{"in_doubt": true, "state": "running", "changed": true}`)
	s.call("POST", path+"/in_doubt", `{"lease_token": "`+token+`"}`).is(200).has(`{"changed": false}`)
	s.get("/v1/accounts/ann").is(200).has(`{"active": 0}`)
	s.call("POST", path+"/start", ``).problem(409, holdfast.AlreadyRunning)
	// Whoever learns how it ended says so without the lease.
	s.call("POST", path+"/commit", `{"usage": {"output_token": 500}}`).is(200).has(`{"in_doubt": false, "used": 2, "returned": 16}`)
	s.call("POST", path+"/in_doubt", `{"lease_token": "`+token+`"}`).problem(409, holdfast.AlreadyEnded)
}
