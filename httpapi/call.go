package httpapi

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// The headers of the API.
const (
	keyHeader      = "Idempotency-Key"
	retryHeader    = "Holdfast-Retry-Refused"
	replayedHeader = "Idempotent-Replayed"
)

const (
	// MaxSecretBytes is longer than any API key; what is longer is not worth hashing.
	MaxSecretBytes = 512
	// maxLanguageBytes is longer than any browser's Accept-Language; a longer one is not read.
	maxLanguageBytes = 256
)

// call is one request on its way through.
type call struct {
	api     *api
	request *http.Request
	writer  http.ResponseWriter // only so that reading too large a body closes the connection
	route   *route              // nil where the path or the method has none
	pattern string
	began   time.Time
	id      string
	key     Key

	problems []holdfast.Problem // what the edge found wrong so far
	unread   bool               // the body could not be read, so its fields are not missed

	// The account that the call is about, once it is known.
	account     holdfast.AccountID
	accountName string
	owner       holdfast.Owner
}

func (c *call) context() context.Context { return c.request.Context() }

func (c *call) wrong(field, hint string) {
	c.problems = append(c.problems, holdfast.Problem{Field: field, Hint: hint})
}

// authenticate finds out who calls, and whether they may. Nil: they may.
func (c *call) authenticate() *answer {
	if c.route.scope == "" {
		return nil
	}
	secret, ok := c.secret()
	if !ok {
		return c.unauthorized(`Bearer realm="holdfast"`)
	}
	key, found, err := c.api.Keys.Lookup(c.context(), sha256.Sum256([]byte(secret)))
	switch {
	case err != nil:
		a := c.failed(err)
		return &a
	case !found:
		return c.unauthorized(`Bearer realm="holdfast", error="invalid_token"`)
	}
	c.key = key
	if !key.has(c.route.scope) {
		a := c.lacks(c.route.scope)
		return &a
	}
	return nil
}

func (c *call) unauthorized(challenge string) *answer {
	a := c.mistake(reasonUnauthorized, "Send a key that is in force: Authorization: Bearer KEY.").with("Www-Authenticate", challenge)
	return &a
}

// secret takes the API key from the one Authorization header.
func (c *call) secret() (string, bool) {
	sent := c.request.Header.Values("Authorization")
	if len(sent) != 1 {
		return "", false
	}
	scheme, secret, found := strings.Cut(sent[0], " ")
	secret = strings.TrimLeft(secret, " ")
	return secret, found && strings.EqualFold(scheme, "Bearer") && secret != "" && len(secret) <= MaxSecretBytes
}

// body decodes what was sent into a struct of fields. An empty body is one without fields, and so is null where no field
// is required. It returns an answer only where the body may not be read at all.
func (c *call) body(into any) *answer {
	raw, err := io.ReadAll(http.MaxBytesReader(c.writer, c.request.Body, holdfast.MaxBodyBytes))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		a := c.mistake(reasonTooLarge, fmt.Sprintf("Send at most %d bytes.", holdfast.MaxBodyBytes))
		return &a
	case err != nil:
		c.misread(bodyField, "send the whole body")
		return nil
	case len(raw) == 0:
		return nil
	}
	header := c.request.Header
	sent := header.Get("Content-Type")
	if sent == "" {
		sent = jsonContent // a body without a type can only be meant as that
	}
	content, parameters, err := mime.ParseMediaType(sent)
	charset := parameters["charset"]
	if err != nil || content != jsonContent || len(header.Values("Content-Type")) > 1 || charset != "" && !strings.EqualFold(charset, "utf-8") {
		c.misread("Content-Type", "send application/json in UTF-8")
		return nil
	}
	if encoding := header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		c.misread("Content-Encoding", "send the body as it is, not compressed")
		return nil
	}
	text := string(raw)
	if strings.TrimSpace(text) == "null" && optional(into) {
		return nil
	}
	found, readable := decode(text, into)
	c.problems = append(c.problems, found...)
	c.unread = !readable
	return nil
}

func (c *call) misread(field, hint string) {
	c.wrong(field, hint)
	c.unread = true
}

// optional reports whether no field of the body is required; the document says the same.
func optional(body any) bool {
	t := reflect.TypeOf(body).Elem()
	for i := range t.NumField() {
		if !strings.Contains(t.Field(i).Tag.Get("json"), ",omitempty") {
			return false
		}
	}
	return true
}

// single returns a header that may be sent once.
func (c *call) single(name string) string {
	sent := c.request.Header.Values(name)
	if len(sent) > 1 {
		c.wrong(name, "send it once")
	}
	if len(sent) == 0 {
		return ""
	}
	return sent[0]
}

// submit sends a command through the one door. The command says what and of which account; who and under which key
// comes from the request.
func (c *call) submit(command holdfast.Command, encode func(*call, *holdfast.Outcome) answer) answer {
	if wrong := c.prepare(&command); wrong != nil {
		return *wrong
	}
	return c.send(command, encode)
}

// prepare completes the command, and tells everything that is wrong with the request's shape at once. Nil: nothing is.
func (c *call) prepare(command *holdfast.Command) *answer {
	command.Project, command.Actor = c.key.Project, "key:"+c.key.ID
	command.Key = c.single(keyHeader)
	switch c.single(retryHeader) {
	case "", "false":
	case "true":
		command.RetryRefused = true
	default:
		c.wrong(retryHeader, "send true, or leave it out")
	}
	c.noQuery()
	missing := shape(*command)
	if c.unread {
		missing = slices.DeleteFunc(missing, func(p holdfast.Problem) bool { return fieldName(p.Field) != keyHeader })
	}
	if found := merge(c.problems, missing); len(found) > 0 {
		a := c.invalid(found)
		return &a
	}
	return nil
}

func (c *call) send(command holdfast.Command, encode func(*call, *holdfast.Outcome) answer) answer {
	c.account, c.accountName = command.AccountID(), command.Account
	outcome, err := c.api.Engine.Submit(c.context(), command)
	if err != nil {
		return c.failed(err)
	}
	c.owner = outcome.Owner
	if c.accountName == "" {
		c.accountName = outcome.Owner.Name // a reservation was named by its own id
	}
	var a answer
	if outcome.Refused() && !(outcome.DryRun && outcome.Refusal != nil) {
		a = c.refused(&outcome)
	} else {
		a = encode(c, &outcome)
	}
	if outcome.Replayed {
		a = a.with(replayedHeader, "true")
	}
	return a
}

// shape is what the core finds wrong without looking at anything else. The engine checks again, and so does the decision.
func shape(command holdfast.Command) []holdfast.Problem {
	if start, ok := command.Do.(holdfast.Start); ok {
		start.Token = "not made yet"
		command.Do = start
	}
	return command.Check()
}

// read asks for a page of the call's account.
func (c *call) read(query store.Query) (store.Page, error) {
	query.Project, query.Account = c.key.Project, c.account
	if query.Limit == 0 {
		query.Limit = 1
	}
	return c.api.Engine.Read(c.context(), query)
}

// reader is for whom a refusal is worded: in the language of the request, else of the account, and in the account's time
// zone.
func (c *call) reader() Reader {
	reader := Reader{Language: c.language(c.owner.Language), Location: time.UTC}
	if location, err := time.LoadLocation(c.owner.TimeZone); err == nil {
		reader.Location = location
	}
	return reader
}

func (c *call) language(account string) string {
	accepted := strings.Join(c.request.Header.Values("Accept-Language"), ",")
	if len(accepted) > maxLanguageBytes {
		accepted = ""
	}
	return c.api.Texts.Match(accepted, account)
}

// catalog gives texts the names of things. Without a key there is no project, and so none.
func (c *call) catalog() *holdfast.Catalog {
	if c.key.Project != "" {
		if catalog := c.api.Engine.Catalog(c.key.Project); catalog != nil {
			return catalog
		}
	}
	return &holdfast.Catalog{}
}
