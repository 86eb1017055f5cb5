package httpapi

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
)

// bodies are what each route that submits takes, so that a test can call every route.
func (s *server) everyRoute(visit func(r *route, path, body string)) {
	id, endpoint := s.reserve("ann", "every route"), s.post("/v1/endpoints", "", `{"url": "https://example.com"}`).is(201).text("id")
	pay := `{"provider": "stars", "payment_id": "every route", "account": "ann", "product": "credits_100", "amount": 100, "currency": "XTR"}`
	s.call("POST", "/v1/payments", pay).is(201)
	table := routes()
	slices.SortStableFunc(table, func(a, b route) int { return cmp.Compare(b.method, a.method) }) // what deletes comes last
	for _, r := range table {
		of := id
		if r.tag == tagEvents {
			of = endpoint
		}
		path := strings.NewReplacer("{id}", of, "{account}", "ann", "{provider}", "stars", "{payment_id}", "every%20route", "{queue}", "text.improve.standard", "{bot}", "7000001").Replace(r.path)
		switch r.operation {
		case "listReservations":
			path += "?account=ann"
		case "explain":
			path += "?feature=text.improve"
		}
		body := verbs[path[strings.LastIndex(path, "/")+1:]]
		switch r.operation {
		case "reserve", "charge":
			body = `{"account": "ann", "feature": "text.improve"}`
		case "batch":
			body = `{"operations": [{"op": "put_account", "account": "ann"}]}`
		case "putAccount":
			body = `{}`
		case "addGrant":
			body = `{"unit": "credit", "amount": 1}`
		case "adjust":
			body = `{"unit": "credit", "amount": 1, "reason": "x"}`
		case "putCatalog":
			body = tiny
		case "addProject":
			body = `{"name": "bots"}`
		case "addKey":
			body = `{"project": "bots", "scopes": ["read"]}`
		case "addEndpoint", "changeEndpoint":
			body = `{"url": "https://example.com"}`
		case "replay":
			body = `{"dead": true}`
		case "setPlan":
			body = `{"plan": "pro"}`
		case "addAlias":
			body = `{"alias": "web:ann"}`
		case "changePlan":
			body = `{"plan": "free"}`
		case "cancelSubscription", "resumeSubscription":
			body = `{}`
		case "pay":
			body = pay
		case "telegramOrder":
			body = `{"account": "ann", "product": "credits_100"}`
		case "telegramUpdate":
			body = `{"update_id": 1, "message": {"date": 1, "from": {"id": 42}, "refunded_payment": {"currency": "XTR", "total_amount": 1, "invoice_payload": "x", "telegram_payment_charge_id": "every route"}}}`
		case "telegramDone":
			body = fmt.Sprintf(`{"action": %q}`, telegramstars.Action{Kind: telegramstars.CancelSubscription, User: 42, ChargeID: "c1"}.Encode())
		case "refundPayment":
			body = `{"refund_id": "r1"}`
		case "merge":
			body = `{"from": "web:ann"}`
		}
		visit(&r, path, body)
	}
}

// contentOf is the type of the body that the route takes.
func contentOf(r *route) string {
	if r.does.yaml {
		return yamlContents[0]
	}
	return jsonContent
}

func TestEveryRouteAsksForItsKeyAndItsScope(t *testing.T) {
	s := newServer(t)
	all := []string{ScopeRead, ScopeWork, ScopeMoney, ScopeAdmin}
	for _, scope := range all {
		others := slices.DeleteFunc(slices.Clone(all), func(other string) bool { return other == scope })
		s.keys.add("all but "+scope, Key{ID: "key_x", Project: "shop", Scopes: others})
	}
	long := strings.Repeat("x", MaxSecretBytes+1)
	s.keys.add(long, Key{ID: "key_long", Project: "shop", Scopes: all})
	var before string
	s.everyRoute(func(r *route, path, body string) {
		if before == "" {
			before = s.engine.everything(t)
		}
		if r.scope == "" {
			s.call(r.method, path, "", "Authorization:").is(200)
			return
		}
		for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic " + allKey, allKey, "Bearer " + long} {
			challenge := s.call(r.method, path, body, "Idempotency-Key: k", "Authorization: "+authorization).problem(401, "unauthorized").header.Get("WWW-Authenticate")
			if !strings.HasPrefix(challenge, "Bearer ") {
				t.Errorf("%s %s challenges with %q", r.method, path, challenge)
			}
		}
		s.call(r.method, path, body, "Authorization: Bearer "+allKey, "Authorization: Bearer "+allKey).problem(401, "unauthorized")
		if r.scope == scopeOfEach || r.scope == scopeInstance {
			return
		}
		s.call(r.method, path, body, "Idempotency-Key: k", "Authorization: Bearer all but "+r.scope).problem(403, "scope").has(fmt.Sprintf(`{"scope": %q}`, r.scope))
	})
	if s.engine.everything(t) != before {
		t.Error("a call without its right moved something")
	}
	s.get("/v1/accounts/ann", "Authorization: bearer "+allKey).is(200)
}

func TestScopesAreThoseOfTheContract(t *testing.T) {
	want := map[string]string{
		"refund": ScopeMoney, "addGrant": ScopeMoney, "adjust": ScopeMoney, "setPlan": ScopeMoney, "addAlias": ScopeMoney, "merge": ScopeMoney,
		"telegramOrder": ScopeMoney, "telegramUpdate": ScopeMoney, "telegramDone": ScopeMoney,
		"pay": ScopeMoney, "refundPayment": ScopeMoney, "changePlan": ScopeMoney, "cancelSubscription": ScopeMoney, "resumeSubscription": ScopeMoney, "force": ScopeAdmin, "deleteAccount": ScopeAdmin, "putCatalog": ScopeAdmin,
		"addEndpoint": ScopeAdmin, "changeEndpoint": ScopeAdmin, "removeEndpoint": ScopeAdmin, "rotateSecret": ScopeAdmin, "replay": ScopeAdmin,
		"addProject": scopeInstance, "addKey": scopeInstance, "revokeKey": scopeInstance,
		"batch": scopeOfEach, "health": "", "ready": "", "document": "", "docs": "",
	}
	for _, r := range routes() {
		scope, special := want[r.operation]
		switch {
		case special:
		case r.method == "GET":
			scope = ScopeRead
		default:
			scope = ScopeWork
		}
		if r.scope != scope {
			t.Errorf("%s needs %q, want %q", r.operation, r.scope, scope)
		}
	}
}

func TestPathsThatAreNoneAreNotFoundAndNeverRedirected(t *testing.T) {
	s := newServer(t)
	for _, path := range []string{
		"/", "/v1", "/v1/", "/v1/accounts", "/v1/accounts/", "/v1/accounts/..", "/v1/accounts/.", "/v1/accounts//", "/v1/accounts//grants", "//v1/accounts/ann",
		"/v1/accounts/ann/", "/v1/accounts/ann/grants/", "/v1/accounts/ann/../bob", "/v1/./accounts/ann", "/v1/accounts/ann/nothing", "/v1/reservations/",
		"/v1/reservations//start", "/v2/reservations", "/docs/", "/docs/x", "/openapi.yaml", "/V1/accounts/ann", "/metrics",
	} {
		r := s.get(path)
		if r.problem(404, holdfast.NotFound); r.header.Get("Location") != "" {
			t.Errorf("%s redirects", path)
		}
	}
	// Escaped, they are names like others: the core allows them.
	s.get("/v1/accounts/%2e%2e").is(200).has(`{"account": ".."}`)
}

func TestRequestsThatNoClientSendsAreAnsweredToo(t *testing.T) {
	s := newServer(t)
	for name, lines := range map[string]string{
		"NUL in a header":       "POST /v1/reservations HTTP/1.1\r\nHost: x\r\nIdempotency-Key: a\x00b\r\nContent-Length: 0\r\n\r\n",
		"a broken escape":       "GET /v1/accounts/%zz HTTP/1.1\r\nHost: x\r\n\r\n",
		"raw bytes in the path": "GET /v1/accounts/\xff\xfe HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + allKey + "\r\n\r\n",
		"a path up":             "GET /v1/accounts/../../etc HTTP/1.1\r\nHost: x\r\n\r\n",
		"CONNECT":               "CONNECT x:80 HTTP/1.1\r\nHost: x:80\r\n\r\n",
		"a made up method":      "BREW /v1/accounts/ann HTTP/1.1\r\nHost: x\r\n\r\n",
		"an absolute address":   "GET http://elsewhere/v1/accounts/.. HTTP/1.1\r\nHost: x\r\n\r\n",
		"a body cut short":      "POST /v1/reservations HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer " + allKey + "\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"acc\r\nzz\r\n",
	} {
		connection, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := connection.Write([]byte(lines)); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if response.StatusCode < 400 || response.StatusCode >= 500 {
			t.Errorf("%s: status %d", name, response.StatusCode)
		}
		response.Body.Close()
		connection.Close()
	}
}

func TestAMethodThatAPathHasNotIsToldTheOnesItHas(t *testing.T) {
	s := newServer(t)
	for path, allow := range map[string]string{
		"/v1/reservations":          "GET, HEAD, OPTIONS, POST",
		"/v1/reservations/x":        "GET, HEAD, OPTIONS",
		"/v1/reservations/x/commit": "OPTIONS, POST",
		"/v1/accounts/ann":          "DELETE, GET, HEAD, OPTIONS, PUT",
		"/healthz":                  "GET, HEAD, OPTIONS",
	} {
		for _, method := range []string{"DELETE", "PATCH", "TRACE"} {
			if strings.Contains(allow, method) {
				continue
			}
			if got := s.call(method, path, "").problem(405, "method_not_allowed").header.Get("Allow"); got != allow {
				t.Errorf("%s %s allows %q, want %q", method, path, got, allow)
			}
		}
		r := s.call("OPTIONS", path, "", "Authorization:").is(204)
		if r.header.Get("Allow") != allow || r.raw != "" || r.header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("OPTIONS %s: %v %q", path, r.header, r.raw)
		}
	}
	whole := s.get("/v1/accounts/ann").is(200)
	head := s.call("HEAD", "/v1/accounts/ann", "").is(200)
	if head.raw != "" || head.header.Get("Content-Length") != fmt.Sprint(len(whole.raw)) {
		t.Errorf("HEAD: %v", head.header)
	}
	s.call("HEAD", "/v1/accounts/ann", "", "Authorization:").is(401)
}

func TestErrorsOfTheEngineSayWhetherToComeBack(t *testing.T) {
	s := newServer(t)
	body := `{"account": "ann", "feature": "text.improve"}`
	for _, c := range []struct {
		err    error
		status int
		reason holdfast.Reason
	}{
		{&engine.Error{Code: engine.Overloaded, Hint: "h", Err: errors.New("DSN=secret")}, 503, "overloaded"},
		{&engine.Error{Code: engine.Unavailable}, 503, "unavailable"},
		{&engine.Error{Code: engine.Cancelled}, 503, "unavailable"},
		{&engine.Error{Code: engine.OutcomeUnknown}, 503, "outcome_unknown"},
		{&engine.Error{Code: engine.Internal, Err: errors.New("DSN=secret")}, 500, "internal"},
		{&engine.Error{Code: "of a later version"}, 500, "internal"},
		{fmt.Errorf("wrapped: %w", &engine.Error{Code: engine.Overloaded}), 503, "overloaded"},
		{context.Canceled, 503, "unavailable"},
	} {
		s.engine.before = func(holdfast.Command) error { return c.err }
		r := s.post("/v1/reservations", "k", body, "Accept-Language: ru").problem(c.status, c.reason)
		if strings.Contains(r.raw, "secret") {
			t.Errorf("the cause came out: %s", r.raw)
		}
		if retry := r.header.Get("Retry-After"); (c.status == 503) != (retry == "1") {
			t.Errorf("%v: Retry-After %q", c.err, retry)
		}
		r.has(fmt.Sprintf(`{"detail": "%s in ru"}`, c.reason))
	}
	s.engine.before = nil
	if log := s.log.String(); !strings.Contains(log, "DSN=secret") {
		t.Error("the cause is not in the log either")
	}
}

// Case 58: a database that is down never says "no money".
func TestReadsOfABrokenStoreAreUnavailable(t *testing.T) {
	s := newServer(t)
	id := s.reserve("ann", "m1")
	fresh := serve(t, s.engine)
	s.engine.readError = &engine.Error{Code: engine.Unavailable, Err: errors.New("no disk")}
	for _, path := range []string{
		"/v1/accounts/ann", "/v1/accounts/ann/grants", "/v1/accounts/ann/entries", "/v1/reservations?account=ann", "/v1/reservations/" + id, "/readyz",
		"/v1/accounts/ann/entries.csv", "/v1/accounts/ann/balance", "/v1/accounts/ann/balance?as_of=2026-12-01T09:00:00Z", "/v1/accounts/ann/explain?feature=text.improve",
	} {
		if r := s.get(path).problem(503, "unavailable"); r.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", path)
		}
	}
	s.get("/healthz").is(200)
	// What was decided needs nothing more to be told.
	fresh.call("POST", "/v1/reservations/"+id+"/commit", ``).is(200).has(`{"account": "ann", "state": "committed"}`)
	s.post("/v1/reservations", "m2", `{"account": "ann", "feature": "image.generate"}`).problem(402, holdfast.Insufficient)
}

func TestAPanicIsAnsweredAndLoggedOnce(t *testing.T) {
	s := newServer(t)
	s.engine.before = func(holdfast.Command) error { panic("a fault of ours") }
	r := s.post("/v1/reservations", "key-in-question", `{"account": "account-in-question", "feature": "text.improve"}`).problem(500, "internal")
	if strings.Contains(r.raw, "fault of ours") {
		t.Errorf("the panic came out: %s", r.raw)
	}
	s.engine.before = nil
	s.reserve("ann", "m1")
	log := s.log.String()
	if n := strings.Count(log, "a fault of ours"); n != 1 {
		t.Errorf("logged %d times:\n%s", n, log)
	}
	if !strings.Contains(log, "ServeHTTP") || strings.Contains(log, "in-question") {
		t.Errorf("no stack, or a payload, in the log:\n%s", log)
	}
}

func TestTheLogTellsWhatHappenedAndNothingPrivate(t *testing.T) {
	s := newServer(t)
	s.post("/v1/reservations", "KEYSECRET", `{"account": "ACCOUNTSECRET", "feature": "text.improve", "metadata": {"a": "BODYSECRET"}}`, "Accept-Language: LANGUAGESECRET").is(201)
	s.get("/v1/accounts/ACCOUNTSECRET").is(200)
	s.get("/v1/reservations?account=ACCOUNTSECRET&key=KEYSECRET").is(200)
	s.get("/PATHSECRET?QUERYSECRET=1").is(404)
	s.get("/v1/accounts/ann", "Authorization: Bearer WRONGSECRET").is(401)
	s.call("METHODSECRET", "/v1/accounts/ann", "").is(405)
	log := s.log.String()
	if strings.Contains(log, "SECRET") || strings.Contains(log, allKey) {
		t.Errorf("private things in the log:\n%s", log)
	}
	for _, want := range []string{`"route":"/v1/accounts/{account}"`, `"method":"POST"`, `"status":201`, `"key_id":"key_all"`, `"reason":"unauthorized"`, `"duration":`, `"request_id":`} {
		if !strings.Contains(log, want) {
			t.Errorf("no %s in the log:\n%s", want, log)
		}
	}
	r := s.get("/healthz")
	if id := r.header.Get("X-Request-Id"); id == "" || !strings.Contains(s.log.String(), id) {
		t.Errorf("request %q is not in the log", id)
	}
}

func TestAnswersCarrySecurityHeaders(t *testing.T) {
	s := newServer(t)
	for _, path := range []string{"/v1/accounts/ann", "/nowhere", "/docs", "/openapi.json", "/healthz"} {
		h := s.get(path).header
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" ||
			h.Get("Cache-Control") != "no-store" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %v", path, h)
		}
	}
}

func TestAHandlerIsNotMadeOfHalfItsParts(t *testing.T) {
	if _, err := New(Options{Engine: newSmallEngine(), Keys: keyring{}}); err == nil {
		t.Error("a handler without texts and log")
	}
}
