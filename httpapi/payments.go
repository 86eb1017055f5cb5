package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
)

// Payments takes completed payments and their refunds. A *payment.Desk does. Errors are as Submit's.
type Payments interface {
	Pay(ctx context.Context, request payment.Request, op holdfast.Pay) (holdfast.Outcome, error)
	// Refund reports pending where nobody has told of the payment yet: it is kept until then.
	Refund(ctx context.Context, request payment.Request, op holdfast.RefundPayment) (outcome holdfast.Outcome, pending bool, err error)
	// Find reads a payment, and says which account it was decided for; nil: there is none.
	Find(ctx context.Context, project, provider, paymentID string) (*holdfast.Payment, holdfast.AccountID, error)
}

// paymentBody tells of a completed payment.
type paymentBody struct {
	Provider  string           `json:"provider" doc:"Who took the money; 1 to 64 of a-z 0-9 . _ -" example:"telegram_stars"`
	PaymentID string           `json:"payment_id" doc:"The provider's id of the payment, not of a delivery; 1 to 255 bytes" example:"stxAbc123"`
	Account   string           `json:"account" doc:"Who paid; 1 to 128 bytes without spaces or / ? # %" example:"telegram:42"`
	Product   string           `json:"product" doc:"What for; a product of the catalog" example:"pro_30"`
	Amount    *holdfast.Amount `json:"amount" minimum:"0" doc:"What was paid, in the currency's smallest step" example:"250"`
	Currency  string           `json:"currency" doc:"Three capital letters" example:"XTR"`
	PeriodEnd *time.Time       `json:"period_end,omitempty" null:"the product's" nullable:"true" doc:"Until when the provider says that a period is paid, at most the product's period and a day; null: the product's period"`
}

func takePayment(c *call) (holdfast.Command, *answer) {
	var body paymentBody
	if unread := c.from.body(c, &body); unread != nil {
		return holdfast.Command{}, unread
	}
	op := holdfast.Pay{Provider: body.Provider, PaymentID: body.PaymentID, Product: body.Product, Currency: body.Currency}
	if body.Amount == nil {
		c.mustBe("amount", "say what was paid, in the currency's smallest step")
	} else {
		op.Amount = *body.Amount
	}
	if body.PeriodEnd != nil {
		op.PeriodEnd = *body.PeriodEnd
	}
	command := holdfast.Command{Account: body.Account, Do: op}
	c.send = func(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
		return c.api.Payments.Pay(ctx, payment.Request{Project: command.Project, Account: command.Account, Actor: command.Actor}, op)
	}
	return command, c.completePayment(&command)
}

// completePayment completes a command for a desk, which may be missing.
func (c *call) completePayment(command *holdfast.Command) *answer {
	wrong := c.complete(command)
	if wrong == nil && c.api.Payments == nil {
		a := c.notFound()
		wrong = &a
	}
	return wrong
}

// paid answers a payment. What granted nothing was kept all the same, and its sender is to stop: 200.
func paid(c *call, outcome *holdfast.Outcome) answer {
	a := c.paymentChanged(outcome)
	if outcome.First && outcome.Payment.State == holdfast.PaymentGranted {
		a.status = http.StatusCreated
	}
	return a
}

// paymentRefundBody tells of a refund of a payment.
type paymentRefundBody struct {
	RefundID string           `json:"refund_id" doc:"The provider's id of the refund; 1 to 255 bytes. Each counts once" example:"re_1"`
	Amount   *holdfast.Amount `json:"amount,omitempty" null:"all" minimum:"1" nullable:"true" doc:"How much was given back by this refund, in the currency's smallest step; null: all that is left"`
	Policy   *string          `json:"policy,omitempty" null:"default" nullable:"true" doc:"What is taken back: revoke_unused (what is not used), revoke_all_as_debt (that, and what was used becomes debt) or keep (nothing); null: the plan's, or revoke_unused; of a dispute revoke_all_as_debt"`
	Dispute  bool             `json:"dispute,omitempty" doc:"The payer's bank took it back: the account is blocked"`
}

// revokeUnused is how the API calls the policy that the core has no word for.
const revokeUnused = "revoke_unused"

func refundPayment(c *call) (holdfast.Command, *answer) {
	var body paymentRefundBody
	if unread := c.from.body(c, &body); unread != nil {
		return holdfast.Command{}, unread
	}
	op := holdfast.RefundPayment{
		Provider: c.from.subject(c, "provider"), PaymentID: c.from.subject(c, "payment_id"),
		Refund: holdfast.PaymentRefund{ID: body.RefundID, Amount: body.Amount, Dispute: body.Dispute},
	}
	if body.Policy != nil {
		op.Refund.Policy, op.Refund.Chosen = holdfast.RefundPolicy(*body.Policy), true
		switch *body.Policy {
		case revokeUnused:
			op.Refund.Policy = holdfast.RefundRevokeUnused
		case string(holdfast.RefundRevokeUnused): // empty
			op.Refund.Policy = "none"
		}
	}
	// Whose the payment is, is not known yet.
	command := holdfast.Command{Target: holdfast.AccountID{1}, Do: op}
	c.send = func(ctx context.Context, command holdfast.Command) (outcome holdfast.Outcome, err error) {
		outcome, c.pending, err = c.api.Payments.Refund(ctx, payment.Request{Project: command.Project, Actor: command.Actor}, op)
		return outcome, err
	}
	return command, c.completePayment(&command)
}

func refundedPayment(c *call, outcome *holdfast.Outcome) answer {
	if c.pending {
		return answer{status: http.StatusAccepted, body: PaymentPending{State: "pending"}}
	}
	a := c.paymentChanged(outcome)
	if outcome.Changed {
		a.status = http.StatusCreated
	}
	return a
}

// paymentChanged shows a payment and, as read back, the account that has what it granted.
func (c *call) paymentChanged(outcome *holdfast.Outcome) answer {
	a, view := answer{status: http.StatusOK}, outcome.Account
	switch {
	case outcome.Payment.Flag == holdfast.WrongPerson:
		view = nil // the account is somebody else's
	case outcome.Owner.Merged:
		view, a.cause = c.accountOfNow() // it is done either way
	}
	a.body = PaymentChanged{Payment: c.payment(outcome.Payment, view), Changed: outcome.Changed}
	return a
}

func getPayment(c *call) answer {
	c.noQuery()
	check := holdfast.Command{Target: holdfast.AccountID{1}, Do: holdfast.RefundPayment{
		Provider: c.request.PathValue("provider"), PaymentID: c.request.PathValue("payment_id"), Refund: holdfast.PaymentRefund{ID: "any"},
	}}
	c.problems = merge(c.problems, check.Check(), c.from.keyField())
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	if c.api.Payments == nil {
		return c.notFound()
	}
	found, owner, err := c.api.Payments.Find(c.context(), c.key.Project, c.request.PathValue("provider"), c.request.PathValue("payment_id"))
	switch {
	case err != nil:
		return c.failed(err)
	case found == nil:
		return c.notFound()
	}
	c.account = owner
	view, err := c.accountOfNow()
	switch {
	case err != nil:
		return c.failed(err)
	case view == nil:
		return c.notFound()
	}
	c.accountName = view.Account.Name
	return answer{status: http.StatusOK, body: c.payment(found, view)}
}
