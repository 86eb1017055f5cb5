package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// lastUnit is the race that a check before a deduction loses: slots are free, one unit is left, and several callers want
// it at the same moment.
func lastUnit(name string, callers int) func(context.Context, *drill) (string, error) {
	return func(ctx context.Context, d *drill) (string, error) {
		a := d.fresh(name)
		if err := a.spend(ctx, "used before", drillGiven-1); err != nil {
			return "", err
		}
		return a.race(ctx, callers, holdfast.HeldByActive, holdfast.Refusal{Needed: 1, Available: 0, Held: 1, Active: 1, MaxActive: drillSlots})
	}
}

// lastSlot is the same race for the last place of work: there are units for all, and one slot is free.
func lastSlot(name string, callers int) func(context.Context, *drill) (string, error) {
	return func(ctx context.Context, d *drill) (string, error) {
		a := d.fresh(name)
		outcome, err := a.done(ctx, "", holdfast.PutAccount{})
		if err == nil {
			_, err = a.done(ctx, "plenty", holdfast.AddGrant{Unit: drillUnit, Amount: 100, EndsAt: d.clock.now().Add(drillWindow)})
		}
		if err != nil {
			return "", err
		}
		if err := same("slots of the plan", outcome.Account.MaxActive, drillSlots); err != nil {
			return "", err
		}
		taken, err := a.reserve(ctx, "takes the first slot", 1)
		if err != nil {
			return "", err
		}
		figures, err := a.race(ctx, callers, holdfast.TooManyActive,
			holdfast.Refusal{Needed: 1, Available: 100 + drillGiven - 2, Held: 2, Active: drillSlots, MaxActive: drillSlots})
		_, ended := a.done(ctx, "", holdfast.Release{ReservationID: taken.ID})
		return figures, errors.Join(err, ended)
	}
}

// race lets the callers reserve at once, round after round: exactly one may get it, and the others must be told the reason
// with its numbers. Between rounds the winner gives back what it got.
func (a account) race(ctx context.Context, callers int, reason holdfast.Reason, numbers holdfast.Refusal) (string, error) {
	before, err := a.state(ctx)
	if err != nil {
		return "", err
	}
	for round := range a.rounds {
		key := func(caller int) string { return fmt.Sprintf("round %d, caller %d", round+1, caller+1) }
		outcomes, err := a.together(ctx, callers, key, holdfast.Reserve{Feature: drillFeature})
		if err != nil {
			return "", err
		}
		won, err := winner(outcomes, reason, numbers)
		if err != nil {
			return "", fmt.Errorf("round %d: %w", round+1, err)
		}
		live, err := a.reservations(ctx, holdfast.Reserved)
		if err != nil {
			return "", err
		}
		state, err := a.state(ctx)
		if err != nil {
			return "", err
		}
		if err := errors.Join(
			same("live reservations", len(live), before.Account.Active+1),
			same("active reservations of the account", state.Account.Active, before.Account.Active+1),
			same("the winner's is live", slices.ContainsFunc(live, func(r *holdfast.Reservation) bool { return r.ID == won }), true),
		); err != nil {
			return "", fmt.Errorf("round %d: %w", round+1, err)
		}
		if _, err := a.done(ctx, "", holdfast.Release{ReservationID: won}); err != nil {
			return "", fmt.Errorf("round %d: %w", round+1, err)
		}
	}
	return fmt.Sprintf("%d calls: %d reserved, %d %s", a.rounds*callers, a.rounds, a.rounds*(callers-1), reason), nil
}

// winner is the one reservation that came of a race.
func winner(outcomes []holdfast.Outcome, reason holdfast.Reason, numbers holdfast.Refusal) (won holdfast.ID, err error) {
	winners := 0
	for _, outcome := range outcomes {
		switch {
		case !outcome.Refused():
			winners++
			won = outcome.Reservation.ID
			err = errors.Join(err, same("reserved", outcome.Reservation.Reserved, 1))
		case outcome.Reason != reason:
			err = errors.Join(err, same("reason of a refusal", outcome.Reason, reason))
		default:
			r := outcome.Refusal
			got := holdfast.Refusal{Needed: r.Needed, Available: r.Available, Held: r.Held, Active: r.Active, MaxActive: r.MaxActive}
			err = errors.Join(err, same("numbers of a refusal", describeRefusal(got), describeRefusal(numbers)))
		}
	}
	return won, errors.Join(same("callers that got it", winners, 1), err)
}

func describeRefusal(r holdfast.Refusal) string {
	return fmt.Sprintf("needed %d, available %d, held %d, active %d of %d", r.Needed, r.Available, r.Held, r.Active, r.MaxActive)
}

// crashBeforeTheJob: the quota was reserved, and the process died before it could queue the work. Nobody knows of the
// reservation any more, except the database.
func crashBeforeTheJob(ctx context.Context, d *drill) (string, error) {
	a := d.fresh("crash")
	var r *holdfast.Reservation
	// The process that reserves has connections of its own, and takes all it knows with it.
	err := d.onEngine(ctx, func(_ database, e *engine.Engine) error {
		outcome, err := a.on(ctx, e, "press", holdfast.Reserve{Feature: drillFeature, Quantity: 2})
		if err == nil {
			err = same("what came of the press", reasonOf(outcome), "done")
		}
		r = outcome.Reservation
		return err
	})
	if err != nil {
		return "", err
	}
	want := holdfast.Reserve{Feature: drillFeature, Quantity: drillGiven}
	// The process that comes after it opens the database again.
	err = d.onEngine(ctx, func(_ database, e *engine.Engine) error {
		if err := a.has(ctx, "after the crash", drillGiven-2, 2, 1); err != nil {
			return err
		}
		again, err := a.on(ctx, e, "press", holdfast.Reserve{Feature: drillFeature, Quantity: 2})
		if err != nil {
			return err
		}
		other, err := a.on(ctx, e, "while held", want)
		if err != nil {
			return err
		}
		if err := errors.Join(
			same("the same press again is replayed", again.Replayed, true),
			same("what other work is told while it is held", reasonOf(other), string(holdfast.HeldByActive)),
		); err != nil {
			return err
		}
		if err := e.Sweep(ctx); err != nil {
			return fmt.Errorf("sweep before the expiry: %w", err)
		}
		if err := a.has(ctx, "after a sweep before the expiry", drillGiven-2, 2, 1); err != nil {
			return err
		}
		d.clock.moveTo(r.ExpiresAt)
		if err := e.Sweep(ctx); err != nil {
			return fmt.Errorf("sweep after the expiry: %w", err)
		}
		return a.has(ctx, "after the sweep", drillGiven, 0, 0)
	})
	if err != nil {
		return "", err
	}
	ended, err := a.reservation(ctx, r.ID)
	if err != nil {
		return "", err
	}
	if err := same("state of the forgotten reservation", ended.State, holdfast.Expired); err != nil {
		return "", err
	}
	later, err := a.done(ctx, "after the sweep", want)
	if err != nil {
		return "", err
	}
	_, err = a.done(ctx, "", holdfast.Release{ReservationID: later.Reservation.ID})
	return fmt.Sprintf("available %d → %d → %d", drillGiven, drillGiven-2, drillGiven), err
}

// duplicateDelivery: queues and webhooks deliver at least once, one after the other or all at once.
func duplicateDelivery(ctx context.Context, d *drill) (string, error) {
	const deliveries = 50
	a := d.fresh("delivery")
	always := func(key string) func(int) string { return func(int) string { return key } }
	reserve := holdfast.Reserve{Feature: drillFeature}

	var first holdfast.Outcome
	for delivery := range 3 {
		outcome, err := a.done(ctx, "one after the other", reserve)
		if err != nil {
			return "", err
		}
		if delivery == 0 {
			first = outcome
		}
		if err := errors.Join(
			same(fmt.Sprintf("delivery %d is a replay", delivery+1), outcome.Replayed, delivery > 0),
			sameReservation(outcome, first),
		); err != nil {
			return "", err
		}
	}
	outcomes, err := a.together(ctx, deliveries, always("all at once"), reserve)
	if err != nil {
		return "", err
	}
	for _, outcome := range outcomes {
		if err := errors.Join(same("what came of a delivery", reasonOf(outcome), "done"), sameReservation(outcome, outcomes[0])); err != nil {
			return "", err
		}
	}
	if err := same("replays among the deliveries at once", replays(outcomes), deliveries-1); err != nil {
		return "", err
	}
	if _, err := a.refused(ctx, "all at once", holdfast.Reserve{Feature: drillFeature, Quantity: 2}, holdfast.KeyReused); err != nil {
		return "", err
	}
	all, err := a.reservations(ctx, "")
	if err != nil {
		return "", err
	}
	if err := errors.Join(same("reservations", len(all), 2), a.has(ctx, "after all deliveries", drillGiven-2, 2, 2)); err != nil {
		return "", err
	}

	payment := holdfast.AddGrant{Unit: drillUnit, Amount: 100, Source: holdfast.FromPurchase, EndsAt: d.clock.now().Add(drillWindow)}
	granted, err := a.together(ctx, deliveries, always("payment"), payment)
	if err != nil {
		return "", err
	}
	if err := same("replays of the payment", replays(granted), deliveries-1); err != nil {
		return "", err
	}
	for _, outcome := range granted {
		if err := same("what came of a redelivered payment", reasonOf(outcome), "done"); err != nil {
			return "", err
		}
		if err := same("balance told to a redelivered payment", outcome.Balance.Available, 100+drillGiven-2); err != nil {
			return "", err
		}
	}
	if err := a.has(ctx, "after the payment was redelivered", 100+drillGiven-2, 2, 2); err != nil {
		return "", err
	}
	if err := a.endEverything(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d deliveries: 2 reserved, 100 granted once", 3+2*deliveries), nil
}

func replays(outcomes []holdfast.Outcome) (count int) {
	for _, outcome := range outcomes {
		if outcome.Replayed {
			count++
		}
	}
	return count
}

// sameReservation is nil where two answers are about one reservation, with the same numbers.
func sameReservation(got, want holdfast.Outcome) error {
	if got.Reservation == nil || want.Reservation == nil {
		return errors.New("an answer without a reservation")
	}
	return errors.Join(
		same("reservation", got.Reservation.ID, want.Reservation.ID),
		same("its expiry", got.Reservation.ExpiresAt.UnixMicro(), want.Reservation.ExpiresAt.UnixMicro()),
		same("balance in the answer", got.Balance.Available, want.Balance.Available),
	)
}

// periodEdge: work begins in the last second of a window and ends in the next one. It is paid by the window it began in,
// whatever comes of it.
func periodEdge(ctx context.Context, d *drill) (string, error) {
	a := d.fresh("edge")

	// Two windows, one after the other. In the first the work succeeds, in the second it fails.
	edge := func(window string, used holdfast.Amount) (*holdfast.Reservation, error) {
		if err := a.spend(ctx, window+", used before", used); err != nil {
			return nil, err
		}
		state, err := a.state(ctx)
		if err != nil {
			return nil, err
		}
		ends := holdfast.View(a.catalog(a.project), state, d.clock.now()).Balances[0].ResetsAt
		d.clock.moveTo(ends.Add(-time.Second))
		r, err := a.reserve(ctx, window+", in the last second", 1)
		if err != nil {
			return nil, err
		}
		d.clock.moveTo(ends)
		return r, a.has(ctx, "when the "+window+" has ended", drillGiven, 1, 1)
	}

	first, err := edge("first window", 2)
	if err != nil {
		return "", err
	}
	committed, err := a.done(ctx, "", holdfast.Commit{ReservationID: first.ID})
	if err != nil {
		return "", err
	}
	if err := errors.Join(
		same("charged after the edge", committed.Reservation.Used, 1),
		a.has(ctx, "after the commit", drillGiven, 0, 0),
		a.pocket(ctx, first.Allocations[0].Grant, holdfast.Grant{Granted: drillGiven, Used: 3}),
	); err != nil {
		return "", err
	}

	second, err := edge("second window", 1)
	if err != nil {
		return "", err
	}
	released, err := a.done(ctx, "", holdfast.Release{ReservationID: second.ID})
	if err != nil {
		return "", err
	}
	if err := errors.Join(
		same("returned after the edge", released.Settlement.Returned, 0),
		same("voided after the edge", released.Settlement.Voided, 1),
		a.has(ctx, "after the release", drillGiven, 0, 0),
		a.pocket(ctx, second.Allocations[0].Grant, holdfast.Grant{Granted: drillGiven, Used: 1, Voided: 2}),
	); err != nil {
		return "", err
	}
	grants, err := a.grants(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("windows of %d: used 3, then used 1 and voided 2", drillGiven), same("windows that were ever opened", len(grants), 2)
}

// pocket is nil where a grant's counters are as wanted.
func (a account) pocket(ctx context.Context, id holdfast.ID, want holdfast.Grant) error {
	grants, err := a.grants(ctx)
	if err != nil {
		return err
	}
	for _, g := range grants {
		if g.ID == id {
			return same("the window", describePocket(g), describePocket(&want))
		}
	}
	return fmt.Errorf("expected pocket %s, got none", id)
}

func describePocket(g *holdfast.Grant) string {
	return fmt.Sprintf("granted %d, reserved %d, used %d, voided %d", g.Granted, g.Reserved, g.Used, g.Voided)
}

// deadWorker: a worker dies with the job in its hands. Another takes over when the lease has lapsed; the first, should
// it wake up, may not touch the job any more. When the second dies too, the slot comes back by itself.
func deadWorker(ctx context.Context, d *drill) (string, error) {
	a := d.fresh("worker")
	r, err := a.reserve(ctx, "press", 1)
	if err != nil {
		return "", err
	}
	start := func(worker string) holdfast.Start {
		return holdfast.Start{ReservationID: r.ID, Worker: worker, Lease: holdfast.DefaultLease}
	}
	first, err := a.done(ctx, "", start("first"))
	if err != nil {
		return "", err
	}
	if _, err := a.refused(ctx, "", start("second"), holdfast.AlreadyRunning); err != nil {
		return "", err
	}
	d.clock.moveTo(first.Lease.ExpiresAt)
	second, err := a.done(ctx, "", start("second"))
	if err != nil {
		return "", err
	}
	if err := same("both workers have one token", first.Lease.Token == second.Lease.Token, false); err != nil {
		return "", err
	}
	old := first.Lease.Token
	for _, do := range []holdfast.Operation{
		holdfast.Heartbeat{ReservationID: r.ID, LeaseToken: old},
		holdfast.Commit{ReservationID: r.ID, LeaseToken: old},
		holdfast.Release{ReservationID: r.ID, LeaseToken: old},
	} {
		if _, err := a.refused(ctx, "", do, holdfast.StaleLease); err != nil {
			return "", err
		}
	}
	if err := a.has(ctx, "while the second worker has it", drillGiven-1, 1, 1); err != nil {
		return "", err
	}
	if err := a.sweep(ctx); err != nil {
		return "", err
	}
	if err := a.has(ctx, "after a sweep before the expiry", drillGiven-1, 1, 1); err != nil {
		return "", err
	}
	d.clock.moveTo(second.Reservation.ExpiresAt)
	if err := a.sweep(ctx); err != nil {
		return "", err
	}
	ended, err := a.reservation(ctx, r.ID)
	if err != nil {
		return "", err
	}
	return "2 leases, 3 stale calls, slot free", errors.Join(
		same("state", ended.State, holdfast.Expired),
		same("attempts", ended.Attempts, 2),
		a.has(ctx, "after the sweep", drillGiven, 0, 0),
	)
}

// lateResult: the worker was not dead, only slow. Its work was done and is paid for, once, from what there is.
func lateResult(ctx context.Context, d *drill) (string, error) {
	a := d.fresh("late")
	r, err := a.reserve(ctx, "press", 2)
	if err != nil {
		return "", err
	}
	lost, err := a.done(ctx, "", holdfast.Start{ReservationID: r.ID, Worker: "lost"})
	if err != nil {
		return "", err
	}
	d.clock.moveTo(lost.Lease.ExpiresAt)
	slow, err := a.done(ctx, "", holdfast.Start{ReservationID: r.ID, Worker: "slow"})
	if err != nil {
		return "", err
	}
	d.clock.moveTo(slow.Reservation.ExpiresAt)
	if err := a.sweep(ctx); err != nil {
		return "", err
	}
	// Meanwhile two of the three that came back are spent on something else.
	if err := a.spend(ctx, "meanwhile", 2); err != nil {
		return "", err
	}
	if _, err := a.refused(ctx, "", holdfast.Commit{ReservationID: r.ID, LeaseToken: lost.Lease.Token}, holdfast.StaleLease); err != nil {
		return "", err
	}
	for delivery := range 2 {
		late, err := a.done(ctx, "", holdfast.Commit{ReservationID: r.ID, LeaseToken: slow.Lease.Token})
		if err != nil {
			return "", err
		}
		if err := errors.Join(
			same(fmt.Sprintf("delivery %d changed something", delivery+1), late.Changed, delivery == 0),
			same("charged late", late.Reservation.LateUsed, 1),
			same("not charged", late.Reservation.Unbilled, 1),
			same("state", late.Reservation.State, holdfast.Expired),
			a.has(ctx, "after the late result", 0, 0, 0),
		); err != nil {
			return "", err
		}
	}
	return "held 2, 1 available: charged 1, unbilled 1", nil
}
