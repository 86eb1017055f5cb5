package holdfast

// owe lets the part of a charge that no pocket could pay become debt, up to the plan's limit, and returns how much did.
func (d *decision) owe(r *Reservation, amount Amount) Amount {
	unit := r.Price.Unit
	n := min(amount, d.plan.DebtLimits[unit]-d.state.Account.Debts[unit])
	if n <= 0 {
		return 0
	}
	d.post(note{kind: EntryDebt, unit: unit, reservation: r.ID}, func(p *posting) { p.owe(n) })
	return n
}

// repay takes what is owed from a pocket that was paid for: a purchase or a paid period, never a free allowance or a
// promotion. A pocket for certain features only pays for nothing else, and one that begins later does so when it begins.
func (d *decision) repay(g *Grant) {
	n := min(d.state.Account.Debts[g.Unit], g.Available())
	if n <= 0 || len(g.Features) > 0 || g.StartsAt.After(d.now) {
		return
	}
	d.post(note{kind: EntryRepay, unit: g.Unit, effectiveAt: latest(g.StartsAt, g.CreatedAt)}, func(p *posting) {
		p.use(g, n)
		p.owe(-n)
	})
}
