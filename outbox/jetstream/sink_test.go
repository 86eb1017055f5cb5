package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/internal/natstest"
	"github.com/holdfast-dev/holdfast/internal/sinktest"
	"github.com/holdfast-dev/holdfast/outbox"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type broker struct{ *natstest.Server }

func (b broker) Sink(t testing.TB, address string) outbox.Sink {
	return open(t, Options{URL: "nats://" + address})
}

func open(t testing.TB, options Options) *Sink {
	t.Helper()
	s, err := Open(options)
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// client is somebody else's connection.
func (b broker) client(t testing.TB, with ...nats.Option) jetstream.JetStream {
	t.Helper()
	connection, err := nats.Connect(b.URL(), with...)
	must(t, err)
	t.Cleanup(connection.Close)
	js, err := jetstream.New(connection)
	must(t, err)
	return js
}

// Read is what a consumer of one project reads.
func (b broker) Read(t testing.TB, project string) (events []outbox.Event) {
	t.Helper()
	for _, m := range b.messages(t, DefaultSubject+"."+strings.ReplaceAll(project, ".", ":")+".>") {
		var e outbox.Event
		must(t, json.Unmarshal(m.Data, &e))
		if m.Header.Get(nats.MsgIdHdr) != e.ID || !strings.HasSuffix(m.Subject, "."+string(e.Type)) {
			t.Errorf("%s came as %s under the id %q", e.ID, m.Subject, m.Header.Get(nats.MsgIdHdr))
		}
		events = append(events, e)
	}
	return events
}

// messages are those of a subject that the stream holds.
func (b broker) messages(t testing.TB, subject string) (all []*jetstream.RawStreamMsg) {
	t.Helper()
	connection, err := nats.Connect(b.URL())
	must(t, err)
	defer connection.Close()
	js, err := jetstream.New(connection)
	must(t, err)
	stream, err := js.Stream(context.Background(), DefaultStream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	must(t, err)
	for next := uint64(1); ; {
		message, err := stream.GetMsg(context.Background(), next, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return all
		}
		must(t, err)
		all, next = append(all, message), message.Sequence+1
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestSink(t *testing.T) {
	sinktest.Exercise(t, func(t *testing.T) sinktest.Broker { return broker{natstest.Start(t)} })
}

// event is one of an account.
func event(account string, n int64) outbox.Event {
	id := holdfast.EventRef.Encode(holdfast.AccountIDOf(sinktest.Project, account), holdfast.ID{15: byte(n)})
	return outbox.Event{ID: id, Type: "grant.add", Position: n, Project: sinktest.Project, Account: account}
}

func events(names string) (all []outbox.Event) {
	for i, account := range strings.Fields(names) {
		all = append(all, event(account, int64(i+1)))
	}
	return all
}

func TestNoTwoEventsOfAnAccountAreInFlightAtOnce(t *testing.T) {
	s := &Sink{options: Options{InFlight: 3}}
	for names, want := range map[string][]int{
		"a":               {1},
		"a b c":           {3},
		"a b c d e":       {3, 2},
		"a a a":           {1, 1, 1},
		"a b a c b d e f": {2, 3, 3},
	} {
		var got []int
		for left := events(names); len(left) > 0; {
			n := s.wave(left)
			got, left = append(got, n), left[n:]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: waves of %v, want %v", names, got, want)
		}
	}
}

// The stream takes no message as large as the second one of ann: nothing of ann's may be there behind it.
func TestAnEventThatIsNotTakenIsOvertakenByNoneOfItsAccount(t *testing.T) {
	b := broker{natstest.Start(t)}
	js := b.client(t)
	config := jetstream.StreamConfig{Name: DefaultStream, Subjects: []string{"holdfast.>"}, MaxMsgSize: 2000}
	_, err := js.CreateStream(t.Context(), config)
	must(t, err)
	s := open(t, Options{URL: b.URL()})
	all := events("ann bob ann bob ann bob")
	large := strings.Repeat("x", 5000)
	all[2].Data.Entry = &outbox.EventEntry{Reason: large}
	if err := s.Publish(t.Context(), all); err == nil || strings.Contains(err.Error(), "xxxx") {
		t.Errorf("got %v", err)
	}
	for _, e := range b.Read(t, sinktest.Project) {
		if e.Account == "ann" && e.Position > 1 {
			t.Errorf("event %d of ann has overtaken event 3", e.Position)
		}
	}
	config.MaxMsgSize = -1
	_, err = js.UpdateStream(t.Context(), config)
	must(t, err)
	must(t, s.Publish(t.Context(), all))
	of := map[string][]int64{}
	for _, e := range b.Read(t, sinktest.Project) {
		of[e.Account] = append(of[e.Account], e.Position)
	}
	if fmt.Sprint(of) != "map[ann:[1 3 5] bob:[2 4 6]]" {
		t.Errorf("the stream holds %v", of)
	}
}

func TestTheStreamIsMadeAsEventsNeedIt(t *testing.T) {
	b := broker{natstest.Start(t)}
	must(t, open(t, Options{URL: b.URL()}).Publish(t.Context(), events("ann")))
	stream, err := b.client(t).Stream(t.Context(), DefaultStream)
	must(t, err)
	c := stream.CachedInfo().Config
	if c.Storage != jetstream.FileStorage || c.NoAck || c.MaxAge != holdfast.KeepEvents || c.Duplicates != 10*time.Minute || !slices.Equal(c.Subjects, []string{"holdfast.>"}) {
		t.Errorf("%+v", c)
	}
}

func TestAStreamThatIsThereIsCheckedAndLeftAsItIs(t *testing.T) {
	b := broker{natstest.Start(t)}
	js := b.client(t)
	for what, then := range map[string]struct {
		config jetstream.StreamConfig
		hint   string
	}{
		"none":        {jetstream.StreamConfig{}, "not found"},
		"silent":      {jetstream.StreamConfig{Subjects: []string{"silent.>"}, NoAck: true}, "no_ack"},
		"forgetful":   {jetstream.StreamConfig{Subjects: []string{"forgetful.>"}, Storage: jetstream.MemoryStorage}, "file storage"},
		"of_others":   {jetstream.StreamConfig{Subjects: []string{"orders.>"}}, "does not take the subjects of_others.>"},
		"of_a_kind":   {jetstream.StreamConfig{Subjects: []string{"of_a_kind.other.>"}}, "no response"},
		"of_my_own":   {jetstream.StreamConfig{Subjects: []string{"of_my_own.>"}, Description: "mine", Duplicates: time.Second}, ""},
		"of_projects": {jetstream.StreamConfig{Subjects: []string{"of_projects.shop:eu.>"}}, ""},
	} {
		t.Run(what, func(t *testing.T) {
			if len(then.config.Subjects) > 0 {
				then.config.Name = what
				_, err := js.CreateStream(t.Context(), then.config)
				must(t, err)
			}
			s := open(t, Options{URL: b.URL(), Stream: what, Subject: what, Existing: true})
			err := s.Publish(t.Context(), events("ann"))
			if then.hint == "" {
				must(t, err)
				stream, err := js.Stream(t.Context(), what)
				must(t, err)
				if c := stream.CachedInfo().Config; c.Description != then.config.Description || then.config.Duplicates != 0 && c.Duplicates != then.config.Duplicates {
					t.Errorf("it was changed: %+v", c)
				}
			} else if err == nil || !strings.Contains(err.Error(), then.hint) {
				t.Errorf("got %v, want a hint about %q", err, then.hint)
			}
		})
	}
}

// Another stream has the subjects: nothing may be counted as taken that the named one does not have.
func TestWhatAnotherStreamTakesIsNotTaken(t *testing.T) {
	b := broker{natstest.Start(t)}
	js := b.client(t)
	_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"holdfast.shop:eu.>"}})
	must(t, err)
	_, err = js.CreateStream(t.Context(), jetstream.StreamConfig{Name: DefaultStream, Subjects: []string{"holdfast.mine.>"}})
	must(t, err)
	if err := open(t, Options{URL: b.URL()}).Publish(t.Context(), events("ann")); err == nil {
		t.Error("it counts as taken")
	}
}

func TestAStreamThatWasRemovedIsMadeAgain(t *testing.T) {
	b := broker{natstest.Start(t)}
	s := open(t, Options{URL: b.URL()})
	must(t, s.Publish(t.Context(), events("ann")))
	must(t, b.client(t).DeleteStream(t.Context(), DefaultStream))
	if err := s.Publish(t.Context(), events("ann bob")); err == nil {
		t.Error("events went into a stream that is not there")
	}
	must(t, s.Publish(t.Context(), events("ann bob")))
	if got := len(b.Read(t, sinktest.Project)); got != 2 {
		t.Errorf("it holds %d of 2", got)
	}
}

func TestThePasswordMayStandInTheURLOrBesideItAndIsNeverInAnError(t *testing.T) {
	const user, secret, wrong = "ann", "se:cr@et", "wr0ng-secret"
	b := broker{natstest.StartWith(t, user, secret)}
	for what, options := range map[string]Options{
		"in the URL": {URL: "nats://ann:se%3Acr%40et@" + b.Address()},
		"beside it":  {URL: "nats://ann@" + b.Address(), Password: secret},
		"in place":   {URL: "nats://ann:" + wrong + "@" + b.Address(), Password: secret},
		"of several": {URL: "nats://ann@" + b.Address() + ", nats://ann@127.0.0.1:1", Password: secret},
	} {
		if err := open(t, options).Publish(t.Context(), events("ann")); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, options := range map[string]Options{
		"none":  {URL: b.URL()},
		"wrong": {URL: "nats://ann:" + wrong + "@" + b.Address()},
		"token": {URL: b.URL(), Password: wrong},
	} {
		err := open(t, options).Publish(t.Context(), events("ann"))
		if err == nil || strings.Contains(err.Error(), wrong) || !strings.Contains(strings.ToLower(err.Error()), "authorization") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// As docs/guides/brokers.md says.
func TestAUserNeedsNoMoreRightsThanTheGuideNames(t *testing.T) {
	b := broker{natstest.StartWith(t, "ann", "secret", "holdfast.>", "$JS.API.STREAM.INFO.HOLDFAST", "$JS.API.STREAM.CREATE.HOLDFAST")}
	must(t, open(t, Options{URL: "nats://ann:secret@" + b.Address()}).Publish(t.Context(), events("ann bob")))
}

func TestAnAddressThatIsNoneIsNotRepeated(t *testing.T) {
	for _, url := range []string{"", "localhost:4222", "nats://u:pa55word@host:port", "nats://u:pa55word@[::1", "nats://u:pa55word\x7f@host", "nats://127.0.0.1,u:pa55word@host"} {
		for _, password := range []string{"", "other"} {
			s, err := Open(Options{URL: url, Password: password})
			if err == nil {
				_ = s.Close()
			}
			if err == nil || strings.Contains(err.Error(), "pa55word") || !strings.Contains(err.Error(), "nats://USER:PASSWORD@HOST:PORT") {
				t.Errorf("%q: %v", url, err)
			}
		}
	}
}

func TestNamesThatNATSDoesNotTakeAreRefusedAtOnce(t *testing.T) {
	for _, options := range []Options{{Stream: "a.b"}, {Stream: "a b"}, {Stream: "*"}, {Subject: "a.>"}, {Subject: ".a"}, {Subject: "a."}, {Subject: "a b"}} {
		options.URL = "nats://127.0.0.1:1"
		if s, err := Open(options); err == nil {
			_ = s.Close()
			t.Errorf("%+v is taken", options)
		}
	}
}

func TestAFileOfCredentialsThatIsNotThereIsToldAtOnce(t *testing.T) {
	if _, err := Open(Options{URL: "nats://127.0.0.1:1", Credentials: filepath.Join(t.TempDir(), "none.creds")}); err == nil || !strings.Contains(err.Error(), "none.creds") {
		t.Errorf("got %v", err)
	}
}

func TestACancelledCallReturns(t *testing.T) {
	b := broker{natstest.Start(t)}
	s := open(t, Options{URL: b.URL()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Publish(ctx, events("ann")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
