package acceptance

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-dev/holdfast/internal/natstest"
	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/internal/redistest"
)

const (
	natsPassword  = "nats-pa55word"
	redisPassword = "redis-pa55word"
)

// brokers are both, each with a password.
type brokers struct {
	nats  *natstest.Server
	redis *redistest.Server
}

func startBrokers(t *testing.T) *brokers {
	return &brokers{natstest.StartWith(t, "ann", natsPassword), redistest.Start(t, "--requirepass", redisPassword)}
}

// environment names them to a server: one password stands in its address, the other one beside it.
func (b *brokers) environment() []string {
	return []string{
		"HOLDFAST_DEV_KEY=" + devKey,
		"HOLDFAST_NATS_URL=nats://ann:" + natsPassword + "@" + b.nats.Address(),
		"HOLDFAST_REDIS_URL=" + b.redis.URL(), "HOLDFAST_REDIS_PASSWORD=" + redisPassword,
	}
}

func (b *brokers) serve(t *testing.T, db string, args ...string) *server {
	t.Helper()
	return start(t, devKey, b.environment(), append([]string{"serve", "--dev", "--db", db, "--listen", "127.0.0.1:0"}, args...)...)
}

// inNATS and inRedis are all that is there of project dev, in its order. A broker that is down has nothing to say.
func (b *brokers) inNATS(t *testing.T) (events []told) {
	t.Helper()
	connection, err := nats.Connect(b.nats.URL(), nats.UserInfo("ann", natsPassword))
	if err != nil {
		return nil
	}
	defer connection.Close()
	js, err := jetstream.New(connection)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(context.Background(), "HOLDFAST")
	for next := uint64(1); err == nil; {
		var message *jetstream.RawStreamMsg
		if message, err = stream.GetMsg(context.Background(), next, jetstream.WithGetMsgSubject("holdfast.dev.>")); err == nil {
			events, next = append(events, read(t, message.Data)), message.Sequence+1
		}
	}
	if !errors.Is(err, jetstream.ErrMsgNotFound) && !errors.Is(err, jetstream.ErrStreamNotFound) {
		t.Fatal(err)
	}
	return events
}

func (b *brokers) inRedis(t *testing.T) (events []told) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: b.redis.Address(), Password: redisPassword, MaxRetries: -1})
	defer func() { _ = client.Close() }()
	entries, err := client.XRange(context.Background(), "holdfast:dev", "-", "+").Result()
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		events = append(events, read(t, []byte(entry.Values["json"].(string))))
	}
	return events
}

func read(t *testing.T, text []byte) (e told) {
	t.Helper()
	if err := json.Unmarshal(text, &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// arrive waits until both have the wanted number of events of each account.
func (b *brokers) arrive(t *testing.T, s *server, want map[string]int64) {
	t.Helper()
	for where, events := range map[string]func(*testing.T) []told{"NATS": b.inNATS, "Redis": b.inRedis} {
		var got map[string][]told
		all := func() bool {
			got = distinct(events(t))
			for account, count := range want {
				if int64(len(got[account])) < count {
					return false
				}
			}
			return true
		}
		for began := time.Now(); !all(); {
			if time.Since(began) > 90*time.Second {
				t.Fatalf("not everything arrived in %s: %d accounts\n%s", where, len(got), s.notes)
			}
			time.Sleep(50 * time.Millisecond)
		}
		for account, events := range got {
			for i, e := range events {
				if e.Data.Entry == nil || e.Data.Entry.No != int64(i+1) {
					t.Fatalf("%s: of %s, event number %d is %+v", where, account, i+1, e)
				}
			}
		}
	}
}

// work lets an account tell that it was granted something, and of so many reservations that were committed.
func (s *server) work(account string, reservations int) (events int64) {
	s.account(account, 1000)
	for i := range reservations {
		r := s.reserve(account, name("m", i)).want(s.t, 201)
		s.call("POST", "/v1/reservations/"+r.text("id")+"/commit", "", object{}).want(s.t, 200)
	}
	return int64(1 + 2*reservations)
}

func TestEveryEventReachesBothBrokersWhateverIsKilled(t *testing.T) {
	for kind, db := range map[string]func() string{
		"sqlite":   func() string { return database(t) },
		"postgres": func() string { return pgtest.NewEmpty(t) },
	} {
		t.Run(kind, func(t *testing.T) {
			b, db := startBrokers(t), db()
			want := map[string]int64{}
			var logs []string
			s := b.serve(t, db)
			work := func(account string) { want[account] = s.work(account, 5) }
			restart := func() {
				s.kill()
				logs = append(logs, s.notes.String())
				s = b.serve(t, db)
			}
			work("ann")
			restart() // whatever was on its way, or arrived and was not noted
			work("bob")
			b.nats.Kill(t)
			work("carl")
			b.redis.Kill(t)
			work("dora")
			restart() // both are down at the start
			work("emil")
			b.nats.Run(t)
			b.redis.Run(t)
			restart() // so that the pause after errors need not be waited for
			work("fritz")
			b.arrive(t, s, want)
			if code := s.interrupt(); code != 0 {
				t.Errorf("stopped with exit code %d\n%s", code, s.notes)
			}
			for _, log := range append(logs, s.notes.String()) {
				if strings.Contains(log, natsPassword) || strings.Contains(log, redisPassword) {
					t.Errorf("a password is in the log:\n%s", log)
				}
			}
			verified(t, db)
		})
	}
}

func TestABrokerThatRefusesIsToldOfWithoutThePassword(t *testing.T) {
	b := startBrokers(t)
	env := []string{
		"HOLDFAST_DEV_KEY=" + devKey, "HOLDFAST_NATS_PASSWORD=wr0ng", "HOLDFAST_REDIS_URL=redis://:wr0ng@" + b.redis.Address(),
	}
	s := start(t, devKey, env, "serve", "--dev", "--db", database(t), "--listen", "127.0.0.1:0", "--nats-url", "nats://ann@"+b.nats.Address())
	s.account("ann", 1)
	for began := time.Now(); ; {
		notes := s.notes.String()
		if strings.Contains(notes, "sink=nats:HOLDFAST") && strings.Contains(notes, "sink=redis:holdfast") {
			if strings.Contains(notes, "wr0ng") || !strings.Contains(notes, "WRONGPASS") || !strings.Contains(notes, "Authorization Violation") {
				t.Errorf("the log says\n%s", notes)
			}
			break
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("the log says nothing of it\n%s", notes)
		}
		for i := 0; i < 1; i++ {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func TestAnAddressOfABrokerThatIsNoneIsRefusedWithoutRepeatingIt(t *testing.T) {
	for flag, hint := range map[string]string{"--nats-url": "nats://USER:PASSWORD@HOST:PORT", "--redis-url": "redis://USER:PASSWORD@HOST:PORT"} {
		_, notes, code := holdfast(t, "serve", "--dev", "--db", database(t), "--listen", "127.0.0.1:0", flag, "other://:pa55word@[::1")
		if code != 1 || !strings.Contains(notes, flag) || !strings.Contains(notes, hint) || strings.Contains(notes, "pa55word") {
			t.Errorf("%s: exit %d\n%s", flag, code, notes)
		}
	}
}
