package sqlite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Jobs = (*DB)(nil)

// saveJobs keeps the jobs of live reservations: made with their reservation, moved with its lease, removed with its end.
func saveJobs(c *connection, op string, changes *holdfast.Changes) error {
	account := changes.Account.ID
	for _, r := range changes.NewReservations {
		if r.Job == nil || !r.Live() {
			continue
		}
		_, err1 := c.exec(uninterrupted, insertJob, account[:], r.ID[:], at(r.CreatedAt), timeOrNone(r.ClaimableAt()), flag(r.LastAttempt()),
			changes.Account.Project, r.Job.Queue)
		_, err2 := c.exec(uninterrupted, insertPayload, account[:], r.ID[:], r.Job.Payload)
		if err := errors.Join(err1, err2); err != nil {
			return err
		}
	}
	for _, r := range changes.Reservations {
		if r.Job == nil {
			continue
		}
		if !r.Live() {
			_, err1 := c.exec(uninterrupted, deleteJob, account[:], r.ID[:])
			_, err2 := c.exec(uninterrupted, deletePayload, account[:], r.ID[:])
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			continue
		}
		changed, err := c.exec(uninterrupted, updateJob, timeOrNone(r.ClaimableAt()), flag(r.LastAttempt()), account[:], r.ID[:])
		if err != nil {
			return err
		}
		if changed != 1 {
			return misuse(op, fmt.Sprintf("the job of reservation %s is not stored", r.ID))
		}
	}
	return nil
}

// By primary key. Of a job that is there only what its lease changes is written. A reservation that has ended may change
// again (a refund), when its job is long gone.
const (
	insertJob     = `INSERT INTO jobs (account_id, reservation_id, created_at, claimable_at, last_attempt, project, queue) VALUES (?, ?, ?, ?, ?, ?, ?)`
	insertPayload = `INSERT INTO payloads (account_id, reservation_id, payload) VALUES (?, ?, ?)`
	updateJob     = `UPDATE jobs SET claimable_at = ?, last_attempt = ? WHERE account_id = ? AND reservation_id = ?`
	deleteJob     = `DELETE FROM jobs WHERE account_id = ? AND reservation_id = ?`
	deletePayload = `DELETE FROM payloads WHERE account_id = ? AND reservation_id = ?`
)

// ClaimableJobs are read on a connection that never waits for the writer.
func (db *DB) ClaimableJobs(ctx context.Context, q store.JobQuery) (jobs []store.JobRef, err error) {
	err = db.snapshot(ctx, "find claimable jobs", func(c *connection) error {
		return c.query(ctx, selectClaimable, func(r *row) error {
			jobs = append(jobs, store.JobRef{Account: r.account(), ID: r.id(), Project: q.Project, CreatedAt: r.at()})
			return nil
		}, q.Queue, q.Project, q.At.UnixMicro(), q.After.CreatedAt.UnixMicro(), q.After.ID[:], int64(q.Limit))
	})
	return jobs, err
}

// By primary key, from end to end; the oldest are kept while it is walked.
const selectClaimable = `SELECT account_id, reservation_id, created_at FROM jobs
	WHERE account_id > x'' AND queue = ? AND project = ? AND claimable_at <= ? AND (created_at, reservation_id) > (?, ?)
	ORDER BY created_at, reservation_id LIMIT ?`

// LostJobs come in the order of accounts.
func (db *DB) LostJobs(ctx context.Context, at time.Time, after store.JobRef, limit int) (jobs []store.JobRef, err error) {
	err = db.snapshot(ctx, "find lost jobs", func(c *connection) error {
		return c.query(ctx, selectLost, func(r *row) error {
			jobs = append(jobs, store.JobRef{Account: r.account(), ID: r.id(), Project: r.text(), CreatedAt: r.at()})
			return nil
		}, after.Account[:], after.Account[:], after.ID[:], at.UnixMicro(), int64(limit))
	})
	return jobs, err
}

// By primary key, from the account on, in its order.
const selectLost = `SELECT account_id, reservation_id, project, created_at FROM jobs
	WHERE account_id >= ? AND (account_id, reservation_id) > (?, ?) AND claimable_at <= ? AND last_attempt = 1
	ORDER BY account_id, reservation_id LIMIT ?`

// Payloads asks for each: there are few.
func (db *DB) Payloads(ctx context.Context, jobs []store.JobRef) ([]string, error) {
	payloads := make([]string, len(jobs))
	err := db.snapshot(ctx, "read payloads", func(c *connection) error {
		for i, job := range jobs {
			read := func(r *row) error {
				payloads[i] = r.text()
				return nil
			}
			if err := c.query(ctx, selectPayload, read, job.Account[:], job.ID[:]); err != nil {
				return err
			}
		}
		return nil
	})
	return payloads, err
}

// By primary key.
const selectPayload = `SELECT payload FROM payloads WHERE account_id = ? AND reservation_id = ?`

// Queues counts.
func (db *DB) Queues(ctx context.Context, at time.Time) (queues []store.Queue, err error) {
	err = db.snapshot(ctx, "count queues", func(c *connection) error {
		return c.query(ctx, selectQueues, func(r *row) error {
			queues = append(queues, store.Queue{Project: r.text(), Name: r.text(), Waiting: r.number(), Oldest: r.at()})
			return nil
		}, at.UnixMicro())
	})
	return queues, err
}

// By primary key, from end to end.
const selectQueues = `SELECT project, queue, count(*), min(created_at) FROM jobs
	WHERE account_id > x'' AND claimable_at <= ? GROUP BY project, queue ORDER BY project, queue`
