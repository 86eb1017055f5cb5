package message

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"text/template"
	"text/template/parse"
)

// neededForms are the plural forms that CLDR has for numbers of each language.
var neededForms = map[string][]string{"en": {"one", "other"}, "ru": {"few", "many", "one", "other"}}

// readFile returns the pieces of a file: by name, then by plural form; a piece without forms has only "other".
func readFile(t *testing.T, name string) map[string]map[string]string {
	t.Helper()
	content, err := files.ReadFile(name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(content, &raw); err != nil {
		t.Fatal(err)
	}
	if written := strings.Count(string(content), "\n  \""); written != len(raw) {
		t.Errorf("%s.json has %d lines of texts and %d names: one is there twice", name, written, len(raw))
	}
	pieces := map[string]map[string]string{}
	for key, value := range raw {
		var text string
		forms := map[string]string{}
		if json.Unmarshal(value, &text) == nil {
			forms["other"] = text
		} else if err := json.Unmarshal(value, &forms); err != nil {
			t.Fatalf("%s.json: %s: %v", name, key, err)
		}
		pieces[key] = forms
	}
	return pieces
}

// blanks are the names that a template fills in. Nothing but filling in blanks belongs into a text.
func blanks(t *testing.T, text string) []string {
	t.Helper()
	parsed, err := template.New("").Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	if parsed.Tree == nil || parsed.Root == nil {
		return nil
	}
	for _, node := range parsed.Root.Nodes {
		switch node := node.(type) {
		case *parse.TextNode:
		case *parse.ActionNode:
			names = append(names, node.String())
		default:
			t.Errorf("%q does more than fill in blanks", text)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func TestTheFilesHaveTheSameTextsWithTheSameBlanks(t *testing.T) {
	en, ru := readFile(t, "en"), readFile(t, "ru")
	if a, b := slices.Sorted(maps.Keys(en)), slices.Sorted(maps.Keys(ru)); !slices.Equal(a, b) {
		t.Fatalf("en.json and ru.json have other names:\n%v\n%v", a, b)
	}
	for name, forms := range en {
		want := blanks(t, forms["other"])
		for _, file := range []map[string]map[string]string{en, ru} {
			for form, text := range file[name] {
				if got := blanks(t, text); !slices.Equal(got, want) {
					t.Errorf("%s, %s: %q has blanks %v, want %v", name, form, text, got, want)
				}
				if strings.TrimSpace(text) != text || text == "" {
					t.Errorf("%s, %s: %q begins or ends with a space, or is empty", name, form, text)
				}
			}
		}
	}
}

func TestEachLanguageHasThePluralFormsThatItNeeds(t *testing.T) {
	for language, needed := range neededForms {
		other := readFile(t, map[string]string{"en": "ru", "ru": "en"}[language])
		for name, forms := range readFile(t, language) {
			if len(forms) == 1 && len(other[name]) == 1 {
				continue
			}
			if got := slices.Sorted(maps.Keys(forms)); !slices.Equal(got, needed) {
				t.Errorf("%s.json: %s has the forms %v, needs %v", language, name, got, needed)
			}
		}
	}
}

// literals are the names of texts in the code: those that are said, and every other string, which may be a part of one.
func literals(t *testing.T) (said, all map[string]bool) {
	t.Helper()
	said, all = map[string]bool{}, map[string]bool{}
	text := func(e ast.Expr) (string, bool) {
		literal, ok := e.(*ast.BasicLit)
		if !ok || literal.Kind != token.STRING {
			return "", false
		}
		value, err := strconv.Unquote(literal.Value)
		return value, err == nil
	}
	inspect := func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if value, ok := text(e); ok {
				all[value] = true
			}
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		name := ""
		switch function := call.Fun.(type) {
		case *ast.SelectorExpr:
			name = function.Sel.Name
		case *ast.Ident:
			name = function.Name
		}
		if slices.Contains([]string{"say", "sayOf", "sayPlans", "phrase", "phraseOf", "tell"}, name) {
			if value, ok := text(call.Args[0]); ok {
				said[value] = true
			}
		}
		return true
	}
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), source, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, inspect)
	}
	return said, all
}

func TestEveryTextOfTheCodeIsInTheFilesAndEveryTextOfTheFilesInTheCode(t *testing.T) {
	en := readFile(t, "en")
	said, all := literals(t)
	if len(said) < 40 {
		t.Fatalf("found only %d texts in the code", len(said))
	}
	for name := range said {
		if en[name] == nil {
			t.Errorf("the code says %q, which no file has", name)
		}
	}
	for month := 1; month <= 12; month++ {
		if en["month."+strconv.Itoa(month)] == nil {
			t.Errorf("month %d has no name", month)
		}
	}
	for _, accident := range Accidents() {
		if en[accident.sentence()] == nil {
			t.Errorf("%s has no text", accident)
		}
	}
	for _, kind := range Notices() {
		if en[string(kind)] == nil {
			t.Errorf("%s has no text", kind)
		}
	}
	for _, reason := range PreCheckoutReasons() {
		if en[reason.sentence()] == nil {
			t.Errorf("%s has no text", reason)
		}
	}
	for name := range en {
		family := name[:strings.LastIndex(name, ".")+1] // "month.", "accident."
		if !all[name] && (family == "" || !all[family]) {
			t.Errorf("nobody says %q", name)
		}
	}
}

// chargedNothing finds every way to say that nothing was charged, in a text about to become true or false.
var chargedNothing = regexp.MustCompile(`(?i)nothing (was|has been|is) (charged|taken|spent)|(not|n't|never) (been )?charged|no charge|balance (is|was|has) un?(changed|not)|` +
	`ничего не спис|не был[оаи]? списан|не списал|не списан|списания не|без списания|остаток не измен|денег не|бесплатно не`)

func TestOnlyOneSentenceSaysThatNothingWasCharged(t *testing.T) {
	for language := range neededForms {
		for name, forms := range readFile(t, language) {
			for form, text := range forms {
				if says := chargedNothing.MatchString(text); says != (name == "nothing_charged") {
					t.Errorf("%s.json: %s, %s: %q", language, name, form, text)
				}
			}
		}
	}
}

func TestNoTextSpeaksOfMachinery(t *testing.T) {
	jargon := regexp.MustCompile(`(?i)idempot|идемпот|transaction|транзакц|token|токен|\blease|лизинг|reserv|резерв|commit|коммит|ledger|timeout|таймаут|database|баз[аеы] данных|worker|воркер|null`)
	for language := range neededForms {
		for name, forms := range readFile(t, language) {
			for form, text := range forms {
				if found := jargon.FindString(text); found != "" {
					t.Errorf("%s.json: %s, %s says %q", language, name, form, found)
				}
			}
		}
	}
}
