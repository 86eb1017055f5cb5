package telegram_test

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/telegram"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

func renewedFor(id, account string) outbox.Event {
	return outbox.Event{ID: id, Type: holdfast.EventNoticeRenewed, Account: account}
}

// met lets a person be known to the bot.
func (s *stage) met(p *fakeapi.Person) *fakeapi.Person {
	s.Helper()
	p.Send("dear sir")
	s.begun().succeed("Dear Sir,")
	s.shows(p, "Dear Sir,")
	s.charged(p.ID())
	s.settled()
	return p
}

func (s *stage) grant(account string, amount holdfast.Amount) {
	s.Helper()
	outcome, err := s.engine.Submit(s.Context(), holdfast.Command{
		ID: engine.NewID(), Project: project, Account: account, Key: "grant-" + account, Do: holdfast.AddGrant{Unit: "credit", Amount: amount, Source: holdfast.FromPromo, Reason: "test"},
	})
	if err != nil || outcome.Reason != "" {
		s.Fatalf("%v %v", outcome.Reason, err)
	}
}

func TestAnEventIsToldOnceOverRestarts(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.met(s.person(42, "en"))
	paid := outbox.Event{ID: "evt_paid", Type: holdfast.EventPaymentGranted, Account: "telegram:42", Data: outbox.EventData{
		Payment: &outbox.EventPayment{Provider: "telegram_stars", PaymentID: "charge-1", Product: "credits_100", Amount: 100, Currency: "XTR", State: holdfast.PaymentGranted},
	}}
	s.tell(paid)
	s.shows(ann, "100 credits")
	s.tell(paid)
	s.end()
	s.start()
	s.tell(paid)
	equal(t, "told", len(s.server.Transcript().Where(fakeapi.Shown("100 credits"))), 1)
	refunded := paid
	refunded.ID, refunded.Type = "evt_refunded", holdfast.EventPaymentRefunded
	refunded.Data.Payment.Refunded = 100
	before := len(ann.Messages())
	s.tell(refunded)
	s.tell(refunded)
	equal(t, "told of the refund", len(ann.Messages()), before+1)
}

func TestWhatHappenedBeforeTheBotFirstRanIsNotTold(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.met(s.person(42, "en"))
	before := len(ann.Messages())
	s.tell(outbox.Event{ID: "evt_old", Type: holdfast.EventPaymentGranted, Account: "telegram:42", CreatedAt: time.Now().Add(-time.Hour), Data: outbox.EventData{
		Payment: &outbox.EventPayment{Product: "credits_100", Amount: 100, Currency: "XTR", State: holdfast.PaymentGranted},
	}})
	equal(t, "messages", len(ann.Messages()), before)
}

func TestLittleIsLeftIsNotSaidWhereThereIsMoreByNow(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.met(s.person(42, "ru"))
	ref := holdfast.ReservationRef.Encode(holdfast.AccountIDOf(project, "telegram:42"), s.reservations(42)[0].ID)
	four := holdfast.Amount(4)
	low := outbox.Event{ID: "evt_low", Type: holdfast.EventNoticeLowBalance, Account: "telegram:42", Data: outbox.EventData{Reservation: &ref, Figure: &four}}
	s.tell(low)
	notice := s.shows(ann, "4 кредита")
	equal(t, "buttons", buttons(notice), []string{"Пополнить", "Не сообщать"})
	s.grant("telegram:42", 50)
	low.ID = "evt_low_again"
	before := len(ann.Messages())
	s.tell(low)
	equal(t, "messages", len(ann.Messages()), before)
}

func TestANoticeThatTelegramDoesNotTakeNowHoldsUpNobodyAndIsToldLater(t *testing.T) {
	s := newStage(t)
	s.start()
	ann, bob := s.met(s.person(42, "en")), s.met(s.person(43, "en"))
	s.bot.Fail(fakeapi.Fault{Kind: fakeapi.Broken, Method: "sendMessage", Chat: 42, Times: 3})
	paid := func(id, account string) outbox.Event {
		return outbox.Event{ID: id, Type: holdfast.EventPaymentGranted, Account: account, Data: outbox.EventData{
			Payment: &outbox.EventPayment{Product: "credits_100", Amount: 100, Currency: "XTR", State: holdfast.PaymentGranted},
		}}
	}
	s.tell(paid("evt_1", "telegram:42"))
	s.tell(paid("evt_2", "telegram:43"))
	s.shows(bob, "100 credits")
	s.shows(ann, "100 credits")
	equal(t, "told", len(s.server.Transcript().Where(fakeapi.Shown("100 credits"))), 2)
	s.until("nothing is left to be told", func() bool { return len(s.notes("later:")) == 0 })
}

func TestWorkThatExpiresIsToldAndItsStatusMessageGoes(t *testing.T) {
	s := newStage(t)
	s.catalog.Features[0].TTL = time.Second
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	prompt := ann.Send("dear sir")
	status := s.shows(ann, "In the queue…")
	s.until("its time is over", func() bool { return s.engine.Now().After(s.reservations(42)[0].ExpiresAt) })
	if err := s.engine.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	expired := s.shows(ann, "The request did not finish in time. Nothing was charged.")
	equal(t, "answers", expired.ReplyTo, prompt)
	equal(t, "buttons", buttons(expired), []string{"Try again"})
	s.gone(ann, status.ID)
	equal(t, "charged", s.charged(42), 0)
}

func TestARefundOfAChargeIsTold(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.met(s.person(42, "en"))
	r := s.reservations(42)[0]
	_, err := s.engine.Submit(t.Context(), holdfast.Command{
		ID: engine.NewID(), Project: project, Target: holdfast.AccountIDOf(project, "telegram:42"), Key: "refund-1",
		Do: holdfast.Refund{ReservationID: r.ID, Reason: "the letter was bad"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.shows(ann, "Refund for this request: 1 of 1 credit.")
	equal(t, "charged", s.charged(42), 0)
}

func TestWorkOfOthersIsNotTold(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.met(s.person(42, "en"))
	before := len(ann.Messages())
	reserved, err := s.engine.Submit(t.Context(), holdfast.Command{ // by another program, for the same person
		ID: engine.NewID(), Project: project, Account: "telegram:42", Key: "web-1", Do: holdfast.Reserve{Feature: "text.improve"},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.engine.Submit(t.Context(), holdfast.Command{
		ID: engine.NewID(), Project: project, Account: "telegram:42", Do: holdfast.Release{ReservationID: reserved.Reservation.ID},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.settled()
	equal(t, "messages", len(ann.Messages()), before)
}

func TestTheSinkTellsThePersonInTheLanguageOfTheirAccount(t *testing.T) {
	s := newStage(t)
	s.start()
	ann := s.met(s.person(42, "en"))
	russian := "ru"
	if _, err := s.engine.Submit(t.Context(), holdfast.Command{
		ID: engine.NewID(), Project: project, Account: "telegram:42", Do: holdfast.PutAccount{Language: &russian},
	}); err != nil {
		t.Fatal(err)
	}
	s.tell(renewedFor("evt_1", telegram.AccountName(42)))
	s.shows(ann, "4 кредита")
	if strings.Contains(s.transcript(), "not-a-secret") || strings.Contains(s.log.String(), "not-a-secret") {
		t.Error("the bot's token is in the transcript or in the log")
	}
}

func TestOfADeletedAccountNothingIsKeptAndNothingIsNotedAgain(t *testing.T) {
	s := newStage(t)
	s.start(withoutWorkers)
	ann := s.person(42, "en")
	ann.Send("dear sir")
	status := s.shows(ann, "In the queue…")
	ann.Send("/video a cat") // which leaves a button to ask again
	s.shows(ann, "Video” is not part of your plan.")
	s.handled()
	if _, err := s.engine.Submit(t.Context(), holdfast.Command{
		ID: engine.NewID(), Project: project, Account: "telegram:42", Key: "delete-1", Do: holdfast.DeleteAccount{},
	}); err != nil {
		t.Fatal(err)
	}
	s.gone(ann, status.ID)
	s.settled()
	for _, prefix := range []string{"person:", "work:", "repeat:"} {
		equal(t, "notes "+prefix, len(s.notes(prefix)), 0)
	}
	ann.Send("dear sir")
	s.shows(ann, "Your account is blocked")
	s.handled()
	equal(t, "people of whom something is noted", len(s.notes("person:")), 0)
	view, err := s.engine.View(t.Context(), project, "telegram:42")
	if err != nil || view.Account.Language != "" {
		t.Errorf("the language of a deleted account is %q, %v", view.Account.Language, err)
	}
}
