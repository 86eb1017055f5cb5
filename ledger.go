package holdfast

import (
	"maps"
	"time"
)

// Counters change in this file only, and only together with the entry that tells of it.

// posting is a ledger entry being written. Each of its moves changes one grant and notes the delta.
type posting struct {
	entry *Entry
	state *State
}

// note describes an entry apart from what it moves. The zero value of EffectiveAt means now.
type note struct {
	kind        EntryKind
	unit        string
	reservation ID
	reason      string
	effectiveAt time.Time
}

// post writes one entry with the moves made by write, and the outbox row that tells of it.
func (d *decision) post(n note, write func(p *posting)) {
	s := d.state
	s.Account.LastEntry++
	entry := Entry{
		No: s.Account.LastEntry, Kind: n.kind, Unit: n.unit, Reservation: n.reservation,
		Key: d.command.Key, Actor: d.command.Actor, Reason: n.reason, EffectiveAt: n.effectiveAt, RecordedAt: d.now,
	}
	if entry.EffectiveAt.IsZero() {
		entry.EffectiveAt = d.now
	}
	write(&posting{entry: &entry, state: s})
	for _, delta := range entry.Deltas {
		g, ok := s.Grant(delta.Grant)
		assert(ok && g.Unit == n.unit, "an entry moves one unit")
		g.Open = g.shouldBeOpen(d.now)
	}
	entry.Available, entry.Reserved = s.total(n.unit, d.now)
	entry.Owed = s.Account.Debts[n.unit]
	s.dirty.entries = append(s.dirty.entries, entry)
	d.tell(Event{ID: entryEventID(entry.No), Kind: n.kind.event(), Entry: entry.No, Reservation: n.reservation})
}

// total is what the stored grants of a unit hold: available now, and reserved wherever it is.
func (s *State) total(unit string, now time.Time) (available, reserved Amount) {
	for _, g := range s.Grants {
		if g.Unit != unit {
			continue
		}
		reserved += g.Reserved
		if g.InForce(now) {
			available += g.Available()
		}
	}
	return available, reserved
}

// issue opens a new pocket.
func (p *posting) issue(g *Grant) {
	assert(g.Granted > 0 && g.Reserved == 0 && g.Used == 0 && g.Voided == 0, "a grant begins full")
	p.state.addGrant(g)
	p.delta(g).Granted += g.Granted
}

// hold keeps an available amount for a reservation.
func (p *posting) hold(g *Grant, n Amount) { p.move(g, Delta{Reserved: n}) }

// returnHeld gives a held amount back to its pocket.
func (p *posting) returnHeld(g *Grant, n Amount) { p.move(g, Delta{Reserved: -n}) }

// useHeld charges a held amount.
func (p *posting) useHeld(g *Grant, n Amount) { p.move(g, Delta{Reserved: -n, Used: n}) }

// use charges an available amount that was not held.
func (p *posting) use(g *Grant, n Amount) { p.move(g, Delta{Used: n}) }

// unuse takes a charge back.
func (p *posting) unuse(g *Grant, n Amount) { p.move(g, Delta{Used: -n}) }

// void makes an available amount worthless.
func (p *posting) void(g *Grant, n Amount) { p.move(g, Delta{Voided: n}) }

// carry moves what is left in an ended cycle, as much as the new pocket holds, into that pocket.
func (p *posting) carry(from, to *Grant) {
	p.move(from, Delta{Voided: to.Granted})
	from.Rolled += to.Granted
	p.issue(to)
}

// sendOn voids an available amount that goes on to the account that took this one's place.
func (p *posting) sendOn(g *Grant, n Amount) {
	p.move(g, Delta{Voided: n})
	g.Moved += n
}

// revoked notes that a refund took so much of the grant back.
func (p *posting) revoked(g *Grant, n Amount) {
	g.Revoked += n
	p.state.touchGrant(g)
}

// doom notes that a held amount is taken back when it returns.
func (d *decision) doom(g *Grant, n Amount) {
	g.Doomed += n
	g.Revoked += n
	d.state.touchGrant(g)
}

// settleDoom notes that a doomed amount has returned and is void, or was used and will not return.
func (d *decision) settleDoom(g *Grant, n Amount) {
	g.Doomed -= n
	d.state.touchGrant(g)
}

// owe changes the account's debt in the entry's unit.
func (p *posting) owe(n Amount) {
	account := &p.state.Account
	debts := maps.Clone(account.Debts) // copies of the state share the map
	if debts == nil {
		debts = map[string]Amount{}
	}
	debts[p.entry.Unit] += n
	assert(debts[p.entry.Unit] >= 0, "a debt is repaid once")
	if debts[p.entry.Unit] == 0 {
		delete(debts, p.entry.Unit)
	}
	account.Debts = debts
	p.entry.Debt += n
}

func (p *posting) move(g *Grant, d Delta) {
	if d.Reserved == 0 && d.Used == 0 && d.Voided == 0 {
		return
	}
	g.Reserved += d.Reserved
	g.Used += d.Used
	g.Voided += d.Voided
	assert(g.Reserved >= 0 && g.Used >= 0 && g.Voided >= 0 && g.Available() >= 0, "counters stay within what was granted")
	p.state.touchGrant(g)
	noted := p.delta(g)
	noted.Reserved += d.Reserved
	noted.Used += d.Used
	noted.Voided += d.Voided
}

func (p *posting) delta(g *Grant) *Delta {
	for i := range p.entry.Deltas {
		if p.entry.Deltas[i].Grant == g.ID {
			return &p.entry.Deltas[i]
		}
	}
	p.entry.Deltas = append(p.entry.Deltas, Delta{Grant: g.ID})
	return &p.entry.Deltas[len(p.entry.Deltas)-1]
}

// takeSlot and freeSlot count the reservations that hold one.
func (d *decision) takeSlot() { d.state.Account.Active++ }

func (d *decision) freeSlot() {
	d.state.Account.Active--
	assert(d.state.Account.Active >= 0, "a slot is freed once")
}

// takeBack undoes an entry on a copy that shows the past.
func (s *State) takeBack(e *Entry) {
	for _, delta := range e.Deltas {
		if g, ok := s.Grant(delta.Grant); ok {
			g.Granted -= delta.Granted
			g.Reserved -= delta.Reserved
			g.Used -= delta.Used
			g.Voided -= delta.Voided
			if e.Kind == EntryRollover {
				g.Rolled -= delta.Voided
			}
		}
	}
	if e.Debt != 0 {
		p := posting{entry: &Entry{Unit: e.Unit}, state: s}
		p.owe(-e.Debt)
	}
}
