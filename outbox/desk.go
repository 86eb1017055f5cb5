package outbox

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Desk is where edges read events and manage endpoints: the HTTP API and the command line say what, and it says what is
// wrong with it. It is safe for concurrent use.
type Desk struct {
	store Store
	guard Guard
	now   func() time.Time
}

// NewDesk makes a desk.
func NewDesk(s Store, guard Guard) *Desk { return &Desk{store: s, guard: guard, now: time.Now} }

// Errors of a desk. Others are those of the store.
var (
	ErrNoEndpoint = errors.New("the project has no such endpoint")
	ErrNoEvent    = errors.New("the project has no such event, or not any more")
	ErrTooMany    = fmt.Errorf("a project has at most %d endpoints", holdfast.MaxEndpoints)
	ErrOvertaken  = errors.New("the endpoint was changed meanwhile")
)

// Problems are all that is wrong with what was asked for.
type Problems []holdfast.Problem

// Error names the fields.
func (p Problems) Error() string {
	var fields []string
	for _, problem := range p {
		fields = append(fields, problem.Field+": "+problem.Hint)
	}
	return strings.Join(fields, "; ")
}

// Events are a project's events behind a position, and next is where to go on: the position of the last one, or the same
// where there is none yet.
func (d *Desk) Events(ctx context.Context, project string, after int64, limit int) (events []Event, next int64, err error) {
	published, err := d.store.Published(ctx, project, after, limit)
	if err != nil {
		return nil, after, err
	}
	if events, err = eventsOf(published); err != nil {
		return nil, after, err
	}
	if len(events) > 0 {
		after = events[len(events)-1].Position
	}
	return events, after, nil
}

// Change is what an endpoint is to be. Nil: as it is; of a new one, all kinds, not paused, no note.
type Change struct {
	URL    *string
	Kinds  *[]string
	Paused *bool
	Note   *string
}

// apply writes the change, and says what is wrong with it.
func (c Change) apply(e *store.Endpoint, guard Guard) (found Problems) {
	wrong := func(field, hint string) { found = append(found, holdfast.Problem{Field: field, Hint: hint}) }
	if c.URL != nil {
		e.URL = *c.URL
		if hint := checkURL(e.URL, guard); hint != "" {
			wrong("url", hint)
		}
	}
	if c.Kinds != nil {
		e.Kinds = *c.Kinds
		if len(e.Kinds) > holdfast.MaxEndpointKinds {
			wrong("types", fmt.Sprintf("name at most %d", holdfast.MaxEndpointKinds))
		}
		for i, kind := range e.Kinds[:min(len(e.Kinds), holdfast.MaxEndpointKinds)] {
			first, rest, found := strings.Cut(kind, ".")
			word := func(text string) bool {
				return text != "" && !strings.ContainsFunc(text, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
			}
			switch {
			case !found || !word(first) || rest != "*" && !word(rest) || len(kind) > holdfast.MaxIdentifierBytes:
				wrong(fmt.Sprintf("types[%d]", i), "use a type of event like reservation.commit, or all of a group: reservation.*")
			case slices.Contains(e.Kinds[:i], kind):
				wrong(fmt.Sprintf("types[%d]", i), "name it once")
			}
		}
	}
	if c.Paused != nil {
		e.Paused, e.PausedReason = *c.Paused, ""
	}
	if c.Note != nil {
		e.Note = *c.Note
		if len(e.Note) > holdfast.MaxReasonBytes || strings.ContainsFunc(e.Note, unicode.IsControl) {
			wrong("note", fmt.Sprintf("use at most %d bytes without control characters", holdfast.MaxReasonBytes))
		}
	}
	return found
}

// Add makes an endpoint that is told of what is published from now on. The secret is told this once. Errors: Problems,
// ErrTooMany.
func (d *Desk) Add(ctx context.Context, project string, change Change) (e store.Endpoint, secret string, err error) {
	if change.URL == nil {
		change.URL = new(string)
	}
	if found := change.apply(&e, d.guard); len(found) > 0 {
		return e, "", found
	}
	last, err := d.store.Positions(ctx)
	if err != nil {
		return e, "", err
	}
	secret = newSecret()
	e.Project, e.ID, e.Secrets, e.CreatedAt, e.Cursor = project, newEndpointID(), []string{secret}, d.now().UTC().Truncate(time.Microsecond), last[project]
	added, err := d.store.AddEndpoint(ctx, e, holdfast.MaxEndpoints)
	if err == nil && !added {
		err = ErrTooMany
	}
	return e, secret, err
}

var idEncoding = base32.NewEncoding("0123456789abcdefghjkmnpqrstvwxyz").WithPadding(base32.NoPadding)

func newEndpointID() string {
	random := make([]byte, 15)
	_, _ = rand.Read(random) // never fails
	return "whk_" + idEncoding.EncodeToString(random)
}

// Endpoints are those of a project.
func (d *Desk) Endpoints(ctx context.Context, project string) ([]store.Endpoint, error) {
	return d.store.Endpoints(ctx, project)
}

// Endpoint finds one. Error: ErrNoEndpoint.
func (d *Desk) Endpoint(ctx context.Context, project, id string) (store.Endpoint, error) {
	all, err := d.store.Endpoints(ctx, project)
	if err != nil {
		return store.Endpoint{}, err
	}
	for _, e := range all {
		if e.ID == id {
			return e, nil
		}
	}
	return store.Endpoint{}, ErrNoEndpoint
}

// Change changes an endpoint. Errors: Problems, ErrNoEndpoint, ErrOvertaken.
func (d *Desk) Change(ctx context.Context, project, id string, change Change) (store.Endpoint, error) {
	return d.change(ctx, project, id, func(e *store.Endpoint) error {
		if found := change.apply(e, d.guard); len(found) > 0 {
			return found
		}
		return nil
	})
}

// Rotate gives an endpoint a new secret, which is told this once; the one before it signs as well until the next
// rotation. Errors: ErrNoEndpoint, ErrOvertaken.
func (d *Desk) Rotate(ctx context.Context, project, id string) (e store.Endpoint, secret string, err error) {
	secret = newSecret()
	e, err = d.change(ctx, project, id, func(e *store.Endpoint) error {
		e.Secrets = []string{secret, e.Secrets[0]}
		return nil
	})
	return e, secret, err
}

func (d *Desk) change(ctx context.Context, project, id string, write func(*store.Endpoint) error) (store.Endpoint, error) {
	for range mostOvertakings {
		e, err := d.Endpoint(ctx, project, id)
		if err == nil {
			err = write(&e)
		}
		if err != nil {
			return e, err
		}
		if changed, err := d.store.ChangeEndpoint(ctx, e); err != nil || changed {
			return e, err
		}
	}
	return store.Endpoint{}, ErrOvertaken
}

// mostOvertakings is how often a change looks again at what another one has left.
const mostOvertakings = 10

// Remove forgets an endpoint and its queue. Error: ErrNoEndpoint.
func (d *Desk) Remove(ctx context.Context, project, id string) error {
	removed, err := d.store.RemoveEndpoint(ctx, project, id)
	if err == nil && !removed {
		err = ErrNoEndpoint
	}
	return err
}

// Deliveries lists an endpoint's, the newest event first, below a position where before is not 0. Error: ErrNoEndpoint.
func (d *Desk) Deliveries(ctx context.Context, project, id string, state store.DeliveryState, before int64, limit int) ([]store.Delivery, error) {
	if _, err := d.Endpoint(ctx, project, id); err != nil {
		return nil, err
	}
	return d.store.Deliveries(ctx, id, state, before, limit)
}

// ReplayFrom delivers everything again from a position on. Error: ErrNoEndpoint.
func (d *Desk) ReplayFrom(ctx context.Context, project, id string, position int64) error {
	rewound, err := d.store.Rewind(ctx, project, id, position)
	if err == nil && !rewound {
		err = ErrNoEndpoint
	}
	return err
}

// PositionOf finds the position of an event by its id. Error: ErrNoEvent.
func (d *Desk) PositionOf(ctx context.Context, project, event string) (int64, error) {
	account, id, err := holdfast.EventRef.Parse(event)
	if err != nil {
		return 0, ErrNoEvent
	}
	position, found, err := d.store.PositionOf(ctx, project, account, id)
	if err == nil && !found {
		err = ErrNoEvent
	}
	return position, err
}

// reviveChunk is how many dead deliveries one transaction revives.
const reviveChunk = 500

// ReplayDead delivers what was given up again, and says how many. Error: ErrNoEndpoint.
func (d *Desk) ReplayDead(ctx context.Context, project, id string) (revived int64, err error) {
	if _, err := d.Endpoint(ctx, project, id); err != nil {
		return 0, err
	}
	for {
		n, err := d.store.Revive(ctx, id, d.now(), reviveChunk)
		revived += n
		if err != nil || n < reviveChunk {
			return revived, err
		}
	}
}
