package catalog_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
)

const changesFile = "testdata/changes.txt"

func TestChangesAreToldWithWhomTheyConcernAndWhen(t *testing.T) {
	s := readScript(t, changesFile)
	s.base = string(catalog.EmbeddedSource())
	s.play(t, changesFile, func(t *testing.T, file string) string {
		changes := catalog.Diff(catalog.Embedded(), parse(t, file))
		if len(changes) == 0 {
			return "no change"
		}
		var text strings.Builder
		for _, change := range changes {
			who := "everybody"
			if change.Plan != "" {
				who = "plan " + change.Plan
			}
			fmt.Fprintf(&text, "%s: %q → %q\n    %s: %s\n", change.Path, change.Before, change.After, who, change.Effect)
		}
		return strings.TrimRight(text.String(), "\n")
	})
}

// filled is a value of that type of which every field is set, every slice has two items, and no two texts are the same.
func filled(of reflect.Type, next *int64) reflect.Value {
	*next++
	v := reflect.New(of).Elem()
	switch of.Kind() {
	case reflect.Struct:
		for i := range of.NumField() {
			v.Field(i).Set(filled(of.Field(i).Type, next))
		}
	case reflect.Slice:
		v = reflect.Append(v, filled(of.Elem(), next), filled(of.Elem(), next))
	case reflect.Map:
		v.Set(reflect.MakeMap(of))
		for range 2 {
			v.SetMapIndex(filled(of.Key(), next), filled(of.Elem(), next))
		}
	case reflect.Pointer:
		v.Set(reflect.New(of.Elem()))
		v.Elem().Set(filled(of.Elem(), next))
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d", *next))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(*next)
		if of == reflect.TypeFor[time.Duration]() {
			v.SetInt(*next * int64(time.Second))
		}
	default:
		panic("a catalog has no " + of.String())
	}
	return v
}

func filledCatalog() *holdfast.Catalog {
	var next int64
	c := filled(reflect.TypeFor[holdfast.Catalog](), &next).Interface().(holdfast.Catalog)
	return &c
}

// mutate calls try after every single change that can be made to the value, and undoes it.
func mutate(path string, v reflect.Value, try func(path string)) {
	attempt := func(what string, changed reflect.Value) {
		before := reflect.New(v.Type()).Elem()
		before.Set(v)
		v.Set(changed)
		try(path + " " + what)
		v.Set(before)
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			mutate(path+"."+v.Type().Field(i).Name, v.Field(i), try)
		}
	case reflect.Slice:
		attempt("without the last", v.Slice(0, v.Len()-1))
		attempt("empty", reflect.Zero(v.Type()))
		swapped := reflect.Append(reflect.Zero(v.Type()), v.Index(1), v.Index(0))
		attempt("the other way round", swapped)
		for i := range v.Len() {
			mutate(fmt.Sprintf("%s[%d]", path, i), v.Index(i), try)
		}
	case reflect.Map:
		attempt("empty", reflect.Zero(v.Type()))
		for _, key := range v.MapKeys() {
			copied := reflect.MakeMap(v.Type())
			for _, other := range v.MapKeys() {
				copied.SetMapIndex(other, v.MapIndex(other))
			}
			copied.SetMapIndex(key, reflect.Value{})
			attempt("without "+key.String(), copied)
			// A value in a map cannot be changed in its place.
			item := reflect.New(v.Type().Elem()).Elem()
			item.Set(v.MapIndex(key))
			mutate(path+"["+key.String()+"]", item, func(path string) {
				old := v.MapIndex(key)
				v.SetMapIndex(key, item)
				try(path)
				v.SetMapIndex(key, old)
			})
		}
	case reflect.Pointer:
		attempt("nil", reflect.Zero(v.Type()))
		mutate(path, v.Elem(), try)
	case reflect.String:
		attempt("empty", reflect.Zero(v.Type()))
		attempt("another", reflect.ValueOf("another").Convert(v.Type()))
	case reflect.Bool:
		attempt("not", reflect.ValueOf(!v.Bool()).Convert(v.Type()))
	default:
		attempt("zero", reflect.Zero(v.Type()))
		more := reflect.New(v.Type()).Elem()
		more.SetInt(v.Int() + 1)
		attempt("one more", more)
		if v.Type() == reflect.TypeFor[time.Duration]() {
			more.SetInt(v.Int() + int64(time.Second))
			attempt("a second more", more)
		}
	}
}

func TestNoFieldOfACatalogCanChangeUnseen(t *testing.T) {
	before, after := filledCatalog(), filledCatalog()
	if changes := catalog.Diff(before, after); len(changes) != 0 {
		t.Fatalf("the same catalog differs from itself: %v", changes)
	}
	tried := 0
	mutate("Catalog", reflect.ValueOf(after).Elem(), func(path string) {
		tried++
		changes := catalog.Diff(before, after)
		// A catalog's number says which one it is, not what is sold.
		if numbered := strings.HasPrefix(path, "Catalog.Version "); numbered != (len(changes) == 0) {
			t.Errorf("%s: %v", path, changes)
		}
		for _, change := range changes {
			if change.Path == "" || change.Effect == "" || change.Before == change.After {
				t.Errorf("%s: %+v", path, change)
			}
		}
		if again := catalog.Diff(before, after); !cmp.Equal(changes, again) {
			t.Errorf("%s: told in another way the second time: %s", path, cmp.Diff(changes, again))
		}
		if len(changes) > 0 && len(catalog.Diff(after, before)) == 0 {
			t.Errorf("%s: not seen backwards", path)
		}
	})
	if diff := cmp.Diff(before, after); diff != "" {
		t.Fatalf("the test left a change behind: %s", diff)
	}
	if tried < 400 {
		t.Errorf("only %d changes were tried", tried)
	}
}

func TestWhatAccountsHoldIsNotDropped(t *testing.T) {
	before := catalog.Embedded()
	after := parse(t, minimal()) // it has credit, image and free
	err := catalog.Missing(before, after, catalog.InUse{
		Plans: map[string]int64{"free": 9, "pro": 12, "": 40},
		Units: map[string]int64{"credit": 50, "image": 3},
	})
	if want := "plans.pro: plan pro is removed, and 12 accounts are on it\n    = keep it with retired: true"; err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}

	after.Units = after.Units[:1]
	after.Plans[0].Name = "basic"
	err = catalog.Missing(before, after, catalog.InUse{
		Plans: map[string]int64{"free": 2, "pro": 1, "gone before": 5},
		Units: map[string]int64{"credit": 50, "image": 1},
	})
	var problems catalog.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("no Problems: %v", err)
	}
	want := catalog.Problems{
		{Path: "units.image", Message: "unit image is removed, and 1 account has open grants of it", Suggestion: "keep it in the file"},
		{Path: "plans.free", Message: "plan free is removed, and 2 accounts are on it", Suggestion: "keep it with retired: true"},
		{Path: "plans.pro", Message: "plan pro is removed, and 1 account is on it", Suggestion: "keep it with retired: true"},
	}
	if diff := cmp.Diff(want, problems); diff != "" {
		t.Error(diff)
	}
}

func TestWhatNobodyHoldsMayGo(t *testing.T) {
	after := parse(t, strings.Replace(minimal(), "image: {}", "video: {}", 1))
	for _, used := range []catalog.InUse{
		{},
		{Plans: map[string]int64{"free": 7, "pro": 0}, Units: map[string]int64{"credit": 7, "image": 0}},
	} {
		if err := catalog.Missing(catalog.Embedded(), after, used); err != nil {
			t.Errorf("%+v: %v", used, err)
		}
	}
}
