package holdfast

import (
	"iter"
	"time"
)

// Rewind is the account as it was believed to be at an earlier moment: what was recorded after it is taken back. The
// state must hold every grant of the account, open or not; the entries come newest first, and are read as far as needed.
// Show the result with View, at that moment. Of reservations nothing is known any more. What no entry tells of (zone,
// language, blocked) is as it is now.
func Rewind(state *State, entries iter.Seq2[Entry, error], to time.Time) (*State, error) {
	past := state.Clone()
	past.Reservations, past.Account.Active = nil, 0
	account := &past.Account
	replanned := false // since then: look further back for the plan of that moment
	for e, err := range entries {
		if err != nil {
			return nil, err
		}
		plan, planned := e.PlanSet()
		if !e.RecordedAt.After(to) {
			if replanned && !planned {
				continue
			}
			if replanned {
				account.Plan, account.Anchor, replanned = plan, e.EffectiveAt, false
			}
			break
		}
		if planned && !replanned {
			account.Plan, account.Anchor, replanned = "", time.Time{}, true
		}
		past.takeBack(&e)
	}
	kept := past.Grants[:0]
	for _, g := range past.Grants {
		if g.Granted > 0 {
			g.Open = g.shouldBeOpen(to)
			kept = append(kept, g)
		}
	}
	past.Grants = kept
	account.Subscription = past.subscriptionAt(to)
	account.DecidedAt = to
	if account.CreatedAt.After(to) {
		account.Version, account.Plan, account.Anchor, account.CreatedAt = 0, "", time.Time{}, time.Time{} // nobody had seen it yet
	}
	if account.DeletedAt.After(to) {
		account.DeletedAt, account.Blocked = time.Time{}, false
	}
	return past, nil
}

// subscriptionAt is what was paid for at an earlier moment, as far as it is still to be seen: what is paid for now, where that
// had begun; else the last period whose allowance had been opened.
func (s *State) subscriptionAt(to time.Time) *Subscription {
	var last *Grant
	given := false // the allowance of the period of now
	period, paid := s.Account.Subscription.periodAt(to)
	for _, g := range s.Grants {
		if g.Payment.IsZero() || g.Allowance == "" || g.Source != FromAllowance || g.StartsAt.After(to) {
			continue
		}
		given = given || paid && g.Payment == period.Payment
		if last == nil || g.StartsAt.After(last.StartsAt) {
			last = g
		}
	}
	switch {
	case paid && (given || !period.Given):
		return s.Account.Subscription
	case last == nil || last.Revoked == last.Granted:
		return nil
	}
	return &Subscription{
		Anchor:  last.StartsAt,
		Periods: []PaidPeriod{{Plan: s.Account.Plan, Start: last.StartsAt, End: last.EndsAt, Payment: last.Payment, Given: true}},
	}
}
