package holdfast_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"sync"
	"time"
	_ "time/tzdata" // tests in zones run on machines without the files as well

	"github.com/holdfast-dev/holdfast"
)

// world is a store in memory and a clock that stands still until it is told to move. Every command goes through submit,
// the way it goes through the engine: a state is loaded with exactly what the contract of stores says, decided, and its
// changes are saved. On the way, whatever must hold for every command is checked, so each test that uses a world is a
// test of the invariants too.
type world struct {
	failer
	catalog  *holdfast.Catalog
	now      time.Time
	commands int
	records  map[holdfast.AccountID]*record
	// proveEvery is after how many saves everything that is stored is proven; zero counts as one.
	proveEvery, saves int
	// upgrades are grants that began while something was paid for, and were not paid for themselves.
	upgrades map[holdfast.ID]bool
	// caps is the most that a cycle of each allowance could carry over, by any catalog so far.
	caps map[string]holdfast.Amount
}

// failer is what *testing.T and *rapid.T have in common.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// record is everything stored of one account, in the order in which it was written.
type record struct {
	account      holdfast.Account
	grants       []*holdfast.Grant
	reservations []*holdfast.Reservation
	payments     []*holdfast.Payment
	entries      []holdfast.Entry
	events       []holdfast.Event
	notices      []holdfast.Notice // that wait, by slot
	answers      map[string]storedAnswer
}

// storedAnswer keeps an outcome as JSON, as the stores do.
type storedAnswer struct {
	answer  holdfast.Answer
	outcome []byte
}

// result is what a command came to, and what was written for it: one set of changes per round, more than one only where
// the core asked to decide again.
type result struct {
	holdfast.Outcome
	operation string
	saved     []holdfast.Changes
}

// theMorning is when the worlds begin.
var theMorning = time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)

const project = "studio"

func newWorld(t failer) *world {
	return &world{
		failer: t, catalog: exampleCatalog(), now: theMorning, records: map[holdfast.AccountID]*record{}, caps: map[string]holdfast.Amount{},
		upgrades: map[holdfast.ID]bool{},
	}
}

// exampleCatalog has the numbers of the example catalog, as far as the core supports it: what pro gives for its term of
// 30 days is a rolling window of 30 days here.
func exampleCatalog() *holdfast.Catalog {
	return &holdfast.Catalog{
		Version: 1,
		Units:   []holdfast.Unit{{Name: "credit"}, {Name: "image"}},
		Features: []holdfast.Feature{
			{Name: "text.improve", Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, LongestJob: time.Minute, LongestWait: 5 * time.Minute, TTL: 5 * time.Minute},
			{Name: "image.generate", Prices: []holdfast.Price{{Unit: "image", Amount: 1}, {Unit: "credit", Amount: 5}}, LongestJob: 5 * time.Minute, TTL: 15 * time.Minute},
			{Name: "file.analyze", Prices: []holdfast.Price{{Unit: "credit", Amount: 3}}, LongestJob: 3 * time.Minute, TTL: 15 * time.Minute},
		},
		Surfaces: []holdfast.Surface{{Name: "bot", TTL: 15 * time.Minute}, {Name: "miniapp", TTL: 30 * time.Minute}},
		Plans: []holdfast.Plan{
			{
				Name: "free", Default: true, Features: []string{"text.improve", "image.generate"}, MaxActive: 1,
				Allowances: []holdfast.Allowance{{Key: "free.credit", Unit: "credit", Amount: 3, Every: holdfast.Cycle{Rolling: 24 * time.Hour}}},
			},
			{
				Name: "pro", Features: []string{"text.improve", "image.generate", "file.analyze"}, FreeFeatures: []string{"text.improve"}, MaxActive: 3,
				Allowances: []holdfast.Allowance{
					{Key: "pro.credit", Unit: "credit", Amount: 300, Every: holdfast.Cycle{Rolling: 720 * time.Hour}},
					{Key: "pro.image", Unit: "image", Amount: 50, Every: holdfast.Cycle{Rolling: 720 * time.Hour}},
				},
			},
		},
	}
}

// soldCatalog has plans that are sold: the example's pro as it is, a smaller and a larger one, and credits.
func soldCatalog() *holdfast.Catalog {
	catalog := exampleCatalog()
	term := holdfast.Cycle{Term: true}
	week := 7 * 24 * time.Hour
	catalog.Plans = append(catalog.Plans[:1],
		holdfast.Plan{
			Name: "lite", Features: []string{"text.improve", "image.generate"}, MaxActive: 2, Grace: week,
			Allowances: []holdfast.Allowance{{Key: "lite.credit", Unit: "credit", Amount: 100, Every: term}},
		},
		holdfast.Plan{
			Name: "pro", Features: []string{"text.improve", "image.generate", "file.analyze"}, MaxActive: 3, Grace: 3 * 24 * time.Hour, Upgrade: holdfast.UpgradeProrated,
			Allowances: []holdfast.Allowance{
				{Key: "pro.credit", Unit: "credit", Amount: 300, Every: term, Rollover: 150}, {Key: "pro.image", Unit: "image", Amount: 50, Every: term},
			},
		},
		holdfast.Plan{
			Name: "max", Features: []string{"text.improve", "image.generate", "file.analyze"}, MaxActive: 5, Upgrade: holdfast.UpgradeFull,
			Refund: holdfast.RefundAllAsDebt, RunningOnRefund: holdfast.RunningStop,
			Allowances: []holdfast.Allowance{{Key: "max.credit", Unit: "credit", Amount: 1000, Every: term, Rollover: 500}},
		},
	)
	month := holdfast.Period{Days: 30}
	catalog.Products = []holdfast.Product{
		{Name: "lite_30", Plan: "lite", Period: month, Prices: []holdfast.Money{{Currency: "XTR", Amount: 100}}},
		{Name: "pro_30", Plan: "pro", Period: month, Prices: []holdfast.Money{{Currency: "XTR", Amount: 250}}},
		{Name: "pro_month", Plan: "pro", Period: holdfast.Period{Months: 1}, Prices: []holdfast.Money{{Currency: "USD", Amount: 499}}},
		{Name: "max_30", Plan: "max", Period: month, Prices: []holdfast.Money{{Currency: "XTR", Amount: 600}}},
		{Name: "credits_300", Grant: &holdfast.ProductGrant{Unit: "credit", Amount: 300}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 250}}},
	}
	return catalog
}

// command makes a command of an account by its name, with an id that only this command has.
func (w *world) command(account, key string, do holdfast.Operation) holdfast.Command {
	w.commands++
	return holdfast.Command{ID: commandID(w.commands), Project: project, Account: account, Key: key, Actor: "test", Do: do}
}

// do submits an operation of an account under a key.
func (w *world) do(account, key string, do holdfast.Operation) result {
	w.Helper()
	return w.submit(w.command(account, key, do))
}

// commandID is the id of the n-th command: ascending as UUIDv7 are, the last two bytes zero.
func commandID(n int) holdfast.ID {
	id := holdfast.ID{0: 0x01, 1: 0x9a, 6: 0x70, 8: 0x80}
	for i := range 4 {
		id[13-i] = byte(n >> (8 * i))
	}
	return id
}

// zones are those that were read from files before.
var zones sync.Map

// zoneOf is what the name of a time zone stands for; the empty one is UTC.
func (w *world) zoneOf(name string) *time.Location {
	w.Helper()
	if known, ok := zones.Load(name); ok {
		return known.(*time.Location)
	}
	zone, err := time.LoadLocation(name)
	w.mustHold(err, "time zone")
	zones.Store(name, zone)
	return zone
}

// resolved passes in the zone that an operation names, as the engine does. One that is not known stays unresolved.
func resolved(op holdfast.Operation) holdfast.Operation {
	put, ok := op.(holdfast.PutAccount)
	if !ok || put.TimeZone == nil {
		return op
	}
	put.Zone, _ = time.LoadLocation(*put.TimeZone)
	return put
}

// submit loads, decides and saves, again where the core asks for it.
func (w *world) submit(command holdfast.Command) result {
	w.Helper()
	command.Do = resolved(command.Do)
	all := result{operation: command.Do.Name()}
	for rounds := 1; ; rounds++ {
		outcome, changes := w.round(command)
		all.Outcome = outcome
		if changes != nil {
			all.saved = append(all.saved, *changes)
		}
		if !outcome.Redirect.IsZero() { // as the engine sends it on
			command.Account, command.Target = "", outcome.Redirect
			continue
		}
		if !outcome.Again {
			return all
		}
		if changes == nil { // a question writes nothing, so the sweeper's work is done before it is asked again
			sweep := w.command("", "", holdfast.Expire{})
			sweep.Project, sweep.Target = command.Project, command.AccountID()
			all.saved = append(all.saved, w.submit(sweep).saved...)
		}
		if rounds > 100 {
			w.Fatalf("%s asks again and again", command.Do.Name())
		}
	}
}

func (w *world) round(command holdfast.Command) (holdfast.Outcome, *holdfast.Changes) {
	w.Helper()
	state, twin, mirrored := w.load(command), w.load(command), w.load(command)
	slices.Reverse(mirrored.Grants)
	slices.Reverse(mirrored.Reservations)
	w.mustHold(state.Check(), "loaded state")

	outcome := holdfast.Decide(w.catalog, state, command, w.now)
	w.mustHold(state.Check(), "decided state")
	changes, changed := state.Changes()

	// The same inputs give the same outcome and the same changes; the order of rows in the store gives the same outcome.
	again := holdfast.Decide(w.catalog, twin, command, w.now)
	if twinChanges, _ := twin.Changes(); !reflect.DeepEqual(again, outcome) || !reflect.DeepEqual(twinChanges, changes) {
		w.Fatalf("%s: decided twice from the same state, it came out differently", command.Do.Name())
	}
	if other := holdfast.Decide(w.catalog, mirrored, command, w.now); !reflect.DeepEqual(other, outcome) {
		w.Fatalf("%s: the order of rows decides:\n%s\n%s", command.Do.Name(), inJSON(outcome), inJSON(other))
	}

	w.checkExplained(command, outcome)
	w.checkResets(command, outcome, state)
	w.checkManners(command, outcome, changes, changed)
	if !changed {
		return outcome, nil
	}
	w.save(command.AccountID(), changes)
	return outcome, &changes
}

// load is what a store loads for commands of one account: the account and its open grants, the reservations they name and
// the overdue ones of a reserve or an expire, with the grants of all these, and the answers under their keys.
func (w *world) load(commands ...holdfast.Command) *holdfast.State {
	id := commands[0].AccountID()
	stored, ok := w.records[id]
	if !ok {
		state := holdfast.NewState(commands[0].Project, commands[0].Account)
		state.Account.ID = id
		return state
	}
	state := &holdfast.State{Account: stored.account, Zones: w.zones(stored)}
	var overdue []*holdfast.Reservation
	named, keys, paid := map[holdfast.ID]bool{}, map[string]bool{}, map[holdfast.ID]bool{}
	for _, command := range commands {
		named[holdfast.ReservationOf(command.Do)] = true
		paid[holdfast.PaymentOf(command.Do, id)] = true
		keys[command.Key] = true
		if due := stored.overdue(command.Do, w.now); due != nil {
			overdue = due
		}
	}
	if len(overdue) > holdfast.MaxOverdue {
		overdue, state.MoreOverdue = overdue[:holdfast.MaxOverdue], true
	}
	for _, p := range stored.payments {
		if paid[p.ID] {
			state.Payments = append(state.Payments, p)
		}
	}
	neededGrants := map[holdfast.ID]bool{}
	for _, r := range stored.reservations {
		if named[r.ID] || slices.Contains(overdue, r) {
			state.Reservations = append(state.Reservations, r)
			for _, a := range r.Allocations {
				neededGrants[a.Grant] = true
			}
		}
	}
	for _, g := range stored.grants {
		if g.Open || neededGrants[g.ID] || !g.Payment.IsZero() && paid[g.Payment] {
			state.Grants = append(state.Grants, g)
		}
	}
	for key := range keys {
		if kept, ok := stored.answers[key]; ok {
			answer := kept.answer
			w.mustHold(json.Unmarshal(kept.outcome, &answer.Outcome), "recorded answer")
			state.Answers = append(state.Answers, &answer)
		}
	}
	return state.Clone() // so that nothing which is decided touches what is stored
}

func (w *world) zones(stored *record) holdfast.Zones {
	w.Helper()
	return holdfast.Zones{Account: w.zoneOf(stored.account.TimeZone), Anchor: w.zoneOf(stored.account.AnchorZone)}
}

func (stored *record) overdue(op holdfast.Operation, now time.Time) []*holdfast.Reservation {
	by := holdfast.LoadsOverdue(op, now)
	if by.IsZero() {
		return nil
	}
	var due []*holdfast.Reservation
	for _, r := range stored.reservations {
		if r.Overdue(by) {
			due = append(due, r)
		}
	}
	slices.SortStableFunc(due, func(a, b *holdfast.Reservation) int {
		return cmp.Or(a.ExpiresAt.Compare(b.ExpiresAt), bytes.Compare(a.ID[:], b.ID[:]))
	})
	return due
}

// checkExplained compares a reserve with what an explanation of it says.
func (w *world) checkExplained(command holdfast.Command, outcome holdfast.Outcome) {
	w.Helper()
	if _, ok := command.Do.(holdfast.Reserve); !ok || outcome.Replayed || outcome.Again || !outcome.Redirect.IsZero() || outcome.Reason == holdfast.KeyReused {
		return
	}
	state := w.load(command)
	if known, ok := state.Answer(command.Key); ok && known.Command == command.ID {
		return // its own retry is told what was decided then
	}
	explanation, found := holdfast.Explain(w.catalog, state, command, w.now)
	if _, changed := state.Changes(); changed {
		w.Fatalf("explaining changed something")
	}
	if outcome.Reason == holdfast.Invalid {
		if command.Key != "" && !slices.Equal(found, outcome.Problems) { // to ask, none is needed
			w.Fatalf("what is invalid was explained: %v, and decided as %v", found, outcome.Problems)
		}
		return
	}
	if explanation.Reason != outcome.Reason || explanation.Allowed != (outcome.Reason == "") {
		w.Fatalf("explained as %q, decided as %q", explanation.Reason, outcome.Reason)
	}
	if outcome.Reason != "" {
		return
	}
	taken := map[holdfast.ID]holdfast.Amount{}
	for _, step := range explanation.Steps {
		for _, pocket := range step.Pockets {
			taken[pocket.Grant.ID] += pocket.Takes
		}
	}
	for _, a := range outcome.Reservation.Allocations {
		taken[a.Grant] -= a.Reserved
	}
	for id, difference := range taken {
		if difference != 0 {
			w.Fatalf("explained and decided differ by %d of grant %s:\n%s\n%s", difference, id, inJSON(explanation), inJSON(outcome.Reservation))
		}
	}
}

// checkResets proves what a refusal says of waiting: at resets_at one of the alternatives is payable, and just before it, or
// ever where there is none, no one is.
func (w *world) checkResets(command holdfast.Command, outcome holdfast.Outcome, decided *holdfast.State) {
	w.Helper()
	if charge, ok := command.Do.(holdfast.Charge); ok {
		command.Do = charge.Reserve
	}
	if _, ok := command.Do.(holdfast.Reserve); !ok || outcome.Replayed || outcome.Again || outcome.Reason != holdfast.Insufficient && outcome.Reason != holdfast.HeldByActive {
		return
	}
	nothingLive := decided.Clone() // waiting does not count on running work to end, apart from what is overdue
	sweep := command
	sweep.Key, sweep.Do = "", holdfast.Expire{}
	holdfast.Decide(w.catalog, nothingLive, sweep, w.now)
	nothingLive.Reservations = nil
	payable := func(at time.Time) bool {
		explanation, _ := holdfast.Explain(w.catalog, nothingLive.Clone(), command, at)
		passed := func(check holdfast.CheckName) bool {
			return slices.ContainsFunc(explanation.Steps, func(step holdfast.Step) bool { return step.Check == check && step.Passed })
		}
		return passed(holdfast.CheckPlan) && passed(holdfast.CheckPrice)
	}
	resets := outcome.Refusal.ResetsAt
	if !resets.IsZero() && (!payable(resets) || payable(resets.Add(-time.Microsecond))) {
		w.Fatalf("refused until %s; payable then: %t, just before: %t", resets, payable(resets), payable(resets.Add(-time.Microsecond)))
	}
	for _, wait := range []time.Duration{time.Minute, 25 * time.Hour, 49 * time.Hour, 8 * 24 * time.Hour, 32 * 24 * time.Hour, 63 * 24 * time.Hour} {
		if at := w.now.Add(wait); (resets.IsZero() || at.Before(resets)) && payable(at) {
			w.Fatalf("waiting until %s would help, the refusal says %s:\n%s", at, resets, inJSON(outcome.Refusal))
		}
	}
}

// byTime reports whether a new grant is one that the passing of time opens: a cycle that does not wait to be used, or what
// was carried over from one.
func (w *world) byTime(g *holdfast.Grant) bool {
	if g.Source == holdfast.FromRollover {
		return true
	}
	for _, plan := range w.catalog.Plans {
		for _, a := range plan.Allowances {
			if a.Key == g.Allowance && g.Source == holdfast.FromAllowance {
				return a.Every.Rolling == 0
			}
		}
	}
	return false
}

// checkManners checks what holds for every command, whatever it is about.
func (w *world) checkManners(command holdfast.Command, outcome holdfast.Outcome, changes holdfast.Changes, changed bool) {
	w.Helper()
	name := command.Do.Name()
	if n := outcome.Refusal; n != nil && !outcome.Replayed && !n.ResetsAt.IsZero() && !n.ResetsAt.After(w.now) {
		w.Fatalf("%s: refused until %s, which is over", name, n.ResetsAt)
	}
	if b := outcome.Balance; b != nil && (b.Available < 0 || b.Reserved < 0 || b.Debt < 0) {
		w.Fatalf("%s: a balance below zero: %s", name, inJSON(b))
	}
	var answered bool // before, and by this very command
	if stored, ok := w.records[command.AccountID()]; ok {
		known, ok := stored.answers[command.Key]
		answered = ok && known.answer.Command == command.ID && !command.RetryRefused
	}
	if holdfast.IsDryRun(command.Do) || outcome.Replayed || answered || !outcome.Redirect.IsZero() {
		if changed {
			w.Fatalf("%s: a dry run, a replay or a request that leads on writes %s", name, inJSON(changes))
		}
		return
	}
	if outcome.Reason != "" || !outcome.Changed && !outcome.Again {
		w.checkNothingDone(name, outcome, changes)
	}
	recorded := slices.ContainsFunc(changes.Answers, func(a *holdfast.Answer) bool { return a.Key == command.Key })
	if wanted := command.Key != "" && outcome.Reason.Recorded() && !outcome.Again; recorded != wanted {
		w.Fatalf("%s: answer %q recorded: %t, and it should be %t", name, outcome.Reason, recorded, wanted)
	}
}

// checkNothingDone: a command that was refused, or changed nothing, writes only what time has done meanwhile.
func (w *world) checkNothingDone(name string, outcome holdfast.Outcome, changes holdfast.Changes) {
	w.Helper()
	if len(changes.NewReservations) > 0 || slices.ContainsFunc(changes.NewGrants, func(g *holdfast.Grant) bool { return !w.byTime(g) }) {
		w.Fatalf("%s: nothing was to be done (%s), and yet something new is written: %s", name, outcome.Reason, inJSON(changes))
	}
	stored := w.records[changes.Account.ID]
	for _, e := range changes.Entries {
		allowed := false
		switch e.Kind {
		case holdfast.EntryVoid, holdfast.EntryExpire, holdfast.EntryRollover, holdfast.EntryGrant, holdfast.EntryRepay, holdfast.EntrySubscription, holdfast.EntryRevoke:
			allowed = true
		case holdfast.EntryRelease, holdfast.EntryCommit: // overdue, and asked to stop or in doubt
			before := stored.reservation(e.Reservation)
			allowed = before != nil && (before.InDoubt && before.Overdue(w.now) || !before.CancelRequestedAt.IsZero() && !w.now.Before(before.LeaseExpiresAt))
		}
		if !allowed {
			w.Fatalf("%s: nothing was to be done (%s), and yet money moved by entry %s", name, outcome.Reason, e.Kind)
		}
	}
}

// save writes changes as a store does, and refuses what no store may be asked to write.
func (w *world) save(id holdfast.AccountID, changes holdfast.Changes) {
	w.Helper()
	stored, ok := w.records[id]
	if !ok {
		stored = &record{answers: map[string]storedAnswer{}}
		w.records[id] = stored
	}
	for _, plan := range w.catalog.Plans {
		for _, a := range plan.Allowances {
			w.caps[a.Key] = max(w.caps[a.Key], a.Rollover)
		}
	}
	if changes.Account.Version != stored.account.Version || changes.Account.ID != id {
		w.Fatalf("the changes are of another version of the account, or of another account")
	}
	if changes.Account.DecidedAt.Before(stored.account.DecidedAt) || changes.Account.DecidedAt.Before(w.now) {
		w.Fatalf("the account was decided at %s, before %s or now", changes.Account.DecidedAt, stored.account.DecidedAt)
	}
	paidBefore := stored.account.Subscription != nil
	stored.account = changes.Account
	stored.account.Version++

	rows := holdfast.State{
		Grants:       slices.Concat(changes.NewGrants, changes.Grants),
		Reservations: slices.Concat(changes.NewReservations, changes.Reservations),
	}
	copied := rows.Clone()
	for i, g := range copied.Grants {
		if i < len(changes.NewGrants) && g.Payment.IsZero() && paidBefore && changes.Account.Subscription != nil {
			w.upgrades[g.ID] = true
		}
		w.writeGrant(stored, g, i < len(changes.NewGrants))
	}
	for i, r := range copied.Reservations {
		w.writeReservation(stored, r, i < len(changes.NewReservations))
	}
	for _, p := range (&holdfast.State{Payments: changes.Payments}).Clone().Payments {
		w.writePayment(stored, p)
	}
	for _, e := range changes.Entries {
		if e.No != int64(len(stored.entries))+1 {
			w.Fatalf("entry %d follows entry %d", e.No, len(stored.entries))
		}
		stored.entries = append(stored.entries, e)
	}
	for _, gone := range changes.Withdrawn {
		stored.dropNotice(gone.Slot)
		stored.events = slices.DeleteFunc(stored.events, func(e holdfast.Event) bool { return e.ID == gone.Event })
	}
	for _, e := range changes.Events {
		w.writeEvent(stored, e)
	}
	for _, n := range changes.Notices {
		if n.Event.Entry != 0 || n.Event.Figure != 0 || !n.DueAt.After(w.now) || !stored.account.Notices {
			w.Fatalf("a notice that cannot be kept: %s", inJSON(n))
		}
		stored.dropNotice(n.Slot)
		stored.notices = append(stored.notices, n)
	}
	answered := map[string]bool{}
	for _, a := range changes.Answers {
		if answered[a.Key] {
			w.Fatalf("key %q is answered twice in one save", a.Key)
		}
		answered[a.Key] = true
		w.writeAnswer(stored, a)
	}
	if changes.Erase {
		w.erase(stored)
	}
	w.checkLastBalances(stored, changes.Entries)
	if w.saves++; w.saves%max(1, w.proveEvery) == 0 {
		w.checkStored(stored)
	}
}

// erase forgets what is personal in rows that were not loaded.
func (w *world) erase(stored *record) {
	w.Helper()
	for _, r := range stored.reservations {
		r.Metadata = nil
	}
	for key, kept := range stored.answers {
		var outcome holdfast.Outcome
		w.mustHold(json.Unmarshal(kept.outcome, &outcome), "recorded answer")
		outcome.ForgetPerson()
		kept.outcome = []byte(inJSON(outcome))
		stored.answers[key] = kept
	}
}

func (w *world) writeGrant(stored *record, g *holdfast.Grant, isNew bool) {
	w.Helper()
	i := slices.IndexFunc(stored.grants, func(s *holdfast.Grant) bool { return s.ID == g.ID })
	if isNew != (i < 0) {
		w.Fatalf("grant %s: new %t, stored %t", g.ID, isNew, i >= 0)
	}
	if isNew {
		stored.grants = append(stored.grants, g)
		return
	}
	before, after := *stored.grants[i], *g
	if after.Rolled < before.Rolled || after.Moved < before.Moved || after.Revoked < before.Revoked || !after.EndsAt.Equal(before.EndsAt) && (g.Allowance == "" && g.Source != holdfast.FromAllowance || before.Ended(w.now)) {
		w.Fatalf("grant %s: what was carried over, or its end, moved as it must not: %s, was %s", g.ID, inJSON(after), inJSON(before))
	}
	for _, g := range []*holdfast.Grant{&before, &after} { // whatever else a grant is, never changes
		g.Reserved, g.Used, g.Voided, g.Rolled, g.Moved, g.Revoked, g.Doomed, g.Open, g.EndsAt = 0, 0, 0, 0, 0, 0, 0, false, time.Time{}
	}
	if !reflect.DeepEqual(before, after) {
		w.Fatalf("grant %s has become another one: %s, was %s", g.ID, inJSON(after), inJSON(before))
	}
	stored.grants[i] = g
}

func (stored *record) dropNotice(slot holdfast.ID) {
	stored.notices = slices.DeleteFunc(stored.notices, func(n holdfast.Notice) bool { return n.Slot == slot })
}

// ripen does with the account's notices that are due what a relay does.
func (w *world) ripen(stored *record) {
	w.Helper()
	for _, n := range slices.Clone(stored.notices) {
		if n.DueAt.After(w.now) {
			continue
		}
		fate := n.FateOf(&stored.account, w.now)
		stored.dropNotice(n.Slot)
		switch {
		case fate.Tell:
			w.writeEvent(stored, n.Event)
		case !fate.Later.IsZero():
			n.DueAt, n.Event.At = fate.Later, fate.Later
			stored.notices = append(stored.notices, n)
		}
	}
}

// writePayment keeps a payment as stores do, as JSON. What was paid never changes; what is refunded only grows.
func (w *world) writePayment(stored *record, p *holdfast.Payment) {
	w.Helper()
	read := &holdfast.Payment{}
	w.mustHold(json.Unmarshal([]byte(inJSON(p)), read), "payment from JSON")
	if inJSON(read) != inJSON(p) {
		w.Fatalf("a payment does not survive its JSON: %s", inJSON(p))
	}
	if p.Refunded < 0 || p.Refunded > p.Amount || (p.State == holdfast.PaymentFlagged) != (p.Flag != "") || p.Kept < 0 || p.Kept > p.Refunded {
		w.Fatalf("a payment does not fit together: %s", inJSON(p))
	}
	i := slices.IndexFunc(stored.payments, func(s *holdfast.Payment) bool { return s.ID == p.ID })
	if i < 0 {
		stored.payments = append(stored.payments, read)
		return
	}
	before, after := *stored.payments[i], *read
	if after.Refunded < before.Refunded || after.Revoked < before.Revoked || after.Owed < before.Owed || before.Disputed && !after.Disputed {
		w.Fatalf("of payment %s less is taken back than before: %s, was %s", p.PaymentID, inJSON(after), inJSON(before))
	}
	for _, p := range []*holdfast.Payment{&before, &after} {
		p.Refunded, p.Kept, p.Revoked, p.Owed, p.OwedOf, p.Refunds, p.Disputed = 0, 0, 0, 0, nil, nil, false
	}
	if !reflect.DeepEqual(before, after) && before.Flag != holdfast.WrongPerson { // which its owner's own telling replaces
		w.Fatalf("payment %s has become another one: %s, was %s", p.PaymentID, inJSON(after), inJSON(before))
	}
	stored.payments[i] = read
}

func (w *world) writeReservation(stored *record, r *holdfast.Reservation, isNew bool) {
	w.Helper()
	i := slices.IndexFunc(stored.reservations, func(s *holdfast.Reservation) bool { return s.ID == r.ID })
	if isNew != (i < 0) {
		w.Fatalf("reservation %s: new %t, stored %t", r.ID, isNew, i >= 0)
	}
	if isNew {
		stored.reservations = append(stored.reservations, r)
		return
	}
	before := stored.reservations[i]
	if !before.Live() && (r.State != before.State || r.Used != before.Used || r.Cause != before.Cause || !r.EndedAt.Equal(before.EndedAt)) {
		w.Fatalf("reservation %s ends twice: %s used %d, then %s used %d", r.ID, before.State, before.Used, r.State, r.Used)
	}
	if !before.LateAt.IsZero() && (r.LateUsed != before.LateUsed || !r.LateAt.Equal(before.LateAt)) {
		w.Fatalf("reservation %s is settled late twice", r.ID)
	}
	if !reflect.DeepEqual(r.Price, before.Price) || r.Policies != before.Policies || r.Reserved < before.Reserved || r.Refunded < before.Refunded ||
		r.ExpiresAt.Before(before.ExpiresAt) && r.CancelRequestedAt.Equal(before.CancelRequestedAt) || r.ExpiresAt.After(r.HeldUntil()) {
		w.Fatalf("reservation %s: price, reserved, refunds or expiry moved as they must not: %s, was %s", r.ID, inJSON(r), inJSON(before))
	}
	stored.reservations[i] = r
}

// toldTwice are the events that may come again, with the same id: the same report, by another call.
var toldTwice = []holdfast.EventKind{
	holdfast.EventReportedAfterEnd, holdfast.EventUnknownReservation, holdfast.EventUnratedUsage, holdfast.EventPaymentFlagged,
}

// writeEvent drops an event that was told before. Of any but toldTwice, the same id means that what happened is never told.
func (w *world) writeEvent(stored *record, e holdfast.Event) {
	w.Helper()
	for _, known := range stored.events {
		if known.ID == e.ID {
			if !slices.Contains(toldTwice, e.Kind) || known.Kind != e.Kind || known.Figure != e.Figure {
				w.Fatalf("event %s of entry %d has the id of event %s of entry %d, and would never be told", e.Kind, e.Entry, known.Kind, known.Entry)
			}
			return
		}
	}
	stored.events = append(stored.events, e)
}

func (w *world) writeAnswer(stored *record, a *holdfast.Answer) {
	w.Helper()
	var before holdfast.Outcome
	if known, ok := stored.answers[a.Key]; ok {
		w.mustHold(json.Unmarshal(known.outcome, &before), "recorded answer")
		if !before.Refused() {
			w.Fatalf("key %q was answered with a success, and is answered again", a.Key)
		}
	}
	written, err := json.Marshal(a.Outcome)
	w.mustHold(err, "answer to JSON")
	var read holdfast.Outcome
	w.mustHold(json.Unmarshal(written, &read), "answer from JSON")
	told := a.Outcome
	if r := told.Reservation; r != nil && r.Job != nil { // its payload is no part of an answer
		job, shown := *r.Job, *r
		job.Payload, shown.Job, told.Reservation = "", &job, &shown
	}
	if !reflect.DeepEqual(read, told) {
		w.Fatalf("an answer does not survive its JSON: %s", written)
	}
	kept := storedAnswer{answer: *a, outcome: written}
	kept.answer.Outcome = holdfast.Outcome{}
	stored.answers[a.Key] = kept
}

// checkLastBalances compares what the newest entry of each unit says of the balance with the grants.
func (w *world) checkLastBalances(stored *record, written []holdfast.Entry) {
	w.Helper()
	checked := map[string]bool{}
	for _, e := range slices.Backward(written) {
		if e.Unit == "" || checked[e.Unit] {
			continue
		}
		checked[e.Unit] = true
		var available, reserved holdfast.Amount
		for _, g := range stored.grants {
			if g.Unit != e.Unit {
				continue
			}
			reserved += g.Reserved
			if g.InForce(e.RecordedAt) {
				available += g.Granted - g.Reserved - g.Used - g.Voided
			}
		}
		if e.Available != available || e.Reserved != reserved {
			w.Fatalf("entry %d (%s) says %d available and %d reserved; there are %d and %d", e.No, e.Kind, e.Available, e.Reserved, available, reserved)
		}
	}
}

// checkStored proves one account from everything that is stored of it.
func (w *world) checkStored(stored *record) {
	w.Helper()
	differences, err := holdfast.Verify(&stored.account, stored.grants, each(stored.reservations), each(stored.entries))
	w.mustHold(err, "verify")
	if len(differences) > 0 {
		w.Fatalf("verify: %q", differences)
	}
	for _, g := range stored.grants {
		if left := g.Granted - g.Reserved - g.Used - g.Voided; !g.Open && (left > 0 || g.Reserved > 0) {
			w.Fatalf("grant %s is closed, and nobody will ever see its %d available and %d reserved", g.ID, left, g.Reserved)
		}
	}
	w.checkCycles(stored)
	w.checkSubscription(stored)
	told := map[int64]int{}
	for _, e := range stored.events {
		if e.OfEntry() {
			told[e.Entry]++
		}
	}
	for _, n := range stored.notices {
		if i := slices.IndexFunc(stored.reservations, func(r *holdfast.Reservation) bool { return r.ID == n.Event.Reservation }); i >= 0 {
			if r := stored.reservations[i]; r.State != holdfast.Reserved || r.Attempts > 0 {
				w.Fatalf("reservation %s is %s, and a notice that it waits stands", r.ID, r.State)
			}
		}
	}
	for _, e := range stored.entries {
		if told[e.No] != 1 {
			w.Fatalf("entry %d (%s) is told of by %d events", e.No, e.Kind, told[e.No])
		}
	}
}

// checkSubscription proves that what is paid for is one stretch of periods, and that no payment was taken back, or became
// debt, beyond what it had given.
func (w *world) checkSubscription(stored *record) {
	w.Helper()
	if s := stored.account.Subscription; s != nil {
		if len(s.Periods) == 0 || len(s.Periods) > holdfast.MaxPaidPeriods {
			w.Fatalf("a subscription of %d periods", len(s.Periods))
		}
		for i, p := range s.Periods {
			if !p.Start.Before(p.End) || i > 0 && !p.Start.Equal(s.Periods[i-1].End) {
				w.Fatalf("periods overlap, or leave a gap: %s", inJSON(s.Periods))
			}
		}
	}
	for _, p := range stored.payments {
		var granted, owed holdfast.Amount
		for _, g := range stored.grants {
			if g.Payment == p.ID && g.Source != holdfast.FromRollover {
				granted += g.Granted
			}
		}
		for _, n := range p.OwedOf {
			owed += n
		}
		if owed != p.Owed || p.Owed > granted {
			w.Fatalf("payment %s: %d owed of %d granted: %s", p.PaymentID, owed, granted, inJSON(p))
		}
	}
}

// checkCycles proves that no cycle of an allowance was in force beside another one, and that not more was carried over
// from any than its cap, all of it into pockets of their own.
func (w *world) checkCycles(stored *record) {
	w.Helper()
	last := map[string]*holdfast.Grant{}
	for _, g := range stored.grants { // in the order in which they were opened
		if g.Source != holdfast.FromAllowance || g.Allowance == "" { // a renewal that came out of order adds to the cycle that is there
			continue
		}
		if before := last[g.Allowance]; before != nil && before.EndsAt.After(latest(g.StartsAt, g.CreatedAt)) && !w.paidFor(before, g) {
			w.Fatalf("two cycles of %s at once: until %s, and from %s", g.Allowance, before.EndsAt, g.StartsAt)
		}
		last[g.Allowance] = g
		var carried, rolled holdfast.Amount // of all that end together: an upgrade may stand beside what was refunded
		for _, other := range stored.grants {
			switch {
			case other.Allowance != g.Allowance:
			case other.Source == holdfast.FromRollover && other.StartsAt.Equal(g.EndsAt):
				carried += other.Granted
			case other.Source == holdfast.FromAllowance && other.EndsAt.Equal(g.EndsAt):
				rolled += other.Rolled
			}
		}
		if carried != rolled || g.Rolled > w.caps[g.Allowance] {
			w.Fatalf("of the cycle until %s %d were carried over, its grants say %d, its cap is %d", g.EndsAt, carried, rolled, w.caps[g.Allowance])
		}
	}
	for _, r := range stored.reservations {
		if most := r.Reserved; r.Policies.Overrun == holdfast.OverrunCap && r.Used > most || r.Debt > 0 && r.Policies.Overrun != holdfast.OverrunDebt || r.LateUsed > most {
			w.Fatalf("reservation %s was charged more than its policy allows: %s", r.ID, inJSON(r))
		}
		if r.Price.Amount == 0 && !r.Price.ByUsage() && r.Used+r.LateUsed+r.Debt > 0 {
			w.Fatalf("reservation %s was made for nothing, and was charged: %s", r.ID, inJSON(r))
		}
	}
}

// paidFor reports whether a cycle may begin beside another one: what was paid for is given, and what an upgrade adds to it,
// also where the plan had been set by hand, or was paid for by a payment that was refunded.
func (w *world) paidFor(before, g *holdfast.Grant) bool {
	return !g.Payment.IsZero() && before.Payment != g.Payment || before.Revoked == before.Granted ||
		w.upgrades[g.ID] && !w.upgrades[before.ID]
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// verify proves all accounts.
func (w *world) verify() {
	w.Helper()
	for _, stored := range w.records {
		w.checkStored(stored)
	}
}

// stored is the account's record, empty where nobody has seen it.
func (w *world) stored(account string) *record {
	if found, ok := w.records[holdfast.AccountIDOf(project, account)]; ok {
		return found
	}
	return &record{}
}

// view is the account as people are shown it now.
func (w *world) view(account string) *holdfast.AccountView {
	w.Helper()
	stored, ok := w.records[holdfast.AccountIDOf(project, account)]
	if !ok {
		return holdfast.View(w.catalog, holdfast.NewState(project, account), w.now)
	}
	state := &holdfast.State{Account: stored.account, Zones: w.zones(stored)}
	for _, g := range stored.grants {
		if g.Open {
			state.Grants = append(state.Grants, g)
		}
	}
	before := inJSON(stored.grants)
	view := holdfast.View(w.catalog, state, w.now)
	if _, changed := state.Changes(); changed || inJSON(stored.grants) != before {
		w.Fatalf("looking at an account changed it")
	}
	return view
}

// believed is the account as it was believed to be at an earlier moment.
func (w *world) believed(account string, at time.Time) *holdfast.AccountView {
	w.Helper()
	stored := w.stored(account)
	state := &holdfast.State{Account: stored.account, Grants: stored.grants, Zones: w.zones(stored)}
	newestFirst := func(yield func(holdfast.Entry, error) bool) {
		for _, e := range slices.Backward(stored.entries) {
			if !yield(e, nil) {
				return
			}
		}
	}
	before := inJSON(stored.grants)
	past, err := holdfast.Rewind(state, newestFirst, at)
	w.mustHold(err, "rewind")
	view := holdfast.View(w.catalog, past, at)
	if inJSON(stored.grants) != before {
		w.Fatalf("looking back changed what is stored")
	}
	return view
}

// balance is what the account has in one unit now.
func (w *world) balance(account, unit string) holdfast.Balance {
	w.Helper()
	for _, b := range w.view(account).Balances {
		if b.Unit == unit {
			return b
		}
	}
	w.Fatalf("account %s has no balance in %s", account, unit)
	return holdfast.Balance{}
}

// reservation is what is stored of a reservation now.
func (stored *record) reservation(id holdfast.ID) *holdfast.Reservation {
	for _, r := range stored.reservations {
		if r.ID == id {
			return r
		}
	}
	return nil
}

func (w *world) mustHold(err error, what string) {
	w.Helper()
	if err != nil {
		w.Fatalf("%s: %v", what, err)
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

func inJSON(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprintf("%+v", value)
	}
	return string(text)
}

func pointer[T any](value T) *T { return &value }
