package fakeapi

import (
	"fmt"
	"net/http"
)

// FaultKind is what goes wrong with a call.
type FaultKind string

// The faults of calls.
const (
	TooMany     FaultKind = "too_many"    // 429 with retry_after; nothing is done
	Broken      FaultKind = "broken"      // 500; nothing is done
	Refused     FaultKind = "refused"     // an error of your choice; nothing is done
	Unreachable FaultKind = "unreachable" // the connection breaks; nothing is done
	LoseAnswer  FaultKind = "lose_answer" // it is done, and the connection breaks before the answer
	Timeout     FaultKind = "timeout"     // it is done, and never answered
)

// Fault is something that goes wrong with the next call that it is for.
type Fault struct {
	Kind        FaultKind `json:"kind"`
	Method      string    `json:"method,omitempty"`      // empty: any but getUpdates
	Chat        int64     `json:"chat,omitempty"`        // 0: any, and those without a chat
	RetryAfter  int       `json:"retry_after,omitempty"` // seconds, of TooMany; 0: 1
	Code        int       `json:"code,omitempty"`        // of Refused; 0: 400
	Description string    `json:"description,omitempty"` // of Refused, behind "Bad Request: " and the like
	Times       int       `json:"times,omitempty"`       // 0: once
}

// Fail has calls fail: each takes the first fault that is for it.
func (b *Bot) Fail(faults ...Fault) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.faults = append(b.faults, faults...)
}

// Heal forgets the faults that have not happened.
func (b *Bot) Heal() {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.faults = nil
}

// Faults are those that have not happened.
func (b *Bot) Faults() []Fault {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return append([]Fault{}, b.faults...)
}

func (b *Bot) takeFault(name string, chat int64) Fault {
	for i := range b.faults {
		f := b.faults[i]
		if f.Method != "" && f.Method != name || f.Method == "" && name == "getUpdates" || f.Chat != 0 && f.Chat != chat {
			continue
		}
		if b.faults[i].Times--; b.faults[i].Times <= 0 {
			b.faults = append(b.faults[:i:i], b.faults[i+1:]...)
		}
		return f
	}
	return Fault{}
}

// before says whether the fault comes before the effect.
func (f Fault) before() bool {
	return f.Kind == TooMany || f.Kind == Broken || f.Kind == Refused || f.Kind == Unreachable
}

func (f Fault) refusal() *refusal {
	switch f.Kind {
	case TooMany:
		return tooMany(max(1, f.RetryAfter))
	case Refused:
		code := f.Code
		if code == 0 {
			code = http.StatusBadRequest
		}
		return &refusal{Code: code, Description: http.StatusText(code) + ": " + f.Description}
	}
	return &refusal{Code: http.StatusInternalServerError, Description: "Internal Server Error"}
}

func tooMany(seconds int) *refusal {
	return &refusal{Code: http.StatusTooManyRequests, Description: fmt.Sprintf("Too Many Requests: retry after %d", seconds), RetryAfter: seconds}
}
