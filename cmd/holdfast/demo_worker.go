package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
)

// demoWorkerCommand is a worker of the demo: a process of its own, so that it can die as workers do. On standard input it
// takes one thing to do per line: start and the id of a reservation, claim and the name of a queue, or commit, of what it has
// claimed. It tells on standard output what it was answered, and works until it is killed, or until its input ends because
// the demo has gone.
type demoWorkerCommand struct {
	URL  string `arg:"" help:"The server."`
	Name string `arg:"" help:"The worker's name."`
}

// demoWorkerKey names the variable that hands the API key to the worker: a command line could be read by everybody.
const demoWorkerKey = "HOLDFAST_DEMO_WORKER_KEY"

// demoLeaseSeconds is the shortest that can be asked for, since the story waits for it to pass.
const demoLeaseSeconds = 5

// demoClaimSeconds is how long a claim waits for a job: longer than until a lease has lapsed.
const demoClaimSeconds = 4 * demoLeaseSeconds

func (c demoWorkerCommand) Run(ctx context.Context, t *terminal) error {
	api := newAPIClient(c.URL, os.Getenv(demoWorkerKey))
	orders := bufio.NewScanner(os.Stdin)
	var has apiJob // what it has claimed
	for orders.Scan() {
		verb, object, _ := strings.Cut(orders.Text(), " ")
		var answer *apiAnswer
		var err error
		switch verb {
		case "start":
			answer, err = api.start(ctx, object, c.Name)
		case "claim":
			answer, err = api.claim(ctx, object, c.Name)
		case "commit":
			answer, err = api.do(ctx, apiCall{method: http.MethodPost, path: "/v1/reservations/" + has.ID + "/commit", body: map[string]any{"lease_token": has.LeaseToken}})
		default:
			err = fmt.Errorf("a worker of the demo does not know how to %s", verb)
		}
		if err != nil {
			return err
		}
		report := workerReport{Status: answer.status, State: answer.State, Reason: answer.Reason, Used: answer.Used}
		if len(answer.Jobs) > 0 {
			has = answer.Jobs[0]
			report.State, report.Job, report.Attempt = has.State, has.ID, has.Attempt
		}
		if err := json.NewEncoder(t.out).Encode(report); err != nil {
			return err
		}
	}
	return orders.Err()
}

// claim takes a job of a queue, and waits for one.
func (c *apiClient) claim(ctx context.Context, queue, worker string) (*apiAnswer, error) {
	return c.do(ctx, apiCall{
		method: http.MethodPost, path: "/v1/queues/" + queue + "/claim",
		body: map[string]any{"worker": worker, "lease_seconds": demoLeaseSeconds, "wait_seconds": demoClaimSeconds},
	})
}

// start takes the lease of a reservation.
func (c *apiClient) start(ctx context.Context, reservation, worker string) (*apiAnswer, error) {
	return c.do(ctx, apiCall{
		method: http.MethodPost, path: "/v1/reservations/" + reservation + "/start",
		body: map[string]any{"worker": worker, "lease_seconds": demoLeaseSeconds},
	})
}

// workerReport is what a worker says of what it has done.
type workerReport struct {
	Status  int    `json:"status"`
	State   string `json:"state"`
	Reason  string `json:"reason,omitempty"`
	Job     string `json:"job,omitempty"` // that it has claimed
	Attempt int    `json:"attempt,omitempty"`
	Used    int64  `json:"used,omitempty"`
}

// workerProcess is a running worker, seen by the demo.
type workerProcess struct {
	command *exec.Cmd
	orders  io.WriteCloser
	reports *json.Decoder
}

// newWorker starts this program once more, as a worker. It ends with ctx at the latest.
func newWorker(ctx context.Context, api *apiClient, name string, errorsTo io.Writer) (*workerProcess, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program, to run it as a worker: %w", err)
	}
	command := exec.CommandContext(ctx, program, "demo-worker", api.url, name)
	command.Env = append(os.Environ(), demoWorkerKey+"="+api.key)
	command.Stderr = errorsTo
	orders, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	reports, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	return &workerProcess{command: command, orders: orders, reports: json.NewDecoder(reports)}, nil
}

// ask has the worker do something, and returns when it has.
func (w *workerProcess) ask(order string) (report workerReport, err error) {
	if _, err := fmt.Fprintln(w.orders, order); err != nil {
		return report, fmt.Errorf("ask the worker to %s: %w", order, err)
	}
	if err := w.reports.Decode(&report); err != nil {
		return report, fmt.Errorf("hear from the worker: %w", err)
	}
	return report, nil
}

// kill ends the worker as a power cut would: it has no time to say anything. It is an error if it had ended before.
func (w *workerProcess) kill() error {
	killed := w.command.Process.Kill()
	err := w.command.Wait()
	var ended *exec.ExitError
	if killed == nil && errors.As(err, &ended) {
		return nil
	}
	return fmt.Errorf("kill the worker: %w", errors.Join(killed, err, errors.New("it had ended by itself")))
}
