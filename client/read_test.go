package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/catalog"
	"github.com/holdfast-dev/holdfast/client"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/httpapi"
	"github.com/holdfast-dev/holdfast/internal/apitest"
)

func refusalOf(err error) holdfast.Reason {
	var refused *engine.Refused
	if errors.As(err, &refused) {
		return refused.Outcome.Reason
	}
	return ""
}

func TestAnAccountIsShownWithWhatItHasAndMayAskFor(t *testing.T) {
	_, c := serve(t)
	view, err := c.Account(t.Context(), "ann")
	if err != nil || view.Exists || view.Plan != "free" || view.Balances[0].Available != 3 {
		t.Fatalf("nobody has seen it yet: %+v %v", view, err)
	}
	give(t, c, "ann", 10)
	do(t, c, command("ann", "m1", holdfast.Reserve{Feature: "text", Quantity: 4}))
	view, err = c.Account(t.Context(), "ann")
	if err != nil || !view.Exists || view.Account.Active != 1 || view.MaxActive != 3 || view.Balances[0].Available != 9 || view.Balances[0].Cycle.Reserved != 3 {
		t.Errorf("%+v %v", view, err)
	}
	if f := view.Features[2]; f.Name != "chat" || f.Price.Per != 1000 || f.Price.Rates["output_token"] != 4 {
		t.Errorf("%+v", f)
	}
	if _, err := c.Account(t.Context(), "two words"); refusalOf(err) != holdfast.Invalid {
		t.Errorf("%v", err)
	}
}

func TestAPaymentIsFoundByItsProvidersIdsAndShownWithWhatItsAccountHas(t *testing.T) {
	_, c := serve(t)
	if _, err := c.Payment(t.Context(), "stars", "p1"); refusalOf(err) != holdfast.NotFound {
		t.Errorf("nobody has told of it: %v", err)
	}
	for _, id := range []string{"p1", "..", ".", "a/b c%3f?#"} {
		account := fmt.Sprintf("ann%x", id)
		do(t, c, command(account, "", holdfast.Pay{Provider: "stars", PaymentID: id, Product: "basic_30", Amount: 100, Currency: "XTR"}))
		p, err := c.Payment(t.Context(), "stars", id)
		if err != nil || p.Owner.Name != account || p.PaymentID != id || p.State != holdfast.PaymentGranted || p.Plan != "basic" || p.PaidAt.IsZero() ||
			p.Balances[0].Available != 100 || p.Subscription.Status != holdfast.SubscriptionActive || !p.Subscription.PaidUntil.Equal(p.PeriodEnd) {
			t.Errorf("%q: %+v %v", id, p, err)
		}
		do(t, c, holdfast.Command{Do: holdfast.RefundPayment{Provider: "stars", PaymentID: id, Refund: holdfast.PaymentRefund{ID: "r1"}}})
		p, err = c.Payment(t.Context(), "stars", id)
		if err != nil || p.Refunded != 100 || p.Revoked != 100 || p.Subscription != nil || p.Balances[0].Available != 3 {
			t.Errorf("%q, refunded: %+v %v", id, p, err)
		}
	}
}

func TestAnAccountIsShownByAnyOfItsNames(t *testing.T) {
	_, c := serve(t)
	give(t, c, "ann", 10)
	if o, err := c.Alias(t.Context(), engine.Names{Account: "ann", Other: ".."}); err != nil || !o.Changed || o.Account.Account.Name != "ann" || o.Account.Balances[0].Available != 13 {
		t.Fatalf("%+v %v", o, err)
	}
	view, err := c.Account(t.Context(), "..")
	if err != nil || view.Account.Name != "ann" || view.Balances[0].Available != 13 {
		t.Errorf("%+v %v", view, err)
	}
	if o := do(t, c, command("..", "", holdfast.PutAccount{})); o.Owner.Name != "ann" {
		t.Errorf("%+v", o.Owner)
	}
}

func TestWhatTheAPIHasLearnedSinceIsPassedOver(t *testing.T) {
	address, _ := answers(
		t,
		answer(200, `{"account": "ann", "merged_into": null, "exists": true, "plan": "pro", "jobs": [{"id": "job_1"}], "balances": [{"unit": "credit", "available": 4, "lent": 1}],
			"subscription": {"plan": "pro", "status": "paused", "paused_until": "2027-01-01T00:00:00Z", "seats": {"used": 2}}}`),
		answer(200, `{"provider": "stars", "payment_id": "p1", "account": "ann", "state": "under_review", "reason": "new_reason", "job": {"id": "job_1"}, "balances": []}`),
	)
	c := dial(t, address)
	view, err := c.Account(t.Context(), "ann")
	if err != nil || view.Balances[0].Available != 4 || view.Subscription.Status != "paused" {
		t.Errorf("%+v %v", view, err)
	}
	p, err := c.Payment(t.Context(), "stars", "p1")
	if err != nil || p.State != "under_review" || p.Flag != "new_reason" {
		t.Errorf("%+v %v", p, err)
	}
}

func TestABalanceOfEarlierIsWhatWasBelievedThen(t *testing.T) {
	now := time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)
	s := apitest.Start(t, engine.Options{Catalog: tariffOf, Now: func() time.Time { return now }})
	c := dial(t, s.URL)
	give(t, c, "ann", 10)
	first := now
	now = now.Add(time.Hour)
	do(t, c, command("ann", "m1", holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text", Quantity: 5}}))
	for at, want := range map[time.Time]holdfast.Amount{first: 13, now: 8, {}: 8} {
		balances, err := c.Balance(t.Context(), "ann", at)
		if err != nil || balances[0].Unit != "credit" || balances[0].Available != want {
			t.Errorf("at %s: %+v %v, want %d", at, balances, err, want)
		}
	}
	if _, err := c.Balance(t.Context(), "ann", now.Add(time.Hour)); refusalOf(err) != holdfast.Invalid {
		t.Errorf("nobody knows the future: %v", err)
	}
}

func TestListsAreReadToTheirEndAndNoFurtherThanAsked(t *testing.T) {
	s, c := serve(t)
	p := newProxy(t, s.URL, func(string, int) fate { return arrives })
	counted := dial(t, p.URL)
	give(t, c, "ann", 10_000)
	var commands []holdfast.Command
	for i := range 450 {
		commands = append(commands, command("ann", fmt.Sprint("m", i), holdfast.Charge{Reserve: holdfast.Reserve{Feature: "text"}}))
	}
	for _, r := range c.SubmitAll(t.Context(), commands) {
		if r.Err != nil || r.Outcome.Refused() {
			t.Fatalf("%+v", r)
		}
	}
	n := 0
	for r, err := range counted.Reservations(t.Context(), "ann", client.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if want := fmt.Sprint("m", 449-n); r.Key != want || r.Owner.Name != "ann" {
			t.Fatalf("%d: %s, want %s", n, r.Key, want)
		}
		n++
	}
	if n != 450 {
		t.Errorf("%d reservations", n)
	}
	before := len(p.seen())
	for _, err := range counted.Entries(t.Context(), "ann") {
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	if n := len(p.seen()) - before; n != 1 {
		t.Errorf("%d requests for the first of many entries", n)
	}
	var newest *holdfast.Entry
	entries := 0
	for e, err := range c.Entries(t.Context(), "ann") {
		if err != nil {
			t.Fatal(err)
		}
		if newest == nil {
			newest = e
		}
		entries++
	}
	if newest.Kind != holdfast.EntryCommit || int64(entries) != newest.No || newest.Available != 10_003-450 || len(newest.Deltas) != 1 || newest.Reservation.IsZero() {
		t.Errorf("%d entries, the newest %+v", entries, newest)
	}
	grants := 0
	for g, err := range c.Grants(t.Context(), "ann") {
		if err != nil || g.Granted == 0 {
			t.Errorf("%+v %v", g, err)
		}
		grants++
	}
	if grants != 2 {
		t.Errorf("%d grants", grants)
	}
	for _, err := range c.Grants(t.Context(), "nobody") {
		if refusalOf(err) != holdfast.NotFound {
			t.Errorf("the grants of an account that is not there: %v", err)
		}
	}
}

func TestAReservationIsFoundByItsPublicIDAndByItsKey(t *testing.T) {
	_, c := serve(t)
	o := do(t, c, command("ann", "m1", holdfast.Reserve{Feature: "text", Metadata: map[string]string{"chat": "42"}}))
	id := holdfast.ReservationRef.Encode(o.Owner.ID, o.Reservation.ID)
	r, err := c.Reservation(t.Context(), id)
	if err != nil || r.PublicID() != id || r.Owner.Name != "ann" || r.Metadata["chat"] != "42" || r.Balance.Reserved != 1 {
		t.Errorf("%+v %v", r, err)
	}
	for r, err := range c.Reservations(t.Context(), "ann", client.Filter{Key: "m1", State: holdfast.Reserved}) {
		if err != nil || r.PublicID() != id {
			t.Errorf("%+v %v", r, err)
		}
	}
	for r, err := range c.Reservations(t.Context(), "ann", client.Filter{State: holdfast.Committed}) {
		t.Errorf("%+v %v", r, err)
	}
	for _, unknown := range []string{"", "rsv_1", "../accounts/ann", holdfast.ReservationRef.Encode(o.Owner.ID, holdfast.ID{1})} {
		if _, err := c.Reservation(t.Context(), unknown); refusalOf(err) != holdfast.NotFound {
			t.Errorf("%q: %v", unknown, err)
		}
	}
}

func TestAnExplanationSaysStepByStepWhy(t *testing.T) {
	_, c := serve(t)
	x, err := c.Explain(t.Context(), "ann", holdfast.Reserve{Feature: "image", Quantity: 2})
	if err != nil || x.Allowed || x.Reason != holdfast.Insufficient || x.Plan != "free" || len(x.Steps) != 5 || len(x.Texts) != 5 {
		t.Fatalf("%+v %v", x, err)
	}
	if s := x.Steps[3]; s.Check != holdfast.CheckPrice || s.Unit != "credit" || s.Needed != 10 || s.Available != 3 || s.Pockets[0].Use != holdfast.PocketWaiting {
		t.Errorf("%+v", s)
	}
	x, err = c.Explain(t.Context(), "ann", holdfast.Reserve{Feature: "chat", Usage: map[string]holdfast.Amount{"output_token": 700}})
	if err != nil || !x.Allowed || x.Steps[2].Needed != 3 || x.Steps[2].Pockets[0].Takes != 3 {
		t.Errorf("%+v %v", x, err)
	}
	if _, err := c.Explain(t.Context(), "ann", holdfast.Reserve{Feature: "nothing"}); refusalOf(err) != holdfast.Invalid {
		t.Errorf("%v", err)
	}
}

func TestAReadThatIsNotAnsweredChangesNothing(t *testing.T) {
	address, _ := answers(t, answer(502, ""))
	c := dial(t, address, func(o *client.Options) { o.RetryFor = -1 })
	_, err := c.Account(t.Context(), "ann")
	if a := accidentOf(err); a.Code != engine.Unavailable || a.MayHaveHappened() {
		t.Errorf("%v", err)
	}
}

// shelf keeps one version of a catalog.
type shelf struct{ httpapi.Catalogs }

func (shelf) Current(context.Context, string) (int64, []byte, error) {
	return 7, catalog.EmbeddedSource(), nil
}

func TestTheCatalogIsReadAsItWasWritten(t *testing.T) {
	s := apitest.Start(t, engine.Options{Catalog: tariffOf})
	handler := apitest.Handler(t, s.Engine, func(o *httpapi.Options) { o.Catalogs = shelf{} })
	c := dial(t, "http://holdfast.test", func(o *client.Options) { o.Transport = apitest.InMemory{Handler: handler} })
	sold, err := c.Catalog(t.Context())
	if err != nil || sold.Version != 7 || !bytes.Equal(sold.Source, catalog.EmbeddedSource()) {
		t.Errorf("%+v %v", sold, err)
	}
}
