// Package apitest serves the real HTTP API on a real engine, for the tests of whoever calls it: the Go client and the
// examples. It decides nothing and imitates nothing; only the keys are fixed.
package apitest

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/httpapi"
	"github.com/holdfast-dev/holdfast/message"
	"github.com/holdfast-dev/holdfast/store/sqlite"
)

// Project is whose accounts the keys reach.
const Project = "p"

// The API keys: one for everything, and one that may only read.
const (
	Key     = "hf_test_everything"
	ReadKey = "hf_test_read"
)

type keyring struct{}

func (keyring) Lookup(_ context.Context, hash [32]byte) (httpapi.Key, bool, error) {
	switch hash {
	case sha256.Sum256([]byte(Key)):
		scopes := []string{httpapi.ScopeRead, httpapi.ScopeWork, httpapi.ScopeMoney, httpapi.ScopeAdmin}
		return httpapi.Key{ID: "key_everything", Project: Project, Scopes: scopes}, true, nil
	case sha256.Sum256([]byte(ReadKey)):
		return httpapi.Key{ID: "key_read", Project: Project, Scopes: []string{httpapi.ScopeRead}}, true, nil
	}
	return httpapi.Key{}, false, nil
}

// texts lets the API speak through package message.
type texts struct{ *message.Texts }

func (t texts) Detail(reader httpapi.Reader, catalog *holdfast.Catalog, outcome holdfast.Outcome, now time.Time) string {
	return t.Texts.Detail(message.Reader(reader), catalog, outcome, now)
}

func (t texts) Accident(reader httpapi.Reader, reason holdfast.Reason) string {
	return t.Texts.Accident(message.Reader(reader), message.Accident(reason))
}

func (t texts) PreCheckout(reader httpapi.Reader, reason string, until, now time.Time) string {
	return t.Texts.PreCheckout(message.Reader(reader), message.PreCheckoutReason(reason), until, now)
}

func (t texts) Invoice(reader httpapi.Reader, catalog *holdfast.Catalog, product *holdfast.Product, price holdfast.Money, recurring bool) (title, description string) {
	return t.Texts.Invoice(message.Reader(reader), catalog, message.Offer{Product: product, Price: price, Recurring: recurring})
}

// speak reads the texts once: it takes longer than most tests.
var speak = sync.OnceValues(message.New)

// Handler is the API on an engine. Its options may be changed.
func Handler(t testing.TB, e httpapi.Engine, change ...func(*httpapi.Options)) http.Handler {
	t.Helper()
	words, err := speak()
	if err != nil {
		t.Fatal(err)
	}
	options := httpapi.Options{Engine: e, Keys: keyring{}, Texts: texts{words}, Logger: slog.New(slog.DiscardHandler)}
	for _, c := range change {
		c(&options)
	}
	handler, err := httpapi.New(options)
	if err != nil {
		t.Fatal(err)
	}
	return handler
}

// InMemory carries requests to a handler without a network, so that a clock that is not the real one can be used. Whoever
// leaves is gone for the handler too, as on a broken connection.
type InMemory struct{ Handler http.Handler }

// RoundTrip has the handler answer.
func (m InMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	asked := httptest.NewRequestWithContext(r.Context(), r.Method, r.URL.String(), r.Body)
	asked.Header = r.Header.Clone()
	answered := make(chan *http.Response, 1)
	go func() {
		recorder := httptest.NewRecorder()
		m.Handler.ServeHTTP(recorder, asked)
		answered <- recorder.Result()
	}()
	select {
	case response := <-answered:
		return response, nil
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
}

// Server is the API at an address, on an engine that keeps its data in an SQLite file.
type Server struct {
	URL    string
	Engine *engine.Engine
	Store  *sqlite.DB
}

// Start serves until the test ends. Of the options only the catalog is needed; the engine sweeps only if they say so. What
// the API needs besides, such as a desk for payments, is put on the server's engine and store by change.
func Start(t testing.TB, options engine.Options, change ...func(*Server, *httpapi.Options)) *Server {
	t.Helper()
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "holdfast.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if options.SweepEvery == 0 {
		options.SweepEvery = -1
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{Engine: engine.New(db, options), Store: db}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { _ = s.Engine.Serve(ctx) })
	listening := httptest.NewServer(Handler(t, s.Engine, func(o *httpapi.Options) {
		for _, c := range change {
			c(s, o)
		}
	}))
	s.URL = listening.URL
	t.Cleanup(func() {
		listening.CloseClientConnections()
		listening.Close()
		cancel()
		serving.Wait()
		_ = db.Close()
	})
	return s
}
