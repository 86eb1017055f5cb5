package store

import (
	"time"

	"github.com/holdfast-dev/holdfast"
)

// OrderName is how a provider names an order with every payment of it: what we told it at the checkout, or the id of its
// own subscription.
type OrderName struct{ Project, Provider, Reference string }

// Order is what was agreed on before a payment: who buys what, for how much. Times are in whole microseconds.
type Order struct {
	OrderName
	Seller    string // the provider's account that sells, such as a bot; empty: there is one only
	Account   string // the name of the account
	Product   string
	Price     holdfast.Amount // of the currency's smallest step
	Currency  string
	Recurring bool // the provider charges it again with every period
	CreatedAt time.Time

	PaidAt    time.Time // the earliest payment that was told; zero: none
	Payment   string    // id of the first payment; empty: not told yet
	Payer     string    // who made it, as the provider names people; empty: not told yet
	Cancelled bool      // the provider will not charge it again
	ToldAt    time.Time // of what Cancelled says; zero: nothing was told
}

// OrderPaid tells of a payment of an order. First says that it is the one that the order began with.
type OrderPaid struct {
	Payment string
	Payer   string
	First   bool
	At      time.Time
}

// MaxRecurringOrders is how many orders of an account RecurringOrders returns.
const MaxRecurringOrders = 100
