// Package faultstore makes a store go wrong: on demand, or by a plan drawn from a seed.
//
//	engine ── Load ─► plan: before ─► the real store ─► plan: after ── reply ─► engine
//	                    │ fail, stall, disconnect,        │ say an error although it was done,
//	                    │ crash, commit later             │ stall, disconnect, crash, lose the lock
//
// Tests call it: the simulator and whoever needs a database that fails, stalls, loses the connection, commits and says an
// error, or dies. One Store is what one process sees of the data; several may be opened on the same data, and Reopen gives
// the process that comes after a crash.
//
// What it never does: change what is written or read, write half of a transaction, or keep a lock that the process which
// held it has lost.
package faultstore
