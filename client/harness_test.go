package client_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/httpapi"
	"github.com/holdfast-dev/holdfast/internal/apitest"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// tariff has a fixed price, a choice of two, a price by usage, work that may be asked to stop, plans beside the free one, of
// which two are sold, and a pack.
var tariff = &holdfast.Catalog{
	Version: 7,
	Units:   []holdfast.Unit{{Name: "credit"}, {Name: "image"}},
	Features: []holdfast.Feature{
		{Name: "text", Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, LongestJob: time.Minute, TTL: 5 * time.Minute, Policies: holdfast.Policies{CancelRunning: holdfast.CancelRequest}},
		{Name: "image", Prices: []holdfast.Price{{Unit: "image", Amount: 1}, {Unit: "credit", Amount: 5}}, LongestJob: time.Minute, TTL: 5 * time.Minute},
		{Name: "chat", Prices: []holdfast.Price{{Unit: "credit", Per: 1000, Rates: map[string]holdfast.Amount{"input_token": 1, "output_token": 4}}}, LongestJob: time.Minute, TTL: 5 * time.Minute, Policies: holdfast.Policies{Overrun: holdfast.OverrunDebt}},
		{Name: "video", Prices: []holdfast.Price{{Unit: "credit", Amount: 50}}, LongestJob: time.Minute, TTL: 5 * time.Minute},
	},
	Surfaces: []holdfast.Surface{{Name: "bot", TTL: 10 * time.Minute}},
	Plans: []holdfast.Plan{
		{Name: "free", Default: true, Features: []string{"text", "image", "chat"}, MaxActive: 3, DebtLimits: map[string]holdfast.Amount{"credit": 1}, Allowances: []holdfast.Allowance{{Key: "free/credit", Unit: "credit", Amount: 3, Every: holdfast.Cycle{Rolling: 24 * time.Hour}}}},
		{Name: "pro", Features: []string{"text", "image", "chat", "video"}, MaxActive: 3},
		{Name: "basic", Features: []string{"text", "image"}, MaxActive: 3, Grace: 72 * time.Hour, Allowances: []holdfast.Allowance{{Key: "basic/credit", Unit: "credit", Amount: 100, Every: holdfast.Cycle{Term: true}}}},
		{Name: "max", Features: []string{"text", "image", "video"}, MaxActive: 5, Allowances: []holdfast.Allowance{{Key: "max/credit", Unit: "credit", Amount: 300, Every: holdfast.Cycle{Term: true}}}},
	},
	Products: []holdfast.Product{
		{Name: "basic_30", Plan: "basic", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 100}}},
		{Name: "max_30", Plan: "max", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 250}}},
		{Name: "images_10", Grant: &holdfast.ProductGrant{Unit: "image", Amount: 10}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 50}}},
	},
}

func tariffOf(string) *holdfast.Catalog { return tariff }

// serve starts the real API on SQLite, and a client of it. The transport may be changed.
func serve(t *testing.T, change ...func(*client.Options)) (*apitest.Server, *client.Client) {
	t.Helper()
	s := start(t, engine.Options{Catalog: tariffOf})
	return s, dial(t, s.URL, change...)
}

// start serves the API with everything that a client can ask for.
func start(t *testing.T, options engine.Options) *apitest.Server {
	t.Helper()
	return apitest.Start(t, options, func(s *apitest.Server, o *httpapi.Options) {
		o.Payments = deskOf(s)
		o.Stars = func(bot httpapi.Bot) httpapi.Stars {
			book := &payment.Book{Desk: deskOf(s), Orders: s.Store, Accounts: s.Engine, Project: bot.Project, Provider: bot.Provider}
			return &telegramstars.Stars{Book: book, Bot: bot.ID, Deadline: bot.Deadline}
		}
	})
}

// deskOf is where payments come in.
func deskOf(s *apitest.Server) *payment.Desk { return &payment.Desk{Engine: s.Engine, Claims: s.Store} }

func dial(t *testing.T, address string, change ...func(*client.Options)) *client.Client {
	t.Helper()
	options := client.Options{}
	for _, c := range change {
		c(&options)
	}
	c, err := client.New(address, apitest.Key, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func command(account, key string, do holdfast.Operation) holdfast.Command {
	return holdfast.Command{Project: apitest.Project, Account: account, Key: key, Do: do}
}

// do fails the test on an accident and on a refusal.
func do(t *testing.T, to engine.Submitter, c holdfast.Command) holdfast.Outcome {
	t.Helper()
	o, err := to.Submit(t.Context(), c)
	if err != nil || o.Refused() {
		t.Fatalf("%s: %s %v %v", c.Do.Name(), o.Reason, o.Problems, err)
	}
	return o
}

// give makes an account with so many credits that were bought.
func give(t *testing.T, to engine.Submitter, account string, credits holdfast.Amount) {
	t.Helper()
	do(t, to, command(account, "", holdfast.PutAccount{}))
	do(t, to, command(account, "give", holdfast.AddGrant{Unit: "credit", Amount: credits, Source: holdfast.FromPurchase}))
}

// proxy stands between client and server on a real network, and loses what it is told to lose.
type proxy struct {
	URL string

	mu       sync.Mutex
	requests []string
	counts   map[string]int // by path
}

// what becomes of a request.
type fate int

const (
	arrives fate = iota
	losesAnswer
	losesRequest
)

// newProxy breaks the connection of the n-th request of a path, from 0, before it has an effect or after it had one.
func newProxy(t *testing.T, to string, what func(path string, n int) fate) *proxy {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	p := &proxy{counts: map[string]int{}}
	forward := httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		n := p.counts[r.URL.Path]
		p.counts[r.URL.Path]++
		p.requests = append(p.requests, r.Method+" "+r.URL.Path)
		p.mu.Unlock()
		switch what(r.URL.Path, n) {
		case arrives:
			forward.ServeHTTP(w, r)
		case losesAnswer:
			forward.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		case losesRequest:
			panic(http.ErrAbortHandler)
		}
	}))
	p.URL = server.URL
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	return p
}

func (p *proxy) seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...)
}

// closedPort is an address that nobody listens at.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	return "http://" + listener.Addr().String()
}

// answers serves fixed answers, one for each request, and the last one again.
func answers(t *testing.T, list ...func(w http.ResponseWriter, r *http.Request)) (address string, requests func() []*http.Request) {
	t.Helper()
	var mu sync.Mutex
	var seen []*http.Request
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n := min(len(seen), len(list)-1)
		seen = append(seen, r)
		mu.Unlock()
		list[n](w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() []*http.Request {
		mu.Lock()
		defer mu.Unlock()
		return append([]*http.Request(nil), seen...)
	}
}

func answer(status int, body string, headers ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}
