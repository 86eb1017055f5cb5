package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Cases 21, 27, 31 and 65: whatever is sent, the answer is a documented problem that names the field, nothing moves, and
// no value comes back.
func TestBadInputIsNamedAndMovesNothing(t *testing.T) {
	s := newServer(t)
	s.keys.add("worker", Key{ID: "key_w", Project: "shop", Scopes: []string{ScopeWork}})
	s.give("ann", "credit", 100)
	s.call("POST", "/v1/accounts/ann/subscription", `{"plan": "pro"}`).is(200)
	live := s.reserve("ann", "live")
	path := "/v1/reservations/" + live
	talking := s.post("/v1/reservations", "talking", `{"account": "ann", "feature": "chat.completion", "usage": {"input_token": 5}}`).is(201).text("id")
	before := s.engine.everything(t)

	type call struct {
		name, method, path, key, body string
		fields                        []string
	}
	var calls []call
	bad := func(name, method, path, key, body string, fields ...string) {
		calls = append(calls, call{name, method, path, key, body, fields})
	}
	reserve := func(name, body string, fields ...string) { bad(name, "POST", "/v1/reservations", "k", body, fields...) }
	good := `{"account": "ann", "feature": "text.improve"}`

	// Keys.
	const keyField = "Idempotency-Key"
	bad("no key", "POST", "/v1/reservations", "", good, keyField)
	bad("blank key", "POST", "/v1/reservations", "   ", good, keyField)
	bad("blank beyond ASCII", "POST", "/v1/reservations", "\u00a0\u2003", good, keyField)
	bad("256 bytes of key", "POST", "/v1/reservations", strings.Repeat("k", 256), good, keyField)
	bad("key in no encoding", "POST", "/v1/reservations", "k\xff", good, keyField)
	for _, create := range []struct{ path, body string }{
		{"/v1/accounts/ann/grants", `{"unit": "credit", "amount": 1}`},
		{"/v1/accounts/ann/adjustments", `{"unit": "credit", "amount": 1, "reason": "x"}`},
		{path + "/refund", `{}`},
	} {
		bad("no key for "+create.path[12:], "POST", create.path, "", create.body, keyField)
	}
	bad("256 bytes of optional key", "POST", path+"/commit", strings.Repeat("k", 256), `{}`, keyField)
	bad("key and body at once", "POST", "/v1/reservations", "", `{"account": "", "feature": "X", "quantity": 1.5}`, "quantity", "account", keyField, "feature")

	// Names of accounts.
	for _, c := range []struct{ name, account string }{
		{"empty", ``},
		{"too long", strings.Repeat("a", 129)},
		{"a space", `a b`},
		{"a slash", `a/b`},
		{"a question mark", `a?b`},
		{"a hash", `a#b`},
		{"a percent sign", `a%b`},
		{"NUL, escaped", `a\u0000b`},
		{"half a surrogate pair", `a\ud800`},
		{"the other half", `\udc00a`},
		{"invalid UTF-8", "a\xff"},
		{"DEL", "a\x7f"},
		{"a newline, escaped", `a\n`},
		{"no-break space", "a\u00a0b"},
	} {
		reserve("account with "+c.name, `{"account": "`+c.account+`", "feature": "text.improve"}`, "account")
	}
	reserve("no account", `{"feature": "text.improve"}`, "account")
	for _, escaped := range []string{"%00", "%FF", "a%2Fb", "%20", "a%3Fb", "a%25b", "a%23", "%C3%28", strings.Repeat("a", 129)} {
		bad("path account "+escaped[:min(len(escaped), 6)], "GET", "/v1/accounts/"+escaped, "", "", "account")
		bad("put account "+escaped[:min(len(escaped), 6)], "PUT", "/v1/accounts/"+escaped, "", "{}", "account")
		bad("grants of "+escaped[:min(len(escaped), 6)], "GET", "/v1/accounts/"+escaped+"/grants", "", "", "account")
		bad("entries of "+escaped[:min(len(escaped), 6)], "GET", "/v1/accounts/"+escaped+"/entries", "", "", "account")
		bad("grant to "+escaped[:min(len(escaped), 6)], "POST", "/v1/accounts/"+escaped+"/grants", "k", `{"unit": "credit", "amount": 1}`, "account")
		bad("reservations of "+escaped[:min(len(escaped), 6)], "GET", "/v1/reservations?account="+escaped, "", "", "account")
	}

	// Amounts.
	for _, number := range []string{"9007199254740992", "-9007199254740992", "9223372036854775808", "18446744073709551616", "-9223372036854775809", "1.5", "1.0", "1e0", "1E2", `"1"`, "true", "[]", "{}", "1e999", "0.1"} {
		bad("grant of "+number, "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": `+number+`}`, "amount")
		bad("adjustment by "+number, "POST", "/v1/accounts/ann/adjustments", "k", `{"unit": "credit", "reason": "x", "amount": `+number+`}`, "amount")
		reserve("quantity "+number, `{"account": "ann", "feature": "text.improve", "quantity": `+number+`}`, "quantity")
		reserve("usage "+number, `{"account": "ann", "feature": "text.improve", "usage": {"input_token": `+number+`}}`, "usage.input_token")
		reserve("ttl "+number, `{"account": "ann", "feature": "text.improve", "ttl_seconds": `+number+`}`, "ttl_seconds")
		bad("commit of "+number, "POST", path+"/commit", "", `{"amount": `+number+`}`, "amount")
		bad("commit of a quantity "+number, "POST", path+"/commit", "", `{"quantity": `+number+`}`, "quantity")
		bad("force of "+number, "POST", path+"/force", "", `{"end": "commit", "reason": "x", "amount": `+number+`}`, "amount")
		bad("refund of "+number, "POST", path+"/refund", "k", `{"amount": `+number+`}`, "amount")
		bad("lease of "+number, "POST", path+"/start", "", `{"lease_seconds": `+number+`}`, "lease_seconds")
		bad("priority "+number, "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": 1, "priority": `+number+`}`, "priority")
	}
	for _, number := range []string{"0", "-0", "-1", "-9007199254740991"} {
		bad("grant of "+number, "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": `+number+`}`, "amount")
		reserve("quantity "+number, `{"account": "ann", "feature": "text.improve", "quantity": `+number+`}`, "quantity")
		reserve("ttl "+number, `{"account": "ann", "feature": "text.improve", "ttl_seconds": `+number+`}`, "ttl_seconds")
		bad("lease of "+number, "POST", path+"/start", "", `{"lease_seconds": `+number+`}`, "lease_seconds")
		bad("refund of "+number, "POST", path+"/refund", "k", `{"amount": `+number+`}`, "amount")
	}
	bad("adjustment by 0", "POST", "/v1/accounts/ann/adjustments", "k", `{"unit": "credit", "amount": 0, "reason": "x"}`, "amount")
	bad("adjustment without an amount", "POST", "/v1/accounts/ann/adjustments", "k", `{"unit": "credit", "reason": "x"}`, "amount")
	bad("commit of -1", "POST", path+"/commit", "", `{"amount": -1}`, "amount")
	bad("force beyond what is reserved", "POST", path+"/force", "", `{"end": "commit", "amount": 2, "reason": "x"}`, "amount")
	reserve("a ttl that overflows nanoseconds", `{"account": "ann", "feature": "text.improve", "ttl_seconds": 9007199254740991}`, "ttl_seconds")
	reserve("a ttl that wraps to 900 s", `{"account": "ann", "feature": "text.improve", "ttl_seconds": 18446744974}`, "ttl_seconds")
	bad("a lease that overflows", "POST", path+"/start", "", `{"lease_seconds": 9007199254740991}`, "lease_seconds")
	reserve("a quantity that overflows the price", `{"account": "ann", "feature": "file.analyze", "quantity": 9007199254740991}`, "quantity")
	bad("a priority out of range", "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": 1, "priority": 4294967296}`, "priority")
	bad("more than an account may hold", "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": 9007199254740991}`, "amount")
	bad("an amount and a quantity", "POST", path+"/commit", "", `{"amount": 1, "quantity": 1}`, "quantity")

	// Usage, where the price is fixed and where it is by usage.
	chat := "/v1/reservations/" + talking
	for _, usage := range []string{`{}`, `null`, `5`, `[]`, `"x"`, `[{"input_token": 1}]`} {
		bad("commit with usage "+usage, "POST", path+"/commit", "", `{"usage": `+usage+`}`, "usage")
		bad("commit by usage "+usage, "POST", chat+"/commit", "", `{"usage": `+usage+`}`, "usage")
		bad("extend by usage "+usage, "POST", chat+"/extend", "", `{"ttl_seconds": 60, "usage": `+usage+`}`, "usage")
		reserve("by usage "+usage, `{"account": "ann", "feature": "chat.completion", "usage": `+usage+`}`, "usage")
		bad("charge by usage "+usage, "POST", "/v1/charges", "k", `{"account": "ann", "feature": "chat.completion", "usage": `+usage+`}`, "usage")
	}
	for _, number := range []string{"-1", "9007199254740992", "1.5", "1e2", `"1"`, "null", "true"} {
		bad("commit by usage of "+number, "POST", chat+"/commit", "", `{"usage": {"input_token": `+number+`}}`, "usage.input_token")
		bad("extend by usage of "+number, "POST", chat+"/extend", "", `{"usage": {"input_token": `+number+`}}`, "usage.input_token")
		bad("charge of usage "+number, "POST", "/v1/charges", "k", `{"account": "ann", "feature": "chat.completion", "usage": {"output_token": `+number+`}}`, "usage.output_token")
		bad("charge of "+number, "POST", "/v1/charges", "k", `{"account": "ann", "feature": "text.improve", "amount": `+number+`}`, "amount")
		bad("extend by seconds "+number, "POST", path+"/extend", "", `{"ttl_seconds": `+number+`}`, "ttl_seconds")
		bad("extend to a quantity "+number, "POST", path+"/extend", "", `{"ttl_seconds": 60, "quantity": `+number+`}`, "quantity")
		bad("in doubt with a token "+number, "POST", path+"/in_doubt", "", `{"lease_token": `+strings.Trim(number, `"`)+`}`, "lease_token")
	}
	bad("nothing to charge by", "POST", chat+"/commit", "", `{}`, "usage")
	bad("a quantity of usage", "POST", chat+"/commit", "", `{"quantity": 1}`, "quantity")
	bad("usage and an amount", "POST", chat+"/commit", "", `{"amount": 1, "usage": {"input_token": 1}}`, "usage")
	bad("a kind of usage twice", "POST", chat+"/commit", "", `{"usage": {"input_token": 1, "input_token": 2}}`, "usage.input_token")
	bad("a kind in capitals", "POST", chat+"/commit", "", `{"usage": {"INPUT": 1}}`, "usage")
	bad("33 kinds of usage", "POST", chat+"/commit", "", `{"usage": {`+many(33, `"k%d": 1`)+`}}`, "usage")
	bad("usage of nothing said", "POST", "/v1/reservations", "k", `{"account": "ann", "feature": "chat.completion"}`, "usage")
	bad("a quantity of what is by usage", "POST", "/v1/reservations", "k", `{"account": "ann", "feature": "chat.completion", "quantity": 2, "usage": {"input_token": 1}}`, "quantity")
	bad("extend by nothing", "POST", path+"/extend", "", `{}`, "ttl_seconds")
	bad("extend without a body", "POST", path+"/extend", "", ``, "ttl_seconds")
	bad("extend usage by a quantity", "POST", chat+"/extend", "", `{"quantity": 2}`, "quantity")
	bad("extend for two days", "POST", path+"/extend", "", `{"ttl_seconds": 172800}`, "ttl_seconds")
	bad("extend for 0 s", "POST", path+"/extend", "", `{"ttl_seconds": 0}`, "ttl_seconds")
	bad("unknown fields of extend", "POST", path+"/extend", "", `{"ttl": 60, "ttl_seconds": 60, "seconds": 1}`, "ttl", "seconds")
	bad("unknown fields of in doubt", "POST", path+"/in_doubt", "", `{"lease_token": "x", "reason": "y"}`, "reason")
	bad("no key for a charge", "POST", "/v1/charges", "", `{"account": "ann", "feature": "text.improve"}`, keyField)
	bad("wrong fields of a charge", "POST", "/v1/charges", "k", `{"account": "a b", "feature": "X", "quantity": 0, "surface": "FAX", "amount": null, "amonut": 1}`, "account", "feature", "quantity", "surface", "amount", "amonut")
	bad("an amount twice", "POST", "/v1/charges", "k", `{"account": "ann", "feature": "text.improve", "amount": 1, "amount": 1}`, "amount")

	// Fields, features, units, plans.
	reserve("unknown field", `{"account": "ann", "feature": "text.improve", "acount": "x", "colour": 1}`, "acount", "colour")
	reserve("field given twice", `{"account": "ann", "feature": "text.improve", "account": "bob"}`, "account")
	reserve("field given twice in metadata", `{"account": "ann", "feature": "text.improve", "metadata": {"a": "1", "a": "2"}}`, "metadata.a")
	reserve("unknown feature", `{"account": "ann", "feature": "video.generate"}`, "feature")
	reserve("no feature", `{"account": "ann"}`, "feature")
	reserve("feature in capitals", `{"account": "ann", "feature": "TEXT"}`, "feature")
	reserve("unknown surface", `{"account": "ann", "feature": "text.improve", "surface": "fax"}`, "surface")
	bad("unknown unit of a grant", "POST", "/v1/accounts/ann/grants", "k", `{"unit": "gold", "amount": 1}`, "unit")
	bad("unknown unit of an adjustment", "POST", "/v1/accounts/ann/adjustments", "k", `{"unit": "gold", "amount": 1, "reason": "x"}`, "unit")
	bad("unknown feature of a grant", "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": 1, "features": ["text.improve", "x"]}`, "features[1]")
	bad("unknown source", "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": 1, "source": "allowance"}`, "source")
	bad("unknown plan", "POST", "/v1/accounts/ann/subscription", "", `{"plan": "gold"}`, "plan")
	bad("no plan", "POST", "/v1/accounts/ann/subscription", "", `{}`, "plan")
	bad("unknown ending", "POST", path+"/force", "", `{"end": "burn", "reason": "x"}`, "end")
	bad("force without a reason", "POST", path+"/force", "", `{"end": "release"}`, "reason")
	bad("adjustment with a blank reason", "POST", "/v1/accounts/ann/adjustments", "k", `{"unit": "credit", "amount": 1, "reason": "  "}`, "reason")
	bad("a cause that is a sentence", "POST", path+"/release", "", `{"cause": "It Broke"}`, "cause")
	bad("a field of a call without fields", "POST", path+"/cancel", "", `{"reason": "x"}`, "reason")
	bad("unknown choice of pockets", "POST", path+"/refund", "k", `{"ended_pockets": "keep"}`, "ended_pockets")
	bad("a language that is none", "PUT", "/v1/accounts/ann", "", `{"language": "ru_RU!"}`, "language")

	// Types and null.
	reserve("wrong types everywhere", `{"account": 1, "feature": [], "quantity": "1", "usage": [], "surface": {}, "ttl_seconds": true, "metadata": {"a": 1}, "dry_run": "yes"}`,
		"account", "feature", "quantity", "usage", "surface", "ttl_seconds", "metadata.a", "dry_run")
	reserve("null everywhere", `{"account": null, "feature": null, "quantity": null, "usage": null, "surface": null, "ttl_seconds": null, "metadata": null, "dry_run": null}`,
		"account", "feature", "quantity", "usage", "surface", "ttl_seconds", "metadata", "dry_run")
	bad("commit of a null amount", "POST", path+"/commit", "", `{"amount": null}`, "amount")
	bad("a null token", "POST", path+"/commit", "", `{"lease_token": null}`, "lease_token")
	bad("null in a list", "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": 1, "features": [null]}`, "features[0]")
	bad("null in an account", "PUT", "/v1/accounts/ann", "", `{"language": null, "blocked": null}`, "language", "blocked")

	// Times.
	for _, at := range []string{`"tomorrow"`, `"2026-12-01"`, `"2026-12-01T10:00:00"`, `"2026-12-01T10:00:00,5Z"`, `"2026-12-01T1:00:00Z"`, `"2026-12-01T10:00:00+99:00"`, `"2026-12-01t10:00:00z"`, `"2026-13-01T10:00:00Z"`, `"2026-02-30T10:00:00Z"`, `"2026-12-01T10:00:60Z"`, `"2026-12-01T10:00:00+25:00"`, `1764583200`, `"0001-01-01T00:00:00Z"`, `"9999-12-31T23:59:59-14:00"`, `"-001-01-01T00:00:00Z"`, `""`} {
		bad("ends at "+at, "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": 1, "ends_at": `+at+`}`, "ends_at")
	}
	bad("ends before it starts", "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": 1, "starts_at": "2027-01-01T00:00:00+01:00", "ends_at": "2026-12-31T23:00:00Z"}`, "ends_at")
	bad("ended yesterday", "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": 1, "ends_at": "2026-11-30T00:00:00Z"}`, "ends_at")

	// Texts and sizes.
	reserve("NUL in metadata", `{"account": "ann", "feature": "text.improve", "metadata": {"a": "b\u0000"}}`, "metadata.a")
	reserve("NUL in a name of metadata", `{"account": "ann", "feature": "text.improve", "metadata": {"a\u0000": "b"}}`, "metadata")
	reserve("half a pair in a name of metadata", `{"account": "ann", "feature": "text.improve", "metadata": {"\ud800": "b"}}`, "metadata")
	reserve("33 pairs of metadata", `{"account": "ann", "feature": "text.improve", "metadata": {`+many(33, `"n%d": "v"`)+`}}`, "metadata")
	reserve("513 bytes of metadata", `{"account": "ann", "feature": "text.improve", "metadata": {"a": "`+strings.Repeat("v", 513)+`"}}`, "metadata")
	reserve("a usage kind in capitals", `{"account": "ann", "feature": "text.improve", "usage": {"INPUT": 1}}`, "usage")
	bad("a worker of 129 bytes", "POST", path+"/start", "", `{"worker": "`+strings.Repeat("w", 129)+`"}`, "worker")
	bad("a token of 65 bytes", "POST", path+"/commit", "", `{"lease_token": "`+strings.Repeat("t", 65)+`"}`, "lease_token")
	bad("a reason of 501 bytes", "POST", path+"/refund", "k", `{"reason": "`+strings.Repeat("r", 501)+`"}`, "reason")
	bad("65 features", "POST", "/v1/accounts/ann/grants", "k", `{"unit": "credit", "amount": 1, "features": [`+many(65, `"f%d"`)+`]}`, "features")

	// Bodies that are none.
	for _, body := range []string{`[]`, `"x"`, `1`, `null`, `{`, `{"account": "ann"`, `{"account": "ann",}`, `{'account': 'ann'}`, `{"account" "ann"}`, good + good, good + "x", "\ufeff" + good, `{"a": 01}`, `{"a": +1}`, `{"a": .5}`, `{"a": NaN}`, `{"a": "` + "\n" + `"}`, `{"a": "\x"}`, `{"a": "\u12"}`, strings.Repeat("[", 100000), `{"a": ` + strings.Repeat("[", 20) + strings.Repeat("]", 20) + `}`, `{"a": [` + many(5000, `%d`) + `]}`, " "} {
		reserve("body "+body[:min(len(body), 12)], body, "body")
	}
	reserve("a name that is no name", `{"account": "ann", "feature": "text.improve", "`+strings.Repeat("x", 100)+`": 1}`, "body")
	bad("no body where fields are needed", "POST", "/v1/reservations", "k", ``, "account", "feature")

	// Queries.
	bad("no account", "GET", "/v1/reservations", "", "", "account")
	for _, limit := range []string{"0", "-1", "201", "1.0", "01", "+1", "ten", "9999999999999999999999"} {
		bad("limit "+limit, "GET", "/v1/reservations?account=ann&limit="+limit, "", "", "limit")
	}
	bad("unknown parameter", "GET", "/v1/reservations?account=ann&stat=running&Limit=1", "", "", "Limit", "stat")
	bad("a parameter twice", "GET", "/v1/reservations?account=ann&account=bob", "", "", "account")
	bad("unknown state", "GET", "/v1/reservations?account=ann&state=RUNNING", "", "", "state")
	bad("blank key in a query", "GET", "/v1/reservations?account=ann&key=%20", "", "", "key")
	bad("long key in a query", "GET", "/v1/reservations?account=ann&key="+strings.Repeat("k", 256), "", "", "key")
	for _, cursor := range []string{"x", "AAAA", "%00", "%FF", strings.Repeat("A", 5000), "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"} {
		bad("cursor "+cursor[:min(len(cursor), 8)], "GET", "/v1/accounts/ann/entries?cursor="+cursor, "", "", "cursor")
	}
	bad("a query that is none", "GET", "/v1/reservations?account=ann&x=%zz", "", "", "query")
	bad("a query where none is taken", "GET", "/v1/accounts/ann?as_of=2026", "", "", "as_of")
	for _, at := range []string{"2026", "tomorrow", "2026-12-01T10:00:00+01:00", "2026-12-01T10:00:00.0000001%2B25:00", "2026-12-01T10:00:01Z", "9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "%00"} {
		bad("balance as of "+at, "GET", "/v1/accounts/ann/balance?as_of="+at, "", "", "as_of")
	}
	bad("balance as of two moments", "GET", "/v1/accounts/ann/balance?as_of=2026-12-01T10:00:00Z&as_of=2026-12-01T09:00:00Z", "", "", "as_of")
	bad("balance of no name", "GET", "/v1/accounts/a%20b/balance?at=x", "", "", "account", "at")
	bad("a table in part", "GET", "/v1/accounts/ann/entries.csv?limit=1", "", "", "limit")
	bad("a table of no name", "GET", "/v1/accounts/a%20b/entries.csv", "", "", "account")
	bad("explain nothing", "GET", "/v1/accounts/ann/explain", "", "", "feature")
	bad("explain an unknown feature", "GET", "/v1/accounts/ann/explain?feature=video", "", "", "feature")
	bad("explain to no name", "GET", "/v1/accounts/a%20b/explain?feature=X", "", "", "account", "feature")
	for _, number := range []string{"0", "-1", "1.0", "1e3", "01", "%2B1", "x", "9007199254740992", "%22" + "1%22", "1%201", "[1]", "null"} {
		bad("explain a quantity "+number, "GET", "/v1/accounts/ann/explain?feature=text.improve&quantity="+number, "", "", "quantity")
		if number != "0" {
			field := "usage[input_token]"
			if number == "-1" {
				field = "usage.input_token"
			}
			bad("explain usage "+number, "GET", "/v1/accounts/ann/explain?feature=chat.completion&usage[input_token]="+number, "", "", field)
		}
	}
	bad("explain usage that is missing", "GET", "/v1/accounts/ann/explain?feature=chat.completion", "", "", "usage")
	bad("explain usage that is none", "GET", "/v1/accounts/ann/explain?feature=chat.completion&usage=5&usage[=1&usage]=1", "", "", "usage", "usage[", "usage]")
	bad("explain usage of no kind", "GET", "/v1/accounts/ann/explain?feature=chat.completion&usage[]=1", "", "", "usage")
	bad("explain usage of a kind twice", "GET", "/v1/accounts/ann/explain?feature=text.improve&usage[a]=1&usage[a]=2", "", "", "usage[a]")
	bad("explain with other brackets", "GET", "/v1/accounts/ann/explain?feature=text.improve&quantity[a]=1", "", "", "quantity[a]")
	bad("a field of a deletion", "DELETE", "/v1/accounts/ann", "", `{"reason": "x"}`, "reason")
	bad("a deletion of no name", "DELETE", "/v1/accounts/a%20b", "", ``, "account")
	bad("a query on a reservation", "GET", path+"?explain=1", "", "", "explain")
	bad("a query on a call", "POST", path+"/commit?amount=1", "", `{}`, "amount")

	// Names. The other one is looked at before anything is done with either.
	for _, c := range []struct{ path, field string }{{"/aliases", "alias"}, {"/merge", "from"}} {
		for _, name := range []string{`""`, `"a b"`, `"a/b"`, `"a%b"`, `"` + strings.Repeat("a", 129) + `"`, `"a\u0000"`, `"\ud800"`, `7`, `null`, `[]`, `"ann"`} {
			bad(c.field+" "+name[:min(len(name), 9)], "POST", "/v1/accounts/ann"+c.path, "k", `{"`+c.field+`": `+name+`}`, c.field)
		}
		bad("no "+c.field, "POST", "/v1/accounts/ann"+c.path, "k", `{}`, c.field)
		bad("no body with "+c.field, "POST", "/v1/accounts/ann"+c.path, "k", ``, c.field)
		bad("no name to link "+c.field+" to", "POST", "/v1/accounts/a%20b"+c.path, "k", `{"`+c.field+`": "web:7"}`, "account")
		bad("two names that are none, by "+c.field, "POST", "/v1/accounts/a%20b"+c.path, "k", `{"`+c.field+`": "", "to": 1}`, "account", c.field, "to")
		bad("256 bytes of key with "+c.field, "POST", "/v1/accounts/ann"+c.path, strings.Repeat("k", 256), `{"`+c.field+`": "web:7"}`, keyField)
	}
	bad("a merge without a key", "POST", "/v1/accounts/ann/merge", "", `{"from": "web:7"}`, keyField)
	bad("a merge without anything", "POST", "/v1/accounts/ann/merge", "", ``, keyField, "from")

	// Payments. What a provider calls things is bounded, in the body as in the path.
	pay := func(name, field, value string, fields ...string) {
		parts := map[string]string{"provider": `"stars"`, "payment_id": `"c1"`, "account": `"ann"`, "product": `"credits_100"`, "amount": "100", "currency": `"XTR"`}
		parts[field] = value
		var list []string
		for _, part := range sortedKeys(parts) {
			if parts[part] != "" {
				list = append(list, fmt.Sprintf("%q: %s", part, parts[part]))
			}
		}
		bad(name, "POST", "/v1/payments", "", "{"+strings.Join(list, ", ")+"}", fields...)
	}
	for _, field := range []string{"provider", "payment_id", "account", "product", "amount", "currency"} {
		pay("a payment without "+field, field, "", field)
		pay("a payment with null for "+field, field, "null", field)
		pay("a payment with a list for "+field, field, "[]", field)
		pay("a payment with an empty "+field, field, `""`, field)
	}
	for _, number := range []string{"-1", "1.0", "1e2", `"100"`, "9007199254740992", "true"} {
		pay("a payment of "+number, "amount", number, "amount")
		bad("a refund of a payment of "+number, "POST", "/v1/payments/stars/c1/refunds", "", `{"refund_id": "r1", "amount": `+number+`}`, "amount")
	}
	pay("a provider in capitals", "provider", `"Stars"`, "provider")
	pay("a provider of 65 bytes", "provider", `"`+strings.Repeat("p", 65)+`"`, "provider")
	pay("a payment id of 256 bytes", "payment_id", `"`+strings.Repeat("p", 256)+`"`, "payment_id")
	pay("a payment id with a newline", "payment_id", `"a\nb"`, "payment_id")
	pay("half a pair in a payment id", "payment_id", `"\ud800"`, "payment_id")
	pay("a payment for a name with a space", "account", `"a b"`, "account")
	pay("a product that is a sentence", "product", `"Pro Plan"`, "product")
	for _, currency := range []string{"xtr", "XT", "XTRR", "X1R", "ЖТР"} {
		pay("the currency "+currency, "currency", `"`+currency+`"`, "currency")
	}
	pay("a period's end that is no time", "period_end", `"tomorrow"`, "period_end")
	pay("a period of what has none", "period_end", `"2026-12-30T10:00:00Z"`, "period_end")
	pay("unknown fields of a payment", "price", "1", "price")
	bad("a payment of nothing", "POST", "/v1/payments", "", `{}`, "provider", "payment_id", "account", "product", "amount", "currency")
	bad("a query on a payment", "POST", "/v1/payments?dry_run=1", "", `{"provider": "stars", "payment_id": "c1", "account": "ann", "product": "credits_100", "amount": 100, "currency": "XTR"}`, "dry_run")
	for _, c := range []struct{ method, suffix, body string }{{"GET", "", ""}, {"POST", "/refunds", `{"refund_id": "r1"}`}} {
		for _, id := range []string{"%00", "%FF", "%C3%28", "%0A", strings.Repeat("a", 256)} {
			bad(c.method+" payment "+id[:min(len(id), 6)], c.method, "/v1/payments/stars/"+id+c.suffix, "", c.body, "payment_id")
		}
		for _, provider := range []string{"Stars", "a%20b", "%00", strings.Repeat("a", 65)} {
			bad(c.method+" payment of "+provider[:min(len(provider), 6)], c.method, "/v1/payments/"+provider+"/c1"+c.suffix, "", c.body, "provider")
		}
		bad(c.method+" payment with a query", c.method, "/v1/payments/stars/c1"+c.suffix+"?x=1", "", c.body, "x")
	}
	refunds := "/v1/payments/stars/c1/refunds"
	bad("a refund of nothing", "POST", refunds, "", `{}`, "refund_id")
	bad("a refund without a body", "POST", refunds, "", ``, "refund_id")
	bad("a refund of 0", "POST", refunds, "", `{"refund_id": "r1", "amount": 0}`, "amount")
	bad("a refund id of 256 bytes", "POST", refunds, "", `{"refund_id": "`+strings.Repeat("r", 256)+`"}`, "refund_id")
	bad("a refund id with NUL", "POST", refunds, "", `{"refund_id": "a\u0000"}`, "refund_id")
	for _, policy := range []string{`""`, `"burn"`, `"REVOKE_UNUSED"`, `1`, `[]`} {
		bad("a refund by "+policy, "POST", refunds, "", `{"refund_id": "r1", "policy": `+policy+`}`, "policy")
	}
	bad("a dispute that is a text", "POST", refunds, "", `{"refund_id": "r1", "dispute": "yes"}`, "dispute")
	bad("wrong fields of a refund in a wrong place", "POST", "/v1/payments/A/c1/refunds", "", `{"refund_id": null, "amount": "1", "reason": "x"}`, "provider", "refund_id", "amount", "reason")

	// Subscriptions.
	change := "/v1/accounts/ann/subscription/change"
	bad("a change to nothing", "POST", change, "", `{}`, "plan")
	bad("a change without a body", "POST", change, "", ``, "plan")
	bad("a change to an unknown plan", "POST", change, "", `{"plan": "gold"}`, "plan")
	bad("a change to a plan in capitals", "POST", change, "", `{"plan": "PRO"}`, "plan")
	for _, when := range []string{`"later"`, `"NOW"`, `null`, `1`} {
		bad("a change at "+when, "POST", change, "", `{"plan": "pro", "when": `+when+`}`, "when")
	}
	for _, call := range []string{"cancel", "resume"} {
		bad("a field of "+call, "POST", "/v1/accounts/ann/subscription/"+call, "", `{"when": "now"}`, "when")
		bad(call+" of no name", "POST", "/v1/accounts/a%20b/subscription/"+call, "", ``, "account")
	}
	bad("256 bytes of key for a change", "POST", change, strings.Repeat("k", 256), `{"plan": "pro"}`, keyField)

	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			s.t = t
			r := s.call(c.method, c.path, c.body, "Idempotency-Key: "+c.key).problem(400, holdfast.Invalid)
			slices.Sort(c.fields)
			got := r.names()
			slices.Sort(got)
			if !slices.Equal(slices.Compact(got), c.fields) {
				t.Errorf("names %v, want %v: %s", got, c.fields, r.raw)
			}
		})
	}
	s.t = t
	if s.engine.everything(t) != before {
		t.Error("bad input moved something")
	}
}

func many(n int, format string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(list, ", ")
}

func TestNoProblemRepeatsAValue(t *testing.T) {
	s := newServer(t)
	for _, body := range []string{
		`{"account": "SECRETVALUE here", "feature": "SECRETVALUE", "quantity": "SECRETVALUE", "surface": "SECRETVALUE", "metadata": {"a": ["SECRETVALUE"]}}`,
		`{"account": "ann", "feature": "text.improve", "usage": {"SECRETVALUE": 1}}`,
		`{"account": "SECRETVALUE`,
	} {
		r := s.post("/v1/reservations", strings.Repeat("SECRETVALUE", 30), body).problem(400, holdfast.Invalid)
		if strings.Contains(r.raw, "SECRETVALUE") {
			t.Errorf("the value came back: %s", r.raw)
		}
	}
	r := s.get("/v1/reservations?account=a%20SECRETVALUE&state=SECRETVALUE&cursor=SECRETVALUE&limit=SECRETVALUE").problem(400, holdfast.Invalid)
	if strings.Contains(r.raw, "SECRETVALUE") {
		t.Errorf("the value came back: %s", r.raw)
	}
}

func TestOneAnswerListsBoundedlyManyProblems(t *testing.T) {
	s := newServer(t)
	r := s.post("/v1/reservations", "k", `{`+many(1000, `"unknown%d": 1`)+`}`).problem(400, holdfast.Invalid)
	if n := len(r.names()); n != maxProblems {
		t.Errorf("%d problems", n)
	}
	var query []string
	for i := range 1000 {
		query = append(query, fmt.Sprintf("unknown%d=1", i))
	}
	if n := len(s.get("/v1/reservations?"+strings.Join(query, "&")).problem(400, holdfast.Invalid).names()); n != maxProblems {
		t.Errorf("%d problems", n)
	}
}

func TestAMisspeltFieldGetsItsNearestName(t *testing.T) {
	s := newServer(t)
	for body, want := range map[string]string{
		`{"acount": "x"}`:   "account",
		`{"Feature": "x"}`:  "feature",
		`{"ttl_second": 1}`: "ttl_seconds",
		`{"zebra": 1}`:      "use account, feature, quantity",
	} {
		r := s.post("/v1/reservations", "k", body).problem(400, holdfast.Invalid)
		if hint := r.body["problems"].([]any)[0].(map[string]any)["hint"].(string); !strings.Contains(hint, want) {
			t.Errorf("%s: %s", body, hint)
		}
	}
	r := s.get("/v1/reservations?acount=ann").problem(400, holdfast.Invalid)
	if hint := r.body["problems"].([]any)[0].(map[string]any)["hint"].(string); !strings.Contains(hint, "account") {
		t.Errorf("query: %s", hint)
	}
}

func TestBodiesAreBoundedAndPlainJSON(t *testing.T) {
	s := newServer(t)
	before := s.engine.everything(t)
	good := `{"account": "ann", "feature": "text.improve"}`
	s.post("/v1/reservations", "k", good+strings.Repeat(" ", holdfast.MaxBodyBytes)).problem(413, "too_large")
	for _, content := range []string{"text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1", "application/problem+json", "nonsense;;"} {
		r := s.post("/v1/reservations", "k", good, "Content-Type: "+content).problem(400, holdfast.Invalid)
		if got := r.names(); !slices.Equal(got, []string{"Content-Type"}) {
			t.Errorf("%q: %v", content, got)
		}
	}
	r := s.post("/v1/reservations", "k", good, "Content-Encoding: gzip").problem(400, holdfast.Invalid)
	if got := r.names(); !slices.Equal(got, []string{"Content-Encoding"}) {
		t.Errorf("gzip: %v", got)
	}
	for name, headers := range map[string][]string{
		"Idempotency-Key":        {"Idempotency-Key: a", "Idempotency-Key: b"},
		"Holdfast-Retry-Refused": {"Idempotency-Key: a", "Holdfast-Retry-Refused: yes"},
		"Content-Type":           {"Idempotency-Key: a", "Content-Type: application/json", "Content-Type: text/plain"},
	} {
		r := s.call("POST", "/v1/reservations", good, headers...).problem(400, holdfast.Invalid)
		if got := r.names(); !slices.Equal(got, []string{name}) {
			t.Errorf("%v: %v", headers, got)
		}
	}
	if s.engine.everything(t) != before {
		t.Error("something moved")
	}
	s.post("/v1/reservations", "k", good, "Content-Type: application/json; charset=UTF-8").is(201)
	padded := `{"account": "bob", "feature": "text.improve"}`
	s.post("/v1/reservations", "k", padded+strings.Repeat(" ", holdfast.MaxBodyBytes-len(padded))).is(201)
}

func TestIdsOfNothingAndOfAnotherProjectAreNotFound(t *testing.T) {
	s := newServer(t)
	mine := s.reserve("ann", "m1")
	account := holdfast.AccountIDOf("shop", "ann")
	ids := map[string]string{
		"no id":                  "x",
		"the prefix alone":       "rsv_",
		"a grant's":              holdfast.GrantRef.Encode(account, holdfast.ID{1}),
		"in capitals":            strings.ToUpper(mine),
		"cut short":              mine[:len(mine)-1],
		"of zeros":               holdfast.ReservationRef.Encode(holdfast.AccountID{}, holdfast.ID{}),
		"no reservation's":       holdfast.ReservationRef.Encode(account, holdfast.ID{1, 2, 3}),
		"an account's, of zeros": holdfast.ReservationRef.Encode(account, holdfast.ID{}),
		"an unknown account's":   holdfast.ReservationRef.Encode(holdfast.AccountIDOf("shop", "nobody"), holdfast.ID{1}),
		"NUL":                    "%00", "no UTF-8": "%FF", "a slash": "a%2Fb",
	}
	before := s.engine.everything(t)
	for name, id := range ids {
		t.Run(name, func(t *testing.T) {
			s.t = t
			commands := s.engine.commands
			if _, _, err := holdfast.ReservationRef.Parse(id); err != nil {
				defer func() {
					if s.engine.commands != commands {
						t.Error("a command was made of what is no id")
					}
				}()
			}
			s.get("/v1/reservations/"+id).problem(404, holdfast.NotFound)
			for verb, body := range verbs {
				s.post("/v1/reservations/"+id+"/"+verb, "k", body).problem(404, holdfast.NotFound)
				s.post("/v1/reservations/"+id+"/"+verb, "k", `{"nonsense": 1}`).problem(400, holdfast.Invalid)
			}
		})
	}
	s.t = t
	for verb, body := range verbs {
		s.post("/v1/reservations/"+mine+"/"+verb, "k", body, "Authorization: Bearer "+otherKey).problem(404, holdfast.NotFound)
	}
	s.get("/v1/reservations/"+mine, "Authorization: Bearer "+otherKey).problem(404, holdfast.NotFound)
	s.get("/v1/reservations?account=ann", "Authorization: Bearer "+otherKey).problem(404, holdfast.NotFound)
	s.get("/v1/accounts/ann", "Authorization: Bearer "+otherKey).is(200).has(`{"exists": false}`)
	if s.engine.everything(t) != before {
		t.Error("something moved")
	}
}

// verbs are the calls on a reservation, each with a body that it takes.
var verbs = map[string]string{
	"start": `{}`, "heartbeat": `{"lease_token": "x"}`, "commit": `{}`, "release": `{}`, "cancel": `{}`, "refund": `{}`,
	"extend": `{"ttl_seconds": 60}`, "in_doubt": `{"lease_token": "x"}`,
	"force": `{"end": "release", "reason": "x"}`,
}

func TestOldLeasesAndEndedReservationsAreToldSoAndMoveNothing(t *testing.T) {
	s := newServer(t)
	path := "/v1/reservations/" + s.reserve("ann", "m1")
	old := s.call("POST", path+"/start", ``).is(200).text("lease_token")
	s.engine.pass(2 * time.Minute)
	token := s.call("POST", path+"/start", ``).is(200).text("lease_token")
	before := s.engine.everything(t)
	for _, verb := range []string{"heartbeat", "commit", "release"} {
		s.call("POST", path+"/"+verb, `{"lease_token": "`+old+`"}`).problem(409, holdfast.StaleLease)
	}
	if s.engine.everything(t) != before {
		t.Error("an old lease moved something")
	}
	s.call("POST", path+"/release", `{"lease_token": "`+token+`"}`).is(200)
	before = s.engine.everything(t)
	for verb, body := range map[string]string{"start": ``, "heartbeat": `{"lease_token": "` + token + `"}`, "commit": `{}`, "force": `{"end": "commit", "amount": 1, "reason": "x"}`} {
		s.call("POST", path+"/"+verb, body).problem(409, holdfast.AlreadyEnded)
	}
	s.post(path+"/refund", "k", ``).problem(409, holdfast.NotCommitted)
	if got := s.get(path).is(http.StatusOK).text("state"); got != "released" {
		t.Errorf("the reservation is %s", got)
	}
	moved := strings.Replace(s.engine.everything(t), before, "", 1)
	if strings.Contains(moved, `"State":"committed"`) {
		t.Error("an ended reservation was charged")
	}
}

func TestWhatIsLeftOutMayBeSentEmpty(t *testing.T) {
	s := newServer(t)
	s.reserve("ann", "m1")
	s.get("/v1/reservations?account=ann&state=&key=&limit=&cursor=").is(200).has(`{"next_cursor": null}`)
	s.get("/v1/reservations?account=&state=reserved").problem(400, holdfast.Invalid)
	request, err := http.NewRequest("POST", s.url+"/v1/reservations", strings.NewReader(`{"account": "bob", "feature": "text.improve"}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+allKey)
	request.Header.Set("Idempotency-Key", "m1")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	if response.StatusCode != http.StatusCreated {
		t.Errorf("a body without a Content-Type: %d", response.StatusCode)
	}
}
