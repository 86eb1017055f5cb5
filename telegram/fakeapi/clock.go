package fakeapi

import (
	"context"
	"time"
)

// clock is the server's own time: its base's, and what was added by Advance.
type clock struct {
	base  func() time.Time
	ahead time.Duration
}

func (c *clock) now() time.Time { return c.base().Add(c.ahead) }

// Now is the server's own time.
func (s *Server) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clock.now()
}

// waitUntil waits, with the lock held when it is called and when it returns, until the server's own time is at or done
// says so. It tells whether done did.
func (s *Server) waitUntil(ctx context.Context, at time.Time, done func() bool) (bool, error) {
	for {
		left := at.Sub(s.clock.now())
		switch {
		case done():
			return true, nil
		case left <= 0:
			return false, nil
		}
		changed := s.changed
		s.mu.Unlock()
		timer := time.NewTimer(left)
		var err error
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.context.Done():
			err = ErrClosed
		}
		timer.Stop()
		s.mu.Lock()
		if err != nil {
			return false, err
		}
	}
}

// Advance moves the server's own time forward. On its way it stops where a subscription is due, renews it at that time, and
// goes on when bots have taken what they were told, or could not within Options.Patience. Retries and clocks that run out on
// the way act when it has arrived. Advance(0) renews what is due.
func (s *Server) Advance(length time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	arrival := s.clock.now().Add(length)
	for {
		s.settle()
		due := s.nextRenewal()
		if due == nil || due.Until.After(arrival) {
			break
		}
		s.clock.ahead += max(0, due.Until.Sub(s.clock.now()))
		due.renew()
		s.touch()
	}
	s.clock.ahead += max(0, arrival.Sub(s.clock.now()))
	s.touch()
	s.settle()
}

// settle waits until every bot that listens has taken what it is told, or failed to, but not for long.
func (s *Server) settle() {
	ctx, stop := context.WithTimeout(s.context, s.options.Patience)
	defer stop()
	_ = s.until(ctx, func() bool {
		for _, b := range s.bots {
			if b.listens() && b.hasFresh() {
				return false
			}
		}
		return true
	})
}
