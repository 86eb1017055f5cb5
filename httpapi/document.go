package httpapi

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfast-dev/holdfast"
)

// The document is made by huma from the table and the Go types. huma reads no request: its reader rounds integers,
// answers 422, and repeats the offending value.

const about = "Holdfast charges asynchronous work exactly once: reserve before the work exists, commit what was used, release on any " +
	"other outcome, and read afterwards where every number came from. Within /v1 changes are additive: ignore fields and values " +
	"that you do not know."

// describe writes the OpenAPI document of the table.
func describe(table []route, version string) ([]byte, error) {
	d := &description{registry: huma.NewMapRegistry("#/components/schemas/", schemaName)}
	d.api = &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{
			Title: "Holdfast", Version: version, Description: about,
			License: &huma.License{Name: "Apache-2.0", Identifier: "Apache-2.0"},
		},
		Components: &huma.Components{
			Schemas: d.registry,
			SecuritySchemes: map[string]*huma.SecurityScheme{
				"instance": {Type: "http", Scheme: "bearer", Description: "The instance's own admin key. It makes projects and keys, and opens nothing else."},
				"key":      {Type: "http", Scheme: "bearer", Description: "An API key. It belongs to one project and has scopes: read, work, money, admin."},
			},
		},
		Tags: []*huma.Tag{{Name: tagReservations}, {Name: tagQueues}, {Name: tagAccounts}, {Name: tagPayments}, {Name: tagTelegram}, {Name: tagCatalog}, {Name: tagEvents}, {Name: tagInstance}, {Name: tagOperations}},
	}
	for i := range table {
		d.add(&table[i])
	}
	d.describeBatch(table)
	d.finish()
	return json.MarshalIndent(d.api, "", " ")
}

type description struct {
	api      *huma.OpenAPI
	registry huma.Registry
	requests []string // names of schemas that are sent to us: they are closed, all others stay open
}

// schemaName names a schema after its Go type: reserveBody is ReserveBody.
func schemaName(t reflect.Type, hint string) string { return huma.DefaultSchemaNamer(t, hint) }

func (d *description) add(r *route) {
	op := &huma.Operation{
		Method: r.method, Path: r.path, OperationID: r.operation, Summary: r.summary, Tags: []string{r.tag},
		Description: d.rights(r), Responses: map[string]*huma.Response{},
	}
	switch r.scope {
	case "":
	case scopeOfEach:
		op.Security = []map[string][]string{{"key": {}}}
	case scopeInstance:
		op.Security = []map[string][]string{{"instance": {}}}
	default:
		op.Security = []map[string][]string{{"key": {r.scope}}}
	}
	op.Parameters = d.parameters(r)
	if r.does.yaml {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{}}
		for _, content := range yamlContents {
			op.RequestBody.Content[content] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
		}
	}
	if r.does.update {
		op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{jsonContent: {Schema: &huma.Schema{
			Type: huma.TypeObject, AdditionalProperties: true, Required: []string{"update_id"},
			Properties: map[string]*huma.Schema{
				"update_id":          {Type: huma.TypeInteger, Description: "Telegram's, from 1"},
				"pre_checkout_query": {Type: huma.TypeObject, AdditionalProperties: true},
				"message":            {Type: huma.TypeObject, AdditionalProperties: true, Description: "With successful_payment or refunded_payment; any other is ignored"},
				"subscription":       {Type: huma.TypeObject, AdditionalProperties: true},
			},
			Description: "An Update of the Bot API, as Telegram sent it. Kinds that are not about payments are ignored",
		}}}}
	}
	if r.does.body != nil {
		op.RequestBody = &huma.RequestBody{
			Required: !optional(r.does.body),
			Content:  map[string]*huma.MediaType{jsonContent: {Schema: d.request(r.does.body)}},
		}
	}
	for _, o := range r.answers {
		op.Responses[strconv.Itoa(o.status)] = d.response(r, o)
	}
	d.problems(r, op)
	d.api.AddOperation(op)
}

func (d *description) rights(r *route) string {
	if r.scope == "" {
		return "Needs no key."
	}
	if r.scope == scopeInstance {
		return "Needs the instance's admin key."
	}
	if r.scope == scopeOfEach {
		return "Needs a key; each operation needs the scope of its own call."
	}
	text := "Needs a key with the scope " + r.scope + "."
	if r.operation == "putAccount" {
		text += " To set blocked it needs the scope admin as well."
	}
	return text
}

func (d *description) parameters(r *route) []*huma.Param {
	text := func(length int) *huma.Schema { return &huma.Schema{Type: huma.TypeString, MaxLength: &length} }
	var list []*huma.Param
	for _, name := range pathNames(r.path) {
		p := &huma.Param{Name: name, In: "path", Required: true, Schema: text(64), Description: "What reserve answered as id"}
		if r.tag == tagInstance {
			p.Description = "What making the key answered as id"
		}
		if r.tag == tagEvents {
			p.Description = "What making the endpoint answered as id"
		}
		switch name {
		case "provider":
			p.Schema, p.Description = text(holdfast.MaxIdentifierBytes), "Who took the money; 1 to 64 of a-z 0-9 . _ -"
		case "payment_id":
			p.Schema, p.Description = text(holdfast.MaxPaymentIDBytes), "The provider's id of the payment, escaped as a URL demands; 1 to 255 bytes"
		case "bot":
			p.Schema, p.Description = text(mostBotDigits), "The bot's numeric id, which its token begins with"
		case "queue":
			p.Schema, p.Description = text(holdfast.MaxQueueBytes), "A feature's queue (its name, where it has none), a dot, and a plan's tier (standard, where it has none)"
		case "account":
			p.Schema, p.Description = text(holdfast.MaxNameBytes), "1 to 128 bytes of UTF-8 without control characters, spaces or / ? # %"
		}
		list = append(list, p)
	}
	for _, q := range r.parameters {
		p := &huma.Param{Name: q.name, In: "query", Required: q.required, Description: q.about, Schema: &huma.Schema{Type: huma.TypeString}}
		if q.integer {
			least, most := 1.0, float64(holdfast.MaxPage)
			p.Schema = &huma.Schema{Type: huma.TypeInteger, Minimum: &least, Maximum: &most, Default: holdfast.DefaultPage}
		}
		if q.amounts {
			explode := true
			p.Style, p.Explode = "deepObject", &explode
			p.Schema = &huma.Schema{Type: huma.TypeObject, AdditionalProperties: &huma.Schema{Type: huma.TypeInteger}}
		}
		list = append(list, p)
	}
	if r.keyed != keyless {
		key := &huma.Param{
			Name: keyHeader, In: "header", Schema: text(holdfast.MaxKeyBytes), Required: r.keyed == keyRequired,
			Description: "The same intention has the same key, and is answered once. 1 to 255 bytes of UTF-8, not blank.",
		}
		if r.operation == "reserve" || r.operation == "charge" {
			key.Required = false
			key.Description += " Required unless dry_run is true."
		}
		list = append(list, key, &huma.Param{
			Name: retryHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"true", "false"}},
			Description: "true asks for a fresh decision where the one recorded under the key is a refusal",
		})
	}
	if r.does.yaml {
		list = append(list, &huma.Param{Name: versionHeader, In: "header", Schema: text(32), Required: true, Description: "The ETag of the version that was changed"})
	}
	if r.scope != "" {
		list = append(list, &huma.Param{
			Name: "Accept-Language", In: "header", Schema: text(maxLanguageBytes), Description: "In which language detail is; else the account's",
		})
	}
	return list
}

var pathName = regexp.MustCompile(`{(\w+)}`)

func pathNames(path string) []string {
	var names []string
	for _, match := range pathName.FindAllStringSubmatch(path, -1) {
		names = append(names, match[1])
	}
	return names
}

func (d *description) request(body any) *huma.Schema {
	t := reflect.TypeOf(body).Elem()
	d.requests = append(d.requests, schemaName(t, ""))
	for _, field := range reflect.VisibleFields(t) {
		if field.Type.Kind() == reflect.Pointer && field.Type.Elem().Kind() == reflect.Struct && field.Type.Elem() != timeType {
			d.requests = append(d.requests, schemaName(field.Type.Elem(), "")) // a part of what is sent
		}
	}
	return d.registry.Schema(t, true, "")
}

// describeBatch describes the items of a batch: one shape for each call, which is that of its body with what the request
// says elsewhere.
func (d *description) describeBatch(table []route) {
	var shapes []*huma.Schema
	for i := range table {
		r := &table[i]
		if r.op == "" {
			continue
		}
		shape := &huma.Schema{Type: huma.TypeObject, Properties: map[string]*huma.Schema{}, AdditionalProperties: false}
		for _, part := range slices.Concat([]any{itemHead{}}, r.subjects(), []any{r.does.body}) {
			t := reflect.TypeOf(part)
			if t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
			fields := huma.SchemaFromType(d.registry, t)
			maps.Copy(shape.Properties, fields.Properties)
			shape.Required = append(shape.Required, fields.Required...)
		}
		op := *shape.Properties["op"]
		op.Enum = []any{r.op}
		shape.Properties["op"] = &op
		name := strings.ToUpper(r.operation[:1]) + r.operation[1:] + "ItemBody"
		d.registry.Map()[name] = shape
		d.requests = append(d.requests, name)
		shapes = append(shapes, &huma.Schema{Ref: "#/components/schemas/" + name})
	}
	delete(d.registry.Map(), schemaName(valueType, "")) // which is how the decoder keeps an item
	operations := d.registry.Map()["BatchBody"].Properties["operations"]
	least, most := 1, holdfast.MaxOperations
	operations.Items, operations.MinItems, operations.MaxItems = &huma.Schema{AnyOf: shapes}, &least, &most
}

func (d *description) response(r *route, o outcome) *huma.Response {
	response := &huma.Response{Description: o.about, Content: map[string]*huma.MediaType{}}
	if len(o.bodies) > 0 && r.tag == tagCatalog {
		response.Headers = map[string]*huma.Header{"ETag": {Schema: &huma.Schema{Type: huma.TypeString}, Description: "The version, in quotes"}}
	}
	if o.content == "" && len(o.bodies) == 0 {
		response.Content = nil
	} else if o.content != "" {
		response.Content[o.content] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	} else {
		response.Content[jsonContent] = &huma.MediaType{Schema: d.oneOrMore(o.bodies)}
	}
	if r.keyed != keyless {
		response.Headers = map[string]*huma.Header{replayedHeader: replayed()}
	}
	return response
}

func replayed() *huma.Header {
	return &huma.Header{
		Schema: &huma.Schema{Type: huma.TypeString, Enum: []any{"true"}}, Description: "This answer was given under the key before",
	}
}

func (d *description) oneOrMore(bodies []any) *huma.Schema {
	var schemas []*huma.Schema
	for _, body := range bodies {
		schemas = append(schemas, d.registry.Schema(reflect.TypeOf(body), true, ""))
	}
	if len(schemas) == 1 {
		return schemas[0]
	}
	return &huma.Schema{AnyOf: schemas}
}

// problems adds one response for each status that the route's reasons have.
func (d *description) problems(r *route, op *huma.Operation) {
	byStatus := map[int][]holdfast.Reason{}
	for _, reason := range r.mayMeet() {
		if status := statuses[reason]; !slices.Contains(byStatus[status], reason) {
			byStatus[status] = append(byStatus[status], reason)
		}
	}
	for status, reasons := range byStatus {
		var bodies []any
		var words []string
		recorded := false
		for _, reason := range reasons {
			body := problemBody(reason)
			if !slices.ContainsFunc(bodies, func(known any) bool { return reflect.TypeOf(known) == reflect.TypeOf(body) }) {
				bodies = append(bodies, body)
			}
			words = append(words, string(reason))
			recorded = recorded || reason.Recorded()
		}
		response := &huma.Response{
			Description: strings.Join(words, ", "),
			Content:     map[string]*huma.MediaType{problemContent: {Schema: d.oneOrMore(bodies)}},
			Headers:     map[string]*huma.Header{},
		}
		switch {
		case status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
			response.Headers["Retry-After"] = &huma.Header{Schema: &huma.Schema{Type: huma.TypeInteger}, Description: "Seconds to wait"}
		case status == http.StatusUnauthorized:
			response.Headers["WWW-Authenticate"] = &huma.Header{Schema: &huma.Schema{Type: huma.TypeString}}
		case recorded && r.keyed != keyless:
			response.Headers[replayedHeader] = replayed()
		}
		op.Responses[strconv.Itoa(status)] = response
	}
}

// problemBody is what a problem of this reason looks like.
func problemBody(reason holdfast.Reason) any {
	switch reason {
	case holdfast.Insufficient, holdfast.HeldByActive, holdfast.TooManyActive, holdfast.AccountBlocked, holdfast.FeatureNotInPlan, holdfast.SubscriptionInactive:
		return Refusal{}
	}
	switch reason {
	case reasonInUse:
		return CatalogInUse{}
	case holdfast.AccountExists: // no reservation is in it
		return Problem{}
	}
	if reason.Recorded() {
		return Ended{}
	}
	return Problem{}
}

// finish says what huma's reading of Go types cannot: that answers stay open, that lists are never null, and which
// objects may be.
func (d *description) finish() {
	for name, schema := range d.registry.Map() {
		if !slices.Contains(d.requests, name) {
			schema.AdditionalProperties = true
		}
		fields := map[string]reflect.Type{}
		if t := d.registry.TypeFromRef("#/components/schemas/" + name); t != nil {
			collect(t, fields)
		}
		for property, s := range schema.Properties {
			if s.Type == huma.TypeArray {
				s.Nullable = false
			}
			t := fields[property]
			if slices.Contains(d.requests, name) {
				continue // what is sent is left out rather than null
			}
			if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || t.Elem() == timeType {
				continue
			}
			schema.Properties[property] = &huma.Schema{AnyOf: []*huma.Schema{{Ref: s.Ref}, {Type: "null"}}, Description: s.Description}
		}
	}
}

// collect finds the types of a struct's JSON fields, embedded ones included.
func collect(t reflect.Type, fields map[string]reflect.Type) {
	for _, field := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" && fields[name] == nil {
			fields[name] = field.Type
		}
	}
}

const htmlContent = "text/html; charset=utf-8"

var (
	//go:embed docs.html
	docsHTML string
	//go:embed docs.css
	docsCSS string
	//go:embed docs.js
	docsJS string
)

// page is the page at /docs and the policy that it is served under: it may run its own script, ask this server, and
// nothing else.
type page struct {
	html   []byte
	policy string
}

func docsPage() (page, error) {
	parsed, err := template.New("docs").Parse(docsHTML)
	if err != nil {
		return page{}, err
	}
	var written bytes.Buffer
	err = parsed.Execute(&written, map[string]any{"CSS": template.CSS(docsCSS), "JS": template.JS(docsJS)})
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	policy := fmt.Sprintf("default-src 'none'; script-src %s; style-src %s; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
		hash(docsJS), hash(docsCSS))
	return page{html: written.Bytes(), policy: policy}, err
}
