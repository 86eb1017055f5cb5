package fakeapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// asked is a request to the person's side.
type asked struct {
	*http.Request
	server *Server
	bot    *Bot
	body   simBody
}

// simBody is what any request to the person's side may say.
type simBody struct {
	From    User   `json:"from"`  // who it is; left out: the person of the private chat
	Title   string `json:"title"` // of a group that is new
	Text    string `json:"text"`  // of a message
	Photo   []byte `json:"photo"` // base64
	ReplyTo int    `json:"reply_to"`
	Message int    `json:"message"` // left out: the newest with such a button, or with something to pay
	Button  string `json:"button"`  // its text or its data
	NoWait  bool   `json:"no_wait"` // for the bot's answer to a tap
	Link    string `json:"link"`    // of an invoice
	Unasked bool   `json:"unasked"` // charge although the bot was not asked
	Draft   int64  `json:"draft"`
	Length  string `json:"length"` // of time: 90s, 15m, 720h
	Days    int    `json:"days"`
	Kind    string `json:"kind"` // of updates
	Times   int    `json:"times"`
	Update  int64  `json:"update"`
	Reverse bool   `json:"reversed"`
}

// problem is an error with the status that it is answered with.
type problem struct {
	code int
	text string
}

func (p *problem) Error() string { return p.text }

// SimRoute is a route of the person's side.
type SimRoute struct {
	Route string `json:"route"`
	Does  string `json:"does"`
	do    func(asked) (any, error)
}

// SimRoutes are the routes of the person's side, in the order in which they are explained. Bodies and answers are JSON. Where
// several bots are known, ?bot=ID names one.
func SimRoutes() []SimRoute {
	return []SimRoute{
		{"GET /sim/bots", "the bots that are known", simBots},
		{"GET /sim/chats", "a bot's chats", simChats},
		{"GET /sim/chats/{chat}", "a chat as the person sees it: messages with their buttons, what the bot is doing, subscriptions", simChat},
		{"POST /sim/chats/{chat}/messages", `write: {"text": "/start"}; "reply_to", "photo" (base64), "from" (a user, as in the Bot API) if you like`, simSend},
		{"POST /sim/chats/{chat}/taps", `tap a button and see the answer: {"button": "Cancel"}, its text or data; "message" where not the newest that has it; "no_wait"`, simTap},
		{"POST /sim/chats/{chat}/payments", `pay: {"message": 7}, {"link": "https://t.me/$…"}, or {} for the newest; 402 where the bot declines`, simPay},
		{"POST /sim/chats/{chat}/subscriptions/{charge}/cancel", "end a subscription with what is paid", simSubscription((*Person).CancelSubscription)},
		{"POST /sim/chats/{chat}/subscriptions/{charge}/resume", "take that back", simSubscription((*Person).ResumeSubscription)},
		{"POST /sim/chats/{chat}/subscriptions/{charge}/fail", "let the next renewal fail", simSubscription((*Person).FailSubscription)},
		{"POST /sim/chats/{chat}/block", "block the bot", simDo(func(a asked, p *Person) { p.Block() })},
		{"POST /sim/chats/{chat}/unblock", "unblock it", simDo(func(a asked, p *Person) { p.Unblock() })},
		{"POST /sim/chats/{chat}/deactivate", "delete the person's account", simDo(func(a asked, p *Person) { p.Deactivate() })},
		{"POST /sim/chats/{chat}/stop", `stop what the bot is writing: {"draft": 7}`, simDo(func(a asked, p *Person) { p.StopDraft(a.body.Draft) })},
		{"POST /sim/chats/{chat}/anonymous", `write into a group without a name: {"text": "hello"}`, simAnonymous},
		{"GET /sim/clock", "the stand-in's own time", simClock},
		{"POST /sim/advance", `let time pass: {"days": 30} or {"length": "90s"}; subscriptions renew on the way`, simAdvance},
		{"GET /sim/faults", "the faults that have not happened yet", simFaults},
		{"POST /sim/faults", `have the next call fail: {"kind": "too_many", "retry_after": 3}; kinds: too_many, broken, refused, unreachable, lose_answer, timeout; "method", "chat", "times", "code", "description"`, simFail},
		{"DELETE /sim/faults", "forget them", simHeal},
		{"GET /sim/updates", "the updates that wait to be taken", simPending},
		{"POST /sim/updates/drop", `lose the next updates: {"kind": "message", "times": 1}`, simUpdates(func(a asked) { a.bot.DropNext(a.body.Kind, max(1, a.body.Times)) })},
		{"POST /sim/updates/repeat", `tell the next update again although it was taken: {"kind": "message", "times": 2}`, simUpdates(func(a asked) { a.bot.RepeatNext(a.body.Kind, max(1, a.body.Times)) })},
		{"POST /sim/updates/hold", "keep updates back", simUpdates(func(a asked) { a.bot.Hold() })},
		{"POST /sim/updates/release", `tell them; {"reversed": true}: the last first`, simUpdates(func(a asked) { a.bot.release(a.body.Reverse) })},
		{"POST /sim/updates/jump-back", "the next update has a lower id than all before", simUpdates(func(a asked) { a.bot.JumpBack() })},
		{"POST /sim/updates/redeliver", `tell an update again: {"update": 700000000, "times": 2}; {"kind": "message"} for the newest of a kind`, simRedeliver},
		{"GET /sim/transcript", "what happened; ?after=NUMBER for what is newer", simTranscript},
	}
}

func (s *Server) simRoutes(mux *http.ServeMux) {
	routes := SimRoutes()
	mux.HandleFunc("GET /sim/{$}", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"routes": routes})
	})
	mux.HandleFunc("/sim/", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusNotFound, map[string]string{"error": "there is no such route: GET /sim/ lists them"})
	})
	for _, route := range routes {
		mux.HandleFunc(route.Route, func(w http.ResponseWriter, r *http.Request) { s.serveSim(w, r, route.do) })
	}
}

func (s *Server) serveSim(w http.ResponseWriter, r *http.Request, do func(asked) (any, error)) {
	a := asked{Request: r, server: s}
	result, err := func() (any, error) {
		content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
		if err != nil {
			return nil, &problem{http.StatusBadRequest, err.Error()}
		}
		if len(content) > 0 && r.URL.Path != "/sim/faults" {
			if err := json.Unmarshal(content, &a.body); err != nil {
				return nil, &problem{http.StatusBadRequest, "the body is not the JSON that is read here: " + err.Error()}
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(content))
		if a.bot, err = s.named(r.URL.Query().Get("bot")); err != nil {
			return nil, err
		}
		return do(a)
	}()
	var failed *problem
	var declined *Declined
	switch {
	case err == nil:
		writeJSON(w, http.StatusOK, result)
	case errors.As(err, &failed):
		writeJSON(w, failed.code, map[string]string{"error": failed.text})
	case errors.As(err, &declined):
		writeJSON(w, http.StatusPaymentRequired, map[string]string{"error": err.Error(), "message": declined.Message})
	case errors.Is(err, ErrNoButton), errors.Is(err, ErrNoInvoice), errors.Is(err, ErrNoSubscription):
		writeJSON(w, http.StatusNotFound, map[string]string{"error": err.Error()})
	default:
		writeJSON(w, http.StatusConflict, map[string]string{"error": err.Error()})
	}
}

// named is the bot with an id, or the only one.
func (s *Server) named(id string) (*Bot, error) {
	all := s.Bots()
	for _, b := range all {
		if strconv.FormatInt(b.ID(), 10) == id {
			return b, nil
		}
	}
	switch {
	case id != "":
		return nil, &problem{http.StatusNotFound, "there is no bot " + id}
	case len(all) == 0:
		return nil, &problem{http.StatusConflict, "no bot has called yet, and none was named at start"}
	case len(all) > 1:
		return nil, &problem{http.StatusConflict, "several bots are known: say ?bot=ID"}
	}
	return all[0], nil
}

// chatID is the chat of the path.
func (a asked) chatID() (int64, error) {
	id, err := strconv.ParseInt(a.PathValue("chat"), 10, 64)
	if err != nil || id == 0 {
		return 0, &problem{http.StatusBadRequest, "a chat is a number: a person's id, or a group's, which is negative"}
	}
	return id, nil
}

// person is who does it, in the chat of the path.
func (a asked) person() (*Person, error) {
	id, err := a.chatID()
	switch {
	case err != nil:
		return nil, err
	case id > 0:
		a.body.From.ID = id
		return a.bot.Person(a.body.From), nil
	case a.body.From.ID <= 0:
		return nil, &problem{http.StatusBadRequest, `say who it is in a group: "from": {"id": 42}`}
	}
	return a.bot.Person(a.body.From).In(a.bot.Group(id, a.title(id))), nil
}

func (a asked) title(id int64) string {
	if a.body.Title != "" {
		return a.body.Title
	}
	return fmt.Sprint("Group ", -id)
}

func simBots(a asked) (any, error) {
	var all []User
	for _, b := range a.server.Bots() {
		all = append(all, b.profile)
	}
	return map[string]any{"bots": all}, nil
}

func simChats(a asked) (any, error) { return map[string]any{"chats": a.bot.Chats()}, nil }

// View is a chat as a person sees it.
type View struct {
	Chat          Chat             `json:"chat"`
	Blocked       bool             `json:"blocked"`
	Action        string           `json:"action"` // what the bot is doing
	Drafts        map[int64]string `json:"drafts,omitempty"`
	Messages      []Message        `json:"messages"`
	Subscriptions []Subscription   `json:"subscriptions"` // of the person of a private chat
}

// View is a chat as a person sees it. It says whether there is such a chat.
func (b *Bot) View(chat int64) (View, bool) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	r := b.rooms[chat]
	if r == nil {
		return View{}, false
	}
	v := View{Chat: r.chat, Blocked: r.blocked, Action: r.shown(b.server.clock.now()), Drafts: map[int64]string{}, Messages: b.seen(chat), Subscriptions: []Subscription{}}
	for id, text := range r.drafts {
		v.Drafts[id] = text
	}
	for _, s := range b.agreements {
		if s.User == chat {
			v.Subscriptions = append(v.Subscriptions, s.Subscription)
		}
	}
	return v, true
}

func simChat(a asked) (any, error) {
	id, err := a.chatID()
	if err != nil {
		return nil, err
	}
	v, known := a.bot.View(id)
	if !known {
		return nil, &problem{http.StatusNotFound, "nobody has written there yet"}
	}
	return v, nil
}

func simSend(a asked) (any, error) {
	p, err := a.person()
	switch {
	case err != nil:
		return nil, err
	case len(a.body.Photo) > 0:
		return map[string]int{"message_id": p.SendPhoto(a.body.Photo, a.body.Text)}, nil
	case a.body.Text == "":
		return nil, &problem{http.StatusBadRequest, `say what to send: {"text": "/start"}`}
	}
	return map[string]int{"message_id": p.Reply(a.body.ReplyTo, a.body.Text)}, nil
}

func simAnonymous(a asked) (any, error) {
	id, err := a.chatID()
	if err != nil || id > 0 || a.body.Text == "" {
		return nil, &problem{http.StatusBadRequest, "only groups have members without a name; say what to send in \"text\""}
	}
	return map[string]int{"message_id": a.bot.Group(id, a.title(id)).AnonymousSend(a.body.Text)}, nil
}

// newest is the newest message that is meant, or the one that was named.
func (a asked) newest(p *Person, meant func(Message) bool) int {
	if a.body.Message != 0 {
		return a.body.Message
	}
	all := p.Messages()
	for i := len(all) - 1; i >= 0; i-- {
		if meant(all[i]) {
			return all[i].ID
		}
	}
	return 0
}

func simTap(a asked) (any, error) {
	p, err := a.person()
	if err != nil {
		return nil, err
	}
	message := a.newest(p, func(m Message) bool { _, has := m.Button(a.body.Button); return has })
	tap, err := p.Tap(message, a.body.Button)
	if err != nil {
		return nil, err
	}
	result := map[string]any{"message_id": message, "update_id": tap.Update, "answered": false}
	if a.body.NoWait {
		return result, nil
	}
	answer, err := tap.Answer(a.Context())
	if err == nil {
		result["answered"], result["text"], result["alert"] = true, answer.Text, answer.Alert
	} else if !errors.Is(err, ErrUnanswered) {
		return nil, err
	}
	return result, nil
}

func simPay(a asked) (any, error) {
	p, err := a.person()
	if err != nil {
		return nil, err
	}
	link := a.body.Link
	if link == "" {
		link = p.Payable(a.newest(p, func(m Message) bool { return p.Payable(m.ID) != "" }))
	}
	if a.body.Unasked {
		return p.ChargeUnasked(link)
	}
	return p.Pay(a.Context(), link)
}

func simSubscription(change func(*Person, string) error) func(asked) (any, error) {
	return func(a asked) (any, error) {
		p, err := a.person()
		if err != nil {
			return nil, err
		}
		if err := change(p, a.PathValue("charge")); err != nil {
			return nil, err
		}
		return map[string]bool{"ok": true}, nil
	}
}

func simDo(do func(asked, *Person)) func(asked) (any, error) {
	return func(a asked) (any, error) {
		p, err := a.person()
		if err != nil {
			return nil, err
		}
		do(a, p)
		return map[string]bool{"ok": true}, nil
	}
}

func simUpdates(do func(asked)) func(asked) (any, error) {
	return func(a asked) (any, error) {
		do(a)
		return map[string]bool{"ok": true}, nil
	}
}

func simClock(a asked) (any, error) { return map[string]time.Time{"now": a.server.Now()}, nil }

func simAdvance(a asked) (any, error) {
	length := time.Duration(a.body.Days) * 24 * time.Hour
	if a.body.Length != "" {
		more, err := time.ParseDuration(a.body.Length)
		if err != nil {
			return nil, &problem{http.StatusBadRequest, "length: use 90s, 15m or 720h"}
		}
		length += more
	}
	if length < 0 {
		return nil, &problem{http.StatusBadRequest, "time does not go back"}
	}
	a.server.Advance(length)
	return simClock(a)
}

func simFaults(a asked) (any, error) { return map[string]any{"faults": a.bot.Faults()}, nil }

func simFail(a asked) (any, error) {
	var f Fault
	if err := json.NewDecoder(a.Body).Decode(&f); err != nil {
		return nil, &problem{http.StatusBadRequest, "the body is not a fault: " + err.Error()}
	}
	switch f.Kind {
	case TooMany, Broken, Refused, Unreachable, LoseAnswer, Timeout:
		a.bot.Fail(f)
		return simFaults(a)
	}
	return nil, &problem{http.StatusBadRequest, "kind: too_many, broken, refused, unreachable, lose_answer or timeout"}
}

func simHeal(a asked) (any, error) {
	a.bot.Heal()
	return simFaults(a)
}

func simPending(a asked) (any, error) {
	return map[string]any{"updates": append([]Update{}, a.bot.Pending()...)}, nil
}

func simRedeliver(a asked) (any, error) {
	id := a.body.Update
	if id == 0 {
		if all := a.bot.Updates(a.body.Kind); len(all) > 0 {
			id = all[len(all)-1].ID
		}
	}
	if !a.bot.Redeliver(id, max(1, a.body.Times)) {
		return nil, &problem{http.StatusNotFound, "there is no such update"}
	}
	return map[string]int64{"update": id}, nil
}

func simTranscript(a asked) (any, error) {
	after, _ := strconv.Atoi(a.URL.Query().Get("after"))
	newer := a.server.Transcript().Where(func(e Entry) bool { return e.Number > after })
	return map[string]any{"entries": append(Transcript{}, newer...)}, nil
}
