package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// Causes of releases that come from a provider or a gateway.
const (
	CauseRateLimited    = "rate_limited"
	CauseBudgetExceeded = holdfast.CauseBudgetExceeded // the gateway's own limit, which is not aligned with what people were sold
	CauseContentRefused = "content_refused"
	CauseUnavailable    = "provider_unavailable" // it did no work, and may later
	CauseRejected       = "provider_rejected"    // the request or the key is wrong: trying again would not help
)

const (
	maxFailure = 64 << 10         // how much of a failed answer is looked at
	maxProbed  = 32 << 20         // the largest answer that a probe may bring back
	probeFor   = 15 * time.Second // how long a probe may take
)

// Provider asks a model provider, or a gateway before it, so that a failure becomes what a handler returns: another attempt,
// a release, or doubt. Zero values work.
type Provider struct {
	Client *http.Client // nil: http.DefaultClient
	// Header carries the reservation's id; empty: Idempotency-Key.
	Header string
	// Probe asks the provider what became of a request under the reservation's id, where that is in doubt; nil: it cannot be
	// asked. The answer counts where it Worked.
	Probe  func(ctx context.Context, id string) (*http.Response, Probed, error)
	Logger *slog.Logger // is told of limits that are not aligned; nil: slog.Default
}

// Probed is what a status probe found out.
type Probed int

// The findings.
const (
	Unknown   Probed = iota
	Worked           // it has done the work: the answer is the one that was lost
	NotWorked        // it has not, and will not
)

// Do sends the request with the reservation's id as its idempotency key. A successful answer is returned as it is, for the
// caller to close; everything else as an error that the handler returns as it is: *engine.Release, engine.ErrInDoubt, or
// the context's end before anything was sent.
//
// A request that may have reached the provider and was not answered is in doubt, and so is a 5xx that does not say that
// nothing was done; the probe, where there is one, settles that at once.
func (p *Provider) Do(job *Job, request *http.Request) (*http.Response, error) {
	header := p.Header
	if header == "" {
		header = "Idempotency-Key"
	}
	var sent atomic.Bool
	ctx := httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		// From here on the provider may have it: also part of a request can be the whole of it to the other side.
		WroteHeaders: func() { sent.Store(true) },
	})
	request = request.Clone(ctx)
	request.Header.Set(header, job.ID)
	response, err := orDefault(p.Client, http.DefaultClient).Do(request)
	if err != nil {
		return p.settle(request.Context(), job, Judge(Answer{Err: err, Sent: sent.Load()}))
	}
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		return response, nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxFailure))
	_ = response.Body.Close()
	if err != nil {
		body = nil // the status tells enough
	}
	return p.settle(request.Context(), job, Judge(Answer{Status: response.StatusCode, Header: response.Header, Body: body, Sent: true}))
}

// settle asks the probe where there is doubt, and tells the operator where limits are not aligned.
func (p *Provider) settle(ctx context.Context, job *Job, failure error) (*http.Response, error) {
	var told *engine.Release
	if errors.As(failure, &told) && told.Cause == CauseBudgetExceeded {
		orDefault(p.Logger, slog.Default()).Error("the gateway's budget is spent while people still have theirs: align the limits", "reservation", job.ID, "error", failure)
	}
	if p.Probe == nil || !errors.Is(failure, engine.ErrInDoubt) {
		return nil, failure
	}
	asking, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeFor)
	defer cancel()
	response, found, err := p.Probe(asking, job.ID)
	switch {
	case err != nil:
		return nil, errors.Join(failure, fmt.Errorf("ask what became of it: %w", err))
	case found == Worked && response != nil:
		kept, err := io.ReadAll(io.LimitReader(response.Body, maxProbed+1)) // it outlives the probe's context
		_ = response.Body.Close()
		if err != nil || len(kept) > maxProbed {
			return nil, errors.Join(failure, errors.New("the probe's answer could not be read whole"), err)
		}
		response.Body = io.NopCloser(bytes.NewReader(kept))
		return response, nil
	case found == NotWorked:
		return nil, Retry(CauseUnavailable, errors.New("the provider was asked, and has not worked"))
	}
	return nil, failure
}

// Answer is how a provider or a gateway has answered, or why it has not.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	Err    error // of the request, where there was no answer
	Sent   bool  // the provider may have got the request
}

// Judge says what a failed answer means for the reservation: *engine.Release where it is certain that nothing was done,
// engine.ErrInDoubt where it is not. Nil: it has not failed.
//
// Kinds are read from the error objects of the usual APIs: code or type inside "error", or at the top.
func Judge(a Answer) error {
	switch {
	case a.Err != nil && !a.Sent, a.Err != nil && dialFailed(a.Err):
		return Retry(CauseUnavailable, a.Err)
	case a.Err != nil:
		return fmt.Errorf("no answer after the request was sent: %w: %w", engine.ErrInDoubt, a.Err)
	case a.Status >= 200 && a.Status < 300:
		return nil
	}
	kind := kindOf(a.Body)
	failure := fmt.Errorf("status %d %s", a.Status, kind)
	has := func(words ...string) bool {
		for _, word := range words {
			if strings.Contains(kind, word) {
				return true
			}
		}
		return false
	}
	switch {
	case has("budget", "insufficient_quota", "billing", "credit_balance"), a.Status == http.StatusPaymentRequired:
		return Fail(CauseBudgetExceeded, failure)
	case has("content_filter", "content_policy", "moderation", "safety"):
		return Fail(CauseContentRefused, failure)
	case a.Status == http.StatusTooManyRequests, has("rate_limit"):
		return Retry(CauseRateLimited, failure)
	case a.Status == http.StatusServiceUnavailable, a.Status == 529, has("overloaded"):
		return Retry(CauseUnavailable, failure) // who says so has not begun
	case a.Status == http.StatusRequestTimeout, a.Status == http.StatusConflict, a.Status == http.StatusTooEarly:
		return fmt.Errorf("%w: %w", engine.ErrInDoubt, failure) // an earlier attempt under the same key may be at work
	case a.Status >= 500:
		return fmt.Errorf("%w: %w", engine.ErrInDoubt, failure) // 500, 502, 504: the work may have been done behind it
	}
	return Fail(CauseRejected, failure)
}

func dialFailed(err error) bool {
	var network *net.OpError
	return errors.As(err, &network) && network.Op == "dial"
}

// kindOf collects the words by which an error calls itself.
func kindOf(body []byte) string {
	var read struct {
		Error json.RawMessage
		Type  string
		Code  any
	}
	if json.Unmarshal(body, &read) != nil {
		return ""
	}
	var inner struct {
		Type string
		Code any
	}
	_ = json.Unmarshal(read.Error, &inner) // where it is a text, it is prose and no kind
	var words []string
	for _, word := range []any{read.Type, read.Code, inner.Type, inner.Code} {
		if text, ok := word.(string); ok && text != "" {
			words = append(words, strings.ToLower(text))
		}
	}
	return strings.Join(words, " ")
}
