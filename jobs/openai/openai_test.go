package openai_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/fakeprovider"
	"github.com/holdfast-dev/holdfast/jobs"
	"github.com/holdfast-dev/holdfast/jobs/openai"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
)

const key = "sk-not-a-secret"

// provider is a stand-in, and a client of it.
func provider(t *testing.T) (*fakeprovider.Provider, *openai.Client) {
	p := &fakeprovider.Provider{Key: key}
	s := httptest.NewServer(p)
	t.Cleanup(s.Close)
	return p, &openai.Client{URL: s.URL + "/v1", Key: key, Provider: jobs.Provider{Logger: slog.New(slog.DiscardHandler)}}
}

func chat(words string) openai.Chat {
	return openai.Chat{Model: "small", Messages: []openai.Message{{Role: "system", Content: "Be brief."}, {Role: "user", Content: words}}}
}

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

func TestAChatIsAnsweredWithItsUsageInDisjointKinds(t *testing.T) {
	p, c := provider(t)
	p.Cached = 5
	request := chat("a fox in the snow, please, and what it thinks")
	request.MaxTokens, request.Extra = 100, map[string]any{"temperature": 0}
	got, err := c.Chat(t.Context(), &jobs.Job{ID: "rsv_1"}, request)
	if err != nil {
		t.Fatal(err)
	}
	if want := "a fox in the snow, please, and what it thinks true map[cached_token:5 input_token:10 output_token:12]"; fmt.Sprint(got.Text, " ", got.Whole, " ", got.Usage) != want {
		t.Errorf("%+v, want %s", got, want)
	}
	request.MaxTokens = 2
	if got, err = c.Chat(t.Context(), &jobs.Job{ID: "rsv_2"}, request); err != nil || got.Text != "a fox in" || got.Whole {
		t.Errorf("cut off at two tokens: %+v %v", got, err)
	}
	if calls := p.Calls(); len(calls) != 2 || calls[0].Key != "rsv_1" || calls[0].Model != "small" {
		t.Errorf("it was asked %+v", calls)
	}
}

func TestPicturesComeAsTheyAreOrByTheirAddress(t *testing.T) {
	_, c := provider(t)
	got, err := c.Image(t.Context(), &jobs.Job{ID: "rsv_1"}, openai.Image{Model: "m", Prompt: "a fox", Count: 2})
	if err != nil || len(got.Pictures) != 2 || got.Usage[openai.OutputToken] != 2000 {
		t.Fatalf("%+v %v", got, err)
	}
	if _, err := png.Decode(bytes.NewReader(got.Pictures[0].Data)); err != nil || got.Pictures[0].Revised != "a fox" {
		t.Errorf("it is no picture: %v", err)
	}
	got, err = c.Image(t.Context(), &jobs.Job{ID: "rsv_2"}, openai.Image{Model: "m", Prompt: "a fox", Size: "256x256", Extra: map[string]any{"response_format": "url"}})
	if err != nil || len(got.Pictures) != 1 {
		t.Fatalf("%+v %v", got, err)
	}
	response, err := http.Get(got.Pictures[0].URL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if _, err := png.Decode(response.Body); err != nil {
		t.Errorf("there is no picture at %s: %v", got.Pictures[0].URL, err)
	}
}

func TestEveryFaultOfAProviderSaysWhatBecomesOfTheJob(t *testing.T) {
	for fault, want := range map[fakeprovider.Fault]string{
		fakeprovider.RateLimited:     "retry rate_limited",
		fakeprovider.Overloaded:      "retry provider_unavailable",
		fakeprovider.Broken:          "in doubt",
		fakeprovider.GatewayTimeout:  "in doubt",
		fakeprovider.BudgetExceeded:  "fail gateway_budget_exceeded",
		fakeprovider.QuotaExceeded:   "fail gateway_budget_exceeded",
		fakeprovider.PaymentRequired: "fail gateway_budget_exceeded",
		fakeprovider.ContentRefused:  "fail content_refused",
		fakeprovider.Filtered:        "fail content_refused",
		fakeprovider.Refused:         "fail content_refused",
		fakeprovider.ErrorInside:     "retry provider_unavailable",
		fakeprovider.NotOurs:         "fail answer_unusable",
		fakeprovider.LostAnswer:      "in doubt",
		fakeprovider.CutAnswer:       "in doubt",
	} {
		p, c := provider(t)
		p.Next(fault, fault)
		_, ofChat := c.Chat(t.Context(), &jobs.Job{ID: "rsv_1"}, chat("a fox"))
		_, ofImage := c.Image(t.Context(), &jobs.Job{ID: "rsv_2"}, openai.Image{Model: "m", Prompt: "a fox"})
		if said(ofChat) != want || said(ofImage) != want {
			t.Errorf("%s: %s and %s, want %s", fault, said(ofChat), said(ofImage), want)
		}
	}
}

func TestALostAnswerIsAskedForOnceMoreWhereKeysAreRemembered(t *testing.T) {
	for _, fault := range []fakeprovider.Fault{fakeprovider.LostAnswer, fakeprovider.CutAnswer} {
		p, c := provider(t)
		c.RemembersKeys = true
		p.Next(fault)
		got, err := c.Chat(t.Context(), &jobs.Job{ID: "rsv_1"}, chat("a fox"))
		if err != nil || got.Text != "a fox" || p.Worked() != 1 || len(p.Calls()) != 2 {
			t.Errorf("%s: %+v %v, worked %d times for %d calls", fault, got, err, p.Worked(), len(p.Calls()))
		}
	}
	p, c := provider(t)
	c.RemembersKeys = true
	p.Next(fakeprovider.LostAnswer, fakeprovider.RateLimited)
	if _, err := c.Chat(t.Context(), &jobs.Job{ID: "rsv_1"}, chat("a fox")); said(err) != "in doubt" {
		t.Errorf("what the repeat came to was taken for what the first came to: %v", err)
	}
}

func TestAnswersWithoutAnythingInThemAreReleased(t *testing.T) {
	for body, want := range map[string]string{
		`{"choices": [], "data": [{}]}`:                                                                                                                                 "fail answer_unusable",
		`{"choices": [{"message": {"content": ""}, "finish_reason": "tool_calls"}]}`:                                                                                    "fail answer_unusable",
		`{"choices": [{"message": {"content": "I began"}, "finish_reason": "error"}]}`:                                                                                  "fail answer_unusable",
		`{"choices": [{"message": {"content": "` + strings.Repeat("x", 300) + `"}}]}`:                                                                                   "fail answer_unusable",
		`{"choices": [{"message": {"content": "half"}, "finish_reason": "length"}], "usage": 1.5}`:                                                                      "done half false map[]",
		`{"choices": [{"message": {"content": "all"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "prompt_tokens_details": null, "completion_tokens": 2}}`: "done all true map[cached_token:0 input_token:3 output_token:2]",
		`{"choices": [{"message": {"content": "all"}}], "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 4}, "completion_tokens": 2}}`:          "done all true map[cached_token:3 input_token:0 output_token:2]",
		`{"choices": [{"message": {"content": "all"}}], "usage": {"prompt_tokens": -3, "completion_tokens": 2}}`:                                                        "done all true map[]",
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) }))
		c := openai.Client{URL: s.URL, MaxAnswer: 250}
		text, err := c.Chat(t.Context(), &jobs.Job{ID: "rsv_1"}, chat("a fox"))
		got := said(err)
		if err == nil {
			got = fmt.Sprint("done ", text.Text, " ", text.Whole, " ", text.Usage)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", body, got, want)
		}
		if len(body) > 250 && (err == nil || !strings.Contains(err.Error(), "longer than 250 bytes")) {
			t.Errorf("a long answer: %v", err)
		}
		if _, err := c.Image(t.Context(), &jobs.Job{ID: "rsv_1"}, openai.Image{}); said(err) != "fail answer_unusable" {
			t.Errorf("%s as a picture: %v", body, err)
		}
		s.Close()
	}
}

// Case 25 of the kit, as far as it is the provider's key.
func TestTheKeyIsInNoErrorAndNoLogLine(t *testing.T) {
	var log bytes.Buffer
	echo := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusPaymentRequired)
		_, _ = fmt.Fprintf(w, `{"error": {"code": "billing of %s", "message": "of %[1]s"}}`, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	}))
	defer echo.Close()
	nobody := httptest.NewServer(nil)
	nobody.Close()
	p, real := provider(t)
	p.Key = "another"
	for _, url := range []string{echo.URL, nobody.URL, real.URL, "://", "", "http://127.0.0.1:1\n"} {
		c := openai.Client{URL: url, Key: key, Provider: jobs.Provider{Logger: slog.New(slog.NewTextHandler(&log, nil))}}
		_, err := c.Chat(t.Context(), &jobs.Job{ID: "rsv_1"}, chat("a fox"))
		if err == nil || strings.Contains(fmt.Sprintf("%v %+v %q", err, err, err), key) {
			t.Errorf("%q: %v", url, err)
		}
	}
	if strings.Contains(log.String(), key) || !strings.Contains(log.String(), "billing of ***") {
		t.Errorf("the log says\n%s", log.String())
	}
}

// tariff sells answers by their tokens, and pictures.
var tariff = &holdfast.Catalog{
	Version: 1,
	Units:   []holdfast.Unit{{Name: "credit"}},
	Features: []holdfast.Feature{{
		Name: "ask", Queue: "text", TTL: 5 * time.Minute, LongestJob: time.Minute, Prices: []holdfast.Price{{Unit: "credit", Per: 1, Rates: map[string]holdfast.Amount{openai.InputToken: 1, openai.CachedToken: 0, openai.OutputToken: 4}}},
	}},
	Plans: []holdfast.Plan{{Name: "free", Default: true, Features: []string{"ask"}, MaxActive: 10, Tier: "standard"}},
}

func TestAPersonIsChargedForWhatAProviderHasWorkedAndForNothingElse(t *testing.T) {
	p, c := provider(t)
	c.RemembersKeys, p.Cached = true, 2
	db := memory.Open()
	e := engine.New(db, engine.Options{Catalog: func(string) *holdfast.Catalog { return tariff }, Logger: slog.New(slog.DiscardHandler)})
	serving, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- e.Serve(serving) }()
	submit := func(command holdfast.Command) holdfast.Outcome {
		t.Helper()
		command.Project, command.Account = "p", "ann"
		o, err := e.Submit(t.Context(), command)
		if err != nil || o.Refused() {
			t.Fatal(err, o.Reason, o.Problems)
		}
		return o
	}
	submit(holdfast.Command{Do: holdfast.PutAccount{}})
	submit(holdfast.Command{Key: "g", Do: holdfast.AddGrant{Unit: "credit", Amount: 1000, Source: holdfast.FromPurchase}})
	var made []holdfast.ID
	ask := func(words string) {
		made = append(made, submit(holdfast.Command{Key: words, Do: holdfast.Reserve{
			Feature: "ask", Usage: map[string]holdfast.Amount{openai.InputToken: 20, openai.OutputToken: 20},
			Job: &holdfast.JobRequest{Payload: `"` + words + `"`, MaxAttempts: 3},
		}}).Reservation.ID)
	}
	ask("told")
	ask("refused")
	ask("lost, and asked for again")
	ask("limited, and tried again")
	p.Next("", fakeprovider.Refused, fakeprovider.LostAnswer, "", fakeprovider.RateLimited)
	ended := 0
	working, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := jobs.Worker{Source: e, Project: "p", Queue: "text.standard", Name: "w", Logger: slog.New(slog.DiscardHandler), Handle: func(ctx context.Context, job *jobs.Job) error {
		got, err := c.Chat(ctx, job, chat(strings.Trim(string(job.Payload), `"`)))
		if err == nil {
			job.Use(got.Usage)
		}
		if said(err) != "retry rate_limited" {
			if ended++; ended == len(made) {
				cancel() // the worker finishes what it has
			}
		}
		return err
	}}
	if err := w.Run(working); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	came := make([]string, len(made))
	if err := db.Dump(t.Context(), func(r store.Record) error {
		for x, err := range r.Reservations {
			if err != nil {
				return err
			}
			came[slices.Index(made, x.ID)] = fmt.Sprintf("%s used=%d %s attempts=%d", x.State, x.Used, x.Cause, len(x.Job.Attempts))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	want := []string{"committed used=6  attempts=1", "released used=0 content_refused attempts=1", "committed used=36  attempts=1", "committed used=31  attempts=2"}
	if !slices.Equal(came, want) {
		t.Errorf("came to\n%s\nwant\n%s", strings.Join(came, "\n"), strings.Join(want, "\n"))
	}
	if p.Worked() != 3 {
		t.Errorf("the provider worked %d times", p.Worked())
	}
}
