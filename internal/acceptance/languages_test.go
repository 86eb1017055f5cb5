package acceptance

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	core "github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/debian"
)

// language is an example for authors who do not write Go: a client of its own, the test of that client, and a bot around it.
type language struct {
	name    string
	folder  string // below examples/
	client  string
	program string
	debian  string   // the package that has the program
	test    []string // runs the client's own test
	passed  *regexp.Regexp
	check   []string // looks at a file without running it; the file's path follows
	looked  []string // endings of files that are looked at
}

var languages = []language{
	{
		name: "Python", folder: "aiogram", client: "holdfast.py", program: "python3", debian: "python3",
		test:   []string{"-B", "-m", "unittest", "test_holdfast"},
		passed: regexp.MustCompile(`(?m)^Ran (\d+) tests in .*\n\nOK$`),
		check:  []string{"-B", "-c", "import ast, sys; ast.parse(open(sys.argv[1]).read())"}, looked: []string{".py"},
	},
	{
		name: "Node", folder: "grammy", client: "holdfast.mjs", program: "node", debian: "nodejs",
		test:   []string{"--test", "--test-reporter=tap", "holdfast.test.mjs"},
		passed: regexp.MustCompile(`(?m)^# pass (\d+)\n# fail 0\n# cancelled 0\n# skipped 0\n# todo 0$`),
		check:  []string{"--check"}, looked: []string{".mjs"},
	},
	{
		name: "PHP", folder: "laravel", client: "app/Holdfast/Holdfast.php", program: "php", debian: "php-cli",
		test:   []string{"tests/run.php"},
		passed: regexp.MustCompile(`(?m)^1\.\.(\d+)$`),
		check:  []string{"-l"}, looked: []string{".php"},
	},
}

// testsOfEach is how many tests each client has: the same ones in every language.
const testsOfEach = 13

func (l *language) dir() string { return filepath.Join("..", "..", "examples", l.folder) }

// find looks for the language's program, and installs it where pgtest would install a server.
func (l *language) find() (string, error) {
	path, missing := exec.LookPath(l.program)
	if missing == nil || testing.Short() {
		return path, missing
	}
	if err := debian.Install(l.debian); err != nil {
		return "", errors.Join(missing, err)
	}
	return exec.LookPath(l.program)
}

func TestTheClientsOfOtherLanguagesChargeOnceOnARealServer(t *testing.T) {
	for _, l := range languages {
		t.Run(l.name, func(t *testing.T) {
			program, err := l.find()
			if err != nil {
				t.Logf("%s IS NOT RUN: it is not on this machine (%v). That its client knows the API's calls is checked below", l.name, err)
				return
			}
			db := database(t)
			s := serve(t, db, "--webhook-allow", "127.0.0.0/8")
			run := exec.Command(program, l.test...)
			run.Dir = l.dir()
			run.Env = environment("API_URL="+s.url, "API_KEY="+devKey)
			out, err := run.CombinedOutput()
			passed := l.passed.FindSubmatch(out)
			if err != nil || passed == nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if n, _ := strconv.Atoi(string(passed[1])); n != testsOfEach {
				t.Errorf("%d tests passed, want %d\n%s", n, testsOfEach, out)
			}
			l.eachFile(t, func(file string) {
				look := exec.Command(program, append(slices.Clone(l.check), file)...)
				if out, err := look.CombinedOutput(); err != nil {
					t.Errorf("%s: %v\n%s", file, err, out)
				}
			})
			if code := s.interrupt(); code != 0 {
				t.Errorf("stopped with exit code %d\n%s", code, s.notes)
			}
			verified(t, db)
		})
	}
}

func (l *language) eachFile(t *testing.T, visit func(file string)) {
	t.Helper()
	err := filepath.WalkDir(l.dir(), func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && entry.Name() == "node_modules" {
			return filepath.SkipDir
		}
		if err == nil && slices.Contains(l.looked, filepath.Ext(file)) {
			visit(file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// What can be known of a client without its language: it has every call that the others have, asks for nothing that the server
// does not answer, and acts on reasons that there are.
func TestTheClientsOfOtherLanguagesKnowTheAPIsCalls(t *testing.T) {
	s := serve(t, database(t))
	paths, _ := s.call("GET", "/openapi.json", "", nil).want(t, 200).body["paths"].(map[string]any)
	known := map[string]bool{}
	for path := range paths {
		for part := range strings.SplitSeq(path, "/") {
			known[part] = true
		}
	}
	reasons := map[string]bool{}
	for _, info := range core.Reasons() {
		reasons[string(info.Reason)] = true
	}
	calls := []string{
		"reserve", "start", "heartbeat", "commit", "release", "cancel", "reservation", "account", "telegramorder", "telegramupdate", "telegramdone",
		"work", "verifywebhook", "nothingcharged", "aboutstars",
	}
	inPath := regexp.MustCompile("[\"'`](?:/v1)?(/[a-z/]+)[\"'`$]|/v1/telegram/[^/]*/([a-z]+)|(?:reservation|path\\(\\$?reservation), ?[\"']([a-z]+)[\"']")
	inReasons := regexp.MustCompile(`["'](already_\w+|not_\w+|stale_\w+)["']`)
	defined := regexp.MustCompile(`(?m)^\s*(?:export |public |async |static )*(?:def |function )?(\w+)\(.*(?:[{:]|\): \??\w+)$`)
	for _, l := range languages {
		content, err := os.ReadFile(filepath.Join(l.dir(), l.client))
		if err != nil {
			t.Fatal(err)
		}
		var has []string
		for _, found := range defined.FindAllStringSubmatch(string(content), -1) {
			has = append(has, strings.ToLower(strings.ReplaceAll(found[1], "_", "")))
		}
		for _, call := range calls {
			if !slices.Contains(has, call) {
				t.Errorf("%s: %s has no %s", l.name, l.client, call)
			}
		}
		parts, acted := 0, 0
		for _, found := range inPath.FindAllStringSubmatch(string(content), -1) {
			for part := range strings.SplitSeq(strings.Join(found[1:], "/"), "/") {
				if parts++; part != "" && !known[part] {
					t.Errorf("%s: %s asks for %q, and no call of the server has %q in its path", l.name, l.client, found[0], part)
				}
			}
		}
		for _, found := range inReasons.FindAllStringSubmatch(string(content), -1) {
			if acted++; !reasons[found[1]] {
				t.Errorf("%s: %s acts on %s, which is no reason", l.name, l.client, found[1])
			}
		}
		if parts < 12 || acted < 4 {
			t.Errorf("%s: only %d parts of paths and %d reasons were found, so this test looks in the wrong place", l.name, parts, acted)
		}
	}
}

// shownCode is a block of code in a guide.
var shownCode = regexp.MustCompile("(?ms)^```(?:python|js|php)\n(.*?)^```$")

func TestTheGuidesOfOtherLanguagesShowWhatTheExamplesDo(t *testing.T) {
	flat := regexp.MustCompile(`(?m)^[ \t]+|\s+$`)
	for _, l := range languages {
		guide, err := os.ReadFile(filepath.Join("..", "..", "docs", "guides", l.folder+".md"))
		if err != nil {
			t.Fatal(err)
		}
		var code strings.Builder
		l.eachFile(t, func(file string) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			code.WriteString(flat.ReplaceAllString(string(content), "") + "\n")
		})
		blocks := shownCode.FindAllStringSubmatch(string(guide), -1)
		for _, block := range blocks {
			if !strings.Contains(code.String(), flat.ReplaceAllString(block[1], "")) {
				t.Errorf("%s.md shows what examples/%s does not do:\n%s", l.folder, l.folder, block[1])
			}
		}
		if len(blocks) < 5 {
			t.Errorf("%s.md shows only %d pieces of code, so this test looks in the wrong place", l.folder, len(blocks))
		}
	}
}
