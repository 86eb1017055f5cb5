package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// TelegramBot is a bot whose token stays with its author. ID is the number that the token begins with. Provider is that of its
// payments: empty for telegram_stars; a second bot of one project has telegram_stars. with its id.
type TelegramBot struct{ ID, Provider string }

// TelegramCall is a call of the Bot API that the author's bot makes.
type TelegramCall struct {
	Method     string
	Parameters json.RawMessage // the JSON to send with it
	// Action is told to TelegramDone once Telegram has answered ok, so that it is not asked for again. Empty: nothing is told.
	Action string
}

// TelegramUpdate is what an update came to.
type TelegramUpdate struct {
	Kind    string         // pre_checkout, paid, refunded, refund_pending, cancelled, resumed, renewal_failed, ignored
	Changed bool           // false: it was known before, or nothing follows from it
	Account string         // whose; empty: not known
	Reason  string         // of a pre_checkout: why it may not go on; empty: it may
	Payment *Payment       // of paid and refunded
	Calls   []TelegramCall // to be made before Telegram is answered
	Failed  error          // of a pre_checkout: why the server could not be asked; the call says no
}

// TelegramOrder is an order, and the call that makes its invoice.
type TelegramOrder struct {
	Payload   string // names the order in its invoice and in every payment
	Account   string
	Product   string
	Amount    holdfast.Amount // in Stars
	Recurring bool
	CreatedAt time.Time
	Call      TelegramCall
}

// TelegramWanted is what an invoice is wanted for.
type TelegramWanted struct {
	Account   string // telegram: and the user's id, or an account that has this as another name
	Product   string
	Recurring bool // a subscription, which Telegram charges again every 30 days
}

const (
	// preCheckoutWithin leaves Telegram's 10 seconds time for the answer's way to it.
	preCheckoutWithin = 5 * time.Second
	tryAgainLater     = "The payment could not be checked just now, so it was stopped. Please try again in a minute."
)

// TelegramOrder makes an order for an invoice. Each call makes one of its own; what is not paid costs nothing. Errors are as a
// read's: *engine.Refused, with Invalid, where the product is not sold in this way.
func (c *Client) TelegramOrder(ctx context.Context, bot TelegramBot, wanted TelegramWanted) (*TelegramOrder, error) {
	body := fields{"account": wanted.Account, "product": wanted.Product}
	set(body, "recurring", wanted.Recurring)
	var made struct {
		Payload, Account, Product string
		Amount                    holdfast.Amount
		Recurring                 bool
		CreatedAt                 time.Time `json:"created_at"`
		Call                      telegramCall
	}
	return tell(ctx, c, bot, "orders", encode(body), &made, func() (*TelegramOrder, error) {
		if made.Payload == "" || made.Call.Method == "" {
			return nil, errors.New("it has no order")
		}
		return &TelegramOrder{made.Payload, made.Account, made.Product, made.Amount, made.Recurring, made.CreatedAt, made.Call.core()}, nil
	})
}

// TelegramUpdate hands an update of the Bot API over, as Telegram sent it, and says what is to be called there. It may be
// repeated. Where there is an error, answer Telegram's webhook with 503, so that it tells the update again.
//
// A pre_checkout_query is always answered, within 5 seconds: where the server cannot be asked, the answer is no, and Failed
// says why. Not charging is the safe failure.
func (c *Client) TelegramUpdate(ctx context.Context, bot TelegramBot, raw []byte) (*TelegramUpdate, error) {
	var asked struct {
		PreCheckout *struct{ ID string } `json:"pre_checkout_query"`
	}
	if err := json.Unmarshal(raw, &asked); err != nil {
		return nil, refused(holdfast.Outcome{Reason: holdfast.Invalid, Problems: []holdfast.Problem{{Field: "body", Hint: "send the update as Telegram sent it, as JSON"}}})
	}
	if asked.PreCheckout == nil {
		return c.telegramUpdate(ctx, bot, raw)
	}
	within, stop := context.WithTimeout(ctx, preCheckoutWithin)
	defer stop()
	told, err := c.telegramUpdate(within, bot, raw)
	switch {
	case err == nil && len(told.Calls) == 1:
		return told, nil
	case err == nil:
		err = misdirected("the answer to a pre_checkout_query has no call")
	}
	no := encode(fields{"pre_checkout_query_id": asked.PreCheckout.ID, "ok": false, "error_message": tryAgainLater})
	return &TelegramUpdate{
		Kind: "pre_checkout", Reason: "try_again", Calls: []TelegramCall{{Method: "answerPreCheckoutQuery", Parameters: no}}, Failed: err,
	}, nil
}

func (c *Client) telegramUpdate(ctx context.Context, bot TelegramBot, raw []byte) (*TelegramUpdate, error) {
	var told struct {
		Kind            string
		Changed         bool
		Account, Reason *string
		Payment         *payment
		Calls           []telegramCall
	}
	return tell(ctx, c, bot, "updates", raw, &told, func() (*TelegramUpdate, error) {
		if told.Kind == "" {
			return nil, errors.New("it does not say what the update came to")
		}
		shown := &TelegramUpdate{Kind: told.Kind, Changed: told.Changed, Account: value(told.Account), Reason: value(told.Reason)}
		for i := range told.Calls {
			shown.Calls = append(shown.Calls, told.Calls[i].core())
		}
		if told.Payment == nil {
			return shown, nil
		}
		var err error
		shown.Payment, err = told.Payment.core()
		return shown, err
	})
}

// TelegramDone tells that the call with this action was made, and that Telegram has answered ok. It may be repeated.
func (c *Client) TelegramDone(ctx context.Context, bot TelegramBot, action string) error {
	var noted struct{ Done bool }
	_, err := tell(ctx, c, bot, "done", encode(fields{"action": action}), &noted, func() (bool, error) {
		if !noted.Done {
			return false, errors.New("it was not noted")
		}
		return true, nil
	})
	return err
}

type telegramCall struct {
	Method     string
	Parameters json.RawMessage
	Action     *string
}

func (t *telegramCall) core() TelegramCall {
	return TelegramCall{Method: t.Method, Parameters: t.Parameters, Action: value(t.Action)}
}

// tell sends a body about a bot, fills in what is answered, and makes of it what the caller wants.
func tell[T any](ctx context.Context, c *Client, bot TelegramBot, what string, body []byte, answered any, made func() (T, error)) (T, error) {
	var nothing T
	r := &request{method: http.MethodPost, path: "/v1/telegram/" + segment(bot.ID) + "/" + what, body: body}
	if bot.Provider != "" {
		r.query = url.Values{"provider": {bot.Provider}}
	}
	reply, err := c.send(ctx, r)
	if err != nil {
		return nothing, err
	}
	if reply.status >= 300 {
		p, _ := reply.problem()
		outcome, err := p.outcome()
		if err != nil {
			return nothing, reply.unreadable(err)
		}
		return nothing, refused(outcome)
	}
	if err := json.Unmarshal(reply.body, answered); err != nil {
		return nothing, reply.unreadable(err)
	}
	result, err := made()
	if err != nil {
		return nothing, reply.unreadable(err)
	}
	return result, nil
}
