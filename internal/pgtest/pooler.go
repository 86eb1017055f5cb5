package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Pooler runs PgBouncer, which lends sessions for one transaction, between the test and the database that a URL leads to,
// with so many sessions, and returns the URL that leads through it. Where PgBouncer is not installed the test is skipped:
// it is no part of PostgreSQL (Debian: apt-get install pgbouncer).
func Pooler(t testing.TB, to string, sessions int) string {
	t.Helper()
	skipIfShort(t)
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Skip("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
	}
	p, err := newPooler(program, to, sessions)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.end(); err != nil {
			t.Error(err)
		}
	})
	return p.url
}

type pooler struct {
	url       string
	directory string
	keeper    *exec.Cmd // a shell that has PgBouncer as its child, and ends it when this process ends its input
	release   func() error
}

func newPooler(program, to string, sessions int) (p *pooler, err error) {
	server, err := url.Parse(to)
	if err != nil {
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	directory, err := os.MkdirTemp("", "holdfast-pooler-")
	if err != nil {
		return nil, err
	}
	configuration := filepath.Join(directory, "pgbouncer.ini")
	err = errors.Join(
		os.WriteFile(configuration, fmt.Appendf(nil, poolerConfiguration, server.Hostname(), server.Port(), server.User.Username(), port, sessions), 0o644),
		giveAway(directory),
	)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	through := *server
	through.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	p = &pooler{url: through.String(), directory: directory}
	p.keeper = exec.Command("/bin/sh", "-c", keeper, "holdfast-pooler", program, configuration, directory)
	p.keeper.Dir = directory
	lower(p.keeper)
	input, err := p.keeper.StdinPipe()
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	p.release = input.Close
	if err := p.keeper.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(directory))
	}
	if err := p.answers(); err != nil {
		log, _ := os.ReadFile(filepath.Join(directory, "log"))
		return nil, errors.Join(fmt.Errorf("%w\n%s", err, log), p.end())
	}
	return p, nil
}

const poolerConfiguration = `[databases]
* = host=%s port=%s user=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[4]d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = %[5]d
max_client_conn = 500
ignore_startup_parameters = extra_float_digits
`

const keeper = `
	"$1" -q "$2" >"$3/log" 2>&1 &
	pid=$!
	read -r nothing
	kill -KILL $pid
	wait $pid
	rm -rf "$3"
`

func (p *pooler) answers() error {
	ctx, cancel := context.WithTimeout(context.Background(), startFor)
	defer cancel()
	err := errors.New("the pooler does not answer")
	for err != nil && ctx.Err() == nil {
		var conn *pgx.Conn
		if conn, err = pgx.Connect(ctx, p.url); err == nil {
			return conn.Close(ctx)
		}
		time.Sleep(20 * time.Millisecond)
	}
	return err
}

func (p *pooler) end() error {
	if err := p.release(); err != nil {
		return err
	}
	err := p.keeper.Wait()
	var status *exec.ExitError
	if errors.As(err, &status) { // of what it has killed
		err = nil
	}
	return errors.Join(err, os.RemoveAll(p.directory))
}
