package holdfast_test

import (
	"encoding/json"
	"fmt"
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
	exists, blocked bool
	plan            string
	pockets         []*modelPocket // in the order in which they were made
	works           []*modelWork
}

type modelPocket struct {
	unit, feature, allowance       string
	priority                       int
	starts, ends, made             time.Time // ends zero: never
	granted, free, held, used, bad int64
}

type modelWork struct {
	feature, unit            string
	price, reserved          int64
	state                    string
	takes                    []*modelTake
	used, unbilled, late     int64
	refunded                 int64
	settledLate              bool
	ttl                      time.Duration
	made, expires, leaseEnds time.Time
	token                    string
}

type modelTake struct {
	from                     *modelPocket
	reserved, used, refunded int64
}

type modelPlan struct {
	features, free []string
	slots          int
	gives          []modelAllowance
}

type modelAllowance struct {
	unit   string
	amount int64
	every  time.Duration
}

type modelPrice struct {
	unit   string
	amount int64
}

// The catalog of the model is small, so that everything runs out all the time.
var (
	modelPrices = map[string][]modelPrice{
		"note": {{"credit", 1}},
		"draw": {{"image", 1}, {"credit", 5}},
		"file": {{"credit", 3}},
	}
	modelPlans = map[string]modelPlan{
		"free": {features: []string{"note", "draw"}, slots: 2, gives: []modelAllowance{{"credit", 3, 24 * time.Hour}}},
		"pro": {
			features: []string{"note", "draw", "file"}, free: []string{"note"}, slots: 3,
			gives: []modelAllowance{{"credit", 7, 48 * time.Hour}, {"image", 2, 24 * time.Hour}},
		},
	}
	modelUnits = []string{"credit", "image"}
	modelTTL   = 15 * time.Minute
)

func modelCatalog() *holdfast.Catalog {
	catalog := &holdfast.Catalog{Version: 1}
	for _, unit := range modelUnits {
		catalog.Units = append(catalog.Units, holdfast.Unit{Name: unit})
	}
	for _, name := range []string{"note", "draw", "file"} {
		feature := holdfast.Feature{Name: name, TTL: modelTTL}
		for _, price := range modelPrices[name] {
			feature.Prices = append(feature.Prices, holdfast.Price{Unit: price.unit, Amount: holdfast.Amount(price.amount)})
		}
		catalog.Features = append(catalog.Features, feature)
	}
	for _, name := range []string{"free", "pro"} {
		from := modelPlans[name]
		plan := holdfast.Plan{Name: name, Default: name == "free", Features: from.features, FreeFeatures: from.free, MaxActive: from.slots}
		for _, a := range from.gives {
			plan.Allowances = append(plan.Allowances, holdfast.Allowance{
				Key: name + "." + a.unit, Unit: a.unit, Amount: holdfast.Amount(a.amount), Every: holdfast.Cycle{Rolling: a.every},
			})
		}
		catalog.Plans = append(catalog.Plans, plan)
	}
	return catalog
}

func (p *modelPocket) live(now time.Time) bool {
	return !now.Before(p.starts) && (p.ends.IsZero() || now.Before(p.ends))
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
		key := a.plan + "." + gives.unit
		open := slices.ContainsFunc(a.pockets, func(p *modelPocket) bool { return p.allowance == key && p.live(m.now) })
		if gives.unit == unit && !open {
			found = append(found, &modelPocket{
				unit: unit, allowance: key, priority: 10, granted: gives.amount, free: gives.amount,
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
		if w.live() {
			n++
		}
	}
	return n
}

func (w *modelWork) live() bool { return w.state == "reserved" || w.state == "running" }

// verdict says why a reserve would be refused, or which price it would pay.
func (m *model) verdict(a *modelAccount, feature string, quantity int64) (string, modelPrice) {
	plan := modelPlans[a.plan]
	switch {
	case a.blocked:
		return "account_blocked", modelPrice{}
	case !slices.Contains(plan.features, feature):
		return "feature_not_in_plan", modelPrice{}
	}
	prices := modelPrices[feature]
	if slices.Contains(plan.free, feature) {
		prices = []modelPrice{{prices[0].unit, 0}}
	}
	reason := "insufficient"
	for _, price := range prices {
		pockets := m.usable(a, price.unit, feature)
		needed := price.amount * quantity
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

// expire ends what is overdue.
func (m *model) expire(a *modelAccount) bool {
	some := false
	for _, w := range a.works {
		if w.live() && !m.now.Before(w.expires) {
			m.end(w, "expired", 0)
			some = true
		}
	}
	return some
}

// end gives back what is not used; what comes back to a pocket that is over is worth nothing.
func (m *model) end(w *modelWork, state string, used int64) (returned, voided int64) {
	w.state, w.used = state, used
	for _, t := range w.takes {
		t.used = min(used, t.reserved)
		used -= t.used
		back := t.reserved - t.used
		t.from.held -= t.reserved
		t.from.used += t.used
		if t.from.live(m.now) {
			t.from.free += back
			returned += back
		} else {
			t.from.bad += back
			voided += back
		}
	}
	return returned, voided
}

func (m *model) reserve(a *modelAccount, feature string, quantity int64, ttl time.Duration) (string, *modelWork) {
	reason, price := m.verdict(a, feature, quantity)
	if reason != "" && m.expire(a) {
		reason, price = m.verdict(a, feature, quantity)
	}
	a.exists = true
	if reason != "" {
		return reason, nil
	}
	w := &modelWork{
		feature: feature, unit: price.unit, price: price.amount, reserved: price.amount * quantity, state: "reserved",
		ttl: ttl, made: m.now, expires: m.now.Add(ttl),
	}
	m.take(a, m.usable(a, price.unit, feature), w.reserved, func(p *modelPocket, n int64) {
		p.held += n
		w.takes = append(w.takes, &modelTake{from: p, reserved: n})
	})
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

func (m *model) start(w *modelWork, token string, length time.Duration) string {
	switch {
	case !w.live():
		return "already_ended"
	case w.state == "running" && m.now.Before(w.leaseEnds):
		return "already_running"
	case m.outlived(w):
		return "already_ended"
	}
	w.state, w.token = "running", token
	m.move(w, m.now.Add(w.ttl))
	m.lease(w, length)
	return ""
}

func (m *model) heartbeat(w *modelWork, token string, length time.Duration) string {
	switch {
	case !w.live():
		return "already_ended"
	case w.state != "running" || w.token != token:
		return "stale_lease"
	case m.outlived(w):
		return "already_ended"
	}
	m.move(w, m.now.Add(length))
	m.lease(w, length)
	return ""
}

// outlived: held as long as it may be, so that no lease can be given any more.
func (m *model) outlived(w *modelWork) bool {
	if m.now.Before(w.made.Add(4 * w.ttl)) {
		return false
	}
	m.end(w, "expired", 0)
	return true
}

// commit answers the reason, and whether anything changed.
func (m *model) commit(a *modelAccount, w *modelWork, token string, figure int64) (string, bool) {
	wrongToken := w.token != "" && w.token != token
	switch {
	case w.live() && wrongToken:
		return "stale_lease", false
	case w.live():
		m.end(w, "committed", min(figure, w.reserved))
		w.unbilled = figure - w.used
		return "", true
	case w.state == "committed" && figure == w.used+w.unbilled, w.settledLate && figure == w.late+w.unbilled:
		return "", false
	case w.state != "expired" || w.settledLate:
		return "already_ended", false
	case wrongToken:
		return "stale_lease", false
	}
	w.settledLate = true
	w.late = m.take(a, m.usable(a, w.unit, w.feature), min(figure, w.reserved), func(p *modelPocket, n int64) {
		p.used += n
		w.takes = append(w.takes, &modelTake{from: p, used: n})
	})
	w.unbilled = figure - w.late
	return "", true
}

func (m *model) release(w *modelWork, token string, cancel bool) (string, bool) {
	switch {
	case w.state == "released":
		return "", false
	case !w.live():
		return "already_ended", false
	case cancel && w.state == "running":
		return "already_running", false
	case !cancel && w.token != "" && w.token != token:
		return "stale_lease", false
	}
	m.end(w, "released", 0)
	return "", true
}

func (m *model) force(w *modelWork, commit bool, figure int64) (string, bool) {
	switch {
	case commit && figure > w.reserved:
		return "invalid", false
	case !commit && w.state == "released", commit && w.state == "committed" && figure == w.used+w.unbilled:
		return "", false
	case !w.live():
		return "already_ended", false
	case commit:
		m.end(w, "committed", figure)
	default:
		m.end(w, "released", 0)
	}
	return "", true
}

// refund gives back what was charged last first. A nil amount is all that is left.
func (m *model) refund(a *modelAccount, w *modelWork, amount *int64, correction bool) (string, bool) {
	if w.state != "committed" && !w.settledLate {
		return "not_committed", false
	}
	left := w.used + w.late - w.refunded
	n := left
	if amount != nil {
		n = *amount
	}
	if n > left {
		return "refund_exceeds_used", false
	}
	w.refunded += n
	changed := n > 0
	lost := int64(0)
	for _, t := range slices.Backward(w.takes) {
		back := min(n, t.used-t.refunded)
		t.refunded += back
		n -= back
		t.from.used -= back
		if t.from.live(m.now) {
			t.from.free += back
		} else {
			t.from.bad += back
			lost += back
		}
	}
	if correction && lost > 0 {
		a.pockets = append(a.pockets, &modelPocket{unit: w.unit, priority: 40, granted: lost, free: lost, starts: m.now, made: m.now})
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
		p.model.accounts[name] = &modelAccount{plan: "free"}
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
			for _, a := range p.model.accounts { // to the very end of something, more often than not
				for _, w := range a.works {
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
			changed := !a.exists || a.blocked != blocked
			a.exists, a.blocked = true, blocked
			p.agree(p.submit(name, holdfast.PutAccount{Blocked: &blocked}), "", changed)
		},
		"plan": func(*rapid.T) {
			name, a := p.account()
			plan := rapid.SampledFrom([]string{"free", "pro"}).Draw(p.T, "plan")
			got := p.submit(name, holdfast.SetPlan{Plan: plan})
			if !a.exists {
				p.agree(got, "not_found", false)
				return
			}
			p.agree(got, "", got.Changed) // a first "free" is written down, though the account was on it
			a.plan = plan
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
			got := p.submit(name, op)
			if !a.exists {
				p.agree(got, "not_found", false)
				return
			}
			a.pockets = append(a.pockets, pocket)
			p.agree(got, "", true)
		},
		"adjust": func(*rapid.T) {
			name, a := p.account()
			unit := rapid.SampledFrom(modelUnits).Draw(p.T, "unit")
			amount := rapid.SampledFrom([]int64{-6, -2, -1, 1, 4}).Draw(p.T, "amount")
			got := p.submit(name, holdfast.Adjust{Unit: unit, Amount: holdfast.Amount(amount), Reason: "a check"})
			if !a.exists {
				p.agree(got, "not_found", false)
				return
			}
			p.agree(got, p.model.adjust(a, unit, amount), true)
		},
		"reserve":       p.reserve,
		"reserve more":  p.reserve, // twice as often as the rest
		"reserve again": p.reserve,
		"ask": func(*rapid.T) {
			name, a := p.account()
			feature := rapid.SampledFrom([]string{"note", "draw", "file"}).Draw(p.T, "feature")
			got := p.world.do(name, "", holdfast.Reserve{Feature: feature, DryRun: true})
			reason, _ := p.model.verdict(a, feature, 1)
			if reason != "" { // what is overdue does not count, and stays as it is
				ghost := &model{now: p.model.now}
				copied := a.copy()
				if ghost.expire(copied) {
					reason, _ = ghost.verdict(copied, feature, 1)
				}
			}
			p.agree(got, reason, true)
		},
		"start": func(*rapid.T) {
			name, _, w := p.work()
			token, lease := fmt.Sprintf("t%d", p.world.commands), p.lease()
			got := p.submit(name, holdfast.Start{ReservationID: p.works[w].id, Worker: "w", Token: token, Lease: lease})
			p.agree(got, p.model.start(w, token, lease), true)
		},
		"heartbeat": func(*rapid.T) {
			name, _, w := p.work()
			token, lease := p.token(w), p.lease()
			got := p.submit(name, holdfast.Heartbeat{ReservationID: p.works[w].id, LeaseToken: token, Lease: lease})
			p.agree(got, p.model.heartbeat(w, token, lease), true)
		},
		"commit": func(*rapid.T) {
			name, a, w := p.work()
			token := p.token(w)
			op := holdfast.Commit{ReservationID: p.works[w].id, LeaseToken: token}
			figure := w.reserved
			switch rapid.IntRange(0, 2).Draw(p.T, "by") {
			case 1:
				figure = rapid.Int64Range(0, w.reserved+3).Draw(p.T, "amount")
				op.Amount = pointer(holdfast.Amount(figure))
			case 2:
				quantity := rapid.Int64Range(0, 2).Draw(p.T, "quantity")
				figure = w.price * quantity
				op.Quantity = pointer(holdfast.Amount(quantity))
			}
			got := p.submit(name, op)
			reason, changed := p.model.commit(a, w, token, figure)
			p.agree(got, reason, changed)
		},
		"release": func(*rapid.T) {
			name, _, w := p.work()
			token := p.token(w)
			got := p.submit(name, holdfast.Release{ReservationID: p.works[w].id, LeaseToken: token})
			reason, changed := p.model.release(w, token, false)
			p.agree(got, reason, changed)
		},
		"cancel": func(*rapid.T) {
			name, _, w := p.work()
			got := p.submit(name, holdfast.Cancel{ReservationID: p.works[w].id})
			reason, changed := p.model.release(w, "", true)
			p.agree(got, reason, changed)
		},
		"force": func(*rapid.T) {
			name, _, w := p.work()
			op := holdfast.Force{ReservationID: p.works[w].id, End: holdfast.EndRelease, Reason: "a check"}
			figure := rapid.Int64Range(0, w.reserved+1).Draw(p.T, "amount")
			commit := rapid.Bool().Draw(p.T, "commit")
			if commit {
				op.End, op.Amount = holdfast.EndCommit, pointer(holdfast.Amount(figure))
			}
			got := p.submit(name, op)
			reason, changed := p.model.force(w, commit, figure)
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
		"sweep": func(*rapid.T) {
			name, a := p.account()
			got := p.world.do(name, "", holdfast.Expire{})
			if !a.exists {
				p.agree(got, "not_found", false)
				return
			}
			p.agree(got, "", p.model.expire(a))
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

func (p *pair) reserve(*rapid.T) {
	name, a := p.account()
	feature := rapid.SampledFrom([]string{"note", "note", "draw", "file"}).Draw(p.T, "feature")
	quantity := rapid.SampledFrom([]int64{1, 1, 1, 2, 4}).Draw(p.T, "quantity")
	ttl := rapid.SampledFrom([]time.Duration{0, time.Minute, time.Hour}).Draw(p.T, "ttl")
	got := p.submit(name, holdfast.Reserve{Feature: feature, Quantity: holdfast.Amount(quantity), TTL: ttl})
	if ttl == 0 {
		ttl = modelTTL
	}
	reason, w := p.model.reserve(a, feature, quantity, ttl)
	p.agree(got, reason, true)
	if w != nil {
		p.works[w] = target{name, got.Reservation.ID}
	}
}

func (p *pair) passTo(at time.Time) { p.model.now, p.world.now = at, at }

// copy is deep as far as expire and verdict look.
func (a *modelAccount) copy() *modelAccount {
	copied := *a
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
		got := []any{string(r.State), int64(r.Reserved), int64(r.Used), int64(r.Unbilled), int64(r.LateUsed), int64(r.Refunded), r.ExpiresAt, r.LeaseToken}
		want := []any{w.state, w.reserved, w.used, w.unbilled, w.late, w.refunded, w.expires, w.token}
		if !reflect.DeepEqual(got, want) {
			p.Fatalf("reservation %s: state, reserved, used, unbilled, late, refunded, expiry and token are\n%v\nby the rules\n%v", at.id, got, want)
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
	available := free(p.model.usable(a, unit, ""))
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
				batch = append(batch, drawCommand(t, apart, known))
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
		if inJSON(one.entries) != inJSON(other.entries) || inJSON(one.reservations) != inJSON(other.reservations) || inJSON(one.grants) != inJSON(other.grants) {
			t.Fatalf("what is stored differs:\n%s\n%s", inJSON(one.entries), inJSON(other.entries))
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
		holdfast.Start{ReservationID: id, Token: token},
		holdfast.Heartbeat{ReservationID: id, LeaseToken: token},
		holdfast.Commit{ReservationID: id, LeaseToken: token},
		holdfast.Commit{ReservationID: id, LeaseToken: token, Amount: &amount},
		holdfast.Release{ReservationID: id, LeaseToken: token},
		holdfast.Cancel{ReservationID: id},
		holdfast.Refund{ReservationID: id, Amount: &amount},
		holdfast.Expire{},
	}
	command := w.command("ann", key, rapid.SampledFrom(ops).Draw(t, "operation"))
	command.RetryRefused = rapid.IntRange(0, 3).Draw(t, "retry") == 0
	return command
}
