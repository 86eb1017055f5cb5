package httpapi

import (
	"context"
	"net/http"
	"strconv"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/store"
)

// Events are what was told, and to whom. *outbox.Desk is one.
type Events interface {
	// Events are a project's behind a position, and the position to go on behind.
	Events(ctx context.Context, project string, after int64, limit int) (events []outbox.Event, next int64, err error)
	// PositionOf finds an event by its id. Error: outbox.ErrNoEvent.
	PositionOf(ctx context.Context, project, event string) (int64, error)

	// Of endpoints. Errors: outbox.Problems, outbox.ErrNoEndpoint, outbox.ErrTooMany.
	Add(ctx context.Context, project string, change outbox.Change) (e store.Endpoint, secret string, err error)
	Endpoints(ctx context.Context, project string) ([]store.Endpoint, error)
	Endpoint(ctx context.Context, project, id string) (store.Endpoint, error)
	Change(ctx context.Context, project, id string, change outbox.Change) (store.Endpoint, error)
	Rotate(ctx context.Context, project, id string) (e store.Endpoint, secret string, err error)
	Remove(ctx context.Context, project, id string) error
	Deliveries(ctx context.Context, project, id string, state store.DeliveryState, before int64, limit int) ([]store.Delivery, error)
	ReplayFrom(ctx context.Context, project, id string, position int64) error
	ReplayDead(ctx context.Context, project, id string) (revived int64, err error)
}

// EventList is a page of events, in the order of publication.
type EventList struct {
	Items      []outbox.Event `json:"items"`
	NextCursor string         `json:"next_cursor" doc:"Where to go on, also where there is nothing more yet: ask again with it later"`
}

// position reads a cursor that is a position.
func (c *call) position(name string, read map[string]string) int64 {
	text, given := read[name]
	if !given {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		c.wrong(name, "use next_cursor of a page before, or leave it out")
	}
	return n
}

func listEvents(c *call) answer {
	read := c.query()
	limit := c.page("", read).Limit
	after := c.position(byCursor.name, read)
	switch {
	case len(c.problems) > 0:
		return c.invalid(c.problems)
	case c.api.Events == nil:
		return c.notFound()
	}
	events, next, err := c.api.Events.Events(c.context(), c.key.Project, after, limit)
	if err != nil {
		return c.failed(err)
	}
	return answer{status: http.StatusOK, body: EventList{Items: append([]outbox.Event{}, events...), NextCursor: strconv.FormatInt(next, 10)}}
}

// eventRoutes are the calls about events and endpoints.
func eventRoutes() []route {
	get, post, patch, remove := http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodDelete
	ok := func(body any) []outcome {
		return []outcome{{status: http.StatusOK, about: "Done", bodies: []any{body}}}
	}
	none := []holdfast.Reason{holdfast.NotFound}
	return []route{
		{
			method: get, path: "/v1/events", scope: ScopeRead, operation: "listEvents", tag: tagEvents,
			summary: "Read what happened in the project, in the order of publication", parameters: []parameter{byLimit, byCursor},
			answers: ok(EventList{}), reasons: none, does: action{run: listEvents},
		},
		{
			method: post, path: "/v1/endpoints", scope: ScopeAdmin, operation: "addEndpoint", tag: tagEvents,
			summary: "Have events posted to an address; the secret that signs them is shown this once",
			answers: []outcome{{status: http.StatusCreated, about: "Made", bodies: []any{EndpointMade{}}}},
			reasons: []holdfast.Reason{holdfast.NotFound, reasonTooManyEndpoints}, does: action{body: new(endpointBody), run: addEndpoint},
		},
		{
			method: get, path: "/v1/endpoints", scope: ScopeRead, operation: "listEndpoints", tag: tagEvents,
			summary: "List the project's endpoints", answers: ok(EndpointList{}), reasons: none, does: action{run: listEndpoints},
		},
		{
			method: get, path: "/v1/endpoints/{id}", scope: ScopeRead, operation: "getEndpoint", tag: tagEvents,
			summary: "Show an endpoint", answers: ok(Endpoint{}), reasons: none, does: action{run: getEndpoint},
		},
		{
			method: patch, path: "/v1/endpoints/{id}", scope: ScopeAdmin, operation: "changeEndpoint", tag: tagEvents,
			summary: "Change what is given; a paused endpoint keeps its queue",
			answers: ok(Endpoint{}), reasons: none, does: action{body: new(endpointChangeBody), run: changeEndpoint},
		},
		{
			method: remove, path: "/v1/endpoints/{id}", scope: ScopeAdmin, operation: "removeEndpoint", tag: tagEvents,
			summary: "Forget an endpoint and its queue",
			answers: []outcome{{status: http.StatusNoContent, about: "Forgotten"}}, reasons: none, does: action{run: removeEndpoint},
		},
		{
			method: post, path: "/v1/endpoints/{id}/rotate", scope: ScopeAdmin, operation: "rotateSecret", tag: tagEvents,
			summary: "Give an endpoint a new secret, shown this once; the former one signs as well until the next rotation",
			answers: ok(EndpointMade{}), reasons: none, does: action{run: rotateSecret},
		},
		{
			method: get, path: "/v1/endpoints/{id}/deliveries", scope: ScopeRead, operation: "listDeliveries", tag: tagEvents,
			summary: "List what an endpoint was given or is to be given, the newest event first", parameters: []parameter{byDeliveryState, byLimit, byCursor},
			answers: ok(DeliveryList{}), reasons: none, does: action{run: listDeliveries},
		},
		{
			method: post, path: "/v1/endpoints/{id}/replay", scope: ScopeAdmin, operation: "replay", tag: tagEvents,
			summary: "Deliver again: everything from an event on, or what was given up",
			answers: ok(ReplayBegun{}), reasons: none, does: action{body: new(replayBody), run: replay},
		},
	}
}
