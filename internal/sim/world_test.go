package sim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/faultstore"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
)

// quantum is what a step lets pass on the clock of timers. It is longer than the engine's longest pause between two
// attempts, jitter included, so that the jitter, which no seed decides, cannot be seen.
const quantum = 500 * time.Millisecond

// world is one simulation: everything that exists, and what has been seen of it.
type world struct {
	seed   uint64
	random *rand.Rand
	rates  faultstore.Plan
	calm   bool // no faults any more
	hurry  bool // much is done in a short time

	data     *memory.Store
	places   []*place
	past     []*faultstore.Store // of processes that died: the database may still have their commits
	options  engine.Options
	step     int
	lines    []string // the newest of the trace
	history  uint64   // a hash of all of it
	names    map[holdfast.ID]string
	commands int // ids and tokens given out
	calls    int

	open       []*call                        // submitted and not answered
	intentions []*intention                   // all, in order
	fates      map[holdfast.ID]*fate          // by command
	actors     map[string]*fate               // by the actor of entries
	starts     map[string]*fate               // by the token
	known      map[holdfast.AccountID][]*work // reservations that callers may know of
	works      map[holdfast.ID]*work
	records    map[recordKey][]record // what was saved under each key, in order
	accounts   map[holdfast.AccountID]*account
	seen       counts

	mu    sync.Mutex // below: also touched by the engines' goroutines
	clock time.Time
	saves []save
}

// counts show that a simulation reached what it is for.
type counts map[string]int

func (c counts) add(other counts) {
	for what, n := range other {
		c[what] += n
	}
}

// place is where a server runs: its clock's error stays when its process dies.
type place struct {
	name    string
	skew    time.Duration
	outage  bool // its connections to the database fail
	process *process
}

// process is one life of a server.
type process struct {
	place  *place
	engine *engine.Engine
	store  *faultstore.Store
	stop   context.CancelFunc
	served chan error
	// stopping was told to end in good order; dead ended in any.
	stopping, dead bool
	sweeping       bool // Sweep was called and has not returned

	asks []*ask // guarded by world.mu
	full bool   // what the next scan tells: all hints, or one. Guarded by world.mu
}

// ask is a call to the store that waits for the driver.
type ask struct {
	process *process
	call    faultstore.Call
	rank    int // order within a process: the lane, its sweeper, Sweep
	reply   chan faultstore.Fault
}

// broken is what ends a simulation: something that must always hold does not.
type broken struct{ what string }

func (w *world) breaks(format string, args ...any) {
	panic(broken{fmt.Sprintf(format, args...)})
}

// genesis is two minutes before a month ends in Berlin; in the other zones it ends later, or has ended.
var genesis = time.Date(2027, 1, 31, 22, 58, 0, 0, time.UTC)

func newWorld(seed uint64) *world {
	w := &world{
		seed: seed, random: rand.New(rand.NewPCG(seed, 0)), clock: genesis, data: memory.Open(),
		names: map[holdfast.ID]string{}, actors: map[string]*fate{}, starts: map[string]*fate{}, fates: map[holdfast.ID]*fate{},
		known: map[holdfast.AccountID][]*work{}, works: map[holdfast.ID]*work{},
		records: map[recordKey][]record{}, accounts: map[holdfast.AccountID]*account{}, seen: counts{},
	}
	w.rates = faultstore.Seeded(rand.NewPCG(seed, 1), faultstore.Rates{
		Fail: 40, Disconnect: 30, Crash: 3, CommitLater: 40, SayUnavailable: 10, LoseLock: 250,
	})
	w.options = engine.Options{
		Catalog:    func(string) *holdfast.Catalog { return tariff },
		Logger:     slog.New(slog.NewTextHandler(io.Discard, nil)),
		MaxBatch:   []int{2, 8, holdfast.MaxBatch}[w.random.IntN(3)],
		MaxQueue:   []int{6, 100}[w.random.IntN(2)],
		SweepEvery: 3 * time.Second, RetryFor: 2 * time.Second, DrainFor: 2 * time.Second,
	}
	w.hurry = w.chance(50)
	for _, name := range []string{"one", "two"} {
		w.places = append(w.places, &place{name: name})
	}
	return w
}

func (w *world) chance(percent int) bool { return w.random.IntN(100) < percent }

// upTo is a random time from zero to the longest, in microseconds.
func (w *world) upTo(longest time.Duration) time.Duration {
	return time.Duration(w.random.Int64N(longest.Microseconds()+1)) * time.Microsecond
}

func pick[T any](w *world, list []T) T { return list[w.random.IntN(len(list))] }

// now is the time on a place's clock.
func (w *world) now(p *place) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock.Add(p.skew)
}

// latest is the time on the clock that is furthest ahead, of all clocks there have been: nothing was decided later.
func (w *world) latest() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock.Add(mostSkew)
}

const mostSkew = 4 * time.Second

func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%4d %12s  ", w.step, w.clock.Sub(genesis)) + fmt.Sprintf(format, args...)
	hash := fnv.New64a()
	fmt.Fprint(hash, w.history, line)
	w.history = hash.Sum64()
	if w.lines = append(w.lines, line); len(w.lines) > 120 {
		w.lines = w.lines[40:]
	}
}

// name is the short name of a reservation or grant in the trace.
func (w *world) name(id holdfast.ID, letter string) string {
	if w.names[id] == "" {
		w.names[id] = fmt.Sprint(letter, len(w.names)+1)
	}
	return w.names[id]
}

// start begins a new life of a server.
func (w *world) start(p *place) {
	p.skew = w.upTo(mostSkew)
	process := &process{place: p, served: make(chan error, 1)}
	process.store = faultstore.Open(recorder{w.data, w}, func(ctx context.Context, call faultstore.Call) faultstore.Fault {
		return w.ask(ctx, process, call)
	})
	options := w.options
	options.Now = func() time.Time { return w.now(p) }
	process.engine = engine.New(hinting{process.store, process, w}, options)
	ctx, stop := context.WithCancel(context.Background())
	process.stop = stop
	p.process = process
	go func() { process.served <- process.engine.Serve(ctx) }()
	w.note("server %s starts, its clock %s ahead", p.name, p.skew)
}

type explicit struct{} // the context of a call to Sweep

// ask lets a call to the store wait until the driver says how it goes on.
func (w *world) ask(ctx context.Context, p *process, call faultstore.Call) faultstore.Fault {
	if call.Op == faultstore.Scan && ctx.Err() != nil {
		// A stopping sweeper whose next tick has come chooses by chance whether it looks once more. Nobody may see which.
		return faultstore.Fault{Trouble: faultstore.Fail, Kind: store.Unavailable}
	}
	a := &ask{process: p, call: call, reply: make(chan faultstore.Fault, 1)}
	switch {
	case call.Op == faultstore.Scan && ctx.Value(explicit{}) != nil:
		a.rank = 2
	case call.Op == faultstore.Scan:
		a.rank = 1
	}
	w.mu.Lock()
	p.asks = append(p.asks, a)
	w.mu.Unlock()
	return <-a.reply
}

// asks are the calls that wait, in an order that does not depend on who came first.
func (w *world) asks() []*ask {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*ask
	for _, p := range w.places {
		if p.process != nil {
			of := slices.Clone(p.process.asks)
			slices.SortStableFunc(of, func(a, b *ask) int { return a.rank - b.rank })
			all = append(all, of...)
		}
	}
	return all
}

// release lets one call go on, with what happens to it.
func (w *world) release(a *ask) {
	p := a.process
	fault := faultstore.Fault{}
	switch {
	case w.calm:
	case p.place.outage && !a.call.After:
		fault = faultstore.Fault{Trouble: faultstore.Fail, Kind: store.Unavailable}
	default:
		fault = w.rates(context.Background(), a.call)
	}
	if fault.Trouble == faultstore.Fail && fault.Kind == store.Unavailable && a.call.After {
		w.lied(p) // this store says that nothing happened; its engine can only believe it
	}
	when := "before"
	if a.call.After {
		when = "after"
	}
	outcome := "goes on"
	if fault.Trouble != "" {
		outcome = string(fault.Trouble)
		if fault.Trouble == faultstore.Fail {
			outcome += " as " + fault.Kind.String()
		}
	}
	w.note("server %s %s %s: %s", p.place.name, when, a.call.Op, outcome)
	w.seen[fmt.Sprintf("%s %s: %s", when, a.call.Op, outcome)]++
	w.mu.Lock()
	// Hints of several accounts at once are told only while the lane is held up: it must find all of them or none.
	p.full = slices.ContainsFunc(p.asks, func(other *ask) bool { return other.rank == 0 })
	p.asks = slices.DeleteFunc(p.asks, func(other *ask) bool { return other == a })
	w.mu.Unlock()
	a.reply <- fault
}

// die takes note that a process is no more: whoever waited for it hears nothing.
func (w *world) die(p *process) {
	p.dead = true
	p.store.Crash()
	p.stop()
	w.mu.Lock()
	asks := p.asks
	p.asks = nil
	w.mu.Unlock()
	for _, a := range asks {
		a.reply <- faultstore.Fault{}
	}
	w.past = append(w.past, p.store)
	synctest.Wait()
}

// pass moves the clocks, and lets timers run.
func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	w.clock = w.clock.Add(d)
	w.mu.Unlock()
	time.Sleep(min(max(quantum, d.Round(quantum)), 4*quantum))
}

// settle looks at what a step has brought: deaths, saves, answers.
func (w *world) settle() {
	synctest.Wait()
	w.look()
	for _, p := range w.places {
		switch process := p.process; {
		case process == nil || process.dead:
		case process.store.Dead():
			w.note("server %s has died", p.name)
			w.seen["server died"]++
			w.die(process)
		default:
			for account, why := range process.engine.Quarantined() {
				w.breaks("server %s took account %s out of service: %s", p.name, w.accountName(account), why)
			}
			select {
			case err := <-process.served:
				if err != nil || !process.stopping {
					w.breaks("server %s ended by itself: %v", p.name, err)
				}
				w.note("server %s has ended in good order", p.name)
				w.seen["server ended"]++
				w.gather()
				w.die(process)
			default:
			}
		}
	}
	w.gather()
}

// gather takes the answers that have come.
func (w *world) gather() {
	var waiting []*call
	for _, c := range w.open {
		w.mu.Lock()
		answered := c.answered
		w.mu.Unlock()
		switch {
		case c.process.dead:
			w.note("%s is lost with its server", c)
		case answered:
			w.hear(c)
		default:
			waiting = append(waiting, c)
		}
	}
	w.open = waiting
}

// recorder sees what is saved at the moment at which it is.
type recorder struct {
	*memory.Store
	world *world
}

// Begin wraps the transaction.
func (r recorder) Begin(ctx context.Context) (store.Tx, error) {
	tx, err := r.Store.Begin(ctx)
	return recorded{tx, r.world}, err
}

type recorded struct {
	store.Tx
	world *world
}

// Save notes what was saved.
func (tx recorded) Save(ctx context.Context, changes []holdfast.Changes) error {
	if err := tx.Tx.Save(ctx, changes); err != nil {
		return err
	}
	tx.world.mu.Lock()
	defer tx.world.mu.Unlock()
	for i := range changes {
		tx.world.saves = append(tx.world.saves, saved(&changes[i]))
	}
	return nil
}

// save is what was saved of one account.
type save struct {
	account      holdfast.AccountID
	row          holdfast.Account
	entries      []holdfast.Entry
	newGrants    []holdfast.Grant
	reservations []holdfast.Reservation // new and changed
	answers      []record
	events       []holdfast.Event
}

// record is an answer as it was saved.
type record struct {
	key     string
	command holdfast.ID
	print   holdfast.Fingerprint
	outcome holdfast.Outcome
	text    []byte // of the outcome
	at      time.Time
}

func saved(c *holdfast.Changes) save {
	s := save{account: c.Account.ID, row: c.Account, entries: slices.Clone(c.Entries), events: slices.Clone(c.Events)}
	for _, g := range c.NewGrants {
		s.newGrants = append(s.newGrants, *g)
	}
	for _, r := range slices.Concat(c.NewReservations, c.Reservations) {
		s.reservations = append(s.reservations, *r)
	}
	for _, a := range c.Answers {
		s.answers = append(s.answers, record{key: a.Key, command: a.Command, print: a.Fingerprint, outcome: a.Outcome, text: text(&a.Outcome), at: a.RecordedAt})
	}
	return s
}

// text is an outcome as it is recorded, to be compared.
func text(o *holdfast.Outcome) []byte {
	written, err := json.Marshal(o)
	if err != nil {
		return []byte(err.Error())
	}
	return written
}

// hinting is what an engine sees: of hints at overdue work, all or one.
type hinting struct {
	*faultstore.Store
	process *process
	world   *world
}

// Scan tells at most one account unless the lane is held up; the sweeper then scans again.
func (h hinting) Scan(ctx context.Context, due store.Due) ([]holdfast.AccountID, error) {
	found, err := h.Store.Scan(ctx, due)
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	if !h.process.full && len(found) > 1 {
		found = found[:1]
	}
	return found, err
}

// run is the whole of a simulation. It returns what broke, or nil.
func (w *world) run(steps int) (found *broken) {
	defer w.close()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case broken:
			found = &r
		default:
			panic(r)
		}
	}()
	w.begin()
	for w.step < steps {
		w.step++
		w.act()
		w.settle()
		if w.step%25 == 0 {
			w.lookAtAll()
		}
	}
	w.finish()
	return nil
}

// close ends every goroutine, so that nothing of this world is left.
func (w *world) close() {
	for _, p := range w.places {
		if p.process != nil && !p.process.dead {
			w.die(p.process)
		}
	}
	for _, s := range w.past {
		for s.Unsettled() > 0 {
			_ = s.Settle(context.Background(), false) // nobody looks any more
		}
	}
	for range 20 {
		time.Sleep(quantum) // timers of the dead run out
	}
}

// simulate runs one seed in a bubble of its own.
func simulate(t *testing.T, seed uint64, steps int) (w *world, found *broken) {
	synctest.Test(t, func(*testing.T) {
		w = newWorld(seed)
		found = w.run(steps)
	})
	return w, found
}

// report is what a person needs to understand a failing seed.
func (w *world) report(found *broken, steps int) string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "seed %d, step %d: %s\n\nthe last steps:\n%s\n\nreplay: go test ./internal/sim -run TestSimulation -sim.seed=%d -sim.n=1 -sim.steps=%d\n",
		w.seed, w.step, found.what, strings.Join(w.lines, "\n"), w.seed, steps)
	return b.String()
}
