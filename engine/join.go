package engine

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Joined decides commands inside a transaction that belongs to the caller.
type Joined struct {
	engine *Engine
	tx     store.Tx
}

// Join decides one command inside the caller's own database transaction, so that it happens together with the caller's
// rows or not at all: eng.Join(postgres.Tx(tx)).Submit(…).
//
// The answer is provisional until the caller commits. Nothing is retried inside: any error means that the transaction is
// to be rolled back and begun anew. Take it last and commit at once: the account is locked until then, and everybody who
// wants it waits. Serve need not run.
func (e *Engine) Join(tx store.Tx) *Joined { return &Joined{e, tx} }

// Submit is Engine.Submit within the joined transaction. One transaction takes one command.
func (j *Joined) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	e := j.engine
	if found := prepare(&command); len(found) > 0 {
		return holdfast.Outcome{Reason: holdfast.Invalid, Problems: found}, nil
	}
	account, err := e.settles(ctx, command) // a transaction loads one account
	if err != nil {
		return holdfast.Outcome{}, rolledBack(err)
	}
	if account != command.AccountID() {
		command.Account, command.Target = "", account
	}
	if err := e.refused(account); err != nil {
		return holdfast.Outcome{}, err
	}
	saved := false
	defer func() {
		if !saved { // what was only read or locked leaves no trace in the caller's transaction
			_ = j.tx.Abort(context.WithoutCancel(ctx))
		}
	}()
	now := e.Now()
	states, err := j.tx.Load(ctx, e.wantsAlone(command, now))
	if err != nil {
		return holdfast.Outcome{}, rolledBack(err)
	}
	if err := states[0].Check(); err != nil {
		e.quarantine(account, err.Error())
		return holdfast.Outcome{}, outOfService()
	}
	passZones(states[0])
	outcome, err := e.decideOne(states[0], command, now)
	if err == nil && !outcome.Redirect.IsZero() {
		return holdfast.Outcome{}, &Error{Code: Unavailable, Hint: "the account was merged a moment ago; roll back and begin anew"}
	}
	if err == nil && outcome.Again { // a transaction loads once
		return holdfast.Outcome{}, &Error{Code: Unavailable, Hint: "too much of this account is overdue to be expired inside your transaction; roll back and try again shortly"}
	}
	if err == nil {
		err = states[0].Check()
	}
	if err != nil {
		e.quarantine(account, err.Error())
		return holdfast.Outcome{}, &Error{Code: Internal, Hint: "this request broke a rule of ours; roll back, the operator was told", Err: err}
	}
	if changes, any := states[0].Changes(); any {
		if err := j.tx.Save(ctx, []holdfast.Changes{changes}); err != nil {
			return holdfast.Outcome{}, rolledBack(err)
		}
		saved = true
	}
	return outcome, nil
}

// settles is the account that decides a command: of those that the name leads to, one after the other, the first that does
// not send it on. Each has answered keys and taken payments while it was the last.
func (e *Engine) settles(ctx context.Context, command holdfast.Command) (holdfast.AccountID, error) {
	led, err := e.trail(ctx, command.Project, command.AccountID())
	if err != nil {
		return holdfast.AccountID{}, err
	}
	last := len(led) - 1
	for _, account := range led[:last] {
		command.Account, command.Target = "", account
		now := e.Now()
		state, err := e.loadOnly(ctx, e.wantsAlone(command, now)[0])
		if err != nil {
			return account, err
		}
		passZones(state)
		if outcome, err := e.decideOne(state, command, now); err != nil || outcome.Redirect.IsZero() {
			return account, nil
		}
	}
	return led[last], nil
}

// wantsAlone names what a command must see that is decided alone, and is waited for.
func (e *Engine) wantsAlone(command holdfast.Command, now time.Time) []store.Want {
	g := &group{line: &line{account: command.AccountID()}, commands: []*pending{{command: command}}}
	return (&attempt{engine: e, groups: []*group{g}, wait: true}).wants(now)
}

func rolledBack(err error) *Error {
	return &Error{Code: Unavailable, Hint: "roll your transaction back and begin it anew", Err: err}
}
