package sqlite

import (
	"context"
	"errors"

	"github.com/holdfast-dev/holdfast/store"
	modernc "modernc.org/sqlite"
	result "modernc.org/sqlite/lib"
)

// errReplaced is the cause where the path no longer leads to the file that was opened.
var errReplaced = errors.New("the database file was removed or replaced while it was open")

// codeOf is SQLite's extended result code; 0 where the error is not SQLite's.
func codeOf(err error) int {
	var e *modernc.Error
	if errors.As(err, &e) {
		return e.Code()
	}
	return 0
}

// primary is the part of a code that all its extensions share.
func primary(code int) int { return code & 0xff }

// failed makes a store's error of what went wrong before COMMIT, by result code alone. Whatever it was, nothing has
// happened: the transaction is rolled back by whoever gets the error.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *store.Error
	if errors.As(err, &known) {
		return known
	}
	return &store.Error{Kind: kindOf(err), Op: op, Hint: hints[primary(codeOf(err))], Err: err}
}

func kindOf(err error) store.Kind {
	if errors.Is(err, errRow) || errors.Is(err, errReplaced) {
		return store.Fatal
	}
	code := codeOf(err)
	switch primary(code) {
	case result.SQLITE_BUSY, result.SQLITE_LOCKED, result.SQLITE_PROTOCOL:
		return store.Conflict // another connection was faster
	case result.SQLITE_CONSTRAINT, result.SQLITE_TOOBIG, result.SQLITE_MISMATCH, result.SQLITE_RANGE:
		return store.Rejected
	case result.SQLITE_CORRUPT, result.SQLITE_NOTADB:
		return store.Fatal
	case result.SQLITE_ERROR, result.SQLITE_SCHEMA, result.SQLITE_MISUSE, result.SQLITE_INTERNAL:
		return store.Fatal // the statements are constants: one that does not run meets another schema than ours
	case result.SQLITE_READONLY:
		if code == result.SQLITE_READONLY_DBMOVED {
			return store.Fatal
		}
	}
	// A full or broken disk, no memory, no permission, an ended context, and what nobody has thought of.
	return store.Unavailable
}

// hints are the next thing to do, by primary code.
var hints = map[int]string{
	result.SQLITE_FULL:     "free some disk space; nothing is lost",
	result.SQLITE_READONLY: "let the process write to the database file and its directory",
	result.SQLITE_CANTOPEN: "let the process read the database file and its directory",
	result.SQLITE_CORRUPT:  "stop, copy the file away, and check it with: sqlite3 FILE 'PRAGMA integrity_check'",
	result.SQLITE_NOTADB:   "name a Holdfast database, or a path where none is yet",
}

// taken reports whether a row of this primary key was there already. On accounts and entries it is the fence: somebody
// else has decided meanwhile.
func taken(err error) bool { return codeOf(err) == result.SQLITE_CONSTRAINT_PRIMARYKEY }

// commitFailed makes a store's error of a COMMIT that did not succeed. stillOpen says that a ROLLBACK afterwards found
// the transaction open: then it is certain that nothing happened.
//
// A full disk is certain, too: the frame that carries the commit mark is the last one written, a torn one does not match
// its checksum, and SQLite has rolled back by itself. After any other failure to write or to sync, all frames may be in
// the file, and a crash before the next commit could bring them to life.
func commitFailed(op string, err error, stillOpen bool) error {
	if stillOpen || primary(codeOf(err)) == result.SQLITE_FULL {
		return failed(op, err)
	}
	return &store.Error{Kind: store.InDoubt, Op: op, Err: err}
}

// ended is the error where the caller has left; nothing has happened then.
func ended(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return &store.Error{Kind: store.Unavailable, Op: op, Err: err}
	}
	return nil
}
