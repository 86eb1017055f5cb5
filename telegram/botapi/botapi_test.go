package botapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

const token = "7000001:not-a-secret"

// wire leads requests straight to a server, on the fake clock of a bubble.
type wire struct {
	http.Handler
	mu          sync.Mutex
	unreachable int // so many connections are refused
}

func (w *wire) RoundTrip(r *http.Request) (response *http.Response, err error) {
	w.mu.Lock()
	refused := w.unreachable > 0
	w.unreachable--
	w.mu.Unlock()
	defer func() { _ = r.Body.Close() }()
	if refused {
		return nil, errors.New("tls: handshake failure")
	}
	httptrace.ContextClientTrace(r.Context()).WroteHeaders()
	defer func() {
		if recover() == http.ErrAbortHandler {
			response, err = nil, io.ErrUnexpectedEOF
			if r.Context().Err() != nil {
				err = r.Context().Err()
			}
		}
	}()
	answer := httptest.NewRecorder()
	w.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// world is the stand-in, a client of it, and a person.
type world struct {
	*testing.T
	wire   *wire
	server *fakeapi.Server
	bot    *fakeapi.Bot
	client *botapi.Client
	ann    *fakeapi.Person
	log    bytes.Buffer
}

func inBubble(t *testing.T, test func(w *world)) { inBubbleWith(t, fakeapi.Options{}, test) }

func inBubbleWith(t *testing.T, options fakeapi.Options, test func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		options.Tokens = []string{token}
		s := fakeapi.New(options)
		defer s.Close()
		w := &world{T: t, server: s, wire: &wire{Handler: s}, bot: s.Bot(token)}
		w.ann = w.bot.Person(fakeapi.User{ID: 42, FirstName: "Anna"})
		w.client = w.newClient(token)
		test(w)
		if strings.Contains(w.log.String(), token) {
			t.Errorf("the log has the token:\n%s", w.log.String())
		}
	})
}

func (w *world) newClient(token string) *botapi.Client {
	w.Helper()
	c, err := botapi.New(botapi.Options{Token: token, HTTP: &http.Client{Transport: w.wire}, Logger: slog.New(slog.NewTextHandler(&w.log, nil))})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

func (w *world) send(m botapi.Message) int {
	w.Helper()
	if m.Chat == 0 {
		m.Chat = w.ann.Chat()
	}
	id, err := w.client.Send(w.Context(), m)
	if err != nil {
		w.Fatal(err)
	}
	return id
}

// calls are how often a method was called, whatever came of it.
func (w *world) calls(method string) (n int) {
	for _, e := range w.server.Transcript() {
		if e.Kind == fakeapi.Called && e.Name == method {
			n++
		}
	}
	return n
}

func (w *world) is(what string, got, want any) {
	w.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		w.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (w *world) failsAs(err, kind error) {
	w.Helper()
	if !errors.Is(err, kind) {
		w.Errorf("%v is not %q", err, kind)
	}
}

func TestAPersonSeesWhatWasSentAndWhatItBecame(t *testing.T) {
	inBubble(t, func(w *world) {
		asked := w.ann.Send("draw a fox")
		id := w.send(botapi.Message{
			Text: "<b>It is drawn</b>", HTML: true, ReplyTo: asked, Silent: true,
			Keyboard: botapi.Keyboard{{{Text: "Cancel", Data: "cancel:1", Style: "danger"}, {Text: "Help", URL: "https://example.com/"}}},
		})
		seen, _ := w.ann.Message(id)
		w.is("the message", fmt.Sprint(seen.Text, seen.Entities, seen.ReplyTo == asked, seen.Silent, seen.Keyboard),
			"It is drawn[{bold 0 11    0 }] true true [[{Cancel cancel:1  false danger false} {Help  https://example.com/ false  false}]]")
		for range 2 { // the second changes nothing
			if err := w.client.Edit(w.Context(), botapi.Edit{Chat: w.ann.Chat(), Message: id, Text: "It is done."}); err != nil {
				t.Error(err)
			}
		}
		seen, _ = w.ann.Message(id)
		w.is("what it became", fmt.Sprint(seen.Text, len(seen.Keyboard), seen.Edits), "It is done.0 1")
		for range 2 {
			if err := w.client.Delete(w.Context(), w.ann.Chat(), id); err != nil {
				t.Error(err)
			}
		}
		w.failsAs(w.client.Edit(w.Context(), botapi.Edit{Chat: w.ann.Chat(), Message: id, Text: "There?"}), botapi.ErrNoMessage)
		if err := w.client.ChatAction(w.Context(), w.ann.Chat(), 0, "typing"); err != nil || w.ann.Action() != "typing" {
			t.Errorf("the action is %q: %v", w.ann.Action(), err)
		}
		w.send(botapi.Message{Text: "a reply to nothing", ReplyTo: 4711})
	})
}

func TestALongMessageArrivesWhole(t *testing.T) {
	inBubble(t, func(w *world) {
		asked := w.ann.Send("tell me")
		text := strings.Repeat(strings.Repeat("слово 😀 ", 60)+"\n\n", 20)
		id := w.send(botapi.Message{Text: text, ReplyTo: asked, Keyboard: botapi.Keyboard{{{Text: "Again", Data: "again"}}}})
		var whole strings.Builder
		seen := w.ann.Messages()[1:]
		for i, m := range seen {
			whole.WriteString(m.Text + "\n\n")
			w.is(fmt.Sprint("of piece ", i), fmt.Sprint(m.ReplyTo == asked, len(m.Keyboard), m.ID == id), fmt.Sprint(i == 0, map[bool]int{true: 1}[i == len(seen)-1], i == len(seen)-1))
		}
		if len(seen) != 3 || withoutSpace(whole.String()) != withoutSpace(text) {
			t.Errorf("%d pieces, or not all of it", len(seen))
		}
		edited := w.send(botapi.Message{Text: "soon"})
		if err := w.client.Edit(w.Context(), botapi.Edit{Chat: w.ann.Chat(), Message: edited, Text: text}); err != nil {
			t.Error(err)
		}
	})
}

func TestAPictureComesFromBytesOrFromAnAddress(t *testing.T) {
	inBubble(t, func(w *world) {
		caption := strings.Repeat("слово ", 300)
		w.bot.Fail(fakeapi.Fault{Kind: fakeapi.TooMany, Method: "sendPhoto"}) // the second try has all of it, too
		id, err := w.client.SendPhoto(w.Context(), botapi.Photo{Chat: w.ann.Chat(), Data: []byte("picture"), Caption: caption})
		if err != nil {
			t.Fatal(err)
		}
		seen := w.ann.Messages()
		content, _ := w.bot.File(seen[0].Photo)
		w.is("the picture", string(content), "picture")
		w.is("the rest of the caption", fmt.Sprint(len(seen), seen[0].ID == id, seen[1].ReplyTo == id, withoutSpace(seen[0].Text+seen[1].Text) == withoutSpace(caption)), "2 true true true")
		if _, err := w.client.SendPhoto(w.Context(), botapi.Photo{Chat: w.ann.Chat(), URL: "https://example.com/fox.png"}); err != nil {
			t.Fatal(err)
		}
		w.is("by its address", w.ann.Last().Photo, "https://example.com/fox.png")
		_, err = w.client.SendPhoto(w.Context(), botapi.Photo{Chat: w.ann.Chat()})
		w.failsAs(err, botapi.ErrRejected)
	})
}

func TestATapIsAnsweredAndATapThatIsTooOldIsNoError(t *testing.T) {
	inBubble(t, func(w *world) {
		id := w.send(botapi.Message{Text: "?", Keyboard: botapi.Keyboard{{{Text: "Yes", Data: "yes"}}}})
		tap, err := w.ann.Tap(id, "Yes")
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := w.client.AnswerCallback(w.Context(), tap.ID, strings.Repeat("ж", 300), true); err != nil {
				t.Error(err)
			}
		}
		last := w.server.Transcript().Where(fakeapi.Call("answerCallbackQuery"))[0]
		w.is("the text", last.Text, strings.Repeat("ж", 199)+"…")
		w.is("shown as", last.Parameters["show_alert"], "true")
		_, err = w.client.Send(w.Context(), botapi.Message{Chat: w.ann.Chat(), Text: "?", Keyboard: botapi.Keyboard{{{Text: "Yes", Data: strings.Repeat("y", 65)}}}})
		w.failsAs(err, botapi.ErrRejected)
	})
}

func TestEveryRefusalIsOfItsKind(t *testing.T) {
	for _, c := range []struct {
		code        int
		description string
		kind        error
	}{
		{403, "bot was blocked by the user", botapi.ErrBlocked},
		{403, "user is deactivated", botapi.ErrBlocked},
		{403, "bot was kicked from the supergroup chat", botapi.ErrBlocked},
		{400, "chat not found", botapi.ErrBlocked},
		{400, "not enough rights to send text messages to the chat", botapi.ErrBlocked},
		{400, "can't parse entities: unsupported start tag", botapi.ErrRejected},
		{400, "message can't be edited", botapi.ErrNoMessage},
		{400, "MESSAGE_ID_INVALID", botapi.ErrNoMessage},
		{401, "", botapi.ErrToken},
		{409, "terminated by other getUpdates request", botapi.ErrConflict},
		{500, "", botapi.ErrUncertain},
		{502, "", botapi.ErrUncertain},
	} {
		inBubble(t, func(w *world) {
			w.bot.Fail(fakeapi.Fault{Kind: fakeapi.Refused, Code: c.code, Description: c.description})
			_, err := w.client.Send(w.Context(), botapi.Message{Chat: 42, Text: "?"})
			w.failsAs(err, c.kind)
			w.is(c.description+" is temporary", botapi.Temporary(err), c.code >= 500)
			w.is("calls", w.calls("sendMessage"), 1)
			w.is("seen", len(w.ann.Messages()), 0)
		})
	}
	inBubble(t, func(w *world) {
		_, _, err := w.newClient("7000001:another").Me(w.Context())
		w.failsAs(err, botapi.ErrToken)
	})
}

func TestAPauseThatTelegramAsksForIsThatOfTheChat(t *testing.T) {
	inBubble(t, func(w *world) {
		bob := w.bot.Person(fakeapi.User{ID: 43})
		began := time.Now()
		w.bot.Fail(fakeapi.Fault{Kind: fakeapi.TooMany, Chat: 42, RetryAfter: 30})
		done := make(chan time.Duration, 2)
		for range 2 {
			go func() {
				w.send(botapi.Message{Text: "to Ann"})
				done <- time.Since(began)
			}()
		}
		synctest.Wait()
		w.send(botapi.Message{Chat: bob.Chat(), Text: "to Bob"})
		w.is("Bob waited", time.Since(began), "0s")
		if err := w.client.ChatAction(w.Context(), 42, 0, "typing"); err != nil || w.calls("sendChatAction") != 0 {
			t.Errorf("an action went out during a pause: %v", err)
		}
		short, cancel := context.WithTimeout(w.Context(), 20*time.Second)
		defer cancel()
		_, err := w.client.Send(short, botapi.Message{Chat: 42, Text: "sooner"})
		var later *botapi.RetryAfter
		if !errors.As(err, &later) || later.Wait != 30*time.Second || time.Since(began) != 0 || !botapi.Temporary(err) {
			t.Errorf("what cannot be in time says so at once: %v after %s", err, time.Since(began))
		}
		w.is("Ann waited", max(<-done, <-done), 30*time.Second)
		w.is("all calls", w.calls("sendMessage"), 4)
		if !strings.Contains(w.log.String(), "telegram asks for a pause") {
			t.Error("nobody was told")
		}
		w.bot.Fail(fakeapi.Fault{Kind: fakeapi.TooMany, Method: "sendChatAction", RetryAfter: 30})
		for range 2 {
			if err := w.client.ChatAction(w.Context(), 42, 0, "typing"); err != nil || w.calls("sendChatAction") != 1 {
				t.Errorf("an action during its own pause: %v", err)
			}
		}
	})
}

func TestWhenManyChatsAreToPauseEverybodyDoes(t *testing.T) {
	inBubble(t, func(w *world) {
		began := time.Now()
		w.bot.Fail(fakeapi.Fault{Kind: fakeapi.TooMany, Method: "sendMessage", RetryAfter: 30, Times: 3})
		var all sync.WaitGroup
		for chat := range int64(3) {
			w.bot.Person(fakeapi.User{ID: 100 + chat})
			all.Go(func() { w.send(botapi.Message{Chat: 100 + chat, Text: "?"}) })
		}
		synctest.Wait()
		w.send(botapi.Message{Text: "to Ann"})
		w.is("Ann waited", time.Since(began), 30*time.Second)
		all.Wait()
	})
}

// The stand-in enforces the limits that Telegram's FAQ names, with 429.
func TestNobodySendsFasterThanTelegramTakes(t *testing.T) {
	limits := fakeapi.Limits{PerSecond: 30, PerGroupMinute: 20}
	inBubbleWith(t, fakeapi.Options{Limits: limits}, func(w *world) {
		group := w.bot.Group(-100, "A group")
		var all sync.WaitGroup
		for i := range int64(300) {
			chat := 1000 + i%100
			switch {
			case i%6 == 0:
				chat = group.ID()
			case i%6 == 1:
				chat = w.ann.Chat()
			default:
				w.bot.Person(fakeapi.User{ID: chat})
			}
			ctx := w.Context()
			if i%2 == 0 {
				ctx = botapi.WithPriority(ctx, botapi.Notice)
			}
			all.Go(func() {
				if _, err := w.client.Send(ctx, botapi.Message{Chat: chat, Text: fmt.Sprint(i)}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		w.is("calls", w.calls("sendMessage"), 300) // none was refused and repeated
		told := w.server.Transcript()
		sent := fakeapi.Call("sendMessage")
		if chat, most := told.BusiestChat(4*time.Second, sent); most > 4 {
			t.Errorf("%d messages to %d within four seconds", most, chat)
		}
		if most := told.Busiest(time.Second, sent); most != 30 {
			t.Errorf("%d messages within a second", most)
		}
	})
}

func TestRepliesGoBeforeNotices(t *testing.T) {
	inBubble(t, func(w *world) {
		began := time.Now()
		var all sync.WaitGroup
		notices := botapi.WithPriority(w.Context(), botapi.Notice)
		for i := range int64(200) {
			w.bot.Person(fakeapi.User{ID: 1000 + i})
			all.Go(func() {
				if _, err := w.client.Send(notices, botapi.Message{Chat: 1000 + i, Text: "your allowance is renewed"}); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		w.is("notices of the first second", w.calls("sendMessage"), 25)
		for range 4 {
			w.send(botapi.Message{Text: "here you are"})
		}
		w.is("the replies waited", time.Since(began), "0s")
		for i := range int64(40) {
			w.bot.Person(fakeapi.User{ID: 2000 + i})
			all.Go(func() { w.send(botapi.Message{Chat: 2000 + i, Text: "and you"}) })
		}
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		w.is("replies of the first two seconds", len(w.server.Transcript().Where(fakeapi.Shown("and you"))), 31)
		all.Wait()
		w.is("all were sent after", time.Since(began), 9*time.Second)
	})
}

func TestWhoDoesNotWaitAnyLongerTakesNobodysTurn(t *testing.T) {
	inBubble(t, func(w *world) {
		for range 4 {
			w.send(botapi.Message{Text: "a burst"})
		}
		given, cancel := context.WithCancelCause(w.Context())
		failed := make(chan error)
		go func() {
			_, err := w.client.Send(given, botapi.Message{Chat: 42, Text: "too late"})
			failed <- err
		}()
		synctest.Wait()
		stopped := errors.New("the worker stops")
		cancel(stopped)
		err := <-failed
		w.failsAs(err, stopped)
		w.failsAs(err, botapi.ErrUnavailable)
		began := time.Now()
		w.send(botapi.Message{Text: "after the burst"})
		w.is("it waited", time.Since(began), 4*time.Second)
		_, err = w.client.Send(given, botapi.Message{Chat: 42, Text: "later still"})
		w.failsAs(err, stopped)
		w.is("all calls", w.calls("sendMessage"), 5)
	})
}

func TestALostAnswerIsRepeatedWhereThatDoesNoHarm(t *testing.T) {
	lost := fakeapi.Fault{Kind: fakeapi.LoseAnswer}
	inBubble(t, func(w *world) {
		w.bot.Fail(lost)
		_, err := w.client.Send(w.Context(), botapi.Message{Chat: 42, Text: "once"})
		w.failsAs(err, botapi.ErrUncertain)
		w.is("it may be there", botapi.Temporary(err), true)
		w.is("messages", len(w.ann.Messages()), 1)

		w.bot.Fail(lost)
		id := w.send(botapi.Message{Text: "at least once", AtLeastOnce: true})
		w.is("messages", len(w.ann.Messages()), 3)

		w.bot.Fail(lost, lost)
		if err := w.client.Edit(w.Context(), botapi.Edit{Chat: 42, Message: id, Text: "changed"}); err != nil {
			t.Error(err)
		}
		w.bot.Fail(lost)
		if err := w.client.Delete(w.Context(), 42, id); err != nil {
			t.Error(err)
		}
		w.bot.Fail(fakeapi.Fault{Kind: fakeapi.Timeout})
		if err := w.client.SetCommands(w.Context(), "ru", []botapi.Command{{Name: "balance", Description: "Баланс"}}); err != nil {
			t.Error(err)
		}
		w.bot.Fail(fakeapi.Fault{Kind: fakeapi.Broken, Times: 9})
		_, _, err = w.client.Me(w.Context())
		w.failsAs(err, botapi.ErrUncertain)
		w.is("tries", w.calls("getMe"), 5)
		w.bot.Heal()

		given, cancel := context.WithCancelCause(w.Context())
		stopped := errors.New("the lease is lost")
		w.bot.Fail(fakeapi.Fault{Kind: fakeapi.Timeout})
		time.AfterFunc(time.Second, func() { cancel(stopped) })
		_, err = w.client.Send(given, botapi.Message{Chat: 42, Text: "who knows", AtLeastOnce: true})
		w.failsAs(err, stopped)
		w.failsAs(err, botapi.ErrUncertain)

		w.wire.unreachable = 3
		w.send(botapi.Message{Text: "when it can be reached"})
		w.wire.unreachable = 9
		_, err = w.client.Send(w.Context(), botapi.Message{Chat: 42, Text: "nobody is there"})
		w.failsAs(err, botapi.ErrUnavailable)
	})
}

func TestAGroupThatBecameASupergroupIsFollowed(t *testing.T) {
	inBubble(t, func(w *world) {
		group := w.bot.Group(-100, "A group")
		supergroup := group.Migrate(-100200)
		w.send(botapi.Message{Chat: group.ID(), Text: "to all"})
		w.is("messages there", len(supergroup.Messages()), 1)
		if err := w.client.ChatAction(w.Context(), group.ID(), 0, "typing"); err != nil {
			t.Error(err)
		}
		supergroup.Migrate(-100)
		_, err := w.client.Send(w.Context(), botapi.Message{Chat: group.ID(), Text: "round and round"})
		w.failsAs(err, botapi.ErrRejected)
	})
}

func TestStarsArePaidListedAndGivenBackOnce(t *testing.T) {
	inBubble(t, func(w *world) {
		invoice := botapi.Invoice{Chat: 42, Title: strings.Repeat("Сто кредитов ", 4), Description: "Для картинок", Payload: "order-1", Stars: 250}
		id, err := w.client.SendInvoice(w.Context(), invoice)
		if err != nil {
			t.Fatal(err)
		}
		monthly := invoice
		monthly.Payload, monthly.Subscription = "order-2", true
		link, err := w.client.InvoiceLink(w.Context(), monthly)
		if err != nil {
			t.Fatal(err)
		}
		allowed := []string{"pre_checkout_query", "message"}
		var charges []string
		for _, payable := range []string{w.ann.Payable(id), link} {
			paid := make(chan fakeapi.Payment)
			go func() {
				payment, err := w.ann.Pay(w.Context(), payable)
				if err != nil {
					t.Error(err)
				}
				paid <- payment
			}()
			synctest.Wait()
			updates, err := w.client.Updates(w.Context(), 0, 10*time.Second, allowed)
			if err != nil || len(updates) == 0 {
				t.Fatalf("%d updates: %v", len(updates), err)
			}
			asked, err := telegramstars.Decode(updates[len(updates)-1])
			if err != nil || asked.PreCheckout == nil {
				t.Fatalf("%s: %v", updates, err)
			}
			if err := w.client.AnswerPreCheckout(w.Context(), asked.PreCheckout.ID, ""); err != nil {
				t.Fatal(err)
			}
			w.failsAs(w.client.AnswerPreCheckout(w.Context(), asked.PreCheckout.ID, ""), botapi.ErrRejected)
			w.bot.Fail(fakeapi.Fault{Kind: fakeapi.Broken}) // the first may have been the one that counted
			w.failsAs(w.client.AnswerPreCheckout(w.Context(), asked.PreCheckout.ID, "no"), botapi.ErrUncertain)
			charges = append(charges, (<-paid).ChargeID)
			if updates, err = w.client.Updates(w.Context(), asked.ID+1, 10*time.Second, nil); err != nil || len(updates) != 1 {
				t.Fatalf("%s %v", updates, err)
			}
		}
		w.bot.Fail(fakeapi.Fault{Kind: fakeapi.LoseAnswer, Method: "refundStarPayment"})
		for range 2 {
			if err := w.client.RefundStars(w.Context(), 42, charges[0]); err != nil {
				t.Error(err)
			}
		}
		w.failsAs(w.client.RefundStars(w.Context(), 42, "of nobody"), botapi.ErrRejected)
		w.bot.Fail(fakeapi.Fault{Kind: fakeapi.TooMany, RetryAfter: 3}, fakeapi.Fault{Kind: fakeapi.Broken}, fakeapi.Fault{Kind: fakeapi.LoseAnswer})
		listed, err := w.client.StarTransactions(w.Context(), 0, 100)
		if err != nil || len(listed) != 3 {
			t.Fatalf("%+v %v", listed, err)
		}
		w.is("the payment and its refund", fmt.Sprint(listed[0].Source.InvoicePayload, listed[2].ID == charges[0], listed[2].Receiver.User.ID, listed[1].Source.SubscriptionPeriod), "order-1true 42 2592000")

		action := telegramstars.Action{Kind: telegramstars.CancelSubscription, User: 42, ChargeID: charges[1]}
		for range 2 {
			if err := w.client.Do(w.Context(), action); err != nil {
				t.Error(err)
			}
		}
		if err := w.client.EditStarSubscription(w.Context(), 42, charges[1], false); err != nil {
			t.Error(err)
		}
		if err := w.client.Do(w.Context(), telegramstars.Action{Kind: "other"}); err == nil {
			t.Error("it did what it does not know")
		}
	})
}

func TestWhatTelegramWouldNotTakeOfAnInvoiceIsNotSent(t *testing.T) {
	inBubble(t, func(w *world) {
		whole := botapi.Invoice{Chat: 42, Title: "T", Description: "D", Payload: "p", Stars: 1}
		for what, change := range map[string]func(i *botapi.Invoice){
			"no title":            func(i *botapi.Invoice) { i.Title = "" },
			"no payload":          func(i *botapi.Invoice) { i.Payload = "" },
			"a long payload":      func(i *botapi.Invoice) { i.Payload = strings.Repeat("ж", 65) },
			"nothing to pay":      func(i *botapi.Invoice) { i.Stars = 0 },
			"a dear subscription": func(i *botapi.Invoice) { i.Subscription, i.Stars = true, 10001 },
		} {
			invoice := whole
			change(&invoice)
			if _, err := w.client.InvoiceLink(w.Context(), invoice); !errors.Is(err, botapi.ErrRejected) {
				t.Errorf("%s: %v", what, err)
			}
		}
		whole.Subscription = true
		_, err := w.client.SendInvoice(w.Context(), whole)
		w.failsAs(err, botapi.ErrRejected)
		w.is("calls", w.calls("createInvoiceLink")+w.calls("sendInvoice"), 0)
	})
}

func TestAWebhookAndPollsExcludeEachOther(t *testing.T) {
	inBubble(t, func(w *world) {
		hook := botapi.Webhook{URL: "https://bot.example/hook", Secret: "s3cret", Allowed: []string{"message", "pre_checkout_query"}, MaxConnections: 5}
		if err := w.client.SetWebhook(w.Context(), hook); err != nil {
			t.Fatal(err)
		}
		info, err := w.client.WebhookInfo(w.Context())
		w.is("it says", fmt.Sprint(info.URL, info.Allowed, info.Pending, err), "https://bot.example/hook[message pre_checkout_query] 0 <nil>")
		_, err = w.client.Updates(w.Context(), 0, 0, nil)
		w.failsAs(err, botapi.ErrConflict)
		if err := w.client.DeleteWebhook(w.Context()); err != nil {
			t.Fatal(err)
		}
		w.ann.Send("hello")
		updates, err := w.client.Updates(w.Context(), 0, 0, nil)
		if err != nil || len(updates) != 1 || !bytes.Contains(updates[0], []byte(`"hello"`)) {
			t.Errorf("%s %v", updates, err)
		}
		began := time.Now()
		first, err := telegramstars.Decode(updates[0])
		if err != nil {
			t.Fatal(err)
		}
		updates, err = w.client.Updates(w.Context(), first.ID+1, 40*time.Second, nil)
		if err != nil || len(updates) != 0 || time.Since(began) != 40*time.Second {
			t.Errorf("an empty poll: %s %v after %s", updates, err, time.Since(began))
		}
		if err := w.client.SetCommands(w.Context(), "ru", []botapi.Command{{Name: "balance", Description: "Баланс"}}); err != nil {
			t.Error(err)
		}
		w.is("the menu", w.bot.Commands("ru"), `[{"command":"balance","description":"Баланс"}]`)
		id, name, err := w.client.Me(w.Context())
		w.is("the bot", fmt.Sprint(id, name, err), fmt.Sprint(w.bot.ID(), w.bot.Username(), nil))
	})
}

// wordsOf are all the texts that an error has, whichever way it is printed or taken apart.
func wordsOf(err error) string {
	words := fmt.Sprintf("%v %+v %#v %q\n", err, err, err, err)
	switch wrapped := err.(type) {
	case interface{ Unwrap() error }:
		if inner := wrapped.Unwrap(); inner != nil {
			words += wordsOf(inner)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapped.Unwrap() {
			words += wordsOf(inner)
		}
	}
	return words
}

// Acceptance test 25.
func TestTheTokenIsInNoErrorAndNoLogLine(t *testing.T) {
	answer := func(handler http.HandlerFunc) string {
		s := httptest.NewServer(handler)
		t.Cleanup(s.Close)
		return s.URL
	}
	nobody := httptest.NewServer(nil)
	nobody.Close()
	elsewhere := 0
	other := answer(func(http.ResponseWriter, *http.Request) { elsewhere++ })
	for what, url := range map[string]string{
		"nobody is there":       nobody.URL,
		"there is no such host": "http://host.invalid",
		"no scheme":             "host.invalid",
		"no URL":                "http://%zz",
		"TLS":                   strings.Replace(other, "http:", "https:", 1),
		"not JSON":              answer(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.URL.String()) }),
		"another JSON":          answer(func(w http.ResponseWriter, r *http.Request) { _, _ = fmt.Fprintf(w, "%q", r.URL) }),
		"another result": answer(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, `{"ok": true, "result": %q}`, r.URL)
		}),
		"a refusal that says it": answer(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprintf(w, `{"ok": false, "error_code": 400, "description": %q}`, r.URL)
		}),
		"a page": answer(func(w http.ResponseWriter, r *http.Request) { http.Error(w, r.URL.String(), http.StatusBadGateway) }),
		"a redirect": answer(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other+r.URL.Path, http.StatusTemporaryRedirect)
		}),
		"a broken connection": answer(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }),
		"half an answer": answer(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"ok": tr`)
		}),
		"no end of it": answer(func(w http.ResponseWriter, _ *http.Request) {
			for range 20 {
				_, _ = w.Write(bytes.Repeat([]byte(" "), 1<<20))
			}
		}),
	} {
		var log bytes.Buffer
		c, err := botapi.New(botapi.Options{Token: token, URL: url, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // it tries again later than that
		_, sent := c.Send(ctx, botapi.Message{Chat: 42, Text: "?", AtLeastOnce: true})
		_, _, me := c.Me(ctx)
		_, photo := c.SendPhoto(ctx, botapi.Photo{Chat: 42, Data: []byte("picture")})
		_, listed := c.StarTransactions(ctx, 0, 100)
		_, polled := c.Updates(ctx, 0, 0, nil)
		cancel()
		for method, err := range map[string]error{"send": sent, "me": me, "photo": photo, "transactions": listed, "updates": polled} {
			if err == nil {
				t.Errorf("%s, %s: no error", what, method)
			} else if words := wordsOf(err) + log.String(); strings.Contains(words, "not-a-secret") {
				t.Errorf("%s, %s: the token is in\n%s", what, method, words)
			}
		}
	}
	if elsewhere > 0 {
		t.Error("it followed a redirect with the token")
	}
	for _, malformed := range []string{"", "not-a-secret", "1:not-a-secret/../x", "1:not-a-secret\n", "not-a-secret:1"} {
		if _, err := botapi.New(botapi.Options{Token: malformed}); err == nil || strings.Contains(err.Error(), "not-a-secret") {
			t.Errorf("%q: %v", malformed, err)
		}
	}
}

func TestTheTestEnvironmentHasAnotherAddress(t *testing.T) {
	var paths []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.Path)
		_, _ = io.WriteString(w, `{"ok": true, "result": {}}`)
	}))
	defer s.Close()
	c, err := botapi.New(botapi.Options{Token: token, URL: s.URL + "/", Test: true})
	if err != nil {
		t.Fatal(err)
	}
	_, _, failed := c.Me(t.Context())
	_, listFailed := c.StarTransactions(t.Context(), 0, 1)
	if failed != nil || listFailed != nil || fmt.Sprint(paths) != "[/bot"+token+"/test/getMe /bot"+token+"/test/getStarTransactions]" {
		t.Errorf("%v %v %v", paths, failed, listFailed)
	}
}
