package httpapi

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast"
)

// The standard library's reader repairs what it should refuse: half a surrogate pair and invalid UTF-8 become U+FFFD, the
// last of two equal names wins, and 1e0 fits an integer. This one keeps what was written, and what is wrong with it.

const (
	// maxDepth is more than any body of the API nests.
	maxDepth = 8
	// maxValues bounds what a body of a million brackets can take: memory per value is a hundred times its text.
	maxValues = 4096
	// maxBatchValues is more than the largest batch of the largest operations has in a body of that size.
	maxBatchValues = 64 * holdfast.MaxOperations
)

type kind int

const (
	isNull kind = iota
	isBoolean
	isNumber
	isText
	isObject
	isList
	isRaw
)

// value is one JSON value as it was written.
type value struct {
	kind    kind
	text    string // of a text: decoded; of a number or a boolean: its literal; raw: as it was written
	flaw    string // of a text: what is wrong with it, as a hint; empty: nothing
	members []member
	items   []value
}

type member struct {
	name  string
	flaw  string
	value value
}

// syntaxError says why a body cannot be read at all.
type syntaxError string

func (e syntaxError) Error() string { return string(e) }

// mostValues is how many a body may have.
func mostValues(body any) int {
	if _, batch := body.(*batchBody); batch {
		return maxBatchValues
	}
	return maxValues
}

// parse reads exactly one JSON value with so many in it at most. An error is a syntaxError, worded as a hint.
func parse(data string, most int) (value, error) {
	p := parser{data: data, most: most}
	p.space()
	v, err := p.value(0)
	if err != nil {
		return value{}, err
	}
	p.space()
	if p.at < len(p.data) {
		return value{}, syntaxError("send one JSON object and nothing behind it")
	}
	return v, nil
}

type parser struct {
	data   string
	at     int
	values int
	most   int
	member string // the name of the member whose value is being read
}

func (p *parser) broken() error {
	return syntaxError(fmt.Sprintf("send JSON; what is wrong begins at byte %d", p.at+1))
}

func (p *parser) space() {
	for p.at < len(p.data) && strings.IndexByte(" \t\r\n", p.data[p.at]) >= 0 {
		p.at++
	}
}

// next takes the byte if it is there.
func (p *parser) next(b byte) bool {
	if p.at < len(p.data) && p.data[p.at] == b {
		p.at++
		return true
	}
	return false
}

func (p *parser) value(depth int) (value, error) {
	if p.values++; p.values > p.most {
		return value{}, syntaxError(fmt.Sprintf("use at most %d values", p.most))
	}
	if depth > maxDepth {
		return value{}, syntaxError(fmt.Sprintf("nest at most %d deep", maxDepth))
	}
	if p.at == len(p.data) {
		return value{}, p.broken()
	}
	switch b := p.data[p.at]; {
	case b == '{':
		return p.object(depth)
	case b == '[':
		return p.list(depth)
	case b == '"':
		text, flaw, err := p.string()
		return value{kind: isText, text: text, flaw: flaw}, err
	case b == '-' || b >= '0' && b <= '9':
		literal, err := p.number()
		return value{kind: isNumber, text: literal}, err
	}
	for _, word := range []struct {
		text string
		kind kind
	}{{"null", isNull}, {"true", isBoolean}, {"false", isBoolean}} {
		if strings.HasPrefix(p.data[p.at:], word.text) {
			p.at += len(word.text)
			return value{kind: word.kind, text: word.text}, nil
		}
	}
	return value{}, p.broken()
}

func (p *parser) object(depth int) (value, error) {
	v := value{kind: isObject}
	within := p.member
	p.at++
	p.space()
	if p.next('}') {
		return v, nil
	}
	for {
		p.space()
		if p.at == len(p.data) || p.data[p.at] != '"' {
			return v, p.broken()
		}
		name, flaw, err := p.string()
		if err != nil {
			return v, err
		}
		p.space()
		if !p.next(':') {
			return v, p.broken()
		}
		p.space()
		var inner value
		if p.member = name; within == "job" && name == "payload" {
			inner, err = p.raw()
		} else {
			inner, err = p.value(depth + 1)
		}
		if err != nil {
			return v, err
		}
		v.members = append(v.members, member{name, flaw, inner})
		p.space()
		if p.next('}') {
			return v, nil
		}
		if !p.next(',') {
			return v, p.broken()
		}
	}
}

func (p *parser) list(depth int) (value, error) {
	v := value{kind: isList}
	p.at++
	p.space()
	if p.next(']') {
		return v, nil
	}
	for {
		p.space()
		inner, err := p.value(depth + 1)
		if err != nil {
			return v, err
		}
		v.items = append(v.items, inner)
		p.space()
		if p.next(']') {
			return v, nil
		}
		if !p.next(',') {
			return v, p.broken()
		}
	}
}

// raw takes a value of somebody else's, whatever is in it: a job's payload. It is kept as it was written.
func (p *parser) raw() (value, error) {
	reader := json.NewDecoder(strings.NewReader(p.data[p.at:]))
	var read json.RawMessage
	if reader.Decode(&read) != nil {
		return value{}, p.broken()
	}
	from := p.at
	p.at += int(reader.InputOffset())
	return value{kind: isRaw, text: p.data[from:p.at]}, nil
}

// number takes a literal of RFC 8259.
func (p *parser) number() (string, error) {
	start := p.at
	p.next('-')
	if !p.next('0') && !p.digits() {
		return "", p.broken()
	}
	if p.next('.') && !p.digits() {
		return "", p.broken()
	}
	if p.next('e') || p.next('E') {
		if !p.next('+') {
			p.next('-')
		}
		if !p.digits() {
			return "", p.broken()
		}
	}
	return p.data[start:p.at], nil
}

func (p *parser) digits() bool {
	start := p.at
	for p.at < len(p.data) && p.data[p.at] >= '0' && p.data[p.at] <= '9' {
		p.at++
	}
	return p.at > start
}

// string takes a text. What is legal JSON and no legal text becomes a flaw, so that its field can be named.
func (p *parser) string() (text, flaw string, err error) {
	p.at++
	var written strings.Builder
	for {
		if p.at == len(p.data) {
			return "", "", p.broken()
		}
		switch b := p.data[p.at]; {
		case b == '"':
			p.at++
			return written.String(), flaw, nil
		case b == '\\':
			r, ok := p.escape()
			if !ok {
				return "", "", p.broken()
			}
			switch {
			case r == 0:
				flaw = "use a text without NUL"
			case utf16.IsSurrogate(r):
				flaw = "write both halves of a surrogate pair, or the character itself"
			}
			written.WriteRune(r)
		case b < ' ':
			return "", "", p.broken()
		default:
			r, size := utf8.DecodeRuneInString(p.data[p.at:])
			if r == utf8.RuneError && size == 1 {
				flaw = "use valid UTF-8"
			}
			written.WriteString(p.data[p.at : p.at+size])
			p.at += size
		}
	}
}

// escape takes one escaped character. Half a surrogate pair comes back as it is.
func (p *parser) escape() (rune, bool) {
	if p.at+1 >= len(p.data) {
		return 0, false
	}
	if p.data[p.at+1] == 'u' {
		first, ok := p.unit()
		if !ok || !utf16.IsSurrogate(first) {
			return first, ok
		}
		behind := p.at
		if strings.HasPrefix(p.data[p.at:], `\u`) {
			if second, ok := p.unit(); ok {
				if whole := utf16.DecodeRune(first, second); whole != utf8.RuneError {
					return whole, true
				}
			}
		}
		p.at = behind // the second escape, if there is one, stands for itself
		return first, true
	}
	i := strings.IndexByte(`"\/bfnrt`, p.data[p.at+1])
	if i < 0 {
		return 0, false
	}
	p.at += 2
	return rune("\"\\/\b\f\n\r\t"[i]), true
}

// unit takes \uXXXX.
func (p *parser) unit() (rune, bool) {
	if p.at+6 > len(p.data) {
		return 0, false
	}
	n, err := strconv.ParseUint(p.data[p.at+2:p.at+6], 16, 16)
	if err != nil {
		return 0, false
	}
	p.at += 6
	return rune(n), true
}
