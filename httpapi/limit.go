package httpapi

import (
	"fmt"
	"math"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// mostBuckets bounds the memory of rate limits. A key that rests for two seconds has a full bucket, which need not be kept.
const mostBuckets = 10_000

// limits are the rate limits of the keys that were seen lately. The zero value is ready.
type limits struct {
	mu      sync.Mutex
	buckets map[string]*rate.Limiter // by the key's id
}

// take counts requests of a key that may make so many a second, and twice as many at once. Where they are too many now, it
// counts nothing and says how long to wait. More than fit at once are let through when the bucket is full, and are waited
// for afterwards, so that over time no key makes more than it may.
func (l *limits) take(key string, perSecond, n int, now time.Time) (wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	burst := 2 * perSecond
	b := l.buckets[key]
	switch {
	case b == nil:
		l.makeRoom(now)
		b = rate.NewLimiter(rate.Limit(perSecond), burst)
		l.buckets[key] = b
	case b.Burst() != burst:
		b.SetLimitAt(now, rate.Limit(perSecond))
		b.SetBurstAt(now, burst)
	}
	atOnce := min(n, burst-1) // a full bucket less the request that a batch came with, which was counted before
	if !b.AllowN(now, atOnce) {
		missing := float64(atOnce) - b.TokensAt(now)
		return time.Duration(missing / float64(perSecond) * float64(time.Second)), false
	}
	for rest := n - atOnce; rest > 0; rest -= burst {
		b.ReserveN(now, min(rest, burst))
	}
	return 0, true
}

// makeRoom forgets keys that rest, and then any, until there is room for some time: their next request finds a full bucket.
func (l *limits) makeRoom(now time.Time) {
	if l.buckets == nil {
		l.buckets = map[string]*rate.Limiter{}
	}
	if len(l.buckets) < mostBuckets {
		return
	}
	for key, b := range l.buckets {
		if b.TokensAt(now) >= float64(b.Burst()) {
			delete(l.buckets, key)
		}
	}
	for key := range l.buckets {
		if len(l.buckets) < mostBuckets*9/10 {
			return
		}
		delete(l.buckets, key)
	}
}

// count counts requests for the rate limit of the call's key. Nil: they are not too many.
func (c *call) count(n int) *answer {
	limit := c.api.RateLimit
	if c.key.RateLimit > 0 {
		limit = c.key.RateLimit
	}
	if limit <= 0 || n == 0 {
		return nil
	}
	wait, ok := c.api.limits.take(c.key.ID, limit, n, c.api.Engine.Now())
	if ok {
		return nil
	}
	seconds := max(1, int(math.Ceil(wait.Seconds())))
	a := c.mistake(reasonRateLimited, fmt.Sprintf("This key may make %d requests a second. Nothing happened; come back later.", limit)).
		with("Retry-After", strconv.Itoa(seconds))
	return &a
}
