package httpapi

import (
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

func available(t *testing.T, r *reply, unit string) string {
	t.Helper()
	for _, b := range r.body["balances"].([]any) {
		if balance := b.(map[string]any); balance["unit"] == unit {
			return fmt.Sprintf("%v+%v", balance["available"], balance["reserved"])
		}
	}
	t.Fatalf("no %s in %s", unit, r.raw)
	return ""
}

func TestABalanceIsToldAsItWasBelievedAtAMoment(t *testing.T) {
	s := newServer(t)
	s.give("ann", "image", 10) // at 10:00
	s.engine.pass(time.Hour)
	id := s.post("/v1/reservations", "m1", `{"account": "ann", "feature": "image.generate", "quantity": 4}`).is(201).text("id")
	s.engine.pass(time.Minute)
	s.call("POST", "/v1/reservations/"+id+"/commit", `{"quantity": 3}`).is(200)
	path := "/v1/accounts/ann/balance"
	for at, want := range map[string]string{
		"2026-12-01T09:59:59Z": "0+0", "2026-12-01T10:00:00Z": "10+0", "2026-12-01T10:59:59.999999Z": "10+0", "2026-12-01T11:00:00Z": "6+4",
		"2026-12-01T14:00:30%2B03:00": "6+4", "2026-12-01T11:01:00Z": "7+0",
	} {
		if got := available(t, s.get(path+"?as_of="+at).is(200), "image"); got != want {
			t.Errorf("at %s: %s, want %s", at, got, want)
		}
	}
	if got := available(t, s.get(path).is(200).has(`{"account": "ann", "as_of": "2026-12-01T11:01:00Z"}`), "image"); got != "7+0" {
		t.Errorf("now: %s", got)
	}
	s.get(path + "?as_of=2026-12-01T14:00:30%2B03:00").has(`{"as_of": "2026-12-01T11:00:30Z"}`)
	if got := available(t, s.get(path, "Authorization: Bearer "+otherKey).is(200), "image"); got != "0+0" {
		t.Errorf("another project sees %s", got)
	}
	if got := available(t, s.get("/v1/accounts/nobody/balance?as_of=2026-12-01T10:00:00Z").is(200), "credit"); got != "3+0" {
		t.Errorf("nobody would have had %s", got)
	}
}

func TestTheHistoryIsExportedWholeAsATable(t *testing.T) {
	s := newServer(t)
	s.give("ann", "image", 2000)
	for i := range 450 { // three pages
		s.post("/v1/charges", fmt.Sprint("c", i), `{"account": "ann", "feature": "image.generate"}`).is(201)
	}
	r := s.get("/v1/accounts/ann/entries.csv").is(200)
	if !strings.HasPrefix(r.raw, strings.Join(csvColumns, ",")+"\r\n") || strings.Count(r.raw, "\r\n") != strings.Count(r.raw, "\n") {
		t.Errorf("%.200q", r.raw)
	}
	rows, err := csv.NewReader(strings.NewReader(r.raw)).ReadAll()
	if err != nil || len(rows) != 1+901 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for i, row := range rows[1:] {
		if row[0] != fmt.Sprint(901-i) {
			t.Fatalf("row %d is entry %s", i, row[0])
		}
	}
	if got, want := fmt.Sprint(rows[1]), "[901 commit image 0 -1 1 0 0 1550 0 0 rsv_"; !strings.HasPrefix(got, want) {
		t.Errorf("%s, want %s", got, want)
	}
	if head := s.call("HEAD", "/v1/accounts/ann/entries.csv", "").is(200); head.raw != "" {
		t.Errorf("HEAD has a body: %.50s", head.raw)
	}
	if name := r.header.Get("Content-Disposition"); name != `attachment; filename="entries.csv"` {
		t.Errorf("it is called %s", name)
	}
	s.get("/v1/accounts/ann/entries.csv", "Authorization: Bearer "+otherKey).problem(404, holdfast.NotFound)
}

func TestNoCellOfATableIsAFormula(t *testing.T) {
	s := newServer(t)
	s.call("PUT", "/v1/accounts/ann", ``).is(200)
	texts := []string{`=HYPERLINK("http://x","y")`, "+1", "-1+1", "@SUM(1)", "＝1", `a "quoted", text`, "'already"}
	for i, text := range texts {
		quoted := strings.ReplaceAll(text, `"`, `\"`)
		s.post("/v1/accounts/ann/adjustments", text, fmt.Sprintf(`{"unit": "image", "amount": %d, "reason": "%s"}`, 10+i, quoted)).is(201)
	}
	s.batch(`{"op": "adjustment", "account": "ann", "key": "\t=1", "unit": "image", "amount": -5, "reason": "x"}`, `{"op": "adjustment", "account": "ann", "key": "\n=1", "unit": "image", "amount": 1, "reason": "x"}`)
	rows, err := csv.NewReader(strings.NewReader(s.get("/v1/accounts/ann/entries.csv").is(200).raw)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	key, reason, voided := slices.Index(csvColumns, "key"), slices.Index(csvColumns, "reason"), slices.Index(csvColumns, "voided")
	slices.Reverse(rows[1:])
	for i, row := range rows[1:] {
		for column, cell := range row {
			if strings.ContainsAny(cell[:min(1, len(cell))], "=+@\t\r\n＝") || strings.HasPrefix(cell, "-") && column != voided {
				t.Errorf("%s is %q", csvColumns[column], cell)
			}
		}
		if i < len(texts) && (strings.TrimPrefix(row[key], "'") != strings.TrimPrefix(texts[i], "'") || strings.TrimPrefix(row[reason], "'") != strings.TrimPrefix(texts[i], "'")) {
			t.Errorf("%q became %q and %q", texts[i], row[key], row[reason])
		}
	}
	if last := rows[len(rows)-2]; last[voided] != "5" {
		t.Errorf("numbers are numbers: %v", last)
	}
}

func TestATableThatCannotBeFinishedIsBrokenOff(t *testing.T) {
	s := newServer(t)
	s.give("ann", "image", 2000)
	for i := range 250 {
		s.post("/v1/charges", fmt.Sprint("c", i), `{"account": "ann", "feature": "image.generate"}`).is(201)
	}
	// Reads fail after the first page.
	s.engine.failReadsAfter(1, &engine.Error{Code: engine.Unavailable, Err: errors.New("no disk")})
	request, _ := http.NewRequest("GET", s.url+"/v1/accounts/ann/entries.csv", nil)
	request.Header.Set("Authorization", "Bearer "+allKey)
	response, err := http.DefaultClient.Do(request)
	if err == nil {
		_, err = csv.NewReader(response.Body).ReadAll()
		_ = response.Body.Close()
	}
	if err == nil {
		t.Error("a part was given for the whole")
	}
	if log := s.log.String(); !strings.Contains(log, "no disk") {
		t.Errorf("the log does not say why:\n%s", log[max(0, len(log)-500):])
	}
}

func TestAReserveIsExplainedStepByStep(t *testing.T) {
	s := newServer(t)
	s.call("PUT", "/v1/accounts/ann", `{"language": "ru"}`).is(200)
	s.post("/v1/accounts/ann/grants", "g1", `{"unit": "credit", "amount": 9, "features": ["text.improve"]}`).is(201)
	s.post("/v1/accounts/ann/grants", "g2", `{"unit": "credit", "amount": 7, "starts_at": "2026-12-05T00:00:00Z"}`).is(201)
	before := s.engine.everything(t)
	path := "/v1/accounts/ann/explain"
	r := s.get(path + "?feature=image.generate").is(200).has(`{"account": "ann", "plan": "free", "feature": "image.generate", "allowed": false, "reason": "insufficient"}`)
	var told []string
	for _, step := range r.body["steps"].([]any) {
		s := step.(map[string]any)
		line := fmt.Sprint(s["check"], " ", s["passed"], " ", s["unit"], " ", s["needed"], " ", s["available"], " ", s["held"], " ", s["active"], " ", s["max_active"])
		for _, p := range s["pockets"].([]any) {
			pocket := p.(map[string]any)
			line += fmt.Sprint(" | ", pocket["source"], " ", pocket["use"], " ", pocket["available"], " ", pocket["takes"])
		}
		told = append(told, line)
	}
	want := `account true <nil> <nil> <nil> <nil> <nil> <nil>
plan true <nil> <nil> <nil> <nil> <nil> <nil>
price false image 1 0 0 <nil> <nil>
price false credit 5 3 0 <nil> <nil> | allowance starts_when_used 3 0 | promo other_features 9 0 | promo starts_later 0 0
slot true <nil> <nil> <nil> <nil> 0 1`
	if got := strings.Join(told, "\n"); got != want {
		t.Errorf("told\n%s\nwant\n%s", got, want)
	}
	if text := r.body["steps"].([]any)[0].(map[string]any)["text"]; text != "account true in ru, catalog 7" || r.header.Get("Content-Language") != "ru" {
		t.Errorf("told as %v", text)
	}
	s.get(path + "?feature=text.improve&quantity=12").is(200).has(`{"allowed": true, "reason": null}`)
	s.get(path + "?feature=text.improve&quantity=13").is(200).has(`{"allowed": false, "reason": "insufficient"}`)
	s.get(path + "?feature=text.improve&usage[input_token]=7&usage[output_token]=0").is(200)
	s.get(path + "?feature=chat.completion&usage[input_token]=7").is(200).has(`{"reason": "feature_not_in_plan"}`)
	s.get("/v1/accounts/nobody/explain?feature=text.improve").is(200).has(`{"allowed": true, "account": "nobody"}`)
	s.get(path+"?feature=text.improve&quantity=12", "Authorization: Bearer "+otherKey).is(200).has(`{"allowed": false}`)
	if s.engine.everything(t) != before {
		t.Error("an explanation moved something")
	}
}

func TestADeletedAccountIsErasedAndStaysBlocked(t *testing.T) {
	s := newServer(t)
	s.call("DELETE", "/v1/accounts/ann", ``).problem(404, holdfast.NotFound)
	s.call("PUT", "/v1/accounts/ann", `{"language": "ru", "metadata": {"phone": "PERSONAL"}}`).is(200)
	path := "/v1/reservations/" + s.post("/v1/reservations", "m1", `{"account": "ann", "feature": "text.improve", "metadata": {"a": "PERSONAL"}}`).is(201).text("id")
	s.call("DELETE", "/v1/accounts/ann", ``, "Authorization: Bearer "+otherKey).problem(404, holdfast.NotFound)
	deleted := s.call("DELETE", "/v1/accounts/ann", ``, "Idempotency-Key: d1").is(200).
		has(`{"account": "ann", "exists": true, "blocked": true, "changed": true, "deleted_at": "2026-12-01T10:00:00Z", "language": null, "metadata": {}, "active": 0}`)
	again := s.call("DELETE", "/v1/accounts/ann", ``, "Idempotency-Key: d1").is(200)
	if again.raw != deleted.raw || again.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("told again as %s", again.raw)
	}
	s.call("DELETE", "/v1/accounts/ann", ``).is(200).has(`{"changed": false}`)
	s.get("/v1/accounts/ann").is(200).has(`{"exists": true, "blocked": true, "deleted_at": "2026-12-01T10:00:00Z"}`)
	s.get(path).is(200).has(`{"account": "deleted", "state": "released", "cause": "account_deleted", "metadata": {}}`)
	s.get("/v1/accounts/ann/entries").is(200)
	s.get("/v1/accounts/ann/entries.csv").is(200)
	s.post("/v1/reservations", "m2", `{"account": "ann", "feature": "text.improve"}`).problem(403, holdfast.AccountBlocked)
	s.post("/v1/charges", "m3", `{"account": "ann", "feature": "text.improve"}`).problem(403, holdfast.AccountBlocked)
	s.call("PUT", "/v1/accounts/ann", `{"blocked": false}`).problem(403, holdfast.AccountBlocked)
	s.post("/v1/accounts/ann/grants", "g1", `{"unit": "credit", "amount": 1}`).problem(403, holdfast.AccountBlocked)
	s.post("/v1/accounts/ann/adjustments", "a1", `{"unit": "credit", "amount": 1, "reason": "x"}`).problem(403, holdfast.AccountBlocked)
	s.call("POST", "/v1/accounts/ann/subscription", `{"plan": "pro"}`).problem(403, holdfast.AccountBlocked)
	if left := s.engine.everything(t); strings.Contains(left, "PERSONAL") {
		t.Errorf("something personal is left: %s", left)
	}
	// What it was answered before is repeated without what was personal.
	if replay := s.post("/v1/reservations", "m1", `{"account": "ann", "feature": "text.improve"}`).is(201); strings.Contains(replay.raw, "PERSONAL") {
		t.Errorf("told again: %s", replay.raw)
	}
}

func TestAnAccountShowsWhatUsageCostsAndByWhichCatalog(t *testing.T) {
	s := chatting(t)
	features := s.get("/v1/accounts/ann").is(200).has(`{"catalog_version": 7, "deleted_at": null}`).body["features"].([]any)
	for i, want := range []string{
		"map[amount:0 feature:text.improve unit:credit]", "map[amount:5 feature:image.generate unit:credit]", "map[amount:3 feature:file.analyze unit:credit]",
		"map[amount:<nil> feature:chat.completion per:1000 rates:map[cached_token:0 input_token:1 output_token:4] unit:credit]",
	} {
		if got := fmt.Sprint(features[i]); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
