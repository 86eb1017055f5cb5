package fakeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"time"
)

// webhook is where updates are posted. A new one replaces the old, whose deliveries end.
type webhook struct {
	address string
	secret  string
	most    int
	slots   chan struct{} // as many deliveries at once as max_connections
	context context.Context
	stop    context.CancelFunc
	running map[string]bool // queues that have a goroutine
}

// What is known of retries: at once, then after 2, 4, 8 seconds and so on to a minute; what Retry-After says, to an hour; an
// answer is waited for this long.
const (
	longestRetry      = time.Minute
	longestRetryAfter = time.Hour
	webhookAnswers    = time.Minute
)

var secretForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,256}$`)

func (b *Bot) setWebhook(p parameters) (any, *refusal) {
	address := p.text("url")
	if address == "" {
		return b.deleteWebhook(p)
	}
	parsed, err := url.Parse(address)
	secret := p.text("secret_token")
	most := int(p.number("max_connections"))
	switch {
	case err != nil || parsed.Host == "" || parsed.Scheme != "http" && parsed.Scheme != "https":
		return nil, bad("bad webhook: invalid webhook URL specified")
	case secret != "" && !secretForm.MatchString(secret):
		return nil, bad("secret token contains unallowed characters")
	}
	if most < 1 || most > 100 {
		most = 40
	}
	if refused := b.allow(p); refused != nil {
		return nil, refused
	}
	if p.flag("drop_pending_updates") {
		b.pending, b.again = nil, nil
	}
	b.dropHook()
	h := &webhook{address: address, secret: secret, most: most, slots: make(chan struct{}, most), running: map[string]bool{}}
	h.context, h.stop = context.WithCancel(b.server.context)
	b.hook, b.lastError, b.errorAt = h, "", time.Time{}
	b.deliver()
	return true, nil
}

func (b *Bot) deleteWebhook(p parameters) (any, *refusal) {
	b.dropHook()
	if p.flag("drop_pending_updates") {
		b.pending, b.again = nil, nil
	}
	return true, nil
}

func (b *Bot) dropHook() {
	if b.hook != nil {
		b.hook.stop()
		b.hook = nil
	}
}

func (b *Bot) getWebhookInfo(parameters) (any, *refusal) {
	b.forgetExpired()
	info := map[string]any{"url": "", "has_custom_certificate": false, "pending_update_count": len(b.pending)}
	if b.hook != nil {
		info["url"], info["max_connections"] = b.hook.address, b.hook.most
	}
	if !b.errorAt.IsZero() {
		info["last_error_date"], info["last_error_message"] = b.errorAt.Unix(), b.lastError
	}
	if len(b.allowed) > 0 {
		info["allowed_updates"] = b.allowed
	}
	return info, nil
}

// deliver sees to it that every queue with something to tell has a goroutine that tells it.
func (b *Bot) deliver() {
	h := b.hook
	if h == nil || b.server.context.Err() != nil {
		return
	}
	for _, u := range b.pending {
		if u.held || h.running[u.queue] {
			continue
		}
		h.running[u.queue] = true
		b.server.work.Go(func() { b.drain(h, u.queue) })
	}
}

// drain tells a queue's updates in their order until none is left.
func (b *Bot) drain(h *webhook, queue string) {
	s := b.server
	s.mu.Lock()
	defer s.mu.Unlock()
	defer delete(h.running, queue)
	for h.context.Err() == nil {
		b.forgetExpired()
		i := slices.IndexFunc(b.pending, func(u *update) bool { return u.queue == queue && !u.held })
		if i < 0 {
			return
		}
		u := b.pending[i]
		if u.nextTry.After(s.clock.now()) {
			_, _ = s.waitUntil(h.context, u.nextTry, func() bool { return h.context.Err() != nil || u.held })
			continue
		}
		after, err := b.hand(h, u)
		if h.context.Err() != nil {
			return
		}
		switch {
		case err != nil:
			u.failures++
			b.lastError, b.errorAt = err.Error(), s.clock.now()
			u.nextTry = s.clock.now().Add(max(after, retryAfter(u.failures)))
		case u.repeats > 0:
			u.repeats--
		default:
			b.pending = slices.DeleteFunc(b.pending, func(other *update) bool { return other == u })
		}
		s.touch()
	}
}

// retryAfter is how long to wait after so many failures: not at all after the first.
func retryAfter(failures int) time.Duration {
	if failures <= 1 {
		return 0
	}
	return min(time.Second<<min(failures-1, 10), longestRetry)
}

func (b *Bot) redeliver(h *webhook, u *update) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	_, _ = b.hand(h, u)
	b.server.touch()
}

// hand posts an update, without the lock, and records what was answered. after is what a Retry-After asked for.
func (b *Bot) hand(h *webhook, u *update) (after time.Duration, err error) {
	s := b.server
	ctx, stop := context.WithCancel(h.context)
	defer stop()
	// The answer is waited for by the server's own time.
	deadline := s.clock.now().Add(webhookAnswers)
	s.work.Go(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = s.waitUntil(ctx, deadline, func() bool { return ctx.Err() != nil })
		stop()
	})
	s.mu.Unlock()
	code, body, after, err := h.post(ctx, s.client, u)
	s.mu.Lock()
	e := Entry{Kind: Delivered, Name: u.kind, Chat: u.chat, Update: u.id, Code: code}
	switch {
	case errors.Is(err, context.Canceled):
		err = failure("Read timeout expired")
	case err == nil && (code < 200 || code > 299):
		err = failure(fmt.Sprintf("Wrong response from the webhook: %d %s", code, http.StatusText(code)))
	}
	if err != nil {
		e.Problem = err.Error()
	}
	b.record(e)
	if err == nil {
		b.answered(body)
	}
	return after, err
}

// failure is why a delivery failed, in Telegram's words.
type failure string

func (f failure) Error() string { return string(f) }

func (h *webhook) post(ctx context.Context, client *http.Client, u *update) (code int, body []byte, after time.Duration, err error) {
	select {
	case h.slots <- struct{}{}:
		defer func() { <-h.slots }()
	case <-ctx.Done():
		return 0, nil, 0, ctx.Err()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.address, bytes.NewReader(u.raw))
	if err != nil {
		return 0, nil, 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	if h.secret != "" {
		request.Header.Set("X-Telegram-Bot-Api-Secret-Token", h.secret)
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, 0, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(response.Body, 1<<20))
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	return response.StatusCode, body, min(time.Duration(max(0, seconds))*time.Second, longestRetryAfter), err
}

// answered does the call that the answer of a webhook may hold.
func (b *Bot) answered(body []byte) {
	p := parameters{values: map[string]string{}}
	if len(body) == 0 || !json.Valid(body) || p.addJSON(body) != nil || p.text("method") == "" {
		return
	}
	name := b.server.canonical(p.text("method"))
	if len(name) > 2 && name[:3] == "get" || name == "setWebhook" || name == "deleteWebhook" {
		return
	}
	b.server.mu.Unlock()
	defer b.server.mu.Lock()
	_, _, _ = b.server.call(b, name, p)
}
