package botapi_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

func TestALongTextIsSplitWhereNothingBreaks(t *testing.T) {
	for _, c := range []struct {
		name, text string
		limit      int
		html       bool
		want       []string
	}{
		{"what fits is one piece", "all of it", 9, false, []string{"all of it"}},
		{"a blank text has none", " \n\t ", 9, false, nil},
		{"tags around nothing are blank", "<b> </b>", 9, true, nil},
		{"between paragraphs", "one two\n\nthree\nfour", 12, false, []string{"one two", "three\nfour"}},
		{"between lines where the paragraph is short", "a\n\nbbbb cccc\ndddd", 14, false, []string{"a\n\nbbbb cccc", "dddd"}},
		{"between words where the line is short", "a\nbbbb cccc dddd", 12, false, []string{"a\nbbbb cccc", "dddd"}},
		{"inside a word that fits nowhere", "abcdefghij", 4, false, []string{"abcd", "efgh", "ij"}},
		{"an emoji is two units", "😀😀😀", 5, false, []string{"😀😀", "😀"}},
		{"a family is one", "a👨‍👩‍👧b", 6, false, []string{"a", "👨\u200d👩\u200d", "👧b"}}, // it fits nowhere: better broken than lost
		{"a family that fits is not broken", "aaaa👨‍👩‍👧", 10, false, []string{"aaaa", "👨‍👩‍👧"}},
		{"flags stay whole", "a🇷🇺🇺🇸", 7, false, []string{"a🇷🇺", "🇺🇸"}},
		{"a letter keeps its mark", "abce\u0301", 4, false, []string{"abc", "e\u0301"}},
		{"indentation stays", "def f():\n\n    return 1", 12, false, []string{"def f():", "return 1"}}, // Telegram itself trims what a text begins with
		{"indentation stays in code", "<pre>def f():\n    return 1</pre>", 14, true, []string{"<pre>def f():</pre>", "<pre>    return 1</pre>"}},
		{"tags are no text", "<b>abc</b> <i>def</i>", 7, true, []string{"<b>abc</b> <i>def</i>"}},
		{
			"open tags are closed and opened again", `<b>one <a href="https://x/?a=1">two three</a></b> four`, 8, true,
			[]string{`<b>one <a href="https://x/?a=1">two</a></b>`, `<b><a href="https://x/?a=1">three</a></b>`, "four"},
		},
		{"an entity is not cut", "abc&lt;d", 3, true, []string{"abc", "&lt;d"}},
		{"without HTML a tag is text", "<b>abc</b>", 5, false, []string{"<b>ab", "c</b>"}},
		{"a sign that begins no tag", "1 < 2", 9, true, []string{"1 < 2"}},
		{"what is not UTF-8 does not reach Telegram", "a\xff", 9, false, []string{"a\uFFFD"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := botapi.Split(c.text, c.limit, c.html); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestAShortenedTextSaysSo(t *testing.T) {
	for _, c := range []struct {
		text  string
		limit int
		html  bool
		want  string
	}{
		{"", 5, false, ""},
		{"hello", 5, false, "hello"},
		{"hello world", 10, false, "hello…"},
		{"<b>hello world</b>", 10, true, "<b>hello</b>…"},
		{"<b>hello</b>", 5, true, "<b>hello</b>"},
	} {
		if got := botapi.Shorten(c.text, c.limit, c.html); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

func withoutSpace(text string) string { return strings.Join(strings.Fields(text), "") }

func TestNoCharacterIsLostAndNoPieceIsTooLong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("abcd  \n\n😀é🇷🇺\u0301\u200Dж<&"))).Draw(t, "text")
		limit := rapid.IntRange(2, 40).Draw(t, "limit")
		pieces := botapi.Split(text, limit, false)
		for _, piece := range pieces {
			if n := len(utf16.Encode([]rune(piece))); n > limit || n == 0 || !utf8.ValidString(piece) {
				t.Fatalf("%q has %d units, limit %d", piece, n, limit)
			}
		}
		if got, want := withoutSpace(strings.Join(pieces, "")), withoutSpace(text); got != want {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}

// element is HTML as a bot would write it: nested and closed.
func element(t *rapid.T, depth int) string {
	var made strings.Builder
	for range rapid.IntRange(1, 4).Draw(t, "children") {
		if depth > 0 && rapid.Bool().Draw(t, "nested") {
			tag := rapid.SampledFrom([]string{"b", "i", "pre", "code"}).Draw(t, "tag")
			made.WriteString("<" + tag + ">" + element(t, depth-1) + "</" + tag + ">")
			continue
		}
		made.WriteString(rapid.SampledFrom([]string{"word", " ", "\n", "&lt;", "two words", "😀", "\n\n"}).Draw(t, "text"))
	}
	return made.String()
}

func TestEveryPieceOfHTMLIsWholeHTML(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := element(t, 3)
		seen := ""
		for _, piece := range botapi.Split(text, rapid.IntRange(4, 30).Draw(t, "limit"), true) {
			var open []string
			for rest := piece; rest != ""; {
				end := strings.IndexByte(rest, '>')
				switch {
				case strings.HasPrefix(rest, "</"):
					if len(open) == 0 || open[len(open)-1] != rest[2:end] {
						t.Fatalf("%q closes %s while %v are open", piece, rest[2:end], open)
					}
					open = open[:len(open)-1]
					rest = rest[end+1:]
				case rest[0] == '<':
					open = append(open, rest[1:end])
					rest = rest[end+1:]
				default:
					seen += rest[:1]
					rest = rest[1:]
				}
			}
			if len(open) > 0 {
				t.Fatalf("%q leaves %v open", piece, open)
			}
		}
		plain := strings.NewReplacer("<b>", "", "</b>", "", "<i>", "", "</i>", "", "<pre>", "", "</pre>", "", "<code>", "", "</code>", "").Replace(text)
		if withoutSpace(seen) != withoutSpace(plain) {
			t.Fatalf("%q became %q", plain, seen)
		}
	})
}
