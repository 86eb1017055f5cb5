//go:build unix

package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// lower makes a command of root's run as another user. Others run it as themselves.
func lower(command *exec.Cmd) {
	apart(command)
	if uid, gid, err := lowerUser(); err == nil && os.Geteuid() == 0 {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid}
	}
}

// apart keeps a command away from the signals of our terminal: its end is decided by the watchdog.
func apart(command *exec.Cmd) { command.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// lowerUser is postgres where there is one, or nobody.
func lowerUser() (uid, gid uint32, err error) {
	for _, name := range []string{"postgres", "nobody"} {
		found, unknown := user.Lookup(name)
		if unknown != nil {
			err = unknown
			continue
		}
		u, uidErr := strconv.ParseUint(found.Uid, 10, 32)
		g, gidErr := strconv.ParseUint(found.Gid, 10, 32)
		if uidErr == nil && gidErr == nil {
			return uint32(u), uint32(g), nil
		}
	}
	return 0, 0, fmt.Errorf("root needs another user to run PostgreSQL as: %w", err)
}

// giveAway makes a directory of root's the property of the user that the server runs as.
func giveAway(directory string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	uid, gid, err := lowerUser()
	if err != nil {
		return err
	}
	return os.Chown(directory, int(uid), int(gid))
}
