// Package fakestripe stands in for Stripe's API in tests: a real HTTP server that speaks its protocol, for the lists that are
// read, and the signature of events.
//
// Tests call it: they put objects in and tell it to fail. It never decides anything about Holdfast, and nothing but tests
// uses it.
package fakestripe

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Key is the API key, and Secret signs events.
const (
	Key    = "sk_test_not_a_secret"
	Secret = "whsec_not_a_secret"
)

// Fault is what happens to the next call, instead of its answer.
type Fault string

// The faults.
const (
	TooMany    Fault = "429"
	Broken     Fault = "500"
	LostAnswer Fault = "lost"
)

// Object is an object of the API.
type Object = map[string]any

// Server is the stand-in.
type Server struct {
	URL string

	mu     sync.Mutex
	lists  map[string][]Object // by path, newest first
	faults []Fault
}

// New starts a server that ends with the test.
func New(t *testing.T) *Server {
	t.Helper()
	s := &Server{lists: map[string][]Object{"/v1/invoices": nil, "/v1/checkout/sessions": nil, "/v1/refunds": nil, "/v1/disputes": nil}}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(h.Close)
	s.URL = h.URL
	return s
}

// Add puts an object into a list, as the newest.
func (s *Server) Add(path string, object Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists[path] = append([]Object{object}, s.lists[path]...)
}

// Fail lets the next calls fail, in this order.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.faults) > 0 {
		fault := s.faults[0]
		s.faults = s.faults[1:]
		switch fault {
		case TooMany:
			w.Header().Set("Retry-After", "1")
			failed(w, http.StatusTooManyRequests, "rate_limit_error", "Too many requests")
			return
		case Broken:
			failed(w, http.StatusInternalServerError, "api_error", "An unknown error occurred")
			return
		case LostAnswer:
			panic(http.ErrAbortHandler)
		}
	}
	list, known := s.lists[r.URL.Path]
	switch {
	case r.Header.Get("Authorization") != "Bearer "+Key:
		failed(w, http.StatusUnauthorized, "invalid_request_error", "Invalid API Key provided")
	case !known || r.Method != http.MethodGet:
		failed(w, http.StatusNotFound, "invalid_request_error", "Unrecognized request URL")
	default:
		page(w, r, list)
	}
}

func page(w http.ResponseWriter, r *http.Request, list []Object) {
	query := r.URL.Query()
	limit := 10
	if text := query.Get("limit"); text != "" {
		limit, _ = strconv.Atoi(text)
	}
	list = slices.DeleteFunc(slices.Clone(list), func(o Object) bool {
		since, _ := strconv.ParseInt(query.Get("created[gte]"), 10, 64)
		created, _ := o["created"].(int64)
		return created < since || query.Get("status") != "" && query.Get("status") != o["status"] ||
			query.Get("charge") != "" && query.Get("charge") != o["charge"]
	})
	if from := query.Get("starting_after"); from != "" {
		at := slices.IndexFunc(list, func(o Object) bool { return o["id"] == from })
		list = list[at+1:]
	}
	more := len(list) > limit
	shown := []Object{}
	for _, o := range list[:min(limit, len(list))] {
		o = cloned(o)
		if !slices.Contains(query["expand[0]"], "data.payments") {
			delete(o, "payments") // which the API only shows when asked
		}
		shown = append(shown, o)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(Object{"object": "list", "url": r.URL.Path, "has_more": more, "data": shown})
}

func cloned(o Object) Object {
	copied := Object{}
	for name, value := range o {
		copied[name] = value
	}
	return copied
}

func failed(w http.ResponseWriter, status int, kind, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(Object{"error": Object{"type": kind, "message": message}})
}

// Event is the request that Stripe sends for an object.
func Event(id, kind, version string, created time.Time, object Object) []byte {
	raw, err := json.Marshal(Object{
		"id": id, "object": "event", "api_version": version, "created": created.Unix(), "type": kind, "livemode": false,
		"pending_webhooks": 1, "data": Object{"object": object},
	})
	if err != nil {
		panic(err)
	}
	return raw
}

// Sign is the header Stripe-Signature of a body.
func Sign(body []byte, secret string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	_, _ = fmt.Fprintf(mac, "%d.%s", at.Unix(), body)
	return strings.Join([]string{fmt.Sprintf("t=%d", at.Unix()), "v1=" + hex.EncodeToString(mac.Sum(nil))}, ",")
}
