package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/outbox"
	"github.com/holdfast-dev/holdfast/store"
)

// Endpoint is an address that events are posted to.
type Endpoint struct {
	ID           string    `json:"id"`
	URL          string    `json:"url"`
	Types        []string  `json:"types" doc:"Of events; empty: all"`
	Paused       bool      `json:"paused"`
	PausedReason *string   `json:"paused_reason" doc:"gone: it answered 410; null: by hand, or not paused"`
	Note         *string   `json:"note"`
	Secrets      int       `json:"secrets" doc:"How many sign"`
	Position     int64     `json:"position" doc:"Events up to here are in its queue, or through it"`
	CreatedAt    time.Time `json:"created_at"`
}

// EndpointMade is an endpoint with a new secret.
type EndpointMade struct {
	Endpoint
	Secret string `json:"secret" doc:"What verifies the signatures. It is shown this once" example:"whsec_…"`
}

// EndpointList is all endpoints of a project.
type EndpointList struct {
	Items      []Endpoint `json:"items"`
	NextCursor *string    `json:"next_cursor" doc:"null: these are all"`
}

// Delivery is one event for one endpoint.
type Delivery struct {
	Event         string              `json:"event"`
	Type          holdfast.EventKind  `json:"type"`
	Account       string              `json:"account"`
	Position      int64               `json:"position"`
	State         store.DeliveryState `json:"state" doc:"waiting (for an earlier event of its account), pending, delivered or dead"`
	Attempts      int                 `json:"attempts"`
	NextAttemptAt *time.Time          `json:"next_attempt_at"`
	LastAttemptAt *time.Time          `json:"last_attempt_at"`
	LastStatus    *int                `json:"last_status" doc:"null: there was no answer"`
	Problem       *string             `json:"problem" doc:"Of the last attempt: status, timeout, connection, name_not_found, tls, address_refused or endpoint"`
}

// DeliveryList is a page of deliveries.
type DeliveryList struct {
	Items      []Delivery `json:"items"`
	NextCursor *string    `json:"next_cursor"`
}

// ReplayBegun says what is delivered again.
type ReplayBegun struct {
	Position *int64 `json:"position" doc:"Everything from here on; null: only what was dead"`
	Revived  int64  `json:"revived" doc:"How many dead deliveries were queued again"`
}

type endpointBody struct {
	URL    string   `json:"url" doc:"https; http only inside a network that the server allows" example:"https://example.com/hooks"`
	Types  []string `json:"types,omitempty" doc:"Of events, or all of a group: payment.*; all where it is left out or empty"`
	Paused *bool    `json:"paused,omitempty" doc:"Queue events, and send none"`
	Note   *string  `json:"note,omitempty" doc:"What it is for"`
}

type endpointChangeBody struct {
	URL    *string  `json:"url,omitempty" doc:"https; http only inside a network that the server allows"`
	Types  []string `json:"types,omitempty" doc:"Of events, or all of a group: payment.*; empty: all"`
	Paused *bool    `json:"paused,omitempty" doc:"Queue events, and send none; false sends what was queued"`
	Note   *string  `json:"note,omitempty" doc:"What it is for"`
}

type replayBody struct {
	From *string `json:"from,omitempty" doc:"The id of an event, or a position as text: everything from there on" example:"17"`
	Dead *bool   `json:"dead,omitempty" doc:"What was given up"`
}

var byDeliveryState = parameter{name: "state", about: "Only these: waiting, pending, delivered or dead"}

func shownEndpoint(e *store.Endpoint) Endpoint {
	return Endpoint{
		ID: e.ID, URL: e.URL, Types: append([]string{}, e.Kinds...), Paused: e.Paused, PausedReason: known(e.PausedReason), Note: known(e.Note),
		Secrets: len(e.Secrets), Position: e.Cursor, CreatedAt: e.CreatedAt.UTC(),
	}
}

func addEndpoint(c *call) answer {
	var body endpointBody
	if unread := c.instanceBody(&body); unread != nil {
		return *unread
	}
	change := outbox.Change{URL: &body.URL, Kinds: &body.Types, Paused: body.Paused, Note: body.Note}
	if refused := c.beforeDesk(); refused != nil {
		return *refused
	}
	e, secret, err := c.api.Events.Add(c.context(), c.key.Project, change)
	if err != nil {
		return c.deskFailed(err)
	}
	return answer{status: http.StatusCreated, body: EndpointMade{shownEndpoint(&e), secret}}
}

// beforeDesk answers what is wrong so far, and where there is no desk.
func (c *call) beforeDesk() *answer {
	switch {
	case len(c.problems) > 0:
		a := c.invalid(c.problems)
		return &a
	case c.api.Events == nil:
		a := c.notFound()
		return &a
	}
	return nil
}

func (c *call) deskFailed(err error) answer {
	if found, ok := errors.AsType[outbox.Problems](err); ok {
		return c.invalid(found)
	}
	switch {
	case errors.Is(err, outbox.ErrNoEndpoint):
		return c.notFound()
	case errors.Is(err, outbox.ErrTooMany):
		return c.mistake(reasonTooManyEndpoints, "A project has at most "+strconv.Itoa(holdfast.MaxEndpoints)+" endpoints: remove one.")
	case errors.Is(err, outbox.ErrNoEvent):
		return c.invalid([]holdfast.Problem{{Field: "from", Hint: "use a position, or the id of an event that is published and still kept"}})
	}
	return c.failed(err)
}

func listEndpoints(c *call) answer {
	c.noQuery()
	if refused := c.beforeDesk(); refused != nil {
		return *refused
	}
	all, err := c.api.Events.Endpoints(c.context(), c.key.Project)
	if err != nil {
		return c.deskFailed(err)
	}
	list := EndpointList{Items: []Endpoint{}}
	for i := range all {
		list.Items = append(list.Items, shownEndpoint(&all[i]))
	}
	return answer{status: http.StatusOK, body: list}
}

func getEndpoint(c *call) answer {
	c.noQuery()
	if refused := c.beforeDesk(); refused != nil {
		return *refused
	}
	e, err := c.api.Events.Endpoint(c.context(), c.key.Project, c.request.PathValue("id"))
	if err != nil {
		return c.deskFailed(err)
	}
	return answer{status: http.StatusOK, body: shownEndpoint(&e)}
}

func changeEndpoint(c *call) answer {
	var body endpointChangeBody
	if unread := c.instanceBody(&body); unread != nil {
		return *unread
	}
	change := outbox.Change{URL: body.URL, Paused: body.Paused, Note: body.Note}
	if body.Types != nil {
		change.Kinds = &body.Types
	}
	if refused := c.beforeDesk(); refused != nil {
		return *refused
	}
	e, err := c.api.Events.Change(c.context(), c.key.Project, c.request.PathValue("id"), change)
	if err != nil {
		return c.deskFailed(err)
	}
	return answer{status: http.StatusOK, body: shownEndpoint(&e)}
}

func removeEndpoint(c *call) answer {
	c.noQuery()
	if refused := c.beforeDesk(); refused != nil {
		return *refused
	}
	if err := c.api.Events.Remove(c.context(), c.key.Project, c.request.PathValue("id")); err != nil {
		return c.deskFailed(err)
	}
	return answer{status: http.StatusNoContent}
}

func rotateSecret(c *call) answer {
	c.noQuery()
	if refused := c.beforeDesk(); refused != nil {
		return *refused
	}
	e, secret, err := c.api.Events.Rotate(c.context(), c.key.Project, c.request.PathValue("id"))
	if err != nil {
		return c.deskFailed(err)
	}
	return answer{status: http.StatusOK, body: EndpointMade{shownEndpoint(&e), secret}}
}

var deliveryStates = []store.DeliveryState{store.DeliveryWaiting, store.DeliveryPending, store.DeliveryDelivered, store.DeliveryDead}

func listDeliveries(c *call) answer {
	read := c.query()
	limit := c.page("", read).Limit
	before := c.position(byCursor.name, read)
	state := store.DeliveryState(read[byDeliveryState.name])
	if state != "" && !slices.Contains(deliveryStates, state) {
		c.wrong(byDeliveryState.name, "use waiting, pending, delivered or dead")
	}
	if refused := c.beforeDesk(); refused != nil {
		return *refused
	}
	found, err := c.api.Events.Deliveries(c.context(), c.key.Project, c.request.PathValue("id"), state, before, limit+1)
	if err != nil {
		return c.deskFailed(err)
	}
	list := DeliveryList{Items: []Delivery{}}
	if len(found) > limit {
		found = found[:limit]
		list.NextCursor = known(strconv.FormatInt(found[limit-1].Event.Position, 10))
	}
	for i := range found {
		list.Items = append(list.Items, shownDelivery(&found[i]))
	}
	return answer{status: http.StatusOK, body: list}
}

func shownDelivery(d *store.Delivery) Delivery {
	shown := Delivery{
		Event: holdfast.EventRef.Encode(d.Event.Account, d.Event.ID), Type: d.Event.Kind, Account: d.Event.Name, Position: d.Event.Position, State: d.State,
		Attempts: d.Attempts, NextAttemptAt: instant(d.NextAt), LastAttemptAt: instant(d.LastAt), Problem: known(d.Problem),
	}
	if d.Status != 0 {
		shown.LastStatus = &d.Status
	}
	return shown
}

func replay(c *call) answer {
	var body replayBody
	if unread := c.instanceBody(&body); unread != nil {
		return *unread
	}
	dead := body.Dead != nil && *body.Dead
	if body.From == nil && !dead {
		c.mustBe("from", "say from where, or send dead: true")
	}
	if refused := c.beforeDesk(); refused != nil {
		return *refused
	}
	id, begun := c.request.PathValue("id"), ReplayBegun{}
	if _, err := c.api.Events.Endpoint(c.context(), c.key.Project, id); err != nil {
		return c.deskFailed(err)
	}
	if dead {
		var err error
		if begun.Revived, err = c.api.Events.ReplayDead(c.context(), c.key.Project, id); err != nil {
			return c.deskFailed(err)
		}
	}
	if body.From != nil {
		position, err := strconv.ParseInt(*body.From, 10, 64)
		if err != nil || position < 1 || strconv.FormatInt(position, 10) != *body.From {
			if position, err = c.api.Events.PositionOf(c.context(), c.key.Project, *body.From); err != nil {
				return c.deskFailed(err)
			}
		}
		if err := c.api.Events.ReplayFrom(c.context(), c.key.Project, id, position); err != nil {
			return c.deskFailed(err)
		}
		begun.Position = &position
	}
	return answer{status: http.StatusOK, body: begun}
}
