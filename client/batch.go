package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
)

// roomInBatch is what the operations of one request may take of its body.
const roomInBatch = holdfast.MaxBodyBytes - 1024

// SubmitAll has many commands decided, as Submit has each, and returns what came of them in their order. They travel in as
// few requests as the server allows. Commands of one account are decided in the order of the list; nothing else ties them
// together: each is done or not on its own.
//
// A request that is not answered is tried again whole, as Submit would; what did happen is not done twice. What is then
// still without an answer has the accident as its error, and so has everything behind it, so that nothing overtakes. An
// accident of a single operation is not tried again.
func (c *Client) SubmitAll(ctx context.Context, commands []holdfast.Command) []engine.Result {
	results := make([]engine.Result, len(commands))
	b := &batch{client: c, results: results}
	for i, command := range commands {
		call, problems := callOf(&command)
		if len(problems) > 0 {
			results[i].Outcome = holdfast.Outcome{Reason: holdfast.Invalid, Problems: problems}
			continue
		}
		b.add(ctx, i, call)
	}
	b.flush(ctx)
	return results
}

// batch gathers operations for one request.
type batch struct {
	client  *Client
	results []engine.Result
	broken  *engine.Error // why nothing more is sent

	indexes    []int
	calls      []*call
	operations []json.RawMessage
	bytes      int
}

func (b *batch) add(ctx context.Context, index int, c *call) {
	if c.op == "" { // no batch takes it
		b.flush(ctx)
		b.alone(ctx, index, c)
		return
	}
	operation := c.operation()
	if len(b.calls) == holdfast.MaxOperations || b.bytes+len(operation) > roomInBatch {
		b.flush(ctx)
	}
	b.indexes, b.calls = append(b.indexes, index), append(b.calls, c)
	b.operations = append(b.operations, operation)
	b.bytes += len(operation) + 1
}

func (b *batch) alone(ctx context.Context, index int, c *call) {
	result := &b.results[index]
	if b.broken != nil {
		result.Err = b.unsent()
		return
	}
	reply, err := b.client.send(ctx, c.request())
	if err != nil {
		result.Err = err
		errors.As(err, &b.broken)
		return
	}
	result.Outcome, result.Err = c.result(reply)
}

// flush sends what was gathered.
func (b *batch) flush(ctx context.Context) {
	if len(b.calls) == 0 {
		return
	}
	accident := b.unsent()
	if b.broken == nil {
		accident = b.send(ctx)
	}
	for _, index := range b.indexes {
		if accident != nil {
			b.results[index].Err = accident
		}
	}
	if b.broken == nil {
		b.broken = accident
	}
	b.indexes, b.calls, b.operations, b.bytes = nil, nil, nil, 0
}

// unsent is the error of what stood behind something that was not answered.
func (b *batch) unsent() *engine.Error {
	if b.broken == nil {
		return nil
	}
	code := b.broken.Code
	if code == engine.OutcomeUnknown {
		code = engine.Unavailable
	}
	return &engine.Error{Code: code, Hint: "what stands before it in the list was not answered, so it was not sent", Err: b.broken.Err}
}

func (b *batch) send(ctx context.Context) *engine.Error {
	reply, err := b.client.send(ctx, &request{
		method: http.MethodPost, path: "/v1/batch", body: encode(fields{"operations": b.operations}),
	})
	var accident *engine.Error
	if errors.As(err, &accident) {
		return accident
	}
	if reply.status >= 300 { // the request as a whole, whose parts were checked
		p, _ := reply.problem()
		return misdirected("the server does not take the batch: %s: %s", p.Reason, p.Detail)
	}
	var body struct {
		Results []struct {
			Status   int
			Replayed bool
			Body     json.RawMessage
		}
	}
	if err := json.Unmarshal(reply.body, &body); err != nil {
		return reply.unreadable(err)
	}
	if len(body.Results) != len(b.calls) {
		return reply.unreadable(fmt.Errorf("%d results of %d operations", len(body.Results), len(b.calls)))
	}
	for i, told := range body.Results {
		of := *reply
		of.status, of.replayed, of.body = told.Status, told.Replayed, told.Body
		result := &b.results[b.indexes[i]]
		if accident := of.accident(); accident != nil {
			result.Err = accident
			continue
		}
		result.Outcome, result.Err = b.calls[i].result(&of)
		for j := range result.Outcome.Problems {
			field := &result.Outcome.Problems[j].Field
			*field = strings.TrimPrefix(*field, fmt.Sprintf("operations[%d].", i))
		}
	}
	return nil
}

func (c *call) result(r *reply) (holdfast.Outcome, error) {
	answer, err := c.answer(r)
	return answer.Outcome, err
}
