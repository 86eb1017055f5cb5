package engine

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// redirect has a command decided for the account that took the other one's place.
func (e *Engine) redirect(p *pending, to holdfast.AccountID) {
	if p.redirected++; p.redirected > holdfast.MaxNames {
		p.reply(answer{err: &Error{Code: Internal, Hint: "this name leads from account to account without end", Err: errors.New("a circle of merged accounts")}})
		return
	}
	p.command.Account, p.command.Target = "", to
	if err := e.queue.push(p); err != nil {
		p.reply(answer{err: err})
	}
}

// Names are two names of a project's accounts, and who asks for what is done with them.
type Names struct {
	Project string
	Account string // any name of an account that exists
	Other   string // of Alias: the name that is to lead there; of Merge: any name of the account that it takes in
	Actor   string
	// Key is the sender's promise, as that of a command; empty: none is needed, since both calls may be repeated.
	Key          string
	RetryRefused bool
}

func (n Names) command(do holdfast.Operation) holdfast.Command {
	return holdfast.Command{Project: n.Project, Account: n.Other, Actor: n.Actor, Key: n.Key, RetryRefused: n.RetryRefused, Do: do}
}

// target is the account that is named, and how it is. The outcome says why nothing can lead to it.
func (e *Engine) target(ctx context.Context, n Names) (target holdfast.AccountID, view *holdfast.AccountView, no holdfast.Outcome, err error) {
	if target, err = e.Resolve(ctx, n.Project, holdfast.AccountIDOf(n.Project, n.Account)); err == nil {
		view, err = e.ViewOf(ctx, n.Project, target)
	}
	switch {
	case err != nil:
	case view == nil:
		no.Reason = holdfast.NotFound
	case !view.Account.DeletedAt.IsZero():
		no = holdfast.Outcome{Reason: holdfast.AccountBlocked, Refusal: &holdfast.Refusal{MaxActive: view.MaxActive, Plan: view.Plan}}
	}
	return target, view, no, err
}

// Merge lets one account take another one in, and returns how it is afterwards. It may be repeated: whatever has arrived
// already is not sent again. An outcome with a reason says why not. After an error, repeat it: a part may have been done.
func (e *Engine) Merge(ctx context.Context, n Names) (holdfast.Outcome, error) {
	select { // one at a time: two accounts that are merged into each other at once would lead nowhere
	case e.merging <- struct{}{}:
		defer func() { <-e.merging }()
	case <-ctx.Done():
		return holdfast.Outcome{}, left(ctx.Err())
	}
	target, _, no, err := e.target(ctx, n)
	if err != nil || no.Refused() {
		return no, err
	}
	command := n.command(holdfast.MergeInto{Into: target, Named: holdfast.AccountIDOf(n.Project, n.Account)})
	source := command.AccountID()
	merged, err := e.Submit(ctx, command)
	if err == nil && merged.Reason == holdfast.Invalid && source != target {
		// It leads to another account: to the target by now, or to the one that is meant.
		var led holdfast.AccountID
		if led, err = e.Resolve(ctx, n.Project, source); err == nil && led == target {
			merged = holdfast.Outcome{}
		} else if err == nil && led != source {
			source, command.Account, command.Target = led, "", led
			merged, err = e.Submit(ctx, command)
		}
	}
	if err != nil || merged.Refused() {
		return merged, err
	}
	if err := e.sendTransfers(ctx, n.Project, source, n.Actor); err != nil {
		return merged, unfinished(err)
	}
	if merged.Account, err = e.ViewOf(ctx, n.Project, target); err != nil {
		return merged, unfinished(err)
	}
	return merged, nil
}

// unfinished is the error of a merge that was done in part. The mover does the rest, and so does repeating it.
func unfinished(err error) *Error {
	return &Error{Code: OutcomeUnknown, Hint: "what the account had is on its way; repeat the request with the same key", Err: err}
}

// Alias makes a name lead to an account, and returns how that one is. Changed is false where it leads there already.
func (e *Engine) Alias(ctx context.Context, n Names) (holdfast.Outcome, error) {
	target, view, no, err := e.target(ctx, n)
	if err != nil || no.Refused() {
		return no, err
	}
	command := n.command(holdfast.LinkAlias{Into: target, Named: holdfast.AccountIDOf(n.Project, n.Account)})
	linked, err := e.Submit(ctx, command)
	if err == nil && linked.Reason == holdfast.AccountExists {
		// The account that it was made to lead to may have been merged into this one.
		led, failed := e.Resolve(ctx, n.Project, command.AccountID())
		if err = failed; err == nil && led == target {
			linked = holdfast.Outcome{}
		}
	}
	linked.Account = view
	return linked, err
}

// sendTransfers lets everything that is on its way from an account arrive: each is taken over under its own key, and then
// forgotten where it came from. A crash in between is mended by the next pass.
func (e *Engine) sendTransfers(ctx context.Context, project string, from holdfast.AccountID, actor string) error {
	state, err := e.state(ctx, project, from)
	if err != nil || state == nil {
		return err
	}
	for _, transfer := range state.Account.Transfers {
		arrived, err := e.Submit(ctx, holdfast.Command{
			Project: project, Target: state.Account.MergedInto, Key: holdfast.TransferKey(from, transfer.ID), Actor: actor,
			Do: holdfast.TakeOver{From: from, Transfer: transfer},
		})
		if err != nil {
			return err
		}
		if arrived.Refused() {
			return &Error{Code: Internal, Hint: "what was merged could not be taken over; the operator was told", Err: errors.New(string(arrived.Reason))}
		}
		if _, err := e.Submit(ctx, holdfast.Command{
			Project: project, Target: from, Actor: actor, Do: holdfast.TransferDone{ID: transfer.ID},
		}); err != nil {
			return err
		}
	}
	return nil
}

// Mover is the actor that the ledger names where what an account returned follows it to the account that took its place.
const Mover = "merge"

// Move lets everything arrive that is on its way from accounts that were merged and that nobody is waiting for: what live
// reservations of such an account returned, and what a crash left under way.
func (e *Engine) Move(ctx context.Context) error {
	due := store.Due{At: e.Now(), Limit: holdfast.MaxScan, Transfers: true}
	for {
		accounts, err := e.store.Scan(ctx, due)
		if err != nil {
			if store.KindOf(err) == store.Fatal {
				e.fail(err)
			}
			return err
		}
		for _, account := range accounts {
			project, err := e.projectOf(ctx, account)
			if err == nil {
				err = e.sendTransfers(ctx, project, account, Mover)
			}
			if err != nil {
				return err
			}
		}
		if len(accounts) < due.Limit {
			return nil
		}
		due.After = accounts[len(accounts)-1]
	}
}

func (e *Engine) projectOf(ctx context.Context, account holdfast.AccountID) (string, error) {
	state, err := e.loadOnly(ctx, store.Want{Account: account, Wait: true})
	if err != nil {
		return "", err
	}
	return state.Account.Project, nil
}
