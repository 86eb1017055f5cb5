package storetest

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

func listedClaims(t *testing.T, s store.Lookups) {
	ann := accountID("ann")
	claimed := func(paymentID string) store.Claim {
		return store.Claim{Project: project, Provider: "stars", PaymentID: paymentID, Account: ann}
	}
	for _, id := range []string{"b", "a", "B", "ё"} {
		_, err := s.ClaimPayment(t.Context(), claimed(id))
		must(t, err)
	}
	elsewhere := claimed("a")
	elsewhere.Provider = "cards"
	_, err := s.ClaimPayment(t.Context(), elsewhere)
	must(t, err)
	_, err = s.KeepRefund(t.Context(), claimed("nobody's yet"), holdfast.PaymentRefund{ID: "r"})
	must(t, err)
	page := func(after string, limit int, wanted ...string) {
		t.Helper()
		ids, err := s.ClaimedPayments(t.Context(), project, "stars", after, limit)
		must(t, err)
		same(t, "payments after "+after, ids, wanted)
	}
	page("", 10, "B", "a", "b", "ё")
	page("", 2, "B", "a")
	page("a", 2, "b", "ё")
	page("ё", 2)

	named := func(name, wanted string) {
		t.Helper()
		id, err := s.PaymentNamed(t.Context(), project, "stars", name)
		must(t, err)
		same(t, "what "+name+" is", id, wanted)
	}
	named("n", "")
	must(t, s.NamePayment(t.Context(), claimed("a"), "n"))
	must(t, s.NamePayment(t.Context(), claimed("b"), "n"))
	named("n", "a")
	id, err := s.PaymentNamed(t.Context(), "club", "stars", "n")
	must(t, err)
	same(t, "the name in another project", id, "")
}

func orders(t *testing.T, s store.Lookups) {
	name := func(reference string) store.OrderName {
		return store.OrderName{Project: project, Provider: "stars", Reference: reference}
	}
	find := func(reference string, wanted store.Order, known bool) {
		t.Helper()
		got, found, err := s.OrderNamed(t.Context(), name(reference))
		must(t, err)
		same(t, "known", found, known)
		same(t, "the order", got, wanted)
	}
	tell := func(reference string, cancelled bool, when time.Time) {
		t.Helper()
		must(t, s.TellOrder(t.Context(), name(reference), cancelled, when))
	}
	order := store.Order{
		OrderName: name("o1"), Seller: "700", Account: "ann", Product: "pro_30", Price: holdfast.MaxAmount, Currency: "XTR", Recurring: true, CreatedAt: at(1),
	}
	find("o1", store.Order{}, false)
	must(t, s.AddOrder(t.Context(), order))
	other := order
	other.Product, other.Price = "credits", 1
	must(t, s.AddOrder(t.Context(), other))
	find("o1", order, true)
	_, known, err := s.OrderNamed(t.Context(), store.OrderName{Project: "club", Provider: "stars", Reference: "o1"})
	must(t, err)
	same(t, "known in another project", known, false)
	nameless := order
	nameless.Reference = ""
	kind(t, s.AddOrder(t.Context(), nameless), store.Rejected)
	timeless := order
	timeless.Reference, timeless.CreatedAt = "o9", time.Time{}
	kind(t, s.AddOrder(t.Context(), timeless), store.Rejected)

	// A renewal that arrives before the first payment is not taken for it.
	for _, paid := range []store.OrderPaid{
		{Payment: "p2", Payer: "8", At: at(5)}, {Payment: "p1", Payer: "7", First: true, At: at(3)}, {Payment: "p3", Payer: "9", First: true, At: at(4)},
	} {
		must(t, s.PayOrder(t.Context(), name("o1"), paid))
	}
	order.PaidAt, order.Payment, order.Payer = at(3), "p1", "7"
	find("o1", order, true)

	tell("o1", true, at(7))
	tell("o1", false, at(6)) // told before
	order.Cancelled, order.ToldAt = true, at(7)
	find("o1", order, true)
	tell("o1", false, at(7))
	order.Cancelled = false
	find("o1", order, true)

	later, once, unpaid, foreign := order, order, order, order
	later.Reference, later.PaidAt = "o2", at(9)
	once.Reference, once.Recurring = "o3", false
	unpaid.Reference, unpaid.PaidAt, unpaid.Payment = "o4", time.Time{}, ""
	foreign.Reference, foreign.Account = "o5", "bob"
	atOnce := later // paid in the same second, and made after it
	atOnce.Reference, atOnce.CreatedAt = "o9", later.CreatedAt.Add(time.Microsecond)
	for _, o := range []store.Order{later, once, unpaid, foreign, atOnce} {
		must(t, s.AddOrder(t.Context(), o))
	}
	found, err := s.RecurringOrders(t.Context(), project, "stars", "ann")
	must(t, err)
	same(t, "recurring orders", found, []store.Order{atOnce, later, order})
	must(t, s.PayOrder(t.Context(), name("nobody's"), store.OrderPaid{Payment: "p", At: at(1)}))
	tell("nobody's", true, at(1))
	find("nobody's", store.Order{}, false)
}
