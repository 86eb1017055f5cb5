// Package sqlite keeps everything in one SQLite file, embedded in the process.
//
//	            ┌── writer: one connection, one transaction at a time ──────────┐
//	Begin ──►   │ Load: BEGIN IMMEDIATE ─► accounts ─► grants, reservations,    │
//	(nothing)   │                                     answers                   │
//	            │ Save: account (fence) ─► grants ─► reservations ─► entries    │
//	            │       ─► answers ─► outbox ─► COMMIT (fsync of the WAL)       │
//	            └───────────────────────────────────────────────────────────────┘
//	Read, Scan  ── readers: a few read-only connections, one snapshot each; they never wait for the writer
//	Dump        ── a read-only connection of its own
//
//	file        what it is                          who holds it
//	PATH        the database, in WAL mode           SQLite's own locks, several processes
//	PATH.lock   who serves or migrates the file     an operating-system lock; gone with its process
//
// The engine calls it through the contract of package store; the edges use its lookups (projects, keys, catalogs). Several
// processes may open one file: BEGIN IMMEDIATE takes SQLite's write lock before anything is read, and the fence would
// catch what a lock cannot. One of them may serve.
//
// What it never does: decide anything, update or delete a ledger entry, acknowledge before the WAL is synced, tell errors
// apart by their text, open the database file other than through SQLite (closing such a descriptor would drop SQLite's
// locks), or let a type of the driver out.
package sqlite
