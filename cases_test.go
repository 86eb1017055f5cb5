package holdfast_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// Failures of other systems, restated for the core. The number of each case is in its comment; those that read better as
// a statement are decision scripts in testdata/decide: cases 15 and 16 in anniversary.txt and as a golden year in testdata/year,
// 17 and 37 in calendar.txt and anniversary.txt, 38 in calendar.txt and zones.txt, 8 in overrun.txt and debt.txt, 12 in
// doubt.txt, 28 in late_commit.txt, 56 in cancel.txt.

// oneUnitCatalog sells one thing for a price in credits, and gives nothing by itself.
func oneUnitCatalog(price holdfast.Amount, slots int) *holdfast.Catalog {
	return &holdfast.Catalog{
		Version:  1,
		Units:    []holdfast.Unit{{Name: "credit"}},
		Features: []holdfast.Feature{{Name: "work", Prices: []holdfast.Price{{Unit: "credit", Amount: price}}, LongestJob: 5 * time.Minute, TTL: 15 * time.Minute}},
		Plans:    []holdfast.Plan{{Name: "free", Default: true, Features: []string{"work"}, MaxActive: slots}},
	}
}

// funded is a world in which account ann has bought credits and may spend them on work.
func funded(t testing.TB, credits, price holdfast.Amount, slots int) *world {
	t.Helper()
	w := newWorld(t)
	w.catalog = oneUnitCatalog(price, slots)
	w.do("ann", "", holdfast.PutAccount{})
	if got := w.do("ann", "bought", holdfast.AddGrant{Unit: "credit", Amount: credits, Source: holdfast.FromPurchase}); got.Reason != "" {
		t.Fatalf("grant: %s", got.Reason)
	}
	return w
}

// reserveWork reserves under a key and returns the outcome; work is the id of the reservation that must have come of it.
func (w *world) reserveWork(key string) result {
	w.Helper()
	return w.do("ann", key, holdfast.Reserve{Feature: "work"})
}

func (w *world) work(key string) holdfast.ID {
	w.Helper()
	got := w.reserveWork(key)
	if got.Reason != "" {
		w.Fatalf("reserve %s: refused %s", key, got.Reason)
	}
	return got.Reservation.ID
}

// expect fails where a command did not come to the reason; the empty one means it was done.
func (w *world) expect(got result, want holdfast.Reason) result {
	w.Helper()
	if got.Reason != want {
		w.Fatalf("%s came to %q %v, want %q", got.operation, got.Reason, got.Problems, want)
	}
	return got
}

// expectCredits compares what ann has, holds and has spent.
func (w *world) expectCredits(available, reserved, used holdfast.Amount) {
	w.Helper()
	b := w.balance("ann", "credit")
	var spent holdfast.Amount
	for _, g := range w.stored("ann").grants {
		spent += g.Used
	}
	if b.Available != available || b.Reserved != reserved || spent != used {
		w.Fatalf("ann has %d available, %d reserved, %d used; want %d, %d, %d", b.Available, b.Reserved, spent, available, reserved, used)
	}
}

// Case 1 (a, c, d).
func TestReservesNeverTakeMoreThanThereIs(t *testing.T) {
	for _, test := range []struct {
		name            string
		granted, price  holdfast.Amount
		asked, accepted int
		left            holdfast.Amount
	}{
		{name: "one unit, fifty callers", granted: 1, price: 1, asked: 50, accepted: 1, left: 0},
		{name: "the rich are not trusted either", granted: 1000, price: 9, asked: 200, accepted: 111, left: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := funded(t, test.granted, test.price, 1000)
			accepted := 0
			for i := range test.asked {
				switch got := w.reserveWork(fmt.Sprintf("m%d", i)); got.Reason {
				case "":
					accepted++
				case holdfast.HeldByActive:
				default:
					t.Fatalf("refused %s, want %s", got.Reason, holdfast.HeldByActive)
				}
			}
			if accepted != test.accepted {
				t.Errorf("%d accepted, want %d", accepted, test.accepted)
			}
			w.expectCredits(test.left, test.price*holdfast.Amount(test.accepted), 0)
		})
	}
	t.Run("what is nearly used up refuses", func(t *testing.T) {
		w := funded(t, 200, 1, 10)
		w.expect(w.do("ann", "m1", holdfast.Reserve{Feature: "work", Quantity: 199}), "")
		w.expect(w.do("ann", "", holdfast.Commit{ReservationID: w.stored("ann").reservations[0].ID}), "")
		w.expect(w.do("ann", "m2", holdfast.Reserve{Feature: "work", Quantity: 50}), holdfast.Insufficient)
		w.expectCredits(1, 0, 199)
	})
}

// Case 4.
func TestEveryReleasedHoldIsFreeAgainAtOnce(t *testing.T) {
	w := funded(t, 800, 20, 100)
	w.expect(w.do("ann", "m0", holdfast.Reserve{Feature: "work", Quantity: 14}), "")
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: w.stored("ann").reservations[0].ID}), "")
	var held []holdfast.ID
	for i := range 26 {
		held = append(held, w.work(fmt.Sprintf("c%d", i)))
	}
	w.expectCredits(0, 520, 280)
	w.expect(w.reserveWork("m1"), holdfast.HeldByActive)
	for _, id := range held {
		w.expect(w.do("ann", "", holdfast.Release{ReservationID: id, Cause: "cancelled"}), "")
	}
	w.expectCredits(520, 0, 280)
	w.expect(w.reserveWork("m2"), "")
}

// Case 9.
func TestAHoldComesBackOnceWhoeverReleasesIt(t *testing.T) {
	w := funded(t, 100, 40, 10)
	id := w.work("m1")
	w.now = w.now.Add(15 * time.Minute)
	for i, op := range []holdfast.Operation{
		holdfast.Release{ReservationID: id, Cause: "failed"}, // poller A
		holdfast.Release{ReservationID: id, Cause: "failed"}, // poller B
		holdfast.Expire{},                  // the sweeper
		holdfast.Cancel{ReservationID: id}, // the person
		holdfast.Force{ReservationID: id, End: holdfast.EndRelease, Reason: "a check"}, // an operator
	} {
		got := w.expect(w.do("ann", "", op), "")
		if got.Changed != (i == 0) {
			t.Errorf("%s as number %d: changed %t", got.operation, i+1, got.Changed)
		}
	}
	w.expectCredits(100, 0, 0)
	if got := w.stored("ann").reservation(id); got.State != holdfast.Released || got.Cause != "failed" {
		t.Errorf("the reservation is %s by %q, want what the first one did", got.State, got.Cause)
	}
}

// Case 10.
func TestStateMoneyEntryEventAndAnswerAreOneSetOfChanges(t *testing.T) {
	w := funded(t, 100, 40, 10)
	id := w.work("m1")
	got := w.expect(w.do("ann", "c1", holdfast.Commit{ReservationID: id, Amount: pointer(holdfast.Amount(30))}), "")
	if len(got.saved) != 1 {
		t.Fatalf("%d sets of changes", len(got.saved))
	}
	c := got.saved[0]
	if len(c.Reservations) != 1 || c.Reservations[0].State != holdfast.Committed || c.Reservations[0].Used != 30 {
		t.Errorf("the reservation: %s", inJSON(c.Reservations))
	}
	if len(c.Grants) != 1 || c.Grants[0].Used != 30 || c.Grants[0].Reserved != 0 {
		t.Errorf("the grant: %s", inJSON(c.Grants))
	}
	if c.Account.Active != 0 {
		t.Errorf("%d slots are taken", c.Account.Active)
	}
	if len(c.Entries) != 1 || len(c.Events) != 1 || c.Events[0].Entry != c.Entries[0].No || len(c.Answers) != 1 {
		t.Errorf("entries %d, events %d, answers %d: want one of each, the event of the entry", len(c.Entries), len(c.Events), len(c.Answers))
	}
}

// Case 13.
func TestOneHoldSpansAllAttemptsAndIsChargedOnce(t *testing.T) {
	w := funded(t, 19, 9, 10)
	id := w.work("m1")
	for attempt := 1; attempt <= 3; attempt++ {
		token := fmt.Sprintf("t%d", attempt)
		w.expect(w.do("ann", "", holdfast.Start{ReservationID: id, Worker: "w", Token: token}), "")
		w.expectCredits(10, 9, 0)
		w.now = w.now.Add(holdfast.DefaultLease)
	}
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: id, LeaseToken: "t3"}), "")
	w.expectCredits(10, 0, 9)
	if got := w.stored("ann").reservation(id).Attempts; got != 3 {
		t.Errorf("%d attempts are recorded", got)
	}
}

// Case 21, case 31: amounts that are no amounts move nothing and are named.
func TestHostileAmountsAreInvalidAndMoveNothing(t *testing.T) {
	hostile := []holdfast.Amount{-1, -5, holdfast.MaxAmount + 1, 1 << 62, math.MaxInt64, math.MinInt64, -holdfast.MaxAmount - 1}
	w := funded(t, 100, 5, 10)
	id := w.work("m1")
	entries := len(w.stored("ann").entries)
	for _, n := range hostile {
		for field, op := range map[string]holdfast.Operation{
			"quantity":  holdfast.Reserve{Feature: "work", Quantity: n},
			"usage.tok": holdfast.Reserve{Feature: "work", Usage: map[string]holdfast.Amount{"tok": n}},
			"amount":    holdfast.Commit{ReservationID: id, Amount: &n},
		} {
			w.expectProblem(w.do("ann", "k", op), field)
		}
		w.expectProblem(w.do("ann", "k", holdfast.Commit{ReservationID: id, Quantity: &n}), "quantity")
		w.expectProblem(w.do("ann", "k", holdfast.AddGrant{Unit: "credit", Amount: n}), "amount")
		w.expectProblem(w.do("ann", "k", holdfast.Refund{ReservationID: id, Amount: &n}), "amount")
		w.expectProblem(w.do("ann", "k", holdfast.Force{ReservationID: id, End: holdfast.EndCommit, Amount: &n, Reason: "why"}), "amount")
	}
	for _, n := range []holdfast.Amount{0, holdfast.MaxAmount + 1, math.MaxInt64, math.MinInt64, -holdfast.MaxAmount - 1} {
		w.expectProblem(w.do("ann", "k", holdfast.Adjust{Unit: "credit", Amount: n, Reason: "why"}), "amount")
	}
	w.expectProblem(w.do("ann", "k", holdfast.AddGrant{Unit: "credit", Amount: 0}), "amount")
	w.expectProblem(w.do("ann", "k", holdfast.Refund{ReservationID: id, Amount: pointer(holdfast.Amount(0))}), "amount")
	w.expectCredits(95, 5, 0)
	if got := len(w.stored("ann").entries); got != entries {
		t.Errorf("%d entries were written", got-entries)
	}
}

func (w *world) expectProblem(got result, field string) {
	w.Helper()
	w.expect(got, holdfast.Invalid)
	if len(got.Problems) != 1 || got.Problems[0].Field != field || got.Problems[0].Hint == "" {
		w.Fatalf("%s: problems %v, want one with %s", got.operation, got.Problems, field)
	}
}

// Case 31: a product that does not fit is refused before anything is taken, for a reserve and for a commit.
func TestAPriceTimesAQuantityThatOverflowsIsRefusedBeforeAnythingIsTaken(t *testing.T) {
	w := funded(t, holdfast.MaxAmount, 1<<30, 10)
	w.expectProblem(w.do("ann", "m1", holdfast.Reserve{Feature: "work", Quantity: 1 << 23}), "quantity")
	w.expectProblem(w.do("ann", "m1", holdfast.Reserve{Feature: "work", Quantity: holdfast.MaxAmount}), "quantity")
	fits := w.expect(w.do("ann", "m1", holdfast.Reserve{Feature: "work", Quantity: 1<<23 - 1}), "")
	w.expectProblem(w.do("ann", "", holdfast.Commit{ReservationID: fits.Reservation.ID, Quantity: pointer(holdfast.Amount(1 << 23))}), "quantity")
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: fits.Reservation.ID, Amount: pointer(holdfast.MaxAmount)}), "")
	w.expectCredits(1<<30-1, 0, (1<<23-1)<<30)
}

// Case 31: one unit more than 2^53-1 in all is refused, however it is brought in.
func TestAnAccountsGrantsOfAUnitStayWithinTheLargestAmount(t *testing.T) {
	w := funded(t, holdfast.MaxAmount-1, 5, 10)
	w.expectProblem(w.do("ann", "g2", holdfast.AddGrant{Unit: "credit", Amount: 2}), "amount")
	w.expectProblem(w.do("ann", "a2", holdfast.Adjust{Unit: "credit", Amount: 2, Reason: "why"}), "amount")
	w.expectProblem(w.do("ann", "g2", holdfast.AddGrant{Unit: "credit", Amount: holdfast.MaxAmount}), "amount")
	w.expect(w.do("ann", "g2", holdfast.AddGrant{Unit: "credit", Amount: 1}), "")
	w.expectCredits(holdfast.MaxAmount, 0, 0)
	w.expect(w.do("ann", "m1", holdfast.Reserve{Feature: "work", Quantity: 1}), "")
}

// Case 31: a pocket costs every later decision, so there are not more than can be loaded with each.
func TestAnAccountHasOnlySoManyOpenGrants(t *testing.T) {
	w := funded(t, 1, 1, 10)
	add := w.command("ann", "g", holdfast.AddGrant{Unit: "credit", Amount: 1})
	state := w.load(add)
	for i := 1; i < holdfast.MaxOpenGrants; i++ {
		g := *state.Grants[0]
		g.ID = commandID(1<<20 + i)
		if i == holdfast.MaxOpenGrants-1 { // one that is closed does not count
			closed := g
			closed.ID, closed.Used, closed.Open = commandID(1<<21), 1, false
			state.Grants = append(state.Grants, &closed)
			if got := holdfast.Decide(w.catalog, state.Clone(), add, w.now); got.Reason != "" {
				t.Fatalf("the last one that fits: %s %v", got.Reason, got.Problems)
			}
		}
		state.Grants = append(state.Grants, &g)
	}
	got := holdfast.Decide(w.catalog, state.Clone(), add, w.now)
	w.expectProblem(result{Outcome: got, operation: "grant"}, "account")
	adjust := w.command("ann", "a", holdfast.Adjust{Unit: "credit", Amount: 1, Reason: "one more"})
	w.expectProblem(result{Outcome: holdfast.Decide(w.catalog, state, adjust, w.now), operation: "adjust"}, "account")
}

// Case 24.
func TestSlotsOfDeadJobsAreFreeAfterTheirTime(t *testing.T) {
	w := funded(t, 100, 1, 10)
	for i := range 10 {
		id := w.work(fmt.Sprintf("m%d", i))
		w.expect(w.do("ann", "", holdfast.Start{ReservationID: id, Worker: "w", Token: "t"}), "")
	}
	w.now = w.now.Add(15*time.Minute - time.Second)
	w.expect(w.reserveWork("m10"), holdfast.TooManyActive)
	w.now = w.now.Add(time.Second)
	w.expect(w.reserveWork("m11"), "")
	w.expectCredits(99, 1, 0)
	if replayed := w.expect(w.reserveWork("m3"), ""); !replayed.Replayed {
		t.Error("an old key got a second hold")
	}
	w.expectCredits(99, 1, 0)
}

// Case 26.
func TestASlowWorkerMayDoNothingOnceItsJobWasGivenAway(t *testing.T) {
	w := funded(t, 100, 50, 10)
	id := w.work("m1")
	w.expect(w.do("ann", "", holdfast.Start{ReservationID: id, Worker: "a", Token: "of-a"}), "")
	w.now = w.now.Add(holdfast.DefaultLease)
	w.expect(w.do("ann", "", holdfast.Start{ReservationID: id, Worker: "b", Token: "of-b"}), "")
	late := []holdfast.Operation{
		holdfast.Commit{ReservationID: id, LeaseToken: "of-a", Amount: pointer(holdfast.Amount(50))},
		holdfast.Release{ReservationID: id, LeaseToken: "of-a"},
		holdfast.Heartbeat{ReservationID: id, LeaseToken: "of-a"},
	}
	for _, op := range late {
		w.expect(w.do("ann", "", op), holdfast.StaleLease)
	}
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: id, LeaseToken: "of-b", Amount: pointer(holdfast.Amount(30))}), "")
	for _, op := range late {
		w.expect(w.do("ann", "", op), holdfast.AlreadyEnded)
	}
	w.expectCredits(70, 0, 30)
	last := w.stored("ann").events[len(w.stored("ann").events)-1]
	if last.Kind != holdfast.EventReportedAfterEnd || last.Figure != 50 {
		t.Errorf("the slow worker's 50 are told as %s of %d", last.Kind, last.Figure)
	}
}

// Case 27.
func TestAKeyStandsForOneIntentionOfOneAccount(t *testing.T) {
	w := funded(t, 100, 1, 10)
	w.expect(w.do("ann", "k", holdfast.Reserve{Feature: "work", Quantity: 5}), "")
	w.expect(w.do("ann", "k", holdfast.Reserve{Feature: "work", Quantity: 7}), holdfast.KeyReused)
	w.expectCredits(95, 5, 0)

	first, second := w.work("m1"), w.work("m2")
	w.expect(w.do("ann", "c", holdfast.Cancel{ReservationID: first}), "")
	w.expect(w.do("ann", "c", holdfast.Cancel{ReservationID: second}), holdfast.KeyReused)
	w.expect(w.do("ann", "c", holdfast.Release{ReservationID: first}), holdfast.KeyReused)
	if got := w.stored("ann").reservation(second); !got.Live() {
		t.Error("the second one was cancelled by the first one's key")
	}

	w.do("bob", "", holdfast.PutAccount{})
	w.expect(w.do("bob", "bought", holdfast.AddGrant{Unit: "credit", Amount: 3, Source: holdfast.FromPurchase}), "")
	other := w.expect(w.do("bob", "k", holdfast.Reserve{Feature: "work", Quantity: 2}), "")
	if other.Replayed || other.Reservation.Reserved != 2 {
		t.Errorf("bob was answered with what is ann's: %s", inJSON(other.Outcome))
	}
}

// Case 28.
func TestALateCommitTakesWhatIsThereAndNeverMore(t *testing.T) {
	for _, test := range []struct {
		name                      string
		takenBefore               holdfast.Amount
		available, late, unbilled holdfast.Amount
	}{
		{name: "all is there", takenBefore: 0, available: 0, late: 10, unbilled: 0},
		{name: "another request took it all", takenBefore: 10, available: 0, late: 0, unbilled: 10},
		{name: "four are left", takenBefore: 6, available: 0, late: 4, unbilled: 6},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := funded(t, 10, 1, 10)
			first := w.expect(w.do("ann", "m1", holdfast.Reserve{Feature: "work", Quantity: 10}), "")
			w.now = w.now.Add(15 * time.Minute)
			w.expect(w.do("ann", "", holdfast.Expire{}), "")
			w.expectCredits(10, 0, 0)
			if test.takenBefore > 0 {
				w.expect(w.do("ann", "m2", holdfast.Reserve{Feature: "work", Quantity: test.takenBefore}), "")
			}
			got := w.expect(w.do("ann", "", holdfast.Commit{ReservationID: first.Reservation.ID}), "")
			r := got.Reservation
			if r.State != holdfast.Expired || r.LateUsed != test.late || r.Unbilled != test.unbilled || !got.Settlement.Late {
				t.Errorf("%s, late used %d, unbilled %d", r.State, r.LateUsed, r.Unbilled)
			}
			if got.Balance.Available != test.available || got.Balance.Reserved != test.takenBefore {
				t.Errorf("the answer says %d available, %d reserved", got.Balance.Available, got.Balance.Reserved)
			}
			w.expectCredits(test.available, test.takenBefore, test.late)
		})
	}
}

// Case 30.
func TestNothingIsCommittedThatIsNotHeld(t *testing.T) {
	w := funded(t, 5000, 1000, 10)
	var held []holdfast.ID
	for i := range 5 {
		held = append(held, w.work(fmt.Sprintf("m%d", i)))
	}
	refused := w.expect(w.reserveWork("m5"), holdfast.HeldByActive)
	if refused.Reservation != nil || len(w.stored("ann").reservations) != 5 {
		t.Error("a refused reserve left a reservation behind")
	}
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: commandID(999)}), holdfast.NotFound)

	part := pointer(holdfast.Amount(600))
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: held[0], Amount: part}), "")
	again := w.expect(w.do("ann", "c2", holdfast.Commit{ReservationID: held[0], Amount: part}), "")
	if again.Changed || again.Reservation.Used != 600 {
		t.Errorf("a second part was charged: used %d", again.Reservation.Used)
	}
	w.expect(w.do("ann", "", holdfast.Release{ReservationID: held[1]}), "")
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: held[1]}), holdfast.AlreadyEnded)
	w.expectCredits(1400, 3000, 600)
}

// Case 32.
func TestAPriceSplitOverPocketsAddsUpToThePrice(t *testing.T) {
	w := funded(t, 3, 10, 10)
	for _, key := range []string{"second", "third"} {
		w.expect(w.do("ann", key, holdfast.AddGrant{Unit: "credit", Amount: 4, Source: holdfast.FromPurchase}), "")
	}
	id := w.work("m1")
	sum := func(field func(a holdfast.Allocation) holdfast.Amount) (total holdfast.Amount) {
		for _, a := range w.stored("ann").reservation(id).Allocations {
			total += field(a)
		}
		return total
	}
	if got := len(w.stored("ann").reservation(id).Allocations); got != 3 {
		t.Errorf("taken from %d pockets", got)
	}
	if got := sum(func(a holdfast.Allocation) holdfast.Amount { return a.Reserved }); got != 10 {
		t.Errorf("the parts add up to %d", got)
	}
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: id, Amount: pointer(holdfast.Amount(8))}), "")
	if got := sum(func(a holdfast.Allocation) holdfast.Amount { return a.Used }); got != 8 {
		t.Errorf("the used parts add up to %d", got)
	}
	for i := range 8 {
		w.expect(w.do("ann", fmt.Sprintf("r%d", i), holdfast.Refund{ReservationID: id, Amount: pointer(holdfast.Amount(1))}), "")
	}
	w.expect(w.do("ann", "r8", holdfast.Refund{ReservationID: id, Amount: pointer(holdfast.Amount(1))}), holdfast.RefundExceedsUsed)
	w.expectCredits(11, 0, 0)
}

// Case 37, as far as it is about rolling windows: the time that passes unused moves no window.
func TestAnIdleWeekMovesNoRollingWindow(t *testing.T) {
	w := newWorld(t)
	reserve := func(key string) result { return w.do("ann", key, holdfast.Reserve{Feature: "text.improve"}) }
	w.expect(reserve("m1"), "")
	w.expect(w.do("ann", "", holdfast.Release{ReservationID: w.stored("ann").reservations[0].ID}), "")
	for _, day := range []int{6, 13} { // the first window is long over, and none began meanwhile
		w.now = theMorning.AddDate(0, 0, day).Add(7 * time.Hour)
		if cycle := w.balance("ann", "credit").Cycle; !cycle.StartsAt.IsZero() || cycle.Granted != 3 {
			t.Fatalf("day %d: a window started by itself at %s", day, cycle.StartsAt)
		}
	}
	got := w.expect(reserve("m2"), "")
	if cycle := got.Balance.Cycle; !cycle.StartsAt.Equal(w.now) || !cycle.EndsAt.Equal(w.now.Add(24*time.Hour)) {
		t.Errorf("the window is from %s to %s, want from now on", cycle.StartsAt, cycle.EndsAt)
	}
	if n := len(w.stored("ann").grants); n != 2 {
		t.Errorf("%d windows were opened, want the first one and this one", n)
	}
}

// Case 52: who wants the same thing three times has three holds; what was answered is not taken again.
func TestEachIntentionHasItsOwnHold(t *testing.T) {
	w := funded(t, 100, 5, 10)
	first, second, third := w.work("m1"), w.work("m2"), w.work("m3")
	if first == second || second == third || first == third {
		t.Fatal("two holds have one id")
	}
	for range 3 {
		if again := w.expect(w.reserveWork("m2"), ""); !again.Replayed || again.Reservation.ID != second {
			t.Error("reading an answer again made another one")
		}
	}
	w.expectCredits(85, 15, 0)
}

// Case 56.
func TestCancelAndStartAndFinishExcludeEachOther(t *testing.T) {
	w := funded(t, 30, 10, 10)

	cancelled := w.work("m1")
	w.expect(w.do("ann", "", holdfast.Cancel{ReservationID: cancelled}), "")
	w.expect(w.do("ann", "", holdfast.Start{ReservationID: cancelled, Worker: "w", Token: "t"}), holdfast.AlreadyEnded)
	w.expectCredits(30, 0, 0)

	running := w.work("m2")
	w.expect(w.do("ann", "", holdfast.Start{ReservationID: running, Worker: "w", Token: "t"}), "")
	w.expect(w.do("ann", "", holdfast.Cancel{ReservationID: running}), holdfast.AlreadyRunning)
	w.expectCredits(20, 10, 0)

	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: running, LeaseToken: "t", Amount: pointer(holdfast.Amount(7))}), "")
	told := w.expect(w.do("ann", "", holdfast.Cancel{ReservationID: running}), holdfast.AlreadyEnded)
	if told.Reservation == nil || told.Reservation.State != holdfast.Committed || told.Reservation.Used != 7 {
		t.Errorf("cancel is told %s", inJSON(told.Reservation))
	}
	w.expectCredits(23, 0, 7)
}

// Case 59: the answer to a command in doubt is its own answer, told again, not a replay.
func TestACommandsOwnRetryIsNotAReplay(t *testing.T) {
	w := funded(t, 100, 5, 10)
	command := w.command("ann", "m1", holdfast.Reserve{Feature: "work"})
	first := w.submit(command)
	again := w.submit(command)
	if again.Replayed || !reflect.DeepEqual(again.Outcome, first.Outcome) {
		t.Errorf("its own retry is told %s, first %s", inJSON(again.Outcome), inJSON(first.Outcome))
	}
	command.ID = commandID(1 << 20)
	if other := w.submit(command); !other.Replayed || other.Reservation.ID != first.Reservation.ID {
		t.Error("another delivery under the same key is not told that it is a replay")
	}
	start := w.command("ann", "", holdfast.Start{ReservationID: first.Reservation.ID, Worker: "w", Token: "t"})
	w.expect(w.submit(start), "")
	if retried := w.expect(w.submit(start), ""); retried.Lease.Token != "t" || retried.Reservation.Attempts != 1 {
		t.Errorf("a start that is decided again: token %q, attempt %d", retried.Lease.Token, retried.Reservation.Attempts)
	}
	w.expectCredits(95, 5, 0)
}

// Case 63.
func TestAClockThatStepsBackGivesNothingAndTakesNothing(t *testing.T) {
	for _, step := range []time.Duration{-time.Second, -time.Hour, -48 * time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			w := newWorld(t)
			reserve := func(key string) result {
				return w.do("ann", key, holdfast.Reserve{Feature: "text.improve", Quantity: 3})
			}
			w.expect(reserve("m1"), "")
			w.expect(w.do("ann", "", holdfast.Commit{ReservationID: w.stored("ann").reservations[0].ID}), "")
			decided := w.now
			w.now = decided.Add(step)
			w.expect(reserve("m2"), holdfast.Insufficient)
			if n := len(w.stored("ann").grants); n != 1 {
				t.Errorf("the step opened a window: %d", n)
			}
			if got := w.stored("ann").account.DecidedAt; got.Before(decided) {
				t.Errorf("the account was decided at %s, before %s", got, decided)
			}
			w.now = decided.Add(24*time.Hour - time.Second)
			w.expect(reserve("m3"), holdfast.Insufficient)
			w.now = decided.Add(24 * time.Hour)
			w.expect(reserve("m4"), "")
			w.now = w.now.Add(step) // the sweeper of a server whose clock is behind finds nothing yet, and later it does
			w.expect(w.do("ann", "", holdfast.Expire{}), "")
			w.now = w.now.Add(-step).Add(5 * time.Minute)
			if got := w.expect(w.do("ann", "", holdfast.Expire{}), ""); !got.Changed {
				t.Error("the sweeper ended nothing")
			}
		})
	}
}

// Case 65.
func TestHostileNamesAndKeysAreInvalidAndChangeNothing(t *testing.T) {
	w := newWorld(t)
	reserve := holdfast.Reserve{Feature: "text.improve"}
	for _, name := range []string{
		"", " ", "ann ", "a b", "a\x00b", "a\nb", "a\u0085b", "a\u00a0b", "a/b", "a%2Fb", "a?b", "a#b", "\xff\xfe", strings.Repeat("a", holdfast.MaxNameBytes+1),
	} {
		w.expectProblem(w.do(name, "k", reserve), "account")
		if holdfast.ValidName(name) {
			t.Errorf("%q passes for a name", name)
		}
	}
	for _, key := range []string{
		"", " ", "\t\u00a0 ", "a\x00b", "\xc3\x28", strings.Repeat("k", holdfast.MaxKeyBytes+1), strings.Repeat("k", 10_000),
	} {
		w.expectProblem(w.do("ann", key, reserve), "key")
	}
	if len(w.records) != 0 {
		t.Fatalf("%d accounts were made", len(w.records))
	}
	for _, name := range []string{"ann", "Ann", "telegram:42", "e\u0301", "\u00e9", strings.Repeat("a", holdfast.MaxNameBytes)} {
		w.expect(w.do(name, "k", reserve), "")
	}
	for _, key := range []string{"k2", "K", "e\u0301", "\u00e9", strings.Repeat("k", holdfast.MaxKeyBytes)} {
		if got := w.do("ann", key, reserve); got.Replayed || got.Reason == holdfast.KeyReused {
			t.Errorf("key %q is taken for another one", key)
		}
	}
	if len(w.records) != 6 {
		t.Errorf("%d accounts, want one for each name that differs in a byte", len(w.records))
	}
}

// Case 65, for everything else that a person may write.
func TestHostileWordsAreInvalidAndNamed(t *testing.T) {
	w := funded(t, 100, 5, 10)
	id := w.work("m1")
	long := strings.Repeat("x", 10_000)
	many := map[string]string{}
	kinds := map[string]holdfast.Amount{}
	for i := range 100 {
		many[fmt.Sprint(i)] = "x"
		kinds[fmt.Sprintf("k%d", i)] = 1
	}
	for _, test := range []struct {
		field string
		op    holdfast.Operation
	}{
		{"feature", holdfast.Reserve{Feature: ""}},
		{"feature", holdfast.Reserve{Feature: "work\x00"}},
		{"feature", holdfast.Reserve{Feature: "Work"}},
		{"feature", holdfast.Reserve{Feature: long}},
		{"feature", holdfast.Reserve{Feature: "no.such"}},
		{"surface", holdfast.Reserve{Feature: "work", Surface: "no/such"}},
		{"surface", holdfast.Reserve{Feature: "work", Surface: "nosuch"}},
		{"ttl_seconds", holdfast.Reserve{Feature: "work", TTL: time.Millisecond}},
		{"ttl_seconds", holdfast.Reserve{Feature: "work", TTL: -time.Second}},
		{"ttl_seconds", holdfast.Reserve{Feature: "work", TTL: holdfast.MaxTTL + 1}},
		{"metadata", holdfast.Reserve{Feature: "work", Metadata: many}},
		{"metadata", holdfast.Reserve{Feature: "work", Metadata: map[string]string{"": "x"}}},
		{"metadata", holdfast.Reserve{Feature: "work", Metadata: map[string]string{"a\nb": "x"}}},
		{"metadata", holdfast.Reserve{Feature: "work", Metadata: map[string]string{"a": "x\x00"}}},
		{"metadata", holdfast.Reserve{Feature: "work", Metadata: map[string]string{"a": "\xff"}}},
		{"metadata", holdfast.Reserve{Feature: "work", Metadata: map[string]string{"a": long}}},
		{"usage", holdfast.Reserve{Feature: "work", Usage: kinds}},
		{"usage", holdfast.Reserve{Feature: "work", Usage: map[string]holdfast.Amount{"Tok": 1}}},
		{"unit", holdfast.AddGrant{Unit: "", Amount: 1}},
		{"unit", holdfast.AddGrant{Unit: "nosuch", Amount: 1}},
		{"source", holdfast.AddGrant{Unit: "credit", Amount: 1, Source: "rollover"}},
		{"priority", holdfast.AddGrant{Unit: "credit", Amount: 1, Priority: pointer(holdfast.MaxGrantPriority + 1)}},
		{"features", holdfast.AddGrant{Unit: "credit", Amount: 1, Features: slices.Repeat([]string{"work"}, holdfast.MaxGrantFeatures+1)}},
		{"features[0]", holdfast.AddGrant{Unit: "credit", Amount: 1, Features: []string{"nosuch"}}},
		{"reason", holdfast.AddGrant{Unit: "credit", Amount: 1, Reason: long}},
		{"reason", holdfast.AddGrant{Unit: "credit", Amount: 1, Reason: "a\x1bb"}},
		{"reason", holdfast.Adjust{Unit: "credit", Amount: 1, Reason: "  "}},
		{"reason", holdfast.Refund{ReservationID: id, Reason: long}},
		{"reason", holdfast.Force{ReservationID: id, End: holdfast.EndRelease}},
		{"end", holdfast.Force{ReservationID: id, Reason: "why"}},
		{"ended_pockets", holdfast.Refund{ReservationID: id, Ended: "keep"}},
		{"cause", holdfast.Release{ReservationID: id, Cause: "Because!"}},
		{"lease_token", holdfast.Release{ReservationID: id, LeaseToken: long}},
		{"lease_token", holdfast.Commit{ReservationID: id, LeaseToken: "a\x00"}},
		{"lease_token", holdfast.Heartbeat{ReservationID: id, LeaseToken: "\xff"}},
		{"worker", holdfast.Start{ReservationID: id, Worker: long, Token: "t"}},
		{"lease_seconds", holdfast.Start{ReservationID: id, Lease: time.Second, Token: "t"}},
		{"lease_seconds", holdfast.Heartbeat{ReservationID: id, Lease: holdfast.MaxLease + 1}},
		{"plan", holdfast.SetPlan{Plan: ""}},
		{"plan", holdfast.SetPlan{Plan: "nosuch"}},
		{"language", holdfast.PutAccount{Language: pointer("ру")}},
		{"time_zone", holdfast.PutAccount{TimeZone: pointer("Europe/\x00")}},
		{"metadata", holdfast.PutAccount{Metadata: many}},
	} {
		w.expectProblem(w.do("ann", "k", test.op), test.field)
	}
	w.expectCredits(95, 5, 0)
}

// Every problem is reported, not only the first.
func TestAllProblemsOfARequestAreNamedAtOnce(t *testing.T) {
	w := newWorld(t)
	got := w.do("a b", " ", holdfast.AddGrant{Unit: "?", Amount: -1, Source: "gift", Reason: "a\x00b", EndsAt: theMorning, StartsAt: theMorning})
	w.expect(got, holdfast.Invalid)
	var fields []string
	for _, p := range got.Problems {
		fields = append(fields, p.Field)
	}
	want := []string{"account", "key", "unit", "amount", "source", "ends_at", "reason"}
	if !slices.Equal(fields, want) {
		t.Errorf("problems with %v, want %v", fields, want)
	}
}

// Case 67.
func TestACommitBelongsToTheWindowOfItsReserve(t *testing.T) {
	w := newWorld(t)
	first := w.expect(w.do("ann", "m1", holdfast.Reserve{Feature: "text.improve", Quantity: 2, TTL: time.Hour}), "")
	window := first.Reservation.Allocations[0].Grant
	w.now = w.now.Add(24 * time.Hour)
	w.expect(w.do("ann", "c1", holdfast.Commit{ReservationID: first.Reservation.ID, Amount: pointer(holdfast.Amount(1))}), "")
	w.expect(w.do("ann", "c1", holdfast.Commit{ReservationID: first.Reservation.ID, Amount: pointer(holdfast.Amount(1))}), "") // twice is once
	w.expect(w.do("ann", "m2", holdfast.Reserve{Feature: "text.improve", Quantity: 3}), "")
	for _, g := range w.stored("ann").grants {
		want := [3]holdfast.Amount{3, 0, 0} // the new window: reserved, used, voided
		if g.ID == window {
			want = [3]holdfast.Amount{0, 1, 2}
		}
		if got := [3]holdfast.Amount{g.Reserved, g.Used, g.Voided}; got != want {
			t.Errorf("window from %s: reserved, used, voided are %v, want %v", g.StartsAt, got, want)
		}
	}
}

// Case 31, and rule 12 of the invariants: an account's sum is exact for every JSON reader, with what its plan may add, and
// also after refunds.
func TestAnAccountsSumStaysExact(t *testing.T) {
	w := newWorld(t)
	add := func(key string, amount holdfast.Amount) holdfast.Outcome {
		return w.submit(w.command("ann", key, holdfast.AddGrant{Unit: "credit", Amount: amount, Source: holdfast.FromPurchase})).Outcome
	}
	w.submit(w.command("ann", "", holdfast.PutAccount{}))
	most := holdfast.MaxAmount - 300 // a plan of the catalog gives 300
	if got := add("g1", most+1); got.Reason != holdfast.Invalid || got.Problems[0].Field != "amount" {
		t.Fatalf("beyond: %q %v", got.Reason, got.Problems)
	}
	if got := add("g2", most); got.Refused() {
		t.Fatalf("the most: %q %v", got.Reason, got.Problems)
	}
	if got := add("g3", 1); got.Reason != holdfast.Invalid {
		t.Fatalf("one more: %q", got.Reason)
	}
	quantity := most / 5 // 3 of it from the allowance, the rest from what was bought
	r := w.submit(w.command("ann", "m1", holdfast.Reserve{Feature: "image.generate", Quantity: quantity})).Outcome
	if r.Refused() {
		t.Fatalf("reserve: %q %v", r.Reason, r.Problems)
	}
	w.submit(w.command("ann", "", holdfast.Commit{ReservationID: r.Reservation.ID}))
	if got := add("g4", quantity*5-3); got.Refused() {
		t.Fatalf("what was spent makes room: %q", got.Reason)
	}
	back := holdfast.Amount(1000)
	if got := w.submit(w.command("ann", "b1", holdfast.Refund{ReservationID: r.Reservation.ID, Amount: &back})).Outcome; got.Reason != holdfast.Invalid {
		t.Fatalf("a refund beyond: %q", got.Reason)
	}
}

// byUsage sells one thing for what its rates come to, in the smallest step of a credit, and gives nothing by itself.
func byUsage(per holdfast.Amount, rates map[string]holdfast.Amount, policies holdfast.Policies) *holdfast.Catalog {
	catalog := oneUnitCatalog(1, 10)
	catalog.Features[0].Prices = []holdfast.Price{{Unit: "credit", Per: per, Rates: rates}}
	catalog.Features[0].Policies = policies
	return catalog
}

// cost is what a charge of the usage takes.
func (w *world) cost(key string, usage map[string]holdfast.Amount) holdfast.Amount {
	w.Helper()
	return w.expect(w.do("ann", key, holdfast.Charge{Reserve: holdfast.Reserve{Feature: "work", Usage: usage}}), "").Reservation.Used
}

// Case 5: what was cached is a kind of its own, and no token is charged at two rates. Credits are billionths of a dollar,
// rates are per million tokens.
func TestCachedTokensAreChargedOnceAtTheirOwnRate(t *testing.T) {
	for _, test := range []struct {
		name  string
		rates map[string]holdfast.Amount
		usage map[string]holdfast.Amount
		want  holdfast.Amount
	}{
		{
			name:  "a prompt of 27,147 of which 27,146 were cached",
			rates: map[string]holdfast.Amount{"input_token": 1_400_000_000, "cached_token": 260_000_000, "output_token": 4_400_000_000},
			usage: map[string]holdfast.Amount{"input_token": 1, "cached_token": 27_146, "output_token": 351},
			want:  8_603_760,
		},
		{
			name:  "a cache that was written",
			rates: map[string]holdfast.Amount{"input_token": 3_000_000_000, "cache_write_token": 3_750_000_000, "output_token": 15_000_000_000},
			usage: map[string]holdfast.Amount{"input_token": 3, "cache_write_token": 12_304, "output_token": 550},
			want:  54_399_000,
		},
		{
			name:  "a prompt of 262,960 of which 257,955 were cached: 161,221.875 and the rest, rounded up once",
			rates: map[string]holdfast.Amount{"input_token": 1_250_000, "cached_token": 625_000, "output_token": 10_000_000}, // millionths
			usage: map[string]holdfast.Amount{"input_token": 5_005, "cached_token": 257_955, "output_token": 1_744},
			want:  184_919,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := funded(t, 1_000_000_000, 1, 10)
			w.catalog = byUsage(1_000_000, test.rates, holdfast.Policies{})
			if got := w.cost("c1", test.usage); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
}

// Case 6: kinds are disjoint, so their counts add up to what the provider counted in all.
func TestReasoningTokensAreCountedOnce(t *testing.T) {
	w := funded(t, 100_000, 1, 10)
	w.catalog = byUsage(1, map[string]holdfast.Amount{"input_token": 1, "output_token": 1, "reasoning_token": 1}, holdfast.Policies{})
	for key, test := range map[string]struct {
		usage map[string]holdfast.Amount
		want  holdfast.Amount
	}{
		"136 out, 31 of them reasoning":  {map[string]holdfast.Amount{"input_token": 51, "output_token": 105, "reasoning_token": 31}, 187},
		"1,031 in all, 5 of them to see": {map[string]holdfast.Amount{"input_token": 65, "output_token": 5, "reasoning_token": 961}, 1031},
		"reasoning beside the answer":    {map[string]holdfast.Amount{"output_token": 1, "reasoning_token": 375}, 376},
		"1,000 out and 50 reasoning":     {map[string]holdfast.Amount{"output_token": 1000, "reasoning_token": 50}, 1050},
	} {
		if got := w.cost(key, test.usage); got != test.want {
			t.Errorf("%s: %d, want %d", key, got, test.want)
		}
	}
}

// Case 18: totals that run on are bounds of the whole, and never added up; one that falls changes nothing. The commit is
// one figure, however often it is told.
func TestRunningTotalsAreNeverAddedUp(t *testing.T) {
	w := funded(t, 1000, 1, 10)
	w.catalog = byUsage(1, map[string]holdfast.Amount{"output_token": 1}, holdfast.Policies{})
	total := func(n holdfast.Amount) map[string]holdfast.Amount {
		return map[string]holdfast.Amount{"output_token": n}
	}
	id := w.expect(w.do("ann", "m1", holdfast.Reserve{Feature: "work", Usage: total(10)}), "").Reservation.ID
	for range 50 { // chunks that repeat the same total
		if got := w.expect(w.do("ann", "", holdfast.Extend{ReservationID: id, Usage: total(10)}), ""); got.Changed {
			t.Fatal("a total that did not grow changed something")
		}
	}
	w.expectCredits(990, 10, 0)
	for _, n := range []holdfast.Amount{266, 282, 298, 310, 298} {
		w.expect(w.do("ann", "", holdfast.Extend{ReservationID: id, Usage: total(n)}), "")
	}
	w.expectCredits(690, 310, 0)
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: id, Usage: total(310)}), "")
	if again := w.expect(w.do("ann", "", holdfast.Commit{ReservationID: id, Usage: total(310)}), ""); again.Changed {
		t.Error("the last total was charged twice")
	}
	w.expectCredits(690, 0, 310)
}

// Case 19: several of a thing, more of it than was asked for, and other kinds of it in one call.
func TestEveryKindAndEveryPieceIsCountedOnce(t *testing.T) {
	t.Run("three at 0.20", func(t *testing.T) {
		w := funded(t, 100, 20, 10)
		got := w.expect(w.do("ann", "c1", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "work", Quantity: 3}}), "")
		if got.Reservation.Used != 60 {
			t.Errorf("used %d, want 60, neither 20 nor 180", got.Reservation.Used)
		}
	})
	for policy, want := range map[holdfast.Overrun][2]holdfast.Amount{holdfast.OverrunCap: {20, 140}, holdfast.OverrunExtend: {100, 60}} {
		t.Run("one was asked for and eight came, by "+string(policy), func(t *testing.T) {
			w := funded(t, 100, 20, 10)
			w.catalog.Features[0].Policies.Overrun = policy
			id := w.work("m1")
			got := w.expect(w.do("ann", "", holdfast.Commit{ReservationID: id, Quantity: pointer(holdfast.Amount(8))}), "").Reservation
			if got.Used != want[0] || got.Unbilled != want[1] {
				t.Errorf("used %d, unbilled %d, want %v", got.Used, got.Unbilled, want)
			}
		})
	}
	t.Run("a picture and sound within a chat", func(t *testing.T) {
		w := funded(t, 100_000, 1, 10)
		w.catalog = byUsage(1000, map[string]holdfast.Amount{"output_token": 4, "audio_token": 20, "image": 40_000}, holdfast.Policies{})
		if got := w.cost("c1", map[string]holdfast.Amount{"output_token": 38, "audio_token": 47, "image": 1}); got != 42 { // 0.152 + 0.94 + 40
			t.Errorf("used %d, want 42", got)
		}
	})
}

// Cases 21 and 31, for usage: what is no count is named and moves nothing, and neither sums nor products overflow.
func TestHostileUsageIsInvalidAndMovesNothing(t *testing.T) {
	w := funded(t, 100, 1, 10)
	w.catalog = byUsage(1, map[string]holdfast.Amount{"in": holdfast.MaxAmount, "out": holdfast.MaxAmount}, holdfast.Policies{})
	for _, n := range []holdfast.Amount{-1, -1_000_000, holdfast.MaxAmount + 1, math.MaxInt64, math.MinInt64} {
		w.expectProblem(w.do("ann", "k", holdfast.Reserve{Feature: "work", Usage: map[string]holdfast.Amount{"in": n}}), "usage.in")
		w.expectProblem(w.do("ann", "k", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "work", Usage: map[string]holdfast.Amount{"in": n}}}), "usage.in")
	}
	many := map[string]holdfast.Amount{}
	for i := range holdfast.MaxUsageKinds {
		many[fmt.Sprintf("k%d", i)] = holdfast.MaxAmount
	}
	many["in"] = holdfast.MaxAmount
	delete(many, "k0")
	for _, usage := range []map[string]holdfast.Amount{{"in": 2}, {"in": 1, "out": 1}, {"in": holdfast.MaxAmount, "out": holdfast.MaxAmount}, many} {
		w.expectProblem(w.do("ann", "k", holdfast.Reserve{Feature: "work", Usage: usage}), "usage")
	}
	w.expect(w.do("ann", "k", holdfast.Reserve{Feature: "work", Usage: map[string]holdfast.Amount{"in": 1}}), holdfast.Insufficient)
	id := w.expect(w.do("ann", "m1", holdfast.Reserve{Feature: "work", Usage: map[string]holdfast.Amount{"in": 0}}), "").Reservation.ID
	w.expectProblem(w.do("ann", "", holdfast.Commit{ReservationID: id, Usage: map[string]holdfast.Amount{"in": 2}}), "usage")
	w.expectProblem(w.do("ann", "", holdfast.Extend{ReservationID: id, Usage: map[string]holdfast.Amount{"out": 2}}), "usage")
	w.expectProblem(w.do("ann", "", holdfast.Commit{ReservationID: id, Usage: map[string]holdfast.Amount{}}), "usage")
	w.expectCredits(100, 0, 0)

	// The largest rates over the largest counts that still fit come to the exact sum.
	w.catalog = byUsage(holdfast.MaxAmount, map[string]holdfast.Amount{"in": holdfast.MaxAmount, "out": holdfast.MaxAmount}, holdfast.Policies{})
	if got := w.cost("c1", map[string]holdfast.Amount{"in": 40, "out": 60}); got != 100 {
		t.Errorf("charged %d, want 100", got)
	}
}

// Case 31: what is owed stays within the largest amount, and is never a negative balance.
func TestADebtStaysWithinTheLargestAmount(t *testing.T) {
	w := funded(t, 1, 1, 10)
	w.catalog.Features[0].Policies.Overrun = holdfast.OverrunDebt
	w.catalog.Plans[0].DebtLimits = map[string]holdfast.Amount{"credit": holdfast.MaxAmount}
	for i, want := range []holdfast.Amount{holdfast.MaxAmount - 1, 1} {
		if i > 0 {
			w.expect(w.do("ann", fmt.Sprintf("g%d", i), holdfast.AddGrant{Unit: "credit", Amount: 1}), "")
		}
		got := w.expect(w.do("ann", fmt.Sprintf("c%d", i), holdfast.Charge{Reserve: holdfast.Reserve{Feature: "work"}, Amount: pointer(holdfast.MaxAmount)}), "")
		if got.Reservation.Debt != want || got.Balance.Available != 0 {
			t.Errorf("owes %d more, %d available, want %d and 0", got.Reservation.Debt, got.Balance.Available, want)
		}
	}
	w.expect(w.do("ann", "bought", holdfast.AddGrant{Unit: "credit", Amount: holdfast.MaxAmount, Source: holdfast.FromPurchase}), holdfast.KeyReused)
	got := w.expect(w.do("ann", "more", holdfast.AddGrant{Unit: "credit", Amount: holdfast.MaxAmount, Source: holdfast.FromPurchase}), "")
	if got.Balance.Debt != 0 || got.Balance.Available != 0 {
		t.Errorf("owes %d, has %d", got.Balance.Debt, got.Balance.Available)
	}
}

// Case 56: asked to stop and finishing at the same time, in either order.
func TestARequestToStopAndTheEndOfTheWorkExcludeEachOther(t *testing.T) {
	w := funded(t, 30, 10, 10)
	w.catalog.Features[0].Policies.CancelRunning = holdfast.CancelRequest
	begin := func(key string) holdfast.ID {
		id := w.work(key)
		w.expect(w.do("ann", "", holdfast.Start{ReservationID: id, Worker: "w", Token: "t"}), "")
		return id
	}
	asked := begin("m1")
	told := w.expect(w.do("ann", "", holdfast.Cancel{ReservationID: asked}), "")
	if told.Reservation.State != holdfast.Running || told.Reservation.CancelRequestedAt.IsZero() {
		t.Errorf("while tokens burn it is said to be %s", told.Reservation.State)
	}
	w.expectCredits(20, 10, 0)
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: asked, LeaseToken: "t", Amount: pointer(holdfast.Amount(7))}), "")
	w.expectCredits(23, 0, 7)

	finished := begin("m2")
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: finished, LeaseToken: "t", Amount: pointer(holdfast.Amount(7))}), "")
	w.expect(w.do("ann", "", holdfast.Cancel{ReservationID: finished}), holdfast.AlreadyEnded)
	w.expectCredits(16, 0, 14)
}

// Case 12: nothing counts as spent before its result is known, and what is held is shown apart.
func TestWorkInDoubtIsHeldAndNotSpent(t *testing.T) {
	for _, test := range []struct {
		policy                     holdfast.InDoubtPolicy
		available, reserved, spent holdfast.Amount
	}{
		{holdfast.DoubtRelease, 10, 0, 0},
		{holdfast.DoubtCharge, 9, 0, 1},
	} {
		w := funded(t, 10, 1, 1)
		w.catalog.Features[0].Policies.InDoubt = test.policy
		id := w.work("m1")
		w.expect(w.do("ann", "", holdfast.Start{ReservationID: id, Worker: "w", Token: "t"}), "")
		w.expect(w.do("ann", "", holdfast.InDoubt{ReservationID: id, LeaseToken: "t"}), "")
		w.expectCredits(9, 1, 0)
		w.now = w.now.Add(15*time.Minute - time.Microsecond)
		w.expect(w.do("ann", "", holdfast.Expire{}), "")
		w.expectCredits(9, 1, 0)
		w.now = w.now.Add(time.Microsecond)
		w.expect(w.do("ann", "", holdfast.Expire{}), "")
		w.expectCredits(test.available, test.reserved, test.spent)
	}
}

// Case 35: the free model is down, and a paid one would take over. What was reserved for the free one pays for nothing else;
// the paid one is reserved at its own price before it is asked, or not asked.
func TestAFallbackThatCostsMoreIsReservedByItself(t *testing.T) {
	w := funded(t, 5, 5, 2)
	w.catalog.Features = append(w.catalog.Features, holdfast.Feature{
		Name: "gift", Prices: []holdfast.Price{{Unit: "credit", Amount: 5}}, LongestJob: 5 * time.Minute, TTL: 15 * time.Minute,
	})
	plan := &w.catalog.Plans[0]
	plan.Features, plan.FreeFeatures = append(plan.Features, "gift"), []string{"gift"}
	fallsBack := func(key string) (free holdfast.ID, paid result) {
		t.Helper()
		first := w.expect(w.do("ann", key+" free", holdfast.Reserve{Feature: "gift"}), "")
		return first.Reservation.ID, w.reserveWork(key + " paid")
	}
	free, paid := fallsBack("m1")
	w.expect(paid, "")
	w.expectCredits(0, 5, 0)
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: paid.Reservation.ID}), "") // at the price of the one that answered
	w.expect(w.do("ann", "", holdfast.Release{ReservationID: free, Cause: "provider_unavailable"}), "")
	w.expectCredits(0, 0, 5)

	free, paid = fallsBack("m2")
	w.expect(paid, holdfast.Insufficient)
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: free}), "") // the free one is back
	w.expectCredits(0, 0, 5)
}

// A growth that finds more overdue work in its way than is loaded at once is decided again, and no round takes anything twice.
func TestGrowthBehindManyOverdueOnesTakesOnce(t *testing.T) {
	w := funded(t, 300, 1, 1000)
	id := w.work("grows")
	for i := range 2*holdfast.MaxOverdue + 20 {
		w.expect(w.do("ann", fmt.Sprintf("m%d", i), holdfast.Reserve{Feature: "work", TTL: time.Minute}), "")
	}
	w.now = w.now.Add(time.Minute)
	got := w.expect(w.do("ann", "", holdfast.Extend{ReservationID: id, Quantity: pointer(holdfast.Amount(300))}), "")
	if len(got.saved) != 3 || got.Reservation.Reserved != 300 {
		t.Errorf("in %d rounds, %d reserved", len(got.saved), got.Reservation.Reserved)
	}
	w.expectCredits(0, 300, 0)
}

// What was asked to stop and is overdue makes room for a charge, in the same decision; so does what is in doubt.
func TestAChargeEndsWhatIsOverdueByItsOwnRules(t *testing.T) {
	w := funded(t, 3, 1, 10)
	w.catalog.Features[0].Policies = holdfast.Policies{CancelRunning: holdfast.CancelRequest, InDoubt: holdfast.DoubtCharge}
	var ids []holdfast.ID
	for _, key := range []string{"stopped", "doubted", "forgotten"} {
		id := w.work(key)
		ids = append(ids, id)
		w.expect(w.do("ann", "", holdfast.Start{ReservationID: id, Worker: "w", Token: "t"}), "")
	}
	w.expect(w.do("ann", "", holdfast.InDoubt{ReservationID: ids[1], LeaseToken: "t"}), "")
	w.now = w.now.Add(10 * time.Minute)
	w.expect(w.do("ann", "", holdfast.Cancel{ReservationID: ids[0]}), "")
	w.now = w.now.Add(5 * time.Minute)
	got := w.expect(w.do("ann", "c1", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "work", Quantity: 2}}), "")
	if got.Reservation.Used != 2 {
		t.Errorf("used %d", got.Reservation.Used)
	}
	for i, want := range []holdfast.ReservationState{holdfast.Released, holdfast.Committed, holdfast.Expired} {
		if state := w.stored("ann").reservation(ids[i]).State; state != want {
			t.Errorf("the %d. is %s, want %s", i+1, state, want)
		}
	}
	w.expectCredits(0, 0, 3)
}
