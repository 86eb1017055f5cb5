package telegram

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// The status message of a reservation:
//
//	            ┌───────────── the queue is long ──┐
//	reserve ─► queued [Cancel] ─► working ─► gone (the result is a message of its own)
//	            ▲    │               │  └─► stopping ─► gone
//	            │    └─ cancelled: its last words, without a button
//	            └──── given back ────┘
//
// It is noted with what was asked, so that whoever comes after a crash finds it. Every change of it is made under the
// reservation's lock, after a look at how the reservation is: so nothing is shown after the end that the end contradicts.

// task is what is noted of a reservation that lives.
type task struct {
	Ask    Ask    `json:"ask"`
	Prompt Prompt `json:"prompt"`
	Status int    `json:"status,omitempty"` // the status message; 0: there is none
	Shown  string `json:"shown,omitempty"`  // what it says
	Button bool   `json:"button,omitempty"` // it has Cancel
	Unsure bool   `json:"unsure,omitempty"` // or something else: of the last change it is not known whether it was made
	// Opened is when its status message was begun to be sent: another process may be about to.
	Opened time.Time `json:"opened"`
}

// opening is how long a status message may take to be sent; whoever finds none after that sends one.
const opening = 8 * time.Second

// What a status message can say.
const (
	shownQueued   = "queued"
	shownWaiting  = "waiting"
	shownWorking  = "working"
	shownStopping = "stopping"
)

// statusText is what a status message says where nobody has said more.
func (k *Kit) statusText(reader message.Reader, shown string) string {
	phrase := message.StatusQueued
	switch shown {
	case shownWaiting:
		return k.notice(reader, holdfast.EventNoticeQueued, nil)
	case shownWorking:
		phrase = message.StatusWorking
	case shownStopping:
		phrase = message.StatusStopping
	}
	return k.options.Texts.Phrase(reader, phrase, nil)
}

const (
	taskPrefix = "work:" // a task, by the reservation's public id
	donePrefix = "done:" // the result is with the person, and what it came to
	toldPrefix = "told:" // the end was told
)

// The kit's own buttons.
const (
	buttonCancel = "cancel"
	buttonRepeat = "repeat"
	buttonMute   = "mute"
)

// ownButton answers the kit's own buttons.
func (k *Kit) ownButton(name string) Handler {
	switch name {
	case buttonCancel:
		return k.cancelPressed
	case buttonRepeat:
		return k.repeatPressed
	case buttonMute:
		return k.mutePressed
	}
	return nil
}

// open sends the status message of what was reserved just now. It reports false where that was done before, or is needed no
// more. Under is the message to make it of, of the bot's own; 0: a new one.
func (k *Kit) open(ctx context.Context, ref string, outcome holdfast.Outcome, ask Ask, prompt Prompt, under int) (opened bool, err error) {
	unlock := k.statuses.lock(ref)
	defer unlock()
	prompt.Text, prompt.Photo = "", "" // they are in ask
	t := task{Ask: ask, Prompt: prompt, Opened: k.options.Engine.Now()}
	first, err := k.keepFirst(ctx, taskPrefix+ref, t)
	if err != nil {
		return false, err
	}
	if !first {
		known := false
		t, known, err = note[task](ctx, k, taskPrefix+ref)
		if err != nil || !known || t.Status != 0 || k.options.Engine.Now().Sub(t.Opened) < opening {
			return false, err
		}
	}
	r, over, err := k.over(ctx, ref)
	if err != nil {
		return false, err
	}
	if over {
		if under != 0 { // what would become the status message is not needed, and its end is told elsewhere
			if err := k.remove(ctx, task{Prompt: prompt, Status: under}); err != nil {
				return false, err
			}
		}
		needed := r != nil && (r.Live() || !first || !outcome.Replayed) // whoever tells the end drops it
		if needed && first && !r.Live() {
			needed, err = k.endUntold(ctx, ref, r)
		}
		if err == nil && !needed {
			_, err = k.options.Notes.DropNote(ctx, k.options.Bot, taskPrefix+ref)
		}
		return false, err
	}
	shown, _ := wish{}.saying(r, t)
	text, keyboard := k.face(ref, r, t, shown, "")
	if under != 0 {
		t.Status, err = under, k.options.API.Edit(ctx, botapi.Edit{Chat: prompt.Chat, Message: under, Text: text, Keyboard: keyboard})
	}
	if under == 0 || errors.Is(err, botapi.ErrNoMessage) {
		t.Status, err = k.options.API.Send(ctx, botapi.Message{
			Chat: prompt.Chat, Thread: prompt.Thread, ReplyTo: prompt.Message, Text: text, Keyboard: keyboard, Silent: true,
		})
	}
	if err != nil {
		// Without a status message the work is as good. A person who has blocked the bot is found out when it is delivered.
		k.log().Warn("a status message could not be sent", "bot", k.options.Bot, "reservation", ref, "error", err)
		return true, k.tidy(ctx, ref, t)
	}
	t.Shown, t.Button = shown, keyboard != nil
	if err := k.keep(ctx, taskPrefix+ref, t); err != nil {
		return true, err
	}
	// Another process may have begun the work meanwhile, or ended it, and found no status message.
	if _, over, err := k.over(ctx, ref); err != nil || over {
		return true, errors.Join(err, k.vanishLocked(ctx, ref))
	}
	return true, k.showLocked(ctx, ref, wish{})
}

// endUntold reports whether somebody will still come to tell how work has ended, or to see that its result did.
func (k *Kit) endUntold(ctx context.Context, ref string, r *holdfast.Reservation) (bool, error) {
	_, delivered, err := k.options.Notes.Note(ctx, k.options.Bot, donePrefix+ref)
	if err != nil || delivered {
		return false, err
	}
	before, known, err := note[string](ctx, k, toldPrefix+ref)
	return !known || before != endOf(r), err
}

// over reads a reservation and reports whether nothing is to be shown of it any more: it has ended, or its result is with
// the person.
func (k *Kit) over(ctx context.Context, ref string) (*holdfast.Reservation, bool, error) {
	r, err := k.reservation(ctx, ref)
	if err != nil || r == nil || !r.Live() {
		return r, true, err
	}
	_, delivered, err := k.options.Notes.Note(ctx, k.options.Bot, donePrefix+ref)
	return r, delivered, err
}

// face is what a status message looks like. Cancel is there only while it would work.
func (k *Kit) face(ref string, r *holdfast.Reservation, t task, shown, text string) (string, botapi.Keyboard) {
	reader := k.reader(t.Prompt.Language, t.Prompt.TimeZone)
	if text == "" {
		text = k.statusText(reader, shown)
	}
	if !cancellable(r) {
		return text, nil
	}
	return text, botapi.Keyboard{{{Text: k.options.Texts.Phrase(reader, message.ButtonCancel, nil), Data: Data(buttonCancel, ref)}}}
}

// cancellable reports whether a Cancel would be accepted now.
func cancellable(r *holdfast.Reservation) bool {
	switch {
	case r.InDoubt || !r.CancelRequestedAt.IsZero():
		return false
	case r.State == holdfast.Running:
		return r.Policies.CancelRunning == holdfast.CancelRequest
	}
	return r.State == holdfast.Reserved
}

// wish is what somebody wants a status message to say. The reservation, as it is now, decides whether it may.
type wish struct {
	waits bool   // that the wait has become long
	text  string // how far running work is
}

// saying is what a status message is to say.
func (w wish) saying(r *holdfast.Reservation, t task) (shown, text string) {
	switch {
	case !r.CancelRequestedAt.IsZero():
		return shownStopping, ""
	case r.State == holdfast.Running:
		return shownWorking, w.text
	case w.waits || t.Shown == shownWaiting:
		return shownWaiting, ""
	}
	return shownQueued, ""
}

// show lets the status message say how the work is now, and what is wished for.
func (k *Kit) show(ctx context.Context, ref string, w wish) error {
	ctx, cancel := context.WithTimeout(ctx, showFor)
	defer cancel()
	unlock := k.statuses.lock(ref)
	defer unlock()
	return k.showLocked(ctx, ref, w)
}

func (k *Kit) showLocked(ctx context.Context, ref string, w wish) error {
	t, known, err := note[task](ctx, k, taskPrefix+ref)
	if err != nil || !known || t.Status == 0 {
		return err
	}
	r, over, err := k.over(ctx, ref)
	if err != nil || over || r.InDoubt {
		return err
	}
	shown, text := w.saying(r, t)
	says, keyboard := k.face(ref, r, t, shown, text)
	if text == "" && t.Shown == shown && t.Button == (keyboard != nil) && !t.Unsure {
		return nil
	}
	err = k.options.API.Edit(ctx, botapi.Edit{Chat: t.Prompt.Chat, Message: t.Status, Text: says, Keyboard: keyboard})
	// What was done is noted also where whoever wanted it has gone meanwhile.
	settling, cancel := context.WithTimeout(context.WithoutCancel(ctx), tellFor)
	defer cancel()
	switch {
	case errors.Is(err, botapi.ErrNoMessage): // the person has deleted it
		t.Status = 0
	case err != nil: // it may have been done
		t.Unsure = true
		return errors.Join(err, k.keep(settling, taskPrefix+ref, t))
	}
	if t.Shown == shown && t.Button == (keyboard != nil) && t.Status != 0 && !t.Unsure {
		return nil
	}
	t.Shown, t.Button, t.Unsure = shown, keyboard != nil, false
	if err := k.keep(settling, taskPrefix+ref, t); err != nil {
		return err
	}
	return k.tidy(settling, ref, t)
}

// showFor bounds the wait for a change of a status message: what is shown meanwhile is no worse than what would be shown, and
// whoever wants to cancel or to deliver waits for it.
const showFor = 5 * time.Second

// vanish takes the status message away.
func (k *Kit) vanish(ctx context.Context, ref string) error {
	unlock := k.statuses.lock(ref)
	defer unlock()
	return k.vanishLocked(ctx, ref)
}

func (k *Kit) vanishLocked(ctx context.Context, ref string) error {
	t, known, err := note[task](ctx, k, taskPrefix+ref)
	if err != nil || !known || t.Status == 0 {
		return err
	}
	if err := k.remove(ctx, t); err != nil {
		return err
	}
	t.Status, t.Shown, t.Button = 0, "", false
	if err := k.keep(ctx, taskPrefix+ref, t); err != nil {
		return err
	}
	return k.tidy(ctx, ref, t)
}

// tidy takes away what was noted of work just now, where another process has told its end meanwhile: nobody would come for it
// again.
func (k *Kit) tidy(ctx context.Context, ref string, t task) error {
	r, err := k.reservation(ctx, ref)
	if err != nil || r != nil && r.Live() {
		return err
	}
	if r != nil {
		if untold, err := k.endUntold(ctx, ref, r); err != nil || untold {
			return err
		}
	}
	if t.Status != 0 {
		if err := k.remove(ctx, t); err != nil {
			return err
		}
	}
	_, err = k.options.Notes.DropNote(ctx, k.options.Bot, taskPrefix+ref)
	return err
}

// remove deletes a status message. One that is too old for that loses its button.
func (k *Kit) remove(ctx context.Context, t task) error {
	err := k.options.API.Delete(ctx, t.Prompt.Chat, t.Status)
	if errors.Is(err, botapi.ErrNoMessage) || errors.Is(err, botapi.ErrRejected) {
		err = k.options.API.Edit(ctx, botapi.Edit{Chat: t.Prompt.Chat, Message: t.Status, Text: "…"})
	}
	if errors.Is(err, botapi.ErrNoMessage) || errors.Is(err, botapi.ErrRejected) || errors.Is(err, botapi.ErrBlocked) {
		return nil
	}
	return err
}

// detail is what package message says of an outcome to whoever asked.
func (k *Kit) detail(p Prompt, outcome holdfast.Outcome) string {
	return k.options.Texts.Detail(k.reader(p.Language, p.TimeZone), k.catalog(), outcome, k.options.Engine.Now())
}

// Cancel cancels a piece of the person's work, by its public id, and lets its status message tell what came of it. The
// outcome is that of the cancel, whose Detail is what to tell; NotFound is also what others get.
func (t *Turn) Cancel(ctx context.Context, ref string) (holdfast.Outcome, error) {
	k := t.kit
	r, err := k.reservation(ctx, ref)
	if err != nil {
		return holdfast.Outcome{}, err
	}
	if r == nil || r.Metadata[metaUser] != strconv.FormatInt(t.User.ID, 10) {
		return holdfast.Outcome{Reason: holdfast.NotFound}, nil
	}
	return k.cancel(ctx, ref)
}

// CancelAll cancels all of the person's work that lives, and returns the outcomes.
func (t *Turn) CancelAll(ctx context.Context) ([]holdfast.Outcome, error) {
	var outcomes []holdfast.Outcome
	names := []string{t.Account}
	if t.owner != t.Account {
		names = append(names, t.owner)
	}
	for _, name := range names {
		// Public ids begin with the account.
		ids := holdfast.ReservationRef.Encode(holdfast.AccountIDOf(t.kit.options.Project, name), holdfast.ID{})[:len(holdfast.ReservationRef)+accountDigits]
		err := t.kit.eachTask(ctx, ids, func(ref string) error {
			outcome, err := t.Cancel(ctx, ref)
			outcomes = append(outcomes, outcome)
			return err
		})
		if err != nil {
			return outcomes, err
		}
	}
	return outcomes, nil
}

// accountDigits is how many digits of a public id tell of its account and of nothing else: 25 of 5 bits, of 128.
const accountDigits = 25

func (k *Kit) cancel(ctx context.Context, ref string) (holdfast.Outcome, error) {
	account, id, err := holdfast.ReservationRef.Parse(ref)
	if err != nil {
		return holdfast.Outcome{Reason: holdfast.NotFound}, nil //nolint:nilerr // what is no id is the id of nothing
	}
	unlock := k.statuses.lock(ref)
	defer unlock()
	command := holdfast.Command{Do: holdfast.Cancel{ReservationID: id}, Target: account}
	outcome, err := k.submit(ctx, "", command)
	if err != nil {
		return outcome, err
	}
	telling, stop := context.WithTimeout(context.WithoutCancel(ctx), tellFor)
	defer stop()
	return outcome, k.cancelled(telling, ref, outcome)
}

// cancelled lets the status message tell what came of a cancel.
func (k *Kit) cancelled(ctx context.Context, ref string, outcome holdfast.Outcome) error {
	t, known, err := note[task](ctx, k, taskPrefix+ref)
	if err != nil || !known || outcome.Reservation == nil {
		return err
	}
	r := outcome.Reservation
	if r.Live() { // it is asked to stop, or it cannot be stopped any more: then the button goes
		shown, _ := wish{}.saying(r, t)
		if t.Status == 0 || t.Shown == shown && !t.Button {
			return nil
		}
		text, keyboard := k.face(ref, r, t, shown, "")
		if err := k.options.API.Edit(ctx, botapi.Edit{Chat: t.Prompt.Chat, Message: t.Status, Text: text, Keyboard: keyboard}); err != nil {
			return k.again(err)
		}
		t.Shown, t.Button = shown, keyboard != nil
		return k.keep(ctx, taskPrefix+ref, t)
	}
	if r.State != holdfast.Released || r.Cause != holdfast.CauseCancelled {
		return nil // it ended in another way, which is told where that is told
	}
	// The status message is where it is told. Its note goes, so that nothing is written there afterwards.
	if t.Status != 0 {
		text := k.detail(t.Prompt, outcome)
		if err := k.options.API.Edit(ctx, botapi.Edit{Chat: t.Prompt.Chat, Message: t.Status, Text: text}); err != nil {
			if errors.Is(err, botapi.ErrNoMessage) {
				return nil // then the notice tells it
			}
			return k.again(err)
		}
		if err := k.keep(ctx, toldPrefix+ref, string(r.State)); err != nil {
			return err
		}
	}
	_, err = k.options.Notes.DropNote(ctx, k.options.Bot, taskPrefix+ref)
	return err
}

// cancelPressed answers Cancel, the first time and the third.
func (k *Kit) cancelPressed(ctx context.Context, t *Turn) error {
	r, err := k.reservation(ctx, t.Argument)
	if err != nil {
		return err
	}
	if r == nil || r.Metadata[metaUser] == "" { // its account was deleted
		return t.spent(ctx)
	}
	outcome, err := t.Cancel(ctx, t.Argument)
	switch {
	case err != nil:
		return err
	case outcome.Reason == holdfast.NotFound:
		return t.Alert(ctx, t.Text(message.NotYours, nil))
	}
	text := t.Detail(outcome)
	if outcome.Reservation != nil && outcome.Reservation.Live() && outcome.Reason == "" {
		text = t.Text(message.StatusStopping, nil)
	}
	if runes := []rune(text); len(runes) > botapi.MaxCallbackText {
		text = string(runes[:botapi.MaxCallbackText])
	}
	if err := t.Alert(ctx, text); err != nil {
		return err
	}
	if r = outcome.Reservation; r == nil || r.Live() || outcome.Changed {
		return nil
	}
	for _, prefix := range []string{taskPrefix, toldPrefix} { // where something is noted, the message is corrected by that
		if _, known, err := k.options.Notes.Note(ctx, k.options.Bot, prefix+t.Argument); err != nil || known {
			return err
		}
	}
	return k.again(t.Edit(ctx, k.detail(Prompt{Language: t.Reader.Language}, holdfast.Outcome{Reservation: r}), nil))
}

// spent answers a button that is of no use any more, and takes it away.
func (t *Turn) spent(ctx context.Context) error {
	if err := t.Answer(ctx, t.Text(message.ButtonSpent, nil)); err != nil {
		return err
	}
	m := t.Update.Callback.Message
	if m == nil || m.Text == "" {
		return nil
	}
	return t.kit.again(t.Edit(ctx, m.Text, nil))
}

// repeatPressed asks again for what a button offers.
func (k *Kit) repeatPressed(ctx context.Context, t *Turn) error {
	kept, known, err := note[repeat](ctx, k, repeatKey(t.Argument))
	switch {
	case err != nil:
		return err
	case !known:
		return t.spent(ctx)
	case kept.Prompt.User != t.User.ID:
		return t.Alert(ctx, t.Text(message.NotYours, nil))
	}
	t.repeats = &kept
	_, err = t.Ask(ctx, kept.Ask)
	return err
}

// mutePressed ends notices for a person.
func (k *Kit) mutePressed(ctx context.Context, t *Turn) error {
	no := false
	outcome, err := t.Submit(ctx, holdfast.Command{Do: holdfast.PutAccount{Notices: &no}})
	if err != nil {
		return err
	}
	if outcome.Reason != "" {
		return errors.New("notices could not be switched off: " + string(outcome.Reason))
	}
	return t.Answer(ctx, t.Text(message.Muted, nil))
}

// stopped cancels the work whose answer a person has stopped while it was being written.
func (k *Kit) stopped(ctx context.Context, s *Stopped) (bool, error) {
	ref, known, err := note[string](ctx, k, draftKey(s.Chat.ID, s.Draft))
	if err != nil || !known {
		return false, err
	}
	_, err = k.cancel(ctx, ref)
	return true, err
}

func draftKey(chat, draft int64) string {
	return "draft:" + strconv.FormatInt(chat, 10) + ":" + strconv.FormatInt(draft, 10)
}

// draftOf is an id of a draft that the same work always has.
func draftOf(ref string) int64 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(ref))
	return int64(h.Sum32()) + 1 // never 0
}

// ShortID is the part of a reservation's public id by which a person names it to support: enough to tell it apart from others,
// and to find it in a list.
func ShortID(ref string) string {
	const from, length = 44, 8
	if len(ref) < from+length {
		return ref
	}
	return ref[from : from+length]
}

// following keeps a status message and a chat's action alive while somebody works.
type following struct {
	texts chan string
	stop  context.CancelFunc
	ended sync.WaitGroup
}

// follow shows that the work has begun, and goes on showing it until done is called.
func (k *Kit) follow(ctx context.Context, ref string, f *Feature, p Prompt) *following {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w := &following{texts: make(chan string, 1), stop: stop}
	begun := make(chan struct{})
	w.ended.Go(func() { k.edit(ctx, ref, w.texts, begun) })
	w.ended.Go(func() {
		<-begun // a message that is sent ends the action that is shown
		k.act(ctx, f, p)
	})
	return w
}

// progress gives the text to show; one that was not shown yet gives way.
func (w *following) progress(text string) {
	for {
		select {
		case w.texts <- text:
			return
		default:
		}
		select {
		case <-w.texts:
		default:
		}
	}
}

func (w *following) done() {
	w.stop()
	w.ended.Wait()
}

// act shows the chat's action: it lasts five seconds.
func (k *Kit) act(ctx context.Context, f *Feature, p Prompt) {
	action := f.Action
	if action == "" {
		action = "typing"
	}
	for ctx.Err() == nil {
		_ = k.options.API.ChatAction(ctx, p.Chat, p.Thread, action) // worth nothing later
		select {
		case <-ctx.Done():
			return
		case <-k.after(k.options.Acting):
		}
	}
}

// edit shows that the work goes on, at once, and then the texts that come, no closer together than Editing. What Telegram did
// not take is tried again: the Cancel button must not outlive its use.
func (k *Kit) edit(ctx context.Context, ref string, texts <-chan string, begun chan<- struct{}) {
	for text, first := "", true; ; first = false {
		err := k.show(ctx, ref, wish{text: text})
		if err != nil && ctx.Err() == nil {
			k.log().Info("a status message could not be changed yet", "bot", k.options.Bot, "reservation", ref, "error", err)
		}
		if first {
			close(begun)
		}
		select {
		case <-ctx.Done():
			return
		case <-k.after(k.options.Editing):
		}
		if err != nil && !errors.Is(err, botapi.ErrBlocked) && !errors.Is(err, botapi.ErrRejected) {
			select {
			case text = <-texts:
			default:
			}
			continue
		}
		select {
		case <-ctx.Done():
			return
		case text = <-texts:
		}
	}
}

// defaults of the pauses.
const (
	defaultEditing = 3 * time.Second
	defaultActing  = 4 * time.Second
)
