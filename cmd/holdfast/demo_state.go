package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

// demoPerson is Ann.
const demoPerson = 42

// How much of each list the page shows.
const (
	demoRows    = 12
	demoEntries = 30
)

// demoState is what the page shows. Lists are newest first, messages oldest first.
type demoState struct {
	Now          time.Time         `json:"now"`
	Process      demoProcess       `json:"process"`
	Provider     demoModel         `json:"provider"`
	Action       string            `json:"action"` // what the bot is shown to be doing
	Messages     []demoMessage     `json:"messages"`
	Account      demoAccount       `json:"account"`
	Grants       []demoGrant       `json:"grants"`
	Reservations []demoReservation `json:"reservations"`
	Entries      []demoEntry       `json:"entries"`
	Events       []demoTold        `json:"events"`
	Refundable   bool              `json:"refundable"`
}

type demoModel struct {
	Asked  int `json:"asked"`
	Worked int `json:"worked"`
}

type demoMessage struct {
	ID      int            `json:"id"`
	Mine    bool           `json:"mine"`
	Text    string         `json:"text"`
	Picture string         `json:"picture,omitempty"` // its address
	ReplyTo int            `json:"reply_to,omitempty"`
	Edited  bool           `json:"edited,omitempty"`
	Invoice string         `json:"invoice,omitempty"` // what is sold
	Event   string         `json:"event,omitempty"`   // Telegram's own words
	Buttons [][]demoButton `json:"buttons"`
}

type demoButton struct {
	Text string `json:"text"`
	Data string `json:"data,omitempty"`
	Pays bool   `json:"pays,omitempty"`
}

type demoAccount struct {
	Plan      string        `json:"plan"`
	Active    int           `json:"active"`
	MaxActive int           `json:"max_active"`
	Balances  []demoBalance `json:"balances"`
}

type demoBalance struct {
	Unit      string          `json:"unit"`
	Available holdfast.Amount `json:"available"`
	Reserved  holdfast.Amount `json:"reserved"`
}

type demoGrant struct {
	ID      string          `json:"id"`
	Source  string          `json:"source"`
	Unit    string          `json:"unit"`
	Granted holdfast.Amount `json:"granted"`

	Available holdfast.Amount `json:"available"`
	Reserved  holdfast.Amount `json:"reserved"`
	Used      holdfast.Amount `json:"used"`
	Voided    holdfast.Amount `json:"voided"`

	Ends  time.Time `json:"ends,omitzero"`
	Ended bool      `json:"ended"` // by its time
	Open  bool      `json:"open"`
}

type demoReservation struct {
	ID       string          `json:"id"`
	Feature  string          `json:"feature"`
	State    string          `json:"state"`
	Unit     string          `json:"unit"`
	Reserved holdfast.Amount `json:"reserved"`
	Used     holdfast.Amount `json:"used"`
	Attempts int             `json:"attempts"`
	Cause    string          `json:"cause,omitempty"`
	At       time.Time       `json:"at"`
}

type demoEntry struct {
	No        int64           `json:"no"`
	Kind      string          `json:"kind"`
	Moved     string          `json:"moved"`
	Available holdfast.Amount `json:"available"`
	Unit      string          `json:"unit"`
	At        time.Time       `json:"at"`
}

type demoTold struct {
	Position int64     `json:"position"`
	Kind     string    `json:"kind"`
	At       time.Time `json:"at"`
}

// state reads everything that the page shows.
func (p *demoPage) state(ctx context.Context) (*demoState, error) {
	s := &demoState{
		Now: p.bot.now(), Process: p.bot.look(), Provider: demoModel{Asked: len(p.provider.Calls()), Worked: p.provider.Worked()},
		Grants: []demoGrant{}, Reservations: []demoReservation{}, Entries: []demoEntry{}, Events: []demoTold{},
	}
	s.chat(p.telegram)
	for _, look := range []func(context.Context, *demoState) error{p.account, p.grants, p.reservations, p.entries, p.events} {
		if err := look(ctx, s); err != nil {
			return nil, fmt.Errorf("read the database: %w", err)
		}
	}
	return s, nil
}

// chat is the chat as Ann sees it.
func (s *demoState) chat(bot *fakeapi.Bot) {
	view, _ := bot.View(demoPerson)
	s.Action, s.Messages = view.Action, []demoMessage{}
	left := 0
	for _, m := range view.Messages {
		shown := demoMessage{ID: m.ID, Mine: m.From.ID == demoPerson, Text: m.Text, ReplyTo: m.ReplyTo, Edited: m.Edits > 0, Buttons: [][]demoButton{}}
		switch {
		case m.Photo != "":
			shown.Picture = "/pictures/" + m.Photo
		case m.Invoice != nil:
			shown.Invoice = m.Invoice.Title + ". " + m.Invoice.Description
		case m.Payment != nil:
			shown.Event = fmt.Sprintf("You have paid %d Stars", m.Payment.Stars)
			left++
		case m.Refund != nil:
			shown.Event = fmt.Sprintf("%d Stars were given back", m.Refund.Stars)
			left--
		}
		for _, row := range m.Keyboard {
			var buttons []demoButton
			for _, button := range row {
				_, err := bot.Invoice(button.URL)
				buttons = append(buttons, demoButton{Text: button.Text, Data: button.Data, Pays: button.Pay || err == nil})
			}
			shown.Buttons = append(shown.Buttons, buttons)
		}
		s.Messages = append(s.Messages, shown)
	}
	s.Refundable = left > 0
}

// read asks for something of Ann's.
func (p *demoPage) read(ctx context.Context, query store.Query) (store.Page, error) {
	query.Project, query.Account = devProject, holdfast.AccountIDOf(devProject, ann)
	return p.database.Read(ctx, query)
}

func (p *demoPage) account(ctx context.Context, s *demoState) error {
	page, err := p.read(ctx, store.Query{Kind: store.QueryState, Limit: 1})
	if err != nil {
		return err
	}
	state := page.State
	if state == nil {
		state = holdfast.NewState(devProject, ann)
	}
	view := holdfast.View(p.catalogs.of(devProject), state, s.Now)
	s.Account = demoAccount{Plan: view.Plan, Active: view.Account.Active, MaxActive: view.MaxActive, Balances: []demoBalance{}}
	for _, b := range view.Balances {
		if b.Available != 0 || b.Reserved != 0 || b.Cycle != nil {
			s.Account.Balances = append(s.Account.Balances, demoBalance{Unit: b.Unit, Available: b.Available, Reserved: b.Reserved})
		}
	}
	return nil
}

func (p *demoPage) grants(ctx context.Context, s *demoState) error {
	page, err := p.read(ctx, store.Query{Kind: store.QueryGrants, Limit: demoRows})
	for _, g := range page.Grants {
		s.Grants = append(s.Grants, demoGrant{
			ID: g.ID.String(), Source: string(g.Source), Unit: g.Unit, Granted: g.Granted,
			Available: g.Available(), Reserved: g.Reserved, Used: g.Used, Voided: g.Voided, Ends: g.EndsAt, Ended: g.Ended(s.Now), Open: g.Open,
		})
	}
	return err
}

func (p *demoPage) reservations(ctx context.Context, s *demoState) error {
	page, err := p.read(ctx, store.Query{Kind: store.QueryReservations, Limit: demoRows})
	for _, r := range page.Reservations {
		s.Reservations = append(s.Reservations, demoReservation{
			ID: r.ID.String(), Feature: r.Feature, State: string(r.State), Unit: r.Price.Unit, Reserved: r.Reserved, Used: r.Used,
			Attempts: r.Attempts, Cause: r.Cause, At: r.CreatedAt,
		})
	}
	return err
}

func (p *demoPage) entries(ctx context.Context, s *demoState) error {
	page, err := p.read(ctx, store.Query{Kind: store.QueryEntries, Limit: demoEntries})
	for _, e := range page.Entries {
		s.Entries = append(s.Entries, demoEntry{
			No: e.No, Kind: string(e.Kind), Moved: cmp.Or(describeDeltas(e.Deltas), e.Reason), Available: e.Available, Unit: e.Unit, At: e.RecordedAt,
		})
	}
	return err
}

func (p *demoPage) events(ctx context.Context, s *demoState) error {
	positions, err := p.database.Positions(ctx)
	if err != nil {
		return err
	}
	published, err := p.database.Published(ctx, devProject, max(0, positions[devProject]-demoEntries), demoEntries)
	for _, e := range published {
		s.Events = append(s.Events, demoTold{Position: e.Position, Kind: string(e.Kind), At: e.At})
	}
	slices.Reverse(s.Events)
	return err
}
