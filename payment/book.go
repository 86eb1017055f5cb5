package payment

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Order is what was agreed on before a payment, OrderName how its provider names it, and OrderPaid a payment of it.
type (
	Order     = store.Order
	OrderName = store.OrderName
	OrderPaid = store.OrderPaid
)

// Orders keeps what was agreed on. Errors are the store's.
type Orders interface {
	AddOrder(ctx context.Context, order Order) error
	OrderNamed(ctx context.Context, name OrderName) (order Order, known bool, err error)
	RecurringOrders(ctx context.Context, project, provider, account string) ([]Order, error)
	PayOrder(ctx context.Context, name OrderName, paid OrderPaid) error
	TellOrder(ctx context.Context, name OrderName, cancelled bool, at time.Time) error
	ClaimedPayments(ctx context.Context, project, provider, after string, limit int) ([]string, error)
	NamePayment(ctx context.Context, claim store.Claim, name string) error
	PaymentNamed(ctx context.Context, project, provider, name string) (paymentID string, err error)
}

// Accounts shows what an account has, what is sold, and the time, as the engine does.
type Accounts interface {
	View(ctx context.Context, project, account string) (*holdfast.AccountView, error)
	Catalog(project string) *holdfast.Catalog
	Now() time.Time
}

// Book brings together what a provider tells and what was agreed on with it. It serves one project and one provider.
type Book struct {
	Desk     *Desk
	Orders   Orders
	Accounts Accounts
	Project  string
	Provider string
}

// The products of payments for which nothing can be granted: no catalog has them, so these are kept for their payers, and
// flagged.
const (
	NoProduct     = "none.of.the.catalog"     // nobody knows what was bought
	AnothersOrder = "order.of.another.person" // somebody else has paid for an order
)

// Sale is a payment that its provider has vouched for.
type Sale struct {
	Account string
	Order   *Order // nil: it belongs to none
	First   bool   // it is the payment that the order began with
	Payer   string // as the provider names people
	PaidAt  time.Time
	Pay     holdfast.Pay
}

// Name is the name of an order of this provider.
func (b *Book) Name(reference string) OrderName {
	return OrderName{Project: b.Project, Provider: b.Provider, Reference: reference}
}

// Unavailable turns a failure of the orders into an error of the caller's kind, as the desk does.
func (b *Book) Unavailable(err error) error { return b.Desk.unavailable(err) }

// Find reads an order; nil: there is none of this name.
func (b *Book) Find(ctx context.Context, reference string) (*Order, error) {
	order, known, err := b.Orders.OrderNamed(ctx, b.Name(reference))
	if err != nil {
		return nil, b.Unavailable(err)
	}
	if !known {
		return nil, nil
	}
	return &order, nil
}

// Keep keeps an order, unless one of its name is there.
func (b *Book) Keep(ctx context.Context, order Order) error {
	if err := b.Orders.AddOrder(ctx, order); err != nil {
		return b.Unavailable(err)
	}
	return nil
}

// Sell has a payment decided that the provider vouches for. It is never turned away for how it was told, since whoever paid
// would lose it: an end of the period that the core does not accept is left out, and the product's period counts. Where the
// provider has told after this payment that the order is not charged again, the subscription is cancelled again.
//
// An error means that it was not kept, or that this is not known: the provider must tell it again.
func (b *Book) Sell(ctx context.Context, sale Sale) (holdfast.Outcome, error) {
	op := sale.Pay
	op.Provider = b.Provider
	if !holdfast.ValidIdentifier(op.Product) {
		op.Product = NoProduct
	}
	r := Request{Project: b.Project, Account: sale.Account, Actor: b.Provider}
	if sale.Order != nil {
		paid := OrderPaid{Payment: op.PaymentID, Payer: sale.Payer, First: sale.First, At: sale.PaidAt}
		if err := b.Orders.PayOrder(ctx, sale.Order.OrderName, paid); err != nil {
			return holdfast.Outcome{}, b.Unavailable(err)
		}
	}
	outcome, err := b.Desk.Pay(ctx, r, op)
	if err != nil {
		return outcome, err
	}
	if outcome.Reason == holdfast.Invalid && !op.PeriodEnd.IsZero() {
		op.PeriodEnd = time.Time{}
		if outcome, err = b.Desk.Pay(ctx, r, op); err != nil {
			return outcome, err
		}
	}
	if outcome.Payment == nil {
		problem := string(outcome.Reason)
		for _, p := range outcome.Problems {
			problem += ", " + p.Field + ": " + p.Hint
		}
		return outcome, fmt.Errorf("keep payment %s: %s", op.PaymentID, problem)
	}
	if sale.Order != nil && outcome.Payment.State == holdfast.PaymentGranted {
		err = b.afterSale(ctx, sale)
	}
	return outcome, err
}

// afterSale lets what was told of the order's renewal hold, which the payment may have overtaken.
func (b *Book) afterSale(ctx context.Context, sale Sale) error {
	order, err := b.Find(ctx, sale.Order.Reference)
	if err != nil || order == nil || !order.Cancelled {
		return err
	}
	if sale.PaidAt.After(order.ToldAt) { // it was charged again since
		if err := b.Orders.TellOrder(ctx, order.OrderName, false, sale.PaidAt); err != nil {
			return b.Unavailable(err)
		}
		return nil
	}
	_, _, err = b.agree(ctx, order, "")
	return err
}

// Renewal is what became of a subscription when its provider told whether it is charged again.
type Renewal string

// What became of it.
const (
	Unchanged Renewal = "unchanged" // it was so already, or another subscription runs
	Cancelled Renewal = "cancelled"
	Resumed   Renewal = "resumed"
)

// Tell keeps whether the provider will charge an order again, unless something later was told, and lets the account's
// subscription be so. A provider that does not say when it was so gives a key, under which it counts once.
func (b *Book) Tell(ctx context.Context, order *Order, cancelled bool, at time.Time, key string) (Renewal, error) {
	became := Unchanged
	if key != "" {
		asked := *order
		asked.Cancelled = cancelled
		first, repeated, err := b.agree(ctx, &asked, key)
		if err != nil || repeated {
			return Unchanged, err
		}
		became = first
	}
	if err := b.Orders.TellOrder(ctx, order.OrderName, cancelled, at); err != nil {
		return "", b.Unavailable(err)
	}
	told, err := b.Find(ctx, order.Reference)
	if err != nil || told == nil {
		return became, err
	}
	if again, _, err := b.agree(ctx, told, ""); err != nil || again != Unchanged {
		return again, err
	}
	return became, nil
}

// agree cancels or resumes the account's subscription as the order says, where the order's plan is the one that runs: what
// became of an older subscription is no matter. What is paid stays in any case.
func (b *Book) agree(ctx context.Context, order *Order, key string) (became Renewal, repeated bool, err error) {
	view, err := b.Accounts.View(ctx, b.Project, order.Account)
	if err != nil {
		return "", false, err
	}
	product, ok := b.Accounts.Catalog(b.Project).Product(order.Product)
	if !ok || product.Plan == "" || view.Subscription == nil || view.Plan != product.Plan {
		return Unchanged, false, nil
	}
	command := holdfast.Command{Project: b.Project, Account: order.Account, Actor: b.Provider, Key: key, Do: holdfast.ResumeSubscription{}}
	became = Resumed
	if order.Cancelled {
		command.Do, became = holdfast.CancelSubscription{}, Cancelled
	}
	outcome, err := b.Desk.Engine.Submit(ctx, command)
	switch {
	case err != nil:
		return "", false, err
	case outcome.Replayed && outcome.Reason == "":
		return Unchanged, true, nil
	case outcome.Changed:
		return became, false, nil
	}
	return Unchanged, false, nil
}

// Refund has a refund that the provider vouches for decided. Pending is true where its payment is not known yet: it is kept
// until that comes.
func (b *Book) Refund(ctx context.Context, paymentID string, refund holdfast.PaymentRefund) (outcome holdfast.Outcome, pending bool, err error) {
	op := holdfast.RefundPayment{Provider: b.Provider, PaymentID: paymentID, Refund: refund}
	outcome, pending, err = b.Desk.Refund(ctx, Request{Project: b.Project, Actor: b.Provider}, op)
	if err == nil && outcome.Reason == holdfast.Invalid {
		err = fmt.Errorf("refund %s of payment %s: %s: %s", refund.ID, paymentID, outcome.Problems[0].Field, outcome.Problems[0].Hint)
	}
	return outcome, pending, err
}

// Names keeps a further id that the provider has for a payment, under which it will tell of refunds, and applies those that
// were told under it before.
func (b *Book) Names(ctx context.Context, paymentID, name string) error {
	claim := store.Claim{Project: b.Project, Provider: b.Provider, PaymentID: paymentID}
	if err := b.Orders.NamePayment(ctx, claim, name); err != nil {
		return b.Unavailable(err)
	}
	claim.PaymentID = name
	kept, _, err := b.Desk.Claims.PaymentOwner(ctx, claim)
	if err != nil {
		return b.Unavailable(err)
	}
	for _, refund := range kept.Refunds {
		if _, _, err := b.Refund(ctx, paymentID, refund); err != nil {
			return err
		}
	}
	return nil
}

// Named is the id of the payment that has this further name; the name itself where it has none.
func (b *Book) Named(ctx context.Context, name string) (string, error) {
	paymentID, err := b.Orders.PaymentNamed(ctx, b.Project, b.Provider, name)
	if err != nil {
		return "", b.Unavailable(err)
	}
	if paymentID == "" {
		return name, nil
	}
	return paymentID, nil
}

// RefundNamed is Refund where the provider tells the payment by its id or by a further name, which may be told later.
func (b *Book) RefundNamed(ctx context.Context, name string, refund holdfast.PaymentRefund) (outcome holdfast.Outcome, pending bool, err error) {
	paymentID, err := b.Named(ctx, name)
	if err != nil {
		return outcome, false, err
	}
	if outcome, pending, err = b.Refund(ctx, paymentID, refund); err != nil || !pending || paymentID != name {
		return outcome, pending, err
	}
	// It waits under the name. Whoever told the name meanwhile may have looked before it was kept.
	if paymentID, err = b.Named(ctx, name); err != nil || paymentID == name {
		return outcome, true, err
	}
	return b.Refund(ctx, paymentID, refund)
}

// Payment reads a payment of this provider; nil: nobody has told of it.
func (b *Book) Payment(ctx context.Context, paymentID string) (*holdfast.Payment, error) {
	paid, _, err := b.Desk.Find(ctx, b.Project, b.Provider, paymentID)
	return paid, err
}

// SamePerson reports whether two names lead to one account.
func (b *Book) SamePerson(ctx context.Context, one, other string) (bool, error) {
	if one == other {
		return true, nil
	}
	first, err := b.Desk.Engine.Resolve(ctx, b.Project, holdfast.AccountIDOf(b.Project, one))
	if err != nil {
		return false, err
	}
	second, err := b.Desk.Engine.Resolve(ctx, b.Project, holdfast.AccountIDOf(b.Project, other))
	return first == second, err
}

// Reconciled is what a comparison of the provider's books with ours came to. Ids are those of payments.
type Reconciled struct {
	Granted  []string // paid there and missing here: granted now
	Flagged  []string // paid there and missing here: kept now, and nothing could be granted
	Refunded []string // refunded there and not here: applied now
	Already  int      // as it should be
	Missing  []string // here and not there
}

// Agrees reports whether both books said the same before.
func (r *Reconciled) Agrees() bool {
	return len(r.Granted)+len(r.Flagged)+len(r.Refunded)+len(r.Missing) == 0
}

// NotThere lists the payments of this provider that are here since a time, and which known does not know. Those that were
// told after the provider was asked are left out.
func (b *Book) NotThere(ctx context.Context, known map[string]bool, since, asked time.Time) (missing []string, err error) {
	after := ""
	for {
		ids, err := b.Orders.ClaimedPayments(ctx, b.Project, b.Provider, after, holdfast.MaxPage)
		if err != nil {
			return nil, b.Unavailable(err)
		}
		if len(ids) == 0 {
			return missing, nil
		}
		for _, id := range ids {
			if known[id] {
				continue
			}
			paid, err := b.Payment(ctx, id)
			if err != nil {
				return nil, err
			}
			if paid != nil && paid.PaidAt.Before(asked) && !paid.PaidAt.Before(since) {
				missing = append(missing, id)
			}
		}
		after = ids[len(ids)-1]
	}
}
