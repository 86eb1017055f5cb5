package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/apitest"
)

func accidentOf(err error) *engine.Error {
	var accident *engine.Error
	if errors.As(err, &accident) {
		return accident
	}
	return &engine.Error{Code: "none"}
}

// Every command goes through a proxy that drops its first answer after the effect, and its second request before one.
func TestWhateverTheConnectionLosesIsDoneOnceAndChargedOnce(t *testing.T) {
	s, direct := serve(t)
	give(t, direct, "ann", 100)
	p := newProxy(t, s.URL, func(_ string, n int) fate {
		return []fate{losesAnswer, losesRequest, arrives}[min(n, 2)]
	})
	c := dial(t, p.URL)
	reserved := do(t, c, command("ann", "m1", holdfast.Reserve{Feature: "text", Quantity: 5}))
	if !reserved.Replayed { // nobody gave the command an id, so nothing tells it from another sender's
		t.Errorf("%+v", reserved)
	}
	of := func(op holdfast.Operation) holdfast.Command {
		return holdfast.Command{Target: reserved.Owner.ID, Do: op}
	}
	id := reserved.Reservation.ID
	started := do(t, c, of(holdfast.Start{ReservationID: id, Worker: "w1"}))
	do(t, c, of(holdfast.Heartbeat{ReservationID: id, LeaseToken: started.Lease.Token}))
	four := holdfast.Amount(4)
	committed := do(t, c, of(holdfast.Commit{ReservationID: id, LeaseToken: started.Lease.Token, Amount: &four}))
	if committed.Reservation.Used != 4 || committed.Settlement.Returned != 1 {
		t.Errorf("%+v %+v", committed.Reservation, committed.Settlement)
	}
	refund := of(holdfast.Refund{ReservationID: id, Reason: "bad"})
	refund.Key = "rf1"
	do(t, c, refund)
	do(t, c, command("ann", "m2", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text", Quantity: 2}}))
	do(t, c, command("ann", "g2", holdfast.AddGrant{Unit: "credit", Amount: 7, Source: holdfast.FromPurchase}))
	results := c.SubmitAll(t.Context(), []holdfast.Command{
		command("ann", "m3", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text", Quantity: 2}}),
		command("ann", "m4", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text", Quantity: 2}}),
	})
	for _, r := range results {
		if r.Err != nil || r.Outcome.Reservation.Used != 2 {
			t.Errorf("%+v", r)
		}
	}
	balances, err := c.Balance(t.Context(), "ann", time.Time{})
	if err != nil || balances[0].Available != 3+100+7-2-2-2 || balances[0].Reserved != 0 {
		t.Errorf("%+v %v", balances, err)
	}
	if n := len(p.seen()); n != 3*9 {
		t.Errorf("%d requests: every one of nine is sent three times: %q", n, p.seen())
	}
}

func TestTheSameCommandByTheSameSenderIsNoRepetition(t *testing.T) {
	s, direct := serve(t)
	p := newProxy(t, s.URL, func(_ string, n int) fate { return []fate{losesAnswer, arrives}[min(n, 1)] })
	c := dial(t, p.URL)
	mine := command("ann", "m1", holdfast.Reserve{Feature: "text", Metadata: map[string]string{"chat": "42"}})
	mine.ID = engine.NewID()
	for range 2 {
		o := do(t, c, mine)
		if o.Replayed || len(o.Reservation.Metadata) != 1 {
			t.Errorf("%+v %v", o, o.Reservation.Metadata)
		}
	}
	mine.ID = engine.NewID()
	if o := do(t, direct, mine); !o.Replayed {
		t.Error("another sender's command under that key is a repetition")
	}
}

func TestWhatCanPassIsTriedAgainWithTheSameKeyAndBody(t *testing.T) {
	problem := func(reason string) string {
		return fmt.Sprintf(`{"type": "urn:holdfast:error:%s", "reason": %q, "status": 503}`, reason, reason)
	}
	passing := map[string]func(http.ResponseWriter, *http.Request){
		"429":                 answer(429, problem("rate_limited"), "Retry-After", "0"),
		"502 of a proxy":      answer(502, "<html>bad gateway"),
		"503 of a proxy":      answer(503, ""),
		"504 of a proxy":      answer(504, ""),
		"503 unavailable":     answer(503, problem("unavailable")),
		"503 overloaded":      answer(503, problem("overloaded")),
		"503 outcome_unknown": answer(503, problem("outcome_unknown")),
		"a broken connection": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"half an answer": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"id"`)
			panic(http.ErrAbortHandler)
		},
	}
	for name, first := range passing {
		t.Run(name, func(t *testing.T) {
			api := apitest.Handler(t, apitest.Start(t, engine.Options{Catalog: tariffOf}).Engine)
			type sent struct{ key, body, authorization string }
			var mu sync.Mutex
			var requests []sent
			address, _ := answers(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				mu.Lock()
				requests = append(requests, sent{r.Header.Get("Idempotency-Key"), string(body), r.Header.Get("Authorization")})
				n := len(requests)
				mu.Unlock()
				if n < 3 {
					first(w, r)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				api.ServeHTTP(w, r)
			})
			o := do(t, dial(t, address), command("ann", "m1", holdfast.Reserve{Feature: "text"}))
			if o.Reservation.Reserved != 1 {
				t.Errorf("%+v", o)
			}
			mu.Lock()
			defer mu.Unlock()
			if len(requests) != 3 || requests[0] != requests[1] || requests[1] != requests[2] || requests[0].key != "m1" || requests[0].authorization != "Bearer "+apitest.Key {
				t.Errorf("%+v", requests)
			}
		})
	}
}

func TestWhatCannotPassIsNotTriedAgain(t *testing.T) {
	elsewhere := 0
	other, _ := answers(t, func(http.ResponseWriter, *http.Request) { elsewhere++ })
	for name, final := range map[string]struct {
		answer  func(http.ResponseWriter, *http.Request)
		code    engine.Code
		unknown bool
	}{
		"401":                     {answer(401, `{"type": "urn:holdfast:error:unauthorized", "reason": "unauthorized"}`), client.Unauthorized, false},
		"403 scope":               {answer(403, `{"type": "urn:holdfast:error:scope", "reason": "scope", "scope": "work"}`), client.Forbidden, false},
		"413":                     {answer(413, `{"type": "urn:holdfast:error:too_large", "reason": "too_large"}`), "too_large", false},
		"405":                     {answer(405, `{"type": "urn:holdfast:error:method_not_allowed", "reason": "method_not_allowed"}`), "method_not_allowed", false},
		"404 of something else":   {answer(404, "404 page not found"), client.Misdirected, false},
		"403 of something else":   {answer(403, "<html>"), client.Misdirected, false},
		"500":                     {answer(500, `{"type": "urn:holdfast:error:internal", "reason": "internal"}`), engine.Internal, true},
		"a redirect":              {answer(308, "", "Location", other), client.Misdirected, false},
		"a redirect after a post": {answer(303, "", "Location", other), client.Misdirected, true},
		"200 of something else":   {answer(200, "<html>welcome"), client.Misdirected, true},
		"200 without an id":       {answer(201, `{"state": "reserved"}`), client.Misdirected, true},
		"an endless answer": {func(w http.ResponseWriter, _ *http.Request) {
			chunk := bytes.Repeat([]byte(" "), 1<<20)
			for range 40 {
				if _, err := w.Write(chunk); err != nil {
					return
				}
			}
		}, client.Misdirected, true},
	} {
		t.Run(name, func(t *testing.T) {
			address, requests := answers(t, final.answer)
			_, err := dial(t, address).Submit(t.Context(), command("ann", "m1", holdfast.Reserve{Feature: "text"}))
			if a := accidentOf(err); a.Code != final.code || a.MayHaveHappened() != final.unknown {
				t.Errorf("%v; may have happened: %v", err, a.MayHaveHappened())
			}
			if n := len(requests()); n != 1 {
				t.Errorf("sent %d times", n)
			}
			if err != nil && strings.Contains(err.Error(), apitest.Key) {
				t.Error("the error tells the key")
			}
		})
	}
	if elsewhere != 0 {
		t.Error("a redirect was followed, with the key")
	}
}

func TestARefusalIsNotTriedAgain(t *testing.T) {
	for name, body := range map[string]struct {
		status int
		reason holdfast.Reason
	}{
		"insufficient": {402, holdfast.Insufficient}, "blocked": {403, holdfast.AccountBlocked}, "slots": {409, holdfast.TooManyActive},
		"reused": {422, holdfast.KeyReused}, "not found": {404, holdfast.NotFound}, "invalid": {400, holdfast.Invalid},
		"a reason that is not known yet": {409, "frozen_for_the_winter"},
	} {
		t.Run(name, func(t *testing.T) {
			kind := "refusal"
			if !body.reason.Recorded() && strings.Contains("invalid not_found key_reused", string(body.reason)) {
				kind = "error"
			}
			address, requests := answers(t, answer(body.status, fmt.Sprintf(`{"type": "urn:holdfast:%s:%s", "reason": %q, "of_a_later_version": [1]}`, kind, body.reason, body.reason)))
			o, err := dial(t, address).Submit(t.Context(), command("ann", "m1", holdfast.Reserve{Feature: "text"}))
			if err != nil || o.Reason != body.reason || len(requests()) != 1 {
				t.Errorf("%+v %v, sent %d times", o, err, len(requests()))
			}
		})
	}
}

func TestAnAnswerMayHaveFieldsThatTheClientDoesNotKnow(t *testing.T) {
	s := apitest.Start(t, engine.Options{Catalog: tariffOf})
	api := apitest.Handler(t, s.Engine)
	address, _ := answers(t, func(w http.ResponseWriter, r *http.Request) {
		response, err := apitest.InMemory{Handler: api}.RoundTrip(r)
		if err != nil {
			t.Error(err)
			return
		}
		var body map[string]any
		if err := json.NewDecoder(response.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		body["of_a_later_version"], body["state"] = map[string]any{"a": []int{1}}, "frozen"
		w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
		w.WriteHeader(response.StatusCode)
		_ = json.NewEncoder(w).Encode(body)
	})
	if o := do(t, dial(t, address), command("ann", "m1", holdfast.Reserve{Feature: "text"})); o.Reservation.State != "frozen" {
		t.Errorf("%+v", o.Reservation)
	}
}

func TestAServerThatCannotBeReachedIsNoDoubt(t *testing.T) {
	c := dial(t, closedPort(t), func(o *client.Options) { o.RetryFor = -1 })
	_, err := c.Submit(t.Context(), command("ann", "m1", holdfast.Reserve{Feature: "text"}))
	if a := accidentOf(err); a.Code != engine.Unavailable || a.MayHaveHappened() {
		t.Errorf("%v", err)
	}
}

func TestACallerWhoLeavesIsToldWhetherItCanHaveHappened(t *testing.T) {
	_, c := serve(t)
	gone, leave := context.WithCancel(t.Context())
	leave()
	_, err := c.Submit(gone, command("ann", "m1", holdfast.Reserve{Feature: "text"}))
	if a := accidentOf(err); a.Code != engine.Cancelled || a.MayHaveHappened() {
		t.Errorf("left before: %v", err)
	}
	leaving, leave := context.WithCancel(t.Context())
	address, _ := answers(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		leave()
		<-r.Context().Done()
	})
	_, err = dial(t, address).Submit(leaving, command("ann", "m1", holdfast.Reserve{Feature: "text"}))
	if a := accidentOf(err); a.Code != engine.OutcomeUnknown || !a.MayHaveHappened() || !errors.Is(err, context.Canceled) {
		t.Errorf("left in between: %v", err)
	}
}

// scripted answers on a clock that is not the real one, and notes when it was asked.
type scripted struct {
	began  time.Time
	times  []time.Duration
	answer func(n int) (status int, retryAfter string, err error)
}

func (s *scripted) RoundTrip(r *http.Request) (*http.Response, error) {
	n := len(s.times)
	s.times = append(s.times, time.Since(s.began))
	status, retryAfter, err := s.answer(n)
	if err != nil {
		return nil, err
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Retry-After": {retryAfter}}, Body: http.NoBody, Request: r}, nil
}

func TestPausesGrowAndEndWhenTheTimeIsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{began: time.Now(), answer: func(int) (int, string, error) { return 503, "", nil }}
		c := dial(t, "http://holdfast.test", func(o *client.Options) { o.Transport, o.RetryFor = s, 20*time.Second })
		_, err := c.Submit(t.Context(), command("ann", "m1", holdfast.Reserve{Feature: "text"}))
		if a := accidentOf(err); a.Code != engine.OutcomeUnknown {
			t.Errorf("%v", err)
		}
		last := s.times[len(s.times)-1]
		if len(s.times) < 10 || len(s.times) > 30 || last > 20*time.Second || last < 17*time.Second {
			t.Errorf("asked at %v", s.times)
		}
		for i := 1; i < len(s.times); i++ {
			most := min(50*time.Millisecond<<(i-1), 2*time.Second)
			if pause := s.times[i] - s.times[i-1]; pause < most/2 || pause > most+time.Millisecond {
				t.Errorf("pause %d is %v, want %v to %v", i, pause, most/2, most)
			}
		}
	})
}

func TestTheServerSaysWhenToComeBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{began: time.Now(), answer: func(n int) (int, string, error) {
			return 429, []string{"3", time.Now().Add(5 * time.Second).UTC().Format(http.TimeFormat), "3600"}[n], nil
		}}
		c := dial(t, "http://holdfast.test", func(o *client.Options) { o.Transport = s })
		_, err := c.Submit(t.Context(), command("ann", "m1", holdfast.Reserve{Feature: "text"}))
		if a := accidentOf(err); a.Code != engine.Overloaded || a.MayHaveHappened() {
			t.Errorf("%v", err)
		}
		if len(s.times) != 3 || s.times[1] < 3*time.Second || s.times[2] < 7*time.Second || time.Since(s.began) > 9*time.Second {
			t.Errorf("asked at %v; an hour is not waited for (%v)", s.times, time.Since(s.began))
		}
	})
}

func TestAnEarlierAttemptThatMayHaveHappenedIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{began: time.Now(), answer: func(n int) (int, string, error) {
			if n == 0 {
				return 0, "", io.ErrUnexpectedEOF
			}
			return 401, "", nil
		}}
		c := dial(t, "http://holdfast.test", func(o *client.Options) { o.Transport = s })
		_, err := c.Submit(t.Context(), command("ann", "m1", holdfast.Reserve{Feature: "text"}))
		if a := accidentOf(err); a.Code != client.Unauthorized || !a.MayHaveHappened() {
			t.Errorf("%v", err)
		}
	})
}

func TestAnAttemptThatHangsIsGivenUpAndRepeated(t *testing.T) {
	s := apitest.Start(t, engine.Options{Catalog: tariffOf})
	api := apitest.Handler(t, s.Engine)
	address, requests := answers(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		<-r.Context().Done()
	}, api.ServeHTTP)
	c := dial(t, address, func(o *client.Options) { o.Timeout = time.Second })
	if do(t, c, command("ann", "m1", holdfast.Reserve{Feature: "text"})); len(requests()) < 2 {
		t.Errorf("%d requests", len(requests()))
	}
}

func TestABatchThatIsNotAnsweredLetsNothingOvertake(t *testing.T) {
	var commands []holdfast.Command
	for i := range 1100 {
		commands = append(commands, command("ann", fmt.Sprint("m", i), holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text"}}))
	}
	address, requests := answers(t, answer(503, ""))
	c := dial(t, address, func(o *client.Options) { o.RetryFor = -1 })
	for i, r := range c.SubmitAll(t.Context(), commands) {
		if a := accidentOf(r.Err); a.MayHaveHappened() != (i < 500) || !a.Passing() {
			t.Fatalf("%d: %v", i, r.Err)
		}
	}
	if n := len(requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestNobodyIsShownTheKey(t *testing.T) {
	c, err := client.New("http://holdfast.test", apitest.Key, client.Options{Transport: &scripted{answer: func(int) (int, string, error) { return 0, "", errors.New("broken") }}, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	holder := struct{ Inner any }{c}
	var logged bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&logged, nil))
	_, failed := c.Submit(t.Context(), command("ann", "m1", holdfast.Reserve{Feature: "text"}))
	log.Info("client", "client", c, "holder", holder, "error", failed)
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%+v %#v", c, c), fmt.Sprintf("%+v %#v", *c, *c), fmt.Sprintf("%+v %#v", holder, holder), logged.String()} {
		if strings.Contains(text, apitest.Key) {
			t.Errorf("the key is shown: %s", text)
		}
	}
}

func TestAnAddressOrKeyThatCannotBeMeantIsRefusedAtOnce(t *testing.T) {
	for _, address := range []string{"", "holdfast.example.com", "ftp://holdfast.example.com", "http://", "http://user:secret@holdfast.example.com", "http://holdfast.example.com?a=b"} {
		if _, err := client.New(address, apitest.Key, client.Options{}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", address, err)
		}
	}
	for _, key := range []string{"", "two words", "line\nbreak"} {
		if _, err := client.New("https://holdfast.example.com", key, client.Options{}); err == nil || key != "" && strings.Contains(err.Error(), key) {
			t.Errorf("%q: %v", key, err)
		}
	}
	if _, err := client.New("https://holdfast.example.com/behind/a/prefix/", apitest.Key, client.Options{}); err != nil {
		t.Error(err)
	}
}

// The key of a client that may only read says what it lacks, for each operation of a batch too.
func TestAKeyWithoutTheScopeIsAnAccident(t *testing.T) {
	s := apitest.Start(t, engine.Options{Catalog: tariffOf})
	c, err := client.New(s.URL, apitest.ReadKey, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reserve := command("ann", "m1", holdfast.Reserve{Feature: "text"})
	_, err = c.Submit(t.Context(), reserve)
	if a := accidentOf(err); a.Code != client.Forbidden || !strings.Contains(a.Hint, "work") || a.MayHaveHappened() {
		t.Errorf("%v", err)
	}
	if a := accidentOf(c.SubmitAll(t.Context(), []holdfast.Command{reserve})[0].Err); a.Code != client.Forbidden {
		t.Errorf("in a batch: %v", a)
	}
}
