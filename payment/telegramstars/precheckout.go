package telegramstars

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment"
)

// Reason is the key of the text that tells a person why a payment may not go on.
type Reason string

// The reasons, in the order in which they win.
const (
	TryAgain          Reason = "try_again"          // nothing can be said now; nothing was charged
	WrongCurrency     Reason = "wrong_currency"     // only Stars are taken
	OrderUnknown      Reason = "order_unknown"      // no such order of this bot
	WrongPerson       Reason = "wrong_person"       // the invoice was made for somebody else
	OrderPaid         Reason = "order_paid"         // an order is paid once
	NotSold           Reason = "not_sold"           // the product is not sold any more
	PriceChanged      Reason = "price_changed"      // a new invoice has the new price
	AccountBlocked    Reason = "account_blocked"    // nothing could be granted
	AlreadySubscribed Reason = "already_subscribed" // the plan is paid until Answer.Until
)

// Reasons lists every reason, in the order in which they win.
func Reasons() []Reason {
	return []Reason{
		TryAgain, WrongCurrency, OrderUnknown, WrongPerson, OrderPaid, NotSold, PriceChanged, AccountBlocked, AlreadySubscribed,
	}
}

// Answer is what to answer a pre-checkout query.
type Answer struct {
	OK     bool
	Reason Reason    // empty: OK
	Until  time.Time // of AlreadySubscribed: until when the plan is paid
	// Account is whose the order is, where the person is known to be the same; empty otherwise.
	Account string
}

// PreCheckout says whether a payment may go on: the order is known, of this bot, this person and not paid; product and price
// are those of the order; the person does not have the plan already. It looks at what is stored alone, and always answers
// within the deadline. Whatever fails, the answer is "try again": not charging is the safe failure. Nothing is written or
// granted: the person can still turn back.
func (s *Stars) PreCheckout(ctx context.Context, query PreCheckoutQuery) Answer {
	deadline := s.Deadline
	if deadline == 0 {
		deadline = DefaultDeadline
	}
	ctx, stop := context.WithTimeout(ctx, deadline)
	defer stop()
	answered := make(chan Answer, 1)
	go func() { // ends with ctx, which every store minds; the answer does not wait even for one that would not
		answer, err := s.judge(ctx, query)
		if err != nil {
			answer = Answer{Reason: TryAgain}
		}
		answered <- answer
	}()
	select {
	case answer := <-answered:
		return answer
	case <-ctx.Done():
		return Answer{Reason: TryAgain}
	}
}

func (s *Stars) judge(ctx context.Context, query PreCheckoutQuery) (Answer, error) {
	account := ""
	no := func(reason Reason) (Answer, error) { return Answer{Reason: reason, Account: account}, nil }
	if query.Currency != Currency {
		return no(WrongCurrency)
	}
	order, err := s.find(ctx, query.InvoicePayload)
	if err != nil {
		return Answer{}, err
	}
	if order == nil {
		return no(OrderUnknown)
	}
	same, err := s.Book.SamePerson(ctx, order.Account, s.accountOf(query.From.ID))
	if err != nil {
		return Answer{}, err
	}
	if !same {
		return no(WrongPerson)
	}
	account = order.Account
	if !order.PaidAt.IsZero() {
		return no(OrderPaid)
	}
	product, ok := s.Book.Accounts.Catalog(s.Book.Project).Product(order.Product)
	price, priced := starPrice(product)
	switch {
	case !ok || !priced:
		return no(NotSold)
	case query.TotalAmount != order.Price, price != order.Price && !s.stands(order):
		return no(PriceChanged)
	}
	view, err := s.Book.Accounts.View(ctx, s.Book.Project, order.Account)
	if err != nil {
		return Answer{}, err
	}
	if view.Account.Blocked || !view.Account.DeletedAt.IsZero() {
		return no(AccountBlocked)
	}
	twice, err := s.wouldPayTwice(ctx, order, product, view)
	if err != nil {
		return Answer{}, err
	}
	if twice {
		return Answer{Reason: AlreadySubscribed, Until: view.Subscription.PaidUntil, Account: account}, nil
	}
	return Answer{OK: true, Account: account}, nil
}

// stands reports whether the order's price is honoured although the catalog has another one now.
func (s *Stars) stands(order *payment.Order) bool {
	keeps := s.PriceStands
	if keeps == 0 {
		keeps = DefaultPriceStands
	}
	return s.Book.Accounts.Now().Before(order.CreatedAt.Add(keeps))
}

// wouldPayTwice reports whether the person has the plan of the order already. A subscription at Telegram is paid from today
// on, so what is left of a paid period would be lost; a single payment adds a period behind it, and is refused only where a
// subscription would be charged again besides.
func (s *Stars) wouldPayTwice(ctx context.Context, order *payment.Order, product *holdfast.Product, view *holdfast.AccountView) (bool, error) {
	running := view.Subscription
	if product.Plan == "" || running == nil || view.Plan != product.Plan || running.Status == holdfast.SubscriptionGrace {
		return false, nil
	}
	if order.Recurring {
		return true, nil
	}
	others, err := s.recurring(ctx, order.Account)
	for _, other := range others {
		if other.plan == product.Plan && !other.order.Cancelled {
			return true, err
		}
	}
	return false, err
}
