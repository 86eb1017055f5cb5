package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
)

type catalogCommand struct {
	Check   catalogCheckCommand   `cmd:"" help:"Check a catalog file: all problems at once, with what to write instead."`
	Schema  catalogSchemaCommand  `cmd:"" help:"Print the JSON Schema of catalog files, for an editor."`
	Example catalogExampleCommand `cmd:"" help:"Print the catalog that is used where none is given."`
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
	return fmt.Sprintf("%d units, %d features, %d plans: no problem found", len(c.Units), len(c.Features), len(c.Plans))
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

// current is the catalog that this process serves to all projects.
type current struct{ catalog *holdfast.Catalog }

func (c current) of(string) *holdfast.Catalog { return c.catalog }

// newestCatalog is the newest stored one, else the embedded one, which counts as version 0 until it is stored.
func newestCatalog(ctx context.Context, db database) (current, error) {
	version, source, ok, err := db.LatestCatalog(ctx)
	if err != nil {
		return current{}, err
	}
	if !ok {
		return current{catalog.Embedded()}, nil
	}
	parsed, err := catalog.Parse(fmt.Sprintf("stored catalog version %d", version), source)
	if err != nil {
		return current{}, err
	}
	parsed.Version = version
	return current{parsed}, nil
}

// storeCatalog makes a file's content the newest version, unless it is that already. It refuses a catalog that drops
// what accounts hold.
func storeCatalog(ctx context.Context, db database, parsed *holdfast.Catalog, source []byte) (current, error) {
	plans, err := db.PlansInUse(ctx)
	if err != nil {
		return current{}, err
	}
	units, err := db.UnitsInUse(ctx)
	if err != nil {
		return current{}, err
	}
	var missing []string
	for _, name := range plans {
		if _, ok := parsed.Plan(name); !ok {
			missing = append(missing, "plan "+name)
		}
	}
	for _, name := range units {
		if _, ok := parsed.Unit(name); !ok {
			missing = append(missing, "unit "+name)
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return current{}, fmt.Errorf("the catalog drops what accounts hold: %s; keep them in the file", strings.Join(missing, ", "))
	}
	parsed.Version, err = db.AddCatalog(ctx, source)
	return current{parsed}, err
}
