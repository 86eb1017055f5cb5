package holdfast

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// JobRequest is the work itself, given with a reserve: it waits in a queue of Holdfast until a worker claims it.
type JobRequest struct {
	Payload     string // JSON of at most MaxPayloadBytes; empty: null
	MaxAttempts int    // 1 to MaxAttempts; 0: DefaultAttempts
}

// Job is the work that a reservation pays for, where Holdfast queues it. It waits from the reserve until a worker claims it,
// and again after every attempt that was lost or given back; its place in the queue is that of its reservation's age, and
// neither price nor pockets change.
type Job struct {
	// Queue is the feature's queue and the tier of the plan that was in force at the reserve. Both are frozen, and so is
	// MaxAttempts.
	Queue       string
	MaxAttempts int
	Notice      bool      `json:",omitzero"` // the person is told if it waits too long
	Crashes     int       `json:",omitzero"` // attempts whose worker lost its lease, or said that it had crashed
	Errors      int       `json:",omitzero"` // attempts that were given back
	Attempts    []Attempt `json:",omitzero"` // the latest, up to KeptAttempts, in the order in which they began

	// Payload is there at the reserve only: it is stored apart from what decisions load, kept while the reservation lives,
	// and never part of an answer to anybody but the worker who claims the job.
	Payload string `json:"-"`
}

// Attempt is one start of a job.
type Attempt struct {
	No        int    // as Reservation.Attempts counts
	Worker    string `json:",omitzero"`
	StartedAt time.Time
	EndedAt   time.Time  `json:",omitzero"` // zero: it goes on
	End       AttemptEnd `json:",omitzero"`
	Cause     string     `json:",omitzero"`
}

// AttemptEnd is how an attempt ended: one of these, or as its reservation did.
type AttemptEnd string

// The ends after which the reservation lives on.
const (
	AttemptCrashed   AttemptEnd = "crashed"   // the lease was lost, or the worker said that it had crashed
	AttemptFailed    AttemptEnd = "failed"    // the worker gave the job back for another attempt
	AttemptUnstarted AttemptEnd = "unstarted" // the worker gave the job back before it began: it does not count
)

// standardTier is the tier of a plan that names none.
const standardTier = "standard"

// QueueOn is where jobs of the feature wait for accounts of the plan.
func (f *Feature) QueueOn(plan *Plan) string {
	queue, tier := f.Queue, plan.Tier
	if queue == "" {
		queue = f.Name
	}
	if tier == "" {
		tier = standardTier
	}
	return queue + "." + tier
}

// on is the job as it waits.
func (request *JobRequest) on(feature *Feature, plan *Plan) *Job {
	if request == nil {
		return nil
	}
	job := &Job{Queue: feature.QueueOn(plan), MaxAttempts: request.MaxAttempts, Payload: request.Payload}
	if job.MaxAttempts == 0 {
		job.MaxAttempts = DefaultAttempts
	}
	if job.Payload == "" {
		job.Payload = "null"
	}
	return job
}

func (p *problems) job(field string, request *JobRequest) {
	if request == nil {
		return
	}
	if request.MaxAttempts < 0 || request.MaxAttempts > MaxAttempts {
		p.add(field+".max_attempts", fmt.Sprintf("use 1 to %d", MaxAttempts))
	}
	payload := request.Payload
	switch {
	case payload == "":
	case len(payload) > MaxPayloadBytes:
		p.add(field+".payload", fmt.Sprintf("use at most %d bytes; of what is larger, send where it is", MaxPayloadBytes))
	case !utf8.ValidString(payload) || !json.Valid([]byte(payload)):
		p.add(field+".payload", "use JSON in UTF-8")
	}
}

func (job *Job) clone() *Job {
	if job == nil {
		return nil
	}
	copied := *job
	copied.Attempts = slices.Clone(job.Attempts)
	return &copied
}

// spent reports whether no further attempt may begin.
func (job *Job) spent() bool { return job.Crashes+job.Errors >= job.MaxAttempts }

// openAttempt records that the reservation's worker has begun.
func (r *Reservation) openAttempt(now time.Time) {
	if r.Job == nil {
		return
	}
	if n := len(r.Job.Attempts); n >= KeptAttempts {
		r.Job.Attempts = slices.Clone(r.Job.Attempts[n-KeptAttempts+1:])
	}
	r.Job.Attempts = append(r.Job.Attempts, Attempt{No: r.Attempts, Worker: r.Worker, StartedAt: now})
}

// closeAttempt records how the last attempt ended, unless that is known already.
func (job *Job) closeAttempt(end AttemptEnd, cause string, at time.Time) {
	if job == nil || len(job.Attempts) == 0 {
		return
	}
	last := &job.Attempts[len(job.Attempts)-1]
	if last.End == "" {
		last.End, last.Cause, last.EndedAt = end, cause, at
	}
}

// ClaimableAt is when a worker may claim the reservation's job: at once, when the lease of another one has lapsed, or, after
// an attempt that was given back, when its delay is over. Zero: there is none to claim.
func (r *Reservation) ClaimableAt() time.Time {
	switch {
	case r.Job == nil || !r.Live() || r.InDoubt:
		return time.Time{}
	case r.State == Running:
		return r.LeaseExpiresAt
	}
	if n := len(r.Job.Attempts); n > 0 {
		if last := r.Job.Attempts[n-1]; last.End == AttemptFailed || last.End == AttemptCrashed {
			return last.EndedAt.Add(r.retryDelay(last.EndedAt))
		}
	}
	return r.CreatedAt
}

// retryDelay doubles with every attempt that counts. At most half of the time is waited that is left to hold the reservation:
// a job that may be tried again can be.
func (r *Reservation) retryDelay(from time.Time) time.Duration {
	delay := FirstRetryDelay
	for counted := 1; counted < r.Job.Crashes+r.Job.Errors && delay < MaxRetryDelay; counted++ {
		delay *= 2
	}
	return min(delay, MaxRetryDelay, r.HeldUntil().Sub(from)/2).Truncate(time.Microsecond) // as stores keep times
}

// LastAttempt reports whether the job is running and would not be tried again if its worker were lost.
func (r *Reservation) LastAttempt() bool {
	return r.Job != nil && r.State == Running && r.Job.Crashes+r.Job.Errors+1 >= r.Job.MaxAttempts
}

// crashed counts the attempt of a job whose lease has lapsed as a crash. It reports whether that was the last one: then the
// reservation is released.
func (d *decision) crashed(r *Reservation) bool {
	if r.Job == nil || r.State != Running {
		return false
	}
	r.Job.Crashes++
	r.Job.closeAttempt(AttemptCrashed, "", r.LeaseExpiresAt)
	if !r.Job.spent() {
		return false
	}
	d.release(r, CauseCrashed, "")
	return true
}

// EndLost releases a job whose last attempt has lost its lease. The sweeper sends it; it never refuses, and where there is
// nothing to end it changes nothing.
type EndLost struct {
	base
	ReservationID ID
}

// Name is "end_lost".
func (EndLost) Name() string { return "end_lost" }

func (op EndLost) reservation() ID { return op.ReservationID }

func (op EndLost) print(f *printer) { f.text("reservation", op.ReservationID.String()) }

func (op EndLost) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok || !r.LastAttempt() || r.InDoubt || d.now.Before(r.LeaseExpiresAt) {
		return Outcome{}
	}
	return Outcome{Changed: d.outlived(r) || d.crashed(r)}
}

func (op Release) givesBack() bool { return op.Retry || op.Unstarted }

// cannotGiveBack says why there is nothing to give back.
func (op Release) cannotGiveBack(r *Reservation) *Problem {
	field := "retry"
	if op.Unstarted {
		field = "unstarted"
	}
	switch {
	case !op.givesBack():
		return nil
	case r.Job == nil:
		return &Problem{field, "leave it out: the reservation has no job that could be tried again"}
	case r.InDoubt:
		return &Problem{field, "leave it out: work in doubt is settled, not tried again"}
	}
	return nil
}

// giveBack puts a job back into its queue, in the place of its age, where it can be claimed again after a delay. What has had
// its attempts, has been held as long as it may, or was asked to stop is released instead. The token stays the last one given
// out, so that the same call can be repeated, until another worker claims the job.
func (d *decision) giveBack(r *Reservation, op Release) Outcome {
	if r.State != Running { // nobody has it, or it was given back before
		outcome := d.done(r)
		outcome.Changed = false
		return outcome
	}
	end, cause := AttemptFailed, op.cause()
	switch {
	case op.Unstarted:
		end, cause = AttemptUnstarted, ""
	case cause == CauseCrashed:
		end = AttemptCrashed
		r.Job.Crashes++
	default:
		r.Job.Errors++
	}
	r.Job.closeAttempt(end, cause, d.now)
	if !r.CancelRequestedAt.IsZero() {
		return d.release(r, CauseCancelled, "")
	}
	if r.Job.spent() || !d.now.Before(r.HeldUntil()) {
		return d.release(r, op.cause(), "")
	}
	r.State, r.LeaseExpiresAt = Reserved, time.Time{}
	r.moveExpiry(latest(d.now, r.ClaimableAt()).Add(r.TTL)) // it does not expire only because it must wait again
	d.state.touchReservation(r)
	return d.done(r)
}

// Claim asks for jobs of a queue: which, for whom, how many at most, and for how long.
type Claim struct {
	Queue  string
	Worker string
	Limit  int           // 1 to MaxClaim; 0: 1
	Lease  time.Duration // 0: DefaultLease
	Wait   time.Duration // for the first job, where there is none; at most MaxClaimWait
}

// Check finds everything that is wrong with the claim's shape. Fields are named as in the API.
func (c Claim) Check() []Problem {
	var p problems
	if !validWord(c.Queue, MaxQueueBytes) {
		p.add("queue", "use a feature's queue, a dot and a plan's tier, for example image.standard")
	}
	p.text("worker", c.Worker, MaxWorkerBytes)
	if c.Limit < 0 || c.Limit > MaxClaim {
		p.add("limit", fmt.Sprintf("use 1 to %d", MaxClaim))
	}
	p.duration("lease_seconds", c.Lease, MinLease, MaxLease)
	if c.Wait < 0 || c.Wait > MaxClaimWait {
		p.add("wait_seconds", fmt.Sprintf("use 0 to %d seconds", int64(MaxClaimWait.Seconds())))
	}
	return p.list
}
