package main

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

// The test runs this program as its reader does: as a process of its own.
func TestMain(m *testing.M) {
	if os.Getenv("AS_EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheBotDoesWhatItIsAskedFor(t *testing.T) {
	server := fakeapi.Start(t, fakeapi.Options{})
	const token = "7000001:not-a-secret"
	ann := server.Bot(token).Person(fakeapi.User{ID: 42, FirstName: "Ann", LanguageCode: "en"})
	example := exec.Command(os.Args[0])
	example.Dir, example.Stderr = t.TempDir(), os.Stderr
	example.Env = append(os.Environ(), "AS_EXAMPLE=1", "TELEGRAM_BOT_TOKEN="+token, "TELEGRAM_API_URL="+server.URL)
	if err := example.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := example.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := example.Wait(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, step := range []struct{ asks, answer string }{{"/start", "Improve text"}, {"dear sir", "DEAR SIR"}} {
		prompt := ann.Send(step.asks)
		answer, err := ann.AwaitText(ctx, step.answer)
		if err != nil {
			t.Fatalf("%q: %v: %v", step.asks, err, server.Transcript())
		}
		if step.asks == "dear sir" && answer.ReplyTo != prompt {
			t.Errorf("%q answers message %d, wanted %d", answer.Text, answer.ReplyTo, prompt)
		}
	}
}
