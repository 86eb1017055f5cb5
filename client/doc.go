// Package client asks a Holdfast server from Go. It has the verbs of the engine behind the same interface
// (engine.Submitter), so that a program is written once and runs with either.
//
//	Submit ─► check ─► request ─► attempt ─► answer ─► Outcome
//	          shape    one per      │  ▲
//	          and key  operation    └──┘ again: the same key and body, with growing pauses,
//	                                     after a lost connection, 429, 502, 503 and 504
//
//	file         what it answers for
//	client.go    what it needs, Submit, Ask, Run
//	request.go   operations into calls
//	send.go      attempts, pauses, accidents
//	answer.go    answers into outcomes
//	batch.go     many commands in one request
//	names.go     aliases and merges
//	queue.go     jobs of a queue
//	telegram.go  a bot that sells for Stars and keeps its token
//	read.go      accounts, balances, payments, lists, explanations, the catalog
//
// Programs that have work to charge call it: bots, web servers, workers. A refusal is an outcome (or *engine.Refused where
// a read needs an error), an accident is an *engine.Error that says whether anything can have happened.
//
// What it never does: decide about money, keep anything between calls, repeat a refusal, send a command that creates
// without a key, follow a redirect with the API key, or show the API key to anybody.
package client
