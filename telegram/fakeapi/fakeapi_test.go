package fakeapi_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"
	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "7000001:not-a-secret"

// world is a stand-in, a bot, a library that speaks for it, and a person.
type world struct {
	*testing.T
	server *fakeapi.Server
	bot    *fakeapi.Bot
	client *bot.Bot
	ann    *fakeapi.Person
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return worldWith(t, fakeapi.Options{Tokens: []string{token}})
}

func worldWith(t *testing.T, options fakeapi.Options) *world {
	t.Helper()
	s := fakeapi.Start(t, options)
	b := s.Bot(token)
	return &world{T: t, server: s, bot: b, client: library(t, s, token), ann: b.Person(fakeapi.User{ID: 42, FirstName: "Anna", LanguageCode: "ru"})}
}

// frozenWorld has a clock that only Advance moves.
func frozenWorld(t *testing.T) *world {
	t.Helper()
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	return worldWith(t, fakeapi.Options{Tokens: []string{token}, Now: func() time.Time { return now }})
}

func library(t *testing.T, s *fakeapi.Server, token string) *bot.Bot {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client, err := bot.New(token, bot.WithServerURL(s.URL), bot.WithSkipGetMe(), bot.WithHTTPClient(time.Minute, &http.Client{Transport: transport}))
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (w *world) send(text string, rows ...[]models.InlineKeyboardButton) *models.Message {
	w.Helper()
	params := &bot.SendMessageParams{ChatID: w.ann.ID(), Text: text}
	if len(rows) > 0 {
		params.ReplyMarkup = &models.InlineKeyboardMarkup{InlineKeyboard: rows}
	}
	m, err := w.client.SendMessage(w.Context(), params)
	if err != nil {
		w.Fatal(err)
	}
	return m
}

// post calls a method without a library.
func (w *world) post(method, kind, body string) (code int, answer string) {
	w.Helper()
	return request(w.T, http.MethodPost, w.server.URL+"/bot"+token+"/"+method, kind, body)
}

func request(t *testing.T, method, address, kind, body string) (code int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	r.Close = true
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

func same[V comparable](t *testing.T, what string, got, wanted V) {
	t.Helper()
	if got != wanted {
		t.Errorf("%s: got %v, wanted %v", what, got, wanted)
	}
}

func contains(t *testing.T, what, got, wanted string) {
	t.Helper()
	if !strings.Contains(got, wanted) {
		t.Errorf("%s: got %s, wanted it to have %q", what, got, wanted)
	}
}

func refused(t *testing.T, err, kind error, description string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), description) {
		t.Errorf("got %v, wanted %v with %q", err, kind, description)
	}
}

func TestAMessageIsTheSameHoweverTheCallIsEncoded(t *testing.T) {
	w := newWorld(t)
	w.send("multipart")
	form := url.Values{"chat_id": {"42"}, "text": {"urlencoded"}, "reply_markup": {`{"inline_keyboard":[[{"text":"Go","callback_data":"go"}]]}`}}
	code, answer := w.post("sendMessage", "application/x-www-form-urlencoded", form.Encode())
	same(t, "status", code, http.StatusOK)
	contains(t, "the answer", answer, `"text":"urlencoded"`)
	code, _ = w.post("sendMessage", "application/json", `{"chat_id":42,"text":"json","reply_markup":{"inline_keyboard":[[{"text":"Go","callback_data":"go"}]]}}`)
	same(t, "status", code, http.StatusOK)
	code, _ = w.post("sendMessage?chat_id=42&text=query", "", "")
	same(t, "status", code, http.StatusOK)
	code, _ = w.post("test/SENDMESSAGE?chat_id=42&text=test+server", "", "")
	same(t, "status", code, http.StatusOK)
	var texts []string
	for _, m := range w.ann.Messages() {
		texts = append(texts, m.Text)
		if m.Text == "urlencoded" || m.Text == "json" {
			same(t, m.Text, m.Keyboard[0][0], fakeapi.Button{Text: "Go", Data: "go"})
		}
	}
	same(t, "texts", strings.Join(texts, ","), "multipart,urlencoded,json,query,test server")
}

func TestOnlyTheBotsThatWereNamedMayCall(t *testing.T) {
	w := newWorld(t)
	code, answer := request(t, http.MethodGet, w.server.URL+"/bot7:other/getMe", "", "")
	same(t, "another token", code, http.StatusUnauthorized)
	contains(t, "another token", answer, `"error_code":401`)
	code, answer = w.post("playChess", "", "")
	same(t, "an unknown method", code, http.StatusNotFound)
	contains(t, "an unknown method", answer, "Not Found: method not found")
	_, answer = request(t, http.MethodGet, w.server.URL+"/bot"+token+"/getMe", "", "")
	contains(t, "getMe", answer, `"id":7000001`)

	open := fakeapi.Start(t, fakeapi.Options{})
	code, _ = request(t, http.MethodGet, open.URL+"/bot8:any/getMe", "", "")
	same(t, "any token", code, http.StatusOK)
	code, _ = request(t, http.MethodGet, open.URL+"/botwithout-a-number/getMe", "", "")
	same(t, "no token", code, http.StatusUnauthorized)
}

func TestAPersonSeesWhatTheBotShows(t *testing.T) {
	w := newWorld(t)
	question := w.ann.Send("/start deep-link")
	m, err := w.client.SendMessage(w.Context(), &bot.SendMessageParams{
		ChatID: 42, Text: `<b>Баланс</b> &lt;5&gt; <a href="https://example.com/?a=1&amp;b=2">тут</a> 🙂<i>!</i>`, ParseMode: models.ParseModeHTML,
		ReplyParameters: &models.ReplyParameters{MessageID: question}, ReplyMarkup: &models.InlineKeyboardMarkup{
			InlineKeyboard: [][]models.InlineKeyboardButton{{{Text: "Cancel", CallbackData: "c:1", Style: "danger"}, {Text: "Site", URL: "https://example.com"}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	seen := w.ann.Last()
	same(t, "text", seen.Text, "Баланс <5> тут 🙂!")
	same(t, "bold", seen.Entities[0], fakeapi.Entity{Type: "bold", Offset: 0, Length: 6})
	same(t, "link", seen.Entities[1], fakeapi.Entity{Type: "text_link", Offset: 11, Length: 3, URL: "https://example.com/?a=1&b=2"})
	same(t, "italic, counted in UTF-16", seen.Entities[2], fakeapi.Entity{Type: "italic", Offset: 17, Length: 1})
	same(t, "reply", seen.ReplyTo, question)
	same(t, "reply as the bot sees it", m.ReplyToMessage.Text, "/start deep-link")
	same(t, "button", seen.Keyboard[0][0], fakeapi.Button{Text: "Cancel", Data: "c:1", Style: "danger"})

	// An edit without a keyboard removes it.
	if _, err := w.client.EditMessageText(t.Context(), &bot.EditMessageTextParams{ChatID: 42, MessageID: m.ID, Text: "Готово"}); err != nil {
		t.Fatal(err)
	}
	seen = w.ann.Last()
	same(t, "text", seen.Text, "Готово")
	same(t, "buttons", len(seen.Keyboard), 0)
	same(t, "edits", seen.Edits, 1)
	_, err = w.client.EditMessageText(t.Context(), &bot.EditMessageTextParams{ChatID: 42, MessageID: m.ID, Text: "Готово"})
	refused(t, err, bot.ErrorBadRequest, "message is not modified")

	photo, err := w.client.SendPhoto(t.Context(), &bot.SendPhotoParams{ChatID: 42, Photo: &models.InputFileUpload{Filename: "a.png", Data: strings.NewReader("png")}, Caption: "кот"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "caption", w.ann.Last().Text, "кот")
	file, err := w.client.GetFile(t.Context(), &bot.GetFileParams{FileID: photo.Photo[0].FileID})
	if err != nil {
		t.Fatal(err)
	}
	code, content := request(t, http.MethodGet, w.server.URL+"/file/bot"+token+"/"+file.FilePath, "", "")
	same(t, "file", content, "png")
	same(t, "file", code, http.StatusOK)

	if _, err := w.client.SendVideo(t.Context(), &bot.SendVideoParams{ChatID: 42, Video: &models.InputFileString{Data: "https://example.com/a.mp4"}, Caption: "a film"}); err != nil {
		t.Fatal(err)
	}
	same(t, "a film", w.ann.Last().FileKind+" "+w.ann.Last().File, "video https://example.com/a.mp4")
	member, err := w.client.GetChatMember(t.Context(), &bot.GetChatMemberParams{ChatID: 42, UserID: 42})
	if err != nil || member.Member == nil || member.Member.User.FirstName != "Anna" {
		t.Errorf("%+v, %v", member, err)
	}

	if _, err := w.client.SendChatAction(t.Context(), &bot.SendChatActionParams{ChatID: 42, Action: models.ChatActionTyping}); err != nil {
		t.Fatal(err)
	}
	same(t, "action", w.ann.Action(), "typing")
	w.server.Advance(5 * time.Second)
	same(t, "action after five seconds", w.ann.Action(), "")

	if ok, err := w.client.DeleteMessage(t.Context(), &bot.DeleteMessageParams{ChatID: 42, MessageID: m.ID}); err != nil || !ok {
		t.Fatal(err)
	}
	_, there := w.ann.Message(m.ID)
	same(t, "deleted", there, false)
}

func TestWhatTelegramRefusesIsRefused(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("я", 4097)
	for _, c := range []struct{ method, body, description string }{
		{"sendMessage", `{"chat_id":42,"text":" "}`, "message text is empty"},
		{"sendMessage", `{"chat_id":42,"text":"` + long + `"}`, "message is too long"},
		{"sendMessage", `{"text":"a"}`, "chat_id is empty"},
		{"sendMessage", `{"chat_id":43,"text":"a"}`, "chat not found"},
		{"sendMessage", `{"chat_id":42,"text":"<b>a","parse_mode":"HTML"}`, "can't parse entities"},
		{"sendMessage", `{"chat_id":42,"text":"<h1>a</h1>","parse_mode":"HTML"}`, "Unsupported start tag"},
		{"sendMessage", `{"chat_id":42,"text":"a<b","parse_mode":"HTML"}`, "Unclosed start tag"},
		{"sendMessage", `{"chat_id":42,"text":"a","reply_parameters":{"message_id":99}}`, "message to be replied not found"},
		{"sendMessage", `{"chat_id":42,"text":"a","reply_markup":{"inline_keyboard":[[{"text":"b","callback_data":"` + strings.Repeat("x", 65) + `"}]]}}`, "BUTTON_DATA_INVALID"},
		{"sendMessage", `{"chat_id":42,"text":"a","reply_markup":{"inline_keyboard":[[{"text":"b"}]]}}`, "Text buttons are unallowed"},
		{"sendPhoto", `{"chat_id":42,"photo":"nothing"}`, "wrong file identifier"},
		{"editMessageText", `{"chat_id":42,"message_id":99,"text":"a"}`, "message to edit not found"},
		{"deleteMessage", `{"chat_id":42,"message_id":99}`, "message to delete not found"},
		{"sendChatAction", `{"chat_id":42,"action":"dance"}`, "wrong parameter action"},
		{"setMyCommands", `{"commands":[{"command":"Start","description":"a"}]}`, "BOT_COMMAND_INVALID"},
		{"setWebhook", `{"url":"http://127.0.0.1:1","secret_token":"a b"}`, "secret token contains unallowed characters"},
		{"answerCallbackQuery", `{"callback_query_id":"1"}`, "query is too old"},
		{"answerPreCheckoutQuery", `{"pre_checkout_query_id":"1","ok":true}`, "query is too old"},
		{"sendMessage", `[]`, "can't parse the request"},
	} {
		code, answer := w.post(c.method, "application/json", c.body)
		same(t, c.method+c.body, code, http.StatusBadRequest)
		contains(t, c.method+c.body, answer, c.description)
	}
	same(t, "messages", len(w.ann.Messages()), 0)
}

func TestATapIsAnsweredOnceAndInTime(t *testing.T) {
	w := newWorld(t)
	m := w.send("Working", []models.InlineKeyboardButton{{Text: "Cancel", CallbackData: "c:1"}, {Text: "Site", URL: "https://example.com"}})
	tap, err := w.ann.Tap(m.ID, "Cancel")
	if err != nil {
		t.Fatal(err)
	}
	answer := func(id string) error {
		_, err := w.client.AnswerCallbackQuery(t.Context(), &bot.AnswerCallbackQueryParams{CallbackQueryID: id, Text: "Cancelled", ShowAlert: true})
		return err
	}
	if err := answer(tap.ID); err != nil {
		t.Fatal(err)
	}
	got, err := tap.Answer(t.Context())
	if err != nil || got != (fakeapi.Answer{Text: "Cancelled", Alert: true}) {
		t.Errorf("%+v, %v", got, err)
	}
	refused(t, answer(tap.ID), bot.ErrorBadRequest, "query is too old")

	late, err := w.ann.Tap(m.ID, "c:1")
	if err != nil {
		t.Fatal(err)
	}
	w.server.Advance(15 * time.Second)
	if _, err := late.Answer(t.Context()); !errors.Is(err, fakeapi.ErrUnanswered) {
		t.Errorf("a tap nobody answered: %v", err)
	}
	refused(t, answer(late.ID), bot.ErrorBadRequest, "query is too old")
	for button, wanted := range map[string]error{"Site": fakeapi.ErrNoCallback, "Delete": fakeapi.ErrNoButton} {
		if _, err := w.ann.Tap(m.ID, button); !errors.Is(err, wanted) {
			t.Errorf("%s: %v", button, err)
		}
	}
	if _, err := w.client.EditMessageReplyMarkup(t.Context(), &bot.EditMessageReplyMarkupParams{ChatID: 42, MessageID: m.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.ann.Tap(m.ID, "Cancel"); !errors.Is(err, fakeapi.ErrNoButton) {
		t.Errorf("a removed button: %v", err)
	}
	stale, err := w.ann.TapStale(m.ID, "c:1")
	if err != nil || answer(stale.ID) != nil {
		t.Errorf("a tap from before it was removed: %v", err)
	}
}

func TestAPersonWhoBlockedTheBotCannotBeWrittenTo(t *testing.T) {
	w := newWorld(t)
	say := func() error {
		_, err := w.client.SendMessage(t.Context(), &bot.SendMessageParams{ChatID: 42, Text: "hello"})
		return err
	}
	w.ann.Block()
	w.ann.Block()
	refused(t, say(), bot.ErrorForbidden, "bot was blocked by the user")
	w.ann.Unblock()
	if err := say(); err != nil {
		t.Error(err)
	}
	w.ann.Block()
	w.ann.Send("back again")
	if err := say(); err != nil {
		t.Errorf("after a message of theirs: %v", err)
	}
	w.ann.Deactivate()
	refused(t, say(), bot.ErrorForbidden, "user is deactivated")
	told := w.bot.Updates("my_chat_member")
	same(t, "updates", len(told), 4)
	contains(t, "blocked", string(told[0].Raw), `"new_chat_member":{"status":"kicked"`)
	contains(t, "unblocked", string(told[1].Raw), `"new_chat_member":{"status":"member"`)
}

func TestAGroupHasMembersAndSendersWithoutAName(t *testing.T) {
	w := newWorld(t)
	g := w.bot.Group(-100500, "Friends")
	w.ann.In(g).Send("/balance@bot")
	g.AnonymousSend("as the group")
	g.SendAs(fakeapi.Chat{ID: -100600, Title: "News"}, "as a channel")
	told := w.bot.Updates("message")
	contains(t, "a member", string(told[0].Raw), `"from":{"id":42`)
	contains(t, "a member", string(told[0].Raw), `"type":"bot_command"`)
	contains(t, "the group", string(told[1].Raw), `"sender_chat":{"id":-100500`)
	contains(t, "the group", string(told[1].Raw), `"username":"GroupAnonymousBot"`)
	contains(t, "a channel", string(told[2].Raw), `"sender_chat":{"id":-100600,"type":"channel"`)
	g.Migrate(-100501)
	_, err := w.client.SendMessage(t.Context(), &bot.SendMessageParams{ChatID: -100500, Text: "hello"})
	var moved *bot.MigrateError
	if !errors.As(err, &moved) || moved.MigrateToChatID != -100501 {
		t.Errorf("after it moved: %v", err)
	}
	same(t, "messages", len(g.Messages()), 3)
}

func TestADraftCanBeStopped(t *testing.T) {
	w := newWorld(t)
	code, _ := w.post("sendMessageDraft", "application/json", `{"chat_id":42,"draft_id":7,"text":"Once upon","can_stop":true}`)
	same(t, "status", code, http.StatusOK)
	v, _ := w.bot.View(42)
	same(t, "draft", v.Drafts[7], "Once upon")
	w.ann.StopDraft(7)
	contains(t, "update", string(w.bot.Updates("stopped_message_generation")[0].Raw), `"draft_id":7`)
}

func TestACallGoesWrongInTheWayThatWasAskedFor(t *testing.T) {
	w := newWorld(t)
	say := func(ctx context.Context, text string) error {
		_, err := w.client.SendMessage(ctx, &bot.SendMessageParams{ChatID: 42, Text: text})
		return err
	}
	w.bot.Fail(
		fakeapi.Fault{Kind: fakeapi.Broken, Method: "sendPhoto"}, // not for this call
		fakeapi.Fault{Kind: fakeapi.TooMany, RetryAfter: 7, Times: 2},
		fakeapi.Fault{Kind: fakeapi.Broken},
		fakeapi.Fault{Kind: fakeapi.Refused, Code: 403, Description: "bot was kicked"},
		fakeapi.Fault{Kind: fakeapi.Unreachable},
		fakeapi.Fault{Kind: fakeapi.LoseAnswer},
	)
	for range 2 {
		var slow *bot.TooManyRequestsError
		if err := say(t.Context(), "too many"); !errors.As(err, &slow) || slow.RetryAfter != 7 {
			t.Errorf("429: %v", err)
		}
	}
	if err := say(t.Context(), "broken"); err == nil || !strings.Contains(err.Error(), "500") {
		t.Errorf("500: %v", err)
	}
	refused(t, say(t.Context(), "refused"), bot.ErrorForbidden, "bot was kicked")
	if err := say(t.Context(), "unreachable"); err == nil || strings.Contains(err.Error(), "not-a-secret") {
		t.Errorf("a broken connection: %v", err)
	}
	same(t, "messages", len(w.ann.Messages()), 0)
	if err := say(t.Context(), "lost"); err == nil {
		t.Error("the answer arrived")
	}
	same(t, "messages", len(w.ann.Messages()), 1)

	w.bot.Fail(fakeapi.Fault{Kind: fakeapi.Timeout, Chat: 42})
	ctx, stop := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() { failed <- say(ctx, "timeout") }()
	if _, err := w.ann.AwaitText(t.Context(), "timeout"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-failed:
		t.Errorf("the call came back before the caller gave up: %v", err)
	default:
	}
	stop()
	if err := <-failed; err == nil {
		t.Error("the answer arrived")
	}
	same(t, "faults left", len(w.bot.Faults()), 1)
	w.bot.Heal()
	same(t, "faults left", len(w.bot.Faults()), 0)
}

func TestLimitsAreEnforcedWhereTheyAreSet(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	w := worldWith(t, fakeapi.Options{Limits: fakeapi.Limits{PerChatSecond: 2, PerSecond: 3}, Now: func() time.Time { return now }})
	bob := w.bot.Person(fakeapi.User{ID: 43})
	say := func(chat int64) error {
		_, err := w.client.SendMessage(t.Context(), &bot.SendMessageParams{ChatID: chat, Text: "hello"})
		return err
	}
	for i, c := range []struct {
		chat   int64
		passes bool
	}{{42, true}, {42, true}, {42, false}, {bob.ID(), true}, {bob.ID(), false}} {
		if err := say(c.chat); (err == nil) != c.passes {
			t.Errorf("message %d to %d: %v", i, c.chat, err)
		}
	}
	w.server.Advance(time.Second)
	if err := say(42); err != nil {
		t.Errorf("a second later: %v", err)
	}
	same(t, "messages", len(w.ann.Messages()), 3)
}

func TestTheTranscriptTellsWhatCameAfterWhatAndHowFast(t *testing.T) {
	w := frozenWorld(t)
	bob := w.bot.Person(fakeapi.User{ID: 43})
	w.send("You are number 3")
	w.server.Advance(900 * time.Millisecond)
	w.send("Here it is")
	if _, err := w.client.SendMessage(t.Context(), &bot.SendMessageParams{ChatID: bob.ID(), Text: "You are number 1"}); err != nil {
		t.Fatal(err)
	}
	w.server.Advance(200 * time.Millisecond)
	w.send("Anything else?")
	all := w.server.Transcript()
	if err := all.NeverAfter(fakeapi.Shown("You are number").In(42), fakeapi.Shown("Here it is").In(42)); err != nil {
		t.Error(err)
	}
	err := all.NeverAfter(fakeapi.Shown("You are number"), fakeapi.Shown("Here it is"))
	if err == nil {
		t.Fatal("bob's notice came after ann's result, and nobody said so")
	}
	contains(t, "the error", err.Error(), `"You are number 1" came after`)
	same(t, "at once", all.Busiest(time.Second, fakeapi.Call("sendMessage")), 3)
	chat, most := all.BusiestChat(time.Second, fakeapi.Call())
	same(t, "busiest chat", chat, 42)
	same(t, "in it", most, 2)
	same(t, "all", len(all.Where(fakeapi.Call("sendMessage"))), 4)
	for _, e := range all {
		if strings.Contains(e.String(), "not-a-secret") {
			t.Errorf("the token is in %s", e)
		}
	}
	w.bot.Fail(fakeapi.Fault{Kind: fakeapi.Broken})
	_, _ = w.client.SendMessage(t.Context(), &bot.SendMessageParams{ChatID: 42, Text: "You are number 2"})
	if err := w.server.Transcript().NeverAfter(fakeapi.Shown("You are number").In(42), fakeapi.Shown("Here it is")); err != nil {
		t.Errorf("what had no effect was not shown: %v", err)
	}
}

func serve(t *testing.T, handler http.Handler) (url string) {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return s.URL
}
