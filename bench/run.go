package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

// Options say what to measure.
type Options struct {
	// URL names the database as --db does: sqlite:PATH or postgres://…. The scratch database is made beside it.
	URL string
	// Quick ends in under a minute: short cells, no history.
	Quick bool
	// Out is where the tables are printed; nil: nowhere.
	Out io.Writer

	// accounts, rounds, within and cells make a test shorter still; 0 and nil: what Quick says.
	accounts, rounds int
	within           time.Duration
	cells            []cell
	history          []int
}

// cell is one thing that is measured: who works, for how many accounts, with how many callers.
type cell struct {
	subject  string
	accounts int
	callers  int
}

const (
	spread = 10_000 // accounts
	// garbage is how much a server lets gather before it collects, in per cent of what it keeps.
	garbage = 400
	// bestNaive is where the naive pattern is fastest on PostgreSQL.
	bestNaive = 16

	quickRounds = 3
	quickWithin = 40 * time.Second // of measuring; opening the accounts and closing take the rest of the minute
	wholeRounds = 5
	wholeCell   = 3 * time.Second
)

// scratch is a database that bench makes, fills and drops.
type scratch interface {
	store() store.Store
	// durable asserts that a commit survives a power cut, on both sides, and tells the settings.
	durable(context.Context) (string, error)
	// baselines are those of this database, by name. The model has an answer recorded by the real store.
	baselines(ctx context.Context, model *account, keys *keys) (map[string]subject, error)
	history(context.Context, history) error
	// count says how many answers and events are stored, which no read of the store tells.
	count(context.Context) (answers, events int, err error)
	// settle brings what was loaded to rest.
	settle(context.Context) error
	drop(context.Context) error
}

// storeOf is the store's name, and how to make a scratch database beside the URL.
func storeOf(url string) (name string, make func(context.Context) (scratch, error), err error) {
	scheme, path, _ := strings.Cut(url, ":")
	switch {
	case scheme == "sqlite" && path != "":
		return "sqlite", func(ctx context.Context) (scratch, error) { return makeSQLite(ctx, path) }, nil
	case scheme == "postgres", scheme == "postgresql":
		return "postgres", func(ctx context.Context) (scratch, error) { return makePostgres(ctx, url) }, nil
	}
	return "", nil, errors.New("measure a database that lasts: --db sqlite:PATH or --db postgres://…")
}

// Run measures and returns what it measured. An error means that something broke, never that a figure is too low.
func Run(ctx context.Context, options Options) ([]Result, error) {
	name, make, err := storeOf(options.URL)
	if err != nil {
		return nil, err
	}
	if options.Out == nil {
		options.Out = io.Discard
	}
	options = options.withDefaults(name)
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(garbage)) // as a server sets it, for the baselines too
	}
	r := &run{Options: options, store: name, make: make, samples: map[cell][]sample{}}
	if err := r.onScratch(ctx, r.grid); err != nil {
		return nil, err
	}
	results := r.results()
	for _, accounts := range []int{1, options.accounts} {
		if len(options.history) == 0 {
			break
		}
		more, err := r.overHistory(ctx, accounts)
		if err != nil {
			return nil, err
		}
		results = append(results, more...)
	}
	r.print("\n")
	printResults(options.Out, results)
	printGoals(options.Out, results)
	return results, nil
}

func (o Options) withDefaults(store string) Options {
	if o.accounts == 0 {
		o.accounts = spread
	}
	if o.rounds == 0 {
		o.rounds = wholeRounds
		if o.Quick {
			o.rounds = quickRounds
		}
	}
	if o.cells == nil {
		o.cells = gridOf(store, o.Quick, o.accounts)
	}
	if o.within == 0 {
		o.within = time.Duration(weightOf(o.cells...)*o.rounds) * wholeCell
		if o.Quick {
			o.within = quickWithin
		}
	}
	if o.history == nil && !o.Quick {
		o.history = []int{1_000, 100_000, 1_000_000}
	}
	return o
}

// gridOf lists the cells of a round.
func gridOf(store string, quick bool, spread int) []cell {
	callers := map[string][]int{
		"engine": {1, 16, 64, 256, 1000}, "http": {1, 16, 64, 256, 1000},
		"naive": {1, 16, 64}, "cte": {1, 16, 64}, "bare": {1, 2},
	}
	if store == "sqlite" {
		delete(callers, "cte")
		callers["bare"] = []int{1}
	} else if quick {
		callers["cte"] = []int{16, 64}
	}
	var cells []cell
	for _, accounts := range []int{1, spread} {
		for _, subject := range []string{"engine", "http", "naive", "cte", "bare"} {
			for _, n := range callers[subject] {
				cells = append(cells, cell{subject, accounts, n})
			}
		}
	}
	return cells
}

// run is one run of the benchmark.
type run struct {
	Options
	store   string
	make    func(context.Context) (scratch, error)
	samples map[cell][]sample
}

func (r *run) print(format string, values ...any) { _, _ = fmt.Fprintf(r.Out, format, values...) }

// ground is a scratch database in use.
type ground struct {
	scratch  scratch
	engine   *engine.Engine
	accounts []*account
	subjects map[string]subject
}

// onScratch makes a scratch database, opens the accounts, lets do work, proves every ledger, and drops the database, also
// where ctx has ended.
func (r *run) onScratch(ctx context.Context, do func(context.Context, *ground) error) (err error) {
	s, err := r.make(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.drop(context.WithoutCancel(ctx))) }()
	catalog := workCatalog()
	e := engine.New(s.store(), engine.Options{Catalog: func(string) *holdfast.Catalog { return catalog }, Logger: slog.New(slog.DiscardHandler)})
	return during(context.WithoutCancel(ctx), e, func() error {
		g := &ground{scratch: s, engine: e}
		if err := g.open(ctx, r.accounts); err != nil {
			return err
		}
		err := do(ctx, g)
		if err == nil {
			err = g.prove(ctx, r.Quick)
		}
		return errors.Join(err, g.close())
	})
}

// open makes the accounts, does one cycle for a model of what the real store writes, and gets everybody ready.
func (g *ground) open(ctx context.Context, count int) (err error) {
	if g.accounts, err = openAccounts(ctx, g.engine, count); err != nil {
		return fmt.Errorf("open the accounts: %w", err)
	}
	keys := &keys{}
	direct := &inProcess{engine: g.engine, keys: keys}
	if _, err := direct.cycle(ctx, func() *account { return g.model() }); err != nil {
		return err
	}
	if g.subjects, err = g.scratch.baselines(ctx, g.model(), keys); err != nil {
		return err
	}
	g.subjects["engine"] = direct
	served, err := serveHTTP(g.engine, keys)
	if err != nil {
		return errors.Join(err, g.close())
	}
	g.subjects["http"] = served
	return g.scratch.settle(ctx)
}

func (g *ground) model() *account { return g.accounts[len(g.accounts)-1] }

func (g *ground) close() error {
	var errs []error
	for _, s := range g.subjects {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

// prove shows that whoever worked here kept the books: every ledger adds up, those of the baselines too. A quick run leaves
// it to the tests, for it reads everything that was written.
func (g *ground) prove(ctx context.Context, quick bool) error {
	if quick {
		return nil
	}
	if err := verify(ctx, g.scratch.store()); err != nil {
		return fmt.Errorf("the books of the scratch database do not add up: %w", err)
	}
	return nil
}

// grid measures every cell once per round, so that what else the machine does meets all of them alike. Where a slow machine
// takes longer than it should, a quick run does fewer rounds.
func (r *run) grid(ctx context.Context, g *ground) error {
	settings, err := g.scratch.durable(ctx)
	if err != nil {
		return err
	}
	r.print("%s on %d cores, %s\n%s\n", r.store, runtime.NumCPU(), runtime.Version(), settings)
	left := r.rounds * weightOf(r.cells...)
	begun := time.Now()
	until := begun.Add(r.within)
	for round := range r.rounds {
		if done := time.Since(begun); r.Quick && round > 0 && done+done/time.Duration(round) > r.within+slack {
			r.print("this machine is slow or busy: medians of %d rounds instead of %d\n", round, r.rounds)
			break
		}
		for _, c := range r.cells {
			weight := weightOf(c)
			each := max(time.Until(until)*time.Duration(weight)/time.Duration(left), shortest)
			left -= weight
			sample, err := g.measure(ctx, c, each/4, each-each/4)
			if err != nil {
				return fmt.Errorf("%s, %d accounts, %d callers: %w", c.subject, c.accounts, c.callers, err)
			}
			r.samples[c] = append(r.samples[c], sample)
		}
	}
	return nil
}

// weightOf is how the time of a round is shared out. Where many callers queue for a row lock, the queue must be there before
// it is measured, and one turn of it takes long.
func weightOf(cells ...cell) (weight int) {
	for _, c := range cells {
		weight++
		if (c.subject == "naive" || c.subject == "cte") && c.callers > bestNaive {
			weight += 3
		}
	}
	return weight
}

// slack is how much longer than planned a quick run may measure.
const slack = 5 * time.Second

// shortest is how long a cell takes at least, warm-up included.
const shortest = 100 * time.Millisecond

func (g *ground) measure(ctx context.Context, c cell, warm, length time.Duration) (sample, error) {
	return measure(ctx, g.subjects[c.subject], c.callers, g.accounts[:c.accounts], warm, length)
}

// overHistory measures the engine over ever more finished reservations, in turn with an engine on a database without any.
func (r *run) overHistory(ctx context.Context, accounts int) (results []Result, err error) {
	err = r.onScratch(ctx, func(ctx context.Context, empty *ground) error {
		return r.onScratch(ctx, func(ctx context.Context, full *ground) error {
			loaded := 0
			for _, count := range r.history {
				h := history{model: full.model(), accounts: accounts, from: loaded, until: count, at: time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)}
				if err := full.scratch.history(ctx, h); err != nil {
					return fmt.Errorf("load the history: %w", err)
				}
				loaded = count
				if err := errors.Join(full.scratch.settle(ctx), empty.scratch.settle(ctx)); err != nil {
					return err
				}
				result, err := r.besideEmpty(ctx, full, empty, accounts)
				if err != nil {
					return err
				}
				result.Baseline = fmt.Sprintf("empty_%d", count)
				results = append(results, result)
			}
			return nil
		})
	})
	return results, err
}

// besideEmpty warms both up and measures them in turn.
func (r *run) besideEmpty(ctx context.Context, full, empty *ground, accounts int) (Result, error) {
	c := cell{"engine", accounts, 64}
	each := r.within / time.Duration(r.rounds*weightOf(r.cells...))
	samples := map[*ground][]sample{}
	for round := range r.rounds + 1 {
		for _, g := range []*ground{full, empty} {
			warm := each / 4
			if round == 0 {
				warm = 3 * each // after the checkpoint every page is written whole once
			}
			sample, err := g.measure(ctx, c, warm, each)
			if err != nil {
				return Result{}, err
			}
			if round > 0 {
				samples[g] = append(samples[g], sample)
			}
		}
	}
	return compared(r.store, c, middle(samples[full]), "", middle(samples[empty])), nil
}
