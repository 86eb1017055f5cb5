package catalog

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"

	"github.com/holdfast-dev/holdfast"
)

// schema.json is written from the types below by `go test ./catalog -run Schema -update`. They live in a test, so that
// the product does not carry the generator.

type schemaFile struct {
	Units    map[identifier]schemaUnit    `json:"units" jsonschema_description:"What is counted."`
	Features map[identifier]schemaFeature `json:"features" jsonschema_description:"What a person can ask for."`
	Surfaces map[identifier]schemaSurface `json:"surfaces,omitempty" jsonschema_description:"Where requests come from."`
	Plans    map[identifier]schemaPlan    `json:"plans" jsonschema_description:"Which features an account has, what it is given, and how much may run at once. One plan is the default."`
}

type schemaUnit struct {
	Scale int         `json:"scale,omitempty" jsonschema:"minimum=0,maximum=15,default=0" jsonschema_description:"How many decimal digits are shown. Amounts are always integers of the smallest step."`
	Names schemaForms `json:"names,omitempty" jsonschema_description:"The unit's name per language, in every plural form of the language."`
}

type schemaForms struct {
	English *schemaEnglish `json:"en,omitempty"`
	Russian *schemaRussian `json:"ru,omitempty"`
}

type schemaEnglish struct {
	One   title `json:"one" jsonschema_description:"1 credit"`
	Other title `json:"other" jsonschema_description:"2 credits"`
}

type schemaRussian struct {
	One   title `json:"one" jsonschema_description:"1, 21, 31 кредит"`
	Few   title `json:"few" jsonschema_description:"2, 3, 24 кредита"`
	Many  title `json:"many" jsonschema_description:"5, 11, 100 кредитов"`
	Other title `json:"other" jsonschema_description:"1,5 кредита"`
}

type schemaNames struct {
	English title `json:"en,omitempty"`
	Russian title `json:"ru,omitempty"`
}

type schemaFeature struct {
	Names         schemaNames   `json:"names,omitempty" jsonschema_description:"The feature's name per language."`
	Price         []schemaPrice `json:"price" jsonschema:"minItems=1" jsonschema_description:"Alternatives in the order in which they are tried: the first that is payable in full wins."`
	LongestJob    duration      `json:"longest_job" jsonschema_description:"The longest legal run. The ttl is at least 3 times as long."`
	LongestWait   duration      `json:"longest_wait,omitempty" jsonschema:"default=0s" jsonschema_description:"The longest wait in the queue. The ttl is not shorter."`
	TTL           duration      `json:"ttl" jsonschema_description:"How long a reservation waits for its job, and again from the job's start: 1s to 24h."`
	Overrun       string        `json:"overrun,omitempty" jsonschema:"enum=cap,default=cap" jsonschema_description:"What is charged where more was used than reserved."`
	LateCommit    string        `json:"late_commit,omitempty" jsonschema:"enum=charge,default=charge" jsonschema_description:"What a commit after expiry does."`
	CancelRunning string        `json:"cancel_running,omitempty" jsonschema:"enum=deny,default=deny" jsonschema_description:"Whether running work can be cancelled."`
}

type schemaPrice struct {
	Unit   identifier `json:"unit" jsonschema_description:"A unit of this file."`
	Amount int64      `json:"amount" jsonschema:"minimum=0,maximum=9007199254740991" jsonschema_description:"What a quantity of one costs. 0 is free."`
}

type schemaSurface struct {
	TTL duration `json:"ttl,omitempty" jsonschema_description:"Overrides the ttl of every feature, so it is long enough for all of them: 1s to 24h."`
}

type schemaPlan struct {
	Default      bool              `json:"default,omitempty" jsonschema:"default=false" jsonschema_description:"The plan of an account that has no subscription. One plan has it."`
	Names        schemaNames       `json:"names,omitempty" jsonschema_description:"The plan's name per language."`
	Features     []identifier      `json:"features" jsonschema:"uniqueItems=true" jsonschema_description:"The features of the plan."`
	FreeFeatures []identifier      `json:"free_features,omitempty" jsonschema:"uniqueItems=true" jsonschema_description:"Those of its features that cost nothing on this plan."`
	Allowances   []schemaAllowance `json:"allowances,omitempty" jsonschema:"maxItems=64" jsonschema_description:"What the plan gives, again and again. Add further ones of the same unit below: their order tells them apart."`
	MaxActive    int               `json:"max_active" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"How many reservations of an account may be active at once."`
}

type schemaAllowance struct {
	Unit   identifier `json:"unit" jsonschema_description:"A unit of this file."`
	Amount int64      `json:"amount" jsonschema:"minimum=1,maximum=9007199254740991" jsonschema_description:"How much is given in every cycle."`
	Every  every      `json:"every" jsonschema_description:"How often it is given again. The cycle begins with the first use of the allowance: rolling 1m to rolling 366d."`
}

type (
	identifier string
	title      string
	duration   string
	every      string
)

const (
	identifierPattern = `^[a-z0-9._-]+$`
	durationPattern   = `([0-9]+h([0-9]+m)?([0-9]+s)?|[0-9]+m([0-9]+s)?|[0-9]+s)`
	daysPattern       = `([0-9]+d([0-9]+h)?([0-9]+m)?([0-9]+s)?|` + durationPattern + `)`
)

func atMost(n uint64) *uint64 { return &n }

func (identifier) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: identifierPattern, MaxLength: atMost(holdfast.MaxIdentifierBytes)}
}

func (title) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `\S`, MaxLength: atMost(holdfast.MaxNameBytes)}
}

func (duration) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: "^" + durationPattern + "$", Examples: []any{"60s", "5m", "1h30m"}}
}

func (every) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: "^rolling " + daysPattern + "$", Examples: []any{"rolling 24h", "rolling 30d"}}
}

// JSONSchemaExtend says what the generator cannot: the names of units, features, surfaces and plans are words, and of
// all but surfaces there is at least one.
func (schemaFile) JSONSchemaExtend(file *jsonschema.Schema) {
	for section := file.Properties.Oldest(); section != nil; section = section.Next() {
		section.Value.PropertyNames = identifier("").JSONSchema()
		section.Value.MaxProperties = atMost(holdfast.MaxCatalogNames)
		if section.Key != "surfaces" {
			section.Value.MinProperties = atMost(1)
		}
	}
}

func updating() bool { return flag.Lookup("update").Value.String() == "true" }

func TestTheSchemaIsWrittenFromTheTypesOfThisFile(t *testing.T) {
	generator := jsonschema.Reflector{DoNotReference: true, Anonymous: true}
	generated := generator.Reflect(schemaFile{})
	generated.Title = "Holdfast catalog"
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(generated); err != nil {
		t.Fatal(err)
	}
	if updating() {
		if err := os.WriteFile("schema.json", want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want.String(), string(Schema())); diff != "" {
		t.Errorf("write it again with -update (-want +got):\n%s", diff)
	}
}

func TestTheSchemaOffersTheFieldsThatParseKnows(t *testing.T) {
	if updating() {
		t.Skip("the embedded schema is the old one")
	}
	type object struct {
		Properties           map[string]json.RawMessage
		AdditionalProperties json.RawMessage
		Items                json.RawMessage
	}
	read := func(raw json.RawMessage) object {
		t.Helper()
		var o object
		if err := json.Unmarshal(raw, &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	same := func(what string, known []string, o object) {
		t.Helper()
		if offered := slices.Sorted(maps.Keys(o.Properties)); !slices.Equal(offered, slices.Sorted(slices.Values(known))) {
			t.Errorf("%s: the schema offers %q, Parse knows %q", what, offered, known)
		}
		if string(o.AdditionalProperties) != "false" {
			t.Errorf("%s: the schema accepts unknown fields", what)
		}
	}
	file := read(Schema())
	same("file", fileLevel.fields, file)
	for section, known := range map[string]level{"units": unitLevel, "features": featureLevel, "surfaces": surfaceLevel, "plans": planLevel} {
		thing := read(read(file.Properties[section]).AdditionalProperties)
		same(section, known.fields, thing)
		switch section {
		case "units":
			forms := read(thing.Properties["names"])
			same("forms", spoken, forms)
			for language, needed := range pluralForms {
				same(language, needed, read(forms.Properties[language]))
			}
		case "features":
			same("names", spoken, read(thing.Properties["names"]))
			same("price", priceLevel.fields, read(read(thing.Properties["price"]).Items))
		case "plans":
			same("names", spoken, read(thing.Properties["names"]))
			same("allowances", allowanceLevel.fields, read(read(thing.Properties["allowances"]).Items))
		}
	}
}

func TestEverySpokenLanguageHasItsPluralForms(t *testing.T) {
	for _, language := range spoken {
		if len(pluralForms[language]) == 0 {
			t.Errorf("%s has no plural forms", language)
		}
	}
}
