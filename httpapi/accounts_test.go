package httpapi

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast"
)

func TestAnAccountIsShownAlsoBeforeAnybodySawIt(t *testing.T) {
	s := newServer(t)
	s.get("/v1/accounts/telegram:42").is(200).has(`{"account": "telegram:42", "exists": false, "plan": "free", "subscription": null,
		"language": null, "time_zone": null, "blocked": false, "notices": true, "metadata": {}, "active": 0, "max_active": 1, "created_at": null,
		"balances": [
			{"unit": "credit", "available": 3, "reserved": 0, "debt": 0, "cycle": {"granted": 3, "used": 0, "reserved": 0, "voided": 0, "starts_at": null, "ends_at": null}, "resets_at": null},
			{"unit": "image", "available": 0, "reserved": 0, "debt": 0, "cycle": null, "resets_at": null}],
		"features": [{"feature": "text.improve", "unit": "credit", "amount": 1}, {"feature": "image.generate", "unit": "credit", "amount": 5}]}`)
	if s.engine.everything(t) != "{}" {
		t.Error("looking made an account")
	}
}

func TestPuttingAnAccountCreatesItOnce(t *testing.T) {
	s := newServer(t)
	body := `{"language": "ru", "time_zone": "Europe/Moscow", "notices": false, "metadata": {"tier": "a"}}`
	s.call("PUT", "/v1/accounts/ann", body).is(200).has(`{"account": "ann", "exists": true, "changed": true, "language": "ru",
		"time_zone": "Europe/Moscow", "notices": false, "metadata": {"tier": "a"}, "created_at": "2026-12-01T10:00:00Z"}`)
	s.call("PUT", "/v1/accounts/ann", body).is(200).has(`{"changed": false}`)
	s.call("PUT", "/v1/accounts/ann", `{"language": ""}`).is(200).has(`{"changed": true, "language": null, "time_zone": "Europe/Moscow"}`)
	s.call("PUT", "/v1/accounts/ann", ``).is(200).has(`{"changed": false}`)

	// Under a key, the one who created it is told so again.
	s.call("PUT", "/v1/accounts/bob", `{}`, "Idempotency-Key: k").is(200)
	if r := s.call("PUT", "/v1/accounts/bob", `{}`, "Idempotency-Key: k").is(200); r.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the replay is not marked")
	}
	// An account that a refused reserve made was there before.
	s.post("/v1/reservations", "m1", `{"account": "eve", "feature": "file.analyze"}`).is(403)
	s.call("PUT", "/v1/accounts/eve", `{"language": "en"}`).is(200)
}

func TestBlockingNeedsTheScopeAdminAsWell(t *testing.T) {
	s := newServer(t)
	s.keys.add("worker", Key{ID: "key_w", Project: "shop", Scopes: []string{ScopeWork}})
	before := s.engine.everything(t)
	for _, body := range []string{`{"blocked": true}`, `{"blocked": false, "language": "ru"}`} {
		s.call("PUT", "/v1/accounts/ann", body, "Authorization: Bearer worker").problem(403, "scope").has(`{"scope": "admin"}`)
	}
	if s.engine.everything(t) != before {
		t.Error("it was done all the same")
	}
	s.call("PUT", "/v1/accounts/ann", `{"language": "ru"}`, "Authorization: Bearer worker").is(200)
	s.call("PUT", "/v1/accounts/ann", `{"blocked": true}`).is(200).has(`{"blocked": true}`)
}

func TestGrantsAreMadeAndListed(t *testing.T) {
	s := newServer(t)
	s.post("/v1/accounts/ann/grants", "g0", `{"unit": "credit", "amount": 1}`).problem(404, holdfast.NotFound)
	s.call("PUT", "/v1/accounts/ann", ``).is(200)
	r := s.post("/v1/accounts/ann/grants", "g1", `{"unit": "image", "amount": 10, "source": "purchase", "priority": 5,
		"starts_at": "2026-12-01T12:30:00+03:00", "ends_at": "2026-12-31T00:00:00.1234567Z", "features": ["image.generate"], "reason": "thanks"}`).is(201)
	grant := r.body["grant"].(map[string]any)
	for name, want := range map[string]string{
		"unit": "image", "source": "purchase", "features": "[image.generate]", "priority": "5", "granted": "10", "reserved": "0", "used": "0", "voided": "0",
		"available": "10", "starts_at": "2026-12-01T09:30:00Z", "ends_at": "2026-12-31T00:00:00.123456Z", "created_at": "2026-12-01T10:00:00Z",
	} {
		if got := fmt.Sprint(grant[name]); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	// What has not begun is not available yet, in the grant as in the balance.
	later := s.post("/v1/accounts/ann/grants", "g2", `{"unit": "image", "amount": 7, "starts_at": "2026-12-02T00:00:00Z"}`).is(201)
	if got := fmt.Sprintln(later.body["grant"].(map[string]any)["available"], later.body["balance"].(map[string]any)["available"]); got != "0 10\n" {
		t.Errorf("available %s", got)
	}
	items := s.get("/v1/accounts/ann/grants").is(200).body["items"].([]any)
	if len(items) != 2 || items[1].(map[string]any)["id"] != grant["id"] {
		t.Errorf("listed %v", items)
	}
}

func TestAdjustmentsGoBothWays(t *testing.T) {
	s := newServer(t)
	s.give("ann", "image", 5)
	up := s.post("/v1/accounts/ann/adjustments", "a1", `{"unit": "image", "amount": 2, "reason": "lost"}`).is(201)
	if up.body["grant"].(map[string]any)["source"] != "correction" {
		t.Errorf("%s", up.raw)
	}
	s.post("/v1/accounts/ann/adjustments", "a2", `{"unit": "image", "amount": -6, "reason": "found"}`).is(201).
		has(`{"grant": null, "balance": {"unit": "image", "available": 1, "reserved": 0, "debt": 0, "cycle": null, "resets_at": null}}`)
}

func TestAPlanIsSet(t *testing.T) {
	s := newServer(t)
	s.call("POST", "/v1/accounts/ann/subscription", `{"plan": "pro"}`).problem(404, holdfast.NotFound)
	s.call("PUT", "/v1/accounts/ann", ``).is(200)
	s.call("POST", "/v1/accounts/ann/subscription", `{"plan": "pro"}`).is(200).has(`{"plan": "pro", "max_active": 3, "changed": true, "subscription": null}`)
	s.call("POST", "/v1/accounts/ann/subscription", `{"plan": "pro"}`).is(200).has(`{"changed": false}`)
	s.call("POST", "/v1/accounts/ann/subscription", `{"plan": "gold"}`).problem(400, holdfast.Invalid)
}

func TestTheHistoryTellsWhoAndWhy(t *testing.T) {
	s := newServer(t)
	s.give("ann", "image", 5)
	id := s.post("/v1/reservations", "m1", `{"account": "ann", "feature": "image.generate"}`).is(201).text("id")
	s.call("POST", "/v1/reservations/"+id+"/force", `{"end": "commit", "amount": 1, "reason": "stuck since Monday"}`).is(200)
	s.call("POST", "/v1/accounts/ann/subscription", `{"plan": "pro"}`).is(200)

	items := s.get("/v1/accounts/ann/entries").is(200).body["items"].([]any)
	var lines []string
	for _, item := range items {
		e := item.(map[string]any)
		balance := "none"
		if b, ok := e["balance"].(map[string]any); ok {
			balance = fmt.Sprint(b["available"], "+", b["reserved"], "-", b["debt"])
		}
		lines = append(lines, fmt.Sprint(e["no"], " ", e["kind"], " ", e["unit"], " ", e["key"], " ", e["actor"], " ", e["reason"], " ", e["reservation"] == id, " ", balance))
	}
	want := `4 subscription <nil> <nil> key:key_all plan pro false none
3 commit image <nil> key:key_all stuck since Monday true 4+0-0
2 reserve image m1 key:key_all <nil> true 4+1-0
1 grant image give image 5 key:key_all <nil> false 5+0-0`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("the history is\n%s\nwant\n%s", got, want)
	}
	delta := items[1].(map[string]any)["deltas"].([]any)[0].(map[string]any)
	if fmt.Sprintln(delta["granted"], delta["reserved"], delta["used"], delta["voided"]) != "0 -1 1 0\n" || !strings.HasPrefix(delta["grant"].(string), "grt_") {
		t.Errorf("delta %v", delta)
	}
}

func TestListsComeInPages(t *testing.T) {
	s := newServer(t)
	s.give("ann", "image", 100)
	for i := range 7 {
		id := s.post("/v1/reservations", fmt.Sprint("m", i), `{"account": "ann", "feature": "image.generate"}`).is(201).text("id")
		s.call("POST", "/v1/reservations/"+id+"/commit", ``).is(200)
	}
	for path, all := range map[string]int{"/v1/reservations?account=ann&": 7, "/v1/accounts/ann/grants?": 1, "/v1/accounts/ann/entries?": 15} {
		seen, cursor, pages := 0, "", 0
		for {
			page := s.get(path + "limit=3" + cursor).is(200)
			seen += len(page.body["items"].([]any))
			pages++
			next, more := page.body["next_cursor"].(string)
			if !more {
				break
			}
			cursor = "&cursor=" + next
		}
		if seen != all || pages != (all+2)/3 {
			t.Errorf("%s: %d in %d pages, want %d", path, seen, pages, all)
		}
	}
	items := s.get("/v1/reservations?account=ann&key=m3&state=committed").is(200).body["items"].([]any)
	if len(items) != 1 || items[0].(map[string]any)["key"] != "m3" || items[0].(map[string]any)["balance"] != nil {
		t.Errorf("by key: %v", items)
	}
	s.get("/v1/reservations?account=ann&state=running").is(200).has(`{"items": [], "next_cursor": null}`)
	stranger := s.get("/v1/reservations?account=ann&limit=1").text("next_cursor")
	s.get("/v1/accounts/ann/entries?cursor="+stranger).problem(400, holdfast.Invalid)
}

func TestAnAccountThatIsNotThereHasNoLists(t *testing.T) {
	s := newServer(t)
	for _, path := range []string{"/v1/accounts/nobody/grants", "/v1/accounts/nobody/entries", "/v1/reservations?account=nobody"} {
		s.get(path).problem(404, holdfast.NotFound)
	}
	s.call("PUT", "/v1/accounts/somebody", ``).is(200)
	for _, path := range []string{"/v1/accounts/somebody/grants", "/v1/accounts/somebody/entries", "/v1/reservations?account=somebody"} {
		s.get(path).is(200).has(`{"items": [], "next_cursor": null}`)
	}
}
