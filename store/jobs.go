package store

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Jobs is what the engine asks about the jobs of live reservations. What it answers are hints, read without a lock: whether
// a job may still be claimed is decided under its account's lock. Every store in this module has it.
type Jobs interface {
	// ClaimableJobs are jobs that a worker may claim, the oldest first.
	ClaimableJobs(ctx context.Context, query JobQuery) ([]JobRef, error)
	// LostJobs are jobs whose last attempt has lost its lease at the moment, in the order of their accounts, behind after.
	LostJobs(ctx context.Context, at time.Time, after JobRef, limit int) ([]JobRef, error)
	// Payloads are those of the jobs, in their order; the empty text where a job has ended. A payload never changes.
	Payloads(ctx context.Context, jobs []JobRef) ([]string, error)
	// Queues are all queues with claimable jobs at the moment, in the order of projects and names.
	Queues(ctx context.Context, at time.Time) ([]Queue, error)
}

// JobQuery asks for claimable jobs of one queue of one project.
type JobQuery struct {
	Project, Queue string
	At             time.Time
	After          JobRef // continue behind this one; zero: from the oldest
	Limit          int
}

// JobRef names a job.
type JobRef struct {
	Account   holdfast.AccountID
	ID        holdfast.ID // the reservation's
	Project   string
	CreatedAt time.Time
}

// Queue is a queue that is not empty.
type Queue struct {
	Project, Name string
	Waiting       int64     // claimable jobs, those of lost workers included
	Oldest        time.Time // when the oldest of them was made
}
