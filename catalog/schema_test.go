package catalog

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
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
	Products map[identifier]schemaProduct `json:"products,omitempty" jsonschema_description:"What is paid for: a plan for a period, or a grant."`
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
	MaxHold       duration      `json:"max_hold,omitempty" jsonschema_description:"How long a reservation may live in all, from the longest ttl it can have to 96h. Default: 4 times its ttl."`
	Queue         identifier    `json:"queue,omitempty" jsonschema_description:"Where its jobs wait. Default: the feature's name."`
	Overrun       string        `json:"overrun,omitempty" jsonschema:"enum=cap,enum=extend,enum=debt,default=cap" jsonschema_description:"Used more than reserved. cap: not charged. extend: charged from what is available. debt: as extend, and the rest is owed up to the plan's debt_limit."`
	InDoubt       string        `json:"in_doubt,omitempty" jsonschema:"enum=release,enum=charge,default=release" jsonschema_description:"How a reservation in doubt ends that nobody has settled by its expiry."`
	LateCommit    string        `json:"late_commit,omitempty" jsonschema:"enum=charge,enum=absorb,default=charge" jsonschema_description:"What a commit after expiry does: charged from what is available then, or not at all."`
	CancelRunning string        `json:"cancel_running,omitempty" jsonschema:"enum=deny,enum=request,default=deny" jsonschema_description:"Whether running work can be asked to stop."`
}

type schemaPrice struct {
	Unit   identifier `json:"unit" jsonschema_description:"A unit of this file."`
	Amount int64      `json:"amount,omitempty" jsonschema:"minimum=0,maximum=9007199254740991" jsonschema_description:"What a quantity of one costs. 0 is free. A price by usage has per and rates instead."`
	Per    int64      `json:"per,omitempty" jsonschema:"minimum=1,maximum=1000000000" jsonschema_description:"A price by usage: how many of a kind its rate is for. The sum is rounded up once."`
	Rates  rates      `json:"rates,omitempty" jsonschema_description:"A price by usage: how much of the unit for every per of each kind, such as {input_token: 1, output_token: 4}."`
}

type schemaSurface struct {
	TTL duration `json:"ttl,omitempty" jsonschema_description:"Overrides the ttl of every feature, so it is long enough for all of them: 1s to 24h."`
}

type schemaPlan struct {
	Default          bool              `json:"default,omitempty" jsonschema:"default=false" jsonschema_description:"The plan of an account that has no subscription. One plan has it."`
	Retired          bool              `json:"retired,omitempty" jsonschema:"default=false" jsonschema_description:"Nobody is put on it any more; who is on it stays."`
	Names            schemaNames       `json:"names,omitempty" jsonschema_description:"The plan's name per language."`
	Features         []identifier      `json:"features" jsonschema:"uniqueItems=true" jsonschema_description:"The features of the plan."`
	FreeFeatures     []identifier      `json:"free_features,omitempty" jsonschema:"uniqueItems=true" jsonschema_description:"Those of its features that cost nothing on this plan."`
	Allowances       []schemaAllowance `json:"allowances,omitempty" jsonschema:"maxItems=64" jsonschema_description:"What the plan gives, again and again. Add further ones of the same unit below: their order tells them apart."`
	MaxActive        int               `json:"max_active" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"How many reservations of an account may be active at once."`
	Tier             identifier        `json:"tier,omitempty" jsonschema_description:"Tells the queues of this plan's jobs from those of other plans."`
	QueueNoticeAfter duration          `json:"queue_notice_after,omitempty" jsonschema:"default=0s" jsonschema_description:"When to tell a person that the job waits: 0s (never) to 24h."`
	Upgrade          string            `json:"upgrade,omitempty" jsonschema:"enum=difference,enum=prorated,enum=full,default=difference" jsonschema_description:"What a change to this plan within a paid period gives: its allowance less the old one's, that for the rest of the period, or all of it instead of what is left."`
	Grace            days              `json:"grace,omitempty" jsonschema:"default=0s" jsonschema_description:"How long the plan goes on after a failed renewal: 0s to 90d."`
	Refund           string            `json:"refund,omitempty" jsonschema:"enum=revoke_unused,enum=revoke_all_as_debt,enum=keep,default=revoke_unused" jsonschema_description:"What a refunded payment takes back: what is not used, that and the used part as debt, or nothing."`
	RunningOnRefund  string            `json:"running_on_refund,omitempty" jsonschema:"enum=finish,enum=stop,default=finish" jsonschema_description:"What becomes of running work when its payment is refunded."`
	DebtLimit        amounts           `json:"debt_limit,omitempty" jsonschema_description:"The most that may be owed, per unit. Default: nothing."`
	LowBalance       amounts           `json:"low_balance,omitempty" jsonschema_description:"Tell when less is available, per unit."`
}

type schemaAllowance struct {
	Unit     identifier      `json:"unit" jsonschema_description:"A unit of this file."`
	Amount   int64           `json:"amount" jsonschema:"minimum=1,maximum=9007199254740991" jsonschema_description:"How much is given in every cycle."`
	Every    every           `json:"every" jsonschema_description:"How often it is given again. rolling 1m to rolling 366d: from the first use. calendar day, week or month: in the account's zone, not on a plan that is sold. anniversary month: from the day on which the plan began, not on a plan that is sold for days. term: with the paid period, not on the default plan."`
	Rollover *schemaRollover `json:"rollover,omitempty" jsonschema_description:"What is left is carried over into the next cycle. Not from a rolling one."`
}

type schemaRollover struct {
	Cap int64 `json:"cap" jsonschema:"minimum=1,maximum=9007199254740991" jsonschema_description:"The most that is carried over."`
}

type schemaProduct struct {
	Retired bool          `json:"retired,omitempty" jsonschema:"default=false" jsonschema_description:"Not sold any more; a payment that was begun before is still honoured."`
	Names   schemaNames   `json:"names,omitempty" jsonschema_description:"The product's name per language."`
	Plan    identifier    `json:"plan,omitempty" jsonschema_description:"The plan that is bought, with a period. Not the default plan. A product has a plan or a grant."`
	Period  period        `json:"period,omitempty" jsonschema_description:"For how long the plan is bought: 1d to 366d, 1 month to 12 months, 1 year."`
	Grant   *schemaGrant  `json:"grant,omitempty" jsonschema_description:"What is bought instead of a plan."`
	Prices  []schemaMoney `json:"prices" jsonschema:"minItems=1" jsonschema_description:"What it costs, once per currency."`
}

type schemaGrant struct {
	Unit   identifier `json:"unit" jsonschema_description:"A unit of this file."`
	Amount int64      `json:"amount" jsonschema:"minimum=1,maximum=9007199254740991" jsonschema_description:"How much is granted."`
	For    period     `json:"for,omitempty" jsonschema_description:"How long it lasts. Default: for ever."`
}

type schemaMoney struct {
	Currency currencyCode `json:"currency" jsonschema_description:"Three uppercase letters, such as USD; XTR for Telegram Stars."`
	Amount   int64        `json:"amount" jsonschema:"minimum=1,maximum=9007199254740991" jsonschema_description:"In the smallest step of the currency: 499 is $4.99."`
}

type (
	identifier   string
	title        string
	duration     string
	days         string
	every        string
	period       string
	currencyCode string
	rates        map[string]int64
	amounts      map[string]int64
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

func (days) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: "^" + daysPattern + "$", Examples: []any{"12h", "3d"}}
}

func (every) JSONSchema() *jsonschema.Schema {
	examples := []any{"rolling 24h", "rolling 30d"}
	for _, word := range calendarWords {
		examples = append(examples, word)
	}
	return &jsonschema.Schema{Type: "string", Pattern: "^(rolling " + daysPattern + "|" + strings.Join(calendarWords, "|") + ")$", Examples: examples}
}

func (period) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: `^([1-9][0-9]{0,2}d|1 month|([2-9]|1[0-2]) months|1 year)$`, Examples: []any{"30d", "1 month", "1 year"}}
}

func (currencyCode) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: currency.String(), Examples: []any{"XTR", "USD"}}
}

func (rates) JSONSchema() *jsonschema.Schema {
	schema := amounts{}.JSONSchema()
	schema.MinProperties, schema.MaxProperties = atMost(1), atMost(holdfast.MaxUsageKinds)
	return schema
}

func (amounts) JSONSchema() *jsonschema.Schema {
	return &jsonschema.Schema{
		Type: "object", PropertyNames: identifier("").JSONSchema(),
		AdditionalProperties: &jsonschema.Schema{Type: "integer", Minimum: "0", Maximum: json.Number(strconv.FormatInt(int64(holdfast.MaxAmount), 10))},
	}
}

// JSONSchemaExtend says what the generator cannot: the names of units, features, surfaces, plans and products are words,
// and of units, features and plans there is at least one.
func (schemaFile) JSONSchemaExtend(file *jsonschema.Schema) {
	for section := file.Properties.Oldest(); section != nil; section = section.Next() {
		section.Value.PropertyNames = identifier("").JSONSchema()
		section.Value.MaxProperties = atMost(holdfast.MaxCatalogNames)
		if slices.Contains(file.Required, section.Key) {
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
	for section, known := range map[string]level{"units": unitLevel, "features": featureLevel, "surfaces": surfaceLevel, "plans": planLevel, "products": productLevel} {
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
			allowance := read(read(thing.Properties["allowances"]).Items)
			same("allowances", allowanceLevel.fields, allowance)
			same("rollover", rolloverLevel.fields, read(allowance.Properties["rollover"]))
		case "products":
			same("names", spoken, read(thing.Properties["names"]))
			same("grant", grantLevel.fields, read(thing.Properties["grant"]))
			same("prices", moneyLevel.fields, read(read(thing.Properties["prices"]).Items))
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
