package store

import (
	"encoding/json"
	"errors"
	"slices"

	"github.com/holdfast-dev/holdfast"
)

// Claim names a provider's payment inside a project, and, to claim it, an account.
type Claim struct {
	Project, Provider, PaymentID string
	Account                      holdfast.AccountID
}

// Claimed is whose a payment is, and what was kept for it.
type Claimed struct {
	Account holdfast.AccountID // zero: nobody's yet
	Refunds []holdfast.PaymentRefund
}

// MaxKeptRefunds is how many refunds of one payment are kept.
const MaxKeptRefunds = 100

// ErrTooManyRefunds is the cause where more are to be kept.
var ErrTooManyRefunds = errors.New("too many refunds of one payment")

// PackRefunds is the column "refunds" with one more refund; same is true where that one was kept before.
func PackRefunds(text string, added holdfast.PaymentRefund) (packed string, same bool, err error) {
	kept, err := UnpackRefunds(text)
	if err != nil {
		return "", false, err
	}
	if slices.ContainsFunc(kept, func(r holdfast.PaymentRefund) bool { return r.ID == added.ID }) {
		return text, true, nil
	}
	if len(kept) >= MaxKeptRefunds {
		return "", false, &Error{Kind: Rejected, Op: "keep a refund", Err: ErrTooManyRefunds}
	}
	packed, err = pack(append(kept, added))
	return packed, false, err
}

// UnpackRefunds reads the column "refunds".
func UnpackRefunds(text string) (kept []holdfast.PaymentRefund, err error) {
	if text == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &kept)
	return kept, err
}
