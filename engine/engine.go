package engine

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Options configure an engine. Only Catalog is required.
type Options struct {
	// Catalog returns a project's newest catalog. It is called for every decision and must be fast and never nil.
	Catalog func(project string) *holdfast.Catalog
	// Now is the clock; nil: time.Now.
	Now func() time.Time
	// Logger is where accidents are told, once each; nil: slog.Default.
	Logger *slog.Logger
	// Observer is told what happens, for metrics; nil: nobody.
	Observer Observer
	// Lanes is how many batches are worked on at once; 0: one, which is best for one database, and a second one where much
	// is waiting and the store can work on both.
	Lanes int
	// MaxBatch, MaxQueue and MaxQueuePerAccount are the bounds of holdfast's limits; 0: those.
	MaxBatch, MaxQueue, MaxQueuePerAccount int
	// SweepEvery is how often overdue reservations are looked for; 0: 5 s. Negative: this engine never sweeps.
	SweepEvery time.Duration
	// RetryFor is how long conflicts and a lost database are retried before callers are told; 0: holdfast.RetryFor.
	RetryFor time.Duration
	// DrainFor is how long a stopping engine goes on answering what waits; 0: 10 s.
	DrainFor time.Duration
}

// Engine decides commands on a store. Its methods are safe for concurrent use. Serve must run for Submit to be answered.
type Engine struct {
	store   store.Store
	options Options
	log     *slog.Logger
	queue   *queue
	traits  store.Traits
	waiting chan struct{}  // one for each account that is waited for
	waiters sync.WaitGroup // those who wait
	claims  *claims

	mu          sync.Mutex
	warnedAt    time.Time          // when different clocks were last told of
	stuckAt     holdfast.AccountID // where the last Move was stopped; zero: it came to the end
	givenUpAt   time.Time          // when commands were last given up because of the database
	quarantined map[holdfast.AccountID]string
	fatal       error
	stop        context.CancelCauseFunc // of Serve's context
}

// New makes an engine on a store. It does nothing until Serve runs.
func New(s store.Store, options Options) *Engine {
	defaults(&options)
	return &Engine{
		store: s, options: options, log: options.Logger, traits: s.Traits(),
		queue:       newQueue(options.MaxQueue, options.MaxQueuePerAccount),
		waiting:     make(chan struct{}, holdfast.MaxWaitedFor),
		claims:      newClaims(),
		quarantined: map[holdfast.AccountID]string{},
	}
}

func defaults(o *Options) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Observer == nil {
		o.Observer = nobody{}
	}
	o.MaxBatch = orDefault(o.MaxBatch, holdfast.MaxBatch)
	o.MaxQueue = orDefault(o.MaxQueue, holdfast.MaxQueue)
	o.MaxQueuePerAccount = orDefault(o.MaxQueuePerAccount, holdfast.MaxQueuePerAccount)
	o.SweepEvery = orDefault(o.SweepEvery, 5*time.Second)
	o.RetryFor = orDefault(o.RetryFor, holdfast.RetryFor)
	o.DrainFor = orDefault(o.DrainFor, 10*time.Second)
}

func orDefault[T comparable](value, fallback T) T {
	var zero T
	if value == zero {
		return fallback
	}
	return value
}

// Now is the engine's time: UTC, in whole microseconds, as stores keep it.
func (e *Engine) Now() time.Time { return e.options.Now().UTC().Truncate(time.Microsecond) }

// Catalog is the project's newest catalog.
func (e *Engine) Catalog(project string) *holdfast.Catalog { return e.options.Catalog(project) }

// Serve works until ctx ends or the store cannot be trusted, and returns only when everything it started has stopped.
// When ctx ends it takes nothing new, answers what waits for as long as DrainFor allows, and returns nil; what is left is
// answered with Unavailable. An engine serves once.
func (e *Engine) Serve(ctx context.Context) error {
	serving, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	e.mu.Lock()
	e.stop = stop
	failed := e.fatal
	e.mu.Unlock()
	if failed != nil {
		return failed
	}
	// Lanes outlive ctx by the drain.
	working, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()

	var lanes, sweeper sync.WaitGroup
	for range orDefault(e.options.Lanes, 1) {
		lanes.Go(func() { e.lane(working) })
	}
	if e.options.Lanes == 0 && e.traits.Concurrent {
		lanes.Go(func() { e.spareLane(working) })
	}
	if e.options.SweepEvery > 0 {
		sweeper.Go(func() { e.sweeper(serving) })
	}
	<-serving.Done()
	e.queue.close()
	timer := time.AfterFunc(e.options.DrainFor, kill)
	defer timer.Stop()
	if e.failure() != nil {
		kill()
	}
	lanes.Wait()
	e.waiters.Wait()
	e.queue.drain(answer{err: stopping()})
	sweeper.Wait()
	return e.failure()
}

func (e *Engine) failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fatal
}

// fail stops the engine: what it works on cannot be trusted.
func (e *Engine) fail(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.fatal != nil {
		return
	}
	e.fatal = err
	e.log.Error("the engine stops: the store cannot be trusted", "error", err)
	if e.stop != nil {
		e.stop(err)
	}
}

func stopping() *Error {
	return &Error{Code: Unavailable, Hint: "the server is stopping; nothing happened, try again shortly"}
}

// Submit has a command decided and returns what came of it, after the database has committed it. A refusal is an outcome;
// every error is an *Error, and tells whether anything can have happened.
//
// Commands of one account are decided in the order in which they were submitted. Where ctx ends first, a command that
// still waits is dropped whole; one that was taken runs to its end, and the caller gets OutcomeUnknown.
func (e *Engine) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	if found := prepare(&command); len(found) > 0 {
		return holdfast.Outcome{Reason: holdfast.Invalid, Problems: found}, nil
	}
	return e.await(ctx, &pending{command: command, since: time.Now(), answer: make(chan answer, 1)})
}

// prepare gives a command what is random about it, and finds what is wrong with its shape.
func prepare(command *holdfast.Command) []holdfast.Problem {
	if command.ID.IsZero() {
		command.ID = NewID()
	}
	if start, ok := command.Do.(holdfast.Start); ok && start.Token == "" {
		start.Token = rand.Text()
		command.Do = start
	}
	do, unknown := resolveZone(command.Do)
	command.Do = do
	return append(command.Check(), unknown...)
}

func (e *Engine) await(ctx context.Context, p *pending) (holdfast.Outcome, error) {
	p.stage.Store(asked)
	if err := e.send(ctx, p); err != nil {
		return holdfast.Outcome{}, err
	}
	return e.receive(ctx, p)
}

// send lets a command wait, or says why it may not.
func (e *Engine) send(ctx context.Context, p *pending) *Error {
	if err := ctx.Err(); err != nil {
		return left(err)
	}
	if err := e.refused(p.command.AccountID()); err != nil {
		return err
	}
	return e.queue.push(p)
}

// receive waits for the answer of a command that was sent, or until ctx ends.
func (e *Engine) receive(ctx context.Context, p *pending) (holdfast.Outcome, error) {
	select {
	case a := <-p.answer:
		p.stage.Store(heard)
		return a.result()
	case <-ctx.Done():
		p.stage.Store(heard) // nobody listens any more
	}
	if e.queue.drop(p) {
		return holdfast.Outcome{}, left(ctx.Err())
	}
	select {
	case a := <-p.answer: // it was answered in the same moment
		return a.result()
	default:
		return holdfast.Outcome{}, &Error{Code: OutcomeUnknown, Hint: "the request was being decided when its caller left; repeat it with the same key", Err: ctx.Err()}
	}
}

func (a answer) result() (holdfast.Outcome, error) {
	if a.err != nil {
		return holdfast.Outcome{}, a.err
	}
	return a.outcome, nil
}

func left(err error) *Error {
	return &Error{Code: Cancelled, Hint: "the caller left before the request was decided; nothing happened", Err: err}
}

// resolveZone gives an operation the time zone that it names, and finds a name that is not known: the core cannot look.
func resolveZone(op holdfast.Operation) (holdfast.Operation, []holdfast.Problem) {
	put, ok := op.(holdfast.PutAccount)
	if !ok || put.TimeZone == nil {
		return op, nil
	}
	zone, err := zoneOf(*put.TimeZone)
	if err != nil {
		return op, []holdfast.Problem{{Field: "time_zone", Hint: "use a name of the IANA time zone database such as Europe/Moscow, or an empty text for UTC"}}
	}
	put.Zone = zone
	return put, nil
}

// zones remembers the time zones that accounts name: reading one costs a file.
var zones sync.Map

func zoneOf(name string) (*time.Location, error) {
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location), nil
	}
	if name == "Local" {
		return nil, errors.New("the zone of this machine is nobody's")
	}
	zone, err := time.LoadLocation(name) // the empty name is UTC
	if err == nil {
		zones.Store(name, zone)
	}
	return zone, err
}

// passZones gives a loaded state the time zones that it names. A name that is not known any more counts as UTC.
func passZones(state *holdfast.State) {
	state.Zones.Account, _ = zoneOf(state.Account.TimeZone)
	state.Zones.Anchor, _ = zoneOf(state.Account.AnchorZone)
}

// NewID is a fresh command id: a UUIDv7 with its last two bytes zero, where the core counts further ids of the command.
func NewID() holdfast.ID {
	id := holdfast.ID(uuid.Must(uuid.NewV7()))
	id[14], id[15] = 0, 0
	return id
}

// Waiting is how many commands wait to be taken into a batch.
func (e *Engine) Waiting() int { return e.queue.waiting() }

// unreadyFor is how long Ready says no after commands were given up; then whoever asks may try again.
const unreadyFor = 5 * time.Second

func (e *Engine) gaveUpLately() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Since(e.givenUpAt) < unreadyFor
}

func (e *Engine) gaveUp() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.givenUpAt = time.Now()
}

// Ready reports whether commands can be decided: the store answers, it has saved what was lately tried, and the engine has
// not stopped.
func (e *Engine) Ready(ctx context.Context) error {
	if err := e.failure(); err != nil {
		return err
	}
	if e.queue.isClosed() {
		return stopping()
	}
	if e.gaveUpLately() {
		return &Error{Code: Unavailable, Hint: "the database does not save; what was tried lately was given up"}
	}
	_, err := e.store.Scan(ctx, store.Due{At: e.Now(), Limit: 1})
	return err
}

// View shows an account as it is now, or as it would be where it is not stored yet. It writes nothing.
func (e *Engine) View(ctx context.Context, project, account string) (*holdfast.AccountView, error) {
	return e.ViewAt(ctx, project, account, time.Time{})
}

// Read answers one page of what is stored. Errors are *Error.
func (e *Engine) Read(ctx context.Context, query store.Query) (store.Page, error) {
	page, err := e.store.Read(ctx, query)
	if err == nil {
		return page, nil
	}
	var failed *store.Error
	if errors.As(err, &failed) && failed.Kind == store.Fatal {
		e.fail(err)
	}
	return page, unread(err)
}

func unread(err error) *Error {
	return &Error{Code: Unavailable, Hint: "the database cannot be read now; try again shortly", Err: err}
}
