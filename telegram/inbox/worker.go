package inbox

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

const (
	queriesLive  = 150 * time.Second // an answer to an older one is refused by the Bot API
	fastFor      = 7 * time.Second   // a pre-checkout query must be answered within ten
	refuseFor    = 2 * time.Second
	fastPatience = 2 * time.Second // for storing a query; then it is answered without
	fastClaimFor = fastPatience + fastFor + refuseFor + settleFor

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
	if in.options.Alone {
		in.succeed(ctx)
	}
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
	others.Wait()
	in.fast.Lock()
	defer in.fast.Unlock()
	return nil
}

// succeed ends the claims of processes that are no more.
func (in *Inbox) succeed(ctx context.Context) {
	for ctx.Err() == nil {
		err := in.options.Store.EndClaims(ctx, in.options.Bot, in.holder, in.options.Now())
		if err == nil {
			return
		}
		if ctx.Err() == nil {
			in.options.Logger.Warn("what the last process had begun could not be taken over and will be tried again", "error", err)
		}
		wait(ctx, in.options.Every)
	}
}

func (in *Inbox) claim(ctx context.Context, limit int) ([]store.Update, error) {
	if limit == 0 {
		return nil, nil
	}
	now := in.options.Now()
	return in.options.Store.ClaimUpdates(ctx, in.options.Bot, in.newClaim(), now, now.Add(claimFor), limit)
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
	u := asTold(row)
	now := in.options.Now()
	settled := store.Settled{Bot: row.Bot, ID: row.ID, Line: row.Line, Claim: row.Claim, State: store.UpdateDone}
	fast := isFast(u.Kind)
	var err error
	switch {
	case in.answered.has(u.ID, now): // when it was not known whether it was stored
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
		settled.Problem = problem(err)
		if settled.State = store.UpdateWaiting; u.Attempt >= in.options.Attempts {
			settled.State = store.UpdateFailed
		} else {
			settled.NextAt = settled.At.Add(pauseAfter(u.Attempt))
		}
	}
	written, failure := in.settling.do(context.WithoutCancel(ctx), []store.Settled{settled})
	switch {
	case failure != nil:
		in.options.Logger.Warn("what became of an update could not be stored, and it will be handled again", "update", u.ID, "kind", u.Kind, "error", failure)
	case !written[0]: // whoever has it now tells
	case settled.State == store.UpdateFailed:
		in.options.Logger.Error("an update fails again and again and is set aside", "update", u.ID, "kind", u.Kind, "attempts", u.Attempt, "error", err)
	case settled.State == store.UpdateWaiting:
		in.options.Logger.Info("an update failed and will be tried again", "update", u.ID, "kind", u.Kind, "attempt", u.Attempt, "error", err)
	}
}

// problem is an error as a database takes it.
func problem(err error) string {
	const most = 2000
	text := strings.ReplaceAll(strings.ToValidUTF8(err.Error(), "?"), "\x00", "?")
	return strings.ToValidUTF8(text[:min(len(text), most)], "")
}

// pauseAfter is how long the next attempt waits.
func pauseAfter(attempt int) time.Duration {
	return min(maxPause, firstPause<<min(attempt-1, 10))
}

// handle calls Handle and keeps the claim on the line meanwhile.
func (in *Inbox) handle(ctx context.Context, row *store.Update, u Update) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	var keeping sync.WaitGroup
	defer keeping.Wait()
	defer close(ended)
	keeping.Go(func() {
		ticker := time.NewTicker(claimFor / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				return
			case <-ticker.C:
			}
			held, err := in.options.Store.ProlongClaim(context.WithoutCancel(ctx), row.Bot, row.Line, row.Claim, in.options.Now().Add(claimFor))
			if err == nil && !held {
				cancel() // somebody else handles it now
				return
			}
		}
	})
	return within(ctx, handleFor, leaveFor, in.options.Handle, u)
}

// answer calls Fast, and Refuse where Fast does not succeed in time.
func (in *Inbox) answer(ctx context.Context, u Update) error {
	err := within(ctx, fastFor, 0, in.options.Fast, u)
	if err == nil || in.options.Refuse == nil {
		return err
	}
	if refusal := within(ctx, refuseFor, 0, in.options.Refuse, u); refusal != nil {
		return errors.Join(err, refusal)
	}
	in.options.Logger.Warn("a query was refused because it could not be answered", "update", u.ID, "kind", u.Kind, "error", err)
	return nil
}

var errStuck = errors.New("it does not return, although its context has ended")

// within calls a handler with a context that ends then, and waits for it a while longer. One that does not return is left
// behind: its person must not wait for it.
func within(ctx context.Context, most, longer time.Duration, handle func(context.Context, Update) error, u Update) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- guarded(ctx, handle, u) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	patience := time.NewTimer(longer)
	defer patience.Stop()
	select {
	case err := <-ended:
		return err
	case <-patience.C:
		return errStuck
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
