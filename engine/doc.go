// Package engine is the one door to the money: it takes commands, groups what waits into batches, and answers only after
// the database has committed.
//
//	Submit ─► queue ─► batch ─► Load ─► Decide ─► Save ─► answer
//	            │      (lane)     │       (core)     │
//	  per account in order;       │                  ├ conflict, in doubt: load and decide again, same ids, fresh time
//	  accounts in turn            │                  ├ rejected: one account at a time, then one command at a time
//	                              │                  └ fatal: stop
//	                              └ what fails its invariants is quarantined
//
// Edges (HTTP, command line, the caller's own program) call Submit, Run and the reads. The sweeper is part of the engine and sends
// commands like anyone else.
//
// What it never does: decide about money, keep an account's state between batches, tell an outcome that was not saved, or
// turn an accident into a refusal.
package engine
