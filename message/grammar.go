package message

import (
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/text/number"

	"github.com/holdfast-dev/holdfast"
)

const (
	// mostListed is how many names a sentence lists; the others are counted. A chat message stays short.
	mostListed = 5
	// mostNameRunes is how much of a name is shown: a catalog's names are texts of its author, and have no bound of their own.
	mostNameRunes = 64
)

// The ways to name a number of units: "3 credits" by itself, or after "of", which takes the genitive in Russian.
const (
	nominative = "form"
	genitive   = "form.genitive"
)

// quantity is an amount with the name of its unit.
func (w *writer) quantity(amount holdfast.Amount, unit string) string {
	return w.quantityIn(nominative, amount, unit)
}

func (w *writer) quantityIn(grammaticalCase string, amount holdfast.Amount, unit string) string {
	plain := decimal(amount, w.scale(unit))
	return w.phrase("quantity", values{"Number": w.number(plain), "Unit": w.unit(unit, w.form(grammaticalCase, plain))})
}

// amount is an amount without the name of its unit.
func (w *writer) amount(amount holdfast.Amount, unit string) string {
	return w.number(decimal(amount, w.scale(unit)))
}

// count is a number of things that are no amounts.
func (w *writer) count(n int) string { return w.number(strconv.Itoa(n)) }

// scale is how many decimals of the unit are shown.
func (w *writer) scale(unit string) int {
	if u, ok := w.catalog.Unit(unit); ok {
		return max(u.Scale, 0)
	}
	return 0
}

// decimal writes an amount of smallest steps as a plain number, exactly: 150 with two decimals is 1.5.
func decimal(amount holdfast.Amount, scale int) string {
	digits, sign := strconv.FormatInt(int64(amount), 10), ""
	if rest, negative := strings.CutPrefix(digits, "-"); negative {
		digits, sign = rest, "-"
	}
	if missing := scale + 1 - len(digits); missing > 0 {
		digits = strings.Repeat("0", missing) + digits
	}
	whole, decimals := digits[:len(digits)-scale], strings.TrimRight(digits[len(digits)-scale:], "0")
	if decimals == "" {
		return sign + whole
	}
	return sign + whole + "." + decimals
}

// number writes a plain number as the language does: 1234.5 is 1,234.5 or 1 234,5.
func (l *locale) number(plain string) string {
	unsigned, negative := strings.CutPrefix(plain, "-")
	whole, decimals, fractional := strings.Cut(unsigned, ".")
	grouped := whole
	if n, err := strconv.ParseUint(whole, 10, 64); err == nil {
		grouped = l.numbers.Sprint(number.Decimal(n)) // never through a float: amounts are exact
	}
	if negative {
		grouped = "-" + grouped
	}
	if fractional {
		grouped += l.point + decimals
	}
	return grouped
}

// form is the name of the plural form (one, few, many, other) that a plain number takes.
func (l *locale) form(grammaticalCase, plain string) string {
	if form := l.phraseOf(grammaticalCase, plain, nil); form != "" {
		return form
	}
	return "other" // more decimals than the plural rules can read
}

// unit is the name of a unit in a plural form.
func (w *writer) unit(name, form string) string {
	u, ok := w.catalog.Unit(name)
	if !ok {
		return clean(name)
	}
	forms := u.Names[w.name]
	return firstName(forms[form], forms["other"], name)
}

func (w *writer) feature(name string) string {
	shown := name
	if f, ok := w.catalog.Feature(name); ok {
		shown = firstName(f.Names[w.name], name)
	}
	return w.quoted(shown)
}

func (w *writer) plans(names []string) []string {
	var shown []string
	for _, name := range names {
		if p, ok := w.catalog.Plan(name); ok {
			name = firstName(p.Names[w.name], name)
		}
		shown = append(shown, w.quoted(name))
	}
	return shown
}

func (l *locale) quoted(name string) string { return l.phrase("quoted", values{"Name": clean(name)}) }

// The ways to end a list.
const (
	and = "list.and"
	or  = "list.or"
)

// list joins names, the last one by a word. Beyond mostListed the others are counted.
func (l *locale) list(ending string, names []string) string {
	switch n := len(names); {
	case n == 0:
		return ""
	case n == 1:
		return names[0]
	case n > mostListed:
		return l.phrase("list.more", values{"Items": strings.Join(names[:mostListed], ", "), "Count": l.number(strconv.Itoa(n - mostListed))})
	default:
		return l.phrase(ending, values{"Items": strings.Join(names[:n-1], ", "), "Last": names[n-1]})
	}
}

// firstName is the first of the names that shows anything.
func firstName(names ...string) string {
	for _, name := range names {
		if shown := clean(name); shown != "" {
			return shown
		}
	}
	return ""
}

// clean makes somebody else's name safe inside a sentence: one line, of bounded length, and unable to turn the text
// around it from left to right.
func clean(name string) string {
	name = oneLine(name)
	if runes := []rune(name); len(runes) > mostNameRunes {
		return string(runes[:mostNameRunes]) + "…"
	}
	return name
}

// oneLine is clean for what must stay whole, such as an address or a payment's number.
func oneLine(name string) string {
	name = strings.Map(func(r rune) rune {
		switch {
		case unicode.Is(unicode.Bidi_Control, r):
			return -1
		case unicode.IsControl(r):
			return ' '
		}
		return r
	}, strings.ToValidUTF8(name, ""))
	return strings.Join(strings.Fields(name), " ")
}
