package httpapi

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

func limited(t *testing.T, perSecond int) *server {
	t.Helper()
	return serve(t, newSmallEngine(), func(o *Options) { o.RateLimit = perSecond })
}

func TestAKeyIsTurnedAwayBeyondItsRateAndToldWhenToComeBack(t *testing.T) {
	s := limited(t, 1)
	s.keys.add("fast", Key{ID: "key_fast", Project: "shop", Scopes: []string{ScopeRead}, RateLimit: 10})
	get := func(key string) *reply { return s.get("/v1/accounts/ann", "Authorization: Bearer "+key) }
	for range 2 {
		get(allKey).is(200)
	}
	before := s.engine.everything(t)
	r := s.post("/v1/reservations", "m1", `{"account": "ann", "feature": "text.improve"}`).problem(429, "rate_limited")
	if r.header.Get("Retry-After") != "1" || s.engine.everything(t) != before {
		t.Errorf("Retry-After %q, or something moved", r.header.Get("Retry-After"))
	}
	// Another key has a bucket of its own, and may have a limit of its own.
	get(otherKey).is(200)
	for range 20 {
		get("fast").is(200)
	}
	get("fast").problem(429, "rate_limited")
	// What is turned away is not counted; a second later one more is let through.
	s.engine.pass(999 * time.Millisecond)
	get(allKey).problem(429, "rate_limited")
	s.engine.pass(time.Millisecond)
	get(allKey).is(200)
	get(allKey).problem(429, "rate_limited")
	// Nobody is asked for a key here, and nobody without one is counted.
	for range 5 {
		s.get("/healthz").is(200)
		get("wrong").problem(401, "unauthorized")
	}
	// A key may be allowed more while it is in use, from then on.
	s.engine.pass(time.Second)
	s.keys.add(allKey, Key{ID: "key_all", Project: "shop", Scopes: []string{ScopeRead}, RateLimit: 100})
	get(allKey).is(200)
	s.engine.pass(time.Second)
	for range 100 {
		get(allKey).is(200)
	}
}

func TestARefusalIsNeverARateLimitAndCountsLikeAnyAnswer(t *testing.T) {
	s := limited(t, 1)
	poor := `{"account": "ann", "feature": "image.generate"}`
	for i := range 2 {
		s.post("/v1/reservations", fmt.Sprint("m", i), poor).problem(402, holdfast.Insufficient)
	}
	s.post("/v1/reservations", "m0", poor).problem(429, "rate_limited")
}

// Case 54: clients repeat what says when to come back. Only a rate limit does; a refusal says when waiting helps, and where it
// does not, nothing.
func TestOnlyARateLimitTellsClientsToComeBack(t *testing.T) {
	s := limited(t, 4)
	now := s.engine.Now()
	refused := func(account, key, feature string, quantity, status int, reason holdfast.Reason) {
		t.Helper()
		r := s.post("/v1/reservations", key, fmt.Sprintf(`{"account": %q, "feature": %q, "quantity": %d}`, account, feature, quantity)).problem(status, reason)
		if r.header.Get("Retry-After") != "" {
			t.Errorf("%s says when to come back", reason)
		}
		if resets, ok := r.body["resets_at"].(string); ok {
			if at, err := time.Parse(time.RFC3339, resets); err != nil || !at.After(now) {
				t.Errorf("%s resets at %s, and it is %s", reason, resets, now)
			}
		}
	}
	s.post("/v1/reservations", "m0", `{"account": "held", "feature": "text.improve", "quantity": 3}`).is(201)
	refused("held", "m1", "text.improve", 1, 402, holdfast.HeldByActive)
	s.post("/v1/reservations", "m0", `{"account": "busy", "feature": "text.improve"}`).is(201)
	refused("busy", "m1", "text.improve", 1, 409, holdfast.TooManyActive)
	refused("poor", "m1", "image.generate", 1, 402, holdfast.Insufficient)
	refused("poor", "m2", "file.analyze", 1, 403, holdfast.FeatureNotInPlan)
	refused("poor", "m1", "image.generate", 1, 402, holdfast.Insufficient) // again, from memory
	s.get("/v1/accounts/poor").is(200)
	if r := s.get("/v1/accounts/poor").problem(429, "rate_limited"); r.header.Get("Retry-After") == "" {
		t.Error("a rate limit does not say when to come back")
	}
}

func TestABatchCountsAsItsOperations(t *testing.T) {
	s := limited(t, 10)
	send := func(n int) *reply {
		return s.call("POST", "/v1/batch", `{"operations": [`+strings.Repeat(`{"op": "put_account", "account": "ann"}, `, n-1)+`{"op": "put_account", "account": "ann"}]}`)
	}
	for range 2 {
		send(10).is(200)
	}
	send(1).problem(429, "rate_limited")
	s.engine.pass(time.Second)
	send(10).is(200)
	send(2).problem(429, "rate_limited")

	// One that never fits is let through when the bucket is full, and waited for afterwards.
	s.engine.pass(2 * time.Second)
	send(100).is(200)
	r := send(1).problem(429, "rate_limited")
	if r.header.Get("Retry-After") != "9" { // 80 too many, and one more, at 10 a second
		t.Errorf("Retry-After %s", r.header.Get("Retry-After"))
	}
	s.engine.pass(8 * time.Second)
	send(1).problem(429, "rate_limited")
	s.engine.pass(100 * time.Millisecond)
	send(1).is(200)

	// What no bucket has room for is turned away before anything is done.
	s.engine.pass(time.Second)
	commands := s.engine.commands
	send(15).problem(429, "rate_limited")
	if s.engine.commands != commands {
		t.Error("a part of it was done")
	}
}

func TestBucketsDoNotGrowWithTheKeys(t *testing.T) {
	var l limits
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	for i := range 3 * mostBuckets {
		if i == mostBuckets {
			now = now.Add(time.Minute) // now those before rest
		}
		if _, ok := l.take(fmt.Sprint(i), 1, 1, now); !ok {
			t.Fatal("a first request was turned away")
		}
		if len(l.buckets) > mostBuckets {
			t.Fatalf("%d buckets", len(l.buckets))
		}
	}
}
