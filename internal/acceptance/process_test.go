package acceptance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// binary is the product, built once for the run.
var binary string

func TestMain(m *testing.M) {
	if addresses := os.Getenv(workerVariable); addresses != "" {
		os.Exit(workUntilKilled(addresses))
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "6") // those that may run at once wait for Telegram's pace more than they compute
	}
	dir, err := os.MkdirTemp("", "holdfast")
	if err != nil {
		panic(err)
	}
	binary = filepath.Join(dir, "holdfast")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	build := exec.Command("go", "build", "-o", binary, "../../cmd/holdfast")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.Stderr = os.Stderr
	code := 1
	if err := build.Run(); err == nil {
		code = m.Run()
	}
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// lookAtSources makes go test see that these tests depend on the whole product: another process builds it, so their results
// would come from the cache whatever has changed. What is looked at before a test runs is not noted, so TestMain cannot do it.
var lookAtSources = sync.OnceValue(func() error {
	return filepath.WalkDir("../..", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // somebody else's temporary file
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "docs", "testdata"}, entry.Name()):
			return filepath.SkipDir
		case entry.Type().IsRegular() && !strings.HasSuffix(name, ".md"):
			_, _ = os.Stat(name) // the looking is what counts
		}
		return nil
	})
})

// command is a run of the binary that has not begun.
func command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	return exec.Command(binary, args...)
}

// holdfast runs a command to its end.
func holdfast(t *testing.T, args ...string) (out, notes string, code int) {
	t.Helper()
	cmd := command(t, args...)
	cmd.Env = environment()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()
}

// environment is this process's without the product's own variables, and with what a test adds.
func environment(add ...string) []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "HOLDFAST_") {
			kept = append(kept, variable)
		}
	}
	return append(kept, add...)
}

// server is a serving process.
type server struct {
	t     *testing.T
	cmd   *exec.Cmd
	url   string
	key   string
	notes *safeBuffer
}

type safeBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *safeBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

const devKey = "any-string"

// serve starts `holdfast serve --dev` and waits until it says that it listens.
func serve(t *testing.T, db string, args ...string) *server {
	t.Helper()
	return start(t, devKey, []string{"HOLDFAST_DEV_KEY=" + devKey}, append([]string{"serve", "--dev", "--db", db, "--listen", "127.0.0.1:0"}, args...)...)
}

func start(t *testing.T, key string, env []string, args ...string) *server {
	t.Helper()
	s := &server{t: t, key: key, notes: &safeBuffer{}, cmd: command(t, args...)}
	s.cmd.Env = environment(env...)
	s.cmd.Stderr = s.notes
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	url, found := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !found {
		_ = s.cmd.Wait()
		t.Fatalf("it said %q (%v)\n%s", line, err, s.notes)
	}
	s.url = url
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return s
}

// kill is SIGKILL: the process gets no chance to tidy up.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// interrupt asks the process to stop and returns its exit code.
func (s *server) interrupt() int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		s.t.Fatal(err)
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.ExitCode()
}

// reply is an answer over HTTP.
type reply struct {
	status int
	header http.Header
	body   map[string]any
}

var client = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// call sends a request and fails the test where no answer comes.
func (s *server) call(method, path, key string, body any) reply {
	s.t.Helper()
	r, err := s.try(method, path, key, body)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *server) try(method, path, key string, body any) (reply, error) {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return reply{}, err
		}
		content = bytes.NewReader(encoded)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, content)
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Authorization", "Bearer "+s.key)
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := client.Do(request)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = response.Body.Close() }()
	r := reply{status: response.StatusCode, header: response.Header}
	err = json.NewDecoder(response.Body).Decode(&r.body)
	return r, err
}

// want fails the test on another status.
func (r reply) want(t *testing.T, status int) reply {
	t.Helper()
	if r.status != status {
		t.Fatalf("got %d %v, want %d", r.status, r.body, status)
	}
	return r
}

func (r reply) text(field string) string {
	text, _ := r.body[field].(string)
	return text
}

func (r reply) number(path ...string) int64 {
	var at any = r.body
	for _, step := range path {
		at = at.(map[string]any)[step]
	}
	return int64(at.(float64))
}

type object = map[string]any

// account makes an account with that many credits that never end.
func (s *server) account(name string, credits int) {
	s.t.Helper()
	s.call("PUT", "/v1/accounts/"+name, "", object{}).want(s.t, 200)
	s.call("POST", "/v1/accounts/"+name+"/grants", "grant-"+name, object{"unit": "credit", "amount": credits, "source": "purchase"}).want(s.t, 201)
}

func (s *server) reserve(account, key string) reply {
	s.t.Helper()
	return s.call("POST", "/v1/reservations", key, object{"account": account, "feature": "text.improve"})
}

func database(t *testing.T) string {
	return "sqlite:" + filepath.Join(t.TempDir(), "holdfast.db")
}

func verified(t *testing.T, db string) {
	t.Helper()
	out, notes, code := holdfast(t, "verify", "--db", db)
	if code != 0 || !strings.Contains(out, "every ledger adds up") {
		t.Fatalf("verify: exit %d\n%s%s", code, out, notes)
	}
}

func each(n int, do func(i int)) {
	var wait sync.WaitGroup
	for i := range n {
		wait.Go(func() { do(i) })
	}
	wait.Wait()
}

func name(prefix string, i int) string { return fmt.Sprintf("%s%d", prefix, i) }
