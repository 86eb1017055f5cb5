package acceptance

import (
	"fmt"
	"sync"
	"testing"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
)

// A provider repeats what it got no answer to. Whatever was cut off by SIGKILL is granted once, refunds before their payment
// included, and what was answered stays so.
func TestPaymentsAndRefundsUnderSIGKILLHaveTheirEffectOnce(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) { killAmongPayments(t, database(t), 1) })
	t.Run("two processes on one PostgreSQL", func(t *testing.T) { killAmongPayments(t, pgtest.NewEmpty(t), 2) })
}

func killAmongPayments(t *testing.T, db string, processes int) {
	const payments = 40
	pay := func(s *server, i int) (reply, error) {
		return s.try("POST", "/v1/payments", "", object{
			"provider": "stars", "payment_id": name("c", i), "account": name("a", i%10), "product": "credits_100", "amount": 100, "currency": "XTR",
		})
	}
	refund := func(s *server, i int) (reply, error) {
		return s.try("POST", fmt.Sprintf("/v1/payments/stars/c%d/refunds", i), "", object{"refund_id": "r1", "amount": 40})
	}
	// Every payment comes twice, and every other one is refunded, all among each other.
	deliver := func(servers []*server, answered func(reply)) {
		each(12, func(sender int) {
			s := servers[sender%len(servers)]
			for i := range payments {
				send := pay
				if sender >= 8 {
					send = refund
				}
				if i%4 != sender%4 || sender >= 8 && i%2 == 1 {
					continue
				}
				r, err := send(s, i)
				if err != nil {
					return // the process was killed
				}
				answered(r)
			}
		})
	}
	serving := func() (servers []*server) {
		for range processes {
			servers = append(servers, serve(t, db))
		}
		return servers
	}

	servers := serving()
	enough := make(chan struct{})
	var some sync.Once
	killed := make(chan struct{})
	go func() {
		<-enough
		for _, s := range servers {
			s.kill()
		}
		close(killed)
	}()
	var mu sync.Mutex
	granted := 0
	deliver(servers, func(r reply) {
		mu.Lock()
		defer mu.Unlock()
		if r.status == 201 {
			granted++
		}
		if granted == payments/4 {
			some.Do(func() { close(enough) })
		}
	})
	some.Do(func() { close(enough) })
	<-killed
	if granted >= payments {
		t.Fatalf("%d calls had their effect: the process was killed too late", granted)
	}

	servers = serving()
	for range 2 {
		deliver(servers, func(r reply) {
			if r.status != 200 && r.status != 201 && r.status != 202 {
				t.Errorf("delivered again: %d %v", r.status, r.body)
			}
		})
	}
	s := servers[0]
	for i := range payments {
		r := s.call("GET", fmt.Sprintf("/v1/payments/stars/c%d", i), "", nil).want(t, 200)
		if want := int64(40 * (1 - i%2)); r.text("state") != "granted" || r.number("refunded") != want || r.number("revoked") != want {
			t.Errorf("payment %d: %v", i, r.body)
		}
	}
	for i := range 10 {
		r := s.call("GET", "/v1/accounts/"+name("a", i), "", nil).want(t, 200)
		// Four payments of 100 each, all refunded in part or none, and three a day that are free.
		want := 403 - 4*40*float64(1-i%2)
		if balance := r.body["balances"].([]any)[0].(object); balance["available"] != want {
			t.Errorf("account %d has %v, want %v", i, balance, want)
		}
	}
	for _, s := range servers {
		if code := s.interrupt(); code != 0 {
			t.Errorf("stopped with exit code %d\n%s", code, s.notes)
		}
	}
	verified(t, db)
}
