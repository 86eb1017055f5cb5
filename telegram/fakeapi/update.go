package fakeapi

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// How long updates are kept: those that somebody waits for, and all others.
const (
	queryLives  = 150 * time.Second
	updateLives = 24 * time.Hour
)

// update is what the bot is told.
type update struct {
	id       int64
	kind     string
	raw      json.RawMessage
	queue    string // updates of one queue are told in their order, one at a time
	chat     int64
	at       time.Time
	held     bool
	handed   bool // getUpdates has had it
	failures int  // of a webhook
	repeats  int  // how often it is told again although it was taken
	nextTry  time.Time
}

func (u *update) expired(now time.Time) bool {
	lives := updateLives
	if u.kind == "callback_query" || u.kind == "pre_checkout_query" {
		lives = queryLives
	}
	return now.Sub(u.at) > lives
}

// delivery is a script of what happens to the next updates.
type delivery struct {
	kind    string // empty: any
	times   int
	drop    bool
	repeats int
}

// toldByDefault are all but those that a bot has to name.
func toldByDefault(kind string) bool {
	return kind != "chat_member" && kind != "message_reaction" && kind != "message_reaction_count"
}

// tell makes an update of a kind. Queues are those of the Bot API server: messages by chat, queries by person.
func (b *Bot) tell(kind string, chat int64, queue string, content any) *update {
	raw, err := json.Marshal(map[string]any{"update_id": b.nextUpdate, kind: content})
	if err != nil {
		panic(err) // only values of this package are told
	}
	u := &update{id: b.nextUpdate, kind: kind, raw: raw, queue: queue, chat: chat, at: b.server.clock.now(), held: b.held}
	b.nextUpdate++
	b.record(Entry{Kind: Told, Name: kind, Chat: chat, Update: u.id})
	b.told = append(b.told, u)
	if len(b.told) > 20_000 {
		b.told = slices.Clone(b.told[10_000:])
	}
	wanted := toldByDefault(kind)
	if len(b.allowed) > 0 {
		wanted = slices.Contains(b.allowed, kind)
	}
	if !wanted {
		b.record(Entry{Kind: Dropped, Name: kind, Chat: chat, Update: u.id, Problem: "allowed_updates does not name it"})
		b.server.touch()
		return u
	}
	script := b.takeDelivery(kind)
	if script.drop {
		b.record(Entry{Kind: Dropped, Name: kind, Chat: chat, Update: u.id, Problem: "dropped"})
		b.server.touch()
		return u
	}
	u.repeats = script.repeats
	b.pending = append(b.pending, u)
	b.server.touch()
	b.deliver()
	return u
}

func (b *Bot) takeDelivery(kind string) delivery {
	for i, d := range b.deliveries {
		if d.kind != "" && d.kind != kind {
			continue
		}
		if d.times--; d.times <= 0 {
			b.deliveries = slices.Delete(b.deliveries, i, i+1)
		}
		return *d
	}
	return delivery{}
}

// DropNext loses the next updates of a kind, as an outage of more than a day does. No kind: of any.
func (b *Bot) DropNext(kind string, times int) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.deliveries = append(b.deliveries, &delivery{kind: kind, times: times, drop: true})
}

// RepeatNext tells the next update of a kind this many times more although it was taken, as Telegram does where the answer
// of a webhook gets lost. No kind: of any.
func (b *Bot) RepeatNext(kind string, more int) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.deliveries = append(b.deliveries, &delivery{kind: kind, times: 1, repeats: more})
}

// Hold keeps back every update from now on, until Release.
func (b *Bot) Hold() {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.held = true
}

// Release tells what Hold kept back.
func (b *Bot) Release() { b.release(false) }

// ReleaseReversed tells what Hold kept back, the last first.
func (b *Bot) ReleaseReversed() { b.release(true) }

func (b *Bot) release(reversed bool) {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.held = false
	var kept, first []*update
	for _, u := range b.pending {
		if u.held {
			u.held = false
			kept = append(kept, u)
		} else {
			first = append(first, u)
		}
	}
	if reversed {
		slices.Reverse(kept)
	}
	b.pending = append(first, kept...)
	b.server.touch()
	b.deliver()
}

// JumpBack gives the next update an id below all before, as Telegram may after a week without updates.
func (b *Bot) JumpBack() {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	lowest := b.nextUpdate
	for _, u := range b.told {
		lowest = min(lowest, u.id)
	}
	b.nextUpdate = max(1, lowest-100_000)
}

// Redeliver tells an update again, so many times and all at once, whether or not it was taken before. It says whether there
// was such an update within the last 10,000.
func (b *Bot) Redeliver(id int64, times int) bool {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	i := slices.IndexFunc(b.told, func(u *update) bool { return u.id == id })
	if i < 0 || b.server.context.Err() != nil {
		return false
	}
	for range times {
		if b.hook == nil {
			b.again = append(b.again, b.told[i])
			continue
		}
		b.server.work.Go(func() { b.redeliver(b.hook, b.told[i]) })
	}
	b.server.touch()
	return true
}

// Update is an update as it was told, or would be.
type Update struct {
	ID   int64           `json:"update_id"`
	Kind string          `json:"kind"`
	Chat int64           `json:"chat,omitempty"`
	At   time.Time       `json:"at"`
	Raw  json.RawMessage `json:"raw"`
}

func (u *update) public() Update {
	return Update{ID: u.id, Kind: u.kind, Chat: u.chat, At: u.at, Raw: u.raw}
}

// Updates are the updates that were made, of a kind or of all where it is empty, oldest first.
func (b *Bot) Updates(kind string) []Update {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	var all []Update
	for _, u := range b.told {
		if kind == "" || u.kind == kind {
			all = append(all, u.public())
		}
	}
	return all
}

// Pending are the updates that wait to be taken, in the order in which they are told.
func (b *Bot) Pending() []Update {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	b.forgetExpired()
	var all []Update
	for _, u := range b.pending {
		all = append(all, u.public())
	}
	return all
}

// Drained waits until the bot has taken everything that it is told.
func (b *Bot) Drained(ctx context.Context) error {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	return b.server.until(ctx, func() bool {
		b.forgetExpired()
		return len(b.pending)+len(b.again) == 0
	})
}

func (b *Bot) forgetExpired() {
	now := b.server.clock.now()
	b.pending = slices.DeleteFunc(b.pending, func(u *update) bool {
		if u.expired(now) {
			b.record(Entry{Kind: Dropped, Name: u.kind, Chat: u.chat, Update: u.id, Problem: "expired"})
		}
		return u.expired(now)
	})
}

// listens says whether somebody takes updates: a webhook is set, or getUpdates is called.
func (b *Bot) listens() bool {
	return b.hook != nil || b.polls > 0 || time.Since(b.polledAt) < b.server.options.Patience && !b.polledAt.IsZero()
}

// hasFresh says whether an update waits that could be taken now: none before it in its queue waits for its next try.
func (b *Bot) hasFresh() bool {
	b.forgetExpired()
	if len(b.again) > 0 {
		return true
	}
	waiting := map[string]bool{} // queues
	for _, u := range b.pending {
		switch {
		case u.held || waiting[u.queue]:
		case u.failures > 0 && u.nextTry.After(b.server.clock.now()):
			waiting[u.queue] = true
		default:
			return true
		}
	}
	return false
}

// The bounds of getUpdates.
const (
	maxUpdates  = 100
	longestPoll = 50 * time.Second
)

// serveUpdates answers getUpdates: it confirms what is before offset, and waits for what is not.
func (s *Server) serveUpdates(w http.ResponseWriter, r *http.Request, b *Bot, p parameters) {
	s.mu.Lock()
	updates, refused, lost := s.poll(r.Context(), b, p)
	if refused != nil {
		b.record(Entry{Kind: Called, Name: "getUpdates", Code: refused.Code, Problem: refused.Description})
	}
	s.mu.Unlock()
	switch {
	case lost || r.Context().Err() != nil || s.context.Err() != nil:
		panic(http.ErrAbortHandler)
	case refused != nil:
		writeJSON(w, refused.Code, refused.frame())
	default:
		writeJSON(w, http.StatusOK, map[string]any{"ok": true, "result": updates})
	}
}

func (s *Server) poll(ctx context.Context, b *Bot, p parameters) (updates []json.RawMessage, refused *refusal, lost bool) {
	fault := b.takeFault("getUpdates", 0)
	if fault.before() {
		return nil, fault.refusal(), fault.Kind == Unreachable
	}
	if b.hook != nil {
		return nil, &refusal{Code: 409, Description: "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"}, false
	}
	if refused := b.allow(p); refused != nil {
		return nil, refused, false
	}
	limit := min(int(p.number("limit")), maxUpdates)
	if limit < 1 {
		limit = maxUpdates
	}
	b.confirm(p.number("offset"))
	b.polls++
	b.pollNumber++
	mine := b.pollNumber
	s.touch()
	defer func() {
		b.polls--
		b.polledAt = time.Now()
		s.touch()
	}()
	timeout := min(time.Duration(p.number("timeout"))*time.Second, longestPoll)
	_, err := s.waitUntil(ctx, s.clock.now().Add(timeout), func() bool {
		b.forgetExpired()
		return b.pollNumber != mine || b.hook != nil || len(b.again) > 0 || slices.ContainsFunc(b.pending, func(u *update) bool { return !u.held })
	})
	updates = []json.RawMessage{}
	switch {
	case err != nil:
		return updates, nil, true
	case b.pollNumber != mine || b.hook != nil:
		return nil, &refusal{Code: 409, Description: "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"}, false
	}
	hand := func(u *update) {
		updates = append(updates, u.raw)
		b.record(Entry{Kind: Delivered, Name: u.kind, Chat: u.chat, Update: u.id, Code: http.StatusOK, Fault: fault.Kind})
	}
	for len(b.again) > 0 && len(updates) < limit {
		hand(b.again[0])
		b.again = b.again[1:]
	}
	for _, u := range b.pending {
		if !u.held && len(updates) < limit {
			u.handed = true
			hand(u)
		}
	}
	return updates, nil, fault.Kind == LoseAnswer || fault.Kind == Timeout
}

// confirm forgets what is before an offset. An offset of before a jump back, which is in the future of what there is,
// confirms nothing; a negative one leaves so many of the last.
func (b *Bot) confirm(offset int64) {
	switch {
	case offset == 0:
		return
	case offset < 0:
		b.pending = b.pending[max(0, len(b.pending)+int(max(offset, -1<<30))):]
		return
	}
	// By position where it is one behind something that was handed out: ids need not rise.
	for i := len(b.pending) - 1; i >= 0; i-- {
		if u := b.pending[i]; u.id == offset-1 && u.handed {
			b.taken(func(other *update) bool { return slices.Index(b.pending, other) <= i && other.handed })
			return
		}
	}
	if offset <= b.nextUpdate {
		b.taken(func(u *update) bool { return u.id < offset })
	}
}

func (b *Bot) taken(which func(*update) bool) {
	var left, again []*update
	for _, u := range b.pending {
		switch {
		case !which(u):
			left = append(left, u)
		case u.repeats > 0:
			again = append(again, slices.Repeat([]*update{u}, u.repeats)...)
		}
	}
	b.pending = left
	b.again = append(b.again, again...)
}

// allow takes allowed_updates. Left out, what was set before stays; an empty list is the default.
func (b *Bot) allow(p parameters) *refusal {
	if !p.has("allowed_updates") || p.text("allowed_updates") == "" {
		return nil
	}
	var kinds []string
	if refused := p.decode("allowed_updates", &kinds); refused != nil {
		return refused
	}
	b.allowed = kinds
	return nil
}

// String is the update's id and kind.
func (u Update) String() string { return strconv.FormatInt(u.ID, 10) + " " + u.Kind }
