package memory

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Rows are copied whole on their way in and out, and come out as a database gives them back: times in microseconds and
// UTC, empty lists and maps as nil.

func stored(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}

func copyList[T any](list []T) []T {
	if len(list) == 0 {
		return nil
	}
	return slices.Clone(list)
}

func copyMap[V any](pairs map[string]V) map[string]V {
	if len(pairs) == 0 {
		return nil
	}
	return maps.Clone(pairs)
}

func copyAccount(a holdfast.Account) holdfast.Account {
	a.Metadata = copyMap(a.Metadata)
	a.Debts = copyMap(a.Debts)
	a.Names = copyList(a.Names)
	a.Subscription = copySubscription(a.Subscription)
	a.Transfers = copyTransfers(a.Transfers)
	a.CreatedAt, a.DecidedAt = stored(a.CreatedAt), stored(a.DecidedAt)
	a.Anchor, a.DeletedAt = stored(a.Anchor), stored(a.DeletedAt)
	return a
}

// copyTransfers goes through the JSON that the SQL stores keep.
func copyTransfers(from []holdfast.Transfer) (copied []holdfast.Transfer) {
	text, err := json.Marshal(from)
	if err == nil {
		err = json.Unmarshal(text, &copied)
	}
	if err != nil {
		panic("memory: " + err.Error()) // they are made of plain values
	}
	return copied
}

func copyGrant(from *holdfast.Grant) *holdfast.Grant {
	g := *from
	g.Features = copyList(g.Features)
	g.StartsAt, g.EndsAt, g.CreatedAt = stored(g.StartsAt), stored(g.EndsAt), stored(g.CreatedAt)
	return &g
}

func copyReservation(from *holdfast.Reservation) *holdfast.Reservation {
	r := *from
	r.Allocations = copyList(r.Allocations)
	r.Metadata, r.Usage, r.Reported = copyMap(r.Metadata), copyMap(r.Usage), copyMap(r.Reported)
	r.Price.Rates = copyMap(r.Price.Rates)
	r.Job = copyJob(r.Job)
	r.CancelRequestedAt = stored(r.CancelRequestedAt)
	r.TTL = r.TTL.Truncate(time.Microsecond)
	r.CreatedAt, r.ExpiresAt, r.EndedAt = stored(r.CreatedAt), stored(r.ExpiresAt), stored(r.EndedAt)
	r.LateAt, r.LeaseExpiresAt = stored(r.LateAt), stored(r.LeaseExpiresAt)
	return &r
}

func copyPayment(from *holdfast.Payment) *holdfast.Payment {
	p := *from
	p.Refunds = copyList(p.Refunds)
	p.PeriodStart, p.PeriodEnd, p.PaidAt = stored(p.PeriodStart), stored(p.PeriodEnd), stored(p.PaidAt)
	return &p
}

func copySubscription(from *holdfast.Subscription) *holdfast.Subscription {
	if from == nil {
		return nil
	}
	s := *from
	s.Anchor, s.Periods = stored(s.Anchor), nil
	for _, p := range from.Periods {
		p.Start, p.End = stored(p.Start), stored(p.End)
		s.Periods = append(s.Periods, p)
	}
	return &s
}

func copyEntry(from *holdfast.Entry) *holdfast.Entry {
	e := *from
	e.Deltas = copyList(e.Deltas)
	e.EffectiveAt, e.RecordedAt = stored(e.EffectiveAt), stored(e.RecordedAt)
	return &e
}

// answer is kept as the JSON that the SQL stores keep: what JSON loses is lost here too, where tests can see it.
type answer struct {
	row     holdfast.Answer // without its outcome
	outcome []byte
}

func keep(given *holdfast.Answer) (answer, error) {
	kept := answer{row: *given}
	kept.row.Outcome, kept.row.RecordedAt = holdfast.Outcome{}, stored(given.RecordedAt)
	if err := answerRules.check(&kept.row); err != nil {
		return kept, err
	}
	var err error
	kept.outcome, err = json.Marshal(given.Outcome)
	return kept, err
}

func (a answer) load() (*holdfast.Answer, error) {
	loaded := a.row
	err := json.Unmarshal(a.outcome, &loaded.Outcome)
	return &loaded, err
}
