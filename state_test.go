package holdfast_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// A batch has up to 500 commands of one account, each of which looks for its key and its reservation.
func TestInALongBatchEveryKeyAndEveryReservationIsFound(t *testing.T) {
	const many = 300
	catalog := &holdfast.Catalog{
		Version: 1, Units: []holdfast.Unit{{Name: "credit"}},
		Features: []holdfast.Feature{{Name: "image", Prices: []holdfast.Price{{Unit: "credit", Amount: 1}}, TTL: time.Hour}},
		Plans:    []holdfast.Plan{{Name: "free", Default: true, Features: []string{"image"}, MaxActive: many}},
	}
	state, now := holdfast.NewState("shop", "ann"), time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC)
	commands := 0
	decide := func(key string, do holdfast.Operation) holdfast.Outcome {
		t.Helper()
		commands++
		id := holdfast.ID{12: byte(commands >> 8), 13: byte(commands)} // the core counts on from it
		outcome := holdfast.Decide(catalog, state, holdfast.Command{ID: id, Project: "shop", Account: "ann", Key: key, Actor: "test", Do: do}, now)
		if outcome.Reason != "" {
			t.Fatalf("%s %s: %s", do.Name(), key, outcome.Reason)
		}
		return outcome
	}
	decide("", holdfast.PutAccount{})
	decide("bought", holdfast.AddGrant{Unit: "credit", Amount: many, Source: holdfast.FromPurchase})
	var made []holdfast.ID
	for i := range many {
		made = append(made, decide(fmt.Sprint("key ", i), holdfast.Reserve{Feature: "image"}).Reservation.ID)
		if back := i / 2; !decide(fmt.Sprint("key ", back), holdfast.Reserve{Feature: "image"}).Replayed {
			t.Fatalf("after %d keys, number %d is not known any more", i+1, back)
		}
	}
	var copied *holdfast.State
	for i, id := range made {
		if i == many/2 {
			copied = state.Clone()
		}
		if !decide("", holdfast.Commit{ReservationID: id}).Changed {
			t.Fatal("a reservation was ended before")
		}
	}
	if g := state.Grants[0]; g.Used != many || g.Reserved != 0 {
		t.Errorf("%d used and %d reserved of %d", g.Used, g.Reserved, many)
	}
	if r, ok := copied.Reservation(made[many-1]); !ok || !r.Live() {
		t.Error("what was decided afterwards is seen in a clone")
	}
}
