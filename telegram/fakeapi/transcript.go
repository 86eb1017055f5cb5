package fakeapi

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// EntryKind says what an entry of the transcript is about.
type EntryKind string

// The kinds of entries.
const (
	Called    EntryKind = "call"     // the bot called a method
	Told      EntryKind = "update"   // an update was made
	Dropped   EntryKind = "dropped"  // an update is told no more, or never was
	Delivered EntryKind = "delivery" // an update was handed over: a webhook answered, or getUpdates had it
)

// Entry is something that happened, in its order.
type Entry struct {
	Number     int               `json:"number"`
	At         time.Time         `json:"at"` // by the server's own time
	Bot        int64             `json:"bot"`
	Kind       EntryKind         `json:"kind"`
	Name       string            `json:"name"` // the method, or the kind of update
	Chat       int64             `json:"chat,omitempty"`
	Message    int               `json:"message,omitempty"`
	Update     int64             `json:"update,omitempty"`
	Text       string            `json:"text,omitempty"` // of a message, as the bot sent it
	Parameters map[string]string `json:"parameters,omitempty"`
	Code       int               `json:"code,omitempty"`    // what was answered; 0: nothing
	Problem    string            `json:"problem,omitempty"` // why a call was refused, a delivery failed, an update dropped
	Fault      FaultKind         `json:"fault,omitempty"`
}

// Transcript is what happened, oldest first.
type Transcript []Entry

// maxTranscript is how much is kept: what happened longest ago is forgotten first.
const maxTranscript = 200_000

func (t Transcript) add(e Entry) Transcript {
	e.Number = 1
	if len(t) > 0 {
		e.Number = t[len(t)-1].Number + 1
	}
	if len(t) >= maxTranscript {
		t = slices.Clone(t[maxTranscript/2:])
	}
	return append(t, e)
}

// Transcript is what happened until now. No token is in it.
func (s *Server) Transcript() Transcript {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.transcript)
}

// Which says whether an entry is meant.
type Which func(Entry) bool

// Call means calls of these methods that took effect, whether or not their answer arrived. No name: of any.
func Call(names ...string) Which {
	return func(e Entry) bool {
		return e.Kind == Called && e.Code == 200 && (len(names) == 0 || slices.Contains(names, e.Name))
	}
}

// Shown means whatever shows this text, or a text that contains it, to people: messages, captions, edits.
func Shown(text string) Which {
	return func(e Entry) bool {
		return e.Kind == Called && e.Code == 200 && visible(e.Name) && strings.Contains(e.Text, text)
	}
}

// In narrows down to one chat.
func (w Which) In(chat int64) Which { return func(e Entry) bool { return e.Chat == chat && w(e) } }

// Of narrows down to one message.
func (w Which) Of(message int) Which {
	return func(e Entry) bool { return e.Message == message && w(e) }
}

// Where are the entries that are meant.
func (t Transcript) Where(which Which) Transcript {
	return slices.DeleteFunc(slices.Clone(t), func(e Entry) bool { return !which(e) })
}

// NeverAfter returns an error that names both where something came after the first of something else.
func (t Transcript) NeverAfter(what, after Which) error {
	first := slices.IndexFunc(t, after)
	if first < 0 {
		return nil
	}
	for _, e := range t[first+1:] {
		if what(e) {
			return fmt.Errorf("%s came after %s", e, t[first])
		}
	}
	return nil
}

// Busiest is the largest number of what is meant within any span of this length.
func (t Transcript) Busiest(length time.Duration, which Which) int {
	most := 0
	meant := t.Where(which)
	from := 0
	for i, e := range meant {
		for e.At.Sub(meant[from].At) >= length {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// BusiestChat is the same for the chat where it is largest.
func (t Transcript) BusiestChat(length time.Duration, which Which) (chat int64, most int) {
	seen := map[int64]bool{}
	for _, e := range t {
		if e.Chat == 0 || seen[e.Chat] {
			continue
		}
		seen[e.Chat] = true
		if n := t.Busiest(length, which.In(e.Chat)); n > most {
			chat, most = e.Chat, n
		}
	}
	return chat, most
}

// String is the entry in a line.
func (e Entry) String() string {
	line := fmt.Sprintf("#%d %s %s", e.Number, e.Kind, e.Name)
	if e.Chat != 0 {
		line += fmt.Sprintf(" chat %d", e.Chat)
	}
	if e.Message != 0 {
		line += fmt.Sprintf(" message %d", e.Message)
	}
	if e.Text != "" {
		line += fmt.Sprintf(" %q", e.Text)
	}
	if e.Fault != "" {
		line += " [" + string(e.Fault) + "]"
	}
	if e.Problem != "" {
		line += " (" + e.Problem + ")"
	}
	return line
}

// Follow tells what has happened and then what happens, in order, until the context ends or the stand-in is closed.
func (s *Server) Follow(ctx context.Context, tell func(Entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := 0
	for {
		newer := func() int { return slices.IndexFunc(s.transcript, func(e Entry) bool { return e.Number > last }) }
		if s.until(ctx, func() bool { return len(s.transcript) > 0 && s.transcript[len(s.transcript)-1].Number > last }) != nil {
			return
		}
		entries := slices.Clone(s.transcript[newer():])
		last = entries[len(entries)-1].Number
		s.mu.Unlock()
		for _, e := range entries {
			tell(e)
		}
		s.mu.Lock()
	}
}
