package inbox_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/store/postgres"
	"github.com/holdfast-dev/holdfast/store/sqlite"
	"github.com/holdfast-dev/holdfast/telegram/inbox"
)

const (
	secret = "what-only-telegram-knows"
	bot    = "700"
)

// database is a store that a test opens.
type database interface {
	store.Telegram
	Close() error
}

// onEveryStore runs a test on a fresh store of each kind.
func onEveryStore(t *testing.T, run func(t *testing.T, s database)) {
	t.Run("memory", func(t *testing.T) { run(t, memory.Open()) })
	t.Run("sqlite", func(t *testing.T) { run(t, openSQLite(t, filepath.Join(t.TempDir(), "holdfast.db"))) })
	t.Run("postgres", func(t *testing.T) { run(t, openPostgres(t, pgtest.New(t))) })
}

func openSQLite(t *testing.T, path string) *sqlite.DB {
	t.Helper()
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{Serve: true})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func openPostgres(t *testing.T, url string) *postgres.DB {
	t.Helper()
	db, err := postgres.Open(t.Context(), url, postgres.Options{})
	must(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// running runs a worker until the test or the returned function ends.
func running(t *testing.T, in *inbox.Inbox) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- in.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// webhook serves an inbox over HTTP.
func webhook(t *testing.T, in *inbox.Inbox) (url string) {
	t.Helper()
	server := httptest.NewServer(in)
	t.Cleanup(server.Close)
	return server.URL
}

// tell posts an update as Telegram does.
func tell(url, update string) (*http.Response, error) {
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(update))
	if err != nil {
		return nil, err
	}
	request.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	answer, err := http.DefaultClient.Do(request)
	if err == nil {
		err = answer.Body.Close()
	}
	return answer, err
}

// told fails the test where an update is not taken.
func told(t *testing.T, url string, updates ...string) {
	t.Helper()
	for _, u := range updates {
		answer, err := tell(url, u)
		must(t, err)
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s was answered with %s", u, answer.Status)
		}
	}
}

func message(id, person int64) string {
	return fmt.Sprintf(`{"update_id":%d,"message":{"message_id":1,"from":{"id":%d},"chat":{"id":%d},"text":"hello"}}`, id, person, person)
}

func callback(id, person int64) string {
	return fmt.Sprintf(`{"update_id":%d,"callback_query":{"id":"q%d","from":{"id":%d},"data":"x"}}`, id, id, person)
}

func preCheckout(id, person int64) string {
	return fmt.Sprintf(`{"update_id":%d,"pre_checkout_query":{"id":"p%d","from":{"id":%d},"currency":"XTR"}}`, id, id, person)
}

// lines counts the lines of a log.
type lines struct {
	mutex  sync.Mutex
	buffer bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.Write(p)
}

func (l *lines) logger() *slog.Logger { return slog.New(slog.NewJSONHandler(l, nil)) }

func (l *lines) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.buffer.String()
}

func (l *lines) count(level slog.Level, text string) (n int) {
	for line := range strings.Lines(l.String()) {
		var read struct{ Level, Msg string }
		if json.Unmarshal([]byte(line), &read) == nil && read.Level == level.String() && strings.Contains(read.Msg, text) {
			n++
		}
	}
	return n
}

// diary notes what a handler was given.
type diary struct {
	mutex sync.Mutex
	seen  []inbox.Update
	more  chan struct{} // closed and made anew with each
}

func newDiary() *diary { return &diary{more: make(chan struct{})} }

func (d *diary) note(u inbox.Update) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.seen = append(d.seen, u)
	close(d.more)
	d.more = make(chan struct{})
}

func (d *diary) handle(_ context.Context, u inbox.Update) error {
	d.note(u)
	return nil
}

func (d *diary) ids() (ids []int64) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	for _, u := range d.seen {
		ids = append(ids, u.ID)
	}
	return ids
}

// await waits until so many are in the diary.
func (d *diary) await(t *testing.T, n int) []int64 {
	t.Helper()
	for {
		d.mutex.Lock()
		more, there := d.more, len(d.seen)
		d.mutex.Unlock()
		if there >= n {
			return d.ids()
		}
		select {
		case <-more:
		case <-t.Context().Done():
			t.Fatalf("%d of %d updates were handled", there, n)
		}
	}
}

// counts are what a store says of the bot.
func counts(t *testing.T, s store.Telegram) (waiting, failed int64) {
	t.Helper()
	all, err := s.UpdateCounts(t.Context())
	must(t, err)
	for _, c := range all {
		if c.Bot == bot {
			return c.Waiting, c.Failed
		}
	}
	return 0, 0
}

// settled waits until nothing waits.
func settled(t *testing.T, s store.Telegram) {
	t.Helper()
	for waiting := int64(1); waiting > 0; waiting, _ = counts(t, s) {
		runtime.Gosched()
	}
}

// post gives an update to the webhook without a network, which a bubble of its own time has not.
func post(in *inbox.Inbox, update string) (status int) {
	request := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(update))
	request.Header.Set("X-Telegram-Bot-Api-Secret-Token", secret)
	answer := httptest.NewRecorder()
	in.ServeHTTP(answer, request)
	return answer.Code
}
