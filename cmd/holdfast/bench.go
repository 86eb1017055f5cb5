package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/holdfast-dev/holdfast/bench"
)

// benchCommand measures on the user's own database server, in a scratch database that is dropped at the end. Figures are
// printed and never judged by the exit code.
type benchCommand struct {
	databaseFlags
	Quick bool   `help:"Ends in under a minute: short cells, and no history of finished reservations."`
	JSON  string `name:"json" placeholder:"FILE" help:"Write the results to a file too: an array of objects."`
}

func (c benchCommand) Run(ctx context.Context, t *terminal) error {
	// A run takes its time; whether its results can be kept is found out first.
	var file *os.File
	if c.JSON != "" {
		var err error
		if file, err = os.OpenFile(c.JSON, os.O_WRONLY|os.O_CREATE, 0o644); err != nil {
			return fmt.Errorf("--json: %w", err)
		}
		defer func() { _ = file.Close() }() // closed before, unless something failed
	}
	results, err := bench.Run(ctx, bench.Options{URL: c.DB, Quick: c.Quick, Out: t.out})
	if err != nil || file == nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	encoder := json.NewEncoder(file)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(results); err != nil {
		return err
	}
	return file.Close()
}
