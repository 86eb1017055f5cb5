package telegramstars_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/paytest"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

var errGone = errors.New("the database is gone")

// notes are a store's, which can fail: the next calls of a method, in this order.
type notes struct {
	kept  store.Notes
	mu    sync.Mutex
	fails map[string]int
}

func newNotes(t *testing.T) *notes {
	t.Helper()
	db := memory.Open()
	t.Cleanup(func() { _ = db.Close() })
	return &notes{kept: db, fails: map[string]int{}}
}

func (n *notes) fail(method string, times int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.fails[method] = times
}

func (n *notes) failing(method string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fails[method] > 0 {
		n.fails[method]--
		return errGone
	}
	return nil
}

func (n *notes) AddNote(ctx context.Context, note store.Note) (bool, error) {
	if err := n.failing("add"); err != nil {
		return false, err
	}
	return n.kept.AddNote(ctx, note)
}

func (n *notes) PutNote(ctx context.Context, note store.Note) error {
	if err := n.failing("put"); err != nil {
		return err
	}
	return n.kept.PutNote(ctx, note)
}

func (n *notes) DropNote(ctx context.Context, bot, key string) (bool, error) {
	if err := n.failing("drop"); err != nil {
		return false, err
	}
	return n.kept.DropNote(ctx, bot, key)
}

func (n *notes) Notes(ctx context.Context, bot, prefix, after string, limit int) ([]store.Note, error) {
	return n.kept.Notes(ctx, bot, prefix, after, limit)
}

func (n *notes) left(t *testing.T) int {
	t.Helper()
	all, err := n.Notes(t.Context(), "7000001", "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// standIn is a bot at the stand-in for the Bot API, and the client that calls it.
type standIn struct {
	*fakeapi.Bot
	*botapi.Client
	server *fakeapi.Server
}

func newStandIn(t *testing.T) *standIn {
	t.Helper()
	const token = "7000001:not-a-secret"
	s := fakeapi.Start(t, fakeapi.Options{Tokens: []string{token}})
	caller, err := botapi.New(botapi.Options{Token: token, URL: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return &standIn{s.Bot(token), caller, s}
}

// subscribed lists the subscriptions of upgraded.
func (s *standIn) subscribed(b *bot) *standIn {
	for _, charge := range []string{"c1", "c2"} {
		s.Record(fakeapi.Payment{ChargeID: charge, Payload: charge, Payer: anns, Stars: 250, Until: b.Now().Add(paytest.Days(30))})
	}
	return s
}

// edits are the subscriptions that were cancelled, in order.
func (s *standIn) edits() (edits []string) {
	for _, e := range s.server.Transcript().Where(fakeapi.Call("editUserStarSubscription")) {
		edits = append(edits, e.Parameters["user_id"]+" "+e.Parameters["telegram_payment_charge_id"]+" "+e.Parameters["is_canceled"])
	}
	return edits
}

// upgraded is a person who has two subscriptions, of which one is to be cancelled.
func (b *bot) upgraded() (older string, last []byte, actions []telegramstars.Action) {
	b.t.Helper()
	older, dearer := b.order("pro_30", true), b.order("max_30", true)
	b.tell(b.paid(message{user: anns, payload: older, charge: "c1", stars: 250, until: b.Now().Add(paytest.Days(30))}))
	b.Pass(time.Hour)
	last = b.paid(message{user: anns, payload: dearer, charge: "c2", stars: 900, until: b.Now().Add(paytest.Days(30))})
	actions = b.tell(last).Actions
	if len(actions) != 1 || actions[0].ChargeID != "c1" {
		b.t.Fatalf("%+v", actions)
	}
	return older, last, actions
}

func (b *bot) runner(n *notes, do func(context.Context, telegramstars.Action) error, log *slog.Logger) *telegramstars.Runner {
	return telegramstars.NewRunner(telegramstars.RunnerOptions{Stars: b.Stars, Notes: n, Do: do, Logger: log})
}

func pass(t *testing.T, r *telegramstars.Runner) (next time.Time) {
	t.Helper()
	next, err := r.Pass(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func TestAnActionIsKeptUntilTelegramHasAcceptedIt(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		telegram, n := newStandIn(t).subscribed(b), newNotes(t)
		_, last, actions := b.upgraded()
		r := b.runner(n, telegram.Do, nil)
		for range 2 { // Telegram may tell it twice
			if err := r.Keep(t.Context(), actions...); err != nil {
				t.Fatal(err)
			}
		}
		same(t, "kept", n.left(t), 1)

		// The first attempt is in vain; the answer to the second is lost.
		telegram.Fail(fakeapi.Fault{Kind: fakeapi.Refused, Description: "USER_ID_INVALID"})
		same(t, "due again", pass(t, r), b.Now().Add(time.Minute))
		same(t, "not before it is due", pass(t, r), b.Now().Add(time.Minute))
		same(t, "edits", len(telegram.edits()), 0)
		b.Pass(time.Minute)
		r.Do = func(ctx context.Context, action telegramstars.Action) error {
			return errors.Join(telegram.Do(ctx, action), botapi.ErrUncertain)
		}
		same(t, "due again", pass(t, r), b.Now().Add(2*time.Minute))
		b.Pass(2 * time.Minute)
		r.Do = telegram.Do
		same(t, "nothing is left", pass(t, r), time.Time{})
		same(t, "kept", n.left(t), 0)
		same(t, "edits, one of which was not heard of", fmt.Sprint(telegram.edits()), "[42 c1 true 42 c1 true]")
		same(t, "it is not asked for again", len(b.tell(last).Actions), 0)
	})
}

func TestAnActionSurvivesEveryEndOfTheProcess(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		telegram, n := newStandIn(t).subscribed(b), newNotes(t)
		_, last, actions := b.upgraded()

		// Killed before it was kept: the update was not confirmed, comes again and brings it again.
		n.fail("add", 1)
		if err := b.runner(n, telegram.Do, nil).Keep(t.Context(), actions...); !errors.Is(err, errGone) {
			t.Fatal(err)
		}
		again := b.tell(last).Actions
		if err := b.runner(n, telegram.Do, nil).Keep(t.Context(), again...); err != nil {
			t.Fatal(err)
		}
		// Killed before it was done: the next one does it. Killed before that was noted: it is done once more.
		killed, kill := context.WithCancel(t.Context())
		dies := func(context.Context, telegramstars.Action) error { kill(); return errors.New("killed") }
		if _, err := b.runner(n, dies, nil).Pass(killed); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		n.fail("drop", 1)
		if _, err := b.runner(n, telegram.Do, nil).Pass(t.Context()); !errors.Is(err, errGone) {
			t.Fatal(err)
		}
		same(t, "kept", n.left(t), 1)
		same(t, "nothing is left", pass(t, b.runner(n, telegram.Do, nil)), time.Time{})
		same(t, "kept", n.left(t), 0)
		same(t, "edits: what was noted at the order is not done again", len(telegram.edits()), 1)
	})
}

// cutOff are orders that cannot be written.
type cutOff struct{ payment.Orders }

func (cutOff) TellOrder(context.Context, payment.OrderName, bool, time.Time) error { return errGone }

func TestAnActionThatIsDoneAndNotNotedIsDoneAgain(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		telegram, n := newStandIn(t).subscribed(b), newNotes(t)
		_, _, actions := b.upgraded()
		r := b.runner(n, telegram.Do, nil)
		if err := r.Keep(t.Context(), actions...); err != nil {
			t.Fatal(err)
		}
		orders := b.Stars.Book.Orders
		b.Stars.Book.Orders = cutOff{orders}
		same(t, "due again", pass(t, r), b.Now().Add(time.Minute))
		b.Stars.Book.Orders = orders
		b.Pass(time.Minute)
		same(t, "nothing is left", pass(t, r), time.Time{})
		same(t, "edits", len(telegram.edits()), 2)
	})
}

func TestWhatThePersonHasCancelledThemselvesIsNotCancelledAgain(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		telegram, n := newStandIn(t).subscribed(b), newNotes(t)
		older, _, actions := b.upgraded()
		r := b.runner(n, telegram.Do, nil)
		if err := r.Keep(t.Context(), actions...); err != nil {
			t.Fatal(err)
		}
		b.tell(b.subscription(anns, older, "canceled"))
		same(t, "nothing is left", pass(t, r), time.Time{})
		same(t, "edits", len(telegram.edits()), 0)
	})
}

func TestPausesGrowAndAnActionThatIsRefusedForMonthsIsGivenUp(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		n := newNotes(t)
		_, _, actions := b.upgraded()
		var log bytes.Buffer
		attempts := 0
		refuse := func(context.Context, telegramstars.Action) error {
			attempts++
			return errors.New("400 USER_ID_INVALID")
		}
		r := b.runner(n, refuse, slog.New(slog.NewTextHandler(&log, nil)))
		if err := r.Keep(t.Context(), actions...); err != nil {
			t.Fatal(err)
		}
		began, pauses := b.Now(), []time.Duration{}
		for {
			next := pass(t, r)
			if next.IsZero() {
				break
			}
			pauses = append(pauses, next.Sub(b.Now()))
			b.Pass(next.Sub(b.Now()))
		}
		same(t, "kept", n.left(t), 0)
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 64, 128, 256, 360, 360} {
			same(t, "a pause", pauses[i], want*time.Minute)
		}
		if lasted := b.Now().Sub(began); lasted < paytest.Days(60) || lasted > paytest.Days(61) {
			t.Errorf("given up after %v", lasted)
		}
		same(t, "attempts", attempts, len(pauses)+1)
		same(t, "told that it is given up", strings.Count(log.String(), `level=ERROR msg="an action at Telegram was given up: do it by hand"`), 1)
		same(t, "told that it failed", strings.Count(log.String(), "level=WARN"), len(pauses))
		if !strings.Contains(log.String(), "charge_id=c1") || !strings.Contains(log.String(), "bot=7000001") {
			t.Errorf("it is not told which: %s", log.String()[:300])
		}
	})
}

func TestARunnerDoesAtOnceWhatIsKept(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		n, done := newNotes(t), make(chan telegramstars.Action)
		_, _, actions := b.upgraded()
		do := func(ctx context.Context, action telegramstars.Action) error {
			select {
			case done <- action:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		r := b.runner(n, do, nil)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- r.Run(ctx) }()
		for i := range 3 {
			actions[0].Payload, actions[0].ChargeID = "", strings.Repeat("c", i+5)
			if err := r.Keep(t.Context(), actions...); err != nil {
				t.Fatal(err)
			}
			same(t, "what is done", <-done, actions[0])
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

func TestMoreActionsThanAPageAreAllDone(t *testing.T) {
	onEveryStore(t, func(t *testing.T, b *bot) {
		n, done := newNotes(t), map[string]int{}
		r := b.runner(n, func(_ context.Context, a telegramstars.Action) error { done[a.ChargeID]++; return nil }, nil)
		for i := range 250 {
			action := telegramstars.Action{Kind: telegramstars.CancelSubscription, User: anns, ChargeID: strings.Repeat("c", i+1)}
			if err := r.Keep(t.Context(), action); err != nil {
				t.Fatal(err)
			}
		}
		same(t, "nothing is left", pass(t, r), time.Time{})
		same(t, "done", len(done), 250)
		same(t, "kept", n.left(t), 0)
	})
}
