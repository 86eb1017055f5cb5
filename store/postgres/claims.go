package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// ClaimPayment says whose a provider's payment is: the first account that claims it. It reads after it has claimed, and
// KeepRefund reads after it has kept: of a claim and a refund that come at the same moment, one sees the other.
func (db *DB) ClaimPayment(ctx context.Context, claim store.Claim) (store.Claimed, error) {
	_, err := db.write(ctx, "claim a payment", claimPayment, claim.Project, claim.Provider, claim.PaymentID, moment(time.Now()), uuid(claim.Account))
	if err != nil {
		return store.Claimed{}, err
	}
	owner, _, err := db.PaymentOwner(ctx, claim)
	return owner, err
}

// By primary key.
const claimPayment = `INSERT INTO holdfast.payment_claims AS c (project, provider, payment_id, created_at, account_id)
	VALUES ($1::text, $2::text, $3::text, $4::timestamptz, $5::uuid)
	ON CONFLICT (project, provider, payment_id) DO UPDATE SET account_id = coalesce(c.account_id, excluded.account_id)`

// PaymentOwner is whose a payment is, without claiming it.
func (db *DB) PaymentOwner(ctx context.Context, claim store.Claim) (owner store.Claimed, known bool, err error) {
	var refunds pgtype.Text
	known, err = db.one(ctx, "look for a payment", []any{(*uuid)(&owner.Account), &refunds}, selectClaim, claim.Project, claim.Provider, claim.PaymentID)
	if err == nil {
		owner.Refunds, err = store.UnpackRefunds(refunds.String)
	}
	return owner, known, err
}

// By primary key.
const selectClaim = `SELECT account_id, refunds FROM holdfast.payment_claims WHERE project = $1::text AND provider = $2::text AND payment_id = $3::text`

// KeepRefund keeps a refund beside the payment that it is of. Where another one is kept at the same time, the slower looks
// again.
func (db *DB) KeepRefund(ctx context.Context, claim store.Claim, refund holdfast.PaymentRefund) (holdfast.AccountID, error) {
	const op = "keep a refund"
	for {
		var account uuid
		var before pgtype.Text
		known, err := db.one(ctx, op, []any{&account, &before}, selectClaim, claim.Project, claim.Provider, claim.PaymentID)
		if err != nil {
			return holdfast.AccountID{}, err
		}
		packed, same, err := store.PackRefunds(before.String, refund)
		if err != nil {
			return holdfast.AccountID{}, err
		}
		kept := int64(1)
		switch {
		case same:
		case known:
			kept, err = db.write(ctx, op, keepAnother, claim.Project, claim.Provider, claim.PaymentID, before, packed)
		default:
			kept, err = db.write(ctx, op, keepFirst, claim.Project, claim.Provider, claim.PaymentID, moment(time.Now()), packed)
		}
		if err != nil {
			return holdfast.AccountID{}, err
		}
		if kept == 1 {
			owner, _, err := db.PaymentOwner(ctx, claim)
			return owner.Account, err
		}
	}
}

// By primary key.
const (
	keepFirst = `INSERT INTO holdfast.payment_claims (project, provider, payment_id, created_at, refunds)
	VALUES ($1::text, $2::text, $3::text, $4::timestamptz, $5::text) ON CONFLICT (project, provider, payment_id) DO NOTHING`
	keepAnother = `UPDATE holdfast.payment_claims SET refunds = $5::text
	WHERE project = $1::text AND provider = $2::text AND payment_id = $3::text AND refunds IS NOT DISTINCT FROM $4::text`
)

// ClaimedPayments lists the ids of a provider's payments that an account has claimed.
func (db *DB) ClaimedPayments(ctx context.Context, project, provider, after string, limit int) (ids []string, err error) {
	err = db.with(ctx, "list payments", func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, selectClaimed, project, provider, after, int64(limit))
		if err != nil {
			return err
		}
		ids, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	return ids, err
}

// "C" is the order of bytes, whatever the database's own order is. It reads all of a provider's claims, for a reconciliation
// only.
const selectClaimed = `SELECT payment_id FROM holdfast.payment_claims
	WHERE project = $1::text AND provider = $2::text AND payment_id COLLATE "C" > $3::text AND account_id IS NOT NULL
	ORDER BY payment_id COLLATE "C" LIMIT $4::bigint`

// NamePayment keeps a further id that the provider has for a payment.
func (db *DB) NamePayment(ctx context.Context, claim store.Claim, name string) error {
	_, err := db.write(ctx, "name a payment", insertName, claim.Project, claim.Provider, name, claim.PaymentID)
	return err
}

const insertName = `INSERT INTO holdfast.payment_names (project, provider, name, payment_id) VALUES ($1::text, $2::text, $3::text, $4::text)
	ON CONFLICT (project, provider, name) DO NOTHING`

// PaymentNamed is the payment's id behind a further one.
func (db *DB) PaymentNamed(ctx context.Context, project, provider, name string) (paymentID string, err error) {
	_, err = db.one(ctx, "look for a payment by name", []any{&paymentID}, selectName, project, provider, name)
	return paymentID, err
}

// By primary key.
const selectName = `SELECT payment_id FROM holdfast.payment_names WHERE project = $1::text AND provider = $2::text AND name = $3::text`
