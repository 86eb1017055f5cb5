package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Doctored = (*DB)(nil)

// What is longer than these is a trouble: our own transactions take milliseconds, and wait for a lock for seconds at most.
const (
	longTransaction = time.Minute
	longLockWait    = 5 * time.Second
	keptLog         = 1 << 30 // bytes of WAL that a replica which is away holds back
)

// Diagnose looks at the server as far as the role may see: pg_monitor shows it everything.
func (db *DB) Diagnose(ctx context.Context) ([]store.Finding, error) {
	const op = "look at the server"
	settings, err := db.Settings(ctx)
	if err != nil {
		return nil, err
	}
	var s struct {
		waiting, transactions, replicas, slots int64
		waited, lasted                         float64
		kept                                   float64
		level, archive                         string
		standby                                bool
	}
	err = db.with(ctx, op, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, selectTroubles).Scan(&s.waiting, &s.waited, &s.transactions, &s.lasted, &s.replicas, &s.slots, &s.kept, &s.level, &s.archive, &s.standby)
	})
	if err != nil {
		return nil, err
	}
	seconds := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)).Round(time.Second) }
	unless := func(fine bool, do string) string {
		if fine {
			return ""
		}
		return do
	}
	replication := store.Finding{Check: "replication", Found: fmt.Sprintf("%d replicas, synchronous_standby_names %q", s.replicas, settings.Replicas)}
	switch {
	case s.standby:
		replication.Found = "this server is a standby"
		replication.Do = "point --db at the primary: nothing can be written here"
	case s.replicas > 0 && settings.Replicas == "":
		replication.Do = "set synchronous_standby_names: replication is asynchronous, and a failover loses what was acknowledged last"
	}
	return []store.Finding{
		{
			Check: "lock waits", Found: fmt.Sprintf("%d sessions wait for a lock, the longest for %s", s.waiting, seconds(s.waited)),
			Do: unless(seconds(s.waited) < longLockWait, "find who holds it: SELECT pid, pg_blocking_pids(pid), query FROM pg_stat_activity WHERE wait_event_type = 'Lock'; end it with pg_terminate_backend"),
		},
		{
			Check: "long transactions", Found: fmt.Sprintf("%d sessions are in a transaction, the oldest for %s", s.transactions, seconds(s.lasted)),
			Do: unless(seconds(s.lasted) < longTransaction, "it keeps rows locked and VACUUM from tidying up: SELECT pid, xact_start, state, query FROM pg_stat_activity ORDER BY xact_start; end it, and set idle_in_transaction_session_timeout"),
		},
		{
			Check: "durable settings", Found: fmt.Sprintf("fsync %s, synchronous_commit %s, full_page_writes %s", settings.Fsync, settings.SynchronousCommit, settings.FullPageWrites),
			Do: unless(settings.Fsync == "on" && settings.SynchronousCommit != "off" && settings.FullPageWrites == "on", "set all three to on: a crash would lose or damage what was acknowledged"),
		},
		replication,
		{
			Check: "write-ahead log", Found: fmt.Sprintf("wal_level %s, archive_mode %s, %d replication slots are idle and hold %d MiB back", s.level, s.archive, s.slots, int64(s.kept)>>20),
			Do: unless(s.kept < keptLog, "a replica that is away fills the disk: bring it back, or drop its slot with pg_drop_replication_slot, and set max_slot_wal_keep_size"),
		},
	}, nil
}

// What other sessions of this database do, and what waits for replicas. The WAL's position is not to be had on a standby.
const selectTroubles = `SELECT
	(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'),
	(SELECT coalesce(max(extract(epoch FROM clock_timestamp() - coalesce(state_change, query_start))), 0)::float8 FROM pg_stat_activity
		WHERE datname = current_database() AND wait_event_type = 'Lock'),
	(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL AND pid <> pg_backend_pid() AND backend_type = 'client backend'),
	(SELECT coalesce(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float8 FROM pg_stat_activity
		WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'),
	(SELECT count(*) FROM pg_stat_replication),
	(SELECT count(*) FROM pg_replication_slots WHERE NOT active),
	(SELECT coalesce(sum(CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) END), 0)::float8
		FROM pg_replication_slots WHERE NOT active),
	current_setting('wal_level'), current_setting('archive_mode'), pg_is_in_recovery()`
