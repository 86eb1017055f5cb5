// Package redistest gives tests real Redis servers.
//
//	Start(t)  ──► a server of the test's own, empty, to be killed and started again
//
//	where the server comes from, the first that is there
//	1  REDIS_SERVER                   the program that somebody has chosen; no other is taken instead
//	2  programs on this machine       redis-server or valkey-server in PATH
//	3  Debian's package redis-server  installed when root; its service is not started
//
// Tests of whoever speaks to Redis call it. With none of the three a test fails and says what to install: a test that
// silently did not run would be worse. With -short, which promises to need no server, it skips.
//
// A server writes every command to its file before it answers, listens on the loopback address alone, and ends with the
// test binary, however that ends: a watchdog waits for it, kills the server and removes its data.
//
// What it never does: touch a server that it did not start, or leave one running.
package redistest
