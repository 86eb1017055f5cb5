package inbox

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

const (
	groupFor = 10 * time.Second // for one transaction
	maxGroup = 100
)

// group writes what many ask for at once in one transaction: while one is under way, the others gather for the next. A
// database that syncs its disk for every commit takes many times as much this way.
type group[T, R any] struct {
	write func(context.Context, []T) ([]R, error)

	mutex   sync.Mutex
	carries bool
	waiting []*member[T, R]
}

// member is who waits for what it has given.
type member[T, R any] struct {
	given []T
	ended chan struct{}
	got   []R
	err   error
}

// do writes what is given, all or nothing of it. Where ctx ends first, nobody knows whether it was written.
func (g *group[T, R]) do(ctx context.Context, given []T) ([]R, error) {
	m := &member[T, R]{given: given, ended: make(chan struct{})}
	g.mutex.Lock()
	g.waiting = append(g.waiting, m)
	if !g.carries {
		g.carries = true
		go g.carry()
	}
	g.mutex.Unlock()
	select {
	case <-m.ended:
		return m.got, m.err
	case <-ctx.Done():
		g.mutex.Lock()
		defer g.mutex.Unlock()
		g.waiting = slices.DeleteFunc(g.waiting, func(other *member[T, R]) bool { return other == m })
		return nil, &store.Error{Kind: store.InDoubt, Op: "store updates", Err: context.Cause(ctx)}
	}
}

// carry writes until nobody waits any more.
func (g *group[T, R]) carry() {
	for {
		members := g.next()
		if len(members) == 0 {
			return
		}
		g.settle(members)
	}
}

func (g *group[T, R]) next() (members []*member[T, R]) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	size := 0
	for len(g.waiting) > 0 && size < maxGroup {
		members, g.waiting = append(members, g.waiting[0]), g.waiting[1:]
		size += len(members[len(members)-1].given)
	}
	g.carries = len(members) > 0
	return members
}

// settle writes what members have given. Where the content is refused, each is tried alone: none is refused for another.
func (g *group[T, R]) settle(members []*member[T, R]) {
	var all []T
	for _, m := range members {
		all = append(all, m.given...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), groupFor)
	defer cancel()
	got, err := g.write(ctx, all)
	if err != nil && store.KindOf(err) == store.Rejected && len(members) > 1 {
		for i := range members {
			g.settle(members[i : i+1])
		}
		return
	}
	for _, m := range members {
		if m.err = err; err == nil {
			m.got, got = got[:len(m.given)], got[len(m.given):]
		}
		close(m.ended)
	}
}
