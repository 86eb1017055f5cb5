package holdfast

import "time"

// Start gives a worker the right to finish a reservation: a lease with a fresh token. A reservation whose lease has
// lapsed can be started again; the old token is then stale for everything.
//
// Refuses, in this order: NotFound, AlreadyEnded (also where it has been held as long as it may be, and expires with this
// command, or was a job's last attempt, and is released with it), AlreadyRunning (of a claim also where the job is not
// claimable yet).
type Start struct {
	base
	ReservationID ID
	Worker        string
	Lease         time.Duration // 0: DefaultLease
	Token         string        // random; the engine makes it, the same for every attempt
	// Claimed says that the job was found in its queue, as the engine's Claim does: what it was found by may be old, so
	// here is looked again whether it can be claimed. Whoever starts by the reservation's id need not wait for a delay.
	Claimed bool
}

// Name is "start".
func (Start) Name() string { return "start" }

func (op Start) reservation() ID { return op.ReservationID }

func (op Start) check(p *problems) {
	p.text("worker", op.Worker, MaxWorkerBytes)
	p.duration("lease_seconds", op.Lease, MinLease, MaxLease)
	assert(op.Token != "" && len(op.Token) <= MaxTokenBytes, "the engine makes a token")
}

func (op Start) print(f *printer) { f.text("reservation", op.ReservationID.String()) }

func (op Start) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok {
		return d.refuse(NotFound)
	}
	if !r.Live() {
		return d.refuseWith(AlreadyEnded, r)
	}
	if r.State == Running && r.LeaseToken == op.Token {
		return d.leased(r) // its own retry, after a commit in doubt
	}
	if r.State == Running && (r.InDoubt || d.now.Before(r.LeaseExpiresAt)) || op.Claimed && d.now.Before(r.ClaimableAt()) {
		return d.refuseWith(AlreadyRunning, r)
	}
	if d.outlived(r) || d.crashed(r) {
		return d.refuseWith(AlreadyEnded, r)
	}
	// From here on the command succeeds.
	d.leftQueue(r)
	r.State = Running
	r.Worker, r.LeaseToken = op.Worker, op.Token
	r.Attempts++
	r.openAttempt(d.now)
	r.moveExpiry(d.now.Add(r.TTL)) // waiting in the queue does not eat the job's time
	r.lease(d.now, leaseLength(op.Lease))
	d.state.touchReservation(r)
	return d.leased(r)
}

// outlived ends a reservation that has been held as long as it may be: a lease on it would have lapsed before it began,
// and two workers could hold one each. It also ends one whose worker was asked to stop and is gone: nobody tries again.
func (d *decision) outlived(r *Reservation) bool {
	abandoned := !r.CancelRequestedAt.IsZero() && !d.now.Before(r.LeaseExpiresAt)
	if d.now.Before(r.HeldUntil()) && !abandoned {
		return false
	}
	d.expire(r)
	return true
}

func leaseLength(asked time.Duration) time.Duration {
	if asked == 0 {
		return DefaultLease
	}
	return asked
}

func (d *decision) leased(r *Reservation) Outcome {
	shown := r.clone()
	return Outcome{Changed: true, Reservation: &shown, Lease: &Lease{Token: r.LeaseToken, ExpiresAt: r.LeaseExpiresAt}}
}

// Heartbeat says that the worker lives, and moves its lease.
//
// Refuses, in this order: NotFound, AlreadyEnded (as Start does), StaleLease.
type Heartbeat struct {
	base
	ReservationID ID
	LeaseToken    string
	Lease         time.Duration // 0: DefaultLease
}

// Name is "heartbeat".
func (Heartbeat) Name() string { return "heartbeat" }

func (op Heartbeat) reservation() ID { return op.ReservationID }

func (op Heartbeat) check(p *problems) {
	p.token("lease_token", op.LeaseToken)
	p.duration("lease_seconds", op.Lease, MinLease, MaxLease)
}

func (op Heartbeat) print(f *printer) { f.text("reservation", op.ReservationID.String()) }

func (op Heartbeat) decide(d *decision) Outcome {
	r, ok := d.state.Reservation(op.ReservationID)
	if !ok {
		return d.refuse(NotFound)
	}
	if !r.Live() {
		return d.refuseWith(AlreadyEnded, r)
	}
	if r.State != Running || r.LeaseToken != op.LeaseToken {
		return d.refuseWith(StaleLease, r)
	}
	if d.outlived(r) {
		return d.refuseWith(AlreadyEnded, r)
	}
	// From here on the command succeeds.
	length := leaseLength(op.Lease)
	r.moveExpiry(d.now.Add(length)) // a worker that lives keeps its reservation
	r.lease(d.now, length)
	d.state.touchReservation(r)
	return d.leased(r)
}
