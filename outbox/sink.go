package outbox

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// Sink takes events somewhere: into a broker, or into your own program.
type Sink interface {
	// Publish takes events of one project, in the order of their positions. It returns nil once they are safe, all of
	// them; after an error the same events come again, and so they do where the process dies before their position is
	// noted. So whoever acts on events keeps the ids of those it has acted on.
	Publish(ctx context.Context, events []Event) error
}

// SinkFunc is a function as a Sink.
type SinkFunc func(ctx context.Context, events []Event) error

// Publish calls the function.
func (f SinkFunc) Publish(ctx context.Context, events []Event) error { return f(ctx, events) }

const (
	sinkChunk   = 100              // events at once
	sinkFor     = 30 * time.Second // a call of Publish
	sinkBackoff = time.Minute      // at most, after errors
)

// feed gives a sink what was published since it last took something, until the lease ends. Sinks do not wait for each
// other; within one, an error holds up its project alone.
func (r *Relay) feed(ctx context.Context, name string, sink Sink) {
	failures, notBefore := map[string]int{}, map[string]time.Time{}
	for ctx.Err() == nil {
		fed, err := r.feedOnce(ctx, name, sink, failures, notBefore)
		if err != nil && ctx.Err() == nil {
			r.options.Logger.Warn("a sink could not be fed and will be tried again", "sink", name, "error", err)
		}
		if fed == 0 {
			r.pause(ctx)
		}
	}
}

func (r *Relay) feedOnce(ctx context.Context, name string, sink Sink, failures map[string]int, notBefore map[string]time.Time) (fed int, err error) {
	last, err := r.store.Positions(ctx)
	if err != nil {
		return 0, err
	}
	cursors, err := r.store.Cursors(ctx, name)
	if err != nil {
		return 0, err
	}
	for project, position := range last {
		if cursors[project] >= position || r.options.Now().Before(notBefore[project]) {
			continue
		}
		n, failed := r.feedProject(ctx, name, sink, project, cursors[project])
		fed += n
		if failed == nil {
			failures[project] = 0
			continue
		}
		err = failed
		failures[project]++
		notBefore[project] = r.options.Now().Add(r.jitter(backoff(failures[project], sinkBackoff)))
	}
	return fed, err
}

func (r *Relay) feedProject(ctx context.Context, name string, sink Sink, project string, after int64) (int, error) {
	published, err := r.store.Published(ctx, project, after, sinkChunk)
	if err != nil || len(published) == 0 {
		return 0, err
	}
	events, err := eventsOf(published)
	if err != nil {
		return 0, err
	}
	calling, cancel := context.WithTimeout(ctx, sinkFor)
	defer cancel()
	if err := sink.Publish(calling, events); err != nil {
		return 0, err
	}
	noting, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveFor) // also where the relay stops: the sink has them
	defer cancel()
	return len(events), r.store.MoveCursor(noting, name, project, events[len(events)-1].Position)
}

func eventsOf(published []store.Published) ([]Event, error) {
	events := make([]Event, len(published))
	for i := range published {
		var err error
		if events[i], err = eventOf(&published[i]); err != nil {
			return nil, err
		}
	}
	return events, nil
}
