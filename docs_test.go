package holdfast_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/httpapi"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

// What docs/ says is compared with the code here. With -update the parts that come from the code are written anew:
// the tables between "<!-- from the code: … -->" marks, and the answers in blocks of decision scripts.

// section is a part of a page that comes from the code.
func section(name string) (begin, end string) {
	return "<!-- from the code: " + name + " -->\n", "<!-- end: " + name + " -->\n"
}

// compareSection checks that a part of a page says what it should, or writes it anew.
func compareSection(t *testing.T, page, name, want string) {
	t.Helper()
	text, err := os.ReadFile(filepath.FromSlash(page))
	if err != nil {
		t.Fatal(err)
	}
	begin, end := section(name)
	before, rest, found := strings.Cut(string(text), begin)
	got, after, closed := strings.Cut(rest, end)
	switch {
	case !found || !closed:
		t.Fatalf("%s has no part %q", page, name)
	case got == want:
	case *update:
		if err := os.WriteFile(filepath.FromSlash(page), []byte(before+begin+want+end+after), 0o600); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s is not what the code says (make docs writes it anew):\n%s", page, firstDifference(got, want))
	}
}

func firstDifference(got, want string) string {
	page, code := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(page), len(code)) {
		line := func(lines []string) string {
			if i < len(lines) {
				return lines[i]
			}
			return "(nothing)"
		}
		if line(page) != line(code) {
			return fmt.Sprintf("page: %s\ncode: %s", line(page), line(code))
		}
	}
	return "no difference"
}

func table(columns []string, rows [][]string) string {
	var text strings.Builder
	line := func(cells []string) { fmt.Fprintf(&text, "| %s |\n", strings.Join(cells, " | ")) }
	line(columns)
	line(slices.Repeat([]string{"---"}, len(columns)))
	for _, row := range rows {
		line(row)
	}
	return text.String()
}

func TestDocsReasonsAreThoseOfTheCode(t *testing.T) {
	var rows [][]string
	for _, info := range holdfast.Reasons() {
		recorded := "no"
		if info.Recorded {
			recorded = "yes"
		}
		rows = append(rows, []string{"`" + string(info.Reason) + "`", recorded, info.Meaning})
	}
	compareSection(t, "docs/reference/reasons.md", "reasons", table([]string{"reason", "recorded", "meaning"}, rows))
}

func TestDocsLimitsAreThoseOfTheCode(t *testing.T) {
	var rows [][]string
	for _, limit := range holdfast.Limits() {
		rows = append(rows, []string{limit.Name, limit.Value, limit.Reason})
	}
	compareSection(t, "docs/reference/limits.md", "limits", table([]string{"what", "bound", "why"}, rows))
}

func TestDocsRoutesOfTheStandInForTelegramAreThoseOfTheCode(t *testing.T) {
	var rows [][]string
	for _, route := range fakeapi.SimRoutes() {
		rows = append(rows, []string{"`" + route.Route + "`", strings.ReplaceAll(route.Does, "|", "\\|")})
	}
	compareSection(t, "docs/guides/fake-telegram.md", "routes", table([]string{"route", "does"}, rows))
}

// openAPI is what the reference of the HTTP API is written from.
type openAPI struct {
	Paths map[string]map[string]struct {
		Summary    string
		Security   []map[string][]string
		Parameters []struct {
			Name, In, Description string
			Required              bool
		}
		RequestBody struct {
			Content map[string]struct {
				Schema struct {
					Ref string `json:"$ref"`
				}
			}
		}
		Responses map[string]struct{ Description string }
	}
	Components struct{ Schemas map[string]schema }
}

type schema struct {
	Type                 any
	Format               string
	Description          string
	Enum                 []string
	Minimum, Maximum     *int64
	Properties           map[string]schema
	Required             []string
	AdditionalProperties any
	Items                *schema
}

func readOpenAPI(t *testing.T) openAPI {
	t.Helper()
	// The document depends on the table of routes alone, so whatever answers requests is left empty.
	handler, err := httpapi.New(httpapi.Options{
		Engine: struct{ httpapi.Engine }{}, Keys: struct{ httpapi.Keys }{}, Texts: struct{ httpapi.Texts }{},
		Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var document openAPI
	if err := json.Unmarshal(answer.Body.Bytes(), &document); err != nil || len(document.Paths) == 0 {
		t.Fatalf("the document cannot be read: %v", err)
	}
	return document
}

func TestDocsRoutesAreThoseOfTheServer(t *testing.T) {
	const page = "docs/reference/http.md"
	document := readOpenAPI(t)
	var routes [][]string
	var bodies strings.Builder
	reasons := map[string][]string{} // by status
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(document.Paths[path])) {
			operation := document.Paths[path][method]
			call := "`" + strings.ToUpper(method) + " " + path + "`"
			scope, key := "none", "not read"
			for _, security := range operation.Security {
				scopes, ofProject := security["key"]
				switch {
				case !ofProject:
					scope = "the instance's admin key"
				case len(scopes) == 0:
					scope = "of each operation"
				default:
					scope = "`" + strings.Join(scopes, "`, `") + "`"
				}
			}
			var query, answers []string
			for _, parameter := range operation.Parameters {
				switch {
				case parameter.In == "query":
					query = append(query, "`"+parameter.Name+"`")
				case parameter.Name == "Idempotency-Key" && (parameter.Required || strings.Contains(parameter.Description, "Required unless")):
					key = "required"
				case parameter.Name == "Idempotency-Key":
					key = "optional"
				}
			}
			for _, status := range slices.Sorted(maps.Keys(operation.Responses)) {
				if status < "400" {
					answers = append(answers, status)
					continue
				}
				for _, reason := range strings.Split(operation.Responses[status].Description, ", ") {
					if !slices.Contains(reasons[status], reason) {
						reasons[status] = append(reasons[status], reason)
					}
				}
			}
			does := operation.Summary
			if len(query) > 0 {
				does += " (" + strings.Join(query, ", ") + ")"
			}
			routes = append(routes, []string{call, scope, key, strings.Join(answers, ", "), does})
			name := schemaOf(operation.RequestBody.Content["application/json"].Schema.Ref)
			if body := document.Components.Schemas[name]; len(body.Properties) > 0 {
				fmt.Fprintf(&bodies, "%s\n\n%s\n", call, table([]string{"field", "type", "", "meaning"}, fields(body)))
			}
		}
	}
	var statuses [][]string
	for _, status := range slices.Sorted(maps.Keys(reasons)) {
		slices.Sort(reasons[status])
		statuses = append(statuses, []string{status, "`" + strings.Join(reasons[status], "`, `") + "`"})
	}
	compareSection(t, page, "routes", table([]string{"call", "scope", "key", "answers", "does"}, routes))
	compareSection(t, page, "bodies", bodies.String())
	compareSection(t, page, "statuses", table([]string{"status", "reasons"}, statuses))
	for _, info := range holdfast.Reasons() {
		if !slices.ContainsFunc(statuses, func(row []string) bool { return strings.Contains(row[1], "`"+string(info.Reason)+"`") }) {
			t.Errorf("no call answers with %s", info.Reason)
		}
	}
}

// schemaOf is the name at the end of a reference to a schema.
func schemaOf(reference string) string { return path.Base(reference) }

// fields are the rows of a body's table: what is required first.
func fields(body schema) [][]string {
	var required, optional [][]string
	for _, name := range slices.Sorted(maps.Keys(body.Properties)) {
		field := body.Properties[name]
		if slices.Contains(body.Required, name) {
			required = append(required, []string{"`" + name + "`", describeType(field), "required", field.Description})
		} else {
			optional = append(optional, []string{"`" + name + "`", describeType(field), "", field.Description})
		}
	}
	return append(required, optional...)
}

func describeType(field schema) string {
	text := fmt.Sprint(field.Type)
	if field.Type == nil { // one of several shapes
		text = "object"
	}
	if several, ok := field.Type.([]any); ok {
		var names []string
		for _, name := range several {
			names = append(names, fmt.Sprint(name))
		}
		text = strings.Join(names, " or ")
	}
	switch {
	case field.Items != nil:
		text += " of " + describeType(*field.Items)
	case field.AdditionalProperties != nil && field.Properties == nil:
		if values, ok := field.AdditionalProperties.(map[string]any); ok {
			text += fmt.Sprintf(" of %v", values["type"])
		}
	}
	if field.Format == "date-time" {
		text += ", RFC 3339"
	}
	if len(field.Enum) > 0 {
		text += ": `" + strings.Join(field.Enum, "`, `") + "`"
	}
	switch {
	case field.Minimum != nil && field.Maximum != nil:
		text += fmt.Sprintf(", %d to %d", *field.Minimum, *field.Maximum)
	case field.Minimum != nil:
		text += fmt.Sprintf(", at least %d", *field.Minimum)
	}
	return text
}

// answerBlock is an answer of the server, printed whole.
var answerBlock = regexp.MustCompile("(?ms)^```json\n(.*?)^```$")

func TestDocsShowAnswersAsTheServerShapesThem(t *testing.T) {
	h, document := theHouse(t), readOpenAPI(t)
	shown := 0
	for _, page := range h.paths {
		if path.Ext(page) != ".md" {
			continue
		}
		for _, block := range answerBlock.FindAllStringSubmatch(string(h.contents[page]), -1) {
			shown++
			var answer map[string]any
			if err := json.Unmarshal([]byte(block[1]), &answer); err != nil {
				t.Errorf("%s: %v in\n%s", page, err, block[1])
				continue
			}
			matches := func(name string) bool {
				shape := document.Components.Schemas[name]
				for field := range answer {
					if _, known := shape.Properties[field]; !known {
						return false
					}
				}
				return !slices.ContainsFunc(shape.Required, func(field string) bool { _, sent := answer[field]; return !sent })
			}
			if !slices.ContainsFunc(slices.Sorted(maps.Keys(document.Components.Schemas)), matches) {
				t.Errorf("%s shows what no answer looks like:\n%s", page, block[1])
			}
		}
	}
	if shown < 2 {
		t.Errorf("only %d answers were found, so this test looks in the wrong place", shown)
	}
}

// curlCall is a call of the API in a page, with the lines that it goes on in.
var curlCall = regexp.MustCompile(`(?m)^\s*curl (?:.*\\\n)*.*$`)

func TestDocsCallsOfTheAPISayThatTheySendJSON(t *testing.T) {
	h, shown := theHouse(t), 0
	for _, page := range h.paths {
		if path.Ext(page) != ".md" {
			continue
		}
		for _, call := range curlCall.FindAllString(string(h.contents[page]), -1) {
			if !strings.Contains(call, "/v1/") || !strings.Contains(call, " -d ") {
				continue
			}
			if shown++; !strings.Contains(call, "-H 'Content-Type: application/json'") {
				t.Errorf("%s: curl sends a form unless it is told otherwise, and is answered 400:\n%s", page, call)
			}
		}
	}
	if shown < 3 {
		t.Errorf("only %d calls were found, so this test looks in the wrong place", shown)
	}
}

func TestDocsExplainEveryLineOfTheErrorLog(t *testing.T) {
	const page = "docs/guides/error-log.md"
	h := theHouse(t)
	guide, lines := string(h.contents[page]), 0
	for _, name := range h.goFiles(false) {
		ast.Inspect(h.parsed[name], func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 {
				return true
			}
			called, ok := call.Fun.(*ast.SelectorExpr)
			text, isText := call.Args[0].(*ast.BasicLit)
			if !ok || !isText || text.Kind != token.STRING || called.Sel.Name != "Error" && called.Sel.Name != "Warn" {
				return true
			}
			if logger := strings.TrimSuffix(strings.ToLower(types.ExprString(called.X)), "()"); !strings.HasSuffix(logger, "log") && !strings.HasSuffix(logger, "logger") {
				return true
			}
			lines++
			if line, err := strconv.Unquote(text.Value); err != nil || !strings.Contains(guide, "| `"+line+"` |") {
				t.Errorf("%s does not say what to do about %s (%s)", page, text.Value, h.at(node))
			}
			return true
		})
	}
	if lines < 5 {
		t.Errorf("only %d lines of the log were found, so this test looks in the wrong place", lines)
	}
}

// example is a block of a page that is a decision script.
var example = regexp.MustCompile("(?ms)^```decide\n(.*?)^```$")

func TestDocsExamplesAreWhatTheCoreDecides(t *testing.T) {
	played := 0
	for _, page := range theHouse(t).paths {
		if path.Ext(page) != ".md" {
			continue
		}
		text, err := os.ReadFile(filepath.FromSlash(page))
		if err != nil {
			t.Fatal(err)
		}
		rewritten := example.ReplaceAllStringFunc(string(text), func(block string) string {
			played++
			var after string
			t.Run(fmt.Sprintf("%s/%d", page, played), func(t *testing.T) { after = playExample(t, example.FindStringSubmatch(block)[1]) })
			return "```decide\n" + after + "```"
		})
		if *update && rewritten != string(text) {
			if err := os.WriteFile(filepath.FromSlash(page), []byte(rewritten), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	if played < 10 {
		t.Errorf("only %d examples were found, so this test looks in the wrong place", played)
	}
}

// playExample plays one block as a script of its own, and returns it as it should read.
func playExample(t *testing.T, script string) string {
	file := filepath.Join(t.TempDir(), "example.txt")
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	play(t, file)
	after, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(after)
}

// tableRow is a line of a table; the first cell is a name in backquotes.
var tableRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|(.*)\\|$")

func TestDocsNameEveryDependencyAndWhereItIsUsed(t *testing.T) {
	const page = "docs/dependencies.md"
	h := theHouse(t)
	modules := map[string][]string{} // module → where its packages are imported
	var required []string
	for _, found := range regexp.MustCompile(`(?m)^\t([^\s/]+\.[^\s]+) v`).FindAllStringSubmatch(string(h.contents["go.mod"]), -1) {
		required = append(required, found[1])
	}
	use := func(name, where string) {
		module := moduleOf(name, required)
		if module == "" {
			t.Errorf("%s imports %s, which go.mod does not require", where, name)
		} else if !slices.Contains(modules[module], where) {
			modules[module] = append(modules[module], where)
		}
	}
	for _, file := range h.goFiles(false) {
		for _, name := range importsOf(h.parsed[file]) {
			if !standard(name) && name != modulePath && !strings.HasPrefix(name, modulePath+"/") {
				use(name, path.Dir(file))
			}
		}
	}
	for _, file := range h.goFiles(true) {
		for _, name := range importsOf(h.parsed[file]) {
			if !standard(name) && name != modulePath && !strings.HasPrefix(name, modulePath+"/") && len(modules[moduleOf(name, required)]) == 0 {
				use(name, "tests")
			}
		}
	}
	documented := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(string(h.contents[page]), -1) {
		module := row[1]
		documented[module] = true
		used, _, _ := strings.Cut(row[2], "|")
		places := strings.Split(strings.TrimSpace(used), ", ")
		slices.Sort(places)
		slices.Sort(modules[module])
		if !slices.Equal(places, modules[module]) {
			t.Errorf("%s: %s is used in %s, not in %s", page, module, strings.Join(modules[module], ", "), strings.Join(places, ", "))
		}
	}
	for _, module := range slices.Sorted(maps.Keys(modules)) {
		if !documented[module] {
			t.Errorf("%s does not say why there is %s (used in %s)", page, module, strings.Join(modules[module], ", "))
		}
	}
}

// moduleOf is the module that a package belongs to: the longest path that fits.
func moduleOf(name string, required []string) string {
	longest := ""
	for _, candidate := range required {
		if (name == candidate || strings.HasPrefix(name, candidate+"/")) && len(candidate) > len(longest) {
			longest = candidate
		}
	}
	return longest
}

func TestDocsNameOnlyTestsThatExist(t *testing.T) {
	h := theHouse(t)
	tests := map[string]bool{}
	for _, name := range h.goFiles(true) {
		for _, declared := range h.parsed[name].Decls {
			if function, ok := declared.(*ast.FuncDecl); ok {
				tests[function.Name.Name] = true
			}
		}
	}
	for _, page := range h.paths {
		if path.Ext(page) != ".md" {
			continue
		}
		for _, found := range regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w*)(?:/[^`]*)?`").FindAllStringSubmatch(string(h.contents[page]), -1) {
			if !tests[found[1]] {
				t.Errorf("%s names %s, which is no test", page, found[1])
			}
		}
	}
}

func TestDocsCatalogFieldsAreThoseOfTheSchema(t *testing.T) {
	const page = "docs/reference/catalog.md"
	var schema any
	if err := json.Unmarshal(catalog.Schema(), &schema); err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	var collect func(part any)
	collect = func(part any) {
		switch part := part.(type) {
		case map[string]any:
			if properties, ok := part["properties"].(map[string]any); ok {
				for name := range properties {
					known[name] = true
				}
			}
			for _, inner := range part {
				collect(inner)
			}
		case []any:
			for _, inner := range part {
				collect(inner)
			}
		}
	}
	collect(schema)
	text := string(theHouse(t).contents[page])
	documented := map[string]bool{}
	for _, row := range tableRow.FindAllStringSubmatch(text, -1) {
		parts := strings.Split(row[1], ".")
		name := parts[len(parts)-1]
		documented[name] = true
		if !known[name] {
			t.Errorf("%s tells of %s, which the schema does not have", page, row[1])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if !documented[name] && !strings.Contains(text, "`"+name+"`") {
			t.Errorf("%s does not tell of the field %s", page, name)
		}
	}
	if parsed, err := catalog.Parse(page, []byte(catalogExample.FindStringSubmatch(text)[1])); err != nil || len(parsed.Plans) != 1 {
		t.Errorf("the example of %s is no catalog: %v", page, err)
	}
}

// catalogExample is a catalog in a page.
var catalogExample = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// commandLine reads the grammar of cmd/holdfast out of its structs: every flag, every environment variable, every command.
func commandLine(t *testing.T) (flags, variables, commands []string) {
	t.Helper()
	h := theHouse(t)
	for _, name := range h.goFiles(false) {
		if path.Dir(name) != "cmd/holdfast" {
			continue
		}
		ast.Inspect(h.parsed[name], func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.Field:
				if node.Tag == nil || len(node.Names) == 0 {
					break
				}
				text, err := strconv.Unquote(node.Tag.Value)
				tag := reflect.StructTag(text)
				if err != nil || tag.Get("kong") == "-" {
					break
				}
				word := tag.Get("name")
				if word == "" {
					word = kebab(node.Names[0].Name)
				}
				_, isCommand := tag.Lookup("cmd")
				_, isArgument := tag.Lookup("arg")
				_, isFlag := tag.Lookup("help")
				_, isHidden := tag.Lookup("hidden")
				switch {
				case isHidden:
				case isCommand:
					commands = append(commands, word)
				case isFlag && !isArgument:
					flags = append(flags, "--"+word)
				}
				if variable := tag.Get("env"); variable != "" {
					variables = append(variables, variable)
				}
			case *ast.BasicLit:
				// What the demo tells its own worker process is nobody else's.
				word, err := strconv.Unquote(node.Value)
				if err == nil && regexp.MustCompile(`^HOLDFAST_[A-Z_]+$`).MatchString(word) && word != "HOLDFAST_DEMO_WORKER_KEY" {
					variables = append(variables, word)
				}
			}
			return true
		})
	}
	return flags, variables, commands
}

// kebab writes a field's name the way the command line does: SweepEvery is sweep-every.
func kebab(name string) string {
	return strings.ToLower(regexp.MustCompile(`([a-z0-9])([A-Z])`).ReplaceAllString(name, "$1-$2"))
}

func TestDocsTellTheWholeCommandLine(t *testing.T) {
	const page = "docs/reference/cli.md"
	h := theHouse(t)
	text := string(h.contents[page])
	flags, variables, commands := commandLine(t)
	if len(flags) < 8 || len(commands) < 8 {
		t.Fatalf("found only the flags %v and the commands %v, so this test looks in the wrong place", flags, commands)
	}
	for _, word := range slices.Concat(flags, variables) {
		if !strings.Contains(text, "`"+word+"`") && !strings.Contains(text, "`"+word+" ") {
			t.Errorf("%s does not tell of %s", page, word)
		}
	}
	for _, command := range commands {
		if !regexp.MustCompile("`holdfast( [a-z]+)* " + command + "\\b").MatchString(text) {
			t.Errorf("%s does not tell of the command %s", page, command)
		}
	}
	known := slices.Concat(flags, []string{"--help"})
	for _, file := range h.paths {
		if path.Ext(file) != ".md" {
			continue
		}
		for _, found := range regexp.MustCompile("holdfast (?:serve|demo|drill|verify|account|key|catalog|version)[^`\n]*").FindAllString(string(h.contents[file]), -1) {
			for _, flag := range regexp.MustCompile(`--[a-z][a-z-]+`).FindAllString(found, -1) {
				if !slices.Contains(known, flag) {
					t.Errorf("%s: %q: there is no flag %s", file, found, flag)
				}
			}
		}
		for _, variable := range regexp.MustCompile(`HOLDFAST_[A-Z_]+`).FindAllString(string(h.contents[file]), -1) {
			if !slices.Contains(variables, variable) {
				t.Errorf("%s: there is no environment variable %s", file, variable)
			}
		}
	}
}
