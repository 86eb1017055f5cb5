// Package telegramstars sells for Telegram Stars: it answers pre-checkout queries from what is stored, and turns the
// updates that tell of payments, refunds and subscriptions into their effects.
//
//	NewOrder ── invoice_payload ──► the bot's invoice
//	pre_checkout_query ──► PreCheckout ──► ok, or why not       within the deadline, "try again" if anything fails
//	successful_payment, refunded_payment, subscription ──► Handle ──► Result, with Actions to do at Telegram
//	getStarTransactions ──► Reconcile ──► what was missed
//
// Whoever receives the updates calls it: a server for many bots, a bot in Go, or the author of a bot in another language over
// HTTP. It works on the raw JSON of updates and needs no bot library. It never grants on a pre-checkout, never computes what
// is granted, and never calls Telegram: it is given a Lister and somebody who does actions, such as telegram/botapi.
package telegramstars

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/payment"
)

// Provider is the provider's name of payments, and Currency what Stars are called.
const (
	Provider = "telegram_stars"
	Currency = "XTR"
)

// Stars serves one bot. Its methods are safe for concurrent use and may be repeated as often as one likes.
type Stars struct {
	// Book is of the bot's project. Its provider is Provider, or, for a second bot of one project, a name of its own such as
	// telegram_stars.7000002: payments are unique by bot and charge id.
	Book *payment.Book
	// Bot is the bot's id: an order of another bot is not known to this one.
	Bot string
	// AccountOf names the account of a Telegram user; nil: telegram: and the user's id.
	AccountOf func(user int64) string
	// Deadline bounds PreCheckout; 0: DefaultDeadline.
	Deadline time.Duration
	// PriceStands is how long an order keeps its price after the catalog has changed it; 0: DefaultPriceStands; negative: not
	// at all.
	PriceStands time.Duration
}

// The defaults. Telegram waits 10 seconds for the answer to a pre-checkout query, and it has to get there.
const (
	DefaultDeadline    = 5 * time.Second
	DefaultPriceStands = 24 * time.Hour
)

func (s *Stars) accountOf(user int64) string {
	if s.AccountOf != nil {
		return s.AccountOf(user)
	}
	return "telegram:" + strconv.FormatInt(user, 10)
}

// find reads an order of this bot; nil: it has none of this payload.
func (s *Stars) find(ctx context.Context, payload string) (*payment.Order, error) {
	if payload == "" {
		return nil, nil
	}
	order, err := s.Book.Find(ctx, payload)
	if err != nil || order == nil || order.Seller != s.Bot {
		return nil, err
	}
	return order, nil
}
