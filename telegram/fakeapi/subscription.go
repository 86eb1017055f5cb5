package fakeapi

import (
	"errors"
	"fmt"
	"time"
)

// SubscriptionState is how a subscription stands, in the words of the Bot API.
type SubscriptionState string

// The states of subscriptions. All of them last until what is paid has passed.
const (
	Active   SubscriptionState = "active"
	Canceled SubscriptionState = "canceled" // by the person or the bot: not renewed
	Failed   SubscriptionState = "failed"   // too few Stars when it was due
)

// Subscription is a payment that repeats every 30 days.
type Subscription struct {
	ChargeID string            `json:"charge_id"` // of its first payment
	Payload  string            `json:"payload"`
	User     int64             `json:"user"`
	Stars    int64             `json:"stars"`
	Until    time.Time         `json:"until"` // what is paid
	State    SubscriptionState `json:"state"`
	ByBot    bool              `json:"by_bot,omitempty"` // cancelled by the bot: the person cannot resume it
}

// agreement is a subscription and what will happen to it.
type agreement struct {
	Subscription
	bot   *Bot
	fails bool // the next renewal
	over  bool
}

// ErrNoSubscription is returned where there is no such subscription, or it is over.
var ErrNoSubscription = errors.New("there is no such subscription")

// Subscriptions are those that a bot's people have or had, oldest first.
func (b *Bot) Subscriptions() []Subscription {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	var all []Subscription
	for _, a := range b.agreements {
		all = append(all, a.Subscription)
	}
	return all
}

func (b *Bot) agreement(user int64, chargeID string) *agreement {
	for _, a := range b.agreements {
		if a.User == user && a.ChargeID == chargeID {
			return a
		}
	}
	return nil
}

// CancelSubscription ends a subscription with what is paid. It is named by the charge of its first payment.
func (p *Person) CancelSubscription(chargeID string) error {
	return p.change(chargeID, func(a *agreement) error {
		if a.State != Active {
			return fmt.Errorf("the subscription is %s", a.State)
		}
		a.State = Canceled
		a.tell()
		return nil
	})
}

// ResumeSubscription takes a cancellation back. A failed one is charged at once, and begins anew.
func (p *Person) ResumeSubscription(chargeID string) error {
	return p.change(chargeID, func(a *agreement) error {
		switch {
		case a.State == Active:
			return errors.New("the subscription is active")
		case a.ByBot:
			return errors.New("the bot has cancelled the subscription")
		}
		failed := a.State == Failed
		a.State, a.fails = Active, false
		a.tell()
		if failed {
			a.Until = a.bot.server.clock.now()
			a.charge()
		}
		return nil
	})
}

// FailSubscription lets the next renewal fail, as with too few Stars: Advance past it to see it.
func (p *Person) FailSubscription(chargeID string) error {
	return p.change(chargeID, func(a *agreement) error {
		a.fails = true
		return nil
	})
}

func (p *Person) change(chargeID string, how func(*agreement) error) error {
	p.bot.server.mu.Lock()
	defer p.bot.server.mu.Unlock()
	a := p.bot.agreement(p.id, chargeID)
	if a == nil || a.over && a.State != Failed {
		return ErrNoSubscription
	}
	defer p.bot.server.touch()
	return how(a)
}

func (a *agreement) tell() {
	a.bot.tell("subscription", a.User, fmt.Sprint("subscription ", a.User), map[string]any{
		"user": a.bot.server.users[a.User], "invoice_payload": a.Payload, "state": a.State,
	})
}

// charge charges for a further period, behind what is paid.
func (a *agreement) charge() {
	b := a.bot
	a.over = false
	a.Until = a.Until.Add(SubscriptionPeriod)
	b.book(Payment{
		ChargeID: b.chargeID(), Payload: a.Payload, Stars: a.Stars, Payer: a.User, At: b.server.clock.now(), Until: a.Until, Recurring: true,
	}, a.User)
}

// nextRenewal is what is due first.
func (s *Server) nextRenewal() *agreement {
	var first *agreement
	for _, b := range s.bots {
		for _, a := range b.agreements {
			if !a.over && (first == nil || a.Until.Before(first.Until)) {
				first = a
			}
		}
	}
	return first
}

// renew does what is due at the end of what is paid.
func (a *agreement) renew() {
	switch {
	case a.State != Active:
		a.over = true
	case a.fails:
		a.State, a.over, a.fails = Failed, true, false
		a.tell()
	default:
		a.charge()
	}
}

// editUserStarSubscription cancels a subscription for the person, or lets them resume it. Whether Telegram tells the bot of
// what the bot has done is not documented: it does here, unless KeepOwnCancellations was called.
func (b *Bot) editUserStarSubscription(p parameters) (any, *refusal) {
	user, id := p.number("user_id"), p.text("telegram_payment_charge_id")
	a := b.agreement(user, id)
	switch {
	case user == 0 || b.server.users[user] == nil:
		return nil, bad("USER_ID_INVALID")
	case id == "":
		return nil, bad("CHARGE_ID_EMPTY")
	case a == nil:
		return nil, bad("CHARGE_ID_INVALID")
	case !p.has("is_canceled"):
		return nil, bad("parameter \"is_canceled\" is required")
	}
	a.ByBot = p.flag("is_canceled")
	if a.ByBot && a.State == Active {
		a.State = Canceled
		if !b.silentEdit {
			a.tell()
		}
	}
	return true, nil
}

// KeepOwnCancellations has the bot told nothing of the subscriptions that it cancels itself.
func (b *Bot) KeepOwnCancellations() {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.silentEdit = true
}
