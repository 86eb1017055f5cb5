package holdfast_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// yearCatalog has every kind of cycle that the calendar knows, with something carried over from days and terms.
func yearCatalog() *holdfast.Catalog {
	fixed := func(name, unit string) holdfast.Feature {
		return holdfast.Feature{Name: name, Prices: []holdfast.Price{{Unit: unit, Amount: 1}}, TTL: 3 * time.Hour}
	}
	features := []string{"note", "draw", "talk", "film"}
	given := []holdfast.Allowance{
		{Key: "free.credit", Unit: "credit", Amount: 10, Every: holdfast.Cycle{Calendar: holdfast.Day}, Rollover: 4},
		{Key: "free.image", Unit: "image", Amount: 20, Every: holdfast.Cycle{Calendar: holdfast.Week}},
		{Key: "free.token", Unit: "token", Amount: 70, Every: holdfast.Cycle{Calendar: holdfast.Month}},
	}
	return &holdfast.Catalog{
		Version:  1,
		Units:    []holdfast.Unit{{Name: "credit"}, {Name: "image"}, {Name: "token"}, {Name: "coin"}},
		Features: []holdfast.Feature{fixed("note", "credit"), fixed("draw", "image"), fixed("talk", "token"), fixed("film", "coin")},
		Plans: []holdfast.Plan{
			{Name: "free", Default: true, Features: features, MaxActive: 9, Allowances: given},
			{
				Name: "year", Features: features, MaxActive: 9,
				Allowances: append(slices.Clip(given), holdfast.Allowance{Key: "year.coin", Unit: "coin", Amount: 60, Every: holdfast.Cycle{Term: true}, Rollover: 25}),
			},
		},
	}
}

// TestAYearOfOneAccount lives through the leap year 2028 in two zones whose clocks are moved, with something happening every
// four hours, and compares all cycles of the year with testdata/year, which people have read. -update writes it anew.
func TestAYearOfOneAccount(t *testing.T) {
	for i, zone := range []string{"Europe/Berlin", "America/New_York"} {
		t.Run(zone, func(t *testing.T) {
			if testing.Short() && i > 0 {
				t.Skip("one zone is enough for now")
			}
			w := newWorld(t)
			w.catalog = yearCatalog()
			w.proveEvery = 500
			local := w.zoneOf(zone)
			liveAYear(w, zone, local)
			text := yearStatement(w.stored("ann"), zone, local)
			file := filepath.Join("testdata", "year", strings.ToLower(strings.ReplaceAll(zone, "/", "_"))+".txt")
			if *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if text != string(want) {
				t.Errorf("the year is another one than in %s:\n%s", file, differsAt(text, string(want)))
			}
			checkYear(t, w.stored("ann"), local)
			w.verify()
		})
	}
}

// liveAYear reserves every four hours, more on some days than on others. Most of it is charged at once, some comes to
// less, some is forgotten and expires, now and then in the next cycle. On the last of January a plan with months of its
// own is set.
func liveAYear(w *world, zone string, local *time.Location) {
	w.Helper()
	end := time.Date(2029, 1, 1, 0, 0, 0, 0, local)
	w.now = time.Date(2028, 1, 1, 0, 0, 0, 0, local).UTC()
	w.expect(w.do("ann", "", holdfast.PutAccount{TimeZone: &zone}), "")
	for step := 0; w.now.Before(end); step++ {
		if bought := time.Date(2028, 1, 31, 8, 0, 0, 0, local); w.now.Equal(bought) {
			w.expect(w.do("ann", "", holdfast.SetPlan{Plan: "year"}), "")
		}
		day := w.now.In(local).YearDay()
		for i, feature := range []string{"note", "draw", "talk", "film"} {
			if (step+i)%4 != 0 && feature != "note" {
				continue
			}
			quantity := holdfast.Amount(1 + (day+i)%4)
			got := w.do("ann", fmt.Sprintf("%s-%d", feature, step), holdfast.Reserve{Feature: feature, Quantity: quantity})
			if got.Reason != "" || (step+day)%7 == 0 { // refused, or forgotten
				continue
			}
			w.expect(w.do("ann", "", holdfast.Commit{ReservationID: got.Reservation.ID, Amount: pointer(quantity - holdfast.Amount(step%2))}), "")
		}
		w.now = w.now.Add(4 * time.Hour)
		w.do("ann", "", holdfast.Expire{})
	}
}

// yearStatement is one line for each cycle, in the order of their beginnings per unit, in local time.
func yearStatement(stored *record, zone string, local *time.Location) string {
	var text strings.Builder
	fmt.Fprintf(&text, "The cycles of one account in %s through 2028, one line each: begin and end by the clock on the wall,\n", zone)
	fmt.Fprint(&text, "hours, granted, used, voided, and how much of the voided was carried into the next cycle.\n")
	at := func(instant time.Time) string { return instant.In(local).Format("Mon Jan 02 15:04 MST") }
	for _, unit := range []string{"credit", "image", "token", "coin"} {
		fmt.Fprintf(&text, "\n%s\n", unit)
		for _, g := range stored.grants {
			if g.Unit == unit && g.Source == holdfast.FromAllowance {
				fmt.Fprintf(&text, "%-22s %-22s %4g h %3d granted %3d used %3d voided %2d rolled\n",
					at(g.StartsAt), at(g.EndsAt), g.EndsAt.Sub(g.StartsAt).Hours(), g.Granted, g.Used, g.Voided, g.Rolled)
			}
		}
	}
	return text.String()
}

// checkYear counts what a reader of the golden file might miss: no gap, no overlap, and the lengths that the year has.
func checkYear(t *testing.T, stored *record, local *time.Location) {
	t.Helper()
	lengths := map[string]map[time.Duration]int{}
	last := map[string]*holdfast.Grant{}
	for _, g := range stored.grants {
		if g.Source != holdfast.FromAllowance {
			continue
		}
		if before := last[g.Unit]; before != nil && !before.EndsAt.Equal(g.StartsAt) {
			t.Errorf("%s: a cycle ends at %s, the next begins at %s", g.Unit, before.EndsAt.In(local), g.StartsAt.In(local))
		}
		last[g.Unit] = g
		if lengths[g.Unit] == nil {
			lengths[g.Unit] = map[time.Duration]int{}
		}
		lengths[g.Unit][g.EndsAt.Sub(g.StartsAt)]++
	}
	const hour, day = time.Hour, 24 * time.Hour
	for _, want := range []struct {
		unit   string
		length time.Duration
		count  int
	}{
		{"credit", day, 366 + 1 - 2},
		{"credit", 23 * hour, 1},
		{"credit", 25 * hour, 1}, // and the first day of 2029
		{"image", 7 * day, 53 + 1 - 2},
		{"image", 7*day - hour, 1},
		{"image", 7*day + hour, 1},
		{"token", 29 * day, 1},
		{"token", 31*day - hour, 1},
	} {
		if got := lengths[want.unit][want.length]; got != want.count {
			t.Errorf("%s: %d cycles of %s, want %d", want.unit, got, want.length, want.count)
		}
	}
	for unit, want := range map[string]int{"token": 12 + 1, "coin": 12} {
		if got := countOf(stored, unit); got != want {
			t.Errorf("%s: %d months, want %d", unit, got, want)
		}
	}
}

func countOf(stored *record, unit string) int {
	return len(slices.DeleteFunc(slices.Clone(stored.grants), func(g *holdfast.Grant) bool {
		return g.Unit != unit || g.Source != holdfast.FromAllowance
	}))
}

func differsAt(got, want string) string {
	was := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(was) || line != was[i] {
			return fmt.Sprintf("line %d is\n%s", i+1, line)
		}
	}
	return "it is shorter"
}
