package engine_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/store/postgres"
	"github.com/holdfast-dev/holdfast/store/sqlite"
)

// modelled is what a bookkeeper with pen and paper knows of one account: bought credits only, no pockets.
type modelled struct {
	bought, voided, charged holdfast.Amount
	work                    []*modelledWork
}

type modelledWork struct {
	id               holdfast.ID
	key              string
	state            holdfast.ReservationState
	held, charged    holdfast.Amount
	refunded         holdfast.Amount
	late             bool
	createdAt, until time.Time
	token            string
	tokenUntil       time.Time
}

func (m *modelled) held() (sum holdfast.Amount, active int) {
	for _, w := range m.work {
		if w.state == holdfast.Reserved || w.state == holdfast.Running {
			sum += w.held
			active++
		}
	}
	return sum, active
}

func (m *modelled) available() holdfast.Amount {
	held, _ := m.held()
	return m.bought - m.voided - m.charged - held
}

// TestTheEngineAgreesWithANaiveModelOnEveryStore drives both stores with the same random commands. After every step the
// answers and balances are those of the model and of each other; at the end every ledger adds up.
func TestTheEngineAgreesWithANaiveModelOnEveryStore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "holdfast.db"), sqlite.Options{})
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		clock := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
		steps := 0 // numbers keys
		var houses []*house
		stores := []store.Store{memory.Open(), db}
		if !testing.Short() && rapid.IntRange(0, 9).Draw(rt, "also PostgreSQL") == 0 {
			stores = append(stores, postgresStore(t, pgtest.New(t), postgres.Options{}))
		}
		for _, s := range stores {
			h := open(t, s, func(o *engine.Options) { o.Now = func() time.Time { return clock } })
			defer func() { _ = h.stop() }()
			houses = append(houses, h)
		}
		model := map[string]*modelled{"ann": {}, "bob": {}}
		// both submits a command to every store and returns the one outcome they agree on.
		both := func(account, key string, op holdfast.Operation) holdfast.Outcome {
			steps++
			command := houses[0].command(account, key, op)
			command.ID = engine.NewID() // the same on both, so that their grants burn in the same order
			if start, ok := op.(holdfast.Start); ok {
				start.Token = fmt.Sprint("token", steps)
				command.Do = start
			}
			var first holdfast.Outcome
			for i, h := range houses {
				o, err := h.Submit(t.Context(), command)
				if err != nil {
					rt.Fatalf("%s: %v", op.Name(), err)
				}
				if i == 0 {
					first = o
				} else if o.Reason != first.Reason || o.Changed != first.Changed || o.Replayed != first.Replayed {
					rt.Fatalf("%s: memory says %q %v, store %d %q %v", op.Name(), first.Reason, first.Changed, i, o.Reason, o.Changed)
				}
			}
			return first
		}
		for account := range model {
			both(account, "", holdfast.PutAccount{})
		}
		account := func() string { return rapid.SampledFrom([]string{"ann", "bob"}).Draw(rt, "account") }
		amount := func() holdfast.Amount { return holdfast.Amount(rapid.IntRange(1, 6).Draw(rt, "amount")) }
		some := func(rt *rapid.T) (string, *modelled, *modelledWork) {
			name := account()
			m := model[name]
			if len(m.work) == 0 {
				rt.Skip("no work yet")
			}
			return name, m, m.work[rapid.IntRange(0, len(m.work)-1).Draw(rt, "which")]
		}
		expect := func(rt *rapid.T, o holdfast.Outcome, want holdfast.Reason) {
			if o.Reason != want {
				rt.Fatalf("got %q %v, the model says %q", o.Reason, o.Problems, want)
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"buy": func(rt *rapid.T) {
				name, n := account(), amount()
				expect(rt, both(name, fmt.Sprint("g", steps), holdfast.AddGrant{Unit: "credit", Amount: n, Source: holdfast.FromPurchase}), "")
				model[name].bought += n
			},
			"take back": func(rt *rapid.T) {
				name, n := account(), amount()
				want := holdfast.Reason("")
				if model[name].available() < n {
					want = holdfast.Insufficient
				} else {
					model[name].voided += n
				}
				expect(rt, both(name, fmt.Sprint("a", steps), holdfast.Adjust{Unit: "credit", Amount: -n, Reason: "model"}), want)
			},
			"reserve": func(rt *rapid.T) {
				name, n := account(), amount()
				m := model[name]
				if m.available() < n { // overdue work is expired before anyone is refused
					for _, w := range m.work {
						if (w.state == holdfast.Reserved || w.state == holdfast.Running) && !clock.Before(w.until) {
							w.state = holdfast.Expired
						}
					}
				}
				held, _ := m.held()
				want := holdfast.Reason("")
				switch {
				case m.available() >= n:
				case m.available()+held >= n:
					want = holdfast.HeldByActive
				default:
					want = holdfast.Insufficient
				}
				key := fmt.Sprint("r", steps)
				o := both(name, key, holdfast.Reserve{Feature: "draw", Quantity: n, TTL: 10 * time.Second})
				expect(rt, o, want)
				if want == "" {
					m.work = append(m.work, &modelledWork{id: o.Reservation.ID, key: key, state: holdfast.Reserved, held: n, createdAt: clock, until: clock.Add(10 * time.Second)})
				}
			},
			"press again": func(rt *rapid.T) {
				name, _, w := some(rt)
				o := both(name, w.key, holdfast.Reserve{Feature: "draw", Quantity: w.held, TTL: 10 * time.Second})
				expect(rt, o, "")
				if !o.Replayed || o.Reservation.ID != w.id || o.Reservation.State != holdfast.Reserved {
					rt.Fatalf("the same key must get the same answer: %+v", o.Reservation)
				}
			},
			"start": func(rt *rapid.T) {
				name, _, w := some(rt)
				want := holdfast.Reason("")
				switch {
				case w.state != holdfast.Reserved && w.state != holdfast.Running:
					want = holdfast.AlreadyEnded
				case w.state == holdfast.Running && clock.Before(w.tokenUntil):
					want = holdfast.AlreadyRunning
				case !clock.Before(w.createdAt.Add(40 * time.Second)):
					want = holdfast.AlreadyEnded // held as long as it may be
					w.state = holdfast.Expired
				}
				o := both(name, "", holdfast.Start{ReservationID: w.id, Lease: 6 * time.Second})
				expect(rt, o, want)
				if want == "" {
					w.state, w.token, w.tokenUntil, w.until = holdfast.Running, o.Lease.Token, o.Lease.ExpiresAt, o.Reservation.ExpiresAt
					if w.until.After(w.createdAt.Add(40 * time.Second)) {
						rt.Fatal("held longer than four times its ttl")
					}
				}
			},
			"commit": func(rt *rapid.T) {
				name, m, w := some(rt)
				n := holdfast.Amount(rapid.IntRange(0, int(w.held)).Draw(rt, "used"))
				right := rapid.Bool().Draw(rt, "right token")
				token := w.token
				if !right {
					token = "wrong"
				}
				free := m.available()
				o := both(name, "", holdfast.Commit{ReservationID: w.id, LeaseToken: token, Amount: &n})
				switch {
				case w.state == holdfast.Expired && !w.late && (right || w.token == ""):
					expect(rt, o, "")
					w.late, w.charged = true, min(n, free)
					m.charged += w.charged
					if o.Reservation.Unbilled != n-w.charged {
						rt.Fatalf("late: unbilled %d of %d, %d were free", o.Reservation.Unbilled, n, free)
					}
				case w.state == holdfast.Expired && !w.late:
					expect(rt, o, holdfast.StaleLease)
				case w.state == holdfast.Committed || w.state == holdfast.Expired:
					figure := w.charged
					if w.state == holdfast.Expired {
						figure = -1 // what was unbilled is not in the model: either answer, no change
					}
					if o.Changed || figure >= 0 && (o.Reason == "") != (figure == n) {
						rt.Fatalf("a second commit of %d after %d: %q changed=%v", n, figure, o.Reason, o.Changed)
					}
				case w.state == holdfast.Released:
					expect(rt, o, holdfast.AlreadyEnded)
				case !right && w.token != "":
					expect(rt, o, holdfast.StaleLease)
				default:
					expect(rt, o, "")
					w.state, w.charged = holdfast.Committed, n
					m.charged += n
				}
			},
			"release": func(rt *rapid.T) {
				name, _, w := some(rt)
				want := holdfast.Reason("")
				if w.state == holdfast.Committed || w.state == holdfast.Expired {
					want = holdfast.AlreadyEnded
				} else {
					w.state = holdfast.Released
				}
				expect(rt, both(name, "", holdfast.Release{ReservationID: w.id, LeaseToken: w.token}), want)
			},
			"refund": func(rt *rapid.T) {
				name, m, w := some(rt)
				n := amount()
				want := holdfast.Reason("")
				switch {
				case w.state != holdfast.Committed && !w.late:
					want = holdfast.NotCommitted
				case n > w.charged-w.refunded:
					want = holdfast.RefundExceedsUsed
				default:
					w.refunded += n
					m.charged -= n
				}
				expect(rt, both(name, fmt.Sprint("b", steps), holdfast.Refund{ReservationID: w.id, Amount: &n}), want)
			},
			"wait": func(*rapid.T) {
				clock = clock.Add(time.Duration(rapid.IntRange(0, 12_000).Draw(rt, "ms")) * time.Millisecond)
			},
			"sweep": func(rt *rapid.T) {
				for _, h := range houses {
					if err := h.Sweep(t.Context()); err != nil {
						rt.Fatal(err)
					}
				}
				for _, m := range model {
					for _, w := range m.work {
						if (w.state == holdfast.Reserved || w.state == holdfast.Running) && !clock.Before(w.until) {
							w.state = holdfast.Expired
						}
					}
				}
			},
			"": func(rt *rapid.T) {
				for name, m := range model {
					held, active := m.held()
					want := fmt.Sprintf("available=%d held=%d active=%d", m.available(), held, active)
					for _, h := range houses {
						if got := h.balance(name); got != want {
							rt.Fatalf("%s has %s, the model says %s", name, got, want)
						}
					}
				}
			},
		})
		for _, h := range houses {
			h.verify()
		}
		if t.Failed() {
			rt.FailNow()
		}
	})
}
