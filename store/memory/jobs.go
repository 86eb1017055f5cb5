package memory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Jobs = (*Store)(nil)

// job is what is stored of one.
type job struct {
	ref         store.JobRef
	queue       string
	claimableAt time.Time
	last        bool
	payload     string
}

func copyJob(from *holdfast.Job) *holdfast.Job {
	if from == nil {
		return nil
	}
	copied := *from
	copied.Payload, copied.Attempts = "", nil
	for _, a := range from.Attempts {
		a.StartedAt, a.EndedAt = stored(a.StartedAt), stored(a.EndedAt)
		copied.Attempts = append(copied.Attempts, a)
	}
	return &copied
}

// jobs keeps those of live reservations.
func (w *writing) jobs(a *account, changes *holdfast.Changes) error {
	for _, r := range changes.NewReservations {
		if r.Job == nil || !r.Live() {
			continue
		}
		made := job{
			ref:   store.JobRef{Account: a.row.ID, ID: r.ID, Project: a.row.Project, CreatedAt: stored(r.CreatedAt)},
			queue: r.Job.Queue, claimableAt: stored(r.ClaimableAt()), last: r.LastAttempt(), payload: r.Job.Payload,
		}
		if made.queue == "" {
			return rejected(w.op, errors.New("job_waits_in_a_queue"))
		}
		if n := len(made.payload); n < 1 || n > holdfast.MaxPayloadBytes {
			return rejected(w.op, errors.New("payload_is_bounded"))
		}
		put(w, a.jobs, r.ID, made)
	}
	for _, r := range changes.Reservations {
		if r.Job == nil {
			continue
		}
		kept, exists := a.jobs[r.ID]
		switch {
		case !r.Live():
			remove(w, a.jobs, r.ID)
		case !exists:
			return rejected(w.op, errors.New("a changed job is not stored"))
		default:
			kept.claimableAt, kept.last = stored(r.ClaimableAt()), r.LastAttempt()
			put(w, a.jobs, r.ID, kept)
		}
	}
	return nil
}

// pick lists the jobs that are wanted.
func (s *Store) pick(ctx context.Context, op string, at time.Time, wanted func(*job) bool, before func(a, b store.JobRef) int, after store.JobRef, limit int) (refs []store.JobRef, err error) {
	err = s.use(ctx, op, func() error {
		for _, a := range s.accounts {
			for _, j := range a.jobs {
				if !j.claimableAt.IsZero() && !j.claimableAt.After(stored(at)) && wanted(&j) && (after.ID.IsZero() || before(after, j.ref) < 0) {
					refs = append(refs, j.ref)
				}
			}
		}
		return nil
	})
	slices.SortFunc(refs, before)
	return refs[:min(limit, len(refs))], err
}

func byAge(a, b store.JobRef) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), bytes.Compare(a.ID[:], b.ID[:]))
}

func byAccount(a, b store.JobRef) int {
	return cmp.Or(bytes.Compare(a.Account[:], b.Account[:]), bytes.Compare(a.ID[:], b.ID[:]))
}

// ClaimableJobs looks at every job.
func (s *Store) ClaimableJobs(ctx context.Context, q store.JobQuery) ([]store.JobRef, error) {
	return s.pick(ctx, "find claimable jobs", q.At, func(j *job) bool { return j.ref.Project == q.Project && j.queue == q.Queue }, byAge, q.After, q.Limit)
}

// LostJobs looks at every job.
func (s *Store) LostJobs(ctx context.Context, at time.Time, after store.JobRef, limit int) ([]store.JobRef, error) {
	return s.pick(ctx, "find lost jobs", at, func(j *job) bool { return j.last }, byAccount, after, limit)
}

// Payloads reads what is stored with the jobs.
func (s *Store) Payloads(ctx context.Context, jobs []store.JobRef) (payloads []string, err error) {
	err = s.use(ctx, "read payloads", func() error {
		for _, ref := range jobs {
			payload := ""
			if a, ok := s.accounts[ref.Account]; ok {
				payload = a.jobs[ref.ID].payload
			}
			payloads = append(payloads, payload)
		}
		return nil
	})
	return payloads, err
}

// Queues counts.
func (s *Store) Queues(ctx context.Context, at time.Time) (queues []store.Queue, err error) {
	err = s.use(ctx, "count queues", func() error {
		found := map[[2]string]*store.Queue{}
		for _, a := range s.accounts {
			for _, j := range a.jobs {
				if j.claimableAt.IsZero() || j.claimableAt.After(stored(at)) {
					continue
				}
				name := [2]string{j.ref.Project, j.queue}
				if found[name] == nil {
					found[name] = &store.Queue{Project: j.ref.Project, Name: j.queue, Oldest: j.ref.CreatedAt}
				}
				q := found[name]
				q.Waiting++
				if j.ref.CreatedAt.Before(q.Oldest) {
					q.Oldest = j.ref.CreatedAt
				}
			}
		}
		for _, q := range found {
			queues = append(queues, *q)
		}
		return nil
	})
	slices.SortFunc(queues, func(a, b store.Queue) int {
		return cmp.Or(cmp.Compare(a.Project, b.Project), cmp.Compare(a.Name, b.Name))
	})
	return queues, err
}
