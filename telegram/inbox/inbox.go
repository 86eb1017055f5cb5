package inbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// Update is what the Bot API told.
type Update struct {
	Bot        string
	ID         int64
	Kind       string // "message", "callback_query", …; empty: it tells of nothing
	Raw        json.RawMessage
	ReceivedAt time.Time
	Attempt    int // counts from 1
}

// Options of an inbox. Store, Bot and Handle are needed.
type Options struct {
	Store store.Telegram
	Bot   string // names the bot in the database
	// Secret is what the webhook is told with. Empty: the webhook answers nobody.
	Secret string
	// Handle is given the updates of a person one after the other, in the order in which they came, and those of different
	// people at the same time. Its context ends after a minute. An error, or a panic, is tried again, up to Attempts. It may
	// be told again of an update that it has handled, where the process was killed before that was stored.
	Handle func(context.Context, Update) error
	// Fast is given pre-checkout queries and callback queries at once, whatever else their person waits for, also while the
	// database cannot be used. Its context ends after a few seconds, and then it is waited for no longer. Nil: Handle.
	Fast func(context.Context, Update) error
	// Refuse is called where Fast failed or took too long: it must answer no, and need nothing but the Bot API. Where it
	// succeeds, the update is done. Nil: Fast is tried again for as long as an answer is of use.
	Refuse func(context.Context, Update) error
	// Alone says that no other process handles updates from this store: what a predecessor had begun is handled at once, and
	// not when its claims lapse.
	Alone bool
	// Attempts is how often an update is tried before it is set aside; 0: 10.
	Attempts int
	// Parallel is how many people's updates are handled at the same time; 0: 64.
	Parallel int
	// Every is how often is looked for what another process left, and for what is to be tried again, and how long polling
	// pauses after a first failure; 0: a second.
	Every  time.Duration
	Logger *slog.Logger // nil: none
	// Now is the clock; nil: the machine's.
	Now func() time.Time
}

const (
	defaultAttempts = 10
	defaultParallel = 64
	defaultEvery    = time.Second
)

// Kinds are the updates that a bot of this product lives from. Without pre_checkout_query every checkout would time out.
func Kinds() []string {
	return []string{
		"message", callbackQuery, preCheckoutQuery, "my_chat_member", "subscription", "purchased_paid_media", "stopped_message_generation",
	}
}

const (
	preCheckoutQuery = "pre_checkout_query"
	callbackQuery    = "callback_query"
)

// Inbox is safe for concurrent use.
type Inbox struct {
	options  Options
	holder   string        // names this process in claims and to others that poll
	woken    chan struct{} // there may be something to do
	fast     sync.RWMutex  // whoever answers a query reads
	keeping  group[store.Update, bool]
	settling group[store.Settled, bool]
	answered answered
}

// New makes an inbox. It does nothing before it is asked.
func New(options Options) *Inbox {
	if options.Fast == nil {
		options.Fast = options.Handle
	}
	if options.Attempts == 0 {
		options.Attempts = defaultAttempts
	}
	if options.Parallel == 0 {
		options.Parallel = defaultParallel
	}
	if options.Every == 0 {
		options.Every = defaultEvery
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	options.Logger = options.Logger.With("bot", options.Bot)
	return &Inbox{
		options: options, holder: rand.Text() + ".", woken: make(chan struct{}, 1),
		keeping:  group[store.Update, bool]{write: options.Store.KeepUpdates},
		settling: group[store.Settled, bool]{write: options.Store.SettleUpdates},
	}
}

// newClaim is a word for one claim of this process.
func (in *Inbox) newClaim() string { return in.holder + rand.Text() }

// wake makes the worker look.
func (in *Inbox) wake() {
	select {
	case in.woken <- struct{}{}:
	default:
	}
}

// told is an update as it came.
type told struct {
	id   int64
	kind string
	line string
	raw  string
}

func isFast(kind string) bool { return kind == preCheckoutQuery || kind == callbackQuery }

var errNoUpdate = errors.New("it is not an update")

// read finds out whose an update is, and whether it can wait.
func read(raw []byte) (told, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return told{}, errNoUpdate // the error would quote from it
	}
	id, err := strconv.ParseInt(string(fields["update_id"]), 10, 64)
	if err != nil {
		return told{}, errNoUpdate
	}
	// A database may insist on UTF-8, which a JSON text need not be.
	t := told{id: id, line: "update/" + strconv.FormatInt(id, 10), raw: string(bytes.ToValidUTF8(raw, []byte("\uFFFD")))}
	for _, kind := range slices.Sorted(maps.Keys(fields)) {
		content := fields[kind]
		if kind == "update_id" || content[0] != '{' {
			continue
		}
		t.kind = kind
		if isFast(kind) {
			return t, nil // nobody is waited for
		}
		if person := personOf(content); person != "" {
			t.line = person
		}
	}
	return t, nil
}

// personOf names the person that an update is of, or else the chat; empty: it does not say. What is sent in the name of a
// chat comes from a user that Telegram uses for all such chats.
func personOf(content []byte) string {
	type party struct {
		ID int64 `json:"id"`
	}
	var about struct {
		SenderChat party `json:"sender_chat"`
		From       party `json:"from"`
		User       party `json:"user"`
		Chat       party `json:"chat"`
	}
	if json.Unmarshal(content, &about) != nil {
		return ""
	}
	for _, id := range []int64{about.SenderChat.ID, about.From.ID, about.User.ID, about.Chat.ID} {
		if id != 0 {
			return "person/" + strconv.FormatInt(id, 10)
		}
	}
	return ""
}

// asTold is a stored update as handlers are given it.
func asTold(u *store.Update) Update {
	t, _ := read([]byte(u.Raw)) // it was read before it was stored
	return Update{Bot: u.Bot, ID: u.ID, Kind: t.kind, Raw: json.RawMessage(u.Raw), ReceivedAt: u.ReceivedAt, Attempt: max(u.Attempts, 1)}
}

// take stores updates, and begins with what cannot wait. It returns an error where one of them is neither stored nor
// answered.
func (in *Inbox) take(ctx context.Context, updates []told) error {
	now := in.options.Now()
	var rows []store.Update
	var queries bool
	for i := range updates {
		t := &updates[i]
		if in.answered.has(t.id, now) {
			continue
		}
		row := store.Update{Bot: in.options.Bot, ID: t.id, Line: t.line, Raw: t.raw, ReceivedAt: now}
		if isFast(t.kind) {
			row.Claim, row.ClaimedUntil, queries = in.newClaim(), now.Add(fastClaimFor), true
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		return nil
	}
	storing := ctx
	if queries {
		var cancel context.CancelFunc
		storing, cancel = context.WithTimeout(ctx, fastPatience)
		defer cancel()
	}
	kept, err := in.keeping.do(storing, rows)
	if err != nil {
		return in.withoutStore(ctx, rows, err)
	}
	for i := range rows {
		switch row := &rows[i]; {
		case !kept[i]:
		case row.Claim != "":
			row.Attempts = 1
			in.fast.RLock()
			go func() {
				defer in.fast.RUnlock()
				in.attempt(context.WithoutCancel(ctx), row)
			}()
		default:
			in.wake()
		}
	}
	return nil
}

// withoutStore answers queries that could not be stored. What is told again is not answered again: whoever was refused has
// been told so.
func (in *Inbox) withoutStore(ctx context.Context, rows []store.Update, why error) error {
	var answering sync.WaitGroup
	missed := make(chan struct{}, len(rows))
	for i := range rows {
		row := &rows[i]
		answering.Go(func() {
			if row.Claim == "" || in.answer(context.WithoutCancel(ctx), asTold(row)) != nil {
				missed <- struct{}{}
				return
			}
			in.answered.add(row.ID, in.options.Now())
		})
	}
	answering.Wait()
	if len(missed) > 0 {
		return why
	}
	return nil
}

// answered are queries that were answered while they could not be stored, for as long as Telegram may tell them again.
type answered struct {
	mutex sync.Mutex
	at    map[int64]time.Time
}

func (a *answered) add(id int64, now time.Time) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.at == nil {
		a.at = map[int64]time.Time{}
	}
	maps.DeleteFunc(a.at, func(_ int64, at time.Time) bool { return now.Sub(at) > 2*queriesLive })
	a.at[id] = now
}

func (a *answered) has(id int64, now time.Time) bool {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	at, known := a.at[id]
	return known && now.Sub(at) <= 2*queriesLive
}
