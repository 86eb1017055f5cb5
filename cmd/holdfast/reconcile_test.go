package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/internal/fakestripe"
	"github.com/holdfast-dev/holdfast/internal/paytest"
	"github.com/holdfast-dev/holdfast/payment/stripe"
	"github.com/holdfast-dev/holdfast/payment/telegramstars"
	"github.com/holdfast-dev/holdfast/store/sqlite"
	"github.com/holdfast-dev/holdfast/telegram/fakeapi"
)

// shopAt opens a shop on a file, which the command line opens beside it.
func shopAt(t *testing.T, provider string) (shop *paytest.Shop, url string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.db")
	db, err := sqlite.Open(t.Context(), path, sqlite.Options{Serve: true})
	if err != nil {
		t.Fatal(err)
	}
	return paytest.Open(t, db, provider), "sqlite:" + path
}

// runs runs the command line and returns what it prints.
func runs(t *testing.T, wanted int, args ...string) (out, notes string) {
	t.Helper()
	var printed, told bytes.Buffer
	if code := run(t.Context(), args, &terminal{out: &printed, notes: &told}); code != wanted {
		t.Errorf("%s: exit %d, wanted %d\n%s%s", strings.Join(args, " "), code, wanted, &printed, &told)
	}
	return printed.String(), told.String()
}

func prints(t *testing.T, got, wanted string) {
	t.Helper()
	if got != wanted {
		t.Errorf("got\n%s\nwanted\n%s", got, wanted)
	}
}

func TestReconcileGrantsWhatTelegramListsAndWasMissed(t *testing.T) {
	shop, url := shopAt(t, telegramstars.Provider)
	stars := &telegramstars.Stars{Book: shop.Book, Bot: "7000001"}
	const token = "7000001:not-a-secret"
	api := fakeapi.Start(t, fakeapi.Options{Tokens: []string{token}})
	bot := api.Bot(token)
	t.Setenv("TELEGRAM_BOT_TOKEN", token)
	pay := func(charge, product string, recurring bool, amount int64) string {
		order, err := stars.NewOrder(t.Context(), telegramstars.NewOrder{Account: "telegram:42", Product: product, Recurring: recurring})
		if err != nil {
			t.Fatal(err)
		}
		paid := fakeapi.Payment{ChargeID: charge, Payload: order.Reference, Payer: 42, Stars: amount, At: shop.Now()}
		if recurring {
			paid.Until = paid.At.Add(fakeapi.SubscriptionPeriod)
		}
		bot.Record(paid)
		return charge
	}
	pay("c1", "credits_100", false, 100)
	if err := bot.RecordRefund(pay("c2", "credits_100", false, 100)); err != nil {
		t.Fatal(err)
	}
	pay("c3", "pro_30", true, 250)
	args := []string{"reconcile", "payments", "--provider", "telegram_stars", "--project", paytest.Project, "--db", url, "--api-url", api.URL}
	out, _ := runs(t, 0, args...)
	prints(t, out, `granted now   c1
granted now   c2
granted now   c3
refunded now  c2
reconcile: telegram_stars: granted now 3, kept and flagged 0, already there 0, refunded now 1, here and not there 0
`)
	if got := shop.Credits("telegram:42"); got < 100 {
		t.Errorf("the account has %d", got)
	}
	bot.Record(fakeapi.Payment{ChargeID: "c4", Payload: "lost", Payer: 42, Stars: 7, At: shop.Now()})
	out, notes := runs(t, 1, args...)
	prints(t, out, `kept now, and flagged  c4
reconcile: telegram_stars: granted now 0, kept and flagged 1, already there 3, refunded now 0, here and not there 0
`)
	if !strings.Contains(notes, "a payment was kept and granted nothing") {
		t.Errorf("the operator reads %q", notes)
	}
	empty := fakeapi.Start(t, fakeapi.Options{Tokens: []string{token}})
	out, _ = runs(t, 1, append(args[:len(args)-1], empty.URL)...)
	if !strings.HasSuffix(out, "here and not there 4\n") {
		t.Errorf("compared with an empty list: %s", out)
	}
	t.Setenv("TELEGRAM_BOT_TOKEN", "")
	if _, notes := runs(t, 1, args...); !strings.Contains(notes, "set TELEGRAM_BOT_TOKEN") {
		t.Errorf("without a token: %q", notes)
	}
}

func TestReconcileComparesEachBotWithItsOwnPayments(t *testing.T) {
	const provider = "telegram_stars.7000002"
	shop, url := shopAt(t, provider)
	stars := &telegramstars.Stars{Book: shop.Book, Bot: "7000002"}
	tokens := []string{"7000001:not-a-secret", "7000002:not-a-secret"}
	api := fakeapi.Start(t, fakeapi.Options{Tokens: tokens})
	order, err := stars.NewOrder(t.Context(), telegramstars.NewOrder{Account: "telegram:42", Product: "credits_100"})
	if err != nil {
		t.Fatal(err)
	}
	api.Bot(tokens[1]).Record(fakeapi.Payment{ChargeID: "c1", Payload: order.Reference, Payer: 42, Stars: 100, At: shop.Now()})
	reconcile := func(code int, token, provider string) (out, notes string) {
		t.Setenv("TELEGRAM_BOT_TOKEN", token)
		return runs(t, code, "reconcile", "payments", "--provider", provider, "--project", paytest.Project, "--db", url, "--api-url", api.URL)
	}
	if _, notes := reconcile(1, tokens[0], provider); !strings.Contains(notes, "use telegram_stars.7000001") || strings.Contains(notes, "not-a-secret") {
		t.Errorf("with another bot's token: %q", notes)
	}
	if _, notes := reconcile(1, tokens[1], "paypal"); !strings.Contains(notes, "--provider: use") {
		t.Errorf("an unknown provider: %q", notes)
	}
	out, _ := reconcile(0, tokens[1], provider)
	prints(t, out, "granted now  c1\nreconcile: telegram_stars.7000002: granted now 1, kept and flagged 0, already there 0, refunded now 0, here and not there 0\n")
	out, _ = reconcile(0, tokens[0], "telegram_stars")
	prints(t, out, "reconcile: telegram_stars: granted now 0, kept and flagged 0, already there 0, refunded now 0, here and not there 0\n")
}

func TestReconcileStopsTheChargesOfASubscriptionThatWasReplaced(t *testing.T) {
	shop, url := shopAt(t, telegramstars.Provider)
	stars := &telegramstars.Stars{Book: shop.Book, Bot: "7000001"}
	const token = "7000001:not-a-secret"
	api := fakeapi.Start(t, fakeapi.Options{Tokens: []string{token}})
	bot := api.Bot(token)
	t.Setenv("TELEGRAM_BOT_TOKEN", token)
	for i, charge := range []string{"c1", "c2"} {
		order, err := stars.NewOrder(t.Context(), telegramstars.NewOrder{Account: "telegram:42", Product: "pro_30", Recurring: true})
		if err != nil {
			t.Fatal(err)
		}
		at := shop.Now().Add(time.Duration(i) * time.Second)
		bot.Record(fakeapi.Payment{ChargeID: charge, Payload: order.Reference, Payer: 42, Stars: 250, At: at, Until: at.Add(fakeapi.SubscriptionPeriod)})
	}
	args := []string{"reconcile", "payments", "--provider", "telegram_stars", "--project", paytest.Project, "--db", url, "--api-url", api.URL}
	_, notes := runs(t, 0, args...)
	prints(t, notes, "a subscription that another one has replaced is not charged again: c1\n")
	edits := api.Transcript().Where(fakeapi.Call("editUserStarSubscription"))
	if len(edits) != 1 || edits[0].Parameters["telegram_payment_charge_id"] != "c1" || edits[0].Parameters["is_canceled"] != "true" {
		t.Errorf("what was edited: %v", edits)
	}
}

func TestReconcileGrantsWhatStripeListsAndWasMissed(t *testing.T) {
	shop, url := shopAt(t, stripe.Provider)
	shop.Sell(func(*holdfast.Catalog) {})
	api := fakestripe.New(t)
	t.Setenv("STRIPE_API_KEY", fakestripe.Key)
	now := shop.Now()
	api.Add("/v1/invoices", fakestripe.Object{
		"id": "in_1", "object": "invoice", "status": "paid", "billing_reason": "subscription_create", "amount_paid": 499, "currency": "usd", "customer": "cus_1", "created": now.Unix(),
		"parent": fakestripe.Object{"subscription_details": fakestripe.Object{"subscription": "sub_1", "metadata": fakestripe.Object{"account": "ann", "product": "pro_month"}}},
		"lines": fakestripe.Object{"object": "list", "data": []fakestripe.Object{{
			"amount": 499, "period": fakestripe.Object{"start": now.Unix(), "end": now.AddDate(0, 1, 0).Unix()},
			"parent": fakestripe.Object{"subscription_item_details": fakestripe.Object{"proration": false}},
		}}},
	})
	args := []string{"reconcile", "payments", "--provider", "stripe", "--project", paytest.Project, "--db", url, "--api-url", api.URL, "--since", "2026-11-01"}
	out, _ := runs(t, 0, args...)
	prints(t, out, "granted now  in_1\nreconcile: stripe: granted now 1, kept and flagged 0, already there 0, refunded now 0, here and not there 0\n")
	out, _ = runs(t, 0, args...)
	prints(t, out, "reconcile: stripe: granted now 0, kept and flagged 0, already there 1, refunded now 0, here and not there 0\n")
	for _, wrong := range [][]string{{"--since", "yesterday"}, {"--project", "No"}, {"--provider", "telegram_stars"}} {
		runs(t, 1, append(args, wrong...)...)
	}
}

func TestReconcileComparesAUsageExportWithWhatWasCommitted(t *testing.T) {
	shop, url := shopAt(t, stripe.Provider)
	use := func(account string, usage map[string]holdfast.Amount) {
		shop.Do(account, holdfast.Charge{Reserve: holdfast.Reserve{Feature: "draw", Usage: usage}})
	}
	for _, account := range []string{"ann", "bob", "eve"} {
		shop.Do(account, holdfast.PutAccount{})
		shop.Do(account, holdfast.AddGrant{Unit: "credit", Amount: 50, Source: holdfast.FromPromo})
	}
	use("ann", map[string]holdfast.Amount{"input_token": 100, "output_token": 10})
	use("ann", map[string]holdfast.Amount{"input_token": 20})
	use("bob", map[string]holdfast.Amount{"input_token": 5})
	shop.Pass(24 * time.Hour)
	use("ann", map[string]holdfast.Amount{"input_token": 1})
	use("eve", map[string]holdfast.Amount{"input_token": 2})
	shop.Pass(24 * time.Hour)
	use("ann", map[string]holdfast.Amount{"input_token": 1000}) // of a day that the file does not have

	path := filepath.Join(t.TempDir(), "export.csv")
	args := []string{"reconcile", "usage", "--file", path, "--project", paytest.Project, "--db", url}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("\ufeffTimestamp,Model,cost,Account,Kind,Count\n" +
		"2026-12-01T09:00:00Z,gpt-4o,0.1,ann,input_token,70\n" +
		"2026-12-02T00:30:00+01:00,gpt-4o,0.1,ann,input_token,50\n" +
		"2026-12-01 23:59:59,gpt-4o,0.1,ann,output_token,10\n" +
		"2026-12-01,gpt-4o,0.1,bob,input_token,5\n" +
		"2026-12-02,gpt-4o,0.1,ann,input_token,1\n" +
		"2026-12-02,gpt-4o,0.1,eve,input_token,2\n")
	out, _ := runs(t, 0, append(args, "--map", "gpt-4o=draw")...)
	prints(t, out, "reconcile: usage: differences 0 (rows: 6, 2026-12-01 to 2026-12-02)\n")

	write("day,feature,account,kind,count\n2026-12-01,draw,ann,input_token,150\n2026-12-02,draw,ann,input_token,1\n2026-12-01,draw,zoe,input_token,9\n2026-12-01,draw,bob,input_token,5\n")
	out, _ = runs(t, 1, args...)
	prints(t, out, `day         feature  account  kind          file  committed  difference
2026-12-01  draw     ann      input_token   150   120        +30
2026-12-01  draw     ann      output_token  0     10         -10
2026-12-01  draw     zoe      input_token   9     0          +9
2026-12-02  draw     eve      input_token   0     2          -2
reconcile: usage: differences 4 (rows: 4, 2026-12-01 to 2026-12-02)
`)
	for _, wrong := range []struct{ text, hint string }{
		{"", "1:1: the file is empty"},
		{"day,feature,account,count\n", "1:1: there is no column kind"},
		{"day,feature,account,kind,count\n2026-12-01,draw,ann,input_token,1.5\n", "2:33: count: use an integer"},
		{"day,feature,account,kind,count\n2026-12-01,draw,ann,input_token,-1\n", "2:33: count: use an integer"},
		{"day,feature,account,kind,count\n\n01.12.2026,draw,ann,input_token,1\n", "3:1: day: use 2027-01-31"},
		{"day,model,account,kind,count\n2026-12-01,gpt-4o,ann,input_token,1\n", "2:12: model: say with --map"},
		{"day,feature,account,kind,count\n2026-12-01,draw,a b,input_token,1\n", "2:17: account: use the account's name"},
		{"day,feature,account,kind,count\n2026-12-01,draw,ann,Input,1\n", "2:21: kind: use a kind"},
		{"day,feature,account,kind,count\n2026-12-01,draw,ann,input_token,9007199254740991\n2026-12-01,draw,ann,input_token,1\n", "3:33: count: the sum"},
		{"day,feature,account,kind,count\n2026-12-01,draw\n", "2:1: wrong number of fields"},
		{"day,feature,account,kind,count\n2026-12-01,\"dr\"aw,ann,k,1\n", "2:15: "},
	} {
		write(wrong.text)
		if _, notes := runs(t, 1, args...); !strings.Contains(notes, path+":"+wrong.hint) {
			t.Errorf("%q: %s, wanted %s", wrong.text, notes, wrong.hint)
		}
	}
}

func TestReconcileCountsUsageOfMergedAccountsAndWhatWasNotBilled(t *testing.T) {
	shop, url := shopAt(t, stripe.Provider)
	shop.Sell(func(c *holdfast.Catalog) {
		c.Features[0].Prices = []holdfast.Price{{Unit: "credit", Per: 1, Rates: map[string]holdfast.Amount{"input_token": 1}}}
	})
	for _, account := range []string{"ann", "old"} {
		shop.Do(account, holdfast.PutAccount{})
		shop.Do(account, holdfast.AddGrant{Unit: "credit", Amount: 50, Source: holdfast.FromPromo})
	}
	held := map[string]holdfast.Amount{"input_token": 10}
	for _, account := range []string{"ann", "old"} {
		made := shop.Do(account, holdfast.Reserve{Feature: "draw", Usage: held})
		shop.Do(account, holdfast.Commit{ReservationID: made.Reservation.ID, Usage: map[string]holdfast.Amount{"input_token": 14}}) // 4 more than was held
	}
	if merged, err := shop.Merge(t.Context(), engine.Names{Project: paytest.Project, Account: "ann", Other: "old", Actor: "test"}); err != nil || merged.Refused() {
		t.Fatalf("merge: %v %+v", err, merged)
	}
	path := filepath.Join(t.TempDir(), "export.csv")
	if err := os.WriteFile(path, []byte("day,feature,account,kind,count\n2026-12-01,draw,old,input_token,20\n2026-12-01,draw,ann,input_token,8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, _ := runs(t, 0, "reconcile", "usage", "--file", path, "--project", paytest.Project, "--db", url)
	prints(t, out, `day         feature  account  unit    unbilled
2026-12-01  draw     ann      credit  8
reconcile: usage: differences 0 (rows: 2, 2026-12-01 to 2026-12-01)
`)
}

func TestUsageOfALineOfMergesIsThatOfTheLastHoweverManyThereAre(t *testing.T) {
	id := func(i int) holdfast.AccountID { return holdfast.AccountIDOf("p", fmt.Sprint("n", i)) }
	const merges = holdfast.MaxNames + 5
	b := usageBook{counts: map[used]counted{}}
	leadsTo := map[holdfast.AccountID]holdfast.AccountID{}
	for i := range merges + 1 {
		b.counts[used{account: id(i)}] = counted{file: 1, committed: 2}
		if i < merges {
			leadsTo[id(i)] = id(i + 1)
		}
	}
	if err := b.follow(leadsTo); err != nil {
		t.Fatal(err)
	}
	if got := b.counts[used{account: id(merges)}]; len(b.counts) != 1 || got != (counted{file: merges + 1, committed: 2 * (merges + 1)}) {
		t.Errorf("%d accounts are left, the last with %+v", len(b.counts), got)
	}
}
