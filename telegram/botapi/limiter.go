package botapi

import (
	"container/list"
	"context"
	"sync"
	"time"
)

// Priority says who goes first where calls have to wait.
type Priority int

// The priorities.
const (
	Reply  Priority = iota // somebody waits for it; the default
	Notice                 // nobody does
	priorities
)

type priorityKey struct{}

// WithPriority gives the calls of a context a priority.
func WithPriority(ctx context.Context, p Priority) context.Context {
	return context.WithValue(ctx, priorityKey{}, p)
}

func priorityOf(ctx context.Context) Priority {
	if ctx.Value(priorityKey{}) == Notice {
		return Notice
	}
	return Reply
}

// Rate is so many calls in any stretch of that length.
type Rate struct {
	Calls int
	Per   time.Duration
}

// Limits are how fast a bot may call. A zero Rate is Telegram's.
type Limits struct {
	Chat    Rate // one chat
	Group   Rate // one group, besides
	Bot     Rate // all chats
	Notices Rate // of Bot, what notices may take: they leave room for replies
}

// Telegram's limits, as its FAQ names them; the exact ones are not known. About a message a second in a chat, with bursts; 20 a
// minute in a group; 30 a second in all. Edits count.
var telegrams = Limits{
	Chat: Rate{4, 4 * time.Second}, Group: Rate{20, time.Minute}, Bot: Rate{30, time.Second}, Notices: Rate{25, time.Second},
}

// Where so many chats are to pause at once, it is the bot that is too fast, not they.
const chatsUntilAll = 3

// What is known of chats is forgotten when there are so many of them, as far as it does not matter any more.
const chatsKept = 1024

// Limiter lets the calls of a bot through no faster than Telegram takes them: in order, replies before notices. All clients of
// one bot in a process should share it. Between processes nothing but the pauses that Telegram asks for is in common.
type Limiter struct {
	limits  Limits
	mu      sync.Mutex
	waiting [priorities]*list.List // of *turn, in order
	chats   map[Chat]*chatPace
	all     window
	notices window
	blocked time.Time // until when nothing may be sent
	sweepAt int       // how many chats there may be before they are looked through
	timer   *time.Timer
}

// chatPace is what is known of a chat.
type chatPace struct {
	short, minute window
	blocked       time.Time
}

// turn is a call that waits.
type turn struct {
	chat  Chat
	ready chan struct{}
}

// NewLimiter makes a limiter with Telegram's limits. It needs no closing.
func NewLimiter() *Limiter { return NewLimiterOf(Limits{}) }

// NewLimiterOf makes one with limits of one's own: those of a Bot API server that one runs, or that Telegram has raised.
func NewLimiterOf(limits Limits) *Limiter {
	for of, rate := range map[*Rate]Rate{
		&limits.Chat: telegrams.Chat, &limits.Group: telegrams.Group, &limits.Bot: telegrams.Bot, &limits.Notices: telegrams.Notices,
	} {
		if *of == (Rate{}) {
			*of = rate
		}
	}
	l := &Limiter{
		limits: limits, chats: map[Chat]*chatPace{}, all: window{Rate: limits.Bot}, notices: window{Rate: limits.Notices}, sweepAt: chatsKept,
	}
	for p := range l.waiting {
		l.waiting[p] = list.New()
	}
	return l
}

// pause lets nothing through to a chat for as long as Telegram asks.
func (l *Limiter) pause(chat Chat, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	until := now.Add(wait)
	paced := l.chat(chat)
	paced.blocked = later(paced.blocked, until)
	pausing := 0
	for _, c := range l.chats {
		if c.blocked.After(now) {
			pausing++
		}
	}
	if pausing >= chatsUntilAll {
		l.blocked = later(l.blocked, until)
	}
}

// wait returns when it is the caller's turn, or an error: *RetryAfter where that cannot be before the context's deadline.
func (l *Limiter) wait(ctx context.Context, chat Chat, p Priority) error {
	if ctx.Err() != nil {
		return notInTime(ctx)
	}
	l.mu.Lock()
	now := time.Now()
	if deadline, ok := ctx.Deadline(); ok {
		if free := l.free(chat, p, now); free.After(deadline) {
			l.mu.Unlock()
			return &RetryAfter{Wait: free.Sub(now)}
		}
	}
	t := &turn{chat: chat, ready: make(chan struct{})}
	place := l.waiting[p].PushBack(t)
	l.advance(now)
	l.mu.Unlock()
	select {
	case <-t.ready:
		return nil
	case <-ctx.Done():
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-t.ready: // both at once: its turn is taken, so it goes on
		return nil
	default:
	}
	l.waiting[p].Remove(place)
	return notInTime(ctx)
}

// idle reports whether something that is worth nothing later may go out to a chat now, and counts it for the bot. It does not
// count for the chat: what is worth more would wait for it.
func (l *Limiter) idle(chat Chat) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.waiting[Reply].Len() > 0 || l.wall(Reply).After(now) || l.chat(chat).blocked.After(now) {
		return false
	}
	l.all.take(now)
	return true
}

// advance lets through all whose turn it is, and sets the timer for the next.
func (l *Limiter) advance(now time.Time) {
	var next time.Time
	sooner := func(at time.Time) {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	for p := range priorities {
		for place := l.waiting[p].Front(); place != nil; {
			if wall := l.wall(p); wall.After(now) {
				sooner(wall)
				break // none of the others can go either
			}
			t, following := place.Value.(*turn), place.Next()
			if free := l.free(t.chat, p, now); free.After(now) {
				sooner(free)
			} else {
				l.waiting[p].Remove(place)
				l.take(t.chat, p, now)
				close(t.ready)
			}
			place = following
		}
	}
	switch {
	case next.IsZero():
	case l.timer == nil:
		l.timer = time.AfterFunc(next.Sub(now), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.advance(time.Now())
		})
	default:
		l.timer.Reset(next.Sub(now))
	}
}

// wall says until when nothing of a priority goes out, to whomever.
func (l *Limiter) wall(p Priority) time.Time {
	wall := later(l.blocked, l.all.free())
	if p == Notice {
		wall = later(wall, l.notices.free())
	}
	return wall
}

// free says from when on a call may go out, as far as it is known now.
func (l *Limiter) free(chat Chat, p Priority, now time.Time) time.Time {
	c := l.chat(chat)
	free := later(later(now, l.wall(p)), later(c.blocked, c.short.free()))
	if chat < 0 {
		free = later(free, c.minute.free())
	}
	return free
}

func (l *Limiter) take(chat Chat, p Priority, now time.Time) {
	l.all.take(now)
	if p == Notice {
		l.notices.take(now)
	}
	c := l.chat(chat)
	c.short.take(now)
	if chat < 0 {
		c.minute.take(now)
	}
}

func (l *Limiter) chat(chat Chat) *chatPace {
	if c := l.chats[chat]; c != nil {
		return c
	}
	if len(l.chats) >= l.sweepAt {
		now := time.Now()
		for id, c := range l.chats {
			if !c.blocked.After(now) && c.short.forgotten(now) && c.minute.forgotten(now) {
				delete(l.chats, id)
			}
		}
		l.sweepAt = max(chatsKept, 2*len(l.chats))
	}
	c := &chatPace{short: window{Rate: l.limits.Chat}, minute: window{Rate: l.limits.Group}}
	l.chats[chat] = c
	return c
}

// window remembers the last ones, so that its rate is kept exactly, wherever the stretch begins.
type window struct {
	Rate
	times []time.Time // a ring, once it is full
	next  int
}

// free says when the next one may be.
func (w *window) free() time.Time {
	if len(w.times) < w.Calls {
		return time.Time{}
	}
	return w.times[w.next].Add(w.Per)
}

func (w *window) take(now time.Time) {
	if len(w.times) < w.Calls {
		w.times = append(w.times, now)
		return
	}
	w.times[w.next] = now
	w.next = (w.next + 1) % w.Calls
}

// forgotten reports whether nothing that it remembers matters any more.
func (w *window) forgotten(now time.Time) bool {
	if len(w.times) == 0 {
		return true
	}
	last := w.times[len(w.times)-1]
	if len(w.times) == w.Calls {
		last = w.times[(w.next+w.Calls-1)%w.Calls]
	}
	return !last.Add(w.Per).After(now)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
