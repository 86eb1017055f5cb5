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
	_, err := db.write(ctx, "add a key", upsertKey, key.Hash[:], key.ID, key.Project, textsLiteral(key.Scopes), key.Note, moment(key.CreatedAt), moment(key.RevokedAt), int64(key.RateLimit))
	return err
}

const upsertKey = `INSERT INTO holdfast.api_keys (hash, id, project, scopes, note, created_at, revoked_at, rate_limit)
	VALUES ($1::bytea, $2::text, $3::text, NULLIF($4::text, '')::text[], $5::text, $6::timestamptz, $7::timestamptz, $8::bigint)
	ON CONFLICT (hash) DO UPDATE SET id = excluded.id, project = excluded.project, scopes = excluded.scopes,
		note = excluded.note, created_at = excluded.created_at, revoked_at = excluded.revoked_at, rate_limit = excluded.rate_limit`

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
		[]any{&key.ID, &key.Project, (*list[string])(&key.Scopes), &key.Note, (*moment)(&key.CreatedAt), &key.RateLimit}, selectKey, hash[:])
	if found {
		key.Hash = hash
	}
	return key, found, err
}

// By primary key.
const selectKey = `SELECT id, project, scopes, note, created_at, rate_limit FROM holdfast.api_keys WHERE hash = $1::bytea AND revoked_at IS NULL`

// HasKeys reports whether any key is in force.
func (db *DB) HasKeys(ctx context.Context) (has bool, err error) {
	_, err = db.one(ctx, "look for keys", []any{&has}, selectAnyKey)
	return has, err
}

const selectAnyKey = `SELECT EXISTS (SELECT FROM holdfast.api_keys WHERE revoked_at IS NULL)`

// LatestCatalog returns the newest catalog of a project: its own, else the one of all; ok is false where none was stored.
func (db *DB) LatestCatalog(ctx context.Context, project string) (latest store.Catalog, ok bool, err error) {
	var text string
	ok, err = db.one(ctx, "read the catalog", []any{&latest.Project, &latest.Version, &text}, selectCatalog, project)
	latest.Source = []byte(text)
	return latest, ok, err
}

// By primary key. The project's own come before those of all.
const selectCatalog = `SELECT project, version, source FROM holdfast.catalogs WHERE project IN ('', $1::text)
	ORDER BY project = '', version DESC LIMIT 1`

// AddCatalog stores a new version and returns its number. Where the newest one has the same content and belongs to the same
// project, it returns that. Where another one than expected is the newest, it is a Conflict with store.ErrVersion. Where
// two servers add one at the same time, the slower looks again.
func (db *DB) AddCatalog(ctx context.Context, added store.Catalog, expected int64) (version int64, err error) {
	for {
		newest, ok, err := db.LatestCatalog(ctx, added.Project)
		switch {
		case err != nil:
			return 0, err
		case expected != store.AnyVersion && expected != newest.Version:
			return 0, store.StaleCatalog()
		case ok && newest.Project == added.Project && bytes.Equal(newest.Source, added.Source):
			return newest.Version, nil
		}
		inserted, err := db.write(ctx, "add a catalog", insertCatalog, added.Project, newest.Version+1, string(added.Source), moment(time.Now()))
		if err != nil || inserted == 1 {
			return newest.Version + inserted, err
		}
	}
}

const insertCatalog = `INSERT INTO holdfast.catalogs (project, version, source, created_at) VALUES ($1::text, $2::bigint, $3::text, $4::timestamptz)
	ON CONFLICT (project, version) DO NOTHING`

// CatalogVersions are the numbers of the newest catalogs, per project; the empty project is all that have none of their own.
func (db *DB) CatalogVersions(ctx context.Context) (map[string]int64, error) {
	return db.counts(ctx, "look for catalogs", selectVersions)
}

const selectVersions = `SELECT project, max(version) FROM holdfast.catalogs GROUP BY project`

// counts reads a text and a number per row.
func (db *DB) counts(ctx context.Context, op, text string, arguments ...any) (counts map[string]int64, err error) {
	counts = map[string]int64{}
	err = db.with(ctx, op, func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, text, arguments...)
		if err != nil {
			return err
		}
		return collect(rows, func(rows pgx.Rows) error {
			var name string
			var count int64
			err := scan(rows, &name, &count)
			counts[name] = count
			return err
		})
	})
	return counts, err
}

// PlansInUse counts the accounts that were set to each plan: of a project, or, for the empty one, of all that have no
// catalog of their own. It walks all accounts, for a change of the catalog only.
func (db *DB) PlansInUse(ctx context.Context, project string) (map[string]int64, error) {
	return db.counts(ctx, "count plans in use", selectPlans, project)
}

const (
	ofProject   = `(a.project = $1::text OR $1::text = '' AND a.project NOT IN (SELECT c.project FROM holdfast.catalogs c))`
	selectPlans = `SELECT a.plan, count(*) FROM holdfast.accounts a WHERE a.plan <> '' AND a.version > 0 AND ` + ofProject + ` GROUP BY a.plan`
)

// UnitsInUse counts the accounts that have open grants of each unit, in the same way.
func (db *DB) UnitsInUse(ctx context.Context, project string) (map[string]int64, error) {
	return db.counts(ctx, "count units in use", selectUnits, project)
}

const selectUnits = `SELECT g.unit, count(DISTINCT g.account_id) FROM holdfast.grants g JOIN holdfast.accounts a USING (account_id)
	WHERE g.open AND ` + ofProject + ` GROUP BY g.unit`

// LastDecision is the time of the newest decision about any account; zero: there is none. It walks all accounts, at start only.
func (db *DB) LastDecision(ctx context.Context) (last time.Time, err error) {
	_, err = db.one(ctx, "find the last decision", []any{(*moment)(&last)}, selectLastDecision)
	return last, err
}

const selectLastDecision = `SELECT max(decided_at) FROM holdfast.accounts WHERE version > 0`

// LiveBySurface is the live work of each surface that has any, in the order of their names.
func (db *DB) LiveBySurface(ctx context.Context, at time.Time) (surfaces []store.SurfaceWork, err error) {
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		var w store.SurfaceWork
		if err := scan(rows, &w.Surface, &w.Live, &w.Lapsed, &w.Overdue, (*moment)(&w.FirstExpiry)); err != nil {
			return err
		}
		surfaces = append(surfaces, w)
		return nil
	}, selectSurfaces, uuid{}, moment(at))
	if err := db.snapshot(ctx, "count live work by surface", p); err != nil {
		return nil, err
	}
	return surfaces, nil
}

// By the partial index live_reservations, from end to end: it reads as many rows as there is live work. "C" is the order of
// bytes, whatever the database's own order is.
const selectSurfaces = `SELECT surface, count(*), count(*) FILTER (WHERE state = 'running' AND lease_expires_at <= $2::timestamptz),
	count(*) FILTER (WHERE expires_at <= $2::timestamptz), min(expires_at)
	FROM holdfast.reservations WHERE account_id > $1::uuid AND ended_at IS NULL GROUP BY surface ORDER BY surface COLLATE "C"`

// LiveWork counts the live reservations, and says when the one that expires first does; zero: there is none.
func (db *DB) LiveWork(ctx context.Context) (count int64, firstExpiry time.Time, err error) {
	_, err = db.one(ctx, "count live work", []any{&count, (*moment)(&firstExpiry)}, selectLiveWork)
	return count, firstExpiry, err
}

// By the partial index live_reservations.
const selectLiveWork = `SELECT count(*), min(expires_at) FROM holdfast.reservations WHERE ended_at IS NULL`
