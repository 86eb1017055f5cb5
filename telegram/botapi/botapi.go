// Package botapi calls Telegram's Bot API, as far as the kit needs it.
//
//	Send, Edit, … ──► limiter: replies before notices ──► go-telegram/bot ──► transport ──► Telegram
//	       ▲                                                                      │
//	       └── waits as told, follows a moved group, repeats what may be repeated ◄┘ errors of few kinds, without the token
//
// The kit calls it, and whoever has a bot of their own in Go. It keeps the limits of texts and of rates, so that its callers
// need not know them. It never receives updates on its own, never decides what a person is told, and never lets the bot's token
// into an error or a log line. Nothing of go-telegram/bot leaves it.
package botapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/go-telegram/bot"
)

// Chat is a chat's id: a person's own is the person's id, those of groups and channels are negative.
type Chat = int64

// Options say which bot it is.
type Options struct {
	Token string
	URL   string       // of the Bot API; empty: Telegram's
	HTTP  *http.Client // nil: one of its own. Its Timeout is not used, and redirects are not followed
	// Limiter is shared by all who send for this bot; nil: one of its own.
	Limiter *Limiter
	Logger  *slog.Logger // nil: slog.Default
	Test    bool         // Telegram's test environment
}

// Client calls the Bot API for one bot. It is safe for concurrent use.
//
// A call waits for its turn and waits where Telegram asks for a pause, as long as its context lets it. Where the wait would be
// longer than that, *RetryAfter comes back at once. What was certainly not done is tried again a few times; what may have been
// done, only where doing it twice does no harm.
type Client struct {
	bot     *bot.Bot
	send    *transport
	limiter *Limiter
	log     *slog.Logger
}

const (
	telegram   = "https://api.telegram.org"
	tries      = 5
	firstPause = time.Second      // before what failed is tried again; twice as long each time
	callWithin = 30 * time.Second // one try of a call
)

// The token becomes part of an address; what is not like this would tear it apart.
var tokenShape = regexp.MustCompile(`^[0-9]+:[A-Za-z0-9_-]+$`)

// New makes a client. It calls nothing yet.
func New(options Options) (*Client, error) {
	if !tokenShape.MatchString(options.Token) {
		return nil, errors.New("a bot's token is the bot's id, a colon and a secret of A-Z a-z 0-9 _ -")
	}
	base := strings.TrimSuffix(options.URL, "/")
	if base == "" {
		base = telegram
	}
	c := &Client{send: newTransport(base, options), limiter: options.Limiter, log: options.Logger}
	if c.limiter == nil {
		c.limiter = NewLimiter()
	}
	if c.log == nil {
		c.log = slog.Default()
	}
	settings := []bot.Option{
		bot.WithSkipGetMe(), bot.WithServerURL(base), bot.WithHTTPClient(callWithin, c.send),
		// What it would log is about bodies that were read whole already.
		bot.WithErrorsHandler(func(error) {}),
	}
	if options.Test {
		settings = append(settings, bot.UseTestEnvironment())
	}
	var err error
	if c.bot, err = bot.New(options.Token, settings...); err != nil {
		return nil, c.send.withoutToken(err)
	}
	return c, nil
}

// ID is the bot's id, as its token has it.
func (c *Client) ID() int64 { return c.bot.ID() }

// call is what the client has to know of a call beside its arguments.
type call struct {
	method string
	chat   Chat
	paced  bool          // it counts against Telegram's limits, and waits for its turn
	repeat bool          // doing it twice does no harm
	within time.Duration // one try; 0: callWithin
}

// do makes a call. The function may be called more than once, for the chat that it is given.
func (c *Client) do(ctx context.Context, call call, once func(ctx context.Context, chat Chat) error) error {
	pause, followed := firstPause, false
	for try := 1; ; {
		if call.paced {
			if err := c.limiter.wait(ctx, call.chat, priorityOf(ctx)); err != nil {
				return err
			}
		}
		err := c.once(ctx, call, once)
		var asked *RetryAfter
		var moved *movedError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &moved) && !followed:
			call.chat, followed = moved.to, true
		case errors.As(err, &moved):
			return rejected(call.method, "%s once more", moved)
		case errors.As(err, &asked):
			c.log.Warn("telegram asks for a pause", "method", call.method, "chat", call.chat, "wait", asked.Wait)
			if call.paced {
				c.limiter.pause(call.chat, asked.Wait) // and waits at the next turn
			} else if err := sleep(ctx, asked.Wait); err != nil {
				return err
			}
		case try < tries && (errors.Is(err, ErrUnavailable) || call.repeat && errors.Is(err, ErrUncertain)):
			if sleep(ctx, pause) != nil {
				return err // how it failed says more than that there is no time left
			}
			pause *= 2
			try++
		default:
			return err
		}
	}
}

func (c *Client) once(ctx context.Context, call call, once func(ctx context.Context, chat Chat) error) error {
	within := call.within
	if within == 0 {
		within = callWithin
	}
	try, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := c.send.judge(call.method, once(try, call.chat))
	var failed *Error
	if errors.As(err, &failed) && ctx.Err() != nil {
		failed.cause = context.Cause(ctx)
	}
	return err
}

// sleep waits. Where the context would end before, it says so at once.
func sleep(ctx context.Context, length time.Duration) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < length {
		return &RetryAfter{Wait: length}
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return notInTime(ctx)
	}
}
