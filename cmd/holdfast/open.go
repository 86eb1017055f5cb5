package main

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"

	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/store/postgres"
	"github.com/holdfast-dev/holdfast/store/sqlite"
)

// databaseFlags name the database; every command that needs one embeds them.
type databaseFlags struct {
	DB    string `name:"db" default:"sqlite:holdfast.db" env:"HOLDFAST_DB" placeholder:"URL" help:"Where the data is: sqlite:PATH, postgres://USER:PASSWORD@HOST:PORT/DATABASE, or memory: for nothing that lasts."`
	Trace bool   `kong:"-"` // make spans of what PostgreSQL is asked
}

// name is how the database is called in what is printed: without a password.
func (f databaseFlags) name() string {
	if parsed, err := url.Parse(f.DB); err == nil && parsed.User != nil {
		return parsed.Redacted()
	}
	return f.DB
}

// database is a store and what the edges keep beside it.
type database interface {
	store.Lookups
	store.Jobs
	store.Outbox
	store.Endpoints
}

// access is what a command wants to do with the database.
type access int

const (
	reading access = iota // never creates or changes the file
	writing               // beside a serving process
	serving               // as the only serving process of the file
)

func (f databaseFlags) open(ctx context.Context, want access) (database, error) {
	scheme, path, found := strings.Cut(f.DB, ":")
	switch {
	case found && scheme == "sqlite" && path != "":
		return sqlite.Open(ctx, path, sqlite.Options{Serve: want == serving, ReadOnly: want == reading})
	case found && (scheme == "postgres" || scheme == "postgresql"):
		return postgres.Open(ctx, f.DB, postgres.Options{ReadOnly: want == reading, Trace: f.Trace})
	case f.DB == "memory:":
		return memory.Open(), nil
	}
	// The URL may hold a password, so it is not repeated.
	return nil, errors.New("--db: use sqlite:PATH, for example sqlite:holdfast.db, or postgres://USER:PASSWORD@HOST:PORT/DATABASE")
}

// work opens the database and runs an engine on it while do works. It serves nobody else and never sweeps.
func (f databaseFlags) work(ctx context.Context, log *slog.Logger, do func(db database, e *engine.Engine) error) error {
	db, err := f.open(ctx, writing)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	catalogs, err := openCatalogs(ctx, db, log)
	if err != nil {
		return err
	}
	e := engine.New(db, engine.Options{Catalog: catalogs.of, Logger: log, SweepEvery: -1})
	return during(ctx, e, func() error { return do(db, e) })
}

// during runs the engine while do works, and waits for both.
func during(ctx context.Context, e *engine.Engine, do func() error) error {
	ctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx) }()
	err := do()
	stop()
	if failed := <-served; err == nil {
		err = failed
	}
	return err
}
