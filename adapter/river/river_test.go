package river

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	riverqueue "github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/postgres"
)

// killedVariable holds the database of the worker that this process is to be, until it is killed.
const killedVariable = "RIVER_TEST_WORKER"

func TestMain(m *testing.M) {
	if url := os.Getenv(killedVariable); url != "" {
		os.Exit(workUntilKilled(url))
	}
	os.Exit(m.Run())
}

// riverSchema is where River has its tables here.
const riverSchema = "river"

// Picture is the job of these tests.
type Picture struct {
	Text string `json:"text"`
}

// Kind is River's name for it.
func (Picture) Kind() string { return "picture" }

// painter is a worker whose work is told.
type painter struct {
	riverqueue.WorkerDefaults[Picture]
	work func(ctx context.Context, job *riverqueue.Job[Picture]) error
}

func (p *painter) Work(ctx context.Context, job *riverqueue.Job[Picture]) error {
	return p.work(ctx, job)
}

// studio is a program with an engine and River on one PostgreSQL.
type studio struct {
	pool   *pgxpool.Pool
	engine *engine.Engine
	queue  Queue
	stop   func() error
}

// openStudio opens one on a database that has been migrated. Its clock is ahead by so much.
func openStudio(ctx context.Context, url string, ahead time.Duration, config *riverqueue.Config) (*studio, error) {
	db, err := postgres.Open(ctx, url, postgres.Options{})
	if err != nil {
		return nil, err
	}
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s := &studio{pool: pool}
	s.engine = engine.New(db, engine.Options{
		Catalog: func(string) *holdfast.Catalog { return tariff }, SweepEvery: -1, Now: func() time.Time { return time.Now().Add(ahead) },
	})
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- s.engine.Serve(serving) }()
	s.stop = func() error {
		stop()
		err := <-served
		pool.Close()
		return errors.Join(err, db.Close())
	}
	config.Schema = riverSchema
	config.Logger = slog.New(slog.DiscardHandler)
	config.Middleware = []rivertype.Middleware{&Middleware{Engine: s.engine, Project: project, Lease: holdfast.MinLease, Logger: config.Logger}}
	client, err := riverqueue.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return nil, errors.Join(err, s.stop())
	}
	s.queue = Queue{Engine: s.engine, Client: client}
	return s, nil
}

// newStudio makes a database with River's tables in a schema of their own, and ann with a hundred credits.
func newStudio(t *testing.T, config *riverqueue.Config) (s *studio, url string) {
	t.Helper()
	url = pgtest.New(t)
	s = joinStudio(t, url, 0, config)
	_, err := s.pool.Exec(t.Context(), `CREATE SCHEMA `+riverSchema+`; CREATE TABLE orders (name text)`)
	must(t, err)
	migrator, err := rivermigrate.New(riverpgxv5.New(s.pool), &rivermigrate.Config{Schema: riverSchema, Logger: slog.New(slog.DiscardHandler)})
	must(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	must(t, err)
	s.submit(t, "", holdfast.PutAccount{})
	s.submit(t, "grant", holdfast.AddGrant{Unit: "credit", Amount: 100, Source: holdfast.FromPurchase})
	return s, url
}

// joinStudio is another program on the same database.
func joinStudio(t *testing.T, url string, ahead time.Duration, config *riverqueue.Config) *studio {
	t.Helper()
	s, err := openStudio(t.Context(), url, ahead, config)
	must(t, err)
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// working are the options of a client that works, with the given work.
func working(work func(ctx context.Context, job *riverqueue.Job[Picture]) error) *riverqueue.Config {
	workers := riverqueue.NewWorkers()
	riverqueue.AddWorker(workers, &painter{work: work})
	return &riverqueue.Config{
		Workers: workers, Queues: map[string]riverqueue.QueueConfig{riverqueue.QueueDefault: {MaxWorkers: 10}},
		FetchPollInterval: 50 * time.Millisecond, FetchCooldown: 20 * time.Millisecond, JobTimeout: time.Minute, RescueStuckJobsAfter: 2 * time.Minute,
	}
}

func (s *studio) submit(t *testing.T, key string, do holdfast.Operation) holdfast.Outcome {
	t.Helper()
	o, err := s.engine.Submit(t.Context(), holdfast.Command{Project: project, Account: "ann", Key: key, Do: do})
	if err != nil || o.Refused() {
		t.Fatalf("%s: %v %s", do.Name(), err, o.Reason)
	}
	return o
}

// insert reserves and inserts in a transaction with a row of the caller's own.
func (s *studio) insert(t *testing.T, key string, options *riverqueue.InsertOpts) (holdfast.Outcome, *rivertype.JobRow) {
	t.Helper()
	tx := s.begin(t)
	outcome, job, err := s.queue.Insert(t.Context(), tx, reserving(key, "draw"), Picture{Text: key}, options)
	must(t, err)
	must(t, tx.Commit(t.Context()))
	return outcome, job
}

// begin is the caller's transaction, with a row of its own.
func (s *studio) begin(t *testing.T) pgx.Tx {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `INSERT INTO orders VALUES ('mine')`)
	must(t, err)
	return tx
}

func reserving(key, feature string) engine.Request {
	return engine.Request{Project: project, Account: "ann", Key: key, Reserve: holdfast.Reserve{Feature: feature}}
}

// counts are the caller's rows, River's jobs, and what ann has left and held.
func (s *studio) counts(t *testing.T) string {
	t.Helper()
	var orders, jobs int
	must(t, s.pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM orders), (SELECT count(*) FROM river.river_job)`).Scan(&orders, &jobs))
	view, err := s.engine.View(t.Context(), project, "ann")
	must(t, err)
	b := view.Balances[0]
	return fmt.Sprintf("orders=%d jobs=%d available=%d reserved=%d", orders, jobs, b.Available, b.Reserved)
}

func (s *studio) counted(t *testing.T, want string) {
	t.Helper()
	if got := s.counts(t); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestAReservationAndItsJobAreThereWithTheCallersRowsOrNotAtAll(t *testing.T) {
	s, _ := newStudio(t, &riverqueue.Config{})
	tx := s.begin(t)
	outcome, job, err := s.queue.Insert(t.Context(), tx, reserving("m1", "draw"), Picture{}, &riverqueue.InsertOpts{Metadata: []byte(`{"theirs": 1}`), MaxAttempts: 4})
	must(t, err)
	if outcome.Refused() || job == nil {
		t.Fatalf("%+v, job %v", outcome, job)
	}
	s.counted(t, "orders=0 jobs=0 available=100 reserved=0")
	must(t, tx.Rollback(t.Context()))
	s.counted(t, "orders=0 jobs=0 available=100 reserved=0")

	outcome, job = s.insert(t, "m1", &riverqueue.InsertOpts{Metadata: []byte(`{"theirs": 1}`), MaxAttempts: 4})
	s.counted(t, "orders=1 jobs=1 available=95 reserved=5")
	if id := holdfast.ReservationRef.Encode(outcome.Owner.ID, outcome.Reservation.ID); Reservation(job) != id || job.MaxAttempts != 4 || !strings.Contains(string(job.Metadata), `"theirs"`) {
		t.Errorf("the job of %s: %+v %s", id, job, job.Metadata)
	}
}

func TestARefusedReserveInsertsNothingAndTheTransactionGoesOn(t *testing.T) {
	s, _ := newStudio(t, &riverqueue.Config{})
	s.submit(t, "spend", holdfast.Adjust{Unit: "credit", Amount: -98, Reason: "two are left"})
	tx := s.begin(t)
	outcome, job, err := s.queue.Insert(t.Context(), tx, reserving("m1", "draw"), Picture{}, nil)
	must(t, err)
	if outcome.Reason != holdfast.Insufficient || job != nil {
		t.Errorf("%s, job %v", outcome.Reason, job)
	}
	must(t, tx.Commit(t.Context()))
	s.counted(t, "orders=1 jobs=0 available=2 reserved=0")
}

func TestASecondPressInsertsNoSecondJob(t *testing.T) {
	s, _ := newStudio(t, &riverqueue.Config{})
	first, _ := s.insert(t, "m1", nil)
	again, job := s.insert(t, "m1", nil)
	if job != nil || !again.Replayed || again.Reservation.ID != first.Reservation.ID {
		t.Errorf("the second press: job %v, %+v", job, again)
	}
	s.counted(t, "orders=2 jobs=1 available=95 reserved=5")
}

func TestADryRunInsertsNothing(t *testing.T) {
	s, _ := newStudio(t, &riverqueue.Config{})
	request := reserving("", "draw")
	request.Reserve.DryRun = true
	tx := s.begin(t)
	outcome, job, err := s.queue.Insert(t.Context(), tx, request, Picture{}, nil)
	must(t, err)
	must(t, tx.Commit(t.Context()))
	if outcome.Refused() || job != nil {
		t.Errorf("%+v, job %v", outcome, job)
	}
	s.counted(t, "orders=1 jobs=0 available=100 reserved=0")
}

func TestAReservationIsNeverLeftWithoutItsJob(t *testing.T) {
	s, _ := newStudio(t, &riverqueue.Config{})
	s.insert(t, "m1", &riverqueue.InsertOpts{UniqueOpts: riverqueue.UniqueOpts{ByQueue: true}})
	for what, then := range map[string]struct {
		options riverqueue.InsertOpts
		job     *holdfast.JobRequest
		want    error
	}{
		"a duplicate":              {riverqueue.InsertOpts{UniqueOpts: riverqueue.UniqueOpts{ByQueue: true}}, nil, ErrDuplicate},
		"scheduled too late":       {riverqueue.InsertOpts{ScheduledAt: time.Now().Add(6 * time.Minute)}, nil, ErrExpiresBefore},
		"metadata that is no JSON": {riverqueue.InsertOpts{Metadata: []byte("{")}, nil, nil},
		"refused by River":         {riverqueue.InsertOpts{Queue: "no queue!"}, nil, nil},
		"a job of Holdfast's":      {riverqueue.InsertOpts{}, &holdfast.JobRequest{}, nil},
	} {
		t.Run(what, func(t *testing.T) {
			request := reserving("another "+what, "draw")
			request.Reserve.Job = then.job
			tx := s.begin(t)
			_, job, err := s.queue.Insert(t.Context(), tx, request, Picture{}, &then.options)
			if err == nil || job != nil || then.want != nil && !errors.Is(err, then.want) {
				t.Errorf("%v, job %v", err, job)
			}
			must(t, tx.Rollback(t.Context()))
			s.counted(t, "orders=1 jobs=1 available=95 reserved=5")
		})
	}
}

// started begins to work, and tells how jobs have ended, until the test does.
func (s *studio) started(t *testing.T) (ended <-chan *riverqueue.Event) {
	t.Helper()
	ended, stop := s.queue.Client.Subscribe(riverqueue.EventKindJobCompleted, riverqueue.EventKindJobFailed, riverqueue.EventKindJobCancelled, riverqueue.EventKindJobSnoozed)
	t.Cleanup(stop)
	must(t, s.queue.Client.Start(context.WithoutCancel(t.Context())))
	t.Cleanup(func() { must(t, s.queue.Client.StopAndCancel(context.Background())) })
	return ended
}

// next waits for the next end of an attempt of one of the kinds.
func next(t *testing.T, ended <-chan *riverqueue.Event, kinds ...riverqueue.EventKind) *riverqueue.Event {
	t.Helper()
	patience := time.After(time.Minute)
	for {
		select {
		case e := <-ended:
			for _, kind := range kinds {
				if e.Kind == kind {
					return e
				}
			}
		case <-patience:
			t.Fatalf("no attempt has ended as one of %v", kinds)
		}
	}
}

func (s *studio) is(t *testing.T, made holdfast.Outcome, want string) {
	t.Helper()
	page, err := s.engine.Read(t.Context(), store.Query{Kind: store.QueryReservations, Project: project, Account: made.Owner.ID, Reservation: made.Reservation.ID, Limit: 1})
	must(t, err)
	r := page.Reservations[0]
	if got := strings.TrimSpace(fmt.Sprintf("%s used=%d %s", r.State, r.Used, r.Cause)); got != want {
		t.Errorf("the reservation is %s, want %s", got, want)
	}
}

func TestRiverTriesAgainUnderTheSameReservation(t *testing.T) {
	var mu sync.Mutex
	ids := map[string]int{}
	s, _ := newStudio(t, working(func(ctx context.Context, job *riverqueue.Job[Picture]) error {
		mu.Lock()
		defer mu.Unlock()
		id := Work(ctx).ID
		if ids[id]++; ids[id] < 2 {
			return errAway
		}
		Work(ctx).Charge(3)
		return nil
	}))
	ended := s.started(t)
	made, _ := s.insert(t, "m1", nil)
	next(t, ended, riverqueue.EventKindJobFailed)
	s.is(t, made, "running used=0")
	next(t, ended, riverqueue.EventKindJobCompleted)
	s.is(t, made, "committed used=3")
	s.counted(t, "orders=1 jobs=1 available=97 reserved=0")
	if len(ids) != 1 || ids[holdfast.ReservationRef.Encode(made.Owner.ID, made.Reservation.ID)] != 2 {
		t.Errorf("attempts by reservation: %v", ids)
	}
}

func TestTheLastFailureAndRiversCancelRelease(t *testing.T) {
	begun := make(chan struct{}, 1)
	s, _ := newStudio(t, working(func(ctx context.Context, job *riverqueue.Job[Picture]) error {
		switch job.Args.Text {
		case "fails":
			return errAway
		case "panics":
			panic("boom")
		}
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}))
	ended := s.started(t)
	for text, cause := range map[string]string{"fails": "failed", "panics": "crashed"} {
		made, _ := s.insert(t, text, &riverqueue.InsertOpts{MaxAttempts: 1})
		if e := next(t, ended, riverqueue.EventKindJobFailed); e.Job.State != rivertype.JobStateDiscarded {
			t.Errorf("%s: River's job is %s", text, e.Job.State)
		}
		s.is(t, made, "released used=0 "+cause)
	}
	made, job := s.insert(t, "waits", nil)
	<-begun
	_, err := s.queue.Client.JobCancel(t.Context(), job.ID)
	must(t, err)
	next(t, ended, riverqueue.EventKindJobCancelled)
	s.is(t, made, "released used=0 cancelled")
	s.counted(t, "orders=3 jobs=3 available=100 reserved=0")
}

func TestAClientThatStopsLeavesItsWorkToTheNextOne(t *testing.T) {
	begun := make(chan struct{}, 1)
	s, url := newStudio(t, working(func(ctx context.Context, _ *riverqueue.Job[Picture]) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}))
	must(t, s.queue.Client.Start(context.WithoutCancel(t.Context())))
	made, _ := s.insert(t, "m1", &riverqueue.InsertOpts{MaxAttempts: 1})
	<-begun
	must(t, s.queue.Client.StopAndCancel(t.Context()))
	s.is(t, made, "running used=0")
	another := joinStudio(t, url, 10*time.Second, working(func(context.Context, *riverqueue.Job[Picture]) error { return nil }))
	next(t, another.started(t), riverqueue.EventKindJobCompleted)
	s.is(t, made, "committed used=5")
}

// workUntilKilled is the worker's process: it says which work it has begun, and never ends it.
func workUntilKilled(url string) (code int) {
	s, err := openStudio(context.Background(), url, 0, working(func(ctx context.Context, _ *riverqueue.Job[Picture]) error {
		fmt.Println(Work(ctx).ID)
		<-ctx.Done()
		return ctx.Err()
	}))
	if err == nil {
		err = s.queue.Client.Start(context.Background())
	}
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until nobody holds it any more
	return 0
}

func TestTheJobOfAKilledWorkerIsRescuedAndChargedOnce(t *testing.T) {
	s, url := newStudio(t, &riverqueue.Config{})
	made, job := s.insert(t, "m1", nil)
	id := Reservation(job)
	worker := exec.Command(os.Args[0])
	worker.Env = append(os.Environ(), killedVariable+"="+url)
	worker.Stderr = os.Stderr
	hold, err := worker.StdinPipe()
	must(t, err)
	defer func() { _ = hold.Close() }()
	out, err := worker.StdoutPipe()
	must(t, err)
	must(t, worker.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	_ = worker.Process.Kill()
	_ = worker.Wait()
	if err != nil || strings.TrimSpace(line) != id {
		t.Fatalf("the worker said %q: %v", line, err)
	}
	s.is(t, made, "running used=0")
	// Time passes: River's leader is gone, the job is stuck, and the lease has lapsed.
	_, err = s.pool.Exec(t.Context(), `DELETE FROM river.river_leader`)
	must(t, err)
	_, err = s.pool.Exec(t.Context(), `UPDATE river.river_job SET attempted_at = attempted_at - interval '1 hour'`)
	must(t, err)
	var mu sync.Mutex
	var ids []string
	rescuer := joinStudio(t, url, 2*holdfast.MinLease, working(func(ctx context.Context, _ *riverqueue.Job[Picture]) error {
		mu.Lock()
		defer mu.Unlock()
		ids = append(ids, Work(ctx).ID)
		return nil
	}))
	done := next(t, rescuer.started(t), riverqueue.EventKindJobCompleted)
	if done.Job.Attempt != 2 || len(ids) != 1 || ids[0] != id {
		t.Errorf("attempt %d, worked under %v", done.Job.Attempt, ids)
	}
	s.is(t, made, "committed used=5")
	s.counted(t, "orders=1 jobs=1 available=95 reserved=0")
}

// A process that is killed after the commit and before River knows: the work is not done again, and nothing is charged.
func TestAJobThatWasChargedIsNotWorkedOnAgain(t *testing.T) {
	s, _ := newStudio(t, working(func(context.Context, *riverqueue.Job[Picture]) error {
		t.Error("the worker was called")
		return nil
	}))
	made, _ := s.insert(t, "m1", nil)
	s.submit(t, "", holdfast.Commit{ReservationID: made.Reservation.ID})
	next(t, s.started(t), riverqueue.EventKindJobCompleted)
	s.counted(t, "orders=1 jobs=1 available=95 reserved=0")
}
