package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast/internal/fakeprovider"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
	"github.com/holdfast-dev/holdfast/web"
)

// demoPage is the demo in a browser: a chat with the real bot, Telegram and the model provider played on this machine, and
// beside it what the database believes.
type demoPage struct {
	bot       *demoBot
	telegram  *fakeapi.Bot
	ann       *fakeapi.Person
	operator  *fakeapi.Person
	provider  *fakeprovider.Provider
	database  database
	catalogs  *catalogs
	addresses []string // by which the page is asked for

	acting sync.Mutex // one button at a time
}

// demoWorkTakes is long enough to see work run, and to kill who does it.
const demoWorkTakes = 3 * time.Second

// show serves the page until ctx ends, and leaves nothing behind.
func (c demoCommand) show(ctx context.Context, t *terminal) (err error) {
	if err := (serveCommand{Listen: c.Listen, Dev: true, SweepEvery: demoSweepEvery}).check(); err != nil {
		return err
	}
	directory, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return fmt.Errorf("make a directory for the database: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	flags := databaseFlags{DB: "sqlite:" + filepath.Join(directory, "demo.db")}

	telegram := fakeapi.New(fakeapi.Options{Tokens: []string{demoToken}})
	defer telegram.Close()
	if err := telegram.Listen("127.0.0.1:0"); err != nil {
		return err
	}
	provider := &fakeprovider.Provider{Latency: demoWorkTakes}
	models, err := serveHere("127.0.0.1:0", provider)
	if err != nil {
		return err
	}
	defer models.close()

	var notes io.Writer
	if c.Verbose {
		notes = t.notes
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	p := &demoPage{
		bot:      &demoBot{database: flags.DB, api: telegram.URL, provider: models.url + "/v1", notes: notes},
		provider: provider, telegram: telegram.Bot(demoToken),
	}
	p.ann = p.telegram.Person(fakeapi.User{ID: demoPerson, FirstName: "Ann", LanguageCode: "en"})
	p.operator = p.telegram.Person(fakeapi.User{ID: demoOperator, FirstName: "Operator", LanguageCode: "en"})
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		defer stop()
		ended <- p.bot.run(ctx, ready)
	}()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	select {
	case <-ready:
	case <-ctx.Done():
		return nil // what the bot died of is told as it ends
	}
	p.database, err = flags.open(ctx, reading) // from outside, as holdfast account show would
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.database.Close()) }()
	p.catalogs, err = openCatalogs(ctx, p.database, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	p.ann.Send("/start")

	page, err := serveHere(c.Listen, p)
	if err != nil {
		return err
	}
	defer page.close()
	_, port, _ := net.SplitHostPort(page.listener.Addr().String())
	p.addresses = []string{page.listener.Addr().String(), "localhost:" + port}
	_, _ = fmt.Fprintf(t.out, "listening on %s\n\nOpen it in a browser: a chat with a bot, and what the database believes. Ctrl-C ends it, and its database goes with it.\n"+
		"The main job here, meanwhile; holdfast demo --once tells the whole story and ends.\n\n", page.url)
	main := c
	main.Listen = "127.0.0.1:0" // the page has the other address
	err = main.onStage(ctx, t, func(ctx context.Context, s *story) error { return s.tellMainJob(ctx) })
	if ctx.Err() != nil {
		return nil // whoever has seen enough
	}
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(t.out, "\nThe page is at %s until Ctrl-C.\n", page.url)
	<-ctx.Done()
	return nil
}

// served is a server on this machine.
type served struct {
	url      string
	listener net.Listener
	http     *http.Server
}

func serveHere(address string, handler http.Handler) (*served, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	s := &served{url: "http://" + listener.Addr().String(), listener: listener, http: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}}
	go func() { _ = s.http.Serve(listener) }()
	return s, nil
}

func (s *served) close() { _ = s.http.Close() }

// ServeHTTP answers the page's three kinds of requests: its own files, GET /state and POST /do.
func (p *demoPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Whoever is led here under another name by a page of theirs is not let in.
	if !slices.Contains(p.addresses, r.Host) {
		http.Error(w, "this is the demo's page: use the address that it has printed", http.StatusForbidden)
		return
	}
	routes := http.NewServeMux()
	routes.Handle("GET /", web.Handler())
	routes.HandleFunc("GET /state", p.serveState)
	routes.HandleFunc("GET /pictures/{file}", p.servePicture)
	routes.HandleFunc("POST /do", p.serveAct)
	http.NewCrossOriginProtection().Handler(routes).ServeHTTP(w, r)
}

func (p *demoPage) serveState(w http.ResponseWriter, r *http.Request) {
	state, err := p.state(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answerJSON(w, state)
}

func (p *demoPage) servePicture(w http.ResponseWriter, r *http.Request) {
	content, known := p.telegram.File(r.PathValue("file"))
	if !known {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", http.DetectContentType(content))
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(content)
}

func answerJSON(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(content)
}

// demoAct is something that a person, an operator or fate does.
type demoAct struct {
	Do      string `json:"do"`
	Text    string `json:"text"`
	Message int    `json:"message"`
	Data    string `json:"data"` // of a button
}

// demoActFor bounds what a button does.
const demoActFor = 30 * time.Second

func (p *demoPage) serveAct(w http.ResponseWriter, r *http.Request) {
	var act demoAct
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&act); err != nil {
		http.Error(w, "the body is not what a button sends", http.StatusBadRequest)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), demoActFor)
	defer cancel()
	said, err := p.act(ctx, act)
	if err != nil {
		said = "It did not work: " + err.Error()
	}
	answerJSON(w, map[string]string{"said": said})
}

// act does it, and says what has happened and where to look.
func (p *demoPage) act(ctx context.Context, act demoAct) (said string, err error) {
	switch act.Do {
	case "send":
		if text := strings.TrimSpace(act.Text); text != "" {
			p.ann.Send(text)
		}
		return "", nil
	case "tap":
		return p.tap(ctx, act.Message, act.Data)
	case "pay":
		return p.pay(ctx, p.ann.Payable(act.Message))
	}
	p.acting.Lock()
	defer p.acting.Unlock()
	switch act.Do {
	case "twice":
		return p.pressTwice(cmp.Or(strings.TrimSpace(act.Text), "make this gud")), nil
	case "kill":
		return p.killWorker(ctx)
	case "pay_twice":
		return p.payTwice(ctx)
	case "refund":
		return p.refund(ctx)
	case "day":
		p.bot.advance(24 * time.Hour)
		p.telegram.Server().Advance(24 * time.Hour)
		return "A day has passed. The allowance's window is over: its pocket ends, and the next request opens a new one. What was bought stays.", nil
	}
	return "", fmt.Errorf("there is no button %q", act.Do)
}

func (p *demoPage) tap(ctx context.Context, message int, data string) (string, error) {
	tap, err := p.ann.Tap(message, data)
	if err != nil {
		return "", err
	}
	answer, err := tap.Answer(ctx)
	if errors.Is(err, fakeapi.ErrUnanswered) {
		return "", errors.New("the bot has not answered the tap")
	}
	return answer.Text, err
}

func (p *demoPage) pay(ctx context.Context, link string) (string, error) {
	paid, err := p.ann.Pay(ctx, link)
	var declined *fakeapi.Declined
	switch {
	case errors.As(err, &declined):
		return cmp.Or(declined.Message, "The bot did not answer in time. Nothing was paid."), nil
	case err != nil:
		return "", err
	}
	return fmt.Sprintf("Paid: %d Stars.", paid.Stars), nil
}

// pressTwice sends the same words twice at once, and has Telegram tell each message twice.
func (p *demoPage) pressTwice(text string) string {
	p.telegram.RepeatNext("message", 1)
	p.telegram.RepeatNext("message", 1)
	p.ann.Send(text)
	p.ann.Send(text)
	return "Two presses at once, and Telegram told each of them twice: four deliveries. One is reserved; the other press is refused while it runs, and the repeats are answered from memory."
}

// killWorker kills the bot while it works; where it does not, it is given something to do first.
func (p *demoPage) killWorker(ctx context.Context) (string, error) {
	running := func() (bool, error) {
		state, err := p.state(ctx)
		if err != nil {
			return false, err
		}
		for _, r := range state.Reservations {
			if r.State == "running" {
				return true, nil
			}
		}
		return false, nil
	}
	busy, err := running()
	if err != nil {
		return "", err
	}
	if !busy && p.bot.look().State == "works" {
		p.ann.Send("make this gud")
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		for tries := 0; !busy && tries < 60; tries++ {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return "", ctx.Err()
			}
			if busy, err = running(); err != nil {
				return "", err
			}
		}
	}
	switch pid := p.bot.kill(); {
	case pid == 0:
		return "It is dead already. It is started again in a moment.", nil
	case busy:
		return fmt.Sprintf("Process %d was killed in the middle of the work. The unit stays reserved until the lease lapses; then the job goes to the next process, which asks the provider under the same key. One charge.", pid), nil
	default:
		return fmt.Sprintf("Process %d was killed while it was idle. What you send now waits at Telegram until it is started again.", pid), nil
	}
}

// payTwice buys credits and has Telegram tell of the payment twice.
func (p *demoPage) payTwice(ctx context.Context) (string, error) {
	const buy = "buy:credits_100"
	offered := func(m fakeapi.Message) bool { _, has := m.Button(buy); return has }
	var plans fakeapi.Message
	for _, m := range p.ann.Messages() {
		if offered(m) {
			plans = m
		}
	}
	if plans.ID == 0 {
		p.ann.Send("/plans")
		var err error
		if plans, err = p.ann.Await(ctx, offered); err != nil {
			return "", err
		}
	}
	last := p.ann.Last().ID
	if _, err := p.tap(ctx, plans.ID, buy); err != nil {
		return "", err
	}
	invoice, err := p.ann.Await(ctx, func(m fakeapi.Message) bool { return m.ID > last && m.Invoice != nil })
	if err != nil {
		return "", err
	}
	checkout, err := p.ann.Checkout(ctx, invoice.Invoice.Link)
	if err != nil {
		return "", err
	}
	p.telegram.RepeatNext("message", 1)
	paid := checkout.Charge()
	return fmt.Sprintf("Ann has paid %d Stars, and Telegram tells of it twice. The payment's id is known the second time: one pocket of 100 credits, one line in the ledger.", paid.Stars), nil
}

// refund has an operator give the newest payment back that was not.
func (p *demoPage) refund(ctx context.Context) (string, error) {
	refunded := map[string]bool{}
	charge := ""
	for _, m := range p.ann.Messages() {
		if m.Refund != nil {
			refunded[m.Refund.ChargeID] = true
		}
	}
	for _, m := range p.ann.Messages() {
		if m.Payment != nil && !refunded[m.Payment.ChargeID] {
			charge = m.Payment.ChargeID
		}
	}
	if charge == "" {
		return "There is no payment to give back. Deliver one first.", nil
	}
	p.operator.Send("/refund " + charge)
	_, err := p.ann.Await(ctx, func(m fakeapi.Message) bool { return m.Refund != nil && m.Refund.ChargeID == charge })
	if err != nil {
		return "", err
	}
	return "The operator has refunded the newest payment. What is unused of it is taken back; what was used stays used.", nil
}
