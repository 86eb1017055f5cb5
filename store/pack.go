package store

import (
	"encoding/json"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// What few rows have, and no statement ever looks into, is kept as one text of JSON per row, the empty text where a row
// has none of it: a column of its own would cost every row that goes through a batch.

// standing is what few accounts have.
type standing struct {
	Debts        map[string]holdfast.Amount `json:"debts,omitempty"`
	Subscription *holdfast.Subscription     `json:"subscription,omitempty"`
	Lapsed       string                     `json:"lapsed,omitempty"`
	MergedInto   holdfast.AccountID         `json:"merged_into,omitzero"`
	Merging      holdfast.Merging           `json:"merging,omitzero"`
	Names        []holdfast.AccountID       `json:"names,omitempty"`
	Line         int                        `json:"line,omitempty"`
	Anchor       time.Time                  `json:"anchor,omitzero"`
	AnchorZone   string                     `json:"anchor_zone,omitempty"`
	DeletedAt    time.Time                  `json:"deleted_at,omitzero"`
}

// PackAccount is an account's column "standing".
func PackAccount(a *holdfast.Account) (string, error) {
	if len(a.Debts) == 0 && a.Subscription == nil && a.Lapsed == "" && a.MergedInto.IsZero() && a.Merging == (holdfast.Merging{}) && len(a.Names) == 0 && a.Line == 0 && a.Anchor.IsZero() && a.AnchorZone == "" && a.DeletedAt.IsZero() {
		return "", nil
	}
	return pack(standing{a.Debts, inMicroseconds(a.Subscription), a.Lapsed, a.MergedInto, a.Merging, a.Names, a.Line, stored(a.Anchor), a.AnchorZone, stored(a.DeletedAt)})
}

// UnpackAccount reads the column "standing".
func UnpackAccount(text string, a *holdfast.Account) error {
	var s standing
	err := unpack(text, &s)
	a.Debts, a.Subscription, a.Lapsed, a.MergedInto, a.Merging = s.Debts, s.Subscription, s.Lapsed, s.MergedInto, s.Merging
	a.Names, a.Line = s.Names, s.Line
	a.Anchor, a.AnchorZone, a.DeletedAt = s.Anchor, s.AnchorZone, s.DeletedAt
	return err
}

// PackTransfers is an account's column "transfers", by which those that are on their way are found.
func PackTransfers(a *holdfast.Account) (string, error) {
	if len(a.Transfers) == 0 {
		return "", nil
	}
	return pack(a.Transfers)
}

// UnpackTransfers reads the column "transfers".
func UnpackTransfers(text string, a *holdfast.Account) error { return unpack(text, &a.Transfers) }

func inMicroseconds(s *holdfast.Subscription) *holdfast.Subscription {
	if s == nil {
		return nil
	}
	kept := *s
	kept.Anchor = stored(s.Anchor)
	kept.Periods = nil
	for _, p := range s.Periods {
		p.Start, p.End = stored(p.Start), stored(p.End)
		kept.Periods = append(kept.Periods, p)
	}
	return &kept
}

// history is what happens to few grants.
type history struct {
	Rolled  holdfast.Amount `json:"rolled,omitempty"`
	Moved   holdfast.Amount `json:"moved,omitempty"`
	Revoked holdfast.Amount `json:"revoked,omitempty"`
	Doomed  holdfast.Amount `json:"doomed,omitempty"`
}

// PackGrant is a grant's column "history".
func PackGrant(g *holdfast.Grant) (string, error) {
	if g.Rolled == 0 && g.Moved == 0 && g.Revoked == 0 && g.Doomed == 0 {
		return "", nil
	}
	return pack(history{g.Rolled, g.Moved, g.Revoked, g.Doomed})
}

// UnpackGrant reads the column "history".
func UnpackGrant(text string, g *holdfast.Grant) error {
	var h history
	err := unpack(text, &h)
	g.Rolled, g.Moved, g.Revoked, g.Doomed = h.Rolled, h.Moved, h.Revoked, h.Doomed
	return err
}

// PackPayment is a payment's column "record": all of it but its ids.
func PackPayment(p *holdfast.Payment) (string, error) {
	kept := *p
	kept.PeriodStart, kept.PeriodEnd, kept.PaidAt = stored(p.PeriodStart), stored(p.PeriodEnd), stored(p.PaidAt)
	return pack(kept)
}

// UnpackPayment reads the column "record".
func UnpackPayment(text string, p *holdfast.Payment) error { return unpack(text, p) }

// terms is what of a reservation is frozen and not the default.
type terms struct {
	Per      holdfast.Amount            `json:"per,omitempty"`
	Rates    map[string]holdfast.Amount `json:"rates,omitempty"`
	Policies holdfast.Policies          `json:"policies,omitzero"`
	MaxHold  time.Duration              `json:"max_hold,omitempty"` // nanoseconds
	Queue    string                     `json:"queue,omitempty"`    // of its job; empty: it has none
	Attempts int                        `json:"attempts,omitempty"` // that the job may have
	Notice   bool                       `json:"notice,omitempty"`   // of the job
}

// PackTerms is a reservation's column "terms", which is written once.
func PackTerms(r *holdfast.Reservation) (string, error) {
	if r.Price.Per == 0 && r.Policies == (holdfast.Policies{}) && r.MaxHold == 0 && r.Job == nil {
		return "", nil
	}
	frozen := terms{Per: r.Price.Per, Rates: r.Price.Rates, Policies: r.Policies, MaxHold: r.MaxHold}
	if r.Job != nil {
		frozen.Queue, frozen.Attempts, frozen.Notice = r.Job.Queue, r.Job.MaxAttempts, r.Job.Notice
	}
	return pack(frozen)
}

// UnpackTerms reads the column "terms".
func UnpackTerms(text string, r *holdfast.Reservation) error {
	var t terms
	err := unpack(text, &t)
	r.Price.Per, r.Price.Rates, r.Policies, r.MaxHold = t.Per, t.Rates, t.Policies, t.MaxHold
	if t.Queue != "" {
		r.Job = &holdfast.Job{Queue: t.Queue, MaxAttempts: t.Attempts, Notice: t.Notice}
	}
	return err
}

// course is what happens to few reservations.
type course struct {
	Debt              holdfast.Amount            `json:"debt,omitempty"`
	Voided            holdfast.Amount            `json:"voided,omitempty"`
	Reported          map[string]holdfast.Amount `json:"reported,omitempty"`
	InDoubt           bool                       `json:"in_doubt,omitempty"`
	CancelRequestedAt time.Time                  `json:"cancel_requested_at,omitzero"`
	Crashes           int                        `json:"crashes,omitempty"` // of its job
	Errors            int                        `json:"errors,omitempty"`
	Attempts          []holdfast.Attempt         `json:"attempts,omitempty"`
}

// PackCourse is a reservation's column "course".
func PackCourse(r *holdfast.Reservation) (string, error) {
	c := course{Debt: r.Debt, Voided: r.Voided, Reported: r.Reported, InDoubt: r.InDoubt, CancelRequestedAt: stored(r.CancelRequestedAt)}
	if r.Job != nil {
		c.Crashes, c.Errors = r.Job.Crashes, r.Job.Errors
		for _, a := range r.Job.Attempts {
			a.StartedAt, a.EndedAt = stored(a.StartedAt), stored(a.EndedAt)
			c.Attempts = append(c.Attempts, a)
		}
	}
	if c.Debt == 0 && c.Voided == 0 && len(c.Reported) == 0 && !c.InDoubt && c.CancelRequestedAt.IsZero() && c.Crashes+c.Errors+len(c.Attempts) == 0 {
		return "", nil
	}
	return pack(c)
}

// UnpackCourse reads the column "course", after UnpackTerms.
func UnpackCourse(text string, r *holdfast.Reservation) error {
	var c course
	err := unpack(text, &c)
	r.Debt, r.Voided, r.Reported, r.InDoubt, r.CancelRequestedAt = c.Debt, c.Voided, c.Reported, c.InDoubt, c.CancelRequestedAt
	if r.Job != nil {
		r.Job.Crashes, r.Job.Errors, r.Job.Attempts = c.Crashes, c.Errors, c.Attempts
	}
	return err
}

// PackDeltas are an entry's deltas as they are stored: debt, where the entry knows of one, stands behind them as the delta
// of no grant, what it added as granted and what was owed after it as reserved.
func PackDeltas(e *holdfast.Entry) []holdfast.Delta {
	if e.Debt == 0 && e.Owed == 0 {
		return e.Deltas
	}
	return append(e.Deltas[:len(e.Deltas):len(e.Deltas)], holdfast.Delta{Granted: e.Debt, Reserved: e.Owed})
}

// UnpackDeltas puts stored deltas back into the entry.
func UnpackDeltas(stored []holdfast.Delta, e *holdfast.Entry) {
	if n := len(stored) - 1; n >= 0 && stored[n].Grant.IsZero() {
		e.Debt, e.Owed = stored[n].Granted, stored[n].Reserved
		stored = stored[:n]
	}
	if len(stored) > 0 {
		e.Deltas = stored
	}
}

func pack(value any) (string, error) {
	text, err := json.Marshal(value)
	return string(text), err
}

func unpack(text string, into any) error {
	if text == "" {
		return nil
	}
	return json.Unmarshal([]byte(text), into)
}

// stored is a time as every store keeps it.
func stored(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return time.UnixMicro(t.UnixMicro()).UTC()
}
