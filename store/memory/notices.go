package memory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// notices removes what is not to be told any more, and keeps what is to be told later.
func (w *writing) notices(a *account, changes *holdfast.Changes) error {
	for _, gone := range changes.Withdrawn {
		remove(w, a.notices, gone.Slot)
		before := a.events
		w.steps = append(w.steps, func() { a.events = before })
		a.events = slices.DeleteFunc(slices.Clone(a.events), func(e holdfast.Event) bool { return e.ID == gone.Event })
		remove(w, a.told, gone.Event)
	}
	for _, n := range changes.Notices {
		if n.Event.Entry != 0 || n.Event.Figure != 0 {
			return rejected(w.op, errors.New("a notice tells of no entry and of no figure"))
		}
		n.DueAt = stored(n.DueAt)
		n.Event.At = n.DueAt
		put(w, a.notices, n.Slot, n)
	}
	return nil
}

// DueNotices are notices whose time has come.
func (s *Store) DueNotices(ctx context.Context, of store.NoticesOf, at time.Time, after store.NoticeRef, limit int) (due []store.DueNotice, err error) {
	err = s.use(ctx, "look for due notices", func() error {
		for _, id := range ids(s.accounts) {
			a := s.accounts[id]
			for _, slot := range ids(a.notices) {
				n := a.notices[slot]
				behind := cmp.Or(bytes.Compare(id[:], after.Account[:]), bytes.Compare(slot[:], after.Slot[:])) > 0
				if behind && len(due) < limit && !n.DueAt.After(at) && n.Event.Reservation.IsZero() == (of == store.NoticesOfAccounts) {
					due = append(due, store.DueNotice{Account: copyAccount(a.row), Notice: n})
				}
			}
		}
		return nil
	})
	return due, err
}

// SettleNotices puts notices into the outbox, puts them off or drops them.
func (s *Store) SettleNotices(ctx context.Context, settled []store.SettledNotice) error {
	return s.use(ctx, "settle notices", func() error {
		for _, one := range settled {
			a := s.accounts[one.Account]
			if a == nil {
				continue
			}
			n, waits := a.notices[one.Slot]
			if !waits || n.Event.ID != one.Event {
				continue
			}
			switch {
			case one.Fate.Tell && !a.told[n.Event.ID]:
				a.told[n.Event.ID] = true
				a.events = append(a.events, n.Event)
				delete(a.notices, one.Slot)
			case one.Fate.Tell || one.Fate.Later.IsZero():
				delete(a.notices, one.Slot)
			default:
				n.DueAt = stored(one.Fate.Later)
				n.Event.At = n.DueAt
				a.notices[one.Slot] = n
			}
		}
		return nil
	})
}
