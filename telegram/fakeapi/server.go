package fakeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Options say how the stand-in behaves. The zero value accepts every well-formed token and runs by the machine's clock.
type Options struct {
	// Tokens are the bots' tokens; with none, every token of the form 123:abc is a bot that appears when it is used.
	Tokens []string
	// Now is the clock that Advance moves forward from; nil: time.Now.
	Now func() time.Time
	// Limits are enforced with 429 where they are set.
	Limits Limits
	// Patience is how long, in real time, Advance waits for bots to take what they are told; 0: a second.
	Patience time.Duration
}

// Server is the stand-in. It is an http.Handler; all its methods may be called at once.
type Server struct {
	URL string // where it listens, once Listen has been called, without a slash at the end

	options Options
	handler http.Handler
	methods map[string]method
	context context.Context //nolint:containedctx // ends with Close, and all deliveries with it
	stop    context.CancelFunc
	work    sync.WaitGroup
	client  *http.Client
	http    *http.Server

	mu         sync.Mutex
	clock      clock
	changed    chan struct{} // closed and replaced whenever anything a person can see, or a bot can be told, changed
	bots       map[string]*Bot
	users      map[int64]*User
	counter    int64 // of everything that needs an id
	transcript Transcript
}

// New makes a stand-in that listens nowhere yet: use it as a handler, or call Listen. Close ends it.
func New(options Options) *Server {
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Patience == 0 {
		options.Patience = time.Second
	}
	s := &Server{
		options: options, clock: clock{base: options.Now}, changed: make(chan struct{}), bots: map[string]*Bot{}, users: map[int64]*User{},
		client: &http.Client{
			Transport:     &http.Transport{DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	s.context, s.stop = context.WithCancel(context.Background())
	s.methods, s.handler = played(), s.routes()
	for _, token := range options.Tokens {
		s.Bot(token)
	}
	return s
}

// T is what Start needs of a test; *testing.T and *testing.B have it.
type T interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Start makes a stand-in that listens on this machine and ends with the test.
func Start(t T, options Options) *Server {
	t.Helper()
	s := New(options)
	t.Cleanup(s.Close)
	if err := s.Listen("127.0.0.1:0"); err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

// Listen serves at HOST:PORT until Close, and sets URL. Port 0: any free one.
func (s *Server) Listen(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.URL = "http://" + listener.Addr().String()
	s.http = &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
	s.work.Go(func() { _ = s.http.Serve(listener) })
	return nil
}

// Close breaks what is going on and returns when nothing runs any more.
func (s *Server) Close() {
	s.stop()
	if s.http != nil {
		_ = s.http.Close()
	}
	s.work.Wait()
	s.client.CloseIdleConnections()
}

// ServeHTTP answers bots below /bot and /file, and the person's side below /sim.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.handler.ServeHTTP(w, r) }

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	sim := http.NewServeMux()
	s.simRoutes(sim)
	// A page of another site, open in a browser on this machine, is not the person.
	mux.Handle("/sim/", http.NewCrossOriginProtection().Handler(sim))
	mux.HandleFunc("/file/", s.serveFile)
	mux.HandleFunc("/", s.serveCall)
	return mux
}

// Bot returns the bot of a token, and makes it known where it was not.
func (s *Server) Bot(token string) *Bot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bot(token)
}

// Bots are all bots that are known, by id.
func (s *Server) Bots() []*Bot {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*Bot
	for _, b := range s.bots {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b *Bot) int { return int(a.profile.ID - b.profile.ID) })
	return all
}

func (s *Server) bot(token string) *Bot {
	if b := s.bots[token]; b != nil {
		return b
	}
	id, _ := botID(token)
	b := newBot(s, token, id)
	s.bots[token] = b
	return b
}

// ValidToken says whether a token has the form of a bot's: a number, a colon, and something behind it.
func ValidToken(token string) bool {
	_, valid := botID(token)
	return valid
}

// botID is the number that a token begins with.
func botID(token string) (int64, bool) {
	number, secret, ok := strings.Cut(token, ":")
	id, err := strconv.ParseInt(number, 10, 64)
	return id, ok && err == nil && id > 0 && secret != ""
}

// next is the next number of the server.
func (s *Server) next() int64 {
	s.counter++
	return s.counter
}

// touch wakes everybody who waits for something to change.
func (s *Server) touch() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// until waits, with the lock held when it is called and when it returns, until done says so.
func (s *Server) until(ctx context.Context, done func() bool) error {
	for !done() {
		changed := s.changed
		s.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ctx.Done():
			err = ctx.Err()
		case <-s.context.Done():
			err = ErrClosed
		}
		s.mu.Lock()
		if err != nil {
			return err
		}
	}
	return nil
}

// ErrClosed is returned by whatever waited when the server was closed.
var ErrClosed = errors.New("the stand-in was closed")

// refusal is an error as the Bot API answers it.
type refusal struct {
	Code        int
	Description string
	RetryAfter  int
	MigrateTo   int64
}

func bad(format string, args ...any) *refusal {
	return &refusal{Code: http.StatusBadRequest, Description: "Bad Request: " + fmt.Sprintf(format, args...)}
}

func forbidden(why string) *refusal {
	return &refusal{Code: http.StatusForbidden, Description: "Forbidden: " + why}
}

func (e *refusal) frame() map[string]any {
	frame := map[string]any{"ok": false, "error_code": e.Code, "description": e.Description}
	parameters := map[string]any{}
	if e.RetryAfter > 0 {
		parameters["retry_after"] = e.RetryAfter
	}
	if e.MigrateTo != 0 {
		parameters["migrate_to_chat_id"] = e.MigrateTo
	}
	if len(parameters) > 0 {
		frame["parameters"] = parameters
	}
	return frame
}

func writeJSON(w http.ResponseWriter, code int, content any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(content)
}
