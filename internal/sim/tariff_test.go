package sim_test

import (
	"time"

	"github.com/holdfast-dev/holdfast"
)

// tariff has everything that decisions can turn on: two ways to pay, prices by usage, every policy, plans with less and
// with more, and allowances of every cycle, some of which end while a simulation runs.
var tariff = &holdfast.Catalog{
	Version: 1,
	Units:   []holdfast.Unit{{Name: "credit"}, {Name: "image"}},
	Features: []holdfast.Feature{
		{
			Name: "draw", Prices: []holdfast.Price{{Unit: "image", Amount: 1}, {Unit: "credit", Amount: 5}}, LongestJob: 5 * time.Second, TTL: 20 * time.Second,
			Policies: holdfast.Policies{CancelRunning: holdfast.CancelRequest},
		},
		{
			Name: "text", Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, LongestJob: 4 * time.Second, TTL: 12 * time.Second,
			Policies: holdfast.Policies{InDoubt: holdfast.DoubtCharge},
		},
		{
			Name: "chat", Prices: byUsage, LongestJob: 5 * time.Second, TTL: 20 * time.Second,
			Policies: holdfast.Policies{Overrun: holdfast.OverrunExtend},
		},
		{
			Name: "loan", Prices: byUsage, LongestJob: 5 * time.Second, TTL: 16 * time.Second, MaxHold: 40 * time.Second,
			Policies: holdfast.Policies{
				Overrun: holdfast.OverrunDebt, InDoubt: holdfast.DoubtCharge, LateCommit: holdfast.LateAbsorb, CancelRunning: holdfast.CancelRequest,
			},
		},
	},
	Surfaces: []holdfast.Surface{{Name: "slow", TTL: 30 * time.Second}},
	Plans: []holdfast.Plan{
		{Name: "free", Default: true, Features: []string{"draw", "text", "chat"}, MaxActive: 3, Allowances: []holdfast.Allowance{
			{Key: "free_credit", Unit: "credit", Amount: 7, Every: holdfast.Cycle{Rolling: 45 * time.Second}}, everyDay,
		}},
		{
			Name: "pro", Features: []string{"draw", "text", "chat", "loan"}, FreeFeatures: []string{"text"}, MaxActive: 5,
			Allowances: []holdfast.Allowance{
				{Key: "pro_credit", Unit: "credit", Amount: 15, Every: holdfast.Cycle{Term: true}, Rollover: 6},
				{Key: "pro_image", Unit: "image", Amount: 2, Every: holdfast.Cycle{Rolling: 15 * time.Second}},
				everyDay,
			},
			DebtLimits: map[string]holdfast.Amount{"credit": 6},
		},
		{
			Name: "club", Features: []string{"draw", "text", "chat", "loan"}, MaxActive: 4,
			Allowances: []holdfast.Allowance{
				{Key: "club_credit", Unit: "credit", Amount: 9, Every: holdfast.Cycle{Calendar: holdfast.Month}, Rollover: 4},
				{Key: "club_week", Unit: "credit", Amount: 2, Every: holdfast.Cycle{Calendar: holdfast.Week}},
				{Key: "club_image", Unit: "image", Amount: 3, Every: holdfast.Cycle{Anniversary: true}, Rollover: 2},
				everyDay,
			},
			DebtLimits: map[string]holdfast.Amount{"credit": 3},
		},
		{
			Name: "mini", Features: []string{"text", "loan"}, MaxActive: 2, Allowances: []holdfast.Allowance{everyDay},
			DebtLimits: map[string]holdfast.Amount{"credit": 2},
		},
	},
}

var (
	// byUsage is 2 credits for 10 in, and 5 for 10 out.
	byUsage = []holdfast.Price{{Unit: "credit", Per: 10, Rates: map[string]holdfast.Amount{"in": 2, "out": 5}}}
	// everyDay is what all plans give, so that only a change of the zone could bring it twice.
	everyDay = holdfast.Allowance{Key: "day_image", Unit: "image", Amount: 1, Every: holdfast.Cycle{Calendar: holdfast.Day}, Rollover: 1}
	// zones are in turn ahead of each other by up to 14 hours, and two of them move their clocks.
	zones = []string{"", "Europe/Berlin", "America/New_York", "Asia/Tokyo"}
)

// allowance is the one of that key, of whatever plan; every key that is ever given out is one of the tariff's.
func allowance(key string) (found holdfast.Allowance) {
	for _, plan := range tariff.Plans {
		for _, a := range plan.Allowances {
			if a.Key == key {
				found = a
			}
		}
	}
	return found
}

// cost is what usage costs, rounded up once.
func cost(price holdfast.Price, usage map[string]holdfast.Amount) holdfast.Amount {
	sum := holdfast.Amount(0)
	for kind, count := range usage {
		sum += price.Rates[kind] * count
	}
	return (sum + price.Per - 1) / price.Per
}
