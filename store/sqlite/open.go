package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// Options say how to open a database. The zero value reads and writes beside a process that may be serving it.
type Options struct {
	// Serve makes this the one serving process of the file; a second one is refused.
	Serve bool
	// ReadOnly never makes, migrates or changes the file. Begin gives transactions that cannot load.
	ReadOnly bool
	// Patience bounds every wait for another transaction, in this process or another; then the answer is a Conflict.
	// 0: 5 seconds.
	Patience time.Duration
}

const (
	defaultPatience = 5 * time.Second
	// readerCount is how many pages are read at once. Reads are short and share two or so cores with the writer.
	readerCount = 4
)

// DB is a store in one file. It is safe for concurrent use.
type DB struct {
	path     string // resolved
	options  Options
	identity os.FileInfo // of the file that was opened
	lock     *fileLock   // nil where this process does not serve

	// writer holds the one connection that writes: whoever has received it has the right to write. nil means that it must
	// be opened anew. readers holds the places of the read-only ones, in the same way.
	// dumpers holds places alone: a dump opens a connection of its own, so that a long one keeps no page waiting.
	writer  chan *connection
	readers chan *connection
	dumpers chan *connection

	closing chan struct{} // closed by Close
	once    sync.Once
	closed  error // what Close returned
}

var _ store.Store = (*DB)(nil)

// Open opens the database at path, makes and migrates it where the options allow, and asserts that its durable settings
// are in force. The error is a *store.Error with a hint where there is a next step.
//
// Refused as Fatal: a second serving process, a file of something else, a newer schema, an older one where the options
// forbid to migrate it or a running process serves it.
func Open(ctx context.Context, path string, options Options) (*DB, error) {
	from, err := fs.Sub(migrations, "migration")
	if err != nil {
		return nil, failed("read the migrations", err)
	}
	return open(ctx, path, options, from)
}

func open(ctx context.Context, path string, options Options, from fs.FS) (*DB, error) {
	const op = "open the database"
	if options.Patience == 0 {
		options.Patience = defaultPatience
	}
	resolved, err := place(path, options)
	if err != nil {
		return nil, err
	}
	db := &DB{
		path: resolved, options: options,
		writer: make(chan *connection, 1), readers: make(chan *connection, readerCount), dumpers: make(chan *connection, readerCount),
		closing: make(chan struct{}),
	}
	for _, places := range db.places() {
		for range cap(places) {
			places <- nil
		}
	}
	if err := db.prepare(ctx, from); err != nil {
		_ = db.Close() // what it could say is said by err
		return nil, failed(op, err)
	}
	return db, nil
}

// place finds the file's one name, or says what is wrong with the path.
func place(path string, options Options) (string, error) {
	const op = "open the database"
	fatal := func(hint string, err error) error {
		return &store.Error{Kind: store.Fatal, Op: op, Hint: hint, Err: err}
	}
	if path == "" || path == ":memory:" {
		return "", fatal("name a file, or use --db memory: for nothing that lasts", errors.New("the path names no file"))
	}
	if options.Serve && options.ReadOnly {
		return "", fatal("", errors.New("a database cannot be served without writing"))
	}
	resolved, err := resolve(path)
	if err != nil {
		return "", fatal("make the directory first: "+filepath.Dir(path), err)
	}
	switch info, err := os.Stat(resolved); {
	case errors.Is(err, os.ErrNotExist) && options.ReadOnly:
		return "", fatal("check the path, or make the database with: holdfast serve --db sqlite:"+path, fmt.Errorf("there is no file %s", resolved))
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return "", fatal("let the process read the file and its directory", err)
	case err == nil && !info.Mode().IsRegular():
		return "", fatal("name a file", fmt.Errorf("%s is not a file", resolved))
	}
	return resolved, nil
}

// prepare takes the lock, brings the schema up to date and opens the first connections.
func (db *DB) prepare(ctx context.Context, from fs.FS) (err error) {
	if db.options.Serve {
		if db.lock, err = lockFile(ctx, db.path, serves, db.options.Patience); err != nil {
			return err
		}
	}
	if db.options.ReadOnly {
		err = refuseOtherSchema(ctx, db.path, from, db.options.Patience)
	} else if err = createPrivately(db.path); err == nil {
		err = ensureSchema(ctx, db.path, from, db.options.Serve, db.options.Patience)
	}
	if err != nil {
		return err
	}
	if db.identity, err = os.Stat(db.path); err != nil {
		return err
	}
	durable, err := db.Durability(ctx)
	if err != nil {
		return err
	}
	if err := durable.inForce(db.options); err != nil {
		return err
	}
	if db.lock != nil {
		db.lock.announce(serves)
	}
	return nil
}

// createPrivately makes a missing file readable for its owner alone: recorded answers hold lease tokens. SQLite gives its
// own files beside it the same mode.
func createPrivately(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return file.Close()
}

// refuseOtherSchema is what a reader does instead of migrating.
func refuseOtherSchema(ctx context.Context, path string, from fs.FS, patience time.Duration) error {
	target, err := newest(from)
	if err != nil {
		return err
	}
	current, err := isCurrent(ctx, path, reading, target, patience)
	if err != nil || current {
		return err
	}
	return &store.Error{
		Kind: store.Fatal, Op: "look at the database's schema", Hint: "run holdfast serve of this version once: it migrates the file",
		Err: errors.New("the file has an older schema, and was opened for reading only"),
	}
}

// Durability is what SQLite itself says about the settings that an acknowledged commit rests on.
type Durability struct {
	JournalMode string // "wal"
	Synchronous string // "2" is FULL: the WAL is synced before COMMIT returns
	ForeignKeys string // "1" is on
}

// Durability asks the connection that writes, or, of a database opened for reading, a connection that reads.
func (db *DB) Durability(ctx context.Context) (d Durability, err error) {
	const op = "read the durable settings"
	ask := func(c *connection) error {
		for name, into := range map[string]*string{
			"journal_mode": &d.JournalMode, "synchronous": &d.Synchronous, "foreign_keys": &d.ForeignKeys,
		} {
			if *into, err = c.pragma(ctx, name); err != nil {
				return err
			}
		}
		return nil
	}
	take, giveBack := db.takeWriter, db.giveWriter
	if db.options.ReadOnly {
		take, giveBack = db.takeReader, db.giveReader
	}
	c, err := take(ctx, op)
	if err != nil {
		return d, err
	}
	err = ask(c)
	giveBack(c)
	return d, failed(op, err)
}

func (d Durability) inForce(options Options) error {
	wanted := Durability{JournalMode: "wal", Synchronous: "2", ForeignKeys: "1"}
	if d == wanted || options.ReadOnly && d.JournalMode == wanted.JournalMode {
		return nil
	}
	return &store.Error{
		Kind: store.Fatal, Op: "assert the durable settings", Hint: "keep the file on a local disk: WAL does not work on network file systems",
		Err: fmt.Errorf("SQLite has %+v in force instead of %+v", d, wanted),
	}
}

// places are in the order in which they are closed. The writer is the last: SQLite moves the WAL into the file when the
// last connection leaves, and only one that may write can.
func (db *DB) places() []chan *connection {
	return []chan *connection{db.readers, db.dumpers, db.writer}
}

// Traits: one transaction may span any number of accounts.
func (db *DB) Traits() store.Traits { return store.Traits{} }

// check says whether the database may still be used. It costs a stat.
func (db *DB) check(op string) error {
	select {
	case <-db.closing:
		return &store.Error{Kind: store.Unavailable, Op: op, Err: errors.New("the store is closed")}
	default:
	}
	now, err := os.Stat(db.path)
	switch {
	case err == nil && os.SameFile(now, db.identity):
		return nil
	case err == nil, errors.Is(err, os.ErrNotExist):
		return &store.Error{Kind: store.Fatal, Op: op, Hint: "stop, put the file back in its place, and start again", Err: errReplaced}
	}
	return failed(op, err)
}

// takeWriter waits for the right to write, at most as long as the options say.
func (db *DB) takeWriter(ctx context.Context, op string) (*connection, error) {
	if db.options.ReadOnly {
		return nil, &store.Error{Kind: store.Unavailable, Op: op, Hint: "open it for writing", Err: errors.New("the database was opened for reading only")}
	}
	return db.take(ctx, op, db.writer, writing)
}

func (db *DB) takeReader(ctx context.Context, op string) (*connection, error) {
	return db.take(ctx, op, db.readers, reading)
}

func (db *DB) take(ctx context.Context, op string, from chan *connection, m mode) (*connection, error) {
	if err := ended(ctx, op); err != nil {
		return nil, err
	}
	patience := time.NewTimer(db.options.Patience)
	defer patience.Stop()
	select {
	case c := <-from:
		err := db.check(op)
		if err == nil && c == nil {
			c, err = connect(ctx, db.path, m, db.options.Patience)
		}
		if err != nil {
			from <- c
			return nil, failed(op, err)
		}
		return c, nil
	case <-db.closing:
		return nil, db.check(op)
	case <-ctx.Done():
		return nil, ended(ctx, op)
	case <-patience.C:
		return nil, &store.Error{Kind: store.Conflict, Op: op, Err: errors.New("other transactions of this process took too long")}
	}
}

func (db *DB) giveWriter(c *connection) { db.writer <- c }
func (db *DB) giveReader(c *connection) { db.readers <- c }

// Close lets transactions and reads that run come to their end, as long as the options say, and lets nothing new begin.
// Whoever closes a database before its transactions have ended gets an error, and the file stays locked until the
// process ends.
func (db *DB) Close() error {
	db.once.Do(func() { db.closed = failed("close the database", db.close()) })
	return db.closed
}

func (db *DB) close() error {
	close(db.closing)
	patience := time.After(db.options.Patience)
	var errs []error
	for _, places := range db.places() {
		for range cap(places) {
			select {
			case c := <-places:
				if c != nil {
					errs = append(errs, c.close())
				}
			case <-patience:
				return errors.Join(append(errs, errors.New("a transaction or a read has not ended"))...)
			}
		}
	}
	return errors.Join(append(errs, db.lock.release())...)
}
