// Package metrics shows what the engine does as Prometheus metrics.
//
// Package cmd hands an Observer to the engine and its handler to the HTTP API. It only counts: nothing is decided by what
// it knows, no metric carries an account, a key or any other name of a person, and a scrape that cannot read the database
// still answers with the rest.
package metrics

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

// Observer counts what the engine tells. It is safe for concurrent use.
type Observer struct {
	registry *prometheus.Registry
	decided  *prometheus.CounterVec
	commands prometheus.Histogram
	accounts prometheus.Histogram
	waited   prometheus.Histogram
	stores   *prometheus.HistogramVec
	retried  *prometheus.CounterVec
	passes   prometheus.Counter
	swept    prometheus.Counter
	told     prometheus.Counter
	attempts *prometheus.CounterVec
	queued   *prometheus.HistogramVec
}

// New makes an observer with a registry of its own, which also tells of the process.
func New() *Observer {
	o := &Observer{
		registry: prometheus.NewRegistry(),
		decided: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_decisions_total", Help: "Commands answered, by operation and reason (done: none); replayed: repeated from a recorded answer.",
		}, []string{"operation", "reason", "replayed"}),
		commands: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_batch_commands", Help: "Commands in one batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		accounts: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_batch_accounts", Help: "Accounts in one batch.", Buckets: prometheus.ExponentialBuckets(1, 2, 10),
		}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "holdfast_lane_wait_seconds", Help: "How long the first command of a batch waited to be taken.", Buckets: seconds,
		}),
		stores: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_store_seconds", Help: "Time of one batch in the store: load, save.", Buckets: seconds,
		}, []string{"step"}),
		retried: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_retries_total", Help: "Batches that the store failed, by kind and, where the database gave one, by its code (SQLSTATE).",
		}, []string{"kind", "code"}),
		passes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_sweeps_total", Help: "Passes of the sweeper over the accounts with something overdue.",
		}),
		queued: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "holdfast_queue_wait_seconds", Help: "How long jobs waited in their queue until they were first claimed.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 18), // 10 ms to 22 min
		}, []string{"project", "queue"}),
		swept: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_swept_accounts_total", Help: "Accounts in which the sweeper expired something.",
		}),
		told: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "holdfast_events_published_total", Help: "Events that this process published.",
		}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "holdfast_deliveries_total", Help: "Attempts to deliver an event to an endpoint, by what they came to: delivered, retry, dead.",
		}, []string{"result"}),
	}
	o.registry.MustRegister(o.decided, o.commands, o.accounts, o.waited, o.stores, o.retried, o.passes, o.swept, o.told, o.attempts, o.queued,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return o
}

var seconds = prometheus.ExponentialBuckets(0.0001, 2, 18) // 0.1 ms to 13 s

// Decided counts an answer.
func (o *Observer) Decided(operation string, reason holdfast.Reason, replayed bool) {
	told := string(reason)
	if told == "" {
		told = "done"
	}
	o.decided.WithLabelValues(operation, told, map[bool]string{false: "no", true: "yes"}[replayed]).Inc()
}

// Saved counts a batch.
func (o *Observer) Saved(b engine.Batch) {
	o.commands.Observe(float64(b.Commands))
	o.accounts.Observe(float64(b.Accounts))
	o.waited.Observe(b.Waited.Seconds())
	o.stores.WithLabelValues("load").Observe(b.Load.Seconds())
	if b.Save > 0 {
		o.stores.WithLabelValues("save").Observe(b.Save.Seconds())
	}
}

// Retried counts a failed attempt.
func (o *Observer) Retried(err error) {
	code := ""
	var failed *store.Error
	if errors.As(err, &failed) {
		code = failed.Code
	}
	o.retried.WithLabelValues(store.KindOf(err).String(), code).Inc()
}

// Swept counts a pass of the sweeper.
func (o *Observer) Swept(accounts int) {
	o.passes.Inc()
	o.swept.Add(float64(accounts))
}

// Published counts events that were published.
func (o *Observer) Published(events int) { o.told.Add(float64(events)) }

// Attempted counts an attempt to deliver.
func (o *Observer) Attempted(result string) { o.attempts.WithLabelValues(result).Inc() }

// Claimed counts how long a job waited.
func (o *Observer) Claimed(project, queue string, waited time.Duration) {
	o.queued.WithLabelValues(project, queue).Observe(max(0, waited.Seconds()))
}

// Engine is what is asked at each scrape.
type Engine interface {
	Quarantined() map[holdfast.AccountID]string
	Waiting() int
	Now() time.Time
}

// Store is what is asked at each scrape.
type Store interface {
	// LiveWork counts the live reservations, and says when the one that expires first does; zero: there is none.
	LiveWork(ctx context.Context) (count int64, firstExpiry time.Time, err error)
	// Unpublished counts the events that wait to be published, and says when the oldest was written; zero: none waits.
	Unpublished(ctx context.Context) (count int64, oldest time.Time, err error)
}

// Watch adds what is read at each scrape.
func (o *Observer) Watch(e Engine, s Store) { o.registry.MustRegister(&watched{engine: e, store: s}) }

// scrapeFor bounds what a scrape may ask of the database.
const scrapeFor = 2 * time.Second

var (
	waiting     = prometheus.NewDesc("holdfast_waiting_commands", "Commands that wait to be taken into a batch.", nil, nil)
	quarantined = prometheus.NewDesc("holdfast_quarantined_accounts", "Accounts out of service because a rule was broken.", nil, nil)
	live        = prometheus.NewDesc("holdfast_live_reservations", "Reservations that have not ended.", nil, nil)
	overdue     = prometheus.NewDesc("holdfast_oldest_overdue_seconds", "How long the longest overdue reservation has been overdue; 0: none is.", nil, nil)
	unpublished = prometheus.NewDesc("holdfast_unpublished_events", "Events that wait to be published.", nil, nil)
	untold      = prometheus.NewDesc("holdfast_oldest_unpublished_seconds", "How long the oldest of them has waited; 0: none waits.", nil, nil)
	waitingJobs = prometheus.NewDesc("holdfast_queue_jobs", "Jobs that a worker could claim now, those of lost workers included.", []string{"project", "queue"}, nil)
	oldestJob   = prometheus.NewDesc("holdfast_queue_oldest_seconds", "Age of the oldest of them.", []string{"project", "queue"}, nil)
	unread      = prometheus.NewDesc("holdfast_database_unreadable", "1 where this scrape could not read the database.", nil, nil)
)

type watched struct {
	engine Engine
	store  Store
}

func (w *watched) Describe(descriptions chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{waiting, quarantined, live, overdue, unpublished, untold, waitingJobs, oldestJob, unread} {
		descriptions <- d
	}
}

func (w *watched) Collect(metrics chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(waiting, float64(w.engine.Waiting()))
	gauge(quarantined, float64(len(w.engine.Quarantined())))
	ctx, cancel := context.WithTimeout(context.Background(), scrapeFor)
	defer cancel()
	count, first, err1 := w.store.LiveWork(ctx)
	events, oldest, err2 := w.store.Unpublished(ctx)
	queues, err3 := w.queues(ctx)
	if errors.Join(err1, err2, err3) != nil {
		gauge(unread, 1)
		return
	}
	for _, q := range queues {
		gauge(waitingJobs, float64(q.Waiting), q.Project, q.Name)
		gauge(oldestJob, max(0, w.engine.Now().Sub(q.Oldest).Seconds()), q.Project, q.Name)
	}
	gauge(unread, 0)
	since := func(at time.Time) float64 {
		if at.IsZero() {
			return 0
		}
		return max(0, w.engine.Now().Sub(at).Seconds())
	}
	gauge(live, float64(count))
	gauge(overdue, since(first))
	gauge(unpublished, float64(events))
	gauge(untold, since(oldest))
}

// queues are those with claimable jobs, where the store keeps jobs.
func (w *watched) queues(ctx context.Context) ([]store.Queue, error) {
	if jobs, ok := w.store.(store.Jobs); ok {
		return jobs.Queues(ctx, w.engine.Now())
	}
	return nil, nil
}

// Handler answers a scrape.
func (o *Observer) Handler() http.Handler {
	return promhttp.HandlerFor(o.registry, promhttp.HandlerOpts{})
}
