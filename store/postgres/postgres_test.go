package postgres

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// opened opens a database and closes it with the test.
func opened(t *testing.T, url string, options Options) *DB {
	t.Helper()
	db, err := Open(t.Context(), url, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// exercise lets the conformance suite run on fresh databases.
func exercise(t *testing.T, options Options, parameters string) {
	t.Parallel()
	storetest.Exercise(t, func(t *testing.T) storetest.Opened {
		url := pgtest.New(t) + parameters
		db := opened(t, url, options)
		return storetest.Opened{
			Store: db, Skips: true,
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
				db = opened(t, url, options)
				return db
			},
			Troubles: troubles(t, db, url),
		}
	})
}

// quick waits for locks, but not long: one of the troubles is a lock that never comes.
var quick = Options{Patience: 500 * time.Millisecond}

func TestPostgreSQLIsAStore(t *testing.T) { exercise(t, quick, "") }

// Poolers that know nothing of prepared statements demand these modes.
func TestPostgreSQLIsAStoreWithoutPreparedStatements(t *testing.T) {
	exercise(t, quick, "&default_query_exec_mode=exec")
}

func TestPostgreSQLIsAStoreInTheSimpleProtocol(t *testing.T) {
	exercise(t, quick, "&default_query_exec_mode=simple_protocol")
}

func TestPostgreSQLIsAStoreAsAShardedDatabaseMustBeUsed(t *testing.T) {
	exercise(t, Options{Sharded: true, Patience: quick.Patience}, "")
}

func TestPostgreSQLKeepsWhatTheEdgesNeed(t *testing.T) {
	t.Parallel()
	storetest.ExerciseLookups(t, func(t *testing.T) store.Lookups { return opened(t, pgtest.New(t), Options{}) })
}

func TestPostgreSQLKeepsWhatTheRelayNeeds(t *testing.T) {
	t.Parallel()
	storetest.ExerciseOutbox(t, func(t *testing.T) storetest.OutboxStore { return opened(t, pgtest.New(t), Options{}) })
}

func TestPostgreSQLKeepsWhatBotsNeed(t *testing.T) {
	t.Parallel()
	for name, parameters := range map[string]string{"with prepared statements": "", "in the simple protocol": "&default_query_exec_mode=simple_protocol"} {
		t.Run(name, func(t *testing.T) {
			storetest.ExerciseTelegram(t, func(t *testing.T) storetest.TelegramStore { return opened(t, pgtest.New(t)+parameters, Options{}) })
		})
	}
	t.Run("behind a pooler that lends sessions for one transaction", func(t *testing.T) {
		storetest.ExerciseTelegram(t, func(t *testing.T) storetest.TelegramStore {
			return opened(t, pgtest.Pooler(t, pgtest.New(t), 3)+"&default_query_exec_mode=exec", Options{})
		})
	})
}
