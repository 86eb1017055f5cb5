// Package bench measures what the engine's batches are worth: whole cycles of reserve and commit, through the engine and
// over HTTP, beside baselines that write the same rows into the same tables.
//
//	scratch database ─► accounts ─► rounds: every cell in turn ─► medians ─► ratios, goals
//	                                          │
//	     engine · http · naive · cte · bare ──┘   (baseline/*.sql)
//
// The command line calls it (holdfast bench), and so does its own test (make bench). Figures of one run are compared with
// each other and with nothing else: a ratio travels from machine to machine, a rate does not.
//
// What it never does: touch anything outside the scratch database that it makes and drops, measure with durable settings
// off, or fail because of a figure.
package bench
