package engine

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// redirect has a command decided for the account that took the other one's place: one after the other, since each may have
// answered it while it was the last.
func (e *Engine) redirect(p *pending, to holdfast.AccountID) {
	if p.led = append(p.led, p.command.AccountID()); slices.Contains(p.led, to) {
		p.reply(answer{err: endless()})
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

// Pauses of a merge that met another one, in a circle with it: they grow, so that of several one is through before the
// others come back. Who has waited for so long insists: what is in the way may have been left behind by a crash.
const (
	firstMergePause   = 2 * time.Millisecond
	insistentAfter    = 250 * time.Millisecond
	longestMergePause = time.Second
	maxCirclesInAWay  = 64 // found one after the other, while others go on to announce
)

// Merge lets one account take another one in, and returns how it is afterwards. It may be repeated: whatever has arrived
// already is not sent again. An outcome with a reason says why not. After an error, repeat it: a part may have been done.
//
// Merges that would close a circle, on whatever servers at once, end with all of their accounts being one: whoever is
// beaten is told so by what is true then.
func (e *Engine) Merge(ctx context.Context, n Names) (holdfast.Outcome, error) {
	for pause := firstMergePause; ; pause *= 2 {
		merged, beaten, err := e.mergeOnce(ctx, n, pause >= insistentAfter)
		switch {
		case !beaten:
			return merged, err
		case pause >= longestMergePause:
			return holdfast.Outcome{}, &Error{Code: Unavailable, Hint: "these accounts are being merged the other way at the same time; try again shortly"}
		}
		e.pause(ctx, pause/2+rand.N(pause))
		if ctx.Err() != nil {
			return holdfast.Outcome{}, left(ctx.Err())
		}
	}
}

// mergeOnce merges, or is beaten by a merge that is under way.
func (e *Engine) mergeOnce(ctx context.Context, n Names, insist bool) (merged holdfast.Outcome, beaten bool, err error) {
	target, _, no, err := e.target(ctx, n)
	if err != nil || no.Refused() {
		return no, false, err
	}
	op := holdfast.MergeInto{Into: target, Named: holdfast.AccountIDOf(n.Project, n.Account)}
	command := n.command(op)
	if found := command.Check(); len(found) > 0 {
		return holdfast.Outcome{Reason: holdfast.Invalid, Problems: found}, false, nil
	}
	source := command.AccountID()
	merged, decided, err := e.announced(ctx, n, command, op, insist)
	if decided && merged.Reason == holdfast.Invalid && source != target {
		// It leads to another account: to the target by now, or to the one that is meant. Or it was beaten.
		var led holdfast.AccountID
		if led, err = e.Resolve(ctx, n.Project, source); err == nil && led == target {
			merged = holdfast.Outcome{}
		} else if err == nil {
			beaten = led == source
			if !beaten {
				source, command.Account, command.Target = led, "", led
				merged, decided, err = e.announced(ctx, n, command, op, insist)
				beaten = decided && merged.Reason == holdfast.Invalid
			}
			if beaten {
				return merged, true, nil
			}
		}
	}
	if err != nil || merged.Refused() {
		return merged, false, err
	}
	if err := e.sendTransfers(ctx, n.Project, source, n.Actor); err != nil {
		return merged, false, unfinished(err)
	}
	if merged.Account, err = e.linkedTo(ctx, n, target, source); err != nil {
		return merged, false, unfinished(err)
	}
	return merged, false, nil
}

// announced announces a merge, makes sure that it closes no circle, and has it decided, unless something before that was
// refused or failed. What is beaten is invalid.
func (e *Engine) announced(ctx context.Context, n Names, command holdfast.Command, op holdfast.MergeInto, insist bool) (merged holdfast.Outcome, decided bool, err error) {
	source := command.AccountID()
	said, err := e.Submit(ctx, holdfast.Command{
		Project: command.Project, Account: command.Account, Target: command.Target, Actor: command.Actor, Do: holdfast.AnnounceMerge{Into: op.Into},
	})
	if err != nil || said.Refused() {
		return said, false, err
	}
	var line int
	if op.Announced, line, err = e.clearWay(ctx, command.Project, command.Actor, source, op.Into, insist); err != nil {
		return holdfast.Outcome{}, false, err
	}
	if !op.Announced.IsZero() {
		merged, err = e.register(ctx, n, op.Into, source, line)
	}
	if command.Do = op; err == nil && !merged.Refused() {
		merged, err = e.Submit(ctx, command)
		decided = err == nil
	}
	if err == nil && merged.Refused() && !op.Announced.IsZero() {
		err = e.withdraw(ctx, command.Project, command.Actor, step{from: source, announced: op.Announced})
	}
	return merged, decided, err
}

// clearWay returns the announcement of a merge that closes no circle, looked at after it was announced: what is announced
// later finds this one. With it comes how many accounts in a row lead to the one that is taken in. In a circle the
// announcement of the account with the lowest id is taken back, or, where the caller insists, another one. Zero: it is the
// caller's own, or there is none.
func (e *Engine) clearWay(ctx context.Context, project, actor string, source, into holdfast.AccountID, insist bool) (own holdfast.ID, line int, err error) {
	for range maxCirclesInAWay {
		way, circle, err := e.way(ctx, project, source)
		if err != nil {
			return own, 0, err
		}
		if way[0].to != into || way[0].announced.IsZero() {
			return own, 0, nil // another one took its place, or it is done
		}
		if len(circle) == 0 {
			return way[0].announced, way[0].line, nil
		}
		var back *step
		for i := range circle {
			s := &circle[i]
			preferred := back == nil || bytes.Compare(s.from[:], back.from[:]) < 0
			if insist && back != nil && (s.from == source) != (back.from == source) {
				preferred = back.from == source
			}
			if !s.announced.IsZero() && preferred {
				back = s
			}
		}
		if back == nil {
			return own, 0, endless()
		}
		if err := e.withdraw(ctx, project, actor, *back); err != nil || back.from == source {
			return own, 0, err
		}
	}
	return own, 0, endless()
}

func (e *Engine) withdraw(ctx context.Context, project, actor string, s step) error {
	_, err := e.Submit(ctx, holdfast.Command{Project: project, Target: s.from, Actor: actor, Do: holdfast.WithdrawMerge{ID: s.announced}})
	return err
}

// step leads from one account to the next: by a merge, or, where announced is not zero, by the announcement of one.
type step struct {
	from, to  holdfast.AccountID
	announced holdfast.ID
	line      int // of from
}

// way is where an account leads to, and will. Its last step leads nowhere, or, where there is a circle, back to the
// circle's first: so it ends, however far it leads.
func (e *Engine) way(ctx context.Context, project string, from holdfast.AccountID) (way, circle []step, err error) {
	for {
		state, err := e.state(ctx, project, from)
		if err != nil {
			return nil, nil, err
		}
		s := step{from: from}
		if state != nil {
			s.to, s.line = state.Account.MergedInto, state.Account.Line
			if s.to.IsZero() {
				s.to, s.announced = state.Account.Merging.Into, state.Account.Merging.ID
			}
		}
		way = append(way, s)
		if s.to.IsZero() {
			return way, nil, nil
		}
		if i := slices.IndexFunc(way, func(before step) bool { return before.from == s.to }); i >= 0 {
			return way, way[i:], nil
		}
		from = s.to
	}
}

func endless() *Error {
	return &Error{Code: Internal, Hint: "this name leads from account to account without end; the operator was told", Err: errors.New("a circle of merged accounts")}
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
	alias := command.AccountID()
	known, err := e.state(ctx, n.Project, alias)
	if err != nil {
		return holdfast.Outcome{}, err
	}
	if known == nil && alias != target && len(command.Check()) == 0 {
		if noted, err := e.register(ctx, n, target, alias, 0); err != nil || noted.Refused() {
			return noted, err
		}
	}
	linked, err := e.Submit(ctx, command)
	if err == nil && linked.Reason == holdfast.AccountExists {
		// The account that it was made to lead to may have been merged into this one.
		led, failed := e.Resolve(ctx, n.Project, alias)
		if err = failed; err == nil && led == target {
			linked = holdfast.Outcome{}
		}
	}
	linked.Account = view
	if err == nil && !linked.Refused() && known == nil {
		linked.Account, err = e.linkedTo(ctx, n, target, alias)
	}
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
		switch {
		case len(transfer.Forget) > 0:
			err = e.forget(ctx, project, from, transfer)
		case len(transfer.Stop) > 0:
			err = e.stopWork(ctx, project, from, transfer)
		default:
			err = e.takeOver(ctx, &state.Account, transfer, actor)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// takeOver lets a transfer arrive.
func (e *Engine) takeOver(ctx context.Context, from *holdfast.Account, transfer holdfast.Transfer, actor string) error {
	arrived, err := e.Submit(ctx, holdfast.Command{
		Project: from.Project, Target: from.MergedInto, Key: holdfast.TransferKey(from.ID, transfer.ID), Actor: actor,
		Do: holdfast.TakeOver{From: from.ID, Transfer: transfer},
	})
	if err != nil {
		return err
	}
	if arrived.Refused() {
		return &Error{Code: Internal, Hint: "what was merged could not be taken over; the operator was told", Err: errors.New(string(arrived.Reason))}
	}
	return e.transferDone(ctx, from.Project, from.ID, transfer, actor)
}

func (e *Engine) transferDone(ctx context.Context, project string, from holdfast.AccountID, transfer holdfast.Transfer, actor string) error {
	_, err := e.Submit(ctx, holdfast.Command{Project: project, Target: from, Actor: actor, Do: holdfast.TransferDone{ID: transfer.ID}})
	return err
}

// forget tells the names that led to a deleted account. They tell those that led to them in the next pass.
func (e *Engine) forget(ctx context.Context, project string, deleted holdfast.AccountID, word holdfast.Transfer) error {
	for _, name := range word.Forget {
		if err := e.forgetName(ctx, project, deleted, name, Sweeper); err != nil {
			return err
		}
	}
	return e.transferDone(ctx, project, deleted, word, Sweeper)
}

// stopWork asks what took from refunded grants to stop, a page at a time, until a whole pass finds nothing to ask: a job that
// was given back meanwhile may have stood behind the page.
func (e *Engine) stopWork(ctx context.Context, project string, account holdfast.AccountID, refunded holdfast.Transfer) error {
	for again := true; again; {
		again = false
		for _, state := range []holdfast.ReservationState{holdfast.Reserved, holdfast.Running} {
			for page, err := range e.pages(ctx, store.Query{Kind: store.QueryReservations, Project: project, Account: account, State: state}) {
				if err != nil {
					return err
				}
				var commands []holdfast.Command
				for _, r := range page.Reservations {
					if r.TookFrom(refunded.Stop) {
						do := holdfast.StopWork{ReservationID: r.ID, Grants: refunded.Stop}
						commands = append(commands, holdfast.Command{Project: project, Target: account, Actor: Sweeper, Do: do})
					}
				}
				for _, result := range e.SubmitAll(ctx, commands) {
					if result.Err != nil {
						return result.Err
					}
					again = again || result.Outcome.Changed
				}
			}
		}
	}
	return e.transferDone(ctx, project, account, refunded, Sweeper)
}

func (e *Engine) forgetName(ctx context.Context, project string, deleted, name holdfast.AccountID, actor string) error {
	_, err := e.Submit(ctx, holdfast.Command{Project: project, Target: name, Actor: actor, Do: holdfast.ForgetName{Into: deleted}})
	return err
}

// register notes that a name is about to lead to an account, and how many lead to that name in a row.
func (e *Engine) register(ctx context.Context, n Names, target, name holdfast.AccountID, line int) (holdfast.Outcome, error) {
	return e.Submit(ctx, holdfast.Command{Project: n.Project, Target: target, Actor: n.Actor, Do: holdfast.RegisterName{Named: name, Line: line}})
}

// linkedTo is the account that a name was just made to lead to. Where it was deleted in the same moment, the name has missed
// being told.
func (e *Engine) linkedTo(ctx context.Context, n Names, target, name holdfast.AccountID) (*holdfast.AccountView, error) {
	view, err := e.ViewOf(ctx, n.Project, target)
	if err != nil || view == nil || view.Account.DeletedAt.IsZero() {
		return view, err
	}
	return view, e.forgetName(ctx, n.Project, target, name, n.Actor)
}

// Mover is the actor that the ledger names where what an account returned follows it to the account that took its place.
const Mover = "merge"

// Move lets everything arrive that is on its way from accounts that were merged and that nobody is waiting for: what live
// reservations of such an account returned, and what a crash left under way. It stops where something cannot arrive, and goes
// on behind it the next time, so that one account holds up nobody else.
func (e *Engine) Move(ctx context.Context) error {
	e.mu.Lock()
	due := store.Due{At: e.Now(), After: e.stuckAt, Limit: holdfast.MaxScan, Transfers: true}
	e.stuckAt = holdfast.AccountID{}
	e.mu.Unlock()
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
				e.mu.Lock()
				e.stuckAt = account
				e.mu.Unlock()
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
