package sim_test

import (
	"bytes"
	"context"
	"iter"
	"reflect"
	"slices"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// account is everything that is stored of one.
type account struct {
	row          holdfast.Account
	order        []*holdfast.Grant
	grants       map[holdfast.ID]*holdfast.Grant
	reservations map[holdfast.ID]*holdfast.Reservation
	listed       []*holdfast.Reservation
	entries      []holdfast.Entry
	events       []holdfast.Event
}

// recordKey is where an answer is kept: a key means something inside its account only.
type recordKey struct {
	account holdfast.AccountID
	key     string
}

// stored reads everything.
func (w *world) stored() map[holdfast.AccountID]*account {
	all := map[holdfast.AccountID]*account{}
	err := w.data.Dump(context.Background(), func(r store.Record) error {
		a := &account{
			row: r.Account, order: r.Grants, grants: map[holdfast.ID]*holdfast.Grant{}, reservations: map[holdfast.ID]*holdfast.Reservation{},
		}
		for _, g := range r.Grants {
			a.grants[g.ID] = g
		}
		for reservation, err := range r.Reservations {
			if err != nil {
				return err
			}
			a.listed = append(a.listed, reservation)
			a.reservations[reservation.ID] = reservation
		}
		for entry, err := range r.Entries {
			if err != nil {
				return err
			}
			a.entries = append(a.entries, entry)
		}
		var err error
		a.events, err = w.data.Events(context.Background(), r.Account.ID)
		all[r.Account.ID] = a
		return err
	})
	if err != nil {
		w.breaks("the store cannot be read: %v", err)
	}
	return all
}

// look checks everything that a save can have changed.
func (w *world) look() {
	w.mu.Lock()
	saves := w.saves
	w.saves = nil
	w.mu.Unlock()
	if len(saves) == 0 {
		return
	}
	before := w.accounts
	w.accounts = w.stored()
	for i := range saves {
		s := &saves[i]
		w.note("saved: %s version %d, %d entries, %d answers", w.accountName(s.account), s.row.Version+1, len(s.entries), len(s.answers))
		w.seen["saved"]++
		w.saved(s, before[s.account])
		w.verify(s.account)
		w.compare(before[s.account], w.accounts[s.account])
	}
}

// lookAtAll checks every account, also those that nobody has saved.
func (w *world) lookAtAll() {
	before := w.accounts
	w.accounts = w.stored()
	for _, a := range who {
		id := holdfast.AccountIDOf(a.project, a.name)
		if w.accounts[id] != nil {
			w.verify(id)
			w.compare(before[id], w.accounts[id])
		}
	}
}

// verify proves the counters, the sums of the ledger, the slots, and that every entry has its outbox row.
func (w *world) verify(id holdfast.AccountID) {
	a, name := w.accounts[id], w.accountName(id)
	differences, err := holdfast.Verify(&a.row, a.order, each(a.listed), each(a.entries))
	if err != nil || len(differences) > 0 {
		w.breaks("%s: %v %v", name, differences, err)
	}
	told := map[int64]int{}
	overrun := map[holdfast.ID]holdfast.Amount{}
	ids := map[holdfast.ID]bool{}
	for _, e := range a.events {
		if ids[e.ID] {
			w.breaks("%s: the event %s is there twice", name, e.ID)
		}
		ids[e.ID] = true
		told[e.Entry]++
		if e.Kind == holdfast.EventOverrun {
			overrun[e.Reservation] += e.Figure
		}
	}
	for _, e := range a.entries {
		if told[e.No] != 1 {
			w.breaks("%s: entry %d, %s, has %d outbox rows", name, e.No, e.Kind, told[e.No])
		}
	}
	w.obeys(a, name)
	for _, r := range a.listed {
		if r.State == holdfast.Committed && overrun[r.ID] != r.Unbilled {
			w.breaks("%s: %s has %d unbilled, and events tell of %d", name, w.name(r.ID, "r"), r.Unbilled, overrun[r.ID])
		}
		w.lawful(name, r)
	}
	for _, g := range a.order {
		// Rule 9: nothing lies in a pocket that had ended when the account was last decided about.
		if g.Ended(a.row.DecidedAt) && g.Available() > 0 {
			w.breaks("%s: grant %s ended at %s and has %d", name, w.name(g.ID, "g"), g.EndsAt.Sub(genesis), g.Available())
		}
	}
	if a.row.DecidedAt.After(w.latest()) {
		w.breaks("%s was decided about at %s, and no clock was there yet", name, a.row.DecidedAt.Sub(genesis))
	}
}

func each[T any](list []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, item := range list {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// lawful checks one reservation by itself.
func (w *world) lawful(name string, r *holdfast.Reservation) {
	switch r.State {
	case holdfast.Released:
		if r.Charged() != 0 || r.Unbilled != 0 || r.Debt != 0 {
			w.breaks("%s: %s was released and charged %d", name, w.name(r.ID, "r"), r.Charged())
		}
	case holdfast.Expired:
		if r.Used != 0 || r.Debt != 0 || r.LateUsed > r.Reserved || r.LateUsed > 0 && r.LateAt.IsZero() {
			w.breaks("%s: %s has expired and was charged %d, late %d", name, w.name(r.ID, "r"), r.Used, r.LateUsed)
		}
		if !r.CancelRequestedAt.IsZero() {
			w.breaks("%s: %s was asked to stop, and expired", name, w.name(r.ID, "r"))
		}
		if r.EndedAt.Before(r.ExpiresAt) {
			w.breaks("%s: %s was to live until %s and expired at %s", name, w.name(r.ID, "r"), r.ExpiresAt.Sub(genesis), r.EndedAt.Sub(genesis))
		}
	}
	if r.ExpiresAt.After(r.HeldUntil()) {
		w.breaks("%s: %s may be held until %s, past %s", name, w.name(r.ID, "r"), r.ExpiresAt.Sub(genesis), r.HeldUntil().Sub(genesis))
	}
	if late := r.EndedAt.After(w.latest()); late {
		w.breaks("%s: %s ended at %s, and no clock was there yet", name, w.name(r.ID, "r"), r.EndedAt.Sub(genesis))
	}
}

// compare checks that what was stored only went on, in ways in which it may.
func (w *world) compare(before, after *account) {
	if before == nil {
		return
	}
	name := w.accountName(before.row.ID)
	switch {
	case after == nil:
		w.breaks("%s is gone", name)
	case after.row.DecidedAt.Before(before.row.DecidedAt), after.row.Version < before.row.Version, !after.row.CreatedAt.Equal(before.row.CreatedAt):
		w.breaks("%s went back: version %d at %s, then %d at %s", name,
			before.row.Version, before.row.DecidedAt.Sub(genesis), after.row.Version, after.row.DecidedAt.Sub(genesis))
	case len(after.entries) < len(before.entries) || !slices.EqualFunc(after.entries[:len(before.entries)], before.entries, sameEntry):
		w.breaks("%s: an entry of the ledger changed", name)
	case len(after.events) < len(before.events) || !slices.Equal(after.events[:len(before.events)], before.events):
		w.breaks("%s: an outbox row changed", name)
	}
	for _, g := range before.order {
		now, ok := after.grants[g.ID]
		if ok && movable(g) && !now.EndsAt.Equal(g.EndsAt) && !now.EndsAt.Before(before.row.DecidedAt) {
			w.seen["zone moved a cycle's end"]++
			moved := *g
			moved.EndsAt = now.EndsAt
			g = &moved
		}
		if !ok || !reflect.DeepEqual(born(now), born(g)) {
			w.breaks("%s: grant %s changed from %+v to %+v", name, w.name(g.ID, "g"), g, now)
		}
	}
	for _, r := range before.listed {
		now, ok := after.reservations[r.ID]
		if !ok {
			w.breaks("%s: %s is gone", name, w.name(r.ID, "r"))
		}
		w.wentOn(name, r, now, after)
	}
}

func sameEntry(a, b holdfast.Entry) bool { return reflect.DeepEqual(a, b) }

// born is what a grant was made with, which never changes.
func born(g *holdfast.Grant) holdfast.Grant {
	made := *g
	made.Reserved, made.Used, made.Voided, made.Rolled, made.Open = 0, 0, 0, 0, false
	return made
}

// movable grants are cycles of the calendar, and what was carried into them: in another zone they end at another time.
func movable(g *holdfast.Grant) bool { return allowance(g.Allowance).Every.Calendar != "" }

// frozen is what was decided at the reserve, and what nothing changes. How much is held may grow.
func frozen(r *holdfast.Reservation) holdfast.Reservation {
	return holdfast.Reservation{
		ID: r.ID, Feature: r.Feature, Price: r.Price, Policies: r.Policies, Key: r.Key, Surface: r.Surface,
		CatalogVersion: r.CatalogVersion, TTL: r.TTL, MaxHold: r.MaxHold, CreatedAt: r.CreatedAt,
	}
}

// wentOn checks a reservation's way from one state to the next: forward, and out of the live states once.
func (w *world) wentOn(name string, before, after *holdfast.Reservation, owner *account) {
	id := w.name(after.ID, "r")
	if !reflect.DeepEqual(frozen(before), frozen(after)) {
		w.breaks("%s: what was decided for %s changed from %+v to %+v", name, id, before, after)
	}
	asked := before.CancelRequestedAt.IsZero() && !after.CancelRequestedAt.IsZero() // then it lives only as long as its lease
	if !asked && after.ExpiresAt.Before(before.ExpiresAt) || after.Reserved < before.Reserved || after.Quantity < before.Quantity || after.Attempts < before.Attempts || after.Refunded < before.Refunded {
		w.breaks("%s: %s went back from %+v to %+v", name, id, before, after)
	}
	if before.Live() {
		if before.State == holdfast.Running && after.State == holdfast.Reserved {
			w.breaks("%s: %s ran and waits again", name, id)
		}
		if before.LeaseToken != "" && after.LeaseToken != before.LeaseToken && owner.row.DecidedAt.Before(before.LeaseExpiresAt) {
			w.breaks("%s: %s was given to another worker while the lease of the first lived until %s", name, id, before.LeaseExpiresAt.Sub(genesis))
		}
		if after.State == holdfast.Expired {
			w.seen["expired"]++
		}
		if before.InDoubt && (after.Attempts != before.Attempts || after.Live() && !after.InDoubt) {
			w.breaks("%s: %s was in doubt, and was started again: %+v, then %+v", name, id, before, after)
		}
		w.askedToStop(name, before, after)
		return
	}
	if after.State != before.State || after.Reserved != before.Reserved || after.Debt != before.Debt || !after.EndedAt.Equal(before.EndedAt) || after.Cause != before.Cause || after.Used != before.Used || after.LeaseToken != before.LeaseToken {
		w.breaks("%s: %s ended as %s at %s, and then as %s at %s", name, id,
			before.State, before.EndedAt.Sub(genesis), after.State, after.EndedAt.Sub(genesis))
	}
	late := before.LateAt.IsZero() && !after.LateAt.IsZero()
	if late {
		w.seen["late commit"]++
	}
	if !late && (after.LateUsed != before.LateUsed || after.Unbilled != before.Unbilled || !after.LateAt.Equal(before.LateAt)) {
		w.breaks("%s: %s was charged late %d, and then %d", name, id, before.LateUsed, after.LateUsed)
	}
}

// saved checks one save against what was stored before it.
func (w *world) saved(s *save, before *account) {
	name := w.accountName(s.account)
	version, active, plan := int64(0), 0, ""
	if before != nil {
		version, active, plan = before.row.Version, before.row.Active, before.row.Plan
	}
	if s.row.Version != version {
		w.breaks("%s was saved over version %d by a decision that had seen version %d", name, version, s.row.Version)
	}
	for _, e := range s.entries {
		w.happened(w.actors[e.Actor])
	}
	reserves := false
	for i := range s.reservations {
		r := &s.reservations[i]
		known := w.works[r.ID]
		if known == nil {
			reserves = true
			known = &work{id: r.ID, account: s.account}
			w.works[r.ID] = known
			w.known[s.account] = append(w.known[s.account], known)
		}
		if r.LeaseToken != "" && !slices.Contains(known.tokens, r.LeaseToken) {
			known.tokens = append(known.tokens, r.LeaseToken)
			w.happened(w.starts[r.LeaseToken])
		}
	}
	if most := max(active, maxActive(plan), maxActive(s.row.Plan)); reserves && s.row.Active > most {
		w.breaks("%s reserved, and has %d active of %d", name, s.row.Active, most)
	}
	for _, answer := range s.answers {
		at := recordKey{s.account, answer.key}
		f := w.fates[answer.command]
		if f == nil {
			w.breaks("%s: an answer under %s is of no command that anybody sent", name, answer.key)
		}
		if last := w.records[at]; len(last) > 0 {
			recorded := last[len(last)-1]
			if !recorded.outcome.Refused() || !f.intention.retryRefused || recorded.print != answer.print {
				w.breaks("%s: the answer under %s was %s, and is replaced by %s", name, answer.key, recorded.text, answer.text)
			}
		}
		w.records[at] = append(w.records[at], answer)
		w.happened(f)
		if answer.outcome.Refused() {
			w.refused(s, before, &answer, f.intention.do)
		}
	}
	w.follows(s, before)
}

func maxActive(plan string) int {
	return tariff.PlanOf(&holdfast.Account{Plan: plan}).MaxActive
}

func (w *world) happened(f *fate) {
	if f != nil { // else the sweeper's
		f.happened = true
		w.nothingHappened(f)
	}
}

// judge checks an answer against what is stored, and against what was answered before.
func (w *world) judge(c *call) {
	o, op := &c.outcome, c.command.Do
	id := c.command.AccountID()
	name := w.accountName(id)
	reservation := holdfast.ReservationOf(op)
	seen := w.accounts[id]
	dry := holdfast.IsDryRun(op)
	switch o.Reason {
	case holdfast.Invalid:
		switch op := op.(type) {
		case holdfast.AddGrant, holdfast.Force: // its end has passed meanwhile; more than is reserved
			return
		case holdfast.Commit:
			if r := seen.reservations[reservation]; !namesItsFigure(op, r) {
				return
			}
		}
		w.breaks("%s is told that it is invalid: %v", c, o.Problems)
	case holdfast.NotFound:
		ours := c.intention.project != "stranger"
		if ours && c.existed && (reservation.IsZero() || c.stood) {
			w.breaks("%s is told that nothing like it exists, and %s did when it was sent", c, name)
		}
		return
	case holdfast.KeyReused:
		others := w.records[recordKey{id, c.command.Key}]
		if len(others) == 0 || others[len(others)-1].print == c.command.Fingerprint() {
			w.breaks("%s is told that another request of %s was sent under %s, and none was", c, name, c.command.Key)
		}
		return
	}
	if c.intention.project == "stranger" {
		w.breaks("another project's caller is answered %s", w.answerText(o))
	}
	if seen == nil && !dry {
		w.breaks("%s is answered, and %s is not stored", c, name)
	}
	if seen != nil && o.Owner.Name != c.intention.name && (o.Owner.Name != holdfast.Erased || seen.row.DeletedAt.IsZero()) {
		w.breaks("%s for %s is told about %q", c, name, o.Owner.Name)
	}
	if c.command.Key != "" && !dry {
		w.kept(c, id)
	}
	if o.Reservation != nil && !dry {
		w.shown(c, seen)
	}
	if o.Reason == "" {
		w.done(c)
	} else {
		w.said(c, seen)
	}
}

// kept checks an answer under a key: it was saved before it was told, and it is the same for everybody, for ever. When the
// account is deleted, what is personal in it is gone.
func (w *world) kept(c *call, account holdfast.AccountID) {
	records := w.records[recordKey{account, c.command.Key}]
	answer := text(&c.outcome)
	same := func(r record) bool { return bytes.Equal(r.text, answer) }
	if !w.accounts[account].row.DeletedAt.IsZero() {
		forgotten := func(o holdfast.Outcome) []byte {
			o.ForgetPerson()
			return text(&o)
		}
		answer = forgotten(c.outcome)
		same = func(r record) bool { return bytes.Equal(forgotten(r.outcome), answer) }
	}
	i := slices.IndexFunc(records, same)
	// Where two in one batch ask for a fresh decision, only the second's refusal is kept.
	retried := slices.ContainsFunc(w.intentions, func(i *intention) bool { return i.key == c.command.Key && i.retryRefused })
	switch {
	case c.outcome.Refused() && retried && i < 0:
	case i < 0:
		w.breaks("%s is told %s under %s, which is not what was saved", c, text(&c.outcome), c.command.Key)
	case records[i].print != c.command.Fingerprint():
		w.breaks("%s is told the answer to another request under %s", c, c.command.Key)
	case !c.outcome.Replayed && !(c.outcome.Refused() && retried) && !slices.ContainsFunc(records, func(r record) bool { return same(r) && r.command == c.command.ID }):
		w.breaks("%s is told as new what another command had brought", c)
	}
}

// shown checks that the reservation in an answer is stored, and has not gone back since.
func (w *world) shown(c *call, seen *account) {
	told := c.outcome.Reservation
	stored, ok := seen.reservations[told.ID]
	if !ok {
		w.breaks("%s is told of %s, which is not stored in its account", c, w.name(told.ID, "r"))
	}
	ranks := map[holdfast.ReservationState]int{holdfast.Reserved: 1, holdfast.Running: 2}
	rank := func(r *holdfast.Reservation) int {
		if r.Live() {
			return ranks[r.State]
		}
		return 3
	}
	switch {
	case !reflect.DeepEqual(frozen(told), frozen(stored)),
		rank(told) > rank(stored), told.Attempts > stored.Attempts, told.Refunded > stored.Refunded,
		told.ExpiresAt.After(stored.ExpiresAt) && told.CancelRequestedAt.Equal(stored.CancelRequestedAt),
		told.Reserved > stored.Reserved,
		told.Attempts == stored.Attempts && told.LeaseToken != stored.LeaseToken,
		!told.Live() && (told.State != stored.State || !told.EndedAt.Equal(stored.EndedAt) || told.Used != stored.Used || told.Cause != stored.Cause),
		!told.LateAt.IsZero() && (told.LateUsed != stored.LateUsed || !told.LateAt.Equal(stored.LateAt)):
		w.breaks("%s is told of %s as %+v, and it is %+v", c, w.name(told.ID, "r"), told, stored)
	}
}

// done checks that what was done is what was asked for, and by whom it may be asked.
func (w *world) done(c *call) {
	o := &c.outcome
	r := o.Reservation
	token, needs := "", false
	wrong := false
	switch op := c.command.Do.(type) {
	case holdfast.Reserve:
		wrong = r == nil || r.Feature != op.Feature || r.State != holdfast.Reserved
	case holdfast.Charge:
		if !op.DryRun {
			figure := r.Reserved
			if op.Amount != nil {
				figure = *op.Amount
			}
			wrong = r.Feature != op.Feature || r.State != holdfast.Committed || r.Charged()+r.Debt+r.Unbilled != figure
		}
	case holdfast.Extend:
		token, needs = op.LeaseToken, o.Changed && r.LeaseToken != ""
		wrong = !r.Live() || r.Reserved < bound(op, r) && r.CancelRequestedAt.IsZero() // what was asked to stop grows no more
	case holdfast.InDoubt:
		token, needs = op.LeaseToken, true
		wrong = r.State != holdfast.Running || !r.InDoubt
	case holdfast.DeleteAccount:
		wrong = o.Account.Account.DeletedAt.IsZero() || o.Account.Account.Active > 0
	case holdfast.Start:
		wrong = r.State != holdfast.Running || o.Lease.Token != r.LeaseToken || c.command.Key == "" && o.Lease.Token != op.Token
	case holdfast.Heartbeat:
		token, needs = op.LeaseToken, true
		wrong = r.State != holdfast.Running
	case holdfast.Commit:
		token, needs = op.LeaseToken, o.Changed && r.LeaseToken != ""
		wrong = r.State != holdfast.Committed && (r.State != holdfast.Expired || r.LateAt.IsZero())
		wrong = wrong || r.Charged()+r.Debt+r.Unbilled != reported(op, r)
		if o.Changed && !o.Replayed && !namesItsFigure(op, r) {
			w.breaks("%s does not say how much, and is charged all the same: %s, %s", c, w.describe(&c.command), w.answerText(o))
		}
	case holdfast.Release:
		token, needs = op.LeaseToken, o.Changed && r.LeaseToken != ""
		wrong = r.State != holdfast.Released
	case holdfast.Cancel:
		if requested := r.State == holdfast.Running; requested {
			wrong = r.CancelRequestedAt.IsZero() || r.Policies.CancelRunning != holdfast.CancelRequest || r.InDoubt
		} else {
			wrong = r.State != holdfast.Released || o.Changed && r.Attempts > 0
		}
	case holdfast.Refund:
		wrong = op.Amount != nil && o.Settlement.Returned+o.Settlement.Voided != *op.Amount
	case holdfast.AddGrant:
		wrong = o.Grant == nil || o.Grant.Granted != op.Amount
	}
	if wrong {
		w.breaks("%s asked for %s and got %s", c, w.describe(&c.command), w.answerText(o))
	}
	// A replay under a key is the answer of whoever was first, whose token it was.
	if needs && !o.Replayed && token != r.LeaseToken && !(token == "" && c.command.Do.Name() != "in_doubt" && !late(r) && doubted(r.ID, w.accounts[c.command.AccountID()])) {
		w.breaks("%s may not: its token is %q, and %s is leased to %q", c, token, w.name(r.ID, "r"), r.LeaseToken)
	}
	if s := o.Settlement; s != nil && o.Changed && !s.Late && c.command.Do.Name() != "refund" {
		if used := usedOfHeld(r); used+s.Returned+s.Voided != r.Reserved {
			w.breaks("%s: of %d reserved %d were used, %d came back and %d were voided", c, r.Reserved, used, s.Returned, s.Voided)
		}
	}
}

// said checks a refusal about a reservation against the reservation that it shows. Those of reserves and adjustments were
// checked where they were saved.
func (w *world) said(c *call, seen *account) {
	r := c.outcome.Reservation
	sent := ""
	switch op := c.command.Do.(type) {
	case holdfast.Start:
		sent = op.Token
	case holdfast.Heartbeat:
		sent = op.LeaseToken
	case holdfast.Commit:
		sent = op.LeaseToken
	case holdfast.Release:
		sent = op.LeaseToken
	case holdfast.Extend:
		sent = op.LeaseToken
	case holdfast.InDoubt:
		sent = op.LeaseToken
	}
	wrong := false
	switch c.outcome.Reason {
	case holdfast.AlreadyEnded:
		wrong = r.Live()
		if commit, ok := c.command.Do.(holdfast.Commit); ok {
			figure := reported(commit, r)
			wrong = wrong || !slices.ContainsFunc(seen.events, func(e holdfast.Event) bool {
				return e.Kind == holdfast.EventReportedAfterEnd && e.Reservation == r.ID && e.Figure == figure
			})
		}
	case holdfast.AlreadyRunning:
		wrong = r.State != holdfast.Running || sent != "" && sent == r.LeaseToken && !c.outcome.Replayed
		if _, cancels := c.command.Do.(holdfast.Cancel); cancels {
			wrong = wrong || r.Policies.CancelRunning == holdfast.CancelRequest && !r.InDoubt
		}
	case holdfast.StaleLease:
		worker := c.command.Do.Name() == "heartbeat" || c.command.Do.Name() == "in_doubt" // needs a lease, and not only no other's
		wrong = sent == r.LeaseToken && (!worker || r.State == holdfast.Running) && !c.outcome.Replayed
		wrong = wrong || r.InDoubt && sent == "" && !worker
	case holdfast.NotCommitted:
		wrong = r.State == holdfast.Committed || !r.LateAt.IsZero()
	case holdfast.RefundExceedsUsed:
		wrong = *c.command.Do.(holdfast.Refund).Amount <= r.Charged()+r.Debt-r.Refunded
	}
	if wrong {
		w.breaks("%s is refused by accident: it asked for %s and is told %s, with %+v", c, w.describe(&c.command), w.answerText(&c.outcome), r)
	}
}
