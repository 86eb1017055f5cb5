package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

var serviceName = attribute.String("service.name", "holdfast")

// startTraces sends spans of what PostgreSQL is asked to an OpenTelemetry collector. Statements are in them, their arguments
// are not. The returned function sends what is
// left, for a bounded time.
func startTraces(ctx context.Context, endpoint string) (stop func(), err error) {
	target, err := url.Parse(endpoint)
	if err != nil || target.Host == "" || target.Scheme != "http" && target.Scheme != "https" {
		return nil, errors.New("--traces: use the URL of a collector, for example http://127.0.0.1:4318")
	}
	if strings.Trim(target.Path, "/") == "" {
		target.Path = "/v1/traces" // where collectors listen
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(target.String()))
	if err != nil {
		return nil, fmt.Errorf("--traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithResource(resource.NewSchemaless(serviceName)),
	)
	otel.SetTracerProvider(provider)
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = provider.Shutdown(ctx) // a collector that is away keeps nobody from stopping
	}, nil
}
