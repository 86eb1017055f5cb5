package telegram

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// Engine is what the kit needs of an *engine.Engine.
type Engine interface {
	Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error)
	Claim(ctx context.Context, request engine.ClaimRequest) ([]engine.Claimed, error)
	Alias(ctx context.Context, names engine.Names) (holdfast.Outcome, error)
	View(ctx context.Context, project, account string) (*holdfast.AccountView, error)
	Read(ctx context.Context, query store.Query) (store.Page, error)
	Catalog(project string) *holdfast.Catalog
	Now() time.Time
}

// Options configure a kit.
type Options struct {
	// Bot is the bot's name in this program: what is noted about its chats is kept under it. Required, and never changed:
	// its id, or its username.
	Bot string
	// Username is the bot's, without @: in groups, commands for other bots are left to them. Empty: all are taken.
	Username string
	Project  string         // whose accounts people are
	Engine   Engine         // required
	API      *botapi.Client // required
	Notes    store.Notes    // required: where it is kept what was told, and where
	Texts    *message.Texts // required
	// Account names the account of a person; nil: telegram: and the user's id. Where it gives another name, that one becomes
	// known as telegram:ID too.
	Account func(ctx context.Context, user User) (string, error)
	// Surface is written on reservations; it must be one of the catalog's. Empty: none.
	Surface string
	// Location is the zone in which times are told to people whose account has none; nil: UTC.
	Location *time.Location
	// TopUp and Plans are the data of buttons under refusals, which the author's Button handlers of that name answer. Empty:
	// there is no such button.
	TopUp, Plans string
	// Editing is the shortest time between two edits of a status message, 0: 3 s. Acting is the time between two chat
	// actions, 0: 4 s.
	Editing, Acting time.Duration
	// Lease is how long a worker that is not heard of keeps its job, 0: 20 s. A person's wish to stop reaches running work
	// within a third of it.
	Lease  time.Duration
	Logger *slog.Logger // nil: slog.Default
}

// Kit is one bot. Register everything before the first update, then Run. Its methods are safe for concurrent use.
type Kit struct {
	options  Options
	features []*Feature
	commands map[string]Handler
	buttons  map[string]Handler
	kinds    map[Kind]Handler
	paid     func(ctx context.Context, e *outbox.Event) error // is told of payments before the person is; nil: nobody
	people   keyed                                            // one change of a person's note at a time
	turns    keyed                                            // one turn of an intention at a time
	statuses keyed                                            // one change of a reservation's messages at a time
	leaving  sync.WaitGroup                                   // status messages that are being taken away
	after    func(time.Duration) <-chan time.Time

	listening    sync.Mutex
	listensSince time.Time

	troubledUntil atomic.Int64 // nanoseconds since 1970: until then Telegram is taken for unreachable
}

// Handler answers a command, a button, or an update of a kind. An error is logged once, and the person is told that it did
// not work out, without a word of the error.
type Handler func(ctx context.Context, turn *Turn) error

// New makes a kit. The error names all options that are missing.
func New(options Options) (*Kit, error) {
	var missing []error
	need := func(name string, there bool) {
		if !there {
			missing = append(missing, fmt.Errorf("telegram: %s is missing", name))
		}
	}
	need("Options.Bot", options.Bot != "")
	need("Options.Project", options.Project != "")
	need("Options.Engine", options.Engine != nil)
	need("Options.API", options.API != nil)
	need("Options.Notes", options.Notes != nil)
	need("Options.Texts", options.Texts != nil)
	if err := errors.Join(missing...); err != nil {
		return nil, err
	}
	if options.Editing == 0 {
		options.Editing = defaultEditing
	}
	if options.Acting == 0 {
		options.Acting = defaultActing
	}
	if options.Lease == 0 {
		options.Lease = defaultLease
	}
	return &Kit{
		options: options, commands: map[string]Handler{}, buttons: map[string]Handler{}, kinds: map[Kind]Handler{}, after: time.After,
	}, nil
}

// Command has /name answered. The command's words are Turn.Argument.
func (k *Kit) Command(name string, handle Handler) {
	k.commands[strings.TrimPrefix(name, "/")] = handle
}

// Button has taps on buttons answered whose data is Data(name, …). What follows the name is Turn.Argument. Taps come at
// once, beside the queue of updates, and so perhaps two at a time.
func (k *Kit) Button(name string, handle Handler) { k.buttons[name] = handle }

// On has updates of a kind answered that are neither commands nor buttons: those that tell of payments, for example. For
// KindMessage it is called where no command and no feature has taken the message, in groups only where it addresses the bot.
// Turn.Update.Raw is all of the update.
func (k *Kit) On(kind Kind, handle Handler) { k.kinds[kind] = handle }

// Feature lets people ask for a feature. Where several could take a message, the one that was registered first does.
func (k *Kit) Feature(feature Feature) { k.features = append(k.features, &feature) }

func (k *Kit) log() *slog.Logger {
	if k.options.Logger == nil {
		return slog.Default()
	}
	return k.options.Logger
}

func (k *Kit) catalog() *holdfast.Catalog { return k.options.Engine.Catalog(k.options.Project) }

// keyed lets one at a time do what concerns the same key.
type keyed struct {
	mu      sync.Mutex
	waiting map[string]*line
}

type line struct {
	mu    sync.Mutex
	users int
}

// busy reports whether somebody does it now.
func (k *keyed) busy(key string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waiting[key] != nil
}

func (k *keyed) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.waiting == nil {
		k.waiting = map[string]*line{}
	}
	l := k.waiting[key]
	if l == nil {
		l = &line{}
		k.waiting[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.mu.Lock()
	return func() {
		l.mu.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.waiting, key)
		}
	}
}
