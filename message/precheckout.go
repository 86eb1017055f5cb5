package message

import (
	"slices"
	"time"
)

// PreCheckoutReason says why a payment may not go on. The words are those of package telegramstars.
type PreCheckoutReason string

// The reasons.
const (
	PayTryAgain          PreCheckoutReason = "try_again"
	PayWrongCurrency     PreCheckoutReason = "wrong_currency"
	PayOrderUnknown      PreCheckoutReason = "order_unknown"
	PayWrongPerson       PreCheckoutReason = "wrong_person"
	PayOrderPaid         PreCheckoutReason = "order_paid"
	PayNotSold           PreCheckoutReason = "not_sold"
	PayPriceChanged      PreCheckoutReason = "price_changed"
	PayAccountBlocked    PreCheckoutReason = "account_blocked"
	PayAlreadySubscribed PreCheckoutReason = "already_subscribed"
)

// PreCheckoutReasons lists every reason that has a text, in the order in which they win.
func PreCheckoutReasons() []PreCheckoutReason {
	return []PreCheckoutReason{
		PayTryAgain, PayWrongCurrency, PayOrderUnknown, PayWrongPerson, PayOrderPaid, PayNotSold, PayPriceChanged, PayAccountBlocked, PayAlreadySubscribed,
	}
}

// sentence is the name of the reason's text. One that has none is told as "try again", which then helps.
func (r PreCheckoutReason) sentence() string {
	if !slices.Contains(PreCheckoutReasons(), r) {
		r = PayTryAgain
	}
	return "precheckout." + string(r)
}

// PreCheckout is what a payment's own window tells the person whose payment was stopped. Until is of PayAlreadySubscribed:
// when what is paid ends; the zero time, and one that has passed, are not told.
func (t *Texts) PreCheckout(reader Reader, reason PreCheckoutReason, until, now time.Time) string {
	w := t.writer(reader, nil, now)
	w.say(reason.sentence(), nil)
	if reason == PayAlreadySubscribed && until.After(now) {
		w.say("precheckout.paid_until", values{"When": w.when(until)})
	}
	return w.text()
}
