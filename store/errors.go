package store

import (
	"errors"
	"fmt"
)

// Kind says what an error means for the caller. It is all that the engine looks at.
type Kind int

// The kinds of errors.
const (
	// Unavailable: nothing happened, and the database cannot be used now.
	Unavailable Kind = iota
	// Conflict: nothing happened; load and decide again.
	Conflict
	// InDoubt: the commit may or may not have happened. Loading again, under the lock, tells.
	InDoubt
	// Rejected: the database refused the content. It is our fault, and the same content will be refused again.
	Rejected
	// Fatal: the store cannot be trusted at all (another schema, a lost lock on the file). The engine stops.
	Fatal
)

var kindNames = [...]string{"unavailable", "conflict", "in doubt", "rejected", "fatal"}

// String is the kind's word.
func (k Kind) String() string { return kindNames[k] }

// Error is what every method of a store returns. Nothing of it reaches a caller of the API.
type Error struct {
	Kind Kind
	Op   string // what the store was doing: "save accounts"
	Hint string // the next command to type, where there is one
	Code string // the database's own code (SQLSTATE), where there is one; for metrics and logs
	Err  error
}

// Error tells operation, kind, cause and hint.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s: %s: %v", e.Op, e.Kind, e.Err)
	if e.Hint != "" {
		text += " (" + e.Hint + ")"
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of a store's error. What is no *Error counts as Unavailable: nothing is known to have happened.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Unavailable
}
