package sqlite

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// serveEnv makes the test binary a process that serves the file it names, until it is killed.
const serveEnv = "HOLDFAST_TEST_SERVE"

func TestMain(m *testing.M) {
	if path := os.Getenv(serveEnv); path != "" {
		if _, err := Open(context.Background(), path, Options{Serve: true}); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("serving")
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// serveElsewhere starts a process that serves the file, and returns when it does.
func serveElsewhere(t *testing.T, path string) *exec.Cmd {
	t.Helper()
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), serveEnv+"="+path)
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "serving\n" {
		t.Fatalf("the other process says %q: %v", line, err)
	}
	return child
}

// refused is the error of an Open that must fail, as a store's error.
func refused(t *testing.T, path string, options Options) *store.Error {
	t.Helper()
	db, err := Open(t.Context(), path, options)
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

func TestASecondServingProcessIsRefusedUntilTheFirstIsKilled(t *testing.T) {
	path := fresh(t)
	child := serveElsewhere(t, path)
	link := filepath.Join(t.TempDir(), "other name")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{path, link, filepath.Join(filepath.Dir(path), "..", filepath.Base(filepath.Dir(path)), "holdfast.db")} {
		wantFatal(t, refused(t, name, Options{Serve: true}), fmt.Sprintf("process %d serves", child.Process.Pid))
	}

	beside := opened(t, path, Options{})
	if created, err := beside.AddProject(t.Context(), "shop"); err != nil || !created {
		t.Errorf("a command beside the server: created %v, %v", created, err)
	}
	reader := opened(t, path, Options{ReadOnly: true})
	if names, err := reader.Projects(t.Context()); err != nil || len(names) != 1 {
		t.Errorf("a reader beside the server sees %v, %v", names, err)
	}

	if err := child.Process.Kill(); err != nil { // SIGKILL: it cleans nothing up
		t.Fatal(err)
	}
	_ = child.Wait()
	db := opened(t, path, Options{Serve: true})
	if names, err := db.Projects(t.Context()); err != nil || len(names) != 1 {
		t.Errorf("after the kill: %v, %v", names, err)
	}
	wantFatal(t, refused(t, path, Options{Serve: true}), fmt.Sprintf("process %d serves", os.Getpid()))
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	opened(t, path, Options{Serve: true})
}

func TestALinkToAFileThatIsStillToBeMadeLeadsToOneLock(t *testing.T) {
	directory := t.TempDir()
	if err := os.Symlink("real.db", filepath.Join(directory, "link.db")); err != nil {
		t.Fatal(err)
	}
	opened(t, filepath.Join(directory, "link.db"), Options{Serve: true})
	wantFatal(t, refused(t, filepath.Join(directory, "real.db"), Options{Serve: true}))
	if _, err := os.Stat(filepath.Join(directory, "real.db.lock")); err != nil {
		t.Error(err)
	}
}

func TestDurableSettingsAreInForce(t *testing.T) {
	path := fresh(t)
	db := opened(t, path, Options{Serve: true})
	wanted := Durability{JournalMode: "wal", Synchronous: "2", ForeignKeys: "1"}
	check := func() {
		t.Helper()
		if got, err := db.Durability(t.Context()); err != nil || got != wanted {
			t.Errorf("%+v, %v; wanted %+v", got, err, wanted)
		}
	}
	check()
	c, err := db.takeWriter(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	db.discard(c)
	check() // also of the connection that takes its place
	if err := (Durability{JournalMode: "wal", Synchronous: "1", ForeignKeys: "1"}).inForce(Options{}); store.KindOf(err) != store.Fatal {
		t.Errorf("synchronous=NORMAL is accepted: %v", err)
	}
	reader := opened(t, path, Options{ReadOnly: true})
	if got, err := reader.Durability(t.Context()); err != nil || got.JournalMode != "wal" {
		t.Errorf("a reader says %+v, %v", got, err)
	}
}

// schema is the text of all tables and indexes.
func schema(t *testing.T, path string) string {
	t.Helper()
	var text strings.Builder
	raw(t, path, func(db *sql.DB) {
		rows, err := db.Query(`SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name`)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var line string
			if err := rows.Scan(&line); err != nil {
				t.Fatal(err)
			}
			text.WriteString(line + "\n")
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	})
	return text.String()
}

// raw opens a file as any program would.
func raw(t *testing.T, path string, do func(db *sql.DB)) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	do(db)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func execute(t *testing.T, path, statement string) {
	t.Helper()
	raw(t, path, func(db *sql.DB) {
		if _, err := db.Exec(statement); err != nil {
			t.Fatal(err)
		}
	})
}

// later is our migrations and one that only a newer program has. It would fail, or show, if it ran twice.
func later(t *testing.T) fs.FS {
	t.Helper()
	all := fstest.MapFS{
		"9000_later.sql": {Data: []byte("-- +goose Up\nCREATE TABLE later (times INTEGER NOT NULL) STRICT;\nINSERT INTO later VALUES (1);\nUPDATE later SET times = times + 1;\n")},
	}
	ours, err := fs.Sub(migrations, "migration")
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Glob(ours, "*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d migrations, %v", len(files), err)
	}
	for _, name := range files {
		text, err := fs.ReadFile(ours, name)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = &fstest.MapFile{Data: text}
	}
	return all
}

func TestAnEmptyFileIsMigratedAndAMigratedOneLeftAlone(t *testing.T) {
	path := fresh(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		db := opened(t, path, Options{})
		if _, err := db.AddProject(t.Context(), "shop"); err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	text := schema(t, path)
	for _, table := range []string{"accounts", "grants", "reservations", "entries", "answers", "outbox", "projects", "api_keys", "catalogs"} {
		if !strings.Contains(text, "CREATE TABLE "+table+" (") {
			t.Errorf("table %s is missing", table)
		}
	}
}

func TestAnOlderFileIsMigratedWithWhatIsInIt(t *testing.T) {
	path := fresh(t)
	db := opened(t, path, Options{})
	if _, err := db.AddProject(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	_, err := open(t.Context(), path, Options{ReadOnly: true}, later(t))
	var e *store.Error
	if !errors.As(err, &e) {
		t.Fatalf("a reader of an older schema: %v", err)
	}
	wantFatal(t, e, "older schema", "holdfast serve")

	db, err = open(t.Context(), path, Options{}, later(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	if names, err := db.Projects(t.Context()); err != nil || len(names) != 1 {
		t.Errorf("afterwards: %v, %v", names, err)
	}
	if !strings.Contains(schema(t, path), "CREATE TABLE later") {
		t.Error("the later migration is missing")
	}
}

func TestAnOlderFileIsNotMigratedUnderAProcessThatServesIt(t *testing.T) {
	path := fresh(t)
	opened(t, path, Options{Serve: true})
	_, err := open(t.Context(), path, Options{Patience: time.Second}, later(t))
	var e *store.Error
	if !errors.As(err, &e) {
		t.Fatalf("%v; wanted a store's error", err)
	}
	wantFatal(t, e, "older schema", "stop it")
	if strings.Contains(schema(t, path), "CREATE TABLE later") {
		t.Error("the schema changed under the serving process")
	}
}

func TestANewerFileIsRefusedAndLeftAlone(t *testing.T) {
	path := fresh(t)
	db, err := open(t.Context(), path, Options{}, later(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	before := schema(t, path)
	for _, options := range []Options{{}, {Serve: true}, {ReadOnly: true}} {
		wantFatal(t, refused(t, path, options), "schema 9000", "newer holdfast")
	}
	if schema(t, path) != before {
		t.Error("a refused file was changed")
	}
}

func TestManyOpenOneNewFileAtOnceAndMigrateItOnce(t *testing.T) {
	path, from := fresh(t), later(t)
	var all sync.WaitGroup
	for n := range 8 {
		all.Go(func() {
			db, err := open(t.Context(), path, Options{Serve: n == 0, Patience: time.Minute}, from)
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
	raw(t, path, func(db *sql.DB) {
		var times, applied, projects int
		if err := db.QueryRow(`SELECT (SELECT sum(times) FROM later), (SELECT count(*) FROM goose_db_version WHERE version_id > 0), (SELECT count(*) FROM projects)`).Scan(&times, &applied, &projects); err != nil {
			t.Fatal(err)
		}
		if times != 2 || applied != 2 || projects != 8 {
			t.Errorf("the later migration left %d, %d lines of history, %d projects; wanted 2, 2, 8", times, applied, projects)
		}
	})
}

func TestAMigrationThatFailsLeavesTheFileAsItWas(t *testing.T) {
	path := fresh(t)
	from := later(t).(fstest.MapFS)
	from["9001_broken.sql"] = &fstest.MapFile{Data: []byte("-- +goose Up\nCREATE TABLE half (n INTEGER) STRICT;\nCREATE TABLE half (n INTEGER) STRICT;\n")}
	db, err := open(t.Context(), path, Options{}, from)
	if err == nil {
		_ = db.Close()
		t.Fatal("opened with a broken migration")
	}
	if text := schema(t, path); strings.Contains(text, "half") || !strings.Contains(text, "CREATE TABLE later") {
		t.Errorf("wanted all migrations up to the broken one, and nothing of that:\n%s", text)
	}
	db, err = open(t.Context(), path, Options{}, later(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAReaderMakesNoFile(t *testing.T) {
	path := fresh(t)
	wantFatal(t, refused(t, path, Options{ReadOnly: true}), "no file", "holdfast serve")
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	db := opened(t, path, Options{})
	reader := opened(t, path, Options{ReadOnly: true})
	if _, err := reader.AddProject(t.Context(), "shop"); store.KindOf(err) != store.Unavailable {
		t.Errorf("a reader writes: %v", err)
	}
	tx, err := reader.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Load(t.Context(), []store.Want{{Account: holdfast.AccountIDOf("shop", "ann")}}); store.KindOf(err) != store.Unavailable {
		t.Errorf("a reader takes the lock: %v", err)
	}
	if names, err := db.Projects(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestWhatIsNoDatabaseOfOursIsRefusedAndLeftAlone(t *testing.T) {
	text := fresh(t)
	content := strings.Repeat("this is a letter to somebody\n", 100)
	if err := os.WriteFile(text, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	wantFatal(t, refused(t, text, Options{}))
	if after, err := os.ReadFile(text); err != nil || string(after) != content {
		t.Errorf("the letter was changed: %v", err)
	}

	foreign := fresh(t)
	execute(t, foreign, `CREATE TABLE recipes (name TEXT)`)
	before := schema(t, foreign)
	wantFatal(t, refused(t, foreign, Options{Serve: true}), "something else")
	if schema(t, foreign) != before {
		t.Error("somebody else's database was changed")
	}

	wantFatal(t, refused(t, t.TempDir(), Options{}))
	wantFatal(t, refused(t, "", Options{}))
	wantFatal(t, refused(t, ":memory:", Options{}), "memory:")
	wantFatal(t, refused(t, filepath.Join(t.TempDir(), "missing", "x.db"), Options{}), "directory")
	if e := refused(t, fresh(t), Options{Serve: true, ReadOnly: true}); e.Kind != store.Fatal {
		t.Errorf("serving without writing: %v", e)
	}
}

func TestAPathMayHoldWhatAnAddressMayNot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "база ?mode=memory&a=b#c%41 'x' \"y\".db")
	db := opened(t, path, Options{Serve: true})
	if _, err := db.AddProject(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() == 0 {
		t.Errorf("the file under its own name: %v", err)
	}
	if names, err := opened(t, path, Options{ReadOnly: true}).Projects(t.Context()); err != nil || len(names) != 1 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestADatabaseThatIsMissingItsTablesIsFatalAndNotARefusal(t *testing.T) {
	path := fresh(t)
	db := opened(t, path, Options{})
	execute(t, path, `DROP TABLE answers`)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	account := holdfast.AccountIDOf("shop", "ann")
	if _, err := tx.Load(t.Context(), []store.Want{{Account: account, Project: "shop", Name: "ann", Create: true}}); err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	err = tx.Save(t.Context(), []holdfast.Changes{{
		Account: holdfast.Account{ID: account, Project: "shop", Name: "ann", CreatedAt: now, DecidedAt: now},
		Answers: []*holdfast.Answer{{Key: "k", RecordedAt: now}},
	}})
	if store.KindOf(err) != store.Fatal {
		t.Errorf("%v; wanted a fatal error", err)
	}
}

func TestAStoredRowThatWasTamperedWithIsAnError(t *testing.T) {
	path := fresh(t)
	db := opened(t, path, Options{})
	account := holdfast.AccountIDOf("shop", "ann")
	execute(t, path, fmt.Sprintf(`INSERT INTO accounts VALUES (x'%x', 'shop', 'ann', 1, 0, 0, '', '', '', 0, 1, '[1', 0, 0, NULL, NULL)`, account[:]))
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Load(t.Context(), []store.Want{{Account: account}}); store.KindOf(err) != store.Fatal {
		t.Errorf("%v; wanted a fatal error", err)
	}
	if created, err := db.AddProject(t.Context(), "shop"); err != nil || !created {
		t.Errorf("the lock was not freed: %v", err)
	}
}

func TestCommitIsInDoubtUnlessItIsCertainThatNothingHappened(t *testing.T) {
	broken := errors.New("the disk is gone")
	if kind := store.KindOf(commitFailed("save", broken, false)); kind != store.InDoubt {
		t.Errorf("a commit that failed somehow is %s", kind)
	}
	if kind := store.KindOf(commitFailed("save", broken, true)); kind != store.Unavailable {
		t.Errorf("a commit whose transaction was still open is %s", kind)
	}
}

func TestCloseWaitsForATransactionAndSaysWhereOneNeverEnds(t *testing.T) {
	path := fresh(t)
	db := opened(t, path, Options{Patience: 50 * time.Millisecond})
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Load(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); store.KindOf(err) != store.Unavailable || err == nil {
		t.Errorf("closed under a transaction: %v", err)
	}
	if err := tx.Abort(t.Context()); err != nil {
		t.Error(err)
	}
}
