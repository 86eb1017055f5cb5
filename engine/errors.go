package engine

import "fmt"

// Code says which accident kept a command from being answered. Accidents are never refusals and never recorded.
type Code string

// The accidents.
const (
	// Overloaded: too much waits already. Nothing happened; come back.
	Overloaded Code = "overloaded"
	// Unavailable: the database cannot be used, the server is stopping, or the account is quarantined. Nothing happened.
	Unavailable Code = "unavailable"
	// OutcomeUnknown: the caller left, or the database was lost, while the command was being decided. Repeat it with the same key.
	OutcomeUnknown Code = "outcome_unknown"
	// Cancelled: the caller left while the command still waited. Nothing happened.
	Cancelled Code = "cancelled"
	// Internal: our fault. Nothing happened.
	Internal Code = "internal"
)

// Error is every error that Submit returns, here and in package client.
type Error struct {
	Code Code
	Hint string // what to do, safe to show to a caller
	Err  error  // for the log only; may be nil
	// Unknown says that the command can have been done in spite of the error. Of OutcomeUnknown it goes without saying.
	Unknown bool
}

// Error tells code, hint and cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("%s: %s", e.Code, e.Hint)
	}
	return fmt.Sprintf("%s: %s: %v", e.Code, e.Hint, e.Err)
}

// MayHaveHappened reports whether the command can have been done in spite of the error. The same command under the same key
// then tells. Where it is false, nothing happened.
func (e *Error) MayHaveHappened() bool { return e.Unknown || e.Code == OutcomeUnknown }

// Passing reports whether the same command can succeed a little later.
func (e *Error) Passing() bool {
	return e.Code == Overloaded || e.Code == Unavailable || e.Code == OutcomeUnknown
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
