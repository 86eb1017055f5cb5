package acceptance

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	holdfastclient "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/jobs"
)

var killedJobs = flag.Int("killed.jobs", 200, "how many jobs are done while workers are killed")

// workerVariable tells this program that it is a worker process: the server's address and the provider's.
const workerVariable = "ACCEPTANCE_WORKER"

// workUntilKilled is a worker process.
func workUntilKilled(addresses string) int {
	var server, provider, name string
	if _, err := fmt.Sscan(addresses, &server, &provider, &name); err != nil {
		return 2
	}
	asks, err := holdfastclient.New(server, devKey, holdfastclient.Options{})
	if err != nil {
		return 2
	}
	go func() { // and no longer than whoever started it
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	w := jobs.Worker{
		Source: asks, Queue: "draw.standard", Name: name, Concurrency: 4, Lease: 5 * time.Second, Logger: slog.New(slog.DiscardHandler),
		Handle: func(ctx context.Context, job *jobs.Job) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodPost, provider, bytes.NewReader(job.Payload))
			if err != nil {
				return err
			}
			request.Header.Set("Idempotency-Key", job.ID)
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			_, _ = io.Copy(io.Discard, response.Body)
			return response.Body.Close()
		},
	}
	if err := w.Run(context.Background()); err != nil {
		return 2
	}
	return 0
}

// provider works once per key, and tells whoever kills when it is being asked.
type provider struct {
	mu    sync.Mutex
	asked map[string]int
	asks  chan struct{}
}

func (p *provider) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.asked[r.Header.Get("Idempotency-Key")]++
	p.mu.Unlock()
	select {
	case p.asks <- struct{}{}:
	default:
	}
	timer := time.NewTimer(rand.N(40 * time.Millisecond)) // the work
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

type crew struct {
	t         *testing.T
	servers   []*server
	addresses string
	workers   []*exec.Cmd
	made      int
}

func (c *crew) hire() *exec.Cmd {
	c.t.Helper()
	self, err := os.Executable()
	if err != nil {
		c.t.Fatal(err)
	}
	c.made++
	cmd := exec.Command(self)
	cmd.Env = append(environment(), fmt.Sprintf("%s=%s %s worker-%d", workerVariable, c.servers[c.made%len(c.servers)].url, c.addresses, c.made))
	if _, err := cmd.StdinPipe(); err != nil {
		c.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return cmd
}

// Case 25. Workers are killed at random while they work: each job ends once, charges equal commits, nobody stays locked.
func TestWorkersThatAreKilledAtRandomLoseNoJobAndChargeNothingTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes as long as lost leases take")
	}
	db := pgtest.NewEmpty(t)
	file := filepath.Join(t.TempDir(), "catalog.yaml")
	text := `
units: {credit: {scale: 0, names: {en: {one: credit, other: credits}}}}
features:
  draw: {names: {en: Draw}, price: [{unit: credit, amount: 5}], longest_job: 1m, ttl: 15m}
plans:
  free: {default: true, names: {en: Free}, features: [draw], max_active: 1000}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	servers := []*server{serve(t, db, "--catalog", file), serve(t, db, "--catalog", file)}
	const accounts = 10
	each(accounts, func(i int) { servers[i%2].account(name("a", i), 5*(*killedJobs)) })
	works := &provider{asked: map[string]int{}, asks: make(chan struct{}, 1)}
	listening := httptest.NewServer(works)
	defer listening.Close()

	made := make([]string, *killedJobs)
	each(8, func(at int) {
		for i := at; i < len(made); i += 8 {
			made[i] = servers[i%2].call("POST", "/v1/reservations", name("m", i), object{
				"account": name("a", i%accounts), "feature": "draw", "job": object{"payload": object{"n": i}, "max_attempts": 10},
			}).want(t, 201).text("id")
		}
	})
	c := &crew{t: t, servers: servers, addresses: listening.URL}
	for range 3 {
		c.workers = append(c.workers, c.hire())
	}
	defer func() {
		for _, worker := range c.workers {
			_ = worker.Process.Kill()
			_ = worker.Wait()
		}
	}()
	kills, deadline := 0, time.After(5*time.Minute)
	look := time.NewTicker(500 * time.Millisecond)
	defer look.Stop()
	for busy := true; busy; {
		select {
		case <-works.asks: // while it works
			if kills < 4+*killedJobs/20 && rand.N(8) == 0 {
				i := rand.N(len(c.workers))
				_ = c.workers[i].Process.Kill()
				_ = c.workers[i].Wait()
				kills++
				c.workers[i] = c.hire()
			}
		case <-look.C:
			busy = servers[0].live(accounts) > 0
		case <-deadline:
			t.Fatalf("%d reservations are still live", servers[0].live(accounts))
		}
	}
	if kills == 0 {
		t.Fatal("nobody was killed")
	}
	var committed, crashes, attempts int64
	for _, id := range made {
		r := servers[1].call("GET", "/v1/reservations/"+id, "", nil).want(t, 200)
		switch r.text("state") {
		case "committed":
			committed++
			if r.number("used") != 5 {
				t.Errorf("%s was charged %d", id, r.number("used"))
			}
		case "released":
			if r.text("cause") != "crashed" {
				t.Errorf("%s was released as %s", id, r.text("cause"))
			}
		default:
			t.Errorf("%s is %s", id, r.text("state"))
		}
		crashes += r.number("job", "crashes")
		attempts += r.number("attempts")
	}
	charged := int64(0)
	for i := range accounts {
		a := servers[0].call("GET", "/v1/accounts/"+name("a", i), "", nil).want(t, 200)
		if n := a.number("active"); n != 0 {
			t.Errorf("%s has %d active reservations", name("a", i), n)
		}
		balance := a.body["balances"].([]any)[0].(map[string]any)
		charged += int64(5*(*killedJobs)) - int64(balance["available"].(float64))
		if balance["reserved"].(float64) != 0 {
			t.Errorf("%s holds %v", name("a", i), balance["reserved"])
		}
	}
	if charged != 5*committed {
		t.Errorf("%d was charged for %d commits", charged, committed)
	}
	if crashes == 0 {
		t.Error("no job was lost, so nothing was proved")
	}
	t.Logf("%d jobs, %d workers killed, %d attempts, %d crashes, %d committed", len(made), kills, attempts, crashes, committed)
	for _, s := range servers {
		s.interrupt()
	}
	verified(t, db)
}

// live counts the reservations that have not ended.
func (s *server) live(accounts int) (count int64) {
	s.t.Helper()
	for i := range accounts {
		count += s.call("GET", "/v1/accounts/"+name("a", i), "", nil).want(s.t, 200).number("active")
	}
	return count
}
