package acceptance

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/holdfast-dev/holdfast"
	goclient "github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
)

// The Go client against the binary, which is killed and started again at the same address while work runs: every piece of
// work is done once and charged once, and nobody who waits is told anything else.
func TestTheGoClientOutlivesAServerThatIsKilled(t *testing.T) {
	db := database(t)
	s := serve(t, db)
	address := s.url
	c, err := goclient.New(address, devKey, goclient.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const people = 8
	for i := range people {
		s.account(name("a", i), 1000)
	}
	var done atomic.Int32
	halfway, again := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(again)
		<-halfway
		s.kill()
		serve(t, db, "--listen", address[len("http://"):])
	}()
	each(people, func(i int) {
		for n := range 20 {
			work := engine.Request{
				Account: name("a", i), Key: name("m", n), Worker: name("w", i), Reserve: core.Reserve{Feature: "text.improve"},
			}
			o, err := c.Run(t.Context(), work, func(context.Context, *engine.Work) error {
				if done.Add(1) == people*10 {
					close(halfway)
					<-again
				}
				return nil
			})
			if err != nil || o.Reservation.State != core.Committed || o.Reservation.Used != 1 {
				t.Errorf("%s %s: %+v %v", work.Account, work.Key, o.Reservation, err)
			}
		}
	})
	if n := done.Load(); n != people*20 {
		t.Errorf("%d pieces of work were done, want %d", n, people*20)
	}
	for i := range people {
		balances, err := c.Balance(t.Context(), name("a", i), time.Time{})
		if err != nil || balances[0].Available != 1003-20 || balances[0].Reserved != 0 {
			t.Errorf("%s: %+v %v", name("a", i), balances, err)
		}
	}
}
