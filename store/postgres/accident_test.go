package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// troubles are accidents of one transaction, for the conformance suite.
func troubles(t *testing.T, db *DB, url string) []storetest.Trouble {
	end := func(conn *pgx.Conn) {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
	return []storetest.Trouble{
		{
			Name: "another transaction holds the account", When: storetest.AtLoad, Kind: store.Conflict,
			Begin: func(t *testing.T) func() {
				other := raw(t, url)
				execute(t, other, `BEGIN`)
				execute(t, other, `SELECT FROM holdfast.accounts FOR UPDATE`)
				return func() { end(other) }
			},
		},
		{
			Name: "the session is ended before it saves", When: storetest.AtSave, Kind: store.InDoubt,
			Begin: func(t *testing.T) func() {
				other := raw(t, url)
				// The transaction is not there yet: its session is ended by the first row that it writes.
				execute(t, other, `CREATE FUNCTION holdfast.stumble() RETURNS trigger LANGUAGE plpgsql AS
					$$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NEW; END $$`)
				execute(t, other, `CREATE TRIGGER stumble BEFORE INSERT ON holdfast.entries EXECUTE FUNCTION holdfast.stumble()`)
				return func() {
					execute(t, other, `DROP FUNCTION holdfast.stumble() CASCADE`)
					end(other)
				}
			},
		},
		{
			Name: "the disk is full", When: storetest.AtSave, Kind: store.Unavailable,
			Begin: raising(url, "53100", end),
		},
		{
			Name: "the server cannot keep it apart from another transaction", When: storetest.AtSave, Kind: store.Conflict,
			Begin: raising(url, "40001", end),
		},
		{
			Name: "the server has become a standby", When: storetest.AtSave, Kind: store.Unavailable,
			Begin: raising(url, "25006", end),
		},
		{
			Name: "the server could not commit", When: storetest.AtSave, Kind: store.Conflict,
			Begin: raising(url, "XX000", end),
		},
	}
}

// raising lets the server answer every entry with a code.
func raising(url, code string, end func(*pgx.Conn)) func(t *testing.T) func() {
	return func(t *testing.T) func() {
		other := raw(t, url)
		execute(t, other, fmt.Sprintf(`CREATE FUNCTION holdfast.fail() RETURNS trigger LANGUAGE plpgsql AS
			$$ BEGIN RAISE 'as ordered' USING ERRCODE = '%s'; END $$`, code))
		execute(t, other, `CREATE TRIGGER fail BEFORE INSERT ON holdfast.entries EXECUTE FUNCTION holdfast.fail()`)
		return func() {
			execute(t, other, `DROP FUNCTION holdfast.fail() CASCADE`)
			end(other)
		}
	}
}

// Two transactions that take two accounts in opposite order stop each other. Ours take them in one order, so the other
// one here is somebody else's.
func TestADeadlockIsAConflict(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{Patience: time.Minute})
	names := []string{"ann", "bob"}
	for _, name := range names {
		must(t, answer(t.Context(), db, want(name), "k"))
	}
	both := wants(names...)
	first, last := both[0], both[1]
	if strings.Compare(first.Account.String(), last.Account.String()) > 0 {
		first, last = last, first
	}
	other, watcher := raw(t, url), raw(t, url)
	const lockOne = `SELECT FROM holdfast.accounts WHERE account_id = $1 FOR UPDATE`
	execute(t, other, `BEGIN`)
	execute(t, other, `SET LOCAL deadlock_timeout = '1h'`) // so that it is ours that finds it
	execute(t, other, lockOne, last.Account.String())
	for i := range both {
		both[i].Wait = true
	}
	var all sync.WaitGroup
	all.Go(func() {
		_, err := begun(t, db).Load(t.Context(), both)
		kind(t, err, store.Conflict, "40P01")
	})
	waitsForLock(t, watcher, 1)
	all.Go(func() { execute(t, other, lockOne, first.Account.String()) })
	all.Wait()
	execute(t, other, `COMMIT`)
	must(t, answer(t.Context(), db, first, "k2"))
}

func TestAWaitForAnAccountIsBounded(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{Patience: 50 * time.Millisecond})
	must(t, answer(t.Context(), db, want("ann"), "k"))
	for _, name := range []string{"ann", "new"} { // one to be locked, one to be made
		holds, _ := loaded(t, db, want(name))
		_, err := begun(t, db).Load(t.Context(), wants(name))
		kind(t, err, store.Conflict, "55P03")
		waiting := wants(name, "bob")
		waiting[0].Wait = true
		_, err = begun(t, db).Load(t.Context(), waiting)
		kind(t, err, store.Conflict, "55P03")
		must(t, holds.Abort(t.Context()))
		must(t, answer(t.Context(), db, want(name), "k2"))
	}
}

// A transaction of a stranger, with no bound of ours, holds an account for as long as it likes.
func TestAHeldAccountDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{Patience: time.Hour}) // whoever waited would not come back before the test is given up
	for _, name := range []string{"ann", "bob"} {
		must(t, answer(t.Context(), db, want(name), "k"))
	}
	other := raw(t, url)
	execute(t, other, `BEGIN`)
	execute(t, other, `SELECT FROM holdfast.accounts WHERE account_id = $1 FOR UPDATE`, want("ann").Account.String())
	execute(t, other, `INSERT INTO holdfast.accounts (account_id, project, name, version, last_entry, active, blocked, notices, created_at, decided_at, plan, language, time_zone)
		VALUES ($1, 'shop', 'new', 0, 0, 0, false, false, 'epoch', 'epoch', '', '', '')`, want("new").Account.String())
	for n, test := range []struct {
		held    string
		skipped []bool
	}{
		{"ann", []bool{true, false, false}},
		{"new", []bool{true, false, true}}, // which of the new ones is held, the server does not tell
	} {
		tx, states := loaded(t, db, wants(test.held, "bob", fmt.Sprint("newer ", n))...)
		var changes []holdfast.Changes
		for i, state := range states {
			if skipped := state == nil; skipped != test.skipped[i] {
				t.Errorf("%s is held: account %d skipped: %v", test.held, i, skipped)
			} else if !skipped {
				changes = append(changes, holdfast.Changes{Account: holdfast.Account{
					ID: state.Account.ID, Project: "shop", Name: state.Account.Name, Version: state.Account.Version, LastEntry: state.Account.LastEntry, CreatedAt: now, DecidedAt: now,
				}})
			}
		}
		must(t, tx.Save(t.Context(), changes))
	}
	unknown := want("nobody")
	unknown.Create = false
	tx, states := loaded(t, db, unknown, want("bob"))
	must(t, tx.Abort(t.Context()))
	if states[0] == nil || states[0].Account.Version != 0 {
		t.Error("an account that is not there is not held")
	}
	execute(t, other, `ROLLBACK`)
	must(t, answer(t.Context(), db, want("new"), "k"))
}

func TestAPoolOfTwoServesAHundredCallers(t *testing.T) {
	t.Parallel()
	db := opened(t, pgtest.New(t), Options{MaxConns: 2, Patience: time.Minute})
	const callers, each = 100, 2
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for n := range each {
				for {
					err := answer(t.Context(), db, want(fmt.Sprint("account ", caller%20)), fmt.Sprint(caller, "/", n))
					if err == nil {
						break
					}
					if store.KindOf(err) != store.Conflict {
						t.Error(err)
						break
					}
				}
			}
		})
		if caller%4 == 0 { // some leave while they wait
			leaving, leave := context.WithCancel(t.Context())
			all.Go(func() {
				tx := begun(t, db)
				if _, err := tx.Load(leaving, wants("somebody")); err != nil {
					kind(t, err, store.Unavailable, "")
				}
				must(t, tx.Abort(t.Context()))
			})
			leave()
		}
	}
	all.Wait()
	for account := range 20 {
		if version, _ := stored(t, db, fmt.Sprint("account ", account), ""); version != callers/20*each {
			t.Errorf("account %d has version %d, wanted %d", account, version, callers/20*each)
		}
	}
	if used := db.pool.Stat().AcquiredConns(); used != 0 {
		t.Errorf("%d connections are still in use", used)
	}
}

func TestAnExhaustedPoolIsUnavailableAndSoIsACallerWhoLeaves(t *testing.T) {
	t.Parallel()
	db := opened(t, pgtest.New(t), Options{MaxConns: 1, Patience: 500 * time.Millisecond}) // also a busy machine connects in that time
	holds, _ := loaded(t, db, want("ann"))
	_, err := begun(t, db).Load(t.Context(), wants("bob"))
	kind(t, err, store.Unavailable, "")
	leaving, leave := context.WithCancel(t.Context())
	leave()
	_, err = begun(t, db).Load(leaving, wants("bob"))
	kind(t, err, store.Unavailable, "")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v does not tell that the caller left", err)
	}
	must(t, holds.Abort(t.Context()))
	must(t, answer(t.Context(), db, want("bob"), "k"))
}

// A caller who leaves while the server works must not leave a connection behind that is in the middle of something.
func TestACallerWhoLeavesDuringAWaitSpoilsNoConnection(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{MaxConns: 2, Patience: time.Minute})
	holds, _ := loaded(t, db, want("ann"))
	leaving, leave := context.WithCancel(t.Context())
	result := make(chan error)
	go func() {
		_, err := begun(t, db).Load(leaving, wants("ann"))
		result <- err
	}()
	waitsForLock(t, raw(t, url), 1)
	leave()
	kind(t, <-result, store.Unavailable, "")
	must(t, holds.Abort(t.Context()))
	for n := range 4 {
		must(t, answer(t.Context(), db, want("ann"), fmt.Sprint(n)))
	}
}

func TestADatabaseThatWasKilledIsUsedAgainWhenItIsBack(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t)
	db := opened(t, server.Database(t), Options{})
	must(t, answer(t.Context(), db, want("ann"), "before"))
	saving, states := loaded(t, db, want("ann"))
	server.Kill(t)
	kind(t, saving.Save(t.Context(), []holdfast.Changes{answered(states[0], "lost")}), store.InDoubt, "")
	for range 3 {
		_, err := begun(t, db).Load(t.Context(), wants("ann"))
		kind(t, err, store.Unavailable, "")
		_, err = db.Read(t.Context(), store.Query{Kind: store.QueryState, Project: "shop", Account: want("ann").Account})
		kind(t, err, store.Unavailable, "")
	}
	server.Run(t)
	if version, known := stored(t, db, "ann", "before"); version != 1 || !known {
		t.Errorf("version %d, answer known: %v; wanted what was acknowledged", version, known)
	}
	if _, known := stored(t, db, "ann", "lost"); known {
		t.Error("what could not be saved is there")
	}
	must(t, answer(t.Context(), db, want("ann"), "after"))
}

// The connection is cut at every place of a Save: nothing of it has happened then, but the store cannot know, and says so.
// Reading under the lock tells. When only the answer is lost, everything has happened.
func TestACutConnectionLeavesDoubtThatTheNextReadingEnds(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "&default_query_exec_mode=exec"} {
		url := pgtest.New(t)
		proxy := pgtest.NewProxy(t, url)
		db := opened(t, proxy.Through(url)+mode, Options{MaxConns: 1})
		direct := opened(t, url, Options{})
		must(t, answer(t.Context(), db, want("ann"), "first"))
		must(t, answer(t.Context(), db, want("ann"), "second")) // now all statements are prepared on the connection
		version := int64(2)
		cuts := 0
		for n := 0; ; n++ {
			w := want("ann")
			w.OverdueAt = now.Add(time.Hour)
			must(t, warm(t, db, &version))
			tx, states := loaded(t, db, w)
			cut := proxy.CutBefore(n)
			err := tx.Save(t.Context(), []holdfast.Changes{answered(states[0], "cut")})
			if err == nil { // there were no more than n statements
				version++
				break
			}
			kind(t, err, store.InDoubt, "")
			<-cut
			cuts++
			if got, known := stored(t, direct, "ann", "cut"); got != version || known {
				t.Fatalf("cut before statement %d: version %d, stored: %v; wanted %d and nothing stored", n, got, known, version)
			}
		}
		if cuts < 9 { // accounts, grants twice, reservations twice, entries, answers, outbox, COMMIT
			t.Errorf("%q: cut at %d places only", mode, cuts)
		}
		if _, known := stored(t, direct, "ann", "cut"); !known {
			t.Error("what was saved without a cut is missing")
		}
		proxy.CutAll() // and with it the orders that nobody has followed
		db = opened(t, proxy.Through(url)+mode, Options{MaxConns: 1})
		must(t, warm(t, db, &version))
		w := want("ann")
		w.OverdueAt = now.Add(time.Hour)
		tx, states := loaded(t, db, w)
		cut := proxy.CutAnswer()
		kind(t, tx.Save(t.Context(), []holdfast.Changes{answered(states[0], "answer lost")}), store.InDoubt, "")
		<-cut
		if got, known := stored(t, direct, "ann", "answer lost"); got != version+1 || !known {
			t.Errorf("version %d, stored: %v; wanted %d and stored", got, known, version+1)
		}
	}
}

// warm lets the one connection of the pool prepare all that it will need.
func warm(t *testing.T, db *DB, version *int64) error {
	*version++
	return answer(t.Context(), db, want("ann"), fmt.Sprint("warm ", *version))
}

func TestACutConnectionBeforeSavingIsUnavailable(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	proxy := pgtest.NewProxy(t, url)
	db := opened(t, proxy.Through(url), Options{MaxConns: 1})
	must(t, answer(t.Context(), db, want("ann"), "first"))
	cut := proxy.CutBefore(3)
	_, err := begun(t, db).Load(t.Context(), wants("ann"))
	kind(t, err, store.Unavailable, "")
	<-cut
	proxy.Refuse(true)
	_, err = begun(t, db).Load(t.Context(), wants("ann"))
	kind(t, err, store.Unavailable, "")
	proxy.Refuse(false)
	must(t, answer(t.Context(), db, want("ann"), "second"))
}

// A Save whose COMMIT is on its way must not be cancelled: see wire.
func TestNobodyAsksTheServerToCancelACommit(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{MaxConns: 1})
	tx, states := loaded(t, db, want("ann"))
	ours := tx.(*transaction).session.(*pooled).conn.Conn().PgConn()
	server := ours.Conn().RemoteAddr()
	committing(ours, true)
	if err := ours.CancelRequest(t.Context()); err == nil {
		t.Error("a request to cancel was sent while COMMIT may be on its way")
	}
	committing(ours, false)
	if err := ours.CancelRequest(t.Context()); err != nil || ours.Conn().RemoteAddr() != server {
		t.Errorf("no request to cancel can be sent at other times: %v", err)
	}
	must(t, tx.Save(t.Context(), []holdfast.Changes{answered(states[0], "k")}))
	must(t, answer(t.Context(), db, want("ann"), "k2"))
	if ours.Conn().RemoteAddr() != server {
		t.Error("after COMMIT the connection is still marked")
	}
}

// What people send stays out of errors, and so out of logs, in every mode of the driver.
func TestErrorsTellNoArguments(t *testing.T) {
	t.Parallel()
	const secret = "5ecret"
	for _, mode := range []string{"", "exec", "simple_protocol", "cache_describe", "describe_exec"} {
		url := pgtest.New(t)
		if mode != "" {
			url += "&default_query_exec_mode=" + mode
		}
		db := opened(t, url, Options{})
		for name, spoil := range map[string]func(*holdfast.Changes){
			"a rule":           func(c *holdfast.Changes) { c.Entries[0].Available = -1 },
			"a missing row":    func(c *holdfast.Changes) { c.Grants = []*holdfast.Grant{{ID: id(99)}} },
			"a row twice":      func(c *holdfast.Changes) { c.NewGrants = append(c.NewGrants, c.NewGrants[0]) },
			"an impossible":    func(c *holdfast.Changes) { c.Answers[0].Key = secret + "\x00" },
			"no UTF-8":         func(c *holdfast.Changes) { c.Entries[0].Reason = secret + "\xff" },
			"a lost fence":     func(c *holdfast.Changes) { c.Account.Version = 7 },
			"a time too great": func(c *holdfast.Changes) { c.Entries[0].RecordedAt = time.Date(300_000, 1, 1, 0, 0, 0, 0, time.UTC) },
		} {
			tx, states := loaded(t, db, want("ann"))
			c := answered(states[0], secret)
			c.Account.Metadata = map[string]string{"token": secret}
			c.Entries[0].Reason = secret
			spoil(&c)
			err := tx.Save(t.Context(), []holdfast.Changes{c})
			wanted := store.Rejected
			if name == "a lost fence" {
				wanted = store.Conflict
			}
			kind(t, err, wanted, "")
			if strings.Contains(err.Error(), secret) || strings.Contains(fmt.Sprintf("%+v", errors.Unwrap(err)), secret) {
				t.Errorf("mode %q, %s: %v", mode, name, err)
			}
		}
		must(t, answer(t.Context(), db, want("ann"), "k"))
	}
	_, err := Open(t.Context(), "postgres://ann:"+secret+"@127.0.0.1:1/x?sslmode=disable", Options{})
	kind(t, err, store.Unavailable, "")
	_, bad := Open(t.Context(), "postgres://ann:"+secret+"@[::1:x/%zz", Options{})
	kind(t, bad, store.Fatal, "")
	if strings.Contains(err.Error()+bad.Error(), secret) {
		t.Errorf("a password is told: %v; %v", err, bad)
	}
}
