package httpapi

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-dev/holdfast"
)

func TestTextsAreReadAsTheyWereWritten(t *testing.T) {
	for written, want := range map[string]string{
		`"a"`: "a", `"\u0041\n\t\"\\\/\b\f\r"`: "A\n\t\"\\/\b\f\r", `"\ud83d\ude00"`: "😀", `"😀"`: "😀", `"e\u0301"`: "e\u0301", `"\uFFFD"`: "\ufffd", `"é"`: "é",
	} {
		v, err := parse(written, maxValues)
		if err != nil || v.kind != isText || v.text != want || v.flaw != "" {
			t.Errorf("%s: %q, flaw %q, %v", written, v.text, v.flaw, err)
		}
	}
	for _, written := range []string{`"\ud83d"`, `"\ude00"`, `"\ude00\ud83d"`, `"\ud83dx"`, `"\ud83d\n"`, `"\ud83d\ud83d\ude00"`, `"\u0000"`, "\"\xff\"", "\"\xed\xa0\x80\""} {
		if v, err := parse(written, maxValues); err != nil || v.flaw == "" {
			t.Errorf("%s: no flaw, %v", written, err)
		}
	}
}

func TestWhatIsRightIsSetBesideWhatIsWrong(t *testing.T) {
	var body reserveBody
	found, readable := decode(`{"account": "ann", "quantity": 1.5, "usage": {"input_token": 7}, "metadata": {"a": "b"}, "dry_run": true, "ttl_seconds": -0}`, &body)
	if want := []holdfast.Problem{{Field: "quantity", Hint: "use an integer, without fraction or exponent"}}; !readable || !cmp.Equal(found, want) {
		t.Errorf("%v", found)
	}
	zero := holdfast.Amount(0)
	want := reserveBody{ReserveFields: ReserveFields{Account: "ann", Usage: map[string]holdfast.Amount{"input_token": 7}, Metadata: map[string]string{"a": "b"}, DryRun: true, TTLSeconds: &zero}}
	if difference := cmp.Diff(want, body); difference != "" {
		t.Error(difference)
	}
}

func TestIntegersEndWhereEveryReaderKeepsThemExact(t *testing.T) {
	for number, right := range map[string]bool{"9007199254740991": true, "-9007199254740991": true, "9007199254740992": false, "-9007199254740992": false, "9223372036854775807": false} {
		var body adjustmentBody
		if found, _ := decode(`{"amount": `+number+`}`, &body); (len(found) == 0) != right || right && strconv.FormatInt(int64(body.Amount), 10) != number {
			t.Errorf("%s: %v, read as %d", number, found, body.Amount)
		}
	}
}

func TestNearestNeedsToBeNear(t *testing.T) {
	names := []string{"account", "amount", "unit"}
	for name, want := range map[string]string{"acount": "account", "Amount": "amount", "amonut": "amount", "unti": "", "x": "", "accounting": "", "": "", strings.Repeat("a", 100): ""} {
		if got, _ := nearest(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// FuzzDecode: no body panics, what the standard library refuses is refused, and what it reads, and this reader does not
// find flawed, is the same value.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`{"account": "ann", "feature": "text.improve", "quantity": 3, "usage": {"a": 1}, "metadata": {"a": "b"}, "dry_run": true}`,
		`{"account": "\ud800", "quantity": 1e400, "ttl_seconds": 18446744073709551616}`, `{"a": [[[[[[[[[[]]]]]]]]]]}`, `{"": ""}`, `[1, -0, 0.5]`, "\ufeff{}", `null`,
		`{"unit": "credit", "amount": 1, "starts_at": "2026-12-01T10:00:00+03:00", "features": ["x", null], "priority": null}`, `{"usage": {}}`, "{\"a\": \"\xff\"}", `"\u00"`, `-`, `1.`, `tru`,
		`{` + many(40, `"n%d": 0`) + `}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data string) {
		for _, r := range routes() {
			if r.does.body != nil {
				found, readable := decode(data, r.does.body)
				if !readable && len(found) != 1 || len(found) > maxProblems {
					t.Errorf("%d problems", len(found))
				}
				for _, p := range found {
					if p.Field == "" || p.Hint == "" || !utf8.ValidString(p.Field) || len(p.Field) > 200 {
						t.Errorf("problem %q: %q", p.Field, p.Hint)
					}
				}
			}
		}
		v, err := parse(data, maxValues)
		if valid := json.Valid([]byte(data)); err == nil && !valid {
			t.Fatalf("%q is no JSON", data)
		} else if err != nil && valid && !strings.Contains(err.Error(), "at most") {
			t.Fatalf("%q is JSON: %v", data, err)
		}
		if err != nil || v.kind != isText {
			return
		}
		var text string
		if json.Unmarshal([]byte(data), &text) != nil || v.flaw == "" && text != v.text {
			t.Errorf("%q: %q, the library says %q", data, v.text, text)
		}
		if v.flaw == "" && (!utf8.ValidString(v.text) || strings.Contains(v.text, "\x00")) {
			t.Errorf("%q is flawed", v.text)
		}
	})
}
