package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

func (k *Kit) feature(name string) *Feature {
	for _, f := range k.features {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// askFor asks for a feature because of a message.
func (k *Kit) askFor(ctx context.Context, t *Turn, f *Feature, words string) error {
	ask := Ask{Text: words}
	if photos := t.Update.Message.Photo; len(photos) > 0 {
		ask.Photo = photos[len(photos)-1].ID
	}
	if f.Ask != nil {
		t.Argument = words
		var err error
		ask, err = f.Ask(ctx, t)
		if decline := (*Decline)(nil); errors.As(err, &decline) {
			_, err = t.Reply(ctx, decline.Text, nil)
			return err
		}
		if err != nil {
			return err
		}
	} else if ask.Text == "" && ask.Photo == "" {
		_, err := t.Reply(ctx, t.Text(message.AskWithWords, nil), nil)
		return err
	}
	ask.Feature = f.Name
	_, err := t.Ask(ctx, ask)
	return err
}

// Ask reserves what a piece of work will cost, and puts it into its queue; the person gets a status message, or is told why
// not. Asked again for the same intention it changes nothing, and says so to whoever pressed a button.
//
// The outcome is that of the reserve: with a Reason where it was refused.
func (t *Turn) Ask(ctx context.Context, ask Ask) (holdfast.Outcome, error) {
	k := t.kit
	if k.feature(ask.Feature) == nil {
		return holdfast.Outcome{}, fmt.Errorf("telegram: no feature %q is registered: nobody would do the work", ask.Feature)
	}
	place := t.Place
	if t.repeats != nil {
		place = t.repeats.Prompt.place()
	}
	prompt := Prompt{
		Bot: k.options.Bot, User: t.User.ID, Chat: place.Chat, Thread: place.Thread, Message: place.Message, Private: place.Private,
		Text: ask.Text, Photo: ask.Photo, Language: t.Reader.Language,
	}
	if t.Reader.Location != nil {
		prompt.TimeZone = t.Reader.Location.String()
	}
	payload, err := json.Marshal(prompt)
	if err != nil {
		return holdfast.Outcome{}, fmt.Errorf("write a job: %w", err)
	}
	var parts []string
	if ask.Part != "" {
		parts = append(parts, ask.Part)
	}
	command := holdfast.Command{Key: t.Key(parts...), Do: holdfast.Reserve{
		Feature: ask.Feature, Quantity: ask.Quantity, Usage: ask.Usage, Surface: k.options.Surface,
		Metadata: metadataOf(prompt), Job: &holdfast.JobRequest{Payload: string(payload)},
	}}
	// Two taps at once: the second finds what the first has done, and not half of it. Where it only has to say that it counts
	// once, it does not wait until the first has its status message.
	var outcome holdfast.Outcome
	reserved, turn := false, t.Account+" "+command.Key
	if k.turns.busy(turn) {
		outcome, err = k.submit(ctx, t.Account, command)
		reserved = err == nil && outcome.Reason == ""
		if reserved && outcome.Replayed {
			t.done.Reservation = holdfast.ReservationRef.Encode(outcome.Owner.ID, outcome.Reservation.ID)
			return outcome, t.Answer(ctx, t.Text(message.TakenAlready, nil))
		}
	}
	unlock := k.turns.lock(turn)
	defer unlock()
	if !reserved {
		outcome, err = k.submit(ctx, t.Account, command)
	}
	if err == nil && outcome.Reason != "" && outcome.Replayed {
		var told bool
		if outcome, told, err = t.refusedBefore(ctx, command, outcome); told {
			t.done.Refused = outcome.Reason
			return outcome, t.Answer(ctx, t.Text(message.TakenAlready, nil))
		}
	}
	if err != nil {
		return outcome, err
	}
	if outcome.Reason != "" {
		t.done.Refused = outcome.Reason
		if err := t.refused(ctx, ask, prompt, outcome); err != nil {
			return outcome, err
		}
		return outcome, k.keep(ctx, refusedPrefix+command.Key, t.User.ID)
	}
	// From here on the work goes on by itself, and its end will be told, whatever becomes of this turn.
	t.asked = true
	ref := holdfast.ReservationRef.Encode(outcome.Owner.ID, outcome.Reservation.ID)
	t.done.Reservation = ref
	telling, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellFor)
	defer cancel()
	if !outcome.Replayed { // at once: whoever has pressed waits for it
		if err := t.Answer(telling, ""); err != nil {
			k.log().Warn("a tap was not answered", "bot", k.options.Bot, "error", err)
		}
	}
	under := 0
	if t.repeats != nil {
		under = t.Place.Message
	}
	opened, err := k.open(telling, ref, outcome, ask, prompt, under)
	switch {
	case err != nil:
		return outcome, err
	case !opened && outcome.Replayed:
		return outcome, t.Answer(telling, t.Text(message.TakenAlready, nil))
	}
	return outcome, nil
}

// refusedPrefix begins the notes of refusals that were told, by the key of the intention.
const refusedPrefix = "refused:"

// sameTap is how far apart two taps on a button may be to be one.
const sameTap = 5 * time.Second

// refusedBefore looks at a refusal that is answered again: told says that the person knows of it. Whoever presses a button later
// than by mistake wants to know how it is now: that is decided afresh.
func (t *Turn) refusedBefore(ctx context.Context, command holdfast.Command, outcome holdfast.Outcome) (now holdfast.Outcome, told bool, err error) {
	k := t.kit
	n, told, err := k.options.Notes.Note(ctx, k.options.Bot, refusedPrefix+command.Key)
	if err != nil || !told {
		return outcome, false, err
	}
	if t.Update.Callback == nil || k.options.Engine.Now().Sub(n.At) < sameTap {
		return outcome, true, nil
	}
	command.RetryRefused = true
	outcome, err = k.submit(ctx, t.Account, command)
	return outcome, false, err
}

// tellFor bounds how long a person is tried to be told what was decided already.
const tellFor = 15 * time.Second

// The names of a reservation's metadata.
const (
	metaBot, metaUser, metaChat, metaThread, metaMessage = "telegram_bot", "telegram_user", "telegram_chat", "telegram_thread", "telegram_message"
	metaPrivate                                          = "telegram_private"
)

// metadataOf is what a reservation says of where it was asked for, so that its end can be told there.
func metadataOf(p Prompt) map[string]string {
	m := map[string]string{
		metaBot: p.Bot, metaUser: strconv.FormatInt(p.User, 10), metaChat: strconv.FormatInt(p.Chat, 10), metaMessage: strconv.Itoa(p.Message),
	}
	if p.Thread != 0 {
		m[metaThread] = strconv.Itoa(p.Thread)
	}
	if p.Private {
		m[metaPrivate] = "true"
	}
	return m
}

// promptOf reads it back; ok is false where another bot, or none, has asked for it.
func (k *Kit) promptOf(r *holdfast.Reservation) (p Prompt, ok bool) {
	if r.Metadata[metaBot] != k.options.Bot {
		return Prompt{}, false
	}
	number := func(name string) int64 {
		n, err := strconv.ParseInt(r.Metadata[name], 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	p = Prompt{
		Bot: k.options.Bot, User: number(metaUser), Chat: number(metaChat), Thread: int(number(metaThread)), Message: int(number(metaMessage)),
		Private: r.Metadata[metaPrivate] == "true",
	}
	return p, p.Chat != 0
}

// repeat is what a Repeat button asks for.
type repeat struct {
	Ask    Ask    `json:"ask"`
	Prompt Prompt `json:"prompt"`
}

const repeatPrefix = "repeat:"

func repeatKey(nonce string) string { return repeatPrefix + nonce }

// offer keeps what can be asked for again, and returns the button for it.
func (k *Kit) offer(ctx context.Context, reader message.Reader, ask Ask, prompt Prompt) (botapi.Button, error) {
	nonce := Nonce()
	ask.Part = ""
	prompt.Text, prompt.Photo = "", "" // they are in ask
	if err := k.keep(ctx, repeatKey(nonce), repeat{Ask: ask, Prompt: prompt}); err != nil {
		return botapi.Button{}, err
	}
	return botapi.Button{Text: k.options.Texts.Phrase(reader, message.ButtonRepeat, nil), Data: Data(buttonRepeat, nonce)}, nil
}

// refused tells why nothing was reserved, with the buttons that help.
func (t *Turn) refused(ctx context.Context, ask Ask, prompt Prompt, outcome holdfast.Outcome) error {
	k := t.kit
	text := t.Detail(outcome)
	keyboard, err := k.helpful(ctx, t.Reader, ask, prompt, outcome)
	if err != nil {
		return err
	}
	if t.repeats == nil {
		_, err = k.options.API.Send(ctx, botapi.Message{
			Chat: prompt.Chat, Thread: prompt.Thread, ReplyTo: prompt.Message, Text: text, Keyboard: keyboard,
		})
		return err
	}
	// The button's own message tells what came of pressing it, and its new button has a nonce of its own.
	if err := t.Answer(ctx, ""); err != nil {
		return err
	}
	if err := t.Edit(ctx, text, keyboard); !errors.Is(err, botapi.ErrNoMessage) {
		return err
	}
	return nil
}

// helpful is the keyboard under a refusal: what can be done about it.
func (k *Kit) helpful(ctx context.Context, reader message.Reader, ask Ask, prompt Prompt, outcome holdfast.Outcome) (botapi.Keyboard, error) {
	var row []botapi.Button
	button := func(phrase message.Phrase, data string) {
		if data != "" {
			row = append(row, botapi.Button{Text: k.options.Texts.Phrase(reader, phrase, nil), Data: data})
		}
	}
	again := false
	switch outcome.Reason {
	case holdfast.Insufficient:
		button(message.ButtonTopUp, k.options.TopUp)
		button(message.ButtonPlans, k.options.Plans)
		again = true
	case holdfast.HeldByActive, holdfast.TooManyActive:
		if outcome.Refusal != nil && len(outcome.Refusal.Plans) > 0 {
			button(message.ButtonPlans, k.options.Plans)
		}
		again = true
	case holdfast.FeatureNotInPlan, holdfast.SubscriptionInactive:
		button(message.ButtonPlans, k.options.Plans)
		again = true
	}
	var keyboard botapi.Keyboard
	if len(row) > 0 {
		keyboard = append(keyboard, row)
	}
	if again {
		repeat, err := k.offer(ctx, reader, ask, prompt)
		if err != nil {
			return nil, err
		}
		keyboard = append(keyboard, []botapi.Button{repeat})
	}
	return keyboard, nil
}

// reservation reads a reservation as it is now; nil: there is none.
func (k *Kit) reservation(ctx context.Context, ref string) (*holdfast.Reservation, error) {
	account, id, err := holdfast.ReservationRef.Parse(ref)
	if err != nil {
		return nil, nil //nolint:nilerr // what is no id is the id of nothing
	}
	page, err := k.options.Engine.Read(ctx, store.Query{
		Kind: store.QueryReservations, Project: k.options.Project, Account: account, Reservation: id, Limit: 1,
	})
	if err != nil || len(page.Reservations) == 0 {
		return nil, err
	}
	return page.Reservations[0], nil
}
