package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// Options configure a client. The zero value is ready for use.
type Options struct {
	// Language is the BCP 47 tag in which Detail is answered; empty: the account's own.
	Language string
	// Timeout bounds one attempt; 0: 30 s. The server itself tries for 10 s to save a command.
	Timeout time.Duration
	// RetryFor bounds all attempts at one call together; 0: 30 s. Negative: one attempt. The context may end them earlier.
	RetryFor time.Duration
	// Transport carries the requests; nil: one of the client's own.
	Transport http.RoundTripper
	// Logger is told by Run of crashed work that could not be released; nil: slog.Default.
	Logger *slog.Logger
}

// Client asks one server with one API key, which belongs to one project. Its methods are safe for concurrent use.
type Client struct {
	base     string
	bearer   func() string // a function, so that no printed client shows the key
	language string
	timeout  time.Duration
	retryFor time.Duration
	http     *http.Client
	log      *slog.Logger
}

var _ engine.Submitter = (*Client)(nil)

// New makes a client of the server at the address, for example https://holdfast.example.com. It sends nothing.
func New(address, key string, options Options) (*Client, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("client: use the server's address, for example https://holdfast.example.com")
	}
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("client: the API key is empty, or has characters that no key has; it is the text that holdfast key create printed")
	}
	if strings.ContainsFunc(options.Language, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, errors.New("client: the language is a BCP 47 tag, for example ru")
	}
	c := &Client{
		base: strings.TrimSuffix(u.String(), "/"), bearer: func() string { return "Bearer " + key }, language: options.Language,
		timeout: options.Timeout, retryFor: options.RetryFor, log: options.Logger,
	}
	if c.timeout <= 0 {
		c.timeout = 30 * time.Second
	}
	if c.retryFor == 0 {
		c.retryFor = 30 * time.Second
	}
	transport := options.Transport
	if transport == nil {
		transport = ownTransport()
	}
	c.http = &http.Client{
		Transport: transport,
		// A redirect would carry the key, and a command, to whoever is named there.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c, nil
}

// ownTransport is the standard one with room for many calls at once to the one server that it talks to.
func ownTransport() http.RoundTripper {
	standard, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	transport := standard.Clone()
	transport.MaxIdleConnsPerHost = 100
	return transport
}

// Close closes connections that nobody uses. The client can still be used.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// String names the server, and not the key.
func (c *Client) String() string { return "Holdfast at " + c.base }

// Submit has a command decided by the server, and returns what came of it. A refusal is an outcome; every error is an
// *engine.Error, and tells whether anything can have happened.
//
// Lost connections and answers that ask to come back are tried again, with the command's key and the same body, until
// RetryFor has passed or ctx ends. What is wrong with the command's shape comes back as Invalid, and is not sent.
//
// The API key says which project is meant and who acts: Project and Actor are not sent. A reservation is named by its id
// and its account's: by Target, which is Owner.ID of the outcome that made it, or by Account and Project. A Start without
// a key gets one, so that a repeated start finds its own lease.
//
// A payment and its refund are known by their provider's ids: they have no key, and a refund names no account. They are
// decided as a payment.Desk decides them. A refund that comes before its payment has the reason Pending. LinkAlias and
// MergeInto name an account by its id, which the API does not know: see Alias and Merge.
//
// What the API does not show is zero in the outcome: a reservation's policies and ttl, how a charge was split over its
// grants, an allowance's name; of a payment its id, and of its account all but balances, subscription and the plan that is
// paid for. First marks only a payment that was granted. CancelRequestedAt is when the client learned of it.
func (c *Client) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	answer, err := c.Ask(ctx, command)
	return answer.Outcome, err
}

// Answer is an outcome with what the server says besides.
type Answer struct {
	holdfast.Outcome
	// Detail is the text for the person, of a refusal.
	Detail string
	// RequestID names the request in the server's log.
	RequestID string
}

// Ask is Submit for whoever wants to show the person why not.
func (c *Client) Ask(ctx context.Context, command holdfast.Command) (Answer, error) {
	call, problems := callOf(&command)
	return c.ask(ctx, call, problems)
}

// ask makes the call, unless something is wrong with it.
func (c *Client) ask(ctx context.Context, call *call, problems []holdfast.Problem) (Answer, error) {
	if len(problems) > 0 {
		return Answer{Outcome: holdfast.Outcome{Reason: holdfast.Invalid, Problems: problems}}, nil
	}
	reply, err := c.send(ctx, call.request())
	if err != nil {
		return Answer{}, err
	}
	answer, err := call.answer(reply)
	if err != nil {
		return Answer{}, err
	}
	return answer, nil
}

// Run does a piece of work exactly once, as engine.Run does, with the server keeping the reservation and its lease.
func (c *Client) Run(ctx context.Context, request engine.Request, work func(ctx context.Context, w *engine.Work) error) (holdfast.Outcome, error) {
	if request.Logger == nil {
		request.Logger = c.log
	}
	return engine.Run(ctx, c, request, work)
}

// Pending is the reason of a refund whose payment nobody has told of yet: the server keeps it, and applies it when the
// payment arrives. Nothing is left to do.
const Pending holdfast.Reason = "pending"

// The accidents that only a client meets, besides those of package engine.
const (
	// Unauthorized: the API key is not in force.
	Unauthorized engine.Code = "unauthorized"
	// Forbidden: the API key lacks the scope.
	Forbidden engine.Code = "scope"
	// Misdirected: what answered is not Holdfast, or not a version that this client understands.
	Misdirected engine.Code = "misdirected"
)

func misdirected(format string, args ...any) *engine.Error {
	return &engine.Error{Code: Misdirected, Hint: "check the server's address, and what stands before it", Err: fmt.Errorf(format, args...)}
}
