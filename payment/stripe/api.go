package stripe

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/stripe/stripe-go/v84"
)

// API reads Stripe's lists with the official client. It reads only; it waits where Stripe says so, and tries again where an
// answer was lost.
type API struct {
	Key  string
	URL  string       // empty: Stripe's
	HTTP *http.Client // nil: one with a timeout of 30 seconds
	// Wait is how it waits; nil: by the clock.
	Wait func(ctx context.Context, length time.Duration) error
}

func (a *API) client() *stripe.Client {
	calls := a.HTTP
	if calls == nil {
		calls = &http.Client{Timeout: 30 * time.Second}
	}
	patient := *calls
	patient.Transport = &patience{next: calls.Transport, wait: a.Wait}
	config := &stripe.BackendConfig{
		HTTPClient: &patient, MaxNetworkRetries: stripe.Int64(0), EnableTelemetry: stripe.Bool(false),
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}
	if a.URL != "" {
		config.URL = stripe.String(a.URL)
	}
	return stripe.NewClient(a.Key, stripe.WithBackends(&stripe.Backends{API: stripe.GetBackendWithConfig(stripe.APIBackend, config)}))
}

// Sales reads paid invoices and checkouts.
func (a *API) Sales(ctx context.Context, since time.Time) iter.Seq2[Sale, error] {
	return func(yield func(Sale, error) bool) {
		client := a.client()
		invoices := &stripe.InvoiceListParams{Status: stripe.String(string(stripe.InvoiceStatusPaid)), CreatedRange: after(since)}
		invoices.Limit = stripe.Int64(100)
		invoices.AddExpand("data.payments")
		for invoice, err := range client.V1Invoices.List(ctx, invoices) {
			if err != nil {
				yield(Sale{}, fmt.Errorf("list invoices: %w", err))
				return
			}
			if sale := saleOfInvoice(invoice); sale != nil && !yield(*sale, nil) {
				return
			}
		}
		sessions := &stripe.CheckoutSessionListParams{Status: stripe.String(string(stripe.CheckoutSessionStatusComplete)), CreatedRange: after(since)}
		sessions.Limit = stripe.Int64(100)
		for session, err := range client.V1CheckoutSessions.List(ctx, sessions) {
			if err != nil {
				yield(Sale{}, fmt.Errorf("list checkouts: %w", err))
				return
			}
			if sale := saleOfSession(session); sale != nil && !yield(*sale, nil) {
				return
			}
		}
	}
}

// Refunds reads refunds and disputes.
func (a *API) Refunds(ctx context.Context, since time.Time) iter.Seq2[Refund, error] {
	return func(yield func(Refund, error) bool) {
		client := a.client()
		refunds := &stripe.RefundListParams{CreatedRange: after(since)}
		refunds.Limit = stripe.Int64(100)
		for refund, err := range client.V1Refunds.List(ctx, refunds) {
			if err != nil {
				yield(Refund{}, fmt.Errorf("list refunds: %w", err))
				return
			}
			if r := refundOf(refund); r != nil && !yield(*r, nil) {
				return
			}
		}
		disputes := &stripe.DisputeListParams{CreatedRange: after(since)}
		disputes.Limit = stripe.Int64(100)
		for dispute, err := range client.V1Disputes.List(ctx, disputes) {
			if err != nil {
				yield(Refund{}, fmt.Errorf("list disputes: %w", err))
				return
			}
			if r := disputeOf(dispute); r != nil && !yield(*r, nil) {
				return
			}
		}
	}
}

// RefundsOf reads the refunds of one charge.
func (a *API) RefundsOf(ctx context.Context, charge string) (found []Refund, err error) {
	params := &stripe.RefundListParams{Charge: stripe.String(charge)}
	params.Limit = stripe.Int64(100)
	for refund, err := range a.client().V1Refunds.List(ctx, params) {
		if err != nil {
			return nil, fmt.Errorf("list refunds of a charge: %w", err)
		}
		if r := refundOf(refund); r != nil {
			found = append(found, *r)
		}
	}
	return found, nil
}

func after(since time.Time) *stripe.RangeQueryParams {
	if since.IsZero() {
		return nil
	}
	return &stripe.RangeQueryParams{GreaterThanOrEqual: since.Unix()}
}

const (
	tries     = 5
	waitFirst = time.Second // and twice as long each time
	longest   = time.Minute // that is waited for, whatever Stripe says
)

// patience repeats requests, all of which only read, where Stripe says that there were too many, or has not answered.
type patience struct {
	next http.RoundTripper
	wait func(ctx context.Context, length time.Duration) error
}

// RoundTrip answers a request, at the fifth try as it is.
func (p *patience) RoundTrip(request *http.Request) (*http.Response, error) {
	next := p.next
	if next == nil {
		next = http.DefaultTransport
	}
	pause := waitFirst
	for try := 1; ; try++ {
		response, err := next.RoundTrip(request)
		again := err != nil || response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= 500
		if !again || try == tries || request.Method != http.MethodGet || request.Context().Err() != nil {
			return response, err
		}
		if err == nil {
			if seconds, bad := strconv.Atoi(response.Header.Get("Retry-After")); bad == nil && seconds > 0 {
				pause = time.Duration(seconds) * time.Second
			}
			_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<20))
			_ = response.Body.Close()
		}
		if err := p.pause(request.Context(), min(pause, longest)); err != nil {
			return nil, err
		}
		pause *= 2
	}
}

func (p *patience) pause(ctx context.Context, length time.Duration) error {
	if p.wait != nil {
		return p.wait(ctx, length)
	}
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
