package main

import (
	"time"

	"github.com/holdfast-dev/holdfast"
)

// The catalogs of the drill are its own, so that its figures do not depend on what the user sells.
const (
	drillFeature = "drill"
	drillUnit    = "credit"
	drillGiven   = 3 // per window
	drillWindow  = time.Hour
	drillTTL     = 15 * time.Minute
	drillSlots   = 2
	drillDebt    = 1 // the most that may be owed

	drillMonth    = 300 // per month
	drillRollover = 150 // of it, at most
)

// Features that differ from drillFeature in a policy. Those of overruns are priced by usage.
const (
	drillCaps      = "drill.cap"
	drillExtends   = "drill.extend"
	drillOwes      = "drill.debt"
	drillAbsorbs   = "drill.absorb"
	drillCharges   = "drill.charge"
	drillStoppable = "drill.stop"
)

// drillUpperBound costs 18: 1,200 at 1 and 4,096 at 4 per 1,000 are 17.584, rounded up once. drillActual costs 25.
var (
	drillUpperBound = map[string]holdfast.Amount{"input_token": 1200, "output_token": 4096}
	drillActual     = map[string]holdfast.Amount{"input_token": 1200, "output_token": 5950}
)

// monthsProject is a scratch project beside the other one, in which every account has an allowance for ever.
func (d *drill) monthsProject() string { return d.project + ".months" }

// catalog is what a scratch project sells. Both have one plan, the default one, so that nobody is ever set to a plan that
// a later catalog would have to keep.
func (d *drill) catalog(project string) *holdfast.Catalog {
	fixed := []holdfast.Price{{Unit: drillUnit, Amount: 1}}
	byUsage := []holdfast.Price{{Unit: drillUnit, Per: 1000, Rates: map[string]holdfast.Amount{"input_token": 1, "output_token": 4}}}
	c := &holdfast.Catalog{Units: []holdfast.Unit{{Name: drillUnit}}}
	plan := holdfast.Plan{Name: "drill", Default: true, MaxActive: drillSlots, DebtLimits: map[string]holdfast.Amount{drillUnit: drillDebt}}
	for _, f := range []struct {
		name     string
		prices   []holdfast.Price
		policies holdfast.Policies
	}{
		{drillFeature, fixed, holdfast.Policies{}},
		{drillCaps, byUsage, holdfast.Policies{Overrun: holdfast.OverrunCap}},
		{drillExtends, byUsage, holdfast.Policies{Overrun: holdfast.OverrunExtend}},
		{drillOwes, byUsage, holdfast.Policies{Overrun: holdfast.OverrunDebt}},
		{drillAbsorbs, fixed, holdfast.Policies{LateCommit: holdfast.LateAbsorb}},
		{drillCharges, fixed, holdfast.Policies{InDoubt: holdfast.DoubtCharge}},
		{drillStoppable, fixed, holdfast.Policies{CancelRunning: holdfast.CancelRequest}},
	} {
		c.Features = append(c.Features, holdfast.Feature{Name: f.name, Prices: f.prices, LongestJob: drillTTL / 3, TTL: drillTTL, Policies: f.policies})
		plan.Features = append(plan.Features, f.name)
	}
	given := holdfast.Allowance{Key: "drill", Unit: drillUnit, Amount: drillGiven, Every: holdfast.Cycle{Rolling: drillWindow}}
	if project == d.monthsProject() {
		given = holdfast.Allowance{Key: "drill", Unit: drillUnit, Amount: drillMonth, Every: holdfast.Cycle{Anniversary: true}, Rollover: drillRollover}
	}
	plan.Allowances = []holdfast.Allowance{given}
	c.Plans = []holdfast.Plan{plan}
	return c
}
