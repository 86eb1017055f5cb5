// Package debian installs packages of the distribution that tests need, where that is possible: a database server, a
// browser. Only the helpers of tests call it. It never starts a service, and does nothing on machines of other kinds.
package debian

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// ErrNotHere says that this machine cannot install Debian's packages: it has no apt-get, or the user is not root.
var ErrNotHere = errors.New("needs apt-get and root")

// waitFor bounds the wait for another apt-get: several test binaries install what they need at once.
const waitFor = 5 * time.Minute

// Install brings the lists up to date and installs one package without what it only recommends.
func Install(name string) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return ErrNotHere
	}
	for _, arguments := range [][]string{{"update", "-q"}, {"install", "-y", "-q", "--no-install-recommends", name}} {
		if err := run(apt, arguments...); err != nil {
			return err
		}
	}
	return nil
}

// run repeats while another apt-get holds a lock: the one of `update` is not waited for by itself.
func run(apt string, arguments ...string) error {
	once := func() (string, error) {
		install := exec.Command(apt, append([]string{"-o", "DPkg::Lock::Timeout=300"}, arguments...)...)
		install.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "RUNLEVEL=1") // RUNLEVEL: no service starts
		out, err := install.CombinedOutput()
		return strings.TrimSpace(string(out)), err
	}
	deadline := time.Now().Add(waitFor)
	out, err := once()
	for err != nil && strings.Contains(out, "Could not get lock") && time.Now().Before(deadline) {
		time.Sleep(time.Second) // the other one works
		out, err = once()
	}
	if err != nil {
		return fmt.Errorf("apt-get %s: %w: %s", arguments[0], err, out[strings.LastIndex(out, "\n")+1:])
	}
	return nil
}
