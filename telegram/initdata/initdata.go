// Package initdata tells who has opened a Mini App: it checks the initData that the page sends to its server.
//
//	Validate            with the bot's token (HMAC): for whoever runs the bot
//	ValidateThirdParty  with Telegram's public key (Ed25519): for a server that knows the bots' ids and none of their tokens
//
// Servers behind Mini Apps call it before they believe a user id. It reads what was sent and the clock, keeps nothing, and
// calls nobody. Its errors say what to do, and hold neither the token nor anything that was sent.
package initdata

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Options say how old initData may be, and whose signature counts. The zero value is ready for use.
type Options struct {
	// MaxAge is how long initData is accepted after Telegram has signed it; 0: DefaultMaxAge. Whoever has seen it can send it
	// again until then.
	MaxAge time.Duration
	// Test means Telegram's test servers, whose key is another one.
	Test bool
	// PublicKey takes the place of Telegram's, where a stand-in for Telegram signs.
	PublicKey ed25519.PublicKey
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

const (
	// DefaultMaxAge is for a page that sends its initData with every request, as long as it is open.
	DefaultMaxAge = time.Hour
	// MaxAhead is how far Telegram's clock may be ahead of ours.
	MaxAhead = time.Minute
	// MaxBytes is more than any initData that Telegram makes.
	MaxBytes = 16 << 10
)

// The errors, for errors.Is.
var (
	// ErrMalformed: it is no initData.
	ErrMalformed = errors.New("initData is malformed: send the whole text of Telegram.WebApp.initData as it is, neither decoded nor encoded again")
	// ErrForged: it was not signed for this bot, or was changed since.
	ErrForged = errors.New("initData is not signed for this bot: check that its token or id is the one of the bot that opened the Mini App, and otherwise trust nothing of it")
	// ErrStale: it is older than MaxAge.
	ErrStale = errors.New("initData is too old: have the person open the Mini App again")
	// ErrAhead: it was signed later than now.
	ErrAhead = errors.New("initData was signed in the future: set this machine's clock right (NTP)")
	// ErrToken: the token that was given to Validate is none, or the key to ValidateThirdParty.
	ErrToken = errors.New("check initData: the token is the bot's id, a colon and a secret; a public key has 32 bytes")
)

// Data is what Telegram has signed.
type Data struct {
	AuthDate time.Time // when it was signed
	User     *User     // who has opened the Mini App; nil: not told
	QueryID  string    // for answerWebAppQuery; may be empty
	// Fields has every field, decoded once, without hash and signature: start_param, chat_type, chat_instance and whatever
	// Telegram adds.
	Fields map[string]string
}

// User is a Telegram user.
type User struct {
	ID           int64  `json:"id"`
	FirstName    string `json:"first_name"`
	LastName     string `json:"last_name"`
	Username     string `json:"username"`
	LanguageCode string `json:"language_code"` // an IETF tag; may be empty
	IsBot        bool   `json:"is_bot"`
}

// Validate checks initData with the token of the bot whose Mini App sent it. Nothing of the result may be believed where there
// is an error: ErrMalformed, ErrForged, ErrStale, ErrAhead or ErrToken.
//
// The signature field is part of what the hash signs (verified against published vectors; some libraries leave it out).
func Validate(raw, token string, options Options) (Data, error) {
	if id, secret, ok := strings.Cut(token, ":"); !ok || id == "" || secret == "" {
		return Data{}, ErrToken
	}
	sent, err := parse(raw)
	if err != nil {
		return Data{}, err
	}
	hash, err := hex.DecodeString(sent["hash"])
	if err != nil || len(hash) != sha256.Size {
		return Data{}, ErrMalformed
	}
	key := sum([]byte("WebAppData"), token)
	if !hmac.Equal(hash, sum(key, signed(sent, "hash"))) {
		return Data{}, ErrForged
	}
	return options.read(sent)
}

func sum(key []byte, message string) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(message))
	return mac.Sum(nil)
}

// Telegram's public keys: core.telegram.org/bots/webapps, "Validating data for Third-Party Use".
const (
	productionKey = "e7bf03a2fa4602af4580703d88dda5bb59f32ed8b02a56c187fe7d34caed242d"
	testKey       = "40055058a4ee38156a06562e52eece92a771bcd8346a8c4615cb7376eddf72ec"
)

// ValidateThirdParty checks initData by Telegram's own signature, which names the bot by its id. Nothing of the result may be
// believed where there is an error: ErrMalformed, ErrForged, ErrStale, ErrAhead or ErrToken.
func ValidateThirdParty(raw string, bot int64, options Options) (Data, error) {
	key := options.PublicKey
	if key == nil {
		text := productionKey
		if options.Test {
			text = testKey
		}
		key, _ = hex.DecodeString(text) // a test decodes both
	}
	if len(key) != ed25519.PublicKeySize {
		return Data{}, ErrToken
	}
	sent, err := parse(raw)
	if err != nil {
		return Data{}, err
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(strings.TrimRight(sent["signature"], "="))
	if err != nil || len(signature) != ed25519.SignatureSize {
		return Data{}, ErrMalformed
	}
	message := strconv.FormatInt(bot, 10) + ":WebAppData\n" + signed(sent, "hash", "signature")
	if !ed25519.Verify(key, []byte(message), signature) {
		return Data{}, ErrForged
	}
	return options.read(sent)
}

// parse decodes each name and value exactly once: a name such as "100%" or "A+B" is otherwise another one.
//
// A line break or an equals sign that hides in a field could stand for a border between fields in what was signed, so that one
// signature would fit several readings: these, and a name that comes twice, are refused.
func parse(raw string) (map[string]string, error) {
	if raw == "" || len(raw) > MaxBytes {
		return nil, ErrMalformed
	}
	fields := map[string]string{}
	for pair := range strings.SplitSeq(raw, "&") {
		escapedName, escapedValue, ok := strings.Cut(pair, "=")
		name, err := url.QueryUnescape(escapedName)
		value, err2 := url.QueryUnescape(escapedValue)
		_, twice := fields[name]
		if !ok || err != nil || err2 != nil || twice || name == "" || strings.ContainsAny(name, "=\n") || strings.Contains(value, "\n") {
			return nil, ErrMalformed
		}
		fields[name] = value
	}
	return fields, nil
}

// signed is the text that was signed: all fields but these, sorted by name.
func signed(fields map[string]string, but ...string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(but, name) {
			lines = append(lines, name+"="+fields[name])
		}
	}
	return strings.Join(lines, "\n")
}

// read takes fields that are known to be Telegram's, unless they are too old.
func (o Options) read(fields map[string]string) (Data, error) {
	seconds, err := strconv.ParseInt(fields["auth_date"], 10, 64)
	if err != nil || seconds <= 0 {
		return Data{}, ErrMalformed
	}
	maxAge, now := o.MaxAge, time.Now
	if maxAge == 0 {
		maxAge = DefaultMaxAge
	}
	if o.Now != nil {
		now = o.Now
	}
	data := Data{AuthDate: time.Unix(seconds, 0).UTC(), QueryID: fields["query_id"], Fields: fields}
	switch at := now(); {
	case at.After(data.AuthDate.Add(maxAge)):
		return Data{}, ErrStale
	case data.AuthDate.After(at.Add(MaxAhead)):
		return Data{}, ErrAhead
	}
	if user, told := fields["user"]; told {
		if err := json.Unmarshal([]byte(user), &data.User); err != nil || data.User == nil || data.User.ID <= 0 {
			return Data{}, ErrMalformed
		}
	}
	delete(fields, "hash")
	delete(fields, "signature")
	return data, nil
}
