package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-dev/holdfast"
)

// The scenarios of this file play a feature's policies, with the figures of docs/concepts.

// give opens a pocket that lasts longer than what the scenario reserves.
func (a account) give(ctx context.Context, key string, source holdfast.Source, amount holdfast.Amount) error {
	if _, err := a.done(ctx, "", holdfast.PutAccount{}); err != nil {
		return err
	}
	_, err := a.done(ctx, key, holdfast.AddGrant{Unit: drillUnit, Amount: amount, Source: source, EndsAt: a.clock.now().Add(4 * drillWindow)})
	return err
}

// begin reserves and starts.
func (a account) begin(ctx context.Context, key string, reserve holdfast.Reserve) (*holdfast.Reservation, string, error) {
	reserved, err := a.done(ctx, key, reserve)
	if err != nil {
		return nil, "", err
	}
	started, err := a.done(ctx, "", holdfast.Start{ReservationID: reserved.Reservation.ID, Worker: "first"})
	if err != nil {
		return nil, "", err
	}
	return started.Reservation, started.Lease.Token, nil
}

// overrun lets work that held 18 use 25, with 5 available besides, and tells what it must come to.
func (a account) overrun(ctx context.Context, feature string, charged, owed, unbilled holdfast.Amount) (string, error) {
	if err := a.give(ctx, "promotion", holdfast.FromPromo, 18+5-drillGiven); err != nil {
		return "", err
	}
	r, token, err := a.begin(ctx, "press", holdfast.Reserve{Feature: feature, Usage: drillUpperBound})
	if err != nil {
		return "", err
	}
	if err := errors.Join(same("held", r.Reserved, 18), a.has(ctx, "while it runs", 5, 18, 1)); err != nil {
		return "", err
	}
	for delivery := range 2 {
		committed, err := a.done(ctx, "", holdfast.Commit{ReservationID: r.ID, LeaseToken: token, Usage: drillActual})
		if err != nil {
			return "", err
		}
		stored, err := a.reservation(ctx, r.ID)
		if err != nil {
			return "", err
		}
		if err := errors.Join(
			same(fmt.Sprintf("delivery %d changed something", delivery+1), committed.Changed, delivery == 0),
			same("not charged, as answered", committed.Settlement.Unbilled, unbilled),
			same("charged", stored.Used, charged),
			same("owed", stored.Debt, owed),
			same("not charged", stored.Unbilled, unbilled),
			a.has(ctx, "after the commit", 18+5-charged, 0, 0),
			a.owes(ctx, "after the commit", owed),
		); err != nil {
			return "", err
		}
	}
	figures := fmt.Sprintf("held 18, used 25, 5 available: charged %d", charged)
	if owed > 0 {
		figures += fmt.Sprintf(", owed %d", owed)
	}
	return fmt.Sprintf("%s, unbilled %d", figures, unbilled), nil
}

func (a account) owes(ctx context.Context, when string, amount holdfast.Amount) error {
	state, err := a.state(ctx)
	if err != nil {
		return err
	}
	return same("owed "+when, state.Account.Debts[drillUnit], amount)
}

func overrunCap(ctx context.Context, d *drill) (string, error) {
	return d.fresh("overrun-cap").overrun(ctx, drillCaps, 18, 0, 7)
}

func overrunExtend(ctx context.Context, d *drill) (string, error) {
	return d.fresh("overrun-extend").overrun(ctx, drillExtends, 23, 0, 2)
}

// overrunDebt: what is owed is repaid by what is bought next, and by nothing that is given away.
func overrunDebt(ctx context.Context, d *drill) (string, error) {
	a := d.fresh("overrun-debt")
	figures, err := a.overrun(ctx, drillOwes, 23, drillDebt, 1)
	if err != nil {
		return "", err
	}
	if err := a.give(ctx, "a present", holdfast.FromPromo, 2); err != nil {
		return "", err
	}
	if err := errors.Join(a.owes(ctx, "after a present of 2", drillDebt), a.has(ctx, "after a present of 2", 2, 0, 0)); err != nil {
		return "", err
	}
	for _, key := range []string{"first purchase", "second purchase"} {
		if err := a.give(ctx, key, holdfast.FromPurchase, 10); err != nil {
			return "", err
		}
	}
	return figures, errors.Join(a.owes(ctx, "after two purchases of 10", 0), a.has(ctx, "after two purchases of 10", 2+9+10, 0, 0))
}

// tooLate lets work that held 10 run out, spends until 4 are available, and then has the worker come back.
func (a account) tooLate(ctx context.Context, feature string, charged holdfast.Amount) (string, error) {
	if err := a.give(ctx, "promotion", holdfast.FromPromo, 10+4-drillGiven); err != nil {
		return "", err
	}
	r, token, err := a.begin(ctx, "press", holdfast.Reserve{Feature: feature, Quantity: 10})
	if err != nil {
		return "", err
	}
	a.clock.moveTo(r.ExpiresAt)
	if err := a.sweep(ctx); err != nil {
		return "", err
	}
	if err := a.has(ctx, "after the sweep", 14, 0, 0); err != nil {
		return "", err
	}
	if err := a.spend(ctx, "meanwhile", 10); err != nil {
		return "", err
	}
	for delivery := range 2 {
		late, err := a.done(ctx, "", holdfast.Commit{ReservationID: r.ID, LeaseToken: token})
		if err != nil {
			return "", err
		}
		stored, err := a.reservation(ctx, r.ID)
		if err != nil {
			return "", err
		}
		if err := errors.Join(
			same(fmt.Sprintf("delivery %d changed something", delivery+1), late.Changed, delivery == 0),
			same("told that it was late", late.Settlement.Late, true),
			same("state", stored.State, holdfast.Expired),
			same("charged late", stored.LateUsed, charged),
			same("not charged", stored.Unbilled, 10-charged),
			a.has(ctx, "after the late commit", 4-charged, 0, 0),
			a.owes(ctx, "after the late commit", 0),
		); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("held 10, swept, 4 available: charged %d, unbilled %d", charged, 10-charged), nil
}

func lateCharge(ctx context.Context, d *drill) (string, error) {
	return d.fresh("late-charge").tooLate(ctx, drillFeature, 4)
}

func lateAbsorb(ctx context.Context, d *drill) (string, error) {
	return d.fresh("late-absorb").tooLate(ctx, drillAbsorbs, 0)
}

// doubtSettled: the connection to the provider broke, and the worker cannot know whether it has worked. Somebody else, who
// has no lease, learns that it has.
func doubtSettled(ctx context.Context, d *drill) (string, error) {
	a := d.fresh("doubt-settled")
	r, token, err := a.begin(ctx, "press", holdfast.Reserve{Feature: drillFeature})
	if err != nil {
		return "", err
	}
	other, err := a.reserve(ctx, "takes the other slot", 1)
	if err != nil {
		return "", err
	}
	want := holdfast.Reserve{Feature: drillFeature}
	if _, err := a.refused(ctx, "both slots taken", want, holdfast.TooManyActive); err != nil {
		return "", err
	}
	for marking := range 2 {
		marked, err := a.done(ctx, "", holdfast.InDoubt{ReservationID: r.ID, LeaseToken: token})
		if err != nil {
			return "", err
		}
		if err := errors.Join(
			same(fmt.Sprintf("marking it for time %d changed something", marking+1), marked.Changed, marking == 0),
			a.has(ctx, "in doubt", drillGiven-2, 2, 1),
		); err != nil {
			return "", err
		}
	}
	d.clock.moveTo(r.LeaseExpiresAt)
	if _, err := a.refused(ctx, "", holdfast.Start{ReservationID: r.ID, Worker: "second"}, holdfast.AlreadyRunning); err != nil {
		return "", err
	}
	next, err := a.done(ctx, "in the slot that is free", want)
	if err != nil {
		return "", err
	}
	settled, err := a.done(ctx, "", holdfast.Commit{ReservationID: r.ID})
	if err != nil {
		return "", err
	}
	if err := errors.Join(same("charged", settled.Reservation.Used, 1), a.has(ctx, "after it was settled", drillGiven-3, 2, 2)); err != nil {
		return "", err
	}
	for _, id := range []holdfast.ID{other.ID, next.Reservation.ID} {
		if _, err := a.done(ctx, "", holdfast.Release{ReservationID: id}); err != nil {
			return "", err
		}
	}
	return "active 2 → 1 → 2, held 1, settled without the lease", a.has(ctx, "in the end", drillGiven-1, 0, 0)
}

// doubtExpired: nobody ever learns it. Then it costs nothing, or all that was held, as the feature says.
func doubtExpired(ctx context.Context, d *drill) (string, error) {
	for _, policy := range []struct {
		name, feature string
		state         holdfast.ReservationState
		used          holdfast.Amount
	}{
		{"release", drillFeature, holdfast.Expired, 0},
		{"charge", drillCharges, holdfast.Committed, 2},
	} {
		a := d.fresh("doubt-" + policy.name)
		r, token, err := a.begin(ctx, "press", holdfast.Reserve{Feature: policy.feature, Quantity: 2})
		if err != nil {
			return "", err
		}
		if _, err := a.done(ctx, "", holdfast.InDoubt{ReservationID: r.ID, LeaseToken: token}); err != nil {
			return "", err
		}
		if err := errors.Join(a.sweep(ctx), a.has(ctx, policy.name+", after a sweep before the expiry", drillGiven-2, 2, 0)); err != nil {
			return "", err
		}
		d.clock.moveTo(r.ExpiresAt)
		if err := a.sweep(ctx); err != nil {
			return "", err
		}
		ended, err := a.reservation(ctx, r.ID)
		if err != nil {
			return "", err
		}
		if err := errors.Join(
			same(policy.name+": state", ended.State, policy.state),
			same(policy.name+": charged", ended.Used, policy.used),
			a.has(ctx, policy.name+", after the sweep", drillGiven-policy.used, 0, 0),
		); err != nil {
			return "", err
		}
	}
	return "held 2: release expired, charge committed 2", nil
}

// cancelRunning: somebody does not want the picture any more, and three fifths of it are paid for already.
func cancelRunning(ctx context.Context, d *drill) (string, error) {
	a := d.fresh("cancel")
	if err := a.give(ctx, "promotion", holdfast.FromPromo, 5-drillGiven); err != nil {
		return "", err
	}
	r, token, err := a.begin(ctx, "press", holdfast.Reserve{Feature: drillStoppable, Quantity: 5})
	if err != nil {
		return "", err
	}
	if _, err := a.done(ctx, "", holdfast.Cancel{ReservationID: r.ID}); err != nil {
		return "", err
	}
	beat, err := a.done(ctx, "", holdfast.Heartbeat{ReservationID: r.ID, LeaseToken: token})
	if err != nil {
		return "", err
	}
	if err := errors.Join(
		same("state after the request", beat.Reservation.State, holdfast.Running),
		same("the heartbeat tells of the request", beat.Reservation.CancelRequestedAt.IsZero(), false),
		a.has(ctx, "while the worker stops", 0, 5, 1),
	); err != nil {
		return "", err
	}
	if _, err := a.refused(ctx, "", holdfast.Commit{ReservationID: r.ID, LeaseToken: token}, holdfast.Invalid); err != nil {
		return "", err
	}
	used := holdfast.Amount(3)
	committed, err := a.done(ctx, "", holdfast.Commit{ReservationID: r.ID, LeaseToken: token, Amount: &used})
	if err != nil {
		return "", err
	}
	return "held 5, three fifths used: charged 3, returned 2", errors.Join(
		same("charged", committed.Reservation.Used, 3),
		same("returned", committed.Settlement.Returned, 2),
		a.has(ctx, "after the commit", 2, 0, 0),
	)
}

// cancelAbandoned: the worker that was asked to stop never says anything again. Nobody wants the work, so nobody does it.
func cancelAbandoned(ctx context.Context, d *drill) (string, error) {
	a := d.fresh("cancel-dead")
	r, _, err := a.begin(ctx, "press", holdfast.Reserve{Feature: drillStoppable, Quantity: 2})
	if err != nil {
		return "", err
	}
	if _, err := a.done(ctx, "", holdfast.Cancel{ReservationID: r.ID}); err != nil {
		return "", err
	}
	if err := errors.Join(a.sweep(ctx), a.has(ctx, "while the lease lives", drillGiven-2, 2, 1)); err != nil {
		return "", err
	}
	d.clock.moveTo(r.LeaseExpiresAt)
	if _, err := a.refused(ctx, "", holdfast.Start{ReservationID: r.ID, Worker: "second"}, holdfast.AlreadyEnded); err != nil {
		return "", err
	}
	ended, err := a.reservation(ctx, r.ID)
	if err != nil {
		return "", err
	}
	return "held 2, returned 2, 1 attempt", errors.Join(
		same("state", ended.State, holdfast.Released),
		same("cause", ended.Cause, holdfast.CauseCancelled),
		same("attempts", ended.Attempts, 1),
		a.has(ctx, "in the end", drillGiven, 0, 0),
	)
}
