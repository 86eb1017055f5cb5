package fakeapi

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Person is somebody who uses a bot: in the private chat, or in a group. Its methods may be called at once.
type Person struct {
	bot  *Bot
	id   int64
	chat int64
}

// ID is the person's number.
func (p *Person) ID() int64 { return p.id }

// Chat is the chat that they write in.
func (p *Person) Chat() int64 { return p.chat }

// In is the same person in a group.
func (p *Person) In(g *Group) *Person { return &Person{bot: p.bot, id: p.id, chat: g.id} }

// Send sends a text and returns the message's id. Commands begin with a slash.
func (p *Person) Send(text string) (message int) { return p.Reply(0, text) }

// Reply sends a text as the answer to a message.
func (p *Person) Reply(to int, text string) (message int) {
	return p.post(&Message{Text: text, Entities: commandsIn(text), ReplyTo: to})
}

// SendPhoto sends a photo with a caption.
func (p *Person) SendPhoto(content []byte, caption string) (message int) {
	p.bot.server.mu.Lock()
	id := p.bot.keep(upload{content: content})
	p.bot.server.mu.Unlock()
	return p.post(&Message{Photo: id, Text: caption})
}

func (p *Person) post(m *Message) int {
	b := p.bot
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	m.From = *b.server.users[p.id]
	return b.receive(b.rooms[p.chat], m)
}

// receive posts a message of a person and tells the bot. A person who blocked the bot unblocks it by writing.
func (b *Bot) receive(r *room, m *Message) int {
	if r.blocked && r.chat.Type == "private" {
		b.setBlocked(r, m.From, false)
	}
	b.tell("message", r.chat.ID, fmt.Sprint("chat ", r.chat.ID), r.describe(b.post(r, m), false))
	return m.ID
}

// commandsIn finds the command that a text begins with.
func commandsIn(text string) []Entity {
	if !strings.HasPrefix(text, "/") {
		return nil
	}
	word, _, _ := strings.Cut(text, " ")
	word, _, _ = strings.Cut(word, "\n")
	if len(word) < 2 {
		return nil
	}
	return []Entity{{Type: "bot_command", Length: utf16Length(word)}}
}

// callback is a tap that the bot may answer.
type callback struct {
	at     time.Time
	answer *Answer
}

// Answer is what a person sees after a tap.
type Answer struct {
	Text  string `json:"text,omitempty"`
	Alert bool   `json:"alert,omitempty"`
	URL   string `json:"url,omitempty"`
}

// Tap is a tap on a button. Each is a query of its own.
type Tap struct {
	ID     string `json:"id"`
	bot    *Bot
	query  *callback
	Update int64 `json:"update_id"`
}

// Errors of Tap.
var (
	ErrNoButton   = errors.New("there is no such button")
	ErrNoCallback = errors.New("the button opens something or pays; it asks the bot nothing")
	ErrUnanswered = errors.New("the bot did not answer the tap in time")
)

// Tap taps a button of a message, named by its text or its data. It does not wait: Answer does.
func (p *Person) Tap(message int, button string) (*Tap, error) {
	b, s := p.bot, p.bot.server
	s.mu.Lock()
	defer s.mu.Unlock()
	r := b.rooms[p.chat]
	m := r.message(message)
	found, ok := Button{}, false
	if m != nil {
		found, ok = m.Button(button)
	}
	switch {
	case !ok || found.Disabled:
		return nil, fmt.Errorf("message %d, %q: %w", message, button, ErrNoButton)
	case found.Data == "":
		return nil, fmt.Errorf("message %d, %q: %w", message, button, ErrNoCallback)
	}
	return b.tap(p, r, m, found.Data), nil
}

// TapStale taps a button that the bot has removed in the meantime: the person's app had not heard of it yet.
func (p *Person) TapStale(message int, data string) (*Tap, error) {
	b, s := p.bot, p.bot.server
	s.mu.Lock()
	defer s.mu.Unlock()
	r := b.rooms[p.chat]
	m := r.message(message)
	if m == nil {
		return nil, fmt.Errorf("message %d: %w", message, ErrNoButton)
	}
	return b.tap(p, r, m, data), nil
}

func (b *Bot) tap(p *Person, r *room, m *Message, data string) *Tap {
	s := b.server
	t := &Tap{ID: fmt.Sprint(s.next()), bot: b, query: &callback{at: s.clock.now()}}
	b.callbacks[t.ID] = t.query
	t.Update = b.tell("callback_query", r.chat.ID, fmt.Sprint("callback ", p.id), map[string]any{
		"id": t.ID, "from": s.users[p.id], "message": r.describe(m, false), "chat_instance": fmt.Sprint(r.chat.ID), "data": data,
	}).id
	return t
}

// Button finds a button of a message by its text or its data.
func (m Message) Button(name string) (Button, bool) {
	for _, row := range m.Keyboard {
		for _, button := range row {
			if button.Text == name || button.Data != "" && button.Data == name {
				return button, true
			}
		}
	}
	return Button{}, false
}

// Answer waits for what the bot answers: 15 seconds of the server's own time, then it is ErrUnanswered.
func (t *Tap) Answer(ctx context.Context) (Answer, error) {
	s := t.bot.server
	s.mu.Lock()
	defer s.mu.Unlock()
	answered, err := s.waitUntil(ctx, t.query.at.Add(callbackWaits), func() bool { return t.query.answer != nil })
	switch {
	case err != nil:
		return Answer{}, err
	case !answered:
		return Answer{}, ErrUnanswered
	}
	return *t.query.answer, nil
}

func (b *Bot) answerCallbackQuery(p parameters) (any, *refusal) {
	id := p.text("callback_query_id")
	query := b.callbacks[id]
	switch {
	case query == nil || query.answer != nil || b.server.clock.now().Sub(query.at) >= callbackWaits:
		return nil, bad(tooOld)
	case utf16Length(p.text("text")) > 200:
		return nil, bad("MESSAGE_TOO_LONG")
	}
	query.answer = &Answer{Text: p.text("text"), Alert: p.flag("show_alert"), URL: p.text("url")}
	delete(b.callbacks, id)
	return true, nil
}

// StopDraft presses Stop below a text that the bot is writing.
func (p *Person) StopDraft(draft int64) {
	b := p.bot
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	r := b.rooms[p.chat]
	delete(r.drafts, draft)
	b.tell("stopped_message_generation", p.chat, fmt.Sprint("chat ", p.chat), map[string]any{"chat": r.chat, "draft_id": draft})
}

// Block blocks the bot: it is told, and cannot write to the person any more.
func (p *Person) Block() { p.setBlocked(true) }

// Unblock takes the bot back.
func (p *Person) Unblock() { p.setBlocked(false) }

func (p *Person) setBlocked(blocked bool) {
	p.bot.server.mu.Lock()
	defer p.bot.server.mu.Unlock()
	if r := p.bot.rooms[p.chat]; r.blocked != blocked {
		p.bot.setBlocked(r, *p.bot.server.users[p.id], blocked)
	}
}

func (b *Bot) setBlocked(r *room, by User, blocked bool) {
	member := func(kicked bool) map[string]any {
		if kicked {
			return map[string]any{"status": "kicked", "user": b.profile, "until_date": 0}
		}
		return map[string]any{"status": "member", "user": b.profile}
	}
	r.blocked = blocked
	b.tell("my_chat_member", r.chat.ID, fmt.Sprint("chat ", r.chat.ID), map[string]any{
		"chat": r.chat, "from": by, "date": b.server.clock.now().Unix(), "old_chat_member": member(!blocked), "new_chat_member": member(blocked),
	})
}

// Deactivate deletes the person's account of Telegram: the bot is not told, and cannot write to them any more.
func (p *Person) Deactivate() {
	p.bot.server.mu.Lock()
	defer p.bot.server.mu.Unlock()
	p.bot.rooms[p.id].deactivated = true
}

// Messages are the messages of the chat as the person sees them, oldest first.
func (p *Person) Messages() []Message { return p.bot.Messages(p.chat) }

// Last is the newest message; zero: there is none.
func (p *Person) Last() Message {
	all := p.Messages()
	if len(all) == 0 {
		return Message{}
	}
	return all[len(all)-1]
}

// Message is a message of the chat, by its id.
func (p *Person) Message(id int) (Message, bool) {
	for _, m := range p.Messages() {
		if m.ID == id {
			return m, true
		}
	}
	return Message{}, false
}

// Payable is the link of what a message sells: its invoice, or the one that a button of it opens. Empty: nothing.
func (p *Person) Payable(message int) (link string) {
	b := p.bot
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	if m := b.rooms[p.chat].message(message); m != nil {
		return b.payable(m)
	}
	return ""
}

func (b *Bot) payable(m *Message) string {
	if m.Invoice != nil {
		return m.Invoice.Link
	}
	for _, row := range m.Keyboard {
		for _, button := range row {
			if b.invoices[button.URL] != nil {
				return button.URL
			}
		}
	}
	return ""
}

// Await waits until a message is there that is meant, and returns the newest.
func (p *Person) Await(ctx context.Context, meant func(Message) bool) (Message, error) {
	s := p.bot.server
	s.mu.Lock()
	defer s.mu.Unlock()
	var found Message
	err := s.until(ctx, func() bool {
		r := p.bot.rooms[p.chat]
		for i := len(r.messages) - 1; i >= 0; i-- {
			if meant(*r.messages[i]) {
				found = *r.messages[i]
				return true
			}
		}
		return false
	})
	return found, err
}

// AwaitText waits until the bot shows a text that contains this, and returns the newest such message.
func (p *Person) AwaitText(ctx context.Context, text string) (Message, error) {
	m, err := p.Await(ctx, func(m Message) bool { return m.From.ID == p.bot.profile.ID && strings.Contains(m.Text, text) })
	if err != nil {
		err = fmt.Errorf("a message with %q: %w", text, err)
	}
	return m, err
}

// Action is what the person is shown that the bot is doing; empty: nothing.
func (p *Person) Action() string {
	s := p.bot.server
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.bot.rooms[p.chat].shown(s.clock.now())
}

func (r *room) shown(now time.Time) string {
	if r.actionEnds.After(now) {
		return r.action
	}
	return ""
}

// Group is a group that a bot is in.
type Group struct {
	bot *Bot
	id  int64
}

// ID is the chat's number.
func (g *Group) ID() int64 { return g.id }

// Messages are the group's messages, oldest first.
func (g *Group) Messages() []Message { return g.bot.Messages(g.id) }

// Who Telegram says a message is from where a chat wrote it.
var (
	anonymousAdmin = User{ID: 1087968824, IsBot: true, FirstName: "Group", Username: "GroupAnonymousBot"}
	channelSender  = User{ID: 136817688, IsBot: true, FirstName: "Channel", Username: "Channel_Bot"}
)

// AnonymousSend sends a text as an administrator who is not shown: it comes from the group itself.
func (g *Group) AnonymousSend(text string) (message int) {
	return g.receive(anonymousAdmin, func(r *room) Chat { return r.chat }, text)
}

// SendAs sends a text in the name of a channel.
func (g *Group) SendAs(channel Chat, text string) (message int) {
	channel.Type = "channel"
	return g.receive(channelSender, func(*room) Chat { return channel }, text)
}

func (g *Group) receive(from User, chat func(*room) Chat, text string) int {
	g.bot.server.mu.Lock()
	defer g.bot.server.mu.Unlock()
	r := g.bot.rooms[g.id]
	sender := chat(r)
	return g.bot.receive(r, &Message{From: from, SenderChat: &sender, Text: text, Entities: commandsIn(text)})
}

// Migrate makes the group a supergroup with another id: calls to the old one are told the new one.
func (g *Group) Migrate(to int64) *Group {
	g.bot.server.mu.Lock()
	defer g.bot.server.mu.Unlock()
	old := g.bot.rooms[g.id]
	old.migratedTo = to
	return g.bot.group(to, old.chat.Title)
}
