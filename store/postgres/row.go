package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// errRow is the cause where a stored row does not hold what the schema promises: it was written by something else.
var errRow = errors.New("a stored row is not as it was written")

// The types below read and write one column each, in the place where the value already is: a pointer to an id or a time of
// the core is converted, and nothing is copied or found out by reflection.

// uuid is an id as the driver takes it.
type uuid [16]byte

// ScanUUID reads NULL as the zero id.
func (u *uuid) ScanUUID(v pgtype.UUID) error {
	*u = v.Bytes
	return nil
}

// UUIDValue writes an id that every row has. What may be NULL is written by SQL: see noID.
func (u uuid) UUIDValue() (pgtype.UUID, error) { return pgtype.UUID{Bytes: u, Valid: true}, nil }

// moment is a time as the driver takes it: NULL is the zero time, and what is read is in UTC.
type moment time.Time

// ScanTimestamptz reads NULL as the zero time.
func (m *moment) ScanTimestamptz(v pgtype.Timestamptz) error {
	*m = moment{}
	if v.InfinityModifier != pgtype.Finite {
		return fmt.Errorf("%w: a time is infinite", errRow)
	}
	if v.Valid {
		*m = moment(v.Time.UTC())
	}
	return nil
}

// TimestamptzValue writes the zero time as NULL, which the column's NOT NULL refuses where a row must have it.
func (m moment) TimestamptzValue() (pgtype.Timestamptz, error) {
	t := time.Time(m)
	return pgtype.Timestamptz{Time: t, Valid: !t.IsZero()}, nil
}

// place is where a row is stored. A row that was read under its account's lock stays there for as long as the lock holds, and
// is written without looking for it again. The zero place holds no row.
type place struct {
	block  uint32
	offset uint16
}

// ScanTID reads it.
func (p *place) ScanTID(v pgtype.TID) error {
	*p = place{v.BlockNumber, v.OffsetNumber}
	return nil
}

// TIDValue writes it.
func (p place) TIDValue() (pgtype.TID, error) {
	return pgtype.TID{BlockNumber: p.block, OffsetNumber: p.offset, Valid: true}, nil
}

// inJSON reads a text with JSON in it into a map or a struct; NULL leaves it as it is.
type inJSON struct{ into any }

// ScanText reads the JSON.
func (j inJSON) ScanText(v pgtype.Text) error {
	if !v.Valid {
		return nil
	}
	if err := json.Unmarshal([]byte(v.String), j.into); err != nil {
		return fmt.Errorf("%w: %w", errRow, err)
	}
	return nil
}

// packed reads a text that package store has packed; NULL is the empty text.
type packed func(text string) error

// ScanText unpacks it.
func (unpack packed) ScanText(v pgtype.Text) error {
	if err := unpack(v.String); err != nil {
		return fmt.Errorf("%w: %w", errRow, err)
	}
	return nil
}

// jsonOrNone writes a map, an empty one as the empty text, which SQL turns into NULL.
func jsonOrNone[V any](pairs map[string]V) (string, error) {
	if len(pairs) == 0 {
		return "", nil
	}
	text, err := json.Marshal(pairs)
	return string(text), err
}

// noID is what SQL turns into NULL where an id may be missing.
const noID = `'00000000-0000-0000-0000-000000000000'`

// register tells the driver what our types are. It needs to know where it does not ask the server, in the modes exec and
// simple_protocol that some poolers demand.
func register(types *pgtype.Map) {
	types.RegisterDefaultPgType(uuid{}, "uuid")
	types.RegisterDefaultPgType(moment{}, "timestamptz")
	types.RegisterDefaultPgType(list[uuid]{}, "_uuid")
	types.RegisterDefaultPgType(list[moment]{}, "_timestamptz")
	types.RegisterDefaultPgType(list[place]{}, "_tid")
	types.RegisterDefaultPgType(list[int64]{}, "_int8")
	types.RegisterDefaultPgType(list[bool]{}, "_bool")
	types.RegisterDefaultPgType(list[string]{}, "_text")
	quickLists(types)
}

// scan reads a row into places. What cannot be read is not ours.
func scan(rows pgx.Rows, places ...any) error {
	if err := rows.Scan(places...); err != nil {
		return fmt.Errorf("%w: %w", errRow, err)
	}
	return nil
}

// accountColumns and the like are the columns in the order in which scanAccount and the like read them. The first column
// of what an account owns is the account's id. What a statement has behind them is read into more.
const accountColumns = `a.account_id, a.project, a.name, a.version, a.last_entry, a.active, a.plan, a.language, a.time_zone,
	a.blocked, a.notices, a.metadata, a.created_at, a.decided_at, a.standing, a.transfers`

func scanAccount(rows pgx.Rows, more ...any) (a holdfast.Account, err error) {
	err = scan(rows, append([]any{
		(*uuid)(&a.ID), &a.Project, &a.Name, &a.Version, &a.LastEntry, &a.Active, &a.Plan, &a.Language, &a.TimeZone,
		&a.Blocked, &a.Notices,
		inJSON{&a.Metadata},
		(*moment)(&a.CreatedAt), (*moment)(&a.DecidedAt),
		packed(func(text string) error { return store.UnpackAccount(text, &a) }),
		packed(func(text string) error { return store.UnpackTransfers(text, &a) }),
	}, more...)...)
	return a, err
}

const grantColumns = `g.account_id, g.grant_id, g.unit, g.source, g.allowance, g.features, g.priority,
	g.granted, g.reserved, g.used, g.voided, g.starts_at, g.ends_at, g.created_at, g.open, g.payment, g.history`

func scanGrant(rows pgx.Rows, more ...any) (account holdfast.AccountID, g *holdfast.Grant, err error) {
	g = &holdfast.Grant{}
	err = scan(rows, append([]any{
		(*uuid)(&account), (*uuid)(&g.ID), &g.Unit, (*string)(&g.Source), &g.Allowance, (*list[string])(&g.Features), &g.Priority,
		(*int64)(&g.Granted), (*int64)(&g.Reserved), (*int64)(&g.Used), (*int64)(&g.Voided),
		(*moment)(&g.StartsAt), (*moment)(&g.EndsAt), (*moment)(&g.CreatedAt), &g.Open, (*uuid)(&g.Payment),
		packed(func(text string) error { return store.UnpackGrant(text, g) }),
	}, more...)...)
	return account, g, err
}

const reservationColumns = `r.account_id, r.reservation_id, r.feature, r.quantity, r.state, r.price_unit, r.price_amount,
	r.allocation_grants, r.allocation_sources, r.allocation_amounts,
	r.reserved, r.used, r.unbilled, r.late_used, r.refunded, r.late_at, r.key, r.surface, r.metadata, r.usage, r.catalog_version,
	r.ttl_microseconds, r.created_at, r.expires_at, r.ended_at, r.cause, r.worker, r.lease_token, r.lease_expires_at, r.attempts,
	r.terms, r.course`

func scanReservation(rows pgx.Rows, more ...any) (account holdfast.AccountID, r *holdfast.Reservation, err error) {
	r = &holdfast.Reservation{}
	var ttl int64
	var grants list[uuid]
	var sources list[string]
	var amounts list[int64]
	err = scan(rows, append([]any{
		(*uuid)(&account), (*uuid)(&r.ID), &r.Feature, (*int64)(&r.Quantity), (*string)(&r.State), &r.Price.Unit, (*int64)(&r.Price.Amount),
		&grants, &sources, &amounts,
		(*int64)(&r.Reserved), (*int64)(&r.Used), (*int64)(&r.Unbilled), (*int64)(&r.LateUsed), (*int64)(&r.Refunded), (*moment)(&r.LateAt),
		&r.Key, &r.Surface,
		inJSON{&r.Metadata},
		inJSON{&r.Usage},
		&r.CatalogVersion,
		&ttl, (*moment)(&r.CreatedAt), (*moment)(&r.ExpiresAt), (*moment)(&r.EndedAt), &r.Cause,
		&r.Worker, &r.LeaseToken, (*moment)(&r.LeaseExpiresAt), &r.Attempts,
		packed(func(text string) error { return store.UnpackTerms(text, r) }), packed(func(text string) error { return store.UnpackCourse(text, r) }),
	}, more...)...)
	if err != nil {
		return account, nil, err
	}
	r.TTL = time.Duration(ttl) * time.Microsecond
	if len(sources) != len(grants) || len(amounts) != amountsOfAllocation*len(grants) {
		return account, nil, fmt.Errorf("%w: the allocations of reservation %s are out of step", errRow, r.ID)
	}
	for i, grant := range grants {
		of := amounts[amountsOfAllocation*i:]
		r.Allocations = append(r.Allocations, holdfast.Allocation{
			Grant: holdfast.ID(grant), Source: holdfast.Source(sources[i]),
			Reserved: holdfast.Amount(of[0]), Used: holdfast.Amount(of[1]), Refunded: holdfast.Amount(of[2]),
		})
	}
	return account, r, nil
}

const (
	amountsOfAllocation = 3
	amountsOfDelta      = 4
)

const entryColumns = `e.account_id, e.entry_no, e.kind, e.unit, e.delta_grants, e.delta_amounts, e.reservation_id, e.key, e.actor, e.reason,
	e.effective_at, e.recorded_at, e.available, e.reserved`

func scanEntry(rows pgx.Rows) (e holdfast.Entry, err error) {
	var account holdfast.AccountID
	var grants list[uuid]
	var amounts list[int64]
	err = scan(rows, (*uuid)(&account), &e.No, (*string)(&e.Kind), &e.Unit, &grants, &amounts, (*uuid)(&e.Reservation), &e.Key, &e.Actor, &e.Reason,
		(*moment)(&e.EffectiveAt), (*moment)(&e.RecordedAt), (*int64)(&e.Available), (*int64)(&e.Reserved))
	if err != nil {
		return e, err
	}
	if len(amounts) != amountsOfDelta*len(grants) {
		return e, fmt.Errorf("%w: the deltas of entry %d are out of step", errRow, e.No)
	}
	var deltas []holdfast.Delta
	for i, grant := range grants {
		of := amounts[amountsOfDelta*i:]
		deltas = append(deltas, holdfast.Delta{
			Grant: holdfast.ID(grant), Granted: holdfast.Amount(of[0]), Reserved: holdfast.Amount(of[1]),
			Used: holdfast.Amount(of[2]), Voided: holdfast.Amount(of[3]),
		})
	}
	store.UnpackDeltas(deltas, &e)
	return e, nil
}

const answerColumns = `w.account_id, w.key, w.fingerprint, w.command_id, w.outcome, w.recorded_at`

func scanAnswer(rows pgx.Rows) (account holdfast.AccountID, w *holdfast.Answer, err error) {
	w = &holdfast.Answer{}
	err = scan(rows, (*uuid)(&account), &w.Key, (*uuid)(&w.Fingerprint), (*uuid)(&w.Command), inJSON{&w.Outcome}, (*moment)(&w.RecordedAt))
	return account, w, err
}

const eventColumns = `o.event_id, o.kind, coalesce(o.entry_no, 0), o.reservation_id, o.figure, o.at`

func scanEvent(rows pgx.Rows) (e holdfast.Event, err error) {
	var subject holdfast.ID
	err = scan(rows, (*uuid)(&e.ID), (*string)(&e.Kind), &e.Entry, (*uuid)(&subject), (*int64)(&e.Figure), (*moment)(&e.At))
	e.SetSubject(subject)
	return e, err
}

const paymentColumns = `b.account_id, b.record`

func scanPayment(rows pgx.Rows) (account holdfast.AccountID, b *holdfast.Payment, err error) {
	b = &holdfast.Payment{}
	err = scan(rows, (*uuid)(&account), packed(func(text string) error { return store.UnpackPayment(text, b) }))
	return account, b, err
}
