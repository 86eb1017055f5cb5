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
		changes: []change{{"commit.go", "r.Voided = d.voidDoomed() + d.voidReturned()", "r.Voided = d.voidDoomed()"}},
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
	{
		name:    "doubt keeps its slot",
		why:     "work in doubt is done by nobody; its slot is somebody else's",
		says:    `active reservations`,
		changes: []change{{"doubt.go", "		d.freeSlot()\n", ""}},
	},
	{
		name:    "slot of a doubt freed again at its end",
		why:     "the slot was freed with the mark; freed twice, the plan's limit is one higher for ever",
		says:    `a slot is freed once|active reservations`,
		changes: []change{{"commit.go", "if !doubted {", "if !doubted || doubted {"}},
	},
	{
		name:    "doubt started again",
		why:     "the provider may have worked; a second start is a second paid call",
		says:    `in doubt, and was started again`,
		changes: []change{{"start.go", "(r.InDoubt || d.now.Before(r.LeaseExpiresAt))", "d.now.Before(r.LeaseExpiresAt)"}},
	},
	{
		name:    "any token settles a doubt",
		why:     "whoever learns how it ended may say so without a token; a token that is not the last one is a worker's that lost it",
		says:    `may not: its token is`,
		changes: []change{{"reservation.go", `r.InDoubt && token == ""`, `r.InDoubt`}},
	},
	{
		name:    "doubt to be charged is released",
		why:     "the feature's policy says what happens to it, not the sweeper",
		says:    `is to be charged then, and expired`,
		changes: []change{{"expire.go", "case r.InDoubt && r.Policies.InDoubt == DoubtCharge:", "case r.InDoubt && r.Policies.InDoubt == DoubtCharge && r.Reserved == 0:"}},
	},
	{
		name:    "extend charges pockets of other features",
		why:     "what is available to the feature is all that an overrun may take",
		says:    `which is for .* only|is available`,
		changes: []change{{"commit.go", "extra, over = d.allocate(d.pockets(r.Price.Unit, r.Feature), over)", `extra, over = d.allocate(d.pockets(r.Price.Unit, ""), over)`}},
	},
	{
		name:    "extend becomes debt",
		why:     "what is not there is owed only where the feature says so",
		says:    `may not owe anything|it should be 0, with|do not fit its policy`,
		changes: []change{{"commit.go", "if policy == OverrunDebt {", "if policy != OverrunCap {"}},
	},
	{
		name:    "debt beyond its limit",
		why:     "the plan says how much may be owed in all, not by each piece of work",
		says:    `it should be \d+, with \d+ owed before`,
		changes: []change{{"debt.go", "d.plan.DebtLimits[unit]-d.state.Account.Debts[unit]", "d.plan.DebtLimits[unit]"}},
	},
	{
		name:    "present repays a debt",
		why:     "a debt is repaid by what was paid for; a promotion is for something new",
		says:    `and repays \d+; it should be|repaid \d+ from grant`,
		changes: []change{{"grant.go", "if g.Source == FromPurchase {", "if g.Source == FromPurchase || g.Source == FromPromo {"}},
	},
	{
		name:    "refund gives a debt back twice",
		why:     "what is forgiven is given back already; only what was repaid meanwhile comes back as a pocket",
		says:    `a pocket of \d+ was opened`,
		changes: []change{{"refund.go", "correction := owed - forgiven", "correction := owed"}},
	},
	{
		name:    "rollover beyond its cap",
		why:     "what comes back after a cycle's end is carried over up to the same cap, not up to another one",
		says:    `was carried over, \d+ by what the cycle says`,
		changes: []change{{"advance.go", "a.Rollover-g.Rolled)", "a.Rollover)"}},
	},
	{
		name: "day given twice after a change of zone",
		why:  "whoever moves to another zone would get the day's allowance again",
		says: `is given day_image from`,
		changes: []change{
			{"period.go", "		if end = latest(end, d.now); !end.Equal(g.EndsAt) {", "		if end = latest(end, d.now); false {"},
			{"advance.go", "start = latest(start, d.state.lastEnd(a, d.now))", "start = latest(start, time.Time{})"},
		},
	},
	{
		name:    "stopped work committed without a figure",
		why:     "it was stopped in the middle: all that was reserved is not what was used",
		says:    `does not say how much`,
		changes: []change{{"commit.go", "	case asked:", "	case false:"}},
	},
	{
		name:    "stopped work tried again",
		why:     "nobody wants it any more; a worker that dies after the request is the last one",
		says:    `was asked to stop, and was tried again`,
		changes: []change{{"start.go", "abandoned := !r.CancelRequestedAt.IsZero() && !d.now.Before(r.LeaseExpiresAt)", "abandoned := false"}},
	},
	{
		name:    "stopped work expires",
		why:     "it ends as what it is, cancelled",
		says:    `was asked to stop, and expired`,
		changes: []change{{"expire.go", "case !r.CancelRequestedAt.IsZero():", "case !r.CancelRequestedAt.IsZero() && r.Reserved == 0:"}},
	},
	{
		name:    "absorbed late commit charged",
		why:     "the feature says that what comes too late costs nothing",
		says:    `is to be absorbed, and is charged`,
		changes: []change{{"commit.go", "if r.Policies.LateCommit != LateAbsorb {", "if true {"}},
	},
	{
		name:    "refused growth grows",
		why:     "an extension that is refused leaves the reservation as it was",
		says:    `out of service`,
		changes: []change{{"extend.go", "	if more := needed - r.Reserved; more > 0 {\n", "	if more := needed - r.Reserved; more > 0 {\n		r.Reserved = needed\n"}},
	},
	{
		name:    "deleted account gets its cycles",
		why:     "nobody is given anything for an account that is no more",
		says:    `was deleted at .*, and is given`,
		changes: []change{{"advance.go", "	if !d.deleted() {\n		d.openCycles()", "	if true {\n		d.openCycles()"}},
	},
}
