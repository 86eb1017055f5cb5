package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/store"
)

type endpointCommand struct {
	Add    endpointAddCommand    `cmd:"" help:"Have a project's events posted to an address. The secret is printed once."`
	List   endpointListCommand   `cmd:"" help:"List a project's endpoints, and what waits or is dead there."`
	Pause  endpointPauseCommand  `cmd:"" help:"Send nothing, and keep the queue."`
	Resume endpointResumeCommand `cmd:"" help:"Send what was queued, and go on."`
	Replay endpointReplayCommand `cmd:"" help:"Deliver again."`
}

// projectFlags name the project; commands about what belongs to one embed them.
type projectFlags struct {
	databaseFlags
	Project string `default:"dev" env:"HOLDFAST_PROJECT" help:"Whose."`
}

// desk opens the database and lets do work at its desk.
func (f projectFlags) desk(ctx context.Context, want access, guard outbox.Guard, do func(*outbox.Desk) error) error {
	if !holdfast.ValidProject(f.Project) {
		return fmt.Errorf("--project: use 1 to %d of a-z 0-9 . _ -", holdfast.MaxProjectBytes)
	}
	db, err := f.open(ctx, want)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	return do(outbox.NewDesk(db, guard))
}

// webhookFlags say where endpoints may be.
type webhookFlags struct {
	WebhookAllow string `env:"HOLDFAST_WEBHOOK_ALLOW" placeholder:"CIDR,…" help:"Networks of your own that endpoints may be in, for example 10.1.0.0/16. Left out: public addresses alone."`
}

func (f webhookFlags) guard() (outbox.Guard, error) {
	allow, err := outbox.ParseAllow(f.WebhookAllow)
	if err != nil {
		return outbox.Guard{}, fmt.Errorf("--webhook-allow: %w", err)
	}
	return outbox.Guard{Allow: allow}, nil
}

type endpointAddCommand struct {
	projectFlags
	webhookFlags
	URL  string   `arg:"" help:"Where to post, https."`
	Type []string `placeholder:"TYPE" help:"What to tell of, for example reservation.commit or payment.*; repeat the flag, or separate by commas. Left out: everything."`
	Note string   `help:"What it is for."`
}

func (c endpointAddCommand) Run(ctx context.Context, t *terminal) error {
	guard, err := c.guard()
	if err != nil {
		return err
	}
	return c.desk(ctx, writing, guard, func(d *outbox.Desk) error {
		e, secret, err := d.Add(ctx, c.Project, outbox.Change{URL: &c.URL, Kinds: &c.Type, Note: &c.Note})
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(t.notes, "endpoint %s of project %s; its secret is not shown again\n", e.ID, c.Project)
		_, err = fmt.Fprintln(t.out, secret)
		return err
	})
}

type endpointListCommand struct{ projectFlags }

func (c endpointListCommand) Run(ctx context.Context, t *terminal) error {
	return c.desk(ctx, reading, outbox.Guard{}, func(d *outbox.Desk) error {
		all, err := d.Endpoints(ctx, c.Project)
		if err != nil {
			return err
		}
		table := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "endpoint\tstate\tpending\tdead\ttypes\taddress")
		for i := range all {
			e := &all[i]
			state := "active"
			if e.Paused {
				state = strings.TrimSpace("paused " + e.PausedReason)
			}
			pending, err1 := countDeliveries(ctx, d, e, store.DeliveryPending)
			dead, err2 := countDeliveries(ctx, d, e, store.DeliveryDead)
			if err := errors.Join(err1, err2); err != nil {
				return err
			}
			types := "all"
			if len(e.Kinds) > 0 {
				types = strings.Join(e.Kinds, ",")
			}
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\n", e.ID, state, pending, dead, types, e.URL)
		}
		return table.Flush()
	})
}

// countDeliveries counts up to a page of them.
func countDeliveries(ctx context.Context, d *outbox.Desk, e *store.Endpoint, state store.DeliveryState) (string, error) {
	found, err := d.Deliveries(ctx, e.Project, e.ID, state, 0, holdfast.MaxPage)
	if len(found) == holdfast.MaxPage {
		return fmt.Sprint(len(found), "+"), err
	}
	return strconv.Itoa(len(found)), err
}

type endpointPauseCommand struct {
	projectFlags
	ID string `arg:"" help:"The endpoint, as add told it."`
}

func (c endpointPauseCommand) Run(ctx context.Context, t *terminal) error {
	return c.pause(ctx, t, c.ID, true)
}

type endpointResumeCommand struct {
	projectFlags
	ID string `arg:"" help:"The endpoint, as add told it."`
}

func (c endpointResumeCommand) Run(ctx context.Context, t *terminal) error {
	return c.pause(ctx, t, c.ID, false)
}

func (f projectFlags) pause(ctx context.Context, t *terminal, id string, paused bool) error {
	return f.desk(ctx, writing, outbox.Guard{}, func(d *outbox.Desk) error {
		e, err := d.Change(ctx, f.Project, id, outbox.Change{Paused: &paused})
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(t.out, "endpoint %s is %s\n", e.ID, map[bool]string{true: "paused; events are queued", false: "active"}[e.Paused])
		return err
	})
}

type endpointReplayCommand struct {
	projectFlags
	ID   string `arg:"" help:"The endpoint, as add told it."`
	From string `placeholder:"EVENT" help:"Everything from this event on: its id, or a position."`
	Dead bool   `help:"What was given up."`
}

func (c endpointReplayCommand) Run(ctx context.Context, t *terminal) error {
	if c.From == "" && !c.Dead {
		return errors.New("say what to deliver again: --from EVENT, or --dead")
	}
	return c.desk(ctx, writing, outbox.Guard{}, func(d *outbox.Desk) error {
		if c.Dead {
			revived, err := d.ReplayDead(ctx, c.Project, c.ID)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(t.out, "%d dead deliveries are queued again\n", revived)
		}
		if c.From == "" {
			return nil
		}
		position, err := strconv.ParseInt(c.From, 10, 64)
		if err != nil || position < 1 {
			if position, err = d.PositionOf(ctx, c.Project, c.From); err != nil {
				return fmt.Errorf("--from: %w", err)
			}
		}
		if err := d.ReplayFrom(ctx, c.Project, c.ID, position); err != nil {
			return err
		}
		_, err = fmt.Fprintf(t.out, "everything from position %d on is delivered again\n", position)
		return err
	})
}
