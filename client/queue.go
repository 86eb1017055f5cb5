package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// Claim takes jobs of a queue, as Engine.Claim does. It is asked once: jobs of an answer that was lost come back to their queue
// when their leases lapse. Project and Actor are those of the API key.
func (c *Client) Claim(ctx context.Context, wanted engine.ClaimRequest) ([]engine.Claimed, error) {
	problems := wanted.Check()
	for field, length := range map[string]time.Duration{"lease_seconds": wanted.Lease, "wait_seconds": wanted.Wait} {
		if length%time.Second != 0 {
			problems = append(problems, holdfast.Problem{Field: field, Hint: "use whole seconds"})
		}
	}
	if len(problems) > 0 {
		return nil, refused(holdfast.Outcome{Reason: holdfast.Invalid, Problems: problems})
	}
	body := fields{}
	set(body, "worker", wanted.Worker)
	set(body, "limit", wanted.Limit)
	body.seconds("lease_seconds", wanted.Lease)
	body.seconds("wait_seconds", wanted.Wait)
	patient := *c
	patient.timeout, patient.retryFor = c.timeout+wanted.Wait, -1
	reply, err := patient.send(ctx, &request{method: http.MethodPost, path: "/v1/queues/" + url.PathEscape(wanted.Queue) + "/claim", body: encode(body)})
	if err != nil {
		return nil, err
	}
	if reply.status >= 300 {
		p, _ := reply.problem()
		outcome, err := p.outcome()
		if err != nil {
			return nil, reply.unreadable(err)
		}
		return nil, refused(outcome)
	}
	var answered struct{ Jobs []claimedJob }
	if err := json.Unmarshal(reply.body, &answered); err != nil {
		return nil, reply.unreadable(err)
	}
	if answered.Jobs == nil {
		return nil, reply.unreadable(errors.New("it has no jobs"))
	}
	var claimed []engine.Claimed
	for i := range answered.Jobs {
		job, err := answered.Jobs[i].core()
		if err != nil {
			return nil, reply.unreadable(err)
		}
		claimed = append(claimed, job)
	}
	return claimed, nil
}

type claimedJob struct {
	reservation
	LeaseToken        string `json:"lease_token"`
	Payload           json.RawMessage
	LongestJobSeconds int64 `json:"longest_job_seconds"`
}

func (j *claimedJob) core() (engine.Claimed, error) {
	owner, r, err := j.reservation.core()
	if err == nil && j.LeaseToken == "" {
		err = errors.New("it has no lease token")
	}
	if err != nil {
		return engine.Claimed{}, err
	}
	outcome := leased(holdfast.Outcome{Changed: true, Reservation: r, Owner: owner}, j.LeaseToken)
	return engine.Claimed{Outcome: outcome, Payload: string(j.Payload), LongestJob: time.Duration(j.LongestJobSeconds) * time.Second}, nil
}

// job is what became of a reservation's job.
type job struct {
	MaxAttempts     int `json:"max_attempts"`
	Crashes, Errors int
	Attempts        []struct {
		No         int
		Worker     *string
		StartedAt  time.Time  `json:"started_at"`
		EndedAt    *time.Time `json:"ended_at"`
		End, Cause *string
	}
}

func (j *job) core(queue string) *holdfast.Job {
	if j == nil {
		return nil
	}
	shown := &holdfast.Job{Queue: queue, MaxAttempts: j.MaxAttempts, Crashes: j.Crashes, Errors: j.Errors}
	for _, a := range j.Attempts {
		shown.Attempts = append(shown.Attempts, holdfast.Attempt{
			No: a.No, Worker: value(a.Worker), StartedAt: a.StartedAt, EndedAt: instant(a.EndedAt), End: holdfast.AttemptEnd(value(a.End)), Cause: value(a.Cause),
		})
	}
	return shown
}
