package postgres

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-dev/holdfast"
	"github.com/holdfast-dev/holdfast/store"
)

// traced makes one span of a transaction; what it asks the server becomes spans below it.
type traced struct {
	store.Tx
	span trace.Span
}

// Load begins the span.
func (tx *traced) Load(ctx context.Context, wants []store.Want) ([]*holdfast.State, error) {
	ctx, tx.span = otel.Tracer("holdfast").Start(ctx, "batch", trace.WithAttributes(attribute.Int("holdfast.accounts", len(wants))))
	states, err := tx.Tx.Load(ctx, wants)
	return states, tx.note(err)
}

// Save ends it.
func (tx *traced) Save(ctx context.Context, changes []holdfast.Changes) error {
	err := tx.note(tx.Tx.Save(tx.within(ctx), changes))
	tx.end()
	return err
}

// Abort ends it too.
func (tx *traced) Abort(ctx context.Context) error {
	err := tx.Tx.Abort(tx.within(ctx))
	tx.end()
	return err
}

func (tx *traced) within(ctx context.Context) context.Context {
	if tx.span == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, tx.span)
}

// note tells the kind of an error, and nothing of its text.
func (tx *traced) note(err error) error {
	if err != nil && tx.span != nil {
		tx.span.SetStatus(otelcodes.Error, store.KindOf(err).String())
	}
	return err
}

func (tx *traced) end() {
	if tx.span != nil {
		tx.span.End()
		tx.span = nil
	}
}
