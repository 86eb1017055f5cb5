package acceptance

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/fakeprovider"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/postgres"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

// Everybody's work fails, and everybody presses [Try again] twice at the same moment: two taps are one intention. Charges equal
// results that were delivered, nobody is locked, and nothing is said after a result that contradicts it.
func TestACrowdThatPressesTryAgainTwiceAtOnceIsChargedOnceEachForOneResult(t *testing.T) {
	if testing.Short() {
		t.Skip("Telegram takes 30 messages a second")
	}
	t.Parallel()
	const people = 200
	b := newChatBot(t, pgtest.NewEmpty(t), "--at-once", "32")
	b.provider.Next(slices.Repeat([]fakeprovider.Fault{fakeprovider.ContentRefused}, people)...)
	them := make([]*fakeapi.Person, people)
	words := func(i int) string { return fmt.Sprintf("words of number %d.", i) }
	b.bot.RepeatNext("", people) // and Telegram tells half of everything twice
	for i := range them {
		them[i] = b.bot.Person(fakeapi.User{ID: int64(1000 + i), FirstName: "Ann", LanguageCode: "en"})
		them[i].Send(words(i))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	offers := make([]fakeapi.Message, people)
	each(people, func(i int) { // all of them, so that nobody's second attempt is one of those that fail
		var err error
		offers[i], err = them[i].Await(ctx, func(m fakeapi.Message) bool { _, again := m.Button("Try again"); return again })
		if err != nil {
			t.Errorf("%d is not offered to try again: %v", i, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	each(people, func(i int) {
		failed := offers[i]
		button, _ := failed.Button("Try again")
		var answers []string
		var err error
		taps := make([]*fakeapi.Tap, 2)
		for n := range taps {
			if taps[n], err = them[i].TapStale(failed.ID, button.Data); err != nil {
				t.Error(err)
				return
			}
		}
		for _, tap := range taps {
			answer, err := tap.Answer(ctx)
			if err != nil {
				t.Errorf("%d: %v", i, err)
			}
			answers = append(answers, answer.Text)
		}
		// The second tap waits for the first, whose status message waits for Telegram's pace: in a crowd perhaps for too long, and
		// then it is refused. It is never taken.
		if slices.Sort(answers); answers[0] != "" || answers[1] == "" {
			t.Errorf("%d: the taps are answered with %q", i, answers)
		}
		if _, err := them[i].Await(ctx, func(m fakeapi.Message) bool { return m.From.IsBot && m.Text == words(i) }); err != nil {
			t.Errorf("%d has no result: %v", i, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
	if err := b.bot.Drained(ctx); err != nil {
		t.Fatal(err)
	}
	b.end()

	charged := b.charged()
	transcript := b.telegram.Transcript()
	for i, person := range them {
		results := 0
		for _, m := range person.Messages() {
			if m.From.IsBot && m.Text == words(i) {
				results++
			}
			if _, live := m.Button("Cancel"); live {
				t.Errorf("%d: %q still has Cancel", i, m.Text)
			}
		}
		if used := charged[fmt.Sprintf("telegram:%d", person.ID())]; results != 1 || used.charged != 1 || used.held != 0 {
			t.Errorf("%d got %d results and is charged %d, and %d are held", i, results, used.charged, used.held)
		}
		result := fakeapi.Shown(words(i)).In(person.Chat())
		for _, text := range []string{"Nothing was charged", "In the queue", "Working on it", "waiting for its turn", "could not"} {
			if err := transcript.NeverAfter(fakeapi.Shown(text).In(person.Chat()), result); err != nil {
				t.Error(err)
			}
		}
	}
	if len(charged) != people || b.provider.Worked() != people {
		t.Errorf("%d accounts were made, and the provider worked %d times", len(charged), b.provider.Worked())
	}
}

type charge struct{ charged, held int64 }

// charged is what every account has used, as the stopped bot has left it in PostgreSQL.
func (b *chatBot) charged() map[string]charge {
	b.t.Helper()
	db, err := postgres.Open(b.t.Context(), b.db, postgres.Options{ReadOnly: true})
	b.must(err)
	defer func() { _ = db.Close() }()
	found := map[string]charge{}
	b.must(db.Dump(b.t.Context(), func(r store.Record) error {
		var sum charge
		for _, g := range r.Grants {
			sum.charged += int64(g.Used)
			sum.held += int64(g.Reserved)
		}
		found[r.Account.Name] = sum
		return nil
	}))
	return found
}
