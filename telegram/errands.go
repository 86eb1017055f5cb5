package telegram

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// What has to be done at Telegram is noted first, and done until Telegram has answered: a refund, and that a subscription is
// not charged again. Each may be asked for twice; Telegram says that it was done before.

// errand is the note of something that is to be done at Telegram: one of Action and Refund.
type errand struct {
	Action *telegramstars.Action `json:"action,omitempty"`
	Refund *refund               `json:"refund,omitempty"`
	Tries  int                   `json:"tries,omitempty"`
	NextAt time.Time             `json:"next_at,omitzero"`
}

// refund gives a payment back.
type refund struct {
	Charge   string `json:"charge"`
	User     int64  `json:"user"`     // the payer
	Operator int64  `json:"operator"` // who has asked for it, and is told
	// Given says that Telegram has given it back, so that only our side is left to do.
	Given bool `json:"given,omitempty"`
}

const errandPrefix = "errand:"

func refundKey(charge string) string { return errandPrefix + "refund:" + charge }

// atTelegram notes what follows from an update, and has it done.
func (s *Shop) atTelegram(ctx context.Context, actions []telegramstars.Action) error {
	for _, action := range actions {
		if _, err := s.kit.keepFirst(ctx, errandPrefix+action.Key(), errand{Action: &action}); err != nil {
			return err
		}
	}
	if len(actions) > 0 {
		s.hurry()
	}
	return nil
}

// hurry has the errands looked through now.
func (s *Shop) hurry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// errands does what is to be done until ctx ends. Where another process or a former one has noted something, it is found by
// looking again.
func (s *Shop) errands(ctx context.Context) {
	again := time.NewTicker(s.options.Retry)
	defer again.Stop()
	for {
		if err := s.Errands(ctx); err != nil && ctx.Err() == nil {
			s.kit.log().Warn("what is to be done at Telegram could not be looked up", "bot", s.kit.options.Bot, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-s.wake:
		}
	}
}

// Errands does everything that is due at Telegram, once. Run does it again and again.
func (s *Shop) Errands(ctx context.Context) error {
	s.running.Lock() // so that one of this process is not done twice at once
	defer s.running.Unlock()
	var due []store.Note
	err := s.kit.each(ctx, errandPrefix, func(n store.Note) error {
		due = append(due, n)
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range due {
		e, err := read[errand](n.Value)
		switch {
		case err != nil:
			s.kit.log().Error("an errand at Telegram cannot be read", "bot", s.kit.options.Bot, "key", n.Key, "error", err)
			continue
		case s.now().Before(e.NextAt):
			continue
		case e.Refund != nil:
			err = s.giveBack(ctx, n.Key, &e)
		case e.Action != nil:
			err = s.act(ctx, *e.Action)
		}
		if err == nil {
			if _, err = s.kit.options.Notes.DropNote(ctx, s.kit.options.Bot, n.Key); err != nil {
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		e.Tries++
		e.NextAt = s.now().Add(min(s.options.Retry<<min(e.Tries-1, 16), longestRetry))
		s.kit.log().Warn("something is still to be done at Telegram", "bot", s.kit.options.Bot, "key", n.Key, "tries", e.Tries, "next_at", e.NextAt, "error", err)
		if err := s.kit.keep(ctx, n.Key, e); err != nil {
			return err
		}
	}
	return nil
}

// act stops the extension of a subscription. Nil: it is done, or Telegram has said that it never will be.
func (s *Shop) act(ctx context.Context, action telegramstars.Action) error {
	err := s.kit.options.API.Do(ctx, action)
	if errors.Is(err, botapi.ErrRejected) {
		s.kit.log().Error("telegram does not stop a subscription: look whether it goes on charging the person",
			"bot", s.kit.options.Bot, "user", action.User, "charge", action.ChargeID, "error", err)
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.options.Stars.Done(ctx, action); err != nil {
		return err
	}
	order, err := s.options.Stars.Book.Find(ctx, action.Payload)
	if err != nil || order == nil {
		return err
	}
	// Where the plan of the order is the one that runs, the account learns of it too; Telegram may tell it again.
	became, err := s.options.Stars.Book.Tell(ctx, order, true, s.now(), "")
	if err != nil || became != payment.Cancelled {
		return err
	}
	return s.tellRenewal(ctx, action.User, order.Account, message.RenewalStopped, "action:"+action.ChargeID)
}

// giveBack refunds a payment at Telegram and then here, each as often as needed and with one effect. Nil: it is done, or
// Telegram has said that it never will be.
func (s *Shop) giveBack(ctx context.Context, key string, e *errand) error {
	r := e.Refund
	if !r.Given {
		err := s.kit.options.API.RefundStars(ctx, r.User, r.Charge)
		if errors.Is(err, botapi.ErrRejected) {
			s.kit.log().Error("telegram does not refund a payment: look at the bot's balance of Stars and at the payment",
				"bot", s.kit.options.Bot, "user", r.User, "charge", r.Charge, "error", err)
			return s.tellOperator(ctx, r.Operator, message.RefundRefused, r.Charge+" "+words(err))
		}
		if err != nil {
			return err
		}
		r.Given = true
		if err := s.kit.keep(ctx, key, e); err != nil {
			return err
		}
	}
	// The id of the refund is the payment's, as in the update that tells of it: whoever comes second changes nothing.
	_, _, err := s.options.Stars.Book.Refund(ctx, r.Charge, holdfast.PaymentRefund{ID: r.Charge})
	if err != nil {
		return err
	}
	return s.tellOperator(ctx, r.Operator, message.RefundDone, r.Charge)
}

// words are Telegram's, for an operator.
func words(err error) string {
	var failed *botapi.Error
	if errors.As(err, &failed) {
		return failed.Description
	}
	return ""
}

// tellOperator tells who has asked for a refund what became of it. That it cannot be told is no reason to do it again.
func (s *Shop) tellOperator(ctx context.Context, user int64, answer message.Answer, about string) error {
	if user == 0 {
		return nil
	}
	_, reader, err := s.view(ctx, AccountName(user))
	if err == nil {
		err = s.tell(ctx, user, s.texts().Operator(reader, answer, about), nil)
	}
	if err != nil {
		s.kit.log().Warn("an operator could not be told what became of a refund", "bot", s.kit.options.Bot, "answer", answer, "about", about, "error", err)
	}
	return nil
}

// reconcileDaily compares Telegram's list of transactions with what is here: at a moment of the day that the bot's name
// gives, so that not all bots ask at once, and soon where it was not done for longer than that.
func (s *Shop) reconcileDaily(ctx context.Context) {
	for {
		wait, err := s.untilReconciled(ctx)
		if err == nil && wait <= 0 {
			if err = s.Reconcile(ctx); err == nil {
				continue
			}
		}
		if err != nil && ctx.Err() == nil {
			s.kit.log().Warn("the bot's transactions could not be compared with Telegram's: it is tried again", "bot", s.kit.options.Bot, "error", err)
			wait = longestRetry
		}
		timer := time.NewTimer(min(wait, s.options.Reconcile))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

const reconciledKey = "reconciled"

// untilReconciled is how long it is until the next comparison is due.
func (s *Shop) untilReconciled(ctx context.Context) (time.Duration, error) {
	last, _, err := note[time.Time](ctx, s.kit, reconciledKey)
	if err != nil {
		return 0, err
	}
	every := s.options.Reconcile
	now := s.now()
	// The moments are spread over the time between two comparisons.
	offset := time.Duration(0)
	for _, b := range []byte(s.kit.options.Bot) {
		offset = (offset*31 + time.Duration(b)*time.Minute) % every
	}
	moment := now.Truncate(every).Add(offset)
	if moment.After(now) {
		moment = moment.Add(-every)
	}
	if last.Before(moment) {
		return 0, nil
	}
	return moment.Add(every).Sub(now), nil
}

// Reconcile compares all of the bot's transactions with what is here, now: what was missed is granted or taken back, once.
func (s *Shop) Reconcile(ctx context.Context) error {
	if _, err := s.kit.since(ctx); err != nil { // from before what happens now, so that it is told
		return err
	}
	listed := &payers{Lister: s.kit.options.API, of: map[string]telegramstars.Transaction{}}
	found, actions, err := s.options.Stars.Reconcile(ctx, listed)
	if err := s.atTelegram(ctx, actions); err != nil {
		return err
	}
	if err != nil {
		return err
	}
	for _, charge := range append(found.Granted, found.Flagged...) {
		t, told := listed.of[charge]
		if !told {
			continue
		}
		if err := s.remember(ctx, s.accountOf(t.Source.User.ID), charge, t.Source.User.ID, time.Unix(t.Date, 0).UTC()); err != nil {
			return err
		}
	}
	log := s.kit.log().Info
	if !found.Agrees() {
		log = s.kit.log().Warn
	}
	log("the bot's transactions were compared with Telegram's", "bot", s.kit.options.Bot, "agree", found.Already,
		"granted", found.Granted, "flagged", found.Flagged, "refunded", found.Refunded, "missing", found.Missing)
	return s.kit.keep(ctx, reconciledKey, s.now())
}

// payers keeps who has paid, of the transactions that pass.
type payers struct {
	telegramstars.Lister
	of map[string]telegramstars.Transaction
}

// StarTransactions passes them on.
func (p *payers) StarTransactions(ctx context.Context, offset, limit int) ([]telegramstars.Transaction, error) {
	page, err := p.Lister.StarTransactions(ctx, offset, limit)
	for _, t := range page {
		if t.Source != nil && t.Source.User != nil {
			p.of[t.ID] = t
		}
	}
	return page, err
}

// askRefund notes that a payment is to be given back.
func (s *Shop) askRefund(ctx context.Context, r refund) error {
	if _, err := s.kit.keepFirst(ctx, refundKey(r.Charge), errand{Refund: &r}); err != nil {
		return fmt.Errorf("note the refund of %s for user %s: %w", r.Charge, strconv.FormatInt(r.User, 10), err)
	}
	s.hurry()
	return nil
}
