package bench

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

// Result is one measured cell beside one baseline of the same run. A cell has a result for each of its baselines.
type Result struct {
	Name              string  `json:"name"`     // engine or http
	Store             string  `json:"store"`    // postgres or sqlite
	Accounts          int     `json:"accounts"` // 1: all callers on one hot account
	Callers           int     `json:"callers"`
	PerSecond         float64 `json:"per_second"` // whole cycles: a reserve and its commit
	Baseline          string  `json:"baseline"`   // see docs/reference/benchmarks.md
	BaselinePerSecond float64 `json:"baseline_per_second"`
	Ratio             float64 `json:"ratio"`  // per_second / baseline_per_second
	P50               float64 `json:"p50_ms"` // of a cycle
	P99               float64 `json:"p99_ms"`
}

func compared(store string, c cell, of sample, baseline string, against sample) Result {
	r := Result{
		Name: c.subject, Store: store, Accounts: c.accounts, Callers: c.callers, PerSecond: of.perSecond,
		Baseline: baseline, BaselinePerSecond: against.perSecond, P50: milliseconds(of.p50), P99: milliseconds(of.p99),
	}
	if against.perSecond > 0 {
		r.Ratio = of.perSecond / against.perSecond
	}
	return r
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// results compares every measured cell of the engine and of HTTP with what it is to be compared with, as far as that was
// measured too.
func (r *run) results() []Result {
	var results []Result
	for _, c := range r.cells {
		if c.subject != "engine" && c.subject != "http" {
			continue
		}
		of := middle(r.samples[c])
		for _, b := range r.baselinesOf(c) {
			if samples := r.samples[b.cell]; len(samples) > 0 {
				results = append(results, compared(r.store, c, of, b.name, middle(samples)))
			}
		}
	}
	return results
}

type namedCell struct {
	name string
	cell cell
}

// baselinesOf lists what a cell is compared with.
func (r *run) baselinesOf(c cell) []namedCell {
	if c.subject == "http" {
		return []namedCell{
			{"engine", cell{"engine", c.accounts, c.callers}},
			{"naive", cell{"naive", c.accounts, c.callers}},
		}
	}
	all := []namedCell{
		{"naive", cell{"naive", c.accounts, c.callers}},
		{"naive_16", cell{"naive", c.accounts, bestNaive}},
		{"cte", cell{"cte", c.accounts, c.callers}},
		{"bare", cell{"bare", c.accounts, 2}},
		{"bare_1", cell{"bare", c.accounts, 1}},
	}
	if r.store == "sqlite" {
		all = []namedCell{
			{"naive", cell{"naive", c.accounts, c.callers}},
			{"bare", cell{"bare", c.accounts, 1}},
			{"one_caller", cell{"engine", c.accounts, 1}},
		}
	}
	return all
}

// printResults writes one line for each measured cell, with the ratio to each of its baselines.
func printResults(out io.Writer, results []Result) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	var last Result
	for i, r := range results {
		same := i > 0 && r.Name == last.Name && r.Accounts == last.Accounts && r.Callers == last.Callers && r.PerSecond == last.PerSecond
		if !same {
			if i > 0 {
				_, _ = fmt.Fprintln(table)
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%d callers\t%.0f/s\tp50 %.1f ms\tp99 %.1f ms", r.Name, where(r.Accounts), r.Callers, r.PerSecond, r.P50, r.P99)
		}
		_, _ = fmt.Fprintf(table, "\t%s × %s (%.0f/s)", ratio(r.Ratio), r.Baseline, r.BaselinePerSecond)
		last = r
	}
	_, _ = fmt.Fprintln(table)
	_ = table.Flush() // the tables are for whoever looks on
}

func where(accounts int) string {
	if accounts == 1 {
		return "one hot account"
	}
	return fmt.Sprintf("%d accounts", accounts)
}

func ratio(r float64) string {
	if r < 10 {
		return fmt.Sprintf("%.2f", r)
	}
	return fmt.Sprintf("%.1f", r)
}

// goal is a ratio that is aimed at on two cores, all on one machine.
type goal struct {
	store, name  string
	hot          bool
	callers      int
	baseline     string
	atLeast      float64
	inTheseWords string
}

var goals = []goal{
	{"postgres", "engine", true, 64, "naive", 50, "the naive pattern, same callers"},
	{"postgres", "engine", true, 64, "cte", 25, "one writable CTE per phase, same callers"},
	{"postgres", "engine", false, 64, "naive", 10, "the naive pattern, same callers"},
	{"postgres", "engine", true, 64, "bare", 0.30, "share of the bare loop, 2 connections"},
	{"postgres", "engine", true, 256, "bare", 0.50, "share of the bare loop, 2 connections"},
	{"postgres", "engine", true, 1000, "bare", 0.65, "share of the bare loop, 2 connections"},
	{"postgres", "engine", false, 64, "bare", 0.45, "share of the bare loop, 2 connections"},
	{"postgres", "engine", false, 256, "bare", 0.60, "share of the bare loop, 2 connections"},
	{"postgres", "engine", false, 1000, "bare", 0.75, "share of the bare loop, 2 connections"},
	{"postgres", "http", true, 64, "engine", 0.50, "HTTP against in-process"},
	{"postgres", "http", true, 256, "engine", 0.45, "HTTP against in-process"},
	{"postgres", "http", false, 64, "engine", 0.50, "HTTP against in-process"},
	{"postgres", "http", false, 256, "engine", 0.45, "HTTP against in-process"},
	{"postgres", "engine", true, 64, "empty_1000000", 0.85, "10^6 finished reservations, warm"},
	{"postgres", "engine", false, 64, "empty_1000000", 0.75, "10^6 finished reservations, warm"},
	{"sqlite", "engine", true, 64, "one_caller", 7, "64 callers against one"},
	{"sqlite", "engine", false, 64, "one_caller", 2.3, "64 callers against one"},
	{"sqlite", "http", true, 64, "engine", 0.50, "HTTP against in-process"},
	{"sqlite", "http", false, 64, "engine", 0.50, "HTTP against in-process"},
}

func (g goal) is(r Result) bool {
	return r.Store == g.store && r.Name == g.name && (r.Accounts == 1) == g.hot && r.Callers == g.callers && r.Baseline == g.baseline
}

// printGoals says which goals were met. A goal that is not met fails nothing: a busy machine is no fault of the program.
func printGoals(out io.Writer, results []Result) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	any := false
	for _, g := range goals {
		for _, r := range results {
			if !g.is(r) {
				continue
			}
			if !any {
				_, _ = fmt.Fprintln(table, "\ngoal\t\t\tat least\tmeasured\t")
				any = true
			}
			verdict := "met"
			if r.Ratio < g.atLeast {
				verdict = "not met"
			}
			_, _ = fmt.Fprintf(table, "%s, %s\t%d callers\t%s\t%s\t%s\t%s\n",
				r.Name, where(r.Accounts), r.Callers, g.inTheseWords, ratio(g.atLeast), ratio(r.Ratio), verdict)
		}
	}
	_ = table.Flush()
}
