package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// The shapes below have the fields that outcomes are made of. What else an answer has is not looked at: the API grows.

// problem is a refusal, or what is wrong with a request.
type problem struct {
	Type     string
	Reason   string
	Detail   string
	Scope    string
	Problems []holdfast.Problem
	numbers
	Reservation *reservation
}

// numbers tell why.
type numbers struct {
	Feature, Unit           *string
	Needed, Available, Held *holdfast.Amount
	Active                  int
	MaxActive               int `json:"max_active"`
	Cycle                   *cycle
	ResetsAt                *time.Time `json:"resets_at"`
	Plans                   []string
	Estimated               bool
	AffordableUsage         map[string]holdfast.Amount `json:"affordable_usage"`
	Alternatives            []holdfast.Alternative
}

type reservation struct {
	ID, Account, Feature string
	Quantity             holdfast.Amount
	State                holdfast.ReservationState
	InDoubt              bool `json:"in_doubt"`

	Reserved, Used, Debt, Unbilled holdfast.Amount
	LateUsed                       holdfast.Amount `json:"late_used"`
	Refunded                       holdfast.Amount

	Allocations []struct {
		Grant  string
		Source holdfast.Source
		Amount holdfast.Amount
		Late   bool
	}
	Unit           string
	Price          price
	CatalogVersion int64 `json:"catalog_version"`

	Key, Surface    *string
	Metadata        map[string]string
	Usage, Reported map[string]holdfast.Amount
	Worker          *string
	Attempts        int
	Queue           *string
	Job             *job
	CreatedAt       time.Time  `json:"created_at"`
	ExpiresAt       time.Time  `json:"expires_at"`
	LeaseExpiresAt  *time.Time `json:"lease_expires_at"`
	EndedAt         *time.Time `json:"ended_at"`
	CancelRequested bool       `json:"cancel_requested"`
	Cause           *string
	Balance         *balance
}

type price struct {
	Unit   string
	Amount *holdfast.Amount
	Per    *holdfast.Amount
	Rates  map[string]holdfast.Amount
}

type balance struct {
	Unit                      string
	Available, Reserved, Debt holdfast.Amount
	Cycle                     *cycle
	ResetsAt                  *time.Time `json:"resets_at"`
}

type cycle struct {
	Granted, Used, Reserved, Voided holdfast.Amount
	StartsAt                        *time.Time `json:"starts_at"`
	EndsAt                          *time.Time `json:"ends_at"`
}

// changed is what is told besides of a reservation that a call has changed, or would.
type changed struct {
	reservation
	Changed    *bool
	Allowed    *bool            // of a dry run
	LeaseToken string           `json:"lease_token"`
	Returned   *holdfast.Amount // null: nothing was settled
	Voided     holdfast.Amount
	Late       bool
	May        *bool `json:"may_continue"`
}

type account struct {
	Account      string  // the name that was asked for
	MergedInto   *string `json:"merged_into"`
	Exists       bool
	Plan         string
	Subscription *subscription
	Language     *string
	TimeZone     *string `json:"time_zone"`
	Blocked      bool
	Notices      bool
	Metadata     map[string]string
	Balances     []balance
	Active       int
	MaxActive    int `json:"max_active"`
	Features     []feature
	CreatedAt    *time.Time `json:"created_at"`
	DeletedAt    *time.Time `json:"deleted_at"`
	Changed      *bool
}

type subscription struct {
	Plan        string
	Status      holdfast.SubscriptionStatus
	PeriodStart time.Time  `json:"period_start"`
	PeriodEnd   time.Time  `json:"period_end"`
	PaidUntil   time.Time  `json:"paid_until"`
	GraceUntil  *time.Time `json:"grace_until"`
	NextPlan    *string    `json:"next_plan"`
}

// payment is a payment with what its account has.
type payment struct {
	Provider     string
	PaymentID    string `json:"payment_id"`
	Account      string
	Product      string
	Amount       holdfast.Amount
	Currency     string
	State        holdfast.PaymentState
	Reason       *holdfast.Flag
	Plan         *string
	PeriodStart  *time.Time `json:"period_start"`
	PeriodEnd    *time.Time `json:"period_end"`
	Refunded     holdfast.Amount
	Revoked      holdfast.Amount
	Debt         holdfast.Amount
	Disputed     bool
	PaidAt       *time.Time `json:"paid_at"`
	Balances     []balance
	Subscription *subscription
	Changed      *bool
}

type feature struct {
	Feature string
	price
}

type grant struct {
	ID, Unit                        string
	Source                          holdfast.Source
	Features                        []string
	Priority                        int
	Granted, Reserved, Used, Voided holdfast.Amount
	Rolled                          holdfast.Amount
	StartsAt                        time.Time  `json:"starts_at"`
	EndsAt                          *time.Time `json:"ends_at"`
	CreatedAt                       time.Time  `json:"created_at"`
}

type credited struct {
	Grant   *grant
	Balance *balance
}

// problem reads the answer as problem+json, and reports whether it is one of Holdfast's.
func (r *reply) problem() (*problem, bool) {
	var p problem
	if err := json.Unmarshal(r.body, &p); err != nil {
		return &problem{}, false
	}
	return &p, strings.HasPrefix(p.Type, "urn:holdfast:") && p.Reason != ""
}

// refuses reports whether the problem is an outcome: a no, or a request that the engine would call wrong as well.
func (p *problem) refuses() bool {
	switch holdfast.Reason(p.Reason) {
	case holdfast.Invalid, holdfast.KeyReused, holdfast.NotFound:
		return true
	}
	return strings.HasPrefix(p.Type, "urn:holdfast:refusal:")
}

// answer reads what came back.
func (c *call) answer(r *reply) (Answer, error) {
	answer := Answer{RequestID: r.id}
	var err error
	if r.status >= 300 {
		p, _ := r.problem()
		answer.Outcome, err = p.outcome()
		answer.Detail = p.Detail
	} else {
		answer.Outcome, err = c.decode(c, r)
		answer.Detail = r.detail()
	}
	if err != nil {
		return Answer{}, r.unreadable(err)
	}
	answer.Replayed = r.replayed
	c.unmark(&answer.Outcome)
	return answer, nil
}

// detail is the text of a dry run that would be refused.
func (r *reply) detail() string {
	var told struct{ Detail string }
	_ = json.Unmarshal(r.body, &told) // it was read before
	return told.Detail
}

// unmark takes the client's mark out of the metadata. A reservation that this very command made in an earlier attempt is
// no repetition.
func (c *call) unmark(outcome *holdfast.Outcome) {
	r := outcome.Reservation
	if r == nil {
		return
	}
	made, marked := r.Metadata[commandMark]
	if !marked {
		return
	}
	r.Metadata = withoutMark(r.Metadata)
	if made == c.command.ID.String() {
		outcome.Replayed = false
	}
}

func withoutMark(metadata map[string]string) map[string]string {
	delete(metadata, commandMark)
	return some(metadata)
}

func (p *problem) outcome() (holdfast.Outcome, error) {
	o := holdfast.Outcome{Reason: holdfast.Reason(p.Reason), Problems: p.Problems}
	if o.Reason == holdfast.Invalid || o.Reason == holdfast.KeyReused || o.Reason == holdfast.NotFound {
		return o, nil
	}
	if p.Plans != nil { // it has numbers, also where it has a reservation as well: a refused growth
		o.Refusal = p.numbers.refusal()
	}
	if p.Reservation == nil {
		return o, nil
	}
	var err error
	o.Owner, o.Reservation, err = p.Reservation.core()
	return o, err
}

func (n *numbers) refusal() *holdfast.Refusal {
	refusal := &holdfast.Refusal{
		Feature: value(n.Feature), Unit: value(n.Unit), Needed: value(n.Needed), Available: value(n.Available), Held: value(n.Held),
		Active: n.Active, MaxActive: n.MaxActive, Cycle: n.Cycle.core(), ResetsAt: instant(n.ResetsAt),
		Estimated: n.Estimated, AffordableUsage: n.AffordableUsage,
	}
	if len(n.Plans) > 0 {
		refusal.Plans = n.Plans
	}
	if len(n.Alternatives) > 0 {
		refusal.Alternatives = n.Alternatives
	}
	return refusal
}

func reservationAnswer(c *call, r *reply) (holdfast.Outcome, error) {
	outcome, _, err := c.reservation(r)
	return outcome, err
}

func (c *call) reservation(r *reply) (holdfast.Outcome, *changed, error) {
	var body changed
	if err := json.Unmarshal(r.body, &body); err != nil {
		return holdfast.Outcome{}, nil, err
	}
	dryRun := holdfast.IsDryRun(c.command.Do)
	switch {
	case dryRun && body.Allowed == nil:
		return holdfast.Outcome{}, nil, errors.New("it does not say whether it is allowed")
	case dryRun && !*body.Allowed:
		p, _ := r.problem() // it has the numbers of one
		return holdfast.Outcome{DryRun: true, Reason: holdfast.Reason(p.Reason), Refusal: p.refusal()}, &body, nil
	}
	outcome := holdfast.Outcome{Changed: body.Changed == nil || *body.Changed, DryRun: dryRun, Balance: body.Balance.core()}
	var err error
	if dryRun {
		outcome.Owner.Name = body.Account
		outcome.Reservation, err = body.withoutID()
	} else {
		outcome.Owner, outcome.Reservation, err = body.core()
	}
	if err != nil {
		return holdfast.Outcome{}, nil, err
	}
	if body.Returned != nil {
		outcome.Reservation.Voided = body.Voided
		outcome.Settlement = &holdfast.Settlement{
			Returned: *body.Returned, Voided: body.Voided, Unbilled: body.Unbilled, Late: body.Late,
			MayContinue: body.May == nil || *body.May,
		}
	}
	return outcome, &body, nil
}

func startAnswer(c *call, r *reply) (holdfast.Outcome, error) {
	outcome, body, err := c.reservation(r)
	if err == nil && body.LeaseToken == "" {
		err = errors.New("it has no lease token")
	}
	if err != nil {
		return holdfast.Outcome{}, err
	}
	return leased(outcome, body.LeaseToken), nil
}

func heartbeatAnswer(c *call, r *reply) (holdfast.Outcome, error) {
	outcome, _, err := c.reservation(r)
	if err != nil {
		return holdfast.Outcome{}, err
	}
	return leased(outcome, c.command.Do.(holdfast.Heartbeat).LeaseToken), nil
}

func leased(outcome holdfast.Outcome, token string) holdfast.Outcome {
	outcome.Reservation.LeaseToken = token
	outcome.Lease = &holdfast.Lease{Token: token, ExpiresAt: outcome.Reservation.LeaseExpiresAt}
	return outcome
}

func accountAnswer(_ *call, r *reply) (holdfast.Outcome, error) {
	var body account
	if err := json.Unmarshal(r.body, &body); err != nil {
		return holdfast.Outcome{}, err
	}
	view, err := body.core()
	return holdfast.Outcome{
		Changed: body.Changed == nil || *body.Changed, Account: view,
		Owner: holdfast.Owner{Name: body.name(), Language: value(body.Language), TimeZone: value(body.TimeZone)},
	}, err
}

func payAnswer(_ *call, r *reply) (holdfast.Outcome, error) {
	outcome, err := r.payment()
	outcome.First = r.status == http.StatusCreated
	return outcome, err
}

func refundPaymentAnswer(_ *call, r *reply) (holdfast.Outcome, error) {
	if r.status == http.StatusAccepted {
		return holdfast.Outcome{Reason: Pending}, nil
	}
	return r.payment()
}

func (r *reply) payment() (holdfast.Outcome, error) {
	var body payment
	if err := json.Unmarshal(r.body, &body); err != nil {
		return holdfast.Outcome{}, err
	}
	paid, err := body.core()
	if err != nil {
		return holdfast.Outcome{}, err
	}
	outcome := holdfast.Outcome{Changed: body.Changed == nil || *body.Changed, Owner: paid.Owner, Payment: &paid.Payment}
	if len(paid.Balances) > 0 || paid.Subscription != nil { // else the payment is somebody else's
		outcome.Account = &holdfast.AccountView{Exists: true, Balances: paid.Balances, Subscription: paid.Subscription}
		if paid.Subscription != nil {
			outcome.Account.Plan = paid.Subscription.Plan
		}
	}
	return outcome, nil
}

func aliasAnswer(_ *call, r *reply) (holdfast.Outcome, error) {
	var body account // as far as it is shown
	if err := json.Unmarshal(r.body, &body); err != nil {
		return holdfast.Outcome{}, err
	}
	body.Exists = true
	view, err := body.core()
	return holdfast.Outcome{Changed: body.Changed == nil || *body.Changed, Account: view, Owner: holdfast.Owner{Name: body.name()}}, err
}

func creditAnswer(_ *call, r *reply) (holdfast.Outcome, error) {
	var body credited
	if err := json.Unmarshal(r.body, &body); err != nil {
		return holdfast.Outcome{}, err
	}
	if body.Balance == nil {
		return holdfast.Outcome{}, errors.New("it has no balance")
	}
	outcome := holdfast.Outcome{Changed: true, Balance: body.Balance.core()}
	if body.Grant != nil {
		account, g, err := body.Grant.core()
		if err != nil {
			return holdfast.Outcome{}, err
		}
		outcome.Owner.ID, outcome.Grant = account, g
	}
	return outcome, nil
}

// core is the reservation, and whose it is.
func (r *reservation) core() (holdfast.Owner, *holdfast.Reservation, error) {
	account, id, err := holdfast.ReservationRef.Parse(r.ID)
	if err != nil {
		return holdfast.Owner{}, nil, errors.New("it has no reservation's id")
	}
	shown, err := r.withoutID()
	if err != nil {
		return holdfast.Owner{}, nil, err
	}
	shown.ID = id
	return holdfast.Owner{ID: account, Name: r.Account}, shown, nil
}

func (r *reservation) withoutID() (*holdfast.Reservation, error) {
	if r.State == "" {
		return nil, errors.New("it has no reservation")
	}
	shown := &holdfast.Reservation{
		Feature: r.Feature, Quantity: r.Quantity, State: r.State, InDoubt: r.InDoubt, Price: r.Price.core(),
		Reserved: r.Reserved, Used: r.Used, Debt: r.Debt, Unbilled: r.Unbilled, LateUsed: r.LateUsed, Refunded: r.Refunded,
		Key: value(r.Key), Surface: value(r.Surface), Metadata: some(r.Metadata), Usage: some(r.Usage), Reported: some(r.Reported),
		CatalogVersion: r.CatalogVersion, CreatedAt: r.CreatedAt, ExpiresAt: r.ExpiresAt, EndedAt: instant(r.EndedAt), Cause: value(r.Cause),
		Worker: value(r.Worker), LeaseExpiresAt: instant(r.LeaseExpiresAt), Attempts: r.Attempts, Job: r.Job.core(value(r.Queue)),
	}
	if r.CancelRequested {
		shown.CancelRequestedAt = time.Now().UTC()
	}
	for _, a := range r.Allocations {
		_, id, err := holdfast.GrantRef.Parse(a.Grant)
		if err != nil {
			return nil, fmt.Errorf("an allocation has no grant's id")
		}
		allocation := holdfast.Allocation{Grant: id, Source: a.Source, Reserved: a.Amount}
		if a.Late {
			allocation.Reserved, allocation.Used = 0, a.Amount
		}
		shown.Allocations = append(shown.Allocations, allocation)
	}
	return shown, nil
}

func (p price) core() holdfast.Price {
	return holdfast.Price{Unit: p.Unit, Amount: value(p.Amount), Per: value(p.Per), Rates: p.Rates}
}

func (b *balance) core() *holdfast.Balance {
	if b == nil {
		return nil
	}
	return &holdfast.Balance{
		Unit: b.Unit, Available: b.Available, Reserved: b.Reserved, Debt: b.Debt, Cycle: b.Cycle.core(), ResetsAt: instant(b.ResetsAt),
	}
}

func (c *cycle) core() *holdfast.CycleNumbers {
	if c == nil {
		return nil
	}
	return &holdfast.CycleNumbers{
		Granted: c.Granted, Used: c.Used, Reserved: c.Reserved, Voided: c.Voided, StartsAt: instant(c.StartsAt), EndsAt: instant(c.EndsAt),
	}
}

func (a *account) core() (*holdfast.AccountView, error) {
	if a.Account == "" {
		return nil, errors.New("it has no account")
	}
	view := &holdfast.AccountView{
		Exists: a.Exists, Plan: a.Plan, MaxActive: a.MaxActive, Subscription: a.Subscription.core(), Balances: balances(a.Balances),
		Account: holdfast.Account{
			Name: a.name(), Active: a.Active, Plan: a.Plan, Language: value(a.Language), TimeZone: value(a.TimeZone),
			Blocked: a.Blocked, Notices: a.Notices, Metadata: some(a.Metadata), CreatedAt: instant(a.CreatedAt), DeletedAt: instant(a.DeletedAt),
		},
	}
	for _, f := range a.Features {
		view.Features = append(view.Features, holdfast.FeatureView{Name: f.Feature, Price: f.price.core()})
	}
	return view, nil
}

// name is the account's own, which is another one than was asked for where that is an alias or was merged.
func (a *account) name() string {
	if a.MergedInto != nil {
		return *a.MergedInto
	}
	return a.Account
}

func balances(shown []balance) []holdfast.Balance {
	var list []holdfast.Balance
	for i := range shown {
		list = append(list, *shown[i].core())
	}
	return list
}

func (s *subscription) core() *holdfast.SubscriptionView {
	if s == nil {
		return nil
	}
	return &holdfast.SubscriptionView{
		Plan: s.Plan, Status: s.Status, Start: s.PeriodStart, End: s.PeriodEnd, PaidUntil: s.PaidUntil,
		GraceUntil: instant(s.GraceUntil), Next: value(s.NextPlan),
	}
}

func (p *payment) core() (*Payment, error) {
	if p.PaymentID == "" || p.State == "" {
		return nil, errors.New("it has no payment")
	}
	return &Payment{
		Payment: holdfast.Payment{
			Provider: p.Provider, PaymentID: p.PaymentID, Product: p.Product, Amount: p.Amount, Currency: p.Currency,
			State: p.State, Flag: value(p.Reason), Plan: value(p.Plan), PeriodStart: instant(p.PeriodStart), PeriodEnd: instant(p.PeriodEnd),
			Refunded: p.Refunded, Revoked: p.Revoked, Owed: p.Debt, Disputed: p.Disputed, PaidAt: instant(p.PaidAt),
		},
		Owner: holdfast.Owner{Name: p.Account}, Balances: balances(p.Balances), Subscription: p.Subscription.core(),
	}, nil
}

// core is the grant, and whose it is.
func (g *grant) core() (holdfast.AccountID, *holdfast.Grant, error) {
	account, id, err := holdfast.GrantRef.Parse(g.ID)
	if err != nil {
		return holdfast.AccountID{}, nil, errors.New("it has no grant's id")
	}
	shown := &holdfast.Grant{
		ID: id, Unit: g.Unit, Source: g.Source, Priority: g.Priority,
		Granted: g.Granted, Reserved: g.Reserved, Used: g.Used, Voided: g.Voided, Rolled: g.Rolled,
		StartsAt: g.StartsAt, EndsAt: instant(g.EndsAt), CreatedAt: g.CreatedAt,
	}
	if len(g.Features) > 0 {
		shown.Features = g.Features
	}
	return account, shown, nil
}

// value is the zero value for null.
func value[T any](known *T) T {
	if known == nil {
		var zero T
		return zero
	}
	return *known
}

func instant(at *time.Time) time.Time { return value(at) }

// some is nil for an object without members, as the core has it.
func some[V any](pairs map[string]V) map[string]V {
	if len(pairs) == 0 {
		return nil
	}
	return pairs
}

// refused is an outcome of a read that is a no.
func refused(outcome holdfast.Outcome) error { return &engine.Refused{Outcome: outcome} }
