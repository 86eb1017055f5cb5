package store

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// PackOutcome is an answer's column "outcome": its JSON, byte for byte as package json writes it, and read by package json.
// What most answers have is written here without reflection, which takes a third of the time; an outcome with anything else
// goes to package json whole.
func PackOutcome(o *holdfast.Outcome) (string, error) {
	job := o.Reservation != nil && o.Reservation.Job != nil
	if o.Problems == nil && o.Refusal == nil && o.Grant == nil && o.Account == nil && o.Payment == nil && !job {
		w := writer{text: make([]byte, 0, usualOutcome)}
		w.outcome(o)
		if !w.failed {
			return string(w.text), nil
		}
	}
	return pack(o)
}

// usualOutcome is room for most of them, in bytes.
const usualOutcome = 896

// writer writes JSON. It fails where it is not sure what package json would write.
type writer struct {
	text   []byte
	failed bool
}

// name begins a field, behind a comma where it is not the first of its object.
func (w *writer) name(name string) {
	if last := w.text[len(w.text)-1]; last != '{' && last != '[' {
		w.text = append(w.text, ',')
	}
	w.text = append(append(append(w.text, '"'), name...), '"', ':')
}

func (w *writer) begin(name string) {
	w.name(name)
	w.text = append(w.text, '{')
}

func (w *writer) end() { w.text = append(w.text, '}') }

func (w *writer) number(name string, value int64) {
	w.name(name)
	w.text = strconv.AppendInt(w.text, value, 10)
}

// The fields below are left out where they are zero.

func (w *writer) amount(name string, value holdfast.Amount) {
	if value != 0 {
		w.number(name, int64(value))
	}
}

func (w *writer) mark(name string, value bool) {
	if value {
		w.name(name)
		w.text = append(w.text, "true"...)
	}
}

func (w *writer) word(name, value string) {
	if value != "" {
		w.name(name)
		w.quoted(value)
	}
}

func (w *writer) time(name string, at time.Time) {
	if !at.IsZero() {
		w.moment(name, at)
	}
}

func (w *writer) amounts(name string, values map[string]holdfast.Amount) {
	if values == nil {
		return
	}
	w.begin(name)
	for i, key := range slices.Sorted(maps.Keys(values)) {
		w.key(i, key)
		w.text = strconv.AppendInt(w.text, int64(values[key]), 10)
	}
	w.end()
}

func (w *writer) words(name string, values map[string]string) {
	if values == nil {
		return
	}
	w.begin(name)
	for i, key := range slices.Sorted(maps.Keys(values)) {
		w.key(i, key)
		w.quoted(values[key])
	}
	w.end()
}

// key is one that a caller has chosen.
func (w *writer) key(i int, key string) {
	if i > 0 {
		w.text = append(w.text, ',')
	}
	w.quoted(key)
	w.text = append(w.text, ':')
}

// moment writes a time also where it is zero.
func (w *writer) moment(name string, at time.Time) {
	if _, offset := at.Zone(); offset != 0 || at.Year() < 0 || at.Year() > 9999 {
		w.failed = true
	}
	w.name(name)
	w.text = append(at.AppendFormat(append(w.text, '"'), time.RFC3339Nano), '"')
}

func (w *writer) id(name string, id holdfast.ID) {
	w.name(name)
	w.text = append(w.text, '"')
	for i, part := range [][]byte{id[:4], id[4:6], id[6:8], id[8:10], id[10:]} {
		if i > 0 {
			w.text = append(w.text, '-')
		}
		w.text = hex.AppendEncode(w.text, part)
	}
	w.text = append(w.text, '"')
}

// quoted writes a text; one that must be escaped is left to package json.
func (w *writer) quoted(text string) {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			escaped, err := json.Marshal(text)
			w.failed = w.failed || err != nil
			w.text = append(w.text, escaped...)
			return
		}
	}
	w.text = append(append(append(w.text, '"'), text...), '"')
}

func (w *writer) outcome(o *holdfast.Outcome) {
	w.text = append(w.text, '{')
	w.word("Reason", string(o.Reason))
	w.mark("Changed", o.Changed)
	w.mark("First", o.First)
	if o.Reservation != nil {
		w.reservation(o.Reservation)
	}
	if b := o.Balance; b != nil {
		w.begin("Balance")
		w.name("Unit")
		w.quoted(b.Unit)
		w.number("Available", int64(b.Available))
		w.number("Reserved", int64(b.Reserved))
		w.number("Debt", int64(b.Debt))
		if c := b.Cycle; c != nil {
			w.begin("Cycle")
			w.number("Granted", int64(c.Granted))
			w.number("Used", int64(c.Used))
			w.number("Reserved", int64(c.Reserved))
			w.amount("Voided", c.Voided)
			w.time("StartsAt", c.StartsAt)
			w.time("EndsAt", c.EndsAt)
			w.end()
		}
		w.time("ResetsAt", b.ResetsAt)
		w.end()
	}
	if l := o.Lease; l != nil {
		w.begin("Lease")
		w.word("Token", l.Token)
		w.time("ExpiresAt", l.ExpiresAt)
		w.end()
	}
	if s := o.Settlement; s != nil {
		w.begin("Settlement")
		w.amount("Returned", s.Returned)
		w.amount("Voided", s.Voided)
		w.amount("Unbilled", s.Unbilled)
		w.mark("Late", s.Late)
		w.mark("MayContinue", s.MayContinue)
		w.end()
	}
	w.end()
}

func (w *writer) reservation(r *holdfast.Reservation) {
	w.begin("Reservation")
	w.id("ID", r.ID)
	w.name("Feature")
	w.quoted(r.Feature)
	w.number("Quantity", int64(r.Quantity))
	w.name("State")
	w.quoted(string(r.State))

	w.begin("Price")
	w.name("Unit")
	w.quoted(r.Price.Unit)
	w.amount("Amount", r.Price.Amount)
	w.amount("Per", r.Price.Per)
	w.amounts("Rates", r.Price.Rates)
	w.end()
	if p := r.Policies; p != (holdfast.Policies{}) {
		w.begin("Policies")
		w.word("Overrun", string(p.Overrun))
		w.word("InDoubt", string(p.InDoubt))
		w.word("LateCommit", string(p.LateCommit))
		w.word("CancelRunning", string(p.CancelRunning))
		w.end()
	}
	w.allocations(r.Allocations)

	w.number("Reserved", int64(r.Reserved))
	w.amount("Used", r.Used)
	w.amount("Debt", r.Debt)
	w.amount("Unbilled", r.Unbilled)
	w.amount("Voided", r.Voided)
	w.amount("LateUsed", r.LateUsed)
	w.amount("Refunded", r.Refunded)
	w.time("LateAt", r.LateAt)

	w.word("Key", r.Key)
	w.word("Surface", r.Surface)
	w.words("Metadata", r.Metadata)
	w.amounts("Usage", r.Usage)
	w.amounts("Reported", r.Reported)
	w.number("CatalogVersion", r.CatalogVersion)

	w.mark("InDoubt", r.InDoubt)
	w.time("CancelRequestedAt", r.CancelRequestedAt)

	w.number("TTL", int64(r.TTL))
	if r.MaxHold != 0 {
		w.number("MaxHold", int64(r.MaxHold))
	}
	w.moment("CreatedAt", r.CreatedAt)
	w.moment("ExpiresAt", r.ExpiresAt)
	w.time("EndedAt", r.EndedAt)
	w.word("Cause", r.Cause)

	w.word("Worker", r.Worker)
	w.word("LeaseToken", r.LeaseToken)
	w.time("LeaseExpiresAt", r.LeaseExpiresAt)
	if r.Attempts != 0 {
		w.number("Attempts", int64(r.Attempts))
	}
	w.end()
}

func (w *writer) allocations(list []holdfast.Allocation) {
	if list == nil {
		return
	}
	w.name("Allocations")
	w.text = append(w.text, '[')
	for i := range list {
		a := &list[i]
		if i > 0 {
			w.text = append(w.text, ',')
		}
		w.text = append(w.text, '{')
		w.id("Grant", a.Grant)
		w.name("Source")
		w.quoted(string(a.Source))
		w.amount("Reserved", a.Reserved)
		w.amount("Used", a.Used)
		w.amount("Refunded", a.Refunded)
		w.end()
	}
	w.text = append(w.text, ']')
}
