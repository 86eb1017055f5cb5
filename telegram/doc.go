// Package telegram is the kit for bots that sell work: it turns what people do in a chat into commands, and what became of
// them into messages.
//
//	raw update ─► account ─► command, button ─► the author's handler ─► Turn.Ask
//	                    └──► feature ──────────────────────────────────────┤
//	                                                                       ▼
//	     refusal with buttons ◄── no ── reserve with a job (key: the intention) ── yes ─► status message, [Cancel]
//	                                                                       │
//	     jobs.Worker per queue ─► the author's Feature.Do ─► result is delivered as a reply ─► commit
//	                                                   └─► error, panic, 403 ─► release
//	     outbox ─► Sink ─► what failed, expired, waits, was paid or refunded: told once
//
// Authors of bots in Go call it, and so does the bot of package cmd. Updates come from telegram/inbox, or raw from any
// other bot library.
//
// What it never does: decide about money, say that nothing was charged before that is so, show a person what a provider
// has answered when it failed, or let a button act for somebody else than the one who pays.
package telegram
