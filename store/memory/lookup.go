package memory

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// lookups are what the edges keep beside the accounts.
type lookups struct {
	projects map[string]bool
	keys     map[[32]byte]store.Key
	catalogs [][]byte // version 1 first
}

// AddProject makes a project known; created is false where it was.
func (s *Store) AddProject(ctx context.Context, name string) (created bool, err error) {
	const op = "add a project"
	err = s.use(ctx, op, func() error {
		if name == "" {
			return rejected(op, errors.New("project_has_a_name"))
		}
		created = !s.projects[name]
		s.projects[name] = true
		return nil
	})
	return created, err
}

// Projects lists the known projects by name.
func (s *Store) Projects(ctx context.Context) (names []string, err error) {
	err = s.use(ctx, "list projects", func() error {
		names = slices.Sorted(maps.Keys(s.projects))
		return nil
	})
	return names, err
}

// AddKey registers a key of a known project. The same secret again takes the place of its former registration, and is in
// force again where it had been revoked.
func (s *Store) AddKey(ctx context.Context, key store.Key) error {
	const op = "add a key"
	return s.use(ctx, op, func() error {
		key.Scopes, key.CreatedAt, key.RevokedAt = copyList(key.Scopes), stored(key.CreatedAt), stored(key.RevokedAt)
		switch {
		case !s.projects[key.Project]:
			return rejected(op, errors.New("key_is_for_a_known_project"))
		case key.ID == "":
			return rejected(op, errors.New("key_has_an_id"))
		case key.CreatedAt.IsZero():
			return rejected(op, errors.New("key_has_its_time"))
		}
		s.keys[key.Hash] = key
		return nil
	})
}

// RevokeKey ends the keys of that id; revoked is false where none was in force.
func (s *Store) RevokeKey(ctx context.Context, id string, when time.Time) (revoked bool, err error) {
	err = s.use(ctx, "revoke a key", func() error {
		for hash, key := range s.keys {
			if key.ID == id && key.RevokedAt.IsZero() {
				key.RevokedAt = stored(when)
				s.keys[hash], revoked = key, true
			}
		}
		return nil
	})
	return revoked, err
}

// KeyByHash finds a key in force.
func (s *Store) KeyByHash(ctx context.Context, hash [32]byte) (key store.Key, found bool, err error) {
	err = s.use(ctx, "find a key", func() error {
		stored, ok := s.keys[hash]
		if ok && stored.RevokedAt.IsZero() {
			key, found = stored, true
			key.Scopes = copyList(key.Scopes)
		}
		return nil
	})
	return key, found, err
}

// HasKeys reports whether any key is in force.
func (s *Store) HasKeys(ctx context.Context) (has bool, err error) {
	err = s.use(ctx, "look for keys", func() error {
		for _, key := range s.keys {
			has = has || key.RevokedAt.IsZero()
		}
		return nil
	})
	return has, err
}

// LatestCatalog returns the newest catalog that was stored; ok is false where none was.
func (s *Store) LatestCatalog(ctx context.Context) (version int64, source []byte, ok bool, err error) {
	err = s.use(ctx, "read the catalog", func() error {
		if version = int64(len(s.catalogs)); version > 0 {
			source, ok = bytes.Clone(s.catalogs[version-1]), true
		}
		return nil
	})
	return version, source, ok, err
}

// AddCatalog stores a new version and returns its number; where the newest one has the same content, it returns that.
func (s *Store) AddCatalog(ctx context.Context, source []byte) (version int64, err error) {
	err = s.use(ctx, "add a catalog", func() error {
		if n := len(s.catalogs); n == 0 || !bytes.Equal(s.catalogs[n-1], source) {
			s.catalogs = append(s.catalogs, bytes.Clone(source))
		}
		version = int64(len(s.catalogs))
		return nil
	})
	return version, err
}

// PlansInUse lists the plans that accounts were set to.
func (s *Store) PlansInUse(ctx context.Context) (plans []string, err error) {
	err = s.use(ctx, "list plans in use", func() error {
		for _, a := range s.accounts {
			if a.row.Plan != "" {
				plans = append(plans, a.row.Plan)
			}
		}
		plans = slices.Compact(slices.Sorted(slices.Values(plans)))
		return nil
	})
	return plans, err
}

// UnitsInUse lists the units of open grants.
func (s *Store) UnitsInUse(ctx context.Context) (units []string, err error) {
	err = s.use(ctx, "list units in use", func() error {
		for _, a := range s.accounts {
			for _, g := range a.grants {
				if g.Open {
					units = append(units, g.Unit)
				}
			}
		}
		units = slices.Compact(slices.Sorted(slices.Values(units)))
		return nil
	})
	return units, err
}

// LastDecision is the time of the newest decision about any account; zero: there is none.
func (s *Store) LastDecision(ctx context.Context) (last time.Time, err error) {
	err = s.use(ctx, "find the last decision", func() error {
		for _, a := range s.accounts {
			if a.row.DecidedAt.After(last) {
				last = a.row.DecidedAt
			}
		}
		return nil
	})
	return last, err
}

// LiveWork counts the live reservations, and says when the one that expires first does; zero: there is none.
func (s *Store) LiveWork(ctx context.Context) (count int64, firstExpiry time.Time, err error) {
	err = s.use(ctx, "count live work", func() error {
		for _, a := range s.accounts {
			for _, r := range a.live {
				if count++; count == 1 || r.ExpiresAt.Before(firstExpiry) {
					firstExpiry = r.ExpiresAt
				}
			}
		}
		return nil
	})
	return count, firstExpiry, err
}
