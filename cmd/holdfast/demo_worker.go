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
)

// demoWorkerCommand is a worker of the demo: a process of its own, so that it can die as workers do. It takes the ids of
// reservations on standard input, starts each, tells its lease on standard output, and then works until it is killed, or
// until its input ends because the demo has gone.
type demoWorkerCommand struct {
	URL  string `arg:"" help:"The server."`
	Name string `arg:"" help:"The worker's name."`
}

// demoWorkerKey names the variable that hands the API key to the worker: a command line could be read by everybody.
const demoWorkerKey = "HOLDFAST_DEMO_WORKER_KEY"

// demoLeaseSeconds is the shortest that can be asked for, since the story waits for it to pass.
const demoLeaseSeconds = 5

func (c demoWorkerCommand) Run(ctx context.Context, t *terminal) error {
	api := newAPIClient(c.URL, os.Getenv(demoWorkerKey))
	jobs := bufio.NewScanner(os.Stdin)
	for jobs.Scan() {
		started, err := api.start(ctx, jobs.Text(), c.Name)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(t.out).Encode(workerReport{Status: started.status, State: started.State, Reason: started.Reason}); err != nil {
			return err
		}
	}
	return jobs.Err()
}

// start takes the lease of a reservation.
func (c *apiClient) start(ctx context.Context, reservation, worker string) (*apiAnswer, error) {
	return c.do(ctx, apiCall{
		method: http.MethodPost, path: "/v1/reservations/" + reservation + "/start",
		body: map[string]any{"worker": worker, "lease_seconds": demoLeaseSeconds},
	})
}

// workerReport is what a worker says of a job that it has begun.
type workerReport struct {
	Status int    `json:"status"`
	State  string `json:"state"`
	Reason string `json:"reason,omitempty"`
}

// workerProcess is a running worker, seen by the demo.
type workerProcess struct {
	command *exec.Cmd
	jobs    io.WriteCloser
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
	jobs, err := command.StdinPipe()
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
	return &workerProcess{command: command, jobs: jobs, reports: json.NewDecoder(reports)}, nil
}

// take hands the worker a job, and returns when it has begun.
func (w *workerProcess) take(reservation string) (report workerReport, err error) {
	if _, err := fmt.Fprintln(w.jobs, reservation); err != nil {
		return report, fmt.Errorf("hand a job to the worker: %w", err)
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
