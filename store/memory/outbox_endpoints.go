package memory

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

var _ store.Endpoints = (*Store)(nil)

type endpoint struct {
	row        store.Endpoint
	deliveries map[int64]*store.Delivery // by position; of the event only position and account are kept
}

func copyEndpoint(e store.Endpoint) store.Endpoint {
	e.Kinds, e.Secrets, e.CreatedAt = copyList(e.Kinds), copyList(e.Secrets), stored(e.CreatedAt)
	return e
}

var endpointRules = rules[store.Endpoint]{
	{"endpoint_has_a_secret", func(e *store.Endpoint) bool { return len(e.Secrets) >= 1 }},
}

// AddEndpoint stores a new endpoint.
func (s *Store) AddEndpoint(ctx context.Context, e store.Endpoint, most int) (added bool, err error) {
	const op = "add an endpoint"
	err = s.use(ctx, op, func() error {
		if err := endpointRules.check(&e); err != nil {
			return rejected(op, err)
		}
		if _, taken := s.endpoints[e.ID]; taken {
			return rejected(op, errors.New("the endpoint is stored already"))
		}
		count := 0
		for _, other := range s.endpoints {
			if other.row.Project == e.Project {
				count++
			}
		}
		if added = count < most; added {
			s.endpoints[e.ID] = &endpoint{row: copyEndpoint(e), deliveries: map[int64]*store.Delivery{}}
		}
		return nil
	})
	return added, err
}

// ChangeEndpoint writes what may change.
func (s *Store) ChangeEndpoint(ctx context.Context, e store.Endpoint) (changed bool, err error) {
	const op = "change an endpoint"
	err = s.use(ctx, op, func() error {
		if err := endpointRules.check(&e); err != nil {
			return rejected(op, err)
		}
		kept, ok := s.endpoints[e.ID]
		if changed = ok && kept.row.Project == e.Project && kept.row.Version == e.Version; !changed {
			return nil
		}
		e = copyEndpoint(e)
		e.CreatedAt, e.Cursor, e.Epoch = kept.row.CreatedAt, kept.row.Cursor, kept.row.Epoch
		e.Version++
		kept.row = e
		return nil
	})
	return changed, err
}

// RemoveEndpoint forgets an endpoint.
func (s *Store) RemoveEndpoint(ctx context.Context, project, id string) (removed bool, err error) {
	err = s.use(ctx, "remove an endpoint", func() error {
		kept, ok := s.endpoints[id]
		if removed = ok && kept.row.Project == project; removed {
			delete(s.endpoints, id)
		}
		return nil
	})
	return removed, err
}

// Endpoints are those of a project, or all.
func (s *Store) Endpoints(ctx context.Context, project string) (found []store.Endpoint, err error) {
	err = s.use(ctx, "list endpoints", func() error {
		for _, id := range slices.Sorted(maps.Keys(s.endpoints)) {
			if e := s.endpoints[id].row; project == "" || e.Project == project {
				found = append(found, copyEndpoint(e))
			}
		}
		return nil
	})
	return found, err
}

// queued is what the endpoint has not ended of an account, at positions that it has reached, in order.
func (e *endpoint) queued(account holdfast.AccountID) (found []*store.Delivery) {
	for _, d := range e.deliveries {
		if d.Event.Account == account && d.Event.Position <= e.row.Cursor && (d.State == store.DeliveryWaiting || d.State == store.DeliveryPending) {
			found = append(found, d)
		}
	}
	slices.SortFunc(found, func(a, b *store.Delivery) int { return cmp.Compare(a.Event.Position, b.Event.Position) })
	return found
}

// promote makes the first of an account due, where none is.
func (e *endpoint) promote(account holdfast.AccountID, now time.Time) {
	queue := e.queued(account)
	if len(queue) > 0 && !slices.ContainsFunc(queue, func(d *store.Delivery) bool { return d.State == store.DeliveryPending }) {
		queue[0].State, queue[0].NextAt = store.DeliveryPending, now
	}
}

// Dispatch turns published events into deliveries.
func (s *Store) Dispatch(ctx context.Context, id string, now time.Time, limit int) (passed int, err error) {
	err = s.use(ctx, "queue deliveries", func() error {
		e, ok := s.endpoints[id]
		if !ok || e.row.Paused {
			return nil
		}
		for _, event := range s.behind(e.row.Project, e.row.Cursor, limit) {
			passed++
			if e.row.Wants(event.Kind) {
				if d, before := e.deliveries[event.Position]; !before || d.Epoch < e.row.Epoch {
					e.deliveries[event.Position] = &store.Delivery{
						Endpoint: id, Event: store.Published{Position: event.Position, Account: event.Account}, State: store.DeliveryWaiting, Epoch: e.row.Epoch,
					}
				}
			}
			e.row.Cursor = event.Position
			e.promote(event.Account, stored(now))
		}
		return nil
	})
	return passed, err
}

// Due are deliveries whose time has come.
func (s *Store) Due(ctx context.Context, now time.Time, limits map[string]int) (due []store.Delivery, err error) {
	err = s.use(ctx, "look for due deliveries", func() error {
		for _, id := range slices.Sorted(maps.Keys(limits)) {
			e, ok := s.endpoints[id]
			if !ok || e.row.Paused {
				continue
			}
			found := s.deliveries(e, func(d *store.Delivery) bool {
				return d.State == store.DeliveryPending && !d.NextAt.After(now) && d.Event.Position <= e.row.Cursor
			})
			slices.SortFunc(found, func(a, b store.Delivery) int {
				return cmp.Or(a.NextAt.Compare(b.NextAt), cmp.Compare(a.Event.Position, b.Event.Position))
			})
			due = append(due, found[:min(len(found), limits[id])]...)
		}
		return nil
	})
	return due, err
}

// deliveries are copies with their events, in no order.
func (s *Store) deliveries(e *endpoint, like func(*store.Delivery) bool) (found []store.Delivery) {
	for _, d := range e.deliveries {
		event, there := s.at(e.row.Project, d.Event.Position)
		if there && like(d) {
			copied := *d
			copied.Event = s.named(event)
			found = append(found, copied)
		}
	}
	return found
}

// Settle writes what attempts came to.
func (s *Store) Settle(ctx context.Context, id string, now time.Time, attempts []store.Attempt) error {
	return s.use(ctx, "settle deliveries", func() error {
		e, ok := s.endpoints[id]
		if !ok {
			return nil
		}
		for _, a := range attempts {
			d, ok := e.deliveries[a.Position]
			if !ok || d.State != store.DeliveryPending || d.Epoch != a.Epoch || d.Attempts != a.Attempts {
				continue
			}
			d.State, d.NextAt, d.LastAt, d.Status, d.Problem = a.State, stored(a.NextAt), stored(a.At), a.Status, a.Problem
			d.Attempts++
			if d.FirstAt.IsZero() {
				d.FirstAt = d.LastAt
			}
			if d.State != store.DeliveryPending {
				d.NextAt = time.Time{}
			}
			e.promote(d.Event.Account, stored(now))
		}
		return nil
	})
}

// Deliveries lists an endpoint's.
func (s *Store) Deliveries(ctx context.Context, id string, state store.DeliveryState, before int64, limit int) (found []store.Delivery, err error) {
	err = s.use(ctx, "list deliveries", func() error {
		e, ok := s.endpoints[id]
		if !ok {
			return nil
		}
		found = s.deliveries(e, func(d *store.Delivery) bool {
			return (state == "" || d.State == state) && (before == 0 || d.Event.Position < before) && d.Event.Position <= e.row.Cursor
		})
		slices.SortFunc(found, func(a, b store.Delivery) int { return cmp.Compare(b.Event.Position, a.Event.Position) })
		found = found[:min(len(found), limit)]
		return nil
	})
	return found, err
}

// Rewind queues every event from a position on again.
func (s *Store) Rewind(ctx context.Context, project, id string, from int64) (rewound bool, err error) {
	err = s.use(ctx, "rewind an endpoint", func() error {
		e, ok := s.endpoints[id]
		if rewound = ok && e.row.Project == project; rewound {
			e.row.Epoch++
			e.row.Cursor = min(e.row.Cursor, max(0, from-1))
		}
		return nil
	})
	return rewound, err
}

// Revive queues dead deliveries again.
func (s *Store) Revive(ctx context.Context, id string, now time.Time, limit int) (revived int64, err error) {
	err = s.use(ctx, "revive dead deliveries", func() error {
		e, ok := s.endpoints[id]
		if !ok {
			return nil
		}
		for _, position := range slices.Sorted(maps.Keys(e.deliveries)) {
			d := e.deliveries[position]
			if d.State != store.DeliveryDead || position > e.row.Cursor || revived == int64(limit) {
				continue
			}
			d.State, d.Attempts, d.FirstAt = store.DeliveryWaiting, 0, time.Time{}
			e.promote(d.Event.Account, stored(now))
			revived++
		}
		return nil
	})
	return revived, err
}
