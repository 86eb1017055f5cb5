package telegram

import (
	"context"
	"maps"
	"strings"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// startedBy is the metadata of an account that keeps what the first link to the bot said: who has sent the person, or where
// they came from.
const startedBy = "start"

// start greets a person. What a deep link says is kept with the account, the first that is told; where it names a product,
// the product is offered.
func (s *Shop) start(ctx context.Context, turn *Turn) error {
	view, err := turn.View(ctx)
	if err != nil {
		return err
	}
	payload := strings.TrimSpace(turn.Argument)
	if payload != "" && view.Account.Metadata[startedBy] == "" {
		metadata := maps.Clone(view.Account.Metadata)
		if metadata == nil {
			metadata = map[string]string{}
		}
		metadata[startedBy] = payload
		outcome, err := turn.Submit(ctx, holdfast.Command{Do: holdfast.PutAccount{Metadata: metadata}})
		if err != nil {
			return err
		}
		if outcome.Reason != "" { // anybody can write a link
			s.kit.log().Info("what a link to the bot says is not kept", "account", turn.Account, "reason", outcome.Reason)
		}
	}
	if offer, ok := s.offerNamed(payload); ok {
		return s.show(ctx, turn, offer)
	}
	if payload == invoiceStart {
		return s.plans(ctx, turn)
	}
	return s.say(ctx, turn, s.texts().Welcome(turn.Reader, s.kit.catalog(), view, s.asks()), botapi.Keyboard{{s.plansButton(turn)}})
}

// invoiceStart is what forwarded copies of an invoice lead to: another person cannot pay them.
const invoiceStart = "pay"

func (s *Shop) help(ctx context.Context, turn *Turn) error {
	view, err := turn.View(ctx)
	if err != nil {
		return err
	}
	return s.say(ctx, turn, s.texts().Help(turn.Reader, s.kit.catalog(), view, s.asks(), s.options.Contact), nil)
}

func (s *Shop) terms(ctx context.Context, turn *Turn) error {
	return s.say(ctx, turn, s.texts().Terms(turn.Reader, s.options.Contact), nil)
}

// unknown answers what nobody has taken: in a group that was perhaps not meant for the bot.
func (s *Shop) unknown(ctx context.Context, turn *Turn) error {
	switch {
	case !turn.Place.Private:
		return nil
	case strings.HasPrefix(turn.Update.Message.Words(), "/"):
		return s.say(ctx, turn, turn.Text(message.UnknownCommand, nil), nil)
	}
	return s.help(ctx, turn)
}
