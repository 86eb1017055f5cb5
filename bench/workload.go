package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

// The work is one feature at a fixed price, paid from one pocket that never runs dry: refusals would make a figure look
// better than it is.
const (
	project = "bench"
	feature = "image.generate"
	unit    = "credit"
	price   = 5
	ttl     = 15 * time.Minute
	actor   = "bench"
	pocket  = holdfast.Amount(1 << 50)
	slots   = 1_000_000
)

func workCatalog() *holdfast.Catalog {
	return &holdfast.Catalog{
		Version:  1,
		Units:    []holdfast.Unit{{Name: unit}},
		Features: []holdfast.Feature{{Name: feature, Prices: []holdfast.Price{{Unit: unit, Amount: price}}, LongestJob: ttl / 3, TTL: ttl}},
		Plans:    []holdfast.Plan{{Name: "bench", Default: true, Features: []string{feature}, MaxActive: slots}},
	}
}

// account is one of those that work is done for. The first is the hot one.
type account struct {
	name  string
	id    holdfast.AccountID
	grant holdfast.ID // its only pocket
}

// keys gives every reserve of a run a key of its own, as wide as a real one.
type keys struct{ last atomic.Int64 }

func (k *keys) next() string { return "update-" + strconv.FormatInt(1_000_000_000+k.last.Add(1), 10) }

// newReservationID is an id as the engine gives it out.
func newReservationID() holdfast.ID { return engine.NewID().Child(1) }

// eventID is the id of the event that tells of a ledger entry, as the core makes it; a test compares them.
func eventID(entry int64) (id [16]byte) {
	id[6], id[8] = 0x80, 0x80
	for i := range 7 {
		id[15-i] = byte(entry >> (8 * i))
	}
	return id
}

// openAccounts makes the accounts through the engine, each with its pocket.
func openAccounts(ctx context.Context, e *engine.Engine, count int) ([]*account, error) {
	accounts := make([]*account, count)
	return accounts, each(count, openersAtOnce, func(i int) error {
		name := fmt.Sprintf("telegram:%d", 100_000_000+i)
		a := &account{name: name, id: holdfast.AccountIDOf(project, name)}
		put := holdfast.Command{Project: project, Account: name, Actor: actor, Do: holdfast.PutAccount{}}
		grant := holdfast.Command{Project: project, Account: name, Key: "opening", Actor: actor, Do: holdfast.AddGrant{
			Unit: unit, Amount: pocket, Source: holdfast.FromPurchase,
		}}
		if _, err := done(e.Submit(ctx, put)); err != nil {
			return err
		}
		outcome, err := done(e.Submit(ctx, grant))
		if err != nil {
			return err
		}
		a.grant = outcome.Grant.ID
		accounts[i] = a
		return nil
	})
}

const openersAtOnce = 500

// done turns a refusal into an error: nothing here is meant to be refused.
func done(outcome holdfast.Outcome, err error) (*holdfast.Outcome, error) {
	if err == nil && outcome.Reason != "" {
		err = fmt.Errorf("refused: %s %v", outcome.Reason, outcome.Problems)
	}
	return &outcome, err
}

// each calls do for 0 to count-1, so many at a time, and returns the first error.
func each(count, atOnce int, do func(int) error) error {
	var next atomic.Int64
	var failed sync.Map
	var group sync.WaitGroup
	for range min(count, atOnce) {
		group.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				if err := do(i); err != nil {
					failed.Store(0, err)
					next.Store(int64(count))
				}
			}
		})
	}
	group.Wait()
	if err, any := failed.Load(0); any {
		return err.(error)
	}
	return nil
}

// verify proves every ledger of a store, whoever wrote it.
func verify(ctx context.Context, s store.Store) error {
	return s.Dump(ctx, func(r store.Record) error {
		found, err := holdfast.Verify(&r.Account, r.Grants, r.Reservations, r.Entries)
		if err == nil && len(found) > 0 {
			err = fmt.Errorf("account %s: %s", r.Account.Name, found[0])
		}
		return err
	})
}

// during runs an engine while do works, and waits for both.
func during(ctx context.Context, e *engine.Engine, do func() error) error {
	ctx, stop := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- e.Serve(ctx) }()
	err := do()
	stop()
	return errors.Join(err, <-served)
}
