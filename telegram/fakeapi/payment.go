package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
	"unicode/utf8"
)

// The clocks of queries, and what Telegram sells subscriptions for.
const (
	checkoutWaits = 10 * time.Second
	callbackWaits = 15 * time.Second

	// SubscriptionPeriod is the only length of a subscription.
	SubscriptionPeriod = 30 * 24 * time.Hour

	maxSubscriptionStars = 10_000
)

const tooOld = "query is too old and response timeout expired or query ID is invalid"

// Invoice is what can be paid.
type Invoice struct {
	Title       string `json:"title"`
	Description string `json:"description"`
	Payload     string `json:"payload"` // the bot's own name of the order
	Stars       int64  `json:"stars"`
	Recurring   bool   `json:"recurring,omitempty"` // every 30 days
	Link        string `json:"link"`                // with it, anybody can pay, as with a forwarded invoice
	Payments    int    `json:"payments"`            // how often it was paid

	start string
	chat  int64 // where the bot sent it; 0: it made a link
}

func (i *Invoice) describe() map[string]any {
	return map[string]any{"title": i.Title, "description": i.Description, "start_parameter": i.start, "currency": "XTR", "total_amount": i.Stars}
}

// Payment is a charge of somebody's Stars.
type Payment struct {
	ChargeID  string    `json:"charge_id"`
	Payload   string    `json:"payload"`
	Stars     int64     `json:"stars"`
	Payer     int64     `json:"payer"`
	At        time.Time `json:"at"`
	Until     time.Time `json:"until,omitzero"` // of a subscription
	Recurring bool      `json:"recurring,omitempty"`
	First     bool      `json:"first,omitempty"` // of a subscription
}

func (p *Payment) describe() map[string]any {
	d := map[string]any{
		"currency": "XTR", "total_amount": p.Stars, "invoice_payload": p.Payload, "telegram_payment_charge_id": p.ChargeID,
		"provider_payment_charge_id": "",
	}
	if p.Recurring {
		d["subscription_expiration_date"], d["is_recurring"] = p.Until.Unix(), true
		if p.First {
			d["is_first_recurring"] = true
		}
	}
	return d
}

func (p *Payment) describeRefund() map[string]any {
	return map[string]any{"currency": "XTR", "total_amount": p.Stars, "invoice_payload": p.Payload, "telegram_payment_charge_id": p.ChargeID}
}

// charge is a payment and what became of it.
type charge struct {
	Payment
	chat     int64
	refunded bool
}

// transaction is an entry of getStarTransactions, as the Bot API shows it.
type transaction = map[string]any

// readInvoice checks what Telegram checks of an invoice in Stars.
func readInvoice(p parameters) (*Invoice, *refusal) {
	var prices []struct {
		Label  string
		Amount int64
	}
	if problem := p.decode("prices", &prices); problem != nil {
		return nil, problem
	}
	i := &Invoice{Title: p.text("title"), Description: p.text("description"), Payload: p.text("payload"), start: p.text("start_parameter")}
	switch {
	case !between(utf8.RuneCountInString(i.Title), 1, 32):
		return nil, bad("INVOICE_TITLE_INVALID: 1 to 32 characters")
	case !between(utf8.RuneCountInString(i.Description), 1, 255):
		return nil, bad("INVOICE_DESCRIPTION_INVALID: 1 to 255 characters")
	case !between(len(i.Payload), 1, 128) || !utf8.ValidString(i.Payload):
		return nil, bad("INVOICE_PAYLOAD_INVALID")
	case p.text("currency") != "XTR":
		return nil, bad("CURRENCY_INVALID: Stars are XTR, and nothing else is played")
	case p.text("provider_token") != "":
		return nil, bad("PAYMENT_PROVIDER_INVALID")
	case len(prices) != 1 || prices[0].Label == "":
		return nil, bad("STARS_INVOICE_INVALID")
	case prices[0].Amount < 1 || prices[0].Amount > 1_000_000:
		return nil, bad("CURRENCY_TOTAL_AMOUNT_INVALID")
	}
	i.Stars = prices[0].Amount
	return i, nil
}

func between(n, least, most int) bool { return n >= least && n <= most }

// list gives an invoice its link.
func (b *Bot) list(i *Invoice) *Invoice {
	i.Link = fmt.Sprintf("https://t.me/$fake%d", b.server.next())
	b.invoices[i.Link] = i
	return i
}

func (b *Bot) sendInvoice(p parameters) (any, *refusal) {
	r, problem := b.writable(p)
	if problem != nil {
		return nil, problem
	}
	i, problem := readInvoice(p)
	if problem != nil {
		return nil, problem
	}
	rows, _, problem := keyboard(p)
	switch {
	case problem != nil:
		return nil, problem
	case p.has("subscription_period"):
		return nil, bad("SUBSCRIPTION_PERIOD_INVALID") // subscriptions have links only
	case len(rows) > 0 && !rows[0][0].Pay:
		return nil, bad("REPLY_MARKUP_BUY_EMPTY")
	}
	i.chat = r.chat.ID
	if len(rows) == 0 {
		p.values = maps.Clone(p.values) // the transcript has what the bot sent
		p.values["reply_markup"] = fmt.Sprintf(`{"inline_keyboard":[[{"text":"Pay %d ⭐️","pay":true}]]}`, i.Stars)
	}
	return b.send(p, &Message{Invoice: b.list(i)})
}

func (b *Bot) createInvoiceLink(p parameters) (any, *refusal) {
	i, problem := readInvoice(p)
	if problem != nil {
		return nil, problem
	}
	if period := p.text("subscription_period"); period != "" && period != "0" {
		if period != fmt.Sprint(int64(SubscriptionPeriod.Seconds())) {
			return nil, bad("SUBSCRIPTION_PERIOD_INVALID")
		}
		if i.Stars > maxSubscriptionStars {
			return nil, bad("SUBSCRIPTION_PRICE_INVALID")
		}
		i.Recurring = true
	}
	return b.list(i).Link, nil
}

// Declined is a payment that the bot did not approve.
type Declined struct {
	Message string // what the bot said, as the person reads it; empty: it did not answer in time
}

// Error says what the person reads.
func (d *Declined) Error() string {
	if d.Message == "" {
		return "the bot did not answer the pre-checkout query within 10 seconds"
	}
	return "the bot declined the payment: " + d.Message
}

// ErrNoInvoice is returned where there is nothing to pay.
var ErrNoInvoice = errors.New("there is no such invoice")

// Checkout is a payment that the bot has been asked about.
type Checkout struct {
	person  *Person
	invoice *Invoice
	asked   time.Time
	closed  bool // answered, or too late
	ok      bool
	message string
}

// Invoice is an invoice of the bot, by its link.
func (b *Bot) Invoice(link string) (Invoice, error) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if i := b.invoices[link]; i != nil {
		return *i, nil
	}
	return Invoice{}, ErrNoInvoice
}

// Checkout presses Pay on an invoice, whoever it was made for: the bot is asked, and has ten seconds to approve. The error
// is a *Declined where it does not, ErrNoInvoice, or the context's.
func (p *Person) Checkout(ctx context.Context, link string) (*Checkout, error) {
	b, s := p.bot, p.bot.server
	s.mu.Lock()
	defer s.mu.Unlock()
	i := b.invoices[link]
	if i == nil {
		return nil, ErrNoInvoice
	}
	c := &Checkout{person: p, invoice: i, asked: s.clock.now()}
	id := fmt.Sprint(s.next())
	b.checkouts[id] = c
	defer delete(b.checkouts, id)
	b.tell("pre_checkout_query", 0, fmt.Sprint("checkout ", p.id), map[string]any{
		"id": id, "from": s.users[p.id], "currency": "XTR", "total_amount": i.Stars, "invoice_payload": i.Payload,
	})
	_, err := s.waitUntil(ctx, c.asked.Add(checkoutWaits), func() bool { return c.closed })
	answered := c.closed
	c.closed = true
	switch {
	case err != nil:
		return nil, err
	case !answered || !c.ok:
		return nil, &Declined{Message: c.message}
	}
	return c, nil
}

func (b *Bot) answerPreCheckoutQuery(p parameters) (any, *refusal) {
	c := b.checkouts[p.text("pre_checkout_query_id")]
	ok, message := p.flag("ok"), p.text("error_message")
	switch {
	case c == nil || c.closed || b.server.clock.now().Sub(c.asked) >= checkoutWaits:
		return nil, bad(tooOld)
	case !ok && message == "":
		return nil, bad("error_message must be non-empty") // it is shown to the person
	}
	c.closed, c.ok, c.message = true, ok, message
	return true, nil
}

// Pay presses Pay on an invoice and, where the bot approves, is charged. Errors are those of Checkout.
func (p *Person) Pay(ctx context.Context, link string) (Payment, error) {
	c, err := p.Checkout(ctx, link)
	if err != nil {
		return Payment{}, err
	}
	return c.Charge(), nil
}

// Charge charges an approved payment. Left out, the person has changed their mind; called twice, Telegram has charged twice.
func (c *Checkout) Charge() Payment {
	b := c.person.bot
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.chargeFor(c.person, c.invoice)
}

// ChargeUnasked charges for an invoice although the bot was not asked, as happens where an approval is older than what the
// bot knows by now.
func (p *Person) ChargeUnasked(link string) (Payment, error) {
	p.bot.server.mu.Lock()
	defer p.bot.server.mu.Unlock()
	i := p.bot.invoices[link]
	if i == nil {
		return Payment{}, ErrNoInvoice
	}
	return p.bot.chargeFor(p, i), nil
}

func (b *Bot) chargeFor(p *Person, i *Invoice) Payment {
	now := b.server.clock.now()
	pay := Payment{ChargeID: b.chargeID(), Payload: i.Payload, Stars: i.Stars, Payer: p.id, At: now}
	if i.Recurring {
		pay.Recurring, pay.First, pay.Until = true, true, now.Add(SubscriptionPeriod)
		b.agreements = append(b.agreements, &agreement{bot: b, Subscription: Subscription{
			ChargeID: pay.ChargeID, Payload: i.Payload, User: p.id, Stars: i.Stars, Until: pay.Until, State: Active,
		}})
	}
	i.Payments++
	chat := p.id
	if i.chat < 0 && i.chat == p.chat {
		chat = i.chat // it was paid in the group
	}
	b.book(pay, chat)
	return pay
}

// chargeID looks like Telegram's, and no two bots have the same.
func (b *Bot) chargeID() string { return fmt.Sprintf("stxfake%d_%d", b.profile.ID, b.server.next()) }

// book lists a payment and tells of it.
func (b *Bot) book(pay Payment, chat int64) {
	b.keepCharge(pay, chat)
	b.service(pay.Payer, chat, func(m *Message) { m.Payment = &pay })
}

func (b *Bot) keepCharge(pay Payment, chat int64) {
	b.charges[pay.ChargeID] = &charge{Payment: pay, chat: chat}
	b.balance += pay.Stars
	b.listing = append(b.listing, transaction{"id": pay.ChargeID, "amount": pay.Stars, "date": pay.At.Unix(), "source": b.partner(pay)})
}

func (b *Bot) partner(pay Payment) map[string]any {
	partner := map[string]any{
		"type": "user", "transaction_type": "invoice_payment", "user": b.server.users[pay.Payer], "invoice_payload": pay.Payload,
	}
	if pay.Recurring {
		partner["subscription_period"] = int64(SubscriptionPeriod.Seconds())
	}
	return partner
}

// service posts a message of Telegram's own into a chat, and tells the bot.
func (b *Bot) service(user, chat int64, fill func(*Message)) {
	r := b.rooms[chat]
	m := &Message{From: *b.server.users[user]}
	fill(m)
	b.tell("message", chat, fmt.Sprint("chat ", chat), r.describe(b.post(r, m), false))
}

// Record lists a payment, and its subscription where it has an end, as an outage leaves them: the bot is told nothing. What is
// left out of the payment is filled in.
func (b *Bot) Record(pay Payment) Payment {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.person(User{ID: pay.Payer})
	if pay.ChargeID == "" {
		pay.ChargeID = b.chargeID()
	}
	if pay.At.IsZero() {
		pay.At = b.server.clock.now()
	}
	if !pay.Until.IsZero() && !pay.Recurring {
		pay.Recurring, pay.First = true, true
	}
	if pay.First {
		b.agreements = append(b.agreements, &agreement{bot: b, Subscription: Subscription{
			ChargeID: pay.ChargeID, Payload: pay.Payload, User: pay.Payer, Stars: pay.Stars, Until: pay.Until, State: Active,
		}})
	}
	b.keepCharge(pay, pay.Payer)
	b.server.touch()
	return pay
}

// RecordOther lists a transaction of any kind, as it is, for getStarTransactions.
func (b *Bot) RecordOther(transaction map[string]any) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.listing = append(b.listing, transaction)
}

// RecordRefund lists the refund of a payment, as an outage leaves it: the bot is told nothing.
func (b *Bot) RecordRefund(chargeID string) error {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	c := b.charges[chargeID]
	if c == nil || c.refunded {
		return fmt.Errorf("%q is no payment that could be refunded", chargeID)
	}
	b.refund(c)
	return nil
}

func (b *Bot) refund(c *charge) {
	c.refunded = true
	b.balance -= c.Stars
	b.listing = append(b.listing, transaction{"id": c.ChargeID, "amount": c.Stars, "date": b.server.clock.now().Unix(), "receiver": b.partner(c.Payment)})
}

// refundStarPayment refunds a payment whole. What Telegram answers where the bot has too few Stars is not documented: here
// it is BALANCE_TOO_LOW.
func (b *Bot) refundStarPayment(p parameters) (any, *refusal) {
	id, user := strings.TrimSpace(p.text("telegram_payment_charge_id")), p.number("user_id")
	c := b.charges[id]
	switch {
	case user == 0:
		return nil, bad("invalid user_id specified")
	case id == "":
		return nil, bad("CHARGE_ID_EMPTY")
	case c == nil:
		return nil, bad("CHARGE_ID_INVALID")
	case c.Payer != user:
		return nil, bad("USER_ID_INVALID")
	case c.refunded:
		return nil, bad("CHARGE_ALREADY_REFUNDED")
	case b.balance < c.Stars:
		return nil, bad("BALANCE_TOO_LOW")
	}
	b.refund(c)
	b.service(c.Payer, c.chat, func(m *Message) { m.Refund = &c.Payment })
	return true, nil
}

func (b *Bot) getStarTransactions(p parameters) (any, *refusal) {
	offset, limit := int(p.number("offset")), 100
	if p.text("limit") != "" {
		limit = int(p.number("limit"))
	}
	if offset < 0 || !between(limit, 1, 100) {
		return nil, bad("LIMIT_INVALID")
	}
	from := min(offset, len(b.listing))
	return map[string]any{"transactions": append([]transaction{}, b.listing[from:min(from+limit, len(b.listing))]...)}, nil
}

func (b *Bot) getMyStarBalance(parameters) (any, *refusal) {
	return map[string]any{"amount": b.balance}, nil
}

// Balance is how many Stars the bot has.
func (b *Bot) Balance() int64 {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.balance
}

// Withdraw takes Stars from the bot's balance, so that they are missing for refunds.
func (b *Bot) Withdraw(stars int64) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.balance -= stars
	b.listing = append(b.listing, transaction{
		"id": fmt.Sprint("withdrawal", b.server.next()), "amount": stars, "date": b.server.clock.now().Unix(),
		"receiver": map[string]any{"type": "fragment"},
	})
}
