package httpapi

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/store/sqlite"
)

// realTexts are the product's, as package main hands them in.
type realTexts struct{ *message.Texts }

func (t realTexts) Detail(reader Reader, catalog *holdfast.Catalog, outcome holdfast.Outcome, now time.Time) string {
	return t.Texts.Detail(message.Reader(reader), catalog, outcome, now)
}

func (t realTexts) Accident(reader Reader, reason holdfast.Reason) string {
	return t.Texts.Accident(message.Reader(reader), message.Accident(reason))
}

func (t realTexts) PreCheckout(reader Reader, reason string, until, now time.Time) string {
	return t.Texts.PreCheckout(message.Reader(reader), message.PreCheckoutReason(reason), until, now)
}

func (t realTexts) Invoice(reader Reader, catalog *holdfast.Catalog, product *holdfast.Product, price holdfast.Money, recurring bool) (title, description string) {
	return t.Texts.Invoice(message.Reader(reader), catalog, message.Offer{Product: product, Price: price, Recurring: recurring})
}

// whole is the handler over the real engine and the real texts.
func whole(t *testing.T) *server {
	t.Helper()
	return wholeOn(t, memory.Open(), catalog()).server
}

// house is the handler over the real engine, with what is behind it.
type house struct {
	*server
	engine *engine.Engine
	stored store.Lookups
	desk   *payment.Desk
}

// eachStore runs a test over the real engine on the stores that need no server.
func eachStore(t *testing.T, sold *holdfast.Catalog, test func(t *testing.T, h *house)) {
	t.Run("memory", func(t *testing.T) { test(t, wholeOn(t, memory.Open(), sold)) })
	t.Run("sqlite", func(t *testing.T) {
		stored, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "holdfast.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		test(t, wholeOn(t, stored, sold))
	})
}

// verify proves every ledger.
func (h *house) verify() {
	h.t.Helper()
	err := h.stored.Dump(context.Background(), func(r store.Record) error {
		differences, err := holdfast.Verify(&r.Account, r.Grants, r.Reservations, r.Entries)
		for _, difference := range differences {
			h.t.Errorf("%s: %s", r.Account.Name, difference)
		}
		return err
	})
	if err != nil {
		h.t.Fatal(err)
	}
}

// wholeOn closes the store when the test ends.
func wholeOn(t *testing.T, stored store.Lookups, sold *holdfast.Catalog) *house {
	t.Helper()
	texts, err := message.New()
	if err != nil {
		t.Fatal(err)
	}
	e := engine.New(stored, engine.Options{Catalog: func(string) *holdfast.Catalog { return sold }, SweepEvery: -1})
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- e.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
		stored.Close()
	})
	h := &house{engine: e, stored: stored, desk: &payment.Desk{Engine: e, Claims: stored}}
	h.server = serveWith(t, e, realTexts{texts}, func(o *Options) {
		h.desk.Log = o.Logger
		o.Payments, o.Stars = h.desk, sellers(h.desk, stored, shown{e})
	})
	return h
}

func TestTheRealEngineAndTextsFitBehindTheHandler(t *testing.T) {
	s := whole(t)
	s.call("PUT", "/v1/accounts/ann", `{"language": "ru", "time_zone": "Europe/Moscow"}`).is(200)
	s.call("PUT", "/v1/accounts/ann", `{"time_zone": "Mars/Phobos"}`).problem(400, holdfast.Invalid)
	path := "/v1/reservations/" + s.reserve("ann", "m1")
	refused := s.post("/v1/reservations", "m2", `{"account": "ann", "feature": "text.improve", "quantity": 3}`).problem(402, holdfast.HeldByActive)
	if detail := refused.text("detail"); !strings.ContainsAny(detail, "аеио") {
		t.Errorf("in Russian: %s", detail)
	}
	refused = s.post("/v1/reservations", "m2", `{"account": "ann", "feature": "text.improve", "quantity": 3}`, "Accept-Language: en-GB,en;q=0.8").is(402)
	if detail := refused.text("detail"); refused.header.Get("Idempotent-Replayed") != "true" || strings.ContainsAny(detail, "аеио") {
		t.Errorf("replayed in English: %s", detail)
	}
	token := s.call("POST", path+"/start", `{"worker": "w1"}`).is(200).text("lease_token")
	s.call("POST", path+"/heartbeat", `{"lease_token": "`+token+`"}`).is(200)
	s.call("POST", path+"/commit", `{"lease_token": "`+token+`"}`, "Idempotency-Key: c1").is(200).has(`{"used": 1, "changed": true}`)
	replay := s.call("POST", path+"/commit", `{"lease_token": "`+token+`"}`, "Idempotency-Key: c1").is(200).has(`{"used": 1, "changed": true}`)
	if replay.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the replay is not marked")
	}
	s.get(path).is(200).has(`{"state": "committed", "account": "ann"}`)
	if page := s.get("/v1/accounts/ann/entries?limit=1").is(200); page.body["next_cursor"] == nil {
		t.Errorf("%s", page.raw)
	} else {
		s.get("/v1/accounts/ann/entries?cursor=" + page.text("next_cursor")).is(200)
		s.get("/v1/accounts/ann/grants?cursor="+page.text("next_cursor")).problem(400, holdfast.Invalid)
	}
	s.get("/v1/accounts/ann/entries?cursor=nonsense").problem(400, holdfast.Invalid)
	s.get("/v1/reservations?account=bob").problem(404, holdfast.NotFound)
	s.get("/readyz").is(200)

	explained := s.get("/v1/accounts/ann/explain?feature=text.improve").is(200).has(`{"allowed": true, "plan": "free"}`)
	if !strings.Contains(explained.raw, "Нужно: 1 credit, доступно: 2 credit.") {
		t.Errorf("explained as %s", explained.raw)
	}
	s.get("/v1/accounts/ann/balance?as_of=2026-01-01T00:00:00Z").is(200)
	s.get("/v1/accounts/ann/balance").is(200)
	if table := s.get("/v1/accounts/ann/entries.csv").is(200).raw; strings.Count(table, "\r\n") != 4 {
		t.Errorf("the table is\n%s", table)
	}
	s.call("DELETE", "/v1/accounts/ann", ``).is(200).has(`{"changed": true, "blocked": true}`)
	s.get("/v1/accounts/ann").is(200).has(`{"exists": true}`)
}

// Case 1 again, through lanes and batches.
func TestOneUnitLeftGoesToOneOfManyCallersThroughTheRealEngine(t *testing.T) {
	s := whole(t)
	for round := range 20 {
		account := fmt.Sprint("ann", round)
		s.give(account, "image", 1)
		statuses := make([]int, 16)
		var callers sync.WaitGroup
		for i := range statuses {
			callers.Go(func() {
				statuses[i] = s.post("/v1/reservations", fmt.Sprint("m", i), fmt.Sprintf(`{"account": %q, "feature": "image.generate"}`, account)).status
			})
		}
		callers.Wait()
		counted := map[int]int{}
		for _, status := range statuses {
			counted[status]++
		}
		if counted[201] != 1 || counted[402] != 15 {
			t.Errorf("answers %v", counted)
		}
	}
}
