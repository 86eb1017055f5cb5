package holdfast_test

import (
	"testing"
	"time"

	"github.com/holdfast-dev/holdfast"
)

// bought is a payment of a product at the price of soldCatalog.
func bought(id, product string) holdfast.Pay {
	for _, p := range soldCatalog().Products {
		if p.Name == product {
			return holdfast.Pay{Provider: provider, PaymentID: id, Product: product, Amount: p.Prices[0].Amount, Currency: p.Prices[0].Currency}
		}
	}
	panic("no product " + product)
}

func TestAnInvalidPaymentCreatesNobody(t *testing.T) {
	w := newWorld(t)
	w.catalog = soldCatalog()
	w.catalog.Plans[0].Allowances[0].Every = holdfast.Cycle{Calendar: holdfast.Day}
	late := bought("p1", "pro_30")
	late.PeriodEnd = w.now.AddDate(1, 0, 0)
	if got := w.expect(w.do("ann", "", late), holdfast.Invalid); len(got.saved) > 0 || w.view("ann").Exists {
		t.Fatalf("an invalid payment wrote %s", inJSON(got.saved))
	}
	late.PeriodEnd = w.now.Add(30 * 24 * time.Hour)
	w.expect(w.do("ann", "", late), "")
}
