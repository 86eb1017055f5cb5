package telegramstars

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// Notes keeps what a bot has to remember over a restart. A store.Notes does.
type Notes interface {
	PutNote(ctx context.Context, note store.Note) error
	AddNote(ctx context.Context, note store.Note) (added bool, err error)
	DropNote(ctx context.Context, bot, key string) (dropped bool, err error)
	Notes(ctx context.Context, bot, prefix, after string, limit int) ([]store.Note, error)
}

// RunnerOptions of a Runner. Stars, Notes and Do are needed.
type RunnerOptions struct {
	Stars *Stars
	Notes Notes
	// Do does an action at Telegram: that of a botapi.Client, or the bot's own sender. It may be called twice for one
	// action, and its errors never hold the token.
	Do     func(ctx context.Context, action Action) error
	Every  time.Duration // how often is looked for what is due; 0: a minute
	Logger *slog.Logger  // nil: none
}

// Runner does actions for a server that has the bot's token, each at least once:
//
//	Handle ─► Actions ─► Keep ─► a note ─► Do ─► Done ─► the note is dropped
//	                               └─ failed, or the process ended: again, with growing pauses, also after a restart
//
// Whoever handles updates keeps the actions before the update counts as handled: if that fails, the update is told again and
// Handle returns them again. Several servers may run one bot: an action may then be done twice, which changes nothing.
type Runner struct {
	RunnerOptions
	woken chan struct{} // something was kept
}

const (
	notePrefix   = "action:" // of the keys of notes; the rest is Action.Key
	notesAtOnce  = 100
	runEvery     = time.Minute
	actionWithin = 2 * time.Minute // longer than botapi tries by itself, unless Telegram asks it to wait

	firstAgain   = time.Minute
	longestAgain = 6 * time.Hour
	// giveUpAfter is two periods of a subscription: what Telegram has refused for so long, it will not accept.
	giveUpAfter = 60 * 24 * time.Hour
)

// kept is the value of a note. The note's time is when it is due.
type kept struct {
	Action   Action    `json:"action"`
	Since    time.Time `json:"since"`
	Attempts int       `json:"attempts"`
}

// NewRunner makes a runner. It does nothing before it runs.
func NewRunner(options RunnerOptions) *Runner {
	if options.Every == 0 {
		options.Every = runEvery
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	options.Logger = options.Logger.With("bot", options.Stars.Bot)
	return &Runner{RunnerOptions: options, woken: make(chan struct{}, 1)}
}

// Keep stores actions until they are done; one that is kept already stays as it is. An error says that this is not known: let
// Telegram tell the update again.
func (r *Runner) Keep(ctx context.Context, actions ...Action) error {
	for _, action := range actions {
		now := r.now()
		if _, err := r.Notes.AddNote(ctx, r.note(kept{Action: action, Since: now}, now)); err != nil {
			return fmt.Errorf("keep an action: %w", err)
		}
	}
	if len(actions) > 0 {
		select {
		case r.woken <- struct{}{}:
		default: // it looks already
		}
	}
	return nil
}

func (r *Runner) now() time.Time { return r.Stars.Book.Accounts.Now() }

func (r *Runner) note(k kept, due time.Time) store.Note {
	value, _ := json.Marshal(k) // texts, numbers and times always are JSON
	return store.Note{Bot: r.Stars.Bot, Key: notePrefix + k.Action.Key(), Value: string(value), At: due.UTC().Truncate(time.Microsecond)}
}

// Run does what is due until ctx ends, beginning with what an earlier process has left. It returns nil then.
func (r *Runner) Run(ctx context.Context) error {
	for {
		wait := r.Every
		switch next, err := r.Pass(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			r.Logger.Warn("actions at Telegram could not be read or noted and are tried again", "error", err)
		case !next.IsZero():
			wait = min(wait, max(next.Sub(r.now()), 0))
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-r.woken:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// Pass does once what is due now, and says when something is due next; the zero time: nothing is kept.
func (r *Runner) Pass(ctx context.Context) (next time.Time, err error) {
	for after := notePrefix; ; {
		notes, err := r.Notes.Notes(ctx, r.Stars.Bot, notePrefix, after, notesAtOnce)
		if err != nil {
			return next, fmt.Errorf("read what is to be done: %w", err)
		}
		for _, note := range notes {
			due := note.At
			if !due.After(r.now()) {
				if due, err = r.attempt(ctx, note); err != nil {
					return next, err
				}
			}
			if !due.IsZero() && (next.IsZero() || due.Before(next)) {
				next = due
			}
		}
		if len(notes) < notesAtOnce {
			return next, nil
		}
		after = notes[len(notes)-1].Key
	}
}

// attempt does one action, and says when it is due again; the zero time: it is done.
func (r *Runner) attempt(ctx context.Context, note store.Note) (again time.Time, err error) {
	var k kept
	if err := json.Unmarshal([]byte(note.Value), &k); err != nil {
		return again, fmt.Errorf("read a note: %w", err)
	}
	failed := r.do(ctx, k.Action)
	switch {
	case failed == nil:
	case ctx.Err() != nil:
		return again, ctx.Err() // whoever comes next does it
	case r.now().Sub(k.Since) >= giveUpAfter:
		r.Logger.Error("an action at Telegram was given up: do it by hand", "action", string(k.Action.Kind), "user", k.Action.User,
			"charge_id", k.Action.ChargeID, "attempts", k.Attempts+1, "error", failed)
	default:
		pause := longestAgain
		if k.Attempts < 10 { // doubled more often it would be longer anyway
			pause = min(firstAgain<<k.Attempts, longestAgain)
		}
		k.Attempts++
		again = r.now().Add(pause)
		r.Logger.Warn("an action at Telegram failed and is tried again", "action", string(k.Action.Kind), "user", k.Action.User,
			"charge_id", k.Action.ChargeID, "attempts", k.Attempts, "again_at", again, "error", failed)
		if err := r.Notes.PutNote(ctx, r.note(k, again)); err != nil {
			return again, fmt.Errorf("note an attempt: %w", err)
		}
		return again, nil
	}
	if _, err := r.Notes.DropNote(ctx, note.Bot, note.Key); err != nil {
		return again, fmt.Errorf("drop what is done: %w", err)
	}
	return again, nil
}

// do does an action, unless Telegram has told meanwhile that it is done.
func (r *Runner) do(ctx context.Context, action Action) error {
	order, err := r.Stars.find(ctx, action.Payload)
	if err != nil {
		return err
	}
	if order != nil && order.Cancelled {
		return nil
	}
	attempt, stop := context.WithTimeout(ctx, actionWithin)
	defer stop()
	if err := r.Do(attempt, action); err != nil {
		return err
	}
	return r.Stars.Done(ctx, action)
}
