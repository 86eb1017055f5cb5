package engine

import (
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Observer is told what the engine does, for metrics. Its methods are called from many goroutines, must not block, and
// change nothing.
type Observer interface {
	// Decided: a command was answered after its outcome was saved.
	Decided(operation string, reason holdfast.Reason, replayed bool)
	// Saved: a batch went through the store.
	Saved(Batch)
	// Retried: the store failed and the batch is decided again, or given up. err is a *store.Error.
	Retried(err error)
	// Swept: a pass of the sweeper ended; it expired something in that many accounts.
	Swept(accounts int)
}

// JobObserver is an Observer that is told of queues too.
type JobObserver interface {
	Observer
	// Claimed: a worker has claimed a job for the first time, so long after it was made.
	Claimed(project, queue string, waited time.Duration)
}

// Batch is what one batch took.
type Batch struct {
	Commands, Accounts int
	Waited             time.Duration // of the command that waited longest, from Submit to being taken
	Load, Save         time.Duration
}

// nobody observes.
type nobody struct{}

func (nobody) Decided(string, holdfast.Reason, bool) {}
func (nobody) Saved(Batch)                           {}
func (nobody) Retried(error)                         {}
func (nobody) Swept(int)                             {}
