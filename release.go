package holdfast

import (
	"errors"
	"fmt"
)

// Causes of a release that the product itself gives.
const (
	CauseFailed    = "failed"
	CauseCancelled = "cancelled"
	CauseForced    = "forced"
	CauseCrashed   = "crashed"
	// CauseBudgetExceeded is given by whoever asks a gateway: its own limit is spent while the person's is not. It raises an event
	// for the operator, who has to align the two.
	CauseBudgetExceeded = "gateway_budget_exceeded"
)

// Release ends a reservation and returns everything, with a cause. Its worker may also give a job back to its queue
// instead: see giveBack.
//
// Refuses, in this order: NotFound, Invalid (of giving back), AlreadyEnded, StaleLease. A reservation that was released
// before, by whatever cause, is answered again, and nothing changes.
type Release struct {
	base
	ReservationID ID
	LeaseToken    string
	Cause         string // empty: failed
	// Retry gives the job back for another attempt, and ends it where it has had as many as it may. Cause says why; crashed
	// counts as a crash, every other one as an error.
	Retry bool
	// Unstarted gives a job back that was claimed and never begun: no attempt is counted.
	Unstarted bool
}

// Name is "release".
func (Release) Name() string { return "release" }

func (op Release) reservation() ID { return op.ReservationID }

func (op Release) check(p *problems) {
	p.token("lease_token", op.LeaseToken)
	if op.Cause != "" {
		p.word("cause", op.Cause)
	}
	if op.Retry && op.Unstarted {
		p.add("unstarted", "leave it out with retry: it says that nothing was tried")
	}
}

func (op Release) print(f *printer) {
	f.text("reservation", op.ReservationID.String())
	f.text("cause", op.cause())
	if op.Retry {
		f.text("retry", "")
	}
	if op.Unstarted {
		f.text("unstarted", "")
	}
}

func (op Release) cause() string {
	if op.Cause == "" {
		return CauseFailed
	}
	return op.Cause
}

func (op Release) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok {
		return d.refuse(NotFound)
	}
	if problem := op.cannotGiveBack(r); problem != nil {
		return Outcome{Reason: Invalid, Problems: []Problem{*problem}}
	}
	if !r.Live() {
		return d.releasedBefore(r)
	}
	if !r.leasedTo(op.LeaseToken) {
		return d.refuseWith(StaleLease, r)
	}
	// From here on the command succeeds.
	if op.cause() == CauseBudgetExceeded && (r.State == Running || !op.givesBack()) { // not of what was given back before
		d.tell(Event{ID: namedID(r.ID, fmt.Sprintf("budget exceeded %d", r.Attempts)), Kind: EventBudgetExceeded, Reservation: r.ID})
	}
	if op.givesBack() {
		return d.giveBack(r, op)
	}
	return d.release(r, op.cause(), "")
}

func (d *decision) release(r *Reservation, cause, reason string) Outcome {
	r.State, r.EndedAt, r.Cause = Released, d.now, cause
	settled := d.settle(EntryRelease, r, 0, nil, reason)
	outcome := d.done(r)
	outcome.Settlement = &settled
	return outcome
}

func (d *decision) releasedBefore(r *Reservation) Outcome {
	if r.State == Released {
		return d.unchanged(r)
	}
	return d.refuseWith(AlreadyEnded, r)
}

// Cancel ends a reservation that nobody has started. Once the work runs, the provider has been paid: it may not be
// cancelled (policy deny), or its worker is asked to stop (policy request). Then the reservation stays running; the worker
// learns of it with its next heartbeat and settles it by what was used, and one that does not come back loses it with its
// lease.
//
// Refuses, in this order: NotFound, AlreadyEnded, AlreadyRunning.
type Cancel struct {
	base
	ReservationID ID
}

// Name is "cancel".
func (Cancel) Name() string { return "cancel" }

func (op Cancel) reservation() ID { return op.ReservationID }

func (op Cancel) print(f *printer) { f.text("reservation", op.ReservationID.String()) }

func (op Cancel) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok {
		return d.refuse(NotFound)
	}
	if !r.Live() {
		return d.releasedBefore(r)
	}
	if r.State == Running && (r.InDoubt || r.Policies.CancelRunning != CancelRequest) {
		return d.refuseWith(AlreadyRunning, r)
	}
	// From here on the command succeeds.
	if r.State == Running {
		return d.requestCancel(r)
	}
	return d.release(r, CauseCancelled, "")
}

func (d *decision) requestCancel(r *Reservation) Outcome {
	changed := r.CancelRequestedAt.IsZero()
	if changed {
		r.CancelRequestedAt = d.now
		// Nobody tries again: the sweeper may come when the worker is gone, and no later than it might have.
		r.ExpiresAt = earliest(r.ExpiresAt, latest(r.LeaseExpiresAt, d.now))
		d.state.touchReservation(r)
		d.tell(Event{ID: namedID(r.ID, "cancel requested"), Kind: EventCancelRequested, Reservation: r.ID})
	}
	outcome := d.done(r)
	outcome.Changed = changed
	return outcome
}

// Force ends a stuck reservation without its lease: an operator's act, recorded with who and why.
//
// Refuses, in this order: NotFound, AlreadyEnded.
type Force struct {
	base
	ReservationID ID
	End           Ending
	Amount        *Amount // of a commit, 0 to what is reserved
	Reason        string
}

// Ending is how Force ends a reservation.
type Ending string

// The endings that can be forced.
const (
	EndRelease Ending = "release"
	EndCommit  Ending = "commit"
)

// Name is "force".
func (Force) Name() string { return "force" }

func (op Force) reservation() ID { return op.ReservationID }

func (op Force) check(p *problems) {
	switch {
	case op.End != EndRelease && op.End != EndCommit:
		p.add("end", "use release or commit")
	case op.End == EndCommit && op.Amount == nil:
		p.add("amount", "say how much to charge, from 0 to what is reserved")
	case op.End == EndRelease && op.Amount != nil && *op.Amount != 0:
		p.add("amount", "a release charges nothing: leave the amount out, or use 0")
	default:
		p.notNegative("amount", op.Amount)
	}
	p.sentence("reason", op.Reason, true)
}

func (op Force) print(f *printer) {
	f.text("reservation", op.ReservationID.String())
	f.text("end", string(op.End))
	if op.End == EndCommit {
		f.optional("amount", op.Amount)
	}
}

func (op Force) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	switch {
	case !ok:
		return d.refuse(NotFound)
	case op.End == EndCommit && *op.Amount > r.Reserved:
		return invalid("amount", "use at most what is reserved")
	case !r.Live() && op.End == EndRelease:
		return d.releasedBefore(r)
	case r.State == Committed && *op.Amount == r.Used+r.Debt+r.Unbilled:
		return d.unchanged(r)
	case !r.Live():
		return d.refuseWith(AlreadyEnded, r)
	case op.End == EndRelease:
		return d.release(r, CauseForced, op.Reason)
	}
	return d.commit(r, *op.Amount, op.Reason)
}

// Detached is what a function given to the engine's Run returns when it has handed the work to somebody else: the
// reservation stays live, and whoever took it over ends it.
var Detached = errors.New("the work goes on elsewhere")
