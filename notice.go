package holdfast

import (
	"slices"
	"time"
)

// Notice is an event that waits for its time: what a person is told only if nothing has happened until then. It becomes an
// outbox row when it is due, or is withdrawn in the transaction that makes it untrue.
type Notice struct {
	Slot  ID        // of an account; a notice takes the place of the one that waits in its slot
	DueAt time.Time // the event's At, too
	Event Event
}

// Fate is what becomes of a notice that is due.
type Fate struct {
	Tell bool
	// Later is until when a notice that is not told now is put off; zero: it is dropped.
	Later time.Time
}

// FateOf decides what becomes of a notice that is due, by its account as it is now.
func (n *Notice) FateOf(account *Account, now time.Time) Fate {
	if !account.Notices { // nor has one that was deleted or merged
		return Fate{}
	}
	if n.Event.Kind != EventNoticeRenewed {
		return Fate{Tell: true}
	}
	if away := account.DecidedAt.Add(AwayFor); now.Before(away) {
		return Fate{Later: away}
	}
	return Fate{Tell: !account.Blocked}
}

// schedule has something told later.
func (d *decision) schedule(slot ID, dueAt time.Time, e Event) {
	if !d.state.Account.Notices {
		return
	}
	e.At = dueAt
	s := d.state
	s.dirty.notices = slices.DeleteFunc(s.dirty.notices, func(n Notice) bool { return n.Slot == slot })
	s.dirty.notices = append(s.dirty.notices, Notice{Slot: slot, DueAt: dueAt, Event: e})
}

// withdraw takes a notice back that is not true any more, unless it has been published.
func (d *decision) withdraw(slot, event ID) {
	s := d.state
	before := len(s.dirty.notices)
	s.dirty.notices = slices.DeleteFunc(s.dirty.notices, func(n Notice) bool { return n.Slot == slot })
	if len(s.dirty.notices) == before {
		s.dirty.withdrawn = append(s.dirty.withdrawn, Withdrawn{Slot: slot, Event: event})
	}
}

// Withdrawn is a notice that is not to be told any more: it waits in its slot, or is in the outbox by now.
type Withdrawn struct{ Slot, Event ID }

// noticeQueued tells a person later that the job waits, if it still does.
func (d *decision) noticeQueued(r *Reservation) {
	if r.Job == nil || d.plan.QueueNoticeAfter == 0 || !d.state.Account.Notices {
		return
	}
	r.Job.Notice = true
	d.schedule(r.ID, d.now.Add(d.plan.QueueNoticeAfter), Event{ID: namedID(r.ID, "queued"), Kind: EventNoticeQueued, Reservation: r.ID})
}

// leftQueue withdraws that notice: the job has begun, or has ended without.
func (d *decision) leftQueue(r *Reservation) {
	if r.Job != nil && r.Job.Notice && r.Attempts == 0 {
		d.withdraw(r.ID, namedID(r.ID, "queued"))
	}
}

// watched is what there is of the reservation's unit, where the plan has a line below which people are told: what is available,
// and what work under way may give back.
func (d *decision) watched(r *Reservation) Amount {
	unit := r.Price.Unit
	if d.plan.LowBalance[unit] == 0 || !d.state.Account.Notices {
		return 0
	}
	b := d.balance(unit)
	return b.Available + b.Reserved
}

// watchLow tells that a charge has crossed that line. Entry is the charge's.
func (d *decision) watchLow(r *Reservation, before Amount, entry int64) {
	unit := r.Price.Unit
	if line := d.plan.LowBalance[unit]; before == 0 || before < line || d.watched(r) >= line {
		return
	}
	d.tell(Event{
		ID: namedID(r.ID, "low balance"), Kind: EventNoticeLowBalance, Entry: entry, Reservation: r.ID, Figure: d.balance(unit).Available,
	})
}

// noticeRenewed has a person who will be away told when the allowance that is taken from now is there in full again; what is
// paid for by the period has payments to tell of it. Notices are spread over hours, so that not everybody who began at nine is
// told at nine.
func (d *decision) noticeRenewed(g *Grant) {
	recurs := func(a Allowance) bool { return a.Key == g.Allowance && !a.Every.Term }
	if g.Source != FromAllowance || g.Reserved+g.Used > 0 || g.EndsAt.IsZero() || !slices.ContainsFunc(d.plan.Allowances, recurs) {
		return
	}
	account := d.state.Account.ID
	spread := time.Duration(int(account[13])<<16|int(account[14])<<8|int(account[15])) * time.Second % RenewedSpread
	d.schedule(namedID(ID{}, "renewed "+g.Allowance), g.EndsAt.Add(spread), Event{ID: namedID(g.ID, "renewed"), Kind: EventNoticeRenewed})
}
