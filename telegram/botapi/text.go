package botapi

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Split makes of a text the pieces of at most that many UTF-16 units as Telegram counts them: without the tags of HTML, and
// with each of its entities as one character. It splits between paragraphs, else lines, else words, else characters; in HTML
// tags that are open at a border are closed before it and opened again behind it. What is empty or blank has no pieces.
func Split(text string, limit int, html bool) []string {
	var pieces []string
	for text != "" {
		var piece string
		piece, text = Cut(text, limit, html)
		if piece != "" {
			pieces = append(pieces, piece)
		}
	}
	return pieces
}

// Cut takes the first piece of a text off, as Split does.
func Cut(text string, limit int, html bool) (piece, rest string) {
	text = strings.TrimSpace(text)
	var open []string // tags, as they were written
	units := 0
	// The best border of each kind so far; a better kind is taken where it leaves at least half of what fits.
	type border struct {
		at, units int
		open      []string
	}
	var best [3]border // word, line, paragraph
	mark := func(kind, at int) { best[kind] = border{at, units, append([]string(nil), open...)} }
	for at := 0; at < len(text); {
		length, size, tag := next(text[at:], html)
		if units+size > limit {
			found := border{at, units, open}
			for _, b := range best {
				if b.units > limit/2 || b.at > 0 && found.at == at && found.units == units {
					found = b
				}
			}
			return closed(strings.TrimRightFunc(text[:found.at], unicode.IsSpace), found.open),
				reopened(strings.TrimLeftFunc(text[found.at:], unicode.IsSpace), found.open)
		}
		if size == 1 {
			switch text[at] {
			case '\n':
				if at > 0 && text[at-1] == '\n' {
					mark(2, at)
				}
				mark(1, at)
				mark(0, at)
			case ' ', '\t':
				mark(0, at)
			}
		}
		open = follow(open, tag)
		units += size
		at += length
	}
	return text, ""
}

// Shorten cuts a text that is too long, and says so by an ellipsis.
func Shorten(text string, limit int, html bool) string {
	text = strings.TrimSpace(text)
	if piece, rest := Cut(text, limit, html); rest == "" {
		return piece
	}
	piece, _ := Cut(text, limit-1, html)
	return piece + "…"
}

// next says how many bytes the next character has, or the next tag, and how many UTF-16 units Telegram counts for it.
func next(text string, html bool) (length, units int, tag string) {
	if html && text[0] == '<' {
		if end := strings.IndexByte(text, '>'); end > 0 {
			return end + 1, 0, text[:end+1]
		}
	}
	if html && text[0] == '&' {
		if end := strings.IndexByte(text, ';'); end > 0 && end <= 10 {
			return end + 1, 1, ""
		}
	}
	r, length := utf8.DecodeRuneInString(text)
	if r > 0xFFFF {
		return length, 2, ""
	}
	return length, 1, ""
}

// follow keeps which tags are open.
func follow(open []string, tag string) []string {
	switch {
	case tag == "":
		return open
	case strings.HasPrefix(tag, "</"):
		for i := len(open) - 1; i >= 0; i-- {
			if name(open[i]) == name(tag) {
				return open[:i:i]
			}
		}
		return open
	}
	return append(open[:len(open):len(open)], tag)
}

func name(tag string) string {
	tag = strings.Trim(tag, "</>")
	if end := strings.IndexAny(tag, " \t\n"); end >= 0 {
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

func reopened(rest string, open []string) string {
	if rest == "" {
		return ""
	}
	return strings.Join(open, "") + rest
}
