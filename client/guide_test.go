package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/apitest"
)

// What docs/guides/go.md shows is here, and is run by the test below it.

// charge tells a refusal from an accident.
func charge(ctx context.Context, to engine.Submitter, account, message string) (string, error) {
	outcome, err := to.Submit(ctx, holdfast.Command{
		Project: "p", Account: account, Key: message,
		Do: holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text.improve"}},
	})
	var accident *engine.Error
	switch {
	case errors.As(err, &accident) && accident.MayHaveHappened():
		return "", err // send the same command with the same key once more: the answer tells
	case err != nil:
		return "", err // nothing happened
	case outcome.Refused():
		return fmt.Sprintf("no: %s, needs %d, has %d", outcome.Reason, outcome.Refusal.Needed, outcome.Refusal.Available), nil
	}
	return fmt.Sprintf("charged %d, %d left", outcome.Reservation.Used, outcome.Balance.Available), nil
}

// model stands for a provider that answers in parts.
type model struct{ parts []part }

type part struct{ input, output holdfast.Amount }

var errBroken = errors.New("connection reset")

func (m *model) ask(_ context.Context, _ string) (func() (part, error), error) {
	return func() (part, error) {
		if len(m.parts) == 0 {
			return part{}, io.EOF
		}
		next := m.parts[0]
		m.parts = m.parts[1:]
		if next == (part{}) {
			return part{}, errBroken
		}
		return next, nil
	}, nil
}

// write is a piece of work priced by usage.
func write(m *model) func(context.Context, *engine.Work) error {
	return func(ctx context.Context, w *engine.Work) error {
		next, err := m.ask(ctx, w.ID) // the provider's idempotency key
		if err != nil {
			return err // released
		}
		for {
			part, err := next()
			switch {
			case errors.Is(err, io.EOF):
				return nil // charged what Use named last
			case errors.Is(err, errBroken):
				return fmt.Errorf("%w: %w", engine.ErrInDoubt, err)
			case err != nil:
				return err
			case ctx.Err() != nil:
				return context.Cause(ctx) // asked to stop: charged what Use named last
			}
			w.Use(map[string]holdfast.Amount{"input_token": part.input, "output_token": part.output})
		}
	}
}

func TestTheCodeOfTheGuideDoesWhatItSays(t *testing.T) {
	sold := catalog.Embedded()
	s := apitest.Start(t, engine.Options{Catalog: func(string) *holdfast.Catalog { return sold }})
	c := dial(t, s.URL)
	for i, want := range []string{"charged 1, 2 left", "charged 1, 1 left", "charged 1, 0 left", "no: insufficient, needs 1, has 0"} {
		to := []engine.Submitter{s.Engine, c}[i%2]
		if said, err := charge(t.Context(), to, "ann", fmt.Sprint("m", i)); said != want || err != nil {
			t.Errorf("%q %v, want %q", said, err, want)
		}
	}
	do(t, c, command("bob", "", holdfast.PutAccount{}))
	do(t, c, command("bob", "", holdfast.SetPlan{Plan: "pro"}))
	request := func(key string) engine.Request {
		return engine.Request{Account: "bob", Key: key, Reserve: holdfast.Reserve{
			Feature: "chat.completion", Usage: map[string]holdfast.Amount{"input_token": 1200, "output_token": 4096},
		}}
	}
	o, err := c.Run(t.Context(), request("m1"), write(&model{parts: []part{{1200, 1000}, {1200, 4096}}}))
	if err != nil || o.Reservation.Used != 18 {
		t.Errorf("%+v %v", o.Reservation, err)
	}
	o, err = c.Run(t.Context(), request("m2"), write(&model{parts: []part{{1200, 1000}, {}}}))
	if !errors.Is(err, engine.ErrInDoubt) || !o.Reservation.InDoubt {
		t.Errorf("%+v %v", o.Reservation, err)
	}
	balances, err := c.Balance(t.Context(), "bob", time.Time{})
	if err != nil || balances[0].Available != 300-18-18 || balances[0].Reserved != 18 {
		t.Errorf("%+v %v", balances, err)
	}
}

// Every block of Go in the guide stands, line by line, in code that a test runs.
func TestTheGuideShowsCodeThatIsRun(t *testing.T) {
	var code strings.Builder
	for _, pattern := range []string{"*_test.go", "../examples/*/main.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			code.WriteString(flat(string(text)))
		}
	}
	guide, err := os.ReadFile("../docs/guides/go.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindAllStringSubmatch(string(guide), -1)
	if len(blocks) < 4 {
		t.Fatalf("only %d blocks were found", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(code.String(), flat(block[1])) {
			t.Errorf("no test runs\n%s", block[1])
		}
	}
}

// flat is a text without its indentation.
func flat(text string) string {
	var lines strings.Builder
	for line := range strings.Lines(text) {
		lines.WriteString(strings.TrimLeft(line, "\t "))
	}
	return lines.String()
}
