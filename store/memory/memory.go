package memory

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Store is safe for concurrent use.
type Store struct {
	// writer holds one token: a transaction owns it from Load to its end, so that one at a time decides, as in a database
	// with one writer. A channel and not a mutex, because a wait for it ends with the waiter's context.
	writer  chan struct{}
	closing chan struct{}

	mutex    sync.Mutex // everything below, for as long as a copy takes
	closed   bool
	accounts map[holdfast.AccountID]*account
	lookups
	relayed
	chats
}

var _ store.Store = (*Store)(nil)

// account is what is stored of one.
type account struct {
	row          holdfast.Account
	grants       map[holdfast.ID]*holdfast.Grant
	reservations map[holdfast.ID]*holdfast.Reservation
	live         map[holdfast.ID]*holdfast.Reservation // those of reservations that have not ended
	entries      map[int64]*holdfast.Entry
	answers      map[string]answer
	payments     map[holdfast.ID]*holdfast.Payment
	jobs         map[holdfast.ID]job
	notices      map[holdfast.ID]holdfast.Notice // by slot
	events       []holdfast.Event
	told         map[holdfast.ID]bool // the ids of events
}

// Open makes an empty store.
func Open() *Store {
	s := &Store{
		writer: make(chan struct{}, 1), closing: make(chan struct{}),
		accounts: map[holdfast.AccountID]*account{},
		lookups: lookups{
			projects: map[string]bool{}, keys: map[[32]byte]store.Key{}, claims: map[paymentKey]claimed{},
			names: map[paymentKey]string{}, orders: map[store.OrderName]store.Order{},
		},
		relayed: newRelayed(),
		chats:   newChats(),
	}
	s.writer <- struct{}{}
	return s
}

// Traits: one transaction may span any number of accounts.
func (s *Store) Traits() store.Traits { return store.Traits{} }

// Close forgets nothing, but answers nothing any more.
func (s *Store) Close() error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	return nil
}

// use runs do on what is stored, unless the store is closed or the caller has left.
func (s *Store) use(ctx context.Context, op string, do func() error) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.closed {
		return closed(op)
	}
	if err := ctx.Err(); err != nil {
		return &store.Error{Kind: store.Unavailable, Op: op, Err: err}
	}
	return do()
}

func closed(op string) error {
	return &store.Error{Kind: store.Unavailable, Op: op, Err: errors.New("the store is closed")}
}

func rejected(op string, err error) error {
	return &store.Error{Kind: store.Rejected, Op: op, Err: err}
}

type transaction struct {
	store  *Store
	wanted map[holdfast.AccountID]bool // what was loaded, and whether Save may insert it
	begun  bool                        // Load was called
	holds  bool                        // the writer's token
}

// Begin touches nothing.
func (s *Store) Begin(context.Context) (store.Tx, error) { return &transaction{store: s}, nil }

// Load takes the lock, then copies.
func (tx *transaction) Load(ctx context.Context, wants []store.Want) ([]*holdfast.State, error) {
	const op = "load accounts"
	if tx.begun {
		return nil, rejected(op, errors.New("a transaction loads once"))
	}
	tx.begun = true
	select {
	case <-tx.store.writer:
	case <-tx.store.closing:
		return nil, closed(op)
	case <-ctx.Done():
		return nil, &store.Error{Kind: store.Unavailable, Op: op, Err: ctx.Err()}
	}
	tx.holds = true
	tx.wanted = make(map[holdfast.AccountID]bool, len(wants))
	states := make([]*holdfast.State, len(wants))
	err := tx.store.use(ctx, op, func() (err error) {
		for i := range wants {
			tx.wanted[wants[i].Account] = wants[i].Create
			if states[i], err = tx.store.load(&wants[i]); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		tx.end()
		return nil, err
	}
	return states, nil
}

func (s *Store) load(want *store.Want) (*holdfast.State, error) {
	a, ok := s.accounts[want.Account]
	switch {
	case !ok && want.Name != "":
		return holdfast.NewState(want.Project, want.Name), nil
	case !ok:
		return &holdfast.State{Account: holdfast.Account{ID: want.Account}}, nil
	}
	state := a.state()
	for _, id := range want.Reservations {
		if r, ok := a.reservations[id]; ok {
			addReservation(state, r)
		}
	}
	if !want.OverdueAt.IsZero() {
		at := want.OverdueAt
		if a.row.DecidedAt.After(at) {
			at = a.row.DecidedAt
		}
		due := a.overdue(at)
		state.MoreOverdue = len(due) > holdfast.MaxOverdue
		for _, r := range due[:min(len(due), holdfast.MaxOverdue)] {
			addReservation(state, r)
		}
	}
	for _, r := range state.Reservations {
		for _, allocation := range r.Allocations {
			if _, known := state.Grant(allocation.Grant); known {
				continue
			}
			if g, ok := a.grants[allocation.Grant]; ok {
				state.Grants = append(state.Grants, copyGrant(g))
			}
		}
	}
	sortGrants(state.Grants)
	for _, id := range want.Payments {
		paid, stored := a.payments[id]
		if _, known := state.Payment(id); !stored || known {
			continue
		}
		state.Payments = append(state.Payments, copyPayment(paid))
		for _, g := range a.grants {
			if g.Payment == id && !g.Open {
				state.Grants = append(state.Grants, copyGrant(g))
			}
		}
	}
	for _, key := range want.Keys {
		if _, known := state.Answer(key); known {
			continue
		}
		if stored, ok := a.answers[key]; ok {
			loaded, err := stored.load()
			if err != nil {
				return nil, &store.Error{Kind: store.Fatal, Op: "load accounts", Err: err}
			}
			state.Answers = append(state.Answers, loaded)
		}
	}
	return state, nil
}

// state is the account and its open grants.
func (a *account) state() *holdfast.State {
	state := &holdfast.State{Account: copyAccount(a.row)}
	for _, g := range a.grants {
		if g.Open {
			state.Grants = append(state.Grants, copyGrant(g))
		}
	}
	sortGrants(state.Grants)
	return state
}

func sortGrants(grants []*holdfast.Grant) {
	slices.SortFunc(grants, func(a, b *holdfast.Grant) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
}

func addReservation(state *holdfast.State, r *holdfast.Reservation) {
	if _, known := state.Reservation(r.ID); !known {
		state.Reservations = append(state.Reservations, copyReservation(r))
	}
}

// Abort lets the lock go with nothing written.
func (tx *transaction) Abort(context.Context) error {
	tx.begun = true
	tx.end()
	return nil
}

func (tx *transaction) end() {
	if tx.holds {
		tx.holds = false
		tx.store.writer <- struct{}{}
	}
}

// Save writes all of it or nothing.
func (tx *transaction) Save(ctx context.Context, changes []holdfast.Changes) error {
	const op = "save accounts"
	if !tx.holds {
		return rejected(op, errors.New("a transaction saves once, after it has loaded"))
	}
	defer tx.end()
	return tx.store.use(ctx, op, func() error {
		w := &writing{store: tx.store, op: op}
		for i := range changes {
			if err := tx.save(w, &changes[i]); err != nil {
				w.undo()
				return err
			}
		}
		return nil
	})
}

func (tx *transaction) save(w *writing, changes *holdfast.Changes) error {
	create, loaded := tx.wanted[changes.Account.ID]
	if !loaded {
		return rejected(w.op, errors.New("only loaded accounts can be saved"))
	}
	if changes.Account.Version == 0 && !create {
		return rejected(w.op, errors.New("only accounts wanted with Create can be inserted"))
	}
	return w.account(changes)
}

// writing is one save. Every step notes how to take it back.
type writing struct {
	store *Store
	op    string
	steps []func()
}

func (w *writing) undo() {
	for _, step := range slices.Backward(w.steps) {
		step()
	}
}

// put writes one value of a map, and notes what was there.
func put[K comparable, V any](w *writing, rows map[K]V, key K, value V) {
	before, existed := rows[key]
	w.steps = append(w.steps, func() {
		if existed {
			rows[key] = before
		} else {
			delete(rows, key)
		}
	})
	rows[key] = value
}

func remove[K comparable, V any](w *writing, rows map[K]V, key K) {
	if before, existed := rows[key]; existed {
		w.steps = append(w.steps, func() { rows[key] = before })
		delete(rows, key)
	}
}

func (w *writing) conflict(why string) error {
	return &store.Error{Kind: store.Conflict, Op: w.op, Err: errors.New(why)}
}

// account writes the account first, so that a lost fence is found before anything else is tried, and then what it owns.
func (w *writing) account(changes *holdfast.Changes) error {
	row := copyAccount(changes.Account)
	a, exists := w.store.accounts[row.ID]
	switch {
	case exists && a.row.Version != row.Version, !exists && row.Version != 0:
		return w.conflict("the account was changed meanwhile")
	case !exists:
		a = &account{
			grants: map[holdfast.ID]*holdfast.Grant{}, reservations: map[holdfast.ID]*holdfast.Reservation{},
			live: map[holdfast.ID]*holdfast.Reservation{}, entries: map[int64]*holdfast.Entry{},
			answers: map[string]answer{}, payments: map[holdfast.ID]*holdfast.Payment{}, jobs: map[holdfast.ID]job{}, notices: map[holdfast.ID]holdfast.Notice{}, told: map[holdfast.ID]bool{},
		}
		put(w, w.store.accounts, row.ID, a)
	default: // what an account was made with is never written again
		row.Project, row.CreatedAt = a.row.Project, a.row.CreatedAt
		if !changes.Erase {
			row.Name = a.row.Name
		}
	}
	row.Version++
	if err := accountRules.check(&row); err != nil {
		return rejected(w.op, err)
	}
	before := a.row
	w.steps = append(w.steps, func() { a.row = before })
	a.row = row
	for _, write := range []func(*account, *holdfast.Changes) error{w.grants, w.reservations, w.jobs, w.entries, w.answers, w.payments, w.notices, w.events, w.erase} {
		if err := write(a, changes); err != nil {
			return err
		}
	}
	return nil
}

func (w *writing) grants(a *account, changes *holdfast.Changes) error {
	for _, g := range changes.NewGrants {
		if _, exists := a.grants[g.ID]; exists {
			return rejected(w.op, errors.New("the grant is stored already"))
		}
		g = copyGrant(g)
		if err := grantRules.check(g); err != nil {
			return rejected(w.op, err)
		}
		put(w, a.grants, g.ID, g)
	}
	for _, changed := range changes.Grants {
		stored, exists := a.grants[changed.ID]
		if !exists {
			return rejected(w.op, errors.New("the grant is not stored"))
		}
		g := copyGrant(stored) // what it was made with is never written again
		g.Reserved, g.Used, g.Voided, g.Open = changed.Reserved, changed.Used, changed.Voided, changed.Open
		g.Rolled, g.Moved, g.Revoked, g.Doomed, g.EndsAt = changed.Rolled, changed.Moved, changed.Revoked, changed.Doomed, changed.EndsAt
		g = copyGrant(g)
		if err := grantRules.check(g); err != nil {
			return rejected(w.op, err)
		}
		put(w, a.grants, g.ID, g)
	}
	return nil
}

func (w *writing) reservations(a *account, changes *holdfast.Changes) error {
	for _, r := range changes.NewReservations {
		if _, exists := a.reservations[r.ID]; exists {
			return rejected(w.op, errors.New("the reservation is stored already"))
		}
		if err := w.reservation(a, copyReservation(r)); err != nil {
			return err
		}
	}
	for _, changed := range changes.Reservations {
		stored, exists := a.reservations[changed.ID]
		if !exists {
			return rejected(w.op, errors.New("the reservation is not stored"))
		}
		r, frozen := copyReservation(changed), copyReservation(stored) // what was decided at the reserve is never written again
		r.Feature, r.Price, r.Policies, r.MaxHold = frozen.Feature, frozen.Price, frozen.Policies, frozen.MaxHold
		r.Key, r.Surface, r.Metadata = frozen.Key, frozen.Surface, frozen.Metadata
		r.CatalogVersion, r.TTL, r.CreatedAt = frozen.CatalogVersion, frozen.TTL, frozen.CreatedAt
		if r.Job != nil && frozen.Job != nil {
			r.Job.Queue, r.Job.MaxAttempts = frozen.Job.Queue, frozen.Job.MaxAttempts
		} else {
			r.Job = frozen.Job
		}
		if err := w.reservation(a, r); err != nil {
			return err
		}
	}
	return nil
}

// erase forgets what is personal about the account's reservations, also in recorded answers.
func (w *writing) erase(a *account, changes *holdfast.Changes) error {
	if !changes.Erase {
		return nil
	}
	for id, kept := range maps.Clone(a.reservations) {
		r := copyReservation(kept)
		r.Metadata = nil
		put(w, a.reservations, id, r)
		if r.Live() {
			put(w, a.live, id, r)
		}
	}
	for key, kept := range maps.Clone(a.answers) {
		given, err := kept.load()
		if err != nil {
			return rejected(w.op, err)
		}
		given.Outcome.ForgetPerson()
		if kept, err = keep(given); err != nil {
			return rejected(w.op, err)
		}
		put(w, a.answers, key, kept)
	}
	return nil
}

func (w *writing) reservation(a *account, r *holdfast.Reservation) error {
	if err := reservationRules.check(r); err != nil {
		return rejected(w.op, err)
	}
	put(w, a.reservations, r.ID, r)
	if r.Live() {
		put(w, a.live, r.ID, r)
	} else {
		remove(w, a.live, r.ID)
	}
	return nil
}

func (w *writing) entries(a *account, changes *holdfast.Changes) error {
	for i := range changes.Entries {
		e := copyEntry(&changes.Entries[i])
		if err := entryRules.check(e); err != nil {
			return rejected(w.op, err)
		}
		if _, exists := a.entries[e.No]; exists {
			return w.conflict("the entry's number was given to another meanwhile")
		}
		put(w, a.entries, e.No, e)
	}
	return nil
}

func (w *writing) answers(a *account, changes *holdfast.Changes) error {
	for _, given := range changes.Answers {
		kept, err := keep(given)
		if err != nil {
			return rejected(w.op, err)
		}
		put(w, a.answers, given.Key, kept)
	}
	return nil
}

func (w *writing) payments(a *account, changes *holdfast.Changes) error {
	for _, paid := range changes.Payments {
		put(w, a.payments, paid.ID, copyPayment(paid))
	}
	return nil
}

func (w *writing) events(a *account, changes *holdfast.Changes) error {
	for _, e := range changes.Events {
		if a.told[e.ID] {
			continue
		}
		e.At = stored(e.At)
		if err := eventRules.check(&e); err != nil {
			return rejected(w.op, err)
		}
		if _, exists := a.entries[e.Entry]; e.Entry != 0 && !exists {
			return rejected(w.op, errors.New("event_tells_of_an_entry_of_the_account"))
		}
		put(w, a.told, e.ID, true)
		before := a.events
		w.steps = append(w.steps, func() { a.events = before })
		a.events = append(a.events, e)
	}
	return nil
}

// ids are the keys of a map in ascending order.
func ids[ID ~[16]byte, V any](rows map[ID]V) []ID {
	return slices.SortedFunc(maps.Keys(rows), func(a, b ID) int {
		x, y := [16]byte(a), [16]byte(b)
		return bytes.Compare(x[:], y[:])
	})
}
