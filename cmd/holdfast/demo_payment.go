package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// The chapters of this file are about Clara: Ann was put on her plan by an operator, and pays for nothing.

const (
	clara        = "telegram:44"
	demoProvider = "telegram_stars"
	demoCurrency = "XTR"
	demoPicture  = "image.generate"
	pictureKey   = "image-1"
)

// purchase: what is paid for is granted once, and what work takes comes first from what would burn.
func (s *story) purchase(ctx context.Context) error {
	s.turnTo(clara)
	for telling := range 2 {
		if err := s.pay(ctx, "stx-1", "credits_100", 100, telling == 0); err != nil {
			return err
		}
	}
	reserved, err := s.picture(ctx, pictureKey)
	if err != nil {
		return err
	}
	s.called(reserved, "POST", "reservations", pictureKey, "%s", describeAnswer(reserved))
	if err := errors.Join(
		same("status of the picture", reserved.status, http.StatusCreated),
		same("what it holds", describeAnswer(reserved), "reserved 5 credit"),
	); err != nil {
		return err
	}
	s.running, err = s.api.start(ctx, reserved.ID, "w3")
	if err != nil {
		return err
	}
	s.called(s.running, "POST", "…/start", "", "%s by w3", s.running.State)
	if err := same("status of the start", s.running.status, http.StatusOK); err != nil {
		return err
	}
	return s.believes(ctx, belief{available: 98, reserved: 5, active: 1, used: 0})
}

// upgrade: a better plan begins at once, and what runs is not touched by it.
func (s *story) upgrade(ctx context.Context) error {
	for telling := range 2 {
		if err := s.pay(ctx, "stx-2", "pro_30", 250, telling == 0); err != nil {
			return err
		}
	}
	if err := s.believes(ctx, belief{available: 398, reserved: 5, active: 1, used: 0}); err != nil {
		return err
	}
	s.print("\n")
	committed, err := s.verb(ctx, s.running.ID, "commit", map[string]any{"lease_token": s.running.LeaseToken})
	if err != nil {
		return err
	}
	s.called(committed, "POST", "…/commit", "", "%s, used %d %s", committed.State, committed.Used, committed.Unit)
	next, err := s.picture(ctx, "")
	if err != nil {
		return err
	}
	s.called(next, "POST", "reservations", "", "only asked, for the next picture: %d %s", next.Reserved, next.Unit)
	if err := errors.Join(
		same("status of the commit", committed.status, http.StatusOK),
		same("charged", fmt.Sprint(committed.Used, " ", committed.Unit), "5 credit"),
		same("price of the next picture", fmt.Sprint(next.Reserved, " ", next.Unit), "1 image"),
	); err != nil {
		return err
	}
	return s.believes(ctx, belief{available: 398, reserved: 0, active: 0, used: 0})
}

// refund: the money goes back, and so does what it has bought, as far as it is there.
func (s *story) refund(ctx context.Context) error {
	for telling := range 2 {
		refunded, err := s.call(ctx, apiCall{
			method: http.MethodPost, path: "/v1/payments/" + demoProvider + "/stx-1/refunds", body: map[string]any{"refund_id": "refund-1"},
		})
		if err != nil {
			return err
		}
		changed := refunded.Changed != nil && *refunded.Changed
		s.called(refunded, "POST", "…/refunds", "", "%s: %d %s given back, %d of 100 credits taken back, changed: %t",
			refunded.PaymentID, refunded.Refunded, demoCurrency, refunded.Revoked, changed)
		if err := errors.Join(
			same("status of a refund", refunded.status, created(telling == 0)),
			same("changed", changed, telling == 0),
			same("given back", refunded.Refunded, 100),
			same("taken back", refunded.Revoked, 98),
		); err != nil {
			return err
		}
	}
	return s.believes(ctx, belief{available: 300, reserved: 0, active: 0, used: 0})
}

// pay tells of a completed payment of Clara's, as the bot that took it does.
func (s *story) pay(ctx context.Context, id, product string, amount int, first bool) error {
	paid, err := s.call(ctx, apiCall{method: http.MethodPost, path: "/v1/payments", body: map[string]any{
		"provider": demoProvider, "payment_id": id, "account": clara, "product": product, "amount": amount, "currency": demoCurrency,
	}})
	if err != nil {
		return err
	}
	changed := paid.Changed != nil && *paid.Changed
	s.called(paid, "POST", "payments", "", "%s, %s for %d %s: %s, changed: %t", paid.PaymentID, paid.Product, amount, demoCurrency, paid.State, changed)
	return errors.Join(
		same("status of a payment", paid.status, created(first)),
		same("its state", paid.State, "granted"),
		same("changed", changed, first),
	)
}

// created is the status of a call that does something the first time only.
func created(first bool) int {
	if first {
		return http.StatusCreated
	}
	return http.StatusOK
}

// picture reserves a picture of Clara's; without a key it only asks.
func (s *story) picture(ctx context.Context, key string) (*apiAnswer, error) {
	body := map[string]any{"account": clara, "feature": demoPicture}
	if key == "" {
		body["dry_run"] = true
	}
	return s.call(ctx, apiCall{method: http.MethodPost, path: "/v1/reservations", key: key, body: body})
}
