package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// The chapters of this file are about Dora, whose work waits in a queue of Holdfast until a worker claims it, and about her
// bot's own server, which is told of what she was charged.

const (
	dora      = "telegram:45"
	jobKey    = "job-1"
	demoQueue = "text.standard" // the feature's queue and the tier of her plan
	demoEvent = "reservation.commit"
)

// jobLost: the work is handed to Holdfast together with the reserve. The worker who claims it is killed.
func (s *story) jobLost(ctx context.Context) (err error) {
	s.turnTo(dora)
	if s.receiver, err = newReceiver(); err != nil {
		return err
	}
	if err := s.awaitPublication(ctx); err != nil { // or the receiver would be told of others first
		return err
	}
	endpoint, err := s.call(ctx, apiCall{
		method: http.MethodPost, path: "/v1/endpoints", body: map[string]any{"url": s.receiver.url(), "types": []string{demoEvent}},
	})
	if err != nil {
		return err
	}
	s.called(endpoint, "POST", "endpoints", "", "%s is told at %s", demoEvent, s.receiver.url())
	if err := same("status of the endpoint", endpoint.status, http.StatusCreated); err != nil {
		return err
	}
	s.receiver.trust(endpoint.Secret)
	s.queued, err = s.call(ctx, apiCall{method: http.MethodPost, path: "/v1/reservations", key: jobKey, body: map[string]any{
		"account": dora, "feature": demoFeature, "job": map[string]any{"payload": map[string]any{"text": "improve me"}},
	}})
	if err != nil {
		return err
	}
	s.called(s.queued, "POST", "reservations", jobKey, "%s, a job in queue %s", describeAnswer(s.queued), s.queued.Queue)
	if err := errors.Join(same("status of "+jobKey, s.queued.status, http.StatusCreated), same("its queue", s.queued.Queue, demoQueue)); err != nil {
		return err
	}
	worker, err := newWorker(ctx, s.api, "w4", s.notes)
	if err != nil {
		return err
	}
	report, err := worker.ask("claim " + demoQueue)
	if err := errors.Join(err, s.claimed(worker, "w4", report, 1), worker.kill()); err != nil {
		return err
	}
	s.print("    and then: %s\n", worker.command.ProcessState)
	return s.believes(ctx, belief{available: 2, reserved: 1, active: 1, used: 0})
}

// awaitPublication waits until everything that has happened so far is published: an endpoint is told of what is published
// after it was made.
func (s *story) awaitPublication(ctx context.Context) error {
	patience := time.NewTimer(demoPatience)
	defer patience.Stop()
	again := time.NewTicker(demoSweepEvery / 4)
	defer again.Stop()
	for {
		waiting, _, err := s.database.Unpublished(ctx)
		if err != nil || waiting == 0 {
			return err
		}
		select {
		case <-again.C:
		case <-patience.C:
			return fmt.Errorf("expected everything to be published, %d events still wait", waiting)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// claimed prints what a worker was given, which must be Dora's job.
func (s *story) claimed(worker *workerProcess, name string, report workerReport, attempt int) error {
	s.print("    worker %s (process %d)   POST  queues/%s/claim   %d %s, attempt %d\n",
		name, worker.command.Process.Pid, demoQueue, report.Status, report.State, report.Attempt)
	return same("what "+name+" was given", report, workerReport{Status: http.StatusOK, State: string(holdfast.Running), Job: s.queued.ID, Attempt: attempt})
}

// jobGivenAway: the next worker waits for a job, and is given the same one when the lease of the first has lapsed.
func (s *story) jobGivenAway(ctx context.Context) error {
	worker, err := newWorker(ctx, s.api, "w5", s.notes)
	if err != nil {
		return err
	}
	defer func() { _ = worker.kill() }()
	began := time.Now()
	s.print("    waiting, about %d s …\n", demoLeaseSeconds)
	report, err := worker.ask("claim " + demoQueue)
	if err != nil {
		return err
	}
	s.print("    %.1f s later:\n", time.Since(began).Seconds())
	if err := s.claimed(worker, "w5", report, 2); err != nil {
		return err
	}
	if report, err = worker.ask("commit"); err != nil {
		return err
	}
	s.print("    worker w5 (process %d)   POST  …/commit   %d %s, used %d\n", worker.command.Process.Pid, report.Status, report.State, report.Used)
	if err := same("what the commit was answered", report, workerReport{Status: http.StatusOK, State: string(holdfast.Committed), Used: 1}); err != nil {
		return err
	}
	shown, err := s.call(ctx, apiCall{method: http.MethodGet, path: "/v1/reservations/" + s.queued.ID})
	if err != nil {
		return err
	}
	if shown.Job == nil {
		return fmt.Errorf("the reservation: expected to be shown its job, got %d %s", shown.status, shown.Reason)
	}
	s.called(shown, "GET", "…/"+jobKey, "", "%s, used %d; attempts %d, of them %d crashed", shown.State, shown.Used, shown.Attempts, shown.Job.Crashes)
	if err := errors.Join(same("attempts", shown.Attempts, 2), same("crashes", shown.Job.Crashes, 1), same("used", shown.Used, 1)); err != nil {
		return err
	}
	return s.believes(ctx, belief{available: 2, reserved: 0, active: 0, used: 1})
}

// toldTwice: the receiver takes the event, and its answer does not arrive. So it is delivered again, and dropped.
func (s *story) toldTwice(ctx context.Context) error {
	var first webhook
	for telling := range 2 {
		if telling == 1 {
			s.print("    waiting, about 5 s …\n")
		}
		came, err := s.receiver.next(ctx)
		if err != nil {
			return err
		}
		what := "counted; its answer is lost"
		if came.repeated {
			what = "known: dropped, and answered"
		}
		s.print("    POST  %s   %s…%s  %s of %s, signature good   %s\n", came.path, came.ID[:8], came.ID[len(came.ID)-4:], came.Type, came.Account, what)
		if telling == 0 {
			first = came
		}
		if err := errors.Join(
			same("type of the event", came.Type, demoEvent),
			same("whose it is", came.Account, dora),
			same("the reservation it tells of", came.Data.Reservation, s.queued.ID),
			same("its id", came.ID, first.ID),
			same("it was known", came.repeated, telling == 1),
		); err != nil {
			return err
		}
	}
	counted := s.receiver.close()
	s.print("\n    the receiver has counted %d charge\n", counted)
	return same("charges that the receiver has counted", counted, 1)
}

// receiver is the server of somebody who is told of events: it verifies who sends them, and acts on each once. Its first
// answer to an event never arrives.
type receiver struct {
	server *http.Server
	listen net.Listener
	came   chan webhook

	mu      sync.Mutex
	secret  string
	counted map[string]bool // events that it has acted on
}

// webhook is what the receiver was sent.
type webhook struct {
	path, problem string
	repeated      bool

	ID      string `json:"id"`
	Type    string `json:"type"`
	Account string `json:"account"`
	Data    struct {
		Reservation string `json:"reservation"`
	} `json:"data"`
}

const demoHook = "/hooks"

func newReceiver() (*receiver, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for webhooks: %w", err)
	}
	r := &receiver{listen: listener, came: make(chan webhook, 8), counted: map[string]bool{}}
	r.server = &http.Server{Handler: http.HandlerFunc(r.take), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = r.server.Serve(listener) }()
	return r, nil
}

func (r *receiver) url() string { return "http://" + r.listen.Addr().String() + demoHook }

// trust takes the secret that its sender signs with.
func (r *receiver) trust(secret string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.secret = secret
}

// take is the handler.
func (r *receiver) take(w http.ResponseWriter, request *http.Request) {
	came := webhook{path: request.URL.Path}
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, holdfast.MaxBodyBytes))
	if err == nil {
		err = json.Unmarshal(body, &came)
	}
	r.mu.Lock()
	switch {
	case err != nil:
		came.problem = err.Error()
	case !signedBy(r.secret, request.Header, body):
		came.problem = "its signature is not good"
	default:
		came.repeated = r.counted[came.ID]
		r.counted[came.ID] = true
	}
	r.mu.Unlock()
	select {
	case r.came <- came:
	case <-request.Context().Done():
	}
	if !came.repeated {
		panic(http.ErrAbortHandler) // the connection breaks before an answer is written
	}
}

// signedBy verifies a Standard Webhooks signature.
func signedBy(secret string, header http.Header, body []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil || len(key) == 0 {
		return false
	}
	mac := hmac.New(sha256.New, key)
	_, _ = fmt.Fprintf(mac, "%s.%s.%s", header.Get("Webhook-Id"), header.Get("Webhook-Timestamp"), body)
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for signature := range strings.FieldsSeq(header.Get("Webhook-Signature")) {
		if hmac.Equal([]byte(signature), []byte(want)) {
			return true
		}
	}
	return false
}

// next waits for a webhook.
func (r *receiver) next(ctx context.Context) (came webhook, err error) {
	patience := time.NewTimer(demoPatience)
	defer patience.Stop()
	select {
	case came = <-r.came:
		if came.problem != "" {
			return came, errors.New("the receiver was sent something bad: " + came.problem)
		}
		return came, nil
	case <-patience.C:
		return came, fmt.Errorf("expected a webhook within %s, got none", demoPatience)
	case <-ctx.Done():
		return came, context.Cause(ctx)
	}
}

// close stops it, and tells how many events it has acted on.
func (r *receiver) close() int {
	if r == nil {
		return 0
	}
	closing, cancel := context.WithTimeout(context.Background(), shutdownFor)
	defer cancel()
	_ = r.server.Shutdown(closing) // the answer that is being given still arrives
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.counted)
}
