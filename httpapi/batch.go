package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/holdfast-dev/holdfast"
)

// batchBody is many commands in one request.
type batchBody struct {
	Operations []value `json:"operations" doc:"1 to 500, done in this order for each account, and each on its own: what is wrong with one stops no other"`
}

// itemHead is what every item has besides the fields of its call.
type itemHead struct {
	Op           string `json:"op" doc:"Which call"`
	Key          string `json:"key,omitempty" doc:"The Idempotency-Key of the operation"`
	RetryRefused bool   `json:"retry_refused,omitempty" doc:"Decide afresh where a refusal is recorded under the key"`
}

// itemID and itemAccount are the subject of an item where its call has it in the path.
type (
	itemID struct {
		ID string `json:"id" doc:"The reservation"`
	}
	itemAccount struct {
		Account string `json:"account" doc:"Whose; 1 to 128 bytes without spaces or / ? # %"`
	}
)

// subjects are the structs that an item of the route is decoded into besides its body.
func (r *route) subjects() []any {
	switch {
	case strings.Contains(r.path, "{id}"):
		return []any{new(itemID)}
	case strings.Contains(r.path, "{account}"):
		return []any{new(itemAccount)}
	}
	return nil
}

// item is the source of a command that is one of a batch.
type item struct {
	index    int
	written  value
	head     itemHead
	subjects []any
}

func (i *item) body(c *call, into any) *answer {
	c.problems = append(c.problems, decodeObject(i.written, slices.Concat([]any{&i.head}, i.subjects, []any{into})...)...)
	return nil
}

func (i *item) subject(*call, string) string {
	switch s := i.subjects[0].(type) {
	case *itemID:
		return s.ID
	case *itemAccount:
		return s.Account
	}
	return ""
}

func (i *item) key(*call) (key string, retryRefused bool) { return i.head.Key, i.head.RetryRefused }
func (i *item) keyField() string                          { return "key" }

func (i *item) place(field string) string {
	prefix := fmt.Sprintf("operations[%d]", i.index)
	if field == bodyField {
		return prefix
	}
	return prefix + "." + field
}

// op is what the item says it is; empty: nothing that can be read.
func (i *item) op() string {
	for _, m := range i.written.members {
		if m.name == "op" && m.value.kind == isText {
			return m.value.text
		}
	}
	return ""
}

// batch decides every item, and answers each as the call of its own would have been.
func batch(c *call) answer {
	var body batchBody
	if unread := c.from.body(c, &body); unread != nil {
		return *unread
	}
	c.noQuery()
	if n := len(body.Operations); len(c.problems) == 0 && (n == 0 || n > holdfast.MaxOperations) {
		c.wrong("operations", fmt.Sprintf("send 1 to %d operations", holdfast.MaxOperations))
	}
	if len(c.problems) > 0 {
		return c.invalid(c.problems)
	}
	if refused := c.count(len(body.Operations) - 1); refused != nil {
		return *refused
	}
	var commands []holdfast.Command
	items := make([]*call, len(body.Operations))
	answers := make([]answer, len(items))
	waiting := make([]int, 0, len(items)) // which items the commands are of
	for i, written := range body.Operations {
		items[i] = c.item(i, written)
		command, wrong := items[i].itemCommand()
		if wrong != nil {
			answers[i] = *wrong
			continue
		}
		commands, waiting = append(commands, command), append(waiting, i)
	}
	for n, result := range c.api.Engine.SubmitAll(c.context(), commands) {
		i := waiting[n]
		answers[i] = items[i].answer(&commands[n], &result.Outcome, result.Err)
	}
	return told(answers)
}

// item is the part of the call that is about one operation. It has the call's key and its languages, and is told apart in
// everything else.
func (c *call) item(index int, written value) *call {
	return &call{
		api: c.api, request: c.request, writer: c.writer, pattern: c.pattern, began: c.began, id: c.id, key: c.key,
		from: &item{index: index, written: written},
	}
}

// itemCommand finds out which call the item is, whether the key may make it, and what is asked.
func (c *call) itemCommand() (holdfast.Command, *answer) {
	from := c.from.(*item)
	if from.written.kind != isObject {
		c.wrong(bodyField, "use an object")
		a := c.invalid(c.problems)
		return holdfast.Command{}, &a
	}
	r, ok := c.api.operations[from.op()]
	if !ok {
		c.wrong("op", unknownOperation(from.op(), c.api.opNames))
		a := c.invalid(c.problems)
		return holdfast.Command{}, &a
	}
	c.route, from.subjects = r, r.subjects()
	if !c.key.has(r.scope) {
		a := c.lacks(r.scope)
		return holdfast.Command{}, &a
	}
	return r.does.command(c)
}

func unknownOperation(op string, known []string) string {
	if near, ok := nearest(op, known); ok {
		return "there is no such operation; did you mean " + near + "?"
	}
	return "use one of " + strings.Join(known, ", ")
}

// told puts the answers of all items into one. What went wrong with the server comes into the log once, with how often.
func told(answers []answer) answer {
	results := BatchResults{Results: make([]BatchResult, len(answers))}
	failed, first := 0, error(nil)
	for i := range answers {
		a := &answers[i]
		results.Results[i] = BatchResult{Status: a.status, Replayed: a.header.Get(replayedHeader) == "true", Body: a.body}
		if a.cause != nil {
			if failed++; first == nil {
				first = a.cause
			}
		}
	}
	all := answer{status: http.StatusOK, body: results}
	if failed > 0 {
		all.cause = errors.Join(fmt.Errorf("%d of %d operations failed", failed, len(answers)), first)
	}
	return all
}
