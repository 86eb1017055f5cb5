package telegram

import (
	"context"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/store"
)

// history lists what the person has asked for, and what it came to.
func (s *Shop) history(ctx context.Context, turn *Turn) error {
	view, err := turn.View(ctx)
	if err != nil {
		return err
	}
	page, err := s.kit.options.Engine.Read(ctx, store.Query{
		Kind: store.QueryReservations, Project: s.kit.options.Project, Account: view.Account.ID, Limit: s.options.History,
	})
	if err != nil {
		return err
	}
	return s.say(ctx, turn, s.texts().History(turn.Reader, s.kit.catalog(), page.Reservations, s.now()), nil)
}

// cancel cancels all of the person's work that goes on, and says what came of each piece of it.
func (s *Shop) cancel(ctx context.Context, turn *Turn) error {
	outcomes, err := turn.CancelAll(ctx)
	if err != nil {
		return err
	}
	var details []string
	for _, outcome := range outcomes {
		if outcome.Reason == holdfast.AlreadyEnded || outcome.Reason == holdfast.NotFound {
			continue // its end is told already, or just now
		}
		details = append(details, turn.Detail(outcome))
	}
	if len(details) == 0 {
		details = []string{turn.Text(message.NothingUnderWay, nil)}
	}
	return s.say(ctx, turn, joinLines(details...), nil)
}
