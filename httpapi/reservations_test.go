package httpapi

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

func TestAReservationIsShownWithEveryFieldOfTheContract(t *testing.T) {
	s := newServer(t)
	s.give("telegram:42", "credit", 8)
	r := s.post("/v1/reservations", "m991", `{"account": "telegram:42", "feature": "image.generate", "quantity": 1,
		"usage": {"input_token": 1200}, "surface": "bot", "ttl_seconds": 900, "metadata": {"chat": "42"}, "dry_run": false}`).is(201)
	r.has(`{"account": "telegram:42", "feature": "image.generate", "quantity": 1, "state": "reserved", "in_doubt": false,
		"unit": "credit", "reserved": 5, "used": 0, "unbilled": 0, "late_used": 0, "refunded": 0,
		"price": {"unit": "credit", "amount": 5}, "catalog_version": 7, "key": "m991",
		"created_at": "2026-12-01T10:00:00Z", "expires_at": "2026-12-01T10:15:00Z", "lease_expires_at": null, "ended_at": null, "cause": null,
		"surface": "bot", "metadata": {"chat": "42"}, "usage": {"input_token": 1200}, "worker": null, "attempts": 0,
		"balance": {"unit": "credit", "available": 6, "reserved": 5, "debt": 0, "resets_at": "2026-12-02T10:00:00Z",
			"cycle": {"granted": 3, "used": 0, "reserved": 3, "voided": 0, "starts_at": "2026-12-01T10:00:00Z", "ends_at": "2026-12-02T10:00:00Z"}}}`)
	if id := r.text("id"); !strings.HasPrefix(id, "rsv_") || len(id) > 64 {
		t.Errorf("id %s", id)
	}
	var amounts []string
	for _, a := range r.body["allocations"].([]any) {
		allocation := a.(map[string]any)
		amounts = append(amounts, fmt.Sprint(allocation["source"], " ", allocation["amount"]))
		if !strings.HasPrefix(allocation["grant"].(string), "grt_") {
			t.Errorf("grant %v", allocation["grant"])
		}
	}
	if got := strings.Join(amounts, ", "); got != "allowance 3, purchase 2" {
		t.Errorf("taken from %s: what would burn is spent first", got)
	}
	if strings.Contains(r.raw, "lease_token") {
		t.Errorf("a lease token where nobody started: %s", r.raw)
	}
}

func TestTheLifeOfAReservationFromReserveToRefund(t *testing.T) {
	s := newServer(t)
	s.give("ann", "credit", 10)
	id := s.post("/v1/reservations", "m1", `{"account": "ann", "feature": "image.generate"}`).is(201).text("id")
	path := "/v1/reservations/" + id

	started := s.call("POST", path+"/start", `{"worker": "w1", "lease_seconds": 60}`).is(200)
	started.has(`{"id": "` + id + `", "account": "ann", "state": "running", "worker": "w1", "attempts": 1,
		"lease_expires_at": "2026-12-01T10:01:00Z", "expires_at": "2026-12-01T10:15:00Z", "balance": null}`)
	token := started.text("lease_token")

	s.call("POST", path+"/start", `{"worker": "w2"}`).problem(409, holdfast.AlreadyRunning)
	s.call("POST", path+"/cancel", ``).problem(409, holdfast.AlreadyRunning)
	s.call("POST", path+"/heartbeat", `{"lease_token": "old"}`).problem(409, holdfast.StaleLease)
	s.engine.pass(30 * time.Second)
	beaten := s.call("POST", path+"/heartbeat", `{"lease_token": "`+token+`", "lease_seconds": 90}`).is(200)
	beaten.has(`{"cancel_requested": false, "lease_expires_at": "2026-12-01T10:02:00Z", "state": "running"}`)
	s.call("POST", path+"/commit", `{"amount": 3}`).problem(409, holdfast.StaleLease)

	body := `{"amount": 3, "lease_token": "` + token + `"}`
	s.call("POST", path+"/commit", body).is(200).has(`{"state": "committed", "used": 3, "unbilled": 0, "changed": true, "returned": 2,
		"voided": 0, "late": false, "may_continue": true, "ended_at": "2026-12-01T10:00:30Z"}`)
	s.call("POST", path+"/commit", body).is(200).has(`{"changed": false, "used": 3, "state": "committed"}`)
	other := s.call("POST", path+"/commit", `{"amount": 2, "lease_token": "`+token+`"}`).problem(409, holdfast.AlreadyEnded)
	shown := other.body["reservation"].(map[string]any)
	if shown["id"] != id || shown["account"] != "ann" || fmt.Sprint(shown["used"]) != "3" {
		t.Errorf("already_ended shows %v", shown)
	}

	s.post(path+"/refund", "r1", `{"amount": 2, "reason": "blurred", "ended_pockets": "void"}`).is(200).
		has(`{"refunded": 2, "changed": true, "returned": 2, "voided": 0, "state": "committed"}`)
	s.post(path+"/refund", "r2", `{"amount": 2}`).problem(409, holdfast.RefundExceedsUsed)
	s.post(path+"/refund", "r3", `{"amount": null}`).is(200).has(`{"refunded": 3, "returned": 1}`)

	for _, answer := range []*reply{beaten, other, s.get(path).is(200), s.get("/v1/reservations?account=ann").is(200)} {
		if strings.Contains(answer.raw, token) {
			t.Errorf("a lease token outside the answer of start: %s", answer.raw)
		}
	}
	s.get(path).has(`{"state": "committed", "used": 3, "refunded": 3, "balance": {"unit": "credit", "available": 13, "reserved": 0, "debt": 0,
		"cycle": {"granted": 3, "used": 0, "reserved": 0, "voided": 0, "starts_at": "2026-12-01T10:00:00Z", "ends_at": "2026-12-02T10:00:00Z"}, "resets_at": "2026-12-02T10:00:00Z"}}`)
}

func TestEveryEndingAnswersWhereTheMoneyWent(t *testing.T) {
	for _, c := range []struct{ name, verb, body, want string }{
		{"commit without a body is all", "commit", ``, `{"state": "committed", "used": 1, "returned": 0, "changed": true}`},
		{"commit of {} is all", "commit", `{}`, `{"state": "committed", "used": 1}`},
		{"commit of null is all", "commit", ` null `, `{"state": "committed", "used": 1}`},
		{"commit of nothing used", "commit", `{"amount": 0}`, `{"state": "committed", "used": 0, "returned": 1}`},
		{"commit of a quantity", "commit", `{"quantity": 3}`, `{"state": "committed", "used": 1, "unbilled": 2}`},
		{"release", "release", `{"cause": "provider_unavailable"}`, `{"state": "released", "cause": "provider_unavailable", "returned": 1}`},
		{"release without a body", "release", ``, `{"state": "released", "cause": "failed"}`},
		{"cancel", "cancel", ``, `{"state": "released", "cause": "cancelled"}`},
		{"force a release", "force", `{"end": "release", "reason": "stuck"}`, `{"state": "released", "cause": "forced"}`},
		{"force a commit", "force", `{"end": "commit", "amount": 1, "reason": "stuck"}`, `{"state": "committed", "used": 1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newServer(t)
			path := "/v1/reservations/" + s.reserve("ann", "m1")
			s.call("POST", path+"/"+c.verb, c.body).is(200).has(c.want)
			s.call("POST", path+"/"+c.verb, c.body).is(200).has(`{"changed": false}`)
		})
	}
}

func TestALateCommitTakesWhatIsAvailableAndSaysSo(t *testing.T) {
	s := newServer(t)
	path := "/v1/reservations/" + s.reserve("ann", "m1")
	s.engine.pass(time.Hour)
	s.engine.sweep(t, "shop", "ann")
	late := s.call("POST", path+"/commit", `{}`).is(200)
	late.has(`{"state": "expired", "late": true, "late_used": 1, "used": 0, "unbilled": 0}`)
	taken := late.body["allocations"].([]any)
	if len(taken) != 2 || fmt.Sprint(taken[1].(map[string]any)["amount"]) != "1" {
		t.Errorf("allocations %v: what was taken late is told apart", taken)
	}
	if taken[0].(map[string]any)["late"] != false || taken[1].(map[string]any)["late"] != true {
		t.Errorf("allocations %v: only what was taken late is late", taken)
	}
}

func TestADryRunSaysWhatWouldHappenAndTakesNothing(t *testing.T) {
	s := newServer(t)
	before := s.engine.everything(t)
	yes := s.call("POST", "/v1/reservations", `{"account": "ann", "feature": "text.improve", "dry_run": true}`).is(200)
	yes.has(`{"allowed": true, "account": "ann", "state": "reserved", "reserved": 1, "key": null}`)
	if _, ok := yes.body["id"]; ok {
		t.Errorf("a dry run has an id: %s", yes.raw)
	}
	no := s.call("POST", "/v1/reservations", `{"account": "ann", "feature": "text.improve", "quantity": 4, "dry_run": true}`).is(200)
	no.has(`{"allowed": false, "reason": "insufficient", "feature": "text.improve", "unit": "credit", "needed": 4, "available": 3, "held": 0,
		"active": 0, "max_active": 1, "cycle": {"granted": 3, "used": 0, "reserved": 0, "voided": 0, "starts_at": null, "ends_at": null},
		"resets_at": null, "plans": ["pro"], "estimated": false, "affordable_usage": null, "alternatives": []}`)
	if _, ok := no.body["id"]; ok || no.text("detail") == "" {
		t.Errorf("a refused dry run: %s", no.raw)
	}
	if s.engine.everything(t) != before {
		t.Error("a dry run was written")
	}
}

func TestRefusalsCarryTheirNumbers(t *testing.T) {
	s := newServer(t)
	reserve := func(account, key, feature string, quantity int) *reply {
		return s.post("/v1/reservations", key, fmt.Sprintf(`{"account": %q, "feature": %q, "quantity": %d}`, account, feature, quantity))
	}
	s.post("/v1/reservations", "m0", `{"account": "held", "feature": "text.improve", "quantity": 3}`).is(201)
	reserve("held", "m1", "text.improve", 1).problem(402, holdfast.HeldByActive).has(`{"feature": "text.improve", "unit": "credit",
		"needed": 1, "available": 0, "held": 3, "active": 1, "max_active": 1,
		"cycle": {"granted": 3, "used": 0, "reserved": 3, "voided": 0, "starts_at": "2026-12-01T10:00:00Z", "ends_at": "2026-12-02T10:00:00Z"},
		"resets_at": "2026-12-02T10:00:00Z", "plans": ["pro"], "estimated": false, "affordable_usage": null, "alternatives": []}`)

	reserve("poor", "m1", "image.generate", 1).problem(402, holdfast.Insufficient).has(`{"unit": "credit", "needed": 5, "available": 3, "resets_at": null,
		"alternatives": [{"unit": "image", "needed": 1, "available": 0, "held": 0}, {"unit": "credit", "needed": 5, "available": 3, "held": 0}]}`)

	s.reserve("busy", "m0")
	reserve("busy", "m1", "text.improve", 1).problem(409, holdfast.TooManyActive).has(`{"active": 1, "max_active": 1, "needed": 1, "available": 2, "plans": ["pro"]}`)

	reserve("poor", "m2", "file.analyze", 1).problem(403, holdfast.FeatureNotInPlan).has(`{"feature": "file.analyze", "unit": null,
		"needed": null, "available": null, "held": null, "cycle": null, "resets_at": null, "plans": ["pro"], "alternatives": []}`)

	s.call("PUT", "/v1/accounts/rude", `{"blocked": true}`).is(200)
	reserve("rude", "m1", "text.improve", 1).problem(403, holdfast.AccountBlocked).has(`{"unit": null, "plans": [], "active": 0, "max_active": 1}`)

	s.post("/v1/accounts/poor/adjustments", "a1", `{"unit": "credit", "amount": -9, "reason": "mistake"}`).problem(402, holdfast.Insufficient).
		has(`{"feature": null, "unit": "credit", "needed": 9, "available": 3}`)
}

func TestARefusalIsWordedForThePersonItIsAbout(t *testing.T) {
	s := newServer(t)
	s.call("PUT", "/v1/accounts/ann", `{"language": "ru", "time_zone": "Europe/Moscow"}`).is(200)
	poor := `{"account": "ann", "feature": "image.generate"}`
	r := s.post("/v1/reservations", "m1", poor).is(402)
	r.has(`{"title": "Title of insufficient", "detail": "insufficient in ru, Europe/Moscow, catalog 7, at 10:00:00"}`)
	if r.header.Get("Content-Language") != "ru" {
		t.Error("the answer does not say its language")
	}
	s.post("/v1/reservations", "m1", poor, "Accept-Language: en").is(402).has(`{"detail": "insufficient in en, Europe/Moscow, catalog 7, at 10:00:00"}`)
	s.post("/v1/reservations", "m2", poor, "Accept-Language: "+strings.Repeat("e", 300)).is(402).has(`{"detail": "insufficient in ru, Europe/Moscow, catalog 7, at 10:00:00"}`)
}

func TestTheSameKeyIsAnsweredOnceWithTheOriginalStatus(t *testing.T) {
	s := newServer(t)
	body := `{"account": "ann", "feature": "text.improve", "quantity": 2}`
	first := s.post("/v1/reservations", "m1", body).is(201)
	second := s.post("/v1/reservations", "m1", body).is(201)
	if first.raw != second.raw {
		t.Errorf("two answers under one key:\n%s\n%s", first.raw, second.raw)
	}
	if first.header.Get("Idempotent-Replayed") != "" || second.header.Get("Idempotent-Replayed") != "true" {
		t.Error("only a replay is marked as one")
	}
	before := s.engine.everything(t)
	s.post("/v1/reservations", "m1", `{"account": "ann", "feature": "text.improve", "quantity": 1}`).problem(422, holdfast.KeyReused)
	if s.engine.everything(t) != before {
		t.Error("a reused key moved something")
	}

	grant := `{"unit": "credit", "amount": 100, "source": "promo", "priority": null, "starts_at": null, "ends_at": null, "features": [], "reason": "hello"}`
	given := s.post("/v1/accounts/ann/grants", "g1", grant).is(201).has(`{"balance": {"unit": "credit", "available": 101, "reserved": 2, "debt": 0,
		"cycle": {"granted": 3, "used": 0, "reserved": 2, "voided": 0, "starts_at": "2026-12-01T10:00:00Z", "ends_at": "2026-12-02T10:00:00Z"}, "resets_at": "2026-12-02T10:00:00Z"}}`)
	again := s.post("/v1/accounts/ann/grants", "g1", grant).is(201)
	if given.raw != again.raw || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("a grant was made twice: %s", again.raw)
	}
}

func TestARefusalIsRepeatedUntilAFreshDecisionIsAskedFor(t *testing.T) {
	s := newServer(t)
	body := `{"account": "ann", "feature": "image.generate"}`
	s.post("/v1/reservations", "m1", body).problem(402, holdfast.Insufficient)
	s.give("ann", "credit", 10)
	repeated := s.post("/v1/reservations", "m1", body).problem(402, holdfast.Insufficient).has(`{"available": 3}`)
	if repeated.header.Get("Idempotent-Replayed") != "true" {
		t.Error("a repeated refusal is a replay")
	}
	s.post("/v1/reservations", "m1", body, "Holdfast-Retry-Refused: false").is(402)
	s.post("/v1/reservations", "m1", body, "Holdfast-Retry-Refused: true").is(201)
	s.post("/v1/reservations", "m1", body, "Holdfast-Retry-Refused: true").is(201)
	if got := len(s.get("/v1/reservations?account=ann").body["items"].([]any)); got != 1 {
		t.Errorf("%d reservations", got)
	}
}

// Case 1: several reserves pass one balance check.
func TestOneUnitLeftGoesToOneOfFiftyCallers(t *testing.T) {
	s := newServer(t)
	s.give("ann", "image", 1)
	var callers sync.WaitGroup
	statuses := make([]int, 50)
	for i := range statuses {
		callers.Go(func() {
			statuses[i] = s.post("/v1/reservations", fmt.Sprint("m", i), `{"account": "ann", "feature": "image.generate"}`).status
		})
	}
	callers.Wait()
	reserved := 0
	for _, status := range statuses {
		switch status {
		case 201:
			reserved++
		case 402:
		default:
			t.Errorf("status %d", status)
		}
	}
	if reserved != 1 {
		t.Errorf("%d reserved", reserved)
	}
}

// A server that has just started knows no names; a reservation's id still leads to its account's.
func TestAServerThatNeverSawTheAccountStillNamesIt(t *testing.T) {
	first := newServer(t)
	id := first.reserve("telegram:42", "m1")
	second := serve(t, first.engine)
	second.call("POST", "/v1/reservations/"+id+"/start", ``).is(200).has(`{"account": "telegram:42"}`)
	third := serve(t, first.engine)
	third.get("/v1/reservations/" + id).is(200).has(`{"account": "telegram:42"}`)
	fourth := serve(t, first.engine)
	ended := fourth.call("POST", "/v1/reservations/"+id+"/cancel", ``).problem(409, holdfast.AlreadyRunning)
	if ended.body["reservation"].(map[string]any)["account"] != "telegram:42" {
		t.Errorf("%s", ended.raw)
	}
}
