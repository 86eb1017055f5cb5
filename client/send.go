package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast/engine"
)

const (
	// maxAnswer is more than the largest answer: a page of reservations with all their metadata, a batch of them.
	maxAnswer = 32 << 20
	// firstPause and longestPause bound the pauses between attempts, without what the server asks for.
	firstPause   = 50 * time.Millisecond
	longestPause = 2 * time.Second
)

// request is what is sent, the same in every attempt.
type request struct {
	method, path string
	query        url.Values
	key          string
	retryRefused bool
	body         []byte // JSON; nil: none
}

// reply is an answer of Holdfast that is not to be asked for again.
type reply struct {
	status   int
	replayed bool
	id       string // of the request, in the server's log
	header   http.Header
	body     []byte
}

// send makes attempts until one is answered, the answer cannot change any more, or time is up.
func (c *Client) send(ctx context.Context, r *request) (*reply, error) {
	until := time.Now().Add(c.retryFor)
	unknown := false // an attempt may have succeeded
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		if err := ctx.Err(); err != nil {
			return nil, &engine.Error{Code: engine.Cancelled, Hint: leftHint(unknown), Err: err, Unknown: unknown}
		}
		answered, asked, accident := c.attempt(ctx, r)
		if accident == nil {
			return answered, nil
		}
		unknown = unknown || accident.MayHaveHappened()
		accident.Unknown = unknown
		// Half of the pause is chance, so that those who were cut off together do not come back together.
		wait := max(asked, pause/2+rand.N(pause/2+1))
		if !accident.Passing() || ctx.Err() != nil || time.Now().Add(wait).After(until) {
			return nil, accident
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

func leftHint(unknown bool) string {
	if unknown {
		return "the caller left before an answer came; repeat the command with the same key"
	}
	return "the caller left before the command was sent; nothing happened"
}

// attempt sends the request once. An accident comes with how long the server asks to wait.
func (c *Client) attempt(ctx context.Context, r *request) (*reply, time.Duration, *engine.Error) {
	attempting, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	address := c.base + r.path
	if len(r.query) > 0 {
		address += "?" + r.query.Encode()
	}
	sent, err := http.NewRequestWithContext(attempting, r.method, address, bytes.NewReader(r.body))
	if err != nil {
		return nil, 0, misdirected("make the request: %w", err)
	}
	sent.Header.Set("Authorization", c.bearer())
	sent.Header.Set("User-Agent", "holdfast-go")
	sent.Header.Set("Accept", "application/json, application/problem+json")
	for name, value := range map[string]string{"Accept-Language": c.language, "Idempotency-Key": r.key} {
		if value != "" {
			sent.Header.Set(name, value)
		}
	}
	if r.body != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	if r.retryRefused {
		sent.Header.Set("Holdfast-Retry-Refused", "true")
	}
	response, err := c.http.Do(sent)
	if err != nil {
		return nil, 0, unanswered(ctx, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return nil, 0, unanswered(ctx, fmt.Errorf("read the answer: %w", err))
	}
	answered := &reply{
		status: response.StatusCode, replayed: response.Header.Get("Idempotent-Replayed") == "true",
		id: response.Header.Get("X-Request-Id"), header: response.Header, body: body,
	}
	if len(body) > maxAnswer {
		return nil, 0, answered.unreadable(errors.New("the answer is larger than any of Holdfast's"))
	}
	if accident := answered.accident(); accident != nil {
		return nil, retryAfter(response.Header), accident
	}
	return answered, 0, nil
}

// unanswered tells what an attempt without an answer means.
func unanswered(ctx context.Context, err error) *engine.Error {
	var network *net.OpError
	var certificate *tls.CertificateVerificationError
	notSent := errors.As(err, &network) && network.Op == "dial"
	switch {
	case errors.As(err, &certificate):
		return misdirected("the server's certificate: %w", err)
	case notSent && ctx.Err() != nil:
		return &engine.Error{Code: engine.Cancelled, Hint: leftHint(false), Err: err}
	case notSent:
		return &engine.Error{Code: engine.Unavailable, Hint: "the server cannot be reached; nothing happened", Err: err}
	case ctx.Err() != nil:
		return &engine.Error{Code: engine.OutcomeUnknown, Hint: leftHint(true), Err: err}
	}
	return &engine.Error{Code: engine.OutcomeUnknown, Hint: "no answer came; repeat the command with the same key", Err: err}
}

// accident tells an answer about nothing from an answer about the command. Nil: it is one.
func (r *reply) accident() *engine.Error {
	if r.status >= 200 && r.status < 300 {
		return nil
	}
	p, ours := r.problem()
	if ours && p.refuses() {
		return nil
	}
	told := func(code engine.Code, hint string) *engine.Error {
		e := &engine.Error{Code: code, Hint: hint}
		if r.id != "" {
			e.Err = fmt.Errorf("status %d, request %s", r.status, r.id)
		} else {
			e.Err = fmt.Errorf("status %d", r.status)
		}
		return e
	}
	switch {
	case r.status == http.StatusUnauthorized:
		return told(Unauthorized, "use an API key that is in force")
	case r.status == http.StatusForbidden && ours && p.Reason == string(Forbidden):
		return told(Forbidden, "use an API key with the scope "+p.Scope)
	case r.status == http.StatusTooManyRequests:
		return told(engine.Overloaded, "this API key asks too often; nothing happened")
	case r.status == http.StatusServiceUnavailable && ours && p.Reason == string(engine.Overloaded):
		return told(engine.Overloaded, "too much waits already; nothing happened")
	case r.status == http.StatusServiceUnavailable && ours && p.Reason == string(engine.Unavailable):
		return told(engine.Unavailable, "the server cannot decide now; nothing happened")
	case r.status == http.StatusBadGateway, r.status == http.StatusServiceUnavailable, r.status == http.StatusGatewayTimeout:
		return told(engine.OutcomeUnknown, "no answer came; repeat the command with the same key")
	case r.status >= http.StatusInternalServerError:
		e := told(engine.Internal, "a fault of the server; repeat the command with the same key to learn what happened")
		e.Unknown = true
		return e
	case r.status >= 300 && r.status < 400:
		e := misdirected("status %d: redirects are not followed, since they would carry the key elsewhere", r.status)
		e.Unknown = r.status == http.StatusSeeOther // whoever says so has done something
		return e
	case ours:
		return told(engine.Code(p.Reason), "the server does not take this request")
	}
	return misdirected("status %d, and not in Holdfast's form", r.status)
}

// unreadable is an answer that is none. Something has been done with the request, and nobody knows what.
func (r *reply) unreadable(err error) *engine.Error {
	e := misdirected("status %d: %w", r.status, err)
	e.Unknown = true
	return e
}

// retryAfter is how long the server asks to wait; 0: it does not say.
func retryAfter(header http.Header) time.Duration {
	asked := header.Get("Retry-After")
	if seconds, err := strconv.Atoi(asked); err == nil {
		return time.Duration(min(max(seconds, 0), 24*60*60)) * time.Second
	}
	if at, err := http.ParseTime(asked); err == nil {
		return max(0, time.Until(at))
	}
	return 0
}
