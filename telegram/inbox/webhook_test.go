package inbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/telegram/inbox"
)

func TestOnlyWhoKnowsTheSecretIsListenedTo(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s database) {
		log := &lines{}
		in := inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: newDiary().handle, Logger: log.logger()})
		url := webhook(t, in)
		closed := webhook(t, inbox.New(inbox.Options{Store: s, Bot: bot, Handle: newDiary().handle}))
		for _, test := range []struct {
			method, url, secret string
			wanted              int
		}{
			{http.MethodPost, url, "", http.StatusUnauthorized},
			{http.MethodPost, url, secret[1:], http.StatusUnauthorized},
			{http.MethodPost, url, secret + "x", http.StatusUnauthorized},
			{http.MethodGet, url, secret, http.StatusMethodNotAllowed},
			{http.MethodPost, closed, "", http.StatusUnauthorized},
		} {
			request, err := http.NewRequest(test.method, test.url, strings.NewReader(message(1, 7)))
			must(t, err)
			if test.secret != "" {
				request.Header.Set("X-Telegram-Bot-Api-Secret-Token", test.secret)
			}
			answer, err := http.DefaultClient.Do(request)
			must(t, err)
			_ = answer.Body.Close()
			if answer.StatusCode != test.wanted {
				t.Errorf("%s with secret %q was answered with %s", test.method, test.secret, answer.Status)
			}
		}
		if waiting, _ := counts(t, s); waiting != 0 {
			t.Errorf("%d updates of strangers were stored", waiting)
		}
		told(t, url, message(1, 7))
		if waiting, _ := counts(t, s); waiting != 1 {
			t.Errorf("%d updates were stored, wanted 1", waiting)
		}
		if strings.Contains(log.String(), secret) {
			t.Error("the secret is in the log")
		}
	})
}

func TestWhatIsNotAnUpdateIsNotAskedForAgain(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s database) {
		log := &lines{}
		url := webhook(t, inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: newDiary().handle, Logger: log.logger()}))
		nonsense := []string{
			``, `{`, `[]`, `null`, `{}`, `{"message":{}}`, `{"update_id":"7"}`, `{"update_id":1.5}`, `{"update_id":99999999999999999999}`,
			`{"update_id":5,"message":{"text":"` + strings.Repeat("x", 1<<20) + `"}}`,
		}
		told(t, url, nonsense...)
		if waiting, _ := counts(t, s); waiting != 0 {
			t.Errorf("%d of what is no update was stored", waiting)
		}
		if n := log.count(slog.LevelError, "is not an update"); n != len(nonsense) {
			t.Errorf("the log has %d lines, wanted %d", n, len(nonsense))
		}
		// What is an update is kept, whatever else it is.
		odd := []string{
			`{"update_id":10}`, `{"update_id":11,"poll":{"id":"1"}}`, `{"update_id":12,"message":"text"}`, `{"update_id":13,"message":{"from":7}}`,
			"{\"update_id\":14,\"message\":{\"text\":\"\\u0000 \xff\"}}", `{"update_id":-15,"channel_post":{"chat":{"id":-100}}}`,
			`{"update_id":16,"message":{"text":"` + strings.Repeat("x", 900<<10) + `"}}`,
		}
		told(t, url, odd...)
		told(t, url, odd...)
		if waiting, _ := counts(t, s); waiting != int64(len(odd)) {
			t.Errorf("%d odd updates were stored, wanted %d", waiting, len(odd))
		}
	})
}

func TestAnIDThatJumpsBackIsTaken(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s database) {
		d := newDiary()
		in := inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: d.handle})
		url := webhook(t, in)
		told(t, url, message(900, 7), message(901, 7), message(12, 7), message(901, 7), message(13, 7), message(12, 7))
		running(t, in)
		if got := d.await(t, 4); !slices.Equal(got, []int64{900, 901, 12, 13}) {
			t.Errorf("handled %v", got)
		}
	})
}

func TestSeveralBotsShareADatabase(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s database) {
		var diaries []*diary
		for _, name := range []string{bot, "701"} {
			d := newDiary()
			in := inbox.New(inbox.Options{Store: s, Bot: name, Secret: secret, Handle: d.handle})
			told(t, webhook(t, in), message(1, 7), message(2, 7))
			running(t, in)
			diaries = append(diaries, d)
		}
		for i, d := range diaries {
			if got := d.await(t, 2); !slices.Equal(got, []int64{1, 2}) {
				t.Errorf("bot %d handled %v", i, got)
			}
		}
	})
}

// Telegram tells every update of one person after the one before, those of different people at once, and some of them again.
func TestTwoHundredPeopleAtOnceAreEachHandledInTheirOrder(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s database) {
		const people, each = 200, 4
		var mutex sync.Mutex
		handled, busy := map[int64][]int64{}, map[int64]bool{}
		all := newDiary()
		in := inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: func(_ context.Context, u inbox.Update) error {
			person := u.ID / 100
			mutex.Lock()
			if busy[person] {
				t.Errorf("two updates of person %d are handled at once", person)
			}
			busy[person] = true
			mutex.Unlock()
			mutex.Lock()
			defer mutex.Unlock()
			busy[person] = false
			handled[person] = append(handled[person], u.ID)
			all.note(u)
			return nil
		}})
		url := webhook(t, in)
		running(t, in)
		var telling sync.WaitGroup
		for person := range int64(people) {
			telling.Go(func() {
				for n := range int64(each) {
					var again sync.WaitGroup
					for range 1 + person%2 { // the answer came too late
						again.Go(func() {
							answer, err := tell(url, message(100*person+n, 1000+person))
							if err != nil || answer.StatusCode != http.StatusOK {
								t.Errorf("person %d: %v %v", person, answer, err)
							}
						})
					}
					again.Wait()
				}
			})
		}
		telling.Wait()
		if got := len(all.await(t, people*each)); got != people*each {
			t.Errorf("handled %d updates, wanted %d", got, people*each)
		}
		for person := range int64(people) {
			if got := handled[person]; len(got) != each || !slices.IsSorted(got) {
				t.Errorf("person %d was handled as %v", person, got)
			}
		}
	})
}

func TestADatabaseThatIsDownIsAnsweredWith503AndTheUpdateIsTakenLater(t *testing.T) {
	whole := pgtest.New(t)
	proxy := pgtest.NewProxy(t, whole)
	s := openPostgres(t, proxy.Through(whole))
	d := newDiary()
	in := inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: d.handle})
	url := webhook(t, in)
	running(t, in)
	told(t, url, message(1, 7))
	d.await(t, 1)
	settled(t, s)

	proxy.Refuse(true)
	proxy.CutAll()
	for range 3 {
		answer, err := tell(url, message(2, 7))
		must(t, err)
		if answer.StatusCode != http.StatusServiceUnavailable || answer.Header.Get("Retry-After") != "5" {
			t.Errorf("answered with %s, Retry-After %q", answer.Status, answer.Header.Get("Retry-After"))
		}
	}
	proxy.Refuse(false)
	told(t, url, message(2, 7), message(2, 7), message(3, 7))
	if got := d.await(t, 3); !slices.Equal(got, []int64{1, 2, 3}) {
		t.Errorf("handled %v", got)
	}
}

// The answer of the database is lost, so nobody knows whether the update is stored: it is told again.
func TestAnUpdateWhoseCommitIsInDoubtIsHandledOnce(t *testing.T) {
	whole := pgtest.New(t)
	proxy := pgtest.NewProxy(t, whole)
	s := openPostgres(t, proxy.Through(whole))
	d := newDiary()
	in := inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: d.handle})
	url := webhook(t, in)
	cut := proxy.CutAnswer()
	answer, err := tell(url, message(1, 7))
	must(t, err)
	<-cut
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("answered with %s", answer.Status)
	}
	told(t, url, message(1, 7), message(2, 7))
	running(t, in)
	if got := d.await(t, 2); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("handled %v", got)
	}
}

func TestAClosedStoreIsAnsweredWith503(t *testing.T) {
	s := openSQLite(t, filepath.Join(t.TempDir(), "holdfast.db"))
	url := webhook(t, inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: newDiary().handle}))
	must(t, s.Close())
	answer, err := tell(url, message(1, 7))
	must(t, err)
	if answer.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("answered with %s", answer.Status)
	}
}

// A database that refuses what an update says would refuse it for a day.
func TestAnUpdateThatTheDatabaseRefusesHoldsUpNobody(t *testing.T) {
	log := &lines{}
	url := webhook(t, inbox.New(inbox.Options{Store: picky{}, Bot: bot, Secret: secret, Handle: newDiary().handle, Logger: log.logger()}))
	told(t, url, message(1, 7))
	if log.count(slog.LevelError, "cannot be stored and is dropped") != 1 {
		t.Errorf("the log says\n%s", fmt.Sprint(log))
	}
}
