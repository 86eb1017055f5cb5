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

	from     source             // where its command stands
	problems []holdfast.Problem // what the edge found wrong so far
	unread   bool               // the body could not be read, so its fields are not missed
	send     sender             // how its command is sent; nil: to the engine's Submit

	// The account that the call is about, once it is known.
	account     holdfast.AccountID
	accountName string
	otherName   string // besides it

	pending bool // a refund waits for its payment
	owner   holdfast.Owner
}

// sender has a command decided.
type sender func(context.Context, holdfast.Command) (holdfast.Outcome, error)

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
	if c.route.scope == scopeInstance {
		if !c.api.isAdmin(secret) {
			return c.unauthorized(`Bearer realm="holdfast", error="invalid_token"`)
		}
		c.key = Key{ID: "instance"}
		return nil
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
	if refused := c.count(1); refused != nil {
		return refused
	}
	if c.route.scope != scopeOfEach && !key.has(c.route.scope) {
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

// source is where the parts of a command stand: in a request of its own, or in an item of a batch.
type source interface {
	// body decodes the fields into a struct. It returns an answer only where they may not be read at all.
	body(c *call, into any) *answer
	// subject is the id or the account that the command is about. It is known once the body was decoded.
	subject(c *call, name string) string
	// key is the sender's promise, and whether a recorded refusal is to be decided afresh.
	key(c *call) (key string, retryRefused bool)
	// keyField is where the key stands, and place where a field of the body does.
	keyField() string
	place(field string) string
}

// alone is the source of a request that is one command.
type alone struct{}

func (alone) subject(c *call, name string) string { return c.request.PathValue(name) }
func (alone) keyField() string                    { return keyHeader }
func (alone) place(field string) string           { return field }

func (alone) key(c *call) (key string, retryRefused bool) {
	key = c.single(keyHeader)
	switch c.single(retryHeader) {
	case "", "false":
	case "true":
		retryRefused = true
	default:
		c.wrong(retryHeader, "send true, or leave it out")
	}
	c.noQuery()
	return key, retryRefused
}

// body reads what was sent. An empty body is one without fields, and so is null where no field is required.
func (alone) body(c *call, into any) *answer {
	text, refused := c.text(holdfast.MaxBodyBytes, jsonContent)
	if refused != nil || text == "" || c.unread || strings.TrimSpace(text) == "null" && optional(into) {
		return refused
	}
	found, readable := decode(text, into)
	c.problems = append(c.problems, found...)
	c.unread = !readable
	return nil
}

// text reads a body of one of the content types, in UTF-8. It returns an answer only where it may not be read at all.
func (c *call) text(most int, contents ...string) (string, *answer) {
	raw, err := io.ReadAll(http.MaxBytesReader(c.writer, c.request.Body, int64(most)))
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		a := c.mistake(reasonTooLarge, fmt.Sprintf("Send at most %d bytes.", most))
		return "", &a
	case err != nil:
		c.misread(bodyField, "send the whole body")
		return "", nil
	case len(raw) == 0:
		return "", nil
	}
	header := c.request.Header
	sent := header.Get("Content-Type")
	if sent == "" {
		sent = contents[0] // a body without a type can only be meant as that
	}
	content, parameters, err := mime.ParseMediaType(sent)
	charset := parameters["charset"]
	if err != nil || !slices.Contains(contents, content) || len(header.Values("Content-Type")) > 1 || charset != "" && !strings.EqualFold(charset, "utf-8") {
		c.misread("Content-Type", "send "+contents[0]+" in UTF-8")
	}
	if encoding := header.Get("Content-Encoding"); encoding != "" && !strings.EqualFold(encoding, "identity") {
		c.misread("Content-Encoding", "send the body as it is, not compressed")
	}
	return string(raw), nil
}

func (c *call) misread(field, hint string) {
	c.wrong(field, hint)
	c.unread = true
}

// optional reports whether no field of the body is required; the document says the same.
func optional(body any) bool {
	return !slices.ContainsFunc(inputFieldsOf(reflect.TypeOf(body).Elem()), func(f inputField) bool { return f.required })
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

// submit sends the route's command through the one door.
func (c *call) submit() answer {
	command, wrong := c.route.does.command(c)
	if wrong != nil {
		return *wrong
	}
	send := c.send
	if send == nil {
		send = c.api.Engine.Submit
	}
	outcome, err := send(c.context(), command)
	return c.answer(&command, &outcome, err)
}

// complete adds to a command, which says what and of which account, who sends it and under which key, and tells everything
// that is wrong with its shape at once. A nil answer: nothing is.
func (c *call) complete(command *holdfast.Command) *answer {
	command.Project, command.Actor = c.key.Project, "key:"+c.key.ID
	command.Key, command.RetryRefused = c.from.key(c)
	missing := shape(*command)
	if c.unread {
		missing = slices.DeleteFunc(missing, func(p holdfast.Problem) bool { return p.Field != "key" })
	}
	if found := merge(c.problems, missing, c.from.keyField()); len(found) > 0 {
		a := c.invalid(found)
		return &a
	}
	return nil
}

// needsKey misses the key of a call whose command is not one that creates.
func (c *call) needsKey() {
	if c.request.Header.Get(keyHeader) == "" {
		check := holdfast.Command{Account: "any", Do: holdfast.TakeOver{}} // which is: the core words what is missing
		c.problems = merge(c.problems, check.Check(), c.from.keyField())
	}
}

// answer tells what became of the call's command.
func (c *call) answer(command *holdfast.Command, outcome *holdfast.Outcome, err error) answer {
	if err != nil {
		return c.failed(err)
	}
	c.account, c.accountName, c.owner = command.AccountID(), command.Account, outcome.Owner
	if !outcome.Owner.ID.IsZero() {
		c.account = outcome.Owner.ID // a name of before led there
	}
	var unread error
	if outcome.Balance != nil && outcome.Owner.Merged && !outcome.Replayed {
		outcome.Balance, unread = c.balanceOfNow(outcome.Balance.Unit) // it is done either way: null says too little, 503 too much
	}
	if c.accountName == "" {
		c.accountName = outcome.Owner.Name // a reservation was named by its own id
	}
	var a answer
	if outcome.Refused() && !(outcome.DryRun && outcome.Refusal != nil) {
		a = c.refused(outcome)
	} else {
		a = c.route.does.encode(c, outcome)
	}
	if outcome.Replayed {
		a = a.with(replayedHeader, "true")
	}
	if unread != nil {
		a.cause = unread
	}
	return a
}

// accountOfNow is the call's account, or the one that has taken its place and so has what its person has; nil: neither is
// there.
func (c *call) accountOfNow() (*holdfast.AccountView, error) {
	account, err := c.api.Engine.Resolve(c.context(), c.key.Project, c.account)
	if err != nil {
		return nil, err
	}
	return c.api.Engine.ViewOf(c.context(), c.key.Project, account)
}

// balanceOfNow is what that account has in a unit.
func (c *call) balanceOfNow(unit string) (*holdfast.Balance, error) {
	view, err := c.accountOfNow()
	if err != nil || view == nil {
		return nil, err
	}
	for i := range view.Balances {
		if view.Balances[i].Unit == unit {
			return &view.Balances[i], nil
		}
	}
	return nil, nil
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
