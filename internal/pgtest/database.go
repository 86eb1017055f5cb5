package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-dev/holdfast/store/postgres/migration"
)

// New makes a database for the test, migrated and empty, and drops it when the test ends. All tests of a run share one
// server. With -short the test is skipped.
func New(t testing.TB) string {
	t.Helper()
	skipIfShort(t)
	h, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return h.database(t, h.template)
}

// NewEmpty is New without the migration: a database with nothing in it.
func NewEmpty(t testing.TB) string {
	t.Helper()
	skipIfShort(t)
	h, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return h.database(t, "template0")
}

// Database makes a database on this server, migrated and empty, which ends with the server.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	h := &host{admin: s.URL("")}
	if err := h.prepare(); err != nil {
		t.Fatal(err)
	}
	name, err := h.create(h.template)
	if err != nil {
		t.Fatal(err)
	}
	return s.URL(name)
}

// skipIfShort keeps the promise that -short needs no server.
func skipIfShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs PostgreSQL: run it without -short")
	}
}

// host is a server to make databases on: ours, or somebody's.
type host struct {
	admin    string // leads to a database from which others can be made
	template string
	server   *Server // nil: somebody else's. Were it forgotten, its pipe would be collected, and the watchdog would bark

	mutex sync.Mutex
	left  []string // databases to be dropped
}

// shared is the server of this run, started by the first who needs it and ended by its watchdog.
var shared = sync.OnceValues(func() (*host, error) {
	h := &host{admin: os.Getenv("TEST_DATABASE_URL")}
	told := "PostgreSQL of TEST_DATABASE_URL"
	if h.admin == "" {
		found, err := find()
		if err != nil {
			return nil, err
		}
		if h.server, err = newServer(found); err != nil {
			return nil, err
		}
		h.admin, told = h.server.URL(""), fmt.Sprintf("%s, at %s", found, h.server.Address())
	}
	fmt.Println("tests use", told)
	return h, h.prepare()
})

// prepare migrates a template database, unless one with this very schema is there from an earlier run.
func (h *host) prepare() error {
	ctx := context.Background()
	h.template = "holdfast_template_" + migration.Hash()[:16]
	var there bool
	err := h.administer(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)`, h.template).Scan(&there)
	})
	if err != nil || there {
		return err
	}
	// Under another name until it is whole: other test binaries may use the same server.
	making, err := h.create("template0")
	if err != nil {
		return err
	}
	if err := migration.Up(ctx, h.url(making), migration.Files); err != nil {
		return errors.Join(err, h.drop(making))
	}
	err = h.administer(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf(`ALTER DATABASE %s RENAME TO %s`, making, h.template))
		return err
	})
	if sqlState(err) == "42P04" { // another test binary was faster
		return h.drop(making)
	}
	return err
}

func (h *host) database(t testing.TB, template string) string {
	t.Helper()
	name, err := h.create(template)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.leave(name); err != nil {
			t.Error(err)
		}
	})
	return h.url(name)
}

// dropTogether is how many databases of our own server wait to be dropped: a DROP makes the server write everything out,
// which costs a test more than all else, and the last ones go with the server.
const dropTogether = 64

// leave drops a database that its test has left: at once on somebody else's server, later on ours.
func (h *host) leave(name string) error {
	if h.server == nil {
		return h.drop(name)
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.left = append(h.left, name)
	if len(h.left) < dropTogether {
		return nil
	}
	var errs []error
	for _, name := range h.left {
		errs = append(errs, h.drop(name))
	}
	h.left = nil
	return errors.Join(errs...)
}

// create makes a database with a name that nobody else has. A template that is being copied or was just migrated may be
// in use for a moment.
func (h *host) create(template string) (name string, err error) {
	name = "holdfast_test_" + strings.ToLower(rand.Text())
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = h.administer(ctx, func(conn *pgx.Conn) error {
		for {
			_, err := conn.Exec(ctx, fmt.Sprintf(`CREATE DATABASE %s TEMPLATE %s`, name, template))
			if sqlState(err) != "55006" {
				return err
			}
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
				return err
			}
		}
	})
	return name, err
}

func (h *host) drop(name string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return h.administer(ctx, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, fmt.Sprintf(`DROP DATABASE IF EXISTS %s WITH (FORCE)`, name))
		return err
	})
}

func (h *host) administer(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, h.admin)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}

// url leads to another database of the same server.
func (h *host) url(database string) string {
	parsed, err := url.Parse(h.admin)
	if err != nil || parsed.Host == "" && !strings.HasPrefix(parsed.Scheme, "postgres") {
		return h.admin + " dbname=" + database // of keywords and values, the last one counts
	}
	parsed.Path = "/" + database
	return parsed.String()
}

func sqlState(err error) string {
	var told *pgconn.PgError
	if errors.As(err, &told) {
		return told.Code
	}
	return ""
}
