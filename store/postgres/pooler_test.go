package postgres

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast/internal/pgtest"
	"github.com/holdfast-dev/holdfast/store"
)

// Thirty connections of ours share two sessions of the server, each for one transaction at a time. Whatever we left behind
// in a session, the next one would find.
func TestAPoolerThatLendsSessionsForOneTransactionIsFine(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol"} {
		url := pgtest.NewEmpty(t)
		through := pgtest.Pooler(t, url, 2) + "&default_query_exec_mode=" + mode
		options := Options{MaxConns: 10, Patience: time.Minute}
		var servers []*DB
		var opening sync.WaitGroup
		var mutex sync.Mutex
		for range 3 { // they migrate at once
			opening.Go(func() {
				db, err := Open(t.Context(), through, options)
				if err != nil {
					t.Error(err)
					return
				}
				mutex.Lock()
				defer mutex.Unlock()
				servers = append(servers, db)
			})
		}
		opening.Wait()
		if len(servers) != 3 {
			t.FailNow()
		}
		const callers, each = 30, 4
		var all sync.WaitGroup
		for caller := range callers {
			all.Go(func() {
				for n := range each {
					key := fmt.Sprint(caller, "/", n)
					err := answer(t.Context(), servers[caller%3], want(fmt.Sprint("account ", caller%5)), key)
					for err != nil && store.KindOf(err) == store.Conflict {
						err = answer(t.Context(), servers[caller%3], want(fmt.Sprint("account ", caller%5)), key)
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		direct := opened(t, url, Options{})
		for account := range 5 {
			if version, _ := stored(t, direct, fmt.Sprint("account ", account), ""); version != callers/5*each {
				t.Errorf("account %d has version %d, wanted %d", account, version, callers/5*each)
			}
		}
		for _, db := range servers {
			must(t, db.Close())
		}
		conn := raw(t, url)
		if left := asked[int](t, conn, `SELECT count(*)::int FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'`); left != 0 {
			t.Errorf("%d transactions were left open", left)
		}
	}
}
