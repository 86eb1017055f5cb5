package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/store"
)

// drillCommand runs the acceptance scenarios on the user's own database, also beside a process that serves it. It works
// in scratch projects of its own, with catalogs of its own, and touches nobody else.
type drillCommand struct{ databaseFlags }

func (c drillCommand) Run(ctx context.Context, t *terminal) error {
	d := &drill{
		name:    c.name(),
		project: "drill-" + strings.ToLower(rand.Text()[:10]),
		rounds:  drillRounds,
		open:    c.opener(),
		out:     t.out,
		log:     logger(t.notes, slog.LevelWarn),
	}
	return d.run(ctx)
}

// opener opens the database again and again, each time with connections of its own, as other processes would. What is
// kept in memory can only be opened once: every caller gets the same.
func (c drillCommand) opener() func(context.Context) (database, error) {
	if c.DB != "memory:" {
		return func(ctx context.Context) (database, error) { return c.open(ctx, writing) }
	}
	once := sync.OnceValues(func() (database, error) { return c.open(context.Background(), writing) })
	return func(context.Context) (database, error) {
		db, err := once()
		return keptOpen{db}, err
	}
}

// keptOpen is a database that others go on using.
type keptOpen struct{ database }

// Close leaves the database open.
func (keptOpen) Close() error { return nil }

// drill is one run of the scenarios.
type drill struct {
	name    string // of the database, as the user wrote it
	project string
	rounds  int // of each race
	open    func(context.Context) (database, error)
	out     io.Writer
	log     *slog.Logger

	clock    handClock
	store    database
	engines  []*engine.Engine // two, each with connections of its own, so that callers meet in the database and not before
	desks    []*payment.Desk  // of each engine
	accounts []account
}

// scenario is one thing that must hold. It returns what it counted, and an error that says what was expected and what came.
type scenario struct {
	name, holds string
	play        func(ctx context.Context, d *drill) (figures string, err error)
}

const (
	// drillRounds is how often the races are run.
	drillRounds = 100
	// tidyFor bounds what an interrupted drill still does.
	tidyFor = 15 * time.Second
)

func scenarios(rounds int) []scenario {
	return []scenario{
		{fmt.Sprintf("last unit × %d, 2 callers", rounds), "one gets it, running work holds it from the other", lastUnit("last-unit-2", 2)},
		{fmt.Sprintf("last unit × %d, 50 callers", rounds), "one gets it, running work holds it from the others", lastUnit("last-unit-50", 50)},
		{fmt.Sprintf("last slot × %d, 2 callers", rounds), "one gets it, the other is told of the limit", lastSlot("last-slot-2", 2)},
		{"crash before the job exists", "held across the crash, freed at its expiry, once", crashBeforeTheJob},
		{"killed between commit and publication", "what was committed is told, in order and once", killedBeforePublication},
		{"duplicate delivery", "one key: one reservation, one grant, one answer", duplicateDelivery},
		{"period edge", "charged to the window it was taken from, nothing doubled", periodEdge},
		{"unlock after a dead worker", "the old lease is worthless, the slot comes back", deadWorker},
		{"killed worker", "its job is given away, charged once, and not for ever", killedWorker},
		{"late result", "charged from what is available, once", lateResult},
		{"overrun: cap", "what exceeds the hold is not charged", overrunCap},
		{"overrun: extend", "taken from what is available, the rest is not charged", overrunExtend},
		{"overrun: debt", "as extend, the rest is owed up to the limit, repaid once", overrunDebt},
		{"late commit: charge", "taken from what is available now, never owed", lateCharge},
		{"late commit: absorb", "nothing is charged", lateAbsorb},
		{"doubt, then news", "slot free, money held, no new start; anybody settles it", doubtSettled},
		{"doubt without news", "at its expiry the feature's policy decides", doubtExpired},
		{"cancel while it runs", "the worker is told, and says what was used", cancelRunning},
		{"cancel, the worker dies", "released as cancelled, never tried again", cancelAbandoned},
		{"duplicate payment", "however often it is told, it has its effect once", duplicatePayment},
		{"refund before payment", "kept, and taken back when the payment arrives", refundBeforePayment},
		{"refund after spending", "its share is taken back, at most what is unused", refundAfterSpending},
		{"merge with live work", "ids stay good, what comes back follows, once", mergeWithLiveWork},
		{"renewal at the edge", "periods without gap or overlap, what is left is carried", renewalAtTheEdge}, // from here on the clock moves by weeks
		{"month ends", "months keep to the 31st, what is left is carried once", monthEnds},                   // the last: it moves the clock by months
	}
}

// run plays every scenario, prints a line for each, leaves nothing live behind, and proves the scratch ledgers.
func (d *drill) run(ctx context.Context) error {
	d.clock.moveTo(time.Now().UTC().Truncate(time.Microsecond))
	return d.onEngine(ctx, func(first database, one *engine.Engine) error {
		return d.onEngine(ctx, func(second database, two *engine.Engine) error {
			d.store, d.engines = first, []*engine.Engine{one, two}
			d.desks = []*payment.Desk{{Engine: one, Claims: first}, {Engine: two, Claims: second}}
			return d.play(ctx)
		})
	})
}

// onEngine opens the database, and runs an engine on it while do works.
func (d *drill) onEngine(ctx context.Context, do func(database, *engine.Engine) error) (err error) {
	opened, err := d.open(ctx)
	if err != nil {
		return fmt.Errorf("open %s: %w", d.name, err)
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	s := scratchOnly{opened, d.isScratch}
	e := engine.New(s, engine.Options{Catalog: d.catalog, Now: d.clock.now, Logger: d.log, SweepEvery: -1})
	// An interrupted drill still tidies up, so its engines outlive ctx; they stop when do returns.
	return during(context.WithoutCancel(ctx), e, func() error { return do(s, e) })
}

func (d *drill) play(ctx context.Context) error {
	d.print("drill on %s, in the scratch project %s\n\n", d.name, d.project)
	d.row("scenario", "what must hold", "result", "figures")
	all := append(scenarios(d.rounds), scenario{"verify", "every scratch ledger adds up, nothing is left live", tidyAndVerify})
	var failures []string
	for _, s := range all {
		figures, err := s.play(ctx, d)
		if ctx.Err() != nil {
			tidying, cancel := context.WithTimeout(context.WithoutCancel(ctx), tidyFor)
			defer cancel()
			_, left := tidyAndVerify(tidying, d)
			return errors.Join(fmt.Errorf("the drill was interrupted in %q: %w", s.name, context.Cause(ctx)), left)
		}
		result := "ok"
		if err != nil {
			result, figures = "FAILED", ""
			failures = append(failures, s.name+":\n  "+strings.ReplaceAll(err.Error(), "\n", "\n  "))
		}
		d.row(s.name, s.holds, result, figures)
	}
	for _, failure := range failures {
		d.print("\n%s\n", failure)
	}
	d.print("\n%d of %d hold. The %d accounts of %s stay in the database, for a ledger is never erased; nobody else's were touched.\n",
		len(all)-len(failures), len(all), len(d.accounts), d.project)
	if len(failures) > 0 {
		return errDifferent
	}
	return nil
}

func (d *drill) row(name, holds, result, figures string) {
	d.print("%s\n", strings.TrimRight(fmt.Sprintf("%-37s  %-56s  %-6s  %s", name, holds, result, figures), " "))
}

func (d *drill) print(format string, values ...any) { _, _ = fmt.Fprintf(d.out, format, values...) }

// handClock stands still until it is moved, and is moved forward only. It begins at the real time, and what the drill
// reserves lasts many times longer than the drill: a sweeper that serves the same database by the real clock finds nothing
// of it overdue.
type handClock struct {
	mu sync.Mutex
	at time.Time
}

func (c *handClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

// moveTo moves the clock to an instant, or leaves it where it is later.
func (c *handClock) moveTo(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.at) {
		c.at = at
	}
}

// scratchOnly keeps the drill's clock, which runs ahead, from everybody else. It shows the drill's sweeper the drill's own
// accounts alone: by its clock, other people's reservations would look overdue, and their workers dead. And it writes that they were last decided
// about now: a server that starts afterwards takes a decision ahead of its clock for a clock that is wrong.
type scratchOnly struct {
	database
	isScratch func(holdfast.AccountID) bool
}

// Scan pages through the hints until it has a page of scratch accounts.
func (s scratchOnly) Scan(ctx context.Context, due store.Due) ([]holdfast.AccountID, error) {
	var scratch []holdfast.AccountID
	for {
		page, err := s.database.Scan(ctx, due)
		if err != nil {
			return nil, err
		}
		for _, id := range page {
			if s.isScratch(id) {
				scratch = append(scratch, id)
			}
			if len(scratch) == due.Limit {
				return scratch, nil
			}
		}
		if len(page) < due.Limit {
			return scratch, nil
		}
		due.After = page[len(page)-1]
	}
}

// LostJobs pages through the hints as Scan does: by this clock the workers of other people are long dead.
func (s scratchOnly) LostJobs(ctx context.Context, at time.Time, after store.JobRef, limit int) ([]store.JobRef, error) {
	var scratch []store.JobRef
	for {
		page, err := s.database.LostJobs(ctx, at, after, limit)
		if err != nil {
			return nil, err
		}
		for _, job := range page {
			if s.isScratch(job.Account) {
				scratch = append(scratch, job)
			}
			if len(scratch) == limit {
				return scratch, nil
			}
		}
		if len(page) < limit {
			return scratch, nil
		}
		after = page[len(page)-1]
	}
}

// Begin wraps the transaction.
func (s scratchOnly) Begin(ctx context.Context) (store.Tx, error) {
	tx, err := s.database.Begin(ctx)
	return decidedNow{tx}, err
}

type decidedNow struct{ store.Tx }

// Save writes no time of a decision that lies ahead.
func (tx decidedNow) Save(ctx context.Context, changes []holdfast.Changes) error {
	now := time.Now().UTC().Truncate(time.Microsecond)
	changes = slices.Clone(changes)
	for i := range changes {
		if account := &changes[i].Account; account.DecidedAt.After(now) {
			account.DecidedAt = now
		}
	}
	return tx.Tx.Save(ctx, changes)
}

func (d *drill) isScratch(id holdfast.AccountID) bool {
	return slices.ContainsFunc(d.accounts, func(a account) bool { return a.id() == id })
}

// tidyAndVerify ends what a scenario left live, closes every pocket, so that the scratch project is in nobody's way when
// a catalog is changed, and proves the ledgers.
func tidyAndVerify(ctx context.Context, d *drill) (string, error) {
	var found []error
	for _, a := range d.accounts {
		found = append(found, a.endEverything(ctx))
	}
	found = append(found, d.moveOn(ctx)) // before anybody is deleted to whom it goes
	for _, a := range d.accounts {
		found = append(found, a.leavePlan(ctx))
	}
	found = append(found, d.moveOn(ctx)) // word of it, to the names that lead to whom was deleted
	for _, a := range d.accounts {
		found = append(found, a.closePockets(ctx))
	}
	figures, err := d.verify(ctx)
	return figures, errors.Join(append(found, err)...)
}

func (d *drill) verify(ctx context.Context) (string, error) {
	accounts, entries := 0, int64(0)
	var found []error
	err := d.store.Dump(ctx, func(r store.Record) error {
		if !d.isScratch(r.Account.ID) {
			return nil
		}
		accounts++
		entries += r.Account.LastEntry
		differences, err := holdfast.Verify(&r.Account, r.Grants, r.Reservations, r.Entries)
		for _, difference := range differences {
			found = append(found, fmt.Errorf("%s: %s", r.Account.Name, difference))
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("read every ledger: %w", err)
	}
	found = append(found, same("accounts in the database", accounts, len(d.accounts)))
	return fmt.Sprintf("%d accounts, %d entries", accounts, entries), errors.Join(found...)
}

// same is nil, or says what was expected and what came.
func same[T comparable](what string, got, want T) error {
	if got == want {
		return nil
	}
	return fmt.Errorf("%s: expected %v, got %v", what, want, got)
}
