package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
)

// everyRow is what a drill prints where everything holds.
var everyRow = []string{
	`last unit × 100, 2 callers .* ok +200 calls: 100 reserved, 100 held_by_active\n`,
	`last unit × 100, 50 callers .* ok +5000 calls: 100 reserved, 4900 held_by_active\n`,
	`last slot × 100, 2 callers .* ok +200 calls: 100 reserved, 100 too_many_active\n`,
	`crash before the job exists .* ok +available 3 → 1 → 3\n`,
	`killed between commit and publication .* ok +3 entries: 3 events, in order\n`,
	`duplicate delivery .* ok +103 deliveries: 2 reserved, 100 granted once\n`,
	`period edge .* ok +windows of 3: used 3, then used 1 and voided 2\n`,
	`unlock after a dead worker .* ok +2 leases, 3 stale calls, slot free\n`,
	`killed worker .* ok +2 attempts: charged 1; lost twice: charged 0\n`,
	`late result .* ok +held 2, 1 available: charged 1, unbilled 1\n`,
	`overrun: cap .* ok +held 18, used 25, 5 available: charged 18, unbilled 7\n`,
	`overrun: extend .* ok +held 18, used 25, 5 available: charged 23, unbilled 2\n`,
	`overrun: debt .* ok +held 18, used 25, 5 available: charged 23, owed 1, unbilled 1\n`,
	`late commit: charge .* ok +held 10, swept, 4 available: charged 4, unbilled 6\n`,
	`late commit: absorb .* ok +held 10, swept, 4 available: charged 0, unbilled 10\n`,
	`doubt, then news .* ok +active 2 → 1 → 2, held 1, settled without the lease\n`,
	`doubt without news .* ok +held 2: release expired, charge committed 2\n`,
	`cancel while it runs .* ok +held 5, three fifths used: charged 3, returned 2\n`,
	`cancel, the worker dies .* ok +held 2, returned 2, 1 attempt\n`,
	`duplicate payment .* ok +22 deliveries: 300 bought once, 30 days once\n`,
	`refund before payment .* ok +300 bought, 100 of 250 refunded before: 180 left\n`,
	`refund after spending .* ok +of 300: used 100, taken back 120; used 250, taken back 50\n`,
	`merge with live work .* ok +300 and 300, held 70: 530, then used 30 and 570\n`,
	`renewal at the edge .* ok +early, and at the end: 300 each; carried 100, then 50 more\n`,
	`month ends .* ok +Jan 31, Feb 28, Mar 31; carried 100, then 50 more\n`,
	`verify .* ok +29 accounts, \d+ entries\n`,
	`\n26 of 26 hold\.`,
}

// inTemporary is a database file of the test's own.
func inTemporary(t *testing.T) string {
	t.Helper()
	return "sqlite:" + filepath.Join(t.TempDir(), "holdfast.db")
}

// drillOn runs the command as main would, and returns its exit code and output.
func drillOn(t *testing.T, db string) (code int, out, notes string) {
	t.Helper()
	var o, n bytes.Buffer
	code = run(t.Context(), []string{"drill", "--db", db}, &terminal{out: &o, notes: &n})
	return code, o.String(), n.String()
}

func mustHold(t *testing.T, db string) {
	t.Helper()
	code, out, notes := drillOn(t, db)
	if code != 0 || notes != "" {
		t.Errorf("exit %d, want 0\n%s%s", code, out, notes)
	}
	for _, row := range everyRow {
		if !regexp.MustCompile(row).MatchString(out) {
			t.Errorf("no row is like %q in\n%s", row, out)
		}
	}
}

func TestDrillHoldsOnAFileAndLeavesItUsable(t *testing.T) {
	t.Parallel()
	db := inTemporary(t)
	mustHold(t, db)
	var out, notes bytes.Buffer
	if code := run(t.Context(), []string{"verify", "--db", db}, &terminal{out: &out, notes: &notes}); code != 0 {
		t.Errorf("verify after the drill: exit %d\n%s%s", code, &out, &notes)
	}
	opened, err := databaseFlags{DB: db}.open(t.Context(), reading)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = opened.Close() }()
	nothingInUse(t, opened)
	// Nor in the way of a server: its clock may not look as if it were months behind.
	var warnings bytes.Buffer
	if err := checkClock(t.Context(), opened, logger(&warnings, slog.LevelDebug)); err != nil || warnings.Len() > 0 {
		t.Errorf("the clock of a server after the drill: %v, %s", err, &warnings)
	}
}

func TestDrillHoldsInMemory(t *testing.T) {
	t.Parallel()
	mustHold(t, "memory:")
}

func TestDrillBesideAServingProcessTouchesNobodyElse(t *testing.T) {
	t.Parallel()
	needsSignals(t)
	db := inTemporary(t)
	command := holdfastCommand(t, "serve", "--dev", "--db", db, "--listen", "127.0.0.1:0", "--sweep-every", "100ms")
	command.Env = append(command.Env, "HOLDFAST_DEV_KEY=development")
	server := startProcess(t, command)
	address := strings.TrimPrefix(server.until("listening on ")[0], "listening on ")
	api := newAPIClient(address, "development")
	defer api.http.CloseIdleConnections()
	ann, err := api.do(t.Context(), apiCall{
		method: http.MethodPost, path: "/v1/reservations", key: "m1", body: map[string]any{"account": "telegram:42", "feature": demoFeature},
	})
	if err != nil || ann.status != http.StatusCreated {
		t.Fatalf("reserve: %+v, %v", ann, err)
	}

	// Bob's job is in the hands of its last worker.
	bob, err := api.do(t.Context(), apiCall{
		method: http.MethodPost, path: "/v1/reservations", key: "m1",
		body: map[string]any{"account": "telegram:43", "feature": demoFeature, "job": map[string]any{"max_attempts": 1}},
	})
	if err == nil {
		_, err = api.do(t.Context(), apiCall{
			method: http.MethodPost, path: "/v1/reservations/" + bob.ID + "/start", body: map[string]any{"worker": "w1", "lease_seconds": 300},
		})
	}
	if err != nil {
		t.Fatal(err)
	}

	mustHold(t, db)

	// The drill's clock has run hours ahead of Ann's five minutes, and of the lease of Bob's worker.
	after, err := api.do(t.Context(), apiCall{method: http.MethodGet, path: "/v1/reservations/" + ann.ID})
	if err != nil || after.State != string(holdfast.Reserved) || !after.ExpiresAt.Equal(ann.ExpiresAt) {
		t.Errorf("Ann's reservation after the drill is %+v, %v; it was %+v", after, err, ann)
	}
	after, err = api.do(t.Context(), apiCall{method: http.MethodGet, path: "/v1/reservations/" + bob.ID})
	if err != nil || after.State != string(holdfast.Running) {
		t.Errorf("Bob's job after the drill is %+v, %v", after, err)
	}
	server.interrupt()
}

func TestDrillSaysWhyADatabaseCannotBeOpened(t *testing.T) {
	t.Parallel()
	noDatabase := filepath.Join(t.TempDir(), "notes.txt")
	if err := os.WriteFile(noDatabase, []byte(strings.Repeat("this is no database, it is a text. ", 200)), 0o600); err != nil {
		t.Fatal(err)
	}
	for db, says := range map[string]string{
		"postgres://127.0.0.1:1/holdfast":                                "cannot be reached",
		"mysql://localhost/holdfast":                                     "use sqlite:PATH",
		"sqlite:" + filepath.Join(t.TempDir(), "missing", "holdfast.db"): "make the directory first",
		"sqlite:" + noDatabase:                                           noDatabase,
	} {
		code, out, notes := drillOn(t, db)
		if code != 1 || out != "" || !strings.Contains(notes, says) {
			t.Errorf("drill on %s: exit %d, want 1 and %q\n%s%s", db, code, says, out, notes)
		}
	}
}

func TestAnInterruptedDrillTidiesUp(t *testing.T) {
	t.Parallel()
	for account, row := range map[string]string{
		"delivery":     "duplicate delivery",
		"merge-from":   "merge with live work",
		"renewal-late": "renewal at the edge",
	} {
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			db := memory.Open()
			ctx, interrupt := context.WithCancelCause(t.Context())
			interrupted := &brokenStore{database: db, save: func(c holdfast.Changes) holdfast.Changes {
				if c.Account.Name == account && len(c.NewReservations) > 0 {
					interrupt(errors.New("Ctrl-C"))
				}
				return c
			}}
			code, out := drillStore(ctx, t, interrupted)
			if code != 1 || !strings.Contains(out, `interrupted in "`+row+`"`) {
				t.Errorf("exit %d\n%s", code, out)
			}
			nothingInUse(t, db)
			if result, err := verify(t.Context(), db); err != nil || len(result.differences) > 0 {
				t.Errorf("%v %v, %v", result, result.differences, err)
			}
		})
	}
}

// nothingInUse checks that the scratch projects stand in the way of no later catalog: nobody is on a plan of theirs, and
// nothing of their units is left.
func nothingInUse(t *testing.T, db database) {
	t.Helper()
	plans, err := db.PlansInUse(t.Context(), "")
	if err != nil || len(plans) > 0 {
		t.Errorf("plans in use after the drill: %v, %v", plans, err)
	}
	units, err := db.UnitsInUse(t.Context(), "")
	if err != nil || len(units) > 0 {
		t.Errorf("units in use after the drill: %v, %v", units, err)
	}
}

// drillStore runs a drill on a store of the test's own.
func drillStore(ctx context.Context, t *testing.T, s database) (code int, out string) {
	t.Helper()
	var written bytes.Buffer
	d := &drill{
		name: t.Name(), project: "drill-test", rounds: 4, out: &written, log: slog.New(slog.DiscardHandler),
		open: func(context.Context) (database, error) { return keptOpen{s}, nil },
	}
	if err := d.run(ctx); err != nil {
		return 1, written.String() + err.Error()
	}
	return 0, written.String()
}

func TestDrillFindsWhatIsWrongWithAStore(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		*brokenStore
		row string // that must fail
	}{
		"nothing": {&brokenStore{}, ""},
		"it forgets what was answered": {&brokenStore{
			load: func(s *holdfast.State) { s.Answers = nil },
		}, "duplicate delivery"},
		"it doubles what is bought": {&brokenStore{
			save: func(c holdfast.Changes) holdfast.Changes {
				c.NewGrants = slices.Clone(c.NewGrants)
				for i, g := range c.NewGrants {
					if g.Source == holdfast.FromPurchase {
						doubled := *g
						doubled.Granted *= 2
						c.NewGrants[i] = &doubled
					}
				}
				return c
			},
		}, "duplicate delivery"},
		"it forgets whose lease it is": {&brokenStore{
			load: func(s *holdfast.State) {
				for _, r := range s.Reservations {
					r.LeaseToken = ""
				}
			},
		}, "unlock after a dead worker"},
		"it forgets that a late result was charged": {&brokenStore{
			load: func(s *holdfast.State) {
				for _, r := range s.Reservations {
					r.LateAt = time.Time{}
				}
			},
		}, "late result"},
		"it forgets that workers have crashed": {&brokenStore{
			load: func(s *holdfast.State) {
				for _, r := range s.Reservations {
					if r.Job != nil {
						r.Job.Crashes = 0
					}
				}
			},
		}, "killed worker"},
		"it forgets when a lease lapses": {&brokenStore{
			save: func(c holdfast.Changes) holdfast.Changes {
				for _, r := range c.Reservations {
					if r.Job != nil && r.State == holdfast.Running {
						r.LeaseExpiresAt = r.CreatedAt
					}
				}
				return c
			},
		}, "killed worker"},
		"it loses what is to be told": {&brokenStore{
			save: func(c holdfast.Changes) holdfast.Changes {
				c.Events = slices.DeleteFunc(slices.Clone(c.Events), func(e holdfast.Event) bool { return e.Entry == 2 })
				return c
			},
		}, "killed between commit and publication"},
		"it tells the newest first": {&brokenStore{
			pending: func(found []store.Pending) {
				for i := range found {
					slices.Reverse(found[i].Events)
				}
			},
		}, "killed between commit and publication"},
		"it never finds what is overdue": {&brokenStore{
			scan: func([]holdfast.AccountID) []holdfast.AccountID { return nil },
		}, "crash before the job exists"},
		"it loses reservations": {&brokenStore{
			save: func(c holdfast.Changes) holdfast.Changes {
				c.NewReservations = slices.DeleteFunc(slices.Clone(c.NewReservations), func(r *holdfast.Reservation) bool { return r.Key == "press" })
				return c
			},
		}, "crash before the job exists"},
		"it charges the window of today": {&brokenStore{
			save: func(c holdfast.Changes) holdfast.Changes {
				c.Grants = slices.DeleteFunc(slices.Clone(c.Grants), func(g *holdfast.Grant) bool {
					return len(c.Entries) > 0 && g.Source == holdfast.FromAllowance && g.Ended(c.Entries[len(c.Entries)-1].RecordedAt)
				})
				return c
			},
		}, "period edge"},
		"it writes another figure than it says": {&brokenStore{
			save: func(c holdfast.Changes) holdfast.Changes {
				c.Entries = slices.Clone(c.Entries)
				for i := range c.Entries {
					if c.Entries[i].Kind == holdfast.EntryVoid {
						c.Entries[i].Deltas = nil
					}
				}
				return c
			},
		}, "verify"},
		"it takes cap for extend": {&brokenStore{load: policies(func(r *holdfast.Reservation, p *holdfast.Policies) {
			if r.Feature == drillCaps {
				p.Overrun = holdfast.OverrunExtend
			}
		})}, "overrun: cap"},
		"it forgets the policy of an overrun": {&brokenStore{load: policies(func(_ *holdfast.Reservation, p *holdfast.Policies) {
			p.Overrun = ""
		})}, "overrun: extend"},
		"it forgets what is owed": {&brokenStore{
			load: func(s *holdfast.State) { s.Account.Debts = nil },
		}, "overrun: debt"},
		"it takes charge for absorb": {&brokenStore{load: policies(func(_ *holdfast.Reservation, p *holdfast.Policies) {
			p.LateCommit = holdfast.LateAbsorb
		})}, "late commit: charge"},
		"it forgets the policy of a late commit": {&brokenStore{load: policies(func(_ *holdfast.Reservation, p *holdfast.Policies) {
			p.LateCommit = ""
		})}, "late commit: absorb"},
		"it forgets the doubt": {&brokenStore{load: policies(func(r *holdfast.Reservation, _ *holdfast.Policies) {
			r.InDoubt = false
		})}, "doubt, then news"},
		"it forgets the policy of a doubt": {&brokenStore{load: policies(func(_ *holdfast.Reservation, p *holdfast.Policies) {
			p.InDoubt = ""
		})}, "doubt without news"},
		"it forgets that a worker was asked to stop": {&brokenStore{load: policies(func(r *holdfast.Reservation, _ *holdfast.Policies) {
			r.CancelRequestedAt = time.Time{}
		})}, "cancel while it runs"},
		"it expires what was asked to stop": {&brokenStore{load: policies(func(r *holdfast.Reservation, _ *holdfast.Policies) {
			if !r.CancelRequestedAt.IsZero() && r.Quantity == 2 {
				r.CancelRequestedAt = time.Time{}
			}
		})}, "cancel, the worker dies"},
		"its accounts are a day older": {&brokenStore{
			load: func(s *holdfast.State) { s.Account.CreatedAt = s.Account.CreatedAt.Add(-24 * time.Hour) },
		}, "month ends"},
		"it forgets what was carried over": {&brokenStore{
			load: func(s *holdfast.State) {
				for _, g := range s.Grants {
					g.Rolled = 0
				}
			},
		}, "month ends"},
		"it forgets what was paid": {&brokenStore{
			load: func(s *holdfast.State) { s.Payments = nil },
		}, "duplicate payment"},
		"it loses refunds that nobody waits for": {&brokenStore{
			kept: func(holdfast.PaymentRefund) bool { return false },
		}, "refund before payment"},
		"it forgets which refunds it applied": {&brokenStore{
			load: func(s *holdfast.State) {
				for _, p := range s.Payments {
					p.Refunds = nil
				}
			},
		}, "refund after spending"},
		"it loses what follows a merge": {&brokenStore{
			save: func(c holdfast.Changes) holdfast.Changes {
				if c.Account.Active < 2 {
					c.Account.Transfers = nil
				}
				return c
			},
		}, "merge with live work"},
		"it forgets where an account leads": {&brokenStore{
			load: func(s *holdfast.State) { s.Account.MergedInto = holdfast.AccountID{} },
		}, "merge with live work"},
		"its periods overlap": {&brokenStore{
			load: func(s *holdfast.State) {
				if sold := s.Account.Subscription; sold != nil {
					shorter := *sold
					shorter.Periods = slices.Clone(sold.Periods)
					shorter.Periods[0].End = shorter.Periods[0].End.Add(-time.Second)
					s.Account.Subscription = &shorter
				}
			},
		}, "renewal at the edge"},
		"it forgets what of a period was carried over": {&brokenStore{
			load: func(s *holdfast.State) {
				for _, g := range s.Grants {
					if !g.Payment.IsZero() {
						g.Rolled = 0
					}
				}
			},
		}, "renewal at the edge"},
		"its last writer wins": {&brokenStore{unfenced: true}, "last unit × 4, 2 callers"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fault.database = memory.Open()
			code, out := drillStore(t.Context(), t, fault.brokenStore)
			failed := regexp.MustCompile(`(?m)^` + fault.row + ` .* FAILED`).MatchString(out)
			switch {
			case fault.row == "" && code != 0:
				t.Errorf("exit %d for a store that works\n%s", code, out)
			case fault.row != "" && (code != 1 || !failed):
				t.Errorf("exit %d, and the row %q must fail\n%s", code, fault.row, out)
			}
		})
	}
}

// policies spoils the reservations that are read.
func policies(spoil func(*holdfast.Reservation, *holdfast.Policies)) func(*holdfast.State) {
	return func(s *holdfast.State) {
		for _, r := range s.Reservations {
			spoil(r, &r.Policies)
		}
	}
}

// brokenStore does one thing wrong.
type brokenStore struct {
	database
	load     func(*holdfast.State)                   // spoils what was read
	save     func(holdfast.Changes) holdfast.Changes // spoils what is written
	scan     func([]holdfast.AccountID) []holdfast.AccountID
	pending  func([]store.Pending)
	kept     func(holdfast.PaymentRefund) bool // whether a refund is kept until its payment arrives
	unfenced bool                              // reads without a lock, and overwrites what others wrote meanwhile

	mu       sync.Mutex
	meetings map[string]chan struct{} // of the two engines, in each round of a race
}

// meet lets the two engines read one state in each round: whoever comes first waits for the other. What races now and
// then by itself does so every time.
func (b *brokenStore) meet(ctx context.Context, want store.Want) {
	if len(want.Keys) == 0 || !strings.HasPrefix(want.Keys[0], "round ") {
		return
	}
	round, _, _ := strings.Cut(want.Keys[0], ",")
	b.mu.Lock()
	met, second := b.meetings[want.Name+round]
	if !second {
		if b.meetings == nil {
			b.meetings = map[string]chan struct{}{}
		}
		met = make(chan struct{})
		b.meetings[want.Name+round] = met
	}
	b.mu.Unlock()
	if !second {
		select {
		case <-met:
		case <-ctx.Done():
		}
		return
	}
	select {
	case <-met: // a later batch of the same round
	default:
		close(met)
	}
}

func (b *brokenStore) Scan(ctx context.Context, due store.Due) ([]holdfast.AccountID, error) {
	found, err := b.database.Scan(ctx, due)
	if b.scan != nil {
		found = b.scan(found)
	}
	return found, err
}

func (b *brokenStore) Pending(ctx context.Context, after holdfast.AccountID, accounts, events int) ([]store.Pending, error) {
	found, err := b.database.Pending(ctx, after, accounts, events)
	if b.pending != nil {
		b.pending(found)
	}
	return found, err
}

func (b *brokenStore) KeepRefund(ctx context.Context, claim store.Claim, refund holdfast.PaymentRefund) (holdfast.AccountID, error) {
	if b.kept != nil && !b.kept(refund) {
		return holdfast.AccountID{}, nil
	}
	return b.database.KeepRefund(ctx, claim, refund)
}

func (b *brokenStore) Begin(ctx context.Context) (store.Tx, error) {
	tx, err := b.database.Begin(ctx)
	return &brokenTx{Tx: tx, store: b}, err
}

type brokenTx struct {
	store.Tx
	store *brokenStore
	wants []store.Want
}

func (b *brokenTx) Load(ctx context.Context, wants []store.Want) ([]*holdfast.State, error) {
	b.wants = wants
	states, err := b.Tx.Load(ctx, wants)
	if err == nil && b.store.unfenced {
		if err = b.Tx.Abort(ctx); err == nil { // the lock is gone, what was read is kept
			b.store.meet(ctx, wants[0])
			b.Tx, err = b.store.database.Begin(ctx)
		}
	}
	if err == nil && b.store.load != nil {
		for _, s := range states {
			b.store.load(s)
		}
	}
	return states, err
}

func (b *brokenTx) Save(ctx context.Context, changes []holdfast.Changes) error {
	if b.store.unfenced {
		if err := b.catchUp(ctx, changes); err != nil {
			return err
		}
	}
	if b.store.save != nil {
		changes = slices.Clone(changes)
		for i := range changes {
			changes[i] = b.store.save(changes[i])
		}
	}
	return b.Tx.Save(ctx, changes)
}

// catchUp makes changes that were decided on an old state look as if they followed from the newest one.
func (b *brokenTx) catchUp(ctx context.Context, changes []holdfast.Changes) error {
	current, err := b.Tx.Load(ctx, b.wants)
	if err != nil {
		return err
	}
	for i := range changes {
		c := &changes[i]
		for _, now := range current {
			if now.Account.ID == c.Account.ID {
				missed := now.Account.LastEntry - (c.Account.LastEntry - int64(len(c.Entries)))
				c.Account.Version = now.Account.Version
				c.Account.LastEntry += missed
				c.Entries = slices.Clone(c.Entries)
				for k := range c.Entries {
					c.Entries[k].No += missed
				}
			}
		}
	}
	return nil
}
