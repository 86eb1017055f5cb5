package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/outbox"
)

type eventCommand struct {
	List eventListCommand `cmd:"" help:"Print a project's published events in their order, a line of JSON each."`
}

type eventListCommand struct {
	projectFlags
	After int64 `placeholder:"POSITION" help:"Only those behind this position."`
	Limit int   `default:"50" help:"How many at most, 1 to 200."`
}

func (c eventListCommand) Run(ctx context.Context, t *terminal) error {
	if c.Limit < 1 || c.Limit > holdfast.MaxPage {
		return fmt.Errorf("--limit: use 1 to %d", holdfast.MaxPage)
	}
	return c.desk(ctx, reading, outbox.Guard{}, func(d *outbox.Desk) error {
		events, _, err := d.Events(ctx, c.Project, c.After, c.Limit)
		if err != nil {
			return err
		}
		lines := json.NewEncoder(t.out)
		lines.SetEscapeHTML(false)
		for i := range events {
			if err := lines.Encode(&events[i]); err != nil {
				return err
			}
		}
		return nil
	})
}
