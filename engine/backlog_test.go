package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// sideBySide is a store that can work on several transactions at once.
type sideBySide struct{ *gate }

func (sideBySide) Traits() store.Traits { return store.Traits{Concurrent: true} }

func TestABacklogIsWorkedOnBesideABatchThatTakesLong(t *testing.T) {
	const backlog = 32 // as in queue.go
	g := &gate{Store: memoryStore(t)}
	h := open(t, sideBySide{g})
	taken, release := g.hold()
	answers := make(chan result, backlog+1)
	submit := func(account string) {
		o, err := h.submit(account, "", holdfast.PutAccount{})
		answers <- result{o, err}
	}
	go submit("slow")
	<-taken
	for i := range backlog {
		if len(answers) > 0 || h.Waiting() != i {
			t.Fatalf("%d wait beside a batch and %d were answered: so few are no backlog", h.Waiting(), len(answers))
		}
		go submit(fmt.Sprint("account", i))
		for i+1 < backlog && h.Waiting() == i {
			time.Sleep(50 * time.Microsecond)
		}
	}
	for range backlog {
		if r := <-answers; r.err != nil || r.outcome.Refused() {
			t.Errorf("%+v", r)
		}
	}
	release()
	if r := <-answers; r.err != nil {
		t.Error(r.err)
	}
}
