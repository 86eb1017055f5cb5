package message

import (
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast"
)

func TestTheHeaderWinsOverTheAccountAndEnglishIsTheLast(t *testing.T) {
	texts := newTexts(t)
	for _, c := range []struct{ header, account, want string }{
		{"", "", "en"},
		{"ru", "", "ru"},
		{"", "ru", "ru"},
		{"en", "ru", "en"},
		{"ru-RU,ru;q=0.9,en;q=0.8", "en", "ru"},
		{"en-GB;q=0.5, ru;q=0.7", "", "ru"},
		{"de", "ru", "ru"},
		{"de", "", "en"},
		{"uk,ru;q=0.8", "", "ru"},
		{"*", "ru", "ru"},
		{"*;q=0.1, ru", "", "ru"},
		{"ru;q=0, en", "ru", "en"},
		{"ru;q=0", "", "en"},
		{"", "ru_RU", "ru"},
		{"", "RU", "ru"},
		{"not a language!", "ru", "ru"},
		{"\x00\xff", "\x00", "en"},
		{strings.Repeat("ru-", 5000), "", "en"},
	} {
		if got := texts.Match(c.header, c.account); got != c.want {
			t.Errorf("header %.40q, account %q: %q, want %q", c.header, c.account, got, c.want)
		}
	}
}

func TestAReadersLanguageMayBeATagAHeaderOrNothing(t *testing.T) {
	texts := newTexts(t)
	for language, want := range map[string]string{
		"":                        "Nothing was found under this name or number. Please start again.",
		"en-US":                   "Nothing was found under this name or number. Please start again.",
		"ja":                      "Nothing was found under this name or number. Please start again.",
		"ru":                      "По этому имени или номеру ничего не нашлось. Начните, пожалуйста, заново.",
		"ru-RU, ru;q=0.9, *;q=.1": "По этому имени или номеру ничего не нашлось. Начните, пожалуйста, заново.",
	} {
		if got := texts.Detail(Reader{Language: language}, nil, holdfast.Outcome{Reason: holdfast.NotFound}, noon); got != want {
			t.Errorf("%q reads %q, want %q", language, got, want)
		}
	}
}

func TestManyMayReadAtOnce(t *testing.T) {
	texts := newTexts(t)
	want := map[string]string{}
	for _, s := range situations() {
		want[s.name] = newTexts(t).Detail(russian(), shop(), s.outcome, noon)
	}
	var readers sync.WaitGroup
	for range 8 {
		readers.Go(func() {
			for _, s := range situations() {
				if got := texts.Detail(russian(), shop(), s.outcome, noon); got != want[s.name] {
					t.Errorf("%s: %q, want %q", s.name, got, want[s.name])
				}
			}
		})
	}
	readers.Wait()
}
