package redisstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast/internal/redistest"
	"github.com/holdfast-dev/holdfast/internal/sinktest"
	"github.com/holdfast-dev/holdfast/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type broker struct {
	*redistest.Server
	client *redis.Client
}

func start(t *testing.T, settings ...string) *broker {
	t.Helper()
	s := redistest.Start(t, settings...)
	options, err := redis.ParseURL(s.URL())
	must(t, err)
	b := &broker{s, redis.NewClient(options)}
	t.Cleanup(func() { _ = b.client.Close() })
	return b
}

func (b *broker) Sink(t testing.TB, address string) outbox.Sink {
	return b.sink(t, Options{URL: "redis://" + address})
}

func (b *broker) sink(t testing.TB, options Options) *Sink {
	t.Helper()
	s, err := Open(options)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// Read is what a consumer reads: the fields, and of the entry's id that it is the position.
func (b *broker) Read(t testing.TB, project string) (events []outbox.Event) {
	t.Helper()
	entries, err := b.client.XRange(context.Background(), "holdfast:"+project, "-", "+").Result()
	must(t, err)
	for _, entry := range entries {
		var e outbox.Event
		must(t, json.Unmarshal([]byte(entry.Values["json"].(string)), &e))
		position := strconv.FormatInt(e.Position, 10)
		for field, want := range map[string]string{"id": e.ID, "type": string(e.Type), "position": position, "account": e.Account} {
			if entry.Values[field] != want {
				t.Errorf("field %s is %v, want %s", field, entry.Values[field], want)
			}
		}
		if entry.ID != position+"-0" {
			t.Errorf("entry %s holds position %s", entry.ID, position)
		}
		events = append(events, e)
	}
	return events
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSink(t *testing.T) {
	sinktest.Exercise(t, func(t *testing.T) sinktest.Broker { return start(t) })
}

// events are those of positions first to last; another history has other ids.
func events(history string, first, last int64) (all []outbox.Event) {
	for position := first; position <= last; position++ {
		all = append(all, outbox.Event{ID: fmt.Sprint("evt_", history, position), Type: "grant.add", Position: position, Project: sinktest.Project, Account: "ann"})
	}
	return all
}

// positions are what the stream holds, in its order.
func (b *broker) positions(t *testing.T) string {
	t.Helper()
	var all []string
	for _, e := range b.Read(t, sinktest.Project) {
		all = append(all, strings.TrimPrefix(e.ID, "evt_"))
	}
	return strings.Join(all, " ")
}

func TestWhatWasTakenBeforeIsPassedOver(t *testing.T) {
	for what, then := range map[string]struct {
		change func(t *testing.T, b *broker, stream string)
		again  []outbox.Event
		want   string
	}{
		"all of it again":           {nil, events("a", 1, 5), "a1 a2 a3 a4 a5"},
		"all of it again, and more": {nil, events("a", 3, 7), "a1 a2 a3 a4 a5 a6 a7"},
		"the first of it again":     {nil, events("a", 1, 2), "a1 a2 a3 a4 a5"},
		"after a gap":               {nil, events("a", 8, 9), "a1 a2 a3 a4 a5 a8 a9"},
		"a consumer deletes what it has read": {func(t *testing.T, b *broker, stream string) {
			must(t, b.client.XDel(t.Context(), stream, "1-0", "2-0", "3-0", "4-0", "5-0").Err())
		}, events("a", 2, 6), "a6"},
		"the stream was deleted": {func(t *testing.T, b *broker, stream string) {
			must(t, b.client.Del(t.Context(), stream).Err())
		}, events("a", 5, 6), "a6"},
		"everything was deleted": {func(t *testing.T, b *broker, _ string) {
			must(t, b.client.FlushAll(t.Context()).Err())
		}, events("a", 5, 6), "a5 a6"},
		"the scripts were forgotten": {func(t *testing.T, b *broker, _ string) {
			must(t, b.client.ScriptFlush(t.Context()).Err())
		}, events("a", 5, 6), "a1 a2 a3 a4 a5 a6"},
		"the server was killed": {func(t *testing.T, b *broker, _ string) {
			b.Kill(t)
			b.Run(t)
		}, events("a", 5, 6), "a1 a2 a3 a4 a5 a6"},
	} {
		t.Run(what, func(t *testing.T) {
			b := start(t)
			s := b.sink(t, Options{URL: b.URL()})
			must(t, s.Publish(t.Context(), events("a", 1, 5)))
			if then.change != nil {
				then.change(t, b, s.StreamOf(sinktest.Project))
			}
			must(t, s.Publish(t.Context(), then.again))
			if got := b.positions(t); got != then.want {
				t.Errorf("the stream holds %s, want %s", got, then.want)
			}
		})
	}
}

// A database that was restored from a backup gives positions again, to other events. None of them may be taken for one
// that was told.
func TestEventsOfAnotherHistoryAreNeverTakenForRepeats(t *testing.T) {
	for what, then := range map[string]struct {
		change func(t *testing.T, b *broker, stream string)
		other  []outbox.Event
	}{
		"all of them":         {nil, events("b", 1, 5)},
		"the last is further": {nil, events("b", 4, 9)},
		"the last is before":  {nil, events("b", 1, 3)},
		"the entries are gone": {func(t *testing.T, b *broker, stream string) {
			must(t, b.client.XTrimMaxLen(t.Context(), stream, 0).Err())
		}, events("b", 4, 9)},
		"the entries are gone, and the last is before": {func(t *testing.T, b *broker, stream string) {
			must(t, b.client.XTrimMaxLen(t.Context(), stream, 0).Err())
		}, events("b", 1, 3)},
		"the note is gone": {func(t *testing.T, b *broker, stream string) {
			must(t, b.client.Del(t.Context(), stream+":last").Err())
		}, events("b", 5, 6)},
		"somebody else writes to the stream": {func(t *testing.T, b *broker, stream string) {
			must(t, b.client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: "100-0", Values: []string{"json", `{"position":100}`, "id", "", "type", "", "position", "100", "account", ""}}).Err())
		}, events("a", 6, 7)},
	} {
		t.Run(what, func(t *testing.T) {
			b := start(t)
			s := b.sink(t, Options{URL: b.URL()})
			must(t, s.Publish(t.Context(), events("a", 1, 5)))
			if then.change != nil {
				then.change(t, b, s.StreamOf(sinktest.Project))
			}
			before := b.positions(t)
			if err := s.Publish(t.Context(), then.other); !errors.Is(err, ErrOtherHistory) {
				t.Errorf("got %v, want %v", err, ErrOtherHistory)
			}
			if after := b.positions(t); after != before {
				t.Errorf("the stream held %s and now holds %s", before, after)
			}
			another := b.sink(t, Options{URL: b.URL(), Stream: "restored"})
			must(t, another.Publish(t.Context(), then.other))
		})
	}
}

func TestAStreamKeepsAboutAsManyEntriesAsItIsToldTo(t *testing.T) {
	b := start(t, "--stream-node-max-entries", "10")
	s := b.sink(t, Options{URL: b.URL(), Keep: 50})
	for first := int64(1); first < 500; first += 100 {
		must(t, s.Publish(t.Context(), events("a", first, first+99)))
	}
	kept := b.Read(t, sinktest.Project)
	if len(kept) < 50 || len(kept) > 70 || kept[len(kept)-1].Position != 500 {
		t.Errorf("%d entries are kept, the last at %d", len(kept), kept[len(kept)-1].Position)
	}
	all := b.sink(t, Options{URL: b.URL(), Stream: "all", Keep: -1})
	for first := int64(1); first < 500; first += 100 {
		must(t, all.Publish(t.Context(), events("a", first, first+99)))
	}
	if n := b.client.XLen(t.Context(), all.StreamOf(sinktest.Project)).Val(); n != 500 {
		t.Errorf("%d of 500 are kept where all are to be", n)
	}
}

func TestThePasswordMayStandInTheURLOrBesideItAndIsNeverInAnError(t *testing.T) {
	const secret, wrong = "se:cr@et", "wr0ng-secret"
	b := start(t, "--requirepass", secret)
	for what, options := range map[string]Options{
		"in the URL": {URL: "redis://:se%3Acr%40et@" + b.Address()},
		"beside it":  {URL: "redis://" + b.Address(), Password: secret},
		"in place":   {URL: "redis://:" + wrong + "@" + b.Address(), Password: secret},
	} {
		options.Stream = what
		if err := b.sink(t, options).Publish(t.Context(), events("a", 1, 1)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, options := range map[string]Options{
		"none":  {URL: b.URL()},
		"wrong": {URL: "redis://:" + wrong + "@" + b.Address()},
	} {
		err := b.sink(t, options).Publish(t.Context(), events("a", 1, 1))
		if err == nil || strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// As docs/guides/brokers.md says.
func TestAUserNeedsNoMoreRightsThanTheGuideNames(t *testing.T) {
	b := start(t)
	must(t, b.client.Do(t.Context(), "ACL", "SETUSER", "holdfast", "on", ">secret", "~holdfast:*", "+eval", "+evalsha", "+xadd", "+xrange", "+hmget", "+hset").Err())
	s := b.sink(t, Options{URL: "redis://holdfast:secret@" + b.Address()})
	must(t, s.Publish(t.Context(), events("a", 1, 3)))
	must(t, s.Publish(t.Context(), events("a", 1, 1)))
	if got := b.positions(t); got != "a1 a2 a3" {
		t.Errorf("the stream holds %s", got)
	}
}

func TestAnAddressThatIsNoneIsNotRepeated(t *testing.T) {
	for _, url := range []string{"", "localhost:6379", "http://u:pa55word@host", "redis://u:pa55word@host:port", "redis://u:pa55word@host/x", "redis://u:pa55word@[::1", "redis://u:pa55word\x7f@host"} {
		if _, err := Open(Options{URL: url}); err == nil || strings.Contains(err.Error(), "pa55word") || !strings.Contains(err.Error(), "redis://USER:PASSWORD@HOST:PORT") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestNothingIsPublishedOfNothing(t *testing.T) {
	s, err := Open(Options{URL: "redis://127.0.0.1:1"})
	must(t, err)
	defer func() { _ = s.Close() }()
	if err := s.Publish(t.Context(), nil); err != nil {
		t.Error(err)
	}
}
