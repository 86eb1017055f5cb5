package inbox

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// Getter asks the Bot API for updates: getUpdates with an offset, for at most timeout. Package telegram/botapi has one.
type Getter interface {
	Updates(ctx context.Context, offset int64, timeout time.Duration, kinds []string) ([]json.RawMessage, error)
}

const (
	pollFor  = 50 * time.Second // the Bot API answers an idle call then
	leadFor  = 6 * time.Second  // it is prolonged three times as often
	maxRetry = 30 * time.Second
)

// Poll takes updates by asking for them, until ctx ends. Where several processes poll for one bot, one of them does.
func (in *Inbox) Poll(ctx context.Context, getter Getter) error {
	for ctx.Err() == nil {
		leads, err := in.lead(ctx)
		if err != nil && ctx.Err() == nil {
			in.options.Logger.Warn("the lease of the bot could not be taken and will be tried again", "error", err)
		}
		if leads {
			in.poll(ctx, getter)
		} else {
			wait(ctx, in.options.Every)
		}
	}
	resigning, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	now := in.options.Now()
	_, _ = in.options.Store.LeadBot(resigning, in.options.Bot, in.holder, now, now) // or it lapses by itself
	return nil
}

func (in *Inbox) lead(ctx context.Context) (bool, error) {
	now := in.options.Now()
	return in.options.Store.LeadBot(ctx, in.options.Bot, in.holder, now, now.Add(leadFor))
}

// poll asks for as long as the lease is prolonged.
func (in *Inbox) poll(ctx context.Context, getter Getter) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var asking sync.WaitGroup
	asking.Go(func() { in.ask(ctx, getter) })
	until := in.options.Now().Add(leadFor)
	for ctx.Err() == nil {
		wait(ctx, leadFor/3)
		now := in.options.Now()
		leads, err := in.lead(ctx)
		switch {
		case err == nil && leads:
			until = now.Add(leadFor)
		case err == nil, !now.Before(until): // another polls, or may
			stop()
		}
	}
	asking.Wait()
}

// ask asks again and again. An offset confirms what is before it, so it is sent once, after that is stored: it would hide
// updates whose ids begin anew further down.
func (in *Inbox) ask(ctx context.Context, getter Getter) {
	var offset int64
	var pause time.Duration
	for ctx.Err() == nil {
		raw, err := getter.Updates(ctx, offset, pollFor, Kinds())
		if err == nil {
			offset = 0
			if len(raw) > 0 {
				offset, err = in.keep(ctx, raw)
			}
		}
		if err == nil {
			pause = 0
			continue
		}
		if ctx.Err() != nil {
			return
		}
		pause = min(maxRetry, max(in.options.Every, 2*pause))
		in.options.Logger.Warn("updates could not be had and will be asked for again", "error", err, "in", pause.String())
		wait(ctx, pause)
	}
}

// keep stores a batch, and says what confirms it.
func (in *Inbox) keep(ctx context.Context, raw []json.RawMessage) (offset int64, err error) {
	updates := make([]told, 0, len(raw))
	for _, one := range raw {
		t, err := read(one)
		if err != nil {
			in.options.Logger.Error("what came by polling is not an update and is dropped", "bytes", len(one))
			continue
		}
		updates = append(updates, t)
		offset = max(offset, t.id+1)
	}
	if len(updates) == 0 {
		return 0, errNoUpdate
	}
	switch err := in.take(ctx, updates); {
	case err == nil:
		return offset, nil
	case store.KindOf(err) != store.Rejected:
		return 0, err
	}
	for i := range updates { // one of them is to blame
		err := in.take(ctx, updates[i:i+1])
		switch {
		case err == nil:
		case store.KindOf(err) == store.Rejected:
			in.options.Logger.Error("an update cannot be stored and is dropped", "update", updates[i].id, "kind", updates[i].kind, "error", err)
		default:
			return 0, err
		}
	}
	return offset, nil
}
