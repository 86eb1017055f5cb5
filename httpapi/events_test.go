package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// told publishes so many events of an account, and says their ids.
func (s *server) told(account string, count int) (ids []string) {
	s.t.Helper()
	must := func(err error) {
		s.t.Helper()
		if err != nil {
			s.t.Fatal(err)
		}
	}
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	id := holdfast.AccountIDOf("shop", account)
	tx, err := s.outbox.Begin(s.t.Context())
	must(err)
	_, err = tx.Load(s.t.Context(), []store.Want{{Account: id, Project: "shop", Name: account, Create: true}})
	must(err)
	changes := holdfast.Changes{Account: holdfast.Account{ID: id, Project: "shop", Name: account, LastEntry: 1, CreatedAt: now, DecidedAt: now}}
	changes.Entries = []holdfast.Entry{{No: 1, Kind: holdfast.EntryGrant, Unit: "credit", EffectiveAt: now, RecordedAt: now}}
	var events []store.Published
	for n := range count {
		e := holdfast.Event{ID: holdfast.ID{15: byte(n + 1)}, Kind: holdfast.EventOverrun, Figure: 3, At: now}
		changes.Events = append(changes.Events, e)
		events = append(events, store.Published{Project: "shop", Account: id, ID: e.ID, Kind: e.Kind, At: e.At, Data: `{"figure": 3}`})
		ids = append(ids, holdfast.EventRef.Encode(id, e.ID))
	}
	must(tx.Save(s.t.Context(), []holdfast.Changes{changes}))
	token, err := s.outbox.Lead(s.t.Context(), "test", now, now)
	must(err)
	must(s.outbox.Publish(s.t.Context(), token, now, events))
	return ids
}

func TestEventsAreReadInPagesAndPolledForMore(t *testing.T) {
	s := newServer(t)
	s.get("/v1/events").is(200).has(`{"items": [], "next_cursor": "0"}`)
	ids := s.told("ann", 3)
	s.get("/v1/events?limit=1").is(200).has(`{"next_cursor": "1", "items": [{"id": "` + ids[0] + `", "position": 1, "type": "reservation.overrun", "account": "ann", "project": "shop",
		"created_at": "2026-12-01T10:00:00Z", "data": {"figure": 3, "entry": null, "payment": null, "reservation": null}}]}`)
	s.get("/v1/events?limit=2").has(`{"next_cursor": "2"}`).lists(ids[0]+" "+ids[1], "id")
	s.get("/v1/events?cursor=2").has(`{"next_cursor": "3"}`).lists(ids[2], "id")
	s.get("/v1/events?cursor=3").is(200).has(`{"next_cursor": "3", "items": []}`)
	s.told("bob", 1)
	s.get("/v1/events?cursor=3").has(`{"next_cursor": "4"}`).lists("bob", "account")
	s.get("/v1/events", "Authorization: Bearer "+otherKey).is(200).has(`{"items": [], "next_cursor": "0"}`)
	for _, cursor := range []string{"-1", "x", "01", "+1", "99999999999999999999", "1.5"} {
		if got := s.get("/v1/events?cursor="+cursor).problem(400, holdfast.Invalid).names(); fmt.Sprint(got) != "[cursor]" {
			t.Errorf("cursor %s names %v", cursor, got)
		}
	}
	s.get("/v1/events?limit=0").problem(400, holdfast.Invalid)
}

func TestAnEndpointLivesFromItsSecretToItsRemoval(t *testing.T) {
	s := newServer(t)
	s.told("ann", 2)
	made := s.post("/v1/endpoints", "", `{"url": "https://example.com/a", "types": ["reservation.*"], "note": "бот"}`).is(201)
	made.has(`{"types": ["reservation.*"], "paused": false, "paused_reason": null, "note": "бот", "secrets": 1, "position": 2}`)
	id, secret := made.text("id"), made.text("secret")
	if !strings.HasPrefix(secret, "whsec_") || len(secret) < 40 {
		t.Errorf("the secret is %q", secret)
	}
	if again := s.get("/v1/endpoints/" + id).is(200); again.body["secret"] != nil || strings.Contains(again.raw, "whsec_") {
		t.Error("the secret is shown again")
	}
	rotated := s.post("/v1/endpoints/"+id+"/rotate", "", "").is(200).has(`{"secrets": 2}`)
	if rotated.text("secret") == secret {
		t.Error("the new secret is the old one")
	}
	s.call("PATCH", "/v1/endpoints/"+id, `{"paused": true}`).is(200).has(`{"paused": true, "url": "https://example.com/a", "types": ["reservation.*"]}`)
	s.call("PATCH", "/v1/endpoints/"+id, `{"url": "https://example.com/b", "types": [], "note": ""}`).is(200).has(`{"paused": true, "url": "https://example.com/b", "types": [], "note": null}`)
	s.get("/v1/endpoints").has(`{"next_cursor": null}`).lists(id, "id")

	theirs := "Authorization: Bearer " + otherKey
	s.get("/v1/endpoints", theirs).is(200).has(`{"items": []}`)
	for _, call := range [][2]string{
		{"GET", ""},
		{"DELETE", ""},
		{"PATCH", ""},
		{"GET", "/deliveries"},
		{"POST", "/rotate"},
		{"POST", "/replay"},
	} {
		body := map[string]string{"/replay": `{"dead": true}`, "": `{}`}[call[1]]
		if call[0] == "GET" || call[0] == "DELETE" {
			body = ""
		}
		s.call(call[0], "/v1/endpoints/"+id+call[1], body, theirs).problem(404, holdfast.NotFound)
		s.call(call[0], "/v1/endpoints/whk_nothing"+call[1], body).problem(404, holdfast.NotFound)
	}
	s.call("DELETE", "/v1/endpoints/"+id, "").is(204)
	s.get("/v1/endpoints/"+id).problem(404, holdfast.NotFound)
}

func TestBadEndpointsAreNamedAndMakeNothing(t *testing.T) {
	s := newServer(t)
	for body, wanted := range map[string]string{
		`{}`: "[url]",
		`{"url": "http://example.com", "types": ["*"], "note": "` + strings.Repeat("n", 501) + `"}`: "[note types[0] url]",
		`{"url": "https://169.254.169.254/latest"}`:                                                 "[url]",
		`{"url": "https://example.com", "secret": "x"}`:                                             "[secret]",
		`{"url": 5, "paused": "yes"}`:                                                               "[paused url]",
	} {
		got := s.post("/v1/endpoints", "", body).problem(400, holdfast.Invalid).names()
		if fmt.Sprint(sortedNames(got)) != wanted {
			t.Errorf("%s names %v, wanted %s", body, got, wanted)
		}
	}
	s.get("/v1/endpoints").is(200).has(`{"items": []}`)
	for range holdfast.MaxEndpoints {
		s.post("/v1/endpoints", "", `{"url": "https://example.com"}`).is(201)
	}
	s.post("/v1/endpoints", "", `{"url": "https://example.com"}`).problem(409, "too_many_endpoints")
}

// items are fields of a list's items, in a line.
func (r *reply) items(fields ...string) string {
	r.t.Helper()
	var line []string
	items, _ := r.is(200).body["items"].([]any)
	for _, item := range items {
		for _, field := range fields {
			line = append(line, fmt.Sprint(item.(map[string]any)[field]))
		}
	}
	return strings.Join(line, " ")
}

func (r *reply) lists(wanted string, fields ...string) *reply {
	r.t.Helper()
	if got := r.items(fields...); got != wanted {
		r.t.Errorf("lists %q, wanted %q", got, wanted)
	}
	return r
}

func sortedNames(names []string) []string {
	set := map[string]bool{}
	for _, name := range names {
		set[name] = true
	}
	return sortedKeys(set)
}

func TestDeliveriesAreListedAndReplayed(t *testing.T) {
	s := newServer(t)
	id := s.post("/v1/endpoints", "", `{"url": "https://example.com"}`).is(201).text("id")
	ids := s.told("ann", 3)
	now := time.Date(2026, 12, 1, 11, 0, 0, 0, time.UTC)
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.outbox.Dispatch(t.Context(), id, now, 10)
	step(err)
	step(s.outbox.Settle(t.Context(), id, now, []store.Attempt{{Position: 1, State: store.DeliveryDead, At: now, Status: 500, Problem: "status"}}))
	path := "/v1/endpoints/" + id + "/deliveries"
	page := s.get(path+"?limit=2").has(`{"next_cursor": "2"}`).lists("3 waiting <nil> 2 pending 2026-12-01T11:00:00Z", "position", "state", "next_attempt_at")
	s.get(path + "?cursor=" + page.text("next_cursor")).is(200).has(`{"next_cursor": null, "items": [{"event": "` + ids[0] + `", "account": "ann", "type": "reservation.overrun",
		"position": 1, "state": "dead", "attempts": 1, "next_attempt_at": null, "last_attempt_at": "2026-12-01T11:00:00Z", "last_status": 500, "problem": "status"}]}`)
	s.get(path+"?state=dead").lists("1", "position")
	s.get(path+"?state=lost").problem(400, holdfast.Invalid)

	replay := "/v1/endpoints/" + id + "/replay"
	s.post(replay, "", `{"dead": true}`).is(200).has(`{"position": null, "revived": 1}`)
	s.get(path + "?state=dead").is(200).has(`{"items": []}`)
	s.post(replay, "", `{"from": "`+ids[1]+`"}`).is(200).has(`{"position": 2, "revived": 0}`)
	s.get(path).lists("1 waiting", "position", "state")
	s.post(replay, "", `{"from": "1", "dead": true}`).is(200).has(`{"position": 1}`)
	for _, body := range []string{`{}`, `{"dead": false}`, `{"from": "0"}`, `{"from": "evt_nothing"}`, `{"from": "-3"}`, `{"from": ""}`} {
		if got := s.post(replay, "", body).problem(400, holdfast.Invalid).names(); fmt.Sprint(got) != "[from]" {
			t.Errorf("%s names %v", body, got)
		}
	}
}

func TestWithoutAnOutboxThereAreNoEvents(t *testing.T) {
	s := serve(t, newSmallEngine(), func(o *Options) { o.Events = nil })
	for _, path := range []string{"/v1/events", "/v1/endpoints", "/v1/endpoints/x", "/v1/endpoints/x/deliveries"} {
		s.get(path).problem(http.StatusNotFound, holdfast.NotFound)
	}
}

func TestEventsOfABrokenStoreAreUnavailable(t *testing.T) {
	s := newServer(t)
	if err := s.outbox.Close(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/v1/events", "/v1/endpoints", "/v1/endpoints/x", "/v1/endpoints/x/deliveries"} {
		s.get(path).problem(503, "unavailable")
	}
	s.post("/v1/endpoints", "", `{"url": "https://example.com"}`).problem(503, "unavailable")
}
