package sqlite

import (
	"bytes"
	"context"
	"database/sql/driver"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// write runs do in a transaction of its own, for the lookup tables.
func (db *DB) write(ctx context.Context, op string, do func(*connection) error) error {
	c, err := db.takeWriter(ctx, op)
	if err != nil {
		return err
	}
	if _, err := c.exec(ctx, beginImmediate); err != nil {
		db.discard(c)
		return failed(op, err)
	}
	if err := do(c); err != nil {
		db.rollback(c)
		return failed(op, err)
	}
	return db.commit(c, op)
}

// AddProject makes a project known; created is false where it was.
func (db *DB) AddProject(ctx context.Context, name string) (created bool, err error) {
	err = db.write(ctx, "add a project", func(c *connection) error {
		changed, err := c.exec(uninterrupted, insertProject, name)
		created = changed == 1
		return err
	})
	return created, err
}

const insertProject = `INSERT INTO projects (name) VALUES (?) ON CONFLICT (name) DO NOTHING`

// Projects lists the known projects by name.
func (db *DB) Projects(ctx context.Context) ([]string, error) {
	return db.words(ctx, "list projects", selectProjects)
}

const selectProjects = `SELECT name FROM projects ORDER BY name`

// words reads a column of texts.
func (db *DB) words(ctx context.Context, op, text string) (words []string, err error) {
	err = db.snapshot(ctx, op, func(c *connection) error {
		return c.query(ctx, text, func(r *row) error {
			words = append(words, r.text())
			return nil
		})
	})
	return words, err
}

// AddKey registers a key of a known project. The same secret again takes the place of its former registration, and is in
// force again where it had been revoked.
func (db *DB) AddKey(ctx context.Context, key store.Key) error {
	return db.write(ctx, "add a key", func(c *connection) error {
		scopes, err := jsonOrNone(key.Scopes, len(key.Scopes))
		if err != nil {
			return err
		}
		_, err = c.exec(uninterrupted, upsertKey, key.Hash[:], key.ID, key.Project, scopes, key.Note, at(key.CreatedAt), timeOrNone(key.RevokedAt), int64(key.RateLimit))
		return err
	})
}

const upsertKey = `INSERT INTO api_keys (hash, id, project, scopes, note, created_at, revoked_at, rate_limit) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (hash) DO UPDATE SET id = excluded.id, project = excluded.project, scopes = excluded.scopes,
	note = excluded.note, created_at = excluded.created_at, revoked_at = excluded.revoked_at, rate_limit = excluded.rate_limit`

// RevokeKey ends the keys of that id; revoked is false where none was in force.
func (db *DB) RevokeKey(ctx context.Context, id string, when time.Time) (revoked bool, err error) {
	err = db.write(ctx, "revoke a key", func(c *connection) error {
		changed, err := c.exec(uninterrupted, updateKey, at(when), id)
		revoked = changed > 0
		return err
	})
	return revoked, err
}

// A scan: there are few keys, and an operator revokes one now and then.
const updateKey = `UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL`

// KeyByHash finds a key in force.
func (db *DB) KeyByHash(ctx context.Context, hash [32]byte) (key store.Key, found bool, err error) {
	err = db.snapshot(ctx, "find a key", func(c *connection) error {
		return c.query(ctx, selectKey, func(r *row) error {
			found = true
			key.Hash, key.ID, key.Project = hash, r.text(), r.text()
			r.list(&key.Scopes)
			key.Note, key.CreatedAt, key.RateLimit = r.text(), r.at(), int(r.number())
			return nil
		}, hash[:])
	})
	return key, found, err
}

// By primary key.
const selectKey = `SELECT id, project, scopes, note, created_at, rate_limit FROM api_keys WHERE hash = ? AND revoked_at IS NULL`

// HasKeys reports whether any key is in force.
func (db *DB) HasKeys(ctx context.Context) (has bool, err error) {
	err = db.snapshot(ctx, "look for keys", func(c *connection) error {
		return c.query(ctx, selectAnyKey, func(r *row) error {
			has = r.flag()
			return nil
		})
	})
	return has, err
}

const selectAnyKey = `SELECT EXISTS (SELECT 1 FROM api_keys WHERE revoked_at IS NULL)`

// LatestCatalog returns the newest catalog of a project: its own, else the one of all; ok is false where none was stored.
func (db *DB) LatestCatalog(ctx context.Context, project string) (latest store.Catalog, ok bool, err error) {
	err = db.snapshot(ctx, "read the catalog", func(c *connection) error {
		latest, ok, err = latestCatalog(ctx, c, project)
		return err
	})
	return latest, ok, err
}

func latestCatalog(ctx context.Context, c *connection, project string) (latest store.Catalog, ok bool, err error) {
	err = c.query(ctx, selectCatalog, func(r *row) error {
		latest, ok = store.Catalog{Project: r.text(), Version: r.number(), Source: []byte(r.text())}, true
		return nil
	}, project)
	return latest, ok, err
}

// By primary key. The empty project sorts before every other.
const selectCatalog = `SELECT project, version, source FROM catalogs WHERE project IN ('', ?) ORDER BY project DESC, version DESC LIMIT 1`

// AddCatalog stores a new version and returns its number. Where the newest one has the same content and belongs to the same
// project, it returns that. Where another one than expected is the newest, it is a Conflict with store.ErrVersion.
func (db *DB) AddCatalog(ctx context.Context, added store.Catalog, expected int64) (version int64, err error) {
	stale := false
	err = db.write(ctx, "add a catalog", func(c *connection) error {
		newest, ok, err := latestCatalog(uninterrupted, c, added.Project)
		version = newest.Version
		if stale = expected != store.AnyVersion && expected != version; err != nil || stale {
			return err
		}
		if ok && newest.Project == added.Project && bytes.Equal(newest.Source, added.Source) {
			return nil
		}
		version++
		_, err = c.exec(uninterrupted, insertCatalog, added.Project, version, string(added.Source), at(time.Now()))
		return err
	})
	if err == nil && stale {
		err = store.StaleCatalog()
	}
	if err != nil {
		return 0, err
	}
	return version, nil
}

const insertCatalog = `INSERT INTO catalogs (project, version, source, created_at) VALUES (?, ?, ?, ?)`

// CatalogVersions are the numbers of the newest catalogs, per project; the empty project is all that have none of their own.
func (db *DB) CatalogVersions(ctx context.Context) (map[string]int64, error) {
	return db.counts(ctx, "look for catalogs", selectVersions)
}

const selectVersions = `SELECT project, max(version) FROM catalogs GROUP BY project`

// counts reads a text and a number per row.
func (db *DB) counts(ctx context.Context, op, text string, arguments ...driver.Value) (counts map[string]int64, err error) {
	counts = map[string]int64{}
	err = db.snapshot(ctx, op, func(c *connection) error {
		return c.query(ctx, text, func(r *row) error {
			name := r.text()
			counts[name] = r.number()
			return nil
		}, arguments...)
	})
	return counts, err
}

// PlansInUse counts the accounts that were set to each plan: of a project, or, for the empty one, of all that have no
// catalog of their own. It walks all accounts, for a change of the catalog only.
func (db *DB) PlansInUse(ctx context.Context, project string) (map[string]int64, error) {
	return db.counts(ctx, "count plans in use", selectPlans, project, project)
}

const (
	ofProject   = `(project = ? OR ? = '' AND project NOT IN (SELECT project FROM catalogs))`
	selectPlans = `SELECT plan, count(*) FROM accounts WHERE plan <> '' AND ` + ofProject + ` GROUP BY plan`
)

// UnitsInUse counts the accounts that have open grants of each unit, in the same way.
func (db *DB) UnitsInUse(ctx context.Context, project string) (map[string]int64, error) {
	return db.counts(ctx, "count units in use", selectUnits, project, project)
}

const selectUnits = `SELECT unit, count(DISTINCT account_id) FROM grants JOIN accounts USING (account_id)
	WHERE open = 1 AND ` + ofProject + ` GROUP BY unit`

// LastDecision is the time of the newest decision about any account; zero: there is none. It walks all accounts, at start only.
func (db *DB) LastDecision(ctx context.Context) (last time.Time, err error) {
	err = db.snapshot(ctx, "find the last decision", func(c *connection) error {
		return c.query(ctx, selectLastDecision, func(r *row) error {
			last = r.timeOrNone()
			return nil
		})
	})
	return last, err
}

const selectLastDecision = `SELECT max(decided_at) FROM accounts`

// LiveBySurface is the live work of each surface that has any, in the order of their names.
func (db *DB) LiveBySurface(ctx context.Context, moment time.Time) (surfaces []store.SurfaceWork, err error) {
	err = db.snapshot(ctx, "count live work by surface", func(c *connection) error {
		return c.query(ctx, selectSurfaces, func(r *row) error {
			surfaces = append(surfaces, store.SurfaceWork{
				Surface: r.text(), Live: r.number(), Lapsed: r.number(), Overdue: r.number(), FirstExpiry: r.timeOrNone(),
			})
			return nil
		}, at(moment), at(moment))
	})
	return surfaces, err
}

// By the partial index live_reservations, at start only: it reads as many rows as there is live work.
const selectSurfaces = `SELECT surface, count(*), sum(state = 'running' AND lease_expires_at <= ?), sum(expires_at <= ?), min(expires_at)
	FROM reservations INDEXED BY live_reservations WHERE ended_at IS NULL GROUP BY surface ORDER BY surface`

// LiveWork counts the live reservations, and says when the one that expires first does; zero: there is none.
func (db *DB) LiveWork(ctx context.Context) (count int64, firstExpiry time.Time, err error) {
	err = db.snapshot(ctx, "count live work", func(c *connection) error {
		return c.query(ctx, selectLiveWork, func(r *row) error {
			count, firstExpiry = r.number(), r.timeOrNone()
			return nil
		})
	})
	return count, firstExpiry, err
}

// By the partial index live_reservations alone.
const selectLiveWork = `SELECT count(*), min(expires_at) FROM reservations WHERE ended_at IS NULL`
