package holdfast

// Charge reserves and commits in one decision, for usage that needs no job in between: imports, small actions. The rules
// and the answers are those of the two. It needs a key and creates an unknown account.
//
// Refuses what Reserve refuses.
type Charge struct {
	Reserve
	Amount *Amount // what it came to; nil: what Quantity or Usage cost
}

// Name is "charge".
func (Charge) Name() string { return "charge" }

func (op Charge) check(p *problems) {
	op.Reserve.check(p)
	p.notNegative("amount", op.Amount)
	if op.Job != nil {
		p.add("job", "leave it out: a charge is for work that is done")
	}
}

func (op Charge) print(f *printer) {
	op.Reserve.print(f)
	f.optional("amount", op.Amount)
}

func (op Charge) decide(d *decision) Outcome {
	r, refusal := op.reserve(d)
	if refusal != nil {
		return *refusal
	}
	if op.DryRun {
		outcome := d.done(r)
		outcome.DryRun = true
		return outcome
	}
	figure := r.Reserved
	if op.Amount != nil {
		figure = *op.Amount
	}
	d.report(r, op.Usage)
	return d.commit(r, figure, "")
}
