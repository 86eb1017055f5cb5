package outbox

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// told are the kinds of events of each reservation, in the order of their positions.
type told struct {
	mutex sync.Mutex
	of    map[string][]holdfast.EventKind
	news  chan struct{}
}

func (l *told) sink(_ context.Context, events []Event) error {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	for _, e := range events {
		if id := e.Data.Reservation; id != nil {
			l.of[*id] = append(l.of[*id], e.Type)
		}
	}
	select {
	case l.news <- struct{}{}:
	default:
	}
	return nil
}

// kinds are those of one reservation by now.
func (l *told) kinds(id string) []holdfast.EventKind {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return append([]holdfast.EventKind(nil), l.of[id]...)
}

// until waits for something to be told until the condition holds.
func (l *told) until(t *testing.T, holds func() bool) {
	t.Helper()
	for !holds() {
		select {
		case <-l.news:
		case <-t.Context().Done():
			t.Fatal("it was not told")
		case <-time.After(30 * time.Second):
			t.Fatal("it is not told")
		}
	}
}

func TestAJobThatWaitsIsToldOfAndOneThatHasBegunOrEndedIsNot(t *testing.T) {
	catalog := *tariff
	catalog.Plans = []holdfast.Plan{catalog.Plans[0]}
	catalog.Plans[0].QueueNoticeAfter = time.Millisecond
	onEachStore(t, func(t *testing.T, s database) {
		heard := &told{of: map[string][]holdfast.EventKind{}, news: make(chan struct{}, 1)}
		relaying(t, s, func(o *Options) { o.Sinks = map[string]Sink{"test": SinkFunc(heard.sink)} })
		e := newTellerOf(t, s, &catalog)
		e.submit("ann", holdfast.PutAccount{})
		e.submit("ann", holdfast.AddGrant{Unit: "credit", Amount: 100, Source: holdfast.FromPromo})
		const jobs = 40
		ids := make([]string, jobs)
		account := holdfast.AccountIDOf(project, "ann")
		for i := range ids {
			made := e.submit("ann", holdfast.Reserve{Feature: "draw", Job: &holdfast.JobRequest{}})
			ids[i] = holdfast.ReservationRef.Encode(account, made.Reservation.ID)
			switch i % 4 {
			case 0: // waits, until it is told
				heard.until(t, func() bool { return len(heard.kinds(ids[i])) >= 2 })
				e.submit("ann", holdfast.Cancel{ReservationID: made.Reservation.ID})
			case 1: // ends at about the moment at which its notice is due
				e.submit("ann", holdfast.Cancel{ReservationID: made.Reservation.ID})
			case 2:
				started := e.submit("ann", holdfast.Start{ReservationID: made.Reservation.ID})
				e.submit("ann", holdfast.Commit{ReservationID: made.Reservation.ID, LeaseToken: started.Lease.Token})
			case 3:
				e.submit("ann", holdfast.Commit{ReservationID: made.Reservation.ID})
			}
		}
		ended := func(kinds []holdfast.EventKind) int {
			for i, kind := range kinds {
				if kind == "reservation.commit" || kind == "reservation.release" {
					return i
				}
			}
			return -1
		}
		for i, id := range ids {
			heard.until(t, func() bool { return ended(heard.kinds(id)) >= 0 })
			kinds := heard.kinds(id)
			notices := 0
			for at, kind := range kinds {
				if kind != holdfast.EventNoticeQueued {
					continue
				}
				notices++
				if at > ended(kinds) {
					t.Errorf("job %d is said to wait after it has ended: %v", i, kinds)
				}
			}
			if notices > 1 || i%4 == 0 && notices == 0 {
				t.Errorf("job %d: %v", i, kinds)
			}
		}
	})
}

func TestWhoHasBeenAwayForADayIsToldThatTheAllowanceIsThereAgain(t *testing.T) {
	catalog := *tariff
	catalog.Plans = []holdfast.Plan{catalog.Plans[0]}
	catalog.Plans[0].Allowances = []holdfast.Allowance{{Key: "free", Unit: "credit", Amount: 3, Every: holdfast.Cycle{Rolling: time.Hour}}}
	onEachStore(t, func(t *testing.T, s database) {
		var mutex sync.Mutex
		at := map[string]time.Time{}
		news := make(chan struct{}, 100)
		now := time.Now()
		relaying(t, s, func(o *Options) {
			o.Every = time.Millisecond
			o.Now = func() time.Time { return now.Add(40 * time.Hour) }
			o.Sinks = map[string]Sink{"test": SinkFunc(func(_ context.Context, events []Event) error {
				mutex.Lock()
				defer mutex.Unlock()
				for _, e := range events {
					if e.Type == holdfast.EventNoticeRenewed {
						at[e.Account] = e.CreatedAt
						news <- struct{}{}
					}
				}
				return nil
			})}
		})
		e := newTellerOf(t, s, &catalog)
		wants := false
		e.submit("silent", holdfast.PutAccount{Notices: &wants})
		for _, name := range []string{"silent", "ann", "bob"} {
			used := e.submit(name, holdfast.Reserve{Feature: "draw"})
			e.submit(name, holdfast.Release{ReservationID: used.Reservation.ID})
		}
		<-news
		<-news
		mutex.Lock()
		defer mutex.Unlock()
		for _, name := range []string{"ann", "bob"} {
			if told := at[name]; told.Before(now.Add(time.Hour)) || told.After(now.Add(26*time.Hour+holdfast.RenewedSpread)) {
				t.Errorf("%s is told for %s, and came at %s", name, told, now)
			}
		}
		if len(at) != 2 {
			t.Errorf("told are %v", at)
		}
	})
}
