package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// jobBody is the work that a reservation pays for.
type jobBody struct {
	Payload     json.RawMessage  `json:"payload,omitempty" doc:"Any JSON, at most 65536 bytes; null where it is left out. Kept while the reservation lives, and given to the worker who claims the job"`
	MaxAttempts *holdfast.Amount `json:"max_attempts,omitempty" minimum:"1" maximum:"10" doc:"How often it may be begun; 3 where it is left out"`
}

func (b *jobBody) request() *holdfast.JobRequest {
	if b == nil {
		return nil
	}
	job := &holdfast.JobRequest{Payload: string(b.Payload)}
	if b.MaxAttempts != nil {
		job.MaxAttempts = small(*b.MaxAttempts)
	}
	return job
}

// small is a number that was written. A zero is not left out, and what is too large for its bound stays so in an int.
func small(n holdfast.Amount) int {
	if n <= 0 {
		return -1
	}
	return int(min(n, 1<<30))
}

// Job is what became of a reservation's job so far.
type Job struct {
	MaxAttempts int       `json:"max_attempts"`
	Crashes     int       `json:"crashes" doc:"Attempts whose worker lost its lease, or said that it had crashed"`
	Errors      int       `json:"errors" doc:"Attempts that were given back"`
	Attempts    []Attempt `json:"attempts" doc:"The latest twenty, in the order in which they began"`
}

// Attempt is one start of a job.
type Attempt struct {
	No        int        `json:"no" doc:"As attempts of the reservation counts"`
	Worker    *string    `json:"worker"`
	StartedAt time.Time  `json:"started_at"`
	EndedAt   *time.Time `json:"ended_at" doc:"null: it goes on"`
	End       *string    `json:"end" doc:"crashed, failed (given back), unstarted (given back, not counted), or the state in which the reservation ended. More may come."`
	Cause     *string    `json:"cause" doc:"As the worker told it"`
}

func jobOf(job *holdfast.Job) *Job {
	if job == nil {
		return nil
	}
	shown := &Job{MaxAttempts: job.MaxAttempts, Crashes: job.Crashes, Errors: job.Errors, Attempts: []Attempt{}}
	for _, a := range job.Attempts {
		shown.Attempts = append(shown.Attempts, Attempt{
			No: a.No, Worker: known(a.Worker), StartedAt: a.StartedAt.UTC(), EndedAt: instant(a.EndedAt), End: known(string(a.End)), Cause: known(a.Cause),
		})
	}
	return shown
}

// claimBody asks for jobs.
type claimBody struct {
	Worker       string           `json:"worker,omitempty" doc:"Who will work, for whoever reads the reservations"`
	Limit        *holdfast.Amount `json:"limit,omitempty" minimum:"1" maximum:"50" doc:"How many at most; 1 where it is left out"`
	LeaseSeconds *holdfast.Amount `json:"lease_seconds,omitempty" minimum:"5" maximum:"3600" doc:"How long without a heartbeat; 60 where it is left out"`
	WaitSeconds  *holdfast.Amount `json:"wait_seconds,omitempty" minimum:"0" maximum:"50" doc:"How long to wait for the first job, where there is none; not at all where it is left out"`
}

// Jobs are those that a claim was given.
type Jobs struct {
	Jobs []ClaimedJob `json:"jobs" doc:"The oldest first; none: there were none"`
}

// ClaimedJob is a reservation that is the worker's own while its lease lives, and what is to be done for it.
type ClaimedJob struct {
	Reservation
	LeaseToken        string          `json:"lease_token" doc:"Send it with heartbeat, commit and release"`
	Payload           json.RawMessage `json:"payload" doc:"As it was given to the reserve"`
	Attempt           int             `json:"attempt" doc:"Which one this is, from 1"`
	LongestJobSeconds *int64          `json:"longest_job_seconds" doc:"How long the work may take, by the feature; null: the catalog no longer has it"`
}

// claimSlack is what a claim may take beyond its wait.
const claimSlack = 30 * time.Second

// claim gives jobs of a queue to a worker.
func claim(c *call) answer {
	var body claimBody
	if unread := c.from.body(c, &body); unread != nil {
		return *unread
	}
	c.noQuery()
	wanted := holdfast.Claim{Queue: c.request.PathValue("queue"), Worker: body.Worker, Lease: seconds(body.LeaseSeconds)}
	if body.Limit != nil {
		wanted.Limit = small(*body.Limit)
	}
	if body.WaitSeconds != nil && *body.WaitSeconds != 0 {
		wanted.Wait = seconds(body.WaitSeconds)
	}
	if found := merge(c.problems, wanted.Check(), ""); len(found) > 0 {
		return c.invalid(found)
	}
	// The server's bound on reading a request would otherwise end the wait as if the caller had left. Where the writer is no
	// connection's, there is no such bound.
	_ = http.NewResponseController(c.writer).SetReadDeadline(time.Now().Add(wanted.Wait + claimSlack))
	claimed, err := c.api.Engine.Claim(c.context(), engine.ClaimRequest{Project: c.key.Project, Actor: "key:" + c.key.ID, Claim: wanted})
	var refused *engine.Refused
	switch {
	case errors.As(err, &refused):
		return c.invalid(refused.Outcome.Problems)
	case err != nil:
		return c.failed(err)
	}
	list := Jobs{Jobs: []ClaimedJob{}}
	for i := range claimed {
		list.Jobs = append(list.Jobs, c.claimedJob(&claimed[i]))
	}
	return answer{status: http.StatusOK, body: list}
}

func (c *call) claimedJob(job *engine.Claimed) ClaimedJob {
	c.account, c.accountName = job.Outcome.Owner.ID, job.Outcome.Owner.Name
	shown := ClaimedJob{
		Reservation: c.reservation(job.Outcome.Reservation, nil), LeaseToken: job.Outcome.Lease.Token,
		Payload: json.RawMessage(job.Payload), Attempt: job.Outcome.Reservation.Attempts,
	}
	if longest := int64(job.LongestJob / time.Second); longest > 0 {
		shown.LongestJobSeconds = &longest
	}
	return shown
}
