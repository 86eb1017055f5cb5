package message

import (
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Notices are the kinds of events that have a text of their own to be told without having been asked for. What else people are
// told of, the end of their work and their payments, Detail says from what it came to.
func Notices() []holdfast.EventKind {
	return []holdfast.EventKind{holdfast.EventNoticeQueued, holdfast.EventNoticeLowBalance, holdfast.EventNoticeRenewed}
}

// Notice is what to tell the person when such an event comes; empty: it is none. The balance is the account's now, in the unit
// that it is about; nil: no figure is told.
func (t *Texts) Notice(reader Reader, catalog *holdfast.Catalog, kind holdfast.EventKind, balance *holdfast.Balance, now time.Time) string {
	w := t.writer(reader, catalog, now)
	switch kind {
	case holdfast.EventNoticeQueued:
		w.say("notice.queued", nil)
	case holdfast.EventNoticeLowBalance:
		w.say("notice.low_balance", nil)
		w.sayBalance(balance)
	case holdfast.EventNoticeRenewed:
		w.say("notice.allowance_renewed", nil)
		w.sayBalance(balance)
	}
	return w.text()
}
