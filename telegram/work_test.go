package telegram_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/jobs"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/telegram"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

func TestAMessageBecomesWorkAndItsResultIsTheReply(t *testing.T) {
	onEveryStore(t, func(s *stage) {
		s.start(withoutWorkers)
		ann := s.person(42, "en")
		prompt := ann.Send("dear sir")
		status := s.shows(ann, "In the queue…")
		equal(s.T, "buttons while it waits", buttons(status), []string{"Cancel"})
		s.work()
		if status.ReplyTo != prompt {
			s.Errorf("the status message answers %d, wanted %d", status.ReplyTo, prompt)
		}
		j := s.begun()
		equal(s.T, "what is worked on", j.Prompt.Text, "dear sir")
		working := s.shows(ann, "Working on it…")
		equal(s.T, "buttons while it cannot be cancelled", len(working.Keyboard), 0)
		j.succeed("Dear Sir,")
		result := s.shows(ann, "Dear Sir,")
		if result.ReplyTo != prompt {
			s.Errorf("the result answers %d, wanted %d", result.ReplyTo, prompt)
		}
		s.gone(ann, status.ID)
		equal(s.T, "charged", s.charged(42), 1)
		s.until("what was noted of the work went", func() bool { return len(s.notes("work:")) == 0 })
		equal(s.T, "texts", s.shown(42), []string{"In the queue…", "Working on it…", "Dear Sir,"})
	})
}

// 16 of the acceptance tests.
func TestOfAHundredRequestsAtOnceOnABalanceOfFiveExactlyFiveAreTaken(t *testing.T) {
	s := newStage(t)
	s.catalog.Plans[0].MaxActive = 100
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	groups := make([]*fakeapi.Person, 25)
	for i := range groups {
		groups[i] = ann.In(s.bot.Group(-int64(1000+i), "group"))
	}
	s.bot.Hold() // the updates are given to the kit all at once, not one after the other
	var updates []fakeapi.Update
	for range 4 {
		for _, g := range groups {
			g.Send("/improve dear sir")
		}
	}
	updates = s.bot.Pending()
	equal(t, "updates", len(updates), 100)
	var taken, refused atomic.Int64
	var all sync.WaitGroup
	for _, u := range updates {
		all.Go(func() {
			done, err := s.kit.Take(s.within(), u.Raw)
			switch {
			case err != nil:
				t.Error(err)
			case done.Reservation != "":
				taken.Add(1)
			case done.Refused == holdfast.Insufficient || done.Refused == holdfast.HeldByActive:
				refused.Add(1)
			default:
				t.Errorf("neither taken nor refused: %+v", done)
			}
		})
	}
	all.Wait()
	equal(t, "taken", taken.Load(), 5)
	equal(t, "refused", refused.Load(), 95)
	equal(t, "left", s.balance(42), holdfast.Balance{Unit: "credit", Reserved: 5, Cycle: s.balance(42).Cycle, ResetsAt: s.balance(42).ResetsAt})
	transcript := s.server.Transcript()
	equal(t, "status messages", len(transcript.Where(fakeapi.Shown("In the queue…"))), 5)
	equal(t, "refusals told", len(transcript.Where(fakeapi.Shown("No free requests"))), 95)
}

// 17 of the acceptance tests.
func TestCancelAgainstStartSaysWhatWasCharged(t *testing.T) {
	s := newStage(t)
	s.start()
	var people []*fakeapi.Person
	for i := range 20 {
		people = append(people, s.person(int64(100+i), "en"))
	}
	go func() { // whatever begins succeeds
		for j := range s.jobs {
			j.succeed("the result")
		}
	}()
	t.Cleanup(func() { s.end(); close(s.jobs) })
	var all sync.WaitGroup
	for _, p := range people {
		all.Go(func() {
			p.Send("dear sir")
			status, err := p.Await(s.within(), func(m fakeapi.Message) bool { return len(m.Keyboard) > 0 || m.Text == "the result" })
			if err != nil {
				t.Error(err)
				return
			}
			if len(status.Keyboard) == 0 {
				return // the worker was so fast that there was nothing to cancel
			}
			tap, err := p.TapStale(status.ID, status.Keyboard[0][0].Data)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := tap.Answer(s.within()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	cancelled := 0
	for _, p := range people {
		charged := s.charged(p.ID())
		s.until("what is shown is final", func() bool {
			m := p.Last()
			return m.Text == "the result" || strings.HasPrefix(m.Text, "The request was cancelled")
		})
		var result, saysCancelled bool
		for _, m := range p.Messages() {
			result = result || m.Text == "the result"
			saysCancelled = saysCancelled || strings.Contains(m.Text, "cancelled. Nothing was charged.")
		}
		switch {
		case charged == 1 && result && !saysCancelled:
		case charged == 0 && !result && saysCancelled:
			cancelled++
		default:
			t.Errorf("charged %d, the result is there: %v, cancelled is said: %v\n%q", charged, result, saysCancelled, s.shown(p.ID()))
		}
	}
	t.Logf("%d of %d were cancelled in time", cancelled, len(people))
}

func TestACancelBeforeTheStartIsToldWhereTheStatusWasAndOnce(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers)
	ann := s.person(42, "ru")
	ann.Send("дорогой друг")
	status := s.shows(ann, "В очереди…")
	answer := s.tap(ann, status.ID, "Отменить")
	if !strings.Contains(answer.Text, "Ничего не списано.") || !answer.Alert {
		t.Errorf("the tap is answered with %+v", answer)
	}
	final := s.shows(ann, "Запрос отменён")
	equal(t, "the message that tells it", final.ID, status.ID)
	equal(t, "buttons", len(final.Keyboard), 0)
	equal(t, "charged", s.charged(42), 0)
	s.settled()
	s.work()
	s.until("nothing is left to be told", func() bool { return len(s.notes("later:")) == 0 })
	equal(t, "texts", len(s.shown(42)), 2)
}

// 18 of the acceptance tests.
func TestThreeTapsOnCancelAreAllAnsweredSensibly(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	ann.Send("dear sir")
	status := s.shows(ann, "In the queue…")
	data := status.Keyboard[0][0].Data
	answers := make([]fakeapi.Answer, 3)
	var all sync.WaitGroup
	for i := range answers {
		tap, err := ann.TapStale(status.ID, data)
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() { answers[i] = s.answer(tap) })
	}
	all.Wait()
	for _, answer := range answers {
		if !strings.HasPrefix(answer.Text, "The request was cancelled. Nothing was charged.") {
			t.Errorf("a tap is answered with %q", answer.Text)
		}
	}
	s.settled()
	equal(t, "texts", len(slices.Compact(s.shown(42))), 2)
	equal(t, "charged", s.charged(42), 0)

	// Long after, when nothing is noted of it any more, the answer is the same.
	tap, err := ann.TapStale(status.ID, data)
	if err != nil {
		t.Fatal(err)
	}
	if answer := s.answer(tap); !strings.HasPrefix(answer.Text, "The request was cancelled. Nothing was charged.") {
		t.Errorf("a late tap is answered with %q", answer.Text)
	}
}

// 19 of the acceptance tests.
func TestAQueueNoticeThatIsDueWhenTheJobFinishesIsNotShown(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.person(42, "en")
	ann.Send("dear sir")
	s.shows(ann, "Working on it…")
	j := s.begun()
	ref := j.ID
	notice := outbox.Event{ID: "evt_queued", Type: holdfast.EventNoticeQueued, Account: "telegram:42", Data: outbox.EventData{Reservation: &ref}}
	var all sync.WaitGroup
	all.Go(func() { j.succeed("Dear Sir,") })
	all.Go(func() { s.tell(notice) }) // at the very moment
	all.Wait()
	s.shows(ann, "Dear Sir,")
	notice.ID = "evt_queued_again"
	s.tell(notice) // and long after
	s.settled()
	if err := s.server.Transcript().NeverAfter(fakeapi.Shown("Your request is waiting for its turn"), fakeapi.Shown("Dear Sir,")); err != nil {
		t.Error(err)
	}
	equal(t, "queue notices", len(s.server.Transcript().Where(fakeapi.Shown("Your request is waiting for its turn"))), 0)
	equal(t, "charged", s.charged(42), 1)
}

func TestTheQueueNoticeChangesTheStatusMessageOnceAndKeepsItsButton(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	ann.Send("dear sir")
	status := s.shows(ann, "In the queue…")
	ref := strings.TrimPrefix(status.Keyboard[0][0].Data, "cancel:")
	notice := outbox.Event{ID: "evt_queued", Type: holdfast.EventNoticeQueued, Account: "telegram:42", Data: outbox.EventData{Reservation: &ref}}
	s.tell(notice)
	s.tell(notice)
	waiting := s.shows(ann, "Your request is waiting for its turn")
	equal(t, "the message", waiting.ID, status.ID)
	equal(t, "edits", waiting.Edits, 1)
	s.tap(ann, waiting.ID, "Cancel")
	s.shows(ann, "The request was cancelled")
}

// 20 of the acceptance tests.
func TestARestartLeavesNoButtonThatDoesNothing(t *testing.T) {
	onEveryStore(t, func(s *stage) {
		s.start(withoutWorkers)
		ann, bob, eve := s.person(42, "en"), s.person(43, "en"), s.person(44, "en")
		eve.Send("dear all")
		runs := s.shows(eve, "In the queue…")
		s.handled()
		claimed, err := s.engine.Claim(s.Context(), engine.ClaimRequest{Project: project, Claim: holdfast.Claim{Queue: "text.standard", Worker: "another", Lease: time.Hour}})
		if err != nil || len(claimed) != 1 { // and the process dies before it could show that
			s.Fatalf("%v %v", claimed, err)
		}
		ann.Send("dear sir")
		bob.Send("dear madam")
		ended, waits := s.shows(ann, "In the queue…"), s.shows(bob, "In the queue…")
		ref := strings.TrimPrefix(ended.Keyboard[0][0].Data, "cancel:")
		account, id, err := holdfast.ReservationRef.Parse(ref)
		if err != nil {
			s.Fatal(err)
		}
		s.bot.Fail(fakeapi.Fault{Kind: fakeapi.Broken, Chat: 42, Times: 1000}) // and so the person cannot be told that it ended
		_, err = s.engine.Submit(s.Context(), holdfast.Command{
			ID: engine.NewID(), Project: project, Target: account, Do: holdfast.Force{ReservationID: id, End: holdfast.EndRelease, Reason: "test"},
		})
		if err != nil {
			s.Fatal(err)
		}
		s.end() // the process dies
		s.bot.Heal()
		s.start()
		s.gone(ann, ended.ID)
		s.shows(ann, "The request was stopped. Nothing was charged.")
		for _, m := range ann.Messages() {
			for _, row := range m.Keyboard {
				for _, b := range row {
					if strings.HasPrefix(b.Data, "cancel:") {
						s.Errorf("%q still has a Cancel button", m.Text)
					}
				}
			}
		}
		equal(s.T, "the message of what runs", s.shows(eve, "Working on it…").ID, runs.ID)
		for _, m := range eve.Messages() {
			equal(s.T, "buttons of what runs and cannot be cancelled", buttons(m), nil)
		}
		// What lives goes on, under its old message.
		s.begun().succeed("Dear Madam,")
		s.shows(bob, "Dear Madam,")
		s.gone(bob, waits.ID)
		equal(s.T, "told once", len(s.server.Transcript().Where(fakeapi.Shown("The request was stopped"))), 1)
	})
}

// 22 of the acceptance tests.
func TestWhoHasBlockedTheBotIsToldNothingMore(t *testing.T) {
	s := newStage(t)
	s.start()
	ann, bob := s.person(42, "en"), s.person(43, "en")
	for _, p := range []*fakeapi.Person{ann, bob} {
		p.Send("dear sir")
		s.begun().succeed("Dear Sir,")
		s.shows(p, "Dear Sir,")
	}
	ann.Block()
	s.until("the block is noted", func() bool { return strings.Contains(s.personOf(42), `"gone"`) })
	renewed := func(id string, user int64) {
		s.tell(outbox.Event{ID: id, Type: holdfast.EventNoticeRenewed, Account: telegram.AccountName(user)})
	}
	renewed("evt_1", 42)
	renewed("evt_2", 43)
	renewed("evt_3", 44) // has never started the bot
	s.shows(bob, "Your free allowance is there again.")
	s.until("notices that wait were looked at", func() bool { return len(s.notes("later:")) == 0 })
	equal(t, "notices", len(s.server.Transcript().Where(fakeapi.Shown("Your free allowance is there again."))), 1)
	equal(t, "calls that were refused", s.log.count("403"), 0)

	ann.Unblock()
	s.until("the bot may write again", func() bool { return !strings.Contains(s.personOf(42), `"gone"`) })
	renewed("evt_4", 42)
	notice := s.shows(ann, "Your free allowance is there again.")
	renewed("evt_4", 42) // the same, once more
	answer := s.tap(ann, notice.ID, "Do not tell me")
	equal(t, "answer", answer.Text, "You will not be told of this any more.")
	renewed("evt_5", 42)
	s.until("notices that wait were looked at", func() bool { return len(s.notes("later:")) == 0 })
	equal(t, "notices", len(s.server.Transcript().Where(fakeapi.Shown("Your free allowance is there again."))), 2)
}

// 23 of the acceptance tests.
func TestAResultThatTelegramDoesNotTakeYetIsDeliveredLaterAndChargedOnce(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.person(42, "en")
	ann.Send("dear sir")
	j := s.begun()
	s.shows(ann, "Working on it…")
	s.bot.Fail(fakeapi.Fault{Kind: fakeapi.TooMany, Method: "sendMessage", RetryAfter: 1, Times: 2})
	j.succeed("Dear Sir,")
	equal(t, "charged before the result is there", s.balance(42).Reserved, 1)
	s.shows(ann, "Dear Sir,")
	equal(t, "charged", s.charged(42), 1)
	s.settled()
	equal(t, "results", len(s.server.Transcript().Where(fakeapi.Shown("Dear Sir,"))), 1)
	equal(t, "times that it was worked", len(s.jobs), 0)
}

func TestAResultThatCouldNotBeDeliveredInTimeIsNotWorkedForTwice(t *testing.T) {
	s := newStage(t)
	s.catalog.Features[0].LongestJob = 2 * time.Second
	s.start()
	ann := s.person(42, "en")
	ann.Send("dear sir")
	j := s.begun()
	s.shows(ann, "Working on it…")
	s.bot.Fail(fakeapi.Fault{Kind: fakeapi.TooMany, Method: "sendMessage", RetryAfter: 3})
	j.succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,") // by another attempt
	equal(t, "charged", s.charged(42), 1)
	if r := s.reservations(42)[0]; r.Attempts < 2 {
		t.Errorf("it took %d attempts, so this test shows nothing", r.Attempts)
	}
	equal(t, "times that it was worked again", len(s.jobs), 0)
	s.settled()
	equal(t, "results", len(s.server.Transcript().Where(fakeapi.Shown("Dear Sir,"))), 1)
}

func TestWhoHasBlockedTheBotIsNotCharged(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.person(42, "en")
	ann.Send("dear sir")
	j := s.begun()
	s.shows(ann, "Working on it…")
	ann.Block()
	j.succeed("Dear Sir,")
	equal(t, "charged", s.charged(42), 0)
	equal(t, "cause", s.reservations(42)[0].Cause, telegram.CauseUnreachable)
	s.settled()
	equal(t, "notes", len(s.notes("work:")), 0)
	ann.Unblock()
	ann.Send("dear sir")
	s.begun().succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	equal(t, "charged", s.charged(42), 1)
}

func TestWorkThatFailsIsToldInOurWordsWithANumberAndCanBeRepeated(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.person(42, "en")
	prompt := ann.Send("dear sir")
	s.begun().fail(jobs.Fail(jobs.CauseContentRefused, errors.New("PROVIDER SAYS: key sk-123 flagged")))
	failed := s.shows(ann, "The request did not succeed. Nothing was charged.")
	equal(t, "replies to", failed.ReplyTo, prompt)
	ref := holdfast.ReservationRef.Encode(holdfast.AccountIDOf(project, "telegram:42"), s.reservations(42)[0].ID)
	if short := telegram.ShortID(ref); !strings.Contains(failed.Text, short) || !strings.Contains(ref, short) || len(short) != 8 {
		t.Errorf("%q does not name %s of %s", failed.Text, short, ref)
	}
	if strings.Contains(s.transcript(), "PROVIDER") {
		t.Error("a person was shown what the provider said")
	}
	equal(t, "times logged", s.log.count("PROVIDER"), 1)

	s.tap(ann, failed.ID, "Try again")
	j := s.begun()
	equal(t, "what is worked on", j.Prompt.Text, "dear sir")
	j.succeed("Dear Sir,")
	result := s.shows(ann, "Dear Sir,")
	equal(t, "replies to", result.ReplyTo, prompt)
	equal(t, "charged", s.charged(42), 1)
	s.gone(ann, failed.ID) // it became the status message
}

func TestWorkThatPanicsIsTriedAgainThenReleasedToldAndLogged(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.person(42, "en")
	ann.Send("dear sir")
	for range holdfast.DefaultAttempts {
		s.begun().panic("an author's mistake")
	}
	s.shows(ann, "The request did not succeed. Nothing was charged.")
	equal(t, "charged", s.charged(42), 0)
	equal(t, "cause", s.reservations(42)[0].Cause, holdfast.CauseCrashed)
	s.settled()
	equal(t, "told", len(s.server.Transcript().Where(fakeapi.Shown("The request did not succeed."))), 1)
	equal(t, "notes", len(s.notes("work:")), 0)
}

func TestTwoTapsOnAButtonAreOneIntention(t *testing.T) {
	s := newStage(t)
	prepare := s.prepare
	s.prepare = func(k *telegram.Kit) {
		prepare(k)
		k.Command("menu", func(ctx context.Context, turn *telegram.Turn) error {
			_, err := turn.Reply(ctx, "What shall it be?", botapi.Keyboard{{{Text: "A letter", Data: telegram.Data("letter", telegram.Nonce())}}})
			return err
		})
		k.Button("letter", func(ctx context.Context, turn *telegram.Turn) error {
			_, err := turn.Ask(ctx, telegram.Ask{Feature: "text.improve", Text: "a letter"})
			return err
		})
	}
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	ann.Send("/menu")
	menu := s.shows(ann, "What shall it be?")
	var taps []*fakeapi.Tap
	for range 2 {
		tap, err := ann.Tap(menu.ID, "A letter")
		if err != nil {
			t.Fatal(err)
		}
		taps = append(taps, tap)
	}
	answers := []string{s.answer(taps[0]).Text, s.answer(taps[1]).Text}
	slices.Sort(answers)
	equal(t, "answers", answers, []string{"", "This was pressed already: it counts once."})
	equal(t, "reserved", s.balance(42).Reserved, 1)
	s.until("there is one status message", func() bool { return len(s.server.Transcript().Where(fakeapi.Shown("In the queue…"))) == 1 })

	ann.Send("/menu") // the same button of another message is another intention
	s.until("there are two menus", func() bool { return ann.Last().ID != menu.ID && ann.Last().Text == menu.Text })
	s.tap(ann, ann.Last().ID, "A letter")
	equal(t, "reserved", s.balance(42).Reserved, 2)
}

func TestTwoTapsThatAreRefusedAreToldOnceAndALaterOneIsDecidedAfresh(t *testing.T) {
	s := newStage(t)
	prepare := s.prepare
	s.prepare = func(k *telegram.Kit) {
		prepare(k)
		k.Button("video", func(ctx context.Context, turn *telegram.Turn) error {
			_, err := turn.Ask(ctx, telegram.Ask{Feature: "image.generate", Quantity: 2, Text: "two cats"})
			return err
		})
	}
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	menu := s.post(ann.ID(), "What shall it be?", "video:1")
	first, second := s.tap(ann, menu, "Go"), s.tap(ann, menu, "Go")
	equal(t, "answers", []string{first.Text, second.Text}, []string{"", "This was pressed already: it counts once."})
	refused := fakeapi.Shown("Needed: 10 credits.")
	equal(t, "refusals told", len(s.server.Transcript().Where(refused)), 1)

	s.grant("telegram:42", 50)
	s.age("refused:", 10*time.Second)
	equal(t, "answer", s.tap(ann, menu, "Go").Text, "")
	s.shows(ann, "In the queue…")
	equal(t, "reserved", s.balance(42).Reserved, 10)
	equal(t, "answer", s.tap(ann, menu, "Go").Text, "This was pressed already: it counts once.")
	equal(t, "reserved", s.balance(42).Reserved, 10)
}

func TestRepeatAfterARefusalIsAnotherIntentionAndTwoTapsOnItAreOne(t *testing.T) {
	s := newStage(t)
	s.catalog.Plans[0].MaxActive = 1
	s.start()
	ann := s.person(42, "en")
	ann.Send("first")
	first := s.begun()
	ann.Send("second")
	refusal := s.shows(ann, "Please wait until the current request finishes.")
	again, _ := refusal.Button("Try again")

	// Pressed too early it is refused again, in the same message, with a button of its own.
	s.tap(ann, refusal.ID, "Try again")
	s.until("the button is another one", func() bool {
		m, _ := ann.Message(refusal.ID)
		b, there := m.Button("Try again")
		return there && b.Data != again.Data
	})
	stale, err := ann.TapStale(refusal.ID, again.Data)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "answer to the old button", s.answer(stale).Text, "This was pressed already: it counts once.")

	first.succeed("FIRST")
	s.shows(ann, "FIRST")
	s.charged(42)
	m, _ := ann.Message(refusal.ID)
	fresh, _ := m.Button("Try again")
	var answers []string
	for range 2 {
		tap, err := ann.TapStale(refusal.ID, fresh.Data)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, s.answer(tap).Text)
	}
	slices.Sort(answers)
	equal(t, "answers", answers, []string{"", "This was pressed already: it counts once."})
	j := s.begun()
	equal(t, "what is worked on", j.Prompt.Text, "second")
	j.succeed("SECOND")
	s.shows(ann, "SECOND")
	equal(t, "charged", s.charged(42), 2)
}

// What a crash between delivery and charge comes to: the charge is lost, and the job is given away again.
func TestAResultThatWasDeliveredIsNotDeliveredAgainByTheNextAttempt(t *testing.T) {
	s := newStage(t)
	var u *unruly
	s.around = func(e telegram.Engine) telegram.Engine {
		u = &unruly{Engine: e}
		return u
	}
	s.start()
	ann := s.person(42, "en")
	ann.Send("dear sir")
	j := s.begun()
	u.noCommits.Store(1)
	j.succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	equal(t, "charged", s.charged(42), 1)
	if r := s.reservations(42)[0]; r.Attempts != 2 {
		t.Errorf("it took %d attempts, so this test shows nothing", r.Attempts)
	}
	s.settled()
	equal(t, "results", len(s.server.Transcript().Where(fakeapi.Shown("Dear Sir,"))), 1)
	equal(t, "times that it was worked again", len(s.jobs), 0)
}

func TestAnUpdateThatComesAgainStartsNothingAgain(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.person(42, "en")
	ann.Send("dear sir")
	j := s.begun()
	s.shows(ann, "Working on it…")
	j.succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	s.charged(42)
	s.settled()
	raw := s.bot.Updates("message")[0].Raw
	for range 3 {
		done, err := s.kit.Take(s.within(), raw)
		if err != nil || done.Reservation == "" {
			t.Errorf("%+v, %v", done, err)
		}
	}
	equal(t, "charged", s.charged(42), 1)
	equal(t, "results", len(s.server.Transcript().Where(fakeapi.Shown("Dear Sir,"))), 1)
	equal(t, "status messages", len(s.server.Transcript().Where(fakeapi.Call("sendMessage"))), 2)
}

func TestARefusalSaysTheNumbersAndOffersWhatHelps(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers)
	ann := s.person(42, "ru")
	ann.Send("/image кот")
	s.shows(ann, "В очереди…")
	ann.Send("ещё")
	refusal := s.shows(ann, "Свободных запросов нет")
	equal(t, "buttons", buttons(refusal), []string{"Тарифы", "Повторить"})
	ann.Send("/video кот")
	refusal = s.shows(ann, "На вашем тарифе нет функции «Видео».")
	equal(t, "buttons", buttons(refusal), []string{"Тарифы", "Повторить"})
	bob := s.person(43, "en")
	bob.Send("/image")
	s.shows(bob, "Please write what you want behind the command")
	equal(t, "reserved", s.balance(43).Reserved, 0)
}

func buttons(m fakeapi.Message) []string {
	var texts []string
	for _, row := range m.Keyboard {
		for _, b := range row {
			texts = append(texts, b.Text)
		}
	}
	return texts
}

func TestRunningWorkThatIsAskedToStopChargesWhatItNamed(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.person(42, "en")
	ann.Send("/image a cat")
	j := s.begun()
	working := s.shows(ann, "Working on it…")
	equal(t, "buttons", buttons(working), []string{"Cancel"})
	s.until("the chat shows what is done", func() bool { return ann.Action() == "upload_photo" })
	j.Charge(3) // what it has come to by now; when its context ends it returns
	answer := s.tap(ann, working.ID, "Cancel")
	equal(t, "answer", answer.Text, "Stopping…")
	stopping := s.shows(ann, "Stopping…")
	equal(t, "buttons", len(stopping.Keyboard), 0)
	<-j.ctx.Done() // with the next heartbeat
	equal(t, "cause", context.Cause(j.ctx).Error(), engine.ErrCancelRequested.Error())
	s.shows(ann, "Charged: 3 credits.")
	equal(t, "charged", s.charged(42), 3)
	s.gone(ann, working.ID)
}

func TestStopBelowAnAnswerThatIsBeingWrittenCancelsTheWork(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.person(42, "en")
	ann.Send("/image a cat")
	j := s.begun()
	s.shows(ann, "Working on it…")
	draft, err := j.Draft(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	done, err := s.take(map[string]any{"update_id": 9_000_001, "stopped_message_generation": map[string]any{
		"chat": map[string]any{"id": 42, "type": "private"}, "draft_id": draft,
	}})
	if err != nil || !done.Handled {
		t.Fatalf("%+v, %v", done, err)
	}
	s.shows(ann, "Stopping…")
	j.fail(engine.ErrCancelRequested)
	s.shows(ann, "The request was cancelled. Nothing was charged.")
	equal(t, "charged", s.charged(42), 0)
}

func TestDoubtIsToldAndHowItEndedToo(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.person(42, "en")
	ann.Send("dear sir")
	s.begun().fail(fmt.Errorf("the connection broke: %w", engine.ErrInDoubt))
	s.shows(ann, "It is not known yet whether the request succeeded.")
	r := s.reservations(42)[0]
	account := holdfast.AccountIDOf(project, "telegram:42")
	_, err := s.engine.Submit(t.Context(), holdfast.Command{
		ID: engine.NewID(), Project: project, Target: account, Do: holdfast.Release{ReservationID: r.ID, Cause: "provider_unavailable"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.shows(ann, "The request did not succeed. Nothing was charged.")
	s.settled()
	equal(t, "notes", len(s.notes("work:")), 0)
}

func TestAStatusMessageIsEditedNoMoreOftenThanItMayBe(t *testing.T) {
	s := newStage(t)
	s.options.Editing = 3 * time.Second
	pause := make(chan time.Time)
	s.after = func(length time.Duration) <-chan time.Time {
		if length == s.options.Editing {
			return pause
		}
		return time.After(length)
	}
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	ann.Send("dear sir")
	s.shows(ann, "In the queue…")
	s.work()
	j := s.begun()
	s.shows(ann, "Working on it…")
	passes := func() {
		select {
		case pause <- time.Time{}:
		case <-s.within().Done():
			t.Fatal("nobody waits between two edits")
		}
	}
	for _, text := range []string{"10 %", "20 %", "30 %"} {
		j.Progress(text)
	}
	passes() // three seconds are over
	s.shows(ann, "30 %")
	j.Progress("40 %")
	j.Progress("50 %")
	passes()
	s.shows(ann, "50 %")
	j.Progress("60 %") // the work ends before that may be shown
	j.succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	s.charged(42)
	equal(t, "texts", s.shown(42), []string{"In the queue…", "Working on it…", "30 %", "50 %", "Dear Sir,"})
}

func TestAWorkersFailureThatMayPassPutsTheJobBackWithItsButton(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	ann.Send("dear sir")
	status := s.shows(ann, "In the queue…")
	s.work()
	j := s.begun()
	s.shows(ann, "Working on it…")
	j.fail(errors.New("the provider is overloaded"))
	// It is so for a second, and then the next attempt begins.
	queued := fakeapi.Shown("In the queue…").Of(status.ID)
	s.until("it waits again", func() bool { return len(s.server.Transcript().Where(queued)) == 2 })
	if again := s.server.Transcript().Where(queued)[1]; !strings.Contains(again.Parameters["reply_markup"], `"cancel:`) {
		t.Errorf("it waits again without a Cancel button: %v", again.Parameters)
	}
	s.begun().succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	equal(t, "charged", s.charged(42), 1)
}

func TestTheCoresNoticesReachThePerson(t *testing.T) {
	s := newStage(t)
	s.catalog.Plans[0].QueueNoticeAfter = time.Millisecond
	s.catalog.Plans[0].LowBalance = map[string]holdfast.Amount{"credit": 5}
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	ann.Send("dear sir")
	waiting := s.shows(ann, "Your request is waiting for its turn.")
	equal(t, "buttons", buttons(waiting), []string{"Cancel"})
	equal(t, "edits", waiting.Edits, 1)
	s.work()
	s.begun().succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	low := s.shows(ann, "Little is left. Available now: 4 credits.")
	equal(t, "buttons", buttons(low), []string{"Top up", "Do not tell me"})
	transcript := s.server.Transcript()
	if err := transcript.NeverAfter(fakeapi.Shown("waiting for its turn"), fakeapi.Shown("Dear Sir,")); err != nil {
		t.Error(err)
	}
	if err := transcript.NeverAfter(fakeapi.Shown("Dear Sir,"), fakeapi.Shown("Little is left.")); err != nil {
		t.Error(err)
	}
}

// One process takes the updates, another one does the work and tells what became of it.
func TestSeveralProcessesOfABotTellEverythingOnce(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers, withoutRelay)
	_, other := s.process(s.client(nil))
	s.relay(other)
	bob := s.person(42, "en") // before the workers begin, so that it can be cancelled
	bob.Send("dear sir")
	s.tap(bob, s.shows(bob, "In the queue…").ID, "Cancel")
	s.run(other.Run)
	go func() {
		for j := range s.jobs {
			j.succeed("the result")
		}
	}()
	t.Cleanup(func() { s.end(); close(s.jobs) })
	var people []*fakeapi.Person
	for i := range 20 {
		people = append(people, s.person(int64(100+i), "en"))
		people[i].Send("dear sir")
	}
	for _, p := range people {
		s.shows(p, "the result")
		equal(t, "charged", s.charged(p.ID()), 1)
	}
	s.settled()
	s.until("nothing is left to be told", func() bool { return len(s.notes("later:")) == 0 && len(s.notes("work:")) == 0 })
	for _, p := range people {
		for _, m := range p.Messages() {
			if m.From.IsBot && m.Text != "the result" {
				t.Errorf("%d is left with %q", p.ID(), m.Text)
			}
		}
	}
	equal(t, "results", len(s.server.Transcript().Where(fakeapi.Shown("the result"))), len(people))
	equal(t, "times that the cancel was told", len(s.server.Transcript().Where(fakeapi.Shown("The request was cancelled."))), 1)
}

func TestAStatusMessageThatComesLateFromAnotherProcessGoesAgain(t *testing.T) {
	s := newStage(t)
	slow := &gate{method: "sendMessage", asked: make(chan struct{}, 1), open: make(chan struct{})}
	s.http = &http.Client{Transport: slow}
	s.start(withoutWorkers, withoutRelay)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	ann := s.person(42, "en")
	ann.Send("dear sir")
	<-slow.asked // the status message is on its way
	_, other := s.process(s.client(nil))
	s.relay(other)
	s.run(other.Run)
	s.begun().succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	s.charged(42)
	s.settled() // the other process has told everything
	close(slow.open)
	late := fakeapi.Shown("In the queue…")
	s.until("the late status message was sent", func() bool { return len(s.server.Transcript().Where(late)) == 1 })
	s.gone(ann, s.server.Transcript().Where(late)[0].Message)
}

func TestTheChargeDoesNotWaitForTheStatusMessageToGo(t *testing.T) {
	s := newStage(t)
	slow := &gate{method: "deleteMessage", asked: make(chan struct{}, 1), open: make(chan struct{})}
	s.http = &http.Client{Transport: slow}
	s.start()
	ann := s.person(42, "en")
	ann.Send("dear sir")
	j := s.begun()
	status := s.shows(ann, "Working on it…")
	j.succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	<-slow.asked // Telegram takes its time
	equal(t, "charged", s.charged(42), 1)
	close(slow.open)
	s.gone(ann, status.ID)
}

func TestBotsOfOneProjectShareItsQueuesAndEachAnswersItsOwnPeople(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers)
	_, first := s.process(s.client(nil))
	s.options.Bot = "other_bot"
	_, second := s.process(s.clientOf(otherToken, nil))
	s.relay(second)
	s.run(func(ctx context.Context) error { return telegram.Run(ctx, first, second) })
	ann := s.person(42, "en")
	bob := s.server.Bot(otherToken).Person(fakeapi.User{ID: 43, FirstName: "Bob", LanguageCode: "en"})
	ann.Send("dear sir")
	if _, err := second.Take(s.within(), []byte(`{"update_id": 1, "message": {"message_id": 900, "from": {"id": 43}, "chat": {"id": 43, "type": "private"}, "text": "dear madam"}}`)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		j := s.begun()
		j.succeed(strings.ToUpper(j.Prompt.Text))
	}
	s.shows(ann, "DEAR SIR")
	s.shows(bob, "DEAR MADAM")
	equal(t, "charged", []holdfast.Amount{s.charged(42), s.charged(43)}, []holdfast.Amount{1, 1})
	for _, e := range s.server.Transcript().Where(fakeapi.Call("sendMessage")) {
		equal(t, "bot that wrote to "+fmt.Sprint(e.Chat), e.Bot, map[int64]int64{42: 7000001, 43: 7000002}[e.Chat])
	}
}

// A crowd that presses twice at once: everybody asks twice for the same by a button, and Telegram tells of half of it twice.
func TestOfACrowdThatPressesTwiceEachIsChargedOnceForOneResult(t *testing.T) {
	s := newStage(t)
	prepare := s.prepare
	s.prepare = func(k *telegram.Kit) {
		prepare(k)
		k.Button("letter", func(ctx context.Context, turn *telegram.Turn) error {
			_, err := turn.Ask(ctx, telegram.Ask{Feature: "text.improve", Text: "a letter"})
			return err
		})
	}
	s.start()
	go func() {
		for j := range s.jobs {
			j.succeed("the result")
		}
	}()
	t.Cleanup(func() { s.end(); close(s.jobs) })
	const crowd = 200
	people := make([]*fakeapi.Person, crowd)
	s.bot.RepeatNext("callback_query", crowd)
	var all sync.WaitGroup
	for i := range people {
		people[i] = s.person(int64(1000+i), "en")
		menu := s.post(people[i].ID(), "What shall it be?", "letter:"+telegram.Nonce())
		all.Go(func() {
			var answers []string
			for range 2 {
				tap, err := people[i].Tap(menu, "Go")
				if err != nil {
					t.Error(err)
					return
				}
				answer, err := tap.Answer(s.within())
				if err != nil {
					t.Error(err)
				}
				answers = append(answers, answer.Text)
			}
			slices.Sort(answers)
			equal(t, "answers", answers, []string{"", "This was pressed already: it counts once."})
		})
	}
	all.Wait()
	s.until("everybody is charged", func() bool {
		return !slices.ContainsFunc(people, func(p *fakeapi.Person) bool { b := s.balance(p.ID()); return b.Available != 4 || b.Reserved != 0 })
	})
	s.settled()
	transcript := s.server.Transcript()
	equal(t, "results", len(transcript.Where(fakeapi.Shown("the result"))), crowd)
	for _, p := range people {
		results := 0
		for _, m := range p.Messages() {
			if m.From.IsBot && m.Text != "the result" && m.Text != "What shall it be?" {
				t.Errorf("%d is left with %q", p.ID(), m.Text)
			}
			if m.Text == "the result" {
				results++
			}
		}
		equal(t, "results of one", results, 1)
	}
	s.until("nothing of the work is left to be shown", func() bool { return len(s.notes("work:")) == 0 })
	if strings.Contains(s.log.String(), "not-a-secret") {
		t.Error("the bot's token is in the log")
	}
}

func TestAResultThatTelegramCannotReadIsSentInAPlainerFormAndOneThatItNeverTakesIsNotCharged(t *testing.T) {
	s := newStage(t)
	s.start()
	ann, bob, eve := s.person(42, "en"), s.person(43, "en"), s.person(44, "en")
	result := func(p *fakeapi.Person, r telegram.Result, fault fakeapi.Fault) {
		p.Send("dear sir")
		j := s.begun()
		s.shows(p, "Working on it…")
		fault.Kind, fault.Chat = fakeapi.Refused, p.ID()
		s.bot.Fail(fault)
		j.ends <- func() (telegram.Result, error) { return r, nil }
	}
	result(ann, telegram.Result{Text: "<b>Dear Sir,", HTML: true}, fakeapi.Fault{Method: "sendMessage", Description: "can't parse entities"})
	s.shows(ann, "<b>Dear Sir,")
	equal(t, "charged", s.charged(42), 1)

	result(bob, telegram.Result{Text: "A cat", PhotoURL: "https://pictures.example/cat.png"}, fakeapi.Fault{Method: "sendPhoto", Description: "wrong file identifier/HTTP URL specified"})
	s.shows(bob, "A cat\nhttps://pictures.example/cat.png")
	equal(t, "charged", s.charged(43), 1)

	result(eve, telegram.Result{Photo: []byte("no picture")}, fakeapi.Fault{Method: "sendPhoto", Description: "IMAGE_PROCESS_FAILED"})
	s.shows(eve, "The request did not succeed. Nothing was charged.")
	equal(t, "charged", s.charged(44), 0)
	equal(t, "cause", s.reservations(44)[0].Cause, telegram.CauseUndeliverable)
}

func TestAPictureIsTheReplyAndWorkThatComesToNothingIsNotCharged(t *testing.T) {
	s := newStage(t)
	s.start()
	ann, bob := s.person(42, "en"), s.person(43, "en")
	prompt := ann.Send("/image a cat")
	s.begun().ends <- func() (telegram.Result, error) { return telegram.Result{Photo: []byte("\x89PNG"), Text: "A cat"}, nil }
	picture := s.shows(ann, "A cat")
	if picture.Photo == "" || picture.ReplyTo != prompt {
		t.Errorf("the result is %+v", picture)
	}
	equal(t, "charged", s.charged(42), 5)
	bob.Send("dear sir")
	s.begun().ends <- func() (telegram.Result, error) { return telegram.Result{}, nil }
	s.shows(bob, "The request did not succeed. Nothing was charged.")
	equal(t, "charged", s.charged(43), 0)
}

func TestAFeatureCanAskHowMuchIsWantedAndDecline(t *testing.T) {
	s := newStage(t)
	s.prepare = func(k *telegram.Kit) {
		k.Feature(telegram.Feature{Name: "text.improve", Do: s.do, Ask: func(_ context.Context, turn *telegram.Turn) (telegram.Ask, error) {
			if len(turn.Argument) > 20 {
				return telegram.Ask{}, &telegram.Decline{Text: "That is too long."}
			}
			return telegram.Ask{Text: turn.Argument, Quantity: holdfast.Amount(len(strings.Fields(turn.Argument)))}, nil
		}})
	}
	s.start()
	ann := s.person(42, "en")
	ann.Send("one two three")
	s.begun().succeed("ONE TWO THREE")
	s.shows(ann, "ONE TWO THREE")
	equal(t, "charged", s.charged(42), 3)
	ann.Send("one two three four five six seven")
	s.shows(ann, "That is too long.")
	equal(t, "charged", s.charged(42), 3)
}

// lostEdit does the first change of a message, and its answer does not come while anybody waits for it.
type lostEdit struct{ lost atomic.Bool }

func (l *lostEdit) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := http.DefaultTransport.RoundTrip(r)
	if err != nil || !strings.HasSuffix(r.URL.Path, "/editMessageText") || l.lost.Swap(true) {
		return answer, err
	}
	_ = answer.Body.Close()
	<-r.Context().Done()
	return nil, r.Context().Err()
}

func TestAStatusMessageWhoseChangeWasNotHeardOfIsCorrected(t *testing.T) {
	s := newStage(t)
	s.http = &http.Client{Transport: &lostEdit{}}
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	ann.Send("dear sir")
	status := s.shows(ann, "In the queue…")
	s.handled()
	s.work()
	j := s.begun()
	s.shows(ann, "Working on it…")
	j.fail(errors.New("the provider is overloaded"))
	queued := fakeapi.Shown("In the queue…").Of(status.ID)
	s.until("it waits again, and the message says so", func() bool { return len(s.server.Transcript().Where(queued)) == 2 })
	s.begun().succeed("Dear Sir,")
	s.shows(ann, "Dear Sir,")
	equal(t, "charged", s.charged(42), 1)
}
