package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"sync"
	"time"

	"github.com/exaring/otelpgx"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/postgres/migration"
)

// Options say how to open a database. The zero value reads, writes and migrates.
type Options struct {
	// MaxConns bounds the pool; 0: pool_max_conns of the URL, or 10. A dump uses one connection more.
	MaxConns int
	// Sharded makes every transaction span one account and begin with a write that locks it, as a database needs that
	// spreads accounts over several servers.
	Sharded bool
	// ReadOnly never makes, migrates or changes anything. Begin gives transactions that cannot load.
	ReadOnly bool
	// Trace makes a span of every batch of statements, with OpenTelemetry's global provider, which drops them unless the
	// program has set another. Arguments are not in them.
	Trace bool
	// Patience bounds every wait for a lock, and for a connection of the pool. 0: 2 seconds.
	Patience time.Duration
}

const (
	defaultConns    = 10
	defaultPatience = 2 * time.Second
	connectFor      = 5 * time.Second
	// oldest is the first version of the server that the statements are written for and tested with.
	oldest = 15_00_00
)

// DB is a store in a PostgreSQL database. It is safe for concurrent use, in as many processes as there are.
type DB struct {
	pool    *pgxpool.Pool
	options Options

	closing context.Context // ends with Close
	close   context.CancelFunc
	once    sync.Once
	closed  error // what Close returned
}

var _ store.Store = (*DB)(nil)

var (
	errClosed   = errors.New("the store is closed")
	errNoneFree = errors.New("no connection became free in time")
)

// Open connects to the database that the URL names, makes and migrates the schema where the options allow, and asserts
// that its durable settings are in force. pgx describes the URL; ours are default_query_exec_mode (for poolers) and
// pool_max_conns. The error is a *store.Error with a hint where there is a next step.
//
// Refused as Fatal: a URL that is none, a server older than 15, a newer schema, an older one where the options forbid to
// migrate it, and settings with which an acknowledged commit could be lost.
func Open(ctx context.Context, url string, options Options) (*DB, error) {
	return open(ctx, url, options, migration.Files)
}

func open(ctx context.Context, url string, options Options, from fs.FS) (*DB, error) {
	const op = "open the database"
	if options.Patience == 0 {
		options.Patience = defaultPatience
	}
	config, err := configure(url, options)
	if err != nil {
		return nil, err
	}
	db := &DB{options: options}
	db.closing, db.close = context.WithCancel(context.Background())
	if db.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, failed(op, err)
	}
	if err := db.prepare(ctx, from); err != nil {
		_ = db.Close() // what it could say is said by err
		return nil, failed(op, err)
	}
	return db, nil
}

// configure reads the URL and adds what it leaves open.
func configure(url string, options Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil { // its text may hold the password
		return nil, &store.Error{
			Kind: store.Fatal, Op: "open the database", Hint: "use postgres://USER:PASSWORD@HOST:PORT/DATABASE",
			Err: errors.New("the URL of the database is not well formed"),
		}
	}
	connection := config.ConnConfig
	switch {
	case options.MaxConns > 0:
		config.MaxConns = int32(min(options.MaxConns, 10_000))
	case !named(url, "pool_max_conns"):
		config.MaxConns = defaultConns
	}
	if connection.ConnectTimeout == 0 {
		connection.ConnectTimeout = connectFor
	}
	if connection.RuntimeParams["application_name"] == "" {
		connection.RuntimeParams["application_name"] = "holdfast"
	}
	if connection.ValidateConnect == nil && !options.ReadOnly {
		// A standby is no place for us: after a failover, go on to the next server that the URL names.
		connection.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	}
	connection.DialFunc = dial(connection.ConnectTimeout)
	if options.Trace {
		connection.Tracer = otelpgx.NewTracer()
	}
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		register(conn.TypeMap())
		return nil
	}
	return config, nil
}

// named reports whether the URL sets the parameter. The driver fills in a default of its own, which cannot be told from a
// value that somebody chose.
func named(url, parameter string) bool {
	config, err := pgconn.ParseConfig(url)
	return err == nil && config.RuntimeParams[parameter] != ""
}

// prepare looks at the server, brings the schema up to date and asserts the settings.
func (db *DB) prepare(ctx context.Context, from fs.FS) error {
	settings, err := db.Settings(ctx)
	if err != nil {
		return err
	}
	if err := settings.inForce(db.options); err != nil {
		return err
	}
	return db.ensureSchema(ctx, from)
}

// ensureSchema brings the database to the newest of our migrations, or says why it may not.
func (db *DB) ensureSchema(ctx context.Context, from fs.FS) error {
	const op = "migrate the database"
	target, err := migration.Newest(from)
	if err != nil {
		return err
	}
	version, err := db.schemaVersion(ctx)
	switch {
	case err != nil || version == target:
		return err
	case version > target:
		return &store.Error{
			Kind: store.Fatal, Op: op, Hint: "run the newer holdfast that migrated the database, or restore an older copy of it",
			Err: fmt.Errorf("the database has schema %d, this program knows %d at most", version, target),
		}
	case db.options.ReadOnly:
		return &store.Error{
			Kind: store.Fatal, Op: op, Hint: "run holdfast migrate of this version once",
			Err: fmt.Errorf("the database has schema %d instead of %d, and was opened for reading only", version, target),
		}
	}
	return failed(op, migration.UpWith(ctx, db.pool.Config().ConnConfig, from))
}

func (db *DB) schemaVersion(ctx context.Context) (version int64, err error) {
	const op = "look at the database's schema"
	err = db.with(ctx, op, func(conn *pgxpool.Conn) error {
		version, err = migration.Applied(ctx, conn.Conn())
		return err
	})
	return version, err
}

// Settings is what the server itself says about what an acknowledged commit rests on.
type Settings struct {
	Version           int    // server_version_num: 150004 is 15.4
	Fsync             string // "on": what is committed is on the disk
	SynchronousCommit string // "on" or better: COMMIT waits for that
	FullPageWrites    string // "on": a page half written in a crash can be repaired
	Replicas          string // synchronous_standby_names; empty: COMMIT waits for this server alone
}

// Settings asks a connection of the pool.
func (db *DB) Settings(ctx context.Context) (s Settings, err error) {
	const op = "read the durable settings"
	var version string
	err = db.with(ctx, op, func(conn *pgxpool.Conn) error {
		return conn.QueryRow(ctx, selectSettings).Scan(&version, &s.Fsync, &s.SynchronousCommit, &s.FullPageWrites, &s.Replicas)
	})
	if err != nil {
		return s, err
	}
	if s.Version, err = strconv.Atoi(version); err != nil {
		return s, failed(op, fmt.Errorf("%w: the server's version is no number", errRow))
	}
	return s, nil
}

const selectSettings = `SELECT current_setting('server_version_num'), current_setting('fsync'), current_setting('synchronous_commit'),
	current_setting('full_page_writes'), current_setting('synchronous_standby_names')`

func (s Settings) inForce(options Options) error {
	refuse := func(hint string, err error) error {
		return &store.Error{Kind: store.Fatal, Op: "assert the durable settings", Hint: hint, Err: err}
	}
	switch {
	case s.Version < oldest:
		return refuse("use PostgreSQL 15 or newer", fmt.Errorf("the server is version %d", s.Version/10_000))
	case options.ReadOnly:
		return nil
	case s.Fsync != "on":
		return refuse("set fsync = on in postgresql.conf", errors.New("fsync is off: a crash of the machine would lose or damage what was acknowledged"))
	case s.FullPageWrites != "on":
		return refuse("set full_page_writes = on in postgresql.conf", errors.New("full_page_writes is off: a crash of the machine could damage what was acknowledged"))
	case s.SynchronousCommit == "off":
		return refuse("ALTER DATABASE … SET synchronous_commit = on, or the same for the user", errors.New("synchronous_commit is off: a crash would lose what was acknowledged"))
	}
	return nil
}

// Skew is how far the clock of this process is ahead of the database's. It is measured a few times, and the quickest
// answer counts: it leaves the least room for error, half of its round trip at most.
func (db *DB) Skew(ctx context.Context) (ahead time.Duration, err error) {
	err = db.with(ctx, "compare the clocks", func(conn *pgxpool.Conn) error {
		quickest := time.Duration(1<<63 - 1)
		for range 5 {
			var theirs time.Time
			began := time.Now()
			if err := conn.QueryRow(ctx, selectClock).Scan(&theirs); err != nil {
				return err
			}
			took := time.Since(began)
			if took < quickest {
				quickest, ahead = took, began.Add(took/2).Sub(theirs)
			}
		}
		return nil
	})
	return ahead, err
}

// clock_timestamp and not now: that is the time at which the transaction began.
const selectClock = `SELECT clock_timestamp()`

// Traits: a sharded database spans one account per transaction, any other as many as are wanted.
func (db *DB) Traits() store.Traits {
	if db.options.Sharded {
		return store.Traits{MaxAccounts: 1, Concurrent: true}
	}
	return store.Traits{Concurrent: true}
}

// acquire waits for a connection of the pool: as long as the caller, Close and the options allow.
func (db *DB) acquire(ctx context.Context, op string) (*pgxpool.Conn, error) {
	if err := ended(ctx, op); err != nil {
		return nil, err
	}
	if db.closing.Err() != nil {
		return nil, failed(op, errClosed)
	}
	waiting, cancel := context.WithTimeout(ctx, db.options.Patience)
	defer cancel()
	stop := context.AfterFunc(db.closing, cancel)
	defer stop()
	conn, err := db.pool.Acquire(waiting)
	switch {
	case err == nil:
		return conn, nil
	case db.closing.Err() != nil:
		return nil, failed(op, errClosed)
	case ctx.Err() == nil && waiting.Err() != nil:
		return nil, failed(op, errNoneFree)
	}
	return nil, failed(op, err)
}

// with lets do use a connection of the pool, outside any transaction that outlives it.
func (db *DB) with(ctx context.Context, op string, do func(*pgxpool.Conn) error) error {
	conn, err := db.acquire(ctx, op)
	if err != nil {
		return err
	}
	return failed(op, giveBack(conn, do(conn)))
}

// giveBack returns a connection to the pool, which throws away one that is closed or in a transaction. One that leads to
// a server which cannot write any more is closed here: after a failover, the next one leads to its successor.
func giveBack(conn *pgxpool.Conn, err error) error {
	if codeOf(err) == readOnly {
		ctx, cancel := context.WithTimeout(context.Background(), endFor)
		defer cancel()
		_ = conn.Conn().Close(ctx)
	}
	conn.Release()
	return err
}

// Close lets transactions and reads that run come to their end, as long as the options say, and lets nothing new begin.
// Whoever closes a database before its transactions have ended gets an error; their connections close when they end.
func (db *DB) Close() error {
	db.once.Do(func() {
		db.close()
		done := make(chan struct{})
		go func() {
			defer close(done)
			db.pool.Close()
		}()
		patience := time.NewTimer(db.options.Patience)
		defer patience.Stop()
		select {
		case <-done:
		case <-patience.C:
			db.closed = failed("close the database", fmt.Errorf("%w, and a transaction or a read has not ended", errClosed))
		}
	})
	return db.closed
}
