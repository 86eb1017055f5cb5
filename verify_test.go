package holdfast_test

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// busyRecord is an account that has seen everything: two pockets and a window, a live reservation, a charged one that was
// refunded in part, a released one, and one that expired and was charged late.
func busyRecord(t *testing.T) *record {
	t.Helper()
	w := newWorld(t)
	w.do("ann", "", holdfast.PutAccount{})
	w.do("ann", "bought", holdfast.AddGrant{Unit: "credit", Amount: 50, Source: holdfast.FromPurchase})
	w.do("ann", "gift", holdfast.AddGrant{Unit: "credit", Amount: 4, EndsAt: w.now.Add(10 * time.Minute)})
	reserve := func(key string) holdfast.ID {
		return w.expect(w.do("ann", key, holdfast.Reserve{Feature: "image.generate"}), "").Reservation.ID
	}
	charged := reserve("m1")
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: charged, Amount: pointer(holdfast.Amount(4))}), "")
	w.expect(w.do("ann", "r1", holdfast.Refund{ReservationID: charged, Amount: pointer(holdfast.Amount(2))}), "")
	w.expect(w.do("ann", "", holdfast.Release{ReservationID: reserve("m2")}), "")
	late := reserve("m3")
	w.now = w.now.Add(15 * time.Minute)
	w.expect(w.do("ann", "", holdfast.Expire{}), "")
	w.expect(w.do("ann", "", holdfast.Commit{ReservationID: late, Amount: pointer(holdfast.Amount(3))}), "")
	reserve("m4")
	return w.stored("ann")
}

func TestVerifyFindsEveryNumberThatIsWrong(t *testing.T) {
	entry := func(stored *record, kind holdfast.EntryKind) *holdfast.Entry {
		i := slices.IndexFunc(stored.entries, func(e holdfast.Entry) bool { return e.Kind == kind })
		return &stored.entries[i]
	}
	bought := func(stored *record) *holdfast.Grant { return stored.grants[0] }
	last := func(stored *record) *holdfast.Reservation { return stored.reservations[len(stored.reservations)-1] }
	for name, damage := range map[string]func(stored *record){
		"a grant's granted":                  func(s *record) { bought(s).Granted++ },
		"a grant's reserved":                 func(s *record) { bought(s).Reserved++ },
		"a grant's used":                     func(s *record) { bought(s).Used++ },
		"a grant's voided":                   func(s *record) { bought(s).Voided++ },
		"a grant below zero":                 func(s *record) { bought(s).Used = -1 },
		"more used than granted":             func(s *record) { bought(s).Used = 1000 },
		"a closed grant that holds":          func(s *record) { bought(s).Reserved, bought(s).Open = 2, false },
		"a grant that is not there":          func(s *record) { s.grants = s.grants[1:] },
		"the slots":                          func(s *record) { s.account.Active++ },
		"the number of entries":              func(s *record) { s.account.LastEntry++ },
		"an entry that is missing":           func(s *record) { s.entries = slices.Delete(s.entries, 2, 3) },
		"the last entry missing":             func(s *record) { s.entries = s.entries[:len(s.entries)-1] },
		"an entry twice":                     func(s *record) { s.entries = append(s.entries, s.entries[len(s.entries)-1]) },
		"an entry's number":                  func(s *record) { s.entries[3].No = 77 },
		"what an entry granted":              func(s *record) { entry(s, holdfast.EntryGrant).Deltas[0].Granted++ },
		"what an entry reserved":             func(s *record) { entry(s, holdfast.EntryReserve).Deltas[0].Reserved++ },
		"what an entry used":                 func(s *record) { entry(s, holdfast.EntryCommit).Deltas[0].Used++ },
		"what an entry voided":               func(s *record) { entry(s, holdfast.EntryVoid).Deltas[0].Voided++ },
		"whose grant an entry changed":       func(s *record) { entry(s, holdfast.EntryReserve).Deltas[0].Grant = commandID(7) },
		"an entry's unit":                    func(s *record) { entry(s, holdfast.EntryReserve).Unit = "image" },
		"what was reserved after an entry":   func(s *record) { entry(s, holdfast.EntryReserve).Reserved++ },
		"a reservation that is missing":      func(s *record) { s.reservations = s.reservations[:len(s.reservations)-1] },
		"a reservation twice":                func(s *record) { s.reservations = append(s.reservations, last(s)) },
		"what a reservation holds":           func(s *record) { last(s).Reserved++ },
		"what a reservation took":            func(s *record) { last(s).Allocations[0].Reserved++; last(s).Reserved++ },
		"what a reservation used":            func(s *record) { s.reservations[0].Used++ },
		"what a reservation used of a grant": func(s *record) { s.reservations[0].Used--; s.reservations[0].Allocations[0].Used-- },
		"what was used late":                 func(s *record) { s.reservations[2].LateUsed++ },
		"what was refunded":                  func(s *record) { s.reservations[0].Refunded++ },
		"what is unbilled":                   func(s *record) { s.reservations[0].Unbilled = -1 },
		"a live reservation that has ended":  func(s *record) { last(s).EndedAt = theMorning },
		"an ended reservation that has not":  func(s *record) { s.reservations[0].EndedAt = time.Time{} },
		"a live one said to be released":     func(s *record) { last(s).State, last(s).EndedAt = holdfast.Released, theMorning },
		"a charge in the grant and its entry only": func(s *record) {
			bought(s).Used++
			e := entry(s, holdfast.EntryReserve)
			e.Deltas = append(e.Deltas, holdfast.Delta{Grant: bought(s).ID, Used: 1})
		},
		"a hold in the grant and its entry only": func(s *record) {
			bought(s).Reserved++
			for i := range s.entries {
				s.entries[i].Reserved++
			}
			s.entries[0].Deltas = append(s.entries[0].Deltas, holdfast.Delta{Grant: bought(s).ID, Reserved: 1})
		},
	} {
		t.Run(name, func(t *testing.T) {
			stored := busyRecord(t)
			damage(stored)
			differences, err := holdfast.Verify(&stored.account, stored.grants, each(stored.reservations), each(stored.entries))
			if err != nil || len(differences) == 0 {
				t.Errorf("nothing was found: %v", err)
			}
		})
	}
}

func TestVerifyTellsWhenItCouldNotRead(t *testing.T) {
	stored := busyRecord(t)
	if differences, err := holdfast.Verify(&stored.account, stored.grants, each(stored.reservations), each(stored.entries)); err != nil || len(differences) != 0 {
		t.Fatalf("an account in order: %v, %v", differences, err)
	}
	broken := errors.New("the disk is gone")
	if _, err := holdfast.Verify(&stored.account, stored.grants, failing[*holdfast.Reservation](broken), each(stored.entries)); !errors.Is(err, broken) {
		t.Errorf("reservations: %v", err)
	}
	if _, err := holdfast.Verify(&stored.account, stored.grants, each(stored.reservations), failing[holdfast.Entry](broken)); !errors.Is(err, broken) {
		t.Errorf("entries: %v", err)
	}
}

func failing[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var nothing T
		yield(nothing, err)
	}
}

// What the engine would see of a damaged account, before it decides anything.
func TestALoadedStateThatBreaksARuleIsFound(t *testing.T) {
	for _, test := range []struct {
		name, says string
		damage     func(s *holdfast.State)
	}{
		{"granted nothing", "do not fit", func(s *holdfast.State) { s.Grants[0].Granted = 0 }},
		{"granted too much", "do not fit", func(s *holdfast.State) { s.Grants[0].Granted = holdfast.MaxAmount + 1 }},
		{"reserved below zero", "do not fit", func(s *holdfast.State) { s.Grants[0].Reserved = -1 }},
		{"used below zero", "do not fit", func(s *holdfast.State) { s.Grants[0].Used = -1 }},
		{"voided below zero", "do not fit", func(s *holdfast.State) { s.Grants[0].Voided = -1 }},
		{"more than was granted", "do not fit", func(s *holdfast.State) { s.Grants[0].Voided = 50 }},
		{"twice the same grant", "is there twice", func(s *holdfast.State) { s.Grants = append(s.Grants, s.Grants[0]) }},
		{"closed and holding", "is closed with", func(s *holdfast.State) { s.Grants[0].Open = false }},
		{"a grant is missing", "is not loaded", func(s *holdfast.State) { s.Grants = nil }},
		{"holds more than its allocations", "do not fit its allocations", func(s *holdfast.State) { s.Reservations[0].Reserved++ }},
		{"used without an allocation", "do not fit its allocations", func(s *holdfast.State) { s.Reservations[0].Used = 1 }},
		{"refunded what was not used", "do not fit its allocations", func(s *holdfast.State) {
			s.Reservations[0].Refunded, s.Reservations[0].Allocations[0].Refunded = 1, 1
		}},
		{"a grant holds less than its reservations", "its live reservations", func(s *holdfast.State) { s.Grants[0].Reserved-- }},
		{"live and ended", "ended at", func(s *holdfast.State) { s.Reservations[0].EndedAt = theMorning }},
		{"fewer than no slots", "active reservations", func(s *holdfast.State) { s.Account.Active = -1 }},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := funded(t, 50, 5, 10)
			state := w.load(w.command("ann", "", holdfast.Commit{ReservationID: w.work("m1")}))
			if err := state.Check(); err != nil {
				t.Fatalf("in order: %v", err)
			}
			test.damage(state)
			if err := state.Check(); err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("said %v, want %q", err, test.says)
			}
		})
	}
}
