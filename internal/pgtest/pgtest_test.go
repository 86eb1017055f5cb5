package pgtest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// serveEnv makes the test binary a process that starts a server, says where it is, and waits to be killed.
const serveEnv = "HOLDFAST_TEST_PGTEST_SERVE"

func TestMain(m *testing.M) {
	if os.Getenv(serveEnv) != "" {
		found, err := find()
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		server, err := newServer(found)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(server.Address(), server.directory)
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent is gone
		runtime.KeepAlive(server)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestAServerEndsWithTheProcessThatStartedIt(t *testing.T) {
	skipIfShort(t)
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), serveEnv+"=yes")
	if _, err := child.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill(); _ = child.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	address, directory, found := strings.Cut(strings.TrimSpace(line), " ")
	if !found {
		t.Fatalf("the other process says %q", line)
	}
	answers := func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	}
	there := func() bool {
		_, err := os.Stat(directory)
		return err == nil
	}
	if !answers() || !there() {
		t.Fatal("the server does not run")
	}
	if err := child.Process.Kill(); err != nil { // SIGKILL: it cleans nothing up
		t.Fatal(err)
	}
	for answers() || there() {
		if t.Context().Err() != nil {
			t.Fatal("the server outlives its process")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func TestAServerKeepsWhatWasCommittedWhenItIsKilled(t *testing.T) {
	server := Start(t, "max_connections=17")
	url := server.Database(t)
	execute := func(text string) {
		t.Helper()
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	execute(`CREATE TABLE kept (n integer)`)
	server.Kill(t)
	if _, err := pgx.Connect(t.Context(), url); err == nil {
		t.Error("a killed server answers")
	}
	server.Run(t)
	execute(`INSERT INTO kept VALUES (1)`)
	server.Stop(t)
	server.Run(t)
	execute(`DO $$ BEGIN
		ASSERT (SELECT count(*) FROM kept) = 1, 'the row is lost';
		ASSERT current_setting('max_connections') = '17' AND current_setting('fsync') = 'on' AND current_setting('synchronous_commit') = 'on';
	END $$`)
}

func TestEveryTestHasADatabaseOfItsOwn(t *testing.T) {
	first, second := New(t), New(t)
	if first == second {
		t.Fatalf("both tests got %s", first)
	}
	for _, url := range []string{first, second} {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Exec(t.Context(), `INSERT INTO holdfast.projects VALUES ('shop')`); err != nil {
			t.Errorf("not migrated, or not empty: %v", err)
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestThePackageOfNPMIsMadeReady(t *testing.T) {
	native := filepath.Join(t.TempDir(), "native")
	for name, text := range map[string]string{
		"bin/postgres": "#!/bin/sh\n", "lib/libpq.so.5.15": "library",
		"pg-symlinks.json": `[{"source":"native/lib/libpq.so.5.15","target":"native/lib/libpq.so"},{"source":"native/lib/libpq.so.5.15","target":"native/lib/libpq.so.5"}]`,
	} {
		path := filepath.Join(native, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the second time finds it done
		if err := makeReady(native); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"libpq.so", "libpq.so.5"} {
		if text, err := os.ReadFile(filepath.Join(native, "lib", name)); err != nil || string(text) != "library" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	if info, err := os.Stat(filepath.Join(native, "bin", "postgres")); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf("the program cannot be executed: %v", err)
	}
	if err := os.WriteFile(filepath.Join(native, "pg-symlinks.json"), []byte(`[{"source":"native/lib/x","target":"native/../../outside"}]`), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := makeReady(native); err == nil {
		t.Error("a link was made outside the package")
	}
}

func TestWhoHasNoPostgreSQLIsToldWhatToInstall(t *testing.T) {
	for _, words := range []string{"TEST_DATABASE_URL", "apt-get install postgresql", "npm", "-short"} {
		if !strings.Contains(errNone.Error(), words) {
			t.Errorf("%q does not mention %s", errNone, words)
		}
	}
}
