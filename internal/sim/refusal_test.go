package sim_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// pocket is a grant of the naive model: what it was made with, and one number per counter.
type pocket struct {
	holdfast.Grant
	granted, reserved, used, voided holdfast.Amount
}

// moment is an account between two of its entries.
type moment struct {
	pockets []*pocket
	active  int
	known   map[holdfast.ID]bool // reservations that were made
	doubted map[holdfast.ID]bool // and are in doubt
	debts   map[string]holdfast.Amount
	plan    string
	blocked bool
	deleted bool // no window begins any more
}

// refused checks that a "no" which was saved was true at some moment of the save: before it, or between two of its entries.
// It prices and adds up by itself, in the plainest way, from the ledger.
func (w *world) refused(s *save, before *account, answer *record, op holdfast.Operation) {
	name := w.accountName(s.account)
	refusal, reason := answer.outcome.Refusal, answer.outcome.Reason
	asksForMoney := func() {
		if reason == holdfast.AccountBlocked || reason == holdfast.FeatureNotInPlan {
			return
		}
		for _, r := range w.accounts[s.account].listed {
			// A slow sweeper never refuses a paying person. What was asked to stop in the same instant may be overdue only since.
			if r.Overdue(answer.at) && r.ID != holdfast.ReservationOf(op) && !r.CancelRequestedAt.Equal(answer.at) {
				w.breaks("%s is refused %s at %s while its own %s is overdue since %s", name,
					reason, answer.at.Sub(genesis), w.name(r.ID, "r"), r.ExpiresAt.Sub(genesis))
			}
		}
	}
	var expected []string
	reserve, reserves := op.(holdfast.Reserve)
	if charge, ok := op.(holdfast.Charge); ok {
		reserve, reserves = charge.Reserve, true
	}
	extend, extends := op.(holdfast.Extend)
	adjust, adjusts := op.(holdfast.Adjust)
	switch {
	case reserves:
		asksForMoney()
		got := told(reason, refusal)
		for m := range w.moments(s, before) {
			want := m.reserve(reserve, answer.at)
			if want == got {
				w.estimated(name, reserve.Usage, refusal, refusal.Available)
				return
			}
			expected = append(expected, want)
		}
		w.breaks("%s is refused by accident: %s; it should have been one of\n%s", name, got, distinct(expected))
	case extends && refusal != nil:
		asksForMoney()
		r := answer.outcome.Reservation
		got := told(reason, refusal)
		for m := range w.moments(s, before) {
			want := m.grow(extend, r, answer.at)
			if want == got {
				w.estimated(name, extend.Usage, refusal, refusal.Available+r.Reserved)
				return
			}
			expected = append(expected, want)
		}
		w.breaks("%s is refused more by accident: %s; it should have been one of\n%s", name, got, distinct(expected))
	case adjusts && reason == holdfast.Insufficient:
		for m := range w.moments(s, before) {
			available, held := m.sums("", adjust.Unit, answer.at)
			if available < -adjust.Amount && available == refusal.Available && held == refusal.Held {
				return
			}
			expected = append(expected, fmt.Sprintf("available %d, held %d", available, held))
		}
		w.breaks("%s is refused an adjustment of %d by accident: %+v; it had\n%s", name, adjust.Amount, refusal, distinct(expected))
	case reason == holdfast.AccountBlocked && s.row.DeletedAt.IsZero():
		w.breaks("%s is told that it may not be given anything, and it was not deleted", name)
	}
}

// estimated checks what a refusal says would be affordable: it can be paid, and a tenth more of everything could not.
func (w *world) estimated(name string, usage map[string]holdfast.Amount, r *holdfast.Refusal, available holdfast.Amount) {
	if !r.Estimated {
		if r.AffordableUsage != nil {
			w.breaks("%s is told what usage it could pay of what has a fixed price: %v", name, r.AffordableUsage)
		}
		return
	}
	w.seen["told an estimate"]++
	more := map[string]holdfast.Amount{}
	for kind, most := range usage {
		affordable := r.AffordableUsage[kind]
		if affordable < 0 || affordable > most {
			w.breaks("%s asked for %v, and is told that it could pay %v", name, usage, r.AffordableUsage)
		}
		more[kind] = affordable + most/10 + 1
	}
	if cost(byUsage[0], r.AffordableUsage) > available || r.Needed > available && cost(byUsage[0], more) <= available {
		w.breaks("%s has %d, and is told that it could pay %v of %v", name, available, r.AffordableUsage, usage)
	}
}

func distinct(list []string) string {
	slices.Sort(list)
	return strings.Join(slices.Compact(list), "\n")
}

// told is a refusal of a reserve, as far as the naive model knows better.
func told(reason holdfast.Reason, r *holdfast.Refusal) string {
	if reason == holdfast.AccountBlocked || reason == holdfast.FeatureNotInPlan {
		return string(reason)
	}
	return fmt.Sprintf("%s: needs %d %s of %d, held %d, active %d of %d, estimated %t", reason, r.Needed, r.Unit, r.Available, r.Held, r.Active, r.MaxActive, r.Estimated)
}

// moments are the account before the save and after each fact that it tells of, on every plan that it was on meanwhile.
func (w *world) moments(s *save, before *account) func(yield func(*moment) bool) {
	m := newMoment(s, before)
	plans, blocks := []string{m.plan, s.row.Plan}, []bool{m.blocked, s.row.Blocked}
	for _, e := range s.entries {
		if plan, ok := e.PlanSet(); ok {
			plans = append(plans, plan)
		}
	}
	for _, c := range w.open {
		if put, ok := c.intention.do.(holdfast.PutAccount); ok && put.Blocked != nil && c.command.AccountID() == s.account {
			blocks = append(blocks, *put.Blocked)
		}
	}
	return func(yield func(*moment) bool) {
		for i := 0; ; i++ {
			for _, plan := range plans {
				for _, blocked := range blocks {
					m.plan, m.blocked = plan, blocked
					if !yield(m) {
						return
					}
				}
			}
			if i == len(s.events) {
				return
			}
			m.apply(s, &s.events[i])
		}
	}
}

// newMoment is the account before the save.
func newMoment(s *save, before *account) *moment {
	m := &moment{known: map[holdfast.ID]bool{}, doubted: map[holdfast.ID]bool{}, debts: map[string]holdfast.Amount{}}
	if before != nil {
		m.active, m.plan = before.row.Active, before.row.Plan
		m.blocked, m.deleted = before.row.Blocked, !before.row.DeletedAt.IsZero()
		for _, g := range before.order {
			m.pockets = append(m.pockets, &pocket{*g, g.Granted, g.Reserved, g.Used, g.Voided})
		}
		for _, r := range before.listed {
			m.known[r.ID] = true
			m.doubted[r.ID] = r.InDoubt
		}
		maps.Copy(m.debts, before.row.Debts)
	}
	for i := range s.newGrants {
		m.pockets = append(m.pockets, &pocket{Grant: s.newGrants[i]})
	}
	return m
}

// entry is the one that an event tells of, or nil.
func (s *save) entry(e *holdfast.Event) *holdfast.Entry {
	for i := range s.entries {
		if s.entries[i].No == e.Entry {
			return &s.entries[i]
		}
	}
	return nil
}

func (m *moment) apply(s *save, told *holdfast.Event) {
	switch told.Kind {
	case holdfast.EventInDoubt:
		m.active--
		m.doubted[told.Reservation] = true
	case holdfast.EventDeleted:
		m.deleted = true
	}
	e := s.entry(told)
	if e == nil {
		return
	}
	if plan, ok := e.PlanSet(); ok {
		m.plan = plan
	}
	switch e.Kind {
	case holdfast.EntryReserve:
		if !m.known[e.Reservation] { // else it grew
			m.active++
		}
		m.known[e.Reservation] = true
	case holdfast.EntryCommit, holdfast.EntryRelease, holdfast.EntryExpire:
		if !m.doubted[e.Reservation] {
			m.active--
		}
		m.doubted[e.Reservation] = false
	}
	m.debts[e.Unit] += e.Debt
	for _, d := range e.Deltas {
		if p := m.pocket(d.Grant); p != nil {
			p.granted += d.Granted
			p.reserved += d.Reserved
			p.used += d.Used
			p.voided += d.Voided
		}
	}
}

func (m *moment) pocket(id holdfast.ID) *pocket {
	for _, p := range m.pockets {
		if p.ID == id {
			return p
		}
	}
	return nil
}

// sums are what a feature could take of a unit, and what is held in the pockets that it could take it from.
func (m *moment) sums(feature, unit string, at time.Time) (available, held holdfast.Amount) {
	plan := tariff.PlanOf(&holdfast.Account{Plan: m.plan})
	for i := range plan.Allowances {
		a := &plan.Allowances[i]
		begun := slices.ContainsFunc(m.pockets, func(p *pocket) bool {
			return p.granted > 0 && p.Allowance == a.Key && !at.Before(p.StartsAt) && at.Before(p.EndsAt)
		})
		if a.Unit == unit && !begun && a.Every.Rolling > 0 && !m.deleted { // every other cycle is opened before anything is decided
			available += a.Amount
		}
	}
	for _, p := range m.pockets {
		fits := feature == "" || len(p.Features) == 0 || slices.Contains(p.Features, feature)
		if p.Unit == unit && fits && !at.Before(p.StartsAt) && (p.EndsAt.IsZero() || at.Before(p.EndsAt)) {
			available += p.granted - p.reserved - p.used - p.voided
			held += p.reserved
		}
	}
	return available, held
}

// reserve is what a reserve would be told.
func (m *moment) reserve(op holdfast.Reserve, at time.Time) string {
	plan := tariff.PlanOf(&holdfast.Account{Plan: m.plan})
	switch {
	case m.blocked:
		return string(holdfast.AccountBlocked)
	case !slices.Contains(plan.Features, op.Feature):
		return string(holdfast.FeatureNotInPlan)
	}
	feature, _ := tariff.Feature(op.Feature)
	quantity := max(1, op.Quantity)
	say := func(reason holdfast.Reason, r holdfast.Refusal) string {
		r.Active, r.MaxActive = m.active, plan.MaxActive
		return told(reason, &r)
	}
	var first, last *holdfast.Refusal
	for _, price := range feature.Prices {
		r := holdfast.Refusal{Unit: price.Unit, Needed: price.Amount * quantity, Estimated: price.ByUsage()}
		if price.ByUsage() {
			r.Needed = cost(price, op.Usage)
		}
		if slices.Contains(plan.FreeFeatures, op.Feature) {
			r.Needed, r.Estimated = 0, false
		}
		r.Available, r.Held = m.sums(op.Feature, price.Unit, at)
		if r.Available >= r.Needed {
			if m.active < plan.MaxActive {
				return "done"
			}
			return say(holdfast.TooManyActive, r)
		}
		if first == nil && r.Available+r.Held >= r.Needed {
			first = &r
		}
		last = &r
	}
	if first != nil {
		return say(holdfast.HeldByActive, *first)
	}
	return say(holdfast.Insufficient, *last)
}

// grow is what an extension to a larger bound would be told.
func (m *moment) grow(op holdfast.Extend, r *holdfast.Reservation, at time.Time) string {
	plan := tariff.PlanOf(&holdfast.Account{Plan: m.plan})
	switch {
	case m.blocked:
		return string(holdfast.AccountBlocked)
	case !slices.Contains(plan.Features, r.Feature):
		return string(holdfast.FeatureNotInPlan)
	}
	refusal := holdfast.Refusal{
		Unit: r.Price.Unit, Needed: bound(op, r) - r.Reserved, Active: m.active, MaxActive: plan.MaxActive, Estimated: r.Price.ByUsage(),
	}
	refusal.Available, refusal.Held = m.sums(r.Feature, r.Price.Unit, at)
	switch {
	case refusal.Available >= refusal.Needed:
		return "done"
	case refusal.Available+refusal.Held >= refusal.Needed:
		return told(holdfast.HeldByActive, &refusal)
	}
	return told(holdfast.Insufficient, &refusal)
}
