package metrics_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/metrics"
	"github.com/holdfast-dev/holdfast/store"
)

var noon = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

type fake struct {
	live  int64
	first time.Time
	err   error
}

func (fake) Quarantined() map[holdfast.AccountID]string {
	return map[holdfast.AccountID]string{{1}: "broken"}
}
func (fake) Waiting() int   { return 7 }
func (fake) Now() time.Time { return noon }
func (f fake) LiveWork(context.Context) (int64, time.Time, error) {
	return f.live, f.first, f.err
}

func (f fake) Unpublished(context.Context) (int64, time.Time, error) {
	return 4, noon.Add(-5 * time.Second), f.err
}

func scrape(t *testing.T, o *metrics.Observer) string {
	t.Helper()
	w := httptest.NewRecorder()
	o.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	if w.Code != 200 {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func has(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
}

func TestWhatTheEngineTellsIsCounted(t *testing.T) {
	o := metrics.New()
	var _ engine.Observer = o
	o.Watch(fake{}, fake{live: 3, first: noon.Add(-90 * time.Second)})
	o.Published(6)
	o.Attempted("dead")
	o.Decided("reserve", "", false)
	o.Decided("reserve", holdfast.Insufficient, true)
	o.Saved(engine.Batch{Commands: 5, Accounts: 2, Waited: time.Millisecond, Load: time.Millisecond, Save: 2 * time.Millisecond})
	o.Retried(&store.Error{Kind: store.Conflict, Code: "40001", Err: errors.New("planted")})
	o.Swept(4)
	has(t, scrape(t, o),
		`holdfast_decisions_total{operation="reserve",reason="done",replayed="no"} 1`,
		`holdfast_decisions_total{operation="reserve",reason="insufficient",replayed="yes"} 1`,
		`holdfast_batch_commands_sum 5`, `holdfast_batch_accounts_sum 2`,
		`holdfast_store_seconds_count{step="load"} 1`, `holdfast_store_seconds_count{step="save"} 1`,
		`holdfast_retries_total{code="40001",kind="conflict"} 1`,
		`holdfast_sweeps_total 1`, `holdfast_swept_accounts_total 4`,
		`holdfast_waiting_commands 7`, `holdfast_quarantined_accounts 1`,
		`holdfast_live_reservations 3`, `holdfast_oldest_overdue_seconds 90`,
		`holdfast_unpublished_events 4`, `holdfast_oldest_unpublished_seconds 5`, `holdfast_events_published_total 6`, `holdfast_deliveries_total{result="dead"} 1`,
		`holdfast_database_unreadable 0`)
}

func TestAScrapeAnswersAlsoWhereTheDatabaseDoesNot(t *testing.T) {
	o := metrics.New()
	o.Watch(fake{}, fake{err: errors.New("down")})
	text := scrape(t, o)
	has(t, text, `holdfast_database_unreadable 1`, `holdfast_waiting_commands 7`)
	if strings.Contains(text, "holdfast_live_reservations ") {
		t.Error("what could not be read is shown")
	}
}

// queues is a store that keeps jobs.
type queues struct {
	fake
	store.Jobs
}

func (queues) Queues(context.Context, time.Time) ([]store.Queue, error) {
	return []store.Queue{{Project: "p", Name: "image.priority", Waiting: 12, Oldest: noon.Add(-30 * time.Second)}}, nil
}

func TestQueuesAreToldWithTheirDepthAndTheirWait(t *testing.T) {
	o := metrics.New()
	var _ engine.JobObserver = o
	o.Watch(fake{}, queues{})
	o.Claimed("p", "image.priority", 90*time.Millisecond)
	has(t, scrape(t, o),
		`holdfast_queue_jobs{project="p",queue="image.priority"} 12`, `holdfast_queue_oldest_seconds{project="p",queue="image.priority"} 30`,
		`holdfast_queue_wait_seconds_count{project="p",queue="image.priority"} 1`, `holdfast_queue_wait_seconds_bucket{project="p",queue="image.priority",le="0.16"} 1`)
}
