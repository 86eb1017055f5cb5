package main

import (
	"context"
	"fmt"
)

type migrateCommand struct{ databaseFlags }

// Run opens the database for writing, which migrates it.
func (c migrateCommand) Run(ctx context.Context, t *terminal) error {
	db, err := c.open(ctx, writing)
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	_, err = fmt.Fprintln(t.out, "the database has this program's schema")
	return err
}
