package outbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
)

func newMemoryStore(t *testing.T) *memory.Store {
	t.Helper()
	s := memory.Open()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestDeliveriesAreSignedAsTheStandardsOwnLibraryVerifies(t *testing.T) {
	s := newMemoryStore(t)
	e := newTeller(t, s)
	type request struct {
		header http.Header
		body   []byte
	}
	requests := make(chan request, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		requests <- request{r.Header, body}
	}))
	defer receiver.Close()
	to, first, err := desk(s).Add(t.Context(), project, Change{URL: &receiver.URL})
	must(t, err)
	_, second, err := desk(s).Rotate(t.Context(), project, to.ID)
	must(t, err)
	e.tell("ann", 1)
	relaying(t, s)
	got := <-requests
	for _, secret := range []string{first, second} { // both are active
		oracle, err := standardwebhooks.NewWebhook(secret)
		must(t, err)
		if err := oracle.Verify(got.body, got.header); err != nil {
			t.Errorf("verify: %v", err)
		}
		if err := oracle.Verify(append(bytes.Clone(got.body), ' '), got.header); err == nil {
			t.Error("a changed body verifies")
		}
	}
	_, third, err := desk(s).Rotate(t.Context(), project, to.ID)
	must(t, err)
	e.tell("bob", 1)
	got = <-requests
	for secret, wanted := range map[string]bool{first: false, second: true, third: true} {
		oracle, err := standardwebhooks.NewWebhook(secret)
		must(t, err)
		if err := oracle.Verify(got.body, got.header); (err == nil) != wanted {
			t.Errorf("after a second rotation: %v, wanted %t", err, wanted)
		}
	}
	if got.header.Get("Content-Type") != "application/json" || !strings.HasPrefix(got.header.Get("Webhook-Id"), "evt_") {
		t.Errorf("headers %v", got.header)
	}
}

// Case 51, for every kind of address that is not public.
func TestOnlyPublicAddressesAndAllowedNetworksAreConnectedTo(t *testing.T) {
	allow, err := ParseAllow("10.1.0.0/16, fd00:1::/32 192.168.7.7")
	must(t, err)
	for address, wanted := range map[string]bool{
		"93.184.216.34": true, "2606:2800:220:1::1": true, "::ffff:93.184.216.34": true, "100.63.255.255": true, "100.128.0.0": true, "172.32.0.1": true,
		"10.1.2.3": true, "fd00:1::5": true, "192.168.7.7": true, "::ffff:10.1.2.3": true,
		"10.2.0.1": false, "192.168.7.8": false, "fd00:2::5": false,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "0.0.0.0": false, "::": false, "0.1.2.3": false,
		"172.16.0.1": false, "172.31.255.255": false, "192.168.0.1": false, "169.254.169.254": false, "fe80::1": false, "fe80::1%eth0": false,
		"100.64.0.1": false, "100.127.255.255": false, "224.0.0.1": false, "239.1.1.1": false, "ff02::1": false, "255.255.255.255": false, "240.0.0.1": false,
		"192.0.0.1": false, "192.0.2.1": false, "198.18.0.1": false, "198.51.100.1": false, "203.0.113.1": false, "192.88.99.1": false,
		"::ffff:127.0.0.1": false, "::ffff:169.254.169.254": false, "::ffff:10.2.0.1": false, "::ffff:0:127.0.0.1": false, "::127.0.0.1": false,
		"64:ff9b::127.0.0.1": false, "64:ff9b::5db8:d822": false, "64:ff9b:1::1": false, "2002:7f00:1::": false, "2001::1": false, "2001:db8::1": false,
		"fc00::1": false, "fec0::1": false, "100::1": false, "3fff::1": false, "5f00::1": false, "4000::1": false,
	} {
		err := Guard{Allow: allow}.check(netip.MustParseAddr(address), true)
		if (err == nil) != wanted {
			t.Errorf("%s: %v, wanted %t", address, err, wanted)
		}
		if wanted && (Guard{Allow: allow}).check(netip.MustParseAddr(address), false) == nil != within(netip.MustParseAddr(address).Unmap(), allow) {
			t.Errorf("%s without TLS", address)
		}
	}
	for _, text := range []string{"10.0.0.0/33", "localhost", "fe80::1%eth0", "::ffff:10.0.0.0/104"} {
		if _, err := ParseAllow(text); err == nil {
			t.Errorf("%q is a network", text)
		}
	}
}

// Case 51, for names that change, and for addresses written in every way: whatever was looked at before, the guard sees what
// the socket is about to connect to.
func TestTheAddressIsLookedAtWhenItIsConnectedTo(t *testing.T) {
	var connections atomic.Int32
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	server := &http.Server{ConnState: func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	must(t, err)
	t.Setenv("HTTPS_PROXY", "http://"+listener.Addr().String()) // of no interest
	s := newSender(Guard{}, "test", defaultAnswer)
	defer s.close()
	for _, host := range []string{"localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "0.0.0.0", "[::]", "[::1]"} {
		for _, scheme := range []string{"https", "http"} {
			to := &store.Endpoint{URL: scheme + "://" + host + ":" + port, Secrets: []string{newSecret()}}
			got := s.send(t.Context(), to, &Event{ID: "evt_1"}, time.Now())
			if got.problem != problemAddress {
				t.Errorf("%s: %+v", to.URL, got)
			}
		}
	}
	if connections.Load() != 0 {
		t.Errorf("%d connections were made", connections.Load())
	}
	to := &store.Endpoint{URL: "http://127.0.0.1:" + port, Secrets: []string{newSecret()}}
	allowed := newSender(Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}}, "test", defaultAnswer)
	defer allowed.close()
	if got := allowed.send(t.Context(), to, &Event{ID: "evt_1"}, time.Now()); got.problem == problemAddress || connections.Load() == 0 {
		t.Errorf("an allowed network: %+v", got)
	}
}

func TestAnAddressThatNoEndpointMayHaveIsRefusedWithAHint(t *testing.T) {
	for url, wanted := range map[string]bool{
		"https://example.com/hook?x=1": true, "https://example.com:8443": true, "http://example.com": false, "ftp://example.com": false,
		"https://user:pass@example.com": false, "https://example.com/#x": false, "https://": false, "//example.com": false, "": false, "https:opaque": false,
		"https://127.0.0.1": false, "https://[::1]/": false, "https://[::ffff:10.0.0.1]": false, "https://example.com:0": false, "https://example.com:99999": false,
		"https://example.com/" + strings.Repeat("a", holdfast.MaxEndpointURL): false, "https://exa mple.com": false,
	} {
		if hint := checkURL(url, Guard{}); (hint == "") != wanted {
			t.Errorf("%s: %q", url, hint)
		}
	}
	own := Guard{Allow: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	for url, wanted := range map[string]bool{"http://10.1.1.1/hook": true, "http://93.184.216.34": false, "https://93.184.216.34": true, "http://inside": true} {
		if hint := checkURL(url, own); (hint == "") != wanted {
			t.Errorf("%s: %q", url, hint)
		}
	}
}

// Case 51, for redirects: the attempt has failed, and nobody else is connected to.
func TestRedirectsAreNotFollowedAndAnswersAreBounded(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	endless := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/redirect":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/large":
			defer close(endless)
			for block := bytes.Repeat([]byte("a"), 1<<16); ; {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		case "/gone":
			w.Header().Set("Retry-After", "7200")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	sender := newSender(Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}, "test", defaultAnswer)
	defer sender.close()
	for path, wanted := range map[string]result{
		"/":         {status: 200},
		"/redirect": {status: 307, problem: problemStatus},
		"/large":    {status: 200},
		"/gone":     {status: 503, problem: problemStatus, retryAfter: time.Hour},
	} {
		got := sender.send(t.Context(), &store.Endpoint{URL: s.URL + path, Secrets: []string{newSecret()}}, &Event{ID: "evt_1"}, time.Now())
		if got != wanted {
			t.Errorf("%s: %+v, wanted %+v", path, got, wanted)
		}
	}
	if elsewhere.Load() != 0 {
		t.Error("a redirect was followed")
	}
	<-endless // the connection of the endless answer was closed
}

func TestRetryAfterIsSecondsOrADateUpToAnHour(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for text, wanted := range map[string]time.Duration{
		"": 0, "120": 2 * time.Minute, "-5": 0, "99999999999": 0, "86400": time.Hour, "soon": 0,
		"Tue, 01 Dec 2026 10:05:00 GMT": 5 * time.Minute, "Tue, 01 Dec 2026 09:00:00 GMT": 0, "Wed, 02 Dec 2026 10:05:00 GMT": time.Hour,
	} {
		if text == "99999999999" {
			wanted = time.Hour
		}
		if got := retryAfter(text, now); got != wanted {
			t.Errorf("%q: %s, wanted %s", text, got, wanted)
		}
	}
}

func TestASlowAndADeadEndpointDoNotSlowTheOthers(t *testing.T) {
	onEachStore(t, func(t *testing.T, s database) {
		e, healthy := newTeller(t, s), newMemo()
		release := make(chan struct{})
		slow := receiver(t, newMemo(), func(http.ResponseWriter, Event) bool {
			<-release
			return true
		})
		dead := httptest.NewServer(nil)
		dead.Close()
		for range 3 {
			subscribe(t, s, slow)
			subscribe(t, s, dead.URL)
		}
		subscribe(t, s, receiver(t, healthy, nil))
		for n := range 10 {
			e.tell(fmt.Sprint("account", n), 6)
		}
		defer close(release)
		relaying(t, s)
		inOrder(t, healthy.until(t, 60))
	})
}

func TestAnAccountThatIsNotTakenHoldsUpNoOtherOfItsEndpoint(t *testing.T) {
	onEachStore(t, func(t *testing.T, s database) {
		e, m := newTeller(t, s), newMemo()
		var refused atomic.Int32
		to := subscribe(t, s, receiver(t, m, func(w http.ResponseWriter, e Event) bool {
			if e.Account == "bad" {
				refused.Add(1)
				w.WriteHeader(http.StatusInternalServerError)
				return false
			}
			return true
		}))
		e.tell("bad", 3)
		e.tell("ann", 20)
		e.tell("bob", 20)
		relaying(t, s)
		m.until(t, 40)
		eventually(t, "the bad one was tried", func() bool { return refused.Load() > 0 })
		waiting, err := desk(s).Deliveries(t.Context(), project, to.ID, store.DeliveryWaiting, 0, 50)
		must(t, err)
		if len(waiting) != 2 {
			t.Errorf("%d wait behind the refused one, wanted 2", len(waiting))
		}
	})
}

// transport answers without a network, so that a fake clock can be used.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answering(status int, header ...string) *http.Response {
	a := &http.Response{StatusCode: status, Header: http.Header{}, Body: http.NoBody}
	if len(header) == 2 {
		a.Header.Set(header[0], header[1])
	}
	return a
}

// inBubble runs a relay on the memory store in a bubble whose clock is fake, with an endpoint that answers as it is told.
func inBubble(t *testing.T, answer transport, do func(t *testing.T, s *memory.Store, e *teller, to store.Endpoint)) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.Open()
		to := subscribe(t, s, "https://example.com")
		e := newTeller(t, s)
		r := New(s, Options{Every: time.Second})
		r.sender.encrypted = answer
		running(t, r)
		do(t, s, e, to)
	})
}

func stateOf(t *testing.T, s Store, to store.Endpoint, position int64) store.Delivery {
	t.Helper()
	found, err := desk(s).Deliveries(t.Context(), project, to.ID, "", position+1, 1)
	must(t, err)
	if len(found) != 1 || found[0].Event.Position != position {
		t.Fatalf("no delivery of %d", position)
	}
	return found[0]
}

func TestRetriesGrowRarerUntilADeliveryIsDeadAndItCanBeReplayed(t *testing.T) {
	var mu sync.Mutex
	var at []time.Time
	up := false
	answer := func(*http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if up {
			return answering(200), nil
		}
		at = append(at, time.Now())
		return nil, errors.New("refused")
	}
	inBubble(t, answer, func(t *testing.T, s *memory.Store, e *teller, to store.Endpoint) {
		e.tell("ann", 1)
		time.Sleep(100 * time.Hour)
		d := stateOf(t, s, to, 1)
		if d.State != store.DeliveryDead || d.Attempts < 10 || d.Attempts > holdfast.MaxDeliveryAttempts || d.Problem != problemConnection {
			t.Fatalf("%+v", d)
		}
		mu.Lock()
		for i := 2; i < 8; i++ {
			if before, after := at[i-1].Sub(at[i-2]), at[i].Sub(at[i-1]); after < before {
				t.Errorf("attempt %d came after %s, the one before it after %s", i+1, after, before)
			}
		}
		up = true
		mu.Unlock()
		revived, err := desk(s).ReplayDead(t.Context(), project, to.ID)
		if err != nil || revived != 1 {
			t.Fatalf("revived %d: %v", revived, err)
		}
		time.Sleep(time.Minute)
		if d := stateOf(t, s, to, 1); d.State != store.DeliveryDelivered || d.Attempts != 1 {
			t.Errorf("%+v", d)
		}
	})
}

func TestRetryAfterIsHonoured(t *testing.T) {
	var mu sync.Mutex
	var at []time.Time
	answer := func(*http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if at = append(at, time.Now()); len(at) == 1 {
			return answering(429, "Retry-After", "1800"), nil
		}
		return answering(204), nil
	}
	inBubble(t, answer, func(t *testing.T, s *memory.Store, e *teller, to store.Endpoint) {
		e.tell("ann", 1)
		time.Sleep(time.Minute)
		e.tell("bob", 1) // another account of the same endpoint waits, too
		time.Sleep(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(at) != 3 || at[1].Sub(at[0]) < 30*time.Minute || at[1].Sub(at[0]) > 31*time.Minute {
			t.Errorf("attempts at %v", at)
		}
	})
}

// Case 50: disabled, then enabled.
func TestAnEndpointThatIsGoneIsPausedAndKeepsItsQueue(t *testing.T) {
	var gone, taken atomic.Int32
	back := atomic.Bool{}
	answer := func(*http.Request) (*http.Response, error) {
		if back.Load() {
			taken.Add(1)
			return answering(200), nil
		}
		gone.Add(1)
		return answering(410), nil
	}
	inBubble(t, answer, func(t *testing.T, s *memory.Store, e *teller, to store.Endpoint) {
		e.tell("ann", 3)
		time.Sleep(time.Hour)
		now, err := desk(s).Endpoint(t.Context(), project, to.ID)
		must(t, err)
		if !now.Paused || now.PausedReason != pausedGone || gone.Load() != 1 {
			t.Fatalf("%+v after %d attempts", now, gone.Load())
		}
		e.tell("bob", 2)
		back.Store(true)
		resumed := false
		_, err = desk(s).Change(t.Context(), project, to.ID, Change{Paused: &resumed})
		must(t, err)
		time.Sleep(time.Hour)
		if taken.Load() != 5 {
			t.Errorf("%d were delivered after it came back", taken.Load())
		}
	})
}

func TestAReplayDeliversEverythingAgainWithTheSameIds(t *testing.T) {
	onEachStore(t, func(t *testing.T, s database) {
		e, m := newTeller(t, s), newMemo()
		to := subscribe(t, s, receiver(t, m, nil))
		e.tell("ann", 5)
		e.tell("bob", 5)
		relaying(t, s)
		first := m.until(t, 10)
		eventually(t, "all were settled", func() bool {
			done, err := desk(s).Deliveries(t.Context(), project, to.ID, store.DeliveryDelivered, 0, 50)
			must(t, err)
			return len(done) == 10
		})
		from, err := desk(s).PositionOf(t.Context(), project, published(t, s)[3].ID)
		must(t, err)
		must(t, desk(s).ReplayFrom(t.Context(), project, to.ID, from))
		eventually(t, "seven came again", func() bool { return len(m.all()) >= 17 })
		again := map[string]int{}
		for _, e := range m.all() {
			again[e.ID]++
		}
		for _, e := range first {
			if wanted := map[bool]int{true: 2, false: 1}[e.Position >= from]; again[e.ID] != wanted {
				t.Errorf("the event at %d was delivered %d times, wanted %d", e.Position, again[e.ID], wanted)
			}
		}
		if _, err := desk(s).PositionOf(t.Context(), "club", first[0].ID); !errors.Is(err, ErrNoEvent) {
			t.Errorf("from another project: %v", err)
		}
		if err := desk(s).ReplayFrom(context.Background(), "club", to.ID, 1); !errors.Is(err, ErrNoEndpoint) {
			t.Errorf("from another project: %v", err)
		}
	})
}

func TestARelayThatStopsSettlesWhatWasBeingAttempted(t *testing.T) {
	s := newMemoryStore(t)
	e, m := newTeller(t, s), newMemo()
	arrived, release := make(chan struct{}), make(chan struct{})
	to := subscribe(t, s, receiver(t, m, func(http.ResponseWriter, Event) bool {
		close(arrived)
		<-release
		return true
	}))
	e.tell("ann", 1)
	stop := relaying(t, s)
	<-arrived
	go close(release)
	stop()
	if d := stateOf(t, s, to, 1); d.State != store.DeliveryDelivered {
		t.Errorf("%+v", d)
	}
}

func TestEndpointsAreCheckedAndBounded(t *testing.T) {
	s := newMemoryStore(t)
	d := desk(s)
	bad, long := "http//x", strings.Repeat("n", holdfast.MaxReasonBytes+1)
	kinds := []string{"reservation.commit", "payment.*", "reservation.commit", "*", "Reservation.commit", "a.b.c", "a."}
	_, _, err := d.Add(t.Context(), project, Change{URL: &bad, Kinds: &kinds, Note: &long})
	var found Problems
	if !errors.As(err, &found) {
		t.Fatal(err)
	}
	var fields []string
	for _, p := range found {
		fields = append(fields, p.Field)
	}
	if got := fmt.Sprint(fields); got != "[url types[2] types[3] types[4] types[5] types[6] note]" {
		t.Error(got)
	}
	url := "https://example.com"
	for range holdfast.MaxEndpoints {
		_, _, err := d.Add(t.Context(), project, Change{URL: &url})
		must(t, err)
	}
	if _, _, err := d.Add(t.Context(), project, Change{URL: &url}); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
	if _, _, err := d.Add(t.Context(), "club", Change{URL: &url}); err != nil {
		t.Error(err)
	}
}

func TestAnEndpointIsAskedForEachEventOnceAtATimeAndOneByOneAfterItFailed(t *testing.T) {
	var mu sync.Mutex
	flying, calls, down := map[string]int{}, 0, false
	most, mostAfterFailure, twice := 0, 0, 0
	answer := func(r *http.Request) (*http.Response, error) {
		id := r.Header.Get("Webhook-Id")
		mu.Lock()
		calls++
		flying[id]++
		most = max(most, len(flying))
		if down {
			mostAfterFailure = max(mostAfterFailure, len(flying))
		}
		if flying[id] > 1 {
			twice++
		}
		takes := time.Duration(1+calls%7) * time.Second // so that some are still being attempted when others begin
		mu.Unlock()
		time.Sleep(takes) // of the bubble
		mu.Lock()
		defer mu.Unlock()
		if flying[id]--; flying[id] == 0 {
			delete(flying, id)
		}
		if calls > 40 {
			down = true
			return answering(503), nil
		}
		return answering(200), nil
	}
	inBubble(t, answer, func(t *testing.T, s *memory.Store, e *teller, _ store.Endpoint) {
		for n := range 20 {
			e.tell(fmt.Sprint("account", n), 3)
		}
		time.Sleep(time.Minute)
		mu.Lock()
		if most != mostPerEndpoint || twice != 0 {
			t.Errorf("at most %d at once, %d of an event twice at once", most, twice)
		}
		mostAfterFailure = 0 // those that were on their way have come down
		mu.Unlock()
		time.Sleep(time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if mostAfterFailure != 1 || twice != 0 {
			t.Errorf("after failures at most %d at once, %d of an event twice at once", mostAfterFailure, twice)
		}
	})
}
