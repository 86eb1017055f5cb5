// Command worker finishes work that others have reserved. It takes the ids of reservations from standard input, one a
// line, as a real one takes them from a queue:
//
//	API_KEY=try-me go run ./examples/worker -server http://127.0.0.1:8080
//
// Each is started, kept alive by heartbeats while it is worked on, and charged by what was used. It is for reading; nothing
// else calls it.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
)

func main() {
	server := flag.String("server", "http://127.0.0.1:8080", "where Holdfast is")
	name := flag.String("name", "worker-1", "who works, for whoever reads the reservation")
	flag.Parse()
	c, err := client.New(*server, os.Getenv("API_KEY"), client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	for jobs := bufio.NewScanner(os.Stdin); jobs.Scan() && ctx.Err() == nil; {
		finish(ctx, c, *name, jobs.Text())
	}
}

func finish(ctx context.Context, c *client.Client, name, reservation string) {
	outcome, err := c.Run(ctx, engine.Request{Reservation: reservation, Worker: name}, write)
	var refused *engine.Refused
	switch {
	case errors.As(err, &refused): // somebody else has it, or it ended: a queue may deliver a job twice
		fmt.Println("not mine:", refused.Outcome.Reason)
	case errors.Is(err, engine.ErrInDoubt):
		fmt.Println("in doubt: somebody has to look")
	case err != nil:
		fmt.Println("failed:", err)
	default:
		r := outcome.Reservation
		fmt.Printf("charged %d of %d\n", r.Used, r.Reserved)
	}
}

// write stands for a call of a model. A real one passes w.ID to the provider as its idempotency key, returns
// engine.ErrInDoubt where the connection broke after the request was sent, and stops early when ctx ends.
func write(ctx context.Context, w *engine.Work) error {
	for written := holdfast.Amount(500); written <= 2000; written += 500 {
		if err := ctx.Err(); err != nil {
			return err
		}
		w.Use(map[string]holdfast.Amount{"input_token": 900, "output_token": written}) // in all, not what was added
	}
	return nil
}
