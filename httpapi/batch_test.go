package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// batch sends operations and returns their results.
func (s *server) batch(operations ...string) []map[string]any {
	s.t.Helper()
	r := s.call("POST", "/v1/batch", `{"operations": [`+strings.Join(operations, ", ")+`]}`).is(200)
	var results []map[string]any
	for _, result := range r.body["results"].([]any) {
		results = append(results, result.(map[string]any))
	}
	if len(results) != len(operations) {
		s.t.Fatalf("%d results of %d operations", len(results), len(operations))
	}
	return results
}

// lines are status, and of the body what matters most.
func lines(results []map[string]any) []string {
	var all []string
	for _, r := range results {
		body := r["body"].(map[string]any)
		line := fmt.Sprint(r["status"])
		if r["replayed"] == true {
			line += " replayed"
		}
		for _, name := range []string{"reason", "scope", "state", "used", "changed"} {
			if body[name] != nil {
				line += fmt.Sprintf(" %s=%v", name, body[name])
			}
		}
		problems, _ := body["problems"].([]any)
		for _, p := range problems {
			line += " " + p.(map[string]any)["field"].(string)
		}
		all = append(all, line)
	}
	return all
}

func (s *server) wants(results []map[string]any, want ...string) {
	s.t.Helper()
	if difference := cmp.Diff(want, lines(results)); difference != "" {
		s.t.Errorf("(-want +got)\n%s", difference)
	}
}

func TestABatchDoesEveryOperationInItsOrder(t *testing.T) {
	s := newServer(t)
	s.wants(s.batch(
		`{"op": "grant", "account": "ann", "key": "g0", "unit": "credit", "amount": 1}`,
		`{"op": "put_account", "account": "ann", "language": "ru"}`,
		`{"op": "grant", "account": "ann", "key": "g1", "unit": "credit", "amount": 20, "source": "purchase"}`,
		`{"op": "adjustment", "account": "ann", "key": "a1", "unit": "credit", "amount": -1, "reason": "test"}`,
		`{"op": "reserve", "account": "ann", "key": "m1", "feature": "image.generate"}`,
		`{"op": "reserve", "account": "ann", "key": "m1", "feature": "image.generate"}`,
		`{"op": "reserve", "account": "ann", "key": "m2", "feature": "text.improve"}`,
		`{"op": "reserve", "account": "ann", "feature": "text.improve", "dry_run": true}`,
		`{"op": "reserve", "account": "bob", "key": "m1", "feature": "text.improve"}`,
		`{"op": "charge", "account": "eve", "key": "c1", "feature": "text.improve", "amount": 0}`,
	),
		"404 reason=not_found", "200 changed=true", "201", "201", "201 state=reserved used=0", "201 replayed state=reserved used=0",
		"409 reason=too_many_active", "200 reason=too_many_active", "201 state=reserved used=0", "201 state=committed used=0 changed=true")

	id := s.reserve("zoe", "z1")
	started := s.batch(fmt.Sprintf(`{"op": "start", "id": %q, "worker": "w"}`, id))
	token := started[0]["body"].(map[string]any)["lease_token"]
	verb := func(op, more string) string {
		return fmt.Sprintf(`{"op": %q, "id": %q, "lease_token": %q%s}`, op, id, token, more)
	}
	s.wants(s.batch(
		verb("heartbeat", ""), verb("extend", `, "ttl_seconds": 900`), verb("in_doubt", ""), fmt.Sprintf(`{"op": "cancel", "id": %q}`, id),
		verb("commit", `, "amount": 2, "key": "k"`), verb("commit", `, "amount": 2, "key": "k"`), verb("release", ""),
		fmt.Sprintf(`{"op": "refund", "id": %q, "key": "r1", "amount": 1}`, id),
		fmt.Sprintf(`{"op": "force", "id": %q, "end": "release", "reason": "x"}`, id),
	),
		"200 state=running used=0", "200 state=running used=0 changed=true", "200 state=running used=0 changed=true", "409 reason=already_running",
		"200 state=committed used=1 changed=true", "200 replayed state=committed used=1 changed=true", "409 reason=already_ended",
		"200 state=committed used=1 changed=true", "409 reason=already_ended")
}

func TestAnItemIsAnsweredAsTheCallOfItsOwn(t *testing.T) {
	alone, together := newServer(t), newServer(t)
	body := `"account": "ann", "feature": "image.generate", "quantity": 1, "surface": "bot", "metadata": {"a": "b"}`
	for i, status := range []int{402, 201, 409} {
		key := fmt.Sprint("m", i)
		if status == 201 {
			alone.give("ann", "credit", 9)
			together.give("ann", "credit", 9)
		}
		one := alone.post("/v1/reservations", key, "{"+body+"}", "Accept-Language: ru").is(status)
		many := together.call("POST", "/v1/batch", `{"operations": [{"op": "reserve", "key": "`+key+`", `+body+`}]}`, "Accept-Language: ru").is(200)
		got := many.body["results"].([]any)[0].(map[string]any)
		if fmt.Sprint(got["status"]) != fmt.Sprint(status) || cmp.Diff(any(one.body), got["body"]) != "" {
			t.Errorf("alone\n%s\nin a batch\n%s", one.raw, many.raw)
		}
	}
}

func TestABadItemIsNamedByItsPlaceAndStopsNoOther(t *testing.T) {
	s := newServer(t)
	other := s.post("/v1/reservations", "o1", `{"account": "ann", "feature": "text.improve"}`, "Authorization: Bearer "+otherKey).is(201).text("id")
	before := s.engine.everything(t)
	id := holdfast.ReservationRef.Encode(holdfast.AccountIDOf("shop", "ann"), holdfast.ID{1})
	s.wants(s.batch(
		`5`, `null`, `{}`, `{"op": 5}`, `{"op": "reserv", "key": "k"}`, `{"op": "set_plan", "account": "ann", "plan": "pro"}`,
		`{"op": "reserve", "account": "a b", "feature": "text.improve", "quantity": 1.5}`,
		`{"op": "reserve", "op": "commit", "key": "k", "account": "ann", "feature": "text.improve"}`,
		`{"op": "reserve", "key": "k", "key": "l", "account": "ann", "feature": "text.improve"}`,
		`{"op": "reserve", "key": 7, "account": "ann", "feature": "text.improve"}`,
		`{"op": "reserve", "key": " ", "account": "ann", "feature": "text.improve"}`,
		`{"op": "reserve", "key": "k", "account": "ann", "feature": "text.improve", "id": "x"}`,
		`{"op": "reserve", "key": "k", "account": "ann", "feature": "text.improve", "retry_refused": "yes", "metadata": {"a": 1}}`,
		`{"op": "commit", "id": "`+id+`", "amount": -1, "account": "ann"}`,
		`{"op": "commit", "id": "`+id+`", "usage": {}}`,
		`{"op": "commit", "id": null}`,
		`{"op": "commit"}`, `{"op": "commit", "id": "x"}`, `{"op": "commit", "id": "`+id+`"}`, `{"op": "commit", "id": "`+other+`"}`,
		`{"op": "grant", "account": "ann/b", "key": "g", "unit": "gold", "amount": 9007199254740992}`,
		`{"op": "adjustment", "account": "ann", "key": "g", "unit": "credit", "amount": 1}`,
		`{"op": "force", "id": "`+id+`", "end": "burn", "reason": "x"}`,
		`{"op": "refund", "id": "`+id+`"}`,
		`{"op": "put_account", "language": "!"}`,
		`{"op": "charge", "account": "ann", "feature": "video"}`,
	),
		"400 reason=invalid operations[0]", "400 reason=invalid operations[1]", "400 reason=invalid operations[2].op", "400 reason=invalid operations[3].op",
		"400 reason=invalid operations[4].op", "400 reason=invalid operations[5].op",
		"400 reason=invalid operations[6].quantity operations[6].account operations[6].key",
		"400 reason=invalid operations[7].op", "400 reason=invalid operations[8].key", "400 reason=invalid operations[9].key", "400 reason=invalid operations[10].key",
		"400 reason=invalid operations[11].id", "400 reason=invalid operations[12].retry_refused operations[12].metadata.a",
		"400 reason=invalid operations[13].account operations[13].amount", "400 reason=invalid operations[14].usage", "400 reason=invalid operations[15].id",
		"404 reason=not_found", "404 reason=not_found", "404 reason=not_found", "404 reason=not_found",
		"400 reason=invalid operations[20].amount operations[20].account", "400 reason=invalid operations[21].reason", "400 reason=invalid operations[22].end",
		"400 reason=invalid operations[23].key", "400 reason=invalid operations[24].account operations[24].language", "400 reason=invalid operations[25].key")
	if s.engine.everything(t) != before {
		t.Error("a bad item moved something")
	}
	// What the catalog does not know is found in the decision, and named in the same way.
	s.wants(s.batch(`{"op": "reserve", "key": "k1", "account": "ann", "feature": "text.improve"}`, `{"op": "charge", "key": "k2", "account": "ann", "feature": "video"}`),
		"201 state=reserved used=0", "400 reason=invalid operations[1].feature")
}

func TestABatchThatIsNoneIsRefusedWhole(t *testing.T) {
	s := newServer(t)
	for body, field := range map[string]string{
		``: "operations", `{}`: "operations", `{"operations": []}`: "operations", `{"operations": {}}`: "operations", `{"operations": null}`: "operations",
		`{"operations": [` + many(501, `{"op": "cancel", "id": "%d"}`) + `]}`: "operations", `{"operation": [], "operations": [{}]}`: "operation",
		`[]`: "body", `{"operations": [` + many(40000, `%d`) + `]}`: "body",
	} {
		if got := s.call("POST", "/v1/batch", body).problem(400, holdfast.Invalid).names(); len(got) != 1 || got[0] != field {
			t.Errorf("%.60s: names %v, want %s", body, got, field)
		}
	}
	s.call("POST", "/v1/batch?atomic=1", `{"operations": [{}]}`).problem(400, holdfast.Invalid)
	s.call("POST", "/v1/batch", `{"operations": []}`+strings.Repeat(" ", holdfast.MaxBodyBytes)).problem(413, "too_large")
	// The largest that is allowed, with everything that a reserve can have.
	full := make([]string, holdfast.MaxOperations)
	for i := range full {
		full[i] = fmt.Sprintf(`{"op": "reserve", "key": "k%d", "account": "a%d", "feature": "text.improve", "metadata": {%s}, "usage": {%s}}`, i, i, many(holdfast.MaxMetadataPairs, `"n%d": "v"`), many(20, `"k%d": 1`))
	}
	for i, r := range s.batch(full...) {
		if fmt.Sprint(r["status"]) != "201" {
			t.Fatalf("operation %d: %v", i, r)
		}
	}
}

func TestEachItemNeedsTheScopeOfItsOwnCall(t *testing.T) {
	s := newServer(t)
	s.keys.add("worker", Key{ID: "key_w", Project: "shop", Scopes: []string{ScopeWork}})
	s.keys.add("reader", Key{ID: "key_r", Project: "shop", Scopes: []string{ScopeRead}})
	s.call("PUT", "/v1/accounts/ann", ``).is(200)
	before := s.engine.everything(t)
	operations := []string{
		`{"op": "grant", "account": "ann", "key": "g1", "unit": "credit", "amount": 1}`,
		`{"op": "adjustment", "account": "ann", "key": "a1", "unit": "credit", "amount": 1, "reason": "x"}`,
		`{"op": "refund", "id": "x", "key": "r1"}`, `{"op": "force", "id": "x", "end": "release", "reason": "x"}`,
		`{"op": "put_account", "account": "ann", "blocked": true}`, `{"op": "put_account", "account": "ann"}`, `{"op": "cancel", "id": "x"}`,
	}
	send := func(key string) []map[string]any {
		r := s.call("POST", "/v1/batch", `{"operations": [`+strings.Join(operations, ", ")+`]}`, "Authorization: Bearer "+key).is(200)
		var results []map[string]any
		for _, result := range r.body["results"].([]any) {
			results = append(results, result.(map[string]any))
		}
		return results
	}
	s.wants(send("worker"), "403 reason=scope scope=money", "403 reason=scope scope=money", "403 reason=scope scope=money", "403 reason=scope scope=admin",
		"403 reason=scope scope=admin", "200 changed=false", "404 reason=not_found")
	s.wants(send("reader"), "403 reason=scope scope=money", "403 reason=scope scope=money", "403 reason=scope scope=money", "403 reason=scope scope=admin",
		"403 reason=scope scope=work", "403 reason=scope scope=work", "403 reason=scope scope=work")
	if s.engine.everything(t) != before {
		t.Error("an item without its right moved something")
	}
	s.call("POST", "/v1/batch", `{"operations": [{}]}`, "Authorization:").problem(401, "unauthorized")
}

func TestARecordedRefusalIsDecidedAfreshWhereItsItemAsksForIt(t *testing.T) {
	s := newServer(t)
	item := func(more string) string {
		return `{"op": "reserve", "key": "m1", "account": "ann", "feature": "image.generate"` + more + `}`
	}
	s.wants(s.batch(item(""), item("")), "402 reason=insufficient", "402 replayed reason=insufficient")
	s.give("ann", "credit", 9)
	s.wants(s.batch(item(""), item(`, "retry_refused": false`), item(`, "retry_refused": true`), item("")),
		"402 replayed reason=insufficient", "402 replayed reason=insufficient", "201 state=reserved used=0", "201 replayed state=reserved used=0")
}

func TestAnItemThatFailsIsLoggedAndTheOthersAreAnswered(t *testing.T) {
	s := newServer(t)
	s.engine.before = func(c holdfast.Command) error {
		if c.Account == "bob" {
			return &engine.Error{Code: engine.Overloaded, Err: errors.New("DSN=secret")}
		}
		return nil
	}
	results := s.batch(`{"op": "put_account", "account": "ann"}`, `{"op": "put_account", "account": "bob"}`, `{"op": "put_account", "account": "bob"}`, `{"op": "put_account", "account": "eve"}`)
	s.wants(results, "200 changed=true", "503 reason=overloaded", "503 reason=overloaded", "200 changed=true")
	if raw, _ := json.Marshal(results); strings.Contains(string(raw), "secret") {
		t.Error("the cause came out")
	}
	if log := s.log.String(); strings.Count(log, "DSN=secret") != 1 || !strings.Contains(log, "2 of 4 operations failed") {
		t.Errorf("the log says\n%s", log)
	}
}

func TestABatchThroughTheRealEngineKeepsTheOrderOfEachAccount(t *testing.T) {
	s := whole(t)
	var operations []string
	for i := range 100 {
		account := fmt.Sprint("a", i%5)
		operations = append(operations,
			fmt.Sprintf(`{"op": "charge", "account": %q, "key": "c%d", "feature": "text.improve"}`, account, i))
	}
	var charged int
	for i, line := range lines(s.batch(operations...)) {
		// Each account has three credits: the first three of its charges are done, no later one.
		want := "402 reason=insufficient"
		if i < 15 {
			want = "201 state=committed used=1 changed=true"
			charged++
		}
		if line != want {
			t.Errorf("charge %d: %s, want %s", i, line, want)
		}
	}
	if charged != 15 {
		t.Errorf("%d charges", charged)
	}
}
