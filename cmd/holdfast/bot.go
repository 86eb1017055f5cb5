package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/metrics"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/telegram"
	"github.com/holdfast-dev/holdfast/telegram/botapi"
	"github.com/holdfast-dev/holdfast/telegram/inbox"
)

type botCommand struct {
	databaseFlags
	webhookFlags
	Config string `env:"HOLDFAST_BOTS" type:"existingfile" placeholder:"FILE" help:"Several bots in one process: a YAML file. It takes the place of the flags that describe one bot."`

	TokenFile string  `env:"HOLDFAST_BOT_TOKEN_FILE" placeholder:"FILE" help:"A file with the bot's token. Left out: HOLDFAST_BOT_TOKEN has it. Never a flag: command lines are seen and logged."`
	Project   string  `default:"dev" env:"HOLDFAST_PROJECT" help:"Whose accounts the bot's people are."`
	Admin     []int64 `env:"HOLDFAST_ADMINS" placeholder:"USER" help:"User ids of those who may /grant and /refund; repeat the flag, or separate by commas."`
	Support   string  `env:"HOLDFAST_SUPPORT" placeholder:"CONTACT" help:"Where people find help, told by /help and /paysupport, for example @shop_help."`
	Terms     string  `env:"HOLDFAST_TERMS" placeholder:"URL" help:"The terms of use, told by /terms."`

	APIURL     string `name:"api-url" env:"HOLDFAST_BOT_API_URL" placeholder:"URL" help:"Where the Bot API is: Telegram's own if left out; holdfast fake-telegram for trying out."`
	WebhookURL string `name:"webhook-url" env:"HOLDFAST_WEBHOOK_URL" placeholder:"URL" help:"The public https address that leads to --listen: Telegram sends updates there, to /telegram/NAME. Left out: the bot asks for them."`
	DropHook   bool   `name:"drop-webhook" help:"Ask for updates although a webhook is set, and unset it. Without it that is refused: another program may live from it."`

	ProviderURL string `name:"provider-url" env:"HOLDFAST_PROVIDER_URL" placeholder:"URL" help:"The model provider or gateway, OpenAI-compatible, with its version: https://api.openai.com/v1. The key is in HOLDFAST_PROVIDER_KEY. Left out, with --api-url: answers are rehearsed, without a model."`
	ProviderKey string `kong:"-"`
	TextModel   string `default:"gpt-4o-mini" env:"HOLDFAST_TEXT_MODEL" help:"The model of features that make text."`
	ImageModel  string `default:"gpt-image-1" env:"HOLDFAST_IMAGE_MODEL" help:"The model of features that make pictures."`
	Remembers   bool   `name:"provider-remembers-keys" env:"HOLDFAST_PROVIDER_REMEMBERS_KEYS" help:"The provider answers a repeat under the same Idempotency-Key with the same answer: a lost answer is asked for once more."`
	AtOnce      int    `default:"4" env:"HOLDFAST_AT_ONCE" help:"How many requests of a queue are worked on at once."`

	Listen     string        `default:"127.0.0.1:8082" env:"HOLDFAST_LISTEN" placeholder:"HOST:PORT" help:"Where webhooks, /healthz and /metrics are; port 0: any free one."`
	Catalog    string        `env:"HOLDFAST_CATALOG" placeholder:"FILE" help:"Catalog file; its content becomes the newest version. Left out: the newest stored one, else the example."`
	Texts      string        `env:"HOLDFAST_TEXTS" placeholder:"DIR" help:"A folder with en.json and ru.json: your own words in place of ours, for the texts that they have."`
	SweepEvery time.Duration `default:"5s" env:"HOLDFAST_SWEEP_EVERY" help:"How often overdue reservations are looked for."`
	LogLevel   slog.Level    `default:"INFO" env:"HOLDFAST_LOG_LEVEL" help:"DEBUG, INFO, WARN or ERROR."`

	Now   func() time.Time `kong:"-"` // a clock that the demo moves; nil: the machine's
	Lease time.Duration    `kong:"-"` // of jobs; 0: the kit's
}

func (c botCommand) Run(ctx context.Context, t *terminal) error {
	c.ProviderKey = os.Getenv("HOLDFAST_PROVIDER_KEY")
	settings, err := c.settings(os.Getenv)
	if err != nil {
		return err
	}
	guard, err := c.guard()
	if err != nil {
		return err
	}
	db, err := c.open(ctx, serving)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	notes, ok := db.(store.Telegram)
	if !ok {
		return errors.New("--db: this database keeps nothing for bots")
	}
	log := logger(t.notes, c.LogLevel)
	serve := serveCommand{databaseFlags: c.databaseFlags, Catalog: c.Catalog}
	catalogs, err := serve.catalogs(ctx, db, log)
	if err != nil {
		return err
	}
	if c.Now == nil {
		if err := checkClock(ctx, db, log); err != nil {
			return err
		}
	}
	spoken, err := openTexts(c.Texts)
	if err != nil {
		return err
	}
	observer := metrics.New()
	e := engine.New(db, engine.Options{Catalog: catalogs.of, Now: c.Now, Logger: log, SweepEvery: c.SweepEvery, Observer: observer})
	observer.Watch(e, db)
	h := &botHouse{command: c, database: db, notes: notes, engine: e, texts: spoken, log: log, catalogs: catalogs}
	provider, closeProvider, err := h.provider()
	if err != nil {
		return err
	}
	defer closeProvider()
	for i := range settings {
		if err := h.add(ctx, &settings[i], provider); err != nil {
			return err
		}
	}
	relay := outbox.New(db, outbox.Options{Guard: guard, Holder: serve.holder(), Version: version(), Now: c.Now, Logger: log, Observer: observer})
	listener, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", c.Listen, err)
	}
	h.http = h.server(observer.Handler())
	return h.serve(ctx, t, relay, listener)
}

// settings are those of the bots, from the file or from the flags.
func (c botCommand) settings(environment func(string) string) ([]botSettings, error) {
	bots := []botSettings{{
		TokenFile: c.TokenFile, Project: c.Project, Admins: c.Admin, Support: c.Support, Terms: c.Terms,
	}}
	var err error
	if c.Config != "" {
		if bots, err = readBots(c.Config); err != nil {
			return nil, err
		}
	}
	err = completeBots(bots, environment)
	if c.WebhookURL != "" {
		err = errors.Join(err, checkPublic(c.WebhookURL))
		if c.DropHook {
			err = errors.Join(err, errors.New("--drop-webhook: leave it out with --webhook-url"))
		}
	}
	if _, _, problem := net.SplitHostPort(c.Listen); problem != nil {
		err = errors.Join(err, errors.New("--listen: use HOST:PORT, for example 127.0.0.1:8082"))
	}
	if c.ProviderURL == "" && c.APIURL == "" {
		err = errors.Join(err, errors.New("--provider-url: say who does the work, for example https://api.openai.com/v1, with the key in HOLDFAST_PROVIDER_KEY"))
	}
	if c.AtOnce < 1 {
		err = errors.Join(err, errors.New("--at-once: use 1 or more"))
	}
	if c.SweepEvery < 100*time.Millisecond || c.SweepEvery > time.Hour {
		err = errors.Join(err, errors.New("--sweep-every: use 100ms to 1h"))
	}
	return bots, err
}

func openTexts(folder string) (*message.Texts, error) {
	var own fs.FS
	if folder != "" {
		own = os.DirFS(folder)
	}
	return message.NewWith(own)
}

// botHouse is what the bots of a process share.
type botHouse struct {
	command  botCommand
	database database
	notes    store.Telegram
	engine   *engine.Engine
	texts    *message.Texts
	catalogs *catalogs
	log      *slog.Logger
	http     *http.Server
	bots     []*bot
}

// bot is one of them.
type bot struct {
	settings *botSettings
	api      *botapi.Client
	kit      *telegram.Kit
	shop     *telegram.Shop
	inbox    *inbox.Inbox
}

// add makes a bot: it asks Telegram who it is, and starts nothing.
func (h *botHouse) add(ctx context.Context, settings *botSettings, provider *modelProvider) error {
	failed := func(err error) error { return fmt.Errorf("bot %s: %w", settings.Name, err) }
	c := h.command
	if _, err := h.database.AddProject(ctx, settings.Project); err != nil {
		return err
	}
	api, err := botapi.New(botapi.Options{Token: settings.token, URL: c.APIURL, Logger: h.log})
	if err != nil {
		return failed(err)
	}
	_, username, err := api.Me(ctx)
	if err != nil {
		return failed(err)
	}
	catalog := h.catalogs.of(settings.Project)
	offers, err := settings.features(catalog, map[featureKind]string{textKind: c.TextModel, imageKind: c.ImageModel})
	if err != nil {
		return err
	}
	surface := ""
	if _, ok := catalog.Surface("bot"); ok {
		surface = "bot"
	}
	b := &bot{settings: settings, api: api}
	b.kit, err = telegram.New(telegram.Options{
		Bot: settings.id, Username: username, Project: settings.Project, Engine: h.engine, API: api, Notes: h.notes, Texts: h.texts,
		Surface: surface, TopUp: telegram.ButtonTopUp, Plans: telegram.ButtonPlans, Lease: c.Lease, Logger: h.log,
	})
	if err != nil {
		return failed(err)
	}
	for _, o := range offers {
		b.kit.Feature(h.feature(settings.Project, o, provider))
	}
	b.shop = telegram.NewShop(b.kit, telegram.ShopOptions{
		Stars: &telegramstars.Stars{
			Book: &payment.Book{
				Desk: &payment.Desk{Engine: h.engine, Claims: h.database, Log: h.log}, Orders: h.database, Accounts: h.engine,
				Project: settings.Project, Provider: settings.PaymentsAs,
			},
			Bot: settings.id,
		},
		Contact: settings.contact(), Operators: settings.Admins,
	})
	take := func(ctx context.Context, u inbox.Update) error {
		_, err := b.shop.Take(ctx, u.Raw)
		return err
	}
	b.inbox = inbox.New(inbox.Options{
		Store: h.notes, Bot: settings.id, Secret: settings.webhookSecret(), Handle: take, Fast: take,
		Refuse: func(ctx context.Context, u inbox.Update) error { return b.shop.Refuse(ctx, u.Raw) },
		Logger: h.log, Now: h.engine.Now,
	})
	h.bots = append(h.bots, b)
	return nil
}

// receive has Telegram send updates to the webhook, or makes sure that they can be asked for.
func (h *botHouse) receive(ctx context.Context, b *bot) error {
	info, err := b.api.WebhookInfo(ctx)
	if err != nil {
		return err
	}
	if h.command.WebhookURL == "" {
		if info.URL == "" {
			return nil
		}
		if !h.command.DropHook {
			return errors.New("telegram sends this bot's updates to a webhook, which another program may live from: use --webhook-url, or --drop-webhook to unset it and ask for updates")
		}
		return b.api.DeleteWebhook(ctx)
	}
	address := strings.TrimSuffix(h.command.WebhookURL, "/") + b.settings.webhookPath()
	if err := b.api.SetWebhook(ctx, botapi.Webhook{URL: address, Secret: b.settings.webhookSecret(), Allowed: inbox.Kinds()}); err != nil {
		return err
	}
	if info, err = b.api.WebhookInfo(ctx); err != nil {
		return err
	}
	return telegram.CheckWebhook(info, address, inbox.Kinds())
}

// server answers webhooks, and those who watch the process.
func (h *botHouse) server(scrape http.Handler) *http.Server {
	routes := http.NewServeMux()
	for _, b := range h.bots {
		routes.Handle("POST "+b.settings.webhookPath(), b.inbox)
	}
	routes.Handle("GET /metrics", scrape)
	routes.HandleFunc("GET /healthz", h.health)
	return &http.Server{
		Handler: routes, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10, ErrorLog: slog.NewLogLogger(h.log.Handler(), slog.LevelDebug),
	}
}

// botHealth is how a bot stands: how many updates wait to be handled, since when, and how many were set aside.
type botHealth struct {
	Bot     string     `json:"bot"`
	Waiting int64      `json:"waiting"`
	Failed  int64      `json:"failed"`
	Oldest  *time.Time `json:"oldest,omitempty"`
}

// health says whether the process can work, and what waits in it.
func (h *botHouse) health(w http.ResponseWriter, r *http.Request) {
	err := h.engine.Ready(r.Context())
	var counts []store.UpdateCount
	if err == nil {
		counts, err = h.notes.UpdateCounts(r.Context())
	}
	if err != nil {
		http.Error(w, "the database cannot be used", http.StatusServiceUnavailable)
		return
	}
	told := make([]botHealth, len(h.bots))
	for i, b := range h.bots {
		told[i].Bot = b.settings.Name
		for _, count := range counts {
			if count.Bot == b.settings.id {
				told[i].Waiting, told[i].Failed = count.Waiting, count.Failed
				if !count.Oldest.IsZero() {
					told[i].Oldest = &count.Oldest
				}
			}
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"status": "ok", "bots": told})
}

// serve runs everything until ctx ends: first the edges stop, then what they need.
func (h *botHouse) serve(ctx context.Context, t *terminal, relay *outbox.Relay, listener net.Listener) error {
	working, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEngine()
	edges, stopEdges := context.WithCancel(ctx)
	defer stopEdges()
	engineDone, relayDone := make(chan error, 1), make(chan error, 1)
	go func() { engineDone <- h.engine.Serve(working) }()
	go func() { relayDone <- relay.Run(working) }()
	go h.catalogs.refresh(working)

	var mutex sync.Mutex
	var failures []error
	failed := func(err error) {
		if err != nil && edges.Err() == nil {
			mutex.Lock()
			failures = append(failures, err)
			mutex.Unlock()
			stopEdges()
		}
	}
	var running sync.WaitGroup
	run := func(part func(ctx context.Context) error) { running.Go(func() { failed(part(edges)) }) }
	run(func(ctx context.Context) error {
		closing := context.AfterFunc(ctx, func() {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownFor)
			defer cancel()
			if h.http.Shutdown(ending) != nil {
				_ = h.http.Close()
			}
		})
		defer closing()
		if err := h.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	var kits []*telegram.Kit
	for _, b := range h.bots {
		run(func(ctx context.Context) error {
			if err := h.receive(ctx, b); err != nil {
				return fmt.Errorf("bot %s: %w", b.settings.Name, err)
			}
			if err := b.shop.SetUp(ctx); err != nil {
				return fmt.Errorf("bot %s: %w", b.settings.Name, err)
			}
			h.log.Info("the bot works", "bot", b.settings.Name, "id", b.settings.id, "project", b.settings.Project, "webhook", h.command.WebhookURL != "")
			if h.command.WebhookURL != "" {
				return nil
			}
			return b.inbox.Poll(ctx, b.api)
		})
		run(b.inbox.Run)
		run(b.shop.Run)
		run(func(ctx context.Context) error { return h.follow(ctx, b) })
		kits = append(kits, b.kit)
	}
	run(func(ctx context.Context) error { return telegram.Run(ctx, kits...) })
	if _, err := fmt.Fprintln(t.out, "listening on http://"+listener.Addr().String()); err != nil {
		failed(err)
	}

	engineStopped := false
	select {
	case <-edges.Done():
		h.log.Info("stopping: what is being worked on may end")
	case err := <-engineDone:
		engineStopped = true
		failed(err)
		stopEdges()
	}
	running.Wait()
	stopEngine()
	failures = append(failures, <-relayDone)
	if !engineStopped {
		failures = append(failures, <-engineDone)
	}
	return errors.Join(failures...)
}
