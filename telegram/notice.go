package telegram

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// What people are told of without having asked comes from the outbox, so that it is told also where the process that decided
// it is gone. Texts are made of what is true when they are sent, and not of the event: an event says that something may have
// to be told.
//
//	event ─► told before? ─► its account's person, or where the work was asked for ─► how is it now? ─► send ─► noted as told
//	                                                                        └─ later: kept, and sent when there is room

const (
	eventPrefix = "event:" // an event that was told, or needed no telling
	laterPrefix = "later:" // one that is still to be told
	sinceKey    = "since"  // when the bot first listened: what happened before is none of its business
)

// Sink tells people what the outbox tells. Give it to an outbox.Relay, under a name that is the bot's own.
func (k *Kit) Sink() outbox.Sink { return outbox.SinkFunc(k.publish) }

// SinkName is a name for the Sink of a bot.
func SinkName(bot string) string { return "telegram:" + bot }

// Relay is a relay that tells the people of bots what happens, for programs that have no other one. Its options may name more
// sinks.
func Relay(from outbox.Store, options outbox.Options, kits ...*Kit) *outbox.Relay {
	sinks := map[string]outbox.Sink{}
	for name, sink := range options.Sinks {
		sinks[name] = sink
	}
	for _, k := range kits {
		sinks[SinkName(k.options.Bot)] = k.Sink()
	}
	options.Sinks = sinks
	return outbox.New(from, options)
}

// publish tells a chunk of events, one after the other. Its errors are those of the database, after which the chunk comes
// again: what was told by then is noted. What Telegram does not take now is kept, and holds up nobody.
func (k *Kit) publish(ctx context.Context, events []outbox.Event) error {
	for i := range events {
		e := &events[i]
		if e.Project != k.options.Project || !tells(e.Type) {
			continue
		}
		since, err := k.since(ctx)
		if err != nil {
			return err
		}
		if e.CreatedAt.Before(since) {
			continue
		}
		if !slices.Contains(repeatable, e.Type) {
			if _, told, err := k.options.Notes.Note(ctx, k.options.Bot, eventPrefix+e.ID); err != nil {
				return err
			} else if told {
				continue
			}
		}
		if unhurried(e.Type) || k.inTrouble() {
			if err := k.putOff(ctx, e); err != nil {
				return err
			}
			continue
		}
		telling, cancel := context.WithTimeout(ctx, tellFor)
		err = k.tell(telling, e)
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case isTelegrams(err):
			if !errors.Is(err, errSoon) {
				k.trouble(err)
				k.log().Warn("a notice could not be sent and will be tried again", "bot", k.options.Bot, "event", e.ID, "kind", e.Type, "error", err)
			}
			err = k.putOff(ctx, e)
		case err == nil:
			err = k.noteTold(ctx, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// since is when the bot first listened: when it first ran, or got an update.
func (k *Kit) since(ctx context.Context) (time.Time, error) {
	k.listening.Lock()
	defer k.listening.Unlock()
	if !k.listensSince.IsZero() {
		return k.listensSince, nil
	}
	if _, err := k.keepFirst(ctx, sinceKey, k.options.Engine.Now()); err != nil {
		return time.Time{}, err
	}
	since, _, err := note[time.Time](ctx, k, sinceKey)
	if err != nil {
		return time.Time{}, err
	}
	k.listensSince = since
	return since, nil
}

// The kinds of ends, as the outbox names them.
const (
	endedByCommit     = holdfast.EventKind("reservation.commit")
	endedByRelease    = holdfast.EventKind("reservation.release")
	endedByExpiry     = holdfast.EventKind("reservation.expire")
	endedByLateCommit = holdfast.EventKind("reservation.late_commit")
	chargeRefunded    = holdfast.EventKind("reservation.refund")
)

var told = []holdfast.EventKind{
	endedByCommit, endedByRelease, endedByExpiry, endedByLateCommit, chargeRefunded, holdfast.EventInDoubt, holdfast.EventCancelRequested,
	holdfast.EventNoticeQueued, holdfast.EventNoticeLowBalance, holdfast.EventNoticeRenewed,
	holdfast.EventPaymentGranted, holdfast.EventPaymentFlagged, holdfast.EventPaymentRefunded, holdfast.EventDeleted,
}

var repeatable = []holdfast.EventKind{
	endedByCommit, endedByRelease, endedByExpiry, endedByLateCommit, holdfast.EventCancelRequested, holdfast.EventNoticeQueued,
}

func tells(kind holdfast.EventKind) bool { return slices.Contains(told, kind) }

// unhurried are the kinds that nobody waits for. They go when there is room.
func unhurried(kind holdfast.EventKind) bool { return kind == holdfast.EventNoticeRenewed }

// isTelegrams reports whether an error is of the Bot API, and may pass.
func isTelegrams(err error) bool {
	return err != nil && (botapi.Temporary(err) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errSoon))
}

// troubleFor is how long nothing else is tried after Telegram could not be reached: each try would take as long.
const troubleFor = 5 * time.Second

func (k *Kit) trouble(err error) {
	if errors.Is(err, botapi.ErrUnavailable) || errors.Is(err, botapi.ErrUncertain) || errors.Is(err, context.DeadlineExceeded) {
		k.troubledUntil.Store(k.options.Engine.Now().Add(troubleFor).UnixNano())
	}
}

func (k *Kit) inTrouble() bool { return k.options.Engine.Now().UnixNano() < k.troubledUntil.Load() }

// errSoon: another process may be telling it at this moment, where the person has pressed Cancel. If it does not, it is told
// later.
var errSoon = errors.New("the process in which it was cancelled may be telling it")

// tell tells one event. That there is nothing to tell, or nobody to tell it, is no error.
func (k *Kit) tell(ctx context.Context, e *outbox.Event) error {
	var err error
	switch {
	case strings.HasPrefix(string(e.Type), "payment."):
		if k.paid != nil {
			err = k.paid(ctx, e)
		}
		if err == nil {
			err = k.tellPayment(ctx, e)
		}
	case e.Type == holdfast.EventNoticeLowBalance:
		err = k.tellLowBalance(ctx, e)
	case e.Type == holdfast.EventNoticeRenewed:
		err = k.tellRenewed(ctx, e)
	case e.Type == holdfast.EventDeleted:
		err = k.forgetPerson(ctx, e.ID)
	case e.Data.Reservation != nil:
		err = k.tellWork(ctx, e.Type, *e.Data.Reservation)
	}
	if errors.Is(err, botapi.ErrRejected) || errors.Is(err, botapi.ErrNoMessage) {
		k.log().Error("telegram does not take a notice", "bot", k.options.Bot, "event", e.ID, "kind", e.Type, "error", err)
		return nil
	}
	return err
}

// tellWork tells what became of a piece of work.
func (k *Kit) tellWork(ctx context.Context, kind holdfast.EventKind, ref string) error {
	r, err := k.reservation(ctx, ref)
	if err != nil || r == nil {
		return err
	}
	prompt, ours := k.promptOf(r)
	if !ours {
		if r.Cause == holdfast.CauseDeleted { // nothing says any more whose it was; its status message, if it is ours, goes
			return k.forget(ctx, ref)
		}
		return nil
	}
	switch kind {
	case holdfast.EventNoticeQueued:
		if r.State != holdfast.Reserved {
			return nil // it does not wait any more
		}
		return k.show(ctx, ref, wish{waits: true})
	case holdfast.EventCancelRequested:
		return k.show(ctx, ref, wish{})
	case holdfast.EventInDoubt:
		if !r.Live() || !r.InDoubt {
			return nil // it is settled by now, which is told
		}
		return k.tellDoubt(ctx, ref, r, prompt)
	case chargeRefunded:
		if r.Refunded == 0 {
			return nil
		}
		return k.tellRefund(ctx, r, prompt)
	}
	if r.Live() {
		return nil
	}
	return k.tellEnd(ctx, ref, r, prompt)
}

// tellEnd tells how work has ended, unless the person has the result, or was told when they cancelled it.
func (k *Kit) tellEnd(ctx context.Context, ref string, r *holdfast.Reservation, prompt Prompt) error {
	unlock := k.statuses.lock(ref)
	defer unlock()
	_, delivered, err := k.options.Notes.Note(ctx, k.options.Bot, donePrefix+ref)
	if err != nil {
		return err
	}
	before, known, err := note[string](ctx, k, toldPrefix+ref)
	if err != nil {
		return err
	}
	t, noted, err := note[task](ctx, k, taskPrefix+ref)
	if err != nil {
		return err
	}
	state := endOf(r)
	if !delivered && !known && r.Cause == holdfast.CauseCancelled && r.CancelRequestedAt.IsZero() && k.options.Engine.Now().Sub(r.EndedAt) < tellFor/3 {
		return errSoon
	}
	if !delivered && !(known && before == state) && r.Cause != CauseUnreachable {
		if err := k.sendEnd(ctx, ref, r, prompt, t, noted); err != nil {
			return err
		}
		if err := k.keep(ctx, toldPrefix+ref, state); err != nil {
			return err
		}
	}
	if noted && t.Status != 0 {
		if err := k.remove(ctx, t); err != nil {
			return err
		}
	}
	for _, key := range []string{taskPrefix + ref, resultPrefix + ref} {
		if _, err := k.options.Notes.DropNote(ctx, k.options.Bot, key); err != nil {
			return err
		}
	}
	return nil
}

// endOf names an end, so that one end is told once, and another one that follows it, a late commit, is told too.
func endOf(r *holdfast.Reservation) string {
	if !r.LateAt.IsZero() {
		return "late"
	}
	return string(r.State)
}

// sendEnd sends how work has ended: whether it was charged, and, where it came to nothing, a button to ask again and the
// number to name to support.
func (k *Kit) sendEnd(ctx context.Context, ref string, r *holdfast.Reservation, prompt Prompt, t task, noted bool) error {
	to, err := k.asker(ctx, prompt)
	if err != nil {
		return err
	}
	text := k.detailFor(to.reader, r)
	if r.State == holdfast.Committed || r.Cause == holdfast.CauseCancelled {
		return k.say(ctx, to, prompt, text, nil)
	}
	text = joinLines(text, k.numberOf(to.reader, ref))
	var keyboard botapi.Keyboard
	if noted && r.LateAt.IsZero() && k.feature(t.Ask.Feature) != nil {
		again, err := k.offer(ctx, to.reader, t.Ask, t.Prompt)
		if err != nil {
			return err
		}
		keyboard = botapi.Keyboard{{again}}
	}
	return k.say(ctx, to, prompt, text, keyboard)
}

// tellDoubt tells that nobody knows yet, and takes the status message away: nothing can be cancelled.
func (k *Kit) tellDoubt(ctx context.Context, ref string, r *holdfast.Reservation, prompt Prompt) error {
	unlock := k.statuses.lock(ref)
	defer unlock()
	to, err := k.asker(ctx, prompt)
	if err != nil {
		return err
	}
	if err := k.say(ctx, to, prompt, joinLines(k.detailFor(to.reader, r), k.numberOf(to.reader, ref)), nil); err != nil {
		return err
	}
	return k.vanishLocked(ctx, ref)
}

// tellRefund tells that a charge was given back.
func (k *Kit) tellRefund(ctx context.Context, r *holdfast.Reservation, prompt Prompt) error {
	to, err := k.asker(ctx, prompt)
	if err != nil {
		return err
	}
	return k.say(ctx, to, prompt, k.detailFor(to.reader, r), nil)
}

func (k *Kit) detailFor(reader message.Reader, r *holdfast.Reservation) string {
	return k.options.Texts.Detail(reader, k.catalog(), holdfast.Outcome{Reservation: r}, k.options.Engine.Now())
}

func (k *Kit) numberOf(reader message.Reader, ref string) string {
	return k.options.Texts.Phrase(reader, message.WorkNumber, message.Blanks{"Number": ShortID(ref)})
}

// asker is who has asked for work, and how to speak to them, as their account says now.
func (k *Kit) asker(ctx context.Context, p Prompt) (resolved, error) {
	return k.resolve(ctx, User{ID: p.User}, p.Private, false)
}

// say sends a notice in answer to what was asked. A person who has blocked the bot is not told, and that is noted.
func (k *Kit) say(ctx context.Context, to resolved, p Prompt, text string, keyboard botapi.Keyboard) error {
	_, err := k.options.API.Send(ctx, botapi.Message{
		Chat: p.Chat, Thread: p.Thread, ReplyTo: p.Message, Text: text, Keyboard: keyboard, AtLeastOnce: true,
	})
	if errors.Is(err, botapi.ErrBlocked) {
		return k.gone(ctx, to.owner, p.Private)
	}
	return err
}

// whom finds the person of an event's account; ok is false where this bot has never met them, or cannot write to them.
func (k *Kit) whom(ctx context.Context, e *outbox.Event) (p person, view *holdfast.AccountView, ok bool, err error) {
	p, known, err := note[person](ctx, k, k.personKey(e.Account))
	if err != nil || !known || !p.reachable() {
		return p, nil, false, err
	}
	view, err = k.options.Engine.View(ctx, k.options.Project, e.Account)
	return p, view, err == nil && view.Exists, err
}

// writeTo sends a notice into a person's own chat.
func (k *Kit) writeTo(ctx context.Context, owner string, p person, text string, keyboard botapi.Keyboard) error {
	_, err := k.options.API.Send(ctx, botapi.Message{Chat: p.User, Text: text, Keyboard: keyboard})
	if errors.Is(err, botapi.ErrBlocked) {
		return k.gone(ctx, owner, true)
	}
	return err
}

// tellPayment tells what a payment has brought, or that it was refunded.
func (k *Kit) tellPayment(ctx context.Context, e *outbox.Event) error {
	told := e.Data.Payment
	if told == nil {
		return nil
	}
	p, view, ok, err := k.whom(ctx, e)
	if err != nil || !ok {
		return err
	}
	paid := &holdfast.Payment{
		Provider: told.Provider, PaymentID: told.PaymentID, Product: told.Product, Amount: told.Amount, Currency: told.Currency,
		State: told.State, Flag: told.Reason, Refunded: told.Refunded,
	}
	reader, now := k.reader(view.Account.Language, view.Account.TimeZone), k.options.Engine.Now()
	text := ""
	switch {
	case e.Type == holdfast.EventPaymentRefunded:
		text = k.options.Texts.PaymentRefunded(reader, k.catalog(), paid, view, now)
	case e.Type == holdfast.EventPaymentFlagged && paid.State != holdfast.PaymentFlagged:
		return nil // somebody has seen to it by now
	default:
		text = k.options.Texts.Paid(reader, k.catalog(), paid, view, now)
	}
	return k.writeTo(ctx, e.Account, p, text, nil)
}

// tellLowBalance tells that little is left, unless there is more by now.
func (k *Kit) tellLowBalance(ctx context.Context, e *outbox.Event) error {
	p, view, ok, err := k.whom(ctx, e)
	if err != nil || !ok || !view.Account.Notices || e.Data.Figure == nil || e.Data.Reservation == nil {
		return err
	}
	r, err := k.reservation(ctx, *e.Data.Reservation)
	if err != nil || r == nil {
		return err
	}
	balance := balanceOf(view, r.Price.Unit)
	if balance == nil || balance.Available > *e.Data.Figure {
		return nil // topped up, or a new period
	}
	reader := k.reader(view.Account.Language, view.Account.TimeZone)
	keyboard := k.muting(reader)
	if k.options.TopUp != "" {
		keyboard = append(botapi.Keyboard{{{Text: k.options.Texts.Phrase(reader, message.ButtonTopUp, nil), Data: k.options.TopUp}}}, keyboard...)
	}
	return k.writeTo(botapi.WithPriority(ctx, botapi.Notice), e.Account, p, k.notice(reader, e.Type, balance), keyboard)
}

// tellRenewed tells that an allowance is there again, to people who want it and are not at it anyway.
func (k *Kit) tellRenewed(ctx context.Context, e *outbox.Event) error {
	p, view, ok, err := k.whom(ctx, e)
	if err != nil || !ok || !view.Account.Notices || view.Account.Blocked || view.Account.Active > 0 {
		return err
	}
	var balance *holdfast.Balance
	for i := range view.Balances {
		if b := &view.Balances[i]; b.Cycle != nil && b.Available > 0 {
			balance = b
			break
		}
	}
	if balance == nil {
		return nil // there is nothing that could be used
	}
	reader := k.reader(view.Account.Language, view.Account.TimeZone)
	return k.writeTo(botapi.WithPriority(ctx, botapi.Notice), e.Account, p, k.notice(reader, e.Type, balance), k.muting(reader))
}

func balanceOf(view *holdfast.AccountView, unit string) *holdfast.Balance {
	i := slices.IndexFunc(view.Balances, func(b holdfast.Balance) bool { return b.Unit == unit })
	if i < 0 {
		return nil
	}
	return &view.Balances[i]
}

// muting is the button that ends notices.
func (k *Kit) muting(reader message.Reader) botapi.Keyboard {
	return botapi.Keyboard{{{Text: k.options.Texts.Phrase(reader, message.ButtonMute, nil), Data: Data(buttonMute, "")}}}
}

func (k *Kit) notice(reader message.Reader, kind holdfast.EventKind, balance *holdfast.Balance) string {
	return k.options.Texts.Notice(reader, k.catalog(), kind, balance, k.options.Engine.Now())
}

// later is an event that is still to be told.
type later struct {
	Event    outbox.Event `json:"event"`
	Attempts int          `json:"attempts,omitempty"`
	Next     time.Time    `json:"next,omitzero"` // not before
}

// The two lines of what is told later: what somebody waits for goes first.
const (
	laterUrgent    = laterPrefix + "a:"
	laterUnhurried = laterPrefix + "b:"
)

// The pauses between attempts double, up to longestWait. What could not be told for holdfast.DeliverFor is given up.
const longestWait = 10 * time.Minute

// betweenLooks is how many unhurried notices are sent before is looked again for those that somebody waits for.
const betweenLooks = 50

// putOff keeps an event for later, and counts as having told it: it is the later telling's now.
func (k *Kit) putOff(ctx context.Context, e *outbox.Event) error {
	line := laterUrgent
	if unhurried(e.Type) {
		line = laterUnhurried
	}
	if _, err := k.keepFirst(ctx, line+e.ID, later{Event: *e}); err != nil {
		return err
	}
	return k.noteTold(ctx, e)
}

// noteTold notes an event that was told. Those that only show how work is now, and ends, which have notes of their own, change
// nothing when they are looked at again; there are many of them.
func (k *Kit) noteTold(ctx context.Context, e *outbox.Event) error {
	if slices.Contains(repeatable, e.Type) {
		return nil
	}
	return k.keep(ctx, eventPrefix+e.ID, true)
}

// tellLater tells what was put off and is due, as far as Telegram takes it now; what somebody waits for goes first.
func (k *Kit) tellLater(ctx context.Context) error {
	urgent := func() error {
		return k.each(ctx, laterUrgent, func(n store.Note) error { return k.tellNote(ctx, n) })
	}
	if err := urgent(); err != nil {
		return err
	}
	sent := 0
	return k.each(ctx, laterUnhurried, func(n store.Note) error {
		if sent++; sent%betweenLooks == 0 {
			if err := urgent(); err != nil {
				return err
			}
		}
		return k.tellNote(ctx, n)
	})
}

// tellNote tells an event that was put off, and forgets it, unless it is to be tried again.
func (k *Kit) tellNote(ctx context.Context, n store.Note) error {
	var l later
	if err := json.Unmarshal([]byte(n.Value), &l); err != nil {
		return fmt.Errorf("read the note %s: %w", n.Key, err)
	}
	now := k.options.Engine.Now()
	if now.Before(l.Next) || k.inTrouble() {
		return nil
	}
	telling, cancel := context.WithTimeout(ctx, tellFor)
	err := k.tell(telling, &l.Event)
	cancel()
	k.trouble(err)
	switch l.Attempts++; {
	case ctx.Err() != nil:
		return ctx.Err()
	case isTelegrams(err) && now.Before(l.Event.CreatedAt.Add(holdfast.DeliverFor)):
		l.Next = now.Add(min(laterEvery<<min(l.Attempts-1, 12), longestWait))
		return k.keep(ctx, n.Key, l)
	case isTelegrams(err):
		k.log().Error("a notice was given up", "bot", k.options.Bot, "event", l.Event.ID, "kind", l.Event.Type, "error", err)
	case err != nil:
		return err
	}
	_, err = k.options.Notes.DropNote(ctx, k.options.Bot, n.Key)
	return err
}
