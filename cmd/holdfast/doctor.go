package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

type doctorCommand struct {
	databaseFlags
	QueueWait time.Duration `default:"5m" help:"How long the oldest job of a queue may wait."`
}

// What is longer than these is a trouble.
const (
	longUnpublished = time.Minute     // the relay looks every second
	longOverdue     = time.Minute     // the sweeper looks every five
	longLost        = time.Minute     // it ends lost jobs too
	soon            = 5 * time.Minute // before they expire, whoever works on them should know
)

// Run looks at everything, prints a line for each check, and ends with exit 1 where something needs doing.
func (c doctorCommand) Run(ctx context.Context, t *terminal) error {
	if c.QueueWait <= 0 {
		return fmt.Errorf("--queue-wait: use a length of time, for example 5m")
	}
	db, err := c.open(ctx, reading)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	findings, err := c.examine(ctx, db, time.Now().UTC())
	if err != nil {
		return err
	}
	troubles := 0
	for _, f := range findings {
		line := fmt.Sprintf("ok   %s: %s", f.Check, f.Found)
		if f.Do != "" {
			troubles++
			line = fmt.Sprintf("DO   %s: %s\n     → %s", f.Check, f.Found, f.Do)
		}
		if _, err := fmt.Fprintln(t.out, line); err != nil {
			return err
		}
	}
	if troubles == 0 {
		_, err := fmt.Fprintln(t.out, "doctor: nothing needs doing")
		return err
	}
	if _, err := fmt.Fprintf(t.out, "doctor: %d of %d checks need doing\n", troubles, len(findings)); err != nil {
		return err
	}
	return errDifferent
}

// examine asks one thing after the other. Each is a look of its own, so that none waits for another.
func (c doctorCommand) examine(ctx context.Context, db database, now time.Time) (findings []store.Finding, err error) {
	for _, check := range []func(context.Context, database, time.Time) ([]store.Finding, error){
		doctorServer, doctorClock, doctorReservations, c.queues, doctorEvents, doctorAccounts,
	} {
		found, err := check(ctx, db, now)
		if err != nil {
			return nil, err
		}
		findings = append(findings, found...)
	}
	return findings, nil
}

func doctorServer(ctx context.Context, db database, _ time.Time) ([]store.Finding, error) {
	if doctored, ok := db.(store.Doctored); ok {
		return doctored.Diagnose(ctx)
	}
	return nil, nil
}

func doctorClock(ctx context.Context, db database, now time.Time) ([]store.Finding, error) {
	const setIt = "set the clocks of all servers right (NTP): with one ahead, accounts stand still for as long"
	var findings []store.Finding
	add := func(check, found string, difference time.Duration) {
		f := store.Finding{Check: check, Found: found}
		if difference >= holdfast.WarnSkew {
			f.Do = setIt
		}
		findings = append(findings, f)
	}
	if remote, ok := db.(interface {
		Skew(ctx context.Context) (time.Duration, error)
	}); ok {
		skew, err := remote.Skew(ctx)
		if err != nil {
			return nil, err
		}
		add("clock", fmt.Sprintf("this machine's and the database's are %s apart", skew.Abs().Round(time.Millisecond)), skew.Abs())
	}
	last, err := db.LastDecision(ctx)
	if err != nil {
		return nil, err
	}
	if last.IsZero() {
		return findings, nil
	}
	ahead := last.Sub(now).Round(time.Second)
	if ahead <= 0 {
		add("last decision", last.Format(time.RFC3339), 0)
	} else {
		add("last decision", fmt.Sprintf("%s, which lies %s ahead of this machine's clock", last.Format(time.RFC3339), ahead), ahead)
	}
	return findings, nil
}

// doctorReservations: the first to expire tells of all, since the sweeper ends them in that order.
func doctorReservations(ctx context.Context, db database, now time.Time) ([]store.Finding, error) {
	live, first, err := db.LiveWork(ctx)
	if err != nil {
		return nil, err
	}
	f := store.Finding{Check: "reservations", Found: fmt.Sprintf("%d live", live)}
	left := first.Sub(now).Round(time.Second)
	switch {
	case live == 0:
	case left < -longOverdue:
		f.Found += fmt.Sprintf(", the oldest overdue for %s", -left)
		f.Do = "nobody sweeps: start holdfast serve, or look for quarantined accounts and for `sweeping was interrupted` in its log"
	case left <= soon:
		f.Found += fmt.Sprintf(", the first expires in %s", max(0, left))
	default:
		f.Found += fmt.Sprintf(", the first expires at %s", first.UTC().Format(time.RFC3339))
	}
	return []store.Finding{f}, nil
}

func (c doctorCommand) queues(ctx context.Context, db database, now time.Time) ([]store.Finding, error) {
	jobs, ok := db.(store.Jobs)
	if !ok {
		return nil, nil
	}
	queues, err := jobs.Queues(ctx, now)
	if err != nil {
		return nil, err
	}
	var findings []store.Finding
	for _, q := range queues {
		age := now.Sub(q.Oldest).Round(time.Second)
		f := store.Finding{Check: "queue " + q.Project + "/" + q.Name, Found: fmt.Sprintf("%d jobs wait, the oldest for %s", q.Waiting, age)}
		if age > c.QueueWait {
			f.Do = "start workers that claim from this queue, or more of them; jobs that wait beyond their ttl expire"
		}
		findings = append(findings, f)
	}
	if len(queues) == 0 {
		findings = append(findings, store.Finding{Check: "queues", Found: "no job waits"})
	}
	lost, err := jobs.LostJobs(ctx, now.Add(-longLost), store.JobRef{}, holdfast.MaxScan)
	if err != nil {
		return nil, err
	}
	if len(lost) > 0 {
		findings = append(findings, store.Finding{
			Check: "lost jobs", Found: fmt.Sprintf("%d lost their last worker over a minute ago and still hold what they reserved", len(lost)),
			Do: "nobody sweeps: start holdfast serve",
		})
	}
	return findings, nil
}

func doctorEvents(ctx context.Context, db database, now time.Time) ([]store.Finding, error) {
	waiting, oldest, err := db.Unpublished(ctx)
	if err != nil {
		return nil, err
	}
	events := store.Finding{Check: "events", Found: fmt.Sprintf("%d wait to be published", waiting)}
	if waiting > 0 {
		age := now.Sub(oldest).Round(time.Second)
		events.Found += fmt.Sprintf(", the oldest for %s", max(0, age))
		if age > longUnpublished {
			events.Do = "nobody publishes: start holdfast serve, or look into its log"
		}
	}
	findings := []store.Finding{events}
	endpoints, err := db.Endpoints(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, e := range endpoints {
		dead, err := db.Deliveries(ctx, e.ID, store.DeliveryDead, 0, holdfast.MaxPage)
		if err != nil {
			return nil, err
		}
		f := store.Finding{Check: "endpoint " + e.Project + "/" + e.ID, Found: "no dead deliveries"}
		if len(dead) > 0 {
			f.Found = fmt.Sprintf("%d dead deliveries", len(dead))
			if len(dead) == holdfast.MaxPage {
				f.Found = fmt.Sprintf("at least %d dead deliveries", len(dead))
			}
			f.Do = "make the endpoint answer, then: holdfast endpoint replay --dead --project " + e.Project + " " + e.ID
		}
		findings = append(findings, f)
	}
	return findings, nil
}

// doctorAccounts looks at every account as a decision would: what fails here is out of service. It reads no history; that is
// what verify is for.
func doctorAccounts(ctx context.Context, db database, _ time.Time) ([]store.Finding, error) {
	accounts := 0
	var broken []string
	err := db.Dump(ctx, func(r store.Record) error {
		accounts++
		state := &holdfast.State{Account: r.Account, Grants: r.Grants}
		for reservation, err := range r.Reservations {
			if err != nil {
				return err
			}
			if reservation.Live() {
				state.Reservations = append(state.Reservations, reservation)
			}
		}
		if err := state.Check(); err != nil {
			broken = append(broken, fmt.Sprintf("%s/%s (%v)", r.Account.Project, r.Account.Name, err))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	f := store.Finding{Check: "accounts", Found: fmt.Sprintf("%d, all as they should be", accounts)}
	if n := len(broken); n > 0 {
		f.Found = fmt.Sprintf("%d of %d break a rule and are out of service: %s", n, accounts, strings.Join(broken[:min(n, 5)], "; "))
		f.Do = "run holdfast verify, which looks at their whole history; restore what was changed by hand, and report it"
	}
	return []store.Finding{f}, nil
}
