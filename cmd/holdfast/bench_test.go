package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
)

func TestBenchSaysWhatItCannotMeasureBeforeItMakesAnything(t *testing.T) {
	folder := t.TempDir()
	for _, c := range []struct{ db, json, want string }{
		{"memory:", filepath.Join(folder, "results.json"), "measure a database that lasts"},
		{"sqlite:" + filepath.Join(folder, "a.db"), filepath.Join(folder, "missing", "results.json"), "--json"},
		{"sqlite:" + filepath.Join(folder, "missing", "a.db"), filepath.Join(folder, "results.json"), "scratch directory"},
	} {
		var out, notes bytes.Buffer
		code := run(t.Context(), []string{"bench", "--quick", "--db", c.db, "--json", c.json}, &terminal{out: &out, notes: &notes})
		if code != 1 || !strings.Contains(notes.String(), c.want) || out.Len() > 0 {
			t.Errorf("bench on %s: exit %d, want 1 and %q\n%s%s", c.db, code, c.want, &notes, &out)
		}
	}
}
