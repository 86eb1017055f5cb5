package botapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/holdfast-dev/holdfast/payment/telegramstars"
)

// What Telegram takes of an invoice.
const (
	MaxInvoiceTitle       = 32
	MaxInvoiceDescription = 255
	MaxInvoicePayload     = 128   // bytes
	MaxSubscriptionStars  = 10000 // a month
)

const subscriptionPeriod = 30 * 24 * 60 * 60 // seconds: Telegram knows no other

// Invoice asks for Stars.
type Invoice struct {
	Chat         Chat // of SendInvoice
	Thread       int
	Title        string // shortened where it is too long, as the description is
	Description  string
	Payload      string // comes back with the payment; never shown
	Stars        int64
	Subscription bool // every 30 days again; by InvoiceLink only
	ReplyTo      int
	Keyboard     Keyboard // its first button pays; nil: Telegram's own button
}

// SendInvoice sends an invoice, and returns its message's id. A copy that somebody forwards leads to the bot and cannot be
// paid. Errors as Send's.
func (c *Client) SendInvoice(ctx context.Context, i Invoice) (message int, err error) {
	if i.Subscription {
		return 0, rejected("sendInvoice", "subscriptions are sold by a link")
	}
	if err := i.check("sendInvoice"); err != nil {
		return 0, err
	}
	keyboard, err := markup("sendInvoice", i.Keyboard)
	if err != nil {
		return 0, err
	}
	title, description, prices := i.shown()
	err = c.do(ctx, call{method: "sendInvoice", chat: i.Chat, paced: true}, func(ctx context.Context, chat Chat) error {
		sent, err := c.bot.SendInvoice(ctx, &bot.SendInvoiceParams{
			ChatID: chat, MessageThreadID: i.Thread, Title: title, Description: description, Payload: i.Payload, Currency: telegramstars.Currency,
			Prices: prices, StartParameter: "pay", ReplyParameters: replyTo(i.ReplyTo), ReplyMarkup: keyboard,
		})
		if err == nil {
			message = sent.ID
		}
		return err
	})
	return message, err
}

// InvoiceLink makes a link that leads to an invoice. ErrRejected.
func (c *Client) InvoiceLink(ctx context.Context, i Invoice) (link string, err error) {
	if err := i.check("createInvoiceLink"); err != nil {
		return "", err
	}
	title, description, prices := i.shown()
	params := &bot.CreateInvoiceLinkParams{Title: title, Description: description, Payload: i.Payload, Currency: telegramstars.Currency, Prices: prices}
	if i.Subscription {
		params.SubscriptionPeriod = subscriptionPeriod
	}
	err = c.do(ctx, call{method: "createInvoiceLink", repeat: true}, func(ctx context.Context, _ Chat) error {
		link, err = c.bot.CreateInvoiceLink(ctx, params)
		return err
	})
	return link, err
}

func (i *Invoice) check(method string) error {
	switch {
	case i.Title == "" || i.Description == "":
		return rejected(method, "an invoice has a title and a description")
	case i.Payload == "" || len(i.Payload) > MaxInvoicePayload:
		return rejected(method, "the payload is %d bytes, 1 to %d are taken", len(i.Payload), MaxInvoicePayload)
	case i.Stars < 1, i.Subscription && i.Stars > MaxSubscriptionStars:
		return rejected(method, "%d Stars cannot be asked for", i.Stars)
	}
	return nil
}

func (i *Invoice) shown() (title, description string, prices []models.LabeledPrice) {
	title = Shorten(i.Title, MaxInvoiceTitle, false)
	return title, Shorten(i.Description, MaxInvoiceDescription, false), []models.LabeledPrice{{Label: title, Amount: int(i.Stars)}}
}

// AnswerPreCheckout lets a payment go on, or says why not. Telegram waits ten seconds for it: give the context that long.
// Whether the person then pays, updates tell.
func (c *Client) AnswerPreCheckout(ctx context.Context, id, refusal string) error {
	params := &bot.AnswerPreCheckoutQueryParams{PreCheckoutQueryID: id, OK: refusal == "", ErrorMessage: Shorten(refusal, MaxCallbackText, false)}
	var lost error
	err := c.do(ctx, call{method: "answerPreCheckoutQuery", repeat: true}, func(ctx context.Context, _ Chat) error {
		_, err := c.bot.AnswerPreCheckoutQuery(ctx, params)
		if errors.Is(err, ErrUncertain) {
			lost = err
		}
		return err
	})
	if lost != nil && describes(err, tooOld...) {
		return c.send.judge("answerPreCheckoutQuery", lost) // it is too old, or the answer that was lost has counted
	}
	return err
}

// RefundStars gives a payment back, whole. That it is given back already is no error, so it may be repeated until it is known
// to be done. ErrRejected may also say that the bot has too few Stars: somebody has to look.
func (c *Client) RefundStars(ctx context.Context, user int64, charge string) error {
	err := c.do(ctx, call{method: "refundStarPayment", repeat: true}, func(ctx context.Context, _ Chat) error {
		_, err := c.bot.RefundStarPayment(ctx, &bot.RefundStarPaymentParams{UserID: user, TelegramPaymentChargeID: charge})
		return err
	})
	if describes(err, "charge_already_refunded") {
		return nil
	}
	return err
}

// EditStarSubscription stops the extension of a subscription, which the charge id of its first payment names, or lets the
// person have it extended again. What is paid of it stays.
func (c *Client) EditStarSubscription(ctx context.Context, user int64, charge string, cancelled bool) error {
	return c.do(ctx, call{method: "editUserStarSubscription", repeat: true}, func(ctx context.Context, _ Chat) error {
		_, err := c.bot.EditUserStarSubscription(ctx, &bot.EditUserStarSubscriptionParams{UserID: user, TelegramPaymentChargeID: charge, IsCanceled: cancelled})
		return err
	})
}

// StarTransactions makes a Client a telegramstars.Lister.
func (c *Client) StarTransactions(ctx context.Context, offset, limit int) ([]telegramstars.Transaction, error) {
	var answer struct {
		Transactions []telegramstars.Transaction `json:"transactions"`
	}
	err := c.do(ctx, call{method: "getStarTransactions", repeat: true}, func(ctx context.Context, _ Chat) error {
		return c.send.raw(ctx, "getStarTransactions", map[string]int{"offset": offset, "limit": limit}, &answer)
	})
	return answer.Transactions, err
}

// Do does what follows from a payment. It may be repeated.
func (c *Client) Do(ctx context.Context, action telegramstars.Action) error {
	if action.Kind != telegramstars.CancelSubscription {
		return fmt.Errorf("there is no action %q", action.Kind)
	}
	return c.EditStarSubscription(ctx, action.User, action.ChargeID, true)
}
