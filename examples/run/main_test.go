package main

import (
	"os"
	"os/exec"
	"testing"
)

// The tests run this program as its reader does: as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("AS_EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestAMessageIsWorkedOnAndChargedOnce(t *testing.T) {
	folder := t.TempDir()
	for _, step := range []struct{ message, says string }{
		{"message-991", "working on message-991\ncharged 1 credit, 2 left\n"},
		{"message-991", "refused: already_ended\n"},
		{"message-992", "working on message-992\ncharged 1 credit, 1 left\n"},
		{"message-993", "working on message-993\ncharged 1 credit, 0 left\n"},
		{"message-994", "refused: insufficient\n"},
	} {
		example := exec.Command(os.Args[0], step.message)
		example.Dir, example.Stderr = folder, os.Stderr
		example.Env = append(os.Environ(), "AS_EXAMPLE=1")
		out, err := example.Output()
		if err != nil || string(out) != step.says {
			t.Errorf("%s: %q %v, want %q", step.message, out, err, step.says)
		}
	}
}
