package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// moveOn lets everything arrive that is on its way from accounts that were merged, or deleted, as the server does at every
// sweep.
func (d *drill) moveOn(ctx context.Context) error {
	if err := d.engines[0].Move(ctx); err != nil {
		return fmt.Errorf("move what follows a merge: %w", err)
	}
	return nil
}

// mergeWithLiveWork: somebody who has bought turns out to be the same person as another account, while work runs for them.
func mergeWithLiveWork(ctx context.Context, d *drill) (string, error) {
	from, into := d.paying("merge-from"), d.paying("merge-into")
	for _, a := range []account{from, into} {
		if _, err := a.buy(ctx, "pack", drillPack); err != nil {
			return "", err
		}
	}
	succeeds, err := from.reserve(ctx, "succeeds", 50)
	if err != nil {
		return "", err
	}
	fails, err := from.reserve(ctx, "fails", 20)
	if err != nil {
		return "", err
	}

	names := engine.Names{Project: into.project, Account: into.name, Other: from.name, Actor: "drill"}
	for merging := range 2 {
		merged, err := d.engines[merging%len(d.engines)].Merge(ctx, names)
		if err != nil {
			return "", fmt.Errorf("merge %s into %s: %w", from.name, into.name, err)
		}
		if err := errors.Join(
			same("what came of the merge", reasonOf(merged), "done"),
			same(fmt.Sprintf("merging for time %d changed something", merging+1), merged.Changed, merging == 0),
			from.holds(ctx, "after the merge", 0, 70, 0),
			into.holds(ctx, "after the merge", 530, 0, 0),
		); err != nil {
			return "", err
		}
	}

	again, err := from.reserve(ctx, "succeeds", 50)
	if err != nil {
		return "", err
	}
	if err := same("the press told once more, by the old name, is answered with", again.ID, succeeds.ID); err != nil {
		return "", err
	}
	used := holdfast.Amount(30)
	for delivery := range 2 {
		committed, err := from.done(ctx, "", holdfast.Commit{ReservationID: succeeds.ID, Amount: &used})
		if err != nil {
			return "", err
		}
		if err := errors.Join(
			same(fmt.Sprintf("delivery %d of the commit changed something", delivery+1), committed.Changed, delivery == 0),
			same("charged", committed.Reservation.Used, used),
			d.moveOn(ctx),
			from.holds(ctx, "after the commit", 0, 20, 30),
			into.holds(ctx, "after the commit", 550, 0, 0),
		); err != nil {
			return "", err
		}
	}
	if _, err := from.done(ctx, "", holdfast.Release{ReservationID: fails.ID}); err != nil {
		return "", err
	}
	for range 2 {
		if err := d.moveOn(ctx); err != nil {
			return "", err
		}
	}
	return "300 and 300, held 70: 530, then used 30 and 570", errors.Join(
		from.holds(ctx, "in the end", 0, 0, 30),
		into.holds(ctx, "in the end", 570, 0, 0),
	)
}

// holds is nil where so much is available, reserved and used of what was bought. Nothing else is looked at: a process that
// serves the database beside the drill may be the one who moves things on, and gives what its own catalog gives.
func (a account) holds(ctx context.Context, when string, available, reserved, used holdfast.Amount) error {
	grants, err := a.grants(ctx)
	if err != nil {
		return err
	}
	var sum holdfast.Grant
	var left holdfast.Amount
	for _, g := range grants {
		if g.Source == holdfast.FromPurchase {
			left += g.Available()
			sum.Reserved += g.Reserved
			sum.Used += g.Used
		}
	}
	return errors.Join(
		same(fmt.Sprintf("available to %s %s", a.name, when), left, available),
		same(fmt.Sprintf("reserved of %s %s", a.name, when), sum.Reserved, reserved),
		same(fmt.Sprintf("used of %s %s", a.name, when), sum.Used, used),
	)
}
