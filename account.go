package holdfast

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Account owns balances inside a project.
type Account struct {
	ID      AccountID
	Project string
	Name    string

	// Version is the fence: every write-back says which version it read. Zero means the account is not stored yet.
	Version int64
	// LastEntry is the number of the newest ledger entry; entries are numbered without gaps.
	LastEntry int64
	// Active counts the reservations that hold a slot.
	Active int

	Plan     string // empty: the catalog's default
	Language string // BCP 47; empty: unknown
	TimeZone string // IANA; empty: UTC
	Blocked  bool
	Notices  bool // wants to be told
	Metadata map[string]string

	// Debts are what is owed, per unit: charges beyond what there was. Repaid by the next purchase or paid period.
	Debts map[string]Amount
	// MergedInto is the account that has taken this one's place; zero: none has. Requests by this name go there; what was
	// handed out before is still settled here.
	MergedInto AccountID
	// Merging is the account that is about to take this one's place: see AnnounceMerge. It means nothing to anything else.
	Merging Merging
	// Names are the accounts that lead here, or were about to: aliases, and those that were merged into this one itself.
	Names []AccountID
	// Line is how many accounts in a row lead here, each to the next, at most.
	Line int
	// Transfers are what has still to be done beyond a decision about this account: most are on their way to MergedInto. They have
	// left this account, and are kept until they have arrived.
	Transfers []Transfer
	// Subscription is what was paid for; nil: nothing, or nothing any more.
	Subscription *Subscription
	// Lapsed is the plan that the last subscription was for; empty: there was none, or another plan has taken its place.
	Lapsed string
	// Anchor is when the plan began, or the next end of a cycle that it goes on with, and AnchorZone the zone that its
	// anniversaries are counted in. Of the default plan: zero, for CreatedAt, in UTC.
	Anchor     time.Time
	AnchorZone string

	CreatedAt time.Time
	DeletedAt time.Time // zero: it was not
	// DecidedAt is the time of the last decision that changed anything; later decisions are never earlier.
	DecidedAt time.Time
}

// PutAccount creates an account or changes what is given; nil leaves a field as it is. Changed is false where everything
// was so already.
type PutAccount struct {
	base
	Language *string // BCP 47, for example ru
	TimeZone *string // IANA, for example Europe/Moscow; the engine checks that it is known
	Blocked  *bool
	Notices  *bool
	Metadata map[string]string // nil leaves it
	// Zone is what TimeZone stands for; the engine passes it in. Nil: UTC.
	Zone *time.Location
}

// Name is "put_account".
func (PutAccount) Name() string { return "put_account" }

func (op PutAccount) check(p *problems) {
	if op.Language != nil && !validLanguage(*op.Language) {
		p.add("language", "use a BCP 47 tag such as ru or en-GB, or an empty text for unknown")
	}
	if op.TimeZone != nil {
		p.text("time_zone", *op.TimeZone, MaxIdentifierBytes)
	}
	p.metadata("metadata", op.Metadata)
}

func validLanguage(tag string) bool {
	return len(tag) <= 35 && !strings.ContainsFunc(tag, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-')
	})
}

func (op PutAccount) print(f *printer) {
	for _, field := range []struct {
		name  string
		value *string
	}{{"language", op.Language}, {"time_zone", op.TimeZone}} {
		if field.value != nil {
			f.text(field.name, *field.value)
		}
	}
	for _, field := range []struct {
		name  string
		value *bool
	}{{"blocked", op.Blocked}, {"notices", op.Notices}} {
		if field.value != nil {
			f.text(field.name, strconv.FormatBool(*field.value))
		}
	}
}

func (op PutAccount) decide(d *decision) Outcome {
	account := &d.state.Account
	existed := d.state.Exists()
	before := *account
	set(&account.Language, op.Language)
	if op.TimeZone != nil && *op.TimeZone != account.TimeZone {
		account.TimeZone = *op.TimeZone
		d.moveZone(op.Zone)
	}
	set(&account.Blocked, op.Blocked)
	set(&account.Notices, op.Notices)
	if op.Metadata != nil {
		account.Metadata = op.Metadata
	}
	changed := !existed || before.Language != account.Language || before.TimeZone != account.TimeZone ||
		before.Blocked != account.Blocked || before.Notices != account.Notices || !maps.Equal(before.Metadata, account.Metadata)
	if changed {
		d.open()
	}
	return Outcome{Changed: changed, Account: d.view()}
}

// meet tells an account that is being created its zone before time is applied to it, so that its first cycles are
// those of its zone.
func (op PutAccount) meet(d *decision) {
	if op.TimeZone != nil && !d.state.Exists() {
		account := &d.state.Account
		account.TimeZone, d.state.Zones.Account = *op.TimeZone, op.Zone
	}
}

func set[T any](field *T, value *T) {
	if value != nil {
		*field = *value
	}
}

// AccountView is an account as people are shown it.
type AccountView struct {
	Exists  bool
	Account Account
	// Subscription is nil where nothing was paid for.
	Subscription *SubscriptionView
	Plan         string
	MaxActive    int
	Balances     []Balance // one per unit, in the catalog's order
	Features     []FeatureView
}

// FeatureView is a feature of the account's plan and what one use would cost now.
type FeatureView struct {
	Name  string
	Price Price
}

// View shows an account as it is at now: what it has, or, where nobody has seen it yet, what it would have. It writes
// nothing: what time has done is applied to a copy.
func View(catalog *Catalog, state *State, now time.Time) *AccountView {
	d := newDecision(catalog, state.Clone(), Command{}, now)
	d.advance()
	return d.view()
}

func (d *decision) view() *AccountView {
	view := &AccountView{Exists: d.state.Exists(), Account: d.state.Account, Plan: d.plan.Name, MaxActive: d.plan.MaxActive}
	view.Subscription = d.subscriptionView()
	for _, unit := range d.units() {
		view.Balances = append(view.Balances, *d.balance(unit))
	}
	for _, name := range d.plan.Features {
		if feature, ok := d.catalog.Feature(name); ok {
			chosen, _ := choose(d.quotes(feature, asked{quantity: 1}))
			view.Features = append(view.Features, FeatureView{Name: name, Price: chosen.price})
		}
	}
	return view
}

// units are the catalog's, then those of pockets whose unit the catalog no longer has.
func (d *decision) units() []string {
	var names []string
	for _, unit := range d.catalog.Units {
		names = append(names, unit.Name)
	}
	for _, g := range d.state.Grants {
		if !slices.Contains(names, g.Unit) {
			names = append(names, g.Unit)
		}
	}
	return names
}
