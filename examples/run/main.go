// Command run does one piece of work and charges it exactly once, in this process, on an SQLite file that it creates:
//
//	go run ./examples/run message-991
//
// The same key again is the same intention, and is not done again. It is for reading; nothing else calls it.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store/sqlite"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("say which message it is about: run message-991")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, message string) error {
	db, err := sqlite.Open(ctx, "run.db", sqlite.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	sold := catalog.Embedded()
	eng := engine.New(db, engine.Options{Catalog: func(string) *holdfast.Catalog { return sold }})
	serving, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- eng.Serve(serving) }()

	outcome, err := eng.Run(ctx, engine.Request{
		Project: "bot", Account: "telegram:42", Key: message, Reserve: holdfast.Reserve{Feature: "text.improve"},
	}, func(ctx context.Context, w *engine.Work) error {
		fmt.Println("working on", message)
		return nil // committed; an error, a panic, a cancelled ctx: released
	})

	stop()
	if stopped := <-served; stopped != nil {
		return stopped
	}
	var refused *engine.Refused
	switch {
	case errors.As(err, &refused):
		fmt.Println("refused:", refused.Outcome.Reason)
	case err != nil:
		return err
	default:
		fmt.Printf("charged %d %s, %d left\n", outcome.Reservation.Used, outcome.Balance.Unit, outcome.Balance.Available)
	}
	return nil
}
