package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Jobs = (*DB)(nil)

var errNoJob = errors.New("a changed job is not stored")

// saveJobs keeps the jobs of live reservations: made with their reservation, moved with its lease, removed with its end.
// Where a batch has no jobs, it sends nothing.
func saveJobs(p *pipeline, changes []holdfast.Changes) error {
	var made, moved struct {
		accounts, ids   list[uuid]
		claimable       list[moment]
		last            list[bool]
		created         list[moment]
		projects        list[string]
		queues, payload list[string]
	}
	var ended rowsOf
	for i := range changes {
		account := uuid(changes[i].Account.ID)
		for _, r := range changes[i].NewReservations {
			if r.Job == nil || !r.Live() {
				continue
			}
			made.accounts, made.ids = append(made.accounts, account), append(made.ids, uuid(r.ID))
			made.claimable, made.last = append(made.claimable, moment(r.ClaimableAt())), append(made.last, r.LastAttempt())
			made.created, made.projects = append(made.created, moment(r.CreatedAt)), append(made.projects, changes[i].Account.Project)
			made.queues, made.payload = append(made.queues, r.Job.Queue), append(made.payload, r.Job.Payload)
		}
		for _, r := range changes[i].Reservations {
			switch {
			case r.Job == nil:
			case !r.Live():
				ended.add(changes[i].Account.ID, r.ID)
			default:
				moved.accounts, moved.ids = append(moved.accounts, account), append(moved.ids, uuid(r.ID))
				moved.claimable, moved.last = append(moved.claimable, moment(r.ClaimableAt())), append(moved.last, r.LastAttempt())
			}
		}
	}
	if len(made.ids) > 0 {
		p.then(insertJobs, made.accounts, made.ids, made.created, made.claimable, made.last, made.projects, made.queues)
		p.then(insertPayloads, made.accounts, made.ids, made.payload)
	}
	if len(moved.ids) > 0 {
		p.then(updateJobs, moved.accounts, moved.ids, moved.claimable, moved.last, int64(len(moved.ids))).
			meaning(divisionByZero, store.Rejected, errNoJob)
	}
	if len(ended.ids) > 0 {
		p.then(deleteJobs, ended.accounts, ended.ids)
		p.then(deletePayloads, ended.accounts, ended.ids)
	}
	return nil
}

var insertJobs = `INSERT INTO holdfast.jobs (account_id, reservation_id, created_at, claimable_at, last_attempt, project, queue)
	SELECT account_id, reservation_id, created_at, claimable_at, last_attempt, project, queue
	FROM ` + given(`account_id uuid, reservation_id uuid, created_at timestamptz, claimable_at timestamptz, last_attempt boolean,
		project text, queue text`) + ` w`

var insertPayloads = `INSERT INTO holdfast.payloads (account_id, reservation_id, payload)
	SELECT account_id, reservation_id, payload FROM ` + given(`account_id uuid, reservation_id uuid, payload text`) + ` w`

// By primary key, as in updateAccounts.
var updateJobs = `WITH changed AS (
		UPDATE holdfast.jobs j SET claimable_at = w.claimable_at, last_attempt = w.last_attempt
		FROM ` + given(`account_id uuid, reservation_id uuid, claimable_at timestamptz, last_attempt boolean`) + ` w
		CROSS JOIN LATERAL (
			SELECT stored.ctid AS place FROM holdfast.jobs stored
			WHERE stored.account_id = w.account_id AND stored.reservation_id = w.reservation_id OFFSET 0
		) found
		WHERE j.ctid = found.place
		RETURNING 1
	)
	SELECT 1 / (count(*) = $5::bigint)::integer FROM changed`

// By primary key, as in updateAccounts. A reservation that has ended may change again (a refund), when its job is long gone.
var (
	deleteJobs     = deleteOf("jobs")
	deletePayloads = deleteOf("payloads")
)

func deleteOf(table string) string {
	return `DELETE FROM holdfast.` + table + ` j
	USING ` + given(`account_id uuid, reservation_id uuid`) + ` w
	CROSS JOIN LATERAL (
		SELECT stored.ctid AS place FROM holdfast.` + table + ` stored
		WHERE stored.account_id = w.account_id AND stored.reservation_id = w.reservation_id OFFSET 0
	) found
	WHERE j.ctid = found.place`
}

// ClaimableJobs takes no lock.
func (db *DB) ClaimableJobs(ctx context.Context, q store.JobQuery) (jobs []store.JobRef, err error) {
	const op = "find claimable jobs"
	after := q.After.CreatedAt
	if after.IsZero() {
		after = time.Unix(0, 0)
	}
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		job := store.JobRef{Project: q.Project}
		if err := scan(rows, (*uuid)(&job.Account), (*uuid)(&job.ID), (*moment)(&job.CreatedAt)); err != nil {
			return err
		}
		jobs = append(jobs, job)
		return nil
	}, selectClaimable, uuid{}, q.Queue, q.Project, moment(q.At), moment(after), uuid(q.After.ID), int64(q.Limit))
	if err := db.snapshot(ctx, op, p); err != nil {
		return nil, err
	}
	return jobs, nil
}

// By primary key, from end to end; the oldest are kept while it is walked.
const selectClaimable = `SELECT account_id, reservation_id, created_at FROM holdfast.jobs
	WHERE account_id > $1::uuid AND queue = $2::text AND project = $3::text AND claimable_at <= $4::timestamptz
		AND (created_at, reservation_id) > ($5::timestamptz, $6::uuid)
	ORDER BY created_at, reservation_id LIMIT $7::bigint`

// LostJobs come in the order of accounts.
func (db *DB) LostJobs(ctx context.Context, at time.Time, after store.JobRef, limit int) (jobs []store.JobRef, err error) {
	const op = "find lost jobs"
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		var job store.JobRef
		if err := scan(rows, (*uuid)(&job.Account), (*uuid)(&job.ID), &job.Project, (*moment)(&job.CreatedAt)); err != nil {
			return err
		}
		jobs = append(jobs, job)
		return nil
	}, selectLost, uuid(after.Account), uuid(after.ID), moment(at), int64(limit))
	if err := db.snapshot(ctx, op, p); err != nil {
		return nil, err
	}
	return jobs, nil
}

// By primary key, from the account on, in its order.
const selectLost = `SELECT account_id, reservation_id, project, created_at FROM holdfast.jobs
	WHERE account_id >= $1::uuid AND (account_id, reservation_id) > ($1::uuid, $2::uuid) AND claimable_at <= $3::timestamptz AND last_attempt
	ORDER BY account_id, reservation_id LIMIT $4::bigint`

// Payloads asks for all in one round trip.
func (db *DB) Payloads(ctx context.Context, jobs []store.JobRef) ([]string, error) {
	const op = "read payloads"
	var wanted rowsOf
	for _, job := range jobs {
		wanted.add(job.Account, job.ID)
	}
	found := map[row]string{}
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		var of row
		var payload string
		if err := scan(rows, (*uuid)(&of.account), (*uuid)(&of.id), &payload); err != nil {
			return err
		}
		found[of] = payload
		return nil
	}, selectPayloads, wanted.accounts, wanted.ids)
	if err := db.snapshot(ctx, op, p); err != nil {
		return nil, err
	}
	payloads := make([]string, len(jobs))
	for i, job := range jobs {
		payloads[i] = found[row{job.Account, job.ID}]
	}
	return payloads, nil
}

// By primary key.
var selectPayloads = `SELECT j.account_id, j.reservation_id, j.payload
	FROM ` + given(`account_id uuid, reservation_id uuid`) + ` wanted
	CROSS JOIN LATERAL (
		SELECT named.* FROM holdfast.payloads named
		WHERE named.account_id = wanted.account_id AND named.reservation_id = wanted.reservation_id OFFSET 0
	) j`

// Queues counts.
func (db *DB) Queues(ctx context.Context, at time.Time) (queues []store.Queue, err error) {
	const op = "count queues"
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		var q store.Queue
		if err := scan(rows, &q.Project, &q.Name, &q.Waiting, (*moment)(&q.Oldest)); err != nil {
			return err
		}
		queues = append(queues, q)
		return nil
	}, selectQueues, uuid{}, moment(at))
	if err := db.snapshot(ctx, op, p); err != nil {
		return nil, err
	}
	return queues, nil
}

// By primary key, from end to end. "C" is the order of bytes, whatever the database's own order is.
const selectQueues = `SELECT project, queue, count(*), min(created_at) FROM holdfast.jobs
	WHERE account_id > $1::uuid AND claimable_at <= $2::timestamptz
	GROUP BY project, queue ORDER BY project COLLATE "C", queue COLLATE "C"`
