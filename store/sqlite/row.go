package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// errRow is the cause where a stored row does not hold what the schema promises: the file was damaged, or written by
// something else.
var errRow = errors.New("a stored row is not as it was written")

// row reads a result's columns from left to right. The first column that is not what it should be is kept in err.
type row struct {
	values []driver.Value
	next   int
	err    error
}

func column[T any](r *row) (value T) {
	read := r.values[r.next]
	value, ok := read.(T)
	if !ok {
		r.fail(fmt.Errorf("%w: column %d holds a %T", errRow, r.next+1, read))
	}
	r.next++
	return value
}

func (r *row) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *row) isNull() bool { return r.values[r.next] == nil }

func (r *row) text() string            { return column[string](r) }
func (r *row) number() int64           { return column[int64](r) }
func (r *row) amount() holdfast.Amount { return holdfast.Amount(column[int64](r)) }
func (r *row) flag() bool              { return column[int64](r) != 0 }
func (r *row) at() time.Time           { return time.UnixMicro(column[int64](r)).UTC() }

// timeOrNone reads NULL as the zero time.
func (r *row) timeOrNone() time.Time {
	if r.isNull() {
		r.next++
		return time.Time{}
	}
	return r.at()
}

func (r *row) bytes16() (id [16]byte) {
	raw := column[[]byte](r)
	if len(raw) != len(id) {
		r.fail(fmt.Errorf("%w: column %d holds %d bytes", errRow, r.next, len(raw)))
		return id
	}
	return [16]byte(raw)
}

func (r *row) id() holdfast.ID             { return r.bytes16() }
func (r *row) account() holdfast.AccountID { return r.bytes16() }

// idOrNone reads NULL as the zero id.
func (r *row) idOrNone() holdfast.ID {
	if r.isNull() {
		r.next++
		return holdfast.ID{}
	}
	return r.id()
}

// list reads JSON into a list or a map; NULL leaves it nil.
func (r *row) list(into any) {
	if r.isNull() {
		r.next++
		return
	}
	if err := json.Unmarshal([]byte(r.text()), into); err != nil {
		r.fail(fmt.Errorf("%w: %w", errRow, err))
	}
}

// packed reads a text that package store has packed; NULL is the empty text.
func (r *row) packed(unpack func(string) error) {
	text := ""
	if r.isNull() {
		r.next++
	} else {
		text = r.text()
	}
	if err := unpack(text); err != nil {
		r.fail(fmt.Errorf("%w: %w", errRow, err))
	}
}

// textOrNone writes the empty text as NULL.
func textOrNone(text string) driver.Value {
	if text == "" {
		return nil
	}
	return text
}

// What follows turns values into what the driver takes: integers, texts, bytes and NULL.

func flag(yes bool) driver.Value {
	if yes {
		return int64(1)
	}
	return int64(0)
}

// at writes a time that every row has; the zero time becomes NULL, and the column's NOT NULL refuses it.
func at(t time.Time) driver.Value { return timeOrNone(t) }

func timeOrNone(t time.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return t.UnixMicro()
}

func idOrNone(id holdfast.ID) driver.Value {
	if id.IsZero() {
		return nil
	}
	return id[:]
}

// jsonOrNone writes a list or a map, an empty one as NULL.
func jsonOrNone(value any, length int) (driver.Value, error) {
	if length == 0 {
		return nil, nil
	}
	text, err := json.Marshal(value)
	return string(text), err
}

// accountColumns and the like are the columns in the order in which readAccount and the like read them.
const accountColumns = `account_id, project, name, version, last_entry, active, plan, language, time_zone, blocked, notices, metadata, created_at, decided_at, standing, transfers`

func readAccount(r *row) (a holdfast.Account) {
	a.ID, a.Project, a.Name = r.account(), r.text(), r.text()
	a.Version, a.LastEntry, a.Active = r.number(), r.number(), int(r.number())
	a.Plan, a.Language, a.TimeZone = r.text(), r.text(), r.text()
	a.Blocked, a.Notices = r.flag(), r.flag()
	r.list(&a.Metadata)
	a.CreatedAt, a.DecidedAt = r.at(), r.at()
	r.packed(func(text string) error { return store.UnpackAccount(text, &a) })
	r.packed(func(text string) error { return store.UnpackTransfers(text, &a) })
	return a
}

const grantColumns = `grant_id, unit, source, allowance, features, priority, granted, reserved, used, voided, starts_at, ends_at, created_at, open, payment, history`

func readGrant(r *row) *holdfast.Grant {
	g := &holdfast.Grant{}
	g.ID, g.Unit, g.Source, g.Allowance = r.id(), r.text(), holdfast.Source(r.text()), r.text()
	r.list(&g.Features)
	g.Priority = int(r.number())
	g.Granted, g.Reserved, g.Used, g.Voided = r.amount(), r.amount(), r.amount(), r.amount()
	g.StartsAt, g.EndsAt, g.CreatedAt = r.at(), r.timeOrNone(), r.at()
	g.Open, g.Payment = r.flag(), r.idOrNone()
	r.packed(func(text string) error { return store.UnpackGrant(text, g) })
	return g
}

const reservationColumns = `reservation_id, feature, quantity, state, price_unit, price_amount, allocations,
	reserved, used, unbilled, late_used, refunded, late_at, key, surface, metadata, usage, catalog_version,
	ttl_microseconds, created_at, expires_at, ended_at, cause, worker, lease_token, lease_expires_at, attempts, terms, course`

func readReservation(r *row) *holdfast.Reservation {
	v := &holdfast.Reservation{}
	v.ID, v.Feature, v.Quantity, v.State = r.id(), r.text(), r.amount(), holdfast.ReservationState(r.text())
	v.Price.Unit, v.Price.Amount = r.text(), r.amount()
	var allocations []allocation
	r.list(&allocations)
	for _, a := range allocations {
		v.Allocations = append(v.Allocations, holdfast.Allocation(a))
	}
	v.Reserved, v.Used, v.Unbilled, v.LateUsed, v.Refunded = r.amount(), r.amount(), r.amount(), r.amount(), r.amount()
	v.LateAt = r.timeOrNone()
	v.Key, v.Surface = r.text(), r.text()
	r.list(&v.Metadata)
	r.list(&v.Usage)
	v.CatalogVersion = r.number()
	v.TTL = time.Duration(r.number()) * time.Microsecond
	v.CreatedAt, v.ExpiresAt, v.EndedAt = r.at(), r.at(), r.timeOrNone()
	v.Cause, v.Worker, v.LeaseToken = r.text(), r.text(), r.text()
	v.LeaseExpiresAt = r.timeOrNone()
	v.Attempts = int(r.number())
	r.packed(func(text string) error { return store.UnpackTerms(text, v) })
	r.packed(func(text string) error { return store.UnpackCourse(text, v) })
	return v
}

const entryColumns = `entry_no, kind, unit, deltas, reservation_id, key, actor, reason, effective_at, recorded_at, available, reserved`

func readEntry(r *row) (e holdfast.Entry) {
	e.No, e.Kind, e.Unit = r.number(), holdfast.EntryKind(r.text()), r.text()
	var short []delta
	r.list(&short)
	var deltas []holdfast.Delta
	for _, d := range short {
		deltas = append(deltas, holdfast.Delta(d))
	}
	store.UnpackDeltas(deltas, &e)
	e.Reservation = r.idOrNone()
	e.Key, e.Actor, e.Reason = r.text(), r.text(), r.text()
	e.EffectiveAt, e.RecordedAt = r.at(), r.at()
	e.Available, e.Reserved = r.amount(), r.amount()
	return e
}

const answerColumns = `key, fingerprint, command_id, outcome, recorded_at`

func readAnswer(r *row) *holdfast.Answer {
	a := &holdfast.Answer{}
	a.Key, a.Fingerprint, a.Command = r.text(), r.bytes16(), r.id()
	r.list(&a.Outcome)
	a.RecordedAt = r.at()
	return a
}

const eventColumns = `event_id, kind, entry_no, reservation_id, figure, at`

func readEvent(r *row) (e holdfast.Event) {
	e.ID, e.Kind = r.id(), holdfast.EventKind(r.text())
	if r.isNull() {
		r.next++
	} else {
		e.Entry = r.number()
	}
	e.SetSubject(r.idOrNone())
	e.Figure, e.At = r.amount(), r.at()
	return e
}

// allocation is an allocation as a short JSON array: [grant, source, reserved, used, refunded].
type allocation holdfast.Allocation

func (a *allocation) UnmarshalJSON(text []byte) error {
	return readArray(text, &a.Grant, &a.Source, &a.Reserved, &a.Used, &a.Refunded)
}

// delta is a ledger delta as a short JSON array: [grant, granted, reserved, used, voided].
type delta holdfast.Delta

func (d *delta) UnmarshalJSON(text []byte) error {
	return readArray(text, &d.Grant, &d.Granted, &d.Reserved, &d.Used, &d.Voided)
}

func readArray(text []byte, into ...any) error {
	want := len(into)
	if err := json.Unmarshal(text, &into); err != nil {
		return err
	}
	if len(into) != want {
		return fmt.Errorf("an array of %d where %d belong", len(into), want)
	}
	return nil
}

// Every reserve and every commit writes both lists, so they are written here: package json would find out by reflection what
// each value is.

// allocationsText is the column, none as NULL.
func allocationsText(list []holdfast.Allocation) (driver.Value, error) {
	var text []byte
	for i := range list {
		a := &list[i]
		source, err := json.Marshal(string(a.Source))
		if err != nil {
			return nil, err
		}
		text = addGrant(text, a.Grant)
		text = append(append(text, ','), source...)
		text = addAmounts(text, a.Reserved, a.Used, a.Refunded)
	}
	return listColumn(text), nil
}

// deltasText is the column, none as NULL.
func deltasText(e *holdfast.Entry) driver.Value {
	var text []byte
	for _, d := range store.PackDeltas(e) {
		text = addAmounts(addGrant(text, d.Grant), d.Granted, d.Reserved, d.Used, d.Voided)
	}
	return listColumn(text)
}

// addGrant begins a list, or goes on with it, by the array of a grant.
func addGrant(text []byte, grant holdfast.ID) []byte {
	if text == nil {
		text = append(make([]byte, 0, 80), '[')
	} else {
		text = append(text, ',')
	}
	return append(append(append(text, `["`...), grant.String()...), '"')
}

// addAmounts ends an array.
func addAmounts(text []byte, list ...holdfast.Amount) []byte {
	for _, amount := range list {
		text = strconv.AppendInt(append(text, ','), int64(amount), 10)
	}
	return append(text, ']')
}

func listColumn(text []byte) driver.Value {
	if text == nil {
		return nil
	}
	return string(append(text, ']'))
}
