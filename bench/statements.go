package bench

import (
	"embed"
	"fmt"
	"strings"
)

// The baselines' SQL lies in files of its own, so that it can be read, and judged, without Go.
//
//go:embed baseline/*.sql
var baselines embed.FS

// statements are those of one file, by the name in the "-- name:" line above each.
type statements map[string]string

func readStatements(file string) (statements, error) {
	text, err := baselines.ReadFile("baseline/" + file)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(string(text), "-- name: ")
	all := statements{}
	for _, part := range parts[1:] {
		name, statement, _ := strings.Cut(part, "\n")
		name = strings.TrimSpace(name)
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("%s has two statements named %s", file, name)
		}
		all[name] = strings.TrimSuffix(strings.TrimSpace(withoutComments(statement)), ";")
	}
	return all, nil
}

// withoutComments drops whole lines of comment: they are for the reader of the file, and would cost the server time.
func withoutComments(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			kept.WriteString(line)
		}
	}
	return kept.String()
}
