package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/httpapi"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/metrics"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/store"
)

type serveCommand struct {
	databaseFlags
	webhookFlags
	brokerFlags
	Listen   string `default:"127.0.0.1:8080" env:"HOLDFAST_LISTEN" placeholder:"HOST:PORT" help:"Where to listen; port 0: any free one."`
	Catalog  string `env:"HOLDFAST_CATALOG" placeholder:"FILE" help:"Catalog file; its content becomes the newest version. Left out: the newest stored one, else the example."`
	Dev      bool   `help:"For trying out, on this machine only: project dev, with the key from HOLDFAST_DEV_KEY, or a new one that is printed."`
	DevKey   string `kong:"-"`
	AdminKey string `kong:"-"`

	StripeProject string   `env:"HOLDFAST_STRIPE_PROJECT" placeholder:"P" help:"Take Stripe's webhooks at /webhooks/stripe for this project. The signing secret is in HOLDFAST_STRIPE_SECRET (two, separated by a space, while one is replaced)."`
	StripeSecrets []string `kong:"-"`
	Texts         string   `env:"HOLDFAST_TEXTS" placeholder:"DIR" help:"A folder with en.json and ru.json: your own words in place of ours, for the texts that they have."`

	RateLimit  int           `env:"HOLDFAST_RATE_LIMIT" placeholder:"N" help:"Requests a second that each key may make, and twice as many at once; a key can have a limit of its own. Left out: as many as it likes."`
	SweepEvery time.Duration `default:"5s" env:"HOLDFAST_SWEEP_EVERY" help:"How often overdue reservations are looked for."`
	Traces     string        `env:"HOLDFAST_TRACES" placeholder:"URL" help:"Send traces of what PostgreSQL is asked to this OpenTelemetry collector (OTLP over HTTP)."`
	LogLevel   slog.Level    `default:"INFO" env:"HOLDFAST_LOG_LEVEL" help:"DEBUG, INFO, WARN or ERROR."`
}

// holder names this process in the lease of the relay. An SQLite file and what is in memory have one serving process at a
// time, so that its successor need not wait for the lease; of several servers each has a name of its own.
func (c serveCommand) holder() string {
	if strings.HasPrefix(c.DB, "postgres") {
		return ""
	}
	return "the serving process"
}

// devProject is the project of serve --dev.
const devProject = "dev"

func (c serveCommand) Run(ctx context.Context, t *terminal) error {
	c.StripeSecrets = strings.Fields(os.Getenv("HOLDFAST_STRIPE_SECRET"))
	c.DevKey, c.AdminKey = os.Getenv("HOLDFAST_DEV_KEY"), os.Getenv("HOLDFAST_ADMIN_KEY")
	if err := c.check(); err != nil {
		return err
	}
	guard, err := c.guard()
	if err != nil {
		return err
	}
	sinks, closeSinks, err := c.openSinks()
	if err != nil {
		return err
	}
	defer closeSinks()
	if c.Traces != "" {
		stop, err := startTraces(ctx, c.Traces)
		if err != nil {
			return err
		}
		defer stop()
		c.Trace = true
	}
	db, err := c.open(ctx, serving)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	keys, err := c.keys(ctx, db, t)
	if err != nil {
		return err
	}
	log := logger(t.notes, c.LogLevel)
	catalogs, err := c.catalogs(ctx, db, log)
	if err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		// Little of what a batch allocates outlives it: collecting less often took a third off the server's own CPU.
		debug.SetGCPercent(400)
	}
	if err := checkClock(ctx, db, log); err != nil {
		return err
	}
	if err := tellLiveWork(ctx, db, log, time.Now()); err != nil {
		return err
	}
	s, err := newServer(serverOptions{
		database: db, keys: keys, catalogs: catalogs, log: log, listen: c.Listen, sweepEvery: c.SweepEvery, adminKey: c.AdminKey, rateLimit: c.RateLimit, stripe: c.stripe(), texts: c.Texts,
		guard: guard, holder: c.holder(), sinks: sinks,
	})
	if err != nil {
		return err
	}
	log.Info("serving", "address", s.address(), "catalog_version", catalogs.of("").Version, "version", version())
	if _, err := fmt.Fprintln(t.out, "listening on", s.address()); err != nil {
		return err
	}
	return s.serve(ctx)
}

// check refuses what would be unsafe before anything is opened.
func (c serveCommand) check() error {
	host, _, err := net.SplitHostPort(c.Listen)
	if err != nil {
		return fmt.Errorf("--listen: use HOST:PORT, for example 127.0.0.1:8080")
	}
	if c.SweepEvery < 100*time.Millisecond || c.SweepEvery > time.Hour {
		return errors.New("--sweep-every: use 100ms to 1h")
	}
	if err := c.stripe().check(); err != nil {
		return err
	}
	if c.RateLimit < 0 {
		return errors.New("--rate-limit: use a number of requests a second, or leave it out")
	}
	if c.Dev {
		if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("--dev serves this machine only: use --listen 127.0.0.1:PORT")
		}
		return nil
	}
	if c.DevKey != "" {
		return errors.New("HOLDFAST_DEV_KEY is set without --dev: unset it, and make a key with holdfast key create --project P --scope work")
	}
	return nil
}

// keys says who may call. Without --dev at least one key must exist: a server that nobody can call, or anybody, is a mistake.
func (c serveCommand) keys(ctx context.Context, db database, t *terminal) (*keyring, error) {
	ring := &keyring{database: db}
	if c.Dev {
		if _, err := db.AddProject(ctx, devProject); err != nil {
			return nil, err
		}
		secret := c.DevKey
		if len(secret) > httpapi.MaxSecretBytes || strings.TrimSpace(secret) != secret {
			return nil, fmt.Errorf("HOLDFAST_DEV_KEY cannot be sent in a header: use at most %d bytes without spaces around them", httpapi.MaxSecretBytes)
		}
		if secret == "" {
			secret = newKey()
			_, _ = fmt.Fprintf(t.notes, "development key: %s\n", secret)
		}
		ring.allow(secret, httpapi.Key{ID: "dev", Project: devProject, Scopes: scopes})
		return ring, nil
	}
	any, err := db.HasKeys(ctx)
	if err == nil && !any && c.AdminKey == "" {
		err = errors.New("no API key exists, so nobody could call: holdfast key create --db … --project P --scope read,work, set HOLDFAST_ADMIN_KEY to make keys over the API, or serve --dev to try it out")
	}
	return ring, err
}

// catalogs are those that are stored. A file of --catalog becomes the newest version for all projects that have none of
// their own.
func (c serveCommand) catalogs(ctx context.Context, db database, log *slog.Logger) (*catalogs, error) {
	if c.Catalog != "" {
		_, source, err := readCatalog(c.Catalog)
		if err != nil {
			return nil, err
		}
		if _, err := replaceCatalog(ctx, db, c.Catalog, store.Catalog{Source: source}, store.AnyVersion); err != nil {
			return nil, err
		}
	}
	return openCatalogs(ctx, db, log)
}

// checkClock refuses to serve with a clock behind what the database has seen: no decision is earlier than its account's
// last one, so for as long as the difference nothing would expire and no window would end.
func checkClock(ctx context.Context, db database, log *slog.Logger) error {
	if remote, ok := db.(interface {
		Skew(ctx context.Context) (time.Duration, error)
	}); ok {
		skew, err := remote.Skew(ctx)
		if err != nil {
			return err
		}
		switch difference := skew.Abs().Round(time.Second); {
		case difference >= holdfast.RefuseSkew:
			return fmt.Errorf("this machine's clock and the database's are %s apart: set them right (NTP) before serving", difference)
		case difference >= holdfast.WarnSkew:
			log.Warn("this machine's clock and the database's differ: check the clocks of all servers", "difference", difference)
		}
	}
	last, err := db.LastDecision(ctx)
	if err != nil {
		return err
	}
	switch ahead := time.Until(last).Round(time.Second); {
	case last.IsZero():
	case ahead >= holdfast.RefuseSkew:
		return fmt.Errorf("the newest decision in the database lies %s ahead of this machine's clock: set the clock right, or wait; until then people would be held up", ahead)
	case ahead >= holdfast.WarnSkew:
		log.Warn("the newest decision in the database lies ahead of this machine's clock: check the clocks of all servers", "ahead", ahead)
	}
	return nil
}

// tellLiveWork tells once, before anything is done about it, what the last run has left: of each surface, since each has a ttl
// of its own. The first sweep, which follows at once, ends what is overdue, and no more: a worker elsewhere whose lease has
// lapsed may still come, until its reservation's time is over or another one has its job.
func tellLiveWork(ctx context.Context, db database, log *slog.Logger, now time.Time) error {
	surfaces, err := db.LiveBySurface(ctx, now)
	if err != nil {
		return err
	}
	for _, s := range surfaces {
		log.Info("found live at start; what is overdue is ended now", "surface", s.Surface, "live", s.Live, "lapsed_leases", s.Lapsed,
			"overdue", s.Overdue, "overdue_for", max(0, now.Sub(s.FirstExpiry)).Round(time.Second))
	}
	return nil
}

// keyring finds who calls: the development key, held in memory only, then the stored ones, remembered for a moment.
type keyring struct {
	database database
	held     map[[32]byte]httpapi.Key

	mu         sync.Mutex
	remembered map[[32]byte]rememberedKey
}

type rememberedKey struct {
	key   httpapi.Key
	until time.Time
}

const (
	rememberKeyFor     = 2 * time.Second // a revoked key works at most this much longer
	mostRememberedKeys = 1000
)

func (k *keyring) allow(secret string, key httpapi.Key) {
	k.held = map[[32]byte]httpapi.Key{sha256.Sum256([]byte(secret)): key}
}

// Lookup returns the key with that hash.
func (k *keyring) Lookup(ctx context.Context, hash [32]byte) (httpapi.Key, bool, error) {
	if key, ok := k.held[hash]; ok {
		return key, true, nil
	}
	now := time.Now()
	k.mu.Lock()
	known, ok := k.remembered[hash]
	k.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.key, true, nil
	}
	stored, ok, err := k.database.KeyByHash(ctx, hash)
	if err != nil || !ok || !stored.RevokedAt.IsZero() {
		return httpapi.Key{}, false, err
	}
	key := httpapi.Key{ID: stored.ID, Project: stored.Project, Scopes: stored.Scopes, RateLimit: stored.RateLimit}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.remembered == nil || len(k.remembered) >= mostRememberedKeys {
		k.remembered = map[[32]byte]rememberedKey{}
	}
	k.remembered[hash] = rememberedKey{key, now.Add(rememberKeyFor)}
	return key, true, nil
}

// server is the HTTP API on an engine on a database.
type server struct {
	engine   *engine.Engine
	relay    *outbox.Relay
	catalogs *catalogs
	http     *http.Server
	listener net.Listener
	log      *slog.Logger
}

type serverOptions struct {
	database   database
	keys       *keyring
	catalogs   *catalogs
	log        *slog.Logger
	listen     string
	sweepEvery time.Duration
	adminKey   string
	rateLimit  int
	stripe     stripeWebhook
	texts      string // a folder with an operator's own; empty: none
	guard      outbox.Guard
	holder     string // of the relay's lease; empty: a random one
	sinks      map[string]outbox.Sink
}

// newServer wires everything and listens; nothing is served before serve.
func newServer(o serverOptions) (*server, error) {
	var own fs.FS
	if o.texts != "" {
		own = os.DirFS(o.texts)
	}
	spoken, err := message.NewWith(own)
	if err != nil {
		return nil, err
	}
	observer := metrics.New()
	e := engine.New(o.database, engine.Options{Catalog: o.catalogs.of, Logger: o.log, SweepEvery: o.sweepEvery, Observer: observer})
	observer.Watch(e, o.database)
	relay := outbox.New(o.database, outbox.Options{Sinks: o.sinks, Guard: o.guard, Holder: o.holder, Version: version(), Logger: o.log, Observer: observer})
	desk := &payment.Desk{Engine: e, Claims: o.database, Log: o.log}
	handler, err := httpapi.New(httpapi.Options{
		Engine: e, Keys: o.keys, Texts: texts{spoken}, Logger: o.log, Version: version(),
		Catalogs: o.catalogs, Payments: desk, Stars: starsOf(desk, o.database, e), Events: outbox.NewDesk(o.database, o.guard), Admin: instance{o.database}, AdminKey: o.adminKey, RateLimit: o.rateLimit,
	})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", o.listen, err)
	}
	s := &server{engine: e, relay: relay, catalogs: o.catalogs, listener: listener, log: o.log, http: &http.Server{
		Handler:           withMetrics(observer.Handler(), o.stripe.mount(handler, desk, o.database, e, o.log)),
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      holdfast.RetryFor + 50*time.Second, // longer than any command is retried
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    32 << 10,
		ErrorLog:          slog.NewLogLogger(o.log.Handler(), slog.LevelDebug),
	}}
	s.http.RegisterOnShutdown(e.StopClaims) // waiting claims would keep it
	return s, nil
}

// withMetrics answers /metrics beside the API: no key is needed, since no account, key or amount is in it.
func withMetrics(scrape, api http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/metrics" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			scrape.ServeHTTP(w, r)
			return
		}
		api.ServeHTTP(w, r)
	})
}

func (s *server) address() string { return "http://" + s.listener.Addr().String() }

// shutdownFor bounds how long requests are waited for when the server stops.
const shutdownFor = 15 * time.Second

// serve works until ctx ends, then takes no new requests, answers those that are there, and stops the engine. It returns
// early where the engine cannot go on.
func (s *server) serve(ctx context.Context) error {
	working, stopEngine := context.WithCancel(context.WithoutCancel(ctx))
	defer stopEngine()
	engineDone := make(chan error, 1)
	go func() { engineDone <- s.engine.Serve(working) }()
	go s.catalogs.refresh(working)
	relayDone := make(chan error, 1)
	go func() { relayDone <- s.relay.Run(working) }()
	httpDone := make(chan error, 1)
	go func() { httpDone <- s.http.Serve(s.listener) }()

	var failed error
	engineStopped := false
	select {
	case <-ctx.Done():
		s.log.Info("stopping: requests that are here are still answered")
	case failed = <-engineDone:
		engineStopped = true
	case failed = <-httpDone:
		httpDone <- nil
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownFor)
	defer cancel()
	if err := s.http.Shutdown(closing); err != nil {
		s.log.Warn("some requests did not end in time", "error", err)
		_ = s.http.Close()
	}
	<-httpDone
	stopEngine()
	failed = errors.Join(failed, <-relayDone)
	if !engineStopped {
		failed = errors.Join(failed, <-engineDone)
	}
	return failed
}

// logger writes structured logs; they never hold secrets or payloads.
func logger(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}
