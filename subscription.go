package holdfast

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Subscription is what was paid for: periods that follow each other without gaps. While one of them contains now, its plan
// is the account's. Without a renewal the plan goes on through its grace, without a further allowance, and then lapses.
type Subscription struct {
	Periods   []PaidPeriod // the first is the current one, or the last that was
	Anchor    time.Time    // what its months are counted from
	Cancelled bool         `json:",omitzero"` // it ends with what is paid, without grace
	Next      string       `json:",omitzero"` // the plan from the end of what is paid on; empty: the same
}

// PaidPeriod is [Start, End) of a plan. It was paid for by a payment.
type PaidPeriod struct {
	Plan       string
	Start, End time.Time
	Payment    ID
	Given      bool `json:",omitzero"` // its allowances were opened
	// Refunded of Paid was given back before it began: that share of its allowances is revoked as they open.
	Refunded, Paid Amount `json:",omitzero"`
	// Whole is its length as it was paid for, where a part of it had passed before the rest was moved; zero: as it stands.
	Whole time.Duration `json:",omitzero"`
}

// whole is the length that was paid for.
func (p *PaidPeriod) whole() time.Duration {
	if p.Whole > 0 {
		return p.Whole
	}
	return p.End.Sub(p.Start)
}

// SubscriptionStatus says how a subscription stands.
type SubscriptionStatus string

// The statuses.
const (
	SubscriptionActive    SubscriptionStatus = "active"    // paid for, and to be renewed
	SubscriptionCancelled SubscriptionStatus = "cancelled" // paid for, and not to be renewed
	SubscriptionGrace     SubscriptionStatus = "grace"     // not renewed yet
)

// end is the end of all that is paid.
func (s *Subscription) end() time.Time { return s.Periods[len(s.Periods)-1].End }

// periodAt is the paid period that contains the instant.
func (s *Subscription) periodAt(at time.Time) (*PaidPeriod, bool) {
	if s == nil {
		return nil, false
	}
	return find(s.Periods, func(p *PaidPeriod) bool { return !at.Before(p.Start) && at.Before(p.End) })
}

// clone copies the subscription, which copies of a state share.
func (s *Subscription) clone() *Subscription {
	if s == nil {
		return nil
	}
	copied := *s
	copied.Periods = slices.Clone(s.Periods)
	return &copied
}

// SubscriptionView is a subscription as people are shown it.
type SubscriptionView struct {
	Plan       string
	Status     SubscriptionStatus
	Start, End time.Time // of the current period, or of the last that was
	PaidUntil  time.Time // the end of all that is paid
	GraceUntil time.Time // zero: it is not in its grace
	Next       string    // the plan from PaidUntil on, where it is another one
}

// subscriptionView is nil where nothing was paid for.
func (d *decision) subscriptionView() *SubscriptionView {
	s := d.state.Account.Subscription
	if s == nil {
		return nil
	}
	current := s.Periods[0]
	view := &SubscriptionView{
		Plan: d.plan.Name, Status: SubscriptionActive, Start: current.Start, End: current.End, PaidUntil: s.end(),
	}
	if s.Next != d.plan.Name {
		view.Next = s.Next
	}
	switch {
	case !d.now.Before(s.end()):
		view.Status, view.GraceUntil = SubscriptionGrace, s.end().Add(d.plan.Grace)
	case s.Cancelled:
		view.Status = SubscriptionCancelled
	}
	return view
}

// advanceSubscription goes on to the period that contains now. Where there is none, the subscription is in its grace, or it
// has lapsed.
func (d *decision) advanceSubscription() {
	account := &d.state.Account
	if account.Subscription == nil {
		return
	}
	s := account.Subscription.clone()
	moved := false
	for len(s.Periods) > 1 && !d.now.Before(s.Periods[0].End) {
		over := s.Periods[0]
		s.Periods = s.Periods[1:]
		moved = true
		d.moveTo(s.Periods[0].Plan, over.End)
	}
	if moved {
		account.Subscription = s
		d.state.touchAccount()
	}
	end := s.end()
	if d.now.Before(end) {
		return
	}
	paid := s.Periods[len(s.Periods)-1].Plan
	next := d.catalog.PlanOf(&Account{Plan: paid})
	goesOn := !s.Cancelled && !next.Default
	if s.Next != "" {
		next = d.catalog.PlanOf(&Account{Plan: s.Next})
		goesOn = goesOn && !next.Default
	}
	if goesOn {
		d.moveTo(next.Name, end)
	}
	until := end
	if goesOn {
		until = end.Add(d.plan.Grace)
	}
	if !d.now.Before(until) {
		d.lapse(paid, until)
	}
}

// moveTo puts the account on another plan.
func (d *decision) moveTo(plan string, effectiveAt time.Time) {
	if d.state.Account.Plan == plan {
		return
	}
	d.state.Account.Plan = plan
	d.plan = d.catalog.PlanOf(&d.state.Account)
	d.post(note{kind: EntrySubscription, reason: planReason + d.plan.Name, effectiveAt: effectiveAt}, func(*posting) {})
}

// lapse ends the subscription: the account is on the default plan again, whose cycles it never lost. What the plan that
// was paid for had is remembered.
func (d *decision) lapse(paid string, at time.Time) {
	account := &d.state.Account
	account.Lapsed = paid
	if plan, ok := d.catalog.Plan(paid); ok && plan.Default {
		account.Lapsed = ""
	}
	account.Subscription = nil
	account.Anchor, account.AnchorZone = time.Time{}, ""
	d.state.Zones.Anchor = nil
	d.moveTo("", at)
	d.state.touchAccount()
	d.tell(Event{ID: namedID(ID(account.ID), fmt.Sprintf("lapsed by entry %d", account.LastEntry)), Kind: EventSubscriptionEnded})
}

// dearer reports whether the plan costs more than another one: per day, for the shortest period of each, in the first currency
// that both are sold in. Where there is none, or the same price, the later one in the catalog counts as dearer. The default
// plan is the cheapest.
func (c *Catalog) dearer(name, thanName string) bool {
	plan, ok1 := c.Plan(name)
	than, ok2 := c.Plan(thanName)
	switch {
	case !ok1 || !ok2 || plan.Default:
		return false
	case than.Default:
		return true
	}
	for i := range c.Products {
		for _, money := range c.Products[i].Prices {
			price, days, sold1 := c.soldFor(name, money.Currency)
			other, otherDays, sold2 := c.soldFor(thanName, money.Currency)
			left, fits1 := price.times(Amount(otherDays))
			right, fits2 := other.times(Amount(days))
			if sold1 && sold2 && fits1 && fits2 && left != right {
				return left > right
			}
		}
	}
	index := func(name string) int { return slices.IndexFunc(c.Plans, func(p Plan) bool { return p.Name == name }) }
	return index(name) > index(thanName)
}

// soldFor is what the plan's shortest period costs in a currency, and how long it is.
func (c *Catalog) soldFor(plan, currency string) (price Amount, days int, sold bool) {
	for i := range c.Products {
		p := &c.Products[i]
		if p.Plan != plan || sold && p.Period.days() >= days {
			continue
		}
		if money, ok := find(p.Prices, func(m *Money) bool { return m.Currency == currency }); ok {
			price, days, sold = money.Amount, p.Period.days(), true
		}
	}
	return price, days, sold
}

// SetPlan puts an account that exists on a plan, without a payment. What it was granted stays until it ends by itself,
// so going back to a plan never brings a fresh window. A plan's term is then a month, again and again from when it was
// set, until another plan is set; where a cycle of it still runs, from that one's end on. Changed is false where it was on
// that plan already. What was paid for is not taken away this way: it is changed or cancelled.
type SetPlan struct {
	base
	Plan string
}

// Name is "set_plan".
func (SetPlan) Name() string { return "set_plan" }

func (op SetPlan) check(p *problems) { p.word("plan", op.Plan) }

func (op SetPlan) checkCatalog(c *Catalog, p *problems) { p.knownPlan(c, op.Plan) }

func (p *problems) knownPlan(c *Catalog, plan string) {
	if _, ok := c.Plan(plan); !ok {
		p.add("plan", "use a plan of the catalog")
	}
}

func (op SetPlan) print(f *printer) { f.text("plan", op.Plan) }

func (op SetPlan) decide(d *decision) Outcome {
	account := &d.state.Account
	if d.plan.Name == op.Plan {
		return Outcome{Account: d.view()}
	}
	plan, _ := d.catalog.Plan(op.Plan)
	switch {
	case plan.Retired:
		return invalid("plan", "use a plan that is not retired")
	case account.Subscription != nil:
		return invalid("plan", "the account has paid for a plan: change or cancel its subscription")
	}
	account.Anchor, account.AnchorZone = time.Time{}, ""
	d.state.Zones.Anchor = nil
	begins := d.now
	if !plan.Default { // the default plan began with the account
		begins = d.endOfRunning(plan)
		account.Anchor, account.AnchorZone = begins, account.TimeZone // its months count from when the entry takes effect
		d.state.Zones.Anchor = d.state.Zones.Account
	}
	account.Lapsed = ""
	d.moveTo(op.Plan, begins)
	d.openCycles()
	return Outcome{Changed: true, Account: d.view()}
}

// endOfRunning is when the cycles end that the plan still has from an earlier time; now, where none does.
func (d *decision) endOfRunning(plan *Plan) time.Time {
	end := d.now
	for i := range plan.Allowances {
		a := &plan.Allowances[i]
		if g := d.state.cycle(a, d.now); g != nil && (a.Every.Term || a.Every.Anniversary) {
			end = latest(end, g.EndsAt)
		}
	}
	return end
}

// planReason begins the reason of the entry that tells of another plan.
const planReason = "plan "

// PlanSet is the plan that an entry tells of, if it tells of one.
func (e *Entry) PlanSet() (plan string, ok bool) {
	if e.Kind != EntrySubscription {
		return "", false
	}
	return strings.CutPrefix(e.Reason, planReason)
}

// ChangePlan changes the plan of a running subscription. To a dearer plan it changes now, in one decision: what is used
// and reserved stays, and the new plan's upgrade policy says what is given for the rest of the period. To a cheaper one it
// changes at the end of what is paid.
//
// Refuses: SubscriptionInactive where nothing paid is running.
type ChangePlan struct {
	base
	Plan string
	When When
}

// When says when a plan changes.
type When string

// The times. The empty one means now for a dearer plan, and the end of the period for another.
const (
	ChangeNow      When = "now"
	ChangeAtTheEnd When = "period_end"
)

// Name is "change_plan".
func (ChangePlan) Name() string { return "change_plan" }

func (op ChangePlan) check(p *problems) {
	p.word("plan", op.Plan)
	if !slices.Contains([]When{"", ChangeNow, ChangeAtTheEnd}, op.When) {
		p.add("when", "use now or period_end, or leave it out")
	}
}

func (op ChangePlan) checkCatalog(c *Catalog, p *problems) { p.knownPlan(c, op.Plan) }

func (op ChangePlan) print(f *printer) {
	f.text("plan", op.Plan)
	f.text("when", string(op.When))
}

func (op ChangePlan) decide(d *decision) Outcome {
	s := d.state.Account.Subscription
	if s == nil {
		return d.nothingPaid()
	}
	plan, _ := d.catalog.Plan(op.Plan)
	now := op.When == ChangeNow || op.When == "" && d.catalog.dearer(op.Plan, d.plan.Name)
	switch {
	case plan.Retired && d.plan.Name != op.Plan:
		return invalid("plan", "use a plan that is not retired")
	case now && !d.now.Before(s.end()):
		return d.nothingPaid() // in its grace: nothing paid is left to change
	case now && d.catalog.dearer(d.plan.Name, op.Plan):
		return invalid("when", "a cheaper plan begins with the next period: use period_end, or leave it out")
	}
	// From here on the command succeeds.
	changed := false
	next := s.clone()
	if now && op.Plan != d.plan.Name {
		changed = true
		next.Next = ""
		d.state.Account.Subscription = next
		d.upgrade(plan)
	} else if wanted := op.Plan; !now {
		if wanted == next.Periods[len(next.Periods)-1].Plan {
			wanted = "" // as it is
		}
		if changed = next.Next != wanted; changed {
			next.Next = wanted
			d.state.Account.Subscription = next
			d.state.touchAccount()
			d.tell(Event{ID: d.newID(), Kind: EventSubscriptionChange})
			d.advance() // in its grace, it changes at once
		}
	}
	return Outcome{Changed: changed, Account: d.view()}
}

// nothingPaid refuses to change what is not there.
func (d *decision) nothingPaid() Outcome {
	return Outcome{Reason: SubscriptionInactive, Refusal: &Refusal{Active: d.state.Account.Active, MaxActive: d.plan.MaxActive, Plan: d.plan.Name}}
}

// upgrade changes the current period to a dearer plan.
func (d *decision) upgrade(plan *Plan) {
	old := d.plan
	current := &d.state.Account.Subscription.Periods[0]
	d.moveTo(plan.Name, d.now)
	current.Plan = plan.Name
	d.state.touchAccount()
	given := map[string]Amount{} // by the old plan, of each unit
	if plan.Upgrade == UpgradeFull {
		d.endTerms(current, func(g *Grant) bool { return g.Allowance != "" && plan.givesByTerm(g.Unit) > 0 })
	} else {
		for _, a := range plan.Allowances {
			given[a.Unit] = old.givesByTerm(a.Unit)
		}
	}
	for i := range plan.Allowances {
		a := &plan.Allowances[i]
		if !a.Every.Term {
			continue
		}
		had := min(given[a.Unit], a.Amount)
		given[a.Unit] -= had
		n := a.Amount - had
		if plan.Upgrade == UpgradeProrated {
			n = prorated(n, current.End.Sub(d.now), current.whole())
		}
		if n == 0 {
			continue
		}
		g := d.cycleGrant(a, n)
		g.ID, g.StartsAt = namedID(current.Payment, fmt.Sprintf("upgrade %s %d", a.Key, d.now.UnixMicro())), d.now
		d.post(note{kind: EntryGrant, unit: g.Unit}, func(p *posting) { p.issue(g) })
		d.repay(g)
	}
	d.openCycles()
}

// prorated is the part of an amount for the rest of a period, rounded down, counted in seconds.
func prorated(n Amount, rest, whole time.Duration) Amount {
	return n.share(Amount(rest/time.Second), Amount(whole/time.Second))
}

// ofPeriod reports whether the grant is an allowance of the paid period, or what an upgrade added to it, and in force.
func (d *decision) ofPeriod(g *Grant, period *PaidPeriod) bool {
	a, known := d.catalog.allowance(g.Allowance)
	return g.Source == FromAllowance && (g.Allowance == "" || known && a.Every.Term) && g.EndsAt.Equal(period.End) && g.InForce(d.now)
}

// endTerms voids what is left of the period's allowances, as far as they are meant. What work holds stays with it, and is
// void when it returns.
func (d *decision) endTerms(period *PaidPeriod, meant func(*Grant) bool) (ended []*Grant) {
	for _, g := range d.state.Grants {
		if !d.ofPeriod(g, period) || !meant(g) {
			continue
		}
		ended = append(ended, g)
		d.revokeFrom(g, g.Available(), "its period has ended, or another plan took its place")
		if n := g.Reserved - g.Doomed; n > 0 {
			d.doom(g, n)
		}
	}
	return ended
}

// givesByTerm is what the plan's term allowances of a unit give for a paid period.
func (p *Plan) givesByTerm(unit string) Amount {
	var sum Amount
	for _, a := range p.Allowances {
		if a.Unit == unit && a.Every.Term {
			sum += a.Amount
		}
	}
	return sum
}

// CancelSubscription lets a subscription end with what is paid. Refuses: SubscriptionInactive where nothing paid is running.
type CancelSubscription struct{ base }

// Name is "cancel_subscription".
func (CancelSubscription) Name() string { return "cancel_subscription" }

func (CancelSubscription) decide(d *decision) Outcome { return d.renewing(false) }

// ResumeSubscription takes a cancellation back while something paid is left. Refuses: SubscriptionInactive.
type ResumeSubscription struct{ base }

// Name is "resume_subscription".
func (ResumeSubscription) Name() string { return "resume_subscription" }

func (ResumeSubscription) decide(d *decision) Outcome { return d.renewing(true) }

func (d *decision) renewing(wanted bool) Outcome {
	s := d.state.Account.Subscription
	if s == nil {
		return d.nothingPaid()
	}
	changed := s.Cancelled == wanted
	if changed {
		next := s.clone()
		next.Cancelled = !wanted
		if !wanted {
			next.Next = ""
		}
		d.state.Account.Subscription = next
		d.state.touchAccount()
		kind := EventSubscriptionResumed
		if !wanted {
			kind = EventSubscriptionCancelled
		}
		d.tell(Event{ID: d.newID(), Kind: kind})
		d.advance() // in its grace, it ends at once
	}
	return Outcome{Changed: changed, Account: d.view()}
}
