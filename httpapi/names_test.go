package httpapi

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-dev/holdfast"
)

func TestAnAliasIsAnotherNameOfTheAccount(t *testing.T) {
	eachStore(t, catalog(), func(t *testing.T, h *house) {
		h.call("POST", "/v1/accounts/ann/aliases", `{"alias": "web:7"}`).problem(404, holdfast.NotFound)
		h.get("/v1/accounts/web:7").is(200).has(`{"exists": false}`)
		h.give("ann", "image", 5)
		for key, want := range map[string]int{"": 201, "a1": 201} {
			alias := "web:7" + key
			body := fmt.Sprintf(`{"alias": %q}`, alias)
			h.call("POST", "/v1/accounts/ann/aliases", body, "Idempotency-Key: "+key).is(want).has(fmt.Sprintf(`{"account": "ann", "merged_into": null, "alias": %q, "changed": true,
				"balances": [{"unit": "credit", "available": 3, "reserved": 0, "debt": 0, "cycle": {"granted": 3, "used": 0, "reserved": 0, "voided": 0, "starts_at": null, "ends_at": null}, "resets_at": null},
					{"unit": "image", "available": 5, "reserved": 0, "debt": 0, "cycle": null, "resets_at": null}]}`, alias))
			h.call("POST", "/v1/accounts/ann/aliases", body).is(200).has(`{"changed": false}`)
		}
		if r := h.call("POST", "/v1/accounts/ann/aliases", `{"alias": "web:7a1"}`, "Idempotency-Key: a1").is(201); r.header.Get("Idempotent-Replayed") != "true" {
			t.Error("the replay is not marked")
		}
		// An alias of an alias is one of the account.
		h.call("POST", "/v1/accounts/web:7/aliases", `{"alias": "mail:x"}`).is(201).has(`{"account": "web:7", "merged_into": "ann", "alias": "mail:x"}`)

		// Whatever is asked by the new name is done for the account, and told by the name that was asked for.
		id := h.post("/v1/reservations", "m1", `{"account": "mail:x", "feature": "image.generate"}`).is(201).has(`{"account": "mail:x"}`).text("id")
		h.post("/v1/reservations", "m1", `{"account": "ann", "feature": "image.generate"}`).is(201).has(fmt.Sprintf(`{"id": %q, "account": "ann"}`, id))
		h.get("/v1/reservations/" + id).is(200).has(`{"account": "ann", "state": "reserved"}`)
		h.call("POST", "/v1/reservations/"+id+"/commit", `{}`).is(200).has(`{"account": "ann", "used": 1}`)
		h.post("/v1/accounts/web:7/grants", "g1", `{"unit": "image", "amount": 2}`).is(201)
		h.call("PUT", "/v1/accounts/web:7", `{"language": "ru"}`).is(200).has(`{"account": "web:7", "merged_into": "ann", "language": "ru"}`)
		for _, name := range []string{"ann", "web:7", "mail:x"} {
			mergedInto := `"ann"`
			if name == "ann" {
				mergedInto = "null"
			}
			h.get("/v1/accounts/" + name).is(200).has(fmt.Sprintf(`{"account": %q, "merged_into": %s, "exists": true, "language": "ru"}`, name, mergedInto))
			h.get("/v1/accounts/" + name + "/balance").is(200).has(fmt.Sprintf(`{"account": %q, "merged_into": %s}`, name, mergedInto))
			h.get("/v1/accounts/" + name + "/explain?feature=image.generate").is(200).has(fmt.Sprintf(`{"account": %q, "merged_into": %s, "allowed": true}`, name, mergedInto))
			for path, want := range map[string]int{"/v1/accounts/" + name + "/entries?": 4, "/v1/accounts/" + name + "/grants?": 2, "/v1/reservations?account=" + name + "&key=m1&": 1} {
				if items := h.get(path + "limit=9").is(200).body["items"].([]any); len(items) != want {
					t.Errorf("%s lists %d, want %d", path, len(items), want)
				}
			}
			if table := h.get("/v1/accounts/" + name + "/entries.csv").is(200).raw; strings.Count(table, "\r\n") != 5 {
				t.Errorf("%s: the table is\n%s", name, table)
			}
		}
		h.verify()
	})
}

func TestAnAccountOfItsOwnIsNoAliasButCanBeMerged(t *testing.T) {
	eachStore(t, catalog(), func(t *testing.T, h *house) {
		h.give("ann", "image", 5)
		h.give("bob", "image", 2)
		refused := h.call("POST", "/v1/accounts/ann/aliases", `{"alias": "bob"}`, "Accept-Language: ru").problem(409, holdfast.AccountExists)
		if !strings.ContainsAny(refused.text("detail"), "аеио") {
			t.Errorf("in Russian: %s", refused.raw)
		}
		h.call("POST", "/v1/accounts/ann/merge", `{"from": "bob"}`).problem(400, holdfast.Invalid)
		h.post("/v1/accounts/ann/merge", "m1", `{"from": "nobody"}`).problem(404, holdfast.NotFound)
		h.post("/v1/accounts/nobody/merge", "m1", `{"from": "bob"}`).problem(404, holdfast.NotFound)
		h.get("/v1/accounts/nobody").is(200).has(`{"exists": false}`)

		taken := h.post("/v1/accounts/ann/merge", "m1", `{"from": "bob"}`).is(200).has(`{"account": "ann", "merged_into": null, "changed": true}`)
		taken.available("image", 7)
		if again := h.post("/v1/accounts/ann/merge", "m1", `{"from": "bob"}`).is(200).has(`{"changed": true}`); again.header.Get("Idempotent-Replayed") != "true" {
			t.Error("the replay is not marked")
		}
		h.post("/v1/accounts/ann/merge", "m2", `{"from": "bob"}`).is(200).has(`{"changed": false}`)
		h.post("/v1/accounts/bob/merge", "m3", `{"from": "ann"}`).problem(400, holdfast.Invalid)
		h.call("POST", "/v1/accounts/ann/aliases", `{"alias": "bob"}`).is(200).has(`{"changed": false}`)
		h.post("/v1/accounts/ann/merge", "m1", `{"from": "ann"}`).problem(400, holdfast.Invalid)
		h.give("eve", "image", 1)
		h.post("/v1/accounts/eve/merge", "m1", `{"from": "bob"}`).problem(422, holdfast.KeyReused)
		h.verify()
	})
}

// What runs goes on by the id that was handed out, and what it returns follows.
func TestAReservationOutlivesTheMergeOfItsAccount(t *testing.T) {
	eachStore(t, catalog(), func(t *testing.T, h *house) {
		h.call("PUT", "/v1/accounts/ann", ``).is(200)
		h.give("bob", "image", 9)
		h.call("POST", "/v1/accounts/bob/subscription", `{"plan": "pro"}`).is(200)
		reserve := func(key string, quantity int) string {
			return h.post("/v1/reservations", key, fmt.Sprintf(`{"account": "bob", "feature": "image.generate", "quantity": %d}`, quantity)).is(201).text("id")
		}
		committed, released := reserve("m1", 4), reserve("m2", 2)
		token := h.call("POST", "/v1/reservations/"+committed+"/start", `{}`).is(200).text("lease_token")
		h.post("/v1/accounts/ann/merge", "k", `{"from": "bob"}`).is(200).has(`{"changed": true, "plan": "pro"}`)
		images := func(want int) {
			t.Helper()
			for _, name := range []string{"ann", "bob"} {
				h.get("/v1/accounts/"+name).is(200).available("image", want)
			}
		}
		images(3)

		// A repetition by the old name is answered as before; what is new is the other account's.
		h.post("/v1/reservations", "m1", `{"account": "bob", "feature": "image.generate", "quantity": 4}`).is(201).has(fmt.Sprintf(`{"id": %q, "reserved": 4}`, committed))
		h.get("/v1/reservations/" + committed).is(200).has(`{"account": "bob", "state": "running"}`)
		h.call("POST", "/v1/reservations/"+committed+"/heartbeat", `{"lease_token": "`+token+`"}`).is(200)
		done := h.call("POST", "/v1/reservations/"+committed+"/commit", `{"quantity": 2, "lease_token": "`+token+`"}`).is(200).has(`{"used": 2, "returned": 2, "changed": true}`)
		if balance := done.body["balance"].(map[string]any); fmt.Sprint(balance["available"]) != "3" {
			t.Errorf("told the balance of the account that holds nothing: %s", done.raw)
		}
		h.call("POST", "/v1/reservations/"+released+"/release", `{}`).is(200).has(`{"returned": 2}`)
		images(3)
		if err := h.engine.Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		images(7)
		if shown := h.get("/v1/reservations/" + committed).is(200).has(`{"account": "bob", "state": "committed"}`); fmt.Sprint(shown.body["balance"].(map[string]any)["available"]) != "7" {
			t.Errorf("shown with the balance of the account that holds nothing: %s", shown.raw)
		}
		h.post("/v1/reservations/"+committed+"/refund", "r1", `{}`).is(200).has(`{"refunded": 2}`)
		if err := h.engine.Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		images(9)
		h.verify()
	})
}

// By an old name a person finds what was made by it, before the merge and since; by a key also what was made under it there.
func TestReservationsAreListedByAnOldNameAsItsKeysAreAnswered(t *testing.T) {
	eachStore(t, catalog(), func(t *testing.T, h *house) {
		ids := map[string]string{}
		reserve := func(account, key string) {
			t.Helper()
			id := h.post("/v1/reservations", key, fmt.Sprintf(`{"account": %q, "feature": "image.generate"}`, account)).is(201).text("id")
			ids[account+" "+key] = id
			h.call("POST", "/v1/reservations/"+id+"/commit", `{}`).is(200)
		}
		lists := func(path string, want ...string) {
			t.Helper()
			for i, name := range want {
				want[i] = ids[name]
			}
			for _, limit := range []int{1, 2, 50} {
				var got []string
				for page, cursor := 0, ""; page <= len(want)+1; page++ {
					r := h.get(fmt.Sprintf("/v1/reservations?limit=%d&%s%s", limit, path, cursor)).is(200)
					for _, item := range r.body["items"].([]any) {
						shown := item.(map[string]any)
						got = append(got, shown["id"].(string))
						if !strings.Contains(path, "account="+shown["account"].(string)) {
							t.Errorf("%s shows the name %s", path, shown["account"])
						}
					}
					if r.body["next_cursor"] == nil {
						break
					}
					cursor = "&cursor=" + r.text("next_cursor")
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s by %d: %q, want %q", path, limit, got, want)
				}
			}
		}
		for _, name := range []string{"ann", "bob", "eve"} {
			h.give(name, "image", 9)
		}
		reserve("bob", "k1")
		reserve("ann", "k2")
		reserve("bob", "k3")
		h.post("/v1/accounts/ann/merge", "m1", `{"from": "bob"}`).is(200)
		h.call("POST", "/v1/accounts/bob/aliases", `{"alias": "bob@web"}`).is(201)
		reserve("ann", "k1")
		reserve("bob", "k4")
		lists("account=bob", "bob k4", "ann k1", "bob k3", "ann k2", "bob k1")
		lists("account=bob&key=k1", "ann k1", "bob k1")
		lists("account=bob&key=k3", "bob k3")
		lists("account=bob&key=k4&state=committed", "bob k4")
		lists("account=bob&state=reserved")
		for _, name := range []string{"ann", "bob@web"} { // which never were bob
			lists("account="+name, "bob k4", "ann k1", "ann k2")
			lists("account=" + name + "&key=k3")
		}
		// A page that was begun before a further merge is gone on with after it.
		cursor := h.get("/v1/reservations?account=bob&limit=2").is(200).text("next_cursor")
		h.post("/v1/accounts/eve/merge", "m2", `{"from": "ann"}`).is(200)
		reserve("bob", "k5")
		if rest := h.get("/v1/reservations?account=bob&cursor=" + cursor).is(200).body["items"].([]any); len(rest) != 3 || rest[0].(map[string]any)["id"] != ids["bob k3"] {
			t.Errorf("gone on with: %v", rest)
		}
		lists("account=bob", "bob k5", "bob k4", "ann k1", "bob k3", "ann k2", "bob k1")
		h.get("/v1/reservations?account=ann&cursor="+cursor).problem(400, holdfast.Invalid)
		h.get("/v1/reservations?account=nobody").problem(404, holdfast.NotFound)
		h.verify()
	})
}

func TestTheOldestOfMergedAccountsPaysOnceAndOneMergeTooManyIsRefused(t *testing.T) {
	eachStore(t, catalog(), func(t *testing.T, h *house) {
		h.give("n0", "image", 9)
		ids := []string{h.post("/v1/reservations", "k0", `{"account": "n0", "feature": "image.generate"}`).is(201).text("id")}
		last := "n0"
		for i := 1; i <= holdfast.MaxNames; i++ {
			into := fmt.Sprint("n", i)
			h.give(into, "image", 1)
			h.post("/v1/accounts/"+into+"/merge", "m", fmt.Sprintf(`{"from": %q}`, last)).is(200).has(`{"changed": true}`)
			last = into
			ids = append(ids, h.post("/v1/reservations", fmt.Sprint("k", i), `{"account": "n0", "feature": "image.generate"}`).is(201).text("id"))
		}
		for i, id := range ids {
			h.post("/v1/reservations", fmt.Sprint("k", i), `{"account": "n0", "feature": "image.generate"}`).is(201).has(fmt.Sprintf(`{"id": %q}`, id))
			h.call("POST", "/v1/reservations/"+id+"/release", `{}`).is(200).has(`{"returned": 1}`)
		}
		if err := h.engine.Move(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.get("/v1/accounts/n0").is(200).has(fmt.Sprintf(`{"merged_into": %q}`, last)).available("image", 9+holdfast.MaxNames)

		h.give("eve", "image", 1)
		h.post("/v1/accounts/eve/merge", "m", fmt.Sprintf(`{"from": %q}`, last)).problem(400, holdfast.Invalid).
			has(`{"problems": [{"field": "from", "hint": "let it take the other account in instead: 8 accounts in a row lead to it already"}]}`)
		h.get("/v1/accounts/eve").is(200).has(`{"merged_into": null}`).available("image", 1)
		h.get("/v1/accounts/n0").is(200).has(fmt.Sprintf(`{"merged_into": %q}`, last)).available("image", 9+holdfast.MaxNames)
		h.post("/v1/accounts/"+last+"/merge", "eve", `{"from": "eve"}`).is(200).has(`{"changed": true}`)
		for _, name := range []string{"n0", last, "eve"} {
			h.get("/v1/accounts/"+name).is(200).available("image", 10+holdfast.MaxNames)
		}
		h.verify()
	})
}

func TestOnlyNamesOfTheProjectAreLinked(t *testing.T) {
	s := whole(t)
	s.give("ann", "image", 5)
	const other = "Authorization: Bearer " + otherKey
	s.call("POST", "/v1/accounts/ann/aliases", `{"alias": "web:7"}`, other).problem(404, holdfast.NotFound)
	s.call("PUT", "/v1/accounts/bob", ``, other).is(200)
	s.post("/v1/accounts/bob/merge", "m1", `{"from": "ann"}`, other).problem(404, holdfast.NotFound)
	s.post("/v1/accounts/ann/merge", "m1", `{"from": "bob"}`).problem(404, holdfast.NotFound)
	s.call("POST", "/v1/accounts/bob/aliases", `{"alias": "ann"}`, other).is(201)
	s.get("/v1/accounts/ann").is(200).has(`{"account": "ann", "merged_into": null}`)
	s.get("/v1/accounts/ann", other).is(200).has(`{"account": "ann", "merged_into": "bob"}`)
}
