package storetest

import (
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// noticeOf is a notice in the slot of a reservation, or, without one, of the account.
func noticeOf(slot, event, due int, reservation holdfast.ID) holdfast.Notice {
	n := holdfast.Notice{Slot: id(slot), DueAt: at(due)}
	n.Event = holdfast.Event{ID: id(event), Kind: holdfast.EventNoticeRenewed, At: n.DueAt, Reservation: reservation}
	if !reservation.IsZero() {
		n.Event.Kind = holdfast.EventNoticeQueued
	}
	return n
}

// dueSlots are the slots of notices that are due, and that of every one the account came with it.
func dueSlots(t *testing.T, s OutboxStore, of store.NoticesOf, due int, after store.NoticeRef, limit int) (slots []holdfast.ID, found []store.DueNotice) {
	t.Helper()
	found, err := s.DueNotices(t.Context(), of, at(due), after, limit)
	must(t, err)
	for _, n := range found {
		slots = append(slots, n.Notice.Slot)
		if n.Account.ID.IsZero() || n.Account.Version == 0 || n.Account.Name == "" {
			t.Errorf("the account of a notice is %+v", n.Account)
		}
	}
	return slots, found
}

func notices(t *testing.T, s OutboxStore) {
	ann, bob := fresh("ann"), fresh("bob")
	ann.Notices = []holdfast.Notice{noticeOf(1, 101, 10, id(1)), noticeOf(2, 102, 30, id(2)), noticeOf(9, 109, 10, holdfast.ID{})}
	bob.Notices = []holdfast.Notice{noticeOf(1, 201, 10, id(1))}
	must(t, save(t, s, ann, bob))
	first, second := "ann", "bob"
	if a, b := accountID("ann"), accountID("bob"); string(a[:]) > string(b[:]) {
		first, second = second, first
	}

	slots, found := dueSlots(t, s, store.NoticesOfWork, 10, store.NoticeRef{}, 10)
	same(t, "slots of work that are due", slots, []holdfast.ID{id(1), id(1)})
	same(t, "accounts in their order", []string{found[0].Account.Name, found[1].Account.Name}, []string{first, second})
	for _, n := range found {
		if n.Account.Name == "ann" {
			same(t, "the notice", n.Notice, ann.Notices[0])
			same(t, "its account", n.Account, stored(t, s, "ann"))
		}
	}
	slots, _ = dueSlots(t, s, store.NoticesOfWork, 10, found[0].Ref(), 10)
	same(t, "slots behind the first", len(slots), 1)
	slots, _ = dueSlots(t, s, store.NoticesOfWork, 30, store.NoticeRef{}, 2)
	same(t, "so many at once", len(slots), 2)
	slots, _ = dueSlots(t, s, store.NoticesOfAccounts, 10, store.NoticeRef{}, 10)
	same(t, "slots of accounts", slots, []holdfast.ID{id(9)})
	slots, _ = dueSlots(t, s, store.NoticesOfWork, 9, store.NoticeRef{}, 10)
	same(t, "before it is due", len(slots), 0)
	pending, err := s.Pending(t.Context(), holdfast.AccountID{}, 10, 10)
	must(t, err)
	same(t, "what waits is not in the outbox", len(pending), 0)
}

// stored is an account as a transaction reads it.
func stored(t *testing.T, s store.Store, name string) holdfast.Account {
	t.Helper()
	return load(t, s, want(name))[0].Account
}

func settle(slot, event int, fate holdfast.Fate) store.SettledNotice {
	return store.SettledNotice{NoticeRef: store.NoticeRef{Account: accountID("ann"), Slot: id(slot)}, Event: id(event), Fate: fate}
}

func settledNotices(t *testing.T, s OutboxStore) {
	ann := told("ann", 1, 1)
	for n := range 5 {
		ann.Notices = append(ann.Notices, noticeOf(n, 100+n, 10, id(n+1)))
	}
	must(t, save(t, s, ann))
	must(t, s.SettleNotices(t.Context(), []store.SettledNotice{
		settle(0, 100, holdfast.Fate{Tell: true}), settle(1, 101, holdfast.Fate{Later: at(50)}), settle(2, 102, holdfast.Fate{}),
		settle(3, 999, holdfast.Fate{Tell: true}), settle(8, 108, holdfast.Fate{Tell: true}), // which are not there
	}))
	must(t, s.SettleNotices(t.Context(), []store.SettledNotice{settle(0, 100, holdfast.Fate{Tell: true})})) // once more
	must(t, s.SettleNotices(t.Context(), nil))
	slots, _ := dueSlots(t, s, store.NoticesOfWork, 49, store.NoticeRef{}, 10)
	same(t, "still due", slots, []holdfast.ID{id(3), id(4)})
	slots, found := dueSlots(t, s, store.NoticesOfWork, 50, store.NoticeRef{}, 10)
	same(t, "due later", slots, []holdfast.ID{id(1), id(3), id(4)})
	same(t, "put off until", found[0].Notice.DueAt, at(50))

	later := told("ann", 2, 1) // the account writes on
	later.Account.Version = stored(t, s, "ann").Version
	must(t, save(t, s, later))
	pending, err := s.Pending(t.Context(), holdfast.AccountID{}, 10, 10)
	must(t, err)
	var ids []holdfast.ID
	for _, e := range pending[0].Events {
		ids = append(ids, e.Event.ID)
	}
	same(t, "what is told stands behind what was written before it", ids, []holdfast.ID{id(1), id(100), id(2)})
	same(t, "the event", pending[0].Events[1], store.PendingEvent{Event: ann.Notices[0].Event})
}

func withdrawnNotices(t *testing.T, s OutboxStore) {
	ann := fresh("ann")
	for n := range 4 {
		ann.Notices = append(ann.Notices, noticeOf(n, 100+n, 10, id(n+1)))
	}
	must(t, save(t, s, ann))
	must(t, s.SettleNotices(t.Context(), []store.SettledNotice{settle(0, 100, holdfast.Fate{Tell: true}), settle(3, 103, holdfast.Fate{Tell: true})}))
	change := fresh("ann")
	change.Account.Version = stored(t, s, "ann").Version
	change.Withdrawn = []holdfast.Withdrawn{{Slot: id(0), Event: id(100)}, {Slot: id(1), Event: id(101)}, {Slot: id(7), Event: id(107)}}
	change.Notices = []holdfast.Notice{noticeOf(2, 202, 20, id(3))} // instead of the one that waits
	must(t, save(t, s, change))
	slots, found := dueSlots(t, s, store.NoticesOfWork, 20, store.NoticeRef{}, 10)
	same(t, "what waits", slots, []holdfast.ID{id(2)})
	same(t, "in its slot", found[0].Notice, change.Notices[0])
	pending, err := s.Pending(t.Context(), holdfast.AccountID{}, 10, 10)
	must(t, err)
	same(t, "what is in the outbox", len(pending[0].Events), 1)
	same(t, "which", pending[0].Events[0].Event.ID, id(103))

	broken := fresh("ann")
	broken.Account.Version = stored(t, s, "ann").Version
	broken.Notices = []holdfast.Notice{noticeOf(5, 105, 10, id(6))}
	broken.Notices[0].Event.Figure = 1
	kind(t, save(t, s, broken), store.Rejected)
}

// racingNotices lets a job end at the very moment at which its notice is due.
func racingNotices(t *testing.T, s OutboxStore) {
	const rounds = 30
	must(t, save(t, s, fresh("ann")))
	for n := range rounds {
		scheduled := fresh("ann")
		scheduled.Account.Version = stored(t, s, "ann").Version
		scheduled.Notices = []holdfast.Notice{noticeOf(n, 100+n, 10, id(n+1))}
		must(t, save(t, s, scheduled))
		ended := fresh("ann")
		ended.Account.Version = scheduled.Account.Version + 1
		ended.Withdrawn = []holdfast.Withdrawn{{Slot: id(n), Event: id(100 + n)}}
		told := make(chan error)
		go func() {
			told <- s.SettleNotices(t.Context(), []store.SettledNotice{settle(n, 100+n, holdfast.Fate{Tell: true})})
		}()
		must(t, save(t, s, ended))
		must(t, <-told)
	}
	pending, err := s.Pending(t.Context(), holdfast.AccountID{}, 10, rounds)
	must(t, err)
	same(t, "what is told although it was withdrawn", pending, nil)
	slots, _ := dueSlots(t, s, store.NoticesOfWork, 10, store.NoticeRef{}, rounds)
	same(t, "what still waits", slots, nil)
}
