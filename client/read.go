package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// Reads return an error where Submit would return a refusal: *engine.Refused, for what is not found or asked wrongly.
// Every other error is an *engine.Error. They are tried again as commands are.

// Reservation is a reservation as it is, and whose.
type Reservation struct {
	holdfast.Reservation
	Owner   holdfast.Owner
	Balance *holdfast.Balance // of its unit, now; nil in lists
}

// PublicID is the id that every other program knows it by: rsv_….
func (r *Reservation) PublicID() string {
	return holdfast.ReservationRef.Encode(r.Owner.ID, r.ID)
}

// Filter says which reservations of an account to list. Empty: all.
type Filter struct {
	State holdfast.ReservationState
	Key   string
}

// Account shows what an account has, or would have if nobody has seen it yet.
func (c *Client) Account(ctx context.Context, name string) (*holdfast.AccountView, error) {
	var body account
	return read(ctx, c, accountPath(name, ""), nil, &body, body.core)
}

// Balance shows what the account was believed to have at a moment, in every unit; the zero time means now.
func (c *Client) Balance(ctx context.Context, account string, asOf time.Time) ([]holdfast.Balance, error) {
	query := url.Values{}
	if !asOf.IsZero() {
		query.Set("as_of", asOf.UTC().Format(time.RFC3339Nano))
	}
	var body struct{ Balances []balance }
	return read(ctx, c, accountPath(account, "/balance"), query, &body, func() ([]holdfast.Balance, error) {
		if body.Balances == nil {
			return nil, errors.New("it has no balances")
		}
		return balances(body.Balances), nil
	})
}

// Payment is a payment as it is, whose, and what its account has now. ID, Kept, Refunds and OwedOf are not shown.
type Payment struct {
	holdfast.Payment
	Owner        holdfast.Owner // its name alone
	Balances     []holdfast.Balance
	Subscription *holdfast.SubscriptionView // nil: nothing is paid for
}

// Payment shows a payment, named by its provider's ids.
func (c *Client) Payment(ctx context.Context, provider, paymentID string) (*Payment, error) {
	check := holdfast.Command{Target: holdfast.AccountID{1}, Do: holdfast.RefundPayment{
		Provider: provider, PaymentID: paymentID, Refund: holdfast.PaymentRefund{ID: "any"},
	}}
	if problems := check.Check(); len(problems) > 0 {
		return nil, refused(holdfast.Outcome{Reason: holdfast.Invalid, Problems: problems})
	}
	var body payment
	return read(ctx, c, paymentPath(provider, paymentID, ""), nil, &body, body.core)
}

// Reservation shows one reservation, named by its public id.
func (c *Client) Reservation(ctx context.Context, publicID string) (*Reservation, error) {
	if _, _, err := holdfast.ReservationRef.Parse(publicID); err != nil {
		return nil, refused(holdfast.Outcome{Reason: holdfast.NotFound})
	}
	var body reservation
	return read(ctx, c, "/v1/reservations/"+publicID, nil, &body, body.shown)
}

func (r *reservation) shown() (*Reservation, error) {
	owner, core, err := r.core()
	if err != nil {
		return nil, err
	}
	core.Metadata = withoutMark(core.Metadata)
	return &Reservation{Reservation: *core, Owner: owner, Balance: r.Balance.core()}, nil
}

// Reservations lists an account's reservations, newest first; by the name of a merged account those that were made by it
// before the merge too. It asks for further pages as they are needed, and ends with
// the first error.
func (c *Client) Reservations(ctx context.Context, account string, filter Filter) iter.Seq2[*Reservation, error] {
	query := url.Values{"account": {account}}
	if filter.State != "" {
		query.Set("state", string(filter.State))
	}
	if filter.Key != "" {
		query.Set("key", filter.Key)
	}
	return list(ctx, c, "/v1/reservations", query, (*reservation).shown)
}

// Grants lists an account's grants, newest first, as Reservations does.
func (c *Client) Grants(ctx context.Context, account string) iter.Seq2[*holdfast.Grant, error] {
	return list(ctx, c, accountPath(account, "/grants"), url.Values{}, func(g *grant) (*holdfast.Grant, error) {
		_, core, err := g.core()
		return core, err
	})
}

// Entries lists an account's history, newest first, as Reservations does.
func (c *Client) Entries(ctx context.Context, account string) iter.Seq2[*holdfast.Entry, error] {
	return list(ctx, c, accountPath(account, "/entries"), url.Values{}, (*entry).core)
}

// Explanation says step by step why a reserve would be granted or refused.
type Explanation struct {
	holdfast.Explanation
	Plan  string
	Texts []string // for the person, one for each step
}

// Explain asks why the account would get what the reserve asks for, or why not. Of the reserve only Feature, Quantity and
// Usage are looked at. Nothing is taken.
func (c *Client) Explain(ctx context.Context, account string, reserve holdfast.Reserve) (*Explanation, error) {
	query := url.Values{"feature": {reserve.Feature}}
	if reserve.Quantity != 0 {
		query.Set("quantity", number(reserve.Quantity))
	}
	for kind, n := range reserve.Usage {
		query.Set("usage["+kind+"]", number(n))
	}
	var body explanation
	return read(ctx, c, accountPath(account, "/explain"), query, &body, body.core)
}

// Catalog is what the project sells, as it was written.
type Catalog struct {
	Version int64
	Source  []byte // YAML, which package catalog compiles
}

// Catalog reads the newest version of the project's catalog.
func (c *Client) Catalog(ctx context.Context) (*Catalog, error) {
	var body struct {
		Version int64
		Source  *string
	}
	return read(ctx, c, "/v1/catalog", nil, &body, func() (*Catalog, error) {
		if body.Source == nil {
			return nil, errors.New("it has no source")
		}
		return &Catalog{Version: body.Version, Source: []byte(*body.Source)}, nil
	})
}

func number(n holdfast.Amount) string { return strconv.FormatInt(int64(n), 10) }

func accountPath(name, rest string) string { return "/v1/accounts/" + segment(name) + rest }

func paymentPath(provider, paymentID, rest string) string {
	return "/v1/payments/" + segment(provider) + "/" + segment(paymentID) + rest
}

// segment writes a name as one part of a path. Dots alone would be taken for steps along it.
func segment(name string) string {
	if name == "." || name == ".." {
		return strings.ReplaceAll(name, ".", "%2e")
	}
	return url.PathEscape(name)
}

// read asks once, fills in the body, and makes of it what the caller wants.
func read[T any](ctx context.Context, c *Client, path string, query url.Values, body any, made func() (T, error)) (T, error) {
	var nothing T
	reply, err := c.get(ctx, path, query)
	if err != nil {
		return nothing, err
	}
	err = json.Unmarshal(reply.body, body)
	if err != nil {
		return nothing, reply.unreadable(err)
	}
	result, err := made()
	if err != nil {
		return nothing, reply.unreadable(err)
	}
	return result, nil
}

func (c *Client) get(ctx context.Context, path string, query url.Values) (*reply, error) {
	reply, err := c.send(ctx, &request{method: http.MethodGet, path: path, query: query})
	var accident *engine.Error
	switch {
	case errors.As(err, &accident):
		accident.Unknown = false // a read changes nothing
		if accident.Code == engine.OutcomeUnknown {
			accident.Code, accident.Hint = engine.Unavailable, "no answer came; ask again"
		}
		return nil, accident
	case err != nil:
		return nil, err
	case reply.status >= 300:
		p, _ := reply.problem()
		outcome, err := p.outcome()
		if err != nil {
			return nil, reply.unreadable(err)
		}
		return nil, refused(outcome)
	}
	return reply, nil
}

// list asks for page after page.
func list[Item, T any](ctx context.Context, c *Client, path string, query url.Values, core func(*Item) (*T, error)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		asked := url.Values{"limit": {strconv.Itoa(holdfast.MaxPage)}}
		for name, values := range query {
			asked[name] = values
		}
		for {
			var page struct {
				Items      []Item
				NextCursor *string `json:"next_cursor"`
			}
			items, err := read(ctx, c, path, asked, &page, func() ([]*T, error) {
				if page.Items == nil {
					return nil, errors.New("it has no items")
				}
				var items []*T
				for i := range page.Items {
					item, err := core(&page.Items[i])
					if err != nil {
						return nil, fmt.Errorf("item %d: %w", i, err)
					}
					items = append(items, item)
				}
				return items, nil
			})
			if err != nil {
				yield(nil, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if page.NextCursor == nil || *page.NextCursor == "" {
				return
			}
			asked.Set("cursor", *page.NextCursor)
		}
	}
}

type entry struct {
	No          int64
	Kind        holdfast.EntryKind
	Unit        *string
	Deltas      []delta
	Reservation *string
	Key         *string
	Actor       *string
	Reason      *string
	Debt        holdfast.Amount
	EffectiveAt time.Time `json:"effective_at"`
	RecordedAt  time.Time `json:"recorded_at"`
	Balance     *balance
}

type delta struct {
	Grant                           string
	Granted, Reserved, Used, Voided holdfast.Amount
}

func (e *entry) core() (*holdfast.Entry, error) {
	shown := &holdfast.Entry{
		No: e.No, Kind: e.Kind, Unit: value(e.Unit), Key: value(e.Key), Actor: value(e.Actor), Reason: value(e.Reason), Debt: e.Debt,
		EffectiveAt: e.EffectiveAt, RecordedAt: e.RecordedAt,
	}
	if e.Reservation != nil {
		_, id, err := holdfast.ReservationRef.Parse(*e.Reservation)
		if err != nil {
			return nil, errors.New("it has no reservation's id")
		}
		shown.Reservation = id
	}
	if e.Balance != nil {
		shown.Available, shown.Reserved, shown.Owed = e.Balance.Available, e.Balance.Reserved, e.Balance.Debt
	}
	for _, d := range e.Deltas {
		_, id, err := holdfast.GrantRef.Parse(d.Grant)
		if err != nil {
			return nil, errors.New("it has no grant's id")
		}
		shown.Deltas = append(shown.Deltas, holdfast.Delta{Grant: id, Granted: d.Granted, Reserved: d.Reserved, Used: d.Used, Voided: d.Voided})
	}
	return shown, nil
}

type explanation struct {
	Feature, Plan string
	Allowed       *bool
	Reason        *string
	Steps         []struct {
		Check                   holdfast.CheckName
		Passed                  bool
		Text                    string
		Unit                    *string
		Needed, Available, Held *holdfast.Amount
		Active                  *int
		MaxActive               *int `json:"max_active"`
		Pockets                 []struct {
			Grant            string
			Source           holdfast.Source
			Priority         int
			Use              holdfast.PocketUse
			Available, Takes holdfast.Amount
			StartsAt         *time.Time `json:"starts_at"`
			EndsAt           *time.Time `json:"ends_at"`
		}
	}
}

func (x *explanation) core() (*Explanation, error) {
	if x.Allowed == nil {
		return nil, errors.New("it does not say whether it is allowed")
	}
	shown := &Explanation{Plan: x.Plan, Explanation: holdfast.Explanation{
		Feature: x.Feature, Allowed: *x.Allowed, Reason: holdfast.Reason(value(x.Reason)),
	}}
	for _, s := range x.Steps {
		step := holdfast.Step{
			Check: s.Check, Passed: s.Passed, Unit: value(s.Unit), Needed: value(s.Needed), Available: value(s.Available), Held: value(s.Held),
			Active: value(s.Active), MaxActive: value(s.MaxActive),
		}
		for _, p := range s.Pockets {
			_, id, err := holdfast.GrantRef.Parse(p.Grant)
			if err != nil {
				return nil, errors.New("a pocket has no grant's id")
			}
			step.Pockets = append(step.Pockets, holdfast.Pocket{
				Grant: &holdfast.Grant{
					ID: id, Unit: step.Unit, Source: p.Source, Priority: p.Priority, StartsAt: instant(p.StartsAt), EndsAt: instant(p.EndsAt),
				},
				Use: p.Use, Available: p.Available, Takes: p.Takes,
			})
		}
		shown.Steps = append(shown.Steps, step)
		shown.Texts = append(shown.Texts, s.Text)
	}
	return shown, nil
}
