package holdfast

import "time"

// Advance applies what the passing of time has done to the account: what is left in a grant that ended is voided.
// An allowance's next cycle needs no act: it begins with the first allocation taken from it, and until then pockets
// shows it as not started. Reads and dry runs advance a copy and write nothing.
func (d *decision) advance() {
	d.voidEnded(func(g *Grant) time.Time { return g.EndsAt })
}

// cycle is the allowance's grant in force, or nil where its cycle has not started.
func (s *State) cycle(a *Allowance, now time.Time) *Grant {
	for _, g := range s.Grants {
		if g.Allowance == a.Key && g.Source == FromAllowance && g.InForce(now) {
			return g
		}
	}
	return nil
}

// nextCycle is the grant that would open if something were taken from the allowance now.
func (d *decision) nextCycle(a *Allowance) *Grant {
	return &Grant{
		ID:        cycleGrantID(d.state.Account.ID, a.Key, d.now.UnixMicro()),
		Unit:      a.Unit,
		Source:    FromAllowance,
		Allowance: a.Key,
		Priority:  FromAllowance.defaultPriority(),
		Granted:   a.Amount,
		StartsAt:  d.now,
		EndsAt:    d.now.Add(a.Every.Rolling),
		CreatedAt: d.now,
		Open:      true,
	}
}
