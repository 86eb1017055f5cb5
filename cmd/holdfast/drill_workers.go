package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/store"
)

// The scenarios of this file are about what has to go on after a process is gone: work that waits in a queue, and events
// that wait to be told.

// drillQueue is where jobs of drillFeature wait.
const drillQueue = drillFeature + ".standard"

// queue reserves one unit for a job that waits in the database's own queue.
func (a account) queue(ctx context.Context, key string, attempts int) (*holdfast.Reservation, error) {
	outcome, err := a.done(ctx, key, holdfast.Reserve{Feature: drillFeature, Job: &holdfast.JobRequest{Payload: `"` + key + `"`, MaxAttempts: attempts}})
	return outcome.Reservation, err
}

// claim asks for a job, and is nil where there is none.
func (a account) claim(ctx context.Context, e *engine.Engine, worker string) (*engine.Claimed, error) {
	jobs, err := e.Claim(ctx, engine.ClaimRequest{Project: a.project, Actor: "drill", Claim: holdfast.Claim{Queue: drillQueue, Worker: worker}})
	if err != nil {
		return nil, fmt.Errorf("claim a job for %s: %w", worker, err)
	}
	if len(jobs) == 0 {
		return nil, nil
	}
	return &jobs[0], nil
}

// lost claims the job, in a process that then dies with it: all that it knew was the lease.
func (a account) lost(ctx context.Context, r *holdfast.Reservation) (job *engine.Claimed, err error) {
	err = a.onEngine(ctx, func(_ database, e *engine.Engine) error {
		if job, err = a.claim(ctx, e, "killed"); err != nil {
			return err
		}
		return a.gets(job, r)
	})
	return job, err
}

// gets is nil where that job was claimed.
func (a account) gets(job *engine.Claimed, r *holdfast.Reservation) error {
	if job == nil {
		return fmt.Errorf("expected the job of %s under key %q, got none", a.name, r.Key)
	}
	got := job.Outcome.Reservation
	return errors.Join(
		same("reservation of the job", got.ID, r.ID),
		same("what is to be done", job.Payload, `"`+r.Key+`"`),
		same("price of the job", got.Reserved, r.Reserved),
		same("age of the job", got.CreatedAt.UnixMicro(), r.CreatedAt.UnixMicro()),
	)
}

// killedWorker: a worker is killed with a job of the queue in its hands. Nobody else gets the job while its lease lives; then
// another does, as the same reservation, and it is charged once. A job that kills every worker is given away as often as it
// may be, and ends uncharged.
func killedWorker(ctx context.Context, d *drill) (string, error) {
	a := d.fresh("killed-worker")
	r, err := a.queue(ctx, "press", 3)
	if err != nil {
		return "", err
	}
	killed, err := a.lost(ctx, r)
	if err != nil {
		return "", err
	}
	early, err := a.claim(ctx, d.engines[1], "too early")
	if err != nil {
		return "", err
	}
	if err := same("the job is given away while its lease lives", early != nil, false); err != nil {
		return "", err
	}
	d.clock.moveTo(killed.Outcome.Lease.ExpiresAt)
	second, err := a.claim(ctx, d.engines[1], "second")
	if err == nil {
		err = a.gets(second, r)
	}
	if err != nil {
		return "", fmt.Errorf("after the lease: %w", err)
	}
	if err := errors.Join(
		same("both workers have one token", second.Outcome.Lease.Token == killed.Outcome.Lease.Token, false),
		same("crashes", second.Outcome.Reservation.Job.Crashes, 1),
		a.has(ctx, "while the second worker has it", drillGiven-1, 1, 1),
	); err != nil {
		return "", err
	}
	old := killed.Outcome.Lease.Token
	for _, do := range []holdfast.Operation{
		holdfast.Heartbeat{ReservationID: r.ID, LeaseToken: old},
		holdfast.Commit{ReservationID: r.ID, LeaseToken: old},
		holdfast.Release{ReservationID: r.ID, LeaseToken: old, Retry: true},
	} {
		if _, err := a.refused(ctx, "", do, holdfast.StaleLease); err != nil {
			return "", err
		}
	}
	for telling := range 2 {
		committed, err := a.done(ctx, "", holdfast.Commit{ReservationID: r.ID, LeaseToken: second.Outcome.Lease.Token})
		if err != nil {
			return "", err
		}
		if err := errors.Join(
			same("charged", committed.Reservation.Used, 1),
			same(fmt.Sprintf("telling %d changed something", telling+1), committed.Changed, telling == 0),
			a.has(ctx, "after the commit", drillGiven-1, 0, 0),
		); err != nil {
			return "", err
		}
	}
	return "2 attempts: charged 1; lost twice: charged 0", a.losesEveryWorker(ctx)
}

// losesEveryWorker is about a job that may be tried twice, and kills both who try.
func (a account) losesEveryWorker(ctx context.Context) error {
	r, err := a.queue(ctx, "poison", 2)
	if err != nil {
		return err
	}
	for range 2 {
		killed, err := a.lost(ctx, r)
		if err != nil {
			return err
		}
		a.clock.moveTo(killed.Outcome.Lease.ExpiresAt)
	}
	if err := a.sweep(ctx); err != nil {
		return err
	}
	ended, err := a.reservation(ctx, r.ID)
	if err != nil {
		return err
	}
	left, err := a.claim(ctx, a.engines[0], "third")
	if err != nil {
		return err
	}
	return errors.Join(
		same("state after the last attempt was lost", ended.State, holdfast.Released),
		same("its cause", ended.Cause, holdfast.CauseCrashed),
		same("crashes", ended.Job.Crashes, 2),
		same("the job is given away once more", left != nil, false),
		a.has(ctx, "after the last attempt was lost", drillGiven-1, 0, 0),
	)
}

// killedBeforePublication: a process has committed, and dies before anybody was told. Whoever relays next tells everything
// that the ledger says, in its order and once, and whoever relays after that tells nothing more.
func killedBeforePublication(ctx context.Context, d *drill) (string, error) {
	a := d.fresh("publication")
	press := holdfast.Reserve{Feature: drillFeature, Quantity: 2}
	var r *holdfast.Reservation
	err := d.onEngine(ctx, func(_ database, e *engine.Engine) error { // it has no relay: it does not come to that
		reserved, err := a.on(ctx, e, "press", press)
		if err == nil {
			err = same("what came of the press", reasonOf(reserved), "done")
		}
		if err != nil {
			return err
		}
		r = reserved.Reservation
		committed, err := a.on(ctx, e, "", holdfast.Commit{ReservationID: r.ID})
		if err != nil {
			return err
		}
		return same("what came of the commit", reasonOf(committed), "done")
	})
	if err != nil {
		return "", err
	}
	var told []string
	for telling := range 2 {
		err := d.onEngine(ctx, func(db database, e *engine.Engine) error {
			again, err := a.on(ctx, e, "press", press)
			if err != nil {
				return err
			}
			if err := same("the same press again is replayed", again.Replayed, true); err != nil {
				return err
			}
			return a.relay(ctx, db)
		})
		if err != nil {
			return "", err
		}
		events, err := a.published(ctx, r)
		if err != nil {
			return "", err
		}
		if telling == 1 && !slices.Equal(events, told) {
			return "", fmt.Errorf("events after another relay: expected %s, got %s", strings.Join(told, " "), strings.Join(events, " "))
		}
		told = events
	}
	return fmt.Sprintf("%d entries: %d events, in order", len(told), len(told)), a.has(ctx, "in the end", drillGiven-2, 0, 0)
}

// published are the account's events, which must be one for each entry, in the order of the ledger.
func (a account) published(ctx context.Context, r *holdfast.Reservation) (ids []string, err error) {
	state, err := a.state(ctx)
	if err != nil {
		return nil, err
	}
	desk := outbox.NewDesk(a.store, outbox.Guard{})
	commits := 0
	for cursor := int64(0); ; {
		page, next, err := desk.Events(ctx, a.project, cursor, holdfast.MaxPage)
		if err != nil {
			return nil, fmt.Errorf("read the events: %w", err)
		}
		if len(page) == 0 {
			break
		}
		cursor = next
		for _, event := range page {
			if event.Account != a.name {
				continue
			}
			if event.Data.Entry == nil {
				return nil, fmt.Errorf("event %d of %s: expected it to tell of an entry, got %s", len(ids)+1, a.name, event.Type)
			}
			if err := same("entry that event "+fmt.Sprint(len(ids)+1)+" tells of", event.Data.Entry.No, int64(len(ids)+1)); err != nil {
				return nil, err
			}
			if event.Data.Entry.Kind == holdfast.EntryCommit {
				commits++
				err = same("reservation of the commit", *event.Data.Reservation, holdfast.ReservationRef.Encode(a.id(), r.ID))
			}
			if err != nil {
				return nil, err
			}
			ids = append(ids, event.ID)
		}
	}
	return ids, errors.Join(same("events of "+a.name, len(ids), int(state.Account.LastEntry)), same("events of the commit", commits, 1))
}

const (
	// relayEvery is how often the drill's own relay, and who waits for it, looks.
	relayEvery = 20 * time.Millisecond
	// relayPatience is how long the drill waits for events to be published: much longer than it takes until the lease of a
	// relay that was killed has passed.
	relayPatience = 30 * time.Second
)

// relay has the account's events published: by a relay of its own or, where a server runs one on this database, by that.
func (a account) relay(ctx context.Context, db database) error {
	relaying, stop := context.WithCancel(ctx)
	relayed := make(chan error, 1)
	go func() {
		relayed <- outbox.New(eventsOf{db, a.id()}, outbox.Options{Every: relayEvery, Logger: a.log}).Run(relaying)
	}()
	err := a.awaitPublication(ctx, db)
	stop()
	return errors.Join(err, <-relayed)
}

func (a account) awaitPublication(ctx context.Context, db database) error {
	patience := time.NewTimer(relayPatience)
	defer patience.Stop()
	again := time.NewTicker(relayEvery)
	defer again.Stop()
	for {
		waiting, err := eventsOf{db, a.id()}.Pending(ctx, holdfast.AccountID{}, 1, 1)
		if err != nil {
			return fmt.Errorf("look for events of %s: %w", a.name, err)
		}
		if len(waiting) == 0 {
			return nil
		}
		select {
		case <-again.C:
		case <-patience.C:
			return fmt.Errorf("expected the events of %s to be published, they still wait after %s", a.name, relayPatience)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// eventsOf is a database for a relay that is to publish what one account has to tell, and nothing else: it tells nobody, and
// tidies up nothing.
type eventsOf struct {
	database
	account holdfast.AccountID
}

// Pending is what the account has to tell.
func (s eventsOf) Pending(ctx context.Context, after holdfast.AccountID, _, events int) ([]store.Pending, error) {
	just := s.account // the greatest id below it
	for i := len(just) - 1; i >= 0; i-- {
		just[i]--
		if just[i] != 0xff {
			break
		}
	}
	if after == s.account {
		return nil, nil
	}
	found, err := s.database.Pending(ctx, just, 1, events)
	return slices.DeleteFunc(found, func(p store.Pending) bool { return p.Account != s.account }), err
}

// Endpoints has none.
func (s eventsOf) Endpoints(context.Context, string) ([]store.Endpoint, error) { return nil, nil }

// Prune removes nothing.
func (s eventsOf) Prune(context.Context, time.Time, time.Time, int) (int64, error) { return 0, nil }
