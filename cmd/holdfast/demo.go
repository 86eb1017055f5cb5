package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-dev/holdfast/outbox"
)

// demoCommand shows the product on a real database: as a page with a chat, or, once, as a short story on a real server that
// checks every step of it: what it prints is what was answered and what was stored.
type demoCommand struct {
	Once    bool   `help:"Tell a short story here and end, instead of serving a page with a chat."`
	Listen  string `default:"127.0.0.1:0" placeholder:"HOST:PORT" help:"Where to listen, on this machine only; port 0: any free one."`
	Verbose bool   `help:"Show the server's log on standard error."`
}

// demoSweepEvery is short, so that nobody waits for the sweeper longer than for the reservation to run out.
const demoSweepEvery = 200 * time.Millisecond

func (c demoCommand) Run(ctx context.Context, t *terminal) error {
	if !c.Once {
		return c.show(ctx, t)
	}
	return c.onStage(ctx, t, func(ctx context.Context, s *story) error { return s.tell(ctx) })
}

// onStage serves a new database while do works, and leaves nothing behind.
func (c demoCommand) onStage(ctx context.Context, t *terminal, do func(context.Context, *story) error) (err error) {
	serve := serveCommand{Listen: c.Listen, Dev: true, DevKey: cmp.Or(os.Getenv("HOLDFAST_DEV_KEY"), newKey()), SweepEvery: demoSweepEvery}
	if err := serve.check(); err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return fmt.Errorf("make a directory for the database: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	serve.DB = "sqlite:" + filepath.Join(directory, "demo.db")
	db, err := serve.open(ctx, serving)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	keys, err := serve.keys(ctx, db, t)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	if c.Verbose {
		log = logger(t.notes, slog.LevelDebug)
	}
	catalogs, err := serve.catalogs(ctx, db, log)
	if err != nil {
		return err
	}
	s, err := newServer(serverOptions{
		database: db, keys: keys, catalogs: catalogs, log: log, listen: c.Listen, sweepEvery: demoSweepEvery,
		guard: outbox.Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, // whoever the story has told is on this machine
	})
	if err != nil {
		return err
	}
	return s.while(ctx, func(ctx context.Context) error {
		seen, err := serve.open(ctx, reading) // the story looks at the file from outside, as holdfast account show would
		if err != nil {
			return err
		}
		defer func() { _ = seen.Close() }()
		api := newAPIClient(s.address(), serve.DevKey)
		defer api.http.CloseIdleConnections() // or the server waits for them when it stops
		return do(ctx, &story{out: t.out, notes: t.notes, api: api, database: seen, catalogs: catalogs})
	})
}

// while serves as long as do works. Where the server stops by itself, the context of do ends.
func (s *server) while(ctx context.Context, do func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	served := make(chan error, 1)
	go func() {
		defer stop()
		served <- s.serve(ctx)
	}()
	err := do(ctx)
	stop()
	return errors.Join(err, <-served)
}
