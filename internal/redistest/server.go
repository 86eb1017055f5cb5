package redistest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Server is a Redis server of ours. Its methods fail the test where they cannot do what they say; they are not for
// concurrent use.
type Server struct {
	program   string
	directory string // of its data, its log and its process id; gone with the watchdog
	port      int
	settings  []string
	process   *exec.Cmd     // nil while it is stopped
	exited    chan struct{} // closed when the process is gone
	watchdog  *exec.Cmd
	release   io.Closer // what the watchdog waits for the end of
}

// durable are the settings of every server, before those of a test: nothing is acknowledged that a crash could lose.
var durable = []string{
	"--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always", "--save", "", "--daemonize", "no", "--protected-mode", "no",
}

// Start runs a server of the test's own, with further settings as its command line has them: "--requirepass", "secret". It
// ends with the test.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs Redis: run it without -short")
	}
	program, err := find()
	if err != nil {
		t.Fatal(err)
	}
	directory, err := os.MkdirTemp("", "holdfast-redis-")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{program: program, directory: directory, settings: settings}
	if err := s.watch(); err != nil {
		t.Fatal(errors.Join(err, os.RemoveAll(directory)))
	}
	t.Cleanup(func() {
		if err := s.end(); err != nil {
			t.Error(err)
		}
	})
	for range 3 {
		if s.port, err = freePort(); err == nil {
			err = s.run()
		}
		if err == nil { // else somebody else has taken the port meanwhile
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// Address is where the server listens, also while it is stopped.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// URL leads to the server, without a password.
func (s *Server) URL() string { return "redis://" + s.Address() + "/0" }

// Kill ends the server at once. The next Run has what was acknowledged.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.process == nil {
		t.Fatal("the server is stopped already")
	}
	if err := s.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-s.exited
	s.process = nil
}

// Run starts a server again that was killed, and returns when it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	if s.process != nil {
		t.Fatal("the server runs already")
	}
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// watch starts the watchdog: a shell that reads from a pipe which this process holds open. When the pipe ends, because the
// test has ended or its process has died in whatever way, it kills the server and removes the directory.
func (s *Server) watch() (err error) {
	s.watchdog = exec.Command("/bin/sh", "-c", watchdog, "holdfast-watchdog", s.directory)
	s.watchdog.Dir = "/"
	if s.release, err = s.watchdog.StdinPipe(); err != nil {
		return err
	}
	return s.watchdog.Start()
}

// A signal of the terminal is for the test, which then ends.
const watchdog = `
	trap '' INT HUP TERM
	read -r nothing
	if [ -f "$1/pid" ]; then
		pid=$(cat "$1/pid")
		kill -KILL "$pid" 2>/dev/null
		while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
	fi
	rm -rf "$1"
`

// end lets the watchdog do its work, and waits for it.
func (s *Server) end() error {
	if s.process != nil { // ours to wait for, so that its number is free when the watchdog looks
		_ = s.process.Process.Kill()
		<-s.exited
	}
	return errors.Join(s.release.Close(), s.watchdog.Wait())
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

func (s *Server) run() error {
	arguments := append([]string{"--port", strconv.Itoa(s.port), "--dir", s.directory}, durable...)
	process := exec.Command(s.program, append(arguments, s.settings...)...)
	process.Dir = s.directory
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
	err = os.WriteFile(filepath.Join(s.directory, "pid"), []byte(strconv.Itoa(process.Process.Pid)), 0o600)
	if err == nil {
		err = s.answers()
	}
	if err != nil {
		_ = process.Process.Kill()
		<-exited
		s.process = nil
		return fmt.Errorf("%w\n%s", err, s.Log())
	}
	return nil
}

// startFor is how long a server may take to start, reading its file included.
const startFor = time.Minute

// answers returns when the server does, or is gone. One that is reading its file still says so: -LOADING.
func (s *Server) answers() error {
	deadline := time.After(startFor)
	for {
		if line := s.ping(); line != "" && !strings.HasPrefix(line, "-LOADING") {
			return nil
		}
		select {
		case <-s.exited:
			return errors.New("the server ended while it was starting")
		case <-deadline:
			return errors.New("the server does not answer")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// ping is the first line of the answer; empty: there is none.
func (s *Server) ping() string {
	connection, err := net.DialTimeout("tcp", s.Address(), time.Second)
	if err != nil {
		return ""
	}
	defer func() { _ = connection.Close() }()
	_ = connection.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(connection, "PING\r\n"); err != nil {
		return ""
	}
	line, _ := bufio.NewReader(connection).ReadString('\n')
	return line
}

// Log is what the server has written about itself.
func (s *Server) Log() string {
	text, err := os.ReadFile(filepath.Join(s.directory, "log"))
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text))
}
