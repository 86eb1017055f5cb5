// Package sim holds no code, only tests: a simulator that looks for the order of events in which money goes wrong.
//
//	callers ── submit, repeat, leave ─► two servers: the real engine, its sweeper, clocks that differ
//	                                          │ every call to the store waits for the driver
//	driver: one step at a time, from a seed ──┤ go on, fail, disconnect, commit later, lose the lock, crash, start again
//	                                          ▼
//	                                    one store ──► after every step: everything that must always hold
//
// One driver chooses every step from a seed: which server's next call to the store goes on and what goes wrong with it,
// who submits or repeats what, how the clocks move. It waits until nothing can move by itself before it takes the next
// step, so a seed gives the same history on every machine. Whoever changes the core, the engine or a store runs it
// (go test ./internal/sim, make sim SEED= N=); a failing seed prints its last steps and the command that replays it.
//
// What it never does: read the real clock, sleep in real time, or judge an answer by the code that gave it.
package sim
