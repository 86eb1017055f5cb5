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
	length, ok := parseDuration(v.text, false)
	if v.kind != text || !ok {
		message := "not a duration"
		switch v.kind {
		case number:
			message = "a number without a unit of time"
		case nothing, boolean, list, mapping:
			message = "expected a duration, found " + v.kind.String()
		}
		suggestion := "write digits and s, m or h, such as 90s, 5m or 1h30m"
		if v.kind == number || v.kind == text {
			if meant, likely := meantDuration(v.text); likely && meant >= least && meant <= most {
				suggestion = "write " + clock(meant)
				if wholeNumber.MatchString(v.text) {
					suggestion = "write " + v.text + "s"
				}
			}
		}
		c.add(v.at, v.path, message, suggestion)
		return 0, false
	}
	switch {
	case length < least:
		c.add(v.at, v.path, "too short", "write at least "+shown(least))
	case length > most:
		c.add(v.at, v.path, "too long", "write at most "+clock(most))
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

const (
	rolling    = "rolling "
	minRolling = time.Minute
	maxRolling = 366 * day
)

// laterCycles are the cycles of later versions, and the rolling one that comes nearest.
var laterCycles = map[string]string{
	"term":              "rolling 30d",
	"calendar day":      "rolling 24h",
	"calendar week":     "rolling 7d",
	"calendar month":    "rolling 30d",
	"anniversary month": "rolling 30d",
}

// cycle reads how often an allowance starts again.
func (c *compiler) cycle(v value) (holdfast.Cycle, bool) {
	const example = "write rolling and a length, such as rolling 24h or rolling 30d"
	if v.kind != text {
		c.add(v.at, v.path, "expected a cycle, found "+v.kind.String(), example)
		return holdfast.Cycle{}, false
	}
	if instead, later := laterCycles[v.text]; later {
		c.add(v.at, v.path, v.text+" is not supported yet", "write a rolling cycle, such as "+instead)
		return holdfast.Cycle{}, false
	}
	written, found := strings.CutPrefix(v.text, rolling)
	length, ok := parseDuration(written, true)
	switch {
	case !found || !ok:
		suggestion := example
		meant, likely := meantDuration(strings.TrimPrefix(strings.TrimSpace(v.text), "rolling"))
		if likely && meant >= minRolling && meant <= maxRolling {
			suggestion = "write " + rolling + shown(meant)
		}
		c.add(v.at, v.path, "not a cycle", suggestion)
	case length < minRolling:
		c.add(v.at, v.path, "too short", "write at least "+rolling+shown(minRolling))
	case length > maxRolling:
		c.add(v.at, v.path, "too long", "write at most "+rolling+shown(maxRolling))
	default:
		return holdfast.Cycle{Rolling: length}, true
	}
	return holdfast.Cycle{}, false
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
