package store

import "time"

// Key is an API key as a store keeps it: never the secret itself, only its hash.
type Key struct {
	ID        string
	Hash      [32]byte // SHA-256 of the secret
	Project   string
	Scopes    []string
	RateLimit int    // requests per second; 0: the server's
	Note      string // what it is for, in the operator's words; may be empty
	CreatedAt time.Time
	RevokedAt time.Time // zero: in force
}
