package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

var now = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

func want(name string) store.Want {
	return store.Want{Account: holdfast.AccountIDOf("shop", name), Project: "shop", Name: name, Create: true}
}

func wants(names ...string) (all []store.Want) {
	for _, name := range names {
		all = append(all, want(name))
	}
	return all
}

// id is the n-th of ids that grow with n.
func id(n int) holdfast.ID {
	return holdfast.ID{1, 2, 3, 4, 5, 6, 0x70, 0, 0x80, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

// answered is a change of a loaded account that leaves a trace in every table: an answer under the key, above all.
func answered(state *holdfast.State, key string) holdfast.Changes {
	c := holdfast.Changes{Account: state.Account}
	c.Account.LastEntry++
	n := int(c.Account.LastEntry)
	c.Account.CreatedAt, c.Account.DecidedAt = now, now
	for _, r := range state.Reservations {
		ended := *r
		ended.State, ended.EndedAt = holdfast.Released, now.Add(time.Second)
		c.Reservations = append(c.Reservations, &ended)
	}
	c.Grants = state.Grants
	c.NewGrants = []*holdfast.Grant{{ID: id(n), Unit: "credit", Source: holdfast.FromPurchase, Granted: 1, StartsAt: now, CreatedAt: now, Open: true}}
	c.NewReservations = []*holdfast.Reservation{{
		ID: id(n), Feature: "image.generate", Quantity: 1, State: holdfast.Reserved, TTL: time.Minute, CreatedAt: now, ExpiresAt: now.Add(time.Minute),
		Allocations: []holdfast.Allocation{{Grant: id(n), Source: holdfast.FromPurchase}},
	}}
	c.Entries = []holdfast.Entry{{No: int64(n), Kind: holdfast.EntryReserve, Deltas: []holdfast.Delta{{Grant: id(n), Granted: 1}}, EffectiveAt: now, RecordedAt: now}}
	c.Answers = []*holdfast.Answer{{Key: key, Command: id(n), RecordedAt: now}}
	c.Events = []holdfast.Event{{ID: id(n), Kind: holdfast.EventOverrun, Entry: int64(n), At: now}}
	return c
}

func begun(t *testing.T, s store.Store) store.Tx {
	t.Helper()
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

func loaded(t *testing.T, s store.Store, wants ...store.Want) (store.Tx, []*holdfast.State) {
	t.Helper()
	tx := begun(t, s)
	states, err := tx.Load(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	return tx, states
}

// answer stores an answer of an account under the key, and everything that goes with it.
func answer(ctx context.Context, s store.Store, w store.Want, key string) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	w.OverdueAt = now.Add(time.Hour)
	states, err := tx.Load(ctx, []store.Want{w})
	if err != nil {
		return err
	}
	return tx.Save(ctx, []holdfast.Changes{answered(states[0], key)})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// stored tells what is stored of an account: its version and whether there is an answer under the key. All its tables must
// tell the same.
func stored(t *testing.T, s store.Store, name, key string) (version int64, known bool) {
	t.Helper()
	w := want(name)
	w.Create, w.Wait, w.Keys, w.OverdueAt = false, true, []string{key}, now.Add(time.Hour)
	tx, states := loaded(t, s, w)
	must(t, tx.Abort(t.Context()))
	state := states[0]
	if len(state.Grants) != int(state.Account.LastEntry) || len(state.Reservations) != min(1, int(state.Account.LastEntry)) {
		t.Errorf("%s has %d entries, %d grants and %d live reservations: half of something was stored",
			name, state.Account.LastEntry, len(state.Grants), len(state.Reservations))
	}
	return state.Account.Version, len(state.Answers) == 1
}

// kind fails the test where an error is not a store's error of this kind, and SQLSTATE where one is named.
func kind(t *testing.T, err error, wanted store.Kind, code string) {
	t.Helper()
	var e *store.Error
	if !errors.As(err, &e) || e.Kind != wanted || code != "" && e.Code != code {
		t.Fatalf("%v; wanted a store's error of kind %s %s", err, wanted, code)
	}
}

// raw is a connection as any program has it.
func raw(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func execute(t *testing.T, conn interface {
	Query(ctx context.Context, text string, arguments ...any) (pgx.Rows, error)
}, text string, arguments ...any,
) {
	t.Helper()
	rows, err := conn.Query(t.Context(), text, arguments...)
	if err == nil {
		rows.Close()
		err = rows.Err()
	}
	must(t, err)
}

// asked is the one value that a question has as its answer.
func asked[T any](t *testing.T, conn *pgx.Conn, text string, arguments ...any) (value T) {
	t.Helper()
	must(t, conn.QueryRow(t.Context(), text, arguments...).Scan(&value))
	return value
}

// waitsForLock returns when so many sessions of the database wait for a lock.
func waitsForLock(t *testing.T, conn *pgx.Conn, sessions int) {
	t.Helper()
	for asked[int](t, conn, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`) < sessions {
		if t.Context().Err() != nil {
			t.Fatal("nobody waits")
		}
		time.Sleep(5 * time.Millisecond)
	}
}
