package fakeapi

import (
	"fmt"
	"slices"
	"time"
)

// Bot is one bot: what it has, and what happens to it.
type Bot struct {
	server  *Server
	token   string
	profile User

	rooms      map[int64]*room
	lastID     int // of a message
	files      map[string]upload
	commands   map[string]string // by scope and language, as the bot gave them
	limited    map[int64][]time.Time
	faults     []Fault
	callbacks  map[string]*callback
	checkouts  map[string]*Checkout
	invoices   map[string]*Invoice
	listing    []transaction
	balance    int64
	charges    map[string]*charge
	agreements []*agreement
	silentEdit bool

	told       []*update // every update of the last day, for Redeliver
	pending    []*update
	again      []*update // to be told by getUpdates although they were confirmed
	nextUpdate int64
	allowed    []string
	held       bool
	deliveries []*delivery
	polls      int       // running getUpdates
	pollNumber int       // of the newest
	polledAt   time.Time // real time
	hook       *webhook
	lastError  string
	errorAt    time.Time
}

// firstUpdate is the first update id: high enough to have room below it.
const firstUpdate = 700_000_000

func newBot(s *Server, token string, id int64) *Bot {
	return &Bot{
		server: s, token: token,
		profile: User{ID: id, IsBot: true, FirstName: fmt.Sprint("Bot ", id), Username: fmt.Sprintf("fake_%d_bot", id)},
		rooms:   map[int64]*room{}, files: map[string]upload{}, commands: map[string]string{}, limited: map[int64][]time.Time{},
		callbacks: map[string]*callback{}, checkouts: map[string]*Checkout{}, invoices: map[string]*Invoice{}, charges: map[string]*charge{},
		nextUpdate: firstUpdate,
	}
}

// ID is the number that the token begins with.
func (b *Bot) ID() int64 { return b.profile.ID }

// Server is the stand-in that the bot is on.
func (b *Bot) Server() *Server { return b.server }

// Username is the name by which people find the bot.
func (b *Bot) Username() string { return b.profile.Username }

// Person is somebody who has the bot's private chat open, as after a first /start. What is left out of a user is filled in
// once; a user given again with a name replaces what was known.
func (b *Bot) Person(u User) *Person {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.person(u)
}

func (b *Bot) person(u User) *Person {
	known := b.server.users[u.ID]
	switch {
	case known == nil:
		if u.FirstName == "" {
			u.FirstName = fmt.Sprint("Person ", u.ID)
		}
		b.server.users[u.ID] = &u
	case u.FirstName != "" || u.LanguageCode != "":
		if u.FirstName == "" {
			u.FirstName = known.FirstName
		}
		*known = u
	}
	user := b.server.users[u.ID]
	if r := b.rooms[u.ID]; r == nil {
		b.rooms[u.ID] = &room{drafts: map[int64]string{}}
	}
	b.rooms[u.ID].chat = Chat{ID: user.ID, Type: "private", FirstName: user.FirstName, LastName: user.LastName, Username: user.Username}
	return &Person{bot: b, id: u.ID, chat: u.ID}
}

// Group is a group that the bot is in. Its id is negative, as Telegram's are.
func (b *Bot) Group(id int64, title string) *Group {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.group(id, title)
}

func (b *Bot) group(id int64, title string) *Group {
	if b.rooms[id] == nil {
		b.rooms[id] = &room{chat: Chat{ID: id, Type: "supergroup", Title: title}, drafts: map[int64]string{}}
	}
	return &Group{bot: b, id: id}
}

// Chats are the chats that the bot is in, by id.
func (b *Bot) Chats() []Chat {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	var all []Chat
	for _, r := range b.rooms {
		all = append(all, r.chat)
	}
	slices.SortFunc(all, func(a, c Chat) int { return int(a.ID - c.ID) })
	return all
}

// Messages are the messages of a chat as people in it see them, oldest first. Deleted ones are gone.
func (b *Bot) Messages(chat int64) []Message {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.seen(chat)
}

func (b *Bot) seen(chat int64) []Message {
	r := b.rooms[chat]
	if r == nil {
		return nil
	}
	all := make([]Message, 0, len(r.messages))
	for _, m := range r.messages {
		all = append(all, *m)
	}
	return all
}

// Commands are what setMyCommands set for a language, as JSON; empty: nothing.
func (b *Bot) Commands(language string) string {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.commands["/"+language]
}

// post puts a message into a chat.
func (b *Bot) post(r *room, m *Message) *Message {
	b.lastID++
	m.ID, m.Date = b.lastID, b.server.clock.now()
	r.messages = append(r.messages, m)
	b.server.touch()
	return m
}

// record adds to the transcript.
func (b *Bot) record(e Entry) {
	e.Bot, e.At = b.profile.ID, b.server.clock.now()
	b.server.transcript = b.server.transcript.add(e)
}
