package holdfast_test

import (
	"fmt"
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
		parts = append(parts, "until "+moment(r.ExpiresAt))
	}
	if settled := done.Settlement; settled != nil && !settled.MayContinue && done.operation != "refund" {
		parts = append(parts, "may not continue")
	}
	parts = append(parts, balanceStatement(done.Balance), s.sideEffects(r.ID, done))
	return statement(parts...)
}

func (s *script) headline(label string, r *holdfast.Reservation, done result) string {
	switch {
	case done.DryRun:
		return fmt.Sprintf("would reserve %d %s from %s", r.Reserved, r.Price.Unit, s.allocations(r))
	case !done.Changed:
		return fmt.Sprintf("unchanged %s %s", label, reservationFigures(r))
	case done.Lease != nil:
		return fmt.Sprintf("%s %s", label, r.State)
	case done.Settlement == nil:
		return fmt.Sprintf("%s %s %d %s from %s", r.State, label, r.Reserved, r.Price.Unit, s.allocations(r))
	case done.Settlement.Late:
		return fmt.Sprintf("late %s %s", label, reservationFigures(r))
	}
	moved := figures("returned", done.Settlement.Returned, "voided", done.Settlement.Voided, "unbilled", done.Settlement.Unbilled)
	if done.operation == "refund" {
		return strings.TrimSpace(fmt.Sprintf("refunded %s %d of %d %s", label, r.Refunded, r.Charged(), moved))
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s", reservationHead(label, r), moved))
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
	return strings.TrimSpace(state + " " + figures("unbilled", r.Unbilled, "refunded", r.Refunded))
}

// allocations names the pockets, those of a late commit included.
func (s *script) allocations(r *holdfast.Reservation) string {
	var words []string
	for _, a := range r.Allocations {
		if a.Reserved == 0 {
			words = append(words, fmt.Sprintf("late %s:%d", s.pocket(a.Grant, a.Source), a.Used))
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

// sideEffects tells which other reservations expired, which grants were voided by time, and that the core asked again.
func (s *script) sideEffects(own holdfast.ID, done result) string {
	var expired []string
	voided := holdfast.Amount(0)
	for _, changes := range done.saved {
		for _, r := range changes.Reservations {
			if r.State == holdfast.Expired && r.ID != own && r.LateAt.IsZero() {
				expired = append(expired, s.names[r.ID])
			}
		}
		for _, e := range changes.Entries {
			for _, delta := range e.Deltas {
				if e.Kind == holdfast.EntryVoid {
					voided += delta.Voided
				}
			}
		}
	}
	if done.Settlement != nil {
		voided -= done.Settlement.Voided
	}
	var parts []string
	switch {
	case len(expired) > 10:
		parts = append(parts, fmt.Sprintf("expired %d", len(expired)))
	case len(expired) > 0:
		parts = append(parts, "expired "+strings.Join(expired, " "))
	}
	if voided > 0 {
		parts = append(parts, fmt.Sprintf("time voided %d", voided))
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
	if view.Account.Blocked {
		head += " blocked"
	}
	parts := []string{prefix(done) + head}
	for _, b := range view.Balances {
		parts = append(parts, balanceStatement(&b))
	}
	return statement(append(parts, s.sideEffects(holdfast.ID{}, done))...)
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
	head := fmt.Sprintf("%s on %s, active %d of %d", account, view.Plan, view.Account.Active, view.MaxActive)
	if !view.Exists {
		head = fmt.Sprintf("%s, not seen yet, would be on %s", account, view.Plan)
	}
	parts := []string{head}
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
		fmt.Sprintf("%s × %d at %d %s", r.Feature, r.Quantity, r.Price.Amount, r.Price.Unit),
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
	if e.Unit != "" {
		words = append(words, fmt.Sprintf("%s %d available %d reserved", e.Unit, e.Available, e.Reserved))
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
		if e.Entry == 0 {
			words = append(words, fmt.Sprintf("figure %d", e.Figure))
		}
		lines = append(lines, "  "+strings.Join(words, " "))
	}
	return strings.Join(lines, "\n")
}
