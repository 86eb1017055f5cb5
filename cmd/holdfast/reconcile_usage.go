package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

type reconcileUsageCommand struct {
	databaseFlags
	Project string            `default:"dev" env:"HOLDFAST_PROJECT" help:"Whose usage."`
	File    string            `required:"" type:"path" help:"A spend log or usage export as CSV, with the columns day, date or timestamp; feature or model; account; kind; count."`
	Map     map[string]string `placeholder:"MODEL=FEATURE" help:"Which feature a model belongs to; repeat the flag. Needed for files that name models."`
}

func (c reconcileUsageCommand) Run(ctx context.Context, t *terminal) error {
	if !holdfast.ValidProject(c.Project) {
		return fmt.Errorf("--project: use 1 to %d of a-z 0-9 . _ -", holdfast.MaxProjectBytes)
	}
	file, err := os.Open(c.File)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	used := &usageBook{project: c.Project, models: c.Map, names: map[holdfast.AccountID]string{}, counts: map[used]counted{}, unbilled: map[unbilled]holdfast.Amount{}}
	if err := used.readFile(file); err != nil {
		return fmt.Errorf("%s:%w", c.File, err)
	}
	db, err := c.open(ctx, reading)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	if err := used.readDatabase(ctx, db); err != nil {
		return err
	}
	return used.tell(t)
}

// used names a count: one kind of usage of one account on one day.
type used struct {
	day     string
	feature string
	account holdfast.AccountID
	kind    string
}

// counted is what the file and the database say of it.
type counted struct{ file, committed holdfast.Amount }

// unbilled names what was reported and not charged, in a unit.
type unbilled struct {
	day     string
	feature string
	account holdfast.AccountID
	unit    string
}

// usageBook compares a file with a database: the days from the first of the file to its last.
type usageBook struct {
	project  string
	models   map[string]string
	names    map[holdfast.AccountID]string
	counts   map[used]counted
	unbilled map[unbilled]holdfast.Amount
	rows     int

	first, last string // days of the file
}

// columns are the places of what is read, in a row.
type columns struct{ day, feature, account, kind, count int }

// readFile adds the rows up. Its errors begin with line and column.
func (b *usageBook) readFile(from io.Reader) error {
	text := bufio.NewReader(from)
	if mark, err := text.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = text.Discard(3)
	}
	rows := csv.NewReader(text)
	header, err := rows.Read()
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("1:1: the file is empty; its first line names the columns")
	case err != nil:
		return positioned(err)
	}
	place, models, err := findColumns(header)
	if err != nil {
		return err
	}
	for {
		row, err := rows.Read()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return positioned(err)
		}
		wrong := func(column int, hint string) error {
			line, at := rows.FieldPos(column)
			return fmt.Errorf("%d:%d: %s: %s", line, at, strings.TrimSpace(strings.ToLower(header[column])), hint)
		}
		u := used{feature: strings.TrimSpace(row[place.feature]), kind: strings.TrimSpace(row[place.kind])}
		if u.day, err = dayOf(strings.TrimSpace(row[place.day])); err != nil {
			return wrong(place.day, err.Error())
		}
		if models {
			feature, known := b.models[u.feature]
			if !known {
				return wrong(place.feature, "say with --map which feature this model belongs to")
			}
			u.feature = feature
		}
		name := strings.TrimSpace(row[place.account])
		switch {
		case !holdfast.ValidIdentifier(u.feature):
			return wrong(place.feature, "use the feature's name in the catalog")
		case !holdfast.ValidName(name):
			return wrong(place.account, "use the account's name")
		case !holdfast.ValidIdentifier(u.kind):
			return wrong(place.kind, "use a kind of usage, such as input_token")
		}
		count, err := strconv.ParseInt(strings.TrimSpace(row[place.count]), 10, 64)
		if err != nil || count < 0 || holdfast.Amount(count) > holdfast.MaxAmount {
			return wrong(place.count, fmt.Sprintf("use an integer from 0 to %d", holdfast.MaxAmount))
		}
		u.account = holdfast.AccountIDOf(b.project, name)
		c := b.counts[u]
		if c.file += holdfast.Amount(count); c.file > holdfast.MaxAmount {
			return wrong(place.count, "the sum of this day, feature, account and kind is too large")
		}
		b.counts[u], b.names[u.account] = c, name
		b.rows++
		if b.first == "" || u.day < b.first {
			b.first = u.day
		}
		b.last = max(b.last, u.day)
	}
}

// positioned writes an error of the reader with its place first.
func positioned(err error) error {
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		return fmt.Errorf("%d:%d: %w", parse.Line, max(1, parse.Column), parse.Err)
	}
	return fmt.Errorf(" %w", err)
}

// findColumns looks for the columns by their names, whatever their order is and whatever else there is.
func findColumns(header []string) (found columns, models bool, err error) {
	find := func(names ...string) int {
		return slices.IndexFunc(header, func(name string) bool {
			return slices.Contains(names, strings.ToLower(strings.TrimSpace(name)))
		})
	}
	found = columns{find("day", "date", "timestamp"), find("feature"), find("account"), find("kind"), find("count")}
	if found.feature < 0 {
		found.feature, models = find("model"), true
	}
	for _, wanted := range []struct {
		place int
		names string
	}{{found.day, "day, date or timestamp"}, {found.feature, "feature or model"}, {found.account, "account"}, {found.kind, "kind"}, {found.count, "count"}} {
		if wanted.place < 0 {
			return found, models, fmt.Errorf("1:1: there is no column %s", wanted.names)
		}
	}
	return found, models, nil
}

// dayOf is the day in UTC.
func dayOf(text string) (string, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339Nano, time.DateTime} {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC().Format(time.DateOnly), nil
		}
	}
	return "", errors.New("use 2027-01-31, 2027-01-31T12:00:00Z, or 2027-01-31 12:00:00 for UTC")
}

// readDatabase adds up what was committed. Accounts that were merged count as the one that has taken their place, also where
// the file has their old names.
func (b *usageBook) readDatabase(ctx context.Context, db store.Store) error {
	leadsTo := map[holdfast.AccountID]holdfast.AccountID{}
	err := db.Dump(ctx, func(r store.Record) error {
		a := &r.Account
		if a.Project != b.project {
			return nil
		}
		if !a.MergedInto.IsZero() {
			leadsTo[a.ID] = a.MergedInto
		}
		if a.Name != "" {
			b.names[a.ID] = a.Name
		}
		for reservation, err := range r.Reservations {
			if err != nil {
				return err
			}
			if err := b.add(a.ID, reservation); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return b.follow(leadsTo)
}

var errTooLarge = errors.New("the sum of a day's usage is too large to be counted")

// add counts what a reservation reported, on the day on which it was committed, or committed late.
func (b *usageBook) add(account holdfast.AccountID, r *holdfast.Reservation) error {
	at := r.EndedAt
	if !r.LateAt.IsZero() {
		at = r.LateAt
	}
	day := at.UTC().Format(time.DateOnly)
	if r.Live() || r.State == holdfast.Released || b.rows == 0 || day < b.first || day > b.last {
		return nil
	}
	for kind, count := range r.Reported {
		u := used{day, r.Feature, account, kind}
		c := b.counts[u]
		if c.committed += count; c.committed > holdfast.MaxAmount {
			return errTooLarge
		}
		b.counts[u] = c
	}
	if r.Unbilled > 0 {
		b.unbilled[unbilled{day, r.Feature, account, r.Price.Unit}] += r.Unbilled
	}
	return nil
}

// follow puts what belongs to merged accounts to those that have taken their place.
func (b *usageBook) follow(leadsTo map[holdfast.AccountID]holdfast.AccountID) error {
	end := func(account holdfast.AccountID) holdfast.AccountID {
		for range leadsTo { // no more can be in a row, also in a circle
			next, merged := leadsTo[account]
			if !merged {
				break
			}
			account = next
		}
		return account
	}
	counts, left := map[used]counted{}, map[unbilled]holdfast.Amount{}
	for u, c := range b.counts {
		u.account = end(u.account)
		sum := counts[u]
		sum.file, sum.committed = sum.file+c.file, sum.committed+c.committed
		if sum.file > holdfast.MaxAmount || sum.committed > holdfast.MaxAmount {
			return errTooLarge
		}
		counts[u] = sum
	}
	for u, n := range b.unbilled {
		u.account = end(u.account)
		left[u] += n
	}
	b.counts, b.unbilled = counts, left
	return nil
}

func (b *usageBook) name(account holdfast.AccountID) string {
	if name := b.names[account]; name != "" {
		return name
	}
	return account.String() // it was deleted
}

// tell prints the differences and what was not billed. The error is errDifferent where there is a difference.
func (b *usageBook) tell(t *terminal) error {
	table := tabwriter.NewWriter(t.out, 0, 0, 2, ' ', 0)
	line := func(columns ...string) { _, _ = fmt.Fprintln(table, strings.Join(columns, "\t")) }
	number := func(n holdfast.Amount) string { return strconv.FormatInt(int64(n), 10) }
	different := slices.SortedFunc(maps.Keys(b.counts), func(x, y used) int {
		return cmp.Or(cmp.Compare(x.day, y.day), cmp.Compare(x.feature, y.feature), cmp.Compare(b.name(x.account), b.name(y.account)), cmp.Compare(x.kind, y.kind))
	})
	different = slices.DeleteFunc(different, func(u used) bool { return b.counts[u].file == b.counts[u].committed })
	if len(different) > 0 {
		line("day", "feature", "account", "kind", "file", "committed", "difference")
	}
	for _, u := range different {
		c := b.counts[u]
		line(u.day, u.feature, b.name(u.account), u.kind, number(c.file), number(c.committed), fmt.Sprintf("%+d", c.file-c.committed))
	}
	left := slices.SortedFunc(maps.Keys(b.unbilled), func(x, y unbilled) int {
		return cmp.Or(cmp.Compare(x.day, y.day), cmp.Compare(x.feature, y.feature), cmp.Compare(b.name(x.account), b.name(y.account)), cmp.Compare(x.unit, y.unit))
	})
	if len(left) > 0 {
		if len(different) > 0 {
			line()
		}
		line("day", "feature", "account", "unit", "unbilled")
	}
	for _, u := range left {
		line(u.day, u.feature, b.name(u.account), u.unit, number(b.unbilled[u]))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	days := "no days"
	if b.rows > 0 {
		days = b.first + " to " + b.last
	}
	_, err := fmt.Fprintf(t.out, "reconcile: usage: differences %d (rows: %d, %s)\n", len(different), b.rows, days)
	if err == nil && len(different) > 0 {
		err = errDifferent
	}
	return err
}
