package fakeapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

// ids reads the ids of what getUpdates answered.
func ids(t *testing.T, answer string) (all []int64) {
	t.Helper()
	var frame struct {
		OK     bool
		Result []struct {
			ID int64 `json:"update_id"`
		}
	}
	if err := json.Unmarshal([]byte(answer), &frame); err != nil || !frame.OK {
		t.Fatalf("%s: %v", answer, err)
	}
	for _, u := range frame.Result {
		all = append(all, u.ID)
	}
	return all
}

func (w *world) poll(body string) []int64 {
	w.Helper()
	_, answer := w.post("getUpdates", "application/json", body)
	return ids(w.T, answer)
}

// next asks for what comes behind an update.
func (w *world) next(after int64) []int64 {
	w.Helper()
	return w.poll(fmt.Sprintf(`{"offset":%d}`, after+1))
}

func TestAnUpdateIsToldUntilAHigherOffsetConfirmsIt(t *testing.T) {
	w := newWorld(t)
	w.ann.Send("one")
	w.ann.Send("two")
	first := w.poll(`{}`)
	same(t, "updates", len(first), 2)
	same(t, "again", slices.Equal(w.poll(`{"limit":1}`), first[:1]), true)
	same(t, "behind the first", slices.Equal(w.next(first[0]), first[1:]), true)
	same(t, "behind the second", len(w.next(first[1])), 0)
	w.ann.Send("three")
	w.ann.Send("four")
	same(t, "the last only", len(w.poll(`{"offset":-1}`)), 1)
	same(t, "left", len(w.bot.Pending()), 1)
}

func TestALongPollIsAnsweredWhenSomethingHappens(t *testing.T) {
	w := newWorld(t)
	answers := make(chan []int64, 1)
	go func() { answers <- w.poll(`{"timeout":50}`) }()
	w.ann.Send("one")
	same(t, "updates", len(<-answers), 1)
	go func() { answers <- w.next(w.bot.Updates("")[0].ID) }()
	same(t, "nothing happened", len(<-answers), 0)
	// The time that it waits is the stand-in's own.
	go func() { answers <- w.poll(`{"offset":700000001,"timeout":1000}`) }()
	for len(answers) == 0 {
		w.server.Advance(50 * time.Second)
	}
	same(t, "after fifty seconds", len(<-answers), 0)
}

func TestOnlyOnePollAtATimeAndNoneBesideAWebhook(t *testing.T) {
	w := newWorld(t)
	codes := make(chan int, 1)
	go func() {
		code, _ := w.post("getUpdates", "application/json", `{"timeout":50}`)
		codes <- code
	}()
	for w.pollsRunning() == 0 {
		time.Sleep(time.Millisecond)
	}
	_, answer := w.post("getUpdates", "application/json", `{}`)
	contains(t, "the newer", answer, `"ok":true`)
	same(t, "the older", <-codes, http.StatusConflict)
	w.post("setWebhook", "application/json", `{"url":"http://127.0.0.1:1/"}`)
	code, answer := w.post("getUpdates", "application/json", `{}`)
	same(t, "beside a webhook", code, http.StatusConflict)
	contains(t, "beside a webhook", answer, "can't use getUpdates method while webhook is active")
	w.post("deleteWebhook", "", "")
	code, _ = w.post("getUpdates", "application/json", `{}`)
	same(t, "after it was deleted", code, http.StatusOK)
}

// pollsRunning is 1 while a getUpdates waits.
func (w *world) pollsRunning() int { return fakeapi.Polls(w.bot) }

func TestUpdatesAreKeptForADayAndQueriesForAShortTime(t *testing.T) {
	w := frozenWorld(t)
	m := w.send("hello", row("Go", "go"))
	w.ann.Send("one")
	if _, err := w.ann.Tap(m.ID, "Go"); err != nil {
		t.Fatal(err)
	}
	w.server.Advance(150 * time.Second)
	same(t, "after 150 seconds", len(w.bot.Pending()), 2)
	w.server.Advance(time.Second)
	same(t, "a second later", len(w.bot.Pending()), 1)
	w.server.Advance(24 * time.Hour)
	same(t, "a day later", len(w.poll(`{}`)), 0)
	expired := w.server.Transcript().Where(func(e fakeapi.Entry) bool { return e.Problem == "expired" })
	same(t, "expired", len(expired), 2)
}

func TestOnlyAllowedKindsAreTold(t *testing.T) {
	w := newWorld(t)
	w.poll(`{"allowed_updates":["callback_query"]}`)
	w.ann.Send("one")
	same(t, "not named", len(w.poll(`{}`)), 0) // left out: what was set before stays
	w.poll(`{"allowed_updates":[]}`)
	w.ann.Send("two")
	same(t, "an empty list", len(w.poll(`{}`)), 1)
	w.post("setWebhook", "application/json", `{"url":"http://127.0.0.1:1/","allowed_updates":["message"]}`)
	_, answer := w.post("getWebhookInfo", "", "")
	contains(t, "getWebhookInfo", answer, `"allowed_updates":["message"]`)
}

func TestUpdatesComeTwiceOutOfOrderOrNotAtAllWhereTheScriptSaysSo(t *testing.T) {
	w := newWorld(t)
	w.bot.DropNext("message", 1)
	w.bot.RepeatNext("message", 2)
	w.ann.Send("dropped")
	w.ann.Send("repeated")
	told := w.poll(`{}`)
	same(t, "updates", len(told), 1)
	same(t, "confirmed, and told again", slices.Equal(w.next(told[0]), []int64{told[0], told[0]}), true)
	same(t, "at last", len(w.next(told[0])), 0)

	w.bot.Hold()
	w.ann.Send("a")
	w.ann.Send("b")
	same(t, "held", len(w.poll(`{}`)), 0)
	w.bot.ReleaseReversed()
	reversed := w.poll(`{}`)
	same(t, "reversed", reversed[0] == reversed[1]+1, true)
	same(t, "confirmed both", len(w.next(reversed[1])), 0)

	w.bot.Redeliver(told[0], 1)
	same(t, "an old one again", slices.Equal(w.next(reversed[0]), told), true)
	same(t, "one that never was", w.bot.Redeliver(1, 1), false)
}

func TestAnIdThatJumpsBackLosesNothing(t *testing.T) {
	w := newWorld(t)
	w.ann.Send("before")
	before := w.poll(`{}`)
	w.next(before[0])
	w.server.Advance(8 * 24 * time.Hour)
	w.bot.JumpBack()
	w.ann.Send("one")
	w.ann.Send("two")
	after := w.next(before[0]) // the offset of before, which is in the future now
	same(t, "told", len(after), 2)
	same(t, "lower", after[0] < before[0], true)
	same(t, "confirmed", slices.Equal(w.next(after[0]), after[1:]), true)
}

// receiver is a webhook that a test answers.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	got      []string // what arrived, by its text
	secrets  []string
	decide   func(text string, times int) (status int, header http.Header, body string)
	arrivals chan string
}

func newReceiver(t *testing.T, decide func(text string, times int) (int, http.Header, string)) *receiver {
	t.Helper()
	r := &receiver{decide: decide, arrivals: make(chan string, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) serve(w http.ResponseWriter, request *http.Request) {
	content, _ := io.ReadAll(request.Body)
	var update struct {
		Message struct{ Text string }
	}
	_ = json.Unmarshal(content, &update)
	text := update.Message.Text
	r.mu.Lock()
	r.got = append(r.got, text)
	r.secrets = append(r.secrets, request.Header.Get("X-Telegram-Bot-Api-Secret-Token"))
	times := 0
	for _, other := range r.got {
		if other == text {
			times++
		}
	}
	r.mu.Unlock()
	status, header, body := r.decide(text, times)
	for name, values := range header {
		w.Header()[name] = values
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	r.arrivals <- text
}

func (r *receiver) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.got, ",")
}

func taken(string, int) (int, http.Header, string) { return http.StatusOK, nil, "" }

func (w *world) hook(r *receiver, more string) {
	w.Helper()
	code, answer := w.post("setWebhook", "application/json", `{"url":"`+r.URL+`"`+more+`}`)
	if code != http.StatusOK {
		w.Fatal(answer)
	}
}

func (w *world) drained() {
	w.Helper()
	if err := w.bot.Drained(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func TestAWebhookIsToldInOrderWithItsSecret(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, taken)
	w.ann.Send("before")
	w.hook(r, `,"secret_token":"shared-secret_1"`)
	for i := range 20 {
		w.ann.Send(fmt.Sprint(i))
	}
	w.drained()
	same(t, "order", r.all(), "before,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19")
	same(t, "secrets", strings.Join(slices.Compact(r.secrets), ","), "shared-secret_1")
}

func TestAWebhookThatFailsIsToldAgainAndHoldsUpOnlyItsOwnQueue(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, func(text string, times int) (int, http.Header, string) {
		if text == "poison" && times < 5 {
			return http.StatusServiceUnavailable, nil, ""
		}
		return http.StatusOK, nil, ""
	})
	w.hook(r, "")
	w.ann.Send("poison")
	w.ann.Send("behind it")
	bob := w.bot.Person(fakeapi.User{ID: 43})
	bob.Send("bob")
	for seen := []string{}; len(seen) < 3; {
		seen = append(seen, <-r.arrivals) // poison twice, and bob's
	}
	w.settled()
	same(t, "waiting", len(w.bot.Pending()), 2)
	_, answer := w.post("getWebhookInfo", "", "")
	contains(t, "getWebhookInfo", answer, `"last_error_message":"Wrong response from the webhook: 503 Service Unavailable"`)
	contains(t, "getWebhookInfo", answer, `"pending_update_count":2`)
	for range 10 {
		w.server.Advance(time.Minute)
	}
	w.drained()
	var anns []string
	for text := range strings.SplitSeq(r.all(), ",") {
		if text != "bob" {
			anns = append(anns, text)
		}
	}
	same(t, "order of ann's", strings.Join(slices.Compact(anns), ","), "poison,behind it")
}

// settled waits until nothing is on its way: Advance does.
func (w *world) settled() { w.server.Advance(0) }

func TestRetryAfterOfAWebhookIsHonoured(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, func(_ string, times int) (int, http.Header, string) {
		if times == 1 {
			return http.StatusTooManyRequests, http.Header{"Retry-After": {"600"}}, ""
		}
		return http.StatusOK, nil, ""
	})
	w.hook(r, "")
	w.ann.Send("later")
	w.settled()
	w.server.Advance(599 * time.Second)
	same(t, "before", r.all(), "later")
	w.server.Advance(2 * time.Second)
	w.drained()
	same(t, "after", r.all(), "later,later")
}

func TestAWebhookThatDoesNotAnswerIsToldAgainAfterAMinute(t *testing.T) {
	w := newWorld(t)
	release, waiting := make(chan struct{}), make(chan struct{})
	r := newReceiver(t, func(_ string, times int) (int, http.Header, string) {
		if times == 1 {
			close(waiting)
			<-release
		}
		return http.StatusOK, nil, ""
	})
	w.hook(r, "")
	w.ann.Send("slow")
	<-waiting
	w.server.Advance(61 * time.Second)
	w.drained()
	close(release)
	same(t, "told", r.all(), "slow,slow")
}

func TestAnOutageOfMoreThanADayLosesWhatHappenedInIt(t *testing.T) {
	w := newWorld(t)
	down := true
	var mu sync.Mutex
	r := newReceiver(t, func(string, int) (int, http.Header, string) {
		mu.Lock()
		defer mu.Unlock()
		if down {
			return http.StatusInternalServerError, nil, ""
		}
		return http.StatusOK, nil, ""
	})
	w.hook(r, "")
	w.ann.Send("lost")
	w.server.Advance(23 * time.Hour)
	w.ann.Send("late")
	w.server.Advance(2 * time.Hour)
	mu.Lock()
	down = false
	mu.Unlock()
	w.server.Advance(2 * time.Minute)
	w.drained()
	contains(t, "told", r.all(), "late")
	delivered := w.server.Transcript().Where(func(e fakeapi.Entry) bool { return e.Kind == fakeapi.Delivered && e.Code == 200 })
	same(t, "taken", len(delivered), 1)
}

func TestAWebhookIsToldAgainAllAtOnce(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, taken)
	w.hook(r, "")
	w.bot.RepeatNext("", 1)
	w.ann.Send("paid")
	w.drained()
	same(t, "its answer was lost", r.all(), "paid,paid")
	w.bot.Redeliver(w.bot.Updates("message")[0].ID, 8)
	for range 10 {
		same(t, "arrived", <-r.arrivals, "paid")
	}
}

func TestTheAnswerOfAWebhookMayBeACall(t *testing.T) {
	w := newWorld(t)
	r := newReceiver(t, func(string, int) (int, http.Header, string) {
		return http.StatusOK, nil, `{"method":"sendMessage","chat_id":42,"text":"at once"}`
	})
	w.hook(r, "")
	w.ann.Send("hello")
	if _, err := w.ann.AwaitText(t.Context(), "at once"); err != nil {
		t.Error(err)
	}
}

func TestSeveralBotsDoNotSeeEachOther(t *testing.T) {
	const other = "7000002:also-not-a-secret"
	s := fakeapi.Start(t, fakeapi.Options{})
	first, second := s.Bot(token), s.Bot(other)
	first.Person(fakeapi.User{ID: 42}).Send("to the first")
	second.Person(fakeapi.User{ID: 42}).Send("to the second")
	for address, wanted := range map[string]string{token: "to the first", other: "to the second"} {
		_, answer := request(t, http.MethodGet, s.URL+"/bot"+address+"/getUpdates", "", "")
		same(t, "updates", len(ids(t, answer)), 1)
		contains(t, "updates", answer, wanted)
	}
	client := library(t, s, other)
	w := &world{T: t, server: s, bot: second, client: client, ann: second.Person(fakeapi.User{ID: 42})}
	w.send("only there")
	same(t, "messages of the first", len(first.Messages(42)), 1)
	same(t, "messages of the second", len(second.Messages(42)), 2)
}
