package redistest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"sync"

	"github.com/holdfast-dev/holdfast/internal/debian"
)

// errNone says what to install.
var errNone = errors.New("these tests need redis-server and found none: set REDIS_SERVER to the program, or install it " +
	"(Debian: apt-get install redis-server; macOS: brew install redis), or run with -short")

// find looks for the program once per run, and says which one it is.
var find = sync.OnceValues(func() (program string, err error) {
	program, source := os.Getenv("REDIS_SERVER"), "by REDIS_SERVER"
	if program == "" {
		program, source = onThisMachine(), "in PATH"
	}
	if program == "" {
		if err := debian.Install("redis-server"); err != nil {
			return "", errors.Join(errNone, fmt.Errorf("the package of Debian: %w", err))
		}
		program, source = onThisMachine(), "installed from Debian's packages"
	}
	version, err := versionOf(program)
	if err != nil {
		return "", errors.Join(errNone, err)
	}
	fmt.Printf("tests use Redis %s, %s (%s)\n", version, program, source)
	return program, nil
})

func onThisMachine() string {
	for _, name := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

var versionNumber = regexp.MustCompile(`v=(\d[\w.]*)`)

// versionOf asks a program for its version.
func versionOf(program string) (string, error) {
	out, err := exec.Command(program, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", program, err)
	}
	found := versionNumber.FindSubmatch(out)
	if found == nil {
		return "", fmt.Errorf("%s is no Redis server: it says %q", program, out)
	}
	return string(found[1]), nil
}
