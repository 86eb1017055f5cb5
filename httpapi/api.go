package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

// Engine is the door that every change goes through, and what may be read beside it.
type Engine interface {
	// Submit has a command decided and saved. It fills in Command.ID and Start.Token. Errors are *engine.Error.
	Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error)
	// SubmitAll does so with many, those of one account in their order.
	SubmitAll(ctx context.Context, commands []holdfast.Command) []engine.Result
	// ViewAt shows an account as it was believed to be, also one that nobody has seen yet; the zero time means now.
	ViewAt(ctx context.Context, project, account string, at time.Time) (*holdfast.AccountView, error)
	// ViewOf shows an account named by its id as it is now; nil: the project has none.
	ViewOf(ctx context.Context, project string, account holdfast.AccountID) (*holdfast.AccountView, error)
	// Explain says why a reserve would be granted or refused now, or what is wrong with it.
	Explain(ctx context.Context, command holdfast.Command) (*holdfast.Explanation, []holdfast.Problem, error)
	// Resolve is the account that a name, or another name of it, means.
	Resolve(ctx context.Context, project string, account holdfast.AccountID) (holdfast.AccountID, error)
	// Alias makes a name lead to an account, and Merge lets an account take another one in. The outcome has the account as it
	// is afterwards.
	Alias(ctx context.Context, names engine.Names) (holdfast.Outcome, error)
	Merge(ctx context.Context, names engine.Names) (holdfast.Outcome, error)
	// Claim starts jobs of a queue and returns them, or waits for the first. Errors are *engine.Error.
	Claim(ctx context.Context, request engine.ClaimRequest) ([]engine.Claimed, error)
	// Reservations answers one page of those of an account and of all that have taken its place, and the next one's cursor.
	Reservations(ctx context.Context, query store.Query) ([]engine.Owned, string, error)
	// Read answers one page.
	Read(ctx context.Context, query store.Query) (store.Page, error)
	// Catalog is the project's newest one; nil: it has none.
	Catalog(project string) *holdfast.Catalog
	// Ready says why the engine cannot serve now, or nil.
	Ready(ctx context.Context) error
	Now() time.Time
}

// Keys finds API keys. It never sees a key itself.
type Keys interface {
	// Lookup finds the key with this SHA-256. A revoked key is not found.
	Lookup(ctx context.Context, hash [32]byte) (Key, bool, error)
}

// Key is who calls. It belongs to one project and may do what its scopes say; no scope includes another.
type Key struct {
	ID      string // names the key in the ledger and in logs; it is not secret
	Project string
	Scopes  []string
	// RateLimit is how many requests a second it may make, and twice as many at once; 0: as Options says.
	RateLimit int
}

// The scopes.
const (
	ScopeRead  = "read"  // every GET
	ScopeWork  = "work"  // reservations and their verbs, creating and updating accounts
	ScopeMoney = "money" // grants, adjustments, payments, refunds, plans, aliases, merges
	ScopeAdmin = "admin" // force, blocking, deletion, the catalog
)

// scopeOfEach is that of a batch: any key may send one, and each operation needs the scope of its own call.
const scopeOfEach = "of each operation"

func (k Key) has(scope string) bool { return slices.Contains(k.Scopes, scope) }

// Texts composes what a person reads.
type Texts interface {
	// Match picks the language to answer in: the first of the Accept-Language header that is known, else the account's,
	// else the default. Both may be empty.
	Match(acceptLanguage, accountLanguage string) string
	// Title names one of the core's reasons in English; it is the same for every occurrence.
	Title(reason holdfast.Reason) string
	// Detail says in the reader's language what a refusal means for them.
	Detail(reader Reader, catalog *holdfast.Catalog, outcome holdfast.Outcome, now time.Time) string
	// Step says in a language that Match returned what a check of an explanation found.
	Step(language string, catalog *holdfast.Catalog, step holdfast.Step) string
	// Accident says in the reader's language that there is no answer now: internal, unavailable, overloaded or
	// outcome_unknown.
	Accident(reader Reader, reason holdfast.Reason) string
	// PreCheckout says in the reader's language why a payment of Stars may not go on, by a reason of package telegramstars.
	// Until is when what is paid ends.
	PreCheckout(reader Reader, reason string, until, now time.Time) string
	// Invoice is the title (1 to 32 characters) and the description (1 to 255) of a product that is sold at a price.
	Invoice(reader Reader, catalog *holdfast.Catalog, product *holdfast.Product, price holdfast.Money, recurring bool) (title, description string)
}

// Reader is for whom a text is composed.
type Reader struct {
	Language string         // what Match returned
	Location *time.Location // never nil
}

// Options is what the handler needs. Engine, Keys, Texts and Logger are required.
type Options struct {
	Engine  Engine
	Keys    Keys
	Texts   Texts
	Logger  *slog.Logger
	Version string // of the program; the document tells it. Empty: "dev"
	// Catalogs keeps catalogs; nil: there is nothing at /v1/catalog.
	Catalogs Catalogs
	// Payments takes payments; nil: there is nothing at /v1/payments.
	Payments Payments
	// Stars finds whoever sells for a bot; nil: there is nothing at /v1/telegram.
	Stars func(bot Bot) Stars
	// Events tells what happened, and keeps endpoints; nil: there is nothing at /v1/events and /v1/endpoints.
	Events Events
	// Admin makes projects and keys for whoever has AdminKey, which opens nothing else. Where either is missing, those
	// calls answer 401 to everybody.
	Admin    Admin
	AdminKey string
	// RateLimit is how many requests a second each key may make, and twice as many at once, where the key has no limit of
	// its own. An operation of a batch counts as a request. 0: as many as it likes.
	RateLimit int
}

// api is the handler.
type api struct {
	Options
	mux      *http.ServeMux
	document []byte
	docs     page

	operations map[string]*route // those that a batch takes, by their names in it
	opNames    []string
	limits     limits
}

// New builds the handler. It is safe for concurrent use. Timeouts and TLS are the server's that mounts it.
func New(options Options) (http.Handler, error) {
	if options.Engine == nil || options.Keys == nil || options.Texts == nil || options.Logger == nil {
		return nil, errors.New("httpapi: Engine, Keys, Texts and Logger are all needed")
	}
	if err := checkAdminKey(options.AdminKey); err != nil {
		return nil, err
	}
	if options.Version == "" {
		options.Version = "dev"
	}
	a := &api{Options: options, mux: http.NewServeMux()}
	table := routes()
	document, err := describe(table, options.Version)
	if err != nil {
		return nil, fmt.Errorf("httpapi: describe the routes: %w", err)
	}
	a.document = document
	if a.docs, err = docsPage(); err != nil {
		return nil, fmt.Errorf("httpapi: compose the docs page: %w", err)
	}
	a.operations = map[string]*route{}
	for i := range table {
		if op := table[i].op; op != "" {
			a.operations[op] = &table[i]
			a.opNames = append(a.opNames, op)
		}
	}
	for pattern, methods := range byPath(table) {
		a.mux.Handle(pattern, &resource{api: a, pattern: pattern, methods: methods})
	}
	a.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, "", (*call).nowhere) })
	return a, nil
}

// resource is one path with its methods.
type resource struct {
	api     *api
	pattern string
	methods map[string]*route
}

func byPath(table []route) map[string]map[string]*route {
	paths := map[string]map[string]*route{}
	for i := range table {
		r := &table[i]
		if paths[r.path] == nil {
			paths[r.path] = map[string]*route{}
		}
		paths[r.path][r.method] = r
		if r.method == http.MethodGet {
			paths[r.path][http.MethodHead] = r // the server leaves the body out
		}
	}
	return paths
}

func (res *resource) allow() string {
	allowed := []string{http.MethodOptions}
	for method := range res.methods {
		allowed = append(allowed, method)
	}
	slices.Sort(allowed)
	return strings.Join(allowed, ", ")
}

// ServeHTTP answers a request for the resource. The ServeMux has filled in the path's values.
func (res *resource) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	res.api.serve(w, r, res.pattern, res.answer)
}

func (res *resource) answer(c *call) answer {
	route, ok := res.methods[c.request.Method]
	if !ok {
		a := answer{status: http.StatusNoContent}
		if c.request.Method != http.MethodOptions {
			a = c.mistake(reasonMethod, "This path answers to "+res.allow()+".")
		}
		return a.with("Allow", res.allow())
	}
	c.route = route
	if refused := c.authenticate(); refused != nil {
		return *refused
	}
	if route.does.command != nil {
		return c.submit()
	}
	return route.does.run(c)
}

func (c *call) nowhere() answer {
	return c.mistake(holdfast.NotFound, "There is no such path. Every path is listed at /openapi.json.")
}

// ServeHTTP answers one request. A path with empty, "." or ".." segments names nothing here; ServeMux would redirect it.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if escaped := r.URL.EscapedPath(); !strings.HasPrefix(escaped, "/") || escaped != path.Clean(escaped) {
		a.serve(w, r, "", (*call).nowhere)
		return
	}
	a.mux.ServeHTTP(w, r)
}

// serve gives one answer and writes one line in the log, whatever happens.
func (a *api) serve(w http.ResponseWriter, r *http.Request, pattern string, run func(*call) answer) {
	c := &call{api: a, request: r, writer: w, pattern: pattern, began: time.Now(), id: rand.Text(), from: alone{}}
	answer := c.safely(run)
	answer.write(w, c.id)
	if answer.stream != nil && r.Method != http.MethodHead {
		answer.cause = safelyStream(answer.stream, w)
	}
	c.log(&answer)
	if answer.stream != nil && answer.cause != nil {
		panic(http.ErrAbortHandler)
	}
}

func safelyStream(stream func(http.ResponseWriter) error, w http.ResponseWriter) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
		}
	}()
	return stream(w)
}

// safely turns a panic into an answer: nothing has been written by then.
func (c *call) safely(run func(*call) answer) (a answer) {
	defer func() {
		if cause := recover(); cause != nil {
			// Worded here: what panicked may be what words the others.
			a = c.mistake(reasonInternal, "This is a fault of the server. Repeat the call with the same key to learn what happened.")
			a.cause = fmt.Errorf("panic: %v\n%s", cause, debug.Stack())
			a.encode()
		}
	}()
	a = run(c)
	a.encode()
	return a
}

// log writes one line about the request. It tells no body, no key, no query and no account.
func (c *call) log(a *answer) {
	level := slog.LevelInfo
	switch {
	case a.status == http.StatusInternalServerError:
		level = slog.LevelError
	case a.status >= http.StatusInternalServerError || a.cause != nil:
		level = slog.LevelWarn
	case c.route != nil && c.route.scope == "":
		level = slog.LevelDebug // probes come every second
	}
	attributes := []slog.Attr{
		slog.String("method", c.methodName()), slog.String("route", c.pattern), slog.Int("status", a.status),
		slog.Duration("duration", time.Since(c.began)), slog.String("request_id", c.id),
	}
	if a.reason != "" {
		attributes = append(attributes, slog.String("reason", string(a.reason)))
	}
	if c.key.ID != "" {
		attributes = append(attributes, slog.String("key_id", c.key.ID))
	}
	if a.cause != nil {
		attributes = append(attributes, slog.String("cause", a.cause.Error()))
	}
	c.api.Logger.LogAttrs(c.request.Context(), level, "request", attributes...)
}

// methodName keeps what a caller made up out of the log.
func (c *call) methodName() string {
	switch c.request.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodOptions, http.MethodDelete, http.MethodPatch:
		return c.request.Method
	}
	return "other"
}
