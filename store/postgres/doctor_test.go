package postgres

import (
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
)

func diagnosed(t *testing.T, db *DB, check string) store.Finding {
	t.Helper()
	findings, err := db.Diagnose(t.Context())
	must(t, err)
	i := slices.IndexFunc(findings, func(f store.Finding) bool { return f.Check == check })
	if i < 0 {
		t.Fatalf("nothing was found out about %s: %v", check, findings)
	}
	return findings[i]
}

func TestDiagnoseTellsOfTransactionsSettingsAndSlots(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{})
	for _, check := range []string{"lock waits", "long transactions", "durable settings", "write-ahead log"} {
		if f := diagnosed(t, db, check); f.Do != "" {
			t.Errorf("of a healthy server: %+v", f)
		}
	}
	conn := raw(t, url)
	execute(t, conn, `BEGIN`)
	execute(t, conn, `SELECT 1`)
	if f := diagnosed(t, db, "long transactions"); strings.HasPrefix(f.Found, "0 ") {
		t.Errorf("an open transaction: %+v", f)
	}
	execute(t, conn, `ROLLBACK`)
	loose := opened(t, url+"&synchronous_commit=off", Options{ReadOnly: true})
	if f := diagnosed(t, loose, "durable settings"); !strings.Contains(f.Do, "set all three to on") {
		t.Errorf("synchronous_commit is off: %+v", f)
	}
}
