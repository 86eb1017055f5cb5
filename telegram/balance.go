package telegram

import (
	"context"

	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// balance says what the person has.
func (s *Shop) balance(ctx context.Context, turn *Turn) error {
	view, err := turn.View(ctx)
	if err != nil {
		return err
	}
	return s.say(ctx, turn, s.texts().Balance(turn.Reader, s.kit.catalog(), view, s.now()), botapi.Keyboard{{s.plansButton(turn)}})
}

func (s *Shop) plansButton(turn *Turn) botapi.Button {
	return botapi.Button{Text: turn.Text(message.ButtonPlans, nil), Data: Data(ButtonPlans, "")}
}
