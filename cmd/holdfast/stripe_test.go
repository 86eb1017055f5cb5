package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestStripeIsServedOnlyForANamedProjectAndASecret(t *testing.T) {
	for name, f := range map[string]stripeWebhook{
		"a project without a secret": {project: "shop"},
		"a secret without a project": {secrets: []string{"whsec_x"}},
		"no project's name":          {project: "No Shop", secrets: []string{"whsec_x"}},
	} {
		if f.check() == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
	status := func(f stripeWebhook, path string) int {
		t.Helper()
		if err := f.check(); err != nil {
			t.Fatal(err)
		}
		answered := httptest.NewRecorder()
		f.mount(api, nil, nil, nil, nil).ServeHTTP(answered, httptest.NewRequest(http.MethodPost, path, io.NopCloser(strings.NewReader("{}"))))
		return answered.Code
	}
	on := stripeWebhook{project: "shop", secrets: []string{"whsec_x"}}
	if got := status(stripeWebhook{}, stripePath); got != http.StatusTeapot {
		t.Errorf("without a project: %d", got)
	}
	if got := status(on, "/v1/payments"); got != http.StatusTeapot {
		t.Errorf("another path: %d", got)
	}
	if got := status(on, stripePath); got != http.StatusBadRequest {
		t.Errorf("an event without a signature: %d", got)
	}
}
