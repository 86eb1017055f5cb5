// Package inbox takes what the Bot API tells a bot, and loses none of it.
//
//	webhook ──┐                            ┌─ line of a person ─► Handle, one after the other, again after a failure
//	          ├─► stored, committed ─► 200 ┤
//	polling ──┘     (or confirmed)         └─ pre-checkout, callback ─► Fast, at once and beside the lines
//
// Telegram repeats an update until it is answered with 200 or confirmed, and then forgets it. So an update is answered for
// only when it is in the database, and it is handled from there: at least once, also by the next process. Package telegram
// handles; cmd/holdfast mounts the webhook or runs the polling loop, and runs the worker. Several servers may share a
// database: each takes webhooks, each works, one of them polls.
//
// It knows of an update only whose it is and whether it can wait. It never drops one because its id is low (ids begin anew
// after an idle week), answers nobody itself, decides about money, or lets a failing update stop its person for good.
package inbox
