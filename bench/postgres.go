package bench

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/postgres"
)

// postgresScratch is a database of its own on the server that the user named.
type postgresScratch struct {
	admin string // the URL as the user gave it
	name  string
	url   string
	db    *postgres.DB

	connections connections
}

func makePostgres(ctx context.Context, admin string) (scratch, error) {
	parsed, err := url.Parse(admin)
	if err != nil { // its text may hold the password
		return nil, errors.New("the URL of the database is not well formed: use postgres://USER:PASSWORD@HOST:PORT/DATABASE")
	}
	s := &postgresScratch{admin: admin, name: "holdfast_bench_" + strings.ToLower(rand.Text()[:12])}
	parsed.Path = "/" + s.name
	s.url = parsed.String()
	if err := s.administer(ctx, `CREATE DATABASE `+s.name+` TEMPLATE template0`); err != nil {
		if stateOf(err) == "42501" {
			err = errors.New("the user may not create the scratch database: ALTER ROLE … CREATEDB, or use another server")
		}
		return nil, fmt.Errorf("make a scratch database: %w", err)
	}
	if s.db, err = postgres.Open(ctx, s.url, postgres.Options{}); err != nil {
		return nil, errors.Join(err, s.drop(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func stateOf(err error) string {
	var told *pgconn.PgError
	if errors.As(err, &told) {
		return told.Code
	}
	return ""
}

func (s *postgresScratch) administer(ctx context.Context, statement string) error {
	conn, err := pgx.Connect(ctx, s.admin)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}

func (s *postgresScratch) store() store.Store { return s.db }

func (s *postgresScratch) drop(ctx context.Context) error {
	var err error
	if s.db != nil {
		err = s.db.Close()
	}
	return errors.Join(err, s.administer(ctx, `DROP DATABASE IF EXISTS `+s.name+` WITH (FORCE)`))
}

// durable asks the server as a baseline's connection has it. The store asserts the same of its own connections when it opens.
func (s *postgresScratch) durable(ctx context.Context) (string, error) {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close(ctx) }()
	settings := map[string]string{}
	names := []string{"server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_compression", "shared_buffers", "max_wal_size"}
	var told []string
	for _, name := range names {
		var value string
		if err := conn.QueryRow(ctx, `SELECT current_setting($1)`, name).Scan(&value); err != nil {
			return "", err
		}
		settings[name] = value
		told = append(told, name+"="+value)
	}
	text := strings.Join(told, " ")
	if settings["fsync"] != "on" || settings["full_page_writes"] != "on" || settings["synchronous_commit"] == "off" {
		return text, fmt.Errorf("the durable settings are not in force: %s", text)
	}
	return text, nil
}

func (s *postgresScratch) count(ctx context.Context) (answers, events int, err error) {
	err = s.on(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT (SELECT count(*) FROM holdfast.answers), (SELECT count(*) FROM holdfast.outbox)`).Scan(&answers, &events)
	})
	return answers, events, err
}

// settle brings what was loaded to disk and tells the planner. Not every user may order a checkpoint; it comes by itself.
func (s *postgresScratch) settle(ctx context.Context) error {
	return s.on(ctx, func(conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, `VACUUM ANALYZE`); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, `CHECKPOINT`)
		if stateOf(err) == "42501" {
			return nil
		}
		return err
	})
}

func (s *postgresScratch) on(ctx context.Context, do func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	return errors.Join(do(conn), conn.Close(context.WithoutCancel(ctx)))
}

// outcome is an answer of the real store, for whoever writes the same rows.
func (s *postgresScratch) outcome(ctx context.Context, model *account) (outcome string, err error) {
	err = s.on(ctx, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT outcome FROM holdfast.answers WHERE account_id = $1 AND key <> 'opening' LIMIT 1`, [16]byte(model.id)).Scan(&outcome)
	})
	return outcome, err
}

func (s *postgresScratch) history(ctx context.Context, h history) error {
	parsed, err := readStatements("history.sql")
	if err != nil {
		return err
	}
	outcome, err := s.outcome(ctx, h.model)
	if err != nil {
		return err
	}
	return s.on(ctx, func(conn *pgx.Conn) error {
		return h.inChunks(func(count, first int) error {
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
				for _, run := range []struct {
					name      string
					arguments []any
				}{
					{"number the accounts", nil},
					// A statement that makes a table takes no parameters, so they are written into it: four numbers of ours.
					{"number the reservations", nil},
					{"reservations", []any{price, h.at}},
					{"answers", []any{outcome, h.at}},
					{"entries", []any{price, h.at}},
					{"events", []any{h.at}},
					{"grants", []any{price}},
					{"accounts", nil},
				} {
					text := parsed[run.name]
					if run.name == "number the reservations" {
						text = strings.NewReplacer("$1", fmt.Sprint(count), "$2", fmt.Sprint(h.accounts), "$3", fmt.Sprint(first),
							"$4", "'"+h.at.Format(time.RFC3339Nano)+"'").Replace(text)
					}
					if _, err := tx.Exec(ctx, text, run.arguments...); err != nil {
						return fmt.Errorf("%s: %w", run.name, err)
					}
				}
				return nil
			})
		})
	})
}

func (s *postgresScratch) baselines(ctx context.Context, model *account, keys *keys) (map[string]subject, error) {
	outcome, err := s.outcome(ctx, model)
	if err != nil {
		return nil, err
	}
	subjects := map[string]subject{}
	for _, name := range []string{"naive", "cte", "bare"} {
		parsed, err := readStatements(name + ".sql")
		if err != nil {
			return nil, err
		}
		cycle := map[string]func(*postgresCaller) worker{
			"naive": func(c *postgresCaller) worker { return c.naive },
			"cte":   func(c *postgresCaller) worker { return c.cte },
			"bare":  func(c *postgresCaller) worker { return c.bare },
		}[name]
		subjects[name] = &postgresBaseline{connections: &s.connections, url: s.url, of: parsed, keys: keys, outcome: outcome, work: cycle}
	}
	return subjects, nil
}

// connections are the callers' of all baselines, which take turns: a server has room for a hundred in all by default.
type connections struct {
	mu   sync.Mutex
	open []*pgx.Conn
}

// first are n connections; those that are missing are opened.
func (c *connections) first(ctx context.Context, url string, n int) ([]*pgx.Conn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.open) < n {
		conn, err := pgx.Connect(ctx, url) // prepares and caches every statement by itself
		if err != nil {
			return nil, fmt.Errorf("connect caller %d of %d: %w", len(c.open)+1, n, err)
		}
		c.open = append(c.open, conn)
	}
	return c.open[:n], nil
}

func (c *connections) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, conn := range c.open {
		errs = append(errs, conn.Close(context.Background()))
	}
	c.open = nil
	return errors.Join(errs...)
}

// postgresBaseline has a connection for each caller.
type postgresBaseline struct {
	*connections
	url     string
	of      statements
	keys    *keys
	outcome string
	work    func(*postgresCaller) worker
}

func (b *postgresBaseline) callers(ctx context.Context, n int) ([]worker, error) {
	conns, err := b.first(ctx, b.url, n)
	if err != nil {
		return nil, err
	}
	workers := make([]worker, n)
	for i, conn := range conns {
		workers[i] = b.work(&postgresCaller{postgresBaseline: b, conn: conn, number: i, among: n})
	}
	return workers, nil
}

// postgresCaller is one caller of a baseline with its connection.
type postgresCaller struct {
	*postgresBaseline
	conn          *pgx.Conn
	number, among int
}

// naive is the pattern of naive.sql.
func (c *postgresCaller) naive(ctx context.Context, pick func() *account) (int, error) {
	a := pick()
	n := &naiveCycle{postgresCaller: c, account: a.id, grant: a.grant, reservation: newReservationID(), key: c.keys.next()}
	for _, phase := range []func(context.Context) error{n.reserve, n.commit} {
		if err := c.transaction(ctx, func() error { return phase(ctx) }); err != nil {
			return 0, err
		}
	}
	return 1, nil
}

// naiveCycle is one reserve and its commit.
type naiveCycle struct {
	*postgresCaller
	account, grant, reservation          [16]byte
	key                                  string
	entry, version, available, reserving int64 // as read under the lock
}

func (n *naiveCycle) reserve(ctx context.Context) error {
	if err := n.conn.QueryRow(ctx, n.of["lock"], n.account, n.grant).Scan(&n.entry, &n.version, &n.available, &n.reserving); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if n.available < price {
		return errDry
	}
	now := time.Now()
	if err := n.exec(ctx, "insert reservation", n.account, n.reservation, n.grant, n.key, price, now); err != nil {
		return err
	}
	if err := n.exec(ctx, "insert answer", n.account, n.reservation, n.key, n.outcome, now); err != nil {
		return err
	}
	return n.book(ctx, phase{kind: "reserve", active: 1, held: price}, n.key, now)
}

func (n *naiveCycle) commit(ctx context.Context) error {
	var state string
	err := n.conn.QueryRow(ctx, n.of["lock reservation"], n.account, n.grant, n.reservation).Scan(&n.entry, &n.version, &n.available, &n.reserving, &state)
	if err != nil {
		return fmt.Errorf("lock reservation: %w", err)
	}
	if state != "reserved" {
		return fmt.Errorf("the reservation is %s", state)
	}
	now := time.Now()
	if err := n.exec(ctx, "end reservation", n.account, n.reservation, price, now); err != nil {
		return err
	}
	return n.book(ctx, phase{kind: "commit", active: -1, held: -price, charged: price}, "", now)
}

// book writes what both phases write.
func (n *naiveCycle) book(ctx context.Context, p phase, key string, now time.Time) error {
	entry := n.entry + 1
	available, reserved := n.available-p.held-p.charged, n.reserving+p.held
	for _, run := range []struct {
		name      string
		arguments []any
	}{
		{"insert entry", []any{n.account, entry, n.reservation, n.grant, key, p.kind, p.held, p.charged, available, reserved, now}},
		{"insert event", []any{n.account, eventID(entry), (n.version + 1) << 16, entry, n.reservation, "reservation." + p.kind, now}},
		{"update grant", []any{n.account, n.grant, p.held, p.charged}},
		{"update account", []any{n.account, p.active, now}},
	} {
		if err := n.exec(ctx, run.name, run.arguments...); err != nil {
			return err
		}
	}
	return nil
}

var errDry = errors.New("the pocket ran dry")

func (c *postgresCaller) exec(ctx context.Context, name string, arguments ...any) error {
	if _, err := c.conn.Exec(ctx, c.of[name], arguments...); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (c *postgresCaller) transaction(ctx context.Context, do func() error) error {
	if err := c.exec(ctx, "begin"); err != nil {
		return err
	}
	if err := do(); err != nil {
		return errors.Join(err, c.exec(context.WithoutCancel(ctx), "rollback"))
	}
	return c.exec(ctx, "commit")
}

// cte is the pattern of cte.sql.
func (c *postgresCaller) cte(ctx context.Context, pick func() *account) (int, error) {
	a := pick()
	account, grant, reservation := [16]byte(a.id), [16]byte(a.grant), [16]byte(newReservationID())
	for _, call := range []struct {
		name      string
		arguments []any
	}{
		{"reserve", []any{account, grant, reservation, c.keys.next(), c.outcome, time.Now(), price}},
		{"commit", []any{account, grant, reservation, time.Now(), price}},
	} {
		tag, err := c.conn.Exec(ctx, c.of[call.name], call.arguments...)
		if err == nil && tag.RowsAffected() != 1 {
			err = errors.New("it changed nothing")
		}
		if err != nil {
			return 0, fmt.Errorf("%s: %w", call.name, err)
		}
	}
	return 1, nil
}

// bare is the loop of bare.sql: one call is a batch of reserves and the batch of their commits.
func (c *postgresCaller) bare(ctx context.Context, pick func() *account) (int, error) {
	b := &bareRows{}
	for _, own := range c.ownSteps(pick) {
		b.add(own)
	}
	outcomes := slices.Repeat([]string{c.outcome}, bareBatch)
	now := time.Now()
	err := c.batch(ctx, b, phase{kind: "reserve", money: "hold", active: 1, held: price}, now, func(batch *pgx.Batch) {
		batch.Queue(c.of["insert reservations"], b.accounts, b.reservations, b.grants, b.keys, price, now)
		batch.Queue(c.of["insert answers"], b.accounts, b.reservations, b.keys, outcomes, now)
	})
	if err != nil {
		return 0, err
	}
	clear(b.keys) // a commit has none
	now = time.Now()
	err = c.batch(ctx, b, phase{kind: "commit", money: "charge", active: -1, held: -price, charged: price}, now, func(batch *pgx.Batch) {
		batch.Queue(c.of["end reservations"], b.accounts, b.reservations, price, now)
	})
	return bareBatch, err
}

// ownSteps are a batch's, in the order of the accounts' ids. Connections keep to accounts of their own where there are several:
// they would deadlock otherwise, or wait.
func (c *postgresCaller) ownSteps(pick func() *account) [][]*step {
	first := pick()
	several := false
	for range 8 {
		several = several || pick() != first
	}
	steps := bareSteps(c.keys, func() *account {
		for {
			if a := pick(); !several || int(a.id[15])%c.among == c.number {
				return a
			}
		}
	})
	slices.SortFunc(steps, func(a, b []*step) int { return bytes.Compare(a[0].account.id[:], b[0].account.id[:]) })
	return steps
}

type phase struct {
	kind, money   string
	active        int64
	held, charged int64
}

// bareRows are the columns of a batch.
type bareRows struct {
	owners, pockets [][16]byte // one for each account
	counts          []int32
	sums            []int64
	place           map[[16]byte]int

	accounts, reservations, grants [][16]byte // one for each command
	keys                           []string
	of                             []int   // which owner
	index                          []int64 // which of the owner's commands
	events                         [][16]byte
	entries, available, reserved   []int64
	written                        []int64
}

func (b *bareRows) add(own []*step) {
	if b.place == nil {
		b.place = map[[16]byte]int{}
	}
	a := own[0].account
	b.place[a.id] = len(b.owners)
	b.owners, b.pockets = append(b.owners, a.id), append(b.pockets, a.grant)
	b.counts, b.sums = append(b.counts, int32(len(own))), append(b.sums, int64(len(own))*price)
	for i, s := range own {
		b.accounts, b.reservations, b.grants = append(b.accounts, a.id), append(b.reservations, s.reservation), append(b.grants, a.grant)
		b.keys = append(b.keys, s.key)
		b.of, b.index = append(b.of, len(b.owners)-1), append(b.index, int64(i))
	}
}

// batch is one transaction in two round trips.
func (c *postgresCaller) batch(ctx context.Context, b *bareRows, p phase, now time.Time, insert func(*pgx.Batch)) error {
	type numbers struct{ entry, version, available, reserved int64 }
	before := make([]numbers, len(b.owners))
	updates := &pgx.Batch{}
	updates.Queue(c.of["begin"])
	updates.Queue(c.of["plan"])
	updates.Queue(c.of["update accounts"], b.owners, b.counts, p.active, now).Query(func(rows pgx.Rows) error {
		var id [16]byte
		var n numbers
		_, err := pgx.ForEachRow(rows, []any{&id, &n.entry, &n.version}, func() error {
			before[b.place[id]] = n
			return nil
		})
		return err
	})
	updates.Queue(c.of[p.money], b.owners, b.pockets, b.sums).Query(func(rows pgx.Rows) error {
		var id [16]byte
		var available, reserved int64
		_, err := pgx.ForEachRow(rows, []any{&id, &available, &reserved}, func() error {
			n := &before[b.place[id]]
			n.available, n.reserved = available, reserved
			return nil
		})
		return err
	})
	if err := c.conn.SendBatch(ctx, updates).Close(); err != nil {
		return errors.Join(err, c.exec(context.WithoutCancel(ctx), "rollback"))
	}
	b.events, b.entries, b.available, b.reserved, b.written = nil, nil, nil, nil, nil
	for i, owner := range b.of {
		n, done := before[owner], b.index[i]+1
		b.entries = append(b.entries, n.entry+done)
		b.events = append(b.events, eventID(n.entry+done))
		b.available = append(b.available, n.available-done*(p.held+p.charged))
		b.reserved = append(b.reserved, n.reserved+done*p.held)
		b.written = append(b.written, n.version<<16+done)
	}
	inserts := &pgx.Batch{}
	insert(inserts)
	inserts.Queue(c.of["insert entries"], b.accounts, b.entries, b.available, b.reserved, b.reservations, b.grants, b.keys, p.kind, p.held, p.charged, now)
	inserts.Queue(c.of["insert events"], b.accounts, b.events, b.written, b.entries, b.reservations, "reservation."+p.kind, now)
	inserts.Queue(c.of["commit"])
	if err := c.conn.SendBatch(ctx, inserts).Close(); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", p.kind, err), c.exec(context.WithoutCancel(ctx), "rollback"))
	}
	return nil
}
