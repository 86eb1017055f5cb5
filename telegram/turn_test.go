package telegram_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/telegram"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

func TestInAGroupWhoAsksPaysAndIsAnsweredThere(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers)
	group := s.bot.Group(-100500, "friends")
	ann, bob := s.person(42, "en"), s.person(43, "en")
	prompt := ann.In(group).Send("/improve@" + s.bot.Username() + " dear sir")
	status := s.shows(ann.In(group), "In the queue…")
	equal(t, "the status message answers", status.ReplyTo, prompt)
	s.work()
	j := s.begun()
	equal(t, "what is worked on", j.Prompt.Text, "dear sir")
	j.succeed("Dear Sir,")
	result := s.shows(ann.In(group), "Dear Sir,")
	equal(t, "the result answers", result.ReplyTo, prompt)
	equal(t, "charged to who asked", s.charged(42), 1)
	equal(t, "charged to others", s.charged(43), 0)

	// What people say to each other, and to other bots, is none of the bot's business; what answers the bot is.
	bob.In(group).Send("nice letter")
	bob.In(group).Send("/improve@other_bot dear madam")
	s.until("that was left alone", func() bool { return len(s.bot.Pending()) == 0 })
	equal(t, "people of whom something is noted", len(s.notes("person:")), 1)
	bob.In(group).Reply(result.ID, "make it shorter")
	j = s.begun()
	equal(t, "what is worked on", j.Prompt.Text, "make it shorter")
	equal(t, "who pays", j.Prompt.User, 43)
	j.succeed("Sir,")
	s.shows(bob.In(group), "Sir,")
	equal(t, "charged", s.charged(43), 1)
}

func TestInATopicAllAnswersStayInTheTopic(t *testing.T) {
	s := newStage(t)
	s.start()
	s.bot.Group(-100500, "forum")
	s.person(42, "en")
	_, err := s.take(map[string]any{"update_id": 9_000_001, "message": map[string]any{
		"message_id": 501, "message_thread_id": 77, "is_topic_message": true, "from": map[string]any{"id": 42, "language_code": "en"},
		"chat": map[string]any{"id": -100500, "type": "supergroup"}, "text": "/improve dear sir",
	}})
	if err != nil {
		t.Fatal(err)
	}
	s.begun().succeed("Dear Sir,")
	s.until("the result is there", func() bool { return len(s.server.Transcript().Where(fakeapi.Shown("Dear Sir,"))) == 1 })
	for _, e := range s.server.Transcript().Where(fakeapi.Call("sendMessage")) {
		equal(t, "topic of "+e.Text, e.Parameters["message_thread_id"], "77")
	}
}

func TestNobodyElseCanCancelWhatSomebodyHasAskedFor(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers)
	group := s.bot.Group(-100500, "friends")
	ann, bob := s.person(42, "en").In(group), s.person(43, "en").In(group)
	ann.Send("/improve dear sir")
	status := s.shows(ann, "In the queue…")
	answer := s.tap(bob, status.ID, "Cancel")
	equal(t, "answer", answer.Text, "Only the person who asked for it can do this.")
	equal(t, "reserved", s.balance(42).Reserved, 1)
	s.tap(ann, status.ID, "Cancel")
	equal(t, "charged", s.charged(42), 0)
}

func TestWhoWritesInTheNameOfAGroupOrChannelIsToldThatNobodyCanBeBilled(t *testing.T) {
	s := newStage(t)
	s.start()
	group := s.bot.Group(-100500, "friends")
	ann := s.person(42, "en").In(group)
	group.AnonymousSend("good morning") // says nothing to the bot
	prompt := group.AnonymousSend("/improve dear sir")
	refusal := s.shows(ann, "cannot be billed")
	equal(t, "answers", refusal.ReplyTo, prompt)
	group.SendAs(fakeapi.Chat{ID: -100600, Type: "channel", Title: "news"}, "/improve dear sir")
	s.until("both are told", func() bool { return len(s.server.Transcript().Where(fakeapi.Shown("cannot be billed"))) == 2 })
	equal(t, "work", len(s.jobs), 0)
}

func TestThePersonsLanguageIsTelegramsUntilTheyChooseOne(t *testing.T) {
	s := newStage(t)
	prepare := s.prepare
	s.prepare = func(k *telegram.Kit) {
		prepare(k)
		k.Command("lang", func(ctx context.Context, turn *telegram.Turn) error {
			if err := turn.SetLanguage(ctx, turn.Argument); err != nil {
				return err
			}
			_, err := turn.Reply(ctx, "language: "+turn.Reader.Language+".", nil)
			return err
		})
		k.Command("hello", func(ctx context.Context, turn *telegram.Turn) error {
			_, err := turn.Reply(ctx, "hello in "+turn.Reader.Language+".", nil)
			return err
		})
	}
	s.start(withoutWorkers)
	languageOf := func(user int64) string {
		view, err := s.engine.View(t.Context(), project, telegram.AccountName(user))
		if err != nil {
			t.Fatal(err)
		}
		return view.Account.Language
	}
	ann := s.person(42, "ru-RU")
	ann.Send("/hello")
	s.shows(ann, "hello in ru-RU.")
	equal(t, "language of the account", languageOf(42), "ru-RU")

	s.person(42, "en").Send("/hello") // Telegram says another one now, and nobody has chosen
	s.shows(ann, "hello in en.")
	equal(t, "language of the account", languageOf(42), "en")

	ann.Send("/lang ru")
	s.shows(ann, "language: ru.")
	ann.Send("/hello")
	s.shows(ann, "hello in ru.")
	equal(t, "language of the account", languageOf(42), "ru")

	// An operator has chosen for somebody: that stays too.
	bob := s.person(43, "en")
	bob.Send("/hello")
	s.shows(bob, "hello in en.")
	german := "de"
	if _, err := s.engine.Submit(t.Context(), holdfast.Command{
		ID: engine.NewID(), Project: project, Account: "telegram:43", Do: holdfast.PutAccount{Language: &german},
	}); err != nil {
		t.Fatal(err)
	}
	bob.Send("/hello")
	s.shows(bob, "hello in de.")
	nobody := s.person(44, "")
	nobody.Send("/hello")
	s.shows(nobody, "hello in .")
}

func TestAnAuthorsOwnAccountIsKnownByTheTelegramNameToo(t *testing.T) {
	s := newStage(t)
	s.options.Account = func(_ context.Context, user telegram.User) (string, error) {
		if user.ID == 42 {
			return "customer:7", nil
		}
		return telegram.AccountName(user.ID), nil
	}
	s.start()
	ann := s.person(42, "en")
	ann.Send("dear sir")
	s.begun().succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	s.until("it is charged", func() bool { return s.balanceOf("customer:7").Reserved == 0 })
	equal(t, "left by the one name", s.balanceOf("customer:7").Available, 4)
	equal(t, "left by the other", s.balanceOf("telegram:42").Available, 4)
	s.settled()
	s.tell(renewedFor("evt_1", "customer:7"))
	s.shows(ann, "Your free allowance is there again.")
}

func TestACommandThatFallsIsToldAndLoggedOnce(t *testing.T) {
	s := newStage(t)
	prepare := s.prepare
	s.prepare = func(k *telegram.Kit) {
		prepare(k)
		k.Command("error", func(context.Context, *telegram.Turn) error {
			return errors.New("SECRET: the author's database is down")
		})
		k.Command("panic", func(context.Context, *telegram.Turn) error { panic("SECRET: an author's mistake") })
		k.Command("late", func(ctx context.Context, turn *telegram.Turn) error {
			if _, err := turn.Ask(ctx, telegram.Ask{Feature: "text.improve", Text: "dear sir"}); err != nil {
				return err
			}
			panic("SECRET: after the work was asked for")
		})
		k.Command("unknown", func(ctx context.Context, turn *telegram.Turn) error {
			_, err := turn.Ask(ctx, telegram.Ask{Feature: "nobody.does", Text: "dear sir"})
			return err
		})
	}
	s.start()
	for i, command := range []string{"/error", "/panic", "/unknown"} {
		p := s.person(int64(42+i), "en")
		p.Send(command)
		s.shows(p, "Something went wrong on our side. Please try again later.")
	}
	s.until("all three are logged", func() bool { return s.log.count("a turn failed") == 3 })
	late := s.person(50, "en")
	late.Send("/late")
	s.begun().succeed("Dear Sir,")
	s.shows(late, "Dear Sir,")
	equal(t, "charged", s.charged(50), 1)
	s.until("it is logged once", func() bool { return s.log.count("after work had been asked for") == 1 })
	equal(t, "told in the middle of it", len(s.server.Transcript().Where(fakeapi.Shown("Something went wrong").In(50))), 0)
	if strings.Contains(s.transcript(), "SECRET") {
		t.Error("a person was shown an error as it was")
	}
}

// unruly is an engine that fails as told.
type unruly struct {
	telegram.Engine
	fail atomic.Pointer[engine.Error] // of the next reserve
	lost atomic.Bool                  // it is done nevertheless

	noCommits atomic.Int64 // how many commits are lost
}

func (u *unruly) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	if _, reserve := command.Do.(holdfast.Reserve); reserve {
		if err := u.fail.Swap(nil); err != nil {
			if u.lost.Load() {
				_, _ = u.Engine.Submit(ctx, command)
			}
			return holdfast.Outcome{}, err
		}
	}
	if _, commit := command.Do.(holdfast.Commit); commit && u.noCommits.Add(-1) >= 0 {
		return holdfast.Outcome{}, &engine.Error{Code: engine.Internal}
	}
	return u.Engine.Submit(ctx, command)
}

func TestAnAccidentIsToldAsOneAndIsNoRefusal(t *testing.T) {
	s := newStage(t)
	var u *unruly
	s.around = func(e telegram.Engine) telegram.Engine {
		u = &unruly{Engine: e}
		return u
	}
	s.start()
	ann := s.person(42, "en")
	u.fail.Store(&engine.Error{Code: engine.Unavailable})
	ann.Send("dear sir")
	s.shows(ann, "The service is temporarily unavailable. Please try again a little later.")
	equal(t, "reserved", s.balance(42).Reserved, 0)

	// Where nobody knows whether it was done, the same key is asked again, and nothing is done twice.
	u.lost.Store(true)
	u.fail.Store(&engine.Error{Code: engine.OutcomeUnknown})
	ann.Send("dear madam")
	s.begun().succeed("Dear Madam,")
	s.shows(ann, "Dear Madam,")
	equal(t, "charged", s.charged(42), 1)
	s.until("the update was repeated", func() bool { return s.log.count("an update failed and will be tried again") == 1 })
	s.settled()
	equal(t, "work", len(s.jobs), 0)
}

func TestAnotherLibraryCanLeaveItsUpdatesToTheKit(t *testing.T) {
	s := newStage(t)
	s.start()
	var left []string
	web := httptest.NewServer(s.kit.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		left = append(left, string(body))
	})))
	defer web.Close()
	post := func(body string) int {
		response, err := http.Post(web.URL, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		return response.StatusCode
	}
	ann := s.person(42, "en")
	const message = `{"update_id": 9000001, "message": {"message_id": 700, "from": {"id": 42, "language_code": "en"}, "chat": {"id": 42, "type": "private"}, "text": "dear sir"}}`
	equal(t, "status", post(message), http.StatusOK)
	s.begun().succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	equal(t, "status of the repetition", post(message), http.StatusOK)
	const poll = `{"update_id": 9000002, "poll": {"id": "1"}}`
	equal(t, "status", post(poll), http.StatusOK)
	equal(t, "status of what is no update", post(`[]`), http.StatusServiceUnavailable)
	equal(t, "what was left to the library", left, []string{poll})
	equal(t, "charged", s.charged(42), 1)
}

func TestButtonsHaveDataThatTelegramTakes(t *testing.T) {
	ref := holdfast.ReservationRef.Encode(holdfast.AccountIDOf("p", "a"), engine.NewID())
	if data := telegram.Data("cancel", ref); len(data) > botapi.MaxCallbackData {
		t.Errorf("%q has %d bytes", data, len(data))
	}
	if a, b := telegram.Nonce(), telegram.Nonce(); a == b || a == "" {
		t.Errorf("nonces %q and %q", a, b)
	}
	defer func() {
		if recover() == nil {
			t.Error("data of more bytes than Telegram takes was accepted")
		}
	}()
	telegram.Data("cancel", strings.Repeat("x", botapi.MaxCallbackData))
}

func TestAButtonThatNobodyKnowsIsAnsweredAndSoIsOneThatIsSpent(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	ann.Send("dear sir")
	status := s.shows(ann, "In the queue…")
	for _, data := range []string{"from_a_former_version:1", "repeat:abc", "cancel:rsv_nonsense"} {
		tap, err := ann.TapStale(status.ID, data)
		if err != nil {
			t.Fatal(err)
		}
		if answer := s.answer(tap); answer.Text == "" {
			t.Errorf("the answer to %q is empty", data)
		}
	}
	done, err := s.take(map[string]any{"update_id": 9_000_001, "callback_query": map[string]any{ // of a message that Telegram has no more
		"id": "1", "from": map[string]any{"id": 42}, "data": "plans",
	}})
	if err != nil || !done.Handled {
		t.Errorf("%+v, %v", done, err)
	}
	equal(t, "reserved", s.balance(42).Reserved, 1)
}

func TestOptionsThatAreMissingAreAllNamed(t *testing.T) {
	_, err := telegram.New(telegram.Options{Bot: "b"})
	for _, name := range []string{"Project", "Engine", "API", "Notes", "Texts"} {
		if err == nil || !strings.Contains(err.Error(), "Options."+name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}
