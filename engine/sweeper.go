package engine

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Sweeper is the actor that the ledger names where a reservation expired because nobody came back.
const Sweeper = "sweeper"

// sweeper expires overdue reservations at once and then every SweepEvery. It only sends commands; several servers may do it.
func (e *Engine) sweeper(ctx context.Context) {
	ticker := time.NewTicker(e.options.SweepEvery)
	defer ticker.Stop()
	for {
		if err := e.Sweep(ctx); err != nil && ctx.Err() == nil {
			e.log.Error("sweeping was interrupted and will be tried again", "error", err)
		}
		if err := e.Move(ctx); err != nil && ctx.Err() == nil {
			e.log.Error("moving what accounts were merged with was interrupted and will be tried again", "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// Sweep expires everything that is overdue now, and releases jobs whose last attempt was lost. It returns when a whole pass
// over the accounts has changed nothing.
func (e *Engine) Sweep(ctx context.Context) error {
	for {
		changed, err := e.sweepOnce(ctx)
		if err != nil {
			return err
		}
		if !changed {
			return e.endLost(ctx)
		}
	}
}

// sweepOnce passes over all accounts with something overdue, a bounded chunk at a time: scanned without a lock, expired by a command
// each, which looks again under the lock.
func (e *Engine) sweepOnce(ctx context.Context) (changed bool, err error) {
	swept := 0
	defer func() { e.options.Observer.Swept(swept) }()
	due := store.Due{At: e.Now(), Limit: holdfast.MaxScan}
	for {
		accounts, err := e.store.Scan(ctx, due)
		if err != nil {
			if store.KindOf(err) == store.Fatal {
				e.fail(err)
			}
			return changed, err
		}
		var sent []*pending
		for _, account := range accounts {
			p := &pending{
				command: holdfast.Command{ID: NewID(), Target: account, Actor: Sweeper, Do: holdfast.Expire{}},
				since:   time.Now(),
				sweep:   true,
				answer:  make(chan answer, 1),
			}
			if e.refused(account) != nil {
				continue
			}
			if err := e.queue.push(p); err != nil {
				break // full: callers first
			}
			sent = append(sent, p)
		}
		for _, p := range sent {
			select {
			case a := <-p.answer:
				if a.outcome.Changed {
					changed = true
					swept++
				}
			case <-ctx.Done():
				return changed, ctx.Err()
			}
		}
		if len(accounts) < due.Limit {
			return changed, nil
		}
		due.After = accounts[len(accounts)-1]
	}
}
