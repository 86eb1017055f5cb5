package engine_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

// occupied is a store in which another transaction holds one account until it lets go.
type occupied struct {
	store.Store
	account holdfast.AccountID
	let     chan struct{}
}

func (s *occupied) Begin(ctx context.Context) (store.Tx, error) {
	tx, err := s.Store.Begin(ctx)
	return occupiedTx{tx, s}, err
}

type occupiedTx struct {
	store.Tx
	store *occupied
}

func (tx occupiedTx) Load(ctx context.Context, wants []store.Want) ([]*holdfast.State, error) {
	i := slices.IndexFunc(wants, func(w store.Want) bool { return w.Account == tx.store.account })
	select {
	case <-tx.store.let:
		return tx.Tx.Load(ctx, wants)
	default:
	}
	switch {
	case i < 0:
		return tx.Tx.Load(ctx, wants)
	case wants[i].Wait:
		<-tx.store.let
		return tx.Tx.Load(ctx, wants)
	}
	states, err := tx.Tx.Load(ctx, slices.Delete(slices.Clone(wants), i, i+1))
	if err != nil {
		return nil, err
	}
	return slices.Insert(states, i, nil), nil
}

func TestAnAccountHeldByAnotherTransactionDelaysNobodyElse(t *testing.T) {
	ann := holdfast.AccountIDOf("p", "ann")
	s := &occupied{Store: memoryStore(t), account: ann, let: make(chan struct{})}
	h := open(t, s)
	waiting := make(chan result, 2)
	for _, key := range []string{"g1", "g2"} {
		go func() {
			o, err := h.submit("ann", key, holdfast.PutAccount{})
			waiting <- result{o, err}
		}()
	}
	for range 50 {
		h.has("bob", 1) // answered, however long ann takes
	}
	select {
	case r := <-waiting:
		t.Fatalf("ann was answered while another transaction holds her: %+v", r)
	default:
	}
	close(s.let)
	for range 2 {
		if r := <-waiting; r.err != nil || r.outcome.Refused() {
			t.Errorf("%+v", r)
		}
	}
	h.wantBalance("bob", "available=50 held=0 active=0")
	h.verify()
}

func TestJoinDecidesInTheCallersTransactionAndNothingIsRetried(t *testing.T) {
	g := &gate{Store: memoryStore(t)}
	h := open(t, g)
	h.has("ann", 2)
	join := func(key string, quantity holdfast.Amount) (holdfast.Outcome, error) {
		t.Helper()
		tx, err := g.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Abort(t.Context()) }()
		return h.Join(tx).Submit(t.Context(), h.command("ann", key, holdfast.Reserve{Feature: "draw", Quantity: quantity}))
	}
	first, err := join("m1", 1)
	if err != nil || first.Refused() {
		t.Fatalf("%+v %v", first, err)
	}
	if again, err := join("m1", 1); err != nil || !again.Replayed || again.Reservation.ID != first.Reservation.ID {
		t.Errorf("%+v %v", again, err)
	}
	if refused, err := join("m2", 3); err != nil || refused.Reason != holdfast.Insufficient {
		t.Errorf("%+v %v", refused, err)
	}
	if bad, err := join("", 1); err != nil || bad.Reason != holdfast.Invalid {
		t.Errorf("%+v %v", bad, err)
	}
	saves := 0
	g.set(func(g *gate) {
		g.onSave = func([]holdfast.Changes) error {
			saves++
			return &store.Error{Kind: store.Conflict, Op: "save", Err: errors.New("planted")}
		}
	})
	if _, err := join("m3", 1); codeOf(err) != engine.Unavailable || saves != 1 {
		t.Errorf("after %d saves: %v", saves, err)
	}
	g.set(func(g *gate) { g.onSave = nil })
	h.wantBalance("ann", "available=1 held=1 active=1")
	h.verify()
}
