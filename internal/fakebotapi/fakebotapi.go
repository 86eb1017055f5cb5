// Package fakebotapi stands in for Telegram's Bot API in tests: a real HTTP server that speaks its protocol, for the few
// methods about Stars.
//
// Tests call it: they let people pay, and tell it to fail. It never decides anything about Holdfast, and nothing but tests
// uses it.
package fakebotapi

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Token is the bot's token.
const Token = "7000001:not-a-secret"

// Fault is what happens to the next call, instead of its answer.
type Fault string

// The faults.
const (
	TooMany    Fault = "429"  // nothing is done; retry after a second
	Broken     Fault = "500"  // nothing is done
	LostAnswer Fault = "lost" // it is done, and the connection breaks before the answer
)

// Edit is a call of editUserStarSubscription.
type Edit struct {
	User     int64  `json:"user_id"`
	ChargeID string `json:"telegram_payment_charge_id"`
	Canceled bool   `json:"is_canceled"`
}

// Server is the stand-in.
type Server struct {
	URL string

	mu           sync.Mutex
	transactions []map[string]any
	edits        []Edit
	faults       []Fault
	calls        []string
}

// New starts a server that ends with the test.
func New(t *testing.T) *Server {
	t.Helper()
	s := &Server{}
	h := httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(h.Close)
	s.URL = h.URL
	return s
}

// Paid is a payment as getStarTransactions lists it.
type Paid struct {
	ID, Payload  string
	User, Amount int64
	Date, Period int64 // seconds
	Affiliate    bool
}

// Add lists a payment.
func (s *Server) Add(p Paid) { s.list("source", p) }

// Refund lists the refund of a payment, under the same id.
func (s *Server) Refund(p Paid) { s.list("receiver", p) }

func (s *Server) list(side string, p Paid) {
	partner := map[string]any{
		"type": "user", "transaction_type": "invoice_payment", "user": map[string]any{"id": p.User, "is_bot": false, "first_name": "A"},
		"invoice_payload": p.Payload,
	}
	if p.Period > 0 {
		partner["subscription_period"] = p.Period
	}
	if p.Affiliate {
		partner["affiliate"] = map[string]any{"commission_per_mille": 100, "amount": 1}
	}
	s.AddOther(map[string]any{"id": p.ID, "amount": p.Amount, "date": p.Date, side: partner})
}

// AddOther lists a transaction of another kind, as it is.
func (s *Server) AddOther(transaction map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.transactions = append(s.transactions, transaction)
}

// Fail lets the next calls fail, in this order.
func (s *Server) Fail(faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, faults...)
}

// Edits are the subscriptions that were edited, in order.
func (s *Server) Edits() []Edit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.edits)
}

// Calls are the methods that were called, in order.
func (s *Server) Calls() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.calls)
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	method, ours := strings.CutPrefix(r.URL.Path, "/bot"+Token+"/")
	if !ours {
		failed(w, http.StatusUnauthorized, "Unauthorized", nil)
		return
	}
	s.calls = append(s.calls, method)
	fault := Fault("")
	if len(s.faults) > 0 {
		fault, s.faults = s.faults[0], s.faults[1:]
	}
	switch fault {
	case TooMany:
		failed(w, http.StatusTooManyRequests, "Too Many Requests: retry after 1", map[string]any{"retry_after": 1})
		return
	case Broken:
		failed(w, http.StatusInternalServerError, "Internal Server Error", nil)
		return
	}
	result, problem := s.do(method, json.NewDecoder(r.Body))
	switch {
	case fault == LostAnswer:
		panic(http.ErrAbortHandler)
	case problem != "":
		failed(w, http.StatusBadRequest, "Bad Request: "+problem, nil)
	default:
		answer(w, map[string]any{"ok": true, "result": result})
	}
}

func (s *Server) do(method string, body *json.Decoder) (result any, problem string) {
	switch method {
	case "getStarTransactions":
		asked := struct{ Offset, Limit int }{Limit: 100}
		if err := body.Decode(&asked); err != nil || asked.Limit < 1 || asked.Limit > 100 || asked.Offset < 0 {
			return nil, "LIMIT_INVALID"
		}
		from := min(asked.Offset, len(s.transactions))
		return map[string]any{"transactions": s.transactions[from:min(from+asked.Limit, len(s.transactions))]}, ""
	case "editUserStarSubscription":
		var edit Edit
		if err := body.Decode(&edit); err != nil || edit.User == 0 {
			return nil, "USER_ID_INVALID"
		}
		if edit.ChargeID == "" {
			return nil, "CHARGE_ID_EMPTY"
		}
		s.edits = append(s.edits, edit)
		return true, ""
	}
	return nil, fmt.Sprintf("method %q is not played", method)
}

func failed(w http.ResponseWriter, code int, description string, parameters map[string]any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	frame := map[string]any{"ok": false, "error_code": code, "description": description}
	if parameters != nil {
		frame["parameters"] = parameters
	}
	_ = json.NewEncoder(w).Encode(frame)
}

func answer(w http.ResponseWriter, frame any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(frame)
}
