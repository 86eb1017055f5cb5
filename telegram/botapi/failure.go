package botapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The kinds of errors, for errors.Is. A call that fails ends in one of them, or in *RetryAfter. Where it was the context that
// ended, the error is of a kind and has the context's cause, too.
var (
	// ErrBlocked: nothing can be sent to that chat, and trying again would not help: the person has blocked the bot or is
	// gone, or the group does not let it write.
	ErrBlocked = errors.New("the chat cannot be written to")
	// ErrNoMessage: the message is not there, or too old to be edited or deleted.
	ErrNoMessage = errors.New("there is no such message")
	// ErrRejected: Telegram, or this package before it, does not accept the call as it is.
	ErrRejected = errors.New("rejected")
	// ErrToken: Telegram does not know the bot's token.
	ErrToken = errors.New("the bot's token is not valid")
	// ErrConflict: updates are asked for while a webhook is set, or by two at once.
	ErrConflict = errors.New("another one receives the updates")
	// ErrUnavailable: Telegram could not be reached, or not in time; nothing was done.
	ErrUnavailable = errors.New("the Bot API was not reached")
	// ErrUncertain: there was no usable answer, so it may have been done or not.
	ErrUncertain = errors.New("no answer of the Bot API: it may have been done")
)

// RetryAfter says that a call would have to wait longer than its context lives. Nothing was done.
type RetryAfter struct {
	Wait time.Duration
}

// Error says how long.
func (e *RetryAfter) Error() string { return fmt.Sprintf("the call would have to wait %s", e.Wait) }

// Error is a call that failed: which, how, and in whose words.
type Error struct {
	Method      string
	Code        int    // of the Bot API; 0: it gave none
	Description string // Telegram's own words, or those of the network: for logs, not for people
	Kind        error  // one of the kinds above
	cause       error
}

// Error tells all of it.
func (e *Error) Error() string {
	text := e.Kind.Error() + ": "
	if e.Method != "" {
		text = e.Method + ": " + text
	}
	if e.Code != 0 {
		text += strconv.Itoa(e.Code) + " "
	}
	return text + e.Description
}

// Unwrap makes errors.Is find the kind, and what ended the call.
func (e *Error) Unwrap() []error {
	if e.cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.cause}
}

// Temporary reports whether the same call may succeed later.
func Temporary(err error) bool {
	var wait *RetryAfter
	return errors.As(err, &wait) || errors.Is(err, ErrUnavailable) || errors.Is(err, ErrUncertain)
}

// rejected is an error about what was never sent.
func rejected(method, format string, arguments ...any) error {
	return &Error{Method: method, Kind: ErrRejected, Description: fmt.Sprintf(format, arguments...)}
}

// notInTime is the error of a call that was not made before its context ended.
func notInTime(ctx context.Context) error {
	cause := context.Cause(ctx)
	return &Error{Kind: ErrUnavailable, Description: cause.Error(), cause: cause}
}

// movedError says that a group has become a supergroup, with another id.
type movedError struct{ to Chat }

func (e *movedError) Error() string { return "the group has become a supergroup" }

// kindOf says which kind of failure Telegram's words are. There are no other signs: one code stands for many.
func kindOf(code int, description string) error {
	says := func(parts ...string) bool {
		for _, part := range parts {
			if strings.Contains(strings.ToLower(description), part) {
				return true
			}
		}
		return false
	}
	switch {
	case code == http.StatusForbidden,
		says("chat not found", "peer_id_invalid", "user is deactivated", "not enough rights to send", "have no rights to send", "chat_write_forbidden"):
		return ErrBlocked
	case says("message to edit not found", "message can't be edited", "message to delete not found", "message can't be deleted", "message_id_invalid"):
		return ErrNoMessage
	case code == http.StatusUnauthorized, code == http.StatusNotFound && description == "Not Found":
		return ErrToken // an unknown method is "Not Found: method not found"
	case code == http.StatusConflict:
		return ErrConflict
	case code >= 500:
		return ErrUncertain
	}
	return ErrRejected
}
