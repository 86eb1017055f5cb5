package sqlite

import (
	"os/signal"
	"syscall"
	"testing"

	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/storetest"
)

// systemTroubles need the operating system's help. No file may grow while the limit is in force, so that COMMIT fails
// half way through writing the WAL: what is in the file then, only the next reading tells.
func systemTroubles(*DB) []storetest.Trouble {
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
