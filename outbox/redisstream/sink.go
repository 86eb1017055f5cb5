package redisstream

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-dev/holdfast/outbox"
)

// Options of a Sink. URL is needed.
type Options struct {
	// URL leads to one server or primary: redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// for TLS.
	URL string
	// Password takes the place of the one in the URL, where it is not empty.
	Password string
	// Stream is what the names of the streams begin with: Stream, a colon, the project. Empty: holdfast.
	Stream string
	// Keep is how many entries Redis keeps of each stream, or somewhat more; the oldest go. 0: DefaultKeep; negative: all.
	Keep int64
}

// What is used where Options say nothing.
const (
	DefaultStream = "holdfast"
	DefaultKeep   = 100_000
)

// ErrOtherHistory says that a stream holds other events than those that its project goes on from: the database was restored
// from a backup and gives positions again, another database uses the same names, or somebody else has written to the
// stream. Nothing is added until the stream is renamed, or another name is chosen.
var ErrOtherHistory = errors.New("it holds other events at these positions: choose another name for the streams, or rename this one and its note")

// errURL does not repeat what was given, which may hold a password.
var errURL = errors.New("use redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// for TLS")

// Sink takes events into Redis. It is safe for concurrent use.
type Sink struct {
	client *redis.Client
	stream string
	keep   int64
}

var _ outbox.Sink = (*Sink)(nil)

//go:embed publish.lua
var publishSource string

var publish = redis.NewScript(publishSource)

// Open makes a sink. It connects with the first Publish: Redis need not be there yet.
func Open(options Options) (*Sink, error) {
	parsed, err := redis.ParseURL(options.URL)
	if err != nil {
		return nil, errURL
	}
	if options.Password != "" {
		parsed.Password = options.Password
	}
	if options.Stream == "" {
		options.Stream = DefaultStream
	}
	if options.Keep == 0 {
		options.Keep = DefaultKeep
	}
	parsed.ContextTimeoutEnabled = true
	parsed.DisableIdentity = true // servers before 7.2 do not know it
	parsed.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return &Sink{client: redis.NewClient(parsed), stream: options.Stream, keep: max(options.Keep, 0)}, nil
}

// Silence keeps the client library's own lines out of standard error, for the whole process: a program with a log of its own
// calls it once. Whatever matters is in the errors of Publish.
func Silence() { logging.Disable() }

// Close cuts the connections.
func (s *Sink) Close() error { return s.client.Close() }

// StreamOf is the name of a project's stream.
func (s *Sink) StreamOf(project string) string { return s.stream + ":" + project }

// Publish adds events of one project to its stream, in one script. It returns nil when Redis has answered that all of them
// are there, which is as durable as Redis is told to be (appendfsync, replicas). Events that were added before are passed
// over. An error may be ErrOtherHistory; it holds no credentials.
func (s *Sink) Publish(ctx context.Context, events []outbox.Event) error {
	if len(events) == 0 {
		return nil
	}
	stream := s.StreamOf(events[0].Project)
	arguments := make([]any, 1, 1+5*len(events))
	arguments[0] = s.keep
	for i := range events {
		e := &events[i]
		text, err := json.Marshal(e)
		if err != nil {
			return fmt.Errorf("event %s: %w", e.ID, err)
		}
		arguments = append(arguments, e.Position, e.ID, string(e.Type), e.Account, text)
	}
	answer, err := publish.Run(ctx, s.client, []string{stream, stream + ":last"}, arguments...).Result()
	if err != nil {
		return fmt.Errorf("redis stream %s: %w", stream, err)
	}
	if answer == "other" {
		return fmt.Errorf("redis stream %s: %w", stream, ErrOtherHistory)
	}
	return nil
}
