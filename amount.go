package holdfast

import "math/bits"

// Amount counts the smallest step of a unit. It is never a fraction; a unit's scale is for display.
type Amount int64

// add is a + b, and whether the sum stays within MaxAmount on both sides of zero.
func (a Amount) add(b Amount) (Amount, bool) {
	assert(a.representable() && b.representable(), "amounts stay within 2^53-1")
	sum := a + b // both are within 2^53, so this cannot wrap
	return sum, sum.representable()
}

// times is a × n, and whether the product stays within MaxAmount. Neither may be negative.
func (a Amount) times(n Amount) (Amount, bool) {
	assert(a >= 0 && n >= 0, "a price and a quantity are never negative")
	if a == 0 || n == 0 {
		return 0, true
	}
	if a > MaxAmount/n {
		return 0, false
	}
	return a * n, true
}

// share is a × part ÷ whole, rounded down; shareUp rounds up. None is negative, and part is at most whole.
func (a Amount) share(part, whole Amount) Amount {
	assert(a >= 0 && part >= 0 && part <= whole && whole > 0, "a share is a part of the whole")
	high, low := bits.Mul64(uint64(a), uint64(part))
	quotient, _ := bits.Div64(high, low, uint64(whole))
	return Amount(quotient)
}

func (a Amount) shareUp(part, whole Amount) Amount { return a - a.share(whole-part, whole) }

func (a Amount) representable() bool { return a >= -MaxAmount && a <= MaxAmount }

// assert panics where the code itself is wrong. The engine takes the account out of service and tells the operator;
// nothing of the decision is written.
func assert(condition bool, message string) {
	if !condition {
		panic("holdfast: broken assertion: " + message)
	}
}
