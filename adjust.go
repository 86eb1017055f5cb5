package holdfast

// Adjust corrects an account's balance of a unit by an operator's hand: whole or not at all. It needs a key and a reason.
//
// A positive amount opens a pocket of source correction that never ends. A negative one voids what is available, in
// burn order, whatever features the pockets are for; amounts held by reservations are not touched. Refuses: Insufficient.
type Adjust struct {
	base
	Unit   string
	Amount Amount // not zero
	Reason string
}

// Name is "adjust".
func (Adjust) Name() string { return "adjust" }

func (Adjust) creates() bool { return true }

func (op Adjust) check(p *problems) {
	p.word("unit", op.Unit)
	if op.Amount == 0 || !op.Amount.representable() {
		p.add("amount", "use an integer other than 0, at most 2^53-1 either way")
	}
	p.sentence("reason", op.Reason, true)
}

func (op Adjust) checkCatalog(c *Catalog, p *problems) { p.knownUnit(c, op.Unit) }

func (op Adjust) print(f *printer) {
	f.text("unit", op.Unit)
	f.amount("amount", op.Amount)
}

func (op Adjust) decide(d *decision) Outcome {
	if op.Amount > 0 {
		g := &Grant{
			ID: d.newID(), Unit: op.Unit, Source: FromCorrection, Priority: FromCorrection.defaultPriority(),
			Granted: op.Amount, StartsAt: d.now, CreatedAt: d.now, Open: true,
		}
		if problem := d.roomFor(g); problem != nil {
			return Outcome{Reason: Invalid, Problems: []Problem{*problem}}
		}
		return d.issued(g, note{kind: EntryAdjust, unit: op.Unit, reason: op.Reason})
	}
	needed := -op.Amount
	q := d.quote(Price{Unit: op.Unit}, needed, "")
	if !q.payable() {
		return Outcome{Reason: Insufficient, Balance: d.balance(op.Unit), Refusal: &Refusal{
			Unit: op.Unit, Needed: needed, Available: q.available, Held: q.held,
			Active: d.state.Account.Active, MaxActive: d.plan.MaxActive, Plan: d.plan.Name, Cycle: d.currentCycle(op.Unit),
		}}
	}
	// From here on the command succeeds.
	parts, missing := d.allocate(q.pockets, needed)
	assert(missing == 0, "what is available covers the adjustment")
	d.post(note{kind: EntryAdjust, unit: op.Unit, reason: op.Reason}, func(p *posting) {
		for _, part := range parts {
			p.void(part.grant, part.amount)
		}
	})
	return Outcome{Changed: true, Balance: d.balance(op.Unit)}
}
