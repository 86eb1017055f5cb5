package inbox_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
	"github.com/holdfast-dev/holdfast/telegram/inbox"
)

const token = bot + ":not-a-secret-of-anybody"

var _ inbox.Getter = (*botapi.Client)(nil)

// polling polls until the test or the returned function ends.
func polling(t *testing.T, in *inbox.Inbox, getter inbox.Getter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- in.Poll(ctx, getter) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func clientOf(t *testing.T, url string, log *lines) *botapi.Client {
	t.Helper()
	client, err := botapi.New(botapi.Options{Token: token, URL: url, Logger: log.logger()})
	must(t, err)
	return client
}

// texts are what people wrote, as updates tell it.
func (d *diary) texts() (texts []string) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, u := range d.seen {
		var told struct {
			Message struct{ Text string }
		}
		_ = json.Unmarshal(u.Raw, &told)
		texts = append(texts, told.Message.Text)
	}
	return texts
}

func TestPollingHandlesEverythingOnceAlsoWhenIDsJumpBackAndUpdatesRepeat(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s database) {
		api, log, d := fakeapi.Start(t, fakeapi.Options{}), &lines{}, newDiary()
		in := inbox.New(inbox.Options{Store: s, Bot: bot, Handle: d.handle, Logger: log.logger()})
		running(t, in)
		polling(t, in, clientOf(t, api.URL, log))
		its := api.Bot(token)
		ann := its.Person(fakeapi.User{ID: 7})
		ann.Send("one")
		d.await(t, 1)
		its.JumpBack()
		its.RepeatNext("message", 3)
		ann.Send("two")
		d.await(t, 2)
		ann.Send("three")
		d.await(t, 3)
		must(t, its.Drained(t.Context()))
		if got := d.texts(); !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Errorf("handled %v", got)
		}
		if ids := d.ids(); ids[1] > ids[0] {
			t.Errorf("the ids did not jump back: %v", ids)
		}
		if strings.Contains(log.String(), "not-a-secret") {
			t.Errorf("the token is in the log:\n%s", log)
		}
	})
}

func TestPollingConfirmsOnlyWhatIsStored(t *testing.T) {
	whole := pgtest.New(t)
	proxy := pgtest.NewProxy(t, whole)
	s := openPostgres(t, proxy.Through(whole))
	api, log, d := fakeapi.Start(t, fakeapi.Options{}), &lines{}, newDiary()
	asked := make(chan int64, 100)
	getter := &watched{Getter: clientOf(t, api.URL, log), asked: asked}
	in := inbox.New(inbox.Options{Store: s, Bot: bot, Handle: d.handle, Logger: log.logger()})
	running(t, in)
	polling(t, in, getter)
	if first := <-asked; first != 0 {
		t.Errorf("the first offset is %d", first)
	}
	its := api.Bot(token)
	proxy.Refuse(true)
	proxy.CutAll()
	its.Person(fakeapi.User{ID: 7}).Send("one")
	its.Person(fakeapi.User{ID: 8}).Send("two")
	<-asked // again, after what came could not be stored
	if pending := its.Pending(); len(pending) != 2 {
		t.Errorf("%d updates are pending, wanted 2", len(pending))
	}
	proxy.Refuse(false)
	d.await(t, 2)
	must(t, its.Drained(t.Context()))
	got := d.texts()
	slices.Sort(got)
	if !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("handled %v", got)
	}
}

// watched tells with which offsets it was asked.
type watched struct {
	inbox.Getter
	asked chan int64
}

func (w *watched) Updates(ctx context.Context, offset int64, timeout time.Duration, kinds []string) ([]json.RawMessage, error) {
	select {
	case w.asked <- offset:
	default:
	}
	return w.Getter.Updates(ctx, offset, timeout, kinds)
}

// What goes wrong with getUpdates, one after the other; then what it tells is taken.
func TestPollingSurvivesEveryFailureOfTheBotAPI(t *testing.T) {
	failures := []func(w http.ResponseWriter){
		func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"ok":false,"error_code":409,"description":"Conflict: terminated by other getUpdates request"}`))
		},
		func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusTooManyRequests)
			_, _ = w.Write([]byte(`{"ok":false,"error_code":429,"description":"Too Many Requests: retry after 1","parameters":{"retry_after":1}}`))
		},
		func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) },
		func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, // the connection breaks
		func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"ok":true,"result":[{"update_id":1,"mess`)) },
		func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"ok":true,"result":[{"nothing":1}]}`)) },
		func(w http.ResponseWriter) { _, _ = w.Write([]byte(`{"ok":true,"result":[` + message(1, 7) + `]}`)) },
	}
	var calls atomic.Int64
	confirmed := make(chan bool, 10)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := int(calls.Add(1)) - 1
		if n < len(failures) {
			failures[n](w)
			return
		}
		var asked struct{ Offset int64 }
		if json.NewDecoder(r.Body).Decode(&asked) == nil && asked.Offset == 2 {
			confirmed <- true
		}
		<-r.Context().Done() // nothing more
	}))
	defer api.Close()
	s, log, d := memory.Open(), &lines{}, newDiary()
	in := inbox.New(inbox.Options{Store: s, Bot: bot, Handle: d.handle, Logger: log.logger(), Every: 10 * time.Millisecond})
	running(t, in)
	stop := polling(t, in, clientOf(t, api.URL, log))
	d.await(t, 1)
	<-confirmed
	stop()
	if n := log.count(slog.LevelWarn, "will be asked for again"); n != len(failures)-1 {
		t.Errorf("the log says\n%s", log)
	}
	if strings.Contains(log.String(), "not-a-secret") {
		t.Errorf("the token is in the log:\n%s", log)
	}
}

// scripted answers from a list, then with nothing.
type scripted struct {
	mutex   sync.Mutex
	answers []any // an error, or updates
	at      []time.Time
	offsets []int64
	inside  atomic.Int64
	most    atomic.Int64
}

func (g *scripted) Updates(ctx context.Context, offset int64, timeout time.Duration, _ []string) ([]json.RawMessage, error) {
	g.most.Store(max(g.most.Load(), g.inside.Add(1)))
	defer g.inside.Add(-1)
	g.mutex.Lock()
	g.at, g.offsets = append(g.at, time.Now()), append(g.offsets, offset)
	var answer any
	if len(g.answers) > 0 {
		answer, g.answers = g.answers[0], g.answers[1:]
	}
	g.mutex.Unlock()
	switch answer := answer.(type) {
	case error:
		return nil, answer
	case []json.RawMessage:
		return answer, nil
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func batch(updates ...string) (raw []json.RawMessage) {
	for _, u := range updates {
		raw = append(raw, json.RawMessage(u))
	}
	return raw
}

func TestAnOffsetConfirmsOnceAndHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log, d := memory.Open(), &lines{}, newDiary()
		getter := &scripted{answers: []any{
			batch(message(900, 7), message(901, 7)), batch(message(5, 7)), nil, context.DeadlineExceeded, batch(message(6, 7)), context.DeadlineExceeded,
		}}
		in := inbox.New(inbox.Options{Store: s, Bot: bot, Handle: d.handle, Logger: log.logger()})
		stops := []func(){running(t, in), polling(t, in, getter)}
		d.await(t, 4)
		time.Sleep(5 * time.Minute) // of the bubble's time
		for _, stop := range stops {
			stop()
		}
		if got := getter.offsets[:9]; !slices.Equal(got, []int64{0, 902, 6, 0, 0, 7, 7, 0, 0}) {
			t.Errorf("the offsets are %v", getter.offsets)
		}
	})
}

func TestPollingPausesLongerTheLongerTheBotAPIIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		getter := &scripted{}
		for range 10 {
			getter.answers = append(getter.answers, context.DeadlineExceeded)
		}
		log := &lines{}
		in := inbox.New(inbox.Options{Store: memory.Open(), Bot: bot, Handle: newDiary().handle, Logger: log.logger()})
		stop := polling(t, in, getter)
		time.Sleep(10 * time.Minute) // of the bubble's time
		stop()
		last := time.Duration(0)
		for i := range 10 {
			pause := getter.at[i+1].Sub(getter.at[i])
			if pause < last || pause < time.Second || pause > 30*time.Second {
				t.Errorf("pause %d is %s, after %s", i, pause, last)
			}
			last = pause
		}
	})
}

func TestOneOfSeveralProcessesPollsAndAnotherFollows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, getter, log := memory.Open(), &scripted{}, &lines{}
		var stops []func()
		for range 3 {
			in := inbox.New(inbox.Options{Store: s, Bot: bot, Handle: newDiary().handle, Logger: log.logger()})
			stops = append(stops, polling(t, in, getter))
		}
		for _, stop := range stops {
			time.Sleep(10 * time.Minute) // of the bubble's time
			if n := getter.inside.Load(); n != 1 {
				t.Errorf("%d ask at once", n)
			}
			stop()
		}
		if n := getter.most.Load(); n != 1 {
			t.Errorf("%d asked at once", n)
		}
	})
}

func TestAnUpdateThatCannotBeStoredDoesNotKeepTheOthersOfItsBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, d := &lines{}, newDiary()
		getter := &scripted{answers: []any{batch(message(1, 7), `{"nothing":1}`, message(2, 8), message(3, 9))}}
		in := inbox.New(inbox.Options{Store: picky{memory.Open()}, Bot: bot, Handle: d.handle, Logger: log.logger()})
		stops := []func(){running(t, in), polling(t, in, getter)}
		if got := d.await(t, 1); !slices.Equal(got, []int64{2}) {
			t.Errorf("handled %v", got)
		}
		synctest.Wait()
		for _, stop := range stops {
			stop()
		}
		if got := getter.offsets; !slices.Equal(got, []int64{0, 4}) {
			t.Errorf("the offsets are %v", got)
		}
		if log.count(slog.LevelError, "cannot be stored") != 2 || log.count(slog.LevelError, "not an update") != 1 {
			t.Errorf("the log says\n%s", log)
		}
	})
}
