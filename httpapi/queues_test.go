package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// Claim is the queue without its waiting: every start is decided for real.
func (e *smallEngine) Claim(_ context.Context, request engine.ClaimRequest) ([]engine.Claimed, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.readError != nil {
		return nil, e.readError
	}
	type found struct {
		account holdfast.AccountID
		r       *holdfast.Reservation
	}
	var waiting []found
	for id, state := range e.states {
		for _, r := range state.Reservations {
			at := r.ClaimableAt()
			if state.Account.Project == request.Project && r.Job != nil && r.Job.Queue == request.Queue && !at.IsZero() && !at.After(e.now) {
				waiting = append(waiting, found{id, r})
			}
		}
	}
	slices.SortFunc(waiting, func(a, b found) int { return cmp.Compare(a.r.ID.String(), b.r.ID.String()) })
	var claimed []engine.Claimed
	for _, w := range waiting[:min(len(waiting), max(1, request.Limit))] {
		started, err := e.submit(holdfast.Command{
			Project: request.Project, Target: w.account, Do: holdfast.Start{ReservationID: w.r.ID, Worker: request.Worker, Lease: request.Lease},
		})
		if err == nil && !started.Refused() {
			claimed = append(claimed, engine.Claimed{Outcome: started, Payload: w.r.Job.Payload, LongestJob: time.Minute})
		}
	}
	return claimed, nil
}

const textQueue = "/v1/queues/text.improve.standard/claim"

func (s *server) job(account, key, job string) *reply {
	s.t.Helper()
	return s.post("/v1/reservations", key, fmt.Sprintf(`{"account": %q, "feature": "text.improve", "job": %s}`, account, job)).is(201)
}

func claimed(r *reply) (jobs []map[string]any) {
	for _, job := range r.is(200).body["jobs"].([]any) {
		jobs = append(jobs, job.(map[string]any))
	}
	return jobs
}

func TestAJobIsReservedClaimedAndCommitted(t *testing.T) {
	s := newServer(t)
	s.give("ann", "credit", 10)
	s.give("bob", "credit", 10)
	deep := strings.Repeat("[", 200) + `"\u0041"` + strings.Repeat("]", 200)
	made := s.job("ann", "m1", `{"payload": {"prompt": "лиса", "deep": `+deep+`, "n": 1e0, "n": 1.50}, "max_attempts": 2}`)
	if made.text("queue") != "text.improve.standard" || fmt.Sprint(made.body["job"].(map[string]any)["max_attempts"]) != "2" {
		t.Errorf("reserved %s", made.raw)
	}
	s.job("bob", "m2", `{}`)
	if jobs := claimed(s.post("/v1/queues/text.improve.priority/claim", "", `{}`)); len(jobs) != 0 {
		t.Errorf("another tier has %v", jobs)
	}
	if jobs := claimed(s.call("POST", textQueue, `{}`, "Authorization: Bearer "+otherKey)); len(jobs) != 0 {
		t.Errorf("another project has %v", jobs)
	}
	got := s.post(textQueue, "", `{"worker": "w1", "limit": 50, "lease_seconds": 30}`)
	jobs := claimed(got)
	if len(jobs) != 2 || jobs[0]["id"] != made.text("id") || jobs[0]["account"] != "ann" || fmt.Sprint(jobs[0]["attempt"]) != "1" || jobs[0]["state"] != "running" || fmt.Sprint(jobs[0]["longest_job_seconds"]) != "60" {
		t.Fatalf("claimed %s", got.raw)
	}
	if !strings.Contains(strings.ReplaceAll(got.raw, " ", ""), `"deep":`+strings.Repeat("[", 200)+`"\u0041"`) || !strings.Contains(got.raw, "1.50") {
		t.Errorf("the payload is not as it was written: %s", got.raw)
	}
	if jobs[1]["payload"] != nil {
		t.Errorf("no payload became %v", jobs[1]["payload"])
	}
	path := "/v1/reservations/" + made.text("id")
	token := jobs[0]["lease_token"].(string)
	given := s.post(path+"/release", "", fmt.Sprintf(`{"lease_token": %q, "retry": true, "cause": "rate_limited"}`, token)).is(200)
	if given.text("state") != "reserved" || given.body["changed"] != true {
		t.Errorf("given back: %s", given.raw)
	}
	if early := claimed(s.post(textQueue, "", `{"worker": "w2"}`)); len(early) != 0 {
		t.Errorf("claimed before its delay was over: %v", early)
	}
	s.engine.pass(time.Second)
	again := claimed(s.post(textQueue, "", `{"worker": "w2"}`))[0]
	if fmt.Sprint(again["attempt"]) != "2" || again["lease_token"] == token {
		t.Errorf("claimed again %v", again)
	}
	s.post(path+"/commit", "", fmt.Sprintf(`{"lease_token": %q}`, token)).is(409)
	s.post(path+"/commit", "", fmt.Sprintf(`{"lease_token": %q}`, again["lease_token"])).is(200)
	shown := s.get(path).is(200)
	attempts := shown.body["job"].(map[string]any)["attempts"].([]any)
	first, last := attempts[0].(map[string]any), attempts[1].(map[string]any)
	if first["end"] != "failed" || first["cause"] != "rate_limited" || last["end"] != "committed" || last["worker"] != "w2" || fmt.Sprint(shown.body["used"]) != "1" {
		t.Errorf("shown %s", shown.raw)
	}
	if strings.Contains(shown.raw, "лиса") {
		t.Error("a read shows the payload")
	}
}

func TestWhatIsWrongWithAJobOrAClaimIsNamed(t *testing.T) {
	s := newServer(t)
	s.give("ann", "credit", 10)
	before := s.engine.everything(t)
	for _, c := range []struct{ path, body, field string }{
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": null}`, "job"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": []}`, "job"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": {"paylod": 1}}`, "job.paylod"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": {"payload": 1, "payload": 2}}`, "job.payload"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": {"payload": "` + strings.Repeat("x", 65536) + `"}}`, "job.payload"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": {"payload": "` + "\xff" + `"}}`, "job.payload"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": {"payload": {]}}}`, "body"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": {"payload": `, "body"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": {"max_attempts": 0}}`, "job.max_attempts"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": {"max_attempts": 11}}`, "job.max_attempts"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": {"max_attempts": 4294967297}}`, "job.max_attempts"},
		{"/v1/reservations", `{"account": "ann", "feature": "text.improve", "job": {"max_attempts": 1.5}}`, "job.max_attempts"},
		{"/v1/charges", `{"account": "ann", "feature": "text.improve", "job": {}}`, "job"},
		{textQueue, `{"limit": 0}`, "limit"},
		{textQueue, `{"limit": 51}`, "limit"},
		{textQueue, `{"limit": 4294967297}`, "limit"},
		{textQueue, `{"lease_seconds": 4}`, "lease_seconds"},
		{textQueue, `{"lease_seconds": 3601}`, "lease_seconds"},
		{textQueue, `{"wait_seconds": 51}`, "wait_seconds"},
		{textQueue, `{"wait_seconds": -1}`, "wait_seconds"},
		{textQueue, `{"worker": 5}`, "worker"},
		{textQueue, `{"worker": "` + strings.Repeat("w", 129) + `"}`, "worker"},
		{textQueue, `{"work": "w"}`, "work"},
		{textQueue + "?limit=5", `{}`, "limit"},
		{"/v1/queues/Text%20queue/claim", `{}`, "queue"},
		{"/v1/queues/" + strings.Repeat("q", 130) + "/claim", `{}`, "queue"},
	} {
		got := s.post(c.path, "k", c.body).is(400)
		var fields []string
		for _, p := range got.body["problems"].([]any) {
			fields = append(fields, p.(map[string]any)["field"].(string))
		}
		if !slices.Equal(fields, []string{c.field}) {
			t.Errorf("%s %.90s: problems with %v, want %s", c.path, c.body, fields, c.field)
		}
	}
	if s.engine.everything(t) != before {
		t.Error("something has moved")
	}
	plain := "/v1/reservations/" + s.reserve("ann", "plain")
	s.post(plain+"/release", "", `{"retry": true}`).is(400)
	s.post(plain+"/release", "", `{"unstarted": true}`).is(400)
	s.post(plain+"/release", "", `{"retry": true, "unstarted": true}`).is(400)
}

// A queue that cannot be looked at is an accident and no empty queue.
func TestAClaimThatCannotReadIsUnavailable(t *testing.T) {
	s := newServer(t)
	s.engine.failReadsAfter(0, &engine.Error{Code: engine.Unavailable, Hint: "x", Err: errors.New("gone")})
	s.post(textQueue, "", `{}`).is(503)
}

// patient is an engine whose claims wait until they are left or their time is over.
type patient struct {
	*smallEngine
	waited chan error
}

func (p patient) Claim(ctx context.Context, request engine.ClaimRequest) ([]engine.Claimed, error) {
	timer := time.NewTimer(request.Wait)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	p.waited <- ctx.Err()
	return nil, ctx.Err()
}

// The bound on reading a request is shorter than a claim may wait.
func TestALongWaitOutlivesTheBoundOnReadingRequests(t *testing.T) {
	e := newSmallEngine()
	p := patient{e, make(chan error, 1)}
	s := serveWith(t, p, plainTexts{})
	handler, err := New(Options{Engine: p, Keys: s.keys, Texts: plainTexts{}, Logger: s.logger()})
	if err != nil {
		t.Fatal(err)
	}
	hasty := httptest.NewUnstartedServer(handler)
	hasty.Config.ReadTimeout = 200 * time.Millisecond
	hasty.Start()
	t.Cleanup(hasty.Close)
	s.url = hasty.URL
	s.post(textQueue, "", `{"wait_seconds": 1}`).is(200)
	if err := <-p.waited; err != nil {
		t.Errorf("the wait was ended: %v", err)
	}
}
