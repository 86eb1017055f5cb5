// Package payment takes completed payments and their refunds, from the API and from providers' webhooks, and sees to it
// that each has its effect once.
//
//	payment ── claim its id for the account ──► Pay ──► look for refunds that came meanwhile
//	refund  ── whose payment is it? ──► RefundPayment
//	                └── nobody's yet: keep it with the id; the payment finds it there
//
// The HTTP API, the command line and the packages of providers (telegramstars, stripe) call it. It never decides what a
// payment buys or a refund takes back: that is the core's. A crash between the claim and its effect is mended by the
// provider's next delivery: a claim is no effect, and the effect looks at the account alone.
package payment

import (
	"context"
	"errors"
	"log/slog"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Engine is the door that every change goes through.
type Engine interface {
	Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error)
	// Resolve is the account that a name, or another name of it, means.
	Resolve(ctx context.Context, project string, account holdfast.AccountID) (holdfast.AccountID, error)
	// Payment finds a payment where it was decided: at the account that it was claimed for, or at one that has taken that
	// one's place since. Nil: at none of them.
	Payment(ctx context.Context, claimed holdfast.AccountID, provider, paymentID string) (*holdfast.Payment, holdfast.AccountID, error)
}

// Claims keeps whose a provider's payments are.
type Claims interface {
	ClaimPayment(ctx context.Context, claim store.Claim) (store.Claimed, error)
	KeepRefund(ctx context.Context, claim store.Claim, refund holdfast.PaymentRefund) (holdfast.AccountID, error)
	PaymentOwner(ctx context.Context, claim store.Claim) (claimed store.Claimed, known bool, err error)
}

// Desk is where payments come in.
type Desk struct {
	Engine Engine
	Claims Claims
	// Unavailable turns a failure of the claims into an error of the caller's kind: nothing happened, try again. Nil leaves
	// it as it is.
	Unavailable func(error) error
	// Log is told of payments that granted nothing: an operator must look. Nil: nobody is.
	Log *slog.Logger
}

func (d *Desk) unavailable(err error) error {
	if d.Unavailable == nil {
		return err
	}
	return d.Unavailable(err)
}

// Request says for which account of which project something came in, and who told it.
type Request struct {
	Project string
	Account string
	Actor   string
}

// Pay has a payment decided. What is wrong with its shape comes back as an outcome; everything else is kept, and granted or
// flagged. It may be repeated as often as one likes; the outcome of one of the repetitions is marked as the first.
func (d *Desk) Pay(ctx context.Context, r Request, op holdfast.Pay) (holdfast.Outcome, error) {
	outcome, err := d.pay(ctx, r, op)
	if paid := outcome.Payment; err == nil && paid != nil && mustBeLookedAt(paid) && d.Log != nil {
		d.Log.Error("a payment was kept and granted nothing", "provider", paid.Provider, "payment_id", paid.PaymentID,
			"flag", string(paid.Flag), "account", outcome.Owner.ID.String())
	}
	return outcome, err
}

// mustBeLookedAt reports whether somebody has paid, and has neither what they paid for nor their money.
func mustBeLookedAt(p *holdfast.Payment) bool {
	return p.State == holdfast.PaymentFlagged && p.Flag != holdfast.RefundedBefore
}

func (d *Desk) pay(ctx context.Context, r Request, op holdfast.Pay) (holdfast.Outcome, error) {
	command := holdfast.Command{Project: r.Project, Account: r.Account, Actor: r.Actor, Do: op}
	if found := command.Check(); len(found) > 0 {
		return holdfast.Outcome{Reason: holdfast.Invalid, Problems: found}, nil
	}
	payer, err := d.Engine.Resolve(ctx, r.Project, holdfast.AccountIDOf(r.Project, r.Account))
	if err != nil {
		return holdfast.Outcome{}, err
	}
	claim := store.Claim{Project: r.Project, Provider: op.Provider, PaymentID: op.PaymentID, Account: payer}
	claimed, err := d.Claims.ClaimPayment(ctx, claim)
	if err != nil {
		return holdfast.Outcome{}, d.unavailable(err)
	}
	if claimed.Account != payer {
		owner, err := d.Engine.Resolve(ctx, r.Project, claimed.Account)
		if err != nil {
			return holdfast.Outcome{}, err
		}
		op.Stranger = owner != payer
	}
	first, changed := false, false
	for {
		op.Refunds = claimed.Refunds
		command.Do = op
		if claimed.Account != payer || op.Stranger { // where it was decided before, or whose it is
			command.Account, command.Target = "", claimed.Account
		}
		outcome, err := d.Engine.Submit(ctx, command)
		if err == nil && op.Stranger && outcome.Reason == holdfast.NotFound {
			return unclaimed(op, claimed.Account), nil
		}
		if err != nil || op.Stranger {
			return outcome, err
		}
		first, changed = first || outcome.First, changed || outcome.Changed
		outcome.First, outcome.Changed = first, changed
		after, _, err := d.Claims.PaymentOwner(ctx, claim)
		if err != nil {
			return outcome, d.unavailable(err)
		}
		if len(after.Refunds) <= len(claimed.Refunds) {
			return outcome, nil
		}
		claimed.Refunds = after.Refunds // a refund came between the claim and its effect
		command.ID = holdfast.ID{}
	}
}

// unclaimed flags a payment that another account has claimed, and has not come to: there is nowhere to keep it but with the
// claim, whose own delivery is still to be repeated.
func unclaimed(op holdfast.Pay, owner holdfast.AccountID) holdfast.Outcome {
	return holdfast.Outcome{Owner: holdfast.Owner{ID: owner}, Payment: &holdfast.Payment{
		ID: holdfast.PaymentIDOf(owner, op.Provider, op.PaymentID), Provider: op.Provider, PaymentID: op.PaymentID, Product: op.Product,
		Amount: op.Amount, Currency: op.Currency, State: holdfast.PaymentFlagged, Flag: holdfast.WrongPerson,
	}}
}

// Refund has a refund of a payment decided. For a payment that nobody has told of yet it is kept until the payment comes,
// and pending is true.
func (d *Desk) Refund(ctx context.Context, r Request, op holdfast.RefundPayment) (outcome holdfast.Outcome, pending bool, err error) {
	command := holdfast.Command{Project: r.Project, Account: "unknown", Actor: r.Actor, Do: op}
	if found := command.Check(); len(found) > 0 {
		return holdfast.Outcome{Reason: holdfast.Invalid, Problems: found}, false, nil
	}
	claim := store.Claim{Project: r.Project, Provider: op.Provider, PaymentID: op.PaymentID}
	claimed, _, err := d.Claims.PaymentOwner(ctx, claim)
	if err != nil {
		return holdfast.Outcome{}, false, d.unavailable(err)
	}
	owner := claimed.Account
	kept := false
	for {
		if !owner.IsZero() {
			command.Account, command.Target, command.ID = "", owner, holdfast.ID{}
			outcome, err := d.Engine.Submit(ctx, command)
			if err != nil || outcome.Reason != holdfast.NotFound {
				return outcome, false, err
			}
		}
		if kept { // beside the claim, where the payment finds it
			return holdfast.Outcome{}, true, nil
		}
		kept = true
		if owner, err = d.Claims.KeepRefund(ctx, claim, op.Refund); err != nil {
			if errors.Is(err, store.ErrTooManyRefunds) {
				return holdfast.Outcome{Reason: holdfast.Invalid, Problems: []holdfast.Problem{{
					Field: "refund_id", Hint: "too many refunds wait for this payment already",
				}}}, false, nil
			}
			return holdfast.Outcome{}, false, d.unavailable(err)
		}
	}
}

// Find reads a payment, and says which account it was decided for; nil: nobody has told of it to the end.
func (d *Desk) Find(ctx context.Context, project, provider, paymentID string) (*holdfast.Payment, holdfast.AccountID, error) {
	claimed, known, err := d.Claims.PaymentOwner(ctx, store.Claim{Project: project, Provider: provider, PaymentID: paymentID})
	if err != nil {
		return nil, holdfast.AccountID{}, d.unavailable(err)
	}
	if !known || claimed.Account.IsZero() {
		return nil, holdfast.AccountID{}, nil
	}
	return d.Engine.Payment(ctx, claimed.Account, provider, paymentID)
}
