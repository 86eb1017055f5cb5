package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/store"
)

type catalogCommand struct {
	Check   catalogCheckCommand   `cmd:"" help:"Check a catalog file: all problems at once, with what to write instead."`
	Schema  catalogSchemaCommand  `cmd:"" help:"Print the JSON Schema of catalog files, for an editor."`
	Example catalogExampleCommand `cmd:"" help:"Print the catalog that is used where none is given."`
	Apply   catalogApplyCommand   `cmd:"" help:"Make a file the newest version of a catalog, also while it is being served."`
	Diff    catalogDiffCommand    `cmd:"" help:"Say what a file would change, and for whom."`
}

type catalogCheckCommand struct {
	File string `arg:"" help:"The YAML file."`
}

func (c catalogCheckCommand) Run(t *terminal) error {
	parsed, _, err := readCatalog(c.File)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(t.out, "%s: %s\n", c.File, describe(parsed))
	return err
}

func describe(c *holdfast.Catalog) string {
	return fmt.Sprintf("%d units, %d features, %d plans, %d products: no problem found", len(c.Units), len(c.Features), len(c.Plans), len(c.Products))
}

func readCatalog(file string) (*holdfast.Catalog, []byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read the catalog: %w", err)
	}
	if info.Size() > holdfast.MaxCatalogBytes {
		return nil, nil, fmt.Errorf("%s has %d bytes; a catalog has at most %d", file, info.Size(), holdfast.MaxCatalogBytes)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("read the catalog: %w", err)
	}
	parsed, err := catalog.Parse(file, source)
	return parsed, source, err
}

type catalogSchemaCommand struct{}

func (catalogSchemaCommand) Run(t *terminal) error {
	_, err := t.out.Write(catalog.Schema())
	return err
}

type catalogExampleCommand struct{}

func (catalogExampleCommand) Run(t *terminal) error {
	_, err := t.out.Write(catalog.EmbeddedSource())
	return err
}

// catalogOf names a catalog: a project's own, or the one of all projects that have none.
type catalogOf struct {
	databaseFlags
	Project string `help:"The project whose own catalog is meant; without it, the one of all projects that have none of their own."`
}

func (c catalogOf) open(ctx context.Context, want access) (database, error) {
	if c.Project != "" && !holdfast.ValidProject(c.Project) {
		return nil, fmt.Errorf("--project: use 1 to %d of a-z 0-9 . _ -", holdfast.MaxProjectBytes)
	}
	return c.databaseFlags.open(ctx, want)
}

type catalogApplyCommand struct {
	catalogOf
	File string `arg:"" help:"The YAML file."`
}

func (c catalogApplyCommand) Run(ctx context.Context, t *terminal) error {
	_, source, err := readCatalog(c.File)
	if err != nil {
		return err
	}
	db, err := c.open(ctx, writing)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	before, _, err := db.LatestCatalog(ctx, c.Project)
	if err != nil {
		return err
	}
	version, err := replaceCatalog(ctx, db, c.File, store.Catalog{Project: c.Project, Source: source}, before.Version)
	if err != nil {
		return err
	}
	said := "is the newest version %d now; servers take it up within %s\n"
	if version == before.Version {
		said = "was version %d already\n"
		_, err = fmt.Fprintf(t.out, c.File+" "+said, version)
		return err
	}
	_, err = fmt.Fprintf(t.out, c.File+" "+said, version, refreshEvery)
	return err
}

type catalogDiffCommand struct {
	catalogOf
	File string `arg:"" help:"The YAML file."`
}

func (c catalogDiffCommand) Run(ctx context.Context, t *terminal) error {
	after, _, err := readCatalog(c.File)
	if err != nil {
		return err
	}
	db, err := c.open(ctx, reading)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	before, _, err := newestCatalog(ctx, db, c.Project)
	if err != nil {
		return err
	}
	inUse, err := catalogInUse(ctx, db, c.Project)
	if err != nil {
		return err
	}
	changes := catalog.Diff(before, after)
	if len(changes) == 0 {
		_, err = fmt.Fprintf(t.out, "nothing would change: version %d says the same\n", before.Version)
		return err
	}
	out := &printing{to: t.out}
	for _, change := range changes {
		out.line("%s: %s → %s\n    %s%s", change.Path, orNothing(change.Before), orNothing(change.After), change.Effect, howMany(change, inUse))
	}
	if err := catalog.Missing(before, after, inUse); err != nil {
		out.line("\nIt would be refused:\n%v", err)
	}
	return out.err
}

func orNothing(value string) string {
	if value == "" {
		return "(nothing)"
	}
	return value
}

func howMany(change catalog.Change, inUse catalog.InUse) string {
	if change.Plan == "" {
		return ""
	}
	return fmt.Sprintf(" (accounts that were set to %s: %d)", change.Plan, inUse.Plans[change.Plan])
}

// printing writes lines until one fails.
type printing struct {
	to  io.Writer
	err error
}

func (p *printing) line(format string, values ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.to, format+"\n", values...)
	}
}
