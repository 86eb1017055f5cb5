package memory

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// overdue are the live reservations whose interval [created, expires) is over at the instant, the longest overdue first.
func (a *account) overdue(at time.Time) []*holdfast.Reservation {
	var due []*holdfast.Reservation
	for _, r := range a.live {
		if r.Overdue(stored(at)) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *holdfast.Reservation) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return due
}

// Scan returns accounts in the order of their ids.
func (s *Store) Scan(ctx context.Context, due store.Due) (found []holdfast.AccountID, err error) {
	err = s.use(ctx, "scan for what is due", func() error {
		for _, id := range ids(s.accounts) {
			if len(found) == due.Limit {
				return nil
			}
			a := s.accounts[id]
			isDue := due.Transfers && len(a.row.Transfers) > 0 || !due.Transfers && len(a.overdue(due.At)) > 0
			if bytes.Compare(id[:], due.After[:]) > 0 && isDue {
				found = append(found, id)
			}
		}
		return nil
	})
	return found, err
}

// Read copies one page out of one moment.
func (s *Store) Read(ctx context.Context, query store.Query) (page store.Page, err error) {
	behind, err := query.Position()
	if err != nil {
		return page, err
	}
	err = s.use(ctx, "read a page", func() error {
		a, ok := s.accounts[query.Account]
		if !ok || a.row.Project != query.Project {
			return nil
		}
		switch query.Kind {
		case store.QueryReservations:
			page.Reservations, page.Next = cut(&query, behind, a.matching(&query), func(r *holdfast.Reservation) []byte { return r.ID[:] })
		case store.QueryGrants:
			page.Grants, page.Next = cut(&query, behind, copies(maps.Values(a.grants), copyGrant), func(g *holdfast.Grant) []byte {
				return append(binary.BigEndian.AppendUint64(nil, uint64(g.CreatedAt.UnixMicro())), g.ID[:]...)
			})
		case store.QueryEntries:
			place := func(e *holdfast.Entry) []byte { return binary.BigEndian.AppendUint64(nil, uint64(e.No)) }
			entries, next := cut(&query, behind, copies(maps.Values(a.entries), copyEntry), place)
			for _, e := range entries {
				page.Entries = append(page.Entries, *e)
			}
			page.Next = next
		default:
			page.State = a.state()
		}
		return nil
	})
	return page, err
}

func copies[T any](rows iter.Seq[*T], copied func(*T) *T) []*T {
	var list []*T
	for row := range rows {
		list = append(list, copied(row))
	}
	return list
}

func (a *account) matching(query *store.Query) []*holdfast.Reservation {
	var found []*holdfast.Reservation
	for _, r := range a.reservations {
		if (query.Reservation.IsZero() || r.ID == query.Reservation) &&
			(query.State == "" || r.State == query.State) && (query.Key == "" || r.Key == query.Key) {
			found = append(found, copyReservation(r))
		}
	}
	return found
}

// cut sorts rows by their places, the greatest first, and takes the page that follows the place behind.
func cut[T any](query *store.Query, behind []byte, rows []*T, place func(*T) []byte) (page []*T, next string) {
	slices.SortFunc(rows, func(a, b *T) int { return bytes.Compare(place(b), place(a)) })
	for _, row := range rows {
		if behind != nil && bytes.Compare(place(row), behind) >= 0 {
			continue
		}
		if len(page) == query.Limit {
			return page, query.NextCursor(place(page[len(page)-1]))
		}
		page = append(page, row)
	}
	return page, ""
}

// Dump copies everything first: a visit takes its time, and nobody should wait for it.
func (s *Store) Dump(ctx context.Context, visit func(store.Record) error) error {
	var records []store.Record
	err := s.use(ctx, "dump the database", func() error {
		for _, id := range ids(s.accounts) {
			records = append(records, s.accounts[id].record())
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, record := range records {
		if err := ctx.Err(); err != nil {
			return &store.Error{Kind: store.Unavailable, Op: "dump the database", Err: err}
		}
		if err := visit(record); err != nil {
			return err
		}
	}
	return nil
}

func (a *account) record() store.Record {
	record := store.Record{Account: copyAccount(a.row)}
	for _, id := range ids(a.grants) {
		record.Grants = append(record.Grants, copyGrant(a.grants[id]))
	}
	var reservations []*holdfast.Reservation
	for _, id := range ids(a.reservations) {
		reservations = append(reservations, copyReservation(a.reservations[id]))
	}
	var entries []holdfast.Entry
	for _, no := range slices.Sorted(maps.Keys(a.entries)) {
		entries = append(entries, *copyEntry(a.entries[no]))
	}
	record.Reservations, record.Entries = sequence(reservations), sequence(entries)
	return record
}

func sequence[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range list {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// Events lists the account's outbox rows in the order in which they were written.
func (s *Store) Events(ctx context.Context, id holdfast.AccountID) (events []holdfast.Event, err error) {
	err = s.use(ctx, "list events", func() error {
		if a, ok := s.accounts[id]; ok {
			events = copyList(a.events)
		}
		return nil
	})
	return events, err
}
