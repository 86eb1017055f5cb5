package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// belief is what the database must believe of a person after a step.
type belief struct {
	available, reserved holdfast.Amount
	active              int
	used                holdfast.Amount // of this window
}

// believes prints what is stored of the person that the chapter is about: the account, their reservations, except those that
// were shown after their end, and the ledger entries since the last time. It is an error where that is not as it must be.
func (s *story) believes(ctx context.Context, must belief) error {
	state, err := s.state(ctx)
	if err != nil {
		return err
	}
	reservations, err := s.reservations(ctx)
	if err != nil {
		return err
	}
	entries, err := s.newEntries(ctx)
	if err != nil {
		return err
	}
	view := holdfast.View(s.catalogs.of(devProject), state, time.Now().UTC())
	balance := view.Balances[0]
	if balance.Cycle == nil {
		return errors.New("the plan has no allowance of " + balance.Unit)
	}

	s.print("\n    the database believes\n")
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	line := func(columns ...string) { _, _ = fmt.Fprintln(table, "      "+strings.Join(columns, "\t")) }
	line("account", s.person, fmt.Sprintf("available %d", balance.Available), fmt.Sprintf("reserved %d", balance.Reserved),
		fmt.Sprintf("used %d of %d", balance.Cycle.Used, balance.Cycle.Granted), fmt.Sprintf("active %d of %d", view.Account.Active, view.MaxActive))
	if s.ended == nil {
		s.ended = map[holdfast.ID]bool{}
	}
	title := "reservation"
	for _, r := range reservations {
		if s.ended[r.ID] {
			continue
		}
		if !r.Live() {
			s.ended[r.ID] = true
		}
		line(title, r.Key, string(r.State), fmt.Sprintf("reserved %d", r.Reserved), fmt.Sprintf("used %d", r.Used), until(r))
		title = ""
	}
	title = "ledger"
	for _, e := range entries {
		moved, then := describeDeltas(e.Deltas), fmt.Sprintf("then %d available, %d reserved", e.Available, e.Reserved)
		switch e.Unit {
		case balance.Unit:
		case "": // no money moved
			moved, then = e.Reason, ""
		default:
			moved += " " + e.Unit
		}
		line(title, fmt.Sprintf("entry %d", e.No), string(e.Kind), moved, then, "by "+e.Actor)
		title = ""
	}
	if len(entries) == 0 {
		line(title, "no new entry")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	return errors.Join(
		same("available in the database", balance.Available, must.available),
		same("reserved in the database", balance.Reserved, must.reserved),
		same("active in the database", view.Account.Active, must.active),
		same("used in the database", balance.Cycle.Used, must.used),
	)
}

func until(r *holdfast.Reservation) string {
	if r.Live() {
		return "until " + r.ExpiresAt.Format("15:04:05.0 MST")
	}
	return "ended " + r.EndedAt.Format("15:04:05.0 MST")
}

// describeDeltas says what an entry moved, over all pockets.
func describeDeltas(deltas []holdfast.Delta) string {
	var sum holdfast.Delta
	for _, d := range deltas {
		sum.Granted += d.Granted
		sum.Reserved += d.Reserved
		sum.Used += d.Used
		sum.Voided += d.Voided
	}
	var moved []string
	for _, counter := range []struct {
		name string
		by   holdfast.Amount
	}{{"granted", sum.Granted}, {"reserved", sum.Reserved}, {"used", sum.Used}, {"voided", sum.Voided}} {
		if counter.by != 0 {
			moved = append(moved, fmt.Sprintf("%s %+d", counter.name, counter.by))
		}
	}
	return strings.Join(moved, ", ")
}

// turnTo lets the story go on with somebody of whom nothing was shown yet.
func (s *story) turnTo(person string) {
	s.person, s.entries, s.ended = person, 0, nil
}

func (s *story) read(ctx context.Context, query store.Query) (store.Page, error) {
	query.Project, query.Account = devProject, holdfast.AccountIDOf(devProject, s.person)
	page, err := s.database.Read(ctx, query)
	if err != nil {
		return page, fmt.Errorf("read the database: %w", err)
	}
	return page, nil
}

func (s *story) state(ctx context.Context) (*holdfast.State, error) {
	page, err := s.read(ctx, store.Query{Kind: store.QueryState, Limit: 1})
	if err == nil && page.State == nil {
		err = fmt.Errorf("expected %s in the database, got nothing", s.person)
	}
	return page.State, err
}

// reservations are all of the person's, oldest first.
func (s *story) reservations(ctx context.Context) ([]*holdfast.Reservation, error) {
	page, err := s.read(ctx, store.Query{Kind: store.QueryReservations, Limit: holdfast.MaxPage})
	slices.Reverse(page.Reservations)
	return page.Reservations, err
}

// newEntries are those that were not shown yet, oldest first.
func (s *story) newEntries(ctx context.Context) ([]holdfast.Entry, error) {
	page, err := s.read(ctx, store.Query{Kind: store.QueryEntries, Limit: holdfast.MaxPage})
	if err != nil {
		return nil, err
	}
	entries := slices.DeleteFunc(page.Entries, func(e holdfast.Entry) bool { return e.No <= s.entries })
	slices.Reverse(entries)
	if len(entries) > 0 {
		s.entries = entries[len(entries)-1].No
	}
	return entries, nil
}

// awaitEnd looks at a reservation until it has ended.
func (s *story) awaitEnd(ctx context.Context, id string) (*holdfast.Reservation, error) {
	_, reservation, err := holdfast.ReservationRef.Parse(id)
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(demoTTLSeconds*time.Second + demoPatience)
	defer patience.Stop()
	again := time.NewTicker(demoSweepEvery / 2)
	defer again.Stop()
	for {
		page, err := s.read(ctx, store.Query{Kind: store.QueryReservations, Reservation: reservation, Limit: 1})
		switch {
		case err != nil:
			return nil, err
		case len(page.Reservations) == 0:
			return nil, errors.New("expected the reservation in the database, got nothing")
		case !page.Reservations[0].Live():
			return page.Reservations[0], nil
		}
		select {
		case <-again.C:
		case <-patience.C:
			return nil, fmt.Errorf("expected the sweeper to end the reservation at %s, it is still %s",
				page.Reservations[0].ExpiresAt.Format(time.TimeOnly), page.Reservations[0].State)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
