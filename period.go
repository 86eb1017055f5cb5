package holdfast

import "time"

// Zones are the time zones that an account's cycles are counted in. The engine passes them in; nil counts as UTC.
type Zones struct {
	Account *time.Location // of calendar cycles: the account's TimeZone
	Anchor  *time.Location // of anniversaries: the account's AnchorZone
}

func orUTC(zone *time.Location) *time.Location {
	if zone == nil {
		return time.UTC
	}
	return zone
}

// cycleAt is the cycle [start, end) of an allowance that contains the instant. Cycles follow each other without gaps. A
// rolling window is no such cycle: it begins when it is used.
func (d *decision) cycleAt(a *Allowance, at time.Time) (start, end time.Time) {
	if s := d.state.Account.Subscription; a.Every.Term && s != nil {
		if period, paid := s.periodAt(at); paid {
			return period.Start, period.End
		}
		return time.Time{}, time.Time{} // nothing is paid for then
	}
	if a.Every.Calendar != "" {
		return calendarCycle(a.Every.Calendar, orUTC(d.state.Zones.Account), at)
	}
	return monthOf(d.anchor(), at)
}

// anchor is when the account's plan began: what anniversaries are counted from, and in its zone. The default plan began
// with the account, and counts in UTC whatever plans and zones come between, so that coming back to it shifts no cycle.
func (d *decision) anchor() time.Time {
	account := &d.state.Account
	switch {
	case !d.plan.Default && !account.Anchor.IsZero():
		return account.Anchor.In(orUTC(d.state.Zones.Anchor))
	case !account.CreatedAt.IsZero():
		return account.CreatedAt.UTC()
	}
	return d.now.UTC() // nobody has stored the account yet: it would be created now
}

// calendarCycle is the day, week or month of the zone that contains the instant, from midnight to midnight: a day of 23,
// 24 or 25 hours where clocks are moved.
func calendarCycle(every Calendar, zone *time.Location, at time.Time) (start, end time.Time) {
	year, month, day := at.In(zone).Date()
	midnight := func(month time.Month, day int) time.Time { return firstInstant(year, month, day, 0, zone) }
	switch every {
	case Day:
		return midnight(month, day), midnight(month, day+1)
	case Week:
		day -= (int(at.In(zone).Weekday()) + 6) % 7 // back to Monday
		return midnight(month, day), midnight(month, day+7)
	}
	return midnight(month, 1), midnight(month+1, 1)
}

// monthOf is the month, counted from the anchor in its zone, that contains the instant, also before it. Where a month has
// no such day, it begins on its last one: Jan 31, Feb 28 or 29, Mar 31.
func monthOf(anchor, at time.Time) (start, end time.Time) {
	to := at.In(anchor.Location())
	months := 12*(to.Year()-anchor.Year()) + int(to.Month()-anchor.Month())
	for monthsAfter(anchor, months).After(at) {
		months--
	}
	return monthsAfter(anchor, months), monthsAfter(anchor, months+1)
}

// monthsAfter is the instant so many calendar months after the anchor, at the same time of day in its zone.
func monthsAfter(local time.Time, months int) time.Time {
	if months == 0 {
		return local.UTC()
	}
	year, month, day := local.Date()
	lastDay := time.Date(year, month+time.Month(months)+1, 0, 12, 0, 0, 0, time.UTC).Day()
	clock := time.Duration(local.Hour())*time.Hour + time.Duration(local.Minute())*time.Minute +
		time.Duration(local.Second())*time.Second + time.Duration(local.Nanosecond())
	return firstInstant(year, month+time.Month(months), min(day, lastDay), clock, local.Location())
}

// firstInstant is when clocks in the zone first show a time of day. Where they skip it, it is the instant at which they
// skip; where they show it twice, the first of the two.
func firstInstant(year int, month time.Month, day int, clock time.Duration, zone *time.Location) time.Time {
	wanted := time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Add(clock)
	at := time.Date(year, month, day, wanted.Hour(), wanted.Minute(), wanted.Second(), wanted.Nanosecond(), zone)
	begins, ends := at.ZoneBounds()
	switch shown := wallClock(at); {
	case shown.After(wanted):
		return begins.UTC()
	case shown.Before(wanted):
		return ends.UTC()
	}
	if !begins.IsZero() {
		_, before := begins.Add(-time.Nanosecond).Zone()
		_, after := at.Zone()
		if first := at.Add(-time.Duration(before-after) * time.Second); first.Before(begins) && wallClock(first.In(zone)).Equal(wanted) {
			return first.UTC()
		}
	}
	return at.UTC()
}

// wallClock is what a clock in the zone of the time shows, as if it were UTC.
func wallClock(at time.Time) time.Time {
	_, offset := at.Zone()
	return at.UTC().Add(time.Duration(offset) * time.Second)
}

// moveZone lets cycles of the calendar that run in the old zone, and what was carried into them, end at the first midnight
// of the new zone at or after their end, so that a changed zone neither shortens a cycle nor gives a second one. Back in
// the zone in which it began, a cycle ends as it would have: who changes to and fro loses nothing.
func (d *decision) moveZone(zone *time.Location) {
	d.state.Zones.Account = zone
	zone = orUTC(zone)
	for _, g := range d.state.Grants {
		a, known := d.catalog.allowance(g.Allowance)
		if !known || a.Every.Calendar == "" || !g.InForce(d.now) {
			continue
		}
		began, end := calendarCycle(a.Every.Calendar, zone, g.StartsAt)
		if !began.Equal(g.StartsAt) {
			began, end = calendarCycle(Day, zone, g.EndsAt)
			if began.Equal(g.EndsAt) {
				end = began
			}
		}
		if end = latest(end, d.now); !end.Equal(g.EndsAt) {
			g.EndsAt = end
			d.state.touchGrant(g)
		}
	}
	d.advance()
}
