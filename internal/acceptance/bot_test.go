package acceptance

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/fakeprovider"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

const (
	botSecret      = "a-secret-that-no-log-may-have"
	botToken       = "7000001:" + botSecret
	otherBotToken  = "7000002:" + botSecret
	providerSecret = "another-secret-of-the-provider"
)

// botStage is what a bot needs around it: a stand-in for Telegram and one for a model provider.
type botStage struct {
	t        *testing.T
	telegram *fakeapi.Server
	bot      *fakeapi.Bot
	provider *fakeprovider.Provider
	url      string // of the provider
}

func newBotStage(t *testing.T) *botStage {
	t.Helper()
	s := &botStage{t: t, provider: &fakeprovider.Provider{Key: providerSecret}}
	s.telegram = fakeapi.Start(t, fakeapi.Options{})
	s.bot = s.telegram.Bot(botToken)
	models := httptest.NewServer(s.provider)
	t.Cleanup(models.Close)
	s.url = models.URL + "/v1"
	return s
}

// start starts `holdfast bot` and waits until it works.
func (s *botStage) start(db string, args ...string) *server {
	s.t.Helper()
	env := []string{"HOLDFAST_BOT_TOKEN=" + botToken, "OTHER_TOKEN=" + otherBotToken, "HOLDFAST_PROVIDER_KEY=" + providerSecret}
	args = append([]string{"bot", "--db", db, "--listen", "127.0.0.1:0", "--api-url", s.telegram.URL, "--provider-url", s.url, "--log-level", "DEBUG"}, args...)
	process := start(s.t, "", env, args...)
	s.t.Cleanup(func() {
		for _, secret := range []string{botSecret, providerSecret} {
			if strings.Contains(process.notes.String(), secret) {
				s.t.Errorf("a secret is in the log:\n%s", process.notes)
			}
		}
	})
	s.until("the bot works", process, func() bool { return strings.Contains(process.notes.String(), "the bot works") })
	return process
}

func (s *botStage) until(what string, process *server, so func() bool) {
	s.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !so() {
		if time.Now().After(deadline) {
			s.t.Fatalf("it never comes that %s\n%s", what, process.notes)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// talker is a person with the bot's chat open.
type talker struct {
	*fakeapi.Person
	s       *botStage
	process *server
}

func (s *botStage) talker(process *server, bot *fakeapi.Bot, id int64, language string) *talker {
	s.t.Helper()
	p := &talker{bot.Person(fakeapi.User{ID: id, FirstName: "Ann", LanguageCode: language}), s, process}
	p.asks("/start", map[string]string{"ru": "Здравствуйте", "en": "Hello"}[language])
	return p
}

func (p *talker) asks(text, answer string) fakeapi.Message {
	p.s.t.Helper()
	return p.sees(p.Send(text), answer)
}

func (p *talker) sees(behind int, text string) fakeapi.Message {
	p.s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	found, err := p.Await(ctx, func(m fakeapi.Message) bool {
		return m.ID > behind && m.From.IsBot && (strings.Contains(m.Text, text) || text == aPicture && m.Photo != "")
	})
	if err != nil {
		var shown []string
		for _, m := range p.Messages() {
			shown = append(shown, m.Text)
		}
		p.s.t.Fatalf("%q is not seen: %v\n%s\n%s", text, err, strings.Join(shown, "\n---\n"), p.process.notes)
	}
	return found
}

const aPicture = "(a picture)"

// pays taps an offer of /plans and pays what comes.
func (p *talker) pays(button string) fakeapi.Payment {
	p.s.t.Helper()
	plans := p.asks("/plans", map[bool]string{true: "Выберите кнопкой ниже.", false: "Choose with a button below."}[strings.ContainsAny(button, "абвгдеи")])
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	tap, err := p.Tap(plans.ID, button)
	if err == nil {
		_, err = tap.Answer(ctx)
	}
	if err != nil {
		p.s.t.Fatal(err)
	}
	link := ""
	shown, err := p.Await(ctx, func(m fakeapi.Message) bool { return m.ID > plans.ID && m.From.IsBot })
	if err == nil {
		link = p.Payable(shown.ID)
	}
	paid, err := p.Pay(ctx, link)
	if err != nil {
		p.s.t.Fatalf("%v\n%s", err, p.process.notes)
	}
	return paid
}

func TestABotIsStartedWithATokenAndSellsAndWorks(t *testing.T) {
	for name, webhook := range map[string]bool{"asking for updates": false, "with a webhook": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, db := newBotStage(t), database(t)
			args := []string{"--admin", "99", "--support", "@help", "--terms", "https://terms.example"}
			if webhook {
				address := freeAddress(t)
				args = append(args, "--listen", address, "--webhook-url", "http://"+address)
			}
			process := s.start(db, args...)
			ann, operator := s.talker(process, s.bot, 1, "ru"), s.talker(process, s.bot, 99, "en")
			ann.asks("исправь меня", "исправь меня")
			if sold := ann.asks("/plans", "Выберите кнопкой ниже.").Text; !strings.Contains(sold, "«Чат»") || strings.Contains(sold, "«Анализ файлов»") {
				t.Errorf("what the bot cannot do is sold: %s", sold)
			}
			before := ann.Last().ID
			ann.pays("100 кредитов: 100 звёзд")
			ann.sees(before, "Спасибо! Платёж получен: 100 кредитов.")
			ann.asks("/image кот", aPicture)
			before = ann.Last().ID
			first := ann.pays("Старший: 250 звёзд")
			ann.sees(before, "Спасибо! Платёж получен: Старший.")
			ann.asks("/chat как дела", "как дела")
			before = ann.Last().ID
			s.until("everything is charged", process, func() bool {
				return strings.Contains(ann.asks("/history", "Ваши последние запросы").Text, "«Чат». Готово. Списано")
			})
			operator.asks("/refund "+first.ChargeID, "Telegram has refunded the payment")
			ann.sees(before, "Платёж возвращён: 250 звёзд")
			if calls := s.provider.Calls(); len(calls) != 3 || s.provider.Worked() != 3 {
				t.Errorf("the provider was asked %d times and worked %d times", len(calls), s.provider.Worked())
			}
			for path, contains := range map[string]string{"/healthz": `"waiting":0`, "/metrics": "holdfast_"} {
				response, err := http.Get(process.url + path)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(response.Body)
				_ = response.Body.Close()
				if response.StatusCode != http.StatusOK || !strings.Contains(string(body), contains) {
					t.Errorf("%s: %d %.200s", path, response.StatusCode, body)
				}
			}
			if code := process.interrupt(); code != 0 {
				t.Errorf("exit %d\n%s", code, process.notes)
			}
			verified(t, db)
		})
	}
}

func TestABotKilledAmongPaymentsGrantsEachOnceAndTellsIt(t *testing.T) {
	t.Parallel()
	s, db := newBotStage(t), database(t)
	process := s.start(db)
	const people = 12
	them := make([]*talker, people)
	for i := range people {
		them[i] = s.talker(process, s.bot, int64(i+1), "en")
	}
	each(people, func(i int) {
		them[i].pays("100 credits: 100 Stars") // and the process dies among what follows from it
	})
	process.kill()
	process = s.start(db)
	for i := range people {
		them[i].process = process
		s.until("the payment is granted", process, func() bool {
			return strings.Contains(them[i].asks("/balance", "Your plan").Text, "103 credits")
		})
	}
	if code := process.interrupt(); code != 0 {
		t.Errorf("exit %d\n%s", code, process.notes)
	}
	verified(t, db)
}

func TestABotKilledAtWorkAnswersOnceAndChargesOnce(t *testing.T) {
	t.Parallel()
	s, db := newBotStage(t), database(t)
	process := s.start(db)
	ann := s.talker(process, s.bot, 1, "en")
	release := s.provider.Hold()
	asked := ann.Send("make this better")
	s.until("the provider works", process, func() bool { return len(s.provider.Calls()) == 1 })
	process.kill()
	release()
	process = s.start(db, "--provider-remembers-keys")
	ann.process = process
	ann.sees(asked, "make this better") // when the lease of the killed worker has lapsed
	s.until("it is charged", process, func() bool {
		return strings.Contains(ann.asks("/history", "Your latest requests").Text, "Done. Charged: 1 credit.")
	})
	ann.asks("/balance", "Available now: 2 credits.")
	if got := s.provider.Worked(); got != 1 {
		t.Errorf("the provider worked %d times", got)
	}
	answers := 0
	for _, m := range ann.Messages() {
		if m.From.IsBot && m.Text == "make this better" {
			answers++
		}
		if _, live := m.Button("Cancel"); live {
			t.Errorf("%q still has a button", m.Text)
		}
	}
	if answers != 1 {
		t.Errorf("the answer came %d times", answers)
	}
	if code := process.interrupt(); code != 0 {
		t.Errorf("exit %d\n%s", code, process.notes)
	}
	verified(t, db)
}

// Everybody presses twice at the same moment, and is charged for what they get.
func TestTwoHundredPeopleWhoPressTwiceAtOnceAreChargedForWhatTheyGet(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute at Telegram's pace")
	}
	t.Parallel()
	s, db := newBotStage(t), database(t)
	process := s.start(db, "--at-once", "32")
	const people = 200
	them := make([]*fakeapi.Person, people)
	for i := range people {
		them[i] = s.bot.Person(fakeapi.User{ID: int64(1000 + i), FirstName: "Ann", LanguageCode: "en"})
	}
	s.bot.Hold()
	for i := range people {
		them[i].Send(fmt.Sprintf("one of %d", i))
		them[i].Send(fmt.Sprintf("two of %d", i))
	}
	s.bot.Release()
	// The plan lets one be active at a time: each person gets a result for it, and is refused the other or gets it later.
	deadline, done := time.Now().Add(3*time.Minute), 0
	for done < people && time.Now().Before(deadline) {
		done = 0
		for i, person := range them {
			results, answered := 0, 0
			for _, m := range person.Messages() {
				switch {
				case !m.From.IsBot:
				case m.Text == fmt.Sprintf("one of %d", i), m.Text == fmt.Sprintf("two of %d", i):
					results++
					answered++
				case strings.Contains(m.Text, "Please wait"), strings.Contains(m.Text, "No free requests"):
					answered++
				}
			}
			if answered == 2 && results > 0 {
				done++
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	if done != people {
		t.Fatalf("%d of %d people have their answers\n%s", done, people, process.notes)
	}
	if code := process.interrupt(); code != 0 {
		t.Errorf("exit %d\n%s", code, process.notes)
	}
	verified(t, db)
	for i, person := range them {
		if i%10 != 0 { // a look at each would take longer than the rest; the ledger of all of them adds up
			continue
		}
		results := 0
		for _, m := range person.Messages() {
			if m.From.IsBot && (m.Text == fmt.Sprintf("one of %d", i) || m.Text == fmt.Sprintf("two of %d", i)) {
				results++
			}
		}
		out, notes, code := holdfast(t, "account", "show", fmt.Sprintf("telegram:%d", 1000+i), "--db", db)
		want := fmt.Sprintf("available %d, reserved 0", 3-results)
		if words := strings.Join(strings.Fields(out), " "); code != 0 || !strings.Contains(words, want) || !strings.Contains(words, "active 0 of 1") {
			t.Errorf("person %d got %d results, wanted %q: %s%s", i, results, want, out, notes)
		}
	}
}

func TestSeveralBotsRunInOneProcessAndKeepTheirPeopleApart(t *testing.T) {
	t.Parallel()
	s, db := newBotStage(t), database(t)
	other := s.telegram.Bot(otherBotToken)
	tokenFile, config := filepath.Join(t.TempDir(), "token"), filepath.Join(t.TempDir(), "bots.yaml")
	write := func(file, content string) {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(tokenFile, botToken+"\n")
	write(config, fmt.Sprintf(`
bots:
  - name: first
    token_file: %q
    project: one
    support: "@first"
    features:
      text.improve: {model: small, prompt: Be kind.}
  - name: second
    token_env: OTHER_TOKEN
    project: two
    support: "@second"
    admins: [5]
    features:
      image.generate: {kind: image, model: large, command: draw, size: 512x512}
`, tokenFile))
	process := s.start(db, "--config", config)
	s.until("both work", process, func() bool { return strings.Count(process.notes.String(), "the bot works") == 2 })
	ann, same := s.talker(process, s.bot, 5, "en"), s.talker(process, other, 5, "en")
	same.asks("/grant 5 10 credit", "Added: 10 credits")
	ann.asks("/grant 5 10 credit", "There is no such command")
	ann.asks("/balance", "Available now: 3 credits")
	same.asks("/balance", "Available now: 13 credits")
	ann.asks("improve this", "improve this")
	same.asks("/draw a cat", aPicture)
	ann.asks("/help", "@first")
	same.asks("/help", "@second")
	for i, call := range s.provider.Calls() {
		if want := []string{"small", "large"}[i]; call.Model != want {
			t.Errorf("call %d asked for the model %s, wanted %s", i, call.Model, want)
		}
	}
	if code := process.interrupt(); code != 0 {
		t.Errorf("exit %d\n%s", code, process.notes)
	}
	verified(t, db)
}

// Whichever server of a database publishes events, the bot tells its people.
func TestABotBesideAServerOnOneDatabaseTellsItsPeople(t *testing.T) {
	t.Parallel()
	s, db := newBotStage(t), pgtest.NewEmpty(t)
	api := serve(t, db) // it has the lease of the relay
	s.until("the server publishes", api, func() bool { return api.call("GET", "/v1/events", "", nil).status == http.StatusOK })
	process := s.start(db)
	ann := s.talker(process, s.bot, 1, "en")
	before := ann.Last().ID
	ann.pays("100 credits: 100 Stars")
	ann.sees(before, "Thank you! The payment is here: 100 credits.")
	s.provider.Next(fakeprovider.ContentRefused)
	ann.asks("something bad", "Nothing was charged.")
	var both sync.WaitGroup
	for _, one := range []*server{api, process} {
		both.Go(func() {
			if code := one.interrupt(); code != 0 {
				t.Errorf("exit %d\n%s", code, one.notes)
			}
		})
	}
	both.Wait()
	verified(t, db)
}

func TestTwoProcessesOfOneBotShareItsWorkAndOneGoesOnWithoutTheOther(t *testing.T) {
	t.Parallel()
	s, db := newBotStage(t), pgtest.NewEmpty(t)
	first := s.start(db)
	second := s.start(db)
	ann := s.talker(second, s.bot, 1, "en")
	ann.asks("one", "one")
	before := ann.Last().ID
	ann.pays("100 credits: 100 Stars")
	ann.sees(before, "Thank you!")
	first.kill()
	s.until("the first request has ended", second, func() bool {
		return strings.Contains(ann.asks("/balance", "Your plan").Text, "active now: 0")
	})
	ann.asks("two", "two")
	for _, text := range []string{"one", "two", "Thank you! The payment is here: 100 credits."} {
		shown := 0
		for _, m := range ann.Messages() {
			if m.From.IsBot && strings.HasPrefix(m.Text, text) {
				shown++
			}
		}
		if shown != 1 {
			t.Errorf("%q was told %d times", text, shown)
		}
	}
	if code := second.interrupt(); code != 0 {
		t.Errorf("exit %d\n%s", code, second.notes)
	}
	verified(t, db)
}

func TestABotThatCannotWorkSaysWhyAndNotItsToken(t *testing.T) {
	t.Parallel()
	s := newBotStage(t)
	strict := fakeapi.Start(t, fakeapi.Options{Tokens: []string{"1:x"}})
	config := filepath.Join(t.TempDir(), "bots.yaml")
	if err := os.WriteFile(config, []byte("bots:\n  - name: a\n    token_envv: X\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  []string
		args []string
		says string
	}{
		"no token":             {nil, nil, "HOLDFAST_BOT_TOKEN has no token"},
		"not a token":          {[]string{"HOLDFAST_BOT_TOKEN=" + botSecret}, nil, "does not hold a token"},
		"unknown to Telegram":  {[]string{"HOLDFAST_BOT_TOKEN=" + botToken}, []string{"--api-url", strict.URL}, "token is not valid"},
		"a typo in the file":   {nil, []string{"--config", config}, "token_envv"},
		"nobody does the work": {[]string{"HOLDFAST_BOT_TOKEN=" + botToken}, []string{"--api-url", ""}, "--provider-url"},
		"a webhook of http":    {[]string{"HOLDFAST_BOT_TOKEN=" + botToken}, []string{"--webhook-url", "http://bot.example"}, "--webhook-url"},
	} {
		cmd := command(t, append([]string{"bot", "--db", "memory:", "--listen", "127.0.0.1:0", "--api-url", s.telegram.URL}, c.args...)...)
		cmd.Env = environment(c.env...)
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), c.says) || strings.Contains(string(out), botSecret) {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}

func TestAWebhookOfAnotherProgramIsNotUnsetByAccident(t *testing.T) {
	t.Parallel()
	s := newBotStage(t)
	hook := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(hook.Close)
	set, err := http.Post(s.telegram.URL+"/bot"+botToken+"/setWebhook", "application/json", strings.NewReader(`{"url":"`+hook.URL+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	_ = set.Body.Close()
	cmd := command(t, "bot", "--db", "memory:", "--listen", "127.0.0.1:0", "--api-url", s.telegram.URL)
	cmd.Env = environment("HOLDFAST_BOT_TOKEN=" + botToken)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "--drop-webhook") {
		t.Errorf("%v\n%s", err, out)
	}
	process := s.start("memory:", "--drop-webhook")
	s.talker(process, s.bot, 1, "en")
	if code := process.interrupt(); code != 0 {
		t.Errorf("exit %d\n%s", code, process.notes)
	}
}
