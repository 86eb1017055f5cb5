package catalog_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
)

var update = flag.Bool("update", false, "write golden files and schema.json instead of comparing them")

// script is a file of testdata: prose, a catalog, and cases that change it.
type script struct {
	preamble string
	base     string
	cases    []scriptCase
}

type scriptCase struct {
	title, edits, want string
	trailer            string // prose before the next case
}

const problemsFile = "testdata/problems.txt"

func readScript(t *testing.T, name string) script {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(raw), "\n=== ")
	s := script{preamble: parts[0]}
	for line := range strings.Lines(parts[0]) {
		if text, found := strings.CutPrefix(line, "> "); found {
			s.base += text
		}
	}
	for _, part := range parts[1:] {
		var c scriptCase
		c.title, part, _ = strings.Cut(part, "\n")
		if i := strings.Index(part, "\n# "); i >= 0 {
			part, c.trailer = part[:i+1], part[i:]
		}
		c.edits, c.want, _ = strings.Cut(part, "----\n")
		c.want = strings.TrimRight(c.want, "\n")
		s.cases = append(s.cases, c)
	}
	return s
}

// file is the catalog of the case.
func (c scriptCase) file(t *testing.T, base string) string {
	t.Helper()
	var old, replacement string
	var whole, edited bool
	apply := func() {
		switch {
		case old != "" && strings.Count(base, old) != 1:
			t.Fatalf("%q is in the catalog %d times", old, strings.Count(base, old))
		case old != "":
			base = strings.Replace(base, old, replacement, 1)
			edited = true
		case replacement != "":
			base = replacement
			whole = true
		}
		old, replacement = "", ""
	}
	for line := range strings.Lines(c.edits) {
		line = strings.TrimSuffix(line, "\n")
		if text, found := strings.CutPrefix(line, "< "); found {
			apply()
			old = text
		}
		if text, found := strings.CutPrefix(line, "> "); found {
			if replacement != "" {
				replacement += "\n"
			}
			replacement += text
		}
	}
	apply()
	if whole == edited {
		t.Fatal("a case edits the catalog or replaces it")
	}
	return base
}

// play runs every case and compares what it says with the file, or writes it there.
func (s script) play(t *testing.T, name string, run func(t *testing.T, file string) string) {
	rewritten := strings.Builder{}
	rewritten.WriteString(s.preamble)
	for _, c := range s.cases {
		var got string
		t.Run(c.title, func(t *testing.T) {
			file := c.file(t, s.base)
			got = run(t, file)
			if !*update {
				if diff := cmp.Diff(c.want, got); diff != "" {
					t.Errorf("%s\n(-want +got)\n%s", file, diff)
				}
			}
		})
		fmt.Fprintf(&rewritten, "\n=== %s\n%s\n----\n%s\n%s", c.title, strings.TrimRight(c.edits, "\n"), got, c.trailer)
	}
	if *update {
		if err := os.WriteFile(name, []byte(rewritten.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProblemsAreToldWithTheirPlaceAndWhatToWriteInstead(t *testing.T) {
	readScript(t, problemsFile).play(t, problemsFile, func(t *testing.T, file string) string {
		compiled, err := catalog.Parse("catalog.yaml", []byte(file))
		if err != nil {
			if compiled != nil {
				t.Error("a refused file left a catalog")
			}
			mustPoint(t, file, err)
			return err.Error()
		}
		mustHold(t, compiled)
		return "a catalog"
	})
}

// mustPoint: every problem lies in the file, in its order, says what to write, and its caret stands under its column.
func mustPoint(t *testing.T, file string, err error) {
	t.Helper()
	var problems catalog.Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		t.Fatalf("no Problems: %v", err)
	}
	lines := strings.Split(strings.ReplaceAll(strings.TrimPrefix(file, "\ufeff"), "\r\n", "\n"), "\n")
	for _, p := range problems {
		if p.Line < 1 || p.Line > len(lines) || p.Column < 1 || p.Column > utf8.RuneCountInString(lines[p.Line-1])+1 {
			t.Errorf("%s: lies outside the file", p)
			continue
		}
		if p.File != "catalog.yaml" || p.Message == "" || p.Suggestion == "" {
			t.Errorf("%s: has no file, no message or no suggestion", p)
		}
		line, caret, _ := strings.Cut(p.Excerpt, "\n")
		if utf8.RuneCountInString(lines[p.Line-1]) < 100 && len(caret) != p.Column {
			t.Errorf("%s: the caret is not under column %d of %q", p, p.Column, line)
		}
		if strings.ContainsFunc(p.String(), func(char rune) bool { return char < ' ' && char != '\n' || char == 0x7f }) {
			t.Errorf("%q: has a control character", p.String())
		}
	}
}

// mustHold is what the core relies on in any catalog.
func mustHold(t *testing.T, c *holdfast.Catalog) {
	t.Helper()
	check := func(ok bool, format string, arguments ...any) {
		t.Helper()
		if !ok {
			t.Errorf(format, arguments...)
		}
	}
	amount := func(a, least holdfast.Amount) bool { return a >= least && a <= holdfast.MaxAmount }
	ttl := func(d time.Duration) bool { return d >= holdfast.MinTTL && d <= holdfast.MaxTTL }

	check(c.Version == 0, "version %d", c.Version)
	check(len(c.Units) > 0 && len(c.Features) > 0 && len(c.Plans) > 0, "a section is empty")
	seen := map[string]bool{}
	name := func(kind, name string) {
		t.Helper()
		check(holdfast.ValidIdentifier(name), "%s %q", kind, name)
		check(!seen[kind+"\x00"+name], "%s %q is there twice", kind, name)
		seen[kind+"\x00"+name] = true
	}
	for _, unit := range c.Units {
		name("unit", unit.Name)
		check(unit.Scale >= 0 && unit.Scale <= 15, "scale %d", unit.Scale)
		for language, forms := range unit.Names {
			check(len(forms) == map[string]int{"en": 2, "ru": 4}[language], "%s: %v", language, forms)
			for form, text := range forms {
				check(text != "", "%s %s is empty", language, form)
			}
		}
	}
	for _, f := range c.Features {
		name("feature", f.Name)
		check(len(f.Prices) > 0, "%s has no price", f.Name)
		for _, p := range f.Prices {
			_, known := c.Unit(p.Unit)
			check(known && amount(p.Amount, 0), "%s costs %v", f.Name, p)
			name("price of "+f.Name, p.Unit)
			check(p.ByUsage() == (len(p.Rates) > 0) && p.Per >= 0 && p.Per <= 1_000_000_000, "%s costs %v", f.Name, p)
			check(!p.ByUsage() || p.Amount == 0, "%s costs %v by usage and at once", f.Name, p)
			check(len(p.Rates) <= holdfast.MaxUsageKinds, "%s has %d rates", f.Name, len(p.Rates))
			for kind, rate := range p.Rates {
				check(holdfast.ValidIdentifier(kind) && amount(rate, 0), "%s costs %d per %q", f.Name, rate, kind)
			}
		}
		check(f.Queue == "" || holdfast.ValidIdentifier(f.Queue), "%s waits in %q", f.Name, f.Queue)
		check(f.MaxHold == 0 || f.MaxHold >= f.TTL && f.MaxHold <= 96*time.Hour, "%s is held for %s", f.Name, f.MaxHold)
		check(slices.Contains([]holdfast.Overrun{"", "extend", "debt"}, f.Policies.Overrun), "%s: %v", f.Name, f.Policies)
		check(slices.Contains([]holdfast.InDoubtPolicy{"", "charge"}, f.Policies.InDoubt), "%s: %v", f.Name, f.Policies)
		check(slices.Contains([]holdfast.LatePolicy{"", "absorb"}, f.Policies.LateCommit), "%s: %v", f.Name, f.Policies)
		check(slices.Contains([]holdfast.CancelPolicy{"", "request"}, f.Policies.CancelRunning), "%s: %v", f.Name, f.Policies)
		check(f.LongestJob > 0 && f.LongestWait >= 0 && ttl(f.TTL), "%s: %v", f.Name, f)
		check(f.TTL >= 3*f.LongestJob && f.TTL >= f.LongestWait, "%s: ttl %s is too short", f.Name, f.TTL)
	}
	for _, s := range c.Surfaces {
		name("surface", s.Name)
		check(s.TTL == 0 || ttl(s.TTL), "surface %s: %s", s.Name, s.TTL)
		for _, f := range c.Features {
			check(f.MaxHold == 0 || f.MaxHold >= s.TTL, "%s is held for %s, shorter than surface %s", f.Name, f.MaxHold, s.Name)
			check(s.TTL == 0 || s.TTL >= 3*f.LongestJob && s.TTL >= f.LongestWait, "surface %s is too short for %s", s.Name, f.Name)
		}
	}
	sold := map[string]bool{}
	for _, p := range c.Products {
		name("product", p.Name)
		check((p.Plan == "") != (p.Grant == nil), "product %s sells %q and %v", p.Name, p.Plan, p.Grant)
		period := func(period holdfast.Period) bool {
			return period.Days >= 0 && period.Days <= 366 && period.Months >= 0 && period.Months <= 12 && (period.Days == 0) != (period.Months == 0)
		}
		if p.Grant != nil {
			_, known := c.Unit(p.Grant.Unit)
			check(known && amount(p.Grant.Amount, 1), "product %s grants %v", p.Name, *p.Grant)
			check(p.Grant.For == holdfast.Period{} || period(p.Grant.For), "product %s grants for %v", p.Name, p.Grant.For)
			check(p.Period == holdfast.Period{}, "product %s has a period and a grant", p.Name)
		} else {
			plan, known := c.Plan(p.Plan)
			check(known && !plan.Default && period(p.Period), "product %s sells plan %q for %v", p.Name, p.Plan, p.Period)
			sold[p.Plan] = true
		}
		check(len(p.Prices) > 0, "product %s has no price", p.Name)
		for _, price := range p.Prices {
			check(len(price.Currency) == 3 && strings.ToUpper(price.Currency) == price.Currency, "currency %q", price.Currency)
			check(amount(price.Amount, 1), "product %s costs %v", p.Name, price)
			name("price of product "+p.Name, strings.ToLower(price.Currency))
		}
	}
	defaults := 0
	for _, p := range c.Plans {
		name("plan", p.Name)
		if p.Default {
			defaults++
		}
		check(!p.Default || !p.Retired, "the default plan %s is retired", p.Name)
		check(p.MaxActive >= 1 && p.MaxActive <= 1000, "plan %s: max_active %d", p.Name, p.MaxActive)
		for _, feature := range p.Features {
			_, known := c.Feature(feature)
			check(known, "plan %s has %q", p.Name, feature)
			name("feature of "+p.Name, feature)
		}
		for _, feature := range p.FreeFeatures {
			check(p.Has(feature), "plan %s has %q free only", p.Name, feature)
			name("free feature of "+p.Name, feature)
		}
		check(p.Tier == "" || holdfast.ValidIdentifier(p.Tier), "plan %s: tier %q", p.Name, p.Tier)
		check(p.QueueNoticeAfter >= 0 && p.QueueNoticeAfter <= 24*time.Hour, "plan %s: notice after %s", p.Name, p.QueueNoticeAfter)
		check(p.Grace >= 0 && p.Grace <= 90*24*time.Hour, "plan %s: grace %s", p.Name, p.Grace)
		check(slices.Contains([]holdfast.UpgradePolicy{"", "prorated", "full"}, p.Upgrade), "plan %s: upgrade %q", p.Name, p.Upgrade)
		check(slices.Contains([]holdfast.RefundPolicy{"", "revoke_all_as_debt", "keep"}, p.Refund), "plan %s: refund %q", p.Name, p.Refund)
		check(slices.Contains([]holdfast.RunningPolicy{"", "stop"}, p.RunningOnRefund), "plan %s: running_on_refund %q", p.Name, p.RunningOnRefund)
		for _, limits := range []map[string]holdfast.Amount{p.DebtLimits, p.LowBalance} {
			for unit, limit := range limits {
				_, known := c.Unit(unit)
				check(known && amount(limit, 0), "plan %s: %d of %q", p.Name, limit, unit)
			}
		}
		sums := map[string]holdfast.Amount{}
		for _, a := range p.Allowances {
			_, known := c.Unit(a.Unit)
			check(known && amount(a.Amount, 1) && amount(a.Rollover, 0), "plan %s gives %v", p.Name, a)
			sums[a.Unit] += a.Amount
			check(amount(sums[a.Unit], 1), "plan %s gives more of %s than fits", p.Name, a.Unit)
			sums[a.Unit] += a.Rollover
			check(amount(sums[a.Unit], 1), "plan %s carries over more of %s than fits", p.Name, a.Unit)
			switch every := a.Every; every {
			case holdfast.Cycle{Calendar: holdfast.Day}, holdfast.Cycle{Calendar: holdfast.Week}, holdfast.Cycle{Calendar: holdfast.Month}:
				check(!sold[p.Name], "plan %s is sold and has %v", p.Name, every)
			case holdfast.Cycle{Anniversary: true}:
			case holdfast.Cycle{Term: true}:
				check(!p.Default, "the default plan %s has a term", p.Name)
			default:
				check(every == holdfast.Cycle{Rolling: every.Rolling}, "plan %s: every %v", p.Name, every)
				check(every.Rolling >= time.Minute && every.Rolling <= 366*24*time.Hour, "plan %s: every %s", p.Name, every.Rolling)
				check(a.Rollover == 0, "plan %s carries over from a rolling window", p.Name)
			}
			check(!seen["key\x00"+a.Key], "key %q is there twice", a.Key)
			seen["key\x00"+a.Key] = true
		}
	}
	check(defaults == 1, "%d default plans", defaults)
}

func TestTheEmbeddedCatalogIsTheExample(t *testing.T) {
	credit := func(amount holdfast.Amount) holdfast.Price { return holdfast.Price{Unit: "credit", Amount: amount} }
	want := &holdfast.Catalog{
		Units: []holdfast.Unit{
			{Name: "credit", Names: holdfast.Plurals{
				"en": {"one": "credit", "other": "credits"},
				"ru": {"one": "кредит", "few": "кредита", "many": "кредитов", "other": "кредита"},
			}},
			{Name: "image", Names: holdfast.Plurals{
				"en": {"one": "image", "other": "images"},
				"ru": {"one": "картинка", "few": "картинки", "many": "картинок", "other": "картинки"},
			}},
		},
		Features: []holdfast.Feature{
			{
				Name: "text.improve", Names: holdfast.Names{"en": "Improve text", "ru": "Улучшение текста"},
				Prices: []holdfast.Price{credit(1)}, LongestJob: time.Minute, LongestWait: 5 * time.Minute, TTL: 5 * time.Minute,
				Queue: "text",
			},
			{
				Name: "image.generate", Names: holdfast.Names{"en": "Image", "ru": "Картинка"},
				Prices: []holdfast.Price{{Unit: "image", Amount: 1}, credit(5)}, LongestJob: 5 * time.Minute, TTL: 15 * time.Minute,
				Queue: "image", Policies: holdfast.Policies{CancelRunning: holdfast.CancelRequest},
			},
			{
				Name: "chat.completion", Names: holdfast.Names{"en": "Chat", "ru": "Чат"},
				Prices:     []holdfast.Price{{Unit: "credit", Per: 1000, Rates: map[string]holdfast.Amount{"input_token": 1, "cached_token": 0, "output_token": 4}}},
				LongestJob: 2 * time.Minute, TTL: 10 * time.Minute,
				Policies: holdfast.Policies{Overrun: holdfast.OverrunExtend},
			},
			{
				Name: "file.analyze", Names: holdfast.Names{"en": "File analysis", "ru": "Анализ файлов"},
				Prices: []holdfast.Price{credit(3)}, LongestJob: 3 * time.Minute, TTL: 15 * time.Minute,
			},
		},
		Surfaces: []holdfast.Surface{{Name: "bot", TTL: 15 * time.Minute}, {Name: "miniapp", TTL: 30 * time.Minute}},
		Plans: []holdfast.Plan{
			{
				Name: "free", Default: true, Names: holdfast.Names{"en": "Free", "ru": "Бесплатный"},
				Features: []string{"text.improve", "image.generate"}, MaxActive: 1, Tier: "standard", QueueNoticeAfter: 5 * time.Second,
				Allowances: []holdfast.Allowance{{Key: "free/credit", Unit: "credit", Amount: 3, Every: holdfast.Cycle{Rolling: 24 * time.Hour}}},
			},
			{
				Name: "pro", Names: holdfast.Names{"en": "Pro", "ru": "Старший"},
				Features:     []string{"text.improve", "image.generate", "chat.completion", "file.analyze"},
				FreeFeatures: []string{"text.improve"}, MaxActive: 3, Tier: "priority",
				Allowances: []holdfast.Allowance{
					{Key: "pro/credit", Unit: "credit", Amount: 300, Every: holdfast.Cycle{Term: true}, Rollover: 150},
					{Key: "pro/image", Unit: "image", Amount: 50, Every: holdfast.Cycle{Term: true}},
				},
				Upgrade: holdfast.UpgradeProrated, Grace: 72 * time.Hour,
				DebtLimits: map[string]holdfast.Amount{"credit": 0}, LowBalance: map[string]holdfast.Amount{"credit": 30},
			},
		},
		Products: []holdfast.Product{
			{Name: "pro_30", Plan: "pro", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 250}}},
			{Name: "pro_month", Plan: "pro", Period: holdfast.Period{Months: 1}, Prices: []holdfast.Money{{Currency: "USD", Amount: 499}}},
			{Name: "credits_100", Grant: &holdfast.ProductGrant{Unit: "credit", Amount: 100}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 100}}},
		},
	}
	if diff := cmp.Diff(want, catalog.Embedded()); diff != "" {
		t.Error(diff)
	}
	mustHold(t, catalog.Embedded())
}

func TestWhatIsEmbeddedBelongsToTheCaller(t *testing.T) {
	catalog.Embedded().Version = 7
	clear(catalog.EmbeddedSource())
	clear(catalog.Schema())
	if catalog.Embedded().Version != 0 || !bytes.Contains(catalog.EmbeddedSource(), []byte("units:")) || !bytes.Contains(catalog.Schema(), []byte("units")) {
		t.Error("a caller changed what the next one gets")
	}
}

func TestAPeriodIsDaysOrMonths(t *testing.T) {
	for written, want := range map[string]holdfast.Period{
		"1d": {Days: 1}, "30d": {Days: 30}, "366d": {Days: 366}, "1 month": {Months: 1}, "3 months": {Months: 3},
		"12 months": {Months: 12}, "1 year": {Months: 12},
	} {
		file := minimal() + "  pro: {features: [], max_active: 1}\nproducts: {one: {plan: pro, period: " + written + ", prices: [{currency: XTR, amount: 1}]}}\n"
		if got := parse(t, file).Products[0].Period; got != want {
			t.Errorf("%s is %v, want %v", written, got, want)
		}
	}
}

func TestTheDefaultOfEveryPolicyIsTheEmptyWord(t *testing.T) {
	const feature = "overrun: cap, in_doubt: release, late_commit: charge, cancel_running: deny, "
	written := parse(t, strings.Replace(minimal("upgrade: difference", "refund: revoke_unused", "running_on_refund: finish"), "{price", "{"+feature+"price", 1))
	if diff := cmp.Diff(parse(t, minimal()), written); diff != "" {
		t.Error(diff)
	}
}

func TestFurtherAllowancesOfAUnitAreNumbered(t *testing.T) {
	const every = "every: rolling 24h}"
	c := parse(t, minimal("allowances: [{unit: credit, amount: 1, "+every+", {unit: image, amount: 1, "+every+", {unit: credit, amount: 2, "+every+", {unit: credit, amount: 3, "+every+"]"))
	var keys []string
	for _, a := range c.Plans[0].Allowances {
		keys = append(keys, a.Key)
	}
	if want := []string{"free/credit", "free/image", "free/credit#2", "free/credit#3"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
}

// minimal is a small catalog with further lines for its plan.
func minimal(planLines ...string) string {
	return `units: {credit: {}, image: {}}
features:
  work: {price: [{unit: credit, amount: 1}], longest_job: 1s, ttl: 3s}
plans:
  free:
    default: true
    features: [work]
    max_active: 1
    ` + strings.Join(planLines, "\n    ") + "\n"
}

func parse(t *testing.T, file string) *holdfast.Catalog {
	t.Helper()
	c, err := catalog.Parse("catalog.yaml", []byte(file))
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, c)
	return c
}

func TestTheOrderOfTheFileIsKept(t *testing.T) {
	var file strings.Builder
	file.WriteString("units:\n")
	for i := range 100 {
		fmt.Fprintf(&file, "  u%d: {}\n", i*37%100)
	}
	file.WriteString(strings.TrimPrefix(minimal(), "units: {credit: {}, image: {}}\n"))
	c := parse(t, strings.Replace(file.String(), "unit: credit", "unit: u0", 1))
	for i, unit := range c.Units {
		if want := fmt.Sprintf("u%d", i*37%100); unit.Name != want {
			t.Fatalf("unit %d is %s, want %s", i, unit.Name, want)
		}
	}
}

func TestFilesOfOtherEditorsAreRead(t *testing.T) {
	want := parse(t, minimal())
	for name, file := range map[string]string{
		"byte order mark":     "\ufeff" + minimal(),
		"carriage returns":    strings.ReplaceAll(minimal(), "\n", "\r\n"),
		"tabs before comment": strings.ReplaceAll(minimal(), "\n", "\t\t# a comment\n"),
		"tabs before values":  strings.ReplaceAll(minimal(), ": ", ":\t"),
		"no last line end":    strings.TrimRight(minimal(), "\n"),
		"a comment line":      "\t# a comment\n" + minimal(),
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(want, parse(t, file)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatIsNotTextIsRefusedWithItsPlace(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"latin-1", "units:\n  cr\xe9dit: {}\n", "catalog.yaml:2:5: not UTF-8"},
		{"latin-1 on a long line", strings.Repeat("é", 200) + "\xe9" + strings.Repeat("é", 200), "catalog.yaml:1:201: not UTF-8"},
		{"utf-16", "\xff\xfeu\x00", "catalog.yaml:1:1: not UTF-8"},
		{"nul", "units: \x00\n", "catalog.yaml:1:8: the character U+0000 cannot be seen"},
		{"escape", "units:\n\x1b[2J", "catalog.yaml:2:1: the character U+001B cannot be seen"},
		{"direction", "units:\n  a: \u202e\n", "catalog.yaml:2:6: the character U+202E cannot be seen"},
		{"lone carriage return", "units:\r  a: {}\n", "catalog.yaml:1:7: the character U+000D cannot be seen"},
		{"tab", "units:\n\ta: {}\n", "catalog.yaml:2:1: a tab in the indentation"},
		{"tab behind spaces", "units:\n  \ta: {}\n", "catalog.yaml:2:3: a tab in the indentation"},
		{"long line", "units:\n  a: {} #" + strings.Repeat(" ", 5000), "catalog.yaml:2:1: a line of more than 4096 characters"},
		{"empty", "", "catalog.yaml:1:1: the file is empty"},
		{"spaces", " \n \n", "catalog.yaml:1:1: the file is empty"},
		{"too large", strings.Repeat("#\n", holdfast.MaxCatalogBytes/2) + "#", "catalog.yaml:1:1: the file has 1048577 bytes, more than 1048576"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := catalog.Parse("catalog.yaml", []byte(c.file))
			if err == nil {
				t.Fatal("accepted")
			}
			if got, _, _ := strings.Cut(err.Error(), "\n"); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestAThousandNamesOfAKindAreAcceptedAndNotOneMore(t *testing.T) {
	units := func(n int) string {
		var lines strings.Builder
		for i := range n {
			fmt.Fprintf(&lines, "  u%d: {}\n", i)
		}
		return "units:\n  credit: {}\n" + lines.String() + strings.TrimPrefix(minimal(), "units: {credit: {}, image: {}}\n")
	}
	parse(t, units(999))
	_, err := catalog.Parse("catalog.yaml", []byte(units(1000)))
	if want := "catalog.yaml:1002:3: units: more than 1000\n"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestACatalogOfAThousandFeaturesIsNotTooLarge(t *testing.T) {
	var file, list strings.Builder
	file.WriteString("units: {credit: {}}\nfeatures:\n")
	for i := range 1000 {
		fmt.Fprintf(&file, "  f%d: {names: {en: Work, ru: Работа}, price: [{unit: credit, amount: %d}], longest_job: 60s, longest_wait: 1m, ttl: 5m}\n", i, i)
		fmt.Fprintf(&list, "      - f%d\n", i)
	}
	file.WriteString("plans:\n  free:\n    default: true\n    max_active: 1\n    features:\n" + list.String() + "    free_features: [\n" + strings.ReplaceAll(strings.ReplaceAll(list.String(), "- ", ""), "\n", ",\n") + "    ]\n")
	c := parse(t, file.String())
	if len(c.Features) != 1000 || len(c.Plans[0].Features) != 1000 || len(c.Plans[0].FreeFeatures) != 1000 {
		t.Error("features are missing")
	}
}

func TestWhatTheParserIsSparedIsToldAsABound(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{strings.Repeat("a: b\n", 2001), "2001:2: more than 2000 keys side by side"},
		{"a: {\n" + strings.Repeat("b,\n", 1001) + "}", "1002:1: more than 1000 fields without a value"},
		{strings.Repeat("a:\n", 1001), "1001:2: more than 1000 fields without a value"},
		{strings.Repeat("-\n", 1001), "1001:1: more than 1000 fields without a value"},
		{strings.Repeat("- - b\n", 33_334), "33334:3: the file has too many values"},
		{strings.Repeat("k", 129) + ": v", "1:1: a key of more than 128 characters"},
		{"k: " + strings.Repeat("v", 513), "1:4: a text of more than 512 characters"},
		{"- - - - - - - - - - - a", "1:21: nested more than 10 deep"},
		{"a:\n b:\n  c:\n   d:\n    e:\n     f:\n      g:\n       h:\n        i:\n         j:\n          k: 1", "11:12: nested more than 10 deep"},
	} {
		_, err := catalog.Parse("catalog.yaml", []byte(c.file))
		if err == nil {
			t.Errorf("%s: accepted", c.want)
			continue
		}
		if got, _, _ := strings.Cut(err.Error(), "\n"); got != "catalog.yaml:"+c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
	// Lists of many short items, and lists that begin at the column of their key, have their values.
	for _, file := range []string{"k: [\n" + strings.Repeat("b,\n", 5000) + "]", strings.Repeat("k:\n- b\n", 1500)} {
		if _, err := catalog.Parse("catalog.yaml", []byte(file)); err == nil || strings.Contains(err.Error(), "more than") || !strings.Contains(err.Error(), " k: ") {
			t.Errorf("%.200v", err)
		}
	}
}

func TestAllowancesOfAPlanAreBounded(t *testing.T) {
	list := func(n int) string {
		return minimal("allowances:", strings.Repeat("- {unit: credit, amount: 1, every: rolling 1m}\n    ", n))
	}
	parse(t, list(64))
	_, err := catalog.Parse("catalog.yaml", []byte(list(65)))
	if want := "catalog.yaml:74:7: plans.free.allowances: more than 64 allowances\n"; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

func TestProblemsBeyondFiveHundredAreCounted(t *testing.T) {
	_, err := catalog.Parse("catalog.yaml", []byte(minimal(strings.Repeat("x: 1\n    ", 700))))
	var problems catalog.Problems
	if !errors.As(err, &problems) || len(problems) != 501 || problems[500].Message != "200 further problems are not listed" {
		t.Errorf("%d problems, the last: %v", len(problems), problems[len(problems)-1])
	}
}

func TestTheExcerptOfALongLineShowsThePartThatIsMeant(t *testing.T) {
	file := "units: {" + strings.Repeat("ы", 300) + ": {}, " + strings.Repeat("a", 300) + ": {}}\n"
	_, err := catalog.Parse("catalog.yaml", []byte(file))
	var problems catalog.Problems
	if !errors.As(err, &problems) {
		t.Fatal(err)
	}
	for _, p := range problems {
		line, caret, _ := strings.Cut(p.Excerpt, "\n")
		if n := utf8.RuneCountInString(line); n > 120 || len(caret) > n+1 {
			t.Errorf("%d characters, caret at %d", n, len(caret))
		}
	}
}

// Every one of these once took minutes to hours, gigabytes, or the whole stack; see source.go and syntax.go.
func TestAMegabyteOfWhatTheParserCannotTakeIsAnswered(t *testing.T) {
	for _, c := range []struct{ begin, part string }{
		{"", "["},
		{"", "a:\n"},
		{"", "a: b\n"},
		{"", "<<"},
		{"", "\t"},
		{"{ ", "a,"},
		{"{ ", "&a "},
		{"a: \"", "\t"},
		{"a: |\n", " \n"},
		{"a: \"\\z | #\"\n", "\n"},
		{"a: x\n  '' |\n", "\n"},
		{"k: {" + strings.Repeat("k", 100) + ": {" + strings.Repeat("k", 100) + ": [", "a,"},
		{"p: &p [a]\n", "q: [*p, *p]\n"},
	} {
		for _, lines := range []bool{false, true} { // of whatever length, and short enough to be looked into
			part := c.part
			if lines {
				part = strings.Repeat(part, 2000/len(part)) + "\n "
			}
			file := c.begin + strings.Repeat(part, (holdfast.MaxCatalogBytes-len(c.begin))/len(part))
			if _, err := catalog.Parse("catalog.yaml", []byte(file)); err == nil {
				t.Errorf("%q %q: accepted", c.begin, c.part)
			}
		}
	}
}

func TestAnAmountWithALongExponentIsNotWrittenOut(t *testing.T) {
	file := "units: {a: {}}\nfeatures:\n  f:\n    price:\n" + strings.Repeat("    - {amount: 1e999999}\n", 10_000)
	_, err := catalog.Parse("catalog.yaml", []byte(file))
	if err == nil || !strings.Contains(err.Error(), "features.f.price[0].amount: not written as an integer") {
		t.Errorf("%.300v", err)
	}
}

// inSchema is what an editor says to the file.
func inSchema(t *testing.T, file []byte) error {
	t.Helper()
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(catalog.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	converted, err := yaml.YAMLToJSON(file)
	if err != nil {
		t.Fatal(err)
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(converted))
	if err != nil {
		t.Fatal(err)
	}
	return schema.Validate(content)
}

func TestEditorsFindTheSchemaAndNothingWrongWithTheExample(t *testing.T) {
	first, _, _ := bytes.Cut(catalog.EmbeddedSource(), []byte("\n"))
	if string(first) != "# yaml-language-server: $schema=schema.json" {
		t.Errorf("the example begins with %q", first)
	}
	if err := inSchema(t, catalog.EmbeddedSource()); err != nil {
		t.Error(err)
	}
}

func TestWhatParseAcceptsEditorsAccept(t *testing.T) {
	s := readScript(t, problemsFile)
	accepted := 0
	for _, c := range s.cases {
		if c.want != "a catalog" {
			continue
		}
		accepted++
		if err := inSchema(t, []byte(c.file(t, s.base))); err != nil {
			t.Errorf("%s: %v", c.title, err)
		}
	}
	if accepted < 5 {
		t.Errorf("only %d cases are accepted", accepted)
	}
}

func TestEditorsSeeAWrongShape(t *testing.T) {
	for _, line := range []string{
		"tier: High Priority", "colour: red", "upgrade: halved", "grace: 3 days", "retired: 1", "low_balance: {credit: -1}", "debt_limit: 5", "default: yes", "features: work", "features: [Work]", "max_active: 0", "max_active: 1.5",
		"max_active: 1001", "max_active: \"1\"", "names: {de: Frei}", "names: {en: \"\"}", "allowances: [{}]",
		"allowances: [{unit: credit, amount: 0, every: rolling 24h}]", "allowances: [{unit: credit, amount: 9007199254740992, every: rolling 24h}]",
		"allowances: [{unit: credit, amount: 1, every: calendar year}]", "allowances: [{unit: credit, amount: 1, every: calendar day, rollover: {}}]",
		"allowances: [{unit: credit, amount: 1, every: rolling 24}]",
	} {
		field, _, _ := strings.Cut(line, ":")
		var kept []string
		for old := range strings.Lines(minimal()) {
			if !strings.HasPrefix(strings.TrimSpace(old), field+":") || !strings.HasPrefix(old, "    ") {
				kept = append(kept, old)
			}
		}
		file := strings.Join(kept, "") + "    " + strings.TrimSpace(line) + "\n"
		if inSchema(t, []byte(file)) == nil {
			t.Errorf("%s: the schema accepts it", line)
		}
		if _, err := catalog.Parse("catalog.yaml", []byte(file)); err == nil {
			t.Errorf("%s: Parse accepts it", line)
		}
	}
	if err := inSchema(t, []byte(minimal())); err != nil {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(catalog.EmbeddedSource())
	f.Add([]byte(minimal("names: {en: \"a\\u202e\", ru: 'b'}")))
	f.Add([]byte("units:\n- a\n-  b: c\n"))
	f.Add([]byte("{a: [b, {c: d}], 'e': \"f\"}"))
	f.Add([]byte("a: 1e999999999\nb: 0x\nc: -.inf\nd: 18446744073709551616\n"))
	f.Add([]byte("a: b\n  c\n d\n---\n...\n"))
	f.Add([]byte("\ufeffa:\r\n\tb\xff"))
	raw, err := os.ReadFile(problemsFile)
	if err != nil {
		f.Fatal(err)
	}
	for part := range strings.SplitSeq(strings.ReplaceAll(string(raw), "\n> ", "\n"), "\n=== ") {
		f.Add([]byte(part))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		c, err := catalog.Parse("catalog.yaml", file)
		if err == nil {
			mustHold(t, c)
			return
		}
		if c != nil {
			t.Error("a refused file left a catalog")
		}
		if utf8.Valid(file) && len(file) <= holdfast.MaxCatalogBytes {
			mustPoint(t, string(file), err)
		}
	})
}
