package telegram

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// Done says what the kit has done with an update.
type Done struct {
	Update  int64  `json:"update_id"`
	Kind    Kind   `json:"kind,omitempty"`
	Handled bool   `json:"handled"` // false: nobody here has anything to do with it
	Account string `json:"account,omitempty"`
	// Reservation is the public id of what was reserved, or had been under the same intention.
	Reservation string `json:"reservation,omitempty"`
	// Refused is why nothing was reserved.
	Refused holdfast.Reason `json:"refused,omitempty"`
}

// Take handles one raw update: what telegram/inbox calls, and whoever gets updates from another bot library. An error says
// that the same update should come again; what has been done by then is not done twice. What cannot succeed, and what was
// told to the person, is no error.
//
// Updates of one person are to come one after the other, except taps and pre-checkout queries, which do not wait.
func (k *Kit) Take(ctx context.Context, raw []byte) (Done, error) {
	u, err := ParseUpdate(raw)
	if err != nil {
		return Done{}, err
	}
	done := Done{Update: u.ID, Kind: u.Kind}
	if _, err := k.since(ctx); err != nil {
		return done, err
	}
	switch {
	case u.Kind == KindMember && u.Member.Chat.Private():
		done.Handled = true
		return done, k.met(ctx, u)
	case u.Kind == KindStopped:
		done.Handled, err = k.stopped(ctx, u.Stopped)
		return done, err
	case u.From == nil && u.Message == nil:
		return done, nil
	}
	t := &Turn{Update: u, Place: u.At(), kit: k, done: &done}
	handle := k.route(t)
	if handle == nil {
		if u.Kind == KindCallback { // a button of former times
			handle = func(ctx context.Context, t *Turn) error { return t.spent(ctx) }
		} else {
			return done, nil
		}
	}
	done.Handled = true
	if u.Message != nil && (u.Message.Anonymous() || u.From == nil) {
		t.Reader = k.reader("", "")
		if u.From != nil {
			t.Reader.Language = u.From.Language
		}
		_, err := t.Reply(ctx, t.Text(message.Anonymous, nil), nil)
		return done, k.again(err)
	}
	return done, k.serve(ctx, t, handle)
}

// Refuse tells a person that a tap could not be answered, because Take failed or took too long. It needs the Bot API only.
func (k *Kit) Refuse(ctx context.Context, raw []byte) error {
	u, err := ParseUpdate(raw)
	if err != nil || u.Callback == nil {
		return err
	}
	text := k.options.Texts.Accident(k.reader(u.From.Language, ""), message.Unavailable)
	return k.options.API.AnswerCallback(ctx, u.Callback.ID, text, true)
}

// Middleware is the kit before the webhook handler of another bot library. Updates that the kit has something to do with
// are handled, and the others are left to next with their body as it came. Whoever mounts it has checked the secret before.
func (k *Kit) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxUpdate))
		if err != nil {
			http.Error(w, "the update cannot be read", http.StatusBadRequest)
			return
		}
		done, err := k.Take(r.Context(), raw)
		switch {
		case err != nil:
			k.log().Warn("an update could not be handled and will be sent again", "bot", k.options.Bot, "update", done.Update, "error", err)
			http.Error(w, "please send it again", http.StatusServiceUnavailable)
		case done.Handled:
			w.WriteHeader(http.StatusOK)
		default:
			r.Body = io.NopCloser(strings.NewReader(string(raw)))
			next.ServeHTTP(w, r)
		}
	})
}

// maxUpdate bounds an update, in bytes: far more than Telegram sends.
const maxUpdate = 1 << 20

// route finds who answers; nil: nobody.
func (k *Kit) route(t *Turn) Handler {
	u := t.Update
	switch u.Kind {
	case KindCallback:
		name, argument, _ := strings.Cut(u.Callback.Data, ":")
		t.Argument = argument
		if own := k.ownButton(name); own != nil {
			return own
		}
		return k.buttons[name]
	case KindMessage:
		return k.routeMessage(t)
	}
	return k.kinds[u.Kind]
}

func (k *Kit) routeMessage(t *Turn) Handler {
	m := t.Update.Message
	command, argument, isCommand := parseCommand(m.Words(), k.options.Username)
	if isCommand {
		t.Argument = argument
		if handle := k.commands[command]; handle != nil && command != "" {
			return handle
		}
	}
	for _, f := range k.features {
		switch {
		case isCommand && f.Command == command && command != "":
			return func(ctx context.Context, t *Turn) error { return k.askFor(ctx, t, f, argument) }
		case isCommand || f.Command != "" && f.Match == nil || !k.addressed(m):
		case f.Match == nil && m.Words() != "" || f.Match != nil && f.Match(m):
			return func(ctx context.Context, t *Turn) error { return k.askFor(ctx, t, f, m.Words()) }
		}
	}
	if !k.addressed(m) {
		return nil // people talk to each other, and to other bots
	}
	return k.kinds[KindMessage]
}

// parseCommand reads /name@bot and what follows it. One for another bot has no name here.
func parseCommand(text, username string) (name, argument string, isCommand bool) {
	rest, slash := strings.CutPrefix(text, "/")
	if !slash {
		return "", "", false
	}
	name = rest
	if end := strings.IndexAny(rest, " \t\n\r"); end >= 0 {
		name, argument = rest[:end], strings.TrimSpace(rest[end:])
	}
	name, bot, named := strings.Cut(name, "@")
	if named && username != "" && !strings.EqualFold(bot, username) {
		return "", "", true
	}
	return strings.ToLower(name), argument, true
}

// addressed reports whether a message is meant for the bot: in private all are, in a group those that answer it or name it.
func (k *Kit) addressed(m *Message) bool {
	if m.Chat.Private() {
		return true
	}
	if r := m.ReplyTo; r != nil && r.From != nil && r.From.IsBot && (k.options.Username == "" || strings.EqualFold(r.From.Username, k.options.Username)) {
		return true
	}
	return k.options.Username != "" && strings.Contains(strings.ToLower(m.Words()), "@"+strings.ToLower(k.options.Username))
}

// serve finds the person and has the turn handled. Whatever falls is logged once, here or by whoever repeats the update.
func (k *Kit) serve(ctx context.Context, t *Turn, handle Handler) error {
	t.User = *t.Update.From
	known := t.Update.Kind == KindMessage || t.Update.Kind == KindCallback
	found, err := k.resolve(ctx, t.User, t.Place.Private, known)
	if err != nil {
		t.Reader = k.reader(t.User.Language, "")
		return k.fell(ctx, t, err)
	}
	t.Account, t.owner, t.Reader = found.account, found.owner, found.reader
	t.done.Account = t.Account
	if err := guard(ctx, t, handle); err != nil {
		return k.fell(ctx, t, err)
	}
	return k.again(t.Answer(ctx, "")) // a button that nobody answered
}

// guard turns a panic of the author's code into an error.
func guard(ctx context.Context, t *Turn, handle Handler) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = &panicked{fmt.Sprintf("panic: %v\n%s", broken, debug.Stack())}
		}
	}()
	return handle(ctx, t)
}

type panicked struct{ text string }

func (p *panicked) Error() string { return p.text }

// fell decides what follows from an error of a turn: the person is told, unless their work goes on anyway, and what may
// succeed later, and must not be lost, is returned.
func (k *Kit) fell(ctx context.Context, t *Turn, err error) error {
	var accident *engine.Error
	isAccident := errors.As(err, &accident)
	switch {
	case errors.Is(err, botapi.ErrBlocked):
		return k.gone(ctx, t.owner, t.Place.Private)
	case t.Update.Kind != KindMessage && t.Update.Kind != KindCallback:
		return err // payments: nothing may be lost
	case isAccident && accident.MayHaveHappened():
		return err // the same key will tell
	case t.asked || botapi.Temporary(err):
		// What was asked for is on its way, and its end will be told. A message that did not get through comes again with
		// the update, and a tap is pressed again.
		if t.asked && !botapi.Temporary(err) {
			k.log().Error("a turn failed after work had been asked for, which goes on", "bot", k.options.Bot, "update", t.Update.ID, "error", err)
			return nil
		}
		return err
	}
	if !isAccident || !accident.Passing() {
		k.log().Error("a turn failed", "bot", k.options.Bot, "update", t.Update.ID, "account", t.Account, "error", err)
	}
	text := k.options.Texts.Accident(t.Reader, accidentOf(err))
	if t.Update.Callback != nil && !t.answered {
		return k.again(t.Alert(ctx, text))
	}
	_, sendErr := t.Reply(ctx, text, nil)
	return k.again(sendErr)
}

// accidentOf is how to tell an error to a person.
func accidentOf(err error) message.Accident {
	var accident *engine.Error
	if !errors.As(err, &accident) {
		return message.Internal
	}
	switch accident.Code {
	case engine.Overloaded:
		return message.Overloaded
	case engine.Unavailable, engine.Cancelled:
		return message.Unavailable
	case engine.OutcomeUnknown:
		return message.OutcomeUnknown
	}
	return message.Internal
}

// again keeps the errors after which sending may succeed later, and logs the others.
func (k *Kit) again(err error) error {
	switch {
	case err == nil, errors.Is(err, botapi.ErrBlocked):
		return nil
	case errors.Is(err, botapi.ErrRejected), errors.Is(err, botapi.ErrNoMessage):
		k.log().Error("telegram does not take a message of the bot", "bot", k.options.Bot, "error", err)
		return nil
	}
	return err
}

// met notes that a person has blocked the bot, or lets it write again.
func (k *Kit) met(ctx context.Context, u *Update) error {
	found, err := k.resolve(ctx, *u.From, false, false)
	if err != nil {
		return err
	}
	if u.Member.Gone() {
		return k.gone(ctx, found.owner, true)
	}
	return k.change(ctx, found.owner, func(p *person) {
		p.User, p.Gone = u.From.ID, time.Time{}
		if p.Started.IsZero() {
			p.Started = k.options.Engine.Now()
		}
	})
}

// gone notes that the bot cannot write to a person: notices stop, until they write again.
func (k *Kit) gone(ctx context.Context, owner string, private bool) error {
	if owner == "" || !private {
		return nil
	}
	return k.change(ctx, owner, func(p *person) {
		if p.Gone.IsZero() {
			p.Gone = k.options.Engine.Now()
		}
	})
}
