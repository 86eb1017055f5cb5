package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	modernc "modernc.org/sqlite"
)

// connection is one SQLite connection with its prepared statements. It belongs to one goroutine at a time.
//
// It uses the driver directly: database/sql's pool would hide which connection holds the transaction, and each of its
// calls costs about as much as the statement behind it.
type connection struct {
	raw        driver.Conn
	statements map[string]statement
	arguments  []driver.NamedValue
}

// statement is what the driver's prepared statements are.
type statement interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// mode says what a connection may do with the file.
type mode string

const (
	creating mode = "rwc" // migrations only: everything else must find the file that was there before
	writing  mode = "rw"
	reading  mode = "ro"
)

// dataSource names the file and the settings of a connection. journal_mode is not among them: it is a property of the
// file, set by the migration under its lock and asserted afterwards.
func dataSource(path string, m mode, patience time.Duration) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // a drive letter
	}
	query := url.Values{
		"mode":       {string(m)},
		"_dqs":       {"0"}, // "x" is a name, never a text by mistake
		"_txlock":    {"immediate"},
		"_defensive": {"1"},
		"_pragma": {
			fmt.Sprintf("busy_timeout(%d)", patience.Milliseconds()),
			"foreign_keys(1)",
			"synchronous(FULL)",
			"fullfsync(1)", // macOS: fsync alone leaves data in the drive's cache
			"checkpoint_fullfsync(1)",
			"trusted_schema(0)",
			"temp_store(MEMORY)",
			"cache_size(-32768)", // 32 MiB: the inner pages of the keys of many accounts
			fmt.Sprintf("journal_size_limit(%d)", 64<<20),
		},
	}
	return (&url.URL{Scheme: "file", Path: slashed, RawQuery: query.Encode()}).String()
}

// connect opens a connection. The error is the driver's.
func connect(ctx context.Context, path string, m mode, patience time.Duration) (*connection, error) {
	connector, err := modernc.NewConnector(dataSource(path, m, patience))
	if err != nil {
		return nil, err
	}
	raw, err := connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &connection{raw: raw, statements: map[string]statement{}}, nil
}

func (c *connection) close() error {
	var errs []error
	for _, s := range c.statements {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, c.raw.Close())...)
}

// prepared returns the statement of a constant text, prepared once per connection.
func (c *connection) prepared(text string) (statement, error) {
	if s, ok := c.statements[text]; ok {
		return s, nil
	}
	raw, err := c.raw.Prepare(text)
	if err != nil {
		return nil, err
	}
	s, ok := raw.(statement)
	if !ok {
		return nil, errors.Join(fmt.Errorf("statements of the driver lack contexts: %T", raw), raw.Close())
	}
	c.statements[text] = s
	return s, nil
}

func (c *connection) bind(values []driver.Value) []driver.NamedValue {
	c.arguments = c.arguments[:0]
	for i, value := range values {
		c.arguments = append(c.arguments, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	return c.arguments
}

// exec runs a statement and says how many rows it changed.
func (c *connection) exec(ctx context.Context, text string, values ...driver.Value) (int64, error) {
	s, err := c.prepared(text)
	if err != nil {
		return 0, err
	}
	result, err := s.ExecContext(ctx, c.bind(values))
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

// query visits the rows of a statement. An error of visit ends it.
func (c *connection) query(ctx context.Context, text string, visit func(*row) error, values ...driver.Value) (err error) {
	s, err := c.prepared(text)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(ctx, c.bind(values))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	r := &row{values: make([]driver.Value, len(rows.Columns()))}
	for {
		err := rows.Next(r.values)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		r.next, r.err = 0, nil
		if err := visit(r); err != nil {
			return err
		}
		if r.err != nil {
			return r.err
		}
	}
}

// pragma reads one setting.
func (c *connection) pragma(ctx context.Context, name string) (value string, err error) {
	err = c.query(ctx, "PRAGMA "+name, func(r *row) error {
		value = fmt.Sprint(r.values[0])
		return nil
	})
	return value, err
}
