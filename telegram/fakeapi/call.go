package fakeapi

import (
	"net/http"
	"strings"
	"time"
)

// method is a method of the Bot API. It is called with the server's lock held.
type method func(b *Bot, p parameters) (any, *refusal)

// played are the methods that are known. getUpdates is missing: it waits.
func played() map[string]method {
	return map[string]method{
		"getMe":                  (*Bot).getMe,
		"setWebhook":             (*Bot).setWebhook,
		"deleteWebhook":          (*Bot).deleteWebhook,
		"getWebhookInfo":         (*Bot).getWebhookInfo,
		"sendMessage":            (*Bot).sendMessage,
		"sendPhoto":              fileSender("photo"),
		"sendDocument":           fileSender("document"),
		"sendVideo":              fileSender("video"),
		"sendAnimation":          fileSender("animation"),
		"sendAudio":              fileSender("audio"),
		"sendVoice":              fileSender("voice"),
		"sendMessageDraft":       (*Bot).sendMessageDraft,
		"editMessageText":        (*Bot).editMessageText,
		"editMessageCaption":     (*Bot).editMessageCaption,
		"editMessageReplyMarkup": (*Bot).editMessageReplyMarkup,
		"deleteMessage":          (*Bot).deleteMessage,
		"sendChatAction":         (*Bot).sendChatAction,
		"answerCallbackQuery":    (*Bot).answerCallbackQuery,
		"setMyCommands":          (*Bot).setMyCommands,
		"getMyCommands":          (*Bot).getMyCommands,
		"deleteMyCommands":       (*Bot).deleteMyCommands,
		"getChat":                (*Bot).getChat,
		"getChatMember":          (*Bot).getChatMember,
		"getFile":                (*Bot).getFile,
		"sendInvoice":            (*Bot).sendInvoice,
		"createInvoiceLink":      (*Bot).createInvoiceLink,
		"answerPreCheckoutQuery": (*Bot).answerPreCheckoutQuery,
		"refundStarPayment":      (*Bot).refundStarPayment,

		"editUserStarSubscription": (*Bot).editUserStarSubscription,
		"getStarTransactions":      (*Bot).getStarTransactions,
		"getMyStarBalance":         (*Bot).getMyStarBalance,

		"setMyName": accepted, "setMyDescription": accepted, "setMyShortDescription": accepted, "setChatMenuButton": accepted,
		"setMessageReaction": accepted, "pinChatMessage": accepted, "unpinChatMessage": accepted, "logOut": accepted, "close": accepted,
	}
}

// accepted answers what changes nothing that is played here.
func accepted(*Bot, parameters) (any, *refusal) { return true, nil }

// serveCall answers /bot<token>/<method> and /bot<token>/test/<method>.
func (s *Server) serveCall(w http.ResponseWriter, r *http.Request) {
	token, name, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/bot"), "/")
	if !strings.HasPrefix(r.URL.Path, "/bot") || !found {
		writeJSON(w, http.StatusNotFound, (&refusal{Code: 404, Description: "Not Found"}).frame())
		return
	}
	name = strings.TrimPrefix(name, "test/")
	b := s.caller(token)
	if b == nil {
		writeJSON(w, http.StatusUnauthorized, (&refusal{Code: 401, Description: "Unauthorized"}).frame())
		return
	}
	p, err := readParameters(r)
	if err != nil {
		writeJSON(w, http.StatusBadRequest, bad("can't parse the request").frame())
		return
	}
	name = s.canonical(name)
	if name == "getUpdates" {
		s.serveUpdates(w, r, b, p)
		return
	}
	result, refused, lost := s.call(b, name, p)
	switch {
	case lost == LoseAnswer || lost == Unreachable:
		panic(http.ErrAbortHandler)
	case lost == Timeout:
		select {
		case <-r.Context().Done():
		case <-s.context.Done():
		}
		panic(http.ErrAbortHandler)
	case refused != nil:
		writeJSON(w, refused.Code, refused.frame())
	default:
		writeJSON(w, http.StatusOK, map[string]any{"ok": true, "result": result})
	}
}

// caller is the bot of a token; nil: there is none.
func (s *Server) caller(token string) *Bot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.bots[token]; b != nil {
		return b
	}
	if _, formed := botID(token); !formed || len(s.options.Tokens) > 0 {
		return nil
	}
	return s.bot(token)
}

// canonical is a method's name as the documentation writes it: Telegram takes any case.
func (s *Server) canonical(name string) string {
	if s.methods[name] != nil {
		return name
	}
	if strings.EqualFold(name, "getUpdates") {
		return "getUpdates"
	}
	for known := range s.methods {
		if strings.EqualFold(known, name) {
			return known
		}
	}
	return name
}

// call does what a call asks, or what a script of faults has for it. lost says what happens to its answer.
func (s *Server) call(b *Bot, name string, p parameters) (result any, refused *refusal, lost FaultKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := Entry{Kind: Called, Name: name, Parameters: p.values, Chat: p.number("chat_id"), Message: int(p.number("message_id"))}
	do := s.methods[name]
	fault := b.takeFault(name, e.Chat)
	e.Fault = fault.Kind
	switch {
	case do == nil:
		refused = &refusal{Code: http.StatusNotFound, Description: "Not Found: method not found"}
	case fault.before():
		refused = fault.refusal()
	default:
		if refused = b.limit(name, e.Chat); refused == nil {
			result, refused = do(b, p)
		}
	}
	if described, ok := result.(map[string]any); ok && e.Message == 0 {
		e.Message, _ = described["message_id"].(int)
	}
	e.Code, e.Text = http.StatusOK, p.text("text")+p.text("caption")
	if refused != nil {
		e.Code, e.Problem = refused.Code, refused.Description
	}
	b.record(e)
	s.touch()
	if fault.Kind == LoseAnswer || fault.Kind == Timeout || fault.Kind == Unreachable {
		lost = fault.Kind
	}
	return result, refused, lost
}

// Limits are how many messages a bot may send; 0: as many as it likes. Telegram publishes about 30 a second over all, 1 a
// second in a chat with bursts, and 20 a minute in a group; edits count.
type Limits struct {
	PerSecond      int
	PerChatSecond  int
	PerGroupMinute int
}

// visible says whether a method shows something to people, which is what limits count.
func visible(name string) bool {
	switch name {
	case "sendMessage", "sendPhoto", "sendDocument", "sendVideo", "sendAnimation", "sendAudio", "sendVoice", "sendInvoice",
		"editMessageText", "editMessageCaption", "editMessageReplyMarkup":
		return true
	}
	return false
}

func (b *Bot) limit(name string, chat int64) *refusal {
	limits := b.server.options.Limits
	if limits == (Limits{}) || !visible(name) {
		return nil
	}
	now := b.server.clock.now()
	within := func(key int64, length time.Duration) (n int) {
		for _, at := range b.limited[key] {
			if now.Sub(at) < length {
				n++
			}
		}
		return n
	}
	wait := 0
	switch {
	case limits.PerSecond > 0 && within(0, time.Second) >= limits.PerSecond,
		limits.PerChatSecond > 0 && within(chat, time.Second) >= limits.PerChatSecond:
		wait = 1
	case limits.PerGroupMinute > 0 && chat < 0 && within(chat, time.Minute) >= limits.PerGroupMinute:
		wait = 60
	}
	if wait > 0 {
		return tooMany(wait)
	}
	for _, key := range []int64{0, chat} {
		kept := b.limited[key][:0]
		for _, at := range b.limited[key] {
			if now.Sub(at) < time.Minute {
				kept = append(kept, at)
			}
		}
		b.limited[key] = append(kept, now)
	}
	return nil
}
