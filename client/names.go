package client

import (
	"context"
	"crypto/rand"
	"net/http"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// Alias makes a name lead to an account, as an engine's Alias does. Refuses: NotFound, AccountBlocked, AccountExists. Of the
// account its name and balances are shown. Project and Actor are not sent; errors are as Submit's.
func (c *Client) Alias(ctx context.Context, names engine.Names) (holdfast.Outcome, error) {
	return c.askOfNames(ctx, names, "alias", &call{
		path: accountPath(names.Account, "/aliases"), decode: aliasAnswer, command: &holdfast.Command{Do: holdfast.LinkAlias{}},
	})
}

// Merge lets one account take another one in, as an engine's Merge does, and returns how it is afterwards. Refuses: NotFound,
// AccountBlocked. Without a key it gets one, which all its attempts have. Project and Actor are not sent; errors are as
// Submit's.
func (c *Client) Merge(ctx context.Context, names engine.Names) (holdfast.Outcome, error) {
	if names.Key == "" {
		names.Key = "merge-" + rand.Text()
	}
	return c.askOfNames(ctx, names, "from", &call{
		path: accountPath(names.Account, "/merge"), decode: accountAnswer, command: &holdfast.Command{Do: holdfast.MergeInto{}},
	})
}

// askOfNames makes a call of the account that tells another name in a field.
func (c *Client) askOfNames(ctx context.Context, names engine.Names, field string, asked *call) (holdfast.Outcome, error) {
	asked.method, asked.key, asked.body = http.MethodPost, names.Key, fields{field: names.Other}
	asked.command.Account, asked.command.Key, asked.command.RetryRefused = names.Account, names.Key, names.RetryRefused
	problems := shape(asked.command)
	if !holdfast.ValidName(names.Other) {
		other := holdfast.Command{Account: names.Other, Do: holdfast.PutAccount{}}
		for _, problem := range other.Check() { // the core words what is wrong
			problems = append(problems, holdfast.Problem{Field: field, Hint: problem.Hint})
		}
	}
	answer, err := c.ask(ctx, asked, problems)
	return answer.Outcome, err
}
