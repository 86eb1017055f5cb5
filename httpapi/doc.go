// Package httpapi is the HTTP edge of Holdfast: it lets any language reserve, commit, release and explain.
//
//	request ─► route ─► key and scope ─► decode, all problems at once ─► Engine.Submit or Read
//	                                                                              │ outcome
//	answer  ◄─────────────── encode: a status, the numbers, a text ◄──────────────┘
//
//	layer              file                what it answers for
//	the handler        api.go              what it needs, how a request passes through, logs, panics
//	the table          routes.go           every route: method, path, scope, types, reasons; the only list of them
//	one request        call.go             its key, its headers, its problems, its command
//	reading            parse.go decode.go  JSON, strictly; every problem named by its field, no value repeated
//	                   query.go            query parameters, just as strictly
//	what is asked      reservations.go     bodies into operations, outcomes into answers
//	                   accounts.go
//	                   telegram.go         what a bot's author forwards, and what is to be called at the Bot API
//	what is answered   shapes.go           the shapes of the API
//	                   problem.go          problem+json: reasons, statuses, numbers
//	describing it      document.go docs.*  OpenAPI, and a page that shows it
//
// Package main mounts its handler; nothing else calls it. It never judges: no branch here looks at a state, a balance or
// a price, and a command that a person could send in another way is decided in the same way.
package httpapi
