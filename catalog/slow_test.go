package catalog_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/catalog"
)

func TestSlow(t *testing.T) {
	if os.Getenv("SLOW") == "" {
		t.Skip()
	}
	for _, part := range []string{
		"[", "{", "{a: ", "[a: ", "- ", "? ", "a: ", "a:\n", "a: b\n", "a,", "\"", "'", "\t", "&a ", "*a ", "!a ", "<<", "<<: ",
		"a: |\n", ">\n", "\n", " ", "\"\t\n", "- - a\n", "%a\n", "---\n", "@", "`\n", "\\", "a: #\n", "#\n", "a: x y\n", "a:b ", ":", ": ", "'a' ", "\"\\", "a\n", "]", "}", ",", "...\n", "{a,", "[[],", "{a: b}, ",
	} {
		for _, begin := range []string{"", "{ ", "[ ", "a: |\n  ", "a: \"\\z | #\"\n", "a: x\n  '", "{a: x\n", "a: x\n  - "} {
			for _, breaks := range []string{"", "\n", "\n  "} {
				line := part
				if breaks != "" {
					line = strings.Repeat(part, 2000/len(part)) + breaks
				}
				file := begin + strings.Repeat(line, ((1<<18)-len(begin))/len(line))
				s := time.Now()
				_, err := catalog.Parse("catalog.yaml", []byte(file))
				if d := time.Since(s); d > 500*time.Millisecond {
					fmt.Printf("%q %q %q %v %.100v\n", begin, part, breaks, d, err)
				}
			}
		}
	}
}
