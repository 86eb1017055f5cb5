package memory

import (
	"context"
	"slices"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

type paymentKey struct{ project, provider, paymentID string }

type claimed struct {
	account holdfast.AccountID
	refunds string
}

func (c claimed) told() (store.Claimed, error) {
	refunds, err := store.UnpackRefunds(c.refunds)
	return store.Claimed{Account: c.account, Refunds: refunds}, err
}

func keyOf(claim store.Claim) paymentKey {
	return paymentKey{claim.Project, claim.Provider, claim.PaymentID}
}

// ClaimPayment says whose a provider's payment is: the first account that claims it.
func (s *Store) ClaimPayment(ctx context.Context, claim store.Claim) (owner store.Claimed, err error) {
	err = s.use(ctx, "claim a payment", func() error {
		found := s.claims[keyOf(claim)]
		if found.account.IsZero() {
			found.account = claim.Account
			s.claims[keyOf(claim)] = found
		}
		owner, err = found.told()
		return err
	})
	return owner, err
}

// KeepRefund keeps a refund beside the payment that it is of.
func (s *Store) KeepRefund(ctx context.Context, claim store.Claim, refund holdfast.PaymentRefund) (owner holdfast.AccountID, err error) {
	err = s.use(ctx, "keep a refund", func() error {
		found := s.claims[keyOf(claim)]
		var err error
		if found.refunds, _, err = store.PackRefunds(found.refunds, refund); err != nil {
			return err
		}
		s.claims[keyOf(claim)] = found
		owner = found.account
		return nil
	})
	return owner, err
}

// PaymentOwner is whose a payment is, without claiming it.
func (s *Store) PaymentOwner(ctx context.Context, claim store.Claim) (owner store.Claimed, known bool, err error) {
	err = s.use(ctx, "look for a payment", func() error {
		var found claimed
		found, known = s.claims[keyOf(claim)]
		owner, err = found.told()
		return err
	})
	return owner, known, err
}

// ClaimedPayments lists the ids of a provider's payments that an account has claimed.
func (s *Store) ClaimedPayments(ctx context.Context, project, provider, after string, limit int) (ids []string, err error) {
	err = s.use(ctx, "list payments", func() error {
		for key, found := range s.claims {
			if key.project == project && key.provider == provider && key.paymentID > after && !found.account.IsZero() {
				ids = append(ids, key.paymentID)
			}
		}
		slices.Sort(ids)
		ids = slices.Clip(ids[:min(len(ids), limit)])
		return nil
	})
	return ids, err
}

// NamePayment keeps a further id that the provider has for a payment.
func (s *Store) NamePayment(ctx context.Context, claim store.Claim, name string) error {
	return s.use(ctx, "name a payment", func() error {
		key := paymentKey{claim.Project, claim.Provider, name}
		if _, known := s.names[key]; !known {
			s.names[key] = claim.PaymentID
		}
		return nil
	})
}

// PaymentNamed is the payment's id behind a further one.
func (s *Store) PaymentNamed(ctx context.Context, project, provider, name string) (paymentID string, err error) {
	err = s.use(ctx, "look for a payment by name", func() error {
		paymentID = s.names[paymentKey{project, provider, name}]
		return nil
	})
	return paymentID, err
}
