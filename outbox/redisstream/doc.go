// Package redisstream takes events into Redis Streams: one stream per project, whose entry ids are the positions of the
// events.
//
//	events 401–500 of shop ─► one script: compares with what ─► holdfast:shop       401-0, 402-0, … 500-0
//	                          was taken before, then XADD    └─► holdfast:shop:last  position 500, its event's id
//	                          one by one until one fails
//
// Package cmd gives a Sink to the relay, and so does a library user; nobody else calls it.
//
// Events come at least once, and Redis itself refuses the second time: what is at or below the noted position is not added
// again, and counts as taken if it is the same event. So a consumer sees a repeat only where Redis forgot what it had (a
// restart without a durable file, a flush) or delivers again itself, as consumer groups do: whoever acts on events keeps
// the ids of those it has acted on, in the transaction of the act.
//
// What it never does: pass over an event that it cannot tell from another one (a database that was restored from a backup
// gives positions again: that is ErrOtherHistory, until somebody decides), or put a password or what an event says into an error.
package redisstream
