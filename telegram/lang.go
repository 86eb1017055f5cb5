package telegram

import (
	"context"

	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// languageNames are the languages that are spoken here, each in its own words.
var languageNames = []struct{ tag, name string }{{"en", "English"}, {"ru", "Русский"}}

// asTelegram is the choice to follow the language of the person's Telegram.
const asTelegram = "auto"

// language asks which language to speak; /lang ru answers at once.
func (s *Shop) language(ctx context.Context, turn *Turn) error {
	if chosen := turn.Argument; spoken(chosen) {
		return s.speak(ctx, turn, chosen)
	}
	var row []botapi.Button
	for _, language := range languageNames {
		row = append(row, botapi.Button{Text: language.name, Data: Data(buttonLanguage, language.tag)})
	}
	follow := botapi.Button{Text: turn.Text(message.ButtonLanguageOf, nil), Data: Data(buttonLanguage, asTelegram)}
	return s.say(ctx, turn, turn.Text(message.ChooseLanguage, nil), botapi.Keyboard{row, {follow}})
}

func spoken(choice string) bool {
	for _, language := range languageNames {
		if choice == language.tag {
			return true
		}
	}
	return choice == asTelegram
}

func (s *Shop) chooseLanguage(ctx context.Context, turn *Turn) error {
	if !spoken(turn.Argument) {
		return turn.Answer(ctx, turn.Text(message.ButtonSpent, nil))
	}
	return s.speak(ctx, turn, turn.Argument)
}

// speak speaks the chosen language from now on, this answer included.
func (s *Shop) speak(ctx context.Context, turn *Turn, choice string) error {
	said := message.LanguageChosen
	if choice == asTelegram {
		said, choice = message.LanguageIsTelegrams, ""
	}
	if err := turn.SetLanguage(ctx, choice); err != nil {
		return err
	}
	if choice == "" {
		turn.Reader.Language = turn.User.Language
	}
	if turn.Update.Callback == nil {
		return s.say(ctx, turn, turn.Text(said, nil), nil)
	}
	if err := turn.Answer(ctx, ""); err != nil {
		s.kit.log().Debug("a tap was not answered", "error", err)
	}
	return turn.Edit(ctx, turn.Text(said, nil), nil)
}
