package telegram

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/store"
)

// Take handles one raw update, in the place of the kit's Take: what tells of money is taken first and by itself, so that it
// depends on nothing that a chat needs; everything else is the kit's. An error has the update told again.
//
// Updates of one person are to come one after the other, except pre-checkout queries and taps, which must not wait.
func (s *Shop) Take(ctx context.Context, raw []byte) (Done, error) {
	if done, err := s.takeMoney(ctx, raw); done.Handled || err != nil {
		return done, err
	}
	return s.kit.Take(ctx, raw)
}

// Refuse answers no where Take has failed on a query that waits for its answer, or took too long. It needs the Bot API only.
func (s *Shop) Refuse(ctx context.Context, raw []byte) error {
	update, err := telegramstars.Decode(raw)
	if err != nil || update.PreCheckout == nil {
		return s.kit.Refuse(ctx, raw)
	}
	reader := s.kit.reader(payerLanguage(raw), "")
	return s.kit.options.API.AnswerPreCheckout(ctx, update.PreCheckout.ID, s.texts().PreCheckout(reader, message.PayTryAgain, time.Time{}, s.now()))
}

// takeMoney takes updates that tell of payments, refunds and subscriptions, and answers pre-checkout queries.
func (s *Shop) takeMoney(ctx context.Context, raw []byte) (Done, error) {
	if s.options.Stars == nil {
		return Done{}, nil
	}
	update, err := telegramstars.Decode(raw)
	if err != nil {
		return Done{}, err
	}
	done := Done{Update: update.ID, Handled: true}
	switch m := update.Message; {
	case update.PreCheckout != nil:
		done.Kind = KindPreCheckout
		return done, s.preCheckout(ctx, raw, *update.PreCheckout)
	case update.Subscription != nil:
		done.Kind = KindSubscription
		return done, s.subscription(ctx, update)
	case m != nil && m.SuccessfulPayment != nil:
		done.Kind = KindSuccessfulPayment
		done.Account, err = s.paid(ctx, update)
		return done, err
	case m != nil && m.RefundedPayment != nil:
		done.Kind = KindRefundedPayment
		done.Account, err = s.paid(ctx, update)
		return done, err
	}
	return Done{}, nil
}

// paid takes an update that tells of a payment or of a refund. What it brought is told by the outbox: it is told also where
// this process dies right here.
func (s *Shop) paid(ctx context.Context, update telegramstars.Update) (account string, err error) {
	if _, err := s.kit.since(ctx); err != nil { // from before what happens now, so that it is told
		return "", err
	}
	result, err := s.options.Stars.Handle(ctx, update)
	if err != nil {
		return "", err
	}
	if told := update.Message.SuccessfulPayment; told != nil && update.Message.From != nil {
		at := time.Unix(update.Message.Date, 0).UTC()
		if err := s.remember(ctx, result.Account, told.TelegramPaymentChargeID, update.Message.From.ID, at); err != nil {
			return "", err
		}
	}
	return result.Account, s.keepActions(ctx, result.Actions)
}

// keepActions has what follows from an update done at Telegram, also where this process ends before it is.
func (s *Shop) keepActions(ctx context.Context, actions []telegramstars.Action) error {
	if s.actions == nil {
		return nil
	}
	return s.actions.Keep(ctx, actions...)
}

// act stops the extension of a subscription at Telegram. Where the plan of its order is the one that runs, the account learns
// of it too, and the person is told: Telegram may tell it again, and may not.
func (s *Shop) act(ctx context.Context, action telegramstars.Action) error {
	if err := s.kit.options.API.Do(ctx, action); err != nil {
		return err
	}
	order, err := s.options.Stars.Book.Find(ctx, action.Payload)
	if err != nil || order == nil {
		return err
	}
	became, err := s.options.Stars.Book.Tell(ctx, order, true, s.now(), "")
	if err != nil || became != payment.Cancelled {
		return err
	}
	return s.tellRenewal(ctx, action.User, order.Account, message.RenewalStopped, "action:"+action.ChargeID)
}

// receipt is the note of a payment: whose it is. What it came to is read from where it is kept.
type receipt struct {
	Charge  string    `json:"charge"`
	User    int64     `json:"user"`
	Account string    `json:"account"`
	At      time.Time `json:"at"`
}

// chargeKey finds a payment by its number, and receiptKey a person's payments, the oldest first.
func chargeKey(charge string) string { return "charge:" + charge }

func receiptsOf(account string) string { return "receipt:" + account + "/" } // names have no slash

func receiptKey(r receipt) string {
	return receiptsOf(r.Account) + fmt.Sprintf("%012d", r.At.Unix()) + ":" + r.Charge
}

// remember notes whose a payment is, for /paysupport and /refund.
func (s *Shop) remember(ctx context.Context, account, charge string, user int64, at time.Time) error {
	if account == "" || charge == "" || user == 0 {
		return nil
	}
	r := receipt{Charge: charge, User: user, Account: account, At: at}
	first, err := s.kit.keepFirst(ctx, chargeKey(charge), r)
	if err == nil && !first { // perhaps with another time: a payment has one receipt
		r, _, err = note[receipt](ctx, s.kit, chargeKey(charge))
	}
	if err != nil {
		return err
	}
	_, err = s.kit.keepFirst(ctx, receiptKey(r), r)
	return err
}

// rememberTold notes whose a payment is that an event tells of: no update told of it where reconciliation has found it.
func (s *Shop) rememberTold(ctx context.Context, e *outbox.Event) error {
	told := e.Data.Payment
	if told == nil || s.options.Stars == nil || told.Provider != s.options.Stars.Book.Provider {
		return nil
	}
	p, known, err := note[person](ctx, s.kit, s.kit.personKey(e.Account))
	if err != nil || !known {
		return err
	}
	return s.remember(ctx, s.accountOf(p.User), told.PaymentID, p.User, e.CreatedAt)
}

// subscription takes an update that tells whether a subscription is charged again, and tells the person.
func (s *Shop) subscription(ctx context.Context, update telegramstars.Update) error {
	result, err := s.options.Stars.Handle(ctx, update)
	if err != nil {
		return err
	}
	if err := s.keepActions(ctx, result.Actions); err != nil {
		return err
	}
	became := map[telegramstars.Kind]message.Renewal{
		telegramstars.Cancelled: message.RenewalStopped, telegramstars.Resumed: message.RenewalResumed, telegramstars.RenewalFailed: message.RenewalFailed,
	}[result.Kind]
	if became == "" || !result.Changed && became != message.RenewalFailed {
		return nil
	}
	return s.tellRenewal(ctx, update.Subscription.User.ID, result.Account, became, "update:"+strconv.FormatInt(update.ID, 10))
}

// tellRenewal tells a person what became of the renewal of their subscription, once for each key.
func (s *Shop) tellRenewal(ctx context.Context, user int64, account string, became message.Renewal, key string) error {
	key = toldRenewal + key
	if _, told, err := note[bool](ctx, s.kit, key); err != nil || told {
		return err
	}
	view, reader, err := s.view(ctx, account)
	if err != nil {
		return err
	}
	if err := s.tell(ctx, user, s.texts().Renewal(reader, s.kit.catalog(), became, view, s.now()), nil); err != nil {
		return err
	}
	return s.kit.keep(ctx, key, true)
}

// toldRenewal begins the keys of notes that say what was told of renewals. They are needed for as long as Telegram may
// repeat an update.
const toldRenewal = "told:renewal:"

// renewing is the order of the subscription that Telegram will charge the person for again.
func (s *Shop) renewing(ctx context.Context, turn *Turn, view *holdfast.AccountView) (payment.Order, bool, error) {
	if s.options.Stars == nil || view.Subscription == nil {
		return payment.Order{}, false, nil
	}
	book := s.options.Stars.Book
	orders, err := book.Orders.RecurringOrders(ctx, book.Project, book.Provider, turn.Account)
	if err != nil {
		return payment.Order{}, false, book.Unavailable(err)
	}
	for _, order := range orders {
		if order.Seller == s.options.Stars.Bot && !order.Cancelled && order.Payment != "" {
			return order, true, nil
		}
	}
	return payment.Order{}, false, nil
}

// stop has Telegram stop charging for a subscription. What is paid of it stays.
func (s *Shop) stop(ctx context.Context, turn *Turn) error {
	view, err := turn.View(ctx)
	if err != nil {
		return err
	}
	order, renews, err := s.renewing(ctx, turn, view)
	if err != nil {
		return err
	}
	if !renews {
		return turn.Alert(ctx, turn.Text(message.NoRenewal, nil))
	}
	user, err := strconv.ParseInt(order.Payer, 10, 64)
	if err != nil {
		return fmt.Errorf("the payer of order %s: %w", order.Reference, err)
	}
	action := telegramstars.Action{Kind: telegramstars.CancelSubscription, User: user, ChargeID: order.Payment, Payload: order.Reference}
	if err := s.keepActions(ctx, []telegramstars.Action{action}); err != nil {
		return err
	}
	return turn.Alert(ctx, turn.Text(message.StopRenewalAsked, nil))
}

// preCheckoutAnswer is how long the answer may take on its way, after it is known.
const preCheckoutAnswer = 4 * time.Second

// preCheckout answers a pre_checkout_query in the person's language. Whatever fails, the answer is no: not charging is the
// safe failure. It is never late: then Telegram would show the person an error of its own.
func (s *Shop) preCheckout(ctx context.Context, raw []byte, query telegramstars.PreCheckoutQuery) error {
	answer := s.options.Stars.PreCheckout(ctx, query)
	refusal := ""
	if !answer.OK {
		refusal = s.texts().PreCheckout(s.readerOfPayer(ctx, raw, query.From.ID), message.PreCheckoutReason(answer.Reason), answer.Until, s.now())
		s.kit.log().Info("a payment was not let through", "bot", s.kit.options.Bot, "reason", answer.Reason, "user", query.From.ID)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), preCheckoutAnswer)
	defer cancel()
	return s.kit.options.API.AnswerPreCheckout(ctx, query.ID, refusal)
}

// askAtMost bounds how long the language of a refusal is looked for: Telegram's in time is better than theirs too late.
const askAtMost = 500 * time.Millisecond

// readerOfPayer is how to speak to the person who wants to pay.
func (s *Shop) readerOfPayer(ctx context.Context, raw []byte, user int64) message.Reader {
	ctx, cancel := context.WithTimeout(ctx, askAtMost)
	defer cancel()
	if _, reader, err := s.view(ctx, s.accountOf(user)); err == nil && reader.Language != "" {
		return reader
	}
	return s.kit.reader(payerLanguage(raw), "")
}

// payerLanguage is the language of the payer's Telegram.
func payerLanguage(raw []byte) string {
	var told struct {
		Query struct {
			From User `json:"from"`
		} `json:"pre_checkout_query"`
	}
	if json.Unmarshal(raw, &told) != nil {
		return ""
	}
	return told.Query.From.Language
}

// accountOf names the account of a payer as payments do.
func (s *Shop) accountOf(user int64) string {
	if s.options.Stars != nil && s.options.Stars.AccountOf != nil {
		return s.options.Stars.AccountOf(user)
	}
	return AccountName(user)
}

// listedPayments is how many of their payments a person is told by /paysupport.
const listedPayments = 5

// paySupport says where help with payments is found, and the numbers of the person's latest payments.
func (s *Shop) paySupport(ctx context.Context, turn *Turn) error {
	receipts, err := s.receipts(ctx, turn.Account)
	if err != nil {
		return err
	}
	var bought []message.Bought
	for _, r := range receipts {
		paid, err := s.options.Stars.Book.Payment(ctx, r.Charge)
		if err != nil {
			return err
		}
		if paid == nil {
			continue
		}
		bought = append(bought, message.Bought{
			ID: r.Charge, Product: paid.Product, Price: holdfast.Money{Currency: paid.Currency, Amount: paid.Amount}, At: r.At,
			Flagged: paid.State == holdfast.PaymentFlagged, Refunded: paid.Refunded,
		})
	}
	return s.say(ctx, turn, s.texts().PaySupport(turn.Reader, s.kit.catalog(), bought, s.options.Contact, s.now()), nil)
}

// receipts are a person's latest payments, the newest first.
func (s *Shop) receipts(ctx context.Context, account string) ([]receipt, error) {
	if s.options.Stars == nil {
		return nil, nil
	}
	var latest []receipt
	err := s.kit.each(ctx, receiptsOf(account), func(n store.Note) error {
		r, err := read[receipt](n.Value)
		if err != nil {
			return fmt.Errorf("read the note %s: %w", n.Key, err)
		}
		latest = append([]receipt{r}, latest[:min(len(latest), listedPayments-1)]...)
		return nil
	})
	return latest, err
}
