package memory

import (
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast"
)

// rules are the constraints of one table. The names and meanings are those of store/sqlite/migration.
type rules[Row any] []struct {
	name  string
	holds func(*Row) bool
}

// check returns the first rule that the row breaks.
func (all rules[Row]) check(row *Row) error {
	for _, rule := range all {
		if !rule.holds(row) {
			return errors.New(rule.name)
		}
	}
	return nil
}

var accountRules = rules[holdfast.Account]{
	{"account_has_a_project_and_a_name", func(a *holdfast.Account) bool { return a.Project != "" && a.Name != "" }},
	{"version_counts_from_one", func(a *holdfast.Account) bool { return a.Version >= 1 }},
	{"last_entry_is_not_negative", func(a *holdfast.Account) bool { return a.LastEntry >= 0 }},
	{"active_is_not_negative", func(a *holdfast.Account) bool { return a.Active >= 0 }},
	{"account_has_its_times", func(a *holdfast.Account) bool { return !a.CreatedAt.IsZero() && !a.DecidedAt.IsZero() }},
}

var grantRules = rules[holdfast.Grant]{
	{"grant_has_a_unit", func(g *holdfast.Grant) bool { return g.Unit != "" }},
	{"source_is_known", func(g *holdfast.Grant) bool {
		return slices.Contains([]holdfast.Source{holdfast.FromAllowance, "rollover", holdfast.FromPromo, holdfast.FromPurchase, holdfast.FromCorrection}, g.Source)
	}},
	{"priority_is_not_negative", func(g *holdfast.Grant) bool { return g.Priority >= 0 }},
	{"granted_is_a_positive_amount", func(g *holdfast.Grant) bool { return g.Granted >= 1 && g.Granted <= holdfast.MaxAmount }},
	{"reserved_is_not_negative", func(g *holdfast.Grant) bool { return g.Reserved >= 0 }},
	{"used_is_not_negative", func(g *holdfast.Grant) bool { return g.Used >= 0 }},
	{"voided_is_not_negative", func(g *holdfast.Grant) bool { return g.Voided >= 0 }},
	{"reserved_used_and_voided_fit_granted", func(g *holdfast.Grant) bool {
		// One after the other: a sum of three could wrap.
		left := g.Granted
		for _, taken := range []holdfast.Amount{g.Reserved, g.Used, g.Voided} {
			if taken > left {
				return false
			}
			left -= taken
		}
		return true
	}},
	{"grant_ends_after_it_starts", func(g *holdfast.Grant) bool { return g.EndsAt.IsZero() || g.EndsAt.After(g.StartsAt) }},
	{"closed_grant_holds_nothing", func(g *holdfast.Grant) bool { return g.Open || g.Reserved == 0 }},
	{"grant_has_its_times", func(g *holdfast.Grant) bool { return !g.StartsAt.IsZero() && !g.CreatedAt.IsZero() }},
}

var reservationRules = rules[holdfast.Reservation]{
	{"reservation_has_a_feature", func(r *holdfast.Reservation) bool { return r.Feature != "" }},
	{"quantity_is_positive", func(r *holdfast.Reservation) bool { return r.Quantity >= 1 }},
	{"state_is_known", func(r *holdfast.Reservation) bool {
		return slices.Contains([]holdfast.ReservationState{holdfast.Reserved, holdfast.Running, holdfast.Committed, holdfast.Released, holdfast.Expired}, r.State)
	}},
	{"live_reservation_has_not_ended", func(r *holdfast.Reservation) bool { return r.Live() == r.EndedAt.IsZero() }},
	{"price_is_not_negative", func(r *holdfast.Reservation) bool { return r.Price.Amount >= 0 }},
	{"held_is_an_amount", func(r *holdfast.Reservation) bool { return r.Reserved >= 0 && r.Reserved <= holdfast.MaxAmount }},
	{"used_is_not_negative", func(r *holdfast.Reservation) bool { return r.Used >= 0 }},
	{"unbilled_is_not_negative", func(r *holdfast.Reservation) bool { return r.Unbilled >= 0 }},
	{"late_used_is_not_negative", func(r *holdfast.Reservation) bool { return r.LateUsed >= 0 }},
	{"late_use_follows_expiry", func(r *holdfast.Reservation) bool {
		if r.LateAt.IsZero() {
			return r.LateUsed == 0
		}
		return r.State == holdfast.Expired
	}},
	{"refunded_is_not_negative", func(r *holdfast.Reservation) bool { return r.Refunded >= 0 }},
	{"ttl_is_positive", func(r *holdfast.Reservation) bool { return r.TTL > 0 }},
	{"reservation_expires_after_it_begins", func(r *holdfast.Reservation) bool { return r.ExpiresAt.After(r.CreatedAt) }},
	{"attempts_is_not_negative", func(r *holdfast.Reservation) bool { return r.Attempts >= 0 }},
	{"reservation_has_its_times", func(r *holdfast.Reservation) bool { return !r.CreatedAt.IsZero() && !r.ExpiresAt.IsZero() }},
}

var entryRules = rules[holdfast.Entry]{
	{"entries_count_from_one", func(e *holdfast.Entry) bool { return e.No >= 1 }},
	{"entry_has_a_kind", func(e *holdfast.Entry) bool { return e.Kind != "" }},
	{"available_after_is_not_negative", func(e *holdfast.Entry) bool { return e.Available >= 0 }},
	{"reserved_after_is_not_negative", func(e *holdfast.Entry) bool { return e.Reserved >= 0 }},
	{"entry_has_its_times", func(e *holdfast.Entry) bool { return !e.EffectiveAt.IsZero() && !e.RecordedAt.IsZero() }},
}

var answerRules = rules[holdfast.Answer]{
	{"answer_has_a_key", func(a *holdfast.Answer) bool { return a.Key != "" }},
	{"answer_has_its_time", func(a *holdfast.Answer) bool { return !a.RecordedAt.IsZero() }},
}

var eventRules = rules[holdfast.Event]{
	{"event_has_a_kind", func(e *holdfast.Event) bool { return e.Kind != "" }},
	{"figure_is_not_negative", func(e *holdfast.Event) bool { return e.Figure >= 0 }},
	{"event_has_its_time", func(e *holdfast.Event) bool { return !e.At.IsZero() }},
}
