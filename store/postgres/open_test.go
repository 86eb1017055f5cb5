package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/postgres/migration"
)

// refused is the error of an Open that must fail, as a store's error.
func refused(t *testing.T, url string, options Options, from fs.FS) *store.Error {
	t.Helper()
	db, err := open(t.Context(), url, options, from)
	if err == nil {
		_ = db.Close()
		t.Fatal("opened; wanted an error")
	}
	var e *store.Error
	if !errors.As(err, &e) {
		t.Fatalf("%T: %v; wanted a *store.Error", err, err)
	}
	return e
}

func wantFatal(t *testing.T, e *store.Error, words ...string) {
	t.Helper()
	if e.Kind != store.Fatal || e.Hint == "" {
		t.Errorf("kind %s, hint %q; wanted a fatal error with a hint: %v", e.Kind, e.Hint, e)
	}
	for _, word := range words {
		if !strings.Contains(e.Error(), word) {
			t.Errorf("%v\ndoes not mention %q", e, word)
		}
	}
}

// later is our migrations and one that only a newer program has. It would fail, or show, if it ran twice.
func later(t *testing.T) fstest.MapFS {
	t.Helper()
	all := fstest.MapFS{
		"9000_later.sql": {Data: []byte("-- +goose Up\nCREATE TABLE holdfast.later (times integer NOT NULL);\nINSERT INTO holdfast.later VALUES (1);\nUPDATE holdfast.later SET times = times + 1;\n")},
	}
	files, err := fs.Glob(migration.Files, "*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations, %v", len(files), err)
	}
	for _, name := range files {
		text, err := fs.ReadFile(migration.Files, name)
		must(t, err)
		all[name] = &fstest.MapFile{Data: text}
	}
	return all
}

const countTables = `SELECT count(*) FROM pg_tables WHERE schemaname = 'holdfast' AND tablename = $1`

func TestAnEmptyDatabaseIsMigratedAndAMigratedOneLeftAlone(t *testing.T) {
	t.Parallel()
	url := pgtest.NewEmpty(t)
	for range 2 {
		db := opened(t, url, Options{})
		_, err := db.AddProject(t.Context(), "shop")
		must(t, err)
		must(t, db.Close())
	}
	conn := raw(t, url)
	for _, table := range []string{"accounts", "grants", "reservations", "entries", "answers", "outbox", "projects", "api_keys", "catalogs"} {
		if asked[int](t, conn, countTables, table) != 1 {
			t.Errorf("table %s is missing", table)
		}
	}
	if asked[int](t, conn, `SELECT count(*) FROM pg_tables WHERE schemaname = 'public'`) != 0 {
		t.Error("something was put beside the tables of others")
	}
}

func TestADatabaseWithTablesOfOthersIsSharedWithThem(t *testing.T) {
	t.Parallel()
	url := pgtest.NewEmpty(t)
	conn := raw(t, url)
	execute(t, conn, `CREATE TABLE accounts (name text)`)
	execute(t, conn, `CREATE TABLE goose_db_version (mine text)`)
	db := opened(t, url, Options{})
	must(t, answer(t.Context(), db, want("ann"), "k"))
	if asked[int](t, conn, `SELECT count(*) FROM public.accounts`) != 0 {
		t.Error("we wrote into somebody else's table")
	}
}

func TestAnOlderDatabaseIsMigratedWithWhatIsInIt(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{})
	must(t, answer(t.Context(), db, want("ann"), "k"))
	must(t, db.Close())
	wantFatal(t, refused(t, url, Options{ReadOnly: true}, later(t)), "reading only", "holdfast migrate")
	db, err := open(t.Context(), url, Options{}, later(t))
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	if version, known := stored(t, db, "ann", "k"); version != 1 || !known {
		t.Errorf("afterwards: version %d, %v", version, known)
	}
	if asked[int](t, raw(t, url), `SELECT sum(times) FROM holdfast.later`) != 2 {
		t.Error("the later migration is missing, or ran twice")
	}
}

func TestANewerDatabaseIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db, err := open(t.Context(), url, Options{}, later(t))
	must(t, err)
	must(t, db.Close())
	for _, options := range []Options{{}, {ReadOnly: true}, {Sharded: true}} {
		wantFatal(t, refused(t, url, options, migration.Files), "schema 9000", "newer holdfast")
	}
}

func TestManyServersOpenOneNewDatabaseAtOnceAndMigrateItOnce(t *testing.T) {
	t.Parallel()
	url, from := pgtest.NewEmpty(t), later(t)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			db, err := open(t.Context(), url, Options{MaxConns: 2}, from)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := db.AddProject(t.Context(), fmt.Sprint("p", n)); err != nil {
				t.Error(err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	conn := raw(t, url)
	times := asked[int](t, conn, `SELECT sum(times) FROM holdfast.later`)
	applied := asked[int](t, conn, `SELECT count(*) FROM holdfast.goose_db_version WHERE version_id > 0`)
	if projects := asked[int](t, conn, `SELECT count(*) FROM holdfast.projects`); times != 2 || applied != len(from) || projects != 8 {
		t.Errorf("the later migration left %d, %d lines of history, %d projects; wanted 2, %d, 8", times, applied, projects, len(from))
	}
	if asked[int](t, conn, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'`) != 0 {
		t.Error("an advisory lock is held: a pooler would lend its session to somebody else")
	}
}

func TestAMigrationThatFailsLeavesTheDatabaseAsItWas(t *testing.T) {
	t.Parallel()
	url, from := pgtest.New(t), later(t)
	from["9001_broken.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE holdfast.half (n integer);\nCREATE TABLE holdfast.half (n integer);\n")}
	wantFatal(t, refused(t, url, Options{}, from))
	conn := raw(t, url)
	if asked[int](t, conn, countTables, "half") != 0 || asked[int](t, conn, countTables, "later") != 1 {
		t.Error("wanted all migrations up to the broken one, and nothing of that")
	}
	db, err := open(t.Context(), url, Options{}, later(t))
	must(t, err)
	must(t, db.Close())
}

// A migration must not queue behind a long reader for longer than its bound, because everybody else would queue behind it.
func TestAMigrationDoesNotWaitLongForALock(t *testing.T) {
	t.Parallel()
	url, from := pgtest.New(t), later(t)
	from["9001_column.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nSET LOCAL lock_timeout = '50ms';\nALTER TABLE holdfast.accounts ADD COLUMN later text;\n")}
	reader := raw(t, url)
	execute(t, reader, `BEGIN`)
	execute(t, reader, `SELECT count(*) FROM holdfast.accounts`)
	if e := refused(t, url, Options{}, from); e.Kind != store.Conflict || e.Code != "55P03" {
		t.Errorf("%v; wanted a conflict: lock_timeout", e)
	}
	execute(t, reader, `ROLLBACK`)
	db, err := open(t.Context(), url, Options{}, from)
	must(t, err)
	must(t, db.Close())
	files, err := fs.Glob(migration.Files, "*.sql")
	must(t, err)
	for _, name := range files {
		text, err := fs.ReadFile(migration.Files, name)
		must(t, err)
		if !strings.Contains(string(text), "SET LOCAL lock_timeout = ") {
			t.Errorf("%s waits for locks without a bound", name)
		}
	}
}

func TestAReaderChangesNothing(t *testing.T) {
	t.Parallel()
	empty := pgtest.NewEmpty(t)
	wantFatal(t, refused(t, empty, Options{ReadOnly: true}, migration.Files), "holdfast migrate")
	if asked[int](t, raw(t, empty), `SELECT count(*) FROM pg_namespace WHERE nspname = 'holdfast'`) != 0 {
		t.Error("a reader made a schema")
	}
	reader := opened(t, pgtest.New(t), Options{ReadOnly: true})
	_, err := reader.AddProject(t.Context(), "shop")
	kind(t, err, store.Unavailable, "")
	_, err = begun(t, reader).Load(t.Context(), wants("ann"))
	kind(t, err, store.Unavailable, "")
	if names, err := reader.Projects(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestDurableSettingsAreInForce(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	settings, err := opened(t, url, Options{}).Settings(t.Context())
	must(t, err)
	if settings.Fsync != "on" || settings.SynchronousCommit != "on" || settings.FullPageWrites != "on" || settings.Version < oldest {
		t.Errorf("the server says %+v", settings)
	}
	wantFatal(t, refused(t, url+"&synchronous_commit=off", Options{}, migration.Files), "synchronous_commit")
	opened(t, url+"&synchronous_commit=off", Options{ReadOnly: true})
	for name, weak := range map[string]Settings{
		"version": {Version: 14_00_12, Fsync: "on", SynchronousCommit: "on", FullPageWrites: "on"},
		"fsync":   {Version: oldest, Fsync: "off", SynchronousCommit: "on", FullPageWrites: "on"},
		"pages":   {Version: oldest, Fsync: "on", SynchronousCommit: "on", FullPageWrites: "off"},
	} {
		kind(t, weak.inForce(Options{}), store.Fatal, "")
		_ = name
	}
}

func TestTheClockOfTheDatabaseIsCompared(t *testing.T) {
	t.Parallel()
	ahead, err := opened(t, pgtest.New(t), Options{}).Skew(t.Context())
	must(t, err)
	if ahead.Abs() > time.Minute { // one machine, one clock, in two time zones
		t.Errorf("the clock is said to be %s ahead", ahead)
	}
}

func TestADatabaseThatIsMissingItsTablesIsFatalAndNotARefusal(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{})
	execute(t, raw(t, url), `DROP TABLE holdfast.answers`)
	kind(t, answer(t.Context(), db, want("ann"), "k"), store.Fatal, "42P01")
}

func TestAStoredRowThatWasTamperedWithIsAnError(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{})
	must(t, answer(t.Context(), db, want("ann"), "k"))
	execute(t, raw(t, url), `UPDATE holdfast.accounts SET metadata = '[5ecret'`)
	_, err := begun(t, db).Load(t.Context(), wants("ann"))
	kind(t, err, store.Fatal, "")
	if strings.Contains(err.Error(), "5ecret") || !strings.Contains(err.Error(), "metadata") {
		t.Errorf("%v; wanted the column's name and nothing of what is in it", err)
	}
	must(t, answer(t.Context(), db, want("bob"), "k")) // the connection is as good as before
}

func TestADatabaseThatIsNotThereIsUnavailableWithAHint(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	missing := strings.Replace(url, "/holdfast_test_", "/no_such_", 1)
	if e := refused(t, missing, Options{}, migration.Files); e.Kind != store.Unavailable || !strings.Contains(e.Hint, "createdb") {
		t.Errorf("%v", e)
	}
	if e := refused(t, "postgres://127.0.0.1:1/x?sslmode=disable", Options{}, migration.Files); e.Kind != store.Unavailable {
		t.Errorf("%v", e)
	}
}

func TestCloseWaitsForATransactionAndSaysWhereOneNeverEnds(t *testing.T) {
	t.Parallel()
	db := opened(t, pgtest.New(t), Options{Patience: 50 * time.Millisecond})
	tx, _ := loaded(t, db, want("ann"))
	if err := db.Close(); err == nil || store.KindOf(err) != store.Unavailable {
		t.Errorf("closed under a transaction: %v", err)
	}
	must(t, tx.Abort(t.Context()))
}

func TestAConnectionOfThePoolFindsTheServerThatWrites(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	// Somebody makes the database read-only, as a switch to another server does.
	db := opened(t, url, Options{})
	must(t, answer(t.Context(), db, want("ann"), "k"))
	conn := raw(t, url)
	name := asked[string](t, conn, `SELECT current_database()`)
	execute(t, conn, `ALTER DATABASE `+name+` SET default_transaction_read_only = on`)
	_, err := Open(t.Context(), url, Options{})
	kind(t, err, store.Unavailable, "")
	opened(t, url, Options{ReadOnly: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	must(t, answer(ctx, db, want("ann"), "k2")) // sessions that were there before may write
}
