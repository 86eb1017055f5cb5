package engine

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// pending is a command that waits for its answer.
type pending struct {
	command holdfast.Command
	since   time.Time
	sweep   bool // sent by the sweeper: at most a quarter of a batch
	answer  chan answer
	stage   atomic.Int32
	line    *line // where it waits; nil once taken

	led []holdfast.AccountID // the accounts that have sent it on to the one that took their place
}

type answer struct {
	outcome holdfast.Outcome
	err     *Error
}

// The stages of a command whose caller waits for nothing else, and may send the next one when it has heard the answer. All
// others have none.
const (
	asked = 1 + iota
	answered
	heard
)

func (p *pending) reply(a answer) {
	p.stage.CompareAndSwap(asked, answered)
	p.answer <- a // buffered, answered once
}

// line is what waits for one account, in order. A busy line is owned by one batch, and its later commands wait.
type line struct {
	account holdfast.AccountID
	waiting []*pending
	busy    bool
}

// queue holds what waits. It is bounded in all and per account; beyond that a caller is told at once.
type queue struct {
	most, mostPerAccount int

	mu     sync.Mutex
	lines  map[holdfast.AccountID]*line
	ready  []*line // have something waiting and are not busy, in turn
	size   int
	closed bool
	wake   chan struct{} // something is ready
	spare  chan struct{} // much is waiting
}

func newQueue(most, mostPerAccount int) *queue {
	return &queue{most: most, mostPerAccount: mostPerAccount, lines: map[holdfast.AccountID]*line{}, wake: make(chan struct{}, 1), spare: make(chan struct{}, 1)}
}

// push lets a command wait behind those of its account.
func (q *queue) push(p *pending) *Error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return stopping()
	}
	account := p.command.AccountID()
	l := q.lines[account]
	if q.size >= q.most || l != nil && len(l.waiting) >= q.mostPerAccount {
		return &Error{Code: Overloaded, Hint: "too many requests wait already; nothing happened, try again shortly"}
	}
	if l == nil {
		l = &line{account: account}
		q.lines[account] = l
	}
	l.waiting = append(l.waiting, p)
	p.line = l
	q.size++
	if len(l.waiting) == 1 && !l.busy {
		q.ready = append(q.ready, l)
		q.signal()
	}
	if q.size >= backlog {
		notify(q.spare)
	}
	return nil
}

// backlog is how many commands must be ready, beside a batch that is worked on, for a second one to be worth its while: the
// database then works on one while the other is decided. With fewer, two small batches cost more than one.
const backlog = 32

// hasBacklog reports whether so many are ready. What waits for a busy account is not.
func (q *queue) hasBacklog() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	ready := 0
	for _, l := range q.ready {
		if ready += len(l.waiting); ready >= backlog {
			return true
		}
	}
	return false
}

// drop takes a command back whole, and reports whether it was still waiting.
func (q *queue) drop(p *pending) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := p.line
	if l == nil {
		return false
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(other *pending) bool { return other == p })
	p.line = nil
	q.size--
	if len(l.waiting) == 0 && !l.busy {
		q.ready = slices.DeleteFunc(q.ready, func(other *line) bool { return other == l })
		delete(q.lines, l.account)
	}
	return true
}

// commandsOf lists the commands of groups.
func commandsOf(groups []*group) (all []*pending) {
	for _, g := range groups {
		all = append(all, g.commands...)
	}
	return all
}

// group is one account's share of a batch.
type group struct {
	line     *line
	commands []*pending
	again    []*pending // to be decided once more, after what was decided before them is saved
	held     bool       // another transaction holds the account: it is waited for apart from the batch
	poisoned string     // why the account goes out of service once the others are answered
}

// take makes a batch of what waits, without delay: one command of each account in turn, in each account's order. One
// account gets at most half of the batch while others wait, the sweeper at most a quarter. It returns nil where nothing waits.
func (q *queue) take(most, mostAccounts int) []*group {
	q.mu.Lock()
	defer q.mu.Unlock()
	lines := q.ready
	if mostAccounts > 0 && len(lines) > mostAccounts {
		lines = lines[:mostAccounts]
	}
	if len(lines) > most {
		lines = lines[:most]
	}
	share := most
	if len(q.ready) > 1 {
		share = max(1, most/2)
	}
	groups := make([]*group, len(lines))
	taken, sweeps := 0, 0
	for progress := true; progress && taken < most; {
		progress = false
		for i, l := range lines {
			if taken == most || len(l.waiting) == 0 || groups[i] != nil && len(groups[i].commands) == share {
				continue
			}
			p := l.waiting[0]
			if p.sweep && sweeps >= max(1, most/4) {
				continue
			}
			if groups[i] == nil {
				groups[i] = &group{line: l}
			}
			groups[i].commands = append(groups[i].commands, p)
			l.waiting = l.waiting[1:]
			p.line = nil
			taken++
			if p.sweep {
				sweeps++
			}
			progress = true
		}
	}
	q.size -= taken
	groups = slices.DeleteFunc(groups, func(g *group) bool { return g == nil })
	for _, g := range groups {
		g.line.busy = true
	}
	q.ready = slices.DeleteFunc(q.ready, func(l *line) bool { return l.busy })
	if len(q.ready) > 0 {
		q.signal() // for another lane
	}
	return groups
}

// done gives a line back. What must be decided again goes to its front, and the line to the end of the turn.
func (q *queue) done(l *line, again []*pending) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.busy = false
	for _, p := range again {
		p.line = l
	}
	l.waiting = append(slices.Clone(again), l.waiting...)
	q.size += len(again)
	if len(l.waiting) == 0 {
		delete(q.lines, l.account)
	} else {
		q.ready = append(q.ready, l)
	}
	if len(l.waiting) > 0 || q.closed {
		q.signal()
	}
}

// close ends the intake; what waits can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// idle reports whether the intake is closed and nothing waits or is being decided.
func (q *queue) idle() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed && len(q.lines) == 0
}

func (q *queue) waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.size
}

func (q *queue) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// drain answers everything that still waits.
func (q *queue) drain(a answer) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for account, l := range q.lines {
		for _, p := range l.waiting {
			p.line = nil
			p.reply(a)
		}
		l.waiting = nil
		if !l.busy {
			delete(q.lines, account)
		}
	}
	q.ready, q.size = nil, 0
}

func (q *queue) signal() {
	notify(q.wake)
	if q.closed {
		notify(q.spare)
	}
}

func notify(waiting chan struct{}) {
	select {
	case waiting <- struct{}{}:
	default:
	}
}
