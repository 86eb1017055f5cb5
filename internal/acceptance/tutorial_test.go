package acceptance

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// shells are the blocks of a page that hold commands, each with the paragraph behind it: what stands there in backquotes is
// what the commands print.
var (
	shells = regexp.MustCompile("(?ms)^```sh\n(.*?)^```\n\n(.*?)\n\n")
	spans  = regexp.MustCompile("`([^`]+)`")
	golang = regexp.MustCompile("(?ms)^```go\n(.*?)^```$")
)

// prelude makes the commands work on this very source: a clone is a copy of it, and a build is the binary that these tests
// have built by the same command.
const prelude = `set -o pipefail
git() { mkdir holdfast && (cd "$SOURCE" && tar cf - --exclude=.git .) | tar xf - -C holdfast; }
go() { if [ "$1" = build ]; then cp "$BINARY" holdfast; else command go "$@"; fi; }
`

func TestEveryCommandOfTheTutorialDoesWhatThePageSays(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	for _, needed := range []string{"bash", "curl", "tar", "sed"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Fatalf("the tutorial's commands need %s: install it", needed)
		}
	}
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/tutorial.md")
	if err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	text := strings.ReplaceAll(string(page), "127.0.0.1:8080", address)
	blocks := shells.FindAllStringSubmatch(text, -1)
	if n := strings.Count(text, "```sh\n"); n != len(blocks) || n < 10 {
		t.Fatalf("%d blocks of commands, of which %d are followed by a paragraph", n, len(blocks))
	}
	program := golang.FindStringSubmatch(text)[1]

	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o600); err != nil {
		t.Fatal(err)
	}
	var script strings.Builder
	script.WriteString(prelude)
	for i, block := range blocks {
		commands := block[1]
		if strings.Contains(commands, " serve ") { // the page's first terminal
			commands = strings.TrimSpace(commands) + " --listen " + address + " > served.txt 2>&1 &\n" +
				"SERVER=$!; trap 'kill $SERVER; wait' EXIT\nuntil grep -q listening served.txt || ! kill -0 $SERVER; do sleep 0.1; done; cat served.txt\n"
		}
		if strings.Contains(commands, "go run ./charge") {
			commands = "mkdir charge && cp ../main.go charge/\n" + commands
		}
		fmt.Fprintf(&script, "%s\necho; echo '<<< end of block %d >>>'\n", commands, i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	source, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	shell := exec.CommandContext(ctx, "bash")
	shell.Dir, shell.Stdin = folder, strings.NewReader(script.String())
	shell.Env = environment("SOURCE="+source, "BINARY="+binary)
	shell.WaitDelay = 10 * time.Second
	out, err := shell.CombinedOutput()
	if err != nil {
		t.Errorf("the shell: %v", err)
	}
	rest := string(out)
	for i, block := range blocks {
		printed, behind, found := strings.Cut(rest, fmt.Sprintf("<<< end of block %d >>>", i))
		if !found {
			t.Fatalf("it ended in block %d:\n%s\n%s", i, block[1], rest)
		}
		rest = behind
		if strings.HasPrefix(block[2], "In the example") { // a paragraph about the file, not about what is printed
			continue
		}
		for _, span := range spans.FindAllStringSubmatch(block[2], -1) {
			if !strings.Contains(printed, span[1]) {
				t.Errorf("the page says that\n%sprints %s. It printed\n%s", block[1], span[1], printed)
			}
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}
