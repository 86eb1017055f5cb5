package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

// account is one account of the drill's scratch projects. Scenarios act on it by commands, and look at it by reads.
type account struct {
	*drill
	project, name string
}

// fresh is an account that nobody has used yet, and that the sweeper of the drill may see.
func (d *drill) fresh(name string) account { return d.freshIn(d.project, name) }

func (d *drill) freshIn(project, name string) account {
	a := account{d, project, name}
	d.accounts = append(d.accounts, a)
	return a
}

func (a account) id() holdfast.AccountID { return holdfast.AccountIDOf(a.project, a.name) }

// on has an operation decided by one engine.
func (a account) on(ctx context.Context, e *engine.Engine, key string, do holdfast.Operation) (holdfast.Outcome, error) {
	outcome, err := e.Submit(ctx, holdfast.Command{Project: a.project, Account: a.name, Key: key, Actor: "drill", Do: do})
	if err != nil {
		return outcome, fmt.Errorf("%s: %w", a.naming(key, do), err)
	}
	return outcome, nil
}

// naming tells which of a scenario's commands is meant.
func (a account) naming(key string, do holdfast.Operation) string {
	if key == "" {
		return do.Name() + " of " + a.name
	}
	return fmt.Sprintf("%s of %s under key %q", do.Name(), a.name, key)
}

// ask has an operation decided; a refusal is an answer too.
func (a account) ask(ctx context.Context, key string, do holdfast.Operation) (holdfast.Outcome, error) {
	return a.on(ctx, a.engines[0], key, do)
}

// done has an operation decided that must not be refused.
func (a account) done(ctx context.Context, key string, do holdfast.Operation) (holdfast.Outcome, error) {
	outcome, err := a.ask(ctx, key, do)
	if err == nil && outcome.Refused() {
		err = fmt.Errorf("%s: expected to be done, got %s %v", a.naming(key, do), outcome.Reason, outcome.Problems)
	}
	return outcome, err
}

// refused has an operation decided that must be refused for that reason.
func (a account) refused(ctx context.Context, key string, do holdfast.Operation, reason holdfast.Reason) (holdfast.Outcome, error) {
	outcome, err := a.ask(ctx, key, do)
	if err == nil && outcome.Reason != reason {
		err = fmt.Errorf("%s: expected to be refused with %s, got %s", a.naming(key, do), reason, reasonOf(outcome))
	}
	return outcome, err
}

func reasonOf(outcome holdfast.Outcome) string {
	if outcome.Refused() {
		return string(outcome.Reason)
	}
	return "done"
}

// reserve reserves a quantity, and must succeed.
func (a account) reserve(ctx context.Context, key string, quantity holdfast.Amount) (*holdfast.Reservation, error) {
	outcome, err := a.done(ctx, key, holdfast.Reserve{Feature: drillFeature, Quantity: quantity})
	return outcome.Reservation, err
}

// spend reserves and commits a quantity.
func (a account) spend(ctx context.Context, key string, quantity holdfast.Amount) error {
	r, err := a.reserve(ctx, key, quantity)
	if err != nil {
		return err
	}
	_, err = a.done(ctx, "", holdfast.Commit{ReservationID: r.ID})
	return err
}

// together sends one operation many times at once, spread over the engines, under the key that each caller has. The
// outcomes come in the order of the callers.
func (a account) together(ctx context.Context, callers int, key func(caller int) string, do holdfast.Operation) ([]holdfast.Outcome, error) {
	outcomes := make([]holdfast.Outcome, callers)
	failed := make([]error, callers)
	gate := make(chan struct{})
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			<-gate
			outcomes[caller], failed[caller] = a.on(ctx, a.engines[caller%len(a.engines)], key(caller), do)
		})
	}
	close(gate)
	all.Wait()
	return outcomes, errors.Join(failed...)
}

// sweep expires what is overdue in the scratch project by the drill's clock, as the server's sweeper does.
func (a account) sweep(ctx context.Context) error {
	if err := a.engines[0].Sweep(ctx); err != nil {
		return fmt.Errorf("sweep: %w", err)
	}
	return nil
}

// state is the account as it is stored.
func (a account) state(ctx context.Context) (*holdfast.State, error) {
	page, err := a.store.Read(ctx, store.Query{Kind: store.QueryState, Project: a.project, Account: a.id(), Limit: 1})
	if err != nil {
		return nil, fmt.Errorf("read the account %s: %w", a.name, err)
	}
	if page.State == nil {
		return nil, fmt.Errorf("read the account %s: expected it to be stored, got nothing", a.name)
	}
	return page.State, nil
}

// reservations are those in a state, newest first; the empty state means all.
func (a account) reservations(ctx context.Context, state holdfast.ReservationState) ([]*holdfast.Reservation, error) {
	page, err := a.store.Read(ctx, store.Query{
		Kind: store.QueryReservations, Project: a.project, Account: a.id(), State: state, Limit: holdfast.MaxPage,
	})
	if err != nil {
		return nil, fmt.Errorf("read the reservations of %s: %w", a.name, err)
	}
	return page.Reservations, nil
}

// reservation is one as it is stored.
func (a account) reservation(ctx context.Context, id holdfast.ID) (*holdfast.Reservation, error) {
	page, err := a.store.Read(ctx, store.Query{
		Kind: store.QueryReservations, Project: a.project, Account: a.id(), Reservation: id, Limit: 1,
	})
	if err != nil || len(page.Reservations) != 1 {
		return nil, errors.Join(err, fmt.Errorf("read reservation %s of %s: expected one, got %d", id, a.name, len(page.Reservations)))
	}
	return page.Reservations[0], nil
}

// grants are all pockets, newest first.
func (a account) grants(ctx context.Context) ([]*holdfast.Grant, error) {
	page, err := a.store.Read(ctx, store.Query{
		Kind: store.QueryGrants, Project: a.project, Account: a.id(), Limit: holdfast.MaxPage,
	})
	if err != nil {
		return nil, fmt.Errorf("read the pockets of %s: %w", a.name, err)
	}
	return page.Grants, nil
}

// has is nil where the account has that much at this moment, read from the database.
func (a account) has(ctx context.Context, when string, available, reserved holdfast.Amount, active int) error {
	state, err := a.state(ctx)
	if err != nil {
		return err
	}
	view := holdfast.View(a.catalog(a.project), state, a.clock.now())
	return errors.Join(
		same("available "+when, view.Balances[0].Available, available),
		same("reserved "+when, view.Balances[0].Reserved, reserved),
		same("active "+when, view.Account.Active, active),
	)
}

// endEverything releases what is live, by an operator's hand.
func (a account) endEverything(ctx context.Context) error {
	for _, state := range []holdfast.ReservationState{holdfast.Reserved, holdfast.Running} {
		live, err := a.reservations(ctx, state)
		if err != nil {
			return err
		}
		for _, r := range live {
			if _, err := a.done(ctx, "", holdfast.Force{ReservationID: r.ID, End: holdfast.EndRelease, Reason: "the drill is over"}); err != nil {
				return err
			}
		}
	}
	return nil
}

// leavePlan deletes an account that is given something in every month, or has paid for a plan: it is given no more, and no
// later catalog has to keep its plan.
func (a account) leavePlan(ctx context.Context) error {
	if a.project == a.drill.project {
		return nil
	}
	_, err := a.done(ctx, "", holdfast.DeleteAccount{})
	return err
}

// closePockets lets every pocket come to its end. That takes two rounds: what an ended month leaves is carried into the next.
func (a account) closePockets(ctx context.Context) error {
	for range 2 {
		state, err := a.state(ctx)
		if err != nil {
			return err
		}
		for _, g := range state.Grants {
			a.clock.moveTo(g.EndsAt)
		}
		if _, err := a.done(ctx, "", holdfast.Expire{}); err != nil { // lets time do its part
			return err
		}
	}
	state, err := a.state(ctx)
	if err != nil {
		return err
	}
	return errors.Join(
		same(a.name+": active reservations", state.Account.Active, 0),
		same(a.name+": open pockets", len(state.Grants), 0),
		same(a.name+": plan", state.Account.Plan, ""),
		same(a.name+": what is on its way to another account", len(state.Account.Transfers), 0),
	)
}
