// Package fakeapi is a stand-in for Telegram's Bot API: a real HTTP server that speaks its protocol to bots, and lets a test,
// a program or curl be the person on the other side.
//
//	bot, in any language                      fakeapi                         the person
//	POST /bot<token>/<method>  ──────────►  chats, invoices,   ◄──────────  Go: Send, Tap, Pay, Block, Advance, Messages …
//	getUpdates, or a webhook   ◄──────────  Stars, clock       ◄──────────  HTTP: the same under /sim/
//	                                        transcript         ──────────►  assertions: this never after that, how many a second
//
// Requests come as JSON, urlencoded or multipart. Updates are told in order per person, again until a webhook answers 2xx,
// for 24 hours (queries: 150 seconds). Payments ask the bot first and wait ten seconds; subscriptions renew when the clock
// is advanced. Faults are scripted: calls that are refused, fail, lose their answer after the effect or never answer; updates
// that come twice, out of order or not at all, and ids that jump back.
//
// Tests of bots call it, and `holdfast fake-telegram`. Where Telegram's own behaviour is not documented, the methods say what
// was assumed. Methods that it does not know answer 404. What it never does: reach Telegram, keep anything on disk, ask for
// HTTPS where a webhook is set, parse Markdown (such texts are shown as they were written), or know Holdfast.
package fakeapi
