package browser

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/debian"
)

// errNone says what to install.
var errNone = errors.New("these tests need Chromium or Chrome and found none: set CHROMIUM to its program, or install it " +
	"(Debian: apt-get install chromium; macOS: brew install --cask chromium), or run with -short")

// usual are the names in PATH, and the places where it is installed without being there.
var usual = []string{
	"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "/usr/bin/chromium",
	"/Applications/Chromium.app/Contents/MacOS/Chromium", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
}

// find looks for a program once per run, and says once which one it is.
var find = sync.OnceValues(func() (string, error) {
	program, told, err := choose(os.Getenv("CHROMIUM"), usual, fromDebian)
	if err == nil {
		fmt.Println("tests use", told)
	}
	return program, err
})

// choose returns a program that runs, and how to tell of it.
func choose(chosen string, names []string, install func() error) (program, told string, err error) {
	if chosen != "" {
		if program, told = look(chosen, "of CHROMIUM"); program == "" {
			err = fmt.Errorf("CHROMIUM is %q, which is no browser that runs here: set it to the program of Chromium or Chrome, or to nothing", chosen)
		}
		return program, told, err
	}
	for _, name := range names {
		if program, told = look(name, "on this machine"); program != "" {
			return program, told, nil
		}
	}
	if err := install(); err != nil {
		return "", "", errors.Join(errNone, err)
	}
	for _, name := range names {
		if program, told = look(name, "installed from Debian's packages"); program != "" {
			return program, told, nil
		}
	}
	return "", "", fmt.Errorf("%w; Debian's package is installed, and its program does not run", errNone)
}

// look returns a program that answers with a version, or "": on some systems the name belongs to a stub that only says
// what to install.
func look(name, source string) (program, told string) {
	program, err := exec.LookPath(name)
	if err != nil {
		return "", ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	version, err := exec.CommandContext(ctx, program, "--version").Output()
	if err != nil || len(version) == 0 {
		return "", ""
	}
	return program, fmt.Sprintf("%s from %s (%s)", bytes.TrimSpace(version), program, source)
}

// fromDebian installs the distribution's package.
func fromDebian() error {
	if err := debian.Install("chromium"); err != nil {
		return fmt.Errorf("the package of Debian: %w", err)
	}
	return nil
}
