package storetest

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// TelegramStore is a store with what chat bots keep.
type TelegramStore interface {
	store.Telegram
	Close() error
}

// ExerciseTelegram proves what chat bots rely on. Each test opens a store of its own.
func ExerciseTelegram(t *testing.T, open func(t *testing.T) TelegramStore) {
	t.Helper()
	for _, test := range []struct {
		name string
		run  func(t *testing.T, s TelegramStore)
	}{
		{"an update is kept once, however low its id", keptOnce},
		{"updates of a line come one after the other, those of others beside them", lines},
		{"an update waits for its next attempt, and its line waits with it", nextAttempt},
		{"an update that was set aside lets its line go on", setAside},
		{"a claim that has lapsed settles nothing", lapsedClaim},
		{"a successor ends the claims that were left to it", endedClaims},
		{"an update can be claimed by whoever keeps it", claimedFromTheBeginning},
		{"updates that cannot be kept leave no trace", rejectedUpdates},
		{"several workers at once handle a line in its order, each update by one", workersAtOnce},
		{"the same update that comes at once is new to one", keepersAtOnce},
		{"ended updates are pruned by their age, those that wait never", prunedUpdates},
		{"one holder at a time leads a bot", leadingBot},
		{"notes are found by key and by prefix, and pruned by their age", notes},
		{"a closed store keeps no updates", closedTelegram},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func update(bot string, id int64, line string, received int) store.Update {
	return store.Update{Bot: bot, ID: id, Line: line, Raw: fmt.Sprintf(`{"update_id": %d}`, id), ReceivedAt: at(received)}
}

func keep(t *testing.T, s store.Telegram, updates ...store.Update) []bool {
	t.Helper()
	kept, err := s.KeepUpdates(t.Context(), updates)
	must(t, err)
	return kept
}

// claim takes what is due of bot "b".
func claim(t *testing.T, s store.Telegram, word string, now, until, limit int) []store.Update {
	t.Helper()
	claimed, err := s.ClaimUpdates(t.Context(), "b", word, at(now), at(until), limit)
	must(t, err)
	return claimed
}

func updateIDs(updates []store.Update) (ids []int64) {
	for _, u := range updates {
		ids = append(ids, u.ID)
	}
	return ids
}

// settleUpdate says what an update came to, as whoever claimed it.
func settleUpdate(t *testing.T, s store.Telegram, u store.Update, state store.UpdateState, now, next int, wanted bool) {
	t.Helper()
	settled := store.Settled{Bot: u.Bot, ID: u.ID, Line: u.Line, Claim: u.Claim, State: state, At: at(now)}
	if state == store.UpdateWaiting {
		settled.NextAt, settled.Problem = at(next), "no luck"
	}
	written, err := s.SettleUpdates(t.Context(), []store.Settled{settled})
	must(t, err)
	same(t, fmt.Sprintf("update %d settled", u.ID), written, []bool{wanted})
}

func keptOnce(t *testing.T, s TelegramStore) {
	same(t, "new", keep(t, s), nil)
	same(t, "new", keep(t, s, update("b", 1000, "ann", 1), update("b", 1001, "ann", 1)), []bool{true, true})
	same(t, "new", keep(t, s, update("b", 1001, "ann", 2), update("b", 3, "ann", 2), update("b", 3, "ann", 2)), []bool{false, true, false})
	same(t, "new to another bot", keep(t, s, update("c", 3, "ann", 3)), []bool{true})
	for _, wanted := range []int64{1000, 1001, 3} { // in the order in which they came
		claimed := claim(t, s, fmt.Sprint("w", wanted), 5, 9, 10)
		same(t, "the first update", updateIDs(claimed), []int64{wanted})
		settleUpdate(t, s, claimed[0], store.UpdateDone, 5, 0, true)
	}
	same(t, "new after it was done", keep(t, s, update("b", 1000, "ann", 9)), []bool{false})
	same(t, "what is left", claim(t, s, "w", 20, 30, 10), nil)
	counts, err := s.UpdateCounts(t.Context())
	must(t, err)
	same(t, "counts", counts, []store.UpdateCount{{Bot: "c", Waiting: 1, Oldest: at(3)}})
}

func lines(t *testing.T, s TelegramStore) {
	keep(t, s, update("b", 1, "ann", 1), update("b", 2, "bob", 1), update("b", 3, "ann", 1))
	keep(t, s, update("b", 4, "ann", 0)) // by a clock that is behind
	keep(t, s, update("b", 5, "eve", 30))
	first := claim(t, s, "w1", 10, 20, 10)
	wanted := []store.Update{update("b", 1, "ann", 1), update("b", 2, "bob", 1)}
	for i := range wanted {
		wanted[i].Attempts, wanted[i].Claim, wanted[i].ClaimedUntil = 1, "w1", at(20)
	}
	if len(first) == 2 && first[0].ID == 2 {
		first[0], first[1] = first[1], first[0] // both have waited as long
	}
	same(t, "the first of each line", first, wanted)
	same(t, "what another is given", claim(t, s, "w2", 19, 30, 10), nil)
	settleUpdate(t, s, first[0], store.UpdateDone, 11, 0, true)
	second := claim(t, s, "w3", 12, 22, 10)
	same(t, "the next of the line", updateIDs(second), []int64{3})
	settleUpdate(t, s, second[0], store.UpdateDone, 12, 0, true)
	third := claim(t, s, "w4", 12, 22, 10)
	same(t, "the last of the line", updateIDs(third), []int64{4})
	if !third[0].ReceivedAt.After(second[0].ReceivedAt) {
		t.Errorf("update 4 stands at %s, before the one at %s", third[0].ReceivedAt, second[0].ReceivedAt)
	}
	settleUpdate(t, s, first[1], store.UpdateDone, 12, 0, true)
	settleUpdate(t, s, third[0], store.UpdateDone, 12, 0, true)
	keep(t, s, update("b", 6, "ann", 13), update("b", 7, "bob", 12), update("b", 8, "eve", 14))
	same(t, "the longest due", updateIDs(claim(t, s, "w5", 40, 50, 2)), []int64{7, 6})
	same(t, "those beyond the limit", updateIDs(claim(t, s, "w6", 40, 50, 2)), []int64{5})
}

func nextAttempt(t *testing.T, s TelegramStore) {
	keep(t, s, update("b", 1, "ann", 1), update("b", 2, "ann", 2))
	claimed := claim(t, s, "w1", 3, 9, 1)
	settleUpdate(t, s, claimed[0], store.UpdateWaiting, 4, 8, true)
	same(t, "before its time", claim(t, s, "w2", 7, 9, 1), nil)
	again := claim(t, s, "w3", 8, 12, 1)
	same(t, "in its time", updateIDs(again), []int64{1})
	same(t, "the attempt", again[0].Attempts, 2)
	same(t, "its place", again[0].ReceivedAt, at(1))
	settleUpdate(t, s, claimed[0], store.UpdateDone, 9, 0, false)
	settleUpdate(t, s, again[0], store.UpdateDone, 9, 0, true)
	settleUpdate(t, s, again[0], store.UpdateDone, 9, 0, false)
	same(t, "the next", updateIDs(claim(t, s, "w4", 9, 12, 1)), []int64{2})
}

func setAside(t *testing.T, s TelegramStore) {
	keep(t, s, update("b", 1, "ann", 1), update("b", 2, "ann", 2))
	settleUpdate(t, s, claim(t, s, "w1", 3, 9, 1)[0], store.UpdateFailed, 4, 0, true)
	same(t, "the next", updateIDs(claim(t, s, "w2", 4, 9, 1)), []int64{2})
	counts, err := s.UpdateCounts(t.Context())
	must(t, err)
	same(t, "counts", counts, []store.UpdateCount{{Bot: "b", Waiting: 1, Failed: 1, Oldest: at(2)}})
	same(t, "new", keep(t, s, update("b", 1, "ann", 5)), []bool{false})
}

func lapsedClaim(t *testing.T, s TelegramStore) {
	prolong := func(u store.Update, until int, wanted bool) {
		t.Helper()
		held, err := s.ProlongClaim(t.Context(), u.Bot, u.Line, u.Claim, at(until))
		must(t, err)
		same(t, "the claim "+u.Claim+" is held", held, wanted)
	}
	keep(t, s, update("b", 1, "ann", 1), update("b", 2, "ann", 2))
	first := claim(t, s, "w1", 3, 9, 1)[0]
	prolong(first, 15, true)
	same(t, "what is prolonged", claim(t, s, "w2", 14, 20, 1), nil)
	second := claim(t, s, "w3", 15, 20, 1)
	same(t, "what has lapsed", updateIDs(second), []int64{1})
	same(t, "the attempt", second[0].Attempts, 2)
	prolong(first, 30, false)
	settleUpdate(t, s, first, store.UpdateDone, 16, 0, false)
	settleUpdate(t, s, first, store.UpdateWaiting, 16, 16, false)
	same(t, "what another has claimed", claim(t, s, "w4", 19, 25, 1), nil)
	settleUpdate(t, s, second[0], store.UpdateDone, 17, 0, true)
	third := claim(t, s, "w5", 18, 25, 1)
	same(t, "the next", updateIDs(third), []int64{2})
	settleUpdate(t, s, first, store.UpdateDone, 18, 0, false)
	// A claim that has lapsed, but that nobody else has taken, still counts.
	prolong(third[0], 20, true)
	settleUpdate(t, s, third[0], store.UpdateDone, 30, 0, true)
	prolong(third[0], 40, false)
}

func endedClaims(t *testing.T, s TelegramStore) {
	keep(t, s, update("b", 1, "ann", 1), update("b", 2, "bob", 2), update("b", 3, "eve", 3))
	left := claim(t, s, "old.1", 4, 90, 1)[0]
	claim(t, s, "new.1", 4, 90, 1)
	settleUpdate(t, s, claim(t, s, "old.2", 4, 90, 1)[0], store.UpdateWaiting, 5, 60, true)
	must(t, s.EndClaims(t.Context(), "c", "new.", at(6)))
	same(t, "what another bot's end makes due", claim(t, s, "new.2", 7, 90, 10), nil)
	must(t, s.EndClaims(t.Context(), "b", "new.", at(6)))
	taken := claim(t, s, "new.3", 7, 90, 10)
	same(t, "what the predecessor has left", updateIDs(taken), []int64{1})
	settleUpdate(t, s, left, store.UpdateDone, 8, 0, false)
	settleUpdate(t, s, taken[0], store.UpdateDone, 8, 0, true)
	same(t, "what waits for its next attempt", updateIDs(claim(t, s, "new.4", 60, 90, 10)), []int64{3})
}

func claimedFromTheBeginning(t *testing.T, s TelegramStore) {
	mine := update("b", 1, "query 1", 1)
	mine.Claim, mine.ClaimedUntil = "mine", at(10)
	same(t, "new", keep(t, s, mine), []bool{true})
	same(t, "what is claimed", claim(t, s, "w1", 9, 20, 10), nil)
	again := mine
	again.Claim, again.ClaimedUntil = "again", at(5)
	same(t, "new", keep(t, s, again), []bool{false})
	left := claim(t, s, "w2", 10, 20, 10)
	same(t, "what was left", updateIDs(left), []int64{1})
	same(t, "the attempt", left[0].Attempts, 2)
	settleUpdate(t, s, mine, store.UpdateDone, 11, 0, false)
	settleUpdate(t, s, left[0], store.UpdateDone, 11, 0, true)

	mine.ID, mine.Line, mine.Claim, mine.ClaimedUntil = 2, "query 2", "mine 2", at(20)
	keep(t, s, mine)
	settleUpdate(t, s, mine, store.UpdateDone, 12, 0, true)

	// A line that is there is not taken away from whoever handles it.
	keep(t, s, update("b", 3, "ann", 13))
	mine.ID, mine.Line, mine.Claim, mine.ClaimedUntil = 4, "ann", "mine 4", at(40)
	same(t, "new", keep(t, s, mine), []bool{true})
	first := claim(t, s, "w3", 14, 20, 10)
	same(t, "the first", updateIDs(first), []int64{3})
	settleUpdate(t, s, first[0], store.UpdateDone, 15, 0, true)
	second := claim(t, s, "w4", 16, 20, 10)
	same(t, "the second", updateIDs(second), []int64{4})
	same(t, "the attempt", second[0].Attempts, 1)
}

func rejectedUpdates(t *testing.T, s TelegramStore) {
	for _, change := range []func(u *store.Update){
		func(u *store.Update) { u.Bot = "" },
		func(u *store.Update) { u.Line = "" },
		func(u *store.Update) { u.Raw = "" },
		func(u *store.Update) { u.ReceivedAt = time.Time{} },
	} {
		wrong := update("b", 2, "bob", 1)
		change(&wrong)
		_, err := s.KeepUpdates(t.Context(), []store.Update{update("b", 1, "ann", 1), wrong})
		kind(t, err, store.Rejected)
	}
	same(t, "what was kept", claim(t, s, "w", 9, 10, 10), nil)
	same(t, "new", keep(t, s, update("b", 1, "ann", 1)), []bool{true})
	first := claim(t, s, "w2", 9, 10, 10)[0]
	_, err := s.SettleUpdates(t.Context(), []store.Settled{{Bot: "b", ID: 1, Line: "ann", Claim: first.Claim, State: "gone", At: at(9)}})
	kind(t, err, store.Rejected)
	settleUpdate(t, s, first, store.UpdateDone, 9, 0, true)
}

func workersAtOnce(t *testing.T, s TelegramStore) {
	const people, each, workers = 5, 6, 4
	var keeping, working sync.WaitGroup
	for n := range people {
		keeping.Go(func() {
			for i := range each {
				_, err := s.KeepUpdates(t.Context(), []store.Update{update("b", int64(100*n+i), fmt.Sprint("person", n), 0)})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	var mutex sync.Mutex
	seen, handled := map[string][]int64{}, 0
	begin := func(u store.Update) {
		mutex.Lock()
		defer mutex.Unlock()
		seen[u.Line] = append(seen[u.Line], u.ID)
		handled++
	}
	done := func() bool {
		mutex.Lock()
		defer mutex.Unlock()
		return handled == people*each
	}
	for n := range workers {
		working.Go(func() {
			for round := 0; !done() && !t.Failed(); round++ {
				claimed, err := s.ClaimUpdates(t.Context(), "b", fmt.Sprint("w", n, " ", round), at(1), at(100), 3)
				if err != nil {
					t.Error(err)
				}
				var settled []store.Settled
				for _, u := range claimed {
					begin(u)
					settled = append(settled, store.Settled{Bot: u.Bot, ID: u.ID, Line: u.Line, Claim: u.Claim, State: store.UpdateDone, At: at(2)})
				}
				written, err := s.SettleUpdates(t.Context(), settled)
				if err != nil || slices.Contains(written, false) {
					t.Errorf("settled %v, %v", written, err)
				}
			}
		})
	}
	keeping.Wait()
	working.Wait()
	for n := range people {
		var wanted []int64
		for i := range each {
			wanted = append(wanted, int64(100*n+i))
		}
		same(t, fmt.Sprint("what person", n, " was handled"), seen[fmt.Sprint("person", n)], wanted)
	}
}

func keepersAtOnce(t *testing.T, s TelegramStore) {
	const keepers = 6
	var keeping sync.WaitGroup
	isNew := make(chan int64, 100)
	for range keepers {
		keeping.Go(func() {
			batch := []store.Update{update("b", 1, "ann", 1), update("b", 2, "bob", 1), update("b", 3, "ann", 1)}
			kept, err := s.KeepUpdates(t.Context(), batch)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range kept {
				if kept[i] {
					isNew <- batch[i].ID
				}
			}
		})
	}
	keeping.Wait()
	close(isNew)
	times := map[int64]int{}
	for id := range isNew {
		times[id]++
	}
	same(t, "how often each was new", times, map[int64]int{1: 1, 2: 1, 3: 1})
}

func prunedUpdates(t *testing.T, s TelegramStore) {
	for n := range 4 {
		keep(t, s, update("b", int64(n), fmt.Sprint("person", n), n))
	}
	settleUpdate(t, s, claim(t, s, "w1", 9, 20, 1)[0], store.UpdateDone, 10, 0, true)
	settleUpdate(t, s, claim(t, s, "w2", 9, 20, 1)[0], store.UpdateFailed, 10, 0, true)
	settleUpdate(t, s, claim(t, s, "w3", 9, 20, 1)[0], store.UpdateDone, 10, 0, true)
	prune := func(done, failed, limit int, wanted int64) {
		t.Helper()
		pruned, err := s.PruneUpdates(t.Context(), at(done), at(failed), limit)
		must(t, err)
		same(t, "pruned", pruned, wanted)
	}
	prune(10, 10, 10, 0)
	prune(11, 10, 1, 1)
	prune(11, 10, 10, 1)
	same(t, "new", keep(t, s, update("b", 0, "person0", 30), update("b", 1, "person1", 30)), []bool{true, false})
	prune(11, 11, 10, 1)
	prune(1000, 1000, 10, 0)
	same(t, "what waits", updateIDs(claim(t, s, "w4", 40, 50, 10)), []int64{3, 0})
}

func leadingBot(t *testing.T, s TelegramStore) {
	lead := func(bot, holder string, now, until int, wanted bool) {
		t.Helper()
		leads, err := s.LeadBot(t.Context(), bot, holder, at(now), at(until))
		must(t, err)
		same(t, fmt.Sprintf("%s leads %s at %d", holder, bot, now), leads, wanted)
	}
	lead("b", "x", 0, 10, true)
	lead("b", "y", 5, 15, false)
	lead("c", "y", 5, 15, true)
	lead("b", "x", 9, 20, true)
	lead("b", "y", 19, 30, false)
	lead("b", "y", 20, 30, true)
	lead("b", "x", 21, 40, false)
	lead("b", "y", 22, 22, true) // given back
	lead("b", "x", 22, 40, true)
}

func notes(t *testing.T, s TelegramStore) {
	note := func(bot, key, value string, when int) store.Note {
		return store.Note{Bot: bot, Key: key, Value: value, At: at(when)}
	}
	find := func(bot, key string, wanted store.Note, known bool) {
		t.Helper()
		got, found, err := s.Note(t.Context(), bot, key)
		must(t, err)
		same(t, "known", found, known)
		same(t, "the note", got, wanted)
	}
	find("b", "status/1", store.Note{}, false)
	must(t, s.PutNote(t.Context(), note("b", "status/1", "one", 1)))
	must(t, s.PutNote(t.Context(), note("b", "status/1", "two", 2)))
	find("b", "status/1", note("b", "status/1", "two", 2), true)
	find("c", "status/1", store.Note{}, false)
	for i, wanted := range []bool{true, false} {
		added, err := s.AddNote(t.Context(), note("b", "status/2", fmt.Sprint(i), 3))
		must(t, err)
		same(t, "added", added, wanted)
	}
	find("b", "status/2", note("b", "status/2", "0", 3), true)
	for _, n := range []store.Note{note("b", "status", "", 4), note("b", "status/B", "", 5), note("b", "status/a", "", 5), note("b", "status/ё", "", 5), note("b", "statust", "", 5), note("c", "status/9", "", 5)} {
		must(t, s.PutNote(t.Context(), n))
	}
	list := func(prefix, after string, limit int, wanted ...string) {
		t.Helper()
		found, err := s.Notes(t.Context(), "b", prefix, after, limit)
		must(t, err)
		var keys []string
		for _, n := range found {
			keys = append(keys, n.Key)
		}
		same(t, "notes of "+prefix+" behind "+after, keys, wanted)
	}
	list("status/", "", 10, "status/1", "status/2", "status/B", "status/a", "status/ё")
	list("status/", "status/2", 2, "status/B", "status/a")
	list("status/", "status/ё", 2)
	list("", "", 10, "status", "status/1", "status/2", "status/B", "status/a", "status/ё", "statust")

	prune := func(prefix string, old, limit int, wanted int64) {
		t.Helper()
		pruned, err := s.PruneNotes(t.Context(), "b", prefix, at(old), limit)
		must(t, err)
		same(t, "pruned", pruned, wanted)
	}
	prune("status/", 2, 10, 0)
	prune("status/", 3, 10, 1)
	prune("status/", 9, 3, 3)
	prune("status/", 9, 3, 1)
	list("", "", 10, "status", "statust")
	for _, wanted := range []bool{true, false} {
		dropped, err := s.DropNote(t.Context(), "b", "statust")
		must(t, err)
		same(t, "dropped", dropped, wanted)
	}
	find("b", "statust", store.Note{}, false)
	kind(t, s.PutNote(t.Context(), note("b", "", "x", 1)), store.Rejected)
	kind(t, s.PutNote(t.Context(), note("", "k", "x", 1)), store.Rejected)
	kind(t, s.PutNote(t.Context(), store.Note{Bot: "b", Key: "k"}), store.Rejected)
	_, err := s.AddNote(t.Context(), note("b", "", "x", 1))
	kind(t, err, store.Rejected)
}

func closedTelegram(t *testing.T, s TelegramStore) {
	must(t, s.Close())
	_, err := s.KeepUpdates(t.Context(), []store.Update{update("b", 1, "ann", 1)})
	kind(t, err, store.Unavailable)
	_, err = s.ClaimUpdates(t.Context(), "b", "w", at(1), at(2), 1)
	kind(t, err, store.Unavailable)
	_, _, err = s.Note(t.Context(), "b", "k")
	kind(t, err, store.Unavailable)
}
