package engine

import (
	"context"
	"errors"
	"time"

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

// Merge lets one account take another one in, and returns how it is afterwards. Both are called by any of their names. It
// may be repeated: whatever has arrived already is not sent again. An outcome with a reason says why not.
func (e *Engine) Merge(ctx context.Context, project, into, from, actor string) (holdfast.Outcome, error) {
	target, err := e.Resolve(ctx, project, holdfast.AccountIDOf(project, into))
	if err != nil {
		return holdfast.Outcome{}, err
	}
	if view, err := e.ViewOf(ctx, project, target); err != nil || view == nil {
		return holdfast.Outcome{Reason: holdfast.NotFound}, err
	}
	source := holdfast.AccountIDOf(project, from)
	merged, err := e.Submit(ctx, holdfast.Command{Project: project, Account: from, Actor: actor, Do: holdfast.MergeInto{Into: target}})
	if err != nil || merged.Refused() {
		return merged, err
	}
	if err := e.sendTransfers(ctx, project, source, actor); err != nil {
		return merged, err
	}
	view, err := e.ViewOf(ctx, project, target)
	merged.Account = view
	return merged, err
}

// Alias makes a name lead to an account, which is called by any of its names and must exist.
func (e *Engine) Alias(ctx context.Context, project, account, alias, actor string) (holdfast.Outcome, error) {
	target, err := e.Resolve(ctx, project, holdfast.AccountIDOf(project, account))
	if err != nil {
		return holdfast.Outcome{}, err
	}
	view, err := e.ViewOf(ctx, project, target)
	if err != nil || view == nil {
		return holdfast.Outcome{Reason: holdfast.NotFound}, err
	}
	linked, err := e.Submit(ctx, holdfast.Command{Project: project, Account: alias, Actor: actor, Do: holdfast.LinkAlias{Into: target}})
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

// mover lets transfers arrive that nobody is waiting for: what live reservations of a merged account returned, and what a
// crash left under way.
func (e *Engine) mover(ctx context.Context) {
	ticker := time.NewTicker(e.options.SweepEvery)
	defer ticker.Stop()
	for {
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

// Move lets everything arrive that is on its way from accounts that were merged.
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
