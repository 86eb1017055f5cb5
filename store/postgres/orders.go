package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-dev/holdfast/store"
)

// AddOrder keeps an order; one of the same name that was kept before stays as it is.
func (db *DB) AddOrder(ctx context.Context, o store.Order) error {
	_, err := db.write(ctx, "add an order", insertOrder, o.Project, o.Provider, o.Reference, o.Seller, o.Account, o.Product, int64(o.Price), o.Currency,
		o.Recurring, moment(o.CreatedAt), moment(o.PaidAt), o.Payment, o.Payer, o.Cancelled, moment(o.ToldAt))
	return err
}

const insertOrder = `INSERT INTO holdfast.orders (` + orderColumns + `)
	VALUES ($1::text, $2::text, $3::text, $4::text, $5::text, $6::text, $7::bigint, $8::text,
		$9::boolean, $10::timestamptz, $11::timestamptz, NULLIF($12::text, ''), NULLIF($13::text, ''), $14::boolean, $15::timestamptz)
	ON CONFLICT (project, provider, reference) DO NOTHING`

const orderColumns = `project, provider, reference, seller, account, product, price, currency, recurring, created_at, paid_at, payment_id, payer, cancelled, told_at`

// first is what may be NULL in an order's row.
type first struct{ payment, payer pgtype.Text }

func (f *first) of(o *store.Order) { o.Payment, o.Payer = f.payment.String, f.payer.String }

// orderPlaces are where a row's columns go.
func orderPlaces(o *store.Order, f *first) []any {
	return []any{
		&o.Project, &o.Provider, &o.Reference, &o.Seller, &o.Account, &o.Product, &o.Price, &o.Currency, &o.Recurring,
		(*moment)(&o.CreatedAt), (*moment)(&o.PaidAt), &f.payment, &f.payer, &o.Cancelled, (*moment)(&o.ToldAt),
	}
}

// OrderNamed finds an order.
func (db *DB) OrderNamed(ctx context.Context, name store.OrderName) (order store.Order, known bool, err error) {
	var f first
	known, err = db.one(ctx, "find an order", orderPlaces(&order, &f), selectOrder, name.Project, name.Provider, name.Reference)
	f.of(&order)
	return order, known, err
}

// By primary key.
const selectOrder = `SELECT ` + orderColumns + ` FROM holdfast.orders WHERE project = $1::text AND provider = $2::text AND reference = $3::text`

// RecurringOrders are those of an account that were paid and are charged again with every period.
func (db *DB) RecurringOrders(ctx context.Context, project, provider, account string) (orders []store.Order, err error) {
	err = db.with(ctx, "list orders", func(conn *pgxpool.Conn) error {
		rows, err := conn.Query(ctx, selectRecurring, project, provider, account, int64(store.MaxRecurringOrders))
		if err != nil {
			return err
		}
		return collect(rows, func(rows pgx.Rows) error {
			var order store.Order
			var f first
			err := scan(rows, orderPlaces(&order, &f)...)
			f.of(&order)
			orders = append(orders, order)
			return err
		})
	})
	return orders, err
}

// By the partial index recurring_orders: an account has few, and they are sorted.
const selectRecurring = `SELECT ` + orderColumns + ` FROM holdfast.orders
	WHERE project = $1::text AND provider = $2::text AND account = $3::text AND recurring AND paid_at IS NOT NULL
	ORDER BY paid_at DESC, created_at DESC, reference COLLATE "C" LIMIT $4::bigint`

// PayOrder keeps the earliest time of a payment, and which payment was the first.
func (db *DB) PayOrder(ctx context.Context, name store.OrderName, paid store.OrderPaid) error {
	if !paid.First {
		paid.Payment, paid.Payer = "", ""
	}
	_, err := db.write(ctx, "note a payment of an order", payOrder, moment(paid.At), paid.Payment, paid.Payer, name.Project, name.Provider, name.Reference)
	return err
}

// By primary key. least passes over NULL.
const payOrder = `UPDATE holdfast.orders SET paid_at = least(paid_at, $1::timestamptz), payment_id = coalesce(payment_id, NULLIF($2::text, '')),
	payer = CASE WHEN payment_id IS NULL THEN NULLIF($3::text, '') ELSE payer END
	WHERE project = $4::text AND provider = $5::text AND reference = $6::text`

// TellOrder keeps whether an order is charged again, unless something later was told.
func (db *DB) TellOrder(ctx context.Context, name store.OrderName, cancelled bool, at time.Time) error {
	_, err := db.write(ctx, "note the state of an order", tellOrder, cancelled, moment(at), name.Project, name.Provider, name.Reference)
	return err
}

// By primary key.
const tellOrder = `UPDATE holdfast.orders SET cancelled = $1::boolean, told_at = $2::timestamptz
	WHERE project = $3::text AND provider = $4::text AND reference = $5::text AND (told_at IS NULL OR told_at <= $2::timestamptz)`
