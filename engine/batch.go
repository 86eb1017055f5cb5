package engine

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Result is what became of one command of SubmitAll: an outcome, or an *Error.
type Result struct {
	Outcome holdfast.Outcome
	Err     error
}

// SubmitAll has many commands decided, as Submit has each, and returns what came of them in their order. All of them wait
// at once, so that they share the batches of the engine. Commands of one account are decided in the order of the list;
// nothing else ties them together: each is done or not on its own.
//
// A command that finds no room is answered with Overloaded, and so are all that follow it, so that none overtakes another.
func (e *Engine) SubmitAll(ctx context.Context, commands []holdfast.Command) []Result {
	results := make([]Result, len(commands))
	waiting := make([]*pending, len(commands))
	var full *Error
	for i, command := range commands {
		if found := prepare(&command); len(found) > 0 {
			results[i].Outcome = holdfast.Outcome{Reason: holdfast.Invalid, Problems: found}
			continue
		}
		if full != nil {
			results[i].Err = full
			continue
		}
		p := &pending{command: command, since: time.Now(), answer: make(chan answer, 1)}
		if err := e.send(ctx, p); err != nil {
			results[i].Err = err
			if err.Code == Overloaded {
				full = err
			}
			continue
		}
		waiting[i] = p
	}
	for i, p := range waiting {
		if p != nil {
			results[i].Outcome, results[i].Err = e.receive(ctx, p)
		}
	}
	return results
}
