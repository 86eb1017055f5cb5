package outbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// The pump delivers to endpoints.
//
//	     ┌─ Dispatch: published events behind each endpoint's cursor become deliveries
//	look ┤
//	     └─ Due: the first of each account whose time has come ─► attempt (a bounded number at once)
//	                                                                 │
//	        the account's next one becomes due ◄─ Settle ◄─ settler: whatever attempts have ended by now, per endpoint
//
// What was attempted and not settled is attempted again by the next leader.
const (
	mostAtOnce      = 64 // attempts of all endpoints
	mostPerEndpoint = 8  // of one that answers
	mostFailing     = mostAtOnce / 2
	// An endpoint that has failed is asked one at a time until it answers again, so that those that answer do not wait
	// for those that do not.
	mostOfFailing = 1

	dispatchChunk = 500

	mostBackoff    = 8 * time.Hour
	mostRetryAfter = time.Hour
	pausedGone     = "gone" // the endpoint answered 410
)

type pump struct {
	*Relay
	done chan attempted // every attempt that was begun is told here

	mu      sync.Mutex
	flying  map[place]bool     // deliveries that are attempted, or are not settled yet
	landed  map[place]bool     // those that were settled since the last look began: what it read may be older
	health  map[string]*health // by endpoint
	settled chan struct{}      // something was settled
	turn    int                // whose endpoint comes first
}

type place struct {
	endpoint string
	position int64
}

type health struct {
	failures  int // in a row
	flying    int
	notBefore time.Time // as the endpoint wished
}

type attempted struct {
	endpoint *store.Endpoint
	delivery *store.Delivery
	result   result
	at       time.Time
}

func newPump(r *Relay) *pump {
	return &pump{Relay: r, done: make(chan attempted, mostAtOnce), flying: map[place]bool{}, landed: map[place]bool{}, health: map[string]*health{}, settled: make(chan struct{}, 1)}
}

// run delivers until ctx ends; then attempts that are being made are given a few seconds, and are settled.
func (p *pump) run(ctx context.Context) {
	sending, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	var attempts, settler sync.WaitGroup
	settler.Go(func() { p.settle(ctx) })
	for ctx.Err() == nil {
		begun, more, err := p.look(ctx, func(d *store.Delivery, to *store.Endpoint) {
			attempts.Go(func() { p.attempt(sending, d, to) })
		})
		if err != nil && ctx.Err() == nil {
			p.options.Logger.Warn("deliveries could not be looked for and will be tried again", "error", err)
		}
		if begun == 0 && !more {
			p.rest(ctx)
		}
	}
	leaving := time.AfterFunc(leaveFor, func() { abandon(errStopped) })
	defer leaving.Stop()
	attempts.Wait()
	close(p.done)
	settler.Wait()
}

// rest waits until something was published or settled, at most Every.
func (p *pump) rest(ctx context.Context) {
	resting, stop := context.WithCancel(ctx)
	defer stop()
	var watch sync.WaitGroup
	watch.Go(func() {
		select {
		case <-p.settled:
			stop()
		case <-resting.Done():
		}
	})
	p.pause(resting)
	stop()
	watch.Wait()
}

// look queues what was published, and begins what is due.
func (p *pump) look(ctx context.Context, begin func(*store.Delivery, *store.Endpoint)) (begun int, more bool, err error) {
	endpoints, err := p.store.Endpoints(ctx, "")
	if err != nil {
		return 0, false, err
	}
	endpoints = slices.DeleteFunc(endpoints, func(e store.Endpoint) bool { return e.Paused })
	if len(endpoints) == 0 {
		return 0, false, nil
	}
	last, err := p.store.Positions(ctx)
	if err != nil {
		return 0, false, err
	}
	for i := range endpoints {
		if e := &endpoints[i]; e.Cursor < last[e.Project] {
			passed, err := p.store.Dispatch(ctx, e.ID, p.options.Now(), dispatchChunk)
			if err != nil {
				return 0, false, err
			}
			more = more || passed == dispatchChunk
		}
	}
	byID := map[string]*store.Endpoint{}
	for i := range endpoints {
		byID[endpoints[i].ID] = &endpoints[i]
	}
	now := p.options.Now()
	wanted, limits := p.room(endpoints, now)
	if len(wanted) == 0 {
		return 0, more, nil
	}
	due, err := p.store.Due(ctx, now, limits)
	if err != nil {
		return 0, false, err
	}
	for i := range due {
		if d := &due[i]; p.take(d, wanted) {
			begin(d, byID[d.Endpoint])
			begun++
		}
	}
	return begun, more, nil
}

// room says how many attempts of each endpoint may begin now, and how many deliveries to ask for to find them: those that
// are being attempted are due, too.
func (p *pump) room(endpoints []store.Endpoint, now time.Time) (wanted, limits map[string]int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.landed)
	known := map[string]*health{}
	free, freeForFailing := mostAtOnce, mostFailing
	for i := range endpoints {
		h := p.health[endpoints[i].ID]
		if h == nil {
			h = &health{}
		}
		known[endpoints[i].ID] = h
	}
	for id, h := range p.health {
		free -= h.flying
		if h.failures > 0 {
			freeForFailing -= h.flying
		}
		if known[id] == nil && h.flying > 0 { // removed or paused, and still being attempted
			known[id] = h
		}
	}
	p.health = known
	wanted, limits = map[string]int{}, map[string]int{}
	p.turn++
	for i := range endpoints {
		id := endpoints[(i+p.turn)%len(endpoints)].ID
		h := known[id]
		room := min(free, mostPerEndpoint-h.flying)
		if h.failures > 0 {
			room = min(free, freeForFailing, mostOfFailing-h.flying)
		}
		if room <= 0 || now.Before(h.notBefore) {
			continue
		}
		free -= room
		if h.failures > 0 {
			freeForFailing -= room
		}
		wanted[id], limits[id] = room, room+h.flying
	}
	return wanted, limits
}

// take notes that a delivery is attempted, unless it is already or its endpoint has no room.
func (p *pump) take(d *store.Delivery, wanted map[string]int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := place{d.Endpoint, d.Event.Position}
	if p.flying[at] || p.landed[at] || wanted[d.Endpoint] == 0 {
		return false
	}
	wanted[d.Endpoint]--
	p.flying[at] = true
	p.health[d.Endpoint].flying++
	return true
}

// attempt sends one delivery.
func (p *pump) attempt(ctx context.Context, d *store.Delivery, to *store.Endpoint) {
	at := p.options.Now()
	a := attempted{endpoint: to, delivery: d, at: at}
	event, err := eventOf(&d.Event)
	if err != nil {
		a.result = result{problem: problemEndpoint}
	} else {
		a.result = p.sender.send(ctx, to, &event, at)
	}
	p.mu.Lock()
	h := p.health[d.Endpoint]
	if a.result.problem == "" {
		h.failures, h.notBefore = 0, time.Time{}
	} else {
		h.failures++
		if a.result.retryAfter > 0 {
			h.notBefore = at.Add(a.result.retryAfter)
		}
	}
	p.mu.Unlock()
	if context.Cause(ctx) != errStopped || a.result.status != 0 { // else nobody knows what became of it: the next leader tries again
		p.done <- a
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	h.flying-- // only now: while nothing can be written, few attempts are made
}

// settle writes what attempts came to, as many of an endpoint at once as have ended by now.
func (p *pump) settle(ctx context.Context) {
	for a := range p.done {
		waiting := []attempted{a}
		for more := true; more; {
			select {
			case a, open := <-p.done:
				if more = open; open {
					waiting = append(waiting, a)
				}
			default:
				more = false
			}
		}
		byEndpoint := map[string][]attempted{}
		for _, a := range waiting {
			byEndpoint[a.endpoint.ID] = append(byEndpoint[a.endpoint.ID], a)
		}
		for id, ended := range byEndpoint {
			p.settleOf(ctx, id, ended)
		}
	}
}

// settleOf repeats until it is written: an attempt that ended counts once, whatever becomes of the connection.
func (p *pump) settleOf(ctx context.Context, id string, ended []attempted) {
	var attempts []store.Attempt
	gone := false
	for i := range ended {
		a := p.judge(&ended[i])
		attempts = append(attempts, a)
		gone = gone || a.Status == 410
	}
	trying := context.WithoutCancel(ctx)
	for tries := 1; ; tries++ {
		err := p.store.Settle(trying, id, p.options.Now(), attempts)
		if err == nil && gone {
			err = p.pauseGone(trying, ended[0].endpoint)
		}
		if err == nil {
			break
		}
		if tries == 1 {
			p.options.Logger.Warn("what a delivery came to could not be written and will be tried again", "error", err)
		}
		if ctx.Err() != nil && tries > 1 {
			return // stopping: they are attempted again
		}
		wait(ctx, p.options.Every)
	}
	p.mu.Lock()
	for i := range ended {
		at := place{id, ended[i].delivery.Event.Position}
		delete(p.flying, at)
		p.landed[at] = true
	}
	p.mu.Unlock()
	for _, a := range attempts {
		p.options.Observer.Attempted(map[store.DeliveryState]string{
			store.DeliveryDelivered: "delivered", store.DeliveryPending: "retry", store.DeliveryDead: "dead",
		}[a.State])
	}
	select {
	case p.settled <- struct{}{}:
	default:
	}
}

// judge says what becomes of a delivery after an attempt.
func (p *pump) judge(a *attempted) store.Attempt {
	d := a.delivery
	settled := store.Attempt{
		Position: d.Event.Position, Epoch: d.Epoch, Attempts: d.Attempts, At: a.at, Status: a.result.status, Problem: a.result.problem,
		State: store.DeliveryDelivered,
	}
	if a.result.problem == "" {
		return settled
	}
	settled.State = store.DeliveryPending
	settled.NextAt = a.at.Add(max(p.jitter(backoff(d.Attempts+1, mostBackoff)), a.result.retryAfter))
	first := d.FirstAt
	if first.IsZero() {
		first = a.at
	}
	if d.Attempts+1 >= holdfast.MaxDeliveryAttempts || settled.NextAt.After(first.Add(holdfast.DeliverFor)) {
		settled.State = store.DeliveryDead
	}
	if a.result.status == 410 { // it is to be paused, and keeps its queue
		settled.State = store.DeliveryPending
	}
	return settled
}

// pauseGone pauses an endpoint that says it is gone for good.
func (p *pump) pauseGone(ctx context.Context, e *store.Endpoint) error {
	for {
		all, err := p.store.Endpoints(ctx, e.Project)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(all, func(other store.Endpoint) bool { return other.ID == e.ID })
		if i < 0 || all[i].Paused {
			return nil
		}
		now := all[i]
		now.Paused, now.PausedReason = true, pausedGone
		if changed, err := p.store.ChangeEndpoint(ctx, now); err != nil || changed {
			return err
		}
	}
}
