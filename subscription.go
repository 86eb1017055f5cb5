package holdfast

// SetPlan puts an account that exists on a plan, without a payment. What it was granted stays until it ends by itself,
// so going back to a plan never brings a fresh window. Changed is false where it was on that plan already.
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
	changed := d.state.Account.Plan != op.Plan
	if changed {
		d.state.Account.Plan = op.Plan
		d.plan = d.catalog.PlanOf(&d.state.Account)
		d.post(note{kind: EntrySubscription, reason: "plan " + op.Plan}, func(*posting) {})
	}
	return Outcome{Changed: changed, Account: d.view()}
}
