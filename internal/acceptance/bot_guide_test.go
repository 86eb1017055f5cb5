package acceptance

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// guidePrelude makes the page's own commands work on the binary of these tests, and lets its first two terminals run beside
// the third.
const guidePrelude = `set -o pipefail
holdfast() { "$BINARY" "$@"; }
await() { until grep -q "$2" "$1" || ! kill -0 $!; do sleep 0.1; done; cat "$1"; }
`

func TestEveryStepOfTheBotGuideDoesWhatThePageSays(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	t.Parallel()
	if err := lookAtSources(); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/guides/telegram-bot.md")
	if err != nil {
		t.Fatal(err)
	}
	telegram, bot := freeAddress(t), freeAddress(t)
	text, _, _ := strings.Cut(string(page), "\n## Going live")
	text = strings.NewReplacer("127.0.0.1:8081", telegram, "127.0.0.1:8082", bot).Replace(text) + "\n\n"
	blocks := shells.FindAllStringSubmatch(text, -1)
	if n := strings.Count(text, "```sh\n"); n != len(blocks) || n < 9 {
		t.Fatalf("%d blocks of commands, of which %d are followed by a paragraph", n, len(blocks))
	}
	var script strings.Builder
	script.WriteString(guidePrelude)
	for i, block := range blocks {
		commands := strings.TrimSpace(block[1])
		switch { // the first two terminals
		case strings.Contains(commands, "holdfast fake-telegram"):
			commands += " --listen " + telegram + " > fake.txt 2>&1 &\nFAKE=$!\nawait fake.txt listening"
		case strings.Contains(commands, "holdfast bot"):
			commands = strings.Replace(commands, "holdfast bot", `"$BINARY" bot`, 1) + " --listen " + bot + " > bot.txt 2>&1 &\n" +
				"BOT=$!\ntrap 'kill -INT $BOT; wait $BOT; kill $FAKE; cat bot.txt >&2' EXIT\nawait bot.txt 'the bot works'"
		}
		fmt.Fprintf(&script, "%s\necho; echo '<<< end of block %d >>>'\n", commands, i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "bash")
	shell.Dir, shell.Stdin = t.TempDir(), strings.NewReader(script.String())
	binaryPath, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	shell.Env = environment("BINARY=" + binaryPath)
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
		// What a paragraph says of the commands above it is its first span; the rest leads on.
		if span := spans.FindStringSubmatch(block[2]); span == nil || !strings.Contains(printed, span[1]) {
			t.Errorf("the page says that\n%sprints %v. It printed\n%s", block[1], span, printed)
		}
	}
}
