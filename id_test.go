package holdfast

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"
)

// The vector of RFC 9562, appendix A.4.
func TestNamedIDsAreThoseOfTheRFC(t *testing.T) {
	dns := [16]byte(uuid.NameSpaceDNS)
	if got := formatUUID(newUUIDv5(dns, "www.example.com")); got != "2ed6657d-e927-568b-95e1-2665a8aea6a2" {
		t.Errorf("got %s", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.String().Draw(t, "name")
		if got, want := newUUIDv5(dns, name), uuid.NewSHA1(uuid.NameSpaceDNS, []byte(name)); got != [16]byte(want) {
			t.Errorf("%q: got %s, want %s", name, formatUUID(got), want)
		}
	})
}

// The ids of accounts are in every database: they must never become others.
func TestAccountIDsStayWhatTheyAre(t *testing.T) {
	for name, want := range map[string]string{
		"telegram:42": "177ecc7e-f155-5e61-9ec1-278a469e8f6b",
		"ann":         "2184141f-fbed-548d-88b6-2e0341910f41",
	} {
		if got := AccountIDOf("dev", name).String(); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	if got := ID(holdfastNamespace).String(); got != uuid.NewSHA1(uuid.NameSpaceDNS, []byte("holdfast.dev")).String() {
		t.Errorf("the namespace is %s", got)
	}
}

func TestAccountsThatDifferInAByteHaveDifferentIDs(t *testing.T) {
	seen := map[AccountID]string{}
	for _, pair := range [][2]string{
		{"a", "b"}, {"ab", ""}, {"", "ab"}, {"a", "B"}, {"A", "b"}, {"a", "b "}, {"a", "e\u0301"}, {"a", "\u00e9"}, {"b", "a"},
	} {
		id := AccountIDOf(pair[0], pair[1])
		if other, ok := seen[id]; ok {
			t.Errorf("%q of %q is %s", pair[1], pair[0], other)
		}
		seen[id] = pair[0] + "/" + pair[1]
	}
}

func TestAPublicIDComesBackAsItWas(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "raw")
		account, id := AccountID(raw[:16]), ID(raw[16:])
		kind := rapid.SampledFrom([]RefKind{ReservationRef, GrantRef, EventRef}).Draw(t, "kind")
		text := kind.Encode(account, id)
		if len(text) != 56 || !strings.HasPrefix(text, string(kind)) {
			t.Fatalf("%s is %d characters long", text, len(text))
		}
		gotAccount, gotID, err := kind.Parse(text)
		if err != nil || gotAccount != account || gotID != id {
			t.Fatalf("%s came back as %s, %s, %v", text, gotAccount, gotID, err)
		}
		for _, other := range []RefKind{ReservationRef, GrantRef, EventRef} {
			if _, _, err := other.Parse(text); (err == nil) != (other == kind) {
				t.Fatalf("%s read as %s: %v", text, other, err)
			}
		}
	})
}

func TestOnlyTheExactTextOfAPublicIDIsRead(t *testing.T) {
	good := ReservationRef.Encode(AccountIDOf("dev", "ann"), ID{15: 7})
	for name, text := range map[string]string{
		"nothing":                    "",
		"only the prefix":            "rsv_",
		"no prefix":                  strings.TrimPrefix(good, "rsv_"),
		"upper case":                 strings.ToUpper(good),
		"upper case digits":          "rsv_" + strings.ToUpper(good[4:]),
		"one short":                  good[:len(good)-1],
		"one long":                   good + "0",
		"padding":                    good + "====",
		"a space":                    good + " ",
		"a line break behind":        good + "\n",
		"a line break inside":        good[:20] + "\n" + good[20:],
		"a letter that is no digit":  good[:20] + "i" + good[21:],
		"a NUL":                      good[:20] + "\x00" + good[21:],
		"another last bit":           good[:len(good)-1] + "z",
		"two of them":                good + good,
		"as long as a page":          "rsv_" + strings.Repeat("0", 10_000),
		"a letter that looks like 0": good[:20] + "о" + good[21:],
		"a hyphenated id":            "rsv_" + ID{15: 7}.String(),
	} {
		account, id, err := ReservationRef.Parse(text)
		if err == nil || !account.IsZero() || !id.IsZero() {
			t.Errorf("%s: read as %s, %s, %v", name, account, id, err)
		}
	}
	if _, _, err := ReservationRef.Parse(good); err != nil {
		t.Errorf("the right one: %v", err)
	}
}

func FuzzParsePublicID(f *testing.F) {
	f.Add(ReservationRef.Encode(AccountIDOf("dev", "ann"), ID{1}))
	f.Add("rsv_")
	f.Add("rsv_" + strings.Repeat("z", 52))
	f.Fuzz(func(t *testing.T, text string) {
		account, id, err := ReservationRef.Parse(text)
		if err == nil && ReservationRef.Encode(account, id) != text {
			t.Errorf("%q is read, and written as %q", text, ReservationRef.Encode(account, id))
		}
	})
}

func TestTheIDsOfACommandAreDifferentAndFollowFromIt(t *testing.T) {
	command := ID{0: 1, 13: 9}
	seen := map[ID]bool{}
	for n := range 1 << 16 {
		child := command.Child(n)
		if seen[child] || !bytes.Equal(child[:14], command[:14]) {
			t.Fatalf("child %d is %s", n, child)
		}
		seen[child] = true
	}
	if command != (ID{0: 1, 13: 9}) {
		t.Error("giving out ids changed the command's")
	}
	for _, n := range []int{-1, 1 << 16} {
		mustPanic(t, func() { command.Child(n) })
	}
}

// A window's id follows from account, allowance and start, so that a read shows what will be written.
func TestEveryWindowHasAnIDOfItsOwn(t *testing.T) {
	ann, bob := AccountIDOf("dev", "ann"), AccountIDOf("dev", "bob")
	ids := []ID{
		cycleGrantID(ann, "free.credit", 1, 9), cycleGrantID(bob, "free.credit", 1, 9), cycleGrantID(ann, "pro.credit", 1, 9),
		cycleGrantID(ann, "free.credit", 2, 9), cycleGrantID(ann, "free.credit", 1<<40, 9), cycleGrantID(ann, "free.credit", -1, 9), cycleGrantID(ann, "free.credit", 1, 8),
	}
	seen := map[ID]bool{}
	for i, id := range ids {
		if seen[id] {
			t.Errorf("window %d has the id of another one", i)
		}
		seen[id] = true
	}
	if ids[0] != cycleGrantID(ann, "free.credit", 1, 9) {
		t.Error("the same window has two ids")
	}
}

func TestAnIDSurvivesItsText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		written, err := json.Marshal(map[ID]ID{id: id})
		if err != nil {
			t.Fatal(err)
		}
		var read map[ID]ID
		if err := json.Unmarshal(written, &read); err != nil || read[id] != id || id.String() != uuid.UUID(id).String() {
			t.Fatalf("%s was written as %s and read as %v: %v", id, written, read, err)
		}
	})
	for _, text := range []string{"", "x", strings.Repeat("0", 36), strings.Repeat("-", 36), "019a0000-0000-7000-8000-00000000000g", "{019a0000-0000-7000-8000-0000000000}"} {
		var id ID
		if err := id.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %s", text, id)
		}
	}
}

func mustPanic(t testing.TB, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Error("it did not panic")
		}
	}()
	f()
}
