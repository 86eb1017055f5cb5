package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// people are the names of all accounts, and what is personal about their reservations.
func (h *house) people() (found []string) {
	h.t.Helper()
	err := h.store.Dump(context.Background(), func(r store.Record) error {
		found = append(found, r.Account.Name)
		if r.Account.Metadata != nil || r.Account.Language != "" {
			found = append(found, fmt.Sprint(r.Account.Metadata, r.Account.Language))
		}
		for reservation, err := range r.Reservations {
			if err != nil {
				return err
			}
			if reservation.Metadata != nil {
				found = append(found, fmt.Sprint(reservation.Metadata))
			}
			if reservation.Live() {
				found = append(found, "live")
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// move passes as often as the sweeper may have to: word goes from name to name, one each pass.
func (h *house) move() {
	h.t.Helper()
	for range 3 {
		if err := h.Move(h.t.Context()); err != nil {
			h.t.Fatal(err)
		}
	}
}

func TestDeletingAnAccountForgetsAllOfItsNames(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		h := open(t, s)
		language := "ru"
		for _, name := range []string{"ann", "telegram:42", "mail:b"} {
			h.done(h.do(name, "", holdfast.PutAccount{Language: &language, Metadata: map[string]string{"name": name}}))
			h.has(name, 9)
			h.done(h.do(name, "m", holdfast.Reserve{Feature: "draw", Metadata: map[string]string{"chat": name}}))
			h.done(h.alias(name, name+":web", ""))
		}
		h.has("eve", 1)
		h.done(h.merge("telegram:42", "mail:b", "m1"))
		h.done(h.merge("ann", "telegram:42", "m1"))
		h.done(h.do("mail:b:web", "", holdfast.DeleteAccount{}))
		h.move()
		if got := h.people(); !slices.Equal(got, []string{holdfast.Erased, "eve"}) {
			t.Errorf("after the deletion there are %q", got)
		}
		for _, name := range []string{"ann", "telegram:42", "mail:b", "ann:web", "telegram:42:web", "mail:b:web"} {
			if got := h.reserve(name, "again"); got.Reason != holdfast.AccountBlocked {
				t.Errorf("%s: %+v", name, got)
			}
			if got := h.alias("eve", name, ""); got.Reason != holdfast.AccountExists {
				t.Errorf("%s became eve's: %+v", name, got)
			}
		}
		h.verify()
	})
}

// interrupted is a store in which something happens just before the transaction that is so many from now.
type interrupted struct {
	store.Store
	mu    sync.Mutex
	after int
	by    func()
}

func (s *interrupted) Begin(ctx context.Context) (store.Tx, error) {
	s.mu.Lock()
	s.after--
	due := s.after == 0
	s.mu.Unlock()
	if due {
		s.by()
	}
	return s.Store.Begin(ctx)
}

// Another server deletes the account between any two transactions of whoever lets a name lead to it.
func TestANameThatComesToLeadToAnAccountWhileItIsDeletedIsForgottenToo(t *testing.T) {
	eachStore(t, func(t *testing.T, s store.Store) {
		cut := &interrupted{Store: s}
		h, other := open(t, cut), open(t, s)
		links := map[string]func(account, name string) holdfast.Outcome{
			"alias": func(account, name string) holdfast.Outcome { return h.alias(account, name, "") },
			"merge": func(account, name string) holdfast.Outcome {
				h.has(name, 2)
				return h.merge(account, name, "m")
			},
		}
		for kind, link := range links {
			for after := range 9 {
				account, name := fmt.Sprint(kind, after), fmt.Sprint(kind, "-name", after)
				h.has(account, 1)
				cut.mu.Lock()
				cut.after, cut.by = after, func() {
					other.done(other.do(account, "", holdfast.DeleteAccount{}))
					other.move()
				}
				cut.mu.Unlock()
				link(account, name)
			}
		}
		for kind := range links {
			for after := range 9 {
				name := fmt.Sprint(kind, "-name", after)
				view, err := other.View(t.Context(), "p", name)
				if err != nil {
					t.Fatal(err)
				}
				if !view.Account.DeletedAt.IsZero() && slices.Contains(other.people(), name) {
					t.Errorf("%s leads to an account that was deleted before transaction %d, and is not forgotten", name, after)
				}
			}
		}
		open(t, s).verify()
	})
}
