// Package migration holds the schema of PostgreSQL databases, as numbered steps, and takes a database through them.
//
//	Up ── look ─► current: done
//	         └──► behind: lease on the row of goose_lock ─► each missing step in a transaction of its own ─► lease given back
//
// Package postgres calls it when it opens a database; the tests' servers call it to make templates. Several servers that
// start at once migrate once: one holds the lease, the others wait for it and then find nothing left to do. The lease is a
// row with an end and not an advisory lock, because a lock that belongs to a session has no meaning behind a pooler that
// lends sessions for one transaction.
//
// Numbers and names of the steps are those of store/sqlite/migration; where the two dialects differ, the step says why.
// Everything lives in the schema holdfast, and every statement names it: search_path belongs to the session, and in a
// joined transaction to the caller.
//
// What it never does: go backwards, wait for a table's lock longer than lock_timeout allows (each step sets it), touch a
// database with a newer schema, or let a type of the driver or of goose out.
package migration

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed *.sql
var files embed.FS

// Files are the steps of this program.
var Files fs.FS = files

// Hash tells schemas apart: it changes with every change of Files.
func Hash() string {
	hash := sha256.New()
	names, _ := fs.Glob(files, "*.sql") // the pattern is well formed
	for _, name := range names {
		text, _ := files.ReadFile(name) // embedded, so it is there
		fmt.Fprintf(hash, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// Newest is the number of the last step in from.
func Newest(from fs.FS) (int64, error) {
	names, err := fs.Glob(from, "*.sql")
	if err != nil {
		return 0, err
	}
	var last int64
	for _, name := range names {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		last = max(last, version)
	}
	return last, nil
}

// Applied is the number of the last step that the database has had; 0: none. It looks and changes nothing.
func Applied(ctx context.Context, conn *pgx.Conn) (version int64, err error) {
	var known bool
	if err := conn.QueryRow(ctx, selectKnown).Scan(&known); err != nil || !known {
		return 0, err
	}
	err = conn.QueryRow(ctx, selectApplied).Scan(&version)
	return version, err
}

const selectKnown = `SELECT to_regclass('holdfast.goose_db_version') IS NOT NULL`

const selectApplied = `SELECT coalesce(max(version_id), 0) FROM holdfast.goose_db_version WHERE is_applied`

const (
	// lease is how long a server that died while migrating keeps the others waiting.
	lease     = 20 * time.Second
	heartbeat = 4 * time.Second
	// lookAgain and attempts bound the wait for another server's migration: two minutes.
	lookAgain = 200 * time.Millisecond
	attempts  = 600
)

// Up applies the steps in from that the database has not had, each with its line of history in one transaction. The
// database may be empty; its user must be allowed to make a schema in it.
func Up(ctx context.Context, url string, from fs.FS) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	return UpWith(ctx, config, from)
}

// UpWith is Up for who has parsed the address already.
func UpWith(ctx context.Context, config *pgx.ConnConfig, from fs.FS) (err error) {
	db := stdlib.OpenDB(*config)
	defer func() { err = errors.Join(err, db.Close()) }()
	if err := ensureSchema(ctx, db); err != nil {
		return err
	}
	locker, err := lock.NewPostgresTableLocker(
		lock.WithTableName("holdfast.goose_lock"),
		lock.WithTableLeaseDuration(lease), lock.WithTableHeartbeatInterval(heartbeat),
		lock.WithTableLockTimeout(lookAgain, attempts), lock.WithTableRetryPolicy(othersMigrate),
		lock.WithTableLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, from, goose.WithTableName("holdfast.goose_db_version"),
		goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()), goose.WithLocker(locker))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}

// othersMigrate reports whether the lease could not be had because another server holds it. What the database itself
// refuses (no right to write, for one) will be refused again.
func othersMigrate(err error) bool {
	var told *pgconn.PgError
	return !errors.As(err, &told)
}

// ensureSchema makes the schema that everything of ours lives in, history included: Join puts our rows beside the tables of
// the caller, who may well have accounts, or goose, of their own.
func ensureSchema(ctx context.Context, db *sql.DB) error {
	var there bool
	if err := db.QueryRowContext(ctx, selectSchema).Scan(&there); err != nil || there {
		return err // CREATE, even IF NOT EXISTS, needs a right that the schema's user need not have
	}
	_, err := db.ExecContext(ctx, `CREATE SCHEMA IF NOT EXISTS holdfast`)
	var told *pgconn.PgError
	if errors.As(err, &told) && (told.Code == "23505" || told.Code == "42P06") { // another server was faster
		return nil
	}
	return err
}

const selectSchema = `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'holdfast')`
