package bench

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// subject is whoever does the work: the engine, HTTP, or a baseline.
type subject interface {
	// callers makes n of them that work at the same time. They are kept for the next time.
	callers(ctx context.Context, n int) ([]worker, error)
	close() error
}

// worker does some whole cycles for accounts that it picks, and says how many. One goroutine at a time.
type worker func(ctx context.Context, pick func() *account) (cycles int, err error)

// sample is what one run of one cell measured.
type sample struct {
	perSecond float64
	p50, p99  time.Duration
}

// measure lets n callers work for the whole length, and counts from the end of the warm-up to the end. A call that
// reaches over one of these bounds counts by its share, so that a subject with long calls is treated as one with short ones.
func measure(ctx context.Context, s subject, n int, accounts []*account, warm, length time.Duration) (sample, error) {
	workers, err := s.callers(ctx, n)
	if err != nil {
		return sample{}, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	from := time.Now().Add(warm)
	to := from.Add(length)

	cycles := make([]float64, n)
	latencies := make([][]time.Duration, n)
	var group sync.WaitGroup
	for i, work := range workers {
		random := rand.New(rand.NewPCG(uint64(i), uint64(from.UnixNano())))
		pick := func() *account { return accounts[random.IntN(len(accounts))] }
		group.Go(func() {
			for begun := time.Now(); begun.Before(to) && ctx.Err() == nil; {
				count, err := work(ctx, pick)
				if err != nil {
					stop(err)
					return
				}
				ended := time.Now()
				cycles[i] += float64(count) * share(begun, ended, from, to)
				if ended.After(from) { // begun in time it has, so the slowest count too
					latencies[i] = append(latencies[i], ended.Sub(begun))
				}
				begun = ended
			}
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		return sample{}, context.Cause(ctx)
	}
	var result sample
	for _, count := range cycles {
		result.perSecond += count / length.Seconds()
	}
	all := slices.Concat(latencies...)
	slices.Sort(all)
	result.p50, result.p99 = percentile(all, 50), percentile(all, 99)
	return result, nil
}

// share is how much of [begun, ended) lies in [from, to).
func share(begun, ended, from, to time.Time) float64 {
	whole := ended.Sub(begun)
	if begun.Before(from) {
		begun = from
	}
	if ended.After(to) {
		ended = to
	}
	inside := ended.Sub(begun)
	if inside <= 0 || whole <= 0 {
		return 0
	}
	return float64(inside) / float64(whole)
}

// percentile of sorted values; 0 where there is none.
func percentile(sorted []time.Duration, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(len(sorted)-1, len(sorted)*percent/100)]
}

// middle takes the median of each figure.
func middle(samples []sample) sample {
	return sample{
		perSecond: median(samples, func(s sample) float64 { return s.perSecond }),
		p50:       median(samples, func(s sample) time.Duration { return s.p50 }),
		p99:       median(samples, func(s sample) time.Duration { return s.p99 }),
	}
}

func median[T float64 | time.Duration](samples []sample, of func(sample) T) T {
	values := make([]T, len(samples))
	for i, s := range samples {
		values[i] = of(s)
	}
	slices.Sort(values)
	half := len(values) / 2
	if len(values)%2 == 0 {
		return (values[half-1] + values[half]) / 2
	}
	return values[half]
}
