package outbox

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// Event is what the outside is told, in JSON and in Go alike. More fields, kinds and data may come.
type Event struct {
	ID        string             `json:"id" doc:"The same however often it is delivered" example:"evt_…"`
	Type      holdfast.EventKind `json:"type" example:"reservation.commit"`
	Position  int64              `json:"position" doc:"In the project, in the order of publication"`
	CreatedAt time.Time          `json:"created_at" doc:"When it happened"`
	Project   string             `json:"project"`
	Account   string             `json:"account" doc:"As it is called now; a deleted account has lost its name"`
	Data      EventData          `json:"data"`
}

// EventData is what an event tells of.
type EventData struct {
	Reservation *string          `json:"reservation" doc:"Its id, where the event is about one"`
	Payment     *EventPayment    `json:"payment" doc:"Where the event is about one"`
	Entry       *EventEntry      `json:"entry" doc:"The line of the history, where there is one"`
	Figure      *holdfast.Amount `json:"figure" doc:"Of an overrun: not charged; of a report after the end: reported; of a refunded payment: how much of it; of a low balance: what is available"`
}

// EventPayment is a payment, as the provider names it.
type EventPayment struct {
	Provider  string                `json:"provider"`
	PaymentID string                `json:"payment_id"`
	Product   string                `json:"product"`
	Amount    holdfast.Amount       `json:"amount"`
	Currency  string                `json:"currency"`
	State     holdfast.PaymentState `json:"state"`
	Reason    holdfast.Flag         `json:"reason" doc:"Of a flagged one; else empty"`
	Refunded  holdfast.Amount       `json:"refunded"`
}

// EventEntry is a line of the account's history.
type EventEntry struct {
	No      int64              `json:"no"`
	Kind    holdfast.EntryKind `json:"kind"`
	Unit    string             `json:"unit" doc:"Empty: no money moved"`
	Deltas  []EventDelta       `json:"deltas"`
	Debt    holdfast.Amount    `json:"debt" doc:"What it added to the debt"`
	Balance EventBalance       `json:"balance" doc:"Of this unit, after it"`
	Key     string             `json:"key"`
	Reason  string             `json:"reason"`
}

// EventDelta is what an entry changed in one grant.
type EventDelta struct {
	Grant    string          `json:"grant"`
	Granted  holdfast.Amount `json:"granted"`
	Reserved holdfast.Amount `json:"reserved"`
	Used     holdfast.Amount `json:"used"`
	Voided   holdfast.Amount `json:"voided"`
}

// EventBalance is what there was of a unit.
type EventBalance struct {
	Available holdfast.Amount `json:"available"`
	Reserved  holdfast.Amount `json:"reserved"`
	Debt      holdfast.Amount `json:"debt"`
}

// compose makes of an outbox row what is published.
func compose(of *store.Pending, told *store.PendingEvent) (store.Published, error) {
	e := &told.Event
	var data EventData
	if !e.Reservation.IsZero() {
		id := holdfast.ReservationRef.Encode(of.Account, e.Reservation)
		data.Reservation = &id
	}
	if p := told.Payment; p != nil {
		data.Payment = &EventPayment{
			Provider: p.Provider, PaymentID: p.PaymentID, Product: p.Product, Amount: p.Amount, Currency: p.Currency,
			State: p.State, Reason: p.Flag, Refunded: p.Refunded,
		}
	}
	if told.Entry != nil {
		data.Entry = entryOf(of.Account, told.Entry)
	}
	switch e.Kind {
	case holdfast.EventOverrun, holdfast.EventReportedAfterEnd, holdfast.EventPaymentRefunded, holdfast.EventNoticeLowBalance:
		data.Figure = &e.Figure
	}
	text, err := json.Marshal(data)
	return store.Published{Project: of.Project, Account: of.Account, ID: e.ID, Kind: e.Kind, At: e.At, Data: string(text)}, err
}

func entryOf(account holdfast.AccountID, e *holdfast.Entry) *EventEntry {
	shown := &EventEntry{
		No: e.No, Kind: e.Kind, Unit: e.Unit, Deltas: make([]EventDelta, len(e.Deltas)), Debt: e.Debt, Key: e.Key, Reason: e.Reason,
		Balance: EventBalance{Available: e.Available, Reserved: e.Reserved, Debt: e.Owed},
	}
	for i, d := range e.Deltas {
		shown.Deltas[i] = EventDelta{
			Grant: holdfast.GrantRef.Encode(account, d.Grant), Granted: d.Granted, Reserved: d.Reserved, Used: d.Used, Voided: d.Voided,
		}
	}
	return shown
}

// eventOf reads what was published.
func eventOf(p *store.Published) (Event, error) {
	e := Event{
		ID: holdfast.EventRef.Encode(p.Account, p.ID), Type: p.Kind, Position: p.Position, CreatedAt: p.At.UTC(), Project: p.Project, Account: p.Name,
	}
	if err := json.Unmarshal([]byte(p.Data), &e.Data); err != nil {
		return e, fmt.Errorf("event %s: %w", e.ID, err)
	}
	return e, nil
}
