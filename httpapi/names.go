package httpapi

import (
	"context"
	"net/http"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// aliasBody names an account once more.
type aliasBody struct {
	Alias string `json:"alias" doc:"A name that no account of its own has; 1 to 128 bytes without spaces or / ? # %" example:"web:7"`
}

func alias(body *aliasBody) otherName {
	return otherName{field: "alias", name: body.Alias, own: "use another name: this is the account's own", do: holdfast.LinkAlias{}, send: Engine.Alias}
}

func linked(c *call, outcome *holdfast.Outcome) answer {
	a := answer{status: http.StatusOK, body: Linked{
		Account: c.accountName, MergedInto: mergedInto(c.accountName, outcome.Account), Alias: c.otherName, Changed: outcome.Changed,
		Balances: balancesOf(outcome.Account),
	}}
	if outcome.Changed {
		a.status = http.StatusCreated
	}
	return a
}

// mergeBody names the account that is taken in.
type mergeBody struct {
	From string `json:"from" doc:"The account that is taken in; 1 to 128 bytes without spaces or / ? # %" example:"telegram:42"`
}

func merged(body *mergeBody) otherName {
	return otherName{field: "from", name: body.From, own: "an account cannot be merged into itself", do: holdfast.MergeInto{}, keyed: true, send: Engine.Merge}
}

// otherName is the name that a body tells besides that of the path, and what is done with the two.
type otherName struct {
	field, name string
	own         string // what to say where it is that of the path
	do          holdfast.Operation
	keyed       bool // the call needs a key
	send        func(Engine, context.Context, engine.Names) (holdfast.Outcome, error)
}

// onNames is a call about two names. Both are looked at before anything is done with either.
func onNames[B any](other func(*B) otherName, encode func(*call, *holdfast.Outcome) answer) action {
	return action{body: new(B), encode: encode, command: func(c *call) (holdfast.Command, *answer) {
		var body B
		if unread := c.from.body(c, &body); unread != nil {
			return holdfast.Command{}, unread
		}
		o := other(&body)
		command := holdfast.Command{Account: c.from.subject(c, "account"), Do: o.do}
		if o.name == command.Account {
			c.mustBe(o.field, o.own)
		}
		for _, p := range (&holdfast.Command{Account: o.name, Do: holdfast.PutAccount{}}).Check() {
			c.mustBe(o.field, p.Hint)
		}
		if o.keyed {
			c.needsKey()
		}
		c.otherName = o.name
		c.send = func(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
			return o.send(c.api.Engine, ctx, engine.Names{
				Project: command.Project, Account: command.Account, Other: o.name, Actor: command.Actor,
				Key: command.Key, RetryRefused: command.RetryRefused,
			})
		}
		return command, c.complete(&command)
	}}
}
