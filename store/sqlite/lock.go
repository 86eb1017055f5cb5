package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// fileLock is the operating system's lock on PATH.lock. It ends with its process, however that ends. The file stays:
// removing it would let two processes lock two files of one name.
type fileLock struct{ file *os.File }

// role is what the holder of the lock does, in the words of the message that others get.
type role string

const (
	serves   role = "serves"
	migrates role = "migrates"
)

const (
	lockPoll = 20 * time.Millisecond
	// lockSettle is how long a serving holder is asked again before it is believed: the words in the file may be those of
	// a process that was killed, while the lock is already another's, who migrates and is about to let go.
	lockSettle = 200 * time.Millisecond
)

// lockFile takes the lock for the role. It waits for a migration, up to patience, and not for a process that serves. The
// holder is announced as one that migrates: whoever is to serve looks at the schema first, and says serving afterwards.
func lockFile(ctx context.Context, path string, as role, patience time.Duration) (_ *fileLock, err error) {
	const op = "lock the database file"
	file, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, &store.Error{Kind: store.Unavailable, Op: op, Hint: "let the process write to the database's directory", Err: err}
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	for began := time.Now(); ; {
		err := tryLock(file)
		if err == nil {
			l := &fileLock{file}
			l.announce(migrates)
			return l, nil
		}
		if !errors.Is(err, errLocked) {
			return nil, &store.Error{Kind: store.Unavailable, Op: op, Err: err}
		}
		waited, holder := time.Since(began), readHolder(file)
		if waited >= patience || waited >= lockSettle && strings.HasSuffix(holder, string(serves)) {
			return nil, heldBy(op, path, holder, as)
		}
		select {
		case <-time.After(lockPoll):
		case <-ctx.Done():
			return nil, ended(ctx, op)
		}
	}
}

// errLocked is what tryLock returns where somebody else holds the lock.
var errLocked = errors.New("another process holds the lock")

func heldBy(op, path, holder string, as role) error {
	if holder == "" {
		holder = "another process uses"
	}
	hint := "stop that process first, or serve another file; commands that only read, or work beside it, need no lock"
	if as == migrates {
		hint = "the file has an older schema and may not change under that process: stop it, then run holdfast serve of this version"
	}
	return &store.Error{Kind: store.Fatal, Op: op, Hint: hint, Err: fmt.Errorf("%s %s", holder, path)}
}

// announce leaves word for whoever finds the lock taken. The lock itself does not depend on it.
func (l *fileLock) announce(as role) {
	l.write(fmt.Sprintf("process %d %s", os.Getpid(), as))
}

func (l *fileLock) write(word string) {
	if l.file.Truncate(0) == nil {
		_, _ = l.file.WriteAt([]byte(word), 0)
	}
}

func readHolder(file *os.File) string {
	word, _ := io.ReadAll(io.NewSectionReader(file, 0, 100))
	return strings.TrimSpace(string(word))
}

func (l *fileLock) release() error {
	if l == nil {
		return nil
	}
	l.write("")
	return l.file.Close()
}

// resolve is the one name of the file that path leads to, symbolic links followed, whether the file is there or not: two
// names of one file must meet at one lock. (Two hard links do not, and SQLite itself forbids them.)
func resolve(path string) (string, error) {
	for range 40 { // as many links as Linux follows
		resolved, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Abs(resolved)
		}
		if !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
		target, err := os.Readlink(path)
		if err != nil { // no link: a file that is to be made
			directory, err := filepath.EvalSymlinks(filepath.Dir(path))
			if err != nil {
				return "", err
			}
			return filepath.Abs(filepath.Join(directory, filepath.Base(path)))
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		path = target
	}
	return "", fmt.Errorf("%s: too many symbolic links", path)
}
