package outbox

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/postgres"
)

// Failures of other systems, restated for the relay. Case 51 is in webhook_test.go.

// Case 48: the order of writing is not the order of committing. What commits late comes late, to those too who have read
// beyond everything that came before it, and what is rolled back holds up nobody.
func TestWhatCommitsLateIsNotSkippedAndWhatIsRolledBackHoldsUpNobody(t *testing.T) {
	url := pgtest.New(t)
	s, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	defer func() { _ = s.Close() }()
	e, m := newTeller(t, s), newMemo()
	begin := func(account string) pgx.Tx {
		e.tell(account, 1)
		conn, err := pgx.Connect(t.Context(), url)
		must(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		tx, err := conn.Begin(t.Context())
		must(t, err)
		outcome, err := e.Join(postgres.Tx(tx)).Submit(t.Context(), holdfast.Command{
			Project: project, Account: account, Key: "joined", Actor: "test", Do: holdfast.AddGrant{Unit: "credit", Amount: 1, Source: holdfast.FromPromo},
		})
		must(t, err)
		if outcome.Refused() {
			t.Fatal(outcome.Reason)
		}
		return tx
	}
	late, never := begin("late"), begin("never")
	relaying(t, s, func(o *Options) { o.Sinks = map[string]Sink{"test": m} })
	e.tell("ann", 3)
	m.until(t, 5)
	must(t, never.Rollback(t.Context()))
	page, cursor, err := desk(s).Events(t.Context(), project, 0, 50)
	must(t, err)
	if len(page) != 5 || cursor != 5 {
		t.Fatalf("%d events up to %d", len(page), cursor)
	}
	must(t, late.Commit(t.Context()))
	e.tell("bob", 1)
	inOrder(t, m.until(t, 7))
	rest, _, err := desk(s).Events(t.Context(), project, cursor, 50)
	must(t, err)
	if len(rest) != 2 || rest[0].Account != "late" && rest[1].Account != "late" {
		t.Errorf("behind the cursor came %+v", rest)
	}
	for _, event := range m.all() {
		if event.Account == "never" && event.Data.Entry.No > 1 {
			t.Error("what was rolled back was told")
		}
	}
}

// marks is a store on which nothing that a delivery came to is ever written.
type marks struct {
	Store
	tried chan struct{}
}

func (s marks) Settle(context.Context, string, time.Time, []store.Attempt) error {
	select {
	case s.tried <- struct{}{}:
	default:
	}
	return &store.Error{Kind: store.Unavailable, Op: "test", Err: errors.New("down")}
}

// Case 49: the receiver has answered, and the relay dies before it has noted that.
func TestWhatWasDeliveredAndNotMarkedComesAgainWithTheSameIdAndNothingIsLost(t *testing.T) {
	onEachStore(t, func(t *testing.T, s database) {
		e, m := newTeller(t, s), newMemo()
		to := subscribe(t, s, receiver(t, m, nil))
		e.tell("ann", 3)
		first := marks{s, make(chan struct{}, 1)}
		stop := relaying(t, first)
		before := m.until(t, 1)
		<-first.tried
		stop()
		if got := m.all(); len(got) != 1 {
			t.Fatalf("%d were delivered, though the first was not settled", len(got))
		}
		relaying(t, s)
		after := m.until(t, 3)
		inOrder(t, after)
		eventually(t, "all were settled", func() bool {
			done, err := desk(s).Deliveries(t.Context(), project, to.ID, store.DeliveryDelivered, 0, 50)
			must(t, err)
			return len(done) == 3
		})
		if all := m.all(); len(all) != 4 || all[0].ID != before[0].ID || all[1].ID != before[0].ID {
			t.Errorf("%d deliveries of 3 events: the first came as %s and then as %s", len(all), all[0].ID, all[1].ID)
		}
	})
}

// Case 50: one endpoint hangs, the other gets all of its events meanwhile; afterwards the first one gets its own.
func TestAnEndpointThatHangsKeepsNoEventFromAnother(t *testing.T) {
	const accounts = 100 // of which each waits for its own events only: more than a relay attempts at once
	onEachStore(t, func(t *testing.T, s database) {
		each := 10
		if _, server := s.(*postgres.DB); server || testing.Short() {
			each = 2 // what keeps them apart is the relay's, whatever the store
		}
		e, healthy, slow := newTeller(t, s), newMemo(), newMemo()
		hanging := make(chan struct{})
		var asked, answered atomic.Int32
		subscribe(t, s, receiver(t, slow, func(http.ResponseWriter, Event) bool {
			asked.Add(1)
			<-hanging
			answered.Add(1)
			return true
		}))
		subscribe(t, s, receiver(t, healthy, nil))
		release := sync.OnceFunc(func() { close(hanging) })
		defer release()
		var all sync.WaitGroup
		for n := range accounts {
			all.Go(func() { (&teller{t: t, Engine: e.Engine}).tell(fmt.Sprint("account", n), each) })
		}
		all.Wait()
		relaying(t, s, func(o *Options) { o.AnswerFor = time.Hour }) // it hangs for longer than this test, and that is no failure
		inOrder(t, healthy.until(t, accounts*each))
		if asked.Load() == 0 || asked.Load() > mostPerEndpoint || answered.Load() != 0 {
			t.Errorf("meanwhile the slow one was asked %d times, and answered %d times", asked.Load(), answered.Load())
		}
		release()
		inOrder(t, slow.until(t, accounts*each))
		if got := len(slow.all()); got != accounts*each {
			t.Errorf("the slow one was given %d, each of %d once", got, accounts*each)
		}
	})
}
