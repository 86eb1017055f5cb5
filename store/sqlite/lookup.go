package sqlite

import (
	"bytes"
	"context"
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
		_, err = c.exec(uninterrupted, upsertKey, key.Hash[:], key.ID, key.Project, scopes, key.Note, at(key.CreatedAt), timeOrNone(key.RevokedAt))
		return err
	})
}

const upsertKey = `INSERT INTO api_keys (hash, id, project, scopes, note, created_at, revoked_at) VALUES (?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (hash) DO UPDATE SET id = excluded.id, project = excluded.project, scopes = excluded.scopes,
	note = excluded.note, created_at = excluded.created_at, revoked_at = excluded.revoked_at`

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
			key.Note, key.CreatedAt = r.text(), r.at()
			return nil
		}, hash[:])
	})
	return key, found, err
}

// By primary key.
const selectKey = `SELECT id, project, scopes, note, created_at FROM api_keys WHERE hash = ? AND revoked_at IS NULL`

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

// LatestCatalog returns the newest catalog that was stored; ok is false where none was.
func (db *DB) LatestCatalog(ctx context.Context) (version int64, source []byte, ok bool, err error) {
	err = db.snapshot(ctx, "read the catalog", func(c *connection) error {
		version, source, ok, err = latestCatalog(ctx, c)
		return err
	})
	return version, source, ok, err
}

func latestCatalog(ctx context.Context, c *connection) (version int64, source []byte, ok bool, err error) {
	err = c.query(ctx, selectCatalog, func(r *row) error {
		version, source, ok = r.number(), []byte(r.text()), true
		return nil
	})
	return version, source, ok, err
}

const selectCatalog = `SELECT version, source FROM catalogs ORDER BY version DESC LIMIT 1`

// AddCatalog stores a new version and returns its number; where the newest one has the same content, it returns that.
func (db *DB) AddCatalog(ctx context.Context, source []byte) (version int64, err error) {
	err = db.write(ctx, "add a catalog", func(c *connection) error {
		newest, stored, ok, err := latestCatalog(uninterrupted, c)
		version = newest
		if err != nil || ok && bytes.Equal(stored, source) {
			return err
		}
		version++
		_, err = c.exec(uninterrupted, insertCatalog, version, string(source), at(time.Now()))
		return err
	})
	if err != nil {
		return 0, err
	}
	return version, nil
}

const insertCatalog = `INSERT INTO catalogs (version, source, created_at) VALUES (?, ?, ?)`

// PlansInUse lists the plans that accounts were set to. It walks all accounts, for a change of the catalog only.
func (db *DB) PlansInUse(ctx context.Context) ([]string, error) {
	return db.words(ctx, "list plans in use", selectPlans)
}

const selectPlans = `SELECT DISTINCT plan FROM accounts WHERE plan <> '' ORDER BY plan`

// UnitsInUse lists the units of open grants. It walks all of them, for a change of the catalog only.
func (db *DB) UnitsInUse(ctx context.Context) ([]string, error) {
	return db.words(ctx, "list units in use", selectUnits)
}

const selectUnits = `SELECT DISTINCT unit FROM grants WHERE open = 1 ORDER BY unit`

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
