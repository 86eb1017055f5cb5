package postgres

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

var errReadOnly = errors.New("the database was opened for reading only")

// Load takes the locks first, in the order of ids, and reads in later statements of the same round trip, so that no
// snapshot is older than the lock. What is seldom wanted takes a second round trip: making accounts that are not there,
// and reading grants that are not open any more.
//
// An account that another transaction holds is waited for, up to the patience of the options, where its want says so or
// where it is the only one; otherwise it is skipped. A new account is locked by making it. That can wait, too, for another
// transaction that makes the same one; among several accounts this wait is short, and afterwards all new ones are skipped.
func (tx *transaction) Load(ctx context.Context, wants []store.Want) ([]*holdfast.State, error) {
	const op = "load accounts"
	if tx.begun {
		return nil, misuse(op, "a transaction loads once")
	}
	tx.begun = true
	if tx.sharded() && len(wants) > 1 {
		return nil, misuse(op, "a sharded database loads one account per transaction")
	}
	l := newLoading(wants)
	err := tx.load(ctx, op, l)
	if errors.Is(err, errNewIsHeld) {
		l = newLoading(wants)
		l.skipNew()
		err = tx.load(ctx, op, l)
	}
	if err != nil {
		return nil, failed(op, err)
	}
	tx.places = l.places
	tx.wanted, tx.made, tx.unanswered = make(map[holdfast.AccountID]bool, len(wants)), l.made, make(map[answerKey]bool, len(l.keys.keys))
	states := make([]*holdfast.State, len(wants))
	for i := range wants {
		if states[i] = l.state(&wants[i]); states[i] != nil {
			tx.wanted[wants[i].Account] = wants[i].Create
			for _, key := range wants[i].Keys {
				if _, recorded := states[i].Answer(key); !recorded {
					tx.unanswered[answerKey{wants[i].Account, key}] = true
				}
			}
		}
	}
	return states, nil
}

func (tx *transaction) sharded() bool { return tx.db != nil && tx.db.options.Sharded }

func (tx *transaction) patience() time.Duration {
	if tx.db == nil {
		return defaultPatience
	}
	return tx.db.options.Patience
}

func (tx *transaction) load(ctx context.Context, op string, l *loading) error {
	if err := tx.enter(ctx, op); err != nil {
		return err
	}
	err := tx.read(ctx, l)
	if err != nil {
		tx.end().undo(ctx, err)
	}
	return err
}

func (tx *transaction) read(ctx context.Context, l *loading) error {
	p := &pipeline{}
	tx.session.begin(p, tx.patience())
	if tx.sharded() {
		l.lockByWriting(p)
	} else {
		l.lock(p)
	}
	l.readOwned(p)
	tx.session.loaded(p)
	if err := p.run(ctx, tx.session); err != nil {
		return err
	}
	if missing := l.missing(); missing != nil && !tx.sharded() {
		p := &pipeline{}
		tx.session.resume(p, tx.patience())
		missing.make(p, tx.patience())
		missing.lock(p)
		missing.readOwned(p)
		tx.session.loaded(p)
		if err := p.run(ctx, tx.session); err != nil {
			return err
		}
		l.made = append(l.made, missing.made...)
	}
	if closed := l.closed(); len(closed.accounts) > 0 {
		p := &pipeline{}
		tx.session.resume(p, tx.patience())
		p.read(l.grant, selectGrants, closed.accounts, closed.ids)
		tx.session.loaded(p)
		if err := p.run(ctx, tx.session); err != nil {
			return err
		}
	}
	return l.tellSkipped(ctx, tx.session)
}

// loading is what is asked for, as columns, and what has come back.
type loading struct {
	wants []store.Want
	alone bool // there is no other want

	waiting, passing         list[uuid] // accounts to wait for, and to skip where they are held
	makeWaiting, makePassing newAccounts
	skipsNew                 bool // see skipNew

	named rowsOf // reservations
	paid  rowsOf // payments
	due   struct {
		accounts list[uuid]
		at       list[moment]
	}
	keys struct {
		accounts list[uuid]
		keys     list[string]
	}

	accounts     map[holdfast.AccountID]*holdfast.Account // locked
	made         []holdfast.AccountID
	there        map[holdfast.AccountID]bool // seen without the lock
	grants       map[holdfast.AccountID][]*holdfast.Grant
	reservations map[row]*holdfast.Reservation
	overdue      map[holdfast.AccountID][]*holdfast.Reservation // one more than are wanted, where there are more
	answers      map[answerKey]*holdfast.Answer
	payments     map[row]*holdfast.Payment
	places       places
}

// places are where the rows are stored that may be changed.
type places struct {
	accounts             map[holdfast.AccountID]place
	grants, reservations map[row]place
}

type row struct {
	account holdfast.AccountID
	id      holdfast.ID
}

// rowsOf are rows that accounts own, as columns.
type rowsOf struct{ accounts, ids list[uuid] }

func (r *rowsOf) add(account holdfast.AccountID, id holdfast.ID) {
	r.accounts, r.ids = append(r.accounts, uuid(account)), append(r.ids, uuid(id))
}

// newAccounts are those that may be made, as columns.
type newAccounts struct {
	accounts        list[uuid]
	projects, names list[string]
}

func (n *newAccounts) add(want *store.Want) {
	if want.Create && want.Name != "" {
		n.accounts = append(n.accounts, uuid(want.Account))
		n.projects = append(n.projects, want.Project)
		n.names = append(n.names, want.Name)
	}
}

type answerKey struct {
	account holdfast.AccountID
	key     string
}

func newLoading(wants []store.Want) *loading {
	l := &loading{
		wants: wants, alone: len(wants) == 1,
		accounts: make(map[holdfast.AccountID]*holdfast.Account, len(wants)), grants: make(map[holdfast.AccountID][]*holdfast.Grant, len(wants)),
		reservations: map[row]*holdfast.Reservation{}, overdue: map[holdfast.AccountID][]*holdfast.Reservation{}, answers: map[answerKey]*holdfast.Answer{},
		payments: map[row]*holdfast.Payment{},
		places:   places{make(map[holdfast.AccountID]place, len(wants)), make(map[row]place, len(wants)), map[row]place{}},
	}
	// Locks are taken in the order of ids, by everybody: two transactions never wait for each other.
	sorted := make([]*store.Want, len(wants))
	for i := range wants {
		sorted[i] = &wants[i]
	}
	slices.SortFunc(sorted, func(a, b *store.Want) int { return bytes.Compare(a.Account[:], b.Account[:]) })
	for _, want := range sorted {
		l.ask(want)
	}
	return l
}

// waitsFor: whoever is alone keeps nobody else waiting.
func (l *loading) waitsFor(want *store.Want) bool { return want.Wait || l.alone }

// ask notes what is wanted of one account.
func (l *loading) ask(want *store.Want) {
	account := uuid(want.Account)
	if l.waitsFor(want) {
		l.waiting = append(l.waiting, account)
		l.makeWaiting.add(want)
	} else {
		l.passing = append(l.passing, account)
		l.makePassing.add(want)
	}
	for _, id := range want.Reservations {
		l.named.add(want.Account, id)
	}
	for _, id := range want.Payments {
		l.paid.add(want.Account, id)
	}
	for _, key := range want.Keys {
		l.keys.accounts, l.keys.keys = append(l.keys.accounts, account), append(l.keys.keys, key)
	}
	if !want.OverdueAt.IsZero() {
		l.due.accounts, l.due.at = append(l.due.accounts, account), append(l.due.at, moment(want.OverdueAt))
	}
}

// missing asks for the accounts that were not locked and may be made, once more: nil where there are none. Some may be held
// by others, and are not made. What is found goes where the rest was found.
func (l *loading) missing() *loading {
	m := &loading{
		alone: l.alone, accounts: l.accounts, grants: l.grants, reservations: l.reservations, overdue: l.overdue, answers: l.answers,
		payments: l.payments, places: l.places,
	}
	for i := range l.wants {
		want := &l.wants[i]
		if want.Create && want.Name != "" && l.accounts[want.Account] == nil && (l.waitsFor(want) || !l.skipsNew) {
			m.wants = append(m.wants, *want)
		}
	}
	if len(m.wants) == 0 {
		return nil
	}
	slices.SortFunc(m.wants, func(a, b store.Want) int { return bytes.Compare(a.Account[:], b.Account[:]) })
	for i := range m.wants {
		want := &m.wants[i]
		delete(m.grants, want.Account) // read without the lock, as was the rest
		delete(m.overdue, want.Account)
		m.ask(want)
	}
	return m
}

// errNewIsHeld is the cause where making an account had to wait for another transaction that makes the same one, while
// others of the batch need not have waited. Which of the new ones it was the server does not tell.
var errNewIsHeld = errors.New("another transaction is making one of the new accounts")

// patienceWithOthers is how long making accounts may keep the others of a batch: longer than another server's batch takes,
// and shorter than anybody notices.
const patienceWithOthers = 100 * time.Millisecond

// skipNew makes none of the accounts that are not waited for: those that are not there are as good as held.
func (l *loading) skipNew() { l.skipsNew = true }

// lock locks what is there. Accounts to wait for come first: nothing that was taken in passing is then held during a wait.
func (l *loading) lock(p *pipeline) {
	if len(l.waiting) > 0 {
		p.read(l.locked, lockAccounts, l.waiting)
	}
	if len(l.passing) > 0 {
		p.read(l.locked, lockFreeAccounts, l.passing)
	}
}

// make makes what is not there, in the order of ids, so that it can be locked.
func (l *loading) make(p *pipeline, patience time.Duration) {
	if n := &l.makeWaiting; len(n.accounts) > 0 {
		p.then(makeAccounts, n.accounts, n.projects, n.names)
	}
	if n := &l.makePassing; len(n.accounts) > 0 {
		p.then(setLockTimeout, milliseconds(min(patience, patienceWithOthers)))
		p.then(makeAccounts, n.accounts, n.projects, n.names).meaning("55P03", store.Conflict, errNewIsHeld)
		p.then(setLockTimeout, milliseconds(patience))
	}
}

// By primary key; it waits for another transaction that is making the same account, and does nothing where it was made.
// Save removes what it does not store.
var makeAccounts = `INSERT INTO holdfast.accounts (account_id, project, name, version, last_entry, active, blocked, notices,
		created_at, decided_at, plan, language, time_zone)
	SELECT account_id, project, name, 0, 0, 0, false, false, 'epoch', 'epoch', '', '', ''
	FROM ` + given(`account_id uuid, project text, name text`) + ` made
	ON CONFLICT (account_id) DO NOTHING`

// By primary key, one after the other in the order of the list, which is that of the ids.
const (
	lockAccounts     = lockEach + `)` + ` a`
	lockFreeAccounts = lockEach + ` SKIP LOCKED) a`

	lockEach = `SELECT ` + accountColumns + `, a.place FROM (SELECT unnest($1::uuid[]) AS account_id) wanted
	CROSS JOIN LATERAL (SELECT named.ctid AS place, named.* FROM holdfast.accounts named WHERE named.account_id = wanted.account_id FOR UPDATE`
)

// lockByWriting is how a sharded database must be locked: reading FOR UPDATE there does not keep a shard from moving away
// with writes of others in it; a write does.
func (l *loading) lockByWriting(p *pipeline) {
	if n := &l.makeWaiting; len(n.accounts) > 0 {
		p.read(l.locked, makeOrTouchAccount, n.accounts[0], n.projects[0], n.names[0])
	} else if len(l.waiting) > 0 {
		p.read(l.locked, touchAccount, l.waiting[0])
	}
}

// By primary key.
const makeOrTouchAccount = `INSERT INTO holdfast.accounts AS a (account_id, project, name, version, last_entry, active, blocked, notices,
		created_at, decided_at, plan, language, time_zone)
	VALUES ($1::uuid, $2::text, $3::text, 0, 0, 0, false, false, 'epoch', 'epoch', '', '', '')
	ON CONFLICT (account_id) DO UPDATE SET version = a.version
	RETURNING ` + accountColumns + `, a.ctid`

// By primary key.
const touchAccount = `UPDATE holdfast.accounts AS a SET version = a.version WHERE a.account_id = $1::uuid RETURNING ` + accountColumns + `, a.ctid`

func (l *loading) locked(rows pgx.Rows) error {
	var at place
	a, err := scanAccount(rows, &at)
	if err != nil {
		return err
	}
	l.accounts[a.ID], l.places.accounts[a.ID] = &a, at
	if a.Version == 0 {
		l.made = append(l.made, a.ID)
	}
	return nil
}

// readOwned reads what the accounts own. Of accounts that were skipped, what is read here is not looked at.
func (l *loading) readOwned(p *pipeline) {
	if len(l.wants) > 0 {
		p.read(l.grant, selectOpenGrants, slices.Concat(l.waiting, l.passing))
	}
	if len(l.named.accounts) > 0 {
		p.read(l.reservation, selectReservations, l.named.accounts, l.named.ids)
	}
	if len(l.due.accounts) > 0 {
		p.read(l.overdueOne, selectOverdue, l.due.accounts, l.due.at, holdfast.MaxOverdue+1)
	}
	if len(l.paid.accounts) > 0 {
		p.read(l.payment, selectPayments, l.paid.accounts, l.paid.ids)
		p.read(l.bought, selectBought, l.paid.accounts, l.paid.ids)
	}
	if len(l.keys.accounts) > 0 {
		p.read(l.answer, selectAnswers, l.keys.accounts, l.keys.keys)
	}
}

// By the partial index open_grants: closed grants are not even looked at.
const (
	selectOpenGrants    = `SELECT ` + grantColumns + `, g.ctid` + openGrants
	selectGrantsOfState = `SELECT ` + grantColumns + openGrants // that is only looked at

	openGrants = ` FROM holdfast.grants g WHERE g.account_id = ANY ($1::uuid[]) AND g.open`
)

// By primary key, once per row of wanted. LATERAL with OFFSET 0 is what holds the planner to that: of a join it may read
// the table first, from one end of the index to the other, and a plan that was made while the table was empty stays.
var selectReservations = `SELECT ` + reservationColumns + `, r.place
	FROM ` + given(`account_id uuid, reservation_id uuid`) + ` wanted
	CROSS JOIN LATERAL (
		SELECT named.ctid AS place, named.* FROM holdfast.reservations named
		WHERE named.account_id = wanted.account_id AND named.reservation_id = wanted.reservation_id OFFSET 0
	) r`

// By primary key, as in selectReservations: grants that reservations took from and that are not open any more.
var selectGrants = `SELECT ` + grantColumns + `, g.place
	FROM ` + given(`account_id uuid, grant_id uuid`) + ` wanted
	CROSS JOIN LATERAL (
		SELECT named.ctid AS place, named.* FROM holdfast.grants named
		WHERE named.account_id = wanted.account_id AND named.grant_id = wanted.grant_id OFFSET 0
	) g`

// A range of the partial index live_reservations for each account, in its order: the longest overdue first, no further than
// the bound, without sorting. An interval is [start, end), so that expires_at itself is overdue. The account is locked by an
// earlier statement, so its last decision is seen as it is.
var selectOverdue = `SELECT ` + reservationColumns + `, r.place
	FROM ` + given(`account_id uuid, at timestamptz`) + ` wanted
	CROSS JOIN LATERAL (
		SELECT live.ctid AS place, live.* FROM holdfast.reservations live
		WHERE live.account_id = wanted.account_id AND live.ended_at IS NULL AND live.expires_at <= greatest(wanted.at,
			(SELECT a.decided_at FROM holdfast.accounts a WHERE a.account_id = wanted.account_id))
		ORDER BY live.expires_at, live.reservation_id LIMIT $3::integer
	) r`

// By primary key.
var selectAnswers = `SELECT ` + answerColumns + `
	FROM ` + given(`account_id uuid, key text`) + ` wanted
	CROSS JOIN LATERAL (
		SELECT recorded.* FROM holdfast.answers recorded
		WHERE recorded.account_id = wanted.account_id AND recorded.key = wanted.key OFFSET 0
	) w`

// By primary key.
var selectPayments = `SELECT ` + paymentColumns + `
	FROM ` + given(`account_id uuid, payment_id uuid`) + ` wanted
	CROSS JOIN LATERAL (
		SELECT named.* FROM holdfast.payments named
		WHERE named.account_id = wanted.account_id AND named.payment_id = wanted.payment_id OFFSET 0
	) b`

// By the partial index bought_grants: what a payment bought, as far as it is not open any more.
var selectBought = `SELECT ` + grantColumns + `, g.place
	FROM ` + given(`account_id uuid, payment_id uuid`) + ` wanted
	CROSS JOIN LATERAL (
		SELECT named.ctid AS place, named.* FROM holdfast.grants named
		WHERE named.account_id = wanted.account_id AND named.payment = wanted.payment_id AND NOT named.open OFFSET 0
	) g`

func (l *loading) payment(rows pgx.Rows) error {
	account, b, err := scanPayment(rows)
	if err == nil {
		l.payments[row{account, b.ID}] = b
	}
	return err
}

// bought is a grant that was read with a payment. The same payment may be named twice.
func (l *loading) bought(rows pgx.Rows) error {
	account, g, err := l.scanGrant(rows)
	if err == nil && !slices.ContainsFunc(l.grants[account], func(known *holdfast.Grant) bool { return known.ID == g.ID }) {
		l.grants[account] = append(l.grants[account], g)
	}
	return err
}

func (l *loading) grant(rows pgx.Rows) error {
	account, g, err := l.scanGrant(rows)
	if err == nil {
		l.grants[account] = append(l.grants[account], g)
	}
	return err
}

// scanGrant and scanReservation note where the row is.
func (l *loading) scanGrant(rows pgx.Rows) (holdfast.AccountID, *holdfast.Grant, error) {
	var at place
	account, g, err := scanGrant(rows, &at)
	if err == nil {
		l.places.grants[row{account, g.ID}] = at
	}
	return account, g, err
}

func (l *loading) scanReservation(rows pgx.Rows) (holdfast.AccountID, *holdfast.Reservation, error) {
	var at place
	account, r, err := scanReservation(rows, &at)
	if err == nil {
		l.places.reservations[row{account, r.ID}] = at
	}
	return account, r, err
}

func (l *loading) reservation(rows pgx.Rows) error {
	account, r, err := l.scanReservation(rows)
	if err == nil {
		l.reservations[row{account, r.ID}] = r
	}
	return err
}

func (l *loading) overdueOne(rows pgx.Rows) error {
	account, r, err := l.scanReservation(rows)
	if err == nil {
		l.overdue[account] = append(l.overdue[account], r)
	}
	return err
}

func (l *loading) answer(rows pgx.Rows) error {
	account, w, err := scanAnswer(rows)
	if err == nil {
		l.answers[answerKey{account, w.Key}] = w
	}
	return err
}

// closed are the grants that the reservations took from and that were not read with the account: they are not open any
// more. Most reservations end before their grants do.
func (l *loading) closed() (missing rowsOf) {
	asked := map[row]bool{}
	look := func(account holdfast.AccountID, r *holdfast.Reservation) {
		if r == nil {
			return
		}
		for i := range r.Allocations {
			grant := r.Allocations[i].Grant
			if asked[row{account, grant}] || slices.ContainsFunc(l.grants[account], func(g *holdfast.Grant) bool { return g.ID == grant }) {
				continue
			}
			asked[row{account, grant}] = true
			missing.add(account, grant)
		}
	}
	for i := range l.wants {
		want := &l.wants[i]
		if l.accounts[want.Account] == nil {
			continue
		}
		for _, id := range want.Reservations {
			look(want.Account, l.reservations[row{want.Account, id}])
		}
		overdue, _ := l.longestOverdue(want.Account)
		for _, r := range overdue {
			look(want.Account, r)
		}
	}
	return missing
}

// tellSkipped finds out which of the accounts that were not locked are held by others, and which are not there at all.
// Most batches have neither, and need no further question.
func (l *loading) tellSkipped(ctx context.Context, through sender) error {
	var missing list[uuid]
	for _, account := range l.passing {
		if l.accounts[holdfast.AccountID(account)] == nil {
			missing = append(missing, account)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	l.there = map[holdfast.AccountID]bool{}
	p := &pipeline{}
	p.read(func(rows pgx.Rows) error {
		var account holdfast.AccountID
		err := scan(rows, (*uuid)(&account))
		l.there[account] = true
		return err
	}, selectThere, missing)
	return p.run(ctx, through)
}

// By primary key.
const selectThere = `SELECT account_id FROM holdfast.accounts WHERE account_id = ANY ($1::uuid[])`

// state puts together what was read of one account; nil where it was skipped.
func (l *loading) state(want *store.Want) *holdfast.State {
	account := l.accounts[want.Account]
	if account == nil && (l.there[want.Account] || l.skipsNew && want.Create && !l.waitsFor(want)) {
		return nil
	}
	if account == nil || account.Version == 0 {
		if want.Name != "" {
			return holdfast.NewState(want.Project, want.Name)
		}
		return &holdfast.State{Account: holdfast.Account{ID: want.Account}}
	}
	state := stateOf(account, l.grants[want.Account])
	for _, id := range want.Reservations {
		named := row{want.Account, id}
		if r := l.reservations[named]; r != nil {
			state.Reservations = append(state.Reservations, r)
			delete(l.reservations, named) // it may be named twice
		}
	}
	overdue, more := l.longestOverdue(want.Account)
	state.MoreOverdue = more
	for _, r := range overdue {
		if _, known := state.Reservation(r.ID); !known {
			state.Reservations = append(state.Reservations, r)
		}
	}
	for _, id := range want.Payments {
		if b := l.payments[row{want.Account, id}]; b != nil {
			if _, known := state.Payment(id); !known {
				state.Payments = append(state.Payments, b)
			}
		}
	}
	for _, key := range want.Keys {
		asked := answerKey{want.Account, key}
		if w := l.answers[asked]; w != nil {
			state.Answers = append(state.Answers, w)
			delete(l.answers, asked)
		}
	}
	return state
}

// longestOverdue are those that are wanted, and whether there are more.
func (l *loading) longestOverdue(account holdfast.AccountID) (overdue []*holdfast.Reservation, more bool) {
	overdue = l.overdue[account]
	slices.SortFunc(overdue, func(a, b *holdfast.Reservation) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	if len(overdue) > holdfast.MaxOverdue {
		return overdue[:holdfast.MaxOverdue], true
	}
	return overdue, false
}

// stateOf is an account with its grants, in the order that the contract promises.
func stateOf(account *holdfast.Account, grants []*holdfast.Grant) *holdfast.State {
	slices.SortFunc(grants, func(a, b *holdfast.Grant) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return &holdfast.State{Account: *account, Grants: grants}
}
