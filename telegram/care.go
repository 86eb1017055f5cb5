package telegram

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// How often what is left over is looked at, and how long notes are kept.
const (
	laterEvery = time.Second
	healEvery  = 10 * time.Minute
	firstPause = time.Second
	longPause  = time.Minute

	keepButtons = 7 * 24 * time.Hour                   // of what can be asked for again
	keepTold    = holdfast.KeepEvents + 5*24*time.Hour // longer than an event can come again
	keepDrafts  = 2 * 24 * time.Hour
	pruneChunk  = 500
)

// care looks after what others have left: messages of a process that died, notices that could not be sent, old notes.
func (k *Kit) care(ctx context.Context) {
	pause := firstPause
	var next time.Time // of the next round of what is not urgent
	for ctx.Err() == nil {
		wait := laterEvery
		if err := k.round(ctx, &next); err == nil {
			pause = firstPause
		} else if ctx.Err() == nil {
			k.log().Warn("what the bot has left over could not be looked after and will be tried again", "bot", k.options.Bot, "error", err)
			wait, pause = pause, min(2*pause, longPause)
		}
		select {
		case <-ctx.Done():
		case <-k.after(wait):
		}
	}
}

func (k *Kit) round(ctx context.Context, next *time.Time) error {
	if _, err := k.since(ctx); err != nil {
		return err
	}
	if err := k.tellLater(ctx); err != nil {
		return err
	}
	now := k.options.Engine.Now()
	if now.Before(*next) {
		return nil
	}
	if err := k.heal(ctx); err != nil {
		return err
	}
	if err := k.prune(ctx, now); err != nil {
		return err
	}
	*next = now.Add(healEvery)
	return nil
}

// heal makes the messages of work agree with how the work is: after a crash a status message may have a button that does
// nothing any more, or an end may not have been told.
func (k *Kit) heal(ctx context.Context) error {
	return k.eachTask(ctx, "", func(ref string) error {
		r, err := k.reservation(ctx, ref)
		if err != nil {
			return err
		}
		if r == nil { // its account was deleted
			return k.forget(ctx, ref)
		}
		if !r.Live() {
			prompt, ours := k.promptOf(r)
			if !ours {
				return k.forget(ctx, ref)
			}
			return k.mildly(k.tellEnd(ctx, ref, r, prompt))
		}
		return k.mildly(k.show(ctx, ref, wish{}))
	})
}

// forget takes the status message of work away that is not there any more, and what is noted of it.
func (k *Kit) forget(ctx context.Context, ref string) error {
	if err := k.mildly(k.vanish(ctx, ref)); err != nil {
		return err
	}
	_, err := k.options.Notes.DropNote(ctx, k.options.Bot, taskPrefix+ref)
	return err
}

// forgetPerson forgets whose an account was that has been deleted, and what they could ask for again. The event's id names the
// account: its name is gone.
func (k *Kit) forgetPerson(ctx context.Context, event string) error {
	account, _, err := holdfast.EventRef.Parse(event)
	if err != nil {
		return nil //nolint:nilerr // what is no id is the id of nobody
	}
	key := personPrefix + account.String()
	p, known, err := note[person](ctx, k, key)
	if err != nil || !known {
		return err
	}
	err = k.each(ctx, repeatPrefix, func(n store.Note) error {
		offered, _, err := note[repeat](ctx, k, n.Key)
		if err != nil || offered.Prompt.User != p.User {
			return err
		}
		_, err = k.options.Notes.DropNote(ctx, k.options.Bot, n.Key)
		return err
	})
	if err != nil {
		return err
	}
	_, err = k.options.Notes.DropNote(ctx, k.options.Bot, key)
	return err
}

// mildly leaves what Telegram does not take now for the next round.
func (k *Kit) mildly(err error) error {
	if isTelegrams(err) {
		k.log().Info("a message could not be corrected yet", "bot", k.options.Bot, "error", err)
		return nil
	}
	return k.again(err)
}

// eachTask visits the work that is noted, whose public ids begin with a prefix.
func (k *Kit) eachTask(ctx context.Context, ids string, do func(ref string) error) error {
	return k.each(ctx, taskPrefix+ids, func(n store.Note) error { return do(n.Key[len(taskPrefix):]) })
}

// each visits the notes whose keys begin with a prefix.
func (k *Kit) each(ctx context.Context, prefix string, do func(store.Note) error) error {
	after := prefix
	for {
		notes, err := k.options.Notes.Notes(ctx, k.options.Bot, prefix, after, holdfast.MaxPage)
		if err != nil || len(notes) == 0 {
			return err
		}
		for _, n := range notes {
			after = n.Key
			if err := do(n); err != nil {
				return err
			}
		}
	}
}

// prune removes notes that nothing can ask for any more.
func (k *Kit) prune(ctx context.Context, now time.Time) error {
	for prefix, keep := range map[string]time.Duration{
		repeatPrefix: keepButtons, refusedPrefix: keepButtons, "draft:": keepDrafts, eventPrefix: keepTold, toldPrefix: keepTold, donePrefix: keepTold, resultPrefix: keepButtons,
	} {
		for {
			pruned, err := k.options.Notes.PruneNotes(ctx, k.options.Bot, prefix, now.Add(-keep), pruneChunk)
			if err != nil {
				return err
			}
			if pruned < pruneChunk {
				break
			}
		}
	}
	return nil
}
