package catalog

import (
	"strings"

	"github.com/holdfast-dev/holdfast"
)

// Change is one difference between two catalogs: what it is, for whom, and from when.
type Change struct {
	// Path names the field as Problem does; an allowance by its key: plans.pro.allowances[credit#2].amount.
	Path   string
	Before string // empty: it is added
	After  string // empty: it is removed
	// Effect says from when it holds and what it leaves alone: "new reservations at once; live ones keep their price".
	Effect string
	// Plan is whose accounts it concerns. Empty: everybody.
	Plan string
}

// Diff tells every difference between two catalogs, in the order of the file: by the things and fields of after, then
// what was removed. The version is no part of what is sold and is not compared. It is empty where nothing else differs.
func Diff(before, after *holdfast.Catalog) []Change {
	d := &difference{}
	old := outline(before)
	for i, section := range outline(after) {
		d.list(section.name, ".", "", old[i].things, section.things)
	}
	return d.changes
}

type difference struct{ changes []Change }

// list compares what stands under one path. Things are the same where their names are.
func (d *difference) list(path, open, closing string, before, after []thing) {
	was, is := byName(before), byName(after)
	for _, t := range after {
		at := path + open + t.name + closing
		old, found := was[t.name]
		if !found {
			d.add(Change{Path: at, After: t.summary(), Effect: t.added, Plan: t.plan})
			continue
		}
		for i, f := range t.facts {
			d.fact(at+"."+f.name, t.plan, old.facts[i], f)
		}
	}
	var kept []string
	for _, t := range before {
		if _, found := is[t.name]; found {
			kept = append(kept, t.name)
		} else {
			d.add(Change{Path: path + open + t.name + closing, Before: t.summary(), Effect: t.removed, Plan: t.plan})
		}
	}
	d.order(path, kept, after)
}

func (d *difference) fact(path, plan string, before, after fact) {
	if before.text != after.text {
		d.add(Change{Path: path, Before: before.shown(), After: after.shown(), Effect: after.effect, Plan: plan})
	}
	d.list(path, "[", "]", before.parts, after.parts)
}

// order tells that things which were there before stand in another order: lists that people read follow it.
func (d *difference) order(path string, before []string, after []thing) {
	staying := map[string]bool{}
	for _, name := range before {
		staying[name] = true
	}
	var now []string
	for _, t := range after {
		if staying[t.name] {
			now = append(now, t.name)
		}
	}
	for i := range min(len(before), len(now)) {
		if before[i] != now[i] {
			d.add(Change{Path: path, Before: some(before[i:]), After: some(now[i:]), Effect: "the order in which they are listed, at once"})
			return
		}
	}
}

// some lists names, of many the first ones.
func some(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

func (d *difference) add(change Change) { d.changes = append(d.changes, change) }

func byName(things []thing) map[string]*thing {
	named := map[string]*thing{}
	for i := range things {
		named[things[i].name] = &things[i]
	}
	return named
}

// thing is what has a name in a catalog, reduced to what can be compared and shown.
type thing struct {
	name           string
	plan           string // whose accounts it concerns
	facts          []fact // of one kind of thing always the same ones, in the same order
	added, removed string // the effects
}

// fact is a field of a thing.
type fact struct {
	name   string
	text   string // as the file writes it; empty: left out
	unset  string // what holds where it is left out
	effect string
	parts  []thing // instead of a text
}

func (f fact) shown() string {
	if f.text == "" {
		return f.unset
	}
	return f.text
}

// summary is all that is written of the thing.
func (t thing) summary() string {
	var parts []string
	for _, f := range t.facts {
		if f.text != "" {
			parts = append(parts, f.name+" "+f.text)
		}
		for _, part := range f.parts {
			parts = append(parts, f.name+"["+part.name+"] {"+part.summary()+"}")
		}
	}
	if len(parts) == 0 {
		return "{}"
	}
	return strings.Join(parts, "; ")
}
