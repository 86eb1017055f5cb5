package holdfast

import "time"

// Fingerprint tells requests under one key apart: operation, target, feature, quantity, usage and amounts, after defaults
// were filled in; not metadata, surface, ttl, worker, tokens or reason.
type Fingerprint [16]byte

// Answer is what was replied under a key of the account, kept to be repeated.
type Answer struct {
	Key         string
	Fingerprint Fingerprint
	Command     ID // which command was answered: its own retry is not a replay
	Outcome     Outcome
	RecordedAt  time.Time
}
