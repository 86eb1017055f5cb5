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

var _ store.Outbox = (*Store)(nil)

// relayed is what the relay and its readers keep.
type relayed struct {
	lease     lease
	published map[string][]store.Published // by project, in order of positions
	last      map[string]int64             // by project
	cursors   map[string]map[string]int64  // by sink and project
	endpoints map[string]*endpoint         // by id
}

type lease struct {
	holder string
	token  int64
	until  time.Time
}

func newRelayed() relayed {
	return relayed{
		published: map[string][]store.Published{}, last: map[string]int64{}, cursors: map[string]map[string]int64{}, endpoints: map[string]*endpoint{},
	}
}

// Lead takes the lease of the relay, or prolongs it.
func (s *Store) Lead(ctx context.Context, holder string, now, until time.Time) (token int64, err error) {
	err = s.use(ctx, "take the lease of the relay", func() error {
		if s.lease.holder != holder {
			if s.lease.until.After(now) {
				return nil
			}
			s.lease.holder = holder
			s.lease.token++
		}
		s.lease.until = until
		token = s.lease.token
		return nil
	})
	return token, err
}

// Pending returns accounts that have unpublished rows.
func (s *Store) Pending(ctx context.Context, after holdfast.AccountID, accounts, events int) (found []store.Pending, err error) {
	err = s.use(ctx, "look for unpublished events", func() error {
		for _, id := range ids(s.accounts) {
			a := s.accounts[id]
			if slices.Compare(id[:], after[:]) <= 0 || len(a.events) == 0 {
				continue
			}
			if len(found) == accounts {
				break
			}
			p := store.Pending{Account: id, Project: a.row.Project, Name: a.row.Name}
			for _, e := range a.events[:min(events, len(a.events))] {
				told := store.PendingEvent{Event: e}
				if entry, ok := a.entries[e.Entry]; ok {
					told.Entry = copyEntry(entry)
				}
				if paid, ok := a.payments[e.Payment]; ok {
					told.Payment = copyPayment(paid)
				}
				p.Events = append(p.Events, told)
			}
			found = append(found, p)
		}
		return nil
	})
	return found, err
}

// Publish moves rows out of the outbox.
func (s *Store) Publish(ctx context.Context, token int64, now time.Time, events []store.Published) error {
	const op = "publish events"
	return s.use(ctx, op, func() error {
		gone := func(why string) error { return &store.Error{Kind: store.Conflict, Op: op, Err: errors.New(why)} }
		if token != s.lease.token {
			return gone("another relay leads")
		}
		removed := map[holdfast.AccountID][]holdfast.ID{}
		for _, e := range events {
			a := s.accounts[e.Account]
			stands := func(row holdfast.Event) bool { return row.ID == e.ID }
			if a == nil || !slices.ContainsFunc(a.events, stands) || slices.Contains(removed[e.Account], e.ID) {
				return gone("an event was published meanwhile")
			}
			removed[e.Account] = append(removed[e.Account], e.ID)
		}
		for account, ids := range removed {
			a := s.accounts[account]
			a.events = slices.DeleteFunc(slices.Clone(a.events), func(row holdfast.Event) bool { return slices.Contains(ids, row.ID) })
			for _, id := range ids {
				delete(a.told, id)
			}
		}
		for _, e := range events {
			if _, before := s.positionOf(e.Project, e.Account, e.ID); before {
				continue
			}
			s.last[e.Project]++
			e.Position, e.Name, e.At, e.PublishedAt = s.last[e.Project], "", stored(e.At), stored(now)
			s.published[e.Project] = append(s.published[e.Project], e)
		}
		return nil
	})
}

func (s *Store) positionOf(project string, account holdfast.AccountID, event holdfast.ID) (int64, bool) {
	for _, e := range s.published[project] {
		if e.Account == account && e.ID == event {
			return e.Position, true
		}
	}
	return 0, false
}

// named is the event with what its account is called now.
func (s *Store) named(e store.Published) store.Published {
	if a, ok := s.accounts[e.Account]; ok {
		e.Name = a.row.Name
	}
	return e
}

// behind are a project's events behind a position.
func (s *Store) behind(project string, after int64, limit int) []store.Published {
	all := s.published[project]
	from, _ := slices.BinarySearchFunc(all, after+1, func(e store.Published, position int64) int { return cmp.Compare(e.Position, position) })
	return all[from:min(len(all), from+limit)]
}

func (s *Store) at(project string, position int64) (store.Published, bool) {
	found := s.behind(project, position-1, 1)
	if len(found) == 0 || found[0].Position != position {
		return store.Published{}, false
	}
	return found[0], true
}

// Published are the events of a project behind a position.
func (s *Store) Published(ctx context.Context, project string, after int64, limit int) (events []store.Published, err error) {
	err = s.use(ctx, "read published events", func() error {
		for _, e := range s.behind(project, after, limit) {
			events = append(events, s.named(e))
		}
		return nil
	})
	return events, err
}

// PositionOf finds a published event.
func (s *Store) PositionOf(ctx context.Context, project string, account holdfast.AccountID, event holdfast.ID) (position int64, found bool, err error) {
	err = s.use(ctx, "find a published event", func() error {
		position, found = s.positionOf(project, account, event)
		return nil
	})
	return position, found, err
}

// Positions are the last positions.
func (s *Store) Positions(ctx context.Context) (last map[string]int64, err error) {
	err = s.use(ctx, "read positions", func() error {
		last = maps.Clone(s.last)
		return nil
	})
	return last, err
}

// Cursors are how far a sink has come.
func (s *Store) Cursors(ctx context.Context, sink string) (cursors map[string]int64, err error) {
	err = s.use(ctx, "read the cursors of a sink", func() error {
		cursors = map[string]int64{}
		maps.Copy(cursors, s.cursors[sink])
		return nil
	})
	return cursors, err
}

// MoveCursor says how far a sink has come.
func (s *Store) MoveCursor(ctx context.Context, sink, project string, position int64) error {
	return s.use(ctx, "move the cursor of a sink", func() error {
		if s.cursors[sink] == nil {
			s.cursors[sink] = map[string]int64{}
		}
		s.cursors[sink][project] = max(s.cursors[sink][project], position)
		return nil
	})
}

// Unpublished counts the rows that wait.
func (s *Store) Unpublished(ctx context.Context) (count int64, oldest time.Time, err error) {
	err = s.use(ctx, "count unpublished events", func() error {
		for _, a := range s.accounts {
			count += int64(len(a.events))
			for _, e := range a.events {
				if oldest.IsZero() || e.At.Before(oldest) {
					oldest = e.At
				}
			}
		}
		return nil
	})
	return count, oldest, err
}

// Prune removes old events with their deliveries.
func (s *Store) Prune(ctx context.Context, old, ancient time.Time, limit int) (pruned int64, err error) {
	err = s.use(ctx, "prune events", func() error {
		for _, project := range slices.Sorted(maps.Keys(s.published)) {
			kept := s.published[project][:0:0]
			for _, e := range s.published[project] {
				past := e.PublishedAt.Before(ancient) || e.PublishedAt.Before(old) && !s.wanted(e)
				if !past || pruned >= int64(limit) {
					kept = append(kept, e)
					continue
				}
				pruned++
				for _, to := range s.endpoints {
					if to.row.Project == project {
						delete(to.deliveries, e.Position)
						to.promote(e.Account, stored(e.PublishedAt))
					}
				}
			}
			s.published[project] = kept
		}
		return nil
	})
	return pruned, err
}

// wanted reports whether an endpoint has still to be given the event.
func (s *Store) wanted(e store.Published) bool {
	for _, to := range s.endpoints {
		if to.row.Project != e.Project {
			continue
		}
		if d, queued := to.deliveries[e.Position]; e.Position > to.row.Cursor || queued && d.State != store.DeliveryDelivered {
			return true
		}
	}
	return false
}
