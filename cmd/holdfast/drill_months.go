package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// monthEnds: an account that begins on the 31st gets its allowance on the last day of shorter months, and on the 31st
// again. What is neither used nor held at a month's end is carried into the next month, up to a cap; what running work
// gives back after the end follows, up to the same cap.
func monthEnds(ctx context.Context, d *drill) (string, error) {
	a := d.freshIn(d.monthsProject(), "months")
	year := nextJanuary31(d.clock.now()).Year()
	day := func(month time.Month, day int) time.Time { return time.Date(year, month, day, 12, 0, 0, 0, time.UTC) }

	d.clock.moveTo(day(time.January, 31))
	if err := a.spend(ctx, "in the first month", 150); err != nil {
		return "", err
	}
	first, err := a.cycle(ctx)
	if err != nil {
		return "", err
	}
	if err := errors.Join(
		same("the first month begins", first.StartsAt, day(time.January, 31)),
		same("the first month ends", first.EndsAt, day(time.February, 28)),
	); err != nil {
		return "", err
	}
	d.clock.moveTo(first.EndsAt.Add(-time.Second))
	r, err := a.reserve(ctx, "in the last second", 50)
	if err != nil {
		return "", err
	}
	if err := a.has(ctx, "before the first month ends", 100, 50, 1); err != nil {
		return "", err
	}

	d.clock.moveTo(first.EndsAt)
	if _, err := a.done(ctx, "", holdfast.Expire{}); err != nil { // anything that is done lets time do its part
		return "", err
	}
	second, err := a.cycle(ctx)
	if err != nil {
		return "", err
	}
	if err := errors.Join(
		same("the second month begins", second.StartsAt, day(time.February, 28)),
		same("the second month ends", second.EndsAt, day(time.March, 31)),
		a.carried(ctx, "when the first month has ended", second.EndsAt, 100),
		a.has(ctx, "when the first month has ended", drillMonth+100, 50, 1),
	); err != nil {
		return "", err
	}
	released, err := a.done(ctx, "", holdfast.Release{ReservationID: r.ID})
	if err != nil {
		return "", err
	}
	if err := errors.Join(
		same("returned after the month's end", released.Settlement.Returned, 50),
		a.carried(ctx, "after the release", second.EndsAt, 50, 100),
		a.has(ctx, "after the release", drillMonth+150, 0, 0),
	); err != nil {
		return "", err
	}

	// Of the second month more is left than may be carried, so what comes back after it is void.
	r, err = a.reserve(ctx, "in the second month", 50)
	if err != nil {
		return "", err
	}
	d.clock.moveTo(second.EndsAt)
	if released, err = a.done(ctx, "", holdfast.Release{ReservationID: r.ID}); err != nil {
		return "", err
	}
	third, err := a.cycle(ctx)
	if err != nil {
		return "", err
	}
	return "Jan 31, Feb 28, Mar 31; carried 100, then 50 more", errors.Join(
		same("the third month begins", third.StartsAt, day(time.March, 31)),
		same("voided beyond the cap", released.Settlement.Voided, 50),
		a.has(ctx, "in the third month", drillMonth+drillRollover, 0, 0),
	)
}

// nextJanuary31 is noon of the next January 31 in a year whose February has 28 days.
func nextJanuary31(now time.Time) time.Time {
	for year := now.Year(); ; year++ {
		at := time.Date(year, time.January, 31, 12, 0, 0, 0, time.UTC)
		if at.After(now) && at.AddDate(0, 1, 0).Day() == 3 { // January 31 and a month, counted in days: February 31 is March 3
			return at
		}
	}
}

// cycle is the month in force.
func (a account) cycle(ctx context.Context) (*holdfast.Grant, error) {
	grants, err := a.grants(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range grants {
		if g.Source == holdfast.FromAllowance && g.InForce(a.clock.now()) {
			return g, nil
		}
	}
	return nil, errors.New("the month in force: expected one, got none")
}

// carried is nil where these amounts, least first, were carried into the month that ends then, and nothing else was.
func (a account) carried(ctx context.Context, when string, ends time.Time, amounts ...holdfast.Amount) error {
	grants, err := a.grants(ctx)
	if err != nil {
		return err
	}
	var got []holdfast.Amount
	for _, g := range grants {
		if g.Source == holdfast.FromRollover {
			got = append(got, g.Granted)
			err = errors.Join(err, same("end of what was carried", g.EndsAt, ends))
		}
	}
	slices.Sort(got)
	return errors.Join(err, same("carried "+when, fmt.Sprint(got), fmt.Sprint(amounts)))
}
