package acceptance

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
)

// bystander holds locks on a database that servers work on, so that they can be killed at one certain statement.
type bystander struct {
	t    *testing.T
	conn *pgx.Conn
}

func beside(t *testing.T, db string) *bystander {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return &bystander{t, conn}
}

func (b *bystander) do(statement string) {
	b.t.Helper()
	if _, err := b.conn.Exec(b.t.Context(), statement); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bystander) count(query string) (n int) {
	b.t.Helper()
	if err := b.conn.QueryRow(b.t.Context(), query).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

// hold lets nobody else write to the table.
func (b *bystander) hold(table string) {
	b.t.Helper()
	b.do(`BEGIN`)
	b.do(`LOCK TABLE holdfast.` + table + ` IN EXCLUSIVE MODE`)
}

// untilSomebodyWaits returns when a session waits for the table.
func (b *bystander) untilSomebodyWaits(table string) {
	b.t.Helper()
	for patience := time.Now().Add(time.Minute); b.count(`SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'holdfast.`+table+`'::regclass`) == 0; {
		if time.Now().After(patience) {
			b.t.Fatalf("nobody wants to write to %s", table)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// letGo ends what a killed server has left in the database, as it ends when its machine is gone, and then the lock.
func (b *bystander) letGo() {
	b.t.Helper()
	b.do(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	b.do(`ROLLBACK`)
}

// written is how many entries the account has: each is told by one event, and nothing else happens here.
func (s *server) written(account string) int {
	s.t.Helper()
	page := s.call("GET", "/v1/accounts/"+account+"/entries?limit=1", "", nil).want(s.t, 200)
	return int(page.body["items"].([]any)[0].(map[string]any)["no"].(float64))
}

// Case 49. The server has committed and said so; it dies before anything of it was published.
func TestAServerKilledBetweenCommitAndPublicationTellsWhatItHadCommitted(t *testing.T) {
	db, r := pgtest.New(t), receive(t)
	start := func() *server { return serve(t, db, "--webhook-allow", "127.0.0.0/8") }
	s, b := start(), beside(t, db)
	subscribe(t, db, r.url)
	s.account("ann", 5)
	r.until(t, "the first event", func(events []told) bool { return len(events) == 1 })
	b.hold("published_events")
	made := s.reserve("ann", "m1").want(t, 201)
	written := s.written("ann")
	b.untilSomebodyWaits("published_events") // the relay of the server
	if waiting, published := b.count(`SELECT count(*) FROM holdfast.outbox`), b.count(`SELECT count(*) FROM holdfast.published_events`); waiting != written-1 || published != 1 {
		t.Fatalf("of %d events %d wait, %d are published", written, waiting, published)
	}
	s.kill()
	b.letGo()
	s = start()
	again := s.reserve("ann", "m1").want(t, 201)
	if again.header.Get("Idempotent-Replayed") != "true" || again.text("id") != made.text("id") {
		t.Errorf("the press is answered with %v", again.body)
	}
	events := r.until(t, "the events of what was committed", func(events []told) bool { return len(distinct(events)["ann"]) == written })
	if len(events) != written {
		t.Errorf("%d deliveries of %d events", len(events), written)
	}
	for i, e := range events {
		if e.Data.Entry.No != int64(i+1) {
			t.Errorf("delivery %d tells of entry %d", i+1, e.Data.Entry.No)
		}
	}
	page := s.call("GET", "/v1/events", "", nil).want(t, 200)
	if items := page.body["items"].([]any); len(items) != written {
		t.Errorf("%d of %d events are published", len(items), written)
	}
	if s.interrupt() != 0 {
		t.Errorf("the server did not stop in good order\n%s", s.notes)
	}
	verified(t, db)
}

// Case 49. The receiver has answered 200; the relay dies before it has noted that.
func TestAServerKilledBetweenDeliveryAndItsMarkDeliversTheSameEventAgainAndNoOther(t *testing.T) {
	db, r := pgtest.New(t), receive(t)
	start := func() *server { return serve(t, db, "--webhook-allow", "127.0.0.0/8") }
	s, b := start(), beside(t, db)
	subscribe(t, db, r.url)
	answer := make(chan struct{})
	r.hold(answer)
	s.account("ann", 5)
	r.until(t, "the first attempt", func(events []told) bool { return len(events) == 1 })
	b.hold("deliveries")
	close(answer)
	b.untilSomebodyWaits("deliveries") // the mark
	s.kill()
	b.letGo()
	s = start()
	s.reserve("ann", "m1").want(t, 201)
	written := s.written("ann")
	events := r.until(t, "all events", func(events []told) bool { return len(distinct(events)["ann"]) == written })
	if len(events) != written+1 || events[0].ID != events[1].ID || events[1].ID == events[2].ID {
		t.Errorf("what was not marked must come once more, and nothing else: %+v", events)
	}
	if s.interrupt() != 0 {
		t.Errorf("the server did not stop in good order\n%s", s.notes)
	}
	if left := b.count(`SELECT count(*) FROM holdfast.deliveries WHERE state <> 'delivered'`); left != 0 {
		t.Errorf("%d deliveries are not marked", left)
	}
	verified(t, db)
}

// Cases 4, 9 and 24. The thresholds are those of the surfaces: at start, what was left behind is ended where its surface waits
// no longer, and left to its worker where it does. The operator is told of both, once.
func TestAServerThatStartsAgainEndsWhatItsSurfaceWaitsForNoLonger(t *testing.T) {
	for name, db := range map[string]func(*testing.T) string{
		"sqlite":   database,
		"postgres": func(t *testing.T) string { return pgtest.New(t) }, // skips its own test alone
	} {
		t.Run(name, func(t *testing.T) {
			db, file := db(t), filepath.Join(t.TempDir(), "catalog.yaml")
			text := `
units: {credit: {scale: 0, names: {en: {one: credit, other: credits}}}}
features:
  draw: {names: {en: Draw}, price: [{unit: credit, amount: 5}], longest_job: 1s, ttl: 1h}
surfaces: {bot: {ttl: 3s}, miniapp: {ttl: 30m}}
plans:
  free: {default: true, names: {en: Free}, features: [draw], max_active: 10}
`
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := serve(t, db, "--catalog", file, "--sweep-every", "1h")
			s.account("ann", 50)
			id, token := map[string]string{}, map[string]string{}
			var ends time.Time
			for _, surface := range []string{"miniapp", "bot"} {
				made := s.call("POST", "/v1/reservations", surface, object{"account": "ann", "feature": "draw", "surface": surface}).want(t, 201)
				started := s.call("POST", "/v1/reservations/"+made.text("id")+"/start", "", object{"lease_seconds": 5}).want(t, 200)
				id[surface], token[surface] = made.text("id"), started.text("lease_token")
				var err error
				if ends, err = time.Parse(time.RFC3339, started.text("expires_at")); err != nil {
					t.Fatal(err)
				}
			}
			s.kill()
			<-time.After(time.Until(ends)) // of the bot's, by a real clock
			s = serve(t, db, "--sweep-every", "1h")
			for line, times := range map[string]int{
				`found live at start.* surface=bot live=1 lapsed_leases=1 overdue=1 `:                    1,
				`found live at start.* surface=miniapp live=1 lapsed_leases=\d overdue=0 overdue_for=0s`: 1,
				`found live at start`: 2,
			} {
				if got := len(regexp.MustCompile(line).FindAllString(s.notes.String(), -1)); got != times {
					t.Errorf("%q is told %d times, want %d\n%s", line, got, times, s.notes)
				}
			}
			patience := time.After(time.Minute)
			for s.call("GET", "/v1/reservations/"+id["bot"], "", nil).want(t, 200).text("state") != "expired" {
				select {
				case <-patience:
					t.Fatal("what was overdue is not ended")
				case <-time.After(20 * time.Millisecond):
				}
			}
			committed := s.call("POST", "/v1/reservations/"+id["miniapp"]+"/commit", "", object{"lease_token": token["miniapp"]}).want(t, 200)
			if committed.body["late"] != false || committed.number("used") != 5 {
				t.Errorf("the worker that was waited for has committed %v", committed.body)
			}
			// What was ended is not returned twice: its late worker is charged once, like the other.
			late := s.call("POST", "/v1/reservations/"+id["bot"]+"/commit", "", object{"lease_token": token["bot"]}).want(t, 200)
			if late.body["late"] != true || late.number("balance", "available") != 40 {
				t.Errorf("the worker that came late has committed %v", late.body)
			}
			if s.interrupt() != 0 {
				t.Errorf("the server did not stop in good order\n%s", s.notes)
			}
			verified(t, db)
		})
	}
}
