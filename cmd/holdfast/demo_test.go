package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// asCommand makes this test binary run as the holdfast command.
const asCommand = "HOLDFAST_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// holdfastCommand is the command as a process of its own. It is killed if it hangs.
func holdfastCommand(t *testing.T, arguments ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	command := exec.CommandContext(ctx, program, arguments...)
	command.Env = append(os.Environ(), asCommand+"=1", "HOLDFAST_DEV_KEY=")
	return command
}

// process is a running command whose output is read line by line.
type process struct {
	*exec.Cmd
	t     *testing.T
	lines *bufio.Scanner
	notes *strings.Builder
}

func startProcess(t *testing.T, command *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: command, t: t, notes: &strings.Builder{}}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = p.notes
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	return p
}

// until reads lines up to the first with that beginning, and returns all of them.
func (p *process) until(beginning string) []string {
	p.t.Helper()
	var read []string
	for p.lines.Scan() {
		read = append(read, p.lines.Text())
		if strings.HasPrefix(p.lines.Text(), beginning) {
			return read
		}
	}
	p.t.Fatalf("the output ended without %q:\n%s\n%v, %v", beginning, strings.Join(read, "\n"), p.lines.Err(), p.Wait())
	return nil
}

// interrupt is Ctrl-C. The process must end well.
func (p *process) interrupt() {
	p.t.Helper()
	if err := p.Process.Signal(os.Interrupt); err != nil {
		p.t.Fatal(err)
	}
	for p.lines.Scan() { // or Wait could cut the output off
	}
	if err := p.Wait(); err != nil {
		p.t.Fatalf("after Ctrl-C: %v\n%s", err, p.notes)
	}
}

func needsSignals(t *testing.T) {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("another process cannot be sent Ctrl-C here")
	}
}

func TestDemoChargesOnceForTwoPressesAndALostWorker(t *testing.T) {
	t.Parallel()
	temporary := t.TempDir()
	command := holdfastCommand(t, "demo", "--once")
	command.Env = append(command.Env, "TMPDIR="+temporary, "TMP="+temporary)
	var notes strings.Builder
	command.Stderr = &notes
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &notes)
	}
	if notes.Len() > 0 {
		t.Errorf("on standard error: %s", &notes)
	}
	text := string(out)
	for what, pattern := range map[string]string{
		"one press gets the credit":             `key press-[12]  201  reserved 1 credit\n`,
		"the other is refused with its numbers": `key press-[12]  402  held_by_active: needed 1, available 0, held 1, active 1 of 1\n`,
		"the refusal in Russian":                `in Russian   .*один запрос.*единиц`,
		"the refusal in English":                `in English   .*one request.*unit`,
		"the repeated press is a replay":        `key press-[12]  201  reserved 1 credit, replayed: the same reservation\n`,
		"the worker runs":                       `worker w1 \(process \d+\)   POST …/start   200 running`,
		"held while the worker is dead":         `press-[12] +running +reserved 1 +used 0 +until`,
		"the sweeper frees the credit":          `ledger +entry 7 +expire +reserved -1 +then 1 available, 0 reserved +by sweeper\n`,
		"the commit":                            `POST  …/commit +200  committed, used 1, changed: true\n`,
		"the same commit again":                 `POST  …/commit +200  committed, used 1, changed: false\n`,
		"the release that comes too late":       `POST  …/release +409  already_ended: it stays committed, used 1\n`,
		"what is charged in the end":            `account +telegram:42 +available 0 +reserved 0 +used 3 of 3 +active 0 of 1\n`,
		"the estimate":                          `only asked, for 1,200 in and 100,000 out: insufficient\n\n +the estimate 402 credits at most, 300 are available; 897 in and 74,775 out could be paid\n`,
		"what a chat holds":                     `key chat-1   201  1,200 in and at most 4,096 out: reserved 18 credit\n`,
		"what a chat costs":                     `1,200 in and 1,500 out were used: committed, used 8, returned 10\n`,
		"what is left of the month":             `account +telegram:42 +available 292 +reserved 0 +used 8 of 300 +active 0 of 3\n`,
		"a purchase, told twice":                `POST  payments +201  stx-1, credits_100 for 100 XTR: granted, changed: true\n +POST  payments +200  stx-1, .* changed: false\n`,
		"what a picture holds":                  `key image-1  201  reserved 5 credit\n`,
		"what is left of the purchase":          `account +telegram:44 +available 98 +reserved 5 +used 0 of 3 +active 1 of 1\n`,
		"the upgrade while it is painted":       `account +telegram:44 +available 398 +reserved 5 +used 0 of 300 +active 1 of 3\n`,
		"the old price of the picture":          `POST  …/commit +200  committed, used 5 credit\n +POST  reservations +200  only asked, for the next picture: 1 image\n`,
		"the refund":                            `POST  …/refunds +201  stx-1: 100 XTR given back, 98 of 100 credits taken back, changed: true\n +POST  …/refunds +200  .* changed: false\n`,
		"what the refund took":                  `entry 8 +revoke +voided \+98 +then 300 available, 0 reserved`,
		"what is left of pro":                   `account +telegram:44 +available 300 +reserved 0 +used 0 of 300 +active 0 of 3\n`,
		"a worker claims a job":                 `worker w4 \(process \d+\)   POST  queues/text.standard/claim   200 running, attempt 1\n`,
		"the job is held":                       `job-1 +running +reserved 1 +used 0 +until`,
		"the job is given away":                 `worker w5 \(process \d+\)   POST  queues/text.standard/claim   200 running, attempt 2\n`,
		"what became of the job":                `GET   …/job-1 +200  committed, used 1; attempts 2, of them 1 crashed\n`,
		"what the job cost":                     `account +telegram:45 +available 2 +reserved 0 +used 1 of 3 +active 0 of 1\n`,
		"the webhook":                           `POST  /hooks   evt_\S+  reservation.commit of telegram:45, signature good   counted; its answer is lost\n`,
		"the webhook again":                     `POST  /hooks   evt_\S+  reservation.commit of telegram:45, signature good   known: dropped, and answered\n`,
		"what the receiver made of it":          `the receiver has counted 1 charge\n`,
		"verify":                                `every ledger adds up \(accounts: 3\)\n`,
		"the sum":                               `\nPressed 3 times, delivered 5 times, one worker lost: charged once.\nOne job, two workers, one of them killed: charged once, told twice, counted once.\n$`,
	} {
		if found := regexp.MustCompile(pattern).FindAllString(text, -1); len(found) == 0 {
			t.Errorf("%s: nothing in the output is like %q", what, pattern)
		}
	}
	for what, count := range map[string]struct {
		pattern string
		want    int
	}{
		"commits in the ledger":     {`entry \d+ +commit `, 6},
		"expiries in the ledger":    {`entry \d+ +expire `, 1},
		"reserves in the ledger":    {`entry \d+ +reserve `, 7},
		"presses that got a credit": {`key press-\d  201  reserved 1 credit\n`, 2},
	} {
		if got := len(regexp.MustCompile(count.pattern).FindAllString(text, -1)); got != count.want {
			t.Errorf("%s: %d, want %d", what, got, count.want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("the demo left behind: %v, %v", left, err)
	}
}

// demoPageProcess is a running demo whose page is asked without a browser.
type demoPageProcess struct {
	*process
	url string
}

func startDemoPage(t *testing.T, temporary string) *demoPageProcess {
	t.Helper()
	command := holdfastCommand(t, "demo")
	command.Env = append(command.Env, "TMPDIR="+temporary)
	demo := &demoPageProcess{process: startProcess(t, command)}
	demo.url = strings.TrimPrefix(demo.until("listening on ")[0], "listening on ")
	return demo
}

// ask sends a request and decodes the answer.
func (d *demoPageProcess) ask(method, path, body string, into any) {
	d.t.Helper()
	request, err := http.NewRequestWithContext(d.t.Context(), method, d.url+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		d.t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	if err := json.NewDecoder(response.Body).Decode(into); err != nil || response.StatusCode != http.StatusOK {
		d.t.Fatalf("%s %s: %d, %v", method, path, response.StatusCode, err)
	}
}

func (d *demoPageProcess) press(act string) (said string) {
	d.t.Helper()
	var answer struct{ Said string }
	d.ask(http.MethodPost, "/do", act, &answer)
	return answer.Said
}

// when looks at the page's state until it is as it should be.
func (d *demoPageProcess) when(what string, is func(*demoState) bool) *demoState {
	d.t.Helper()
	var s *demoState
	for tries := 0; tries < 600; tries++ {
		s = &demoState{}
		if d.ask(http.MethodGet, "/state", "", s); is(s) {
			return s
		}
		time.Sleep(50 * time.Millisecond)
	}
	d.t.Fatalf("it did not come to this: %s\n%+v", what, s)
	return nil
}

func (s *demoState) used(source string) (total holdfast.Amount) {
	for _, g := range s.Grants {
		if g.Source == source {
			total += g.Used
		}
	}
	return total
}

func (s *demoState) ended() bool {
	return len(s.Reservations) > 0 && s.Reservations[0].State == string(holdfast.Committed)
}

func TestThePageOfTheDemoShowsOneChargeWhateverHappens(t *testing.T) {
	needsSignals(t)
	t.Parallel()
	temporary := t.TempDir()
	demo := startDemoPage(t, temporary)

	demo.press(`{"do": "twice", "text": "hello"}`)
	s := demo.when("one press was charged, and the other refused", func(s *demoState) bool { return s.ended() && s.said("Please wait") == 1 })
	if len(s.Reservations) != 1 || s.used("allowance") != 1 || s.said("hello") != 1 {
		t.Errorf("after two presses: %+v", s)
	}

	if said := demo.press(`{"do": "kill"}`); !strings.Contains(said, "in the middle of the work") {
		t.Errorf("killed: %q", said)
	}
	s = demo.when("the job was done by the next process", func(s *demoState) bool { return len(s.Reservations) == 2 && s.ended() })
	if s.used("allowance") != 2 || s.Reservations[0].Attempts != 2 || s.Process.Starts != 2 || s.Provider != (demoModel{Asked: 3, Worked: 2}) {
		t.Errorf("after a dead worker: %+v", s)
	}

	demo.press(`{"do": "pay_twice"}`)
	s = demo.when("the person was thanked", func(s *demoState) bool { return s.said("Thank you!") == 1 })
	bought := 0
	for _, e := range s.Entries {
		if e.Kind == "grant" && e.Moved == "granted +100" {
			bought++
		}
	}
	if bought != 1 || !s.Refundable {
		t.Errorf("a payment that was told twice was granted %d times", bought)
	}

	demo.press(`{"do": "refund"}`)
	s = demo.when("it was taken back", func(s *demoState) bool { return s.Grants[0].Voided == 100 })
	if s.Refundable || s.Entries[0].Kind != "revoke" {
		t.Errorf("after the refund: %+v", s)
	}
	if said := demo.press(`{"do": "refund"}`); !strings.Contains(said, "no payment") {
		t.Errorf("refunded again: %q", said)
	}

	demo.press(`{"do": "day"}`)
	s = demo.when("the allowance is back", func(s *demoState) bool { return s.Account.Balances[0].Available == 3 })
	if left := time.Until(s.Now); left < 23*time.Hour {
		t.Errorf("the clock is %s ahead", left)
	}
	demo.press(`{"do": "send", "text": "a day later"}`)
	s = demo.when("a new window", func(s *demoState) bool { return len(s.Reservations) == 3 && s.ended() })
	if s.Grants[0].Used != 1 || s.Grants[0].Granted != 3 {
		t.Errorf("the new window: %+v", s.Grants)
	}

	demo.interrupt()
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("the demo left behind: %v, %v", left, err)
	}
}

// said counts the bot's messages that contain a text.
func (s *demoState) said(text string) (count int) {
	for _, m := range s.Messages {
		if !m.Mine && strings.Contains(m.Text, text) {
			count++
		}
	}
	return count
}

func TestThePageOfTheDemoAnswersNobodyElse(t *testing.T) {
	needsSignals(t)
	t.Parallel()
	demo := startDemoPage(t, t.TempDir())
	for name, spoil := range map[string]func(*http.Request){
		"another name":      func(r *http.Request) { r.Host = "demo.example" },
		"another site":      func(r *http.Request) { r.Header.Set("Origin", "https://example.com") },
		"another site's do": func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") },
	} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, demo.url+"/do", strings.NewReader(`{"do": "day"}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Close = true
		spoil(request)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", name, response.StatusCode)
		}
	}
	if said := demo.press(`{"do": "nothing"}`); !strings.Contains(said, "no button") {
		t.Errorf("a button that is not there: %q", said)
	}
	demo.interrupt()
}

func TestDemoEndsAtTheFirstStepThatDoesNotComeOut(t *testing.T) {
	for name, fault := range map[string]struct {
		spoil func(*http.Request) // what a bad proxy does on the way to the server
		says  string
		tell  func(context.Context, *story) error // nil: the whole story
	}{
		"a repeated press loses its key": {
			func(r *http.Request) {
				if r.Header.Get("Idempotency-Key") != "" {
					r.Header.Set("Idempotency-Key", rfcTime())
				}
			}, "expected true, got false", nil,
		},
		"the reader's language is lost": {
			func(r *http.Request) { r.Header.Set("Accept-Language", "ru") }, "the two texts are one: expected false, got true", nil,
		},
		"a commit charges nothing": {
			func(r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/commit") {
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(`{"amount":0}`)), int64(len(`{"amount":0}`))
				}
			}, "used: expected 1, got 0", nil,
		},
		"a payment is told with another id": {
			func(r *http.Request) {
				if r.URL.Path == "/v1/payments" {
					told, _ := io.ReadAll(r.Body)
					told = bytes.Replace(told, []byte(`"stx-`), []byte(`"`+rand.Text()), 1)
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(told)), int64(len(told))
				}
			}, "status of a payment: expected 200, got 201", paymentsOnly,
		},
		"a refund takes nothing back": {
			func(r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/refunds") {
					r.Body, r.ContentLength = io.NopCloser(strings.NewReader(`{"refund_id":"r","policy":"keep"}`)), int64(len(`{"refund_id":"r","policy":"keep"}`))
				}
			}, "taken back: expected 98, got 0", paymentsOnly,
		},
		"a worker commits nothing of its job": {
			func(r *http.Request) {
				if strings.HasSuffix(r.URL.Path, "/commit") {
					told, _ := io.ReadAll(r.Body)
					told = bytes.Replace(told, []byte(`{`), []byte(`{"amount":0,`), 1)
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(told)), int64(len(told))
				}
			}, "what the commit was answered", jobsOnly,
		},
		"the endpoint is of another event": {
			func(r *http.Request) {
				if r.URL.Path == "/v1/endpoints" {
					told, _ := io.ReadAll(r.Body)
					told = bytes.Replace(told, []byte(`reservation.commit`), []byte(`reservation.reserve`), 1)
					r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(told)), int64(len(told))
				}
			}, "type of the event: expected reservation.commit, got reservation.reserve", jobsOnly,
		},
		"the server cannot be reached": {
			func(r *http.Request) { r.URL.Host = "127.0.0.1:1" }, "expected 200, got 502", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(asCommand, "1") // for the worker
			var out, notes strings.Builder
			err := demoCommand{Once: true, Listen: "127.0.0.1:0"}.onStage(t.Context(), &terminal{out: &out, notes: &notes}, func(ctx context.Context, s *story) error {
				server, err := url.Parse(s.api.url)
				if err != nil {
					return err
				}
				proxy := httptest.NewServer(&httputil.ReverseProxy{
					Rewrite: func(r *httputil.ProxyRequest) {
						r.SetURL(server)
						fault.spoil(r.Out)
					},
					ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
						w.WriteHeader(http.StatusBadGateway)
						_, _ = io.WriteString(w, "{}")
					},
				})
				defer proxy.Close()
				s.api.url = proxy.URL
				if fault.tell != nil {
					return fault.tell(ctx, s)
				}
				return s.tell(ctx)
			})
			if err == nil || !strings.Contains(err.Error(), fault.says) {
				t.Errorf("the demo said %v, want an error with %q\n%s", err, fault.says, &out)
			}
		})
	}
}

// paymentsOnly tells the chapters about Clara, who has to wait for nobody.
func paymentsOnly(ctx context.Context, s *story) error {
	for _, chapter := range []func(context.Context) error{s.purchase, s.upgrade, s.refund} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

// jobsOnly tells the chapters about Dora.
func jobsOnly(ctx context.Context, s *story) error {
	defer func() { s.receiver.close() }()
	for _, chapter := range []func(context.Context) error{s.jobLost, s.jobGivenAway, s.toldTwice} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

func rfcTime() string { return time.Now().Format(time.RFC3339Nano) }

func TestDemoServesThisMachineOnly(t *testing.T) {
	t.Parallel()
	out, err := holdfastCommand(t, "demo", "--once", "--listen", "0.0.0.0:0").CombinedOutput()
	var ended *exec.ExitError
	if !errors.As(err, &ended) || ended.ExitCode() != 1 || !strings.Contains(string(out), "this machine only") {
		t.Errorf("demo on all addresses: %v\n%s", err, out)
	}
}

func TestAWorkerOfTheDemoEndsWithItsInput(t *testing.T) {
	t.Parallel()
	worker := holdfastCommand(t, "demo-worker", "http://127.0.0.1:1", "w1")
	if out, err := worker.CombinedOutput(); err != nil || len(out) > 0 { // its input is empty
		t.Errorf("%v, %q", err, out)
	}
	bot := holdfastCommand(t, "demo-bot", "sqlite:"+t.TempDir()+"/demo.db", "http://127.0.0.1:1", "http://127.0.0.1:1/v1", "0s")
	var ended *exec.ExitError
	if err := bot.Run(); err != nil && (!errors.As(err, &ended) || ended.ExitCode() != 1) { // it had no time to begin
		t.Errorf("the bot of the demo: %v", err)
	}
	help, err := holdfastCommand(t, "--help").Output()
	if err != nil || strings.Contains(string(help), "demo-worker") || strings.Contains(string(help), "demo-bot") || !strings.Contains(string(help), "demo") {
		t.Errorf("the help must show demo and not its worker: %v\n%s", err, help)
	}
}
