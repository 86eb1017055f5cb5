package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// saveFor bounds a Save that is on its way: after it the connection is given up, and the outcome is in doubt.
const saveFor = 20 * time.Second

// Save writes one statement per table, all in one round trip that ends with COMMIT. The caller's context is looked at
// before anything is sent and not afterwards, where giving up would only breed doubt.
func (tx *transaction) Save(ctx context.Context, changes []holdfast.Changes) error {
	const op = "save accounts"
	if tx.session == nil || tx.wanted == nil {
		return misuse(op, "a transaction saves once, after it has loaded")
	}
	p, err := tx.plan(ctx, op, changes)
	if err != nil {
		tx.end().undo(ctx, err)
		return failed(op, err)
	}
	s := tx.end()
	sending, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveFor)
	defer cancel()
	if err := p.run(sending, s); err != nil {
		failure := s.interpret(op, err)
		s.undo(ctx, err)
		return failure
	}
	s.release()
	return nil
}

// plan checks what may be saved and makes the pipeline: the account first, so that a lost fence is found before anything
// else is tried, and then what it owns.
func (tx *transaction) plan(ctx context.Context, op string, changes []holdfast.Changes) (*pipeline, error) {
	if err := ended(ctx, op); err != nil {
		return nil, err
	}
	stored := make(map[holdfast.AccountID]bool, len(changes))
	for i := range changes {
		a := &changes[i].Account
		create, loaded := tx.wanted[a.ID]
		if !loaded {
			return nil, misuse(op, "only loaded accounts can be saved")
		}
		if a.Version == 0 && !create {
			return nil, misuse(op, "only accounts wanted with Create can be inserted")
		}
		stored[a.ID] = true
	}
	p := &pipeline{}
	tx.session.write(p)
	tx.unmake(p, stored)
	for _, write := range []func(*pipeline, []holdfast.Changes) error{
		tx.saveAccounts, tx.updateGrants, tx.updateReservations, insertGrants, insertReservations, saveJobs, insertEntries, tx.saveAnswers, savePayments, withdrawNotices, insertEvents, putNotices, erase,
	} {
		if err := write(p, changes); err != nil {
			return nil, err
		}
	}
	tx.session.commit(p)
	return p, nil
}

// unmake removes the accounts that Load has made and that are not stored after all.
func (tx *transaction) unmake(p *pipeline, stored map[holdfast.AccountID]bool) {
	var left list[uuid]
	for _, account := range tx.made {
		if !stored[account] {
			left = append(left, uuid(account))
		}
	}
	if len(left) > 0 {
		p.then(deleteMade, left)
	}
}

// By primary key.
const deleteMade = `DELETE FROM holdfast.accounts WHERE account_id = ANY ($1::uuid[]) AND version = 0`

// The rules that statements below check, in words.
var (
	errOvertaken   = errors.New("an account was changed meanwhile")
	errEntryTaken  = errors.New("an entry's number was given to another meanwhile")
	errNoGrant     = errors.New("a changed grant is not stored")
	errNoReserving = errors.New("a changed reservation is not stored")
)

// saveAccounts is the fence: it fails unless every account still is as it was read.
func (tx *transaction) saveAccounts(p *pipeline, changes []holdfast.Changes) error {
	if len(changes) == 0 {
		return nil
	}
	var (
		accounts                              list[uuid]
		versions, lastEntries, actives        list[int64]
		plans, languages, timeZones, metadata list[string]
		standings, transfers                  list[string]
		blocked, notices                      list[bool]
		created, decided                      list[moment]
		places                                list[place]
	)
	for i := range changes {
		a := &changes[i].Account
		pairs, err1 := jsonOrNone(a.Metadata)
		standing, err2 := store.PackAccount(a)
		sent, err3 := store.PackTransfers(a)
		if err := errors.Join(err1, err2, err3); err != nil {
			return err
		}
		accounts, standings, transfers = append(accounts, uuid(a.ID)), append(standings, standing), append(transfers, sent)
		versions, lastEntries, actives = append(versions, a.Version), append(lastEntries, a.LastEntry), append(actives, int64(a.Active))
		plans, languages, timeZones = append(plans, a.Plan), append(languages, a.Language), append(timeZones, a.TimeZone)
		blocked, notices, metadata = append(blocked, a.Blocked), append(notices, a.Notices), append(metadata, pairs)
		created, decided = append(created, moment(a.CreatedAt)), append(decided, moment(a.DecidedAt))
		places = append(places, tx.places.accounts[a.ID])
	}
	p.then(updateAccounts, accounts, versions, lastEntries, actives, plans, languages, timeZones, blocked, notices, metadata, created, decided, standings, transfers, places, int64(len(changes))).
		meaning(divisionByZero, store.Conflict, errOvertaken)
	return nil
}

// By place, once per row of w. That the row there is the one that was read is looked at once more. LIMIT cuts nothing off: of a
// list that it bounds, the planner expects one row, and then it goes by the place even where it plans while the table is empty.
//
// Dividing by zero is how a statement can fail when rows are missing, and keep the server from the COMMIT that was sent
// behind it. created_at is written to an account that is stored for the first time; project and name were written when it
// was made.
var updateAccounts = `WITH changed AS (
		UPDATE holdfast.accounts a SET version = a.version + 1, last_entry = w.last_entry, active = w.active, plan = w.plan,
			language = w.language, time_zone = w.time_zone, blocked = w.blocked, notices = w.notices, metadata = NULLIF(w.metadata, ''),
			created_at = CASE a.version WHEN 0 THEN w.created_at ELSE a.created_at END, decided_at = w.decided_at, standing = NULLIF(w.standing, ''),
			transfers = NULLIF(w.transfers, '')
		FROM (SELECT * FROM ` + given(`account_id uuid, version bigint, last_entry bigint, active bigint, plan text, language text, time_zone text,
		blocked boolean, notices boolean, metadata text, created_at timestamptz, decided_at timestamptz, standing text,
		transfers text, place tid`) + ` every LIMIT $16::bigint) w
		WHERE a.ctid = w.place AND a.account_id = w.account_id AND a.version = w.version
		RETURNING 1
	)
	SELECT 1 / (count(*) = $16::bigint)::integer FROM changed`

func insertGrants(p *pipeline, changes []holdfast.Changes) error {
	var (
		accounts, ids                               list[uuid]
		units, sources, allowances, features        list[string]
		priorities, granted, reserved, used, voided list[int64]
		payments                                    list[uuid]
		histories                                   list[string]
		starts, ends, created                       list[moment]
		open                                        list[bool]
	)
	for i := range changes {
		for _, g := range changes[i].NewGrants {
			history, err := store.PackGrant(g)
			if err != nil {
				return err
			}
			payments, histories = append(payments, uuid(g.Payment)), append(histories, history)
			accounts, ids = append(accounts, uuid(changes[i].Account.ID)), append(ids, uuid(g.ID))
			units, sources, allowances = append(units, g.Unit), append(sources, string(g.Source)), append(allowances, g.Allowance)
			features, priorities = append(features, textsLiteral(g.Features)), append(priorities, int64(g.Priority))
			granted, reserved = append(granted, int64(g.Granted)), append(reserved, int64(g.Reserved))
			used, voided = append(used, int64(g.Used)), append(voided, int64(g.Voided))
			starts, ends, created = append(starts, moment(g.StartsAt)), append(ends, moment(g.EndsAt)), append(created, moment(g.CreatedAt))
			open = append(open, g.Open)
		}
	}
	if len(ids) > 0 {
		p.then(insertGrantsText, accounts, ids, units, sources, allowances, features, priorities, granted, reserved, used, voided, starts, ends, created, open, payments, histories)
	}
	return nil
}

var insertGrantsText = `INSERT INTO holdfast.grants (account_id, grant_id, unit, source, allowance, features, priority,
		granted, reserved, used, voided, starts_at, ends_at, created_at, open, payment, history)
	SELECT account_id, grant_id, unit, source, allowance, NULLIF(features, '')::text[], priority,
		granted, reserved, used, voided, starts_at, ends_at, created_at, open,
		NULLIF(payment, ` + noID + `), NULLIF(history, '')
	FROM ` + given(`account_id uuid, grant_id uuid, unit text, source text, allowance text, features text, priority bigint,
		granted bigint, reserved bigint, used bigint, voided bigint, starts_at timestamptz, ends_at timestamptz,
		created_at timestamptz, open boolean, payment uuid, history text`) + ` w`

func (tx *transaction) updateGrants(p *pipeline, changes []holdfast.Changes) error {
	var (
		accounts, ids          list[uuid]
		reserved, used, voided list[int64]
		histories              list[string]
		ends                   list[moment]
		open                   list[bool]
		places                 list[place]
	)
	for i := range changes {
		for _, g := range changes[i].Grants {
			history, err := store.PackGrant(g)
			if err != nil {
				return err
			}
			accounts, ids = append(accounts, uuid(changes[i].Account.ID)), append(ids, uuid(g.ID))
			reserved, used, voided = append(reserved, int64(g.Reserved)), append(used, int64(g.Used)), append(voided, int64(g.Voided))
			histories, ends, open = append(histories, history), append(ends, moment(g.EndsAt)), append(open, g.Open)
			places = append(places, tx.places.grants[row{changes[i].Account.ID, g.ID}])
		}
	}
	if len(ids) > 0 {
		p.then(updateGrantsText, accounts, ids, reserved, used, voided, histories, ends, open, places, int64(len(ids))).
			meaning(divisionByZero, store.Rejected, errNoGrant)
	}
	return nil
}

// By place, as in updateAccounts. What a grant was made with, granted above all, has no statement that could change it.
var updateGrantsText = `WITH changed AS (
		UPDATE holdfast.grants g SET reserved = w.reserved, used = w.used, voided = w.voided, history = NULLIF(w.history, ''),
			ends_at = w.ends_at, open = w.open
		FROM (SELECT * FROM ` + given(`account_id uuid, grant_id uuid, reserved bigint, used bigint, voided bigint, history text,
		ends_at timestamptz, open boolean, place tid`) + ` every LIMIT $10::bigint) w
		WHERE g.ctid = w.place AND g.account_id = w.account_id AND g.grant_id = w.grant_id
		RETURNING 1
	)
	SELECT 1 / (count(*) = $10::bigint)::integer FROM changed`

// allocations are those of many reservations, as three columns.
type allocations struct{ grants, sources, amounts list[string] }

func (c *allocations) add(r *holdfast.Reservation) {
	var grants, sources, amounts []byte
	for _, a := range r.Allocations {
		grants = element(grants, a.Grant.String())
		sources = quoted(sources, string(a.Source))
		for _, amount := range []holdfast.Amount{a.Reserved, a.Used, a.Refunded} {
			amounts = element(amounts, strconv.FormatInt(int64(amount), 10))
		}
	}
	c.grants, c.sources, c.amounts = append(c.grants, literal(grants)), append(c.sources, literal(sources)), append(c.amounts, literal(amounts))
}

// Most reservations take from one pocket, have never been leased to a worker, and nothing unusual happens to them. Their rows
// are written by statements of their own, which are told what differs from row to row: an array that is sent, read and spread out
// costs the same whether anything is in it or not, and a list inside a row is parsed.

// simple reports whether the columns that few reservations use are empty, and one pocket pays or has paid for all of it.
func simple(r *holdfast.Reservation) bool {
	return len(r.Allocations) == 1 && r.Allocations[0].Reserved == r.Reserved && r.Allocations[0].Used == r.Used && r.Allocations[0].Refunded == 0 &&
		r.Refunded == 0 && r.LateUsed == 0 && r.LateAt.IsZero() && r.Worker == "" && r.LeaseToken == "" && r.LeaseExpiresAt.IsZero() && r.Attempts == 0
}

// waits reports whether it has only just been made.
func waits(r *holdfast.Reservation) bool {
	return r.State == holdfast.Reserved && r.Used == 0 && r.Unbilled == 0 && r.EndedAt.IsZero() && r.Cause == ""
}

func insertReservations(p *pipeline, changes []holdfast.Changes) error {
	var plain newRows
	var other newRowsWithCourse
	for i := range changes {
		for _, r := range changes[i].NewReservations {
			pairs, err1 := jsonOrNone(r.Metadata)
			usage, err2 := jsonOrNone(r.Usage)
			frozen, err3 := store.PackTerms(r)
			course, err4 := store.PackCourse(r)
			if err := errors.Join(err1, err2, err3, err4); err != nil {
				return err
			}
			c := &other.newRows
			if course == "" && simple(r) && waits(r) {
				c = &plain
				c.grants, c.sources = append(c.grants, uuid(r.Allocations[0].Grant)), append(c.sources, string(r.Allocations[0].Source))
			} else {
				other.add(r, course)
			}
			c.accounts, c.ids, c.terms = append(c.accounts, uuid(changes[i].Account.ID)), append(c.ids, uuid(r.ID)), append(c.terms, frozen)
			c.features, c.priceUnits = append(c.features, r.Feature), append(c.priceUnits, r.Price.Unit)
			c.keys, c.surfaces, c.metadata, c.usages = append(c.keys, r.Key), append(c.surfaces, r.Surface), append(c.metadata, pairs), append(c.usages, usage)
			c.quantities, c.priceAmounts = append(c.quantities, int64(r.Quantity)), append(c.priceAmounts, int64(r.Price.Amount))
			c.reserved, c.catalogVersions, c.ttls = append(c.reserved, int64(r.Reserved)), append(c.catalogVersions, r.CatalogVersion), append(c.ttls, r.TTL.Microseconds())
			c.createdAt, c.expiresAt = append(c.createdAt, moment(r.CreatedAt)), append(c.expiresAt, moment(r.ExpiresAt))
		}
	}
	if c := &plain; len(c.ids) > 0 {
		p.then(insertPlainReservations, c.accounts, c.ids, c.features, c.quantities, c.priceUnits, c.priceAmounts, c.reserved, c.grants, c.sources,
			c.keys, c.surfaces, c.metadata, c.usages, c.catalogVersions, c.ttls, c.createdAt, c.expiresAt, c.terms)
	}
	if c := &other; len(c.ids) > 0 {
		p.then(insertReservationsText, c.accounts, c.ids, c.features, c.quantities, c.states, c.priceUnits, c.priceAmounts,
			c.allocated.grants, c.allocated.sources, c.allocated.amounts, c.reserved, c.used, c.unbilled, c.lateUsed, c.refunded, c.lateAt,
			c.keys, c.surfaces, c.metadata, c.usages, c.catalogVersions, c.ttls, c.createdAt, c.expiresAt, c.endedAt, c.causes, c.workers, c.tokens,
			c.leaseExpiresAt, c.attempts, c.terms, c.courses)
	}
	return nil
}

// newRows are columns of new reservations.
type newRows struct {
	accounts, ids                             list[uuid]
	features, priceUnits                      list[string]
	quantities, priceAmounts, reserved        list[int64]
	grants                                    list[uuid] // of plain ones: their only pocket
	sources, keys, surfaces, metadata, usages list[string]
	catalogVersions, ttls                     list[int64]
	createdAt, expiresAt                      list[moment]
	terms                                     list[string]
}

// newRowsWithCourse have the columns too that few reservations use.
type newRowsWithCourse struct {
	newRows
	states, causes, workers, tokens, courses     list[string]
	used, unbilled, lateUsed, refunded, attempts list[int64]
	lateAt, endedAt, leaseExpiresAt              list[moment]
	allocated                                    allocations
}

func (c *newRowsWithCourse) add(r *holdfast.Reservation, course string) {
	c.states, c.courses = append(c.states, string(r.State)), append(c.courses, course)
	c.causes, c.workers, c.tokens = append(c.causes, r.Cause), append(c.workers, r.Worker), append(c.tokens, r.LeaseToken)
	c.used, c.unbilled, c.lateUsed = append(c.used, int64(r.Used)), append(c.unbilled, int64(r.Unbilled)), append(c.lateUsed, int64(r.LateUsed))
	c.refunded, c.attempts = append(c.refunded, int64(r.Refunded)), append(c.attempts, int64(r.Attempts))
	c.lateAt, c.endedAt, c.leaseExpiresAt = append(c.lateAt, moment(r.LateAt)), append(c.endedAt, moment(r.EndedAt)), append(c.leaseExpiresAt, moment(r.LeaseExpiresAt))
	c.allocated.add(r)
}

var insertPlainReservations = `INSERT INTO holdfast.reservations (account_id, reservation_id, feature, quantity, state, price_unit, price_amount,
		allocation_grants, allocation_sources, allocation_amounts, reserved, used, unbilled, late_used, refunded,
		key, surface, metadata, usage, catalog_version, ttl_microseconds, created_at, expires_at, cause, worker, lease_token, attempts, terms)
	SELECT account_id, reservation_id, feature, quantity, 'reserved', price_unit, price_amount,
		ARRAY[allocation_grant], ARRAY[allocation_source], ARRAY[reserved, 0, 0], reserved, 0, 0, 0, 0,
		key, surface, NULLIF(metadata, ''), NULLIF(usage, ''), catalog_version, ttl_microseconds, created_at, expires_at, '', '', '', 0, NULLIF(terms, '')
	FROM ` + given(`account_id uuid, reservation_id uuid, feature text, quantity bigint, price_unit text, price_amount bigint, reserved bigint,
		allocation_grant uuid, allocation_source text, key text, surface text, metadata text, usage text, catalog_version bigint,
		ttl_microseconds bigint, created_at timestamptz, expires_at timestamptz, terms text`) + ` w`

var insertReservationsText = `INSERT INTO holdfast.reservations (account_id, reservation_id, feature, quantity, state, price_unit, price_amount,
		allocation_grants, allocation_sources, allocation_amounts, reserved, used, unbilled, late_used, refunded, late_at,
		key, surface, metadata, usage, catalog_version, ttl_microseconds, created_at, expires_at, ended_at,
		cause, worker, lease_token, lease_expires_at, attempts, terms, course)
	SELECT account_id, reservation_id, feature, quantity, state, price_unit, price_amount,
		NULLIF(allocation_grants, '')::uuid[], NULLIF(allocation_sources, '')::text[], NULLIF(allocation_amounts, '')::bigint[],
		reserved, used, unbilled, late_used, refunded, late_at,
		key, surface, NULLIF(metadata, ''), NULLIF(usage, ''), catalog_version, ttl_microseconds, created_at, expires_at, ended_at,
		cause, worker, lease_token, lease_expires_at, attempts, NULLIF(terms, ''), NULLIF(course, '')
	FROM ` + given(`account_id uuid, reservation_id uuid, feature text, quantity bigint, state text, price_unit text,
		price_amount bigint, allocation_grants text, allocation_sources text, allocation_amounts text, reserved bigint,
		used bigint, unbilled bigint, late_used bigint, refunded bigint, late_at timestamptz, key text, surface text,
		metadata text, usage text, catalog_version bigint, ttl_microseconds bigint, created_at timestamptz,
		expires_at timestamptz, ended_at timestamptz, cause text, worker text, lease_token text,
		lease_expires_at timestamptz, attempts bigint, terms text, course text`) + ` w`

func (tx *transaction) updateReservations(p *pipeline, changes []holdfast.Changes) error {
	var plain changedRows
	var other changedRowsWithCourse
	for i := range changes {
		for _, r := range changes[i].Reservations {
			usage, err1 := jsonOrNone(r.Usage)
			course, err2 := store.PackCourse(r)
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			c := &other.changedRows
			if usage == "" && course == "" && simple(r) {
				c = &plain
				c.grants, c.sources = append(c.grants, uuid(r.Allocations[0].Grant)), append(c.sources, string(r.Allocations[0].Source))
			} else {
				other.add(r, usage, course)
			}
			c.accounts, c.ids = append(c.accounts, uuid(changes[i].Account.ID)), append(c.ids, uuid(r.ID))
			c.places = append(c.places, tx.places.reservations[row{changes[i].Account.ID, r.ID}])
			c.states, c.causes = append(c.states, string(r.State)), append(c.causes, r.Cause)
			c.quantities, c.reserved = append(c.quantities, int64(r.Quantity)), append(c.reserved, int64(r.Reserved))
			c.used, c.unbilled = append(c.used, int64(r.Used)), append(c.unbilled, int64(r.Unbilled))
			c.expiresAt, c.endedAt = append(c.expiresAt, moment(r.ExpiresAt)), append(c.endedAt, moment(r.EndedAt))
		}
	}
	if c := &plain; len(c.ids) > 0 {
		p.then(updatePlainReservations, c.accounts, c.ids, c.states, c.quantities, c.reserved, c.used, c.unbilled, c.grants, c.sources,
			c.expiresAt, c.endedAt, c.causes, c.places, int64(len(c.ids))).
			meaning(divisionByZero, store.Rejected, errNoReserving)
	}
	if c := &other; len(c.ids) > 0 {
		p.then(updateReservationsText, c.accounts, c.ids, c.states, c.allocated.grants, c.allocated.sources, c.allocated.amounts,
			c.used, c.unbilled, c.lateUsed, c.refunded, c.lateAt, c.expiresAt, c.endedAt, c.causes, c.workers, c.tokens, c.leaseExpiresAt, c.attempts,
			c.quantities, c.reserved, c.usages, c.courses, c.places, int64(len(c.ids))).
			meaning(divisionByZero, store.Rejected, errNoReserving)
	}
	return nil
}

// changedRows are columns of changed reservations.
type changedRows struct {
	accounts, ids                        list[uuid]
	states, causes                       list[string]
	quantities, reserved, used, unbilled list[int64]
	grants                               list[uuid] // of plain ones: their only pocket
	sources                              list[string]
	expiresAt, endedAt                   list[moment]
	places                               list[place]
}

// changedRowsWithCourse have the columns too that few reservations use.
type changedRowsWithCourse struct {
	changedRows
	workers, tokens, usages, courses list[string]
	lateUsed, refunded, attempts     list[int64]
	lateAt, leaseExpiresAt           list[moment]
	allocated                        allocations
}

func (c *changedRowsWithCourse) add(r *holdfast.Reservation, usage, course string) {
	c.workers, c.tokens = append(c.workers, r.Worker), append(c.tokens, r.LeaseToken)
	c.usages, c.courses = append(c.usages, usage), append(c.courses, course)
	c.lateUsed, c.refunded, c.attempts = append(c.lateUsed, int64(r.LateUsed)), append(c.refunded, int64(r.Refunded)), append(c.attempts, int64(r.Attempts))
	c.lateAt, c.leaseExpiresAt = append(c.lateAt, moment(r.LateAt)), append(c.leaseExpiresAt, moment(r.LeaseExpiresAt))
	c.allocated.add(r)
}

// By place, as in updateAccounts.
var updatePlainReservations = `WITH changed AS (
		UPDATE holdfast.reservations r SET state = w.state, quantity = w.quantity, reserved = w.reserved, used = w.used, unbilled = w.unbilled,
			allocation_grants = ARRAY[w.allocation_grant], allocation_sources = ARRAY[w.allocation_source],
			allocation_amounts = ARRAY[w.reserved, w.used, 0], expires_at = w.expires_at, ended_at = w.ended_at, cause = w.cause,
			late_used = 0, refunded = 0, late_at = NULL, worker = '', lease_token = '', lease_expires_at = NULL, attempts = 0,
			usage = NULL, course = NULL
		FROM (SELECT * FROM ` + given(`account_id uuid, reservation_id uuid, state text, quantity bigint, reserved bigint, used bigint, unbilled bigint,
		allocation_grant uuid, allocation_source text, expires_at timestamptz, ended_at timestamptz, cause text, place tid`) + ` every LIMIT $14::bigint) w
		WHERE r.ctid = w.place AND r.account_id = w.account_id AND r.reservation_id = w.reservation_id
		RETURNING 1
	)
	SELECT 1 / (count(*) = $14::bigint)::integer FROM changed`

// By place, as in updateAccounts. What was decided at the reserve (feature, price, policies, key, …) has no statement
// that could change it; quantity, usage and what is reserved may grow.
var updateReservationsText = `WITH changed AS (
		UPDATE holdfast.reservations r SET state = w.state, allocation_grants = NULLIF(w.allocation_grants, '')::uuid[],
			allocation_sources = NULLIF(w.allocation_sources, '')::text[], allocation_amounts = NULLIF(w.allocation_amounts, '')::bigint[],
			used = w.used, unbilled = w.unbilled, late_used = w.late_used, refunded = w.refunded, late_at = w.late_at,
			expires_at = w.expires_at, ended_at = w.ended_at, cause = w.cause, worker = w.worker, lease_token = w.lease_token,
			lease_expires_at = w.lease_expires_at, attempts = w.attempts,
			quantity = w.quantity, reserved = w.reserved, usage = NULLIF(w.usage, ''), course = NULLIF(w.course, '')
		FROM (SELECT * FROM ` + given(`account_id uuid, reservation_id uuid, state text, allocation_grants text, allocation_sources text,
		allocation_amounts text, used bigint, unbilled bigint, late_used bigint, refunded bigint, late_at timestamptz,
		expires_at timestamptz, ended_at timestamptz, cause text, worker text, lease_token text,
		lease_expires_at timestamptz, attempts bigint, quantity bigint, reserved bigint, usage text,
		course text, place tid`) + ` every LIMIT $24::bigint) w
		WHERE r.ctid = w.place AND r.account_id = w.account_id AND r.reservation_id = w.reservation_id
		RETURNING 1
	)
	SELECT 1 / (count(*) = $24::bigint)::integer FROM changed`

func insertEntries(p *pipeline, changes []holdfast.Changes) error {
	var plain, other entryRows
	for i := range changes {
		for j := range changes[i].Entries {
			e := &changes[i].Entries[j]
			c := &other
			if changed := store.PackDeltas(e); len(changed) == 1 {
				c = &plain
				c.add(&changed[0])
			} else {
				grants, amounts := deltas(changed)
				c.lists, c.amounts = append(c.lists, grants), append(c.amounts, amounts)
			}
			c.accounts, c.reservations, c.numbers = append(c.accounts, uuid(changes[i].Account.ID)), append(c.reservations, uuid(e.Reservation)), append(c.numbers, e.No)
			c.available, c.reserved = append(c.available, int64(e.Available)), append(c.reserved, int64(e.Reserved))
			c.kinds, c.units, c.keys = append(c.kinds, string(e.Kind)), append(c.units, e.Unit), append(c.keys, e.Key)
			c.actors, c.reasons = append(c.actors, e.Actor), append(c.reasons, e.Reason)
			c.effective, c.recorded = append(c.effective, moment(e.EffectiveAt)), append(c.recorded, moment(e.RecordedAt))
		}
	}
	if c := &plain; len(c.numbers) > 0 {
		p.then(insertPlainEntries, c.accounts, c.numbers, c.kinds, c.units, c.grants, c.deltaGranted, c.deltaReserved, c.deltaUsed, c.deltaVoided,
			c.reservations, c.keys, c.actors, c.reasons, c.effective, c.recorded, c.available, c.reserved).
			meaning(uniqueViolation, store.Conflict, errEntryTaken) // the second fence
	}
	if c := &other; len(c.numbers) > 0 {
		p.then(insertEntriesText, c.accounts, c.numbers, c.kinds, c.units, c.lists, c.amounts, c.reservations, c.keys, c.actors, c.reasons,
			c.effective, c.recorded, c.available, c.reserved).meaning(uniqueViolation, store.Conflict, errEntryTaken) // the second fence
	}
	return nil
}

// entryRows are columns. Most entries change one grant, and say so without a list.
type entryRows struct {
	accounts, reservations                              list[uuid]
	numbers, available, reserved                        list[int64]
	kinds, units, keys, actors, reasons                 list[string]
	effective, recorded                                 list[moment]
	grants                                              list[uuid]
	deltaGranted, deltaReserved, deltaUsed, deltaVoided list[int64]
	lists, amounts                                      list[string]
}

func (c *entryRows) add(d *holdfast.Delta) {
	c.grants, c.deltaGranted = append(c.grants, uuid(d.Grant)), append(c.deltaGranted, int64(d.Granted))
	c.deltaReserved, c.deltaUsed, c.deltaVoided = append(c.deltaReserved, int64(d.Reserved)), append(c.deltaUsed, int64(d.Used)), append(c.deltaVoided, int64(d.Voided))
}

var insertPlainEntries = `INSERT INTO holdfast.entries (account_id, entry_no, kind, unit, delta_grants, delta_amounts, reservation_id,
		key, actor, reason, effective_at, recorded_at, available, reserved)
	SELECT account_id, entry_no, kind, unit, ARRAY[delta_grant], ARRAY[delta_granted, delta_reserved, delta_used, delta_voided],
		NULLIF(reservation_id, ` + noID + `), key, actor, reason, effective_at, recorded_at, available, reserved
	FROM ` + given(`account_id uuid, entry_no bigint, kind text, unit text, delta_grant uuid, delta_granted bigint, delta_reserved bigint,
		delta_used bigint, delta_voided bigint, reservation_id uuid, key text, actor text, reason text, effective_at timestamptz,
		recorded_at timestamptz, available bigint, reserved bigint`) + ` w`

var insertEntriesText = `INSERT INTO holdfast.entries (account_id, entry_no, kind, unit, delta_grants, delta_amounts, reservation_id,
		key, actor, reason, effective_at, recorded_at, available, reserved)
	SELECT account_id, entry_no, kind, unit, NULLIF(delta_grants, '')::uuid[], NULLIF(delta_amounts, '')::bigint[], NULLIF(reservation_id, ` + noID + `),
		key, actor, reason, effective_at, recorded_at, available, reserved
	FROM ` + given(`account_id uuid, entry_no bigint, kind text, unit text, delta_grants text, delta_amounts text,
		reservation_id uuid, key text, actor text, reason text, effective_at timestamptz, recorded_at timestamptz,
		available bigint, reserved bigint`) + ` w`

func deltas(changed []holdfast.Delta) (grantsLiteral, amountsLiteral string) {
	var grants, amounts []byte
	for _, d := range changed {
		grants = element(grants, d.Grant.String())
		for _, amount := range []holdfast.Amount{d.Granted, d.Reserved, d.Used, d.Voided} {
			amounts = element(amounts, strconv.FormatInt(int64(amount), 10))
		}
	}
	return literal(grants), literal(amounts)
}

// answerRows are columns.
type answerRows struct {
	accounts, fingerprints, commands list[uuid]
	keys, outcomes                   list[string]
	recorded                         list[moment]
}

func (c *answerRows) write(p *pipeline, text string) {
	if len(c.keys) > 0 {
		p.then(text, c.accounts, c.keys, c.fingerprints, c.commands, c.outcomes, c.recorded)
	}
}

func (tx *transaction) saveAnswers(p *pipeline, changes []holdfast.Changes) error {
	var first, other answerRows
	for i := range changes {
		account := changes[i].Account.ID
		for _, w := range changes[i].Answers {
			outcome, err := store.PackOutcome(&w.Outcome)
			if err != nil {
				return err
			}
			c := &other
			if tx.unanswered[answerKey{account, w.Key}] {
				c = &first
			}
			c.accounts, c.fingerprints, c.commands = append(c.accounts, uuid(account)), append(c.fingerprints, uuid(w.Fingerprint)), append(c.commands, uuid(w.Command))
			c.keys, c.outcomes, c.recorded = append(c.keys, w.Key), append(c.outcomes, outcome), append(c.recorded, moment(w.RecordedAt))
		}
	}
	first.write(p, insertAnswers)
	other.write(p, upsertAnswers)
	return nil
}

// Nothing was recorded under these keys when the account was locked, so nothing is now. ON CONFLICT would have every row
// looked for first.
var insertAnswers = `INSERT INTO holdfast.answers (account_id, key, fingerprint, command_id, outcome, recorded_at)
	SELECT account_id, key, fingerprint, command_id, outcome, recorded_at
	FROM ` + given(`account_id uuid, key text, fingerprint uuid, command_id uuid, outcome text, recorded_at timestamptz`) + ` w`

// By primary key. Where a recorded refusal was decided afresh, the new answer takes its place.
var upsertAnswers = insertAnswers + `
	ON CONFLICT (account_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, command_id = excluded.command_id,
		outcome = excluded.outcome, recorded_at = excluded.recorded_at`

func savePayments(p *pipeline, changes []holdfast.Changes) error {
	var (
		accounts, ids list[uuid]
		records       list[string]
	)
	for i := range changes {
		for _, paid := range changes[i].Payments {
			record, err := store.PackPayment(paid)
			if err != nil {
				return err
			}
			accounts, ids, records = append(accounts, uuid(changes[i].Account.ID)), append(ids, uuid(paid.ID)), append(records, record)
		}
	}
	if len(ids) > 0 {
		p.then(upsertPayments, accounts, ids, records)
	}
	return nil
}

// By primary key.
var upsertPayments = `INSERT INTO holdfast.payments (account_id, payment_id, record)
	SELECT account_id, payment_id, record FROM ` + given(`account_id uuid, payment_id uuid, record text`) + ` w
	ON CONFLICT (account_id, payment_id) DO UPDATE SET record = excluded.record`

// mostEvents is the room that outbox.written has for the events of one save of an account, many times what a batch brings.
const mostEvents = 1 << 16

// eventRows are columns.
type eventRows struct {
	accounts, ids, reservations list[uuid]
	kinds                       list[string]
	written, entries, figures   list[int64]
	at                          list[moment]
}

func (c *eventRows) write(p *pipeline, text string) {
	if len(c.ids) > 0 {
		p.then(text, c.accounts, c.ids, c.written, c.kinds, c.entries, c.reservations, c.figures, c.at)
	}
}

func insertEvents(p *pipeline, changes []holdfast.Changes) error {
	var first, other eventRows
	for i := range changes {
		account := &changes[i].Account
		before := account.LastEntry - int64(len(changes[i].Entries))
		for j := range changes[i].Events {
			e := &changes[i].Events[j]
			if e.Entry < 0 || e.Entry > account.LastEntry { // entries are numbered without gaps
				return misuse("save accounts", "event_tells_of_an_entry_of_the_account")
			}
			c := &other
			if e.OfEntry() && e.Entry > before {
				c = &first
			}
			c.accounts, c.ids, c.reservations = append(c.accounts, uuid(account.ID)), append(c.ids, uuid(e.ID)), append(c.reservations, uuid(e.Subject()))
			c.kinds, c.entries, c.figures = append(c.kinds, string(e.Kind)), append(c.entries, e.Entry), append(c.figures, int64(e.Figure))
			c.written, c.at = append(c.written, (account.Version+1)*mostEvents+int64(j)), append(c.at, moment(e.At))
		}
	}
	first.write(p, insertNewEvents)
	other.write(p, insertOtherEvents)
	return nil
}

// Events of the entries that are written with them: their ids hold the numbers, so they are as new as these.
var insertNewEvents = `INSERT INTO holdfast.outbox (account_id, event_id, written, kind, entry_no, reservation_id, figure, at)
	SELECT account_id, event_id, written, kind, NULLIF(entry_no, 0), NULLIF(reservation_id, ` + noID + `), figure, at
	FROM ` + given(`account_id uuid, event_id uuid, written bigint, kind text, entry_no bigint, reservation_id uuid, figure bigint,
		at timestamptz`) + ` w`

// By primary key. An event that is there already tells of the same fact, and is dropped; ON CONFLICT names the key, so
// that nothing else is dropped with it.
var insertOtherEvents = insertNewEvents + `
	ON CONFLICT (account_id, event_id) DO NOTHING`

// given is a table made of the parameters: an array for each of its columns, in their order. They are spread out in the
// select list, where the server takes a row at a time; in FROM it copies every array into a store of its own and reads it
// from there, which was up to a third of its time for a batch.
func given(columns string) string {
	var list []string
	for i, column := range strings.Split(columns, ",") {
		name, kind, _ := strings.Cut(strings.TrimSpace(column), " ")
		list = append(list, fmt.Sprintf("unnest($%d::%s[]) AS %s", i+1, kind, name))
	}
	return "(SELECT " + strings.Join(list, ", ") + ")"
}

// A list inside a row is sent as the text of an array: PostgreSQL has no arrays of arrays of different lengths. An empty
// one is the empty text, which SQL turns into NULL.

// element adds to a list what needs no quotes.
func element(list []byte, text string) []byte {
	if len(list) > 0 {
		list = append(list, ',')
	}
	return append(list, text...)
}

// quoted adds any text.
func quoted(list []byte, text string) []byte {
	return element(list, `"`+quotes.Replace(text)+`"`)
}

var quotes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

func literal(list []byte) string {
	if len(list) == 0 {
		return ""
	}
	return "{" + string(list) + "}"
}

func textsLiteral(texts []string) string {
	var list []byte
	for _, text := range texts {
		list = quoted(list, text)
	}
	return literal(list)
}

// erase forgets what is personal about deleted accounts: their names, and the metadata of their reservations, also in
// recorded answers.
func erase(p *pipeline, changes []holdfast.Changes) error {
	var accounts list[uuid]
	name := ""
	for i := range changes {
		if changes[i].Erase {
			accounts, name = append(accounts, uuid(changes[i].Account.ID)), changes[i].Account.Name
		}
	}
	if len(accounts) > 0 {
		p.then(eraseAccounts, accounts, name)
		p.then(eraseReservations, accounts)
		p.then(eraseAnswers, accounts)
	}
	return nil
}

// By the account's part of the primary keys.
const (
	eraseAccounts     = `UPDATE holdfast.accounts SET name = $2::text WHERE account_id = ANY ($1::uuid[])`
	eraseReservations = `UPDATE holdfast.reservations SET metadata = NULL WHERE account_id = ANY ($1::uuid[]) AND metadata IS NOT NULL`
	eraseAnswers      = `UPDATE holdfast.answers SET outcome = (outcome::jsonb #- '{Reservation,Metadata}' #- '{Account,Account,Metadata}'
	#- '{Account,Account,Language}' #- '{Account,Account,TimeZone}' #- '{Account,Account,Name}')::text WHERE account_id = ANY ($1::uuid[])`
)
