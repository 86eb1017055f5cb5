package river_test

import (
	"context"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/adapter/river"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store/postgres"
)

// DrawArgs are what a picture is drawn from.
type DrawArgs struct {
	Prompt string `json:"prompt"`
}

// Kind is River's name for these jobs.
func (DrawArgs) Kind() string { return "draw" }

// DrawWorker draws.
type DrawWorker struct {
	riverqueue.WorkerDefaults[DrawArgs]
}

// Work is an ordinary worker of River.
func (w *DrawWorker) Work(ctx context.Context, job *riverqueue.Job[DrawArgs]) error {
	work := river.Work(ctx)
	credits, err := draw(ctx, work.ID, job.Args.Prompt) // the provider's idempotency key: the same for every attempt
	if err != nil {
		return err
	}
	work.Charge(credits) // without it, all that was reserved
	return nil
}

func draw(context.Context, string, string) (holdfast.Amount, error) { return 3, nil }

// A program that queues with River on the PostgreSQL that its engine is on.
func Example() {
	ctx := context.Background()
	if err := serve(ctx, "postgres://localhost/shop"); err != nil {
		slog.Error("the shop has stopped", "error", err)
	}
}

func serve(ctx context.Context, url string) error {
	db, err := postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	sold := catalog.Embedded()
	eng := engine.New(db, engine.Options{Catalog: func(string) *holdfast.Catalog { return sold }})
	go func() { _ = eng.Serve(ctx) }()

	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	workers := riverqueue.NewWorkers()
	riverqueue.AddWorker(workers, &DrawWorker{})
	const rescueAfter = 5 * time.Minute // within what the feature's longest hold allows
	client, err := riverqueue.NewClient(riverpgxv5.New(pool), &riverqueue.Config{
		Workers: workers, Queues: map[string]riverqueue.QueueConfig{riverqueue.QueueDefault: {MaxWorkers: 10}},
		MaxAttempts: 4, JobTimeout: 2 * time.Minute, RescueStuckJobsAfter: rescueAfter,
		Middleware: []rivertype.Middleware{&river.Middleware{Engine: eng, Project: "shop", RescueAfter: rescueAfter}},
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	queue := &river.Queue{Engine: eng, Client: client}
	return press(ctx, pool, queue, "telegram:42", "message-991", "a cat")
}

// press takes an order: its row, the reservation and the job are there together, or none of them.
func press(ctx context.Context, pool *pgxpool.Pool, queue *river.Queue, account, message, prompt string) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (message) VALUES ($1)`, message); err != nil {
			return err
		}
		outcome, _, err := queue.Insert(ctx, tx, engine.Request{
			Project: "shop", Account: account, Key: message, Reserve: holdfast.Reserve{Feature: "image.generate"},
		}, DrawArgs{Prompt: prompt}, nil)
		if err == nil && outcome.Refused() {
			slog.Info("no", "reason", outcome.Reason, "needed", outcome.Refusal.Needed, "available", outcome.Refusal.Available)
		}
		return err
	})
}
