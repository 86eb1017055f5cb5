package sqlite

import (
	"context"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// AddOrder keeps an order; one of the same name that was kept before stays as it is.
func (db *DB) AddOrder(ctx context.Context, o store.Order) error {
	return db.write(ctx, "add an order", func(c *connection) error {
		_, err := c.exec(uninterrupted, insertOrder, o.Project, o.Provider, o.Reference, o.Seller, o.Account, o.Product, int64(o.Price), o.Currency,
			flag(o.Recurring), at(o.CreatedAt), timeOrNone(o.PaidAt), textOrNone(o.Payment), textOrNone(o.Payer), flag(o.Cancelled), timeOrNone(o.ToldAt))
		return err
	})
}

const insertOrder = `INSERT INTO orders (` + orderColumns + `) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
	ON CONFLICT (project, provider, reference) DO NOTHING`

const orderColumns = `project, provider, reference, seller, account, product, price, currency, recurring, created_at, paid_at, payment_id, payer, cancelled, told_at`

func readOrder(r *row) (o store.Order) {
	o.Project, o.Provider, o.Reference = r.text(), r.text(), r.text()
	o.Seller, o.Account, o.Product = r.text(), r.text(), r.text()
	o.Price, o.Currency = r.amount(), r.text()
	o.Recurring = r.flag()
	o.CreatedAt, o.PaidAt = r.at(), r.timeOrNone()
	for _, text := range []*string{&o.Payment, &o.Payer} {
		r.packed(func(stored string) error {
			*text = stored
			return nil
		})
	}
	o.Cancelled, o.ToldAt = r.flag(), r.timeOrNone()
	return o
}

// OrderNamed finds an order.
func (db *DB) OrderNamed(ctx context.Context, name store.OrderName) (order store.Order, known bool, err error) {
	err = db.snapshot(ctx, "find an order", func(c *connection) error {
		return c.query(ctx, selectOrder, func(r *row) error {
			order, known = readOrder(r), true
			return nil
		}, name.Project, name.Provider, name.Reference)
	})
	return order, known, err
}

// By primary key.
const selectOrder = `SELECT ` + orderColumns + ` FROM orders WHERE project = ? AND provider = ? AND reference = ?`

// RecurringOrders are those of an account that were paid and are charged again with every period.
func (db *DB) RecurringOrders(ctx context.Context, project, provider, account string) (orders []store.Order, err error) {
	err = db.snapshot(ctx, "list orders", func(c *connection) error {
		return c.query(ctx, selectRecurring, func(r *row) error {
			orders = append(orders, readOrder(r))
			return nil
		}, project, provider, account, int64(store.MaxRecurringOrders))
	})
	return orders, err
}

// By the partial index recurring_orders: an account has few, and they are sorted.
const selectRecurring = `SELECT ` + orderColumns + ` FROM orders WHERE project = ? AND provider = ? AND account = ? AND recurring = 1 AND paid_at IS NOT NULL
	ORDER BY paid_at DESC, created_at DESC, reference LIMIT ?`

// PayOrder keeps the earliest time of a payment, and which payment was the first.
func (db *DB) PayOrder(ctx context.Context, name store.OrderName, paid store.OrderPaid) error {
	if !paid.First {
		paid.Payment, paid.Payer = "", ""
	}
	return db.write(ctx, "note a payment of an order", func(c *connection) error {
		_, err := c.exec(uninterrupted, payOrder, at(paid.At), textOrNone(paid.Payment), textOrNone(paid.Payer), name.Project, name.Provider, name.Reference)
		return err
	})
}

// By primary key. min of two values is NULL where one is, so the first is made one of both. What is assigned is computed from
// the row as it was.
const payOrder = `UPDATE orders SET paid_at = min(coalesce(paid_at, ?1), ?1), payment_id = coalesce(payment_id, ?2),
	payer = CASE WHEN payment_id IS NULL THEN ?3 ELSE payer END WHERE project = ?4 AND provider = ?5 AND reference = ?6`

// TellOrder keeps whether an order is charged again, unless something later was told.
func (db *DB) TellOrder(ctx context.Context, name store.OrderName, cancelled bool, when time.Time) error {
	return db.write(ctx, "note the state of an order", func(c *connection) error {
		_, err := c.exec(uninterrupted, tellOrder, flag(cancelled), at(when), name.Project, name.Provider, name.Reference)
		return err
	})
}

// By primary key.
const tellOrder = `UPDATE orders SET cancelled = ?1, told_at = ?2 WHERE project = ?3 AND provider = ?4 AND reference = ?5 AND (told_at IS NULL OR told_at <= ?2)`
