// Package jobs does the work that waits in queues of Holdfast.
//
//	          ┌────────────── given back, lease lost ─────────────┐
//	          ▼                                                   │
//	queue ─ claim ─► job ─► Handle ──nil──► commit                │
//	                  │        ├── error, panic, too long ────────┤
//	              heartbeats   ├── Fail ──────► release           │
//	             a third of    ├── doubt ─────► in_doubt          │
//	            the lease apart└── stopped ───────────────────────┘
//
// A program that works calls it, with an engine in the same process or with a client of a server: Worker takes jobs, and Provider
// asks a model provider or a gateway in a way that never pays twice.
//
// What it never does: decide about money, charge for a job whose lease it has lost, or end one that somebody else has.
package jobs
