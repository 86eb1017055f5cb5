package engine

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// readAgain bounds how often a read of several pages is begun anew because the account was written to meanwhile.
const readAgain = 8

// ViewOf shows an account, named by its id, as it is now. It returns nil where the project has no such account.
func (e *Engine) ViewOf(ctx context.Context, project string, account holdfast.AccountID) (*holdfast.AccountView, error) {
	state, err := e.state(ctx, project, account)
	if err != nil || state == nil {
		return nil, err
	}
	return holdfast.View(e.Catalog(project), state, e.Now()), nil
}

// ViewAt shows an account as it was believed to be at an earlier moment, by the catalog of now; the zero time means now.
// It reads all grants of the account, and its history back to that moment.
func (e *Engine) ViewAt(ctx context.Context, project, account string, at time.Time) (*holdfast.AccountView, error) {
	id, err := e.Resolve(ctx, project, holdfast.AccountIDOf(project, account))
	if err != nil {
		return nil, err
	}
	if at.IsZero() {
		state, err := e.state(ctx, project, id)
		if err != nil {
			return nil, err
		}
		if state == nil {
			state = holdfast.NewState(project, account)
		}
		return holdfast.View(e.Catalog(project), state, e.Now()), nil
	}
	past, err := e.rewind(ctx, project, account, id, at)
	if err != nil {
		return nil, err
	}
	return holdfast.View(e.Catalog(project), past, at), nil
}

// Explain says step by step why a reserve would be granted or refused now. The command must be a Reserve. What is wrong
// with it comes back as problems. Nothing is written, except that reservations whose time is over may be expired.
func (e *Engine) Explain(ctx context.Context, command holdfast.Command) (*holdfast.Explanation, []holdfast.Problem, error) {
	reserve := command.Do.(holdfast.Reserve)
	reserve.DryRun = true
	command.Do, command.ID = reserve, NewID()
	if found := command.Check(); len(found) > 0 {
		return nil, found, nil
	}
	id, err := e.Resolve(ctx, command.Project, command.AccountID())
	if err != nil {
		return nil, nil, err
	}
	if id != command.AccountID() {
		command.Account, command.Target = "", id
	}
	for range readAgain {
		now := e.Now()
		state, err := e.loadOnly(ctx, store.Want{
			Account: command.AccountID(), Project: command.Project, Name: command.Account, Wait: true, OverdueAt: now,
		})
		if err != nil {
			return nil, nil, err
		}
		if !state.MoreOverdue {
			passZones(state)
			x, found := holdfast.Explain(e.Catalog(command.Project), state, command, now)
			return x, found, nil
		}
		// A question changes nothing, so the sweeper's work is done first.
		if _, err := e.Submit(ctx, holdfast.Command{Project: command.Project, Target: command.AccountID(), Actor: Sweeper, Do: holdfast.Expire{}}); err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, &Error{Code: Overloaded, Hint: "too much of this account is overdue; try again shortly"}
}

// loadOnly reads what a decision about the account would see, and leaves no trace.
func (e *Engine) loadOnly(ctx context.Context, want store.Want) (*holdfast.State, error) {
	if err := e.refused(want.Account); err != nil {
		return nil, err
	}
	unreadable := func(err error) error {
		if store.KindOf(err) == store.Fatal {
			e.fail(err)
		}
		return &Error{Code: Unavailable, Hint: "the database cannot be read now; try again shortly", Err: err}
	}
	tx, err := e.store.Begin(ctx)
	if err != nil {
		return nil, unreadable(err)
	}
	defer func() { _ = tx.Abort(context.WithoutCancel(ctx)) }()
	states, err := tx.Load(ctx, []store.Want{want})
	switch {
	case err != nil:
		return nil, unreadable(err)
	case states[0] == nil:
		return nil, unreadable(errors.New("the account is held"))
	case states[0].Check() != nil:
		return nil, outOfService()
	}
	return states[0], nil
}

// state reads the account and its open grants in one snapshot; nil: it is not stored.
func (e *Engine) state(ctx context.Context, project string, account holdfast.AccountID) (*holdfast.State, error) {
	page, err := e.Read(ctx, store.Query{Kind: store.QueryState, Project: project, Account: account, Limit: 1})
	if err != nil || page.State == nil {
		return nil, err
	}
	passZones(page.State)
	return page.State, nil
}

// rewind reads the account, all its grants and its history, and goes back to the moment.
//
// They come in several snapshots. What counts is the first one, of the account and its open grants; then grants are read,
// and then entries, so that whatever changed meanwhile is told by an entry that is younger than the first snapshot. Such
// entries are skipped; where one touches a grant that the first snapshot does not hold, reading begins anew.
func (e *Engine) rewind(ctx context.Context, project, account string, id holdfast.AccountID, at time.Time) (*holdfast.State, error) {
	for range readAgain {
		state, err := e.state(ctx, project, id)
		if err != nil {
			return nil, err
		}
		if state == nil {
			state = holdfast.NewState(project, account)
		}
		open := map[holdfast.ID]bool{}
		for _, g := range state.Grants {
			open[g.ID] = true
		}
		for page, err := range e.pages(ctx, store.Query{Kind: store.QueryGrants, Project: project, Account: id}) {
			if err != nil {
				return nil, err
			}
			for _, g := range page.Grants {
				if !open[g.ID] {
					state.Grants = append(state.Grants, g)
				}
			}
		}
		moved := false
		past, err := holdfast.Rewind(state, e.history(ctx, project, id, func(younger *holdfast.Entry) bool {
			if younger.No <= state.Account.LastEntry {
				return false
			}
			for _, delta := range younger.Deltas {
				moved = moved || !open[delta.Grant]
			}
			return true
		}), at)
		if err != nil {
			return nil, err
		}
		if !moved {
			return past, nil
		}
	}
	return nil, &Error{Code: Overloaded, Hint: "this account changes faster than it can be read; try again shortly"}
}

// history is the account's entries, newest first, without those to be skipped. Errors are *Error.
func (e *Engine) history(ctx context.Context, project string, account holdfast.AccountID, skip func(*holdfast.Entry) bool) iter.Seq2[holdfast.Entry, error] {
	return func(yield func(holdfast.Entry, error) bool) {
		for page, err := range e.pages(ctx, store.Query{Kind: store.QueryEntries, Project: project, Account: account}) {
			if err != nil {
				yield(holdfast.Entry{}, err)
				return
			}
			for i := range page.Entries {
				if !skip(&page.Entries[i]) && !yield(page.Entries[i], nil) {
					return
				}
			}
		}
	}
}

// pages reads a list to its end, or until nobody asks for more.
func (e *Engine) pages(ctx context.Context, query store.Query) iter.Seq2[store.Page, error] {
	query.Limit = holdfast.MaxPage
	return func(yield func(store.Page, error) bool) {
		for {
			page, err := e.Read(ctx, query)
			if !yield(page, err) || err != nil || page.Next == "" {
				return
			}
			query.Cursor = page.Next
		}
	}
}

// Resolve is the account that a name, or another name of it, means: it follows what it was merged into.
func (e *Engine) Resolve(ctx context.Context, project string, account holdfast.AccountID) (holdfast.AccountID, error) {
	led, err := e.trail(ctx, project, account)
	if err != nil {
		return account, err
	}
	return led[len(led)-1], nil
}

// trail is the account, and the accounts that have taken its place, one after the other. However many they are, it comes to
// the last: a name that stopped on the way would shut out whoever has it.
func (e *Engine) trail(ctx context.Context, project string, account holdfast.AccountID) (led []holdfast.AccountID, err error) {
	for !slices.Contains(led, account) {
		led = append(led, account)
		state, err := e.state(ctx, project, account)
		if err != nil || state == nil || state.Account.MergedInto.IsZero() {
			return led, err
		}
		account = state.Account.MergedInto
	}
	return nil, endless()
}

// Owned is a reservation, and the account that its id belongs to.
type Owned struct {
	Account     holdfast.AccountID
	Reservation *holdfast.Reservation
}

// Reservations reads one page of the reservations of an account and of all that have taken its place, newest first: whoever
// asks by an old name is shown what was made by it before the merge and after. The cursor is one of the account that is
// asked for. Errors are *Error.
func (e *Engine) Reservations(ctx context.Context, query store.Query) (list []Owned, next string, err error) {
	query.Kind = store.QueryReservations
	led, err := e.trail(ctx, query.Project, query.Account)
	if err != nil {
		return nil, "", err
	}
	behind, err := query.Position()
	if err != nil {
		return nil, "", unread(err)
	}
	more := false
	for _, account := range led {
		part := query
		part.Account = account
		if behind != nil {
			part.Cursor = part.NextCursor(behind)
		}
		page, err := e.Read(ctx, part)
		if err != nil {
			return nil, "", err
		}
		for _, r := range page.Reservations {
			list = append(list, Owned{account, r})
		}
		more = more || page.Next != ""
	}
	slices.SortFunc(list, func(a, b Owned) int { return bytes.Compare(b.Reservation.ID[:], a.Reservation.ID[:]) })
	if len(list) > query.Limit {
		list, more = list[:query.Limit], true
	}
	if more {
		next = query.NextCursor(list[len(list)-1].Reservation.ID[:])
	}
	return list, next, nil
}

// Payment finds a provider's payment where it was decided: at the account that it was claimed for, or at one that has taken
// that one's place since. Nil: at none of them.
func (e *Engine) Payment(ctx context.Context, claimed holdfast.AccountID, provider, paymentID string) (*holdfast.Payment, holdfast.AccountID, error) {
	var led []holdfast.AccountID
	for account := claimed; !slices.Contains(led, account); {
		led = append(led, account)
		id := holdfast.PaymentIDOf(account, provider, paymentID)
		state, err := e.loadOnly(ctx, store.Want{Account: account, Wait: true, Payments: []holdfast.ID{id}})
		if err != nil {
			return nil, holdfast.AccountID{}, err
		}
		if paid, ok := state.Payment(id); ok {
			return paid, account, nil
		}
		if state.Account.MergedInto.IsZero() {
			return nil, holdfast.AccountID{}, nil
		}
		account = state.Account.MergedInto
	}
	return nil, holdfast.AccountID{}, endless()
}
