package catalog

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast"
)

const (
	// byteOrderMark begins the files of some editors. It is not shown, so it does not count as a column either.
	byteOrderMark = "\ufeff"
	// maxLine bounds a line, in characters: some steps of the YAML parser look at the whole rest of it.
	maxLine = 4096
)

// source is the file as text: what the YAML parser gets, and what excerpts are cut from.
type source struct {
	name  string
	lines []string
	ends  []int  // per line, the column behind its last character
	text  string // the lines without their comments
}

// readSource turns the bytes of a file into text that the YAML parser and a terminal can be trusted with: bounded, UTF-8,
// "\n" at the ends of lines, nothing in it that cannot be seen, and nothing of YAML that a catalog does without.
func readSource(name string, raw []byte, r *report) *source {
	s := &source{name: name}
	r.source = s
	if len(raw) > holdfast.MaxCatalogBytes {
		r.add(place{1, 1}, "", fmt.Sprintf("the file has %d bytes, more than %d", len(raw), holdfast.MaxCatalogBytes), "shorten it")
		return s
	}
	content := strings.ReplaceAll(strings.TrimPrefix(string(raw), byteOrderMark), "\r\n", "\n")
	s.lines = strings.Split(content, "\n")
	if !utf8.ValidString(content) {
		r.add(firstInvalid(content), "", "not UTF-8", "save the file as UTF-8")
		return s
	}
	scan := lineScan{report: r}
	bare := make([]string, len(s.lines))
	for i, line := range s.lines {
		s.ends = append(s.ends, utf8.RuneCountInString(line)+1)
		bare[i] = scan.line(i+1, []rune(line))
	}
	s.text = strings.Join(bare, "\n")
	return s
}

// firstInvalid is where the first byte stands that is not UTF-8.
func firstInvalid(content string) place {
	at := place{1, 1}
	for rest := content; rest != ""; {
		char, size := utf8.DecodeRuneInString(rest)
		if char == utf8.RuneError && size == 1 {
			break
		}
		rest = rest[size:]
		at.column++
		if char == '\n' {
			at = place{at.line + 1, 1}
		}
	}
	return at
}

// lineScan walks through the lines ahead of the YAML parser. The parser takes hours for a megabyte of some things that no
// catalog needs; they are refused here, before it sees them. It is stricter than YAML in one more way: quotes close on
// the line that opens them, so every line can be judged by itself.
type lineScan struct {
	report *report
	flow   int // how many brackets are open
}

// line returns the line without its comment and with spaces for tabs, or reports the first thing that is wrong with it.
func (scan *lineScan) line(number int, line []rune) string {
	refuse := func(column int, message, suggestion string) string {
		scan.report.add(place{number, column}, "", message, suggestion)
		return ""
	}
	if len(line) > maxLine {
		return refuse(1, fmt.Sprintf("a line of more than %d characters", maxLine), "break it into several lines")
	}
	indented := true // so far, only by spaces
	for i, char := range line {
		switch {
		case char == '\t' && indented && !blank(line[i:]):
			return refuse(i+1, "a tab in the indentation", "indent with spaces")
		case char == '\t':
			line[i] = ' '
		case !visible(char):
			return refuse(i+1, fmt.Sprintf("the character %U cannot be seen", char), "remove it")
		}
		indented = indented && char == ' '
	}
	// A value may begin where nothing of another one stands before.
	begins := true
	for i := 0; i < len(line); i++ {
		next := ' '
		if i+1 < len(line) {
			next = line[i+1]
		}
		switch char := line[i]; {
		case char == ' ':
		case char == '#' && (begins || line[i-1] == ' '):
			return string(line[:i])
		case char == '<' && next == '<':
			return refuse(i+1, "merge keys are not supported", "write the fields out; text with << needs quotes")
		case begins && (char == '\'' || char == '"'):
			end := closingQuote(line, i)
			if end < 0 {
				return refuse(i+1, "the quotes are not closed on this line", "close them")
			}
			i = end
		case begins && (char == '|' || char == '>'):
			return refuse(i+1, "block text is not supported", "write the text on one line, in quotes if it has special characters")
		case begins && char == '&':
			return refuse(i+1, "anchors are not supported", "write the value out where it is used; text that begins with & needs quotes")
		case begins && char == '*':
			return refuse(i+1, "aliases are not supported", "write the value out; text that begins with * needs quotes")
		case begins && char == '!':
			return refuse(i+1, "tags are not supported", "remove it; text that begins with ! needs quotes")
		case begins && char == '?' && next == ' ':
			return refuse(i+1, "keys with a question mark are not supported", "write key: value")
		case char == '%' && i == 0:
			return refuse(1, "directives are not supported", "remove this line")
		case begins && char == '-' && next == ' ':
		case char == ':' && (next == ' ' || scan.flow > 0):
			begins = true
		case (char == '[' || char == '{') && (begins || scan.flow > 0):
			scan.flow++
			begins = true
		case (char == ']' || char == '}') && scan.flow > 0:
			scan.flow--
			begins = true
		case char == ',' && scan.flow > 0:
			begins = true
		default:
			begins = false
		}
	}
	return string(line)
}

// blank is true for spaces, tabs, and a comment behind them.
func blank(line []rune) bool {
	content := strings.TrimLeft(string(line), " \t")
	return content == "" || content[0] == '#'
}

// closingQuote is the index of the quote that ends what the one at start opens, or -1.
func closingQuote(line []rune, start int) int {
	quote := line[start]
	for i := start + 1; i < len(line); i++ {
		switch {
		case line[i] == '\\' && quote == '"':
			i++
		case line[i] != quote:
		case quote == '\'' && i+1 < len(line) && line[i+1] == quote: // '' stands for one
			i++
		default:
			return i
		}
	}
	return -1
}

// visible is false for what would not show, or would change how the text around it shows: control characters, line
// separators, marks of direction. Joiners stay: emoji and some scripts are written with them.
func visible(char rune) bool {
	const softHyphen, zeroWidthNonJoiner, zeroWidthJoiner = '\u00ad', '\u200c', '\u200d'
	switch char {
	case softHyphen, zeroWidthNonJoiner, zeroWidthJoiner:
		return true
	}
	return !unicode.In(char, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// excerpt is the line with a caret below the column. Of a long line it is the part around the column.
func (s *source) excerpt(at place) string {
	if at.line > len(s.lines) {
		return ""
	}
	line := []rune(strings.ToValidUTF8(s.lines[at.line-1], "\ufffd"))
	caret := min(at.column-1, len(line))
	const most, before = 120, 60
	if end := len(line); end > most {
		from := min(max(0, caret-before), end-most)
		line, caret = line[from:from+most], caret-from
		if from > 0 {
			line[0] = '…'
		}
		if from+most < end {
			line[most-1] = '…'
		}
	}
	for i, char := range line {
		switch {
		case char == '\t':
			line[i] = ' '
		case !visible(char):
			line[i] = '\ufffd'
		}
	}
	return string(line) + "\n" + strings.Repeat(" ", caret) + "^"
}

// within moves a position that the YAML parser reported into the file, should it lie outside.
func (s *source) within(at place) place {
	at.line = min(max(1, at.line), len(s.lines))
	at.column = min(max(1, at.column), s.ends[at.line-1])
	return at
}

// locate corrects the position of a text that is not in quotes to where its first word stands on the line. The parser
// counts the spaces behind a text as a part of it, and is that many columns off.
func (s *source) locate(at place, written string) place {
	words := strings.Fields(written)
	if len(words) == 0 {
		return at
	}
	line := []rune(s.lines[at.line-1])
	if strings.HasPrefix(string(line[at.column-1:]), words[0]) {
		return at
	}
	best := at
	for column := 1; column <= len(line); column++ {
		nearer := best == at || abs(column-at.column) < abs(best.column-at.column)
		if nearer && strings.HasPrefix(string(line[column-1:min(len(line), column-1+len(words[0]))]), words[0]) {
			best = place{at.line, column}
		}
	}
	return best
}

func abs(n int) int { return max(n, -n) }
