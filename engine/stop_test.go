package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/engine"
	"github.com/holdfast-dev/holdfast/store"
)

// stopping sells a plan whose running work stops when its payment is refunded.
var stopping = &holdfast.Catalog{
	Version:  1,
	Units:    []holdfast.Unit{{Name: "credit"}},
	Features: tariff.Features,
	Plans: []holdfast.Plan{
		{Name: "free", Default: true, Features: []string{"draw"}, MaxActive: 1},
		{
			Name: "pro", Features: []string{"draw"}, MaxActive: 1000, RunningOnRefund: holdfast.RunningStop,
			Allowances: []holdfast.Allowance{{Key: "pro.credit", Unit: "credit", Amount: 1000, Every: holdfast.Cycle{Term: true}}},
		},
	},
	Products: []holdfast.Product{{Name: "pro_30", Plan: "pro", Period: holdfast.Period{Days: 30}, Prices: []holdfast.Money{{Currency: "XTR", Amount: 250}}}},
}

// More live work than one decision loads, and than one page lists: the server that took the refund is gone, another one's
// sweeper does the rest.
func TestTheRefundOfAPaymentStopsAllOfItsWork(t *testing.T) {
	const live = 2*holdfast.MaxPage + 10
	eachStore(t, func(t *testing.T, s store.Store) {
		with := func(o *engine.Options) { o.Catalog = func(string) *holdfast.Catalog { return stopping } }
		h := open(t, s, with)
		h.done(h.do("ann", "", holdfast.Pay{Provider: "p", PaymentID: "p1", Product: "pro_30", Amount: 250, Currency: "XTR"}))
		var commands []holdfast.Command
		for i := range live {
			commands = append(commands, h.command("ann", fmt.Sprint("m", i), holdfast.Reserve{Feature: "draw"}))
		}
		var running []holdfast.ID
		for i, made := range h.SubmitAll(t.Context(), commands) {
			if made.Err != nil || made.Outcome.Refused() {
				t.Fatalf("%d: %v %+v", i, made.Err, made.Outcome)
			}
			if i%10 == 0 {
				running = append(running, made.Outcome.Reservation.ID)
				h.done(h.do("ann", "", holdfast.Start{ReservationID: made.Outcome.Reservation.ID, Worker: "w", Lease: time.Minute}))
			}
		}
		h.done(h.do("ann", "", holdfast.RefundPayment{Provider: "p", PaymentID: "p1", Refund: holdfast.PaymentRefund{ID: "r1"}}))
		if err := h.stop(); err != nil {
			t.Fatal(err)
		}
		other := open(t, s, with)
		for range 2 { // twice is once
			if err := other.Move(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		counts := map[string]int{}
		err := s.Dump(context.Background(), func(r store.Record) error {
			if len(r.Account.Transfers) > 0 {
				t.Errorf("left to do: %+v", r.Account.Transfers)
			}
			for reservation, err := range r.Reservations {
				if err != nil {
					return err
				}
				kind := string(reservation.State)
				if !reservation.CancelRequestedAt.IsZero() {
					kind += ", asked to stop"
				}
				counts[kind]++
			}
			return nil
		})
		if want := len(running); err != nil || len(counts) != 2 || counts["running, asked to stop"] != want || counts["released"] != live-want {
			t.Errorf("%v: %v, want %d asked to stop and all others released", err, counts, want)
		}
		other.wantBalance("ann", fmt.Sprintf("available=0 held=%d active=%d", len(running), len(running)))
		other.verify()
	})
}
