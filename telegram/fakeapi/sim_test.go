package fakeapi_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/go-telegram/bot"
	"github.com/go-telegram/bot/models"

	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

// person asks the person's side, as curl does.
func (w *world) person(method, path, body string, wanted int) string {
	w.Helper()
	code, answer := request(w.T, method, w.server.URL+path, "application/x-www-form-urlencoded", body) // what curl -d says
	if code != wanted {
		w.Errorf("%s %s %s: %d %s", method, path, body, code, answer)
	}
	return answer
}

func TestAPersonCanDoEverythingOverHTTP(t *testing.T) {
	w := seller(t, map[string]string{"sold out": "Nothing is left"})
	chat := func(path string) string { return "/sim/chats/42" + path }
	contains(t, "write", w.person("POST", chat("/messages"), `{"text":"/start","from":{"first_name":"Аня","language_code":"ru"}}`, 200), `"message_id":1`)
	contains(t, "the update", string(w.bot.Updates("message")[0].Raw), `"first_name":"Аня"`)

	w.send("Working", row("Cancel", "c:1"))
	contains(t, "tap", w.person("POST", chat("/taps"), `{"button":"Cancel","no_wait":true}`, 200), `"answered":false`)
	w.person("POST", chat("/taps"), `{"button":"Delete"}`, 404)
	answers := make(chan string, 1)
	go func() { answers <- w.person("POST", chat("/taps"), `{"button":"c:1","message":2}`, 200) }()
	for len(w.bot.Updates("callback_query")) < 2 {
		w.settled()
	}
	var tap models.Update
	if err := json.Unmarshal(w.bot.Updates("callback_query")[1].Raw, &tap); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client.AnswerCallbackQuery(t.Context(), &bot.AnswerCallbackQueryParams{CallbackQueryID: tap.CallbackQuery.ID, Text: "Cancelled"}); err != nil {
		t.Fatal(err)
	}
	contains(t, "the answer", <-answers, `"answered":true`)

	w.person("POST", chat("/payments"), `{}`, 404)
	gone := w.link("sold out", 5, 0)
	contains(t, "declined", w.person("POST", chat("/payments"), `{"link":"`+gone+`"}`, 402), "Nothing is left")
	w.person("POST", chat("/payments"), `{"link":"`+gone+`","unasked":true}`, 200)
	w.send("Pro", []models.InlineKeyboardButton{{Text: "Subscribe", URL: w.link("plan", 250, month)}})
	var pay fakeapi.Payment
	if err := json.Unmarshal([]byte(w.person("POST", chat("/payments"), `{}`, 200)), &pay); err != nil || pay.Payload != "plan" {
		t.Fatalf("%+v, %v", pay, err)
	}
	subscription := chat("/subscriptions/" + pay.ChargeID)
	w.person("POST", subscription+"/cancel", "", 200)
	w.person("POST", subscription+"/resume", "", 200)
	w.person("POST", subscription+"/resume", "", 409)
	w.person("POST", subscription+"/fail", "", 200)
	w.person("POST", "/sim/advance", `{"days":30,"length":"1h"}`, 200)
	same(t, "subscription", w.bot.Subscriptions()[0].State, fakeapi.Failed)

	w.person("POST", chat("/block"), "", 200)
	var v fakeapi.View
	if err := json.Unmarshal([]byte(w.person("GET", chat(""), "", 200)), &v); err != nil {
		t.Fatal(err)
	}
	same(t, "blocked", v.Blocked, true)
	same(t, "button", v.Messages[1].Keyboard[0][0].Text, "Cancel")
	same(t, "subscription", v.Subscriptions[0].ChargeID, pay.ChargeID)
	w.person("POST", chat("/unblock"), "", 200)
	w.person("POST", chat("/stop"), `{"draft":7}`, 200)
	w.person("POST", chat("/deactivate"), "", 200)
	w.person("GET", "/sim/chats/43", "", 404)

	contains(t, "a group", w.person("POST", "/sim/chats/-100/messages", `{"text":"hi","from":{"id":43}}`, 200), "message_id")
	w.person("POST", "/sim/chats/-100/messages", `{"text":"hi"}`, 400)
	w.person("POST", "/sim/chats/-100/anonymous", `{"text":"hi"}`, 200)
	contains(t, "chats", w.person("GET", "/sim/chats", "", 200), `"Group 100"`)
	contains(t, "bots", w.person("GET", "/sim/bots", "", 200), `"id":7000001`)
}

func TestFaultsAndUpdatesAreScriptedOverHTTP(t *testing.T) {
	w := newWorld(t)
	w.person("POST", "/sim/faults", `{"kind":"too_many","retry_after":3,"times":2}`, 200)
	w.person("POST", "/sim/faults", `{"kind":"bad luck"}`, 400)
	code, answer := w.post("sendMessage", "application/json", `{"chat_id":42,"text":"a"}`)
	same(t, "status", code, http.StatusTooManyRequests)
	contains(t, "answer", answer, `"retry_after":3`)
	contains(t, "left", w.person("GET", "/sim/faults", "", 200), `"times":1`)
	contains(t, "none left", w.person("DELETE", "/sim/faults", "", 200), `[]`)

	w.person("POST", "/sim/updates/drop", `{"kind":"message"}`, 200)
	w.ann.Send("dropped")
	w.person("POST", "/sim/updates/hold", "", 200)
	w.ann.Send("a")
	w.ann.Send("b")
	w.person("POST", "/sim/updates/release", `{"reversed":true}`, 200)
	w.person("POST", "/sim/updates/jump-back", "", 200)
	w.ann.Send("c")
	told := w.poll(`{}`)
	same(t, "told", len(told), 3)
	same(t, "reversed", told[0] > told[1], true)
	same(t, "lower", told[2] < told[1], true)
	contains(t, "waiting", w.person("GET", "/sim/updates", "", 200), `"kind":"message"`)
	same(t, "confirmed", len(w.next(told[2])), 0)
	w.person("POST", "/sim/updates/redeliver", `{"kind":"message","times":2}`, 200)
	same(t, "twice more", len(w.next(told[2])), 2)
	w.person("POST", "/sim/updates/redeliver", `{"update":1}`, 404)
	w.person("POST", "/sim/updates/repeat", `{"times":1}`, 200)
	contains(t, "transcript", w.person("GET", "/sim/transcript", "", 200), `"problem":"dropped"`)
	contains(t, "nothing newer", w.person("GET", "/sim/transcript?after=100000", "", 200), `"entries":[]`)
}

func TestAMistakeIsExplained(t *testing.T) {
	w := newWorld(t)
	for path, wanted := range map[string]string{
		"/sim/chats/ann/messages": "a chat is a number",
		"/sim/chats/42/messages":  "say what to send",
		"/sim/advance":            "not the JSON",
	} {
		body := `{"text":""}`
		if path == "/sim/advance" {
			body = "days=3"
		}
		contains(t, path, w.person("POST", path, body, 400), wanted)
	}
	w.person("POST", "/sim/advance", `{"length":"a day"}`, 400)
	w.person("POST", "/sim/advance", `{"days":-1}`, 400)
	w.person("GET", "/sim/nothing", "", 404)
	w.person("GET", "/sim/chats?bot=8", "", 404)
	w.server.Bot("7000002:other")
	contains(t, "several bots", w.person("GET", "/sim/chats", "", 409), "?bot=ID")
	w.person("GET", "/sim/chats?bot=7000001", "", 200)
	contains(t, "routes", w.person("GET", "/sim/", "", 200), "POST /sim/chats/{chat}/payments")
}

func TestNobodyElsesPageMayActForThePerson(t *testing.T) {
	w := newWorld(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, w.server.URL+"/sim/chats/42/messages", strings.NewReader(`{"text":"hi"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	r.Header.Set("Origin", "https://example.com")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	same(t, "status", response.StatusCode, http.StatusForbidden)
	same(t, "messages", len(w.ann.Messages()), 0)
}
