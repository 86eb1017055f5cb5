package jobs_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/jobs"
)

// said is what a handler would return, in short.
func said(err error) string {
	var told *engine.Release
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, engine.ErrInDoubt):
		return "in doubt"
	case errors.As(err, &told) && told.Retry:
		return "retry " + told.Cause
	case errors.As(err, &told):
		return "fail " + told.Cause
	}
	return "error " + err.Error()
}

// Cases 12 and 13.
func TestEveryAnswerOfAProviderBecomesAReleaseOrDoubt(t *testing.T) {
	for _, c := range []struct {
		status int
		body   string
		want   string
	}{
		{200, `{}`, "done"},
		{429, `{"error": {"type": "requests", "code": "rate_limit_exceeded"}}`, "retry rate_limited"},
		{429, ``, "retry rate_limited"},
		{429, `{"error": {"type": "insufficient_quota", "code": "insufficient_quota"}}`, "fail gateway_budget_exceeded"},
		{400, `{"error": {"message": "Budget has been exceeded", "type": "budget_exceeded", "code": "400"}}`, "fail gateway_budget_exceeded"},
		{402, ``, "fail gateway_budget_exceeded"},
		{400, `{"error": {"code": "content_policy_violation", "type": "invalid_request_error"}}`, "fail content_refused"},
		{400, `{"error": {"code": "content_filter"}}`, "fail content_refused"},
		{400, `{"error": {"type": "invalid_request_error", "message": "rate_limit budget content_filter"}}`, "fail provider_rejected"},
		{401, `{"error": {"type": "authentication_error"}}`, "fail provider_rejected"},
		{529, `{"type": "error", "error": {"type": "overloaded_error"}}`, "retry provider_unavailable"},
		{503, `not json`, "retry provider_unavailable"},
		{500, `{"error": {"type": "server_error"}}`, "in doubt"},
		{502, `<html>`, "in doubt"},
		{504, ``, "in doubt"},
		{409, `{}`, "in doubt"},
		{404, `{"error": "no such model", "code": 5}`, "fail provider_rejected"},
	} {
		if got := said(jobs.Judge(jobs.Answer{Status: c.status, Body: []byte(c.body), Sent: true})); got != c.want {
			t.Errorf("%d %s: %s, want %s", c.status, c.body, got, c.want)
		}
	}
}

// doubtful is a provider that takes a request and breaks the connection.
func doubtful(t *testing.T) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Idempotency-Key") != "rsv_1" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func ask(t *testing.T, p *jobs.Provider, ctx context.Context, url string) (string, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"model": "m"}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := p.Do(&jobs.Job{ID: "rsv_1"}, request)
	if err != nil {
		return said(err), ""
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return "done", string(body)
}

func TestWhatWasNotSentIsTriedAgainAndWhatWasSentIsInDoubt(t *testing.T) {
	p := &jobs.Provider{}
	if got, _ := ask(t, p, t.Context(), doubtful(t)); got != "in doubt" {
		t.Errorf("a connection that broke after the request: %s", got)
	}
	nobody := httptest.NewServer(nil)
	nobody.Close()
	if got, _ := ask(t, p, t.Context(), nobody.URL); got != "retry provider_unavailable" {
		t.Errorf("nobody is there: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		cancel() // it has the request, and the job's time is over
		<-r.Context().Done()
	}))
	defer silent.Close()
	if got, _ := ask(t, p, ctx, silent.URL); got != "in doubt" {
		t.Errorf("a timeout after sending: %s", got)
	}
}

func TestAProbeSettlesTheDoubt(t *testing.T) {
	url := doubtful(t)
	for want, probe := range map[string]func(context.Context, string) (*http.Response, jobs.Probed, error){
		"done the picture": func(_ context.Context, id string) (*http.Response, jobs.Probed, error) {
			return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("the picture"))}, jobs.Worked, nil
		},
		"retry provider_unavailable ": func(context.Context, string) (*http.Response, jobs.Probed, error) { return nil, jobs.NotWorked, nil },
		"in doubt ":                   func(context.Context, string) (*http.Response, jobs.Probed, error) { return nil, jobs.Unknown, nil },
	} {
		got, body := ask(t, &jobs.Provider{Probe: probe}, t.Context(), url)
		if got+" "+body != want {
			t.Errorf("%s %s, want %s", got, body, want)
		}
	}
	failing := &jobs.Provider{Probe: func(context.Context, string) (*http.Response, jobs.Probed, error) {
		return nil, jobs.NotWorked, errors.New("away")
	}}
	if got, _ := ask(t, failing, t.Context(), url); got != "in doubt" {
		t.Errorf("a probe that fails: %s", got)
	}
}

func TestASpentGatewayIsToldToTheOperator(t *testing.T) {
	gateway := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = io.WriteString(w, `{"error": {"type": "budget_exceeded"}}`)
	}))
	defer gateway.Close()
	var log bytes.Buffer
	p := &jobs.Provider{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	if got, _ := ask(t, p, t.Context(), gateway.URL); got != "fail gateway_budget_exceeded" || strings.Count(log.String(), "level=ERROR") != 1 {
		t.Errorf("%s, and the log says\n%s", got, log.String())
	}
}
