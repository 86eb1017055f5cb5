package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-dev/holdfast"
)

// maxProblems is how many problems one answer lists; whoever has more has sent something else entirely.
const maxProblems = 32

// bodyField is how problems name the body as a whole.
const bodyField = "body"

// decode reads a JSON object into a struct of body fields and returns everything that is wrong with it. The fields that
// are right are set either way, so that the core can look at them too; readable is false where there are no fields at all.
//
// A field is a text, a boolean, an integer, a time, a list of texts or of values, an object of texts or amounts, a struct of
// such fields, or a job's payload, as it was written; a
// pointer, a list or an object is nil where the body leaves it out. Null is wrong unless the field's tag says null:"…", and
// then it counts as left out. An object without members is wrong where the tag says empty:"…", and gets that hint. No
// problem repeats a value.
func decode(data string, into any) (found []holdfast.Problem, readable bool) {
	root, err := parse(data, mostValues(into))
	var broken syntaxError
	switch {
	case errors.As(err, &broken):
		return []holdfast.Problem{{Field: bodyField, Hint: string(broken)}}, false
	case root.kind != isObject:
		return []holdfast.Problem{{Field: bodyField, Hint: "send a JSON object"}}, false
	}
	return decodeObject(root, into), true
}

// decodeObject reads an object into structs, each of which has some of its fields.
func decodeObject(object value, into ...any) []holdfast.Problem {
	var d decoder
	var structs []reflect.Value
	for _, target := range into {
		structs = append(structs, reflect.ValueOf(target).Elem())
	}
	d.fields("", object, structs)
	return d.problems
}

// inputField is a field that a body can have.
type inputField struct {
	name     string
	index    []int
	required bool
	nullable bool
	empty    string // what to say of an object without members; empty: nothing
}

// inputFields are those of each body, found once.
var inputFields sync.Map // reflect.Type → []inputField

func inputFieldsOf(t reflect.Type) []inputField {
	if known, ok := inputFields.Load(t); ok {
		return known.([]inputField)
	}
	var fields []inputField
	for _, f := range reflect.VisibleFields(t) {
		if f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		_, nullable := f.Tag.Lookup("null")
		fields = append(fields, inputField{name: name, index: f.Index, required: options != "omitempty", nullable: nullable, empty: f.Tag.Get("empty")})
	}
	inputFields.Store(t, fields)
	return fields
}

type decoder struct{ problems []holdfast.Problem }

func (d *decoder) add(field, hint string) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, holdfast.Problem{Field: field, Hint: hint})
	}
}

// fields reads the members of an object; within is where it stands, empty for the body itself.
func (d *decoder) fields(within string, object value, into []reflect.Value) {
	seen := map[string]bool{}
	for _, m := range object.members {
		field, target, known := fieldOf(m.name, into)
		switch {
		case !known:
			d.add(shownName(within, m), unknownHint(m.name, names(into)))
		case seen[m.name]:
			d.add(shownName(within, m), "name it once")
		case m.value.kind == isNull && field.nullable:
		case m.value.kind == isObject && len(m.value.members) == 0 && field.empty != "":
			d.add(shownName(within, m), field.empty)
		default:
			d.set(shownName(within, m), m.value, target)
		}
		seen[m.name] = true
	}
}

// fieldOf finds the field of that name, and where it is set.
func fieldOf(name string, into []reflect.Value) (inputField, reflect.Value, bool) {
	for _, target := range into {
		for _, field := range inputFieldsOf(target.Type()) {
			if field.name == name {
				return field, target.FieldByIndex(field.index), true
			}
		}
	}
	return inputField{}, reflect.Value{}, false
}

func names(into []reflect.Value) []string {
	var list []string
	for _, target := range into {
		for _, field := range inputFieldsOf(target.Type()) {
			list = append(list, field.name)
		}
	}
	return list
}

// unknownHint suggests what was probably meant.
func unknownHint(name string, names []string) string {
	if len(names) == 0 {
		return "leave it out: this call takes no fields"
	}
	if near, ok := nearest(name, names); ok {
		return "there is no such field; did you mean " + near + "?"
	}
	return "there is no such field; use " + strings.Join(names, ", ")
}

// shownName is the path of a member. A name that is no name is not repeated.
func shownName(parent string, m member) string {
	prefix := ""
	if parent != "" {
		prefix = parent + "."
	}
	legible := m.flaw == "" && m.name != "" && len(m.name) <= holdfast.MaxMetadataName &&
		!strings.ContainsFunc(m.name, func(r rune) bool { return !unicode.IsPrint(r) })
	switch {
	case legible:
		return prefix + m.name
	case parent != "":
		return parent
	}
	return bodyField
}

var (
	timeType   = reflect.TypeFor[time.Time]()
	amountType = reflect.TypeFor[holdfast.Amount]()
	valueType  = reflect.TypeFor[value]()
	rawType    = reflect.TypeFor[json.RawMessage]()
)

// set converts one value, or says what to write instead.
func (d *decoder) set(path string, v value, into reflect.Value) {
	if v.kind == isNull && into.Type() != valueType {
		d.add(path, "null means nothing here: leave it out")
		return
	}
	target := into
	if into.Kind() == reflect.Pointer {
		target = reflect.New(into.Type().Elem()).Elem()
	}
	hint := ""
	switch t := target.Type(); {
	case t == timeType:
		var at time.Time
		at, hint = readTime(v)
		target.Set(reflect.ValueOf(at))
	case t == valueType:
		target.Set(reflect.ValueOf(v))
	case t == rawType:
		target.SetBytes([]byte(v.text))
	case t.Kind() == reflect.Struct:
		if hint = "use an object"; v.kind == isObject {
			hint = ""
			d.fields(path, v, []reflect.Value{target})
		}
	case t.Kind() == reflect.String:
		if hint = "use a text"; v.kind == isText {
			hint = v.flaw
		}
		target.SetString(v.text)
	case t.Kind() == reflect.Bool:
		if v.kind != isBoolean {
			hint = "use true or false"
		}
		target.SetBool(v.text == "true")
	case t.Kind() == reflect.Int64:
		var n int64
		n, hint = readInteger(v)
		target.SetInt(n)
	case t.Kind() == reflect.Slice:
		d.list(path, v, target)
	case t.Kind() == reflect.Map:
		d.pairs(path, v, target)
	default:
		panic("httpapi: no body field may be a " + t.String())
	}
	if hint != "" {
		d.add(path, hint)
		return // what was set to target is lost with it, or is overruled by the problem
	}
	if into.Kind() == reflect.Pointer {
		into.Set(target.Addr())
	}
}

func (d *decoder) list(path string, v value, into reflect.Value) {
	if v.kind != isList {
		what := "texts"
		if into.Type().Elem() == valueType {
			what = "objects"
		}
		d.add(path, "use a list of "+what)
		return
	}
	into.Set(reflect.MakeSlice(into.Type(), len(v.items), len(v.items)))
	for i, item := range v.items {
		d.set(fmt.Sprintf("%s[%d]", path, i), item, into.Index(i))
	}
}

func (d *decoder) pairs(path string, v value, into reflect.Value) {
	if v.kind != isObject {
		what := "texts"
		if into.Type().Elem() == amountType {
			what = "integers"
		}
		d.add(path, "use an object of "+what)
		return
	}
	into.Set(reflect.MakeMap(into.Type()))
	for _, m := range v.members {
		name := reflect.ValueOf(m.name)
		if m.flaw != "" {
			d.add(path, "names: "+m.flaw)
			continue
		}
		if into.MapIndex(name).IsValid() {
			d.add(shownName(path, m), "name it once")
			continue
		}
		element := reflect.New(into.Type().Elem()).Elem()
		d.set(shownName(path, m), m.value, element)
		into.SetMapIndex(name, element)
	}
}

// readInteger accepts an integer literal and nothing that merely has an integer's value: 1.0 and 1e0 are written by
// programs that calculate with fractions.
func readInteger(v value) (n int64, hint string) {
	if v.kind != isNumber {
		return 0, "use an integer, without quotes"
	}
	if strings.ContainsAny(v.text, ".eE") {
		return 0, "use an integer, without fraction or exponent"
	}
	n, err := strconv.ParseInt(v.text, 10, 64)
	if err != nil || n > int64(holdfast.MaxAmount) || n < -int64(holdfast.MaxAmount) {
		return 0, fmt.Sprintf("use an integer of at most %d", holdfast.MaxAmount)
	}
	return n, ""
}

// earliestYear and latestYear keep out what stores and RFC 3339 cannot carry: the zero time, which means "none", and
// years of five digits, which an offset can make of 9999.
const (
	earliestYear = 1970
	latestYear   = 9999
)

// rfc3339 is the shape that package time reads more generously: one-digit hours, commas, offsets of 99 hours.
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// readTime accepts RFC 3339 with any offset, to the microsecond that stores keep.
func readTime(v value) (at time.Time, hint string) {
	if v.kind != isText || !rfc3339.MatchString(v.text) || at.UnmarshalText([]byte(v.text)) != nil {
		return time.Time{}, "use a time with offset, for example 2026-12-01T10:00:00Z"
	}
	at = at.UTC().Truncate(time.Microsecond)
	if at.Year() < earliestYear || at.Year() > latestYear {
		return time.Time{}, fmt.Sprintf("use a year from %d to %d", earliestYear, latestYear)
	}
	return at, ""
}

// nearest finds the name that was probably meant: at most two letters away, and less than half of it.
func nearest(name string, names []string) (string, bool) {
	if len(name) > holdfast.MaxIdentifierBytes || !utf8.ValidString(name) {
		return "", false
	}
	best, distance := "", min(3, (len(name)+1)/2)
	for _, candidate := range names {
		if n := edits(strings.ToLower(name), candidate); n < distance {
			best, distance = candidate, n
		}
	}
	return best, best != ""
}

// edits is the Levenshtein distance.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost++
			}
			corner = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// merge adds what the core found to what the edge found. A field that the edge could not read is not judged again by
// what stands in its place. keyField is where the caller wrote what the core calls key.
func merge(edge, core []holdfast.Problem, keyField string) []holdfast.Problem {
	merged := edge
	for _, p := range core {
		if p.Field == "key" {
			p.Field = keyField
		}
		known := slices.ContainsFunc(edge, func(q holdfast.Problem) bool {
			return q.Field == p.Field || strings.HasPrefix(q.Field, p.Field+".") || strings.HasPrefix(q.Field, p.Field+"[")
		})
		if !known {
			merged = append(merged, p)
		}
	}
	return merged
}
