package httpapi

import (
	"crypto/sha256"
	"encoding/base64"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast"
)

func TestRoutesAndDocumentAgree(t *testing.T) {
	s := newServer(t)
	want := strings.Fields(`
		GET/docs GET/healthz GET/openapi.json GET/readyz
		GET/v1/accounts/{account} PUT/v1/accounts/{account}
		GET/v1/accounts/{account}/entries GET/v1/accounts/{account}/entries.csv
		GET/v1/accounts/{account}/balance GET/v1/accounts/{account}/explain DELETE/v1/accounts/{account}
		GET/v1/accounts/{account}/grants POST/v1/accounts/{account}/grants
		POST/v1/accounts/{account}/adjustments POST/v1/accounts/{account}/subscription
		POST/v1/accounts/{account}/subscription/change POST/v1/accounts/{account}/subscription/cancel POST/v1/accounts/{account}/subscription/resume
		POST/v1/payments GET/v1/payments/{provider}/{payment_id} POST/v1/payments/{provider}/{payment_id}/refunds
		POST/v1/telegram/{bot}/orders POST/v1/telegram/{bot}/updates POST/v1/telegram/{bot}/done
		POST/v1/accounts/{account}/aliases POST/v1/accounts/{account}/merge
		GET/v1/reservations POST/v1/reservations GET/v1/reservations/{id} POST/v1/charges POST/v1/batch
		POST/v1/queues/{queue}/claim
		GET/v1/catalog PUT/v1/catalog POST/v1/projects POST/v1/keys DELETE/v1/keys/{id}
		GET/v1/events GET/v1/endpoints POST/v1/endpoints GET/v1/endpoints/{id} PATCH/v1/endpoints/{id} DELETE/v1/endpoints/{id}
		POST/v1/endpoints/{id}/rotate GET/v1/endpoints/{id}/deliveries POST/v1/endpoints/{id}/replay
		POST/v1/reservations/{id}/extend POST/v1/reservations/{id}/in_doubt
		POST/v1/reservations/{id}/cancel POST/v1/reservations/{id}/commit POST/v1/reservations/{id}/force POST/v1/reservations/{id}/heartbeat
		POST/v1/reservations/{id}/refund POST/v1/reservations/{id}/release POST/v1/reservations/{id}/start`)
	var documented, served []string
	for path, item := range s.document["paths"].(map[string]any) {
		for method, operation := range item.(map[string]any) {
			documented = append(documented, strings.ToUpper(method)+path)
			if operation.(map[string]any)["operationId"] == "" {
				t.Errorf("%s %s has no name", method, path)
			}
		}
	}
	for _, r := range routes() {
		served = append(served, r.method+r.path)
	}
	for _, list := range [][]string{want, documented, served} {
		slices.Sort(list)
	}
	if !slices.Equal(documented, want) || !slices.Equal(served, want) {
		t.Errorf("documented\n%v\nserved\n%v\nwant\n%v", documented, served, want)
	}
	// And each answers on the very server that handed out the document.
	s.everyRoute(func(r *route, path, body string) {
		if r.scope == scopeInstance {
			return
		}
		if got := s.post(path, r.operation, body); r.method == "POST" && (got.status == 404 || got.status == 405) {
			t.Errorf("POST %s: %d", path, got.status)
		}
		if r.method == "GET" {
			s.get(path).is(200)
		}
	})
}

func TestAnswersStayOpenAndRequestsAreClosed(t *testing.T) {
	s := newServer(t)
	for name, value := range s.document["components"].(map[string]any)["schemas"].(map[string]any) {
		schema := value.(map[string]any)
		request := strings.HasSuffix(name, "Body")
		if schema["additionalProperties"] != !request {
			t.Errorf("%s: additionalProperties %v", name, schema["additionalProperties"])
		}
		properties, _ := schema["properties"].(map[string]any) // a cancel takes none
		for property, p := range properties {
			if types, several := p.(map[string]any)["type"].([]any); several && slices.Contains(types, any("array")) {
				t.Errorf("%s.%s: a list is never null", name, property)
			}
			if _, closed := p.(map[string]any)["enum"]; closed && !request {
				t.Errorf("%s.%s may only be what it is today", name, property)
			}
		}
	}
}

func TestEveryReasonHasOneStatusAndIsMetSomewhere(t *testing.T) {
	met := map[holdfast.Reason]bool{reasonMethod: true}
	for _, r := range routes() {
		for _, reason := range r.mayMeet() {
			met[reason] = true
			if statuses[reason] == 0 {
				t.Errorf("%s: %s has no status", r.operation, reason)
			}
		}
	}
	for _, info := range holdfast.Reasons() {
		if statuses[info.Reason] == 0 || !met[info.Reason] {
			t.Errorf("%s: status %d, on a route: %v", info.Reason, statuses[info.Reason], met[info.Reason])
		}
	}
	for reason := range statuses {
		if !met[reason] {
			t.Errorf("%s has a status and no route", reason)
		}
	}
}

// What the decoder can read, and what the document says is optional, follow from the same tags.
func TestEveryBodyIsMadeOfWhatTheDecoderReads(t *testing.T) {
	for _, r := range routes() {
		if r.does.body == nil {
			continue
		}
		body := reflect.New(reflect.TypeOf(r.does.body).Elem())
		for _, field := range inputFieldsOf(body.Elem().Type()) {
			for _, value := range []string{`1`, `"x"`, `true`, `[]`, `["x"]`, `{}`, `{"x": 1}`, `{"x": "x"}`, `null`, `{"x": null}`, `[null]`} {
				decode(`{"`+field.name+`": `+value+`}`, body.Interface()) // panics where a field cannot be read
			}
		}
	}
}

func TestTheDocsPageLoadsNothingFromElsewhere(t *testing.T) {
	s := newServer(t)
	r := s.get("/docs", "Authorization:").is(200)
	for _, part := range []string{docsCSS, docsJS} {
		if !strings.Contains(r.raw, ">"+part+"<") {
			t.Error("a part of the page is not as it was written, so its hash is wrong")
		}
		sum := sha256.Sum256([]byte(part))
		if !strings.Contains(r.header.Get("Content-Security-Policy"), "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
			t.Error("the policy forbids a part of the page")
		}
	}
	if policy := r.header.Get("Content-Security-Policy"); strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") || strings.Contains(policy, "*") {
		t.Errorf("policy %s", policy)
	}
	if found := regexp.MustCompile(`https?://|//\w|innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|src=|@import|url\(|style="|\son\w+=`).FindString(r.raw); found != "" {
		t.Errorf("the page has %q", found)
	}
}
