// Package natstest gives tests real NATS servers with JetStream on disk: the server's own module, in a process of its own,
// so that it can be killed.
//
//	Start(t)  ──► a server of the test's own, empty, to be killed and started again
//
// Tests of whoever speaks to NATS call it. Nothing needs to be installed: the process is this very test binary, which
// becomes a server where the environment says so, and it ends when the pipe to the test does. With -short, which promises
// to need no server, a test skips.
//
// A server syncs every message before it acknowledges it, and listens on the loopback address alone. What it never does:
// run inside the process that tests, keep anything after the test, or be part of the product.
package natstest

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// variable holds the settings of the server that this process is to be.
const variable = "HOLDFAST_TEST_NATS_SERVER"

// settings are what a server is started with.
type settings struct {
	Directory      string
	Port           int // server.RANDOM_PORT: any free one
	User, Password string
	Publish        []string // what the user may publish to; empty: anything
}

func init() {
	if text := os.Getenv(variable); text != "" {
		os.Exit(serve(text))
	}
}

// serve is the server's process: it says where it listens, and ends when nobody holds its standard input open any more.
func serve(text string) (code int) {
	fail := func(err error) int {
		_, _ = fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var with settings
	if err := json.Unmarshal([]byte(text), &with); err != nil {
		return fail(err)
	}
	options := &server.Options{Host: "127.0.0.1", Port: with.Port, JetStream: true, StoreDir: with.Directory, SyncAlways: true, NoLog: true, NoSigs: true}
	if with.User != "" {
		options.Users = []*server.User{{Username: with.User, Password: with.Password}}
		if len(with.Publish) > 0 {
			options.Users[0].Permissions = &server.Permissions{
				Publish: &server.SubjectPermission{Allow: with.Publish}, Subscribe: &server.SubjectPermission{Allow: []string{"_INBOX.>"}},
			}
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		return fail(err)
	}
	s.Start()
	if !s.ReadyForConnections(startFor) {
		return fail(errors.New("the server does not answer"))
	}
	fmt.Println(s.ClientURL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// startFor is how long a server may take to start, reading its files included.
const startFor = time.Minute

// Server is a NATS server of ours. Its methods fail the test where they cannot do what they say; they are not for
// concurrent use.
type Server struct {
	with    settings
	url     string
	process *exec.Cmd // nil while it is stopped
	hold    io.Closer // its standard input
}

// Start runs a server of the test's own. It ends with the test.
func Start(t testing.TB) *Server { return StartWith(t, "", "") }

// StartWith is Start for a server that asks for a user and a password. The user may publish to the given subjects and read
// what is answered, or do everything where none are given.
func StartWith(t testing.TB, user, password string, publish ...string) *Server {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a NATS server: run it without -short")
	}
	s := &Server{with: settings{Directory: t.TempDir(), Port: server.RANDOM_PORT, User: user, Password: password, Publish: publish}}
	s.Run(t)
	t.Cleanup(func() {
		if s.process != nil {
			s.Kill(t)
		}
	})
	return s
}

// URL leads to the server, also while it is stopped, without a user and password.
func (s *Server) URL() string { return s.url }

// Address is the URL's host and port.
func (s *Server) Address() string { return strings.TrimPrefix(s.url, "nats://") }

// Kill ends the server at once. The next Run has what was acknowledged.
func (s *Server) Kill(t testing.TB) {
	t.Helper()
	if s.process == nil {
		t.Fatal("the server is stopped already")
	}
	if err := s.process.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = s.process.Wait()
	_ = s.hold.Close()
	s.process = nil
}

// Run starts a server that was killed at the same address, and returns when it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	if s.process != nil {
		t.Fatal("the server runs already")
	}
	text, err := json.Marshal(s.with)
	if err != nil {
		t.Fatal(err)
	}
	process := exec.Command(os.Args[0])
	process.Env = append(os.Environ(), variable+"="+string(text))
	process.Stderr = os.Stderr
	hold, err := process.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := process.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	s.process, s.hold = process, hold
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		s.Kill(t)
		t.Fatalf("the server ended while it was starting: %v", err)
	}
	parsed, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	parsed.User = nil
	s.url = parsed.String()
	if _, err := fmt.Sscan(parsed.Port(), &s.with.Port); err != nil {
		t.Fatal(err)
	}
}
