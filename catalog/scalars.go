package catalog

import (
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast"
)

var (
	wholeNumber = regexp.MustCompile(`^(0|[1-9][0-9]*)$`)
	anyNumber   = regexp.MustCompile(`^[-+]?[0-9][0-9_,]*(\.[0-9]*)?([eE][-+]?([0-9]+))?$`)
)

// integer reads a whole number from least to most. Only plain digits are accepted: an amount has one way to be written.
func (c *compiler) integer(v value, least, most int64) (int64, bool) {
	if n, err := strconv.ParseInt(v.text, 10, 64); wholeNumber.MatchString(v.text) && (v.kind == number || v.kind == text && err != nil) {
		switch {
		case err != nil || n > most: // beyond 64 bits the parser takes it for text
			c.add(v.at, v.path, "too large", fmt.Sprintf("write at most %d", most))
		case n < least:
			c.add(v.at, v.path, "too small", fmt.Sprintf("write at least %d", least))
		default:
			return n, true
		}
		return 0, false
	}
	message := "expected an integer, found " + v.kind.String()
	if v.kind == number || v.kind == text && !wholeNumber.MatchString(v.text) && anyNumber.MatchString(v.text) {
		message = "not written as an integer"
	}
	suggestion := fmt.Sprintf("write an integer from %d to %d", least, most)
	switch n, ok := intended(v); {
	case ok && n >= least && n <= most:
		suggestion = fmt.Sprintf("write %d", n)
	case v.kind == number && strings.HasPrefix(v.text, "-"):
		message, suggestion = "too small", fmt.Sprintf("write at least %d", least)
	}
	c.add(v.at, v.path, message, suggestion)
	return 0, false
}

// intended is the integer that was most likely meant by another way of writing it: "1", 1.0, 1e3, 1_000, 0x10.
func intended(v value) (int64, bool) {
	const longest = 40
	written := strings.TrimSpace(v.text)
	if v.kind != number && v.kind != text || len(written) > longest {
		return 0, false
	}
	if n, err := strconv.ParseInt(written, 0, 64); err == nil && !leadingZero(written) {
		return n, true
	}
	// A longer exponent is no slip of the finger, and writing the number out would take all memory.
	const exponent, digits = 3, 2
	parts := anyNumber.FindStringSubmatch(written)
	if parts == nil || len(parts[exponent]) > digits || leadingZero(written) {
		return 0, false
	}
	exact, ok := new(big.Rat).SetString(strings.NewReplacer("_", "", ",", "").Replace(written))
	if !ok || !exact.IsInt() || !exact.Num().IsInt64() {
		return 0, false
	}
	return exact.Num().Int64(), true
}

// leadingZero is true for 010, which is eight to some readers and ten to others.
func leadingZero(written string) bool {
	digits := strings.TrimLeft(written, "+-")
	return len(digits) > 1 && digits[0] == '0' && digits[1] >= '0' && digits[1] <= '9'
}

// truth reads true or false.
func (c *compiler) truth(v value) (truth, ok bool) {
	if v.kind != boolean || v.text != "true" && v.text != "false" {
		c.add(v.at, v.path, "expected true or false", "write true or false, in small letters and without quotes")
		return false, false
	}
	return v.text == "true", true
}

const day = 24 * time.Hour

// steps are the units of a duration, longest first.
var steps = []struct {
	letter byte
	length time.Duration
	words  string
}{
	{'d', day, "day days"},
	{'h', time.Hour, "hr hrs hour hours"},
	{'m', time.Minute, "min mins minute minutes"},
	{'s', time.Second, "sec secs second seconds"},
}

// parseDuration reads 90s, 5m, 24h, 1h30m and, where days make sense, 30d. Every unit is written at most once, the
// longest first.
func parseDuration(written string, days bool) (time.Duration, bool) {
	const mostDigits = 8 // 10^8 days overflow nothing
	var total time.Duration
	next := 0
	if !days {
		next = 1
	}
	for rest := written; rest != ""; {
		digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
		if digits == 0 || digits > mostDigits || digits == len(rest) {
			return 0, false
		}
		n, err := strconv.ParseInt(rest[:digits], 10, 64)
		if err != nil {
			return 0, false
		}
		for next < len(steps) && steps[next].letter != rest[digits] {
			next++
		}
		if next == len(steps) || n > int64(maxLength/steps[next].length) {
			return 0, false
		}
		total += time.Duration(n) * steps[next].length
		next++
		rest = rest[digits+1:]
	}
	return total, written != "" && total <= maxLength
}

// maxLength is more than any duration of a catalog, and less than what would overflow when four of them are added.
const maxLength = 10_000 * day

// shown writes a duration the way the file does.
func shown(length time.Duration) string {
	for _, step := range steps {
		whole := length%step.length == 0 && length > 0
		if whole && (step.letter != 'd' || length >= 2*day) {
			return fmt.Sprintf("%d%c", length/step.length, step.letter)
		}
	}
	return "0s"
}

// meantDuration is the duration that was most likely meant by another way of writing it: 60, 5 min, 1.5h, 1d.
func meantDuration(written string) (time.Duration, bool) {
	written = strings.ToLower(strings.Join(strings.Fields(written), ""))
	if length, ok := parseDuration(written, true); ok {
		return length, true
	}
	digits := written[:len(written)-len(strings.TrimLeft(written, "0123456789."))]
	amount, err := strconv.ParseFloat(digits, 64)
	if err != nil || amount <= 0 || amount > 1e8 {
		return 0, false
	}
	word := written[len(digits):]
	for _, step := range steps {
		if word == string(step.letter) || word != "" && slices.Contains(strings.Fields(step.words), word) || word == "" && step.letter == 's' {
			length := time.Duration(amount * float64(step.length))
			return length, length%time.Second == 0 && length > 0 && length <= maxLength
		}
	}
	return 0, false
}

// duration reads a length from least to most, in whole seconds.
func (c *compiler) duration(v value, least, most time.Duration) (time.Duration, bool) {
	return c.length(v, lengthRule{least: least, most: most, show: clock, example: "write digits and s, m or h, such as 90s, 5m or 1h30m"})
}

// days reads a length that may be written in days.
func (c *compiler) days(v value, least, most time.Duration) (time.Duration, bool) {
	return c.length(v, lengthRule{least: least, most: most, days: true, show: shown, example: "write digits and s, m, h or d, such as 12h or 3d"})
}

// lengthRule is what a length may be, and how it is written.
type lengthRule struct {
	least, most time.Duration
	days        bool // it may be written in days
	show        func(time.Duration) string
	example     string
}

func (c *compiler) length(v value, rule lengthRule) (time.Duration, bool) {
	length, ok := parseDuration(v.text, rule.days)
	if v.kind != text || !ok {
		message := "not a duration"
		switch v.kind {
		case number:
			message = "a number without a unit of time"
		case nothing, boolean, list, mapping:
			message = "expected a duration, found " + v.kind.String()
		}
		suggestion := rule.example
		if v.kind == number || v.kind == text {
			if meant, likely := meantDuration(v.text); likely && meant >= rule.least && meant <= rule.most {
				suggestion = "write " + rule.show(meant)
				if wholeNumber.MatchString(v.text) {
					suggestion = "write " + v.text + "s"
				}
			}
		}
		c.add(v.at, v.path, message, suggestion)
		return 0, false
	}
	switch {
	case length < rule.least:
		c.add(v.at, v.path, "too short", "write at least "+shown(rule.least))
	case length > rule.most:
		c.add(v.at, v.path, "too long", "write at most "+rule.show(rule.most))
	default:
		return length, true
	}
	return 0, false
}

// clock is shown without days: a ttl is written in hours.
func clock(length time.Duration) string {
	if length >= day && length%time.Hour == 0 {
		return fmt.Sprintf("%dh", length/time.Hour)
	}
	return shown(length)
}

// title reads a name for people.
func (c *compiler) title(v value) (string, bool) {
	switch {
	case v.kind == number || v.kind == boolean:
		c.add(v.at, v.path, "expected text, found "+v.kind.String(), fmt.Sprintf("write %q", brief(v.text)))
	case v.kind != text:
		c.add(v.at, v.path, "expected text, found "+v.kind.String(), "write the name")
	case strings.TrimSpace(v.text) == "":
		c.add(v.at, v.path, "empty", "write the name")
	case strings.ContainsFunc(v.text, func(char rune) bool { return !visible(char) || char == utf8.RuneError }):
		c.add(v.at, v.path, "has characters that cannot be seen", "remove them")
	case len(v.text) > holdfast.MaxNameBytes:
		c.add(v.at, v.path, fmt.Sprintf("longer than %d bytes", holdfast.MaxNameBytes), "shorten it")
	default:
		return v.text, true
	}
	return "", false
}

// identifier reads a word of the catalog that refers to nothing else in it.
func (c *compiler) identifier(v value, what string) string {
	switch {
	case v.kind == number || v.kind == boolean:
		c.add(v.at, v.path, "expected the name of a "+what+", found "+v.kind.String(), fmt.Sprintf("write %q", brief(v.text)))
	case v.kind != text:
		c.add(v.at, v.path, "expected the name of a "+what+", found "+v.kind.String(), "write its name")
	case !holdfast.ValidIdentifier(v.text):
		c.add(v.at, v.path, "not a name", identifierLike(v.text))
	default:
		return v.text
	}
	return ""
}

// choice reads one of several words. The first one is what holds where the field is left out; it is compiled to the
// empty word.
func choice[Word ~string](c *compiler, v value, standard string, others ...Word) Word {
	if !v.given() || v.kind == text && v.text == standard {
		return ""
	}
	words := []string{standard}
	for _, other := range others {
		if v.kind == text && v.text == string(other) {
			return other
		}
		words = append(words, string(other))
	}
	if v.kind == text {
		c.unknown(v.at, v.path, "value", v.text, words)
	} else {
		c.add(v.at, v.path, "expected a word, found "+v.kind.String(), "write "+oneOf(words)+", or leave it out")
	}
	return ""
}
