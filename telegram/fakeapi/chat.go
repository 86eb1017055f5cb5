package fakeapi

import (
	"encoding/json"
	"slices"
	"time"
)

// User is a person, or a bot, as the Bot API describes them.
type User struct {
	ID           int64  `json:"id"`
	IsBot        bool   `json:"is_bot"`
	FirstName    string `json:"first_name"`
	LastName     string `json:"last_name,omitempty"`
	Username     string `json:"username,omitempty"`
	LanguageCode string `json:"language_code,omitempty"` // IETF tag; may be left out, as by Telegram
	IsPremium    bool   `json:"is_premium,omitempty"`
}

// Chat is where messages are, as the Bot API describes it.
type Chat struct {
	ID        int64  `json:"id"`
	Type      string `json:"type"` // private, group, supergroup or channel
	Title     string `json:"title,omitempty"`
	Username  string `json:"username,omitempty"`
	FirstName string `json:"first_name,omitempty"`
	LastName  string `json:"last_name,omitempty"`
}

// Message is a message as people in the chat see it.
type Message struct {
	ID         int        `json:"message_id"`
	Date       time.Time  `json:"date"`
	From       User       `json:"from"`
	SenderChat *Chat      `json:"sender_chat,omitempty"` // of who writes as a chat: an anonymous administrator, a channel
	Text       string     `json:"text,omitempty"`        // or the caption; tags are gone, they are in Entities
	Entities   []Entity   `json:"entities,omitempty"`
	Photo      string     `json:"photo,omitempty"`     // the file's id, or the address that the bot gave
	File       string     `json:"file,omitempty"`      // the same, of any other file
	FileKind   string     `json:"file_kind,omitempty"` // document, video, animation, audio or voice
	Keyboard   [][]Button `json:"keyboard,omitempty"`
	Invoice    *Invoice   `json:"invoice,omitempty"`
	Payment    *Payment   `json:"payment,omitempty"` // "you have paid"
	Refund     *Payment   `json:"refund,omitempty"`  // "you got it back"
	ReplyTo    int        `json:"reply_to,omitempty"`
	Thread     int        `json:"thread,omitempty"`
	Silent     bool       `json:"silent,omitempty"`
	Edits      int        `json:"edits,omitempty"` // how often it changed
	EditedAt   time.Time  `json:"edited_at,omitzero"`

	markup string // the keyboard as the bot gave it
}

// Button is a button below a message.
type Button struct {
	Text     string `json:"text"`
	Data     string `json:"callback_data,omitempty"`
	URL      string `json:"url,omitempty"`
	Pay      bool   `json:"pay,omitempty"`
	Style    string `json:"style,omitempty"`
	Disabled bool   `json:"disabled,omitempty"` // shown, and cannot be tapped
}

// Entity is a part of a text that is more than plain; offset and length count UTF-16 units.
type Entity struct {
	Type     string `json:"type"`
	Offset   int    `json:"offset"`
	Length   int    `json:"length"`
	URL      string `json:"url,omitempty"`
	Language string `json:"language,omitempty"`
	EmojiID  string `json:"custom_emoji_id,omitempty"`
	UnixTime int64  `json:"unix_time,omitempty"`
	Format   string `json:"date_time_format,omitempty"`
}

// room is what a bot and others have in a chat.
type room struct {
	chat        Chat
	messages    []*Message
	blocked     bool
	deactivated bool
	migratedTo  int64
	action      string // what the bot is shown to be doing, until actionEnds
	actionEnds  time.Time
	drafts      map[int64]string // by draft id, what the bot is writing
}

// refuses is why the bot cannot write there; nil: it can.
func (r *room) refuses() *refusal {
	switch {
	case r == nil:
		return bad("chat not found")
	case r.blocked && r.chat.Type == "private":
		return forbidden("bot was blocked by the user")
	case r.blocked:
		return forbidden("bot was kicked from the " + r.chat.Type + " chat")
	case r.deactivated:
		return forbidden("user is deactivated")
	case r.migratedTo != 0:
		return &refusal{Code: 400, Description: "Bad Request: group chat was upgraded to a supergroup chat", MigrateTo: r.migratedTo}
	}
	return nil
}

func (r *room) message(id int) *Message {
	for _, m := range r.messages {
		if m.ID == id {
			return m
		}
	}
	return nil
}

func (r *room) drop(id int) {
	r.messages = slices.DeleteFunc(r.messages, func(m *Message) bool { return m.ID == id })
}

// describe is the message as the Bot API shows it to the bot.
func (r *room) describe(m *Message, nested bool) map[string]any {
	d := map[string]any{"message_id": m.ID, "date": m.Date.Unix(), "chat": r.chat, "from": m.From}
	if m.SenderChat != nil {
		d["sender_chat"] = m.SenderChat
	}
	if m.Thread != 0 {
		d["message_thread_id"], d["is_topic_message"] = m.Thread, true
	}
	text, entities := "text", "entities"
	if m.Photo != "" || m.File != "" {
		text, entities = "caption", "caption_entities"
	}
	if m.Text != "" {
		d[text] = m.Text
	}
	if len(m.Entities) > 0 {
		d[entities] = m.Entities
	}
	if m.Photo != "" {
		d["photo"] = []any{map[string]any{"file_id": m.Photo, "file_unique_id": m.Photo, "width": 512, "height": 512}}
	}
	if m.File != "" {
		d[m.FileKind] = map[string]any{"file_id": m.File, "file_unique_id": m.File}
	}
	if len(m.Keyboard) > 0 {
		d["reply_markup"] = json.RawMessage(m.markup)
	}
	if m.Invoice != nil {
		d["invoice"] = m.Invoice.describe()
	}
	if m.Payment != nil {
		d["successful_payment"] = m.Payment.describe()
	}
	if m.Refund != nil {
		d["refunded_payment"] = m.Refund.describeRefund()
	}
	if !m.EditedAt.IsZero() {
		d["edit_date"] = m.EditedAt.Unix()
	}
	if to := r.message(m.ReplyTo); to != nil && !nested {
		d["reply_to_message"] = r.describe(to, true)
	}
	return d
}
