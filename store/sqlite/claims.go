package sqlite

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// ClaimPayment says whose a provider's payment is: the first account that claims it.
func (db *DB) ClaimPayment(ctx context.Context, claim store.Claim) (owner store.Claimed, err error) {
	err = db.write(ctx, "claim a payment", func(c *connection) error {
		_, err := c.exec(uninterrupted, claimPayment, claim.Project, claim.Provider, claim.PaymentID, at(time.Now()), claim.Account[:])
		if err != nil {
			return err
		}
		owner, _, _, err = readClaim(uninterrupted, c, claim)
		return err
	})
	return owner, err
}

// By primary key.
const claimPayment = `INSERT INTO payment_claims (project, provider, payment_id, created_at, account_id) VALUES (?, ?, ?, ?, ?)
	ON CONFLICT (project, provider, payment_id) DO UPDATE SET account_id = coalesce(account_id, excluded.account_id)`

func readClaim(ctx context.Context, c *connection, claim store.Claim) (owner store.Claimed, refunds string, known bool, err error) {
	err = c.query(ctx, selectClaim, func(r *row) error {
		known = true
		owner.Account = holdfast.AccountID(r.idOrNone())
		r.packed(func(text string) (err error) {
			refunds = text
			owner.Refunds, err = store.UnpackRefunds(text)
			return err
		})
		return nil
	}, claim.Project, claim.Provider, claim.PaymentID)
	return owner, refunds, known, err
}

// By primary key.
const selectClaim = `SELECT account_id, refunds FROM payment_claims WHERE project = ? AND provider = ? AND payment_id = ?`

// KeepRefund keeps a refund beside the payment that it is of.
func (db *DB) KeepRefund(ctx context.Context, claim store.Claim, refund holdfast.PaymentRefund) (owner holdfast.AccountID, err error) {
	err = db.write(ctx, "keep a refund", func(c *connection) error {
		found, refunds, _, err := readClaim(uninterrupted, c, claim)
		if err != nil {
			return err
		}
		owner = found.Account
		packed, same, err := store.PackRefunds(refunds, refund)
		if err != nil || same {
			return err
		}
		_, err = c.exec(uninterrupted, keepRefund, claim.Project, claim.Provider, claim.PaymentID, at(time.Now()), packed)
		return err
	})
	return owner, err
}

// By primary key.
const keepRefund = `INSERT INTO payment_claims (project, provider, payment_id, created_at, refunds) VALUES (?, ?, ?, ?, ?)
	ON CONFLICT (project, provider, payment_id) DO UPDATE SET refunds = excluded.refunds`

// PaymentOwner is whose a payment is, without claiming it.
func (db *DB) PaymentOwner(ctx context.Context, claim store.Claim) (owner store.Claimed, known bool, err error) {
	err = db.snapshot(ctx, "look for a payment", func(c *connection) error {
		owner, _, known, err = readClaim(ctx, c, claim)
		return err
	})
	return owner, known, err
}

// ClaimedPayments lists the ids of a provider's payments that an account has claimed.
func (db *DB) ClaimedPayments(ctx context.Context, project, provider, after string, limit int) (ids []string, err error) {
	err = db.snapshot(ctx, "list payments", func(c *connection) error {
		return c.query(ctx, selectClaimed, func(r *row) error {
			ids = append(ids, r.text())
			return nil
		}, project, provider, after, int64(limit))
	})
	return ids, err
}

// By primary key, whose order is that of the bytes.
const selectClaimed = `SELECT payment_id FROM payment_claims WHERE project = ? AND provider = ? AND payment_id > ? AND account_id IS NOT NULL
	ORDER BY payment_id LIMIT ?`

// NamePayment keeps a further id that the provider has for a payment.
func (db *DB) NamePayment(ctx context.Context, claim store.Claim, name string) error {
	return db.write(ctx, "name a payment", func(c *connection) error {
		_, err := c.exec(uninterrupted, insertName, claim.Project, claim.Provider, name, claim.PaymentID)
		return err
	})
}

const insertName = `INSERT INTO payment_names (project, provider, name, payment_id) VALUES (?, ?, ?, ?)
	ON CONFLICT (project, provider, name) DO NOTHING`

// PaymentNamed is the payment's id behind a further one.
func (db *DB) PaymentNamed(ctx context.Context, project, provider, name string) (paymentID string, err error) {
	err = db.snapshot(ctx, "look for a payment by name", func(c *connection) error {
		return c.query(ctx, selectName, func(r *row) error {
			paymentID = r.text()
			return nil
		}, project, provider, name)
	})
	return paymentID, err
}

// By primary key.
const selectName = `SELECT payment_id FROM payment_names WHERE project = ? AND provider = ? AND name = ?`
