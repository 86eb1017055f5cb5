package holdfast

import (
	"bytes"
	"cmp"
	"maps"
	"slices"
	"time"
)

// State is all that a decision about one account may see: the account, its open grants, the reservations that the
// batch's commands name (with their grants, open or not), overdue reservations up to MaxOverdue, and the answers recorded
// under the commands' keys. It does not grow with history.
//
// A store fills the exported fields. Decide works on it in place and remembers what it changed.
type State struct {
	Account      Account
	Grants       []*Grant
	Reservations []*Reservation
	Answers      []*Answer
	Payments     []*Payment // those that the commands name
	// MoreOverdue says that further overdue reservations were not loaded.
	MoreOverdue bool
	// Zones are not stored: whoever decides passes in what the account's names of zones stand for.
	Zones Zones

	dirty dirty

	reservations map[ID]*Reservation // of Reservations and Answers: see lookUp
	answers      map[string]*Answer
}

type dirty struct {
	account                       bool
	newGrants, grants             map[ID]bool
	newReservations, reservations map[ID]bool
	answers                       map[string]bool
	payments                      map[ID]bool
	entries                       []Entry
	events                        []Event
	notices                       []Notice
	withdrawn                     []Withdrawn
	erase                         bool
}

// any reports whether anything was changed. Every decision of a batch asks, so it collects nothing.
func (d *dirty) any() bool {
	return d.account || len(d.newGrants)+len(d.grants)+len(d.newReservations)+len(d.reservations)+len(d.answers)+len(d.payments)+len(d.entries)+len(d.events)+len(d.notices)+len(d.withdrawn) > 0
}

// NewState is the state of an account that nobody has stored yet.
func NewState(project, name string) *State {
	return &State{Account: Account{ID: AccountIDOf(project, name), Project: project, Name: name, Notices: true}}
}

// Exists reports whether the account is stored, or will be with these changes.
func (s *State) Exists() bool { return s.Account.Version > 0 || s.dirty.account }

// Clone is a deep copy, changes included.
func (s *State) Clone() *State {
	copied := *s
	copied.Grants = cloneEach(s.Grants)
	copied.Answers = cloneEach(s.Answers)
	copied.Payments = cloneEach(s.Payments)
	copied.Reservations = make([]*Reservation, len(s.Reservations))
	for i, r := range s.Reservations {
		reservation := r.clone()
		copied.Reservations[i] = &reservation
	}
	copied.reservations, copied.answers = nil, nil
	copied.dirty = dirty{
		account:   s.dirty.account,
		newGrants: cloneMap(s.dirty.newGrants), grants: cloneMap(s.dirty.grants),
		newReservations: cloneMap(s.dirty.newReservations), reservations: cloneMap(s.dirty.reservations),
		answers: cloneMap(s.dirty.answers), payments: cloneMap(s.dirty.payments),
		entries: slices.Clone(s.dirty.entries), events: slices.Clone(s.dirty.events),
		notices: slices.Clone(s.dirty.notices), withdrawn: slices.Clone(s.dirty.withdrawn), erase: s.dirty.erase,
	}
	return &copied
}

// Grant returns a loaded grant.
func (s *State) Grant(id ID) (*Grant, bool) {
	for _, g := range s.Grants {
		if g.ID == id {
			return g, true
		}
	}
	return nil, false
}

// Reservation returns a loaded reservation.
func (s *State) Reservation(id ID) (*Reservation, bool) {
	return lookUp(s.Reservations, &s.reservations, func(r *Reservation) ID { return r.ID }, id)
}

// Answer returns what was recorded under a key.
func (s *State) Answer(key string) (*Answer, bool) {
	return lookUp(s.Answers, &s.answers, func(a *Answer) string { return a.Key }, key)
}

// indexed is how many items are looked through one by one: a batch may look for one of five hundred for each of its commands.
const indexed = 16

// lookUp finds an item of a list that only grows. All but the last few are in the index.
func lookUp[K comparable, T any](list []*T, index *map[K]*T, name func(*T) K, wanted K) (*T, bool) {
	rest := list[min(len(*index), len(list)):]
	if len(rest) >= indexed {
		if *index == nil {
			*index = make(map[K]*T, 2*len(list))
		}
		for _, item := range rest {
			(*index)[name(item)] = item
		}
		rest = nil
	}
	if item, ok := (*index)[wanted]; ok {
		return item, true
	}
	for _, item := range rest {
		if name(item) == wanted {
			return item, true
		}
	}
	return nil, false
}

// Payment returns a loaded payment.
func (s *State) Payment(id ID) (*Payment, bool) {
	for _, p := range s.Payments {
		if p.ID == id {
			return p, true
		}
	}
	return nil, false
}

func (s *State) addPayment(p *Payment) {
	s.Payments = append(s.Payments, p)
	mark(&s.dirty.payments, p.ID)
}

func (s *State) touchPayment(p *Payment) { mark(&s.dirty.payments, p.ID) }

// overdue are the loaded reservations that the sweeper may expire, the longest overdue first.
func (s *State) overdue(now time.Time) []*Reservation {
	var due []*Reservation
	for _, r := range s.Reservations {
		if r.Overdue(now) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b *Reservation) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return due
}

func (s *State) addGrant(g *Grant) {
	s.Grants = append(s.Grants, g)
	mark(&s.dirty.newGrants, g.ID)
}

func (s *State) touchGrant(g *Grant) {
	if !s.dirty.newGrants[g.ID] {
		mark(&s.dirty.grants, g.ID)
	}
}

func (s *State) addReservation(r *Reservation) {
	s.Reservations = append(s.Reservations, r)
	mark(&s.dirty.newReservations, r.ID)
}

func (s *State) touchReservation(r *Reservation) {
	if !s.dirty.newReservations[r.ID] {
		mark(&s.dirty.reservations, r.ID)
	}
}

// erase forgets what is personal about the account's reservations, loaded or not.
func (s *State) erase() {
	s.dirty.erase = true
	for _, r := range s.Reservations {
		r.Metadata = nil
	}
	for _, a := range s.Answers {
		a.Outcome.ForgetPerson()
	}
}

func (s *State) touchAccount() { s.dirty.account = true }

func (s *State) record(a *Answer) {
	if known, ok := s.Answer(a.Key); ok {
		*known = *a
	} else {
		s.Answers = append(s.Answers, a)
	}
	mark(&s.dirty.answers, a.Key)
}

func mark[K comparable](set *map[K]bool, key K) {
	if *set == nil {
		*set = map[K]bool{}
	}
	(*set)[key] = true
}

func cloneEach[T any](list []*T) []*T {
	copied := make([]*T, len(list))
	for i, item := range list {
		value := *item
		copied[i] = &value
	}
	return copied
}

func cloneMap[K comparable](set map[K]bool) map[K]bool {
	if set == nil {
		return nil
	}
	copied := make(map[K]bool, len(set))
	for key := range set {
		copied[key] = true
	}
	return copied
}

// sortedKeys are a map's keys in an order that is always the same. Most maps of a decision are empty.
func sortedKeys[V any](m map[string]V) []string {
	if len(m) == 0 {
		return nil
	}
	return slices.Sorted(maps.Keys(m))
}
