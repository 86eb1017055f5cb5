package message

import (
	"math"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast"
)

func TestUnitsTakeThePluralFormOfTheirNumber(t *testing.T) {
	texts := newTexts(t)
	cases := []struct {
		amount      holdfast.Amount
		unit        string
		en, ru      string
		ofEn, ofRus string
	}{
		{0, "credit", "0 credits", "0 кредитов", "0 credits", "0 кредитов"},
		{1, "credit", "1 credit", "1 кредит", "1 credit", "1 кредита"},
		{2, "credit", "2 credits", "2 кредита", "2 credits", "2 кредитов"},
		{3, "image", "3 images", "3 картинки", "3 images", "3 картинок"},
		{5, "credit", "5 credits", "5 кредитов", "5 credits", "5 кредитов"},
		{11, "credit", "11 credits", "11 кредитов", "11 credits", "11 кредитов"},
		{12, "image", "12 images", "12 картинок", "12 images", "12 картинок"},
		{14, "credit", "14 credits", "14 кредитов", "14 credits", "14 кредитов"},
		{21, "credit", "21 credits", "21 кредит", "21 credits", "21 кредита"},
		{21, "image", "21 images", "21 картинка", "21 images", "21 картинки"},
		{22, "image", "22 images", "22 картинки", "22 images", "22 картинок"},
		{25, "credit", "25 credits", "25 кредитов", "25 credits", "25 кредитов"},
		{100, "credit", "100 credits", "100 кредитов", "100 credits", "100 кредитов"},
		{101, "credit", "101 credits", "101 кредит", "101 credits", "101 кредита"},
		{111, "credit", "111 credits", "111 кредитов", "111 credits", "111 кредитов"},
		{112, "credit", "112 credits", "112 кредитов", "112 credits", "112 кредитов"},
		{121, "credit", "121 credits", "121 кредит", "121 credits", "121 кредита"},
		{1000, "credit", "1,000 credits", "1\u00a0000 кредитов", "1,000 credits", "1\u00a0000 кредитов"},
		{1234567, "credit", "1,234,567 credits", "1\u00a0234\u00a0567 кредитов", "1,234,567 credits", "1\u00a0234\u00a0567 кредитов"},
		{-1, "credit", "-1 credit", "-1 кредит", "-1 credit", "-1 кредита"},
		{150, "coin", "1.5 coins", "1,5 монеты", "1.5 coins", "1,5 монеты"},
		{100, "coin", "1 coin", "1 монета", "1 coin", "1 монеты"},
		{500, "coin", "5 coins", "5 монет", "5 coins", "5 монет"},
		{5, "coin", "0.05 coins", "0,05 монеты", "0.05 coins", "0,05 монеты"},
		{-5, "coin", "-0.05 coins", "-0,05 монеты", "-0.05 coins", "-0,05 монеты"},
		{holdfast.MaxAmount, "coin", "90,071,992,547,409.91 coins", "90\u00a0071\u00a0992\u00a0547\u00a0409,91 монеты", "90,071,992,547,409.91 coins", "90\u00a0071\u00a0992\u00a0547\u00a0409,91 монеты"},
		{5, "token", "5 token", "5 token", "5 token", "5 token"},
		{5, "unheard-of", "5 unheard-of", "5 unheard-of", "5 unheard-of", "5 unheard-of"},
	}
	en, ru := texts.writer(english(), shop(), noon), texts.writer(russian(), shop(), noon)
	for _, c := range cases {
		for _, told := range []struct{ got, want string }{
			{en.quantity(c.amount, c.unit), c.en},
			{ru.quantity(c.amount, c.unit), c.ru},
			{en.quantityIn(genitive, c.amount, c.unit), c.ofEn},
			{ru.quantityIn(genitive, c.amount, c.unit), c.ofRus},
		} {
			if told.got != told.want {
				t.Errorf("%d %s: %q, want %q", c.amount, c.unit, told.got, told.want)
			}
		}
	}
}

func TestAmountsAreWrittenExactlyWhateverTheScale(t *testing.T) {
	for _, c := range []struct {
		amount holdfast.Amount
		scale  int
		want   string
	}{
		{0, 0, "0"},
		{0, 3, "0"},
		{7, 3, "0.007"},
		{7000, 3, "7"},
		{7010, 3, "7.01"},
		{-7010, 3, "-7.01"},
		{1, 20, "0.00000000000000000001"},
		{math.MaxInt64, 0, "9223372036854775807"},
		{math.MinInt64, 1, "-922337203685477580.8"},
	} {
		if got := decimal(c.amount, c.scale); got != c.want {
			t.Errorf("%d with %d decimals is %q, want %q", c.amount, c.scale, got, c.want)
		}
	}
}

func TestAUnitOfManyDecimalsStillHasAName(t *testing.T) {
	catalog := &holdfast.Catalog{Units: []holdfast.Unit{{Name: "dust", Scale: 30, Names: holdfast.Plurals{"ru": {"one": "пылинка", "other": "пылинки"}}}}}
	w := newTexts(t).writer(russian(), catalog, noon)
	if got, want := w.quantity(1, "dust"), "0,"+strings.Repeat("0", 29)+"1 пылинки"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestANameThatTheCatalogLacksIsTheTechnicalOne(t *testing.T) {
	catalog := &holdfast.Catalog{
		Units:    []holdfast.Unit{{Name: "credit", Names: holdfast.Plurals{"en": {"one": "credit", "other": "credits"}, "ru": {"few": " ", "other": "кредита"}}}},
		Features: []holdfast.Feature{{Name: "text.improve", Names: holdfast.Names{"en": "Improve text", "ru": "  "}}},
		Plans:    []holdfast.Plan{{Name: "pro", Names: holdfast.Names{"en": "Pro"}}},
	}
	w := newTexts(t).writer(russian(), catalog, noon)
	for _, c := range []struct{ got, want string }{
		{w.quantity(5, "credit"), "5 кредита"},
		{w.quantity(2, "credit"), "2 кредита"},
		{w.feature("text.improve"), "«text.improve»"},
		{w.feature("of.another.catalog"), "«of.another.catalog»"},
		{strings.Join(w.plans([]string{"pro", "gone"}), " "), "«pro» «gone»"},
	} {
		if c.got != c.want {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	outcome := refused(holdfast.FeatureNotInPlan, holdfast.Refusal{Feature: "file.analyze", Plans: []string{"pro"}})
	if got, want := newTexts(t).Detail(english(), nil, outcome, noon), "“file.analyze” is not part of your plan. It comes with the “pro” plan."; got != want {
		t.Errorf("without a catalog: %q, want %q", got, want)
	}
}

func TestALongListIsCutAndItsRestCounted(t *testing.T) {
	w := newTexts(t).writer(russian(), nil, noon)
	for _, c := range []struct {
		names string
		want  string
	}{
		{"", ""},
		{"a", "a"},
		{"a b", "a или b"},
		{"a b c d e", "a, b, c, d или e"},
		{"a b c d e f", "a, b, c, d, e и ещё 1"},
		{"a b c d e f g h", "a, b, c, d, e и ещё 3"},
	} {
		if got := w.list(or, strings.Fields(c.names)); got != c.want {
			t.Errorf("%q is listed as %q, want %q", c.names, got, c.want)
		}
	}
}

// hostile are names that a catalog might carry by mistake or malice.
var hostile = []string{
	"{{.Number}}", "{{", "}}{{template \"x\"}}", "{{/*", "%s%d", "<b>bold</b>", "a\nb\tc", "nul\x00nul", "\u202eright to left\u2066",
	"bad\xff\xfeutf8", strings.Repeat("long ", 500), "…", "«»“”\"'", "  ", "\u200f",
}

func TestHostileNamesStayNames(t *testing.T) {
	texts := newTexts(t)
	for _, name := range hostile {
		everywhere := map[string]string{"one": name, "few": name, "many": name, "other": name}
		catalog := shop()
		catalog.Units[0].Names = holdfast.Plurals{"en": everywhere, "ru": everywhere}
		for i := range catalog.Features {
			catalog.Features[i].Names = holdfast.Names{"en": name, "ru": name}
		}
		for i := range catalog.Plans {
			catalog.Plans[i].Names = holdfast.Names{"en": name, "ru": name}
		}
		for _, s := range situations() {
			for _, reader := range []Reader{english(), russian()} {
				text := texts.Detail(reader, catalog, s.outcome, noon)
				checkShape(t, text)
				if len([]rune(text)) > 1000 {
					t.Errorf("%s with the name %.20q has %d letters", s.name, name, len([]rune(text)))
				}
			}
		}
	}
	catalog := shop()
	catalog.Plans[1].Names = holdfast.Names{"en": "{{.Plans}}"}
	outcome := refused(holdfast.FeatureNotInPlan, holdfast.Refusal{Feature: "file.analyze", Plans: []string{"pro"}})
	if got, want := texts.Detail(english(), catalog, outcome, noon), "“File analysis” is not part of your plan. It comes with the “{{.Plans}}” plan."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestANameIsCleanedAndNotReplaced(t *testing.T) {
	for name, want := range map[string]string{
		"Анализ файлов":          "Анализ файлов",
		"  two\n\twords ":        "two words",
		"bad\xff\xfeutf8":        "badutf8",
		"nul\x00nul":             "nul nul",
		"\u202eright\u2066":      "right",
		"👨\u200d👩\u200d👧 family": "👨\u200d👩\u200d👧 family",
		strings.Repeat("ж", 64):  strings.Repeat("ж", 64),
		strings.Repeat("ж", 65):  strings.Repeat("ж", 64) + "…",
		"\u200f":                 "",
	} {
		if got := clean(name); got != want {
			t.Errorf("%q is shown as %q, want %q", name, got, want)
		}
	}
}

func TestHostileFieldsOfARequestStayFields(t *testing.T) {
	texts := newTexts(t)
	for _, name := range hostile {
		problems := []holdfast.Problem{{Field: name, Hint: name}, {Field: "unit"}}
		checkShape(t, texts.Detail(english(), nil, holdfast.Outcome{Reason: holdfast.Invalid, Problems: problems}, noon))
	}
}
