package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// The reasons that the edge itself gives. They are accidents: never recorded, never about money.
const (
	reasonUnauthorized holdfast.Reason = "unauthorized"
	reasonScope        holdfast.Reason = "scope"
	reasonMethod       holdfast.Reason = "method_not_allowed"
	reasonTooLarge     holdfast.Reason = "too_large"
	reasonRateLimited  holdfast.Reason = "rate_limited"

	reasonVersionRequired holdfast.Reason = "version_required"
	reasonVersionChanged  holdfast.Reason = "version_changed"
	reasonInUse           holdfast.Reason = "in_use"

	reasonTooManyEndpoints holdfast.Reason = "too_many_endpoints"

	reasonInternal    = holdfast.Reason(engine.Internal)
	reasonUnavailable = holdfast.Reason(engine.Unavailable)
	reasonOverloaded  = holdfast.Reason(engine.Overloaded)
	reasonUnknown     = holdfast.Reason(engine.OutcomeUnknown)
)

// retryAfter is what 503 tells a caller to wait, in seconds.
const retryAfter = "1"

// statuses is the one table from reasons to HTTP.
var statuses = map[holdfast.Reason]int{
	holdfast.Invalid:              http.StatusBadRequest,
	reasonUnauthorized:            http.StatusUnauthorized,
	holdfast.Insufficient:         http.StatusPaymentRequired,
	holdfast.HeldByActive:         http.StatusPaymentRequired,
	holdfast.SubscriptionInactive: http.StatusPaymentRequired,
	reasonScope:                   http.StatusForbidden,
	holdfast.AccountBlocked:       http.StatusForbidden,
	holdfast.FeatureNotInPlan:     http.StatusForbidden,
	holdfast.NotFound:             http.StatusNotFound,
	reasonMethod:                  http.StatusMethodNotAllowed,
	holdfast.TooManyActive:        http.StatusConflict,
	holdfast.AccountExists:        http.StatusConflict,
	holdfast.AlreadyEnded:         http.StatusConflict,
	holdfast.StaleLease:           http.StatusConflict,
	holdfast.AlreadyRunning:       http.StatusConflict,
	holdfast.NotCommitted:         http.StatusConflict,
	holdfast.RefundExceedsUsed:    http.StatusConflict,
	reasonTooLarge:                http.StatusRequestEntityTooLarge,
	holdfast.KeyReused:            http.StatusUnprocessableEntity,
	reasonInUse:                   http.StatusConflict,
	reasonTooManyEndpoints:        http.StatusConflict,
	reasonVersionChanged:          http.StatusPreconditionFailed,
	reasonVersionRequired:         http.StatusPreconditionRequired,
	reasonRateLimited:             http.StatusTooManyRequests,
	reasonInternal:                http.StatusInternalServerError,
	reasonUnavailable:             http.StatusServiceUnavailable,
	reasonOverloaded:              http.StatusServiceUnavailable,
	reasonUnknown:                 http.StatusServiceUnavailable,
}

// titles name the accidents of the edge and of the engine. The core's reasons are named by Texts.
var titles = map[holdfast.Reason]string{
	reasonUnauthorized:     "Unauthorized",
	reasonScope:            "Key lacks the scope",
	reasonMethod:           "Method not allowed",
	reasonTooLarge:         "Request too large",
	reasonInUse:            "In use",
	reasonTooManyEndpoints: "Too many endpoints",
	reasonVersionChanged:   "Version changed",
	reasonVersionRequired:  "Version required",
	reasonRateLimited:      "Too many requests",
	reasonInternal:         "Internal error",
	reasonUnavailable:      "Temporarily unavailable",
	reasonOverloaded:       "Overloaded",
	reasonUnknown:          "Outcome unknown",
}

// Problem is application/problem+json, RFC 9457.
type Problem struct {
	Type     string          `json:"type" doc:"urn:holdfast:refusal:REASON for a no, urn:holdfast:error:REASON for an accident" example:"urn:holdfast:error:invalid"`
	Title    string          `json:"title" doc:"The reason in words, the same for every occurrence"`
	Status   int             `json:"status" example:"400"`
	Detail   string          `json:"detail" doc:"For the person, in the language of Accept-Language or of the account"`
	Reason   holdfast.Reason `json:"reason" doc:"For the program. More reasons may come." example:"invalid"`
	Problems []FieldProblem  `json:"problems,omitempty" doc:"Of invalid: every offending field, and what to write instead"`
	Scope    string          `json:"scope,omitempty" doc:"Of scope: the one that is needed"`
}

// FieldProblem is one thing that is wrong with a request.
type FieldProblem struct {
	Field  string `json:"field" doc:"Its path in the body, a parameter, or a header" example:"usage.input_token"`
	Hint   string `json:"hint" doc:"What to write instead; never what was written"`
	Line   int    `json:"line,omitempty" doc:"In a catalog, from 1"`
	Column int    `json:"column,omitempty" doc:"In a catalog, from 1"`
}

// CatalogInUse is a no to a catalog that drops what accounts hold.
type CatalogInUse struct {
	Problem
	Plans []string `json:"plans"`
	Units []string `json:"units"`
}

// Refusal is a no with its numbers.
type Refusal struct {
	Problem
	Numbers
	Reservation *Reservation `json:"reservation,omitempty" doc:"Of a refused extend: as it still is"`
}

// Ended is a no that shows the reservation as it is.
type Ended struct {
	Problem
	Reservation Reservation `json:"reservation"`
}

// Numbers tell why a reservation or an adjustment is refused. Null: unknown, or it does not apply.
type Numbers struct {
	Feature         *string                    `json:"feature"`
	Unit            *string                    `json:"unit"`
	Needed          *holdfast.Amount           `json:"needed"`
	Available       *holdfast.Amount           `json:"available"`
	Held            *holdfast.Amount           `json:"held" doc:"By reservations; it comes back if they fail"`
	Active          int                        `json:"active" doc:"Reservations that take a slot"`
	MaxActive       int                        `json:"max_active"`
	Cycle           *Cycle                     `json:"cycle" doc:"The allowance of this unit that resets soonest"`
	ResetsAt        *time.Time                 `json:"resets_at" doc:"When waiting alone makes it payable; null: waiting does not help"`
	Plans           []string                   `json:"plans" doc:"Plans that would allow it"`
	Estimated       bool                       `json:"estimated" doc:"true: needed is an upper bound, since the price is by usage"`
	AffordableUsage map[string]holdfast.Amount `json:"affordable_usage" nullable:"true" doc:"Of what is priced by usage: the most that available pays for, in the same proportions; else null"`
	Alternatives    []Alternative              `json:"alternatives" doc:"Every way to pay, where there is more than one"`
}

// Alternative is one way to pay, and what there is of it.
type Alternative struct {
	Unit      string          `json:"unit"`
	Needed    holdfast.Amount `json:"needed"`
	Available holdfast.Amount `json:"available"`
	Held      holdfast.Amount `json:"held"`
}

func numbers(r *holdfast.Refusal) Numbers {
	n := Numbers{
		Feature: known(r.Feature), Unit: known(r.Unit), Active: r.Active, MaxActive: r.MaxActive,
		Cycle: cycle(r.Cycle), ResetsAt: instant(r.ResetsAt), Plans: append([]string{}, r.Plans...), Alternatives: []Alternative{},
		Estimated: r.Estimated, AffordableUsage: r.AffordableUsage,
	}
	if r.Unit != "" { // a refusal before any price was looked at has no amounts
		n.Needed, n.Available, n.Held = &r.Needed, &r.Available, &r.Held
	}
	for _, a := range r.Alternatives {
		n.Alternatives = append(n.Alternatives, Alternative(a))
	}
	return n
}

// answer is what a request comes to. The body is written only when it is complete.
type answer struct {
	status  int
	body    any // becomes raw as JSON; nil: raw is sent as it is
	raw     []byte
	header  http.Header
	reason  holdfast.Reason // of a problem, for the log
	cause   error           // for the log only
	content string          // Content-Type; empty: that of the body

	// stream, where it is set, writes what does not fit into memory after the head. An error breaks the connection off, so
	// that nobody takes a part for the whole.
	stream func(w http.ResponseWriter) error
}

func (a answer) with(name, value string) answer {
	if a.header == nil {
		a.header = http.Header{}
	}
	a.header.Set(name, value)
	return a
}

const (
	jsonContent    = "application/json"
	problemContent = "application/problem+json"
)

// encode turns the body into what is sent. It panics on a type that is no JSON, which is a fault of ours.
func (a *answer) encode() {
	if a.body == nil {
		return
	}
	var encoded bytes.Buffer
	encoder := json.NewEncoder(&encoded)
	encoder.SetEscapeHTML(false) // nosniff and the content type keep it from being read as HTML
	if err := encoder.Encode(a.body); err != nil {
		panic(err)
	}
	a.raw = encoded.Bytes()
	if a.content == "" {
		a.content = jsonContent
	}
}

func (a *answer) write(w http.ResponseWriter, id string) {
	header := w.Header()
	for name, values := range a.header {
		header[name] = values
	}
	set := func(name, value string) {
		if header.Get(name) == "" {
			header.Set(name, value)
		}
	}
	set("X-Request-Id", id)
	set("Cache-Control", "no-store")
	set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
	set("X-Content-Type-Options", "nosniff")
	set("X-Frame-Options", "DENY")
	set("Referrer-Policy", "no-referrer")
	if a.content != "" {
		set("Content-Type", a.content)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.raw) // an error means that the caller is gone: there is nobody to tell
}

// mistake is a problem of whoever writes the client, and is told to them in English.
func (c *call) mistake(reason holdfast.Reason, detail string) answer {
	title, ok := titles[reason]
	if !ok {
		title = c.api.Texts.Title(reason)
	}
	body := Problem{
		Type: "urn:holdfast:error:" + string(reason), Title: title, Status: statuses[reason], Detail: detail, Reason: reason,
	}
	return answer{status: body.Status, body: body, reason: reason, content: problemContent}
}

// accident is a problem that a person can meet, and is told to them in their language. It has no numbers.
func (c *call) accident(outcome holdfast.Outcome) answer {
	reader := Reader{Language: c.language(""), Location: time.UTC}
	var detail string
	if _, ours := titles[outcome.Reason]; ours {
		detail = c.api.Texts.Accident(reader, outcome.Reason)
	} else {
		detail = c.api.Texts.Detail(reader, c.catalog(), outcome, c.api.Engine.Now())
	}
	a := c.mistake(outcome.Reason, detail).with("Content-Language", reader.Language)
	if a.status == http.StatusServiceUnavailable {
		a = a.with("Retry-After", retryAfter)
	}
	return a
}

func (c *call) notFound() answer { return c.accident(holdfast.Outcome{Reason: holdfast.NotFound}) }

// invalid names everything that is wrong with the request, as far as one answer goes.
func (c *call) invalid(found []holdfast.Problem) answer {
	found = slices.Clone(found[:min(len(found), maxProblems)])
	for i := range found {
		found[i].Field = c.from.place(found[i].Field)
	}
	a := c.accident(holdfast.Outcome{Reason: holdfast.Invalid, Problems: found})
	body := a.body.(Problem)
	for _, p := range found {
		body.Problems = append(body.Problems, FieldProblem{Field: p.Field, Hint: p.Hint})
	}
	a.body = body
	return a
}

// lacks says which scope is needed.
func (c *call) lacks(scope string) answer {
	a := c.mistake(reasonScope, "This call needs a key with the scope "+scope+".")
	body := a.body.(Problem)
	body.Scope = scope
	a.body = body
	return a
}

// failed answers an error of the engine. Its words stay in the log.
func (c *call) failed(err error) answer {
	reason := reasonUnavailable // of an error that nobody describes, nothing is known to have happened
	if failure, ok := errors.AsType[*engine.Error](err); ok && failure.Code != engine.Cancelled {
		reason = holdfast.Reason(failure.Code)
	}
	if _, known := titles[reason]; !known {
		reason = reasonInternal
	}
	a := c.accident(holdfast.Outcome{Reason: reason})
	a.cause = err
	return a
}

// refused encodes a no: its numbers as they were decided, its text composed now for whoever reads it.
func (c *call) refused(outcome *holdfast.Outcome) answer {
	switch outcome.Reason {
	case holdfast.Invalid:
		return c.invalid(merge(nil, outcome.Problems, c.from.keyField()))
	case holdfast.KeyReused, holdfast.NotFound:
		return c.accident(*outcome)
	}
	reader := c.reader()
	problem := Problem{
		Type:  "urn:holdfast:refusal:" + string(outcome.Reason),
		Title: c.api.Texts.Title(outcome.Reason), Status: statuses[outcome.Reason],
		Detail: c.api.Texts.Detail(reader, c.catalog(), *outcome, c.api.Engine.Now()), Reason: outcome.Reason,
	}
	a := answer{status: problem.Status, body: problem, reason: outcome.Reason, content: problemContent}
	switch {
	case outcome.Refusal != nil:
		body := Refusal{Problem: problem, Numbers: numbers(outcome.Refusal)}
		if outcome.Reservation != nil {
			r := c.reservation(outcome.Reservation, nil)
			body.Reservation = &r
		}
		a.body = body
	case outcome.Reservation != nil:
		a.body = Ended{Problem: problem, Reservation: c.reservation(outcome.Reservation, nil)}
	}
	return a.with("Content-Language", reader.Language)
}
