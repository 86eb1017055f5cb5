package telegram

import (
	"context"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/jobs"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
)

// Feature is something that people ask for in a chat and that costs.
type Feature struct {
	// Name is the catalog's.
	Name string
	// Command asks for it: /image a cat. Empty: every message that no command has taken, if Match has it too.
	Command string
	// Match says whether a message asks for it; nil: any that has words.
	Match func(m *Message) bool
	// Ask says what is asked for, before it is reserved: how much, or how much at most. Nil: one, for the message's words.
	// An error with a text for the person is a *Decline.
	Ask func(ctx context.Context, turn *Turn) (Ask, error)
	// Do does the work, as jobs.Worker's Handle does: an error gives the job back for another attempt, jobs.Fail and
	// engine.ErrInDoubt end it. The result is delivered, and then the work is charged.
	Do func(ctx context.Context, work *Work) (Result, error)
	// Concurrency is how many are done at once, per queue; 0: 1. Of features that share a queue the largest counts.
	Concurrency int
}

// Ask is what a person asks for.
type Ask struct {
	Feature  string // one that is registered; of Feature.Ask: left empty
	Text     string // for the worker
	Photo    string // a file's id, for the worker
	Quantity holdfast.Amount
	Usage    map[string]holdfast.Amount // of a price by usage: at most
	Metadata map[string]string
	// Part tells several that one turn asks for apart.
	Part string
}

// Decline is how Feature.Ask says that it cannot be asked for like that.
type Decline struct{ Text string }

// Error is the text.
func (d *Decline) Error() string { return d.Text }

// Work is a job that a person waits for. Charge and Use say what it came to, as of every job.
type Work struct {
	*jobs.Job
	Feature  string
	Prompt   Prompt
	Account  string
	progress func(text string)
}

// Prompt is what the person has asked, as the worker gets it.
type Prompt struct {
	Bot      string `json:"bot"`
	User     int64  `json:"user"`
	Chat     int64  `json:"chat"`
	Thread   int    `json:"thread,omitempty"`
	Message  int    `json:"message,omitempty"`
	Private  bool   `json:"private,omitempty"`
	Text     string `json:"text,omitempty"`
	Photo    string `json:"photo,omitempty"`
	Language string `json:"language,omitempty"`
}

// Progress shows in the status message how far the work is. It does not wait, and of several texts in a short time the last
// one is shown.
func (w *Work) Progress(text string) { w.progress(text) }

// Result is what the person gets. One of Text, Photo and PhotoURL is set, or Text together with a picture, as its caption.
type Result struct {
	Text     string
	HTML     bool // Text is HTML as Telegram reads it; else it is shown as it is
	Photo    []byte
	PhotoURL string
	Keyboard botapi.Keyboard
}
