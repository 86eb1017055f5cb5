package sqlite

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// limitedEnv makes the test binary run with the troubles that would strike the whole process.
const limitedEnv = "HOLDFAST_TEST_LIMITED"

// The limit holds for the process, and so for the log that go test lets it write: it gets a process without one.
func TestSQLiteIsAStoreAlsoWhereFilesCannotGrow(t *testing.T) {
	child := exec.Command(os.Args[0], "-test.run", "^TestSQLiteIsAStore$/^an_accident", "-test.v")
	child.Env = append(os.Environ(), limitedEnv+"=yes")
	out, err := child.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestSQLiteIsAStore/an_accident_is_told_as_what_it_is,_and_leaves_all_or_nothing/writing_fails_during_commit")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// systemTroubles need the operating system's help. No file may grow while the limit is in force, so that COMMIT fails
// half way through writing the WAL: what is in the file then, only the next reading tells.
func systemTroubles(*DB) []storetest.Trouble {
	if os.Getenv(limitedEnv) == "" {
		return nil
	}
	return []storetest.Trouble{{
		Name: "writing fails during commit", When: storetest.AtSave, Kind: store.InDoubt,
		Begin: func(t *testing.T) func() {
			signal.Ignore(syscall.SIGXFSZ)
			var before syscall.Rlimit
			if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
				t.Fatal(err)
			}
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1, Max: before.Max}); err != nil {
				t.Fatal(err)
			}
			return func() {
				if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
					t.Error(err)
				}
				signal.Reset(syscall.SIGXFSZ)
			}
		},
	}}
}
