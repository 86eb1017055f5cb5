package httpapi

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

// smallEngine is the core behind one lock: every command is decided for real, and nothing else is.
type smallEngine struct {
	mu       sync.Mutex
	catalogs map[string]*holdfast.Catalog
	now      time.Time
	states   map[holdfast.AccountID]*holdfast.State
	entries  map[holdfast.AccountID][]holdfast.Entry
	commands int

	// before, where it is set, may fail or panic instead of an answer.
	before func(holdfast.Command) error
	// readError, where it is set, is what every read answers, once readsLeft have been answered.
	readError error
	readsLeft int
}

func (e *smallEngine) failReadsAfter(reads int, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.readError, e.readsLeft = err, reads
}

func newSmallEngine() *smallEngine {
	return &smallEngine{
		catalogs: map[string]*holdfast.Catalog{"shop": catalog(), "other": catalog()},
		now:      time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
		states:   map[holdfast.AccountID]*holdfast.State{}, entries: map[holdfast.AccountID][]holdfast.Entry{},
	}
}

// catalog is the product's example, with policies that differ from the defaults.
func catalog() *holdfast.Catalog {
	daily := holdfast.Cycle{Rolling: 24 * time.Hour}
	return &holdfast.Catalog{
		Version: 7,
		Units:   []holdfast.Unit{{Name: "credit"}, {Name: "image"}},
		Features: []holdfast.Feature{
			{Name: "text.improve", Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, LongestJob: time.Minute, TTL: 5 * time.Minute},
			{Name: "image.generate", Prices: []holdfast.Price{{Unit: "image", Amount: 1}, {Unit: "credit", Amount: 5}}, LongestJob: 5 * time.Minute, TTL: 15 * time.Minute},
			{Name: "file.analyze", Prices: []holdfast.Price{{Unit: "credit", Amount: 3}}, LongestJob: 3 * time.Minute, TTL: 15 * time.Minute, Policies: holdfast.Policies{CancelRunning: holdfast.CancelRequest}},
			{Name: "chat.completion", Prices: []holdfast.Price{{Unit: "credit", Per: 1000, Rates: map[string]holdfast.Amount{"input_token": 1, "cached_token": 0, "output_token": 4}}}, LongestJob: 2 * time.Minute, TTL: 10 * time.Minute, Policies: holdfast.Policies{Overrun: holdfast.OverrunDebt}},
		},
		Products: []holdfast.Product{{Name: "credits_100", Grant: &holdfast.ProductGrant{Unit: "credit", Amount: 100}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 100}}}},
		Surfaces: []holdfast.Surface{{Name: "bot", TTL: 15 * time.Minute}},
		Plans: []holdfast.Plan{
			{Name: "free", Default: true, Features: []string{"text.improve", "image.generate"}, MaxActive: 1, Allowances: []holdfast.Allowance{{Key: "free/credit", Unit: "credit", Amount: 3, Every: daily}}},
			{Name: "pro", Features: []string{"text.improve", "image.generate", "file.analyze", "chat.completion"}, FreeFeatures: []string{"text.improve"}, MaxActive: 3, DebtLimits: map[string]holdfast.Amount{"credit": 1}, Allowances: []holdfast.Allowance{{Key: "pro/credit", Unit: "credit", Amount: 300, Every: daily}}},
		},
	}
}

func (e *smallEngine) Submit(ctx context.Context, command holdfast.Command) (holdfast.Outcome, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.before != nil {
		if err := e.before(command); err != nil {
			return holdfast.Outcome{}, err
		}
	}
	return e.submit(command)
}

func (e *smallEngine) submit(command holdfast.Command) (holdfast.Outcome, error) {
	e.commands++
	binary.BigEndian.PutUint64(command.ID[:8], uint64(e.commands))
	if start, ok := command.Do.(holdfast.Start); ok {
		start.Token = fmt.Sprintf("TOKEN%d", e.commands)
		command.Do = start
	}
	id := command.AccountID()
	state := e.load(id)
	if state == nil {
		state = holdfast.NewState(command.Project, command.Account)
		state.Account.ID = id
	}
	outcome := holdfast.Decide(e.catalogs[command.Project], state, command, e.now)
	if !outcome.Redirect.IsZero() {
		command.Account, command.Target = "", outcome.Redirect
		return e.submit(command)
	}
	if outcome.DryRun {
		return outcome, nil
	}
	if changes, changed := state.Changes(); changed {
		saved := &holdfast.State{Account: changes.Account, Grants: state.Grants, Reservations: state.Reservations, Answers: state.Answers, Payments: state.Payments}
		saved.Account.Version++
		if err := saved.Check(); err != nil {
			panic(err)
		}
		e.states[id] = saved
		e.entries[id] = append(e.entries[id], changes.Entries...)
	}
	return outcome, nil
}

func (e *smallEngine) load(id holdfast.AccountID) *holdfast.State {
	if state, ok := e.states[id]; ok {
		return state.Clone()
	}
	return nil
}

func (e *smallEngine) SubmitAll(ctx context.Context, commands []holdfast.Command) []engine.Result {
	var results []engine.Result
	for _, command := range commands {
		outcome, err := e.Submit(ctx, command)
		results = append(results, engine.Result{Outcome: outcome, Err: err})
	}
	return results
}

func (e *smallEngine) Resolve(_ context.Context, _ string, account holdfast.AccountID) (holdfast.AccountID, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.resolve(account), nil
}

func (e *smallEngine) resolve(account holdfast.AccountID) holdfast.AccountID {
	for {
		state, ok := e.states[account]
		if !ok || state.Account.MergedInto.IsZero() {
			return account
		}
		account = state.Account.MergedInto
	}
}

func (e *smallEngine) Payment(_ context.Context, account holdfast.AccountID, provider, id string) (*holdfast.Payment, holdfast.AccountID, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if state := e.load(account); state != nil {
		if paid, ok := state.Payment(holdfast.PaymentIDOf(account, provider, id)); ok {
			return paid, account, e.readError
		}
	}
	return nil, holdfast.AccountID{}, e.readError
}

func (e *smallEngine) Alias(ctx context.Context, n engine.Names) (holdfast.Outcome, error) {
	return e.link(ctx, n, func(into holdfast.AccountID) holdfast.Operation { return holdfast.LinkAlias{Into: into} })
}

func (e *smallEngine) Merge(ctx context.Context, n engine.Names) (holdfast.Outcome, error) {
	return e.link(ctx, n, func(into holdfast.AccountID) holdfast.Operation {
		op := holdfast.MergeInto{Into: into}
		_, _ = e.Submit(ctx, holdfast.Command{Project: n.Project, Account: n.Other, Actor: n.Actor, Do: holdfast.AnnounceMerge{Into: into}})
		if state := e.load(holdfast.AccountIDOf(n.Project, n.Other)); state != nil {
			op.Announced = state.Account.Merging.ID
		}
		return op
	})
}

// link lets a name lead to an account, and whatever it had arrive there.
func (e *smallEngine) link(ctx context.Context, n engine.Names, do func(holdfast.AccountID) holdfast.Operation) (holdfast.Outcome, error) {
	into, _ := e.Resolve(ctx, n.Project, holdfast.AccountIDOf(n.Project, n.Account))
	if view, err := e.ViewOf(ctx, n.Project, into); view == nil || err != nil {
		return holdfast.Outcome{Reason: holdfast.NotFound}, err
	}
	outcome, err := e.Submit(ctx, holdfast.Command{Project: n.Project, Account: n.Other, Key: n.Key, Actor: n.Actor, Do: do(into)})
	if err != nil || outcome.Refused() {
		return outcome, err
	}
	from := holdfast.AccountIDOf(n.Project, n.Other)
	for _, t := range e.load(from).Account.Transfers {
		for _, command := range []holdfast.Command{
			{Project: n.Project, Target: into, Key: holdfast.TransferKey(from, t.ID), Do: holdfast.TakeOver{From: from, Transfer: t}},
			{Project: n.Project, Target: from, Do: holdfast.TransferDone{ID: t.ID}},
		} {
			if _, err := e.Submit(ctx, command); err != nil {
				return outcome, err
			}
		}
	}
	outcome.Account, err = e.ViewOf(ctx, n.Project, into)
	return outcome, err
}

func (e *smallEngine) ViewAt(_ context.Context, project, account string, at time.Time) (*holdfast.AccountView, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	id := e.resolve(holdfast.AccountIDOf(project, account))
	state := e.load(id)
	if state == nil {
		state = holdfast.NewState(project, account)
	}
	if at.IsZero() {
		return holdfast.View(e.catalogs[project], state, e.now), e.readError
	}
	past, err := holdfast.Rewind(state, func(yield func(holdfast.Entry, error) bool) {
		for _, entry := range slices.Backward(e.entries[id]) {
			if !yield(entry, nil) {
				return
			}
		}
	}, at)
	if err != nil {
		return nil, err
	}
	return holdfast.View(e.catalogs[project], past, at), e.readError
}

func (e *smallEngine) ViewOf(_ context.Context, project string, account holdfast.AccountID) (*holdfast.AccountView, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	state := e.load(account)
	if state == nil || state.Account.Project != project {
		return nil, e.readError
	}
	return holdfast.View(e.catalogs[project], state, e.now), e.readError
}

func (e *smallEngine) Explain(_ context.Context, command holdfast.Command) (*holdfast.Explanation, []holdfast.Problem, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if found := command.Check(); len(found) > 0 {
		return nil, found, nil
	}
	state := e.load(e.resolve(command.AccountID()))
	if state == nil {
		state = holdfast.NewState(command.Project, command.Account)
	}
	x, found := holdfast.Explain(e.catalogs[command.Project], state, command, e.now)
	return x, found, e.readError
}

func (e *smallEngine) Read(_ context.Context, query store.Query) (store.Page, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	position, err := query.Position()
	if e.readsLeft--; e.readError != nil && e.readsLeft < 0 || err != nil {
		return store.Page{}, errorsFirst(e.readError, err)
	}
	state := e.load(query.Account)
	if state == nil || state.Account.Project != query.Project {
		return store.Page{}, nil
	}
	skip := 0
	if position != nil {
		skip = int(binary.BigEndian.Uint64(position))
	}
	// next writes how far the list was read into as many bytes as a place in it has.
	next := func(bytes, all int) string {
		if skip+query.Limit >= all {
			return ""
		}
		return query.NextCursor(append(binary.BigEndian.AppendUint64(nil, uint64(skip+query.Limit)), make([]byte, bytes-8)...))
	}
	switch query.Kind {
	case store.QueryState:
		return store.Page{State: state}, nil
	case store.QueryReservations:
		list := newestFirst(state.Reservations, func(r *holdfast.Reservation) bool {
			return (query.Reservation.IsZero() || r.ID == query.Reservation) && (query.State == "" || r.State == query.State) && (query.Key == "" || r.Key == query.Key)
		})
		return store.Page{Reservations: cut(list, skip, query.Limit), Next: next(16, len(list))}, nil
	case store.QueryGrants:
		list := newestFirst(state.Grants, func(*holdfast.Grant) bool { return true })
		return store.Page{Grants: cut(list, skip, query.Limit), Next: next(24, len(list))}, nil
	}
	list := newestFirst(e.entries[query.Account], func(holdfast.Entry) bool { return true })
	return store.Page{Entries: cut(list, skip, query.Limit), Next: next(8, len(list))}, nil
}

func (e *smallEngine) Reservations(ctx context.Context, query store.Query) (list []engine.Owned, next string, err error) {
	page, err := e.Read(ctx, query)
	for _, r := range page.Reservations {
		list = append(list, engine.Owned{Account: query.Account, Reservation: r})
	}
	return list, page.Next, err
}

func errorsFirst(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func newestFirst[T any](all []T, keep func(T) bool) []T {
	var list []T
	for _, item := range slices.Backward(all) {
		if keep(item) {
			list = append(list, item)
		}
	}
	return list
}

func cut[T any](list []T, skip, limit int) []T {
	return list[min(skip, len(list)):min(skip+limit, len(list))]
}

func (e *smallEngine) Catalog(project string) *holdfast.Catalog { return e.catalogs[project] }

func (e *smallEngine) Ready(context.Context) error { return e.readError }

func (e *smallEngine) Now() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now
}

func (e *smallEngine) pass(d time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.now = e.now.Add(d)
}

// sweep expires what is overdue, as the sweeper does.
func (e *smallEngine) sweep(t *testing.T, project, account string) {
	t.Helper()
	if _, err := e.Submit(t.Context(), holdfast.Command{Project: project, Account: account, Actor: "sweeper", Do: holdfast.Expire{}}); err != nil {
		t.Fatal(err)
	}
}

// everything is all that is stored, as text: equal texts mean that nothing moved.
func (e *smallEngine) everything(t *testing.T) string {
	t.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	var names []string
	byName := map[string]any{}
	for id, state := range e.states {
		names = append(names, state.Account.Name)
		shown := state.Clone()
		shown.Account.Version, shown.Account.DecidedAt = 0, time.Time{} // an event alone moves them
		byName[state.Account.Project+" "+state.Account.Name] = []any{shown, e.entries[id]}
	}
	text, err := json.Marshal(byName)
	if err != nil {
		t.Fatal(err, names)
	}
	return string(text)
}

// plainTexts says reasons and little more.
type plainTexts struct{}

func (plainTexts) Match(accepted, account string) string {
	for _, wanted := range []string{accepted, account} {
		if wanted == "ru" || wanted == "en" {
			return wanted
		}
	}
	return "en"
}

func (plainTexts) Title(reason holdfast.Reason) string { return "Title of " + string(reason) }

func (plainTexts) Detail(reader Reader, c *holdfast.Catalog, outcome holdfast.Outcome, now time.Time) string {
	return fmt.Sprintf("%s in %s, %s, catalog %d, at %s", outcome.Reason, reader.Language, reader.Location, c.Version, now.Format(time.TimeOnly))
}

func (plainTexts) Step(language string, c *holdfast.Catalog, step holdfast.Step) string {
	return fmt.Sprintf("%s %v in %s, catalog %d", step.Check, step.Passed, language, c.Version)
}

func (plainTexts) Accident(reader Reader, reason holdfast.Reason) string {
	return fmt.Sprintf("%s in %s", reason, reader.Language)
}

func (plainTexts) PreCheckout(reader Reader, reason string, until, now time.Time) string {
	return fmt.Sprintf("%s in %s, %s, until %s", reason, reader.Language, reader.Location, until.Format(time.DateOnly))
}

func (plainTexts) Invoice(reader Reader, c *holdfast.Catalog, product *holdfast.Product, price holdfast.Money, recurring bool) (title, description string) {
	return product.Name, fmt.Sprintf("%d %s in %s, %t, catalog %d", price.Amount, price.Currency, reader.Language, recurring, c.Version)
}
