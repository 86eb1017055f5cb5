package river

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store/postgres"
)

// Queue inserts jobs together with their reservations. Both fields are needed. The engine's database must be the one that
// transactions are on, and River's tables must be there too.
type Queue struct {
	Engine *engine.Engine
	Client *riverqueue.Client[pgx.Tx]
}

// The errors of Insert, besides those of River and *engine.Error. After each of them the transaction is to be rolled back.
var (
	// ErrDuplicate: River has skipped the job because of its unique options, so that the reservation would have no work.
	ErrDuplicate = errors.New("river skipped the job as a duplicate: roll back, and reserve under the key of the first one")
	// ErrExpiresBefore: the job is scheduled for a time at which the reservation has expired.
	ErrExpiresBefore = errors.New("the reservation expires before the job is to begin: roll back, and reserve with a longer ttl")
)

// metadataKey is where a job names its reservation.
const metadataKey = "holdfast_reservation"

// Insert reserves, and inserts the job that the reservation pays for, in tx: both are there when the caller commits, or
// neither. Take it last and commit at once: the account is locked until then.
//
// Of the request Project, Account, Key, Reserve and Actor are looked at. Where the outcome is a refusal, a dry run, or
// the replay of an earlier answer, whose job was inserted with it, nothing is inserted and the job is nil. The caller's
// transaction goes on in any case but an error, which means that it is to be rolled back and begun anew.
//
// A time to live must cover the wait for a free worker; what River takes between attempts is added while it lasts.
func (q *Queue) Insert(ctx context.Context, tx pgx.Tx, request engine.Request, args riverqueue.JobArgs, options *riverqueue.InsertOpts) (holdfast.Outcome, *rivertype.JobRow, error) {
	if request.Reserve.Job != nil {
		return holdfast.Outcome{}, nil, errors.New("river carries the work: leave the job of the reserve out")
	}
	if request.Actor == "" {
		request.Actor = actor
	}
	outcome, err := q.Engine.Join(postgres.Tx(tx)).Submit(ctx, holdfast.Command{
		Project: request.Project, Account: request.Account, Key: request.Key, Actor: request.Actor, Do: request.Reserve,
	})
	if err != nil || outcome.Refused() || outcome.DryRun || outcome.Replayed {
		return outcome, nil, err
	}
	var with riverqueue.InsertOpts
	if options != nil {
		with = *options
	}
	if !with.ScheduledAt.IsZero() && !with.ScheduledAt.Before(outcome.Reservation.ExpiresAt) {
		return outcome, nil, ErrExpiresBefore
	}
	with.Metadata, err = named(with.Metadata, holdfast.ReservationRef.Encode(outcome.Owner.ID, outcome.Reservation.ID))
	if err != nil {
		return outcome, nil, err
	}
	inserted, err := q.Client.InsertTx(ctx, tx, args, &with)
	if err != nil {
		return outcome, nil, fmt.Errorf("insert a river job: %w", err)
	}
	if inserted.UniqueSkippedAsDuplicate {
		return outcome, nil, ErrDuplicate
	}
	return outcome, inserted.Job, nil
}

// named adds the reservation to what a caller wants kept with the job.
func named(metadata []byte, reservation string) ([]byte, error) {
	fields := map[string]any{}
	if len(metadata) > 0 {
		if err := json.Unmarshal(metadata, &fields); err != nil {
			return nil, fmt.Errorf("the metadata of a river job: %w", err)
		}
	}
	fields[metadataKey] = reservation
	return json.Marshal(fields)
}

// Reservation is the public id of the reservation that pays for a job; empty: none does.
func Reservation(job *rivertype.JobRow) string {
	var fields map[string]json.RawMessage
	var id string
	if json.Unmarshal(job.Metadata, &fields) != nil || json.Unmarshal(fields[metadataKey], &id) != nil {
		return ""
	}
	return id
}
