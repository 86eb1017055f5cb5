package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/holdfast-dev/holdfast/store"
	modernc "modernc.org/sqlite"
)

//go:embed migration/*.sql
var migrations embed.FS

// migrations go forward only. A migration and the line that says it was applied are one transaction, begun by BEGIN
// IMMEDIATE, so that a crash leaves it done or not begun. The lock on PATH.lock keeps two processes from applying one
// twice, and keeps the schema from changing under a process that serves.

// schemaOf is where a file stands.
type schemaOf struct {
	version int64 // of the last migration applied; 0: none
	foreign bool  // it holds tables, and none of them is ours
	wal     bool
}

// readSchema looks and changes nothing.
func readSchema(ctx context.Context, c *connection) (found schemaOf, err error) {
	mode, err := c.pragma(ctx, "journal_mode")
	if err != nil {
		return found, err
	}
	found.wal = mode == "wal"
	var tables, history int64
	err = c.query(ctx, countTables, func(r *row) error {
		tables, history = r.number(), r.number()
		return nil
	})
	if err != nil || history == 0 {
		found.foreign = tables > 0
		return found, err
	}
	err = c.query(ctx, selectVersion, func(r *row) error {
		found.version = r.number()
		return nil
	})
	return found, err
}

const countTables = `SELECT count(*), count(*) FILTER (WHERE name = 'goose_db_version') FROM sqlite_schema WHERE type = 'table'`

const selectVersion = `SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied = 1`

// newest is the version of the last migration in from.
func newest(from fs.FS) (int64, error) {
	files, err := fs.Glob(from, "*.sql")
	if err != nil {
		return 0, err
	}
	var last int64
	for _, name := range files {
		version, err := goose.NumericComponent(name)
		if err != nil {
			return 0, err
		}
		last = max(last, version)
	}
	return last, nil
}

// ensureSchema brings the file to the newest of our migrations, or says why it may not. The file is made where it is not
// there. holdsLock says that this process serves the file and so holds its lock.
func ensureSchema(ctx context.Context, path string, from fs.FS, holdsLock bool, patience time.Duration) (err error) {
	const op = "migrate the database"
	target, err := newest(from)
	if err != nil {
		return failed(op, err)
	}
	current, err := isCurrent(ctx, path, creating, target, patience)
	if current || err != nil {
		return failed(op, err)
	}
	if !holdsLock {
		lock, err := lockFile(ctx, path, migrates, patience)
		if err != nil {
			// The holder may have begun to serve just now, after it had migrated the file itself.
			if current, unseen := isCurrent(ctx, path, creating, target, patience); current && unseen == nil {
				return nil
			}
			return err
		}
		defer func() { err = errors.Join(err, lock.release()) }()
	}
	// Somebody else may have done it while we waited.
	current, err = isCurrent(ctx, path, creating, target, patience)
	if current || err != nil {
		return failed(op, err)
	}
	return failed(op, migrate(ctx, path, from, patience))
}

// isCurrent opens the file for a look.
func isCurrent(ctx context.Context, path string, m mode, target int64, patience time.Duration) (current bool, err error) {
	c, err := connect(ctx, path, m, patience)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	found, err := readSchema(ctx, c)
	if err != nil {
		return false, err
	}
	return found.version == target && found.wal, found.acceptable(target)
}

// acceptable refuses what we could only spoil.
func (s schemaOf) acceptable(target int64) error {
	const op = "look at the database's schema"
	switch {
	case s.foreign:
		return &store.Error{
			Kind: store.Fatal, Op: op, Hint: "name a Holdfast database, or a path where none is yet",
			Err: errors.New("the file is a database of something else"),
		}
	case s.version > target:
		return &store.Error{
			Kind: store.Fatal, Op: op, Hint: "run the newer holdfast that wrote the file, or restore an older copy of it",
			Err: fmt.Errorf("the file has schema %d, this program knows %d at most", s.version, target),
		}
	}
	return nil
}

func migrate(ctx context.Context, path string, from fs.FS, patience time.Duration) (err error) {
	connector, err := modernc.NewConnector(dataSource(path, creating, patience))
	if err != nil {
		return err
	}
	db := sql.OpenDB(connector)
	defer func() { err = errors.Join(err, db.Close()) }()
	// WAL is a property of the file: once set, every connection of every process uses it.
	if _, err := db.ExecContext(ctx, "PRAGMA journal_mode = WAL"); err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectSQLite3, db, from, goose.WithDisableGlobalRegistry(true), goose.WithLogger(goose.NopLogger()))
	if err != nil {
		return err
	}
	_, err = provider.Up(ctx)
	return err
}
