package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// lane takes batches until the intake is closed and everything is answered, or ctx ends.
func (e *Engine) lane(ctx context.Context) { e.work(ctx, e.queue.wake, func() bool { return true }) }

// spareLane is one more, which takes a batch only where there is a backlog.
func (e *Engine) spareLane(ctx context.Context) { e.work(ctx, e.queue.spare, e.queue.hasBacklog) }

func (e *Engine) work(ctx context.Context, wake <-chan struct{}, wanted func() bool) {
	for {
		var groups []*group
		if wanted() {
			groups = e.queue.take(e.options.MaxBatch, e.traits.MaxAccounts)
		}
		if len(groups) > 0 {
			begun, settled := time.Now(), commandsOf(groups)
			e.settle(ctx, groups, false)
			for _, g := range groups {
				if g.held {
					e.waitFor(ctx, g)
				} else {
					e.finish(g)
				}
			}
			e.letHear(settled, time.Since(begun)/hearing)
			e.giveTurns()
			continue
		}
		if e.queue.idle() || ctx.Err() != nil {
			e.queue.signal() // another lane may be waiting to see it too
			return
		}
		select {
		case <-wake:
			e.giveTurns()
		case <-ctx.Done():
		}
	}
}

// hearing is what part of a batch's time, at most, a lane lets those run whom it has answered.
const hearing = 8

// letHear lets those run who were just answered, until the last has heard it: many send their next command at once, and a
// lane that does not wait for them takes half of them, and the other half the next time. Where nobody is left, it takes no time.
func (e *Engine) letHear(settled []*pending, most time.Duration) {
	for begun := time.Now(); e.queue.waiting() < e.options.MaxBatch; runtime.Gosched() {
		for len(settled) > 0 && settled[0].stage.Load() != answered {
			settled = settled[1:]
		}
		if len(settled) == 0 || time.Since(begun) >= most {
			return
		}
	}
}

// turns is how often, at most, a lane lets others run before it takes a batch.
const turns = 3

// giveTurns lets others run before the next batch is taken, for as long as more commands come of it: many callers send their
// next one at once, and it would miss the batch by microseconds. That holds for the lane that has answered them, and for one
// that the first of them has woken. Where nobody wants to run, it takes no time.
func (e *Engine) giveTurns() {
	before := -1
	for range turns {
		waiting := e.queue.waiting()
		if waiting <= before || waiting >= e.options.MaxBatch {
			return
		}
		before = waiting
		runtime.Gosched()
	}
}

// finish gives a group's account back to the queue.
func (e *Engine) finish(g *group) {
	if g.poisoned != "" {
		e.quarantine(g.line.account, g.poisoned)
	}
	e.queue.done(g.line, g.again)
}

// waitFor decides a group whose account another transaction holds, in a transaction of its own, so that nobody else waits
// with it. Where too many are waited for already, it goes back to the queue and is tried again.
func (e *Engine) waitFor(ctx context.Context, g *group) {
	g.held = false
	select {
	case e.waiting <- struct{}{}:
		e.waiters.Go(func() {
			e.settle(ctx, []*group{g}, true)
			<-e.waiting
			e.finish(g)
		})
	default:
		e.pause(ctx, 5*time.Millisecond)
		g.again = append(g.commands, g.again...)
		e.finish(g)
	}
}

// settle decides the groups and answers every command, except those to be decided again and those of held groups. What is
// refused for its content is taken apart until the one command that is to blame stands alone.
func (e *Engine) settle(ctx context.Context, groups []*group, wait bool) {
	a := &attempt{engine: e, groups: groups, wait: wait}
	err := e.retry(ctx, a)
	switch {
	case err == nil:
	case len(groups) > 1:
		for _, g := range groups {
			if !g.held {
				e.settle(ctx, []*group{g}, wait)
			}
		}
	case len(groups[0].commands) > 1:
		g := groups[0]
		for i, p := range g.commands {
			alone := &group{line: g.line, commands: []*pending{p}}
			e.settle(ctx, []*group{alone}, true)
			if alone.poisoned != "" {
				g.poisoned = alone.poisoned
			}
			if len(alone.again) > 0 { // order is kept: what follows waits too
				g.again = append(alone.again, g.commands[i+1:]...)
				return
			}
		}
	default:
		for _, p := range groups[0].commands {
			e.log.Error("a command could not be saved", "operation", p.command.Do.Name(), "account", p.command.AccountID().String(), "error", err)
			p.reply(answer{err: &Error{Code: Internal, Hint: "this request could not be saved; nothing happened, and the operator was told", Err: err}})
		}
	}
}

// retry repeats an attempt while the store says that it may succeed, with growing pauses, for as long as RetryFor; then
// callers are told. It returns an error only where the content was rejected and must be taken apart.
func (e *Engine) retry(ctx context.Context, a *attempt) error {
	deadline := time.Now().Add(e.options.RetryFor)
	doubt := false
	for pause := 2 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		err := a.run(ctx)
		if err == nil {
			return nil
		}
		var panicked poisoned
		if errors.As(err, &panicked) {
			continue // the poison was taken out; the others are decided again at once
		}
		e.options.Observer.Retried(err)
		kind := store.KindOf(err)
		doubt = doubt || kind == store.InDoubt
		switch {
		case kind == store.Rejected && a.size() > 0:
			return err
		case kind == store.Fatal:
			e.fail(err)
			a.abandon(doubt, err)
			return nil
		case ctx.Err() != nil || time.Now().After(deadline):
			e.log.Error("the database could not be used", "kind", kind.String(), "commands", a.size(), "error", err)
			a.abandon(doubt, err)
			return nil
		}
		e.log.Debug("decided again", "kind", kind.String(), "error", err)
		e.pause(ctx, pause/2+rand.N(pause))
	}
}

// pause waits, or until ctx ends.
func (e *Engine) pause(ctx context.Context, length time.Duration) {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// attempt is one batch on its way through the store. Commands that are answered leave its groups.
type attempt struct {
	engine *Engine
	groups []*group
	wait   bool // for accounts that other transactions hold
}

func (a *attempt) size() (commands int) {
	for _, g := range a.groups {
		commands += len(g.commands)
	}
	return commands
}

// warnOfSkew tells, once a minute at most, that a clock was ahead of this one: the account's time stands still until then.
func (e *Engine) warnOfSkew(account *holdfast.Account, now time.Time) {
	ahead := account.DecidedAt.Sub(now)
	if ahead < holdfast.WarnSkew {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if time.Since(e.warnedAt) < time.Minute {
		return
	}
	e.warnedAt = time.Now()
	e.log.Warn("an account was last decided ahead of this clock: check the clocks of all servers", "account", account.ID.String(), "ahead", ahead)
}

// waited is how long the first of them waited to be taken.
func (a *attempt) waited(now time.Time) (longest time.Duration) {
	for _, g := range a.groups {
		for _, p := range g.commands {
			longest = max(longest, now.Sub(p.since))
		}
	}
	return longest
}

// abandon answers everything that is left: nothing happened, or nobody knows.
func (a *attempt) abandon(doubt bool, err error) {
	a.engine.gaveUp()
	failure := &Error{Code: Unavailable, Hint: "the database cannot be used now; nothing happened, try again shortly", Err: err}
	if doubt {
		failure = &Error{Code: OutcomeUnknown, Hint: "the database was lost while saving; repeat the request with the same key", Err: err}
	}
	for _, g := range a.groups {
		for _, p := range g.commands {
			p.reply(answer{err: failure})
		}
		g.commands = nil
	}
}

// poisoned is returned where a command broke the core: it was answered, and the batch must be decided again without it.
type poisoned struct{ cause string }

func (p poisoned) Error() string { return p.cause }

// decided is an account's share of an attempt after deciding.
type decided struct {
	group    *group
	outcomes []holdfast.Outcome
	again    []*pending // decided once more, after this attempt's changes
}

// run is the way of a batch: load, decide, save, answer. Nothing is answered before everything is saved.
func (a *attempt) run(ctx context.Context) error {
	e := a.engine
	a.refuseQuarantined()
	if a.size() == 0 {
		return nil
	}
	now := e.Now()
	tx, err := e.store.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Abort(context.WithoutCancel(ctx)) }() // after Save it does nothing
	begun := time.Now()
	batch := Batch{Commands: a.size(), Accounts: len(a.groups), Waited: a.waited(begun)}
	states, err := tx.Load(ctx, a.wants(now))
	if err != nil {
		return err
	}
	batch.Load = time.Since(begun)
	var results []decided
	var changes []holdfast.Changes
	for i, g := range a.groups {
		if states[i] == nil {
			g.held = true
			continue
		}
		if err := states[i].Check(); err != nil {
			e.quarantine(states[i].Account.ID, err.Error())
			continue
		}
		e.warnOfSkew(&states[i].Account, now)
		result, err := e.decide(g, states[i], now)
		if err != nil {
			return err
		}
		results = append(results, result)
		if change, any := states[i].Changes(); any {
			changes = append(changes, change)
		}
	}
	if len(changes) > 0 {
		saving := time.Now()
		if err := tx.Save(ctx, changes); err != nil {
			return err
		}
		batch.Save = time.Since(saving)
	}
	e.options.Observer.Saved(batch)
	for _, r := range results {
		for i, outcome := range r.outcomes {
			p := r.group.commands[i]
			if !outcome.Redirect.IsZero() {
				e.redirect(p, outcome.Redirect)
				continue
			}
			e.options.Observer.Decided(p.command.Do.Name(), outcome.Reason, outcome.Replayed)
			e.claims.tell(p.command.Project, &outcome, e.Now)
			p.reply(answer{outcome: outcome})
		}
		r.group.commands, r.group.again = nil, r.again
	}
	a.refuseQuarantined()
	return nil
}

// refuseQuarantined answers commands of accounts that are out of service.
func (a *attempt) refuseQuarantined() {
	var serving []*group
	for _, g := range a.groups {
		if g.held {
			continue // its commands wait for the account
		}
		if err := a.engine.refused(g.line.account); err != nil {
			for _, p := range g.commands {
				p.reply(answer{err: err})
			}
			g.commands = nil
		}
		if len(g.commands) > 0 {
			serving = append(serving, g)
		}
	}
	a.groups = serving
}

// wants names what the commands of each group must see.
func (a *attempt) wants(now time.Time) []store.Want {
	wants := make([]store.Want, len(a.groups))
	for i, g := range a.groups {
		want := store.Want{Account: g.line.account, Wait: a.wait}
		reservations, keys := map[holdfast.ID]bool{}, map[string]bool{}
		for _, p := range g.commands {
			c := &p.command
			if c.Account != "" {
				want.Project, want.Name = c.Project, c.Account
			}
			want.Create = want.Create || holdfast.OpensAccount(c.Do)
			if id := holdfast.ReservationOf(c.Do); !id.IsZero() && !reservations[id] {
				reservations[id] = true
				want.Reservations = append(want.Reservations, id)
			}
			if c.Key != "" && !keys[c.Key] {
				keys[c.Key] = true
				want.Keys = append(want.Keys, c.Key)
			}
			if id := holdfast.PaymentOf(c.Do, g.line.account); !id.IsZero() {
				want.Payments = append(want.Payments, id)
			}
			if by := holdfast.LoadsOverdue(c.Do, now); by.After(want.OverdueAt) {
				want.OverdueAt = by
			}
		}
		wants[i] = want
	}
	return wants
}

// decide applies a group's commands to the account's state, one after the other: each sees what the ones before it did.
func (e *Engine) decide(g *group, state *holdfast.State, now time.Time) (decided, error) {
	passZones(state)
	result := decided{group: g}
	for i, p := range g.commands {
		outcome, err := e.decideOne(state, p.command, now)
		if err != nil {
			e.poison(g, i, err)
			return result, err
		}
		if outcome.Again {
			result.again = g.commands[i:]
			break
		}
		result.outcomes = append(result.outcomes, outcome)
	}
	if err := state.Check(); err != nil {
		cause := fmt.Sprintf("a decision broke a rule: %v", err)
		if len(g.commands) > 1 {
			return result, &store.Error{Kind: store.Rejected, Op: "decide", Err: errors.New(cause)} // taken apart, to find the one
		}
		err := poisoned{cause}
		e.poison(g, 0, err)
		return result, err
	}
	return result, nil
}

// decideOne calls the core. A panic there becomes an error, and the state is not to be used any more.
func (e *Engine) decideOne(state *holdfast.State, command holdfast.Command, now time.Time) (outcome holdfast.Outcome, err error) {
	defer func() {
		if broken := recover(); broken != nil {
			e.log.Error("a decision panicked", "operation", command.Do.Name(), "panic", broken, "stack", string(debug.Stack()))
			err = poisoned{fmt.Sprint(broken)}
		}
	}()
	if _, sweep := command.Do.(holdfast.Expire); sweep {
		command.Project = state.Account.Project // the sweeper serves every project
	}
	catalog := e.Catalog(command.Project)
	outcome = holdfast.Decide(catalog, state, command, now)
	if holdfast.IsDryRun(command.Do) && outcome.Again {
		// A question changes nothing, so the sweeper's work is done for it by a command of its own.
		holdfast.Decide(catalog, state, holdfast.Command{
			ID: NewID(), Project: command.Project, Target: command.AccountID(), Actor: Sweeper, Do: holdfast.Expire{},
		}, now)
	}
	if _, commit := command.Do.(holdfast.Commit); commit && outcome.Reason == holdfast.NotFound {
		e.log.Warn("a commit named a reservation that nobody knows; nothing was charged", "account", command.AccountID().String())
	}
	return outcome, nil
}

// poison answers the command that broke the core, takes it out of its group, and lets the account's other commands of this
// batch be decided before the account goes out of service.
func (e *Engine) poison(g *group, i int, err error) {
	culprit := g.commands[i]
	rest := make([]*pending, 0, len(g.commands)-1)
	g.commands = append(append(rest, g.commands[:i]...), g.commands[i+1:]...)
	g.poisoned = err.Error()
	culprit.reply(answer{err: &Error{Code: Internal, Hint: "this request broke a rule of ours; nothing happened, and the operator was told", Err: err}})
}
