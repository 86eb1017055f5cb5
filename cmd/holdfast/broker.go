package main

import (
	"fmt"
	"os"

	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/outbox/jetstream"
	"github.com/holdfast-dev/holdfast/outbox/redisstream"
)

// brokerFlags say which brokers events are taken into. Passwords may stand in the addresses, or in the environment alone:
// HOLDFAST_NATS_PASSWORD and HOLDFAST_REDIS_PASSWORD.
type brokerFlags struct {
	NATSURL         string `name:"nats-url" env:"HOLDFAST_NATS_URL" placeholder:"URL" help:"Take events into NATS JetStream: nats://USER:PASSWORD@HOST:PORT, several separated by commas, or tls://. The password may be in HOLDFAST_NATS_PASSWORD instead; without a user it is a token."`
	NATSCredentials string `name:"nats-credentials" env:"HOLDFAST_NATS_CREDENTIALS" placeholder:"FILE" help:"A file with a user's JWT and seed."`
	NATSStream      string `name:"nats-stream" default:"HOLDFAST" env:"HOLDFAST_NATS_STREAM" placeholder:"NAME" help:"The stream."`
	NATSSubject     string `name:"nats-subject" default:"holdfast" env:"HOLDFAST_NATS_SUBJECT" placeholder:"WORD" help:"What subjects begin with; the project and the type of the event follow."`
	NATSExisting    bool   `name:"nats-existing" env:"HOLDFAST_NATS_EXISTING" help:"The stream is made by somebody else: check it, and never create it."`
	NATSReplicas    int    `name:"nats-replicas" default:"1" env:"HOLDFAST_NATS_REPLICAS" placeholder:"N" help:"How many servers keep a stream that is created."`

	RedisURL    string `name:"redis-url" env:"HOLDFAST_REDIS_URL" placeholder:"URL" help:"Take events into Redis Streams: redis://USER:PASSWORD@HOST:PORT/DATABASE, or rediss:// for TLS. The password may be in HOLDFAST_REDIS_PASSWORD instead."`
	RedisStream string `name:"redis-stream" default:"holdfast" env:"HOLDFAST_REDIS_STREAM" placeholder:"WORD" help:"What the names of the streams begin with; a colon and the project follow."`
	RedisKeep   int64  `name:"redis-keep" default:"100000" env:"HOLDFAST_REDIS_KEEP" placeholder:"N" help:"About how many entries of each stream are kept; -1: all."`
}

// openSinks makes the sinks, which connect when they can: a broker that is away keeps nobody from serving. A sink is named by
// its stream, under which the database keeps how far it has come: another stream begins from the oldest event.
func (f brokerFlags) openSinks() (sinks map[string]outbox.Sink, closeAll func(), err error) {
	sinks = map[string]outbox.Sink{}
	var opened []interface{ Close() error }
	closeAll = func() {
		for _, sink := range opened {
			_ = sink.Close()
		}
	}
	if f.NATSURL != "" {
		sink, err := jetstream.Open(jetstream.Options{
			URL: f.NATSURL, Password: os.Getenv("HOLDFAST_NATS_PASSWORD"), Credentials: f.NATSCredentials,
			Stream: f.NATSStream, Subject: f.NATSSubject, Existing: f.NATSExisting, Replicas: f.NATSReplicas,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("--nats-url: %w", err)
		}
		opened, sinks["nats:"+f.NATSStream] = append(opened, sink), sink
	}
	if f.RedisURL != "" {
		redisstream.Silence()
		sink, err := redisstream.Open(redisstream.Options{
			URL: f.RedisURL, Password: os.Getenv("HOLDFAST_REDIS_PASSWORD"), Stream: f.RedisStream, Keep: f.RedisKeep,
		})
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("--redis-url: %w", err)
		}
		opened, sinks["redis:"+f.RedisStream] = append(opened, sink), sink
	}
	return sinks, closeAll, nil
}
