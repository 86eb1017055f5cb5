package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

func TestManyCommandsAreAnsweredInTheirOrder(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		h.has("ann", 3)
		h.has("bob", 1)
		commands := []holdfast.Command{h.command("ann", "", holdfast.Reserve{Feature: "draw"})} // no key
		for i := range 6 {
			account := []string{"ann", "bob"}[i%2]
			commands = append(commands, h.command(account, fmt.Sprint("m", i), holdfast.Reserve{Feature: "draw"}))
		}
		commands = append(commands, h.command("ann", "m0", holdfast.Reserve{Feature: "draw"}), h.command("eve", "g", holdfast.AddGrant{Unit: "credit", Amount: 1}))
		var told []string
		for _, r := range h.SubmitAll(t.Context(), commands) {
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			line := string(r.Outcome.Reason)
			if r.Outcome.Replayed {
				line += "replayed"
			}
			told = append(told, line)
		}
		if got := fmt.Sprintf("%q", told); got != `["invalid" "" "" "" "held_by_active" "" "held_by_active" "replayed" "not_found"]` {
			t.Errorf("told %s", got)
		}
		h.wantBalance("ann", "available=0 held=3 active=3")
		h.verify()
	})
}

func TestManyCommandsShareABatch(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 100)
	taken, release := g.hold()
	first := make(chan error, 1)
	go func() { _, err := h.submit("doorman", "", holdfast.PutAccount{}); first <- err }()
	<-taken
	loads := 0
	g.set(func(g *gate) { g.onLoad = func([]store.Want) error { loads++; return nil } })
	var commands []holdfast.Command
	for i := range 100 {
		commands = append(commands, h.command("ann", fmt.Sprint("m", i), holdfast.Reserve{Feature: "draw"}))
	}
	answered := make(chan []engine.Result, 1)
	go func() { answered <- h.SubmitAll(context.Background(), commands) }()
	for h.Waiting() < len(commands) {
		time.Sleep(50 * time.Microsecond)
	}
	release()
	for i, r := range <-answered {
		if r.Err != nil || r.Outcome.Refused() {
			t.Fatalf("command %d: %v %v", i, r.Outcome.Reason, r.Err)
		}
	}
	if err := <-first; err != nil || loads != 1 {
		t.Errorf("%d transactions, %v", loads, err)
	}
}

// A command that finds no room may not be overtaken by one that stood behind it.
func TestWhereTheQueueIsFullTheRestIsTurnedAway(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g, func(o *engine.Options) { o.MaxQueue, o.MaxQueuePerAccount = 10, 2 })
	h.has("ann", 10)
	taken, release := g.hold()
	first := make(chan error, 1)
	go func() { _, err := h.submit("doorman", "", holdfast.PutAccount{}); first <- err }()
	<-taken
	var commands []holdfast.Command
	for i := range 5 {
		commands = append(commands, h.command("ann", fmt.Sprint("m", i), holdfast.Reserve{Feature: "draw"}))
	}
	commands = append(commands, h.command("bob", "", holdfast.PutAccount{}))
	answered := make(chan []engine.Result, 1)
	go func() { answered <- h.SubmitAll(context.Background(), commands) }()
	for h.Waiting() < 2 {
		time.Sleep(50 * time.Microsecond)
	}
	release()
	results := <-answered
	for i, r := range results {
		if want := map[bool]engine.Code{true: "", false: engine.Overloaded}[i < 2]; codeOf(r.Err) != want {
			t.Errorf("command %d: %v, want %q", i, r.Err, want)
		}
	}
	if err := <-first; err != nil {
		t.Error(err)
	}
	h.wantBalance("ann", "available=8 held=2 active=2")
}

func TestWhoeverLeavesABatchIsToldWhatIsKnownOfEach(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 10)
	taken, release := g.hold()
	ctx, leave := context.WithCancel(context.Background())
	answered := make(chan []engine.Result, 1)
	go func() {
		answered <- h.SubmitAll(ctx, []holdfast.Command{h.command("ann", "m1", holdfast.Reserve{Feature: "draw"}), h.command("ann", "", holdfast.Reserve{})})
	}()
	<-taken
	leave()
	results := <-answered
	if codeOf(results[0].Err) != engine.OutcomeUnknown || results[1].Outcome.Reason != holdfast.Invalid {
		t.Errorf("told %+v", results)
	}
	release()
	if o := h.reserve("ann", "m1"); !o.Replayed {
		t.Error("what was taken was not done")
	}
	for i, r := range h.SubmitAll(ctx, []holdfast.Command{h.command("ann", "m2", holdfast.Reserve{Feature: "draw"})}) {
		if codeOf(r.Err) != engine.Cancelled {
			t.Errorf("command %d of who has left: %v", i, r.Err)
		}
	}
}
