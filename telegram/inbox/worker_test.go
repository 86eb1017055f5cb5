package inbox_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
	"github.com/holdfast-dev/holdfast/telegram/inbox"
)

// picky is a store that refuses the content of every update but those of id 2.
type picky struct{ store.Telegram }

func (p picky) KeepUpdates(ctx context.Context, updates []store.Update) ([]bool, error) {
	if p.Telegram != nil && !slices.ContainsFunc(updates, func(u store.Update) bool { return u.ID != 2 }) {
		return p.Telegram.KeepUpdates(ctx, updates)
	}
	return nil, &store.Error{Kind: store.Rejected, Op: "keep updates", Err: errors.New("no")}
}

// put stores updates as a process does that dies then: queries are being answered, and nothing else has begun.
func put(t *testing.T, s store.Telegram, at time.Time, updates ...string) {
	t.Helper()
	for _, raw := range updates {
		var u struct {
			ID      int64           `json:"update_id"`
			Message json.RawMessage `json:"message"`
		}
		must(t, json.Unmarshal([]byte(raw), &u))
		row := store.Update{Bot: bot, ID: u.ID, Raw: raw, ReceivedAt: at, Line: "person/" + person.FindStringSubmatch(raw)[1]}
		if u.Message == nil {
			row.Line, row.Claim, row.ClaimedUntil = fmt.Sprint("update/", u.ID), "dead.0", at.Add(15*time.Second)
		}
		_, err := s.KeepUpdates(t.Context(), []store.Update{row})
		must(t, err)
	}
}

var person = regexp.MustCompile(`"from":{"id":(\d+)`)

func TestAFailingUpdateIsTriedAgainThenSetAsideAndHoldsUpNobodyForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log, d := memory.Open(), &lines{}, newDiary()
		began := time.Now()
		var tries []time.Duration
		in := inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Logger: log.logger(), Handle: func(_ context.Context, u inbox.Update) error {
			switch {
			case u.ID == 1:
				tries = append(tries, time.Since(began))
				if u.Attempt != len(tries) {
					t.Errorf("attempt %d is told as %d", len(tries), u.Attempt)
				}
				if len(tries)%2 == 0 {
					panic("what nobody has foreseen \x00\xff")
				}
				return errors.New("no luck")
			case u.ID == 3 && u.Attempt == 1:
				return errors.New("no luck at first")
			}
			d.note(u)
			return nil
		}})
		put(t, s, time.Now(), message(1, 7), message(2, 7), message(3, 8), message(4, 8))
		stop := running(t, in)
		if got := d.await(t, 3); !slices.Equal(got, []int64{3, 4, 2}) {
			t.Errorf("handled %v", got)
		}
		if len(tries) != 10 || tries[9] > 5*time.Minute {
			t.Errorf("the update that always fails was tried at %v", tries)
		}
		for i := 2; i < len(tries); i++ {
			if tries[i]-tries[i-1] < tries[i-1]-tries[i-2] {
				t.Errorf("pauses grow shorter: %v", tries)
			}
		}
		if n := log.count(slog.LevelError, "set aside"); n != 1 {
			t.Errorf("it was set aside %d times", n)
		}
		if _, failed := counts(t, s); failed != 1 {
			t.Errorf("%d updates failed, wanted 1", failed)
		}
		stop()
	})
}

func TestAHandlerThatHangsIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := memory.Open(), newDiary()
		hang := make(chan struct{})
		var hung atomic.Int64
		in := inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Attempts: 2, Handle: func(_ context.Context, u inbox.Update) error {
			if u.ID == 1 {
				hung.Add(1)
				<-hang
			}
			d.note(u)
			return nil
		}})
		put(t, s, time.Now(), message(1, 7), message(2, 7))
		stop := running(t, in)
		if got := d.await(t, 1); !slices.Equal(got, []int64{2}) || hung.Load() != 2 {
			t.Errorf("handled %v after %d attempts that hang", got, hung.Load())
		}
		if _, failed := counts(t, s); failed != 1 {
			t.Errorf("%d updates failed, wanted 1", failed)
		}
		stop()
		close(hang)
	})
}

// A handler that takes longer than a claim lasts keeps it.
func TestALongHandlerIsNotOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := memory.Open(), newDiary()
		options := inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: func(_ context.Context, u inbox.Update) error {
			timer := time.NewTimer(50 * time.Second)
			<-timer.C
			d.note(u)
			return nil
		}}
		put(t, s, time.Now(), message(1, 7), message(2, 7))
		stops := []func(){running(t, inbox.New(options)), running(t, inbox.New(options))}
		if got := d.await(t, 2); !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("handled %v", got)
		}
		for _, stop := range stops {
			stop()
		}
		if got := d.ids(); len(got) != 2 {
			t.Errorf("handled %v", got)
		}
	})
}

// What a process had begun when it died is handled by another: when its claim lapses, or at once by one that is alone.
func TestWhatADeadProcessHadBegunIsHandledByItsSuccessor(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, d := memory.Open(), newDiary()
			put(t, s, time.Now(), message(1, 7), message(2, 7), callback(3, 7))
			claimed, err := s.ClaimUpdates(t.Context(), bot, "dead.1", time.Now(), time.Now().Add(10*time.Second), 10)
			must(t, err)
			if len(claimed) != 1 {
				t.Fatalf("%d updates were claimed", len(claimed))
			}
			began := time.Now()
			stop := running(t, inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: d.handle, Alone: alone}))
			got := d.await(t, 3)
			slices.Sort(got)
			if waited := time.Since(began); !slices.Equal(got, []int64{1, 2, 3}) || alone != (waited < 5*time.Second) {
				t.Errorf("alone %t: handled %v after %s", alone, got, waited)
			}
			stop()
		})
	}
}

func TestQueriesAreAnsweredAtOnceWhateverTheirPersonWaitsFor(t *testing.T) {
	onEveryStore(t, func(t *testing.T, s database) {
		busy, release := make(chan struct{}), make(chan struct{})
		var together sync.WaitGroup
		together.Add(3)
		var asked atomic.Int64
		d, later := newDiary(), newDiary()
		in := inbox.New(inbox.Options{
			Store: s, Bot: bot, Secret: secret,
			Handle: func(_ context.Context, u inbox.Update) error {
				if u.ID == 1 {
					close(busy)
					<-release
				}
				return later.handle(t.Context(), u)
			},
			Fast: func(ctx context.Context, u inbox.Update) error {
				if _, bounded := ctx.Deadline(); !bounded {
					t.Error("a query has no deadline")
				}
				if asked.Add(1) <= 3 {
					together.Done()
				}
				together.Wait() // none waits for another
				return d.handle(ctx, u)
			},
		})
		url := webhook(t, in)
		running(t, in)
		told(t, url, message(1, 7))
		<-busy
		told(t, url, message(2, 7), callback(3, 7), preCheckout(4, 7), callback(5, 7), callback(3, 7))
		got := d.await(t, 3)
		slices.Sort(got)
		if !slices.Equal(got, []int64{3, 4, 5}) {
			t.Errorf("answered %v", got)
		}
		if got := later.ids(); len(got) != 0 {
			t.Errorf("%v was handled meanwhile", got)
		}
		close(release)
		if got := later.await(t, 2); !slices.Equal(got, []int64{1, 2}) {
			t.Errorf("handled %v", got)
		}
		settled(t, s)
		if got := d.ids(); len(got) != 3 {
			t.Errorf("answered %v", got)
		}
	})
}

func TestAQueryThatCannotBeAnsweredIsRefusedInTimeAndOnce(t *testing.T) {
	for name, fast := range map[string]func(context.Context, inbox.Update) error{
		"it fails":  func(context.Context, inbox.Update) error { return errors.New("no database") },
		"it panics": func(context.Context, inbox.Update) error { panic("what nobody has foreseen") },
		"it waits": func(ctx context.Context, _ inbox.Update) error {
			<-ctx.Done()
			return ctx.Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, refused, log := memory.Open(), newDiary(), &lines{}
				var asked atomic.Int64
				in := inbox.New(inbox.Options{
					Store: s, Bot: bot, Secret: secret, Handle: newDiary().handle, Refuse: refused.handle, Logger: log.logger(),
					Fast: func(ctx context.Context, u inbox.Update) error {
						asked.Add(1)
						return fast(ctx, u)
					},
				})
				stop := running(t, in)
				began := time.Now()
				if status := post(in, preCheckout(1, 7)); status != 200 {
					t.Errorf("answered with %d", status)
				}
				refused.await(t, 1)
				if took := time.Since(began); took >= 10*time.Second {
					t.Errorf("refused after %s", took)
				}
				time.Sleep(10 * time.Minute) // of the bubble's time
				if waiting, failed := counts(t, s); asked.Load() != 1 || len(refused.ids()) != 1 || waiting != 0 || failed != 0 {
					t.Errorf("asked %d times, refused %v, %d wait, %d failed", asked.Load(), refused.ids(), waiting, failed)
				}
				if log.count(slog.LevelWarn, "refused") != 1 {
					t.Errorf("the log says\n%s", log)
				}
				stop()
			})
		})
	}
}

func TestAQueryWhoseAnswerHangsIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, refused, hang := memory.Open(), newDiary(), make(chan struct{})
		in := inbox.New(inbox.Options{
			Store: s, Bot: bot, Secret: secret, Handle: newDiary().handle, Refuse: refused.handle,
			Fast: func(context.Context, inbox.Update) error {
				<-hang
				return nil
			},
		})
		began := time.Now()
		if status := post(in, preCheckout(1, 7)); status != 200 {
			t.Errorf("answered with %d", status)
		}
		refused.await(t, 1)
		if took := time.Since(began); took >= 10*time.Second {
			t.Errorf("refused after %s", took)
		}
		close(hang)
	})
}

func TestAQueryIsTriedAgainForAsLongAsAnAnswerIsOfUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := memory.Open(), &lines{}
		began, last, asked := time.Now(), time.Duration(0), 0
		in := inbox.New(inbox.Options{
			Store: s, Bot: bot, Secret: secret, Handle: newDiary().handle, Attempts: 100, Logger: log.logger(),
			Fast: func(context.Context, inbox.Update) error {
				asked++
				last = time.Since(began)
				return errors.New("no luck")
			},
		})
		stop := running(t, in)
		if status := post(in, callback(1, 7)); status != 200 {
			t.Errorf("answered with %d", status)
		}
		time.Sleep(10 * time.Minute) // of the bubble's time
		if waiting, failed := counts(t, s); asked < 5 || last >= 150*time.Second || waiting != 0 || failed != 0 {
			t.Errorf("asked %d times, the last time after %s; %d wait, %d failed", asked, last, waiting, failed)
		}
		stop()
	})
}

// While the database is away queries are answered without it; whoever was told no does not see it done later.
func TestAQueryIsAnsweredOnceWhileItCannotBeStored(t *testing.T) {
	whole := pgtest.New(t)
	proxy := pgtest.NewProxy(t, whole)
	s := openPostgres(t, proxy.Through(whole))
	refused, answered := newDiary(), newDiary()
	away := errors.New("the database is away")
	var mutex sync.Mutex
	fast := func(context.Context, inbox.Update) error { return away }
	in := inbox.New(inbox.Options{
		Store: s, Bot: bot, Secret: secret, Handle: newDiary().handle, Refuse: refused.handle,
		Fast: func(ctx context.Context, u inbox.Update) error {
			mutex.Lock()
			defer mutex.Unlock()
			return fast(ctx, u)
		},
	})
	url := webhook(t, in)
	running(t, in)
	proxy.Refuse(true)
	proxy.CutAll()
	told(t, url, callback(1, 7), preCheckout(2, 7), callback(1, 7))
	if got := refused.ids(); !slices.Equal(got, []int64{1, 2}) {
		t.Errorf("refused %v", got)
	}
	proxy.Refuse(false)
	mutex.Lock()
	fast = answered.handle
	mutex.Unlock()
	told(t, url, callback(1, 7), preCheckout(2, 7), callback(3, 7))
	if got := answered.await(t, 1); !slices.Equal(got, []int64{3}) {
		t.Errorf("answered %v", got)
	}
}

func TestAnExpiredQueryIsNotAnsweredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := memory.Open(), newDiary()
		now := time.Now()
		put(t, s, now.Add(-151*time.Second), callback(1, 7), preCheckout(2, 7))
		put(t, s, now.Add(-2*time.Minute), callback(3, 7), preCheckout(4, 7))
		put(t, s, now.Add(-24*time.Hour), message(5, 7))
		stop := running(t, inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Handle: d.handle, Refuse: d.handle}))
		got := d.await(t, 3)
		slices.Sort(got)
		if !slices.Equal(got, []int64{3, 4, 5}) {
			t.Errorf("handled %v", got)
		}
		stop()
		if waiting, failed := counts(t, s); waiting != 0 || failed != 0 {
			t.Errorf("%d wait, %d failed", waiting, failed)
		}
	})
}

func TestUpdatesAreKeptForABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, log := memory.Open(), &lines{}
		in := inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Attempts: 1, Every: time.Minute, Logger: log.logger(), Handle: func(_ context.Context, u inbox.Update) error {
			if u.ID == 1 {
				return errors.New("no luck")
			}
			return nil
		}})
		again := func(wanted bool, ids ...int64) {
			t.Helper()
			for _, id := range ids {
				kept, err := s.KeepUpdates(t.Context(), []store.Update{{Bot: bot, ID: id, Line: "person/7", Raw: message(id, 7), ReceivedAt: time.Now()}})
				must(t, err)
				if kept[0] != wanted {
					t.Errorf("after %s: is update %d new? %t", time.Since(start), id, kept[0])
				}
			}
		}
		put(t, s, time.Now(), message(1, 7), message(2, 7))
		stop := running(t, in)
		time.Sleep(inbox.KeepDone - time.Minute)
		again(false, 1, 2)
		time.Sleep(5 * time.Minute)
		again(false, 1)
		again(true, 2)
		time.Sleep(inbox.KeepFailed)
		again(true, 1)
		stop()
	})
}

// start is when every bubble begins.
var start = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func TestTwoServersShareAnInbox(t *testing.T) {
	url := pgtest.New(t)
	d := newDiary()
	var addresses []string
	var busy sync.Map
	for range 2 {
		in := inbox.New(inbox.Options{Store: openPostgres(t, url), Bot: bot, Secret: secret, Handle: func(_ context.Context, u inbox.Update) error {
			if _, twice := busy.LoadOrStore(u.ID/100, true); twice {
				t.Errorf("two updates of person %d are handled at once", u.ID/100)
			}
			d.note(u)
			busy.Delete(u.ID / 100)
			return nil
		}})
		addresses = append(addresses, webhook(t, in))
		running(t, in)
	}
	const people, each = 20, 6
	var telling sync.WaitGroup
	for person := range int64(people) {
		telling.Go(func() {
			for n := range int64(each) {
				if answer, err := tell(addresses[(person+n)%2], message(100*person+n, 1000+person)); err != nil || answer.StatusCode != 200 {
					t.Errorf("person %d: %v %v", person, answer, err)
				}
			}
		})
	}
	telling.Wait()
	got := d.await(t, people*each)
	next := map[int64]int64{}
	for _, id := range got {
		if id%100 != next[id/100] {
			t.Errorf("update %d of person %d came in place of %d", id%100, id/100, next[id/100])
		}
		next[id/100]++
	}
}

func TestALogOfTheInboxSaysNothingOfWhatPeopleWrote(t *testing.T) {
	s, log, d := openSQLite(t, filepath.Join(t.TempDir(), "holdfast.db")), &lines{}, newDiary()
	in := inbox.New(inbox.Options{Store: s, Bot: bot, Secret: secret, Attempts: 1, Logger: log.logger(), Handle: func(_ context.Context, u inbox.Update) error {
		if u.ID == 1 {
			return errors.New("no luck")
		}
		return d.handle(t.Context(), u)
	}})
	url := webhook(t, in)
	running(t, in)
	told(t, url, strings.Replace(message(1, 7), "hello", "private words", 1), message(2, 7), `{"update_id":"private words"}`)
	d.await(t, 1)
	if text := log.String(); strings.Contains(text, "private words") || !strings.Contains(text, "set aside") {
		t.Errorf("the log says\n%s", text)
	}
}
