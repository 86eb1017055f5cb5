package postgres

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Read answers from one snapshot, in one round trip. It walks the account's rows from the newest on and stops when the
// page is full; a filter that matches little walks far, on a connection that keeps no decision waiting and stops with the
// caller.
func (db *DB) Read(ctx context.Context, query store.Query) (page store.Page, err error) {
	behind, err := query.Position()
	if err != nil {
		return page, err
	}
	if !storable(query.Project) || !storable(string(query.State)) || !storable(query.Key) {
		return page, nil
	}
	r := &reading{query: &query}
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		a, err := scanAccount(rows)
		r.account = &a
		return err
	}, selectAccount, uuid(query.Account), query.Project)
	switch query.Kind {
	case store.QueryReservations:
		r.reservations(p, behind)
	case store.QueryGrants:
		r.grants(p, behind)
	case store.QueryEntries:
		r.entries(p, behind)
	default:
		p.read(r.grant, selectGrantsOfState, list[uuid]{uuid(query.Account)})
	}
	if err := db.snapshot(ctx, "read a page", p); err != nil {
		return store.Page{}, err
	}
	if r.account == nil { // what else was read belongs to somebody else
		return store.Page{}, nil
	}
	return r.page(), nil
}

// storable reports whether a text can be in the database at all. Nothing is found by one that cannot.
func storable(text string) bool { return utf8.ValidString(text) && !strings.ContainsRune(text, 0) }

// By primary key.
const selectAccount = `SELECT ` + accountColumns + ` FROM holdfast.accounts a
	WHERE a.account_id = $1::uuid AND a.project = $2::text AND a.version > 0`

// reading is a page being filled, with one row more than it holds.
type reading struct {
	query   *store.Query
	account *holdfast.Account // nil: not there, or of another project
	found   store.Page
}

func (r *reading) page() store.Page {
	page, limit := r.found, r.query.Limit
	switch {
	case r.query.Kind == store.QueryState:
		page.State = stateOf(r.account, page.Grants)
		page.Grants = nil
	case len(page.Reservations) > limit:
		page.Reservations = page.Reservations[:limit]
		page.Next = r.query.NextCursor(page.Reservations[limit-1].ID[:])
	case len(page.Grants) > limit:
		page.Grants = page.Grants[:limit]
		last := page.Grants[limit-1]
		page.Next = r.query.NextCursor(append(binary.BigEndian.AppendUint64(nil, uint64(last.CreatedAt.UnixMicro())), last.ID[:]...))
	case len(page.Entries) > limit:
		page.Entries = page.Entries[:limit]
		page.Next = r.query.NextCursor(binary.BigEndian.AppendUint64(nil, uint64(page.Entries[limit-1].No)))
	}
	return page
}

// afterAll is behind every id that is given out: a first page begins there.
var afterAll = uuid(bytes.Repeat([]byte{0xff}, 16))

func (r *reading) reservations(p *pipeline, behind []byte) {
	q, place := r.query, afterAll
	if behind != nil {
		place = uuid(behind)
	}
	visit := func(rows pgx.Rows) error {
		_, v, err := scanReservation(rows)
		r.found.Reservations = append(r.found.Reservations, v)
		return err
	}
	switch {
	case !q.Reservation.IsZero():
		p.read(visit, selectReservationOnPage, uuid(q.Account), uuid(q.Reservation), place, string(q.State), q.Key)
	case q.State == holdfast.Reserved || q.State == holdfast.Running:
		p.read(visit, selectLiveReservations, uuid(q.Account), place, string(q.State), q.Key, int64(q.Limit)+1)
	default:
		p.read(visit, selectReservationsOnPage, uuid(q.Account), place, string(q.State), q.Key, int64(q.Limit)+1)
	}
}

// By primary key, backwards: ids are UUIDs of version 7, so the newest come first without an index of their own.
const selectReservationsOnPage = `SELECT ` + reservationColumns + ` FROM holdfast.reservations r
	WHERE r.account_id = $1::uuid AND r.reservation_id < $2::uuid AND ($3::text = '' OR r.state = $3::text) AND ($4::text = '' OR r.key = $4::text)
	ORDER BY r.reservation_id DESC LIMIT $5::bigint`

// By the partial index live_reservations: few, however long the history is, and sorted afterwards. OFFSET 0 keeps the
// planner from taking the order of the primary key instead, for which it would walk all that has ended; the order inside
// is that of the index, which holds it there (see setPlans).
const selectLiveReservations = `SELECT ` + reservationColumns + `
	FROM (SELECT live.* FROM holdfast.reservations live WHERE live.account_id = $1::uuid AND live.ended_at IS NULL ORDER BY live.expires_at OFFSET 0) r
	WHERE r.reservation_id < $2::uuid AND r.state = $3::text AND ($4::text = '' OR r.key = $4::text)
	ORDER BY r.reservation_id DESC LIMIT $5::bigint`

// By primary key.
const selectReservationOnPage = `SELECT ` + reservationColumns + ` FROM holdfast.reservations r
	WHERE r.account_id = $1::uuid AND r.reservation_id = $2::uuid AND r.reservation_id < $3::uuid
		AND ($4::text = '' OR r.state = $4::text) AND ($5::text = '' OR r.key = $5::text)`

func (r *reading) grant(rows pgx.Rows) error {
	_, g, err := scanGrant(rows)
	r.found.Grants = append(r.found.Grants, g)
	return err
}

func (r *reading) grants(p *pipeline, behind []byte) {
	var createdAt time.Time // none: from the first
	var id uuid
	if behind != nil {
		createdAt, id = time.UnixMicro(int64(binary.BigEndian.Uint64(behind))), uuid(behind[8:])
	}
	p.read(r.grant, selectGrantsOnPage, uuid(r.query.Account), moment(createdAt), id, int64(r.query.Limit)+1)
}

// By primary key, all of the account's, sorted afterwards: the ids of an allowance's cycles are UUIDs of version 5 and
// tell no order. An account gets a grant per cycle and purchase, not per request, so this stays short without an index.
const selectGrantsOnPage = `SELECT ` + grantColumns + ` FROM holdfast.grants g
	WHERE g.account_id = $1::uuid AND ($2::timestamptz IS NULL OR (g.created_at, g.grant_id) < ($2::timestamptz, $3::uuid))
	ORDER BY g.created_at DESC, g.grant_id DESC LIMIT $4::bigint`

func (r *reading) entries(p *pipeline, behind []byte) {
	no := int64(math.MaxInt64)
	if behind != nil {
		no = int64(binary.BigEndian.Uint64(behind))
	}
	p.read(func(rows pgx.Rows) error {
		e, err := scanEntry(rows)
		r.found.Entries = append(r.found.Entries, e)
		return err
	}, selectEntriesOnPage, uuid(r.query.Account), no, int64(r.query.Limit)+1)
}

// By primary key, backwards.
const selectEntriesOnPage = `SELECT ` + entryColumns + ` FROM holdfast.entries e
	WHERE e.account_id = $1::uuid AND e.entry_no < $2::bigint ORDER BY e.entry_no DESC LIMIT $3::bigint`

// Events lists the account's outbox rows in the order in which they were written.
func (db *DB) Events(ctx context.Context, account holdfast.AccountID) (events []holdfast.Event, err error) {
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		e, err := scanEvent(rows)
		events = append(events, e)
		return err
	}, selectEvents, uuid(account))
	if err := db.snapshot(ctx, "list events", p); err != nil {
		return nil, err
	}
	return events, nil
}

// By primary key, sorted.
const selectEvents = `SELECT ` + eventColumns + ` FROM holdfast.outbox o WHERE o.account_id = $1::uuid ORDER BY o.written`
