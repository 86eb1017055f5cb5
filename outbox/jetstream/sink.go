package jetstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/outbox"
)

// Options of a Sink. URL is needed.
type Options struct {
	// URL leads to one server or, separated by commas, to several of a cluster: nats://USER:PASSWORD@HOST:PORT, nats://TOKEN@HOST,
	// or tls:// for TLS.
	URL string
	// Password is that of the user in the URL, or a token where the URL names none. Empty: what the URL says.
	Password string
	// Credentials is a file with a user's JWT and seed, as nsc writes it; empty: none.
	Credentials string
	// Stream is the stream's name. Empty: HOLDFAST.
	Stream string
	// Subject is what subjects begin with: Subject, the project, and the type of the event. Empty: holdfast.
	Subject string
	// Existing says that the stream is made by somebody else: it is checked, and never created.
	Existing bool
	// Replicas of a stream that is created; 0: one.
	Replicas int
	// InFlight is how many messages may wait for their acknowledgements at once; 0: DefaultInFlight. With 1 also events of
	// different accounts keep their order whatever fails.
	InFlight int
}

// What is used where Options say nothing.
const (
	DefaultStream   = "HOLDFAST"
	DefaultSubject  = "holdfast"
	DefaultInFlight = 64
)

const (
	// dropRepeatsFor is the window of duplicates of a stream that is created: longer than the relay waits after errors.
	// The server keeps the ids of so long in memory.
	dropRepeatsFor = 10 * time.Minute
	reconnectEvery = time.Second
	connectFor     = 3 * time.Second
	acknowledgeFor = 30 * time.Second // as long as the relay lets a call of Publish last
)

// errURL does not repeat what was given, which may hold a password.
var errURL = errors.New("use nats://USER:PASSWORD@HOST:PORT, several separated by commas, or tls:// for TLS")

// Sink takes events into JetStream. It is safe for concurrent use.
type Sink struct {
	connection *nats.Conn
	stream     jetstream.JetStream
	options    Options
	found      atomic.Bool           // the stream is there and fits
	failed     atomic.Pointer[error] // why the last attempt to connect failed
}

var _ outbox.Sink = (*Sink)(nil)

// Open makes a sink, which connects, and connects again, for as long as it is open: the server need not be there yet.
func Open(options Options) (*Sink, error) {
	if options.Stream == "" {
		options.Stream = DefaultStream
	}
	if options.Subject == "" {
		options.Subject = DefaultSubject
	}
	if options.InFlight == 0 {
		options.InFlight = DefaultInFlight
	}
	s := &Sink{options: options}
	with := []nats.Option{
		nats.Name("holdfast"),
		nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(reconnectEvery),
		nats.IgnoreAuthErrorAbort(), // a password may be put right on the server's side
		nats.ReconnectBufSize(-1),   // what cannot be sent now is sent again by the relay, and not behind its back
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { s.failed.Store(&err) }),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // whatever matters is in the errors of Publish
	}
	if strings.ContainsAny(options.Stream, ".*> \t/\\") {
		return nil, fmt.Errorf("%q is no name of a stream: use none of . * > / \\ and blanks", options.Stream)
	}
	if strings.ContainsAny(options.Subject, "*> \t") || strings.HasPrefix(options.Subject, ".") || strings.HasSuffix(options.Subject, ".") {
		return nil, fmt.Errorf("%q is no beginning of subjects: use words with dots between them", options.Subject)
	}
	address, user, err := split(options.URL)
	if err != nil {
		return nil, err
	}
	switch {
	case options.Password == "":
		address = options.URL
	case user == "":
		with = append(with, nats.Token(options.Password))
	default:
		with = append(with, nats.UserInfo(user, options.Password))
	}
	if options.Credentials != "" {
		if _, err := os.Stat(options.Credentials); err != nil {
			return nil, fmt.Errorf("the credentials of NATS: %w", err)
		}
		with = append(with, nats.UserCredentials(options.Credentials))
	}
	if s.connection, err = nats.Connect(address, with...); err != nil {
		return nil, errURL
	}
	if s.stream, err = jetstream.New(s.connection, jetstream.WithPublishAsyncTimeout(acknowledgeFor)); err != nil {
		s.connection.Close()
		return nil, err
	}
	return s, nil
}

// split takes users and passwords out of addresses, and says who the user is.
func split(addresses string) (bare, user string, err error) {
	var all []string
	for address := range strings.SplitSeq(addresses, ",") {
		parsed, err := url.Parse(strings.TrimSpace(address))
		if err != nil || parsed.Host == "" {
			return "", "", errURL
		}
		if user == "" {
			user = parsed.User.Username()
		}
		parsed.User = nil
		all = append(all, parsed.String())
	}
	return strings.Join(all, ","), user, nil
}

// Close cuts the connection.
func (s *Sink) Close() error {
	s.connection.Close()
	return nil
}

// SubjectOf is where an event of a project is published: holdfast.shop.reservation.commit. A dot in a project's name, which
// would divide the subject, becomes a colon, which no name has.
func (s *Sink) SubjectOf(project string, kind holdfast.EventKind) string {
	return s.options.Subject + "." + strings.ReplaceAll(project, ".", ":") + "." + string(kind)
}

// Publish sends events of one project, and returns nil when the stream has acknowledged every one of them. After an error
// some of them may be there: the same events are to be published again. No error holds credentials.
func (s *Sink) Publish(ctx context.Context, events []outbox.Event) error {
	if err := s.publish(ctx, events); err != nil {
		s.found.Store(false) // it may have been removed: look again
		return fmt.Errorf("nats stream %s: %w", s.options.Stream, err)
	}
	return nil
}

func (s *Sink) publish(ctx context.Context, events []outbox.Event) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	if !s.found.Load() {
		if err := s.find(ctx); err != nil {
			return err
		}
		s.found.Store(true)
	}
	for len(events) > 0 {
		wave := s.wave(events)
		if err := s.send(ctx, events[:wave]); err != nil {
			return err
		}
		events = events[wave:]
	}
	return nil
}

// connect waits a moment for the connection: long enough for an attempt, and to learn why it fails.
func (s *Sink) connect(ctx context.Context) error {
	changed := s.connection.StatusChanged(nats.CONNECTED, nats.CLOSED)
	defer s.connection.RemoveStatusListener(changed)
	if s.connection.IsConnected() {
		return nil
	}
	timer := time.NewTimer(connectFor)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
	if s.connection.IsConnected() {
		return nil
	}
	if why := s.failed.Load(); why != nil {
		return fmt.Errorf("%w: %w", nats.ErrDisconnected, *why)
	}
	return nats.ErrDisconnected
}

// wave is how many of the first events may be in flight at once: no two of an account, since of two in flight the first may
// be lost and the second not.
func (s *Sink) wave(events []outbox.Event) int {
	accounts := map[holdfast.AccountID]bool{}
	for i := range events {
		account, _, _ := holdfast.EventRef.Parse(events[i].ID) // what is no id counts as one account
		if accounts[account] || len(accounts) == s.options.InFlight {
			return i
		}
		accounts[account] = true
	}
	return len(events)
}

// send publishes a wave, and waits for every acknowledgement.
func (s *Sink) send(ctx context.Context, wave []outbox.Event) error {
	sent := make([]jetstream.PubAckFuture, len(wave))
	for i := range wave {
		e := &wave[i]
		text, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("event %s: %w", e.ID, err)
		}
		message := &nats.Msg{Subject: s.SubjectOf(e.Project, e.Type), Data: text}
		sent[i], err = s.stream.PublishMsgAsync(message, jetstream.WithMsgID(e.ID), jetstream.WithExpectStream(s.options.Stream))
		if err != nil {
			return err
		}
	}
	for i := range sent {
		select {
		case <-sent[i].Ok(): // also where it is a repeat
		case err := <-sent[i].Err():
			return fmt.Errorf("event %s: %w", wave[i].ID, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// find looks at the stream, and makes it where there is none.
func (s *Sink) find(ctx context.Context) error {
	stream, err := s.stream.Stream(ctx, s.options.Stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) && !s.options.Existing {
		stream, err = s.stream.CreateStream(ctx, jetstream.StreamConfig{
			Name: s.options.Stream, Description: "Events of Holdfast", Subjects: []string{s.options.Subject + ".>"},
			Storage: jetstream.FileStorage, Replicas: max(s.options.Replicas, 1), MaxAge: holdfast.KeepEvents, Duplicates: dropRepeatsFor,
		})
	}
	if err != nil {
		return err
	}
	return s.fits(stream.CachedInfo().Config)
}

// fits says what is wrong with a stream for events that must not be lost.
func (s *Sink) fits(config jetstream.StreamConfig) error {
	var wrong []string
	if config.NoAck {
		wrong = append(wrong, "it acknowledges nothing (no_ack)")
	}
	if config.Storage != jetstream.FileStorage {
		wrong = append(wrong, "it keeps messages in memory: give it file storage")
	}
	if config.Duplicates <= 0 {
		wrong = append(wrong, "it drops no repeats: give it a window of duplicates")
	}
	if !slices.ContainsFunc(config.Subjects, func(subject string) bool {
		return subject == ">" || strings.HasPrefix(subject, "*.") || strings.HasPrefix(subject, s.options.Subject+".")
	}) {
		wrong = append(wrong, "it does not take the subjects "+s.options.Subject+".>")
	}
	if len(wrong) > 0 {
		return errors.New("the stream cannot be used: " + strings.Join(wrong, "; "))
	}
	return nil
}
