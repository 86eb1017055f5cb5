package initdata_test

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/telegram/initdata"
)

// Published vectors. The first is that of the documentation of @telegram-apps/init-data-node and of telegram-webapp-auth; the
// second, with a name of "+ - ? \/", that of the same package's tests (validate, validate3rd) and of init-data-golang's README.
const (
	publishedToken = "5768337691:AAH5YkoiEuPk8-FZa32hStHTqXiLPtAEhx8"
	published      = "query_id=AAHdF6IQAAAAAN0XohDhrOrc&user=%7B%22id%22%3A279058397%2C%22first_name%22%3A%22Vladislav%22%2C%22last_name%22%3A%22Kibenko%22%2C%22username%22%3A%22vdkfrost%22%2C%22language_code%22%3A%22ru%22%2C%22is_premium%22%3Atrue%7D&auth_date=1662771648&hash=c501b71e775f74ce10e377dea85a7ea24ecd640b223ea86dfe453e0eaed2e2b2"

	signedToken = "7342037359:AAFZehRPBRs8Seg40oDjTMIW8uTGPuW1zfQ"
	signedBot   = 7342037359
	withBoth    = "user=%7B%22id%22%3A279058397%2C%22first_name%22%3A%22Vladislav%20%2B%20-%20%3F%20%5C%2F%22%2C%22last_name%22%3A%22Kibenko%22%2C%22username%22%3A%22vdkfrost%22%2C%22language_code%22%3A%22ru%22%2C%22is_premium%22%3Atrue%2C%22allows_write_to_pm%22%3Atrue%2C%22photo_url%22%3A%22https%3A%5C%2F%5C%2Ft.me%5C%2Fi%5C%2Fuserpic%5C%2F320%5C%2F4FPEE4tmP3ATHa57u6MqTDih13LTOiMoKoLDRG4PnSA.svg%22%7D&chat_instance=8134722200314281151&chat_type=private&auth_date=1733584787&hash=2174df5b000556d044f3f020384e879c8efcab55ddea2ced4eb752e93e7080d6&signature=zL-ucjNyREiHDE8aihFwpfR9aggP2xiAo3NSpfe-p7IbCisNlDKlo7Kb6G4D0Ao2mBrSgEk4maLSdv6MLIlADQ"
)

// Vectors of a person called "A+B 100% 🚀", "%2B". Made with Python's hmac and cryptography and no code of ours:
//
//	fields = {"auth_date": "1800000000", "query_id": "AAF", "user": '{"id":42,"first_name":"A+B 100% 🚀","last_name":"%2B","language_code":"ru"}'}
//	text = "\n".join(f"{k}={fields[k]}" for k in sorted(fields))             # for the HMAC with "signature": "x"*86 among the fields
//	secret = hmac.new(b"WebAppData", token, sha256).digest(); hash = hmac.new(secret, text.encode(), sha256).hexdigest()
//	key = Ed25519PrivateKey.from_private_bytes(bytes(range(32))); signature = urlsafe_b64encode(key.sign(("7000001:WebAppData\n" + text).encode()))
//	urlencode(fields | {"hash": hash}, quote_via=quote)
const (
	ownToken  = "7000001:AA-not-a-real-token"
	ownHashed = "auth_date=1800000000&query_id=AAF&user=%7B%22id%22%3A42%2C%22first_name%22%3A%22A%2BB%20100%25%20%F0%9F%9A%80%22%2C%22last_name%22%3A%22%252B%22%2C%22language_code%22%3A%22ru%22%7D&signature=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx&hash=91de6743c46ce7fb6f538c8bf0c983326e46a2ae9fa9593fa7bff12595dc24b5"
	ownSigned = "auth_date=1800000000&query_id=AAF&user=%7B%22id%22%3A42%2C%22first_name%22%3A%22A%2BB%20100%25%20%F0%9F%9A%80%22%2C%22last_name%22%3A%22%252B%22%2C%22language_code%22%3A%22ru%22%7D&signature=8OBDvBJgbzt-QJYC0wCiZJC_x67pzs6ZEdFkXcOz0D4q5RoykNfNDjvru2DeUzcfmVwdt2hyqIiAJCUQhfGRCw&hash=0000000000000000000000000000000000000000000000000000000000000000"
	ownKey    = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8"
)

// at is a clock that stands a while after a moment.
func at(seconds int64, later time.Duration) initdata.Options {
	return initdata.Options{Now: func() time.Time { return time.Unix(seconds, 0).Add(later) }}
}

func standIn(t *testing.T, options initdata.Options) initdata.Options {
	t.Helper()
	key, err := hex.DecodeString(ownKey)
	if err != nil {
		t.Fatal(err)
	}
	options.PublicKey = ed25519.PublicKey(key)
	return options
}

func TestPublishedVectorsAreGenuine(t *testing.T) {
	old, err := initdata.Validate(published, publishedToken, at(1662771648, time.Minute))
	if err != nil || old.User.ID != 279058397 || old.User.FirstName != "Vladislav" || old.QueryID != "AAHdF6IQAAAAAN0XohDhrOrc" {
		t.Errorf("%+v %v", old, err)
	}
	for name, validate := range map[string]func() (initdata.Data, error){
		"hash": func() (initdata.Data, error) {
			return initdata.Validate(withBoth, signedToken, at(1733584787, time.Minute))
		},
		"signature": func() (initdata.Data, error) {
			return initdata.ValidateThirdParty(withBoth, signedBot, at(1733584787, time.Minute))
		},
	} {
		data, err := validate()
		if err != nil || data.User.FirstName != "Vladislav + - ? /" || data.User.LanguageCode != "ru" || data.Fields["chat_type"] != "private" || data.AuthDate.Unix() != 1733584787 {
			t.Errorf("%s: %+v %v", name, data, err)
		}
		if _, ok := data.Fields["hash"]; ok || len(data.Fields) != 4 {
			t.Errorf("%s: fields %v", name, data.Fields)
		}
	}
}

func TestNamesWithPlusPercentAndEmojiAreDecodedOnce(t *testing.T) {
	hashed, err := initdata.Validate(ownHashed, ownToken, at(1800000000, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	signed, err := initdata.ValidateThirdParty(ownSigned, 7000001, standIn(t, at(1800000000, time.Minute)))
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []initdata.Data{hashed, signed} {
		if data.User.FirstName != "A+B 100% 🚀" || data.User.LastName != "%2B" || data.User.ID != 42 {
			t.Errorf("%+v", data.User)
		}
	}
	// Telegram's own reader takes a bare plus for a space.
	if _, err := initdata.Validate(strings.ReplaceAll(ownHashed, "%20", "+"), ownToken, at(1800000000, 0)); err != nil {
		t.Error(err)
	}
}

func TestWhatWasNotSignedForThisBotIsForged(t *testing.T) {
	now := at(1733584787, time.Minute)
	test := now
	test.Test = true
	for name, validate := range map[string]func() error{
		"another token": func() error { _, err := initdata.Validate(withBoth, publishedToken, now); return err },
		"another person": func() error {
			_, err := initdata.Validate(strings.Replace(withBoth, "279058397", "279058398", 1), signedToken, now)
			return err
		},
		"a field more": func() error { _, err := initdata.Validate(withBoth+"&start_param=x", signedToken, now); return err },
		"a field less": func() error {
			_, err := initdata.Validate(strings.Replace(withBoth, "&chat_type=private", "", 1), signedToken, now)
			return err
		},
		"no signature": func() error {
			_, err := initdata.Validate(strings.Split(withBoth, "&signature=")[0], signedToken, now)
			return err
		},
		"another hash": func() error {
			_, err := initdata.Validate(strings.Replace(withBoth, "hash=2174", "hash=2175", 1), signedToken, now)
			return err
		},
		"another bot":      func() error { _, err := initdata.ValidateThirdParty(withBoth, signedBot+1, now); return err },
		"the test key":     func() error { _, err := initdata.ValidateThirdParty(withBoth, signedBot, test); return err },
		"a stand-in's key": func() error { _, err := initdata.ValidateThirdParty(withBoth, signedBot, standIn(t, now)); return err },
		"another third party": func() error {
			_, err := initdata.ValidateThirdParty(strings.Replace(withBoth, "279058397", "279058398", 1), signedBot, now)
			return err
		},
		"another signature": func() error {
			_, err := initdata.ValidateThirdParty(strings.Replace(withBoth, "zL-u", "zL-v", 1), signedBot, now)
			return err
		},
	} {
		if err := validate(); !errors.Is(err, initdata.ErrForged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Two readings of one signature: a border between fields that is no border, or the other way round.
func TestASignatureFitsOneReadingOnly(t *testing.T) {
	now := at(1733584787, time.Minute)
	for name, raw := range map[string]string{
		"a line break in a value": strings.Replace(withBoth, "&chat_type=", "%0Achat_type=", 1),
		"a line break in a name":  strings.Replace(withBoth, "chat_type=", "a%0Achat_type=", 1),
		"an equals sign":          strings.Replace(withBoth, "chat_type=private", "chat_type%3Dprivate=", 1),
		"a name twice":            withBoth + "&chat_type=private",
		"hash twice":              "hash=" + strings.Repeat("0", 64) + "&" + withBoth,
		"no equals sign":          withBoth + "&x",
		"an empty name":           withBoth + "&=x",
		"a broken escape":         withBoth + "&x=%2",
		"nothing":                 "",
		"too much":                withBoth + "&x=" + strings.Repeat("x", initdata.MaxBytes),
		"no hash":                 "auth_date=1",
		"a short hash":            "auth_date=1&hash=00&signature=AA",
	} {
		for _, validate := range []func() (initdata.Data, error){
			func() (initdata.Data, error) { return initdata.Validate(raw, signedToken, now) },
			func() (initdata.Data, error) { return initdata.ValidateThirdParty(raw, signedBot, now) },
		} {
			if data, err := validate(); !errors.Is(err, initdata.ErrMalformed) || data.User != nil {
				t.Errorf("%s: %+v %v", name, data, err)
			}
		}
	}
}

func TestInitDataIsFreshBothWays(t *testing.T) {
	for _, c := range []struct {
		later  time.Duration
		maxAge time.Duration
		want   error
	}{
		{0, 0, nil},
		{initdata.DefaultMaxAge, 0, nil},
		{initdata.DefaultMaxAge + time.Second, 0, initdata.ErrStale},
		{24 * time.Hour, 24 * time.Hour, nil},
		{24*time.Hour + time.Second, 24 * time.Hour, initdata.ErrStale},
		{-initdata.MaxAhead, 0, nil},
		{-initdata.MaxAhead - time.Second, 0, initdata.ErrAhead},
	} {
		options := at(1733584787, c.later)
		options.MaxAge = c.maxAge
		if _, err := initdata.Validate(withBoth, signedToken, options); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%v later, by token: %v", c.later, err)
		}
		if _, err := initdata.ValidateThirdParty(withBoth, signedBot, options); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%v later, by key: %v", c.later, err)
		}
	}
	if _, err := initdata.Validate(withBoth, signedToken, initdata.Options{}); !errors.Is(err, initdata.ErrStale) {
		t.Errorf("by today's clock: %v", err)
	}
}

func TestErrorsTellNeitherTheTokenNorTheData(t *testing.T) {
	now := at(1733584787, time.Minute)
	for _, token := range []string{publishedToken, "no-token-at-all", ":", "7:", ""} {
		for _, raw := range []string{withBoth, "x=279058397&hash=ff", ""} {
			_, err := initdata.Validate(raw, token, now)
			if err == nil {
				t.Fatal("accepted")
			}
			for _, secret := range []string{"AAH5YkoiEuPk8", "279058397", "no-token-at-all", "2174df5b"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("%v", err)
				}
			}
		}
	}
	if _, err := initdata.Validate(withBoth, "7342037359", now); !errors.Is(err, initdata.ErrToken) {
		t.Error(err)
	}
	now.PublicKey = ed25519.PublicKey{1}
	if _, err := initdata.ValidateThirdParty(withBoth, signedBot, now); !errors.Is(err, initdata.ErrToken) {
		t.Error(err)
	}
}
