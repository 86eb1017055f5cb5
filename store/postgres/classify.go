package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-dev/holdfast/store"
)

// failed makes a store's error of what went wrong before COMMIT was sent, by SQLSTATE alone. Whatever it was, nothing has
// happened: the transaction is undone by whoever gets the error, or by the server when its connection is gone.
func failed(op string, err error) error {
	if err == nil {
		return nil
	}
	var known *store.Error
	if errors.As(err, &known) {
		return known
	}
	kind, hint := kindOf(err)
	return &store.Error{Kind: kind, Op: op, Hint: hint, Code: codeOf(err), Err: plain(err)}
}

// notCommitted makes a store's error of a pipeline with COMMIT in it that did not end well. stillOpen says that the server
// has told, after all of it, that the transaction is there: then it was not committed. An ERROR tells the same. Everything
// else leaves doubt: the connection broke, a FATAL came, which a pooler may have made up after the server had committed, or
// a server has lost the server behind it.
func notCommitted(op string, err error, stillOpen bool) error {
	var server *pgconn.PgError
	certain := errors.As(err, &server) && server.SeverityUnlocalized == "ERROR" && !doubtful(server.Code)
	if stillOpen || certain || errors.Is(err, errRolledBack) || pgconn.SafeToRetry(err) { // of the last, nothing was sent
		return failed(op, err)
	}
	return &store.Error{Kind: store.InDoubt, Op: op, Code: codeOf(err), Err: plain(err)}
}

// errRolledBack is the cause where the server answers COMMIT with ROLLBACK: it has found the transaction broken, and says
// so in no other way.
var errRolledBack = errors.New("the server answered COMMIT with ROLLBACK")

func doubtful(code string) bool {
	return code == completionUnknown || strings.HasPrefix(code, classConnection) && code != protocolViolation
}

// codeOf is the SQLSTATE of an error; "" where the server told none.
func codeOf(err error) string {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return server.Code
	}
	var e *told
	if errors.As(err, &e) {
		return e.code
	}
	return ""
}

const (
	classConnection   = "08"
	protocolViolation = "08P01"
	completionUnknown = "40003"
	readOnly          = "25006"
	divisionByZero    = "22012"
	uniqueViolation   = "23505"
)

// kindOf tells what an error means for the engine, and the next thing to do where there is one. The specific code goes
// before its class.
func kindOf(err error) (store.Kind, string) {
	if errors.Is(err, errRow) {
		return store.Fatal, ""
	}
	var meant *meaning
	if errors.As(err, &meant) {
		return meant.kind, ""
	}
	code := codeOf(err)
	if code == "" {
		if broken(err) {
			return store.Unavailable, ""
		}
		return store.Rejected, "" // the driver could not even send it
	}
	if known, ok := codes[code]; ok {
		return known.kind, known.hint
	}
	if known, ok := codes[code[:2]]; ok {
		return known.kind, known.hint
	}
	return store.Unavailable, ""
}

type known struct {
	kind store.Kind
	hint string
}

const (
	withoutPrepared = "behind a pooler that lends sessions per transaction, add default_query_exec_mode=exec to the URL, or let the pooler track prepared statements"
	otherSchema     = "the database has another schema than this program expects: run holdfast migrate of this version"
)

// codes are kinds by SQLSTATE, or by its first two characters, which are its class.
var codes = map[string]known{
	"40001": {kind: store.Conflict}, // serialisation failure
	"40P01": {kind: store.Conflict}, // deadlock: the server chose us to give way
	"55P03": {kind: store.Conflict}, // lock_timeout
	"40":    {kind: store.Conflict},
	"XX000": {kind: store.Conflict}, // "could not commit", of a sharded database
	"0A000": {kind: store.Conflict}, // a cached plan does not fit any more; the driver has dropped it

	"08P01": {kind: store.Rejected}, // a value that cannot be sent, or the end of a pooler's session: see notCommitted
	"08":    {kind: store.Unavailable},
	"25006": {kind: store.Unavailable, hint: "the server is a standby; name all servers in the URL, and the one that writes will be found"},
	"26000": {kind: store.Unavailable, hint: withoutPrepared},
	"42P05": {kind: store.Unavailable, hint: withoutPrepared},
	"28":    {kind: store.Unavailable, hint: "check user and password of the URL, and pg_hba.conf of the server"},
	"3D000": {kind: store.Unavailable, hint: "make the database first: createdb NAME"},
	"42501": {kind: store.Unavailable, hint: "the schema holdfast belongs to another user: connect as its owner, or let the owner GRANT"},
	"53100": {kind: store.Unavailable, hint: "free some disk space on the server; nothing is lost"},
	"53300": {kind: store.Unavailable, hint: "lower pool_max_conns in the URLs, raise max_connections, or put a pooler in between"},
	"53":    {kind: store.Unavailable},
	"57":    {kind: store.Unavailable}, // cancelled, shutting down, crashed, starting up
	"58":    {kind: store.Unavailable},

	"21": {kind: store.Rejected},
	"22": {kind: store.Rejected},
	"23": {kind: store.Rejected},
	"44": {kind: store.Rejected},
	"54": {kind: store.Rejected},

	// The statements are constants: one that does not run meets another schema than ours.
	"42":    {kind: store.Fatal, hint: otherSchema},
	"3F":    {kind: store.Fatal, hint: otherSchema},
	"XX001": {kind: store.Fatal, hint: "the server found its data damaged: stop, and restore from a backup"},
	"XX002": {kind: store.Fatal, hint: "the server found an index damaged: stop, and REINDEX"},
}

// meaning gives an error of one statement the kind that its code has there.
type meaning struct {
	kind  store.Kind
	rule  error // what was broken, in words
	cause error // the server's error; nil: it told none
}

// Error is the rule.
func (m *meaning) Error() string { return m.rule.Error() }

// Unwrap gives both.
func (m *meaning) Unwrap() []error { return []error{m.rule, m.cause} }

// told is an error of the server as it may leave the store.
type told struct {
	code    string // SQLSTATE
	message string
}

// Error is the code and the message.
func (t *told) Error() string { return fmt.Sprintf("SQLSTATE %s: %s", t.code, t.message) }

// SQLState is for whoever counts errors by it.
func (t *told) SQLState() string { return t.code }

// broken reports whether the connection, and not what was sent over it, is to blame.
func broken(err error) bool {
	var network net.Error
	var dial *pgconn.ConnectError
	for _, sign := range []error{
		context.Canceled, context.DeadlineExceeded, io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, net.ErrClosed, pgconn.ErrConnClosed, errClosed, errNoneFree,
	} {
		if errors.Is(err, sign) {
			return true
		}
	}
	return pgconn.SafeToRetry(err) || pgconn.Timeout(err) || errors.As(err, &dial) || errors.As(err, &network)
}

// plain is the error without what must not be told. The driver's own text holds every argument of the statement in some
// modes, and the server's detail holds rows: neither belongs into a log. What stays is the server's code and message, a
// context's end, a network's failure, or an error of our own; of everything else the type alone.
func plain(err error) error {
	var meant *meaning
	var server *pgconn.PgError
	var dial *pgconn.ConnectError
	var network net.Error
	switch {
	case errors.As(err, &meant):
		if meant.cause == nil {
			return meant.rule
		}
		return fmt.Errorf("%w: %w", meant.rule, plain(meant.cause))
	case errors.Is(err, errRow):
		var column pgx.ScanArgError
		if errors.As(err, &column) {
			return fmt.Errorf("%w: column %s", errRow, column.FieldName)
		}
		return err
	case errors.As(err, &server):
		return &told{code: server.Code, message: server.Message}
	case errors.Is(err, context.Canceled):
		return context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return context.DeadlineExceeded
	case errors.Is(err, errClosed), errors.Is(err, errNoneFree):
		return err
	case errors.As(err, &dial):
		return fmt.Errorf("the server cannot be reached: %w", textOf(dial.Unwrap()))
	case errors.As(err, &network):
		return fmt.Errorf("the connection broke: %w", textOf(network))
	case broken(err):
		return errors.New("the connection broke")
	}
	return fmt.Errorf("the driver failed with a %T", err)
}

// textOf keeps the words of a network's error, and lets nobody reach into it.
func textOf(err error) error { return errors.New(err.Error()) }

// ended is the error where the caller has left; nothing has happened then.
func ended(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return &store.Error{Kind: store.Unavailable, Op: op, Err: err}
	}
	return nil
}

func misuse(op, rule string) error {
	return &store.Error{Kind: store.Rejected, Op: op, Err: errors.New(rule)}
}
