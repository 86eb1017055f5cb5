package sim_test

import (
	"fmt"
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
	plan    string
	blocked bool
}

// refused checks that a "no" which was saved was true at some moment of the save: before it, or between two of its entries.
// It prices and adds up by itself, in the plainest way, from the ledger.
func (w *world) refused(s *save, before *account, answer *record, op holdfast.Operation) {
	name := w.accountName(s.account)
	refusal := answer.outcome.Refusal
	var expected []string
	switch op := op.(type) {
	case holdfast.Reserve:
		money := answer.outcome.Reason != holdfast.AccountBlocked && answer.outcome.Reason != holdfast.FeatureNotInPlan
		for _, r := range w.accounts[s.account].listed {
			if money && r.Overdue(answer.at) { // a slow sweeper never refuses a paying person
				w.breaks("%s is refused %s at %s while its own %s is overdue since %s", name,
					answer.outcome.Reason, answer.at.Sub(genesis), w.name(r.ID, "r"), r.ExpiresAt.Sub(genesis))
			}
		}
		got := told(answer.outcome.Reason, refusal)
		for m := range w.moments(s, before) {
			want := m.reserve(op, answer.at)
			if want == got {
				return
			}
			expected = append(expected, want)
		}
		w.breaks("%s is refused by accident: %s; it should have been one of\n%s", name, got, distinct(expected))
	case holdfast.Adjust:
		for m := range w.moments(s, before) {
			available, held := m.sums("", op.Unit, answer.at)
			if available < -op.Amount && available == refusal.Available && held == refusal.Held {
				return
			}
			expected = append(expected, fmt.Sprintf("available %d, held %d", available, held))
		}
		w.breaks("%s is refused an adjustment of %d by accident: %+v; it had\n%s", name, op.Amount, refusal, distinct(expected))
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
	return fmt.Sprintf("%s: needs %d %s of %d, held %d, active %d of %d", reason, r.Needed, r.Unit, r.Available, r.Held, r.Active, r.MaxActive)
}

// moments are the account before the save and after each of its entries, on every plan that it was on meanwhile.
func (w *world) moments(s *save, before *account) func(yield func(*moment) bool) {
	plans, blocks := []string{s.row.Plan}, []bool{s.row.Blocked}
	m := &moment{}
	if before != nil {
		plans, blocks = append(plans, before.row.Plan), append(blocks, before.row.Blocked)
		m.active = before.row.Active
		for _, g := range before.order {
			m.pockets = append(m.pockets, &pocket{*g, g.Granted, g.Reserved, g.Used, g.Voided})
		}
	}
	for i := range s.newGrants {
		m.pockets = append(m.pockets, &pocket{Grant: s.newGrants[i]})
	}
	for _, e := range s.entries {
		if plan, ok := strings.CutPrefix(e.Reason, "plan "); ok && e.Kind == holdfast.EntrySubscription {
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
			if i == len(s.entries) {
				return
			}
			m.apply(&s.entries[i])
		}
	}
}

func (m *moment) apply(e *holdfast.Entry) {
	switch e.Kind {
	case holdfast.EntryReserve:
		m.active++
	case holdfast.EntryCommit, holdfast.EntryRelease, holdfast.EntryExpire:
		m.active--
	}
	for _, d := range e.Deltas {
		for _, p := range m.pockets {
			if p.ID == d.Grant {
				p.granted += d.Granted
				p.reserved += d.Reserved
				p.used += d.Used
				p.voided += d.Voided
			}
		}
	}
}

// sums are what a feature could take of a unit, and what is held in the pockets that it could take it from.
func (m *moment) sums(feature, unit string, at time.Time) (available, held holdfast.Amount) {
	plan := tariff.PlanOf(&holdfast.Account{Plan: m.plan})
	for i := range plan.Allowances {
		a := &plan.Allowances[i]
		begun := slices.ContainsFunc(m.pockets, func(p *pocket) bool {
			return p.granted > 0 && p.Allowance == a.Key && !at.Before(p.StartsAt) && at.Before(p.EndsAt)
		})
		if a.Unit == unit && !begun {
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
		r := holdfast.Refusal{Unit: price.Unit, Needed: price.Amount * quantity}
		if slices.Contains(plan.FreeFeatures, op.Feature) {
			r.Needed = 0
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
