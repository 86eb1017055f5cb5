package pgtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Server is a PostgreSQL server of ours. Its methods fail the test where they cannot do what they say; they are not for
// concurrent use.
type Server struct {
	installation *installation
	directory    string // of its data and its log; gone with the watchdog
	port         int
	settings     []string
	process      *exec.Cmd     // nil while it is stopped
	exited       chan struct{} // closed when the process is gone
	watchdog     *exec.Cmd
	release      io.Closer // what the watchdog waits for the end of
}

// durable are the settings of every server, before those of a test. The time zone is far from UTC and from the one that
// tests run in, so that nothing depends on it.
var durable = []string{
	"fsync=on", "synchronous_commit=on", "full_page_writes=on",
	"listen_addresses=127.0.0.1", "unix_socket_directories=",
	"max_connections=200", "timezone=Asia/Kathmandu", "log_min_messages=warning",
}

// Start runs a server of the test's own, with further settings as postgresql.conf has them: "max_connections=20". It ends
// with the test.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	skipIfShort(t)
	found, err := find()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(found, settings...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// URL leads to a database of the server; "" is the one named postgres, which holds nothing.
func (s *Server) URL(database string) string {
	if database == "" {
		database = "postgres"
	}
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", s.Address(), database)
}

// Address is where the server listens, also while it is stopped.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Directory is where the data is.
func (s *Server) Directory() string { return filepath.Join(s.directory, "data") }

// Stop shuts the server down: transactions are undone, connections cut, everything written.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGINT)
}

// Kill ends the server as a power cut would: all processes at once, nothing written. The next Run recovers from the WAL.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	s.signal(t, syscall.SIGQUIT)
}

// Run starts a server again that was stopped or killed, and returns when it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	if s.process != nil {
		t.Fatal("the server runs already")
	}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) signal(t testing.TB, how syscall.Signal) {
	t.Helper()
	if s.process == nil {
		t.Fatal("the server is stopped already")
	}
	if err := s.process.Process.Signal(how); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	s.process = nil
}

// newServer makes a server in a directory of its own, under a watchdog, and starts it.
func newServer(from *installation, settings ...string) (s *Server, err error) {
	directory, err := os.MkdirTemp("", "holdfast-postgres-")
	if err != nil {
		return nil, err
	}
	s = &Server{installation: from, directory: directory, settings: settings}
	if err := s.watch(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end())
		}
	}()
	if err := giveAway(directory); err != nil {
		return nil, err
	}
	// Nothing of the empty database is worth an fsync; what tests write later is synced.
	initialize := s.command("initdb", "--pgdata", s.Directory(), "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync")
	if out, err := initialize.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	for range 3 {
		if s.port, err = freePort(); err != nil {
			return nil, err
		}
		if err = s.run(); err == nil { // else somebody else has taken the port meanwhile
			return s, nil
		}
	}
	return nil, err
}

// command runs a program of the installation as a user who may run it: PostgreSQL refuses to be root.
func (s *Server) command(name string, arguments ...string) *exec.Cmd {
	command := exec.Command(s.installation.program(name), arguments...)
	command.Dir = s.directory
	command.Env = append(os.Environ(), "LC_ALL=C", "PGTZ=")
	lower(command)
	return command
}

// watch starts the watchdog: a shell that reads from a pipe which this process holds open. When the pipe ends, because the
// test has ended or its process has died in whatever way, it stops the server and removes the directory.
func (s *Server) watch() (err error) {
	s.watchdog = exec.Command("/bin/sh", "-c", watchdog, "holdfast-watchdog", s.directory)
	s.watchdog.Dir = "/"
	apart(s.watchdog)
	if s.release, err = s.watchdog.StdinPipe(); err != nil {
		return err
	}
	return s.watchdog.Start()
}

// The first line of postmaster.pid is the process. It is killed the hard way: nobody will read the data again.
const watchdog = `
	read -r nothing
	if [ -f "$1/data/postmaster.pid" ]; then
		pid=$(head -n 1 "$1/data/postmaster.pid")
		kill -QUIT "$pid" 2>/dev/null
		while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
	fi
	rm -rf "$1"
`

// end lets the watchdog do its work, and waits for it.
func (s *Server) end() error {
	if err := s.release.Close(); err != nil {
		return err
	}
	return s.watchdog.Wait()
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

func (s *Server) run() error {
	arguments := []string{"-D", s.Directory(), "-p", strconv.Itoa(s.port)}
	for _, setting := range append(durable, s.settings...) {
		arguments = append(arguments, "-c", setting)
	}
	process := s.command("postgres", arguments...)
	log, err := os.OpenFile(filepath.Join(s.directory, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	process.Stdout, process.Stderr = log, log
	if err := process.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = process.Wait() // how it ended is in its log
	}()
	s.process, s.exited = process, exited
	if err := s.answers(); err != nil {
		_ = process.Process.Signal(syscall.SIGQUIT)
		<-exited
		s.process = nil
		return fmt.Errorf("%w\n%s", err, s.Log())
	}
	return nil
}

// startFor is how long a server may take to start, recovery included.
const startFor = time.Minute

// answers returns when the server does, or is gone.
func (s *Server) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), startFor)
	defer cancel()
	for ctx.Err() == nil {
		conn, err := pgx.Connect(ctx, s.URL(""))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-s.exited:
			return errors.New("the server ended while it was starting")
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return errors.New("the server does not answer")
}

// Log is what the server has written about itself.
func (s *Server) Log() string {
	text, err := os.ReadFile(filepath.Join(s.directory, "log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}
