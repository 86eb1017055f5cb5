package telegram

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/payment/telegramstars"
)

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
	if err := s.keepActions(ctx, actions); err != nil {
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
