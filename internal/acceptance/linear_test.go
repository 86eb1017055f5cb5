package acceptance

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
)

// A history of concurrent calls on one account is right only if some order of them, each at an instant between its call
// and its answer, explains every answer (linearisability). The account is a number: what is available.

type act struct {
	grant  bool // else: adjust downwards
	amount int64
}

type seen struct {
	known     bool // false: the caller never heard; the call may have happened or not
	refused   bool
	available int64
}

// counter is the whole specification.
var counter = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, input, output any) (bool, any) {
		now, do, told := state.(int64), input.(act), output.(seen)
		after := now + do.amount
		possible := true
		if !do.grant {
			after = now - do.amount
			possible = after >= 0
		}
		switch {
		case !told.known && !possible:
			return true, now
		case !told.known:
			return true, after // that it never happened is a history in which it comes last
		case told.refused:
			return !possible && told.available == now, now
		}
		return possible && told.available == after, after
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%+v → %+v", input, output) },
}

func TestHistoriesUnderSIGKILLAreLinearisable(t *testing.T) {
	t.Run("one server on sqlite", func(t *testing.T) {
		db := database(t)
		linear(t, db, serve(t, db))
	})
	t.Run("one server on postgres", func(t *testing.T) {
		db := pgtest.NewEmpty(t)
		linear(t, db, serve(t, db))
	})
	t.Run("two servers on postgres", func(t *testing.T) {
		db := pgtest.NewEmpty(t)
		linear(t, db, serve(t, db), serve(t, db))
	})
}

// linear lets callers grant and take on one account, kills the first server in the middle, and checks the history. Whoever
// did not hear an answer repeats with the same key on whichever server lives, as a caller must; what they then hear is the
// recorded answer, and belongs to the first call.
func linear(t *testing.T, db string, servers ...*server) {
	servers[0].call("PUT", "/v1/accounts/shared", "", object{}).want(t, 200)
	// The free plan's allowance is taken away, so that the account begins at nothing.
	servers[0].call("POST", "/v1/accounts/shared/adjustments", "begin", object{"unit": "credit", "amount": -3, "reason": "begin"}).want(t, 201)
	var mu sync.Mutex
	var history []porcupine.Operation
	var living sync.RWMutex // guards servers[0], which is replaced
	began := time.Now()
	const callers, calls = 6, 25
	var wait sync.WaitGroup
	half := make(chan struct{})
	var once sync.Once
	for caller := range callers {
		random := rand.New(rand.NewPCG(1, uint64(caller)))
		wait.Go(func() {
			for n := range calls {
				if n == calls/2 {
					once.Do(func() { close(half) })
				}
				do := act{grant: random.IntN(2) == 0, amount: random.Int64N(5) + 1}
				path, body := "/v1/accounts/shared/grants", object{"unit": "credit", "amount": do.amount, "source": "purchase"}
				if !do.grant {
					path, body = "/v1/accounts/shared/adjustments", object{"unit": "credit", "amount": -do.amount, "reason": "taken"}
				}
				key := fmt.Sprintf("c%d-%d", caller, n)
				called := time.Since(began).Nanoseconds()
				var told seen
				for attempt := 0; !told.known && attempt < 200; attempt++ {
					living.RLock()
					s := servers[(caller+attempt)%len(servers)]
					living.RUnlock()
					told = hear(s.try("POST", path, key, body))
					if !told.known {
						time.Sleep(20 * time.Millisecond) // the server is being started again
					}
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: caller, Input: do, Call: called, Output: told, Return: time.Since(began).Nanoseconds()})
				mu.Unlock()
			}
		})
	}
	<-half
	servers[0].kill()
	fresh := serve(t, db)
	living.Lock()
	servers[0] = fresh
	living.Unlock()
	wait.Wait()
	result, _ := porcupine.CheckOperationsVerbose(counter, history, time.Minute)
	if result != porcupine.Ok {
		t.Errorf("%d calls: %s", len(history), result)
	}
	for _, operation := range history {
		if !operation.Output.(seen).known {
			t.Error("a caller never heard, though a server lives")
		}
	}
	verified(t, db)
}

func hear(r reply, err error) seen {
	switch {
	case err != nil || r.status >= 500:
		return seen{}
	case r.status == 402:
		return seen{known: true, refused: true, available: r.number("available")}
	}
	return seen{known: true, available: r.number("balance", "available")}
}

// A check that cannot fail proves nothing: two callers who both take the last unit.
func TestAHistoryInWhichAUnitIsTakenTwiceIsFound(t *testing.T) {
	operation := func(client int, do act, told seen, call, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: do, Output: told, Call: call, Return: end}
	}
	history := []porcupine.Operation{
		operation(0, act{grant: true, amount: 1}, seen{known: true, available: 1}, 0, 1),
		operation(1, act{amount: 1}, seen{known: true, available: 0}, 2, 5),
		operation(2, act{amount: 1}, seen{known: true, available: 0}, 3, 4),
	}
	if porcupine.CheckOperations(counter, history) {
		t.Error("one unit was taken twice, and the check agrees")
	}
	history[2].Output = seen{known: true, refused: true, available: 0}
	if !porcupine.CheckOperations(counter, history) {
		t.Error("the right history is refused")
	}
}
