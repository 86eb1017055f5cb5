package holdfast

import "time"

// decision is one command being decided: everything it may look at, nothing else.
type decision struct {
	catalog     *Catalog
	state       *State
	command     Command
	now         time.Time
	plan        *Plan
	revocations []Revocation // to be done where this account was merged into
	ids         int          // how many ids the command has given out
}

// Decide applies a command to the state and says what came of it. The state's Changes are then to be saved, also where
// the outcome is a refusal: it is recorded under the command's key, and time may have done its part.
//
// The order: shape → replay → existence → state → rights → balance → limits → changes. Decide never reads a clock; a
// now before the account's last decision counts as that one. It panics on broken assertions, and then the state must be
// thrown away.
func Decide(catalog *Catalog, state *State, command Command, now time.Time) Outcome {
	outcome := decide(catalog, state, command, now)
	if a := &state.Account; a.Project == command.Project {
		outcome.Owner = Owner{ID: a.ID, Name: a.Name, Language: a.Language, TimeZone: a.TimeZone, Merged: !a.MergedInto.IsZero()}
	}
	return outcome
}

func decide(catalog *Catalog, state *State, command Command, now time.Time) Outcome {
	if found := command.Check(); len(found) > 0 {
		return Outcome{Reason: Invalid, Problems: found}
	}
	dryRun := IsDryRun(command.Do)
	if dryRun {
		state = state.Clone() // a question changes nothing
	}
	d := newDecision(catalog, state, command, now)
	if state.Account.Project != command.Project {
		return Outcome{Reason: NotFound} // before anything recorded is looked at: a project is the border of isolation
	}
	print := command.Fingerprint()
	answer, known := state.Answer(command.Key)
	known = known && command.Key != "" && !dryRun
	if known && answer.Fingerprint == print && !(command.RetryRefused && answer.Outcome.Refused()) {
		return answer.repeat(command.ID)
	}
	var p problems
	command.Do.checkCatalog(catalog, &p)
	if len(p.list) > 0 {
		return Outcome{Reason: Invalid, Problems: p.list}
	}
	if known && answer.Fingerprint != print {
		return Outcome{Reason: KeyReused}
	}
	if !OpensAccount(command.Do) && !dryRun && !state.Exists() {
		return Outcome{Reason: NotFound}
	}
	if d.leadsOn() {
		return Outcome{Redirect: state.Account.MergedInto}
	}
	switch op := command.Do.(type) {
	case PutAccount:
		op.meet(d)
	case Pay: // before time is applied: what is malformed creates no account
		if problem := op.checkPeriod(d); problem != nil {
			return Outcome{Reason: Invalid, Problems: []Problem{*problem}}
		}
	}
	if _, alias := command.Do.(LinkAlias); !alias { // which holds nothing
		d.advance()
	}
	outcome := d.do(command.Do)
	if !state.Account.MergedInto.IsZero() {
		d.moveOut()
	}
	if !outcome.Again && command.Key != "" && !dryRun && outcome.Reason.Recorded() {
		d.open()
		state.record(&Answer{Key: command.Key, Fingerprint: print, Command: command.ID, Outcome: outcome, RecordedAt: d.now})
	}
	if state.dirty.any() {
		state.Account.DecidedAt = d.now
	}
	return outcome
}

// do decides the operation. An account that was deleted is given nothing more.
func (d *decision) do(op Operation) Outcome {
	if d.deleted() && addsTo(op) {
		return Outcome{Reason: AccountBlocked, Refusal: &Refusal{Active: d.state.Account.Active, MaxActive: d.plan.MaxActive, Plan: d.plan.Name}}
	}
	return op.decide(d)
}

func (d *decision) deleted() bool { return !d.state.Account.DeletedAt.IsZero() }

// addsTo reports whether the operation gives an account something or changes what it is: a deleted one stays as it is.
func addsTo(op Operation) bool {
	switch op.(type) {
	case PutAccount, SetPlan, AddGrant, Adjust:
		return true
	}
	return false
}

func newDecision(catalog *Catalog, state *State, command Command, now time.Time) *decision {
	d := &decision{catalog: catalog, state: state, command: command, now: latest(now, state.Account.DecidedAt)}
	d.plan = catalog.PlanOf(&state.Account)
	return d
}

// repeat is a recorded answer told again. The command's own retry, after a commit in doubt, is no replay.
func (a *Answer) repeat(command ID) Outcome {
	outcome := a.Outcome
	outcome.Replayed = a.Command != command
	return outcome
}

// open makes an unknown account known.
func (d *decision) open() {
	account := &d.state.Account
	if account.CreatedAt.IsZero() {
		account.CreatedAt = d.now
	}
	d.state.touchAccount()
}

// newID is the next id that follows from the command's.
func (d *decision) newID() ID {
	d.ids++
	return d.command.ID.Child(d.ids)
}

// tell adds an outbox row. Its id follows from the fact and not from the command, so that no fact is told twice and none
// is dropped for another, however often a command is decided.
func (d *decision) tell(e Event) {
	assert(!e.ID.IsZero(), "an event has an id")
	e.At = d.now
	d.state.dirty.events = append(d.state.dirty.events, e)
}

func (d *decision) refuse(reason Reason) Outcome { return Outcome{Reason: reason} }

// refuseWith refuses and shows the reservation as it is.
func (d *decision) refuseWith(reason Reason, r *Reservation) Outcome {
	shown := r.clone()
	return Outcome{Reason: reason, Reservation: &shown}
}

// done answers a command about a reservation.
func (d *decision) done(r *Reservation) Outcome {
	shown := r.clone()
	return Outcome{Changed: true, Reservation: &shown, Balance: d.balance(r.Price.Unit)}
}
