package outbox

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

const (
	chunkNotices = 200
	// How often notices are looked for, in times of Options.Every: a person waits for those of work; the others are spread over
	// hours anyway.
	noticesOfWorkEvery     = 4
	noticesOfAccountsEvery = 240
)

// ripen puts notices that are due into the outbox, where publish finds them.
func (r *Relay) ripen(ctx context.Context, of store.NoticesOf, every time.Duration) {
	for ctx.Err() == nil {
		err := r.ripenAll(ctx, of)
		if err != nil && ctx.Err() == nil && store.KindOf(err) != store.Conflict {
			r.options.Logger.Warn("notices that are due could not be looked after and will be tried again", "error", err)
		}
		wait(ctx, every)
	}
}

func (r *Relay) ripenAll(ctx context.Context, of store.NoticesOf) error {
	var after store.NoticeRef
	for {
		now := r.options.Now()
		due, err := r.store.DueNotices(ctx, of, now, after, chunkNotices)
		if err != nil || len(due) == 0 {
			return err
		}
		var settled []store.SettledNotice
		accounts, last := 0, holdfast.AccountID{}
		for i := range due {
			n := &due[i]
			if n.Account.ID != last {
				if most := r.store.Traits().MaxAccounts; most > 0 && accounts == most {
					if err := r.store.SettleNotices(ctx, settled); err != nil {
						return err
					}
					settled, accounts = nil, 0
				}
				accounts, last = accounts+1, n.Account.ID
			}
			settled = append(settled, store.SettledNotice{NoticeRef: n.Ref(), Event: n.Notice.Event.ID, Fate: n.Notice.FateOf(&n.Account, now)})
		}
		if err := r.store.SettleNotices(ctx, settled); err != nil || len(due) < chunkNotices {
			return err
		}
		after = due[len(due)-1].Ref()
	}
}
