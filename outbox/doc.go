// Package outbox tells the outside what was decided: every event leaves the database because it was committed with what
// it tells of, and at least once, with the same id.
//
//	account's outbox rows ── Pending ─► compose ── Publish ─► published events, by position ──► GET /v1/events
//	 (written with the money)            one transaction per chunk     │
//	                                                                   ├─► Sink: Go callback, broker     (a cursor each)
//	                                                                   └─► Dispatch ─► deliveries ─► POST to an endpoint
//	                                                                        (rows: retries, dead letters)
//
// Notices wait beside the outbox until they are due; then the relay puts them into it, unless they were withdrawn.
//
// Package cmd runs one Relay per server; the one that holds the lease works, the others wait. Nothing is lost or doubled
// by where a process dies: a row leaves the outbox in the transaction that gives it its position, a cursor moves after
// the sink has taken the events, a delivery ends after the endpoint has answered. A library user runs the same Relay with
// Sinks of their own. Desk is what edges call to manage endpoints.
//
// Events of one account keep their order everywhere. Endpoints do not wait for each other, nor do accounts.
//
// What it never does: decide about money, keep an account's name beside the account, follow a redirect, or connect to an
// address of a private network that nobody has allowed.
package outbox
