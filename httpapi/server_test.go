package httpapi

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/payment"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/store/memory"
)

// Every answer in these tests comes over real HTTP and is held against the document that the server itself hands out.

// The API keys of the tests.
const (
	allKey   = "secret-of-everything"
	otherKey = "secret-of-another-project"
)

type keyring map[[32]byte]Key

func (k keyring) Lookup(_ context.Context, hash [32]byte) (Key, bool, error) {
	key, ok := k[hash]
	return key, ok, nil
}

func (k keyring) add(secret string, key Key) { k[sha256.Sum256([]byte(secret))] = key }

type server struct {
	t        *testing.T
	url      string
	engine   *smallEngine
	keys     keyring
	log      *logged
	shelf    *shelf
	admin    *registry
	outbox   *memory.Store // of events and endpoints; the engine's accounts are elsewhere
	document map[string]any
	mu       sync.Mutex // of the compiler
	compiler *jsonschema.Compiler
}

// logged is what the server wrote to its log.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func newServer(t *testing.T) *server { return serve(t, newSmallEngine()) }

func serve(t *testing.T, e *smallEngine, change ...func(*Options)) *server {
	s := serveWith(t, e, plainTexts{}, change...)
	s.engine = e
	return s
}

func serveWith(t *testing.T, e Engine, texts Texts, change ...func(*Options)) *server {
	t.Helper()
	s := &server{t: t, keys: keyring{}, log: &logged{}, shelf: &shelf{versions: map[string][]string{}}}
	s.admin, s.outbox = &registry{keys: s.keys}, memory.Open()
	everything := []string{ScopeRead, ScopeWork, ScopeMoney, ScopeAdmin}
	s.keys.add(allKey, Key{ID: "key_all", Project: "shop", Scopes: everything})
	s.keys.add(otherKey, Key{ID: "key_other", Project: "other", Scopes: everything})
	options := Options{
		Engine: e, Keys: s.keys, Texts: texts, Version: "test", Logger: s.logger(),
		Catalogs: s.shelf, Events: outbox.NewDesk(s.outbox, outbox.Guard{}), Admin: s.admin, AdminKey: instanceKey,
	}
	if pays, ok := e.(payment.Engine); ok {
		claims := memory.Open()
		desk := &payment.Desk{Engine: pays, Claims: claims, Log: s.logger()}
		options.Payments, options.Stars = desk, sellers(desk, claims, shown{e})
	}
	for _, c := range change {
		c(&options)
	}
	handler, err := New(options)
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(handler)
	t.Cleanup(listening.Close)
	s.url = listening.URL

	response, err := http.Get(s.url + "/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	document, err := jsonschema.UnmarshalJSON(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	s.document = document.(map[string]any)
	s.compiler = jsonschema.NewCompiler()
	s.compiler.AssertFormat()
	if err := s.compiler.AddResource("openapi.json", document); err != nil {
		t.Fatal(err)
	}
	return s
}

// sellers sell for Stars.
func sellers(desk *payment.Desk, orders payment.Orders, accounts payment.Accounts) func(Bot) Stars {
	return func(bot Bot) Stars {
		return &telegramstars.Stars{
			Book: &payment.Book{Desk: desk, Orders: orders, Accounts: accounts, Project: bot.Project, Provider: bot.Provider},
			Bot:  bot.ID, Deadline: bot.Deadline,
		}
	}
}

// shown are the accounts of an engine as sellers see them.
type shown struct{ Engine }

func (s shown) View(ctx context.Context, project, account string) (*holdfast.AccountView, error) {
	return s.ViewAt(ctx, project, account, time.Time{})
}

func (s *server) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// reply is an answer, read.
type reply struct {
	t      *testing.T
	status int
	header http.Header
	raw    string
	body   map[string]any
}

// call sends a request with the key of everything, unless the headers name another one. Headers are "Name: value".
func (s *server) call(method, path, body string, headers ...string) *reply {
	s.t.Helper()
	request, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+allKey)
	if body != "" {
		request.Header.Set("Content-Type", "application/json")
	}
	seen := map[string]bool{}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ":")
		if !seen[name] {
			request.Header.Del(name)
		}
		seen[name] = true
		if value = strings.TrimPrefix(value, " "); value != "" {
			request.Header.Add(name, value)
		}
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	r := &reply{t: s.t, status: response.StatusCode, header: response.Header, raw: string(raw)}
	s.holdAgainstDocument(request, r)
	if path == "/v1/batch" && r.status == http.StatusOK {
		s.holdResultsAgainstDocument(body, r)
	}
	return r
}

// post sends a body under an Idempotency-Key.
func (s *server) post(path, key, body string, headers ...string) *reply {
	s.t.Helper()
	return s.call("POST", path, body, append([]string{"Idempotency-Key: " + key}, headers...)...)
}

func (s *server) get(path string, headers ...string) *reply {
	s.t.Helper()
	return s.call("GET", path, "", headers...)
}

// holdAgainstDocument finds the operation, its response and its schema, and validates the answer.
func (s *server) holdAgainstDocument(request *http.Request, r *reply) {
	s.t.Helper()
	content := r.header.Get("Content-Type")
	if strings.Contains(content, "json") && request.Method != http.MethodHead {
		decoder := json.NewDecoder(strings.NewReader(r.raw))
		decoder.UseNumber()
		if err := decoder.Decode(&r.body); err != nil {
			s.t.Fatalf("%s %s: no JSON object: %v\n%s", request.Method, request.URL, err, r.raw)
		}
	}
	location := "openapi.json#/components/schemas/Problem"
	if path, ok := s.template(request.URL.EscapedPath()); ok {
		operation, ok := s.document["paths"].(map[string]any)[path].(map[string]any)[strings.ToLower(strings.Replace(request.Method, "HEAD", "GET", 1))].(map[string]any)
		if ok {
			response, ok := operation["responses"].(map[string]any)[fmt.Sprint(r.status)].(map[string]any)
			if !ok {
				s.t.Errorf("%s %s answered %d, which the document does not know: %s", request.Method, path, r.status, r.raw)
				return
			}
			if contents, _ := response["content"].(map[string]any); contents[content] == nil && (r.status != http.StatusNoContent || content != "") {
				s.t.Errorf("%s %s answered %s, which the document does not know", request.Method, path, content)
				return
			}
			if reason, ok := r.body["reason"].(string); ok && r.status >= 400 && !strings.Contains(response["description"].(string), reason) {
				s.t.Errorf("%s %s answered %d with %s; the document says %s", request.Method, path, r.status, reason, response["description"])
			}
			location = responseSchema(path, strings.Replace(request.Method, "HEAD", "GET", 1), fmt.Sprint(r.status), content)
		}
	}
	if r.body != nil {
		s.validate(location, r.raw)
	}
}

func (s *server) validate(location, raw string) {
	s.t.Helper()
	s.mu.Lock()
	schema, err := s.compiler.Compile(location)
	s.mu.Unlock()
	if err != nil {
		s.t.Fatalf("compile %s: %v", location, err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(raw))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := schema.Validate(value); err != nil {
		s.t.Errorf("not as documented: %v\n%s", err, raw)
	}
}

// holdResultsAgainstDocument validates each result of a batch as the answer of the call that it stands for.
func (s *server) holdResultsAgainstDocument(sent string, r *reply) {
	s.t.Helper()
	var batch struct{ Operations []json.RawMessage }
	if err := json.Unmarshal([]byte(sent), &batch); err != nil {
		s.t.Fatal(err)
	}
	for i, result := range r.body["results"].([]any) {
		raw, err := json.Marshal(result.(map[string]any)["body"])
		if err != nil {
			s.t.Fatal(err)
		}
		var operation struct{ Op string }
		_ = json.Unmarshal(batch.Operations[i], &operation) // what is no object was answered as such
		location := "openapi.json#/components/schemas/Problem"
		for _, route := range routes() {
			if route.op == operation.Op && route.op != "" {
				status := fmt.Sprint(result.(map[string]any)["status"])
				content := "application/json"
				if status >= "400" {
					content = "application/problem+json"
				}
				location = responseSchema(route.path, route.method, status, content)
			}
		}
		s.validate(location, string(raw))
	}
}

// responseSchema is where the document describes an answer.
func responseSchema(path, method, status, content string) string {
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	return fmt.Sprintf("openapi.json#/paths/%s/%s/responses/%s/content/%s/schema", escape.Replace(path), strings.ToLower(method), status, escape.Replace(content))
}

// template finds the document's path that a request's path fits.
func (s *server) template(escaped string) (string, bool) {
	have := strings.Split(escaped, "/")
	for path := range s.document["paths"].(map[string]any) {
		want := strings.Split(path, "/")
		fits := len(want) == len(have)
		for i := range want {
			fits = fits && i < len(have) && (want[i] == have[i] || strings.HasPrefix(want[i], "{") && have[i] != "" && have[i] != "." && have[i] != "..")
		}
		if fits {
			return path, true
		}
	}
	return "", false
}

// is checks the status, and gives the reply back for more.
func (r *reply) is(status int) *reply {
	r.t.Helper()
	if r.status != status {
		r.t.Fatalf("status %d, want %d: %s", r.status, status, r.raw)
	}
	return r
}

// problem checks status and reason of a problem, and its type.
func (r *reply) problem(status int, reason holdfast.Reason) *reply {
	r.t.Helper()
	kind := "error"
	if reason.Recorded() {
		kind = "refusal"
	}
	r.is(status).has(fmt.Sprintf(`{"status": %d, "reason": %q, "type": "urn:holdfast:%s:%s"}`, status, reason, kind, reason))
	if content := r.header.Get("Content-Type"); content != "application/problem+json" {
		r.t.Errorf("a problem came as %s", content)
	}
	return r
}

// has checks the fields that the JSON names, and no others.
func (r *reply) has(wanted string) *reply {
	r.t.Helper()
	var want map[string]any
	decoder := json.NewDecoder(strings.NewReader(wanted))
	decoder.UseNumber()
	if err := decoder.Decode(&want); err != nil {
		r.t.Fatalf("the test's own JSON: %v", err)
	}
	got := map[string]any{}
	for name := range want {
		if value, ok := r.body[name]; ok {
			got[name] = value
		}
	}
	if difference := cmp.Diff(want, got); difference != "" {
		r.t.Errorf("(-want +got)\n%s\n%s", difference, r.raw)
	}
	return r
}

// available checks what the answer's balances have of a unit.
func (r *reply) available(unit string, want int) {
	r.t.Helper()
	for _, balance := range r.body["balances"].([]any) {
		if b := balance.(map[string]any); b["unit"] == unit && fmt.Sprint(b["available"]) != fmt.Sprint(want) {
			r.t.Errorf("%v %s are available, want %d: %s", b["available"], unit, want, r.raw)
		}
	}
}

func (r *reply) text(name string) string {
	r.t.Helper()
	text, ok := r.body[name].(string)
	if !ok {
		r.t.Fatalf("no text %s in %s", name, r.raw)
	}
	return text
}

// names are the fields of the problems, in their order.
func (r *reply) names() []string {
	var list []string
	problems, _ := r.body["problems"].([]any)
	for _, p := range problems {
		list = append(list, p.(map[string]any)["field"].(string))
	}
	return list
}

// reserve makes a reservation of one credit and returns its id.
func (s *server) reserve(account, key string) string {
	s.t.Helper()
	return s.post("/v1/reservations", key, fmt.Sprintf(`{"account": %q, "feature": "text.improve"}`, account)).is(201).text("id")
}

// give grants an amount to an account, which it creates.
func (s *server) give(account, unit string, amount int) {
	s.t.Helper()
	s.call("PUT", "/v1/accounts/"+account, `{}`)
	s.post("/v1/accounts/"+account+"/grants", fmt.Sprintf("give %s %d", unit, amount), fmt.Sprintf(`{"unit": %q, "amount": %d, "source": "purchase"}`, unit, amount)).is(201)
}
