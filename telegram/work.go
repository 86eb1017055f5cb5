package telegram

import (
	"context"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/jobs"
	"github.com/holdfast-dev/holdfast/message"
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
	// Action is what the chat shows while it is worked on, in the Bot API's words: upload_photo, for example. Empty: typing.
	Action string
	// Concurrency is how many are done at once, per queue; 0: 1. Of features that share a queue the largest counts.
	Concurrency int
}

// Ask is what a person asks for. Its JSON is noted, so that it can be asked for again by a button.
type Ask struct {
	Feature  string                     `json:"feature"`            // one that is registered; of Feature.Ask: may be left empty
	Text     string                     `json:"text,omitempty"`     // for the worker
	Photo    string                     `json:"photo,omitempty"`    // a file's id, for the worker
	Quantity holdfast.Amount            `json:"quantity,omitempty"` // 0: one
	Usage    map[string]holdfast.Amount `json:"usage,omitempty"`    // of a price by usage: at most
	// Part tells several that one turn asks for apart.
	Part string `json:"part,omitempty"`
}

// Decline is how Feature.Ask says that it cannot be asked for like that.
type Decline struct{ Text string }

// Error is the text.
func (d *Decline) Error() string { return d.Text }

// Work is a job that a person waits for.
type Work struct {
	*jobs.Job
	Prompt  Prompt
	Reader  message.Reader // how to speak to the person
	Feature string

	figure   figure
	progress func(text string)
	draft    func(ctx context.Context) (int64, error)
}

// Charge sets what the work came to, in the reservation's unit. The last call of Charge or Use counts.
func (w *Work) Charge(amount holdfast.Amount) {
	w.figure = figure{Amount: &amount}
	w.Job.Charge(amount)
}

// Use sets what the work has used of each kind, in all so far.
func (w *Work) Use(usage map[string]holdfast.Amount) {
	w.figure = figure{Usage: usage}
	w.Job.Use(usage)
}

// figure is what a piece of work came to, kept until it is charged.
type figure struct {
	Amount *holdfast.Amount           `json:"amount,omitempty"`
	Usage  map[string]holdfast.Amount `json:"usage,omitempty"`
}

func (f figure) tell(job *jobs.Job) {
	switch {
	case f.Amount != nil:
		job.Charge(*f.Amount)
	case f.Usage != nil:
		job.Use(f.Usage)
	}
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
	TimeZone string `json:"time_zone,omitempty"`
}

func (p *Prompt) place() Place {
	return Place{Chat: p.Chat, Thread: p.Thread, Message: p.Message, Private: p.Private}
}

// Draft is an id for the drafts of an answer that is being written (sendMessageDraft with can_stop): where the person presses
// Stop, the work is asked to stop.
func (w *Work) Draft(ctx context.Context) (int64, error) { return w.draft(ctx) }

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

// empty reports whether there is nothing to deliver.
func (r Result) empty() bool { return r.Text == "" && len(r.Photo) == 0 && r.PhotoURL == "" }
