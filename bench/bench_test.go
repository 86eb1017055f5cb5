package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
)

var (
	whole   = flag.Bool("whole", false, "run the whole grid on PostgreSQL and SQLite and print it: make bench")
	jsonOut = flag.String("json", "", "with -whole: write all results to this file")
)

// urls are a database of each kind to measure beside.
var urls = map[string]func(*testing.T) string{
	"sqlite":   func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "users.db") },
	"postgres": func(t *testing.T) string { return pgtest.NewEmpty(t) },
}

func onEachStore(t *testing.T, test func(t *testing.T, store, url string)) {
	for _, name := range slices.Sorted(maps.Keys(urls)) {
		t.Run(name, func(t *testing.T) { test(t, name, urls[name](t)) })
	}
}

// tiny is a run of some hundred milliseconds for every kind of cell.
func tiny(store, url string) Options {
	o := Options{URL: url, accounts: 20, rounds: 1}
	for _, c := range gridOf(store, true, o.accounts) {
		if c.callers <= 16 {
			o.cells = append(o.cells, c)
		}
	}
	o.within = time.Duration(len(o.cells)) * shortest
	return o
}

func TestTheWholeGrid(t *testing.T) {
	if !*whole {
		t.Skip("make bench")
	}
	var all []Result
	for _, name := range []string{"postgres", "sqlite"} {
		results, err := Run(t.Context(), Options{URL: urls[name](t), Out: os.Stdout})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, results...)
	}
	if *jsonOut == "" {
		return
	}
	text, err := json.MarshalIndent(all, "", "  ")
	if err == nil {
		err = os.WriteFile(*jsonOut, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestResultsHaveTheFieldsThatAreDocumentedAndPlausibleFigures(t *testing.T) {
	onEachStore(t, func(t *testing.T, name, url string) {
		o := tiny(name, url)
		o.Quick = true
		var out bytes.Buffer
		o.Out = &out
		results, err := Run(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(results)
		if err != nil {
			t.Fatal(err)
		}
		var rows []map[string]any
		if err := json.Unmarshal(text, &rows); err != nil {
			t.Fatal(err)
		}
		fields := []string{"accounts", "baseline", "baseline_per_second", "callers", "name", "p50_ms", "p99_ms", "per_second", "ratio", "store"}
		seen := map[string]bool{}
		for i, row := range rows {
			if got := slices.Sorted(maps.Keys(row)); !slices.Equal(got, fields) {
				t.Fatalf("row %d has the fields %v, not %v", i, got, fields)
			}
			r := results[i]
			if r.Store != name || r.Accounts != 1 && r.Accounts != o.accounts || r.Name != "engine" && r.Name != "http" {
				t.Errorf("%+v is about nothing that was asked for", r)
			}
			if r.PerSecond <= 0 || r.BaselinePerSecond <= 0 || r.Ratio <= 0 || r.P50 <= 0 || r.P99 < r.P50 {
				t.Errorf("%+v: a figure is missing", r)
			}
			seen[r.Name+" against "+r.Baseline] = true
		}
		want := map[string][]string{
			"sqlite":   {"engine against bare", "engine against naive", "engine against one_caller", "http against engine", "http against naive"},
			"postgres": {"engine against bare", "engine against bare_1", "engine against cte", "engine against naive", "engine against naive_16", "http against engine", "http against naive"},
		}[name]
		if got := slices.Sorted(maps.Keys(seen)); !slices.Equal(got, want) {
			t.Errorf("compared: %v, want %v", got, want)
		}
		for _, part := range []string{"callers", "one hot account", "20 accounts", "× naive", "synchronous"} {
			if !strings.Contains(out.String(), part) {
				t.Errorf("the table does not say %q:\n%s", part, &out)
			}
		}
	})
}

// Every subject does the same work: after it has run, every ledger of its database adds up, and holds a reserve, a commit,
// an answer and two events for each cycle.
func TestEveryBaselineKeepsTheBooksThatTheEngineKeeps(t *testing.T) {
	onEachStore(t, func(t *testing.T, name, url string) {
		ctx := t.Context()
		for _, subject := range []string{"engine", "http", "naive", "cte", "bare"} {
			if name == "sqlite" && subject == "cte" {
				continue
			}
			t.Run(subject, func(t *testing.T) {
				r := newRun(t, Options{URL: url, accounts: 12})
				err := r.onScratch(ctx, func(ctx context.Context, g *ground) error {
					callers := 2
					if name == "sqlite" && subject == "bare" {
						callers = 1
					}
					before := countRows(t, g)
					for _, accounts := range []int{1, 12} { // both on the hot account, then each where it likes
						if _, err := g.measure(ctx, cell{subject, accounts, callers}, 0, 150*time.Millisecond); err != nil {
							return err
						}
					}
					after := countRows(t, g)
					done := after.reservations - before.reservations
					if done == 0 || after.live != 0 {
						t.Errorf("%d cycles were done and %d are not finished", done, after.live)
					}
					if entries := after.entries - before.entries; entries != 2*done {
						t.Errorf("%d cycles wrote %d entries", done, entries)
					}
					if used := after.used - before.used; used != holdfast.Amount(done)*price {
						t.Errorf("%d cycles were charged %d", done, used)
					}
					if answers, events := after.answers-before.answers, after.events-before.events; answers != done || events != 2*done {
						t.Errorf("%d cycles wrote %d answers and %d events", done, answers, events)
					}
					return nil // onScratch proves every ledger when this returns
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

type rowCounts struct {
	reservations, live, entries, answers, events int
	used                                         holdfast.Amount
}

func countRows(t *testing.T, g *ground) (n rowCounts) {
	t.Helper()
	err := g.scratch.store().Dump(t.Context(), func(r store.Record) error {
		for _, pocket := range r.Grants {
			n.used += pocket.Used
		}
		for reservation, err := range r.Reservations {
			if err != nil {
				return err
			}
			n.reservations++
			if reservation.Live() {
				n.live++
			}
		}
		for _, err := range r.Entries {
			if err != nil {
				return err
			}
			n.entries++
		}
		return nil
	})
	if err == nil {
		n.answers, n.events, err = g.scratch.count(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func newRun(t *testing.T, o Options) *run {
	t.Helper()
	name, make, err := storeOf(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	return &run{Options: o.withDefaults(name), store: name, make: make, samples: map[cell][]sample{}}
}

func TestLoadedHistoryKeepsTheBooks(t *testing.T) {
	onEachStore(t, func(t *testing.T, name, url string) {
		for _, accounts := range []int{1, 7} {
			r := newRun(t, Options{URL: url, accounts: 7})
			err := r.onScratch(t.Context(), func(ctx context.Context, g *ground) error {
				before := countRows(t, g)
				for _, part := range [][2]int{{0, 40}, {40, 1003}} {
					h := history{model: g.model(), accounts: accounts, from: part[0], until: part[1], at: time.Now().Add(-time.Hour).UTC().Truncate(time.Microsecond)}
					if err := g.scratch.history(ctx, h); err != nil {
						return err
					}
				}
				// The engine goes on where the history ends.
				if _, err := g.measure(ctx, cell{"engine", 7, 4}, 0, 50*time.Millisecond); err != nil {
					return err
				}
				after := countRows(t, g)
				if more := after.reservations - before.reservations; more <= 1003 || after.answers-before.answers != more || after.events-before.events != 2*more {
					t.Errorf("%d reservations, %d answers and %d events were added", more, after.answers-before.answers, after.events-before.events)
				}
				return nil
			})
			if err != nil {
				t.Fatalf("%d accounts: %v", accounts, err)
			}
		}
	})
}

func TestTheHistoryIsMeasuredBesideAnEmptyOne(t *testing.T) {
	o := tiny("sqlite", urls["sqlite"](t))
	o.history = []int{100, 300}
	o.cells = o.cells[:2]
	o.within = 2 * shortest
	results, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range results {
		if strings.HasPrefix(r.Baseline, "empty") {
			got = append(got, r.Baseline)
		}
	}
	if want := []string{"empty_100", "empty_300", "empty_100", "empty_300"}; !slices.Equal(got, want) {
		t.Errorf("measured beside %v, want %v", got, want)
	}
}

func TestNothingIsLeftBesideTheUsersDatabase(t *testing.T) {
	folder := t.TempDir()
	interrupted, stop := context.WithCancelCause(t.Context())
	r := newRun(t, Options{URL: "sqlite:" + filepath.Join(folder, "users.db"), accounts: 3})
	err := r.onScratch(interrupted, func(ctx context.Context, g *ground) error {
		stop(errors.New("the user has pressed ^C"))
		_, err := g.measure(ctx, cell{"engine", 1, 1}, 0, time.Second)
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "^C") {
		t.Errorf("an interrupted run ended with %v", err)
	}
	left, err := os.ReadDir(folder)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestEventsOfBaselinesAreNamedAsTheCoreNamesThem(t *testing.T) {
	state := holdfast.NewState(project, "ann")
	state.Account.LastEntry = 1<<40 + 513
	state.Account.Version = 1
	command := holdfast.Command{ID: holdfast.ID{1}, Project: project, Account: "ann", Key: "k", Actor: actor, Do: holdfast.AddGrant{Unit: unit, Amount: 1}}
	if outcome := holdfast.Decide(workCatalog(), state, command, time.Now()); outcome.Reason != "" {
		t.Fatal(outcome.Reason)
	}
	changes, _ := state.Changes()
	event := changes.Events[0]
	if want := eventID(event.Entry); event.ID != want {
		t.Errorf("event %s, not %s", event.ID, holdfast.ID(want))
	}
}

func TestOnlyDatabasesThatLastAreMeasured(t *testing.T) {
	for _, url := range []string{"memory:", "sqlite:", "mysql://x", ""} {
		if _, err := Run(t.Context(), Options{URL: url}); err == nil {
			t.Errorf("%q was measured", url)
		}
	}
}

func TestACallCountsByItsShareOfTheWindow(t *testing.T) {
	at := func(ms int) time.Time { return time.Unix(0, 0).Add(time.Duration(ms) * time.Millisecond) }
	for _, c := range []struct {
		begun, ended int
		want         float64
	}{{0, 50, 0}, {50, 150, 0.5}, {120, 130, 1}, {150, 350, 0.25}, {0, 400, 0.25}, {250, 260, 0}} {
		if got := share(at(c.begun), at(c.ended), at(100), at(200)); got != c.want {
			t.Errorf("a call from %d to %d counts %v, want %v", c.begun, c.ended, got, c.want)
		}
	}
}

func TestMediansAndPercentiles(t *testing.T) {
	samples := []sample{{3, 1, 9}, {1, 2, 8}, {2, 30, 7}}
	if got, want := middle(samples), (sample{2, 2, 8}); got != want {
		t.Errorf("the middle is %v, want %v", got, want)
	}
	if got := middle(samples[:2]).perSecond; got != 2 {
		t.Errorf("the middle of two is %v", got)
	}
	var sorted []time.Duration
	for i := range 200 {
		sorted = append(sorted, time.Duration(i))
	}
	if percentile(sorted, 50) != 100 || percentile(sorted, 99) != 198 || percentile(nil, 50) != 0 {
		t.Error("percentiles are wrong")
	}
}

func TestGoalsAreJudgedAndFailNothing(t *testing.T) {
	var out bytes.Buffer
	printGoals(&out, []Result{
		{Name: "engine", Store: "postgres", Accounts: 1, Callers: 64, Baseline: "naive", Ratio: 51},
		{Name: "engine", Store: "postgres", Accounts: 1, Callers: 64, Baseline: "cte", Ratio: 3},
		{Name: "engine", Store: "postgres", Accounts: 1, Callers: 16, Baseline: "cte", Ratio: 3},
	})
	if met, missed := strings.Count(out.String(), " met\n"), strings.Count(out.String(), "not met"); met-missed != 1 || missed != 1 {
		t.Errorf("one goal is met and one is not:\n%s", &out)
	}
}
