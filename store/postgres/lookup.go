package postgres

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-dev/holdfast/store"
)

// write runs one statement that is a transaction of its own, and says how many rows it changed. A broken connection
// leaves doubt; all these statements may be repeated.
func (db *DB) write(ctx context.Context, op, text string, arguments ...any) (changed int64, err error) {
	if db.options.ReadOnly {
		return 0, &store.Error{Kind: store.Unavailable, Op: op, Hint: "open it for writing", Err: errReadOnly}
	}
	conn, err := db.acquire(ctx, op)
	if err != nil {
		return 0, err
	}
	tag, err := conn.Exec(ctx, text, arguments...)
	if err := giveBack(conn, err); err != nil {
		return 0, notCommitted(op, err, false)
	}
	return tag.RowsAffected(), nil
}

// AddProject makes a project known; created is false where it was.
func (db *DB) AddProject(ctx context.Context, name string) (created bool, err error) {
	changed, err := db.write(ctx, "add a project", insertProject, name)
	return changed == 1, err
}

const insertProject = `INSERT INTO holdfast.projects (name) VALUES ($1::text) ON CONFLICT (name) DO NOTHING`

// Projects lists the known projects by name.
func (db *DB) Projects(ctx context.Context) ([]string, error) {
	return db.words(ctx, "list projects", selectProjects)
}

// "C" is the order of bytes, whatever the database's own order is.
const selectProjects = `SELECT name FROM holdfast.projects ORDER BY name COLLATE "C"`

// words reads a column of texts.
func (db *DB) words(ctx context.Context, op, text string) (words []string, err error) {
	err = db.with(ctx, op, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, text)
		if err != nil {
			return err
		}
		words, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return words, err
}

// AddKey registers a key of a known project. The same secret again takes the place of its former registration, and is in
// force again where it had been revoked.
func (db *DB) AddKey(ctx context.Context, key store.Key) error {
	_, err := db.write(ctx, "add a key", upsertKey, key.Hash[:], key.ID, key.Project, textsLiteral(key.Scopes), key.Note, moment(key.CreatedAt), moment(key.RevokedAt))
	return err
}

const upsertKey = `INSERT INTO holdfast.api_keys (hash, id, project, scopes, note, created_at, revoked_at)
	VALUES ($1::bytea, $2::text, $3::text, NULLIF($4::text, '')::text[], $5::text, $6::timestamptz, $7::timestamptz)
	ON CONFLICT (hash) DO UPDATE SET id = excluded.id, project = excluded.project, scopes = excluded.scopes,
		note = excluded.note, created_at = excluded.created_at, revoked_at = excluded.revoked_at`

// RevokeKey ends the keys of that id; revoked is false where none was in force.
func (db *DB) RevokeKey(ctx context.Context, id string, when time.Time) (revoked bool, err error) {
	changed, err := db.write(ctx, "revoke a key", updateKey, moment(when), id)
	return changed > 0, err
}

// A scan: there are few keys, and an operator revokes one now and then.
const updateKey = `UPDATE holdfast.api_keys SET revoked_at = $1::timestamptz WHERE id = $2::text AND revoked_at IS NULL`

// one reads at most one row.
func (db *DB) one(ctx context.Context, op string, places []any, text string, arguments ...any) (found bool, err error) {
	err = db.with(ctx, op, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, text, arguments...)
		if err != nil {
			return err
		}
		return collect(rows, func(rows pgx.Rows) error {
			found = true
			return scan(rows, places...)
		})
	})
	return found, err
}

// KeyByHash finds a key in force.
func (db *DB) KeyByHash(ctx context.Context, hash [32]byte) (key store.Key, found bool, err error) {
	found, err = db.one(ctx, "find a key",
		[]any{&key.ID, &key.Project, (*list[string])(&key.Scopes), &key.Note, (*moment)(&key.CreatedAt)}, selectKey, hash[:])
	if found {
		key.Hash = hash
	}
	return key, found, err
}

// By primary key.
const selectKey = `SELECT id, project, scopes, note, created_at FROM holdfast.api_keys WHERE hash = $1::bytea AND revoked_at IS NULL`

// HasKeys reports whether any key is in force.
func (db *DB) HasKeys(ctx context.Context) (has bool, err error) {
	_, err = db.one(ctx, "look for keys", []any{&has}, selectAnyKey)
	return has, err
}

const selectAnyKey = `SELECT EXISTS (SELECT FROM holdfast.api_keys WHERE revoked_at IS NULL)`

// LatestCatalog returns the newest catalog that was stored; ok is false where none was.
func (db *DB) LatestCatalog(ctx context.Context) (version int64, source []byte, ok bool, err error) {
	var text string
	ok, err = db.one(ctx, "read the catalog", []any{&version, &text}, selectCatalog)
	return version, []byte(text), ok, err
}

const selectCatalog = `SELECT version, source FROM holdfast.catalogs ORDER BY version DESC LIMIT 1`

// AddCatalog stores a new version and returns its number; where the newest one has the same content, it returns that.
// Where two servers add one at the same time, the slower looks again.
func (db *DB) AddCatalog(ctx context.Context, source []byte) (version int64, err error) {
	for {
		newest, stored, ok, err := db.LatestCatalog(ctx)
		if err != nil || ok && bytes.Equal(stored, source) {
			return newest, err
		}
		added, err := db.write(ctx, "add a catalog", insertCatalog, newest+1, string(source), moment(time.Now()))
		if err != nil || added == 1 {
			return newest + added, err
		}
	}
}

const insertCatalog = `INSERT INTO holdfast.catalogs (version, source, created_at) VALUES ($1::bigint, $2::text, $3::timestamptz)
	ON CONFLICT (version) DO NOTHING`

// PlansInUse lists the plans that accounts were set to. It walks all accounts, for a change of the catalog only.
func (db *DB) PlansInUse(ctx context.Context) ([]string, error) {
	return db.words(ctx, "list plans in use", selectPlans)
}

const selectPlans = `SELECT plan FROM holdfast.accounts WHERE plan <> '' AND version > 0 GROUP BY plan ORDER BY plan COLLATE "C"`

// UnitsInUse lists the units of open grants. It walks all of them, for a change of the catalog only.
func (db *DB) UnitsInUse(ctx context.Context) ([]string, error) {
	return db.words(ctx, "list units in use", selectUnits)
}

const selectUnits = `SELECT unit FROM holdfast.grants WHERE open GROUP BY unit ORDER BY unit COLLATE "C"`

// LastDecision is the time of the newest decision about any account; zero: there is none. It walks all accounts, at start only.
func (db *DB) LastDecision(ctx context.Context) (last time.Time, err error) {
	_, err = db.one(ctx, "find the last decision", []any{(*moment)(&last)}, selectLastDecision)
	return last, err
}

const selectLastDecision = `SELECT max(decided_at) FROM holdfast.accounts WHERE version > 0`

// LiveWork counts the live reservations, and says when the one that expires first does; zero: there is none.
func (db *DB) LiveWork(ctx context.Context) (count int64, firstExpiry time.Time, err error) {
	_, err = db.one(ctx, "count live work", []any{&count, (*moment)(&firstExpiry)}, selectLiveWork)
	return count, firstExpiry, err
}

// By the partial index live_reservations.
const selectLiveWork = `SELECT count(*), min(expires_at) FROM holdfast.reservations WHERE ended_at IS NULL`
