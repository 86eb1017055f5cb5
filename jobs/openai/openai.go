// Package openai asks model providers and gateways that speak the OpenAI-compatible protocol, for the handlers of jobs.
//
//	handler ── Chat, Image ──► jobs.Provider, key = reservation id ──► POST /chat/completions, /images/generations
//	   ▲                                                                     │
//	   └── answer and usage, or: another attempt, release, doubt ◄───────────┘
//
// A handler of jobs.Worker calls it, and returns its errors as they are. It never charges: the handler gives the usage to its
// job. It never streams, never shows a person what a provider said of a failure, and never lets the key into an error.
package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/jobs"
)

// CauseUnusable is the cause of a release where the provider has answered, and there is nothing in it for the person.
const CauseUnusable = "answer_unusable"

// DefaultMaxAnswer is the largest answer that is read, in bytes: a few pictures.
const DefaultMaxAnswer = 64 << 20

// The kinds of usage. They are disjoint: what was read from the provider's cache is no input_token.
const (
	InputToken  = "input_token"
	CachedToken = "cached_token"
	OutputToken = "output_token"
)

// Client asks one provider. It is safe for concurrent use.
type Client struct {
	URL string // with the version: https://api.openai.com/v1
	Key string // empty: none is sent
	// Provider sends requests and says what failures mean; zero values work.
	Provider jobs.Provider
	// RemembersKeys says that the provider answers a repeat under the same idempotency key with the same answer. Then a lost
	// answer is asked for once more, instead of being left in doubt.
	RemembersKeys bool
	MaxAnswer     int64 // bytes; 0: DefaultMaxAnswer
}

func unusable(format string, arguments ...any) error {
	return jobs.Fail(CauseUnusable, fmt.Errorf(format, arguments...))
}

// ask posts a request and reads its answer. What is extra goes over what is in the request.
func (c *Client) ask(ctx context.Context, job *jobs.Job, path string, request, extra map[string]any, into any) error {
	maps.Copy(request, extra)
	body, err := json.Marshal(request)
	if err != nil {
		return jobs.Fail(jobs.CauseRejected, fmt.Errorf("write the request: %w", err))
	}
	send, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimSuffix(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil || send.URL.Host == "" {
		return jobs.Fail(jobs.CauseRejected, errors.New("the provider's URL is malformed"))
	}
	send.Header.Set("Content-Type", "application/json")
	if c.Key != "" {
		send.Header.Set("Authorization", "Bearer "+c.Key)
	}
	most := c.MaxAnswer
	if most <= 0 {
		most = DefaultMaxAnswer
	}
	response, err := c.provider(send, most).Do(job, send)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	raw, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return unusable("read the answer: %w", err)
	case int64(len(raw)) > most:
		return unusable("the answer is longer than %d bytes", most)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return unusable("the answer is not of this protocol: %w", err)
	}
	return nil
}

// provider is the one that is given, over a client that reads answers whole: a connection that breaks in the middle of one
// has lost it like a connection that breaks before it.
func (c *Client) provider(request *http.Request, most int64) *jobs.Provider {
	client := http.Client{}
	if c.Provider.Client != nil {
		client = *c.Provider.Client
	}
	next := client.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	client.Transport = whole{next, most, c.Key}
	p := c.Provider
	p.Client = &client
	if c.RemembersKeys && p.Probe == nil {
		p.Probe = func(ctx context.Context, id string) (*http.Response, jobs.Probed, error) {
			return again(ctx, &p, request, id)
		}
	}
	return &p
}

// again asks once more under the same key. Only an answer settles it: a failure is this request's own.
func again(ctx context.Context, p *jobs.Provider, request *http.Request, id string) (*http.Response, jobs.Probed, error) {
	repeat := request.Clone(ctx)
	body, err := request.GetBody()
	if err != nil {
		return nil, jobs.Unknown, err
	}
	repeat.Body = body
	header := p.Header
	if header == "" {
		header = "Idempotency-Key"
	}
	repeat.Header.Set(header, id)
	response, err := p.Client.Do(repeat)
	if err != nil {
		return nil, jobs.Unknown, err
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		_ = response.Body.Close()
		return nil, jobs.Unknown, fmt.Errorf("asked once more: status %d", response.StatusCode)
	}
	return response, jobs.Worked, nil
}

// whole reads answers to their end, or to one byte more than is taken. An error inside a success, as gateways tell it that had
// begun to answer, becomes the status that it names. What a failure says of the key does not get further.
type whole struct {
	next http.RoundTripper
	most int64
	key  string
}

// RoundTrip does one request.
func (w whole) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := w.next.RoundTrip(request)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, w.most+1))
	_ = response.Body.Close()
	if err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	var failed struct {
		Error *struct {
			Code any `json:"code"`
		} `json:"error"`
	}
	if response.StatusCode == http.StatusOK && json.Unmarshal(raw, &failed) == nil && failed.Error != nil {
		response.StatusCode = http.StatusBadRequest
		if code, ok := failed.Error.Code.(float64); ok && code > 400 && code < 600 {
			response.StatusCode = int(code)
		}
	}
	if response.StatusCode >= 300 && w.key != "" {
		raw = bytes.ReplaceAll(raw, []byte(w.key), []byte("***"))
	}
	response.Body = io.NopCloser(bytes.NewReader(raw))
	return response, nil
}

// tokens is how usage is told: of chats in the first names, of pictures in the second.
type tokens struct {
	Prompt        holdfast.Amount `json:"prompt_tokens"`
	Completion    holdfast.Amount `json:"completion_tokens"`
	PromptDetails details         `json:"prompt_tokens_details"`
	Input         holdfast.Amount `json:"input_tokens"`
	Output        holdfast.Amount `json:"output_tokens"`
	InputDetails  details         `json:"input_tokens_details"`
}

type details struct {
	Cached holdfast.Amount `json:"cached_tokens"`
}

// usageOf is what was used, by kinds; nil: it was not told, or what was told is no usage.
func usageOf(raw json.RawMessage) map[string]holdfast.Amount {
	var t *tokens
	if json.Unmarshal(raw, &t) != nil || t == nil {
		return nil
	}
	read, cached, written := t.Prompt+t.Input, t.PromptDetails.Cached+t.InputDetails.Cached, t.Completion+t.Output
	for _, n := range []holdfast.Amount{read, written, cached} {
		if n < 0 || n > holdfast.MaxAmount {
			return nil
		}
	}
	if read == 0 && written == 0 {
		return nil
	}
	cached = min(cached, read)
	return map[string]holdfast.Amount{InputToken: read - cached, CachedToken: cached, OutputToken: written}
}
