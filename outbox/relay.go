package outbox

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	mathrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Store is what the relay works on. The stores of this module are ones.
type Store interface {
	store.Outbox
	store.Endpoints
}

// Observer counts what the relay does.
type Observer interface {
	// Published is told of events that got their positions.
	Published(events int)
	// Attempted is told of an attempt to deliver: "delivered", "retry" or "dead".
	Attempted(result string)
}

// Options of a relay. The zero value works.
type Options struct {
	// Sinks are given all events of all projects. Their names keep their places in the database: a sink that gets another
	// name begins from the oldest event that is kept.
	Sinks map[string]Sink
	// Guard says which addresses endpoints may have.
	Guard Guard
	// Holder names this process in the lease. Empty: a random one. Where only one process at a time can have the database,
	// a fixed one spares a restart the wait for the lease of its predecessor.
	Holder string
	// AnswerFor is how long an attempt to deliver to an endpoint may take in all, names and connecting included; 0: 15 s.
	AnswerFor time.Duration
	// Every is how often is looked for something to do where there was nothing; 0: 250 ms.
	Every time.Duration
	// Version of the program, for the User-Agent.
	Version  string
	Logger   *slog.Logger // nil: none
	Observer Observer     // nil: none
	// Now is the clock; nil: the machine's.
	Now func() time.Time
}

const (
	defaultEvery = 250 * time.Millisecond
	leaseFor     = 6 * time.Second // of the leader; it is prolonged three times as often
	leaveFor     = 5 * time.Second // attempts that are being made when the relay stops

	chunkAccounts = 100 // looked at at once
	chunkEvents   = 100 // of one account at once, so that none keeps the others waiting
	chunkRows     = 500 // published in one transaction

	stuckFor   = time.Minute
	pruneEvery = time.Minute
	pruneChunk = 500
)

// Relay publishes and delivers.
type Relay struct {
	store   Store
	options Options
	sender  *sender
	stuck   map[holdfast.AccountID]time.Time // accounts whose events the store rejects, and until when; the publisher's own
	woken   []chan struct{}                  // of each loop
	wakeMu  sync.Mutex
}

// New makes a relay. It does nothing before Run.
func New(s Store, options Options) *Relay {
	if options.Every == 0 {
		options.Every = defaultEvery
	}
	if options.AnswerFor == 0 {
		options.AnswerFor = defaultAnswer
	}
	if options.Holder == "" {
		options.Holder = rand.Text()
	}
	if options.Version == "" {
		options.Version = "dev"
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	if options.Observer == nil {
		options.Observer = nobody{}
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Relay{store: s, options: options, sender: newSender(options.Guard, options.Version, options.AnswerFor), stuck: map[holdfast.AccountID]time.Time{}}
}

type nobody struct{}

func (nobody) Published(int)    {}
func (nobody) Attempted(string) {}

// Run relays until ctx ends, whenever this process holds the lease. It returns when all that it started has stopped; an
// attempt that is being made is given a few seconds to end.
func (r *Relay) Run(ctx context.Context) error {
	defer r.sender.close()
	for ctx.Err() == nil {
		token, until, err := r.lead(ctx)
		if err != nil && ctx.Err() == nil {
			r.options.Logger.Warn("the lease of the relay could not be taken and will be tried again", "error", err)
		}
		if token == 0 {
			wait(ctx, r.options.Every)
			continue
		}
		r.options.Logger.Debug("relaying", "token", token)
		r.relay(ctx, token, until)
	}
	resigning, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveFor)
	defer cancel()
	now := r.options.Now()
	if token, err := r.store.Lead(resigning, r.options.Holder, now, now); err == nil && token != 0 {
		r.options.Logger.Debug("the lease of the relay is given back")
	}
	return nil
}

func (r *Relay) lead(ctx context.Context) (token int64, until time.Time, err error) {
	now := r.options.Now()
	until = now.Add(leaseFor)
	token, err = r.store.Lead(ctx, r.options.Holder, now, until)
	return token, until, err
}

// relay works for as long as the lease is prolonged.
func (r *Relay) relay(ctx context.Context, token int64, until time.Time) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var loops sync.WaitGroup
	loops.Go(func() { r.publish(ctx, token) })
	loops.Go(func() { r.ripen(ctx, store.NoticesOfWork, noticesOfWorkEvery*r.options.Every) })
	loops.Go(func() { r.ripen(ctx, store.NoticesOfAccounts, noticesOfAccountsEvery*r.options.Every) })
	loops.Go(func() { newPump(r).run(ctx) })
	loops.Go(func() { r.prune(ctx) })
	for name, sink := range r.options.Sinks {
		loops.Go(func() { r.feed(ctx, name, sink) })
	}
	for ctx.Err() == nil {
		wait(ctx, leaseFor/3)
		renewed, next, err := r.lead(ctx)
		switch {
		case err == nil && renewed == token:
			until = next
		case err == nil, !r.options.Now().Before(until): // somebody else leads, or may
			stop()
		}
	}
	loops.Wait()
}

// publish takes what is in the outbox, pass after pass.
func (r *Relay) publish(ctx context.Context, token int64) {
	for ctx.Err() == nil {
		published, err := r.pass(ctx, token)
		if err != nil && ctx.Err() == nil && store.KindOf(err) != store.Conflict { // which the next pass looks into
			r.options.Logger.Warn("publishing was interrupted and will be tried again", "error", err)
		}
		if published > 0 {
			r.options.Observer.Published(published)
			r.wake()
		} else {
			wait(ctx, r.options.Every)
		}
	}
}

// pass goes over all accounts that have something to tell, and takes a bounded part of each.
func (r *Relay) pass(ctx context.Context, token int64) (published int, err error) {
	var after holdfast.AccountID
	for {
		found, err := r.store.Pending(ctx, after, chunkAccounts, chunkEvents)
		if err != nil || len(found) == 0 {
			return published, err
		}
		n, err := r.take(ctx, token, found)
		published += n
		if err != nil || len(found) < chunkAccounts {
			return published, err
		}
		after = found[len(found)-1].Account
	}
}

// take publishes what accounts have to tell, as many of them in a transaction as the store takes.
func (r *Relay) take(ctx context.Context, token int64, found []store.Pending) (published int, err error) {
	most := r.store.Traits().MaxAccounts
	var chunk [][]store.Published // by account
	rows := 0
	flush := func() error {
		n, err := r.write(ctx, token, chunk)
		published += n
		chunk, rows = nil, 0
		return err
	}
	for i := range found {
		if r.options.Now().Before(r.stuck[found[i].Account]) {
			continue
		}
		var events []store.Published
		for j := range found[i].Events {
			e, err := compose(&found[i], &found[i].Events[j])
			if err != nil {
				return published, err
			}
			events = append(events, e)
		}
		if len(chunk) > 0 && (rows+len(events) > chunkRows || most > 0 && len(chunk) == most) {
			if err := flush(); err != nil {
				return published, err
			}
		}
		chunk = append(chunk, events)
		rows += len(events)
	}
	return published, flush()
}

// write publishes a chunk in one transaction. Where the store rejects its content, which is a fault of ours, each account
// is tried alone, and those that are still rejected are left aside for a while: none holds up the others.
func (r *Relay) write(ctx context.Context, token int64, chunk [][]store.Published) (published int, err error) {
	if len(chunk) == 0 {
		return 0, nil
	}
	events := slices.Concat(chunk...)
	err = r.store.Publish(ctx, token, r.options.Now(), events)
	switch {
	case err == nil:
		return len(events), nil
	case store.KindOf(err) != store.Rejected:
		return 0, err
	case len(chunk) == 1:
		r.stuck[events[0].Account] = r.options.Now().Add(stuckFor)
		r.options.Logger.Error("events of an account cannot be published and are left aside", "account", events[0].Account.String(), "error", err)
		return 0, nil
	}
	for i := range chunk {
		n, err := r.write(ctx, token, chunk[i:i+1])
		published += n
		if err != nil {
			return published, err
		}
	}
	return published, nil
}

// prune removes what was kept long enough.
func (r *Relay) prune(ctx context.Context) {
	for ctx.Err() == nil {
		now := r.options.Now()
		pruned, err := r.store.Prune(ctx, now.Add(-holdfast.KeepEvents), now.Add(-holdfast.KeepQueued), pruneChunk)
		if err != nil && ctx.Err() == nil {
			r.options.Logger.Warn("old events could not be pruned and will be tried again", "error", err)
		}
		if pruned < pruneChunk {
			wait(ctx, pruneEvery)
		}
	}
}

// wake ends the pauses of all loops that wait for something published.
func (r *Relay) wake() {
	r.wakeMu.Lock()
	defer r.wakeMu.Unlock()
	for _, c := range r.woken {
		close(c)
	}
	r.woken = nil
}

// pause waits until something was published, at most Every.
func (r *Relay) pause(ctx context.Context) {
	woken := make(chan struct{})
	r.wakeMu.Lock()
	r.woken = append(r.woken, woken)
	r.wakeMu.Unlock()
	timer := time.NewTimer(r.options.Every)
	defer timer.Stop()
	select {
	case <-woken:
		return
	case <-timer.C:
	case <-ctx.Done():
	}
	r.wakeMu.Lock()
	defer r.wakeMu.Unlock()
	r.woken = slices.DeleteFunc(r.woken, func(c chan struct{}) bool { return c == woken })
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// backoff grows threefold with every failure, from five seconds.
func backoff(failures int, most time.Duration) time.Duration {
	d := firstBackoff
	for range failures - 1 {
		if d >= most {
			break
		}
		d *= 3
	}
	return min(d, most)
}

const firstBackoff = 5 * time.Second

// jitter spreads what failed together over half of the time around it.
func (r *Relay) jitter(d time.Duration) time.Duration {
	return d*3/4 + time.Duration(mathrand.Int64N(int64(d)/2))
}

var errStopped = errors.New("the relay stops")
