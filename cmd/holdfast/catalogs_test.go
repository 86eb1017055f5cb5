package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/store"
	"github.com/holdfast-dev/holdfast/store/memory"
)

// priced is a catalog whose one feature costs so much.
func priced(amount int) []byte {
	return fmt.Appendf(nil, `units: {credit: {}}
features: {draw: {price: [{unit: credit, amount: %d}], longest_job: 1m, ttl: 5m}}
plans: {free: {default: true, features: [draw], max_active: 1}, pro: {features: [draw], max_active: 1}}
`, amount)
}

func priceOf(t *testing.T, c *catalogs, project string) (version, amount int64) {
	t.Helper()
	served := c.of(project)
	draw, ok := served.Feature("draw")
	if !ok {
		return served.Version, -1
	}
	return served.Version, int64(draw.Prices[0].Amount)
}

func TestAServerTakesUpWhatOthersStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db := memory.Open()
		c, err := openCatalogs(t.Context(), db, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if version, _ := priceOf(t, c, "shop"); version != 0 {
			t.Errorf("version %d where none is stored", version)
		}
		go c.refresh(t.Context())
		put := func(project string, amount int) {
			t.Helper()
			if _, err := db.AddCatalog(t.Context(), store.Catalog{Project: project, Source: priced(amount)}, store.AnyVersion); err != nil {
				t.Fatal(err)
			}
			time.Sleep(refreshEvery)
			synctest.Wait()
		}
		served := func(project string, wantVersion, wantAmount int64) {
			t.Helper()
			if version, amount := priceOf(t, c, project); version != wantVersion || amount != wantAmount {
				t.Errorf("%s is served version %d at %d; wanted %d at %d", project, version, amount, wantVersion, wantAmount)
			}
		}
		put("", 3)
		served("shop", 1, 3)
		put("shop", 5)
		served("shop", 2, 5)
		served("club", 1, 3)
		put("", 4)
		served("shop", 2, 5) // it has its own by now
		served("club", 2, 4)
		if _, err := db.AddCatalog(t.Context(), store.Catalog{Source: []byte("nonsense")}, store.AnyVersion); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * refreshEvery)
		synctest.Wait()
		served("club", 2, 4) // what cannot be understood takes nobody's place
	})
}

func TestApplyAndDiffTellWhatAFileChanges(t *testing.T) {
	t.Parallel()
	db := inTemporary(t)
	file := filepath.Join(t.TempDir(), "catalog.yaml")
	command := func(wantCode int, wanted string, arguments ...string) {
		t.Helper()
		var out, notes bytes.Buffer
		code := run(t.Context(), append(arguments, "--db", db), &terminal{out: &out, notes: &notes})
		if said := out.String() + notes.String(); code != wantCode || !strings.Contains(said, wanted) {
			t.Errorf("holdfast %s: exit %d, %s; wanted %d and %q", strings.Join(arguments, " "), code, said, wantCode, wanted)
		}
	}
	write := func(source []byte) {
		t.Helper()
		if err := os.WriteFile(file, source, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(priced(3))
	command(0, "version 1", "catalog", "apply", file)
	command(0, "was version 1 already", "catalog", "apply", file)
	command(0, "nothing would change", "catalog", "diff", file)
	write(priced(5))
	command(0, "features.draw.price", "catalog", "diff", file)
	command(0, "version 2", "catalog", "apply", "--project", "shop", file)
	command(0, "version 2", "catalog", "apply", file)
	command(1, "--project", "catalog", "apply", "--project", "No Project", file)
	write([]byte("units: 5"))
	command(1, file+":1:", "catalog", "apply", file)
}

func TestACatalogThatDropsWhatIsInUseIsRefusedWhole(t *testing.T) {
	db := memory.Open()
	if _, err := replaceCatalog(t.Context(), db, "f", store.Catalog{Source: priced(3)}, 0); err != nil {
		t.Fatal(err)
	}
	onPlan(t, db, "pro")
	without := bytes.Replace(priced(4), []byte(", pro: {features: [draw], max_active: 1}"), nil, 1)
	_, err := replaceCatalog(t.Context(), db, "f", store.Catalog{Source: without}, 1)
	var problems catalog.Problems
	if !errors.As(err, &problems) || !strings.Contains(err.Error(), "plan pro") {
		t.Errorf("the answer was %v; wanted that plan pro is in use", err)
	}
	if kept, _, err := db.LatestCatalog(t.Context(), ""); err != nil || kept.Version != 1 {
		t.Errorf("version %d is the newest, %v; wanted 1", kept.Version, err)
	}
}

// onPlan stores an account that was set to a plan.
func onPlan(t *testing.T, db database, plan string) {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	account := holdfast.Account{
		ID: holdfast.AccountIDOf("shop", "ann"), Project: "shop", Name: "ann", Plan: plan, CreatedAt: now, DecidedAt: now,
	}
	if _, err := tx.Load(t.Context(), []store.Want{{Account: account.ID, Project: "shop", Name: "ann", Create: true}}); err != nil {
		t.Fatal(err)
	}
	if err := tx.Save(t.Context(), []holdfast.Changes{{Account: account}}); err != nil {
		t.Fatal(err)
	}
}
