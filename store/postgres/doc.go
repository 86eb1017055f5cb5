// Package postgres keeps everything in a PostgreSQL database, 15 or newer, that several servers may share.
//
//	         one round trip                                          another
//	Begin ──► Load: BEGIN, settings ─► make missing accounts    ──► Save: account (fence) ─► grants ─► reservations
//	(nothing)       ─► lock, in order of ids                              ─► entries ─► answers ─► outbox ─► COMMIT
//	                ─► grants, reservations, answers                                                            │
//	         ◄── states                                          ◄── answered after COMMIT's own reply ◄────────┘
//
//	Read, Scan, lookups ── a connection of the pool, one snapshot each; they take no lock and wait for none
//	Dump                ── a connection of its own
//	Tx                  ── the same Load and Save inside a transaction of the caller, which they never end
//
// The engine calls it through the contract of package store; the edges use its lookups (projects, keys, catalogs).
//
// What keeps the money right: locks are taken first and everything is read in later statements, because a snapshot that
// was taken before a wait for a lock is old when the wait is over; every write says which version of the account it is
// based on, and a statement that fails when one is not the stored one stands before COMMIT, so that the server itself
// never comes to COMMIT then.
//
// It keeps no state in a session, so that it works behind a pooler that lends sessions for one transaction (PgBouncer):
// settings are SET LOCAL, there are no advisory locks, and the URL's default_query_exec_mode may turn prepared statements
// off. READ COMMITTED throughout, but for Dump.
//
// What is read under the lock is written by the place it was read from. And every statement is held to its index, since a plan
// that is right for the statistics of the day would one day read the history: see setPlans.
//
// What it never does: decide anything, update or delete a ledger entry, acknowledge before COMMIT is answered, tell errors
// apart by their text or by the name of a constraint, take a second connection inside a transaction, let an argument of a
// statement get into an error, or let a type of the driver out but for Tx.
package postgres
