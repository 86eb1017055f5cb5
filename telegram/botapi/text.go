package botapi

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Split makes of a text pieces of at most that many UTF-16 units as Telegram counts them: without the tags of HTML, and each
// of its entities as one character. It splits between paragraphs, else lines, else words, else characters; in HTML the tags
// that are open at a border are closed before it and opened again behind it. A blank text has no pieces.
func Split(text string, limit int, html bool) (pieces []string) {
	for text != "" {
		var piece string
		if piece, text = Cut(text, limit, html); piece != "" {
			pieces = append(pieces, piece)
		}
	}
	return pieces
}

// Shorten cuts a text that is too long as Split does, and says so by an ellipsis.
func Shorten(text string, limit int, html bool) string {
	piece, rest := Cut(text, limit, html)
	if rest != "" {
		piece, _ = Cut(text, limit-1, html)
		piece += "…"
	}
	return piece
}

// border is a place where a text may be split.
type border struct {
	at    int      // bytes before it
	units int      // UTF-16 units before it
	open  []string // the tags that are open there, as they were written
}

// Cut takes the first piece of a text off. The rest is empty where all of it fits.
func Cut(text string, limit int, html bool) (piece, rest string) {
	text = strings.TrimSpace(strings.ToValidUTF8(text, "\uFFFD"))
	if blank(text, html) {
		return "", ""
	}
	var here, paragraph, line, word, character border
	var before cluster
	for here.at < len(text) {
		token := next(text[here.at:], html)
		if token.tag == "" && before.ends(token.rune) {
			character = here
		}
		if here.units+token.units > limit {
			found := here
			switch {
			case paragraph.units*2 >= limit: // one that leaves most of the room empty is none
				found = paragraph
			case line.units*2 >= limit:
				found = line
			case word.units > 0:
				found = word
			case character.units > 0:
				found = character
			case here.units == 0: // nothing at all fits, so more than that is taken
				found.at += token.length
			}
			return closed(strings.TrimRightFunc(text[:found.at], unicode.IsSpace), found.open), reopened(text[found.at:], found.open, html)
		}
		switch {
		case token.rune == '\n':
			if strings.HasSuffix(strings.TrimRight(text[:here.at], " \t\r"), "\n") {
				paragraph = here
			}
			line, word = here, here
		case unicode.IsSpace(token.rune):
			word = here
		}
		here = border{here.at + token.length, here.units + token.units, follow(here.open, token.tag)}
	}
	return text, ""
}

// token is a character, an entity or a tag of HTML.
type token struct {
	length int // bytes
	units  int // UTF-16 units that Telegram counts
	rune   rune
	tag    string
}

func next(text string, html bool) token {
	if html && text[0] == '<' {
		if end := strings.IndexByte(text, '>'); end > 0 {
			return token{length: end + 1, tag: text[:end+1]}
		}
	}
	if html && text[0] == '&' {
		if end := strings.IndexByte(text, ';'); end > 0 && end <= len("&#x10FFFF") {
			units := 1
			if text[1:2] == "#" {
				units = 2 // it may be a character that takes two
			}
			return token{length: end + 1, units: units, rune: '&'}
		}
	}
	r, length := utf8.DecodeRuneInString(text)
	if r > 0xFFFF {
		return token{length: length, units: 2, rune: r}
	}
	return token{length: length, units: 1, rune: r}
}

// cluster follows the characters that are shown as one: letters with their marks, joined emoji, flags.
type cluster struct {
	joined bool // the last one was a joiner
	flag   bool // the last one was the first half of a flag
}

// ends takes the next character, and reports whether there may be a border before it.
func (c *cluster) ends(r rune) bool {
	const joiner = '\u200D'
	half := r >= 0x1F1E6 && r <= 0x1F1FF
	skin := r >= 0x1F3FB && r <= 0x1F3FF
	follows := c.joined || c.flag && half || skin || r == joiner || unicode.In(r, unicode.M) || r >= 0xE0020 && r <= 0xE007F
	c.flag, c.joined = half && !c.flag, r == joiner
	return !follows
}

// follow keeps which tags are open. It never changes what another border remembers.
func follow(open []string, tag string) []string {
	switch {
	case tag == "":
		return open
	case !strings.HasPrefix(tag, "</"):
		return append(open[:len(open):len(open)], tag)
	}
	for i := len(open) - 1; i >= 0; i-- {
		if name(open[i]) == name(tag) {
			return open[:i]
		}
	}
	return open
}

func name(tag string) string {
	tag = strings.Trim(tag, "</>")
	if end := strings.IndexFunc(tag, unicode.IsSpace); end >= 0 {
		tag = tag[:end]
	}
	return strings.ToLower(tag)
}

func closed(piece string, open []string) string {
	for i := len(open) - 1; i >= 0; i-- {
		piece += "</" + name(open[i]) + ">"
	}
	return piece
}

// reopened keeps the indentation of the line that it begins with: it may be code.
func reopened(rest string, open []string, html bool) string {
	if blank(rest, html) {
		return ""
	}
	if lines := strings.TrimLeft(rest, " \t\r\n"); rest[0] != '\n' && rest[0] != '\r' {
		rest = lines
	} else {
		indented := len(rest) - len(lines)
		rest = rest[strings.LastIndexByte(rest[:indented], '\n')+1:]
	}
	return strings.Join(open, "") + rest
}

// blank reports whether there is nothing to be seen in a text.
func blank(text string, html bool) bool {
	for text != "" {
		token := next(text, html)
		if token.tag == "" && !unicode.IsSpace(token.rune) {
			return false
		}
		text = text[token.length:]
	}
	return true
}
