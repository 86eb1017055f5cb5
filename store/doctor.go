package store

import "context"

// Finding is one thing that a store looked at in its database, for an operator.
type Finding struct {
	Check string // what was looked at
	Found string // what it is like
	Do    string // what to do; empty: nothing
}

// Doctored is a store that can look at its database's own troubles: locks, settings, replicas.
type Doctored interface {
	// Diagnose changes nothing. Errors are *Error.
	Diagnose(ctx context.Context) ([]Finding, error)
}
