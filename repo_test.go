package holdfast_test

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"unicode"
)

// The rules of the house that a compiler does not know: which way the arrows point, that the core is pure, that the
// counters change in one file, and that the repository explains itself.

const modulePath = "github.com/holdfast-dev/holdfast"

// house is the repository as its files are, parsed once for all rules.
type house struct {
	fileSet  *token.FileSet
	paths    []string // of every file that belongs to the repository, with slashes
	contents map[string][]byte
	parsed   map[string]*ast.File // the Go files
}

var openHouse = sync.OnceValues(func() (*house, error) {
	h := &house{fileSet: token.NewFileSet(), contents: map[string][]byte{}, parsed: map[string]*ast.File{}}
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin"):
			return filepath.SkipDir
		case !entry.Type().IsRegular() || ignored(entry.Name()):
			return nil
		}
		content, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		h.paths = append(h.paths, name)
		h.contents[name] = content
		if path.Ext(name) == ".go" {
			h.parsed[name], err = parser.ParseFile(h.fileSet, name, content, parser.ParseComments|parser.SkipObjectResolution)
		}
		return err
	})
	return h, err
})

// ignored are the files that .gitignore keeps out, by their names.
func ignored(name string) bool {
	for _, ending := range []string{".db", ".db-shm", ".db-wal", ".db.lock", ".test", ".out"} {
		if strings.HasSuffix(name, ending) {
			return true
		}
	}
	return name == "holdfast"
}

func theHouse(t *testing.T) *house {
	t.Helper()
	h, err := openHouse()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// goFiles are the Go files of the module, with or without the tests, by name.
func (h *house) goFiles(tests bool) []string {
	return slices.DeleteFunc(slices.Clone(h.paths), func(name string) bool {
		return path.Ext(name) != ".go" || !tests && strings.HasSuffix(name, "_test.go")
	})
}

// rootFiles are those of package holdfast itself.
func (h *house) rootFiles() []string {
	return slices.DeleteFunc(h.goFiles(false), func(name string) bool { return path.Dir(name) != "." })
}

func (h *house) at(node ast.Node) string { return h.fileSet.Position(node.Pos()).String() }

func importsOf(file *ast.File) []string {
	var names []string
	for _, spec := range file.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil {
			names = append(names, name)
		}
	}
	return names
}

func standard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}

// The core may import these and no more: nothing here can reach a clock, a file, a network, a random number or another
// goroutine, apart from what impureNames lists.
var purePackages = []string{
	"bytes", "cmp", "crypto/sha1", "crypto/sha256", "encoding/base32", "encoding/hex", "encoding/json", "errors", "fmt", "iter", "maps",
	"math/bits", "slices", "strconv", "strings", "time", "unicode", "unicode/utf8",
}

// impureNames are the parts of pure packages that are not pure: clocks, timers, files of time zones, output.
var impureNames = map[string][]string{
	"time": {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "LoadLocation", "Local"},
	"fmt":  {"Print", "Printf", "Println", "Scan", "Scanf", "Scanln", "Fscan", "Fscanf", "Fscanln"},
}

func TestTheCoreReachesForNothingOutsideItself(t *testing.T) {
	h := theHouse(t)
	for _, name := range h.rootFiles() {
		for _, imported := range importsOf(h.parsed[name]) {
			if !slices.Contains(purePackages, imported) {
				t.Errorf("%s imports %s: the core takes what it needs with the command; extend purePackages only by what is pure", name, imported)
			}
		}
		ast.Inspect(h.parsed[name], func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.GoStmt, *ast.SelectStmt, *ast.ChanType, *ast.SendStmt:
				t.Errorf("%s: the core starts and waits for nothing", h.at(node))
			case *ast.SelectorExpr:
				if from, ok := node.X.(*ast.Ident); ok && slices.Contains(impureNames[from.Name], node.Sel.Name) {
					t.Errorf("%s: the core does not call %s.%s; times come in with the command", h.at(node), from.Name, node.Sel.Name)
				}
			case *ast.Ident:
				if node.Name == "float64" || node.Name == "float32" {
					t.Errorf("%s: the core counts in integers", h.at(node))
				}
			case *ast.BasicLit:
				if node.Kind == token.FLOAT {
					t.Errorf("%s: the core counts in integers", h.at(node))
				}
			case *ast.FuncDecl:
				if node.Recv == nil && node.Name.Name == "init" {
					t.Errorf("%s: the core does nothing before it is called", h.at(node))
				}
			}
			return true
		})
	}
}

// core is the root package with its types.
var checkCore = sync.OnceValues(func() (*types.Info, error) {
	h, err := openHouse()
	if err != nil {
		return nil, err
	}
	var files []*ast.File
	for _, name := range h.rootFiles() {
		files = append(files, h.parsed[name])
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	config := types.Config{Importer: importer.ForCompiler(h.fileSet, "source", nil)}
	_, err = config.Check(modulePath, h.fileSet, files, info)
	return info, err
})

func theCore(t *testing.T) (*house, *types.Info) {
	t.Helper()
	info, err := checkCore()
	if err != nil {
		t.Fatal(err)
	}
	return theHouse(t), info
}

func TestNoDecisionDependsOnTheOrderOfAMap(t *testing.T) {
	// cloneMap copies a set: the order in which it does so cannot be seen.
	allowed := []string{"cloneMap"}
	h, info := theCore(t)
	for _, name := range h.rootFiles() {
		for _, declared := range h.parsed[name].Decls {
			function, ok := declared.(*ast.FuncDecl)
			if !ok || slices.Contains(allowed, function.Name.Name) {
				continue
			}
			sorted := map[ast.Expr]bool{} // arguments of slices.Sorted
			ast.Inspect(function, func(node ast.Node) bool {
				switch node := node.(type) {
				case *ast.RangeStmt:
					if _, isMap := info.TypeOf(node.X).Underlying().(*types.Map); isMap {
						t.Errorf("%s: %s ranges over a map, whose order differs from run to run", h.at(node), function.Name.Name)
					}
				case *ast.CallExpr:
					called := types.ExprString(node.Fun)
					if called == "slices.Sorted" {
						sorted[node.Args[0]] = true
					}
					if (called == "maps.Keys" || called == "maps.Values" || called == "maps.All") && !sorted[node] {
						t.Errorf("%s: %s takes %s unsorted", h.at(node), function.Name.Name, called)
					}
				}
				return true
			})
		}
	}
}

func TestTheCountersOfAGrantChangeInTheLedgerOnly(t *testing.T) {
	counters := []string{"Granted", "Reserved", "Used", "Voided"}
	h, info := theCore(t)
	ofGrant := func(expression ast.Expr) bool {
		selector, ok := expression.(*ast.SelectorExpr)
		if !ok || !slices.Contains(counters, selector.Sel.Name) {
			return false
		}
		owner := info.TypeOf(selector.X)
		if pointer, ok := owner.(*types.Pointer); ok {
			owner = pointer.Elem()
		}
		return types.TypeString(owner, nil) == modulePath+".Grant"
	}
	inLedger := 0
	for _, name := range h.rootFiles() {
		changed := func(node ast.Node, expression ast.Expr) {
			switch {
			case !ofGrant(expression):
			case name == "ledger.go":
				inLedger++
			default:
				t.Errorf("%s: %s changes outside ledger.go", h.at(node), types.ExprString(expression))
			}
		}
		ast.Inspect(h.parsed[name], func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.AssignStmt:
				for _, left := range node.Lhs {
					changed(node, left)
				}
			case *ast.IncDecStmt:
				changed(node, node.X)
			case *ast.UnaryExpr:
				if node.Op == token.AND {
					changed(node, node.X)
				}
			case *ast.CompositeLit:
				if types.TypeString(info.TypeOf(node), nil) != modulePath+".Grant" {
					break
				}
				for _, element := range node.Elts {
					field, ok := element.(*ast.KeyValueExpr)
					if !ok {
						t.Errorf("%s: name the fields of a grant", h.at(node))
						break
					}
					// A grant is born with what was granted; the rest of its life is the ledger's.
					if key := field.Key.(*ast.Ident).Name; key != "Granted" && slices.Contains(counters, key) {
						t.Errorf("%s: a grant begins with nothing %s", h.at(node), strings.ToLower(key))
					}
				}
			}
			return true
		})
	}
	if inLedger == 0 {
		t.Error("ledger.go changes no counter, so this test looks at the wrong thing")
	}
}

// arrows say what each package of the module may import of the module, apart from its tests. They point inwards.
// "cmd/holdfast" is missing: it is the only place that knows everybody.
var arrows = map[string][]string{
	".":                     {},
	"store":                 {"."},
	"store/memory":          {".", "store"},
	"store/sqlite":          {".", "store", "store/sqlite/migration"},
	"store/storetest":       {".", "store"},
	"engine":                {".", "store"},
	"catalog":               {"."},
	"message":               {"."},
	"httpapi":               {".", "engine", "store", "payment", "payment/telegramstars", "outbox"},
	"payment":               {".", "store"},
	"payment/stripe":        {".", "payment"},
	"payment/telegramstars": {".", "payment", "store"},
	"telegram/initdata":     {},
	"telegram":              {".", "engine", "store", "message", "jobs", "outbox", "payment", "payment/telegramstars", "telegram/botapi"},
	"telegram/botapi":       {"payment/telegramstars"},
	"client":                {".", "engine"},
	"jobs":                  {".", "engine"},
	"jobs/openai":           {".", "jobs"},
	"metrics":               {".", "engine", "store"},
	"outbox":                {".", "store"},
	"telegram/inbox":        {"store"},
	"telegram/fakeapi":      {},
	"web":                   {},
	"outbox/jetstream":      {".", "outbox"},
	"outbox/redisstream":    {"outbox"},
	"bench":                 {".", "engine", "store", "store/sqlite", "store/postgres", "httpapi", "message", "internal/pgtest"},

	"store/postgres": {".", "store", "store/postgres/migration"},
	"adapter/river":  {".", "engine", "store/postgres"},

	"examples/run":    {".", "engine", "catalog", "store/sqlite"},
	"examples/web":    {".", "engine", "client"},
	"examples/worker": {".", "engine", "client"},
	"examples/telegram": {
		".", "engine", "catalog", "message", "outbox", "store/sqlite", "telegram", "telegram/botapi", "telegram/inbox",
	},

	"store/sqlite/migration":   {},
	"store/postgres/migration": {},
	"internal/acceptance":      {},
	"internal/apitest":         {".", "engine", "httpapi", "message", "store/sqlite"},
	"internal/browser":         {"internal/debian"},
	"internal/debian":          {},
	"internal/fakeprovider":    {},
	"internal/fakestripe":      {},
	"internal/paytest":         {".", "engine", "payment", "store", "store/memory", "store/sqlite"},
	"internal/natstest":        {},
	"internal/pgtest":          {"store/postgres/migration", "internal/debian"},
	"internal/redistest":       {"internal/debian"},
	"internal/sinktest":        {".", "engine", "outbox", "store/memory"},
	"internal/faultstore":      {".", "store"},
	"internal/sim":             {".", "store", "engine", "store/memory", "internal/faultstore"},
	"internal/sim/mutants":     {},
}

func TestArrowsPointInwards(t *testing.T) {
	h := theHouse(t)
	for _, name := range h.goFiles(false) {
		folder := path.Dir(name)
		if folder == "cmd/holdfast" {
			continue
		}
		allowed, known := arrows[folder]
		if !known {
			t.Errorf("%s: say in arrows what %s may import", name, folder)
			continue
		}
		for _, imported := range importsOf(h.parsed[name]) {
			if imported != modulePath && !strings.HasPrefix(imported, modulePath+"/") {
				continue
			}
			target := strings.TrimPrefix(strings.TrimPrefix(imported, modulePath), "/")
			if target == "" {
				target = "."
			}
			if !slices.Contains(allowed, target) {
				t.Errorf("%s imports %s: %s may import %v", name, imported, folder, allowed)
			}
		}
	}
}

func TestOnlyStoresKnowADatabase(t *testing.T) {
	drivers := []string{"database/sql", "modernc.org/sqlite", "github.com/pressly/goose", "github.com/mattn/go-sqlite3", "github.com/jackc/pgx"}
	h := theHouse(t)
	for _, name := range h.goFiles(false) {
		for _, imported := range importsOf(h.parsed[name]) {
			of := func(driver string) bool { return imported == driver || strings.HasPrefix(imported, driver+"/") }
			if slices.ContainsFunc(drivers, of) && !slices.ContainsFunc([]string{"store/", "bench/", "internal/pgtest/", "adapter/river/"}, func(folder string) bool { return strings.HasPrefix(name, folder) }) {
				t.Errorf("%s imports %s: only the packages below store/, the benchmarks' baselines, the test's servers and what works in a caller's transaction know a database", name, imported)
			}
		}
	}
}

func TestTheBinaryCarriesNoAdapterAndNoBrokerOfTests(t *testing.T) {
	h := theHouse(t)
	imports := map[string][]string{} // by folder
	for _, name := range h.goFiles(false) {
		imports[path.Dir(name)] = append(imports[path.Dir(name)], importsOf(h.parsed[name])...)
	}
	reached := []string{"cmd/holdfast"}
	for i := 0; i < len(reached); i++ {
		for _, imported := range imports[reached[i]] {
			if strings.HasPrefix(imported, "github.com/riverqueue/") || strings.HasPrefix(imported, "github.com/nats-io/nats-server/") {
				t.Errorf("cmd/holdfast reaches %s through %s", imported, reached[i])
			}
			if folder, ours := strings.CutPrefix(imported, modulePath+"/"); ours && !slices.Contains(reached, folder) {
				reached = append(reached, folder)
			}
		}
	}
	if len(reached) < 10 {
		t.Errorf("it reaches %v only, so this test looks at the wrong thing", reached)
	}
}

func TestNoStatementChangesALedgerEntry(t *testing.T) {
	h := theHouse(t)
	change := regexp.MustCompile("(?i)\\b(update|delete\\s+from|replace\\s+into|insert\\s+or\\s+replace\\s+into|truncate)\\s+[\"`]?(holdfast\\.)?(ledger_)?(entry|entries)\\b")
	inserts := regexp.MustCompile("(?i)\\binsert\\s+into\\s+[\"`]?(holdfast\\.)?(ledger_)?(entry|entries)\\b")
	written := false
	for _, name := range h.paths {
		if !strings.HasPrefix(name, "store/") || strings.HasSuffix(name, "_test.go") {
			continue
		}
		if found := change.Find(h.contents[name]); found != nil {
			t.Errorf("%s: %q: the ledger is append-only; a correction is a new entry", name, found)
		}
		written = written || inserts.Match(h.contents[name])
	}
	if !written {
		t.Error("no store inserts an entry, so this test does not know the table's name")
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	h := theHouse(t)
	comments := map[string]string{}
	for _, name := range h.goFiles(false) {
		file := h.parsed[name]
		comments[path.Dir(name)] += file.Doc.Text()
		want := "Package " + file.Name.Name + " "
		if file.Name.Name == "main" {
			want = "Command " + path.Base(path.Dir(name)) + " "
		}
		if text := file.Doc.Text(); text != "" && !strings.HasPrefix(text, want) {
			t.Errorf("%s: the package comment begins with %q", name, want)
		}
	}
	for folder, comment := range comments {
		if len(comment) < 120 {
			t.Errorf("%s: the package comment says what the package is for, who calls it and what it never does", folder)
		}
	}
}

func TestEveryExportedNameHasAComment(t *testing.T) {
	h := theHouse(t)
	for _, name := range h.goFiles(false) {
		if strings.HasPrefix(name, "cmd/") {
			continue
		}
		missing := func(node ast.Node, what string) { t.Errorf("%s: %s has no comment", h.at(node), what) }
		for _, declared := range h.parsed[name].Decls {
			switch declared := declared.(type) {
			case *ast.FuncDecl:
				if declared.Name.IsExported() && receiverIsExported(declared) && declared.Doc == nil {
					missing(declared, declared.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range declared.Specs {
					switch spec := spec.(type) {
					case *ast.TypeSpec:
						if spec.Name.IsExported() && declared.Doc == nil && spec.Doc == nil {
							missing(spec, spec.Name.Name)
						}
					case *ast.ValueSpec:
						if spec.Names[0].IsExported() && declared.Doc == nil && spec.Doc == nil {
							missing(spec, spec.Names[0].Name)
						}
					}
				}
			}
		}
	}
}

func receiverIsExported(function *ast.FuncDecl) bool {
	if function.Recv == nil {
		return true
	}
	name := strings.TrimPrefix(types.ExprString(function.Recv.List[0].Type), "*")
	return unicode.IsUpper(rune(name[0]))
}

func TestNamesOfFilesAndFoldersSayWhatIsInThem(t *testing.T) {
	vague := []string{"util", "utils", "common", "types", "helper", "helpers", "misc", "shared", "base"}
	layers := []string{"model", "models", "service", "services"} // a model test is something else
	h := theHouse(t)
	for _, name := range h.goFiles(true) {
		for _, part := range strings.Split(strings.TrimSuffix(name, ".go"), "/") {
			if slices.Contains(vague, strings.TrimSuffix(part, "_test")) || slices.Contains(layers, part) {
				t.Errorf("%s: %q says nothing; name the noun or the technology", name, part)
			}
		}
	}
}

func TestEveryGoFileIsFormatted(t *testing.T) {
	h := theHouse(t)
	for _, name := range h.goFiles(true) {
		formatted, err := format.Source(h.contents[name])
		if err != nil {
			t.Errorf("%s: %v", name, err)
		} else if !bytes.Equal(formatted, h.contents[name]) {
			t.Errorf("%s is not formatted: gofumpt -w %s", name, name)
		}
	}
}

func TestNobodySleepsExceptToLookAgain(t *testing.T) {
	h := theHouse(t)
	for _, name := range h.goFiles(true) {
		if slices.Contains(importsOf(h.parsed[name]), "testing/synctest") {
			continue // its clock is not the real one: a sleep there takes no time
		}
		polls := map[ast.Node]bool{} // everything inside loops that end when their condition says so
		ast.Inspect(h.parsed[name], func(node ast.Node) bool {
			if loop, ok := node.(*ast.ForStmt); ok && loop.Cond != nil {
				ast.Inspect(loop.Body, func(inner ast.Node) bool {
					polls[inner] = true
					return true
				})
			}
			if call, ok := node.(*ast.CallExpr); ok && types.ExprString(call.Fun) == "time.Sleep" && !polls[node] {
				t.Errorf("%s: wait for what happens, not for time", h.at(node))
			}
			return true
		})
	}
}

func TestNothingIsLeftUnfinishedAndNoMachineIsNamed(t *testing.T) {
	// The words are put together here, so that this file does not contain them.
	marks := regexp.MustCompile(`\b(TO` + `DO|FIX` + `ME|XX` + `X)\b`)
	homes := regexp.MustCompile(`(^|[\s"'(=:` + "`" + `])/(ho` + `me|ro` + `ot|Us` + `ers)/`)
	h := theHouse(t)
	for _, name := range h.paths {
		for i, text := range strings.Split(string(h.contents[name]), "\n") {
			where := name + ":" + strconv.Itoa(i+1)
			if mark := marks.FindString(text); mark != "" {
				t.Errorf("%s: finish it, or leave it out and say so in CHANGELOG.md: %s", where, mark)
			}
			if homes.MatchString(text) {
				t.Errorf("%s: the path of somebody's machine", where)
			}
		}
	}
}

// links are the targets of inline links; code in backquotes is no link.
var (
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence = regexp.MustCompile("(?ms)^```.*?^```$")
	code  = regexp.MustCompile("`[^`\n]*`")
)

func TestEveryLinkOfTheDocsLeadsSomewhere(t *testing.T) {
	h := theHouse(t)
	for _, name := range h.paths {
		if path.Ext(name) != ".md" {
			continue
		}
		text := code.ReplaceAllString(fence.ReplaceAllString(string(h.contents[name]), ""), "")
		for _, found := range link.FindAllStringSubmatch(text, -1) {
			target, anchor, _ := strings.Cut(found[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file := name
			if target != "" {
				file = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.FromSlash(file)); err != nil {
				t.Errorf("%s links to %s, which is not there", name, found[1])
				continue
			}
			if anchor != "" && !slices.Contains(anchors(string(h.contents[file])), anchor) {
				t.Errorf("%s links to %s; %s has no such heading", name, found[1], file)
			}
		}
	}
}

// anchors are the names under which a page's headings can be linked to.
func anchors(page string) []string {
	var names []string
	for line := range strings.Lines(fence.ReplaceAllString(page, "")) {
		if !strings.HasPrefix(line, "#") {
			continue
		}
		heading := strings.ToLower(strings.TrimSpace(strings.TrimLeft(line, "#")))
		names = append(names, strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return r
			}
			return -1
		}, heading))
	}
	return names
}

func TestEveryPageOfTheDocsCanBeFound(t *testing.T) {
	h := theHouse(t)
	linked := map[string]bool{"README.md": true}
	for _, name := range h.paths {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, found := range link.FindAllStringSubmatch(string(h.contents[name]), -1) {
			target, _, _ := strings.Cut(found[1], "#")
			if file := path.Join(path.Dir(name), target); file != name {
				linked[file] = true
			}
		}
	}
	for _, name := range h.paths {
		if path.Ext(name) == ".md" && !linked[name] {
			t.Errorf("no page links to %s", name)
		}
	}
}

func TestTheReadmeIsShortAndHasBothCommands(t *testing.T) {
	readme := string(theHouse(t).contents["README.md"])
	if lines := strings.Count(readme, "\n"); lines > 150 || lines == 0 {
		t.Errorf("README.md has %d lines; it has 1 to 150", lines)
	}
	for _, command := range []string{"go run ./cmd/holdfast demo", "go test ./..."} {
		if !strings.Contains(readme, command) {
			t.Errorf("README.md does not say %q", command)
		}
	}
}

func TestTheBuildRunsTheTestsThatTheReadmeNames(t *testing.T) {
	h := theHouse(t)
	script := string(h.contents[".ci/run"])
	for _, part := range []string{"#!/usr/bin/env bash\n", "set -euo pipefail", "CGO_ENABLED=0 go build ./...", "go test ./...", "go test -race"} {
		if !strings.Contains(script, part) {
			t.Errorf(".ci/run does not say %q", part)
		}
	}
	if info, err := os.Stat(".ci/run"); err != nil || info.Mode()&0o111 == 0 {
		t.Errorf(".ci/run cannot be executed: %v", err)
	}
	if strings.Contains(script, "://") {
		t.Error(".ci/run names a host")
	}
}

func TestTheModuleCanBeImported(t *testing.T) {
	manifest := string(theHouse(t).contents["go.mod"])
	if !strings.HasPrefix(manifest, "module "+modulePath+"\n") {
		t.Errorf("go.mod does not begin with the module's path %s", modulePath)
	}
	if regexp.MustCompile(`(?m)^(replace|exclude)\b`).MatchString(manifest) {
		t.Error("go.mod replaces or excludes modules, which whoever imports this one does not get")
	}
}
