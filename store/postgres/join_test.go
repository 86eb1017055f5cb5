package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
)

// shop is a caller's own table beside ours, in a transaction of the caller's.
func shop(t *testing.T, url string) (conn *pgx.Conn, tx pgx.Tx) {
	t.Helper()
	conn = raw(t, url)
	execute(t, conn, `CREATE TABLE IF NOT EXISTS orders (name text)`)
	tx, err := conn.Begin(t.Context())
	must(t, err)
	execute(t, tx, `INSERT INTO orders VALUES ('mine')`)
	return conn, tx
}

const countOrders = `SELECT count(*)::int FROM orders`

func TestAJoinedTransactionHappensWithTheCallersRowsOrNotAtAll(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"", "&default_query_exec_mode=exec"} {
		url := pgtest.New(t) + mode
		db := opened(t, url, Options{})
		for n, commits := range []bool{false, true} {
			conn, tx := shop(t, url)
			joined := Tx(tx)
			states, err := joined.Load(t.Context(), wants("ann"))
			must(t, err)
			must(t, joined.Save(t.Context(), []holdfast.Changes{answered(states[0], "k")}))
			must(t, joined.Abort(t.Context())) // after Save it does nothing
			if conn.PgConn().TxStatus() != 'T' {
				t.Fatal("the caller's transaction was ended")
			}
			if page, err := db.Read(t.Context(), store.Query{Kind: store.QueryState, Project: "shop", Account: want("ann").Account}); err != nil || page.State != nil {
				t.Errorf("others see it before the caller commits: %v, %v", page.State, err)
			}
			if commits {
				must(t, tx.Commit(t.Context()))
			} else {
				must(t, tx.Rollback(t.Context()))
			}
			if version, known := stored(t, db, "ann", "k"); version != int64(n) || known != commits || asked[int](t, conn, countOrders) != n {
				t.Errorf("committed %v: version %d, known %v, %d orders", commits, version, known, asked[int](t, conn, countOrders))
			}
		}
	}
}

func TestAJoinedTransactionThatFailsLeavesTheCallersAlone(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{})
	must(t, answer(t.Context(), db, want("ann"), "k"))
	for name, spoil := range map[string]struct {
		change func(c *holdfast.Changes)
		kind   store.Kind
	}{
		"conflict": {func(c *holdfast.Changes) { c.Account.Version = 7 }, store.Conflict},
		"rejected": {func(c *holdfast.Changes) { c.Entries[0].Available = -1 }, store.Rejected},
	} {
		conn, tx := shop(t, url)
		joined := Tx(tx)
		states, err := joined.Load(t.Context(), wants("ann", "bob"))
		must(t, err)
		c := answered(states[0], "lost")
		spoil.change(&c)
		kind(t, joined.Save(t.Context(), []holdfast.Changes{answered(states[1], "lost"), c}), spoil.kind, "")
		must(t, tx.Commit(t.Context()))
		if _, known := stored(t, db, "bob", "lost"); known {
			t.Errorf("%s: half of it was stored", name)
		}
		if asked[int](t, conn, countOrders) == 0 {
			t.Errorf("%s: the caller's row is gone", name)
		}
	}
}

func TestAJoinedTransactionThatIsAbortedLeavesNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	conn, tx := shop(t, url)
	joined := Tx(tx)
	_, err := joined.Load(t.Context(), wants("ann"))
	must(t, err)
	must(t, joined.Abort(t.Context()))
	kind(t, joined.Save(t.Context(), nil), store.Rejected, "")
	must(t, tx.Commit(t.Context()))
	if asked[int](t, conn, `SELECT count(*)::int FROM holdfast.accounts`) != 0 || asked[int](t, conn, countOrders) != 1 {
		t.Error("wanted the caller's row and no account")
	}
}

// Whoever forgets to abort leaves a row of version 0 behind, which is as good as none.
func TestAnAccountThatWasOnlyLockedIsNotStored(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{})
	conn, tx := shop(t, url)
	_, err := Tx(tx).Load(t.Context(), wants("ann"))
	must(t, err)
	must(t, tx.Commit(t.Context()))
	if asked[int](t, conn, `SELECT count(*)::int FROM holdfast.accounts WHERE version = 0`) != 1 {
		t.Fatal("there is no such row, and this test tests nothing")
	}
	must(t, db.Dump(t.Context(), func(r store.Record) error {
		t.Errorf("%s is dumped", r.Account.Name)
		return nil
	}))
	page, err := db.Read(t.Context(), store.Query{Kind: store.QueryState, Project: "shop", Account: want("ann").Account})
	if err != nil || page.State != nil {
		t.Errorf("read as %v, %v", page.State, err)
	}
	if version, _ := stored(t, db, "ann", "k"); version != 0 {
		t.Errorf("loaded with version %d", version)
	}
	must(t, answer(t.Context(), db, want("ann"), "k"))
	if version, known := stored(t, db, "ann", "k"); version != 1 || !known {
		t.Errorf("version %d, known %v", version, known)
	}
}

func TestAJoinedTransactionPutsTheCallersSettingsBack(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	conn, tx := shop(t, url)
	execute(t, tx, `SET LOCAL lock_timeout = '77s'`)
	const settings = `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
		WHERE name IN ('lock_timeout', 'plan_cache_mode', 'enable_seqscan', 'enable_hashjoin', 'enable_mergejoin', 'idle_in_transaction_session_timeout', 'search_path')`
	before := asked[string](t, conn, settings)
	joined := Tx(tx)
	states, err := joined.Load(t.Context(), wants("ann"))
	must(t, err)
	if after := asked[string](t, conn, settings); after != before {
		t.Errorf("after Load:\n%s\nwanted\n%s", after, before)
	}
	must(t, joined.Save(t.Context(), []holdfast.Changes{answered(states[0], "k")}))
	if after := asked[string](t, conn, settings); after != before {
		t.Errorf("after Save:\n%s\nwanted\n%s", after, before)
	}
	must(t, tx.Rollback(t.Context()))
}

// With an isolation level above ours, a snapshot that is older than the lock is noticed by the server.
func TestAJoinedTransactionWithAnOldSnapshotIsAConflict(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{})
	must(t, answer(t.Context(), db, want("ann"), "k"))
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		tx, err := raw(t, url).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
		must(t, err)
		execute(t, tx, `SELECT count(*) FROM holdfast.grants`) // takes the snapshot
		must(t, answer(t.Context(), db, want("ann"), string(level)))
		_, err = Tx(tx).Load(t.Context(), wants("ann"))
		kind(t, err, store.Conflict, "40001")
		must(t, tx.Rollback(t.Context()))
	}
}

func TestSaveLeavesNoRowOfAnAccountThatItDoesNotStore(t *testing.T) {
	t.Parallel()
	url := pgtest.New(t)
	db := opened(t, url, Options{})
	tx, states := loaded(t, db, wants("ann", "bob", "carl")...)
	must(t, tx.Save(t.Context(), []holdfast.Changes{answered(states[1], "k")}))
	if names := asked[string](t, raw(t, url), `SELECT string_agg(name, ' ') FROM holdfast.accounts`); names != "bob" {
		t.Errorf("there are rows of %s; wanted bob alone", names)
	}
}
