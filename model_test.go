package holdfast_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-dev/holdfast"
)

// model is what the rules of money say, written a second time without looking at how the core says it: lists and loops,
// no ledger, no ids, no answers. After every step it and the core must agree on every number.
type model struct {
	now      time.Time
	accounts map[string]*modelAccount
}

type modelAccount struct {
	exists, blocked, deleted bool
	plan                     string
	pockets                  []*modelPocket // in the order in which they were made
	works                    []*modelWork
	debt                     map[string]int64
}

type modelPocket struct {
	unit, feature, allowance       string
	priority                       int
	starts, ends, made             time.Time // ends zero: never
	bought, carried                bool
	repays                         bool  // when it begins
	granted, free, held, used, bad int64 // bad: worth nothing any more
	rolled                         int64 // of it, what was carried over
}

type modelWork struct {
	feature                      string
	price                        modelPrice
	quantity, reserved           int64
	state                        string
	takes                        []*modelTake
	used, unbilled, late, debt   int64
	refunded, refundedDebt       int64
	settledLate, doubt, stopping bool
	ttl                          time.Duration
	made, expires, leaseEnds     time.Time
	token                        string
}

type modelTake struct {
	from                     *modelPocket
	reserved, used, refunded int64
}

type modelPlan struct {
	features, free []string
	slots          int
	gives          []modelAllowance
	debt           int64 // of credits
}

type modelAllowance struct {
	unit     string
	amount   int64
	every    time.Duration // zero: every day of the calendar
	rollover int64
}

// modelPrice is fixed, or, where in and out say so, so many credits for every ten tokens of a kind.
type modelPrice struct {
	unit    string
	amount  int64
	in, out int64
}

func (p modelPrice) byUsage() bool { return p.in+p.out > 0 }

func (p modelPrice) isFree() bool { return p.amount == 0 && !p.byUsage() }

func (p modelPrice) of(quantity, in, out int64) int64 {
	if p.byUsage() {
		return (p.in*in + p.out*out + 9) / 10
	}
	return p.amount * quantity
}

type modelPolicies struct{ overrun, doubt, late, cancel string }

// The catalog of the model is small, so that everything runs out all the time.
var (
	modelPrices = map[string][]modelPrice{
		"note": {{unit: "credit", amount: 1}},
		"draw": {{unit: "image", amount: 1}, {unit: "credit", amount: 5}},
		"file": {{unit: "credit", amount: 3}},
		"chat": {{unit: "credit", in: 1, out: 4}},
	}
	modelRules = map[string]modelPolicies{
		"note": {late: "absorb", overrun: "debt"},
		"draw": {cancel: "request", doubt: "charge"},
		"file": {overrun: "extend"},
		"chat": {overrun: "debt", cancel: "request"},
	}
	modelPlans = map[string]modelPlan{
		"free": {features: []string{"note", "draw", "chat"}, slots: 2, gives: []modelAllowance{{unit: "credit", amount: 3, every: 24 * time.Hour}}, debt: 4},
		"pro": {
			features: []string{"note", "draw", "file", "chat"}, free: []string{"note"}, slots: 3, debt: 1,
			gives: []modelAllowance{{unit: "credit", amount: 7, rollover: 4}, {unit: "image", amount: 2, every: 24 * time.Hour}},
		},
	}
	modelUnits    = []string{"credit", "image"}
	modelFeatures = []string{"note", "draw", "file", "chat"}
	modelTTL      = 15 * time.Minute
)

func modelCatalog() *holdfast.Catalog {
	catalog := &holdfast.Catalog{Version: 1}
	for _, unit := range modelUnits {
		catalog.Units = append(catalog.Units, holdfast.Unit{Name: unit})
	}
	for _, name := range modelFeatures {
		rules := modelRules[name]
		feature := holdfast.Feature{Name: name, TTL: modelTTL, Policies: holdfast.Policies{
			Overrun: holdfast.Overrun(rules.overrun), InDoubt: holdfast.InDoubtPolicy(rules.doubt),
			LateCommit: holdfast.LatePolicy(rules.late), CancelRunning: holdfast.CancelPolicy(rules.cancel),
		}}
		for _, from := range modelPrices[name] {
			price := holdfast.Price{Unit: from.unit, Amount: holdfast.Amount(from.amount)}
			if from.byUsage() {
				price.Per, price.Rates = 10, map[string]holdfast.Amount{"in": holdfast.Amount(from.in), "out": holdfast.Amount(from.out)}
			}
			feature.Prices = append(feature.Prices, price)
		}
		catalog.Features = append(catalog.Features, feature)
	}
	for _, name := range []string{"free", "pro"} {
		from := modelPlans[name]
		plan := holdfast.Plan{
			Name: name, Default: name == "free", Features: from.features, FreeFeatures: from.free, MaxActive: from.slots,
			DebtLimits: map[string]holdfast.Amount{"credit": holdfast.Amount(from.debt)},
		}
		for _, a := range from.gives {
			allowance := holdfast.Allowance{
				Key: name + "." + a.unit, Unit: a.unit, Amount: holdfast.Amount(a.amount), Every: holdfast.Cycle{Rolling: a.every}, Rollover: holdfast.Amount(a.rollover),
			}
			if a.every == 0 {
				allowance.Every.Calendar = holdfast.Day
			}
			plan.Allowances = append(plan.Allowances, allowance)
		}
		catalog.Plans = append(catalog.Plans, plan)
	}
	catalog.Products = []holdfast.Product{ // sold in batches only: subscription_test.go has a model of its own
		{Name: "pack", Grant: &holdfast.ProductGrant{Unit: "credit", Amount: 5}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 3}}},
		{Name: "pro", Plan: "pro", Period: holdfast.Period{Days: 1}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 9}}},
	}
	return catalog
}

func (p *modelPocket) over(now time.Time) bool { return !p.ends.IsZero() && !now.Before(p.ends) }

func (p *modelPocket) live(now time.Time) bool { return !now.Before(p.starts) && !p.over(now) }

// cycle reports whether the plan's allowance of a unit has a cycle in force.
func (m *model) cycle(a *modelAccount, unit string) bool {
	return slices.ContainsFunc(a.pockets, func(p *modelPocket) bool { return p.allowance == a.plan+"."+unit && !p.carried && p.live(m.now) })
}

// tick does what time does, before anything else is looked at.
func (m *model) tick(a *modelAccount) {
	for _, p := range a.pockets {
		if p.repays && !m.now.Before(p.starts) {
			p.repays = false
			m.repay(a, p)
		}
	}
	m.closeEnded(a)
	m.openDays(a)
}

// closeEnded carries over what is left in pockets that are over, or makes it worthless. It says how much became so.
func (m *model) closeEnded(a *modelAccount) (lost int64) {
	for _, p := range a.pockets {
		if !p.over(m.now) || p.free == 0 {
			continue
		}
		for _, gives := range modelPlans[a.plan].gives {
			next := p.ends.Add(24 * time.Hour)
			n := min(p.free, gives.rollover-p.rolled)
			if p.allowance != a.plan+"."+gives.unit || p.carried || n <= 0 || !m.now.Before(next) {
				continue
			}
			p.free, p.bad, p.rolled = p.free-n, p.bad+n, p.rolled+n
			a.pockets = append(a.pockets, &modelPocket{
				unit: p.unit, allowance: p.allowance, carried: true, priority: 20, starts: p.ends, ends: next, made: m.now, granted: n, free: n,
			})
		}
		lost += p.free
		p.free, p.bad = 0, p.bad+p.free
	}
	return lost
}

// openDays begins the day's cycles, used or not.
func (m *model) openDays(a *modelAccount) {
	if a.deleted {
		return
	}
	for _, gives := range modelPlans[a.plan].gives {
		if day := m.now.Truncate(24 * time.Hour); gives.every == 0 && !m.cycle(a, gives.unit) {
			a.pockets = append(a.pockets, &modelPocket{
				unit: gives.unit, allowance: a.plan + "." + gives.unit, priority: 10, granted: gives.amount, free: gives.amount,
				starts: day, ends: day.Add(24 * time.Hour), made: m.now,
			})
		}
	}
}

func (m *model) repay(a *modelAccount, p *modelPocket) {
	n := min(a.debt[p.unit], p.free)
	a.debt[p.unit] -= n
	p.free, p.used = p.free-n, p.used+n
}

// usable are the pockets in burn order, windows that would open now included.
func (m *model) usable(a *modelAccount, unit, feature string) []*modelPocket {
	var found []*modelPocket
	for _, p := range a.pockets {
		if p.unit == unit && (feature == "" || p.feature == "" || p.feature == feature) && p.live(m.now) {
			found = append(found, p)
		}
	}
	for _, gives := range modelPlans[a.plan].gives {
		if gives.unit == unit && gives.every > 0 && !a.deleted && !m.cycle(a, unit) {
			found = append(found, &modelPocket{
				unit: unit, allowance: a.plan + "." + gives.unit, priority: 10, granted: gives.amount, free: gives.amount,
				starts: m.now, ends: m.now.Add(gives.every), made: m.now,
			})
		}
	}
	slices.SortStableFunc(found, func(a, b *modelPocket) int {
		switch {
		case a.priority != b.priority:
			return a.priority - b.priority
		case !a.ends.Equal(b.ends):
			if a.ends.IsZero() || !b.ends.IsZero() && b.ends.Before(a.ends) {
				return 1
			}
			return -1
		default:
			return a.made.Compare(b.made)
		}
	})
	return found
}

// take takes an amount out of pockets, one after the other, and says how much there was.
func (m *model) take(a *modelAccount, pockets []*modelPocket, amount int64, each func(p *modelPocket, n int64)) int64 {
	taken := int64(0)
	for _, p := range pockets {
		n := min(amount-taken, p.free)
		if n == 0 {
			continue
		}
		if !slices.Contains(a.pockets, p) {
			a.pockets = append(a.pockets, p)
		}
		p.free -= n
		each(p, n)
		taken += n
	}
	return taken
}

// charge takes an amount at once, for a work that did not hold it, and says how much there was.
func (m *model) charge(a *modelAccount, w *modelWork, amount int64) int64 {
	return m.take(a, m.usable(a, w.price.unit, w.feature), amount, func(p *modelPocket, n int64) {
		p.used += n
		w.takes = append(w.takes, &modelTake{from: p, used: n})
	})
}

func (m *model) hold(a *modelAccount, w *modelWork, amount int64) {
	m.take(a, m.usable(a, w.price.unit, w.feature), amount, func(p *modelPocket, n int64) {
		p.held += n
		w.takes = append(w.takes, &modelTake{from: p, reserved: n})
	})
}

func free(pockets []*modelPocket) (sum int64) {
	for _, p := range pockets {
		sum += p.free
	}
	return sum
}

func held(pockets []*modelPocket) (sum int64) {
	for _, p := range pockets {
		sum += p.held
	}
	return sum
}

func (a *modelAccount) active() int {
	n := 0
	for _, w := range a.works {
		if w.live() && !w.doubt {
			n++
		}
	}
	return n
}

func (w *modelWork) live() bool { return w.state == "reserved" || w.state == "running" }

// rights says why the account may not begin anything with the feature.
func (m *model) rights(a *modelAccount, feature string) string {
	switch {
	case a.blocked:
		return "account_blocked"
	case !slices.Contains(modelPlans[a.plan].features, feature):
		return "feature_not_in_plan"
	}
	return ""
}

// order is what is asked for.
type order struct {
	feature           string
	quantity, in, out int64
}

// verdict says why a reserve would be refused, or which price it would pay.
func (m *model) verdict(a *modelAccount, what order) (string, modelPrice) {
	if reason := m.rights(a, what.feature); reason != "" {
		return reason, modelPrice{}
	}
	plan := modelPlans[a.plan]
	prices := modelPrices[what.feature]
	if slices.Contains(plan.free, what.feature) {
		prices = []modelPrice{{unit: prices[0].unit}}
	}
	reason := "insufficient"
	for _, price := range prices {
		pockets := m.usable(a, price.unit, what.feature)
		needed := price.of(what.quantity, what.in, what.out)
		if free(pockets) >= needed {
			if a.active() >= plan.slots {
				return "too_many_active", modelPrice{}
			}
			return "", price
		}
		if free(pockets)+held(pockets) >= needed {
			reason = "held_by_active"
		}
	}
	return reason, modelPrice{}
}

// expire ends what is overdue, but for one.
func (m *model) expire(a *modelAccount, spared *modelWork) bool {
	some := false
	for _, w := range a.works {
		if w != spared && w.live() && !m.now.Before(w.expires) {
			m.endOverdue(a, w)
			some = true
		}
	}
	return some
}

func (m *model) endOverdue(a *modelAccount, w *modelWork) {
	switch {
	case w.stopping:
		m.end(a, w, "released", 0)
	case w.doubt && modelRules[w.feature].doubt == "charge":
		m.end(a, w, "committed", w.reserved)
	default:
		m.end(a, w, "expired", 0)
	}
}

// end charges a part of what is held, and gives the rest back.
func (m *model) end(a *modelAccount, w *modelWork, state string, used int64) {
	w.state, w.doubt = state, false
	for _, t := range w.takes {
		n := min(used, t.reserved)
		t.used += n
		used -= n
		w.used += n
		t.from.held -= t.reserved
		t.from.used += n
		t.from.free += t.reserved - n
	}
	m.closeEnded(a)
}

func (m *model) reserve(a *modelAccount, what order, ttl time.Duration) (string, *modelWork) {
	m.tick(a)
	reason, price := m.verdict(a, what)
	if reason != "" && m.expire(a, nil) {
		reason, price = m.verdict(a, what)
	}
	a.exists = true
	if reason != "" {
		return reason, nil
	}
	w := &modelWork{
		feature: what.feature, price: price, quantity: what.quantity, reserved: price.of(what.quantity, what.in, what.out), state: "reserved",
		ttl: ttl, made: m.now, expires: m.now.Add(ttl),
	}
	m.hold(a, w, w.reserved)
	a.works = append(a.works, w)
	return "", w
}

func (m *model) move(w *modelWork, until time.Time) {
	if last := w.made.Add(4 * w.ttl); until.After(last) {
		until = last
	}
	if until.After(w.expires) {
		w.expires = until
	}
}

func (m *model) lease(w *modelWork, length time.Duration) {
	w.leaseEnds = m.now.Add(length)
	if w.leaseEnds.After(w.expires) {
		w.leaseEnds = w.expires
	}
}

func (m *model) start(a *modelAccount, w *modelWork, token string, length time.Duration) string {
	m.tick(a)
	switch {
	case !w.live():
		return "already_ended"
	case w.state == "running" && (w.doubt || m.now.Before(w.leaseEnds)):
		return "already_running"
	case m.outlived(a, w):
		return "already_ended"
	}
	w.state, w.token = "running", token
	m.move(w, m.now.Add(w.ttl))
	m.lease(w, length)
	return ""
}

func (m *model) heartbeat(a *modelAccount, w *modelWork, token string, length time.Duration) string {
	m.tick(a)
	switch {
	case !w.live():
		return "already_ended"
	case w.state != "running" || w.token != token:
		return "stale_lease"
	case m.outlived(a, w):
		return "already_ended"
	}
	m.move(w, m.now.Add(length))
	m.lease(w, length)
	return ""
}

// outlived: held as long as it may be, so that no lease can be given any more; or asked to stop, and left by its worker.
func (m *model) outlived(a *modelAccount, w *modelWork) bool {
	if m.now.Before(w.made.Add(4*w.ttl)) && !(w.stopping && !m.now.Before(w.leaseEnds)) {
		return false
	}
	m.endOverdue(a, w)
	return true
}

func (w *modelWork) mayEnd(token string) bool {
	return w.token == "" || w.token == token || w.doubt && token == ""
}

// figure is what a commit reports.
type figure struct {
	given    string // "", amount, quantity or usage
	n        int64  // of an amount or a quantity
	in, out  int64
	reported int64
}

func (f *figure) valid(w *modelWork) bool {
	switch {
	case f.given == "usage" && w.price.byUsage():
		f.reported = w.price.of(0, f.in, f.out)
		return true
	case f.given == "amount":
		f.reported = f.n
	case f.given == "quantity":
		f.reported = w.price.of(f.n, 0, 0)
	default:
		f.reported = w.reserved
	}
	switch {
	case w.price.byUsage() && f.given != "amount":
		return false
	case w.stopping && (f.given != "amount" && f.given != "quantity" || f.reported > w.reserved):
		return false
	}
	return true
}

// commit answers the reason, and whether anything changed.
func (m *model) commit(a *modelAccount, w *modelWork, token string, f figure) (string, bool) {
	m.tick(a)
	if !f.valid(w) {
		return "invalid", false
	}
	switch {
	case w.live() && !w.mayEnd(token):
		return "stale_lease", false
	case w.live():
		m.settle(a, w, f.reported)
		return "", true
	case w.state == "committed" && f.reported == w.used+w.debt+w.unbilled, w.settledLate && f.reported == w.late+w.unbilled:
		return "", false
	case w.state != "expired" || w.settledLate:
		return "already_ended", false
	case !w.mayEnd(token):
		return "stale_lease", false
	}
	w.settledLate = true
	if modelRules[w.feature].late != "absorb" {
		w.late = m.charge(a, w, min(f.reported, w.reserved))
	}
	w.unbilled = f.reported - w.late
	return "", true
}

// settle commits what was reported: beyond what is held by the policy of the feature.
func (m *model) settle(a *modelAccount, w *modelWork, reported int64) {
	over := max(0, reported-w.reserved)
	policy := modelRules[w.feature].overrun
	if w.stopping || w.price.isFree() {
		policy = ""
	}
	extra := int64(0)
	if policy != "" {
		extra = m.charge(a, w, over)
	}
	over -= extra
	if policy == "debt" && w.price.unit == "credit" {
		w.debt = max(0, min(over, modelPlans[a.plan].debt-a.debt["credit"]))
		a.debt["credit"] += w.debt
	}
	w.unbilled = over - w.debt
	m.end(a, w, "committed", min(reported, w.reserved))
	w.used += extra
}

func (m *model) release(a *modelAccount, w *modelWork, token string) (string, bool) {
	m.tick(a)
	switch {
	case w.state == "released":
		return "", false
	case !w.live():
		return "already_ended", false
	case !w.mayEnd(token):
		return "stale_lease", false
	}
	m.end(a, w, "released", 0)
	return "", true
}

func (m *model) cancel(a *modelAccount, w *modelWork) (string, bool) {
	m.tick(a)
	switch {
	case w.state == "released":
		return "", false
	case !w.live():
		return "already_ended", false
	case w.state == "running" && (w.doubt || modelRules[w.feature].cancel != "request"):
		return "already_running", false
	case w.state == "running" && w.stopping:
		return "", false
	case w.state == "running":
		w.stopping = true
		if end := latest(w.leaseEnds, m.now); end.Before(w.expires) {
			w.expires = end
		}
		return "", true
	}
	m.end(a, w, "released", 0)
	return "", true
}

func (m *model) doubt(a *modelAccount, w *modelWork, token string) (string, bool) {
	m.tick(a)
	switch {
	case !w.live():
		return "already_ended", false
	case w.state != "running" || w.token != token:
		return "stale_lease", false
	}
	changed := !w.doubt
	w.doubt = true
	return "", changed
}

// extend asks for a larger bound, more time, or both.
func (m *model) extend(a *modelAccount, w *modelWork, token string, larger *order, ttl time.Duration) (string, bool) {
	m.tick(a)
	needed := w.reserved
	if larger != nil {
		if w.price.byUsage() != (larger.quantity == 0) && !(w.price.isFree() && larger.quantity == 0) {
			return "invalid", false
		}
		needed = w.price.of(larger.quantity, larger.in, larger.out)
	}
	switch {
	case !w.live():
		return "already_ended", false
	case !w.mayEnd(token):
		return "stale_lease", false
	case m.outlived(a, w):
		return "already_ended", false
	case w.stopping:
		return "", false
	}
	changed := false
	if more := needed - w.reserved; more > 0 {
		if reason := m.rights(a, w.feature); reason != "" {
			return reason, false
		}
		pockets := m.usable(a, w.price.unit, w.feature)
		if free(pockets) < more && m.expire(a, w) {
			pockets = m.usable(a, w.price.unit, w.feature)
		}
		switch {
		case free(pockets) >= more:
		case free(pockets)+held(pockets) >= more:
			return "held_by_active", false
		default:
			return "insufficient", false
		}
		m.hold(a, w, more)
		w.reserved, changed = needed, true
	}
	if larger != nil && larger.quantity > w.quantity {
		w.quantity, changed = larger.quantity, true
	}
	before := w.expires
	if ttl > 0 {
		m.move(w, m.now.Add(ttl))
	}
	return "", changed || !w.expires.Equal(before)
}

func (m *model) force(a *modelAccount, w *modelWork, commit bool, amount int64) (string, bool) {
	m.tick(a)
	switch {
	case commit && amount > w.reserved:
		return "invalid", false
	case !commit && w.state == "released", commit && w.state == "committed" && amount == w.used+w.debt+w.unbilled:
		return "", false
	case !w.live():
		return "already_ended", false
	case commit:
		m.end(a, w, "committed", amount)
	default:
		m.end(a, w, "released", 0)
	}
	return "", true
}

// refund forgives what is owed, then gives back what was charged last first. A nil amount is all that is left.
func (m *model) refund(a *modelAccount, w *modelWork, amount *int64, correction bool) (string, bool) {
	m.tick(a)
	if w.state != "committed" && !w.settledLate {
		return "not_committed", false
	}
	left := w.used + w.late + w.debt - w.refunded
	n := left
	if amount != nil {
		n = *amount
	}
	if n > left {
		return "refund_exceeds_used", false
	}
	w.refunded += n
	changed := n > 0
	owed := min(n, w.debt-w.refundedDebt)
	w.refundedDebt += owed
	n -= owed
	forgiven := min(owed, a.debt["credit"])
	a.debt["credit"] -= forgiven
	again := owed - forgiven
	for _, t := range slices.Backward(w.takes) {
		back := min(n, t.used-t.refunded)
		t.refunded += back
		n -= back
		t.from.used -= back
		t.from.free += back
	}
	if lost := m.closeEnded(a); correction {
		again += lost
	}
	if again > 0 {
		a.pockets = append(a.pockets, &modelPocket{unit: w.price.unit, priority: 40, granted: again, free: again, starts: m.now, made: m.now})
	}
	return "", changed
}

func (m *model) adjust(a *modelAccount, unit string, amount int64) string {
	if amount > 0 {
		a.pockets = append(a.pockets, &modelPocket{unit: unit, priority: 40, granted: amount, free: amount, starts: m.now, made: m.now})
		return ""
	}
	pockets := m.usable(a, unit, "")
	if free(pockets) < -amount {
		return "insufficient"
	}
	m.take(a, pockets, -amount, func(p *modelPocket, n int64) { p.bad += n })
	return ""
}

func (m *model) delete(a *modelAccount) bool {
	m.tick(a)
	if a.deleted {
		return false
	}
	for _, w := range a.works {
		if w.live() {
			m.end(a, w, "released", 0)
		}
	}
	a.deleted, a.blocked, a.plan = true, true, "free"
	return true
}

// pair is the core and the model side by side.
type pair struct {
	*rapid.T
	world *world
	model *model
	works map[*modelWork]target
	sent  []sentCommand // under a key, with what they were answered
}

type target struct {
	account string
	id      holdfast.ID
}

type sentCommand struct {
	command holdfast.Command
	outcome holdfast.Outcome
}

var modelNames = []string{"ann", "bob", "cat"}

func newPair(t *rapid.T) *pair {
	p := &pair{T: t, world: newWorld(t), works: map[*modelWork]target{}}
	p.world.catalog = modelCatalog()
	p.model = &model{now: theMorning, accounts: map[string]*modelAccount{}}
	for _, name := range modelNames {
		p.model.accounts[name] = &modelAccount{plan: "free", debt: map[string]int64{}}
	}
	return p
}

func (p *pair) account() (string, *modelAccount) {
	name := rapid.SampledFrom(modelNames).Draw(p.T, "account")
	return name, p.model.accounts[name]
}

// work picks a reservation that was made, live or not; the young ones more often.
func (p *pair) work() (string, *modelAccount, *modelWork) {
	name, a := p.account()
	if len(a.works) == 0 {
		p.Skip("nothing was reserved")
	}
	n := min(rapid.IntRange(0, 5).Draw(p.T, "how long ago"), len(a.works)-1)
	return name, a, a.works[len(a.works)-1-n]
}

// submit sends an operation under a key of its own, and remembers both for a repetition.
func (p *pair) submit(account string, do holdfast.Operation) result {
	key := fmt.Sprintf("k%d", p.world.commands)
	command := p.world.command(account, key, do)
	got := p.world.submit(command)
	if got.Reason.Recorded() {
		p.sent = append(p.sent, sentCommand{command, got.Outcome})
	}
	return got
}

func (p *pair) agree(got result, reason string, changed bool) {
	p.Helper()
	if string(got.Reason) != reason {
		p.Fatalf("%s came to %q, by the rules it is %q", got.operation, got.Reason, reason)
	}
	if reason == "" && got.Changed != changed {
		p.Fatalf("%s changed something: %t, by the rules %t", got.operation, got.Changed, changed)
	}
}

func (p *pair) token(w *modelWork) string {
	return rapid.SampledFrom([]string{w.token, w.token, w.token, "", "stolen"}).Draw(p.T, "token")
}

func (p *pair) lease() time.Duration {
	return rapid.SampledFrom([]time.Duration{5 * time.Second, time.Minute, 20 * time.Minute}).Draw(p.T, "lease")
}

// steps are everything that can happen.
func (p *pair) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"wait": func(*rapid.T) {
			for _, name := range modelNames { // to the very end of something, more often than not
				for _, w := range p.model.accounts[name].works {
					if w.live() && w.expires.After(p.model.now) && rapid.Bool().Draw(p.T, "to the end") {
						p.passTo(w.expires)
						return
					}
				}
			}
			p.passTo(p.model.now.Add(rapid.SampledFrom([]time.Duration{
				time.Second, time.Minute, 15 * time.Minute, 6 * time.Hour, 24 * time.Hour, 50 * time.Hour,
			}).Draw(p.T, "for")))
		},
		"put": func(*rapid.T) {
			name, a := p.account()
			blocked := rapid.IntRange(0, 3).Draw(p.T, "blocked") == 0
			got := p.submit(name, holdfast.PutAccount{Blocked: &blocked})
			p.model.tick(a)
			if a.deleted {
				p.agree(got, "account_blocked", false)
				return
			}
			changed := !a.exists || a.blocked != blocked
			a.exists, a.blocked = true, blocked
			p.agree(got, "", changed)
		},
		"plan": func(*rapid.T) {
			name, a := p.account()
			plan := rapid.SampledFrom([]string{"free", "pro"}).Draw(p.T, "plan")
			got := p.submit(name, holdfast.SetPlan{Plan: plan})
			if p.turnedAway(a, got) {
				return
			}
			p.agree(got, "", got.Changed) // a first "free" is written down, though the account was on it
			a.plan = plan
			p.model.openDays(a)
		},
		"grant": func(*rapid.T) {
			name, a := p.account()
			pocket := &modelPocket{
				unit:     rapid.SampledFrom(modelUnits).Draw(p.T, "unit"),
				feature:  rapid.SampledFrom([]string{"", "", "note", "draw"}).Draw(p.T, "feature"),
				priority: rapid.SampledFrom([]int{5, 30, 40}).Draw(p.T, "priority"),
				granted:  rapid.Int64Range(1, 12).Draw(p.T, "amount"),
				starts:   p.model.now, made: p.model.now,
			}
			pocket.free = pocket.granted
			op := holdfast.AddGrant{Unit: pocket.unit, Amount: holdfast.Amount(pocket.granted), Priority: &pocket.priority}
			if pocket.feature != "" {
				op.Features = []string{pocket.feature}
			}
			if rapid.Bool().Draw(p.T, "later") {
				pocket.starts = p.model.now.Add(10 * time.Minute)
				op.StartsAt = pocket.starts
			}
			if rapid.Bool().Draw(p.T, "ends") {
				pocket.ends = p.model.now.Add(rapid.SampledFrom([]time.Duration{15 * time.Minute, 30 * time.Hour}).Draw(p.T, "end"))
				op.EndsAt = pocket.ends
			}
			if pocket.bought = rapid.Bool().Draw(p.T, "bought"); pocket.bought {
				op.Source = holdfast.FromPurchase
			}
			got := p.submit(name, op)
			if p.turnedAway(a, got) {
				return
			}
			a.pockets = append(a.pockets, pocket)
			if pocket.repays = pocket.bought && pocket.feature == ""; pocket.repays && !p.model.now.Before(pocket.starts) {
				pocket.repays = false
				p.model.repay(a, pocket)
			}
			p.agree(got, "", true)
		},
		"adjust": func(*rapid.T) {
			name, a := p.account()
			unit := rapid.SampledFrom(modelUnits).Draw(p.T, "unit")
			amount := rapid.SampledFrom([]int64{-6, -2, -1, 1, 4}).Draw(p.T, "amount")
			got := p.submit(name, holdfast.Adjust{Unit: unit, Amount: holdfast.Amount(amount), Reason: "a check"})
			if p.turnedAway(a, got) {
				return
			}
			p.agree(got, p.model.adjust(a, unit, amount), true)
		},
		"reserve":       p.reserve,
		"reserve more":  p.reserve, // twice as often as the rest
		"reserve again": p.reserve,
		"ask": func(*rapid.T) {
			name, a := p.account()
			what := p.order()
			got := p.world.do(name, "", what.reserve(0, true))
			ghost := &model{now: p.model.now}
			copied := a.copy()
			ghost.tick(copied)
			reason, _ := ghost.verdict(copied, what)
			if reason != "" && ghost.expire(copied, nil) { // what is overdue does not count, and stays as it is
				reason, _ = ghost.verdict(copied, what)
			}
			p.agree(got, reason, true)
		},
		"charge": func(*rapid.T) {
			name, a := p.account()
			what := p.order()
			op := holdfast.Charge{Reserve: what.reserve(0, false)}
			reported := int64(-1)
			if rapid.Bool().Draw(p.T, "an amount") {
				reported = rapid.Int64Range(0, 9).Draw(p.T, "amount")
				op.Amount = pointer(holdfast.Amount(reported))
			}
			got := p.submit(name, op)
			reason, w := p.model.reserve(a, what, modelTTL)
			p.agree(got, reason, true)
			if w == nil {
				return
			}
			if reported < 0 {
				reported = w.reserved
			}
			p.model.settle(a, w, reported)
			p.works[w] = target{name, got.Reservation.ID}
		},
		"start": func(*rapid.T) {
			name, a, w := p.work()
			token, lease := fmt.Sprintf("t%d", p.world.commands), p.lease()
			got := p.submit(name, holdfast.Start{ReservationID: p.works[w].id, Worker: "w", Token: token, Lease: lease})
			p.agree(got, p.model.start(a, w, token, lease), true)
		},
		"heartbeat": func(*rapid.T) {
			name, a, w := p.work()
			token, lease := p.token(w), p.lease()
			got := p.submit(name, holdfast.Heartbeat{ReservationID: p.works[w].id, LeaseToken: token, Lease: lease})
			p.agree(got, p.model.heartbeat(a, w, token, lease), true)
		},
		"commit": func(*rapid.T) {
			name, a, w := p.work()
			token := p.token(w)
			op := holdfast.Commit{ReservationID: p.works[w].id, LeaseToken: token}
			f := figure{given: rapid.SampledFrom([]string{"", "amount", "quantity", "usage"}).Draw(p.T, "by")}
			switch f.given {
			case "amount":
				f.n = rapid.Int64Range(0, w.reserved+6).Draw(p.T, "amount")
				op.Amount = pointer(holdfast.Amount(f.n))
			case "quantity":
				f.n = rapid.Int64Range(0, 2).Draw(p.T, "quantity")
				op.Quantity = pointer(holdfast.Amount(f.n))
			case "usage":
				f.in, f.out = rapid.Int64Range(0, 30).Draw(p.T, "in"), rapid.Int64Range(0, 20).Draw(p.T, "out")
				op.Usage = map[string]holdfast.Amount{"in": holdfast.Amount(f.in), "out": holdfast.Amount(f.out), "unrated": 7}
			}
			got := p.submit(name, op)
			reason, changed := p.model.commit(a, w, token, f)
			p.agree(got, reason, changed)
		},
		"release": func(*rapid.T) {
			name, a, w := p.work()
			token := p.token(w)
			got := p.submit(name, holdfast.Release{ReservationID: p.works[w].id, LeaseToken: token})
			reason, changed := p.model.release(a, w, token)
			p.agree(got, reason, changed)
		},
		"cancel": func(*rapid.T) {
			name, a, w := p.work()
			got := p.submit(name, holdfast.Cancel{ReservationID: p.works[w].id})
			reason, changed := p.model.cancel(a, w)
			p.agree(got, reason, changed)
		},
		"in doubt": func(*rapid.T) {
			name, a, w := p.work()
			token := p.token(w)
			got := p.submit(name, holdfast.InDoubt{ReservationID: p.works[w].id, LeaseToken: token})
			reason, changed := p.model.doubt(a, w, token)
			p.agree(got, reason, changed)
		},
		"extend": func(*rapid.T) {
			name, a, w := p.work()
			token := p.token(w)
			op := holdfast.Extend{ReservationID: p.works[w].id, LeaseToken: token}
			var larger *order
			switch rapid.IntRange(0, 2).Draw(p.T, "by") {
			case 1:
				larger = &order{quantity: rapid.Int64Range(1, 4).Draw(p.T, "quantity")}
				op.Quantity = pointer(holdfast.Amount(larger.quantity))
			case 2:
				larger = &order{in: rapid.Int64Range(0, 30).Draw(p.T, "in"), out: rapid.Int64Range(1, 20).Draw(p.T, "out")}
				op.Usage = map[string]holdfast.Amount{"in": holdfast.Amount(larger.in), "out": holdfast.Amount(larger.out)}
			}
			if larger == nil || rapid.Bool().Draw(p.T, "time") {
				op.TTL = rapid.SampledFrom([]time.Duration{time.Minute, 20 * time.Minute, 3 * time.Hour}).Draw(p.T, "ttl")
			}
			got := p.submit(name, op)
			reason, changed := p.model.extend(a, w, token, larger, op.TTL)
			p.agree(got, reason, changed)
		},
		"force": func(*rapid.T) {
			name, a, w := p.work()
			op := holdfast.Force{ReservationID: p.works[w].id, End: holdfast.EndRelease, Reason: "a check"}
			amount := rapid.Int64Range(0, w.reserved+1).Draw(p.T, "amount")
			commit := rapid.Bool().Draw(p.T, "commit")
			if commit {
				op.End, op.Amount = holdfast.EndCommit, pointer(holdfast.Amount(amount))
			}
			got := p.submit(name, op)
			reason, changed := p.model.force(a, w, commit, amount)
			p.agree(got, reason, changed)
		},
		"refund": func(*rapid.T) {
			name, a, w := p.work()
			op := holdfast.Refund{ReservationID: p.works[w].id}
			var amount *int64
			if rapid.Bool().Draw(p.T, "a part") {
				amount = pointer(rapid.Int64Range(1, 4).Draw(p.T, "amount"))
				op.Amount = pointer(holdfast.Amount(*amount))
			}
			correction := rapid.Bool().Draw(p.T, "correction")
			if correction {
				op.Ended = holdfast.EndedCorrection
			}
			got := p.submit(name, op)
			reason, changed := p.model.refund(a, w, amount, correction)
			p.agree(got, reason, changed)
		},
		"delete": func(*rapid.T) {
			name, a := p.account()
			if rapid.IntRange(0, 9).Draw(p.T, "kept") > 0 {
				p.Skip("it stays")
			}
			got := p.submit(name, holdfast.DeleteAccount{})
			if !a.exists {
				p.agree(got, "not_found", false)
				return
			}
			p.agree(got, "", p.model.delete(a))
		},
		"sweep": func(*rapid.T) {
			name, a := p.account()
			got := p.world.do(name, "", holdfast.Expire{})
			if !a.exists {
				p.agree(got, "not_found", false)
				return
			}
			p.model.tick(a)
			p.agree(got, "", p.model.expire(a, nil))
		},
		"repeat": func(*rapid.T) {
			if len(p.sent) == 0 {
				p.Skip("nothing was sent")
			}
			old := rapid.SampledFrom(p.sent).Draw(p.T, "of")
			command := old.command
			p.world.commands++
			command.ID = commandID(p.world.commands)
			got := p.world.submit(command)
			want := old.outcome
			want.Replayed = true
			if account := got.Owner; account.Name == holdfast.Erased { // what was personal is forgotten, in answers as well
				want.ForgetPerson()
				got.ForgetPerson()
				want.Owner = account
			}
			if !reflect.DeepEqual(got.Outcome, want) {
				p.Fatalf("%s repeated came to\n%s\nand before to\n%s", got.operation, inJSON(got.Outcome), inJSON(old.outcome))
			}
			command.Do = holdfast.AddGrant{Unit: "credit", Amount: 77} // another request under the same key
			command.ID = commandID(1<<20 + p.world.commands)
			p.agree(p.world.submit(command), "key_reused", false)
		},
		"": func(*rapid.T) { p.compare() },
	}
}

// turnedAway checks a command that gives something to an account that is not there, or not any more.
func (p *pair) turnedAway(a *modelAccount, got result) bool {
	p.Helper()
	switch {
	case !a.exists:
		p.agree(got, "not_found", false)
		return true
	case a.deleted:
		p.model.tick(a)
		p.agree(got, "account_blocked", false)
		return true
	}
	p.model.tick(a)
	return false
}

func (p *pair) order() order {
	what := order{feature: rapid.SampledFrom([]string{"note", "note", "draw", "file", "chat", "chat"}).Draw(p.T, "feature"), quantity: 1}
	if what.feature == "chat" {
		what.in, what.out = rapid.Int64Range(0, 30).Draw(p.T, "in"), rapid.Int64Range(0, 20).Draw(p.T, "out")
	} else {
		what.quantity = rapid.SampledFrom([]int64{1, 1, 1, 2, 4}).Draw(p.T, "quantity")
	}
	return what
}

func (what order) reserve(ttl time.Duration, dryRun bool) holdfast.Reserve {
	op := holdfast.Reserve{Feature: what.feature, Quantity: holdfast.Amount(what.quantity), TTL: ttl, DryRun: dryRun}
	if what.feature == "chat" {
		op.Usage = map[string]holdfast.Amount{"in": holdfast.Amount(what.in), "out": holdfast.Amount(what.out)}
	}
	return op
}

func (p *pair) reserve(*rapid.T) {
	name, a := p.account()
	what := p.order()
	ttl := rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour, 20 * time.Hour}).Draw(p.T, "ttl")
	got := p.submit(name, what.reserve(ttl, false))
	if ttl == 0 {
		ttl = modelTTL
	}
	reason, w := p.model.reserve(a, what, ttl)
	p.agree(got, reason, true)
	if w != nil {
		p.works[w] = target{name, got.Reservation.ID}
	}
}

func (p *pair) passTo(at time.Time) { p.model.now, p.world.now = at, at }

// copy is deep as far as expire and verdict look.
func (a *modelAccount) copy() *modelAccount {
	copied := *a
	copied.debt = maps.Clone(a.debt)
	pockets := map[*modelPocket]*modelPocket{}
	copied.pockets = nil
	for _, pocket := range a.pockets {
		other := *pocket
		pockets[pocket] = &other
		copied.pockets = append(copied.pockets, &other)
	}
	copied.works = nil
	for _, w := range a.works {
		other := *w
		other.takes = nil
		for _, t := range w.takes {
			taken := *t
			taken.from = pockets[t.from]
			other.takes = append(other.takes, &taken)
		}
		copied.works = append(copied.works, &other)
	}
	return &copied
}

// compare holds every number of the model against the core's.
func (p *pair) compare() {
	p.Helper()
	for _, name := range modelNames {
		a := p.model.accounts[name]
		view := p.world.view(name)
		if view.Exists != a.exists || view.Account.Active != a.active() || view.Plan != a.plan || view.Account.Blocked != a.blocked {
			p.Fatalf("%s: exists %t, active %d, on %s; by the rules %t, %d, %s", name, view.Exists, view.Account.Active, view.Plan, a.exists, a.active(), a.plan)
		}
		for _, unit := range modelUnits {
			p.compareUnit(name, a, unit)
		}
	}
	for w, at := range p.works {
		r := p.world.stored(at.account).reservation(at.id)
		got := []any{
			string(r.State), int64(r.Reserved), int64(r.Used), int64(r.Debt), int64(r.Unbilled), int64(r.LateUsed), int64(r.Refunded),
			r.ExpiresAt, r.LeaseToken, r.InDoubt, !r.CancelRequestedAt.IsZero(),
		}
		want := []any{w.state, w.reserved, w.used, w.debt, w.unbilled, w.late, w.refunded, w.expires, w.token, w.doubt, w.stopping}
		if !reflect.DeepEqual(got, want) {
			p.Fatalf("reservation %s: state, reserved, used, owed, unbilled, late, refunded, expiry, token, doubt and stop are\n%v\nby the rules\n%v", at.id, got, want)
		}
	}
	p.world.verify()
}

func (p *pair) compareUnit(name string, a *modelAccount, unit string) {
	p.Helper()
	b := p.world.balance(name, unit)
	var granted, used, heldInAll, bad, wantUsed, wantHeld, wantGranted int64
	for _, g := range p.world.stored(name).grants {
		if g.Unit == unit {
			granted, used, heldInAll, bad = granted+int64(g.Granted), used+int64(g.Used), heldInAll+int64(g.Reserved), bad+int64(g.Voided)
		}
	}
	for _, pocket := range a.pockets {
		if pocket.unit != unit {
			continue
		}
		wantGranted, wantUsed, wantHeld = wantGranted+pocket.granted, wantUsed+pocket.used, wantHeld+pocket.held
		if pocket.granted != pocket.free+pocket.held+pocket.used+pocket.bad {
			p.Fatalf("the model itself lost something of %+v", pocket)
		}
	}
	now := a.copy() // as a look at it lets time pass
	p.model.tick(now)
	available := free(p.model.usable(now, unit, ""))
	if int64(b.Debt) != now.debt[unit] {
		p.Fatalf("%s owes %d %s, by the rules %d", name, b.Debt, unit, now.debt[unit])
	}
	if int64(b.Available) != available || int64(b.Reserved) != wantHeld || heldInAll != wantHeld || used != wantUsed || granted != wantGranted {
		p.Fatalf("%s %s: available %d, reserved %d, used %d, granted %d; by the rules %d, %d, %d, %d",
			name, unit, b.Available, b.Reserved, used, granted, available, wantHeld, wantUsed, wantGranted)
	}
}

// TestTheCoreAgreesWithTheRulesWhateverHappens plays random commands against the model. What must always hold
// (docs/concepts/invariants.md) is checked after every step: by the world with each command, and by comparison.
func TestTheCoreAgreesWithTheRulesWhateverHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newPair(t)
		t.Repeat(p.steps())
	})
}

// TestDecidingInABatchComesToTheSameAsOneByOne: the engine decides what waits for an account on one loaded state, and
// saves once. Each command then sees what the ones before it did.
func TestDecidingInABatchComesToTheSameAsOneByOne(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		apart, together := newWorld(t), newWorld(t)
		apart.catalog, together.catalog = modelCatalog(), modelCatalog()
		for range rapid.IntRange(1, 8).Draw(t, "batches") {
			var batch []holdfast.Command
			known := apart.stored("ann").reservations
			for range rapid.IntRange(1, 8).Draw(t, "commands") {
				if rapid.IntRange(0, 3).Draw(t, "paid") == 0 {
					batch = append(batch, drawPayment(t, apart))
				} else {
					batch = append(batch, drawCommand(t, apart, known))
				}
			}
			var outcomes []holdfast.Outcome
			for _, command := range batch {
				outcomes = append(outcomes, apart.submit(command).Outcome)
			}
			state := together.load(batch...)
			for i, command := range batch {
				got := holdfast.Decide(together.catalog, state, command, together.now)
				if withoutVersions(got) != withoutVersions(outcomes[i]) {
					t.Fatalf("%s in a batch came to\n%s\nalone to\n%s", command.Do.Name(), inJSON(got), inJSON(outcomes[i]))
				}
			}
			together.mustHold(state.Check(), "decided batch")
			if changes, changed := state.Changes(); changed {
				together.save(batch[0].AccountID(), changes)
			}
			wait := rapid.SampledFrom([]time.Duration{0, time.Second, 15 * time.Minute, 25 * time.Hour}).Draw(t, "wait")
			apart.now = apart.now.Add(wait)
			together.now = apart.now
		}
		one, other := apart.stored("ann"), together.stored("ann")
		if inJSON(one.entries) != inJSON(other.entries) || inJSON(one.reservations) != inJSON(other.reservations) || inJSON(one.grants) != inJSON(other.grants) ||
			inJSON(one.payments) != inJSON(other.payments) {
			t.Fatalf("what is stored differs:\n%s\n%s", inJSON(one.entries), inJSON(other.entries))
		}
	})
}

// cyclesCatalog is the model's, with every kind of cycle.
func cyclesCatalog() *holdfast.Catalog {
	catalog := modelCatalog()
	catalog.Plans[0].Allowances = []holdfast.Allowance{
		{Key: "free.credit", Unit: "credit", Amount: 3, Every: holdfast.Cycle{Calendar: holdfast.Day}, Rollover: 2},
		{Key: "free.credit#2", Unit: "credit", Amount: 5, Every: holdfast.Cycle{Rolling: 30 * time.Hour}},
		{Key: "free.image", Unit: "image", Amount: 4, Every: holdfast.Cycle{Calendar: holdfast.Week}},
	}
	catalog.Plans[1].Allowances = []holdfast.Allowance{
		{Key: "pro.credit", Unit: "credit", Amount: 20, Every: holdfast.Cycle{Term: true}, Rollover: 9},
		{Key: "pro.credit#2", Unit: "credit", Amount: 2, Every: holdfast.Cycle{Anniversary: true}},
		{Key: "pro.image", Unit: "image", Amount: 9, Every: holdfast.Cycle{Calendar: holdfast.Month}, Rollover: 4},
	}
	return catalog
}

// TestThePastIsBelievedAsItWasShown: what a look showed at any moment, at a command or between two, is what is told later
// of that moment, whatever cycle has ended and whatever plan was set since. Zones change as well; what a look before such a
// change showed is not compared, as no entry tells of zones. That no two cycles are in force at once, and no refusal says
// anything untrue of waiting, is checked by the world.
func TestThePastIsBelievedAsItWasShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		w.catalog = cyclesCatalog()
		shown := map[time.Time]string{}
		look := func(view *holdfast.AccountView) string { return view.Plan + inJSON(view.Balances) }
		w.now = theMorning.AddDate(0, 0, rapid.IntRange(0, 400).Draw(t, "day"))
		moves := rapid.Bool().Draw(t, "moves") // in whose zone an earlier plan counted its months, no entry tells
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			command := drawCommand(t, w, w.stored("ann").reservations)
			if _, planned := command.Do.(holdfast.SetPlan); planned && moves && len(shown) > 2 {
				zone := rapid.SampledFrom([]string{"", "Europe/Berlin", "Asia/Tokyo", "America/New_York", "Africa/Cairo"}).Draw(t, "zone")
				if zone != w.stored("ann").account.TimeZone {
					clear(shown)
				}
				command.Do = holdfast.PutAccount{TimeZone: &zone}
			}
			w.submit(command)
			shown[w.now] = look(w.view("ann"))
			for range 2 {
				w.now = w.now.Add(rapid.SampledFrom([]time.Duration{
					time.Second, 20 * time.Minute, 7 * time.Hour, 26 * time.Hour, 8 * 24 * time.Hour, 33 * 24 * time.Hour,
				}).Draw(t, "wait"))
				shown[w.now] = look(w.view("ann"))
			}
			w.now = w.now.Add(time.Second)
		}
		if account := w.stored("ann").account; rapid.Bool().Draw(t, "deleted") && account.Version > 0 && account.TimeZone == "" { // it is forgotten
			w.do("ann", "", holdfast.DeleteAccount{})
		}
		for at, was := range shown {
			if told := look(w.believed("ann", at)); w.stored("ann").account.Version > 0 && told != was {
				t.Fatalf("of %s is told\n%s\nand it was shown\n%s", at, told, was)
			}
		}
	})
}

// withoutVersions is an outcome as it is answered: how often the account was saved is no part of it.
func withoutVersions(outcome holdfast.Outcome) string {
	if outcome.Account != nil {
		view := *outcome.Account
		view.Account.Version, view.Account.DecidedAt = 0, time.Time{}
		outcome.Account = &view
	}
	text, err := json.Marshal(outcome)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %t", text, outcome.Replayed)
}

// drawPayment is anything about what ann pays, with payments that come again.
func drawPayment(t *rapid.T, w *world) holdfast.Command {
	payment, one := fmt.Sprintf("p%d", rapid.IntRange(1, 4).Draw(t, "payment")), holdfast.Amount(1)
	key := rapid.SampledFrom([]string{"", "", "k0", "k1"}).Draw(t, "key")
	return w.command("ann", key, rapid.SampledFrom([]holdfast.Operation{
		holdfast.Pay{Provider: provider, PaymentID: payment, Product: "pack", Amount: 3, Currency: "XTR"},
		holdfast.Pay{Provider: provider, PaymentID: payment + "p", Product: "pro", Amount: 9, Currency: "XTR"},
		holdfast.RefundPayment{Provider: provider, PaymentID: payment, Refund: holdfast.PaymentRefund{ID: "r1", Amount: &one}},
		holdfast.RefundPayment{Provider: provider, PaymentID: payment + "p", Refund: holdfast.PaymentRefund{ID: "r2"}},
		holdfast.ChangePlan{Plan: rapid.SampledFrom([]string{"free", "pro"}).Draw(t, "change")},
		holdfast.CancelSubscription{},
		holdfast.ResumeSubscription{},
	}).Draw(t, "operation"))
}

// drawCommand is anything that may be asked of ann, with keys that come again.
func drawCommand(t *rapid.T, w *world, known []*holdfast.Reservation) holdfast.Command {
	key := fmt.Sprintf("k%d", rapid.IntRange(0, 30).Draw(t, "key"))
	id := commandID(1 << 25) // of nothing
	token := "t"
	if len(known) > 0 {
		id = rapid.SampledFrom(known).Draw(t, "reservation").ID
	}
	amount := holdfast.Amount(rapid.Int64Range(1, 6).Draw(t, "amount"))
	ops := []holdfast.Operation{
		holdfast.PutAccount{},
		holdfast.AddGrant{Unit: "credit", Amount: amount, EndsAt: w.now.Add(20 * time.Minute)},
		holdfast.AddGrant{Unit: "credit", Amount: amount, Source: holdfast.FromPurchase},
		holdfast.Adjust{Unit: "credit", Amount: -amount, Reason: "a check"},
		holdfast.SetPlan{Plan: rapid.SampledFrom([]string{"free", "pro"}).Draw(t, "plan")},
		holdfast.Reserve{Feature: "note", Quantity: amount},
		holdfast.Reserve{Feature: "draw"},
		holdfast.Reserve{Feature: "draw", DryRun: true},
		holdfast.Reserve{Feature: "chat", Usage: map[string]holdfast.Amount{"out": 3 * amount, "unrated": 1}},
		holdfast.Charge{Reserve: holdfast.Reserve{Feature: "note"}, Amount: &amount},
		holdfast.Charge{Reserve: holdfast.Reserve{Feature: "chat", Usage: map[string]holdfast.Amount{"in": 9, "out": amount}}},
		holdfast.Start{ReservationID: id, Token: token},
		holdfast.Heartbeat{ReservationID: id, LeaseToken: token},
		holdfast.InDoubt{ReservationID: id, LeaseToken: token},
		holdfast.Extend{ReservationID: id, LeaseToken: token, Quantity: &amount, TTL: time.Hour},
		holdfast.Extend{ReservationID: id, LeaseToken: token, Usage: map[string]holdfast.Amount{"out": 9 * amount}},
		holdfast.Commit{ReservationID: id, LeaseToken: token},
		holdfast.Commit{ReservationID: id, LeaseToken: token, Amount: &amount},
		holdfast.Commit{ReservationID: id, LeaseToken: token, Usage: map[string]holdfast.Amount{"out": 9 * amount}},
		holdfast.Release{ReservationID: id, LeaseToken: token},
		holdfast.Cancel{ReservationID: id},
		holdfast.Refund{ReservationID: id, Amount: &amount},
		holdfast.Expire{},
	}
	command := w.command("ann", key, rapid.SampledFrom(ops).Draw(t, "operation"))
	command.RetryRefused = rapid.IntRange(0, 3).Draw(t, "retry") == 0
	return command
}
