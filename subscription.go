package holdfast

import (
	"strings"
	"time"
)

// SetPlan puts an account that exists on a plan, without a payment. What it was granted stays until it ends by itself,
// so going back to a plan never brings a fresh window. A plan's term is then a month, again and again from when it was
// set, until another plan is set. Changed is false where it was on that plan already.
type SetPlan struct {
	base
	Plan string
}

// Name is "set_plan".
func (SetPlan) Name() string { return "set_plan" }

func (op SetPlan) check(p *problems) { p.word("plan", op.Plan) }

func (op SetPlan) checkCatalog(c *Catalog, p *problems) {
	if _, ok := c.Plan(op.Plan); !ok {
		p.add("plan", "use a plan of the catalog")
	}
}

func (op SetPlan) print(f *printer) { f.text("plan", op.Plan) }

func (op SetPlan) decide(d *decision) Outcome {
	account := &d.state.Account
	changed := account.Plan != op.Plan
	if !changed {
		return Outcome{Account: d.view()}
	}
	plan, _ := d.catalog.Plan(op.Plan)
	if plan.Retired {
		return invalid("plan", "use a plan that is not retired")
	}
	account.Plan, d.plan = op.Plan, plan
	account.Anchor, account.AnchorZone = time.Time{}, ""
	d.state.Zones.Anchor = nil
	if !plan.Default { // it begins now; the default plan began with the account
		account.Anchor, account.AnchorZone = d.now, account.TimeZone
		d.state.Zones.Anchor = d.state.Zones.Account
	}
	d.post(note{kind: EntrySubscription, reason: planReason + op.Plan}, func(*posting) {})
	d.openCycles()
	return Outcome{Changed: true, Account: d.view()}
}

// planReason begins the reason of the entry that tells of another plan.
const planReason = "plan "

// PlanSet is the plan that an entry tells of, if it tells of one.
func (e *Entry) PlanSet() (plan string, ok bool) {
	if e.Kind != EntrySubscription {
		return "", false
	}
	return strings.CutPrefix(e.Reason, planReason)
}
