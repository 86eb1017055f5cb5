package sqlite

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Save writes row by row with prepared statements, which in an embedded database beats one statement per table and
// batch: there is no round trip to save. Statements pay no heed to the caller's context: it is looked at before the first
// one and before COMMIT, and never during COMMIT, where giving up would only breed doubt.
func (tx *transaction) Save(ctx context.Context, changes []holdfast.Changes) error {
	const op = "save accounts"
	c := tx.end()
	if c == nil {
		return misuse(op, "a transaction saves once, after it has loaded")
	}
	err := tx.write(ctx, c, op, changes)
	if err != nil {
		tx.db.rollback(c)
		return failed(op, err)
	}
	return tx.db.commit(c, op)
}

func (tx *transaction) write(ctx context.Context, c *connection, op string, changes []holdfast.Changes) error {
	if err := ended(ctx, op); err != nil {
		return err
	}
	for i := range changes {
		if err := tx.saveAccount(c, op, &changes[i]); err != nil {
			return fmt.Errorf("account %s: %w", changes[i].Account.ID, err)
		}
	}
	if err := ended(ctx, op); err != nil {
		return err
	}
	return tx.db.check(op) // a commit into a file that nobody will find again must not be acknowledged
}

const commit = `COMMIT`

// commit ends the transaction and gives the writer back.
func (db *DB) commit(c *connection, op string) error {
	_, err := c.exec(uninterrupted, commit)
	if err == nil {
		db.giveWriter(c)
		return nil
	}
	_, notOpen := c.exec(uninterrupted, rollback)
	db.discard(c)
	return commitFailed(op, err, notOpen == nil)
}

// saveAccount writes the account first, so that a lost fence is found before anything else is tried, and then what it
// owns in the order of the foreign keys.
func (tx *transaction) saveAccount(c *connection, op string, changes *holdfast.Changes) error {
	a := &changes.Account
	create, loaded := tx.wanted[a.ID]
	if !loaded {
		return misuse(op, "only loaded accounts can be saved")
	}
	if a.Version == 0 && !create {
		return misuse(op, "only accounts wanted with Create can be inserted")
	}
	if err := fence(c, op, a); err != nil {
		return err
	}
	for _, g := range changes.NewGrants {
		if err := newGrant(c, a.ID, g); err != nil {
			return err
		}
	}
	for _, g := range changes.Grants {
		if err := changeGrant(c, op, a.ID, g); err != nil {
			return err
		}
	}
	for _, r := range changes.NewReservations {
		if err := newReservation(c, a.ID, r); err != nil {
			return err
		}
	}
	for _, r := range changes.Reservations {
		if err := changeReservation(c, op, a.ID, r); err != nil {
			return err
		}
	}
	if err := saveJobs(c, op, changes); err != nil {
		return err
	}
	for i := range changes.Entries {
		if err := newEntry(c, op, a.ID, &changes.Entries[i]); err != nil {
			return err
		}
	}
	for _, answer := range changes.Answers {
		if err := putAnswer(c, a.ID, answer); err != nil {
			return err
		}
	}
	for _, paid := range changes.Payments {
		if err := putPayment(c, a.ID, paid); err != nil {
			return err
		}
	}
	if err := saveNotices(c, op, changes); err != nil {
		return err
	}
	for i := range changes.Events {
		if err := newEvent(c, a.ID, &changes.Events[i]); err != nil {
			return err
		}
	}
	if changes.Erase {
		return erase(c, a)
	}
	return nil
}

// erase forgets what is personal: the account's name, and the metadata of its reservations, also in recorded answers.
func erase(c *connection, a *holdfast.Account) error {
	_, err1 := c.exec(uninterrupted, eraseAccount, a.Name, a.ID[:])
	_, err2 := c.exec(uninterrupted, eraseReservations, a.ID[:])
	_, err3 := c.exec(uninterrupted, eraseAnswers, a.ID[:])
	return errors.Join(err1, err2, err3)
}

// By the account's part of the primary keys.
const (
	eraseAccount      = `UPDATE accounts SET name = ? WHERE account_id = ?`
	eraseReservations = `UPDATE reservations SET metadata = NULL WHERE account_id = ? AND metadata IS NOT NULL`
	eraseAnswers      = `UPDATE answers SET outcome = json_remove(outcome, '$.Reservation.Metadata',
	'$.Account.Account.Metadata', '$.Account.Account.Language', '$.Account.Account.TimeZone', '$.Account.Account.Name') WHERE account_id = ?`
)

// overtaken is the Conflict of a lost fence.
func overtaken(op string, cause error) error {
	return &store.Error{Kind: store.Conflict, Op: op, Err: errors.Join(errors.New("the account was changed meanwhile"), cause)}
}

// fence writes the account row if it still is as it was read.
func fence(c *connection, op string, a *holdfast.Account) error {
	metadata, err1 := jsonOrNone(a.Metadata, len(a.Metadata))
	standing, err2 := store.PackAccount(a)
	transfers, err3 := store.PackTransfers(a)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	if a.Version == 0 {
		_, err := c.exec(uninterrupted, insertAccount,
			a.ID[:], a.Project, a.Name, a.LastEntry, int64(a.Active), a.Plan, a.Language, a.TimeZone,
			flag(a.Blocked), flag(a.Notices), metadata, at(a.CreatedAt), at(a.DecidedAt), textOrNone(standing), textOrNone(transfers))
		if taken(err) {
			return overtaken(op, err)
		}
		return err
	}
	changed, err := c.exec(uninterrupted, updateAccount,
		a.LastEntry, int64(a.Active), a.Plan, a.Language, a.TimeZone,
		flag(a.Blocked), flag(a.Notices), metadata, at(a.DecidedAt), textOrNone(standing), textOrNone(transfers), a.ID[:], a.Version)
	if err == nil && changed == 0 {
		return overtaken(op, nil)
	}
	return err
}

const insertAccount = `INSERT INTO accounts (` + accountColumns + `)
	VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

// By primary key. project and created_at are never written again, and name only to erase it.
const updateAccount = `UPDATE accounts SET version = version + 1, last_entry = ?, active = ?, plan = ?, language = ?, time_zone = ?,
	blocked = ?, notices = ?, metadata = ?, decided_at = ?, standing = ?, transfers = ?
	WHERE account_id = ? AND version = ?`

func newGrant(c *connection, account holdfast.AccountID, g *holdfast.Grant) error {
	features, err1 := jsonOrNone(g.Features, len(g.Features))
	history, err2 := store.PackGrant(g)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	_, err := c.exec(uninterrupted, insertGrant, account[:],
		g.ID[:], g.Unit, string(g.Source), g.Allowance, features, int64(g.Priority),
		int64(g.Granted), int64(g.Reserved), int64(g.Used), int64(g.Voided),
		at(g.StartsAt), timeOrNone(g.EndsAt), at(g.CreatedAt), flag(g.Open), idOrNone(g.Payment), textOrNone(history))
	return err
}

const insertGrant = `INSERT INTO grants (account_id, ` + grantColumns + `)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

func changeGrant(c *connection, op string, account holdfast.AccountID, g *holdfast.Grant) error {
	history, err := store.PackGrant(g)
	if err != nil {
		return err
	}
	changed, err := c.exec(uninterrupted, updateGrant,
		int64(g.Reserved), int64(g.Used), int64(g.Voided), textOrNone(history), timeOrNone(g.EndsAt), flag(g.Open), account[:], g.ID[:])
	if err == nil && changed != 1 {
		return misuse(op, fmt.Sprintf("grant %s is not stored", g.ID))
	}
	return err
}

// By primary key. What a grant was made with, granted above all, has no statement that could change it.
const updateGrant = `UPDATE grants SET reserved = ?, used = ?, voided = ?, history = ?, ends_at = ?, open = ? WHERE account_id = ? AND grant_id = ?`

func newReservation(c *connection, account holdfast.AccountID, r *holdfast.Reservation) error {
	allocations, err1 := allocationsText(r.Allocations)
	metadata, err2 := jsonOrNone(r.Metadata, len(r.Metadata))
	usage, err3 := jsonOrNone(r.Usage, len(r.Usage))
	terms, err4 := store.PackTerms(r)
	course, err5 := store.PackCourse(r)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return err
	}
	_, err := c.exec(uninterrupted, insertReservation, account[:],
		r.ID[:], r.Feature, int64(r.Quantity), string(r.State), r.Price.Unit, int64(r.Price.Amount), allocations,
		int64(r.Reserved), int64(r.Used), int64(r.Unbilled), int64(r.LateUsed), int64(r.Refunded), timeOrNone(r.LateAt),
		r.Key, r.Surface, metadata, usage, r.CatalogVersion,
		r.TTL.Microseconds(), at(r.CreatedAt), at(r.ExpiresAt), timeOrNone(r.EndedAt), r.Cause,
		r.Worker, r.LeaseToken, timeOrNone(r.LeaseExpiresAt), int64(r.Attempts), textOrNone(terms), textOrNone(course))
	return err
}

const insertReservation = `INSERT INTO reservations (account_id, ` + reservationColumns + `)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

func changeReservation(c *connection, op string, account holdfast.AccountID, r *holdfast.Reservation) error {
	allocations, err1 := allocationsText(r.Allocations)
	usage, err2 := jsonOrNone(r.Usage, len(r.Usage))
	course, err3 := store.PackCourse(r)
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	changed, err := c.exec(uninterrupted, updateReservation,
		string(r.State), int64(r.Quantity), usage, int64(r.Reserved), allocations, int64(r.Used), int64(r.Unbilled), int64(r.LateUsed), int64(r.Refunded), timeOrNone(r.LateAt),
		at(r.ExpiresAt), timeOrNone(r.EndedAt), r.Cause,
		r.Worker, r.LeaseToken, timeOrNone(r.LeaseExpiresAt), int64(r.Attempts), textOrNone(course), account[:], r.ID[:])
	if err == nil && changed != 1 {
		return misuse(op, fmt.Sprintf("reservation %s is not stored", r.ID))
	}
	return err
}

// By primary key. What was decided at the reserve (feature, price, policies, key, …) has no statement that could change it;
// quantity, usage and what is reserved may grow.
const updateReservation = `UPDATE reservations SET state = ?, quantity = ?, usage = ?, reserved = ?, allocations = ?, used = ?, unbilled = ?, late_used = ?, refunded = ?, late_at = ?,
	expires_at = ?, ended_at = ?, cause = ?, worker = ?, lease_token = ?, lease_expires_at = ?, attempts = ?, course = ?
	WHERE account_id = ? AND reservation_id = ?`

func newEntry(c *connection, op string, account holdfast.AccountID, e *holdfast.Entry) error {
	_, err := c.exec(uninterrupted, insertEntry, account[:],
		e.No, string(e.Kind), e.Unit, deltasText(e), idOrNone(e.Reservation), e.Key, e.Actor, e.Reason,
		at(e.EffectiveAt), at(e.RecordedAt), int64(e.Available), int64(e.Reserved))
	if taken(err) {
		return overtaken(op, err) // the second fence
	}
	return err
}

const insertEntry = `INSERT INTO entries (account_id, ` + entryColumns + `)
	VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

func putAnswer(c *connection, account holdfast.AccountID, a *holdfast.Answer) error {
	outcome, err := store.PackOutcome(&a.Outcome)
	if err != nil {
		return err
	}
	_, err = c.exec(uninterrupted, upsertAnswer, account[:], a.Key, a.Fingerprint[:], a.Command[:], outcome, at(a.RecordedAt))
	return err
}

// By primary key. Where a recorded refusal was decided afresh, the new answer takes its place.
const upsertAnswer = `INSERT INTO answers (account_id, ` + answerColumns + `) VALUES (?, ?, ?, ?, ?, ?)
	ON CONFLICT (account_id, key) DO UPDATE SET fingerprint = excluded.fingerprint, command_id = excluded.command_id,
	outcome = excluded.outcome, recorded_at = excluded.recorded_at`

func putPayment(c *connection, account holdfast.AccountID, paid *holdfast.Payment) error {
	record, err := store.PackPayment(paid)
	if err == nil {
		_, err = c.exec(uninterrupted, upsertPayment, account[:], paid.ID[:], record)
	}
	return err
}

const upsertPayment = `INSERT INTO payments (account_id, payment_id, record) VALUES (?, ?, ?)
	ON CONFLICT (account_id, payment_id) DO UPDATE SET record = excluded.record`

func newEvent(c *connection, account holdfast.AccountID, e *holdfast.Event) error {
	var entry any
	if e.Entry != 0 {
		entry = e.Entry
	}
	_, err := c.exec(uninterrupted, insertEvent, account[:],
		e.ID[:], string(e.Kind), entry, idOrNone(e.Subject()), int64(e.Figure), at(e.At))
	return err
}

// By primary key. An event that is there already tells of the same fact, and is dropped; ON CONFLICT names the key, so
// that nothing else is dropped with it.
const insertEvent = `INSERT INTO outbox (account_id, ` + eventColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (account_id, event_id) DO NOTHING`
