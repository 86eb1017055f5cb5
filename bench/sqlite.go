package bench

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/sqlite"
)

// sqliteScratch is a database file in a directory of its own, beside the file that the user named: the same disk, and
// nothing of the user's.
type sqliteScratch struct {
	directory string
	db        *sqlite.DB
}

func makeSQLite(ctx context.Context, path string) (scratch, error) {
	path, err := filepath.Abs(path) // it goes into a URI, which knows no relative ones
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp(filepath.Dir(path), "holdfast-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a scratch directory beside %s: %w", path, err)
	}
	s := &sqliteScratch{directory: directory}
	if s.db, err = sqlite.Open(ctx, s.path(), sqlite.Options{Serve: true}); err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	return s, nil
}

func (s *sqliteScratch) path() string       { return filepath.Join(s.directory, "scratch.db") }
func (s *sqliteScratch) store() store.Store { return s.db }

func (s *sqliteScratch) drop(context.Context) error {
	return errors.Join(s.db.Close(), os.RemoveAll(s.directory))
}

// durable asks both sides: the store's connection, and one as the baselines have it.
func (s *sqliteScratch) durable(ctx context.Context) (string, error) {
	engines, err := s.db.Durability(ctx)
	if err != nil {
		return "", err
	}
	c, err := connectSQLite(s.path(), nil)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.raw.Close() }() // it has only read
	var baselines [2]driver.Value
	for i, pragma := range []string{"PRAGMA journal_mode", "PRAGMA synchronous"} {
		var row [1]driver.Value
		if err := c.query(ctx, pragma, row[:]); err != nil {
			return "", err
		}
		baselines[i] = row[0]
	}
	told := fmt.Sprintf("journal_mode=%s synchronous=%s, baselines journal_mode=%v synchronous=%v (2 is FULL)",
		engines.JournalMode, engines.Synchronous, baselines[0], baselines[1])
	if engines.JournalMode != "wal" || engines.Synchronous != "2" || baselines != [2]driver.Value{"wal", int64(2)} {
		return told, fmt.Errorf("the durable settings are not in force: %s", told)
	}
	return told, nil
}

func (s *sqliteScratch) baselines(ctx context.Context, model *account, keys *keys) (map[string]subject, error) {
	var outcome [1]driver.Value
	err := s.administer(nil, func(c *sqliteConn) error {
		return c.query(ctx, `SELECT outcome FROM answers WHERE account_id = ?1 AND key <> 'opening' LIMIT 1`, outcome[:], model.id[:])
	})
	if err != nil {
		return nil, err
	}
	subjects := map[string]subject{}
	for name, file := range map[string]string{"naive": "sqlite_naive.sql", "bare": "sqlite_bare.sql"} {
		parsed, err := readStatements(file)
		if err != nil {
			return nil, err
		}
		c, err := connectSQLite(s.path(), parsed)
		if err != nil {
			return nil, err
		}
		rows := &sqliteRows{conn: c, keys: keys, outcome: outcome[0]}
		if name == "naive" {
			subjects[name] = &sqliteNaive{rows: rows}
		} else {
			subjects[name] = &sqliteBare{rows: rows}
		}
	}
	return subjects, nil
}

// administer runs do on a connection of its own.
func (s *sqliteScratch) administer(of statements, do func(*sqliteConn) error) error {
	c, err := connectSQLite(s.path(), of)
	if err != nil {
		return err
	}
	return errors.Join(do(c), c.close())
}

// history loads finished reservations, so many per transaction.
func (s *sqliteScratch) history(ctx context.Context, h history) error {
	parsed, err := readStatements("sqlite_history.sql")
	if err != nil {
		return err
	}
	return s.administer(parsed, func(c *sqliteConn) error {
		var outcome [1]driver.Value
		if err := c.query(ctx, `SELECT outcome FROM answers WHERE account_id = ?1 AND key <> 'opening' LIMIT 1`, outcome[:], h.model.id[:]); err != nil {
			return err
		}
		return h.inChunks(func(count, first int) error {
			arguments := []driver.Value{int64(count), int64(h.accounts), int64(first), h.at.UnixMicro(), int64(price), outcome[0]}
			return c.transaction(ctx, func() error {
				for _, name := range []string{
					"number the accounts", "number the reservations", "index the reservations", "reservations", "entries", "answers", "events",
					"grants", "accounts", "forget the reservations", "forget the accounts",
				} {
					if err := c.exec(ctx, parsed[name], arguments...); err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
				return nil
			})
		})
	})
}

func (s *sqliteScratch) count(ctx context.Context) (answers, events int, err error) {
	var row [2]driver.Value
	err = s.administer(nil, func(c *sqliteConn) error {
		return c.query(ctx, `SELECT (SELECT count(*) FROM answers), (SELECT count(*) FROM outbox)`, row[:])
	})
	if err != nil {
		return 0, 0, err
	}
	return int(row[0].(int64)), int(row[1].(int64)), nil
}

// settle lets the file come to rest: what was loaded leaves the WAL, and the planner knows the tables.
func (s *sqliteScratch) settle(ctx context.Context) error {
	return s.administer(nil, func(c *sqliteConn) error {
		return errors.Join(c.exec(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"), c.exec(ctx, "PRAGMA optimize"))
	})
}

// sqliteConn is one connection with its prepared statements. It uses the driver directly, as the store does.
type sqliteConn struct {
	raw       driver.Conn
	of        statements
	prepared  map[string]driver.Stmt
	arguments []driver.NamedValue
}

// connectSQLite opens a connection with the settings of the store's own.
func connectSQLite(path string, of statements) (*sqliteConn, error) {
	query := url.Values{"mode": {"rw"}, "_txlock": {"immediate"}, "_pragma": {
		"busy_timeout(5000)", "foreign_keys(1)", "synchronous(FULL)", "fullfsync(1)", "checkpoint_fullfsync(1)",
		"temp_store(MEMORY)", "cache_size(-32768)", "journal_size_limit(67108864)",
	}}
	source := (&url.URL{Scheme: "file", Path: filepath.ToSlash(path), RawQuery: query.Encode()}).String()
	pool, err := sql.Open("sqlite", source) // registered by the driver that the store uses
	if err != nil {
		return nil, err
	}
	raw, err := pool.Driver().Open(source)
	if err = errors.Join(err, pool.Close()); err != nil {
		return nil, err
	}
	return &sqliteConn{raw: raw, of: of, prepared: map[string]driver.Stmt{}}, nil
}

func (c *sqliteConn) close() error {
	var errs []error
	for _, s := range c.prepared {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.raw.Close())...)
}

func (c *sqliteConn) statement(text string) (driver.Stmt, error) {
	if s, known := c.prepared[text]; known {
		return s, nil
	}
	s, err := c.raw.Prepare(text)
	if err == nil {
		c.prepared[text] = s
	}
	return s, err
}

func (c *sqliteConn) bind(values []driver.Value) []driver.NamedValue {
	c.arguments = c.arguments[:0]
	for i, value := range values {
		c.arguments = append(c.arguments, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	return c.arguments
}

func (c *sqliteConn) exec(ctx context.Context, text string, values ...driver.Value) error {
	s, err := c.statement(text)
	if err != nil {
		return err
	}
	_, err = s.(driver.StmtExecContext).ExecContext(ctx, c.bind(values))
	return err
}

// query reads the one row of a statement.
func (c *sqliteConn) query(ctx context.Context, text string, into []driver.Value, values ...driver.Value) error {
	s, err := c.statement(text)
	if err != nil {
		return err
	}
	rows, err := s.(driver.StmtQueryContext).QueryContext(ctx, c.bind(values))
	if err != nil {
		return err
	}
	err = rows.Next(into)
	if err == nil { // a statement that writes has ended only when its rows have
		if err = rows.Next(make([]driver.Value, len(into))); errors.Is(err, io.EOF) {
			err = nil
		}
	}
	return errors.Join(err, rows.Close())
}

// transaction runs do between BEGIN IMMEDIATE and COMMIT.
func (c *sqliteConn) transaction(ctx context.Context, do func() error) error {
	if err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return errors.Join(err, c.exec(context.WithoutCancel(ctx), "ROLLBACK"))
	}
	return c.exec(ctx, "COMMIT")
}

// do runs a statement of the file by its name.
func (c *sqliteConn) do(ctx context.Context, name string, values ...driver.Value) error {
	if err := c.exec(ctx, c.of[name], values...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// sqliteRows writes the rows of the real store, for both baselines.
type sqliteRows struct {
	conn    *sqliteConn
	keys    *keys
	outcome driver.Value // an answer of the real store, repeated
}

// step is one reserve or one commit of a baseline.
type step struct {
	account     *account
	reservation holdfast.ID
	key         string // of a reserve
	entry       int64
	available   int64 // after it
	reserved    int64 // after it
}

func (r *sqliteRows) reserve(ctx context.Context, s *step, now time.Time) error {
	c, id, at := r.conn, s.account.id[:], now.UnixMicro()
	allocations := `[["` + s.account.grant.String() + `","purchase",5,0,0]]`
	return errors.Join(
		c.do(ctx, "insert reservation", id, s.reservation[:], feature, unit, int64(price), allocations,
			int64(price), s.key, ttl.Microseconds(), at, now.Add(ttl).UnixMicro()),
		c.do(ctx, "insert answer", id, s.key, s.reservation[:], s.reservation[:], r.outcome, at),
		r.entry(ctx, s, "reserve", `[["`+s.account.grant.String()+`",0,5,0,0]]`, at),
	)
}

func (r *sqliteRows) commit(ctx context.Context, s *step, now time.Time) error {
	c, id, at := r.conn, s.account.id[:], now.UnixMicro()
	allocations := `[["` + s.account.grant.String() + `","purchase",5,5,0]]`
	return errors.Join(
		c.do(ctx, "end reservation", allocations, at, id, s.reservation[:]),
		r.entry(ctx, s, "commit", `[["`+s.account.grant.String()+`",0,-5,5,0]]`, at),
	)
}

func (r *sqliteRows) entry(ctx context.Context, s *step, kind, deltas string, at int64) error {
	c, id, event := r.conn, s.account.id[:], eventID(s.entry)
	key := s.key
	if kind == "commit" {
		key = ""
	}
	return errors.Join(
		c.do(ctx, "insert entry", id, s.entry, kind, unit, deltas, s.reservation[:], key, actor, at, at, s.available, s.reserved),
		c.do(ctx, "insert event", id, event[:], "reservation."+kind, s.entry, s.reservation[:], at),
	)
}

// sqliteNaive is one transaction per call.
type sqliteNaive struct {
	rows *sqliteRows
	turn sync.Mutex
}

func (n *sqliteNaive) close() error { return n.rows.conn.close() }

func (n *sqliteNaive) callers(_ context.Context, count int) ([]worker, error) {
	workers := make([]worker, count)
	for i := range workers {
		workers[i] = n.cycle
	}
	return workers, nil
}

func (n *sqliteNaive) cycle(ctx context.Context, pick func() *account) (int, error) {
	s := &step{account: pick(), reservation: newReservationID(), key: n.rows.keys.next()}
	for _, phase := range []func(context.Context, *step) error{n.reserve, n.commit} {
		n.turn.Lock()
		err := n.rows.conn.transaction(ctx, func() error { return phase(ctx, s) })
		n.turn.Unlock()
		if err != nil {
			return 0, err
		}
	}
	return 1, nil
}

func (n *sqliteNaive) read(ctx context.Context, s *step) error {
	var row [3]driver.Value
	c := n.rows.conn
	if err := c.query(ctx, c.of["read"], row[:], s.account.id[:], s.account.grant[:]); err != nil {
		return err
	}
	s.entry, s.available, s.reserved = row[0].(int64)+1, row[1].(int64), row[2].(int64)
	return nil
}

func (n *sqliteNaive) reserve(ctx context.Context, s *step) error {
	if err := n.read(ctx, s); err != nil {
		return err
	}
	if s.available < price {
		return errors.New("the pocket ran dry")
	}
	s.available, s.reserved = s.available-price, s.reserved+price
	c, now := n.rows.conn, time.Now()
	return errors.Join(
		n.rows.reserve(ctx, s, now),
		c.do(ctx, "hold", int64(price), s.account.id[:], s.account.grant[:]),
		c.do(ctx, "update account", int64(1), now.UnixMicro(), s.account.id[:]),
	)
}

func (n *sqliteNaive) commit(ctx context.Context, s *step) error {
	c, now := n.rows.conn, time.Now()
	var state [1]driver.Value
	if err := errors.Join(n.read(ctx, s), c.query(ctx, c.of["read reservation"], state[:], s.account.id[:], s.reservation[:])); err != nil {
		return err
	}
	if state[0] != "reserved" {
		return fmt.Errorf("the reservation is %v", state[0])
	}
	s.reserved -= price
	return errors.Join(
		n.rows.commit(ctx, s, now),
		c.do(ctx, "charge", int64(price), s.account.id[:], s.account.grant[:]),
		c.do(ctx, "update account", int64(-1), now.UnixMicro(), s.account.id[:]),
	)
}

// bareBatch is how many commands the bare loop puts into a transaction: the engine's own bound.
const bareBatch = holdfast.MaxBatch

// sqliteBare is the batched loop. It has one caller: there is one writer.
type sqliteBare struct{ rows *sqliteRows }

func (b *sqliteBare) close() error { return b.rows.conn.close() }

func (b *sqliteBare) callers(_ context.Context, count int) ([]worker, error) {
	if count != 1 {
		return nil, errors.New("the bare loop on SQLite has one caller")
	}
	return []worker{b.batch}, nil
}

func (b *sqliteBare) batch(ctx context.Context, pick func() *account) (int, error) {
	steps := bareSteps(b.rows.keys, pick)
	for _, phase := range []struct {
		money  string
		active int64
		write  func(context.Context, *step, time.Time) error
	}{{"hold", 1, b.rows.reserve}, {"charge", -1, b.rows.commit}} {
		err := b.rows.conn.transaction(ctx, func() error {
			now := time.Now()
			for _, own := range steps {
				if err := b.update(ctx, own, phase.money, phase.active, now); err != nil {
					return err
				}
				for _, s := range own {
					if err := phase.write(ctx, s, now); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil {
			return 0, err
		}
	}
	return bareBatch, nil
}

// update moves the account and its pocket by all of its steps at once, and counts back what stands after each.
func (b *sqliteBare) update(ctx context.Context, own []*step, money string, active int64, now time.Time) error {
	c, a, count := b.rows.conn, own[0].account, int64(len(own))
	var last [1]driver.Value
	var pocket [2]driver.Value
	err := errors.Join(
		c.query(ctx, c.of["update account"], last[:], count, active*count, now.UnixMicro(), a.id[:]),
		c.query(ctx, c.of[money], pocket[:], count*price, a.id[:], a.grant[:]),
	)
	if err != nil {
		return err
	}
	for i, s := range own {
		follow := count - 1 - int64(i)
		s.entry = last[0].(int64) - follow
		s.reserved = pocket[1].(int64) - active*follow*price
		s.available = pocket[0].(int64)
		if money == "hold" {
			s.available += follow * price
		}
	}
	return nil
}

// bareSteps are a batch's new reservations, by account.
func bareSteps(keys *keys, pick func() *account) [][]*step {
	place := map[*account]int{}
	var all [][]*step
	for range bareBatch {
		s := &step{account: pick(), reservation: newReservationID(), key: keys.next()}
		i, known := place[s.account]
		if !known {
			i = len(all)
			place[s.account] = i
			all = append(all, nil)
		}
		all[i] = append(all[i], s)
	}
	return all
}
