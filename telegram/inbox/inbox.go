package inbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"strconv"
	"strings"
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
	// people at the same time. An error, or a panic, is tried again, up to Attempts. It may be told of an update again that
	// it has handled, where the process was killed before that was stored.
	Handle func(context.Context, Update) error
	// Fast is given pre-checkout queries and callback queries at once, whatever else their person waits for, also while the
	// database cannot be used. Its context ends after a few seconds. Nil: Handle.
	Fast func(context.Context, Update) error
	// Refuse is called where Fast failed or took too long: it must answer no, and need nothing but the Bot API. Where it
	// succeeds, the update is done. Nil: Fast is tried again for as long as an answer is of use.
	Refuse func(context.Context, Update) error
	// Attempts is how often an update is tried before it is set aside; 0: 10.
	Attempts int
	// Parallel is how many people's updates are handled at the same time; 0: 64.
	Parallel int
	// Every is how often is looked for what another process left, and for what is to be tried again; 0: a second.
	Every  time.Duration
	Logger *slog.Logger // nil: none
	// Now is the clock; nil: the machine's.
	Now func() time.Time
}

const (
	defaultAttempts = 10
	defaultParallel = 64
	defaultEvery    = time.Second

	// An answer to a query that is older is refused by the Bot API.
	queriesLive  = 150 * time.Second
	fastFor      = 7 * time.Second // a pre-checkout query must be answered within ten
	refuseFor    = 2 * time.Second
	fastPatience = 2 * time.Second // for storing a query; then it is answered without
)

// Kinds are the updates that a bot of this product lives from. Without pre_checkout_query every checkout would time out.
func Kinds() []string {
	return []string{
		"message", "callback_query", preCheckout, "my_chat_member", "subscription", "purchased_paid_media", "stopped_message_generation",
	}
}

const (
	preCheckout   = "pre_checkout_query"
	callbackQuery = "callback_query"
)

// Inbox is safe for concurrent use.
type Inbox struct {
	options Options
	holder  string        // names this process to others that poll
	woken   chan struct{} // there may be something to do
	fast    sync.WaitGroup
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
	return &Inbox{options: options, holder: rand.Text(), woken: make(chan struct{}, 1)}
}

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

func (t *told) fast() bool { return t.kind == preCheckout || t.kind == callbackQuery }

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
	t := told{id: id, raw: string(bytes.ToValidUTF8(raw, []byte("�")))}
	for kind, content := range fields {
		if kind == "update_id" || len(content) == 0 || content[0] != '{' {
			continue
		}
		t.kind, t.line = kind, lineOf(content)
		if t.fast() {
			t.line = "" // nobody is waited for
			break
		}
	}
	if t.line == "" {
		t.line = "update/" + strconv.FormatInt(id, 10)
	}
	return t, nil
}

// lineOf is the person that an update is of, or else the chat; empty: it does not say. What is sent in the name of a chat
// comes from a user that Telegram uses for all such chats.
func lineOf(content []byte) string {
	type party struct {
		ID int64 `json:"id"`
	}
	var about struct {
		From       party `json:"from"`
		User       party `json:"user"`
		Chat       party `json:"chat"`
		SenderChat party `json:"sender_chat"`
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

// update is what handlers are given of a stored one.
func (in *Inbox) update(u *store.Update) Update {
	t, _ := read([]byte(u.Raw)) // it was read before it was stored
	return Update{Bot: u.Bot, ID: u.ID, Kind: t.kind, Raw: json.RawMessage(u.Raw), ReceivedAt: u.ReceivedAt, Attempt: max(u.Attempts, 1)}
}

// take stores updates, and begins with what cannot wait. It returns an error where one of them is neither stored nor
// answered.
func (in *Inbox) take(ctx context.Context, updates []told) error {
	now := in.options.Now()
	rows, patient := make([]store.Update, len(updates)), true
	for i := range updates {
		t := &updates[i]
		rows[i] = store.Update{Bot: in.options.Bot, ID: t.id, Line: t.line, Raw: t.raw, ReceivedAt: now}
		if t.fast() {
			rows[i].Claim, rows[i].ClaimedUntil, patient = rand.Text(), now.Add(claimFor), false
		}
	}
	storing := ctx
	if !patient {
		var cancel context.CancelFunc
		storing, cancel = context.WithTimeout(ctx, fastPatience)
		defer cancel()
	}
	kept, err := in.options.Store.KeepUpdates(storing, rows)
	var failed []error
	var mutex sync.Mutex
	var answering sync.WaitGroup
	for i := range rows {
		switch u := &rows[i]; {
		case err != nil && updates[i].fast():
			answering.Go(func() {
				if problem := in.answer(context.WithoutCancel(ctx), in.update(u)); problem != nil {
					mutex.Lock()
					defer mutex.Unlock()
					failed = append(failed, err)
				}
			})
		case err != nil:
			failed = append(failed, err)
		case kept[i] && updates[i].fast():
			u.Attempts = 1
			in.fast.Go(func() { in.attempt(context.WithoutCancel(ctx), u) })
		case kept[i]:
			in.wake()
		}
	}
	answering.Wait()
	if len(failed) > 0 {
		return failed[0]
	}
	return nil
}

// String is short, for logs.
func (u Update) String() string {
	return strings.TrimSpace(u.Kind + " " + strconv.FormatInt(u.ID, 10))
}
