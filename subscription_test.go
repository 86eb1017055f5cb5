package holdfast_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-dev/holdfast"
)

// paidTime is what the rules say of a subscription, written a second time: a list of periods, and where it goes from there.
// It knows nothing of credits; what holds for those is checked by the world with every command, and by compare.
type paidTime struct {
	now             time.Time
	periods         []paidPart
	next, lapsed    string
	cancelled       bool
	plan            string // the plan of the account
	byHand          string // the plan that was set, until something is paid for
	paid            map[string]*paidOnce
	blocked, exists bool
}

type paidPart struct {
	plan, payment string
	start, end    time.Time
}

// paidOnce is a payment, and what came of it.
type paidOnce struct {
	product                soldThing
	refunds                map[string]bool
	refunded, kept         int64
	flagged, opened, ended bool // a period of its own, and that it was refunded
}

type soldThing struct {
	name, plan string
	price      int64
	days       int
}

var (
	soldThings = []soldThing{
		{"lite_30", "lite", 100, 30}, {"pro_30", "pro", 250, 30}, {"max_30", "max", 600, 30}, {"credits_300", "", 250, 0},
	}
	planOrder  = []string{"free", "lite", "pro", "max"}
	planGraces = map[string]time.Duration{"lite": 7 * 24 * time.Hour, "pro": 3 * 24 * time.Hour}
	planGives  = map[string]map[string]holdfast.Amount{"lite": {"credit": 100}, "pro": {"credit": 300, "image": 50}, "max": {"credit": 1000}}
)

// earlier is a refund that came before its payment; amount 0: of all of it.
type earlier struct {
	id     string
	amount int64
}

func rank(plan string) int { return slices.Index(planOrder, plan) }

func (m *paidTime) end() time.Time { return m.periods[len(m.periods)-1].end }

// tick goes on to where time has led.
func (m *paidTime) tick() {
	for len(m.periods) > 1 && !m.now.Before(m.periods[0].end) {
		m.periods = m.periods[1:]
	}
	if len(m.periods) == 0 {
		m.plan = m.byHand
		return
	}
	m.plan = m.periods[0].plan
	if m.now.Before(m.end()) {
		return
	}
	until := m.end()
	if !m.cancelled && m.next != "free" {
		if m.next != "" {
			m.plan = m.next
		}
		until = until.Add(planGraces[m.plan])
	}
	if !m.now.Before(until) {
		m.lapse(m.periods[0].plan)
	}
}

func (m *paidTime) lapse(from string) {
	m.periods, m.next, m.cancelled, m.lapsed, m.plan = nil, "", false, from, "free"
}

// shift lets what is left of periods follow an instant.
func (m *paidTime) shift(parts []paidPart, from time.Time) []paidPart {
	var kept []paidPart
	for _, p := range parts {
		left := p.end.Sub(latest(p.start, m.now))
		if left > 0 {
			p.start, p.end = from, from.Add(left)
			from = p.end
			kept = append(kept, p)
		}
	}
	return kept
}

// pay is told of a payment, and of a refund that came before it, if there was one.
func (m *paidTime) pay(id string, what soldThing, amount int64, told time.Time, before *earlier) {
	m.tick()
	if _, known := m.paid[id]; known {
		return
	}
	m.exists = true
	once := &paidOnce{product: what, refunds: map[string]bool{}}
	m.paid[id] = once
	once.flagged = amount != what.price || m.blocked || before != nil && (before.amount == 0 || before.amount >= amount)
	if once.flagged || what.plan == "" {
		return
	}
	length := time.Duration(what.days) * 24 * time.Hour
	part := paidPart{plan: what.plan, payment: id, start: m.now, end: m.now.Add(length)}
	first := len(m.periods) == 0
	dearer := !first && rank(what.plan) > rank(m.plan) && m.next != what.plan
	switch {
	case first:
	case dearer:
		if m.end().Before(m.now) {
			part.start = m.end()
		}
	default:
		part.start = m.end()
		if end := part.start.Add(length); end.After(m.now) {
			part.end = end
		}
	}
	if !told.IsZero() && (told.After(m.now) || part.start.After(m.now)) {
		part.end = told
	}
	if !part.end.After(part.start) {
		return
	}
	once.opened = true
	m.cancelled, m.lapsed, m.byHand = false, "", "free"
	if m.next == what.plan {
		m.next = ""
	}
	if dearer {
		m.periods = append([]paidPart{part}, m.shift(m.periods, part.end)...)
	} else {
		m.periods = append(m.periods, part)
	}
	m.tick()
}

// refund answers whether it was a new one.
func (m *paidTime) refund(id, refund string, amount int64, keep, dispute bool) bool {
	m.tick()
	once := m.paid[id]
	if once.refunds[refund] {
		return false
	}
	once.refunds[refund] = true
	n := once.product.price - once.refunded
	if amount > 0 {
		n = min(n, amount)
	}
	once.refunded += n
	m.blocked = m.blocked || dispute
	if once.flagged {
		return true
	}
	if keep {
		once.kept += n
		return true
	}
	if once.refunded < once.product.price || once.kept > 0 {
		return true
	}
	once.ended = true
	for i, p := range m.periods {
		if p.payment != id {
			continue
		}
		rest := m.shift(m.periods[i+1:], latest(p.start, m.now))
		m.periods = append(m.periods[:i:i], rest...)
		if len(m.periods) == 0 {
			m.lapse(p.plan)
		}
		break
	}
	m.tick()
	return true
}

// change answers the reason, and whether anything changed.
func (m *paidTime) change(plan string, when holdfast.When) (holdfast.Reason, bool) {
	m.tick()
	if len(m.periods) == 0 {
		return holdfast.SubscriptionInactive, false
	}
	now := when == holdfast.ChangeNow || when == "" && rank(plan) > rank(m.plan)
	switch {
	case now && !m.now.Before(m.end()):
		return holdfast.SubscriptionInactive, false
	case now && rank(plan) < rank(m.plan):
		return holdfast.Invalid, false
	case now && plan == m.plan:
		return "", false
	case now:
		m.periods = slices.Clone(m.periods)
		m.periods[0].plan, m.next = plan, ""
		m.tick()
		return "", true
	}
	wanted := plan
	if plan == m.periods[len(m.periods)-1].plan {
		wanted = ""
	}
	changed := m.next != wanted
	m.next = wanted
	m.tick()
	return "", changed
}

// renewing answers the reason, and whether anything changed.
func (m *paidTime) renewing(wanted bool) (holdfast.Reason, bool) {
	m.tick()
	if len(m.periods) == 0 {
		return holdfast.SubscriptionInactive, false
	}
	changed := m.cancelled == wanted
	if changed {
		m.cancelled = !wanted
		if !wanted {
			m.next = ""
		}
	}
	m.tick()
	return "", changed
}

// subscriber plays a world and paidTime beside each other.
type subscriber struct {
	*rapid.T
	world *world
	model *paidTime
	live  []holdfast.ID
	done  []holdfast.ID
	keys  int
	sent  []holdfast.Command
}

func newSubscriber(t *rapid.T) *subscriber {
	w := newWorld(t)
	w.catalog = soldCatalog()
	for i := range w.catalog.Plans {
		w.catalog.Plans[i].DebtLimits = map[string]holdfast.Amount{"credit": 50}
		w.catalog.Plans[i].MaxActive = 4
	}
	for i := range w.catalog.Features {
		w.catalog.Features[i].Policies = holdfast.Policies{Overrun: holdfast.OverrunDebt}
	}
	return &subscriber{T: t, world: w, model: &paidTime{now: w.now, plan: "free", byHand: "free", paid: map[string]*paidOnce{}}}
}

func (s *subscriber) do(op holdfast.Operation) result {
	s.keys++
	command := s.world.command("ann", "", op)
	if _, ok := op.(holdfast.Reserve); ok {
		command.Key = fmt.Sprintf("k%d", s.keys)
	}
	s.sent = append(s.sent, command)
	return s.world.submit(command)
}

// agree compares how a command ended with what the rules say.
func (s *subscriber) agree(got result, reason holdfast.Reason, changed bool) {
	s.Helper()
	if got.Reason != reason || reason == "" && got.Changed != changed {
		s.Fatalf("%s came to %q, changed %t; by the rules %q, %t", got.operation, got.Reason, got.Changed, reason, changed)
	}
}

func (s *subscriber) paymentID() string {
	return fmt.Sprintf("p%d", rapid.IntRange(1, 12).Draw(s.T, "payment"))
}

func (s *subscriber) known() (string, *paidOnce) {
	id := s.paymentID()
	once, ok := s.model.paid[id]
	if !ok {
		s.Skip("not paid yet")
	}
	return id, once
}

func (s *subscriber) steps() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"time passes": func(*rapid.T) {
			wait := rapid.SampledFrom([]time.Duration{
				time.Second, time.Minute, time.Hour, 24 * time.Hour, 3 * 24 * time.Hour, 10 * 24 * time.Hour, 30 * 24 * time.Hour, 36 * 24 * time.Hour,
			}).Draw(s.T, "wait")
			s.world.now = s.world.now.Add(wait)
			s.model.now = s.world.now
		},
		"to the end": func(*rapid.T) { // of what is paid, or a moment around it
			if len(s.model.periods) == 0 {
				s.Skip("nothing is paid")
			}
			at := rapid.SampledFrom(s.model.periods).Draw(s.T, "of").end.Add(time.Duration(rapid.IntRange(-1, 1).Draw(s.T, "seconds")) * time.Second)
			if at.After(s.world.now) {
				s.world.now, s.model.now = at, at
			}
		},
		"pay":   func(*rapid.T) { s.pay() },
		"renew": func(*rapid.T) { s.pay() },
		"refund": func(*rapid.T) {
			id, once := s.known()
			refund := holdfast.PaymentRefund{ID: fmt.Sprintf("r%d", rapid.IntRange(1, 4).Draw(s.T, "refund"))}
			var amount int64
			if rapid.Bool().Draw(s.T, "a part") {
				amount = rapid.Int64Range(1, once.product.price).Draw(s.T, "amount")
				refund.Amount = pointer(holdfast.Amount(amount))
			}
			refund.Chosen = rapid.Bool().Draw(s.T, "chosen")
			if refund.Chosen {
				refund.Policy = rapid.SampledFrom([]holdfast.RefundPolicy{holdfast.RefundRevokeUnused, holdfast.RefundAllAsDebt, holdfast.RefundKeep}).Draw(s.T, "policy")
			}
			refund.Dispute = rapid.IntRange(0, 5).Draw(s.T, "dispute") == 0
			got := s.do(holdfast.RefundPayment{Provider: provider, PaymentID: id, Refund: refund})
			s.agree(got, "", s.model.refund(id, refund.ID, amount, refund.Chosen && refund.Policy == holdfast.RefundKeep, refund.Dispute))
			s.taken(id, got)
		},
		"change": func(*rapid.T) {
			plan := rapid.SampledFrom(planOrder).Draw(s.T, "plan")
			when := rapid.SampledFrom([]holdfast.When{"", "", holdfast.ChangeNow, holdfast.ChangeAtTheEnd}).Draw(s.T, "when")
			got := s.do(holdfast.ChangePlan{Plan: plan, When: when})
			reason, changed := s.model.change(plan, when)
			s.orUnknown(got, reason, changed)
		},
		"cancel": func(*rapid.T) {
			got := s.do(holdfast.CancelSubscription{})
			reason, changed := s.model.renewing(false)
			s.orUnknown(got, reason, changed)
		},
		"resume": func(*rapid.T) {
			got := s.do(holdfast.ResumeSubscription{})
			reason, changed := s.model.renewing(true)
			s.orUnknown(got, reason, changed)
		},
		"set a plan": func(*rapid.T) {
			plan := rapid.SampledFrom(planOrder).Draw(s.T, "plan")
			got := s.do(holdfast.SetPlan{Plan: plan})
			s.model.tick()
			switch changed := plan != s.model.plan; {
			case changed && len(s.model.periods) > 0:
				s.orUnknown(got, holdfast.Invalid, false)
			default:
				s.orUnknown(got, "", changed)
				if changed && s.model.exists {
					s.model.byHand, s.model.lapsed = plan, ""
				}
			}
			s.model.tick()
		},
		"reserve": func(*rapid.T) {
			feature := rapid.SampledFrom([]string{"text.improve", "image.generate", "file.analyze"}).Draw(s.T, "feature")
			op := holdfast.Reserve{
				Feature: feature, Quantity: holdfast.Amount(rapid.SampledFrom([]int64{1, 3, 40}).Draw(s.T, "quantity")),
				TTL: rapid.SampledFrom([]time.Duration{time.Minute, 20 * time.Hour}).Draw(s.T, "ttl"),
			}
			got := s.do(op)
			s.model.exists = true
			s.model.tick()
			switch had := s.model.plan == "pro" || s.model.plan == "max"; {
			case s.model.blocked:
				s.agree(got, holdfast.AccountBlocked, false)
			case feature == "file.analyze" && !had && rank(s.model.lapsed) >= rank("pro"):
				s.agree(got, holdfast.SubscriptionInactive, false)
			case feature == "file.analyze" && !had:
				s.agree(got, holdfast.FeatureNotInPlan, false)
			case got.Reason == "":
				s.live = append(s.live, got.Reservation.ID)
			case got.Reason != holdfast.Insufficient && got.Reason != holdfast.HeldByActive && got.Reason != holdfast.TooManyActive:
				s.Fatalf("%s on %s came to %q", feature, s.model.plan, got.Reason)
			}
		},
		"end": func(*rapid.T) {
			if len(s.live) == 0 {
				s.Skip("nothing is live")
			}
			i := rapid.IntRange(0, len(s.live)-1).Draw(s.T, "of")
			id := s.live[i]
			s.live = slices.Delete(s.live, i, i+1)
			s.done = append(s.done, id)
			switch rapid.IntRange(0, 2).Draw(s.T, "how") {
			case 0:
				s.do(holdfast.Release{ReservationID: id})
			case 1:
				s.do(holdfast.Commit{ReservationID: id})
			default:
				s.do(holdfast.Commit{ReservationID: id, Amount: pointer(holdfast.Amount(rapid.Int64Range(0, 60).Draw(s.T, "amount")))})
			}
		},
		"refund a charge": func(*rapid.T) {
			if len(s.done) == 0 {
				s.Skip("nothing was charged")
			}
			command := s.world.command("", fmt.Sprintf("c%d", s.world.commands), holdfast.Refund{ReservationID: rapid.SampledFrom(s.done).Draw(s.T, "of")})
			command.Target = holdfast.AccountIDOf(project, "ann")
			s.world.submit(command)
			s.model.tick()
		},
		"unblock": func(*rapid.T) {
			s.agree(s.do(holdfast.PutAccount{Blocked: pointer(false)}), "", s.model.blocked || !s.model.exists)
			s.model.blocked, s.model.exists = false, true
			s.model.tick()
		},
		"sweep": func(*rapid.T) {
			s.do(holdfast.Expire{})
			s.model.tick()
		},
		"again": func(*rapid.T) { // a payment or a refund is delivered once more, whenever that is
			var told []holdfast.Command
			for _, command := range s.sent {
				switch command.Do.(type) {
				case holdfast.Pay, holdfast.RefundPayment:
					told = append(told, command)
				}
			}
			if len(told) == 0 {
				s.Skip("nothing was told")
			}
			command := rapid.SampledFrom(told).Draw(s.T, "of")
			s.world.commands++
			command.ID = commandID(s.world.commands)
			s.agree(s.world.submit(command), "", false)
			s.model.tick()
		},
		"": func(*rapid.T) { s.compare() },
	}
}

// orUnknown agrees where the account is there.
func (s *subscriber) orUnknown(got result, reason holdfast.Reason, changed bool) {
	s.Helper()
	if !s.model.exists {
		reason, changed = holdfast.NotFound, false
	}
	s.agree(got, reason, changed)
}

func (s *subscriber) pay() {
	what := rapid.SampledFrom(soldThings).Draw(s.T, "product")
	amount := what.price
	if rapid.IntRange(0, 15).Draw(s.T, "wrong") == 0 {
		amount++
	}
	id := s.paymentID()
	if known, ok := s.model.paid[id]; ok { // the same delivery, not another payment
		what, amount = known.product, known.product.price
	}
	op := holdfast.Pay{Provider: provider, PaymentID: id, Product: what.name, Amount: holdfast.Amount(amount), Currency: "XTR"}
	if what.plan != "" && rapid.IntRange(0, 3).Draw(s.T, "told") == 0 {
		from := s.model.now
		if len(s.model.periods) > 0 && rapid.Bool().Draw(s.T, "behind") {
			from = latest(from, s.model.end())
		}
		op.PeriodEnd = from.Add(time.Duration(rapid.SampledFrom([]int{-5, 1, 29, 30, 31}).Draw(s.T, "until")) * 24 * time.Hour)
	}
	var before *earlier
	if rapid.IntRange(0, 7).Draw(s.T, "refunded before") == 0 {
		before = &earlier{id: "r1", amount: rapid.Int64Range(0, what.price).Draw(s.T, "amount")}
		refund := holdfast.PaymentRefund{ID: before.id}
		if before.amount > 0 {
			refund.Amount = pointer(holdfast.Amount(before.amount))
		}
		op.Refunds = []holdfast.PaymentRefund{refund}
	}
	_, known := s.model.paid[id]
	got := s.do(op)
	s.model.pay(id, what, amount, op.PeriodEnd, before)
	changed := !known
	if before != nil && s.model.refund(id, before.id, before.amount, false, false) {
		changed = true
	}
	s.agree(got, "", changed)
	if flagged := s.model.paid[id].flagged; (got.Payment.State == holdfast.PaymentFlagged) != flagged {
		s.Fatalf("payment %s is %s %s, by the rules flagged: %t", id, got.Payment.State, got.Payment.Flag, flagged)
	}
}

// bought are the grants that a payment gave.
func (s *subscriber) bought(id string) (given, carried []*holdfast.Grant) {
	payment := holdfast.PaymentIDOf(holdfast.AccountIDOf(project, "ann"), provider, id)
	for _, g := range s.world.stored("ann").grants {
		switch {
		case g.Payment != payment:
		case g.Source == holdfast.FromRollover:
			carried = append(carried, g)
		default:
			given = append(given, g)
		}
	}
	return given, carried
}

// taken proves, right after a refund that takes something back: what the payment gave is taken back to its share, or
// nothing that could be is left.
func (s *subscriber) taken(id string, got result) {
	s.Helper()
	once, paid := s.model.paid[id], got.Payment
	if !got.Changed || once.flagged || once.refunded == once.kept {
		return
	}
	given, carried := s.bought(id)
	for _, unit := range []string{"credit", "image"} {
		var granted, taken, left holdfast.Amount
		for _, g := range slices.Concat(given, carried) {
			if g.Unit != unit {
				continue
			}
			if g.Source != holdfast.FromRollover {
				granted += g.Granted
			}
			taken += g.Revoked
			left += g.Available() + g.Reserved - g.Doomed
		}
		share := (granted*holdfast.Amount(once.refunded-once.kept) + holdfast.Amount(once.product.price) - 1) / holdfast.Amount(once.product.price)
		if taken += paid.OwedOf[unit]; taken < share && left > 0 && !s.keeps(got) {
			s.Fatalf("%d of %d %s are to be taken back, %d were, and %d are left", share, granted, unit, taken, left)
		}
	}
}

// keeps reports whether the last refund was to take nothing back.
func (s *subscriber) keeps(result) bool {
	op, ok := s.sent[len(s.sent)-1].Do.(holdfast.RefundPayment)
	return ok && op.Refund.Chosen && op.Refund.Policy == holdfast.RefundKeep
}

// compare holds what the core says of the subscription, and of what was paid for, against the rules.
func (s *subscriber) compare() {
	s.Helper()
	now := *s.model
	now.tick()
	view := s.world.view("ann")
	if view.Plan != now.plan || view.Account.Lapsed != now.lapsed || view.Account.Blocked != now.blocked {
		s.Fatalf("on %s, lapsed from %q, blocked %t; by the rules %s, %q, %t", view.Plan, view.Account.Lapsed, view.Account.Blocked, now.plan, now.lapsed, now.blocked)
	}
	var periods []paidPart
	if paid := view.Account.Subscription; paid != nil {
		for _, p := range paid.Periods {
			part := paidPart{plan: p.Plan, start: p.Start, end: p.End}
			for id := range s.model.paid {
				if holdfast.PaymentIDOf(holdfast.AccountIDOf(project, "ann"), provider, id) == p.Payment {
					part.payment = id
				}
			}
			periods = append(periods, part)
		}
		if paid.Next != now.next || paid.Cancelled != now.cancelled {
			s.Fatalf("goes on as %q, cancelled %t; by the rules %q, %t", paid.Next, paid.Cancelled, now.next, now.cancelled)
		}
	}
	if !slices.EqualFunc(periods, now.periods, func(a, b paidPart) bool {
		return a.plan == b.plan && a.payment == b.payment && a.start.Equal(b.start) && a.end.Equal(b.end)
	}) {
		s.Fatalf("paid are\n%v\nby the rules\n%v", periods, now.periods)
	}
	for id, once := range s.model.paid {
		s.compareBought(id, once)
	}
	s.world.verify()
}

// compareBought: each payment gave what its product says, once, or nothing yet; of one that was refunded in full nothing is
// left, and what is held comes back to nothing.
func (s *subscriber) compareBought(id string, once *paidOnce) {
	s.Helper()
	given, carried := s.bought(id)
	gave := map[string]holdfast.Amount{}
	for _, g := range given {
		gave[g.Unit] += g.Granted
	}
	want := planGives[once.product.plan]
	if once.product.plan == "" {
		want = map[string]holdfast.Amount{"credit": 300}
	}
	plans := append([]string{once.product.plan}, planOrder...) // the period may have been upgraded before it opened
	matches := slices.ContainsFunc(plans, func(plan string) bool {
		gives := want
		if once.product.plan != "" {
			gives = planGives[plan]
		}
		return inJSON(gives) == inJSON(gave)
	})
	if len(gave) > 0 && (once.flagged || !matches) || len(gave) == 0 && once.product.plan == "" && !once.flagged {
		s.Fatalf("payment %s of %s gave %v", id, once.product.name, gave)
	}
	for _, g := range slices.Concat(given, carried) {
		if once.ended && (g.Available() > 0 || g.Reserved != g.Doomed && g.Revoked != g.Granted) {
			s.Fatalf("payment %s was refunded in full, and %s is left", id, inJSON(g))
		}
	}
}

// TestSubscriptionsComeToWhatTheRulesSay plays payments, renewals, changes and refunds in any order, duplicated and
// interleaved with work, against the rules. No paid time is lost or made, and what must always hold is checked after each.
func TestSubscriptionsComeToWhatTheRulesSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSubscriber(t)
		t.Repeat(s.steps())
	})
}
