package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
)

// The scenarios of this file sell at the drill's own desk, which claims payments in the database as the server's does.

// drillProvider is who took the money.
const drillProvider = "drill"

// paying is a fresh account of the project in which things are sold.
func (d *drill) paying(name string) account { return d.freshIn(d.paidProject(), name) }

// tell has a payment told to one of the desks. Nobody may tell the same payment of two accounts, so its id names the account.
func (a account) tell(ctx context.Context, desk *payment.Desk, id, product string) (holdfast.Outcome, error) {
	outcome, err := desk.Pay(ctx, a.request(), holdfast.Pay{
		Provider: drillProvider, PaymentID: a.payment(id), Product: product, Amount: drillPrice, Currency: drillCurrency,
	})
	switch {
	case err != nil:
		return outcome, fmt.Errorf("payment %s of %s: %w", id, a.name, err)
	case outcome.Refused() || outcome.Payment.State != holdfast.PaymentGranted:
		return outcome, fmt.Errorf("payment %s of %s: expected to be granted, got %s %v %+v", id, a.name, reasonOf(outcome), outcome.Problems, outcome.Payment)
	}
	return outcome, nil
}

func (a account) request() payment.Request {
	return payment.Request{Project: a.project, Account: a.name, Actor: "drill"}
}

func (a account) payment(id string) string { return a.name + " " + id }

// buy pays once.
func (a account) buy(ctx context.Context, id, product string) (holdfast.Outcome, error) {
	return a.tell(ctx, a.desks[0], id, product)
}

// refund has 100 of a payment's 250 given back, by one refund, however often it is told. It must wait for the payment, or not.
func (a account) refund(ctx context.Context, id string, waits bool) (holdfast.Outcome, error) {
	amount := holdfast.Amount(100)
	outcome, pending, err := a.desks[1].Refund(ctx, a.request(), holdfast.RefundPayment{
		Provider: drillProvider, PaymentID: a.payment(id), Refund: holdfast.PaymentRefund{ID: "refund of " + id, Amount: &amount},
	})
	switch {
	case err != nil:
	case outcome.Refused():
		err = fmt.Errorf("expected to be done, got %s %v", outcome.Reason, outcome.Problems)
	default:
		err = same("waits for its payment", pending, waits)
	}
	if err != nil {
		err = fmt.Errorf("refund of payment %s of %s: %w", id, a.name, err)
	}
	return outcome, err
}

// duplicatePayment: a provider tells of one payment many times at once, to several servers, and once more later.
func duplicatePayment(ctx context.Context, d *drill) (string, error) {
	const deliveries = 10
	a := d.paying("payment-twice")
	paidAt := d.clock.now()
	for _, product := range []struct {
		name string
		then holdfast.Amount // available
	}{{drillPack, drillMonth}, {drillPeriod, 2 * drillMonth}} {
		outcomes := make([]holdfast.Outcome, deliveries)
		failed := make([]error, deliveries)
		gate := make(chan struct{})
		var all sync.WaitGroup
		for delivery := range deliveries {
			all.Go(func() {
				<-gate
				outcomes[delivery], failed[delivery] = a.tell(ctx, d.desks[delivery%len(d.desks)], product.name, product.name)
			})
		}
		close(gate)
		all.Wait()
		if err := errors.Join(failed...); err != nil {
			return "", err
		}
		later, err := a.buy(ctx, product.name, product.name)
		if err != nil {
			return "", err
		}
		first, changed := 0, 0
		for _, outcome := range append(outcomes, later) {
			if outcome.First {
				first++
			}
			if outcome.Changed {
				changed++
			}
		}
		if err := errors.Join(
			same("deliveries that granted "+product.name, first, 1),
			same("deliveries that changed something", changed, 1),
			same("the delivery that came later changed something", later.Changed, false),
			a.has(ctx, "after every delivery of "+product.name, product.then, 0, 0),
		); err != nil {
			return "", err
		}
	}
	state, err := a.state(ctx)
	if err != nil {
		return "", err
	}
	grants, err := a.grants(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d deliveries: %d bought once, %d days once", 2*(deliveries+1), drillMonth, drillDays), errors.Join(
		same("pockets", len(grants), 2),
		a.periods(state, paidAt),
	)
}

// periods is nil where what is paid for are periods of the plan that begin then, each at the end of the one before.
func (a account) periods(state *holdfast.State, begins ...time.Time) error {
	if state.Account.Subscription == nil {
		return fmt.Errorf("%s: expected it to have paid for a plan, got no subscription", a.name)
	}
	var got, want []string
	for _, p := range state.Account.Subscription.Periods {
		got = append(got, describePeriod(p))
	}
	for _, begin := range begins {
		want = append(want, describePeriod(holdfast.PaidPeriod{Plan: drillPaidPlan, Start: begin, End: begin.Add(drillDays * 24 * time.Hour)}))
	}
	return same(a.name+": paid periods", fmt.Sprint(got), fmt.Sprint(want))
}

func describePeriod(p holdfast.PaidPeriod) string {
	return fmt.Sprintf("%s from %s to %s", p.Plan, p.Start.UTC().Format(time.RFC3339Nano), p.End.UTC().Format(time.RFC3339Nano))
}

// refundBeforePayment: messages of one provider overtake each other.
func refundBeforePayment(ctx context.Context, d *drill) (string, error) {
	a := d.paying("refund-first")
	for range 2 {
		if _, err := a.refund(ctx, "pack", true); err != nil {
			return "", err
		}
	}
	for delivery := range 2 {
		paid, err := a.buy(ctx, "pack", drillPack)
		if err != nil {
			return "", err
		}
		if err := errors.Join(
			same(fmt.Sprintf("delivery %d of the payment changed something", delivery+1), paid.Changed, delivery == 0),
			same("refunded", paid.Payment.Refunded, 100),
			same("taken back", paid.Payment.Revoked, 120),
			a.has(ctx, "after the payment", 180, 0, 0),
		); err != nil {
			return "", err
		}
	}
	again, err := a.refund(ctx, "pack", false)
	if err != nil {
		return "", err
	}
	return "300 bought, 100 of 250 refunded before: 180 left", errors.Join(
		same("the refund told once more changed something", again.Changed, false),
		a.has(ctx, "in the end", 180, 0, 0),
	)
}

// refundAfterSpending: a part of the money goes back, when a part of what it bought is used already. What is used stays
// paid for, and nothing becomes debt.
func refundAfterSpending(ctx context.Context, d *drill) (string, error) {
	for _, spent := range []struct {
		name          string
		used, revoked holdfast.Amount
	}{
		{"refund-some-used", 100, 120}, // 300 × 100/250
		{"refund-most-used", 250, 50},  // all that is unused
	} {
		a := d.paying(spent.name)
		paid, err := a.buy(ctx, "pack", drillPack)
		if err != nil {
			return "", err
		}
		if err := a.spend(ctx, "press", spent.used); err != nil {
			return "", err
		}
		for delivery := range 2 {
			refunded, err := a.refund(ctx, "pack", false)
			if err != nil {
				return "", err
			}
			if err := errors.Join(
				same(fmt.Sprintf("delivery %d of the refund changed something", delivery+1), refunded.Changed, delivery == 0),
				same("taken back, as answered", refunded.Payment.Revoked, spent.revoked),
				a.has(ctx, "after the refund", drillMonth-spent.used-spent.revoked, 0, 0),
				a.owes(ctx, "after the refund", 0),
				a.pocketOf(ctx, paid.Payment.ID, holdfast.Grant{Granted: drillMonth, Used: spent.used, Voided: spent.revoked}),
			); err != nil {
				return "", fmt.Errorf("%d used: %w", spent.used, err)
			}
		}
	}
	return "of 300: used 100, taken back 120; used 250, taken back 50", nil
}

// pocketOf is nil where the payment's one pocket has these counters.
func (a account) pocketOf(ctx context.Context, paid holdfast.ID, want holdfast.Grant) error {
	grants, err := a.grants(ctx)
	if err != nil {
		return err
	}
	grants = slices.DeleteFunc(grants, func(g *holdfast.Grant) bool { return g.Payment != paid })
	if err := same("pockets of the payment", len(grants), 1); err != nil {
		return err
	}
	return same("the pocket", describePocket(grants[0]), describePocket(&want))
}

// renewalAtTheEdge: one account pays ten days early, the other at the very instant at which its period is over, with work
// that runs across it.
func renewalAtTheEdge(ctx context.Context, d *drill) (string, error) {
	early, late := d.paying("renewal-early"), d.paying("renewal-late")
	begin := d.clock.now()
	edge := begin.Add(drillDays * 24 * time.Hour)
	for _, a := range []account{early, late} {
		if _, err := a.buy(ctx, "first", drillPeriod); err != nil {
			return "", err
		}
		if err := a.spend(ctx, "in the first period", 150); err != nil {
			return "", err
		}
	}

	d.clock.moveTo(edge.Add(-10 * 24 * time.Hour))
	if err := early.renewed(ctx, begin, edge); err != nil {
		return "", err
	}
	if err := early.has(ctx, "when the next period is paid for early", 150, 0, 0); err != nil {
		return "", err
	}

	d.clock.moveTo(edge.Add(-time.Second))
	running := map[account]holdfast.ID{}
	for _, a := range []account{early, late} {
		r, err := a.reserve(ctx, "in the last second", 50)
		if err != nil {
			return "", err
		}
		running[a] = r.ID
		if err := a.has(ctx, "in the last second", 100, 50, 1); err != nil {
			return "", err
		}
	}

	d.clock.moveTo(edge)
	if err := late.renewed(ctx, edge); err != nil {
		return "", err
	}
	if _, err := early.done(ctx, "", holdfast.Expire{}); err != nil { // anything that is done lets time do its part
		return "", err
	}
	ends := edge.Add(drillDays * 24 * time.Hour)
	for _, a := range []account{early, late} {
		state, err := a.state(ctx)
		if err != nil {
			return "", err
		}
		second, err := a.cycle(ctx)
		if err != nil {
			return "", err
		}
		if err := errors.Join(
			a.periods(state, edge),
			same(a.name+": the second grant starts", second.StartsAt, edge),
			same(a.name+": the second grant ends", second.EndsAt, ends),
			a.carried(ctx, a.name+", at the edge", ends, 100),
			a.has(ctx, a.name+", at the edge", drillMonth+100, 50, 1),
		); err != nil {
			return "", err
		}
		if _, err := a.done(ctx, "", holdfast.Release{ReservationID: running[a]}); err != nil {
			return "", err
		}
		if err := errors.Join(
			a.carried(ctx, a.name+", after the release", ends, 50, 100),
			a.has(ctx, a.name+", after the release", drillMonth+150, 0, 0),
		); err != nil {
			return "", err
		}
	}
	return "early, and at the end: 300 each; carried 100, then 50 more", nil
}

// renewed pays for another period, twice told, and looks at all that is paid for then.
func (a account) renewed(ctx context.Context, begins ...time.Time) error {
	for delivery := range 2 {
		paid, err := a.buy(ctx, "second", drillPeriod)
		if err != nil {
			return err
		}
		state, err := a.state(ctx)
		if err != nil {
			return err
		}
		if err := errors.Join(
			same(fmt.Sprintf("delivery %d of the renewal changed something", delivery+1), paid.Changed, delivery == 0),
			a.periods(state, begins...),
		); err != nil {
			return err
		}
	}
	return nil
}
