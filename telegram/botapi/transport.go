package botapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

const maxAnswer = 16 << 20 // bytes: a hundred updates are far smaller. What is cut off is no JSON

// transport is the HTTP client under go-telegram/bot, and under the calls that it does not have. It reads answers whole and
// within bounds, and turns every failure into an error of this package, before anything else could put the address into one:
// the token is in it.
type transport struct {
	client *http.Client
	token  string
	prefix string // of the address of a method
}

func newTransport(base string, options Options) *transport {
	client := http.Client{}
	if options.HTTP != nil {
		client = *options.HTTP
	}
	client.Timeout = 0 // each call has its own
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t := &transport{client: &client, token: options.Token, prefix: base + "/bot" + options.Token + "/"}
	if options.Test {
		t.prefix += "test/"
	}
	return t
}

// answered is the frame of every answer of the Bot API.
type answered struct {
	OK          bool            `json:"ok"`
	Result      json.RawMessage `json:"result"`
	ErrorCode   int             `json:"error_code"`
	Description string          `json:"description"`
	Parameters  struct {
		RetryAfter int64 `json:"retry_after"`
		MigrateTo  Chat  `json:"migrate_to_chat_id"`
	} `json:"parameters"`
}

// Do sends a request. Only an answer that says "ok" is returned; the rest are errors.
func (t *transport) Do(request *http.Request) (*http.Response, error) {
	var sent atomic.Bool
	ctx := httptrace.WithClientTrace(request.Context(), &httptrace.ClientTrace{
		// From here on Telegram may have it.
		WroteHeaders: func() { sent.Store(true) },
	})
	response, err := t.client.Do(request.WithContext(ctx))
	if err != nil {
		return nil, t.broken(err, sent.Load())
	}
	raw, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	_ = response.Body.Close()
	if err != nil {
		return nil, t.broken(err, true)
	}
	var answer answered
	if err := json.Unmarshal(raw, &answer); err != nil || !answer.OK && answer.ErrorCode == 0 {
		answer = answered{ErrorCode: response.StatusCode, Description: http.StatusText(response.StatusCode)}
		if response.StatusCode < 400 {
			answer.ErrorCode, answer.Description = http.StatusBadGateway, "the answer is not the Bot API's"
		}
	}
	switch {
	case answer.OK:
		response.Body = io.NopCloser(bytes.NewReader(raw))
		return response, nil
	case answer.ErrorCode == http.StatusTooManyRequests:
		return nil, &RetryAfter{Wait: max(time.Duration(answer.Parameters.RetryAfter)*time.Second, time.Second)}
	case answer.Parameters.MigrateTo != 0:
		return nil, &movedError{to: answer.Parameters.MigrateTo}
	}
	return nil, &Error{Code: answer.ErrorCode, Description: t.clean(answer.Description), Kind: kindOf(answer.ErrorCode, answer.Description)}
}

// broken is the error of a call without an answer.
func (t *transport) broken(err error, sent bool) error {
	failed := &Error{Kind: ErrUncertain}
	if !sent {
		failed.Kind = ErrUnavailable
	}
	var addressed *url.Error
	if errors.As(err, &addressed) {
		err = addressed.Err
	}
	failed.Description = t.clean(err.Error())
	return failed
}

// judge makes of an error of go-telegram/bot the one that it was made of, and names the method.
func (t *transport) judge(method string, err error) error {
	var asked *RetryAfter
	var moved *movedError
	var failed *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &asked):
		return asked
	case errors.As(err, &moved):
		return moved
	case errors.As(err, &failed):
		named := *failed
		named.Method = method
		return &named
	}
	return &Error{Method: method, Kind: ErrRejected, Description: t.clean(err.Error())}
}

func (t *transport) clean(text string) string { return strings.ReplaceAll(text, t.token, "***") }

func (t *transport) withoutToken(err error) error { return errors.New(t.clean(err.Error())) }

// raw calls a method that go-telegram/bot does not have, or whose result it would not keep whole.
func (t *transport) raw(ctx context.Context, method string, arguments, into any) error {
	body, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, t.prefix+method, bytes.NewReader(body))
	if err != nil {
		return errors.New("the address of the Bot API is malformed")
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := t.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	var answer answered
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	if err := json.Unmarshal(answer.Result, into); err != nil {
		return fmt.Errorf("read the result: %w", err)
	}
	return nil
}
