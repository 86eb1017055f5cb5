package holdfast

import (
	"fmt"
	"slices"
	"time"
)

// Payment is a completed payment as it is kept: what was paid, and what it came to. It is kept for ever.
type Payment struct {
	ID        ID // follows from provider and payment id: see PaymentIDOf
	Provider  string
	PaymentID string // of the provider's payment object
	Product   string
	Amount    Amount // of the currency's smallest step
	Currency  string
	State     PaymentState
	Flag      Flag `json:",omitzero"` // why nothing was granted

	Plan        string    `json:",omitzero"` // of a product that is a plan
	PeriodStart time.Time `json:",omitzero"`
	PeriodEnd   time.Time `json:",omitzero"`

	Refunded Amount            `json:",omitzero"` // of Amount
	Kept     Amount            `json:",omitzero"` // of Refunded, where the refund was to take nothing back
	Refunds  []string          `json:",omitzero"` // ids of the refunds that were applied
	Revoked  Amount            `json:",omitzero"` // of what was granted: void now, or when it returns
	Owed     Amount            `json:",omitzero"` // of what was granted: it had been used, and became debt
	OwedOf   map[string]Amount `json:",omitzero"` // the same, per unit
	Disputed bool              `json:",omitzero"`
	PaidAt   time.Time
}

// PaymentState says what a payment came to.
type PaymentState string

// The states.
const (
	PaymentGranted PaymentState = "granted"
	PaymentFlagged PaymentState = "flagged" // kept, and nothing was granted: an operator must look
)

// Flag says why a payment granted nothing.
type Flag string

// The flags.
const (
	WrongAmount    Flag = "wrong_amount"
	WrongCurrency  Flag = "wrong_currency"
	WrongProduct   Flag = "wrong_product"
	WrongPerson    Flag = "wrong_person"
	PayerBlocked   Flag = "account_blocked"
	PayerDeleted   Flag = "account_deleted"
	PayerTooRich   Flag = "too_much" // what it buys does not fit into what an account can hold
	RefundedBefore Flag = "refunded" // it was refunded in full before it arrived
)

// PaymentIDOf is the id, within its account, of a provider's payment.
func PaymentIDOf(account AccountID, provider, paymentID string) ID {
	return namedID(ID(account), "payment\x00"+provider+"\x00"+paymentID)
}

// Pay grants what a completed payment has bought, once per provider and payment id. It needs no key: its ids are the key.
// It creates an unknown account. What does not fit the catalog, or cannot be given to the account, is kept and flagged; it
// is never lost, and never refused.
type Pay struct {
	base
	Provider  string
	PaymentID string
	Product   string
	Amount    Amount
	Currency  string
	PeriodEnd time.Time // where the provider says until when a period was paid; zero: the product's period
	// Agreed says that this price was promised before, so that a newer catalog does not make it wrong.
	Agreed bool
	// Stranger says that somebody else's name came with it: it is kept with this account, and nothing is granted until its
	// owner's own telling comes.
	Stranger bool
	// Refunds came before the payment.
	Refunds []PaymentRefund
}

// PaymentRefund is one refund of a payment, as its provider tells it.
type PaymentRefund struct {
	ID      string
	Amount  *Amount      `json:",omitzero"` // nil: all that is left
	Policy  RefundPolicy `json:",omitzero"`
	Chosen  bool         `json:",omitzero"` // Policy was named by the caller
	Dispute bool         `json:",omitzero"`
}

// Name is "pay".
func (Pay) Name() string { return "pay" }

func (op Pay) payment(account AccountID) ID { return PaymentIDOf(account, op.Provider, op.PaymentID) }

func (op Pay) check(p *problems) {
	p.paymentID(op.Provider, op.PaymentID)
	p.word("product", op.Product)
	if op.Amount < 0 || op.Amount > MaxAmount {
		p.add("amount", fmt.Sprintf("use an integer from 0 to %d", MaxAmount))
	}
	p.currency("currency", op.Currency)
}

func (p *problems) paymentID(provider, id string) {
	p.word("provider", provider)
	if id == "" || len(id) > MaxPaymentIDBytes || !printable(id) {
		p.add("payment_id", fmt.Sprintf("send the provider's id of the payment, 1 to %d bytes of valid UTF-8 without control characters", MaxPaymentIDBytes))
	}
}

func (p *problems) currency(field, code string) {
	if len(code) != 3 || slices.ContainsFunc([]byte(code), func(b byte) bool { return b < 'A' || b > 'Z' }) {
		p.add(field, "use a code of three capital letters, such as XTR or USD")
	}
}

func (op Pay) print(f *printer) {
	f.text("provider", op.Provider)
	f.text("payment_id", op.PaymentID)
}

func (op Pay) decide(d *decision) Outcome {
	id := op.payment(d.state.Account.ID)
	known, decided := op.known(d)
	switch {
	case known != nil && op.Stranger: // what its owner told stays as it is
		d.tell(Event{ID: namedID(id, "stranger"), Kind: EventPaymentFlagged, Payment: id})
		flagged := op.record(id, d.now)
		flagged.State, flagged.Flag = PaymentFlagged, WrongPerson
		return Outcome{Payment: flagged}
	case decided:
		changed := d.refundAll(known, op.Refunds)
		shown := known.clone()
		return Outcome{Changed: changed, Payment: &shown, Account: d.view()}
	}
	product, flag := op.judge(d)
	// From here on the command succeeds.
	d.open()
	paid := op.record(id, d.now)
	if known != nil {
		*known = *paid
		paid = known
		d.state.touchPayment(paid)
	} else {
		d.state.addPayment(paid)
	}
	outcome := Outcome{Changed: true, First: true}
	if flag != "" {
		paid.State, paid.Flag = PaymentFlagged, flag
		d.tell(Event{ID: namedID(id, "flagged"), Kind: EventPaymentFlagged, Payment: id})
		d.refundAll(paid, op.Refunds)
	} else {
		op.grant(d, product, paid)
		d.tell(Event{ID: namedID(id, "granted"), Kind: EventPaymentGranted, Payment: id})
		d.refundAll(paid, op.Refunds)
	}
	shown := paid.clone()
	outcome.Payment = &shown
	if !op.Stranger { // who is shown nothing of its owner's
		outcome.Account = d.view()
	}
	if product != nil && product.Grant != nil {
		outcome.Balance = d.balance(product.Grant.Unit)
	}
	return outcome
}

// known is the payment where it was told before. It is decided, unless it was only a stranger who told of it: then its owner's
// own telling counts.
func (op Pay) known(d *decision) (known *Payment, decided bool) {
	known, ok := d.state.Payment(op.payment(d.state.Account.ID))
	return known, ok && !(known.Flag == WrongPerson && len(known.Refunds) == 0)
}

// record is the payment as it is kept, with nothing given for it yet.
func (op Pay) record(id ID, now time.Time) *Payment {
	return &Payment{
		ID: id, Provider: op.Provider, PaymentID: op.PaymentID, Product: op.Product, Amount: op.Amount, Currency: op.Currency,
		State: PaymentGranted, PaidAt: now,
	}
}

// judge says what was bought, or why nothing can be granted for it.
func (op Pay) judge(d *decision) (*Product, Flag) {
	account := &d.state.Account
	product, ok := d.catalog.Product(op.Product)
	if !ok {
		return nil, WrongProduct
	}
	price, sold := find(product.Prices, func(m *Money) bool { return m.Currency == op.Currency })
	switch {
	case op.Stranger:
		return nil, WrongPerson
	case !sold:
		return nil, WrongCurrency
	case price.Amount != op.Amount && !op.Agreed:
		return nil, WrongAmount
	case !account.DeletedAt.IsZero():
		return nil, PayerDeleted
	case account.Blocked:
		return nil, PayerBlocked
	case op.refundedBefore(d, product):
		return nil, RefundedBefore
	case !d.hasRoomFor(product):
		return nil, PayerTooRich
	}
	return product, ""
}

// refundedBefore reports whether all of it was taken back before it came: then it is not given, so that nothing of it can be
// used, or repay a debt, in between.
func (op Pay) refundedBefore(d *decision, product *Product) bool {
	left := op.Amount
	for _, refund := range op.Refunds {
		if d.refundPolicy(&Payment{Plan: product.Plan}, refund) == RefundKeep {
			return false
		}
		if refund.Amount == nil {
			left = 0
		} else {
			left -= min(left, *refund.Amount)
		}
	}
	return len(op.Refunds) > 0 && left == 0
}

// hasRoomFor reports whether what the product gives stays within the bounds of an account.
func (d *decision) hasRoomFor(product *Product) bool {
	if product.Grant != nil {
		return d.roomFor(&Grant{Unit: product.Grant.Unit, Granted: product.Grant.Amount}) == nil
	}
	if s := d.state.Account.Subscription; s != nil && len(s.Periods) >= MaxPaidPeriods {
		return false
	}
	plan, ok := d.catalog.Plan(product.Plan)
	return ok && !slices.ContainsFunc(plan.Allowances, func(a Allowance) bool {
		return d.roomFor(&Grant{Unit: a.Unit, Granted: a.Amount}) != nil
	})
}

// checkPeriod bounds what a caller may say about the end of a period that was not told before.
func (op Pay) checkPeriod(d *decision) *Problem {
	product, ok := d.catalog.Product(op.Product)
	if _, decided := op.known(d); op.PeriodEnd.IsZero() || !ok || decided || op.Stranger {
		return nil
	}
	if product.Plan == "" {
		return &Problem{"period_end", "leave it out: the product has no period"}
	}
	from := d.now
	if s := d.state.Account.Subscription; s != nil {
		from = latest(from, s.end())
	}
	if op.PeriodEnd.After(product.Period.after(from, orUTC(d.state.Zones.Account)).Add(24 * time.Hour)) {
		return &Problem{"period_end", "use at most the product's period and a day from what is paid by now"}
	}
	return nil
}

// grant gives what was bought.
func (op Pay) grant(d *decision, product *Product, paid *Payment) {
	if product.Plan != "" {
		d.openPeriod(product, paid, op.PeriodEnd)
		return
	}
	g := &Grant{
		ID: d.newID(), Unit: product.Grant.Unit, Source: FromPurchase, Priority: FromPurchase.defaultPriority(),
		Granted: product.Grant.Amount, StartsAt: d.now, CreatedAt: d.now, Open: true, Payment: paid.ID,
	}
	if product.Grant.For != (Period{}) {
		g.EndsAt = product.Grant.For.after(d.now, orUTC(d.state.Zones.Account))
	}
	d.issued(g, note{kind: EntryGrant, unit: g.Unit, reason: paid.reason()})
}

// reason tells in the ledger which payment it was.
func (p *Payment) reason() string {
	text := []rune("payment " + p.Provider + " " + p.PaymentID)
	return string(text[:min(len(text), MaxReasonBytes/4)])
}

// openPeriod adds a paid period. The plan that runs goes on with it, without a gap, also where it is paid early or in its
// grace. A dearer plan begins now, for a full period, and what is left of the other is kept behind it. A cheaper one begins
// behind what is paid. Without a subscription the period begins now.
//
// Where the provider says until when was paid, that is the end, but never earlier than what is paid already. An end that is
// over, where nothing is paid by now, says nothing: the payment was told late, and pays for a full period from now on.
func (d *decision) openPeriod(product *Product, paid *Payment, end time.Time) {
	account := &d.state.Account
	s := account.Subscription.clone()
	zone := orUTC(d.state.Zones.Account)
	period := PaidPeriod{Plan: product.Plan, Start: d.now, Payment: paid.ID}
	begins := s == nil || d.catalog.dearer(product.Plan, d.plan.Name) && s.Next != product.Plan
	if s == nil {
		s = &Subscription{}
	} else if begins {
		period.Start = earliest(d.now, s.end()) // in its grace it goes on without a gap too, so that what was left is carried over
	} else {
		period.Start = s.end()
		s.Anchor, period.End = product.Period.renew(s.Anchor, period.Start, orUTC(d.state.Zones.Anchor))
	}
	if !period.End.After(d.now) { // it begins, or its grace was longer than the period
		s.Anchor = d.now
		account.Anchor, account.AnchorZone = d.now, account.TimeZone
		d.state.Zones.Anchor = d.state.Zones.Account
		period.End = product.Period.after(d.now, zone)
	}
	if end.After(d.now) || !end.IsZero() && period.Start.After(d.now) {
		period.End = end
	}
	if !period.End.After(period.Start) { // what it pays for lies within what is paid already
		paid.Plan, paid.PeriodStart, paid.PeriodEnd = period.Plan, d.now, s.end()
		d.addToPaid(s, period)
		return
	}
	paid.Plan, paid.PeriodStart, paid.PeriodEnd = period.Plan, period.Start, period.End
	if begins {
		s.Periods = append([]PaidPeriod{period}, d.behind(s.Periods, period.End)...)
	} else {
		s.Periods = append(s.Periods, period)
	}
	s.Cancelled = false
	if s.Next == product.Plan {
		s.Next = ""
	}
	account.Subscription, account.Lapsed = s, ""
	d.state.touchAccount()
	if current, ok := s.periodAt(d.now); ok {
		d.moveTo(current.Plan, d.now)
	}
	d.tell(Event{ID: namedID(paid.ID, "period"), Kind: EventSubscriptionRenewed, Payment: paid.ID})
	d.advance() // a late renewal: what was left is carried over now
}

// behind moves what is left of paid periods to after an instant, in their order. What they have given ends with them.
func (d *decision) behind(periods []PaidPeriod, start time.Time) []PaidPeriod {
	var moved []PaidPeriod
	ends := map[time.Time]time.Time{}
	for _, p := range periods {
		left := p.End.Sub(latest(p.Start, d.now))
		if left <= 0 {
			continue
		}
		if p.Start.Before(d.now) {
			p.Whole = p.whole()
		}
		ends[p.End.UTC()] = start.Add(left)
		p.Start, p.End = start, start.Add(left)
		start = p.End
		moved = append(moved, p)
	}
	for _, g := range d.state.Grants {
		a, known := d.catalog.allowance(g.Allowance)
		if end, follows := ends[g.EndsAt.UTC()]; follows && g.InForce(d.now) && (known && a.Every.Term || g.Source == FromAllowance && g.Allowance == "") {
			g.EndsAt = end
			d.state.touchGrant(g)
		}
	}
	return moved
}

// addToPaid gives the allowances of a payment whose period lies within what is paid already: renewals that came out of
// order are each given once.
func (d *decision) addToPaid(s *Subscription, period PaidPeriod) {
	plan, ok := d.catalog.Plan(period.Plan)
	if !ok {
		return
	}
	for i := range plan.Allowances {
		a := &plan.Allowances[i]
		if !a.Every.Term {
			continue
		}
		g := &Grant{
			ID: namedID(period.Payment, a.Key), Unit: a.Unit, Source: FromAllowance, Priority: FromAllowance.defaultPriority(),
			Granted: a.Amount, StartsAt: d.now, EndsAt: s.end(), CreatedAt: d.now, Open: true, Payment: period.Payment,
		}
		d.post(note{kind: EntryGrant, unit: g.Unit}, func(p *posting) { p.issue(g) })
		d.repay(g)
	}
}

// after is the end of a period that begins at an instant.
func (p Period) after(start time.Time, zone *time.Location) time.Time {
	if p.Months > 0 {
		return monthsAfter(start.In(zone), p.Months)
	}
	return start.Add(time.Duration(p.Days) * 24 * time.Hour)
}

// renew is the end of a period that continues one that is counted from the anchor: months keep their day. Where something in
// between was no whole number of months, they are counted from the period's own start.
func (p Period) renew(anchor, start time.Time, zone *time.Location) (counted, end time.Time) {
	if p.Months == 0 {
		return anchor, p.after(start, zone)
	}
	from, to := anchor.In(zone), start.In(zone)
	months := 12*(to.Year()-from.Year()) + int(to.Month()-from.Month())
	if !monthsAfter(from, months).Equal(start) {
		return start, p.after(start, zone)
	}
	return anchor, monthsAfter(from, months+p.Months)
}

// days is the length of the period, with months of 30 days.
func (p Period) days() int { return p.Days + 30*p.Months }

func (p *Payment) clone() Payment {
	copied := *p
	copied.Refunds = slices.Clone(p.Refunds)
	return copied
}
