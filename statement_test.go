package holdfast_test

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// The words in which decision scripts say what a command came to: one line each, with all its numbers.

func moment(at time.Time) string {
	if at.Second() != 0 {
		return at.Format("01-02 15:04:05")
	}
	return at.Format("01-02 15:04")
}

// statement joins the parts of a line that have something to say.
func statement(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), " · ")
}

// figures lists what is not zero, as "used 3 returned 2".
func figures(pairs ...any) string {
	var words []string
	for i := 0; i < len(pairs); i += 2 {
		if amount := pairs[i+1].(holdfast.Amount); amount != 0 {
			words = append(words, fmt.Sprintf("%s %d", pairs[i], amount))
		}
	}
	return strings.Join(words, " ")
}

func prefix(done result) string {
	if done.Replayed {
		return "replayed: "
	}
	return ""
}

// reservationStatement tells what came of a command about a reservation.
func (s *script) reservationStatement(label string, done result) string {
	if done.Reason != "" {
		return s.refusalStatement(label, done)
	}
	r := done.Reservation
	parts := []string{prefix(done) + s.headline(label, r, done)}
	if done.Lease != nil {
		parts = append(parts, "lease "+done.Lease.Token+" until "+moment(done.Lease.ExpiresAt))
	}
	if r.Live() {
		parts = append(parts, "until "+moment(r.ExpiresAt), jobStatement(r))
	}
	if settled := done.Settlement; settled != nil && !settled.MayContinue && done.operation != "refund" {
		parts = append(parts, "may not continue")
	}
	parts = append(parts, balanceStatement(done.Balance), s.sideEffects(r.ID, done))
	return statement(parts...)
}

// jobStatement tells when the job can be claimed, and how often it has failed.
func jobStatement(r *holdfast.Reservation) string {
	if r.Job == nil {
		return ""
	}
	text := "job claimable " + moment(r.ClaimableAt())
	if failed := figures("crashes", holdfast.Amount(r.Job.Crashes), "errors", holdfast.Amount(r.Job.Errors)); failed != "" {
		text += ", " + failed
	}
	return text
}

func (s *script) headline(label string, r *holdfast.Reservation, done result) string {
	switch {
	case done.DryRun && done.operation == "charge":
		return fmt.Sprintf("would charge %d %s from %s", r.Reserved, r.Price.Unit, s.allocations(r))
	case done.DryRun:
		return fmt.Sprintf("would reserve %d %s from %s", r.Reserved, r.Price.Unit, s.allocations(r))
	case !done.Changed:
		return fmt.Sprintf("unchanged %s %s", label, reservationFigures(r))
	case done.Lease != nil:
		return fmt.Sprintf("%s %s%s", label, r.State, marks(r))
	case done.Settlement == nil:
		return fmt.Sprintf("%s %s %d %s from %s%s", r.State, label, r.Reserved, r.Price.Unit, s.allocations(r), marks(r))
	case done.Settlement.Late:
		return fmt.Sprintf("late %s %s", label, reservationFigures(r))
	}
	moved := figures("owed", r.Debt, "returned", done.Settlement.Returned, "voided", done.Settlement.Voided, "unbilled", done.Settlement.Unbilled)
	if done.operation == "refund" {
		moved = figures("returned", done.Settlement.Returned, "voided", done.Settlement.Voided)
		return strings.TrimSpace(fmt.Sprintf("refunded %s %d of %d %s", label, r.Refunded, r.Charged()+r.Debt, moved))
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", reservationHead(label, r), moved))
}

// marks are what a live reservation waits for.
func marks(r *holdfast.Reservation) string {
	var text string
	if r.InDoubt {
		text += ", in doubt"
	}
	if r.Live() && !r.CancelRequestedAt.IsZero() {
		text += ", asked to stop"
	}
	return text
}

// reservationHead says how a reservation ended: what a commit used, or why it was released.
func reservationHead(label string, r *holdfast.Reservation) string {
	head := fmt.Sprintf("%s %s", r.State, label)
	if r.Cause != "" {
		head += " (" + r.Cause + ")"
	}
	if r.State == holdfast.Committed {
		head += fmt.Sprintf(" used %d", r.Used)
	}
	return head
}

func reservationFigures(r *holdfast.Reservation) string {
	state := string(r.State)
	if r.Cause != "" {
		state += " (" + r.Cause + ")"
	}
	if r.State == holdfast.Committed {
		state += fmt.Sprintf(" used %d", r.Used)
	}
	if !r.LateAt.IsZero() {
		state += fmt.Sprintf(" late used %d", r.LateUsed)
	}
	return strings.TrimSpace(state+" "+figures("owed", r.Debt, "unbilled", r.Unbilled, "refunded", r.Refunded)) + marks(r)
}

// allocations names the pockets, those of an overrun or a late commit included.
func (s *script) allocations(r *holdfast.Reservation) string {
	var words []string
	for _, a := range r.Allocations {
		if a.Reserved == 0 {
			when := "over"
			if !r.LateAt.IsZero() {
				when = "late"
			}
			words = append(words, fmt.Sprintf("%s %s:%d", when, s.pocket(a.Grant, a.Source), a.Used))
			continue
		}
		words = append(words, fmt.Sprintf("%s:%d", s.pocket(a.Grant, a.Source), a.Reserved))
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " ")
}

func (s *script) pocket(id holdfast.ID, source holdfast.Source) string {
	if name := s.names[id]; name != "" {
		return name
	}
	return string(source)
}

func balanceStatement(b *holdfast.Balance) string {
	if b == nil {
		return ""
	}
	text := fmt.Sprintf("%s %d available %d reserved", b.Unit, b.Available, b.Reserved)
	if b.Debt != 0 {
		text += fmt.Sprintf(" %d debt", b.Debt)
	}
	if b.Cycle != nil {
		text += ", " + cycleStatement(b.Cycle)
	}
	return text
}

func cycleStatement(c *holdfast.CycleNumbers) string {
	if c.StartsAt.IsZero() {
		return fmt.Sprintf("cycle of %d not started", c.Granted)
	}
	return fmt.Sprintf("cycle of %d used %d reserved %d from %s to %s", c.Granted, c.Used, c.Reserved, moment(c.StartsAt), moment(c.EndsAt))
}

// sideEffects tells which other reservations ended and how, what time did to grants, what was repaid, and that the core
// asked again.
func (s *script) sideEffects(own holdfast.ID, done result) string {
	ended := map[holdfast.ReservationState][]string{}
	var opened []string
	var voided, carried, repaid, revoked, owed holdfast.Amount
	var plans []string
	for _, changes := range done.saved {
		for _, r := range changes.Reservations {
			if !r.Live() && r.ID != own && r.LateAt.IsZero() {
				ended[r.State] = append(ended[r.State], s.names[r.ID])
			}
		}
		for _, g := range changes.NewGrants {
			if s.byTime(g) && g.Source == holdfast.FromAllowance {
				opened = append(opened, fmt.Sprintf("%s %d to %s", s.pocket(g.ID, g.Source), g.Granted, moment(g.EndsAt)))
			}
		}
		for _, e := range changes.Entries {
			switch plan, ok := e.PlanSet(); {
			case e.Kind == holdfast.EntryRepay:
				repaid -= e.Debt
			case e.Kind == holdfast.EntryDebt && e.Reservation.IsZero():
				owed += e.Debt
			case ok:
				plans = append(plans, plan)
			}
			for _, delta := range e.Deltas {
				switch e.Kind {
				case holdfast.EntryVoid:
					voided += delta.Voided
				case holdfast.EntryRollover:
					carried += delta.Voided
				case holdfast.EntryRevoke:
					revoked += delta.Voided
				}
			}
		}
	}
	if done.Settlement != nil {
		voided -= max(done.Settlement.Voided-revoked, 0)
		revoked = max(revoked-done.Settlement.Voided, 0)
	}
	var parts []string
	if len(plans) > 0 && done.operation != "set_plan" {
		parts = append(parts, "moved to "+strings.Join(plans, ", "))
	}
	for _, state := range []holdfast.ReservationState{holdfast.Committed, holdfast.Released, holdfast.Expired} {
		switch names := ended[state]; {
		case len(names) > 10:
			parts = append(parts, fmt.Sprintf("%s %d", state, len(names)))
		case len(names) > 0:
			parts = append(parts, string(state)+" "+strings.Join(names, " "))
		}
	}
	if voided > 0 {
		parts = append(parts, fmt.Sprintf("time voided %d", voided))
	}
	if carried > 0 {
		parts = append(parts, fmt.Sprintf("carried over %d", carried))
	}
	if len(opened) > 0 {
		parts = append(parts, "opened "+strings.Join(opened, ", "))
	}
	if revoked > 0 {
		parts = append(parts, fmt.Sprintf("revoked %d", revoked))
	}
	if owed > 0 {
		parts = append(parts, fmt.Sprintf("owed %d", owed))
	}
	if repaid > 0 {
		parts = append(parts, fmt.Sprintf("repaid %d", repaid))
	}
	if len(done.saved) > 1 {
		parts = append(parts, fmt.Sprintf("in %d rounds", len(done.saved)))
	}
	return statement(parts...)
}

// refusalStatement tells a "no" with all its numbers.
func (s *script) refusalStatement(label string, done result) string {
	head := prefix(done) + "refused " + string(done.Reason)
	var parts []string
	for _, p := range done.Problems {
		parts = append(parts, p.Field)
	}
	if len(parts) > 0 {
		head += " " + strings.Join(parts, ", ")
	}
	own := holdfast.ID{}
	if r := done.Reservation; r != nil {
		head += fmt.Sprintf(" %s %s", label, reservationFigures(r))
		own = r.ID
	}
	parts = []string{head}
	if n := done.Refusal; n != nil {
		parts = append(parts, refusalNumbers(n)...)
	}
	parts = append(parts, balanceStatement(done.Balance), s.sideEffects(own, done))
	return statement(parts...)
}

func refusalNumbers(n *holdfast.Refusal) []string {
	var parts []string
	asked := n.Feature
	if n.Unit != "" {
		asked += fmt.Sprintf(" needs %d %s, %d available, %d held", n.Needed, n.Unit, n.Available, n.Held)
	}
	parts = append(parts, strings.TrimSpace(asked), fmt.Sprintf("%s, active %d of %d", n.Plan, n.Active, n.MaxActive))
	if n.Cycle != nil {
		parts = append(parts, cycleStatement(n.Cycle))
	}
	if n.Estimated {
		parts = append(parts, "estimated, affordable "+usageStatement(n.AffordableUsage))
	}
	if !n.ResetsAt.IsZero() {
		parts = append(parts, "resets "+moment(n.ResetsAt))
	}
	if len(n.Plans) > 0 {
		parts = append(parts, "allowed by "+strings.Join(n.Plans, " "))
	}
	var ways []string
	for _, a := range n.Alternatives {
		ways = append(ways, fmt.Sprintf("%d %s (%d available, %d held)", a.Needed, a.Unit, a.Available, a.Held))
	}
	if len(ways) > 0 {
		parts = append(parts, "pay by "+strings.Join(ways, " or "))
	}
	return parts
}

func usageStatement(usage map[string]holdfast.Amount) string {
	var words []string
	for _, kind := range slices.Sorted(maps.Keys(usage)) {
		words = append(words, fmt.Sprintf("%s:%d", kind, usage[kind]))
	}
	return strings.Join(words, " ")
}

func priceStatement(p holdfast.Price) string {
	if p.ByUsage() {
		return fmt.Sprintf("%s per %d of %s", p.Unit, p.Per, usageStatement(p.Rates))
	}
	return fmt.Sprintf("%d %s", p.Amount, p.Unit)
}

func (s *script) grantStatement(done result) string {
	if done.Reason != "" {
		return s.refusalStatement("", done)
	}
	head := "adjusted"
	if g := done.Grant; g != nil {
		head = "granted " + s.grantLine(g)
	}
	return statement(prefix(done)+head, balanceStatement(done.Balance), s.sideEffects(holdfast.ID{}, done))
}

// grantLine says what a pocket is and what is in it.
func (s *script) grantLine(g *holdfast.Grant) string {
	words := []string{s.pocket(g.ID, g.Source), strconv.FormatInt(int64(g.Granted), 10), g.Unit, string(g.Source), fmt.Sprintf("priority %d", g.Priority)}
	if len(g.Features) > 0 {
		words = append(words, "for "+strings.Join(g.Features, ","))
	}
	if g.StartsAt.After(g.CreatedAt) {
		words = append(words, "from "+moment(g.StartsAt))
	}
	if !g.EndsAt.IsZero() {
		words = append(words, "to "+moment(g.EndsAt))
	}
	if counters := figures("reserved", g.Reserved, "used", g.Used, "voided", g.Voided); counters != "" {
		words = append(words, counters)
	}
	if !g.Open {
		words = append(words, "closed")
	}
	return strings.Join(words, " ")
}

func (s *script) accountStatement(account string, done result) string {
	if done.Reason != "" {
		return s.refusalStatement(account, done)
	}
	view := done.Account
	head := fmt.Sprintf("%s on %s", account, view.Plan)
	if !done.Changed {
		head = "unchanged " + head
	}
	switch {
	case !view.Account.DeletedAt.IsZero():
		head += " deleted"
	case view.Account.Blocked:
		head += " blocked"
	}
	parts := []string{prefix(done) + head, subscriptionStatement(view.Subscription)}
	for _, b := range view.Balances {
		parts = append(parts, balanceStatement(&b))
	}
	return statement(append(parts, s.sideEffects(holdfast.ID{}, done))...)
}

// subscriptionStatement says how a subscription stands.
func subscriptionStatement(view *holdfast.SubscriptionView) string {
	if view == nil {
		return ""
	}
	text := fmt.Sprintf("%s from %s to %s", view.Status, moment(view.Start), moment(view.End))
	if !view.PaidUntil.Equal(view.End) {
		text += ", paid until " + moment(view.PaidUntil)
	}
	if !view.GraceUntil.IsZero() {
		text += ", grace until " + moment(view.GraceUntil)
	}
	if view.Next != "" {
		text += ", then " + view.Next
	}
	return text
}

// paymentStatement tells what a payment came to, or what its refund took back.
func (s *script) paymentStatement(done result) string {
	if done.Reason != "" {
		return s.refusalStatement("", done)
	}
	head := prefix(done)
	if !done.Changed {
		head += "unchanged "
	}
	return statement(head+paymentFigures(done.Payment), balanceStatement(done.Balance), s.sideEffects(holdfast.ID{}, done))
}

func paymentFigures(p *holdfast.Payment) string {
	text := fmt.Sprintf("%s %s %s %d %s", p.State, p.PaymentID, p.Product, p.Amount, p.Currency)
	if p.Flag != "" {
		text += " (" + string(p.Flag) + ")"
	}
	if p.Plan != "" {
		text += fmt.Sprintf(", %s from %s to %s", p.Plan, moment(p.PeriodStart), moment(p.PeriodEnd))
	}
	if taken := figures("refunded", p.Refunded, "revoked", p.Revoked, "owed", p.Owed); taken != "" {
		text += ", " + taken
	}
	if p.Disputed {
		text += ", disputed"
	}
	return text
}

// showSubscription lists the paid periods.
func (s *script) showSubscription(l *line, _ []string) string {
	view := s.view(l.word("an account"))
	if view.Subscription == nil {
		text := "no subscription, on " + view.Plan
		if lapsed := view.Account.Lapsed; lapsed != "" {
			text += ", lapsed from " + lapsed
		}
		return text
	}
	lines := []string{fmt.Sprintf("on %s, %s", view.Plan, subscriptionStatement(view.Subscription))}
	for _, p := range view.Account.Subscription.Periods {
		lines = append(lines, fmt.Sprintf("  %s from %s to %s", p.Plan, moment(p.Start), moment(p.End)))
	}
	return strings.Join(lines, "\n")
}

func (s *script) showPayment(l *line, _ []string) string {
	stored, id := s.stored(l.word("an account")), l.word("a payment")
	for _, p := range stored.payments {
		if p.PaymentID == id {
			return paymentFigures(p)
		}
	}
	return "no payment " + id
}

func (s *script) expireStatement(done result) string {
	switch effects := s.sideEffects(holdfast.ID{}, done); {
	case done.Reason != "":
		return s.refusalStatement("", done)
	case effects == "":
		return "nothing is overdue"
	default:
		return effects
	}
}

func (s *script) showBalance(l *line, _ []string) string {
	account := l.word("an account")
	view := s.view(account)
	if l.has("at") {
		at := l.moment("at")
		view = s.believed(account, at)
		account += " at " + moment(at)
	}
	head := fmt.Sprintf("%s on %s, active %d of %d", account, view.Plan, view.Account.Active, view.MaxActive)
	if !view.Exists {
		head = fmt.Sprintf("%s, not seen yet, would be on %s", account, view.Plan)
	}
	parts := []string{head, subscriptionStatement(view.Subscription)}
	for _, b := range view.Balances {
		parts = append(parts, balanceStatement(&b))
	}
	return statement(parts...)
}

func (s *script) showGrants(l *line, _ []string) string {
	lines := []string{"grants"}
	for _, g := range s.stored(l.word("an account")).grants {
		lines = append(lines, "  "+s.grantLine(g))
	}
	return strings.Join(lines, "\n")
}

func (s *script) showReservation(l *line, _ []string) string {
	label := l.word("a reservation")
	target, ok := s.reservations[label]
	if !ok {
		s.fail("no reservation is called %q", label)
	}
	r := s.records[target.account].reservation(target.id)
	parts := []string{
		fmt.Sprintf("%s is %s", label, reservationFigures(r)),
		fmt.Sprintf("%s × %d at %s", r.Feature, r.Quantity, priceStatement(r.Price)),
		fmt.Sprintf("reserved %d from %s", r.Reserved, s.allocations(r)),
		fmt.Sprintf("catalog %d", r.CatalogVersion),
		"until " + moment(r.ExpiresAt),
	}
	if r.Attempts > 0 {
		parts = append(parts, fmt.Sprintf("start %d by %s, lease %s until %s", r.Attempts, r.Worker, r.LeaseToken, moment(r.LeaseExpiresAt)))
	}
	if !r.EndedAt.IsZero() {
		parts = append(parts, "ended "+moment(r.EndedAt))
	}
	if len(r.Usage) > 0 {
		parts = append(parts, "at most "+usageStatement(r.Usage))
	}
	if len(r.Reported) > 0 {
		parts = append(parts, "reported "+usageStatement(r.Reported))
	}
	if len(r.Metadata) > 0 {
		parts = append(parts, fmt.Sprintf("%d metadata", len(r.Metadata)))
	}
	return statement(parts...)
}

func (s *script) showEntries(l *line, _ []string) string {
	stored := s.stored(l.word("an account"))
	lines := []string{"entries"}
	for _, e := range l.last(len(stored.entries)) {
		lines = append(lines, "  "+s.entryLine(stored.entries[e]))
	}
	return strings.Join(lines, "\n")
}

// last are the indices of the newest last=n rows, all where it is not given.
func (l *line) last(count int) []int {
	from := 0
	if n := l.amount("last"); n != nil {
		from = max(0, count-int(*n))
	}
	var indices []int
	for i := from; i < count; i++ {
		indices = append(indices, i)
	}
	return indices
}

func (s *script) entryLine(e holdfast.Entry) string {
	words := []string{fmt.Sprintf("%d %s", e.No, e.Kind)}
	if name := s.names[e.Reservation]; name != "" {
		words = append(words, name)
	}
	for _, delta := range e.Deltas {
		var moves []string
		for _, move := range []struct {
			what   string
			amount holdfast.Amount
		}{{"granted", delta.Granted}, {"reserved", delta.Reserved}, {"used", delta.Used}, {"voided", delta.Voided}} {
			if move.amount != 0 {
				moves = append(moves, fmt.Sprintf("%s %+d", move.what, move.amount))
			}
		}
		words = append(words, s.pocket(delta.Grant, "?")+" "+strings.Join(moves, " "))
	}
	if e.Debt != 0 {
		words = append(words, fmt.Sprintf("owed %+d", e.Debt))
	}
	if e.Unit != "" {
		words = append(words, fmt.Sprintf("%s %d available %d reserved", e.Unit, e.Available, e.Reserved))
	}
	if e.Owed != 0 {
		words = append(words, fmt.Sprintf("%d owed", e.Owed))
	}
	if !e.EffectiveAt.Equal(e.RecordedAt) {
		words = append(words, "effective "+moment(e.EffectiveAt))
	}
	if e.Reason != "" {
		words = append(words, e.Actor+": "+e.Reason)
	}
	return statement(words...)
}

func (s *script) showEvents(l *line, _ []string) string {
	stored := s.stored(l.word("an account"))
	lines := []string{"events"}
	for _, i := range l.last(len(stored.events)) {
		e := stored.events[i]
		words := []string{string(e.Kind)}
		if e.Entry > 0 {
			words = append(words, fmt.Sprintf("of entry %d", e.Entry))
		}
		if name := s.names[e.Reservation]; name != "" {
			words = append(words, name)
		}
		if e.Figure != 0 || e.Kind == holdfast.EventReportedAfterEnd {
			words = append(words, fmt.Sprintf("figure %d", e.Figure))
		}
		lines = append(lines, "  "+strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}

func (s *script) showNotices(l *line, _ []string) string {
	stored := s.stored(l.word("an account"))
	s.ripen(stored)
	lines := []string{"notices"}
	for _, n := range stored.notices {
		words := []string{string(n.Event.Kind)}
		if name := s.names[n.Event.Reservation]; name != "" {
			words = append(words, name)
		}
		lines = append(lines, "  "+strings.Join(words, " ")+" at "+moment(n.DueAt))
	}
	return strings.Join(lines, "\n")
}

// explanationStatement tells every step with its numbers, the pockets indented below.
func (s *script) explanationStatement(x *holdfast.Explanation, found []holdfast.Problem) string {
	if x == nil {
		var fields []string
		for _, p := range found {
			fields = append(fields, p.Field)
		}
		return "refused invalid " + strings.Join(fields, ", ")
	}
	lines := []string{x.Feature + " would be granted"}
	if !x.Allowed {
		lines[0] = fmt.Sprintf("%s would be refused %s", x.Feature, x.Reason)
	}
	for _, step := range x.Steps {
		passed := "no "
		if step.Passed {
			passed = "yes"
		}
		text := fmt.Sprintf("  %s %s", passed, step.Check)
		switch step.Check {
		case holdfast.CheckPrice:
			text += fmt.Sprintf(" %d %s, %d available, %d held", step.Needed, step.Unit, step.Available, step.Held)
		case holdfast.CheckSlot:
			text += fmt.Sprintf(" %d of %d", step.Active, step.MaxActive)
		}
		lines = append(lines, text)
		for _, p := range step.Pockets {
			words := fmt.Sprintf("        %s %s, %d available", s.pocket(p.Grant.ID, p.Grant.Source), p.Use, p.Available)
			if p.Takes > 0 {
				words += fmt.Sprintf(", takes %d", p.Takes)
			}
			lines = append(lines, words)
		}
	}
	return strings.Join(lines, "\n")
}
