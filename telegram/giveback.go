package telegram

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// A refund is noted first, and asked for until Telegram has answered. It may be asked for twice; Telegram says that it was done
// before, which counts as done.

// refund is the note of a payment that is to be given back.
type refund struct {
	Charge   string `json:"charge"`
	User     int64  `json:"user"`     // the payer
	Operator int64  `json:"operator"` // who has asked for it, and is told
	// Given says that Telegram has given it back, so that only our side is left to do.
	Given  bool      `json:"given,omitempty"`
	Tries  int       `json:"tries,omitempty"`
	NextAt time.Time `json:"next_at,omitzero"`
}

const refundPrefix = "refund:" // of the keys of notes

// hurry has the refunds looked through now.
func (s *Shop) hurry() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// refunds asks for what is to be given back until ctx ends. What another process or a former one has noted is found by looking
// again.
func (s *Shop) refunds(ctx context.Context) {
	again := time.NewTicker(s.options.Retry)
	defer again.Stop()
	next := time.Time{} // when notes are pruned
	for {
		if now := s.now(); !now.Before(next) {
			next = now.Add(pruneNotesEvery)
			s.prune(ctx, now)
		}
		if err := s.Refunds(ctx); err != nil && ctx.Err() == nil {
			s.kit.log().Warn("refunds that were asked for could not be looked up and will be tried again", "bot", s.kit.options.Bot, "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		case <-s.wake:
		}
	}
}

// How often and how long notes of the shop are kept. Receipts stay: they are a person's numbers for questions.
const (
	pruneNotesEvery = time.Hour
	keepOffered     = 2 * orderAgainFor
	keepRenewals    = 90 * 24 * time.Hour
)

// prune removes notes that nothing can ask for any more.
func (s *Shop) prune(ctx context.Context, now time.Time) {
	for prefix, keep := range map[string]time.Duration{offeredPrefix: keepOffered, toldRenewal: keepRenewals} {
		for {
			pruned, err := s.kit.options.Notes.PruneNotes(ctx, s.kit.options.Bot, prefix, now.Add(-keep), pruneChunk)
			if err != nil && ctx.Err() == nil {
				s.kit.log().Warn("old notes of a bot could not be pruned and will be tried again", "bot", s.kit.options.Bot, "error", err)
			}
			if err != nil || pruned < pruneChunk {
				break
			}
		}
	}
}

// Refunds asks for every refund that is due, once. Run does it again and again.
func (s *Shop) Refunds(ctx context.Context) error {
	s.running.Lock() // so that one of this process is not done twice at once
	defer s.running.Unlock()
	var due []store.Note
	err := s.kit.each(ctx, refundPrefix, func(n store.Note) error {
		due = append(due, n)
		return nil
	})
	if err != nil {
		return err
	}
	for _, n := range due {
		r, err := read[refund](n.Value)
		switch {
		case err != nil:
			s.kit.log().Error("a refund that was asked for cannot be read", "bot", s.kit.options.Bot, "key", n.Key, "error", err)
			continue
		case s.now().Before(r.NextAt):
			continue
		}
		err = s.giveBack(ctx, &r)
		if err == nil {
			if _, err = s.kit.options.Notes.DropNote(ctx, s.kit.options.Bot, n.Key); err != nil {
				return err
			}
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		r.Tries++
		r.NextAt = s.now().Add(min(s.options.Retry<<min(r.Tries-1, 16), longestRetry))
		s.kit.log().Warn("telegram has not answered about a refund, and is asked again", "bot", s.kit.options.Bot, "key", n.Key, "tries", r.Tries, "next_at", r.NextAt, "error", err)
		if err := s.kit.keep(ctx, n.Key, r); err != nil {
			return err
		}
	}
	return nil
}

// giveBack refunds a payment at Telegram and then here, each as often as needed and with one effect. Nil: it is done, or
// Telegram has said that it never will be.
func (s *Shop) giveBack(ctx context.Context, r *refund) error {
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
		if err := s.kit.keep(ctx, refundPrefix+r.Charge, r); err != nil {
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

// askRefund notes that a payment is to be given back.
func (s *Shop) askRefund(ctx context.Context, r refund) error {
	if _, err := s.kit.keepFirst(ctx, refundPrefix+r.Charge, r); err != nil {
		return fmt.Errorf("note the refund of %s for user %s: %w", r.Charge, strconv.FormatInt(r.User, 10), err)
	}
	s.hurry()
	return nil
}
