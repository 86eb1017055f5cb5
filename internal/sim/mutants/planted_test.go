package mutants_test

// mutant is a bug: what it is, where it is planted, and which broken promise the simulator must find because of it.
type mutant struct {
	name string
	why  string
	// says is a regular expression that what the simulator reports must match, so that one bug is not found by another's.
	says    string
	changes []change
}

// change replaces a text that the file contains exactly once.
type change struct{ file, old, new string }

var mutants = []mutant{
	{
		name: "answer before commit",
		why:  "callers are told before the database has committed, and a crash or a conflict makes it untrue",
		says: `is not what was saved|is not stored|and it is`,
		changes: []change{{"engine/lane.go", `	if len(changes) > 0 {
`, `	for _, r := range results {
		for i, outcome := range r.outcomes {
			select {
			case r.group.commands[i].answer <- answer{outcome: outcome}:
			default:
			}
		}
	}
	if len(changes) > 0 {
`}},
	},
	{
		name: "expiry one instant early",
		why:  "a reservation belongs to its owner until the last microsecond before expires_at",
		says: `was to live until`,
		changes: []change{{
			"reservation.go",
			"func (r *Reservation) Overdue(now time.Time) bool { return r.Live() && !now.Before(r.ExpiresAt) }",
			"func (r *Reservation) Overdue(now time.Time) bool { return r.Live() && !now.Add(time.Microsecond).Before(r.ExpiresAt) }",
		}},
	},
	{
		name: "missing fence",
		why:  "where a lock was lost, only the version that was read keeps two servers from overwriting each other",
		says: `was saved over version`,
		changes: []change{{
			"store/memory/memory.go",
			"case exists && a.row.Version != row.Version, !exists && row.Version != 0:",
			"case !exists && row.Version != 0:",
		}},
	},
	{
		name: "unlocked read after a commit in doubt",
		why:  "a commit on its way cannot be seen without waiting for its locks, so a look without them says that nothing happened",
		says: `was told that nothing happened, and it did`,
		changes: []change{
			{"engine/lane.go", `		doubt = doubt || kind == store.InDoubt
`, `		if kind == store.InDoubt && e.seesNothing(ctx, a) {
			a.abandon(false, err)
			return nil
		}
		doubt = doubt || kind == store.InDoubt
`},
			{"engine/lane.go", `// attempt is one batch on its way through the store.`, `func (e *Engine) seesNothing(ctx context.Context, a *attempt) bool {
	for _, g := range a.groups {
		for _, p := range g.commands {
			c := &p.command
			page, err := e.store.Read(ctx, store.Query{Kind: store.QueryReservations, Project: c.Project, Account: c.AccountID(), Key: c.Key, Limit: 1})
			if err != nil || c.Key == "" || len(page.Reservations) > 0 {
				return false
			}
		}
	}
	return true
}

// attempt is one batch on its way through the store.`},
		},
	},
	{
		name:    "doubt forgotten by the next failure",
		why:     "a save in doubt stays in doubt until it was looked up under the lock; another failure on the way there is no news of it",
		says:    `was told that nothing happened, and it did`,
		changes: []change{{"engine/lane.go", "doubt = doubt || kind == store.InDoubt", "doubt = kind == store.InDoubt"}},
	},
	{
		name: "sweeper without recheck",
		why:  "the scan is a hint; what was moved on meanwhile is no longer overdue",
		says: `was to live until`,
		changes: []change{{"state.go", `		if r.Overdue(now) {
			due = append(due, r)`, `		if r.Live() {
			due = append(due, r)`}},
	},
	{
		name: "stale token accepted",
		why:  "a worker whose job was given to another could still end it",
		says: `may not: its token is`,
		changes: []change{{
			"reservation.go",
			`return r.LeaseToken == "" || r.LeaseToken == token`,
			`return r.LeaseToken == "" || token != ""`,
		}},
	},
	{
		name: "replay by key across accounts",
		why:  "a key means something inside its account only; another's answer is another's business",
		says: `is not what was saved|and none was|is replaced by|is told about`,
		changes: []change{{"store/memory/memory.go", `		if stored, ok := a.answers[key]; ok {`, `		stored, ok := a.answers[key]
		for _, id := range ids(s.accounts) {
			if other, found := s.accounts[id].answers[key]; found {
				stored, ok = other, true
				break
			}
		}
		if ok {`}},
	},
	{
		name:    "release into an ended grant given back",
		why:     "what returns to a pocket that has ended is worthless at once, and its owner is told so",
		says:    `ended at .* and has`,
		changes: []change{{"commit.go", "r.Voided = d.voidReturned()", "r.Voided = 0"}},
	},
	{
		name:    "events of a second decision dropped",
		why:     "a command that is decided twice tells of different facts; ids that follow from the command make one of them vanish",
		says:    `outbox rows`,
		changes: []change{{"ledger.go", "ID: entryEventID(entry.No)", "ID: d.newID()"}},
	},
	{
		name:    "recorded answer not written",
		why:     "the next delivery of the same request is decided, and charged, again",
		says:    `is not what was saved`,
		changes: []change{{"state.go", "	mark(&s.dirty.answers, a.Key)\n", ""}},
	},
	{
		name:    "slot not freed",
		why:     "work that has ended keeps its slot, and in the end everything is refused",
		says:    `active reservations`,
		changes: []change{{"commit.go", "	d.freeSlot()\n", ""}},
	},
	{
		name:    "refund over used",
		why:     "refunds in parts give back more than was charged",
		says:    `refunded at most what was used|out of service`,
		changes: []change{{"refund.go", "if *op.Amount > amount {", "if *op.Amount > r.Charged() {"}},
	},
	{
		name:    "start refused by its own success",
		why:     "a start whose commit was in doubt is decided again and finds itself; it must know its token",
		says:    `is refused by accident`,
		changes: []change{{"start.go", "if r.State == Running && r.LeaseToken == op.Token {", "if false {"}},
	},
	{
		name:    "success decided afresh",
		why:     "the header that asks for a fresh decision is about refusals; on a success it would charge twice",
		says:    `is replaced by`,
		changes: []change{{"decide.go", "!(command.RetryRefused && answer.Outcome.Refused())", "!command.RetryRefused"}},
	},
	{
		name:    "late commit settled twice",
		why:     "an expired reservation is charged late once; the second report changes nothing",
		says:    `a decision broke a rule|was charged late|charged 0, late`,
		changes: []change{{"commit.go", "settledLate := r.State == Expired && !r.LateAt.IsZero()", "settledLate := false"}},
	},
	{
		name:    "slow sweeper refuses a paying person",
		why:     "an account's own overdue work is expired before it is refused anything",
		says:    `while its own .* is overdue`,
		changes: []change{{"reserve.go", "if refusal != nil && d.expireOverdue() > 0 {", "if refusal != nil && op.DryRun && d.expireOverdue() > 0 {"}},
	},
}
