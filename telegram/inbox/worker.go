package inbox

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

const (
	claimFor  = 10 * time.Second // it is prolonged three times as often
	handleFor = time.Minute
	settleFor = 5 * time.Second
	leaveFor  = 5 * time.Second // updates that are being handled when the worker stops

	firstPause = time.Second // before the second attempt; it doubles
	maxPause   = time.Minute

	pruneEvery = time.Minute
	pruneChunk = 500
)

// How long ended updates are kept. Telegram tells an update for a day, so its id is known for longer; what was set aside
// waits for somebody to look at it.
const (
	KeepDone   = 48 * time.Hour
	KeepFailed = 30 * 24 * time.Hour
)

// Run handles what is stored until ctx ends. It returns when all that it started has stopped; what is being handled is
// given a few seconds to end, and what does not is handled again later.
func (in *Inbox) Run(ctx context.Context) error {
	handling, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var working, others sync.WaitGroup
	others.Go(func() { in.prune(ctx) })
	slots := make(chan struct{}, in.options.Parallel)
	for ctx.Err() == nil {
		claimed, err := in.claim(ctx, cap(slots)-len(slots))
		if err != nil && ctx.Err() == nil {
			in.options.Logger.Warn("updates could not be claimed and will be looked for again", "error", err)
		}
		for i := range claimed {
			slots <- struct{}{}
			working.Go(func() {
				in.attempt(handling, &claimed[i])
				<-slots
				in.wake() // the line may go on
			})
		}
		if len(claimed) == 0 {
			in.pause(ctx)
		}
	}
	leaving := time.AfterFunc(leaveFor, stop)
	defer leaving.Stop()
	working.Wait()
	in.fast.Wait()
	others.Wait()
	return nil
}

func (in *Inbox) claim(ctx context.Context, limit int) ([]store.Update, error) {
	if limit == 0 {
		return nil, nil
	}
	now := in.options.Now()
	return in.options.Store.ClaimUpdates(ctx, in.options.Bot, rand.Text(), now, now.Add(claimFor), limit)
}

func (in *Inbox) pause(ctx context.Context) {
	timer := time.NewTimer(in.options.Every)
	defer timer.Stop()
	select {
	case <-in.woken:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// attempt handles a claimed update and settles it.
func (in *Inbox) attempt(ctx context.Context, row *store.Update) {
	u := in.update(row)
	now := in.options.Now()
	settled := store.Settled{Bot: row.Bot, ID: row.ID, Line: row.Line, Claim: row.Claim, State: store.UpdateDone}
	fast := u.Kind == preCheckout || u.Kind == callbackQuery
	var err error
	switch {
	case fast && now.Sub(u.ReceivedAt) >= queriesLive:
		settled.Problem = "expired"
		in.options.Logger.Info("a query is too old to be answered", "update", u.ID, "kind", u.Kind)
	case u.Attempt > in.options.Attempts: // the last ones did not even come to their end
		err = errors.New("its attempts were interrupted")
	case fast:
		err = in.answer(ctx, u)
	default:
		err = in.handle(ctx, row, u)
	}
	settled.At = in.options.Now()
	if err != nil {
		settled.Problem = err.Error()
		if settled.State = store.UpdateWaiting; u.Attempt >= in.options.Attempts {
			settled.State = store.UpdateFailed
		} else {
			settled.NextAt = settled.At.Add(pauseAfter(u.Attempt))
		}
	}
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	written, problem := in.options.Store.SettleUpdate(settling, settled)
	switch {
	case problem != nil:
		in.options.Logger.Warn("what became of an update could not be stored, and it will be handled again", "update", u.ID, "kind", u.Kind, "error", problem)
	case !written: // whoever has it now tells
	case settled.State == store.UpdateFailed:
		in.options.Logger.Error("an update fails again and again and is set aside", "update", u.ID, "kind", u.Kind, "attempts", u.Attempt, "error", err)
	case settled.State == store.UpdateWaiting:
		in.options.Logger.Info("an update failed and will be tried again", "update", u.ID, "kind", u.Kind, "attempt", u.Attempt, "error", err)
	}
}

// pauseAfter is how long the next attempt waits.
func pauseAfter(attempt int) time.Duration {
	return min(maxPause, firstPause<<min(attempt-1, 10))
}

// handle calls Handle and keeps the claim on the line meanwhile. One that does not end in its time loses the claim.
func (in *Inbox) handle(ctx context.Context, row *store.Update, u Update) error {
	ctx, cancel := context.WithTimeout(ctx, handleFor)
	defer cancel()
	var keeping sync.WaitGroup
	defer keeping.Wait()
	ended := make(chan struct{})
	defer close(ended)
	keeping.Go(func() {
		for {
			timer := time.NewTimer(claimFor / 3)
			select {
			case <-ended:
				timer.Stop()
				return
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
			held, err := in.options.Store.ProlongClaim(ctx, row.Bot, row.Line, row.Claim, in.options.Now().Add(claimFor))
			if err == nil && !held {
				cancel() // somebody else handles it now
				return
			}
		}
	})
	return guarded(ctx, in.options.Handle, u)
}

// answer calls Fast, and Refuse where Fast does not succeed in time.
func (in *Inbox) answer(ctx context.Context, u Update) error {
	err := within(ctx, fastFor, in.options.Fast, u)
	if err == nil || in.options.Refuse == nil {
		return err
	}
	if refusal := within(ctx, refuseFor, in.options.Refuse, u); refusal != nil {
		return errors.Join(err, refusal)
	}
	in.options.Logger.Warn("a query was refused because it could not be answered", "update", u.ID, "kind", u.Kind, "error", err)
	return nil
}

// within calls a handler, and waits for it no longer than that.
func within(ctx context.Context, most time.Duration, handle func(context.Context, Update) error, u Update) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- guarded(ctx, handle, u)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		select {
		case err := <-ended: // cancelled by its end
			return err
		default:
			return ctx.Err()
		}
	}
}

// guarded turns a panic into an error.
func guarded(ctx context.Context, handle func(context.Context, Update) error, u Update) (err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v\n%s", panicked, debug.Stack())
		}
	}()
	return handle(ctx, u)
}

// prune removes what was kept long enough.
func (in *Inbox) prune(ctx context.Context) {
	for ctx.Err() == nil {
		now := in.options.Now()
		pruned, err := in.options.Store.PruneUpdates(ctx, now.Add(-KeepDone), now.Add(-KeepFailed), pruneChunk)
		if err != nil && ctx.Err() == nil {
			in.options.Logger.Warn("old updates could not be pruned and will be tried again", "error", err)
		}
		if pruned < pruneChunk {
			wait(ctx, pruneEvery)
		}
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
