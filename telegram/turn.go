package telegram

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// Turn is one thing that a person has done, and the way to answer it.
type Turn struct {
	Update   *Update
	Place    Place          // where to answer
	User     User           // who did it, and pays
	Account  string         // theirs
	Reader   message.Reader // how to speak to them
	Argument string         // what follows a command, or the name of a button

	kit      *Kit
	repeats  *repeat // what a Repeat button asks for again; nil: the turn is none of those
	owner    string  // as Account is called now
	done     *Done
	asked    bool // something was reserved: the work goes on, whatever becomes of the turn
	answered bool // the callback query
}

// Key names the intention: the same for a message that is delivered twice, and for two taps on one button, since a button's
// data has a nonce of its own where it can be pressed for more than one thing. Parts tell several commands of one turn
// apart.
func (t *Turn) Key(parts ...string) string {
	key := "telegram." + t.kit.options.Bot
	switch u := t.Update; {
	case u.Callback != nil:
		key += ":tap:" + strconv.FormatInt(t.Place.Chat, 10) + ":" + strconv.Itoa(t.Place.Message) + ":" + u.Callback.Data
	case u.Message != nil:
		key += ":message:" + strconv.FormatInt(t.Place.Chat, 10) + ":" + strconv.Itoa(t.Place.Message)
	default:
		key += ":update:" + strconv.FormatInt(u.ID, 10)
	}
	return strings.Join(append([]string{key}, parts...), ":")
}

// Text is a text of package message in the person's language.
func (t *Turn) Text(phrase message.Phrase, blanks message.Blanks) string {
	return t.kit.options.Texts.Phrase(t.Reader, phrase, blanks)
}

// Detail is what package message says of an outcome.
func (t *Turn) Detail(outcome holdfast.Outcome) string {
	return t.kit.options.Texts.Detail(t.Reader, t.kit.catalog(), outcome, t.kit.options.Engine.Now())
}

// View is the person's account as it is now.
func (t *Turn) View(ctx context.Context) (*holdfast.AccountView, error) {
	return t.kit.options.Engine.View(ctx, t.kit.options.Project, t.Account)
}

// Submit has a command decided for the person's account. One that creates something needs a key: Key with a part of its own.
func (t *Turn) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	return t.kit.submit(ctx, t.Account, command)
}

// Reply sends a message in answer to the person's own, in a group into the same topic.
func (t *Turn) Reply(ctx context.Context, text string, keyboard botapi.Keyboard) (int, error) {
	m := botapi.Message{Chat: t.Place.Chat, Thread: t.Place.Thread, Text: text, Keyboard: keyboard}
	if t.Update.Message != nil && !t.Place.Private {
		m.ReplyTo = t.Place.Message
	}
	return t.kit.options.API.Send(ctx, m)
}

// Edit changes the message whose button was pressed.
func (t *Turn) Edit(ctx context.Context, text string, keyboard botapi.Keyboard) error {
	return t.kit.options.API.Edit(ctx, botapi.Edit{Chat: t.Place.Chat, Message: t.Place.Message, Text: text, Keyboard: keyboard})
}

// Answer ends the waiting of a button that was pressed; the person sees the text for a moment, or, with Alert, until they
// close it. Only the first answer of a turn is sent. A button that nobody answers is answered without a text.
func (t *Turn) Answer(ctx context.Context, text string) error { return t.answer(ctx, text, false) }

// Alert is Answer with a text that the person has to close.
func (t *Turn) Alert(ctx context.Context, text string) error { return t.answer(ctx, text, true) }

func (t *Turn) answer(ctx context.Context, text string, alert bool) error {
	if t.Update.Callback == nil || t.answered {
		return nil
	}
	t.answered = true
	return t.kit.options.API.AnswerCallback(ctx, t.Update.Callback.ID, text, alert)
}

// maxData is what Telegram takes as the data of a button, in bytes.
const maxData = 64

// Data is the data of a button whose taps come to the Button handler of that name. It panics where Telegram would refuse
// it: a button is the author's own, and not made of what people write.
func Data(name, argument string) string {
	data := name
	if argument != "" {
		data += ":" + argument
	}
	if len(data) > maxData {
		panic(fmt.Sprintf("telegram: the data of a button has at most %d bytes: %q", maxData, data))
	}
	return data
}

// Nonce tells the buttons of different messages and moments apart, so that pressing again what was offered again is another
// intention. Put it into the argument of a button that starts or buys something.
func Nonce() string {
	var random [5]byte
	_, _ = rand.Read(random[:]) // never fails
	return strings.ToLower(base32.StdEncoding.EncodeToString(random[:]))
}
