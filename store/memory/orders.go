package memory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-dev/holdfast/store"
)

// AddOrder keeps an order; one of the same name that was kept before stays as it is.
func (s *Store) AddOrder(ctx context.Context, order store.Order) error {
	const op = "add an order"
	return s.use(ctx, op, func() error {
		order.CreatedAt, order.PaidAt, order.ToldAt = stored(order.CreatedAt), stored(order.PaidAt), stored(order.ToldAt)
		switch _, known := s.orders[order.OrderName]; {
		case order.Reference == "":
			return rejected(op, errors.New("order_has_a_reference"))
		case order.CreatedAt.IsZero():
			return rejected(op, errors.New("order_has_its_time"))
		case !known:
			s.orders[order.OrderName] = order
		}
		return nil
	})
}

// OrderNamed finds an order.
func (s *Store) OrderNamed(ctx context.Context, name store.OrderName) (order store.Order, known bool, err error) {
	err = s.use(ctx, "find an order", func() error {
		order, known = s.orders[name]
		return nil
	})
	return order, known, err
}

// RecurringOrders are those of an account that were paid and are charged again with every period.
func (s *Store) RecurringOrders(ctx context.Context, project, provider, account string) (orders []store.Order, err error) {
	err = s.use(ctx, "list orders", func() error {
		for _, o := range s.orders {
			if o.Project == project && o.Provider == provider && o.Account == account && o.Recurring && !o.PaidAt.IsZero() {
				orders = append(orders, o)
			}
		}
		slices.SortFunc(orders, func(a, b store.Order) int {
			return cmp.Or(b.PaidAt.Compare(a.PaidAt), b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Reference, b.Reference))
		})
		orders = slices.Clip(orders[:min(len(orders), store.MaxRecurringOrders)])
		return nil
	})
	return orders, err
}

// PayOrder keeps the earliest time of a payment, and which payment was the first.
func (s *Store) PayOrder(ctx context.Context, name store.OrderName, paid store.OrderPaid) error {
	return s.use(ctx, "note a payment of an order", func() error {
		order, known := s.orders[name]
		if !known {
			return nil
		}
		if at := stored(paid.At); order.PaidAt.IsZero() || at.Before(order.PaidAt) {
			order.PaidAt = at
		}
		if paid.First && order.Payment == "" {
			order.Payment, order.Payer = paid.Payment, paid.Payer
		}
		s.orders[name] = order
		return nil
	})
}

// TellOrder keeps whether an order is charged again, unless something later was told.
func (s *Store) TellOrder(ctx context.Context, name store.OrderName, cancelled bool, at time.Time) error {
	return s.use(ctx, "note the state of an order", func() error {
		order, known := s.orders[name]
		if at = stored(at); known && !at.Before(order.ToldAt) {
			order.Cancelled, order.ToldAt = cancelled, at
			s.orders[name] = order
		}
		return nil
	})
}
