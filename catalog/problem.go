package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that keeps a catalog from being used.
type Problem struct {
	File   string
	Line   int // from 1; 0: it lies nowhere in the file, and File, Column and Excerpt are empty
	Column int // from 1, in characters
	// Path names the field: features.text.improve.price[0].amount. Empty: the file as a whole.
	Path       string
	Message    string // what is wrong
	Suggestion string // what to write instead
	// Excerpt is the line and, below it, a caret under the column. Empty where the file has no such line.
	Excerpt string
}

// String is the problem as an editor or a terminal shows it: file:line:column: path: message, the excerpt, and what to
// write instead.
func (p Problem) String() string {
	var text strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&text, "%s:%d:%d: ", p.File, p.Line, p.Column)
	}
	if p.Path != "" {
		text.WriteString(p.Path + ": ")
	}
	text.WriteString(p.Message)
	for line := range strings.Lines(p.Excerpt) {
		text.WriteString("\n    | " + strings.TrimSuffix(line, "\n"))
	}
	if p.Suggestion != "" {
		text.WriteString("\n    = " + p.Suggestion)
	}
	return text.String()
}

// Problems are all that is wrong with a file, in its order. It is never empty where it is returned as an error.
type Problems []Problem

// Error prints every problem, with an empty line between two.
func (p Problems) Error() string {
	texts := make([]string, len(p))
	for i, problem := range p {
		texts[i] = problem.String()
	}
	return strings.Join(texts, "\n\n")
}

// place is a position in the file. Both numbers count from 1, columns in characters.
type place struct{ line, column int }

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.line, q.line), cmp.Compare(p.column, q.column))
}

// maxProblems bounds the memory that a hostile file can ask for. Nobody corrects more in one go.
const maxProblems = 500

// report collects problems while a file is read.
type report struct {
	source   *source
	problems Problems
	unlisted int
}

func (r *report) add(at place, path, message, suggestion string) {
	if r.full() {
		r.unlisted++
		return
	}
	r.problems = append(r.problems, Problem{
		File: r.source.name, Line: at.line, Column: at.column,
		Path: path, Message: message, Suggestion: suggestion, Excerpt: r.source.excerpt(at),
	})
}

// result is every problem in the order of the file, or nil.
func (r *report) result() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return place{a.Line, a.Column}.compare(place{b.Line, b.Column})
	})
	if r.unlisted > 0 {
		r.problems = append(r.problems, Problem{
			File: r.source.name, Line: 1, Column: 1,
			Message:    fmt.Sprintf("%d further problems are not listed", r.unlisted),
			Suggestion: "correct these first",
		})
	}
	return r.problems
}

// found reports whether there is any problem yet.
func (r *report) found() bool { return len(r.problems) > 0 }

// full reports whether further problems are only counted.
func (r *report) full() bool { return len(r.problems) == maxProblems }
