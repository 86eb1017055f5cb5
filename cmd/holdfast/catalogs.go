package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/httpapi"
	"github.com/holdfast-dev/holdfast/store"
)

// refreshEvery is how often a server looks for catalogs that others have stored.
const refreshEvery = 2 * time.Second

// catalogs are the newest ones, compiled, as this process knows them: one of all projects, and those of projects that have
// their own. Decisions read them without a lock.
type catalogs struct {
	database database
	log      *slog.Logger
	known    atomic.Pointer[map[string]compiled]
}

type compiled struct {
	catalog *holdfast.Catalog
	source  []byte
}

// openCatalogs reads what is stored. Without anything, the embedded catalog counts as version 0.
func openCatalogs(ctx context.Context, db database, log *slog.Logger) (*catalogs, error) {
	c := &catalogs{database: db, log: log}
	c.known.Store(&map[string]compiled{"": {catalog.Embedded(), catalog.EmbeddedSource()}})
	versions, err := db.CatalogVersions(ctx)
	if err != nil {
		return nil, err
	}
	for project := range versions {
		if err := c.load(ctx, project); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// of is the catalog that a project is served by.
func (c *catalogs) of(project string) *holdfast.Catalog { return c.compiled(project).catalog }

func (c *catalogs) compiled(project string) compiled {
	known := *c.known.Load()
	if own, ok := known[project]; ok {
		return own
	}
	return known[""]
}

// load takes up the newest catalog of a project.
func (c *catalogs) load(ctx context.Context, project string) error {
	newest, source, err := newestCatalog(ctx, c.database, project)
	if err != nil {
		return err
	}
	for {
		before := c.known.Load()
		if own, ok := (*before)[project]; ok && own.catalog.Version > newest.Version {
			return nil // another has taken up a newer one
		}
		after := maps.Clone(*before)
		after[project] = compiled{newest, source}
		if c.known.CompareAndSwap(before, &after) {
			return nil
		}
	}
}

// Current is the version that the project is served by, and its YAML.
func (c *catalogs) Current(ctx context.Context, project string) (int64, []byte, error) {
	served := c.compiled(project)
	stored, ok, err := c.database.LatestCatalog(ctx, project)
	if err != nil || !ok || stored.Version == served.catalog.Version {
		return served.catalog.Version, served.source, err
	}
	if err := c.load(ctx, stored.Project); err != nil { // another process stored it a moment ago
		return 0, nil, err
	}
	return stored.Version, stored.Source, nil
}

// Replace makes the YAML the newest version of the project's own catalog, if ifVersion is the newest now.
func (c *catalogs) Replace(ctx context.Context, project string, ifVersion int64, source []byte) (version int64, created bool, err error) {
	before, old, err := newestCatalog(ctx, c.database, project)
	if err != nil {
		return 0, false, err
	}
	if before.Version != ifVersion {
		return 0, false, httpapi.ErrVersion
	}
	if bytes.Equal(old, source) {
		return before.Version, false, nil
	}
	version, err = replaceCatalog(ctx, c.database, "catalog", store.Catalog{Project: project, Source: source}, ifVersion)
	if err != nil {
		return 0, false, asAPI(err)
	}
	return version, version != before.Version, c.load(ctx, project)
}

// asAPI tells the API what is wrong with a catalog in its own words.
func asAPI(err error) error {
	var dropped *droppedError
	var problems catalog.Problems
	switch {
	case errors.Is(err, store.ErrVersion):
		return httpapi.ErrVersion
	case errors.As(err, &dropped):
		return &httpapi.InUse{Plans: dropped.plans, Units: dropped.units}
	case errors.As(err, &problems):
		var told httpapi.CatalogProblems
		for _, p := range problems {
			told = append(told, httpapi.CatalogProblem{Field: p.Path, Line: p.Line, Column: p.Column, Hint: p.Message + ": " + p.Suggestion})
		}
		return told
	}
	return err
}

// refresh takes up what other processes store, until ctx ends.
func (c *catalogs) refresh(ctx context.Context) {
	ticker := time.NewTicker(refreshEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		versions, err := c.database.CatalogVersions(ctx)
		if err != nil {
			continue // whoever needs the database now tells it
		}
		for project, version := range versions {
			if own, ok := (*c.known.Load())[project]; ok && own.catalog.Version >= version {
				continue
			}
			if err := c.load(ctx, project); err != nil && ctx.Err() == nil {
				c.log.Error("a stored catalog could not be taken up; the one before is served", "project", project, "version", version, "error", err)
			}
		}
	}
}

// newestCatalog compiles the newest stored catalog of a project, else the embedded one, which counts as version 0.
func newestCatalog(ctx context.Context, db database, project string) (*holdfast.Catalog, []byte, error) {
	stored, ok, err := db.LatestCatalog(ctx, project)
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return catalog.Embedded(), catalog.EmbeddedSource(), nil
	}
	parsed, err := catalog.Parse(fmt.Sprintf("stored catalog version %d", stored.Version), stored.Source)
	if err != nil {
		return nil, nil, err
	}
	parsed.Version = stored.Version
	return parsed, stored.Source, nil
}

// replaceCatalog makes a source the newest version of a project's catalog, unless it is that already. It refuses one that
// has problems, and one that drops what accounts hold.
func replaceCatalog(ctx context.Context, db database, name string, added store.Catalog, expected int64) (int64, error) {
	parsed, err := catalog.Parse(name, added.Source)
	if err != nil {
		return 0, err
	}
	before, _, err := newestCatalog(ctx, db, added.Project)
	if err != nil {
		return 0, err
	}
	inUse, err := catalogInUse(ctx, db, added.Project)
	if err != nil {
		return 0, err
	}
	if err := catalog.Missing(before, parsed, inUse); err != nil {
		return 0, dropped(before, parsed, inUse, err)
	}
	added.Source = bytes.Clone(added.Source)
	return db.AddCatalog(ctx, added, expected)
}

// droppedError refuses a catalog that drops what accounts hold, by name.
type droppedError struct {
	plans, units []string
	err          error
}

func (e *droppedError) Error() string {
	return fmt.Sprintf("the catalog drops what accounts hold: %v", e.err)
}

func (e *droppedError) Unwrap() error { return e.err }

func dropped(before, after *holdfast.Catalog, inUse catalog.InUse, err error) *droppedError {
	e := &droppedError{err: err}
	for i := range before.Plans {
		name := before.Plans[i].Name
		if _, kept := after.Plan(name); !kept && inUse.Plans[name] > 0 {
			e.plans = append(e.plans, name)
		}
	}
	for i := range before.Units {
		name := before.Units[i].Name
		if _, kept := after.Unit(name); !kept && inUse.Units[name] > 0 {
			e.units = append(e.units, name)
		}
	}
	return e
}

func catalogInUse(ctx context.Context, db database, project string) (inUse catalog.InUse, err error) {
	if inUse.Plans, err = db.PlansInUse(ctx, project); err != nil {
		return inUse, err
	}
	inUse.Units, err = db.UnitsInUse(ctx, project)
	return inUse, err
}
