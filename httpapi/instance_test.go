package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast"
	yaml "github.com/holdfast-dev/holdfast/catalog"
)

// instanceKey is the instance's own admin key in the tests.
const instanceKey = "the-instances-own-admin-key"

// shelf keeps catalogs in memory, as strictly as the product does.
type shelf struct {
	mu       sync.Mutex
	versions map[string][]string // by project, from version 1
	inUse    []string            // plans
	err      error
	replaced int
}

func (s *shelf) Current(_ context.Context, project string) (int64, []byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	stored := s.versions[project]
	if len(stored) == 0 {
		return 0, yaml.EmbeddedSource(), s.err
	}
	return int64(len(stored)), []byte(stored[len(stored)-1]), s.err
}

func (s *shelf) Replace(ctx context.Context, project string, ifVersion int64, source []byte) (int64, bool, error) {
	version, current, err := s.Current(ctx, project)
	if err != nil {
		return 0, false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	parsed, err := yaml.Parse("catalog", source)
	var problems yaml.Problems
	switch {
	case version != ifVersion:
		return 0, false, fmt.Errorf("wrapped: %w", ErrVersion)
	case errors.As(err, &problems):
		var found CatalogProblems
		for _, p := range problems {
			found = append(found, CatalogProblem{Field: p.Path, Line: p.Line, Column: p.Column, Hint: p.Message})
		}
		return 0, false, found
	case string(current) == string(source):
		return version, false, nil
	}
	for _, plan := range s.inUse {
		if _, ok := parsed.Plan(plan); !ok {
			return 0, false, &InUse{Plans: []string{plan}}
		}
	}
	s.versions[project] = append(s.versions[project], string(source))
	s.replaced++
	return version + 1, true, nil
}

// registry makes projects and keys that open the same server.
type registry struct {
	keys     keyring
	mu       sync.Mutex
	projects []string
	made     []NewKey
	revoked  []string
	err      error
}

func (r *registry) AddProject(_ context.Context, name string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil || slices.Contains(r.projects, name) {
		return false, r.err
	}
	r.projects = append(r.projects, name)
	return true, nil
}

func (r *registry) AddKey(_ context.Context, key NewKey) (id, secret string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Contains(r.projects, key.Project) {
		return "", "", fmt.Errorf("wrapped: %w", ErrNoProject)
	}
	r.made = append(r.made, key)
	id = fmt.Sprint("k", len(r.made))
	secret = "hf_secret_of_" + id
	r.keys.add(secret, Key{ID: id, Project: key.Project, Scopes: key.Scopes, RateLimit: key.RateLimit})
	return id, secret, r.err
}

func (r *registry) RevokeKey(_ context.Context, id string) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	secret := "hf_secret_of_" + id
	if _, ok := r.keys[sha256.Sum256([]byte(secret))]; !ok || r.err != nil {
		return false, r.err
	}
	delete(r.keys, sha256.Sum256([]byte(secret)))
	r.revoked = append(r.revoked, id)
	return true, nil
}

const tiny = `units: {credit: {}}
features: {draw: {price: [{unit: credit, amount: 1}], longest_job: 60s, ttl: 5m}}
plans: {free: {default: true, features: [draw], max_active: 1}}
`

func (s *server) putCatalog(body, ifMatch string, headers ...string) *reply {
	s.t.Helper()
	return s.call("PUT", "/v1/catalog", body, append([]string{"Content-Type: application/yaml", "If-Match: " + ifMatch}, headers...)...)
}

func TestACatalogIsReplacedOnlyByWhoeverKnowsTheNewest(t *testing.T) {
	s := newServer(t)
	first := s.get("/v1/catalog").is(200).has(`{"version": 0}`)
	if first.header.Get("ETag") != `"0"` || first.text("source") != string(yaml.EmbeddedSource()) {
		t.Errorf("ETag %s", first.header.Get("ETag"))
	}
	if r := s.putCatalog(tiny, `"0"`).is(201).has(`{"version": 1, "changed": true}`); r.header.Get("ETag") != `"1"` {
		t.Errorf("ETag %s", r.header.Get("ETag"))
	}
	s.putCatalog(tiny, `"1"`).is(200).has(`{"version": 1, "changed": false}`)
	s.putCatalog(tiny+"# again\n", `"0"`).problem(412, "version_changed")
	s.putCatalog(tiny+"# again\n", `"2"`).problem(412, "version_changed")
	s.putCatalog(tiny+"# again\n", ``).problem(428, "version_required")
	for _, match := range []string{`*`, `1`, `"01"`, `W/"1"`, `"1", "2"`, `"-1"`, `"99999999999999999999"`, `"1`} {
		if got := s.putCatalog(tiny+"# again\n", match).problem(400, holdfast.Invalid).names(); fmt.Sprint(got) != "[If-Match]" {
			t.Errorf("If-Match %s names %v", match, got)
		}
	}
	s.putCatalog(tiny, `"1"`, `If-Match: "1"`, `If-Match: "2"`).problem(400, holdfast.Invalid)
	s.call("PUT", "/v1/catalog", tiny+"# text\n", "Content-Type: text/yaml; charset=utf-8", `If-Match: "1"`).is(201).has(`{"version": 2}`)
	s.get("/v1/catalog").is(200).has(`{"version": 2}`)
	// Each project has its own.
	s.get("/v1/catalog", "Authorization: Bearer "+otherKey).is(200).has(`{"version": 0}`)
	s.putCatalog(tiny, `"2"`, "Authorization: Bearer "+otherKey).problem(412, "version_changed")
	if s.shelf.replaced != 2 {
		t.Errorf("replaced %d times", s.shelf.replaced)
	}
}

func TestABadCatalogIsRefusedWholeWithEveryProblemAndItsPlace(t *testing.T) {
	s := newServer(t)
	r := s.putCatalog(strings.Replace(tiny, "amount: 1", "amount: -1", 1)+"produkts: {}\n", `"0"`).problem(400, holdfast.Invalid)
	problems := r.body["problems"].([]any)
	if len(problems) < 2 {
		t.Fatalf("%s", r.raw)
	}
	for i, want := range []string{"features.draw.price[0].amount 2", "produkts 4"} {
		if p := problems[i].(map[string]any); fmt.Sprint(p["field"], " ", p["line"]) != want || fmt.Sprint(p["column"]) == "0" || p["hint"] == "" {
			t.Errorf("problem %d is %v, want %s", i, p, want)
		}
	}
	s.putCatalog("", `"0"`).problem(400, holdfast.Invalid)
	s.putCatalog("\x00\xff", `"0"`).problem(400, holdfast.Invalid)
	s.putCatalog(tiny+strings.Repeat("#", holdfast.MaxCatalogBytes), `"0"`).problem(413, "too_large")
	for header, field := range map[string]string{"Content-Type: application/json": "Content-Type", "Content-Encoding: gzip": "Content-Encoding"} {
		if got := s.putCatalog(tiny, `"0"`, header).problem(400, holdfast.Invalid).names(); fmt.Sprint(got) != "["+field+"]" {
			t.Errorf("%s names %v", header, got)
		}
	}
	s.call("PUT", "/v1/catalog?force=1", tiny, "Content-Type: application/yaml", `If-Match: "0"`).problem(400, holdfast.Invalid)
	s.shelf.inUse = []string{"pro"}
	s.putCatalog(tiny, `"0"`).problem(409, "in_use").has(`{"plans": ["pro"], "units": []}`)
	if s.shelf.replaced != 0 {
		t.Error("something was stored")
	}
	s.shelf.err = errors.New("no disk")
	s.get("/v1/catalog").problem(503, "unavailable")
	s.putCatalog(tiny, `"0"`).problem(503, "unavailable")
}

func TestProjectsAndKeysAreMadeWithTheInstancesKey(t *testing.T) {
	s := newServer(t)
	admin := "Authorization: Bearer " + instanceKey
	s.call("POST", "/v1/projects", `{"name": "bots"}`, admin).is(201).has(`{"name": "bots", "changed": true}`)
	s.call("POST", "/v1/projects", `{"name": "bots"}`, admin).is(200).has(`{"changed": false}`)
	made := s.call("POST", "/v1/keys", `{"project": "bots", "scopes": ["read", "work"], "note": "the bot", "rate_limit": 50}`, admin).is(201).
		has(`{"project": "bots", "scopes": ["read", "work"], "note": "the bot", "rate_limit": 50}`)
	secret := made.text("secret")
	s.engine.catalogs["bots"] = catalog()
	s.get("/v1/accounts/ann", "Authorization: Bearer "+secret).is(200)
	s.call("POST", "/v1/accounts/ann/subscription", `{"plan": "pro"}`, "Authorization: Bearer "+secret).problem(403, "scope")
	s.call("POST", "/v1/keys", `{"project": "bots", "scopes": ["admin"]}`, admin).is(201).has(`{"note": null, "rate_limit": null}`)
	if s.admin.made[0].RateLimit != 50 || s.admin.made[1].RateLimit != 0 {
		t.Errorf("made %+v", s.admin.made)
	}
	if r := s.call("DELETE", "/v1/keys/"+made.text("id"), "", admin).is(204); r.raw != "" {
		t.Errorf("204 with %s", r.raw)
	}
	s.get("/v1/accounts/ann", "Authorization: Bearer "+secret).problem(401, "unauthorized")
	s.call("DELETE", "/v1/keys/"+made.text("id"), "", admin).problem(404, holdfast.NotFound)
	for _, id := range []string{"nothing", "%00", "%FF", "a%2Fb", strings.Repeat("k", 65), "%D0%9F"} {
		s.call("DELETE", "/v1/keys/"+id, "", admin).problem(404, holdfast.NotFound)
	}
	s.call("DELETE", "/v1/keys/k2?all=1", "", admin).problem(400, holdfast.Invalid)
	if log := s.log.String(); strings.Contains(log, secret) || strings.Contains(log, instanceKey) {
		t.Error("a secret is in the log")
	}
	s.admin.err = errors.New("no disk")
	s.call("POST", "/v1/projects", `{"name": "x"}`, admin).problem(503, "unavailable")
	s.call("POST", "/v1/keys", `{"project": "bots", "scopes": ["read"]}`, admin).problem(503, "unavailable")
	s.call("DELETE", "/v1/keys/k2", "", admin).problem(503, "unavailable")
}

func TestBadProjectsAndKeysAreNamedAndMakeNothing(t *testing.T) {
	s := newServer(t)
	admin := "Authorization: Bearer " + instanceKey
	s.admin.projects = []string{"bots"}
	for _, c := range []struct{ path, body, fields string }{
		{"/v1/projects", ``, "name"},
		{"/v1/projects", `{}`, "name"},
		{"/v1/projects", `{"name": ""}`, "name"},
		{"/v1/projects", `{"name": null}`, "name"},
		{"/v1/projects", `{"name": 5}`, "name"},
		{"/v1/projects", `{"name": "A b"}`, "name"},
		{"/v1/projects", `{"name": "a", "name": "b"}`, "name"},
		{"/v1/projects", `{"name": "` + strings.Repeat("a", 65) + `"}`, "name"},
		{"/v1/projects", `{"name": "a", "id": 1}`, "id"},
		{"/v1/projects", `[]`, "body"},
		{"/v1/projects?x=1", `{"name": "a"}`, "x"},
		{"/v1/keys", ``, "project scopes"},
		{"/v1/keys", `{"project": "unknown", "scopes": ["read"]}`, "project"},
		{"/v1/keys", `{"project": "bots", "scopes": []}`, "scopes"},
		{"/v1/keys", `{"project": "bots", "scopes": null}`, "scopes"},
		{"/v1/keys", `{"project": "bots", "scopes": "read"}`, "scopes"},
		{"/v1/keys", `{"project": "bots", "scopes": ["read", "root", null, "read", "the instance's admin key"]}`, "scopes[1] scopes[2] scopes[3] scopes[4]"},
		{"/v1/keys", `{"project": "bots", "scopes": ["read"], "note": "a\nb", "rate_limit": 0, "secret": "mine"}`, "note rate_limit secret"},
		{"/v1/keys", `{"project": "bots", "scopes": ["read"], "note": "` + strings.Repeat("n", 501) + `", "rate_limit": 100001}`, "note rate_limit"},
		{"/v1/keys", `{"project": "bots", "scopes": ["read"], "note": null, "rate_limit": null}`, "note rate_limit"},
		{"/v1/keys", `{"project": "bots", "scopes": ["read"], "rate_limit": 1.5}`, "rate_limit"},
		{"/v1/keys", `{"project": "bots", "scopes": ["read"], "rate_limit": -1}`, "rate_limit"},
		{"/v1/keys", `{"project": "bots", "scopes": ["read"], "rate_limit": 9007199254740992}`, "rate_limit"},
	} {
		got := s.call("POST", c.path, c.body, admin).problem(400, holdfast.Invalid).names()
		slices.Sort(got)
		if strings.Join(got, " ") != c.fields {
			t.Errorf("%s %s names %v", c.path, c.body, got)
		}
	}
	if len(s.admin.made) > 0 || len(s.admin.projects) > 1 {
		t.Error("something was made")
	}
	s.call("POST", "/v1/keys", strings.Repeat(" ", holdfast.MaxBodyBytes+1), admin).problem(413, "too_large")
}

func TestTheInstancesKeyOpensNothingElseAndNothingElseOpensIt(t *testing.T) {
	s := newServer(t)
	unset := serve(t, newSmallEngine(), func(o *Options) { o.AdminKey = "" })
	nobody := serve(t, newSmallEngine(), func(o *Options) { o.Admin = nil })
	s.everyRoute(func(r *route, path, body string) {
		headers := []string{"Idempotency-Key: k", "Content-Type: " + contentOf(r)}
		switch r.scope {
		case scopeInstance:
			for _, other := range []string{allKey, otherKey, instanceKey + "x", instanceKey[1:], strings.ToUpper(instanceKey), "x"} {
				s.call(r.method, path, body, append(headers, "Authorization: Bearer "+other)...).problem(401, "unauthorized")
			}
			s.call(r.method, path, body, append(headers, "Authorization:")...).problem(401, "unauthorized")
			for _, shut := range []*server{unset, nobody} {
				for _, key := range []string{instanceKey, allKey, "x"} {
					shut.call(r.method, path, body, append(headers, "Authorization: Bearer "+key)...).problem(401, "unauthorized")
				}
			}
		case "":
		default:
			s.call(r.method, path, body, append(headers, "Authorization: Bearer "+instanceKey)...).problem(401, "unauthorized")
		}
	})
	if len(s.admin.projects)+len(s.admin.made)+len(s.admin.revoked) > 0 {
		t.Error("something was made")
	}
	for _, key := range []string{"short", strings.Repeat("x", MaxSecretBytes+1), "with a space in it", "with\na line break", "с буквами не из ASCII"} {
		if _, err := New(Options{Engine: s.engine, Keys: s.keys, Texts: plainTexts{}, Logger: s.logger(), AdminKey: key}); err == nil || strings.Contains(err.Error(), key) {
			t.Errorf("an admin key of %q: %v", key, err)
		}
	}
}
