package sim_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

const longestHold = holdfast.HoldFactor * 30 * time.Second

// who are the accounts: two of one project are busy, one is seldom asked for, and one has its namesake's name elsewhere.
var who = []struct{ project, name string }{{"p", "ann"}, {"p", "bob"}, {"p", "cid"}, {"q", "ann"}}

func (w *world) accountName(id holdfast.AccountID) string {
	for _, a := range who {
		if holdfast.AccountIDOf(a.project, a.name) == id {
			return a.project + "/" + a.name
		}
	}
	return id.String()
}

// intention is what somebody wants: one key, one request, however often it is sent.
type intention struct {
	number        int
	project, name string
	key           string
	do            holdfast.Operation
	retryRefused  bool
	byTarget      bool // the account is named by its id, as by a reservation's public id
	sent          []*call
}

func (i *intention) account() holdfast.AccountID { return holdfast.AccountIDOf(i.project, i.name) }

// fate is what is known of one command, however often it was submitted.
type fate struct {
	intention *intention
	submitted int
	nothing   int  // submissions that were told that nothing happened
	happened  bool // something of it was saved
	lied      bool // the store told its engine that nothing happened, and it had
}

// call is one submission.
type call struct {
	number    int
	process   *process
	intention *intention
	command   holdfast.Command
	fate      *fate
	leave     context.CancelFunc
	left      bool
	// What was stored when it was submitted.
	existed, stood bool

	answered bool // guarded by world.mu, as what follows
	outcome  holdfast.Outcome
	err      error
}

// String is how the trace names the call.
func (c *call) String() string { return fmt.Sprintf("call %d", c.number) }

// work is a reservation that was saved.
type work struct {
	id      holdfast.ID
	account holdfast.AccountID
	tokens  []string // given out, in order
}

// act takes one step.
func (w *world) act() {
	asks := w.asks()
	var up []*place
	for _, p := range w.places {
		if p.process.dead {
			if w.chance(15) || len(asks) == 0 && w.chance(50) {
				w.start(p)
				return
			}
			continue
		}
		up = append(up, p)
	}
	dice := w.random.IntN(1000)
	less := func(share int) bool {
		dice -= share
		return dice < 0
	}
	switch {
	case len(asks) > 0 && less(600):
		w.release(pick(w, asks))
	case w.unsettled() != nil && less(60):
		w.settleOne()
	case len(up) > 0 && less(200):
		w.call(pick(w, up))
	case less(60):
		w.wait()
	case len(up) > 0 && less(25):
		w.sweep(pick(w, up))
	case len(w.open) > 0 && less(20):
		c := pick(w, w.open)
		w.note("the caller of %s leaves", c)
		c.left = true
		c.leave()
	case len(up) > 0 && less(12):
		p := pick(w, up)
		w.note("server %s is killed", p.name)
		p.process.store.Crash()
	case len(up) > 0 && less(6):
		p := pick(w, up)
		w.note("server %s is told to stop", p.name)
		p.process.stopping = true
		p.process.stop()
	case less(10):
		p := pick(w, w.places)
		p.outage = !p.outage && w.chance(40) // it comes back sooner than it goes
		w.note("server %s: database away %v", p.name, p.outage)
	case len(up) > 0 && w.chance(60):
		w.call(pick(w, up))
	default: // everybody pauses, or has nothing to do
		w.pass(w.upTo(20 * time.Millisecond))
	}
}

// unsettled is a process that died or lost its connection with a commit on its way.
func (w *world) unsettled() []func(commit bool) error {
	var found []func(bool) error
	stores := slices.Clone(w.past)
	for _, p := range w.places {
		if p.process != nil && !p.process.dead {
			stores = append(stores, p.process.store)
		}
	}
	for _, s := range stores {
		if s.Unsettled() > 0 {
			found = append(found, func(commit bool) error { return s.Settle(context.Background(), commit) })
		}
	}
	return found
}

func (w *world) settleOne() {
	commit := w.chance(70)
	err := pick(w, w.unsettled())(commit)
	w.note("the database ends a commit that was on its way: committed %v, %v", commit, err)
}

// wait lets time pass: often hardly any, sometimes until just before, at or after an instant that something turns on.
func (w *world) wait() {
	var d time.Duration
	dice := w.random.IntN(100)
	if w.hurry && w.chance(80) {
		dice = 0
	}
	switch {
	case dice < 60:
		d = w.upTo(50 * time.Millisecond)
	case dice < 78:
		d = w.upTo(2 * time.Second)
	case dice < 96:
		p := pick(w, w.places)
		if instants := w.instants(w.now(p), soon); len(instants) > 0 {
			at := instants[w.random.IntN(min(3, len(instants)))].Add(time.Duration(w.random.IntN(3)-1) * time.Microsecond)
			d = max(0, at.Sub(w.now(p)))
			w.note("it will be %s for server %s", at.Sub(genesis), p.name)
			w.pass(d)
			if !p.process.dead && w.chance(60) {
				synctest.Wait()
				w.sweep(p)
			}
			return
		}
	case dice < 97:
		d = w.upTo(60 * time.Second)
	default: // until a day ends, or a month
		p := pick(w, w.places)
		if instants := w.instants(w.now(p), 400*24*time.Hour); len(instants) > 0 {
			d = max(0, pick(w, instants).Sub(w.now(p)))
		}
	}
	w.note("%s pass", d)
	w.pass(d)
}

// soon is how far ahead an instant may lie for somebody to wait for it; for what ends in days, time passes seldom.
const soon = 3 * time.Minute

// instants are the times ahead, up to that far, at which something begins or ends, in order.
func (w *world) instants(now time.Time, ahead time.Duration) []time.Time {
	var all []time.Time
	for _, a := range who {
		seen := w.accounts[holdfast.AccountIDOf(a.project, a.name)]
		if seen == nil {
			continue
		}
		for _, r := range seen.reservations {
			if r.Live() {
				all = append(all, r.ExpiresAt, r.LeaseExpiresAt)
			}
		}
		for _, g := range seen.grants {
			if g.Open {
				all = append(all, g.StartsAt, g.EndsAt)
			}
		}
	}
	all = slices.DeleteFunc(all, func(at time.Time) bool { return at.Before(now) || at.After(now.Add(ahead)) })
	slices.SortFunc(all, time.Time.Compare)
	return slices.CompactFunc(all, time.Time.Equal)
}

// sweep calls a server's Sweep, once at a time.
func (w *world) sweep(p *place) {
	process := p.process
	w.mu.Lock()
	busy := process.sweeping
	process.sweeping = true
	w.mu.Unlock()
	if busy {
		return
	}
	w.note("server %s is told to sweep", p.name)
	go func() {
		_ = process.engine.Sweep(context.WithValue(context.Background(), explicit{}, true)) // an accident: the schedule tries again
		w.mu.Lock()
		process.sweeping = false
		w.mu.Unlock()
	}()
}

// call submits something new, or once more what was submitted before.
func (w *world) call(p *place) {
	if len(w.intentions) > 0 && w.chance(30) {
		recent := w.intentions[max(0, len(w.intentions)-12):]
		w.repeat(p, pick(w, recent))
		return
	}
	a := who[[]int{0, 0, 0, 0, 1, 1, 2, 3}[w.random.IntN(8)]]
	i := &intention{number: len(w.intentions) + 1, project: a.project, name: a.name}
	i.do = w.operation(i)
	dry := holdfast.IsDryRun(i.do)
	if needsKey(i.do) && !dry || !dry && w.chance(25) {
		i.key = fmt.Sprint("k", i.number)
		if w.chance(20) { // a key that others use too, for the same and for other requests
			i.key = fmt.Sprint("shared", w.random.IntN(6))
		}
	}
	i.byTarget = w.chance(40)
	i.retryRefused = w.chance(5)
	if w.chance(2) && !holdfast.OpensAccount(i.do) {
		i.project, i.byTarget = "stranger", true
	}
	w.intentions = append(w.intentions, i)
	w.submit(p, i, w.newID())
}

func needsKey(op holdfast.Operation) bool {
	switch op.(type) {
	case holdfast.Reserve, holdfast.Charge, holdfast.AddGrant, holdfast.Adjust, holdfast.Refund:
		return true
	}
	return false
}

// repeat sends an intention again: the same command where the library repeats it, a new one where its sender does.
func (w *world) repeat(p *place, i *intention) {
	last := i.sent[len(i.sent)-1]
	id := w.newID()
	if !slices.Contains(w.open, last) && w.chance(30) {
		id = last.command.ID
		w.submit(p, i, id)
		return
	}
	if start, ok := i.do.(holdfast.Start); ok {
		start.Token = w.token()
		i.do = start
	}
	w.submit(p, i, id)
}

// newID is a command's id as the engine makes them, but from the clock and the count of this world.
func (w *world) newID() (id holdfast.ID) {
	w.commands++
	binary.BigEndian.PutUint64(id[:8], uint64(w.clock.UnixMilli())<<16|0x7000)
	binary.BigEndian.PutUint32(id[8:], uint32(w.commands))
	id[8] |= 0x80
	return id
}

func (w *world) token() string {
	w.commands++
	return fmt.Sprint("token", w.commands)
}

func (w *world) submit(p *place, i *intention, id holdfast.ID) {
	f := w.fates[id]
	if f == nil {
		f = &fate{intention: i}
		w.fates[id] = f
		w.actors[actor(id)] = f
	}
	f.submitted++
	w.calls++
	c := &call{number: w.calls, process: p.process, intention: i, fate: f}
	c.command = holdfast.Command{ID: id, Project: i.project, Key: i.key, RetryRefused: i.retryRefused, Actor: actor(id), Do: i.do}
	target := holdfast.AccountIDOf(i.project, i.name)
	if i.project == "stranger" {
		target = holdfast.AccountIDOf("p", i.name)
	}
	if i.byTarget && !holdfast.OpensAccount(i.do) {
		c.command.Target = target
	} else {
		c.command.Account = i.name
	}
	if seen := w.accounts[target]; seen != nil {
		c.existed = true
		_, c.stood = seen.reservations[holdfast.ReservationOf(i.do)]
	}
	if start, ok := i.do.(holdfast.Start); ok {
		w.starts[start.Token] = f
	}
	i.sent = append(i.sent, c)
	w.open = append(w.open, c)
	w.note("%s to server %s for %s: %s", c, p.name, w.accountName(target), w.describe(&c.command))
	ctx, leave := context.WithCancel(context.Background())
	c.leave = leave
	go func() {
		outcome, err := c.process.engine.Submit(ctx, c.command)
		w.mu.Lock()
		defer w.mu.Unlock()
		c.answered, c.outcome, c.err = true, outcome, err
	}()
}

func actor(id holdfast.ID) string { return "caller " + id.String() }

// operation is something that somebody may want of the account now.
func (w *world) operation(i *intention) holdfast.Operation {
	dice := w.random.IntN(100)
	less := func(share int) bool {
		dice -= share
		return dice < 0
	}
	switch {
	case i.number > 30 && (i.project == "q" || i.name == "cid") && w.chance(3):
		return holdfast.DeleteAccount{}
	case w.owes(i.account()) && w.chance(12):
		return holdfast.AddGrant{Unit: "credit", Amount: holdfast.Amount(1 + w.random.IntN(8)), Source: holdfast.FromPurchase}
	case less(28):
		return w.reserve()
	case less(4):
		charge := holdfast.Charge{Reserve: w.reserve()}
		if w.chance(50) {
			charge.Amount = amount(w.random.IntN(40))
		}
		return charge
	case less(6):
		grant := holdfast.AddGrant{
			Unit: pick(w, []string{"credit", "credit", "image"}), Amount: holdfast.Amount(1 + w.random.IntN(8)),
			Source: pick(w, []holdfast.Source{holdfast.FromPromo, holdfast.FromPurchase, holdfast.FromCorrection}),
		}
		if w.chance(15) {
			grant.StartsAt = w.clock.Add(w.upTo(10 * time.Second))
		}
		if w.chance(60) {
			grant.EndsAt = w.clock.Add(10*time.Second + w.upTo(30*time.Second))
		}
		if w.chance(20) {
			grant.Features = []string{"text"}
		}
		return grant
	case less(3):
		return holdfast.Adjust{Unit: "credit", Amount: pick(w, []holdfast.Amount{-5, -2, -1, 1, 3, 6}), Reason: "correction"}
	case less(3):
		return holdfast.SetPlan{Plan: pick(w, []string{"free", "pro", "pro", "club", "club", "mini"})}
	case less(3):
		if w.chance(50) {
			zone := pick(w, zones)
			return holdfast.PutAccount{TimeZone: &zone}
		}
		blocked, notices := w.chance(20), w.chance(50)
		return holdfast.PutAccount{Blocked: &blocked, Notices: &notices}
	}
	r := w.someWork(i)
	if r == nil {
		return holdfast.Reserve{Feature: "text"}
	}
	token := ""
	if len(r.tokens) > 0 && !w.chance(5) {
		token = r.tokens[len(r.tokens)-1]
		if w.chance(15) { // a worker that is late
			token = pick(w, r.tokens)
		}
	}
	now := w.accounts[r.account].reservations[r.id]
	switch asked := !now.CancelRequestedAt.IsZero(); {
	case now.InDoubt && w.chance(50): // anybody may say how it ended
		token = ""
	case now.InDoubt && w.chance(20):
		token = "a guess"
	case asked && now.Live() && w.chance(40):
		return holdfast.Start{ReservationID: r.id, Worker: "w", Token: w.token()}
	case !asked && now.State == holdfast.Running && now.Policies.CancelRunning == holdfast.CancelRequest && w.chance(20):
		return holdfast.Cancel{ReservationID: r.id}
	}
	// What there is to do differs once a worker has begun.
	weights := []int{46, 3, 12, 7, 9, 4, 10, 8, 1}
	if len(r.tokens) > 0 {
		weights = []int{8, 15, 22, 6, 14, 4, 10, 6, 15}
	}
	dice = w.random.IntN(100)
	switch {
	case less(weights[0]):
		return holdfast.Start{ReservationID: r.id, Worker: "w", Lease: 5*time.Second + w.upTo(5*time.Second), Token: w.token()}
	case less(weights[1]):
		return holdfast.Heartbeat{ReservationID: r.id, LeaseToken: token, Lease: 5*time.Second + w.upTo(10*time.Second)}
	case less(weights[2]):
		commit := holdfast.Commit{ReservationID: r.id, LeaseToken: token}
		switch dice := w.random.IntN(100); {
		case dice < 25:
			commit.Amount = amount(w.random.IntN(9))
		case dice < 50 && !now.Price.ByUsage():
			commit.Quantity = amount(w.random.IntN(3))
		case now.Price.ByUsage() && dice < 95, dice < 55:
			commit.Usage = w.usage(30, 24)
			if w.chance(60) { // far beyond what anybody had thought
				commit.Usage["out"] += 60
			}
		}
		return commit
	case less(weights[3]):
		return holdfast.Release{ReservationID: r.id, LeaseToken: token, Cause: pick(w, []string{"", "failed", "provider_unavailable"})}
	case less(weights[4]):
		return holdfast.Cancel{ReservationID: r.id}
	case less(weights[7]):
		extend := holdfast.Extend{ReservationID: r.id, LeaseToken: token}
		if w.chance(50) {
			extend.TTL = time.Second + w.upTo(30*time.Second)
		}
		switch {
		case extend.TTL > 0 && w.chance(40):
		case now.Price.ByUsage():
			extend.Usage = w.usage(40, 20)
		default:
			extend.Quantity = amount(1 + w.random.IntN(4))
		}
		return extend
	case less(weights[8]):
		return holdfast.InDoubt{ReservationID: r.id, LeaseToken: token}
	case less(weights[5]):
		force := holdfast.Force{ReservationID: r.id, End: holdfast.EndRelease, Reason: "stuck"}
		if w.chance(50) {
			force.End, force.Amount = holdfast.EndCommit, amount(w.random.IntN(6))
		}
		return force
	default:
		if charged := w.charged(r.account); len(charged) > 0 && w.chance(85) {
			r = pick(w, charged)
			owing := slices.IndexFunc(charged, func(k *work) bool { return w.accounts[k.account].reservations[k.id].Debt > 0 })
			if owing >= 0 && w.chance(60) {
				r = charged[owing]
			}
		}
		refund := holdfast.Refund{ReservationID: r.id, Reason: "bad picture"}
		if w.chance(60) {
			refund.Amount = amount(1 + w.random.IntN(4))
		}
		if w.chance(30) {
			refund.Ended = holdfast.EndedCorrection
		}
		return refund
	}
}

func (w *world) owes(account holdfast.AccountID) bool {
	seen := w.accounts[account]
	return seen != nil && len(seen.row.Debts) > 0
}

// reserve asks for something, in all the ways in which it can be asked for.
func (w *world) reserve() holdfast.Reserve {
	reserve := holdfast.Reserve{Feature: pick(w, []string{"draw", "text", "text", "chat", "loan", "loan"}), DryRun: w.chance(6)}
	switch feature, _ := tariff.Feature(reserve.Feature); {
	case feature.ByUsage():
		reserve.Usage = w.usage(20, 12)
	case w.chance(40):
		reserve.Quantity = holdfast.Amount(1 + w.random.IntN(5))
	}
	if w.chance(10) {
		reserve.Surface = "slow"
	}
	if w.chance(20) {
		reserve.TTL = time.Second + w.upTo(20*time.Second)
	}
	return reserve
}

// usage is some, up to so much in and so much out, and seldom of a kind that has no rate.
func (w *world) usage(in, out int) map[string]holdfast.Amount {
	usage := map[string]holdfast.Amount{"in": holdfast.Amount(w.random.IntN(in + 1)), "out": holdfast.Amount(w.random.IntN(out + 1))}
	if w.chance(10) {
		usage["seconds"] = 3
	}
	return usage
}

// charged are the newest reservations that something was paid for.
func (w *world) charged(account holdfast.AccountID) []*work {
	var found []*work
	for _, k := range w.known[account] {
		if w.accounts[account].reservations[k.id].Charged()+w.accounts[account].reservations[k.id].Debt > 0 {
			found = append(found, k)
		}
	}
	return found[max(0, len(found)-4):]
}

func amount(n int) *holdfast.Amount {
	a := holdfast.Amount(n)
	return &a
}

// someWork is a reservation of the account, mostly a live or a recent one, seldom another account's.
func (w *world) someWork(i *intention) *work {
	account := i.account()
	if w.chance(4) {
		a := pick(w, who)
		account = holdfast.AccountIDOf(a.project, a.name)
	}
	known := w.known[account]
	if len(known) == 0 {
		return nil
	}
	if w.chance(75) {
		live := slices.DeleteFunc(slices.Clone(known), func(k *work) bool { return !w.accounts[account].reservations[k.id].Live() })
		if len(live) > 0 {
			return pick(w, live)
		}
	}
	return pick(w, known[max(0, len(known)-6):])
}

// describe is a command as the trace tells it.
func (w *world) describe(c *holdfast.Command) string {
	text := c.Do.Name()
	if id := holdfast.ReservationOf(c.Do); !id.IsZero() {
		text += " " + w.name(id, "r")
	}
	switch do := c.Do.(type) {
	case holdfast.Reserve:
		text += describeReserve(do)
	case holdfast.Charge:
		text += describeReserve(do.Reserve) + ", used " + figure(do.Amount, nil, nil)
	case holdfast.AddGrant:
		text += fmt.Sprintf(" %d %s as %s from %s to %s for %v", do.Amount, do.Unit, do.Source, since(do.StartsAt), since(do.EndsAt), do.Features)
	case holdfast.Adjust:
		text += fmt.Sprint(" by ", do.Amount)
	case holdfast.SetPlan:
		text += " " + do.Plan
	case holdfast.PutAccount:
		text += fmt.Sprint(" blocked ", do.Blocked != nil && *do.Blocked)
		if do.TimeZone != nil {
			text += fmt.Sprintf(" zone %q", *do.TimeZone)
		}
	case holdfast.Start:
		text += " as " + do.Token
	case holdfast.Heartbeat:
		text += " with " + do.LeaseToken
	case holdfast.Release:
		text += " with " + do.LeaseToken
	case holdfast.Commit:
		text += fmt.Sprintf(" %s with %s", figure(do.Amount, do.Quantity, do.Usage), do.LeaseToken)
	case holdfast.Extend:
		text += fmt.Sprintf(" to %s for %s with %s", figure(nil, do.Quantity, do.Usage), do.TTL, do.LeaseToken)
	case holdfast.InDoubt:
		text += " with " + do.LeaseToken
	case holdfast.Force:
		text += fmt.Sprintf(" %s %s", do.End, figure(do.Amount, nil, nil))
	case holdfast.Refund:
		text += fmt.Sprintf(" %s %s", figure(do.Amount, nil, nil), do.Ended)
	}
	if c.Key != "" {
		text += " key " + c.Key
	}
	return text
}

func since(at time.Time) string {
	if at.IsZero() {
		return "any time"
	}
	return at.Sub(genesis).String()
}

func describeReserve(do holdfast.Reserve) string {
	text := fmt.Sprintf(" %s × %d %v for %s", do.Feature, max(1, do.Quantity), do.Usage, do.TTL)
	if do.DryRun {
		text += ", only asking"
	}
	return text
}

func figure(amount, quantity *holdfast.Amount, usage map[string]holdfast.Amount) string {
	switch {
	case amount != nil:
		return fmt.Sprint(*amount)
	case quantity != nil:
		return fmt.Sprint("quantity ", *quantity)
	case usage != nil:
		return fmt.Sprint("usage ", usage)
	}
	return "all"
}

// begin opens both servers and two accounts.
func (w *world) begin() {
	for _, p := range w.places {
		w.start(p)
	}
	w.settle()
	w.calm = true
	for _, a := range who[:2] {
		for _, do := range []holdfast.Operation{
			holdfast.PutAccount{}, holdfast.AddGrant{Unit: "credit", Amount: 8, Source: holdfast.FromPurchase}, holdfast.SetPlan{Plan: pick(w, []string{"free", "pro", "club"})},
		} {
			i := &intention{number: len(w.intentions) + 1, project: a.project, name: a.name, do: do}
			if needsKey(do) {
				i.key = fmt.Sprint("k", i.number)
			}
			w.intentions = append(w.intentions, i)
			w.submit(w.places[0], i, w.newID())
			w.drain()
		}
	}
	w.calm = false
}

// drain lets everything that is being done come to its end, and fails where it does not.
func (w *world) drain() {
	for range 2000 {
		w.settle()
		switch asks := w.asks(); {
		case len(asks) > 0:
			w.release(asks[0])
		case len(w.unsettled()) > 0:
			w.settleOne()
		case len(w.open) > 0:
			w.pass(10 * time.Millisecond) // somebody pauses before the next attempt
		default:
			return
		}
	}
	w.breaks("%d calls are not answered although nothing goes wrong any more, the first is %s", len(w.open), w.open[0])
}

// finish ends all faults: what is unknown is asked again, what is held comes back, and everybody is served.
func (w *world) finish() {
	w.calm = true
	w.note("nothing goes wrong any more")
	for _, p := range w.places {
		p.outage = false
		if p.process.stopping && !p.process.dead {
			p.process.store.Crash()
			w.settle()
		}
		if p.process.dead {
			w.start(p)
		}
	}
	w.drain()
	for _, i := range w.intentions {
		if i.sent[len(i.sent)-1].err != nil || !i.sent[len(i.sent)-1].answered {
			w.repeat(pick(w, w.places), i)
			w.drain()
			if last := i.sent[len(i.sent)-1]; last.err != nil {
				w.breaks("nothing goes wrong, and yet %s is told %v", last, last.err)
			}
		}
	}
	w.note("longer than anything can be held passes")
	w.pass(longestHold)
	for range 8 * (w.options.SweepEvery / quantum) {
		w.pass(quantum)
		w.drain()
	}
	w.lookAtAll()
	for _, a := range who {
		id := holdfast.AccountIDOf(a.project, a.name)
		seen := w.accounts[id]
		if seen == nil {
			continue
		}
		if seen.row.Active != 0 {
			w.breaks("%s still has %d active reservations", w.accountName(id), seen.row.Active)
		}
		for _, g := range seen.grants {
			if g.Reserved != 0 {
				w.breaks("%s: grant %s still holds %d", w.accountName(id), w.name(g.ID, "g"), g.Reserved)
			}
		}
		unblocked := false
		for _, do := range []holdfast.Operation{
			holdfast.PutAccount{Blocked: &unblocked}, holdfast.AddGrant{Unit: "credit", Amount: 1}, holdfast.Reserve{Feature: "text"},
		} {
			i := &intention{number: len(w.intentions) + 1, project: a.project, name: a.name, do: do, key: fmt.Sprint("last", len(w.intentions))}
			w.intentions = append(w.intentions, i)
			w.submit(pick(w, w.places), i, w.newID())
			w.drain()
			last := i.sent[0]
			if deleted := !seen.row.DeletedAt.IsZero(); deleted && last.err == nil && last.outcome.Reason == holdfast.AccountBlocked {
				continue
			}
			if last.err != nil || last.outcome.Refused() {
				w.breaks("everything came back, and yet %s is told %s %v", last, last.outcome.Reason, last.err)
			}
		}
	}
}

// hear takes an answer.
func (w *world) hear(c *call) {
	if c.err == nil {
		w.note("%s is told: %s", c, w.answerText(&c.outcome))
		what := "done"
		if c.outcome.Refused() {
			what = string(c.outcome.Reason)
		}
		w.seen[c.command.Do.Name()+": "+what]++
		w.seen["told "+what]++
		if c.outcome.Replayed {
			w.seen["told again"]++
		}
		w.judge(c)
		return
	}
	w.note("%s is told: %v", c, c.err)
	var accident *engine.Error
	if !errors.As(c.err, &accident) {
		w.breaks("%s is told %v, which is no error of the engine", c, c.err)
	}
	w.seen["told "+string(accident.Code)]++
	switch accident.Code {
	case engine.Internal:
		w.breaks("%s is told: %v", c, c.err)
	case engine.OutcomeUnknown:
	default:
		c.fate.nothing++
		w.nothingHappened(c.fate)
	}
}

// nothingHappened holds the engine to its word.
func (w *world) nothingHappened(f *fate) {
	if f.happened && !f.lied && f.nothing == f.submitted {
		w.breaks("every caller of %s of %s was told that nothing happened, and it did", f.intention.do.Name(), f.intention.name)
	}
}

// lied notes that the store tells this process that a save was not made which was.
func (w *world) lied(p *process) {
	for _, c := range w.open {
		if c.process == p {
			c.fate.lied = true
		}
	}
}

func (w *world) answerText(o *holdfast.Outcome) string {
	text := "done"
	if o.Reason != "" {
		text = string(o.Reason)
	}
	if o.Replayed {
		text += ", replayed"
	}
	if r := o.Reservation; r != nil {
		text += fmt.Sprintf(", %s %s reserved %d used %d", w.name(r.ID, "r"), r.State, r.Reserved, r.Charged())
		if r.Debt+r.Unbilled > 0 {
			text += fmt.Sprintf(" owed %d unbilled %d", r.Debt, r.Unbilled)
		}
	}
	if o.Changed {
		text += ", changed"
	}
	return text
}
