package holdfast

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

func TestAmountsAreAddedAndMultipliedOnlyAsFarAsTheyFit(t *testing.T) {
	for _, test := range []struct {
		a, b Amount
		sum  bool
	}{
		{MaxAmount, 0, true},
		{MaxAmount, 1, false},
		{MaxAmount - 1, 1, true},
		{MaxAmount, MaxAmount, false},
		{-MaxAmount, -1, false},
		{-MaxAmount, MaxAmount, true},
	} {
		if _, ok := test.a.add(test.b); ok != test.sum {
			t.Errorf("%d + %d fits: %t", test.a, test.b, ok)
		}
	}
	for _, test := range []struct {
		a, n    Amount
		product bool
	}{
		{MaxAmount, 1, true},
		{1, MaxAmount, true},
		{MaxAmount, 2, false},
		{1 << 27, 1 << 26, false}, // 2^53, one too many
		{1<<27 - 1, 1 << 26, true},
		{1 << 32, 1 << 32, false}, // 2^64, which would wrap to 0
		{math.MaxInt64, 0, true},
		{0, math.MaxInt64, true},
		{MaxAmount, math.MaxInt64, false},
	} {
		if _, ok := test.a.times(test.n); ok != test.product {
			t.Errorf("%d × %d fits: %t", test.a, test.n, ok)
		}
	}
}

// The oracle is arithmetic without bounds.
func TestAmountsAreAddedAndMultipliedRight(t *testing.T) {
	bound := big.NewInt(int64(MaxAmount))
	rapid.Check(t, func(t *rapid.T) {
		a := Amount(rapid.Int64Range(-int64(MaxAmount), int64(MaxAmount)).Draw(t, "a"))
		b := Amount(rapid.Int64Range(-int64(MaxAmount), int64(MaxAmount)).Draw(t, "b"))
		want := new(big.Int).Add(big.NewInt(int64(a)), big.NewInt(int64(b)))
		if got, ok := a.add(b); ok != (want.CmpAbs(bound) <= 0) || ok && int64(got) != want.Int64() {
			t.Errorf("%d + %d = %d, %t", a, b, got, ok)
		}
		price := Amount(rapid.Int64Range(0, int64(MaxAmount)).Draw(t, "price"))
		quantity := Amount(rapid.SampledFrom([]int64{0, 1, 2, 3, 1 << 20, 1 << 40, math.MaxInt64}).Draw(t, "quantity"))
		want.Mul(big.NewInt(int64(price)), big.NewInt(int64(quantity)))
		if got, ok := price.times(quantity); ok != (want.Cmp(bound) <= 0) || ok && int64(got) != want.Int64() {
			t.Errorf("%d × %d = %d, %t", price, quantity, got, ok)
		}
	})
}

func TestImpossibleAmountsAreOurFault(t *testing.T) {
	mustPanic(t, func() { (MaxAmount + 1).add(0) })
	mustPanic(t, func() { Amount(0).add(math.MinInt64) })
	mustPanic(t, func() { Amount(-1).times(1) })
	mustPanic(t, func() { Amount(1).times(-1) })
}
