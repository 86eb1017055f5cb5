package httpapi

import (
	"maps"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Reservation is a reservation as the API shows it. It never shows a lease token; only Started does.
type Reservation struct {
	ID             string                     `json:"id" example:"rsv_…"`
	Account        string                     `json:"account" example:"telegram:42"`
	Feature        string                     `json:"feature" example:"image.generate"`
	Quantity       holdfast.Amount            `json:"quantity"`
	State          holdfast.ReservationState  `json:"state" doc:"reserved, running, committed, released or expired. More may come." example:"reserved"`
	InDoubt        bool                       `json:"in_doubt" doc:"Nobody knows whether the work happened: its money is held, its slot is free"`
	Unit           string                     `json:"unit" example:"credit"`
	Reserved       holdfast.Amount            `json:"reserved"`
	Used           holdfast.Amount            `json:"used"`
	Debt           holdfast.Amount            `json:"debt" doc:"Charged beyond what there was, and owed"`
	Unbilled       holdfast.Amount            `json:"unbilled" doc:"Reported beyond what was charged"`
	LateUsed       holdfast.Amount            `json:"late_used" doc:"Charged after expiry"`
	Refunded       holdfast.Amount            `json:"refunded"`
	Allocations    []Allocation               `json:"allocations" doc:"From which grants, in the order in which they are charged"`
	Price          Price                      `json:"price" doc:"For a quantity of one"`
	CatalogVersion int64                      `json:"catalog_version"`
	Key            *string                    `json:"key" doc:"The Idempotency-Key it was made with"`
	Surface        *string                    `json:"surface"`
	Metadata       map[string]string          `json:"metadata"`
	Usage          map[string]holdfast.Amount `json:"usage" doc:"At most, as told by the reserve"`
	Reported       map[string]holdfast.Amount `json:"reported" doc:"What was used, as told by the commit"`
	Worker         *string                    `json:"worker"`
	Attempts       int                        `json:"attempts" doc:"How often it was started"`
	Queue          *string                    `json:"queue" doc:"Where its job waits, or waited; null: it has none"`
	Job            *Job                       `json:"job" doc:"null: it has none"`
	CreatedAt      time.Time                  `json:"created_at"`
	ExpiresAt      time.Time                  `json:"expires_at"`
	LeaseExpiresAt *time.Time                 `json:"lease_expires_at"`
	EndedAt        *time.Time                 `json:"ended_at"`
	CancelAsked    bool                       `json:"cancel_requested" doc:"true: the worker is to stop, and to commit what it has used"`
	Cause          *string                    `json:"cause" doc:"Of a release: failed, cancelled, forced, or what the caller named"`
	Balance        *Balance                   `json:"balance" doc:"Of the reservation's unit, after the call; null where the call moves nothing, and in lists"`
}

// Allocation is what a reservation took from one grant.
type Allocation struct {
	Grant  string          `json:"grant" example:"grt_…"`
	Source holdfast.Source `json:"source" example:"allowance"`
	Amount holdfast.Amount `json:"amount"`
	Late   bool            `json:"late" doc:"true: taken by a late commit"`
}

// Price is what one use costs: a fixed amount, or, by usage, the rate of every kind for each per of it.
type Price struct {
	Unit   string                     `json:"unit"`
	Amount *holdfast.Amount           `json:"amount" doc:"null: by usage"`
	Per    *holdfast.Amount           `json:"per,omitempty" doc:"By usage: rates are for so many of each kind; the sum is rounded up once"`
	Rates  map[string]holdfast.Amount `json:"rates,omitempty"`
}

// Balance is what an account has in one unit.
type Balance struct {
	Unit      string          `json:"unit"`
	Available holdfast.Amount `json:"available"`
	Reserved  holdfast.Amount `json:"reserved"`
	Debt      holdfast.Amount `json:"debt"`
	Cycle     *Cycle          `json:"cycle" doc:"The allowance that resets soonest; null: the plan has none"`
	ResetsAt  *time.Time      `json:"resets_at"`
}

// Cycle is an allowance's current cycle. Null times: it starts with the first amount taken from it.
type Cycle struct {
	Granted  holdfast.Amount `json:"granted"`
	Used     holdfast.Amount `json:"used"`
	Reserved holdfast.Amount `json:"reserved"`
	Voided   holdfast.Amount `json:"voided" doc:"By corrections"`
	StartsAt *time.Time      `json:"starts_at"`
	EndsAt   *time.Time      `json:"ends_at"`
}

// Allowed is a dry run that would succeed: the reservation as it would be, without an id.
type Allowed struct {
	Allowed bool   `json:"allowed" doc:"true"`
	ID      string `json:"id,omitempty" hidden:"true"` // hides the reservation's: it does not exist
	Reservation
}

// Denied is a dry run that would be refused, with the refusal's numbers.
type Denied struct {
	Allowed bool            `json:"allowed" doc:"false"`
	Reason  holdfast.Reason `json:"reason"`
	Title   string          `json:"title"`
	Detail  string          `json:"detail"`
	Numbers
}

// Started is a reservation with the lease that a start gave.
type Started struct {
	Reservation
	LeaseToken string `json:"lease_token" doc:"Send it with heartbeat, commit and release"`
}

// ReservationChanged is a reservation after a call that may have changed it.
type ReservationChanged struct {
	Reservation
	Changed bool `json:"changed" doc:"false: it was so already"`
}

// Settled is a reservation that ended, and where what it held went.
type Settled struct {
	ReservationChanged
	Returned    holdfast.Amount `json:"returned" doc:"Back in the grants it came from"`
	Voided      holdfast.Amount `json:"voided" doc:"Came back to a grant that had ended, and ended with it"`
	Late        bool            `json:"late" doc:"Charged after expiry"`
	MayContinue bool            `json:"may_continue" doc:"false: the right has ended meanwhile; start nothing new"`
}

// Refunded is a reservation whose charge was given back.
type Refunded struct {
	ReservationChanged
	Returned holdfast.Amount `json:"returned"`
	Voided   holdfast.Amount `json:"voided"`
}

// Account is an account as the API shows it.
type Account struct {
	Account      string            `json:"account" doc:"The name that was asked for"`
	MergedInto   *string           `json:"merged_into" doc:"Not null: that name leads to this account, which is shown"`
	Exists       bool              `json:"exists" doc:"false: nobody has seen it yet; this is what it would have"`
	Plan         string            `json:"plan"`
	Subscription *Subscription     `json:"subscription" doc:"null: nothing is paid for. The plan was set without a payment, or is the default"`
	Language     *string           `json:"language"`
	TimeZone     *string           `json:"time_zone"`
	Blocked      bool              `json:"blocked"`
	Notices      bool              `json:"notices"`
	Metadata     map[string]string `json:"metadata"`
	Balances     []Balance         `json:"balances" doc:"One per unit"`
	Active       int               `json:"active" doc:"Reservations that take a slot"`
	MaxActive    int               `json:"max_active"`
	Features     []Feature         `json:"features" doc:"What the plan has, and what one use costs now"`
	CreatedAt    *time.Time        `json:"created_at"`
	DeletedAt    *time.Time        `json:"deleted_at" doc:"Not null: it was deleted, and begins nothing new"`
	Catalog      int64             `json:"catalog_version" doc:"Of the catalog by which it is shown"`
}

// Subscription is what was paid for.
type Subscription struct {
	Plan        string                      `json:"plan" example:"pro"`
	Status      holdfast.SubscriptionStatus `json:"status" doc:"active, cancelled (paid for, and it ends with what is paid) or grace (not renewed yet). More may come." example:"active"`
	PeriodStart time.Time                   `json:"period_start"`
	PeriodEnd   time.Time                   `json:"period_end" doc:"Of the current period, or of the last that was"`
	PaidUntil   time.Time                   `json:"paid_until" doc:"The end of all that is paid"`
	GraceUntil  *time.Time                  `json:"grace_until" doc:"Not null: it was not renewed, and lapses then"`
	NextPlan    *string                     `json:"next_plan" doc:"The plan from paid_until on; null: the same"`
}

// Feature is what an account may ask for, and what one use costs now.
type Feature struct {
	Feature string `json:"feature"`
	Price
}

// Balances are what an account had at a moment.
type Balances struct {
	Account    string    `json:"account" doc:"The name that was asked for"`
	MergedInto *string   `json:"merged_into" doc:"Not null: that name leads to this account"`
	AsOf       time.Time `json:"as_of"`
	Balances   []Balance `json:"balances" doc:"One per unit"`
}

// Explanation says step by step why a reserve would be granted or refused.
type Explanation struct {
	Account    string          `json:"account" doc:"The name that was asked for"`
	MergedInto *string         `json:"merged_into" doc:"Not null: that name leads to this account"`
	Plan       string          `json:"plan"`
	Feature    string          `json:"feature"`
	Allowed    bool            `json:"allowed"`
	Reason     *string         `json:"reason" doc:"What a reserve would be refused with; null: it would be granted"`
	Steps      []ExplainedStep `json:"steps" doc:"In the order in which they are decided; the first that fails decides"`
}

// ExplainedStep is one check, with the numbers that it looked at; null: it does not look at them.
type ExplainedStep struct {
	Check     holdfast.CheckName `json:"check" doc:"account, plan, price (one for each way to pay, of which one has to pass) or slot. More may come."`
	Passed    bool               `json:"passed"`
	Text      string             `json:"text" doc:"For the person"`
	Unit      *string            `json:"unit"`
	Needed    *holdfast.Amount   `json:"needed"`
	Available *holdfast.Amount   `json:"available"`
	Held      *holdfast.Amount   `json:"held"`
	Pockets   []Pocket           `json:"pockets" doc:"Grants of the unit, in the order in which they are taken from, then those that are not"`
	Active    *int               `json:"active"`
	MaxActive *int               `json:"max_active"`
}

// Pocket is a grant as a reserve would look at it.
type Pocket struct {
	Grant     string             `json:"grant" example:"grt_…"`
	Source    holdfast.Source    `json:"source"`
	Priority  int                `json:"priority"`
	Use       holdfast.PocketUse `json:"use" doc:"usable, starts_when_used, starts_later, ended or other_features. More may come." example:"usable"`
	Available holdfast.Amount    `json:"available"`
	Takes     holdfast.Amount    `json:"takes" doc:"What the reserve would take from it"`
	StartsAt  *time.Time         `json:"starts_at"`
	EndsAt    *time.Time         `json:"ends_at"`
}

// Linked is a name that leads to an account.
type Linked struct {
	Account    string    `json:"account" doc:"The name that was asked for"`
	MergedInto *string   `json:"merged_into" doc:"Not null: that name leads to this account, and so does the alias"`
	Alias      string    `json:"alias"`
	Changed    bool      `json:"changed" doc:"false: it led there already"`
	Balances   []Balance `json:"balances" doc:"Of the account, one per unit"`
}

// AccountChanged is an account after a call that may have changed it.
type AccountChanged struct {
	Account
	Changed bool `json:"changed" doc:"false: everything was so already"`
}

// Grant is a pocket.
type Grant struct {
	ID        string          `json:"id" example:"grt_…"`
	Unit      string          `json:"unit"`
	Source    holdfast.Source `json:"source" doc:"allowance, rollover, promo, purchase or correction. More may come." example:"promo"`
	Features  []string        `json:"features" doc:"Which may take from it; empty: all"`
	Priority  int             `json:"priority" doc:"The lowest is taken first"`
	Granted   holdfast.Amount `json:"granted"`
	Reserved  holdfast.Amount `json:"reserved"`
	Used      holdfast.Amount `json:"used"`
	Voided    holdfast.Amount `json:"voided"`
	Rolled    holdfast.Amount `json:"rolled" doc:"Of what is voided, what was carried into the next cycle"`
	Available holdfast.Amount `json:"available" doc:"0 before it starts and after it ends"`
	StartsAt  time.Time       `json:"starts_at"`
	EndsAt    *time.Time      `json:"ends_at" doc:"null: never"`
	CreatedAt time.Time       `json:"created_at"`
}

// Credited answers a grant or an adjustment.
type Credited struct {
	Grant   *Grant  `json:"grant" doc:"null: a negative adjustment opens none"`
	Balance Balance `json:"balance" doc:"As it is afterwards"`
}

// Payment is a completed payment, what it came to, and what its account has now.
type Payment struct {
	Provider     string          `json:"provider"`
	PaymentID    string          `json:"payment_id"`
	Account      string          `json:"account"`
	Product      string          `json:"product"`
	Amount       holdfast.Amount `json:"amount" doc:"In the currency's smallest step"`
	Currency     string          `json:"currency"`
	State        string          `json:"state" doc:"granted or flagged (kept, and nothing was granted). More may come." example:"granted"`
	Reason       *string         `json:"reason" doc:"Of flagged: wrong_amount, wrong_currency, wrong_product, wrong_person, account_blocked, account_deleted, too_much or refunded. More may come."`
	Plan         *string         `json:"plan" doc:"Of a product that is a plan"`
	PeriodStart  *time.Time      `json:"period_start" doc:"Of what it pays for, as it was decided"`
	PeriodEnd    *time.Time      `json:"period_end"`
	Refunded     holdfast.Amount `json:"refunded" doc:"Of amount"`
	Revoked      holdfast.Amount `json:"revoked" doc:"Of what was granted: taken back, or to be taken back when running work returns it"`
	Debt         holdfast.Amount `json:"debt" doc:"Of what was granted: it had been used, and is owed"`
	Disputed     bool            `json:"disputed"`
	PaidAt       *time.Time      `json:"paid_at" doc:"When it was decided; null: it was told for somebody else, and their own is still to come"`
	Balances     []Balance       `json:"balances" doc:"Of the account as it is now, one per unit; empty where the payment is somebody else's"`
	Subscription *Subscription   `json:"subscription" doc:"Of the account as it is now"`
}

// PaymentChanged is a payment after a call that may have changed it.
type PaymentChanged struct {
	Payment
	Changed bool `json:"changed" doc:"false: it was so already"`
}

// PaymentPending answers a refund of a payment that nobody has told of yet.
type PaymentPending struct {
	State string `json:"state" doc:"pending: the refund is applied when the payment arrives" example:"pending"`
}

// Entry is one line of the ledger.
type Entry struct {
	No          int64              `json:"no" doc:"Numbered per account, without gaps"`
	Kind        holdfast.EntryKind `json:"kind" doc:"What happened. More kinds may come." example:"commit"`
	Unit        *string            `json:"unit" doc:"null: no money moved"`
	Deltas      []Delta            `json:"deltas"`
	Reservation *string            `json:"reservation"`
	Key         *string            `json:"key"`
	Actor       *string            `json:"actor" doc:"Who"`
	Reason      *string            `json:"reason" doc:"Why"`
	Debt        holdfast.Amount    `json:"debt" doc:"What the entry added to the debt in this unit; negative: repaid or forgiven"`
	EffectiveAt time.Time          `json:"effective_at"`
	RecordedAt  time.Time          `json:"recorded_at"`
	Balance     *EntryBalance      `json:"balance" doc:"Of this unit, after the entry; null where no money moved"`
}

// Delta is what an entry changed in one grant.
type Delta struct {
	Grant    string          `json:"grant"`
	Granted  holdfast.Amount `json:"granted"`
	Reserved holdfast.Amount `json:"reserved"`
	Used     holdfast.Amount `json:"used"`
	Voided   holdfast.Amount `json:"voided"`
}

// EntryBalance is what the account had, and owed, after an entry, in its unit.
type EntryBalance struct {
	Available holdfast.Amount `json:"available"`
	Reserved  holdfast.Amount `json:"reserved"`
	Debt      holdfast.Amount `json:"debt"`
}

// ReservationList, GrantList and EntryList are pages, newest first. NextCursor is null on the last one.
type (
	ReservationList struct {
		Items      []Reservation `json:"items"`
		NextCursor *string       `json:"next_cursor" doc:"Send it as cursor for the next page; null: this was the last"`
	}
	GrantList struct {
		Items      []Grant `json:"items"`
		NextCursor *string `json:"next_cursor" doc:"Send it as cursor for the next page; null: this was the last"`
	}
	EntryList struct {
		Items      []Entry `json:"items"`
		NextCursor *string `json:"next_cursor" doc:"Send it as cursor for the next page; null: this was the last"`
	}
)

// Catalog is what a project sells.
type Catalog struct {
	Version int64  `json:"version" doc:"As in ETag"`
	Source  string `json:"source" doc:"YAML"`
}

// CatalogChanged is the catalog after a call that may have changed it.
type CatalogChanged struct {
	Version int64 `json:"version" doc:"As in ETag"`
	Changed bool  `json:"changed" doc:"false: it had the same content already"`
}

// Project is a project that is there now.
type Project struct {
	Name    string `json:"name" example:"shop"`
	Changed bool   `json:"changed" doc:"false: it was there already"`
}

// KeyMade is a new key. It is the only answer that ever has a secret.
type KeyMade struct {
	ID        string   `json:"id" doc:"Names the key in the ledger and in logs, and revokes it"`
	Project   string   `json:"project"`
	Scopes    []string `json:"scopes"`
	Note      *string  `json:"note"`
	RateLimit *int     `json:"rate_limit" doc:"null: the server's"`
	Secret    string   `json:"secret" doc:"What to send as Authorization: Bearer. It is shown this once"`
}

// BatchResults are what became of a batch, in the order of its operations.
type BatchResults struct {
	Results []BatchResult `json:"results"`
}

// BatchResult is what the call of its own would have answered.
type BatchResult struct {
	Status   int  `json:"status" doc:"The HTTP status of this operation"`
	Replayed bool `json:"replayed" doc:"true: this answer was given under the key before"`
	Body     any  `json:"body" doc:"The answer or the problem"`
}

// Health answers a probe.
type Health struct {
	Status string `json:"status" example:"ok"`
}

func (c *call) reservation(r *holdfast.Reservation, balance *holdfast.Balance) Reservation {
	shown := Reservation{
		ID: holdfast.ReservationRef.Encode(c.account, r.ID), Account: c.accountName, Feature: r.Feature, Quantity: r.Quantity,
		State: r.State, InDoubt: r.InDoubt, Unit: r.Price.Unit,
		Reserved: r.Reserved, Used: r.Used, Debt: r.Debt, Unbilled: r.Unbilled, LateUsed: r.LateUsed, Refunded: r.Refunded,
		Allocations: make([]Allocation, 0, len(r.Allocations)), Price: priceOf(r.Price), CatalogVersion: r.CatalogVersion,
		Key: known(r.Key), Surface: known(r.Surface), Metadata: orEmpty(r.Metadata), Usage: orEmpty(r.Usage), Reported: orEmpty(r.Reported),
		Worker: known(r.Worker), Attempts: r.Attempts, Job: jobOf(r.Job),
		CreatedAt: r.CreatedAt.UTC(), ExpiresAt: r.ExpiresAt.UTC(),
		LeaseExpiresAt: instant(r.LeaseExpiresAt), EndedAt: instant(r.EndedAt),
		CancelAsked: !r.CancelRequestedAt.IsZero(), Cause: known(r.Cause),
	}
	if r.Job != nil {
		shown.Queue = &r.Job.Queue
	}
	for _, a := range r.Allocations {
		// An overrun and a late commit take without having reserved.
		shown.Allocations = append(shown.Allocations, Allocation{
			Grant: holdfast.GrantRef.Encode(c.account, a.Grant), Source: a.Source, Amount: max(a.Reserved, a.Used), Late: a.Reserved == 0 && !r.LateAt.IsZero(),
		})
	}
	if balance != nil {
		b := balanceOf(balance)
		shown.Balance = &b
	}
	return shown
}

func priceOf(p holdfast.Price) Price {
	if p.ByUsage() {
		return Price{Unit: p.Unit, Per: &p.Per, Rates: p.Rates}
	}
	return Price{Unit: p.Unit, Amount: &p.Amount}
}

func balanceOf(b *holdfast.Balance) Balance {
	return Balance{
		Unit: b.Unit, Available: b.Available, Reserved: b.Reserved, Debt: b.Debt, Cycle: cycle(b.Cycle), ResetsAt: instant(b.ResetsAt),
	}
}

func balancesOf(view *holdfast.AccountView) []Balance {
	list := make([]Balance, 0, len(view.Balances))
	for i := range view.Balances {
		list = append(list, balanceOf(&view.Balances[i]))
	}
	return list
}

func cycle(c *holdfast.CycleNumbers) *Cycle {
	if c == nil {
		return nil
	}
	return &Cycle{Granted: c.Granted, Used: c.Used, Reserved: c.Reserved, Voided: c.Voided, StartsAt: instant(c.StartsAt), EndsAt: instant(c.EndsAt)}
}

// AccountOf is an account as the API shows it by a version of the catalog.
func AccountOf(name string, view *holdfast.AccountView, catalogVersion int64) Account {
	a := &view.Account
	shown := Account{
		Account: name, MergedInto: mergedInto(name, view), Exists: view.Exists, Plan: view.Plan,
		Language: known(a.Language), TimeZone: known(a.TimeZone), Blocked: a.Blocked, Notices: a.Notices, Metadata: orEmpty(a.Metadata),
		Active: a.Active, MaxActive: view.MaxActive, Features: []Feature{}, CreatedAt: instant(a.CreatedAt),
		DeletedAt: instant(a.DeletedAt), Catalog: catalogVersion,
	}
	shown.Balances, shown.Subscription = balancesOf(view), subscriptionOf(view.Subscription)
	for _, f := range view.Features {
		shown.Features = append(shown.Features, Feature{f.Name, priceOf(f.Price)})
	}
	return shown
}

func subscriptionOf(s *holdfast.SubscriptionView) *Subscription {
	if s == nil {
		return nil
	}
	return &Subscription{
		Plan: s.Plan, Status: s.Status, PeriodStart: s.Start.UTC(), PeriodEnd: s.End.UTC(), PaidUntil: s.PaidUntil.UTC(),
		GraceUntil: instant(s.GraceUntil), NextPlan: known(s.Next),
	}
}

// payment shows a payment with what an account has; nil: with nothing of it.
func (c *call) payment(p *holdfast.Payment, view *holdfast.AccountView) Payment {
	shown := Payment{
		Provider: p.Provider, PaymentID: p.PaymentID, Account: c.accountName, Product: p.Product, Amount: p.Amount, Currency: p.Currency,
		State: string(p.State), Reason: known(string(p.Flag)), Plan: known(p.Plan), PeriodStart: instant(p.PeriodStart), PeriodEnd: instant(p.PeriodEnd),
		Refunded: p.Refunded, Revoked: p.Revoked, Debt: p.Owed, Disputed: p.Disputed, PaidAt: instant(p.PaidAt), Balances: []Balance{},
	}
	if view != nil {
		shown.Balances, shown.Subscription = balancesOf(view), subscriptionOf(view.Subscription)
	}
	return shown
}

// mergedInto is the account's own name, where another one was asked for.
func mergedInto(name string, view *holdfast.AccountView) *string {
	if view.Account.ID == holdfast.AccountIDOf(view.Account.Project, name) {
		return nil
	}
	return known(view.Account.Name)
}

func (c *call) grant(g *holdfast.Grant) Grant {
	shown := Grant{
		ID: holdfast.GrantRef.Encode(c.account, g.ID), Unit: g.Unit, Source: g.Source, Features: append([]string{}, g.Features...),
		Priority: g.Priority, Granted: g.Granted, Reserved: g.Reserved, Used: g.Used, Voided: g.Voided, Rolled: g.Rolled,
		StartsAt: g.StartsAt.UTC(), EndsAt: instant(g.EndsAt), CreatedAt: g.CreatedAt.UTC(),
	}
	if g.InForce(c.api.Engine.Now()) {
		shown.Available = g.Available()
	}
	return shown
}

func (c *call) entry(e *holdfast.Entry) Entry {
	shown := Entry{
		No: e.No, Kind: e.Kind, Unit: known(e.Unit), Deltas: make([]Delta, 0, len(e.Deltas)),
		Key: known(e.Key), Actor: known(e.Actor), Reason: known(e.Reason), Debt: e.Debt,
		EffectiveAt: e.EffectiveAt.UTC(), RecordedAt: e.RecordedAt.UTC(),
	}
	if !e.Reservation.IsZero() {
		shown.Reservation = known(holdfast.ReservationRef.Encode(c.account, e.Reservation))
	}
	if e.Unit != "" {
		shown.Balance = &EntryBalance{Available: e.Available, Reserved: e.Reserved, Debt: e.Owed}
	}
	for _, d := range e.Deltas {
		shown.Deltas = append(shown.Deltas, Delta{
			Grant:   holdfast.GrantRef.Encode(c.account, d.Grant),
			Granted: d.Granted, Reserved: d.Reserved, Used: d.Used, Voided: d.Voided,
		})
	}
	return shown
}

// known is null for an empty text.
func known(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// instant is null for no time.
func instant(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

// orEmpty is {} rather than null.
func orEmpty[V any](pairs map[string]V) map[string]V {
	if pairs == nil {
		return map[string]V{}
	}
	return maps.Clone(pairs)
}
