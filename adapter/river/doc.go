// Package river lets River (https://riverqueue.com) carry the work that reservations pay for, on PostgreSQL: the job is
// inserted in the caller's transaction together with the reservation, and every attempt of it works under that one
// reservation.
//
//	BEGIN                                         attempt ── Start, heartbeats ──► doInner
//	  the caller's own rows                          │                               │
//	  Insert: reserve ─ refused ─► no job            │        nil ───────────────────┴──► commit
//	            │                                    │        will be tried again, snooze ► kept, lease let go
//	            └──► the job, with the               │        last failure, cancel ──────► release
//	COMMIT           reservation's id                └─       in doubt ──────────────────► in doubt, not tried again
//
// A program with River and an engine of its own calls it: Insert where it reserves, and a Middleware in its River client.
// River keeps its tables where the program wants them, made by River's own migrations.
//
// What it never does: decide about money, let a job run whose reservation has ended, or keep a reservation for a job that
// River will not try again. The binary of Holdfast does not contain it.
package river
