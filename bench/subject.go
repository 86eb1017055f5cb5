package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/httpapi"
	"github.com/holdfast-dev/holdfast/message"
)

// inProcess calls the engine as a Go program does.
type inProcess struct {
	engine *engine.Engine
	keys   *keys
}

func (s *inProcess) callers(_ context.Context, n int) ([]worker, error) {
	workers := make([]worker, n)
	for i := range workers {
		workers[i] = s.cycle
	}
	return workers, nil
}

// cycle reserves under a fresh key, and commits all of it. The commit has no key: its id makes it safe to repeat.
func (s *inProcess) cycle(ctx context.Context, pick func() *account) (int, error) {
	a := pick()
	reserved, err := done(s.engine.Submit(ctx, holdfast.Command{
		Project: project, Account: a.name, Key: s.keys.next(), Actor: actor, Do: holdfast.Reserve{Feature: feature},
	}))
	if err != nil {
		return 0, err
	}
	_, err = done(s.engine.Submit(ctx, holdfast.Command{
		Project: project, Target: a.id, Actor: actor, Do: holdfast.Commit{ReservationID: reserved.Reservation.ID},
	}))
	return 1, err
}

func (s *inProcess) close() error { return nil }

// overHTTP calls a server in this process over loopback connections, one for each caller, one request at a time. Its
// client is as small as it can be: it shares the machine with what it measures.
type overHTTP struct {
	keys   *keys
	server *http.Server
	served chan error
	host   string

	mu    sync.Mutex
	conns []*client
}

const secret = "hf_bench_0123456789abcdef"

func serveHTTP(e *engine.Engine, k *keys) (*overHTTP, error) {
	spoken, err := message.New()
	if err != nil {
		return nil, err
	}
	// A server writes a line for each request; so does this one, to nowhere.
	log := slog.New(slog.NewTextHandler(io.Discard, nil))
	handler, err := httpapi.New(httpapi.Options{Engine: e, Keys: oneKey(sha256.Sum256([]byte(secret))), Texts: texts{spoken}, Logger: log})
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &overHTTP{
		keys: k, host: listener.Addr().String(), served: make(chan error, 1),
		server: &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second},
	}
	go func() { s.served <- s.server.Serve(listener) }()
	return s, nil
}

func (s *overHTTP) callers(ctx context.Context, n int) ([]worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.conns) < n {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", s.host)
		if err != nil {
			return nil, err
		}
		s.conns = append(s.conns, &client{subject: s, conn: conn, reader: bufio.NewReader(conn)})
	}
	workers := make([]worker, n)
	for i := range workers {
		workers[i] = s.conns[i].cycle
	}
	return workers, nil
}

func (s *overHTTP) close() error {
	for _, c := range s.conns {
		_ = c.conn.Close() // nothing is written any more
	}
	err := s.server.Close()
	if served := <-s.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// client is one connection of one caller.
type client struct {
	subject *overHTTP
	conn    net.Conn
	reader  *bufio.Reader
	request bytes.Buffer
}

func (c *client) cycle(_ context.Context, pick func() *account) (int, error) {
	body := `{"account":"` + pick().name + `","feature":"` + feature + `"}`
	var reserved struct{ ID string }
	if err := c.post("/v1/reservations", c.subject.keys.next(), body, &reserved); err != nil {
		return 0, err
	}
	return 1, c.post("/v1/reservations/"+reserved.ID+"/commit", "", "{}", nil)
}

// post sends a request and reads its answer whole. Into may be nil.
func (c *client) post(path, key, body string, into any) error {
	r := &c.request
	r.Reset()
	for _, part := range []string{
		"POST ", path, " HTTP/1.1\r\nHost: ", c.subject.host, "\r\nAuthorization: Bearer ", secret,
		"\r\nContent-Type: application/json\r\nContent-Length: ", strconv.Itoa(len(body)), "\r\n",
	} {
		r.WriteString(part)
	}
	if key != "" {
		r.WriteString("Idempotency-Key: " + key + "\r\n")
	}
	r.WriteString("\r\n" + body)
	if _, err := c.conn.Write(r.Bytes()); err != nil {
		return err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(response.Body)
	_ = response.Body.Close() // it was read to its end
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return fmt.Errorf("POST %s: %s: %s", path, response.Status, text)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// oneKey is the only API key there is, by its hash.
type oneKey [32]byte

// Lookup finds it.
func (k oneKey) Lookup(_ context.Context, hash [32]byte) (httpapi.Key, bool, error) {
	return httpapi.Key{ID: "bench", Project: project, Scopes: []string{httpapi.ScopeWork}}, hash == k, nil
}

// texts lets the HTTP API speak through package message, as the server does.
type texts struct{ *message.Texts }

// Detail says what a refusal means for its reader.
func (t texts) Detail(reader httpapi.Reader, catalog *holdfast.Catalog, outcome holdfast.Outcome, now time.Time) string {
	return t.Texts.Detail(message.Reader(reader), catalog, outcome, now)
}

// Accident says that there is no answer now.
func (t texts) Accident(reader httpapi.Reader, reason holdfast.Reason) string {
	return t.Texts.Accident(message.Reader(reader), message.Accident(reason))
}

// PreCheckout says why a payment may not go on.
func (t texts) PreCheckout(reader httpapi.Reader, reason string, until, now time.Time) string {
	return t.Texts.PreCheckout(message.Reader(reader), message.PreCheckoutReason(reason), until, now)
}

// Invoice is what an invoice is called.
func (t texts) Invoice(reader httpapi.Reader, catalog *holdfast.Catalog, product *holdfast.Product, price holdfast.Money, recurring bool) (title, description string) {
	return t.Texts.Invoice(message.Reader(reader), catalog, message.Offer{Product: product, Price: price, Recurring: recurring})
}
