package telegram_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/store/postgres"
	"github.com/holdfast-dev/holdfast/store/sqlite"
	"github.com/holdfast-dev/holdfast/telegram"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
	"github.com/holdfast-dev/holdfast/telegram/inbox"
)

const (
	botToken   = "7000001:not-a-secret"
	otherToken = "7000002:not-a-secret" // of another bot of the project
	project    = "studio"
)

var speak = sync.OnceValues(message.New)

// database is what a whole bot needs of a store.
type database interface {
	store.Store
	store.Telegram
	outbox.Store
}

// stage is a bot as it runs: the kit on a real engine, fed by the inbox and the relay, in front of the stand-in for Telegram. It
// can be stopped and started again on the same database.
type stage struct {
	*testing.T
	database database
	server   *fakeapi.Server
	bot      *fakeapi.Bot
	engine   *engine.Engine
	kit      *telegram.Kit
	options  telegram.Options
	catalog  *holdfast.Catalog
	prepare  func(*telegram.Kit)
	after    func(time.Duration) <-chan time.Time
	around   func(telegram.Engine) telegram.Engine
	http     *http.Client // of the process that start makes; nil: the client's own

	patience time.Duration // how long anything may take that should happen at once

	jobs chan *job // what workers have begun and the test has not looked at
	log  *logged

	ctx     context.Context // of the bot's run
	stop    context.CancelFunc
	stops   []context.CancelFunc // of the engines
	engines sync.WaitGroup
	parts   sync.WaitGroup
	leaving chan struct{} // closed when the bot is stopped: work that nobody ends ends then
}

// job is work that has begun and ends as the test says.
type job struct {
	*telegram.Work
	ctx  context.Context
	ends chan func() (telegram.Result, error)
}

func (j *job) succeed(text string) {
	j.ends <- func() (telegram.Result, error) { return telegram.Result{Text: text}, nil }
}

func (j *job) fail(err error) {
	j.ends <- func() (telegram.Result, error) { return telegram.Result{}, err }
}
func (j *job) panic(v any) { j.ends <- func() (telegram.Result, error) { panic(v) } }

// quick are limits that no test comes to: Telegram's own are the tests of package botapi.
var quick = botapi.Limits{
	Chat: botapi.Rate{Calls: 1000, Per: time.Second}, Group: botapi.Rate{Calls: 1000, Per: time.Second},
	Bot: botapi.Rate{Calls: 10_000, Per: time.Second}, Notices: botapi.Rate{Calls: 10_000, Per: time.Second},
}

// wares is a catalog of the test's own: 5 credits a day.
func wares() *holdfast.Catalog {
	names := func(en, ru string) holdfast.Names { return holdfast.Names{"en": en, "ru": ru} }
	return &holdfast.Catalog{
		Version: 1,
		Units: []holdfast.Unit{{Name: "credit", Names: holdfast.Plurals{
			"en": {"one": "credit", "other": "credits"}, "ru": {"one": "кредит", "few": "кредита", "many": "кредитов", "other": "кредита"},
		}}},
		Features: []holdfast.Feature{
			{
				Name: "text.improve", Names: names("Improve text", "Улучшение текста"), Prices: []holdfast.Price{{Unit: "credit", Amount: 1}},
				Queue: "text", LongestJob: time.Minute, TTL: 5 * time.Minute,
			},
			{
				Name: "image.generate", Names: names("Image", "Картинка"), Prices: []holdfast.Price{{Unit: "credit", Amount: 5}},
				Queue: "image", LongestJob: time.Minute, TTL: 5 * time.Minute, Policies: holdfast.Policies{CancelRunning: holdfast.CancelRequest},
			},
			{
				Name: "video.generate", Names: names("Video", "Видео"), Prices: []holdfast.Price{{Unit: "credit", Amount: 5}},
				LongestJob: time.Minute, TTL: 5 * time.Minute,
			},
		},
		Plans: []holdfast.Plan{
			{
				Name: "free", Default: true, Names: names("Free", "Бесплатный"), Features: []string{"text.improve", "image.generate"}, MaxActive: 2, Tier: "standard",
				Allowances: []holdfast.Allowance{{Key: "daily", Unit: "credit", Amount: 5, Every: holdfast.Cycle{Rolling: 24 * time.Hour}}},
			},
			{
				Name: "pro", Names: names("Pro", "Старший"), Features: []string{"text.improve", "image.generate", "video.generate"}, MaxActive: 5, Tier: "priority",
				Allowances: []holdfast.Allowance{{Key: "term", Unit: "credit", Amount: 300, Every: holdfast.Cycle{Term: true}}},
			},
		},
		Products: []holdfast.Product{
			{Name: "pro_30", Names: names("Pro, 30 days", "Старший, 30 дней"), Plan: "pro", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 250}}},
			{Name: "credits_100", Names: names("100 credits", "100 кредитов"), Grant: &holdfast.ProductGrant{Unit: "credit", Amount: 100}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 100}}},
		},
	}
}

// newStage sets a stage on the memory store, whose bot does not run yet.
func newStage(t *testing.T) *stage { return stageOn(t, memory.Open()) }

// onEveryStore runs a test on the memory store, on SQLite and on PostgreSQL.
func onEveryStore(t *testing.T, test func(*stage)) {
	t.Run("memory", func(t *testing.T) { test(newStage(t)) })
	t.Run("sqlite", func(t *testing.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "holdfast.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		test(stageOn(t, db))
	})
	t.Run("postgres", func(t *testing.T) {
		db, err := postgres.Open(t.Context(), pgtest.New(t), postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = db.Close() })
		test(stageOn(t, db))
	})
}

func stageOn(t *testing.T, on database) *stage {
	t.Helper()
	t.Parallel() // stages wait for clocks, and need not wait for each other
	texts, err := speak()
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{T: t, database: on, catalog: wares(), patience: 20 * time.Second, jobs: make(chan *job, 1000), log: &logged{}}
	s.server = fakeapi.Start(t, fakeapi.Options{Tokens: []string{botToken, otherToken}})
	s.bot = s.server.Bot(botToken)
	s.options = telegram.Options{
		Bot: "studio_bot", Username: s.bot.Username(), Project: project, Notes: on, Texts: texts,
		TopUp: "topup", Plans: "plans", Editing: time.Millisecond, Acting: time.Hour, Lease: holdfast.MinLease, Logger: slog.New(slog.NewTextHandler(s.log, nil)),
	}
	s.prepare = func(k *telegram.Kit) {
		k.Feature(telegram.Feature{Name: "image.generate", Command: "image", Do: s.do, Action: "upload_photo"})
		k.Feature(telegram.Feature{Name: "video.generate", Command: "video", Do: s.do})
		k.Feature(telegram.Feature{Name: "text.improve", Command: "improve", Match: func(m *telegram.Message) bool { return m.Text != "" }, Do: s.do, Concurrency: 10})
	}
	t.Cleanup(s.end)
	return s
}

func (s *stage) do(ctx context.Context, w *telegram.Work) (telegram.Result, error) {
	j := &job{Work: w, ctx: ctx, ends: make(chan func() (telegram.Result, error), 1)}
	s.jobs <- j
	select {
	case end := <-j.ends:
		return end()
	case <-ctx.Done():
		return telegram.Result{}, ctx.Err()
	case <-s.leaving:
		return telegram.Result{}, errors.New("the stage is left")
	}
}

// What of a bot runs.
type part int

const (
	everything part = iota
	withoutWorkers
	withoutRelay
)

// start runs the bot.
func (s *stage) start(parts ...part) *stage {
	s.Helper()
	ctx, stop := context.WithCancel(context.Background())
	s.ctx, s.stop, s.leaving = ctx, stop, make(chan struct{})
	client := s.client(s.http)
	s.engine, s.kit = s.process(client)
	take := func(ctx context.Context, u inbox.Update) error {
		_, err := s.kit.Take(ctx, u.Raw)
		return err
	}
	in := inbox.New(inbox.Options{
		Store: s.database, Bot: s.options.Bot, Handle: take, Every: 20 * time.Millisecond, Logger: s.options.Logger,
		Refuse: func(ctx context.Context, u inbox.Update) error { return s.kit.Refuse(ctx, u.Raw) },
	})
	s.run(func(ctx context.Context) error { return in.Poll(ctx, client) })
	s.run(in.Run)
	if !slices.Contains(parts, withoutRelay) {
		s.relay(s.kit)
	}
	if !slices.Contains(parts, withoutWorkers) {
		s.work()
	}
	return s
}

// client speaks for the bot.
func (s *stage) client(over *http.Client) *botapi.Client { return s.clientOf(botToken, over) }

func (s *stage) clientOf(token string, over *http.Client) *botapi.Client {
	s.Helper()
	client, err := botapi.New(botapi.Options{Token: token, URL: s.server.URL, HTTP: over, Limiter: botapi.NewLimiterOf(quick), Logger: s.options.Logger})
	if err != nil {
		s.Fatal(err)
	}
	return client
}

// gate lets calls of a method through when it is opened.
type gate struct {
	method string
	asked  chan struct{} // one of them waits
	open   chan struct{}
}

func (g *gate) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/"+g.method) {
		select {
		case g.asked <- struct{}{}:
		default:
		}
		<-g.open
	}
	return http.DefaultTransport.RoundTrip(r)
}

// process makes an engine that serves, and the kit on it, as every process of the bot has them.
func (s *stage) process(client *botapi.Client) (*engine.Engine, *telegram.Kit) {
	s.Helper()
	e := engine.New(s.database, engine.Options{Catalog: func(string) *holdfast.Catalog { return s.catalog }, Logger: s.options.Logger})
	options := s.options
	options.Engine, options.API = e, client
	if s.around != nil {
		options.Engine = s.around(e)
	}
	kit, err := telegram.New(options)
	if err != nil {
		s.Fatal(err)
	}
	if s.after != nil {
		kit.SetAfter(s.after)
	}
	s.prepare(kit)
	serving, stop := context.WithCancel(context.Background()) // engines end last: ends are told to them
	s.stops = append(s.stops, stop)
	s.engines.Go(func() {
		if err := e.Serve(serving); err != nil {
			s.Errorf("the engine ended: %v", err)
		}
	})
	return e, kit
}

func (s *stage) relay(kit *telegram.Kit) {
	s.run(telegram.Relay(s.database, outbox.Options{Every: 5 * time.Millisecond, Holder: "stage", Logger: s.options.Logger}, kit).Run)
}

// work lets the bot's workers begin.
func (s *stage) work() { s.run(s.kit.Run) }

func (s *stage) run(what func(context.Context) error) {
	s.parts.Go(func() {
		if err := what(s.ctx); err != nil {
			s.Errorf("a part of the bot ended: %v", err)
		}
	})
}

// end stops the bot as an orderly stop does.
func (s *stage) end() {
	if s.stop == nil {
		return
	}
	close(s.leaving)
	s.stop()
	s.parts.Wait()
	for _, stop := range s.stops {
		stop()
	}
	s.engines.Wait()
	s.stop, s.stops = nil, nil
}

func (s *stage) person(id int64, language string) *fakeapi.Person {
	return s.bot.Person(fakeapi.User{ID: id, FirstName: "Ann", LanguageCode: language})
}

func (s *stage) within() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), s.patience)
	s.Cleanup(cancel)
	return ctx
}

// begun waits for the next job that a worker has begun.
func (s *stage) begun() *job {
	s.Helper()
	select {
	case j := <-s.jobs:
		return j
	case <-s.within().Done():
		s.Fatalf("no work has begun\n%s", s.transcript())
		return nil
	}
}

// shows waits until the person is shown a text.
func (s *stage) shows(p *fakeapi.Person, text string) fakeapi.Message {
	s.Helper()
	m, err := p.AwaitText(s.within(), text)
	if err != nil {
		s.Fatalf("%q is not shown: %v\n%s%s", text, err, s.transcript(), s.log)
	}
	return m
}

// until waits for something to become true.
func (s *stage) until(what string, is func() bool) {
	s.Helper()
	for deadline := time.Now().Add(s.patience); !is(); {
		if time.Now().After(deadline) {
			s.Fatalf("it did not happen that %s\n%s%s", what, s.transcript(), s.log)
		}
		time.Sleep(time.Millisecond)
	}
}

// gone waits until a message is not there any more.
func (s *stage) gone(p *fakeapi.Person, message int) {
	s.Helper()
	s.until("a message went", func() bool {
		_, there := p.Message(message)
		return !there
	})
}

// tap taps a button and returns what the person sees of it.
func (s *stage) tap(p *fakeapi.Person, message int, button string) fakeapi.Answer {
	s.Helper()
	tap, err := p.Tap(message, button)
	if err != nil {
		s.Fatalf("tap %q: %v\n%s", button, err, s.transcript())
	}
	return s.answer(tap)
}

func (s *stage) answer(tap *fakeapi.Tap) fakeapi.Answer {
	s.Helper()
	answer, err := tap.Answer(s.within())
	if err != nil {
		s.Fatalf("the tap was not answered: %v\n%s%s", err, s.transcript(), s.log)
	}
	return answer
}

// balance is what the person has of credits.
func (s *stage) balance(user int64) holdfast.Balance {
	s.Helper()
	return s.balanceOf(telegram.AccountName(user))
}

func (s *stage) balanceOf(account string) holdfast.Balance {
	s.Helper()
	view, err := s.engine.View(s.Context(), project, account)
	if err != nil {
		s.Fatal(err)
	}
	return view.Balances[0]
}

// charged waits until no work is live any more, and says what was charged of the day's 5 credits.
func (s *stage) charged(user int64) holdfast.Amount {
	s.Helper()
	s.until("all work ended", func() bool { return s.balance(user).Reserved == 0 })
	return 5 - s.balance(user).Available
}

// reservations are those of a person, the newest first.
func (s *stage) reservations(user int64) []*holdfast.Reservation {
	s.Helper()
	page, err := s.engine.Read(s.Context(), store.Query{
		Kind: store.QueryReservations, Project: project, Account: holdfast.AccountIDOf(project, telegram.AccountName(user)), Limit: holdfast.MaxPage,
	})
	if err != nil {
		s.Fatal(err)
	}
	return page.Reservations
}

// notes are the keys of what the bot remembers.
func (s *stage) notes(prefix string) []string {
	s.Helper()
	notes, err := s.database.Notes(s.Context(), s.options.Bot, prefix, prefix, holdfast.MaxPage)
	if err != nil {
		s.Fatal(err)
	}
	var keys []string
	for _, n := range notes {
		keys = append(keys, n.Key)
	}
	return keys
}

// age makes notes older than they are.
func (s *stage) age(prefix string, by time.Duration) {
	s.Helper()
	notes, err := s.database.Notes(s.Context(), s.options.Bot, prefix, prefix, holdfast.MaxPage)
	if err != nil || len(notes) == 0 {
		s.Fatalf("there are no notes %q: %v", prefix, err)
	}
	for _, n := range notes {
		n.At = n.At.Add(-by)
		if err := s.database.PutNote(s.Context(), n); err != nil {
			s.Fatal(err)
		}
	}
}

// post sends a message of the bot's with a button, besides the bot's own client and its limits.
func (s *stage) post(chat int64, text, data string) (message int) {
	s.Helper()
	body, err := json.Marshal(map[string]any{"chat_id": chat, "text": text, "reply_markup": map[string]any{
		"inline_keyboard": [][]map[string]string{{{"text": "Go", "callback_data": data}}},
	}})
	if err != nil {
		s.Fatal(err)
	}
	response, err := http.Post(s.server.URL+"/bot"+botToken+"/sendMessage", "application/json", bytes.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Result struct {
			ID int `json:"message_id"`
		} `json:"result"`
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Result.ID == 0 {
		s.Fatalf("a message could not be sent: %v", err)
	}
	return answer.Result.ID
}

// handled waits until all updates are.
func (s *stage) handled() {
	s.Helper()
	s.until("all updates are handled", func() bool {
		counts, err := s.database.UpdateCounts(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		return !slices.ContainsFunc(counts, func(c store.UpdateCount) bool { return c.Waiting > 0 })
	})
}

// settled waits until all that happened by now was told: until the relay's sink has passed every event that is published, and
// nothing is left to publish.
func (s *stage) settled() {
	s.Helper()
	name := telegram.SinkName(s.options.Bot)
	s.until("everything was told", func() bool {
		unpublished, _, err := s.database.Unpublished(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		positions, err := s.database.Positions(s.Context())
		if err != nil {
			s.Fatal(err)
		}
		cursors, err := s.database.Cursors(s.Context(), name)
		if err != nil {
			s.Fatal(err)
		}
		return unpublished == 0 && cursors[project] == positions[project]
	})
}

func (s *stage) noteOf(key string) string {
	s.Helper()
	n, _, err := s.database.Note(s.Context(), s.options.Bot, key)
	if err != nil {
		s.Fatal(err)
	}
	return n.Value
}

// personOf is what is noted of a person.
func (s *stage) personOf(user int64) string {
	s.Helper()
	return s.noteOf("person:" + holdfast.AccountIDOf(project, telegram.AccountName(user)).String())
}

// transcript is what happened, for whoever reads why a test failed.
func (s *stage) transcript() string {
	var lines strings.Builder
	for _, e := range s.server.Transcript() {
		lines.WriteString(e.String())
		lines.WriteByte('\n')
	}
	return lines.String()
}

// shown are the texts that a chat was shown, in order.
func (s *stage) shown(chat int64) []string {
	var texts []string
	for _, e := range s.server.Transcript().Where(fakeapi.Call("sendMessage", "editMessageText", "sendPhoto").In(chat)) {
		texts = append(texts, e.Text)
	}
	return texts
}

// tell gives the bot's sink an event, as the relay does.
func (s *stage) tell(e outbox.Event) {
	s.Helper()
	e.Project = project
	if e.CreatedAt.IsZero() {
		e.CreatedAt = time.Now()
	}
	if err := s.kit.Sink().Publish(s.within(), []outbox.Event{e}); err != nil {
		s.Fatal(err)
	}
}

// take gives the kit an update of the test's own making.
func (s *stage) take(update any) (telegram.Done, error) {
	s.Helper()
	raw, err := json.Marshal(update)
	if err != nil {
		s.Fatal(err)
	}
	return s.kit.Take(s.within(), raw)
}

// logged keeps what was logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) count(text string) int { return strings.Count(l.String(), text) }

func equal[V any](t *testing.T, what string, got, wanted V) {
	t.Helper()
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(wanted)
	if !bytes.Equal(a, b) {
		t.Errorf("%s: got %s, wanted %s", what, a, b)
	}
}

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/holdfast-dev/holdfast/internal/pgtest.(*Server).run.func2"))
}
