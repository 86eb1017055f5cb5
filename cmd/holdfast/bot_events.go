package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/store"
)

// What people are told without having asked comes from the events that were published. Any server of the database may be the
// one that publishes, also one that knows no bot, so a bot reads them itself, from where it has come to.

const (
	eventsAtOnce  = 100
	lookEvery     = 250 * time.Millisecond
	followFor     = 15 * time.Second // the lease of whoever tells a bot's people
	followedKey   = "followed"       // the note of the position up to which events were told
	tellingLease  = "events/"        // before the bot's name
	longestUnread = 30 * time.Second
)

// follow tells the people of a bot what happens, until ctx ends. Of several processes one does.
func (h *botHouse) follow(ctx context.Context, b *bot) error {
	desk := outbox.NewDesk(h.database, outbox.Guard{})
	// Where one process at a time can have the database, its successor need not wait for the lease.
	holder := cmp.Or(serveCommand{databaseFlags: h.command.databaseFlags}.holder(), rand.Text())
	lease := tellingLease + b.settings.id
	pause, until := lookEvery, time.Time{} // until when this process leads
	for ctx.Err() == nil {
		now := time.Now()
		leads, err := now.Before(until.Add(-followFor/2)), error(nil)
		if !leads {
			if leads, err = h.notes.LeadBot(ctx, lease, holder, now, now.Add(followFor)); leads {
				until = now.Add(followFor)
			}
		}
		more := false
		if err == nil && leads {
			more, err = h.tellNext(ctx, b, desk)
		}
		switch {
		case ctx.Err() != nil:
		case err != nil:
			h.log.Warn("a bot's people could not be told what happened and it will be tried again", "bot", b.settings.Name, "error", err)
			pause = min(2*pause, longestUnread)
		default:
			pause = lookEvery
		}
		if more && err == nil {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	now := time.Now()
	_, _ = h.notes.LeadBot(leaving, lease, holder, now, now) // or it lapses by itself
	return nil
}

// tellNext tells the next events, and reports whether there may be more. Where the process dies before their place is noted
// they come again; the kit knows which it has told.
func (h *botHouse) tellNext(ctx context.Context, b *bot, desk *outbox.Desk) (more bool, err error) {
	noted, known, err := h.notes.Note(ctx, b.settings.id, followedKey)
	if err != nil {
		return false, err
	}
	after := int64(0)
	if known {
		if after, err = strconv.ParseInt(noted.Value, 10, 64); err != nil {
			return false, errors.Join(errors.New("the note of what was told is damaged"), err)
		}
	}
	events, next, err := desk.Events(ctx, b.settings.Project, after, eventsAtOnce)
	if err != nil || len(events) == 0 {
		return false, err
	}
	if err := b.kit.Sink().Publish(ctx, events); err != nil {
		return false, err
	}
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	note := store.Note{Bot: b.settings.id, Key: followedKey, Value: strconv.FormatInt(next, 10), At: time.Now()}
	return len(events) == eventsAtOnce, h.notes.PutNote(noting, note)
}
