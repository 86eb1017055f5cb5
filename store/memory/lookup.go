package memory

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// lookups are what the edges keep beside the accounts.
type lookups struct {
	projects map[string]bool
	keys     map[[32]byte]store.Key
	catalogs []store.Catalog
	claims   map[paymentKey]claimed
	names    map[paymentKey]string
	orders   map[store.OrderName]store.Order
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

// LatestCatalog returns the newest catalog of a project: its own, else the one of all; ok is false where none was stored.
func (s *Store) LatestCatalog(ctx context.Context, project string) (latest store.Catalog, ok bool, err error) {
	err = s.use(ctx, "read the catalog", func() error {
		latest, ok = s.latestCatalog(project)
		return nil
	})
	return latest, ok, err
}

func (s *Store) latestCatalog(project string) (latest store.Catalog, ok bool) {
	for _, c := range s.catalogs {
		own := c.Project == project
		if own && (latest.Project != project || !ok || c.Version > latest.Version) || c.Project == "" && latest.Project == "" && c.Version > latest.Version {
			latest, ok = c, true
		}
	}
	latest.Source = bytes.Clone(latest.Source)
	return latest, ok
}

// AddCatalog stores a new version and returns its number. Where the newest one has the same content and belongs to the same
// project, it returns that. Where another one than expected is the newest, it is a Conflict with store.ErrVersion.
func (s *Store) AddCatalog(ctx context.Context, added store.Catalog, expected int64) (version int64, err error) {
	err = s.use(ctx, "add a catalog", func() error {
		newest, ok := s.latestCatalog(added.Project)
		version = newest.Version
		switch {
		case expected != store.AnyVersion && expected != version:
			return store.StaleCatalog()
		case ok && newest.Project == added.Project && bytes.Equal(newest.Source, added.Source):
			return nil
		}
		version++
		s.catalogs = append(s.catalogs, store.Catalog{Project: added.Project, Version: version, Source: bytes.Clone(added.Source)})
		return nil
	})
	return version, err
}

// CatalogVersions are the numbers of the newest catalogs, per project; the empty project is all that have none of their own.
func (s *Store) CatalogVersions(ctx context.Context) (versions map[string]int64, err error) {
	versions = map[string]int64{}
	err = s.use(ctx, "look for catalogs", func() error {
		for _, c := range s.catalogs {
			versions[c.Project] = max(versions[c.Project], c.Version)
		}
		return nil
	})
	return versions, err
}

// inUse reports whether an account counts as one of the project's: for the empty one, those of all that have no catalog of
// their own.
func (s *Store) inUse(a *account, project string) bool {
	own := slices.ContainsFunc(s.catalogs, func(c store.Catalog) bool { return c.Project == a.row.Project })
	return a.row.Project == project || project == "" && !own
}

// PlansInUse counts the accounts that were set to each plan.
func (s *Store) PlansInUse(ctx context.Context, project string) (plans map[string]int64, err error) {
	plans = map[string]int64{}
	err = s.use(ctx, "count plans in use", func() error {
		for _, a := range s.accounts {
			if a.row.Plan != "" && s.inUse(a, project) {
				plans[a.row.Plan]++
			}
		}
		return nil
	})
	return plans, err
}

// UnitsInUse counts the accounts that have open grants of each unit.
func (s *Store) UnitsInUse(ctx context.Context, project string) (units map[string]int64, err error) {
	units = map[string]int64{}
	err = s.use(ctx, "count units in use", func() error {
		for _, a := range s.accounts {
			held := map[string]bool{}
			for _, g := range a.grants {
				if g.Open && !held[g.Unit] && s.inUse(a, project) {
					held[g.Unit] = true
					units[g.Unit]++
				}
			}
		}
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

// LiveBySurface is the live work of each surface that has any, in the order of their names.
func (s *Store) LiveBySurface(ctx context.Context, at time.Time) (surfaces []store.SurfaceWork, err error) {
	at = stored(at)
	err = s.use(ctx, "count live work by surface", func() error {
		for _, a := range s.accounts {
			for _, r := range a.live {
				i, found := slices.BinarySearchFunc(surfaces, r.Surface, func(w store.SurfaceWork, name string) int { return strings.Compare(w.Surface, name) })
				if !found {
					surfaces = slices.Insert(surfaces, i, store.SurfaceWork{Surface: r.Surface, FirstExpiry: r.ExpiresAt})
				}
				w := &surfaces[i]
				w.Live++
				if r.State == holdfast.Running && !at.Before(r.LeaseExpiresAt) {
					w.Lapsed++
				}
				if r.Overdue(at) {
					w.Overdue++
				}
				if r.ExpiresAt.Before(w.FirstExpiry) {
					w.FirstExpiry = r.ExpiresAt
				}
			}
		}
		return nil
	})
	return surfaces, err
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
