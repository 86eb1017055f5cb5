package mutants_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	all   = flag.Bool("mutants.all", false, "look for every planted bug, and print a table")
	seeds = flag.Int("mutants.n", 500, "how many seeds the simulator gets to find each")
)

// root is the module's folder, as seen from here.
const root = "../../.."

// planted is the content of each file with its changes made.
func (m *mutant) planted() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, c := range m.changes {
		content, known := files[c.file]
		if !known {
			read, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(c.file)))
			if err != nil {
				return nil, err
			}
			content = read
		}
		if n := bytes.Count(content, []byte(c.old)); n != 1 {
			return nil, fmt.Errorf("%s contains this %d times, and it must be once:\n%s", c.file, n, c.old)
		}
		files[c.file] = bytes.Replace(content, []byte(c.old), []byte(c.new), 1)
	}
	return files, nil
}

func TestEveryPlantedBugStillFitsTheCode(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants {
		if names[m.name] || m.why == "" || m.says == "" {
			t.Errorf("%q: a bug has a name of its own, and says why it is one and how it shows", m.name)
		}
		names[m.name] = true
		if _, err := m.planted(); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
	if len(mutants) < 8 {
		t.Errorf("%d bugs are planted; the promise is at least 8", len(mutants))
	}
}

func TestTheSimulatorFindsPlantedBugs(t *testing.T) {
	if testing.Short() && !*all {
		t.Skip("compiles the engine once per bug")
	}
	chosen := mutants[:2]
	if *all {
		chosen = mutants
	}
	table := &strings.Builder{}
	for _, m := range chosen {
		began := time.Now()
		where, err := m.hunt(t)
		if err != nil {
			where = "SURVIVED"
			t.Errorf("%s: %v\nwhy it is one: %s", m.name, err, m.why)
		}
		fmt.Fprintf(table, "%-42s %-28s %5.1f s\n", m.name, where, time.Since(began).Seconds())
	}
	t.Logf("\n%s", table)
}

// broken is how the simulator reports: seed, step, and what does not hold.
var broken = regexp.MustCompile(`seed (\d+), step (\d+): (.*)`)

// hunt runs the simulator on the code with the bug in it, and tells where it was found.
func (m *mutant) hunt(t *testing.T) (where string, err error) {
	files, err := m.planted()
	if err != nil {
		return "", err
	}
	folder := t.TempDir()
	var overlay struct{ Replace map[string]string }
	overlay.Replace = map[string]string{}
	for name, content := range files {
		real, err := filepath.Abs(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return "", err
		}
		copied := filepath.Join(folder, strings.ReplaceAll(name, "/", "_"))
		if err := os.WriteFile(copied, content, 0o600); err != nil {
			return "", err
		}
		overlay.Replace[real] = copied
	}
	written, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	list := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(list, written, 0o600); err != nil {
		return "", err
	}
	ctx, stop := context.WithTimeout(t.Context(), 5*time.Minute)
	defer stop()
	command := exec.CommandContext(ctx, "go", "test", "-vet=off", "-count=1", "-timeout=4m", "-overlay="+list, "./internal/sim",
		"-run=^TestSimulation$", fmt.Sprint("-sim.n=", *seeds), "-sim.until="+m.says)
	command.Dir = root
	output, err := command.CombinedOutput()
	if err == nil {
		return "", fmt.Errorf("%d seeds, and nothing was found", *seeds)
	}
	for _, found := range broken.FindAllStringSubmatch(string(output), -1) {
		if matched, _ := regexp.MatchString(m.says, found[3]); matched {
			return fmt.Sprintf("seed %s, step %s", found[1], found[2]), nil
		}
	}
	return "", fmt.Errorf("the simulator did not say %q:\n%s", m.says, tail(output))
}

func tail(output []byte) []byte { return output[max(0, len(output)-3000):] }
