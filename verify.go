package holdfast

import (
	"fmt"
	"iter"
)

// Verify proves rules 1 to 3 of docs/concepts/invariants.md for one account, from everything that is stored of it, and
// returns every difference in words; none means it holds. It needs no catalog and reads each sequence once.
func Verify(account *Account, grants []*Grant, reservations iter.Seq2[*Reservation, error], entries iter.Seq2[Entry, error]) ([]string, error) {
	v := verification{grants: map[ID]*Grant{}, held: map[ID]Amount{}, used: map[ID]Amount{}, sums: map[ID]*Delta{}, reserved: map[string]Amount{}, owed: map[string]Amount{}}
	for _, g := range grants {
		v.grants[g.ID] = g
		if err := (&State{Grants: []*Grant{g}}).Check(); err != nil {
			v.differ("%v", err)
		}
	}
	active := 0
	for r, err := range reservations {
		if err != nil {
			return nil, err
		}
		v.reservation(r)
		if r.takesSlot() {
			active++
		}
	}
	if active != account.Active {
		v.differ("the account counts %d active reservations, %d are live", account.Active, active)
	}
	var last int64
	for e, err := range entries {
		if err != nil {
			return nil, err
		}
		if last++; e.No != last {
			v.differ("entry %d follows entry %d", e.No, last-1)
			last = e.No
		}
		v.entry(&e)
	}
	for _, unit := range sortedKeys(v.owed) {
		if v.owed[unit] != account.Debts[unit] {
			v.differ("the account owes %d %s, its entries add up to %d", account.Debts[unit], unit, v.owed[unit])
		}
	}
	for _, unit := range sortedKeys(account.Debts) {
		if _, told := v.owed[unit]; !told {
			v.differ("the account owes %d %s, of which no entry tells", account.Debts[unit], unit)
		}
	}
	if last != account.LastEntry {
		v.differ("the account's last entry is %d, the ledger's %d", account.LastEntry, last)
	}
	for _, g := range grants {
		sum := v.sums[g.ID]
		if sum == nil {
			sum = &Delta{}
		}
		if sum.Granted != g.Granted || sum.Reserved != g.Reserved || sum.Used != g.Used || sum.Voided != g.Voided {
			v.differ("grant %s says granted %d, reserved %d, used %d, voided %d; its entries add up to %d, %d, %d, %d",
				g.ID, g.Granted, g.Reserved, g.Used, g.Voided, sum.Granted, sum.Reserved, sum.Used, sum.Voided)
		}
		if v.held[g.ID] != g.Reserved {
			v.differ("grant %s holds %d, its live reservations %d", g.ID, g.Reserved, v.held[g.ID])
		}
		if v.used[g.ID] != g.Used {
			v.differ("grant %s was charged %d, its reservations and the debts that it repaid %d", g.ID, g.Used, v.used[g.ID])
		}
	}
	return v.differences, nil
}

type verification struct {
	grants      map[ID]*Grant
	held, used  map[ID]Amount
	sums        map[ID]*Delta
	reserved    map[string]Amount // per unit, as the entries so far add up
	owed        map[string]Amount
	differences []string
}

func (v *verification) differ(format string, args ...any) {
	v.differences = append(v.differences, fmt.Sprintf(format, args...))
}

func (v *verification) reservation(r *Reservation) {
	s := State{Reservations: []*Reservation{r}}
	for _, a := range r.Allocations {
		g, ok := v.grants[a.Grant]
		if !ok {
			v.differ("reservation %s took from grant %s, which is not there", r.ID, a.Grant)
			return
		}
		s.Grants = append(s.Grants, g)
		if r.Live() {
			v.held[a.Grant] += a.Reserved
		}
		v.used[a.Grant] += a.Used - a.Refunded
	}
	s.Grants = distinct(s.Grants) // a late commit may take from the same grant again
	if err := s.Check(); err != nil {
		v.differ("%v", err)
	}
}

func (v *verification) entry(e *Entry) {
	for _, delta := range e.Deltas {
		g, ok := v.grants[delta.Grant]
		if !ok {
			v.differ("entry %d changes grant %s, which is not there", e.No, delta.Grant)
			continue
		}
		if g.Unit != e.Unit {
			v.differ("entry %d is about %s and changes a grant of %s", e.No, e.Unit, g.Unit)
		}
		sum := v.sums[delta.Grant]
		if sum == nil {
			sum = &Delta{}
			v.sums[delta.Grant] = sum
		}
		sum.Granted += delta.Granted
		sum.Reserved += delta.Reserved
		sum.Used += delta.Used
		sum.Voided += delta.Voided
		v.reserved[g.Unit] += delta.Reserved
		if e.Kind == EntryRepay {
			v.used[delta.Grant] += delta.Used
		}
	}
	if e.Debt != 0 {
		v.owed[e.Unit] += e.Debt
	}
	if e.Owed != v.owed[e.Unit] {
		v.differ("entry %d says that %d %s were owed after it; the entries so far add up to %d", e.No, e.Owed, e.Unit, v.owed[e.Unit])
	}
	if e.Reserved != v.reserved[e.Unit] {
		v.differ("entry %d says that %d %s were reserved after it; the entries so far add up to %d", e.No, e.Reserved, e.Unit, v.reserved[e.Unit])
	}
}

func distinct(grants []*Grant) []*Grant {
	seen := map[ID]bool{}
	var once []*Grant
	for _, g := range grants {
		if !seen[g.ID] {
			seen[g.ID] = true
			once = append(once, g)
		}
	}
	return once
}
