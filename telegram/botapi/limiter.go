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
	p, _ := ctx.Value(priorityKey{}).(Priority)
	return p
}

// Telegram's limits, as its FAQ names them; the exact ones are not known. About a message a second in a chat, with bursts; 20 a
// minute in a group; 30 a second in all. Edits count. Notices leave room for replies.
var (
	perChat    = rate{4, 4 * time.Second}
	perGroup   = rate{20, time.Minute}
	perBot     = rate{30, time.Second}
	perNotices = rate{25, time.Second}
)

// Where so many chats are to pause at once, it is the bot that is too fast, not they.
const chatsUntilAll = 3

// What is known of chats is forgotten when there are so many of them, as far as it does not matter any more.
const chatsKept = 1024

// Limiter lets the calls of a bot through no faster than Telegram takes them: in order, replies before notices. One bot has
// one limiter in a process; Telegram's own pauses, which Block is told, are what keeps several processes apart.
type Limiter struct {
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

// NewLimiter makes a limiter. It needs no closing.
func NewLimiter() *Limiter {
	l := &Limiter{chats: map[Chat]*chatPace{}, all: window{rate: perBot}, notices: window{rate: perNotices}, sweepAt: chatsKept}
	for p := range l.waiting {
		l.waiting[p] = list.New()
	}
	return l
}

// Block lets nothing through to a chat for a while; 0: to nobody.
func (l *Limiter) Block(chat Chat, wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	until := now.Add(wait)
	if chat != 0 {
		c := l.chat(chat)
		c.blocked = later(c.blocked, until)
		pausing := 0
		for _, c := range l.chats {
			if c.blocked.After(now) {
				pausing++
			}
		}
		if pausing < chatsUntilAll {
			return
		}
	}
	l.blocked = later(l.blocked, until)
}

// wait returns when it is the caller's turn, or an error: *RetryAfter where it cannot be before the context's deadline.
func (l *Limiter) wait(ctx context.Context, chat Chat, p Priority) error {
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
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
	return context.Cause(ctx)
}

// idle reports whether something that is worth nothing later may go out to a chat now, and counts it against the bot's limit.
func (l *Limiter) idle(chat Chat) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	c := l.chat(chat)
	if l.waiting[Reply].Len() > 0 || l.blocked.After(now) || c.blocked.After(now) || l.all.free().After(now) {
		return false
	}
	l.all.take(now)
	return true
}

// advance lets through all whose turn it is, and sets the timer for the next.
func (l *Limiter) advance(now time.Time) {
	var next time.Time
	full := false // nobody further can go now, so nobody further is looked at
	for p := range priorities {
		for place := l.waiting[p].Front(); place != nil && !full; {
			t, following := place.Value.(*turn), place.Next()
			free := l.free(t.chat, p, now)
			if free.After(now) {
				if next.IsZero() || free.Before(next) {
					next = free
				}
				full = l.blocked.After(now) || l.all.free().After(now)
			} else {
				l.waiting[p].Remove(place)
				l.take(t.chat, p, now)
				close(t.ready)
			}
			place = following
		}
	}
	if next.IsZero() {
		return
	}
	if l.timer == nil {
		l.timer = time.AfterFunc(next.Sub(now), func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.advance(time.Now())
		})
		return
	}
	l.timer.Reset(next.Sub(now))
}

// free says from when on a call may go out, as far as it is known now.
func (l *Limiter) free(chat Chat, p Priority, now time.Time) time.Time {
	free := later(now, later(l.blocked, l.all.free()))
	if p == Notice {
		free = later(free, l.notices.free())
	}
	if chat == 0 {
		return free
	}
	c := l.chat(chat)
	free = later(free, later(c.blocked, c.short.free()))
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
	if chat == 0 {
		return
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
	c := &chatPace{short: window{rate: perChat}, minute: window{rate: perGroup}}
	l.chats[chat] = c
	return c
}

// rate is how many there may be in any stretch of time.
type rate struct {
	most    int
	stretch time.Duration
}

// window remembers the last ones, so that its rate is kept exactly, wherever the stretch begins.
type window struct {
	rate
	times []time.Time // a ring, once it is full
	next  int
}

// free says when the next one may be.
func (w *window) free() time.Time {
	if len(w.times) < w.most {
		return time.Time{}
	}
	return w.times[w.next].Add(w.stretch)
}

func (w *window) take(now time.Time) {
	if len(w.times) < w.most {
		w.times = append(w.times, now)
		return
	}
	w.times[w.next] = now
	w.next = (w.next + 1) % w.most
}

// forgotten reports whether nothing that it remembers matters any more.
func (w *window) forgotten(now time.Time) bool {
	if len(w.times) == 0 {
		return true
	}
	last := w.times[len(w.times)-1]
	if len(w.times) == w.most {
		last = w.times[(w.next+w.most-1)%w.most]
	}
	return !last.Add(w.stretch).After(now)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
