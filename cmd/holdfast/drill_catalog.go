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

	// What is sold: drillMonth credits as a pack, or for every period of a plan.
	drillPack     = "drill.pack"
	drillPeriod   = "drill.period"
	drillPaidPlan = "drill.paid"
	drillPrice    = 250 // of either
	drillCurrency = "XTR"
	drillDays     = 30 // that either lasts
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

// paidProject is a scratch project in which nothing is given away, and things are sold.
func (d *drill) paidProject() string { return d.project + ".paid" }

// catalog is what a scratch project sells. Only in the project of payments are there plans besides the default one, which a
// later catalog would have to keep as long as somebody is on them.
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
	given := holdfast.Allowance{Key: "drill", Unit: drillUnit, Amount: drillMonth, Rollover: drillRollover}
	switch project {
	case d.paidProject():
		c.Plans = []holdfast.Plan{plan} // the default one
		given.Every.Term = true
		plan.Name, plan.Default, plan.Grace = drillPaidPlan, false, drillDays*24*time.Hour/10
		prices, period := []holdfast.Money{{Currency: drillCurrency, Amount: drillPrice}}, holdfast.Period{Days: drillDays}
		c.Products = []holdfast.Product{
			{Name: drillPack, Grant: &holdfast.ProductGrant{Unit: drillUnit, Amount: drillMonth, For: period}, Prices: prices},
			{Name: drillPeriod, Plan: drillPaidPlan, Period: period, Prices: prices},
		}
	case d.monthsProject():
		given.Every.Anniversary = true
	default:
		given = holdfast.Allowance{Key: "drill", Unit: drillUnit, Amount: drillGiven, Every: holdfast.Cycle{Rolling: drillWindow}}
	}
	plan.Allowances = []holdfast.Allowance{given}
	c.Plans = append(c.Plans, plan)
	return c
}
