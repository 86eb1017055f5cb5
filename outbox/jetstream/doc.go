// Package jetstream takes events into a stream of NATS JetStream: every event a message whose subject is its project and type.
//
//	events 401–500 of shop ─► waves: of each account its next one ─► holdfast.shop.reservation.commit   ─► stream HOLDFAST
//	                          all in flight at once, a bounded       Nats-Msg-Id: the event's id           drops repeats
//	                          number, and every one acknowledged                                           for a while
//	                          before the next wave
//
// Package cmd gives a Sink to the relay, and so does a library user; nobody else calls it.
//
// Events of one account keep their order whatever fails: none is sent before the stream has acknowledged the one before it.
// Events of several accounts keep theirs as long as nothing fails. They come at least once; the stream drops what comes again
// within its window of duplicates, and whoever acts on events keeps the ids of those it has acted on.
//
// What it never does: change a stream that exists, count a message as taken that no stream has acknowledged, send later what
// could not be sent now, or put a password or what an event says into an error.
package jetstream
