package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// opened opens a database and closes it with the test.
func opened(t *testing.T, path string, options Options) *DB {
	t.Helper()
	db, err := Open(t.Context(), path, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func fresh(t *testing.T) string { return filepath.Join(t.TempDir(), "holdfast.db") }

func TestSQLiteIsAStore(t *testing.T) {
	storetest.Exercise(t, func(t *testing.T) storetest.Opened {
		path := fresh(t)
		db := opened(t, path, Options{Serve: true})
		return storetest.Opened{
			Store: db,
			Events: func(t *testing.T, account holdfast.AccountID) []holdfast.Event {
				events, err := db.Events(t.Context(), account)
				if err != nil {
					t.Fatal(err)
				}
				return events
			},
			Reopen: func(t *testing.T) store.Store {
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				db = opened(t, path, Options{Serve: true})
				return db
			},
			Replace: func(t *testing.T) {
				copied, err := os.ReadFile(path + ".lock") // any other file will do
				if err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(path, path+".away"); err != nil {
					t.Skip("this system does not let an open file be moved")
				}
				if err := os.WriteFile(path, copied, 0o600); err != nil {
					t.Fatal(err)
				}
			},
			Troubles: append(troubles(db), systemTroubles(db)...),
		}
	})
}

// troubles are accidents that can be had on every system.
func troubles(db *DB) []storetest.Trouble {
	return []storetest.Trouble{
		{
			Name: "another process holds the write lock", When: storetest.AtLoad, Kind: store.Conflict,
			Begin: func(t *testing.T) func() {
				onWriter(t, db, "PRAGMA busy_timeout = 10")
				other, err := connect(t.Context(), db.path, writing, 0)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := other.exec(t.Context(), beginImmediate); err != nil {
					t.Fatal(err)
				}
				return func() {
					if err := other.close(); err != nil {
						t.Error(err)
					}
				}
			},
		},
		{
			Name: "the disk is full", When: storetest.AtSave, Kind: store.Unavailable,
			Begin: func(t *testing.T) func() {
				onWriter(t, db, "PRAGMA max_page_count = 1") // SQLite takes it for the pages that there are
				return func() { onWriter(t, db, "PRAGMA max_page_count = 1000000000") }
			},
		},
	}
}

// onWriter sets something on the connection that writes.
func onWriter(t *testing.T, db *DB, pragma string) {
	t.Helper()
	c, err := db.takeWriter(t.Context(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer db.giveWriter(c)
	if err := c.query(t.Context(), pragma, func(*row) error { return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestSQLiteKeepsWhatTheEdgesNeed(t *testing.T) {
	storetest.ExerciseLookups(t, func(t *testing.T) store.Lookups { return opened(t, fresh(t), Options{}) })
}

func TestSQLiteKeepsWhatTheRelayNeeds(t *testing.T) {
	storetest.ExerciseOutbox(t, func(t *testing.T) storetest.OutboxStore { return opened(t, fresh(t), Options{}) })
}

func TestSQLiteKeepsWhatBotsNeed(t *testing.T) {
	storetest.ExerciseTelegram(t, func(t *testing.T) storetest.TelegramStore { return opened(t, fresh(t), Options{}) })
}
