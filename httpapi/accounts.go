package httpapi

import (
	"errors"
	"net/http"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// accountBody creates an account or changes what is given.
type accountBody struct {
	Language *string           `json:"language,omitempty" doc:"BCP 47; empty: unknown" example:"ru"`
	TimeZone *string           `json:"time_zone,omitempty" doc:"IANA; empty: UTC" example:"Europe/Moscow"`
	Blocked  *bool             `json:"blocked,omitempty" doc:"Needs the scope admin as well"`
	Notices  *bool             `json:"notices,omitempty" doc:"Whether they want to be told"`
	Metadata map[string]string `json:"metadata,omitempty" doc:"Replaces what is there"`
}

// scope is the one that a call needs besides its own for what it asks; empty: none.
func (b *accountBody) scope() string {
	if b.Blocked != nil {
		return ScopeAdmin
	}
	return ""
}

func putAccount(body *accountBody) holdfast.Operation {
	return holdfast.PutAccount{
		Language: body.Language, TimeZone: body.TimeZone, Blocked: body.Blocked, Notices: body.Notices, Metadata: body.Metadata,
	}
}

func accountChanged(c *call, outcome *holdfast.Outcome) answer {
	return answer{status: http.StatusOK, body: AccountChanged{
		Account: AccountOf(c.accountName, outcome.Account, c.catalog().Version), Changed: outcome.Changed,
	}}
}

func getAccount(c *call) answer {
	c.noQuery()
	name := c.request.PathValue("account")
	c.validName(name)
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	view, err := c.api.Engine.ViewAt(c.context(), c.key.Project, name, time.Time{})
	if err != nil {
		return c.failed(err)
	}
	return answer{status: http.StatusOK, body: AccountOf(name, view, c.catalog().Version)}
}

// deleteBody has no fields.
type deleteBody struct{}

func deleteAccount(*deleteBody) holdfast.Operation { return holdfast.DeleteAccount{} }

// planBody puts an account on a plan.
type planBody struct {
	Plan string `json:"plan" doc:"A plan of the catalog" example:"pro"`
}

func setPlan(body *planBody) holdfast.Operation { return holdfast.SetPlan{Plan: body.Plan} }

// changeBody changes the plan of a running subscription.
type changeBody struct {
	Plan string        `json:"plan" doc:"A plan of the catalog" example:"pro"`
	When holdfast.When `json:"when,omitempty" enum:"now,period_end" doc:"Where it is left out: now for a dearer plan, at the end of what is paid for another"`
}

func changePlan(body *changeBody) holdfast.Operation {
	return holdfast.ChangePlan{Plan: body.Plan, When: body.When}
}

// renewalBody has no fields.
type renewalBody struct{}

func cancelSubscription(*renewalBody) holdfast.Operation { return holdfast.CancelSubscription{} }

func resumeSubscription(*renewalBody) holdfast.Operation { return holdfast.ResumeSubscription{} }

// grantBody opens a pocket.
type grantBody struct {
	Unit     string           `json:"unit" doc:"A unit of the catalog" example:"credit"`
	Amount   holdfast.Amount  `json:"amount" minimum:"1"`
	Source   holdfast.Source  `json:"source,omitempty" enum:"promo,purchase,correction" doc:"promo where it is left out"`
	Priority *holdfast.Amount `json:"priority,omitempty" null:"default" nullable:"true" minimum:"0" maximum:"1000" doc:"The lowest is taken first; null: the default of the source"`
	StartsAt *time.Time       `json:"starts_at,omitempty" null:"now" nullable:"true" doc:"null: now"`
	EndsAt   *time.Time       `json:"ends_at,omitempty" null:"never" nullable:"true" doc:"null: never"`
	Features []string         `json:"features,omitempty" doc:"Which may take from it; empty: all"`
	Reason   string           `json:"reason,omitempty" doc:"Why; kept in the ledger"`
}

func addGrant(body *grantBody) holdfast.Operation {
	op := holdfast.AddGrant{Unit: body.Unit, Amount: body.Amount, Source: body.Source, Features: body.Features, Reason: body.Reason}
	if body.Priority != nil {
		// Out of range stays out of range also where int has 32 bits.
		priority := int(max(-1, min(*body.Priority, holdfast.MaxGrantPriority+1)))
		op.Priority = &priority
	}
	if body.StartsAt != nil {
		op.StartsAt = *body.StartsAt
	}
	if body.EndsAt != nil {
		op.EndsAt = *body.EndsAt
	}
	return op
}

// adjustmentBody corrects a balance by hand.
type adjustmentBody struct {
	Unit   string          `json:"unit" doc:"A unit of the catalog" example:"credit"`
	Amount holdfast.Amount `json:"amount" doc:"Not 0; a negative one takes what is available, whole or not at all"`
	Reason string          `json:"reason" doc:"Why; kept in the ledger"`
}

func adjust(body *adjustmentBody) holdfast.Operation {
	return holdfast.Adjust{Unit: body.Unit, Amount: body.Amount, Reason: body.Reason}
}

func credited(c *call, outcome *holdfast.Outcome) answer {
	body := Credited{Balance: balanceOf(outcome.Balance)}
	if outcome.Grant != nil {
		g := c.grant(outcome.Grant)
		body.Grant = &g
	}
	return answer{status: http.StatusCreated, body: body}
}

// onAccount is a call about the account that it names.
func onAccount[B any](operation func(*B) holdfast.Operation, encode func(*call, *holdfast.Outcome) answer) action {
	return action{body: new(B), encode: encode, command: func(c *call) (holdfast.Command, *answer) {
		var body B
		if unread := c.from.body(c, &body); unread != nil {
			return holdfast.Command{}, unread
		}
		if besides, ok := any(&body).(interface{ scope() string }); ok && besides.scope() != "" && !c.key.has(besides.scope()) {
			a := c.lacks(besides.scope())
			return holdfast.Command{}, &a
		}
		command := holdfast.Command{Account: c.from.subject(c, "account"), Do: operation(&body)}
		return command, c.complete(&command)
	}}
}

func listGrants(c *call) answer {
	read := c.query()
	query := c.page(store.QueryGrants, read)
	name := c.request.PathValue("account")
	c.validName(name)
	return c.list(name, query, read, func(page store.Page, next *string) any {
		list := GrantList{Items: []Grant{}, NextCursor: next}
		for _, g := range page.Grants {
			list.Items = append(list.Items, c.grant(g))
		}
		return list
	})
}

func listEntries(c *call) answer {
	read := c.query()
	query := c.page(store.QueryEntries, read)
	name := c.request.PathValue("account")
	c.validName(name)
	return c.list(name, query, read, func(page store.Page, next *string) any {
		list := EntryList{Items: []Entry{}, NextCursor: next}
		for i := range page.Entries {
			list.Items = append(list.Items, c.entry(&page.Entries[i]))
		}
		return list
	})
}

// list reads one page of the account's things. An account that is not there has no lists: 404.
func (c *call) list(name string, query store.Query, read map[string]string, encode func(page store.Page, next *string) any) answer {
	query.Cursor = read[byCursor.name]
	page, wrong := c.first(name, query)
	if wrong != nil {
		return *wrong
	}
	return answer{status: http.StatusOK, body: encode(page, known(page.Next))}
}

// first reads one page, and makes sure that an empty one is of an account that is there.
func (c *call) first(name string, query store.Query) (store.Page, *answer) {
	if len(c.problems) > 0 {
		a := c.invalid(c.problems)
		return store.Page{}, &a
	}
	account, err := c.api.Engine.Resolve(c.context(), c.key.Project, holdfast.AccountIDOf(c.key.Project, name))
	if err != nil {
		a := c.failed(err)
		return store.Page{}, &a
	}
	c.account, c.accountName = account, name
	page, err := c.read(query)
	return page, c.unlisted(len(page.Reservations)+len(page.Grants)+len(page.Entries), err)
}

// unlisted is what to answer instead of a page that could not be read, or is empty because the account is not there.
func (c *call) unlisted(items int, err error) *answer {
	switch {
	case errors.Is(err, store.ErrCursor):
		c.wrong(byCursor.name, cursorHint)
		a := c.invalid(c.problems)
		return &a
	case err != nil:
		a := c.failed(err)
		return &a
	case items > 0:
		return nil
	}
	account, err := c.read(store.Query{Kind: store.QueryState})
	switch {
	case err != nil:
		a := c.failed(err)
		return &a
	case account.State == nil:
		a := c.notFound()
		return &a
	}
	return nil
}

const cursorHint = "send next_cursor of this list's page before, with the same filters"
