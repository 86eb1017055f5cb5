package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
)

func doctorOn(t *testing.T, db string, arguments ...string) (code int, out string) {
	t.Helper()
	var printed, notes bytes.Buffer
	code = run(t.Context(), append([]string{"doctor", "--db", db}, arguments...), &terminal{out: &printed, notes: &notes})
	return code, printed.String() + notes.String()
}

// ill is a database whose server died an hour ago: work is overdue, jobs wait and are lost, events are not published.
func ill(t *testing.T, url string) {
	t.Helper()
	db, err := databaseFlags{DB: url}.open(t.Context(), writing)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	then := time.Now().UTC().Truncate(time.Microsecond).Add(-time.Hour)
	state := holdfast.NewState("shop", "ann")
	account := state.Account
	account.CreatedAt, account.DecidedAt, account.Active = then, then, 2
	job := func(n byte) *holdfast.Reservation {
		return &holdfast.Reservation{
			ID: holdfast.ID{n}, Feature: "draw", Quantity: 1, State: holdfast.Reserved, Price: holdfast.Price{Unit: "credit"},
			TTL: time.Minute, CreatedAt: then, ExpiresAt: then.Add(time.Minute), Job: &holdfast.Job{Queue: "image.standard", MaxAttempts: 1, Payload: "{}"},
		}
	}
	lost := job(2)
	lost.State, lost.Attempts, lost.LeaseToken, lost.LeaseExpiresAt = holdfast.Running, 1, "t", then.Add(time.Minute)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Load(t.Context(), []store.Want{{Account: account.ID, Project: "shop", Name: "ann", Create: true}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Save(t.Context(), []holdfast.Changes{{
		Account: account, NewReservations: []*holdfast.Reservation{job(1), lost},
		Events: []holdfast.Event{{ID: holdfast.ID{9}, Kind: holdfast.EventOverrun, Reservation: holdfast.ID{1}, At: then}},
	}}); err != nil {
		t.Fatal(err)
	}
}

func TestDoctorSaysWhatNeedsDoingAndWhatToDo(t *testing.T) {
	for name, url := range map[string]string{"sqlite": "sqlite:" + filepath.Join(t.TempDir(), "holdfast.db"), "postgres": pgtest.NewEmpty(t)} {
		t.Run(name, func(t *testing.T) {
			if code := run(context.Background(), []string{"migrate", "--db", url}, &terminal{out: &bytes.Buffer{}, notes: &bytes.Buffer{}}); code != 0 {
				t.Fatal("migrate failed")
			}
			if code, out := doctorOn(t, url); code != 0 || !strings.HasSuffix(out, "doctor: nothing needs doing\n") {
				t.Fatalf("of a new database: exit %d\n%s", code, out)
			}
			ill(t, url)
			code, out := doctorOn(t, url)
			if code != 1 {
				t.Errorf("exit %d", code)
			}
			for _, line := range []string{
				"DO   reservations: 2 live, the oldest overdue for 59m", "DO   queue shop/image.standard: 2 jobs wait, the oldest for 1h0m",
				"DO   lost jobs: 1 lost", "DO   events: 1 wait to be published, the oldest for 1h0m", "ok   accounts: 1,", "doctor: 4 of ",
			} {
				if !strings.Contains(out, line) {
					t.Errorf("it does not say %q:\n%s", line, out)
				}
			}
			if !strings.Contains(out, "→ start workers") {
				t.Errorf("it does not say what to do:\n%s", out)
			}
			if _, out := doctorOn(t, url, "--queue-wait", "2h"); !strings.Contains(out, "ok   queue shop/image.standard") {
				t.Errorf("a longer wait is a trouble still:\n%s", out)
			}
		})
	}
}

func TestDoctorNeedsADatabaseThatIsThere(t *testing.T) {
	if code, out := doctorOn(t, "sqlite:"+filepath.Join(t.TempDir(), "none.db")); code != 1 || !strings.Contains(out, "holdfast:") {
		t.Errorf("exit %d\n%s", code, out)
	}
}
