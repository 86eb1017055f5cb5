// Package memory keeps everything in maps, for as long as the process lives.
//
//	Begin ──► Load: take the one lock ─► copy out ──► Save: check, copy in, all or nothing ─► let the lock go
//	Read, Scan, Dump: copy out of one moment, without that lock
//
// Tests and --db memory: call it where a real database would only be in the way. It gives every answer that the SQL
// stores give, refusals included: the same rows are turned away for the same reasons (rules.go says which).
//
// What it never does: hand out or keep a pointer that a caller also holds, fail on purpose, or survive its process.
package memory
