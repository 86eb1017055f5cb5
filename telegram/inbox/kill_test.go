package inbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store/postgres"
	"github.com/holdfast-dev/holdfast/store/sqlite"
	"github.com/holdfast-dev/holdfast/telegram/inbox"
)

// processVariable makes this test binary the process that is killed: its value is the database, behind what it does with
// updates, "hang" or "handle".
const processVariable = "HOLDFAST_TEST_INBOX"

func TestMain(m *testing.M) {
	if what := os.Getenv(processVariable); what != "" {
		if err := serveUntilKilled(what); err != nil {
			fmt.Println(err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// serveUntilKilled tells on standard output where it listens, and what it handles.
func serveUntilKilled(what string) error {
	ctx := context.Background()
	does, where, _ := strings.Cut(what, " ")
	var s database
	var err error
	if strings.HasPrefix(where, "postgres") {
		s, err = postgres.Open(ctx, where, postgres.Options{})
	} else {
		s, err = sqlite.Open(ctx, where, sqlite.Options{Serve: true})
	}
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var writing sync.Mutex
	handle := func(_ context.Context, u inbox.Update) error {
		writing.Lock()
		fmt.Println(does, u.ID)
		writing.Unlock()
		if does == "hang" {
			select {}
		}
		return nil
	}
	in := inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: handle, Alone: true})
	fmt.Println("http://" + listener.Addr().String())
	go func() { _ = http.Serve(listener, in) }()
	return in.Run(ctx)
}

type process struct {
	command *exec.Cmd
	url     string
	said    *bufio.Reader
}

func begin(t *testing.T, does, where string) *process {
	t.Helper()
	p := &process{command: exec.Command(os.Args[0])}
	p.command.Env = append(os.Environ(), processVariable+"="+does+" "+where)
	p.command.Stderr = os.Stderr
	out, err := p.command.StdoutPipe()
	must(t, err)
	must(t, p.command.Start())
	t.Cleanup(func() { _ = p.kill() })
	p.said = bufio.NewReader(out)
	p.url = p.line(t)
	return p
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	line, err := p.said.ReadString('\n')
	if err != nil && err != io.EOF || line == "" {
		t.Fatalf("the process said %q: %v", line, err)
	}
	return strings.TrimSpace(line)
}

// kill is SIGKILL.
func (p *process) kill() error {
	_ = p.command.Process.Kill()
	return p.command.Wait()
}

// Everything that was answered with 200 is handled, whenever the process is killed: before it was begun, while it was
// handled, and queries that were being answered too.
func TestAProcessThatIsKilledBetweenStoringAndHandlingLosesNothing(t *testing.T) {
	for name, where := range map[string]func(t *testing.T) string{
		"sqlite":   func(t *testing.T) string { return filepath.Join(t.TempDir(), "holdfast.db") },
		"postgres": func(t *testing.T) string { return pgtest.New(t) },
	} {
		t.Run(name, func(t *testing.T) {
			place := where(t)
			first := begin(t, "hang", place)
			const people, each = 5, 4
			for n := range int64(each) {
				for person := range int64(people) {
					told(t, first.url, message(100*person+n, 1000+person))
				}
			}
			told(t, first.url, callback(9001, 1000), preCheckout(9002, 1001))
			began := map[string]bool{}
			for range people + 2 { // the first of each, and the queries
				began[first.line(t)] = true
			}
			if !began["hang 0"] || !began["hang 400"] || !began["hang 9001"] || !began["hang 9002"] || len(began) != people+2 {
				t.Errorf("it began with %v", began)
			}
			_ = first.kill()

			second := begin(t, "handle", place)
			told(t, second.url, message(0, 1000), callback(9001, 1000)) // which Telegram tells again
			var handled []string
			for range people*each + 2 {
				handled = append(handled, second.line(t))
			}
			for person := range people {
				var wanted, got []string
				for n := range each {
					wanted = append(wanted, fmt.Sprint("handle ", 100*person+n))
				}
				for _, line := range handled {
					if slices.Contains(wanted, line) {
						got = append(got, line)
					}
				}
				if !slices.Equal(got, wanted) {
					t.Errorf("person %d was handled as %v", person, got)
				}
			}
			for _, query := range []string{"handle 9001", "handle 9002"} {
				if !slices.Contains(handled, query) {
					t.Errorf("nothing became of %s: %v", query, handled)
				}
			}
		})
	}
}
