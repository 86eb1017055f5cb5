package acceptance

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
)

// told is an event as a receiver gets it.
type told struct {
	ID      string
	Account string
	Data    struct{ Entry *struct{ No int64 } }
}

// receiver takes webhooks, or holds them back without an answer while it is held.
type receiver struct {
	mu      sync.Mutex
	events  []told
	held    chan struct{} // closed to let answers go; nil: they go at once
	changed chan struct{}
	url     string
}

func receive(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{changed: make(chan struct{})}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		var e told
		if err := json.NewDecoder(request.Body).Decode(&e); err != nil {
			t.Error(err)
			return
		}
		if id := request.Header.Get("Webhook-Id"); id != e.ID {
			t.Errorf("header %s, body %s", id, e.ID)
		}
		r.mu.Lock()
		r.events = append(r.events, e)
		close(r.changed)
		r.changed = make(chan struct{})
		held := r.held
		r.mu.Unlock()
		if held != nil {
			select {
			case <-held:
			case <-request.Context().Done():
			}
		}
	}))
	t.Cleanup(s.Close)
	r.url = s.URL
	return r
}

func (r *receiver) hold(held chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held = held
}

// until waits until what came is so.
func (r *receiver) until(t *testing.T, what string, is func([]told) bool) []told {
	t.Helper()
	patience := time.After(time.Minute)
	for {
		r.mu.Lock()
		events, changed := append([]told{}, r.events...), r.changed
		r.mu.Unlock()
		if is(events) {
			return events
		}
		select {
		case <-changed:
		case <-patience:
			t.Fatalf("never: %s; %d events came", what, len(events))
		}
	}
}

// distinct are the events of each account, each where it came first.
func distinct(events []told) map[string][]told {
	seen, accounts := map[string]bool{}, map[string][]told{}
	for _, e := range events {
		if !seen[e.ID] {
			seen[e.ID] = true
			accounts[e.Account] = append(accounts[e.Account], e)
		}
	}
	return accounts
}

func subscribe(t *testing.T, db, url string) {
	t.Helper()
	if out, notes, code := holdfast(t, "endpoint", "add", url, "--db", db, "--webhook-allow", "127.0.0.0/8"); code != 0 || !strings.HasPrefix(out, "whsec_") {
		t.Fatalf("endpoint add: exit %d\n%s%s", code, out, notes)
	}
}

func TestAServerKilledBetweenPublicationAndDeliveryDeliversTheSameEventAgain(t *testing.T) {
	for name, db := range map[string]func(*testing.T) string{
		"sqlite":   database,
		"postgres": func(t *testing.T) string { return pgtest.New(t) }, // skips its own test alone
	} {
		t.Run(name, func(t *testing.T) {
			db, r := db(t), receive(t)
			s := serve(t, db, "--webhook-allow", "127.0.0.0/8")
			subscribe(t, db, r.url)
			held := make(chan struct{})
			defer close(held)
			r.hold(held)
			s.account("ann", 5)
			first := r.until(t, "the first attempt", func(events []told) bool { return len(events) == 1 })
			s.kill() // it has sent the event, and never learns that it came
			r.hold(nil)
			s = serve(t, db, "--webhook-allow", "127.0.0.0/8")
			events := r.until(t, "another attempt", func(events []told) bool { return len(events) == 2 })
			if events[1].ID != first[0].ID {
				t.Errorf("%s came again as %s", first[0].ID, events[1].ID)
			}
			page := s.call("GET", "/v1/events", "", nil).want(t, 200)
			if items := page.body["items"].([]any); len(items) != 1 {
				t.Errorf("%d events are published", len(items))
			}
			if s.interrupt() != 0 {
				t.Errorf("the server did not stop in good order\n%s", s.notes)
			}
		})
	}
}

func TestNoEventIsLostOrPublishedTwiceByServersThatAreKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("processes are killed for some seconds")
	}
	db, r := pgtest.New(t), receive(t)
	const accounts, each, kills = 6, 8, 3
	start := func() *server { return serve(t, db, "--webhook-allow", "127.0.0.0/8") }
	survivor, victim := start(), start()
	subscribe(t, db, r.url)
	want := map[string]int64{}
	for i := range accounts {
		account := name("account", i)
		survivor.account(account, each)
		for j := range each - 1 {
			key := account + "-" + strconv.Itoa(j)
			reserved := survivor.reserve(account, key).want(t, 201)
			survivor.call("POST", "/v1/reservations/"+reserved.text("id")+"/commit", "", object{}).want(t, 200)
		}
		if i < kills {
			victim.kill()
			survivor, victim = start(), survivor // whoever leads dies next
		}
	}
	var written int64 // entries of all accounts: each is told by one event, and nothing else happened
	for i := range accounts {
		page := survivor.call("GET", "/v1/accounts/"+name("account", i)+"/entries?limit=1", "", nil).want(t, 200)
		written += int64(page.body["items"].([]any)[0].(map[string]any)["no"].(float64))
	}
	var cursor int64
	patience := time.After(time.Minute)
	for position := int64(0); position < written; {
		page := survivor.call("GET", "/v1/events?cursor="+strconv.FormatInt(cursor, 10), "", nil).want(t, 200)
		items := page.body["items"].([]any)
		for _, item := range items {
			e := item.(map[string]any)
			position++
			if got := int64(e["position"].(float64)); got != position {
				t.Fatalf("position %d follows %d", got, position-1)
			}
			account := e["account"].(string)
			want[account]++
			if no := int64(e["data"].(map[string]any)["entry"].(map[string]any)["no"].(float64)); no != want[account] {
				t.Fatalf("entry %d of %s is published as number %d", no, account, want[account])
			}
		}
		next, err := strconv.ParseInt(page.text("next_cursor"), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		cursor = next
		if len(items) > 0 {
			continue
		}
		select {
		case <-patience:
			t.Fatalf("%d of %d events are published", position, written)
		case <-time.After(50 * time.Millisecond):
		}
	}
	events := r.until(t, "all were delivered", func(events []told) bool {
		count := 0
		for _, of := range distinct(events) {
			count += len(of)
		}
		return count == int(cursor)
	})
	for account, of := range distinct(events) {
		for i, e := range of {
			if e.Data.Entry.No != int64(i+1) {
				t.Fatalf("entry %d of %s was delivered as number %d", e.Data.Entry.No, account, i+1)
			}
		}
	}
	verified(t, db)
}
