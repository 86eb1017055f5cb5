package sqlite

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

func TestTheLockWaitsForAMigrationAndNotForAServer(t *testing.T) {
	path := fresh(t)
	synctest.Test(t, func(t *testing.T) {
		migrating, err := lockFile(t.Context(), path, migrates, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Minute) // of the bubble's clock
			if err := migrating.release(); err != nil {
				t.Error(err)
			}
		}()
		began := time.Now()
		serving, err := lockFile(t.Context(), path, serves, time.Hour)
		if err != nil {
			t.Fatalf("after %s: %v", time.Since(began), err)
		}
		serving.announce(serves)
		began = time.Now()
		_, err = lockFile(t.Context(), path, serves, time.Hour)
		if store.KindOf(err) != store.Fatal || time.Since(began) > time.Second {
			t.Errorf("after %s: %v; wanted to be refused at once", time.Since(began), err)
		}
		began = time.Now()
		_, err = lockFile(t.Context(), path, migrates, time.Hour)
		if store.KindOf(err) != store.Fatal || time.Since(began) > time.Second {
			t.Errorf("after %s: %v; wanted to be refused at once", time.Since(began), err)
		}
		if err := serving.release(); err != nil {
			t.Error(err)
		}
	})
}
