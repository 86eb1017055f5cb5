package sqlite

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
)

func TestANewFileIsItsOwnersAlone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("windows has no such modes")
	}
	path := filepath.Join(t.TempDir(), "holdfast.db")
	db, err := Open(t.Context(), path, Options{Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	for _, name := range []string{path, path + "-wal", path + "-shm"} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if mode := info.Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %o", filepath.Base(name), mode)
		}
	}
}
