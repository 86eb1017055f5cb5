package sim_test

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/faultstore"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
)

// Whichever of Run's saves is in doubt while the database goes away for longer than the engine tries: Run asks again until it
// knows, and finds what it has itself done. It is never refused by its own success.
func TestRunIsNeverRefusedByItsOwnSuccess(t *testing.T) {
	for number, verb := range map[int]string{2: "reserve", 3: "start", 4: "commit"} {
		t.Run(verb, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data := memory.Open()
				var away atomic.Bool
				plan := func(_ context.Context, call faultstore.Call) faultstore.Fault {
					switch {
					case away.Load():
						return faultstore.Fault{Trouble: faultstore.Fail, Kind: store.Unavailable}
					case call.Op == faultstore.Save && call.After && call.Number == number:
						away.Store(true)
						time.AfterFunc(5*time.Second, func() { away.Store(false) })
						return faultstore.Fault{Trouble: faultstore.Disconnect}
					}
					return faultstore.Fault{}
				}
				e := engine.New(faultstore.Open(data, plan), engine.Options{
					Catalog: func(string) *holdfast.Catalog { return tariff }, RetryFor: 2 * time.Second, SweepEvery: -1,
					Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
				})
				ctx, stop := context.WithCancel(context.Background())
				served := make(chan error, 1)
				go func() { served <- e.Serve(ctx) }()
				if _, err := e.Submit(ctx, holdfast.Command{Project: "p", Account: "ann", Do: holdfast.PutAccount{}}); err != nil {
					t.Error(err)
				}
				worked := 0
				o, err := e.Run(ctx, engine.Request{Project: "p", Account: "ann", Key: "k", Reserve: holdfast.Reserve{Feature: "text"}},
					func(context.Context, *engine.Work) error { worked++; return nil })
				if err != nil || o.Reservation.State != holdfast.Committed || o.Reservation.Used != 1 || worked != 1 {
					t.Errorf("worked %d times; %v; %+v", worked, err, o.Reservation)
				}
				stop()
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}
