package store

import "errors"

// Catalog is one stored version of a catalog. Versions are never changed; the newest one counts.
type Catalog struct {
	Project string // empty: of every project that has none of its own
	Version int64  // counts from 1; a project's first own one follows the one that it had before
	Source  []byte
}

// ErrVersion is the cause of the Conflict of AddCatalog where another version than the expected one is the newest.
var ErrVersion = errors.New("another version of the catalog is the newest by now")

// AnyVersion, expected by AddCatalog, means that whatever is newest is replaced.
const AnyVersion = -1

// StaleCatalog is what AddCatalog answers where another version than the expected one is the newest.
func StaleCatalog() error { return &Error{Kind: Conflict, Op: "add a catalog", Err: ErrVersion} }
