package telegram

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Kind says what an update is about, in the words of the Bot API.
type Kind string

// The kinds that are dispatched. A message that tells of a payment is a service message of Telegram's, and a kind of its own
// here: nobody has typed it.
const (
	KindMessage           Kind = "message"
	KindCallback          Kind = "callback_query"
	KindPreCheckout       Kind = "pre_checkout_query"
	KindSuccessfulPayment Kind = "successful_payment"
	KindRefundedPayment   Kind = "refunded_payment"
	KindSubscription      Kind = "subscription"
	KindMember            Kind = "my_chat_member"
	KindStopped           Kind = "stopped_message_generation"
)

// Update is one update, as far as the kit looks at it; Raw is all of it.
type Update struct {
	ID   int64
	Kind Kind // empty: of no kind above
	Raw  json.RawMessage

	From     *User     // whose doing it is, and who pays; nil: Telegram does not say
	Message  *Message  // of KindMessage and of the kinds of payment
	Callback *Callback // of KindCallback
	Member   *Member   // of KindMember
	Stopped  *Stopped  // of KindStopped
}

// User is a person, or a bot.
type User struct {
	ID        int64  `json:"id"`
	IsBot     bool   `json:"is_bot"`
	FirstName string `json:"first_name"`
	Username  string `json:"username"`
	Language  string `json:"language_code"` // IETF, as the person's Telegram has it; empty: not told
}

// Chat is where a message was sent.
type Chat struct {
	ID    int64  `json:"id"`
	Type  string `json:"type"` // private, group, supergroup, channel
	Title string `json:"title"`
}

// Private reports whether a person and the bot are alone.
func (c Chat) Private() bool { return c.Type == "private" }

// Message is what somebody has sent.
type Message struct {
	ID         int      `json:"message_id"`
	Thread     int      `json:"message_thread_id"` // of a topic; 0: none
	InTopic    bool     `json:"is_topic_message"`
	From       *User    `json:"from"`
	SenderChat *Chat    `json:"sender_chat"` // set: a channel or an anonymous administrator speaks, and nobody can be billed
	Chat       Chat     `json:"chat"`
	Date       int64    `json:"date"` // seconds since 1970
	Text       string   `json:"text"`
	Caption    string   `json:"caption"`
	Photo      []File   `json:"photo"` // one picture in several sizes, the largest last
	Document   *File    `json:"document"`
	ReplyTo    *Message `json:"reply_to_message"`

	SuccessfulPayment json.RawMessage `json:"successful_payment"`
	RefundedPayment   json.RawMessage `json:"refunded_payment"`
}

// File is something that can be fetched with getFile.
type File struct {
	ID   string `json:"file_id"`
	Size int64  `json:"file_size"`
}

// Words are what the person has written, under a picture too.
func (m *Message) Words() string {
	if m.Text != "" {
		return m.Text
	}
	return m.Caption
}

// Anonymous reports whether a channel or an administrator who hides behind the group has sent it.
func (m *Message) Anonymous() bool { return m.SenderChat != nil }

// Callback is a tap on a button under a message of the bot.
type Callback struct {
	ID      string   `json:"id"`
	From    User     `json:"from"`
	Message *Message `json:"message"` // the one with the button; nil: Telegram has it no more
	Data    string   `json:"data"`
}

// Member says what the bot has become in a chat: kicked is blocked, in a private one.
type Member struct {
	Chat Chat `json:"chat"`
	From User `json:"from"`
	New  struct {
		Status string `json:"status"`
	} `json:"new_chat_member"`
}

// Gone reports whether the bot can no longer write there.
func (m *Member) Gone() bool { return m.New.Status == "kicked" || m.New.Status == "left" }

// Stopped tells that a person has pressed Stop while an answer was being written.
type Stopped struct {
	Chat   Chat  `json:"chat"`
	Thread int   `json:"message_thread_id"`
	Draft  int64 `json:"draft_id"`
}

// ParseUpdate reads an update. What it does not know has no Kind, and is no error: Telegram adds kinds.
func ParseUpdate(raw []byte) (*Update, error) {
	var all struct {
		ID           int64                `json:"update_id"`
		Message      *Message             `json:"message"`
		Callback     *Callback            `json:"callback_query"`
		PreCheckout  *struct{ From User } `json:"pre_checkout_query"`
		Subscription *struct{ User User } `json:"subscription"`
		Member       *Member              `json:"my_chat_member"`
		Stopped      *Stopped             `json:"stopped_message_generation"`
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, fmt.Errorf("read an update: %w", err)
	}
	if all.ID == 0 && !strings.Contains(string(raw), "update_id") {
		return nil, errors.New("read an update: it has no update_id")
	}
	u := &Update{ID: all.ID, Raw: raw}
	switch {
	case all.Message != nil:
		u.Kind, u.Message, u.From = all.Message.kind(), all.Message, all.Message.From
	case all.Callback != nil:
		u.Kind, u.Callback, u.From = KindCallback, all.Callback, &all.Callback.From
	case all.PreCheckout != nil:
		u.Kind, u.From = KindPreCheckout, &all.PreCheckout.From
	case all.Subscription != nil:
		u.Kind, u.From = KindSubscription, &all.Subscription.User
	case all.Member != nil:
		u.Kind, u.Member, u.From = KindMember, all.Member, &all.Member.From
	case all.Stopped != nil:
		u.Kind, u.Stopped = KindStopped, all.Stopped
	}
	return u, nil
}

func (m *Message) kind() Kind {
	switch {
	case m.SuccessfulPayment != nil:
		return KindSuccessfulPayment
	case m.RefundedPayment != nil:
		return KindRefundedPayment
	}
	return KindMessage
}

// At is the chat, thread and message that an update belongs to; zero: to none.
func (u *Update) At() Place {
	switch {
	case u.Message != nil:
		return u.Message.place()
	case u.Callback != nil && u.Callback.Message != nil:
		return u.Callback.Message.place()
	case u.Callback != nil: // Telegram has the message no more: then it is between the person and the bot
		return Place{Chat: u.Callback.From.ID, Private: true}
	case u.Member != nil:
		return Place{Chat: u.Member.Chat.ID, Private: u.Member.Chat.Private()}
	case u.Stopped != nil:
		return Place{Chat: u.Stopped.Chat.ID, Thread: u.Stopped.Thread, Private: u.Stopped.Chat.Private()}
	}
	return Place{}
}

// Place is where to answer: a chat, in a group perhaps a topic of it, and the message that an answer replies to.
type Place struct {
	Chat    int64
	Thread  int
	Message int
	Private bool
}

func (m *Message) place() Place {
	p := Place{Chat: m.Chat.ID, Message: m.ID, Private: m.Chat.Private()}
	if m.InTopic {
		p.Thread = m.Thread
	}
	return p
}
