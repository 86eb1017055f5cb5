package acceptance

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
)

// Case 1a over HTTP: two presses, and fifty.
func TestOverHTTPTheLastUnitGoesToExactlyOneCaller(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		db := database(t)
		lastUnit(t, db, serve(t, db))
	})
	t.Run("two processes on one PostgreSQL", func(t *testing.T) {
		db := pgtest.NewEmpty(t)
		lastUnit(t, db, serve(t, db), serve(t, db))
	})
}

// lastUnit sends every round's presses to all servers in turn.
func lastUnit(t *testing.T, db string, servers ...*server) {
	s := servers[0]
	rounds := 100
	if testing.Short() {
		rounds = 5
	}
	for round := range rounds {
		for _, callers := range []int{2, 50} {
			account := fmt.Sprintf("a%d-%d", round, callers)
			s.call("PUT", "/v1/accounts/"+account, "", object{}).want(t, 200)
			s.call("POST", "/v1/accounts/"+account+"/adjustments", "adjust", object{"unit": "credit", "amount": -2, "reason": "one left of three"}).want(t, 201)
			replies := make([]reply, callers)
			each(callers, func(i int) { replies[i] = servers[i%len(servers)].reserve(account, name("m", i)) })
			got := map[string]int{}
			for _, r := range replies {
				got[fmt.Sprint(r.status, " ", r.text("reason"))]++
			}
			if got["201 "] != 1 || got["402 held_by_active"] != callers-1 {
				t.Fatalf("%d callers for one unit: %v", callers, got)
			}
		}
	}
	for _, s := range servers {
		if code := s.interrupt(); code != 0 {
			t.Errorf("stopped with exit code %d\n%s", code, s.notes)
		}
	}
	verified(t, db)
}

// Rule 4: what was acknowledged is there after SIGKILL, and what was not is there whole or not at all.
func TestEveryAcknowledgedReservationSurvivesSIGKILLUnderLoad(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { killUnderLoad(t, database(t)) })
	t.Run("postgres", func(t *testing.T) { killUnderLoad(t, pgtest.NewEmpty(t)) })
}

func killUnderLoad(t *testing.T, db string) {
	rounds := 5
	if testing.Short() {
		rounds = 1
	}
	type fact struct{ account, id, state string }
	var mu sync.Mutex
	facts := map[string]fact{} // by key
	note := func(key string, f fact) {
		mu.Lock()
		defer mu.Unlock()
		facts[key] = f
	}
	for round := range rounds {
		s := serve(t, db)
		const callers = 16
		// Accounts of its own: who was killed in the middle still holds the slot, until the sweeper comes.
		account := func(i int) string { return fmt.Sprintf("a%d-%d", round, i) }
		each(callers, func(i int) { s.account(account(i), 1_000_000) })
		enough := make(chan struct{})
		var acknowledged sync.Once
		go func() { <-enough; s.kill() }()
		each(callers, func(i int) {
			account := account(i)
			for n := 0; ; n++ {
				key := fmt.Sprint("m", n)
				r, err := s.try("POST", "/v1/reservations", key, object{"account": account, "feature": "text.improve"})
				if err != nil {
					return // it is dead
				}
				if r.status != 201 {
					t.Errorf("got %d %s", r.status, r.text("reason"))
					return
				}
				note(account+" "+key, fact{account, r.text("id"), "reserved"})
				end, err := s.try("POST", "/v1/reservations/"+r.text("id")+"/commit", "", object{})
				if err != nil {
					note(account+" "+key, fact{account, r.text("id"), "reserved or committed"})
					return
				}
				note(account+" "+key, fact{account, r.text("id"), end.text("state")})
				if n == 20 {
					acknowledged.Do(func() { close(enough) })
				}
			}
		})
		acknowledged.Do(func() { close(enough) })
		verified(t, db)
	}
	s := serve(t, db)
	for key, f := range facts {
		got := s.call("GET", "/v1/reservations/"+f.id, "", nil).want(t, 200)
		if state := got.text("state"); !strings.Contains(f.state, state) {
			t.Errorf("%s was acknowledged as %s and is %s", key, f.state, state)
		}
	}
	if len(facts) < rounds*20 {
		t.Errorf("only %d reservations were made: the load was no load", len(facts))
	}
	// The same key after the crash is the same reservation.
	for key, f := range facts {
		again := s.reserve(f.account, strings.Fields(key)[1]).want(t, 201)
		if again.text("id") != f.id || again.header.Get("Idempotent-Replayed") != "true" {
			t.Errorf("%s: %s came back as %s", key, f.id, again.text("id"))
		}
		break
	}
	s.kill()
	verified(t, db)
}

func TestASecondServingProcessIsRefusedUntilTheFirstIsGone(t *testing.T) {
	db := database(t)
	first := serve(t, db)
	link := filepath.Join(t.TempDir(), "other-name.db")
	if err := os.Symlink(strings.TrimPrefix(db, "sqlite:"), link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{db, "sqlite:" + link} {
		_, notes, code := holdfast(t, "serve", "--dev", "--db", name, "--listen", "127.0.0.1:0")
		if code != 1 || !strings.Contains(notes, "stop that process first") {
			t.Errorf("second process on %s: exit %d\n%s", name, code, notes)
		}
	}
	first.account("ann", 1)
	verified(t, db) // reads are let in
	if out, notes, code := holdfast(t, "account", "show", "ann", "--db", db); code != 0 || !strings.Contains(out, "available 4") {
		t.Errorf("account show beside a serving process: exit %d\n%s%s", code, out, notes)
	}
	if out, notes, code := holdfast(t, "account", "grant", "ann", "5", "credit", "--db", db); code != 0 || !strings.Contains(out, "available now 9") {
		t.Errorf("account grant beside a serving process: exit %d\n%s%s", code, out, notes)
	}
	first.kill()
	serve(t, db).call("GET", "/v1/accounts/ann", "", nil).want(t, 200)
}

func TestWithoutDevInsecureDefaultsAreRefusedAndStoredKeysWork(t *testing.T) {
	db := database(t)
	refused := func(hint string, args ...string) {
		t.Helper()
		_, notes, code := holdfast(t, append([]string{"serve", "--db", db}, args...)...)
		if code != 1 || !strings.Contains(notes, hint) {
			t.Errorf("serve %v: exit %d, want a hint about %q\n%s", args, code, hint, notes)
		}
	}
	refused("holdfast key create", "--listen", "127.0.0.1:0")
	refused("--dev serves this machine only", "--dev", "--listen", "0.0.0.0:0")
	read, _, code := holdfast(t, "key", "create", "--db", db, "--project", "bot", "--scope", "read")
	if code != 0 {
		t.Fatal("key create failed")
	}
	work, _, _ := holdfast(t, "key", "create", "--db", db, "--project", "bot", "--scope", "work,money")
	s := start(t, strings.TrimSpace(work), nil, "serve", "--db", db, "--listen", "127.0.0.1:0")
	s.account("ann", 1)
	reserved := s.reserve("ann", "m1").want(t, 201)
	if got := s.call("GET", "/v1/reservations/"+reserved.text("id"), "", nil); got.status != 403 || got.text("reason") != "scope" {
		t.Errorf("reading without the scope: %d %v", got.status, got.body)
	}
	s.key = strings.TrimSpace(read)
	s.call("GET", "/v1/reservations/"+reserved.text("id"), "", nil).want(t, 200)
	late, _, _ := holdfast(t, "key", "create", "--db", db, "--project", "other", "--scope", "read,work")
	s.key = strings.TrimSpace(late)
	s.call("GET", "/v1/reservations/"+reserved.text("id"), "", nil).want(t, 404)
	s.key = "wrong"
	if got := s.call("GET", "/v1/accounts/ann", "", nil).want(t, 401); got.header.Get("WWW-Authenticate") == "" {
		t.Error("401 without WWW-Authenticate")
	}
	if strings.Contains(s.notes.String(), strings.TrimSpace(work)) {
		t.Error("a key was logged")
	}
}

// Cases 12, 24 and 25: a worker dies; what it held comes back by itself, and its late result is charged once.
func TestADeadWorkersReservationExpiresByItself(t *testing.T) {
	db := database(t)
	s := serve(t, db, "--sweep-every", "100ms")
	s.account("ann", 5)
	r := s.call("POST", "/v1/reservations", "m1", object{"account": "ann", "feature": "text.improve", "ttl_seconds": 1}).want(t, 201)
	started := s.call("POST", "/v1/reservations/"+r.text("id")+"/start", "", object{"lease_seconds": 5}).want(t, 200)
	if s.reserve("ann", "m2").want(t, 409).text("reason") != "too_many_active" {
		t.Error("the free plan has one slot")
	}
	deadline := time.Now().Add(30 * time.Second)
	for s.call("GET", "/v1/reservations/"+r.text("id"), "", nil).text("state") != "expired" {
		if time.Now().After(deadline) {
			t.Fatal("it was not swept")
		}
		time.Sleep(50 * time.Millisecond) // a real process with a real clock
	}
	second := s.reserve("ann", "m2")
	if second.status != 409 { // the refusal under m2 is recorded; a new press has a new key
		t.Errorf("a recorded refusal is repeated: %d", second.status)
	}
	s.reserve("ann", "m3").want(t, 201)
	late := s.call("POST", "/v1/reservations/"+r.text("id")+"/commit", "", object{"lease_token": started.text("lease_token")}).want(t, 200)
	if late.body["late"] != true || late.number("late_used") != 1 {
		t.Errorf("late commit: %v", late.body)
	}
	s.kill()
	verified(t, db)
}

func TestVerifyFindsARowThatWasChangedByHand(t *testing.T) {
	db := database(t)
	s := serve(t, db)
	s.account("ann", 5)
	s.reserve("ann", "m1").want(t, 201)
	s.kill()
	verified(t, db)
	tamper(t, db, `UPDATE grants SET used = used + 1 WHERE source = 'purchase'`)
	out, _, code := holdfast(t, "verify", "--db", db)
	if code != 1 || !strings.Contains(out, "ann") {
		t.Errorf("exit %d\n%s", code, out)
	}
	if _, notes, code := holdfast(t, "verify", "--db", "sqlite:"+filepath.Join(t.TempDir(), "none.db")); code != 1 || !strings.Contains(notes, "none.db") {
		t.Errorf("a missing file: exit %d\n%s", code, notes)
	}
}

func TestTheCatalogOfAFileBecomesANewVersionOnlyWhereItDiffers(t *testing.T) {
	db := database(t)
	file := filepath.Join(t.TempDir(), "catalog.yaml")
	write := func(amount string) {
		t.Helper()
		source, _, _ := holdfast(t, "catalog", "example")
		changed := strings.Replace(source, "price: [{unit: credit, amount: 1}]", "price: [{unit: credit, amount: "+amount+"}]", 1)
		if err := os.WriteFile(file, []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	version := func(args ...string) (version, needed int64) {
		t.Helper()
		s := serve(t, db, args...)
		defer s.kill()
		r := s.call("POST", "/v1/reservations", fmt.Sprint("k", time.Now().UnixNano()), object{"account": "ann" + fmt.Sprint(time.Now().UnixNano()), "feature": "text.improve"}).want(t, 201)
		return r.number("catalog_version"), r.number("reserved")
	}
	write("1")
	for _, step := range []struct {
		args            []string
		version, amount int64
	}{{[]string{"--catalog", file}, 1, 1}, {[]string{"--catalog", file}, 1, 1}, {nil, 1, 1}} {
		if v, n := version(step.args...); v != step.version || n != step.amount {
			t.Errorf("version %d amount %d, want %+v", v, n, step)
		}
	}
	write("2")
	if v, n := version("--catalog", file); v != 2 || n != 2 {
		t.Errorf("version %d, amount %d", v, n)
	}
	if err := os.WriteFile(file, []byte("units: {}\nfeatures: 7\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, notes, code := holdfast(t, "serve", "--dev", "--db", db, "--catalog", file, "--listen", "127.0.0.1:0")
	if code != 1 || !strings.Contains(notes, "catalog.yaml:2:") {
		t.Errorf("a broken catalog: exit %d\n%s", code, notes)
	}
}

// Case 62: a clock that was ahead must not hold people up unseen.
func TestServingIsRefusedWithAClockFarBehindTheLastDecision(t *testing.T) {
	db := database(t)
	s := serve(t, db)
	s.account("ann", 1)
	s.kill()
	tamper(t, db, `UPDATE accounts SET decided_at = decided_at + 86400 * 1000000`)
	_, notes, code := holdfast(t, "serve", "--dev", "--db", db, "--listen", "127.0.0.1:0")
	if code != 1 || !strings.Contains(notes, "ahead of this machine's clock") {
		t.Errorf("exit %d\n%s", code, notes)
	}
	tamper(t, db, `UPDATE accounts SET decided_at = decided_at - 86400 * 1000000`)
	serve(t, db).call("GET", "/v1/accounts/ann", "", nil).want(t, 200)
}

func TestMetricsTellWhatHappened(t *testing.T) {
	s := serve(t, database(t))
	s.account("ann", 1)
	s.reserve("ann", "m1").want(t, 201)
	s.reserve("ann", "m2").want(t, 409)
	response, err := client.Get(s.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`holdfast_decisions_total{operation="reserve",reason="done",replayed="no"} 1`,
		`holdfast_decisions_total{operation="reserve",reason="too_many_active",replayed="no"} 1`,
		"holdfast_live_reservations 1", "holdfast_quarantined_accounts 0",
	} {
		if !strings.Contains(string(body), line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
}

func TestTheDrillPassesOnPostgreSQLBesideAServingProcess(t *testing.T) {
	db := pgtest.NewEmpty(t)
	s := serve(t, db)
	s.account("ann", 1)
	s.reserve("ann", "m1").want(t, 201)
	out, notes, code := holdfast(t, "drill", "--db", db)
	if code != 0 {
		t.Errorf("exit %d\n%s%s", code, out, notes)
	}
	if state := s.reserve("ann", "m1").want(t, 201); state.header.Get("Idempotent-Replayed") != "true" {
		t.Error("the drill touched somebody else's reservation")
	}
	verified(t, db)
	withPassword := strings.Replace(db, "@", ":SECRET@", 1)
	if out, notes, code := holdfast(t, "drill", "--db", withPassword); code != 0 || strings.Contains(out+notes, "SECRET") {
		t.Errorf("with a password in the URL: exit %d\n%s%s", code, out, notes)
	}
	if out, notes, code := holdfast(t, "migrate", "--db", db); code != 0 {
		t.Errorf("migrate: exit %d\n%s%s", code, out, notes)
	}
}

func TestADatabaseThatCannotBeReachedIsSaidWithoutItsPassword(t *testing.T) {
	for _, db := range []string{"postgres://u:SECRET@127.0.0.1:1/none?connect_timeout=1", "postgres://u:SECRET@[bad", "mysql://u:SECRET@h/d"} {
		_, notes, code := holdfast(t, "verify", "--db", db)
		if code != 1 || notes == "" || strings.Contains(notes, "SECRET") {
			t.Errorf("%d: %s", code, notes)
		}
	}
}
