package httpapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
)

// Stars sells for Telegram Stars for one bot. A *telegramstars.Stars does. Errors are as Submit's.
type Stars interface {
	// NewOrder makes an order. The error is a *telegramstars.NotSoldError where it is the order's fault.
	NewOrder(ctx context.Context, wanted telegramstars.NewOrder) (telegramstars.Order, error)
	// PreCheckout says whether a payment may go on, and answers in time, whatever happens.
	PreCheckout(ctx context.Context, query telegramstars.PreCheckoutQuery) telegramstars.Answer
	// Handle takes an update that tells of a payment, a refund or a subscription.
	Handle(ctx context.Context, update telegramstars.Update) (telegramstars.Result, error)
	// Done notes that Telegram has accepted an action.
	Done(ctx context.Context, action telegramstars.Action) error
}

// Bot is whose Stars are asked for.
type Bot struct {
	Project  string
	Provider string // of its payments: telegram_stars, or that with the bot's id
	ID       string
	Deadline time.Duration // within which a pre-checkout is answered
}

const (
	// preCheckoutWithin leaves half of Telegram's 10 seconds to the way to the author's bot and from there to Telegram.
	preCheckoutWithin = 3 * time.Second
	// languageWithin is how long is waited for the language that a person has chosen; the update has another one.
	languageWithin = time.Second
	// mostBotDigits is more than any id of a bot has.
	mostBotDigits = 19
	// maxActionBytes is more than any action has.
	maxActionBytes = 2048
)

// asProvider tells bots of one project apart.
var asProvider = parameter{name: "provider", about: "Of this bot's payments: telegram_stars where it is left out; for a second bot of the project telegram_stars. with the bot's id, in every call about it"}

// TelegramUpdate is what an update came to, and what is to be called at the Bot API now.
type TelegramUpdate struct {
	Kind    string         `json:"kind" doc:"pre_checkout, paid, refunded, refund_pending (its payment is not known yet), cancelled, resumed, renewal_failed, or ignored: it is not about Stars. More may come."`
	Changed bool           `json:"changed" doc:"false: it was known before, or nothing follows from it"`
	Account *string        `json:"account" doc:"Whose; null: not known"`
	Reason  *string        `json:"reason" doc:"Of a pre_checkout: why it may not go on; null: it may. More may come."`
	Payment *Payment       `json:"payment" doc:"Of paid and refunded"`
	Calls   []TelegramCall `json:"calls" doc:"To be called at the Bot API, with the bot's token, before Telegram is answered"`
}

// TelegramCall is a call of the Bot API.
type TelegramCall struct {
	Method     string         `json:"method" doc:"As the Bot API names it" example:"answerPreCheckoutQuery"`
	Parameters map[string]any `json:"parameters" doc:"To be sent with it as they are"`
	Action     *string        `json:"action" doc:"To be told to done once Telegram has answered ok, so that it is not asked for again; null: nothing is to be told"`
}

// TelegramOrder is an order, and the call that makes its invoice.
type TelegramOrder struct {
	Payload   string          `json:"payload" doc:"Names the order in the invoice and in every payment of it"`
	Account   string          `json:"account"`
	Product   string          `json:"product"`
	Amount    holdfast.Amount `json:"amount" doc:"In Stars"`
	Recurring bool            `json:"recurring"`
	CreatedAt time.Time       `json:"created_at"`
	Call      TelegramCall    `json:"call" doc:"Makes a link to the invoice. sendInvoice takes the same parameters and a chat_id, except of a subscription"`
}

// TelegramDone says that it is noted.
type TelegramDone struct {
	Done bool `json:"done"`
}

// stars is whoever sells for the bot of the path. Nil: the answer is given.
func (c *call) stars(read map[string]string) (Stars, *answer) {
	bot := c.request.PathValue("bot")
	if bot == "" || len(bot) > mostBotDigits || bot[0] == '0' || strings.Trim(bot, "0123456789") != "" {
		c.wrong("bot", "use the bot's numeric id, which its token begins with, and never the token")
	}
	provider := read[asProvider.name]
	switch provider {
	case "":
		provider = telegramstars.Provider
	case telegramstars.Provider, telegramstars.Provider + "." + bot:
	default:
		c.wrong(asProvider.name, "leave it out, or use "+telegramstars.Provider+". with the bot's id")
	}
	switch {
	case len(c.problems) > 0:
		a := c.invalid(c.problems)
		return nil, &a
	case c.api.Stars == nil:
		a := c.notFound()
		return nil, &a
	}
	return c.api.Stars(Bot{Project: c.key.Project, Provider: provider, ID: bot, Deadline: preCheckoutWithin}), nil
}

// telegramUpdate takes an update as Telegram sends it.
func telegramUpdate(c *call) answer {
	read := c.query()
	text, refused := c.text(holdfast.MaxBodyBytes, jsonContent)
	if refused != nil {
		return *refused
	}
	update, err := telegramstars.Decode([]byte(text))
	if err != nil {
		c.mustBe(bodyField, "send the update as Telegram sent it, as JSON")
	} else {
		c.checkUpdate(&update)
	}
	stars, refused := c.stars(read)
	if refused != nil {
		return *refused
	}
	if query := update.PreCheckout; query != nil {
		return answer{status: http.StatusOK, body: c.preCheckout(stars, query)}
	}
	result, err := stars.Handle(c.context(), update)
	if err != nil {
		return c.failed(err)
	}
	return c.handled(&result)
}

// checkUpdate finds what no update of Telegram's has: what was told in other words would be a payment that is kept nowhere.
func (c *call) checkUpdate(update *telegramstars.Update) {
	if update.ID < 1 {
		c.mustBe("update_id", "send the whole update as Telegram sent it")
	}
	if query := update.PreCheckout; query != nil && query.ID == "" {
		c.mustBe("pre_checkout_query.id", "send the whole update as Telegram sent it")
	}
	if update.Message == nil {
		return
	}
	check := func(within string, op holdfast.Operation, fields map[string]string) {
		command := holdfast.Command{Account: "any", Do: op}
		for _, p := range command.Check() {
			if field, known := fields[p.Field]; known {
				c.mustBe(within+field, p.Hint)
			}
		}
	}
	if p := update.Message.SuccessfulPayment; p != nil {
		check("message.successful_payment.", holdfast.Pay{
			Provider: telegramstars.Provider, Product: "any", PaymentID: p.TelegramPaymentChargeID, Amount: p.TotalAmount, Currency: p.Currency,
		}, map[string]string{"payment_id": "telegram_payment_charge_id", "amount": "total_amount", "currency": "currency"})
		if update.Message.From == nil {
			c.mustBe("message.from", "send the whole update as Telegram sent it: who has paid is not known")
		}
	}
	if p := update.Message.RefundedPayment; p != nil {
		check("message.refunded_payment.", holdfast.RefundPayment{
			Provider: telegramstars.Provider, PaymentID: p.TelegramPaymentChargeID, Refund: holdfast.PaymentRefund{ID: "any"},
		}, map[string]string{"payment_id": "telegram_payment_charge_id"})
	}
}

// preCheckout answers a query in the words of whoever wants to pay.
func (c *call) preCheckout(stars Stars, query *telegramstars.PreCheckoutQuery) TelegramUpdate {
	judged := stars.PreCheckout(c.context(), *query)
	parameters := map[string]any{"pre_checkout_query_id": query.ID, "ok": judged.OK}
	if !judged.OK {
		reader := c.payer(judged, query.From)
		parameters["error_message"] = c.api.Texts.PreCheckout(reader, string(judged.Reason), judged.Until, c.api.Engine.Now())
	}
	return TelegramUpdate{
		Kind: "pre_checkout", Account: known(judged.Account), Reason: known(string(judged.Reason)),
		Calls: []TelegramCall{{Method: "answerPreCheckoutQuery", Parameters: parameters}},
	}
}

// payer is for whom the answer to a query is worded: in the language that the account has chosen, else in Telegram's. Where
// the account cannot be read in time, Telegram's is good enough.
func (c *call) payer(judged telegramstars.Answer, from telegramstars.User) Reader {
	reader := Reader{Language: c.api.Texts.Match(from.LanguageCode, ""), Location: time.UTC}
	if judged.Reason == telegramstars.TryAgain || judged.Account == "" {
		return reader
	}
	ctx, stop := context.WithTimeout(c.context(), languageWithin)
	defer stop()
	view, err := c.api.Engine.ViewAt(ctx, c.key.Project, judged.Account, time.Time{})
	if err != nil {
		return reader
	}
	reader.Language = c.api.Texts.Match(view.Account.Language, from.LanguageCode)
	if location, err := time.LoadLocation(view.Account.TimeZone); err == nil {
		reader.Location = location
	}
	return reader
}

// handled tells what an update came to.
func (c *call) handled(result *telegramstars.Result) answer {
	a := answer{status: http.StatusOK}
	told := TelegramUpdate{Kind: string(result.Kind), Changed: result.Changed, Account: known(result.Account), Calls: []TelegramCall{}}
	if result.Payment != nil {
		c.account, c.accountName = holdfast.AccountIDOf(c.key.Project, result.Account), result.Account
		var view *holdfast.AccountView
		if result.Payment.Flag != holdfast.WrongPerson { // the account is somebody else's
			view, a.cause = c.accountOfNow() // it is done either way
		}
		shown := c.payment(result.Payment, view)
		told.Payment = &shown
	}
	for _, action := range result.Actions {
		method, parameters := action.Call()
		told.Calls = append(told.Calls, TelegramCall{Method: method, Parameters: parameters, Action: known(action.Encode())})
	}
	a.body = told
	return a
}

// telegramOrderBody asks for an invoice.
type telegramOrderBody struct {
	Account   string `json:"account" doc:"Who buys: telegram: and the user's id, or an account that has this as another name; 1 to 128 bytes without spaces or / ? # %" example:"telegram:42"`
	Product   string `json:"product" doc:"What; a product of the catalog with a price in XTR" example:"pro_30"`
	Recurring bool   `json:"recurring,omitempty" doc:"A subscription, which Telegram charges again every 30 days: only of a plan for 30 days"`
}

// telegramOrder makes an order. What is not paid costs nothing, so that each call makes one of its own and needs no key.
func telegramOrder(c *call) answer {
	read := c.query()
	var body telegramOrderBody
	if unread := c.from.body(c, &body); unread != nil {
		return *unread
	}
	stars, refused := c.stars(read)
	if refused != nil {
		return *refused
	}
	order, err := stars.NewOrder(c.context(), telegramstars.NewOrder(body))
	if wrong, ok := errors.AsType[*telegramstars.NotSoldError](err); ok {
		return c.invalid([]holdfast.Problem{{Field: wrong.Field, Hint: wrong.Hint}})
	}
	if err != nil {
		return c.failed(err)
	}
	return answer{status: http.StatusCreated, body: TelegramOrder{
		Payload: order.Reference, Account: order.Account, Product: order.Product, Amount: order.Price, Recurring: order.Recurring,
		CreatedAt: order.CreatedAt.UTC(), Call: c.invoice(&order),
	}}
}

// invoice is the call that makes an order's invoice, in the words of whoever gets it.
func (c *call) invoice(order *telegramstars.Order) TelegramCall {
	reader := Reader{Language: c.language(""), Location: time.UTC}
	if view, err := c.api.Engine.ViewAt(c.context(), c.key.Project, order.Account, time.Time{}); err == nil {
		reader.Language = c.language(view.Account.Language)
	}
	title, description := order.Product, order.Product
	catalog := c.catalog()
	if product, ok := catalog.Product(order.Product); ok {
		price := holdfast.Money{Currency: order.Currency, Amount: order.Price}
		title, description = c.api.Texts.Invoice(reader, catalog, product, price, order.Recurring)
	}
	parameters := map[string]any{
		"title": title, "description": description, "payload": order.Reference, "provider_token": "", "currency": order.Currency,
		"prices": []map[string]any{{"label": title, "amount": order.Price}},
	}
	if order.Recurring {
		parameters["subscription_period"] = telegramstars.SubscriptionPeriod
	}
	return TelegramCall{Method: "createInvoiceLink", Parameters: parameters}
}

// telegramDoneBody tells that a call was made.
type telegramDoneBody struct {
	Action string `json:"action" doc:"As the call had it"`
}

// telegramDone notes that Telegram has accepted an action.
func telegramDone(c *call) answer {
	read := c.query()
	var body telegramDoneBody
	if unread := c.from.body(c, &body); unread != nil {
		return *unread
	}
	action, err := telegramstars.DecodeAction(body.Action[:min(len(body.Action), maxActionBytes)])
	if err != nil {
		c.mustBe("action", fmt.Sprintf("send the action of the call that was made, at most %d bytes", maxActionBytes))
	}
	stars, refused := c.stars(read)
	if refused != nil {
		return *refused
	}
	if err := stars.Done(c.context(), action); err != nil {
		return c.failed(err)
	}
	return answer{status: http.StatusOK, body: TelegramDone{Done: true}}
}
