// Package holdfast decides what asynchronous work costs, exactly once.
//
//	command ──► Decide(catalog, state, command, now) ──► outcome
//	                     │  ▲                              │
//	            Advance ─┘  └─ State: account, grants,     ├─ what to answer (Outcome)
//	            (what time        named reservations,      └─ what to write  (State.Changes)
//	             has done)        recorded answers
//
//	  reserve        start         commit
//	─────────► reserved ──► running ──────► committed
//	               │           │ release, cancel
//	               ├───────────┼──────────► released
//	               │           │ the sweeper, at expires_at
//	               └───────────┴──────────► expired ── late commit ──► expired, late_used set
//
// The package is the domain: it knows the rules of money and nothing else. It reads no clock, draws no random number,
// opens no file, starts no goroutine and logs nothing; ids and times come in with the command. The same inputs give the
// same outcome on every machine, which is what lets the engine decide again after a conflict.
//
// The engine calls it. Stores give it a State and write its Changes. Edges (HTTP, CLI, library) turn requests into
// Commands and Outcomes into answers, and never judge.
//
// What it never does: change a counter outside ledger.go, price a commit again, or turn an accident into a refusal.
package holdfast
